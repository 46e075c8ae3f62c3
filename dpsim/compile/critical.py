"""The critical path of a step: the chain of operations that its duration is made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from dpsim.compile.program import RECEIVE
from dpsim.compile.timeline import Column, Span, Step

#: ends within this of each other, relatively, count as equal when the path is followed back
_TOUCH = 1e-9

#: the times of a rank, read once
Columns = Callable[[int], Column]


def critical_path(step: Step) -> list[Span]:
    """The chain of operations that ends with the step on its critical rank.

    Followed back from the end: before an operation comes the one that ended when it started, on
    its own stream or among those it waits for; before a collective, on the rank that came last.
    What a communicator still carries of the previous step comes first.  Where an operation was
    delayed, or the host had not issued it yet, the path has a gap of that length.
    """
    rank = step.critical_rank()
    index = step.cast.program(rank).end
    path: list[Span] = []
    spans: dict[int, list[Span]] = {}
    columns = cache(step.column)
    while True:
        if rank not in spans:
            spans[rank] = step.spans((rank,))
        span = spans[rank][index]
        if span.end > span.start or not path:
            path.append(span)
        start = columns(rank).start[index]
        if start <= step.origin * (1 + _TOUCH):
            break
        found = _before(step, columns, rank, index)
        if found is None:
            late = _lagging(step, rank, span, start)
            found = None if late else _issued(step, columns, rank, index)
            path += late
        if found is None:
            break
        rank, index = found
    return path[::-1]


def _before(step: Step, columns: Columns, rank: int, index: int) -> tuple[int, int] | None:
    """The operation that `index` on `rank` had to wait for, if one ended just when it started."""
    start = columns(rank).start[index]
    op = step.cast.program(rank).ops[index]
    ranks = [rank]
    if op.operation == RECEIVE:
        ranks = [step.cast.pair(rank, op)[1][0]]
    elif op.kind == "collective":
        group = step.cast.peers(rank, op.group)
        program = step.cast.program(rank)
        ranks.append(step.last_to_come(group, (op.stream, op.group, program.ordinals[index])))
    for other in ranks:
        own = _counterpart(step, other, rank, index)
        ops, ends = step.cast.program(other).ops, columns(other).end
        behind = step.cast.program(other).behind[own]
        freed = {behind: ends[behind]} if behind >= 0 else {}
        freed |= {i: ends[i] + ops[own].delay for i in ops[own].after}
        for candidate in sorted(freed, key=lambda i: -freed[i]):
            if abs(freed[candidate] - start) <= _TOUCH * max(start, 1e-9):
                return other, candidate
    return None


def _issued(step: Step, columns: Columns, rank: int, index: int) -> tuple[int, int] | None:
    """The last operation that ended before the host had issued `index`, which started late."""
    program = step.cast.program(rank)
    if not program.host_matters:
        return None
    ends, start = columns(rank).end, columns(rank).start[index]
    known = [i for i in range(index) if ends[i] < start]
    return (rank, max(known, key=lambda i: (ends[i], i))) if known else None


def _counterpart(step: Step, other: int, rank: int, index: int) -> int:
    """The operation of `other` that is the same collective as `index` of `rank`."""
    mine, theirs = step.cast.program(rank), step.cast.program(other)
    op = mine.ops[index]
    return theirs.places.get((op.stream, op.group, mine.ordinals[index]), index)


def _lagging(step: Step, rank: int, span: Span, start: float) -> list[Span]:
    """The previous step's collective that kept the communicator busy until `start`."""
    if step.previous is None or span.stream == "compute":
        return []
    shift = step.origin - step.previous.origin
    for before in step.previous.spans((rank,)):
        end = before.end - shift
        if before.stream == span.stream and abs(end - span.start) <= _TOUCH * max(start, 1e-9):
            begin = max(before.start - shift, 0.0)
            name = f"{before.name} (previous step)"
            return [before._replace(name=name, ready=begin, start=begin, end=end)]
    return []
