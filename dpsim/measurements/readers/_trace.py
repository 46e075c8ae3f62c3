"""The events of a Kineto trace that count, by kind and in order of time [us]."""

from __future__ import annotations

import bisect
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from dpsim.core.record import Refused
from dpsim.measurements.readers import json_content

_STEP = re.compile(r"ProfilerStep#(\d+)")


class Event(NamedTuple):
    """One complete event: times in us, `tid` the thread or stream."""

    name: str
    start: float
    end: float
    tid: Any
    args: Mapping[str, Any]

    @property
    def number(self) -> int:
        """Of a step, the one that the profiler gave it."""
        found = _STEP.fullmatch(self.name)
        return int(found[1][:18]) if found else 0


@dataclass
class Trace:
    """The events that count, by kind, each in order of time.

    operators, optimizers, notes   by thread: operators, ``Optimizer.step#…`` and ``nccl:…``
    launches                       by correlation
    """

    operators: dict[Any, list[Event]] = field(default_factory=lambda: defaultdict(list))
    optimizers: dict[Any, list[Event]] = field(default_factory=lambda: defaultdict(list))
    notes: dict[Any, list[Event]] = field(default_factory=lambda: defaultdict(list))
    launches: dict[Any, Event] = field(default_factory=dict)
    compute: list[Event] = field(default_factory=list)
    wire: list[Event] = field(default_factory=list)
    steps: list[Event] = field(default_factory=list)

    def launch(self, kernel: Event) -> Event | None:
        """What the host called to launch `kernel`, where the trace has it."""
        return self.launches.get(kernel.args.get("correlation"))


def load(path: Path) -> tuple[dict[str, Any], Trace]:
    """The trace at `path` as it is, and its events."""
    data = json_content(path)
    events = data.get("traceEvents") if isinstance(data, dict) else None
    if not isinstance(events, list):
        raise Refused("has no list `traceEvents`")
    return data, _sorted(events)


def _sorted(events: list[Any]) -> Trace:
    """All complete events of `events` by kind; times from the first one's start."""
    trace = Trace()
    zero = None  # small numbers keep their digits
    for number, raw in enumerate(events):
        if not isinstance(raw, dict):
            raise Refused(f"traceEvents[{number}] is no mapping")
        if raw.get("ph") == "X":
            start = _number(raw.get("ts"), f"traceEvents[{number}].ts")
            zero = start if zero is None else zero
            _file(trace, _event(raw, number, start - zero), str(raw.get("cat", "")).lower())
    for threads in (trace.operators, trace.optimizers, trace.notes):
        for group in threads.values():
            group.sort(key=lambda e: (e.start, -e.end))
    for plain in (trace.compute, trace.wire, trace.steps):
        plain.sort(key=lambda e: (e.start, e.end))
    return trace


def _event(raw: Mapping[str, Any], number: int, start: float) -> Event:
    length = _number(raw.get("dur"), f"traceEvents[{number}].dur")
    if length < 0:
        raise Refused(f"traceEvents[{number}].dur: {length:g} us is negative")
    args = raw.get("args")
    tid = raw.get("tid")
    tid = tid if isinstance(tid, (str, int)) else str(tid)
    named = args if isinstance(args, dict) else {}
    return Event(str(raw.get("name", "")), start, start + length, tid, named)


def _number(value: Any, where: str) -> float:
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise Refused(f"{where}: {str(value)[:40]!r} is not a number")
    return number


def _file(trace: Trace, event: Event, kind: str) -> None:
    """Put `event` where it belongs."""
    if kind == "kernel":
        (trace.wire if "nccl" in event.name.lower() else trace.compute).append(event)
    elif kind in ("cpu_op", "operator"):
        trace.operators[event.tid].append(event)
    elif kind in ("cuda_runtime", "cuda_driver"):
        if isinstance(key := event.args.get("correlation"), (int, str)):
            trace.launches[key] = event
    elif kind == "user_annotation" and _STEP.fullmatch(event.name):
        trace.steps.append(event)
    elif kind == "user_annotation" and event.name.startswith("Optimizer.step"):
        trace.optimizers[event.tid].append(event)
    elif kind == "user_annotation" and event.name.startswith("nccl:"):
        trace.notes[event.tid].append(event)


def around(events: Sequence[Event], time: float) -> Event | None:
    """The innermost of nested `events`, sorted by start, that contains `time`."""
    last = bisect.bisect_right(events, time, key=lambda e: e.start) - 1
    for k in range(last, max(last - 1000, -1), -1):
        if events[k].end >= time:
            return events[k]
    return None
