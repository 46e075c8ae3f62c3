"""Workers that train apart: what a round takes, what is sent and kept, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsim
from dpsim.cases.case import Case
from dpsim.compile.rhythm import Rhythm
from dpsim.core.record import Refused
from dpsim.describe.scenario import taken

STEP, SIZE = 0.05, 2e9  # s, B


def toy(ranks: int = 2, **more: Any) -> dict[str, Any]:
    """`ranks` ranks of a model of 2 GB on links of 1 Gbit/s; a step computes for 50 ms."""
    body = {"name": "body", "parameters": 10**9, "forward": "0 s", "backward": "50 ms"}
    return {
        "model": {"dtype": "bf16", "layers": [body]},
        "cluster": {"ranks": ranks},
        "collective": {"backend": "ideal_ring", "latency": "0 s", "bandwidth": "1 Gbit/s"},
        "optimizer": {"kind": "none"},
        **more,
    }


def point(ranks: int = 2, **more: Any) -> Any:
    return dpsim.predict(toy(ranks, **more)).points[0]


def diloco(**knobs: Any) -> dict[str, Any]:
    return {"kind": "diloco", **knobs}


def by_hand(period: int, fragments: int, delay: int, seconds: float) -> float:
    """A round step by step: a fragment leaves when the link is free and has to be there `delay`
    steps later; the mean of a late one of many rounds."""
    now, free, due, ends = 0.0, 0.0, {}, []
    for step in range(1, 12 * period + 1):
        now += STEP
        if (step * fragments) % period == 0:
            free = max(free, now) + seconds
            due[step + delay] = free
        now = max(now, due.pop(step, 0.0))
        if step % period == 0:
            ends.append(now)
    return (ends[-1] - ends[-5]) / 4 / period


@pytest.mark.parametrize("engine", ["event", "vectorised"])
@pytest.mark.parametrize(
    ("period", "fragments", "delay", "bits"),
    [
        (1, 1, 0, 16),
        (100, 10, 5, 16),
        (60, 6, 3, 4),
        (40, 4, 10, 8),
        (40, 4, 17, 16),
        (30, 3, 29, 4),
    ],
)
def test_a_round_s_mean_step_is_that_of_the_round_played_step_by_step(
    period: int, fragments: int, delay: int, bits: int, engine: str
) -> None:
    dtype = {16: "bf16", 8: "int8", 4: "fp4"}[bits]
    knobs = {"period": period, "fragments": fragments, "delay": delay, "outer_dtype": dtype}
    found = point(strategy=diloco(**knobs), engine=engine)
    seconds = SIZE * bits / 16 / fragments / 0.125e9
    assert found.step_time_s == pytest.approx(by_hand(period, fragments, delay, seconds), rel=1e-9)
    assert found.round.utilisation == pytest.approx(STEP / found.step_time_s, rel=1e-9)
    times = found.round.period.step_times_s
    assert (len(times), np.mean(times)) == (period, pytest.approx(found.step_time_s))


def test_each_step_of_a_round_takes_what_it_waits_for() -> None:
    times = Rhythm(10, 2, 3).step_times(1.0, 1.4)
    assert times == pytest.approx((1, 1, 3, 1, 1, 1, 1, 3, 1, 1))


def test_with_a_period_of_one_a_step_is_the_plain_one_and_its_exchange() -> None:
    """Two workers of four ranks: DDP inside, then half of 2 GB a rank's share, then gathered."""
    inner = point(4, strategy={"kind": "ddp"}).step_time_s
    whole = point(8, strategy={"kind": "local_sgd", "workers": 2, "inner": {"kind": "ddp"}})
    everyone = 2 * 7 / 8 * SIZE / 0.125e9  # torch averages over all ranks
    assert whole.step_time_s == pytest.approx(inner + everyone, rel=1e-9)
    shared = point(8, strategy=diloco(period=1, workers=2, inner={"kind": "ddp"}))
    exchange = (SIZE / 4 + 3 / 4 * SIZE) / 0.125e9
    assert shared.step_time_s == pytest.approx(inner + exchange, rel=1e-9)


def test_a_round_without_end_is_a_worker_alone() -> None:
    alone = point(4, strategy={"kind": "fsdp"}).step_time_s
    apart = point(8, strategy=diloco(period=100_000, workers=2, inner={"kind": "fsdp"}))
    assert apart.step_time_s == pytest.approx(alone, rel=1e-3)
    assert apart.sent.payload == pytest.approx(
        point(4, strategy={"kind": "fsdp"}).sent.payload, rel=1e-3
    )


@pytest.mark.parametrize("overlap", [False, True])
def test_gossip_takes_as_long_on_many_workers_as_on_two(overlap: bool) -> None:
    pair = {"kind": "gossip", "neighbours": 1, "overlap": overlap}
    times = [point(ranks, strategy=pair).step_time_s for ranks in (2, 16)]
    assert times == pytest.approx([16.0 if overlap else 16.05] * 2, rel=1e-9)
    assert point(16, strategy={"kind": "gossip"}).step_time_s == pytest.approx(32.05, rel=1e-9)


@pytest.mark.parametrize("backend", ["ideal", "ideal_ring"])
@pytest.mark.parametrize(("ranks", "seconds"), [(2, 2.1), (4, 3.2), (7, 3.2), (8, 3.2)])
def test_a_neighbour_costs_a_latency_and_all_parameters_once(
    backend: str, ranks: int, seconds: float
) -> None:
    """1 s of compute, then 0.1 s + 1 GB at 1 GB/s for each neighbour."""
    body = {"name": "body", "parameters": 250_000_000, "forward": "0 s", "backward": "1 s"}
    found = point(
        ranks, model={"dtype": "fp32", "layers": [body]}, strategy={"kind": "gossip"},
        collective={"backend": backend, "latency": "100 ms", "bandwidth": "1 GB/s"},
    )  # fmt: skip
    assert found.step_time_s == pytest.approx(seconds, rel=1e-9)
    assert found["bytes_sent_per_rank"] == pytest.approx(min(ranks - 1, 2) * 1e9)


def test_jitter_averages_over_a_round() -> None:
    """A round waits for the largest of sums, not for the sum of the largest: nested periods are no
    slower, and 25 steps leave a fifth of the spread."""
    varied = {"collective": {"backend": "free"}, "variability": {"jitter": 0.1, "steps": 2000}}
    times = [
        point(8, strategy={"kind": "local_sgd", "period": period}, **varied).step_time_s
        for period in (1, 5, 25)
    ]
    assert times[0] > times[1] > times[2] > STEP
    largest = 1.4236  # mean of the largest of eight normal numbers (Harter 1961)
    assert times == pytest.approx(
        [STEP * (1 + 0.1 * largest / n) for n in (1, 5**0.5, 5)], rel=4e-3
    )


def test_ranks_of_a_worker_wait_for_each_other_in_every_step() -> None:
    varied = {"collective": {"backend": "free"}, "variability": {"jitter": 0.1, "steps": 2000}}
    plain = point(8, strategy={"kind": "ddp"}, **varied).step_time_s
    split = diloco(period=50, workers=1, inner={"kind": "ddp"})
    assert point(8, strategy=split, **varied).step_time_s == pytest.approx(plain, rel=4e-3)


def test_outer_states_and_buffers_are_counted() -> None:
    plain = point(strategy={"kind": "ddp"}).memory
    full = point(strategy=diloco(fragments=10, outer_dtype="fp4", error_feedback=True)).memory
    assert full.parts["outer parameters"] == full.parts["outer momentum"] == SIZE
    assert full.parts["error feedback"] == SIZE
    assert full.parts["fragments under way"] == SIZE / 4 / 10
    host = point(strategy=diloco(outer_states="host")).memory
    assert "outer momentum" not in host.parts
    assert host.bytes < full.bytes + plain.bytes


def partly_frozen(inner: dict[str, Any] | None, **strategy: Any) -> Any:
    """Two workers of four ranks; of the model's 2 GB an eighth is trained."""
    base = {"name": "base", "parameters": 7 * 125 * 10**6, "trainable": False}
    layers = [{**base, "forward": "0 s", "backward": "25 ms"},
              {"name": "adapter", "parameters": 125 * 10**6, "forward": "0 s",
               "backward": "25 ms"}]  # fmt: skip
    whole = {"workers": 2, "inner": inner, **strategy}
    return point(8, model={"dtype": "bf16", "layers": layers}, strategy=whole)


@pytest.mark.parametrize(("inner", "share"), [("ddp", 1), ("fsdp", 4)])
def test_frozen_parameters_are_neither_exchanged_nor_kept_for_it(inner: str, share: int) -> None:
    """A worker's ranks share adapters out with what they adapt, or all hold both."""
    full, kind = SIZE / 8 / share, {"kind": inner}
    outer = partly_frozen(kind, **diloco(error_feedback=True)).memory.parts
    kept = [outer[f"outer {name}"] for name in ("parameters", "momentum")]
    assert [*kept, outer["error feedback"], outer["fragments under way"]] == pytest.approx(
        [full, full, full, SIZE / 8 / 4], rel=1e-9
    )
    averaged = partly_frozen(kind, kind="local_sgd").memory
    assert averaged.parts["averaged parameters"] == pytest.approx(full, rel=1e-9)


@pytest.mark.parametrize("inner", ["ddp", "fsdp"])
def test_a_base_in_shards_is_not_taken_for_adapters_in_full(inner: str) -> None:
    """Whole adapters are averaged over all eight ranks, their shards over the two peers."""
    often, never = (
        partly_frozen({"kind": inner}, kind="local_sgd", period=period).sent.payload
        for period in (1, 100_000)
    )
    average = 2 * 7 / 8 * SIZE / 8 if inner == "ddp" else 2 * 1 / 2 * SIZE / 8 / 4
    assert often - never == pytest.approx(average, rel=1e-4)


@pytest.mark.parametrize("engine", ["event", "vectorised"])
@pytest.mark.parametrize(
    ("ranks", "knobs", "met"),
    [
        (3, {"neighbours": 1}, 1),
        (5, {"topology": "exponential"}, 3),
        (8, {"topology": "exponential"}, 3),
        (9, {"topology": "exponential", "neighbours": 1}, 1),
        (9, {"topology": "exponential", "neighbours": 3, "period": 2}, 3 / 2),
    ],
    ids=str,
)
def test_whoever_a_worker_sends_to_gets_all_parameters_once(
    engine: str, ranks: int, knobs: dict[str, Any], met: float
) -> None:
    """50 ms of compute, and 16 s for each whom it meets in a step on average."""
    found = point(ranks, strategy={"kind": "gossip", **knobs}, engine=engine)
    assert found.step_time_s == pytest.approx(STEP + met * SIZE * 8 / 1e9, rel=1e-9)
    assert found["bytes_sent_per_rank"] == pytest.approx(met * SIZE)


@pytest.mark.parametrize("workers", [2, 3, 5, 6, 9, 16])
def test_all_send_once_and_get_once_for_each_neighbour_of_the_graph(workers: int) -> None:
    """Worker i sends to i + 1, i + 2, i + 4, …, each on two ranks."""
    strategy = {"kind": "gossip", "workers": workers, "topology": "exponential"}
    case = Case(taken(toy(2 * workers, strategy=strategy)).scenario, Path())
    groups = case.programs.cast(None).groups
    far = [2**k for k in range(9) if 2**k < workers]
    for distance in far:
        sent = {(a, b) for lap in groups[f"{distance} further on"]
                for a, b in zip(lap, (*lap[1:], lap[0]), strict=True)}  # fmt: skip
        assert sent == {(r, (r + 2 * distance) % (2 * workers)) for r in range(2 * workers)}
    assert f"{2 * far[-1]} further on" not in groups


def inner_outer(nodes: int, **more: Any) -> dict[str, Any]:
    """On `nodes` servers of eight GPUs, one of which sends outside in each step."""
    strategy = {"kind": "gossip", "topology": "inner_outer", **more}
    return {
        "model": {"name": "resnet50"}, "cluster": {"machine": "p3.16xlarge", "nodes": nodes},
        "batch": {"per_device": 32}, "strategy": strategy,
        "compute": {"contention": 0, "spread": 0},
    }  # fmt: skip


def test_one_rank_of_each_node_in_turn_sends_to_another_node() -> None:
    """An eighth of all messages leave a node, in turn for the node 1, 2 and 4 further on."""
    case = Case(taken(inner_outer(8)).scenario, Path())
    cast = case.programs.cast(None)
    outside = {f"{far} nodes further on": far for far in (1, 2, 4)}
    assert {tuple(part) for part in cast.groups["inside"]} == {
        tuple(range(at, at + 8)) for at in range(0, 64, 8)
    }
    for name, far in outside.items():
        sent = {(a, b) for lap in cast.groups[name]
                for a, b in zip(lap, (*lap[1:], lap[0]), strict=True)}  # fmt: skip
        assert sent == {(rank, (rank + 8 * far) % 64) for rank in range(64)}
    often = {op.group: op.repeats for op in cast.programs[0].ops if op.exchanges}
    assert often == pytest.approx({"inside": 7 / 8, **dict.fromkeys(outside, 1 / 24)})


@pytest.mark.parametrize("overlap", [False, True])
def test_a_node_sends_the_parameters_of_one_rank_a_step(overlap: bool) -> None:
    """Over its one NIC, whatever the number of nodes; beside the next step nobody sees them."""
    alone, few, many = (
        dpsim.predict(inner_outer(nodes, overlap=overlap)).points[0] for nodes in (1, 2, 16)
    )
    assert few["bytes_sent_per_rank"] == pytest.approx(4 * 25_557_032)
    sent = 4 * 25_557_032 / 3.125e9
    apart = few.step_time_s - alone.step_time_s, many.step_time_s - few.step_time_s
    assert (apart[0] < 0.1 * sent) if overlap else (0.9 * sent < apart[0] < 2.0 * sent)
    assert apart[1] < 0.5 * sent


@pytest.mark.parametrize(("ranks", "copies"), [(2, 1), (4, 2), (5, 2)])
def test_of_two_workers_each_has_one_neighbour_s_parameters(ranks: int, copies: int) -> None:
    parts = point(ranks, strategy={"kind": "gossip", "neighbours": 2}).memory.parts
    assert parts["neighbours' parameters"] == copies * SIZE


@pytest.mark.parametrize(
    "strategy",
    [{"kind": "post_local_sgd"}, {"kind": "local_sgd", "inner": {"kind": "ddp"}}],
    ids=["post_local_sgd", "inner"],
)
def test_nodes_are_workers_only_where_ranks_fill_them(strategy: dict[str, Any]) -> None:
    """As torch's new_subgroups stops there; 12 ranks in two workers are what is asked for."""
    for ranks in (12, 20):
        one = taken(on_nodes(ranks, strategy))
        programs = Case(one.scenario, one.base).programs
        with pytest.raises(Refused, match=rf"{ranks} ranks do not fill nodes of 8.* workers"):
            programs.cast(None)
    for ranks, workers, said in ((16, 2, {}), (4, 1, {}), (12, 2, {"workers": 2})):
        one = taken(on_nodes(ranks, {**strategy, **said}))
        job = Case(one.scenario, one.base).job(1)
        assert job.ranks // one.scenario.strategy.size(job) == workers


def test_a_rank_alone_is_a_worker_whatever_is_said_of_more() -> None:
    """So that two workers have a speed-up over one rank."""
    found = dpsim.predict(
        toy(strategy=diloco(period=4, workers=2), sweep={"cluster.ranks": [1, 2]})
    )
    alone, both = found.points
    assert alone.step_time_s == pytest.approx(STEP)
    assert both.step_time_s > STEP


def test_torch_averages_what_is_the_same_already() -> None:
    """All ranks are one worker: 10 ranks, so 2 x 9/10 of 2 GB every fourth step."""
    one = {"kind": "post_local_sgd", "period": 4, "workers": 1}
    plain = point(10, strategy={"kind": "ddp"}).step_time_s
    found = dpsim.predict(toy(10, strategy=one))
    assert found.step_time_s - plain == pytest.approx(1.8 * SIZE / 125e6 / 4)
    assert not any("samples" in said for said in found.warnings)


def on_nodes(ranks: int, strategy: dict[str, Any]) -> dict[str, Any]:
    """`ranks` ranks of the toy on nodes of eight."""
    cluster = {"machine": "dgx-h100", "ranks": ranks}
    return {"model": toy()["model"], "cluster": cluster, "strategy": strategy}


def test_without_gradients_that_are_reduced_every_rank_goes_apart() -> None:
    knobs = {"kind": "post_local_sgd", "post_local_gradient_allreduce": False, "period": 4}
    found = point(8, strategy=knobs).step_time_s
    assert found == pytest.approx(STEP + 2 * 7 / 8 * SIZE / 0.125e9 / 4, rel=1e-9)


def test_post_local_sgd_begins_as_ddp_and_counts_as_torch_does() -> None:
    """torch's averager counts steps from 0: with a warm-up of 2 and a period of 3 it averages after
    the third, the sixth, … iteration."""
    knobs = {"kind": "post_local_sgd", "period": 3, "warmup_steps": 2, "start_local_sgd_iter": 2,
             "workers": 2}  # fmt: skip
    plain, inner = (point(n, strategy={"kind": "ddp"}).step_time_s for n in (4, 2))
    average = 2 * 3 / 4 * SIZE / 0.125e9
    found = [point(4, strategy=knobs, iteration=k).step_time_s for k in (2, 3, 4, 6)]
    assert found == pytest.approx([plain, inner + average, inner, inner + average], rel=1e-9)
    steady = point(4, strategy=knobs).step_time_s
    assert steady == pytest.approx(inner + average / 3, rel=1e-9)


def test_time_to_train_counts_on_the_samples_that_are_known() -> None:
    """Published losses bound the samples; where there are none, a warning says so."""
    asked = {"training": {"samples": 1e6}}
    short, long = (
        dpsim.predict(toy(strategy=diloco(period=period), **asked)) for period in (100, 500)
    )
    run = short.points[0].run
    assert run is not None
    assert run.high_s / run.time_s == pytest.approx(1.1425, rel=1e-3)
    assert any("up to 14% more samples" in said for said in short.warnings)
    assert any("no published table" in said for said in long.warnings)


@pytest.mark.parametrize(
    ("ranks", "strategy", "said"),
    [
        (2, diloco(period=10, fragments=11), r"11 fragments do not leave within 10 steps"),
        (2, diloco(period=10, delay=11), r"would leave again before it is there"),
        (2, diloco(framework="torchft", period=100, fragments=10, delay=10), r"at most 9"),
        (2, diloco(framework="torchft", period=500, fragments=8), r"that 8 fragments divide"),
        (6, diloco(workers=4), r"6 ranks do not split into 4 equal workers"),
        (4, diloco(inner={"kind": "fsdp"}), r"which of 4 ranks train together"),
        (4, {"kind": "post_local_sgd"}, r"which of 4 ranks train together"),
        (
            4,
            {"kind": "post_local_sgd", "workers": 2, "post_local_gradient_allreduce": False},
            r"strategy.workers: without post_local_gradient_allreduce nobody reduces",
        ),
        (4, diloco(inner={"kind": "local_sgd"}), r"workers are split once"),
        (4, {"kind": "gossip", "neighbours": 3}, r"3 neighbours: a ring has 1 or 2"),
        (
            5,
            {"kind": "gossip", "topology": "exponential", "neighbours": 4},
            r"strategy.neighbours: 4 neighbours: of 5 workers each has 3",
        ),
        (2, diloco(outer_dtype="fp3"), r"outer_dtype"),
        (6, {"kind": "gossip", "topology": "inner_outer"}, r"needs nodes of 3 or more that 6"),
        (4, {"kind": "gossip", "topology": "inner_outer", "neighbours": 2}, r"a worker meets one"),
        (4, {"kind": "gossip", "topology": "inner_outer", "workers": 2}, r"one rank each"),
    ],
)
def test_what_cannot_be_is_refused(ranks: int, strategy: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        point(ranks, strategy=strategy)


def test_maxtext_overlaps_nothing_and_a_scenario_reads_back() -> None:
    streamed = diloco(period=100, fragments=10, delay=5, inner={"kind": "ddp"}, workers=2)
    waiting = point(strategy={**streamed, "framework": "maxtext"}).step_time_s
    assert waiting == pytest.approx(point(strategy=diloco(period=100)).step_time_s, rel=1e-9)
    answer = dpsim.predict(toy(strategy=streamed)).document
    assert answer["scenario"]["strategy"] == {**streamed}
    again = dpsim.predict(answer["scenario"]).document
    assert again["points"] == answer["points"]


def test_a_period_of_500_is_as_cheap_as_one_of_5() -> None:
    counts = []
    for period in (5, 500):
        one = taken(toy(strategy=diloco(period=period)))
        case = Case(one.scenario, one.base)
        counts.append(len(case.programs.cast(None).programs[0].ops) * case.plays()[0].steps)
    assert counts[0] == counts[1]
