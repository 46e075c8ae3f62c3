"""Reader of Kineto traces, as torch.profiler writes them with ``export_chrome_trace``.

Times are in us (pytorch/kineto libkineto/src/output_json.cpp).  A kernel belongs to the operator
whose thread launched it (`correlation`); a backward function belongs to the forward operator with
the same sequence number.  NCCL kernels are counted once: the ``nccl:`` annotations beside them
repeat them.  Their duration includes waiting for the other ranks, so they are no curve.
"""

from __future__ import annotations

import ast
import bisect
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpsim.core.record import Refused
from dpsim.measurements.findings import Bucket, Findings, LayerSeconds, StepTime, unique
from dpsim.measurements.readers import Reader, opens_json
from dpsim.measurements.readers._trace import Event, Trace, around, load

_MARKS = (b'"traceEvents"', b'"deviceProperties"', b'"distributedInfo"')
#: bytes of one element, by c10::ScalarType's and TypeMeta's names
_ELEMENT = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "c10::half": 2, "c10::bfloat16": 2,
    "int": 4, "long": 8, "long int": 8, "short": 2, "char": 1, "signed char": 1, "byte": 1,
    "unsigned char": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
_COLLECTIVES = {
    "allreduce": "all_reduce", "all_reduce": "all_reduce", "allreduce_coalesced": "all_reduce",
    "reduce_scatter": "reduce_scatter", "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
}  # fmt: skip


class Kineto(Reader):
    """A trace becomes step times, seconds by operator, buckets and the overlap."""

    accepts = "Kineto traces (.json, .json.gz)"

    def claims(self, path: Path, head: bytes) -> bool:
        return opens_json(head) and any(mark in head for mark in _MARKS)

    def read(self, path: Path) -> Findings:
        data, every = load(path)
        trace = replace(every, steps=_steps_with_kernels(every))
        world, warnings = _world(data)
        steps, said = _steps(trace.steps, world, len(every.steps))
        buckets, notes, doubts = _buckets(trace)
        if not trace.compute and not trace.wire:
            raise Refused("has no kernel; profile with ProfilerActivity.CUDA")
        layers = _layers(trace, max(len(trace.steps), 1))
        count = f"Kineto: {len(trace.compute) + len(trace.wire)} kernels, {len(trace.wire)} NCCL"
        return Findings(
            path.name,
            steps=steps,
            layers=layers,
            buckets=buckets,
            device=_device(data, trace),
            warnings=unique([*warnings, *said, *doubts]),
            notes=(count, *notes),
            overlap=_overlap(trace.wire, trace.compute),
        )


# -- what the trace says as a whole ------------------------------------------------------------


def _world(data: Mapping[str, Any]) -> tuple[int | None, list[str]]:
    info = data.get("distributedInfo")
    world = info.get("world_size") if isinstance(info, dict) else None
    if not isinstance(world, int) or isinstance(world, bool) or world < 1:
        return None, ["does not say how many ranks there were"]
    warning = f"is one rank of {world}" if world > 1 else ""
    return world, [warning] if warning else []


def _device(data: Mapping[str, Any], trace: Trace) -> str | None:
    """The name of the device that ran the first kernel."""
    devices = data.get("deviceProperties")
    kernels = trace.compute or trace.wire
    if not isinstance(devices, list) or not kernels:
        return None
    own = kernels[0].args.get("device")
    for entry in devices:
        if isinstance(entry, dict) and entry.get("id") == own:
            return str(entry.get("name", ""))[:80] or None
    return None


def _steps_with_kernels(trace: Trace) -> list[Event]:
    starts = sorted(e.start for e in (*trace.compute, *trace.wire))
    return [
        step
        for step in trace.steps
        if bisect.bisect_right(starts, step.end) > bisect.bisect_left(starts, step.start)
    ]


def _steps(
    steps: list[Event], world: int | None, marked: int
) -> tuple[tuple[StepTime, ...], list[str]]:
    """Durations of `steps`, of so many that the profiler marked."""
    said = ["steps were timed under the profiler, which slows the host"] if steps else []
    if len(steps) < marked:
        said.append(f"{marked - len(steps)} steps without a kernel are left out")
    times = tuple((step.end - step.start) * 1e-6 for step in steps)
    return ((StepTime(world, None, times),) if times else ()), said


def _overlap(wire: list[Event], compute: list[Event]) -> float | None:
    """Share of the time of communication during which a kernel of compute runs."""
    ours, theirs = _union(wire), _union(compute)
    total = sum(end - start for start, end in ours)
    if total <= 0:
        return None
    common, k = 0.0, 0
    for start, end in ours:
        while k < len(theirs) and theirs[k][1] <= start:
            k += 1
        j = k
        while j < len(theirs) and theirs[j][0] < end:
            common += min(end, theirs[j][1]) - max(start, theirs[j][0])
            j += 1
    return common / total


def _union(events: Iterable[Event]) -> list[tuple[float, float]]:
    """The time that `events`, sorted by start, cover together."""
    found: list[tuple[float, float]] = []
    for event in events:
        if found and event.start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], event.end))
        else:
            found.append((event.start, event.end))
    return found


# -- collectives -------------------------------------------------------------------------------


def _buckets(trace: Trace) -> tuple[tuple[Bucket, ...], list[str], list[str]]:
    """The collectives that carry gradients, by step; notes; doubts."""
    found: list[Bucket] = []
    places: Counter[int] = Counter()
    kinds: Counter[str] = Counter()
    unknown = 0
    for kernel in trace.wire:
        launch = trace.launch(kernel)
        ready = launch.start if launch else kernel.start
        name, size = _payload(trace, kernel, launch)
        kinds[name] += 1
        step = bisect.bisect_right(trace.steps, ready, key=lambda e: e.start) - 1
        if name not in ("all_reduce", "reduce_scatter") or (trace.steps and step < 0):
            continue
        if size is None:
            unknown += 1
            continue
        step = max(step, 0)
        zero = trace.steps[step].start if trace.steps else 0.0
        began, start, end = ((t - zero) * 1e-6 for t in (ready, kernel.start, kernel.end))
        found.append(Bucket(places[step], size, began, start, end, step))
        places[step] += 1
    notes = [f"Kineto: {n} {name} kernels" for name, n in sorted(kinds.items())]
    doubts = [f"{unknown} collectives don't say their size and are left out"] if unknown else []
    if found:
        doubts.append(
            "durations of NCCL kernels include waiting for other ranks, so they make no curve"
        )
    return tuple(found), notes, doubts


def _payload(trace: Trace, kernel: Event, launch: Event | None) -> tuple[str, float | None]:
    """(operation, full size in bytes) of a collective's kernel, as far as the trace says."""
    args = kernel.args
    if "Collective name" in args:
        given = str(args["Collective name"])
        elements, dtype = args.get("In msg nelems"), str(args.get("dtype", ""))
    else:
        note = around(trace.notes.get(launch.tid, []), launch.start) if launch else None
        if note is None:
            return _by_kernel(kernel.name), None
        given = note.name.removeprefix("nccl:")
        elements, dtype = _first_input(note.args)
    name = _COLLECTIVES.get(
        given, _COLLECTIVES.get(given.replace("all_reduce", "allreduce"), given)
    )
    width = _ELEMENT.get(dtype.lower())
    if width is None or not isinstance(elements, int) or isinstance(elements, bool):
        return name, None
    return name, float(elements * width) if elements > 0 else None


def _by_kernel(name: str) -> str:
    """The operation that a kernel's name carries, such as ncclDevKernel_AllReduce_Sum_f32_RING."""
    found = re.search(r"Kernel_([A-Za-z]+)_", name)
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", found[1]).lower() if found else "unnamed"
    return _COLLECTIVES.get(words, words)


def _first_input(args: Mapping[str, Any]) -> tuple[int | None, str]:
    """Elements and dtype of the first input, from the older trace format."""
    dims, types = (_list(args.get(key)) for key in ("Input Dims", "Input type"))
    if not dims or not types or not isinstance(dims[0], list):
        return None, ""
    if not all(isinstance(d, int) and not isinstance(d, bool) for d in dims[0]):
        return None, ""
    return math.prod(dims[0]), str(types[0])


def _list(value: Any) -> list[Any]:
    """A list, also where the trace holds it as text."""
    if isinstance(value, str) and len(value) < 10_000:
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return []
    return value if isinstance(value, list) else []


# -- compute -----------------------------------------------------------------------------------


def _layers(trace: Trace, steps: int) -> tuple[LayerSeconds, ...]:
    """Seconds of kernels per step, by forward operator; backward goes to its forward operator."""
    tops = {tid: _outermost(events) for tid, events in trace.operators.items()}
    owners = _owners(trace.operators, tops)
    forward: dict[str, list[float]] = defaultdict(list)
    backward: dict[str, list[float]] = defaultdict(list)
    for kernel in trace.compute:
        launch = trace.launch(kernel)
        seconds = (kernel.end - kernel.start) * 1e-6 / steps
        if launch is None:
            forward["(not launched in the trace)"].append(seconds)
            continue
        if around(trace.optimizers.get(launch.tid, []), launch.start):
            forward["(optimizer)"].append(seconds)
            continue
        top = around(tops.get(launch.tid, []), launch.start)
        if top is None:
            forward["(no operator)"].append(seconds)
        elif top.name.startswith("autograd::engine::evaluate_function"):
            key = top.args.get("Sequence number")
            name = owners.get(key) if isinstance(key, int) else None
            backward[name or top.name.partition(": ")[2] or top.name].append(seconds)
        else:
            forward[top.name].append(seconds)
    names = sorted({*forward, *backward})
    return tuple(
        LayerSeconds(n[:120], math.fsum(forward[n]), math.fsum(backward[n])) for n in names
    )


def _outermost(events: list[Event]) -> list[Event]:
    found: list[Event] = []
    for event in events:
        if not found or event.start >= found[-1].end:
            found.append(event)
    return found


def _owners(
    operators: Mapping[Any, list[Event]], tops: Mapping[Any, list[Event]]
) -> dict[int, str]:
    """Sequence number -> the outermost forward operator that drew it.

    Operators that draw none carry the number that the next one draws, so the last one counts.
    """
    found: dict[int, str] = {}
    for tid, events in operators.items():
        for event in events:
            key = event.args.get("Sequence number")
            if isinstance(key, int) and not event.args.get("Fwd thread id"):
                top = around(tops[tid], event.start)
                if top is not None and not top.name.startswith("autograd::"):
                    found[key] = top.name
    return found
