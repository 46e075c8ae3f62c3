"""The page of `dpsim validate`: measured beside predicted, row by row, and the tables of errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpsim.report.accuracy_view import Dot, View
from dpsim.report.pages import Chart, Page, Section, Sheet, Words, warned
from dpsim.report.pages.charts import Spec, measure
from dpsim.report.text import brief, clean, number, signed

#: rows that a page draws; of more every k-th is drawn, and the page says so
MOST = 6000
_FOOTER = (
    "n is the number of rows; error is |predicted / measured - 1|; bias that of steps in the "
    "median, + is predicted too slow; skill "
    "is 1 minus the error over linear scaling's, on lost efficiency; inside is the share of "
    "measurements within the 90 % interval, ± width the median half-width of it. Every row is in "
    "predictions.csv beside this page."
)


def page(view: View, document: Mapping[str, Any]) -> str:
    """The page of a validation."""
    groups = view.dots()
    count = sum(len(dots) for _, dots in groups)
    step = -(-count // MOST) if count else 1
    title = f"{clean(document['table'])}: measured and predicted"
    caption = "Measured and predicted" + (f" (one in {step} rows)" if step > 1 else "")
    drawn = [Chart("scatter", caption, _chart(view, groups, step))] if count else []
    sections = [Section("", [*drawn, Words(view.sentences)])]
    for part in view.tables:
        if part.rows:
            sheet = Sheet((part.headers, part.rows), part.headers[:1], part.title)
            sections.append(Section(part.title, [sheet]))
    if document["warnings"]:
        sections.append(Section("Warnings", [warned(document["warnings"])]))
    return Page(
        title, title, sections, f"Made by dpsim {document['dpsim_version']}. {_FOOTER}",
        view.title, pictures=", and scatter.svg the picture",
    ).render()  # fmt: skip


def _chart(view: View, groups: Sequence[tuple[str, Sequence[Dot]]], step: int) -> Spec:
    every = [dot for _, dots in groups for dot in dots]
    low = min(min(dot.measured, dot.predicted) for dot in every)
    high = max(max(dot.measured, dot.predicted) for dot in every)
    guides = [_guide("equal", 1.0, low, high, 6), _guide("half as long", 0.5, low, high, 7),
              _guide("twice as long", 2.0, low, high, 7)]  # fmt: skip
    return {
        "kind": "lines",
        "x": {"label": f"measured {view.unit}", "log": True},
        "measures": [measure("predicted", f"predicted {view.unit}", log=True)],
        "series": [
            *guides,
            *({"name": f"{brief(name, 40)} ({len(dots):,})", "style": "marks", "colour": n % 8,
               "points": list(_points(dots[::step]))} for n, (name, dots) in enumerate(groups)),
        ],
    }  # fmt: skip


def _points(dots: Iterable[Dot]) -> Iterable[Spec]:
    for dot in dots:
        off = signed(dot.predicted / dot.measured - 1.0)
        tip = [[brief(dot.name, 80)], ["measured", number(dot.measured)],
               ["predicted", f"{number(dot.predicted)} ({off})"],
               ["90 % interval", f"{number(dot.low)} to {number(dot.high)}"]]  # fmt: skip
        yield {"x": dot.measured, "y": [[dot.predicted]], "tip": tip}


def _guide(name: str, factor: float, low: float, high: float, colour: int) -> Spec:
    points = [{"x": x, "y": [[x * factor]], "tip": []} for x in (low, high)]
    return {"name": name, "style": "guide", "colour": colour, "points": points}
