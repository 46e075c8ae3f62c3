"""Who waits for whom where nothing happens any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import networkx as nx

from dpsim.compile.program import Cast
from dpsim.play.event.exchanges import Delivery, Meeting

#: a rank and one of its streams
Spot = tuple[int, str]
#: the operation that a spot is at, (step, index), and what it waits for there: others, or, if
#: None, operations of its own rank
Waiting = dict[Spot, tuple[int, int, Meeting | Delivery | None]]


def deadlock(
    waiting: Waiting, casts: Sequence[Cast], ended: Callable[[int, int, int], bool]
) -> str:
    """Name a cycle of waiters; where there is none, who waits for what never comes.

    ended   whether an operation has: (step, rank, index)
    """
    graph: nx.DiGraph[Spot] = nx.DiGraph()
    for spot, (step, index, exchange) in waiting.items():
        rank, stream = spot
        if exchange is not None:
            graph.add_edges_from((spot, (other, stream)) for other in exchange.missing)
            continue
        ops = casts[step].program(rank).ops
        for other in ops[index].after:
            if not ended(step, rank, other):
                graph.add_edge(spot, (rank, ops[other].stream))
    try:
        chain = [spot for spot, _ in nx.find_cycle(graph)]
    except nx.NetworkXNoCycle:
        chain = sorted(waiting)
    named = [_described(spot, waiting, casts) for spot in chain if spot in waiting]
    more = f"; and {len(named) - 8} more" if len(named) > 8 else ""
    return "deadlock: these wait for each other: " + "; ".join(named[:8]) + more


def _described(spot: Spot, waiting: Waiting, casts: Sequence[Cast]) -> str:
    step, index, exchange = waiting[spot]
    name = casts[step].program(spot[0]).ops[index].name
    for_whom = f" {exchange}" if exchange is not None else ""
    return f"rank {spot[0]} {spot[1]} at {name} of step {step}{for_whom}"
