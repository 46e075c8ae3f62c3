"""CSV files of factors, step times or lengths."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from dpsim.core.record import Refused

#: bytes and rows that are read
LARGEST, MOST = 10_000_000, 1_000_000
_WHERE = ("variability",)


def read_numbers(path: Path) -> tuple[tuple[float, ...], str]:
    """The numbers of a CSV and what they are: "factor", "seconds", or "length" for a histogram,
    whose lengths and counts then take turns.  Refused for anything else."""
    try:
        if path.stat().st_size > LARGEST:
            raise Refused(f"{path.name} is larger than {LARGEST:,} bytes", _WHERE)
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise Refused(f"{path.name}: {error.strerror or 'cannot be read'}", _WHERE) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise Refused(f"{path.name} is no CSV: {str(error)[:80]}", _WHERE) from None
    if not 0 < len(rows) <= MOST:
        raise Refused(f"{path.name} has {len(rows):,} rows; 1 … {MOST:,} are accepted", _WHERE)
    columns = _columns(rows[0], path)
    values = tuple(
        _number(row.get(column), f"{path.name}: row {number}: {column}")
        for number, row in enumerate(rows, start=1)
        for column in columns
    )
    if not any(values[len(columns) - 1 :: len(columns)]):
        raise Refused(f"{path.name}: every {columns[-1]} is 0", _WHERE)
    return values, columns[0]


def _columns(row: dict[str, str], path: Path) -> tuple[str, ...]:
    for columns in (("factor",), ("seconds",), ("length", "count")):
        if all(column in row for column in columns):
            return columns
    raise Refused(f"{path.name} has no column factor or seconds, nor length and count", _WHERE)


def _number(text: str | None, where: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise Refused(f"{where}: {str(text)[:40]!r} is no number of 0 or more", _WHERE)
    return value
