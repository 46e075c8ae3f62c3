"""Tables of measured collectives: the one place that reads them.

A table is a CSV with one row per timed collective: who ran it (accelerator, gpus_per_node, nodes,
ranks, fabric, library), what (collective, size_bytes) and how long it took (time_us).  Rows of one
series_id make a curve.  Sizes count as nccl-tests do: the all-reduced or broadcast buffer, the
gathered output, the full input of a reduce-scatter or an all-to-all, the message of a send.  What
cannot be read safely is refused with its line and column; what can, but looks odd, is loaded with a
warning.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from dpsim.accuracy.words import vocabulary
from dpsim.core import csvfile, unknown
from dpsim.core.record import Check, dotted
from dpsim.core.units import Unit, decimal
from dpsim.core.yamlfile import FileRefused
from dpsim.machines.issuing import issued_up_to

NEEDED = (
    "accelerator", "gpus_per_node", "nodes", "ranks", "fabric", "library", "collective",
    "size_bytes", "time_us",
)  # fmt: skip
OPTIONAL = (
    "series_id", "machine_id", "machine", "interconnect_stated", "algo", "proto", "inplace",
    "gpus_per_thread", "pathological", "role",
)  # fmt: skip
#: a table larger than this is refused before it fills the memory
MOST_ROWS, MOST_BYTES = 200_000, 256_000_000
#: what a collective may take; single transfers inside a GPU take less than clocks tell
TIME = Unit("s", low=1e-12, high=1e7)
_COUNT, _RATE = Check(1, 2**20), Unit("1", high=1e9)
_NUMBER = re.compile(r"[+-]?(\d{1,30}(\.\d{0,30})?|\.\d{1,30})([eE][+-]?\d{1,3})?", re.ASCII)
#: what a spreadsheet takes for the beginning of a formula, where the cell is no number
_FORMULA = ("=", "+", "-", "@")
#: what a fabric is of which the cell says nothing
_UNTOLD = "not stated"


@dataclass(frozen=True, kw_only=True)
class StatedMachine:
    """The columns that say which machine it was, as they stand in the table."""

    accelerator: str
    gpus_per_node: int
    nodes: int
    ranks: int
    fabric: str
    interconnect: str
    machine: str


@dataclass(frozen=True, kw_only=True)
class CollectiveRow(StatedMachine):
    """One measured collective.

    line             where it stands in the file
    cells            its text, column by column, as it was
    series           the curve that it belongs to
    size             bytes, as nccl-tests counts them: the full, unsharded buffer
    measured         seconds
    gpus_per_thread  GPUs that a thread launches on, nGpus of nccl-tests
    faulty           it is known to show a fault, and is predicted but not scored
    issuing          so is a row that takes as long as one thread takes to launch on its GPUs
    """

    line: int
    cells: tuple[str, ...]
    series: str
    library: str
    algorithm: str
    protocol: str
    operation: str
    size: int
    measured: float
    in_place: bool
    faulty: bool
    role: str
    gpus_per_thread: int = 1
    issuing: bool = False

    @property
    def scored(self) -> bool:
        return not (self.faulty or self.issuing)


@dataclass(frozen=True)
class FaultyRow:
    """A row that is no measured collective: its line, its text, and why."""

    line: int
    cells: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class CollectiveTable:
    """The rows in the order of the file, those that are none, and what looked odd."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[CollectiveRow, ...]
    warnings: tuple[str, ...] = ()
    faulty: tuple[FaultyRow, ...] = ()


def read_collectives(path: Path) -> CollectiveTable:
    """The table at `path`; Refused with file, line and column where it is none, and where no row of
    it is a measured collective."""
    table = csvfile.read(path, MOST_BYTES, MOST_ROWS, ragged=True)
    _check_columns(table)
    rows: list[CollectiveRow] = []
    faulty: list[FaultyRow] = []
    for found_row in table:
        try:
            rows.append(_Cells(found_row).row())
        except FileRefused as error:
            reason = ": ".join(text for text in (dotted(error.path), error.message) if text)
            faulty.append(FaultyRow(found_row.line, found_row.padded, reason))
    if not rows and faulty:
        raise table.refusal(faulty[0].reason, faulty[0].line)
    if not rows:
        raise table.refusal("has no row below its header", None)
    found = [
        *([f"separates its columns with {table.mark!r}"] if table.mark != "," else []),
        *([f"{table.empty} empty lines are left out of predictions.csv"] if table.empty else []),
        *([f"{len(faulty)} rows cannot be read or contradict themselves, and are refused: "
           f"{_some([f'{one.line} ({one.reason})' for one in faulty])}"] if faulty else []),
        *_odd(rows),
    ]  # fmt: skip
    warnings = tuple(f"{path.name}: {text}" for text in found)
    return CollectiveTable(path.name, table.columns, issued(rows), warnings, tuple(faulty))


def issued(rows: Sequence[CollectiveRow]) -> tuple[CollectiveRow, ...]:
    """`rows`, those marked that take as long as one thread takes to launch on its GPUs."""
    curves: dict[tuple[str, str, int, bool], list[CollectiveRow]] = defaultdict(list)
    for row in rows:
        curves[row.series, row.operation, row.gpus_per_thread, row.in_place].append(row)
    marked: dict[int, CollectiveRow] = {}
    for (_, operation, gpus, _), curve in curves.items():
        last = issued_up_to([(row.size, row.measured) for row in curve], operation, gpus)
        marked |= {row.line: replace(row, issuing=True) for row in curve if 0 < row.size <= last}
    return tuple(marked.get(row.line, row) for row in rows)


def _check_columns(table: csvfile.Table) -> None:
    missing = [column for column in NEEDED if column not in table.columns]
    if missing:
        strange = [column for column in table.columns if column not in (*NEEDED, *OPTIONAL)]
        meant = (
            f"; is {c[:60]!r} it?" for c in strange if unknown.near(c, missing)[:1] == missing[:1]
        )
        raise table.refusal(
            f"the column is missing{next(meant, '')} "
            f"(needed: {', '.join(NEEDED)}; optional: {', '.join(OPTIONAL)})",
            column=missing[0],
        )


@dataclass(frozen=True)
class _Cells:
    """What one row of the file means."""

    found: csvfile.Row

    def row(self) -> CollectiveRow:
        if self.found.miscounted:
            raise self.found.refusal(self.found.miscounted)
        nodes, ranks = self.found.whole("nodes", _COUNT), self.found.whole("ranks", _COUNT)
        per_node = self.found.whole("gpus_per_node", Check(1, 1024))
        if not nodes <= ranks <= nodes * per_node:
            message = f"{ranks} ranks do not fit {nodes} nodes of {per_node} GPUs"
            raise self.found.refusal(message, "ranks")
        size = self.found.whole("size_bytes", Check(0, 2**60))
        measured = self.found.number("time_us", TIME, "us")
        self.check_bandwidth(size, measured)
        return CollectiveRow(
            line=self.found.line,
            cells=tuple(self.found.cells),
            series=self.series(nodes, ranks),
            accelerator=self.text("accelerator"),
            gpus_per_node=per_node,
            nodes=nodes,
            ranks=ranks,
            fabric=self.found.get("fabric") or _UNTOLD,
            interconnect=self.found.get("interconnect_stated"),
            machine=self.found.get("machine"),
            library=self.text("library"),
            algorithm=self.found.get("algo") or "auto",
            protocol=self.found.get("proto") or "auto",
            operation=self.operation(),
            size=size,
            measured=measured,
            in_place=self.flag("inplace"),
            faulty=self.flag("pathological"),
            role=self.found.get("role").lower(),
            gpus_per_thread=self.threaded(per_node),
        )

    def series(self, nodes: int, ranks: int) -> str:
        """The row's own series; without one, what was run where on how many ranks."""
        if "series_id" in self.found.table.columns:
            return self.text("series_id")
        get = self.found.get
        machine = get("machine_id") or f"{get('accelerator')} {get('fabric')}"
        return f"{machine} {self.operation()} n{nodes} r{ranks} {get('library')}"

    def threaded(self, per_node: int) -> int:
        if not self.found.get("gpus_per_thread"):
            return 1
        return self.found.whole("gpus_per_thread", Check(1, per_node))

    def check_bandwidth(self, size: int, seconds: float) -> None:
        """Refused where a bandwidth that is stated too is not the size over the time."""
        stated = self.found.get("algbw_GBps")
        if stated:
            rate, found = self.found.number("algbw_GBps", _RATE), size / seconds / 1e9
            if abs(rate - found) > 10.0 ** int(decimal(stated).as_tuple().exponent) + 1e-3 * found:
                wrong = f"{stated[:40]} is not size_bytes over time_us, which is {found:.6g}"
                raise self.found.refusal(wrong, "algbw_GBps")

    def operation(self) -> str:
        name = re.sub(r"[\s-]+", "_", self.text("collective").lower())
        return vocabulary().collectives.operations.get(name, name)

    def text(self, column: str) -> str:
        found = self.found.get(column)
        if not found:
            raise self.found.refusal("nothing where text is needed", column)
        return found

    def flag(self, column: str) -> bool:
        shown = self.found.get(column)
        flag = vocabulary().collectives.flags.get(shown.lower())
        if flag is None:
            raise self.found.refusal(f"{shown[:60]!r} is neither 0 nor 1", column)
        return bool(flag)


def _odd(rows: Sequence[CollectiveRow]) -> Iterator[str]:
    """What is loaded but worth a look."""
    seen: dict[tuple[str, ...], int] = {}
    twice = []
    for row in rows:
        first = seen.setdefault(row.cells, row.line)
        if first != row.line:
            twice.append(f"{row.line} (as {first})")
    if twice:
        yield f"{len(twice)} rows repeat another to the letter: {_some(twice)}; each counts"
    empty = [str(row.line) for row in rows if row.size == 0]
    if empty:
        yield f"{len(empty)} rows have a size of 0 and are refused: {_some(empty)}"
    formulas = [str(row.line) for row in rows if any(map(_formula, row.cells))]
    if formulas:
        yield (
            f"{len(formulas)} rows have text that a spreadsheet would run, which predictions.csv "
            f"has after an apostrophe: {_some(formulas)}"
        )


def _formula(cell: str) -> bool:
    text = cell.lstrip(" \t")
    return text.startswith(_FORMULA) and not _NUMBER.fullmatch(text)


def _some(lines: Sequence[str]) -> str:
    shown = ", ".join(islice(lines, 5))
    return f"lines {shown}" + (f" and {len(lines) - 5} more" if len(lines) > 5 else "")
