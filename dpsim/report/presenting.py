"""Answers as pandas tables, and as pictures on axes that somebody else has made.

What an answer becomes is chosen by its class.  The style of axes and their figure is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from dpsim.accuracy.collectives.validate import ValidatedCollectives
from dpsim.accuracy.training.validate import ValidatedTraining
from dpsim.checks.collective import CollectiveAnswer
from dpsim.core.presented import Presented
from dpsim.core.record import Refused
from dpsim.core.refusals import brief
from dpsim.measurements.calibration.gathering import Gathered
from dpsim.planning.comparing import Compared
from dpsim.planning.planned import Planned
from dpsim.planning.swept import Swept
from dpsim.predict.document import to_json
from dpsim.predict.explanation import Explanation
from dpsim.predict.prediction import Prediction
from dpsim.report import collective, compare, on_axes, plan_picture, serving, sweep_picture
from dpsim.report.points import flat, flat_grid
from dpsim.serving.answer import ServingAnswer

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Rows = Sequence[Mapping[str, Any]]


def frame(answer: Presented) -> pd.DataFrame:
    """`answer` as a table."""
    import pandas as pd

    return pd.DataFrame(list(rows(answer)))


def draw(answer: Presented, ax: Axes | None, field: str = "") -> Axes:
    """`answer` on `ax`, or on new axes; returns them."""
    if not isinstance(field, str):
        raise Refused(f"plot: field {brief(field)} is no name of a number, as 'step_time_s'")
    if ax is not None and not hasattr(ax, "plot"):
        raise Refused(f"plot: ax {brief(ax)} is no axes of matplotlib's, as plt.subplots()[1] is")
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots()
    picture(answer, ax, field)
    return ax


@singledispatch
def rows(answer: Any) -> Rows:
    """The rows of the table of `answer`."""
    raise Refused(f"there is no table of a {type(answer).__name__}")


@singledispatch
def picture(answer: Any, ax: Axes, field: str) -> None:
    """Draw `field` of `answer`."""
    raise Refused(f"there is no picture of a {type(answer).__name__}")


# -- a scenario's points --------------------------------------------------------------------------


@rows.register(Prediction)
def _(answer: Prediction) -> Rows:
    return [flat(point) for point in answer.document["points"]]


@picture.register(Prediction)
def _(answer: Prediction, ax: Axes, field: str) -> None:
    on_axes.points(ax, answer.answer, field)


@rows.register(Explanation)
def _(answer: Explanation) -> Rows:
    """The operations of every point's last step."""
    return [
        {"point": place, "ranks": one.point.ranks, **to_json(operation)}
        for place, one in enumerate(answer.explained)
        for operation in one.operations
    ]


@picture.register(Explanation)
def _(answer: Explanation, ax: Axes, field: str) -> None:
    """Where the time of each point goes."""
    _one_picture(field)
    on_axes.parts(ax, [one.point for one in answer.explained])


# -- many points ----------------------------------------------------------------------------------


@rows.register(Swept)
def _(answer: Swept) -> Rows:
    return flat_grid(answer.document["points"])


@picture.register(Swept)
def _(answer: Swept, ax: Axes, field: str) -> None:
    sweep_picture.draw_on(ax, answer.answer, field or "step_time_s")


@rows.register(Planned)
def _(answer: Planned) -> Rows:
    return flat_grid(answer.document["points"])


@picture.register(Planned)
def _(answer: Planned, ax: Axes, field: str) -> None:
    _one_picture(field)
    if not plan_picture.plotted(answer.document):
        raise Refused("plot: this question has no picture; to_pandas has what was tried")
    plan_picture.draw_on(ax, answer.document)
    ax.legend()


@rows.register(Compared)
def _(answer: Compared) -> Rows:
    return [
        {key: value for key, value in one.items() if key != "jobs"}
        for one in answer.document["candidates"]
    ]


@picture.register(Compared)
def _(answer: Compared, ax: Axes, field: str) -> None:
    _one_picture(field)
    compare.draw_on(ax, answer.document)


@rows.register(ServingAnswer)
def _(answer: ServingAnswer) -> Rows:
    return serving.rows(answer)


@picture.register(ServingAnswer)
def _(answer: ServingAnswer, ax: Axes, field: str) -> None:
    _one_picture(field)
    serving.draw_on(ax, answer)
    ax.legend()


# -- measurements ---------------------------------------------------------------------------------


@rows.register(CollectiveAnswer)
def _(answer: CollectiveAnswer) -> Rows:
    return [
        {"nodes": group["nodes"], "ranks": group["ranks"], **line}
        for group in answer.document["groups"]
        for line in group["lines"]
    ]


@picture.register(CollectiveAnswer)
def _(answer: CollectiveAnswer, ax: Axes, field: str) -> None:
    _one_picture(field)
    collective.draw_on(ax, answer.groups, answer.setup)
    ax.legend()


@rows.register(Gathered)
def _(answer: Gathered) -> Rows:
    return [
        {"operation": curve.operation, "ranks": curve.ranks, "nodes": curve.nodes,
         "size_bytes": size, "time_s": seconds, "spread_s": spread}
        for curve in answer.calibration.curves
        for size, seconds, spread in curve.points
    ]  # fmt: skip


@picture.register(Gathered)
def _(answer: Gathered, ax: Axes, field: str) -> None:
    _one_picture(field)
    if not answer.calibration.curves:
        raise Refused("plot: no curves of collectives were measured")
    on_axes.curves_of(ax, answer.calibration.curves)


@rows.register(ValidatedTraining)
@rows.register(ValidatedCollectives)
def _(answer: ValidatedTraining | ValidatedCollectives) -> Rows:
    return [on_axes.as_numbers(row) for row in answer.predictions()]


@picture.register(ValidatedTraining)
@picture.register(ValidatedCollectives)
def _(answer: ValidatedTraining | ValidatedCollectives, ax: Axes, field: str) -> None:
    _one_picture(field)
    on_axes.against(ax, rows(answer))


def _one_picture(field: str) -> None:
    """Refuse a `field` where there is but one picture."""
    if field:
        raise Refused(f"plot: {field!r}: this answer has one picture; leave the field out")
