"""The latest things that workers did, as many as are worth looking at."""

from __future__ import annotations

from dpsim.play.scene import Chronicle, Doing

#: doings of all workers that are kept; of a longer play the latest
KEPT = 20_000


class Doings:
    """Notes doings into a chronicle."""

    def __init__(self, story: Chronicle) -> None:
        self._story = story

    def did(self, rank: int, name: str, kind: str, size: float, start: float, end: float) -> None:
        """A worker did something."""
        kept = self._story.doings
        kept.append(Doing(rank, name, kind, size, start, end))
        if len(kept) >= 2 * KEPT:
            del kept[:KEPT]

    def add(
        self, source: int, target: int, name: str, size: float, start: float, end: float
    ) -> None:
        """Bytes went from one place to another: the doing of the worker among them that sent, or
        of the one that they came to."""
        ranks = self._story.ranks
        if source < ranks:
            self.did(source, name, "send", size, start, end)
        elif target < ranks:
            self.did(target, name, "receive", size, start, end)
