"""Who waits for whom where nothing happens any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import networkx as nx

from dpsim.compile.program import Cast
from dpsim.play.event.exchanges import Meeting, Message

#: a rank and one of its streams
Place = tuple[int, str]
#: the operation that a place is at, (step, index), and what it waits for there: others, or, if
#: None, operations of its own rank
Waiting = dict[Place, tuple[int, int, Meeting | Message | None]]


def deadlock(
    waiting: Waiting, casts: Sequence[Cast], ended: Callable[[int, int, int], bool]
) -> str:
    """Name a cycle of waiters; where there is none, who waits for what never comes.

    ended   whether an operation has: (step, rank, index)
    """
    graph: nx.DiGraph[Place] = nx.DiGraph()
    for place, (step, index, exchange) in waiting.items():
        rank, stream = place
        if exchange is not None:
            graph.add_edges_from((place, (other, stream)) for other in exchange.missing)
            continue
        ops = casts[step].program(rank).ops
        for other in ops[index].after:
            if not ended(step, rank, other):
                graph.add_edge(place, (rank, ops[other].stream))
    try:
        chain = [place for place, _ in nx.find_cycle(graph)]
    except nx.NetworkXNoCycle:
        chain = sorted(waiting)
    named = [_described(place, waiting, casts) for place in chain if place in waiting]
    more = f"; and {len(named) - 8} more" if len(named) > 8 else ""
    return "deadlock: these wait for each other: " + "; ".join(named[:8]) + more


def _described(place: Place, waiting: Waiting, casts: Sequence[Cast]) -> str:
    step, index, exchange = waiting[place]
    name = casts[step].program(place[0]).ops[index].name
    for_whom = f" {exchange}" if exchange is not None else ""
    return f"rank {place[0]} {place[1]} at {name} of step {step}{for_whom}"
