"""Tables of measured collectives: the one place that reads them.

A table is a CSV with one row per timed collective: who ran it (accelerator, gpus_per_node, nodes,
ranks, fabric, library), what (collective, size_bytes) and how long it took (time_us).  Rows of one
series_id make a curve.  Sizes count as nccl-tests do: the all-reduced or broadcast buffer, the
gathered output, the full input of a reduce-scatter or an all-to-all, the message of a send.  What
cannot be read safely is refused with its line and column; what can, but looks odd, is loaded with a
warning.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

from dpsim.accuracy.words import vocabulary
from dpsim.core import unknown
from dpsim.core.record import Refused

NEEDED = (
    "accelerator", "gpus_per_node", "nodes", "ranks", "fabric", "library", "collective",
    "size_bytes", "time_us",
)  # fmt: skip
OPTIONAL = (
    "series_id", "machine_id", "machine", "interconnect_stated", "algo", "proto", "inplace",
    "pathological", "role",
)  # fmt: skip
#: a table larger than this is refused before it fills the memory
MOST_ROWS, MOST_BYTES = 200_000, 256_000_000
_NUMBER = re.compile(r"[+-]?(\d{1,30}(\.\d{0,30})?|\.\d{1,30})([eE][+-]?\d{1,3})?", re.ASCII)
#: what a spreadsheet takes for the beginning of a formula, where the cell is no number
_FORMULA = ("=", "+", "-", "@")


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

    line      where it stands in the file
    cells     its text, column by column, as it was
    series    the curve that it belongs to
    size      bytes, as nccl-tests counts them: the full, unsharded buffer
    measured  seconds
    excluded  it is known to show a fault, and is predicted but not scored
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
    excluded: bool
    role: str


@dataclass(frozen=True)
class CollectiveTable:
    """The rows in the order of the file, and what looked odd."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[CollectiveRow, ...]
    warnings: tuple[str, ...] = ()


def read_collectives(path: Path) -> CollectiveTable:
    """The table at `path`; Refused with file, line and column where something is not right."""
    _refuse_file(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return _read(file, path)
    except UnicodeDecodeError:
        raise Refused(f"{path.name}: is no text in UTF-8; save it as CSV in UTF-8") from None


def _refuse_file(path: Path) -> None:
    if not path.is_file():
        raise Refused(f"there is no file {str(path)[:200]!r}")
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise Refused(
            f"{path.name}: {size / 1e6:,.0f} MB; at most {MOST_BYTES / 1e6:,.0f} MB are read"
        )


def _read(file: Iterator[str], path: Path) -> CollectiveTable:
    name = path.name
    lines = _lines(file, name)
    first = next(lines, "")
    separator = _separator(first)
    reader = csv.reader(_again(first, lines), delimiter=separator, strict=True)
    try:
        head = _header(next(reader, []), name)
        rows: list[CollectiveRow] = []
        short = 0
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                short += 1
                continue
            if len(rows) == MOST_ROWS:
                raise Refused(f"{name}:{reader.line_num}: more than {MOST_ROWS:,} rows; split it")
            rows.append(_Cells(name, reader.line_num, head, cells).row())
    except csv.Error as error:
        raise Refused(f"{name}:{reader.line_num}: is no CSV: {error}") from None
    if not rows:
        raise Refused(f"{name}: has no row below its header")
    with path.open("rb") as raw:
        marked = raw.read(3) == b"\xef\xbb\xbf"
    found = [
        *(["begins with a byte order mark, which is left out"] if marked else []),
        *([f"separates its columns with {separator!r}"] if separator != "," else []),
        *([f"{short} empty lines are left out of predictions.csv"] if short else []),
        *_odd(rows),
    ]
    return CollectiveTable(name, head, tuple(rows), tuple(f"{name}: {text}" for text in found))


def _lines(file: Iterator[str], name: str) -> Iterator[str]:
    for number, line in enumerate(file, 1):
        if "\0" in line:
            raise Refused(f"{name}:{number}: holds a zero byte, and text is needed")
        yield line


def _again(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _separator(header: str) -> str:
    """Comma, else the semicolon or tab of spreadsheets that write such files."""
    return max(",;\t", key=lambda mark: (header.count(mark), mark == ","))


def _header(cells: Sequence[str], name: str) -> tuple[str, ...]:
    head = tuple(cell.strip() for cell in cells)
    if not any(head):
        raise Refused(f"{name}: is empty; the first line must name the columns")
    for place, column in enumerate(head):
        if not column:
            raise Refused(f"{name}:1: column number {place + 1} has no name")
        if column in head[:place]:
            raise Refused(f"{name}:1: {column[:60]}: the column is there twice")
    missing = [column for column in NEEDED if column not in head]
    if missing:
        strange = [column for column in head if column not in (*NEEDED, *OPTIONAL)]
        meant = (
            f"; is {c[:60]!r} it?" for c in strange if unknown.near(c, missing)[:1] == missing[:1]
        )
        raise Refused(
            f"{name}:1: {missing[0]}: the column is missing{next(meant, '')} "
            f"(needed: {', '.join(NEEDED)}; optional: {', '.join(OPTIONAL)})"
        )
    return head


@dataclass(frozen=True)
class _Cells:
    """One line with its header, so that every complaint says where."""

    name: str
    line: int
    head: tuple[str, ...]
    cells: Sequence[str]

    def row(self) -> CollectiveRow:
        if len(self.cells) != len(self.head):
            message = f"{len(self.cells)} cells, and the header has {len(self.head)}"
            raise Refused(f"{self.name}:{self.line}: {message}")
        nodes, ranks = self.whole("nodes", 1, 2**20), self.whole("ranks", 1, 2**20)
        per_node = self.whole("gpus_per_node", 1, 1024)
        if not nodes <= ranks <= nodes * per_node:
            self.refuse("ranks", f"{ranks} ranks do not fit {nodes} nodes of {per_node} GPUs")
        return CollectiveRow(
            line=self.line,
            cells=tuple(self.cells),
            series=self.series(nodes, ranks),
            accelerator=self.text("accelerator"),
            gpus_per_node=per_node,
            nodes=nodes,
            ranks=ranks,
            fabric=self.text("fabric"),
            interconnect=self.get("interconnect_stated"),
            machine=self.get("machine"),
            library=self.text("library"),
            algorithm=self.get("algo") or "auto",
            protocol=self.get("proto") or "auto",
            operation=self.operation(),
            size=self.whole("size_bytes", 0, 2**60),
            measured=self.positive("time_us") / 1e6,
            in_place=self.flag("inplace"),
            excluded=self.flag("pathological"),
            role=self.get("role").lower(),
        )

    def series(self, nodes: int, ranks: int) -> str:
        """The row's own series; without one, what was run where on how many ranks."""
        if "series_id" in self.head:
            return self.text("series_id")
        machine = self.get("machine_id") or f"{self.get('accelerator')} {self.get('fabric')}"
        return f"{machine} {self.operation()} n{nodes} r{ranks} {self.get('library')}"

    def operation(self) -> str:
        name = re.sub(r"[\s-]+", "_", self.text("collective").lower())
        return vocabulary().collectives.operations.get(name, name)

    def get(self, column: str) -> str:
        return self._by_name[column].strip() if column in self._by_name else ""

    @cached_property
    def _by_name(self) -> dict[str, str]:
        return dict(zip(self.head, self.cells, strict=True))

    def text(self, column: str) -> str:
        return self.get(column) or self.refuse(column, "nothing where text is needed")

    def flag(self, column: str) -> bool:
        found = vocabulary().collectives.flags.get(self.get(column).lower())
        if found is None:
            self.refuse(column, f"{self.get(column)[:60]!r} is neither 0 nor 1")
        return bool(found)

    def number(self, column: str) -> float:
        shown = self.get(column)
        if not _NUMBER.fullmatch(shown) or not math.isfinite(float(shown)):
            self.refuse(column, f"{shown[:60]!r} is not a number" if shown else "nothing there")
        return float(shown)

    def whole(self, column: str, low: int, high: int) -> int:
        shown, value = self.get(column), self.number(column)
        if value != int(value):
            self.refuse(column, f"{shown[:60]} is not a whole number")
        exact = int(shown) if shown.isdigit() else int(value)
        if not low <= exact <= high:
            self.refuse(column, f"{shown[:60]} is not in {low:,} … {high:,}")
        return exact

    def positive(self, column: str) -> float:
        value = self.number(column)
        if not 1e-6 <= value <= 1e13:
            self.refuse(column, f"{self.get(column)[:60]} is not a time: 1e-6 … 1e13 us")
        return value

    def refuse(self, column: str, message: str) -> str:
        raise Refused(f"{self.name}:{self.line}: {column}: {message}")


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
