"""The life of a run: drawn runs against closed forms, against a second player, against others."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from dpsim.core import plugins
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.life.abreast import live
from dpsim.life.course import LABELS, Course, Lives, Outages
from dpsim.life.draws import lifetimes
from dpsim.life.failures import Hazard
from dpsim.life.history import life_of
from dpsim.life.recoveries import Outage, Repair, Setting, Spares
from dpsim.life.recoveries.torchft import TorchFt
from dpsim.life.saving import Saving, daly, expected, young
from dpsim.predict.lived import chances, in_time
from dpsim.predict.point import Point
from dpsim.predict.prediction import Prediction, predict
from dpsim.report.sentences import sentences

SCENARIOS = Path(__file__).resolve().parent.parent / "scenarios"
HOUR, DAY = 3600.0, 86400.0
#: AIReSim's default configuration: mean of 30 runs, their standard deviation, time without failures
AIRESIM_HOURS, AIRESIM_SPREAD, AIRESIM_IDEAL = 9865.97, 33.60, 6144.0
#: 0.1 s a step on 8 nodes of one rank; 1,000,000 steps
TOY: dict[str, Any] = {
    "model": {"layers": [{"name": "a", "parameters": 10**6, "forward": "40 ms",
                          "backward": "60 ms"}]},
    "cluster": {"ranks": 8},
    "collective": {"backend": "free"},
    "strategy": {"kind": "ddp"},
    "optimizer": {"kind": "none"},
    "training": {"samples": 8_000_000},
}  # fmt: skip
BREAKS: dict[str, Any] = {
    "failures": {"node": {"mtbf": "1 d"}, "runs": 40},
    "checkpoint": {"every": "10 min", "write_time": "10 s"},
    "recovery": {"kind": "restart", "detection": "60 s"},
    "startup": {"rendezvous": "30 s"},
}


def of(**changes: Any) -> Prediction:
    data = {**TOY, **BREAKS, **changes}
    given = {key: value for key, value in data.items() if value is not None}
    return predict(load(given, Path(), "test"))


def plain(outage: Outage, **given: Any) -> Course:
    """A course of 8 nodes that fail 8 times a day together and always answer alike."""
    own: dict[str, Any] = {
        "productive": 2 * DAY,
        "nodes": 8,
        "saving": Saving(600.0, 10.0),
        "outages": Outages(outage, outage, outage, outage),
        "hazards": (Hazard("node", 8, DAY, 1),),
    }
    return Course(**{**own, **given})


def drawn(seed: int) -> Course:
    """Any course whose nodes are alike."""
    dice = random.Random(seed)
    pick = dice.choice
    known, up, read = pick([0.0, 5.0, 60.0]), pick([0.0, 30.0, 300.0]), pick([0.0, 40.0])
    keeps, nodes = pick([None, None, 0.0, 7.0]), pick([4, 16])
    hazards = [Hazard("gpu", 8 * nodes, pick([1e6, 4e6]), 1)]
    hazards += [Hazard("software", 1, 5e4, 0)] * (dice.random() < 0.5)
    hazards += [Hazard("rack", nodes / 4, 9e5, 3)] * (dice.random() < 0.4)
    hazards += [Hazard("host", nodes, 9e5, 1, "weibull", 0.7)] * (dice.random() < 0.4)
    hazards += [Hazard("storage", 1, 5e4, 0, "lognormal", 1.2)] * (dice.random() < 0.3)
    mended = Repair(automatic=HOUR, manual=20_000.0, escalates=0.5)
    pools = Spares(
        warm=pick([0, 1, 3]), idle=pick([0, 2]), cold=pick([0, 4]), provision=pick([0.0, 500.0])
    )
    fewer = tuple(1.0 - lack / nodes for lack in (1, 2)) if dice.random() < 0.4 else ()
    return Course(
        productive=pick([5e4, 49_999.3]),
        nodes=nodes,
        saving=pick([Saving(), Saving(600.0, 20.0), Saving(600.0, 5.0, 400.0, pick([0.0, 0.2]))]),
        outages=Outages(
            Outage(0.0, up, 0.0),
            Outage(known, up, read, keeps),
            Outage(known, 3.0, read, keeps),
            Outage(1.0, 2.0, 3.0, pick([None, 0.0, 7.0])),
        ),
        hazards=tuple(hazards),
        seed=dice.randrange(99),
        speeds=(1.0, *fewer),
        spares=pools if dice.random() < 0.7 else Spares(),
        repair=mended if dice.random() < 0.8 else None,
        selection=pick([0.0, 180.0]),
        joins=pick([0.0, 90.0]) if fewer else 0.0,
        always=dice.random() < 0.6,
    )


# -- all runs at once against one run event by event -----------------------------------------------


@pytest.mark.parametrize("seed", range(100, 130))
def test_both_players_tell_the_same_life(seed: int) -> None:
    """Of any course: times to 1e-9, what broke how often, and every second's label."""
    course = drawn(seed)
    told_alike(course, 2)


def told_alike(course: Course, count: int) -> Lives:
    """The first `count` runs of both players: the same, and every second labelled."""
    runs = live(course, count)
    for run in range(count):
        told = life_of(course, run)
        assert told.end == pytest.approx(runs.times[run], rel=1e-9)
        assert told.seconds == pytest.approx(tuple(runs.seconds[run]), rel=1e-7, abs=1e-4)
        assert tuple(told.failures.values()) == tuple(runs.failures[run])
        conserved(told.spells, told.end)
    return runs


def conserved(spells: Any, end: float) -> None:
    """Passages follow one another without a gap from 0 to the end, each with a known label."""
    assert spells[0].begin == 0.0
    for one, after in pairwise(spells):
        assert one.end == after.begin
    assert spells[-1].end == end
    assert {one.label for one in spells} <= {*LABELS}


@pytest.mark.parametrize("seed", range(200, 206))
def test_every_second_of_every_run_has_one_label(seed: int) -> None:
    course = drawn(seed)
    runs = live(course, 50)
    assert runs.seconds.sum(axis=1) == pytest.approx(runs.times, rel=1e-9)
    assert (runs.seconds >= 0.0).all()
    assert runs.seconds[:, 0] == pytest.approx(course.productive, rel=1e-9)


def test_runs_do_not_depend_on_how_many_are_drawn() -> None:
    course = drawn(7)
    few, many = live(course, 3), live(course, 9)
    assert few.times.tolist() == many.times[:3].tolist()
    assert few.seconds.tolist() == many.seconds[:3].tolist()


# -- closed forms ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("restart", "interval"), [(0.0, 1155.9), (300.0, 1155.9), (300.0, 4000.0)])
def test_the_mean_is_daly_s_exact_form(restart: float, interval: float) -> None:
    """Exponential failures at any time, every 3.093 h in the mean; checkpoints take 60 s."""
    mtti = 3.0931 * HOUR
    course = plain(
        Outage(0.0, restart, 0.0),
        productive=400 * interval,
        saving=Saving(interval, 60.0),
        hazards=(Hazard("node", 8, 8 * mtti, 1),),
    )
    course = replace(course, outages=replace(course.outages, begin=Outage(0.0, 0.0, 0.0)))
    mean = live(course, 1500).times.mean()
    assert mean == pytest.approx(expected(400 * interval, interval, 60.0, restart, mtti), rel=0.01)


def test_published_intervals() -> None:
    """Young 1,156 s and Daly 1,116 s for 60 s and 3.093 h; the exact form is lowest near Daly's."""
    mtti = 3.0931 * HOUR
    assert young(60.0, mtti) == pytest.approx(1155.9, abs=0.1)
    best = daly(60.0, mtti)
    assert best == pytest.approx(1116.3, abs=0.1)
    at = [expected(1e6, best * factor, 60.0, 300.0, mtti) for factor in (0.9, 1.0, 1.1)]
    assert at[1] == min(at)
    assert young(10.0, 0.23 * HOUR) == pytest.approx(129.0, abs=0.5)


def test_asynchronous_checkpoints_cost_their_pause_and_come_later() -> None:
    """By hand: 600 s of steps, 5 s of copying, 100 s of writing in which steps take 25 % longer."""
    saving, at = Saving(600.0, 5.0, 100.0, 0.25), np.array([599.0, 604.0, 700.0, 706.0, 1300.0])
    zeros, ones = np.zeros(5), np.ones(5)
    steps, saved = saving.advance(at, zeros, ones)
    assert steps == pytest.approx([599.0, 600.0, 600.0 + 95.0 / 1.25, 681.0, 1256.0])
    assert saved.tolist() == [0.0, 0.0, 0.0, 1.0, 1.0]
    whole = saving.duration(np.array([600.0, 640.0, 1200.0]), zeros[:3], ones[:3])
    assert whole == pytest.approx([600.0, 655.0, 600.0 + 5.0 + 100.0 + 520.0])


@pytest.mark.parametrize(
    ("kind", "shape"), [("weibull", 0.7), ("weibull", 3.0), ("lognormal", 1.0)]
)
def test_lifetimes_have_the_mean_that_is_asked_for(kind: str, shape: float) -> None:
    drawn = np.random.default_rng(1).random((2, 400_000))
    found = lifetimes(Hazard("gpu", 1, 1000.0, 1, kind, shape), *drawn)
    assert found.mean() == pytest.approx(1000.0, rel=0.01)
    if kind == "weibull":
        scale = 1000.0 / math.gamma(1.0 + 1.0 / shape)
        assert np.mean(found < scale) == pytest.approx(1.0 - math.exp(-1.0), abs=0.003)


def test_new_parts_that_break_early_break_more_often_at_first() -> None:
    """Infant mortality: with k = 0.7 a young cluster sees more failures than at the mean rate."""
    hazard, answer = Hazard("gpu", 64, 30 * DAY, 1), Outage(60.0, 30.0, 0.0)
    steady = live(plain(answer, hazards=(hazard,)), 200)
    young_ = live(plain(answer, hazards=(hazard._replace(distribution="weibull", shape=0.7),)), 200)
    assert young_.failures.mean() > 1.3 * steady.failures.mean()
    assert live(
        plain(answer, hazards=(hazard._replace(distribution="weibull", shape=1.0),)), 400
    ).failures.mean() == pytest.approx(steady.failures.mean(), rel=0.1)


# -- pools ----------------------------------------------------------------------------------------


def test_more_spare_nodes_are_never_worse() -> None:
    """Of equal nodes, with the same draws and no selection to wait for, in every single run."""
    before: Lives | None = None
    for warm, idle in [(0, 0), (1, 0), (1, 1), (3, 1), (8, 8)]:
        runs = live(
            plain(Outage(60.0, 30.0, 5.0), always=False, spares=Spares(warm=warm, idle=idle),
                  repair=Repair(automatic=2 * HOUR, manual=DAY, escalates=0.5)),
            60,
        )  # fmt: skip
        if before is not None:
            assert (runs.times <= before.times * (1 + 1e-12)).all()
            assert (runs.times < before.times).any()
        before = runs


def test_waiting_for_one_of_one_node_is_its_repair() -> None:
    """A job of a single node without spares waits as long as its repair takes, in the mean."""
    course = plain(
        Outage(0.0, 0.0, 0.0, 0.0), nodes=1, always=False, productive=200 * HOUR, saving=Saving(),
        hazards=(Hazard("node", 1, 10 * HOUR, 1),), repair=Repair(automatic=HOUR),
    )  # fmt: skip
    runs = live(course, 400)
    assert runs.failures.mean() == pytest.approx(20.0, rel=0.03)
    waited = runs.seconds[:, LABELS.index("waiting_for_nodes")].sum() / runs.failures.sum()
    assert waited == pytest.approx(HOUR, rel=0.04)


def test_bad_nodes_break_more_often_until_they_are_mended() -> None:
    """All are bad, and no repair works: six times as many; every one works: once each."""
    mended = Repair(automatic=60.0)
    same = {"always": False, "spares": Spares(warm=8), "saving": Saving(), "productive": 5 * DAY}
    answer = Outage(0.0, 0.0, 0.0)
    count = {
        key: live(plain(answer, bad=bad, repair=repair, **same), 200).failures.mean()
        for key, bad, repair in [
            ("good", (0.0, 1.0), mended),
            ("bad", (1.0, 6.0), replace(mended, automatic_fails=1.0)),
            ("mended", (1.0, 6.0), mended),
        ]
    }
    assert count["good"] == pytest.approx(40.0, rel=0.05)
    assert count["bad"] == pytest.approx(240.0, rel=0.05)
    assert count["good"] < count["mended"] < count["good"] + 16.0


# -- other programs and publications --------------------------------------------------------------


def test_airesim_s_default_takes_what_airesim_says() -> None:
    """Within three standard errors of the difference of the means (30 runs there, 300 here)."""
    path = SCENARIOS / "against" / "airesim_default.expected.json"
    point = json.loads(path.read_text())["expected"]["points"][0]
    assert point["time_to_train_ideal_s"] == pytest.approx(AIRESIM_IDEAL * HOUR, rel=1e-12)
    runs, spread = point["drawn_runs"], point["time_to_train_spread_s"] / HOUR
    assert runs >= 300
    error = math.sqrt(AIRESIM_SPREAD**2 / 30 + spread**2 / runs)
    assert abs(point["time_to_train_s"] / HOUR - AIRESIM_HOURS) < 3 * error
    assert spread == pytest.approx(AIRESIM_SPREAD, rel=0.35)


@pytest.mark.parametrize(("gpus", "hours"), [(16_384, "1.8"), (131_072, "0.23")])
def test_meta_s_projected_time_between_failures(gpus: int, hours: str) -> None:
    """arXiv:2410.21680: 6.50 failures per 1,000 node-days, nodes of 8, as it was printed."""
    assert f"{1.0 / preset('meta-rsc-1', gpus).rate / HOUR:.2g}" == hours


def preset(name: str, gpus: int) -> Course:
    from dpsim.life.failures import Failures, Inventory, hazards

    there = Inventory(gpus // 8, gpus, None, None)
    found = tuple(hazards(Failures(preset=name), there))  # type: ignore[arg-type]
    return plain(Outage(60.0, 300.0, 10.0), nodes=gpus // 8, hazards=found)


def test_llama_3_was_interrupted_419_times_in_54_days_and_lost_less_than_a_tenth() -> None:
    """With its rate, a checkpoint every ten minutes at its storage's 2 TB/s, and five minutes to
    start again; what that took was not published."""
    course = replace(preset("llama3-16k", 16_384), productive=50 * DAY, saving=Saving(600.0, 2.8))
    runs = live(course, 100)
    per_54_days = runs.failures.sum() / runs.times.sum() * 54 * DAY
    assert per_54_days == pytest.approx(419.0, rel=0.02)
    assert 0.90 < runs.goodput < 0.95


# -- the answer -----------------------------------------------------------------------------------


def test_without_failures_nothing_changes() -> None:
    nothing = dict.fromkeys(BREAKS)
    without, with_ = of(**nothing).points[0], of().points[0]
    assert without["time_to_train_s"] == pytest.approx(100_000.0)
    assert "goodput" not in without
    assert with_["time_to_train_ideal_s"] == without["time_to_train_s"]
    assert with_["step_time_s"] == without["step_time_s"]


def test_parts_of_the_answer_agree() -> None:
    point = of(
        price={"per_device_hour": "2 usd"}, training={"samples": 8e6, "by": "29.4 h"}
    ).points[0]
    assert point["goodput"] + sum(point["badput"].values()) == pytest.approx(1.0)
    assert point["goodput"] * point["time_to_train_s"] == pytest.approx(100_000.0)
    order = [point[f"time_to_train_{key}_s"] for key in ("p10", "p50", "p90")]
    assert order == sorted(order)
    assert point["time_to_train_low_s"] < point["time_to_train_s"] < point["time_to_train_high_s"]
    assert point["cost_usd"] == pytest.approx(16.0 * point["time_to_train_s"] / HOUR)
    assert point["usd_per_useful_sample"] == pytest.approx(point["cost_usd"] / 8e6)
    assert sum(point["interruptions_by"].values()) == pytest.approx(point["interruptions"])
    assert 0.0 < point["in_time"] < 1.0
    assert point["checkpoints"]["steps"] == 6000
    assert point["checkpoints"]["young_s"] == pytest.approx(young(10.0, 3 * HOUR))


def test_the_same_seed_gives_the_same_runs_and_another_one_others() -> None:
    assert of().document == of().document
    assert of(seed=1).points[0]["time_to_train_s"] != of().points[0]["time_to_train_s"]


def test_a_checkpoint_of_torchs_adam_on_16_bit_is_6_bytes_a_parameter() -> None:
    """2 of weights, 4 of states, which are as wide: torch keeps no copy of its own."""
    saved = of(
        precision={"parameters": "bf16"}, optimizer={"kind": "adam"},
        checkpoint={"every": {"steps": 500}, "write": "1 MB/s"},
    ).points[0]["checkpoints"]  # fmt: skip
    assert saved["bytes"] == 6e6


def test_a_checkpoint_of_mixed_precision_adam_is_14_bytes_a_parameter() -> None:
    """2 of weights, 4 of their copies, 8 of states: 14 MB at 1 MB/s are 14 s."""
    saved = of(
        precision={"parameters": "bf16"}, optimizer={"kind": "adam", "master_weights": True},
        checkpoint={"every": {"steps": 500}, "write": "1 MB/s", "read": "2 MB/s"},
    ).points[0]["checkpoints"]  # fmt: skip
    assert saved["bytes"] == 14e6
    assert saved["pause_s"] == pytest.approx(14.0)
    assert saved["restore_s"] == pytest.approx(7.0)
    assert saved["every_s"] == pytest.approx(50.0)


def test_the_nodes_nics_limit_a_fast_storage() -> None:
    """Two nodes with one 10 Gbit/s NIC each write 2.5 GB/s, whatever the storage takes."""
    machine = {"machine": "rack-10gbe", "nodes": 2, "gpus_per_node": 1}
    saved = of(
        cluster=machine, collective=None, failures={"nic": {"mtbf": "10 d"}, "runs": 2},
        checkpoint={"every": "10 min", "bytes": "25 GB", "write": "1 TB/s"},
    ).points[0]  # fmt: skip
    assert saved["checkpoints"]["write_s"] == pytest.approx(10.0)
    assert list(saved["interruptions_by"]) == ["nic"]


def test_the_best_interval_is_near_daly_s_and_not_beaten_by_others() -> None:
    found = of(checkpoint={"every": "best", "write_time": "10 s"}).points[0]
    saved = found["checkpoints"]
    assert saved["every_s"] == pytest.approx(saved["daly_s"], rel=0.35)
    for factor in (0.5, 2.0):
        every = f"{factor * saved['every_s']} s"
        other = of(checkpoint={"every": every, "write_time": "10 s"}).points[0]
        assert found["time_to_train_s"] < other["time_to_train_s"]


@pytest.mark.parametrize(
    ("changes", "every", "said"),
    [
        # nothing is lost but the step in hand: no checkpoint at all, 1,000,000 steps
        ({"recovery": {"kind": "torchft"}, "checkpoint": {"every": "best", "write_time": "20 s"}},
         100_000.0, "none before the run ends"),
        # saving takes nothing: a checkpoint after every step
        ({"checkpoint": {"every": "best", "write_time": "0 s"}}, 0.1, "after every step"),
        # each is written for 100 s, and pausing takes next to nothing
        ({"checkpoint": {"every": "best", "bytes": "1 MB", "mode": "async", "staging": "100 MB/s",
                         "write": "10 kB/s"}}, 100.1, "as soon as the one before is written"),
    ],
)  # fmt: skip
def test_the_best_interval_is_looked_for_up_to_its_bounds(
    changes: dict[str, Any], every: float, said: str
) -> None:
    made = of(**changes)
    assert made.points[0]["checkpoints"]["every_s"] == pytest.approx(every)
    assert any(said in line for line in sentences(made.answer))


def test_a_share_of_bad_nodes_that_is_no_whole_number_holds_in_the_mean() -> None:
    """One in ten of nine nodes: 0.9 of them in the mean, none or one in each run."""
    from dpsim.life.draws import first_bad

    found = [sum(first_bad(0, run, (8, 1, 0, 0), 0.1)) for run in range(2000)]
    assert {*found} == {0, 1}
    assert np.mean(found) == pytest.approx(0.9, abs=0.02)
    assert {sum(first_bad(0, run, (16, 4), 0.15)) for run in range(200)} == {3}


def test_what_torchft_adds_to_steps_is_no_lack_of_nodes() -> None:
    """100 ms of overhead on steps of 100 ms: half of the time, with nothing that breaks."""
    point = of(
        failures={"node": {"mtbf": "1000000 d"}, "runs": 2}, checkpoint={"mode": "free"},
        recovery={"kind": "torchft", "overhead": "100 ms"},
    ).points[0]  # fmt: skip
    assert point["interruptions"] == 0.0
    assert point["badput"]["step_overhead"] == pytest.approx(0.5, rel=1e-3)
    assert "fewer_nodes" not in point["badput"]


def test_every_point_of_a_sweep_is_warned_of() -> None:
    """A preset of the second point only is told with its source."""
    sweep = {"failures": [{"node": {"mtbf": "9 d"}, "runs": 2}, {"preset": "mlcommons", "runs": 2}]}
    assert any("MLCommons" in line for line in of(sweep=sweep).warnings)


def test_warm_nodes_are_paid_for_and_more_of_them_are_a_question_of_money() -> None:
    """Eight nodes and two warm ones cost ten; the run is shorter, and which is cheaper is said."""
    rent = {"price": {"per_device_hour": "2 usd"}}
    pools = {"repair": {"automatic": "4 h"}, "detection": "60 s"}
    bare = of(recovery={"kind": "restart", **pools}, **rent).points[0]
    two = of(recovery={"kind": "restart", "spares": {"warm": 2}, **pools}, **rent).points[0]
    assert two["cost_usd_per_hour"] == pytest.approx(20.0)
    assert bare["cost_usd_per_hour"] == pytest.approx(16.0)
    assert two["time_to_train_s"] < bare["time_to_train_s"]
    assert two["cost_usd"] == pytest.approx(20.0 * two["time_to_train_s"] / HOUR)


def test_words_say_what_failures_cost() -> None:
    lines = sentences(of(price={"per_device_hour": "2 usd"}).answer)
    (told,) = (line for line in lines if "Without failures it would take" in line)
    assert "of all time" in told
    assert "usd of" in told
    (saved,) = (line for line in lines if "A checkpoint" in line)
    assert "Young's interval is" in saved


def test_a_picture_shows_where_time_goes_and_how_one_run_went(tmp_path: Path) -> None:
    from dpsim.report.life_picture import KINDS, _shares
    from dpsim.report.run import write_all

    made = of()
    write_all(made, tmp_path / "out")
    assert {file.name for file in (tmp_path / "out").iterdir()} >= {"life.png", "life.svg"}
    page = (tmp_path / "out" / "index.html").read_text("utf-8")
    assert "With failures" in page
    assert "Time to train with failures" in page
    assert "By when it has ended" in page
    assert {*KINDS} == {*LABELS}
    one = life_of(plain(Outage(60.0, 30.0, 5.0)), 0)
    edges = np.linspace(0.0, one.end, 41)
    parts = sum(_shares(one, label, edges) for label in KINDS)
    assert parts == pytest.approx(np.full(40, 100.0))
    write_all(of(**dict.fromkeys(BREAKS)), tmp_path / "plain")
    assert "life.png" not in {file.name for file in (tmp_path / "plain").iterdir()}


def test_chances_rise_from_nothing_to_all_and_are_those_of_ending_in_time() -> None:
    """A step of 0.8 to 1.5 around 1 at 90 %: half have ended at the median, 5 % at 0.8 of it."""
    step = SimpleNamespace(interval=SimpleNamespace(low=0.8, high=1.5), step_time_s=1.0)
    told = chances(cast(Point, step), [100.0])
    times, shares = zip(*told, strict=True)
    assert list(times) == sorted(times)
    assert shares[0] < 0.01 < 0.99 < shares[-1]
    found = np.interp([80.0, 100.0, 150.0], times, shares)
    assert found == pytest.approx([0.05, 0.5, 0.95], abs=0.01)
    several = [90.0, 100.0, 130.0]
    for time, share in chances(cast(Point, step), several):
        assert share == in_time(cast(Point, step), several, time)


def test_points_with_failures_have_their_chances() -> None:
    (point,) = (one.point for one in of().outcomes)
    assert isinstance(point, Point)
    assert point.life is not None
    shares = [share for _, share in point.life.chances]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0  # the step is exact, so all have ended when the longest has


def test_a_run_of_which_all_is_known_ends_at_one_time() -> None:
    exact = SimpleNamespace(interval=SimpleNamespace(low=1.0, high=1.0), step_time_s=1.0)
    assert chances(cast(Point, exact), [50.0, 50.0]) == ((50.0, 1.0),)


def test_the_life_that_is_told_is_the_first_of_those_that_were_drawn() -> None:
    from dpsim.life.abreast import live as play
    from dpsim.predict.course import course_of
    from dpsim.predict.lived import told

    (outcome,) = of().outcomes
    one = told(outcome.case, outcome.point)  # type: ignore[arg-type]
    assert one is not None
    course = course_of(outcome.case, outcome.point, 100_000.0)  # type: ignore[arg-type]
    assert one.end == pytest.approx(play(course, 1).times[0], rel=1e-9)


def test_what_a_run_takes_is_said_once_with_what_each_spread_is_of(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "job.json").write_text(json.dumps({**TOY, **BREAKS}))
    code, out, _ = cli("run", str(tmp_path / "job.json"))
    told = " ".join(out.split())
    assert code == 0
    assert told.count("of steps and failures together)") == 1
    assert "runs drawn at the predicted step, which failures alone tell apart, 10 %" in told
    assert "it takes" not in told


def test_a_plan_finds_how_many_spares_a_goal_needs(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    pools = {"spares": {"warm": 0}, "repair": {"automatic": "6 h"}, "detection": "60 s"}
    text = json.dumps({**TOY, **BREAKS, "recovery": {"kind": "restart", **pools}})
    (tmp_path / "job.json").write_text(text)
    wanted = ("--vary", "recovery.spares.warm", "--require", "goodput>=0.9")
    code, out, _ = cli("plan", str(tmp_path / "job.json"), *wanted, "--json")
    assert code == 0
    assert json.loads(out)["answer"]["at_least"]["value"] == 4.0


def test_a_comparison_counts_failures(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Equal jobs on equal machines, of which one reads its checkpoints an hour."""
    rent = {"price": {"per_device_hour": "2 usd"}}
    for name, read in {"quick": "1 s", "slow": "1 h"}.items():
        saved = {"checkpoint": {"every": "10 min", "write_time": "10 s", "read_time": read}}
        text = json.dumps({**TOY, **BREAKS, **saved, **rent})
        (tmp_path / f"{name}.json").write_text(text)
    paths = [str(tmp_path / f"{name}.json") for name in ("slow", "quick")]
    code, out, _ = cli("compare", *paths, "--json")
    assert code == 0
    assert json.loads(out)["recommendation"] == "quick"


@pytest.mark.parametrize("every", ["20 min", {"steps": 500}, "best"])
def test_a_scenario_with_failures_reads_back_as_it_was(every: Any) -> None:
    made = of(
        checkpoint={"every": every, "write_time": "10 s"},
        recovery={
            "kind": "torchft",
            "group": 2,
            "spares": {"warm": 1},
            "repair": {"automatic": "1 h"},
        },
    )
    again = predict(load(made.document["scenario"], Path(), "test"))
    assert again.document == made.document


def test_hot_spares_save_the_start_up() -> None:
    pools = {"spares": {"warm": 3}, "repair": {"automatic": "1 h"}}
    slow = {"startup": {"compile": "10 min"}}
    cold = of(recovery={"kind": "restart", "detection": "5 s", **pools}, **slow).points[0]
    hot = of(recovery={"kind": "spares", "detection": "5 s", "swap": "20 s", **pools}, **slow)
    assert hot.points[0]["badput"]["initialization"] < 0.2 * cold["badput"]["initialization"]


@pytest.mark.parametrize("kind", plugins.names("recoveries"))
def test_every_recovery_is_played_alike_by_both_players(kind: str) -> None:
    from dpsim.life.recoveries import Event, Setting

    own = {"fewest": 6} if "elastic" in kind else {}
    made = plugins.find("recoveries", kind)(
        spares=Spares(warm=1), repair=Repair(automatic=HOUR), detection=5.0, **own
    )
    setting = Setting(startup=120.0, restore=20.0, step=1.0, nodes=8)
    events: tuple[Event, ...] = ("failure", "swap", "growth")
    usable = [made.usable(lack, setting) for lack in range(8)]
    course = plain(
        made.outage("failure", setting),
        outages=Outages(Outage(0.0, 120.0, 0.0), *(made.outage(e, setting) for e in events)),
        spares=made.spares, repair=made.repair, selection=made.selection,
        speeds=tuple(0.8 * nodes / 8 for nodes in usable if nodes), joins=made.joins(setting),
        pace=0.8,
    )  # fmt: skip
    told_alike(course, 3)


ELASTIC: dict[str, Any] = {"repair": {"automatic": "4 h"}, "detection": "60 s"}


def test_an_elastic_job_goes_on_with_the_nodes_that_are_left() -> None:
    """Where nodes are away for hours, waiting for them costs more than steps with fewer."""
    waits = of(recovery={"kind": "restart", **ELASTIC}).points[0]
    goes_on = of(recovery={"kind": "torchelastic", "fewest": 5, **ELASTIC}).points[0]
    assert goes_on["time_to_train_s"] < waits["time_to_train_s"]
    assert goes_on["badput"]["fewer_nodes"] > 0.0
    assert goes_on["badput"].get("waiting_for_nodes", 0.0) < waits["badput"]["waiting_for_nodes"]


def test_committed_state_and_replica_groups_lose_steps_and_no_checkpoints() -> None:
    """Nothing but what Horovod has not committed, or torchft's step in hand, is lost."""
    common = {"failures": {"node": {"mtbf": "1 d"}, "runs": 40, "during": "running"}}
    points = {
        kind: of(recovery={"kind": kind, **ELASTIC, **own}, **common).points[0]
        for kind, own in {
            "torchelastic": {"fewest": 4},
            "horovod_elastic": {"fewest": 4, "commit": 10},
            "torchft": {"min_replicas": 4},
        }.items()
    }
    lost = {
        kind: point["badput"]["wasted_progress"] * point["time_to_train_s"] / point["interruptions"]
        for kind, point in points.items()
    }
    assert lost["torchft"] == pytest.approx(0.05, rel=0.3)  # half a step of 0.1 s
    assert lost["horovod_elastic"] == pytest.approx(0.5, rel=0.3)  # half of ten
    assert lost["torchelastic"] > 100.0
    assert points["torchft"]["time_to_train_s"] == min(
        p["time_to_train_s"] for p in points.values()
    )


@pytest.mark.parametrize(
    ("nodes", "lacking"),
    [({"spares": {"warm": 8}, "repair": {"automatic": "1 min"}}, 100.0), ({}, 100.0 - 4.9)],
    ids=["warm", "others"],
)
def test_a_group_starts_up_while_the_others_go_on(nodes: dict[str, Any], lacking: float) -> None:
    """By hand: a warm node joins 100 s of start-up after it was missed, and another, where nobody
    says which, after it broke; a failure costs the heartbeat less the step that is computed beside
    it, and an eighth of the time for which steps lack the node."""
    point = of(
        failures={"node": {"mtbf": "4 d"}, "runs": 60, "during": "running"},
        recovery={"kind": "torchft", "min_replicas": 4, "heal": "70 s", **nodes},
        checkpoint={"mode": "free"},
    ).points[0]  # fmt: skip
    each = (point["time_to_train_s"] - 30.0 - 100_000.0) / point["interruptions"]
    assert each == pytest.approx(5.0 - 0.1 + lacking / 8, rel=0.03)


@pytest.mark.parametrize(
    ("step", "ahead", "own", "costs"),
    [
        (0.5, 0.5, {}, 4.5),  # the lab's: the next step counts 5.0 s after the kill
        (0.5, 0.0, {}, 5.0),
        (4.0, 1.0, {"reconfigure": 1.5}, 5.5),
        (10.0, 4.0, {}, (100.0 + 1.0) / 20.0),  # mean of max(rest of the step, 1 s)
        (10.0, 8.0, {}, 5.0),  # half a step: the quorum is there before it is needed
        (0.5, 0.5, {"abort": 60.0}, 60.0),
        (0.5, 0.5, {"quorum": 1.1}, 5.0),
        (10.0, 5.0, {"reconfigure": 30.0, "abort": 60.0}, 60.0 + 30.0 - 5.0),
        (20.0, 5.0, {"reconfigure": 30.0}, (400.0 + 25.0) / 40.0 + 25.0),
        (20.0, 5.0, {"reconfigure": 10.0}, (400.0 + 25.0) / 40.0 + 5.0),
    ],
)
def test_groups_compute_beside_the_wait_for_a_quorum(
    step: float, ahead: float, own: dict[str, float], costs: float
) -> None:
    """Against a thousand failures spread over a step, each followed to the end of the next one: a
    quorum is asked for when the step in hand is over, and communicators are made anew with it."""
    made = TorchFt(**own)  # type: ignore[arg-type]
    found = made.outage("failure", Setting(0.0, 0.0, step, 8, ahead=ahead))
    assert found.detection + found.startup == pytest.approx(costs)
    ends = []
    for rest in (np.arange(1000) + 0.5) / 1000 * step:
        over = max(rest, made.abort)
        agreed = max(over, made.heartbeat - made.interval / 2.0 + made.quorum / 2.0)
        reduces = max(over + ahead, agreed + made.reconfigure)
        ends.append(reduces + step - ahead)
        assert made.costs(rest, ahead) == pytest.approx(ends[-1] - step)
    assert found.detection + found.startup == pytest.approx(np.mean(ends) - step, rel=1e-4)


def test_spares_of_torchft_stand_by_and_take_over() -> None:
    """Six of eight groups take part: six eighths as fast, and losing one changes nothing."""
    point = of(
        failures={"node": {"mtbf": "20 d"}, "runs": 10, "during": "running"},
        recovery={"kind": "torchft", "min_replicas": 6, "mode": "fixed_with_spares",
                  "repair": {"automatic": "1 h"}},
        checkpoint={"mode": "free"},
    ).points[0]  # fmt: skip
    assert point["time_to_train_s"] == pytest.approx(100_000.0 * 8 / 6, rel=0.002)


def test_an_elastic_job_says_what_happens_to_its_batch() -> None:
    told = of(recovery={"kind": "torchft", **ELASTIC}).warnings
    assert any("the global batch shrinks" in line for line in told)
    assert not any("global batch shrinks" in line for line in of().warnings)


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"training": None}, "failures: needs training"),
        ({"checkpoint": None}, "checkpoint: is missing; mode: free"),
        ({"failures": None}, "checkpoint: needs failures"),
        ({"failures": {}}, "names nothing that breaks"),
        ({"failures": {"gpu": {"mtbf": "0 s"}}}, "failures.gpu.mtbf: "),
        ({"failures": {"gpu": {"mtbf": "1 h", "distribution": "weibull"}}}, "shape: is missing"),
        ({"failures": {"nic": {"mtbf": "1 h"}}}, "failures.nic: needs a machine"),
        ({"cluster": {"machine": "dgx-a100", "nodes": 1}, "collective": None,
          "failures": {"switch": {"mtbf": "1 d"}}},
         "failures.switch: there is none in a job of one node"),
        ({"cluster": {"machine": "two-rtx3090", "ranks": 2}, "collective": None,
          "failures": {"gpu": {"mtbf": "9 d"}, "nic": {"mtbf": "1 d"}}},
         "failures.nic: there is none in a job of one node"),
        ({"failures": {"gpu": {"mtbf": "9 d"}, "shared": {"gpu": {"nodes": 4, "mtbf": "9 d"}}}},
         "failures.shared.gpu: is the name of another cause"),
        ({"failures": {"shared": {"rack": {"nodes": 4, "mtbf": "4 d"}}},
          "recovery": {"kind": "torchft", "group": 4}},
         "groups of 4 nodes beside a cause that takes 4 nodes"),
        ({"evaluation": {"every": "1 h"}}, "evaluation.takes: is missing"),
        ({"failures": {"shared": {"rack": {"nodes": 9, "mtbf": "1 h"}}}}, "the job has 8"),
        ({"failures": {"preset": "none"}}, "is none of llama3-16k"),
        ({"failures": {"preemption": {}}}, "needs either mtbf or rate"),
        ({"failures": {"node": {"mtbf": "5 min"}}}, "a run would be interrupted"),
        ({"checkpoint": {"every": "10 min"}}, "needs either write"),
        ({"checkpoint": {"every": "good", "write_time": "1 s"}}, "'good' is no interval"),
        ({"checkpoint": {"mode": "free", "every": "1 s"}}, "mode: free saves at no cost"),
        ({"checkpoint": {"every": "1 s", "write_time": "1 s", "staging": "1 GB/s"}}, "for mode"),
        ({"checkpoint": {"every": "1 s", "write": "1 kB/s", "mode": "async",
                         "staging": "1 GB/s"}}, "the storage does not keep up"),
        ({"checkpoint": {"every": "1 h", "write": "1 MB/s", "storage": "4 MB"}}, "more than"),
        ({"checkpoint": {"every": "1 h", "write_time": "1 s", "levels": []}}, "is said by each"),
        ({"recovery": {"kind": "torchft", "group": 3}}, "8 nodes are no whole number of groups"),
        ({"recovery": {"kind": "torchft", "min_replicas": 9}}, "there are 8 groups"),
        ({"recovery": {"kind": "horovod_elastic"}}, "recovery.fewest: is missing"),
        ({"recovery": {"kind": "spares"}}, "needs warm nodes"),
        ({"recovery": {"kind": "restart", "spares": {"warm": 1}}}, "recovery.repair: is missing"),
        ({"recovery": {"kind": "restart", "spares": {"warm": 9}, "repair": {"automatic": "1 h"}}},
         "9 spare nodes of a job that has 8"),
        ({"recovery": {"kind": "restart", "repair": {"automatic": "9 d"}}}, "hardly ever have all"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(changes: dict[str, Any], said: str) -> None:
    if changes.get("checkpoint", 1) is None or changes.get("failures", 1) is None:
        changes = {"recovery": None, **changes}
    with pytest.raises(Refused) as error:
        of(**changes)
    assert said in str(error.value)


def test_the_chance_to_be_in_time_is_that_of_the_interval() -> None:
    """A step of 1 s, between 0.9 and 3 s; one drawn run of 100 s: its interval's ends leave 5 % on
    either side, however unlike they are, and half of all runs end by its middle."""
    step = SimpleNamespace(step_time_s=1.0, interval=SimpleNamespace(low=0.9, high=3.0))
    found = [in_time(cast(Point, step), [100.0], by) for by in (0.0, 90.0, 100.0, 300.0)]
    assert found == pytest.approx([0.0, 0.05, 0.5, 0.95])
    exact = SimpleNamespace(step_time_s=1.0, interval=SimpleNamespace(low=1.0, high=1.0))
    assert [in_time(cast(Point, exact), [100.0, 200.0], by) for by in (99, 100, 200)] == [0, 0.5, 1]
