"""Delays: seconds that single operations of single ranks take longer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import cast_of, job_of

from dpsim.backends.ideal import Ideal
from dpsim.cases.case import Case
from dpsim.compile.program import Cast
from dpsim.compile.strategies.ddp import Ddp
from dpsim.core.record import Refused, build, dump
from dpsim.describe.scenario import load
from dpsim.play import Costs, Play, event, vectorised
from dpsim.predict.blame import blame
from dpsim.predict.prediction import Prediction, predict
from dpsim.variability import Delays, Variability

RANKS = 4
ENGINES = [event, vectorised]
TOY: dict[str, Any] = {
    "model": {"layers": [
        {"name": "a", "parameters": 1000, "forward": "4 ms", "backward": "6 ms"},
        {"name": "b", "parameters": 1000, "forward": "1 ms", "backward": "2 ms"},
    ]},
    "cluster": {"ranks": RANKS},
    "collective": {"backend": "ideal", "latency": "1 ms"},
    "strategy": {"kind": "ddp"},
    "optimizer": {"kind": "none"},
}  # fmt: skip


def of(folder: Path, rows: str, **changes: Any) -> Prediction:
    (folder / "delays.csv").write_text("rank,operation,seconds\n" + rows)
    return predict(
        load({**TOY, "variability": {"delays": {"file": "delays.csv"}}, **changes}, folder, "test")
    )


def late_of(cast: Cast, seconds: np.ndarray) -> Callable[[int], list[dict[int, np.ndarray]]]:
    """Delays of a cast of one role, from an array (operations, ranks)."""
    rows = {k: row for k, row in enumerate(seconds) if cast.programs[0].ops[k].scales}
    return lambda step: [rows]


def baked(cast: Cast, seconds: np.ndarray) -> Cast:
    """The same ranks, each with a program of its own whose operations take that much longer."""
    program = cast.programs[0]
    programs = tuple(
        type(program)(tuple(
            op._replace(seconds=op.seconds + seconds[k, rank]) if op.scales else op
            for k, op in enumerate(program.ops)
        ))
        for rank in range(cast.ranks)
    )  # fmt: skip
    return Cast(programs, tuple(range(cast.ranks)), cast.groups)


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 99), contention=st.sampled_from([0.0, 0.5]))
def test_a_late_operation_is_one_that_takes_longer(
    engine: ModuleType, seed: int, contention: float
) -> None:
    cast = cast_of(Ddp(bucket_cap_mb=2.0), job_of(RANKS))
    shape = (len(cast.programs[0].ops), RANKS)
    seconds = np.random.default_rng(seed).exponential(2e-3, shape)
    costs = Costs(Ideal(latency=1e-3, bandwidth=1e9), None)

    def play(cast: Cast, late: Any = None) -> Any:
        plain = Play(lambda _: cast, costs, 3, 0, lambda _: np.ones(RANKS), contention, delays=late)
        return engine.play(plain)

    assert play(cast, late_of(cast, seconds)).durations == pytest.approx(
        play(baked(cast, seconds)).durations, rel=1e-12
    )


def test_rows_add_to_what_they_name_and_patterns_to_all_they_match(tmp_path: Path) -> None:
    """Forward 5 ms, backward 8 ms, 1 ms of all-reduce; whoever is latest is waited for."""
    assert of(tmp_path, "").step_time_s == pytest.approx(14e-3)
    assert of(tmp_path, "2,B1,0.003\n").step_time_s == pytest.approx(17e-3)
    assert of(tmp_path, "2,B1,0.003\n1,F*,0.002\n").step_time_s == pytest.approx(18e-3)
    assert of(tmp_path, "2,B1,0.003\n2,B*,0.001\n").step_time_s == pytest.approx(19e-3)


def test_delays_are_no_multiples(tmp_path: Path) -> None:
    """A rank that is twice as slow is as late as before."""
    slow = {"slow_ranks": {2: 2.0}, "delays": {"file": "delays.csv"}}
    found = of(tmp_path, "2,B1,0.003\n", variability=slow).step_time_s
    assert found == pytest.approx((2 * 13 + 3 + 1) * 1e-3)


@pytest.mark.parametrize("engine", ["event", "vectorised"])
def test_random_causes_and_delays_go_together(tmp_path: Path, engine: str) -> None:
    both = {"jitter": 0.05, "steps": 5, "delays": {"file": "delays.csv"}}
    found = of(tmp_path, "0,F0,1\n", variability=both, engine=engine).step_time_s
    plain = of(tmp_path, "", variability=both, engine=engine).step_time_s
    assert plain + 0.99 < found <= plain + 1.0


def test_the_generator_draws_as_pythons_own_does() -> None:
    """One number for every operation that takes time, in issue order, of each rank's own source."""
    drawn = Delays(generator="mersenne", seed=7, low="3 us", high="90 us").made(Path)
    found = drawn.seconds(("F0", "F1", "B1"), (True, False, True), (4, 9))
    for column, rank in enumerate((4, 9)):
        source = Random(7 + rank)
        assert found[:, column].tolist() == [
            source.randint(3, 90) / 1e6, 0.0, source.randint(3, 90) / 1e6
        ]  # fmt: skip


def test_explanations_blame_delays_and_the_rank_that_is_late(tmp_path: Path) -> None:
    made = of(tmp_path, "2,B1,0.003\n")
    case = Case(made.loaded.scenario, tmp_path)
    found = blame(case, made.step_time_s)
    assert {one.cause: one.loss_s for one in found.causes} == pytest.approx(
        {"delays": 3e-3, "communication": 1e-3}
    )
    assert [(one.rank, one.loss_s) for one in found.ranks] == [(2, pytest.approx(3e-3))]


def test_delays_are_fixed_and_can_be_taken_away() -> None:
    said = build(Variability, {"delays": {"file": "x.csv"}})
    assert said.causes == ("delays",)
    assert (said.varies, said.random) == (True, False)
    assert said.without("delays") == Variability()


def test_a_rank_that_no_point_has_is_told_of_whatever_point_names_it(tmp_path: Path) -> None:
    for name, rank in (("few", 1), ("many", 9)):
        (tmp_path / f"{name}.csv").write_text(f"rank,operation,seconds\n{rank},F0,1e-3\n")
    points = [{"variability.delays.file": f"{name}.csv"} for name in ("few", "many")]
    for order in (points, points[::-1], [{"cluster.ranks": 2}, *points]):
        scenario = {**TOY, "variability": {"delays": {"file": "few.csv"}}, "sweep": order}
        made = predict(load(scenario, tmp_path, "test"))
        assert "variability.delays: no point has a rank 9" in made.document["warnings"]


def test_delays_read_back_as_they_are_written() -> None:
    said = Delays(generator="mersenne", seed=1234, low="0 us", high="2000 us")
    assert build(Delays, dump(said), file=True) == said


def test_a_rank_that_is_not_there_is_warned_of(tmp_path: Path) -> None:
    made = of(tmp_path, "9,B1,0.003\n")
    assert made.step_time_s == pytest.approx(14e-3)
    assert "variability.delays: no point has a rank 9" in made.document["warnings"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("0,B7,1\n", "no operation 'B7'; there are F0, F1, B1, B0"),
        ("0,AR0,1\n", "no operation 'AR0'"),
        ("0,B1,-1\n", "is not in 0"),
        ("0,B1,1\n0,B1,1\n", "repeats line 2"),
        ("x,B1,1\n", "rank"),
    ],
)
def test_rows_that_say_nothing_sensible_are_refused(tmp_path: Path, rows: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        _ = of(tmp_path, rows).step_time_s


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "either file"),
        ({"file": "x.csv", "seed": 1}, "seed: means nothing beside file"),
        ({"generator": "mersenne", "seed": 1, "low": "0 us"}, "high: is missing"),
        ({"generator": "mersenne", "seed": 1, "low": "5 us", "high": "2 us"}, "low: is above high"),
        ({"generator": "mersenne", "seed": 1, "low": "0 us", "high": "1.5 us"}, "whole micro"),
        ({"generator": "xorshift"}, "'xorshift' is not accepted; write 'mersenne'"),
    ],
)
def test_keys_that_say_too_little_or_too_much_are_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        build(Delays, keys)


def test_late_ranks_are_not_also_dropped(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="backup workers"):
        _ = of(tmp_path, "0,F0,1\n", strategy={"kind": "ddp", "backup_workers": 1}).step_time_s


@pytest.mark.parametrize("contention", [0.0, 0.5])
def test_engines_agree_on_when_every_operation_runs(contention: float) -> None:
    cast = cast_of(Ddp(bucket_cap_mb=2.0), job_of(RANKS))
    seconds = np.random.default_rng(5).exponential(2e-3, (len(cast.programs[0].ops), RANKS))
    noise, costs = Variability(jitter=0.1), Costs(Ideal(latency=1e-3, bandwidth=1e9), None)
    play = Play(lambda _: cast, costs, 3, 1, lambda k: noise.factors(3, k, RANKS), contention,
                delays=late_of(cast, seconds))  # fmt: skip
    a, b = (engine.play(play) for engine in ENGINES)
    assert a.durations == pytest.approx(b.durations, rel=1e-12)
    assert np.array(a.splits) == pytest.approx(np.array(b.splits), rel=1e-9, abs=1e-12)
    for name in ("ready", "start", "end"):
        for x, y in zip(getattr(a.last, name), getattr(b.last, name), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)
