"""Money: text with a currency at the edge, exact decimals inside.

An amount stays the text that was given, so that it is written back as it was, and its number is
that text's, to the last digit.

>>> price = Priced("h").take("2.10 usd/h", file=True)
>>> price, price.number, price.currency
('2.10 usd/h', Decimal('2.10'), 'usd')
>>> rounded([Decimal("0.333"), Decimal("0.333"), Decimal("0.334")])
[Decimal('0.33'), Decimal('0.33'), Decimal('0.34')]
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from typing import Any, ParamSpec, TypeVar

from dpsim.core.lean import dataclass
from dpsim.core.marks import Mark
from dpsim.core.record import Refused
from dpsim.core.units import not_a_number

#: digits of intermediate results: sums and products of prices and counts are exact
DIGITS = 60
CENT = Decimal("0.01")
#: most that a price may be
MOST = Decimal(10) ** 12
_TEXT = re.compile(
    r"\s*(\d{1,15}(?:\.\d{0,15})?)\s*([A-Za-z]{1,10})\s*(?:/\s*([A-Za-z]{1,4}))?\s*", re.ASCII
)
_KWH = {"Wh": Decimal(1000), "kWh": Decimal(1), "MWh": Decimal("0.001")}

P = ParamSpec("P")
T = TypeVar("T")


def exactly(function: Callable[P, T]) -> Callable[P, T]:
    """Let `function` compute with DIGITS digits."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        with localcontext() as context:
            context.prec = DIGITS
            return function(*args, **kwargs)

    return wrapped


def decimal(value: float) -> Decimal:
    """The decimal that `value` is written as: 0.1 is a tenth."""
    return value if isinstance(value, Decimal) else Decimal(repr(value))


class Money(str):
    """An amount of money, as given: "2.10 usd/h"."""

    __slots__ = ()

    @property
    def number(self) -> Decimal:
        """Its number, per hour, per kWh GB or outright, in `currency`."""
        found = _TEXT.fullmatch(self)
        assert found is not None
        return Decimal(found[1]) * _KWH.get(found[3] or "", Decimal(1))

    @property
    def currency(self) -> str:
        found = _TEXT.fullmatch(self)
        assert found is not None
        return found[2].lower()


@dataclass(frozen=True)
class Priced(Mark):
    """Marks a field as an amount of money: "h" per hour, "kWh" per energy, "GB" per 1e9 bytes, ""
    outright."""

    per: str = ""

    @property
    def dimension(self) -> str:
        """In which it is said: "usd/h", "usd/kWh" or "usd"."""
        return f"usd/{self.per}" if self.per else "usd"

    @property
    def example(self) -> str:
        known = {"h": "2.10 usd/h", "kWh": "0.12 usd/kWh", "GB": "0.02 usd/GB", "": "250000 usd"}
        return known[self.per]

    def take(self, value: Any, file: bool) -> Money:
        """`value` as Money; ValueError says what would be accepted."""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"this is no amount of money; write for example {self.example!r}")
        found = _TEXT.fullmatch(str(value)) if len(str(value)) <= 60 else None
        if found is None:
            wrong = not_a_number(str(value), "an amount with a currency")
            raise ValueError(f"{wrong}; write for example {self.example!r}")
        known = {"h": (None, "h"), "kWh": tuple(_KWH), "GB": ("GB",), "": (None,)}[self.per]
        if found[3] not in known:
            raise ValueError(f"{str(value)!r}: write for example {self.example!r}")
        if Decimal(found[1]) > MOST:
            raise ValueError(f"{str(value)!r} is more than {MOST:,}")
        return Money(value)

    def json_schema(self) -> dict[str, Any]:
        return {"type": "string", "examples": [self.example]}


@exactly
def rounded(amounts: Sequence[Decimal], unit: Decimal = CENT) -> list[Decimal]:
    """`amounts` in whole `unit`s that add up to their rounded sum: what rounding down leaves over
    goes to those that lost most (method of largest remainders)."""
    floors = [(amount // unit) * unit for amount in amounts]
    whole = sum(amounts, Decimal(0)).quantize(unit, ROUND_HALF_EVEN)
    missing = int((whole - sum(floors, Decimal(0))) / unit)
    order = sorted(range(len(amounts)), key=lambda k: (floors[k] - amounts[k], k))
    for k in order[:missing]:
        floors[k] += unit
    return [floor.quantize(unit) for floor in floors]


# -- other currencies than dollars -----------------------------------------------------------------


def _amounts(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Money]]:
    """All amounts of money in a record, with where they are; rates apart."""
    for field in dataclasses.fields(value):
        found = getattr(value, field.name)
        if isinstance(found, Money):
            yield (*path, field.name), found
        elif dataclasses.is_dataclass(found):
            yield from _amounts(found, (*path, field.name))


def check_currencies(value: Any, rates: dict[str, Money] | None) -> None:
    """Refused where `rates` lack the currency of an amount of money in record `value`."""
    for path, amount in _amounts(value):
        if amount.currency != "usd" and amount.currency not in _lower(rates):
            per = amount.rpartition("/")[2] if "/" in amount else ""
            raise Refused(
                f"{str(amount)!r}: write it in usd{'/' if per else ''}{per}, or give "
                f"rates: {{{amount.currency}: 1.00 usd}} with what one {amount.currency} is worth",
                path,
            )


@exactly
def usd(amount: Money, rates: dict[str, Money] | None = None) -> Decimal:
    """`amount` in dollars, by the given rates."""
    if amount.currency == "usd":
        return amount.number
    return amount.number * _lower(rates)[amount.currency].number


def _lower(rates: dict[str, Money] | None) -> dict[str, Money]:
    return {currency.lower(): rate for currency, rate in (rates or {}).items()}
