"""How far a long piece of work has come, told to whoever asks.

>>> list(counted("ab", lambda done, total: print(done, "of", total)))
0 of 2
1 of 2
2 of 2
['a', 'b']
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeVar

#: called with how many pieces are done, and of how many
Told = Callable[[int, int], None]
T = TypeVar("T")


def nobody(done: int, total: int) -> None:
    """Nobody asks."""


def counted(pieces: Collection[T], tell: Told) -> Iterator[T]:
    """`pieces`, each told as done when the next one is asked for."""
    return counted_of(len(pieces), pieces, tell)


def counted_of(total: int, pieces: Iterable[T], tell: Told) -> Iterator[T]:
    """The same for `total` pieces that come one by one."""
    tell(0, total)
    for done, piece in enumerate(pieces, 1):
        yield piece
        tell(done, total)
