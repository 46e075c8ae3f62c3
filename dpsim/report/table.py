"""Tables and lines on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpsim.report.text import clean, shortened

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

#: headers, and rows of cells
Columns = tuple[Sequence[str], Sequence[Sequence[str]]]


def columns(rows: Sequence[Mapping[str, str]], order: Sequence[str] = ()) -> Columns:
    """`rows` by header, in `order` (without one as they first occur); empty columns are left
    out."""
    headers = order or list(dict.fromkeys(key for row in rows for key in row))
    used = [h for h in headers if any(row.get(h) for row in rows)]
    return used, [[row.get(h, "") for h in used] for row in rows]


def without(found: Columns, names: Iterable[str]) -> Columns:
    """The columns that are not called one of `names`."""
    headers, rows = found
    kept = [place for place, name in enumerate(headers) if name not in names]
    return [headers[place] for place in kept], [[row[place] for place in kept] for row in rows]


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], left: Iterable[str] = ()) -> Table:
    """A table of plain text, the columns `left` aligned as words are."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, padding=(0, 1, 0, 0))
    for header in headers:
        words = header in left
        justify: Any = "left" if words else "right"
        table.add_column(Text(clean(header)), justify=justify, overflow="fold", no_wrap=not words)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def say(console: Console, lines: Iterable[str], style: str = "") -> None:
    """Print `lines` as they are: nothing in them is markup."""
    for line in lines:
        console.print(line, style=style, markup=False, highlight=False)


def warn(console: Console, warnings: Sequence[str], most: int = 8) -> None:
    """Print the first `most` of `warnings`."""
    say(console, [f"Warning: {clean(text)}" for text in shortened(warnings, most)], "yellow")
