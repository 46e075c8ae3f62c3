"""How good predictions of collectives are: a table, sentences and a scatter plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from dpsim.report import accuracy_view as shared
from dpsim.report.accuracy_view import Document, Dot, Titled, View
from dpsim.report.figures import GREY, SERIES, blank, legend
from dpsim.report.text import brief, clean, error, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dpsim.accuracy.collectives.figures import CollectiveOutcome
    from dpsim.accuracy.collectives.validate import ValidatedCollectives

#: fabrics that have a colour of their own; the rest share the last one
COLOURED = len(SERIES) - 1
#: all sizes, and the bands whose median errors have a column
ALL = "all"
BY_SIZE = ("< 32 KiB", "32 KiB-1 MiB", "1-64 MiB", ">= 64 MiB")
#: reasons that are printed
REASONS = 8


def view(found: ValidatedCollectives) -> View:
    """`found` as people see it."""
    document = found.document
    name, mode = brief(document["table"], 60), clean(document["calibrate"])
    title = f"{name}: {document['rows']:,} measured collectives, calibrate {mode}"
    reasons = shared.refusals(document["overall"]["refusals"], REASONS, clean)
    figure = partial(make_figure, found.outcomes, document["table"])
    dots = partial(_dots, found.outcomes)
    return View(title, [_table(document)], [*_status(document), *reasons], figure, dots, "[us]")


def _dots(outcomes: Sequence[CollectiveOutcome]) -> list[tuple[str, list[Dot]]]:
    """The scored rows by fabric; times in us."""
    shown = [o for o in outcomes if o.scored and o.predicted]
    return [
        (name, [Dot(_said(one), *_times(one), *_ends(one)) for one in members])
        for name, members in (_by_fabric(shown) if shown else [])
    ]


def _said(one: CollectiveOutcome) -> str:
    row = one.row
    return f"line {row.line}: {row.operation} of {row.size:,} B, {row.series}"


def _table(document: Document) -> Titled:
    """Per fabric: error by band of sizes, bias, coverage, and beside them the baselines."""
    lines: dict[str, dict[str, Document]] = {}
    for line in document["figures"]:
        lines.setdefault(line["fabric"], {})[line["band"]] = line
    shown = {fabric: bands for fabric, bands in lines.items() if bands[ALL]["n"]}
    others = sorted({b for bands in shown.values() for b in bands[ALL]["baselines"]})
    heads = ("fabric", "rows", "error", *BY_SIZE, "90th", "bias", "inside", *map(_head, others))
    rows = [_cells(fabric, bands, others) for fabric, bands in shown.items()]
    return Titled("By fabric", heads, rows)


def _head(baseline: str) -> str:
    return {"alpha_beta": "α-β", "nccl_bare": "bare NCCL", "log_log": "log-log"}.get(
        baseline, clean(baseline)
    )


def _cells(fabric: str, bands: Mapping[str, Document], others: Sequence[str]) -> list[str]:
    whole = bands[ALL]
    return [
        brief(fabric, 24),
        f"{whole['n']:,}",
        error(whole["median_error"]),
        *(error(bands.get(band, {}).get("median_error")) for band in BY_SIZE),
        error(whole["p90_error"]),
        f"{whole['signed_bias']:+.2f}",
        percent(whole["coverage"]),
        *shared.baselines(whole, others),
    ]


def _status(document: Document) -> list[str]:
    overall, halves = document["overall"], document["by_half"]
    lines = [
        f"Rows: {shared.counted(document)}. Errors are medians of |predicted/measured - 1|; bias "
        "is that of ln(predicted/measured)."
    ]
    if overall["n"]:
        inside = ", ".join(
            f"{percent(halves[name]['coverage'])} of {halves[name]['n']:,} {words}"
            for name, words in (("fit", "that widths may be fitted on"), ("held_out", "held out"))
            if halves.get(name, {}).get("n")
        )
        lines.append(f"Inside the {percent(document['coverage_wanted'])} interval: {inside}.")
    flagged = document["excluded"]
    if flagged["predicted"]:
        lines.append(
            f"Of {flagged['predicted']:,} rows marked pathological "
            f"{flagged['outside_interval']:,} are outside their intervals."
        )
    return lines


# -- the picture ----------------------------------------------------------------------------------


def make_figure(outcomes: Sequence[CollectiveOutcome], title: str = "") -> Figure:
    """Measured against predicted times, by fabric."""
    from matplotlib.ticker import LogLocator

    shown = [o for o in outcomes if o.scored and o.predicted]
    figure = blank(7.6, 7.8, brief(title, 72) or "Measured collectives")
    axes = figure.subplots()
    axes.set(xscale="log", yscale="log", xlabel="measured [us]", ylabel="predicted [us]")
    if not shown:
        axes.text(0.5, 0.5, "no row is predicted", transform=axes.transAxes, ha="center")
        return figure
    for place, (name, dots) in enumerate(_dots(outcomes)):
        shared.scatter(
            axes, place, name, [(dot.measured, dot.predicted) for dot in dots], markersize=3.2,
            alpha=0.55, gid=f"fabric-{place}", rasterized=len(shown) > 5000,
        )  # fmt: skip
        if len(shown) <= shared.CROWD:
            shared.intervals(axes, place, dots)
    times = [time for outcome in shown for time in _times(outcome)]
    low, high = min(times) / 1.5, max(times) * 1.5
    _diagonals(axes, low, high)
    shared.square(axes, low, high, lambda: LogLocator(numticks=12))
    legend(figure, axes, markerscale=2.0)
    return figure


def _times(outcome: CollectiveOutcome) -> tuple[float, float]:
    """Measured and predicted time [us]."""
    return outcome.row.measured * 1e6, (outcome.predicted or 0.0) * 1e6


def _ends(outcome: CollectiveOutcome) -> tuple[float, float]:
    """The ends of its 90 % interval [us]."""
    value = outcome.predicted or 0.0
    return (outcome.low or value) * 1e6, (outcome.high or value) * 1e6


def _by_fabric(shown: Sequence[CollectiveOutcome]) -> list[tuple[str, list[CollectiveOutcome]]]:
    """The fabrics with the most rows, then all others together."""
    groups: dict[str, list[CollectiveOutcome]] = {}
    for outcome in shown:
        groups.setdefault(outcome.row.fabric, []).append(outcome)
    ranked = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    first = [(brief(name, 24), members) for name, members in ranked[:COLOURED]]
    rest = [outcome for _, members in ranked[COLOURED:] for outcome in members]
    return [*first, (f"{len(ranked) - COLOURED} others", rest)] if rest else first


def _diagonals(axes: Axes, low: float, high: float) -> None:
    """Perfect prediction, and twice too slow or too quick."""
    for factor, dashes, label in ((1.0, (), "equal"), (2.0, (4, 3), "factor 2"), (0.5, (4, 3), "")):
        axes.plot(
            [low, high], [low * factor, high * factor], color=GREY, linewidth=1.2, zorder=1,
            linestyle=(0, dashes) if dashes else "-", label=label or None,
        )  # fmt: skip
