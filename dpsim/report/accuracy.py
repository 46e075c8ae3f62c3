"""What `dpsim validate` prints and writes: rows, tables of errors, a scatter plot, a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dpsim.report.accuracy_view import View
from dpsim.report.bundle import Bundle, write_bundle
from dpsim.report.table import put, say, warn

if TYPE_CHECKING:
    from rich.console import Console

    from dpsim.accuracy.collectives.validate import ValidatedCollectives
    from dpsim.accuracy.training.validate import ValidatedTraining

    Found = ValidatedTraining | ValidatedCollectives

FILES = ("predictions.csv", "validation.json", "scatter.png", "scatter.svg", "index.html")


def view_of(found: Found) -> View:
    """`found` as people see it."""
    from dpsim.accuracy.training.validate import ValidatedTraining
    from dpsim.report import accuracy_collectives, accuracy_training

    if isinstance(found, ValidatedTraining):
        return accuracy_training.view(found)
    return accuracy_collectives.view(found)


def print_validation(found: Found, console: Console, out: Path | None) -> None:
    """The error tables of `found`, and where its files are."""
    view = view_of(found)
    say(console, [view.title], "bold")
    for one in view.tables:
        if one.rows:
            put(console, (one.headers, one.rows), one.headers[:1])
    say(console, view.sentences)
    warn(console, found.document["warnings"])
    if out is not None:
        say(console, [f"Written to {out}: {', '.join(FILES)}"])


def write_validation(found: Found, out: Path) -> None:
    """Write `FILES` of `found` into folder `out`."""
    from dpsim.report.pages.accuracy import page

    view, document = view_of(found), found.document

    def fill(bundle: Bundle) -> None:
        bundle.csv("predictions.csv", found.predictions())
        bundle.json("validation.json", document)
        bundle.figure("scatter.png", "scatter.svg", view.figure)
        bundle.text("index.html", page(view, document))

    write_bundle(out, fill)
