"""One step of FSDP2: the operations of a rank in issue order.

The rules are those of `dpsim/compile/strategies/fsdp.py`.  What is played is the host: it visits
the groups of a forward and backward, knows which parameters are gathered, and for what the streams
of all-gathers have been made to wait.  Where experts are shared out a unit has two groups, which
come and go together; gathers of both run one after the other, and so do reduce-scatters, for torch
issues each kind on one stream (_fsdp_param_group.py, FSDPCommContext).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from dpsim.compile.job import Job
from dpsim.compile.strategies._unit_step import GatheredUnit, UnitStep
from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.core.lean import dataclass
from dpsim.models.compute import LayerTime

if TYPE_CHECKING:
    from dpsim.compile.strategies.fsdp import Fsdp

COMM = "fsdp"
COMM_RS, COMM_AR, COMM_AFTER = "fsdp.reduce_scatter", "fsdp.all_reduce", "fsdp.post_forward"
AFTER = "post_forward"  # group of ranks that share parameters between forward and backward


@dataclass(frozen=True)
class Group(GatheredUnit):
    """One parameter group.

    gradient, stored  bytes of its gradients as backward leaves them, and of its stored parameters
    raw               its input needs no gradient, so that its own are reduced last
    """

    gradient: float
    stored: float
    raw: bool

    @property
    def whole(self) -> Group:
        """It with its padding, which takes as much room as what is padded."""
        gather, reduce = self.gather + self.gather_padding, self.reduce + self.reduce_padding
        return replace(self, gather=gather, reduce=reduce)


class Fsdp2Step(UnitStep):
    """Issues the operations of one step.

    coming    group -> its gather, issued ahead and not waited for yet
    members   the groups of a unit, by the first of them, which `of` names
    following the unit after each in forward, the root before all, where the host gathers ahead of
              need: it waits for counts of tokens where ranks send them to experts
    gate      the compute operation that the next gather has to wait for
    held      the copy-out whose gather buffer the next group's wait will give up (forward)
    parted    group whose parameters are shared by fewer ranks since forward -> the copy that did so
    inputs    reduce-scatters whose inputs are alive, the oldest first
    late      groups that are reduced when backward has ended
    before    the last gather and the last reduce-scatter
    piped     the job is a stage of a pipeline
    """

    word = "group"

    def __init__(self, knobs: Fsdp, job: Job, groups: tuple[Group, ...]) -> None:
        super().__init__(job, groups, knobs.sharing(job))
        self.knobs = knobs
        self.raw = {g for g, group in enumerate(groups) if group.raw}
        self.piped = job.stages > 1
        self._meet(groups)
        self.parted: dict[int, int] = {}
        self.coming: dict[int, int] = {}
        self.before: dict[str, int] = {}
        self.gate: int | None = None
        self.held: int | None = None
        self.inputs: list[int] = []
        self.late: list[int] = []

    def _meet(self, groups: Sequence[Group]) -> None:
        """Note which groups come and go together, and in what order."""
        found: dict[tuple[int, ...], list[int]] = {}
        for g in self.inner:
            found.setdefault(groups[g].layers, []).append(g)
        self.members = {one[0]: tuple(one) for one in found.values()}
        self.members |= {root: (root,) for root in self.root}
        firsts = [one[0] for one in found.values()]
        self.of = {layer: one for one in firsts for layer in groups[one].layers}
        self.previous = {b: a for a, b in pairwise([*firsts, *self.root])}
        ahead = self.job.expert_ranks is not None
        self.following = dict(pairwise([*self.root, *firsts])) if ahead else {}

    def _fewer(self, g: int) -> int | None:
        """How many ranks share a group's parameters between forward and backward; None: none."""
        return self.knobs.kept_by(self.shared_by(g).shards, piped=self.piped)

    def _in_turn(self, kind: str, g: int, after: tuple[int, ...]) -> tuple[int, ...]:
        """`after`, and the one before of its kind, where they are on several communicators."""
        several = self.job.expert_ranks is not None and kind in self.before
        return (*after, self.before[kind]) if several else after

    # -- gathering ----------------------------------------------------------------------------

    def _gather(self, g: int, *, again: bool) -> None:
        """Issue the gather of a group, unless it is there or coming."""
        if g in self.there or g in self.coming:
            return
        parted = g in self.parted
        if parted:  # operations of one stream: the later one ends later
            self.gate = max(self.parted.pop(g), self.gate or 0)
        stream, group = (COMM_AFTER, AFTER) if parted else (COMM, "")
        after = self._in_turn("AG", g, () if self.gate is None else (self.gate,))
        self.coming[g] = self.all_gather(g, stream, after, again=again, group=group)
        self.before["AG"] = self.coming[g]

    def _wait(self, g: int, *, again: bool) -> int | None:
        """Compute waits for a gather and copies it out; returns the copy-out."""
        if g not in self.coming:
            return None
        self.there.add(g)
        name = self.label("CO", g) + ("'" if again else "")
        seconds = self.job.copy_seconds(self.units[g].gather)
        return self.issue.add(name, "copy", seconds=seconds, after=(self.coming.pop(g),))

    def _begins(self, layer: int) -> int | None:
        """The group whose pass begins with `layer`."""
        g = self.of.get(layer)
        return g if g is not None and self.left[g] == self.whole[g] else None

    # -- forward ------------------------------------------------------------------------------

    def forward(self, times: Sequence[LayerTime]) -> None:
        """Gather group by group, the root's first; each group's gather buffer is given up when
        the next group has been waited for."""
        self.gate = next(iter(self.issue.computed), None)
        self.visit(self.job.model.forward_order)
        for root in self.root:
            self._enter_forward(root)
        super().forward(times)
        if self.held is not None:
            self.gate, self.held = self.held, None

    def before_forward(self, layer: int) -> tuple[int, ...]:
        if (g := self._begins(layer)) is not None:
            self._enter_forward(g)
        return ()

    def _enter_forward(self, first: int) -> None:
        for g in self.members[first]:
            self._gather(g, again=False)
            copied = self._wait(g, again=False)
            if copied is not None:
                if self.held is not None:
                    self.gate = self.held
                self.held = copied
        for g in self.members.get(self.following.get(first, -1), ()):
            self._gather(g, again=False)

    def after_forward(self, layer: int) -> None:
        """Behind a group, give its parameters up, or all but a larger shard of them."""
        first = self.of.get(layer)
        if first is None or not self.visited(first):
            return
        for g in self.members[first]:
            if (fewer := self._fewer(g)) is None:
                continue
            self.there.discard(g)
            if fewer < self.shared_by(g).shards:
                seconds = self.job.copy_seconds(self.units[g].gather / fewer)
                self.parted[g] = self.issue.add(self.label("CP", g), "copy", seconds=seconds)

    # -- backward -----------------------------------------------------------------------------

    def backward(self, times: Sequence[LayerTime]) -> None:
        """Backward in reverse; each group's beginning issues the gather of the next one."""
        self.visit(self.job.model.backward_order())
        self.late = list(self.root)
        for root in self.root:
            self._enter_backward(root)
        super().backward(times)
        for g in self.late:
            self._leave_backward(g)
        if self.reduced:
            self.inputs = []
        self.settle()

    def before_backward(self, layer: int) -> tuple[int, ...]:
        if (g := self._begins(layer)) is not None:
            self._enter_backward(g)
        return ()

    def after_backward(self, layer: int) -> None:
        first = self.of.get(layer)
        if first is not None and self.visited(first):
            for g in reversed(self.members[first]):
                if g in self.raw:
                    self.late.append(g)
                else:
                    self._leave_backward(g)

    def _enter_backward(self, first: int) -> None:
        for g in self.members[first]:
            self._gather(g, again=True)
            copied = self._wait(g, again=True)
            if copied is not None:
                self.gate = copied
        for g in reversed(self.members.get(self.previous.get(first, -1), ())):
            self._gather(g, again=True)

    def _leave_backward(self, g: int) -> None:
        """Give the parameters up; copy in and reduce, when few enough older inputs are alive.  On a
        stage of a pipeline both come when its last pass is done."""
        if self.piped:
            return
        if self.knobs.reshard_after_backward or self.last:
            self.there.discard(g)
        if not self.knobs.no_sync or self.last:
            self._reduce(g)

    def _reduce(self, g: int) -> None:
        if not self.units[g].reduce:
            return  # what is frozen has no gradients
        for size, count in self._vectors(g).items():
            self.summed(self.label("SG", g), size, count)
        most = self.knobs.reduce_scatter_max_input_buffers
        last = self.of.get(self.units[g].layers[0], g)
        while g == self.members[last][-1] and len(self.inputs) >= most:
            name = f"wait.{self.label('RS', g)}"
            self.issue.add(name, "wait", after=(self.inputs.pop(0),))
        seconds = self.job.copy_seconds(self.units[g].reduce)
        ready = self.issue.add(f"CI{g}", "copy", seconds=seconds)
        stream = COMM_RS if self.knobs.separate_reduce_scatter_group else COMM
        reduced = self.reduce_scatter(g, stream, self._in_turn("RS", g, (ready,)))
        self.before["RS"] = reduced
        self.inputs.append(reduced)
        if self.shards < self.job.ranks and (self.last or not self.knobs.all_reduce_in_last):
            reduced = self.all_reduce(g, COMM_AR, (reduced,))
        self.reduced.append(reduced)

    def _vectors(self, g: int) -> dict[float, int]:
        """Bytes of the gradients of a group's vectors, and how many there are of them.  Those that
        were kept from other backwards are in the reduce dtype (_fsdp_param.py,
        to_accumulated_grad_if_needed)."""
        several = self.job.micro_batches > 1 and self.knobs.no_sync
        kept = self.kept if self.piped else several
        found: dict[float, int] = {}
        for i in self.units[g].own:
            layer = self.job.model.layers[i]
            for tensor in layer.tensors if layer.forward is None else ():  # flat ones are cut
                if tensor.trained and len(tensor.shape) == 1:
                    dtype = self.knobs.gradient_dtype(self.job, i, tensor, kept=kept)
                    size = float(DTYPE_BYTES[dtype] * tensor.elements)
                    found[size] = found.get(size, 0) + 1
        return found

    # -- on a stage of a pipeline -----------------------------------------------------------------

    def idle(self, kind: str) -> bool:
        """Whether everything is gathered, and stays so."""
        if not self.piped or kind == "W":
            return kind == "W"
        whole = len(self.there) == len(self.units)
        stays = all(self._fewer(g) is None for g in self.inner)
        return whole and (kind != "F" or stays)

    def bring(self) -> None:
        """Gather all groups, the root's first (UNSHARD)."""
        self.gate = next(iter(self.issue.computed), None)
        for g in (*self.root, *self.inner):
            self._gather(g, again=False)

    def arrive_ahead(self) -> None:
        """Compute waits for all that was gathered ahead."""
        for g in tuple(self.coming):
            self._wait(g, again=False)

    def give_up(self) -> None:
        self.there.clear()

    def conclude(self) -> None:
        """Reduce all groups, the root's first, and wait for that (REDUCE_GRAD)."""
        if not self.piped:
            return
        for g in (*self.root, *self.inner):
            self._reduce(g)
        self.settle()
