"""Fabrics: what is wired to what, as a NetworkX graph.

Two kinds of plug-in live here, told apart by their contract:

`NodeFabric`  the inside of one node (``nvswitch``, ``hybrid_cube_mesh``, ``pcie_tree``).  It adds
              GPUs, switches, NICs and links of one node to a graph.
`Network`     what joins the nodes (``star``, ``fat_tree``, ``rail_optimized``).  It adds switches
              and cables between the NICs of all nodes, and knows its own routes.

Vertices are tuples: ``("gpu", node, i)``, ``("nic", node, j)``, ``("nvswitch", node, k)``,
``("pcie", node, k)``, ``("socket", node, k)``, ``("switch", node, k)`` and, outside the nodes,
``("leaf", k)`` (by rail: ``("leaf", group, rail)``) and ``("spine", k)``; each has the attribute
`kind` (its first part).  Edges are directed and carry `link`, a
:class:`dpsim.machines.devices.Link` whose bandwidth is **one way**.  Parallel wires of one pair are
one edge with the summed bandwidth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsim.core.deferred import nx
from dpsim.core.record import Refused

if TYPE_CHECKING:
    from dpsim.machines.cables import Cables

Vertex = tuple[Any, ...]
Edge = tuple[Vertex, Vertex]


class Fabric:
    """What both contracts share: the scenario key that names the plug-in."""

    tag = "family"


class NodeFabric(Fabric):
    """Contract: the inside of one node.

    `staged` tells that GPUs without a link of their own reach each other through the node's memory
    only (no peer-to-peer access over PCIe); `most` is how many of them a node has at most.
    """

    staged = False
    most = 1024

    def sliced(self, shape: tuple[int, ...]) -> NodeFabric:
        """The same with slices of that shape.  Refused where there are none."""
        raise Refused("is for slices of TPUs", ("cluster", "slice"))

    def build(self, graph: nx.DiGraph[Vertex], node: int, gpus: int, nics: int) -> None:
        """Add node number `node` with `gpus` GPUs and `nics` NICs to `graph`.

        Raises ValueError where this family cannot have that many GPUs.
        """
        raise NotImplementedError

    def nic_of(self, gpu: int, gpus: int, nics: int) -> int:
        """The NIC that GPU number `gpu` of a node uses for traffic that leaves the node."""
        return gpu * nics // gpus

    def nics_of(self, gpus: int, nics: int) -> int:
        """How many of the `nics` that a machine file states for a node are there where `gpus` of
        its GPUs are."""
        return nics

    def path(self, source: Vertex, target: Vertex, gpus: int, nics: int) -> list[Vertex] | None:
        """The vertices from `source` to `target`, GPUs or NICs of one node with so many of them,
        both included; None: dpsim finds them (see `Topology.route`)."""
        return None


class Network(Fabric):
    """Contract: the cables and switches between nodes.

    `rails` tells that NIC j of all nodes share switches, so that a message does best to leave its
    node through the NIC with the number of the NIC that it arrives at.
    """

    rails = False

    def settled(self, nics: int) -> Network:
        """This network with what follows from the number of NICs of a node filled in.

        Raises Refused where it cannot be.
        """
        return self

    def balanced(self) -> Network:
        """This network as one that spreads traffic evenly over equal paths: what a library that
        plans its transfers can know of it."""
        return self

    def build(self, graph: nx.DiGraph[Vertex], nodes: int, nics: int) -> None:
        """Join NICs 0 … `nics` - 1 of nodes 0 … `nodes` - 1."""
        raise NotImplementedError

    def route(self, source: Vertex, target: Vertex) -> tuple[Vertex, ...]:
        """The vertices from NIC `source` to NIC `target`, both included."""
        raise NotImplementedError

    def cables(self, nodes: int, nics: int) -> Cables | None:
        """The rule by which NICs 0 … `nics` - 1 of `nodes` nodes are joined, for many messages at
        once; None where there is none: then messages are routed one by one, over the graph."""
        return None


CONTRACT = Fabric
