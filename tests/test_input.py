"""What feeds the ranks: loaders as they work, cores and storage that they share, rates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsim
from dpsim.cases.mixing import SampleDraws
from dpsim.compile.loaders import Supply
from dpsim.compile.loaders.torch import Torch
from dpsim.core import plugins
from dpsim.core.record import Refused, build
from dpsim.describe.scenario import load, read, to_data
from dpsim.machines.cores import Cores
from dpsim.machines.storage import Storage, load_storage, storage_names
from dpsim.measurements.recorder.loaders import measure
from dpsim.models.timed_loader import parse
from dpsim.planning.knobs import knob_of
from dpsim.play.feeding import Epochs, feed
from dpsim.predict.document import from_json
from dpsim.predict.point import Point
from dpsim.predict.prediction import predict
from dpsim.report.explained import last_step
from dpsim.report.measured_schema import LoaderTimes, StepsRecord
from dpsim.report.pipeline import gaps, rows_of
from dpsim.report.sentences import sentences
from dpsim.report.trace import trace
from dpsim.variability.draws import stream


def toy(given: Mapping[str, Any], ranks: int = 1, **more: Any) -> dict[str, Any]:
    """A step of 2 s that `given` feeds."""
    layer = {"name": "body", "parameters": 1, "forward": "1 s", "backward": "1 s"}
    return {
        "model": {"layers": [layer]},
        "cluster": {"ranks": ranks},
        "collective": {"backend": "free"},
        "strategy": {"kind": "ddp"},
        "optimizer": {"kind": "none"},
        "input": dict(given),
        **more,
    }


def fed(given: Mapping[str, Any], ranks: int = 1, **more: Any) -> Point:
    """The one point of the toy."""
    (point,) = predict(toy(given, ranks, **more)).points
    assert isinstance(point, Point)
    return point


TORCH = {"loader": "torch", "workers": 2, "decode": "3 s"}
LUSTRE = {"kind": "lustre", "bandwidth": "100 MB/s"}
READING = {"loader": "torch", "workers": 4, "sample_bytes": "100 MB"}
#: four samples train for 1.4 s
SHORT: dict[str, Any] = {
    "model": {"layers": [{"name": "b", "parameters": 1, "forward": "0 s", "backward": "0.35 s"}]}
}


# -- PyTorch's DataLoader -------------------------------------------------------------------------


def test_workers_make_whole_batches_alone_and_hand_them_over_in_order() -> None:
    shown = fed({**TORCH, "samples": 6}).input
    assert shown is not None
    assert shown.starts == pytest.approx((3, 5, 7, 9, 11, 13))
    assert shown.epoch_s == pytest.approx(15)


def test_a_loader_of_which_no_time_is_said_is_free_and_says_so() -> None:
    """A rate says all."""
    bare = {"loader": "torch", "workers": 2}
    given = {"bare": bare, "collated": {**bare, "collate": "1 ms"}, "timed": TORCH,
             "rate": {"rate": "8 samples/s"}}  # fmt: skip
    free = "preparing a sample takes this loader no time"
    said = [name for name, one in given.items() if free in " ".join(predict(toy(one)).warnings)]
    assert said == ["bare"]


def test_one_slow_batch_holds_up_those_behind_it() -> None:
    slow = {**TORCH, "samples": 6, "slow_batches": {2: "12 s"}}
    in_order, loose = fed(slow).input, fed({**slow, "in_order": False}).input
    assert in_order is not None
    assert in_order.starts == pytest.approx((3, 5, 15, 17, 19, 21))
    assert loose is not None
    assert loose.starts == pytest.approx((3, 5, 7, 9, 15, 18))  # torch: ids 1, 0, 3, 4, 2, 5


@pytest.mark.parametrize(
    ("workers", "seconds", "step"),
    [(0, 3.0, 5.0), (1, 3.0, 3.0), (2, 3.0, 2.0), (2, 8.0, 4.0), (3, 8.0, 8 / 3), (8, 3.0, 2.0)],
)
def test_a_settled_step_is_the_longer_of_training_and_a_batch_over_the_workers(
    workers: int, seconds: float, step: float
) -> None:
    given = {"loader": "torch", "workers": workers, "decode": f"{seconds} s"}
    point = fed(given, ranks=2)
    assert point.step_time_s == pytest.approx(step)
    assert point.input is not None
    assert point.input.exposed_input_s == pytest.approx(step - 2.0)
    parts = point.parts
    total = parts.compute_s + parts.exposed_communication_s + parts.bubble_s + parts.stall_s
    assert total == pytest.approx(step)
    assert (point.bottleneck == "data_loading") == (step > 2.0)


@pytest.mark.parametrize("kind", ["torch", "tf_data", "dali"])
@pytest.mark.parametrize(("prefetch", "takes"), [(1, 1.0), (2, 1.0), (2, 3.0)])
def test_a_settled_step_is_the_longer_of_the_loader_s_own_time_and_taking_with_training(
    kind: str, prefetch: int, takes: float
) -> None:
    given = {"loader": kind, "workers": 2, "prefetch": prefetch, "decode": "9 s"}
    point = fed({**given, "take": f"{takes} s"})
    assert point.input is not None
    assert point.step_time_s == pytest.approx(max(point.input.input_s, takes + 2.0))


def one_by_one(
    workers: int, prefetch: int, seconds: list[float], step: float, take: float
) -> list[float]:
    """Starts of steps of a DataLoader, worker by worker: a queue of its own for each, and another
    batch is asked for once one has been taken, which takes `take`."""
    queues: list[list[int]] = [[] for _ in range(workers)]
    free, done, asked, turn, now = [0.0] * workers, {}, {}, 0, 0.0
    handed = 0

    def hand(at: float) -> None:
        nonlocal handed, turn
        if handed < len(seconds):
            queues[turn].append(handed)
            asked[handed] = at
            begin = max(free[turn], at)
            free[turn] = done[handed] = begin + seconds[handed]
            handed, turn = handed + 1, (turn + 1) % workers

    for _ in range(workers * prefetch):
        hand(0.0)
    starts = []
    for batch in range(len(seconds)):
        now = max(now, done[batch]) + take
        hand(now)
        starts.append(now)
        now += step
    return starts


@pytest.mark.parametrize("seed", range(12))
def test_heavy_tails_start_steps_as_an_independent_loop_has_it(seed: int) -> None:
    chance = np.random.default_rng(seed)
    workers, prefetch = int(chance.integers(1, 6)), int(chance.integers(1, 5))
    seconds = (chance.pareto(1.5, 60) + 0.1).tolist()
    step, take = float(chance.choice([0.1, 0.5, 2.0])), float(chance.choice([0.0, 0.3]))
    found = feed(
        Supply(workers, workers * prefetch),
        lambda batch, number: np.array([seconds[batch]]),
        [step] * 60,
        Epochs(),
        take,
    )
    assert found.starts == pytest.approx(one_by_one(workers, prefetch, seconds, step, take))


def test_a_worker_that_is_asked_for_one_batch_waits_until_the_last_has_been_taken() -> None:
    given = {"loader": "torch", "workers": 1, "prefetch": 1, "decode": "3 s", "take": "1 s"}
    ordered, loose = fed(given).input, fed({**given, "in_order": False}).input
    assert ordered is not None
    assert loose is not None
    assert ordered.starts[:4] == loose.starts[:4] == pytest.approx((4, 8, 12, 16))


def test_ranks_in_step_wait_for_the_slowest_loader() -> None:
    given = {**TORCH, "decode": {"mean": "3 s", "kind": "lognormal", "spread": 1.0}}
    alone, many = fed(given), fed(given, ranks=16)
    assert 2.0 < alone.step_time_s < many.step_time_s
    assert fed({**given, "workers": 8}, ranks=16).step_time_s < many.step_time_s


def test_every_epoch_fills_the_loader_again() -> None:
    given = {**TORCH, "samples": 6, "start": "4 s"}
    once, kept = fed(given).input, fed({**given, "persistent": True}).input
    assert once is not None
    assert kept is not None
    assert (once.epoch_s, kept.epoch_s) == pytest.approx((15 + 4, 15))
    assert once.starts == kept.starts
    assert (once.first_batch_s, kept.first_batch_s) == pytest.approx((7, 3))


# -- the other loaders ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", plugins.names("loaders"))
def test_a_loader_takes_no_less_than_training_and_its_own_period(kind: str) -> None:
    for workers in (1, 2, 7):
        given = {"loader": kind, "workers": workers, "decode": "1 s"}
        point = fed(given, ranks=2, batch={"per_device": 4})
        assert point.input is not None
        assert point.step_time_s == pytest.approx(max(8.0, point.input.input_s))
    more = fed({"loader": kind, "workers": 8, "decode": "1 s"}, batch={"per_device": 4})
    assert more.step_time_s == pytest.approx(8.0)


def test_dali_s_threads_begin_batches_together_and_tf_data_s_do_not() -> None:
    # five samples of 10 s on four threads: two rounds of DALI, 5/4 of one of tf.data
    given, batch = {"workers": 4, "decode": "10 s"}, {"per_device": 5}
    dali, tf_data = (
        fed({"loader": kind, **given}, batch=batch).input for kind in ("dali", "tf_data")
    )
    assert dali is not None
    assert tf_data is not None
    assert (dali.input_s, tf_data.input_s) == pytest.approx((20.0, 12.5))


def test_threads_that_have_no_turn_leave_their_cores_to_the_others() -> None:
    given = {"loader": "dali", "workers": 4, "decode": "10 s", "training_cores": 0}
    short = {**given, "cores": {"physical": 2, "threads_per_core": 1}}
    found = fed(short, batch={"per_device": 5}).input
    assert found is not None
    assert found.input_s == pytest.approx(5 * 10 / 2)


def test_workers_without_a_shard_do_nothing_and_shuffle_buffers_are_filled_first() -> None:
    given = {"loader": "streaming", "workers": 8, "decode": "3 s"}
    few = fed({**given, "shards": 2}).input
    assert few is not None
    assert few.input_s == pytest.approx(1.5)
    buffered = fed({**given, "shuffle": 9}).input
    assert buffered is not None
    assert buffered.first_batch_s == pytest.approx(30.0)
    with pytest.raises(Refused, match=r"input\.shards: 2 shards leave some of 3 ranks"):
        predict(toy({**given, "shards": 2}, ranks=3)).points  # noqa: B018


# -- samples that differ --------------------------------------------------------------------------

VIDEOS = {
    "mixture": [
        {"share": 4, "decode": "0.2 s"},
        {"share": 1, "decode": {"mean": "2.2 s", "kind": "gamma", "spread": 0.5}},
    ]
}


def test_kinds_of_a_mixture_are_drawn_by_their_shares() -> None:
    """Against numbers drawn in another way: mean and spread of what samples take."""
    kinds = VIDEOS["mixture"]
    made = build(Torch, {"workers": 2, "mixture": kinds}).kinds
    prepared, read = SampleDraws(made, lambda factor: factor).sample(stream(1, "x", 0), 40_000)
    chance = np.random.default_rng(3)
    videos = chance.gamma(4.0, 2.2 / 4.0, 40_000)
    other = np.where(chance.random(40_000) < 0.2, videos, 0.2) / 0.6
    assert prepared.mean() == pytest.approx(1.0, abs=0.02)
    assert prepared.std() == pytest.approx(other.std(), rel=0.04)
    assert np.isclose(prepared, 0.2 / 0.6).mean() == pytest.approx(0.8, abs=0.01)
    assert (read == 1.0).all()


def test_slow_samples_hold_steps_up_as_an_independent_loop_has_it() -> None:
    """Batches of 4 whose mean takes two workers 1.2 s a step, and training 2 s."""
    given = {"loader": "torch", "workers": 2, **VIDEOS}
    slow = fed({**given, "mixture": VIDEOS["mixture"][1:]}, batch={"per_device": 1})
    assert slow.step_time_s == pytest.approx(2.0, rel=0.01)
    point = fed(given, batch={"per_device": 4}, **SHORT)
    chance, means = np.random.default_rng(5), []
    for _ in range(20):
        videos = chance.gamma(4.0, 2.2 / 4.0, (600, 4))
        times = np.where(chance.random((600, 4)) < 0.2, videos, 0.2).sum(axis=1)
        starts = one_by_one(2, 2, times.tolist(), 1.4, 0.0)
        means.append((starts[-1] - starts[100]) / 499)
    assert point.step_time_s == pytest.approx(np.mean(means), rel=0.03)
    assert point.input is not None
    assert point.input.input_s == pytest.approx(1.2)
    assert point.step_time_s > 1.4


def test_large_samples_take_longer_to_read() -> None:
    kinds = [{"share": 1, "sample_bytes": "10 MB"}, {"share": 1, "sample_bytes": "190 MB"}]
    slow = {**LUSTRE, "bandwidth": "40 MB/s"}
    given = {"loader": "torch", "workers": 4, "storage": slow, "mixture": kinds}
    even = fed({**READING, "storage": slow}, batch={"per_device": 4})
    point = fed(given, batch={"per_device": 4})
    assert point.input is not None
    assert even.input is not None
    assert point.input.input_s == pytest.approx(even.input.input_s)  # 100 MB in the mean
    assert len({round(b - a, 6) for a, b in pairwise(point.input.starts)}) > 2


def test_tokenised_text_is_as_many_bytes_as_it_has_tokens() -> None:
    found = predict(read("worked/loader_text", ["input.token_bytes=4 B"])).points[0]
    assert isinstance(found, Point)
    assert found.step_time_s == pytest.approx(2 * 0.65536)


# -- cores ----------------------------------------------------------------------------------------


def test_threads_take_whole_cores_first_and_then_add_a_quarter() -> None:
    cores = Cores(physical=24)
    assert [cores.work(n) for n in (8, 24, 48, 400)] == pytest.approx([8, 24, 30, 30])


def test_workers_of_a_node_share_its_cores_with_each_other_and_with_training() -> None:
    given = {
        "loader": "torch", "workers": 8, "decode": "1 s", "training_cores": 0,
        "cores": {"physical": 24},
    }  # fmt: skip
    sets = ["cluster={machine: dgx-1v, nodes: 2}", "batch.per_device=64"]
    data = to_data(read("quickstart", sets).scenario)
    data = {k: v for k, v in data.items() if k not in ("calibrate", "measured", "sweep")}
    (point,) = predict(load({**data, "input": given}, read("quickstart").base, "x")).points
    assert isinstance(point, Point)
    assert point.input is not None
    # 64 workers of 24 cores with a second thread each: 30 cores' worth, for 8 x 64 samples
    assert point.step_time_s == pytest.approx(8 * 64 / 30, rel=1e-6)
    assert point.input.limit == "cores"
    busier = {**given, "training_cores": 1}
    (other,) = predict(load({**data, "input": busier}, read("quickstart").base, "x")).points
    assert isinstance(other, Point)
    assert other.step_time_s > point.step_time_s


# -- storage --------------------------------------------------------------------------------------


def test_all_nodes_share_a_storage_and_each_has_its_own_drive() -> None:
    for ranks in (1, 4):
        shared = fed({**READING, "storage": LUSTRE}, ranks=ranks)
        own = fed({**READING, "storage": {**LUSTRE, "kind": "nvme"}}, ranks=ranks)
        assert shared.step_time_s == pytest.approx(max(2.0, 1.0 * ranks))
        assert own.step_time_s == pytest.approx(2.0)
    assert shared.bottleneck == "storage"
    assert shared.input is not None
    assert shared.input.read == pytest.approx(1e8)
    assert shared.input.read_needed == pytest.approx(2e8)


def test_what_loaders_read_is_paid_for() -> None:
    """A request for each of four files of 100 MB in 4 s, and 400 GB that are kept."""
    given = {**READING, "storage": LUSTRE, "samples": 4000}
    price = {"per_tb_read": "10 usd", "per_million_reads": "2 usd", "per_tb_month": "73 usd"}
    devices = {"per_device_hour": "1 usd/h"}
    point = fed(given, ranks=4, price={**devices, "storage": price})
    assert point.step_time_s == pytest.approx(4.0)
    assert point.cost is not None
    (item,) = (one for one in point.cost.items if one.name == "storage")
    assert item.usd_per_hour == pytest.approx(0.36 * 10 + 0.0036 * 2 + 0.4 * 73 / 730)
    with pytest.raises(Refused, match=r"price\.storage\.per_tb_read: needs input"):
        fed(TORCH, price={**devices, "storage": {"per_tb_read": "10 usd"}})


def test_requests_limit_small_files_and_shards_need_fewer() -> None:
    storage = {"kind": "nfs", "bandwidth": "10 GB/s", "iops": 10, "latency": "1 ms"}
    given = {"workers": 4, "sample_bytes": "64 KiB", "storage": storage}
    small = fed({"loader": "torch", **given}, ranks=50)
    shards = fed({"loader": "webdataset", **given}, ranks=50)
    assert small.step_time_s == pytest.approx(5.0)
    assert shards.step_time_s == pytest.approx(2.0)


def test_latency_and_requests_at_once_follow_little_s_law() -> None:
    storage = Storage(kind="object", bandwidth=1e12, latency=0.1, concurrency=20)
    assert storage.rate(1.0, 1.0, nodes=3) == pytest.approx(200)
    assert storage.seconds(1e9, 2.0) == pytest.approx(0.2 + 1e-3)


def test_a_cache_holds_what_it_holds_from_the_second_epoch_on() -> None:
    given = {**READING, "storage": LUSTRE, "samples": 100, "cache": "5 GB"}
    first, later = fed({**given, "epoch": "first"}, ranks=4), fed(given, ranks=4)
    assert first.step_time_s == pytest.approx(4.0)
    assert later.step_time_s == pytest.approx(2.0)


@pytest.mark.parametrize("name", storage_names())
def test_bundled_storages_have_sources(name: str, tmp_path: Any) -> None:
    assert load_storage(name, tmp_path).sources["bandwidth"]


# -- rates, intervals, causes ---------------------------------------------------------------------


def test_a_rate_is_of_a_node_and_holds_it_up() -> None:
    loaded = read("quickstart", ["input={rate: 1070 images/s}"])
    points = [p for p in predict(loaded).points if isinstance(p, Point)]
    assert [p.throughput_per_s for p in points[-3:]] == pytest.approx([1070, 2140, 4280])
    assert points[-1].bottleneck == "data_loading"
    assert points[0].throughput_per_s == pytest.approx(802.9, rel=1e-3)


def test_what_is_lost_to_the_loader_is_said_and_what_would_help() -> None:
    shown = predict(toy({**TORCH, "decode": "8 s"}, ranks=2)).explain()["points"][0]
    assert shown["blame"]["causes"][0] == {
        "cause": "input", "loss_s": 2.0, "step_time_without_s": 2.0,
    }  # fmt: skip
    gains = {each["change"]: each["step_time_s"] for each in shown["what_if"]}
    assert gains["twice the workers"] == pytest.approx(2.0)
    assert gains["a loader that is no limit"] == pytest.approx(2.0)


def test_the_wait_for_a_batch_is_seen_in_operations_pictures_and_traces() -> None:
    prediction = predict(toy({**TORCH, "decode": "8 s"}, ranks=2))
    (shown,) = prediction.explain()["points"]
    first, then = shown["critical_path"][:2]
    assert (first["op"], first["start_s"], first["end_s"]) == ("input", 0.0, pytest.approx(2.0))
    assert then["start_s"] == pytest.approx(2.0)
    traced = last_step(prediction)
    assert traced.end == pytest.approx(4.0)
    boxes = rows_of(traced.spans)[1]
    assert (boxes[0].kind, boxes[0].end) == ("input", pytest.approx(2.0))
    assert gaps(boxes, traced.end)[0] == pytest.approx((0.0, 2.0))
    waits = [one for one in trace(traced)["traceEvents"] if "DataLoader" in one["name"]]
    assert [one["dur"] for one in waits] == pytest.approx([2e6, 2e6])


def test_a_plan_says_what_to_give_where_a_storage_is_a_name() -> None:
    scenario = load(toy({**READING, "storage": "s3"}), Path(), "x").scenario
    with pytest.raises(Refused, match=r"input\.storage is a name, 's3'; give its numbers"):
        knob_of(scenario, "input.storage.bandwidth", "--vary")


def test_a_plan_searches_the_time_of_decoding() -> None:
    scenario = load(toy({**TORCH}), Path(), "x").scenario
    knob = knob_of(scenario, "input.decode", "--vary")
    assert (knob.now, knob.setting("2 s")) == (3.0, "2 s")
    drawn = toy({**TORCH, "decode": {"mean": "3 s", "kind": "gamma", "spread": 0.5}})
    with pytest.raises(Refused, match=r"varies at random; .* input\.decode\.mean"):
        knob_of(load(drawn, Path(), "x").scenario, "input.decode", "--vary")


def test_a_wait_for_batches_is_told_from_uneven_work_beyond_the_law() -> None:
    """Three samples on two ranks: two of 2 s on one of them, 3 s by the law, and batches of 12 s
    from two workers every 6 s."""
    given = toy({**TORCH, "decode": "6 s"}, ranks=2, batch={"global": 3})
    shown = predict({**given, "sweep": {"cluster.ranks": [1, 2]}})
    gap = shown.document["laws"]["amdahl"]["gap"]
    assert (gap["input_s"], gap["load_s"]) == pytest.approx((2.0, 1.0))
    (law,) = (one for one in sentences(shown.answer) if "law" in one)
    assert law.endswith("waits for batches 2 s, uneven or less efficient work per rank 1 s.")


@pytest.mark.parametrize(("kind", "seconds"), [("torch", 0.0261), ("dali", 0.0121)])
def test_a_time_that_is_assumed_of_photographs_is_a_cause_by_name(
    kind: str, seconds: float
) -> None:
    """Two workers share 160 photographs a step, which trains for a thousandth of that."""
    quick = {"name": "b", "parameters": 1, "forward": "1 ms", "backward": "0 s"}
    given: dict[str, Any] = {
        "model": {"layers": [quick]}, "batch": {"per_device": 160},
        "cluster": {"machine": "dgx-1v", "ranks": 1},
    }  # fmt: skip
    loader = {"loader": kind, "workers": 2, "training_cores": 0}
    assumed = fed({**loader, "decode": "photograph"}, **given)
    stated = fed({**loader, "decode": f"{seconds} s"}, **given)
    assert assumed.step_time_s == pytest.approx(stated.step_time_s) == pytest.approx(80 * seconds)
    causes = assumed.interval.causes
    assert causes.pop("decode (assumed)") == pytest.approx((0.25, 2.0))
    assert causes.keys() == stated.interval.causes.keys()


def test_a_rate_that_is_assumed_is_a_cause_by_name() -> None:
    machine = {"cluster": {"machine": "dgx-1v", "ranks": 1}}
    assumed = fed({"rate": "0.01 samples/s", "assumed": True}, **machine)
    stated = fed({"rate": "0.01 samples/s"}, **machine)
    assert assumed.step_time_s == stated.step_time_s
    low, high = assumed.interval.causes.pop("rate (assumed)")
    assert low < 1.0 < high == pytest.approx(2.0)
    assert assumed.interval.causes == stated.interval.causes


def test_both_engines_are_fed_alike() -> None:
    given = {**TORCH, "decode": {"mean": "3 s", "kind": "gamma", "spread": 0.5}}
    jitter = {"variability": {"jitter": 0.1, "steps": 50}}
    event, pass_ = (fed(given, ranks=4, engine=name, **jitter) for name in ("event", "vectorised"))
    assert event.step_time_s == pytest.approx(pass_.step_time_s, rel=1e-9)
    assert event.step_time_s > 2.2


def test_a_sweep_over_a_loader_is_each_point_alone() -> None:
    times = [f"{k / 4} s" for k in range(2, 14)]
    swept = predict({**toy(TORCH), "sweep": {"input.decode": times}}).points
    alone = [fed({**TORCH, "decode": each}) for each in times]
    assert [p.step_time_s for p in swept if isinstance(p, Point)] == [p.step_time_s for p in alone]


def test_the_beginnings_of_epochs_are_part_of_a_run() -> None:
    given = {**TORCH, "samples": 6}
    point = fed(given, training={"epochs": 10, "samples_per_epoch": 6})
    assert point.run is not None
    assert point.run.time_s == pytest.approx(10 * 15)


@pytest.mark.parametrize(("persistent", "starts"), [(False, 10), (True, 1)])
def test_workers_that_stay_start_once_in_a_run(persistent: bool, starts: int) -> None:
    given = {**TORCH, "samples": 6, "start": "4 s", "persistent": persistent}
    point = fed(given, training={"epochs": 10, "samples_per_epoch": 6})
    assert point.run is not None
    assert point.run.time_s == pytest.approx(10 * 15 + starts * 4)


def test_a_step_of_synthetic_data_sets_the_level_below_the_loader() -> None:
    slow = {**TORCH, "decode": "8 s"}
    measured = {"calibrate": {"step_time": "1 s", "synthetic": True}}
    point = fed({**TORCH, "decode": "1 s"}, **measured)
    assert (point.step_time_s, fed(slow, **measured).step_time_s) == pytest.approx((1.0, 4.0))
    with pytest.raises(Refused, match=r"shorter than what the loader takes .*synthetic: true"):
        fed(slow, calibrate={"step_time": "1 s"})


def test_a_step_of_synthetic_data_says_nothing_of_a_loader() -> None:
    """Of images, whose loader is unknown: as if one rank had been measured."""
    step = {"step_time": "333 ms", "ranks": 8}
    said, unsaid = (
        read("quickstart", [f"calibrate={measured}", "cluster.ranks=8"])
        for measured in (json.dumps({**step, "synthetic": True}), json.dumps(step))
    )
    found, same = (predict(one).points[-1] for one in (said, unsaid))
    assert found.interval.causes["input pipeline"][1] > 1.4
    assert "input pipeline" not in same.interval.causes
    assert found.step_time_s > 1.02 * same.step_time_s  # real data make ranks differ by more


LOADER = """
import time

class Twice:
    num_workers, prefetch_factor = 0, None
    def __init__(self):
        self.passes = 0
    def __iter__(self):
        self.passes += 1
        for _ in range(40):
            time.sleep(0.012 if self.passes == 1 else 0.004)
            yield [[0.0] * 4, [1] * 4]

def made():
    return Twice()

def short():
    return [[1, 2]] * 3
"""


def test_a_timed_loader_feeds_a_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of four, three times as long in the first pass, by a loader without workers."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_loader_a.py").write_text(LOADER, encoding="utf-8")
    said = list(measure(["own_loader_a:made"], tmp_path / "loader.json", 32))
    assert "batches of 4, 0 workers" in said[0]
    document = json.loads((tmp_path / "loader.json").read_text("utf-8"))
    assert from_json(StepsRecord | LoaderTimes, document) == LoaderTimes(
        "dpsim-loader", 1, parse(json.dumps(document))
    )
    found = parse((tmp_path / "loader.json").read_text("utf-8"))
    assert found.cached >= 0.001
    assert found.cold >= 0.003
    steps = [
        predict(load(toy(given, batch={"per_device": 4}), tmp_path, "x")).step_time_s - 8.0
        for given in ({"record": "loader.json"}, {"record": "loader.json", "epoch": "first"})
    ]
    assert steps == pytest.approx([4 * found.cached, 4 * found.cold])
    with pytest.raises(Refused, match="3 batches; at least 8 are needed"):
        list(measure(["own_loader_a:short"], tmp_path / "other.json", 32))
    assert not (tmp_path / "other.json").exists()


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rate": "0 images/s"}, r"input\.rate: .*0"),
        ({"rate": "-5 images/s"}, r"input\.rate: .*no throughput"),
        ({"rate": "5 tokens/s"}, r"input\.rate: .*have no tokens"),
        ({"limiting": True}, r"input\.limiting: by how much"),
        ({}, "input: needs loader"),
        ({"synthetic": False}, "input: needs loader"),
        ({"synthetic": True, "limiting": False}, "input: has more than one .* or synthetic: true"),
        ({"workers": 8}, r"input\.loader: is missing; one of dali, streaming, tf_data"),
        ({**TORCH, "decode": "photo"}, r"input\.decode\.time: 'photo'"),
        ({"loader": "tf_data", "decode": "photograph"}, r"input\.decode: .*not known of this"),
        ({"loader": "petastorm"}, r"input\.loader: no 'petastorm' in loaders"),
        ({**TORCH, "workers": -1}, r"input\.workers: -1 is not in 0"),
        ({**TORCH, "samples": 0}, r"input\.samples: 0 is not in 1"),
        ({**TORCH, "decode": "-1 ms"}, r"input\.decode\.time: "),
        ({**TORCH, "decode": {"kind": "lognormal", "spread": 1}}, r"input\.decode: needs one of"),
        ({**TORCH, "storage": "nvme"}, r"input\.sample_bytes: is missing"),
        ({**READING, "storage": "tape"}, r"input\.storage: no storage 'tape'"),
        ({**READING, "storage": "local"}, r"input\.storage: no local storage of a cluster"),
        ({"loader": "dali", "decode": "1 ms"}, r"input\.workers: num_threads"),
        ({"record": "none.json"}, r"input\.record: none\.json: there is no such file"),
        ({"rate": "5 images/s", "workers": 3}, r"input\.loader: is missing"),
        ({"limiting": False, "assumed": True}, r"input\.assumed: is of a rate"),
        ({**TORCH, "cache": "1 GB"}, r"input\.cache: needs samples and storage"),
        ({**TORCH, **VIDEOS}, r"input\.decode: is said by each kind of the mixture"),
        ({"loader": "torch", "mixture": []}, r"input\.mixture: is empty"),
        ({"loader": "torch", "mixture": [{"share": 0}]}, r"input\.mixture.*share"),
        ({**TORCH, "token_bytes": "2 B"}, r"input\.token_bytes: .*have no tokens"),
        ({**READING, "token_bytes": "2 B"}, r"input\.token_bytes: says the same"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        predict(load(toy(given), read("quickstart").base, "x")).points  # noqa: B018


def test_more_workers_than_the_memory_of_a_node_are_refused() -> None:
    given = "input={loader: torch, workers: 64, decode: 1 ms, worker_memory: 4 GB}"
    loaded = read("quickstart", ["cluster={machine: dgx-a100, nodes: 1}", given])
    with pytest.raises(Refused, match=r"input\.workers: 512 workers .* 2,048 GB of a node"):
        predict(loaded).points  # noqa: B018
    with pytest.raises(Refused, match=r"input\.node_memory: .* not known"):
        predict(read("quickstart", [given])).points  # noqa: B018
    with pytest.raises(Refused, match=r"input\.workers: 64 workers .* 256 GB .* 1 GB"):
        fed({**TORCH, "workers": 64, "worker_memory": "4 GB", "node_memory": "1 GB"})


def test_a_loader_reads_back_as_it_was_written() -> None:
    decode = {"mean": "8 ms", "kind": "bernoulli", "probability": 0.02, "factor": 20.0}
    for given in (
        {**READING, "storage": LUSTRE, "decode": decode, "slow_batches": {2: "12 s"}},
        {"loader": "dali", "workers": 8, "gpu_decode": "1 ms"},
        {"loader": "torch", "workers": 2, **VIDEOS},
        {"limiting": False, "copy": {"sample_bytes": "1 MB", "memory": "pageable"}},
        {"rate": "1070 images/s"},
        {"limiting": False},
        {"synthetic": True},
    ):
        scenario = load(toy(given), read("quickstart").base, "x").scenario
        again = load(to_data(scenario), read("quickstart").base, "x").scenario
        assert again.input == scenario.input


def test_the_python_door_takes_loaders_too() -> None:
    assert dpsim.predict(toy(TORCH)).points[0].step_time_s == pytest.approx(2.0)
