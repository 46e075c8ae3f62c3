"""Sweeps and tables: points and rows per CPU second, resumed after a kill, and on Ray."""

from __future__ import annotations

import csv
import importlib.util
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from cost import ROOT, Cost, environment, once
from lines import dpsim

#: seconds after which the sweep that is killed is killed, as a share of what a whole one took
PART = 0.5
#: points that differ in ranks and batches: of 256, half of the time is imports
SHAPED = 4096
TABLE = ROOT / "validation" / "published" / "training.csv"


def grid(points: int) -> list[str]:
    """A grid of so many points (a multiple of 100) that differ in numbers only: VGG-16 with DDP on
    64 GPUs."""
    return [
        "vgg16-10gbe", "--set", "cluster={machine: rack-10gbe, nodes: 16}",
        "--grid", "host.serial=1:100:1 us",
        "--grid", f"cluster.inter_node_bandwidth=101:{100 + points // 100}:1 Gbit/s",
    ]  # fmt: skip


def shapes(points: int) -> list[str]:
    """A grid of so many points (16 n) that differ in ranks and batches, up to 64 GPUs."""
    return [
        "vgg16-10gbe", "--grid", "cluster.ranks=4:64:4",
        "--grid", f"batch.per_device=1:{points // 16}:1",
    ]  # fmt: skip


def only(cache: Path) -> list[str]:
    """The option by which a sweep works out step times only, where there is one."""
    said = subprocess.run(
        dpsim("sweep", "--help"), env=environment(cache), capture_output=True, text=True, check=True
    ).stdout
    return ["--column", "step_time_s"] if "--column" in said else []


def told(name: str, count: int, what: str, *costs: Cost) -> str:
    """A line: how many in a CPU second, or why not."""
    failed = next((cost.failed for cost in costs if cost.failed), "")
    if failed:
        return f"{name:46} {failed}"
    seconds = sum(cost.cpu for cost in costs)
    memory = max(cost.memory for cost in costs)
    rate = f"{count / seconds:,.1f} {what}/CPU s"
    return f"{name:46} {rate:>24}   ({count:,} in {seconds:,.1f} CPU s, {memory / 1e6:,.0f} MB)"


def compared(whole: Path, other: Path) -> str:
    """Whether two sweeps have the same result."""
    results = [folder / "sweep.json" for folder in (whole, other)]
    same = all(file.exists() for file in results) and len({x.read_bytes() for x in results}) == 1
    return f"  its result is {'the same to the byte' if same else 'ANOTHER ONE'}"


def sweeps(cache: Path, place: Path, points: int, limit: float) -> Iterator[str]:
    """Points per second: in one process, killed and resumed, on Ray; and of whole documents."""
    column = only(cache)

    def swept(folder: str, *more: str, kill_after: float = 0.0) -> Cost:
        words = ("sweep", *grid(points), *column, "-o", str(place / folder), *more)
        return once(dpsim(*words), cache, limit, kill_after)

    yield "step time only" if column else "whole documents: there is no option for step times only"
    whole = swept("whole", "--jobs", "1")
    yield told("sweep, numbers differ, one process", points, "points", whole)
    for count in (256, SHAPED):
        shaped = once(dpsim("sweep", *shapes(count), *column, "--jobs", "1"), cache, limit)
        yield told("sweep, ranks and batches differ, one process", count, "points", shaped)
    if not whole.failed:
        # a CPU second takes longer where others compute too: half of it is well before the end
        parts = (
            swept("killed", "--jobs", "1", kill_after=PART * whole.cpu),
            swept("killed", "--jobs", "1"),
        )
        yield told("the same, killed half-way and resumed", points, "points", *parts)
        yield compared(place / "whole", place / "killed")
    if importlib.util.find_spec("ray") is None:
        yield f"{'the same, on Ray with two workers':46} ray is not installed: pip install ray"
    else:
        cost = swept("ray", "--jobs", "2", "--ray", "local")
        yield told("the same, on Ray with two workers", points, "points", cost)
        if not cost.failed and not whole.failed:
            yield compared(place / "whole", place / "ray")
    if column:
        few = max(points // 100, 100)
        cost = once(dpsim("sweep", *grid(few), "--jobs", "1"), cache, limit)
        yield told("sweep, whole documents, one process", few, "points", cost)


def validated(cache: Path, limit: float) -> str:
    """Rows of the table of published training runs per second."""
    with TABLE.open(newline="") as file:
        rows = sum(1 for _ in csv.DictReader(file))
    cost = once(dpsim("validate", str(TABLE), "--jobs", "1", "--json"), cache, limit)
    if not cost.failed:
        json.loads(cost.said)
    return told("dpsim validate training.csv, one process", rows, "rows", cost)
