"""Quantities: text with a unit at the edge, SI floats inside.

Inside dpsim a duration is a float in seconds, a size a float in bytes, a rate bytes/s or
FLOP/s.  At the edge (files, ``--set``) every dimensional value is text with its unit, and a
bare number is refused, because ``25`` may be GB, GiB or Gbit.  ``GB`` is 1e9 bytes, ``GiB`` is
2**30 bytes; bits are written ``bit`` (``Gbit/s``), never ``b``.

>>> parse("400 Gbit/s", "B/s")
50000000000.0
>>> parse("5 us", "s")
5e-06
>>> parse("10 MiB/ms", "B/s")
10485760000.0
>>> show(0.02345, "s")
'23.45 ms'
"""

from __future__ import annotations

import math
import re
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Annotated, Any

from dpsim.core.lean import dataclass
from dpsim.core.marks import Mark

_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_TIME: dict[str, Decimal] = {
    "s": Decimal(1),
    "ms": Decimal("1e-3"),
    "us": Decimal("1e-6"),
    "µs": Decimal("1e-6"),
    "ns": Decimal("1e-9"),
    "min": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_SIZE = {p + "B": Decimal(f) for p, f in (_DECIMAL | _BINARY).items()} | {
    p + "bit": Decimal(f) / 8 for p, f in (_DECIMAL | _BINARY).items()
}
_WORK = {p + "FLOP": Decimal(f) for p, f in _DECIMAL.items()}


def _per(numerators: dict[str, Decimal], denominators: dict[str, Decimal]) -> dict[str, Decimal]:
    return {f"{n}/{d}": a / b for n, a in numerators.items() for d, b in denominators.items()}


_SECOND = {"s": Decimal(1), "ms": Decimal("1e-3"), "us": Decimal("1e-6"), "ns": Decimal("1e-9")}
_UNITS: dict[str, dict[str, Decimal]] = {
    "s": _TIME,
    "B": _SIZE,
    "B/s": _per(_SIZE, _SECOND),
    "FLOP": _WORK,
    "FLOP/s": _per(_WORK, {"s": Decimal(1)}),
    "W": {"W": Decimal(1), "kW": Decimal(1000), "MW": Decimal(10**6)},
    "usd/h": {"usd/h": Decimal(1), "usd": Decimal(1)},
    "1": {"%": Decimal("0.01"), "": Decimal(1)},
    "1/s": {
        f"{share}/{each}": value / _TIME[each]
        for share, value in (("", Decimal(1)), ("1", Decimal(1)), ("%", Decimal("0.01")))
        for each in ("s", "min", "h", "d")
    },
}
_EXAMPLES = {
    "s": "5 us",
    "B": "80 GB",
    "B/s": "400 Gbit/s",
    "FLOP": "3.8 GFLOP",
    "FLOP/s": "312 TFLOP/s",
    "W": "700 W",
    "usd/h": "2.10 usd/h",
    "1": "2 %",
    "1/s": "5 %/h",
}
#: durations that are written run from latencies to training runs
_DURATIONS = "'5 us', '400 ms' or '30 d'"
#: days of spans that calendars have
_DAYS = dict.fromkeys(("w", "week", "weeks"), 7) | dict.fromkeys(("y", "yr", "year", "years"), 365)
#: what follows a number that is large, as a power of ten
_LARGE = {"k": 3, "K": 3, "M": 6, "mn": 6, "B": 9, "bn": 9, "G": 9, "T": 12}
_HINTS = {
    "Gbps": "Gbit/s",
    "GbE": "Gbit/s",
    "Mbps": "Mbit/s",
    "GBps": "GB/s",
    "Gb/s": "Gbit/s",
    "Mb/s": "Mbit/s",
    "Gb": "Gbit",
    "Mb": "Mbit",
    "TFLOPS": "TFLOP/s",
    "TFLOPs": "TFLOP/s",
    "TFlops": "TFLOP/s",
    "GFLOPS": "GFLOP/s",
    "sec": "s",
    "secs": "s",
    "second": "s",
    "seconds": "s",
    "mins": "min",
    "minute": "min",
    "minutes": "min",
    "hr": "h",
    "hrs": "h",
    "hour": "h",
    "hours": "h",
    "day": "d",
    "days": "d",
    "msec": "ms",
    "usec": "us",
    "KB": "kB",
    "gb": "GB",
    "mb": "MB",
    "Gbps/s": "Gbit/s",
}
_NUMBER = re.compile(r"^\s*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*(.*?)\s*$")
_DATE = re.compile(r"\s*[0-9]{4}-[0-9]{2}-[0-9]{2}\b")
_COMMA = re.compile(r"\s*[+-]?[0-9][0-9.]*(?:,[0-9]+)+\b")
#: what is nearer to 0 than this, in any unit of the SI, is no quantity but a slip: 1/x overflows
LEAST = 1e-24


@lru_cache(maxsize=4096)
def parse(text: str, dimension: str, example: str = "") -> float:
    """The SI value of `text`, which must carry a unit of `dimension` ("s", "B", "B/s", …); errors
    show `example` in place of the dimension's own.

    Raises ValueError, with what would be accepted, for a missing or foreign unit and for a
    number that is not finite.  Arithmetic is decimal, so "5 us" is exactly the float 5e-06.
    """
    found = _NUMBER.match(text) if len(text) <= 64 else None
    if found is None:
        wrong = not_a_number(text, "a number" if dimension == "1" else "a number with a unit")
        raise ValueError(f"{wrong}; {_write(dimension, example)}")
    number, unit = found.groups()
    scale = _UNITS[dimension].get(unit)
    if scale is None:
        raise ValueError(_wrong_unit(text, unit, dimension, example))
    try:
        with localcontext() as context:
            context.prec = 40
            value = float(Decimal(number) * scale)
    except ArithmeticError:  # decimal's own overflow is no OverflowError
        raise ValueError(f"{text!r} is out of range") from None
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is out of range")
    return value


def decimal(text: str) -> Decimal:
    """The number that `text` in a data file is, in ASCII digits with a decimal point.

    Raises ValueError for everything else, and beyond 1e±400.
    """
    found = _NUMBER.match(text) if len(text) <= 64 else None
    if found is None or found[2]:
        raise ValueError(not_a_number(text))
    try:
        number = Decimal(found[1])
    except ArithmeticError:  # an exponent beyond decimal's own
        raise ValueError(f"{text!r} is out of range") from None
    if number and abs(number.adjusted()) > 330:
        raise ValueError(f"{text!r} is out of range")
    return number


def not_a_number(text: str, needed: str = "a number") -> str:
    """What is wrong with `text`, which is no number of ASCII digits with a decimal point."""
    if _COMMA.match(text):
        return f"{text[:40]!r} has a comma: decimals have a point, and digits are not grouped"
    return f"{text[:64]!r} is not {needed}" if text else f"nothing where {needed} is needed"


def _write(dimension: str, example: str = "") -> str:
    """What would be accepted, by an example; several where they are as unlike as durations."""
    if dimension == "s" and example in ("", _EXAMPLES["s"]):
        return f"write for example {_DURATIONS}"
    return f"write for example {example or _EXAMPLES[dimension]!r}"


def _wrong_unit(text: str, unit: str, dimension: str, example: str) -> str:
    if not unit:
        return f"{text!r} has no unit; {_write(dimension, example)}"
    if _DATE.match(text):
        needed = "how long, for example '30 d'" if dimension == "s" else "a number"
        return f"{text!r} is a date; write {needed}"
    if meant := _meant(text, unit, dimension):
        return f"{text!r}: write {meant!r}, not {unit!r}"
    for other, units in _UNITS.items():
        if unit in units:
            wrong = f"{text!r} is in {other}, where {dimension} is needed"
            return f"{wrong}; {_write(dimension, example)}"
    known = f" (units: {', '.join(_TIME)})" if dimension == "s" else ""
    return f"{text!r}: unknown unit {unit!r}; {_write(dimension, example)}{known}"


def _meant(text: str, unit: str, dimension: str) -> str:
    """What `unit`, or `text` with it, is here; "" where nothing is known of it."""
    if _HINTS.get(unit) in _UNITS[dimension]:
        return _HINTS[unit]
    number = text.strip().removesuffix(unit).strip()
    if len(number) > len("12345.678"):
        return ""
    if dimension == "s" and unit in _DAYS:
        return f"{float(number) * _DAYS[unit]:.15g} d"
    if dimension == "1" and unit in _LARGE:
        return f"{float(number):.15g}e{_LARGE[unit]}"
    return ""


_STEPS = {
    "s": [("d", 86400.0), ("h", 3600.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)],
    "B": [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)],
    "B/s": [("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3), ("B/s", 1.0)],
    "FLOP": [("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6), ("FLOP", 1.0)],
    "FLOP/s": [("PFLOP/s", 1e15), ("TFLOP/s", 1e12), ("GFLOP/s", 1e9), ("FLOP/s", 1.0)],
}


def show(value: float, dimension: str, digits: int = 4) -> str:
    """`value` for people: the largest unit that keeps it at least 1, to `digits` digits."""
    if dimension == "1":
        return f"{value * 100:.{digits}g} %"
    if dimension not in _STEPS:
        return f"{value:.{digits}g} {dimension}"
    if value == 0:
        return f"0 {dimension}"
    steps = _STEPS[dimension]
    unit, scale = next(((u, s) for u, s in steps if abs(value) >= s * 0.99995), steps[-1])
    scaled = value / scale
    if abs(scaled) >= 10**digits:
        return f"{scaled:,.0f} {unit}"
    return f"{scaled:.{digits}g} {unit}"


def dollars(amount: float) -> str:
    """Dollars for people: whole cents below 1,000 usd (four digits of what is less than ten cents),
    four digits above, from a million on in `M usd`.

    >>> dollars(12.5), dollars(1242105.31), dollars(124216.4)
    ('12.50 usd', '1.242 M usd', '124,200 usd')
    """
    if amount < 999.995:
        return f"{amount:.4g} usd" if 0 < amount < 0.1 else f"{amount:,.2f} usd"
    value, unit = (amount / 1e6, "M usd") if amount >= 999_950 else (amount, "usd")
    return f"{float(f'{value:.4g}'):,.10g} {unit}"


def exact(value: float, dimension: str) -> str | float:
    """`value` as text that `parse` reads back to the same float (scenarios write themselves so)."""
    return value if dimension == "1" else f"{value!r} {dimension}"


@dataclass(frozen=True)
class Unit(Mark):
    """Marks a float field as a quantity: text with this unit in files, SI float inside.

    `low` and `high` are inclusive; with `above` the low end itself is excluded.
    `example` is shown in place of the dimension's own.
    """

    dimension: str
    low: float = 0.0
    high: float = 1e30
    above: bool = False
    example: str = ""

    @property
    def shown(self) -> str:
        """What is written as an example."""
        if self.dimension == "1" and self.high > 1.0 and not self.example:
            return f"{max(self.low, 1.5):g}"
        return self.example or _EXAMPLES[self.dimension]

    def take(self, value: Any, file: bool) -> float:
        """The checked SI float of a text or (from Python only) a number; ValueError otherwise."""
        bare = isinstance(value, (int, float)) and not isinstance(value, bool)
        if bare and (self.dimension == "1" or not file):
            number = _float(value)
        elif bare:
            raise ValueError(f"{value!r} has no unit; {_write(self.dimension, self.shown)}")
        elif isinstance(value, str):
            number = parse(value, self.dimension, self.shown)
        else:
            raise ValueError(f"{_short(value)} is not a quantity; write {self.shown!r}")
        return self.check(number, value)

    def bare(self, text: str, written: str | None = None) -> float:
        """The checked SI float of a number in a data file that says elsewhere which unit it is
        `written` in (None: that of the SI)."""
        scale = Decimal(1) if written is None else _UNITS[self.dimension][written]
        with localcontext() as context:
            context.prec = 40
            value = float(decimal(text) * scale)
        unit = "" if self.dimension == "1" else f" {written or self.dimension}"
        return self.check(value, text + unit)

    def check(self, number: float, shown: Any) -> float:
        if not -math.inf < number < math.inf:
            raise ValueError(f"{shown!r} is not finite")
        if 0 < abs(number) < LEAST:
            raise ValueError(f"{_short(shown)} is nearer to 0 than {LEAST:g}, too near to be meant")
        if number < self.low or number > self.high or (self.above and number == self.low):
            raise ValueError(f"{_short(shown)} is not in {self.interval()}")
        return number + 0.0  # -0.0 becomes 0.0

    def interval(self) -> str:
        low = f"{self.low:g} (excluded)" if self.above else f"{self.low:g}"
        return f"{low} … {self.high:g}" + ("" if self.dimension == "1" else f" {self.dimension}")

    def json_schema(self) -> dict[str, Any]:
        if self.dimension == "1":
            shown = [self.shown, parse(self.shown, "1")]
            return {"type": ["number", "string"], "examples": shown}
        return {"type": "string", "examples": [self.shown]}


def _float(value: int | float) -> float:
    """`value` as a plain float, also NumPy's; a number of many points stays one."""
    try:
        number = value + 0.0
    except OverflowError:
        raise ValueError("number out of range") from None
    own: float = number.item() if hasattr(number, "item") else number  # only NumPy's have it
    return own


def _short(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "nothing" if value is None else str(value).lower()
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


Seconds = Annotated[float, Unit("s", high=1e9)]
Bytes = Annotated[float, Unit("B", high=1e18)]
BytesPerSecond = Annotated[float, Unit("B/s", high=1e18, above=True)]
NoBytesPerSecond = Annotated[float, Unit("B/s", high=1e18)]  # 0: there is no such link
FlopPerSecond = Annotated[float, Unit("FLOP/s", high=1e24, above=True)]
Flop = Annotated[float, Unit("FLOP", high=1e27)]
Watts = Annotated[float, Unit("W", high=1e9)]
Fraction = Annotated[float, Unit("1", high=1.0)]
PositiveFraction = Annotated[float, Unit("1", high=1.0, above=True)]
Factor = Annotated[float, Unit("1", low=0.0, high=1e6, above=True)]
#: a duration that somebody measured: clocks tell nanoseconds at best
MEASURED = Unit("s", low=1e-9, high=1e9)
