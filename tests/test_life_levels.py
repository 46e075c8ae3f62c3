"""Levels of checkpoints, evaluations, notice, maintenance, what goes wrong unseen: two players, and
runs that can be worked out by hand."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpsim.core.record import Refused
from dpsim.describe.scenario import load, read, to_data
from dpsim.life.abreast import live
from dpsim.life.course import SAVE, STARTUP, Course
from dpsim.life.failures import Hazard
from dpsim.life.halts import Halt, Halts
from dpsim.life.history import life_of
from dpsim.life.recoveries import Outage
from dpsim.life.saving import Saving
from dpsim.life.timers import Reclaimed, Silent, Windows
from dpsim.planning.knobs import knob_of
from dpsim.predict import lived
from dpsim.predict.point import Point
from dpsim.report import lived as telling
from dpsim.report.pages.lived import seen
from tests.test_life import conserved, drawn, of, plain

#: nothing but what a test adds breaks within its run, which takes 100,000 s of steps
RARE: dict[str, Any] = {"node": {"mtbf": "10000 d"}, "runs": 30, "during": "running"}
QUICK: dict[str, Any] = {"every": "10 min", "write_time": "0 s"}
LEVELS: list[dict[str, Any]] = [
    {"to": "memory", "every": "10 steps", "staging": "1 TB/s"},
    {"to": "peer", "every": "1 min", "write_time": "0 s"},
    {"to": "storage", "every": "1 h", "write_time": "0 s"},
]


def rich(seed: int) -> Course:
    """Any course of `tests.test_life`, with any of what there is beside failures that are seen."""
    dice, course = random.Random(seed + 1000), drawn(seed)
    pick = dice.choice
    if course.free:
        course = replace(course, saving=Saving(600.0, 2.0))
    three = (
        Halt(60.0, 0.1, restore=1.0, copies=1),
        Halt(600.0, 2.0, restore=5.0, copies=2),
        Halt(3600.0, 30.0, 200.0, pick([0.0, 0.3]), 60.0),
    )
    spot = Hazard("preemption", course.nodes, 4e5, 1)
    taken = course.repair is not None and dice.random() < 0.5
    return replace(
        course,
        levels=pick([(), three]),
        evaluation=pick([None, Halt(1000.0, 70.0, copies=None)]),
        hazards=(*course.hazards, spot) if taken else course.hazards,
        reclaimed=Reclaimed(pick([5.0, 120.0]), 900.0) if taken else None,
        windows=pick([None, Windows(2e4, 1800.0)]),
        slow=pick([None, Silent(1 / 2e4, 3000.0, 1.3)]),
        corrupt=pick([None, Silent(1 / 3e4, 5000.0)]),
        outages=replace(course.outages, diagnosis=pick([0.0, 7.0])),
    )


@pytest.mark.parametrize("seed", range(10))
def test_both_players_tell_alike_and_every_second_has_one_label(seed: int) -> None:
    course = rich(seed)
    runs = live(course, 2)
    assert runs.seconds.sum(axis=1) == pytest.approx(runs.times, rel=1e-12)
    for run in range(2):
        told = life_of(course, run)
        assert told.end == pytest.approx(runs.times[run], rel=1e-9)
        assert told.seconds == pytest.approx(tuple(runs.seconds[run]), rel=1e-7, abs=1e-3)
        assert sum(told.seconds) == pytest.approx(told.end, rel=1e-9)
        assert tuple(told.failures.values()) == tuple(runs.failures[run])


@pytest.mark.parametrize(
    "saving", [Saving(600.0, 20.0), Saving(600.0, 5.0, 400.0, 0.2), Saving(0.1, 1e-3)]
)
def test_one_level_is_what_a_single_checkpoint_is(saving: Saving) -> None:
    """Held against the closed form of `Saving`, which shares no arithmetic with levels."""
    alone = plain(Outage(60.0, 30.0, 10.0), saving=saving)
    never = Halt(1e9, 1.0, copies=None)
    both = live(alone, 3), live(replace(alone, evaluation=never), 3)
    assert both[1].times == pytest.approx(both[0].times, rel=1e-9)
    assert both[1].seconds == pytest.approx(both[0].seconds, rel=1e-6, abs=1e-3)


def test_a_run_of_many_levels_is_told_in_stretches() -> None:
    levels = (Halt(0.5, 1e-3, copies=2), Halt(600.0, 3.0, restore=40.0))
    course = plain(Outage(60.0, 30.0, 10.0), levels=levels, productive=1e5)
    told, runs = life_of(course, 0), live(course, 1)
    assert told.end == pytest.approx(runs.times[0], rel=1e-9)
    assert len(told.spells) < 1500
    conserved(told.spells, told.end)
    quiet = life_of(replace(course, hazards=()), 0)  # stops lie all along it, not at its end
    saving = [one for one in quiet.spells if one.label == "checkpoint_save"]
    half = sum(one.end - one.begin for one in saving if one.end < quiet.end / 2)
    assert half == pytest.approx(quiet.seconds[SAVE] / 2, rel=0.1)


# -- by hand --------------------------------------------------------------------------------------


def test_a_failure_is_survived_by_the_levels_that_outlive_it() -> None:
    """Steps of 0.1 s: software leaves memory (half of 1 s is lost), a node the peers' (half of
    60 s), a rack of four the storage alone (half of an hour)."""
    causes = {"software": {"mtbf": "2 h"}, "node": {"mtbf": "16 h"},
              "shared": {"rack": {"nodes": 4, "mtbf": "4 h"}}}  # fmt: skip
    lost = []
    for name, cause in causes.items():
        common = {"runs": 100, "during": "running"}
        point = of(failures={name: cause, **common}, checkpoint={"levels": LEVELS}).points[0]
        lost.append(point["badput"]["wasted_progress"] * point["time_to_train_s"]
                    / point["interruptions"])  # fmt: skip
    assert lost == pytest.approx([0.5, 30.0, 1500.0], rel=0.12)


def test_every_level_is_told_by_its_place() -> None:
    answer = of(failures={**RARE, "node": {"mtbf": "20 d"}}, checkpoint={"levels": LEVELS})
    levels = answer.points[0]["checkpoints"]["levels"]
    assert [level["to"] for level in levels] == [level["to"] for level in LEVELS]
    (told,) = [text for text in telling.sentences(answer) if text.startswith("Checkpoints")]
    assert [told.index(f"to {level['to']} every") for level in LEVELS] == sorted(
        told.index(f"to {level['to']} every") for level in LEVELS
    )


def test_evaluations_come_between_steps_with_and_without_failures() -> None:
    """1,000,000 steps, one every 1,000, none at the end: 999 of 10 s."""
    asked = {"every": "1000 steps", "takes": "10 s"}
    quiet = of(failures=None, checkpoint=None, recovery=None, evaluation=asked).points[0]
    assert quiet["time_to_train_s"] == pytest.approx(100_000.0 + 9990.0)
    found = of(evaluation=asked, failures=RARE).points[0]
    share = found["badput"]["evaluation"] * found["time_to_train_s"]
    assert share == pytest.approx(9990.0, rel=0.01)


def test_what_is_known_before_loses_nothing() -> None:
    """A notice in which all can be saved, and windows of maintenance; without notice half of the
    interval is lost."""
    taken = {"mtbf": "20 h", "back": "0 s"}
    short = {**QUICK, "write_time": "1 s"}
    spot = {notice: of(failures={**RARE, "preemption": {**taken, "notice": notice}},
                       checkpoint=short).points[0] for notice in ("2 min", "0 s")}  # fmt: skip
    assert spot["2 min"]["badput"].get("wasted_progress", 0.0) < 0.001
    one = spot["0 s"]
    lost = one["badput"]["wasted_progress"] * one["time_to_train_s"] / one["interruptions"]
    assert lost == pytest.approx(300.0, rel=0.1)
    windows = {**RARE, "maintenance": {"every": "10000 s", "takes": "20 min"}}
    point = of(failures=windows, checkpoint={**QUICK, "write_time": "7 s"}).points[0]
    # 30 s of start-up: 9,970 s to the first window, then 10,000 - 1,244 s from one to the next,
    # each with its checkpoints; the last of them, 11 in all, comes before 100,000 s are done
    assert point["interruptions_by"]["maintenance"] == pytest.approx(11.0, abs=0.2)
    each = 7.0 + 1200.0 + 30.0 + 7.0
    extra = point["time_to_train_s"] - 100_000.0 - 30.0 - 7.0 * 166
    assert extra == pytest.approx(11 * each, rel=0.02)


def test_slow_nodes_cost_until_they_are_seen() -> None:
    """Every 10 h one is slow for an hour, in which steps take twice as long: half of it is lost."""
    slow = {"mtbf": "80 h", "factor": 2.0, "detection": "1 h"}
    point = of(failures={**RARE, "slow": slow}, checkpoint=QUICK).points[0]
    each = point["badput"]["slow_nodes"] * point["time_to_train_s"]
    assert each / point["interruptions_by"]["slow"] == pytest.approx(1800.0, rel=0.1)


def test_corruption_goes_back_to_before_it_began() -> None:
    """Seen after an hour of steps: that is lost, and half of the interval."""
    hidden = {"mtbf": "80 h", "detection": "1 h"}
    point = of(failures={**RARE, "corruption": hidden}, checkpoint=QUICK).points[0]
    lost = point["badput"]["wasted_progress"] * point["time_to_train_s"]
    assert lost / point["interruptions_by"]["corruption"] == pytest.approx(3900.0, rel=0.1)


def test_everybody_reads_where_it_is_said() -> None:
    """A checkpoint of 4 MB read at 1 MB/s by each of eight ranks is a storm of 32 s."""
    stored = {"every": "10 min", "write": "1 MB/s"}
    times = [of(checkpoint={**stored, "readers": who}).points[0]["checkpoints"]["restore_s"]
             for who in ("parts", "rank")]  # fmt: skip
    assert times == pytest.approx([4.0, 32.0])


def test_intervals_of_steps_are_said_in_three_ways() -> None:
    ways = ({"every": "500 steps"}, {"steps": 500}, {"every": {"steps": 500}})
    found = [of(checkpoint={**one, "write_time": "1 s"}).points[0] for one in ways]
    assert [one["checkpoints"]["steps"] for one in found] == [500] * 3


def test_what_is_asked_for_is_written_as_it_is_read() -> None:
    loaded = read("llama3-8b-spot")
    again = load(to_data(loaded.scenario), loaded.base, "again")
    assert again.scenario == loaded.scenario


def test_torchelastic_goes_on_with_as_few_as_hold_the_model() -> None:
    left_out, one = ({"kind": "torchelastic", **more, "repair": {"automatic": "1 h"}}
                     for more in ({}, {"fewest": 1}))  # fmt: skip
    both = [of(recovery=kind).points[0]["time_to_train_s"] for kind in (left_out, one)]
    assert both[0] == both[1]


def test_runs_on_common_draws_are_the_same_bytes() -> None:
    course = rich(3)
    assert live(course, 4).seconds.tobytes() == live(course, 4).seconds.tobytes()
    first = live(course, 2)
    assert np.array_equal(first.times, live(course, 4).times[:2])


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"checkpoint": {"levels": []}}, "checkpoint.levels: is empty"),
        ({"checkpoint": {"levels": LEVELS[::-1]}}, "each place once, in the order memory"),
        ({"checkpoint": {"every": "1 h", "levels": LEVELS}}, "is said by each of the levels"),
        ({"checkpoint": {"levels": [{"to": "storage", "every": "best", "write_time": "1 s"}]}},
         "'best' is no interval"),
        ({"checkpoint": {"levels": [{"to": "memory", "every": "1 h"}]}}, "staging: is missing"),
        ({"checkpoint": {"levels": [{"to": "peer", "every": "1 h"}]}}, "whose NICs say it"),
        ({"checkpoint": {"every": "1 h", "steps": 5, "write_time": "1 s"}}, "every or steps"),
        ({"failures": {"preemption": {"notice": "1 min"}}}, "needs either mtbf or rate"),
        ({"failures": {"preemption": {"rate": "often"}}}, "'often' is no rate"),
        ({"failures": {"preemption": {"mtbf": "1 h", "back": "9 d"}}}, "hardly ever have all"),
        ({"failures": {"maintenance": {"every": "1 h", "takes": "2 h"}}}, "no time to train"),
        ({"failures": {"slow": {"mtbf": "1 min", "factor": 2, "detection": "1 s"}}},
         "a run would be interrupted"),
        ({"failures": {"corruption": {"mtbf": "1 d", "detection": "1 h"}},
          "checkpoint": {"mode": "free"}}, "of which mode: free has none"),
        ({"evaluation": {"every": "1 h", "takes": "1 s"}, "training": None, "failures": None,
          "checkpoint": None, "recovery": None}, "evaluation: needs training"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused) as error:
        of(**changes)
    assert said in str(error.value)


def test_a_place_that_does_not_outlive_a_node_is_warned_of() -> None:
    told = of(checkpoint={"to": "memory", "every": "1 h", "write_time": "1 s"},
              failures={"node": {"mtbf": "100 d"}, "runs": 5}).warnings  # fmt: skip
    assert any("the run starts from its beginning" in line for line in told)


@pytest.mark.parametrize("seed", range(5))
def test_a_place_is_the_last_that_is_reached_and_found_in_a_few_trials(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice, trials = np.random.default_rng(seed), 0
    halts = Halts((Halt(3.0, 0.5, copies=1), Halt(7.0, 0.0), Halt(100.0, 20.0, copies=None)))
    begin, speed = dice.uniform(0, 500, 50), dice.uniform(0.3, 1.0, 50)
    seconds, passed = 10.0 ** dice.uniform(-2, 5, 50), Halts.passed

    def counted(*given: Any) -> Any:
        nonlocal trials
        trials += 1
        return passed(*given)

    monkeypatch.setattr(Halts, "passed", counted)
    place = halts.reached(begin, seconds, speed)
    assert trials <= 20
    slack = 1e-6 + 1e-9 * seconds
    assert (passed(halts, begin, place, speed, False) <= seconds + slack).all()
    assert (passed(halts, begin, place + 1e-6, speed, True) >= seconds - slack).all()


def test_a_rate_is_a_number_that_can_be_varied() -> None:
    knob = knob_of(read("llama3-8b-spot").scenario, "failures.preemption.rate", "--vary")
    assert knob.text(knob.now or 0.0) == "2 %/d"
    assert knob.value("5 %/h") == pytest.approx(0.05 / 3600)


def test_how_well_a_rate_is_known_is_told_by_the_first_interruptions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures = {"interruptions": {"count": 30, "over": "2 d", "devices": 8}, "runs": 40}
    ends = []
    for enough in (1e9, 20.0):
        monkeypatch.setattr(lived, "ENOUGH", enough)
        point = of(failures=failures, training={"samples": 40_000_000}).points[0]
        assert isinstance(point, Point)
        assert point.run
        ends.append((point.run.low_s, point.run.high_s))
    assert ends[0] != ends[1]
    assert ends[0] == pytest.approx(ends[1], rel=0.02)


def test_a_page_draws_short_stops_and_steps_together() -> None:
    """30,000 stops of 20 ms, 20 s apart, hide no step, and what lasts is drawn."""
    levels = (Halt(20.0, 0.02), Halt(9000.0, 600.0))
    course = plain(Outage(60.0, 900.0, 10.0), levels=levels, productive=2e5)
    told = life_of(course, 0)
    drawn_ = seen(told)
    conserved(drawn_, told.end)
    assert len(drawn_) < 600
    shown = {label: sum(one.end - one.begin for one in drawn_ if one.label == label)
             for label in ("step", "checkpoint_save", "initialization")}  # fmt: skip
    assert shown["step"] == pytest.approx(told.seconds[0], rel=0.03)
    assert shown["checkpoint_save"] == pytest.approx(told.seconds[SAVE], rel=0.05)
    assert shown["initialization"] == pytest.approx(told.seconds[STARTUP], rel=0.1)
