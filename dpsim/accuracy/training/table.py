"""Tables of measured training runs: read, checked, with defaults for what is left out.

The full schema has 56 columns; only a few are needed: how many GPUs (`total_gpus`), which
(`accelerator`), the `model` (or its parameters in millions, `params_m`), and what was measured
(`value` with its `unit`, or `step_time_s`).  Every default that is taken is told in the row's
notes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from dpsim.accuracy.platforms import platform
from dpsim.accuracy.strayed import from_accelerator
from dpsim.accuracy.training.columns import MeasuredColumns, measured_in, named, taken, unread
from dpsim.accuracy.training.numbers import (
    LOOSE,
    MEASURED,
    NUMBERS,
    PLAIN,
    STRICT,
    is_rate,
    read_number,
)
from dpsim.accuracy.words import vocabulary
from dpsim.core import csvfile
from dpsim.core.record import Refused
from dpsim.predict.repeats import AGREE as AGREE_AGAIN

#: the largest table, and the largest number of rows, that are read
MAX_BYTES, MAX_ROWS = 200_000_000, 1_000_000
#: the longest cell: words are looked for in all of it, which takes longer than in proportion
MAX_CELL = 6000
#: how far throughput and step time of a row may be off each other: both are rounded, to two digits
#: at least
AGREE = 0.05
#: columns of what was measured, and of where it was read: rows that differ in these alone are
#: repeats of one run
_OUTCOME = frozenset(
    (
        "row_id", "role", "quality", "source_path", "source_loc", "source_commit",
        "source_commit_date", "data_date", "value", "value_kind", "rel_unc_pct",
        "throughput_global", "step_time_s", "step_time_src", "tflops_per_gpu", "mfu_pct", "notes",
    )
)  # fmt: skip
_DECIMAL_COMMA = re.compile(r"\d+,(?:\d{1,2}|\d{4,})|0\d*,\d+")
#: of numbers that may be words: those that count, and those of which nothing is none
_WHOLE = ("grad_accum", "tp", "pp", "dp", "cp", "ep")
_SIZES = ("batch_per_gpu", "global_batch", "seq_len")


@dataclass(frozen=True)
class TrainingRow:
    """One measured point.

    cells    the row as it was read, by column
    numbers  its numeric columns, where they hold a number
    line     its line in the file
    fault    why it is no measured point, with the column; empty where it is one
    """

    number: int
    line: int
    cells: dict[str, str]
    numbers: dict[str, float] = field(repr=False)
    fault: str = ""

    def text(self, column: str) -> str:
        return self.cells.get(column, "").strip()

    @property
    def strategy_words(self) -> str:
        """What both columns on the strategy say, in small letters."""
        return f"{self.text('strategy')} | {self.text('strategy_detail')}".lower()

    @property
    def software_words(self) -> str:
        """What the columns on the software and its dtypes say, in small letters."""
        columns = ("framework", "strategy_detail", "precision")
        return " | ".join(self.text(name) for name in columns).lower()

    def with_known(self, **known: str) -> Callable[[str], str]:
        """Its texts by column, as rules ask for them, and what is `known` of it beside."""
        return lambda name: known.get(name) or self.text(name)

    def get(self, column: str) -> float | None:
        return self.numbers.get(column)

    def unclear(self) -> str | None:
        """A column that should hold a number and holds words."""
        return next((c for c in LOOSE if self.text(c) and c not in self.numbers), None)

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
        """Rows by series, in order of appearance; without those that are no measured point."""
        found: dict[str, list[TrainingRow]] = {}
        for row in self.rows:
            if not row.fault:
                found.setdefault(series_of(row), []).append(row)
        return found


def series_of(row: TrainingRow) -> str:
    """The series of a row: `series_id`, else everything that says what was run, and on which
    machine, however it is written."""
    named = row.text("series_id")
    if named:
        return named
    columns = (
        "source_id", "model", "params_m", "task", "padding", "framework", "strategy", "precision",
        "seq_len", "unit", "loader",
    )  # fmt: skip
    told = {name: row.text(name) for name in columns}
    if told["unit"] in vocabulary().tables.times:
        told["unit"] = "step time"  # in seconds or milliseconds
    machine = machine_in_words(
        row.text("accelerator"), row.text("gpus_per_node"), row.get("gpus_per_node"),
        row.text("inter_node"), row.get("inter_gbits_s_per_node"),
    )  # fmt: skip
    return "|".join([*filter(None, told.values()), machine])


@lru_cache(maxsize=4096)
def machine_in_words(
    accelerator: str, gpus: str, per_node: float | None, inter_node: str, gbits: float | None
) -> str:
    """The machine as it is read, so that two ways to write one are one; the words themselves where
    they cannot be read."""
    try:
        found = platform(
            accelerator=accelerator,
            gpus_per_node=int(per_node) if per_node else None,
            inter_node=inter_node,
            inter_gbits_s=gbits,
        )
    except Refused:
        told = (accelerator, gpus, inter_node, f"{gbits:g}" if gbits else "")
        return "|".join(text for text in told if text)
    return "|".join(str(value) for value in found.cluster.values())


def read_table(path: Path) -> TrainingTable:
    """The table in `path`.

    Raises Refused, naming the line and the column, where it cannot be one, and where no row of it
    is a measured point.
    """
    table = csvfile.read(path, MAX_BYTES, MAX_ROWS, ragged=True)
    read = _columns(table)
    found = list(table)
    grouped = table.mark == "," and not _has_decimal_commas(found, read)
    rows = tuple(_row(number, row, read, grouped) for number, row in enumerate(found))
    columns = read.kept
    if not rows:
        raise table.refusal("has no rows", None)
    if all(row.fault for row in rows):
        raise table.refusal(rows[0].fault, rows[0].line)
    return TrainingTable(
        path.name,
        columns,
        rows,
        (
            *unread(columns),
            *taken(table.columns),
            *_both(table.columns, read.names, rows),
            *_several(table.columns, read),
            *_missing(columns, rows),
            *_repeated(rows),
            *_conflicting(rows),
        ),
    )


def _has_decimal_commas(rows: Iterable[csvfile.Row], read: MeasuredColumns) -> bool:
    """Whether a measured number of `rows` has a comma that separates no thousands."""
    columns, measured = read.names, {*MEASURED, *(name for name, _ in read.others)}
    places = [place for place, name in enumerate(columns) if name in measured]
    cells = (row.padded[place].strip() for row in rows for place in places)
    return any(_DECIMAL_COMMA.fullmatch(cell) for cell in cells)


def _columns(table: csvfile.Table) -> MeasuredColumns:
    """The columns under their own names, and the units that those of `value` and `step_time_s`
    said; refuses a table that lacks what is needed."""
    found = measured_in(named(table.columns))
    columns = found.names
    double = sorted({c for c in columns if columns.count(c) > 1})
    if double:
        raise table.refusal(f"two columns are called {double[0]!r}")
    needed: tuple[tuple[str, ...], ...] = (
        ("total_gpus",), ("accelerator",), ("model", "params_m"),
        ("value", "step_time_s", "throughput_global"),
    )  # fmt: skip
    for group in needed:
        if not set(group) & set(columns):
            raise table.refusal(
                f"no column {' or '.join(group)}; a table needs at least model, "
                f"accelerator, total_gpus, value and unit{_meant(columns)}"
            )
    if "value" in columns and "unit" not in columns and not found.unit:
        raise table.refusal("column value needs a column unit, for example samples/s")
    return found


def _meant(columns: tuple[str, ...]) -> str:
    """What is read instead of some of `columns` that nobody reads."""
    found = [text for text in unread(columns) if ";" in text]
    return f" ({'. '.join(found)})" if found else ""


def _row(number: int, found: csvfile.Row, read: MeasuredColumns, grouped: bool) -> TrainingRow:
    """The row; `grouped`: whether a comma of its rates can separate thousands alone."""
    given = dict(zip(read.names, found.padded, strict=True))
    cells = read.of_row(given)
    numbers: dict[str, float] = {}
    # nobody knows which cell is whose, or there is too much to look for words in
    if fault := found.miscounted or _too_long(cells):
        return TrainingRow(number, found.line, cells, numbers, fault)
    cells |= {name: plain(cells[name]) for name, plain in PLAIN.items() if cells.get(name)}
    for column in NUMBERS:
        if text := cells.get(column, "").strip():
            try:
                numbers[column] = read_number(text, column, grouped, is_rate(column, cells))
            except ValueError as error:
                if column in STRICT:
                    fault = fault or f"{read.given(column, given)}: {error}"
    if "step_time_s" in numbers:
        numbers["step_time_s"] *= read.seconds
    if "gpus_per_node" not in numbers and (size := _of_a_size(cells)):
        numbers["gpus_per_node"] = size
    if "total_gpus" not in numbers:
        fault = fault or "total_gpus: is empty"
    if not numbers.keys() & {"value", "step_time_s"}:
        fault = fault or f"{read.held}: is empty"
    return TrainingRow(number, found.line, cells, numbers, fault or _contradiction(numbers, cells))


def _of_a_size(cells: Mapping[str, str]) -> int | None:
    """GPUs of a machine in a cloud that a row names by its size."""
    said = " ; ".join(cells.get(c, "") for c in ("accelerator", "intra_node", "inter_node")).lower()
    known, short = vocabulary().nodes.sizes, r"\1xlarge"
    said = vocabulary().accelerators.spellings[short].sub(short, said)
    return next((int(gpus) for gpus, names in known.items() if names.search(said)), None)


def _too_long(cells: Mapping[str, str]) -> str:
    """What to say of a cell of `cells` that is too long to look for words in; "" if none is."""
    longest = next((name for name, text in cells.items() if len(text) > MAX_CELL), "")
    return f"{longest}: a cell has at most {MAX_CELL:,} characters" if longest else ""


def _contradiction(numbers: Mapping[str, float], cells: Mapping[str, str]) -> str:
    """What of a row's numbers is impossible or contradicts the others, with its column; empty where
    nothing does."""
    for column, value in numbers.items():
        if column in _WHOLE and (value < 1 or value % 1):
            return f"{column}: {value:g} is not a whole number of at least 1"
        if column in _SIZES and value <= 0:
            return f"{column}: {value:g} is not above 0"
        if column == "seq_len" and value % 1:
            return f"seq_len: {value:g} is not a whole number of tokens"
    gpus, nodes, each = (numbers.get(c) for c in ("total_gpus", "nodes", "gpus_per_node"))
    if gpus and nodes and each and not nodes <= gpus <= nodes * each:
        return f"total_gpus: {nodes:g} nodes of {each:g} have no {gpus:g}"
    return _other_rate(numbers, cells)


def _other_rate(numbers: Mapping[str, float], cells: Mapping[str, str]) -> str:
    """What of `throughput_global` is no batch in the time of a step, in samples or in tokens; empty
    where it is one, and where it counts what the batch is not known in."""
    columns = ("throughput_global", "step_time_s", "global_batch")
    rate, time, batch = (numbers.get(column) for column in columns)
    if not (rate and time and batch):
        return ""
    length, words = numbers.get("seq_len"), vocabulary().tables
    unit, batches = (cells.get(c, "").lower() for c in ("throughput_unit", "batch_unit"))
    told = words.throughput.fullmatch(unit)
    what = words.short.get(told["what"], told["what"]) if told else ""
    if what.startswith("token") and not length and not words.in_tokens.search(batches):
        return ""
    if min(abs(rate * time / each - 1) for each in (batch, batch * (length or 1.0))) <= AGREE:
        return ""
    return (
        f"throughput_global: {rate:g} per second is not global_batch {batch:g} in "
        f"step_time_s {time:g}"
    )


def _both(
    given: Sequence[str], columns: Sequence[str], rows: Iterable[TrainingRow]
) -> Iterable[str]:
    """Which of two measured columns, as the names `given`, is read where rows have both."""
    own = {name: f"column {said[:60]}" for name, said in zip(columns, given, strict=True)}
    if any({"value", "step_time_s"} <= row.numbers.keys() for row in rows):
        yield (
            f"{own['step_time_s']} is what was measured; {own['value']} is checked against it "
            f"where the row states its batch: more than {AGREE * 100:g} % apart is refused"
        )


def _several(given: Sequence[str], read: MeasuredColumns) -> Iterable[str]:
    """Which of several columns of rates, as the names `given`, is read."""
    rates = ("value", *(name for name, _ in read.others))
    if read.others:
        own = [said[:60] for said, name in zip(given, read.names, strict=True) if name in rates]
        yield (
            f"columns {' and '.join(own)} are rates: of each row the one that is filled is read, "
            f"and the first where several are"
        )


def _repeated(rows: Iterable[TrainingRow]) -> Iterable[str]:
    """Rows that repeat another to the letter."""
    seen: dict[tuple[str, ...], int] = {}
    for row in rows:
        first = seen.setdefault(tuple(row.cells.values()), row.line)
        if first != row.line:
            yield f"line {row.line} repeats line {first} to the letter; each counts"


def _conflicting(rows: Iterable[TrainingRow]) -> Iterable[str]:
    """Rows of the same run whose measurements contradict each other."""
    runs: dict[tuple[str, ...], list[TrainingRow]] = {}
    for row in rows:
        if not row.fault:
            said = (text for column, text in row.cells.items() if column not in _OUTCOME)
            runs.setdefault((series_of(row), *said), []).append(row)
    for same in runs.values():
        for column in MEASURED:
            found = [(row.numbers[column], row) for row in same if column in row.numbers]
            found.sort(key=lambda pair: pair[0])
            if found and found[-1][0] > AGREE_AGAIN * found[0][0]:
                (low, least), (high, most) = found[0], found[-1]
                yield (
                    f"line {most.line} repeats line {least.line} and contradicts it ({column} "
                    f"{high:g} and {low:g}); each counts: is it another run, or a mistake?"
                )
                break


#: what is assumed where a column is not there at all
_DEFAULTS = {
    "batch_per_gpu": "batch per GPU: 64 images, 8 sequences of a small language model, 1 of a "
    "large one",
    "gpus_per_node": "8 GPUs a node, or as many as there are",
    "precision": "mixed precision (fp16 arithmetic, fp32 gradients)",
    "strategy": "PyTorch DDP",
    "inter_node": "the network of the GPU's usual machine",
    "seq_len": "512 tokens a sequence (of models above 1e9 parameters 2,048, of Llama 2 and others "
    "4,096, of Llama 3 8,192)",
}


def _missing(columns: tuple[str, ...], rows: Iterable[TrainingRow]) -> Iterable[str]:
    """What stands in for columns that are not there, as far as `rows` ask for it."""
    absent = {c: text for c, text in _DEFAULTS.items() if c not in columns}
    if "global_batch" in columns:
        absent.pop("batch_per_gpu", None)
    if "inter_gbits_s_per_node" in columns:
        absent.pop("inter_node", None)
    several, rates = False, []
    for row in rows:
        if not several and row.numbers.get("nodes", 2.0) > 1:
            several = not from_accelerator(row.text("accelerator"))[1]
        rates.append(row.text("unit").lower())
    if not several:
        absent.pop("inter_node", None)
    if rates and all("image" in rate or "img" in rate for rate in rates):
        absent.pop("seq_len", None)
    for column, text in absent.items():
        yield f"no column {column}: assumed {text}"
