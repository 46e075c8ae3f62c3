"""One step of FSDP, of either version: what both issue for the units that they gather."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from itertools import pairwise

from dpsim.compile.exchange import Leg
from dpsim.compile.job import Job
from dpsim.compile.program import Program
from dpsim.compile.step import StepWalk
from dpsim.compile.strategies._units import REPLICATE, SHARD, Sharers
from dpsim.core.lean import dataclass


@dataclass(frozen=True)
class GatheredUnit:
    """A unit as it travels: its layers in forward order, and bytes (padding apart).

    gather, reduce  of its parameters in the dtype that is gathered, and in the one that is reduced
    sharers         who shares it, where they are not those of the whole step
    own             the layers whose parameters these are, where others visit the unit too
    """

    layers: tuple[int, ...]
    gather: float
    reduce: float
    gather_padding: float
    reduce_padding: float
    root: bool
    sharers: Sharers | None = field(default=None, kw_only=True)
    own: tuple[int, ...] = field(default=(), kw_only=True)


class UnitStep(StepWalk):
    """Visits units as forward and backward come to their layers.

    root, inner  numbers of the root and of the other units, in forward order
    previous  the unit before each in forward, the root as the last
    there     units whose parameters are gathered
    whole     how many layers of each unit the pass visits
    left      how many of these it has yet to visit
    reduced   reductions that compute has not waited for
    begun     whether anything has been gathered in this step
    hybrid    a part of the ranks shares the parameters
    sharers   who shares the parameters of a unit that does not say so
    """

    word = "unit"  # how listings call them

    def __init__(self, job: Job, units: Sequence[GatheredUnit], shards: int) -> None:
        super().__init__(job, quiet=False)
        self.units, self.shards = units, shards
        self.root = [u for u, unit in enumerate(units) if unit.root]
        self.inner = [u for u, unit in enumerate(units) if not unit.root]
        self.previous = {b: a for a, b in pairwise([*self.inner, *self.root])}
        self.of = {layer: u for u, unit in enumerate(units) for layer in unit.layers}
        self.sharers = Sharers(job.ranks, shards)
        self.there: set[int] = set()
        self.whole: dict[int, int] = {}
        self.left: dict[int, int] = {}
        self.reduced: list[int] = []
        self.begun = False
        self.hybrid = shards < job.ranks

    def visit(self, order: Iterable[int]) -> None:
        """A pass begins: it has yet to visit the layers of `order`."""
        self.whole = dict.fromkeys(range(len(self.units)), 0)
        for u in (self.of[i] for i in order if i in self.of):
            self.whole[u] += 1
        self.left = dict(self.whole)

    def visited(self, u: int) -> bool:
        """Count a layer of the unit; whether it was the last."""
        self.left[u] -= 1
        return not self.left[u]

    # -- collectives --------------------------------------------------------------------------

    def all_gather(
        self, u: int, stream: str, after: tuple[int, ...], *, again: bool, group: str = ""
    ) -> int:
        """Of a unit's parameters, `again` in backward."""
        unit, first, who = self.units[u], not self.begun, self.shared_by(u)
        self.begun = True
        name = self.label("AG", u) + ("'" if again else "")
        size, padding = unit.gather + unit.gather_padding, unit.gather_padding
        sharing = who.named(group) if group else self._sharing(u)
        leg = Leg(name, "all_gather", size, padding, group=sharing)
        return self.issue.send((leg,), "", who.stream(stream), after, after_step=first)

    def reduce_scatter(self, u: int, stream: str, after: tuple[int, ...]) -> int:
        """Of a unit's gradients."""
        unit, name = self.units[u], self.label("RS", u)
        size, padding = unit.reduce + unit.reduce_padding, unit.reduce_padding
        leg = Leg(name, "reduce_scatter", size, padding, group=self._sharing(u))
        return self.issue.send((leg,), "", self.shared_by(u).stream(stream), after)

    def all_reduce(self, u: int, stream: str, after: tuple[int, ...]) -> int:
        """Of a shard's gradients, over the replicas; of all where nothing is sharded."""
        unit, name, who = self.units[u], self.label("AR", u), self.shared_by(u)
        padding = unit.reduce_padding / who.shards
        group = who.named(REPLICATE if self.hybrid else "")
        leg = Leg(name, "all_reduce", unit.reduce / who.shards + padding, padding, group=group)
        return self.issue.send((leg,), "", who.stream(stream), after)

    def shared_by(self, u: int) -> Sharers:
        """Who shares a unit's parameters."""
        return self.units[u].sharers or self.sharers

    def _sharing(self, u: int) -> str:
        return self.shared_by(u).named(SHARD if self.hybrid else "")

    # -- ends ---------------------------------------------------------------------------------

    def settle(self) -> None:
        """Compute waits for the reductions of the micro-batch, if there were any."""
        if self.reduced:
            name = "W" if self.last else f"W.{self.m}"
            self.issue.add(name, "wait", after=tuple(self.reduced))
            self.reduced = []

    def finish(self) -> Program:
        """The wait, and the optimizer on one shard."""
        job, issue = self.job, self.issue
        if not issue.ops or issue.ops[-1].kind != "wait":
            issue.add("W", "wait")
        issue.add("O", "optimizer", seconds=job.update_seconds(job.model.trained / self.shards))
        names = [layer.name for layer in job.model.layers]
        return issue.program(
            tuple(
                (f"{self.word} {u}", unit.gather, tuple(names[i] for i in unit.layers))
                for u, unit in enumerate(self.units)
            )
        )
