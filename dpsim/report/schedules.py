"""Pipeline schedules as tables: which there are, and what every rank runs under one of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dpsim.compile.schedules import Schedule, peak_in_flight, spell
from dpsim.core import plugins
from dpsim.report.table import put, say

if TYPE_CHECKING:
    from rich.console import Console

PACKAGE = "schedules"
#: the pipeline shown; every schedule exists for it
RANKS, MICRO_BATCHES = 4, 8


def show_schedules(console: Console) -> None:
    """Print a table of all schedules."""
    rows = []
    for name, cls in plugins.usable(PACKAGE):
        schedule = cls()
        peaks = [peak_in_flight(acts) for acts in schedule.lists(RANKS, MICRO_BATCHES)]
        rows.append([name, str(schedule.chunks), _range(peaks), _about(schedule)])
    shown = f"in flight, {RANKS} ranks and {MICRO_BATCHES} micro-batches"
    headers = ("schedule", "stages per rank", shown, "what it does")
    put(console, (headers, rows), ("schedule", "what it does"))
    console.print("dpsim show SCHEDULE prints what every rank runs.", highlight=False)


def show_schedule(name: str, console: Console) -> None:
    """Print what every rank of a small pipeline runs under schedule `name`."""
    schedule: Schedule = plugins.find(PACKAGE, name)()
    say(console, [f"{name}: {_about(schedule)}"], "bold")
    rows = [
        [str(rank), str(peak_in_flight(acts)), spell(acts, schedule.chunks)]
        for rank, acts in enumerate(schedule.lists(RANKS, MICRO_BATCHES))
    ]
    put(console, (("rank", "in flight", "order"), rows), ("order",))
    letters = "F forward, B backward, I backward for the input, W for the weights"
    before = "the stage stands before the letter, " if schedule.chunks > 1 else ""
    say(console, [f"{letters}; {before}the micro-batch after it."])


def _range(peaks: list[int]) -> str:
    return str(peaks[0]) if min(peaks) == max(peaks) else f"{min(peaks)} to {max(peaks)}"


def _about(schedule: Schedule) -> str:
    """The first sentence of the module's docstring, without the schedule's own name."""
    first = (sys.modules[type(schedule).__module__].__doc__ or "").split("\n\n")[0]
    return " ".join(first.split()).partition(": ")[2].rstrip(".")
