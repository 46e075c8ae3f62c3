"""What `dpsim run` prints and writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsim.predict.answer import Answer
from dpsim.predict.point import Point
from dpsim.report.bundle import Bundle, write_bundle
from dpsim.report.pages import run as pages
from dpsim.report.points import LEFT, flat, measured_columns, run_columns
from dpsim.report.sentences import headline, memory_sentences, sentences, titles
from dpsim.report.table import put, say, warn
from dpsim.report.text import brief, clean

if TYPE_CHECKING:
    from rich.console import Console

    from dpsim.predict.prediction import Prediction

#: what `dpsim run -o` writes
FILES = ("prediction.json", "points.csv", "curve.png", "curve.svg", "index.html")
#: what it writes too, where the scenario has failures
LIFE = ("life.png", "life.svg")
#: what is left out first where a terminal is too narrow; --json and points.csv have all of it
_DROPPED = ("nodes", "MFU", "exposed", "bubble", "speed-up", "memory", "90 % interval", "fits",
            "eff.", "bottleneck")  # fmt: skip


def print_run(prediction: Prediction, console: Console, out: Path | None) -> None:
    """The answer of `prediction`, and where the files are."""
    from dpsim.predict.advice import advised

    print_answer(advised(prediction), console)
    if out is not None:
        more = LIFE if has_life(prediction) else ()
        say(console, [f"Written to {clean(out)}: {', '.join((*FILES, *more))}"])


def print_answer(answer: Answer, console: Console) -> None:
    """A table, then why, how sure, and whether it fits."""
    say(console, [brief(answer.name, 240)], "bold")
    say(console, titles(answer))
    put(console, run_columns(answer.points), LEFT, _DROPPED)
    if answer.measured:
        put(console, measured_columns(answer))
    say(console, [headline(answer), *sentences(answer), *memory_sentences(answer)])
    warn(console, answer.warnings)


def write_all(prediction: Prediction, out: Path) -> None:
    """Write `FILES` of `prediction` into folder `out`; see `write_bundle`."""

    def fill(bundle: Bundle) -> None:
        from dpsim.predict.advice import with_advice
        from dpsim.report import life_picture
        from dpsim.report.curve import make_figure

        answer = prediction.answer
        bundle.json("prediction.json", with_advice(prediction))
        bundle.csv("points.csv", _rows(answer))
        bundle.figure("curve.png", "curve.svg", lambda: make_figure(answer))
        if has_life(prediction):
            bundle.figure(*LIFE, lambda: life_picture.make_figure(prediction))
        bundle.text("index.html", pages.page(prediction))

    write_bundle(out, fill)


def has_life(prediction: Prediction) -> bool:
    """Whether any point was predicted with failures."""
    return any(isinstance(point, Point) and point.life for point in prediction.points)


def _rows(answer: Answer) -> list[dict[str, Any]]:
    """The points as a table, one row each, measured ones beside them."""
    measured = {at.ranks: at for at in answer.measured}
    rows = []
    for point in answer.points:
        row = flat(point)
        at = measured.pop(point.ranks, None) if isinstance(point, Point) else None
        if at is not None:
            row |= {f"measured_{key}": getattr(at, key) for key in ("step_time_s", "error", "role")}
        rows.append(row)
    return rows
