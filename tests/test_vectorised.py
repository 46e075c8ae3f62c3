"""What the vectorised engine rests on: lines of ranks, and a clock on which work only adds up."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engines import assert_same, play_of

from dpsim.backends.ideal import Ideal
from dpsim.compile.program import Cast, Op, Program
from dpsim.core.errors import SimulationError
from dpsim.play import NotApplicable, event, vectorised
from dpsim.play.vectorised.position import Factors, Position, front
from dpsim.play.vectorised.slowing import Slowing, Value

times = st.floats(0.0, 10.0)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(
    st.lists(st.tuples(times, times), min_size=1, max_size=50),
    st.lists(st.tuples(st.sampled_from(["work", "spend", "wait"]), times), max_size=8),
    times,
)
def test_the_front_has_the_last_rank_whatever_all_do(
    ranks: list[tuple[float, float]], deeds: list[tuple[str, float]], busy: float
) -> None:
    """max over all ranks, from the few that may ever be last; beside a collective too."""
    begins, factors = np.array(ranks).T
    kept = front(begins, factors)
    everyone, few = (
        Position(begins[k], Factors(factors[k])) for k in (np.arange(len(ranks)), kept)
    )
    clock = Slowing(0.6)
    clock.talk(busy, 2 * busy)
    for name, value in deeds:
        for position in (everyone, few):
            if name == "spend":
                position.move(clock.work(clock.time(position.now.each) + value))
            else:
                getattr(position, name)(value)
        assert few.now.peak == pytest.approx(everyone.now.peak, rel=1e-12)


def test_few_ranks_are_ever_last() -> None:
    rng = np.random.default_rng(0)
    begins, factors = rng.normal(1.0, 0.01, 100_000), rng.normal(1.0, 0.02, 100_000)
    assert len(front(begins, factors)) < 50


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.lists(st.tuples(times, times), max_size=8), st.lists(times, min_size=1), st.booleans())
def test_the_clock_of_work_loses_what_the_collectives_take(
    spans: list[tuple[float, float]], asked: list[float], apart: bool
) -> None:
    """work(t) = t - c / (1 + c) x (time until t in which bytes moved), and back; for one number as
    for one for each rank."""
    clock = Slowing(0.6)
    for begin, length in spans:
        ends = begin + length
        clock.talk(np.array([begin, begin]) if apart else begin, ends)
    grid = np.array([0.0, *sorted(t for begin, length in spans for t in (begin, begin + length))])
    for when in asked:
        edges = np.unique(np.append(np.minimum(grid, when), when))
        moved = sum(
            b - a
            for a, b in pairwise(edges)
            if any(begin <= a and b <= begin + length for begin, length in spans)
        )
        for value in (when, np.array([when, when])):
            work = clock.work(value)
            assert np.asarray(work) == pytest.approx(when - 0.6 / 1.6 * moved, abs=1e-12)
            assert np.asarray(clock.time(work)) == pytest.approx(when, abs=1e-12)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.lists(st.tuples(times, times, times, times), min_size=1, max_size=8), times, times)
def test_each_rank_has_the_clock_that_it_would_have_alone(
    spans: list[tuple[float, float, float, float]], early: float, late: float
) -> None:
    """Ranks whose bytes move at other times: some are beyond a stretch that others have not
    reached, or have left all behind."""
    alone, both = (Slowing(0.6), Slowing(0.6)), Slowing(0.6)
    for *begins, first, second in sorted(spans):
        ends = begins[0] + first, begins[1] + second
        both.talk(np.array(begins), np.array(ends))
        for clock, begin, end in zip(alone, begins, ends, strict=True):
            clock.talk(np.array([begin]), np.array([end]))
    when = np.array([early, late])
    works = [clock.work(when[k : k + 1]) for k, clock in enumerate(alone)]
    found = both.work(when)
    assert np.asarray(found) == pytest.approx(np.concatenate(works), abs=1e-12)
    assert np.asarray(both.time(found)) == pytest.approx(when, abs=1e-12)
    joined = Slowing.stacked([both.of_rank(k) for k in (0, 1)], np.array)
    assert np.asarray(joined.work(when)) == pytest.approx(found, abs=1e-12)


def test_a_clock_of_which_nothing_is_left_keeps_what_is_past_beside_another() -> None:
    past, live = Slowing(1.0), Slowing(1.0)
    for clock, begin in ((past, 1.0), (live, 6.0)):
        clock.talk(np.array([begin, begin]), np.array([begin + 2.0, begin + 2.0]))
    past.forget(9.0)
    assert past.idle
    both = Slowing.stacked([past.of_rank(0), live.of_rank(0)], np.array)
    assert np.asarray(both.work(np.array([10.0, 10.0]))).tolist() == [9.0, 9.0]
    assert np.asarray(both.work(np.array([5.0, 5.0]))).tolist() == [4.0, 5.0]


def test_stretches_that_all_ranks_are_past_are_forgotten_and_still_count() -> None:
    """Of one clock all but the last, with which the same is worked out as before."""
    one, each = Slowing(1.0), Slowing(1.0)
    for begin, end in ((1.0, 3.0), (5.0, 7.0)):
        one.talk(begin, end)
        each.talk(np.array([begin, begin]), np.array([end, end]))
    before = one.time(6.0)
    for clock in (one, each):
        clock.forget(5.0)
        assert np.asarray(clock.time(6.0)) == pytest.approx(8.0, abs=1e-12)
    assert one.time(6.0) == before
    assert one.ceased == 5.0
    assert each.idle


def test_waiting_moves_only_ranks_that_are_early() -> None:
    position = Position(np.array([0.0, 1.0, 2.0]), Factors(np.array([1.0, 2.0, 3.0])))
    position.work(1.0)
    position.wait(2.5)
    assert np.asarray(position.now.each).tolist() == [2.5, 3.0, 5.0]
    assert (position.low, position.high) == (2.5, 5.0)
    position.wait(9.0)
    assert position.now.each == 9.0


@pytest.mark.parametrize("contention", [0.0, 0.7])
def test_a_rank_that_is_never_last_moves_no_other(contention: float) -> None:
    """Ranks that are all alike are one number; one that is faster makes them many.  What the others
    do is the same."""
    program = Program(
        (
            Op("F", "forward", seconds=1e-3),
            Op("AR", "collective", "c", operation="all_reduce", bytes=1e6, after=(0,)),
            Op("C", "copy", seconds=3e-4),
            Op("B", "backward", seconds=2e-3),
            Op("W", "wait", after=(1,)),
            Op("O", "optimizer", seconds=1e-4),
        )
    )
    alike, apart = np.full(6, 1.25), np.full(6, 1.25)
    apart[4] = 1.0
    found = [
        vectorised.play(
            play_of(Cast.uniform(program, 6), Ideal(latency=1.5e-3), steps=3,
                    factors=lambda _, own=own: own, contention=contention)  # type: ignore[misc]
        )
        for own in (alike, apart)
    ]  # fmt: skip
    assert found[0].durations == pytest.approx(found[1].durations, rel=1e-12)
    assert np.array(found[0].splits) == pytest.approx(np.array(found[1].splits), abs=1e-15)
    assert found[0].last.column(2).end == pytest.approx(found[1].last.column(2).end, rel=1e-12)
    assert {found[k].last.critical_rank() for k in (0, 1)} == {0}


@pytest.mark.parametrize("meeting", [False, True], ids=["alone", "after a meeting"])
@pytest.mark.parametrize(
    "own",
    [
        Op("later", "forward", seconds=1e-4, after=(0,), delay=8e-3),
        Op("late host", "forward", seconds=1e-4, blocks_host=True),
    ],
    ids=lambda op: op.name,
)
def test_what_each_rank_waits_for_alone_tells_ranks_apart(own: Op, meeting: bool) -> None:
    """The last rank does not stand for the others where each waits for itself."""
    talk = Op("AR", "collective", "c", operation="all_reduce", bytes=1e6, after=(0,))
    met = (talk, Op("W", "wait", after=(1,))) if meeting else ()
    program = Program(
        (Op("F", "forward", seconds=1e-3), *met, own, Op("O", "optimizer", seconds=1e-3))
    )
    factors = np.random.default_rng(1).normal(1.0, 0.1, (3, 5))
    play = play_of(Cast.uniform(program, 5), steps=3, factors=lambda k: factors[k])
    assert_same(event.play(play), vectorised.play(play))


@pytest.mark.parametrize("issue", [0.0, 3e-5])
@pytest.mark.parametrize("contention", [0.0, 0.7])
def test_the_slowest_goes_ahead_from_where_all_have_met(
    issue: float, contention: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others follow from the last meeting on, and end where the event engine has them."""
    layer = 5
    program = Program(
        tuple(
            op
            for k in range(0, 20 * layer, layer)
            for op in (
                Op(f"AG{k}", "collective", "c", operation="all_gather", bytes=1e6,
                   after=(k - 1,) if k else (), after_step=not k, issue=issue),
                Op(f"W{k}", "wait", after=(k,)),
                Op(f"F{k}", "forward", seconds=1e-3, issue=issue),
                Op(f"C{k}", "copy", seconds=2e-4),
                Op(f"G{k}", "forward", seconds=1e-4),
            )
        )
    )  # fmt: skip
    factors = np.random.default_rng(7).normal(1.0, 0.1, (3, 9))
    play = play_of(Cast.uniform(program, 9), Ideal(latency=1.5e-3), steps=3,
                   factors=lambda k: factors[k], contention=contention)  # fmt: skip
    waits: list[bool] = []
    wait = Position.wait

    def counted(position: Position, until: Value) -> bool:
        waits.append(isinstance(position.factors.each, float))
        return wait(position, until)

    monkeypatch.setattr(Position, "wait", counted)
    vectorised.play(play, splits=False)
    assert waits.count(True) > 50  # waits of one rank that goes ahead
    assert waits.count(False) < 30  # and of all or of the front: in one layer of twenty and a step
    monkeypatch.undo()
    assert_same(event.play(play), vectorised.play(play))


def talk(name: str, **rest: Any) -> Op:
    return Op(name, "collective", "a", operation="all_reduce", bytes=1.0, **rest)


WORK = Op("Z", "forward")
LOOKING_BACK = {
    "a collective, late after old work": (
        WORK, talk("A"), Op("F", "forward", seconds=1.0), talk("B", after=(2,)),
        talk("D", after=(0,), delay=4.0), Op("W", "wait", after=(4,)),
    ),
    "a computation, late after old work": (
        WORK, talk("A"), Op("F", "forward", seconds=1.2), talk("B", after=(2,)),
        Op("D", "copy", after=(0,), delay=2.0),
    ),
    "a computation, late after work before a meeting": (
        Op("F", "forward", seconds=1.0), talk("A", after=(0,)), Op("W", "wait", after=(1,)),
        Op("D", "copy", after=(0,), delay=5.0), Op("G", "forward", seconds=1.0),
    ),
    "a collective after the step before": (
        Op("F", "forward", seconds=1.0), talk("A", after=(0,)), Op("G", "forward", seconds=1.0),
        talk("B", after_step=True), Op("W", "wait", after=(3,)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("contention", [0.0, 1.0])
@pytest.mark.parametrize("name", LOOKING_BACK)
def test_what_is_looked_back_at_was_when_it_was(name: str, contention: float) -> None:
    """The clock of work forgets what all ranks are past; nobody who looks back is told wrong."""
    factors = np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
    play = play_of(
        Cast.uniform(Program(LOOKING_BACK[name]), 3), Ideal(latency=1.0), steps=2,
        factors=lambda k: factors[k], contention=contention,
    )  # fmt: skip
    found = event.play(play)
    assert_same(found, vectorised.play(play))


@pytest.mark.parametrize(
    "then",
    [
        (Op("AR", "collective", "t", group="world", operation="all_reduce", bytes=1.0),),
        (
            Op(
                "AR",
                "collective",
                "c",
                group="world",
                operation="all_reduce",
                bytes=1.0,
                after=(1,),
            ),
        ),
        (),
    ],
    ids=["on its stream", "on another", "alone"],
)
def test_a_message_is_received_by_who_is_there(then: tuple[Op, ...]) -> None:
    """What has arrived is not taken before the receiver has come."""
    message = {"stream": "t", "group": "pair", "bytes": 1.0}
    sender = (Op("S", "transfer", operation="send", **message), *then)
    late = (Op("F", "forward", seconds=5.0),)
    receiver = (Op("R", "transfer", operation="receive", after=(0,), **message), *then)
    ends = len(sender) - 1, len(late + receiver) - 1
    sender = tuple(op._replace(after=(0,)) if op.after else op for op in sender)
    programs = tuple(
        Program((*ops, Op("W", "wait", after=(end,), delay=3.0)))
        for ops, end in zip((sender, (*late, *receiver)), ends, strict=True)
    )
    cast = Cast(programs, (0, 1), {"pair": ((0, 1),), "world": ((0, 1),)})
    play = play_of(cast, Ideal(latency=1.0))
    assert_same(event.play(play), vectorised.play(play))


def test_a_delay_that_is_no_time_is_refused() -> None:
    cast = Cast.uniform(Program((Op("F", "forward", seconds=1.0),)), 2)
    for wrong in (-1.0, np.nan, np.inf):
        play = replace(play_of(cast), delays=lambda _, d=wrong: [{0: np.array([0.0, d])}])
        for engine in (event, vectorised):
            with pytest.raises(SimulationError, match="no time"):
                engine.play(play)


@pytest.mark.parametrize("seed", range(0, 120, 3))
def test_a_steady_play_that_is_ended_early_is_the_whole_one(seed: int) -> None:
    """Steps that begin as the one before did are not played again, and nothing of them changes."""
    from random_plays import play_of as drawn

    play = drawn(seed)
    cast, factors = play.cast(0), play.factors(0)
    whole = replace(
        play, cast=lambda _: cast, factors=lambda _: factors, delays=None, network=lambda _: 1.0,
        steps=6, warmup=3,
    )  # fmt: skip
    try:
        expected = vectorised.play(whole, lanes=((1.0, 1.0), (1.3, 0.7)))
    except (SimulationError, NotApplicable):
        pytest.skip("not played in one pass")
    found = vectorised.play(replace(whole, steady=True), lanes=((1.0, 1.0), (1.3, 0.7)))
    assert found.durations == pytest.approx(expected.durations, rel=1e-11)
    assert found.lanes == pytest.approx(expected.lanes, rel=1e-11)
    for one, other in zip(found.splits, expected.splits, strict=True):
        assert one == pytest.approx(other, rel=1e-9, abs=1e-9)
    last = (found.last.spans((0,)), expected.last.spans((0,)))
    for span, other in zip(*last, strict=True):
        assert span[6:] == pytest.approx(other[6:], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", [10, 18, 21, 28, 31, 45, 394])
def test_splits_of_many_steps_at_once_are_those_of_each(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The critical ranks of all steps are played again together, from where each began."""
    from random_plays import play_of as drawn

    from dpsim.play.vectorised import together

    one = drawn(seed)

    def again(name: str) -> Any:
        """What is drawn for some steps, over and over."""
        known = getattr(one, name)
        return known and (lambda step: known(step % one.steps))

    names = ("cast", "factors", "network", "delays")
    several = replace(one, steps=8, warmup=1, **{name: again(name) for name in names})
    at_once = vectorised.play(several).splits
    monkeypatch.setattr(together, "ENOUGH", 9)
    apart = vectorised.play(several)
    assert np.array(at_once) == pytest.approx(np.array(apart.splits), rel=1e-9, abs=1e-12)
    assert apart.last.split() == pytest.approx(np.array(at_once[-1]), rel=1e-9, abs=1e-12)
