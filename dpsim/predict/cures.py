"""Cures of stragglers as what-ifs: without the slowest node, with samples by speed, and with spare
nodes.

Without a machine every rank is a node of its own.  Which node is slowest is told by what lasts for
the run: its devices, slow ranks and slow nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from dpsim.cases.case import Case
from dpsim.cases.variant import Variant
from dpsim.describe.uneven import ranks_of

#: most spare nodes that are asked for
MOST_SPARES = 3


def cures(case: Case) -> Iterator[Variant]:
    """`case` without its slowest node, and with samples by speed, where a node is slower."""
    gone, batch = slowest_node(case), case.batch
    if gone is None:
        return
    yield without_ranks(case, gone)
    if not (
        batch.by_speed or batch.per_rank or batch.rebalance or case.scenario.strategy.backup_workers
    ):
        size: dict[str, Any] = {"per_device": batch.per_device}
        if not batch.weak:
            size = {"global": batch.global_}
        dealt = type(batch)(accumulation=batch.accumulation, by_speed=True, **size)
        yield Variant("samples by speed", {"batch": dealt})


def slowest_node(case: Case) -> range | None:
    """The ranks of the node with the slowest rank; None where no node is slower than another."""
    if not case.mesh.plain or case.ranks == 1 or case.script.delays or case.scenario.sites:
        return None  # delays are of ranks by number, and those behind a node move up; sites too
    seconds, size = case.batches.slowness(sum(case.shares) / case.ranks), _size(case)
    nodes = [range(start, min(start + size, case.ranks)) for start in range(0, case.ranks, size)]
    worst = [float(seconds[node.start : node.stop].max()) for node in nodes]
    if len(nodes) == 1 or max(worst) <= min(worst) * (1 + 1e-9):
        return None
    return nodes[worst.index(max(worst))]


def _size(case: Case) -> int:
    return case.site.gpus or 1


def _unit(case: Case) -> str:
    return "node" if case.topology is not None else "rank"


def without_ranks(case: Case, gone: range) -> Variant:
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
    if case.script.waiting == 1.0:
        # without variability the spread that was fitted would take its place
        compute = replace(compute, spread=0.0)
    if batch.per_rank:
        batch = replace(batch, per_rank=_moved(batch.per_rank, gone))
    return Variant(
        f"without the slowest {_unit(case)}",
        {
            "cluster": replace(cluster, devices=devices, **counts),
            "variability": varied,
            "compute": compute,
            "batch": batch,
        },
    )


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


def with_spares(case: Case) -> list[Variant]:
    """`case` with 1, 2, … of its lastingly slow nodes replaced by quiet spares."""
    varied, size = case.scenario.variability.expanded, _size(case)
    drawn = varied.drawn_once
    nodes = -(-case.ranks // size)
    batch = case.scenario.batch
    if not case.mesh.plain or (drawn and (batch.by_speed or batch.rebalance)):
        return []
    slow = {rank // size for rank in case.batches.variation.fixed}
    most = min(MOST_SPARES, nodes if drawn else len(slow))
    unit = _unit(case)
    names = {k: f"{k} spare {unit}{'s' if k > 1 else ''}" for k in range(1, most + 1)}
    return [Variant(name, spares=k) for k, name in names.items()]
