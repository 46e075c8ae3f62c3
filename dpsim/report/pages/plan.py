"""The page of `dpsim plan`: the question, the answer, and what was played on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsim.planning.wanted import ends_of, value_of
from dpsim.predict.point import UNFIT
from dpsim.report import plan as report
from dpsim.report.fields import interval, name_of, setting_text, shown
from dpsim.report.pages import Chart, Code, Page, PagePart, Section, Sheet, Words, warned
from dpsim.report.pages.charts import Spec, Tip, amounts, measure, ticks
from dpsim.report.plan_picture import edges, plain_number, plotted, scaled
from dpsim.report.plan_text import Document, answer_text, question_text, required
from dpsim.report.text import bottleneck, brief, clean

Found = Mapping[str, Any]


def page(document: Document) -> str:
    """The page of a plan."""
    said = answer_text(document)
    sections = [Section("", _figures(document))]
    sections.append(Section("The answer", [Words(said[1:])] if said[1:] else []))
    if keys := report.keys_of(document):
        sections.append(Section("In the scenario", [Code(keys)]))
    tables = (("What was played", report.columns_of(document)),
              ("What would raise it", report.raised_columns(document)))  # fmt: skip
    for title, columns in tables:
        if columns[1]:
            parts: list[PagePart] = [Sheet(columns, report.LEFT, title)]
            if title == tables[0][0] and (more := report.left_out(document)):
                parts.append(Words(more))
            sections.append(Section(title, parts))
    if document["warnings"]:
        sections.append(Section("Warnings", [warned(document["warnings"])]))
    name = brief(document["name"], 200)
    return Page(
        f"{name}: a plan", name, [section for section in sections if section.parts],
        f"Planned by dpsim {document['dpsim_version']}. All numbers are in plan.json and plan.csv "
        "beside this page.",
        question_text(document), said[0] if said else "",
    ).render()  # fmt: skip


def _figures(document: Document) -> list[PagePart]:
    kind = document["question"]["kind"]
    if kind == "largest":
        memory = _memory(document)
        return [] if memory is None else [Chart("memory", "Memory on one device", memory)]
    if not plotted(document):
        return []
    if kind == "require":
        return [Chart("required", "What is required, and where it holds", _required(document))]
    return [Chart("front", "Time and cost: what is on the front", _front(document))]


def _tip(point: Found, fields: list[str]) -> Tip:
    found = [[setting_text(point["set"])]]
    for field in fields:
        ends = interval(point, field)
        found.append([name_of(field), shown(point, field) + (f" ({ends})" if ends else "")])
    unfit = [["will do", report.NO_ROOM]] if point["fits"] in UNFIT else []
    return [*found, ["limited by", bottleneck(point["bottleneck"])], *unfit]


def _required(document: Document) -> Spec:
    """The required field over the key, its interval, the limit, and where the limit is met."""
    key, field = document["question"]["vary"], required(document)[0]
    factor, label = scaled(document, field)
    points = [p for p in document["points"] if value_of(p, field) is not None]
    places = sorted(((plain_number(p["set"][key]), p) for p in points), key=lambda pair: pair[0])
    limit = next(one for one in document["limits"] if one["field"] == field)
    unit = str(points[0]["set"][key]).partition(" ")[2]
    marks = [{"x": plain_number(edge["text"]), "text": text}
             for edge, _, text in edges(document["answer"])]  # fmt: skip
    low, high = places[0][0], places[-1][0]
    return {
        "kind": "lines",
        "hollow": "does not hold",
        "x": {"label": f"{clean(key)} [{clean(unit)}]" if unit else clean(key),
              "log": low > 0 and high >= 8 * low, "ticks": ticks(x for x, _ in places)},
        "measures": [measure(name_of(field), label)],
        "series": [{"name": name_of(field), "colour": 0, "points": [
            {"x": x, "y": [_value(p, field, factor)], "tip": _tip(p, [field]),
             "hollow": not p["holds"]} for x, p in places]}],
        "levels": [{"y": limit["limit"] * factor, "text": "required"}],
        "marks": marks,
    }  # fmt: skip


def _value(point: Found, field: str, factor: float) -> list[float]:
    """The value, and its interval where it has one."""
    value = (value_of(point, field) or 0.0) * factor
    ends = ends_of(point, field)
    return [value] if ends is None else [value, ends[0] * factor, ends[1] * factor]


def _front(document: Document) -> Spec:
    """All points by time and cost; those on the front joined, and the one to take."""
    fields = list(document["question"]["front"])
    (fx, x_label), (fy, y_label) = (scaled(document, field) for field in fields)
    points = [p for p in document["points"] if all(value_of(p, f) is not None for f in fields)]

    def place(point: Found) -> Spec:
        x, y = ((value_of(point, f) or 0.0) for f in fields)
        return {"x": x * fx, "y": [[y * fy]], "tip": _tip(point, fields),
                "hollow": not point["holds"]}  # fmt: skip

    on_front = sorted((place(p) for p in points if p.get("on_front")), key=lambda one: one["x"])
    series = [
        {"name": "other points", "style": "marks", "colour": 7,
         "points": [place(p) for p in points if not p.get("on_front")]},
        {"name": "front: none is faster and cheaper", "colour": 0, "points": on_front},
    ]  # fmt: skip
    if document["answer"]:
        taken = [place(document["answer"]["point"])]
        series.append({"name": "to take", "style": "marks", "colour": 1, "points": taken})
    limits = {one["field"]: one["limit"] for one in document["limits"]}
    made: Spec = {
        "kind": "lines",
        "hollow": "does not hold",
        "x": {"label": x_label, "log": False},
        "measures": [measure(name_of(fields[1]), y_label)],
        "series": [one for one in series if one["points"]],
    }
    if fields[0] in limits:
        made["marks"] = [{"x": limits[fields[0]] * fx, "text": "required"}]
    if fields[1] in limits:
        made["levels"] = [{"y": limits[fields[1]] * fy, "text": "required"}]
    return made


def _memory(document: Document) -> Spec | None:
    """What memory is made of at the largest value; None where that is not told."""
    told = document["answer"] or document["infeasible"]
    if "memory" not in told:
        return None
    use = told["memory"]
    rows: list[tuple[str, float, str, Tip]] = [(name, size / 1e9, f"{size / 1e9:,.2f} GB", [])
            for name, size in sorted(use["parts"].items(), key=lambda item: -item[1])]  # fmt: skip
    rows.append(("sum", use["bytes"] / 1e9, f"{use['bytes'] / 1e9:,.2f} GB", []))
    if use["capacity"]:
        there = use["capacity"] / 1e9
        rows.append(("the device has", there, f"{there:,.2f} GB", []))
    return amounts("Memory on one device", "GB", rows)
