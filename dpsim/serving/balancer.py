"""Which rank a request goes to.

vLLM's API servers choose the rank with the least 4 x waiting + running, going through the ranks
from an offset of their own, the first of equal ones (vllm-project/vllm
`vllm/v1/engine/core_client.py`, `DPLBAsyncMPClient.get_core_engine_for_request`).  Each adds as
many to its own count of those that wait there as there are API servers, for the others do the same
unseen.  True counts come from the coordinator at most every 100 ms (`coordinator.py`), and
overwrite what was added meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

#: seconds between counts that the coordinator publishes (`stats_update_interval_ms`)
PUBLISHED = 0.1
#: how much one that waits counts beside one that runs
WAITING = 4


class Client:
    """An API server's view of the ranks that it chooses among.

    counts  [waiting, running] of each rank, as it knows them
    """

    def __init__(self, ranks: int, index: int = 0, clients: int = 1) -> None:
        self.counts = [[0, 0] for _ in range(ranks)]
        self.first = ranks * index // clients
        self.clients = clients

    def choose(self) -> int:
        """The rank for the next request."""
        best, least = 0, float("inf")
        for step in range(len(self.counts)):
            rank = (self.first + step) % len(self.counts)
            waiting, running = self.counts[rank]
            score = WAITING * waiting + running
            if score < least:
                best, least = rank, score
        self.counts[best][0] += self.clients
        return best

    def learn(self, counts: Sequence[tuple[int, int]]) -> None:
        """What the coordinator publishes."""
        self.counts = [list(pair) for pair in counts]


class InTurn:
    """A balancer outside that deals requests to places one after the other."""

    def __init__(self, places: int) -> None:
        self.places, self.next = places, 0

    def choose(self) -> int:
        found = self.next
        self.next = (found + 1) % self.places
        return found
