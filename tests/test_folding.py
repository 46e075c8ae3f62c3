"""Ranks that do the same are played as one, and nobody can tell."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from test_engines import job_of, machine, play_of, plays

from dpsim.backends.nccl import Nccl
from dpsim.compile.critical import critical_path
from dpsim.compile.program import Cast, Op, Program
from dpsim.compile.strategies import Strategy
from dpsim.compile.strategies.ddp import Ddp
from dpsim.compile.strategies.fsdp import Fsdp
from dpsim.compile.strategies.horovod import Horovod
from dpsim.compile.strategies.zero import Zero
from dpsim.compile.timeline import Timeline
from dpsim.core.errors import SimulationError
from dpsim.play import Play, event

RANKS = 8
STRATEGIES = [Ddp(bucket_cap_mb=2), Fsdp(), Fsdp(shard=4), Zero(), Horovod()]


def unfolded(cast: Cast) -> Cast:
    """The same with a role for every rank, so that nobody takes any two for one."""
    programs = tuple(cast.program(rank) for rank in range(cast.ranks))
    return Cast(programs, tuple(range(cast.ranks)), cast.groups)


def assert_equal(folded: Timeline, rank_by_rank: Timeline) -> None:
    """To the bit, in everything that anybody looks at."""
    assert folded.durations == rank_by_rank.durations
    assert folded.splits == rank_by_rank.splits
    ranks = range(folded.last.cast.ranks)
    assert folded.last.spans(ranks) == rank_by_rank.last.spans(ranks)
    assert folded.last.critical_rank() == rank_by_rank.last.critical_rank()
    assert critical_path(folded.last) == critical_path(rank_by_rank.last)


def both(cast: Cast, play: Callable[[Cast], Play], detail: str) -> tuple[Timeline, Timeline]:
    return (event.play(play(cast), detail=detail), event.play(play(unfolded(cast)), detail=detail))


@pytest.mark.parametrize("detail", ["collective", "rounds"])
@pytest.mark.parametrize("contention", [0.0, 0.5])
@pytest.mark.parametrize("slow", [(), (3,)], ids=["alike", "one slow"])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: type(s).__name__)
def test_unfolding_changes_nothing(
    strategy: Strategy, slow: tuple[int, ...], contention: float, detail: str
) -> None:
    program = strategy.program(job_of(RANKS), None)
    groups = {"world": (tuple(range(RANKS)),), **strategy.groups(RANKS)}
    factors = np.where(np.isin(np.arange(RANKS), slow), 1.3, 1.0)

    def play(cast: Cast) -> Play:
        return play_of(
            cast, Nccl(algorithm="ring"), topology=machine(2, 4), steps=3,
            factors=lambda k: factors, contention=contention,
        )  # fmt: skip

    folded, rank_by_rank = both(Cast((program,), (0,) * RANKS, groups), play, detail)
    assert_equal(folded, rank_by_rank)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plays())
def test_unfolding_changes_nothing_in_random_programs(drawn: Play) -> None:
    factors = [np.round(drawn.factors(k)) + 1.0 for k in range(drawn.steps)]

    def play(of: Callable[[Cast], Cast]) -> Play:
        casts = [of(drawn.cast(k)) for k in range(drawn.steps)]
        return Play(
            lambda k: casts[k], drawn.costs, drawn.steps, 0, lambda k: factors[k], drawn.contention
        )

    assert_equal(event.play(play(lambda cast: cast)), event.play(play(unfolded)))


def test_equal_ranks_cost_no_events() -> None:
    """A rank that computes at a pace of its own is played by itself, all others as one."""
    program = Fsdp().program(job_of(RANKS), None)

    def events(ranks: int, paces: int) -> int:
        play = play_of(
            Cast.uniform(program, ranks), contention=0.5,
            factors=lambda k: 1.0 + 0.1 * np.minimum(np.arange(ranks), paces - 1),
        )  # fmt: skip
        return event.play(play).events

    assert events(4, 1) == events(64, 1) < events(4, 2) <= events(64, 2) < events(64, 64)


def test_ranks_in_different_groups_are_not_the_same() -> None:
    """Hybrid sharding: no two ranks have the same two groups."""
    program = Fsdp(shard=4).program(job_of(RANKS), None)
    groups = {"world": (tuple(range(RANKS)),), **Fsdp(shard=4).groups(RANKS)}
    cast, topology = Cast((program,), (0,) * RANKS, groups), machine(2, 4)
    counts = [
        event.play(play_of(of, Nccl(algorithm="ring"), topology=topology)).events
        for of in (cast, unfolded(cast))
    ]
    assert counts[0] == counts[1]


def test_a_deadlock_names_all_ranks_of_a_player() -> None:
    talk = Op("A", "collective", stream="c", operation="all_reduce", bytes=1.0)
    wait = Op("W", "wait", after=(0,))
    early = Program((talk, wait))
    late = Program((wait._replace(after=()),))
    cast = Cast((early, late), (0, 0, 0, 1), {"world": ((0, 1, 2, 3),)})
    with pytest.raises(SimulationError, match=r"rank 0 .*rank 1 .*rank 2 .*for 1 of 4 ranks"):
        event.play(play_of(cast))
