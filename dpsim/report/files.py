"""Files that `dpsim run` writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsim.predict.answer import Answer
from dpsim.predict.point import Point
from dpsim.report.bundle import Bundle, flat, write_bundle
from dpsim.report.tables import FILES

if TYPE_CHECKING:
    from dpsim.predict.prediction import Prediction


def write_all(prediction: Prediction, out: Path) -> None:
    """Write `FILES` of `prediction` into folder `out`; see `write_bundle`."""

    def fill(bundle: Bundle) -> None:
        from dpsim.predict.advice import with_advice
        from dpsim.report import page
        from dpsim.report.curve import make_figure

        answer = prediction.answer
        bundle.json("prediction.json", with_advice(prediction))
        bundle.csv("points.csv", _rows(answer))
        svg = bundle.figure("curve.png", "curve.svg", lambda: make_figure(answer))
        bundle.text("index.html", page.page(prediction, svg))

    write_bundle(out, FILES, fill)


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
