"""Who waits for whom where nothing happens any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from dpsim.core.deferred import nx
from dpsim.play.event.exchanges import Assembly, Delivery
from dpsim.play.event.score import HOST
from dpsim.play.event.workers import Worker

#: a rank and one of its streams
Spot = tuple[int, str]


def deadlock(workers: Iterable[Worker]) -> str:
    """Name a cycle among `workers` that wait; where there is none, who waits for what never
    comes."""
    waiting = {
        (rank, worker.cue.op.stream): worker
        for worker in workers
        if not worker.over and worker.stream != HOST
        for rank in worker.player.ranks
    }
    graph: nx.DiGraph[Spot] = nx.DiGraph()
    for spot, worker in waiting.items():
        rank, stream = spot
        if isinstance(worker.meets, Assembly | Delivery):
            graph.add_edges_from((spot, (other, stream)) for other in worker.meets.missing)
            continue
        ops = worker.player.scores[worker.step].program.ops
        for other in worker.cue.op.after:
            if worker.times.end[other] == inf:
                graph.add_edge(spot, (rank, ops[other].stream))
    try:
        chain = [spot for spot, _ in nx.find_cycle(graph)]
    except nx.NetworkXNoCycle:
        chain = sorted(waiting)
    named = [_described(spot, waiting) for spot in chain if spot in waiting]
    more = f"; and {len(named) - 8} more" if len(named) > 8 else ""
    return "deadlock: these wait for each other: " + "; ".join(named[:8]) + more


def _described(spot: Spot, waiting: Mapping[Spot, Worker]) -> str:
    worker = waiting[spot]
    for_whom = f" {worker.meets}" if worker.meets is not None else ""
    return f"rank {spot[0]} {spot[1]} at {worker.cue.op.name} of step {worker.step}{for_whom}"
