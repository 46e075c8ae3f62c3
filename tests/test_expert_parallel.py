"""Experts shared out among ranks: who sends what when, how long it takes, what it keeps."""

from __future__ import annotations

import json
from collections import Counter
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsim.models
from dpsim.cases.case import Case
from dpsim.compile.job import Job
from dpsim.compile.layout import Layout
from dpsim.compile.pipeline import cast
from dpsim.compile.placement import Mesh
from dpsim.compile.routing import SPREAD, Moe, fullest, nodes_reached, ways
from dpsim.compile.schedules.one_f_one_b import OneFOneB
from dpsim.compile.strategies.fsdp import Fsdp
from dpsim.core.constants import shipped
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.models import Layer, Model, Tensor
from dpsim.models.compute import LayerTime
from dpsim.models.memory import footprints, kept_bytes
from dpsim.models.precision import Optimizer, Precision
from dpsim.predict.advice import _both
from dpsim.predict.prediction import predict
from dpsim.predict.unused import unused
from tests.asked import case_of, predicted, refusal

MIB = 2**20
CONFIGS = Path(dpsim.models.__file__).parent / "configs"
#: what torch itself sends (`validation/record_experts.py`; importing torch takes seconds)
RECORDED = json.loads((Path(__file__).parent / "data/experts/torch.json").read_text())


def toy(*, ranks: int = 4, expert: int = 2, **rest: Any) -> dict[str, Any]:
    """A dense layer of 1 M parameters and one of 8 experts with 8 M, of which tokens take two."""
    a = {"name": "a", "parameters": 1_000_000, "forward": "1 ms", "backward": "2 ms"}
    e = {"name": "e", "parameters": 8_000_000, "forward": "2 ms", "backward": "4 ms"}
    sparse = {"experts": 8, "experts_per_token": 2, "activation": "1 MiB"}
    return {
        "model": {"layers": [a, {**e, **sparse}]},
        "cluster": {"ranks": ranks},
        "parallel": {"expert": expert},
        "collective": {"backend": "ideal", "latency": "1 ms", "bandwidth": "10 MiB/ms"},
        "strategy": {"kind": "ddp"},
        "optimizer": {"kind": "none"},
        **rest,
    }


def exchanged(data: dict[str, Any], rank: int = 0) -> list[tuple[str, tuple[int, ...], float]]:
    """(operation, ranks, bytes) of every collective of a rank that moves something, in order."""
    cast = case_of(data).programs.asked
    return [
        (op.operation, tuple(cast.peers(rank, op.group)), op.bytes)
        for op in cast.program(rank).ops
        for _ in range(op.repeats)
        if op.exchanges and not op.control
    ]


# -- a step ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["event", "vectorised"])
def test_a_step_is_its_passes_four_all_to_alls_and_two_kinds_of_gradients(engine: str) -> None:
    """Forward 3 ms; each all-to-all 1 ms and 2 MiB; of the gradients only those of the dense layer
    (4 MB) end after backward."""
    found = predicted(toy(engine=engine)).step_time_s
    assert found == pytest.approx(1e-3 * (3 + 4 * 1.2 + 6 + 1 + 4e6 / (10 * MIB)))


def test_tokens_leave_and_come_back_and_gradients_have_their_own_groups() -> None:
    sent = exchanged(toy())
    tokens = ("all_to_all", (0, 1), 2.0 * MIB)
    experts = ("all_reduce", (0, 2), 4.0 * 8e6 / 2)
    dense = ("all_reduce", (0, 1, 2, 3), 4.0 * 1e6)
    assert sent == [tokens] * 3 + [experts, tokens, dense]


def test_experts_held_by_one_rank_each_are_reduced_with_nobody() -> None:
    sent = Counter(operation for operation, *_ in exchanged(toy(expert=4)))
    assert sent == {"all_to_all": 4, "all_reduce": 1}


def test_without_expert_parallelism_nothing_is_sent_to_experts() -> None:
    assert {operation for operation, *_ in exchanged(toy(expert=1))} == {"all_reduce"}


def test_expert_parallelism_multiplies_nothing() -> None:
    one, four = (predicted(toy(expert=n)).points[0] for n in (1, 4))
    assert (one.ranks, one.global_batch) == (four.ranks, four.global_batch)


def test_the_distributed_optimizer_shares_states_among_those_that_hold_the_same() -> None:
    """16-bit parameters: 2 + 2 bytes each, of which rank 0 holds 1 M and 8 M / 2; states 12 bytes
    and an fp32 copy of gradients 4, over 4 and over 2 ranks."""
    knobs = {
        "kind": "megatron", "use_distributed_optimizer": True, "grad_reduce_in_fp32": False
    }  # fmt: skip
    data = toy(strategy=knobs, optimizer={"kind": "adam"}, precision={"parameters": "bf16"})
    expected = 4 * 1e6 + 4 * 4e6 + 16 * (1e6 / 4 + 4e6 / 2)
    assert predicted(data).points[0].memory.bytes == pytest.approx(expected)
    scattered = [x for x in exchanged(data) if x[0] == "reduce_scatter"]
    assert [ranks for _, ranks, _ in scattered] == [(0, 1, 2, 3), (0, 2)]


def test_overlap_hides_all_to_alls_beside_another_micro_batch() -> None:
    """Of the second micro-batch's forward 2 of 2.4 ms of all-to-alls lie beside 3 ms of computing,
    of the first's backward likewise; the ends stand alone."""
    apart, beside = (
        predicted(toy(batch={"accumulation": 2}, moe={"overlap": flag})).step_time_s
        for flag in (False, True)
    )
    assert apart - beside == pytest.approx(1e-3 * (1.2 + 1.0 + 1.2 + 1.2))


# -- who is with whom -----------------------------------------------------------------------------


def test_experts_divide_data_and_then_tensor_ranks() -> None:
    """Megatron-LM's orders: tp-ep-dp for experts; 8 ranks, tensor 2."""
    cut = Mesh(tensor=2, data=4, expert=2, expert_tensor=2)
    assert [tuple(g) for g in cut.expert_groups(0)] == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert [tuple(g) for g in cut.expert_data_groups(0)] == [(0, 4), (1, 5), (2, 6), (3, 7)]
    whole = Mesh(tensor=2, data=4, expert=4, expert_tensor=1)
    assert [tuple(g) for g in whole.expert_groups(0)] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert [tuple(g) for g in whole.expert_data_groups(0)] == [(0, 4), (1, 5), (2, 6), (3, 7)]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"expert": 3}, "3 does not divide data, 4; 1, 2, 4 would"),
        ({"expert": 2, "expert_tensor": 3}, "3 is neither 1 nor tensor, 1"),
        ({"expert": 2, "order": ["expert", "tensor", "data", "pipeline"]}, "right before data"),
    ],
)
def test_what_does_not_divide_is_refused(changed: dict[str, Any], said: str) -> None:
    assert said in refusal(toy(expert=1, parallel=changed))


def test_experts_that_do_not_split_are_refused_with_what_would() -> None:
    said = refusal(toy(ranks=16, expert=16))
    assert "8 experts of e do not split over 16 ranks; 1, 2, 4, 8 would" in said


def test_a_model_without_experts_has_none_to_share_out() -> None:
    layer = {"name": "a", "parameters": 10, "forward": "1 ms", "backward": "1 ms"}
    assert "has no experts" in refusal(toy(model={"layers": [layer]}))


def test_strategies_that_do_not_know_experts_refuse() -> None:
    said = refusal(toy(strategy={"kind": "fsdp1"}))
    assert "sharing out experts is not modelled with fsdp1; 1 is accepted, or ddp, fsdp" in said


def timed(strategy: dict[str, Any], **rest: Any) -> list[tuple[str, tuple[int, ...], float]]:
    return exchanged(toy(ranks=8, expert=4, strategy=strategy, **rest))


def test_fsdp_shares_experts_among_those_that_hold_the_same() -> None:
    """8 ranks, of which 4 share out 8 experts: two ranks hold the same 2 M parameters."""
    everyone, same, tokens = tuple(range(8)), (0, 4), ("all_to_all", (0, 1, 2, 3), 2.0 * MIB)
    dense, sparse = ("all_gather", everyone, 4e6), ("all_gather", same, 8e6)
    forward = [dense, sparse, tokens, tokens]
    backward = [sparse, dense, tokens, tokens, ("reduce_scatter", same, 8e6)]
    assert timed({"kind": "fsdp"}) == [*forward, *backward, ("reduce_scatter", everyone, 4e6)]


def test_hybrid_sharding_reduces_the_shards_of_experts_among_their_replicas() -> None:
    sent = timed({"kind": "fsdp", "shard": 4})
    reduced = [x for x in sent if x[0] in ("reduce_scatter", "all_reduce") and len(x[1]) > 1]
    dense = [("reduce_scatter", (0, 1, 2, 3), 4e6), ("all_reduce", (0, 4), 1e6)]
    assert reduced == [("all_reduce", (0, 4), 8e6), *dense]
    said = refusal(toy(ranks=8, expert=4, strategy={"kind": "fsdp", "shard": 2}))
    assert "strategy.shard: 2 ranks that share the parameters do not hold every expert" in said


@pytest.mark.parametrize("engine", ["event", "vectorised"])
def test_a_step_of_sharded_experts_is_its_chain(engine: str) -> None:
    """On `ideal` an exchange takes 1 ms and S / (10 MiB/ms): the dense layer's gather, behind it
    the experts', beside the dense layer's forward; all-to-alls of 2 MiB, forward, all-to-alls,
    backward.  Gathers of backward are ahead of need, and of the reduce-scatters the dense layer's
    alone stands behind all."""
    found = predicted(toy(ranks=8, expert=4, strategy={"kind": "fsdp"}, engine=engine)).step_time_s
    dense, sparse = (1 + size / (10 * MIB) for size in (4e6, 8e6))
    forward, backward = dense + sparse + 2 * 1.2 + 2, 2 * 1.2 + 4 + 2
    assert found == pytest.approx(1e-3 * (forward + backward + dense))


@pytest.mark.parametrize(("stage", "flushed"), [(2, 1), (3, 2)])
def test_deepspeed_reduces_experts_by_themselves(stage: int, flushed: int) -> None:
    """Stage 2 has one bucket, of which each part is reduced on its own; stage 3 two."""
    sent = timed({"kind": "zero", "stage": stage})
    operation = {2: "all_reduce", 3: "reduce_scatter"}[stage]
    reduced = [x for x in sent if x[0] == operation and x[1] != (0, 1, 2, 3)]
    assert reduced == [(operation, (0, 4), 8e6), (operation, tuple(range(8)), 4e6)]
    gathered = [x[1:] for x in sent if x[0] == "all_gather"]
    assert ((0, 4), 8e6) in gathered
    assert ((0, 1, 2, 3, 4, 5, 6, 7), 4e6) in gathered
    case = case_of(toy(ranks=8, expert=4, strategy={"kind": "zero", "stage": stage}))
    ops = case.programs.asked.program(0).ops
    assert len({op.name.partition(".")[0] for op in ops if op.operation == operation}) == flushed


def test_deepspeed_does_not_run_hpz_with_experts() -> None:
    knobs = {"kind": "zero", "stage": 3, "zero_hpz_partition_size": 2}
    assert "does not run hpZ" in refusal(toy(strategy=knobs))


@pytest.mark.parametrize(
    "strategy", [{"kind": "fsdp"}, {"kind": "zero", "stage": 3, "as_shipped": False}]
)
def test_a_shard_of_experts_is_that_of_those_that_hold_the_same(strategy: dict[str, Any]) -> None:
    """fp32 with Adam's two states: 12 bytes beside gradients of 1/8 of 1 M and 1/2 of 2 M."""
    data = toy(ranks=8, expert=4, strategy=strategy, optimizer={"kind": "adam"})
    parts = predicted(data).points[0].memory.parts
    states = parts["parameters"] + parts["optimizer states"]
    assert states == pytest.approx(12 * (1e6 / 8 + 2e6 / 2))
    assert parts["gathered parameters"] >= 4 * 2e6


@pytest.mark.parametrize("kind", ["fsdp", "zero"])
def test_overlap_is_refused_where_every_pass_gathers(kind: str) -> None:
    strategy = {"kind": kind, **({"stage": 3} if kind == "zero" else {})}
    said = refusal(toy(strategy=strategy, batch={"accumulation": 2}, moe={"overlap": True}))
    assert "moe.overlap: beside the computing of another micro-batch is modelled with ddp" in said


# -- how tokens are carried -----------------------------------------------------------------------


def test_a_token_goes_to_a_node_once() -> None:
    """8 ranks in nodes of 2: a node has none of its 8 of 128 experts with C(96, 8) / C(128, 8)."""
    groups = (range(8),)
    (across, between), (inside, near) = ways(Moe(dispatcher="once_per_node"), groups, 2, 8, 128)
    assert across.share == pytest.approx(4 * (1 - comb(96, 8) / comb(128, 8)) / 8)
    assert between == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert (inside.share, near) == (1.0, ((0, 1), (2, 3), (4, 5), (6, 7)))


def test_limited_routing_bounds_what_leaves_a_node() -> None:
    (across, _), _ = ways(Moe(routing_nodes=2), (range(16),), 2, 8, 128)
    assert across.share == 2 / 8
    ranks_are_nodes = exchanged(toy(moe={"routing_nodes": 1}))[0]
    assert ranks_are_nodes == ("all_to_all", (0, 1), 1.0 * MIB)


@pytest.mark.parametrize(
    ("nodes", "chosen", "experts", "limit"),
    [(8, 8, 256, 4), (8, 8, 256, 7), (8, 6, 160, 3), (4, 8, 256, 2), (16, 8, 256, 4)],
)
def test_nodes_reached_are_those_of_a_router_held_to_some(
    nodes: int, chosen: int, experts: int, limit: int
) -> None:
    """DeepSeek-V3's router (arXiv:2412.19437, section 2.1.2) with random scores: the nodes whose
    best experts have the highest sum, and of theirs the best experts."""
    stream, tokens, each = np.random.default_rng(1), 4000, experts // nodes
    scores = stream.random((tokens, nodes, each))
    best = np.sort(scores, axis=2)[:, :, -max(chosen // limit, 1) :].sum(axis=2)
    left_out = np.argsort(best, axis=1)[:, : nodes - limit]
    np.put_along_axis(scores, left_out[:, :, None], -1.0, axis=1)
    taken = np.argsort(scores.reshape(tokens, -1), axis=1)[:, -chosen:] // each
    reached = np.mean([len(set(row)) for row in taken.tolist()])
    assert nodes_reached(nodes, chosen, experts, limit) == pytest.approx(reached, rel=0.02)


def test_a_limit_that_binds_nothing_changes_nothing() -> None:
    assert nodes_reached(8, 4, 16, limit=8) == nodes_reached(8, 4, 16)
    assert nodes_reached(8, 8, 256, limit=7) == nodes_reached(8, 8, 256)  # 5.3 in the mean
    assert nodes_reached(4, 4, 4) == 4.0  # distinct experts, one a node


def test_what_explicit_layers_send_has_no_dtype() -> None:
    assert "leave it out" in refusal(toy(moe={"dispatch_dtype": "fp8"}))


def test_advice_passes_over_what_leaves_too_few_replicas_for_experts() -> None:
    """Of pairs of changes the first may be one that cannot be made."""

    class Refusing:
        def of(self, _: object) -> object:
            raise Refused("8 does not divide data, 4", ("parallel", "expert"))

    def first(_: object) -> Any:
        yield Refusing()

    assert list(_both(None, first, first)) == []  # type: ignore[arg-type]


def test_limited_routing_needs_tokens_sent_once() -> None:
    said = refusal(toy(moe={"dispatcher": "all_to_all", "routing_nodes": 2}))
    assert "moe.routing_nodes: needs dispatcher: once_per_node" in said


# -- how even routers are -------------------------------------------------------------------------


def test_all_wait_for_the_fullest_rank() -> None:
    """Its experts take longer, as their tokens take longer to arrive."""
    even, uneven = (
        predicted(toy(moe={"imbalance": x})).step_time_s for x in ("balanced", "dropless")
    )
    load = fullest(2, 8, 0.22, 0.5)
    more = 4 * 2 * MIB / (10 * MIB) + 6
    assert uneven - even == pytest.approx(1e-3 * more * (load - 1))


def test_a_capacity_bounds_the_fullest_rank() -> None:
    uneven = {"kind": "lognormal", "spread": 2.0}
    held, free = (
        predicted(toy(moe={"imbalance": uneven, **more})).step_time_s
        for more in ({"capacity": 1.25}, {})
    )
    even = predicted(toy()).step_time_s
    assert held - even == pytest.approx(1e-3 * (4 * 2 / 10 + 6) * 0.25)
    assert free > held


def test_more_experts_on_a_rank_are_more_even_together() -> None:
    loads = [fullest(8, experts, 0.22, 0.5) for experts in (8, 64, 512)]
    assert loads == sorted(loads, reverse=True)
    assert fullest(1, 64, 0.22, 0.5) == 1.0


def test_how_even_a_router_is_widens_the_interval_by_name() -> None:
    def ends(moe: dict[str, Any] | None) -> tuple[float, float]:
        data = toy(moe=moe) if moe else toy()
        found = predicted(data | {"seed": 0}).points[0]
        return found.interval.low, found.interval.high

    dropless = predicted(toy(moe={"imbalance": "dropless"})).points[0]
    low, high = ends({"imbalance": "dropless"})
    assert low < dropless.step_time_s < high
    assert "routing (prior)" in dropless.interval.causes
    exact = predicted(toy(moe={"imbalance": "balanced"})).points[0].step_time_s
    assert ends({"imbalance": "balanced"}) == (exact, exact)


def test_routers_are_as_even_as_published_ones() -> None:
    """Wang et al., arXiv:2408.15664, table 2: the busiest expert has 1.52 and 1.72 times its share
    with an auxiliary loss, 1.04 times with a bias."""
    assert 1.52 < fullest(64, 64, SPREAD, 0.0) < 1.72
    assert Moe(imbalance="dropless").ends(64, 64)[0] == pytest.approx(1.04, abs=0.005)


@pytest.mark.parametrize(("experts", "behind"), [(128, True), (16, False)])
def test_many_small_experts_widen_the_interval_by_name(
    tmp_path: Path, experts: int, behind: bool
) -> None:
    """Upwards, and by no more than such computing alone may be."""
    config = json.loads((CONFIGS / "qwen3-30b-a3b.json").read_text())
    config |= {"num_hidden_layers": 1, "num_experts": experts}
    (tmp_path / "model.json").write_text(json.dumps(config))
    data = {
        "model": {"huggingface": "model.json", "sequence_length": 4096},
        "cluster": {"machine": "dgx-h100", "nodes": 1},
        "strategy": {"kind": "ddp"},
        "parallel": {"expert": 8},
        "batch": {"per_device": 1},
    }
    causes = predict(load(data, tmp_path, "small")).points[0].interval.causes
    assert ("small experts (prior)" in causes) == behind
    low, high = causes.get("small experts (prior)", (1.0, 1.1))
    assert low == 1.0 < high < shipped("training")["experts.slow"].value


@pytest.mark.parametrize(
    ("moe", "said"),
    [
        ({"imbalance": "even"}, "moe.imbalance: 'even' is not known; balanced, dropless"),
        ({"capacity": 0.5}, "moe.capacity: 0.5 is not in 1"),
        ({"imbalance": "balanced", "capacity": 1.25}, "moe.capacity: balanced experts never have"),
        ({"overlap": True}, "moe.overlap: all-to-alls run beside the computing of another"),
    ],
)
def test_bad_routing_is_refused(moe: dict[str, Any], said: str) -> None:
    assert said in refusal(toy(moe=moe))


def test_routing_of_a_model_without_experts_is_refused() -> None:
    dense = {"layers": [{"name": "a", "parameters": 8, "forward": "1 ms", "backward": "2 ms"}]}
    data = {**toy(moe={"imbalance": "dropless"}), "model": dense, "parallel": {}}
    assert "moe: explicit layers has no experts; leave it out" in refusal(data)


# -- recomputation --------------------------------------------------------------------------------


def block(folder: Path, recompute: str) -> Case:
    """One block of Qwen3-30B-A3B on a node, tokens sent among four ranks."""
    config = json.loads((CONFIGS / "qwen3-30b-a3b.json").read_text()) | {"num_hidden_layers": 1}
    (folder / "model.json").write_text(json.dumps(config))
    data = {
        "model": {"huggingface": "model.json", "sequence_length": 1024},
        "cluster": {"machine": "dgx-h100", "ranks": 4},
        "parallel": {"expert": 4},
        "strategy": {"kind": "megatron"},
        "precision": {"parameters": "bf16", "compute": "bf16"},
        "recompute": recompute,
    }
    return Case(load(data, folder, "block").points[0], folder)


def test_experts_computed_again_are_sent_their_tokens_again(tmp_path: Path) -> None:
    """NVIDIA/Megatron-LM `MoELayer.forward` is checkpointed whole, with dispatch and combine: two
    all-to-alls of forward, two more in backward, and its own two."""
    ops = block(tmp_path, "moe").programs.asked.program(0).ops
    sent = [op for op in ops if op.operation == "all_to_all"]
    assert sum(op.repeats for op in sent) == 6
    assert {op.bytes for op in sent} == {2.0 * 1024 * 2048 * 8}


def test_only_halves_with_experts_are_computed_again(tmp_path: Path) -> None:
    """Backward takes their forward longer, that of attention and of the head stays."""
    plain, again = (block(tmp_path, x) for x in ("none", "moe"))
    times = zip(again.job(1).times, plain.job(1).times, again.model.layers, strict=True)
    more = {layer.name.rpartition(".")[2]: (a, b) for a, b, layer in times}
    for name, (own, before) in more.items():
        half = name in ("router", "experts")
        assert own.forward == before.forward
        assert own.backward == pytest.approx(before.backward + half * before.forward)
    assert {"router", "experts", "attention"} <= set(more)


def test_halves_with_experts_keep_their_input(tmp_path: Path) -> None:
    """Of its half 2 bytes for each of tokens x width; what attention keeps stays, and attention's
    backward has none of what was computed again for experts."""
    model = block(tmp_path, "moe").model
    layers = model.layers
    kept = sum(kept_bytes(x, "bf16", "moe") for x in layers if x.activations_moe is not None)
    assert kept == 2.0 * 1024 * 2048
    rest = [x for x in layers if x.activations_moe is None]
    assert all(kept_bytes(x, "bf16", "moe") == kept_bytes(x, "bf16", "none") for x in rest)
    found = footprints(model, 1.0, "bf16", "moe", eager=False)
    attention = next(i for i, x in enumerate(layers) if x.name.endswith("attention"))
    experts = next(i for i, x in enumerate(layers) if x.experts)
    assert found[attention].rebuilt == 0.0 < found[experts].rebuilt


def test_without_experts_nothing_is_computed_again_and_it_is_said() -> None:
    dense = {"layers": [{"name": "a", "parameters": 8, "forward": "1 ms", "backward": "2 ms"}]}
    case = case_of({**toy(recompute="moe"), "model": dense, "parallel": {}})
    assert any("recompute: moe changes nothing" in text for text in unused(case))


# -- torch ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", RECORDED["worlds"], ids=lambda w: f"{w['ranks']}-{w['expert']}")
def test_collectives_are_those_of_torch(world: dict[str, Any]) -> None:
    """Two blocks of a dense layer and experts, tokens sent by torch's own all-to-alls, gradients
    reduced by DDP over all ranks and over those that hold the same experts."""
    shape = RECORDED["shape"]
    width, experts = shape["width"], shape["experts"]
    layers: list[dict[str, Any]] = []
    for k in range(shape["blocks"]):
        dense = {"name": f"a{k}", "parameters": [width * width]}
        own = {"name": f"e{k}", "parameters": [experts * width * width], "experts": experts}
        elements = shape["tokens"] * width
        sent = {"experts_per_token": shape["chosen"], "activation": f"{elements * 4} B"}
        times = {"forward": "1 ms", "backward": "1 ms"}
        layers += [dense | times, own | times | sent]
    data = toy(ranks=world["ranks"], expert=world["expert"], model={"layers": layers})
    found = [[operation, list(ranks), size] for operation, ranks, size in exchanged(data)]
    assert found == world["sent"]


# -- sharded experts ------------------------------------------------------------------------------

SHARDED = json.loads((Path(__file__).parent / "data/experts/fsdp.json").read_text())


def sharded(world: dict[str, Any]) -> list[list[Any]]:
    """What dpsim says of a world of `validation/record_expert_shards.py`, in its words."""
    shape, ranks, expert = SHARDED["shape"], world["ranks"], world["expert"]
    width, experts, many = shape["width"], shape["experts"], world.get("accumulation", 1)
    square = Tensor("weight", (width, width))
    sent = float(shape["tokens"] * width)
    layers = [Layer(name="head", tensors=(square,))]
    for k in range(shape["blocks"]):
        unit = f"blocks.{k}"
        layers.append(Layer(name=f"{unit}.dense", tensors=(square,), unit=unit))
        cubic = (Tensor("experts", (experts // expert, width, width)),)
        layers.append(
            Layer(name=f"{unit}.experts", tensors=cubic, unit=unit, routed=sent,
                  experts=experts // expert, chosen=shape["chosen"])
        )  # fmt: skip
    layers.append(Layer(name="tail", tensors=(square,)))
    mesh = Mesh(data=ranks, expert=expert)
    groups = ways(Moe(), mesh.expert_groups(0), None, shape["chosen"], experts)
    layout = Layout(mesh, OneFOneB(), (tuple(range(len(layers))),), routes=(groups,))
    job = Job(
        Model(name="recorded", layers=tuple(layers)), ranks,
        (LayerTime(1.0, 2.0, "compute"),) * len(layers), many, 1,
        Precision(compute=world.get("compute", "fp32"), reduce=world.get("reduce")),
        Optimizer(kind="none"), expert_ranks=mesh.expert_data,
    )  # fmt: skip
    knobs = {key: world[key] for key in ("shard", "reshard_after_forward") if key in world}
    found = cast(layout, Fsdp(**knobs), (1,) * ranks, lambda stage, samples: job)
    return [
        [op.operation, list(found.peers(0, op.group)), op.bytes]
        for op in found.program(0).ops
        for _ in range(op.repeats)
        if op.exchanges and not op.control and len(found.peers(0, op.group)) > 1
    ]


@pytest.mark.parametrize(
    "world", SHARDED["worlds"], ids=lambda w: "-".join(list(w)[2:-1]) or "plain"
)
def test_sharded_experts_exchange_what_torch_does_in_its_order(world: dict[str, Any]) -> None:
    """FSDP2 as torchtitan wraps blocks with experts: over all ranks what is outside experts, over
    those that hold the same ones the experts, hybrid sharding and accumulation too."""
    assert sharded(world) == world["sent"]


@pytest.mark.parametrize("stage", [1, 2])
def test_zero_reduces_and_gathers_experts_and_all_else_in_turn(stage: int) -> None:
    """Without overlap_comm: 14.2 ms of compute and tokens; 4 MB of all ranks, 8 MB of experts."""
    dense = {"name": "dense", "parameters": 10**6, "forward": "1 ms", "backward": "2 ms"}
    experts = {"name": "experts", "parameters": 8 * 10**6, "experts": 8, "experts_per_token": 3}
    experts |= {"forward": "2 ms", "backward": "4 ms", "activation": "1 MiB"}
    data = {
        "model": {"dtype": "fp32", "layers": [dense, experts]},
        "cluster": {"ranks": 8},
        "parallel": {"expert": 4},
        "collective": {"backend": "ideal", "latency": "1 ms", "bandwidth": "10 MiB/ms"},
        "strategy": {"kind": "zero", "stage": stage},
        "optimizer": {"kind": "none"},
    }
    each = [1e-3 + size / (10 * 2**20 * 1e3) for size in (4e6, 8e6)]
    (point,) = dpsim.predict(data).computed
    assert point.step_time_s == pytest.approx(14.2e-3 + 2 * sum(each), rel=1e-9)


def test_groups_that_full_nodes_cut_are_told_with_what_keeps_them_whole(tmp_path: Path) -> None:
    """72 is no multiple of 32; of two racks with 64 each every group is in one."""
    config = json.loads((CONFIGS / "qwen3-30b-a3b.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))
    data = {
        "model": {"huggingface": "model.json", "sequence_length": 512},
        "strategy": {"kind": "ddp"},
        "parallel": {"expert": 32},
        "batch": {"per_device": 1},
    }
    filled = {"machine": "gb300-nvl72", "ranks": 128}
    for cluster in (filled, {"machine": "gb300-nvl72", "nodes": 2, "gpus_per_node": 64}):
        said = predict(load(data | {"cluster": cluster}, tmp_path, "racks")).warnings
        cut = [text for text in said if "lie across nodes" in text]
        assert bool(cut) == (cluster is filled)
        assert all("cluster.nodes: 2 with gpus_per_node: 64" in text for text in cut)
        left = [text for text in said if "leave 56 to the last" in text]
        assert bool(left) == (cluster is filled)
        assert all("cluster.nodes: 2 with gpus_per_node: 64 gives all" in text for text in left)
