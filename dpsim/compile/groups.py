"""Groups of ranks that do something together, where not all ranks do.

A group is a range wherever its ranks are evenly spaced: that of a million ranks is as small as one
of two.
"""

from __future__ import annotations

from dpsim.collectives import Ranks
from dpsim.core.record import Refused

Partition = tuple[Ranks, ...]


def fitting(
    size: int | None, ranks: int, setting: str, what: str = "groups", hint: str = ""
) -> int:
    """`size`, which a strategy's `setting` says, or all ranks where there are fewer; Refused where
    the ranks do not split so."""
    size = min(size or ranks, ranks)
    if ranks % size:
        message = f"{ranks} ranks do not split into {what} of {size}{hint}"
        raise Refused(message, ("strategy", setting))
    return size


def everyone(ranks: int) -> Partition:
    """All ranks in one group."""
    return (range(ranks),)


def consecutive(size: int, ranks: int) -> Partition:
    """Groups of `size` consecutive ranks."""
    return tuple(range(i, i + size) for i in range(0, ranks, size))


def strided(size: int, ranks: int) -> Partition:
    """The ranks that have the same place in all groups of `size` consecutive ones."""
    return tuple(range(i, ranks, size) for i in range(size))
