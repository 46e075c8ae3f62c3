"""Tables and lines on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dpsim.report.text import clean, shortened

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

#: headers, and rows of cells
Columns = tuple[Sequence[str], Sequence[Sequence[str]]]
#: characters after which words go on in the next line rather than a column is left out
WRAPPED = 34
#: characters between columns
APART = 2


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


def put(
    console: Console, found: Columns, left: Iterable[str] = (), dropped: Iterable[str] = ()
) -> None:
    """Print `found` as a table of whole words.

    `dropped` are columns that are left out, the first ones first, as long as there is no room.
    """
    kept, widths = fitted(found, console.width, left, dropped)
    console.print(table(*kept, left=left, widths=widths))


def fitted(
    found: Columns, room: int, left: Iterable[str] = (), dropped: Iterable[str] = ()
) -> tuple[Columns, list[int]]:
    """The columns that `room` characters hold, and how wide each is: headers are broken between
    words before a column goes, cells of words after all of `dropped` went."""
    ranges = _ranges(found, left)
    for name in dropped:
        if sum(low for _, low, _ in ranges) + APART * len(ranges) <= room:
            break
        found = without(found, [name])
        ranges = _ranges(found, left)
    widths = [whole for whole, _, _ in ranges]
    for floor in (1, 2):
        while sum(widths) + APART * len(widths) > room:
            wide = [k for k, width in enumerate(widths) if width > ranges[k][floor]]
            if not wide:
                break
            widths[max(wide, key=widths.__getitem__)] -= 1
    return found, widths


def _ranges(found: Columns, left: Iterable[str]) -> list[tuple[int, int, int]]:
    """Characters that each column needs: on one line, with its header broken between words and
    long settings in several lines, with all its words broken from each other."""
    from rich.cells import cell_len

    headers, rows = found
    ranges = []
    for place, header in enumerate(headers):
        cells = [cell_len(row[place]) for row in rows]
        words = max((cell_len(word) for word in clean(header).split()), default=0)
        whole, low = max([cell_len(clean(header)), *cells]), max([words, *cells])
        least = low
        if header in left:
            least = max([words, *(cell_len(w) for row in rows for w in row[place].split())])
            low = min(low, max(least, WRAPPED))
        ranges.append((whole, low, least))
    return ranges


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    left: Iterable[str] = (),
    widths: Sequence[int] = (),
) -> Table:
    """A table of plain text, the columns `left` aligned as words are; `widths` of its columns,
    where they are chosen (`put`)."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, padding=(0, 1, 0, 0))
    for place, header in enumerate(headers):
        words = header in left
        table.add_column(
            Text(clean(header)),
            justify="left" if words else "right",
            overflow="fold",
            no_wrap=not words and not widths,
            width=widths[place] if widths else None,
        )
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
