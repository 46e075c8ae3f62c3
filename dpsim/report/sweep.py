"""Table and files of a sweep."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dpsim.predict.document import to_json
from dpsim.predict.point import Chosen, Failed, Point, computed
from dpsim.report.bundle import Bundle, write_bundle
from dpsim.report.points import LEFT, flat_grid, run_columns
from dpsim.report.sweep_picture import check_field, make_figure
from dpsim.report.table import put, say, without
from dpsim.report.text import brief, clean

if TYPE_CHECKING:
    from rich.console import Console

    from dpsim.planning.swept import GridAnswer

#: what `dpsim sweep -o` writes beside its log
FILES = ("sweep.json", "sweep.csv", "index.html")
#: points that the terminal shows
SHOWN = 40
_DROPPED = ("nodes", "MFU", "exposed", "bubble", "speed-up")
#: what is left out besides where a terminal is too narrow
_NARROW = ("memory", "90 % interval", "eff.", "fits", "bottleneck", "to train")


def print_sweep(answer: GridAnswer, console: Console, files: str) -> None:
    """The points as a table, warnings, and where the rest is."""
    points = answer.points
    say(console, [brief(answer.name, 240)], "bold")
    found = without(run_columns([_with_size(point) for point in points[:SHOWN]]), _DROPPED)
    put(console, found, LEFT, _NARROW)
    lines = []
    if len(points) > SHOWN:
        lines.append(f"and {len(points) - SHOWN:,} more points, see sweep.csv")
    failed = [point.error for point in points if isinstance(point, Failed)]
    if failed:
        lines.append(f"No number at {len(failed):,} of {len(points):,} points: {clean(failed[0])}")
    unfit = sum(not point.memory.holds for point in computed(points))
    if unfit:
        lines.append(f"{unfit:,} of {len(points):,} points are not taken to fit in memory.")
    lines += [f"Warning: {clean(text)}" for text in _warnings(answer.warnings)]
    say(console, [*lines, *([files] if files else [])])


def _warnings(texts: Sequence[str]) -> list[str]:
    """The first four, and how many more there are; what the table shows is left out."""
    said = [text for text in texts if not re.match(r"[0-9?, ]+ ranks: ", text)]
    return said[:4] + ([f"and {len(said) - 4} more, see sweep.json"] if len(said) > 4 else [])


def _with_size(point: Point | Failed | Chosen) -> Point | Failed | Chosen:
    """The point, with the number of ranks that it was asked for where it has no numbers."""
    if not isinstance(point, Failed) or point.ranks:
        return point
    return replace(point, ranks=point.set.get("cluster.ranks"))


# -- files ----------------------------------------------------------------------------------------


def write_sweep(answer: GridAnswer, out: Path, fields: Sequence[str] = ()) -> list[str]:
    """Write the result, its page and a plot per field into folder `out`; returns the files'
    names."""
    from dpsim.report.pages.sweep import page

    plots = {field: f"{clean(field).replace('/', '_')}" for field in fields}
    for field in fields:
        check_field(answer.points, field)

    def fill(bundle: Bundle) -> None:
        document = to_json(answer)
        bundle.json(FILES[0], document)
        bundle.csv(FILES[1], flat_grid(document["points"]))
        bundle.text(FILES[2], page(answer))
        for field, name in plots.items():
            make = partial(make_figure, answer, field)
            bundle.figure(f"{name}.png", f"{name}.svg", make)

    return write_bundle(out, fill)
