"""The tables of peers.py: other simulators' published rows beside dpsim's, as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dpsim.accuracy.training.series import TrainingOutcome
from dpsim.accuracy.training.table import TrainingRow

GIB = 2.0**30
Row = dict[str, str]


@dataclass(frozen=True)
class Told:
    """What dpsim says of a run: a point and the ends of its 90 % interval; a step [s] or memory
    [B]."""

    point: float
    low: float
    high: float

    def inside(self, measured: float) -> bool:
        return self.low <= measured <= self.high


@dataclass(frozen=True)
class PeerRow:
    """A run beside what two programs say of it: time of a step [s], peak of tensors [B].

    anchored    the peer's step, times the one factor that makes it right for one run of the model
    calibrated  dpsim's step, calibrated on that same run; both are None for it
    """

    row: Row
    measured: float
    peer: float
    own: Told
    anchored: float | None
    calibrated: Told | None
    allocated: float
    peer_allocated: float
    own_allocated: Told


@dataclass(frozen=True)
class MeasuredPlan:
    """A run whose peer publishes no prediction: dpsim's, calibrated (None for the run that it is
    calibrated on) and not."""

    row: TrainingRow
    calibrated: TrainingOutcome | None
    own: TrainingOutcome


@dataclass(frozen=True)
class Compared:
    """Relative errors of a peer and of dpsim on one run; whether it lies inside dpsim's interval,
    and how wide that is (high / low)."""

    peer: float
    own: float
    inside: bool
    width: float


def uncalibrated(one: PeerRow) -> Compared:
    return _pair(one.measured, one.peer, one.own)


def calibrated(one: PeerRow) -> Compared | None:
    if one.anchored is None or one.calibrated is None:
        return None
    return _pair(one.measured, one.anchored, one.calibrated)


def _pair(true: float, peer: float, own: Told) -> Compared:
    return Compared(
        peer / true - 1, own.point / true - 1, own.inside(true), own.high / own.low
    )  # fmt: skip


def group_of(row: Row) -> str:
    """What a run shows."""
    if int(row["expert"]) > 1:
        return "experts"
    if int(row["context"]) > 1:
        return "long sequences"
    return "dense, pipeline" if int(row["pipeline"]) > 1 else "dense, tensor"


def name_of(row: Row, batches: bool = True) -> str:
    """A run in words."""
    axes = ("tensor", "context", "pipeline", "expert")
    mesh = " x ".join(f"{axis} {row[axis]}" for axis in axes if int(row[axis]) > 1)
    tokens = f", {int(row['seq_len']) // 1024}k tokens" if int(row["context"]) > 1 else ""
    count = f", {row['accumulation']} micro-batches" if batches else ""
    return f"{row['model']}, {row['blocks']} blocks, {mesh}{tokens}{count}"


def medians(rows: Sequence[PeerRow]) -> Iterator[str]:
    """Medians of |error| over the groups of runs, and over all."""
    yield (
        "| runs | n | SimuMax | dpsim | inside, high / low | n | SimuMax, times one factor "
        "| dpsim, calibrated | inside, high / low |"
    )
    yield "|---|---:|---:|---:|---|---:|---:|---:|---|"
    groups: dict[str, list[PeerRow]] = {}
    for one in rows:
        groups.setdefault(group_of(one.row), []).append(one)
    for name, some in [*groups.items(), ("all", list(rows))]:
        before = [uncalibrated(one) for one in some]
        after = [pair for one in some if (pair := calibrated(one))]
        yield f"| {name} | {_half(before)} | {_half(after)} |"


def _half(pairs: Sequence[Compared]) -> str:
    if not pairs:
        return "0 | – | – | –"
    peer = statistics.median(abs(one.peer) for one in pairs)
    own = statistics.median(abs(one.own) for one in pairs)
    wide = statistics.median(one.width for one in pairs)
    inside = sum(one.inside for one in pairs)
    return f"{len(pairs)} | {percent(peer)} | {percent(own)} | {inside} of {len(pairs)}, {wide:.1f}"


def steps_table(rows: Iterable[PeerRow]) -> Iterator[str]:
    """Every run's step."""
    yield "| run | measured | SimuMax | dpsim | inside | dpsim, calibrated | inside |"
    yield "|---|---:|---:|---:|---|---:|---|"
    for one in rows:
        before, after = uncalibrated(one), calibrated(one)
        told = f"{signed(after.own)} | {_yes(after.inside)}" if after else "calibrated on | –"
        yield (
            f"| {name_of(one.row)} | {one.measured * 1e3:,.1f} ms | {signed(before.peer)} "
            f"| {signed(before.own)} | {_yes(before.inside)} | {told} |"
        )


def memory_table(rows: Iterable[PeerRow]) -> Iterator[str]:
    """The memory of every run; runs that differ in micro-batches alone were measured once."""
    yield "| run | measured | SimuMax | dpsim | inside |"
    yield "|---|---:|---:|---:|---|"
    for one in measured_once(rows):
        pair = _pair(one.allocated, one.peer_allocated, one.own_allocated)
        yield (
            f"| {name_of(one.row, False)} | {one.allocated / GIB:.2f} GiB | {signed(pair.peer, 2)} "
            f"| {signed(pair.own, 2)} | {_yes(pair.inside)} |"
        )


def measured_once(rows: Iterable[PeerRow]) -> list[PeerRow]:
    found: dict[str, PeerRow] = {}
    for one in rows:
        found.setdefault(name_of(one.row, False), one)
    return list(found.values())


def plans_summary(found: Sequence[MeasuredPlan]) -> Iterator[str]:
    """Means, as vTrain has them, and medians of |error| over the plans.

    14.73 %: of 109 runs on up to 512 GPUs, as its authors say (KAIST, "Professor Minsoo Rhu's
    research team develops a simulation framework called vTrain", 2025-03; arXiv:2312.12391)."""
    yield "| | n | mean | median | inside |"
    yield "|---|---:|---:|---:|---:|"
    yield "| vTrain, as its authors say | 109 | 14.73 % | – | – |"
    after = [one.calibrated for one in found if one.calibrated]
    before = [one.own for one in found]
    for name, some in (("dpsim, in sample", before), ("dpsim, in sample, calibrated", after)):
        sizes = [abs(_error(one)) for one in some]
        if sizes:
            middle = percent(statistics.mean(sizes)), percent(statistics.median(sizes))
            inside = f"{sum(map(_covers, some))} of {len(some)}"
            yield f"| {name} | {len(some)} | {middle[0]} | {middle[1]} | {inside} |"


def plans_table(found: Iterable[MeasuredPlan]) -> Iterator[str]:
    """Every plan."""
    yield "| run | measured | vTrain | dpsim | inside | dpsim, calibrated | inside |"
    yield "|---|---:|---|---:|---|---:|---|"
    for one in found:
        cells = [one.row.text(name) for name in ("model", "total_gpus", "tp", "pp", "dp")]
        name = "{}, {} GPUs, tensor {} x pipeline {} x data {}".format(*cells)
        name += f", micro-batch {one.row.text('batch_per_gpu')}"
        after = one.calibrated
        told = f"{signed(_error(after))} | {_yes(_covers(after))}" if after else "calibrated on | –"
        yield (
            f"| {name} | {one.own.measured:,.0f} ms | – | {signed(_error(one.own))} "
            f"| {_yes(_covers(one.own))} | {told} |"
        )


def _error(one: TrainingOutcome) -> float:
    assert one.predicted is not None
    assert one.measured is not None
    return one.predicted / one.measured - 1


def _covers(one: TrainingOutcome) -> bool:
    assert one.measured is not None
    assert one.low is not None
    assert one.high is not None
    return one.low <= one.measured <= one.high


def signed(error: float, digits: int = 1) -> str:
    return f"{100 * error:+.{digits}f} %"


def percent(error: float) -> str:
    return f"{100 * error:.1f} %"


def _yes(found: bool) -> str:
    return "yes" if found else "no"


HEAD = """# Beside other simulators' published rows

Written by `python validation/peers.py --write`.  Errors are (predicted - measured) / measured;
"inside" says whether the measured value lies in dpsim's 90 % interval, "high / low" how wide that
is.  What is compared, and what either program knew:
[other simulators](../docs/howto/other-simulators.md#beside-what-they-measured).
"""


def page(rows: Sequence[PeerRow], found: Sequence[MeasuredPlan]) -> str:
    """All tables, as Markdown."""
    parts = [
        [HEAD, "## SimuMax on B200: medians of the step's |error|", "", *medians(rows)],
        ["## SimuMax on B200: every step", "", *steps_table(rows)],
        ["## SimuMax on B200: what tensors take at the peak", "", *memory_table(rows)],
        ["## vTrain on A100: |error| of the step", "", *plans_summary(found)],
        ["## vTrain on A100: every step", "", *plans_table(found)],
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"
