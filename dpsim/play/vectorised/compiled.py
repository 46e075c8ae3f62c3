"""Programs made ready to be played: what every operation really has to wait for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dpsim.compile.program import COMPUTE, Op, Program
from dpsim.core.lean import dataclass
from dpsim.play import check_time


class Playable(NamedTuple):
    """An operation as it is played.

    number   its place in issue order
    seconds  what it computes, checked [s]
    waits    the operations on communicators whose end it awaits, by their place in `tasks`; of
             several on one stream that end in order, the last
    done     the compute operation that it awaits where its own stream does not see to that, or -1
    kept     its end is awaited by a communicator, or with a delay
    past     its end is looked back at when ranks are past it
    scales   a slow or jittery rank takes longer for it
    alone    it does that, awaits nothing, and nobody looks back at its end
    computes  it runs on the compute stream
    """

    op: Op
    number: int
    seconds: float
    waits: tuple[int, ...]
    done: int
    kept: bool
    past: bool
    scales: bool
    alone: bool
    computes: bool


@dataclass(frozen=True)
class Compiled:
    """A program in the order in which it is played.

    own    a rank's compute or host waits for what that very rank has computed, and nobody else
    begun  something waits for the end of the step before
    """

    program: Program
    tasks: tuple[Playable, ...]
    own: bool
    begun: bool


def compiled(program: Program, *, early: bool, width: int) -> Compiled:
    """`program`, its collectives as `early` as may be, on streams of `width` workers."""
    key = ("vectorised", early, width)
    if key not in program.known:
        program.known[key] = _compiled(program, early, width)
    found: Compiled = program.known[key]
    return found


def _compiled(program: Program, early: bool, width: int) -> Compiled:
    order = tuple(range(len(program.ops)))
    if early:  # a receive must not come before its turn
        order = program.gathers_first if program.transfers else program.collectives_first
    place = {index: k for k, index in enumerate(order)}
    ops = program.ops
    done = [_done(ops, op) for op in ops]
    waits = [tuple(place[other] for other in _ends(ops, op, width)) for op in ops]
    kept, past = set(done), {done[index] for index in _late(ops, order, done)}
    tasks = tuple(
        _playable(ops[index], index, waits[index], done[index], kept, past) for index in order
    )
    own = any(task.op.on_device and (task.done >= 0 or task.op.blocks_host) for task in tasks)
    begun = any(op.after_step for op in ops if op.stream != COMPUTE)
    return Compiled(program, tasks, own, begun)


def _playable(
    op: Op, index: int, waits: tuple[int, ...], done: int, kept: set[int], past: set[int]
) -> Playable:
    seconds, scales = check_time(op.seconds, op.name), op.scales
    awaits = waits or done >= 0 or op.issue or op.blocks_host
    alone = scales and not (awaits or index in kept)
    kept_, past_ = index in kept, index in past
    return Playable(op, index, seconds, waits, done, kept_, past_, scales, alone, op.on_device)


def _late(ops: tuple[Op, ...], order: Sequence[int], done: Sequence[int]) -> Iterator[int]:
    """The operations that await the end of a compute operation when ranks compute on already."""
    last = -1
    for index in order:
        if done[index] >= 0 and done[index] != last:
            yield index
        if ops[index].stream == COMPUTE:
            last = index


def _done(ops: tuple[Op, ...], op: Op) -> int:
    """The last compute operation that `op` awaits, or -1 where it awaits none or its own stream
    sees to it that those before it have ended."""
    if not op.after or (op.stream == COMPUTE and not op.delay):
        return -1
    return max((other for other in op.after if ops[other].stream == COMPUTE), default=-1)


def _ends(ops: tuple[Op, ...], op: Op, width: int) -> tuple[int, ...]:
    """The operations on communicators that `op` awaits, without those that others see to."""
    if not op.after:
        return ()
    others = [other for other in op.after if ops[other].stream != COMPUTE]
    if width > 1 or len(others) < 2:
        return tuple(others)
    last: dict[tuple[str, str], int] = {}
    for other in sorted(others):
        last[ops[other].stream, ops[other].kind] = other
    return tuple(last.values())
