"""What a plan varies: a numeric key of the scenario, with its unit, its limits and its text.

>>> from dpsim.describe.scenario import read
>>> knob = knob_of(read("quickstart").scenario, "cluster.inter_node_bandwidth", "--vary")
>>> knob.dimension, knob.text(12.5e9), knob.value("25 Gbit/s")
('B/s', '100 Gbit/s', 3125000000.0)
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    SupportsFloat,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from dpsim.core import unknown
from dpsim.core.fields import alias_of
from dpsim.core.marks import Mark
from dpsim.core.overrides import INSTEAD, parts_of
from dpsim.core.record import Check, Refused
from dpsim.core.units import Unit, parse
from dpsim.describe.scenario import Scenario

#: digits of a value that is tried, and of one that is said
TRIED, SAID = 6, 4
#: where a search goes whose key has no value now and no narrow limits of its own: from 80 Mbit/s
#: to 80 Tbit/s; from a nanosecond to a quarter of an hour; and so on
_SPANS = {
    "s": (1e-9, 1e3),
    "B": (1e3, 1e15),
    "B/s": (1e7, 1e13),
    "FLOP": (1e6, 1e18),
    "FLOP/s": (1e9, 1e18),
    "W": (1.0, 1e6),
    "1": (1e-3, 1e3),
    "1/s": (1e-9, 1e3),
    "usd": (1e-2, 1e9),
    "usd/h": (1e-4, 1e5),
    "usd/kWh": (1e-4, 1e2),
}
#: the same of keys with limits of their own, whatever the machine has: a network takes longer than
#: 0.1 us, which a switch alone does, and no longer than light in 20,000 km of fibre, half way round
#: the Earth
SPAN_OF = {"cluster.inter_node_latency": (1e-7, 0.1)}
#: how far around its present value a key is searched
_AROUND = 1000.0
#: whole numbers are searched up to this, or up to 64 times the present one
_WHOLE = 1024
_UNITS = {"s": "s", "B": "GB", "B/s": "GB/s", "FLOP": "GFLOP", "FLOP/s": "TFLOP/s", "W": "W",
          "1/s": "%/d"}  # fmt: skip
_QUANTITY = re.compile(r"\s*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*(.*?)\s*")


@dataclass(frozen=True)
class Knob:
    """A key of the scenario that holds a number.

    dimension   "s", "B/s", …, "1" without one; "usd", "usd/h", "usd/kWh" for money
    whole       whether it is a whole number; then a multiple of `step`
    low, high   inclusive limits of its schema; `above`: the low one itself is excluded
    now         its present value; None where it is not given
    unit        in which it is said
    money       what reads an amount of money, where it is one
    """

    key: str
    dimension: str
    whole: bool
    low: float
    high: float
    above: bool
    now: float | None
    unit: str
    step: int = 1
    money: Mark | None = None

    @property
    def counts(self) -> bool:
        """Whether it says how large the cluster is."""
        return self.key in INSTEAD

    def value(self, text: Any) -> float:
        """The number of `text`; ValueError says what would be accepted."""
        number = self._number(text)
        if not self.low <= number <= self.high or (self.above and number == self.low):
            raise ValueError(f"{text} is not in {self.low:g} … {self.high:g}")
        return number

    def _number(self, text: Any) -> float:
        if self.whole:
            found = re.fullmatch(r"\s*(\d{1,15})\s*", str(text))
            if found is None:
                raise ValueError(f"{str(text)[:60]!r} is not a whole number")
            return float(found[1])
        if self.money is not None:
            return float(self.money.take(text, file=True).number)
        return parse(str(text), self.dimension)

    def text(self, value: float, digits: int = SAID) -> str:
        """`value` to `digits` digits, in the knob's unit; whole numbers as they are."""
        if self.whole:
            return str(round(value))
        return self._written(Decimal(f"{value / self.scale:.{digits}g}"))

    def rounded(self, value: float, up: bool) -> str:
        """`value` in SAID digits, rounded `up` or down; whole numbers as they are."""
        if self.whole:
            return str(round(value))
        exact = Decimal(repr(value / self.scale))
        if not exact:
            return self._written(exact)
        place = Decimal(1).scaleb(exact.adjusted() - SAID + 1)
        return self._written(exact.quantize(place, ROUND_CEILING if up else ROUND_FLOOR))

    def _written(self, number: Decimal) -> str:
        plain = f"{number:f}"
        plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
        return f"{plain} {self.unit}".rstrip()

    @property
    def scale(self) -> float:
        """One `unit` in SI."""
        if self.whole or not self.unit or self.money:
            return 1.0
        return parse(f"1 {self.unit}", self.dimension)

    def setting(self, text: str) -> Any:
        """What a scenario's file would hold for `text`."""
        if self.whole or (self.dimension == "1" and re.fullmatch(r"\d{1,15}", text)):
            return int(text)
        return float(text) if self.dimension == "1" and "%" not in text else text

    def span(self) -> tuple[float, float]:
        """Where to search if nobody says: within the schema's limits, around the present value."""
        if self.whole:
            low = max(self.low, float(self.step))
            return low, float(min(self.high, max(_WHOLE * self.step, 64 * (self.now or 0.0))))
        low, high = SPAN_OF.get(self.key) or _SPANS[self.dimension]
        if self.now and self.key in SPAN_OF:
            low, high = min(self.now, low), max(self.now, high)
        elif self.now:
            low, high = self.now / _AROUND, self.now * _AROUND
        return max(self.low, low), min(self.high, high)


def knob_of(scenario: Scenario, key: str, shown: str) -> Knob:
    """The knob under `key`; Refused, with the nearest key named, where there is no such number."""
    hint, now, step = _find(scenario, key, shown)
    mark = next(_marks(hint), None)
    if getattr(now, "factor", None) is not None:
        raise Refused(f"{shown} {key}: varies at random; name its number, such as {key}.mean")
    if mark is None:
        ways = ", ".join(map(str, choices(hint)))
        known = f"; it is one of {ways}, which --tune {key} compares" if ways else ""
        raise Refused(f"{shown} {key}: is no number{known}")
    if isinstance(mark, Check):
        number = float(now) if isinstance(now, int) else None
        return Knob(key, "1", True, mark.low, mark.high, False, number, "", step)
    if not isinstance(mark, Unit):
        kind: str = mark.dimension  # type: ignore[attr-defined]
        number = float(now.number) if now is not None and now.currency == "usd" else None
        return Knob(key, kind, False, 0.0, 1e12, False, number, kind, money=mark)
    given = getattr(now, "sample", None) is None  # else a time that is assumed
    plain = given and isinstance(now, SupportsFloat) and not isinstance(now, bool)
    number = float(now) if plain else None
    limits = (mark.low, mark.high, mark.above)
    return Knob(key, mark.dimension, False, *limits, number, _unit(key, mark.dimension))


def _unit(key: str, dimension: str) -> str:
    """In which unit people say it: bandwidths of networks in Gbit/s, their latencies in us."""
    if key.startswith("cluster.") and dimension in ("B/s", "s"):
        return "Gbit/s" if dimension == "B/s" else "us"
    return _UNITS.get(dimension, "")


def with_unit(knob: Knob, unit: str) -> Knob:
    """`knob`, said in `unit`."""
    return dataclasses.replace(knob, unit=unit)


def unit_in(text: str) -> str:
    """The unit of a quantity such as "25 Gbit/s"; nothing where there is none."""
    found = _QUANTITY.fullmatch(text)
    return found[2] if found else ""


def choices(hint: Any) -> tuple[Any, ...]:
    """The values of a key that takes one of a few: names, or true and false."""
    found: list[Any] = []
    for part, marks in _parts(hint):
        found += [way for mark in marks if isinstance(mark, Mark) for way in mark.ways]
        if part is bool:
            found += [False, True]
        elif get_origin(part) is Literal:
            found += [value for value in get_args(part) if value is not None]
    return tuple(dict.fromkeys(found))


def ways_of(scenario: Scenario, key: str, shown: str) -> tuple[tuple[Any, ...], Any]:
    """The few values that `key` takes (none where it is a number), and its present one."""
    hint, now, _ = _find(scenario, key, shown)
    return (() if next(_marks(hint), None) is not None else choices(hint)), now


def _find(scenario: Scenario, key: str, shown: str) -> tuple[Any, Any, int]:
    """The annotation and the value under the path `key`, and the step of whole numbers."""
    here: Any = scenario
    hint: Any = Scenario
    try:
        parts = [str(part) for part in parts_of(key)]
    except Refused as error:
        raise Refused(f"{shown} {key}: {error}") from None
    for place, part in enumerate(parts):
        if isinstance(here, tuple) and part.isdigit() and int(part) < len(here):
            here = here[int(part)]
            continue
        if here is None:
            above = ".".join(parts[:place])
            raise Refused(f"{shown} {key}: the scenario has no {above}; give it first, with --set")
        if not dataclasses.is_dataclass(here):
            named = isinstance(here, str)
            above = ".".join(parts[:place])
            own = f"{above} is a name, {here[:60]!r}; give its numbers first, with --set"
            other = "leads into something that has no such key"
            raise Refused(f"{shown} {key}: {own if named else other}")
        names = dict(_keys(here))
        if part in ("kind", "name", "backend") and part not in names:
            raise Refused(f"{shown} {key}: is no number; it says which {parts[place - 1]} it is")
        if part not in names:
            said = unknown.sentence(part, sorted(names))
            raise Refused(f"{shown} {key}: {said}")
        hint = get_type_hints(type(here), include_extras=True)[names[part]]
        here = getattr(here, names[part])
    if key == "batch.accumulation" and scenario.batch.follows:
        raise Refused(f"{shown} {key}: follows from batch.global and batch.per_device; vary these")
    step = scenario.batch.accumulation if key == "batch.global" else 1
    return hint, here, step


def _keys(value: Any) -> Iterator[tuple[str, str]]:
    """(key in files, name of the field) of a record."""
    for field in dataclasses.fields(value):
        yield alias_of(type(value), field.name), field.name


def _marks(hint: Any) -> Iterator[Mark]:
    """What says that an annotation is a number: not inside lists and mappings."""
    for _, marks in _parts(hint):
        for mark in marks:
            mark = getattr(mark, "unit", mark)  # a number, or a distribution of such numbers
            if isinstance(mark, Check) or hasattr(mark, "dimension"):
                yield mark


def _parts(hint: Any, outer: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """The types that an annotation is made of, unions taken apart, with the marks of each."""
    if get_origin(hint) is Annotated:
        inner, *marks = get_args(hint)
        yield from _parts(inner, (*outer, *marks))
    elif get_origin(hint) in (Union, UnionType):
        for part in get_args(hint):
            yield from _parts(part, outer)
    else:
        yield hint, outer


def sensible(knob: Knob) -> list[float]:
    """Values to try for a knob where nobody says which.

    Bucket caps from 1 to 400 (MiB), counts by doubling, other numbers from an eighth of the present
    value to eight times.  Empty where nothing is known."""
    last = knob.key.rpartition(".")[2]
    if last in ("bucket_cap_mb", "bucket_size_mb"):
        found = [1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 200.0, 400.0]
    elif last == "accumulation":
        found = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    elif knob.whole:
        now = knob.now or 1.0
        found = [now * 2.0**k for k in range(-3, 4)]
        found = [value for value in found if value == int(value)]
    elif knob.now:
        found = [knob.now * 2.0**k for k in range(-3, 4)]
    else:
        found = []
    return [v for v in found if knob.low <= v <= knob.high and math.isfinite(v)]
