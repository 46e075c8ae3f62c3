"""Stragglers for people: one sentence, one table, and where the time goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsim.core.units import show
from dpsim.report.table import put, say
from dpsim.report.text import number, percent

if TYPE_CHECKING:
    from rich.console import Console

    from dpsim.measurements.stragglers import Found

#: rows of a table, and parts of a line
SHOWN, PARTS = 12, 5


def print_stragglers(found: Found, console: Console) -> None:
    lost = 1.0 - found.ideal / found.original
    lines = [
        f"{found.ranks:,} ranks, {found.steps:,} steps: a step takes {show(found.original, 's')}; "
        f"without stragglers it would take {show(found.ideal, 's')} "
        f"({number(found.slowdown)} times as long; {percent(max(lost, 0.0))} of the time is lost)."
    ]
    say(console, lines)
    rows = [
        [str(s.rank), _when(s.pattern, s.since, s.share), number(s.factor), show(s.gain, "s")]
        for s in found.stragglers[:SHOWN]
    ]
    headers = ("rank", "slow", "times typical", "mending it gains")
    if rows:
        put(console, (headers, rows), ("slow",))
    else:
        say(console, ["No rank is slow."])
    if len(found.stragglers) > SHOWN:
        say(console, [f"and {len(found.stragglers) - SHOWN} more ranks"])
    for kind, parts in found.parts.items():
        largest = sorted(parts.items(), key=lambda item: -item[1])[:PARTS]
        text = ", ".join(f"{name}: {show(gain, 's', 3)}" for name, gain in largest)
        say(console, [f"Made ideal alone, by {kind}: {text}."])
    say(console, [f"Note: {note}." for note in found.notes])


def _when(pattern: str, since: int, share: float) -> str:
    if pattern == "since a step":
        return f"since step {since}"
    if pattern == "at times":
        return f"at times ({percent(share)} of the steps, first in step {since})"
    return "all the time"
