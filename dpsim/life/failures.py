"""What breaks, how often, and what it takes along."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

from dpsim.core import units
from dpsim.core.lean import dataclass
from dpsim.core.record import Check, Count, Refused, Text, build, record

#: a mean time between failures: of a part that rarely breaks it is a thousand years
Mtbf = Annotated[float, units.Unit("s", high=1e12, above=True)]
Span = Annotated[float, units.Unit("s", high=1e9, above=True)]
PresetName = Literal["llama3-16k", "meta-rsc-1", "meta-rsc-2", "mlcommons"]
#: components of which every node has its own: when one breaks, its node does
OF_A_NODE = ("gpu", "nic", "host", "node")
#: what the whole job has in common: the job starts again on the nodes that it has
OF_THE_JOB = ("switch", "storage", "software")
#: what comes otherwise than by breaking
OTHERS = ("preemption", "maintenance", "slow", "corruption")
#: what nodes have in common cannot be called so: what broke is counted by name
RESERVED = (*OF_A_NODE, *OF_THE_JOB, *OTHERS, "interruptions")


@record
class FailureCause:
    """How often one component breaks.

    mtbf          mean time between failures of one of them
    distribution  of the time until one breaks; with weibull and lognormal it depends on its age,
                  and whatever takes its place is new
    shape         k of weibull (below 1: new ones break more often), sigma of lognormal
    """

    mtbf: Mtbf
    distribution: Literal["exponential", "weibull", "lognormal"] = "exponential"
    shape: Annotated[float, units.Unit("1", low=0.2, high=20.0)] | None = None

    def __post_init__(self) -> None:
        if (self.distribution == "exponential") != (self.shape is None):
            said = "is for weibull and lognormal" if self.shape else "is missing: k, or sigma"
            raise Refused(said, ("shape",))


@record
class SharedCause:
    """What takes several nodes at once: a rack, a power feed.

    nodes  that have one in common, and break with it
    mtbf   mean time between failures of one of them
    """

    nodes: Count
    mtbf: Mtbf


@record
class BadNodes:
    """Nodes that break more often than others, until they are mended.

    share   of all nodes, spare ones too, that are bad at the beginning
    factor  how many times as often as a good one a bad one breaks
    """

    share: units.Fraction
    factor: Annotated[float, units.Unit("1", low=1.0, high=1e4)]


@record
class Interruptions:
    """A rate as it was counted on a cluster: per device the same holds here.

    count    interruptions
    over     the time in which they were counted
    devices  of the job that was interrupted
    """

    count: Annotated[int, Check(1, 10**9)]
    over: Span
    devices: Count


_PER = re.compile(r"(.+?)\s*(?:/|per)\s*(?:1\s*)?(s|min|h|d)\s*")


@dataclass(frozen=True)
class PerTime(units.Unit):
    """Marks how often something happens: ``5 %/h``, ``0.2/d``; inside times a second."""

    dimension: str = "1/s"
    high: float = 1e6
    above: bool = True

    def take(self, value: Any, file: bool) -> float:
        if not file and isinstance(value, float):
            return super().take(value, file)
        found = _PER.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            raise ValueError(f"{str(value)[:60]!r} is no rate; write '5 %/h' or '0.2/d'")
        return super().take(f"{found[1]}/{found[2]}", file)

    def json_schema(self) -> dict[str, Any]:
        return {"type": "string", "examples": ["5 %/h", "0.2/d"]}


@record
class Preemption:
    """Spot nodes are taken away, and come back.  `price` says what they cost: `spot: true` of a
    price list, or a price of its own.

    mtbf    mean time until one of them is taken away
    rate    the same as a share in a time: `5 %/h`
    nodes   that go together
    notice  from knowing that one goes until it is gone: where all can be saved in it, nothing is
            lost.  AWS says 2 min, Azure and Google Cloud 30 s (their pages on spot instances)
    back    mean time until there is another one, exponential
    """

    mtbf: Mtbf | None = None
    rate: Annotated[float, PerTime()] | None = None
    nodes: Count = 1
    notice: units.Seconds = 0.0
    back: units.Seconds = 0.0

    def __post_init__(self) -> None:
        if (self.mtbf is None) == (self.rate is None):
            raise Refused("needs either mtbf or rate", ("mtbf",))

    @property
    def between(self) -> float:
        """Mean time until one of them is taken away [s]."""
        return self.mtbf if self.mtbf is not None else 1.0 / (self.rate or math.inf)


@record
class Maintenance:
    """Windows of maintenance that are known before: the job saves everything, and stops.

    every  from the beginning of the run, and from one to the next
    takes  for which the job stands still; then it starts anew
    """

    every: Span
    takes: units.Seconds


@record
class SlowNodes:
    """Nodes become slow, and the job with them, until that is seen and they are replaced: then the
    job goes back to its last checkpoint.

    mtbf       mean time until a node does
    factor     how much longer a step takes while one or more are slow
    detection  until it is seen; all that are slow by then go
    """

    mtbf: Mtbf
    factor: Annotated[float, units.Unit("1", low=1.0, high=1e4)]
    detection: units.Seconds


@record
class Corruption:
    """Data are corrupted silently; once it is seen the node is replaced, and the job goes back to a
    checkpoint in the last place from before it began.  All of these are kept.

    mtbf       mean time until it begins on a node
    detection  until it is seen
    """

    mtbf: Mtbf
    detection: units.Seconds


@record
class Failures:
    """What interrupts the job.  Points then have `goodput`, `badput` and `time_to_train_s` in the
    mean over drawn runs.

    gpu, nic, host, node        components of every node: the node breaks with them
    switch, storage, software   of the job as a whole: it starts again on the same nodes
    shared         by name, what several nodes have in common: `{rack: {nodes: 8, mtbf: 5 d}}`
    interruptions  a rate that was counted somewhere else, of all causes together
    preset         a published rate by name; keys that are given replace the preset's
    preemption, maintenance  what stops the job with notice
    slow, corruption  what goes wrong unseen
    bad            nodes that break more often than others
    during         `always`, or only while the job is `running`, not while it recovers
    runs           how many runs are drawn
    """

    gpu: FailureCause | None = None
    nic: FailureCause | None = None
    host: FailureCause | None = None
    node: FailureCause | None = None
    switch: FailureCause | None = None
    storage: FailureCause | None = None
    software: FailureCause | None = None
    shared: dict[Text, SharedCause] | None = None
    interruptions: Interruptions | None = None
    preset: PresetName | None = None
    preemption: Preemption | None = None
    maintenance: Maintenance | None = None
    slow: SlowNodes | None = None
    corruption: Corruption | None = None
    bad: BadNodes | None = None
    during: Literal["always", "running"] = "always"
    runs: Annotated[int, Check(2, 100_000)] = 200

    def __post_init__(self) -> None:
        others = (getattr(self, name) for name in OTHERS)
        if not any((self.shared, self.interruptions, self.preset, *self.given.values(), *others)):
            known = ", ".join(
                (*OF_A_NODE, *OF_THE_JOB, *OTHERS, "shared", "interruptions", "preset")
            )
            raise ValueError(f"names nothing that breaks; one of {known} is needed")
        for name in self.shared or {}:
            if name in RESERVED:
                said = f"is the name of another cause, as {', '.join(RESERVED)} are"
                raise Refused(said, ("shared", name))
        aging = [name for name, cause in self.given.items() if cause.shape is not None]
        if self.bad and aging:
            raise Refused(f"goes with exponential causes, which {aging[0]} is not", ("bad",))

    @property
    def given(self) -> dict[str, FailureCause]:
        """The components that it names."""
        known = ((name, getattr(self, name)) for name in (*OF_A_NODE, *OF_THE_JOB))
        return {name: cause for name, cause in known if cause is not None}

    @property
    def expanded(self) -> Failures:
        """With the keys that its preset stands for."""
        if self.preset is None:
            return self
        keys = PRESETS[self.preset].keys
        known = build(Failures, keys)
        missing = {name: getattr(known, name) for name in keys if getattr(self, name) is None}
        return replace(self, preset=None, **missing)


class Published(NamedTuple):
    """The keys of `failures` that a preset stands for, and where they come from."""

    keys: dict[str, Any]
    source: str


DAY = 86400.0
PRESETS = MappingProxyType(
    {
        "llama3-16k": Published(
            {"interruptions": {"count": 419, "over": 54 * DAY, "devices": 16384}},
            "419 unexpected interruptions in 54 days on 16,384 H100 (Llama 3, arXiv:2407.21783, "
            "table 5)",
        ),
        "meta-rsc-1": Published(
            {"node": {"mtbf": 1000 * DAY / 6.50}},
            "6.50 failures per 1,000 node-days on RSC-1 (arXiv:2410.21680)",
        ),
        "meta-rsc-2": Published(
            {"node": {"mtbf": 1000 * DAY / 2.34}},
            "2.34 failures per 1,000 node-days on RSC-2 (arXiv:2410.21680)",
        ),
        "mlcommons": Published(
            {"gpu": {"mtbf": 50_000 * 3600.0}},
            "an accelerator's mean time to failure of 50,000 h (MLCommons Storage working group)",
        ),
    }
)


class Hazard(NamedTuple):
    """Things of one kind that break.

    units  of the job, that may break
    mtbf   of one of them [s]
    nodes  that break with it; 0: the job stops, and its nodes are well
    shape  of `distribution`; None: exponential
    """

    name: str
    units: float
    mtbf: float
    nodes: int
    distribution: str = "exponential"
    shape: float | None = None

    @property
    def rate(self) -> float:
        """Failures per second of all of them together, at the mean."""
        return self.units / self.mtbf


class Inventory(NamedTuple):
    """How many there are of what breaks; NICs and switches are None where they are not known."""

    nodes: int
    devices: int
    nics: int | None
    switches: int | None


def hazards(failures: Failures, there: Inventory) -> Iterator[Hazard]:
    """What breaks in a job with what is `there`.  Raises Refused where that is not known, and where
    there is none of what would break."""
    whole = failures.expanded
    counts = {"gpu": there.devices, "nic": there.nics, "host": there.nodes, "node": there.nodes,
              "switch": there.switches, "storage": 1, "software": 1}  # fmt: skip
    for name, cause in whole.given.items():
        count = counts[name]
        if count is None:
            raise Refused("needs a machine, which says how many there are", ("failures", name))
        if count == 0:
            of = "a job of one node" if there.nodes == 1 else f"this job of {there.nodes:,} nodes"
            raise Refused(f"there is none in {of}; leave it out", ("failures", name))
        own = 1 if name in OF_A_NODE else 0
        yield Hazard(name, count, cause.mtbf, own, cause.distribution, cause.shape)
    for name, shared in (whole.shared or {}).items():
        if shared.nodes > there.nodes:
            said = f"{shared.nodes} nodes have one in common, and the job has {there.nodes}"
            raise Refused(said, ("failures", "shared", name, "nodes"))
        yield Hazard(name, there.nodes / shared.nodes, shared.mtbf, shared.nodes)
    if taken := whole.preemption:
        if taken.nodes > there.nodes:
            said = f"{taken.nodes} nodes go together, and the job has {there.nodes}"
            raise Refused(said, ("failures", "preemption", "nodes"))
        yield Hazard("preemption", there.nodes / taken.nodes, taken.between, taken.nodes)
    if counted := whole.interruptions:
        each = counted.over * counted.devices / counted.count
        yield Hazard("interruptions", there.devices, each, 1)
