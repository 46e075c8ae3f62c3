"""The section `parallel`: along which axes a scenario's ranks split the work."""

from __future__ import annotations

from typing import Annotated, Literal

from dpsim.compile.placement import ORDER, Axis, Mesh
from dpsim.core.record import Check, Count, Flag, Refused, record


@record
class Parallel:
    """Ranks = tensor x pipeline x context x data.  Experts are shared out among ranks that exist
    already.

    data      replicas of the model; left out: what the ranks leave
    tensor    ranks that split every layer between them (column and row parallel)
    pipeline  ranks that hold the layers one after the other
    context   ranks that split every sequence between them, in the way that `context` says; they
              hold the same parameters
    expert    ranks that share out the experts of every layer: they divide tensor x context x data,
              or context x data where tensor ranks split experts too, and multiply nothing
    expert_tensor  ranks that split each expert between them: tensor, which it is if left out, or 1
    order     along which axis neighbouring ranks lie first, second, last; context, if it is not
              named, is right behind tensor; `expert` may stand in front of data, where it is
    sequence_parallel   the ranks of a tensor group split the sequence too, in equal parts
    async_tensor_parallel   with that, they exchange beside the matrix products next to it
    overlap_tensor_gradients   gradients of inputs are summed beside the products that make those of
              weights, and with sequence_parallel inputs are gathered again beside the products that
              make those; left out: as the strategy's system has it, true for megatron
    blocking_sends      a stage goes on only when what it sent has arrived
    """

    tensor: Annotated[int, Check(1, 1024)] = 1
    pipeline: Annotated[int, Check(1, 1024)] = 1
    context: Annotated[int, Check(1, 65536)] = 1
    data: Count | None = None
    expert: Annotated[int, Check(1, 65536)] = 1
    expert_tensor: Annotated[int, Check(1, 1024)] | None = None
    order: tuple[Axis | Literal["expert"], ...] = ("tensor", "data", "pipeline")
    sequence_parallel: Flag = False
    async_tensor_parallel: Flag = False
    overlap_tensor_gradients: Flag | None = None
    blocking_sends: Flag = False

    def __post_init__(self) -> None:
        if sorted(self._axes) not in (sorted(ORDER), sorted({*ORDER} - {"context"})):
            raise Refused("names every one of tensor, data and pipeline once", ("order",))
        found = [k for k, axis in enumerate(self.order) if axis == "expert"]
        if len(found) > 1 or any(self.order[k + 1 : k + 2] != ("data",) for k in found):
            raise Refused("experts divide data: name expert once, right before data", ("order",))
        if self.expert_tensor not in (None, 1, self.tensor):
            message = f"{self.expert_tensor} is neither 1 nor tensor, {self.tensor}"
            raise Refused(message, ("expert_tensor",))
        for name in ("sequence_parallel", "overlap_tensor_gradients"):
            if getattr(self, name) and self.tensor == 1:
                raise Refused("needs tensor > 1", (name,))
        if self.async_tensor_parallel and not self.sequence_parallel:
            raise Refused("needs sequence_parallel: true", ("async_tensor_parallel",))

    @property
    def plain(self) -> bool:
        """Whether there is data parallelism only."""
        return self.tensor == self.pipeline == self.context == self.expert == 1

    @property
    def splits(self) -> bool:
        """Whether several ranks share a model's layers or a sample."""
        return self.tensor * self.pipeline * self.context > 1

    def overlapped(self, *, by_system: bool) -> bool:
        """Whether tensor ranks exchange gradients beside products: as said, else as the system."""
        said = self.overlap_tensor_gradients
        return by_system if said is None else said

    @property
    def _axes(self) -> tuple[Axis, ...]:
        """The order of the axes that ranks are numbered along."""
        return tuple(axis for axis in self.order if axis != "expert")

    def mesh(self, ranks: int) -> Mesh:
        """The mesh of `ranks` ranks.  Refused, with what would work, where they don't fit."""
        own = self.tensor * self.pipeline * self.context
        shown = f"tensor {self.tensor} x pipeline {self.pipeline}"
        shown += f" x context {self.context}" * (self.context > 1)
        if ranks % own:
            low = ranks // own * own
            near = " or ".join(f"{n:,}" for n in (low, low + own) if n)
            many = f"{ranks:,} rank{'s' * (ranks != 1)}"
            raise Refused(f"{shown} does not divide {many}; {near} would", ("parallel",))
        if self.data is not None and self.data * own != ranks:
            raise Refused(
                f"{shown} x data {self.data} is {own * self.data:,}, not {ranks:,} ranks; "
                f"data: {ranks // own} would be (or leave data out)",
                ("parallel", "data"),
            )
        return self._with_experts(ranks // own)

    def _with_experts(self, data: int) -> Mesh:
        """The mesh of `data` replicas; Refused where experts are not shared out evenly."""
        split = self.tensor if self.expert_tensor is None else self.expert_tensor
        room = self.tensor // split * self.context * data
        if room % self.expert:
            what = "context x data" if self.context > 1 else "data"
            what = what if split == self.tensor else f"tensor x {what}"
            fitting = ", ".join(str(n) for n in range(1, min(room, 4096) + 1) if room % n == 0)
            raise Refused(
                f"{self.expert} does not divide {what}, {room}; {fitting} would",
                ("parallel", "expert"),
            )
        axes = (self.tensor, data, self.pipeline, self._axes)
        return Mesh(*axes, expert=self.expert, expert_tensor=split, context=self.context)
