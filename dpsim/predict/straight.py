"""Long steps of pipelines: straight lines of their number of micro-batches.

Once a pipeline is filled, every round of micro-batches takes the same time, so a step's time is a
straight line of their number (max-plus systems become periodic; Baccelli et al., Synchronization
and Linearity, 1992, section 3.7).  Two short steps give the line, and a third one shows whether it
is one already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dpsim.cases.case import Case
from dpsim.cases.variant import with_micro_batches
from dpsim.core.record import Refused

#: micro-batches of three short steps: of two that a line goes through, and of one to check it
Ends = tuple[int, int, int]
#: a case -> what lies on a line, for each of some lanes
Times = Callable[[Case], Sequence[float]]

#: how far the third may lie off the line, relatively, where it stands for a step played in full:
#: what rounding makes of thousands of operations
EXACT = 1e-12


def line(ends: Ends, values: Sequence[float], count: int) -> float:
    """The value at `count` of the line through `values` at the first two `ends`."""
    slope = (values[1] - values[0]) / (ends[1] - ends[0])
    return values[0] + slope * (count - ends[0])


def filled(case: Case) -> Ends | None:
    """Micro-batches of three short steps of `case` that fill its pipeline; None where its own step
    is hardly longer, or steps are not all alike."""
    if case.mesh.plain or case.scenario.variability.varies or case.scenario.iteration != "steady":
        return None
    ends = filling_ends(case)
    return ends if case.batch.accumulation > 2 * ends[1] else None


def filling_ends(case: Case, times: int = 1) -> Ends:
    """Micro-batches of the shortest steps that fill the pipeline of `case` so many times, in whole
    rounds."""
    schedule, stages = case.programs.layout.schedule, case.mesh.pipeline
    least, step = times * max(stages, 4, schedule.filling(stages)), schedule.round(stages)
    if step == 1:
        return least, 2 * least, least + least // 2
    least = -(-least // step) * step
    return least, least + step, least + 2 * step


def along(case: Case, times: Times) -> list[float] | None:
    """`times` of `case`, a long step, by the lines through those of short ones; None where it is
    not long, or where they are no lines to within rounding."""
    ends = filled(case)
    if ends is None:
        return None
    try:
        one, other, third = (times(with_micro_batches(case, count)) for count in ends)
    except Refused:  # a schedule that does not take so many micro-batches
        return None
    lanes = list(zip(one, other, strict=True))
    checked = zip(lanes, third, strict=True)
    if not all(abs(line(ends, pair, ends[2]) - value) <= EXACT * value for pair, value in checked):
        return None
    return [line(ends, pair, case.batch.accumulation) for pair in lanes]


def line_through(case: Case, time: Callable[[Case], float]) -> float:
    """The step time of `case`, a step that is long (`filled`), by the line through two short ones,
    unchecked [s]."""
    ends = filled(case)
    assert ends is not None
    values = [time(with_micro_batches(case, count)) for count in ends[:2]]
    return line(ends, values, case.batch.accumulation)
