"""Steps that a loader feeds in bursts: how many are played, and how far their mean is known."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import stdev
from typing import Any

import pytest

from dpsim.core.record import Refused
from dpsim.machines.machine import load_machine
from dpsim.predict.point import Point
from dpsim.predict.prediction import predict

#: 14 workers take longer than training does and hand their batches over in bursts
LOADER = {"loader": "torch", "workers": 14, "decode": "10 s"}
DRAWN = {**LOADER, "decode": {"mean": "10 s", "kind": "lognormal", "spread": 0.05}}


def fed(given: Mapping[str, Any], seed: int = 0, **layer: str) -> Point:
    """Steps of 0.5 s, or as `layer` has them, of which 4 samples a rank are fed."""
    body = {"name": "body", "parameters": 1, "forward": "0 s", "backward": "0.5 s", **layer}
    (point,) = predict(
        {
            "model": {"layers": [body]},
            "cluster": {"ranks": 2},
            "collective": {"backend": "free"},
            "strategy": {"kind": "ddp"},
            "optimizer": {"kind": "none"},
            "batch": {"per_device": 4},
            "seed": seed,
            "input": dict(given),
        }
    ).points
    assert isinstance(point, Point)
    return point


def test_bursts_of_a_loader_without_anything_random_are_no_sample() -> None:
    point = fed(LOADER)
    assert point.step_time_s == pytest.approx(40 / 14)
    assert point.interval.causes == {}
    assert "sampling" in fed(DRAWN).interval.causes


def test_sampling_of_fed_steps_is_how_far_other_seeds_lie() -> None:
    points = [fed(DRAWN, seed) for seed in range(8)]
    spread = 1.645 * stdev(one.step_time_s for one in points)
    said = sum(one.interval.high - one.interval.low for one in points) / 16
    assert 0.5 < said / spread < 4.0


def test_training_faster_does_not_lengthen_steps_that_wait_for_random_batches() -> None:
    given = {**DRAWN, "decode": {"mean": "10 s", "kind": "lognormal", "spread": 1e-6}}
    usual, fast = fed(given), fed(given, backward="0.1 s")
    assert (usual.step_time_s, fast.step_time_s) == pytest.approx((40 / 14, 40 / 14), rel=1e-5)


def test_so_long_a_queue_is_followed_or_refused_before_it_is_played() -> None:
    long = {**LOADER, "workers": 512, "prefetch": 10_000}
    assert fed({**long, "decode": "1000 s"}).step_time_s == pytest.approx(4_000 / 512)
    with pytest.raises(Refused, match=r"input: .* 5,120,000 ahead would take about"):
        fed({**long, "in_order": False})
    with pytest.raises(Refused, match=r"input: .* batches of 2 loaders .*less prefetch"):
        fed({**long, "decode": DRAWN["decode"]})


def test_the_memory_of_a_dgx_a100_is_that_of_systems_with_its_gpus() -> None:
    machine = load_machine("dgx-a100")
    assert (machine.device.memory, machine.host_memory) == (80 * 2**30, 2e12)
