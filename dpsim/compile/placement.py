"""Placement: which rank of a mesh of tensor x pipeline x data parallelism sits where.

Ranks are numbered along the axes in `order`, the first one fastest, and fill the machine node by
node.  NVIDIA/Megatron-LM (megatron/core/parallel_state.py, default order "tp-cp-ep-dp-pp") numbers
tensor ranks first, so that they share a node, then data replicas, then pipeline stages.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import gcd
from typing import Literal

from dpsim.collectives import Ranks
from dpsim.compile.groups import Partition

Axis = Literal["tensor", "data", "pipeline"]
ORDER: tuple[Axis, ...] = ("tensor", "data", "pipeline")


@dataclass(frozen=True)
class Mesh:
    """Sizes of the axes, and the order in which ranks run along them.

    expert         ranks of a stage that share out experts; they divide those of tensor x data
    expert_tensor  ranks that split each expert between them: those of a tensor group, or one
    """

    tensor: int = 1
    data: int = 1
    pipeline: int = 1
    order: tuple[Axis, ...] = ORDER
    expert: int = 1
    expert_tensor: int = 1

    @property
    def ranks(self) -> int:
        return self.tensor * self.data * self.pipeline

    @property
    def replica(self) -> int:
        """Ranks that hold the model once."""
        return self.tensor * self.pipeline

    @property
    def least(self) -> int:
        """The fewest ranks that such a mesh has, with as many that share out experts."""
        if self.expert == 1:
            return self.replica
        return self.replica * (self.expert // gcd(self.expert, self.tensor // self.expert_tensor))

    @property
    def plain(self) -> bool:
        """Whether there is data parallelism only."""
        return self.tensor == self.pipeline == self.expert == 1

    @property
    def expert_data(self) -> int:
        """Ranks of a stage that hold the same experts."""
        return self.tensor * self.data // (self.expert * self.expert_tensor)

    def size(self, axis: Axis) -> int:
        found: int = getattr(self, axis)
        return found

    def _stride(self, axis: Axis) -> int:
        stride = 1
        for other in self.order:
            if other == axis:
                break
            stride *= self.size(other)
        return stride

    def place(self, rank: int, axis: Axis) -> int:
        """Where `rank` is along `axis`: 0, 1, …"""
        return rank // self._stride(axis) % self.size(axis)

    def rank(self, *, tensor: int, data: int, pipeline: int) -> int:
        """The rank at a place of the mesh."""
        places = {"tensor": tensor, "data": data, "pipeline": pipeline}
        return sum(places[axis] * self._stride(axis) for axis in self.order)

    def _along(self, axis: Axis, first: int) -> Ranks:
        """The ranks of an axis, from its `first` one on."""
        stride, size = self._stride(axis), self.size(axis)
        return range(first, first + stride * size, stride) if size > 1 else range(first, first + 1)

    def tensor_groups(self, pipeline: int) -> Partition:
        """Ranks of stage row `pipeline` that split layers between them, a group per replica."""
        first = self.rank(tensor=0, data=0, pipeline=pipeline)
        replicas = (first + d * self._stride("data") for d in range(self.data))
        return tuple(self._along("tensor", rank) for rank in replicas)

    def data_groups(self, pipeline: int) -> Partition:
        """Ranks of stage row `pipeline` that hold the same parameters, a group per tensor rank."""
        first = self.rank(tensor=0, data=0, pipeline=pipeline)
        parts = (first + t * self._stride("tensor") for t in range(self.tensor))
        return tuple(self._along("data", rank) for rank in parts)

    def expert_groups(self, pipeline: int) -> Partition:
        """Ranks of stage row `pipeline` that share out experts, a group for each copy of them."""
        seats, each = self._seats(pipeline), self.expert * self.expert_tensor
        places = product(range(0, len(seats), each), range(self.expert_tensor))
        return tuple(_even(seats[k + t : k + each : self.expert_tensor]) for k, t in places)

    def expert_data_groups(self, pipeline: int) -> Partition:
        """Ranks of stage row `pipeline` that hold the same experts."""
        seats, each = self._seats(pipeline), self.expert * self.expert_tensor
        return tuple(_even(seats[k::each]) for k in range(each))

    def _seats(self, pipeline: int) -> list[int]:
        """The ranks of a stage row, tensor ranks next to each other (as in
        megatron/core/parallel_state.py, where experts have their own order "tp-ep-dp-pp")."""
        return [
            self.rank(tensor=t, data=d, pipeline=pipeline)
            for d in range(self.data)
            for t in range(self.tensor)
        ]

    def pairs(self, source: int, target: int) -> tuple[tuple[int, int], ...]:
        """(sender, receiver) from pipeline rank `source` to `target`, for all other places."""
        here, there = (self.rank(tensor=0, data=0, pipeline=row) for row in (source, target))
        tensor, data = self._stride("tensor"), self._stride("data")
        places = product(range(self.data), range(self.tensor))
        away = [d * data + t * tensor for d, t in places]
        return tuple((here + by, there + by) for by in away)


def _even(ranks: list[int]) -> Ranks:
    """`ranks` as a range where they are evenly spaced."""
    if len(ranks) == 1:
        return range(ranks[0], ranks[0] + 1)
    step = ranks[1] - ranks[0]
    found = range(ranks[0], ranks[-1] + step, step)
    return found if list(found) == ranks else tuple(ranks)
