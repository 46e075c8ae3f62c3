"""Where sharing links would take minutes, communicators have them whole, and the answer says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpsim.cases.case import Case
from dpsim.describe.scenario import load
from dpsim.predict import player
from dpsim.predict.effort import EVENT, effort_of
from dpsim.predict.player import play, step_time
from dpsim.predict.prediction import predict
from dpsim.predict.unshared import LONGER

#: shards over all ranks beside contexts of two, every pair at a pace of its own
MESH: dict[str, Any] = {
    "model": {"huggingface": "llama-3-8b.json", "sequence_length": 8192},
    "cluster": {"machine": "dgx-h100", "nodes": 2},
    "strategy": {"kind": "fsdp", "torch": "2.13"},
    "parallel": {"context": 2, "order": ["tensor", "data", "pipeline"]},
    "batch": {"global": 64},
    "variability": {"jitter": "2 %", "steps": 12},
}


def case_of(**changes: Any) -> Case:
    return Case(load({**MESH, **changes}, Path(), "test").points[0], Path())


def test_steps_are_shorter_without_sharing_and_by_as_much_as_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = play(case_of())
    assert (shared.engine, shared.unshared) == ("event", 0.0)
    monkeypatch.setattr(player, "CROWDED", 1e-9)
    apart = play(case_of())
    assert apart.engine == "vectorised"
    assert apart.unshared == effort_of(case_of()).crowded(EVENT)
    assert 1.0 < shared.step_time / apart.step_time < 1.0 + LONGER[1] / 100.0
    assert step_time(case_of()) == pytest.approx(apart.step_time, rel=1e-12)


def test_the_answer_says_what_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "CROWDED", 1e-9)
    said = [one for one in predict(load(MESH, Path(), "test")).warnings if "meet on links" in one]
    assert len(said) == 1
    assert "on 16 ranks" in said[0]


def test_who_asks_for_the_event_engine_has_links_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = play(case_of())
    monkeypatch.setattr(player, "CROWDED", 1e-9)
    asked = play(case_of(engine="event"))
    assert asked.unshared == 0.0
    assert asked.step_time == shared.step_time


def test_four_times_the_ranks_are_sixteen_times_the_crowd() -> None:
    few, many = (effort_of(case_of(cluster={"machine": "dgx-h100", "nodes": n})) for n in (2, 8))
    each = few.operations / many.operations
    assert many.crowded(EVENT) * each == pytest.approx(16 * few.crowded(EVENT))
