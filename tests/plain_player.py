"""A player of meshes on ideal links, written apart from dpsim's engines and its network.

It reads the same casts and works out when every operation of every rank ends, one after the other,
by what the execution model says in words (`dpsim/compile/program.py`): no events, no arrays, no
ranks that stand for others.  A collective takes latency + bytes / bandwidth, or nothing where one
rank is alone, and shares links with nobody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from dpsim.compile.program import Cast, Op

#: (step, rank, index)
Key = tuple[int, int, int]


@dataclass
class PlainPlayer:
    """Plays `casts`, one per step; `factors[step][rank]` stretches computing; `latency` [s] and
    `bandwidth` [B/s] are those of every exchange."""

    casts: Sequence[Cast]
    factors: Sequence[Sequence[float]]
    latency: float
    bandwidth: float
    ready: dict[Key, float] = field(default_factory=dict)
    end: dict[Key, float] = field(default_factory=dict)
    _meets: dict[Key, list[Key]] = field(default_factory=dict)
    _behind: dict[Key, Key] = field(default_factory=dict)

    def play(self) -> list[float]:
        """How long every step takes, from the last rank's end to the last rank's end."""
        self._introduce()
        self._queue()
        todo = [
            (step, rank, index)
            for step, cast in enumerate(self.casts)
            for rank in range(cast.ranks)
            for index in range(len(cast.program(rank).ops))
        ]
        while todo:
            left = [key for key in todo if not self._done(key)]
            assert len(left) < len(todo), f"nobody can go on: {left[:4]}"
            todo = left
        ends = [0.0]
        for step, cast in enumerate(self.casts):
            ranks = range(cast.ranks)
            ends.append(max(self.end[step, r, _last(cast.program(r).ops)] for r in ranks))
        return [b - a for a, b in pairwise(ends)]

    def _queue(self) -> None:
        """What stands before each operation on its stream, in this step or the one before."""
        last: dict[object, Key] = {}
        for step, cast in enumerate(self.casts):
            for rank in range(cast.ranks):
                for index, op in enumerate(cast.program(rank).ops):
                    if (rank, op.stream) in last:
                        self._behind[step, rank, index] = last[rank, op.stream]
                    last[rank, op.stream] = (step, rank, index)

    def _introduce(self) -> None:
        """Who meets whom: the n-th exchange of a stream and a group, of all ranks of the group."""
        for step, cast in enumerate(self.casts):
            met: dict[object, list[Key]] = defaultdict(list)
            for rank in range(cast.ranks):
                seen: dict[object, int] = defaultdict(int)
                for index, op in enumerate(cast.program(rank).ops):
                    if op.kind not in ("collective", "transfer"):
                        continue
                    among = next(
                        group
                        for group in cast.groups[op.group]
                        if rank in group and self._side(op, rank, group)
                    )
                    which = (op.stream, op.group, tuple(among))
                    met[which, seen[which]].append((step, rank, index))
                    seen[which] += 1
            for keys in met.values():
                for key in keys:
                    self._meets[key] = keys

    @staticmethod
    def _side(op: Op, rank: int, group: Sequence[int]) -> bool:
        """Whether `rank` sends in the pair where it sends, and receives where it receives."""
        if op.kind == "collective":
            return True
        return group[0 if op.operation == "send" else 1] == rank

    def _done(self, key: Key) -> bool:
        """Whether it is known when that ends."""
        if not self._come(key):
            return False
        step, rank, index = key
        op = self.casts[step].program(rank).ops[index]
        if op.kind not in ("collective", "transfer"):
            own = self.factors[step][rank] if op.kind in ("forward", "backward", "optimizer") else 1
            self.end[key] = self.ready[key] + op.seconds * own
            return True
        if op.kind == "transfer" and op.operation == "send":
            self.end[key] = self.ready[key] + self._takes(op, 2)
            return True
        others = self._meets[key]
        if op.kind == "transfer":
            (sent,) = (other for other in others if other != key)
            if sent in self.end:
                self.end[key] = max(self.end[sent], self.ready[key])
        elif all(self._come(other) for other in others):
            begin = max(self.ready[other] for other in others)
            self.end[key] = begin + self._takes(op, len(others)) * op.repeats
        return key in self.end

    def _takes(self, op: Op, ranks: int) -> float:
        if ranks == 1 or op.operation == "barrier":
            return 0.0
        return self.latency + op.bytes / self.bandwidth

    def _come(self, key: Key) -> bool:
        """Whether it is known when that is reached: behind its stream, and what it waits for."""
        if key in self.ready:
            return True
        step, rank, index = key
        ops = self.casts[step].program(rank).ops
        op = ops[index]
        assert op.issue == 0, "meshes have no host"
        assert not op.blocks_host
        behind = [self._behind[key]] if key in self._behind else []
        if op.after_step and step:
            behind.append((step - 1, rank, _last(self.casts[step - 1].program(rank).ops)))
        awaited = [(step, rank, other) for other in op.after]
        if not all(other in self.end for other in (*behind, *awaited)):
            return False
        free = max((self.end[other] for other in behind), default=0.0)
        self.ready[key] = max([free, *(self.end[other] + op.delay for other in awaited)])
        return True


def _last(ops: Sequence[Op]) -> int:
    """The operation that ends a step."""
    return max(index for index, op in enumerate(ops) if op.stream == "compute")
