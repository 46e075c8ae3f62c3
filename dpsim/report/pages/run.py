"""The page of `dpsim run`: the answer first, then the curve, the table, the reasons, the input."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dpsim.core.yamlfile import dump_yaml
from dpsim.predict.answer import Answer
from dpsim.predict.point import computed
from dpsim.report.pages import (
    Chart,
    Code,
    Page,
    PagePart,
    Section,
    Sheet,
    SideBySide,
    Words,
    curve,
    warned,
)
from dpsim.report.pages.lived import life_charts
from dpsim.report.points import LEFT, measured_columns, run_columns
from dpsim.report.sentences import headline, memory_sentences, scaling_title, sentences, titles
from dpsim.report.text import brief, clean

if TYPE_CHECKING:
    from dpsim.planning.swept import GridAnswer
    from dpsim.predict.prediction import Prediction


def page(prediction: Prediction) -> str:
    """The page of `prediction`."""
    from dpsim.predict.advice import advised

    answer = advised(prediction)
    sections = [Section("", list(_figures(answer)))]
    sections.append(Section("Points", [Sheet(run_columns(answer.points), LEFT, "points")]))
    if answer.measured:
        measured = Sheet(measured_columns(answer), LEFT, "measured points")
        sections.append(Section("Measured points", [measured]))
    if life := list(life_charts(prediction)):
        sections.append(Section("With failures", life))
    sections.append(Section("Why it is so", [Words(sentences(answer))]))
    if lines := memory_sentences(answer):
        sections.append(Section("What would make it fit", [Words(lines)]))
    sections += [_taken(answer), *reproduced(answer, "dpsim run scenario.yaml -o report")]
    name = brief(answer.name, 200)
    return Page(
        f"{name}: how it scales", name, sections, _footer(answer.dpsim_version),
        scaling_title(answer), headline(answer), ", and curve.svg the curve",
    ).render()  # fmt: skip


def _figures(answer: Answer) -> Iterator[PagePart]:
    """The curve where there is one, then where time goes, what is uncertain, and memory."""
    growth, efficiency = curve.speedup_chart(answer), curve.efficiency_chart(answer)
    if growth is not None:
        found = [Chart("growth", "How it grows with ranks", growth)]
        if efficiency is not None:
            found.append(Chart("efficiency", "Efficiency", efficiency))
        yield SideBySide(found)
    if computed(answer.points):
        yield Chart("steps", "Where the time of a step goes", curve.steps_chart(answer))
        widened = "What widens the 90 % interval of the step"
        yield SideBySide(
            [Chart("causes", widened, curve.causes_chart(answer)),
             Chart("memory", "Memory on one device", curve.memory_chart(answer))]
        )  # fmt: skip


def _taken(answer: Answer) -> Section:
    parts = [Words(assumptions(answer))]
    parts += [warned(answer.warnings)] if answer.warnings else []
    return Section("Assumptions and warnings", parts)


def reproduced(answer: Answer | GridAnswer, command: str) -> list[Section]:
    """How the answer came about: what to type, and the scenario."""
    files = _files(answer.scenario)
    beside = f", beside {files}," if files else ""
    line = (
        f"Save the scenario below as scenario.yaml{beside} and run, with dpsim "
        f"{answer.dpsim_version}:"
    )
    return [
        Section("How to reproduce", [Words([line]), Code(command)]),
        Section("Scenario", [Code(_scenario(answer))]),
    ]


def _footer(version: str) -> str:
    return (
        f"Predicted by dpsim {version}. Step times are means; intervals are meant to hold in 90 % "
        "of cases. All numbers are in prediction.json and points.csv beside this page."
    )


def assumptions(answer: Answer) -> list[str]:
    """What the prediction takes for granted, in sentences."""
    scenario = answer.scenario
    sources = sorted({s for p in computed(answer.points) for s in p.interval.causes})
    calibrated = answer.calibration is not None
    found = [f"{title}." for title in titles(answer)]
    if calibrated:
        found.append("The level of compute comes from one measured step; all else is predicted.")
    elif "machine" in scenario["cluster"]:
        found.append("The share of peak that large kernels reach is assumed, not measured.")
    else:
        found.append("Layer durations and the network are as the scenario gives them.")
    if sources:
        found.append(f"The 90 % interval comes from: {', '.join(clean(s) for s in sources)}.")
    if not scenario.get("variability"):
        found.append(_equal_ranks(scenario))
    return found


def _equal_ranks(scenario: Mapping[str, Any]) -> str:
    """How ranks differ where the scenario has no section on that."""
    spread = (scenario.get("compute") or {}).get("spread")
    if "machine" not in scenario["cluster"] or spread == 0:
        return "All ranks are equally fast: the scenario gives no variability."
    whose = "published runs differ" if spread is None else "compute.spread says"
    return f"Ranks are as unevenly fast as {whose}; the scenario gives no variability beside that."


def _files(scenario: Mapping[str, Any]) -> str:
    """Names of the files that the scenario refers to."""
    names = [scenario.get("measured"), (scenario.get("calibrate") or {}).get("file")]
    names.append((scenario.get("price") or {}).get("file"))
    names += [scenario["cluster"].get("machine"), scenario["cluster"].get("device")]
    names += [scenario["model"].get("huggingface")]
    files = [
        clean(n) for n in names if n and (n in names[:3] or re.search(r"[/.](ya?ml|json)?$", n))
    ]
    return ", ".join(dict.fromkeys(files))


def _scenario(answer: Answer | GridAnswer) -> str:
    """The scenario as YAML text; what cannot be printed becomes visible."""
    text = dump_yaml(answer.scenario)
    return "".join(c if c == "\n" or c.isprintable() else f"\\u{ord(c):04x}" for c in text)
