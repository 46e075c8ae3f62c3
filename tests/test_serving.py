"""Serving: what replicas of a model do with requests, from worked numbers and closed forms."""

from __future__ import annotations

import json
from collections.abc import Sequence as Several
from itertools import pairwise
from pathlib import Path
from typing import Any

import golden
import numpy as np
import pytest
from typer.testing import CliRunner

from dpsim.cli.app import app
from dpsim.core.constants import numbers
from dpsim.core.record import Refused, build
from dpsim.describe.scenario import load as load_training
from dpsim.machines.machine import load_machine
from dpsim.serving.answer import ServedPoint, serve
from dpsim.serving.balancer import Client, InTurn
from dpsim.serving.decoder import decoder_of
from dpsim.serving.described import Requests, ServingEngine, read_service, taken_service
from dpsim.serving.ends import ServedMeans, ends_of, paces
from dpsim.serving.exchanges import StepExchanges
from dpsim.serving.fleet import Fleet
from dpsim.serving.pace import StepPace, StepParts, padded
from dpsim.serving.scheduler import BLOCK, Scheduler, Sequence, StepWork, blocks_of
from dpsim.serving.service import offered
from dpsim.serving.workload import Ask, asked

SCENARIOS = golden.SCENARIOS / "serving"
NAMES = sorted(path.stem for path in SCENARIOS.glob("*.yaml"))


class Steady:
    """A pace at which every step takes as long, and a token more."""

    def __init__(self, step: float = 1.0, token: float = 0.0, *, lockstep: bool = False) -> None:
        self.each, self.token, self.lockstep = step, token, lockstep

    def step(self, work: StepWork, most: int, everyone: int) -> StepParts:
        return StepParts(compute=self.each + self.token * work.tokens)


def engine(**given: Any) -> ServingEngine:
    given = {"engine": "vllm", "replicas": 1, "output_token": "0 s", **given}
    return build(ServingEngine, given, file=True)


def fleet(
    asks: Several[tuple[float | None, int, int]], pace: Any, *, replicas: int = 1,
    blocks: int = 1000, most: int = 256, budget: int = 2048, concurrency: int | None = None,
    nodes: Several[Several[int]] = (), **given: Any,
) -> Fleet:  # fmt: skip
    """A played fleet, asked for (arrival, prompt, answer)."""
    ranks = [Scheduler(blocks, most, budget) for _ in range(replicas)]
    own = engine(replicas=replicas, **given)
    listed = [Ask(k, *one) for k, one in enumerate(asks)]
    found = Fleet(own, pace, listed, concurrency, ranks, nodes)
    found.play()
    return found


def service(**given: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "model": {"huggingface": "llama-3.1-8b"},
        "cluster": {"machine": "dgx-h100"},
        "serving": {"engine": "vllm", "replicas": 2, "output_token": "0 s"},
        "requests": {"count": 32, "concurrency": 8, "input": 100, "output": 20},
    }
    for key, value in given.items():
        found[key] = {**found[key], **value} if isinstance(value, dict) else value
    return found


# -- who gets a request ---------------------------------------------------------------------------


def test_a_client_chooses_by_four_times_waiting_plus_running() -> None:
    """(waiting, running) of (0, 10), (1, 5), (2, 0) score 10, 9, 8; a choice adds one waiting."""
    client = Client(3)
    client.learn([(0, 10), (1, 5), (2, 0)])
    assert [client.choose() for _ in range(4)] == [2, 1, 0, 2]
    assert client.counts == [[1, 10], [2, 5], [4, 0]]


def test_several_clients_count_for_the_others_and_begin_apart() -> None:
    clients = [Client(4, k, 2) for k in range(2)]
    assert [client.choose() for client in clients] == [0, 2]
    assert clients[0].counts[0] == [2, 0]


def test_a_balancer_outside_deals_in_turn() -> None:
    outside = InTurn(3)
    assert [outside.choose() for _ in range(5)] == [0, 1, 2, 0, 1]


def test_a_burst_between_two_counts_is_spread_evenly() -> None:
    found = fleet([(0.0, 16, 4)] * 12, Steady(), replicas=4)
    assert [sum(one.rank == k for one in found.served) for k in range(4)] == [3, 3, 3, 3]


def test_hybrid_deals_to_nodes_and_chooses_inside() -> None:
    found = fleet(
        [(0.0, 16, 4)] * 8, Steady(), replicas=4, nodes=[[0, 1], [2, 3]], balancing="hybrid"
    )
    ranks = [one.rank for one in sorted(found.served, key=lambda one: one.ask.number)]
    assert [rank // 2 for rank in ranks] == [0, 1] * 4
    assert sorted(ranks) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_nodes_are_filled_in_turn_and_hybrid_balancing_deals_to_these() -> None:
    """Nine replicas on nodes of eight devices are eight and one, and the one takes every second
    request."""
    machine = load_machine("dgx-h100")
    nodes = StepExchanges(machine, 9, 1).filled
    assert nodes == (tuple(range(8)), (8,))
    assert StepExchanges(machine, 5, 2).filled == ((0, 1, 2, 3), (4,))
    found = fleet([(0.0, 16, 4)] * 8, Steady(), replicas=9, nodes=nodes, balancing="hybrid")
    assert sum(one.rank == 8 for one in found.served) == 4


# -- steps ----------------------------------------------------------------------------------------


def test_ranks_in_lockstep_end_at_a_multiple_of_32_steps() -> None:
    """A rank with 10 steps of work beside one with 100: both take 128, 118 and 28 of them dummy."""
    pace = Steady(lockstep=True)
    found = fleet([(0.0, 1, 10), (0.0, 1, 100), (127.5, 1, 1)], pace, replicas=2,
                  balancing="external")  # fmt: skip
    late = max(found.served, key=lambda one: one.came)
    assert late.first == 129.0  # the wave had gone on until step 128; the next begins there
    assert [record.dummies for record in found.records] == [118, 29]


def test_without_experts_a_rank_stops_when_it_is_through() -> None:
    found = fleet([(0.0, 1, 10), (0.0, 1, 100)], Steady(), replicas=2, balancing="external")
    assert [record.steps for record in found.records] == [10, 100]


def test_one_request_is_a_prompt_and_then_a_step_for_each_token() -> None:
    (one,) = fleet([(0.0, 1000, 50)], Steady(1.0, 0.001)).served
    assert one.first == pytest.approx(1.0 + 1.0)
    assert one.last - one.first == pytest.approx(49 * 1.001)


def test_a_long_prompt_is_cut_into_chunks_of_the_budget() -> None:
    (one,) = fleet([(0.0, 5000, 1)], Steady(1.0, 0.001), budget=2048).served
    assert one.first == pytest.approx(3 + 5.0)


def test_a_step_is_chosen_while_the_one_before_is_computed() -> None:
    """Who comes in the middle of a step waits for its end and for the whole next one, which was
    chosen when it began; nobody waits who finds nothing computed."""
    found = fleet([(0.0, 1, 50), (9.5, 1, 1)], Steady()).served
    late, first = found
    assert (first.first, late.first) == (1.0, 12.0)
    assert late.queued == 0.0


def test_a_request_is_queued_from_the_first_step_that_it_might_be_in() -> None:
    """One seat, taken until 20: the second, of 9.5, might have been in the step chosen at 10, and
    the first step without the other is chosen at 20."""
    first, second = sorted(
        fleet([(0.0, 1, 20), (9.5, 1, 1)], Steady(), most=1).served, key=lambda one: one.came
    )
    assert first.last == 20.0
    assert second.queued == 10.0
    assert second.first == 21.0


def test_prompts_slow_those_that_are_answered_beside_them() -> None:
    alone = fleet([(0.0, 100, 200)], Steady(0.01, 1e-4)).served[0]
    beside = fleet([(0.0, 100, 200), (0.5, 2000, 1)], Steady(0.01, 1e-4)).served[-1]
    assert beside.last - alone.last == pytest.approx(2000 * 1e-4)


def test_one_seat_is_a_queue_with_one_server() -> None:
    """Waits follow Lindley's recursion: W' = max(W + S - A, 0), with a service of two steps."""
    arrivals = np.sort(np.random.default_rng(3).random(200)) * 420
    found = fleet([(float(at), 4, 2) for at in arrivals - arrivals[0]], Steady(), most=1)
    served = sorted(found.served, key=lambda one: one.ask.number)
    wait = [0.0]
    for before, after in pairwise(served):
        wait.append(max(wait[-1] + 2.0 - (after.came - before.came), 0.0))
    assert [one.first - one.came - 1.0 for one in served] == pytest.approx(wait, abs=1e-9)


def test_little_s_law_holds_on_the_path() -> None:
    """Those in the system, over time, are the sum of the times that requests are in it."""
    rng = np.random.default_rng(5)
    asks = [(float(at), int(rng.integers(1, 3000)), int(rng.integers(1, 60)))
            for at in np.sort(rng.random(120)) * 30]  # fmt: skip
    found = fleet(asks, Steady(0.1, 1e-4), replicas=3, most=8)
    there = sum(record.waiting + record.running for record in found.records)
    assert there == pytest.approx(sum(one.last - one.came for one in found.served))


@pytest.mark.parametrize("blocks", [40, 64, 1000])
def test_every_token_is_put_out_and_the_cache_is_never_more_than_full(blocks: int) -> None:
    rng = np.random.default_rng(7)
    asks = [(0.0, int(rng.integers(1, 300)), int(rng.integers(1, 300))) for _ in range(60)]
    found = fleet(asks, Steady(0.1, 1e-4), replicas=2, blocks=blocks)
    assert sorted(one.ask.number for one in found.served) == list(range(60))
    assert all(one.put_out == one.ask.answer for one in found.served)
    assert all(record.most_blocks <= blocks for record in found.records)
    assert all(rank.used == 0 for rank in found.ranks)
    preempted = sum(rank.preempted for rank in found.ranks)
    assert (preempted > 0) == (blocks < 1000)
    again = sum(record.prompts for record in found.records) - sum(prompt for _, prompt, _ in asks)
    assert (again > 0) == (preempted > 0)  # what lost its blocks is computed again


def test_the_last_admitted_makes_room_for_the_first() -> None:
    first, second = (0.0, 16, 40), (0.0, 16, 40)
    found = fleet([first, second], Steady(), blocks=4)
    served = sorted(found.served, key=lambda one: one.ask.number)
    assert [one.restarts for one in served] == [0, 1]
    assert served[0].last == 40.0


def test_no_more_than_max_num_seqs_run() -> None:
    found = fleet([(0.0, 4, 8)] * 20, Steady(), most=3)
    assert found.records[0].most_running == 3
    assert found.records[0].held == {"max_num_seqs": pytest.approx(6 * 8)}


def test_requests_under_way_never_exceed_the_concurrency() -> None:
    found = fleet([(None, 4, 8)] * 20, Steady(), concurrency=5, replicas=2)
    edges = sorted(
        [(one.came, 1) for one in found.served] + [(one.last, -1) for one in found.served]
    )
    assert max(np.cumsum([change for _, change in edges])) == 5


def test_an_api_server_puts_out_one_token_after_the_other() -> None:
    """Four requests of 10 tokens in steps of 1 ms, at 1 ms a token: 40 ms and the first step."""
    found = fleet([(0.0, 4, 10)] * 4, Steady(1e-3), output_token="1 ms")
    assert max(one.last for one in found.served) == pytest.approx(41e-3)
    assert found.busy == [[pytest.approx(40e-3)]]


# -- what a step takes ----------------------------------------------------------------------------


def test_a_rank_holds_all_parameters_and_each_token_its_keys() -> None:
    """Llama 3.1 8B: 8.03 G parameters; 2 x 32 layers x 8 heads x 128 elements of 2 bytes."""
    whole = decoder_of("llama-3.1-8b", engine())
    assert whole.weights(1) == pytest.approx(2 * 8.03e9, rel=1e-3)
    assert whole.keys == 131_072
    halves = decoder_of("llama-3.1-8b", engine(tensor=2, kv_cache="fp8"))
    assert halves.weights(1) == pytest.approx(whole.weights(1) / 2)
    assert halves.keys == 131_072 / 4


def test_latent_keys_are_whole_on_every_rank_and_heads_are_not_cut() -> None:
    for tensor in (1, 8):
        assert decoder_of("deepseek-v3", engine(tensor=tensor)).keys == 2 * 61 * (512 + 64)
    assert decoder_of("llama-3.1-8b", engine(tensor=16)).keys == 131_072 / 8


def test_experts_are_split_over_all_ranks() -> None:
    found = decoder_of("qwen3-30b-a3b", engine())
    experts = 2 * 48 * 128 * 3 * 2048 * 768
    assert found.weights(1) - found.weights(8) == pytest.approx(experts * 7 / 8)
    assert found.weights(1) == pytest.approx(2 * 30.5e9, rel=0.01)


def pace_of(model: str, replicas: int = 1, **given: Any) -> StepPace:
    machine = load_machine("dgx-h100")
    own = engine(replicas=replicas, **given)
    return StepPace(
        decoder_of(model, own), machine.device, StepExchanges(machine, replicas, own.tensor)
    )


def decode(sequences: int, context: int) -> StepWork:
    putting = [Sequence(Ask(k, 0.0, context, 2), 0.0) for k in range(sequences)]
    return StepWork(sequences, context=sequences * context, chunks=sequences, putting=putting)


def test_a_step_of_few_tokens_reads_weights_and_keys() -> None:
    """15.0 GB of weights without the table at 0.9 of 3.35 TB/s, 16 x 4,096 keys at 0.8; kernels
    beside them take less than a tenth."""
    pace, work = pace_of("llama-3.1-8b"), decode(16, 4096)
    took = pace.step(work, 16, 16).seconds
    least = 15.01e9 / 3.35e12 / 0.9 + 16 * 4096 * 131_072 / 3.35e12 / 0.8
    assert least < took < 1.1 * least


def test_steps_take_longer_with_tokens_context_and_ranks() -> None:
    pace = pace_of("llama-3.1-8b")
    few, more = (pace.step(decode(n, 1000), n, n).seconds for n in (8, 64))
    far = pace.step(decode(8, 9000), 8, 8).seconds
    assert few < more
    assert few < far
    two = pace_of("llama-3.1-8b", tensor=2).step(decode(8, 1000), 8, 8)
    assert two.network > 0
    halves = pace_of("llama-3.1-8b", tensor=2)
    halves.exchanges.tensor = 1  # the same halves, were there nothing to exchange
    free = halves.step(decode(8, 1000), 8, 8)
    assert two.seconds == pytest.approx(free.seconds + two.network)


def test_a_tensor_group_gathers_the_logits_that_are_wanted() -> None:
    """128,256 logits of 2 bytes for each sequence that puts out a token, none of a prompt's
    middle."""
    pace = pace_of("llama-3.1-8b", tensor=2)
    chunk, last = StepWork(tokens=512), StepWork(tokens=512, putting=decode(4, 0).putting)
    found = [pace.step(work, 512, 512).network for work in (chunk, last)]
    gathered = pace.exchanges.among_tensor("all_gather", 4 * 128_256 * 2.0)
    assert found[1] - found[0] == pytest.approx(gathered)


def test_the_cache_fills_what_programs_have_of_the_memory() -> None:
    """An L40S has 47.7 of the 48 GB that it is sold with."""
    loaded = taken_service(
        service(serving={"replicas": 1, "max_model_len": 8192}, cluster={"machine": "l40s-8"})
    )
    found = offered(loaded)
    room = 0.9 * found.machine.device.usable - found.room.weights - found.room.beside
    assert found.machine.device.usable < found.machine.device.memory
    assert 0 <= room - found.room.cache < BLOCK * found.decoder.keys


def test_in_lockstep_a_rank_pays_for_the_fullest() -> None:
    pace = pace_of("qwen3-30b-a3b", replicas=4)
    assert pace.lockstep
    beside = pace.step(decode(1, 100), 64, 256).seconds
    assert beside > pace.step(decode(1, 100), 1, 4).seconds
    assert not pace_of("qwen3-30b-a3b").lockstep


def test_rows_of_experts_are_filled_up() -> None:
    """By half a tile of about as many rows as an expert has; in 8 bits to whole ones of 128."""
    assert padded(64.0, 8.0, aligned=False) == 64 + 8 * 8
    assert padded(64.0, 8.0, aligned=True) == 8 * 128
    assert padded(8 * 256.0, 8.0, aligned=True) == 8 * (256 + 64)


def test_even_load_on_replicas_without_experts_scales_linearly() -> None:
    answer = serve(service(serving={"balancing": "external", "replicas": 4}))
    points = [point for point in answer.points if isinstance(point, ServedPoint)]
    assert [point.replicas for point in points] == [1, 2, 4]
    assert [point.efficiency for point in points] == pytest.approx([1.0] * 3)


def test_one_api_server_stops_replicas_from_scaling() -> None:
    """At 1 ms a token no more than 1,000 tokens a second are put out."""
    answer = serve(service(serving={"replicas": 4, "output_token": "1 ms"}))
    last = answer.point
    assert isinstance(last, ServedPoint)
    assert last.output_tokens_per_s < 1000
    assert last.limit == "front_end"
    assert last.efficiency is not None
    assert last.efficiency < 0.8
    assert last.output_tokens_per_s_high < 1000  # however fast the ranks are


@pytest.mark.parametrize(("users", "told"), [(3, []), (12, [2, 4, 8]), (16, [1, 2, 4, 8])])
def test_speed_up_is_told_where_replicas_share_the_load_evenly(users: int, told: Any) -> None:
    """An eighth of 12 users is no number of users; a quarter is."""
    answer = serve(
        service(serving={"replicas": 8, "balancing": "external"},
                requests={"concurrency": users, "count": 160})
    )  # fmt: skip
    points = [point for point in answer.points if isinstance(point, ServedPoint)]
    assert [point.replicas for point in points if point.efficiency is not None] == told
    assert any("not shared evenly" in text for text in answer.warnings) == (len(told) < 4)


def test_a_service_that_keeps_up_has_no_speed_up_and_keeps_up_with_slower_steps() -> None:
    answer = serve(service(requests={"concurrency": None, "rate": "2/s", "count": 64}))
    for point in answer.points:
        assert isinstance(point, ServedPoint)
        assert point.limit == "arrivals"
        assert point.efficiency is None
        assert point.output_tokens_per_s_low > 0.95 * point.output_tokens_per_s
        share = point.replicas / 2
        assert point.asked_tokens_per_s == pytest.approx(2 * 20 * share, rel=0.1)


def test_ends_are_the_service_with_other_steps_and_a_first_token_is_less_sure() -> None:
    """Half of 2 s until the first token are in the queue, which only paces stretch."""
    own = ServedMeans(tokens=100.0, ttft=2.0, queued=1.0, tpot=0.1, rest=3.0)
    fast, slow = (own.stretched(factor) for factor in paces())
    known = numbers("serving")
    found = ends_of(own, fast, slow)
    assert found.tokens == pytest.approx((100 / known["tpot.slow"], 100 * known["tpot.fast"]))
    assert found.tpot == pytest.approx((0.1 / known["tpot.fast"], 0.1 * known["tpot.slow"]))
    assert found.ttft[1] == known["tpot.slow"] + known["ttft.slow"]
    rest = (3 / known["tpot.fast"], 3 * known["tpot.slow"])
    assert found.latency == pytest.approx([a + b for a, b in zip(found.ttft, rest, strict=True)])


def test_a_queue_grows_with_slower_steps_but_no_longer_than_the_run() -> None:
    """Overloaded, the time until the first token is the queue's, and not widened by what first
    tokens alone are unsure by."""
    flood = {"concurrency": None, "rate": "1e6/s", "count": 400, "output": 200}
    point = serve(
        service(serving={"replicas": 1, "max_num_seqs": 8}, requests=flood), scaling=False
    ).point
    assert isinstance(point, ServedPoint)
    assert point.queued_s > 0.9 * point.ttft_s.mean
    assert point.ttft_s.high < 1.01 * point.duration_s * numbers("serving")["tpot.slow"]
    assert point.ttft_s.high <= point.latency_s.high
    assert point.tpot_s is not None
    assert point.tpot_s.low < point.tpot_s.mean < point.tpot_s.high


def test_a_model_is_served_as_far_as_its_positions() -> None:
    """GPT-2 has learned ones, 1,024."""
    given = service(model={"huggingface": "gpt2"})
    assert isinstance(serve(given, scaling=False).point, ServedPoint)
    with pytest.raises(Refused, match="beyond max_model_len, which is 1,024"):
        serve(given, ["requests.input=1010"], scaling=False)


def test_what_a_service_answers_adds_up() -> None:
    last = serve(service(), scaling=False).point
    assert isinstance(last, ServedPoint)
    assert sum(rank.output_tokens for rank in last.ranks) == 32 * 20
    assert last.output_tokens_per_s == pytest.approx(32 * 20 / last.duration_s)
    assert sum(last.parts.values()) == pytest.approx(1.0)
    assert last.latency_s.mean == pytest.approx(
        last.ttft_s.mean + 19 * (last.tpot_s.mean if last.tpot_s else 0)
    )


# -- requests -------------------------------------------------------------------------------------


def requests(**given: Any) -> Requests:
    given = {"count": 1000, "input": 200, "output": 50, **given}
    return build(Requests, given, file=True)


def test_lengths_have_their_mean_and_arrivals_their_rate() -> None:
    found = asked(requests(rate="10/s", lengths="lognormal", spread=0.8), 3)
    assert np.mean([one.prompt for one in found]) == pytest.approx(200, rel=0.02)
    assert np.std([one.answer for one in found]) == pytest.approx(40, rel=0.05)
    assert found[-1].arrival == pytest.approx(100, rel=0.02)
    uniform = asked(requests(concurrency=1, lengths="uniform", spread=0.2), 3)
    assert {min(o.prompt for o in uniform), max(o.prompt for o in uniform)} == {160, 240}


@pytest.mark.parametrize("count", [2, 5, 20])
def test_so_many_requests_come_in_as_many_gaps(count: int) -> None:
    """In the mean of many draws, every gap is 1 / rate, also of few requests."""
    asks = requests(rate="10/s", count=count)
    last = [asked(asks, seed)[-1].arrival or 0.0 for seed in range(400)]
    assert np.mean(last) == pytest.approx((count - 1) / 10, rel=0.06)


def test_a_rate_and_lengths_that_are_not_right_are_told_by_their_keys() -> None:
    with pytest.raises(Refused, match="has no unit; write for example '16/s'"):
        requests(rate=0.2)
    sets = ["serving.replicas=1", "requests.rate=2/s", "requests.input=500000"]
    with pytest.raises(Refused, match=r"^--set requests\.input=500000: .*is beyond max_model_len"):
        serve("llama3-8b-vllm-h100", sets, scaling=False)


def test_another_seed_is_another_order_of_the_same_lengths() -> None:
    given = requests(concurrency=1, lengths="lognormal", spread=1.0)
    first, second = ([one.prompt for one in asked(given, seed)] for seed in (0, 1))
    assert first != second
    assert sorted(first) == sorted(second)


def test_requests_of_a_file_are_taken_as_they_are(tmp_path: Path) -> None:
    lines = [
        {"arrival_s": 7.5, "input": 9, "output": 2},
        {"arrival_s": 7.0, "input": 5, "output": 3},
    ]
    (tmp_path / "asks.jsonl").write_text("\n".join(map(json.dumps, lines)))
    given = build(Requests, {"file": "asks.jsonl"}, file=True)
    assert asked(given, 0, tmp_path) == (Ask(0, 0.0, 5, 3), Ask(1, 0.5, 9, 2))
    (tmp_path / "asks.jsonl").write_text('{"arrival_s": 0, "input": 5}\n')
    with pytest.raises(Refused, match=r"asks.jsonl:1: output: is missing"):
        asked(given, 0, tmp_path)


@pytest.mark.parametrize(
    "said", [{"count": 3}, {"arrivals": "even"}, {"lengths": "uniform", "spread": 0.5}]
)
def test_a_file_says_all_of_its_requests(said: Any) -> None:
    with pytest.raises(Refused, match="goes without a file"):
        build(Requests, {"file": "asks.jsonl", **said}, file=True)


def test_plain_data_takes_overrides_and_numbers_of_numpy() -> None:
    given = service(serving={"replicas": np.int64(2)})
    found = serve(given, ["serving.replicas=4"], scaling=False)
    assert isinstance(found.point, ServedPoint)
    assert found.point.replicas == 4
    assert given["serving"]["replicas"] == 2
    with pytest.raises(Refused, match="--set nonsense"):
        serve(given, ["nonsense"])


@pytest.mark.parametrize("given", [None, 5, [], b"x"])
def test_what_is_no_service_is_refused(given: Any) -> None:
    with pytest.raises(Refused, match="is no service; accepted"):
        serve(given)


def test_counts_are_published_only_where_something_has_changed() -> None:
    """Days between requests take no longer to play than seconds."""
    played = fleet([(k * 1e7, 10, 2) for k in range(4)], Steady(), replicas=2)
    assert len(played.served) == 4
    assert {one.last - one.came for one in played.served} == {2.0}


def test_a_service_that_answers_long_after_the_last_request_does_not_keep_up() -> None:
    flood = serve(service(requests={"concurrency": None, "rate": "1e6/s"}), scaling=False).point
    trickle = serve(service(requests={"concurrency": None, "rate": "1/s"}), scaling=False).point
    assert isinstance(flood, ServedPoint)
    assert isinstance(trickle, ServedPoint)
    assert flood.limit in flood.parts
    assert trickle.limit == "arrivals"


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"serving": {"engine": "sglang"}}, "one engine is modelled"),
        ({"serving": {"speculative_config": {}}}, "is not modelled"),
        ({"serving": {"enable_prefix_caching": True}}, "is not modelled"),
        ({"cluster": {"machine": "tpu-v5e"}}, "vLLM on TPUs"),
        ({"cluster": {"machine": "two-rtx3090"}, "serving": {"replicas": 4}}, "a single node"),
        ({"serving": {"tensor": 3}}, "3 does not divide the 32 heads"),
        ({"serving": {"weights": "fp8"}, "cluster": {"machine": "dgx-a100"}}, "nothing in 8 bits"),
        ({"model": {"huggingface": "mistral-7b-v0.1"}}, "through a window"),
        ({"model": {"huggingface": "bert-large"}}, "no decoder"),
        ({"model": {"huggingface": "llama-3-70b"}}, "leave no room for keys and values"),
        (
            {"model": {"huggingface": "llama-3-70b"}, "serving": {"kv_blocks": 1000}},
            "weights of 141.1 GB and keys and values",
        ),
        ({"serving": {"kv_blocks": 10**9}}, "do not fit into"),
        (
            {"cluster": {"machine": "dgx-1v"}, "model": {"huggingface": "llama-3.2-1b-tied"}},
            "computes nothing in bf16",
        ),
        ({"serving": {"max_num_batched_tokens": 8, "max_num_seqs": 16}}, "cannot hold 16"),
        ({"requests": {"rate": "5/s"}}, "needs one of rate, concurrency and file"),
        ({"requests": {"input": 2_000_000}}, "beyond max_model_len, which is 131,072"),
        ({"serving": {"max_model_len": 100}}, "a request of 120 tokens is beyond max_model_len"),
        ({"serving": {"max_model_len": 200_000}}, "beyond the model's 131,072 positions"),
        (
            {"cluster": {"machine": "rtx4090-8"}},
            r"fewer than one request of 131,072 \(the model's positions\) may have",
        ),
        ({"requests": {"output": 10_000, "count": 200_000}}, "tokens of answers"),
    ],
)  # fmt: skip
def test_what_is_not_modelled_or_does_not_fit_is_refused_by_name(given: Any, said: str) -> None:
    with pytest.raises(Refused, match=said):
        serve(service(**given), scaling=False)


def test_each_command_names_the_other() -> None:
    with pytest.raises(Refused, match="dpsim serve"):
        load_training(service(), Path(), "x")
    with pytest.raises(Refused, match="dpsim run"):
        taken_service({"model": {}, "strategy": {"kind": "ddp"}})


# -- the command ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_bundled_service_gives_its_expected_output(name: str) -> None:
    path = SCENARIOS / f"{name}.yaml"
    document = json.loads(golden.expected_of(path).read_text())
    assert document["tag"] in golden.TAGS
    changed = golden.differences(document["expected"], serve(path).document["points"])
    assert not changed, "\n".join(changed[:20])


def test_the_command_prints_one_document_and_writes_its_files(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(json.dumps(service()))
    out = tmp_path / "out"
    done = CliRunner().invoke(
        app(), ["serve", str(tmp_path / "own.yaml"), "--json", "-o", str(out)]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == json.loads((out / "serving.json").read_text())
    assert {"index.html", "points.csv", "ranks.csv"} <= {path.name for path in out.iterdir()}
    told = CliRunner().invoke(app(), ["serve", str(tmp_path / "own.yaml"), "--alone"])
    assert "What limits" in told.stdout


def test_a_number_of_replicas_that_cannot_hold_the_model_says_so(tmp_path: Path) -> None:
    """DeepSeek-V3's experts in 8 bits do not fit on one H100; spread over 32 they do."""
    given = service(model={"huggingface": "deepseek-v3"}, requests={"count": 32},
                    serving={"replicas": 32, "weights": "fp8"})  # fmt: skip
    points = serve(given).points
    assert [isinstance(point, ServedPoint) for point in points][-1]
    assert not isinstance(points[0], ServedPoint)
    assert "leave no room" in points[0].error


def test_a_scenario_is_read_with_overrides() -> None:
    found = read_service(SCENARIOS / f"{NAMES[0]}.yaml", ["serving.replicas=3"])
    assert offered(found).engine.replicas == 3
    with pytest.raises(Refused, match=r"--set serving\.replicas=0"):
        read_service(SCENARIOS / f"{NAMES[0]}.yaml", ["serving.replicas=0"])


@pytest.mark.parametrize(
    ("requests", "plays"), [({"concurrency": 8}, 1), ({"concurrency": None, "rate": "9/s"}, 3)]
)
def test_it_is_told_how_many_requests_of_all_plays_are_answered(requests: Any, plays: int) -> None:
    """Two replicas, and one of them with half the requests; with slower and faster steps too,
    where requests come at a rate."""
    told: list[tuple[int, int]] = []
    serve(service(requests=requests), tell=lambda *at: told.append(at))
    total = plays * (32 + 16)
    assert told == [(done, total) for done in range(total + 1)]


def test_what_was_overridden_and_the_machine_are_said_on_screen_and_page(tmp_path: Path) -> None:
    """A title that names another machine is not left alone, as in `dpsim run`."""
    path = tmp_path / "own.yaml"
    path.write_text(json.dumps(service(title="Served by H100")))
    given = ["serve", str(path), "--alone", "--set", "cluster.machine=dgx-a100"]
    told = CliRunner().invoke(app(), [*given, "-o", str(tmp_path / "out")])
    page = (tmp_path / "out" / "index.html").read_text()
    for text in (told.stdout, page):
        assert "Served by H100, with cluster.machine=dgx-a100" in text
        assert "On 8 x A100-SXM4-80GB a node as in dgx-a100, 8 x 200 Gbit/s infiniband" in text
    made = serve(service(title="Mine"), ["seed=0"], scaling=False)
    assert made.name == "Mine, with seed=0"
    same = f"cluster.machine={service()['cluster']['machine']}"
    assert serve(service(title="Mine"), [same], scaling=False).name == "Mine"


def test_what_turns_out_wrong_is_told_with_its_place() -> None:
    with pytest.raises(Refused, match=r"--set serving\.tensor=3: serving\.tensor: 3 does not"):
        serve(NAMES[0], ["serving.tensor=3"])
    with pytest.raises(Refused, match=r"yaml:\d+: serving: .*leave no room"):
        serve(NAMES[0], ["model.huggingface=llama-3-70b"], scaling=False)


def test_blocks_have_sixteen_tokens() -> None:
    assert [blocks_of(tokens) for tokens in (1, 16, 17, 32)] == [1, 1, 2, 2]
