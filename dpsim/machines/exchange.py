"""Topologies as graphs for other programs: NetworkX, GraphML and node-link JSON, out and in.

A vertex is called ``gpu0``, ``nic3``, ``nvswitch0``, ``pcie1``, ``socket0`` or ``sw0``; in a graph
of several nodes ``node2/gpu0``, and outside of them ``leaf0``, ``spine1``.  Vertices have the
attributes `kind` and `node`, edges `bandwidth_bytes_per_s` (one way), `latency_s` and `kind`.

>>> graph = machine_graph("dual-root-pcie3")
>>> graph.edges["gpu0", "pcie0"]["bandwidth_bytes_per_s"]
12000000000.0
>>> machine_of(graph)["gpus_per_node"]
8
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsim._version import __version__
from dpsim.core import units, yamlfile
from dpsim.core.deferred import nx
from dpsim.core.files import STANDARD, read_bytes
from dpsim.core.outputs import marked, write_files
from dpsim.core.record import Refused, build
from dpsim.machines.devices import Device, Link
from dpsim.machines.fabrics import Vertex
from dpsim.machines.machine import Machine, device_names, load_device, load_machine

if TYPE_CHECKING:
    import networkx

#: what vertices of a node are called where dpsim's own word is longer
_SHORT = {"switch": "sw"}
_NAME = re.compile(r"(gpu|nic|nvswitch|pcie|socket|sw)(\d+)")
#: the largest file that is read
MAX_BYTES = 20_000_000
#: what a node's vertex is outside of all nodes
OUTSIDE = -1


def machine_graph(machine: str | Path, nodes: int = 1) -> networkx.DiGraph[str]:
    """So many nodes of `machine`, a bundled name or a file, as a NetworkX graph with plain names
    and numbers.  Raises Refused where there is no such machine."""
    found = load_machine(str(machine), Path())
    whole = found.topology(nodes).graph
    graph: networkx.DiGraph[str] = nx.DiGraph(
        machine=found.name, device=_device_name(found.device), nodes=nodes
    )
    for vertex in whole:
        node = OUTSIDE if vertex[0] in ("leaf", "spine") else vertex[1]
        graph.add_node(_called(vertex, nodes), kind=vertex[0], node=node)
    for a, b, attributes in whole.edges(data=True):
        link: Link = attributes["link"]
        graph.add_edge(
            _called(a, nodes), _called(b, nodes),
            bandwidth_bytes_per_s=link.bandwidth, latency_s=link.latency, kind=link.kind,
        )  # fmt: skip
    return graph


def _device_name(device: Device) -> str:
    """What machine files call `device`; its own name where none is bundled."""
    return next((name for name in device_names() if load_device(name) == device), device.name)


def _called(vertex: Vertex, nodes: int) -> str:
    kind, place = str(vertex[0]), vertex[1:]
    if kind in ("leaf", "spine"):
        return kind + "-".join(map(str, place))
    name = f"{_SHORT.get(kind, kind)}{place[1]}"
    return name if nodes == 1 else f"node{place[0]}/{name}"


def machine_of(
    graph: networkx.Graph[Any] | str | Path,
    *,
    device: str | None = None,
    name: str = "",
    network: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
) -> dict[str, Any]:
    """The machine file of a node that `graph`, or a GraphML or node-link JSON file, describes.

    graph    directed, or not; its names as above, of one node.  Bandwidths are one way: numbers
             [B/s] under `bandwidth_bytes_per_s`, or texts with a unit under `bandwidth`
    device   which GPU it is; None: what the graph's attribute `device` says
    network  what joins several nodes, as a machine file says it: ``{"family": "star", "link": …}``
    out      the .yaml file that is written, for `cluster.machine`

    Raises Refused, naming vertex or edge, where a graph is no node that dpsim can play.
    """
    found = read_graph(graph) if isinstance(graph, str | Path) else graph
    said = device or found.graph.get("device")
    if not said:
        raise Refused("device is missing: which GPU it is, as h100-sxm")
    _ = load_device(str(said))
    names = [_named(vertex) for vertex in found]
    _check_alike(found, str(said))
    document: dict[str, Any] = {
        "name": name or str(found.graph.get("machine") or "from-graph"),
        "device": str(said),
        "gpus_per_node": sum(one.startswith("gpu") for one in names),
        "nics_per_node": sum(one.startswith("nic") for one in names),
        "node": {"family": "explicit", "vertices": names, "links": _wires(found)},
    }
    if network is not None:
        document["network"] = dict(network)
    build(Machine, {**document, "device": load_device(str(said))}, file=True).topology(1)
    if out is not None:
        _save(document, Path(out))
    return document


def _named(vertex: object) -> str:
    if not isinstance(vertex, str) or not _NAME.fullmatch(vertex):
        raise Refused(
            f"vertex {str(vertex)[:60]!r} is not called gpu0, nic0, nvswitch0, pcie0, socket0 or "
            "sw0; a machine is made of the graph of one node"
        )
    return vertex


def _check_alike(graph: networkx.Graph[Any], device: str) -> None:
    """Refuse a vertex that says it is another device: a machine has one, whatever its wires."""
    for vertex, attributes in graph.nodes(data=True):
        own = attributes.get("device", device)
        if own != device:
            raise Refused(
                f"vertex {vertex} is a {str(own)[:60]}, and the machine's device is {device}; the "
                "GPUs of a machine are alike, others go into a machine file of their own"
            )


def _wires(graph: networkx.Graph[Any]) -> list[dict[str, str]]:
    """Each wire once; Refused where its two directions differ."""
    wires: dict[tuple[str, str], dict[str, str]] = {}
    for a, b, attributes in graph.edges(data=True):
        wire = _wire(attributes, f"edge {a} – {b}")
        back = wires.get((b, a))
        if back is not None and back != wire:
            raise Refused(f"edge {a} – {b}: its two directions differ; wires are full duplex")
        if back is None:
            wires[a, b] = wire
    return [{"from": a, "to": b, **wire} for (a, b), wire in wires.items()]


def _wire(attributes: Mapping[str, Any], place: str) -> dict[str, str]:
    """Bandwidth, latency and kind as a machine file has them."""
    try:
        rate = _quantity(attributes, "bandwidth", "bandwidth_bytes_per_s", "B/s")
        wait = _quantity(attributes, "latency", "latency_s", "s", missing=0.0)
    except ValueError as error:
        raise Refused(f"{place}: {error}") from None
    kind = str(attributes.get("kind", "local"))
    return {"bandwidth": rate, "latency": wait, "kind": kind}


def _quantity(
    attributes: Mapping[str, Any], text: str, number: str, unit: str, missing: float | None = None
) -> str:
    """A quantity as text with its unit: from a text, or from a number in SI units."""
    if text in attributes:
        return str(units.exact(units.parse(str(attributes[text]), unit), unit))
    value = attributes.get(number, missing)
    if value is None:
        raise ValueError(f"has no {number} (a number), nor {text} (a text with a unit)")
    return str(units.exact(float(value), unit))


def _save(document: Mapping[str, Any], out: Path) -> None:
    if out != STANDARD and out.suffix not in (".yaml", ".yml"):
        raise Refused(f"out {out}: a machine file's name ends in .yaml")
    write_files({out: marked("import", yamlfile.dump_yaml(dict(document))).encode()})


# -- files ----------------------------------------------------------------------------------------


def read_graph(path: str | Path) -> networkx.Graph[Any]:
    """The graph in a GraphML file, or in one of node-link JSON.  Raises Refused for others."""
    raw = read_bytes(Path(path), MAX_BYTES)
    text = raw.decode("utf-8", errors="replace").lstrip("\ufeff").lstrip()
    try:
        if text[:1] not in ("<", "{"):
            wide = raw[:2] in (b"\xff\xfe", b"\xfe\xff")
            said = "it is UTF-16, and UTF-8 is read" if wide else "it begins with neither < nor {"
            raise Refused(said)
        return _marked_up(text) if text[0] == "<" else _linked(json.loads(text))
    except KeyError as error:
        said = f"{str(error)[:60]} is missing or unknown in it"
    except (TypeError, AttributeError):
        said = "it is not laid out as NetworkX's node_link_data is"
    except (ValueError, SyntaxError, nx.NetworkXException) as error:
        said = str(error)[:200]
    raise Refused(f"{path}: is neither GraphML nor node-link JSON: {said}")


def _marked_up(text: str) -> networkx.Graph[Any]:
    """The graph of GraphML, each value of which is what its key says."""
    from defusedxml import DefusedXmlException, ElementTree  # before NetworkX sees the text

    try:
        root = ElementTree.fromstring(text)
    except DefusedXmlException:
        raise Refused("it declares entities, which are not read; take them out") from None
    keys = {key.get("id"): key for key in root.iterfind(".//{*}key")}
    for one in (*root.iterfind(".//{*}node"), *root.iterfind(".//{*}edge")):
        ends = f"edge {one.get('source')} – {one.get('target')}"
        place = ends if one.tag.endswith("edge") else f"node {one.get('id')}"
        for data in one.iterfind("{*}data"):
            _check_value(keys.get(data.get("key")), data.text or "", place)
    found: networkx.Graph[Any] = nx.parse_graphml(text)
    return found


def _check_value(key: Any, text: str, place: str) -> None:
    """Refuse a text that is no number where its key wants one."""
    kind = "" if key is None else key.get("attr.type", "")
    if kind not in ("int", "long", "float", "double"):
        return
    try:
        _ = int(text) if kind in ("int", "long") else float(text)
    except ValueError:
        wanted = "a whole number" if kind in ("int", "long") else "a number"
        name = key.get("attr.name", key.get("id"))
        raise Refused(f"{place[:90]}: {name} {text[:40]!r} is not {wanted}") from None


def _linked(data: Mapping[str, Any]) -> networkx.Graph[Any]:
    """The graph of node-link data, whose edges NetworkX has called links, then edges."""
    found: networkx.Graph[Any] = nx.DiGraph() if data.get("directed") else nx.Graph()
    found.graph.update(data.get("graph") or {})
    for node in data["nodes"]:
        found.add_node(node["id"], **{k: v for k, v in node.items() if k != "id"})
    for edge in data["links"] if "links" in data else data["edges"]:
        ends = edge["source"], edge["target"]
        found.add_edge(*ends, **{k: v for k, v in edge.items() if k not in ("source", "target")})
    return found


def write_graph(graph: networkx.DiGraph[str], out: str | Path) -> None:
    """Write `graph` to a file whose name ends in .graphml or .json."""
    path = Path(out)
    write_files({path: graph_text(graph, path.suffix).encode()})


def graph_text(graph: networkx.DiGraph[str], suffix: str) -> str:
    """`graph` as GraphML (".graphml") or node-link JSON (".json")."""
    if suffix == ".graphml":
        head, *rest = nx.generate_graphml(graph)
        return "\n".join([head, "<!-- Written by dpsim -->", *rest]) + "\n"
    if suffix == ".json":
        nodes = [{**attributes, "id": node} for node, attributes in graph.nodes(data=True)]
        links = [{**more, "source": a, "target": b} for a, b, more in graph.edges(data=True)]
        head = {"dpsim_version": __version__, "directed": True, "multigraph": False,
                "graph": graph.graph}  # fmt: skip
        return json.dumps({**head, "nodes": nodes, "links": links}, indent=2) + "\n"
    raise Refused(f"{suffix or 'no ending'}: .graphml and .json are what graphs are written as")
