"""One self-contained page: the answer first, then the curve, the table, the reasons, the input.

The page has no script and fetches nothing; names that users gave are text wherever they appear.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpsim.core.yamlfile import dump_yaml
from dpsim.predict.answer import Answer
from dpsim.predict.point import computed
from dpsim.report.html import inlined, render
from dpsim.report.points import LEFT, measured_columns, run_columns
from dpsim.report.sentences import headline, memory_sentences, scaling_title, sentences
from dpsim.report.text import brief, clean, ranks, shortened

if TYPE_CHECKING:
    from dpsim.predict.prediction import Prediction


def page(prediction: Prediction, svg: str, life: str = "") -> str:
    """The page of `prediction` with the drawing `svg` in it, and that of its `life`."""
    from dpsim.predict.advice import advised

    answer = advised(prediction)
    at, parts = _memory(answer)
    return render(
        "page.html.j2",
        svg,
        headline(answer),
        life=inlined(life, "Time to train with failures") if life else "",
        name=brief(answer.name, 200),
        scaling=scaling_title(answer),
        headline=headline(answer),
        points=run_columns(answer.points),
        left=LEFT,
        measured=measured_columns(answer),
        reasons=sentences(answer),
        memory_ranks=at,
        memory_parts=parts,
        memory_lines=memory_sentences(answer),
        assumptions=assumptions(answer),
        warnings=[clean(w) for w in shortened(answer.warnings, 20)],
        files=_files(answer.scenario),
        version=answer.dpsim_version,
        scenario=_scenario(answer),
    )


def _memory(answer: Answer) -> tuple[str, list[dict[str, str]]]:
    """Where it is fullest, and its parts there, the largest first."""
    points = computed(answer.points)
    if not points:
        return "", []
    fullest = max(points, key=lambda p: p.memory.bytes)
    whole = fullest.memory.bytes or 1.0
    parts = sorted(fullest.memory.parts.items(), key=lambda item: -item[1])
    rows = [
        {"name": clean(name), "size": f"{size / 1e9:,.2f}", "share": f"{size / whole:.1%}"}
        for name, size in [*parts, ("total", fullest.memory.bytes)]
    ]
    return ranks(fullest.ranks), rows


def assumptions(answer: Answer) -> list[str]:
    """What the prediction takes for granted, in sentences."""
    scenario = answer.scenario
    sources = sorted({s for p in computed(answer.points) for s in p.interval.causes})
    calibrated = answer.calibration is not None
    found = [scaling_title(answer) + "."]
    if calibrated:
        found.append("The level of compute comes from one measured step; all else is predicted.")
    elif "machine" in scenario["cluster"]:
        found.append("The share of peak that large kernels reach is assumed, not measured.")
    else:
        found.append("Layer durations and the network are as the scenario gives them.")
    if sources:
        found.append(f"The 90 % interval comes from: {', '.join(clean(s) for s in sources)}.")
    if not scenario.get("variability"):
        found.append("All ranks are equally fast: the scenario gives no variability.")
    return found


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


def _scenario(answer: Answer) -> str:
    """The scenario as YAML text; what cannot be printed becomes visible."""
    text = dump_yaml(answer.scenario)
    return "".join(c if c == "\n" or c.isprintable() else f"\\u{ord(c):04x}" for c in text)
