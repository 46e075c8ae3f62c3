"""What the cells of a row of nccl-tests say about each other, within the digits that are printed.

size = count x width of the type (x ranks, where a rank holds a share), algbw = size / time, and
busbw = factor x algbw (NVIDIA/nccl-tests src/common.cu, doc/PERFORMANCE.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dpsim.core.record import Refused
from dpsim.core.units import decimal

_WIDTHS = {
    "int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "half": 2, "bfloat16": 2, "float": 4, "double": 8,
    "f8e4m3": 1, "f8e5m2": 1, "fp8_e4m3": 1, "fp8_e5m2": 1,
}  # fmt: skip
#: operations whose times in place are those of frameworks: DDP's buckets, and FSDP2's all-gather
#: into its own output
IN_PLACE = ("all_reduce", "all_gather", "broadcast")
#: half of the last digit, and what binary fractions may be off when they are rounded to it
_HALF = 0.501


class Printed(NamedTuple):
    """A number as it was printed: it stands for all from `low` to `high`."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, text: str, line: int) -> Printed:
        """Refused where `text` is no number, or one below 0."""
        try:
            exact = decimal(text)
            value, digit = float(exact), 10.0 ** int(exact.as_tuple().exponent)
        except ValueError as error:
            raise Refused(f"line {line}: {error}") from None
        if not 0 <= value <= 1e15:
            raise Refused(f"line {line}: {text[:40]} is no time or bandwidth")
        return cls(value, max(value - _HALF * digit, 0.0), value + _HALF * digit)


class Timed(NamedTuple):
    """Time [us], algorithm and bus bandwidth [GB/s] of one column of a row."""

    time: Printed
    algorithm: Printed
    bus: Printed


def check_bandwidth(line: int, size: float, timed: Iterable[Timed]) -> None:
    """Refused where size / time is not the algorithm bandwidth."""
    for time, algorithm, _ in timed:
        if size and time.low and not (
            size / time.high / 1e3 <= algorithm.high and size / time.low / 1e3 >= algorithm.low
        ):  # fmt: skip
            raise Refused(
                f"line {line}: {size:.0f} bytes in {time.value:g} us are "
                f"{size / time.value / 1e3:.7g} GB/s, and the row says {algorithm.value:g}"
            )


def check_bus(line: int, factor: float, timed: Iterable[Timed]) -> None:
    """Refused where the bus bandwidth is not `factor` times the algorithm bandwidth."""
    for _, algorithm, bus in timed:
        if factor * algorithm.low > bus.high or factor * algorithm.high < bus.low:
            raise Refused(
                f"line {line}: a bus bandwidth of {bus.value:g} GB/s is not {factor:.4g} times "
                f"the algorithm bandwidth of {algorithm.value:g}"
            )


def check_sizes(rows: Sequence[tuple[int, float, int, str]], ranks: int | None) -> str:
    """Of (line, size, count, type) of all rows; what could not be checked is said.

    Refused where sizes are not count x width, or that x the same number of ranks in each row.
    """
    shares: dict[float, int] = {}
    unknown = sorted({kind for *_, kind in rows if kind not in _WIDTHS})
    for line, size, count, kind in rows:
        if kind not in _WIDTHS or not (size or count):
            continue
        share = size / (count * _WIDTHS[kind]) if count else 0.0
        first = shares.setdefault(share, line)
        whole = share >= 1 and share == int(share) and (not ranks or share in (1, ranks))
        if not whole or len(shares) > 1:
            other = f", as on line {min(shares.values())}" if whole and first == line else ""
            raise Refused(
                f"line {line}: {size:.0f} bytes are not {count} elements of type {kind}{other}"
            )
    return f"sizes are not checked: type {unknown[0][:20]} is not known" if unknown else ""


def counts(operation: str, low: float, high: float) -> tuple[float, float]:
    """Smallest and largest rank count whose bus over algorithm bandwidth lies in `low` … `high`.

    It is 2(n-1)/n for all-reduce, 1 for rooted operations and sends, (n-1)/n otherwise
    (NVIDIA/nccl-tests doc/PERFORMANCE.md); inf: no bound; (1, 0): none.
    """
    top = 2.0 if operation == "all_reduce" else 1.0
    if low > min(high, top):
        return 1, 0
    if operation in ("broadcast", "reduce", "send"):
        return (2, math.inf) if low <= 1.0 <= high else (1, 0)
    least = math.ceil(top / (top - low) - 1e-9) if low < top else math.inf
    most = math.floor(top / (top - high) + 1e-9) if high < top else math.inf
    return max(least, 2), most
