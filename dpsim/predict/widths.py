"""How wide intervals are by what a prediction knows of itself: features of learned widths.

Which of them tell narrow groups of runs from wide ones was found with every source of published
runs left out once (validation/left_out.py); how much each counts is learned there too.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable

from dpsim.cases import typical_code
from dpsim.cases.case import Case
from dpsim.core import plugins
from dpsim.core.constants import shipped
from dpsim.core.lean import dataclass
from dpsim.machines.fabrics.torus import Torus

#: parameters from which a model is large
LARGE = 1e9
#: logarithms of what a step takes over its multiplications at the peak, between which that counts:
#: an MFU of 0.61, which few steps reach, and one of 0.08, below which nothing more is known
LEAST_OVER, MOST_OVER = 0.5, 2.5
#: logarithm between a calibrated prediction and linear scaling from which on it can be wrong
#: altogether; scores of sources left out are much the same from 0.1 to 0.3
FAR = 0.2
#: share by which a step may differ from a measured one and still be the same: what a change of so
#: little does is less than runs differ by
SAME = 0.005
#: of the logarithm by which another model, dtype or kernel computes faster than what was measured,
#: so much may be wrong either way: a prior, since series of published runs change none of these
UNSURE = 0.5
#: compute capability, times ten, of Ampere's last devices: of runs on newer ones fewer are known
LAST_AMPERE = 87
#: times its prediction from which a calibrated step may, and from which it as well may, say that
#: something was wrong with that run: of 20 series of published runs that took 4 times as long (of
#: models whose layers are known), two ran 13 to 50 times faster on more ranks, and the others kept
#: their level; chosen on the scores of these runs, which from 3 to 5 times are much the same
DOUBTED = (4.0, 6.0)
#: images a second of a node that every host decodes, and from which on any may be too slow: what 13
#: and 105 cores of torch's workers do of photographs at 26.1 ms (docs/howto/feed-the-ranks.md);
#: scores of sources left out are much the same from half to twice of either
DECODED = (500.0, 4000.0)
#: the most that a step grows per doubling of slices of TPUs beyond what their links take: 6 to 8 %
#: without XLA's option that hides reductions between slices, 2 to 4 % with it (MaxText's recipes of
#: v5e and v6e, docs/howto/tpus.md)
SLICES = 1.08


@dataclass(frozen=True)
class Reference:
    """A measured step, as others are carried from it.

    ranks    on how many it was measured
    seconds  what it took for each sample of a rank [s]
    flop     of a sample; 0 where nobody knows
    samples  of a rank
    micro    of these, in the largest micro-batch
    devices  names of its ranks' devices
    run      digest of what makes another run of it: batch, mesh, strategy and so on
    work     digest of what sets how long a device takes for a FLOP
    pace     what such a micro-batch takes for a FLOP, uncalibrated [s]; 0 where nobody knows
    step     what the calibrated model takes for it [s]
    """

    ranks: int
    seconds: float
    flop: float
    samples: float
    micro: int
    devices: str
    run: str
    work: str
    pace: float
    step: float

    def linear(self, case: Case) -> float:
        """The step of `case` if every device did as much per second as in the measured one, or as
        much more or less as its dtype and kernels are modelled to [s]."""
        flop = case.model.flop_per_sample()
        work = flop / self.flop if flop and self.flop else 1.0
        each = self.seconds * work * math.exp(self.changed(case))
        return each * case.global_batch / case.ranks

    def repeated(self, case: Case, step: float) -> bool:
        """Whether a `step` [s] of `case` is this one again: of the same run, with nothing else
        changed that is modelled to matter."""
        same = not self.elsewhere(case) and self.run == _run(case) and not self.changed(case)
        return same and abs(step / self.step - 1.0) <= SAME

    def elsewhere(self, case: Case) -> bool:
        """Whether `case` is on other devices than it was."""
        return self.devices != _devices(case)

    def batches(self, case: Case) -> float:
        """Doublings of the samples of a rank's micro-batch since it."""
        return math.log2(max(case.shares) / self.micro)

    def changed(self, case: Case) -> float:
        """The logarithm by which `case` takes longer for a FLOP of the same micro-batch than this
        run, uncalibrated: another model, or in another dtype or by other kernels."""
        own = _pace(case, self.micro) if self.work != _work(case) else 0.0
        return math.log(own / self.pace) if own and self.pace else 0.0


def reference(case: Case, seconds: float, step: float | None = None) -> Reference:
    """The step of `case`, which took `seconds`, and which the calibrated model has as `step`; None:
    as measured."""
    ranks, flop = case.ranks, case.model.flop_per_sample() or 0.0
    samples = case.global_batch / ranks
    micro, own = max(case.shares), seconds / samples
    known = ranks, own, flop, samples, micro, _devices(case), _run(case), _work(case)
    return Reference(*known, _pace(case, micro), step or seconds)


def _devices(case: Case) -> str:
    return ", ".join(device.name if device else "-" for device in case.pace.kinds)


def _run(case: Case) -> str:
    """A digest of what a run is known by; what else its scenario says shows in its step."""
    said = case.scenario
    kinds = (plugins.name_of(one) for one in (said.strategy, said.schedule, said.optimizer))
    batch = case.ranks, case.global_batch, max(case.shares), case.batch.accumulation
    work = said.model, case.precision, said.recompute, said.input
    return _digest(*batch, *kinds, *work, said.parallel)


def _work(case: Case) -> str:
    """A digest of what sets how long a device takes for a FLOP of some samples."""
    return _digest(case.scenario.model, case.precision, case.scenario.execution)


def _digest(*values: object) -> str:
    return hashlib.sha256(repr(values).encode()).hexdigest()[:16]


def _pace(case: Case, samples: int) -> float:
    """What the slowest of the ranks takes for a FLOP of a micro-batch of `samples`, uncalibrated
    [s]; 0 where nobody knows."""
    flop, pace = case.model.flop_per_sample(), case.pace
    if case.device is None or not flop:
        return 0.0
    each = (pace.uncalibrated_seconds(samples, kind) for kind in set(pace.of_rank))
    return max(each) / (flop * samples)


def departure(case: Case, step: float, linear: float) -> float:
    """By how much a calibrated `step` of `case` can be wrong that lies so far from linear scaling
    of the measured one [both s]: one that changes little can hardly be, one that is `FAR` by what
    it takes over its multiplications."""
    if step <= 0 or linear <= 0:
        return 0.0
    return overhead(case, step) * far(math.log(step / linear))


def far(way: float) -> float:
    """A logarithm between a step and linear scaling, as a share of `FAR`; 1 beyond."""
    return min(abs(way) / FAR, 1.0)


def doubt_of(case: Case) -> float:
    """By what logarithm a calibrated `case` may be faster if its measured step was not what such
    steps take; 0 where that is within what healthy runs take, or nothing is known of the layers but
    how many parameters they have."""
    given = case.machine is None or stands_in(case)
    return 0.0 if given else doubt_of_level(case.compute_scale)


def doubt_of_level(level: float) -> float:
    """The same of a `level` whose model is known: down to what is predicted without it from the
    second of `DOUBTED` on, from the first on by degrees."""
    first, last = map(math.log, DOUBTED)
    whole = math.log(max(level, DOUBTED[0]))
    return whole * min((whole - first) / (last - first), 1.0)


def slices_since(case: Case, calibrated_at: int | None) -> float:
    """Doublings of slices of TPUs since a run of `calibrated_at` ranks, since one slice where none
    was measured; negative where there are fewer."""
    topology = case.topology
    if topology is None or not isinstance(topology.fabric, Torus):
        return 0.0
    before = 1 if calibrated_at is None else -(-calibrated_at // topology.gpus)
    return math.log2(topology.nodes / before)


def sliced(cases: Iterable[Case]) -> bool:
    """Whether one of `cases` is on several slices of TPUs."""
    return any(slices_since(case, None) > 0 for case in cases)


def doublings_inside(case: Case, start: int) -> float:
    """How often the ranks of a node have doubled since a run of `start` ranks."""
    assert case.topology is not None
    per_node = case.topology.gpus
    return math.log2(max(min(case.ranks, per_node) / min(start, per_node), 1.0))


def fed(case: Case, seconds: float) -> float:
    """How far the images that a node takes in steps of `seconds` are more than any host decodes: 0
    up to the first of `DECODED`, 1 from the second on.  Of a model of which only the size is known
    a sample counts as many times as it takes longer than its stand-in's: its images are larger."""
    topology = case.topology
    if seconds <= 0 or case.model.sample != "image":
        return 0.0
    ranks = min(case.ranks, topology.gpus if topology else case.ranks)
    each = max(case.compute_scale, 1.0) if stands_in(case) else 1.0
    first, last = map(math.log, DECODED)
    rate = max(max(case.shares) * ranks * each / seconds, DECODED[0])
    return min((math.log(rate) - first) / (last - first), 1.0)


def stands_in(case: Case) -> bool:
    """Whether only the size of the model is known, and so nothing of its compute."""
    return bool(case.model.doubts) or plugins.name_of(case.scenario.model) == "scaled"


def overhead(case: Case, seconds: float) -> float:
    """The logarithm of what a step of `seconds` takes over its multiplications at the peak of its
    devices, from `LEAST_OVER` to `MOST_OVER`, less the first: launches, memory traffic, bubbles,
    exposed communication, all of which are less sure than multiplications.  The most where nothing
    is known of the peak, or no runs on such devices were learned from."""
    device, peak = case.device, case.pace.peak
    flop = case.model.flop_per_sample()
    if device is None or device.compute_capability == 0 or not peak or not flop or seconds <= 0:
        return MOST_OVER - LEAST_OVER
    over = math.log(seconds * peak / (flop * case.global_batch))
    return min(max(over, LEAST_OVER), MOST_OVER) - LEAST_OVER


def step_range(case: Case, seconds: float) -> tuple[float, float]:
    """By what factors an uncalibrated step of `seconds` may be off, all causes together."""
    known = {"any": 1.0, "overhead": overhead(case, seconds), "newer": float(newer(case))}
    fast, slow = (
        math.exp(
            math.hypot(
                *(much * math.log(width(f"compute.{name}.{end}")) for name, much in known.items())
            )
        )
        for end in ("fast", "slow")
    )
    return 1.0 / fast, slow


def newer(case: Case) -> bool:
    """Whether its devices came after Ampere, or are another maker's."""
    device = case.device
    return device is not None and not 0 < device.compute_capability <= LAST_AMPERE


def compute_range(case: Case, calibrated: bool) -> tuple[float, float]:
    """By what factors the time of all compute may be off; uncalibrated, as a step that takes no
    longer than a rank's compute would be."""
    if calibrated:
        return 1.0 / width("run.fast"), width("run.slow")
    if typical_code.is_typical(case.scenario):
        return typical_code.compute_ends()
    return step_range(case, case.batches.step_seconds / case.compute_scale)


def split_range(case: Case) -> tuple[float, float] | None:
    """By what factors a calibrated step may be off where ranks share a model or a sample; None
    where they do not."""
    splits = case.scenario.parallel.splits
    return (1.0 / width("split.fast"), width("split.slow")) if splits else None


def program_range(case: Case) -> tuple[float, float]:
    """By what factors a calibrated step of this program may be off, however little it
    communicates."""
    ends = filter(None, (compute_range(case, True), split_range(case)))
    low, high = (math.hypot(*map(math.log, side)) for side in zip(*ends, strict=True))
    return math.exp(-low), math.exp(high)


def changed_range(case: Case, changed: float, share: float) -> tuple[float, float]:
    """By what factors a step of `case` may be off, of which a `share` is compute, if it computes a
    FLOP by the logarithm `changed` faster or slower than what was measured: no farther than without
    a measurement."""
    low, high = compute_range(case, False)
    most = UNSURE * abs(changed)
    fast, slow = max(math.exp(-most), low), min(math.exp(most), high)
    return 1.0 + share * (fast - 1.0), 1.0 + share * (slow - 1.0)


def size_of(case: Case) -> str:
    """The kind of device and dtype, and whether the model is large: kernels of large models differ
    less in how much of the peak they reach."""
    return f"{case.pace.device_class}.{'large' if case.model.parameters > LARGE else 'small'}"


def width(name: str) -> float:
    """A learned width."""
    return shipped("training")[f"interval.{name}"].value
