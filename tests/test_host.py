"""The host: kernels are issued one by one, ahead of the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsim.cases.case import Case
from dpsim.compile.critical import critical_path
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.describe.sections import Calibrate
from dpsim.predict.blame import blame
from dpsim.predict.explain import what_if
from dpsim.predict.level import level
from dpsim.predict.player import play
from dpsim.predict.prediction import predict

SMALL: dict[str, Any] = {
    "model": {"huggingface": "bert-base-uncased.json", "sequence_length": 128},
    "cluster": {"machine": "dgx-a100", "ranks": 1},
    "strategy": {"kind": "ddp"},
    "batch": {"per_device": 1},
    "precision": {"compute": "bf16"},
}
NO_KERNEL = ("serial", "wait")


def case_of(**changes: Any) -> Case:
    return Case(load({**SMALL, **changes}, Path(), "test").points[0], Path())


def time_of(**changes: Any) -> float:
    return play(case_of(**changes)).step_time


def kernels_of(case: Case, passes: int = 3) -> int:
    """Kernels of a step by hand: forward once, backward twice as many, and one of anything else."""
    ops = case.programs.cast(None).programs[0].ops
    others = [op for op in ops if op.kind not in ("forward", "backward", *NO_KERNEL)]
    return passes * sum(layer.kernels for layer in case.model.layers) + len(others)


def device_seconds(case: Case) -> float:
    return sum(op.seconds for op in case.programs.cast(None).programs[0].ops)


# -- who is faster --------------------------------------------------------------------------------


def test_a_small_model_at_batch_1_is_host_bound_and_captured_graphs_mend_it() -> None:
    """At 8 us a kernel the host needs longer than the device; a graph is one launch."""
    case = case_of(host={"launch": "8 us"})
    assert time_of(host={"launch": "8 us"}) == pytest.approx(8e-6 * kernels_of(case), rel=1e-9)
    graph = time_of(host={"launch": "8 us", "captured": True})
    assert graph == pytest.approx(device_seconds(case), rel=1e-9)
    assert graph < 0.75 * time_of(host={"launch": "8 us"})


def test_a_large_batch_hides_the_host() -> None:
    """The host runs ahead: neither launches nor graphs change the step."""
    large = {"per_device": 256}
    free = time_of(batch=large, host={"launch": "0 s"})
    for host in ({"launch": "8 us"}, {"launch": "8 us", "captured": True}):
        assert time_of(batch=large, host=host) == pytest.approx(free, rel=1e-9)


@settings(deadline=None)
@given(st.just(0.0) | st.floats(1e-12, 50.0), st.integers(1, 64))
def test_a_step_takes_at_least_the_longer_and_at_most_both(launch: float, batch: int) -> None:
    case = case_of(host={"launch": f"{launch!r} us"}, batch={"per_device": batch})
    host = launch * 1e-6 * kernels_of(case)
    found, device = play(case).step_time, device_seconds(case)
    assert max(host, device) * (1 - 1e-9) <= found <= (host + device) * (1 + 1e-9)


def test_fusion_leaves_fewer_kernels_to_issue() -> None:
    case = case_of(host={"launch": "40 us", "kernels": 0.5})
    layers = 3 * sum(layer.kernels for layer in case.model.layers)
    others = kernels_of(case) - layers
    found = time_of(host={"launch": "40 us", "kernels": 0.5})
    assert found == pytest.approx(40e-6 * (0.5 * layers + others), rel=1e-9)


def test_recomputation_launches_forward_again() -> None:
    """Of the layers that are computed again, and only of them, forward is issued twice."""
    plain, full = case_of(host={"launch": "1 ms"}), case_of(host={"launch": "1 ms"},
                                                            recompute="full")  # fmt: skip
    again = [layer for layer in full.model.layers if layer.activations_full < layer.activations]
    more = time_of(host={"launch": "1 ms"}, recompute="full") - play(plain).step_time
    assert again
    assert more == pytest.approx(1e-3 * sum(layer.kernels for layer in again), rel=1e-6)


def test_micro_batches_are_issued_each() -> None:
    """100 micro-batches, of which 98 are played as one: all their kernels are issued."""
    many = {"per_device": 1, "accumulation": 100}
    case = case_of(batch=many, host={"launch": "1 ms"})
    layers = 3 * sum(layer.kernels for layer in case.model.layers)
    others = kernels_of(case) - layers
    found = time_of(batch=many, host={"launch": "1 ms"})
    assert found == pytest.approx(1e-3 * (100 * layers + others), rel=1e-9)


def test_a_host_that_waits_for_the_step_cannot_run_ahead_of_the_next() -> None:
    """With a graph, one launch stands before every step; without, the first layer's kernels do."""
    large = {"per_device": 256}
    ahead = time_of(batch=large, host={"launch": "8 us", "captured": True})
    waits = time_of(batch=large, host={"launch": "8 us", "captured": True, "waits": True})
    assert waits == pytest.approx(ahead + 8e-6, rel=1e-9)
    case = case_of(batch=large, host={"launch": "8 us", "waits": True})
    first = case.programs.cast(None).programs[0].ops[0]
    eager = time_of(batch=large, host={"launch": "8 us", "waits": True})
    assert eager == pytest.approx(ahead + first.issue, rel=1e-9)


# -- the rest of the answer -----------------------------------------------------------------------


def test_left_out_nothing_is_issued() -> None:
    assert not case_of().programs.cast(None).programs[0].host_matters


def test_the_host_is_named_as_bottleneck_as_cause_and_as_cure() -> None:
    case = case_of(host={"launch": "20 us"})
    played = play(case)
    points = predict(load({**SMALL, "host": {"launch": "20 us"}}, Path(), "t")).points
    assert points[0]["bottleneck"] == "host"
    found = {c.change: c.step_time_s for c in what_if(case, played.step_time)}
    assert found["captured graphs"] == pytest.approx(device_seconds(case), rel=1e-9)
    lost = {found.cause: found.loss_s for found in blame(case, played.step_time).causes}
    assert lost["host"] == pytest.approx(played.step_time - device_seconds(case), rel=1e-6)
    gaps = played.step_time - sum(s.end - s.start for s in critical_path(played.timeline.last))
    assert gaps > 0.5 * played.step_time  # the path shows where the device waits for the host


@pytest.mark.parametrize(
    "strategy",
    [{"kind": "ddp"}, {"kind": "fsdp"}, {"kind": "fsdp1"}, {"kind": "zero", "stage": 2},
     {"kind": "zero", "stage": 3}, {"kind": "megatron"}],
)  # fmt: skip
def test_both_engines_and_all_strategies_issue_every_kernel(strategy: dict[str, Any]) -> None:
    rest: dict[str, Any] = {
        "strategy": strategy, "cluster": {"machine": "dgx-a100", "ranks": 4},
        "host": {"launch": "0.2 ms"}, "compute": {"contention": 0.0, "spread": 0.0},
    }  # fmt: skip
    case = case_of(**rest)
    ops = case.programs.cast(None).programs[0].ops
    issued = sum(op.issue for op in ops if op.kind in ("forward", "backward"))
    kernels = 3 * sum(layer.kernels for layer in case.model.layers)
    assert issued == pytest.approx(0.2e-3 * kernels)
    times = [time_of(**rest, engine=engine) for engine in ("event", "auto")]
    assert times[0] == pytest.approx(times[1], rel=1e-9)
    assert times[0] >= sum(op.issue for op in ops) * (1 - 1e-9)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"host": {"captured": True}}, "needs launch"),
        ({"host": {"kernels": 0.5}}, "needs launch"),
        ({"host": {"waits": True}}, "needs launch"),
        ({"host": {"launch": "5 us"}, "strategy": {"kind": "horovod"}}, "for horovod"),
        ({"host": {"launch": "5 us"}, "strategy": {"kind": "data_parallel"}}, "for data_parallel"),
        ({"host": {"launch": "5 us", "waits": True}, "parallel": {"pipeline": 2},
          "batch": {"per_device": 1, "accumulation": 4},
          "cluster": {"machine": "dgx-a100", "nodes": 1}}, "tensor, pipeline, context"),
    ],
)  # fmt: skip
def test_what_is_not_modelled_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        case_of(**changes).programs.cast(None)


def test_ranks_that_share_a_model_take_their_launches_layer_by_layer() -> None:
    """However small their parts: four ranks of tensor parallelism issue what one does."""
    whole = {"cluster": {"machine": "dgx-a100", "ranks": 4}, "host": {"launch": "50 us"}}
    for parallel in ({"tensor": 4}, {"tensor": 2, "pipeline": 2}):
        case = case_of(**whole, parallel=parallel)
        for layer, times in zip(case.model.layers, case.pace.times(1), strict=True):
            kernels = layer.kernels, layer.launched_backward
            assert (times.forward, times.backward) >= tuple(50e-6 * count for count in kernels)
    fused = case_of(
        **{**whole, "host": {"launch": "50 us", "kernels": 0.5}}, parallel={"tensor": 4}
    )
    assert play(fused).step_time < 0.7 * play(case_of(**whole, parallel={"tensor": 4})).step_time


@pytest.mark.parametrize(("launch", "power"), [("1 us", 0.0), ("10 ms", 1.0)])
def test_a_longer_step_tells_of_launches_as_far_as_they_bound_it(launch: str, power: float) -> None:
    """Of work that hides every launch nothing is told of them, so they stay as they are elsewhere;
    launches that hide all work are what is longer."""
    case = case_of(
        cluster={"machine": "dgx-a100", "ranks": 4}, host={"launch": launch}, parallel={"tensor": 4}
    )
    found = level(case, Calibrate(step_time=1.5 * play(case).step_time))
    assert found.issuing == pytest.approx(power, abs=1e-6)
    least = found.of(case).pace.least * found.scale
    assert least == pytest.approx(case.pace.least * found.scale**power, rel=1e-9)
    shorter = level(case, Calibrate(step_time=0.8 * play(case).step_time))
    assert shorter.issuing == 1.0
    assert play(shorter.of(case)).step_time == pytest.approx(0.8 * play(case).step_time, rel=1e-8)


def test_layers_with_durations_of_their_own_are_issued_already() -> None:
    layers = [{"name": n, "parameters": 8, "forward": "1 ms", "backward": "2 ms"} for n in "ab"]
    case = case_of(
        model={"layers": layers}, parallel={"pipeline": 2}, host={"launch": "5 us"},
        cluster={"machine": "dgx-a100", "ranks": 2},
        batch={"per_device": 1, "accumulation": 2},
    )  # fmt: skip
    with pytest.raises(Refused, match="state their durations"):
        case.programs.cast(None)
