"""What a job uses while it runs: devices, nodes, ports, and electric power."""

from __future__ import annotations

from decimal import Decimal

from dpsim.core.lean import dataclass
from dpsim.core.record import Refused
from dpsim.money.currency import decimal, exactly
from dpsim.money.price import Energy

#: seconds of an hour
HOUR = Decimal(3600)


@dataclass(frozen=True)
class Usage:
    """What a job uses while it runs.

    devices  ranks; `nodes` is None where nothing says how many ranks a node has
    nics     of all nodes; `ports` of all switches
    busy     share of the time in which the devices compute
    busy_watts, idle_watts  of a device that computes, and of one that waits [W]; `host_watts` of
             a node without its devices [W]; None where unknown
    stored, read, reads  samples that loaders read from a storage [B], what they read of it in a
             second [B/s], and in how many requests [1/s]; 0: nothing is known of that
    traffic  dollars an hour for what crosses links between sites, and how they come about
    """

    devices: int
    nodes: int | None = None
    nics: int = 0
    ports: int = 0
    busy: float = 1.0
    busy_watts: float | None = None
    idle_watts: float | None = None
    host_watts: float | None = None
    stored: float = 0.0
    read: float = 0.0
    reads: float = 0.0
    traffic: Decimal = Decimal(0)
    traffic_basis: str = ""


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
    if (known["idle_power"] or 0.0) > (known["device_power"] or 0.0):
        key = "idle_power" if energy.idle_power is not None else "device_power"
        watts = f"{known['idle_power']:g} W idle, {known['device_power']:g} W at work"
        raise Refused(f"a device draws no more with nothing to do: {watts}", ("energy", key))
    busy, idle, host = (decimal(watts) for watts in known.values() if watts is not None)
    share = decimal(usage.busy)
    devices = usage.devices * (busy * share + idle * (1 - share))
    hosts = usage.nodes * host
    return Power(devices, hosts, (devices + hosts) * (decimal(energy.pue) - 1))


@exactly
def device_hours(devices: int, seconds: float) -> Decimal:
    """Hours of all devices together."""
    return devices * decimal(seconds) / HOUR
