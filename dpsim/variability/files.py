"""CSV files of factors, step times or lengths."""

from __future__ import annotations

from pathlib import Path

from dpsim.core import csvfile
from dpsim.core.record import Refused
from dpsim.core.units import MEASURED, Unit

#: bytes that are read
LARGEST = 10_000_000
_WHERE = ("variability",)
#: what columns may hold
_KINDS = {
    ("factor",): (Unit("1", high=1e6),),
    ("seconds",): (Unit("s", high=MEASURED.high),),
    ("length", "count"): (Unit("1", high=1e9), Unit("1", high=1e15)),
}


def read_numbers(path: Path) -> tuple[tuple[float, ...], str]:
    """The numbers of a CSV and what they are: "factor", "seconds", or "length" for a histogram,
    whose lengths and counts then take turns.  Refused for anything else."""
    try:
        return _read(path)
    except Refused as error:
        raise Refused(str(error), _WHERE) from None


def _read(path: Path) -> tuple[tuple[float, ...], str]:
    rows = csvfile.read(path, LARGEST)
    columns = next((kind for kind in _KINDS if set(kind) <= set(rows.columns)), None)
    if columns is None:
        raise rows.refusal("has no column factor or seconds, nor length and count", None)
    rows.once = ("length",) if "length" in columns else None
    units = dict(zip(columns, _KINDS[columns], strict=True))
    values = [row.number(column, units[column]) for row in rows for column in columns]
    if not any(values[len(columns) - 1 :: len(columns)]):
        what = f"every {columns[-1]} is 0" if values else "has no row below its header"
        raise rows.refusal(what, None)
    return tuple(values), columns[0]
