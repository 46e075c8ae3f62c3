"""Scenarios: everything that determines a prediction, read from YAML or JSON, checked, frozen."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from dpsim.backends import Backend
from dpsim.backends.curves import file as calibrated
from dpsim.compile.placement import Axis, Mesh
from dpsim.compile.schedules import Schedule
from dpsim.compile.strategies import Strategy
from dpsim.core import yamlfile
from dpsim.core.overrides import apply_sets, sweep_changes, with_change
from dpsim.core.plugins import Plugin, name_of
from dpsim.core.record import Check, Count, Flag, Refused, Text, build, dotted, dump, record
from dpsim.core.units import BytesPerSecond, PositiveFraction, Seconds, Unit
from dpsim.describe.convergence import Training
from dpsim.describe.uneven import Ranks, disjoint
from dpsim.machines.devices import NetworkKind
from dpsim.models.precision import Optimizer, PrecisionSpec
from dpsim.models.section import ModelSource, below, dump_model
from dpsim.money.price import Energy, Price
from dpsim.variability import Number, Variability

#: sections that say what is run; a measurement belongs to one choice of them
EXPERIMENT = (
    "model",
    "cluster",
    "collective",
    "strategy",
    "batch",
    "precision",
    "optimizer",
    "recompute",
    "parallel",
    "schedule",
    "stages",
    "host",
)
Oversubscription = Annotated[float, Unit("1", low=1.0, high=1e4)]
#: characters of a file name beyond which systems refuse it
LONGEST = 250
_OF_A_MACHINE = (
    "nodes", "gpus_per_node", "nics_per_node", "device", "inter_node_bandwidth", "inter_node_kind",
    "oversubscription", "routing", "devices",
)  # fmt: skip


@record
class Cluster:
    """A machine (named, or a file below the scenario's folder) and what overrides it.

    Without a machine, `ranks` alone: a worked toy.  `inter_node_bandwidth` is per NIC, one way;
    `inter_node_kind` says what the NICs are (ethernet: TCP sockets, ipoib: TCP over InfiniBand).
    `routing`: `ecmp` sends each flow, from one NIC to another, over one spine switch, chosen by a
    hash that the scenario's `seed` seeds, so that flows collide; `balanced` spreads them evenly.

    devices  ranks that have another device than the others: `{8-15: v100}`; the links stay the
             machine's
    """

    machine: Text | None = None
    nodes: Count | None = None
    ranks: Count | None = None
    gpus_per_node: Annotated[int, Check(1, 1024)] | None = None
    nics_per_node: Annotated[int, Check(1, 1024)] | None = None
    device: Text | None = None
    inter_node_bandwidth: BytesPerSecond | None = None
    inter_node_kind: NetworkKind | None = None
    oversubscription: Oversubscription | None = None
    routing: Literal["balanced", "ecmp"] | None = None
    devices: dict[Ranks, Text] | None = None

    def __post_init__(self) -> None:
        try:
            disjoint(list(self.devices or ()))
        except Refused as error:
            raise Refused(error.message, ("devices",)) from None
        if self.machine is None:
            for key in _OF_A_MACHINE:
                if getattr(self, key) is not None:
                    raise Refused("needs a machine; a cluster without one has ranks only", (key,))
            if self.ranks is None:
                raise ValueError("needs a machine, or ranks alone")
        elif (self.nodes is None) == (self.ranks is None):
            raise ValueError("needs either nodes or ranks")


@record
class Parallel:
    """Ranks = tensor x pipeline x data.

    data      replicas of the model; left out: what the ranks leave
    tensor    ranks that split every layer between them (column and row parallel)
    pipeline  ranks that hold the layers one after the other
    order     along which axis neighbouring ranks lie first, second, last
    sequence_parallel   the ranks of a tensor group split the sequence too
    blocking_sends      a stage goes on only when what it sent has arrived
    """

    tensor: Annotated[int, Check(1, 1024)] = 1
    pipeline: Annotated[int, Check(1, 1024)] = 1
    data: Count | None = None
    order: tuple[Axis, Axis, Axis] = ("tensor", "data", "pipeline")
    sequence_parallel: Flag = False
    blocking_sends: Flag = False

    def __post_init__(self) -> None:
        if len(set(self.order)) < 3:
            raise Refused("names every one of tensor, data and pipeline once", ("order",))
        if self.sequence_parallel and self.tensor == 1:
            raise Refused("needs tensor > 1", ("sequence_parallel",))

    @property
    def plain(self) -> bool:
        """Whether there is data parallelism only."""
        return self.tensor == self.pipeline == 1

    def mesh(self, ranks: int) -> Mesh:
        """The mesh of `ranks` ranks.  Refused, with what would work, where they don't fit."""
        own = self.tensor * self.pipeline
        shown = f"tensor {self.tensor} x pipeline {self.pipeline}"
        if ranks % own:
            low = ranks // own * own
            near = " or ".join(f"{n:,}" for n in (low, low + own) if n)
            many = f"{ranks:,} rank{'s' * (ranks != 1)}"
            raise Refused(f"{shown} does not divide {many}; {near} would", ("parallel",))
        if self.data is not None and self.data * own != ranks:
            raise Refused(
                f"{shown} x data {self.data} is {own * self.data:,}, not {ranks:,} ranks; "
                f"data: {ranks // own} would be (or leave data out)",
                ("parallel", "data"),
            )
        return Mesh(self.tensor, ranks // own, self.pipeline, self.order)


@record
class Batch:
    """`per_device` samples per rank and micro-batch (weak scaling), or `global` samples per step
    over all ranks (strong scaling); `accumulation` micro-batches make a step.

    by_speed  ranks get samples in proportion to their speed (device, `slow_ranks`, `slow_nodes`),
              the global batch stays what it is
    per_rank  ranks that get another number of samples than `per_device`: `{3: 24}`
    """

    per_device: Annotated[int, Check(1, 10**7)] | None = None
    global_: Annotated[int, Check(1, 10**10)] | None = Field(default=None, alias="global")
    accumulation: Annotated[int, Check(1, 100_000)] = 1
    by_speed: Flag = False
    per_rank: dict[Number, Annotated[int, Check(1, 10**7)]] | None = None

    def __post_init__(self) -> None:
        if self.per_device is not None and self.global_ is not None:
            raise ValueError("give per_device (weak scaling) or global (strong scaling), not both")
        if self.per_rank and (self.per_device is None or self.by_speed):
            raise Refused("needs per_device, and goes without by_speed", ("per_rank",))
        if self.by_speed and self.per_device is None and self.global_ is None:
            raise Refused("needs per_device or global", ("by_speed",))
        if self.global_ is not None and self.global_ % self.accumulation:
            message = f"{self.global_} is not a multiple of accumulation {self.accumulation}"
            raise Refused(message, ("global",))

    @property
    def weak(self) -> bool:
        return self.global_ is None


@record
class Compute:
    """How fast the devices compute.

    efficiency  share of the device's peak that large kernels reach; left out: what was fitted for
                its generation and dtype, else 50 %
    contention  how much longer computing takes while a collective runs beside it (0.5: half as
                long again); left out: what was fitted for the backend
    spread      standard deviation of the ranks' step times, as a share of the step: synchronous
                ranks wait for the slowest; left out: what was fitted for GPU machines, or 0 where
                `variability` says how ranks differ
    """

    efficiency: PositiveFraction | None = None
    contention: Annotated[float, Unit("1", low=0.0, high=10.0)] | None = None
    spread: Annotated[float, Unit("1", low=0.0, high=1.0)] | None = None


@record
class Host:
    """What the host does in a step.

    serial    host time per step that no rank shares out
    launch    host time to issue one kernel (5 to 10 us in eager PyTorch): the host runs ahead of
              the device and the longer of the two decides; left out: no layer takes less than the
              device's launch overhead for each of its kernels
    kernels   the share of eager execution's kernels that a compiler's fusion leaves
    captured  the step is one captured graph (CUDA graph): one launch issues it
    waits     the host waits for the end of every step, as printing the loss makes it
    """

    serial: Seconds = 0.0
    launch: Seconds | None = None
    kernels: PositiveFraction = 1.0
    captured: Flag = False
    waits: Flag = False

    def __post_init__(self) -> None:
        given = {"kernels": self.kernels < 1, "captured": self.captured, "waits": self.waits}
        for key, meant in given.items():
            if meant and self.launch is None:
                raise Refused("needs launch, the host time to issue one kernel", (key,))


class Rate:
    """Marks a throughput: "802.9 images/s" becomes (802.9, "images")."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        def validate(value: Any) -> tuple[float, str]:
            if isinstance(value, tuple):
                return value
            found = re.fullmatch(r"\s*([0-9.]{1,20}(?:[eE][+-]?\d{1,3})?)\s*(\w+)/s\s*", str(value))
            if not found or found[2] not in ("samples", "images", "sequences", "tokens"):
                raise ValueError(
                    f"{str(value)[:60]!r} is no throughput; write for example '802.9 images/s'"
                )
            number = Unit("1", high=1e15, above=True).take(found[1], file=False)
            return number, found[2]

        return core_schema.no_info_plain_validator_function(
            validate,
            metadata={
                "pydantic_js_functions": [
                    lambda s, h: {"type": "string", "examples": ["802.9 images/s"]}
                ]
            },
        )


@record
class Calibrate:
    """One measured number that sets the level of compute: a step time or a throughput at `ranks`
    (default: the first point), or a `file` of measured points, of which only the smallest count
    is used."""

    step_time: Seconds | None = None
    throughput: Annotated[tuple[float, str], Rate()] | None = None
    file: Text | None = None
    ranks: Count | None = None

    def __post_init__(self) -> None:
        given = [x for x in (self.step_time, self.throughput, self.file) if x is not None]
        if len(given) != 1:
            raise ValueError("needs exactly one of step_time, throughput and file")
        if self.step_time == 0:
            raise Refused("0 s is no measurement", ("step_time",))
        if self.file is not None and self.ranks is not None:
            raise Refused("a file says its own ranks; leave it out", ("ranks",))


@record
class Startup:
    """What passes once, before the first step, and is no part of any step: points then say
    `startup_s`.  What DDP's constructor sends to all ranks is added; all else is given here.

    rendezvous      until all ranks have found each other
    process_groups  until the communicators are there
    load            of data and checkpoints
    compile         of the model: compilation, capture of graphs
    """

    rendezvous: Seconds | None = None
    process_groups: Seconds | None = None
    load: Seconds | None = None
    compile: Seconds | None = None


Value = str | int | float | bool


@record
class Scenario:
    """Everything that determines a prediction.  See docs/scenario.md for each key."""

    title: Text = ""
    model: Annotated[Any, ModelSource()]
    cluster: Cluster
    strategy: Annotated[Strategy, Plugin("strategies", "kind")]
    collective: Annotated[Backend, Plugin("backends", "backend")] | None = None
    batch: Batch = Batch(per_device=1)
    precision: PrecisionSpec | None = None
    optimizer: Optimizer = Optimizer()
    compute: Compute = Compute()
    recompute: Literal["none", "selective", "full"] = "none"
    parallel: Parallel = Parallel()
    schedule: Annotated[Schedule, Plugin("schedules", "kind")] | None = None
    stages: Literal["balanced"] | tuple[tuple[Text, ...], ...] | None = None
    host: Host = Host()
    variability: Variability = Variability()
    iteration: Literal["steady"] | Annotated[int, Check(1, 10_000)] = "steady"
    engine: Literal["auto", "event", "vectorised"] = "auto"
    detail: Literal["collective", "rounds"] = "collective"
    seed: Annotated[int, Check(0, 2**31 - 1)] = 0
    sweep: dict[Text, list[Any]] | list[dict[Text, Any]] | None = None
    calibrate: Calibrate | None = None
    calibration: Text | None = None
    measured: Text | None = None
    price: Price | None = None
    energy: Energy | None = None
    training: Training | None = None
    startup: Startup | None = None

    def __post_init__(self) -> None:
        if self.batch.per_device is None and self.batch.global_ is None:
            object.__setattr__(
                self, "batch", Batch(per_device=1, accumulation=self.batch.accumulation)
            )
        if self.cluster.machine is None and self.collective is None:
            message = "is missing; without a machine choose backend ideal, ideal_ring or free"
            raise Refused(message, ("collective",))
        if (
            self.cluster.machine is None
            and self.collective is not None
            and not self.collective.ideal
        ):
            raise Refused(
                "this backend needs a machine; without one choose ideal, ideal_ring or free",
                ("collective",),
            )
        ideal = self.cluster.machine is None or (self.collective and self.collective.ideal)
        if self.calibration is not None and ideal:
            raise Refused(
                "measured curves need a machine, and a backend that models it", ("calibration",)
            )
        for key in ("schedule", "stages"):
            if getattr(self, key) is not None and self.parallel.pipeline == 1:
                raise Refused("needs parallel: {pipeline: …} of at least 2", (key,))
        if self.detail == "rounds" and self.engine == "vectorised":
            raise Refused("rounds are played by engine: event only", ("detail",))


@dataclass(frozen=True)
class Loaded:
    """A scenario as read: the record, its points, and where everything came from.

    data    the plain data after --set; `sets` holds its texts by key
    base    the folder below which its files are looked up
    name    its name for people
    points  one scenario per point of the sweep, in order; `changes` says what each one sets
    """

    scenario: Scenario
    data: dict[str, Any]
    base: Path
    name: str
    points: tuple[Scenario, ...]
    changes: tuple[dict[str, Any], ...] = ()
    origins: dict[str, str] = field(default_factory=dict)
    sets: dict[str, str] = field(default_factory=dict)

    @property
    def altered(self) -> tuple[str, ...]:
        """The --set texts that make this another experiment than the one in the file."""
        return tuple(
            text
            for key, text in self.sets.items()
            if key.partition(".")[0] in EXPERIMENT and key not in ("cluster.ranks", "cluster.nodes")
        )

    @property
    def origins_set(self) -> set[str]:
        """The sections that --set touched."""
        return {key.partition(".")[0] for key in self.sets}

    def located(self, error: Refused) -> Refused:
        """`error` with the file and line (or the --set) that its key comes from."""
        at = dotted(error.path)
        if isinstance(error, yamlfile.FileRefused) or not self.origins:
            return error
        while at and at not in self.origins:
            at = at[: max(at.rfind("."), at.rfind("["), 0)]
        origin = self.origins.get(at) or next(iter(self.origins.values())).rpartition(":")[0]
        return yamlfile.FileRefused(error.message, error.path, shown=origin)


def read(source: str | Path, sets: Sequence[str] = ()) -> Loaded:
    """Read a scenario file or bundled scenario, with ``a.b=v`` overrides.

    Raises FileRefused (what, where, what would be accepted) for anything that is not right.
    """
    path = find(source)
    shown = str(source) if path == Path(source) else path.name
    data, lines = yamlfile.load(path, shown)
    if not isinstance(data, dict):
        raise yamlfile.FileRefused("the file holds no mapping", shown=shown)
    changed = apply_sets(data, sets)
    try:
        loaded = load(data, path.parent, path.stem, origins=origins_of(shown, lines, changed))
        return replace(loaded, sets=changed)
    except Refused as error:
        raise placed(error, shown, lines, changed) from None


def placed(
    error: Refused, shown: str, lines: yamlfile.Lines, changed: Mapping[str, str]
) -> Refused:
    """`error` with the --set text at fault, else with the file and line of its key."""
    at = dotted(error.path)
    for name, text in changed.items():
        if at == name or at.startswith((name + ".", name + "[")) or name.startswith(at + "."):
            return Refused(f"--set {text}: {error}")
    return yamlfile.located(error, shown, lines)


def load(
    data: dict[str, Any], base: Path, name: str, *, origins: dict[str, str] | None = None
) -> Loaded:
    """A Loaded scenario from plain data."""
    if "jobs" in data:
        raise Refused(
            "several jobs are predicted by `dpsim compare`; here a scenario has one job", ("jobs",)
        )
    scenario = build(Scenario, data, file=True)
    changes = sweep_changes(data)
    rest = {key: value for key, value in data.items() if key != "sweep"}
    swept = [_point(rest, change, _place(data, number)) for number, change in enumerate(changes)]
    points = tuple(
        _with_jitter(point, with_change(rest, change, ()), base)
        for point, change in zip(swept, changes, strict=True)
    )
    for key in ("measured", "calibrate.file"):
        value = (
            scenario.measured
            if key == "measured"
            else scenario.calibrate and scenario.calibrate.file
        )
        if value and not below(base, value, key).is_file():
            raise Refused(f"no file {value!r} beside the scenario", tuple(key.split(".")))
    return Loaded(scenario, data, base, scenario.title or name, points, changes, origins or {})


def _place(data: dict[str, Any], number: int) -> tuple[str | int, ...]:
    """Where in the file the changes of point `number` are written."""
    return ("sweep", number) if isinstance(data.get("sweep"), list) else ("sweep",)


def _point(
    data: dict[str, Any], change: Mapping[str, Any], place: tuple[str | int, ...]
) -> Scenario:
    """The scenario with `change`; what is wrong with a changed key is reported at `place`."""
    changed = with_change(data, change, place)
    try:
        return build(Scenario, changed, file=True)
    except Refused as error:
        at = dotted(error.path)
        for key in change:
            if at == key or at.startswith((f"{key}.", f"{key}[")):
                size = len(re.findall(r"[^.\[\]]+", key))
                raise Refused(error.message, (*place, key, *error.path[size:])) from None
        raise


def _with_jitter(scenario: Scenario, data: Mapping[str, Any], base: Path) -> Scenario:
    """`scenario` with the jitter that its calibration measured, unless `data` gives one."""
    if scenario.calibration is None:
        return scenario
    steps = calibrated.find(scenario.calibration, base).jitter
    if steps is None or "jitter" in (data.get("variability") or {}):
        return scenario
    jitter = min(steps.jitter, 1.0)
    return replace(scenario, variability=replace(scenario.variability, jitter=jitter))


def origins_of(shown: str, lines: Mapping[Any, int], changed: Mapping[str, str]) -> dict[str, str]:
    """The file and line (or the --set text) that every key comes from."""
    found = {dotted(path): f"{shown}:{line}" for path, line in lines.items() if path}
    return found | {path: f"--set {text}" for path, text in changed.items()}


def to_data(scenario: Scenario) -> dict[str, Any]:
    """`scenario` as plain data that reads back to an equal one."""
    data: dict[str, Any] = dump(scenario)
    data["model"] = dump_model(scenario.model)
    data["strategy"] = {"kind": name_of(scenario.strategy), **dump(scenario.strategy)}
    if scenario.collective is not None:
        data["collective"] = {"backend": name_of(scenario.collective), **dump(scenario.collective)}
    if scenario.schedule is not None:
        data["schedule"] = {"kind": name_of(scenario.schedule), **dump(scenario.schedule)}
    if scenario.calibrate is not None and scenario.calibrate.throughput is not None:
        value, unit = scenario.calibrate.throughput
        data["calibrate"]["throughput"] = f"{value!r} {unit}/s"
    if "torch" in data["strategy"]:
        data["strategy"]["torch"] = str(scenario.strategy.torch)  # type: ignore[attr-defined]
    return data


def folder() -> Path:
    """Where the bundled scenarios are: inside the installed package, or beside it in a checkout."""
    packaged = Path(str(resources.files("dpsim"))) / "data" / "scenarios"
    return (
        packaged if packaged.is_dir() else Path(str(resources.files("dpsim"))).parent / "scenarios"
    )


def find(source: str | Path) -> Path:
    """The file of a path or of a bundled name ("quickstart", "worked/ddp_steady")."""
    path = Path(source)
    name = str(source)
    if len(path.name) > LONGEST:
        raise Refused(f"{name[:60]!r}… is no name of a file")
    if path.exists() or path.suffix in (".yaml", ".yml", ".json") or ".." in path.parts:
        return path
    bundled = folder() / f"{name.removeprefix('scenarios/')}.yaml"
    if not path.is_absolute() and bundled.is_file():
        return bundled
    if not path.is_absolute() and (folder() / name).is_dir():
        raise Refused(
            f"{name!r} is a folder of scenarios ({', '.join(_stems(folder() / name))}); "
            f"`dpsim compare {name}` compares them"
        )
    known = _stems(folder())
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise Refused(
        f"no scenario file {name!r}, and no such bundled scenario; {hint}"
        f"bundled: {', '.join(known)}"
    )


def _stems(place: Path) -> list[str]:
    """Names of the scenarios in folder `place`."""
    return sorted(file.stem for file in place.glob("*.yaml"))


__all__ = ["Loaded", "Scenario", "find", "load", "read", "to_data"]
