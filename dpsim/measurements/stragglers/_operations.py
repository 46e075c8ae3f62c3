"""Traces of operations under pipeline and data parallelism: played again without stragglers.

The method is that of Lin et al., Understanding Stragglers in Large Model Training Using What-if
Analysis (OSDI 2025), section 3: the operations of a step are a graph of dependencies; a
communication takes, from the moment its last participant is there, its transfer time; delays
between operations are left out.  The original step is played with the times of the trace; the ideal
one with the mean time of each kind of computation and the median transfer time of each kind of
communication.

The graph of a rank: computations in their order; four queues of sends and receives (forward and
backward); a receive follows the computation of its kind before the one that needs it, and the first
one of backward the last forward but one before it; then garbage collection, layer norms'
all-reduce, embeddings' all-reduce (first and last stage together), the reduce-scatter of the
gradients, clipping (all ranks together) and the optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dpsim.core.arrays import Array
from dpsim.core.record import Refused

FORWARD, BACKWARD, GC, OPTIMIZER = "forward-compute", "backward-compute", "gc", "optimizer"
COMPUTE = (FORWARD, BACKWARD, GC, OPTIMIZER)
GATHER, SCATTER = "params-all-gather", "grads-reduce-scatter"
NORMS, EMBEDDING = "layernorm-grads-all-reduce", "embedding-grads-all-reduce"
CLIP = "optimizer-clip-main-grad"
PAIRS = {"forward-send": "forward-recv", "backward-send": "backward-recv"}
P2P = (*PAIRS, *PAIRS.values())
#: those whose participants are the ranks of all replicas
SYNCHRONOUS = (GATHER, SCATTER, CLIP)
KNOWN = (*COMPUTE, GATHER, SCATTER, NORMS, EMBEDDING, CLIP, *P2P)
#: a transfer that seems to end before its last participant is there, by more than clocks differ [s]
CLOCKS = 0.01


class OpKey(NamedTuple):
    """One operation of every replica: its stage, kind and number."""

    stage: int
    kind: str
    number: int


@dataclass(frozen=True)
class Operations:
    """A trace: start and end of each operation, arrays (steps, replicas) [s].

    ranks   the number of the rank at (replica, stage)
    """

    steps: tuple[int, ...]
    ranks: Array
    start: Mapping[OpKey, Array]
    end: Mapping[OpKey, Array]

    @property
    def stages(self) -> int:
        return int(self.ranks.shape[1])


@dataclass(frozen=True)
class OpGraph:
    """What waits for what.

    after    operation -> those that must have ended
    groups   operations that carry out one communication together
    order    the groups, and computations by themselves, in an order in which they can be played
    """

    after: dict[OpKey, list[OpKey]]
    groups: dict[OpKey, tuple[OpKey, ...]]
    order: list[tuple[OpKey, ...]] = field(default_factory=list)


def graph_of(trace: Operations) -> OpGraph:
    """The graph of one step, from the first step of the first replica."""
    after: dict[OpKey, list[OpKey]] = {key: [] for key in trace.start}
    groups: dict[OpKey, tuple[OpKey, ...]] = {}
    for stage in range(trace.stages):
        computations = _computations(trace, stage)
        _chain(after, computations)
        _chain(after, _kind(trace, stage, GATHER))
        _transfers(trace, stage, computations, after)
        gathers = _kind(trace, stage, GATHER)
        if gathers:
            after[computations[0]].append(gathers[-1])
        tail = [
            key
            for kind in (GC, NORMS, EMBEDDING, SCATTER, CLIP, OPTIMIZER)
            for key in _kind(trace, stage, kind)
        ]
        _chain(after, [computations[-1], *tail])
    for send, receive in PAIRS.items():
        step = 1 if send.startswith("forward") else -1
        for key in [k for k in trace.start if k.kind == send]:
            peer = OpKey(key.stage + step, receive, key.number)
            if peer not in trace.start:
                raise Refused(f"{_name(key)} has no {receive} on stage {peer.stage}")
            groups[key] = groups[peer] = (key, peer)
    for kind in (EMBEDDING, CLIP):
        _together([key for key in trace.start if key.kind == kind], groups)
    for key in trace.start:
        if key.kind in (GATHER, SCATTER):
            groups[key] = (key,)
    return OpGraph(after, groups, _order(after, groups))


def _kind(trace: Operations, stage: int, kind: str) -> list[OpKey]:
    return sorted(key for key in trace.start if key.stage == stage and key.kind == kind)


def _computations(trace: Operations, stage: int) -> list[OpKey]:
    found = [*_kind(trace, stage, FORWARD), *_kind(trace, stage, BACKWARD)]
    if not found:
        raise Refused(f"stage {stage} has no {FORWARD} and no {BACKWARD}")
    return sorted(found, key=lambda key: float(trace.start[key][0, 0]))


def _chain(after: dict[OpKey, list[OpKey]], keys: list[OpKey]) -> None:
    for a, b in pairwise(keys):
        after[b].append(a)


def _transfers(
    trace: Operations, stage: int, computations: list[OpKey], after: dict[OpKey, list[OpKey]]
) -> None:
    """Sends follow what they send, receives precede what needs them."""
    for kind in P2P:
        own = _kind(trace, stage, kind)
        _chain(after, own)
        work = FORWARD if kind.startswith("forward") else BACKWARD
        for key in own:
            partner = OpKey(stage, work, key.number)
            if partner not in trace.start:
                raise Refused(f"{_name(key)} belongs to no {work}")
            if kind in PAIRS:
                after[key].append(partner)
                continue
            after[partner].append(key)
            before = OpKey(stage, work, key.number - 1)
            if before in trace.start:
                after[key].append(before)
    first = next((i for i, key in enumerate(computations) if key.kind == BACKWARD), 0)
    for kind in ("backward-send", "backward-recv"):
        key = OpKey(stage, kind, 0)
        if first >= 2 and key in trace.start:
            after[key].append(computations[first - 2])


def _together(keys: list[OpKey], groups: dict[OpKey, tuple[OpKey, ...]]) -> None:
    for number in {key.number for key in keys}:
        members = tuple(sorted(key for key in keys if key.number == number))
        groups.update(dict.fromkeys(members, members))


def _order(
    after: dict[OpKey, list[OpKey]], groups: dict[OpKey, tuple[OpKey, ...]]
) -> list[tuple[OpKey, ...]]:
    unit = {key: groups.get(key, (key,)) for key in after}
    sorter: TopologicalSorter[tuple[OpKey, ...]] = TopologicalSorter()
    for key, before in after.items():
        sorter.add(unit[key], *(unit[other] for other in before))
    try:
        return list(sorter.static_order())
    except CycleError as error:
        names = ", ".join(_name(members[0]) for members in error.args[1][:4])
        raise Refused(f"operations wait for each other in a circle: {names}") from None


def _name(key: OpKey) -> str:
    return f"{key.kind} {key.number} of stage {key.stage}"


# -- times ----------------------------------------------------------------------------------------


def lengths(trace: Operations, graph: OpGraph) -> dict[OpKey, Array]:
    """How long each operation takes once all its participants are there [s]."""
    found = {}
    for members in graph.order:
        begin = _last([trace.start[key] for key in members], members[0].kind)
        for key in members:
            start = begin if key in graph.groups else trace.start[key]
            length = trace.end[key] - start
            found[key] = np.where(length <= -CLOCKS, 0.0, length)
    return found


def _last(starts: list[Array], kind: str) -> Array:
    """When the last participant is there; of all replicas, where they wait for one another."""
    latest = np.maximum.reduce(starts)
    if kind in SYNCHRONOUS:
        latest = np.broadcast_to(latest.max(axis=1, keepdims=True), latest.shape)
    return np.asarray(latest)


def ideal(found: Mapping[OpKey, Array]) -> dict[OpKey, Array]:
    """The same with what each kind takes over all ranks, steps and micro-batches: computations in
    the mean, communication in the median."""
    kinds: dict[str, list[Array]] = {}
    for key, length in found.items():
        kinds.setdefault(key.kind, []).append(length)
    typical = {
        kind: float(np.mean(parts) if kind in COMPUTE else np.median(parts))
        for kind, parts in kinds.items()
    }
    return {key: np.full_like(length, typical[key.kind]) for key, length in found.items()}


def play(graph: OpGraph, taken: Mapping[OpKey, Array]) -> Array:
    """Duration of every step, shape (steps,), if operations take `taken` [s]."""
    ends: dict[OpKey, Array] = {}
    for members in graph.order:
        starts = []
        for key in members:
            before = [ends[other] for other in graph.after[key]]
            starts.append(np.maximum.reduce(before) if before else np.zeros_like(taken[key]))
        if members[0] in graph.groups:
            begin = _last(starts, members[0].kind)
            ends.update({key: begin + taken[key] for key in members})
        else:
            ends[members[0]] = starts[0] + taken[members[0]]
    return np.asarray(np.maximum.reduce(list(ends.values())).max(axis=1))
