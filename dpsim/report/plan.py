"""Tables and files of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsim.core.units import show
from dpsim.predict.point import UNFIT
from dpsim.report.bundle import Bundle, write_bundle
from dpsim.report.fields import interval, name_of, set_value, setting_text, shown, told_apart
from dpsim.report.plan_mesh import MESH_DROPPED, mesh_columns, mesh_keys
from dpsim.report.plan_picture import make_figure, plotted
from dpsim.report.plan_text import (
    Document,
    answer_text,
    any_has,
    question_text,
    required,
    with_interval,
)
from dpsim.report.points import flat_grid
from dpsim.report.table import Columns, put, say
from dpsim.report.text import bottleneck, brief, clean

if TYPE_CHECKING:
    from rich.console import Console

#: what `dpsim plan -o` always writes, and the plot where there is one
FILES = ("plan.json", "plan.csv", "index.html")
PLOTS = ("plan.png", "plan.svg")
#: columns of words
LEFT = ("bottleneck", "memory", "will do", "holds", "with", "costs")
#: what is left out first where a terminal is too narrow; --json and plan.csv have all of it
_DROPPED = ("step", "bottleneck", "90 % interval", "ranks", "front")
#: that a point will not do, for it does not fit
NO_ROOM = "no, memory"
#: rows of a table on the terminal
SHOWN = 24
#: rows of a ranking
RANKED = 10


def print_plan(document: Document, console: Console, written: str) -> None:
    """The question, what was played, the answer in words, and what to know about it."""
    say(console, [brief(document["name"], 240)], "bold")
    say(console, [question_text(document)])
    dropped = MESH_DROPPED if document["question"]["kind"] == "mesh" else _DROPPED
    for found in (columns_of(document), raised_columns(document)):
        if found[1]:
            put(console, found, LEFT, dropped)
    say(console, left_out(document))
    say(console, answer_text(document))
    if keys := keys_of(document):
        say(console, ["In the scenario:", *keys.splitlines()])
    say(console, [f"Warning: {clean(text)}" for text in document["warnings"][:8]], "yellow")
    say(console, [written] if written else [])


def keys_of(document: Document) -> str:
    """Sections of a scenario that the answer is, where it is a mesh."""
    return mesh_keys(document) if document["question"]["kind"] == "mesh" else ""


# -- tables ---------------------------------------------------------------------------------------


def columns_of(document: Document) -> Columns:
    """The table of what was played."""
    kind = document["question"]["kind"]
    if kind == "mesh":
        return mesh_columns(document)
    if kind == "largest":
        return _memory_columns(document)
    if kind == "require":
        return _require_columns(document)
    return _ranked_columns(document)


def _require_columns(document: Document) -> Columns:
    key = document["question"]["vary"]
    fields = required(document)
    unsure = with_interval(document)
    headers = [key]
    for f in fields:
        headers += [name_of(f), "90 % interval"] if f in unsure else [name_of(f)]
    headers += ["step", "bottleneck", "holds"]
    points = document["points"][:SHOWN]
    values = told_apart([set_value(point["set"][key]) for point in points])
    rows = [
        [value, *_require_row(point, fields, unsure)]
        for value, point in zip(values, points, strict=True)
    ]
    return headers, rows


def _require_row(
    point: Mapping[str, Any], fields: Sequence[str], unsure: Sequence[str]
) -> list[str]:
    if "error" in point:
        return [*[""] * (len(fields) + len(unsure)), "no number", "", "no"]
    cells: list[str] = []
    for f in fields:
        cells += [shown(point, f), interval(point, f)] if f in unsure else [shown(point, f)]
    holds = "yes" if point["holds_sure"] else "yes, not at 90 %" if point["holds"] else "no"
    return [*cells, show(point["step_time_s"], "s"), bottleneck(point["bottleneck"]), holds]


def _ranked_columns(document: Document) -> Columns:
    """The points of a grid: those on the front for a choice, the best ones for a tuning."""
    asked = document["question"]
    objective = asked.get("minimise") or asked.get("objective")
    also = [f for f in ("time_to_train_s", "cost_usd") if any_has(document, f)]
    fields = list(dict.fromkeys([objective, *also, *required(document)]))
    keys = [axis["key"] for axis in asked["vary"]]
    headers = [*(clean(key.rpartition(".")[2]) for key in keys), name_of(fields[0])]
    points = _chosen(document)
    sure = any(interval(point, fields[0]) for point in points)
    headers += [*["90 % interval"] * sure, *(name_of(f) for f in fields[1:])]
    headers += ["step", "bottleneck", *(["front"] if _front(document) else []), "will do"]
    rows = [_ranked_row(point, keys, fields, _front(document), sure) for point in points]
    counts = [f"{point['ranks']:,}" if point["ranks"] else "?" for point in points]
    if len(set(counts)) > 1:
        for row, count in zip((headers, *rows), ("ranks", *counts), strict=True):
            row.insert(len(keys), count)
    return headers, rows


def _front(document: Document) -> bool:
    return bool(document["question"].get("front"))


def _chosen(document: Document) -> list[Mapping[str, Any]]:
    """What the table shows of a grid."""
    points = document["points"]
    if document["question"]["kind"] == "choose":
        if len(points) <= SHOWN:
            return list(points)
        front = [p for p in points if p.get("on_front")]
        return (front or points)[:SHOWN]
    order = (document["answer"] or {}).get("ranking") or [p["set"] for p in points]
    by = {repr(point["set"]): point for point in points}
    first = [by[repr(change)] for change in order[:RANKED]]
    now = by[repr({})]
    return first if now in first else [*first, now]


def left_out(document: Document) -> list[str]:
    """How many points the table of `columns_of` leaves out, in words."""
    kind, every = document["question"]["kind"], document["points"]
    if kind not in ("choose", "tune", "require"):
        return []
    more = len(every) - (SHOWN if kind == "require" else len(_chosen(document)))
    return [f"And {more} more, which plan.csv and --json have."] if more > 0 else []


def _ranked_row(
    point: Mapping[str, Any], keys: Sequence[str], fields: Sequence[str], front: bool, ends: bool
) -> list[str]:
    sets = point["set"]
    head = [brief(set_value(sets[key]), 30) if key in sets else "as it is" for key in keys]
    if "error" in point:
        return [*head, *[""] * (len(fields) + ends), "no number", "", *[""] * front, "no"]
    first, *rest = fields
    sure = "yes" if point["holds_sure"] else "yes, not at 90 %"
    return [
        *head,
        *(shown(point, first), *[interval(point, first)] * ends, *(shown(point, f) for f in rest)),
        show(point["step_time_s"], "s"),
        bottleneck(point["bottleneck"]),
        *(["*" if point.get("on_front") else ""] if front else []),
        NO_ROOM if point["fits"] in UNFIT else sure if point["holds"] else "no",
    ]


def _memory_columns(document: Document) -> Columns:
    """What memory is made of at the largest value, and at the one after it."""
    told = document["answer"] or document["infeasible"]
    if "memory" not in told:
        return ["memory"], []
    here, after = told["memory"], told.get("following")
    at = told["value"] if document["found"] else next(iter(told["at"].values()))
    headers = ["memory", f"at {at:,}", *([f"at {after['value']:,}"] if after else [])]
    parts = sorted(here["parts"], key=lambda name: -here["parts"][name])
    uses = [here, *([after] if after else [])]
    rows = [[clean(n), *(show(u["parts"].get(n, 0.0), "B") for u in uses)] for n in parts]
    rows.append(["sum", *(show(u["bytes"], "B") for u in uses)])
    rows.append(["the device has", *(show(u["capacity"] or 0.0, "B") for u in uses)])
    return headers, rows


def raised_columns(document: Document) -> Columns:
    """What would raise the largest value."""
    told = document["answer"] or document["infeasible"]
    rows = [
        [setting_text(entry["set"]), f"{entry['value']:,}", clean(entry["cost"])]
        for entry in told.get("raised_by", ())
    ]
    return ["with", "largest", "costs"], rows


# -- files ----------------------------------------------------------------------------------------


def write_plan(document: Document, out: Path) -> list[str]:
    """Write the answer, its points, page and plot into folder `out`; returns the files' names."""
    from dpsim.report.pages.plan import page

    def fill(bundle: Bundle) -> None:
        bundle.json(FILES[0], document)
        bundle.csv(FILES[1], flat_grid(document["points"]))
        bundle.text(FILES[2], page(document))
        if plotted(document):
            bundle.figure(*PLOTS, lambda: make_figure(document))

    return write_bundle(out, fill)
