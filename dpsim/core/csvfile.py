"""CSV, read strictly: every row has the cells that the header names, and no number is guessed.

Comma, semicolon or tab separate, whichever the header has most of.  Refused, with file, line and
column: a column without a name or there twice, a row with other cells than the header, a row that
is there twice where `once` says so, text behind a closing quote, a quote that never closes, and
numbers with a decimal comma.  Rows are read one by one, so that a table that is too long is refused
before it fills the memory.

>>> from dpsim.core.units import Unit
>>> rows = table("ranks;seconds\\n8;0.5\\n\\n16;0.25\\n", "x.csv")
>>> rows.columns, [(row.line, row.number("seconds", Unit("s"), "s")) for row in rows]
(('ranks', 'seconds'), [(2, 0.5), (4, 0.25)])
>>> list(table("ranks,seconds\\n8,0,5\\n", "x.csv"))
Traceback (most recent call last):
    ...
dpsim.core.yamlfile.FileRefused: x.csv:2: has 3 cells, and the header 2; is it a decimal comma? \
write 0.5, not 0,5
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from dpsim.core.files import Unreadable, read_text
from dpsim.core.lean import dataclass
from dpsim.core.record import Check
from dpsim.core.units import Unit
from dpsim.core.yamlfile import FileRefused

#: rows that are read where a caller does not say
MAX_ROWS = 1_000_000
_MARKS = ",;\t"


@dataclass(frozen=True)
class Row:
    """A row of `table`, and the line on which it ends."""

    table: Table
    line: int
    cells: Sequence[str]

    @property
    def miscounted(self) -> str:
        """That it has other cells than the header, in words; "" where it has as many."""
        columns = len(self.table.columns)
        return "" if len(self.cells) == columns else _miscounted(self.cells, columns)

    @property
    def padded(self) -> tuple[str, ...]:
        """A cell for every column: those that are missing are empty, those beyond are left out."""
        columns = len(self.table.columns)
        return (*self.cells[:columns], *[""] * (columns - len(self.cells)))

    def get(self, column: str) -> str:
        """The cell of `column` without blanks around it; "" where there is no such column."""
        place = self.table.places.get(column)
        return "" if place is None else self.cells[place].strip()

    def number(self, column: str, unit: Unit, written: str | None = None) -> float:
        """The SI value of a number in the unit `written`; `unit` says the range."""
        try:
            return unit.bare(self.get(column), written)
        except ValueError as error:
            raise self.refusal(str(error), column) from None

    def whole(self, column: str, check: Check) -> int:
        """A whole number within the range."""
        try:
            return check.bare(self.get(column))
        except ValueError as error:
            raise self.refusal(str(error), column) from None

    def refusal(self, message: str, column: str = "") -> FileRefused:
        """What to raise about this row."""
        return self.table.refusal(message, self.line, column)


@dataclass
class Table:
    """The columns of a CSV called `name`; iterating reads its rows, once.

    mark   what separates the columns
    most   rows that are read
    once   columns that together tell rows apart: equal ones are refused; (): all; None: no check
    ragged whether rows with other cells than the header are given too, for the caller to refuse one
           by one (`Row.miscounted`); where not, the first is raised
    empty  lines without a cell that have been left out so far
    """

    name: str
    columns: tuple[str, ...]
    found: Iterator[tuple[int, list[str]]]
    mark: str
    most: int = MAX_ROWS
    once: Sequence[str] | None = None
    ragged: bool = False
    empty: int = 0

    @cached_property
    def places(self) -> dict[str, int]:
        return {column: place for place, column in enumerate(self.columns)}

    def refusal(self, message: str, line: int | None = 1, column: str = "") -> FileRefused:
        """What to raise about this table."""
        path = (column,) if column else ()
        return FileRefused(message, path, shown=self.name, line=line)

    def __iter__(self) -> Iterator[Row]:
        seen: dict[tuple[str, ...], int] = {}
        key = [self.places[c] for c in self.once or self.columns if c in self.places]
        for number, (line, cells) in enumerate(self._full()):
            row = Row(self, line, cells)
            if number >= self.most:
                raise row.refusal(f"more than {self.most:,} rows; split the file")
            if row.miscounted and not self.ragged:
                raise row.refusal(row.miscounted)
            if self.once is not None:
                first = seen.setdefault(tuple(cells[k] for k in key), line)
                if first != line:
                    what = ", ".join(self.once) or "every cell"
                    raise row.refusal(f"repeats line {first} ({what}); leave one of them out")
            yield row

    def _full(self) -> Iterator[tuple[int, list[str]]]:
        for line, cells in self.found:
            if any(cell.strip() for cell in cells):
                yield line, cells
            else:
                self.empty += 1


def read(
    path: Path,
    most_bytes: int,
    most: int = MAX_ROWS,
    once: Sequence[str] | None = None,
    *,
    ragged: bool = False,
) -> Table:
    """The table in the file at `path` of at most `most_bytes`; FileRefused where it is none."""
    try:
        text = read_text(path, most_bytes)
    except Unreadable as error:
        raise FileRefused(error.message, shown=path.name, line=error.line) from None
    return table(text, path.name, most, once, ragged=ragged)


def table(
    text: str,
    name: str,
    most: int = MAX_ROWS,
    once: Sequence[str] | None = None,
    *,
    ragged: bool = False,
) -> Table:
    """As `read`, for the `text` of a file that errors call `name`."""
    zero = text.find("\0")
    if zero >= 0:
        line = text.count("\n", 0, zero) + 1
        raise FileRefused("holds a zero byte; text is needed", shown=name, line=line)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    mark = separator(text.partition("\n")[0])
    found = _rows(text, mark, name)
    columns = tuple(cell.strip() for cell in next(found, (0, []))[1])
    made = Table(name, columns, found, mark, most, once, ragged)
    if not any(made.columns):
        raise made.refusal("is empty; the first line must name the columns", None)
    for place, column in enumerate(made.columns):
        if not column:
            raise made.refusal(f"column number {place + 1} has no name")
        if column in made.columns[:place]:
            raise made.refusal("the column is there twice", column=column[:60])
    return made


def separator(line: str) -> str:
    """What separates the columns: the most frequent mark, of equals the first."""
    return max(_MARKS, key=line.count)


def _rows(text: str, mark: str, name: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(_lines(text), delimiter=mark, strict=True)
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise FileRefused(f"is no CSV: {error}", shown=name, line=reader.line_num) from None


def _lines(text: str) -> Iterator[str]:
    """The lines of `text` with their ends; no copy of the whole, as StringIO makes."""
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield text[start:end]
        start = end


def _miscounted(cells: Sequence[str], columns: int) -> str:
    counted = f"has {len(cells)} cell{'s' * (len(cells) != 1)}, and the header {columns}"
    halves = [pair for pair in pairwise(cells) if all(half.isdigit() for half in pair)]
    if len(cells) <= columns or not halves:
        return counted
    whole, part = halves[-1]
    return f"{counted}; is it a decimal comma? write {whole}.{part}, not {whole},{part}"
