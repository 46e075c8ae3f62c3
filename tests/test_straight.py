"""Long steps of pipelines that are played short are what they are in full."""

from __future__ import annotations

from typing import Any

import pytest

from dpsim.cases.case import Case
from dpsim.cases.plays import Stretch
from dpsim.describe.sections import Calibrate
from dpsim.predict import player
from dpsim.predict.level import level
from dpsim.predict.prediction import taken
from dpsim.predict.straight import along, filled

TOLERANCE = 1e-9


def long_case(**changes: Any) -> Case:
    """A pipeline of four stages and 48 micro-batches, whose communicators share links."""
    said: dict[str, Any] = {
        "model": {"huggingface": "llama-3-8b.json", "sequence_length": 2048},
        "cluster": {"machine": "dgx-a100", "nodes": 4},
        "parallel": {"tensor": 2, "pipeline": 4},
        "schedule": {"kind": "one_f_one_b"},
        "strategy": {"kind": "megatron", "use_distributed_optimizer": False},
        "batch": {"per_device": 1, "accumulation": 48},
        "precision": {"parameters": "fp16", "compute": "fp16"},
        **changes,
    }
    loaded = taken(said)
    return Case(loaded.points[0], loaded.base)


@pytest.mark.parametrize("schedule", ["gpipe", "one_f_one_b", "zb1p"])
def test_variants_on_lines_take_what_they_take_in_full(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = long_case(schedule={"kind": schedule})
    played = player.play(case)
    variants = [Stretch(latency=f, transfer=f) for f in (0.5, 2.0)]
    times = player.lane_times(case, variants, played)
    monkeypatch.setattr(player, "along", lambda case, times: None)
    assert times == pytest.approx(player.lane_times(case, variants, played), rel=TOLERANCE)


def test_a_level_found_along_lines_makes_the_whole_step_what_was_measured() -> None:
    case = long_case()
    target = 1.5 * player.step_time(case)
    found = level(case, Calibrate(step_time=target))
    assert player.step_time(found.of(case)) == pytest.approx(target, rel=TOLERANCE)
    in_full = level(case, Calibrate(step_time=target), player.step_time)
    assert found.scale == pytest.approx(in_full.scale, rel=TOLERANCE)


def test_what_is_no_line_is_not_taken_for_one() -> None:
    case = long_case()
    assert filled(case) == (4, 8, 6)
    assert along(case, lambda short: [float(short.scenario.batch.accumulation) ** 2]) is None
    assert along(case, lambda short: [3.0 + short.scenario.batch.accumulation]) == [51.0]


@pytest.mark.parametrize(
    "changes",
    [
        {"batch": {"per_device": 1, "accumulation": 16}},
        {"variability": {"jitter": "2 %"}},
        {"iteration": 2},
    ],
    ids=["short", "jittered", "first"],
)
def test_steps_that_are_short_or_differ_are_played_in_full(changes: dict[str, Any]) -> None:
    assert filled(long_case(**changes)) is None
