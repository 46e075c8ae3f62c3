"""Programs: what one rank issues in one step, as plain data.

The execution model (docs/assumptions.md, A1-A6).  A rank has a host thread, a compute stream and
one FIFO stream per communicator.  The host issues the operations in list order.  An operation
starts when its stream has finished everything issued before it, the operations it waits for have
ended, and the host has issued it.  A collective starts when its last participant has reached it
and ends at the same time on all of them, so it is a barrier of its group.  A transfer goes from
the first rank of a pair to the second: it starts when the sender has reached its `send`, whether
or not the receiver has reached its `receive`, which ends with it.  An operation that
`blocks_host` keeps the host from issuing the next one until it has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, NamedTuple

from dpsim.collectives import BARRIER, RECEIVE, SEND, SHIFT, Ranks
from dpsim.compile.groups import Partition, everyone
from dpsim.core.lean import dataclass

COMPUTE = "compute"
#: a collective of the ranks of a node that moves nothing between them: batches come from the host
COPY_IN = "copy_in"
#: kinds of work on the compute stream; the first three are slowed by a slow rank
KINDS = ("forward", "backward", "optimizer", "copy", "serial", "wait")


class Op(NamedTuple):
    """One operation of one rank.

    name       what traces show ("B3", "AR0")
    kind       one of KINDS, "collective" or "transfer"
    stream     COMPUTE, or the communicator's name
    seconds    duration on this rank, for anything but a collective [s]
    operation  one of `collectives.OPERATIONS`, SHIFT or BARRIER for a collective, SEND or RECEIVE
               for a transfer
    group      name of the group of ranks that take part: (sender, receiver) pairs for a transfer
    bytes      full, unsharded size of the collective, padding included [B]
    padding    bytes of it that are padding [B]
    control    the bytes are bookkeeping (maps, counters), not payload
    after      indices of operations of this program, all before this one, that must have ended
    delay      how long after the last of `after` has ended it may start: a background thread's
               cycle [s]
    after_step waits for the previous step's end too (an all-gather of updated parameters)
    issue      host time to issue it [s]
    blocks_host  the host waits for its end
    repeats    a collective is carried out so many times, one after the other; in a program that
               stands for many steps, so many times a step
    root       the place in its group of the rank that a broadcast comes from
    """

    name: str
    kind: str
    stream: str = COMPUTE
    seconds: float = 0.0
    operation: str = ""
    group: str = "world"
    bytes: float = 0.0
    padding: float = 0.0
    control: bool = False
    after: tuple[int, ...] = ()
    delay: float = 0.0
    after_step: bool = False
    issue: float = 0.0
    blocks_host: bool = False
    repeats: float = 1
    root: int = 0

    @property
    def agreed(self) -> tuple[str, float, float, int]:
        """What all ranks of a collective have to agree on."""
        return self.operation, self.bytes, self.repeats, self.root

    @property
    def on_device(self) -> bool:
        """Whether it runs on the compute stream."""
        return self.stream == COMPUTE

    @property
    def carried(self) -> str:
        """Which of `collectives.OPERATIONS` it is to those who carry it out."""
        return SEND if self.operation in (RECEIVE, SHIFT) else self.operation

    @property
    def exchanges(self) -> bool:
        """Whether it is a collective that moves something from rank to rank."""
        return self.kind == "collective" and self.operation not in (BARRIER, COPY_IN)

    @property
    def scales(self) -> bool:
        """Whether a slow or jittery rank takes longer for it."""
        return self.kind in ("forward", "backward", "optimizer")


@dataclass(frozen=True)
class Program:
    """The operations of one role in issue order; the step ends with the last compute operation.

    `listing` is the order of a schedule, where one made the program.
    """

    ops: tuple[Op, ...]
    buckets: tuple[tuple[str, float, tuple[str, ...]], ...] = ()
    listing: str = ""

    def __post_init__(self) -> None:
        for index, op in enumerate(self.ops):
            after, delay, kind = op.after, op.delay, op.kind
            if after and not (min(after) >= 0 and max(after) < index):
                raise ValueError(f"{op.name} waits for an operation that is not issued before it")
            if op.seconds < 0 or op.bytes < 0 or delay < 0:
                raise ValueError(f"{op.name} has a negative duration, size or delay")
            if delay and not after:
                raise ValueError(f"{op.name} is delayed after nothing")
            if (kind == "collective" or kind == "transfer") == (op.stream == COMPUTE):
                raise ValueError(f"{op.name}: collectives, and only they, run on communicators")
            if (kind == "transfer") != (op.operation in (SEND, RECEIVE)):
                raise ValueError(f"{op.name}: a transfer is sent or received")
        if not any(op.stream == COMPUTE for op in self.ops):
            raise ValueError("a program needs at least one compute operation")

    @cached_property
    def end(self) -> int:
        """Index of the operation whose end is the end of the step on this rank."""
        return max(i for i, op in enumerate(self.ops) if op.stream == COMPUTE)

    @cached_property
    def ordinals(self) -> tuple[int, ...]:
        """How many earlier operations share an operation's stream and group."""
        seen: dict[tuple[str, str], int] = {}
        result = []
        for op in self.ops:
            result.append(seen.get((op.stream, op.group), 0))
            seen[op.stream, op.group] = result[-1] + 1
        return tuple(result)

    @cached_property
    def behind(self) -> tuple[int, ...]:
        """Index of the operation before each on its stream; -1 where it is the first."""
        last: dict[str, int] = {}
        result = []
        for index, op in enumerate(self.ops):
            result.append(last.get(op.stream, -1))
            last[op.stream] = index
        return tuple(result)

    @cached_property
    def known(self) -> dict[Any, Any]:
        """What engines have worked out about it, by their own keys; it never changes."""
        return {}

    @cached_property
    def places(self) -> dict[tuple[str, str, int], int]:
        """The index of every operation by its stream, its group, and how many earlier ones share
        both: what ranks do together has the same name on all of them."""
        return {
            (op.stream, op.group, ordinal): index
            for index, (op, ordinal) in enumerate(zip(self.ops, self.ordinals, strict=True))
        }

    @property
    def collective_groups(self) -> Collection[str]:
        """The names of the groups that take part in its collectives."""
        return self._first.keys()

    def first_of(self, group: str) -> Op | None:
        """The first collective in groups of that name."""
        return self._first.get(group)

    @cached_property
    def _first(self) -> dict[str, Op]:
        return {op.group: op for op in reversed(self.ops) if op.kind == "collective"}

    @cached_property
    def host_matters(self) -> bool:
        """Whether issuing operations costs host time or can block it."""
        return any(op.issue or op.blocks_host for op in self.ops)

    @cached_property
    def transfers(self) -> bool:
        """Whether anything is sent or received."""
        return any(op.kind == "transfer" for op in self.ops)

    @cached_property
    def awaited(self) -> frozenset[int]:
        """Operations whose end something outside their stream may wait for."""
        others = {other for op in self.ops for other in op.after}
        return frozenset(
            others | {self.end} | {i for i, op in enumerate(self.ops) if op.blocks_host}
        )

    @cached_property
    def streams(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(op.stream for op in self.ops))

    @cached_property
    def collectives_first(self) -> tuple[int, ...]:
        """The operations in another order that means the same where issuing costs no host time:
        every collective stands as early as its stream and what it waits for allow."""
        queues = {stream: deque[int]() for stream in self.streams}
        for index, op in enumerate(self.ops):
            queues[op.stream].append(index)
        placed: dict[int, None] = {}
        while len(placed) < len(self.ops):
            stream = next(s for s in self._by_urgency if self._free(queues[s], placed))
            placed[queues[stream].popleft()] = None
        return tuple(placed)

    @cached_property
    def gathers_first(self) -> tuple[int, ...]:
        """The operations in another order that means the same where issuing costs no host time:
        gathers stand right behind what they wait for and the one before them on their stream, and
        all else, transfers too, where it is."""
        keys: list[tuple[int, int]] = []
        for index, op in enumerate(self.ops):
            key = (index, 0)
            if op.operation == "all_gather":
                waits = [keys[other] for other in (*op.after, self.behind[index]) if other >= 0]
                latest = max(waits, default=(-1, 0))
                key = (latest[0], index + 1)
            keys.append(key)
        return tuple(sorted(range(len(self.ops)), key=keys.__getitem__))

    @property
    def _by_urgency(self) -> tuple[str, ...]:
        return (*(s for s in self.streams if s != COMPUTE), COMPUTE)

    def _free(self, queue: deque[int], placed: Mapping[int, None]) -> bool:
        """Whether everything that the first of `queue` waits for has been placed."""
        return bool(queue) and all(other in placed for other in self.ops[queue[0]].after)

    def order(self) -> str:
        """The operations in issue order, by name; of a scheduled program, the schedule's own."""
        return self.listing or " ".join(op.name for op in self.ops)


@dataclass(frozen=True)
class Cast:
    """Who plays what in one step.

    programs  one per role
    roles     the role of every rank
    groups    name -> partition of (some of) the ranks; every group of the partition runs its own
              collective
    real      where one player stands for several ranks that do the same: the first rank of each
    """

    programs: tuple[Program, ...]
    roles: tuple[int, ...]
    groups: Mapping[str, Partition] = field(default_factory=dict)
    real: tuple[int, ...] = ()

    @classmethod
    def uniform(cls, program: Program, ranks: int) -> Cast:
        """`ranks` ranks that all play `program` in one group called "world"."""
        return cls((program,), (0,) * ranks, {"world": everyone(ranks)})

    @property
    def ranks(self) -> int:
        return len(self.roles)

    def rank_of(self, player: int) -> int:
        """The rank that player number `player` stands for, the first of several."""
        return self.real[player] if self.real else player

    @cached_property
    def _members(self) -> tuple[Sequence[int], ...]:
        if len(self.programs) == 1:
            return (range(self.ranks),)
        found: list[list[int]] = [[] for _ in self.programs]
        for rank, role in enumerate(self.roles):
            found[role].append(rank)
        return tuple(tuple(ranks) for ranks in found)

    @cached_property
    def columns(self) -> Sequence[int]:
        """The place of every rank among the ranks of its role."""
        if len(self.programs) == 1:
            return range(self.ranks)
        place = {rank: i for ranks in self._members for i, rank in enumerate(ranks)}
        return tuple(place[rank] for rank in range(self.ranks))

    @cached_property
    def group_numbers(self) -> dict[str, dict[int, int]]:
        """For each group name, the number in its partition of every rank that takes part."""
        return {
            name: {rank: number for number, group in enumerate(partition) for rank in group}
            for name, partition in self.groups.items()
        }

    def members(self, role: int) -> Sequence[int]:
        return self._members[role]

    def peers(self, rank: int, group: str) -> Ranks:
        """Who takes part with `rank` in collectives of `group`; nobody if it is in none."""
        return next((ranks for ranks in self.groups.get(group, ()) if rank in ranks), ())

    def pair(self, rank: int, op: Op) -> tuple[int, tuple[int, int]]:
        """The number of the pair of `op`, a transfer that `rank` takes part in, and the pair:
        (sender, receiver).  Raises ValueError where it has no such part."""
        number = self.group_numbers.get(op.group, {}).get(rank)
        pair = self.groups[op.group][number] if number is not None else ()
        if number is None or len(pair) != 2 or pair.index(rank) != (op.operation == RECEIVE):
            raise ValueError(f"rank {rank} cannot {op.operation} in {op.group!r}: {op.name}")
        return number, (pair[0], pair[1])

    def program(self, rank: int) -> Program:
        return self.programs[self.roles[rank]]


__all__ = ["BARRIER", "COMPUTE", "COPY_IN", "KINDS", "RECEIVE", "SEND", "Cast", "Op", "Program"]
