"""Random plays: programs that no strategy writes, each made from a number.

The programs mix whatever an `Op` and a `Play` allow: streams and groups (odd partitions too),
uneven roles, transfers, waits, delays, blocked hosts, issue times, contention, several collectives
at once, steps with other casts, factors with ties, zeros and a huge spread, slow networks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

import numpy as np

from dpsim.backends import Backend, Phase, Plan, Ranks, Topology
from dpsim.collectives import OPERATIONS
from dpsim.compile.groups import Partition
from dpsim.compile.program import BARRIER, KINDS, RECEIVE, SEND, Cast, Op, Program
from dpsim.core.arrays import Array
from dpsim.play import Costs, Late, Play

COLLECTIVES = [operation for operation in OPERATIONS if operation != SEND]
#: pairs that send one way and back, between the first half of the ranks and the second
FORTH, BACK = "forth", "back"


class Wide(Backend):
    """Every collective takes `latency` + bytes/`bandwidth`; a communicator runs `width` at once."""

    def __init__(self, latency: float, bandwidth: float, width: int) -> None:
        self.latency, self.bandwidth, self.width = latency, bandwidth, width

    @property
    def concurrency(self) -> int:
        return self.width

    def plan(self, operation: str, ranks: Ranks, size: float, topology: Topology | None) -> Plan:
        alone = len(ranks) == 1
        phase = Phase(0.0, 0.0) if alone else Phase(self.latency, size / self.bandwidth)
        return Plan((phase,), None, "wide", size)

    def stretched(self, factor: float) -> Wide:
        """The same, but everything takes `factor` times as long."""
        bandwidth = self.bandwidth / factor if factor else inf
        return Wide(self.latency * factor, bandwidth, self.width)


class Talk(NamedTuple):
    """One thing that all ranks do together, in whatever roles they are."""

    stream: str
    group: str
    operation: str
    bytes: float
    repeats: int


@dataclass(frozen=True)
class Habits:
    """What may occur in the programs of one play."""

    streams: tuple[str, ...]
    groups: tuple[str, ...]
    hosted: bool
    delayed: bool
    after_step: bool
    barriers: bool
    transfers: bool

    @classmethod
    def drawn(cls, rng: random.Random, transfers: bool) -> Habits:
        return cls(
            streams=("a", "b", "c") if rng.random() < 0.6 else ("a",),
            groups=("world",) if rng.random() < 0.35 else ("world", "blocks", "strided", "odd"),
            hosted=rng.random() < 0.35,
            delayed=rng.random() < 0.5,
            after_step=rng.random() < 0.4,
            barriers=rng.random() < 0.3,
            transfers=transfers,
        )


# -- plays ------------------------------------------------------------------------------------


def play_of(seed: int) -> Play:
    """Play number `seed`."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    ranks = rng.choice([1, 2, 3, 4, 5, 6, 8, 12])
    habits = Habits.drawn(rng, transfers=ranks % 2 == 0 and rng.random() < 0.3)
    roles = _roles(rng, ranks, habits)
    groups = _groups(rng, ranks)
    casts = [
        Cast(tuple(_programs(rng, habits, 1 + max(roles))), roles, groups)
        for _ in range(rng.choice([1, 1, 2]))
    ]
    steps = rng.randint(1, 4)
    factors = _factors(rng, numbers, (steps, ranks))
    slowed = rng.random() < 0.3
    network = [rng.choice([1.0, 1.0, 2.5, 7.0]) if slowed else 1.0 for _ in range(steps)]
    late = [_late(numbers, casts[k % len(casts)]) for k in range(steps)]
    return Play(
        lambda k: casts[k % len(casts)],
        Costs(Wide(_seconds(rng), 1e9, rng.choice([1, 1, 1, 2, 3])), None),
        steps,
        rng.randrange(steps),
        lambda k: factors[k],
        rng.choice([0.0, 0.0, 0.3, 2.0]),
        lambda k: network[k],
        (lambda k: late[k]) if rng.random() < 0.3 else None,
    )


def _seconds(rng: random.Random) -> float:
    """None, one of few that make ties, a usual one, or one of any magnitude [s]."""
    drawn = rng.random()
    if drawn < 0.2:
        return 0.0
    if drawn < 0.4:
        return rng.choice([1e-3, 2e-3, 3e-3])
    return rng.uniform(1e-6, 1e-2) if drawn < 0.9 else float(10 ** rng.uniform(-9, 1))


def _groups(rng: random.Random, ranks: int) -> dict[str, Partition]:
    size = rng.choice([size for size in range(1, ranks + 1) if ranks % size == 0])
    mixed = rng.sample(range(ranks), ranks)
    inner = range(1, ranks)
    cuts = [0, *sorted(rng.sample(inner, rng.randint(0, min(2, len(inner))))), ranks]
    groups: dict[str, Partition] = {
        "world": (range(ranks) if rng.random() < 0.5 else tuple(range(ranks)),),
        "blocks": tuple(tuple(range(i, i + size)) for i in range(0, ranks, size)),
        "strided": tuple(tuple(range(i, ranks, ranks // size)) for i in range(ranks // size)),
        "odd": tuple(tuple(mixed[a:b]) for a, b in pairwise(cuts)),
    }
    if ranks % 2 == 0:
        half = ranks // 2
        others = rng.sample(range(half, ranks), half)
        groups[FORTH] = tuple(enumerate(others))
        groups[BACK] = tuple((other, rank) for rank, other in enumerate(others))
    return groups


def _roles(rng: random.Random, ranks: int, habits: Habits) -> tuple[int, ...]:
    """The role of every rank; with transfers, the halves that they go between."""
    if habits.transfers:
        return (0,) * (ranks // 2) + (1,) * (ranks // 2)
    most = min(rng.choice([1, 1, 2, 3]), ranks)
    drawn = [rng.randrange(most) for _ in range(ranks)]
    present = sorted(set(drawn))
    return tuple(present.index(role) for role in drawn)


def _factors(rng: random.Random, numbers: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Multipliers of compute [steps, ranks]."""
    makers: tuple[Callable[[], Array], ...] = (
        lambda: numbers.lognormal(0.0, 0.5, shape),
        lambda: numbers.choice([1.0, 1.5, 2.0], shape),
        lambda: numbers.choice([0.0, 1.0, 3.0], shape),
        lambda: 10 ** numbers.uniform(-6, 6, shape),
        lambda: np.ones(shape),
        lambda: np.tile(1 + numbers.random(shape[1]), (shape[0], 1)),
    )
    return rng.choice(makers)()


def _late(numbers: np.random.Generator, cast: Cast) -> Late:
    """Delays of some computations on some ranks, in one step."""

    def drawn(ranks: int) -> Array:
        return numbers.uniform(0, 5e-3, ranks) * (numbers.random(ranks) < 0.5)

    return [
        {
            index: drawn(len(cast.members(role)))
            for index, op in enumerate(program.ops)
            if op.on_device and numbers.random() < 0.4
        }
        for role, program in enumerate(cast.programs)
    ]


# -- programs ---------------------------------------------------------------------------------


def _programs(rng: random.Random, habits: Habits, roles: int) -> Iterator[Program]:
    """One per role, that talk of the same in the same order."""
    talks = [_talk(rng, habits) for _ in range(rng.randint(0, 6))]
    for role in range(roles):
        yield _program(rng, habits, talks, role)


def _talk(rng: random.Random, habits: Habits) -> Talk:
    if habits.transfers and rng.random() < 0.5:
        way = rng.choice([FORTH, BACK])
        stream = way if rng.random() < 0.7 else "both ways"
        return Talk(stream, way, SEND, rng.uniform(0, 1e6), 1)
    barrier = habits.barriers and rng.random() < 0.3
    operation = BARRIER if barrier else rng.choice(COLLECTIVES)
    size = rng.choice([0.0, rng.uniform(0, 1e6), 1e6])
    repeats = rng.choice([1, 1, 1, 3])
    return Talk(rng.choice(habits.streams), rng.choice(habits.groups), operation, size, repeats)


def _program(rng: random.Random, habits: Habits, talks: list[Talk], role: int) -> Program:
    """`talks` in their order, with local work before, between and after."""
    ops: list[Op] = []
    for talk in [*talks, None]:
        for _ in range(rng.randint(0 if ops or talk else 1, 2)):
            rest = _rest(rng, habits, len(ops))
            ops.append(Op(f"L{len(ops)}", rng.choice(KINDS), seconds=_seconds(rng), **rest))
        if talk is not None:
            ops.append(_spoken(talk, role, len(ops), _rest(rng, habits, len(ops))))
    if not any(op.on_device for op in ops):
        ops.append(Op("W", "wait", after=(len(ops) - 1,)))
    return Program(tuple(ops))


def _spoken(talk: Talk, role: int, index: int, rest: Mapping[str, Any]) -> Op:
    """What `role` does of `talk`: of a transfer, to send or to receive."""
    kind, operation = "collective", talk.operation
    if operation == SEND:
        sends = (talk.group == FORTH) == (role == 0)
        kind, operation = "transfer", SEND if sends else RECEIVE
    return Op(
        f"C{index}", kind, stream=talk.stream, group=talk.group, operation=operation,
        bytes=talk.bytes, repeats=talk.repeats, **rest,
    )  # fmt: skip


def _rest(rng: random.Random, habits: Habits, index: int) -> dict[str, Any]:
    """What every operation may have: waits, delays, issue times, a blocked host."""
    after = tuple(rng.randrange(index) for _ in range(rng.randint(0, 2))) if index else ()
    delayed = after and habits.delayed and rng.random() < 0.5
    return {
        "after": after,
        "delay": _seconds(rng) if delayed else 0.0,
        "after_step": habits.after_step and rng.random() < 0.3,
        "issue": _seconds(rng) / 10 if habits.hosted and rng.random() < 0.5 else 0.0,
        "blocks_host": habits.hosted and rng.random() < 0.2,
    }
