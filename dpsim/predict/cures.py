"""Cures of stragglers as what-ifs: without the slowest node, and with spare nodes.

Without a machine every rank is a node of its own.  Which node is slowest is told by what lasts for
the run: its devices, slow ranks and slow nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from dpsim.cases.case import Case
from dpsim.describe.uneven import ranks_of

#: most spare nodes that are asked for
MOST_SPARES = 3


def slowest_node(case: Case) -> range | None:
    """The ranks of the node with the slowest rank; None where no node is slower than another."""
    if not case.mesh.plain or case.ranks == 1:
        return None
    seconds, size = case.slowness(sum(case.shares) / case.ranks), _size(case)
    nodes = [range(start, min(start + size, case.ranks)) for start in range(0, case.ranks, size)]
    worst = [float(seconds[node.start : node.stop].max()) for node in nodes]
    if len(nodes) == 1 or max(worst) <= min(worst) * (1 + 1e-9):
        return None
    return nodes[worst.index(max(worst))]


def _size(case: Case) -> int:
    return case.topology.gpus if case.topology is not None else 1


def without_ranks(case: Case, gone: range) -> Case:
    """`case` without the ranks `gone`, a whole node; those behind it move up."""
    scenario, size = case.scenario, _size(case)
    cluster, batch = scenario.cluster, scenario.batch
    counts: dict[str, Any] = {"nodes": cluster.nodes, "ranks": cluster.ranks}
    if cluster.nodes is not None:
        counts["nodes"] = cluster.nodes - 1
    if cluster.ranks is not None:
        counts["ranks"] = cluster.ranks - len(gone)
    devices = dict(_moved_texts(cluster.devices or {}, gone)) or None
    whole = scenario.variability.expanded
    node = gone.start // size
    varied = replace(
        whole,
        slow_ranks=_moved(whole.slow_ranks, gone),
        slow_nodes=_moved(whole.slow_nodes, range(node, node + 1)),
    )
    compute = scenario.compute
    if case.waiting == 1.0:  # without variability the spread that was fitted would take its place
        compute = replace(compute, spread=0.0)
    if batch.per_rank:
        batch = replace(batch, per_rank=_moved(batch.per_rank, gone))
    changed = replace(
        scenario,
        cluster=replace(cluster, devices=devices, **counts),
        variability=varied,
        compute=compute,
        batch=batch,
    )
    return Case(changed, case.base, case.compute_scale)


def _moved(entries: Mapping[int, Any] | None, gone: range) -> dict[int, Any] | None:
    """`entries` by number, without those that are gone; later ones get smaller numbers."""
    kept = {
        number - (len(gone) if number >= gone.stop else 0): value
        for number, value in (entries or {}).items()
        if number not in gone
    }
    return kept or None


def _moved_texts(entries: Mapping[str, str], gone: range) -> Iterator[tuple[str, str]]:
    for text, value in entries.items():
        left = list(_left(ranks_of(text), gone))
        if left:
            yield ",".join(f"{ranks[0]}-{ranks[-1]}" for ranks in left), value


def _left(spans: Iterable[range], gone: range) -> Iterator[range]:
    """What is left of `spans` without `gone`, moved up."""
    for span in spans:
        before = range(span.start, min(span.stop, gone.start))
        behind = range(max(span.start, gone.stop) - len(gone), span.stop - len(gone))
        yield from (part for part in (before, behind) if part)


def with_spares(case: Case) -> dict[str, Case]:
    """`case` with 1, 2, … of its lastingly slow nodes replaced by quiet spares, by name."""
    varied, size = case.scenario.variability.expanded, _size(case)
    drawn = varied.drawn_once
    nodes = -(-case.ranks // size)
    if not case.mesh.plain or (drawn and case.scenario.batch.by_speed):
        return {}
    slow = {rank // size for rank in case.variation.fixed}
    most = min(MOST_SPARES, nodes if drawn else len(slow))
    unit = "node" if case.topology is not None else "rank"
    return {f"{k} spare {unit}{'s' if k > 1 else ''}": _spared(case, k) for k in range(1, most + 1)}


def _spared(case: Case, count: int) -> Case:
    other = Case(case.scenario, case.base, case.compute_scale, spares=count)
    return other.on_cluster_of(case)
