"""What is fitted on published runs reaches predictions and intervals as documented."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest

from dpsim.cases.case import Case
from dpsim.cases.variant import scaled, with_micro_batches, without_communication
from dpsim.cases.work import (
    FEW_PARAMETERS,
    LASTING,
    MANY_PARAMETERS,
    MOST_SPREAD,
    contended,
    large_share,
)
from dpsim.core import constants
from dpsim.core.constants import Constant, shipped
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.models.compute import DEFAULT_EFFICIENCY
from dpsim.models.convolutions import BEFORE_AMPERE
from dpsim.predict.level import level_of
from dpsim.predict.player import play
from dpsim.predict.point import Causes, Point
from dpsim.predict.prediction import predict
from dpsim.predict.uncertainty import REPEATED, efficiency_interval, interval
from dpsim.predict.widths import (
    DECODED,
    DOUBTED,
    FAR,
    LEAST_OVER,
    MOST_OVER,
    changed_range,
    compute_range,
    fed,
    newer,
    overhead,
    reference,
    step_range,
)
from dpsim.variability import expected_maximum

FITTED = shipped("training")
RUN: dict[str, Any] = {
    "model": {"huggingface": "bert-base-uncased", "sequence_length": 128},
    "cluster": {"machine": "dgx-a100", "ranks": 8},
    "strategy": {"kind": "ddp"},
    "batch": {"per_device": 64},
    "precision": {"compute": "fp16"},
}


def case(**sections: Any) -> Case:
    data: dict[str, Any] = {
        "model": {"name": "resnet50"},
        "cluster": {"machine": "dgx-1v", "ranks": 8},
        "strategy": {"kind": "ddp"},
        "batch": {"per_device": 64},
        "precision": {"parameters": "fp32", "compute": "fp16"},
        "engine": "vectorised",
    }
    return Case(load(data | sections, Path(), "x").scenario, Path())


def bert(ranks: int, compute: str = "fp16", **cluster: Any) -> Case:
    model = {"huggingface": "bert-base-uncased", "sequence_length": 128}
    precision = {"parameters": "fp32", "compute": compute}
    machine = {"machine": "dgx-1v", "ranks": ranks, **cluster}
    return case(model=model, cluster=machine, precision=precision)


def test_every_constant_has_a_value_an_error_a_meaning_and_a_source() -> None:
    for name in ("training", "nccl", "collective_error"):
        for key, constant in shipped(name).items():
            assert isinstance(constant, Constant), key
            assert math.isfinite(constant.value), key
            assert len(constant.meaning) > 10, key
            assert len(constant.fitted_on) > 20, key


def test_the_share_of_peak_is_that_of_generation_and_dtype() -> None:
    shifted = {"name": "swin_t"}  # no convolutions to speak of
    assert case(model=shifted).pace.efficiency() == FITTED["volta.half.efficiency"].value
    fp32 = case(model=shifted, precision={"parameters": "fp32", "compute": "fp32"})
    assert fp32.pace.efficiency() == FITTED["volta.fp32.efficiency"].value
    assert case(compute={"efficiency": 0.25}).pace.efficiency() == 0.25
    assert case().pace.efficiency() == BEFORE_AMPERE
    unknown = case(cluster={"machine": "mi300x-8", "ranks": 8}, precision={"compute": "bf16"})
    assert unknown.pace.efficiency() == DEFAULT_EFFICIENCY


@pytest.mark.parametrize(
    ("machine", "share"), [("tpu-v5p", 0.73), ("tpu-v4", 0.76), ("tpu-v6e", 0.5)]
)
def test_language_models_reach_on_tpus_what_their_maker_publishes(
    machine: str, share: float
) -> None:
    there = {"cluster": {"machine": machine, "ranks": 8}, "precision": {"compute": "bf16"}}
    llama = {"huggingface": "llama-3-8b", "sequence_length": 2048}
    there |= {"collective": {"backend": "ici"}}
    assert case(model=llama, **there).pace.efficiency() == pytest.approx(share)
    assert case(**there).pace.efficiency() == DEFAULT_EFFICIENCY  # images


@pytest.mark.parametrize(
    ("model", "machine", "kept"),
    [
        ("llama-3-8b", "dgx-h100", 0.92), ("llama-3-8b", "dgx-h200", 0.92),
        ("llama-3-8b", "h20-8", 1.0), ("llama-3-8b", "dgx-a100", 1.0), ("gpt2", "dgx-h100", 1.0),
    ],
)  # fmt: skip
def test_products_of_large_models_keep_less_on_hopper(
    model: str, machine: str, kept: float
) -> None:
    """Not where power does not bind, nor of small models."""
    there = {"cluster": {"machine": machine, "ranks": 8}, "precision": {"compute": "bf16"}}
    found = case(model={"huggingface": model, "sequence_length": 1024}, **there)
    share = 0.79 if machine == "h20-8" else 0.70
    assert found.pace.efficiency() == pytest.approx(share * kept)


def test_ranks_wait_for_the_slowest_of_them() -> None:
    """Without contention a step's compute grows by s E[max of N], and nothing else changes."""
    alone, together = (
        case(
            cluster={"machine": "dgx-1v", "ranks": 8},
            compute={"spread": s, "contention": 0.0},
            strategy={"kind": "ddp"},
        )
        for s in (0.0, 0.1)
    )
    assert together.script.waiting == pytest.approx(1.0 + 0.1 * expected_maximum(8))
    assert alone.script.waiting == 1.0
    amd = case(cluster={"machine": "mi300x-8", "ranks": 8}, precision={"compute": "bf16"})
    assert amd.script.waiting == 1.0  # the spread was fitted on NVIDIA's devices
    free = [play(without_communication(c)).step_time for c in (alone, together)]
    assert free[1] / free[0] == pytest.approx(together.script.waiting, rel=0.01)


def test_variability_that_is_given_replaces_the_spread() -> None:
    assert case(variability={"jitter": 0.02}).script.waiting == 1.0
    large = case(batch={"per_device": 256})
    share = spread_after(large.batches.step_seconds)
    assert large.script.waiting == pytest.approx(1.0 + share * expected_maximum(8))


def spread_after(seconds: float) -> float:
    """Of ranks that differ lastingly, and by what comes and goes, after so much compute."""
    return math.hypot(LASTING, FITTED["gpu.spread"].value / math.sqrt(seconds))


def test_ranks_differ_the_less_the_longer_they_compute() -> None:
    """What comes and goes adds up to the root of the time; steps of milliseconds are bounded."""
    one, four = (case(batch={"per_device": 256, "accumulation": n}) for n in (1, 4))
    seconds = one.batches.step_seconds
    assert four.script.spread == pytest.approx(spread_after(4 * seconds), rel=1e-3)
    assert scaled(one, 4.0).script.spread == pytest.approx(spread_after(4 * seconds))
    assert case(batch={"per_device": 1}).script.spread == MOST_SPREAD
    assert case(compute={"spread": 0.5}).script.spread == 0.5


@pytest.mark.parametrize(("two", "eight"), [(160.0 / 2, 632.0 / 8), (181.0 / 2, 716.0 / 8)])
def test_with_synthetic_data_ranks_differ_by_what_lasts(two: float, eight: float) -> None:
    """ResNet-152 on P100, images/s of each GPU (tensorflow/docs at 7c365021,
    site/en/r1/guide/performance/benchmarks.md, NVIDIA DGX-1, synthetic, batches of 32 and 64)."""
    synthetic = {"input": {"synthetic": True}}
    made_up = [case(batch={"per_device": n}, **synthetic) for n in (1, 256)]
    assert [one.script.spread for one in made_up] == [LASTING, LASTING]
    pairs = [
        [case(cluster={"machine": "dgx-1v", "ranks": n}, **given).script.waiting for n in (2, 8)]
        for given in ({}, synthetic)
    ]
    varied, alike = (many / few for few, many in pairs)
    assert alike == pytest.approx(two / eight, abs=0.002)
    assert varied > two / eight + 0.01
    assert case(compute={"spread": 0.5}, **synthetic).script.spread == 0.5


def test_fewer_micro_batches_of_a_step_are_played_with_its_spread() -> None:
    """Else long steps were no straight lines of their micro-batches."""
    whole = case(batch={"per_device": 64, "accumulation": 64})
    assert with_micro_batches(whole, 2).script.spread == whole.script.spread < MOST_SPREAD / 2


def test_kernels_of_large_models_lose_less_beside_collectives() -> None:
    device = case().device
    small, large = (FITTED[f"nccl.contention{end}"].value for end in ("", ".large"))
    assert large < small
    between = math.sqrt(FEW_PARAMETERS * MANY_PARAMETERS)
    shares = {1e6: 0.0, FEW_PARAMETERS: 0.0, between: 0.5, 1e12: 1.0}
    for parameters, share in shares.items():
        assert large_share(parameters) == pytest.approx(share)
        assert contended("nccl", device, share) == pytest.approx(small + share * (large - small))
    assert case().script.contention == small
    assert contended("gloo", device, 0.0) == 0.0
    mixtral = {"huggingface": "mixtral-8x7b-v0.1", "sequence_length": 512}
    assert case(model=mixtral).script.contention == small  # the products of experts are small


def test_a_calibrated_interval_is_that_of_the_learned_widths() -> None:
    """At the calibrated count repeats differ by 3 %; at another one the learned widths hold."""
    one = bert(1)
    at = interval(one, play(one), 1)
    assert at.causes == {"run to run": REPEATED}
    eight = scaled(bert(8), 1.5)  # slower than predicted: nothing is drawn in at the fast end
    causes = interval(eight, play(eight), 1).causes
    assert causes["run to run"] == compute_range(eight, True)
    assert set(causes) == {"run to run", "collectives (prior)", "departure"}
    fast, slow = FITTED["interval.run.fast"].value, FITTED["interval.run.slow"].value
    assert causes["run to run"] == pytest.approx((1.0 / fast, slow))


def test_only_images_inside_a_node_have_an_input_pipeline() -> None:
    loss = FITTED["interval.images.slow"].value - 1.0
    images = case()
    causes = interval(images, play(images), 1).causes
    assert causes["input pipeline"] == pytest.approx((1.0, 1.0 + 3 * loss))
    nodes = case(cluster={"machine": "dgx-1v", "ranks": 32})
    assert "input pipeline" not in interval(nodes, play(nodes), 8).causes
    words = bert(8)
    assert "input pipeline" not in interval(words, play(words), 1).causes


def test_a_node_that_takes_few_images_loses_less_to_decoding() -> None:
    """Nothing where every host decodes as many, all where any may be too slow, and by the logarithm
    in between; the larger pictures of a model of unknown layers count as they take longer."""
    images = case()
    first, last = DECODED
    node = 8 * max(images.shares)
    assert fed(images, node / first) == 0.0
    assert fed(images, node / last) == pytest.approx(1.0)
    assert fed(images, node / math.sqrt(first * last)) == pytest.approx(0.5)
    assert fed(bert(8), 1e-3) == 0.0
    unknown = case(model={"name": "scaled", "like": "resnet50", "parameters": 44_000_000})
    times = math.sqrt(last / first)
    assert fed(scaled(unknown, times), node / first) == pytest.approx(0.5)
    loss = FITTED["interval.images.slow"].value - 1.0
    few = case(cluster={"machine": "dgx-1v", "ranks": 2}, batch={"per_device": 64})
    share = fed(few, play(few).step_time)
    assert 0.2 < share < 0.8
    causes = interval(few, play(few), 1).causes
    assert causes["input pipeline"] == pytest.approx((1.0, 1.0 + share * loss))


def test_a_loader_that_is_no_limit_leaves_the_interval() -> None:
    images, told = case(), case(input={"limiting": False})
    unsaid, said = interval(images, play(images), 1), interval(told, play(told), 1)
    assert play(told).step_time == play(images).step_time
    assert said.causes == {k: v for k, v in unsaid.causes.items() if k != "input pipeline"}
    assert said.low == unsaid.low
    assert said.high < unsaid.high
    with pytest.raises(Refused, match=r"input\.limiting: by how much"):
        case(input={"limiting": True})


def test_without_calibration_a_step_may_be_off_by_what_whole_steps_are() -> None:
    for one in (bert(1), bert(64, inter_node_bandwidth="10 Gbit/s"), case(), bert(8)):
        found = interval(one, played := play(one), None)
        low, high = step_range(one, played.step_time)
        assert found.low / played.step_time == pytest.approx(low)
        assert found.high / played.step_time == pytest.approx(high)
        assert set(found.causes) >= {"compute (prior)", "overheads (prior)"}


def test_a_step_is_the_less_sure_the_longer_it_takes_over_its_multiplications() -> None:
    """The logarithm of 1 / MFU, between an MFU of 0.61 and one of 0.08; as much as counts at all
    for devices of which no runs tell."""
    one = bert(1)
    assert one.device is not None
    bare = one.model.flop_per_sample() * one.global_batch / one.device.peak_for("fp16")
    for times in (2.0, 5.0, 10.0):
        assert overhead(one, times * bare) == pytest.approx(math.log(times) - LEAST_OVER)
    assert overhead(one, 1.2 * bare) == 0.0
    assert overhead(one, 40.0 * bare) == MOST_OVER - LEAST_OVER
    any_, over = (FITTED[f"interval.compute.{name}.slow"].value for name in ("any", "overhead"))
    wide = math.hypot(math.log(any_), (math.log(5.0) - LEAST_OVER) * math.log(over))
    assert step_range(one, 5.0 * bare)[1] == pytest.approx(math.exp(wide))
    model = {"huggingface": "bert-base-uncased", "sequence_length": 128}
    amd = case(model=model, cluster={"machine": "mi300x-8", "ranks": 1})
    assert overhead(amd, 1e-3) == overhead(amd, 1e3) == MOST_OVER - LEAST_OVER


def test_compute_alone_may_be_off_as_a_step_of_nothing_else() -> None:
    eight = bert(8)
    assert compute_range(eight, False) == step_range(eight, eight.batches.step_seconds)
    assert compute_range(scaled(eight, 3.0), False) == pytest.approx(compute_range(eight, False))


def test_what_lies_far_from_the_calibrated_run_is_less_sure() -> None:
    """Fixed global batch: two doublings of ranks are two halvings of a rank's samples, of which
    one counts."""
    found, plain = scaled(case(batch={"global": 512}), 3.5), scaled(case(), 3.5)
    causes = interval(found, play(found), 2).causes
    fast, slow = (FITTED[f"interval.batch.{end}"].value for end in ("fast", "slow"))
    assert causes["another batch"] == pytest.approx((1 / fast, slow))
    assert "another batch" not in interval(plain, play(plain), 2).causes
    told = interval(plain, play(plain), 2, batches=-0.5).causes
    assert told["another batch"] == pytest.approx((fast**-0.5, slow**0.5))


def test_ranks_that_share_a_model_are_less_sure_where_they_were_not_measured() -> None:
    def causes(repeated: bool = False, fitted: Causes | None = None, **parallel: int) -> Causes:
        machine = {"machine": "dgx-1v", "ranks": 8}
        model = {"huggingface": "bert-base-uncased", "sequence_length": 128}
        one = case(model=model, cluster=machine, parallel=parallel)
        return interval(scaled(one, 1.5), play(one), 8, repeated=repeated, fitted=fitted).causes

    slow = FITTED["interval.split.slow"].value
    assert slow > 1.05
    for sharing in ({"tensor": 2}, {"pipeline": 2}):
        assert causes(**sharing)["split model"][1] == slow
    assert causes(context=2)["split model"][1] == slow
    assert "split model" not in causes()
    assert "split model" not in causes(fitted={"run to run": (0.95, 1.05)}, tensor=2)
    assert "split model" not in causes(repeated=True, tensor=2)


def test_a_calibrated_prediction_is_the_less_sure_the_farther_from_linear_scaling() -> None:
    """Up to a fifth, from which on it can be wrong by all that its overheads say."""
    eight = scaled(bert(8), 1.5)
    played = play(eight)
    over = overhead(eight, played.step_time)
    assert over > 0
    fast, slow = (FITTED[f"interval.departure.{end}"].value for end in ("fast", "slow"))
    for way, share in ((-0.1, 0.5), (0.05, 0.25), (FAR, 1.0), (1.0, 1.0)):
        linear = played.step_time * math.exp(-way)
        causes = interval(eight, played, 2, linear=linear).causes
        much = share * over
        assert causes["departure"] == pytest.approx((fast**-much, slow**much))
    assert "departure" not in interval(eight, played, 2, linear=played.step_time).causes
    assert "departure" not in interval(eight, played, 8, linear=1.0).causes


def test_devices_after_ampere_are_less_sure_without_calibration() -> None:
    """Fewer runs on them were learned from; of other makers' none was."""
    a100, h100, mi300 = (
        case(cluster={"machine": name, "ranks": 1}, precision={"compute": "bf16"})
        for name in ("dgx-a100", "dgx-h100", "mi300x-8")
    )
    assert [newer(one) for one in (a100, h100, mi300)] == [False, True, True]
    assert h100.device is not None
    bare = h100.model.flop_per_sample() * h100.global_batch / h100.device.peak_for("bf16")
    any_, new = (FITTED[f"interval.compute.{name}.fast"].value for name in ("any", "newer"))
    low = step_range(h100, bare)[0]
    assert low == pytest.approx(math.exp(-math.hypot(math.log(any_), math.log(new))))


def test_linear_scaling_keeps_what_a_rank_does_in_a_second() -> None:
    """Half the samples of a rank are half the step, on however many ranks."""
    measured = reference(bert(2), 0.3)
    assert measured.linear(bert(2)) == pytest.approx(0.3)
    assert measured.linear(bert(64)) == pytest.approx(0.3)
    two, eight = case(batch={"global": 512}), case(batch={"global": 128})
    assert reference(two, 0.4).linear(eight) == pytest.approx(0.1)


def test_only_a_measured_run_itself_is_as_sure_as_runs_repeat() -> None:
    """On as many ranks another batch, strategy, dtype, device and other kernels were not measured;
    what changes nothing that is modelled was."""
    measured = load({**RUN, "calibrate": {"step_time": "90 ms"}}, Path(), "x")
    level = level_of(measured)

    def causes(**sections: Any) -> Causes:
        loaded = load(RUN | sections, Path(), "x")
        return predict(loaded, level).points[0].interval.causes

    assert causes()["run to run"] == REPEATED
    slower = {"machine": "dgx-a100", "ranks": 8, "inter_node_bandwidth": "25 Gbit/s"}
    assert causes(cluster=slower, engine="event")["run to run"] == REPEATED  # of one node
    away = tuple(FITTED[f"interval.run.{end}"].value for end in ("fast", "slow"))
    for other in (
        {"batch": {"per_device": 32}},
        {"batch": {"per_device": 32, "accumulation": 2}},
        {"strategy": {"kind": "horovod"}},
        {"precision": {"parameters": "fp32", "compute": "fp32"}},
        {"execution": {"compile": True}},
    ):
        assert causes(**other)["run to run"] == (1 / away[0], away[1]), other
    moved = causes(cluster={"machine": "dgx-h100", "ranks": 8})
    assert "compute (prior)" in moved
    assert "run to run" not in moved


def test_half_of_what_another_device_or_dtype_changes_may_be_wrong() -> None:
    """No more than without a measurement; other counts, batches and what is computed again change
    nothing of it, and linear scaling changes with it."""
    measured, sums = reference(bert(8), 0.1), {"per_device": 64, "accumulation": 2}
    assert measured.changed(bert(64)) == 0.0
    for same in (case(batch={"per_device": 32}), case(batch=sums), case(recompute="full")):
        assert reference(case(), 0.1).changed(same) == 0.0
    fp32 = bert(8, "fp32")
    changed = measured.changed(fp32)
    paces = [one.pace.uncalibrated_seconds(64, 0) for one in (fp32, bert(8))]
    assert changed == pytest.approx(math.log(paces[0] / paces[1]))
    low, high = compute_range(fp32, False)
    assert changed_range(fp32, 0.1, 1.0) == pytest.approx((math.exp(-0.05), math.exp(0.05)))
    assert changed_range(fp32, 0.1, 0.5)[1] == pytest.approx(0.5 + 0.5 * math.exp(0.05))
    assert changed_range(fp32, 9.0, 1.0) == changed_range(fp32, -9.0, 1.0) == (low, high)
    assert measured.linear(fp32) == pytest.approx(0.1 * math.exp(changed))


def test_a_case_is_carried_from_the_measured_run_of_the_most_similar_batch() -> None:
    """Of a rank, however many ranks there are."""
    points = [{"ranks": 8, "step_time": "60 ms", "per_device": 64},
              {"ranks": 8, "step_time": "420 ms", "per_device": 512}]  # fmt: skip
    level = level_of(load({**RUN, "calibrate": {"points": points}}, Path(), "x"))
    assert level is not None
    for ranks, size in itertools.product((8, 64), (64, 512)):
        there = {"cluster": {"machine": "dgx-a100", "ranks": ranks}, "batch": {"per_device": size}}
        assert level.reference(case(**(RUN | there))).samples == size


def test_a_calibrated_step_far_longer_than_predicted_may_have_been_that_run_alone() -> None:
    eight, name = bert(8), "doubted calibration"
    first, last = DOUBTED

    def causes_of(found: Case, at: int) -> Any:
        return interval(found, play(found), at).causes

    assert name not in causes_of(scaled(eight, first), 2)
    between = causes_of(scaled(eight, math.sqrt(first * last)), 2)[name]
    assert between == pytest.approx(((first * last) ** -0.25, 1.0))  # half way, half of it
    level = 2.0 * last
    assert causes_of(scaled(eight, level), 2)[name] == pytest.approx((1.0 / level, 1.0))
    assert name not in causes_of(scaled(eight, level), 8)
    known = {"run to run": (1.0, 1.0)}
    doubted = {**known, name: (0.1, 1.0)}
    assert efficiency_interval(known, doubted) == (1.0, 1.0)  # both are of that run
    size = {"name": "scaled", "like": "resnet50", "parameters": 40_000_000}
    unknown = scaled(case(model=size), level)  # a level says nothing where compute is not known
    assert name not in causes_of(unknown, 2)


@pytest.mark.parametrize("slower", [1.0, 1.3])
def test_a_measured_step_does_not_make_devices_faster(slower: float) -> None:
    """VGG-16 over 10 Gbit/s is far from linear scaling; no farther down than without the measured
    step do intervals reach, and causes still make up all of them."""
    vgg = {"model": {"name": "vgg16"}, "cluster": {"machine": "rack-10gbe", "nodes": 16}}
    bare = case(**vgg)
    own = interval(bare, play(bare), None)
    calibrated = scaled(bare, slower)
    linear = play(calibrated).step_time / 3
    found = interval(calibrated, play(calibrated), 1, linear=linear)
    assert found.low == pytest.approx(own.low, rel=1e-3 if slower == 1.0 else 0.3)
    assert found.low >= own.low * (1 - 2e-3)
    ends = [math.log(min(ends)) for ends in found.causes.values() if min(ends) < 1]
    assert math.exp(-math.hypot(*ends)) * play(calibrated).step_time == pytest.approx(found.low)


def test_causes_add_in_quadrature_of_their_logarithms() -> None:
    eight = bert(8)
    found = interval(eight, played := play(eight), 1)
    for end, ends in ((found.low, 0), (found.high, 1)):
        logs = [math.log(cause[ends]) for cause in found.causes.values()]
        assert abs(math.log(end / played.step_time)) == pytest.approx(math.hypot(*logs))


@pytest.mark.parametrize("name", ["training", "nccl", "collective_error"])
def test_constants_are_written_as_they_are_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(constants.text("a head\nof two lines", shipped(name)), "utf-8")
    assert dict(constants.load(tmp_path / "x.yaml")) == dict(shipped(name))


LAYER = {"name": "a", "parameters": 1_000_000, "forward": "1 ms", "backward": "2 ms"}


@pytest.mark.parametrize(
    ("cluster", "more", "causes"),
    [
        ({"machine": "two-rtx3090", "ranks": 1}, {}, {"run to run"}),
        ({"machine": "two-rtx3090", "ranks": 2}, {},
         {"run to run", "collectives (prior)", "departure"}),
        ({"machine": "two-rtx3090", "ranks": 2}, {"collective": {"backend": "ideal_ring"}},
         {"run to run"}),
        ({"ranks": 2}, {"collective": {"backend": "ideal"}, "calibrate": {"step_time": "9 ms"}},
         {"run to run"}),
        ({"ranks": 2}, {"collective": {"backend": "ideal"}}, set()),
    ],
)  # fmt: skip
def test_an_interval_has_no_width_only_where_nothing_is_uncertain(
    cluster: dict[str, Any], more: dict[str, Any], causes: set[str]
) -> None:
    """Durations given for a machine were measured once; on another day they are others."""
    scenario = {"model": {"layers": [LAYER]}, "cluster": cluster, "strategy": {"kind": "ddp"}}
    answer = predict(load({**scenario, **more}, Path(), "test")).answer
    point = answer.points[0]
    assert isinstance(point, Point)
    assert set(point.interval.causes) == causes
    said = any("intervals are the numbers themselves" in text for text in answer.warnings)
    assert (point.interval.low < point.step_time_s < point.interval.high) == bool(causes)
    assert said == (not causes)


@pytest.mark.parametrize(("step", "warned"), [("40 ms", False), ("300 ms", True), ("10 ms", True)])
def test_a_calibration_far_from_all_published_runs_is_said(step: str, warned: bool) -> None:
    """9 of 10 lie within the interval of uncalibrated compute."""
    scenario = {
        "model": {"name": "resnet50"},
        "cluster": {"machine": "dgx-1v", "ranks": 1},
        "strategy": {"kind": "ddp"},
        "batch": {"per_device": 32},
        "precision": {"parameters": "fp32", "compute": "fp16"},
        "calibrate": {"step_time": step},
    }
    found = predict(load(scenario, Path(), "test"))
    low, high = compute_range(found.outcomes[0].case, False)
    assert found.level is not None
    assert (not low <= found.level.scale <= high) == warned
    assert any("calibrated compute is x" in text for text in found.answer.warnings) == warned
