"""Both engines and a third player agree on drawn meshes, and a mesh of one rank along every axis is
the plain job.  `tests/campaigns/mesh_players.py` plays a thousand."""

from __future__ import annotations

from typing import Any

import pytest
from drawn_meshes import STRATEGIES, disagreements, whole_and_split


@pytest.mark.parametrize("seed", [13, 16, 25, 26, 32, 60, 71])
def test_both_engines_and_a_third_player_agree_on_drawn_meshes(seed: int) -> None:
    assert disagreements(seed) == ([], True)


@pytest.mark.parametrize("strategy", [strategy for strategy, _ in STRATEGIES], ids=str)
def test_a_mesh_of_one_rank_along_every_axis_is_the_plain_job(strategy: dict[str, Any]) -> None:
    whole, split = whole_and_split(strategy, 2)
    assert split == pytest.approx(whole, rel=1e-9)
