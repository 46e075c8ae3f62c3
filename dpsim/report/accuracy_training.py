"""How good predictions of training runs are: tables, sentences and a scatter plot."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from dpsim.accuracy.training.columns import is_time
from dpsim.report import accuracy_view as shared
from dpsim.report.accuracy_view import Document, Dot, Titled, View
from dpsim.report.figures import GREY, blank, legend
from dpsim.report.text import between, bottleneck, brief, error, number, percent, signed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpsim.accuracy.scores import Scored
    from dpsim.accuracy.training.series import TrainingOutcome
    from dpsim.accuracy.training.table import TrainingRow
    from dpsim.accuracy.training.validate import ValidatedTraining

HEADS = ("n", "median", "90th", "bias", "skill", "inside", "± width", "linear", "α-β", "bare NCCL")
BASELINES = ("linear", "alpha_beta", "nccl_bare")
#: reasons that are printed
REASONS = 10
#: predicted rows up to which each is shown; more are a file's (predictions.csv)
FEW = 30
#: how far from linear scaling a picture's axes follow an interval
_FAR = 10.0


def view(found: ValidatedTraining) -> View:
    """`found` as people see it."""
    document = found.document
    name = f"{brief(document['table'], 60)}: {document['rows']:,} measured training runs"
    title = f"{name}, calibrate {document['calibrate']}"
    return View(
        title, [*_rows(found), *_tables(document)], _sentences(document),
        partial(make_figure, found), partial(_dots, found), "step time / linear scaling's",
    )  # fmt: skip


def _dots(found: ValidatedTraining) -> list[tuple[str, list[Dot]]]:
    """The scored rows beside linear scaling's, by strategy."""
    groups: dict[str, list[Dot]] = {}
    for one in found.outcomes:
        if one.scored and "linear" in one.scored.baselines:
            name = f"row {one.number}, {one.strategy}, {one.fabric}"
            groups.setdefault(one.strategy, []).append(Dot(name, *_relative(one.scored)))
    return sorted(groups.items())


def _rows(found: ValidatedTraining) -> Iterator[Titled]:
    """Row by row what was measured and predicted, where these are few."""
    shown = [one for one in found.outcomes if one.predicted and one.measured]
    if 0 < len(shown) <= FEW:
        heads = ("run", "ranks", "measured", "predicted", "90 % interval", "off", "limit")
        yield Titled("Row by row", heads, [_row(found, one) for one in shown])


def _row(found: ValidatedTraining, one: TrainingOutcome) -> list[str]:
    """The cells of one row, in its own unit; how far off it is as `bias` is: its step."""
    row = found.table.rows[one.number]
    assert one.predicted
    assert one.measured
    ends, off = "calibrated", ""
    if one.status != "calibrated":
        assert one.low is not None
        assert one.high is not None
        ends = between(number(one.low), number(one.high))
        times = row.get("value") is None or is_time(row.text("unit"))
        ratio = one.predicted / one.measured
        off = signed((ratio if times else 1.0 / ratio) - 1.0)
    unit = "s" if row.get("value") is None else row.text("unit")  # else step_time_s was measured
    return [
        brief(row.text("row_id") or row.text("series_id") or _unnamed(row), 40),
        f"{row.gpus:,}",
        f"{number(one.measured)} {unit}",
        number(one.predicted),
        ends,
        off,
        bottleneck(one.bottleneck) if one.bottleneck else "",
    ]


def _unnamed(row: TrainingRow) -> str:
    """What a row is where nobody gave it a name."""
    return ", ".join(filter(None, (f"line {row.line}", row.text("model"), row.text("accelerator"))))


def _tables(document: Document) -> Iterator[Titled]:
    """Sources, with all rows under them, and regimes."""
    for name, heading in (("sources", "source"), ("regimes", "regime")):
        groups = [*document[name].items()]
        if name == "sources" and len(groups) > 1:
            groups.append(("all", document["all"]))
        rows = [[brief(key, 40), *_cells(own)] for key, own in groups if own["n"]]
        if rows:
            yield Titled(f"By {heading}", (heading, *HEADS), rows)


def _cells(figures: Document) -> list[str]:
    """The cells of one group of rows, under `HEADS`."""
    return [
        f"{figures['n']:,}",
        error(figures["median_error"]),
        error(figures["p90_error"]),
        f"{figures['signed_bias'] * 100:+.1f} %",
        "" if figures["skill"] is None else f"{figures['skill']:.2f}",
        percent(figures["coverage"]),
        error(figures["median_half_width"]),
        *shared.baselines(figures, BASELINES),
    ]


def _sentences(document: Document) -> list[str]:
    """What the tables don't say: what became of the rows, the headline, the refusals."""
    lines = [
        f"Rows: {shared.counted(document)}. Error is |predicted / measured - 1|; off is "
        "predicted / measured - 1 of a row's step, bias that of steps in the median: + is "
        "predicted too slow."
    ]
    across = document["across_nodes"]
    if across["n"]:
        mean = error(across["mean_over_sources_of_median_error"])
        skill = across["skill"]
        lines.append(
            f"Across nodes, series of at least three counts: {across['n']:,} rows, median error "
            f"{mean} on average over sources"
            + (f", skill {skill:.2f} against linear scaling." if skill is not None else ".")
        )
    if document["uncalibrated"]["n"]:
        own = document["uncalibrated"]
        lines.append(
            f"Without calibration: {own['n']:,} rows, median error {error(own['median_error'])}."
        )
    return lines + shared.refusals(
        document["refusals"], REASONS, lambda reason: brief(reason, 250), document["refused_lines"]
    )


def make_figure(found: ValidatedTraining) -> Figure:
    """Measured against predicted values, each relative to linear scaling's, by strategy."""
    from matplotlib.ticker import LogLocator

    figure = blank(7.6, 7.2, "Measured and predicted training runs")
    axes = figure.subplots()
    axes.set(
        xscale="log", yscale="log", xlabel="measured step time / linear scaling's",
        ylabel="predicted step time / linear scaling's",
    )  # fmt: skip
    groups = _dots(found)
    few = sum(len(dots) for _, dots in groups) <= shared.CROWD
    for place, (name, dots) in enumerate(groups):
        pairs = [(dot.measured, dot.predicted) for dot in dots]
        shared.scatter(axes, place, name, pairs, markersize=4, alpha=0.6, gid=f"strategy-{place}")
        if few:
            shared.intervals(axes, place, dots)
    ends = [v for _, dots in groups for d in dots for v in (d.low, d.high)] if few else []
    every = [v for _, dots in groups for d in dots for v in (d.measured, d.predicted)]
    every += [value for value in ends if 1.0 / _FAR < value < _FAR] or [1.0]
    low, high = min(*every, 0.9) / 1.1, max(*every, 2.0) * 1.1  # at least two ticks
    axes.plot([low, high], [low, high], color=GREY, linewidth=1.2, zorder=1, label="equal")
    axes.axhline(1.0, color=GREY, linewidth=1.0, linestyle=":", zorder=1, label="linear scaling")
    shared.square(axes, low, high, lambda: LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
    axes.grid(True, which="major", alpha=0.3)
    legend(figure, axes, 4)
    return figure


def _relative(row: Scored) -> tuple[float, float, float, float]:
    """Measured and predicted step time, and the ends of its interval, over that of linear
    scaling."""
    measured, predicted = (1.0 / (1.0 - (lost or 0.0)) for lost in (row.lost, row.lost_predicted))
    ends = (row.low / row.predicted, row.high / row.predicted)
    low, high = sorted(1.0 / end if row.rate else end for end in ends)
    return measured, predicted, predicted * low, predicted * high
