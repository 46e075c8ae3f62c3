"""Prices as a scenario gives them: of devices, network, storage and electricity."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import date
from typing import Annotated

from dpsim.core import units
from dpsim.core.record import Flag, Refused, Text, record
from dpsim.money.currency import Money, Priced, check_currencies

Years = Annotated[float, units.Unit("1", low=0.0, high=100.0, above=True)]
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
    utilisation: units.PositiveFraction = 1.0

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

    per_hour           all of it, for each hour
    per_node_hour      for each node and hour
    per_tb_month       for each terabyte (1e12 bytes) of `size` and month of 730 hours
    size               how much is rented by the month; left out: the samples that `input` reads
    per_tb_read        for each terabyte that loaders read, as `input` says
    per_million_reads  for each million requests of theirs
    """

    per_hour: Hourly | None = None
    per_node_hour: Hourly | None = None
    per_tb_month: Outright | None = None
    size: units.Bytes | None = None
    per_tb_read: Outright | None = None
    per_million_reads: Outright | None = None

    def __post_init__(self) -> None:
        rents = (self.per_hour, self.per_node_hour, self.per_tb_month)
        if not any((*rents, self.per_tb_read, self.per_million_reads)):
            raise ValueError(
                "needs per_hour, per_node_hour, per_tb_month, per_tb_read or per_million_reads"
            )
        if self.per_tb_month is None and self.size is not None:
            raise ValueError("a size needs per_tb_month")


@record
class MachinePrice:
    """What the devices of one machine cost.

    per_device_hour  rent of one device for one hour
    per_node_hour    rent of one node for one hour; a node that is partly used is paid in full
    row              name of the instance in the price's `file`
    purchase         bought instead of rented
    """

    per_device_hour: Hourly | None = None
    per_node_hour: Hourly | None = None
    row: Text | None = None
    purchase: Purchase | None = None

    def __post_init__(self) -> None:
        _one_of(self, ("per_device_hour", "per_node_hour", "row", "purchase"))


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
    machines         instead, what the devices of each machine cost that `cluster.machine` may be
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
    machines: dict[Text, MachinePrice] | None = None
    network: NetworkPrice | None = None
    storage: StoragePrice | None = None
    rates: dict[Text, Outright] | None = None
    as_of: Text | None = None
    source: Text | None = None

    def __post_init__(self) -> None:
        self._check_devices()
        if self.file is None and (self.region is not None or self.spot):
            raise ValueError("region and spot belong to a price list; give file and row")
        if self.as_of is not None:
            check_date(self.as_of)
        network = self.network
        bought = network is not None and (network.per_nic or network.per_port)
        purchases = [own.purchase for own in (self.machines or {}).values()] or [self.purchase]
        if network is not None and bought and not (network.years or all(purchases)):
            raise Refused("is missing: over how many years?", ("network", "years"))
        for currency, rate in (self.rates or {}).items():
            if rate.currency != "usd":
                raise Refused(f"{str(rate)!r}: rates are in usd", ("rates", currency))
        check_currencies(self, self.rates)
        for name, own in (self.machines or {}).items():
            try:
                check_currencies(own, self.rates)
            except Refused as error:
                raise Refused(error.message, ("machines", name, *error.path)) from None

    def _check_devices(self) -> None:
        """Refused where not exactly one thing says what devices cost, of all or of each machine."""
        if self.machines is None:
            _one_of(self, ("per_device_hour", "per_node_hour", "file", "purchase", "machines"))
            if (self.row is None) != (self.file is None):
                raise Refused("file and row belong together", ("row" if self.file else "file",))
            return
        others = ("per_device_hour", "per_node_hour", "row", "purchase")
        for other in (key for key in others if getattr(self, key) is not None):
            raise Refused("machines has what each costs; leave this out", (other,))
        if not self.machines:
            raise Refused("has the price of no machine", ("machines",))
        listed = any(own.row is not None for own in self.machines.values())
        if listed != (self.file is not None):
            said = "is taken of a price list: give file" if listed else "needs a row of a machine"
            raise Refused(said, ("machines" if listed else "file",))

    def on(self, machine: str | None) -> Price:
        """What is paid on `machine`.  Raises Refused where machines have prices and it has none."""
        if self.machines is None:
            return self
        own = self.machines.get(machine or "")
        if own is None:
            there = ", ".join(self.machines)
            wanted = machine or "devices without a machine"
            raise Refused(f"has no price of {wanted}; it has {there}", ("machines",))
        given = {key: value for key, value in vars(own).items() if value is not None}
        if own.row is None:
            given |= {"file": None, "region": None, "spot": False}
        return dataclasses.replace(self, machines=None, **given)


def _one_of(value: Price | MachinePrice, kinds: Sequence[str]) -> None:
    """ValueError where not exactly one of `kinds` is given."""
    if sum(getattr(value, kind) is not None for kind in kinds) != 1:
        raise ValueError(f"needs exactly one of {', '.join(kinds)}")


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
    pue: Annotated[float, units.Unit("1", low=1.0, high=10.0)] = 1.0
    device_power: units.Watts | None = None
    idle_power: units.Watts | None = None
    host_power: units.Watts | None = None
    rates: dict[Text, Outright] | None = None

    def __post_init__(self) -> None:
        check_currencies(self, self.rates)


def check_date(text: str, where: str = "") -> None:
    """Refused, at the key as_of, where `text` is no date; `where` it stands is said first."""
    try:
        date.fromisoformat(text)
    except ValueError:
        wrong = f"{text[:40]!r} is no date; write for example 2026-01-31"
        raise Refused(f"{where}: {wrong}" if where else wrong, ("as_of",)) from None
