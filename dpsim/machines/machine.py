"""Machines: a device, a node and a network with their sources, read from ``topologies/``."""

from __future__ import annotations

import dataclasses
import re
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, cast

import pydantic

from dpsim.core import plugins, units, yamlfile
from dpsim.core.places import data_folder
from dpsim.core.record import Check, Count, Refused, Text, build, record, unknown
from dpsim.machines.clos import Clos, Routing
from dpsim.machines.devices import PEER_LINKS, Device, NetworkKind
from dpsim.machines.fabrics import Network, NodeFabric
from dpsim.machines.topology import Topology

UpTo1024 = Annotated[int, Check(0, 1024)]
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")


@record
class Machine:
    """A node type and the network between such nodes.

    `gpus_per_node` and `nics_per_node` are the defaults of :meth:`topology`; `host_power` is what a
    node draws without its devices [W], 0 where unknown; `sources` maps the
    path of a field ("node.nvlink.bandwidth", or a prefix of it) to the citation of its value.
    """

    name: Text
    description: Text = ""
    device: Device
    gpus_per_node: Count
    nics_per_node: UpTo1024 = 0
    host_power: units.Watts = 0.0
    node: Annotated[NodeFabric, plugins.Plugin("fabrics", "family")]
    network: Annotated[Network, plugins.Plugin("fabrics", "family")] | None = None
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
        edges: Any = self.topology(1).graph.edges(data="link")
        return any(a[0] == "gpu" and link.kind in PEER_LINKS for a, _, link in edges)

    def topology(
        self,
        nodes: int,
        ranks: int | None = None,
        *,
        gpus_per_node: int | None = None,
        nics_per_node: int | None = None,
        inter_node_bandwidth: float | None = None,
        inter_node_kind: NetworkKind | None = None,
        oversubscription: float | None = None,
        routing: Routing | None = None,
        seed: int = 0,
    ) -> Topology:
        """`nodes` of these nodes, with some values replaced.

        inter_node_bandwidth  of each NIC, one way [B/s]; the PCIe slot of the NIC stays as it is
        inter_node_kind       what the NICs and switches are; their bandwidth stays as it is
        oversubscription      of the leaf switches, at least 1 [1]
        routing               over the spine switches: balanced, or ecmp with its hash seeded by
                              `seed`

        Refused, naming the field of the scenario, where this machine has no such value.
        """
        network = self.network
        for field, value in (("bandwidth", inter_node_bandwidth), ("kind", inter_node_kind)):
            if value is not None:
                network = _with_cables(network, field, value)
        if oversubscription is not None:
            network = _with(network, "oversubscription", oversubscription)
        if routing is not None:
            network = _routed(network, routing, seed)
        return Topology(
            self.node,
            network,
            nodes=_whole(nodes, "nodes", 1),
            gpus=_whole(gpus_per_node, "gpus_per_node", 1, self.gpus_per_node),
            nics=_whole(nics_per_node, "nics_per_node", 0, self.nics_per_node),
            ranks=ranks,
            compute_capability=self.device.compute_capability,
        )


def _needed(network: Network | None, field: str, path: tuple[str | int, ...]) -> Network:
    if network is None:
        raise Refused("this machine has no network", path)
    if field not in {f.name for f in dataclasses.fields(network)}:  # type: ignore[arg-type]
        raise Refused(f"a {plugins.name_of(network)} network has no {field}", path)
    return network


def _with(network: Network | None, field: str, value: object) -> Network:
    path = ("cluster", field)
    changed: Network = _replaced(_needed(network, field, path), path, **{field: value})
    return changed


def _with_cables(network: Network | None, field: str, value: object) -> Network:
    path = ("cluster", f"inter_node_{field}")
    found: Any = _needed(network, "link", path)
    changed: Network = _replaced(found, path, link=_replaced(found.link, path, **{field: value}))
    return changed


def _routed(network: Network | None, routing: Routing, seed: int) -> Network | None:
    """`network` with its flows spread evenly or hashed; a single switch has nothing to choose."""
    path = ("cluster", "routing")
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
    except pydantic.ValidationError as error:
        message = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise Refused(message, path) from None


def _whole(value: int | None, field: str, low: int, default: int = 1) -> int:
    chosen = default if value is None else value
    if isinstance(chosen, bool) or not isinstance(chosen, int) or chosen < low:
        raise Refused(f"{chosen!r} is not a whole number of at least {low}", ("cluster", field))
    return chosen


def machine_names() -> tuple[str, ...]:
    """The machines that come with dpsim, sorted."""
    return tuple(sorted(path.stem for path in data_folder("topologies").glob("*.yaml")))


def device_names() -> tuple[str, ...]:
    """The devices that come with dpsim, sorted."""
    return tuple(sorted(path.stem for path in data_folder("topologies").glob("devices/*.yaml")))


def load_machine(name_or_path: str, base: Path | None = None) -> Machine:
    """The machine called `name_or_path`, or the one in that file (relative to folder `base`).

    A text that ends in .yaml, .yml or .json, or has a slash, is a file.
    """
    path, shown = _find(name_or_path, machine_names(), data_folder("topologies"), base, "machine")
    return _read_machine(path, shown, path.stat().st_mtime_ns if path.is_file() else 0)


def load_device(name_or_path: str, base: Path | None = None) -> Device:
    """The device of that name, or in that file (relative to folder `base`)."""
    return _device(name_or_path, base)[0]


def _find(
    name: str, known: tuple[str, ...], folder: Path, base: Path | None, what: str
) -> tuple[Path, str]:
    if "/" in name or name.endswith((".yaml", ".yml", ".json")):
        return (base or Path()) / name, name
    if name not in known or not _NAME.match(name):
        hint = unknown(name, list(known)).replace("unknown key", f"no {what} {name[:60]!r}")
        raise Refused(hint)
    return folder / f"{name}.yaml", f"{name}.yaml"


@lru_cache(maxsize=64)
def _read_machine(path: Path, shown: str, stamp: int) -> Machine:
    data, lines = yamlfile.load(path, shown)
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
