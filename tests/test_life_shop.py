"""Repair shops: technicians who mend one node at a time, against closed forms of queues."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsim.core.record import Refused
from dpsim.life.abreast import live
from dpsim.life.course import LABELS, Course, Outages
from dpsim.life.failures import Hazard
from dpsim.life.recoveries import Outage, Repair, Spares
from dpsim.life.saving import Saving
from dpsim.life.shop import away_for, queued
from tests.campaigns.lives import course_of
from tests.test_life import DAY, of, plain, told_alike

SCENARIOS = Path(__file__).resolve().parent.parent / "scenarios"
WAITING = LABELS.index("waiting_for_nodes")


def shop(nodes: int, spare: int, technicians: int | None, mtbf: float, work: float) -> Course:
    """Nodes that break while the job runs and need a technician; nothing else takes time."""
    at_once = Outage(0.0, 0.0, 0.0, 0.0)
    return Course(
        productive=300 * DAY, nodes=nodes, saving=Saving(), always=False,
        outages=Outages(at_once, at_once, at_once, at_once),
        hazards=(Hazard("node", nodes, mtbf, 1),), spares=Spares(idle=spare),
        repair=Repair(automatic=0.0, manual=work, escalates=1.0, technicians=technicians),
    )  # fmt: skip


def waiting_share(nodes: int, spare: int, technicians: int, mtbf: float, work: float) -> float:
    """Of a birth and death process: with n broken the next one breaks at nodes / mtbf where n is at
    most `spare`, and one is mended at min(n, technicians) / work."""
    weights = [1.0]
    for broken in range(1, spare + 2):
        mended = min(broken, technicians) / work
        weights.append(weights[-1] * nodes / mtbf / mended)
    return weights[-1] / sum(weights)


@pytest.mark.parametrize(
    ("nodes", "spare", "technicians", "mtbf", "work"),
    [(10, 2, 1, 20 * DAY, DAY), (10, 2, 3, 20 * DAY, DAY), (8, 4, 2, 8 * DAY, 1.5 * DAY),
     (4, 0, 1, 40 * DAY, 3 * DAY), (6, 3, 1, 6 * DAY, 2 * DAY)],
)  # fmt: skip
def test_a_job_waits_as_the_machine_repairman_s_closed_form_says(
    nodes: int, spare: int, technicians: int, mtbf: float, work: float
) -> None:
    runs = live(shop(nodes, spare, technicians, mtbf, work), 30)
    shares = runs.seconds[:, WAITING] / runs.times
    error = float(shares.std(ddof=1)) / math.sqrt(len(shares))
    said = waiting_share(nodes, spare, technicians, mtbf, work)
    assert abs(float(shares.mean()) - said) < 3.0 * error


def test_the_worked_example_is_its_hand_calculation() -> None:
    path = SCENARIOS / "worked" / "repair_shop.expected.json"
    point = json.loads(path.read_text())["expected"]["points"][0]
    error = point["time_to_train_spread_s"] / point["time_to_train_s"] / math.sqrt(60)
    assert abs(point["goodput"] - 1.75 / 1.875) < 3.0 * error
    assert waiting_share(10, 2, 1, 20.0, 1.0) == pytest.approx(0.125 / 1.875)


@pytest.mark.parametrize("seed", range(301, 309))
def test_both_players_queue_alike(seed: int) -> None:
    """Any course, one or two technicians who are short: the same returns, event by event."""
    course = replace(
        course_of(seed),
        repair=Repair(automatic=3600.0, manual=4e4, escalates=0.8, technicians=1 + seed % 2),
    )
    told_alike(course, 2)


@pytest.mark.parametrize("seed", range(401, 409))
def test_both_players_fetch_cold_nodes_one_by_one(seed: int) -> None:
    """Some wait for repairs in between, and some run out of cold ones."""
    spares = Spares(warm=seed % 3, idle=1, cold=seed % 5, provision=2000.0, fetched="one_by_one")
    mended = Repair(automatic=3600.0, manual=9e4, escalates=0.6)
    course = plain(
        Outage(60.0, 30.0, 5.0), seed=seed, always=False, spares=spares, repair=mended,
        hazards=(Hazard("node", 8, 0.4 * DAY, 1), Hazard("rack", 2, 2 * DAY, 3)),
    )  # fmt: skip
    assert told_alike(course, 2).seconds[:, WAITING].sum() > 0.0


def test_cold_nodes_that_come_one_by_one_by_hand() -> None:
    """A job of one node; of two warm ones none is left at every third failure: then three come."""
    spares = Spares(warm=2, idle=0, cold=9, provision=1000.0)
    lanes = {}
    for fetched in ("together", "one_by_one"):
        course = shop(1, 0, None, 50 * DAY, 1e9)
        course = replace(course, spares=replace(spares, fetched=fetched), productive=300 * DAY)
        lanes[fetched] = live(course, 20)
    for fetched, each in (("together", 1000.0), ("one_by_one", 3000.0)):
        runs = lanes[fetched]
        failures = runs.failures.sum(axis=1)
        rounds, usual = np.ceil((failures - 2.0) / 3.0).clip(0.0), failures <= 11
        assert usual.sum() > 10
        assert runs.seconds[usual, WAITING] == pytest.approx(each * rounds[usual])


@pytest.mark.parametrize(
    ("more", "said"),
    [({"failures": {"node": {"mtbf": "1 d"}}}, "during: running"),
     ({"kind": "torchelastic", "fewest": 4}, "goes on with fewer")],
)  # fmt: skip
def test_fetching_one_by_one_is_for_jobs_that_wait(more: dict[str, Any], said: str) -> None:
    failures = more.pop("failures", {"node": {"mtbf": "1 d"}, "during": "running"})
    spares = {"cold": 4, "provision": "1 h", "fetched": "one_by_one"}
    asked = {"kind": "restart", "repair": {"automatic": "1 d"}, "spares": spares, **more}
    with pytest.raises(Refused, match=said):
        of(failures=failures, recovery=asked)


def test_fetching_one_by_one_without_cold_nodes_waits_for_those_in_repair() -> None:
    """It fetches nothing, which is said, and is not the same as fetching together."""
    node = {"node": {"mtbf": "1 d"}, "during": "running"}
    runs = {}
    for fetched in ("together", "one_by_one"):
        spares = {"warm": 2, "fetched": fetched}
        asked = {"kind": "spares", "repair": {"automatic": "2 h"}, "spares": spares}
        runs[fetched] = of(failures=node, recovery=asked, training={"samples": 80_000})
    said = "recovery.spares.fetched: one_by_one fetches nothing"
    told = {name: any(said in text for text in run.warnings) for name, run in runs.items()}
    assert told == {"together": False, "one_by_one": True}


def test_technicians_enough_for_all_are_no_limit() -> None:
    course = shop(10, 2, None, 20 * DAY, DAY)
    many = replace(course, repair=replace(course.repair, technicians=64))  # type: ignore[type-var]
    assert live(many, 20).times == pytest.approx(live(course, 20).times, rel=1e-12)


def test_a_technician_more_is_never_worse() -> None:
    """On the same draws, in every single run."""
    before = None
    for technicians in (1, 2, 3, None):
        times = live(shop(10, 3, technicians, 10 * DAY, DAY), 20).times
        if before is not None:
            assert (times <= before * (1 + 1e-12)).all()
            assert (times < before).any()
        before = times


def test_the_wait_for_a_technician_is_erlang_s() -> None:
    """M/M/1 and M/M/2 by hand; more work than can be done has no end."""
    assert queued(0.5, 1.0, 1) == pytest.approx(1.0)
    assert queued(0.8, 1.0, 1) == pytest.approx(4.0)
    assert queued(1.0, 1.0, 2) == pytest.approx(1.0 / 3.0)  # rho^2 / (1 - rho^2)
    assert queued(2.0, 1.0, 2) == math.inf
    plain = Repair(automatic=10.0, manual=100.0, escalates=0.5)
    assert away_for(plain, 1.0, 1e9) == 60.0
    assert away_for(replace(plain, technicians=1), 0.01, 1e9) == pytest.approx(60.0 + 50.0)


MENDED: dict[str, Any] = {"automatic": "1 h", "manual": "1 d", "escalates": "50 %"}


@pytest.mark.parametrize(
    ("given", "said"), [(0, "1 … 1,024"), (1.5, "whole number"), (2000, "1 … 1,024")]
)
def test_what_is_no_number_of_technicians_is_refused(given: Any, said: str) -> None:
    with pytest.raises(Refused, match=said):
        of(recovery={"kind": "restart", "repair": {**MENDED, "technicians": given}})


def test_a_shop_that_cannot_keep_up_is_refused_by_name() -> None:
    """Eight failures a day, half of them a technician's day each, over 100 days."""
    with pytest.raises(Refused, match=r"hardly ever have all .*technicians: 1\)"):
        of(training={"samples": 700_000_000},
           recovery={"kind": "restart", "detection": "0 s", "spares": {"idle": 8},
                     "repair": {**MENDED, "technicians": 1}})  # fmt: skip


def test_technicians_for_whom_there_is_nothing_to_do_are_told() -> None:
    found = of(recovery={"kind": "restart", "repair": {"automatic": "1 min", "technicians": 3}})
    assert any("technicians changes nothing" in one for one in found.warnings)
    assert np.isfinite(found.points[0]["time_to_train_s"])
