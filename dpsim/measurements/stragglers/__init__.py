"""Stragglers in measured times: which rank, since when, and what its mending would gain.

Of a table of times per rank and step, the ideal step is that of the typical (median) rank, and the
original that of the slowest.  Traces of operations are played again (`_operations`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpsim.core.arrays import Array
from dpsim.core.record import Refused
from dpsim.core.yamlfile import located
from dpsim.measurements.stragglers import _operations, _table
from dpsim.measurements.stragglers._operations import BACKWARD, FORWARD, Operations, OpGraph, OpKey
from dpsim.measurements.stragglers._read import read
from dpsim.measurements.stragglers._table import Straggler, Times

#: how much slower than typical a rank must be
THRESHOLD = 0.05
#: share of the ranks beyond which slowness is nobody's own
MANY = 0.5


@dataclass(frozen=True)
class Found:
    """What the times say.

    original, ideal   mean step as it was, and without stragglers [s]
    stragglers        those first whose mending gains most
    parts             kind of part ("operation", "stage", "replica") -> part -> what the step would
                      gain if it alone were ideal [s]
    notes             what else is worth knowing
    """

    kind: str
    ranks: int
    steps: int
    original: float
    ideal: float
    stragglers: tuple[Straggler, ...]
    parts: dict[str, dict[str, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def slowdown(self) -> float:
        return self.original / self.ideal

    def document(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "ranks": self.ranks,
            "steps": self.steps,
            "original_s": self.original,
            "ideal_s": self.ideal,
            "slowdown": self.slowdown,
            "stragglers": [
                {
                    "rank": s.rank,
                    "pattern": s.pattern,
                    "since_step": s.since,
                    "share_of_steps": s.share,
                    "factor": s.factor,
                    "cost_s": s.gain,
                }
                for s in self.stragglers
            ],
            "gain_s": self.parts,
            "notes": list(self.notes),
        }


def analyse(paths: Sequence[Path], threshold: float = THRESHOLD) -> Found:
    """Who is slow in the times of `paths`: a table, a trace, or the Kineto traces of all ranks."""
    if not 0.0 < threshold < 100.0:
        raise Refused(f"a threshold of {threshold:g} is not above 0 and below 100")
    try:
        times = read(paths)
        if isinstance(times, Times):
            return of_times(times, threshold)
        return of_operations(times, threshold)
    except Refused as error:
        raise located(error, paths[0].name, {}) from None


def of_times(times: Times, threshold: float = THRESHOLD) -> Found:
    """Stragglers among ranks that each took so long in each step."""
    ratios = times.seconds / times.typical[:, None]
    found = [
        replace(one, rank=times.ranks[column], gain=_table.gain(times, column))
        for column, one in _table.find(times.steps, ratios, threshold).items()
    ]
    original, ideal = _table.original(times), _table.ideal(times)
    notes = _notes(found, len(times.ranks), len(times.steps))
    if original / ideal < 1.001:
        notes += (
            "all ranks take the same time: times that contain the wait for each other hide "
            "stragglers; measure the computation alone",
        )
    return Found(
        "times", len(times.ranks), len(times.steps), original, ideal, _sorted(found), notes=notes
    )


def _notes(found: Sequence[Straggler], ranks: int, steps: int) -> tuple[str, ...]:
    notes: tuple[str, ...] = ()
    at_times = sum(one.pattern == "at times" for one in found)
    if ranks > 2 and at_times > MANY * ranks:
        notes += (
            f"{at_times} of {ranks} ranks are slow at times: the work is uneven from step to step "
            "(sequences of unequal length?) rather than any of them",
        )
    if steps < 2 * _table.LEAST:
        notes += (f"{steps} steps are too few to say since when",)
    return notes


def _sorted(found: Sequence[Straggler]) -> tuple[Straggler, ...]:
    return tuple(sorted(found, key=lambda one: (-one.gain, one.rank)))


# -- traces of operations -----------------------------------------------------------------------


def of_operations(trace: Operations, threshold: float = THRESHOLD) -> Found:
    """Stragglers of a trace, by playing it with some operations ideal."""
    graph = _operations.graph_of(trace)
    taken = _operations.lengths(trace, graph)
    ideal = _operations.ideal(taken)
    best, now = (float(_operations.play(graph, t).mean()) for t in (ideal, taken))
    found = []
    for column, one in _table.find(trace.steps, _work(trace, taken, ideal), threshold).items():
        replica, stage = divmod(column, trace.stages)
        mended = _mended(taken, ideal, stage=stage, replica=replica)
        gain = now - float(_operations.play(graph, mended).mean())
        found.append(replace(one, rank=int(trace.ranks[replica, stage]), gain=gain))
    parts = _parts(graph, taken, ideal, now)
    notes = _notes(found, trace.ranks.size, len(trace.steps)) + _uneven(trace, found)
    return Found(
        "operations", trace.ranks.size, len(trace.steps), now, best, _sorted(found), parts, notes
    )


def _uneven(trace: Operations, found: Sequence[Straggler]) -> tuple[str, ...]:
    """Stages of which all ranks are slow: the model is split unevenly."""
    slow = {one.rank for one in found}
    stages = [s for s in range(trace.stages) if set(trace.ranks[:, s].tolist()) <= slow]
    if trace.stages < 2 or trace.ranks.shape[0] < 2:
        return ()
    return tuple(
        f"all ranks of stage {stage} are slow: the stages are uneven (embeddings and the loss "
        "belong to one of them)"
        for stage in stages
    )


def _work(trace: Operations, taken: Mapping[OpKey, Array], ideal: Mapping[OpKey, Array]) -> Array:
    """Each rank's forward and backward relative to the ideal, (steps, replicas x stages)."""
    columns = []
    for stage in range(trace.stages):
        keys = [k for k in taken if k.stage == stage and k.kind in (FORWARD, BACKWARD)]
        columns.append(sum(taken[k] for k in keys) / sum(ideal[k] for k in keys))
    table = np.stack(columns, axis=2)
    return np.asarray(table.reshape(len(trace.steps), -1))


def _mended(
    taken: Mapping[OpKey, Array],
    ideal: Mapping[OpKey, Array],
    *,
    stage: int | None = None,
    replica: int | None = None,
    kind: str | None = None,
) -> dict[OpKey, Array]:
    """The times with those of a stage, replica or kind (of all that are given) made ideal."""
    result = {}
    for key, times in taken.items():
        if stage not in (None, key.stage) or kind not in (None, key.kind):
            result[key] = times
        elif replica is None:
            result[key] = ideal[key]
        else:
            result[key] = times.copy()
            result[key][:, replica] = ideal[key][:, replica]
    return result


def _parts(
    graph: OpGraph, taken: Mapping[OpKey, Array], ideal: Mapping[OpKey, Array], now: float
) -> dict[str, dict[str, float]]:
    """What the mean step gains if a kind of operation, a stage or a replica were ideal [s]."""

    def gain(**which: Any) -> float:
        return now - float(_operations.play(graph, _mended(taken, ideal, **which)).mean())

    kinds = sorted({key.kind for key in taken})
    stages = sorted({key.stage for key in taken})
    replicas = range(next(iter(taken.values())).shape[1])
    return {
        "operation": {kind: gain(kind=kind) for kind in kinds},
        "stage": {str(stage): gain(stage=stage) for stage in stages},
        "replica": {str(replica): gain(replica=replica) for replica in replicas},
    }
