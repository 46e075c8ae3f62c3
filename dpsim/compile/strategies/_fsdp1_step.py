"""One step of FSDP1: the operations of a rank in issue order.

The rules are those of `dpsim/compile/strategies/fsdp1.py`.  What is played is the host: it calls
"unshard" and "reshard" on units, and the rate limiter's queue of free events says for what it
blocks.  While issuing costs no host time (A5), blocking the host means that later gathers start no
earlier.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from dpsim.compile.program import Program
from dpsim.compile.strategies import Issue, Job, label
from dpsim.compile.strategies._units import REPLICATE, SHARD, closed

if TYPE_CHECKING:
    from dpsim.compile.strategies.fsdp1 import Fsdp1

COMM, COMM_AR = "fsdp1", "fsdp1.all_reduce"
#: _limiter_utils.py: events beyond which unsharding takes the oldest and waits for it
IN_FLIGHT = 2


@dataclass(frozen=True)
class Flat:
    """One unit's flat parameter: its layers in forward order and bytes (padding apart).

    gather, reduce  of the whole in the compute and in the reduce dtype
    """

    layers: tuple[int, ...]
    gather: float
    reduce: float
    gather_padding: float
    reduce_padding: float
    root: bool


class Fsdp1Step:
    """Issues the operations of one step.

    events   the limiter's queue: compute operations that free a unit; None: of an earlier step
    there    units whose parameters are unsharded
    ahead    units unsharded before they asked
    wanted   units whose backward has yet to ask
    blocked  the compute operation for which the next gather waits
    alive    unsharded units -> the operation that frees them, None: not issued yet
    peak     most bytes of unsharded units outside the root at any time
    viewed   units -> how many layers' forward had been issued when their parameters became views
             of the flat one.  Autograd takes of what is ready the youngest first, so a unit is
             reduced before the backward of all layers that are older than its views
    """

    def __init__(
        self,
        knobs: Fsdp1,
        job: Job,
        units: tuple[Flat, ...],
        *,
        recorded: bool,
        left_over: int,
    ) -> None:
        self.knobs, self.job, self.units = knobs, job, units
        self.recorded = recorded
        self.issue = Issue(job)
        self.shards = knobs.shards(job.ranks)
        self.events: deque[int | None] = deque([None] * left_over)
        self.root = [u for u, unit in enumerate(units) if unit.root]
        self.inner = [u for u, unit in enumerate(units) if not unit.root]
        self.of = {layer: u for u, unit in enumerate(units) for layer in unit.layers}
        self.there: set[int] = set()
        self.ahead: set[int] = set()
        self.wanted: set[int] = set()
        self.alive: dict[int, int | None] = {}
        self.peak = 0.0
        self.blocked: int | None = None
        self.compute: int | None = 0 if self.issue.ops else None
        self.gathered: int | None = None
        self.awaited: tuple[int, ...] = ()
        self.reduced: list[int] = []
        self.viewed: dict[int, int] = {}
        self.passed = 0
        self.m, self.begun = 0, False

    def play(self) -> Program:
        for m in range(self.job.micro_batches):
            self.m = m
            self._forward()
            self._backward()
        return closed(self.issue, self.job, self.shards, "unit", self.units)

    @property
    def last(self) -> bool:
        return self.m == self.job.micro_batches - 1

    @property
    def reduces(self) -> bool:
        return self.last or not self.knobs.no_sync

    def _label(self, letter: str, number: int) -> str:
        return label(letter, number, self.m, self.job.micro_batches)

    def _compute(self, letter: str, i: int, kind: str, seconds: float) -> None:
        """A pass of a layer; it waits for the gathers that its unit waited for."""
        name = self._label(letter, i)
        self.compute = self.issue.add(name, kind, seconds=seconds, after=self.awaited)
        self.awaited = ()

    # -- unshard and reshard ------------------------------------------------------------------

    def _unshard(self, u: int, *, again: bool) -> None:
        """The host may block for a free event; then it gathers what is not there."""
        if self.knobs.limit_all_gathers and len(self.events) >= IN_FLIGHT:
            self._block(self.events.popleft())
        if not again:
            self.viewed[u] = self.passed
        if u in self.there or self.shards == 1:
            return
        self.there.add(u)
        self._note_alive(u)
        unit = self.units[u]
        self.gathered = self.issue.collective(
            self._label("AG", u) + ("'" if again else ""),
            "all_gather",
            COMM,
            unit.gather + unit.gather_padding,
            padding=unit.gather_padding,
            after=() if self.blocked is None else (self.blocked,),
            after_step=not self.begun,
            group=self._sharing,
        )
        self.begun = True

    @property
    def _sharing(self) -> str:
        return SHARD if 1 < self.shards < self.job.ranks else "world"

    def _block(self, event: int | None) -> None:
        if event is not None:
            self.blocked = event if self.blocked is None else max(self.blocked, event)

    def _note_alive(self, u: int) -> None:
        freed = -1 if self.blocked is None else self.blocked
        self.alive = {k: at for k, at in self.alive.items() if at is None or at > freed}
        self.alive[u] = None
        held = (self.units[k].gather for k in self.alive if not self.units[k].root)
        self.peak = max(self.peak, sum(held))

    def _wait(self) -> None:
        """Compute waits for everything gathered so far."""
        self.awaited = () if self.gathered is None else (self.gathered,)

    def _reshard(self, u: int, *, free: bool) -> None:
        self.ahead.discard(u)
        if not free:
            return
        self.there.discard(u)
        if u in self.alive:
            self.alive[u] = self.compute
        if self.knobs.limit_all_gathers:
            self.events.append(self.compute)

    # -- forward ------------------------------------------------------------------------------

    def _forward(self) -> None:
        """The root first; gathers wait for what was computed before."""
        self._block(self.compute)
        self.passed = 0
        order = [*self.root, *self.inner]
        following = dict(pairwise(order))
        waiting = set(order)
        for root in self.root:
            self._enter_forward(root, following, waiting)
        left = {u: len(self.units[u].layers) for u in self.inner}
        for i in self.job.model.forward_order:
            u = self.of.get(i)
            if u is not None and u in waiting:
                self._enter_forward(u, following, waiting)
            self._compute("F", i, "forward", self.job.times[i].forward)
            self.passed += 1
            if u in left:
                left[u] -= 1
                if not left[u]:
                    self._reshard(u, free=self.knobs.reshards_after_forward)
        for root in self.root:
            self._reshard(root, free=False)
        self.wanted = set(order)

    def _enter_forward(self, u: int, following: dict[int, int], waiting: set[int]) -> None:
        if u not in self.ahead:
            self._unshard(u, again=False)
        waiting.discard(u)
        self._wait()
        target = following.get(u)
        prefetch = self.knobs.forward_prefetch and (self.recorded or self.m > 0)
        if prefetch and target in waiting and target not in self.ahead:
            assert target is not None
            self._unshard(target, again=False)
            self.ahead.add(target)

    # -- backward -----------------------------------------------------------------------------

    def _backward(self) -> None:
        """Units in the reverse order of forward."""
        order = [*self.inner, *self.root]  # as forward left them
        previous = {later: earlier for earlier, later in pairwise(order)}
        age = {i: place for place, i in enumerate(self.job.model.forward_order)}
        left = {u: len(unit.layers) for u, unit in enumerate(self.units)}
        waiting: list[int] = []
        entered: set[int] = set()
        for i in self.job.model.backward_order():
            for u in self._younger(waiting, age[i]):
                self._leave_backward(u, previous)
            for u in self._begun(i, entered):
                self._enter_backward(u, previous)
            self._compute("B", i, "backward", self.job.times[i].backward)
            if (own := self.of.get(i)) is not None:
                left[own] -= 1
                waiting += [own] * (left[own] == 0)
        for u in self._younger(waiting, -1):
            self._leave_backward(u, previous)
        if self.reduced:
            name = "W" if self.last else f"W.{self.m}"
            self.compute = self.issue.add(name, "wait", after=tuple(self.reduced))
            self.reduced = []

    def _younger(self, waiting: list[int], age: int) -> list[int]:
        """Take from `waiting` the units whose views are younger than a layer, the youngest first;
        a unit's own views are older than its layers, and the root's the oldest of their age."""
        found = [u for u in waiting if self.viewed[u] > age]
        waiting[:] = [u for u in waiting if self.viewed[u] <= age]
        return sorted(found, key=lambda u: (self.viewed[u], u), reverse=True)

    def _begun(self, layer: int, entered: set[int]) -> list[int]:
        """Units whose backward begins with that of `layer`.  The root's output is that of its own
        last layer, or else of the last unit, whose hook runs before the root's."""
        found = [u for u in [self.of.get(layer)] if u is not None]
        if not entered:
            found += [u for u in self.root if u not in found]
        fresh = [u for u in found if u not in entered]
        entered.update(fresh)
        return fresh

    def _enter_backward(self, u: int, previous: dict[int, int]) -> None:
        if u not in self.ahead:
            self._unshard(u, again=True)
        self._wait()
        self.wanted.discard(u)
        if self.knobs.backward_prefetch == "BACKWARD_PRE":
            self._prefetch(previous.get(u))

    def _prefetch(self, target: int | None) -> None:
        if target is not None and target in self.wanted and target not in self.ahead:
            self._unshard(target, again=True)
            self.ahead.add(target)

    def _leave_backward(self, u: int, previous: dict[int, int]) -> None:
        """Free, prefetch, reduce."""
        sharded = self.shards > 1
        self._reshard(u, free=sharded and (self.reduces or self.knobs.reshards_after_forward))
        if self.knobs.backward_prefetch == "BACKWARD_POST":
            self._prefetch(previous.get(u))
        if not self.reduces:
            return
        after = () if self.compute is None else (self.compute,)
        unit = self.units[u]
        if sharded:
            scattered = self.issue.collective(
                self._label("RS", u),
                "reduce_scatter",
                COMM,
                unit.reduce + unit.reduce_padding,
                padding=unit.reduce_padding,
                after=after,
                group=self._sharing,
            )
            if self.shards == self.job.ranks:
                self.reduced.append(scattered)
                return
            after = (scattered,)
        self._all_reduce(u, after)

    def _all_reduce(self, u: int, after: tuple[int, ...]) -> None:
        """Of whole gradients where nothing is sharded; else of a shard, over the replicas."""
        unit, whole = self.units[u], self.shards == 1
        padding = unit.reduce_padding / self.shards
        self.reduced.append(
            self.issue.collective(
                self._label("AR", u),
                "all_reduce",
                COMM if whole else COMM_AR,
                unit.reduce / self.shards + padding,
                padding=padding,
                after=after,
                group="world" if whole else REPLICATE,
            )
        )
