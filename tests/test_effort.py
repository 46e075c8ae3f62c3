"""What playing takes is known before anything is made for it but programs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dpsim.cases.case import Case
from dpsim.cases.chapters import Chapters
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.predict import effort
from dpsim.predict.effort import APART, EVENT, VECTORISED, check_affordable, effort_of
from dpsim.predict.player import fastest, play

BASE: dict[str, Any] = {
    "model": {"huggingface": "llama-3-8b.json", "sequence_length": 512},
    "cluster": {"machine": "dgx-h100", "nodes": 2},
    "strategy": {"kind": "ddp"},
}


def case_of(**changes: Any) -> Case:
    return Case(load({**BASE, **changes}, Path(), "test").points[0], Path())


PLAYED: list[dict[str, Any]] = [
    {}, {"iteration": 2}, {"variability": {"jitter": "2 %", "steps": 5}},
    {"parallel": {"pipeline": 4}}, {"parallel": {"tensor": 2, "pipeline": 2}, "detail": "rounds"},
    {"parallel": {"pipeline": 4}, "variability": {"slow_ranks": {1: 2.0}}},
    {"batch": {"global": 17}}, {"batch": {"accumulation": 40}},
]  # fmt: skip


@pytest.mark.parametrize("changes", PLAYED, ids=str)
def test_the_effort_is_that_of_the_first_play(changes: dict[str, Any]) -> None:
    case = case_of(**changes)
    found, request = effort_of(case), case.plays()[0]
    cast = request.cast(0)
    assert (found.players, found.steps) == (cast.ranks, request.steps)
    sizes = [len(program.ops) for program in cast.programs]
    assert found.operations == sum(sizes) / len(sizes)


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "megatron"])
@pytest.mark.parametrize("split", [{}, {"pipeline": 2}])
def test_long_steps_are_counted_on_short_ones(kind: str, split: dict[str, int]) -> None:
    if kind == "fsdp" and split:
        return
    case = case_of(strategy={"kind": kind}, parallel=split, batch={"accumulation": 200})
    sizes = [len(program.ops) for program in case.programs.cast(None).programs]
    assert effort_of(case).operations == sum(sizes) / len(sizes)


def test_neither_routes_nor_plans_are_made_for_it() -> None:
    case = case_of(cluster={"machine": "dgx-h100", "nodes": 4096})
    effort_of(case)
    assert "costs" not in vars(case.transport)


LARGE: dict[str, Any] = {
    "cluster": {"machine": "dgx-h100", "nodes": 8192},
    "variability": {"jitter": "2 %", "steps": 1000},
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"engine": "event"}, r"event by event would take about .* h \(limit 1.0 h\) and .* GB of "
         r"memory \(this machine: 8.0 GB\); engine: auto or vectorised is much faster"),
        ({"detail": "rounds"}, "detail: collective is much faster"),
        ({"strategy": {"kind": "fsdp", "shard": 8}, "batch": {"accumulation": 4096}},
         r"in one pass over all ranks would take .* or batch.accumulation of [0-9]+ would do"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_what_would(
    changes: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effort, "memory", lambda: 8e9)
    case = case_of(**{**LARGE, "variability": {"jitter": "2 %", "steps": 40}, **changes})
    for way in (play, fastest):
        with pytest.raises(Refused, match=said):
            way(case)
    assert "costs" not in vars(case.transport)


def test_what_would_do_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "memory", lambda: 8e9)
    monkeypatch.setattr(effort, "LIMIT", 60.0)
    hybrid = {**LARGE, "strategy": {"kind": "fsdp", "shard": 8}}
    case = case_of(**hybrid)
    with pytest.raises(Refused, match=r"variability\.steps of [0-9,]+ would do") as refused:
        check_affordable(case, effort_of(case), APART)
    steps = int(str(refused.value).rpartition("steps of ")[2].split()[0].replace(",", ""))
    fitting = case_of(**{**hybrid, "variability": {"jitter": "2 %", "steps": steps}})
    effort_now = effort_of(fitting)
    assert effort_now.vectorised is APART
    check_affordable(fitting, effort_now, APART)
    assert effort_now.seconds(APART) > 0.9 * 60.0
    assert effort_now.bytes(EVENT) > effort_now.bytes(APART) > effort_now.bytes(VECTORISED)


def test_a_long_run_says_so_before_it_begins() -> None:
    steps = {"variability": {"jitter": "2 %", "steps": 400}}
    hybrid = {"strategy": {"kind": "fsdp", "shard": 8}}
    loaded = load({**BASE, **LARGE, **steps, **hybrid}, Path(), "test")
    said = effort.forecast(loaded, Chapters())
    assert re.fullmatch(r"65,536 ranks take about [0-9.,]+ (s|h) and [0-9.]+ GB of memory", said)
    assert effort.forecast(load(BASE, Path(), "test"), Chapters()) == ""
    wrong = load({**BASE, "batch": {"global": 3}}, Path(), "test")
    assert effort.forecast(wrong, Chapters()) == ""
