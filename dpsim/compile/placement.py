"""Placement: which rank of a mesh of tensor x context x pipeline x data parallelism sits where.

Ranks are numbered along the axes in `order`, the first one fastest, and fill the machine node by
node.  NVIDIA/Megatron-LM (megatron/core/parallel_state.py, default order "tp-cp-ep-dp-pp") numbers
tensor ranks first, so that they share a node, then those that split a sequence, then data replicas,
then pipeline stages.  Ranks that split a sequence hold the same parameters, as replicas do: both
together sum gradients (there the group "dp_cp").
"""

from __future__ import annotations

from functools import cached_property
from itertools import product
from math import gcd
from typing import Literal

from dpsim.collectives import Ranks
from dpsim.compile.groups import Partition
from dpsim.core.lean import dataclass

Axis = Literal["tensor", "context", "data", "pipeline"]
ORDER: tuple[Axis, ...] = ("tensor", "context", "data", "pipeline")


@dataclass(frozen=True)
class Mesh:
    """Sizes of the axes, and the order in which ranks run along them.

    expert         ranks of a stage that share out experts; they divide those of tensor x context x
                   data
    expert_tensor  ranks that split each expert between them: those of a tensor group, or one
    context        ranks that split every sequence between them; an `order` that does not name it
                   has it right behind tensor
    """

    tensor: int = 1
    data: int = 1
    pipeline: int = 1
    order: tuple[Axis, ...] = ORDER
    expert: int = 1
    expert_tensor: int = 1
    context: int = 1

    @property
    def ranks(self) -> int:
        return self.replica * self.data

    @property
    def replica(self) -> int:
        """Ranks that work on one sample together."""
        return self.tensor * self.context * self.pipeline

    @property
    def holders(self) -> int:
        """Ranks that hold the same parameters."""
        return self.data * self.context

    @property
    def least(self) -> int:
        """The fewest ranks that such a mesh has, with as many that share out experts."""
        if self.expert == 1:
            return self.replica
        seats = self.tensor // self.expert_tensor * self.context
        return self.replica * (self.expert // gcd(self.expert, seats))

    @property
    def plain(self) -> bool:
        """Whether there is data parallelism only."""
        return self.replica == self.expert == 1

    @property
    def expert_data(self) -> int:
        """Ranks of a stage that hold the same experts."""
        return self.tensor * self.holders // (self.expert * self.expert_tensor)

    @property
    def expert_ranks(self) -> int | None:
        """The same, where experts are shared out; None: every rank has all of them."""
        return self.expert_data if self.expert > 1 else None

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """All axes, in the order along which ranks are numbered."""
        if "context" in self.order:
            return self.order
        behind = self.order.index("tensor") + 1
        return (*self.order[:behind], "context", *self.order[behind:])

    def size(self, axis: Axis) -> int:
        found: int = getattr(self, axis)
        return found

    def _stride(self, axis: Axis) -> int:
        stride = 1
        for other in self.axes:
            if other == axis:
                break
            stride *= self.size(other)
        return stride

    def place(self, rank: int, axis: Axis) -> int:
        """Where `rank` is along `axis`: 0, 1, …"""
        return rank // self._stride(axis) % self.size(axis)

    def rank(self, *, tensor: int, data: int, pipeline: int, context: int = 0) -> int:
        """The rank at a place of the mesh."""
        places = {"tensor": tensor, "data": data, "pipeline": pipeline, "context": context}
        return sum(places[axis] * self._stride(axis) for axis in self.axes)

    def _along(self, axis: Axis, first: int) -> Ranks:
        """The ranks of an axis, from its `first` one on."""
        stride, size = self._stride(axis), self.size(axis)
        return range(first, first + stride * size, stride) if size > 1 else range(first, first + 1)

    def tensor_groups(self, pipeline: int) -> Partition:
        """Ranks of stage row `pipeline` that split layers between them, a group per part of a
        sample."""
        return tuple(self._along("tensor", rank) for rank in self._corner(pipeline, "tensor"))

    def context_groups(self, pipeline: int) -> Partition:
        """Ranks of stage row `pipeline` that split sequences between them."""
        return tuple(self._along("context", rank) for rank in self._corner(pipeline, "context"))

    def data_groups(self, pipeline: int) -> Partition:
        """Ranks of stage row `pipeline` that hold the same parameters, a group per tensor rank."""
        first, own = self._first(pipeline), self._stride("tensor")
        parts = (first + t * own for t in range(self.tensor))
        if self.context == 1:
            return tuple(self._along("data", part) for part in parts)
        near, far = self._stride("context"), self._stride("data")
        pairs = product(range(self.data), range(self.context))
        places = sorted(d * far + c * near for d, c in pairs)
        return tuple(evenly([part + place for place in places]) for part in parts)

    def _first(self, pipeline: int) -> int:
        return self.rank(tensor=0, data=0, pipeline=pipeline)

    def _corner(self, pipeline: int, axis: Axis) -> list[int]:
        """The first rank along `axis` of stage row `pipeline`, for all other places."""
        others: list[Axis] = ["data", "context", "tensor"]
        others.remove(axis)
        one, other = (self._stride(name) for name in others)
        found = product(*(range(self.size(name)) for name in others))
        first = self._first(pipeline)
        return [first + a * one + b * other for a, b in found]

    def expert_groups(self, pipeline: int) -> Partition:
        """Ranks of stage row `pipeline` that share out experts, a group for each copy of them."""
        seats, each = self._seats(pipeline), self.expert * self.expert_tensor
        places = product(range(0, len(seats), each), range(self.expert_tensor))
        return tuple(evenly(seats[k + t : k + each : self.expert_tensor]) for k, t in places)

    def expert_data_groups(self, pipeline: int) -> Partition:
        """Ranks of stage row `pipeline` that hold the same experts."""
        seats, each = self._seats(pipeline), self.expert * self.expert_tensor
        return tuple(evenly(seats[k::each]) for k in range(each))

    def _seats(self, pipeline: int) -> list[int]:
        """The ranks of a stage row, tensor ranks next to each other (as in
        megatron/core/parallel_state.py, where experts have their own order "tp-ep-dp-pp")."""
        places = product(range(self.data), range(self.context), range(self.tensor))
        data, context, tensor = (self._stride(one) for one in ("data", "context", "tensor"))
        first = self._first(pipeline)
        return [first + d * data + c * context + t * tensor for d, c, t in places]

    def pairs(self, source: int, target: int) -> tuple[tuple[int, int], ...]:
        """(sender, receiver) from pipeline rank `source` to `target`, for all other places."""
        return tuple(zip(self._seats(source), self._seats(target), strict=True))


def evenly(ranks: list[int]) -> Ranks:
    """`ranks` as a range where they are evenly spaced."""
    if len(ranks) == 1:
        return range(ranks[0], ranks[0] + 1)
    step = ranks[1] - ranks[0]
    found = range(ranks[0], ranks[-1] + step, step)
    return found if list(found) == ranks else tuple(ranks)
