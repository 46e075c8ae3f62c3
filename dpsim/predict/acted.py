"""How a case went whose workers behave: its rates, its staleness, and what its servers did."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

from dpsim.cases.case import Case
from dpsim.cases.plays import Stretch
from dpsim.compile.behaviour import COMPUTING, NETWORK, SERVER
from dpsim.compile.program import Cast
from dpsim.compile.timeline import Span, Split, Step, Timeline, remainder
from dpsim.core.lean import dataclass
from dpsim.core.record import Refused
from dpsim.play.event.enactment import enact
from dpsim.play.scene import Chronicle, Scene, Update
from dpsim.predict.acted_effort import check_effort, scene_of

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Acted:
    """What was played, and what happened."""

    case: Case
    scene: Scene
    story: Chronicle

    # -- what is measured -------------------------------------------------------------------------

    @cached_property
    def since(self) -> float:
        """When measuring begins [s]."""
        if self.scene.horizon is not None:
            return 0.0
        known = (ticks[self.scene.warmup - 1] for ticks in self.story.ticks if
                 len(ticks) >= self.scene.warmup)  # fmt: skip
        return max(known, default=0.0)

    @cached_property
    def updates(self) -> tuple[Update, ...]:
        """The updates that are measured; clocks stand for them where there are none."""
        end = self.story.end * (1.0 + _ROUNDING)
        made: Sequence[Update] = self.story.updates
        if not made:
            made = sorted(
                Update(time, rank, 1, None)
                for rank, ticks in enumerate(self.story.ticks) for time in ticks
            )  # fmt: skip
        found = tuple(one for one in made if self.since < one.time <= end)
        if not found:
            raise Refused(
                f"no update was made in {self.story.end:g} s; a longer horizon is accepted",
                ("horizon",),
            )
        return found

    @cached_property
    def rates(self) -> dict[int, float]:
        """Gradients a second, by who brought them; together under the first, where an update takes
        several of them."""
        together = any(one.gradients > 1 for one in self.updates)
        found: dict[int, list[Update]] = {}
        for one in self.updates:
            found.setdefault(0 if together else one.rank, []).append(one)
        return {rank: self._rate(each) for rank, each in found.items()}

    def _rate(self, made: list[Update]) -> float:
        """Gradients a second: over the horizon, or from the first of these updates to the last."""
        gradients = sum(one.gradients for one in made)
        if self.scene.horizon is not None:
            return gradients / self.scene.horizon
        span = made[-1].time - made[0].time
        if span <= 0:
            return gradients / max(self.story.end - self.since, 1e-300)
        return (gradients - made[0].gradients) / span

    @property
    def of_step(self) -> int:
        """Gradients of a step."""
        return self.case.scenario.strategy.gradients_of_step(self.scene.ranks)

    @cached_property
    def step_time(self) -> float:
        """How long as many gradients take as make a step [s]."""
        return self.of_step / sum(self.rates.values())

    @property
    def updates_per_s(self) -> float:
        """Updates of the parameters a second."""
        return sum(self.rates.values()) / self.updates[0].gradients

    @cached_property
    def samples_per_s(self) -> float:
        """Samples a second whose gradients counted."""
        shares, micro = self.case.shares, self.case.batch.accumulation
        if any(one.gradients > 1 for one in self.updates):
            each = sum(shares) / len(shares)
            return sum(self.rates.values()) * each * micro
        return sum(rate * shares[rank] for rank, rate in self.rates.items()) * micro

    # -- the same as a timeline -------------------------------------------------------------------

    @cached_property
    def durations(self) -> tuple[float, ...]:
        """How long each so many gradients took [s]; the mean alone where nothing is random."""
        ends, count = [], 0
        for one in self.updates:
            count += one.gradients
            if count >= self.of_step:
                ends.append(one.time)
                count -= self.of_step
        random = self.case.scenario.variability.random
        found = tuple(b - a for a, b in pairwise(ends)) if random else ()
        return found or (self.step_time,)

    @property
    def split(self) -> Split:
        """The mean worker's part of a step, by what it spent it on [s]."""
        share, time = self.story.share, self.step_time
        talk = share(NETWORK) + share(SERVER)
        idle = remainder(1.0, share(COMPUTING) + talk)
        return Split(share(COMPUTING) * time, talk * time, 0.0, idle * time)

    @property
    def timeline(self) -> Timeline:
        """What other answers have."""
        return Timeline(self.durations, (self.split,), LastClock(self), self.story.events)


class LastClock(Step):
    """The end of a play: the last clock of the slowest worker, and what all did meanwhile."""

    def __init__(self, acted: Acted) -> None:
        story = acted.story
        self.acted = acted
        self._rank = min(range(story.ranks), key=lambda rank: len(story.ticks[rank]))
        ticks = story.ticks[self._rank]
        self._end = ticks[-1] if ticks else story.end
        cast = Cast.uniform(acted.case.programs.cast(None).programs[0], story.ranks)
        super().__init__(cast, ticks[-2] if len(ticks) > 1 else 0.0, None)

    @property
    def finish(self) -> float:
        return self._end

    def critical_rank(self) -> int:
        return self._rank

    def split(self) -> Split:
        return self.acted.split

    def spans(self, ranks: object) -> list[Span]:
        """What workers did, times from the step's start."""
        wanted = set(ranks)  # type: ignore[call-overload]
        return [
            Span(one.rank, "compute" if one.kind == "compute" else "network", one.name, one.kind,
                 "world", one.bytes, *(t - self.origin for t in (one.start, one.start, one.end)))
            for one in self.acted.story.doings
            if one.rank in wanted and one.end > self.origin and one.start < self._end
        ]  # fmt: skip


def act(
    case: Case,
    stretch: Stretch | None = None,
    *,
    quiet: bool = False,
    at_most: int | None = None,
    clocks: int | None = None,
) -> Acted:
    """Play `case`, whose workers behave: over `at_most` clocks where anything is random, or over
    `clocks` anyhow.  Raises Refused where that would take too long."""
    scene = scene_of(case, stretch, quiet=quiet, at_most=at_most, clocks=clocks)
    check_effort(case, scene)
    return Acted(case, scene, enact(scene))
