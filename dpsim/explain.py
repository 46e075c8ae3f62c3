"""Explanations: the operations of a step, its critical path, and what changes would bring."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from dpsim.backends._toy import Toy
from dpsim.case import Case, Stretch
from dpsim.player import Played, step_time
from dpsim.prediction import Prediction
from dpsim.timeline import Span, Step

MAX_OPERATIONS = 10_000
#: steps over which a what-if is compared with now, where anything is random
PAIRED_STEPS = 8
#: ends within this of each other count as equal when the critical path is followed back
_TOUCH = 1e-9


def explain(prediction: Prediction) -> dict[str, Any]:
    """The prediction's document with, per point, operations, orders, buckets, critical path and
    what-ifs.  Points without a number keep their error."""
    points = []
    for case, played, point in zip(
        prediction.cases, prediction.played, prediction.points, strict=True
    ):
        points.append({**point, **_explained(case, played)} if played else point)
    return {**prediction.document, "points": points}


def _explained(case: Case, played: Played) -> dict[str, Any]:
    step = played.timeline.last
    program = step.cast.programs[0]
    critical = step.critical_rank()
    ranks = tuple(dict.fromkeys((critical, *range(step.cast.ranks))))
    keep = max(1, MAX_OPERATIONS // max(len(program.ops), 1))
    spans = step.spans(ranks[:keep])[:MAX_OPERATIONS]
    return {
        "critical_rank": critical,
        "operations": [_operation(span) for span in spans],
        "orders": {str(rank): step.cast.program(rank).order() for rank in ranks[:keep]},
        "peak_in_flight": [1] * len(ranks[:keep]),
        "buckets": [
            {"name": name, "bytes": size, "tensors": list(tensors)}
            for name, size, tensors in program.buckets
        ],
        "critical_path": [_operation(span) for span in critical_path(step)],
        "what_if": what_if(case, played.step_time),
    }


def _operation(span: Span) -> dict[str, Any]:
    return {
        "rank": span.rank,
        "stream": span.stream,
        "name": span.name,
        "op": span.op,
        "group": span.group,
        "bytes": span.bytes,
        "ready_s": span.ready,
        "start_s": span.start,
        "end_s": span.end,
    }


def critical_path(step: Step) -> list[Span]:
    """The chain of operations without a gap that ends with the step on the critical rank.

    Followed back from the end: before an operation comes the one that ended when it started, on
    its own stream, among those it waits for, or (before a collective) on the rank that came last.
    """
    rank = step.critical_rank()
    index = step.cast.program(rank).end
    path: list[Span] = []
    spans: dict[int, list[Span]] = {}
    while True:
        role, column = step.place(rank)
        span = (spans.get(rank) or spans.setdefault(rank, step.spans((rank,))))[index]
        if span.end > span.start or not path:
            path.append(span)
        start = float(step.start[role][index, column])
        if start <= step.origin * (1 + _TOUCH):
            break
        found = _before(step, rank, index, start)
        if found is None:
            break
        rank, index = found
    return path[::-1]


def _before(step: Step, rank: int, index: int, start: float) -> tuple[int, int] | None:
    """The operation that `index` on `rank` had to wait for, if one ended just when it started."""
    op = step.cast.program(rank).ops[index]
    ranks = [rank]
    if op.kind == "collective":
        role, _ = step.place(rank)
        late = step.ready[role][index]
        ranks.append(step.cast.members(role)[int(late.argmax())])
    for other in ranks:
        role, column = step.place(other)
        ops, ends = step.cast.program(other).ops, step.end[role][:, column]
        same = [i for i in range(index) if ops[i].stream == op.stream][-1:]
        for candidate in sorted({*op.after, *same}, key=lambda i: -float(ends[i])):
            if abs(float(ends[candidate]) - start) <= _TOUCH * max(start, 1e-9):
                return other, candidate
    return None


def what_if(case: Case, time: float) -> list[dict[str, Any]]:
    """Step time under single changes, each by playing it again.

    Where anything is random, now and then are played over the same few steps with the same draws,
    and their ratio is what counts.
    """
    now = _short(case)
    result = []
    for name, (variant, samples) in _changes(case).items():
        changed = time * variant() / now if now > 0 else 0.0
        gain = samples * time / changed - 1.0 if changed > 0 else None
        result.append({"change": name, "step_time_s": changed, "throughput_gain": gain})
    return result


def _short(case: Case, stretch: Stretch | None = None, *, quiet: bool = False) -> float:
    return step_time(case, stretch=stretch, quiet=quiet, at_most=PAIRED_STEPS)


def _changes(case: Case) -> dict[str, tuple[Callable[[], float], float]]:
    """Name -> function that returns the new step time, and samples per step relative to now."""
    changes: dict[str, tuple[Callable[[], float], float]] = {}
    if case.ranks > 1:
        changes["twice the bandwidth"] = (lambda: _network(case, 2.0, 1.0), 1.0)
        changes["half the latency"] = (lambda: _network(case, 1.0, 0.5), 1.0)
        changes["free communication"] = (lambda: _short(case.without_communication()), 1.0)
    changes["twice the batch"] = (lambda: _short(_twice_the_batch(case)), 2.0)
    changes["twice the compute speed"] = (lambda: _short(case, Stretch(compute=0.5)), 1.0)
    if case.scenario.variability.random or case.scenario.variability.slow_ranks:
        changes["no stragglers"] = (lambda: _short(case, quiet=True), 1.0)
    return changes


def _network(case: Case, bandwidth: float, latency: float) -> float:
    if isinstance(case.backend, Toy):
        faster = case.backend.faster(bandwidth, latency)
        scenario = dataclasses.replace(case.scenario, collective=faster)
        return _short(Case(scenario, case.base, case.compute_scale))
    return _short(case, Stretch(latency=latency, transfer=1.0 / bandwidth))


def _twice_the_batch(case: Case) -> Case:
    batch = case.scenario.batch
    twice = (
        {"per_device": (batch.per_device or 1) * 2}
        if batch.weak
        else {"global": (batch.global_ or 1) * 2}
    )
    doubled = type(batch)(accumulation=batch.accumulation, **twice)
    return Case(dataclasses.replace(case.scenario, batch=doubled), case.base, case.compute_scale)
