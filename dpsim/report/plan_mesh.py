"""The best mesh and its runners-up, as a table and in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dpsim.core.units import show
from dpsim.core.yamlfile import dump_yaml
from dpsim.report.table import Columns
from dpsim.report.text import signed

#: axes of a mesh, and what its micro-batches are
AXES = ("tensor", "pipeline", "context", "expert", "data")
#: columns that are left out first where a terminal is too narrow
MESH_DROPPED = ("by", "memory", "slower", "recompute")
#: parts of a step, in words
PARTS = {
    "compute_s": "computing", "exposed_communication_s": "communication",
    "bubble_s": "bubbles", "stall_s": "waiting",
}  # fmt: skip


def mesh_columns(document: Mapping[str, Any]) -> Columns:
    """The meshes, the best first."""
    headers = [*AXES, "batches", "recompute", "step", "slower", "by", "memory", "fits"]
    return headers, [_row(one) for one in _meshes(document)]


def _meshes(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    answer = document["answer"]
    if answer is not None:
        yield answer
        yield from answer["runners_up"]


def _row(one: Mapping[str, Any]) -> list[str]:
    point, slower = one["point"], one.get("slower")
    more = "" if slower is None else signed(slower)
    because = "" if slower is None else f"{PARTS[one['because']]}"
    return [
        *(f"{one[axis]:,}" for axis in AXES),
        f"{one['micro_batches']:,} x {one['micro_batch']:,}",
        one["recompute"],
        show(point["step_time_s"], "s"),
        more,
        because,
        show(point["memory_bytes"], "B", 3),
        point["fits"] or "",
    ]


def mesh_text(document: Mapping[str, Any]) -> list[str]:
    """The answer in words."""
    answer, looked = document["answer"], document["answer"]["searched"]
    point = answer["point"]
    lines = [
        f"Take {_named(answer)}: a step takes {show(answer['value'], 's')} "
        f"({show(point['step_time_low_s'], 's')} … {show(point['step_time_high_s'], 's')})."
    ]
    sure = answer["sure"]
    if sure is not None and sure["set"] != answer["set"]:
        lines.append(
            "It may not fit; over its whole interval of memory fits "
            f"{_named(sure)}, {show(sure['point']['step_time_s'], 's')}."
        )
    for one in answer["runners_up"][:1]:
        ends = f"{signed(one['slower_low'])} to {signed(one['slower_high'])} at 90 %"
        sure_of_it = "beyond doubt" if one["beyond_error"] else "less than the prediction can tell"
        lines.append(f"The next, {_named(one)}, is {signed(one['slower'])} ({ends}): {sure_of_it}.")
    lines.append(
        f"Of {looked['settings']:,} settings {looked['too_large']:,} do not fit, "
        f"{looked['slower_by_bound']:,} are slower by a bound, {looked['refused']:,} are refused, "
        f"{looked['played']:,} were played."
    )
    return lines


def mesh_keys(document: Mapping[str, Any]) -> str:
    """What the answer changes in the scenario, as its file has it; empty where nothing is found."""
    answer = document["answer"]
    return dump_yaml(answer["set"]).rstrip() if answer is not None and "set" in answer else ""


def _named(one: Mapping[str, Any]) -> str:
    axes = " x ".join(f"{axis} {one[axis]:,}" for axis in AXES if one[axis] > 1) or "one rank"
    again = "" if one["recompute"] == "none" else f", recompute: {one['recompute']}"
    return f"{axes}, {one['micro_batches']:,} micro-batches of {one['micro_batch']:,}{again}"
