"""What makes ranks differ, and what synchronous steps make of it."""

from __future__ import annotations

import json
import math
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from dpsim.cases.case import Case
from dpsim.core.arrays import Array
from dpsim.core.plugins import find, names
from dpsim.core.record import Refused, build, dump
from dpsim.describe.scenario import load, read
from dpsim.predict.player import step_time
from dpsim.predict.point import Point
from dpsim.predict.prediction import Prediction, predict
from dpsim.variability import (
    OF_COMPUTE,
    PRESETS,
    Crew,
    Distribution,
    RandomSlow,
    Variability,
    Variation,
    expected_slowest,
    read_numbers,
    stream,
)
from dpsim.variability.distributions import Distribution as Contract

TOY: dict[str, Any] = {
    "model": {"layers": [{"name": "a", "parameters": 1, "forward": "0 s", "backward": "1 s"}]},
    "cluster": {"ranks": 8},
    "collective": {"backend": "free"},
    "strategy": {"kind": "ddp"},
    "optimizer": {"kind": "none"},
}


def case(base: Path = Path(), **changes: Any) -> Case:
    return Case(load({**TOY, **changes}, base, "test").points[0], base)


def answer(base: Path = Path(), **changes: Any) -> Prediction:
    return predict(load({**TOY, **changes}, base, "test"))


def steps(**changes: Any) -> Array:
    """The durations of the measured steps, on the vectorised engine."""
    played = answer(engine="vectorised", **changes).outcomes[0].played
    assert played is not None
    return np.array(played.timeline.durations)


# -- distributions ------------------------------------------------------------------------------

MADE: list[tuple[str, dict[str, float], Any]] = [
    ("normal", {"spread": 0.05}, stats.norm(1.0, 0.05)),
    ("lognormal", {"spread": 0.5}, stats.lognorm(math.sqrt(math.log(1.25)), scale=1.25**-0.5)),
    ("gamma", {"spread": 0.3}, stats.gamma(1 / 0.09, scale=0.09)),
    ("gamma", {"spread": 2.0}, stats.gamma(0.25, scale=4.0)),
    ("exponential", {"tail": 0.1}, stats.expon(1.0, 0.1)),
    ("pareto", {"tail_index": 4.0}, stats.pareto(4.0)),
    ("uniform", {"low": 0.9, "high": 1.4}, stats.uniform(0.9, 0.5)),
]


def made(name: str, values: dict[str, float]) -> Distribution:
    return find("variability", name)(**values)


def test_every_distribution_of_the_folder_is_tested() -> None:
    known = {name for name, _, _ in MADE} | {"bernoulli", "empirical"}
    assert known == set(names("variability"))


@pytest.mark.parametrize(("name", "values", "true"), MADE)
def test_mean_and_quantiles_are_scipys(name: str, values: dict[str, float], true: Any) -> None:
    distribution = made(name, values)
    assert distribution.mean() == pytest.approx(true.mean(), rel=1e-12)
    for share in (0.001, 0.1, 0.5, 0.9, 0.99999):
        assert distribution.quantile(share) == pytest.approx(true.ppf(share), rel=1e-8, abs=1e-12)
    for tail in (1e-3, 1e-9, 1e-15):
        assert distribution.upper(tail) == pytest.approx(true.isf(tail), rel=1e-8)


@pytest.mark.parametrize(("name", "values", "true"), MADE)
@pytest.mark.parametrize("n", [1, 8, 1024])
def test_the_mean_of_the_largest_is_the_integral_of_its_distribution(
    name: str, values: dict[str, float], true: Any, n: int
) -> None:
    """Another way: the integral of 1 - F^n, by scipy, over pieces between quantiles."""
    distribution = made(name, values)
    low = float(true.ppf(1e-13))
    ends = [low, *(float(true.isf(10.0**-k)) for k in range(1, 40, 2))]
    above = (
        integrate.quad(lambda x: -math.expm1(n * true.logcdf(x)), a, b, epsabs=1e-13)[0]
        for a, b in pairwise(ends)
    )
    expected = low + math.fsum(above)
    assert distribution.expected_maximum(n) == pytest.approx(expected, rel=2e-6)
    # the general rule and the closed form, where there is one, agree
    assert Contract.expected_maximum(distribution, n) == pytest.approx(expected, rel=2e-6)


@pytest.mark.parametrize(("name", "values", "true"), MADE)
def test_draws_follow_their_distribution(name: str, values: dict[str, float], true: Any) -> None:
    drawn = made(name, values).sample(stream(1, name, 0), 20_000)
    assert stats.kstest(drawn, true.cdf).pvalue > 1e-3


@pytest.mark.parametrize("factor", [1.5, 0.5])
def test_the_largest_of_n_bernoulli_factors(factor: float) -> None:
    q, n = 0.3, 5
    bernoulli = made("bernoulli", {"probability": q, "factor": factor})
    all_small = (1 - q) ** n if factor > 1 else q**n
    expected = all_small * min(factor, 1.0) + (1 - all_small) * max(factor, 1.0)
    assert bernoulli.expected_maximum(n) == pytest.approx(expected, rel=1e-12)
    assert bernoulli.mean() == pytest.approx(1 + q * (factor - 1))
    assert {bernoulli.quantile(p) for p in (0.01, 0.29, 0.31, 0.69, 0.71, 0.99)} == {factor, 1.0}


def test_published_example_of_a_rare_slow_rank() -> None:
    """1 + (s - 1)(1 - (1 - q)^N) for N = 1024, s = 1.5."""
    for q, expected in ((1e-3, 1.3205), (1e-4, 1.0487)):
        found = made("bernoulli", {"probability": q, "factor": 1.5}).expected_maximum(1024)
        assert found == pytest.approx(expected, abs=5e-5)


def test_measured_factors_are_drawn_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("factor,rank\n1.0,0\n1.0,1\n1.2,2\n2.0,3\n")
    listed = made("empirical", {"file": "f.csv"}).resolved(  # type: ignore[dict-item]
        lambda name: read_numbers(tmp_path / name)
    )
    assert listed.mean() == pytest.approx(1.3)
    assert [listed.quantile(p) for p in (0.5, 0.51, 0.75, 0.76)] == [1.0, 1.2, 1.2, 2.0]
    # the largest of two: 1 in 1/4, 1.2 in (9 - 4)/16, 2 in 7/16 of the cases
    assert listed.expected_maximum(2) == pytest.approx((4 * 1.0 + 5 * 1.2 + 7 * 2.0) / 16)
    drawn = listed.sample(stream(0, "x", 0), 4000)
    assert set(drawn) == {1.0, 1.2, 2.0}
    assert drawn.mean() == pytest.approx(1.3, rel=0.02)


def test_step_times_of_a_file_count_relative_to_their_median(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("step,seconds\n0,0.2\n1,0.2\n2,0.3\n")
    found = case(tmp_path, variability={"jitter": {"kind": "empirical", "file": "t.csv"}})
    drawn = np.concatenate([found.batches.variation.factors(k) for k in range(200)])
    assert sorted(set(drawn.round(12))) == [1.0, 1.5]


# -- what synchronous steps make of them: the mean of the largest ---------------------------------

#: distribution, steps that make the standard error of their mean small
LIGHT: list[tuple[dict[str, Any], int]] = [
    ({"kind": "normal", "spread": 0.05}, 600),
    ({"kind": "exponential", "tail": 0.05}, 2000),
    ({"kind": "uniform", "high": 1.5}, 1000),
    ({"kind": "bernoulli", "probability": 0.001, "factor": 1.2}, 3000),
]


@pytest.mark.parametrize("ranks", [8, 256, 4096])
@pytest.mark.parametrize(("kind", "count"), LIGHT, ids=lambda value: str(value)[:20])
def test_a_step_takes_as_long_as_the_slowest_of_n(
    kind: dict[str, Any], count: int, ranks: int
) -> None:
    """The mean of the simulated steps, with a standard error below 0.15 %, is within 0.5 %."""
    expected = build(Variability, {"jitter": kind}).jitter.expected_maximum(ranks)  # type: ignore[union-attr]
    found = means(kind, count, ranks)
    assert found[1] < 0.0015 * expected
    assert found[0] == pytest.approx(expected, rel=0.005)


@pytest.mark.parametrize(("ranks", "count"), [(8, 10_000), (1024, 2_000), (16_384, 1_000)])
def test_a_step_takes_as_long_as_the_slowest_of_n_with_a_heavy_tail(ranks: int, count: int) -> None:
    """Tail index 4: the largest varies by 40 %, so the mean is known to 0.4 … 1.3 %."""
    kind = {"kind": "pareto", "tail_index": 4.0}
    expected = build(Variability, {"jitter": kind}).jitter.expected_maximum(ranks)  # type: ignore[union-attr]
    mean, error = means(kind, count, ranks)
    assert error < 0.016 * expected
    assert abs(mean - expected) < 3 * error


def means(kind: dict[str, Any], count: int, ranks: int) -> tuple[float, float]:
    """Mean of the played steps and its standard error."""
    from dpsim.play import vectorised

    quick = case(cluster={"ranks": ranks}, variability={"jitter": kind, "steps": count})
    found = np.array(vectorised.play(quick.plays()[0]).durations)
    return float(found.mean()), float(found.std(ddof=1) / math.sqrt(count))


# -- causes -------------------------------------------------------------------------------------

EACH: dict[str, Any] = {
    "jitter": 0.02,
    "random_slow": {"probability": 0.2, "factor": 1.5},
    "slow_ranks": {1: 1.5},
    "slow_nodes": {1: 1.2},
    "shared": {"factor": {"kind": "gamma", "spread": 0.1}, "per": "node"},
    "co_tenant": {"share": 0.2, "probability": 0.3, "episode": 3},
    "sequence_length": {"spread": 0.5},
    "pauses": {"duration": 0.2, "every": 5},
}
CREW = Crew(ranks=12, gpus=4, racked=2, seconds=1.0, samples=4)


def factors(keys: dict[str, Any], crew: Crew = CREW, seed: int = 0, count: int = 20) -> Array:
    variation = Variation(build(Variability, keys), crew, seed)
    return np.array([variation.factors(step) for step in range(count)])


def test_every_cause_is_tested() -> None:
    assert tuple(EACH) == OF_COMPUTE


@pytest.mark.parametrize("name", OF_COMPUTE)
def test_a_cause_changes_something_and_leaves_when_left_out(name: str) -> None:
    variability = build(Variability, {name: EACH[name]})
    assert variability.causes == (name,)
    assert variability.varies
    assert variability.random == (name not in ("slow_ranks", "slow_nodes"))
    assert (factors({name: EACH[name]}) != 1.0).any()
    assert variability.without(name) == Variability()


@pytest.mark.parametrize("name", [name for name in OF_COMPUTE if name != "pauses"])
def test_another_cause_shifts_nobodys_draws(name: str) -> None:
    others = {key: value for key, value in EACH.items() if key not in (name, "pauses")}
    together = factors({**others, name: EACH[name]})
    assert together == pytest.approx(factors(others) * factors({name: EACH[name]}), rel=1e-12)


@pytest.mark.parametrize("name", [n for n in OF_COMPUTE if n not in ("slow_ranks", "slow_nodes")])
def test_another_rank_shifts_nobodys_draws(name: str) -> None:
    few = factors({name: EACH[name]})
    more = factors({name: EACH[name]}, Crew(40, 4, 2, 1.0, 4))
    assert (more[:, :12] == few).all()
    assert (factors({name: EACH[name]}, seed=1) != few).any() or name == "pauses"


def test_jitter_is_what_it_was() -> None:
    """Normal, from Philox keyed by seed, CRC-32 of the cause, and step: no number may change."""
    key = (7 << 64) | (zlib.crc32(b"jitter") << 32) | 3
    draws = np.random.Generator(np.random.Philox(key=key)).standard_normal(5)
    assert (Variability(jitter=0.1).factors(7, 3, 5) == np.maximum(1 + 0.1 * draws, 0)).all()
    named = build(Variability, {"jitter": {"kind": "normal", "spread": 0.1}})
    assert (named.factors(7, 3, 5) == Variability(jitter=0.1).factors(7, 3, 5)).all()


def test_slow_nodes_slow_all_their_ranks() -> None:
    found = factors({"slow_nodes": {1: 1.2, 9: 2.0}, "slow_ranks": {5: 1.5}}, count=1)[0]
    assert found == pytest.approx([1.0] * 4 + [1.2, 1.8, 1.2, 1.2] + [1.0] * 4)


@pytest.mark.parametrize(("per", "size"), [("node", 4), ("rack", 8)])
def test_ranks_of_a_unit_share_their_draw(per: str, size: int) -> None:
    for keys in (
        {"shared": {"factor": {"kind": "gamma", "spread": 0.1}, "per": per}},
        {
            "random_slow": {
                "probability": 0.5,
                "factor": {"kind": "uniform", "high": 2.0},
                "per": per,
            }
        },
    ):
        found = factors(keys)
        for start in range(0, 12, size):
            unit = found[:, start : start + size]
            assert (unit == unit[:, :1]).all()
        assert (found[:, 0] != found[:, size]).any()


def test_what_is_drawn_once_widens_the_interval_to_what_one_machine_may_be() -> None:
    """4 nodes, each 10 % slow with probability 0.1: 1 + 0.1 (1 - 0.9^4) in the mean, and any real
    machine takes 1 or 1.1."""
    changes = {
        "cluster": {"machine": "dgx-1v", "nodes": 4},
        "compute": {"spread": 0},
        "variability": {
            "random_slow": {"probability": 0.1, "factor": 1.1, "per": "node"}, "steps": 2000
        },
    }  # fmt: skip
    quiet = answer(**{**changes, "variability": {}}).points[0]["step_time_s"]
    point = answer(**changes).points[0]
    assert point["step_time_s"] / quiet == pytest.approx(1 + 0.1 * (1 - 0.9**4), rel=3e-3)
    assert point["interval_causes"]["which are slow"][0] * point["step_time_s"] == pytest.approx(
        quiet
    )
    assert point["step_time_high_s"] >= 1.1 * quiet * (1 - 1e-9)


def test_neighbours_stay_for_an_episode() -> None:
    found = factors({"co_tenant": {"share": 0.2, "probability": 0.5, "episode": 5}}, count=20)
    assert set(found.round(12).flat) == {1.0, 1.25}
    blocks = found.reshape(4, 5, 12)
    assert (blocks == blocks[:, :1]).all()
    assert (blocks[0] != blocks[1]).any()


def test_steps_of_an_episode_are_no_independent_draws() -> None:
    """Steps 2 … 1001 hold a hundred episodes, each one draw of a rank that is busy or not."""
    tenant = {"share": 0.5, "probability": 0.3, "episode": 10}
    played = answer(cluster={"ranks": 1}, variability={"co_tenant": tenant, "steps": 1000})
    low, high = played.points[0]["interval_causes"]["sampling"]
    mean = 1.3  # of factors 1 and 2
    expected = 1.645 * math.sqrt(0.3 * 0.7 / 100) / mean
    assert (high - low) / 2 == pytest.approx(expected, rel=0.25)


EPISODES = {"factor": 3, "probability": 0.3, "episode": 4, "per": "all"}


def test_bytes_take_longer_in_an_episode_of_the_network() -> None:
    # compute 1 s, then an all-reduce of 0.2 s for its latency and 0.5 s for its bytes
    toy = {
        "model": {
            "dtype": "fp32",
            "layers": [{"name": "a", "parameters": 125, "forward": "0 s", "backward": "1 s"}],
        },
        "collective": {"backend": "ideal", "latency": "0.2 s", "bandwidth": "1 kB/s"},
        "variability": {"link_episodes": EPISODES, "steps": 40},
    }
    for engine in ("event", "vectorised"):
        played = answer(engine=engine, **toy).outcomes[0].played
        assert played is not None
        found = np.array(played.timeline.durations)
        assert sorted(set(found.round(9))) == [1.7, 2.7]
        blocks = found[2:38].reshape(9, 4)  # two steps are not measured
        assert (blocks.round(9) == blocks[:, :1].round(9)).all()


def test_links_are_slow_as_often_as_said_and_the_slowest_counts() -> None:
    keys = {"link_episodes": {**EPISODES, "episode": 1, "per": "node"}}
    variation = Variation(build(Variability, keys), Crew(12, gpus=4), 0)
    found = np.array([variation.network(step) for step in range(4000)])
    assert set(found) == {1.0, 3.0}
    assert (found > 1).mean() == pytest.approx(1 - 0.7**3, abs=0.03)


def test_an_episode_between_nodes_leaves_nvlink_alone() -> None:
    vary = {
        "link_episodes": {**EPISODES, "probability": 1.0, "per": "node", "episode": 1},
        "steps": 3,
    }
    times = {}
    for nodes in (1, 2):
        for name, variability in (("calm", {}), ("slow", vary)):
            times[nodes, name] = answer(
                model={"name": "resnet50"}, cluster={"machine": "dgx-a100", "nodes": nodes},
                collective={"backend": "nccl"}, compute={"spread": 0.0}, variability=variability,
            ).step_time_s  # fmt: skip
    assert times[1, "slow"] == pytest.approx(times[1, "calm"], rel=1e-9)
    assert times[2, "slow"] > times[2, "calm"] * (1 + 1e-6)


@pytest.mark.parametrize("together", [True, False])
def test_pauses_cost_more_when_ranks_are_out_of_step(together: bool) -> None:
    """10 ranks pause 0.2 s every 50 steps: 0.2/50 a step if all at once; else in every step that
    is anybody's."""
    pauses = {"duration": "200 ms", "every": 50, "synchronised": together}
    found = steps(cluster={"ranks": 10}, variability={"pauses": pauses, "steps": 100})
    hit = int(np.count_nonzero(found > 1.1))
    assert found.sum() == pytest.approx(100 + 0.2 * hit)
    phases = (stream(0, "pauses", 0).random(10) * 50).astype(int)
    assert hit == (2 if together else 2 * len(set(phases)))


def test_pauses_at_random_are_as_frequent_as_said() -> None:
    keys = {"pauses": {"duration": 0.5, "interval": 20.0}}
    found = factors(keys, Crew(2000, seconds=2.0), count=50)
    # 0.1 pauses a rank and step, each a quarter of the step
    assert found.mean() == pytest.approx(1 + 0.1 * 0.25, rel=2e-3)


def test_pauses_last_as_long_on_faster_devices() -> None:
    variation = Variation(build(Variability, {"pauses": EACH["pauses"]}), CREW, 0)
    assert variation.factors(0, 0.5) == pytest.approx(variation.factors(0) - 0.5)


def test_which_of_equal_ranks_are_slow_does_not_matter() -> None:
    times = {
        answer(variability={"slow_ranks": slow}).step_time_s
        for slow in ({0: 1.2, 3: 1.5}, {7: 1.2, 1: 1.5}, {4: 1.5, 2: 1.2})
    }
    assert times == {1.5}


@pytest.mark.parametrize("name", [name for name in OF_COMPUTE if name != "slow_nodes"])
def test_a_cause_that_only_slows_down_never_makes_steps_shorter(name: str) -> None:
    slowing = {
        "jitter": {"kind": "exponential", "tail": 0.1},
        "shared": {"factor": {"kind": "pareto", "tail_index": 5.0}, "per": "all"},
        "pauses": {"duration": "200 ms", "every": 5},
        "sequence_length": {"spread": 0.5, "cure": "packing", "quadratic": 0.5},
    }
    found = steps(variability={name: slowing.get(name, EACH[name]), "steps": 30})
    assert (found >= 1.0 - (0.5 if name == "sequence_length" else 1e-12)).all()
    assert found.mean() > 1.0


# -- sequences ----------------------------------------------------------------------------------


def lengths(**keys: Any) -> Array:
    crew = Crew(ranks=64, samples=8)
    return factors({"sequence_length": {"spread": 0.8, "longest": 4, **keys}}, crew, count=800)


def test_cures_make_sequences_of_unequal_length_cheaper() -> None:
    """The slowest rank with each cure; dealing sorted samples in turn nearly evens them out."""
    worst = {cure: lengths(cure=cure).max(axis=1).mean() for cure in CURES}
    assert worst["none"] > 1.5
    assert worst["sorting"] < 1.2
    assert worst["packing"] == pytest.approx(1.0, abs=1e-12)
    assert 1.0 < worst["bucketing"] < worst["none"]


CURES = ("none", "packing", "sorting", "bucketing")


@pytest.mark.parametrize("cure", CURES)
def test_cures_keep_the_mean_length(cure: str) -> None:
    assert lengths(cure=cure).mean() == pytest.approx(
        1.0, rel=0.06 if cure == "bucketing" else 0.01
    )


def test_attention_grows_with_the_square() -> None:
    """Mean work is (1 - q) + q E[l^2] = 1 + q spread^2; packs have their own mix of lengths."""
    found = lengths(quadratic=0.25, longest=None).mean()
    assert found == pytest.approx(1 + 0.25 * 0.64, rel=0.03)
    assert lengths(quadratic=0.25, cure="packing").max() > 1.0


def test_padding_makes_every_sample_as_long_as_the_longest() -> None:
    plain, padded = lengths(), lengths(padded=True)
    assert (padded >= plain).all()
    assert padded.mean() > 1.5
    assert lengths(padded=True, cure="bucketing").mean() < 1 + 0.4 * (padded.mean() - 1)


def test_lengths_come_from_a_histogram(tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text("length,count\n3000,1\n1000,3\n")
    keys = {"sequence_length": {"file": "h.csv"}}
    found = case(tmp_path, variability=keys, cluster={"ranks": 4000}).batches.variation.factors(0)
    assert set(found.round(12)) == {0.666666666667, 2.0}
    assert found.mean() == pytest.approx(1.0, rel=0.05)


# -- backup workers -----------------------------------------------------------------------------


def by_events(durations: Array, backup: int) -> list[float]:
    """When each update happens, by walking from event to event: a gradient counts if it was begun
    from the newest parameters; a rank begins when it has ended and there are newer ones."""
    steps, n = durations.shape
    updates, version = [0.0], 0
    begun = [0] * n  # the update that each rank's running gradient started from
    due = [float(durations[0, r]) for r in range(n)]
    waiting: set[int] = set()
    while version < steps - 1:
        rank = min((r for r in range(n) if r not in waiting), key=lambda r: due[r])
        now = due[rank]
        if begun[rank] < version:  # too late: dropped, starts anew from the newest
            begun[rank], due[rank] = version, now + float(durations[version, rank])
            continue
        waiting.add(rank)
        if len(waiting) == n - backup:
            version += 1
            updates.append(now)
            for r in waiting:
                begun[r], due[r] = version, now + float(durations[version, r])
            waiting.clear()
    return updates


@pytest.mark.parametrize("backup", [1, 2, 5])
@pytest.mark.parametrize("kind", ["exponential", "lognormal"])
def test_late_gradients_are_dropped_and_their_ranks_start_anew(kind: str, backup: int) -> None:
    keys = {"kind": kind, **({"tail": 1.0} if kind == "exponential" else {"spread": 1.0})}
    changes = {
        "cluster": {"ranks": 7},
        "variability": {"jitter": keys, "steps": 60, "slow_ranks": {2: 1.5}},
    }
    drawn = np.array([case(**changes).batches.variation.factors(k) for k in range(63)])
    ends = np.diff(by_events(drawn, backup))
    strategy = {"kind": "ddp", "backup_workers": backup}
    for engine in ("event", "vectorised"):
        played = answer(**changes, strategy=strategy, engine=engine).outcomes[0].played
        assert played is not None
        assert played.timeline.durations == pytest.approx(ends[2:62], rel=1e-9)


def test_backup_workers_cut_the_tail_and_cost_their_samples() -> None:
    changes = {"cluster": {"ranks": 50}, "variability": {"random_slow": SLOW, "steps": 400}}
    plain, backed = (
        answer(**changes, strategy={"kind": "ddp", "backup_workers": b}) for b in (0, 3)
    )
    assert plain.points[0]["step_time_s"] > 1.3
    assert backed.points[0]["step_time_s"] < 1.1
    assert backed.points[0]["global_batch"] == 47
    assert any("first 47 of 50" in text for text in backed.document["warnings"])
    assert not any("backup" in text for text in plain.document["warnings"])


SLOW = {"probability": 0.01, "factor": 2.0}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cluster": {"ranks": 3}}, "leave nobody"),
        ({"cluster": {"machine": "dgx-1v", "nodes": 1}, "collective": {"backend": "nccl"}}, "nccl"),
        ({"batch": {"global": 8}}, "per_device"),
        ({"strategy": {"kind": "ddp", "backup_workers": 3, "no_sync": False}}, "every rank"),
    ],
)
def test_where_every_rank_is_needed_backup_workers_are_refused(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(Refused, match=words) as refused:
        answer(**{"strategy": {"kind": "ddp", "backup_workers": 3}, **changes})
    assert refused.value.path == ("strategy", "backup_workers")


# -- presets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_the_keys_it_stands_for(name: str) -> None:
    preset = build(Variability, {"preset": name}, file=True)
    spelled = build(Variability, PRESETS[name].keys)
    assert preset.expanded == spelled
    assert preset.causes == spelled.causes
    assert "arXiv:" in PRESETS[name].source
    assert preset.without(preset.causes[0]) == Variability()


def test_a_key_that_is_given_replaces_the_presets() -> None:
    keys = {"preset": "megascale", "random_slow": {"probability": 0.5, "factor": 2.0}}
    found = build(Variability, keys)
    assert found.expanded.slow == (RandomSlow(probability=0.5, factor=2.0),)


# -- files --------------------------------------------------------------------------------------


def test_variability_reads_back_what_it_writes() -> None:
    keys = {**EACH, "jitter": {"kind": "pareto", "tail_index": 4.0}, "nodes_per_rack": 2}
    keys["random_slow"] = [EACH["random_slow"], {**EACH["random_slow"], "per": "node"}]
    variability = build(Variability, keys)
    assert build(Variability, json.loads(json.dumps(dump(variability))), file=True) == variability


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"jitter": {"kind": "parto"}}, "did you mean 'pareto'"),
    ({"jitter": {"kind": "pareto", "tail_index": 1}}, "1 (excluded)"),
    ({"jitter": {"kind": "uniform", "low": 2, "high": 1}}, "below low"),
    ({"jitter": "20 ms"}, "is in s"),
    ({"jitter": {"kind": "empirical", "file": "../x.csv"}}, "outside"),
    ({"jitter": {"kind": "empirical", "file": "none.csv"}}, "none.csv"),
    ({"jitter": {"kind": "empirical", "file": "h.csv"}}, "factor or seconds"),
    ({"jitter": {"kind": "empirical", "file": "bad.csv"}}, "bad.csv:3: factor"),
    ({"random_slow": {"probability": 0.1, "factor": 2, "per": "node"}}, "has no nodes"),
    ({"slow_nodes": {0: 2}}, "has no nodes"),
    ({"pauses": {"duration": "1 s"}}, "either every"),
    ({"pauses": {"duration": "1 s", "every": 500}}, "at least 500"),
    ({"sequence_length": {}}, "either spread"),
    ({"sequence_length": {"spread": 0.5, "padded": True, "cure": "packing"}}, "no padding"),
    ({"sequence_length": {"file": "f.csv"}}, "length and count"),
    ({"link_episodes": {"factor": 2, "probability": 0.1}}, "has no nodes"),
    ({"link_episodes": {"factor": 2, "probability": 2}}, "probability"),
    ({"co_tenant": {"share": 0.5, "probability": 0.1, "episode": 60}}, "at least 120 do"),
    ({"preset": "megascal"}, "did you mean 'megascale'"),
]


@pytest.mark.parametrize(("keys", "words"), REFUSED, ids=lambda value: str(value)[:60])
def test_what_makes_no_sense_is_refused(keys: dict[str, Any], words: str, tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text("length,count\n1,1\n")
    (tmp_path / "f.csv").write_text("factor\n1\n")
    (tmp_path / "bad.csv").write_text("factor\n1\nnan\n")
    with pytest.raises(Refused, match=None) as refused:
        answer(tmp_path, variability=keys)
    assert words in str(refused.value)
    assert refused.value.path[0] == "variability"


def test_racks_need_their_size() -> None:
    shared = {"factor": {"kind": "gamma", "spread": 0.1}, "per": "rack"}
    machine = {"cluster": {"machine": "dgx-1v", "nodes": 4}, "batch": {"per_device": 1}}
    with pytest.raises(Refused, match="nodes_per_rack"):
        answer(**machine, variability={"shared": shared})
    keys = {"shared": shared, "nodes_per_rack": 2, "steps": 4}
    found = case(**machine, variability=keys).batches.variation.factors(0)
    assert (found[:16] == found[0]).all()
    assert found[16] != found[0]


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["variability.jitter=0.5 %"], True),
        (["variability.jitter=0.5 %", "compute.spread=0.04"], False),
        (["variability.jitter=0"], True),
        (["variability.shared={factor: {kind: gamma, spread: 0.1}, per: node}"], True),
        (["variability.shared={factor: {kind: gamma, spread: 0.1}, per: all}"], False),
        (["variability.preset=llama3"], False),
        (["variability.preset=megascale"], False),
        (["variability.co_tenant={share: 0.2, probability: 0.1}"], False),
        (["variability.slow_ranks={3: 1.5}"], False),
        (["variability.pauses={duration: 1 ms, every: 10}"], False),
        ([], False),
    ],
)
def test_stated_variability_says_what_it_takes_the_place_of(sets: list[str], said: bool) -> None:
    """Ranks that are said to differ a little are quicker than ranks of which nothing is said."""
    loaded = read("quickstart", sets)
    assert Case(loaded.points[-1], loaded.base).script.unsaid == pytest.approx(
        0.0495 if said else 0.0, abs=5e-4
    )


def test_what_takes_nothing_changes_nothing_and_a_little_jitter_is_as_none() -> None:
    """No cause makes a step quicker than it is where the cause is as small as can be."""

    def seconds(*sets: str) -> float:
        loaded = read("quickstart", ["cluster.ranks=16", *sets])
        return step_time(Case(loaded.points[-1], loaded.base))

    nothing = seconds()
    for idle in (
        "variability.co_tenant={share: 0, probability: 0.1}",
        "variability.random_slow={probability: 1e-9, factor: 1.5}",
        "variability.shared={factor: {kind: uniform, low: 1, high: 1.000001}, per: all}",
    ):
        assert seconds(idle) == pytest.approx(nothing, rel=1e-5), idle
    assert seconds("variability.co_tenant={share: 0.2, probability: 0.1}") > nothing
    none = seconds("variability.jitter=0")
    assert none == pytest.approx(seconds("compute.spread=0"), rel=1e-12)
    assert none < nothing
    assert seconds("variability.jitter=1e-9") == pytest.approx(none, rel=1e-6)
    assert none < seconds("variability.jitter=1 %") < seconds("variability.jitter=2 %")


@pytest.mark.parametrize("often", [{"every": 5}, {"interval": "1 s"}])
def test_a_measured_step_with_pauses_sets_the_level(often: dict[str, Any]) -> None:
    """The pauses are in what was measured: the level of compute is what is left."""
    scenario = {
        "model": {"layers": [{"name": "a", "forward": "10 ms", "backward": "20 ms"}]},
        "cluster": {"ranks": 2},
        "strategy": {"kind": "ddp"},
        "collective": {"backend": "free"},
        "variability": {"pauses": {"duration": "5 ms", "synchronised": True, **often}},
        "calibrate": {"step_time": "50 ms"},
    }
    found = predict(load(scenario, Path(), "test"))
    point = found.points[0]
    assert isinstance(point, Point)
    assert found.level is not None
    assert point.step_time_s == pytest.approx(0.05, rel=1e-3)
    if "every" in often:  # a fifth of 5 ms a step
        assert found.level.scale == pytest.approx(0.049 / 0.03, rel=1e-6)


@pytest.mark.parametrize("strategy", [{"kind": "ddp"}, {"kind": "zero", "stage": 1}])
def test_a_pause_lasts_as_long_as_it_is_said_to(strategy: dict[str, Any]) -> None:
    """It is no longer for an optimizer that takes long beside little compute."""
    scenario = {
        "model": {"name": "resnet50"},
        "cluster": {"machine": "dgx-1v", "ranks": 1},
        "strategy": strategy,
    }
    calm, paused = (
        predict(load({**scenario, **more}, Path(), "test")).step_time_s
        for more in ({}, {"variability": {"pauses": {"duration": "50 ms", "every": 1}}})
    )
    assert paused - calm == pytest.approx(0.05, rel=1e-9)


@pytest.mark.parametrize(
    "fixed", [{}, {3: 1.02}, {0: 1.1, 5: 1.1}, {2: 1.5}, dict.fromkeys(range(8), 2.0)]
)
def test_the_slowest_of_ranks_that_differ_and_vary_is_the_mean_of_many_draws(
    fixed: dict[int, float],
) -> None:
    factors = np.array([fixed.get(rank, 1.0) for rank in range(8)])
    draws = 1.0 + 0.041 * np.random.default_rng(7).standard_normal((200_000, 8))
    mean = (factors * draws).max(axis=1).mean() / factors.max()
    assert expected_slowest(8, fixed, 0.041) == pytest.approx(max(mean, 1.0), rel=4e-4)
    assert expected_slowest(8, fixed, 0.0) == 1.0


def test_ranks_that_are_said_to_be_slow_make_no_step_shorter() -> None:
    """What nothing is said of varies as before, on a machine."""

    def time_of(varied: dict[str, Any]) -> float:
        layer = {"name": "a", "parameters": 1000, "forward": "1 ms", "backward": "2 ms"}
        cluster = {"machine": "dgx-a100", "nodes": 1}
        data = {"model": {"layers": [layer]}, "cluster": cluster, "strategy": {"kind": "ddp"}}
        return predict(load({**data, "variability": varied}, Path(), "x")).step_time_s

    plain = time_of({})
    assert time_of({"slow_ranks": {3: 1.0 + 1e-9}}) == pytest.approx(plain)
    assert time_of({"slow_ranks": {99: 2.0}}) == plain
    assert plain < time_of({"slow_ranks": {3: 1.05}}) < time_of({"slow_ranks": {3: 1.5}})
    assert time_of({"pauses": {"duration": "1 us", "every": 10}}) > plain
