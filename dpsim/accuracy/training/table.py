"""Tables of measured training runs: read, checked, with defaults for what is left out.

The full schema has 56 columns; only a few are needed: how many GPUs (`total_gpus`), which
(`accelerator`), the `model` (or its parameters in millions, `params_m`), and what was measured
(`value` with its `unit`, or `step_time_s`).  Every default that is taken is told in the row's
notes.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from dpsim.accuracy.words import vocabulary
from dpsim.core.record import Refused

#: the largest table, and the largest number of rows, that are read
MAX_BYTES, MAX_ROWS = 200_000_000, 1_000_000
#: numbers without which a row means nothing; the whole table is refused where one is not right
_STRICT = ("total_gpus", "gpus_per_node", "nodes", "value", "step_time_s", "throughput_global")
#: numbers that may be words instead ("64 (s128) / 8 (s512)"): then the row, not the table, is
#: refused
_LOOSE = (
    "params_m", "inter_gbits_s_per_node", "grad_accum", "batch_per_gpu", "global_batch", "seq_len",
    "tp", "pp", "dp", "cp", "rel_unc_pct",
)  # fmt: skip
_COUNTS = ("total_gpus", "gpus_per_node", "nodes")


@dataclass(frozen=True)
class TrainingRow:
    """One measured point.

    cells    the row as it was read, by column
    numbers  its numeric columns, where they hold a number
    line     its line in the file
    """

    number: int
    line: int
    cells: dict[str, str]
    numbers: dict[str, float] = field(repr=False)

    def text(self, column: str) -> str:
        return self.cells.get(column, "").strip()

    def get(self, column: str) -> float | None:
        return self.numbers.get(column)

    def unclear(self) -> str | None:
        """A column that should hold a number and holds words."""
        return next((c for c in _LOOSE if self.text(c) and c not in self.numbers), None)

    def count(self, column: str, default: int = 1) -> int:
        """A whole number; `default` where the column is empty."""
        return int(self.numbers.get(column, default))

    @property
    def gpus(self) -> int:
        return int(self.numbers["total_gpus"])


@dataclass(frozen=True)
class TrainingTable:
    """All rows in file order, their columns, and what was assumed about the whole table."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[TrainingRow, ...]
    warnings: tuple[str, ...]

    @property
    def series(self) -> dict[str, list[TrainingRow]]:
        """Rows by series, in order of appearance."""
        found: dict[str, list[TrainingRow]] = {}
        for row in self.rows:
            found.setdefault(series_of(row), []).append(row)
        return found


def series_of(row: TrainingRow) -> str:
    """The series of a row: `series_id`, else everything that says what was run."""
    named = row.text("series_id")
    if named:
        return named
    columns = (
        "source_id", "model", "params_m", "framework", "strategy", "precision", "accelerator",
        "gpus_per_node", "inter_node", "inter_gbits_s_per_node", "seq_len", "unit",
    )  # fmt: skip
    return "|".join(row.text(column) for column in columns if row.text(column))


def read_table(path: Path) -> TrainingTable:
    """The table in `path`.

    Raises Refused, naming the line and the column, where it cannot be one.
    """
    text = _text(path)
    delimiter = (
        ";" if text.partition("\n")[0].count(";") > text.partition("\n")[0].count(",") else ","
    )
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        columns = _columns(reader.fieldnames or (), path.name)
        reader.fieldnames = list(columns)
        rows = []
        for number, cells in enumerate(reader):
            if number >= MAX_ROWS:
                raise Refused(f"{path.name}: has more than {MAX_ROWS:,} rows")
            rows.append(_row(number, reader.line_num, cells, path.name))
    except csv.Error as error:
        raise Refused(f"{path.name}:{reader.line_num}: is no CSV: {error}") from None
    if not rows:
        raise Refused(f"{path.name}: has no rows")
    return TrainingTable(path.name, columns, tuple(rows), tuple(_missing(columns)))


def _text(path: Path) -> str:
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise Refused(f"{path.name}: is larger than {MAX_BYTES // 10**6} MB")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(f"{path.name}: is not UTF-8 text (byte {error.start:,})") from None
    except OSError as error:
        raise Refused(f"{path.name}: cannot be read ({error.strerror})") from None
    if "\0" in text:
        raise Refused(f"{path.name}: holds NUL characters, so it is no CSV")
    return text


def _columns(names: Iterable[str], file: str) -> tuple[str, ...]:
    """The columns under their own names; refuses a table that lacks what is needed."""
    aliases, plain = vocabulary().tables.columns, (name.strip().lower() for name in names)
    columns = tuple(aliases.get(name, name) for name in plain)
    double = sorted({c for c in columns if columns.count(c) > 1 and c})
    if double:
        raise Refused(f"{file}:1: two columns are called {double[0]!r}")
    needed: tuple[tuple[str, ...], ...] = (
        ("total_gpus",), ("accelerator",), ("model", "params_m"),
        ("value", "step_time_s", "throughput_global"),
    )  # fmt: skip
    for group in needed:
        if not set(group) & set(columns):
            raise Refused(
                f"{file}:1: no column {' or '.join(group)}; a table needs at least model, "
                "accelerator, total_gpus, value and unit"
            )
    if "value" in columns and "unit" not in columns:
        raise Refused(f"{file}:1: column value needs a column unit, for example samples/s")
    return columns


def _row(number: int, line: int, cells: dict[str | None, str | None], file: str) -> TrainingRow:
    if None in cells:
        raise Refused(f"{file}:{line}: has more cells than there are columns")
    plain = {str(k): (v or "") for k, v in cells.items()}
    numbers = {}
    for column in (*_STRICT, *_LOOSE):
        if text := plain.get(column, "").strip():
            try:
                numbers[column] = _number(text, f"{file}:{line}: {column}", column in _COUNTS)
            except Refused:
                if column in _STRICT:
                    raise
    if "total_gpus" not in numbers:
        raise Refused(f"{file}:{line}: total_gpus: is empty")
    return TrainingRow(number, line, plain, numbers)


def _number(text: str, where: str, whole: bool) -> float:
    try:
        value = float(vocabulary().tables.behind.sub("", text))
    except ValueError:
        raise Refused(f"{where}: {text[:40]!r} is not a number") from None
    if not math.isfinite(value) or value < 0 or value > 1e15:
        raise Refused(f"{where}: {text[:40]!r} is not in 0 … 1e15")
    if whole and (value != int(value) or not 1 <= value <= 1_048_576):
        raise Refused(f"{where}: {text[:40]!r} is not a whole number in 1 … 1,048,576")
    return value


#: what is assumed where a column is not there at all
_DEFAULTS = {
    "batch_per_gpu": "batch per GPU: 64 images, 8 sequences of a small language model, 1 of a "
    "large one",
    "gpus_per_node": "8 GPUs a node, or as many as there are",
    "precision": "mixed precision (fp16 arithmetic, fp32 gradients)",
    "strategy": "PyTorch DDP",
    "inter_node": "the network of the GPU's usual machine",
    "seq_len": "512 tokens a sequence (2,048 for models above 1e9 parameters)",
}


def _missing(columns: tuple[str, ...]) -> Iterable[str]:
    absent = {c: text for c, text in _DEFAULTS.items() if c not in columns}
    if "global_batch" in columns:
        absent.pop("batch_per_gpu", None)
    if "inter_gbits_s_per_node" in columns:
        absent.pop("inter_node", None)
    for column, text in absent.items():
        yield f"no column {column}: assumed {text}"
