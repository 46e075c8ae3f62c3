"""Enactment: behaviours played event by event, over links that all flows share.

SimPy ends quietly when all wait, and never ends when time stands still; hence the guards: finite
non-negative times, everybody done or an error that says who waits for what, limits on events and on
events at one instant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from dpsim.backends import Plan
from dpsim.collectives import SEND
from dpsim.compile.behaviour import NETWORK, SERVER, Behaviour, Mail, Occurrence
from dpsim.compile.program import Op
from dpsim.core.errors import SimulationError
from dpsim.play import check_time
from dpsim.play.clock import Clock
from dpsim.play.event.actors import Actor
from dpsim.play.event.bytes_moved import BytesMoved
from dpsim.play.event.departures import Departures, width_of
from dpsim.play.event.doings import Doings
from dpsim.play.event.resources import Mailbox, Meetings, Turnstile
from dpsim.play.event.worlds import PlayedWorld
from dpsim.play.network import Parts, Passage, SharedLinks, parts
from dpsim.play.scene import Chronicle, Scene

MAX_EVENTS = 20_000_000
#: ends of clocks that lie beyond the horizon by less, as a share, are sums of rounded times
_ROUNDING = 1e-9
_STANDING = 20_000


def enact(scene: Scene, *, max_events: int = MAX_EVENTS) -> Chronicle:
    """Play `scene`.  Raises SimulationError where there is no honest answer."""
    return Enactment(scene, max_events).chronicle()


class _Flow(Passage):
    """Bytes under way; what it takes beyond `alone` seconds is the doing of other flows."""

    def __init__(
        self, arrival: Occurrence, alone: float, begin: float, now: Callable[[], float]
    ) -> None:
        self.arrival, self.alone, self.begin, self._now = arrival, alone, begin, now

    def over(self) -> None:
        taken = self._now() - self.begin
        alone = min(self.alone, taken)
        self.arrival.spent = {NETWORK: alone, SERVER: taken - alone}
        self.arrival.happen()


class Enactment:
    """One scene that is played: its clock, its links, and what workers share."""

    def __init__(self, scene: Scene, max_events: int) -> None:
        self.scene, self._max = scene, max_events
        self.clock = Clock()
        self.links = SharedLinks(self.clock, cache(scene.costs.capacity))
        self.story = Chronicle(scene.ranks, len(scene.seats))
        self.doings = Doings(self.story)
        self.bytes = BytesMoved(self.story, self.now)
        self.boxes = [Mailbox() for _ in scene.seats]
        self.meetings = Meetings()
        self.gates: dict[str, Turnstile] = {}
        self.memory: dict[Any, Any] = {}
        self.departures = [Departures(self.clock, self.links) for _ in scene.seats]
        self._plans: dict[tuple[int, int, float], tuple[Plan, Parts, float]] = {}
        self.actors: list[Actor] = []
        self._behind = scene.ranks if scene.horizon is None else -1
        self.draws, self.factors = cache(scene.draws), cache(scene.factors)

    def now(self) -> float:
        """The time [s]."""
        return float(self.clock.now)

    def chronicle(self) -> Chronicle:
        """Play, and say what happened."""
        scene, story = self.scene, self.story
        worlds = [PlayedWorld(self, rank) for rank in range(scene.ranks)]
        main = [self.actor(w.rank, scene.behave(w), f"rank {w.rank}") for w in worlds]
        for actor in main:
            actor.begin()
        story.events = self._drain()
        story.end = scene.horizon if scene.horizon is not None else self.now()
        self.bytes.close(self.links.left(story.end))
        for actor in main:
            if actor.waits is not None:
                actor.account(actor.waits)
            story.spent[actor.rank] = actor.spent
        for name, gate in self.gates.items():
            gate.close()
            story.holdings[name] = gate.used
        return story

    def actor(self, rank: int, behaviour: Behaviour, what: str) -> Actor:
        """Somebody who is about to begin."""
        actor = Actor(rank, behaviour, what, self.now)
        self.actors.append(actor)
        return actor

    # -- the course of time -----------------------------------------------------------------------

    def _drain(self) -> int:
        clock, events, same, at = self.clock, 0, 0, -1.0
        limit = None
        if self.scene.horizon is not None:
            limit = self.scene.horizon * (1.0 + _ROUNDING)
        while clock.busy and self._behind:
            if limit is not None and clock.peek() > limit:
                return events
            clock.step()
            events += 1
            same = same + 1 if clock.now == at else 0
            at = clock.now
            if events > self._max:
                raise SimulationError(
                    f"more than {self._max:,} events; give a shorter horizon, or fewer workers"
                )
            if same > _STANDING + 200 * self.scene.ranks:
                raise SimulationError(f"time stands still at {at} s: {same:,} events at once")
        if self._behind:
            self._check_done()
        return events

    def _check_done(self) -> None:
        """Nothing happens any more: everybody has ended, or it is a deadlock."""
        stuck = [actor for actor in self.actors if not actor.over.happened]
        if stuck:
            named = [f"{actor.what} for {actor.waits and actor.waits.what}" for actor in stuck]
            more = f"; and {len(named) - 8} more" if len(named) > 8 else ""
            raise SimulationError(
                f"deadlock at {self.now():g} s: these wait and nothing happens any more: "
                + "; ".join(named[:8]) + more
            )  # fmt: skip

    def ticked(self, rank: int) -> None:
        """A clock of `rank` is over; when the last worker has had enough of them, all end."""
        ticks = self.story.ticks[rank]
        ticks.append(self.now())
        scene = self.scene
        if scene.horizon is None and len(ticks) == scene.warmup + scene.clocks:
            self._behind -= 1

    # -- what is done with others -----------------------------------------------------------------

    def after(self, seconds: float, found: Occurrence, what: str) -> Occurrence:
        """`found` happens so much later."""
        time = self.now() + check_time(seconds, what)
        self.clock.at(time, lambda _: found.happen())
        return found

    def transfer(
        self, source: int, target: int, size: float, name: str, window: float | None = None
    ) -> Occurrence:
        """Bytes from one place to another, in turn with others of `source` where there is a
        window."""
        places = len(self.scene.seats)
        if not (0 <= source < places and 0 <= target < places):
            raise SimulationError(f"{name} from {source} to {target}: there are {places} places")
        check_time(size, f"{name} has a size that")
        found = Occurrence(f"{name} from {self.place(source)} to {self.place(target)}", NETWORK)
        began = self.now()
        found.then(lambda _: self.doings.add(source, target, name, size, began, self.now()))
        plan, made, width = self._plan(self.scene.seats[source], self.scene.seats[target], size)
        # one worker has no others: what shares its link is its own
        alone = plan.seconds if self.scene.ranks > 1 else float("inf")
        flow = _Flow(found, alone, began, self.now)
        to_go = flow.to_go
        if window is None or not plan.phases:
            flow.carry_out(self.clock, self.links, began, made)
        else:
            to_go = self.departures[source].add(plan, width, window, flow.over).to_go
        self.bytes.add(found, to_go, plan.seconds, size, ((source, target),))
        return found

    def _plan(self, source: int, target: int, size: float) -> tuple[Plan, Parts, float]:
        """How a message goes, and how many like it fill its sender's links."""
        key = source, target, size
        if key not in self._plans:
            plan = Plan((), None, "none", 0.0)  # within one host
            if source != target:
                plan = self.scene.costs.plan(SEND, (source, target), size)
            self._plans[key] = plan, parts(plan, self.links), width_of(plan, self.links)
        return self._plans[key]

    def place(self, number: int) -> str:
        """A place in words."""
        ranks = self.scene.ranks
        return f"rank {number}" if number < ranks else f"server {number - ranks}"

    def deliver(self, letter: Mail, to: int, _: Occurrence) -> None:
        """A letter has come to a place."""
        self.boxes[to].deliver(letter)

    def collective(self, rank: int, op: Op, group: Sequence[int]) -> Occurrence:
        """`rank` comes to a collective, which begins with the last."""
        meeting, complete = self.meetings.join(rank, op, group, self.now())
        if complete:
            seats = tuple(self.scene.seats[one] for one in meeting.group)
            plan = self.scene.costs.of(op, seats)
            flow = _Flow(meeting.over, plan.seconds, self.now(), self.now)
            flow.carry_out(self.clock, self.links, self.now(), parts(plan, self.links))
            ways = tuple((one, None) for one in meeting.group)
            self.bytes.add(meeting.over, flow.to_go, plan.seconds, plan.sent, ways)
            meeting.over.then(partial(self._met, meeting.group, op, self.now()))
        return meeting.over

    def _met(self, group: Sequence[int], op: Op, began: float, _: Occurrence) -> None:
        for rank in group:
            self.doings.did(rank, op.name, op.operation, op.bytes, began, self.now())

    def gate(self, name: str, capacity: int) -> Turnstile:
        """What is held under `name`."""
        if name not in self.gates:
            self.gates[name] = Turnstile(name, capacity, self.now)
        return self.gates[name]

    def common(self, make: Callable[[], Any]) -> Any:
        """What all workers have in common, by who makes it."""
        key = getattr(make, "__qualname__", make)
        if key not in self.memory:
            self.memory[key] = make()
        return self.memory[key]
