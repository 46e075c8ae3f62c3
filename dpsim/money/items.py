"""What running costs: line items in exact decimals, from prices and what a job uses.

Every line item is so much money for each hour in which the job runs; what a step, a training run or
a year costs is that times its hours.  Items are linear in each price and add up exactly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

from dpsim.core.record import Flag, Refused, Text, record
from dpsim.core.units import Bytes, PositiveFraction, Unit, Watts, show
from dpsim.money.currency import Money, Priced, decimal, exactly, rounded

#: hours of a year of 365 days, and of a month, a twelfth of it
YEAR = Decimal(8760)
MONTH = YEAR / 12
HOUR = Decimal(3600)

Years = Annotated[float, Unit("1", low=0.0, high=100.0, above=True)]
Hourly = Annotated[Money, Priced("h")]
Outright = Annotated[Money, Priced("")]


@record
class Purchase:
    """Bought, and written off over the hours in which it computes.

    per_node      price of a whole node
    per_device    price of a device with its share of everything else
    years         over which it is written off
    utilisation   share of those years' hours in which it computes
    """

    per_node: Outright | None = None
    per_device: Outright | None = None
    years: Years
    utilisation: PositiveFraction = 1.0

    def __post_init__(self) -> None:
        if (self.per_node is None) == (self.per_device is None):
            raise ValueError("needs either per_node or per_device")


@record
class NetworkPrice:
    """What the network between nodes costs beside them.

    per_nic        price of one NIC with its cable, bought
    per_port       price of one switch port, bought; uplinks count as ports of a NIC's speed
    per_node_hour  rent, for each node and hour
    years          over which what is bought is written off; left out: as `purchase`
    """

    per_nic: Outright | None = None
    per_port: Outright | None = None
    per_node_hour: Hourly | None = None
    years: Years | None = None

    def __post_init__(self) -> None:
        if not (self.per_nic or self.per_port or self.per_node_hour):
            raise ValueError("needs per_nic, per_port or per_node_hour")


@record
class StoragePrice:
    """What storage costs while the job runs.

    per_hour       all of it, for each hour
    per_node_hour  for each node and hour
    per_tb_month   for each terabyte (1e12 bytes) of `size` and month of 730 hours
    size           how much is rented by the month
    """

    per_hour: Hourly | None = None
    per_node_hour: Hourly | None = None
    per_tb_month: Outright | None = None
    size: Bytes | None = None

    def __post_init__(self) -> None:
        if not (self.per_hour or self.per_node_hour or self.per_tb_month):
            raise ValueError("needs per_hour, per_node_hour or per_tb_month")
        if (self.per_tb_month is None) != (self.size is None):
            raise ValueError("per_tb_month needs a size, and a size needs per_tb_month")


@record
class Price:
    """What the devices cost, rented or bought, and what comes beside them.

    per_device_hour  rent of one device for one hour
    per_node_hour    rent of one node for one hour; a node that is partly used is paid in full
    file             a price list (CSV) below the scenario's folder, of which `row` is taken
    row              name of the instance in the price list
    region           its region, where the list has several
    spot             take the price of spot instances
    purchase         bought instead of rented
    network          cost of the network, beside the devices
    storage          cost of storage, beside the devices
    rates            dollars for one unit of another currency: `{eur: 1.08 usd}`
    as_of            date of the prices, such as 2026-01-31; a price list needs one
    source           where the prices are from; a price list needs one
    """

    per_device_hour: Hourly | None = None
    per_node_hour: Hourly | None = None
    file: Text | None = None
    row: Text | None = None
    region: Text | None = None
    spot: Flag = False
    purchase: Purchase | None = None
    network: NetworkPrice | None = None
    storage: StoragePrice | None = None
    rates: dict[Text, Outright] | None = None
    as_of: Text | None = None
    source: Text | None = None

    def __post_init__(self) -> None:
        kinds = ("per_device_hour", "per_node_hour", "file", "purchase")
        given = [kind for kind in kinds if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(f"needs exactly one of {', '.join(kinds)}")
        if (self.row is None) != (self.file is None):
            raise Refused("file and row belong together", ("row" if self.file else "file",))
        if self.file is None and (self.region is not None or self.spot):
            raise ValueError("region and spot belong to a price list; give file and row")
        if self.as_of is not None:
            _check_date(self.as_of)
        network = self.network
        bought = network is not None and (network.per_nic or network.per_port)
        if network is not None and bought and not (network.years or self.purchase):
            raise Refused("is missing: over how many years?", ("network", "years"))
        for currency, rate in (self.rates or {}).items():
            if rate.currency != "usd":
                raise Refused(f"{str(rate)!r}: rates are in usd", ("rates", currency))
        _check_currencies(self, self.rates)


@record
class Energy:
    """What electricity is drawn and what it costs.

    price         of electricity; left out: energy is counted and not charged
    pue           power usage effectiveness: the site's energy over that of its computers
    device_power  of a device that computes; left out: the device's board power
    idle_power    of a device that waits; left out: the device's own
    host_power    of a node without its devices; left out: the machine's own
    rates         dollars for one unit of another currency: `{eur: 1.08 usd}`
    """

    price: Annotated[Money, Priced("kWh")] | None = None
    pue: Annotated[float, Unit("1", low=1.0, high=10.0)] = 1.0
    device_power: Watts | None = None
    idle_power: Watts | None = None
    host_power: Watts | None = None
    rates: dict[Text, Outright] | None = None

    def __post_init__(self) -> None:
        _check_currencies(self, self.rates)


def _check_date(text: str) -> None:
    try:
        date.fromisoformat(text)
    except ValueError:
        raise Refused(
            f"{text[:40]!r} is no date; write for example 2026-01-31", ("as_of",)
        ) from None


def _amounts(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Money]]:
    """All amounts of money in a record, with where they are; rates apart."""
    for field in dataclasses.fields(value):
        found = getattr(value, field.name)
        if isinstance(found, Money):
            yield (*path, field.name), found
        elif dataclasses.is_dataclass(found):
            yield from _amounts(found, (*path, field.name))


def _check_currencies(value: Any, rates: dict[str, Money] | None) -> None:
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


# -- what a job uses ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quote:
    """One line of a price list: an instance of `devices` devices for so many dollars an hour."""

    name: str
    devices: int
    usd_per_hour: Decimal
    device: str = ""
    region: str = ""
    as_of: str = ""
    source: str = ""


@dataclass(frozen=True)
class Usage:
    """What a job uses while it runs.

    devices  ranks; `nodes` is None where nothing says how many ranks a node has
    nics     of all nodes; `ports` of all switches
    busy     share of the time in which the devices compute
    busy_watts, idle_watts  of a device that computes, and of one that waits [W]; `host_watts` of
             a node without its devices [W]; None where unknown
    """

    devices: int
    nodes: int | None = None
    nics: int = 0
    ports: int = 0
    busy: float = 1.0
    busy_watts: float | None = None
    idle_watts: float | None = None
    host_watts: float | None = None


@dataclass(frozen=True)
class Power:
    """Mean electric power while a job runs [W]: of all devices, of the hosts, and of cooling and
    losses, which the PUE adds."""

    devices: Decimal
    hosts: Decimal
    overhead: Decimal

    @property
    def total(self) -> Decimal:
        return self.devices + self.hosts + self.overhead

    def kwh(self, seconds: float) -> Decimal:
        """Energy of so many seconds [kWh]."""
        return _kwh(self.total, seconds)


@exactly
def _kwh(watts: Decimal, seconds: float) -> Decimal:
    return watts * decimal(seconds) / HOUR / 1000


@exactly
def power(energy: Energy, usage: Usage) -> Power:
    """Mean power of a job: devices draw their busy power while they compute, else their idle one.

    Refused, by name, where a power is not known: none is taken to be 0.
    """
    if usage.nodes is None:
        raise Refused("needs a machine: nothing else says how many nodes there are", ("energy",))
    known = {"device_power": usage.busy_watts, "idle_power": usage.idle_watts}
    known["host_power"] = usage.host_watts
    unknown = [name for name, watts in known.items() if watts is None]
    if unknown:
        names = " and ".join(f"energy.{name}" for name in unknown)
        raise Refused(f"is not known of this machine; give {names}", ("energy", unknown[0]))
    busy, idle, host = (decimal(watts) for watts in known.values() if watts is not None)
    share = decimal(usage.busy)
    devices = usage.devices * (busy * share + idle * (1 - share))
    hosts = usage.nodes * host
    return Power(devices, hosts, (devices + hosts) * (decimal(energy.pue) - 1))


# -- line items -----------------------------------------------------------------------------------

Name = Literal["devices", "network", "storage", "device energy", "host energy", "cooling"]


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
    if storage.per_tb_month is not None and storage.size is not None:
        terabytes = decimal(storage.size) / Decimal(10) ** 12
        total += terabytes * usd(storage.per_tb_month, price.rates) / MONTH
        texts.append(f"{show(storage.size, 'B')} x {storage.per_tb_month} per TB and month")
    yield LineItem("storage", total, "; ".join(texts))


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


@exactly
def device_hours(devices: int, seconds: float) -> Decimal:
    """Hours of all devices together."""
    return devices * decimal(seconds) / HOUR
