"""Where ranks at paces of their own share links, less is played: fewer steps, or, where that hardly
matters, without sharing; and the answer says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpsim.cases.case import Case
from dpsim.describe.scenario import load
from dpsim.predict import meeting
from dpsim.predict.effort import EVENT, effort_of
from dpsim.predict.meeting import HARDLY, WARM
from dpsim.predict.player import play, step_time
from dpsim.predict.prediction import predict

#: shards over all ranks beside contexts of two, every pair at a pace of its own
MESH: dict[str, Any] = {
    "model": {"huggingface": "llama-3-8b.json", "sequence_length": 8192},
    "cluster": {"machine": "dgx-h100", "nodes": 2},
    "strategy": {"kind": "fsdp", "torch": "2.13"},
    "parallel": {"context": 2, "order": ["tensor", "data", "pipeline"]},
    "batch": {"global": 64},
    "variability": {"jitter": "2 %", "steps": 12},
}
#: contexts across nodes, whose exchanges cross the links that gathers cross
ACROSS: dict[str, Any] = {
    "model": {"huggingface": "llama-3.2-3b.json", "sequence_length": 4096},
    "cluster": {"machine": "dgx-a100", "nodes": 2, "inter_node_bandwidth": "100 Gbit/s"},
    "parallel": {"context": 16},
    "batch": {"per_device": 1},
    "precision": {"parameters": "bf16", "compute": "bf16"},
}


def case_of(**changes: Any) -> Case:
    return Case(load({**MESH, **changes}, Path(), "test").points[0], Path())


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No time at all for ranks whose communicators meet."""
    monkeypatch.setattr(meeting, "LONG", 1e-9)
    return monkeypatch


def test_sharing_is_left_out_where_it_hardly_matters(budget: pytest.MonkeyPatch) -> None:
    shared = play(case_of(engine="event"))
    assert shared.unshared == 0.0
    apart = play(case_of())
    assert apart.engine == "vectorised"
    assert apart.unshared == effort_of(case_of()).meeting(EVENT)
    assert 1.0 < shared.step_time / apart.step_time < HARDLY
    assert step_time(case_of()) == pytest.approx(apart.step_time, rel=1e-12)


def test_it_is_never_left_out_where_it_matters(budget: pytest.MonkeyPatch) -> None:
    case = case_of(**ACROSS)
    assert meeting.longer_on_fewer(case) > 1.2
    found = play(case)
    assert (found.engine, found.unshared, len(found.durations)) == ("event", 0.0, 1)
    whole = play(case_of(**ACROSS, engine="event"))
    assert found.durations[0] == pytest.approx(whole.durations[0], rel=1e-9)
    assert step_time(case) == pytest.approx(found.step_time, rel=1e-9)


def test_as_many_steps_are_played_as_there_is_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, case = play(case_of()), case_of()
    each = effort_of(case).meeting(EVENT, 1)
    monkeypatch.setattr(meeting, "LONG", each * (4.5 + WARM))
    few = play(case)
    assert (few.engine, len(few.durations), len(whole.durations)) == ("event", 4, 12)
    assert few.durations == pytest.approx(whole.durations[:4], rel=1e-9)


@pytest.mark.parametrize(
    ("changes", "said"), [({}, "have them whole"), (ACROSS, "1 of 12 random steps were played")]
)
def test_the_answer_says_what_was_left_out(
    budget: pytest.MonkeyPatch, changes: dict[str, Any], said: str
) -> None:
    warnings = predict(load({**MESH, **changes}, Path(), "test")).warnings
    assert [text for text in warnings if said in text and text.startswith("on 16 ranks")]


def test_four_times_the_ranks_are_sixteen_times_as_long_to_play() -> None:
    few, many = (effort_of(case_of(cluster={"machine": "dgx-h100", "nodes": n})) for n in (2, 8))
    each = few.operations / many.operations
    assert many.meeting(EVENT) * each == pytest.approx(16 * few.meeting(EVENT))


def test_ranks_that_are_all_alike_take_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    calm = case_of(variability={}, compute={"spread": 0.0})
    many = replace(effort_of(calm), players=2**20)
    monkeypatch.setattr(meeting, "effort_of", lambda case: many)
    assert not meeting.too_long(calm)


@pytest.mark.parametrize(
    "changes",
    [{"iteration": 3}, {"parallel": {}, "strategy": {"kind": "local_sgd", "period": 4}}],
    ids=["one iteration", "four steps in one"],
)
def test_what_is_short_of_itself_is_not_told_to_be(changes: dict[str, Any]) -> None:
    small = {
        "model": {"name": "resnet50"},
        "cluster": {"machine": "dgx-a100", "nodes": 1},
        "batch": {},
    }
    data = {**MESH, **small, "parallel": {}, **changes}
    assert not [
        text for text in predict(load(data, Path(), "t")).warnings if "random steps" in text
    ]
