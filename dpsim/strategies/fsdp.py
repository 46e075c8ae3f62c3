"""PyTorch FSDP2 (``fully_shard``).

Rules read in pytorch/pytorch torch/distributed/fsdp/_fully_shard/ (_fsdp_param_group.py,
_fsdp_state.py, _fsdp_collectives.py; 2.13-2.15).  One parameter group per unit, plus a root group
for what no unit holds:

* Forward: gather group i, wait, copy out, compute, free.  The gather of group i+1 may start no
  earlier than the copy-out of group i-1 (two buffers), so at most two gathers run ahead.
* Backward: the gather of the next group is issued when the backward of this one begins; after a
  group's backward the compute stream waits until at most `max_input_buffers` (1) reduce-scatter
  inputs are alive, copies in, and reduce-scatters.
* The root stays gathered after forward; its reduce-scatter is the last.
* All-gathers and reduce-scatters share one communicator and run in issue order.
* The first gather of a step waits for the previous optimizer step.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from dpsim.hardware import DTYPE_BYTES
from dpsim.models import Tensor
from dpsim.program import Program
from dpsim.record import Flag, record
from dpsim.strategies import TORCH, Issue, Job, Strategy, Torch, label, state_bytes

#: since this version reduce_dtype=None means the parameters' own dtype, before it the compute
#: dtype (_fsdp_api.py)
REDUCE_IN_PARAMETER_DTYPE = (2, 15)
COMM, COMM_RS = "fsdp", "fsdp.reduce_scatter"


@dataclass(frozen=True)
class _Group:
    """One parameter group: its layers in forward order, sizes in bytes (padding apart)."""

    layers: tuple[int, ...]
    gather: float
    reduce: float
    gather_padding: float
    reduce_padding: float
    root: bool


@record
class Fsdp(Strategy):
    """Knobs as torch names them; `separate_reduce_scatter_group` gives reduce-scatters a
    communicator of their own (`set_separate_reduce_scatter_group`)."""

    torch: Torch = TORCH
    reshard_after_forward: Flag = True
    separate_reduce_scatter_group: Flag = False

    def program(self, job: Job, iteration: int | None) -> Program:
        """Forward and backward of every micro-batch, reduce-scatters in the last, optimizer."""
        issue = Issue(job)
        groups = self._groups(job)
        for m in range(job.micro_batches):
            last = m == job.micro_batches - 1
            _Pass(self, job, issue, groups, m, reduces=last).play()
        waits = tuple(i for i, op in enumerate(issue.ops) if op.operation == "reduce_scatter")
        issue.add("W", "wait", after=waits)
        issue.add("O", "optimizer", seconds=job.update * job.model.parameters / job.ranks)
        return issue.program(
            tuple(
                (f"group {g}", group.gather, tuple(job.model.layers[i].name for i in group.layers))
                for g, group in enumerate(groups)
            )
        )

    def _reduce_dtype(self, job: Job, layer: int) -> str:
        if job.precision.reduce is not None:
            return job.precision.reduce
        if tuple(self.torch) >= REDUCE_IN_PARAMETER_DTYPE:
            return job.parameter_dtype(layer)
        return self._gather_dtype(job, layer)

    def _gather_dtype(self, job: Job, layer: int) -> str:
        """Parameters travel in the compute dtype where that is narrower storage."""
        compute, own = job.precision.compute, job.parameter_dtype(layer)
        return compute if DTYPE_BYTES[compute] < DTYPE_BYTES[own] else own

    def _groups(self, job: Job) -> tuple[_Group, ...]:
        """Groups that have parameters, in forward order; the root comes first."""
        explicit = all(not layer.unit for layer in job.model.layers)
        units: dict[str, list[int]] = {}
        for i in job.model.forward_order:
            layer = job.model.layers[i]
            units.setdefault(layer.name if explicit else layer.unit, []).append(i)
        root = units.pop("", [])
        found = [self._group(job, root, root=True)]
        found += [self._group(job, layers, root=False) for layers in units.values()]
        return tuple(group for group in found if group.gather)

    def _group(self, job: Job, layers: list[int], *, root: bool) -> _Group:
        gather = reduce = gather_padding = reduce_padding = 0.0
        for i in layers:
            ag = DTYPE_BYTES[self._gather_dtype(job, i)]
            rs = DTYPE_BYTES[self._reduce_dtype(job, i)]
            for tensor in job.model.layers[i].tensors:
                extra = _padding(tensor, job.ranks) if job.control else 0
                gather += ag * tensor.elements
                reduce += rs * tensor.elements
                gather_padding += ag * extra
                reduce_padding += rs * extra
        return _Group(tuple(layers), gather, reduce, gather_padding, reduce_padding, root)

    def memory(self, job: Job) -> dict[str, float]:
        """Shards, and the transient buffers at their largest: the root gathered throughout, two
        gather outputs and two unsharded groups beside it, the root's and one group's unsharded
        gradients, and the inputs of the last two reduce-scatters."""
        groups = self._groups(job)
        parts = state_bytes(job, 1.0 / job.ranks)
        sizes = sorted((g.gather for g in groups if not g.root), reverse=True) or [0.0]
        root = sum(g.gather for g in groups if g.root)
        kept = sum(sizes[:2]) if self.reshard_after_forward else sum(sizes)
        parts["gathered parameters"] = root + kept + sum(sizes[:2])
        if job.micro_batches > 1:  # kept whole until the last micro-batch, in the reduce dtype
            parts["unsharded gradients"] = sum(max(g.gather, g.reduce) for g in groups)
        else:
            parts["unsharded gradients"] = root + sizes[0]
        inputs = sorted((g.reduce for g in groups if not g.root), reverse=True)
        last = [g.reduce for g in groups if g.root] + inputs
        parts["reduce-scatter inputs"] = sum(last[:2])
        return parts


def _padding(tensor: Tensor, ranks: int) -> int:
    """Elements added so that dimension 0 splits evenly over the ranks."""
    rows = tensor.shape[0] if tensor.shape else 1
    return (-rows) % ranks * prod(tensor.shape[1:])


class _Pass:
    """Issues the forward and backward of one micro-batch."""

    def __init__(
        self,
        knobs: Fsdp,
        job: Job,
        issue: Issue,
        groups: tuple[_Group, ...],
        m: int,
        *,
        reduces: bool,
    ) -> None:
        self.knobs, self.job, self.issue = knobs, job, issue
        self.groups, self.m, self.reduces = groups, m, reduces
        self.of = {layer: g for g, group in enumerate(groups) for layer in group.layers}
        self.copied_out: list[int] = []
        self.scatters: list[int] = []

    def play(self) -> None:
        self._forward()
        self._backward()

    def _gather(self, g: int, after: tuple[int, ...], *, again: bool, first: bool) -> int:
        group = self.groups[g]
        return self.issue.collective(
            label("AG", g, self.m, self.job.micro_batches) + ("'" if again else ""),
            "all_gather",
            COMM,
            group.gather + group.gather_padding,
            padding=group.gather_padding,
            after=after,
            after_step=first,
        )

    def _copy_out(self, g: int, gathered: int, *, again: bool) -> int:
        name = label("CO", g, self.m, self.job.micro_batches) + ("'" if again else "")
        seconds = self.job.copy_seconds(self.groups[g].gather)
        return self.issue.add(name, "copy", seconds=seconds, after=(gathered,))

    def _forward(self) -> None:
        before = (self.issue.last,) if self.issue.ops else ()
        visited: list[int] = []
        for i in self.job.model.forward_order:
            g = self.of.get(i)
            if g is not None and g not in visited:
                visited.append(g)
                gate = (self.copied_out[-2],) if len(self.copied_out) >= 2 else before
                gathered = self._gather(
                    g, gate, again=False, first=len(visited) == 1 and not self.m
                )
                self.copied_out.append(self._copy_out(g, gathered, again=False))
            self._layer("F", i, "forward", self.job.times[i].forward)

    def _layer(self, letter: str, i: int, kind: str, seconds: float) -> None:
        self.issue.add(label(letter, i, self.m, self.job.micro_batches), kind, seconds=seconds)

    def _backward(self) -> None:
        layers = list(self.job.model.backward_order())
        held = [self.of[i] for i in layers if i in self.of]
        order = [g for g in dict.fromkeys(held) if not self.groups[g].root]
        reshards = self.knobs.reshard_after_forward
        gathers: dict[int, int] = {}
        if reshards and order:
            gathers[order[0]] = self._gather(
                order[0], (self.copied_out[-1],), again=True, first=False
            )
        remaining = {g: len(group.layers) for g, group in enumerate(self.groups)}
        entered: set[int] = set()
        for i in layers:
            g = self.of.get(i)
            if g is not None and g in order and g not in entered:
                entered.add(g)
                self._enter(g, order, gathers, reshards)
            self._layer("B", i, "backward", self.job.times[i].backward)
            if g is None:
                continue
            remaining[g] -= 1
            if remaining[g] == 0 and not self.groups[g].root and self.reduces:
                self._scatter(g)
        for g, group in enumerate(self.groups):
            if group.root and self.reduces:
                self._scatter(g)

    def _enter(self, g: int, order: list[int], gathers: dict[int, int], reshards: bool) -> None:
        """Before a group's backward: wait for its gather, copy out, prefetch the next group."""
        if not reshards:
            return
        copied = self._copy_out(g, gathers[g], again=True)
        place = order.index(g) + 1
        if place < len(order):
            gathers[order[place]] = self._gather(order[place], (copied,), again=True, first=False)

    def _scatter(self, g: int) -> None:
        """After a group's backward: at most one older input buffer, copy in, reduce-scatter."""
        group, job = self.groups[g], self.job
        name = label("RS", g, self.m, job.micro_batches)
        if self.scatters:
            self.issue.add(f"wait.{name}", "wait", after=(self.scatters[-1],))
        seconds = job.copy_seconds(group.reduce)
        ready = self.issue.add(f"CI{g}", "copy", seconds=seconds)
        self.scatters.append(
            self.issue.collective(
                name,
                "reduce_scatter",
                COMM_RS if self.knobs.separate_reduce_scatter_group else COMM,
                group.reduce + group.reduce_padding,
                padding=group.reduce_padding,
                after=(ready,),
            )
        )
