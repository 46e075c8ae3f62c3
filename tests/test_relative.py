"""Points beside one another: whose speed-up and efficiency mean something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpsim.describe.scenario import load
from dpsim.predict.prediction import predict

LAYERS = [{"name": f"l{k}", "parameters": 1_000_000, "forward": "1 ms", "backward": "2 ms"}
          for k in range(8)]  # fmt: skip
TOY: dict[str, Any] = {
    "model": {"layers": LAYERS},
    "cluster": {"ranks": 4},
    "collective": {"backend": "ideal_ring", "latency": "20 us", "bandwidth": "5 GB/s"},
    "strategy": {"kind": "ddp"},
    "optimizer": {"kind": "none"},
}
PIPELINE = {**TOY, "parallel": {"pipeline": 4}, "batch": {"accumulation": 16}}


def points(scenario: dict[str, Any], sweep: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = predict(
        load({**scenario, "sweep": sweep}, Path(), "test")
    ).document["points"]
    return found


def test_schedules_that_are_compared_have_a_speed_up_and_no_efficiency() -> None:
    found = points(PIPELINE, {"schedule.kind": ["naive", "gpipe", "one_f_one_b"]})
    assert [p["efficiency"] for p in found] == [None] * 3
    assert found[0]["speedup"] == 1.0
    assert found[1]["speedup"] > 2.0


@pytest.mark.parametrize(
    ("sweep", "efficient"),
    [
        ({"cluster.ranks": [1, 2, 4]}, (0, 1, 2)),
        # each strategy scales from its own first point
        ({"strategy.kind": ["ddp", "fsdp"], "cluster.ranks": [2, 4]}, (0, 1, 2, 3)),
        ({"batch.per_device": [1, 4], "cluster.ranks": [2, 4]}, (0, 1, 2, 3)),
        # more ranks, and the work split in another way
        ([{"cluster.ranks": 4, "batch.accumulation": 4},
          {"cluster.ranks": 8, "batch.accumulation": 2}], (0, 1)),
        ({"batch.per_device": [1, 4]}, ()),
        ({"model.dtype": ["fp32", "bf16"]}, ()),
    ],
)  # fmt: skip
def test_efficiency_compares_more_ranks_that_do_the_same(
    sweep: Any, efficient: tuple[int, ...]
) -> None:
    found = points(TOY, sweep)
    assert tuple(k for k, p in enumerate(found) if p["efficiency"] is not None) == efficient
    assert all(0 < found[k]["efficiency"] <= 1 + 1e-9 for k in efficient)


def test_one_point_is_its_own_measure() -> None:
    only = predict(load(TOY, Path(), "test")).document["points"][0]
    assert (only["speedup"], only["efficiency"]) == (1.0, 1.0)
