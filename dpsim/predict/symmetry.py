"""Symmetry: of how many kinds the nodes of a case are, and the links that its ranks meet on.

Nodes that are alike cost as much as one of them, so what counts of a large machine is how many
kinds there are.  A slow cable, a node that is not full, ranks with other samples, another device or
a lasting slowness each make one; flows that are hashed (ECMP) make links between switches differ by
what they carry.  What varies at random is not looked at: it makes no node another kind of node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpsim.cases.case import Case
from dpsim.compile.program import Op
from dpsim.machines.loads import Loads


@dataclass(frozen=True)
class NodeKind:
    """Nodes that are alike.

    nodes    how many there are
    first    the number of the first of them
    differs  in what they differ from the most frequent kind; nothing for that one
    """

    nodes: int
    first: int
    differs: tuple[str, ...] = ()


@dataclass(frozen=True)
class LinkKinds:
    """The links that one collective crosses, by class: their place in the node (or between
    switches), how fast they are, and what they carry.

    collective  the name of the operation that takes longest of all collectives of rank 0
    between     of them, links between switches; `between_classes` are their classes
    """

    collective: str
    links: int
    classes: int
    between: int = 0
    between_classes: int = 0


@dataclass(frozen=True)
class Symmetry:
    """Kinds of nodes, the most frequent first, and of links; no links where no collective crosses
    any.  `hashed`: flows are, over the switches (`routing: ecmp`)."""

    nodes: tuple[NodeKind, ...]
    links: LinkKinds | None = None
    hashed: bool = False

    @property
    def broken(self) -> bool:
        """Whether nodes differ, or links between switches for what is hashed to them."""
        return len(self.nodes) > 1 or self.hashed


class _Node(NamedTuple):
    """What tells a node apart: its cables [B/s], and of its ranks how many there are, their
    samples, devices, and by what they are slower in every step."""

    cables: float
    ranks: int
    samples: tuple[float, ...]
    devices: tuple[float, ...]
    slow: tuple[float, ...]


#: the same in words
_WORDS = ("cables", "counts of ranks", "samples", "devices", "compute")


def symmetry(case: Case) -> Symmetry | None:
    """That of `case`; None without a machine, and where there are several sites."""
    if case.site.topology is None or case.site.parts:
        return None
    hashed = case.scenario.cluster.routing == "ecmp"
    return Symmetry(_kinds(list(_nodes(case))), _links(case), hashed)


def _nodes(case: Case) -> Iterator[_Node]:
    batches = case.batches
    topology, uneven, slow = case.site.topology, batches.uneven, batches.variation.fixed
    assert topology is not None
    cables = 0.0 if topology.cables is None else topology.cables.port_bandwidths(
        np.arange(topology.nodes))  # fmt: skip
    speeds = np.broadcast_to(cables, topology.nodes).tolist()
    touched = {topology.node_of(rank) for rank in slow}
    for node, speed in enumerate(speeds):
        ranks = range(node * topology.gpus, min((node + 1) * topology.gpus, topology.ranks))
        parts = [batches.of_rank[rank] for rank in ranks] if uneven else ()
        factors = [slow.get(rank, 1.0) for rank in ranks] if node in touched else ()
        yield _Node(
            speed, max(len(ranks), 0), _short([samples for samples, _ in parts]),
            _short([device for _, device in parts]), _short(factors),
        )  # fmt: skip


def _short(values: Sequence[float]) -> tuple[float, ...]:
    """One value where all are equal: a node that is not full is no different for that."""
    return tuple(values[:1] if len(set(values)) == 1 else values)


def _kinds(nodes: list[_Node]) -> tuple[NodeKind, ...]:
    (usual, _), *_ = counted = Counter(nodes).most_common()
    return tuple(
        NodeKind(count, nodes.index(node), tuple(
            word for word, own, other in zip(_WORDS, node, usual, strict=True) if own != other
        ))
        for node, count in counted
    )  # fmt: skip


def _links(case: Case) -> LinkKinds | None:
    """Of the longest collective of rank 0; None where it has none that crosses links."""
    if case.scenario.strategy.behaves:
        return None
    cast = case.programs.asked
    found = {_alike(op): op for op in cast.program(0).ops if op.exchanges and not op.control}
    plans = [(case.costs.of(op, cast.peers(0, op.group)), op.operation) for op in found.values()]
    if not plans:
        return None
    plan, name = max(plans, key=lambda one: one[0].seconds)
    loads = [phase.loads for phase in plan.phases if isinstance(phase.loads, Loads)]
    return _counted(name, max(loads, key=_total)) if loads else None


def _alike(op: Op) -> tuple[object, ...]:
    return (op.group, *op.agreed)


def _total(loads: Loads) -> int:
    return sum(one.links for one in loads.classes)


def _counted(name: str, loads: Loads) -> LinkKinds:
    between, classes = 0, set[int]()
    for column in loads.layout.columns:
        if column.edge is None:
            between += len(column.numbers)
            classes |= {column.classes} if isinstance(column.classes, int) else set(
                np.unique(column.classes).tolist())  # fmt: skip
    return LinkKinds(name, _total(loads), len(loads.classes), between, len(classes))
