"""Reader of the text that nccl-tests and rccl-tests print (``all_reduce_perf`` and the like).

Layout: NVIDIA/nccl-tests src/common.cu, before 2.11 (column ``error``) and since (``#wrong``).
Columns are told from the header, never from their number: ``root`` and ``redop`` come and go.
Lines may carry the prefix of ``mpirun -tag-output`` or ``srun --label``, and other output may stand
between them.  The number of ranks is that of the rank lines; without them it follows from bus over
algorithm bandwidth, which is a function of the rank count alone (doc/PERFORMANCE.md there).  Rank
lines that disagree with it, as other output has overwritten some, leave ranks and nodes open.

Frameworks reduce and gather in place (DDP's buckets, FSDP2's all-gather into its own output), so
those times are taken for all-reduce, all-gather and broadcast, out-of-place times for the others.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from dpsim.backends.curves import bus_factor
from dpsim.core.record import Refused
from dpsim.core.units import decimal, parse
from dpsim.measurements.findings import Curve, Findings, Point, unique
from dpsim.measurements.readers import Reader, text_content
from dpsim.measurements.readers._nccl_checks import (
    IN_PLACE,
    Printed,
    Timed,
    check_bandwidth,
    check_bus,
    check_sizes,
    counts,
)
from dpsim.measurements.readers._nccl_issue import MOST_GPUS, of_links

#: tags of mpirun, which may cut into a line, of srun, and times that log collectors add
_TAG = re.compile(
    r"\[\d+,\d+\]<\w+>:|^\s*\[\d+,\d+\]:|^\s*\d+: |^\s*\d{4}-\d\d-\d\dT[\d:.]{6,24}Z?\s"
)
_HEADER = re.compile(r"^#\s+size\s+count\s+type\b.*\btime\s+algbw\s+busbw\b")
_RANK = re.compile(r"^#\s+Rank\s+(\d+)\s.*?\bon\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)$")
_THREADS = re.compile(r"^#\s*nThread\s+\d+\s+nGpus\s+(\d{1,9})(?!\S)")
_AVERAGE = re.compile(r"^#\s*Avg bus bandwidth\s*:\s*(\S+)")
_MARK = re.compile(
    r"\b(?:all_reduce|all_gather|reduce_scatter|alltoall|broadcast|reduce|sendrecv)_perf\b"
    r"|^\S*#\s*(?:nThread \d+ nGpus|Using devices)",
    re.MULTILINE,
)
_PROGRAM = re.compile(r"\b([a-z]+(?:_[a-z]+)*)_perf\b")
_NAMES = {
    "all_reduce": "all_reduce", "allreduce": "all_reduce",
    "all_gather": "all_gather", "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter", "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all", "all_to_all": "all_to_all",
    "broadcast": "broadcast", "reduce": "reduce", "sendrecv": "send",
}  # fmt: skip
_COUNT = re.compile(r"[0-9]{1,18}")
#: both times of a row that differ by more than this are no two measurements of one thing
_OUTLIER = 3.0


@dataclass
class _Row:
    """One line of a table; `timed` is out of place and in place."""

    line: int
    size: float
    count: int
    kind: str
    redop: str
    root: int
    timed: tuple[Timed, ...]
    wrong: bool

    @property
    def times(self) -> tuple[float, ...]:
        """Out of place and in place [s]; decimal, so that 13.03 us is 1.303e-05 s."""
        return tuple(parse(f"{timed.time.value!r} us", "s") for timed in self.timed)


@dataclass
class _Table:
    """One table and what stood above it."""

    columns: list[str]
    program: str | None
    ranks: dict[int, str]
    per_thread: int = 1
    rows: list[_Row] = field(default_factory=list)
    average: float | None = None
    warnings: list[str] = field(default_factory=list)


class NcclTests(Reader):
    """Tables of nccl-tests and rccl-tests become curves."""

    accepts = "text of nccl-tests"

    def claims(self, path: Path, head: bytes) -> bool:
        text = head.decode("utf-8", "replace")
        if any(_HEADER.match(_bare(line)) for line in text.splitlines()):
            return True
        table = path.suffix.lower() in (".csv", ".tsv", ".json")
        return _MARK.search(text) is not None and not table

    def read(self, path: Path) -> Findings:
        tables, device = _tables(text_content(path).split("\n"))
        curves, warnings = [], []
        for table in tables:
            curve = _curve(table, path.name)
            warnings += table.warnings
            if curve is not None:
                curves.append(curve)
        if not tables:
            raise Refused("has no table of nccl-tests: no line `# size count type … busbw`")
        if not any(table.rows for table in tables):
            raise Refused("has a table of nccl-tests without any row; it was cut short")
        rows = sum(len(table.rows) for table in tables)
        notes = (f"nccl-tests: {len(tables)} table{'s' * (len(tables) > 1)}, {rows} rows",)
        warned = unique(warnings)
        wrong = sum(row.wrong for table in tables for row in table.rows)
        return Findings(
            path.name, tuple(curves), device=device, warnings=warned, notes=notes, wrong=wrong
        )


def _bare(line: str) -> str:
    """`line` without the tags of mpirun or srun."""
    return _TAG.sub("", line).strip()


def _tables(lines: list[str]) -> tuple[list[_Table], str | None]:
    """All tables of a log, each with the rank lines and the program named above it."""
    tables: list[_Table] = []
    ranks: dict[int, str] = {}
    program = device = None
    per_thread, open_ = 1, False
    for number, raw in enumerate(lines, 1):
        line = _bare(raw)
        if named := _PROGRAM.search(line):
            program = named[1]
        if started := _THREADS.match(line):
            per_thread = min(int(started[1]), MOST_GPUS)
        if line.startswith("# Using devices"):
            ranks = {}
        elif found := _RANK.match(line):
            ranks[int(found[1][:9])] = found[2]
            device = found[3].strip() or device
        elif _HEADER.match(line):
            tables.append(_Table(line.lstrip("# ").split(), program, ranks, per_thread))
            open_ = True
        elif open_ and re.match(r"#\s+\(B\)", line) and "(us)" not in line:
            raise Refused(f"line {number}: times are not in us")
        elif open_ and (average := _AVERAGE.match(line)):
            tables[-1].average = Printed.of(average[1], number).value
            open_, ranks = False, {}
        elif open_:
            _take(tables[-1], line, number)
    return tables, device


def _take(table: _Table, line: str, number: int) -> None:
    """Add `line` to `table` if it is a row of it."""
    cells = line.split()
    if line in ("...", "…"):
        table.warnings.append(f"line {number}: rows were left out of the table")
    if line.startswith("#") or len(cells) < 3:
        return
    if not (_COUNT.fullmatch(cells[0]) and _COUNT.fullmatch(cells[1])):
        if sum(map(_numeric, cells)) > 5:  # else some other output
            table.warnings.append(f"line {number} looks like a row and is left out; damaged?")
        return
    first = table.columns.index("time")
    groups, left = table.columns[first:], cells[: -len(table.columns[first:])]
    if not 3 <= len(left) <= 5 or left[2][0].isdigit():
        table.warnings.append(f"line {number} has {len(cells)} columns and is left out; cut short?")
        return
    values = cells[-len(groups) :]
    rest = left[3:]
    root = int(rest.pop()) if "root" in table.columns and rest and _whole(rest[-1]) else -1
    starts = [k for k, name in enumerate(groups) if name == "time"]
    timed = tuple(Timed(*(Printed.of(v, number) for v in values[k : k + 3])) for k in starts)
    check_bandwidth(number, float(cells[0]), timed)
    table.rows.append(
        _Row(
            number,
            float(cells[0]),
            int(cells[1]),
            left[2],
            rest[0] if rest else "none",
            root,
            timed,
            any(_wrong(values[k + 3 : k + 4], number) for k in starts),
        )
    )


def _whole(text: str) -> bool:
    return bool(re.fullmatch(r"-?\d{1,9}", text))


def _numeric(cell: str) -> bool:
    try:
        return bool(decimal(cell).is_finite())
    except ValueError:
        return False


def _wrong(cell: list[str], line: int) -> bool:
    """Whether a column `#wrong` or `error` says that results were wrong (N/A: not checked)."""
    if not cell or cell[0] == "N/A":
        return False
    if not _numeric(cell[0]):
        raise Refused(f"line {line}: {cell[0][:40]!r} is no number of wrong results")
    return decimal(cell[0]) > Decimal("1e-3")  # `error` is a rounding error, `#wrong` a count


def _curve(table: _Table, name: str) -> Curve | None:
    """The curve of one table; None, with a warning, where it measured no communication."""
    _check_whole(table)
    rows = [row for row in table.rows if row.size > 0]
    if not rows:
        return None
    listed = len(table.ranks) or None
    if listed == 1 and set(table.ranks) == {0}:
        table.warnings.append("1 rank moves nothing; its table is left out")
        return None
    operation = _operation(table, rows, name)
    if operation == "":
        return None
    ranks, doubt = _ranks(table, rows, operation)
    said = check_sizes([(row.line, row.size, row.count, row.kind) for row in table.rows], ranks)
    table.warnings += [said] if said else []
    if ranks and operation:
        factor = bus_factor(operation, ranks)
        for row in rows:
            check_bus(row.line, factor, row.timed)
    nodes = len(set(table.ranks.values())) if listed and not doubt else None
    possible = counts(operation, *_ratio(rows)) if operation else (1, math.inf)
    column = 0 if operation not in IN_PLACE else -1
    points, said = of_links(
        [_point(table, row, column) for row in rows],
        operation,
        min(table.per_thread, ranks or table.per_thread),
    )
    table.warnings += [said] if said else []
    return Curve(operation, ranks, nodes, points, doubt, possible) if points else None


def _check_whole(table: _Table) -> None:
    """Warn about rows that are missing or wrong."""
    wrong = sum(row.wrong for row in table.rows)
    if wrong:
        table.warnings.append(f"{wrong} rows had wrong results")
    if table.average is None:
        table.warnings.append("the table has no average at its end; it may have been cut short")
        return
    busy = [timed.bus.value for row in table.rows for timed in row.timed]
    mean = sum(busy) / len(busy) if busy else 0.0
    if abs(mean - table.average) > 1e-3 * table.average + 0.01:
        table.warnings.append(
            f"the stated average of {table.average:g} GB/s is not that of the rows ({mean:.4g}); "
            "rows are missing"
        )


def _point(table: _Table, row: _Row, column: int) -> Point:
    """(size, time, spread); the other column says how far a repetition may be off."""
    time, other = row.times[column], row.times[-1 - column if column else -1]
    if time <= 0:
        raise Refused(f"line {row.line}: a time of {time:g} s for {row.size:g} bytes")
    if other > 0 and max(time, other) > _OUTLIER * min(time, other):
        table.warnings.append(
            f"line {row.line}: {row.times[0] * 1e6:g} us out of place, {row.times[-1] * 1e6:g} us "
            "in place; the smaller one is taken"
        )
        return row.size, min(time, other), 0.0
    return row.size, time, abs(time - other) / math.sqrt(2)


# -- which operation, how many ranks -----------------------------------------------------------


def _ratio(rows: list[_Row]) -> tuple[float, float]:
    """Bounds of bus over algorithm bandwidth that all printed numbers allow."""
    low, high = 0.0, 2.0
    for row in rows:
        for _, algorithm, bus in row.timed:
            if algorithm.value >= 1.0:
                low = max(low, bus.low / algorithm.high)
                high = min(high, bus.high / algorithm.low)
                if low > high:
                    raise Refused(
                        f"line {row.line}: bus over algorithm bandwidth is not that of the rows "
                        f"above: {bus.value:g} over {algorithm.value:g} GB/s"
                    )
    return low, high


def _operation(table: _Table, rows: list[_Row], name: str) -> str | None:
    """The operation, by what the log names, else by columns and bandwidths, else by file name.

    "" where it is one that dpsim does not know; None where nothing tells.
    """
    likely = _likely(table, rows)
    if table.program is not None:
        known = _NAMES.get(table.program)
        if known is None:
            table.warnings.append(f"{table.program} is not modelled; its table is left out")
            return ""
        if known not in likely:
            fitting = " or ".join(likely) or "no collective"
            raise Refused(
                f"names {table.program}, but its columns and bandwidths are those of {fitting}"
            )
        return known
    if len(likely) == 1:
        return likely[0]
    stem = re.sub(r"[^a-z]", "", name.lower())
    for key in sorted(_NAMES, key=len, reverse=True):
        if key.replace("_", "") in stem and _NAMES[key] in likely:
            table.warnings.append(f"only the file's name says that this is {_NAMES[key]}")
            return _NAMES[key]
    if not likely:
        raise Refused("has bandwidths that fit no collective on its number of ranks")
    table.warnings.append(f"does not say which operation it is: {' or '.join(likely)}")
    return None


def _likely(table: _Table, rows: list[_Row]) -> list[str]:
    """The operations that fit the columns, the bandwidths and the listed ranks."""
    reduces = all(row.redop not in ("none", "N/A") for row in rows)
    rooted = all(row.root >= 0 for row in rows) and "root" in table.columns
    if rooted:
        options = ["reduce"] if reduces else ["broadcast"]
    else:
        options = ["all_reduce", "reduce_scatter"] if reduces else ["all_gather", "all_to_all"]
    if table.program == "sendrecv" and not rooted:  # with an operator of reductions, or without
        options = ["send"]
    low, high = _ratio(rows)
    n = len(table.ranks)
    bounds = {operation: counts(operation, low, high) for operation in options}
    possible = [o for o, (least, most) in bounds.items() if least <= most]
    # where the listed ranks fit nothing, `_ranks` doubts them
    return [o for o in possible if n and bounds[o][0] <= n <= bounds[o][1]] or possible


def _ranks(table: _Table, rows: list[_Row], operation: str | None) -> tuple[int | None, str]:
    """The listed ranks, checked; else the only count that the bandwidths allow; else None.

    With why listed ones cannot be: "" where they can."""
    listed = len(table.ranks)
    least, most = counts(operation, *_ratio(rows)) if operation else (2, math.inf)
    shown = f"{least:.0f}" if least == most else f"{least:.0f} … {most:.0f}"
    if listed and not least <= listed <= most:
        return None, f"lists {listed} ranks, but its bus bandwidth is that of {shown}"
    if listed and set(table.ranks) != set(range(listed)):
        return None, f"lists {listed} ranks, but not 0 to {listed - 1}; lines are missing"
    if listed:
        return listed, ""
    if least == most:
        table.warnings.append(
            f"no list of ranks: its bus bandwidth is that of {shown}; nodes are not known"
        )
        return int(least), ""
    table.warnings.append(f"no list of ranks, and bandwidths allow {shown}; say how many")
    return None, ""
