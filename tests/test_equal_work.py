"""One pass over formulas says what playing every transfer says, on links that rings share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dpsim.collectives.ring_orders import rings
from dpsim.play import event, vectorised

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
import equal_work

RANKS = 16


def test_two_rings_cross_the_slow_link() -> None:
    topology = equal_work.machine(RANKS // 2)
    assert len(rings(topology, range(RANKS))) == 2
    (phase,) = equal_work.play_of(RANKS).costs.plan("all_reduce", tuple(range(RANKS)), 1e8).phases
    assert phase.busiest is not None
    assert topology.link(phase.busiest).bandwidth == equal_work.SLOW


def test_every_transfer_with_jitter_and_a_slow_link_takes_what_one_pass_says() -> None:
    """At 256 ranks, 24 s of playing, it is `python benchmarks/equal_work.py`."""
    play = equal_work.play_of(RANKS)
    rounds = event.play(play, detail="rounds")
    assert rounds.events > event.play(play).events
    assert vectorised.play(play).step_time == pytest.approx(rounds.step_time, rel=1e-12)
