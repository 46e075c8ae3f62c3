"""Devices and links: what one accelerator can do and what one wire carries."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from dpsim.core import units
from dpsim.core.dtypes import DTYPE_BYTES, OPERANDS
from dpsim.core.record import Check, Natural, Text, record

#: what joins nodes.  ethernet is TCP sockets over Ethernet, gvnic the same over Google's virtual
#: NIC, ipoib TCP over InfiniBand or Omni-Path, slingshot_ip TCP over Slingshot, tcpx Google's
#: GPUDirect-TCPX; the others move data without the host's TCP stack
NetworkKind = Literal[
    "infiniband", "roce", "ethernet", "gvnic", "ipoib", "omni_path", "slingshot", "slingshot_ip",
    "efa", "tcpx",
]  # fmt: skip
#: kinds whose bytes go through TCP connections of the host
SOCKETS = ("ethernet", "gvnic", "ipoib", "slingshot_ip")
#: makers of network adapters that libraries ask for
NicMaker = Literal["amazon", "google"]
#: every kind of wire; nvlink to ici (between TPUs) are inside a node
LinkKind = Literal[
    "nvlink", "nvswitch", "pcie", "inter_socket", "xgmi", "ici", "local", NetworkKind
]

#: wires that belong to the devices they join
PEER_LINKS = ("nvlink", "nvswitch", "xgmi", "ici")

#: what programs have of the memory that a device is sold with, as a share of it, where nobody has
#: told: least, point and most of the devices of which it was told (topologies/devices).  Those with
#: error correction in GDDR have least, those whose data sheets say decimal GB most
USABLE = (0.91, 0.986, 1.065)


#: what tells devices apart: letters and digits, as in A100, H100, MI300X or 4090
_KIND = re.compile(r"\b(?:[rg]tx)? ?((?:[a-z]{1,2}\d{1,4}|\d{4})(?:x|a|s|g|ti)?)\b")


def same_kind(one: str, other: str) -> bool:
    """Whether two names may be of one kind of device; where one tells none, they may."""
    kinds = [_KIND.search(name.lower()) for name in (one, other)]
    return len({kind[1] for kind in kinds if kind}) < 2


@record
class Link:
    """A directed edge of a machine: bandwidth one way [B/s], latency [s] and its kind.

    `kind` is one of nvlink, nvswitch, pcie, inter_socket, xgmi, ici, local and, between nodes,
    infiniband, roce, ethernet, gvnic, ipoib, omni_path, slingshot, slingshot_ip, efa, tcpx (see
    `NetworkKind`).
    `generation` is that of EFA adapters (P3dn, P4d: 1; P5: 2; P5en: 3; P6: 4), for kind efa only;
    0: not stated.
    """

    bandwidth: Annotated[float, units.Unit("B/s", high=1e24, above=True)]  # of many cables in one
    latency: units.Seconds = 0.0
    kind: LinkKind = "local"
    generation: Natural = 0

    def __post_init__(self) -> None:
        if self.generation and self.kind != "efa":
            raise ValueError(f"generation: that of EFA adapters; this link is {self.kind}")


#: architectures by the least compute capability, times ten (CUDA C++ Programming Guide 12.4,
#: section 16, "Compute Capabilities")
_GENERATIONS = (
    (30, "kepler"), (50, "maxwell"), (60, "pascal"), (70, "volta"), (75, "turing"), (80, "ampere"),
    (89, "ada"), (90, "hopper"), (100, "blackwell"),
)  # fmt: skip


@record
class Device:
    """One accelerator.  `peak` is dense FLOP/s per dtype, `memory` bytes, `memory_bandwidth` B/s.

    `memory` is what it is sold with, `usable` what of it programs have: what CUDA, HIP and torch
    call the device's total [B], less than what is sold by what the driver and error correction
    keep; 0 where nobody has told.  `launch_overhead` is the least time one kernel takes on the
    stream [s]; `power` is the board power [W], `idle_power` what it draws with nothing to do [W],
    each 0 where unknown; `compute_capability` is NVIDIA's, times ten (H100: 90), or 0, and
    `multiprocessors` how many it has, 0 where nobody has told; of other makers `architecture` names
    what kernels are made for (cdna3), where their rates are known;
    `peer_bandwidth` is what all links to other devices (NVLink, xGMI) carry together, one way
    [B/s], as the library of collectives counts them, 0 where there are none; `gpudirect`
    says whether NICs can read and write its memory (GPUDirect RDMA), without which bytes for other
    nodes go through the host's.
    """

    name: Text
    peak: dict[str, units.FlopPerSecond]
    memory: units.Bytes
    memory_bandwidth: units.BytesPerSecond
    launch_overhead: units.Seconds
    power: units.Watts = 0.0
    idle_power: units.Watts = 0.0
    compute_capability: Natural = 0
    multiprocessors: Annotated[int, Check(0, 1024)] = 0
    peer_bandwidth: units.NoBytesPerSecond = 0.0
    usable: units.Bytes = 0.0
    gpudirect: bool = True
    architecture: Literal["cdna3", "cdna4"] | None = None

    def __post_init__(self) -> None:
        for dtype in self.peak:
            if dtype not in (known := DTYPE_BYTES | OPERANDS):
                raise ValueError(f"peak: unknown dtype {dtype!r}; known: {', '.join(known)}")

    @property
    def generation(self) -> str:
        """Its maker's name of its architecture, in small letters, NVIDIA's by compute capability;
        "other" where there is none."""
        known = [name for low, name in _GENERATIONS if low <= self.compute_capability]
        return known[-1] if known else self.architecture or "other"

    @property
    def room(self) -> tuple[float, float, float]:
        """Bytes that programs have: at least, as far as is known, and at most."""
        if self.usable:
            return (self.usable,) * 3
        least, point, most = (share * self.memory for share in USABLE)
        return least, point, most

    def peak_for(self, dtype: str) -> float:
        """Peak FLOP/s for arithmetic in `dtype`; ValueError names the dtypes the device states."""
        if dtype not in self.peak:
            raise ValueError(
                f"{self.name} states no peak for {dtype}; it has {', '.join(self.peak)}"
            )
        return self.peak[dtype]
