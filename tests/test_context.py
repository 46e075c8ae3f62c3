"""Sequences that several ranks split between them: who sends what when, how long it takes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dpsim.compile.placement import Mesh
from dpsim.predict.memory import memory_of
from tests.asked import case_of, predicted, refusal

MIB, MS = 2**20, 1e-3
DATA = Path(__file__).parent / "data" / "context"
MEGATRON = {"kind": "megatron"}
KINDS = ("ring", "all_gather", "ulysses", "hierarchical")
#: queries of 4 MiB and keys with values of 2 MiB a sample, 12 ms of attention and 12 ms of the rest
ATTENTION = {"queries": "4 MiB", "keys": "2 MiB", "heads": 8, "key_heads": 4}


def toy(*, ranks: int = 4, split: int = 4, **rest: Any) -> dict[str, Any]:
    """One layer of attention alone and one without, 1 MiB of parameters each."""
    each = {"parameters": 262144, "forward": "4 ms", "backward": "8 ms", "activation": "1 MiB"}
    layers = [{"name": "a", **each, "attention": ATTENTION}, {"name": "m", **each}]
    return {
        "model": {"layers": layers},
        "cluster": {"ranks": ranks},
        "parallel": {"context": split},
        "collective": {"backend": "free"},
        "strategy": {"kind": "ddp"},
        "optimizer": {"kind": "none"},
        **rest,
    }


def llama(**rest: Any) -> dict[str, Any]:
    """Llama 3 8B on four nodes of eight H100, sequences of 32,768 tokens."""
    return {
        "model": {"huggingface": "llama-3-8b", "sequence_length": 32768},
        "cluster": {"machine": "dgx-h100", "nodes": 4},
        "strategy": {"kind": "megatron", "use_distributed_optimizer": True},
        "parallel": {"tensor": 2, "context": 4},
        "precision": {"parameters": "bf16", "compute": "bf16"},
        **rest,
    }


def exchanged(data: dict[str, Any]) -> list[tuple[str, tuple[int, ...], float, float]]:
    """(operation, ranks, bytes, times) of what rank 0 exchanges to attend, in order."""
    cast = case_of(data).programs.asked
    return [
        (op.operation, tuple(cast.peers(0, op.group)), op.bytes, op.repeats)
        for op in cast.program(0).ops
        if op.group.startswith("context")
    ]


# -- what is sent ---------------------------------------------------------------------------------


def test_a_ring_passes_keys_and_values_on_and_in_backward_their_gradients_too() -> None:
    """Of 2 MiB each rank has 0.5; three of them forward, three and three gradients backward."""
    everyone = (0, 1, 2, 3)
    found = exchanged(toy(strategy=MEGATRON))
    assert found == [
        ("shift", everyone, 0.5 * MIB, 3),
        ("shift", everyone, 2 * 3 / 4 * 0.5 * MIB, 4),
    ]


def test_a_gather_collects_keys_and_values_twice_and_scatters_their_gradients() -> None:
    everyone = (0, 1, 2, 3)
    assert exchanged(toy(context={"kind": "all_gather"}, strategy=MEGATRON)) == [
        ("all_gather", everyone, 1.0 * MIB, 2),
        ("all_gather", everyone, 1.0 * MIB, 2),
        ("reduce_scatter", everyone, 1.0 * MIB, 2),
    ]


@pytest.mark.parametrize("kind", ["ring", "all_gather"])
def test_copied_keys_are_as_wide_as_queries(kind: str) -> None:
    """Eight heads of queries share four of keys, so copies are twice as many."""
    shared, copied = (
        exchanged(toy(context={"kind": kind, "copied_keys": copies}, strategy=MEGATRON))
        for copies in (False, True)
    )
    assert copied == [(name, ranks, 2 * size, times) for name, ranks, size, times in shared]


@pytest.mark.parametrize("run", json.loads((DATA / "orders.json").read_text())["runs"], ids=str)
@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "fsdp1", "zero_redundancy_optimizer"])
def test_torchs_strategies_send_what_torch_sends(run: dict[str, Any], strategy: str) -> None:
    """Collectives of forward and backward, by bytes of their results and in fp32 where torch casts;
    recorded with keys and values of 1 KiB on each of four ranks, in bf16."""
    gathers = run["rotate_method"] == "all_gather"
    data = toy(
        strategy={"kind": strategy},
        context={
            "kind": "all_gather" if gathers else "ring",
            "balance": "head_tail" if run["load_balance"] else "none",
        },
        precision={"parameters": "bf16", "compute": "bf16"},
    )
    data["model"]["layers"][0]["attention"] = {"queries": "8 KiB", "keys": "4 KiB"}
    sent = Counter[tuple[str, float]]()
    for operation, _, size, times in exchanged(data):
        sent[operation, size] += times
    rows = [row for kind in ("forward", "backward") for row in run[kind]]
    # torch sends to a neighbour by an all-to-all that is empty for all others
    names = {"all_to_all": "shift", "all_gather": "all_gather"}
    assert sent == Counter((names[row[0]], row[1]) for row in rows if row[0] in names)


@pytest.mark.parametrize("run", json.loads((DATA / "orders.json").read_text())["runs"], ids=str)
def test_torch_hides_what_it_awaits_behind_attention(run: dict[str, Any]) -> None:
    """Beside what the rank has computed between a post and the wait for it; a gather that is longer
    than the first block's attention is awaited by all other blocks."""
    alone = [i for i, row in enumerate(run["backward"]) if _unhidden(run["backward"], i)]
    assert [run["backward"][i][2] for i in alone] == ["float32"]
    assert not any(_unhidden(run["forward"], i) for i in range(len(run["forward"])))
    first = [row[0] for row in run["forward"] if row[0] != "wait"]
    if run["rotate_method"] == "all_gather":
        assert first == ["all_gather", *["attend"] * 4]


def _unhidden(rows: list[list[Any]], at: int) -> bool:
    """Whether no attention follows what is posted in row `at`."""
    return len(rows[at]) > 1 and ["attend"] not in rows[at:]


def test_all_to_alls_turn_queries_keys_values_and_output_both_ways() -> None:
    everyone = (0, 1, 2, 3)
    once = [("all_to_all", everyone, 1.0 * MIB, 2), ("all_to_all", everyone, 0.25 * MIB, 2)]
    assert exchanged(toy(context={"kind": "ulysses"})) == once * 2


def test_a_hierarchy_turns_heads_among_neighbours_and_passes_blocks_across() -> None:
    """Of eight ranks four neighbours hold all heads together; two of them make a ring."""
    found = exchanged(toy(ranks=8, split=8, context={"kind": "hierarchical", "inside": 4}))
    near, far = (0, 1, 2, 3), (0, 4)
    turned = [("all_to_all", near, 0.5 * MIB, 2), ("all_to_all", near, 0.125 * MIB, 2)]
    assert found == [
        *turned, ("shift", far, 0.25 * MIB, 1), *turned, ("shift", far, 0.25 * MIB, 2)
    ]  # fmt: skip


def test_what_a_block_computes_again_it_exchanges_again() -> None:
    data = llama(context={"kind": "all_gather"})
    plain, again = exchanged(data), exchanged({**data, "recompute": "full"})
    counts = [[row[3] for row in found if row[0] == "all_gather"] for found in (plain, again)]
    assert sum(counts[1]) == 1.5 * sum(counts[0])


def test_grouped_heads_send_their_own_keys_and_values_alone() -> None:
    """8 of 32 heads have keys and values of 128 elements each, of which a tensor rank has half."""
    (_, ranks, size, times), *_ = exchanged(llama())
    assert (ranks, times) == ((0, 2, 4, 6), 3 * 32)
    assert size == 2 * (8 / 2) * 128 * (32768 / 4) * 2


# -- how long it takes ----------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["event", "vectorised"])
@pytest.mark.parametrize(
    ("kind", "milliseconds"),
    [
        ("ring", 1.25 + 3 * 0.6 + 2 + 4 * 0.85),  # longer than the attention beside it
        ("all_gather", 2 + 2 * 1.1 + 4 + 4 * 1.1),
        ("ulysses", 2 + 2 * 1.1 + 2 * 0.35 + 4 + 2 * 1.1 + 2 * 0.35),
    ],
)
def test_a_step_is_its_passes_and_what_attention_cannot_hide(
    kind: str, milliseconds: float, engine: str
) -> None:
    """0.1 ms and 1 MiB/ms; nothing is exchanged but what attention needs."""
    data = toy(
        context={"kind": kind}, engine=engine, strategy={"kind": "megatron"},
        collective={"backend": "ideal", "latency": "0.1 ms", "bandwidth": "1 MiB/ms"},
    )  # fmt: skip
    gradients = 0.1 + 2  # in one buffer behind all
    assert predicted(data).step_time_s == pytest.approx((milliseconds + gradients) * MS)


@pytest.mark.parametrize(
    "strategy",
    [
        *({"kind": kind} for kind in ("ddp", "fsdp", "fsdp1", "horovod", "megatron")),
        *({"kind": "zero", "stage": stage} for stage in (1, 2, 3)),
        {"kind": "zero_redundancy_optimizer"},
    ],
    ids=str,
)
def test_what_nothing_hides_makes_layers_longer_and_changes_nothing_else(
    strategy: dict[str, Any],
) -> None:
    """All-to-alls of 2.9 ms belong to a layer's pass: gradients are made behind them, and go over
    all ranks as those of a model without context parallelism whose layer takes so much longer."""
    ideal = {"backend": "ideal", "latency": "0.1 ms", "bandwidth": "1 MiB/ms"}
    split = toy(ranks=8, strategy=strategy, context={"kind": "ulysses"}, collective=ideal)
    plain = toy(ranks=8, strategy=strategy, collective=ideal, parallel={})
    attention, other = plain["model"]["layers"]
    del attention["attention"]
    attention |= {"forward": "3.9 ms", "backward": "4.9 ms", "activation": "0.25 MiB"}
    other |= {"forward": "1 ms", "backward": "2 ms", "activation": "0.25 MiB"}
    assert predicted(split).step_time_s == pytest.approx(predicted(plain).step_time_s)


@pytest.mark.parametrize("engine", ["event", "vectorised"])
@pytest.mark.parametrize(
    ("kind", "slow", "fast"),
    [
        # attention takes 1 and 2 ms; a post of 0.5 MiB 0.1 and 0.5 ms, 0.01 and 0.05 ms
        ("ring", 1.25 + 3 * 0.6 + 2 + 6 * 0.6 + 0.6, 2 + 4 + 0.06),
        ("all_gather", 1.75 + 2.1 + 2 + 2.1 + 3 * 0.6 + 0.6, 2 + 4 + 0.06),
    ],
)
def test_the_last_gradients_of_torchs_ring_come_home_beside_nothing(
    kind: str, slow: float, fast: float, engine: str
) -> None:
    for latency, bandwidth, expected in (("0.1 ms", 1, slow), ("0.01 ms", 10, fast)):
        data = toy(
            context={"kind": kind}, engine=engine,
            collective={"backend": "ideal", "latency": latency, "bandwidth": f"{bandwidth} MiB/ms"},
        )  # fmt: skip
        for layer in data["model"]["layers"]:
            layer["parameters"] = 1
        gradients = float(latency[:-3]) + 2 * 4 / MIB / bandwidth  # both in one bucket
        assert predicted(data).step_time_s == pytest.approx((expected + gradients) * MS)


def test_without_balance_all_wait_for_the_rank_with_the_last_stretch() -> None:
    """Of causal work the last of four has 7/16, 1.75 times its share; all-to-alls share heads."""
    steps = {
        kind: predicted(toy(context={"kind": kind, "balance": "none"})).step_time_s
        for kind in ("ring", "all_gather", "ulysses")
    }
    assert steps["ring"] == pytest.approx((1.75 * 3 + 3) * MS)
    assert steps["all_gather"] == pytest.approx(steps["ring"])
    assert steps["ulysses"] == pytest.approx(6 * MS)


def test_a_context_of_one_is_the_plain_job() -> None:
    alone, plain = toy(ranks=2, split=1), {**toy(ranks=2), "parallel": {}}
    assert predicted(alone).document["points"] == predicted(plain).document["points"]


# -- who takes part -------------------------------------------------------------------------------


def test_ranks_that_split_a_sequence_are_neighbours_behind_tensor_and_sum_gradients() -> None:
    mesh = Mesh(tensor=2, context=2, data=2, pipeline=2)
    assert mesh.ranks == 16
    groups = sorted(tuple(group) for group in mesh.context_groups(0))
    assert groups == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert [tuple(group) for group in mesh.data_groups(1)] == [(8, 10, 12, 14), (9, 11, 13, 15)]


def test_the_distributed_optimizer_shards_over_replicas_and_context() -> None:
    """Parameters do not depend on how ranks are split between both, nor do states."""
    split, whole = case_of(llama()), case_of(llama(parallel={"tensor": 2}))
    states = [memory_of(case).parts["optimizer states"] for case in (split, whole)]
    assert states[0] == states[1]


def test_fully_sharded_parameters_are_gathered_over_context_and_data() -> None:
    """torchtitan's mesh `dp_shard_cp`; attention is beside the ring also where layers are gathered.
    Forward 2 ms, backward 4 ms: nothing else takes time."""
    data = toy(ranks=8, strategy={"kind": "fsdp"})
    cast = case_of(data).programs.asked
    gathers = {tuple(cast.peers(0, op.group)) for op in cast.program(0).ops if op.exchanges}
    assert gathers == {tuple(range(8)), (0, 1, 2, 3)}
    assert exchanged(data) == exchanged(toy(ranks=8))
    assert predicted(data).step_time_s == pytest.approx(6 * MS)


def test_activations_are_divided() -> None:
    four, eight = (
        memory_of(case_of(llama(parallel={"tensor": 2, "context": n}))).parts["activations"]
        for n in (4, 8)
    )
    assert eight == pytest.approx(four / 2, rel=0.01)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(
    "strategy", [{"kind": "fsdp"}, {"kind": "ddp"}, {"kind": "zero", "stage": 3}]
)
def test_as_many_tokens_of_longer_sequences_need_as_much_at_the_loss(
    count: int, strategy: dict[str, Any]
) -> None:
    """Eager logits of 8,192 tokens are the fullest moment, and no gradient is there at it; keys and
    values of other ranks come and go in attention (A27)."""

    def parts(split: int) -> dict[str, float]:
        model = {"huggingface": "llama-3-8b", "sequence_length": 8192 * split}
        data = llama(model=model, parallel={"context": split}, strategy=strategy)
        return memory_of(case_of({**data, "memory": {"kernels": "eager"}})).parts

    alone, together = parts(1), parts(count)
    assert together == pytest.approx(alone)
    assert "activations of the loss" in together


@pytest.mark.parametrize("compute", ["fp32", "bf16"])
@pytest.mark.parametrize(("kind", "beside"), [("all_gather", 4), ("ring", 2), ("ulysses", 1)])
def test_keys_that_are_stated_in_bytes_take_as_many_in_every_dtype(
    compute: str, kind: str, beside: int
) -> None:
    """Of 2 MiB a rank of four has a quarter; so many quarters are there at once, and their
    gradients."""
    views = {"kind": "ddp", "gradient_as_bucket_view": True}  # no gradients made beside them
    data = toy(context={"kind": kind}, precision={"compute": compute}, strategy=views)
    parts = memory_of(case_of(data)).parts
    assert sum(size for name, size in parts.items() if "activation" in name) == beside * 2**20


def test_experts_divide_context_and_data() -> None:
    layer = {"name": "e", "parameters": 8, "forward": "1 ms", "backward": "2 ms", "experts": 8}
    data = toy(ranks=8)
    data["model"]["layers"].append(layer)
    cast = case_of({**data, "parallel": {"context": 4, "expert": 8}}).programs.asked
    assert tuple(cast.peers(0, "expert.0")) == tuple(range(8))
    assert "context x data, 8" in refusal({**data, "parallel": {"context": 4, "expert": 3}})


# -- what is refused ------------------------------------------------------------------------------


def test_heads_that_do_not_divide_are_refused_with_what_would() -> None:
    said = refusal(llama(parallel={"tensor": 4, "context": 8}, context={"kind": "ulysses"}))
    assert "32 heads of queries and 8 of keys" in said
    assert "1, 2 would, or kind: ring" in said


def test_a_hierarchy_whose_heads_divide_no_further_passes_blocks_round_alone() -> None:
    """16 tensor ranks copy 8 heads of keys: none is left for ranks inside."""
    data = llama(parallel={"tensor": 16, "context": 2})
    alone = exchanged({**data, "context": {"kind": "hierarchical", "inside": 1}})
    assert alone
    assert exchanged({**data, "context": {"kind": "hierarchical"}}) == alone
    said = refusal({**data, "context": {"kind": "hierarchical", "inside": 2}})
    assert "do not split over 2 ranks; 1 would, or kind: ring" in said


@pytest.mark.parametrize(
    ("length", "balance", "said"),
    [
        (32770, "head_tail", "do not split into 8 equal stretches, two for each rank"),
        (32772, "head_tail", "1, 2, 3 would, or a model.sequence_length that 8 divides"),
        (32770, "none", "do not split into 4 equal stretches, one for each rank"),
    ],
)
def test_sequences_that_do_not_divide_are_refused(length: int, balance: str, said: str) -> None:
    model = {"huggingface": "llama-3-8b", "sequence_length": length}
    assert said in refusal(llama(model=model, context={"balance": balance}))
    case_of(llama(model=model | {"sequence_length": 32768}, context={"balance": balance}))


@pytest.mark.parametrize(
    ("length", "context", "said"),
    [
        (32770, 1, "sequences of 32770 tokens do not split over 4 tensor ranks; false would do"),
        (32772, 1, ""),
        (32780, 2, "tokens over 2 ranks do not split over 4 tensor ranks; false would do"),
        (32768, 2, ""),
    ],
)
def test_tensor_ranks_share_a_sequence_in_equal_parts(length: int, context: int, said: str) -> None:
    """Megatron-LM asserts it where it scatters sequences."""
    shared = {"tensor": 4, "context": context, "sequence_parallel": True}
    model = {"huggingface": "llama-3-8b", "sequence_length": length}
    if said:
        assert said in refusal(llama(model=model, parallel=shared))
        case_of(llama(model=model, parallel=shared | {"sequence_parallel": False}))
    else:
        case_of(llama(model=model, parallel=shared))


def test_toys_say_what_their_attention_exchanges() -> None:
    data = toy()
    del data["model"]["layers"][0]["attention"]
    assert "attention: {queries: …, keys: …}" in refusal(data)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"huggingface": "t5-base", "sequence_length": 512}, "attend over another sequence"),
        ({"name": "resnet50"}, "language models"),
        ({"huggingface": "vit-base-patch16-224"}, "are of images"),
        ({"huggingface": "gpt-oss-20b", "sequence_length": 8192}, "look back at a window only"),
    ],
)
def test_models_whose_attention_is_not_split_are_refused_by_name(
    model: dict[str, Any], said: str
) -> None:
    assert said in refusal(llama(model=model, parallel={"context": 2}))


def test_neighbours_divide_the_context() -> None:
    assert "3 does not divide context, 4; 1, 2, 4 would" in refusal(
        toy(context={"kind": "hierarchical", "inside": 3})
    )
    assert "needs kind: hierarchical" in refusal(toy(context={"kind": "ring", "inside": 2}))
