"""Drawn loaders against a loop of their own; `tests/campaigns/loaders.py` plays hundreds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.campaigns.loaders import alike, heavy, shared


@pytest.mark.parametrize("look", [alike, heavy, shared])
@pytest.mark.parametrize("seed", range(12))
def test_a_loop_with_queues_says_the_same(look: Callable[[int], str | None], seed: int) -> None:
    assert look(seed) is None


@pytest.mark.parametrize("seed", [27, 44, 50])
def test_what_campaigns_found_is_told_alike(seed: int) -> None:
    """Workers that stay started anew in every epoch of `epoch_s`."""
    assert alike(seed) is None
