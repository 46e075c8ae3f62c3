"""Files of a validation: every row's prediction, the figures, a scatter plot and a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsim.report.bundle import Bundle, write_bundle
from dpsim.report.html import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpsim.accuracy.collectives.validate import ValidatedCollectives
    from dpsim.accuracy.training.validate import ValidatedTraining

    Found = ValidatedTraining | ValidatedCollectives

FILES = ("predictions.csv", "validation.json", "scatter.png", "scatter.svg", "index.html")


def write_validation(found: Found, out: Path) -> None:
    """Write `FILES` into folder `out`; none of them is ever there half-written.

    Raises Refused if something that is no folder (or no file) is in the way.
    """
    write_bundle(out, FILES, lambda bundle: _fill(bundle, found))


def _fill(bundle: Bundle, found: Found) -> None:
    bundle.csv("predictions.csv", found.predictions())
    bundle.json("validation.json", found.document)
    svg = bundle.figure("scatter.png", "scatter.svg", lambda: _figure(found))
    bundle.text("index.html", _page(found, svg))


def _figure(found: Found) -> Figure:
    if found.document.get("kind") == "training":
        return training_figure(found)  # type: ignore[arg-type]
    from dpsim.report.collective_accuracy import make_figure

    return make_figure(found.outcomes, found.document["table"])  # type: ignore[arg-type]


def training_figure(found: ValidatedTraining) -> Figure:
    """Measured against predicted values, each relative to linear scaling's, by strategy."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    from dpsim.report.figures import GREY, SERIES

    shown = [o for o in found.outcomes if o.scored and "linear" in o.scored.baselines]
    figure = Figure(figsize=(7.6, 7.2), layout="constrained")
    axes = figure.subplots()
    axes.set(
        xscale="log", yscale="log", xlabel="measured step time / linear scaling's",
        ylabel="predicted step time / linear scaling's",
    )  # fmt: skip
    figure.suptitle("Measured and predicted training runs", x=0.02, ha="left", fontsize=12)
    points: dict[str, list[tuple[float, float]]] = {}
    for outcome in shown:
        points.setdefault(outcome.strategy, []).append(_relative(outcome))
    for place, (name, pairs) in enumerate(sorted(points.items())):
        axes.plot(
            *zip(*pairs, strict=True), linestyle="none", marker="os^Dv"[place % 5],
            markersize=4, alpha=0.6, markeredgewidth=0, color=SERIES[place % len(SERIES)],
            label=f"{name} ({len(pairs):,})", gid=f"strategy-{place}",
        )  # fmt: skip
    every = [value for pairs in points.values() for pair in pairs for value in pair] or [1.0]
    low, high = min(*every, 0.9) / 1.1, max(*every, 2.0) * 1.1  # at least two ticks
    axes.plot([low, high], [low, high], color=GREY, linewidth=1.2, zorder=1, label="equal")
    axes.axhline(1.0, color=GREY, linewidth=1.0, linestyle=":", zorder=1, label="linear scaling")
    axes.set(xlim=(low, high), ylim=(low, high))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axis.set_minor_locator(NullLocator())
    axes.grid(True, which="major", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=4, fontsize=9)
    return figure


def _relative(outcome: Any) -> tuple[float, float]:
    """Measured and predicted step time over that of linear scaling."""
    row = outcome.scored
    measured = 1.0 / (1.0 - row.lost)
    return measured, 1.0 / (1.0 - row.lost_predicted)


def _page(found: Found, svg: str) -> str:
    title = f"{found.document['table']}: measured and predicted"
    return render(
        "accuracy.html.j2",
        svg,
        title,
        title=title,
        tables=_tables(found.document),
        sentences=_sentences(found.document),
        warnings=found.document["warnings"],
        version=found.document["dpsim_version"],
    )


def _tables(document: dict[str, Any]) -> list[dict[str, Any]]:
    from dpsim.report import accuracy_tables as training
    from dpsim.report import collective_accuracy as collectives

    if document.get("kind") != "training":
        return [collectives.figures_table(document)]
    return [
        {"title": title, "headers": [head, *training.HEADS], "rows": rows}
        for title, head, name in (
            ("By source", "source", "sources"), ("By regime", "regime", "regimes")
        )
        if (rows := training.training_rows(document, name))
    ]  # fmt: skip


def _sentences(document: dict[str, Any]) -> list[str]:
    from dpsim.report import accuracy_tables as training
    from dpsim.report import collective_accuracy as collectives

    if document.get("kind") == "training":
        return list(training.sentences(document))
    return collectives.sentences(document)
