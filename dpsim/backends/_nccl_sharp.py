"""Where NCCL can have switches between the nodes add (SHARP), and what it refuses.

Sources: NVIDIA HPC-X 2.25.1, "NCCL-RDMA-SHARP Plugins" (InfiniBand only, NCCL_COLLNET_ENABLE, at
most two streams a switch); NVIDIA/nccl 2.30.7 src/init.cc (NCCL_COLLNET_NODE_THRESHOLD, 2) and
src/graph/tuning.cc.
"""

from __future__ import annotations

from dpsim.backends import Topology
from dpsim.backends import _nccl_tables as tables
from dpsim.backends._nccl_graph import NcclGraph
from dpsim.backends._nccl_tuning import SHARP
from dpsim.collectives import Ranks, Transfer, aggregator, members_of, path
from dpsim.core.record import Refused

#: streams that a switch adds up at once
STREAMS = 2
_KEY = ("collective", "sharp")


def check_settings(sharp: bool, algorithm: str, version: tuple[int, int]) -> None:
    """Refused where the algorithm or the version does not go with `sharp`."""
    if algorithm == "collnet":
        message = (
            "collnet is that of NCCL 2.6 to 2.13; since then there are collnet_chain and "
            "collnet_direct, for SHARP switches"
        )
        raise Refused(message, ("algorithm",))
    if sharp and version < tables.COLLNET:
        first, asked = (".".join(map(str, v)) for v in (tables.COLLNET, version))
        raise Refused(f"NCCL {asked} has no CollNet Chain nor Direct, {first} has", ("sharp",))
    if algorithm in SHARP and not sharp:
        message = f"{algorithm} needs switches that add: sharp: true (NCCL_COLLNET_ENABLE=1)"
        raise Refused(message, ("algorithm",))


def check_network(graph: NcclGraph, ranks: Ranks, topology: Topology) -> None:
    """Refused where the network between the nodes of `ranks` cannot add."""
    if graph.outside != "infiniband":
        raise Refused(f"SHARP needs InfiniBand switches; these nodes have {graph.outside}", _KEY)
    most = topology.once(("sharp streams", ranks), lambda: _streams(ranks, topology))
    if most > STREAMS:
        raise Refused(
            f"SHARP: {most} NICs of a node are on one leaf switch, which adds at most {STREAMS} "
            "streams at once; of family rail_optimized, a leaf has one NIC of each node",
            _KEY,
        )


def _streams(ranks: Ranks, topology: Topology) -> int:
    """The most NICs that the first node of `ranks` has on one leaf."""
    node = topology.node_of(ranks[0])
    leaves: dict[object, set[object]] = {}
    for gpu in members_of(ranks, topology).shape_of(node):
        rank = node * topology.gpus + gpu
        nic, leaf = path(Transfer(rank, aggregator(0), 0.0), topology)[-1]
        leaves.setdefault(leaf, set()).add(nic)
    return max(len(nics) for nics in leaves.values())
