"""Both engines on programs that no strategy writes (`random_plays`): one answer, in every part."""

from __future__ import annotations

from collections import Counter

import pytest
from agreement import AGREE, TIES, compared, lanes_compared
from random_plays import play_of

BLOCK = 100
#: first seeds; behind the first block, some that see what few programs do: awaited ends on a
#: communicator that runs several at once, and work beside collectives that is looked back at
FIRST = (0, 2600, 3400, 200_250)


@pytest.mark.parametrize("first", FIRST)
def test_both_engines_say_the_same_of_random_programs(first: int) -> None:
    found = {seed: compared(play_of(seed)) for seed in range(first, first + BLOCK)}
    assert {seed: differ for seed, (_, differ) in found.items() if differ} == {}
    outcomes = Counter(outcome for outcome, _ in found.values())
    assert outcomes[AGREE] > BLOCK / 2  # both can play most of them
    assert outcomes[TIES] <= BLOCK / 50  # of things that end together rounding tells the last


def test_a_lane_is_the_play_with_its_multipliers() -> None:
    found = {seed: lanes_compared(play_of(seed)) for seed in range(50)}
    assert {seed: differ for seed, (_, differ) in found.items() if differ} == {}
    assert sum(outcome == AGREE for outcome, _ in found.values()) > 25
