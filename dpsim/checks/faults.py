"""Faults of a cluster that a curve of a collective can show, each as a machine that has it.

A fault is not guessed from a threshold: the same machine is predicted with the fault, and the one
whose curve is nearest in the logarithm of time is the likeliest.  It has to explain the sizes that
are low; the others count too, for the pattern over all sizes tells faults apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpsim.checks.diagnosis import misfit
from dpsim.core.record import Refused
from dpsim.machines.fabrics.pcie_tree import PcieTree
from dpsim.predict.collective import Line, RankGroup, Setup

#: share of a PCIe link's rate that copies staged through host memory reach: 5.5 of 12 GB/s on
#: PCIe Gen3 x16 (huggingface/transformers#9371, two GPUs without peer-to-peer access)
STAGED = 5.5 / 12.0
#: kinds of network that bypass the host's TCP stack
_BYPASS = ("infiniband", "roce", "omni_path", "slingshot", "efa", "tcpx")
#: faults whose misfits differ by less are not told apart by times alone [1]: repeated runs of
#: nccl-tests differ by a few per cent (`SMALLEST` in dpsim/cases/coverage.py)
ALIKE = 0.05


@dataclass(frozen=True)
class Fault:
    """Something that may be wrong: its name, what it means, what to run next, and the setup."""

    name: str
    meaning: str
    next: tuple[str, ...]
    setup: Setup


@dataclass(frozen=True)
class Suspect:
    """How well a fault explains the measured times.

    misfit         root mean square of ln(measured / predicted with the fault) [1]
    misfit_of_low  the same of the sizes that are low
    alike          the likeliest one, or not to be told apart from it by times alone
    """

    fault: Fault
    misfit: float
    misfit_of_low: float
    alike: bool


SOCKETS = (
    "NCCL_DEBUG=INFO: a line `NET/Socket` where `NET/IB` (or `NET/OFI`, `NET/Libfabric`) is meant",
    "is NCCL_IB_DISABLE or NCCL_NET set?  which interface does NCCL_SOCKET_IFNAME choose?",
    "ibstat or ibv_devinfo: are the ports Active, and inside the container too?",
    "ib_write_bw between two nodes: what one NIC reaches without NCCL",
)
NICS = (
    "NCCL_DEBUG=INFO: the line `NET/IB : Using [0]… [1]…` lists every NIC in use; count them",
    "is NCCL_IB_HCA set to a part of the NICs?  ibstat: are all ports Active at their full rate?",
    "nvidia-smi topo -m: has each GPU a NIC at PIX or PXB?",
    "ib_write_bw -d NAME on every NIC in turn",
)
PEERS = (
    "NCCL_DEBUG=INFO: lines `via SHM` where `via P2P` or `NVLS` is meant; is NCCL_P2P_DISABLE set?",
    "nvidia-smi topo -m: NV# between GPUs (not PHB, NODE or SYS)?  nvidia-smi nvlink -s",
    "p2pBandwidthLatencyTest of CUDA samples; are ACS and the IOMMU off for peer-to-peer?",
    "on NVSwitch: systemctl status nvidia-fabricmanager",
)


def faults(setup: Setup, nodes: int, per_node: int) -> Iterator[Fault]:
    """The faults that this machine can have on so many nodes with so many ranks each."""
    if nodes > 1:
        yield from _outside(setup)
    if per_node > 1:
        yield from _inside(setup)


def _outside(setup: Setup) -> Iterator[Fault]:
    link = getattr(setup.machine.network, "link", None)
    kind = setup.changes.get("inter_node_kind") or getattr(link, "kind", None)
    if kind in _BYPASS:
        yield Fault(
            "sockets", f"TCP sockets between nodes instead of {kind}", SOCKETS,
            _changed(setup, inter_node_kind="ethernet"),
        )  # fmt: skip
    nics = setup.changes.get("nics_per_node") or setup.machine.nics_per_node
    if kind in _BYPASS and nics > 1:
        yield Fault(
            "sockets_on_one_nic", f"TCP sockets over one interface instead of {kind}", SOCKETS,
            _changed(setup, inter_node_kind="ethernet", nics_per_node=1),
        )  # fmt: skip
    if nics > 1:
        yield Fault(
            "one_nic", f"one NIC a node in use instead of {nics}", NICS,
            _changed(setup, nics_per_node=1),
        )  # fmt: skip
    if nics > 3:
        yield Fault(
            "half_of_the_nics", f"{nics // 2} NICs a node in use instead of {nics}", NICS,
            _changed(setup, nics_per_node=nics // 2),
        )  # fmt: skip
    if nics > 7:
        yield Fault(
            "quarter_of_the_nics", f"{nics // 4} NICs a node in use instead of {nics}", NICS,
            _changed(setup, nics_per_node=nics // 4),
        )  # fmt: skip


def _inside(setup: Setup) -> Iterator[Fault]:
    node = setup.machine.node
    host = getattr(node, "host", None)
    if host is None:  # no PCIe slots to fall back on
        return
    wired = not isinstance(node, PcieTree) or bool(node.bridges)
    if wired:
        yield Fault(
            "no_nvlink", "PCIe between the GPUs of a node instead of NVLink", PEERS,
            _with_node(setup, PcieTree(host=host)),
        )  # fmt: skip
    if not wired and host.nic is not None and host.gpu.bandwidth < host.nic.bandwidth:
        return  # the machine's own numbers are those of staging already
    slow = replace(host.gpu, bandwidth=host.gpu.bandwidth * STAGED)
    yield Fault(
        "no_peer_to_peer", "copies through host memory between the GPUs of a node", PEERS,
        _with_node(setup, PcieTree(host=replace(host, gpu=slow))),
    )  # fmt: skip


def _changed(setup: Setup, **changes: Any) -> Setup:
    return replace(setup, changes={**setup.changes, **changes}, curves=())


def _with_node(setup: Setup, node: PcieTree) -> Setup:
    return replace(setup, machine=replace(setup.machine, node=node), curves=())


def explained(setup: Setup, group: RankGroup, low: Sequence[Line]) -> list[Suspect]:
    """The faults that explain the measured lines of `group` better than no fault, best first: all
    of them, for the pattern over sizes tells faults apart, and so the `low` ones by themselves."""
    lines = [line for line in group.lines if line.measured]

    def misfits(times: Sequence[float]) -> tuple[float, float]:
        """Of all lines and of the low ones."""
        pairs = [(line.measured or 0.0, time) for line, time in zip(lines, times, strict=True)]
        some = [pair for line, pair in zip(lines, pairs, strict=True) if line in low]
        every, those = (misfit(*zip(*chosen, strict=True)) for chosen in (pairs, some))
        return every, those

    healthy = misfits([line.seconds for line in lines])
    found: list[tuple[float, float, Fault]] = []
    for fault in faults(setup, group.nodes, group.ranks // group.nodes):
        times = _times(fault, group, [line.size for line in lines])
        if times is None:
            continue
        every, those = misfits(times)
        if every < healthy[0] - ALIKE and those < healthy[1] - ALIKE:
            found.append((every, those, fault))
    found.sort(key=lambda one: one[0])
    near = found[0][0] + ALIKE if found else 0.0
    return [Suspect(fault, every, those, every <= near) for every, those, fault in found]


def _times(fault: Fault, group: RankGroup, sizes: Sequence[float]) -> list[float] | None:
    """Times with the fault [s]; None where the machine cannot be built so."""
    try:
        found = fault.setup.group(group.lines[0].operation, group.ranks, group.nodes, sizes)
    except Refused:
        return None
    return [line.seconds for line in found.lines]
