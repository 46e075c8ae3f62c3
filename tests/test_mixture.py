"""Predictions under several readings become one: its point, and the interval of the mixture."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpsim.accuracy.mixture import MixturePart, bounds, point
from dpsim.accuracy.questions import Inquiry, Option, explored

FAST, SLOW = MixturePart(1.0, 1.0, 0.8, 1.25), MixturePart(1.0, 4.0, 3.2, 5.0)


def test_two_equally_likely_readings_meet_in_the_middle_on_logs() -> None:
    assert point([FAST, SLOW]) == pytest.approx(2.0)
    assert point([SLOW, FAST]) == pytest.approx(2.0)


def test_the_more_probable_reading_is_the_point() -> None:
    likely = MixturePart(1.1, 4.0, 3.2, 5.0)
    assert point([FAST, likely]) == 4.0
    assert point([FAST, SLOW, MixturePart(1.0, 3.0, 2.0, 4.0)]) == 3.0


def test_one_reading_keeps_its_interval() -> None:
    assert bounds([FAST]) == (0.8, 1.25)


def test_equal_readings_are_one() -> None:
    low, high = bounds([FAST, FAST])
    assert (low, high) == pytest.approx((0.8, 1.25), rel=1e-6)


def test_the_interval_holds_nine_tenths_of_the_mixture() -> None:
    """Against draws: half of each, uneven to both sides of their points."""
    parts = [MixturePart(1.0, 1.0, 0.5, 1.1), MixturePart(3.0, 2.0, 1.8, 5.0)]
    low, high = bounds(parts)
    rng = np.random.default_rng(7)
    drawn = []
    for part, n in zip(parts, (100_000, 300_000), strict=True):
        z = rng.standard_normal(n) / 1.6448536269514722
        ends = np.where(z < 0, math.log(part.value / part.low), math.log(part.high / part.value))
        drawn.append(part.value * np.exp(z * ends))
    times = np.concatenate(drawn)
    assert np.mean(times < low) == pytest.approx(0.05, abs=0.002)
    assert np.mean(times > high) == pytest.approx(0.05, abs=0.002)


def test_every_combination_of_answers_is_read() -> None:
    def read(asked: Inquiry) -> str:
        first = asked.ask("wire", [Option("a", 1, ""), Option("b", 3, "")]).name
        return first + (asked.ask("peers", [Option("x", 1, ""), Option("y", 1, "")]).name
                        if first == "b" else "")  # fmt: skip

    found = explored(read)
    assert {result: weight for result, weight, _ in found} == {"a": 0.25, "bx": 0.375, "by": 0.375}


def test_at_most_four_readings_are_kept_and_their_weights_add_up() -> None:
    many = [Option(str(k), k, "") for k in range(1, 7)]
    found = explored(lambda asked: asked.ask("which", many).name)
    assert [result for result, _, _ in found] == ["3", "4", "5", "6"]
    assert sum(weight for _, weight, _ in found) == pytest.approx(1.0)
