"""What running costs: line items in exact decimals, from prices and what a job uses.

Every line item is so much money for each hour in which the job runs; what a step, a training run or
a year costs is that times its hours.  Items are linear in each price and add up exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Literal

from dpsim.core import units
from dpsim.core.lean import dataclass
from dpsim.core.record import Refused
from dpsim.money.currency import decimal, exactly, rounded, usd
from dpsim.money.price import Energy, Price
from dpsim.money.price_list import Quote
from dpsim.money.usage import HOUR, Usage, power

#: hours of a year of 365 days, and of a month, a twelfth of it
YEAR = Decimal(8760)
MONTH = YEAR / 12
#: bytes of a terabyte
TERA = Decimal(10) ** 12

Name = Literal["devices", "network", "storage", "device energy", "host energy", "cooling",
               "traffic"]  # fmt: skip


@dataclass(frozen=True)
class LineItem:
    """One line of a bill: dollars for each hour in which the job runs, and how they come about."""

    name: Name
    usd_per_hour: Decimal
    basis: str


@dataclass(frozen=True)
class Bill:
    """Line items of a job.  `hours_a_year` is how long it can run in a year; `quote` the line of
    the price list behind it."""

    items: tuple[LineItem, ...]
    hours_a_year: Decimal = YEAR
    quote: Quote | None = None

    @property
    @exactly
    def usd_per_hour(self) -> Decimal:
        return sum((item.usd_per_hour for item in self.items), Decimal(0))

    @exactly
    def over(self, seconds: float) -> Decimal:
        """Dollars for so many seconds, not rounded."""
        return self.usd_per_hour * decimal(seconds) / HOUR

    @exactly
    def shares(self, seconds: float) -> tuple[Decimal, ...]:
        """Dollars of each item for so many seconds, not rounded; they add up to `over`."""
        return tuple(item.usd_per_hour * decimal(seconds) / HOUR for item in self.items)

    def cents(self, seconds: float) -> list[Decimal]:
        """Dollars of each item for so many seconds in whole cents, which add up to the rounded
        total."""
        return rounded(self.shares(seconds))

    @property
    @exactly
    def usd_per_year(self) -> Decimal:
        """Dollars for a year in which the job runs whenever the machine computes."""
        return self.usd_per_hour * self.hours_a_year


@exactly
def bill(price: Price | None, energy: Energy | None, usage: Usage, quote: Quote | None) -> Bill:
    """The line items of a job; `quote` is the line of the price list, where there is one.

    Raises Refused where a price per node meets a job without nodes, or a power is not known.
    """
    items: list[LineItem] = []
    hours = YEAR
    if price is not None:
        items.append(_devices(price, usage, quote))
        items += [*_network(price, usage), *_storage(price, usage)]
        if price.purchase is not None:
            hours = YEAR * decimal(price.purchase.utilisation)
    items += usage_items(usage)
    if energy is not None and energy.price is not None:
        items += _energy(energy, usage)
    return Bill(tuple(items), hours, quote)


def _nodes(usage: Usage, *path: str) -> int:
    if usage.nodes is None:
        raise Refused("needs a machine: nothing else says how many nodes there are", path)
    return usage.nodes


def _written_off(cost: Decimal, years: float, utilisation: float) -> Decimal:
    """Dollars for each hour of use of what costs so much."""
    return cost / (decimal(years) * YEAR * decimal(utilisation))


def _devices(price: Price, usage: Usage, quote: Quote | None) -> LineItem:
    if quote is not None:
        count, text = _instances(usage, quote)
        return LineItem("devices", count * quote.usd_per_hour, text)
    if price.per_device_hour is not None:
        each = usd(price.per_device_hour, price.rates)
        return LineItem(
            "devices", usage.devices * each, _times(usage.devices, "device", price.per_device_hour)
        )
    if price.per_node_hour is not None:
        nodes = _nodes(usage, "price", "per_node_hour")
        each = usd(price.per_node_hour, price.rates)
        return LineItem("devices", nodes * each, _times(nodes, "node", price.per_node_hour))
    bought = price.purchase
    assert bought is not None
    if bought.per_node is not None:
        count, noun, cost = _nodes(usage, "price", "purchase", "per_node"), "node", bought.per_node
    else:
        assert bought.per_device is not None
        count, noun, cost = usage.devices, "device", bought.per_device
    whole = count * usd(cost, price.rates)
    text = f"{_times(count, noun, cost)} over {_use(bought.years, bought.utilisation)}"
    return LineItem("devices", _written_off(whole, bought.years, bought.utilisation), text)


def _instances(usage: Usage, quote: Quote) -> tuple[int, str]:
    """How many instances of the price list the job needs."""
    count = usage.nodes if usage.nodes is not None else -(-usage.devices // quote.devices)
    return count, _times(count, quote.name, f"{quote.usd_per_hour} usd/h")


def _network(price: Price, usage: Usage) -> Iterator[LineItem]:
    network = price.network
    if network is None:
        return
    years = network.years or (price.purchase.years if price.purchase else 1.0)
    utilisation = price.purchase.utilisation if price.purchase else 1.0
    total, texts = Decimal(0), []
    nodes = _nodes(usage, "price", "network")
    parts = ((network.per_nic, usage.nics, "NIC"), (network.per_port, usage.ports, "switch port"))
    for cost, count, noun in parts:
        if cost is not None:
            total += _written_off(count * usd(cost, price.rates), years, utilisation)
            texts.append(f"{_times(count, noun, cost)} over {_use(years, utilisation)}")
    if network.per_node_hour is not None:
        total += nodes * usd(network.per_node_hour, price.rates)
        texts.append(_times(nodes, "node", network.per_node_hour))
    yield LineItem("network", total, "; ".join(texts))


def _known(value: float, key: str, what: str) -> float:
    """`value`; Refused where `input` says nothing of it."""
    if value:
        return value
    message = f"needs input: {{loader: …, storage: …, sample_bytes: …}}, which says {what}"
    raise Refused(message, ("price", "storage", key))


def _storage(price: Price, usage: Usage) -> Iterator[LineItem]:
    storage = price.storage
    if storage is None:
        return
    total, texts = Decimal(0), []
    if storage.per_hour is not None:
        total += usd(storage.per_hour, price.rates)
        texts.append(str(storage.per_hour))
    if storage.per_node_hour is not None:
        nodes = _nodes(usage, "price", "storage", "per_node_hour")
        total += nodes * usd(storage.per_node_hour, price.rates)
        texts.append(_times(nodes, "node", storage.per_node_hour))
    if storage.per_tb_month is not None:
        size = storage.size or _known(usage.stored, "per_tb_month", "samples, or a size here")
        total += decimal(size) / TERA * usd(storage.per_tb_month, price.rates) / MONTH
        texts.append(f"{units.show(size, 'B')} x {storage.per_tb_month} per TB and month")
    if storage.per_tb_read is not None:
        read = _known(usage.read, "per_tb_read", "what is read")
        total += decimal(read) * HOUR / TERA * usd(storage.per_tb_read, price.rates)
        texts.append(f"{units.show(read, 'B/s')} read x {storage.per_tb_read} per TB")
    if storage.per_million_reads is not None:
        reads = _known(usage.reads, "per_million_reads", "what is read")
        total += decimal(reads) * HOUR / 10**6 * usd(storage.per_million_reads, price.rates)
        texts.append(f"{reads:,.4g} requests/s x {storage.per_million_reads} per million")
    yield LineItem("storage", total, "; ".join(texts))


def usage_items(usage: Usage) -> Iterator[LineItem]:
    """What crosses priced links."""
    if usage.traffic:
        yield LineItem("traffic", usage.traffic, usage.traffic_basis)


def _energy(energy: Energy, usage: Usage) -> list[LineItem]:
    assert energy.price is not None
    drawn = power(energy, usage)
    each = usd(energy.price, energy.rates)
    names: tuple[tuple[Name, Decimal], ...] = (
        ("device energy", drawn.devices), ("host energy", drawn.hosts), ("cooling", drawn.overhead),
    )  # fmt: skip
    return [
        LineItem(name, watts / 1000 * each, f"{float(watts) / 1000:,.4g} kW x {energy.price}")
        for name, watts in names
    ]


def _times(count: int, noun: str, price: str) -> str:
    return f"{count:,} {noun}{'s' if count != 1 and noun[-1].isalpha() else ''} x {price}"


def _use(years: float, utilisation: float) -> str:
    return f"{years:g} years at {utilisation * 100:g} % use"
