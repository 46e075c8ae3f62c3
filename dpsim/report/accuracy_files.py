"""Files of a validation: every row's prediction, the figures, a scatter plot and a page."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsim.report import canonical_json
from dpsim.report.files import neutral, write_into

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

    from dpsim.accuracy.collectives.validate import ValidatedCollectives
    from dpsim.accuracy.training.validate import ValidatedTraining

    Found = ValidatedTraining | ValidatedCollectives

FILES = ("predictions.csv", "validation.json", "scatter.png", "scatter.svg", "index.html")


def write_validation(found: Found, out: Path) -> None:
    """Write `FILES` into folder `out`; none of them is ever there half-written.

    Raises Refused if something that is no folder (or no file) is in the way.
    """
    write_into(out, FILES, lambda folder: _render(found, folder))


def _render(found: Found, folder: Path) -> None:
    write_predictions(found.predictions(), folder / "predictions.csv")
    text = canonical_json(found.document) + "\n"
    (folder / "validation.json").write_text(text, encoding="utf-8", newline="\n")
    _draw(found, folder / "scatter.png", folder / "scatter.svg")
    svg = (folder / "scatter.svg").read_text(encoding="utf-8")
    (folder / "index.html").write_text(_page(found, svg), encoding="utf-8", newline="\n")


def write_predictions(rows: list[dict[str, Any]], path: Path) -> None:
    """The rows as CSV; text that a spreadsheet would run is neutralised."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([neutral(name) for name in rows[0]])
        writer.writerows([neutral(value) for value in row.values()] for row in rows)


def _draw(found: Found, png: Path, svg: Path) -> None:
    if found.document.get("kind") == "training":
        from dpsim.report.curve import save, styled

        with styled():
            save(training_figure(found), png, svg)  # type: ignore[arg-type]
    else:
        from dpsim.report.collective_accuracy import draw_collectives

        draw_collectives(found.outcomes, png, svg, found.document["table"])  # type: ignore[arg-type]


def training_figure(found: ValidatedTraining) -> Figure:
    """Measured against predicted values, each relative to linear scaling's, by strategy."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    from dpsim.report.curve import GREY, SERIES

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
    from importlib import resources

    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    from dpsim.report.page import inline, style

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    source = (resources.files("dpsim.report") / "accuracy.html.j2").read_text(encoding="utf-8")
    title = f"{found.document['table']}: measured and predicted"
    picture: Markup = Markup(inline(svg, title))
    return environment.from_string(source).render(
        title=title,
        style=Markup(style()),
        svg=picture,
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
