"""Scaling laws give their published numbers, and randomness the statistics it promises."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpsim.predict.laws import amdahl, fit_usl, gustafson, isoefficiency, karp_flatt, usl, usl_peak
from dpsim.variability import RandomSlow, Variability

SEED = 11


def test_amdahl_and_gustafson_at_5_percent_serial_work_on_64_ranks() -> None:
    assert amdahl(0.05, 64) == pytest.approx(15.4217, abs=5e-5)
    assert gustafson(0.05, 64) == pytest.approx(60.85, rel=1e-12)


@pytest.mark.parametrize("serial", [0.0, 0.01, 0.05, 0.5, 1.0])
@pytest.mark.parametrize("ranks", [2, 8, 64, 1024])
def test_karp_and_flatt_invert_amdahl(serial: float, ranks: int) -> None:
    assert karp_flatt(amdahl(serial, ranks), ranks) == pytest.approx(serial, abs=1e-12)


def test_one_rank_is_the_baseline_of_every_law() -> None:
    assert amdahl(0.3, 1) == gustafson(0.3, 1) == usl(0.3, 0.1, 1) == 1.0


def test_the_universal_scalability_law_peaks_where_its_formula_says() -> None:
    assert usl(0.02, 1e-4, 64) == pytest.approx(24.0312, abs=5e-5)
    assert usl_peak(0.02, 1e-4) == pytest.approx(98.995, abs=5e-4)
    peak = usl_peak(0.02, 1e-4)
    assert usl(0.02, 1e-4, peak) > max(usl(0.02, 1e-4, peak - 1), usl(0.02, 1e-4, peak + 1))


def test_without_crosstalk_there_is_no_peak() -> None:
    assert usl_peak(0.02, 0.0) == math.inf
    assert usl(0.05, 0.0, 64) == pytest.approx(amdahl(0.05, 64))


@pytest.mark.parametrize(("ranks", "work"), [(8, 192), (64, 3072), (512, 36_864)])
def test_work_that_keeps_80_percent_efficiency_under_2_n_log_n_overhead(
    ranks: int, work: float
) -> None:
    assert isoefficiency(0.8, 2 * ranks * math.log2(ranks)) == pytest.approx(work)


# -- fits -------------------------------------------------------------------------------------

RANKS = [1, 2, 4, 8, 16, 32, 64, 128]


@pytest.mark.parametrize(
    ("sigma", "kappa"), [(0.02, 1e-4), (0.1, 1e-6), (0.05, 0.0), (0.0, 1e-3), (0.0, 0.0)]
)
@pytest.mark.parametrize("scale", [1.0, 380.5])
def test_a_fit_recovers_what_was_planted(sigma: float, kappa: float, scale: float) -> None:
    fit = fit_usl(RANKS, [scale * usl(sigma, kappa, n) for n in RANKS])
    assert fit is not None
    assert fit.sigma == pytest.approx(sigma, rel=1e-6, abs=1e-10)
    assert fit.kappa == pytest.approx(kappa, rel=1e-6, abs=1e-10)
    assert fit.scale == pytest.approx(scale, rel=1e-6)


def test_a_fit_to_noisy_points_stays_near_and_never_goes_negative() -> None:
    rng = np.random.default_rng(SEED)
    for _ in range(50):
        points = [usl(0.02, 1e-4, n) * rng.normal(1.0, 0.02) for n in RANKS]
        fit = fit_usl(RANKS, points)
        assert fit is not None
        assert fit.kappa == pytest.approx(1e-4, rel=0.4)
        assert fit.sigma >= 0


def test_superlinear_points_are_fitted_with_parameters_that_mean_something() -> None:
    fit = fit_usl(RANKS, [n**1.1 for n in RANKS])
    assert fit is not None
    assert (fit.sigma, fit.kappa, fit.peak_ranks) == (0.0, 0.0, math.inf)


def test_fewer_than_four_different_counts_are_not_fitted() -> None:
    assert fit_usl([1, 2, 4], [1.0, 1.9, 3.5]) is None
    assert fit_usl([1, 2, 4, 4, 4], [1.0, 1.9, 3.5, 3.5, 3.6]) is None
    assert fit_usl([1, 2, 4, 8], [1.0, 1.9, 0.0, 3.6]) is None


# -- randomness -------------------------------------------------------------------------------


@pytest.mark.parametrize(("ranks", "expected"), [(8, 1.4236), (64, 2.3437)])
def test_the_slowest_of_n_jittery_ranks_is_the_expected_maximum(
    ranks: int, expected: float
) -> None:
    noise, steps = Variability(jitter=0.05), 20_000
    slowest = [(noise.factors(SEED, k, ranks).max() - 1.0) / 0.05 for k in range(steps)]
    assert np.mean(slowest) == pytest.approx(expected, abs=4 * np.std(slowest) / steps**0.5)


def test_jitter_has_mean_1_and_the_deviation_it_is_given() -> None:
    draws = np.array([Variability(jitter=0.1).factors(SEED, k, 100) for k in range(1000)])
    assert draws.mean() == pytest.approx(1.0, abs=4 * 0.1 / 1e5**0.5)
    assert draws.std() == pytest.approx(0.1, rel=0.01)


def test_one_slow_rank_in_a_thousand_makes_the_mean_step_of_1024_ranks_1_3205() -> None:
    noise, steps = Variability(random_slow=RandomSlow(probability=1e-3, factor=1.5)), 20_000
    slowest = [noise.factors(SEED, k, 1024).max() for k in range(steps)]
    expected = 1 + 0.5 * (1 - (1 - 1e-3) ** 1024)
    assert round(expected, 4) == 1.3205
    assert np.mean(slowest) == pytest.approx(expected, abs=4 * np.std(slowest) / steps**0.5)


def test_more_ranks_change_nobodys_draws() -> None:
    noise = Variability(jitter=0.1, random_slow=RandomSlow(probability=0.2, factor=1.5))
    few, many = noise.factors(SEED, 3, 8), noise.factors(SEED, 3, 1000)
    assert few.tolist() == many[:8].tolist()


def test_another_cause_changes_nobodys_draws() -> None:
    jitter = Variability(jitter=0.1).factors(SEED, 3, 64)
    slow = Variability(random_slow=RandomSlow(probability=0.2, factor=1.5)).factors(SEED, 3, 64)
    both = Variability(jitter=0.1, random_slow=RandomSlow(probability=0.2, factor=1.5))
    assert both.factors(SEED, 3, 64).tolist() == (jitter * slow).tolist()
    fixed = Variability(jitter=0.1, slow_ranks={5: 2.0}).factors(SEED, 3, 64)
    assert fixed[5] == pytest.approx(2.0 * jitter[5])
    assert np.delete(fixed, 5).tolist() == np.delete(jitter, 5).tolist()


def test_steps_and_seeds_draw_anew_and_the_same_ones_again() -> None:
    noise = Variability(jitter=0.1)
    first = noise.factors(SEED, 0, 16).tolist()
    assert first == noise.factors(SEED, 0, 16).tolist()
    assert first != noise.factors(SEED, 1, 16).tolist()
    assert first != noise.factors(SEED + 1, 0, 16).tolist()


def test_a_quiet_machine_has_factors_of_one_and_is_not_random() -> None:
    assert Variability().factors(SEED, 0, 4).tolist() == [1.0] * 4
    assert not Variability(slow_ranks={1: 1.5}).random
    assert Variability(jitter=0.1).random


def test_slow_ranks_beyond_the_job_are_ignored() -> None:
    assert Variability(slow_ranks={9: 2.0}).factors(SEED, 0, 4).tolist() == [1.0] * 4


def test_no_jitter_makes_time_run_backwards() -> None:
    draws = np.array([Variability(jitter=1.0).factors(SEED, k, 100) for k in range(100)])
    assert draws.min() == 0.0
