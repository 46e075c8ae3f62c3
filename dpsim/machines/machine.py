"""Machines: a device, a node and a network with their sources, read from ``topologies/``."""

from __future__ import annotations

import dataclasses
import re
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, cast

from dpsim.core import yamlfile
from dpsim.core.files import stamp
from dpsim.core.places import data_folder
from dpsim.core.plugins import Plugin, name_of
from dpsim.core.record import Check, Count, Refused, Text, build, record, unknown
from dpsim.core.units import Watts
from dpsim.machines.clos import Clos, Routing
from dpsim.machines.devices import Device, NetworkKind
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
    host_power: Watts = 0.0
    node: Annotated[NodeFabric, Plugin("fabrics", "family")]
    network: Annotated[Network, Plugin("fabrics", "family")] | None = None
    sources: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.node, NodeFabric):
            raise Refused(f"{name_of(self.node)} is a network, not a node", ("node", "family"))
        if self.network is not None and not isinstance(self.network, Network):
            raise Refused(f"{name_of(self.network)} is no network", ("network", "family"))

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
        raise Refused(f"a {name_of(network)} network has no {field}", path)
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
        what = "no network" if network is None else f"a {name_of(network)} network: one switch only"
        raise Refused(f"ecmp needs several spine switches; this machine has {what}", path)
    return cast(Network, _replaced(network, path, routing=routing, hash_seed=seed))


def _replaced(value: Any, path: tuple[str | int, ...], **changes: Any) -> Any:
    try:
        return dataclasses.replace(value, **changes)
    except Refused as error:
        raise Refused(error.message, path) from None


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
        return (base or Path()) / name, name
    if name not in known or not _NAME.match(name):
        hint = unknown(name, list(known)).replace("unknown key", f"no {what} {name[:60]!r}")
        raise Refused(hint)
    return folder / f"{name}.yaml", f"{name}.yaml"


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
