"""What the model says about one measured collective, and what two simple baselines say.

A row's columns name a machine and a library; the machine is compiled by the same code as a
scenario's, the library is a backend.  Estimates are kept, so a table asks each question once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

from dpsim.accuracy import mixture
from dpsim.accuracy.collectives.table import CollectiveRow, StatedMachine
from dpsim.accuracy.described import described
from dpsim.accuracy.platforms import MachineReading, Platform, bare_case, platform
from dpsim.accuracy.rules import meaning
from dpsim.accuracy.words import vocabulary
from dpsim.core import plugins, told
from dpsim.core.processes import pool
from dpsim.core.record import Refused, build
from dpsim.machines.fabrics.processors import Processors
from dpsim.machines.topology import Topology
from dpsim.predict import collective, collective_error
from dpsim.predict.collective_error import MESSAGES


class Question(NamedTuple):
    """What was timed, apart from its size and the machine's name."""

    stated: StatedMachine
    library: str
    algorithm: str
    protocol: str
    operation: str
    size: int

    @classmethod
    def of(cls, row: CollectiveRow) -> Question:
        stated = StatedMachine(**{f.name: getattr(row, f.name) for f in fields(StatedMachine)})
        return cls(stated, row.library, row.algorithm, row.protocol, row.operation, row.size)


@dataclass(frozen=True)
class ReadingTime:
    """What the model says under one reading: its probability, seconds, the share of them that is
    latency, and kind (see `Estimate`)."""

    weight: float
    seconds: float
    latency: float
    kind: str

    def part(self, apart: bool) -> mixture.MixturePart:
        low, high = collective_error.interval(self.kind, self.latency, apart)
        return mixture.MixturePart(
            self.weight, self.seconds, self.seconds * low, self.seconds * high
        )


@dataclass(frozen=True)
class Estimate:
    """What the model says.

    latency, transfer  seconds without and with bytes on the move; the prediction is their sum
    bottleneck         a word of DESIGN's list: which of the network's parts takes most of it
    kind               what joins its ranks: the kind of link between nodes, else in the node; MPI
                       is one of its own over all of them, for its hosts take more than links
    alpha_beta, bare   seconds that the two baselines say; None: the library has no own estimate
    notes              what had to be assumed about the machine
    readings           what each reading of the machine's words says, the usual one first
    machine            the machine in words, with all that is assumed
    """

    latency: float
    transfer: float
    bottleneck: str
    kind: str
    alpha_beta: float
    bare: float | None
    notes: tuple[str, ...] = ()
    readings: tuple[ReadingTime, ...] = ()
    machine: str = ""

    @property
    def seconds(self) -> float:
        return self.latency + self.transfer

    def ends(self, apart: bool) -> tuple[float, float]:
        """The interval as two factors around the prediction: each reading's own, mixed; `apart`
        says that ranks are on several nodes."""
        if len(self.readings) < 2:
            return collective_error.interval(self.kind, self.latency / self.seconds, apart)
        low, high = mixture.bounds([r.part(apart) for r in self.readings])
        return low / self.seconds, high / self.seconds


#: what explains the name of an algorithm
_BRACKETS = re.compile(r"\s*\(.*\)$")
Estimates = Mapping[Question, Estimate | str]


def estimates(
    questions: Iterable[Question], jobs: int = 1, tell: told.Told = told.nobody
) -> Estimates:
    """An Estimate for each question, or why there is none; `jobs` processes share the machines."""
    by_machine: dict[StatedMachine, list[Question]] = {}
    for question in dict.fromkeys(questions):
        by_machine.setdefault(question.stated, []).append(question)
    groups = sorted(by_machine.values(), key=lambda group: -group[0].stated.ranks)
    found: dict[Question, Estimate | str] = {}
    if jobs == 1 or len(groups) < 2:
        for group in told.counted(groups, tell):
            found |= _group(group)
        return found
    with pool(min(jobs, len(groups))) as processes:
        for part in told.counted_of(len(groups), processes.map(_group, groups), tell):
            found |= part
    return found


def _group(questions: list[Question]) -> dict[Question, Estimate | str]:
    """The estimates on one machine, whose routes are worked out once for every reading of it."""
    stated = questions[0].stated
    try:
        found = platform_of(stated)
    except Refused as refusal:
        return dict.fromkeys(questions, refusal.message)
    known: dict[Question, list[Estimate | str]] = {question: [] for question in questions}
    for reading in found.readings:
        for question in questions:
            known[question].append(_tried(question, reading.cluster))
    return {question: _mixed(question, found, each) for question, each in known.items()}


def _tried(question: Question, cluster: Mapping[str, Any]) -> Estimate | str:
    try:
        return _estimate(question, cluster)
    except Refused as refusal:
        return refusal.message


def _mixed(
    question: Question, found: Platform, estimates: Sequence[Estimate | str]
) -> Estimate | str:
    """One estimate out of all readings: the usual one's, moved to the mixture's point."""
    own = [
        (reading, estimate)
        for reading, estimate in zip(found.readings, estimates, strict=True)
        if isinstance(estimate, Estimate)
    ]
    if not own:
        return str(estimates[0])
    readings = tuple(
        ReadingTime(r.weight, e.seconds, e.latency / e.seconds, e.kind) for r, e in own
    )
    parts = [reading.part(question.stated.nodes > 1) for reading in readings]
    first = own[0][1]
    moved = mixture.point(parts) / first.seconds
    left = Platform(tuple(reading for reading, _ in own))
    crossed = question.stated.nodes > 1
    return replace(
        first,
        latency=first.latency * moved,
        transfer=first.transfer * moved,
        notes=left.notes,
        readings=readings,
        machine=described(left, [e.seconds for _, e in own], crossed),
    )


def _estimate(question: Question, cluster: Mapping[str, Any]) -> Estimate:
    if why := collective.unmodelled(question.operation):
        raise Refused(why)
    if question.size == 0:
        raise Refused("0 bytes are nothing to move")
    if question.stated.ranks == 1:
        raise Refused("a rank alone communicates with nobody")
    topology = topology_for(question.stated, json.dumps(cluster))
    hosts = isinstance(topology.fabric, Processors)
    backend = backend_of(question.library, question.algorithm, question.protocol, hosts)
    hosted = isinstance(backend, plugins.find("backends", "mpi"))
    found = collective.timing(backend, question.operation, question.size, topology)
    if found.seconds == 0:
        raise Refused(f"{question.library} has no time for {question.operation}")
    return Estimate(
        latency=found.latency,
        transfer=found.transfer,
        bottleneck=found.bottleneck,
        kind="mpi" if hosted else collective.kind_of(topology),
        alpha_beta=alpha_beta(question, topology),
        bare=_bare(backend, question, topology),
    )


def _bare(backend: Any, question: Question, topology: Topology) -> float | None:
    """What NCCL's own constants say; None for another library, or an operation that NCCL has no
    estimate of."""
    if question.operation in MESSAGES or not isinstance(backend, plugins.find("backends", "nccl")):
        return None
    return collective.timing(backend.bare(), question.operation, question.size, topology).seconds


# -- who carries it out ---------------------------------------------------------------------------


@lru_cache(maxsize=256)
def backend_of(library: str, algorithm: str, protocol: str, hosts: bool = False) -> Any:
    """The backend (a plug-in) that stands for `library`, with what the row states of its settings;
    `hosts` says that ranks are processes whose memory is the host's.

    Refused by name where no backend models it.
    """
    words, known = vocabulary().collectives, plugins.names("backends")
    name = meaning(words.libraries, library.lower())
    if name is None or name not in known:
        models = "NCCL and RCCL are" + (", gloo is too" if "gloo" in known else "")
        raise Refused(f"{library} is not modelled; {models}")
    cls = plugins.find("backends", name)
    plain = _BRACKETS.sub("", algorithm.lower())
    settings = {"algorithm": words.algorithms.get(plain, plain), "protocol": protocol.lower()}
    stated = {key: value for key, value in settings.items() if value not in words.free}
    accepted = {field.name for field in fields(cls)}
    for key, value in stated.items():
        if key not in accepted:
            raise Refused(f"{key} {value} is not modelled for {library}")
    version = words.version.search(library.lower())
    if version and "version" in accepted:
        stated["version"] = version[1]
    if name == "mpi":
        stated |= _mpi_settings(library.lower(), hosts)
    return build(cls, stated, file=True)


def _mpi_settings(library: str, hosts: bool) -> dict[str, Any]:
    """Which MPI it is, and whose rules choose: Cray's is made from MPICH 3 (its release notes).
    Only a library that knows GPUs' memory can be timed on it."""
    words = vocabulary().collectives
    found: dict[str, Any] = {"buffers": "host"} if hosts else {"cuda_aware": True}
    if words.mpich.search(library):
        return found | {"implementation": "mpich", "version": "3"}
    return found | ({"version": "4.0"} if words.open_mpi_4.search(library) else {})


# -- where ----------------------------------------------------------------------------------------


def topology_of(stated: StatedMachine) -> tuple[Topology, tuple[str, ...]]:
    """The machine of a row as it is usually read, compiled as a scenario's is, and what had to be
    assumed of it."""
    found = platform_of(stated)
    return topology_for(stated, json.dumps(found.cluster)), found.notes


@lru_cache(maxsize=1)
def topology_for(stated: StatedMachine, cluster: str) -> Topology:
    """The machine of a row, compiled as a scenario's is; `cluster` is a reading's, as JSON."""
    topology = bare_case({**json.loads(cluster), "ranks": stated.ranks}).topology
    if topology is None:
        raise Refused(f"{stated.accelerator} is on no machine")
    if topology.nodes != stated.nodes and topology.gpus <= stated.gpus_per_node:
        raise Refused(
            f"{stated.ranks} ranks fill {topology.nodes} nodes of this machine, not {stated.nodes}"
        )
    return topology


def platform_of(stated: StatedMachine) -> Platform:
    """What a row says of its machine; Refused where it is not known."""
    spread = stated.nodes > 1
    found = platform(
        accelerator=stated.accelerator,
        gpus_per_node=stated.gpus_per_node,
        intra_node="" if spread else stated.interconnect,
        inter_node=stated.interconnect if spread else "",
        fabric=stated.fabric,
        machine=stated.machine,
        nodes=stated.nodes,
        ranks=stated.ranks,
    )
    used = -(-stated.ranks // stated.nodes)  # ranks may leave GPUs of every node idle
    return Platform(tuple(_in_use(reading, used, stated) for reading in found.readings))


def _in_use(reading: MachineReading, used: int, stated: StatedMachine) -> MachineReading:
    cluster = dict(reading.cluster)
    if used < stated.gpus_per_node and cluster.get("gpus_per_node") == stated.gpus_per_node:
        cluster["gpus_per_node"] = used
    return replace(reading, cluster=cluster)


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
        cables = [
            topology.link(edge) for edge in topology.route(0, last) if "nic" in (v[0] for v in edge)
        ]
        outside = min(link.bandwidth for link in cables) * max(topology.nics, 1)
        if question.operation == "all_to_all":
            outside /= gpus
        bandwidth = min(narrow[0], outside) if gpus > 1 else outside
    passes = 1 if question.operation in ("all_gather", "reduce_scatter", "all_to_all") else 2
    return passes * (n - 1) * (latency + question.size / (n * bandwidth))
