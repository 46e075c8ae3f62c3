"""Values of one knob: where they are searched, and what has come out at those that were tried."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dpsim.cases.case import Case
from dpsim.cases.site import fastest_nic
from dpsim.core.record import Refused
from dpsim.planning.bench import Bench
from dpsim.planning.finding import Tried, marked
from dpsim.planning.grid import parse_axis
from dpsim.planning.knobs import TRIED, Knob, knob_of, unit_in, with_unit
from dpsim.planning.search import rises_or_falls, spaced
from dpsim.planning.wanted import Wanted, margin_of, value_of
from dpsim.predict.point import Change, Failed, Point, computed

#: GPUs up to which the size of a cluster is searched if nobody says
MOST_GPUS = 1024
#: values of a range that are all tried for a batch of whole micro-batches; of more, those of a scan
MOST_TRIED = 2048
#: nodes beside the job's: no more of a kind than the job has
SPARES = ("recovery.spares.warm", "recovery.spares.idle")
#: processes, or threads, of a rank that prepare its batches
WORKERS = "input.workers"
#: the rate of a NIC, one way
BANDWIDTH = "cluster.inter_node_bandwidth"
#: the NICs of a node
NICS = "cluster.nics_per_node"
#: why a search that nobody bounds ends where it does
_ENDS = {
    BANDWIDTH: "up to {high}, for no NIC of the machines that come with dpsim is faster",
    NICS: "up to {high}, twice the GPUs of a node, for none of the machines that come with dpsim "
    "has more",
    "cluster.inter_node_latency": "from {low} to {high}: a switch alone takes as long as the one, "
    "and light in fibre half way round the Earth as the other",
}
#: a step that is no longer than so many times the shortest is as good as that
HARDLY = 1.05


@dataclass
class Trials:
    """What has been tried of one knob: value -> point, with the margin of what is wanted."""

    bench: Bench
    knob: Knob
    wanted: Sequence[Wanted]
    points: dict[float, Point | Failed] = field(default_factory=dict)

    @property
    def relative(self) -> bool:
        return any(one.relative for one in self.wanted)

    def play(self, text: str, *, confirmed: bool = False) -> Point | Failed:
        """The point at the value `text`."""
        change = {self.knob.key: self.knob.setting(text)}
        return self.bench.point(change, relative=self.relative, confirmed=confirmed)

    def margin(self, value: float, sure: bool = False) -> float:
        """The margin at `value`, rounded to what a scenario would say."""
        text = self.knob.text(value, TRIED)
        at = self.knob.value(text)
        if at not in self.points:
            self.points[at] = self.play(text)
        return margin_of(self.wanted, self.points[at], sure=sure)

    def ordered(self) -> list[float]:
        return sorted(self.points)

    def marked(self) -> list[Tried]:
        """The points, rising, and whether all that is wanted holds there."""
        return [marked(self.points[at], self.wanted) for at in self.ordered()]

    def notes(self) -> Iterator[str]:
        """What is not as a search of one edge takes for granted."""
        points, key = [self.points[at] for at in self.ordered()], self.knob.key
        for one in self.wanted:
            line = [value_of(point, one.field) for point in points]
            if one.field != "fits" and not rises_or_falls(line):
                yield f"{one.field} goes up and down over {key}; narrow gaps may be missed"
        errors = [point.error for point in self.points.values() if isinstance(point, Failed)]
        if errors:
            yield f"no number at {len(errors)} of {len(points)} values: {errors[0]}"
        unfit = sum(not point.memory.holds for point in computed(points))
        if unfit and not any(one.field == "fits" for one in self.wanted):
            yield f"{unfit} of {len(points)} values are not taken to fit; add --require fits"
        yield from starved(points, key)


def starved(points: Sequence[Point | Failed], key: str) -> Iterator[str]:
    """From where on more workers hardly help, for the cores of a node limit the loader."""
    fed = [(p, p.input) for p in computed(points) if p.input is not None]
    held = [(point, how) for point, how in fed if how.limit == "cores"]
    if key != WORKERS or not held:
        return
    best, how = min(held, key=lambda pair: pair[0].step_time_s)
    near = [p for p, _ in held if p.step_time_s <= HARDLY * best.step_time_s]
    enough = min(int(p.set[key]) for p in near)
    need = f"; no step waits with {how.cores:.3g} cores a node" if how.cores else ""
    yield (
        f"the cores of a node limit the loader: more workers than {enough} shorten the step by "
        f"less than {HARDLY - 1.0:.0%}{need}"
    )


# -- where to search ------------------------------------------------------------------------------


class Reach(NamedTuple):
    """A range to search in, both ends included."""

    low: float
    high: float


def searched(bench: Bench, text: str) -> tuple[Knob, Reach | list[float] | None]:
    """The knob of a ``--vary KEY``, and where to search: None around its present value, the span of
    ``KEY=LOW:HIGH UNIT``, or the values of ``KEY=V1,V2,…``."""
    key, equals, values = (part.strip() for part in text.partition("="))
    knob = knob_of(bench.scenario(), key, "--vary")
    if not equals:
        return knob, None
    try:
        return _given(knob, key, values)
    except ValueError as error:
        message = error.message if isinstance(error, Refused) else str(error)
        raise Refused(f"--vary {text}: {message.removeprefix(f'--grid {text}: ')}") from None


def _given(knob: Knob, key: str, values: str) -> tuple[Knob, Reach | list[float]]:
    """The knob in the unit of `values`, and their numbers, rising, or a range of them."""
    ends = values.split(":")
    if len(ends) == 2:
        unit = unit_in(ends[1])
        texts = [end if unit_in(end) or not unit else f"{end} {unit}" for end in ends]
        low, high = (knob.value(text) for text in texts)
        if low >= high:
            raise ValueError(f"a range goes up; {texts[0]} is not below {texts[1]}")
        return _said_in(knob, unit), Reach(low, high)
    listed = [str(value) for value in parse_axis(f"{key}={values}").values]
    numbers = sorted(knob.value(text) for text in listed)
    return _said_in(knob, unit_in(listed[0])), numbers


def _said_in(knob: Knob, unit: str) -> Knob:
    return with_unit(knob, unit) if unit and not knob.whole else knob


def scanned(bench: Bench, knob: Knob, given: Reach | None) -> list[float]:
    """The values of the coarse scan."""
    low, high = given or (limits(bench, knob) if knob.counts else knob.span())
    if given is None:
        high = min(high, _pointless(bench.case(), knob.key))
    if knob.whole:
        low = max(math.ceil(low / knob.step) * knob.step, knob.step)
        high = max(high // knob.step * knob.step, low)
    elif knob.above and low <= knob.low:
        raise Refused(f"--vary {knob.key}: {knob.text(low)} is excluded; begin above it")
    if knob.counts and given is None:  # counts that people build
        return [*(v for k in range(21) if (v := 2.0**k) < high), high]
    values = spaced(low, high, step=float(knob.step) if knob.whole else 0.0)
    inner = {knob.value(knob.text(value, 3)) for value in values[1:-1]}
    return [values[0], *sorted(v for v in inner if low < v < high), *values[1:][-1:]]


#: what is passed over where it is not so
_WHOLE = "a whole number of micro-batches of all replicas"


def passed_over(knob: Knob) -> str:
    """That `looked_at` has left values out."""
    return f"values of {knob.key} at which batch.global is not {_WHOLE} are passed over"


def looked_at(
    bench: Bench, knob: Knob, given: Reach | Sequence[float] | None
) -> tuple[Sequence[float], bool]:
    """The values that are played first, and whether it counts what lies between them: not where
    they are `given` one by one, or a global batch is whole micro-batches at some alone, which are
    played then; Refused where there are none."""
    if given is not None and not isinstance(given, Reach):
        return given, False
    every = scanned(bench, knob, given)
    if not (knob.whole and bench.scenario().batch.follows):
        return every, True
    if given is not None and given.high - given.low < MOST_TRIED:
        every = [float(value) for value in range(math.ceil(given.low), int(given.high) + 1)]
    found = [value for value in every if _divides(bench, {knob.key: int(value)})]
    if not found:
        ends = f"{knob.text(every[0])} to {knob.text(every[-1])}"
        raise Refused(f"--vary {knob.key}: at none of {ends} is batch.global {_WHOLE}")
    return found, False


def _divides(bench: Bench, change: Change) -> bool:
    try:
        return bench.case(change).batch.accumulation > 0
    except Refused as error:
        return error.path[:1] != ("batch",)


def _pointless(case: Case, key: str) -> float:
    """What nobody searches beyond: as many spare nodes as the job has (more are refused), as many
    workers of a rank as its node has hardware threads, the rate of the fastest NIC there is, or of
    the scenario's own, and twice as many NICs as GPUs, or the node's own."""
    if key in SPARES:
        return float(case.nodes or case.ranks)
    if key == BANDWIDTH:
        return max(case.site.nic_rate or 0.0, fastest_nic())
    if key == NICS and case.topology is not None:
        return float(max(2 * case.topology.gpus, case.topology.nics))
    cores = case.feed.made.at_hand.cores if case.feed else None
    if key == WORKERS and cores is not None:
        return float(cores.physical * cores.threads_per_core)
    return math.inf


def ended(knob: Knob, values: Sequence[float]) -> Iterator[str]:
    """That nothing beyond these `values` was tried, why, and how it is; nothing of keys whose range
    is only a guess."""
    if knob.key in _ENDS:
        why = _ENDS[knob.key].format(low=knob.text(values[0]), high=knob.text(values[-1]))
        yield f"{knob.key}: searched {why}; --vary {knob.key}=LOW:HIGH searches further"


def limits(bench: Bench, knob: Knob) -> tuple[float, float]:
    """Sizes of cluster to look at: up to MOST_GPUS, and what the machine allows."""
    case = bench.case()
    if knob.key == "cluster.ranks" or case.topology is None:
        high = MOST_GPUS
    else:
        high = max(MOST_GPUS // case.topology.gpus, 1)
    while high > 1 and not _accepted(bench, {knob.key: high}):
        high //= 2
    return 1.0, float(high)


def _accepted(bench: Bench, change: Change) -> bool:
    try:
        return bench.case(change).ranks > 0
    except Refused:
        return False
