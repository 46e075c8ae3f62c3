"""Cures of stragglers: samples by speed, fewer nodes, spare nodes."""

from __future__ import annotations

from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsim.cases.case import Case
from dpsim.core.record import Refused
from dpsim.describe.scenario import load, read
from dpsim.describe.uneven import disjoint, proportional, ranks_of
from dpsim.predict.cures import slowest_node, with_spares, without_ranks
from dpsim.predict.explain import explain, what_if
from dpsim.predict.player import play, step_time
from dpsim.predict.prediction import predict

TOY: dict[str, Any] = {
    "model": {"layers": [{"name": "a", "parameters": 1000, "forward": "0 s",
                          "backward": "10 ms"}]},
    "cluster": {"ranks": 4},
    "collective": {"backend": "free"},
    "strategy": {"kind": "ddp"},
    "optimizer": {"kind": "none"},
}  # fmt: skip
#: eight V100, then eight A100
MIXED: dict[str, Any] = {
    "model": {"name": "resnet50"},
    "cluster": {"machine": "dgx-1v", "nodes": 2, "devices": {"8-15": "a100-sxm-40gb"}},
    "strategy": {"kind": "ddp"},
    "batch": {"per_device": 64},
    "precision": {"compute": "fp16"},
    "compute": {"spread": 0.0},
}


def case_of(base: dict[str, Any] = TOY, **changes: Any) -> Case:
    return Case(load({**base, **changes}, Path(), "test").points[0], Path())


def point_of(base: dict[str, Any] = TOY, **changes: Any) -> dict[str, Any]:
    return predict(load({**base, **changes}, Path(), "test")).points[0]


def changes_of(case: Case) -> dict[str, tuple[float, float]]:
    found = what_if(case, play(case).step_time)
    return {c.change: (c.step_time_s, c.throughput_gain) for c in found}


# -- who gets how much ----------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50))
def test_dealt_samples_are_all_there_and_nobody_is_off_by_a_whole_one(
    total: int, weights: list[float]
) -> None:
    shares = proportional(total, weights)
    assert sum(shares) == total
    for share, weight in zip(shares, weights, strict=True):
        assert abs(share - total * weight / sum(weights)) < 1 + 1e-6


def test_largest_remainders_by_hand() -> None:
    """Of 30, quotas are 8.57 three times and 4.29: 8 + 8 + 8 + 4, and two are left for the first
    two of the largest fractions."""
    assert proportional(30, [1, 1, 1, 0.5]) == (9, 9, 8, 4)


def test_text_names_ranks() -> None:
    assert [list(r) for r in ranks_of("0-2, 5,7-8")] == [[0, 1, 2], [5], [7, 8]]
    for wrong in ("", "3-", "5-2", "a", "-1", "99999999"):
        with pytest.raises(Refused, match="names no ranks"):
            ranks_of(wrong)
    with pytest.raises(Refused, match="both name rank"):
        disjoint(["0-7", "7-9"])


# -- samples by speed -----------------------------------------------------------------------------


def test_a_rank_at_half_speed_gets_half_the_samples_and_all_end_together() -> None:
    """7 samples each are 28; at speeds 1, 1, 1, 1/2 that is 8, 8, 8 and 4: 80 ms on every rank
    instead of 70, 70, 70 and 140 ms."""
    slow = {"slow_ranks": {3: 2.0}}
    assert point_of(batch={"per_device": 7}, variability=slow)["step_time_s"] == pytest.approx(0.14)
    case = case_of(batch={"per_device": 7, "by_speed": True}, variability=slow)
    assert case.shares == (8, 8, 8, 4)
    found = point_of(batch={"per_device": 7, "by_speed": True}, variability=slow)
    assert found["step_time_s"] == pytest.approx(0.08)
    assert found["global_batch"] == 28
    assert found["stall_s"] == pytest.approx(0.0, abs=1e-12)


@given(
    st.integers(2, 12), st.integers(1, 40), st.integers(1, 4), st.booleans(),
    st.lists(st.floats(0.5, 3.0), min_size=12, max_size=12),
)  # fmt: skip
def test_samples_by_speed_keep_the_global_batch_and_are_no_slower(
    ranks: int, each: int, accumulation: int, weak: bool, factors: list[float]
) -> None:
    size = {"per_device": each} if weak else {"global": each * ranks * accumulation}
    rest = {
        "cluster": {"ranks": ranks},
        "variability": {"slow_ranks": dict(enumerate(factors[:ranks]))},
    }
    even = case_of(**rest, batch={**size, "accumulation": accumulation})
    dealt = case_of(**rest, batch={**size, "accumulation": accumulation, "by_speed": True})
    try:
        shares = dealt.shares
    except Refused as error:
        assert "gets no sample" in error.message
        return
    assert sum(shares) * accumulation == even.global_batch == dealt.global_batch
    # all end together, but for the one sample that cannot be split
    ends = [share * factor for share, factor in zip(shares, factors, strict=False)]
    assert max(ends) - each * ranks / sum(1 / f for f in factors[:ranks]) < max(factors[:ranks])
    assert step_time(dealt) <= step_time(even) + 0.01 * accumulation * max(factors[:ranks]) + 1e-9


def test_samples_by_rank_are_as_given() -> None:
    found = point_of(batch={"per_device": 8, "accumulation": 2, "per_rank": {3: 4}},
                     variability={"slow_ranks": {3: 2.0}})  # fmt: skip
    assert found["global_batch"] == 2 * 28
    assert found["step_time_s"] == pytest.approx(0.16)


def test_without_stragglers_samples_by_speed_are_even_again() -> None:
    case = case_of(batch={"per_device": 7, "by_speed": True},
                   variability={"slow_ranks": {3: 2.0}})  # fmt: skip
    assert changes_of(case)["no stragglers"][0] == pytest.approx(0.07)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch": {"by_speed": True}}, "needs per_device or global"),
        ({"batch": {"global": 8, "per_rank": {0: 1}}}, "needs per_device"),
        ({"batch": {"per_device": 8, "per_rank": {0: 1}, "by_speed": True}}, "without by_speed"),
        ({"batch": {"global": 3, "by_speed": True}}, "leave some of 4 ranks without one"),
        ({"batch": {"per_device": 1, "by_speed": True},
          "variability": {"slow_ranks": {1: 100.0}}}, "rank 1 is so slow"),
        ({"batch": {"per_device": 8, "per_rank": {0: 4}},
          "strategy": {"kind": "ddp", "backup_workers": 1}}, "shares or devices differ"),
        ({"batch": {"per_device": 8, "by_speed": True}, "parallel": {"pipeline": 2}},
         "ranks that share a model"),
        ({"cluster": {"ranks": 4, "devices": {"0": "a100-sxm-40gb"}}}, "needs a machine"),
    ],
)  # fmt: skip
def test_what_cannot_be_dealt_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        point_of(**changes)


# -- mixed devices --------------------------------------------------------------------------------


def test_in_a_mixed_cluster_the_slower_devices_set_the_step() -> None:
    """The ranks on V100 compute what they do in a cluster of V100 alone."""
    alone = {**MIXED["cluster"], "devices": None}
    mixed, slow = point_of(MIXED), point_of(MIXED, cluster=alone)
    assert mixed["step_time_s"] == pytest.approx(slow["step_time_s"], rel=1e-9)
    assert case_of(MIXED).batches.rank_seconds[0] > 2 * case_of(MIXED).batches.rank_seconds[8]


def test_samples_by_speed_let_mixed_devices_end_together() -> None:
    case = case_of(MIXED, batch={"per_device": 64, "by_speed": True})
    assert case.global_batch == 1024
    assert len(set(case.shares[:8])) <= 2
    seconds = case.batches.rank_seconds
    one = max(seconds / np.array(case.shares))  # a sample
    assert seconds.max() - seconds.min() < one
    assert point_of(MIXED, batch={"per_device": 64, "by_speed": True})["step_time_s"] < (
        0.7 * point_of(MIXED)["step_time_s"]
    )


def test_mfu_is_a_share_of_what_all_devices_could_do() -> None:
    case, point = case_of(MIXED), point_of(MIXED)
    peak = 8 * 125e12 + 8 * 312e12
    flop = case.model.flop_per_sample() * 1024
    assert point["mfu"] == pytest.approx(flop / (peak * point["step_time_s"]))


def test_memory_is_that_of_the_fullest_device() -> None:
    """A V100 with 16 GB at 64 samples is fuller than an A100 with 40 GB at 96."""
    batch = {"per_device": 64, "per_rank": dict.fromkeys(range(8, 16), 96)}
    point = point_of(MIXED, batch=batch)
    even = point_of(MIXED, cluster={**MIXED["cluster"], "devices": None})
    assert point["memory_bytes"] == pytest.approx(even["memory_bytes"])


@pytest.mark.parametrize("batch", [{"per_device": 64}, {"per_device": 64, "by_speed": True}])
def test_both_engines_play_mixed_devices_alike(batch: dict[str, Any]) -> None:
    times = [point_of(MIXED, batch=batch, engine=engine, compute={"contention": 0.0, "spread": 0.0})
             for engine in ("event", "vectorised")]  # fmt: skip
    assert times[0]["step_time_s"] == pytest.approx(times[1]["step_time_s"], rel=1e-9)


def test_devices_beyond_the_ranks_are_told_and_durations_refused() -> None:
    found = predict(load({**MIXED, "cluster": {**MIXED["cluster"], "nodes": 1}}, Path(), "test"))
    assert any("cluster.devices: no point has a rank of 8-15" in w
               for w in found.document["warnings"])  # fmt: skip
    with pytest.raises(Refused, match=r"cluster.devices.*both name"):
        case_of(MIXED, cluster={**MIXED["cluster"], "devices": {"0-8": "t4", "8-9": "t4"}})
    with pytest.raises(Refused, match="state their durations"):
        point_of(MIXED, model=TOY["model"])


# -- fewer nodes ----------------------------------------------------------------------------------


def test_without_the_slowest_node_the_others_go_on() -> None:
    """Four nodes of 8 with rank 9 at 1.5: three nodes at full speed."""
    base = {**MIXED, "cluster": {"machine": "dgx-1v", "nodes": 4}}
    slow = case_of(base, variability={"slow_ranks": {9: 1.5, 20: 1.1}})
    gone = slowest_node(slow)
    assert gone == range(8, 16)
    left = without_ranks(slow, gone).of(slow)
    assert (left.nodes, left.ranks) == (3, 24)
    assert left.batches.variation.fixed == {12: 1.1}  # rank 20 has moved up
    time, gain = changes_of(slow)["without the slowest node"]
    same = case_of({**MIXED, "cluster": {"machine": "dgx-1v", "nodes": 3}},
                   variability={"slow_ranks": {12: 1.1}})  # fmt: skip
    assert time == pytest.approx(step_time(same), rel=1e-9)
    assert gain == pytest.approx(0.75 * step_time(slow) / time - 1, rel=1e-9)


def test_without_the_slowest_rank_of_a_toy_the_rest_needs_no_wait() -> None:
    case = case_of(variability={"slow_ranks": {1: 1.5, 2: 1.2}})
    time, gain = changes_of(case)["without the slowest rank"]
    assert time == pytest.approx(0.012)
    assert gain == pytest.approx(0.75 * 0.015 / 0.012 - 1)


def test_mixed_devices_lose_their_slow_node_and_the_others_move_up() -> None:
    case = case_of(MIXED)
    left = without_ranks(case, slowest_node(case) or range(0)).of(case)
    assert (left.nodes, left.pace.of_rank) == (1, (1,) * 8)


def test_a_quiet_cluster_has_no_slowest_node() -> None:
    assert slowest_node(case_of()) is None
    assert not {c for c in changes_of(case_of()) if "slowest" in c or "spare" in c}


def test_samples_by_speed_are_among_the_what_ifs() -> None:
    case = case_of(batch={"per_device": 7}, variability={"slow_ranks": {3: 2.0}})
    assert changes_of(case)["samples by speed"] == pytest.approx((0.08, 0.75))


def test_single_changes_by_hand() -> None:
    """10 ms of compute, then a ring of 4: 6 x (1 ms + 1 MB at 1 GB/s)."""
    ring = {"backend": "ideal_ring", "latency": "1 ms", "bandwidth": "1 GB/s"}
    layer = {"name": "a", "parameters": 1_000_000, "forward": "0 s", "backward": "10 ms"}
    found = changes_of(case_of(collective=ring, model={"layers": [layer]}))
    assert {change: time for change, (time, _) in found.items()} == pytest.approx(
        {
            "twice the bandwidth": 0.019,
            "half the latency": 0.019,
            "free communication": 0.010,
            "twice the batch": 0.032,
            "twice the compute speed": 0.017,
        }
    )


@pytest.mark.parametrize(
    ("rate", "gain"), [(20, 0.5), (90, 0.0)], ids=["the link binds", "its connections bind"]
)
def test_twice_the_bandwidth_over_tcp_is_what_doubling_it_does(rate: int, gain: float) -> None:
    """Connections of the hosts' TCP carry no more for a faster link, and inside a node there are
    none."""
    said = {"machine": "dgx-h100", "inter_node_kind": "ethernet", "nics_per_node": 1}

    def case(rate: int, **cluster: Any) -> Case:
        whole = {**said, "inter_node_bandwidth": f"{rate} Gbit/s", "nodes": 2, **cluster}
        return case_of(MIXED, cluster=whole, model={"name": "vgg16"})

    now = case(rate)
    then, _ = changes_of(now)["twice the bandwidth between nodes"]
    assert then == pytest.approx(step_time(case(2 * rate)), rel=1e-9)
    assert (then < (1 - gain / 2) * step_time(now)) == (gain > 0)
    assert "twice the bandwidth" in changes_of(case(rate, nodes=1))


def test_twice_the_batch_is_twice_the_samples_of_every_rank() -> None:
    """10 ms are of one sample: rank 2, which has 3, sets the pace with 60 ms."""
    case = case_of(batch={"per_device": 1, "per_rank": {2: 3}})
    assert changes_of(case)["twice the batch"] == pytest.approx((0.06, 0.0))


def test_keeping_activations_is_told_where_they_fit() -> None:
    base = {**MIXED, "cluster": {"machine": "dgx-1v", "nodes": 1}, "recompute": "full"}
    assert changes_of(case_of(base))["no recomputation"][1] > 0.2  # a forward of three passes
    assert "no recomputation" not in changes_of(case_of(base, batch={"per_device": 4096}))
    assert "no recomputation" not in changes_of(case_of(base, recompute="none"))


def test_work_of_the_host_is_told_beside_the_same_on_the_device() -> None:
    """Updates on the host take longer; without them 0.4 B parameters fit, and 8 B do not."""
    found = {}
    for model in ("gpt2-medium", "llama-3-8b"):
        data = {**MIXED, "model": {"huggingface": model, "sequence_length": 512},
                "cluster": {"machine": "dgx-1v", "nodes": 1}, "batch": {"per_device": 1},
                "precision": {"parameters": "fp16", "compute": "fp16"},
                "strategy": {"kind": "zero", "stage": 1, "offload_optimizer": "cpu"}}  # fmt: skip
        found[model] = changes_of(case_of(data))
    assert found["gpt2-medium"]["no offloading"][1] > 0.2
    assert found["llama-3-8b"]["no offloading (would not fit)"][1] > 0.2
    on_device = {**MIXED, "strategy": {"kind": "zero", "stage": 1}}
    assert not any("offloading" in name for name in changes_of(case_of(on_device)))


def test_a_cure_that_cannot_be_is_left_out() -> None:
    """A rank a hundred times as slow gets no sample of four: only leaving it out is told."""
    case = case_of(batch={"per_device": 1}, variability={"slow_ranks": {1: 100.0}})
    found = changes_of(case)
    assert "samples by speed" not in found
    assert found["without the slowest rank"][0] == pytest.approx(0.01)


# -- spare nodes ----------------------------------------------------------------------------------


def test_spares_replace_the_slowest_first() -> None:
    found = changes_of(case_of(variability={"slow_ranks": {1: 1.5, 2: 1.2}}))
    assert found["1 spare rank"] == pytest.approx((0.012, 0.25))
    assert found["2 spare ranks"] == pytest.approx((0.010, 0.5))
    assert "3 spare ranks" not in found


def test_a_spare_node_replaces_all_its_ranks() -> None:
    case = case_of({**MIXED, "cluster": {"machine": "dgx-1v", "nodes": 4}},
                   variability={"slow_ranks": {9: 1.5, 10: 1.4, 20: 1.1}})  # fmt: skip
    spared = {variant.name: variant.of(case) for variant in with_spares(case)}
    assert list(spared) == ["1 spare node", "2 spare nodes"]
    assert spared["1 spare node"].batches.variation.fixed == {20: 1.1}
    assert spared["2 spare nodes"].batches.variation.fixed == {}


@pytest.mark.parametrize("spares", [0, 1, 2])
def test_with_drawn_slow_ranks_spares_are_worth_a_binomial_tail(spares: int) -> None:
    """Each of 8 ranks is 1.5 times as slow with probability 0.2; the step is slow if more ranks
    are than there are spares."""
    n, p, steps = 8, 0.2, 4000
    slow = {"probability": p, "factor": 1.5, "per": "rank"}
    case = case_of(cluster={"ranks": n}, variability={"random_slow": slow, "steps": steps})
    tail = 1 - sum(comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(spares + 1))
    found = step_time(Case(case.scenario, case.base, spares=spares), at_most=steps)
    error = 4 * 0.005 * (tail * (1 - tail) / steps) ** 0.5
    assert found == pytest.approx(0.010 * (1 + 0.5 * tail), abs=error)


def test_more_spares_never_hurt_and_jitter_stays() -> None:
    case = case_of(cluster={"ranks": 8}, variability={
        "random_slow": {"probability": 0.3, "factor": 2.0, "per": "rank"}, "jitter": 0.05,
        "steps": 200})  # fmt: skip
    times = [step_time(case, at_most=200)]
    times += [step_time(spared.of(case), at_most=200) for spared in with_spares(case)]
    assert times == sorted(times, reverse=True)
    quiet = case_of(cluster={"ranks": 8}, variability={"jitter": 0.05, "steps": 200})
    full = Case(case.scenario, case.base, spares=8)
    assert step_time(full, at_most=200) == pytest.approx(step_time(quiet, at_most=200))


def test_an_explanation_names_the_cures() -> None:
    made = predict(load({**TOY, "variability": {"slow_ranks": {1: 1.5}}}, Path(), "test"))
    names = [c["change"] for c in explain(made)["points"][0]["what_if"]]
    assert {"without the slowest rank", "samples by speed", "1 spare rank"} <= set(names)


def test_sharding_within_a_node_is_told_where_it_fits_and_is_faster() -> None:
    """Over 10 Gbit/s gathers are best kept inside a node; of 70 B parameters a node has no room."""
    thin = ["sweep=null", "cluster.nodes=2", "cluster.inter_node_bandwidth=10 Gbit/s"]
    name = "strategy.shard: 8, of a node"
    gains = {}
    for model in ("llama-3-8b", "llama-3-70b"):
        loaded = read("llama3-8b-h100", [*thin, f"model.huggingface={model}.json"])
        case = Case(loaded.points[0], loaded.base)
        now = play(case).step_time
        gains[model] = {one.change: one.step_time_s / now for one in what_if(case, now)}
    assert gains["llama-3-8b"][name] < 0.7
    assert name not in gains["llama-3-70b"]
    part = read("llama3-8b-h100", ["sweep=null", "cluster={machine: dgx-h100, ranks: 12}"])
    case = Case(part.points[0], part.base)
    assert name not in {one.change for one in what_if(case, play(case).step_time)}
