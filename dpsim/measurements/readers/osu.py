"""Reader of the OSU micro-benchmarks' tables of collectives (``osu_allreduce`` and the like).

Layout: "# OSU MPI Allreduce Latency Test v5.8", "# Size  Avg Latency(us)", then rows; MVAPICH
osu-micro-benchmarks, util/osu_util.c.  The table doesn't say how many ranks there were.  The size
of all-gather and all-to-all is one rank's share, so their full size waits for the rank count, and
they are left out.  Tests between two processes (bandwidth, latency) are no collectives.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from dpsim.core.record import Check, Refused
from dpsim.core.units import MEASURED
from dpsim.measurements.findings import Curve, Findings, Point
from dpsim.measurements.readers import Reader, text_content

_TITLE = re.compile(r"^#\s*OSU MPI\S*\s+(.+?)\s+Test\b")
_SIZE = Check(1, 10**18)
_NAMES = {"allreduce": "all_reduce", "broadcast": "broadcast", "reduce": "reduce"}


class Osu(Reader):
    """Tables of all-reduce, broadcast and reduce become curves."""

    accepts = "text of the OSU micro-benchmarks for all-reduce, broadcast and reduce"

    def claims(self, path: Path, head: bytes) -> bool:
        return re.search(rb"^# ?OSU MPI", head, re.MULTILINE) is not None

    def read(self, path: Path) -> Findings:
        tables: list[_Table] = []
        for number, line in enumerate(text_content(path).split("\n"), 1):
            if title := _TITLE.match(line.strip()):
                tables.append(_Table(title[1]))
            elif tables and tables[-1].operation:
                tables[-1].take(line, number)
        other = dict.fromkeys(table.title for table in tables if table.operation is None)
        curves = tuple(
            Curve(table.operation, None, None, tuple(table.points))
            for table in tables
            if table.points
        )
        if not curves:
            names = f", only {', '.join(other)}" if other else ""
            raise Refused(f"has no table of all-reduce, broadcast or reduce{names}")
        warnings = [f"{name} is left out" for name in other]
        notes = (f"OSU: {len(curves)} tables; they don't say how many ranks there were",)
        return Findings(path.name, curves, warnings=tuple(warnings), notes=notes)


@dataclass
class _Table:
    """One table; `broken` where words stand behind its first rows."""

    title: str
    columns: list[str] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    broken: bool = False

    @property
    def operation(self) -> str | None:
        return _NAMES.get(self.title.lower().removesuffix(" latency"))

    def take(self, line: str, number: int) -> None:
        """Add what `line` says."""
        cells = line.split()
        if line.startswith("# Size"):
            self.columns = re.split(r"\s{2,}", line.strip("# \n"))
            if not re.search(r"Latency ?\(us\)", "".join(self.columns[1:2])):
                raise Refused(f"line {number}: has no column of latency in us")
        elif not self.columns or not cells or line.startswith("#"):
            return
        elif not _meant(cells, self.broken):
            self.broken = True
        else:
            self.points.append(_row(cells, self.columns, number))
            if len(self.points) > 1 and self.points[-1][0] <= self.points[-2][0]:
                raise Refused(f"line {number}: sizes do not grow: {cells[0]}")


def _meant(cells: list[str], broken: bool) -> bool:
    """Whether a line is meant to be a row; what jobs print between tables begins with words, after
    which the table is `broken` and a row has numbers alone."""
    digits = [cell[0].isdigit() for cell in cells]
    return all(digits) if broken else digits[0] or digits[-1]


def _row(cells: list[str], columns: list[str], number: int) -> Point:
    """Size and latency of a row; Refused, with its line, where it is none."""
    try:
        if len(cells) != len(columns):
            raise ValueError(f"has {len(cells)} cells, and the header {len(columns)}")
        size, latency = _SIZE.bare(cells[0]), MEASURED.bare(cells[1], "us")
        bounds = {name.split()[0]: cell for name, cell in zip(columns, cells, strict=True)}
        low, high = (MEASURED.bare(bounds.get(key, cells[1]), "us") for key in ("Min", "Max"))
        if not low <= latency <= high:
            raise ValueError(f"{cells[1]} us on average, and {low * 1e6:g} … {high * 1e6:g}")
    except ValueError as error:
        raise Refused(f"line {number}: is no row of the table: {error}") from None
    return float(size), latency, 0.0
