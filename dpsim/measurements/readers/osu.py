"""Reader of the OSU micro-benchmarks' tables of collectives (``osu_allreduce`` and the like).

Layout: "# OSU MPI Allreduce Latency Test v5.8", "# Size  Avg Latency(us)", then rows; MVAPICH
osu-micro-benchmarks, util/osu_util.c.  The table doesn't say how many ranks there were.  The size
of all-gather and all-to-all is one rank's share, so their full size waits for the rank count, and
they are left out.  Tests between two processes (bandwidth, latency) are no collectives.
"""

from __future__ import annotations

import re
from pathlib import Path

from dpsim.core.record import Refused
from dpsim.core.units import parse
from dpsim.measurements.findings import Curve, Findings, Point
from dpsim.measurements.readers import Reader, text_content

_TITLE = re.compile(r"^#\s*OSU MPI\S*\s+(.+?)\s+Test\b")
_ROW = re.compile(r"^(\d{1,18})\s+(\d+(?:\.\d+)?)(?:\s|$)")
_NAMES = {"allreduce": "all_reduce", "broadcast": "broadcast", "reduce": "reduce"}


class Osu(Reader):
    """Tables of all-reduce, broadcast and reduce become curves."""

    accepts = "text of the OSU micro-benchmarks for all-reduce, broadcast and reduce"

    def claims(self, path: Path, head: bytes) -> bool:
        return re.search(rb"^# ?OSU MPI", head, re.MULTILINE) is not None

    def read(self, path: Path) -> Findings:
        curves: list[Curve] = []
        points: list[Point] = []
        other: dict[str, None] = {}
        operation = column = None
        for number, line in enumerate([*text_content(path).split("\n"), "# OSU MPI End Test"], 1):
            if title := _TITLE.match(line.strip()):
                if points:
                    curves.append(Curve(operation, None, None, tuple(points)))
                points, column = [], None
                name = title[1].lower()
                operation = _NAMES.get(name.removesuffix(" latency"))
                if operation is None and name != "end":
                    other[title[1]] = None
            elif operation and line.startswith("# Size"):
                column = "Latency(us)" in line or "Latency (us)" in line
                if not column:
                    raise Refused(f"line {number}: has no column of latency in us")
            elif operation and column and (row := _ROW.match(line.strip())):
                points.append((float(row[1]), parse(f"{row[2]} us", "s"), 0.0))
        if not curves:
            names = f", only {', '.join(other)}" if other else ""
            raise Refused(f"has no table of all-reduce, broadcast or reduce{names}")
        warnings = [f"{name} is left out" for name in other]
        notes = (f"OSU: {len(curves)} tables; they don't say how many ranks there were",)
        return Findings(path.name, tuple(curves), warnings=tuple(warnings), notes=notes)
