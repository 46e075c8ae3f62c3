"""The pages of `dpsim check` and `dpsim check-nccl`: measured beside healthy, and what fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpsim._version import __version__
from dpsim.checks.diagnosis import LARGE_SIZE
from dpsim.checks.hypotheses import MEANINGS
from dpsim.core.units import show
from dpsim.report.collective import WORDS, group_columns, name_of
from dpsim.report.figures import time_scale
from dpsim.report.nccl_check import band_columns, causes_told, judged_told
from dpsim.report.nccl_check import said_of as nccl_said
from dpsim.report.pages import Chart, Code, Page, Section, Sheet, Words, charts, warned
from dpsim.report.pages.charts import Spec, measure
from dpsim.report.pages.collective import chart, values
from dpsim.report.step_check import HEALTHY, differing, faster, listed, said, step_columns, untuned
from dpsim.report.text import brief, clean, percent

if TYPE_CHECKING:
    from dpsim.checks.check_nccl import CheckedFile, CheckedTable
    from dpsim.checks.steps import StepCheck

_FOOTER = f"Judged by dpsim {__version__}; what is healthy is meant to hold in 90 % of cases. All "
_FOOTER += "numbers are in check.json beside this page."


def steps_page(name: str, found: StepCheck, commands: Sequence[str]) -> str:
    """The page of the measured steps of a scenario called `name`."""
    parts = [Chart("steps", "Measured steps beside healthy ones", _steps(found))]
    likely = listed(found)
    if likely:
        rows = [(c.name, c.probability, percent(c.probability), [["fault", MEANINGS[c.name]]])
                for c in likely]  # fmt: skip
        spec = charts.amounts("Which fault", "probability", rows)
        parts.append(Chart("faults", "How likely each fault is", spec))
    sheet = Sheet(step_columns(found), (), "steps")
    told = [HEALTHY, *untuned(found), *faster(found), *differing(found)]
    sections = [Section("", parts), Section("Steps", [sheet, Words(told)])]
    if likely:
        meanings = [f"{c.name}: {MEANINGS[c.name]}" for c in likely]
        sections.append(Section("What the faults are", [Words(meanings)]))
    return _page(brief(name, 200), sections, commands, said(found))


def nccl_page(found: CheckedFile, steps: Sequence[str]) -> str:
    """The page of a judged file of nccl-tests."""
    sections = []
    for n, table in enumerate(found.tables):
        group = table.group
        title = f"{clean(table.operation)}: {name_of(group)}"
        spec = chart(table.operation, found.setup, [group])
        spec["series"] += _healthy(table)
        spec["bandNote"] = "of all published machines: " + spec["bandNote"]
        told = [line.lstrip("- ") for line in (*judged_told(table), *causes_told(table))]
        sections.append(Section(title, [
            Chart(f"busbw{n}", "Measured beside expected", spec),
            Sheet(band_columns(table), WORDS, f"verdicts of {title}"),
            *([Words(told)] if told else []),
            Sheet(group_columns(group), WORDS, title),
        ]))  # fmt: skip
    if found.warnings:
        sections.append(Section("Warnings", [warned(found.warnings)]))
    name = f"{brief(found.source, 120)} on {clean(found.setup.machine.name)}"
    return _page(name, sections, steps, nccl_said(found))


def _healthy(table: CheckedTable) -> list[Spec]:
    """What 19 of 20 healthy machines reach of large sizes, and 99 of 100: by these they are
    judged."""
    known = table.sensitivity
    large = [line for line in table.group.lines if line.size >= LARGE_SIZE]
    if known is None or len(large) < 2:  # a line needs two points
        return []
    kinds = ((known.doubtful, "19 of 20", 2), (known.low, "99 of 100", 4))
    return [
        {"name": f"{many} healthy machines are faster", "style": "guide", "colour": colour,
         "points": [{"x": line.size, "y": values(line, line.seconds * ratio)} for line in large]}
        for ratio, many, colour in kinds
    ]  # fmt: skip


def _page(name: str, sections: list[Section], commands: Sequence[str], verdict: str) -> str:
    if commands:
        sections.append(Section("Run next", [Code("\n".join(map(clean, commands)))]))
    headline = verdict[:1].upper() + verdict[1:]
    return Page(f"{name}: is it normal?", name, sections, _FOOTER, headline=headline).render()


def _steps(found: StepCheck) -> Spec:
    """Steps in the order in which they were given."""
    factor, unit = time_scale([seen.seconds for seen in found.observed])
    names = [f"{seen.case.ranks:,} ranks" for seen in found.observed]
    healthy, measured = [], []
    pairs = zip(names, found.observed, found.expected, strict=True)
    for n, (name, seen, (middle, low, high)) in enumerate(pairs, 1):
        around = f"{show(middle, 's')} ({show(low, 's', 3)} to {show(high, 's', 3)})"
        tip = [[name], ["measured", show(seen.seconds, "s")], ["healthy", around]]
        healthy.append({"x": n, "y": [[v * factor for v in (middle, low, high)]], "tip": tip})
        measured.append({"x": n, "y": [[seen.seconds * factor]], "tip": tip})
    return {
        "kind": "lines",
        "x": {
            "label": "ranks, in the order of the measurements",
            "ticks": [[n, f"{seen.case.ranks:,}"] for n, seen in enumerate(found.observed, 1)],
        },
        "measures": [measure("step time", f"step time [{unit}]")],
        "series": [
            {"name": "healthy", "colour": 0, "points": healthy},
            {"name": "measured", "style": "marks", "colour": 1, "points": measured},
        ],
        "bandNote": "90 % of healthy clusters",
    }
