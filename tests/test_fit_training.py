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
from _fit_intervals import Miss
from _fit_peak import SHARES, Level

from dpsim.accuracy.scores import fitted_on

EVEN = [name for name in map(str, range(400)) if fitted_on(name)]


def test_a_width_is_the_point_that_one_run_in_twenty_exceeds() -> None:
    """Misses of 1, 2 … 100 % either way and no collectives: the 95 % points are 95 %."""
    slow = [Miss(f"s{k}", "x", math.log1p(k / 100), 0.0, 0.0, False, 0.0) for k in range(1, 101)]
    fast = [Miss(f"f{k}", "x", math.log1p(-k / 200), 0.0, 0.0, False, 0.0) for k in range(1, 101)]
    _, up, lost = _fit_intervals.best([*slow, Miss("i", "x", 0.0, 0.0, 0.0, True, 1.0)])
    assert up == pytest.approx(1.955, abs=0.011)
    assert lost == 0.0
    down, _, _ = _fit_intervals.best([*fast, Miss("i", "x", 0.0, 0.0, 0.0, True, 1.0)])
    assert 1.0 - 1.0 / down == pytest.approx(0.4775, abs=0.006)


def test_what_collectives_explain_is_taken_off_in_quadrature() -> None:
    one = Miss("a", "x", math.log(1.5), 0.3, 0.0, False, 0.0)
    image = Miss("b", "x", 0.0, 0.0, 0.0, True, 1.0)
    _, up, _ = _fit_intervals.best([one, image])
    assert up == pytest.approx(1.0 + 0.4)  # 0.5^2 = 0.3^2 + 0.4^2
    low, high = _fit_intervals.ends([one], (1.1, up, 0.0))
    assert high == pytest.approx([1.5])
    assert low == pytest.approx([1.0 / 1.1])


def test_every_series_has_the_same_weight() -> None:
    many = [Miss("many", "x", math.log(1.01), 0.0, 0.0, False, 0.0)] * 1000
    few = [Miss(f"f{k}", "x", math.log(1.5), 0.0, 0.0, False, 0.0) for k in range(9)]
    _, up, _ = _fit_intervals.best([*many, *few, Miss("i", "x", 0.0, 0.0, 0.0, True, 1.0)])
    assert up == pytest.approx(1.5)


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
    """Logs of predictions that are right at contention 0.6 and spread 0.03, and off elsewhere."""
    tried = [(c, s) for c in fit_training.CONTENTION for s in fit_training.SPREAD]
    rng = np.random.default_rng(0)
    made = []
    for name in EVEN[:60]:
        exposed, waiting = rng.uniform(0.0, 0.5), rng.uniform(0.5, 3.0)
        logs = tuple(exposed * (c - 0.6) + waiting * (s - 0.03) for c, s in tried)
        made.append(fit_training.Residual("x", name, logs))
    found = fit_training.fit_compute(made)
    assert found["nccl.contention"].value == pytest.approx(0.6, abs=0.08)
    assert found["gpu.spread"].value == pytest.approx(0.03, abs=0.004)
