"""The numbers of a point whose workers behave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from dpsim.cases.case import Case
from dpsim.cases.sited import SitedCosts
from dpsim.compile.behaviour import CAUSES, COMPUTING, NETWORK, OTHERS, SERVER
from dpsim.predict.acted import Acted
from dpsim.predict.bottleneck import compute_bound, network_sizes
from dpsim.predict.level import Level
from dpsim.predict.numbers import Numbers, mfu_of
from dpsim.predict.player import Played
from dpsim.predict.point import Asynchrony, Change, Sent, ServerUse, Staleness


def numbers_of(
    case: Case, played: Played, found: Level | None, change: Change | None = None
) -> Numbers:
    """The numbers of a played case, whoever played it."""
    if played.acted is None:
        return Numbers(case, played, found, change)
    return ActedNumbers(case, played, played.acted, found, change)


class ActedNumbers(Numbers):
    """Those of a case whose workers behaved."""

    def __init__(
        self, case: Case, played: Played, acted: Acted, found: Level | None, change: Change | None
    ) -> None:
        super().__init__(case, played, found, change)
        self.acted = acted
        self.throughput_per_s = acted.samples_per_s * case.model.tokens

    @cached_property
    def mfu(self) -> float | None:
        """Model FLOP utilisation, of gradients that counted."""
        return mfu_of(self.case, self.acted.samples_per_s)

    @cached_property
    def sent(self) -> Sent:
        """What a worker sends in a step, in the mean."""
        story, ranks = self.acted.story, self.ranks
        steps = story.end / self.step_time_s
        return Sent(sum(story.sent[:ranks]) / ranks / steps, 0.0, 0.0)

    @cached_property
    def bound_s(self) -> float:
        """All workers compute all the time, and none of their gradients is dropped."""
        story = self.acted.story
        each = [
            seconds / len(ticks) for seconds, ticks in zip(story.computed, story.ticks, strict=True)
            if ticks and seconds
        ]  # fmt: skip
        rate = sum(1.0 / seconds for seconds in each)
        return min(self.acted.of_step / rate, self.step_time_s) if rate else 0.0

    @cached_property
    def bottleneck(self) -> str:
        """What most of the workers' time goes to."""
        share = self.acted.story.share
        sizes = {name: share(cause) for name, cause in (
            ("compute", COMPUTING), ("network", NETWORK), ("server", SERVER),
            ("stragglers", OTHERS))}  # fmt: skip
        largest = max(sizes, key=lambda name: sizes[name])
        if largest == "compute":
            return compute_bound(self.case)
        return self._network if largest == "network" else largest

    @property
    def _network(self) -> str:
        """What takes the time of messages between workers and servers, on idle links."""
        scene, size = self.acted.scene, max(self._held, default=0.0)
        firsts = [0]  # of several sites the worker who is the farthest
        if self.case.scenario.sites is not None:
            firsts = [sum(self.case.site.sizes[:k]) for k in range(len(self.case.site.sizes))]
        plans = (scene.costs.plan("send", (scene.seats[k], scene.seats[-1]), size) for k in firsts)
        plan = max(plans, key=lambda plan: plan.seconds)
        sizes = network_sizes([plan], scene.costs.topology)
        return max(sizes, key=lambda name: sizes[name])

    # -- what others do not have ------------------------------------------------------------------

    @cached_property
    def asynchrony(self) -> Asynchrony:
        """What workers made of their time."""
        acted, story = self.acted, self.acted.story
        end = story.end
        dropped = sum(sum(acted.since < time <= end for time in w) for w in story.wasted)
        counted = sum(one.gradients for one in acted.updates)
        names = {name for found in story.notes for name in found}
        return Asynchrony(
            clocks=story.clocks,
            played_s=end,
            updates_per_s=acted.updates_per_s,
            wasted=dropped / (dropped + counted),
            spent={cause: story.share(cause) for cause in CAUSES},
            staleness=self._staleness,
            servers=tuple(self._server(k) for k in range(acted.scene.servers)),
            notes={name: _texts(story.noted(name)) for name in sorted(names)} or None,
            crossing_bytes_per_s=self._crossing,
        )

    @property
    def _crossing(self) -> dict[str, dict[str, float]] | None:
        """What links between sites carry a second."""
        costs, story = self.case.stage_set.costs, self.acted.story
        if not isinstance(costs, SitedCosts):
            return None
        found: dict[str, dict[str, float]] = {}
        for (source, target), size in story.moved.items():
            for (a, b), moved in costs.wan.carried(costs.flows(source, target, size)).items():
                own = found.setdefault(a, {})
                own[b] = own.get(b, 0.0) + moved / story.end
        return found

    @property
    def _staleness(self) -> Staleness | None:
        told = [(one.rank, one.staleness) for one in self.acted.updates]
        found = [(rank, late) for rank, late in told if late is not None]
        if not found:
            return None
        every = sorted(late for _, late in found)
        each = [[late for one, late in found if one == rank] for rank in range(self.ranks)]
        return Staleness(
            _mean(every), every[(len(every) - 1) // 2], every[-1 - len(every) // 100],
            tuple(_mean(own) if own else None for own in each),
        )  # fmt: skip

    @cached_property
    def _held(self) -> tuple[float, ...]:
        return self.case.scenario.strategy.held_by_servers(self.case.job(max(self.case.shares)))

    def _server(self, number: int) -> ServerUse:
        story, scene = self.acted.story, self.acted.scene
        place, size = self.ranks + number, self._held[number]
        gate = story.holdings.get(f"server {number}")
        received = sent = None
        alone = self.case.scenario.sites is None  # else its link is not that of a worker's message
        if alone and size and scene.seats[0] != scene.seats[place]:
            plan = scene.costs.plan("send", (scene.seats[0], scene.seats[place]), size)
            seconds = sum(phase.seconds for phase in plan.phases if phase.loads)
            if seconds:
                received = story.came[place] * seconds / size / story.end
                sent = story.sent[place] * seconds / size / story.end
        return ServerUse(
            bytes=size,
            busy=gate.busy / gate.capacity / story.end if gate else None,
            wait_s=gate.waited / gate.asked if gate else 0.0,
            received=received,
            sent=sent,
        )


def _texts(numbers: Mapping[int, float]) -> dict[str, float]:
    """Numbers by rank, as JSON has them."""
    return {str(rank): number for rank, number in numbers.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
