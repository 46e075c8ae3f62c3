"""NCCL's own log (``NCCL_DEBUG=INFO``), line by line.

Lines, from NVIDIA/nccl 2.9 to 2.28 and ROCm/rccl: src/init.cc (ranks, channels, rings, trees, "Init
COMPLETE"), src/transport/{p2p,shm,net}.cc ("via …"), src/transport/net_*.cc and src/misc/param.cc
(networks, variables).  Tags of mpirun and srun in front and other output in between are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from dpsim.core.record import Refused

_INFO = re.compile(r"(?:^|[\s>:\]])([\w.-]+):\d+:\d+ \[(\d+)\] NCCL (?:INFO|WARN) (.*)$")
_VERSION = re.compile(r"[NR]CCL version\s*:?\s*(\d+\.\d+(?:\.\d+)?)")
_RANK = re.compile(r"\brank (\d+) n[rR]anks (\d+)\b")
_NODES = re.compile(r"\bnNodes (\d+)\b")
_RING = re.compile(r"^Channel (\d+)/(\d+)\s*:((?:\s+\d+)+)\s*$")
_HOP = re.compile(
    r"^Channel (\d+)(?:/\d+)? : (\d+)\[[^\]]*\] -> (\d+)\[[^\]]*\]"
    r"(?: \[(send|receive)\])? via (\S.*)$"
)
_TREE = re.compile(r"\[(\d+)\] ([-\d/]+)->(\d+)->(-?\d+)")
_COUNTS = re.compile(r"(\d+) coll channels(?:, (?:\d+ collnet channels, )?(\d+) nvls channels)?")
_NETWORK = re.compile(r"^Using network (\S.*)$")
_SET = re.compile(r"^(NCCL_[A-Z0-9_]+) set by environment to (.*?)\.?$")
MAX_LINES = 2_000_000
MOST_RANKS = 1_048_576


@dataclass
class NcclLog:
    """What a log says of one communicator: the largest one that it has.

    version     of NCCL, "" where it is not said
    ranks       of the communicator
    hosts       rank -> host
    rings       channel -> ranks in the order of its ring
    parents     channel -> {rank: the rank above it in the tree, -1 of the root}
    channels    of collectives; nvls: how many of NVLS
    hops        (kind of hop, transport) -> connections; kinds are "inside" a node and "between"
    networks    names of the network
    settings    NCCL_* variables that the environment sets
    said_nodes  as a line of a rank counts them, 0 where none does
    """

    version: str = ""
    ranks: int = 0
    hosts: dict[int, str] = field(default_factory=dict)
    rings: dict[int, tuple[int, ...]] = field(default_factory=dict)
    parents: dict[int, dict[int, int]] = field(default_factory=dict)
    channels: int = 0
    nvls: int = 0
    hops: Counter[tuple[str, str]] = field(default_factory=Counter)
    networks: Counter[str] = field(default_factory=Counter)
    settings: dict[str, str] = field(default_factory=dict)
    said_nodes: int = 0
    _seen: list[tuple[int, int, str]] = field(default_factory=list)

    @property
    def nodes(self) -> int:
        """How many hosts the ranks are on; of some the log may be missing."""
        return max(len(set(self.hosts.values())), self.said_nodes)


def read(text: str) -> NcclLog:
    """What `text` says; no ranks where it is no log of NCCL's."""
    log = NcclLog()
    for line in text.splitlines()[:MAX_LINES]:
        if not log.version and (version := _VERSION.search(line)):
            log.version = version[1]
        if (found := _INFO.search(line)) is not None:
            _take(log, found[1], found[3].strip())
    ranks = [rank for pair in log._seen for rank in pair[:2]]
    ranks += [rank for ring in log.rings.values() for rank in ring]
    log.ranks = log.ranks or max(ranks, default=-1) + 1
    if log.ranks > MOST_RANKS:
        raise Refused(f"names {log.ranks:,} ranks; at most {MOST_RANKS:,} are accepted")
    for source, target, via in log._seen:
        ends = log.hosts.get(source), log.hosts.get(target)
        known = None not in ends
        apart = ends[0] != ends[1] if known else via.startswith("NET")
        log.hops["between" if apart else "inside", via] += 1
    return log


def _take(log: NcclLog, host: str, said: str) -> None:
    """One line of NCCL's on `host`."""
    if found := _RANK.search(said):
        if int(found[2]) >= log.ranks:
            log.ranks = int(found[2])
            log.hosts[int(found[1])] = host
            if nodes := _NODES.search(said):
                log.said_nodes = int(nodes[1])
    elif found := _HOP.match(said):
        if found[4] != "receive":  # the same connection from its other end
            log._seen.append((int(found[2]), int(found[3]), _transport(found[5])))
    elif said.startswith("Trees "):
        for channel, _, rank, parent in _TREE.findall(said):
            log.parents.setdefault(int(channel), {})[int(rank)] = int(parent)
    else:
        _settle(log, said)


def _settle(log: NcclLog, said: str) -> None:
    """A line on rings, numbers of channels, networks or variables."""
    if found := _RING.match(said):
        log.rings[int(found[1])] = tuple(map(int, found[3].split()))
        log.channels = max(log.channels, int(found[2]))
    elif found := _COUNTS.search(said):
        log.channels, log.nvls = int(found[1]), int(found[2] or 0)
    elif found := _NETWORK.match(said):
        log.networks[found[1]] += 1
    elif found := _SET.match(said):
        log.settings[found[1]] = found[2]


def _transport(via: str) -> str:
    """``NET/AWS Libfabric/1/GDRDMA`` without the number of the NIC; ``P2P/IPC/read`` as it is."""
    parts = [part for part in via.split("(")[0].strip().split("/") if not part.isdigit()]
    return "/".join(parts).split(" comm ")[0]
