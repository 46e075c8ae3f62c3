"""NCCL's own constants, by version.

Source: NVIDIA/nccl src/graph/tuning.cc (src/tuning.cc before 2.7), read at the tags v2.8.4-1,
v2.10.3-1, v2.12.12-1, v2.18.5-1, v2.21.5-1, v2.22.3-1, v2.23.4-1, v2.27.7-1, v2.29.2-1 and
v2.30.7-1.  Bandwidths are in GB/s (1e9 B/s) and latencies in microseconds, as they are there.
"""

from __future__ import annotations

from collections.abc import Mapping

from dpsim.core.lean import dataclass
from dpsim.machines.devices import NicMaker

PerProtocol = tuple[float, float, float]
PROTOCOLS = ("ll", "ll128", "simple")
#: newest version whose constants are known, and the oldest that is accepted
NEWEST, OLDEST = (2, 30), (2, 0)
#: trees came with 2.4, LL128 with 2.5, NVLS with 2.17, NVLS trees with 2.18, PAT with 2.23
TREES, LL128, NVLS, NVLS_TREES, PAT = (2, 4), (2, 5), (2, 17), (2, 18), (2, 23)
#: from this version on NCCL chooses by estimates of the times, before by sizes
ESTIMATES = (2, 5)
#: CollNet Chain and Direct came with 2.14 (2.6 to 2.13 have one CollNet, which is none of them);
#: SHARP's all-gathers and reduce-scatters with 2.20 (release notes of SHARP 3.5.2)
COLLNET, SHARP_GATHERS = (2, 14), (2, 20)
#: microseconds that each further GPU of a node adds to a CollNet Direct step inside the node
DIRECT_ARITY = 0.4
#: lowest compute capability (times ten) on which PAT is enabled
PAT_CAPABILITY = 60


@dataclass(frozen=True)
class Era:
    """The constants of a range of versions, rows in the order LL, LL128, Simple [us].

    base    per launch (`baseLat`), by algorithm
    nvlink, pcie, net  per step (`hwLat`), by algorithm
    """

    since: tuple[int, int]
    base: Mapping[str, PerProtocol]
    nvlink: Mapping[str, PerProtocol]
    pcie: Mapping[str, PerProtocol]
    net: Mapping[str, PerProtocol]


def _era(
    since: tuple[int, int],
    base: tuple[PerProtocol, PerProtocol],
    nvlink: tuple[PerProtocol, PerProtocol],
    net: tuple[PerProtocol, PerProtocol],
    nvls: float,
    nvls_tree: float,
) -> Era:
    (tree, ring), nothing = nvlink, (0.0, 0.0, 0.0)
    sharp = dict.fromkeys(("collnet_direct", "collnet_chain", "nvls_sharp"), nothing)
    collnet = {"collnet_direct": (0.0, 0.0, 3.7), "collnet_chain": (0.0, 0.0, 2.8)}
    return Era(
        since,
        {"tree": base[0], "ring": base[1], "nvls": nothing, "nvls_tree": nothing,
         "pat": (8.0, 8.0, 8.0), **sharp},
        {"tree": tree, "ring": ring, "nvls": (0, 0, nvls), "nvls_tree": (0, 0, nvls),
         "pat": (0, 0, 4.0), **collnet, "nvls_sharp": (0, 0, nvls)},
        {"tree": (1.0, 1.9, tree[2]), "ring": (1.0, 2.5, 5.7), "nvls": nothing,
         "nvls_tree": nothing, "pat": (0, 0, 4.0), **sharp, **collnet},
        {"tree": net[0], "ring": net[1], "nvls": (0, 0, 18.0), "nvls_tree": (0, 0, nvls_tree),
         "pat": (0, 0, 14.0), "collnet_direct": (0, 0, 31.0), "collnet_chain": (0, 0, 30.0),
         "nvls_sharp": (0, 0, 18.0)},
    )  # fmt: skip


_OLD_BASE = ((4.4, 4.4, 0.0), (3.6, 10.0, 8.4))
_OLD_NVLINK = ((0.52, 1.25, 28.0), (0.47, 1.9, 3.4))
_MID_BASE = ((6.8, 14.0, 0.0), (6.6, 14.0, 8.4))
_NEW_BASE = ((6.8, 14.0, 8.4), (6.6, 14.0, 8.4))
_FAST_TREE = ((0.6, 1.25, 4.0), (0.6, 1.9, 3.4))
_SLOW_TREE = ((0.6, 1.25, 28.0), (0.6, 1.9, 3.4))
_NET_RING = (2.7, 4.0, 14.0)
ERAS = (
    _era((2, 0), _OLD_BASE, _OLD_NVLINK, ((5.0, 8.5, 28.0), (2.7, 4.0, 9.6)), 23.0, 18.0),
    _era((2, 12), _OLD_BASE, _OLD_NVLINK, ((5.0, 8.5, 28.0), (2.7, 4.0, 28.0)), 23.0, 18.0),
    _era((2, 18), _MID_BASE, _FAST_TREE, ((5.0, 8.5, 14.0), _NET_RING), 23.0, 18.0),
    _era((2, 21), _MID_BASE, _SLOW_TREE, ((5.0, 8.5, 28.0), _NET_RING), 25.0, 14.0),
    _era((2, 23), _NEW_BASE, _FAST_TREE, ((5.0, 8.5, 14.0), _NET_RING), 25.0, 14.0),
    _era((2, 28), _NEW_BASE, _FAST_TREE, ((5.0, 8.5, 14.0), _NET_RING), 25.0, 20.9),
)

#: by architecture (Volta, Ampere, Hopper, Blackwell) and by nodes (1, 2, more)
LL_MAX = ((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0), (282.0, 90.0, 70.0))
RING_LL128_CHANNEL = ((20.0,) * 3, (20.0,) * 3, (36.7,) * 3, (40.0,) * 3)
TREE_LL128_CHANNEL = ((20.0,) * 3, (20.0,) * 3, (36.7, 36.7, 29.0), (55.6, 31.67, 20.0))
TREE_CHANNEL = ((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0), (70.0, 42.8, 24.0))
NVLS_TREE_CHANNEL = (*TREE_CHANNEL[:2], (0.0, 57.7, 45.5), (0.0, 96.0, 80.0))
#: most GPUs whose parts NVSwitches add; with more there are no all-gathers and reduce-scatters in
#: them (src/include/device.h, NCCL_MAX_NVLS_ARITY; src/enqueue.cc, since 2.25)
NVLS_HEADS = 32
NVLS_EFFICIENCY = (0.0, 0.0, 0.85, 0.74)

#: what is left of a tree's bandwidth at sizes 64 B, 128 B, … (`treeCorrectionFactor`)
TREE_CORRECTION: Mapping[str, tuple[float, ...]] = {
    "ll": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9,
           1, 1, 1, 1, 1),
    "ll128": (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9,
              0.9, 0.9, 1, 1, 1),
    "simple": (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7,
               0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
}  # fmt: skip

#: GB/s per channel that the search tries, in order (src/graph/search.cc), before Hopper, for
#: Hopper and for Blackwell: inside nodes, then between them
INTRA_SPEEDS = (
    (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
    (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3),
    (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18),
)
INTER_SPEEDS = (
    (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12),
    (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
    (96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
)


#: threads that carry a channel's connection by the adapter's vendor, and from which version on:
#: over Amazon's two with eight sockets each, over Google's four with one (2.4.8 and 2.5.6
#: src/transport/net_socket.cc, 2.30.7 is the same; all of 2.4 are taken for 2.4.8).  Rates per
#: connection are fitted where one thread has one; eight sockets of one thread carry no more, but
#: where each flow is held down by the network, as Amazon's is
_THREADS = {"amazon": (2, (2, 4)), "google": (4, (2, 5))}


def threads(adapters: NicMaker | None, kind: str, version: tuple[int, int]) -> int:
    """How many threads carry a channel's TCP connection by NCCL's own setting, over links of `kind`
    with such `adapters`: it counts for as many connections of one thread."""
    vendor = "google" if kind == "gvnic" else adapters if kind == "ethernet" else None
    many, first = _THREADS.get(vendor or "", (1, OLDEST))
    return many if version >= first else 1


def era_of(version: tuple[int, int]) -> Era:
    """The constants of `version`; those of 2.8 stand for the versions before it."""
    return [era for era in ERAS if era.since <= version][-1]


def architecture(capability: int) -> int:
    """0 Volta and older, 1 Ampere and Ada (and what states none), 2 Hopper, 3 Blackwell."""
    if capability <= 0:
        return 1
    return sum(capability >= limit for limit in (80, 90, 100))
