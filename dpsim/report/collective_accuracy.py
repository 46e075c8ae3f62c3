"""How good predictions of collectives are: a table for the terminal and a scatter plot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpsim.report.accuracy_tables import error
from dpsim.report.figures import GREY, SERIES
from dpsim.report.tables import brief, clean, percent, shortened, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.console import Console

    from dpsim.accuracy.collectives.figures import CollectiveOutcome

#: fabrics that have a colour of their own; the rest share the last one
COLOURED = len(SERIES) - 1
#: all sizes, and the bands whose median errors have a column
ALL = "all"
BY_SIZE = ("< 32 KiB", "32 KiB-1 MiB", "1-64 MiB", ">= 64 MiB")
#: reasons that are printed
REASONS = 8


def print_collectives(document: dict[str, Any], console: Console) -> None:
    """Per fabric: error by band of sizes, bias, coverage, and beside them the baselines."""
    name, mode = brief(document["table"], 60), clean(document["calibrate"])
    title = f"{name}: {document['rows']:,} measured collectives, calibrate {mode}"
    console.print(title, style="bold", markup=False)
    figures = figures_table(document)
    if figures["rows"]:
        console.print(table(figures["headers"], figures["rows"], left=("fabric",)))
    _print(console, sentences(document))
    warnings = [f"Warning: {clean(text)}" for text in shortened(document["warnings"])]
    _print(console, warnings, "yellow")


def figures_table(document: dict[str, Any]) -> dict[str, Any]:
    """Title, headers and rows of the table of fabrics."""
    lines: dict[str, dict[str, Any]] = {}
    for line in document["figures"]:
        lines.setdefault(line["fabric"], {})[line["band"]] = line
    shown = {fabric: bands for fabric, bands in lines.items() if bands[ALL]["n"]}
    baselines = sorted({b for bands in shown.values() for b in bands[ALL]["baselines"]})
    heads = ("fabric", "rows", "error", *BY_SIZE, "90th", "bias", "inside", *map(_head, baselines))
    rows = [_cells(fabric, bands, baselines) for fabric, bands in shown.items()]
    return {"title": "By fabric", "headers": heads, "rows": rows}


def sentences(document: dict[str, Any]) -> list[str]:
    """What the table doesn't say: what became of the rows, and the refusals."""
    return [*_status(document), *_refusals(document)]


def _print(console: Console, lines: Sequence[str], style: str = "") -> None:
    for line in lines:
        console.print(line, style=style, markup=False, highlight=False)


def _head(baseline: str) -> str:
    return {"alpha_beta": "α-β", "nccl_bare": "bare NCCL", "log_log": "log-log"}.get(
        baseline, clean(baseline)
    )


def _cells(fabric: str, bands: dict[str, Any], baselines: Sequence[str]) -> list[str]:
    whole = bands[ALL]
    others = [whole["baselines"].get(name) for name in baselines]
    return [
        brief(fabric, 24),
        f"{whole['n']:,}",
        error(whole["median_error"]),
        *(error(bands.get(band, {}).get("median_error")) for band in BY_SIZE),
        error(whole["p90_error"]),
        f"{whole['signed_bias']:+.2f}",
        percent(whole["coverage"]),
        *(error(other["median_error"]) if other else "" for other in others),
    ]


def _status(document: dict[str, Any]) -> list[str]:
    counts = ", ".join(f"{n:,} {clean(status)}" for status, n in document["status"].items())
    overall, halves = document["overall"], document["by_half"]
    lines = [
        f"Rows: {counts}. Errors are medians of |predicted/measured - 1|; bias is that of "
        "ln(predicted/measured)."
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
            f"Of {flagged['predicted']:,} excluded rows {flagged['outside_interval']:,} are "
            "outside their intervals."
        )
    return lines


def _refusals(document: dict[str, Any]) -> list[str]:
    reasons = list(document["overall"]["refusals"].items())
    lines = [f"Refused, {n:,} rows: {clean(reason)}" for reason, n in reasons[:REASONS]]
    rest = len(reasons) - REASONS
    return [*lines, f"and {rest} more reasons, see validation.json"] if rest > 0 else lines


# -- the picture ----------------------------------------------------------------------------------


def make_figure(outcomes: Sequence[CollectiveOutcome], title: str = "") -> Figure:
    from matplotlib.figure import Figure

    shown = [o for o in outcomes if o.scored and o.predicted]
    figure = Figure(figsize=(7.6, 7.8), layout="constrained")
    axes = figure.subplots()
    axes.set(xscale="log", yscale="log", xlabel="measured [us]", ylabel="predicted [us]")
    figure.suptitle(brief(title, 72) or "Measured collectives", x=0.02, ha="left", fontsize=12)
    if not shown:
        axes.text(0.5, 0.5, "no row is predicted", transform=axes.transAxes, ha="center")
        return figure
    for place, (name, members) in enumerate(_by_fabric(shown)):
        axes.plot(
            [o.row.measured * 1e6 for o in members],
            [(o.predicted or 0.0) * 1e6 for o in members],
            linestyle="none",
            marker="os^Dv"[place % 5],
            markersize=3.2,
            alpha=0.55,
            markeredgewidth=0,
            color=SERIES[place],
            label=f"{name} ({len(members):,})",
            gid=f"fabric-{place}",
            rasterized=len(shown) > 5000,
        )
    _diagonals(axes, shown)
    _ticks(axes)
    figure.legend(loc="outside lower center", ncols=3, fontsize=9, markerscale=2.0)
    return figure


def _ticks(axes: Axes) -> None:
    """Powers of ten in plain figures on both axes."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axis.set_minor_locator(NullLocator())


def _by_fabric(shown: Sequence[CollectiveOutcome]) -> list[tuple[str, list[CollectiveOutcome]]]:
    """The fabrics with the most rows, then all others together."""
    groups: dict[str, list[CollectiveOutcome]] = {}
    for outcome in shown:
        groups.setdefault(outcome.row.fabric, []).append(outcome)
    ranked = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    first = [(brief(name, 24), members) for name, members in ranked[:COLOURED]]
    rest = [outcome for _, members in ranked[COLOURED:] for outcome in members]
    return [*first, (f"{len(ranked) - COLOURED} others", rest)] if rest else first


def _diagonals(axes: Axes, shown: Sequence[CollectiveOutcome]) -> None:
    """Perfect prediction, and twice too slow or too quick."""
    times = [t * 1e6 for o in shown for t in (o.row.measured, o.predicted or o.row.measured)]
    low, high = min(times) / 1.5, max(times) * 1.5
    for factor, dashes, label in ((1.0, (), "equal"), (2.0, (4, 3), "factor 2"), (0.5, (4, 3), "")):
        axes.plot(
            [low, high],
            [low * factor, high * factor],
            color=GREY,
            linewidth=1.2,
            linestyle=(0, dashes) if dashes else "-",
            label=label or None,
            zorder=1,
        )
    axes.set(xlim=(low, high), ylim=(low, high))
