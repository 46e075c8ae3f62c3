"""The log of ml-goodput-measurement: when a job and its steps started, over all of its restarts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from dpsim.core.jsonfile import loads
from dpsim.core.record import Refused
from dpsim.core.yamlfile import FileRefused
from dpsim.measurements.incidents.counted import CountedRate, Exposure, Seen, moment, span

START, END, STEP, COUNT = "job_start_time", "job_end_time", "step_start_time", "step_count"
#: steps from which a run tells how long one takes
_ENOUGH = 3


@dataclass
class _Stay:
    """From a start of the job to its next: when its steps started, by their count."""

    start: float
    steps: list[tuple[int, float]] = field(default_factory=list)
    end: float | None = None


def read(text: str, name: str, observed: Exposure) -> tuple[float, list[CountedRate], Seen]:
    """Time looked at [s], the rate of interruptions, and how long restarts took."""
    stays = _stays(text, name)
    if not stays:
        raise Refused(f"has no {START}; is it a log of ml-goodput-measurement?")
    step = _step(stays)
    ends = [_end(stay, step) for stay in stays]
    over = observed.over or ends[-1] - stays[0].start
    if over <= 0.0:
        raise Refused("tells of no time: one start, and no step or end after it")
    count = len(stays) - 1
    section: dict[str, Any] = {}
    if count and observed.devices:
        whole = {"count": count, "over": span(over), "devices": observed.devices}
        section = {"interruptions": whole}
    elif count:
        section = {"software": {"mtbf": span(over / count)}}
    exposure, of = (over * observed.devices, "device") if observed.devices else (over, "job")
    rate = CountedRate("interruptions", count, of, exposure, section)
    return over, [rate], _seen(stays, ends, step, over)


def _seen(stays: list[_Stay], ends: list[float], step: float | None, over: float) -> Seen:
    """What restarts took, and what was done twice."""
    away = [later.start - end for end, later in zip(ends, stays[1:], strict=False)]
    ready = [stay.steps[0][1] - stay.start for stay in stays if stay.steps]
    measured, sections, notes = dict[str, float](), dict[str, Any](), list[str]()
    if ready:
        measured["startup_s"] = sum(ready) / len(ready)
        sections["startup"] = {"process_groups": span(max(measured["startup_s"], 0.0))}
    if away:
        measured["detection_s"] = max(sum(away) / len(away), 0.0)
        sections["recovery"] = {"kind": "restart", "detection": span(measured["detection_s"])}
        notes.append("detection is from the end of the last step to the next start: waiting for "
                     "nodes is part of it")  # fmt: skip
    if step is not None:
        done = {count for stay in stays for count, _ in stay.steps}
        again = sum(len(stay.steps) for stay in stays) - len(done)
        measured |= {"step_s": step, "steps_done_twice": float(again)}
        measured["goodput"] = min(len(done) * step / over, 1.0)
    return Seen(measured, sections, tuple(notes))


def _step(stays: list[_Stay]) -> float | None:
    """The median of how long steps took [s]."""
    found = [
        (later - start) / (number - count)
        for stay in stays
        for (count, start), (number, later) in zip(stay.steps, stay.steps[1:], strict=False)
        if number > count
    ]
    return median(found) if len(found) >= _ENOUGH else None


def _end(stay: _Stay, step: float | None) -> float:
    """When a stay was over: where the log says so, else after its last step."""
    if stay.end is not None:
        return stay.end
    return stay.steps[-1][1] + (step or 0.0) if stay.steps else stay.start


def _stays(text: str, name: str) -> list[_Stay]:
    marks = sorted(_marks(text, name), key=lambda mark: mark[1])
    found: list[_Stay] = []
    for kind, time, count in marks:
        if kind == START:
            found.append(_Stay(time))
        elif not found:
            raise FileRefused(f"has a {kind} before any {START}", shown=name)
        elif kind == END:
            found[-1].end = time
        else:
            found[-1].steps.append((count, time))
    return found


def _marks(text: str, name: str) -> Iterator[tuple[str, float, int]]:
    """What the entries say that counts here: which time, when, and of which step."""
    for line, entry in _entries(text, name):
        entry = entry.get("jsonPayload", entry)
        if not isinstance(entry, dict):
            raise FileRefused("has an entry that is no object", shown=name, line=line)
        for kind in (START, END, STEP):
            if kind not in entry:
                continue
            try:
                time, count = moment(str(entry[kind])), int(entry.get(COUNT, 0))
            except (TypeError, ValueError) as error:
                raise FileRefused(f"{kind}: {error}", shown=name, line=line) from None
            yield kind, time, count


def _entries(text: str, name: str) -> Iterator[tuple[int | None, dict[str, Any]]]:
    """The entries with their lines: those of one list, or one a line."""
    if text.lstrip().startswith("["):
        for entry in loads(text):
            if not isinstance(entry, dict):
                raise FileRefused("has an entry that is no object", shown=name)
            yield None, entry
        return
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = loads(line)
        except Refused as error:
            raise FileRefused(error.message, shown=name, line=number) from None
        if not isinstance(entry, dict):
            raise FileRefused("is no object", shown=name, line=number)
        yield number, entry
