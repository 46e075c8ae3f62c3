"""Machines: a device, a node and a network with their sources, read from ``topologies/``."""

from __future__ import annotations

import dataclasses
import re
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, cast

from dpsim.core import plugins, units, unknown, yamlfile
from dpsim.core.files import stamp
from dpsim.core.places import data_folder, home_of
from dpsim.core.record import Check, Count, Refused, Text, build, record
from dpsim.machines.clos import Clos, Routing
from dpsim.machines.cores import Cores
from dpsim.machines.devices import PEER_LINKS, Device, Link, NetworkKind, NicMaker
from dpsim.machines.fabrics import Network, NodeFabric
from dpsim.machines.storage import Storage
from dpsim.machines.topology import AS_IT_IS, Crossing, Topology

MOST_NICS = 1024
#: compute capability, times ten, from which on EFA reads and writes a GPU's memory
_EFA_READS = 80
UpTo1024 = Annotated[int, Check(0, MOST_NICS)]
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")


@record
class Machine:
    """A node type and the network between such nodes.

    `gpus_per_node` and `nics_per_node` are the defaults of :meth:`topology`; `host_power` is what a
    node draws without its devices [W], 0 where unknown, as is its `host_memory` [B]; `cores` are
    those of a node and `storage` is in each, None where unknown; `adapters` says where those of the
    network are Amazon's or Google's: NCCL has more threads for TCP there; `sources` maps the path
    of a field ("node.nvlink.bandwidth", or a prefix of it) to the citation of its value.
    """

    name: Text
    description: Text = ""
    device: Device
    gpus_per_node: Count
    nics_per_node: UpTo1024 = 0
    host_power: units.Watts = 0.0
    host_memory: units.Bytes = 0.0
    cores: Cores | None = None
    storage: Storage | None = None
    node: Annotated[NodeFabric, plugins.Plugin("fabrics", "family")]
    network: Annotated[Network, plugins.Plugin("fabrics", "family")] | None = None
    adapters: NicMaker | None = None
    sources: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.node, NodeFabric):
            raise Refused(
                f"{plugins.name_of(self.node)} is a network, not a node", ("node", "family")
            )
        if self.network is not None and not isinstance(self.network, Network):
            raise Refused(f"{plugins.name_of(self.network)} is no network", ("network", "family"))

    def holding(self, device: Device, gpus_per_node: int) -> Machine:
        """This machine with `device` in its slots, `gpus_per_node` of which are used; Refused where
        links of the machine's own devices would have to stay that `device` does not have."""
        if found := self.foreign_links(device, gpus_per_node):
            known = [name for name in machine_names() if load_machine(name).device == device]
            hint = f"take machine {' or '.join(known)}" if known else "write a machine file"
            raise Refused(f"{found}; {hint}", ("cluster", "device"))
        return dataclasses.replace(self, device=device)

    def sliced(self, shape: tuple[int, ...] | None) -> Machine:
        """This machine with slices of TPUs of that shape, as they are usual for None; Refused where
        it has none."""
        return self if shape is None else dataclasses.replace(self, node=self.node.sliced(shape))

    def foreign_links(self, device: Device, gpus_per_node: int) -> str:
        """What says that devices of a node are joined by links (NVLink, xGMI) that `device` has
        not, where `gpus_per_node` of them are used; "" where they are not."""
        own, other = self.device.peer_bandwidth, device.peer_bandwidth
        if own == other or gpus_per_node == 1 or not self._wired:
            return ""
        rates = [units.show(rate, "B/s") if rate else "none" for rate in (own, other)]
        return (
            f"links between the devices of a node are those of {self.name}, {rates[0]} for each "
            f"{self.device.name}; a {device.name} has {rates[1]} (peer_bandwidth)"
        )

    @property
    def _wired(self) -> bool:
        """Whether devices of one node are joined by links of their own."""
        topology = self.topology(1)
        topology.require_connected()
        edges = topology.first_node.edges
        return any(
            a[0] == "gpu" and data["link"].kind in PEER_LINKS for (a, _), data in edges.items()
        )

    def _nics(self, gpus: int) -> int:
        """NICs of a node of which `gpus` GPUs are used."""
        return self.node.nics_of(gpus, self.nics_per_node)

    def topology(
        self,
        nodes: int,
        ranks: int | None = None,
        *,
        gpus_per_node: int | None = None,
        nics_per_node: int | None = None,
        inter_node_bandwidth: float | None = None,
        inter_node_kind: NetworkKind | None = None,
        inter_node_latency: float | None = None,
        oversubscription: float | None = None,
        routing: Routing | None = None,
        seed: int = 0,
    ) -> Topology:
        """`nodes` of these nodes with some values replaced; Refused where it has no such value.

        inter_node_bandwidth  of each NIC, one way [B/s]; the PCIe slot of the NIC stays as it is
        inter_node_kind       what the NICs and switches are; their bandwidth stays as it is
        inter_node_latency    one way from a NIC to one of another node below the same switch [s]
        oversubscription      of the leaf switches, at least 1 [1]
        routing               over the spine switches: balanced, or ecmp, hashed with `seed`
        """
        if nodes > 1 and self.network is None:
            raise _single(self.name, gpus_per_node or self.gpus_per_node)
        cables = (inter_node_bandwidth, inter_node_kind, inter_node_latency)
        network, way = _rewired(self.network, *cables)
        network = _routed(_with(network, "oversubscription", oversubscription), routing, seed)
        gpus = _held(self.node, gpus_per_node, self.gpus_per_node)
        return Topology(
            self.node,
            network,
            nodes=_whole(nodes, "nodes", 1),
            gpus=gpus,
            nics=_whole(nics_per_node, "nics_per_node", 0, self._nics(gpus)),
            ranks=ranks,
            compute_capability=self.device.compute_capability,
            gpudirect=self.device.gpudirect and not _staged(network, self.device),
            crossing=way,
            adapters=self.adapters,
        )


def _staged(network: Network | None, device: Device) -> bool:
    """Whether NICs of `network` don't reach the memory of a `device` that others reach: Amazon's
    EFA reads that of A100 and later alone (Amazon EC2 user guide, "Elastic Fabric Adapter":
    GPUDirect RDMA on P4d and newer).  Of a device of which no capability is known nothing is
    assumed."""
    link, capability = getattr(network, "link", None), device.compute_capability
    return link is not None and link.kind == "efa" and 0 < capability < _EFA_READS


def node_in_words(
    gpus: int, device: str, name: str, nics: int = 0, rate: str = "", kind: str = ""
) -> str:
    """A node of machine `name` with so many GPUs, and what joins it to others, where it has NICs:
    their `rate` each, and their kind."""
    node = f"{gpus} x {device} a node as in {name}"
    return f"{node}, {nics} x {rate} {kind}" if nics else node


def gbits(link: Link) -> str:
    """The rate of `link` in the unit of networks."""
    return f"{link.bandwidth * 8e-9:.6g} Gbit/s"


def _single(name: str, gpus: int) -> Refused:
    """The refusal of several nodes of a machine that is one."""
    message = (
        f"{name} has no network: it is a single node; up to {gpus} ranks run on it, and for more "
        "name a machine that has one (rack-10gbe, rack-100gbe, …) with this device: "
        "cluster.device, cluster.gpus_per_node"
    )
    return Refused(message, ("cluster", "nodes"))


def _rewired(
    network: Network | None,
    bandwidth: float | None,
    kind: NetworkKind | None,
    latency: float | None,
) -> tuple[Network | None, Crossing]:
    """`network` with other cables, and with `latency` from NIC to NIC, up and down [s]."""
    for field, value in (("bandwidth", bandwidth), ("kind", kind)):
        if value is not None:
            network = _with_cables(network, field, value)
    if latency is None:
        return network, AS_IT_IS
    own = _link_of(network, "latency").latency
    return _with_cables(network, "latency", latency / 2), Crossing(latency, latency - 2 * own)


def _needed(network: Network | None, field: str, path: tuple[str | int, ...]) -> Network:
    if network is None:
        raise Refused("this machine has no network", path)
    if field not in {f.name for f in dataclasses.fields(network)}:  # type: ignore[arg-type]
        raise Refused(f"a {plugins.name_of(network)} network has no {field}", path)
    return network


def _with(network: Network | None, field: str, value: object) -> Network | None:
    if value is None:
        return network
    path = ("cluster", field)
    changed: Network = _replaced(_needed(network, field, path), path, **{field: value})
    return changed


def _link_of(network: Network | None, field: str) -> Link:
    """A NIC's cable; Refused for `field`, which a cluster overrides, where there is none."""
    found: Any = _needed(network, "link", ("cluster", f"inter_node_{field}"))
    link: Link = found.link
    return link


def _with_cables(network: Network | None, field: str, value: object) -> Network:
    path = ("cluster", f"inter_node_{field}")
    own = _link_of(network, field)
    other = field == "kind" and value != own.kind  # adapters of which nothing else is known
    changes = {field: value, **({"generation": 0} if other else {})}
    link = _replaced(own, path, **changes)
    changed: Network = _replaced(network, path, link=link)
    return changed


def _routed(network: Network | None, routing: Routing | None, seed: int) -> Network | None:
    """`network` with its flows spread evenly or hashed; a single switch has nothing to choose."""
    path = ("cluster", "routing")
    if routing is None:
        return network
    if not isinstance(network, Clos):
        if routing == "balanced":
            return network
        what = (
            "no network"
            if network is None
            else f"a {plugins.name_of(network)} network: one switch only"
        )
        raise Refused(f"ecmp needs several spine switches; this machine has {what}", path)
    return cast(Network, _replaced(network, path, routing=routing, hash_seed=seed))


def _replaced(value: Any, path: tuple[str | int, ...], **changes: Any) -> Any:
    try:
        return dataclasses.replace(value, **changes)
    except Refused as error:
        raise Refused(error.message, path) from None


def _held(node: NodeFabric, value: int | None, default: int) -> int:
    """GPUs of such a `node`: `value`, else `default`; Refused where no node has as many."""
    gpus = _whole(value, "gpus_per_node", 1, default)
    if gpus > node.most:
        message = f"{gpus} is not in 1 … {node.most:,}"
        raise Refused(message, ("cluster", "gpus_per_node"))
    return gpus


def _whole(value: int | None, field: str, low: int, default: int = 1) -> int:
    chosen = default if value is None else value
    if isinstance(chosen, bool) or not isinstance(chosen, int) or chosen < low:
        raise Refused(f"{chosen!r} is not a whole number of at least {low}", ("cluster", field))
    return chosen


def machine_names() -> tuple[str, ...]:
    """The machines that come with dpsim, sorted."""
    return _names(data_folder("topologies"), stamp(data_folder("topologies")))


def device_names() -> tuple[str, ...]:
    """The devices that come with dpsim, sorted."""
    folder = data_folder("topologies") / "devices"
    return _names(folder, stamp(folder))


def devices_with(dtype: str) -> list[str]:
    """Those of which a peak in `dtype` is known."""
    return [name for name in device_names() if dtype in load_device(name).peak]


@lru_cache(maxsize=4)
def _names(folder: Path, _: object) -> tuple[str, ...]:
    """What is described in `folder`, which has that stamp."""
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))


def machines_by_device() -> dict[str, list[str]]:
    """The machines that come with dpsim, by the full names of their devices."""
    having: dict[str, list[str]] = {}
    for name in machine_names():
        having.setdefault(load_machine(name).device.name, []).append(name)
    return having


def load_machine(name_or_path: str, base: Path | None = None) -> Machine:
    """The machine called `name_or_path`, or the one in that file (relative to folder `base`).

    A text that ends in .yaml, .yml or .json, or has a slash, is a file.
    """
    path, shown = _find(name_or_path, machine_names(), data_folder("topologies"), base, "machine")
    read = (path, shown, stamp(path))
    data, _ = _parsed(*read)
    device = data.get("device") if isinstance(data, dict) else None
    beside = stamp(path.parent / device) if isinstance(device, str) else None
    return _read_machine(*read, beside)


def load_device(name_or_path: str, base: Path | None = None) -> Device:
    """The device of that name, or in that file (relative to folder `base`)."""
    return _device(name_or_path, base)[0]


def _find(
    name: str, known: tuple[str, ...], folder: Path, base: Path | None, what: str
) -> tuple[Path, str]:
    if "/" in name or name.endswith((".yaml", ".yml", ".json")):
        return home_of(base or Path(), name) / name, name
    if name not in known or not _NAME.match(name):
        raise Refused(
            _instead(name, what) or unknown.sentence(name, known, f"no {what} {name[:60]!r}")
        )
    return folder / f"{name}.yaml", f"{name}.yaml"


@lru_cache(maxsize=1)
def _products() -> frozenset[str]:
    """What makers call the devices that are known."""
    return frozenset(load_device(device).name for device in device_names())


def _instead(name: str, what: str) -> str:
    """The sentence for a device's name where a machine is needed, or the other way round."""
    if what == "device" and name in machine_names():
        return f"{name!r} is a machine, with {load_machine(name).device.name}; name its device"
    if what == "device":
        return ""
    nowhere = "none; put it into one with cluster.device"
    if name in device_names():
        having = machines_by_device().get(load_device(name).name, [])
        return f"{name!r} is a device; machines with it: {', '.join(having) or nowhere}"
    if unknown.by_meaning(name, machine_names()):
        return ""
    devices = {load_device(device).name for device in unknown.by_meaning(name, device_names())}
    devices = set(unknown.by_meaning(name, sorted(_products()))) or devices
    if not devices:
        return ""
    known = machines_by_device()
    having = [other for device in sorted(devices) for other in known.get(device, ())]
    shown = f"no machine {name[:60]!r}; machines with {', '.join(sorted(devices))}"
    return f"{shown}: {', '.join(having) or nowhere}"


@lru_cache(maxsize=64)
def _parsed(path: Path, shown: str, _: object) -> tuple[Any, yamlfile.Lines]:
    return yamlfile.load(path, shown)


@lru_cache(maxsize=64)
def _read_machine(path: Path, shown: str, own: object, _: object) -> Machine:
    """The machine in the file with the stamp `own`; the other stamp is that of its device."""
    data, lines = _parsed(path, shown, own)
    try:
        data = _mapping(data, ())
        sources = dict(_mapping(data.get("sources", {}), ("sources",)))
        if isinstance(data.get("device"), str):
            data["device"], cited = _device(data["device"], path.parent, ("device",))
            sources |= {f"device.{field}": text for field, text in cited.items()}
        return build(Machine, {"name": path.stem, **data, "sources": sources}, file=True)
    except Refused as error:
        raise yamlfile.located(error, shown, lines) from None


def _device(
    name: str, base: Path | None, field: tuple[str | int, ...] = ()
) -> tuple[Device, dict[str, str]]:
    try:
        folder = data_folder("topologies") / "devices"
        path, shown = _find(name, device_names(), folder, base, "device")
    except Refused as error:
        raise Refused(error.message, field) from None
    data, lines = yamlfile.load(path, shown)
    try:
        data = _mapping(data, ())
        cited = dict(_mapping(data.pop("sources", {}), ("sources",)))
        return build(Device, {"name": path.stem, **data}, file=True), cited
    except Refused as error:
        raise yamlfile.located(error, shown, lines) from None


def _mapping(value: Any, path: tuple[str | int, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused("a mapping is needed here", path)
    return dict(value)
