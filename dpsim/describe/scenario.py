"""Scenarios: everything that determines a prediction, read from YAML or JSON, checked, frozen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from dpsim.backends import Backend, ideal_ones
from dpsim.backends.curves import file as calibrated
from dpsim.compile.compression import Compression, Wanted
from dpsim.compile.context import Context
from dpsim.compile.loaders import Loader
from dpsim.compile.routing import Moe
from dpsim.compile.schedules import Schedule
from dpsim.compile.strategies import Strategy
from dpsim.core import plugins, units, yamlfile
from dpsim.core.lean import dataclass
from dpsim.core.overrides import (
    INSTEAD,
    apply_sets,
    asked_last,
    called,
    changing,
    check_changes,
    of_one_kind,
    origins_of,
    parts_of,
    several,
    sweep_changes,
    with_change,
)
from dpsim.core.places import as_text, below
from dpsim.core.record import Check, Refused, Text, build, dotted, record
from dpsim.describe.bundled import base_and_name, check_command, find
from dpsim.describe.compute import Compute
from dpsim.describe.convergence import Training
from dpsim.describe.misplaced import elsewhere
from dpsim.describe.parallel import Parallel
from dpsim.describe.sections import Batch, Calibrate, Cluster, Host, Input, InputSource, Startup
from dpsim.describe.sites import SiteEntry, SiteLink, whole_cluster
from dpsim.describe.written import plain_data
from dpsim.describe.written import to_data as to_data
from dpsim.life.failures import Failures
from dpsim.life.recoveries import Recovery
from dpsim.life.saving import Checkpoint, Evaluation
from dpsim.models.execution import Execution
from dpsim.models.memory import MemorySection
from dpsim.models.precision import Optimizer, PrecisionSpec
from dpsim.models.recomputing import Recompute
from dpsim.models.section import ModelSource
from dpsim.money.price import Energy, Price
from dpsim.variability import Variability

#: sections that say what is run; a measurement belongs to one choice of them
EXPERIMENT = (
    "model", "cluster", "collective", "compression", "strategy", "batch", "precision", "optimizer",
    "recompute", "parallel", "moe", "context", "schedule", "stages", "host", "execution",
)  # fmt: skip


@record
class Scenario:
    """Everything that determines a prediction.  See docs/scenario.md for each key."""

    title: Text = ""
    model: Annotated[Any, ModelSource()]
    cluster: Cluster = None  # type: ignore[assignment]  # required, unless there are sites
    sites: tuple[SiteEntry, ...] | None = None
    links: tuple[SiteLink, ...] | None = None
    strategy: Annotated[Strategy, plugins.Plugin("strategies", "kind")]
    collective: Annotated[Backend, plugins.Plugin("backends", "backend")] | None = None
    compression: Wanted = "none"
    batch: Batch = Batch(per_device=1)
    precision: PrecisionSpec | None = None
    optimizer: Optimizer = Optimizer()
    compute: Compute = Compute()
    recompute: Recompute = "none"
    memory: MemorySection = MemorySection()
    parallel: Parallel = Parallel()
    moe: Moe | None = None
    context: Context | None = None
    schedule: Annotated[Schedule, plugins.Plugin("schedules", "kind")] | None = None
    stages: Literal["balanced"] | tuple[tuple[Text, ...], ...] | None = None
    host: Host = Host()
    execution: Execution = Execution()
    input: Annotated[Loader | Input, InputSource()] | None = None
    variability: Variability = Variability()
    iteration: Literal["steady"] | Annotated[int, Check(1, 10_000)] = "steady"
    engine: Literal["auto", "event", "vectorised"] = "auto"
    detail: Literal["collective", "rounds"] = "collective"
    seed: Annotated[int, Check(0, 2**31 - 1)] = 0
    horizon: Annotated[float, units.Unit("s", high=1e9, above=True)] | None = None
    sweep: dict[Text, list[Any]] | list[dict[Text, Any]] | None = None
    calibrate: Calibrate | None = None
    calibration: Text | None = None
    measured: Text | None = None
    price: Price | None = None
    energy: Energy | None = None
    training: Training | None = None
    startup: Startup | None = None
    failures: Failures | None = None
    checkpoint: Checkpoint | None = None
    recovery: Annotated[Recovery, plugins.Plugin("recoveries", "kind")] | None = None
    evaluation: Evaluation | None = None

    def __post_init__(self) -> None:
        self._take_sites()
        if self.batch.per_device is None and self.batch.global_ is None:
            object.__setattr__(
                self, "batch", Batch(per_device=1, accumulation=self.batch.accumulation)
            )
        if self.cluster.machine is None and self.collective is None:
            message = f"is missing; without a machine choose backend {ideal_ones()}"
            raise Refused(message, ("collective",))
        ideal = self.collective is not None and self.collective.ideal
        if self.cluster.machine is None and not ideal:
            message = f"this backend needs a machine; without one choose {ideal_ones()}"
            raise Refused(message, ("collective",))
        if self.calibration is not None and (ideal or self.cluster.machine is None):
            raise Refused(
                "measured curves need a machine, and a backend that models it", ("calibration",)
            )
        self._check_exchange()
        if self.execution.kernelwise and self.host.kernels < 1:
            message = "execution.compile says which kernels there are; leave it out"
            raise Refused(message, ("host", "kernels"))
        for key in ("schedule", "stages"):
            if getattr(self, key) is not None and self.parallel.pipeline == 1:
                raise Refused("needs parallel: {pipeline: …} of at least 2", (key,))
        if self.detail == "rounds" and self.engine == "vectorised":
            raise Refused("rounds are played by engine: event only", ("detail",))
        if self.horizon is not None and not self.strategy.behaves:
            raise Refused(
                f"every step of {plugins.name_of(self.strategy)} is alike, so there is nothing to "
                "play for so long; parameter_server takes it",
                ("horizon",),
            )
        self._check_feed()
        self._check_life()

    def _take_sites(self) -> None:
        """The cluster that several sites are together."""
        given = {
            "parallel": not self.parallel.plain, "detail": self.detail == "rounds",
            "calibration": self.calibration is not None,
        }  # fmt: skip
        whole = whole_cluster(self.cluster, self.sites, self.links, given)
        object.__setattr__(self, "cluster", whole)

    def _check_feed(self) -> None:
        """Loaders are modelled where ranks wait for each other in every step."""
        if self.fed and self.iteration != "steady":
            raise Refused("first iterations are not modelled with a loader", ("iteration",))
        copied = self.input is not None and self.input.copy is not None
        if copied and (self.strategy.behaves or self.sites):
            message = (
                "copies are modelled in one cluster whose ranks wait for each other in every step"
            )
            raise Refused(f"{message}; leave it out", ("input", "copy"))
        if self.fed and self.strategy.behaves:
            message = "loaders are modelled where ranks wait for each other in every step only"
            raise Refused(f"{message}; limiting: false is accepted", ("input",))

    @property
    def fed(self) -> bool:
        """Whether something is known of what feeds the ranks, and it may hold up steps."""
        given = self.input
        return isinstance(given, Loader) or (given is not None and given.feeds)

    def _check_exchange(self) -> None:
        """The strategy, its collectives and the compression go together."""
        backend = "" if self.collective is None else plugins.name_of(self.collective)
        if backend:
            self.strategy.accept_backend(backend)
        if self.codec is not None:
            self.strategy.accept_compression(self.codec)
            self.codec.accept_backend(backend, ("compression",))

    @property
    def codec(self) -> Compression | None:
        """What gradients become before they travel, as the top of the scenario says it."""
        return self.compression if isinstance(self.compression, Compression) else None

    @property
    def compressed(self) -> Compression | None:
        """The same, or what the strategy's own settings say."""
        return self.codec or self.strategy.compression

    def _check_life(self) -> None:
        """What belongs to a run that failures interrupt goes together."""
        if self.evaluation is not None and self.training is None:
            raise Refused("needs training, which says how long the run is", ("evaluation",))
        if self.failures is not None:
            if self.training is None:
                raise Refused("needs training, which says how long the run is", ("failures",))
            if self.checkpoint is None:
                raise Refused("is missing; mode: free saves at no cost", ("checkpoint",))
            if self.checkpoint.mode == "free" and self.failures.corruption:
                said = "goes back to a checkpoint, of which mode: free has none"
                raise Refused(said, ("failures", "corruption"))
            return
        for key in ("checkpoint", "recovery"):
            if getattr(self, key) is not None:
                raise Refused("needs failures: what interrupts the run?", (key,))


@dataclass(frozen=True, repr=False)
class Loaded:
    """A scenario as read: the record, its points, and where everything came from.

    data    the plain data after --set; `sets` holds those of its texts, by key, that change it
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

    def __repr__(self) -> str:
        count = len(self.points)
        return f"Loaded({self.name[:80]!r}: {count:,} point{'s' * (count != 1)})"

    @property
    def altered(self) -> tuple[str, ...]:
        """The --set texts that make this another experiment than the one in the file."""
        own = {k: text for k, text in self.sets.items() if k.partition(".")[0] in EXPERIMENT}
        return tuple(text for key, text in own.items() if key not in INSTEAD)

    @property
    def called(self) -> str:
        """Its name, which was given to the file, and what --set has changed since."""
        return called(self.name, self.sets)

    @property
    def origins_set(self) -> set[str]:
        """The sections that --set touched."""
        return {key.partition(".")[0] for key in self.sets}

    def located(self, error: Refused) -> Refused:
        """`error` with the file and line (or --set) of its key, and what was set beside it."""
        at = dotted(error.path)
        if isinstance(error, yamlfile.FileRefused) or not self.origins:
            return error
        while at and at not in self.origins:
            at = at[: max(at.rfind("."), at.rfind("["), 0)]
        origin = self.origins.get(at) or next(iter(self.origins.values())).rpartition(":")[0]
        beside = () if origin.startswith("--set ") else tuple(self.sets.values())[:4]
        also = "; with " * bool(beside) + ", ".join(f"--set {text}" for text in beside)
        return yamlfile.FileRefused(error.message + also, error.path, shown=origin)


#: whatever says a scenario: a name or path, plain data, the record, or what `read` gave
Given = str | Path | Mapping[str, Any] | Scenario | Loaded


def taken(given: Given) -> Loaded:
    """`given` as a Loaded scenario; files that plain data names are below the current folder."""
    if isinstance(given, Loaded):
        return given
    if isinstance(given, (str, Path)):
        return read(given)
    if isinstance(given, Scenario):
        return load(to_data(given), Path(), "scenario")
    if isinstance(given, Mapping):
        return load(plain_data(given), Path(), "scenario")
    raise Refused(
        f"a {type(given).__name__} is no scenario; accepted: a name, a path, a dict, a Scenario, "
        "or what dpsim.read returns"
    )


def with_model(loaded: Loaded, model: Any) -> Loaded:
    """`loaded` with another model: a section, or what `dpsim.from_torch` gives."""
    made = load(
        {**loaded.data, "model": plain_data(model)},
        loaded.base,
        loaded.name,
        origins=loaded.origins,
    )
    return replace(made, sets={**loaded.sets, "model": "model=…"})


def change(given: Given, changes: Mapping[str, Any]) -> Loaded:
    """`given` with other values of some keys, as ``{"cluster.nodes": 4}`` (``--set`` in Python).

    A key that the sweep varies is taken out of the sweep.  What was given stays as it was.
    Raises Refused where a key or a value is not right.
    """
    loaded = taken(given)
    check_changes(changes)
    wanted = {dotted(parts_of(key)): plain_data(value) for key, value in changes.items()}
    data = with_change(loaded.data, {k: v for k, v in wanted.items() if k != "sweep"}, ())
    for key, value in wanted.items():
        if key == "sweep":
            data["sweep"] = value
        else:
            asked_last(data, key, value)
    made = load(data, loaded.base, loaded.name)
    sets = changing(loaded.data, data, {k: f"{k}={v}" for k, v in wanted.items()})
    return replace(made, sets={**loaded.sets, **sets})


def read(source: str | Path, sets: Sequence[str] = ()) -> Loaded:
    """Read a scenario file or bundled scenario, with ``a.b=v`` overrides in `sets`.

    Raises FileRefused (what, where, what would be accepted) for anything that is not right.
    """
    path = find(source)
    shown = as_text(source) if path == Path(source) else path.name
    data, lines = yamlfile.load(path, shown)
    if not isinstance(data, dict):
        raise yamlfile.FileRefused("the file holds no mapping", shown=shown)
    before, changed = with_change(data, {}, ()), apply_sets(data, sets)
    base, name = base_and_name(path)
    try:
        loaded = load(data, base, name, origins=origins_of(shown, lines, changed))
        return replace(loaded, sets=changing(before, data, changed))
    except Refused as error:
        raise placed(error, shown, lines, changed) from None


def placed(
    error: Refused, shown: str, lines: yamlfile.Lines, changed: Mapping[str, str]
) -> Refused:
    """`error` with the --set text at fault, else with the file and line of its key."""
    if error.unknown_key:
        more = of_one_kind(error.path, changed) or elsewhere(Scenario, error.path, error.message)
        error = Refused(error.message + more, error.path)
    at = dotted(error.path)
    for name, text in changed.items():
        if at == name or at.startswith((name + ".", name + "[")) or name.startswith(at + "."):
            return Refused(f"--set {text}: {error}{several(text)}")
    return yamlfile.located(error, shown, lines)


def load(
    data: dict[str, Any], base: Path, name: str, *, origins: dict[str, str] | None = None
) -> Loaded:
    """A Loaded scenario from plain data."""
    check_command(data)
    scenario = build(Scenario, data, file=True)
    changes = sweep_changes(data)
    rest = {key: value for key, value in data.items() if key != "sweep"}
    swept = [_point(rest, change, _place(data, number)) for number, change in enumerate(changes)]
    points = tuple(
        _with_jitter(point, with_change(rest, change, ()), base)
        for point, change in zip(swept, changes, strict=True)
    )
    calibrating = scenario.calibrate.file if scenario.calibrate else None
    for key, value in (("measured", scenario.measured), ("calibrate.file", calibrating)):
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
        for key in change:
            size = len(parts_of(key))
            if error.path[:size] == parts_of(key):
                raise Refused(error.message, (*place, key, *error.path[size:])) from None
        raise


def _with_jitter(scenario: Scenario, data: Mapping[str, Any], base: Path) -> Scenario:
    """`scenario` with the jitter that its calibration measured, unless `data` gives one."""
    given = scenario.calibration
    steps = None if given is None else calibrated.find(given, base).jitter
    if steps is None or not steps.jitter or "jitter" in (data.get("variability") or {}):
        return scenario  # a single step, or steps that were all alike, tell of no spread
    jitter = min(steps.jitter, 1.0)
    return replace(scenario, variability=replace(scenario.variability, jitter=jitter))
