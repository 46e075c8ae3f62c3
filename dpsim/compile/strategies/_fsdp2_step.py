"""One step of FSDP2: the operations of a rank in issue order.

The rules are those of `dpsim/compile/strategies/fsdp.py`.  What is played is the host: it visits
the groups of a forward and backward, knows which parameters are gathered, and for what the streams
of all-gathers have been made to wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from dpsim.compile.program import Program
from dpsim.compile.strategies import Issue, Job, label
from dpsim.compile.strategies._units import REPLICATE, SHARD, closed

if TYPE_CHECKING:
    from dpsim.compile.strategies.fsdp import Fsdp

COMM = "fsdp"
COMM_RS, COMM_AR, COMM_AFTER = "fsdp.reduce_scatter", "fsdp.all_reduce", "fsdp.post_forward"
AFTER = "post_forward"  # group of ranks that share parameters between forward and backward


@dataclass(frozen=True)
class Group:
    """One parameter group: its layers in forward order, sizes in bytes (padding apart).

    gather, reduce  of its all-gather and its reduce-scatter
    gradient, stored  of its gradients as backward leaves them, and of its parameters as stored
    raw               its input needs no gradient, so that its own are reduced last
    """

    layers: tuple[int, ...]
    gather: float
    reduce: float
    gather_padding: float
    reduce_padding: float
    gradient: float
    stored: float
    root: bool
    raw: bool


class Fsdp2Step:
    """Issues the operations of one step.

    there     groups whose parameters are gathered
    coming    group -> its gather, issued ahead and not waited for yet
    gate      the compute operation that the next gather has to wait for
    held      the copy-out whose gather buffer the next group's wait will give up (forward)
    parted    group whose parameters are shared by fewer ranks since forward -> the copy that did so
    inputs    reduce-scatters whose inputs are alive, the oldest first
    """

    def __init__(self, knobs: Fsdp, job: Job, groups: tuple[Group, ...]) -> None:
        self.knobs, self.job, self.groups = knobs, job, groups
        self.issue = Issue(job)
        self.shards = knobs.shards(job.ranks)
        self.hybrid = self.shards < job.ranks
        self.fewer = knobs.kept_by(self.shards)
        self.root = [g for g, group in enumerate(groups) if group.root]
        self.inner = [g for g, group in enumerate(groups) if not group.root]
        self.of = {layer: g for g in self.inner for layer in groups[g].layers}
        self.there: set[int] = set()
        self.parted: dict[int, int] = {}
        self.coming: dict[int, int] = {}
        self.gate: int | None = None
        self.held: int | None = None
        self.inputs: list[int] = []
        self.reduced: list[int] = []
        self.m, self.begun = 0, False

    def play(self) -> Program:
        for m in range(self.job.micro_batches):
            self.m = m
            self._forward()
            self._backward()
        return closed(self.issue, self.job, self.shards, "group", self.groups)

    @property
    def last(self) -> bool:
        return self.m == self.job.micro_batches - 1

    def _label(self, letter: str, number: int) -> str:
        return label(letter, number, self.m, self.job.micro_batches)

    # -- gathering ----------------------------------------------------------------------------

    def _gather(self, g: int, *, again: bool) -> None:
        """Issue the gather of a group, unless it is there or coming."""
        if g in self.there or g in self.coming:
            return
        group, parted = self.groups[g], g in self.parted
        if parted:  # operations of one stream: the later one ends later
            self.gate = max(self.parted.pop(g), self.gate or 0)
        self.coming[g] = self.issue.collective(
            self._label("AG", g) + ("'" if again else ""),
            "all_gather",
            COMM_AFTER if parted else COMM,
            group.gather + group.gather_padding,
            padding=group.gather_padding,
            after=() if self.gate is None else (self.gate,),
            after_step=not self.begun,
            group=AFTER if parted else SHARD if self.hybrid else "world",
        )
        self.begun = True

    def _wait(self, g: int, *, again: bool) -> int | None:
        """Compute waits for a gather and copies it out; returns the copy-out."""
        if g not in self.coming:
            return None
        self.there.add(g)
        name = self._label("CO", g) + ("'" if again else "")
        seconds = self.job.copy_seconds(self.groups[g].gather)
        return self.issue.add(name, "copy", seconds=seconds, after=(self.coming.pop(g),))

    # -- forward ------------------------------------------------------------------------------

    def _forward(self) -> None:
        """Gather group by group, the root's first; each group's gather buffer is given up when
        the next group has been waited for."""
        self.gate = self.issue.last if self.issue.ops else None
        for root in self.root:
            self._enter_forward(root)
        left = {g: len(self.groups[g].layers) for g in self.inner}
        for i in self.job.model.forward_order:
            g = self.of.get(i)
            if g is not None and left[g] == len(self.groups[g].layers):
                self._enter_forward(g)
            name = self._label("F", i)
            self.issue.add(name, "forward", seconds=self.job.times[i].forward)
            if g is not None:
                left[g] -= 1
                if not left[g]:
                    self._leave_forward(g)
        if self.held is not None:
            self.gate, self.held = self.held, None

    def _enter_forward(self, g: int) -> None:
        self._gather(g, again=False)
        copied = self._wait(g, again=False)
        if copied is not None:
            if self.held is not None:
                self.gate = self.held
            self.held = copied

    def _leave_forward(self, g: int) -> None:
        """Give the parameters up, or all but a larger shard of them."""
        if self.fewer is None:
            return
        self.there.discard(g)
        if self.fewer < self.shards:
            seconds = self.job.copy_seconds(self.groups[g].gather / self.fewer)
            self.parted[g] = self.issue.add(self._label("CP", g), "copy", seconds=seconds)

    # -- backward -----------------------------------------------------------------------------

    def _backward(self) -> None:
        """Backward in reverse; each group's beginning issues the gather of the next one."""
        order = [*self.inner, *self.root]  # as forward left them
        previous = {later: earlier for earlier, later in pairwise(order)}
        for root in self.root:
            self._enter_backward(root, previous)
        left = {g: len(self.groups[g].layers) for g in self.inner}
        late = list(self.root)
        for i in self.job.model.backward_order():
            g = self.of.get(i)
            if g is not None and left[g] == len(self.groups[g].layers):
                self._enter_backward(g, previous)
            name = self._label("B", i)
            self.issue.add(name, "backward", seconds=self.job.times[i].backward)
            if g is not None:
                left[g] -= 1
                if not left[g] and self.groups[g].raw:
                    late.append(g)
                elif not left[g]:
                    self._leave_backward(g)
        for group in late:
            self._leave_backward(group)
        if self.reduced:
            self.issue.add(self._end(), "wait", after=tuple(self.reduced))
            self.reduced, self.inputs = [], []

    def _end(self) -> str:
        return "W" if self.last else f"W.{self.m}"

    def _enter_backward(self, g: int, previous: dict[int, int]) -> None:
        self._gather(g, again=True)
        copied = self._wait(g, again=True)
        if copied is not None:
            self.gate = copied
        if g in previous:
            self._gather(previous[g], again=True)

    def _leave_backward(self, g: int) -> None:
        """Give the parameters up; copy in and reduce, when few enough older inputs are alive."""
        if self.knobs.reshard_after_backward or self.last:
            self.there.discard(g)
        if self.knobs.no_sync and not self.last:
            return
        group, name = self.groups[g], self._label("RS", g)
        while len(self.inputs) >= self.knobs.reduce_scatter_max_input_buffers:
            self.issue.add(f"wait.{name}", "wait", after=(self.inputs.pop(0),))
        seconds = self.job.copy_seconds(group.reduce)
        ready = self.issue.add(f"CI{g}", "copy", seconds=seconds)
        scattered = self.issue.collective(
            name,
            "reduce_scatter",
            COMM_RS if self.knobs.separate_reduce_scatter_group else COMM,
            group.reduce + group.reduce_padding,
            padding=group.reduce_padding,
            after=(ready,),
            group=SHARD if self.hybrid else "world",
        )
        self.inputs.append(scattered)
        self.reduced.append(self._all_reduce(g, scattered))

    def _all_reduce(self, g: int, scattered: int) -> int:
        """Hybrid sharding sums a shard's gradients over the replicas."""
        if not self.hybrid or (self.knobs.all_reduce_in_last and not self.last):
            return scattered
        group = self.groups[g]
        return self.issue.collective(
            self._label("AR", g),
            "all_reduce",
            COMM_AR,
            (group.reduce + group.reduce_padding) / self.shards,
            padding=group.reduce_padding / self.shards,
            after=(scattered,),
            group=REPLICATE,
        )
