"""What the model says about one measured collective, and what two simple baselines say.

A row's columns name a machine and a library; the machine is compiled by the same code as a
scenario's, the library is a backend.  Answers are kept, so a table asks each question once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from dpsim.accuracy.collective_table import Row
from dpsim.accuracy.platforms import platform
from dpsim.backends import Backend, Plan
from dpsim.backends.nccl import Nccl
from dpsim.cases.case import Case
from dpsim.collectives import OPERATIONS
from dpsim.collectives.ring import Ring
from dpsim.core import plugins
from dpsim.core.record import Refused, build
from dpsim.describe.scenario import load
from dpsim.machines.topology import Topology
from dpsim.play import check_time
from dpsim.predict.bottleneck import network_sizes

_VERSION = re.compile(r"\b[NR]CCL[ -]v?(\d+\.\d+(?:\.\d+)?)", re.IGNORECASE)
#: what tables write where nobody forced an algorithm or protocol
_FREE = ("", "auto", "default", "any", "none", "unknown", "not stated", "-")
#: operations of which no library has an estimate of its own
_UNTUNED = ("all_to_all", "send")
#: libraries by their own names, and the backends that stand for them
_LIBRARIES = (
    (r"\b[NR]CCL\b", "nccl"),
    (r"\bgloo\b", "gloo"),
    (r"\b(Open ?MPI|MPICH|OSU|MLSL|MPI)\b", "mpi"),
)


class Site(NamedTuple):
    """The columns that say which machine it was, as they stand in the table."""

    accelerator: str
    gpus_per_node: int
    nodes: int
    ranks: int
    fabric: str
    interconnect: str
    machine: str


class Question(NamedTuple):
    """What was timed, apart from its size and the machine's name."""

    site: Site
    library: str
    algorithm: str
    protocol: str
    operation: str
    size: int

    @classmethod
    def of(cls, row: Row) -> Question:
        site = Site(
            row.accelerator,
            row.gpus_per_node,
            row.nodes,
            row.ranks,
            row.fabric,
            row.interconnect,
            row.machine,
        )
        return cls(site, row.library, row.algorithm, row.protocol, row.operation, row.size)


@dataclass(frozen=True)
class Answer:
    """What the model says.

    latency, transfer  seconds without and with bytes on the move; the prediction is their sum
    bottleneck         a word of DESIGN's list: which of the network's parts takes most of it
    kind               what joins its ranks: the kind of link between nodes, else in the node
    alpha_beta, bare   seconds that the two baselines say; None: the library has no own estimate
    notes              what had to be assumed about the machine
    """

    latency: float
    transfer: float
    bottleneck: str
    kind: str
    alpha_beta: float
    bare: float | None
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        return self.latency + self.transfer


Answers = Mapping[Question, Answer | str]


def answers(questions: Iterable[Question], jobs: int = 1) -> Answers:
    """An Answer to each question, or why there is none; `jobs` processes share the machines."""
    by_site: dict[Site, list[Question]] = {}
    for question in dict.fromkeys(questions):
        by_site.setdefault(question.site, []).append(question)
    groups = sorted(by_site.values(), key=lambda group: -group[0].site.ranks)
    found: dict[Question, Answer | str] = {}
    if jobs == 1 or len(groups) < 2:
        for group in groups:
            found |= _group(group)
        return found
    with ProcessPoolExecutor(jobs) as pool:
        for part in pool.map(_group, groups):
            found |= part
    return found


def _group(questions: list[Question]) -> dict[Question, Answer | str]:
    """The answers about one machine, whose routes are worked out once."""
    found: dict[Question, Answer | str] = {}
    for question in questions:
        try:
            found[question] = _answer(question)
        except Refused as refusal:
            found[question] = refusal.message
    return found


def _answer(question: Question) -> Answer:
    if question.operation not in OPERATIONS:
        raise Refused(f"{question.operation} is not modelled; there are {', '.join(OPERATIONS)}")
    if question.size == 0:
        raise Refused("0 bytes are nothing to move")
    if question.site.ranks == 1:
        raise Refused("a rank alone communicates with nobody")
    backend = backend_of(question.library, question.algorithm, question.protocol)
    topology, notes = topology_of(question.site)
    plan = _plan(backend, question, topology)
    parts = network_sizes([plan])
    return Answer(
        latency=parts["network_latency"],
        transfer=parts["intra_node_network"] + parts["inter_node_network"],
        bottleneck=max(parts, key=lambda name: parts[name]),
        kind=kind_of(topology),
        alpha_beta=alpha_beta(question, topology),
        bare=_bare(backend, question, topology),
        notes=notes,
    )


def _bare(backend: Backend, question: Question, topology: Topology) -> float | None:
    """What NCCL's own constants say; None for another library, or an operation that NCCL has no
    estimate of."""
    if question.operation in _UNTUNED or not isinstance(backend, Nccl):
        return None
    return _plan(backend.bare(), question, topology).seconds


def _plan(backend: Backend, question: Question, topology: Topology) -> Plan:
    ranks = tuple(range(topology.ranks))
    plan = backend.plan(question.operation, ranks, float(question.size), topology)
    check_time(plan.seconds, f"{question.operation} of {question.size} bytes")
    if plan.seconds == 0:
        raise Refused(f"{question.library} has no time for {question.operation}")
    return plan


# -- who carries it out ---------------------------------------------------------------------------


@lru_cache(maxsize=256)
def backend_of(library: str, algorithm: str, protocol: str) -> Backend:
    """The backend that stands for `library`, with what the row states of its settings.

    Refused by name where no backend models it.
    """
    known = plugins.names("backends")
    name = next((b for pattern, b in _LIBRARIES if re.search(pattern, library, re.I)), None)
    if name is None or name not in known:
        models = "NCCL and RCCL are" + (", gloo is too" if "gloo" in known else "")
        raise Refused(f"{library} is not modelled; {models}")
    cls = plugins.find("backends", name)
    settings = {"algorithm": algorithm.lower().replace("nvlstree", "nvls_tree")}
    settings["protocol"] = protocol.lower()
    stated = {key: value for key, value in settings.items() if value not in _FREE}
    accepted = {field.name for field in fields(cls)}
    for key, value in stated.items():
        if key not in accepted:
            raise Refused(f"{key} {value} is not modelled for {library}")
    version = _VERSION.search(library)
    if version and "version" in accepted:
        stated["version"] = version[1]
    made: Backend = build(cls, stated, file=True)
    return made


# -- where ----------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def topology_of(site: Site) -> tuple[Topology, tuple[str, ...]]:
    """The machine of a row, compiled as a scenario's is, and what had to be assumed of it."""
    cluster, notes = cluster_of(site)
    data = {
        "model": {"layers": [{"name": "none", "forward": "0 s", "backward": "0 s"}]},
        "cluster": {**cluster, "ranks": site.ranks},
        "strategy": {"kind": "ddp"},
    }
    case = Case(load(data, Path(), "table").scenario, Path())
    topology = case.topology
    if topology is None:
        raise Refused(f"{site.accelerator} is on no machine")
    if topology.nodes != site.nodes and topology.gpus <= site.gpus_per_node:
        raise Refused(
            f"{site.ranks} ranks fill {topology.nodes} nodes of this machine, not {site.nodes}"
        )
    return topology, notes


def cluster_of(site: Site) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The scenario's `cluster` for a row; Refused where the machine is not known."""
    spread = site.nodes > 1
    found = platform(
        accelerator=site.accelerator,
        gpus_per_node=site.gpus_per_node,
        intra_node="" if spread else site.interconnect,
        inter_node=site.interconnect if spread else "",
        fabric=site.fabric,
        machine=site.machine,
    )
    used = -(-site.ranks // site.nodes)  # ranks may leave GPUs of every node idle
    cluster = dict(found.cluster)
    if used < site.gpus_per_node and cluster.get("gpus_per_node") == site.gpus_per_node:
        cluster["gpus_per_node"] = used
    # a network that nothing crosses needs no assumption
    return cluster, tuple(note for note in found.notes if spread or "network" not in note)


def kind_of(topology: Topology) -> str:
    """What joins the ranks: the kind of the cables between nodes, else of the wires in the node.

    NVLink into a switch is "nvswitch", as for the backend's constants.
    """
    route = topology.route(0, topology.ranks - 1)
    kinds = [(_ends(edge), topology.link(edge).kind) for edge in route]
    for place in ("leaf", "nvswitch"):
        for ends, kind in kinds:
            if place in ends:
                return kind if place == "leaf" else "nvswitch"
    inside = {kind for _, kind in kinds}
    return next((kind for kind in ("nvlink", "xgmi", "pcie") if kind in inside), "local")


# -- baselines ------------------------------------------------------------------------------------


def alpha_beta(question: Question, topology: Topology) -> float:
    """The textbook formula on the machine's nominal numbers [s].

    A ring: 2(n-1)(a + S/(nB)) for all-reduce, broadcast and reduce, half of it for all-gather and
    reduce-scatter.  An all-to-all is the latter too, n-1 messages of S/n; a send is a + S/B.
    `a` is the latency of the slowest hop of a ring; B is what a node's NICs send together, but not
    more than a GPU sends inside the node (of an all-to-all, a GPU's share of the NICs; of a send,
    the narrowest link of its way).
    """
    n, last = topology.ranks, topology.ranks - 1
    if question.operation == "send":
        way = [topology.link(edge) for edge in topology.route(0, last)]
        narrowest = min(link.bandwidth for link in way)
        return sum(link.latency for link in way) + question.size / narrowest
    gpus = min(topology.gpus, n)
    hops = [topology.route(0, 1), topology.route(gpus - 1, gpus % n)]
    links = [[topology.link(edge) for edge in route] for route in hops]
    latency = max(sum(link.latency for link in hop) for hop in links)
    narrow = [min(link.bandwidth for link in hop) for hop in links]
    bandwidth = narrow[0]
    if topology.nodes > 1:
        cables = [topology.link(edge) for edge in topology.route(0, last) if "nic" in _ends(edge)]
        outside = min(link.bandwidth for link in cables) * max(topology.nics, 1)
        if question.operation == "all_to_all":
            outside /= gpus
        bandwidth = min(narrow[0], outside) if gpus > 1 else outside
    like = "all_gather" if question.operation == "all_to_all" else question.operation
    return Ring().seconds(like, n, float(question.size), latency, bandwidth)


def _ends(edge: Any) -> tuple[str, str]:
    return edge[0][0], edge[1][0]
