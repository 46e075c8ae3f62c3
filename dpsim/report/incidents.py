"""Incidents for people: rates with intervals, and what to write into a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpsim.core.units import show
from dpsim.report.table import put, say, warn
from dpsim.report.text import number, percent

if TYPE_CHECKING:
    from rich.console import Console

    from dpsim.measurements.incidents import Incidents
    from dpsim.measurements.incidents.counted import CountedRate

_SHOWN = {
    "startup_s": "from a start to the first step",
    "detection_s": "from an end to the next start",
    "step_s": "a step",
}


def print_incidents(found: Incidents, console: Console) -> None:
    total = sum(rate.count for rate in found.rates)
    say(console, [f"{total:,} incidents in {show(found.over, 's')}."])
    headers = ("cause", "count", "one of", "mean time between", "90 % interval")
    put(console, (headers, [_row(rate) for rate in found.rates]), ("cause", "one of"))
    thin = [rate.cause for rate in found.rates if rate.thin]
    if thin:
        say(console, [f"Too few to know well: {', '.join(thin)}."])
    measured = found.seen.measured
    parts = [
        f"{text} {show(measured[key], 's')}" for key, text in _SHOWN.items() if key in measured
    ]
    if "goodput" in measured:
        again = number(measured["steps_done_twice"])
        parts.append(f"goodput {percent(measured['goodput'])}, {again} steps done twice")
    if parts:
        say(console, [f"In the mean: {'; '.join(parts)}."])
    if found.sections:
        say(console, ["In a scenario:", *_yaml(found.sections)])
    warn(console, found.seen.notes)


def _row(rate: CountedRate) -> list[str]:
    low, high = rate.ends
    ends = (
        f"{show(low, 's', 3)} – {show(high, 's', 3)}" if high else f"more than {show(low, 's', 3)}"
    )
    mean = show(rate.mtbf, "s", 3) if rate.mtbf else "none seen"
    return [rate.cause, f"{rate.count:,}", rate.of, mean, ends]


def _yaml(sections: Mapping[str, Any], indent: str = "  ") -> list[str]:
    """Mappings of mappings as YAML."""
    lines = []
    for key, value in sections.items():
        if isinstance(value, Mapping):
            lines += [f"{indent}{key}:", *_yaml(value, indent + "  ")]
        else:
            lines.append(f"{indent}{key}: {value}")
    return lines
