"""What parameter servers remember: shards and their versions, tokens, and how far workers are."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpsim.compile.behaviour import Occurrence


@dataclass(frozen=True)
class Shards:
    """The bytes of the parameters that every server holds."""

    bytes: tuple[float, ...]

    @property
    def largest(self) -> float:
        """The part of all bytes that the busiest server holds."""
        return max(self.bytes) / (sum(self.bytes) or 1.0)

    def mean(self, numbers: Mapping[int, float]) -> float:
        """The mean of `numbers`, one for each server that holds any, weighed by its bytes."""
        total = sum(self.bytes)
        return sum(self.bytes[k] * number for k, number in numbers.items()) / (total or 1.0)


def placed(
    variables: Sequence[tuple[float, Sequence[int]]], servers: int, most: int, least: float
) -> Shards:
    """Variables of so many bytes and of such a shape, cut along their first axis, on servers in
    turn.

    TensorFlow's MinSizePartitioner is min_max_variable_partitioner of
    tensorflow/python/ops/partitioned_variables.py: max(1, min(first axis, `most`, bytes / `least`
    rounded up)) shards, so that the smallest may lie below `least`; whole rows, the first shards
    one more.  Where a model says only how many elements a tensor has, they are its first axis.
    """
    held, turn = [0.0] * servers, 0
    for size, shape in variables:
        rows = shape[0] if shape else 1
        count = max(1, min(rows, most, math.ceil(size / least) if least else most))
        for k in range(count):
            part = (rows // count + (k < rows % count)) / rows if rows else 1.0 / count
            held[turn % servers] += size * part
            turn += 1
    return Shards(tuple(held))


class ServerState:
    """The memory of all servers of a play.

    versions  updates that every shard has seen
    step      updates that were made of several gradients together
    clocks    that every worker has ended
    tokens    of the queue, each the step that it is of; those at the start are of step 0
    """

    def __init__(self, workers: int, shards: Shards, released: int = 0) -> None:
        """`released`: tokens that every update puts into the queue."""
        self.shards, self.clocks = shards, [0] * workers
        self.versions = [0] * len(shards.bytes)
        self.step = self._collected = self._extra = 0
        self._given = [-1] * workers
        self.tokens, self._released = deque([0] * released), released
        self.next_update = Occurrence("the next update")
        self.next_slowest = Occurrence("the slowest worker")

    # -- how far workers are ----------------------------------------------------------------------

    @property
    def slowest(self) -> int:
        """The fewest clocks that any worker has ended."""
        return min(self.clocks)

    def ended(self, rank: int) -> None:
        """`rank` has ended a clock."""
        before = self.slowest
        self.clocks[rank] += 1
        if self.slowest > before:
            reached, self.next_slowest = self.next_slowest, Occurrence("the slowest worker")
            reached.happen()

    # -- gradients together -----------------------------------------------------------------------

    def take_token(self, rank: int, extra: int) -> bool:
        """Whether `rank` may compute a gradient of this step: once, and again while there are
        tokens beyond one for each worker."""
        if self._given[rank] < self.step:
            self._given[rank] = self.step
            return True
        if self._extra < extra:
            self._extra += 1
            return True
        return False

    def collect(self, wanted: int) -> bool:
        """A fresh gradient has come; whether there are as many as wanted."""
        self._collected += 1
        return self._collected == wanted

    def update(self) -> None:
        """The parameters are updated: all tokens are new."""
        self.step, self._collected, self._extra = self.step + 1, 0, 0
        self.versions = [now + 1 for now in self.versions]
        self.tokens.extend([self.step] * self._released)
        made, self.next_update = self.next_update, Occurrence("the next update")
        made.happen()
