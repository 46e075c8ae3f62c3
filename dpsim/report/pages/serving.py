"""The page of `dpsim serve`: how it scales, delays, ranks, and what is assumed."""

from __future__ import annotations

from dpsim.core.units import show
from dpsim.core.yamlfile import dump_yaml
from dpsim.report.pages import Chart, Code, Page, Section, Sheet, SideBySide, Words, warned
from dpsim.report.pages.charts import Spec, measure, ticks
from dpsim.report.serving import LEFT, delay_columns, point_columns, rank_columns, sentences
from dpsim.report.text import brief, clean, number, percent
from dpsim.serving.answer import ServedPoint, ServingAnswer


def page(answer: ServingAnswer) -> str:
    """The page of `answer`."""
    last, name = answer.point, brief(answer.name, 200)
    sections = [Section("", [Words([f"On {clean(answer.machine)}"]), *_charts(answer)])]
    sections.append(Section("Replicas", [Sheet(point_columns(answer), LEFT, "replicas")]))
    headline = ""
    if isinstance(last, ServedPoint):
        delays = Sheet(delay_columns(last), ("",), "delays")
        ranks = Sheet(rank_columns(last, 256), (), "ranks")
        sections += [Section("How long requests take", [delays]), Section("Ranks", [ranks])]
        headline = (
            f"{number(last.output_tokens_per_s)} tokens/s with {last.replicas} replicas; the first "
            f"token after {show(last.ttft_s.p50, 's', 3)} in the median."
        )
    sections.append(Section("Why it is so", [Words(list(sentences(answer)))]))
    taken = [Words([f"{clean(text)}." for text in answer.assumptions])]
    taken += [warned(answer.warnings)] if answer.warnings else []
    sections.append(Section("Assumptions and warnings", taken))
    sections.append(Section("How to reproduce", [
        Words(["Save the scenario below as scenario.yaml, beside its files, and run:"]),
        Code("dpsim serve scenario.yaml -o report"),
    ]))  # fmt: skip
    sections.append(Section("Scenario", [Code(dump_yaml(dict(answer.service)))]))
    return Page(
        f"{name}: how it serves", name, sections,
        f"Predicted by dpsim {answer.dpsim_version}. Intervals are of means, and meant to hold in "
        "90 % of cases. All numbers are in serving.json, points.csv and ranks.csv beside it.",
        "requests to a language model", headline,
    ).render()  # fmt: skip


def _charts(answer: ServingAnswer) -> list[Chart | SideBySide]:
    points = [one for one in answer.points if isinstance(one, ServedPoint)]
    found = [Chart("parts", "Where the time of steps goes", _parts(points))]
    if len(points) > 1:
        found.insert(0, Chart("scaling", "How it scales with replicas", _scaling(points)))
        return [SideBySide(found)]
    return list(found)


def _scaling(points: list[ServedPoint]) -> Spec:
    """Tokens per second by replicas, beside linear scaling."""
    first = points[0]
    linear = [
        {"x": one.replicas, "y": [[first.output_tokens_per_s * one.replicas / first.replicas]],
         "tip": [["linear", f"{number(first.output_tokens_per_s * one.replicas)} tokens/s"]]}
        for one in points
    ]  # fmt: skip
    own = [
        {"x": one.replicas,
         "y": [[one.output_tokens_per_s, one.output_tokens_per_s_low,
                one.output_tokens_per_s_high]],
         "tip": [["tokens/s", number(one.output_tokens_per_s)],
                 ["efficiency", percent(one.efficiency)], ["limit", one.limit]]}
        for one in points
    ]  # fmt: skip
    return {
        "kind": "lines",
        "x": {"label": "replicas", "log": True, "ticks": ticks(one.replicas for one in points)},
        "measures": [measure("tokens/s", "output tokens per second", log=True)],
        "series": [
            {"name": "linear scaling", "colour": 7, "style": "guide", "points": linear},
            {"name": "predicted", "colour": 0, "points": own},
        ],
        "bandNote": "90 % interval",
    }


def _parts(points: list[ServedPoint]) -> Spec:
    """A bar for each number of replicas."""
    names = list(points[0].parts)
    rows = [
        {
            "name": f"{one.replicas} replica{'s' * (one.replicas > 1)}",
            "values": [100.0 * one.parts[name] for name in names],
            "texts": [percent(one.parts[name]) for name in names],
            "said": "",
            "tip": [["limit", one.limit]],
        }
        for one in points
    ]
    return {
        "kind": "bars",
        "title": "Where the time of steps goes",
        "unit": "share of the time of steps [%]",
        "share": "as shares",
        "parts": [{"name": name.replace("_", " "), "colour": k} for k, name in enumerate(names)],
        "rows": rows,
    }
