"""How a run scales: laws fitted to it, and what makes it bend away from them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from dpsim.cases.case import Case
from dpsim.cases.unlimited import unlimited
from dpsim.cases.variant import Variant, at_ranks, without_communication
from dpsim.core.record import Refused
from dpsim.predict import answer
from dpsim.predict.answer import Beyond, Gap, Laws, NoLaws
from dpsim.predict.laws import amdahl, fit_usl, karp_flatt
from dpsim.predict.level import Level
from dpsim.predict.player import step_time
from dpsim.predict.point import Failed, Point
from dpsim.predict.widths import compute_range

#: efficiency below which a curve counts as bent
BENT = 0.9


@dataclasses.dataclass(frozen=True)
class Baseline:
    """The step on one rank [s]: work per sample, fixed work that ranks share out (a sharded
    optimizer), and what they don't."""

    parallel: float
    shared: float
    serial: float

    @property
    def total(self) -> float:
        return self.parallel + self.shared + self.serial

    @property
    def serial_fraction(self) -> float:
        return self.serial / self.total if self.total else 0.0

    def ideal(self, ranks: int, *, weak: bool) -> float:
        """Step time on `ranks` ranks by Amdahl (fixed work) or Gustafson (work grows) [s]."""
        if weak:
            return self.parallel + self.shared / ranks + self.serial
        return self.total / amdahl(self.serial_fraction, ranks)


def baseline(case: Case) -> Baseline:
    """`case` on one rank, with free communication: what Amdahl's law starts from.

    What of the fixed work is shared out shows in its halving from one rank to two.
    """
    silent = without_communication(case)
    one, two = (at_ranks(silent, ranks, counted=True) for ranks in (1, 2))
    parallel, fixed = _compute(one)
    halved = fixed - _compute(two, fixed_only=True)[1]
    shared = min(2.0 * halved, fixed)
    return Baseline(parallel, shared, fixed - shared)


def _compute(case: Case, *, fixed_only: bool = False) -> tuple[float, float]:
    """Compute time of rank 0: per-sample work, and everything else [s]."""
    job = case.job(1 if fixed_only else max(case.shares))
    ops = [op for op in case.scenario.strategy.program(job, None).ops if op.on_device]
    scaled = sum(op.seconds for op in ops if op.kind in ("forward", "backward"))
    return scaled, sum(op.seconds for op in ops if op.kind not in ("forward", "backward"))


def gap(case: Case, time: float, base: Baseline, alike: Case) -> Gap:
    """Step time beyond the law's, split into causes that sum to it.

    Causes are taken away one after the other (what nothing explains of measured steps, where
    `alike` is the case without that, communication, jitter, waits for batches); what is left over
    the law is load: uneven shares, and work that shrinks less than the batch does.
    """
    unexplained = 0.0 if alike is case else step_time(case) - step_time(alike)
    silent, time = without_communication(alike), time - unexplained
    free = step_time(silent)
    calm = step_time(silent, quiet=True)
    supplied = calm
    if case.feed is not None:
        other = {"input": unlimited(case.scenario.input)}
        at_once = Variant("a loader that is no limit", other).of(silent)
        supplied = step_time(at_once, quiet=True)
    law = base.ideal(case.ranks, weak=case.scenario.batch.weak)
    return Gap(time - free, free - calm, 0.0, calm - supplied, supplied - law, unexplained)


def laws(
    cases: Sequence[Case], points: Sequence[Point | Failed], found: Level | None
) -> Laws | NoLaws:
    """The laws for the points that have a step time, whose cases were calibrated as `found`."""
    good = [(c, p) for c, p in zip(cases, points, strict=True) if isinstance(p, Point)]
    if not good:
        return NoLaws()
    first = good[0][0]
    try:
        base = baseline(first)
    except Refused:  # a machine of one device, or work that is not split in two: there is no law
        return NoLaws()
    weak, own = first.scenario.batch.weak, [case for case, _ in good]
    alike = found.alike(own) if found else own
    beyond = tuple(
        Beyond(c.ranks, base.ideal(c.ranks, weak=weak), gap(c, p.step_time_s, base, one))
        for (c, p), one in zip(good, alike, strict=True)
    )
    explained = [
        (c.ranks, p.step_time_s - at.gap.unexplained_s, p)
        for (c, p), at in zip(good, beyond, strict=True)
    ]
    return Laws(
        amdahl=_amdahl(first, base, beyond, found is not None),
        gustafson=answer.Gustafson(base.serial_fraction),
        usl=_usl(explained),
        karp_flatt=tuple(
            _karp_flatt(ranks, step, base, weak=weak)
            for ranks, step, _ in explained
            if ranks > 1 and base.total
        ),
        bend=_bend(good, beyond),
    )


def _amdahl(
    first: Case, base: Baseline, beyond: tuple[Beyond, ...], calibrated: bool
) -> answer.Amdahl:
    fast, slow = compute_range(first, calibrated)
    exact = first.machine is None
    return answer.Amdahl(
        serial_fraction=base.serial_fraction,
        low=_serial(base, 1.0 if exact else slow),
        high=_serial(base, 1.0 if exact else fast),
        gap=beyond[-1].gap,
        points=beyond,
    )


def _serial(base: Baseline, stretch: float) -> float:
    total = base.serial + base.shared + base.parallel * stretch
    return base.serial / total if total else 0.0


def _usl(explained: Sequence[tuple[int, float, Point]]) -> answer.Usl | None:
    """Fitted to throughputs without what nothing explains: ranks, steps [s] and points."""
    rates = [(p.throughput_per_s or 0.0) * p.step_time_s / step for _, step, p in explained]
    fit = fit_usl([ranks for ranks, _, _ in explained], rates)
    if fit is None:
        return None
    peak = fit.peak_ranks if math.isfinite(fit.peak_ranks) else None
    return answer.Usl(fit.sigma, fit.kappa, peak)


def _karp_flatt(ranks: int, step: float, base: Baseline, *, weak: bool) -> answer.KarpFlatt:
    """The serial fraction that would explain this `step` [s] alone (scaled speed-up if weak)."""
    work = ranks * base.ideal(ranks, weak=True) if weak else base.total
    return answer.KarpFlatt(ranks, karp_flatt(work / step, ranks))


def _bend(good: Sequence[tuple[Case, Point]], beyond: Sequence[Beyond]) -> answer.Bend | None:
    """Where efficiency first falls below 90 %, and which part of the gap is the largest there."""
    for (case, point), at in zip(good, beyond, strict=True):
        if point.efficiency is not None and point.efficiency < BENT:
            sizes = {**vars(at.gap), "serial_s": _serial_loss(good, case, at)}
            largest = max(sizes, key=lambda name: sizes[name])
            return answer.Bend(case.ranks, largest.removesuffix("_s"))
    return None


def _serial_loss(good: Sequence[tuple[Case, Point]], case: Case, at: Beyond) -> float:
    """What the law itself loses against linear scaling from the first point [s]."""
    if case.scenario.batch.weak:
        return 0.0
    first, point = good[0]
    return at.law_s - point.step_time_s * first.ranks / case.ranks
