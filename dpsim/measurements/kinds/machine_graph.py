"""GraphML and node-link JSON: a node as a graph, by dpsim, NetworkX or by hand.

Layout: NetworkX `write_graphml` and `node_link_data`; names and attributes as
`dpsim.machines.exchange` has them, which `dpsim show MACHINE -o node.graphml` writes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsim.core import plugins
from dpsim.core.deferred import nx
from dpsim.core.record import Refused, dump
from dpsim.core.yamlfile import dump_yaml
from dpsim.machines.exchange import machine_of, read_graph
from dpsim.machines.machine import load_machine
from dpsim.measurements.importing import require_machine
from dpsim.measurements.importing.facts import many
from dpsim.measurements.kinds import Account, Entry, Kind, Wishes, capped, head_text

if TYPE_CHECKING:
    import networkx

_INSIDE = re.compile(r"(node\d+)/(.+)")
_LINKED = re.compile(r'"(directed|multigraph)"\s*:\s*(true|false)')


class MachineGraph(Kind):
    """The vertices and wires of one node."""

    title = "graph of a node (GraphML, node-link JSON)"
    rank = 45  # GraphML is XML, as NCCL's topology

    def claims(self, path: Path, head: bytes) -> bool:
        text = head_text(head)
        if text.lstrip()[:1] == "<":
            return "<graphml" in text[:4096]
        return text.lstrip()[:1] == "{" and _LINKED.search(text) is not None

    def read(self, path: Path, wanted: Wishes) -> Account:
        whole = read_graph(path)
        graph, told = _one_node(whole)
        like = load_machine(wanted.machine).network if wanted.machine else None
        network: dict[str, Any] | None = None
        if like is not None:
            network = {"family": plugins.name_of(like), **dump(like)}
            told.append(Entry("assumed", f"what joins nodes: as {wanted.machine} (--machine)"))
        else:
            told.append(Entry("ignored", "what joins nodes: --machine NAME takes it from there"))
        asked, name = wanted.device or None, wanted.name
        document = machine_of(graph, device=asked, name=name, network=network)
        require_machine(dump_yaml(document), nodes=1)
        for key in ("device", "gpus_per_node", "nics_per_node"):
            how = " (--device)" if key == "device" and asked else ""
            told.append(Entry("taken", f"{key}: {document[key]}{how}"))
        links = document["node"]["links"]
        kinds = ", ".join(dict.fromkeys(link["kind"] for link in links))
        told.append(Entry("taken", f"{many(len(links), 'wire')}: {kinds}"))
        used = "cluster: {machine: FILE, nodes: N}"
        return Account(path.name, self.title, capped(told), "machine", document, advice=used)


def _one_node(graph: networkx.Graph[Any]) -> tuple[networkx.Graph[Any], list[Entry]]:
    """The graph of one node: all of it, or the first of several that are alike."""
    told = [Entry("taken", f"a graph of {len(graph)} vertices and {len(graph.edges)} edges")]
    nodes: dict[str, dict[str, str]] = {}
    for vertex in graph:
        if found := _INSIDE.fullmatch(str(vertex)):
            nodes.setdefault(found[1], {})[str(vertex)] = found[2]
    if not nodes:
        return graph, told
    (first, names), *others = nodes.items()
    one = _part(graph, names)
    for other, called in others:
        if not _same(one, _part(graph, called)):
            raise Refused(f"{first} and {other} differ; a machine is made of nodes that are alike")
    told.append(Entry("taken", f"{first}; all {len(nodes)} nodes are alike"))
    return one, told


def _part(graph: networkx.Graph[Any], names: Mapping[str, str]) -> networkx.Graph[Any]:
    """The vertices with `names`, called so, in the order of `graph`."""
    part: networkx.Graph[Any] = nx.DiGraph() if graph.is_directed() else nx.Graph()
    part.graph.update(graph.graph)
    part.add_nodes_from((called, graph.nodes[vertex]) for vertex, called in names.items())
    for a, b, more in graph.edges(data=True):
        if a in names and b in names:
            part.add_edge(names[a], names[b], **more)
    return part


def _same(one: networkx.Graph[Any], other: networkx.Graph[Any]) -> bool:
    """Whether two nodes have the same vertices and wires."""
    directed = one.is_directed()  # else a wire's ends come in the order of the vertices
    edges = (
        {(a, b) if directed or a <= b else (b, a): more for a, b, more in graph.edges(data=True)}
        for graph in (one, other)
    )
    return set(one) == set(other) and next(edges) == next(edges)
