"""Site: where a point runs, which machine and how much of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

from dpsim.core.lean import dataclass
from dpsim.core.places import below
from dpsim.core.record import Refused
from dpsim.core.yamlfile import FileRefused
from dpsim.describe.sections import Cluster
from dpsim.describe.sites import SiteEntry, SiteLink
from dpsim.machines.devices import Device, Link
from dpsim.machines.machine import (
    Machine,
    gbits,
    load_device,
    load_machine,
    machine_names,
    node_in_words,
)
from dpsim.machines.topology import Topology
from dpsim.machines.wan import Wan

#: ranks of a machine: as many as `cluster.ranks` may be.  Plans of collectives over all take some
#: 3.5 kB a node and 20 us of a processor (nvls_tree over 131,072 nodes of DGX H100: 0.45 GB
#: and 2.4 s beyond imports; by resource.getrusage and time.process_time)
MOST_RANKS = 1_048_576
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Site:
    """The machine of a cluster and the nodes of it that are used; `seed` draws which flows
    collide.  Of several `places`, which `links` join, the machine is the first one's."""

    cluster: Cluster
    seed: int
    base: Path
    places: tuple[SiteEntry, ...] | None = None
    links: tuple[SiteLink, ...] | None = None

    @cached_property
    def parts(self) -> tuple[Site, ...]:
        """A site for each of the places; none where there is one cluster."""
        return tuple(Site(place, self.seed, self.base) for place in self.places or ())

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Ranks of each of them.  Refused where their nodes are not alike."""
        gpus = [part.gpus for part in self.parts]
        if len(set(gpus)) > 1:
            said = f"nodes of {' and '.join(map(str, gpus))} devices; accepted: of one number"
            raise Refused(said, ("sites",))
        return tuple(part.ranks for part in self.parts)

    @cached_property
    def wan(self) -> Wan:
        """What joins the places."""
        trunks = {link.between: link.trunk for link in self.links or ()}
        return Wan([place.name for place in self.places or ()], trunks)

    @cached_property
    def devices(self) -> Mapping[str, str | Device] | None:
        """Ranks with another device than the machine's own, or its name."""
        if not self.parts or self.machine is None:
            return self.cluster.devices
        found: dict[str, str | Device] = {}
        for start, part in zip(accumulate((0, *self.sizes)), self.parts, strict=False):
            if part.device is not None and part.device != self.device:
                found[f"{start}-{start + part.ranks - 1}"] = part.device
        return found or None

    @cached_property
    def others(self) -> tuple[Device, ...]:
        """Those devices."""
        return tuple(device_of(self.base, each) for each in (self.devices or {}).values())

    @cached_property
    def machine(self) -> Machine | None:
        """With the device that the scenario puts into it; None where ranks alone are given."""
        name, device = self.cluster.machine, self.cluster.device
        if name is None:
            return None
        machine = named(self.base, "machine", name, load_machine)
        if device is None:
            return machine
        other = named(self.base, "device", device, load_device)
        return machine.holding(other, self.cluster.gpus_per_node or machine.gpus_per_node)

    @property
    def device(self) -> Device | None:
        """The machine's own device."""
        return self.machine.device if self.machine else None

    @cached_property
    def topology(self) -> Topology | None:
        """Links and routes; Refused where there are more than MOST_RANKS ranks."""
        if self.machine is None:
            return None
        if self.parts:
            return self.parts[0].topology
        ranks, nodes = self.asked
        if ranks > MOST_RANKS:
            per_node = self.cluster.gpus_per_node or self.machine.gpus_per_node
            most = f"{MOST_RANKS:,} ({MOST_RANKS // per_node:,} nodes of {per_node})"
            raise Refused(f"{ranks:,} ranks; at most {most} are accepted", ("cluster",))
        return self._built(nodes, self.cluster.ranks, self.cluster.gpus_per_node)

    @property
    def in_words(self) -> str:
        """Devices of a node, whose node it is, and its network; "" without a machine."""
        if self.parts:
            counted = Counter(filter(None, (part.in_words for part in self.parts)))
            said = (f"{n} sites of {text}" if n > 1 else text for text, n in counted.items())
            return " and ".join(said)
        topology, machine = self.topology, self.machine
        if topology is None or machine is None:
            return ""
        others = sorted({device.name for device in self.others} - {machine.device.name})
        beside = f" (some of them {' and '.join(others)})" if others else ""
        node = topology.gpus, f"{machine.device.name}{beside}", machine.name
        if (port := topology.port) is None:
            return node_in_words(*node)
        return node_in_words(*node, topology.nics, gbits(port), port.kind)

    @property
    def asked(self) -> tuple[int, int]:
        """Ranks and nodes that the cluster asks for, whether or not its machine can have them."""
        cluster, own = self.cluster, self.machine.gpus_per_node if self.machine else 1
        per_node = cluster.gpus_per_node or own
        nodes = cluster.nodes or -(-(cluster.ranks or 1) // per_node)
        return cluster.ranks or nodes * per_node, nodes

    def group(self, ranks: int, nodes: int) -> Topology:
        """`ranks` of the machine on `nodes` nodes, evenly: a group that was measured."""
        try:
            if ranks > MOST_RANKS:
                raise Refused(f"more than {MOST_RANKS:,} ranks")
            return self._built(nodes, ranks, -(-ranks // nodes))
        except Refused as error:
            raise Refused(
                f"a curve of {ranks} ranks on {nodes} nodes does not fit this machine: {error}",
                ("calibration",),
            ) from None

    def _built(self, nodes: int, ranks: int | None, gpus_per_node: int | None) -> Topology:
        """So many nodes of the machine, with what the scenario overrides."""
        assert self.machine is not None
        cluster = self.cluster
        own = gpus_per_node == cluster.gpus_per_node
        return self.machine.sliced(cluster.slice if own else None).topology(
            nodes=nodes,
            ranks=ranks,
            gpus_per_node=gpus_per_node,
            nics_per_node=cluster.nics_per_node,
            inter_node_bandwidth=cluster.inter_node_bandwidth,
            inter_node_kind=cluster.inter_node_kind,
            inter_node_latency=cluster.inter_node_latency,
            oversubscription=cluster.oversubscription,
            routing=cluster.routing,
            seed=self.seed,
        )

    @property
    def nic_rate(self) -> float | None:
        """The rate of a NIC, one way [B/s], as the scenario or the machine says."""
        return self.cluster.inter_node_bandwidth or _nic_rate(self.machine)

    @property
    def ranks(self) -> int:
        """How many ranks train."""
        if self.parts:
            return sum(self.sizes)
        return self.topology.ranks if self.topology else self.cluster.ranks or 1

    @property
    def nodes(self) -> int | None:
        """How many nodes they are on; None without a machine."""
        if self.parts and self.machine is not None:
            return sum(part.nodes or 0 for part in self.parts)
        return self.topology.nodes if self.topology else None

    @property
    def gpus(self) -> int | None:
        """Devices of a node; None where there are no nodes."""
        return self.topology.gpus if self.topology else None


def _nic_rate(machine: Machine | None) -> float | None:
    """The rate of a NIC of `machine`, one way [B/s]; None without one."""
    link = getattr(machine and machine.network, "link", None)
    return link.bandwidth if isinstance(link, Link) else None


def fastest_nic() -> float:
    """The highest rate of a NIC of the machines that come with dpsim, one way [B/s]."""
    return max(_nic_rate(load_machine(name)) or 0.0 for name in machine_names())


def device_of(base: Path, name: str | Device) -> Device:
    """A device, or the one that a scenario calls so."""
    if isinstance(name, Device):
        return name
    return named(base, "devices", name, load_device)


def named(base: Path, key: str, name: str, read: Callable[[str, Path], _Found]) -> _Found:
    """What `read` finds under `name`; files must lie below the scenario's folder."""
    if "/" in name or name.endswith((".yaml", ".yml", ".json")):
        path = below(base, name, f"cluster.{key}")
        if not path.exists():
            raise Refused(f"there is no file {name[:200]!r}", ("cluster", key))
    try:
        return read(name, base)
    except Refused as error:
        if isinstance(error, FileRefused):
            raise
        raise Refused(error.message, ("cluster", key)) from None
