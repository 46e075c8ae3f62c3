"""The programs that fit constants on training runs find what is in made-up runs."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "validation"))

import _fit_intervals
import _fit_peak
import fit_training
from _fit_compute import CONTENTION, SPREAD, PlayedRow, logs_of
from _fit_intervals import Cause
from _fit_peak import SHARES, Level

from dpsim.accuracy.scores import fitted_on
from dpsim.cases.work import LASTING

EVEN = [name for name in map(str, range(400)) if fitted_on(name)]


def _made(n: int, sources: int = 4) -> tuple[dict[str, Cause], np.ndarray, np.ndarray]:
    """Misses that are normal with deviation 0.1, and 0.3 per unit of what is known, alike in all
    sources."""
    rng = np.random.default_rng(1)
    known = rng.uniform(0.0, 2.0, n)
    logs = rng.normal(0.0, np.hypot(0.1, 0.3 * known))
    one = np.ones(n)
    causes = {"run": Cause(one, one), "network": Cause(known, known)}
    return causes, logs, np.array([f"s{k % sources}" for k in range(n)])


def test_widths_are_those_of_the_misses() -> None:
    """90 % of a normal number lie within 1.645 deviations."""
    causes, logs, groups = _made(4000)
    low, high = _fit_intervals.fitted(causes, logs, _fit_intervals.weights_of(groups))
    for side in (low, high):
        assert side == pytest.approx([0.1645, 0.4935], rel=0.15)


def test_intervals_hold_what_was_left_out_and_beat_a_constant() -> None:
    causes, logs, groups = _made(600)
    found = _fit_intervals.learned(causes, logs, groups)
    inside = (-logs <= found.below) & (logs <= found.above)
    assert np.mean(inside) == pytest.approx(0.9, abs=0.02)
    own = _fit_intervals.scores(logs, found.below, found.above).mean()
    constant = _fit_intervals.scores(logs, *_fit_intervals.constant(logs, groups)).mean()
    assert own < 0.9 * constant


def test_no_interval_reaches_farther_below_than_it_may() -> None:
    """What lies below is missed, whatever the widths, and counts as missed."""
    causes, logs, groups = _made(600)
    most = np.where(np.arange(600) % 2 == 0, 0.05, math.inf)
    found = _fit_intervals.learned(causes, logs, groups, most)
    assert (found.below <= most).all()
    missed = -logs[most < 1] > 0.05
    assert 0 < missed.mean() < 0.9
    free = _fit_intervals.learned(causes, logs, groups)
    assert found.factor >= free.factor


def test_widths_are_widened_where_sources_differ() -> None:
    """One source of four is off by 1, which the other three do not tell."""
    causes, logs, groups = _made(400)
    logs = logs + (groups == "s3")
    assert _fit_intervals.learned(causes, logs, groups).factor > 1.2


def test_a_score_is_the_width_and_twenty_times_what_lies_outside() -> None:
    logs = np.array([0.0, 0.5, -0.5])
    ends = np.full(3, 0.2), np.full(3, 0.3)
    assert _fit_intervals.scores(logs, *ends) == pytest.approx([0.5, 0.5 + 4.0, 0.5 + 6.0])


def test_uncalibrated_runs_are_the_wider_the_longer_they_take_over_their_multiplications() -> None:
    """And on devices after Ampere, as the last of these."""
    known = [{"overhead": over, "newer": over > 1.0} for over in (0.0, 0.5, 2.0)]
    causes = _fit_intervals.uncalibrated(known)
    assert list(causes["any"].above) == [1.0, 1.0, 1.0]
    assert list(causes["overhead"].below) == [0.0, 0.5, 2.0]
    assert list(causes["newer"].above) == [0.0, 0.0, 1.0]
    below, above = _fit_intervals.half_widths(causes, (np.array([0.3, 0.2, 1.2, 1.0]),) * 2)
    assert list(above) == pytest.approx([0.3, math.hypot(0.3, 0.1), 1.3], rel=1e-6)
    assert list(below) == list(above)


def test_a_cause_that_is_asked_for_alone_has_no_part_in_what_is_learned_with_late_ones() -> None:
    """All are known alike: together the two that are learned at last share the width."""
    known = np.ones(400)
    logs = np.linspace(-1.0, 1.0, 400)
    alone, late = Cause(known, known, alone=True), Cause(known, known, late=True)
    ones = np.ones(400)
    both = _fit_intervals.fitted({"alone": alone, "late": late, "beside": late}, logs, ones)
    single = _fit_intervals.fitted({"alone": alone}, logs, ones)
    for (width, first, second), (own,) in zip(both, single, strict=True):
        assert width == pytest.approx(own, rel=1e-3)
        assert math.hypot(first, second) == pytest.approx(own, rel=1e-2)


def test_a_half_width_is_made_without_the_causes_that_are_asked_for_alone() -> None:
    known = np.ones(3)
    alone, late = Cause(known, known, alone=True), Cause(known, known, late=True)
    widths = np.array([0.4, 0.2])
    below, above = _fit_intervals.half_widths({"alone": alone, "late": late}, (widths, widths))
    assert list(below) == list(above) == pytest.approx([0.2] * 3)


def test_the_share_of_peak_is_the_median_of_what_series_tell() -> None:
    """Compute-bound steps take 1 / share, whatever the share: logs fall with its logarithm."""
    truths = (0.3, 0.35, 0.4, 0.45, 0.6)
    levels = [
        Level(
            name,
            "x",
            "volta.half",
            "volta.half.small",
            tuple(math.log(truth / share) for share in SHARES),
        )
        for name, truth in zip(EVEN, truths, strict=False)
    ]
    for level, truth in zip(levels, truths, strict=True):
        assert level.share() == pytest.approx(truth)
        assert level.miss(truth) == pytest.approx(0.0, abs=1e-12)
    found = _fit_peak.learn(levels)
    assert found["volta.half.efficiency"].value == pytest.approx(0.4)
    assert found["volta.half.efficiency"].n == 5


def test_series_that_are_held_out_do_not_move_a_constant() -> None:
    odd = [name for name in map(str, range(400)) if not fitted_on(name)]
    logs = tuple(math.log(0.4 / share) for share in SHARES)
    other = tuple(math.log(0.9 / share) for share in SHARES)
    found = [Level(name, "x", "volta.half", "volta.half.small", logs) for name in EVEN[:6]]
    found += [Level(name, "x", "volta.half", "volta.half.small", other) for name in odd[:50]]
    assert _fit_peak.learn(found)["volta.half.efficiency"].value == pytest.approx(0.4)


def test_contention_and_spread_are_found_where_they_were_put() -> None:
    """Steps of small models that are right at a contention of 0.6, of large ones at 0.2, and with a
    spread of 0.03 in a second of compute, which falls with the root of the time, beside what
    lasts."""
    rng = np.random.default_rng(0)
    grid = np.meshgrid(CONTENTION, SPREAD, SPREAD, indexing="ij")
    made = []
    for k, name in enumerate(EVEN[:60]):
        exposed, waiting = rng.uniform(0.1, 0.5), rng.uniform(0.5, 3.0)
        seconds, large = (1.0, rng.uniform(0.3, 30.0)), float(k % 2)
        right = 0.6 - 0.4 * large, *(math.hypot(LASTING, 0.03 / math.sqrt(s)) for s in seconds)
        off = [known - value for known, value in zip(grid, right, strict=True)]
        logs = exposed * off[0] - waiting / 2 * off[1] + waiting * off[2]
        made.append(PlayedRow("x", name, logs, seconds, large))
    found = fit_training.fit_compute(made)
    assert found["nccl.contention"].value == pytest.approx(0.6, abs=0.05)
    assert found["nccl.contention.large"].value == pytest.approx(0.2, abs=0.05)
    assert found["gpu.spread"].value == pytest.approx(0.03, abs=0.002)


def test_runs_on_synthetic_data_tell_nothing_of_what_comes_and_goes() -> None:
    own = np.broadcast_to(SPREAD, (len(CONTENTION), len(SPREAD), len(SPREAD)))
    tried = np.array([(0.6, 0.2, second) for second in (0.0, 0.02, 0.04)])
    row = PlayedRow("x", "y", own, (1.0, 1.0), 0.0, synthetic=True)
    assert logs_of([row], tried)[0] == pytest.approx([0.0, LASTING, LASTING])
    varied = logs_of([row._replace(synthetic=False)], tried)[0]
    assert varied == pytest.approx([0.0, math.hypot(LASTING, 0.02), math.hypot(LASTING, 0.04)])
