"""What a topology file can say about one node; None wherever it says nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from dpsim.machines.devices import NetworkKind, NicMaker

Pair = tuple[int, int]
#: how near two devices are, nearest first
SWITCH, NODE, APART = "below one PCIe switch", "on one NUMA node", "on different NUMA nodes"
#: one of the first two: NVLinks hide which
TOGETHER = "on one NUMA node or nearer"


def many(count: int, noun: str) -> str:
    """ "1 NIC" or "2 NICs"; a noun that ends in h has -es."""
    ending = "" if count == 1 else "es" if noun.endswith("h") else "s"
    return f"{count} {noun}{ending}"


@dataclass(frozen=True)
class Place:
    """Where a GPU or NIC hangs: its NUMA node, its outermost PCIe switch and its PCIe bandwidth,
    one way [B/s]."""

    socket: int
    switch: str | None = None
    bandwidth: float | None = None


@dataclass(frozen=True)
class Nic:
    """One port of a network card; `speed` is its line rate, one way [B/s]."""

    name: str
    place: Place | None = None
    speed: float | None = None
    kind: NetworkKind | None = None
    gpudirect: bool | None = None
    port: int | None = None
    adapters: NicMaker | None = None


@dataclass(frozen=True)
class Wires:
    """NVLink or xGMI links: how many each GPU has to a switch, and how many each pair has.

    `kind` is "nvlink" or "xgmi".
    """

    kind: str = "nvlink"
    to_switch: tuple[int, ...] = ()
    pairs: dict[Pair, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Facts:
    """What one file says.

    source        the file's name
    format        what kind of file it is, as a user calls it
    gpus          how many GPUs
    places        where each hangs, in the order of GPU numbers
    compute       NVIDIA's compute capability times ten, as NCCL's `sm`
    gcn           AMD's architecture, "gfx942"
    chip          PCI id of all GPUs, "10de:20b0"
    wires         NVLinks or xGMI links
    nics          the NICs that carry training traffic
    uplinks       of each PCIe switch to its NUMA node, one way [B/s]
    between       bandwidth between NUMA nodes [B/s] and where it is from
    notes         sentences on what was read and what was left out
    near          how near GPUs ("GPU0") and NICs (by name) are, where the file states it by pair
    """

    source: str
    format: str
    gpus: int | None = None
    places: tuple[Place, ...] | None = None
    compute: int | None = None
    gcn: str | None = None
    chip: str | None = None
    wires: Wires | None = None
    nics: tuple[Nic, ...] | None = None
    uplinks: dict[str, float | None] = field(default_factory=dict)
    between: tuple[float, str] | None = None
    notes: tuple[str, ...] = ()
    near: dict[tuple[str, str], str] = field(default_factory=dict)
