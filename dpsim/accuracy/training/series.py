"""One series of measured training runs: calibrated on its smallest count, the others predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dpsim.accuracy import mixture
from dpsim.accuracy.described import described
from dpsim.accuracy.mixture import MixturePart
from dpsim.accuracy.platforms import MachineReading, Platform
from dpsim.accuracy.scores import Scored, count_band, finite
from dpsim.accuracy.training import alike
from dpsim.accuracy.training.baselines import baselines, linear
from dpsim.accuracy.training.experts import apart
from dpsim.accuracy.training.feeds import assumes_time
from dpsim.accuracy.training.possible import explained, is_possible, require_possible
from dpsim.accuracy.training.scenarios import MeasuredCase, measured_case, padded, platform_of
from dpsim.accuracy.training.table import TrainingRow
from dpsim.accuracy.training.unscored import unscored
from dpsim.cases.case import Case
from dpsim.core.errors import SimulationError
from dpsim.core.record import Refused
from dpsim.describe.sections import Calibrate, made_up
from dpsim.predict import shortened
from dpsim.predict.bottleneck import bottleneck
from dpsim.predict.level import BeyondLoader, Level
from dpsim.predict.peak import BeyondPeak
from dpsim.predict.uncertainty import interval
from dpsim.predict.widths import reference


@dataclass(frozen=True)
class TrainingOutcome:
    """What became of one row: its `status`, why, and the numbers in the row's own unit.

    anchored  whether a row of its series is calibrated on
    level     by what its compute would be longer than predicted, of one that is calibrated on and
              whose model is known
    apart     how many times as long its step is under one reading of its machine as under another
    """

    number: int
    status: str
    reason: str = ""
    measured: float | None = None
    predicted: float | None = None
    low: float | None = None
    high: float | None = None
    bottleneck: str = ""
    strategy: str = ""
    fabric: str = ""
    anchored: bool = False
    scored: Scored | None = None
    machine: str = ""
    level: float | None = None
    apart: float = 1.0


#: levels of compute that any series may have: of 527 calibrated ones of 26 sources whose machine
#: has one reading, a twentieth lie below 0.77 and a twentieth above 2.4; and over which logarithm
#: a level beyond is e times less likely: chosen, of levels within nothing moves
USUAL_LEVELS, BEYOND = (0.7, 2.4), 0.4


@dataclass(frozen=True)
class Anchor:
    """What the calibration row of a series tells: its case and the level that it sets,
    or why it tells nothing; none of the three where nothing is calibrated.

    beyond       it tells nothing because its step is faster than the device can multiply, or than
                 its loader feeds it
    """

    measured: MeasuredCase | None = None
    level: Level | None = None
    failure: str = ""
    beyond: type[Refused] | None = None

    @property
    def likely(self) -> float:
        """How likely its level is, beside that of other readings of the same row: what no level
        rules out is as likely as it was."""
        if self.level is None or self.measured is None or self.measured.stand_in:
            return 1.0
        low, high = USUAL_LEVELS
        beyond = max(low / self.level.scale, self.level.scale / high, 1.0)
        return float(beyond ** (-1 / BEYOND))


def calibration_row(rows: Sequence[TrainingRow]) -> TrainingRow | None:
    """The row that a series is calibrated on; None where its rows say that there is none."""
    if any(row.text("role") for row in rows):
        told = (row for row in rows if row.text("role").lower().startswith("calib"))
        return next(told, None)
    return min(rows, key=lambda row: row.gpus)


def play_series(rows: Sequence[TrainingRow], calibrate: str = "smallest") -> list[TrainingOutcome]:
    """The outcomes of one series."""
    anchors = anchors_of(calibration_row(rows) if calibrate == "smallest" else None, rows)
    outcomes = []
    for row in anchors.rows:
        if row is anchors.first:
            outcomes.append(_anchored(row, anchors))
        elif anchors.working.failure:
            reason = f"its calibration row: {anchors.working.failure}"
            outcomes.append(TrainingOutcome(row.number, "refused", reason))
        else:
            outcomes.append(_predicted(row, anchors))
    return outcomes


def anchors_of(first: TrainingRow | None, rows: Sequence[TrainingRow]) -> Anchors:
    """What the calibration row `first` of `rows` tells, and the rows as they are to be played:
    padded texts that would need more than the device's peak without their padding; without what is
    assumed of loaders where the run that is calibrated on was faster than that; and computing again
    what that run is taken to."""
    anchors = Anchors(first, rows)
    if first is not None and anchors.usual.beyond is BeyondPeak and padded(first):
        unpadded = [alike.unpadded(row) for row in rows]
        other = Anchors(unpadded[rows.index(first)], unpadded)
        anchors = anchors if other.usual.failure else other
    elif first is not None and anchors.usual.beyond is BeyondLoader and assumes_time(first):
        unsaid = [alike.undecoded(row) for row in rows]
        anchors = Anchors(unsaid[rows.index(first)], unsaid)
    own, base = anchors.first, anchors.working.measured
    if own is None or base is None:
        return anchors
    played = [row if row is own else alike.recomputing(row, base.case) for row in anchors.rows]
    return Anchors(own, played, anchors.known)


@dataclass
class Anchors:
    """What the calibration row `first` of `rows` tells, under each reading of its machine."""

    first: TrainingRow | None
    rows: Sequence[TrainingRow]
    known: dict[int, Anchor] = field(default_factory=dict)

    @property
    def usual(self) -> Anchor:
        return self._at(0, None)

    @cached_property
    def working(self) -> Anchor:
        """That under the most usual reading that tells something; the usual one where none does."""
        if self.first is None or not self.usual.failure:
            return self.usual
        with suppress(Refused):  # where no machine is read at all
            known = (self._at(place, reading) for place, reading in enumerate(self.readings))
            return next((anchor for anchor in known if not anchor.failure), self.usual)
        return self.usual

    @cached_property
    def readings(self) -> tuple[MachineReading, ...]:
        """Those of the calibration row, which there is."""
        assert self.first is not None
        return platform_of(alike.like(self.first, self.rows)).readings

    @property
    def telling(self) -> tuple[MachineReading, ...]:
        """Those that tell something; all where the usual one does."""
        if not self.usual.failure:
            return self.readings
        known = (reading for reading in enumerate(self.readings) if not self._at(*reading).failure)
        return tuple(reading for _, reading in known)

    def like(self, reading: MachineReading) -> Anchor:
        """The anchor under the reading that answers as `reading` does what both leave open."""
        if self.first is None:
            return Anchor()
        found = self.readings
        place = max(range(len(found)), key=lambda k: (_agreeing(found[k], reading), -k))
        return self._at(place, found[place])

    def _at(self, place: int, reading: MachineReading | None) -> Anchor:
        if self.first is None:
            return Anchor()
        if place not in self.known:
            self.known[place] = anchor_of(self.first, self.rows, reading=reading)
        return self.known[place]


def _agreeing(one: MachineReading, other: MachineReading) -> int:
    """Questions that both readings answer alike, less those that they answer otherwise."""
    both = one.answers.keys() & other.answers.keys()
    return sum(1 if one.answers[q] == other.answers[q] else -1 for q in both)


def anchor_of(
    first: TrainingRow,
    rows: Sequence[TrainingRow],
    compute: Mapping[str, Any] | None = None,
    reading: MachineReading | None = None,
) -> Anchor:
    """What the calibration row `first` of `rows` tells; `compute` is the scenario's section of that
    name, `reading` that of its machine (see `measured_case`)."""
    assumed, measured = "", None
    try:
        measured = measured_case(alike.like(first, rows), compute, reading)
        assumed = "; ".join(note for note in measured.notes if note.endswith("assumed"))
        found = shortened.level(measured.case, Calibrate(step_time=measured.step_time))
    except (Refused, SimulationError, ValueError) as error:
        beyond = type(error) if isinstance(error, BeyondPeak | BeyondLoader) else None
        fast = measured is not None and (beyond is BeyondPeak or not is_possible(measured))
        told = explained(str(error), measured) if measured and fast else str(error)
        failure = f"{told} ({assumed})" if assumed else told
        return Anchor(failure=failure, beyond=beyond)
    return Anchor(measured, found)


def _anchored(row: TrainingRow, anchors: Anchors) -> TrainingOutcome:
    anchor = anchors.working
    own = anchor.measured
    if own is None:
        return TrainingOutcome(row.number, "refused", anchor.failure)
    value = own.value(own.step_time)
    level = anchor.level.scale if anchor.level and not own.stand_in else None
    notes = [*_fallen_back(anchors.readings, anchors.usual.failure), *own.notes]
    return TrainingOutcome(
        row.number, "calibrated", "; ".join(notes), value, value, value, value,
        strategy=own.strategy, fabric=fabric_of(own), anchored=True,
        machine=_machine(own, anchors.telling), level=level,
    )  # fmt: skip


def _fallen_back(readings: Sequence[MachineReading], failure: str) -> list[str]:
    """What to tell where the usual one of `readings` is not played, for its `failure`."""
    label = readings[0].label or "the usual reading"
    return [f"{label} is ruled out: {failure}"] if failure else []


@dataclass(frozen=True)
class PlayedReading:
    """A row as it was played under one reading of its machine; times of a step [s].

    likely  how likely the level is that its calibration row then has, beside other readings
    """

    reading: MachineReading
    here: MeasuredCase
    base: MeasuredCase | None
    time: float
    ends: tuple[float, float]
    bottleneck: str
    shortened: bool
    likely: float

    def part(self, usual: MeasuredCase) -> MixturePart:
        """It as a part of a mixture, in times of a step of the `usual` reading, which may have
        another batch where a rate was measured."""
        scale = usual.step_time / self.here.step_time
        times = (time * scale for time in (self.time, *self.ends))
        return MixturePart(self.reading.weight * self.likely, *times)


def _played(row: TrainingRow, reading: MachineReading, anchor: Anchor) -> PlayedReading:
    """Raises Refused, SimulationError or ValueError where the row cannot be played so."""
    if anchor.failure:
        raise Refused(f"its calibration row: {anchor.failure}")
    base, here = anchor.measured, measured_case(row, reading=reading)
    require_possible(here, base)
    if anchor.level is None and here.stand_in:
        raise Refused("only the size of this model is known: its compute needs a calibrated row")
    case = anchor.level.of(here.case) if anchor.level else here.case
    played = shortened.play(case)
    ranks = base.case.ranks if base else None
    time = finite(played.step_time)
    known = _since(here, base, case, time) if base else {}
    bounds = interval(case, played, ranks, shortened.lane_times, **known)
    ends = (min(bounds.low or time * 1e-3, time), max(bounds.high, time))
    limit = bottleneck(case, played)
    short = played.reason == shortened.NOTE
    return PlayedReading(reading, here, base, time, ends, limit, short, anchor.likely)


def _predicted(row: TrainingRow, anchors: Anchors) -> TrainingOutcome:
    found: list[PlayedReading] = []
    failures: list[str] = []
    try:
        readings = platform_of(row).readings
    except Refused as error:
        return TrainingOutcome(row.number, "refused", str(error))
    for reading in readings:
        try:
            found.append(_played(row, reading, anchors.like(reading)))
        except (Refused, SimulationError, ValueError) as error:
            failures.append(str(error))
    if not found:
        return TrainingOutcome(row.number, "refused", failures[0])
    usual = found[0].reading is readings[0]
    return _outcome(row, anchors.rows, found, [] if usual else _fallen_back(readings, failures[0]))


def _outcome(
    row: TrainingRow, rows: Sequence[TrainingRow], found: Sequence[PlayedReading], told: list[str]
) -> TrainingOutcome:
    """One outcome of a row of `rows` out of those under each reading that could be played, the
    usual one first; `told` of those that could not."""
    here, base = found[0].here, found[0].base
    parts = [one.part(here) for one in found]
    values = [part.value for part in parts]
    time, (low, high) = mixture.point(parts), mixture.bounds(parts)
    ends = sorted((here.value(low), here.value(high)))
    unfit = unscored(row, rows)
    notes = [f"not scored: {unfit}"] if unfit else []
    notes += [*told, *([shortened.NOTE] if found[0].shortened else [])]
    scored = None if unfit else _scored(here, base, time, (ends[0], ends[1]))
    return TrainingOutcome(
        row.number, "predicted", "; ".join([*notes, *here.notes]),
        here.value(here.step_time), here.value(time), ends[0], ends[1], found[0].bottleneck,
        here.strategy, fabric_of(here), base is not None, scored,
        _machine(here, [one.reading for one in found], values), apart=max(values) / min(values),
    )  # fmt: skip


def _machine(
    here: MeasuredCase, readings: Sequence[MachineReading], times: Sequence[float] = ()
) -> str:
    """The machine of a row in words, with all that is assumed of it and of the run."""
    topology = here.case.topology
    crossed = topology is not None and topology.nodes > 1
    return described(Platform(tuple(readings)), times, crossed, here.told)


def _since(here: MeasuredCase, base: MeasuredCase, case: Case, time: float) -> dict[str, Any]:
    """What the interval of a step of `time` knows of the run that `case` was calibrated on; nothing
    is modelled of how experts are stored."""
    known = reference(base.case, base.step_time)
    same = apart(here.row) == apart(base.row)
    return {
        "repeated": same and known.repeated(case, time),
        "batches": known.batches(case),
        "changed": known.changed(case),
        "linear": linear(here, base),
        "fullest": 1 if made_up(base.case.scenario.input) else None,
    }


def _scored(
    here: MeasuredCase, base: MeasuredCase | None, time: float, ends: tuple[float, float]
) -> Scored:
    regime = regime_of(here)
    source = here.row.text("source_id") or here.row.text("source_repo") or "-"
    common = (source, regime, here.value(here.step_time), here.value(time), *ends)
    if base is None:
        return Scored(*common, rate=not here.time)
    others = {name: here.value(t) for name, t in baselines(here, base).items()}
    same = linear(here, base)
    lost = 1.0 - same / here.step_time, 1.0 - same / time
    return Scored(*common, *lost, others, not here.time)


def fabric_of(here: MeasuredCase) -> str:
    """The kind of link that a ring over all ranks is paced by: inside a node or between nodes."""
    topology = here.case.topology
    if topology is None or topology.ranks == 1:
        return "one GPU"
    last = topology.gpus if topology.ranks > topology.gpus else 1
    kinds = [topology.link(edge).kind for edge in topology.route(0, last)]
    order = (
        *("ethernet", "gvnic", "ipoib", "slingshot_ip", "tcpx", "efa", "slingshot", "omni_path"),
        *("roce", "infiniband", "inter_socket", "pcie", "xgmi", "nvlink", "nvswitch"),
    )
    return min(kinds, key=lambda kind: order.index(kind) if kind in order else len(order))


def generation(here: MeasuredCase) -> str:
    """GPU generation, as in "Volta"."""
    device = here.case.device
    name = device.generation if device else "other"
    return name if name == "other" else name.capitalize()


def regime_of(here: MeasuredCase) -> str:
    parts = (generation(here), fabric_of(here), here.strategy, count_band(here.case.ranks))
    return " | ".join(parts)
