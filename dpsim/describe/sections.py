"""The sections of a scenario that belong to no other room: cluster, batch, host, …"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Annotated, Any, Literal

from pydantic import Field

from dpsim.compile.copies import HostCopy
from dpsim.compile.loaders import Loader
from dpsim.core import plugins, units
from dpsim.core.marks import Mark
from dpsim.core.record import Check, Count, Flag, Refused, Text, build, json_schema, record
from dpsim.describe.rebalance import Rebalance
from dpsim.describe.uneven import Ranks, disjoint
from dpsim.machines.devices import NetworkKind
from dpsim.variability import Number

Oversubscription = Annotated[float, units.Unit("1", low=1.0, high=1e4)]
#: measured points of a calibration; each is played several times
MOST_POINTS = 64
#: keys that only a loader has, by which one without its name is told
_OF_A_LOADER = {"workers", "prefetch", "decode", "sample_bytes", "storage", "mixture"}
_OF_A_MACHINE = (
    "nodes", "gpus_per_node", "slice", "nics_per_node", "device", "inter_node_bandwidth",
    "inter_node_kind", "inter_node_latency", "oversubscription", "routing", "devices",
)  # fmt: skip


@record
class Cluster:
    """A machine (named, or a file below the scenario's folder) and what overrides it.

    Without a machine, `ranks` alone: a worked toy.  `inter_node_bandwidth` is per NIC, one way;
    `inter_node_kind` says what the NICs are (ethernet: TCP sockets, ipoib: TCP over InfiniBand,
    slingshot_ip: over Slingshot).
    `inter_node_latency` is one way from a NIC to one of another node below the same switch; what
    it is more than the machine's own two cables have, every step between nodes takes longer.
    `routing`: `ecmp` sends each flow, from one NIC to another, over one spine switch, chosen by a
    hash that the scenario's `seed` seeds, so that flows collide; `balanced` spreads them evenly.

    slice    lengths of the axes of a slice of TPUs, where it is not the usual one of as many chips
    devices  ranks that have another device than the others: `{8-15: v100}`; the links stay the
             machine's
    """

    machine: Text | None = None
    nodes: Count | None = None
    ranks: Count | None = None
    gpus_per_node: Annotated[int, Check(1, 8192)] | None = None
    slice: tuple[Annotated[int, Check(1, 1024)], ...] | None = None
    nics_per_node: Annotated[int, Check(1, 1024)] | None = None
    device: Text | None = None
    inter_node_bandwidth: units.BytesPerSecond | None = None
    inter_node_kind: NetworkKind | None = None
    inter_node_latency: units.Seconds | None = None
    oversubscription: Oversubscription | None = None
    routing: Literal["balanced", "ecmp"] | None = None
    devices: dict[Ranks, Text] | None = None

    def __post_init__(self) -> None:
        try:
            disjoint(list(self.devices or ()))
        except Refused as error:
            raise Refused(error.message, ("devices",)) from None
        self._require_slice()
        if self.machine is None:
            for key in _OF_A_MACHINE:
                if getattr(self, key) is not None:
                    raise Refused("needs a machine; a cluster without one has ranks only", (key,))
            if self.ranks is None:
                raise ValueError("needs a machine, or ranks alone")
        elif (self.nodes is None) == (self.ranks is None):
            raise ValueError("needs either nodes or ranks")

    def _require_slice(self) -> None:
        """Refuse a shape that is none, or has other chips than the node."""
        if self.slice is None:
            return
        if self.machine is None or not self.slice:
            raise Refused("is for slices of TPUs: lengths of its axes, as [4, 4, 8]", ("slice",))
        if prod(self.slice) != self.gpus_per_node:
            chips = f"{prod(self.slice):,} chips, which gpus_per_node has to say"
            raise Refused(f"is for slices of TPUs, and has {chips}", ("slice",))


#: of one step
MOST_MICRO_BATCHES = 100_000


@record
class Batch:
    """`per_device` samples per rank and micro-batch (weak scaling; per replica, where ranks share
    a model by tensor, pipeline or context parallelism), or `global` samples per step over all ranks
    (strong scaling); `accumulation` micro-batches make a step.  With both, as Megatron and
    DeepSpeed have them, the number of micro-batches follows from that of replicas, and
    `accumulation` is left out, or 1, which counts as that.

    by_speed   ranks get samples in proportion to their speed (device, `slow_ranks`, `slow_nodes`),
               the global batch stays what it is
    per_rank   ranks that get another number of samples than `per_device`: `{3: 24}`
    rebalance  ranks begin with equal shares, and samples are dealt again by their speed as it is
               measured; a step is one of those after the last deal
    """

    per_device: Annotated[int, Check(1, 10**7)] | None = None
    global_: Annotated[int, Check(1, 10**10)] | None = Field(default=None, alias="global")
    accumulation: Annotated[int, Check(1, MOST_MICRO_BATCHES)] = 1
    by_speed: Flag = False
    per_rank: dict[Number, Annotated[int, Check(1, 10**7)]] | None = None
    rebalance: Rebalance | None = None

    def __post_init__(self) -> None:
        if self.follows:
            self._check_follows()
        if self.per_rank and (self.per_device is None or self.by_speed):
            raise Refused("needs per_device, and goes without by_speed", ("per_rank",))
        if self.rebalance is not None and (self.by_speed or self.per_rank):
            raise Refused("goes without by_speed and per_rank", ("rebalance",))
        if self.rebalance is not None and self.per_device is None and self.global_ is None:
            raise Refused("needs per_device or global", ("rebalance",))
        if self.by_speed and self.per_device is None and self.global_ is None:
            raise Refused("needs per_device or global", ("by_speed",))
        if self.global_ is not None and self.global_ % self.accumulation:
            message = f"{self.global_} is not a multiple of accumulation {self.accumulation}"
            raise Refused(message, ("global",))

    def _check_follows(self) -> None:
        """What leaves nothing to follow from a global batch and a micro-batch."""
        if self.accumulation > 1:
            raise Refused(
                "follows from global and per_device (global / (per_device x replicas)); leave one "
                "of the three out",
                ("accumulation",),
            )
        for key in ("by_speed", "per_rank", "rebalance"):
            if getattr(self, key):
                raise Refused("goes with per_device or global, not with both", (key,))

    @property
    def weak(self) -> bool:
        return self.global_ is None

    @property
    def follows(self) -> bool:
        """Whether the number of micro-batches follows from the global batch and the replicas."""
        return self.per_device is not None and self.global_ is not None

    def on(self, replicas: int) -> Batch:
        """The same with its micro-batches counted, on so many replicas of the model.

        global / (per_device x replicas) of them (NVIDIA/Megatron-LM megatron/core/
        num_microbatches_calculator.py d98e8a64; DeepSpeed's train_batch_size).  Raises Refused
        where that is no whole number.
        """
        if not self.follows:
            return self
        assert self.global_ is not None
        assert self.per_device is not None
        each = self.per_device * replicas
        count, rest = divmod(self.global_, each)
        if rest or not count:
            below, above = self.global_ // each * each, -(-self.global_ // each) * each
            near = f"{below:,} and {above:,} are" if below else f"{above:,} is"
            raise Refused(
                f"{self.global_:,} is not a multiple of {self.per_device:,} per_device x "
                f"{replicas:,} replicas = {each:,}; {near} accepted",
                ("batch", "global"),
            )
        if count > MOST_MICRO_BATCHES:
            said = f"{count:,} micro-batches follow from it and per_device; at most"
            raise Refused(f"{said} {MOST_MICRO_BATCHES:,} are accepted", ("batch", "global"))
        return replace(self, per_device=None, accumulation=count)


@record
class Host:
    """What the host does in a step.

    serial    host time per step that no rank shares out
    launch    host time to issue one kernel (5 to 10 us in eager PyTorch): the host runs ahead of
              the device and the longer of the two decides (where ranks share a model layer by
              layer); left out: no layer takes less than its kernels' launch overhead
    kernels   the share of eager execution's kernels that a compiler's fusion leaves
    captured  the step is one captured graph (CUDA graph): one launch issues it
    waits     the host waits for the end of every step, as printing the loss makes it
    """

    serial: units.Seconds = 0.0
    launch: units.Seconds | None = None
    kernels: units.PositiveFraction = 1.0
    captured: Flag = False
    waits: Flag = False

    def __post_init__(self) -> None:
        given = {"kernels": self.kernels < 1, "captured": self.captured, "waits": self.waits}
        for key, meant in given.items():
            if meant and self.launch is None:
                raise Refused("needs launch, the host time to issue one kernel", (key,))


class Rate(Mark):
    """Marks a throughput: "802.9 images/s" becomes (802.9, "images")."""

    def take(self, value: Any, file: bool) -> tuple[float, str]:
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"\s*([0-9.]{1,20}(?:[eE][+-]?\d{1,3})?)\s*(\w+)/s\s*", str(value))
        if not found or found[2] not in ("samples", "images", "sequences", "tokens"):
            shown = f"{str(value)[:60]!r}"
            if re.fullmatch(r"\s*[0-9.]+\s*", str(value)):
                unit = "images/s (or samples/s, sequences/s, tokens/s) is missing"
                raise ValueError(f"{shown}: {unit}; write for example '{value} images/s'")
            raise ValueError(f"{shown} is no throughput; write for example '802.9 images/s'")
        return units.Unit("1", high=1e15, above=True).take(found[1], file=False), found[2]

    def json_schema(self) -> dict[str, Any]:
        return {"type": "string", "examples": ["802.9 images/s"]}


@record
class Input:
    """What feeds the ranks: a loader and how it works (`loader`), or as it was timed (`record`),
    the rate at which it feeds a node (`rate`), that it is no limit (`limiting: false`), or that
    there is none (`synthetic: true`).

    limiting  whether reading and decoding hold up steps; false (a fast loader): the interval does
              not count on a loss to them
    synthetic  data are made up beforehand or on the devices: no loader is a limit, and ranks differ
              only by what lasts
    rate      samples that the loaders of a node make in a second, such as 1070 images/s
    assumed   the rate is an estimate and was not measured there: the interval is wider
    record    a file of `dpsim measure --input` below the scenario's folder
    workers   of the timed loader, where it has others now
    epoch     `later` reads from caches, as the second pass did; `first` as the first one
    copy      how batches come to the devices, over PCIe; left out: that takes no time
    """

    limiting: Flag | None = None
    synthetic: Flag = False
    rate: Annotated[tuple[float, str], Rate()] | None = None
    assumed: Flag = False
    record: Text | None = None
    workers: Annotated[int, Check(0, 4096)] | None = None
    epoch: Literal["first", "later"] = "later"
    copy: HostCopy | None = None

    def __post_init__(self) -> None:
        if self.limiting:
            message = (
                "by how much? Say loader or rate, or leave it out and calibrate with a step that "
                "was measured with the real loader (false is accepted)"
            )
            raise Refused(message, ("limiting",))
        given = [one for one in (self.rate, self.limiting, self.record) if one is not None]
        if len(given) + self.synthetic != 1:
            loaders = ", ".join(plugins.names("loaders"))
            kinds = f"loader (one of {loaders}), record, rate, limiting: false, or synthetic: true"
            raise ValueError(f"has more than one of {kinds}" if given else f"needs {kinds}")
        if self.assumed and self.rate is None:
            raise Refused("is of a rate", ("assumed",))
        for key, meant in (("workers", self.workers is not None), ("epoch", self.epoch == "first")):
            if meant and self.record is None:
                raise Refused("is of a record, or of a loader", (key,))

    @property
    def feeds(self) -> bool:
        """Whether it says how fast, so that steps may wait."""
        return self.limiting is None and not self.synthetic


def made_up(given: Loader | Input | None) -> bool:
    """Whether ranks are fed synthetic data."""
    return isinstance(given, Input) and given.synthetic


class InputSource(Mark):
    """Marks what feeds the ranks: a loader where the mapping names one, else an Input."""

    plugin = plugins.Plugin("loaders", "loader")

    def take(self, value: Any, file: bool) -> Loader | Input:
        if isinstance(value, Loader | Input):
            return value
        own = isinstance(value, Mapping) and "record" not in value
        if own and ("loader" in value or set(value) & _OF_A_LOADER):
            made: Loader = self.plugin.make(value, file=file)
            return made
        return build(Input, value, file=file)

    def json_schema(self) -> dict[str, Any]:
        options: list[Any] = self.plugin.json_schema()["oneOf"]
        return {"oneOf": [json_schema(Input), *options]}


@record
class CalibrationPoint:
    """One measured point: a step time or a throughput, at `ranks` (default: the first point's) and
    with another batch than the scenario's where one is said."""

    step_time: units.Seconds | None = None
    throughput: Annotated[tuple[float, str], Rate()] | None = None
    ranks: Count | None = None
    per_device: Annotated[int, Check(1, 10**7)] | None = None
    global_: Annotated[int, Check(1, 10**10)] | None = Field(default=None, alias="global")
    accumulation: Annotated[int, Check(1, 100_000)] | None = None

    def __post_init__(self) -> None:
        if (self.step_time is None) == (self.throughput is None):
            raise ValueError("needs exactly one of step_time and throughput")
        if self.step_time == 0:
            raise Refused("0 s is no measurement", ("step_time",))

    @property
    def batch(self) -> dict[str, int]:
        """What of the batch is other than the scenario's, by field of Batch."""
        names = ("per_device", "global_", "accumulation")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


@record
class Calibrate:
    """What was measured, and sets the level of compute: a step time or a throughput at `ranks`
    (default: the first point); several `points`; or a `file` of measured points, of which `ranks`
    takes those of one count.

    One point sets the level of compute and nothing else.  Several fit it by least squares together
    with the host's time per step, the cost of an exchange inside a node and between nodes, and how
    much ranks differ; intervals of other counts follow from how well they fit.

    synthetic  measured with synthetic data, whatever `input` says: without a loader, and ranks
               differed by what lasts alone
    """

    step_time: units.Seconds | None = None
    throughput: Annotated[tuple[float, str], Rate()] | None = None
    file: Text | None = None
    ranks: Count | None = None
    points: tuple[CalibrationPoint, ...] | None = None
    synthetic: Flag = False

    def __post_init__(self) -> None:
        ways = (self.step_time, self.throughput, self.file, self.points)
        given = [x for x in ways if x is not None]
        if len(given) != 1:
            raise ValueError("needs exactly one of step_time, throughput, file and points")
        if self.step_time == 0:
            raise Refused("0 s is no measurement", ("step_time",))
        if self.points is not None and not 1 <= len(self.points) <= MOST_POINTS:
            message = f"{len(self.points)} points; 1 … {MOST_POINTS} are accepted"
            raise Refused(message, ("points",))
        if self.points is not None and self.ranks is not None:
            raise Refused("every point says its own ranks; leave it out", ("ranks",))


@record
class Startup:
    """What passes once, before the first step, and is no part of any step: points then say
    `startup_s`.  What DDP's constructor sends to all ranks is added; all else is given here.

    rendezvous      until all ranks have found each other
    process_groups  until the communicators are there
    load            of data and checkpoints
    compile         of the model: compilation, capture of graphs
    """

    rendezvous: units.Seconds | None = None
    process_groups: units.Seconds | None = None
    load: units.Seconds | None = None
    compile: units.Seconds | None = None
