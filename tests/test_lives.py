"""Courses on which the two players of runs with failures once disagreed, and runs beside others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpsim.life.abreast import live, live_each
from dpsim.life.course import Course
from tests.campaigns.lives import course_of, looked_at


@pytest.mark.parametrize("seed", [5000, 5057, 6103, 7126])
def test_what_campaigns_found_is_told_alike(seed: int) -> None:
    """A checkpoint at the very end, by rounding (5000; 7126, of several levels), a node that came
    while another run broke (5057), warm nodes beside cold ones that are asked for (6103)."""
    assert looked_at(seed) == []


def test_a_run_depends_on_no_other() -> None:
    """Neither on how many are drawn nor on what else is played in the same pass."""
    course, seldom = course_of(5057), rarer(course_of(5057))
    assert live(course, 4).times[0] == live(course, 1).times[0]
    for together, alone in zip(live_each([course, seldom], 2), (course, seldom), strict=True):
        assert (together.seconds == live(alone, 2).seconds).all()


def rarer(course: Course) -> Course:
    """The same, with failures of constant rate half as often."""
    each = (one if one.shape else one._replace(mtbf=2 * one.mtbf) for one in course.hazards)
    return replace(course, hazards=tuple(each))
