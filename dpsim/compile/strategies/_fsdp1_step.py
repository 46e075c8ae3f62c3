"""One step of FSDP1: the operations of a rank in issue order.

The rules are those of `dpsim/compile/strategies/fsdp1.py`.  What is played is the host: it calls
"unshard" and "reshard" on units, and the rate limiter's queue of free events says for what it
blocks.  While issuing costs no host time (A5), blocking the host means that later gathers start no
earlier.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from dpsim.compile.job import Job
from dpsim.compile.strategies._unit_step import GatheredUnit, UnitStep
from dpsim.models.compute import LayerTime

if TYPE_CHECKING:
    from dpsim.compile.strategies.fsdp1 import Fsdp1

COMM, COMM_AR = "fsdp1", "fsdp1.all_reduce"
#: _limiter_utils.py: events beyond which unsharding takes the oldest and waits for it
IN_FLIGHT = 2


class Fsdp1Step(UnitStep):
    """Issues the operations of one step.

    events   the limiter's queue: compute operations that free a unit; None: of an earlier step
    ahead    units unsharded before they asked
    wanted   units whose backward has yet to ask
    waiting  units whose forward has yet to begin, or whose backward has ended and is not reduced
    frozen   frozen units whose backward has ended
    entered  units whose backward has begun
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
        units: tuple[GatheredUnit, ...],
        *,
        recorded: bool,
        left_over: int,
    ) -> None:
        super().__init__(job, units, knobs.shards(job.ranks))
        self.knobs, self.recorded = knobs, recorded
        self.hybrid = self.hybrid and self.shards > 1
        self.events: deque[int | None] = deque([None] * left_over)
        self.following = dict(pairwise([*self.root, *self.inner]))
        self.age = {i: place for place, i in enumerate(job.model.forward_order)}
        self.ahead: set[int] = set()
        self.wanted: set[int] = set()
        self.waiting: list[int] = []
        self.frozen: list[int] = []
        self.entered: set[int] = set()
        self.alive: dict[int, int | None] = {}
        self.peak = 0.0
        self.blocked: int | None = None
        self.gathered: int | None = None
        self.awaited: tuple[int, ...] = ()
        self.viewed: dict[int, int] = {}
        self.passed = 0

    @property
    def reduces(self) -> bool:
        """Whether this micro-batch does."""
        return self.last or not self.knobs.no_sync

    @property
    def compute(self) -> int | None:
        """The last operation of the compute stream."""
        return next(iter(self.issue.computed), None)

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
        after = () if self.blocked is None else (self.blocked,)
        self.gathered = self.all_gather(u, COMM, after, again=again)

    def _block(self, event: int | None) -> None:
        if event is not None:
            self.blocked = event if self.blocked is None else max(self.blocked, event)

    def _note_alive(self, u: int) -> None:
        freed = -1 if self.blocked is None else self.blocked
        self.alive = {k: at for k, at in self.alive.items() if at is None or at > freed}
        self.alive[u] = None
        held = (self.units[k].gather for k in self.alive if not self.units[k].root)
        self.peak = max(self.peak, sum(held))

    def _take_awaited(self) -> tuple[int, ...]:
        """The gathers that the next layer waits for: those that its unit waited for."""
        awaited, self.awaited = self.awaited, ()
        return awaited

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

    def forward(self, times: Sequence[LayerTime]) -> None:
        """The root first; gathers wait for what was computed before."""
        self._block(self.compute)
        self.passed = 0
        self.visit(self.job.model.forward_order)
        self.waiting = [*self.root, *self.inner]
        for root in self.root:
            self._enter_forward(root)
        super().forward(times)
        for root in self.root:
            self._reshard(root, free=False)
        self.visit(self.job.model.backward_order())
        self.wanted = {u for u, layers in self.whole.items() if layers or u in self.root}

    def before_forward(self, layer: int) -> tuple[int, ...]:
        if (u := self.of.get(layer)) in self.waiting:
            assert u is not None
            self._enter_forward(u)
        return self._take_awaited()

    def after_forward(self, layer: int) -> None:
        self.passed += 1
        u = self.of.get(layer)
        if u is not None and self.visited(u) and u in self.inner:
            self._reshard(u, free=self.knobs.reshards_after_forward)

    def _enter_forward(self, u: int) -> None:
        if u not in self.ahead:
            self._unshard(u, again=False)
        self.waiting.remove(u)
        self._wait()
        target = self.following.get(u)
        prefetch = self.knobs.forward_prefetch and (self.recorded or self.m > 0)
        if prefetch and target in self.waiting and target not in self.ahead:
            assert target is not None
            self._unshard(target, again=False)
            self.ahead.add(target)

    # -- backward -----------------------------------------------------------------------------

    def backward(self, times: Sequence[LayerTime]) -> None:
        """Units in the reverse order of forward."""
        self.visit(self.job.model.backward_order())
        self.waiting, self.entered = [], set()
        super().backward(times)
        self.frozen += [root for root in self.root if not self.units[root].reduce]
        self._leave_frozen()
        for u in self._younger(-1):
            self._leave_backward(u)
        self.settle()

    def before_backward(self, layer: int) -> tuple[int, ...]:
        for u in self._younger(self.age[layer]):
            self._leave_backward(u)
        for u in self._begun(layer):
            self._enter_backward(u)
        self._leave_frozen()
        return self._take_awaited()

    def after_backward(self, layer: int) -> None:
        u = self.of.get(layer)
        if u is None or not self.visited(u):
            return
        if self.units[u].reduce:
            self.waiting.append(u)
        elif u in self.inner:
            self.frozen.append(u)

    def _leave_frozen(self) -> None:
        """A frozen unit is resharded by a hook of its input, which stands behind that of the unit
        that made it, and a frozen root when all is done (_runtime_utils.py,
        _register_post_backward_reshard_only_hook and _catch_all_reshard)."""
        for u in self.frozen:
            self._leave_backward(u)
        self.frozen = []

    def _younger(self, age: int) -> list[int]:
        """Take from `waiting` the units whose views are younger than a layer, the youngest first;
        a unit's own views are older than its layers, and the root's the oldest of their age."""
        found = [u for u in self.waiting if self.viewed[u] > age]
        self.waiting = [u for u in self.waiting if self.viewed[u] <= age]
        return sorted(found, key=lambda u: (self.viewed[u], u), reverse=True)

    def _begun(self, layer: int) -> list[int]:
        """Units whose backward begins with that of `layer`.  The root's output is that of its own
        last layer, or else of the last unit, whose hook runs before the root's."""
        found = [u for u in [self.of.get(layer)] if u is not None]
        if not self.entered:
            found += [u for u in self.root if u not in found]
        fresh = [u for u in found if u not in self.entered]
        self.entered.update(fresh)
        return fresh

    def _enter_backward(self, u: int) -> None:
        if u not in self.ahead:
            self._unshard(u, again=True)
        self._wait()
        self.wanted.discard(u)
        if self.knobs.backward_prefetch == "BACKWARD_PRE":
            self._prefetch(self.previous.get(u))

    def _prefetch(self, target: int | None) -> None:
        if target is not None and target in self.wanted and target not in self.ahead:
            self._unshard(target, again=True)
            self.ahead.add(target)

    def _leave_backward(self, u: int) -> None:
        """Free, prefetch, reduce."""
        sharded = self.shards > 1
        self._reshard(u, free=sharded and (self.reduces or self.knobs.reshards_after_forward))
        if self.knobs.backward_prefetch == "BACKWARD_POST":
            self._prefetch(self.previous.get(u))
        if not self.reduces or not self.units[u].reduce:
            return  # what is frozen has no gradients
        after = self.issue.computed
        if not sharded:
            self.reduced.append(self.all_reduce(u, COMM, after))
            return
        reduced = self.reduce_scatter(u, COMM, after)
        if self.hybrid:
            reduced = self.all_reduce(u, COMM_AR, (reduced,))
        self.reduced.append(reduced)
