"""Explanations: the operations of a step, its critical path, and what changes would bring."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from dpsim.case import Case, Stretch
from dpsim.critical import critical_path
from dpsim.player import Played, step_time
from dpsim.prediction import Prediction
from dpsim.timeline import Span

MAX_OPERATIONS = 10_000
#: steps over which a what-if is compared with now, where anything is random
PAIRED_STEPS = 8


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
        "peak_in_flight": [1] * step.cast.ranks,
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
        changes["twice the bandwidth"] = (lambda: _short(case, Stretch(transfer=0.5)), 1.0)
        changes["half the latency"] = (lambda: _short(case, Stretch(latency=0.5)), 1.0)
        changes["free communication"] = (lambda: _short(case.without_communication()), 1.0)
    changes["twice the batch"] = (lambda: _short(_twice_the_batch(case)), 2.0)
    changes["twice the compute speed"] = (lambda: _short(case, Stretch(compute=0.5)), 1.0)
    if case.scenario.variability.random or case.scenario.variability.slow_ranks:
        changes["no stragglers"] = (lambda: _short(case, quiet=True), 1.0)
    return changes


def _twice_the_batch(case: Case) -> Case:
    batch = case.scenario.batch
    twice = (
        {"per_device": (batch.per_device or 1) * 2}
        if batch.weak
        else {"global": (batch.global_ or 1) * 2}
    )
    doubled = type(batch)(accumulation=batch.accumulation, **twice)
    return Case(dataclasses.replace(case.scenario, batch=doubled), case.base, case.compute_scale)
