"""What a prediction promises: laws, gaps, memory, calibration, intervals, accounting."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import dpsim
from dpsim.cases.case import Case
from dpsim.core.record import Refused
from dpsim.describe.scenario import load, read
from dpsim.machines.machine import load_machine
from dpsim.models.architectures.resnet50 import ResNet50
from dpsim.predict.bottleneck import slowed
from dpsim.predict.laws import amdahl
from dpsim.predict.point import Point
from dpsim.predict.prediction import predict
from dpsim.predict.unused import unused

TOY: dict[str, Any] = {
    "model": {
        "layers": [
            {"name": "a", "parameters": 3_000_000, "forward": "1 ms", "backward": "2 ms"},
            {"name": "b", "parameters": 9_000_000, "forward": "2 ms", "backward": "4 ms"},
        ]
    },
    "cluster": {"ranks": 4},
    "collective": {"backend": "ideal_ring", "latency": "20 us", "bandwidth": "5 GB/s"},
    "strategy": {"kind": "ddp"},
    "optimizer": {"kind": "none"},
    "batch": {"per_device": 8},
}
RESNET: dict[str, Any] = {
    "model": {"name": "resnet50"},
    "cluster": {"machine": "v100-1x100g", "ranks": 1},
    "strategy": {"kind": "ddp"},
    "precision": {"parameters": "fp32", "compute": "fp16"},
    "optimizer": {"kind": "momentum"},
    "batch": {"per_device": 64},
}


def answer(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return predict(load({**base, **changes}, Path(), "test")).document


@pytest.mark.parametrize("serial", [0.0, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("engine", ["event", "vectorised"])
def test_free_communication_and_a_serial_part_scale_as_amdahl_says(
    serial: float, engine: str
) -> None:
    """S = 1/(s + (1-s)/N), to 1e-9, for a fixed global batch."""
    points = answer(
        TOY,
        collective={"backend": "free"},
        batch={"global": 512},
        host={"serial": f"{serial} s"},
        sweep={"cluster.ranks": [1, 2, 8, 64, 512]},
        engine=engine,
    )["points"]
    share = serial / (serial + 512 * 0.009)
    for point in points:
        assert point["speedup"] == pytest.approx(amdahl(share, point["ranks"]), rel=1e-9)


@pytest.mark.parametrize("batch", [{"global": 96}, {"global": 100}, {"per_device": 8}])
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_the_gap_to_the_law_splits_into_parts_that_sum_to_it(
    batch: dict[str, int], strategy: str
) -> None:
    document = answer(
        TOY,
        batch=batch,
        strategy={"kind": strategy},
        variability={"jitter": "5 %", "steps": 20},
        host={"serial": "3 ms"},
        sweep={"cluster.ranks": [1, 2, 3, 6, 24]},
    )
    for point, parts in zip(document["points"], document["laws"]["amdahl"]["points"], strict=True):
        total = sum(value for key, value in parts.items() if key not in ("ranks", "law_s"))
        assert point["step_time_s"] - parts["law_s"] == pytest.approx(total, abs=1e-9)


def test_uneven_shares_are_load_and_the_largest_share_sets_the_pace() -> None:
    """100 samples on 24 ranks: some have 5, the step takes as long as 5 samples do."""
    document = answer(
        TOY, batch={"global": 100}, collective={"backend": "free"}, sweep={"cluster.ranks": [1, 24]}
    )
    assert document["points"][1]["step_time_s"] == pytest.approx(5 * 0.009, rel=1e-12)
    load_s = document["laws"]["amdahl"]["gap"]["load_s"]
    assert load_s == pytest.approx((5 - 100 / 24) * 0.009, rel=1e-9)


def test_a_batch_smaller_than_the_ranks_is_an_error_at_that_point_only() -> None:
    points = answer(TOY, batch={"global": 8}, sweep={"cluster.ranks": [4, 16]})["points"]
    assert points[0]["step_time_s"] > 0
    assert "8 leaves some of 16 ranks without a sample" in points[1]["error"]


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_the_four_parts_of_a_step_sum_to_it(ranks: int) -> None:
    point = answer(TOY, cluster={"ranks": ranks}, variability={"jitter": "3 %", "steps": 12})[
        "points"
    ][0]
    parts = [point[k] for k in ("compute_s", "exposed_communication_s", "bubble_s", "stall_s")]
    assert min(parts) >= -1e-12
    assert sum(parts) == pytest.approx(point["step_time_s"], rel=1e-12)


@pytest.mark.parametrize("ranks", [1, 2, 5, 64])
def test_payload_is_what_a_ring_sends(ranks: int) -> None:
    """DDP 2(N-1)/N x 4 Psi bytes; FSDP 3(N-1)/N x 4 Psi."""
    share = (ranks - 1) / ranks * 4 * 12_000_000
    for kind, units in (("ddp", 2), ("fsdp", 3)):
        point = answer(TOY, cluster={"ranks": ranks}, strategy={"kind": kind})["points"][0]
        assert point["bytes_sent_per_rank"] == pytest.approx(units * share, rel=1e-15)
        assert point["padding_bytes_per_rank"] == 0


def test_a_step_is_never_faster_than_its_bound() -> None:
    for ranks in (1, 2, 8, 32):
        point = answer(TOY, cluster={"ranks": ranks})["points"][0]
        assert point["step_time_s"] >= point["bound_s"] * (1 - 1e-12)


def test_one_measured_number_sets_the_level_and_keeps_the_proportions() -> None:
    points = answer(RESNET, calibrate={"step_time": "120 ms"}, sweep={"cluster.ranks": [1, 8]})[
        "points"
    ]
    assert points[0]["step_time_s"] == pytest.approx(0.120, rel=1e-9)
    by_rate = answer(RESNET, calibrate={"throughput": f"{64 / 0.12!r} images/s"})["points"]
    assert by_rate[0]["step_time_s"] == pytest.approx(0.120, rel=1e-9)


def test_calibration_at_many_ranks_leaves_communication_alone() -> None:
    points = answer(
        RESNET, calibrate={"step_time": "150 ms", "ranks": 32}, sweep={"cluster.ranks": [1, 32]}
    )["points"]
    assert points[1]["step_time_s"] == pytest.approx(0.150, rel=1e-9)
    assert points[0]["step_time_s"] < 0.150


def test_a_step_as_long_as_its_loader_takes_tells_no_level() -> None:
    """64 images at 160 images/s take 0.4 s, whatever compute takes below that."""
    for step in ("400 ms", "401 ms", "403 ms"):
        fed = {"rate": "160 images/s"}
        points = answer(RESNET, input=fed, calibrate={"step_time": step})["points"]
        alone = answer(RESNET, input=fed)["points"]
        assert points[0]["compute_s"] == alone[0]["compute_s"]


def test_a_level_is_found_beyond_where_the_loader_bounds_the_step() -> None:
    """64 images take the loader 0.4 s, whatever compute takes below that; rounding is no slope."""
    for rate in ("160 images/s", "159.7 images/s", "160.3 images/s"):
        fed = {"rate": rate}
        points = answer(RESNET, input=fed, calibrate={"step_time": "600 ms"})["points"]
        assert points[0]["step_time_s"] == pytest.approx(0.6, rel=1e-9)


@pytest.mark.parametrize(
    ("step", "message"),
    [("1 us", "shorter than what communication and the optimizer alone"), ("5 ms", "peak")],
)
def test_impossible_measurements_are_refused(step: str, message: str) -> None:
    with pytest.raises(Refused, match=message):
        answer(RESNET, calibrate={"step_time": step})


@pytest.mark.parametrize("share", [1.25, 2.0])
def test_convolutions_in_fp32_may_beat_the_direct_peak_and_the_answer_says_so(share: float) -> None:
    """Winograd's algorithm; beyond 2.25 times, or for anything else, it is refused."""
    peak = load_machine("v100-1x100g").device.peak_for("fp32")
    images = share * peak / ResNet50().model().flop_per_sample()
    fp32 = {"precision": {"compute": "fp32"}, "calibrate": {"throughput": f"{images!r} images/s"}}
    found = answer(RESNET, **fp32)
    assert found["points"][0]["mfu"] == pytest.approx(share, rel=0.02)
    (said,) = [text for text in found["warnings"] if "Winograd" in text]
    assert "of Tesla V100-SXM2-16GB's peak in fp32" in said


@pytest.mark.parametrize(
    ("changes", "per_second"),
    [
        ({"precision": {"compute": "fp32"}}, "1700 images"),
        ({"precision": {"compute": "fp16"}}, "7000 images"),
        ({"model": {"huggingface": "gpt2-xl", "sequence_length": 1024}}, "2 sequences"),
    ],
)
def test_beyond_what_an_algorithm_explains_a_calibration_is_refused(
    changes: dict[str, Any], per_second: str
) -> None:
    changes = {"precision": {"compute": "fp32"}, **changes}
    with pytest.raises(Refused, match=r"the measured step would need .* peak in fp"):
        answer(RESNET, calibrate={"throughput": f"{per_second}/s"}, **changes)


@pytest.mark.parametrize(("compute", "faster"), [("fp16", False), ("fp32", True)])
def test_a_faster_dtype_is_proposed_where_the_device_has_one_and_a_smaller_batch_always(
    compute: str, faster: bool
) -> None:
    with pytest.raises(Refused, match="a step may have had fewer than 4,096 samples") as refused:
        answer(
            RESNET, batch={"per_device": 4096}, calibrate={"step_time": "320 ms"},
            precision={"compute": compute},
        )  # fmt: skip
    assert ("faster dtype" in str(refused.value)) == faster


def test_without_a_measurement_the_interval_is_wide_and_says_why() -> None:
    free, tied = (
        answer(RESNET, **extra)["points"][0]
        for extra in ({}, {"calibrate": {"step_time": "120 ms"}})
    )
    width = [
        (p["step_time_high_s"] - p["step_time_low_s"]) / p["step_time_s"] for p in (free, tied)
    ]
    assert width[0] > 0.5 > 0.1 > width[1] > 0
    assert "compute (prior)" in free["interval_causes"]


def test_a_toy_on_an_ideal_network_has_no_uncertainty() -> None:
    point = answer(TOY)["points"][0]
    assert point["step_time_low_s"] == point["step_time_s"] == point["step_time_high_s"]
    assert point["mfu"] is None
    assert point["fits"] is None


def test_mixed_precision_adam_keeps_sixteen_bytes_a_parameter_and_ddp_a_copy_of_gradients() -> None:
    """350 M fp32 parameters with Adam: 5.6 GB of states, 7.0 GB with DDP's buckets, and 1.4 GB
    while the multi-tensor Adam takes roots."""
    model = {
        "layers": [{"name": "x", "parameters": 350_000_000, "forward": "1 ms", "backward": "1 ms"}]
    }
    for view, size in ((False, 8.4e9), (True, 7.0e9)):
        strategy = {"kind": "ddp", "gradient_as_bucket_view": view}
        found = answer(TOY, model=model, strategy=strategy, optimizer={"kind": "adam"})["points"][0]
        assert found["memory_bytes"] == size
    sharded = answer(
        TOY,
        model=model,
        strategy={"kind": "fsdp"},
        optimizer={"kind": "adam", "master_weights": True},
        precision={"parameters": "bf16", "compute": "bf16"},
    )["points"][0]
    parts = sharded["memory_parts"]
    states = parts["parameters"] + parts["gradients"] + parts["optimizer states"]
    assert states == pytest.approx(16 * 350e6 / 4)


def test_jitter_costs_the_maximum_over_ranks_not_the_mean() -> None:
    """E[max of 8 standard normals] = 1.4236: 3 % jitter costs 4.27 % of the compute."""
    quiet = answer(TOY, cluster={"ranks": 8}, collective={"backend": "free"})["points"][0]
    noisy = answer(
        TOY,
        cluster={"ranks": 8},
        collective={"backend": "free"},
        variability={"jitter": "3 %", "steps": 4000},
        engine="vectorised",
    )["points"][0]
    loss = noisy["step_time_s"] / quiet["step_time_s"] - 1
    assert loss == pytest.approx(0.03 * 1.4236, rel=0.05)
    assert noisy["bottleneck"] == "compute"


def test_a_slow_rank_slows_everybody_and_is_named() -> None:
    slow = answer(TOY, cluster={"ranks": 4}, variability={"slow_ranks": {3: 3.0}})["points"][0]
    assert slow["bottleneck"] == "stragglers"


@pytest.mark.parametrize(("contention", "limit"), [(0.0, "compute"), (9.0, "inter_node_network")])
def test_what_collectives_cost_compute_is_the_networks(contention: float, limit: str) -> None:
    """Backward of b takes 1 ms, its all-reduce 3 ms, beside which a's backward (4 ms) goes on ten
    times as slowly: 0.3 ms of it in 3 ms.  Of 1 + 3 + 3.7 ms of compute 2.7 ms are lost to the
    all-reduce, and a's own takes 3 ms."""
    half = {"parameters": 7864320, "forward": "0 s"}  # 30 MiB
    scenario = {
        "model": {
            "layers": [
                {"name": "a", "backward": "4 ms", **half},
                {"name": "b", "backward": "1 ms", **half},
            ]
        },
        "cluster": {"ranks": 2},
        "collective": {"backend": "ideal", "latency": "0 s", "bandwidth": "10 MiB/ms"},
        "strategy": {"kind": "ddp"},
        "optimizer": {"kind": "none"},
        "compute": {"contention": contention},
    }
    found = predict(load(scenario, Path(), "test"))
    point, outcome = found.points[0], found.outcomes[0]
    assert isinstance(point, Point)
    assert outcome.played is not None
    lost = slowed(outcome.case, outcome.played.timeline.last)
    assert lost == pytest.approx(0.3 * contention * 1e-3)
    assert point.step_time_s == pytest.approx(8e-3 + lost)
    assert point.bottleneck == limit


def test_a_faster_network_is_never_slower_here() -> None:
    times = [
        answer(TOY, collective={**TOY["collective"], "bandwidth": f"{b} GB/s"})["points"][0][
            "step_time_s"
        ]
        for b in (1, 2, 4, 8, 16)
    ]
    assert times == sorted(times, reverse=True)


def test_all_times_scale_together() -> None:
    """Every fixed time x 2 and every rate / 2: the step takes exactly twice as long."""
    slow = {
        "model": {
            "layers": [
                {**layer, "forward": f, "backward": b}
                for layer, f, b in zip(
                    TOY["model"]["layers"], ("2 ms", "4 ms"), ("4 ms", "8 ms"), strict=True
                )
            ]
        },
        "collective": {"backend": "ideal_ring", "latency": "40 us", "bandwidth": "2.5 GB/s"},
    }
    one, two = answer(TOY)["points"][0], answer(TOY, **slow)["points"][0]
    assert two["step_time_s"] == pytest.approx(2 * one["step_time_s"], rel=1e-13)


def test_explaining_replays_single_changes_and_follows_the_critical_path() -> None:
    prediction = predict(load({**TOY, "cluster": {"ranks": 8}}, Path(), "test"))
    point = prediction.explain()["points"][0]
    changes = {c["change"]: c["step_time_s"] for c in point["what_if"]}
    assert changes["twice the bandwidth"] < prediction.step_time_s
    assert changes["free communication"] == pytest.approx(8 * 0.009, rel=1e-9)
    path = point["critical_path"]
    assert path[-1]["end_s"] == pytest.approx(prediction.step_time_s, rel=1e-9)
    for before, after in pairwise(path):
        assert after["start_s"] == pytest.approx(before["end_s"], abs=1e-12)
    assert math.isclose(
        sum(op["end_s"] - op["start_s"] for op in path), prediction.step_time_s, rel_tol=1e-9
    )


def test_the_quickstart_is_calibrated_on_one_gpu_only() -> None:
    document = predict(dpsim.read("quickstart")).document
    roles = {m["ranks"]: m["role"] for m in document["measured"]}
    assert roles == {
        1: "calibrated",
        4: "predicted",
        8: "predicted",
        16: "predicted",
        32: "predicted",
    }
    assert all(m["inside_interval"] for m in document["measured"])


def one_layer(**changes: Any) -> dict[str, Any]:
    layer = {"name": "a", "parameters": 1000, "forward": "0 s", "backward": "10 ms"}
    ideal = {"backend": "ideal", "latency": "1 ms"}
    return {
        **TOY,
        "model": {"layers": [layer]},
        "collective": ideal,
        "batch": {"per_device": 1},
        **changes,
    }


def test_a_model_without_any_compute_is_all_communication() -> None:
    layer = {"name": "a", "parameters": 1000, "forward": "0 s", "backward": "0 ms"}
    document = answer(one_layer(model={"layers": [layer]}))
    assert document["points"][0]["step_time_s"] == pytest.approx(0.001, rel=1e-12)
    assert document["points"][0]["bottleneck"] == "network_latency"
    assert document["laws"]["karp_flatt"] == []


def test_the_slow_rank_is_the_critical_one_though_all_end_together() -> None:
    """Rank 3 computes for 15 ms and never stalls; the others wait for it."""
    prediction = predict(load(one_layer(variability={"slow_ranks": {3: 1.5}}), Path(), "test"))
    point = prediction.explain()["points"][0]
    assert point["critical_rank"] == 3
    assert point["compute_s"] == pytest.approx(0.015, rel=1e-12)
    assert point["stall_s"] == pytest.approx(0.0, abs=1e-12)


def test_communication_that_lags_behind_the_step_is_exposed_and_on_the_path() -> None:
    """The find_unused map of step k keeps the communicator busy until 10 ms into step k + 1."""
    toy = one_layer(
        model={"layers": [{"name": "a", "parameters": 1000, "forward": "0 s", "backward": "1 ms"}]},
        collective={"backend": "ideal", "latency": "10 ms"},
        strategy={"kind": "ddp", "find_unused_parameters": True},
    )
    point = predict(load(toy, Path(), "test")).explain()["points"][0]
    assert point["step_time_s"] == pytest.approx(0.020, rel=1e-12)
    assert point["exposed_communication_s"] == pytest.approx(0.019, rel=1e-9)
    assert [op["name"] for op in point["critical_path"]] == ["map (previous step)", "AR0", "O"]


def test_the_gap_knows_a_late_rank_of_another_role() -> None:
    """5 samples on 2 ranks, the second three times slower: its 60 ms are on the path."""
    toy = one_layer(cluster={"ranks": 2}, batch={"global": 5}, variability={"slow_ranks": {1: 3.0}})
    path = predict(load(toy, Path(), "test")).explain()["points"][0]["critical_path"]
    assert [(op["name"], op["rank"]) for op in path][:2] == [("B0", 1), ("AR0", 1)]


def test_laws_are_given_only_where_nothing_but_the_ranks_varies() -> None:
    mixed = answer(one_layer(sweep=[{"batch.per_device": 1}, {"batch.per_device": 8}]))
    assert mixed["laws"] == {}


def test_the_bound_holds_for_fast_draws_too() -> None:
    for seed in range(5):
        point = answer(one_layer(cluster={"ranks": 1}, seed=seed, variability={"jitter": "20 %"}))
        found = point["points"][0]
        assert found["bound_s"] <= found["step_time_s"] * (1 + 1e-12)


def test_the_interval_of_the_serial_fraction_holds_it() -> None:
    serial = {
        "strategy": {"kind": "fsdp"},
        "host": {"serial": "20 ms"},
        "optimizer": {"kind": "adam"},
    }
    law = answer({**RESNET, **serial}, sweep={"cluster.ranks": [2, 8]})["laws"]["amdahl"]
    assert law["low"] <= law["serial_fraction"] <= law["high"]


def test_a_static_graph_launches_nothing_before_its_first_backward_has_ended() -> None:
    layers = [
        {"name": "p0", "parameters": 0, "forward": "0 s", "backward": "10 ms"},
        {"name": "p1", "parameters": 131072, "forward": "0 s", "backward": "5 ms"},
    ]
    toy = one_layer(
        model={"layers": layers},
        collective={"backend": "ideal", "latency": "1 ms", "bandwidth": "10 MiB/ms"},
        strategy={"kind": "ddp", "static_graph": True},
        iteration=1,
    )
    assert answer(toy)["points"][0]["step_time_s"] == pytest.approx(0.01605, rel=1e-12)


def test_rounds_are_played_by_the_event_engine_whatever_they_cost() -> None:
    points = answer(RESNET, cluster={"machine": "v100-1x100g", "ranks": 8}, detail="rounds")[
        "points"
    ]
    assert points[0]["engine"] == "event"


def test_a_precision_given_in_part_leaves_the_rest_to_the_model() -> None:
    layer = {"name": "a", "parameters": 1000, "forward": "0 s", "backward": "1 ms"}
    base = one_layer(model={"dtype": "bf16", "layers": [layer]})
    whole, part = (
        answer({**base, **x})["points"][0] for x in ({}, {"precision": {"reduce": "fp32"}})
    )
    assert whole["bytes_sent_per_rank"] == part["bytes_sent_per_rank"]


def test_measured_points_of_another_experiment_are_not_scored() -> None:
    document = predict(
        dpsim.read("quickstart", ["cluster.inter_node_bandwidth=10 Gbit/s"])
    ).document
    assert document["measured"] == []
    assert any("measured points are left out" in text for text in document["warnings"])


def test_what_one_rank_took_tells_of_every_network() -> None:
    def said(change: str) -> bool:
        found = predict(dpsim.read("quickstart", [change])).document["warnings"]
        return any("calibrated on a measurement made without" in text for text in found)

    assert not said("cluster.inter_node_bandwidth=25 Gbit/s")
    assert said("batch.per_device=128")


def test_a_sweep_over_machines_says_that_one_at_most_was_measured() -> None:
    def said(sweep: str) -> list[str]:
        found = predict(dpsim.read("quickstart", [f"sweep={sweep}"]))
        return [text for text in found.document["warnings"] if "carried to" in text]

    own, other = "v100-1x100g", "dgx-1v"
    for machines in ([own, other], [other, own]):
        assert said(f"{{cluster.machine: [{', '.join(machines)}]}}") == [
            "calibrate: measured at one cluster.machine at most, and carried to all of "
            + ", ".join(machines)
        ]
    assert not said(f"{{cluster.machine: [{own}]}}")
    assert not said("{cluster.gpus_per_node: [1, 2]}")


@pytest.mark.parametrize(("gbits", "said"), [(200, False), (800, True)])
def test_a_nic_faster_than_its_pcie_is_said(gbits: int, said: bool) -> None:
    """48 GB/s of PCIe in front of every NIC."""
    layer = {"name": "a", "parameters": 1000, "forward": "1 ms", "backward": "2 ms"}
    cluster = {"machine": "dgx-h100", "nodes": 2, "inter_node_bandwidth": f"{gbits} Gbit/s"}
    found = answer({"model": {"layers": [layer]}, "cluster": cluster, "strategy": {"kind": "ddp"}})
    assert any("sends at most 384 Gbit/s" in text for text in found["warnings"]) == said


@pytest.mark.parametrize(
    ("model", "rate"), [("resnet50", "1000 tokens/s"), ("vgg16", "9 sequences/s")]
)
def test_a_throughput_in_a_unit_that_the_model_does_not_have_is_refused(
    model: str, rate: str
) -> None:
    with pytest.raises(Refused, match="does not fit this model"):
        answer(RESNET, model={"name": model}, calibrate={"throughput": rate})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"variability": {"slow_ranks": {9: 3.0}}},
            "variability.slow_ranks: no point has a rank 9",
        ),
        (
            {
                "variability": {"slow_nodes": {9: 2.0}},
                "cluster": {"machine": "dgx-a100", "ranks": 16},
            },
            "variability.slow_nodes: no point has a node 9",
        ),
        (
            {"batch": {"per_device": 1, "per_rank": {99: 4}}},
            "batch.per_rank: no point has a rank 99",
        ),
    ],
)
def test_a_rank_or_node_that_no_point_has_is_warned_about(
    changes: dict[str, Any], said: str
) -> None:
    """And batches are not called uneven for it."""
    warnings = answer(one_layer(**changes))["warnings"]
    assert said in warnings
    assert not any("uneven batches" in text for text in warnings)


def test_uneven_batches_are_told_where_a_rank_has_another_one() -> None:
    batch = {"per_device": 1, "per_rank": {1: 4, 2: 4}}
    warnings = answer(one_layer(batch=batch))["warnings"]
    assert any("uneven batches" in text for text in warnings)


@pytest.mark.parametrize(
    ("cluster", "limit"),
    [
        # a slot of 12 GB/s for a cable of 12.5 GB/s: what leaves the node is what limits
        ({"machine": "v100-1x100g", "nodes": 8}, "inter_node_network"),
        ({"machine": "p3dn.24xlarge", "nodes": 8}, "inter_node_network"),
        ({"machine": "rack-100gbe", "nodes": 1}, "intra_node_network"),
    ],
    ids=str,
)  # fmt: skip
def test_a_slot_that_fits_its_nic_counts_as_the_network(
    cluster: dict[str, Any], limit: str
) -> None:
    layer = {"name": "wide", "parameters": 100_000_000, "forward": "0 s", "backward": "0 s"}
    optimizer = {"kind": "none"}
    found = answer(RESNET, model={"layers": [layer]}, cluster=cluster, optimizer=optimizer)
    assert found["points"][0]["bottleneck"] == limit


@pytest.mark.parametrize("pipeline", [1, 2, 4])
def test_bytes_sent_are_the_mean_over_ranks(pipeline: int) -> None:
    """Of p stages p - 1 send 8 MB forward and p - 1 the same backward, for each of 4
    micro-batches."""
    layers = [{"name": f"l{k}", "forward": "1 ms", "backward": "1 ms", "activation": "8 MB"}
              for k in range(4)]  # fmt: skip
    found = answer(
        TOY,
        model={"layers": layers},
        cluster={"ranks": 4},
        parallel={"pipeline": pipeline},
        batch={"per_device": 1, "accumulation": 4},
    )
    replicas = 4 // pipeline
    sent = replicas * (pipeline - 1) * 2 * 4 * 8e6 / 4
    assert found["points"][0]["bytes_sent_per_rank"] == pytest.approx(sent)


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["strategy={kind: ddp}", "precision.reduce=bf16"], ["precision.reduce"]),
        (["strategy={kind: zero, stage: 2}", "precision.reduce=bf16"], []),
        (["recompute=selective"], ["recompute"]),  # flash attention keeps no scores
        ([], []),
    ],
)
def test_keys_that_change_nothing_are_said_to(sets: list[str], said: list[str]) -> None:
    loaded = dpsim.read("llama3-8b-h100", sets)
    found = list(unused(Case(loaded.points[0], loaded.base)))
    assert [text.split(" changes nothing")[0].split(":")[0] for text in found] == said


@pytest.mark.parametrize(
    ("wide", "reduce", "said"),
    [
        (False, "fp32", "in their own dtype; strategy.grad_reduce_in_fp32: true makes it fp32"),
        (True, "fp32", ""),
        (True, "fp16", "in fp32"),
        (None, "fp32", ""),
        (None, "fp16", "in fp32"),
    ],
)
def test_megatron_has_a_switch_of_its_own_for_gradients(
    wide: bool | None, reduce: str, said: str
) -> None:
    data = {**TOY, "strategy": {"kind": "megatron", "grad_reduce_in_fp32": wide},
            "precision": {"parameters": "bf16", "compute": "bf16", "reduce": reduce}}  # fmt: skip
    loaded = load(data, Path(), "x")
    found = [text for text in unused(Case(loaded.points[0], Path())) if "precision" in text]
    whole = f"precision.reduce changes nothing: megatron sends gradients {said}"
    assert found == ([whole] if said else [])


def test_given_durations_know_no_recomputation_and_no_efficiency() -> None:
    loaded = load({**TOY, "recompute": "full", "compute": {"efficiency": 0.4}}, Path(), "x")
    found = list(unused(Case(loaded.points[0], loaded.base)))
    assert [text.split(" changes nothing")[0] for text in found] == [
        "recompute: full",
        "compute.efficiency",
    ]


BLOCKS = {"huggingface": "qwen2.5-0.5b", "sequence_length": 512}  # of 24 blocks


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ({"kind": "fsdp", "blocks_per_group": 24}, []),
        ({"kind": "fsdp", "blocks_per_group": 25},
         ["strategy.blocks_per_group: 25 is taken as 24"]),
        ({"kind": "accelerate", "distributed_type": "fsdp", "fsdp_version": 2,
          "options": {"blocks_per_group": 99}},
         ["strategy.options.blocks_per_group: 99 is taken as 24"]),
    ],
)  # fmt: skip
def test_groups_of_more_blocks_than_there_are_are_said_to_be_one(
    strategy: dict[str, Any], said: list[str]
) -> None:
    data = {**TOY, "model": BLOCKS, "cluster": {"machine": "dgx-h100", "ranks": 8},
            "collective": None, "strategy": strategy}  # fmt: skip
    loaded = load(data, Path(), "x")
    found = list(unused(Case(loaded.points[0], loaded.base)))
    assert [text.split(",")[0] for text in found] == said


@pytest.mark.parametrize(
    ("more", "said"),
    [({}, "epochs do not end"), ({"samples": 6}, "start in no time"),
     ({"samples": 6, "start": "1 s"}, "")],
)  # fmt: skip
def test_workers_that_stay_are_said_to_change_nothing_without_epochs_or_a_start(
    more: dict[str, Any], said: str
) -> None:
    loader = {"loader": "torch", "workers": 2, "decode": "3 s", "persistent": True, **more}
    loaded = load({**TOY, "input": loader}, Path(), "x")
    found = list(unused(Case(loaded.points[0], loaded.base)))
    assert [said in text for text in found] == [True] * bool(said)


def test_switches_of_stages_and_launches_that_are_not_there_change_nothing() -> None:
    sets = {"parallel": {"blocking_sends": True}, "execution": {"cuda_graphs": True}}
    loaded = load({**TOY, **sets}, Path(), "x")
    found = " ".join(unused(Case(loaded.points[0], loaded.base)))
    assert "parallel.blocking_sends changes nothing" in found
    assert "execution.cuda_graphs changes nothing" in found
    step = [answer(TOY, **more)["points"][0]["step_time_s"] for more in ({}, sets)]
    assert step[0] == step[1]


def test_no_bound_is_above_a_few_random_steps() -> None:
    """Six steps bound by communication, of which the first begins with talk of the one before."""
    times = [("3210 us", "2000 us"), ("3210 us", "310 us"), ("1 ms", "2 ms"), ("3210 us", "2 ms")]
    sizes = (0, 1000, 250_000, [100_000, 64])
    layers = [
        {"name": f"l{k}", "parameters": size, "forward": forward, "backward": backward}
        for k, (size, (forward, backward)) in enumerate(zip(sizes, times, strict=True))
    ]
    scenario = {
        "model": {"layers": layers, "dtype": "fp32"},
        "cluster": {"ranks": 3},
        "collective": {"backend": "ideal_ring", "latency": "900 us", "bandwidth": "80 GB/s"},
        "strategy": {"kind": "fsdp1", "forward_prefetch": False},
        "batch": {"global": 32, "accumulation": 4},
        "optimizer": {"kind": "none"},
        "variability": {
            "steps": 6,
            "jitter": {"kind": "bernoulli", "probability": 0.1, "factor": 3.0},
            "sequence_length": {"spread": 0.4, "cure": "packing"},
        },
        "seed": 771,
    }
    (point,) = predict(load(scenario, Path(), "x")).points
    assert point["bound_s"] <= point["step_time_s"]


def test_a_step_that_another_machine_could_not_have_taken_is_told_where_it_was_not_made(
    cli: Any, tmp_path: Path
) -> None:
    """1.3 s of Llama-3-8B on 8 H100 are 120 % of what 8 A100 multiply at their peak."""
    (tmp_path / "s.yaml").write_text(
        "model: {huggingface: llama-3-8b, sequence_length: 8192}\n"
        "cluster: {machine: dgx-h100, nodes: 1}\nstrategy: {kind: fsdp}\n"
        "precision: {compute: bf16}\nbatch: {per_device: 2}\n"
        "calibrate: {step_time: 1.3 s, ranks: 8}\n",
        encoding="utf-8",
    )
    code, _, said = cli("run", str(tmp_path / "s.yaml"), "--set", "cluster.machine=dgx-a100")
    assert code == 2
    assert "made without --set cluster.machine=dgx-a100" in said
    assert "dpsim sweep with --grid" in said
    assert cli("run", str(tmp_path / "s.yaml"))[0] != 2


def test_a_rate_of_nics_of_which_a_node_has_several_is_said_to_be_of_one() -> None:
    sets = ["sweep=null", "cluster.nodes=2", "cluster.inter_node_bandwidth=45 Gbit/s"]
    said = "is that of one NIC, and a node has 8"
    for more, expected in (([], True), (["cluster.nics_per_node=1"], False)):
        warnings = predict(read("llama3-8b-h100", [*sets, *more])).answer.warnings
        assert any(said in text for text in warnings) == expected
