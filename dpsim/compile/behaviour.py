"""Behaviours: what a worker does where it decides while it runs, and the world that it sees.

A strategy whose ranks do not all issue the same in every step has `behave(world)` in place of a
program: a generator, one for every worker, that yields what it waits for.

    def behave(self, world):
        while True:
            yield world.compute(0.1, "step")          # on this worker's device
            yield world.send(1, 4e6, "gradients")     # over links that all flows share
            world.tick()                              # one more clock of this worker is over

What a method gives is an `Occurrence`, under way from the call on: yielding it waits for it, and
what was sent along comes back from the `yield`.  A behaviour knows no engine.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from dpsim.compile.job import Job
from dpsim.compile.program import Program

#: what time goes to while a worker waits: its device; bytes, as long as they would take on idle
#: links; servers: their work, their locks, and bytes as far as others use the links; other workers;
#: and nothing in particular
COMPUTING, NETWORK, SERVER, OTHERS, IDLE = "compute", "network", "server", "others", "idle"
CAUSES = (COMPUTING, NETWORK, SERVER, OTHERS, IDLE)
_Memory = TypeVar("_Memory")


class Occurrence:
    """Something that happens once.

    what   what it is, for whom it keeps waiting
    cause  one of CAUSES: what those who wait for it spend their time on
    spent  seconds by cause, where it is made of several; they take the place of `cause`
    value  what came of it
    """

    __slots__ = ("_acts", "cause", "happened", "spent", "value", "what")

    def __init__(self, what: object = "an event", cause: str = OTHERS) -> None:
        self.what, self.cause = what, cause
        self.happened, self.value = False, None
        self.spent: Mapping[str, float] | None = None
        self._acts: list[Callable[[Occurrence], None]] = []

    def happen(self, value: Any = None) -> None:
        """It happens, now; a second time means nothing."""
        if self.happened:
            return
        self.happened, self.value = True, value
        acts, self._acts = self._acts, []
        for act in acts:
            act(self)

    def then(self, act: Callable[[Occurrence], None]) -> None:
        """Call `act` when it happens, at once if it has."""
        if self.happened:
            act(self)
        else:
            self._acts.append(act)


#: what `behave` returns; a part of it may return something
Behaviour = Generator[Occurrence, Any, Any]


class Mail(NamedTuple):
    """What was received: from whom, under which tag, how many bytes, and what was sent along."""

    source: int
    tag: str
    bytes: float
    content: Any


class World:
    """What a behaviour sees.

    rank     of this worker; `ranks` of them train.  Places from `ranks` on are servers' (see
             `Strategy.servers_at`): they can send and be sent to, and do nothing by themselves
    job      the work of this worker in a step
    horizon  how long is played [s]; None: until it has settled
    """

    rank: int
    ranks: int
    job: Job
    horizon: float | None

    @property
    def now(self) -> float:
        """The time since the beginning [s]."""
        raise NotImplementedError

    @property
    def clocks(self) -> int:
        """How often this worker has ticked."""
        raise NotImplementedError

    # -- what takes time --------------------------------------------------------------------------

    def compute(self, seconds: float, name: str = "compute", *, scales: bool = True) -> Occurrence:
        """Work on this worker's device, behind what it was given before; with `scales` it takes as
        much longer as this worker is slow in its present clock."""
        raise NotImplementedError

    def transfer(
        self, source: int, target: int, size: float, name: str, *, window: float | None = None
    ) -> Occurrence:
        """`size` bytes from one place to another, over links shared with all other flows.

        window  what `source` sends so leaves it in turn, so many bytes of each message at a time;
                None: all of its messages share its link
        """
        raise NotImplementedError

    def send(self, to: int, size: float, tag: str, content: Any = None) -> Occurrence:
        """`size` bytes from this worker; who receives `tag` there gets them when they arrive."""
        raise NotImplementedError

    def receive(self, tag: str, source: int | None = None) -> Occurrence:
        """The first `Mail` under `tag`, from `source` or from anybody."""
        raise NotImplementedError

    def collective(self, operation: str, group: Sequence[int], size: float) -> Occurrence:
        """A collective of `size` bytes, full size, over `group`; it begins when all have come."""
        raise NotImplementedError

    def wait(self, seconds: float) -> Occurrence:
        """So many seconds."""
        raise NotImplementedError

    def serve(self, place: int, seconds: float, name: str) -> Occurrence:
        """`seconds` of work of the server at `place`, beside whatever else it does."""
        raise NotImplementedError

    # -- waiting for others -----------------------------------------------------------------------

    def acquire(self, resource: str, capacity: int = 1) -> Occurrence:
        """A share of something that only `capacity` may hold at once; first come, first served."""
        raise NotImplementedError

    def release(self, resource: str) -> None:
        """Give that back; SimulationError where nobody holds it."""
        raise NotImplementedError

    def event(self, what: str) -> Occurrence:
        """Something that a behaviour makes happen itself (`Occurrence.happen`)."""
        return Occurrence(what)

    def until(self, event: Occurrence) -> Occurrence:
        """Waits for `event`."""
        return event

    def any_of(self, *events: Occurrence) -> Occurrence:
        """Happens with the first of `events`, which is its value."""
        found = Occurrence("any of " + ", ".join(str(one.what) for one in events))

        def first(one: Occurrence) -> None:
            if not found.happened:
                found.cause, found.spent = one.cause, one.spent
                found.happen(one)

        for one in events:
            one.then(first)
        return found

    def all_of(self, *events: Occurrence) -> Occurrence:
        """Happens with the last of `events`; their values in order."""
        found, left = Occurrence("all of " + ", ".join(str(e.what) for e in events)), len(events)

        def another(one: Occurrence) -> None:
            nonlocal left
            left -= 1
            if not left:
                found.cause, found.spent = one.cause, one.spent
                found.happen([event.value for event in events])

        if not events:
            found.happen([])
        for one in events:
            one.then(another)
        return found

    def start(self, behaviour: Behaviour, what: str = "a thread") -> Occurrence:
        """Another behaviour of this worker, beside the one that calls; happens when it ends."""
        raise NotImplementedError

    def play(
        self, program: Program, groups: Mapping[str, Sequence[int]] | None = None
    ) -> Behaviour:
        """`yield from` it: a program, from now until its step ends.  `groups` names the ranks of
        this worker's groups beside "world", which is all ranks."""
        raise NotImplementedError

    # -- chance, memory, and what is told ----------------------------------------------------------

    def draw(self, cause: str) -> float:
        """A number from 0 to 1, drawn by (seed, cause, clock) and rank: another worker or another
        cause shifts nobody's draws."""
        raise NotImplementedError

    def common(self, make: Callable[[], _Memory]) -> _Memory:
        """What all workers of this play have in common; the first to ask makes it."""
        raise NotImplementedError

    def tick(self) -> None:
        """A clock of this worker is over."""
        raise NotImplementedError

    def updated(self, gradients: int = 1, staleness: float | None = None) -> None:
        """The parameters were updated with so many gradients; of a single one `staleness` is how
        many updates others had made since its parameters were read."""
        raise NotImplementedError

    def wasted(self) -> None:
        """A gradient of this worker was dropped."""
        raise NotImplementedError

    def note(self, **facts: float) -> None:
        """Numbers about this worker for the answer; of a name the latest counts."""
        raise NotImplementedError


__all__ = [
    "CAUSES", "COMPUTING", "IDLE", "NETWORK", "OTHERS", "SERVER", "Behaviour", "Mail", "Occurrence",
    "World",
]  # fmt: skip
