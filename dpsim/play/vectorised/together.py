"""Where the time of many steps went: their critical ranks are played again all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dpsim.compile.program import Cast
from dpsim.compile.timeline import Column, Split, split_of
from dpsim.play.vectorised.compiled import Compiled, Playable
from dpsim.play.vectorised.position import Factors
from dpsim.play.vectorised.role import Role, Span, Start
from dpsim.play.vectorised.slowing import EVERYONE, Slowing, Value, latest
from dpsim.play.vectorised.streams import Streams

#: steps from which they are played again together: arrays of fewer cost as much as numbers
ENOUGH = 6


class CriticalRank(NamedTuple):
    """The critical rank of a step, and all that tells what it did.  Times are from when it began.

    cast, program  what the step played, and what this rank did of it
    origin         when the step before had ended on the slowest rank [s]
    start          where the rank was when the step began: numbers
    spans          when its operations on communicators ran, by their place
    before         when collectives of the step before ran that were not over by then [s]
    """

    cast: Cast
    program: Compiled
    origin: float
    start: Start
    spans: Mapping[int, Span]
    before: list[tuple[float, float]]


def critical(
    cast: Cast, program: Compiled, origin: float, start: Start, spans: Mapping[int, Span],
    before: Sequence[Span],
) -> CriticalRank:  # fmt: skip
    """The critical rank of a step whose times are from the run's begin.

    Steps are alike from where they begin on, and only there: what their ranks are past is forgotten
    for all of them together.
    """
    zero = start.slowing.time(start.work)
    work, slowing = start.slowing.since(zero, start.work)
    used = program.program.host_matters or latest(start.host)
    host = start.host - zero if used else 0.0
    return CriticalRank(
        cast,
        program,
        origin - latest(zero),
        Start(work, start.factors, slowing, host, start.streams, start.late),
        {place: (begin - zero, end - zero) for place, (begin, end) in spans.items()},
        [(latest(begin - zero), latest(end - zero)) for begin, end in before],
    )


def splits(steps: Sequence[CriticalRank]) -> list[Split]:
    """The splits of several steps, in order."""
    alike: dict[tuple[int, int], list[int]] = {}
    for place, step in enumerate(steps):
        alike.setdefault((id(step.cast), id(step.program)), []).append(place)
    found: dict[int, Split] = {}
    for places in alike.values():
        here = [steps[place] for place in places]
        parts = [here] if len(here) >= ENOUGH else [[one] for one in here]
        columns = (column for part in parts for column in _columns(part))
        for place, step, column in zip(places, here, columns, strict=True):
            program = step.program.program
            found[place] = split_of(program, column, step.origin, step.before)
    return [found[place] for place in range(len(steps))]


def _columns(steps: Sequence[CriticalRank]) -> list[Column]:
    """When the operations of these critical ranks ran, all of which have the same program."""
    first = steps[0]
    noted: dict[int, tuple[Value, Value, Value]] = {}

    def note(task: Playable, *times: Value) -> None:
        noted[task.number] = times  # type: ignore[assignment]

    start, width = _stacked([step.start for step in steps]), first.start.streams.width
    role = Role.again(start, first.program, width, EVERYONE, note)
    spans = {
        place: _pair([step.spans[place] for step in steps]) for place in first.spans
    }  # fmt: skip
    role.replay(spans, EVERYONE, len(first.program.tasks))
    if len(steps) == 1:
        in_order = (tuple(map(latest, noted[index])) for index in range(len(noted)))
        return [Column(*zip(*in_order, strict=True))]
    size = len(steps)
    times = np.array([
        [np.broadcast_to(noted[index][which], size) for index in range(len(noted))]
        for which in range(3)
    ])  # fmt: skip
    return [Column(*times[:, :, k].tolist()) for k in range(size)]


def _pair(spans: Sequence[Span]) -> Span:
    begins, ends = zip(*spans, strict=True)
    return _one_or_all(begins), _one_or_all(ends)


def _one_or_all(values: Sequence[Value]) -> Value:
    """These numbers as an array; a number where they are all the same."""
    first = values[0]
    return first if all(value == first for value in values) else np.array(values)


def _stacked(starts: Sequence[Start]) -> Start:
    """Where single ranks of several steps are, as where the ranks of one role are; when streams are
    free tells when a rank comes to a collective, not when that runs."""
    late = {index for start in starts for index in start.late}
    return Start(
        _one_or_all([start.work for start in starts]),
        Factors(np.array([start.factors.low for start in starts])),
        Slowing.stacked([start.slowing for start in starts], _one_or_all),
        _one_or_all([start.host for start in starts]),
        Streams(starts[0].streams.width),
        {index: _one_or_all([s.late.get(index, 0.0) for s in starts]) for index in late},
    )
