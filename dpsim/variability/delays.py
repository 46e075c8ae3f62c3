"""Delays: seconds that are added to single operations of single ranks, the same in every step.

A file says which (a measured trace, another simulator's run), or a generator that others have draws
them.  `mersenne` is Python's Mersenne Twister as runs of ASTRA-sim had it: rank r draws with
``random.Random(seed + r)`` one whole number of microseconds, ``randint(low, high)``, for every
computation of its step that takes time, in issue order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random
from typing import Annotated, Literal

import numpy as np

from dpsim.core import csvfile, units
from dpsim.core.arrays import Array
from dpsim.core.lean import dataclass
from dpsim.core.record import Check, Refused, Text, record
from dpsim.variability.files import LARGEST

_WHERE = ("variability", "delays")
_US = 1e-6
_RANK = Check(0, 1_048_575)
#: (rank, name of operations) -> seconds
Rows = Mapping[tuple[int, str], float]


@record
class Delays:
    """Seconds that ranks take longer for single operations than their factors say; they are no
    multiple of anything, so a slow rank or a faster device does not change them.

    file       a CSV below the scenario's folder with columns rank, operation and seconds: names as
               `dpsim explain --json` has them (F0, B3), or patterns (B*); what matches adds up
    generator  instead: mersenne draws whole microseconds from `low` to `high`, for each rank by
               `random.Random(seed + rank).randint` of Python, one for every computation of a step
               that takes time, in issue order
    seed       of the generator
    low        least delay, in whole microseconds
    high       longest delay, in whole microseconds
    """

    file: Text | None = None
    generator: Literal["mersenne"] | None = None
    seed: Annotated[int, Check(0, 2**31 - 1)] | None = None
    low: units.Seconds | None = None
    high: units.Seconds | None = None

    def __post_init__(self) -> None:
        if (self.file is None) == (self.generator is None):
            raise ValueError("needs either file (a CSV) or generator")
        needed = ("seed", "low", "high")
        for name in needed:
            if (getattr(self, name) is None) == (self.generator is not None):
                said = "is missing" if self.generator else "means nothing beside file"
                raise Refused(said, (name,))
        for name in needed[1:] if self.generator else ():
            if round(getattr(self, name) / _US, 6) % 1:
                raise Refused("is drawn in whole microseconds", (name,))
        if (self.low or 0.0) > (self.high or 0.0):
            raise Refused("is above high", ("low",))

    def made(self, find: Callable[[str], Path]) -> ListedDelays | DrawnDelays:
        """The delays themselves; `find` says where the file is."""
        if self.file is not None:
            return ListedDelays(read_delays(find(self.file)))
        return DrawnDelays(
            self.seed or 0, round((self.low or 0) / _US), round((self.high or 0) / _US)
        )


@dataclass(frozen=True)
class ListedDelays:
    """Delays row by row."""

    rows: Rows

    @property
    def ranks(self) -> tuple[int, ...]:
        """Who is delayed."""
        return tuple(dict.fromkeys(rank for rank, _ in self.rows))

    def seconds(self, names: Sequence[str], busy: Sequence[bool], ranks: Sequence[int]) -> Array:
        """Delays of the operations `names` on `ranks`, shape (operations, ranks) [s]; `busy` says
        which of them take time.  Refused where a rank has no operation of a row's name."""
        found = np.zeros((len(names), len(ranks)))
        columns = {rank: column for column, rank in enumerate(ranks)}
        places: dict[str, list[int]] = {}
        for (rank, pattern), seconds in self.rows.items():
            if rank not in columns:
                continue
            if pattern not in places:
                places[pattern] = [k for k, n in enumerate(names) if fnmatchcase(n, pattern)]
            if not places[pattern]:
                raise Refused(_unknown(pattern, names), _WHERE)
            found[places[pattern], columns[rank]] += seconds
        return found


@dataclass(frozen=True)
class DrawnDelays:
    """Delays of `low` to `high` microseconds, drawn."""

    seed: int
    low: int
    high: int
    #: nobody is named
    ranks: tuple[int, ...] = ()

    def seconds(self, names: Sequence[str], busy: Sequence[bool], ranks: Sequence[int]) -> Array:
        """As `ListedDelays.seconds`; operations that take no time are not delayed."""
        found, places = np.zeros((len(names), len(ranks))), np.flatnonzero(np.array(busy, bool))
        for column, rank in enumerate(ranks):
            source = Random(self.seed + rank)
            found[places, column] = [source.randint(self.low, self.high) for _ in places]
        return found / 1e6


def read_delays(path: Path) -> Rows:
    """The delays in a CSV; Refused for anything else."""
    try:
        table = csvfile.read(path, LARGEST, once=("rank", "operation"))
        missing = [c for c in ("rank", "operation", "seconds") if c not in table.columns]
        if missing:
            raise table.refusal(f"has no column {missing[0]}", None)
        unit = units.Unit("s", high=1e9)
        return {
            (row.whole("rank", _RANK), row.get("operation")): row.number("seconds", unit)
            for row in table
        }
    except Refused as error:
        raise Refused(str(error), _WHERE) from None


def _unknown(pattern: str, names: Sequence[str]) -> str:
    shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    return f"no operation {pattern[:40]!r}; there are {shown}"
