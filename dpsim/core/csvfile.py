"""CSV: rows with the line on which they end, however a spreadsheet separated them.

>>> columns, rows = table("ranks,seconds\\n8,0.5\\n\\n16\\n")
>>> columns, list(rows)
(('ranks', 'seconds'), [(2, {'ranks': '8', 'seconds': '0.5'}), (4, {'ranks': '16', 'seconds': ''})])
>>> list(cells("8;0.5\\n", ",;"))
[(1, ['8', '0.5'])]
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from dpsim.core.files import Unreadable


def separator(line: str, marks: str = ",;\t") -> str:
    """Which of `marks` separates the columns: the most frequent, of equals the first."""
    return max(marks, key=line.count)


def cells(text: str, marks: str = ",", *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
    """(line, its cells) of every row of `text`, header included.

    `marks` may separate the columns.  Unreadable, with its line, for what is no CSV; with `strict`
    that includes text behind a closing quote and a quote that never closes.
    """
    mark = separator(text.partition("\n")[0], marks)
    found = csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=strict)
    try:
        for row in found:
            yield found.line_num, row
    except csv.Error as error:
        raise Unreadable(f"is no CSV: {error}", line=found.line_num) from None


def table(text: str) -> tuple[tuple[str, ...], Iterator[tuple[int, dict[str, str]]]]:
    """The columns that the first line of `text` names, and (line, cells by column) of the others.

    A cell that is not there is empty, one beyond the last column is left out, and so are empty
    lines; `cells` says what is refused.
    """
    found = cells(text)
    columns = tuple(next(found, (0, []))[1])
    missing = [""] * len(columns)
    return columns, (
        (line, dict(zip(columns, row + missing, strict=False))) for line, row in found if row
    )
