"""What it takes to play workers that behave, known before anything is played."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpsim.cases.case import Case
from dpsim.cases.plays import Stretch
from dpsim.core.arrays import Array
from dpsim.core.record import Refused
from dpsim.play.scene import Scene
from dpsim.predict.effort import shown

#: rough CPU seconds for a worker's clock: beside its servers, for each of them, and for each worker
#: that may share its links (2-core x86-64, ResNet-50 on 4 to 64 workers and 1 to 4 servers)
CLOCK, OF_SERVER, OF_BOTH = 2e-4, 2e-4, 4e-5
#: seconds of a single play, as estimated, beyond which it is refused
LIMIT = 3600.0
#: the same where the slowest worker's clock takes UNLIKE of the fastest's or more: nearly all that
#: is played is then of workers that have long settled [s]
LIMIT_UNLIKE, UNLIKE = 60.0, 100.0


def scene_of(
    case: Case,
    stretch: Stretch | None = None,
    *,
    quiet: bool = False,
    at_most: int | None = None,
    clocks: int | None = None,
) -> Scene:
    """What is played of `case`, as `dpsim.predict.acted.act` says."""
    scene = case.stage_set.scene(stretch or Stretch(), quiet=quiet, at_most=at_most)
    return replace(scene, clocks=clocks or scene.clocks)


def check_effort(case: Case, scene: Scene) -> None:
    """Refuse a play that would take longer than LIMIT, or LIMIT_UNLIKE, as its clocks without
    waiting tell, and one in which no time passes."""
    computed = _computed(case)
    if not computed.max() > 0:
        if case.costs.plan("send", (0, 1), 1e6).seconds > 0:
            return
        raise Refused("a clock takes no time: neither layers nor network take any", ("model",))
    each = computed + _sent(case, scene)
    if not each.min() > 0:
        return
    clocks, longest = _clocks(case, scene, each)
    seconds = clocks * _of_clock(scene)
    alike = _together(case) or each.max() < UNLIKE * each.min()
    if seconds > LIMIT_UNLIKE and scene.servers and not (alike or scene.horizon):
        slow, quick = int(each.argmax()), int(each.argmin())
        wait = float(f"{0.9 * longest * LIMIT_UNLIKE / seconds:.1g}")
        accepted = f"{wait:.9f}".rstrip("0").rstrip(".")
        raise Refused(
            f"a clock of worker {slow} takes {each.max():.3g} s and one of worker {quick} "
            f"{each.min():.3g} s: until the slow one has settled, about {clocks:,.0f} are played, "
            f"in {shown(seconds)} ({shown(LIMIT_UNLIKE)} are accepted); horizon: "
            f"{accepted} s is accepted, or a faster way to the servers, or workers "
            "that wait for each other",
            ("horizon",),
        )
    if seconds > LIMIT:
        raise Refused(
            f"{clocks:,.0f} clocks of {scene.ranks:,} workers would take about {shown(seconds)} to "
            f"play; a single play may take {shown(LIMIT)}: fewer workers, a shorter horizon or "
            "fewer variability.steps are accepted",
            ("horizon",) if scene.horizon else ("cluster",),
        )


def acted_seconds(case: Case) -> float:
    """Rough CPU seconds of playing `case`, whose workers behave [s].  Raises Refused where that is
    refused."""
    scene = scene_of(case)
    check_effort(case, scene)
    each = _computed(case) + _sent(case, scene)
    return _clocks(case, scene, each)[0] * _of_clock(scene) if each.min() > 0 else 0.0


def _computed(case: Case) -> Array:
    """What each worker computes in a clock [s]."""
    found = case.batches.slowness(max(case.shares)) * case.batch.accumulation
    return np.asarray(found + case.scenario.host.serial)


def _sent(case: Case, scene: Scene) -> Array:
    """What parameters and gradients of a clock take each worker between sites where nobody waits
    for all and no other is under way [s]; nothing inside one cluster, where workers are alike."""
    strategy, ranks = case.scenario.strategy, scene.ranks
    found = np.zeros(ranks)
    if _together(case) or not case.scenario.sites:
        return found
    held = strategy.held_by_servers(case.job(max(case.shares)))
    for k, size in enumerate(held):
        seat = scene.seats[ranks + k]
        both = [
            sum(
                scene.costs.plan("send", pair, size).seconds
                for pair in ((seat, rank), (rank, seat)) if seat != rank
            )
            for rank in range(ranks)
        ]  # fmt: skip
        found = np.maximum(found, both)
    return found


def _clocks(case: Case, scene: Scene, each: Array) -> tuple[float, float]:
    """The clocks of all workers together, and how long is played [s], where a clock of each takes
    `each` seconds; nobody comes further ahead than its bound."""
    count = scene.clocks + scene.warmup
    longest = scene.horizon or float(each.max()) * count
    strategy = case.scenario.strategy
    bound = getattr(strategy, "bound", None) if getattr(strategy, "mode", "") == "ssp" else None
    most = longest / each.max() + (np.inf if bound is None else bound + 1.0)
    return float(np.minimum(longest / each, most).sum()), longest


def _together(case: Case) -> bool:
    """Whether nobody goes on before the slowest has."""
    strategy, ranks = case.scenario.strategy, case.ranks
    return strategy.waits_for_all and strategy.gradients_of_step(ranks) >= ranks


def _of_clock(scene: Scene) -> float:
    """CPU seconds of a worker's clock [s]."""
    return CLOCK + (OF_SERVER + OF_BOTH * scene.ranks) * scene.servers
