"""How good predictions of training runs are: tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsim.report.tables import brief, clean, percent, shortened, table

if TYPE_CHECKING:
    from rich.console import Console

    from dpsim.accuracy.collectives.validate import ValidatedCollectives
    from dpsim.accuracy.training.validate import ValidatedTraining

HEADS = ("n", "median", "90th", "bias", "skill", "inside", "± width", "linear", "α-β", "bare NCCL")
BASELINES = ("linear", "alpha_beta", "nccl_bare")
#: reasons that are printed
REASONS = 10


def print_validation(
    found: ValidatedTraining | ValidatedCollectives, console: Console, out: Path | None
) -> None:
    """The error tables of `found`, and where its files are."""
    if found.document.get("kind") == "training":
        _print_training(found.document, console)
    else:
        from dpsim.report.collective_accuracy import print_collectives

        print_collectives(found.document, console)
    if out is not None:
        from dpsim.report.accuracy_files import FILES

        console.print(f"Written to {out}: {', '.join(FILES)}", markup=False, highlight=False)


def _print_training(document: dict[str, Any], console: Console) -> None:
    title = f"{brief(document['table'], 60)}: {document['rows']:,} measured training runs"
    console.print(f"{title}, calibrate {document['calibrate']}", style="bold", markup=False)
    for name, heading in (("sources", "source"), ("regimes", "regime")):
        rows = training_rows(document, name)
        if rows:
            console.print(table((heading, *HEADS), rows, left=(heading,)))
    for line in sentences(document):
        console.print(line, markup=False, highlight=False)
    for text in shortened(document["warnings"]):
        console.print(f"Warning: {clean(text)}", style="yellow", markup=False, highlight=False)


def training_rows(document: dict[str, Any], name: str) -> list[list[str]]:
    """Rows of the table of `name` (sources or regimes), and of all rows under the sources."""
    groups = [(key, figures) for key, figures in document[name].items() if figures["n"]]
    if name == "sources" and document["all"]["n"]:
        groups.append(("all", document["all"]))
    return [[brief(key, 40), *figure_cells(figures)] for key, figures in groups]


def figure_cells(figures: dict[str, Any]) -> list[str]:
    """The cells of one group of rows, under `HEADS`."""
    others = (figures["baselines"].get(name) for name in BASELINES)
    return [
        f"{figures['n']:,}",
        error(figures["median_error"]),
        error(figures["p90_error"]),
        f"{figures['signed_bias'] * 100:+.1f} %",
        "" if figures["skill"] is None else f"{figures['skill']:.2f}",
        percent(figures["coverage"]),
        error(figures["median_half_width"]),
        *(error(other["median_error"]) if other else "" for other in others),
    ]


def error(share: float | None) -> str:
    """Two figures of an error below 10 %, whole percents above."""
    if share is None:
        return ""
    return f"{share * 100:.1f} %" if share < 0.0995 else f"{share * 100:,.0f} %"


def sentences(document: dict[str, Any]) -> Sequence[str]:
    """What the tables don't say: what became of the rows, the headline, the refusals."""
    counts = ", ".join(f"{n:,} {clean(status)}" for status, n in document["status"].items())
    lines = [f"Rows: {counts}. Error is |predicted / measured - 1|; bias its signed median."]
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
    reasons = list(document["refusals"].items())
    lines += [f"Refused, {n:,} rows: {brief(reason, 150)}" for reason, n in reasons[:REASONS]]
    if len(reasons) > REASONS:
        lines.append(f"and {len(reasons) - REASONS} more reasons, see validation.json")
    return lines
