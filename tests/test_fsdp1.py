"""FSDP1 gathers, blocks and reduces as torch does.

Order and size of its collectives are held against torch itself in tests/test_torch_orders.py; here
stand the rules, on toys of equal units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.distributed.fsdp.wrap import _recursive_wrap, size_based_auto_wrap_policy

from dpsim.backends.ideal import Ideal
from dpsim.backends.ideal_ring import IdealRing
from dpsim.compile.program import Cast, Program
from dpsim.compile.strategies import Job
from dpsim.compile.strategies._wrap_policy import by_size
from dpsim.compile.strategies.fsdp import Fsdp
from dpsim.compile.strategies.fsdp1 import LEAST_WRAPPED, Fsdp1
from dpsim.compile.timeline import Step
from dpsim.core.record import Refused, build
from dpsim.models import Layer, Model, Tensor
from dpsim.models.compute import layer_times
from dpsim.models.huggingface import read_config
from dpsim.models.precision import Optimizer, Precision
from dpsim.play import Costs, Play, event, vectorised


def toy(
    forward: float, backward: float, *, units: int = 3, root: str = "", count: int = 1000
) -> Model:
    """Equal units; `root` may hold a layer before ("h") and after ("t") them."""
    names = [*("" for _ in root if _ == "h"), *(f"u{i}" for i in range(units))]
    names += ["" for _ in root if _ == "t"]
    layers = tuple(
        Layer(name=f"l{i}", tensors=(Tensor("w", (count,)),), forward=forward, backward=backward,
              unit=unit)
        for i, unit in enumerate(names)
    )  # fmt: skip
    return Model(name="toy", layers=layers)


def job_of(model: Model, *, ranks: int = 2, micro_batches: int = 1, **rest: Any) -> Job:
    times = layer_times(model, None, "fp32", 1, 1, "none")
    fields = {"precision": Precision(), "control": False, "optimizer": Optimizer(kind="none")}
    return Job(model, ranks, times, micro_batches, 1, **{**fields, **rest})


def played(
    program: Program, latency: float, *, steps: int = 1, groups: Any = None, ranks: int = 2
) -> Step:
    world = {"world": (tuple(range(ranks)),), **(groups or {})}
    cast = Cast((program,), (0,) * ranks, world)
    costs = Costs(Ideal(latency=latency), None)
    play = Play(lambda k: cast, costs, steps, 0, lambda k: np.ones(ranks))
    a, b = event.play(play), vectorised.play(play)
    assert a.durations == pytest.approx(b.durations, rel=1e-9)
    return a.last


def order(program: Program) -> str:
    return " ".join(op.name for op in program.ops if op.operation)


# -- order ------------------------------------------------------------------------------------

ORDERS = {
    "BACKWARD_PRE": ({}, "AG0 AG1 AG2 AG2' AG1' RS2 AG0' RS1 RS0"),
    "BACKWARD_POST": (
        {"backward_prefetch": "BACKWARD_POST"}, "AG0 AG1 AG2 AG2' AG1' RS2 AG0' RS1 RS0",
    ),
    "no prefetch": (
        {"backward_prefetch": "none"}, "AG0 AG1 AG2 AG2' RS2 AG1' RS1 AG0' RS0",
    ),
    "SHARD_GRAD_OP": ({"sharding_strategy": "SHARD_GRAD_OP"}, "AG0 AG1 AG2 RS2 RS1 RS0"),
    "NO_SHARD": ({"sharding_strategy": "NO_SHARD"}, "AR2 AR1 AR0"),
    "HYBRID_SHARD": (
        {"sharding_strategy": "HYBRID_SHARD", "shard": 2},
        "AG0 AG1 AG2 AG2' AG1' RS2 AR2 AG0' RS1 AR1 RS0 AR0",
    ),
    "_HYBRID_SHARD_ZERO2": (
        {"sharding_strategy": "_HYBRID_SHARD_ZERO2", "shard": 2},
        "AG0 AG1 AG2 RS2 AR2 RS1 AR1 RS0 AR0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERS)
def test_collectives_are_issued_in_torchs_order(name: str) -> None:
    knobs, expected = ORDERS[name]
    ranks = 4 if "shard" in knobs else 2
    assert order(Fsdp1(**knobs).program(job_of(toy(1, 2), ranks=ranks), None)) == expected


def test_the_root_is_gathered_first_kept_and_reduced_last() -> None:
    program = Fsdp1().program(job_of(toy(1, 2, units=2, root="t")), None)
    assert order(program) == "AG0 AG1 AG2 AG2' AG1' RS2 RS1 RS0"


def test_forward_prefetch_changes_nothing_in_the_first_forward() -> None:
    job = job_of(toy(1, 2))
    plain, ahead = Fsdp1(), Fsdp1(forward_prefetch=True)
    assert ahead.program(job, 1) == plain.program(job, 1)
    assert ahead.program(job, 2) != plain.program(job, 2)


def test_forward_prefetch_delays_each_reduction_by_a_unit() -> None:
    """Parameters gathered ahead become views of the flat one before the unit below computes, and
    autograd takes the youngest first: that unit's backward, then the older views'."""
    program = Fsdp1(forward_prefetch=True).program(job_of(toy(1, 2, units=4)), None)
    names = [op.name for op in program.ops]
    for above, below in ((3, 2), (2, 1), (1, 0)):
        assert names.index(f"B{above}") < names.index(f"B{below}") < names.index(f"RS{above}")
    plain = [op.name for op in Fsdp1().program(job_of(toy(1, 2, units=4)), None).ops]
    assert plain.index("RS3") < plain.index("B2")


def test_no_sync_gathers_again_and_reduces_once() -> None:
    job = job_of(toy(1, 2), micro_batches=2)
    assert order(Fsdp1().program(job, None)) == (
        "AG0.0 AG1.0 AG2.0 AG2.0' AG1.0' AG0.0' "
        "AG0.1 AG1.1 AG2.1 AG2.1' AG1.1' RS2.1 AG0.1' RS1.1 RS0.1"
    )
    kept = Fsdp1(sharding_strategy="SHARD_GRAD_OP")
    assert order(kept.program(job, None)) == "AG0.0 AG1.0 AG2.0 RS2.1 RS1.1 RS0.1"
    each = replace(kept, no_sync=False)
    assert order(each.program(job, None)) == (
        "AG0.0 AG1.0 AG2.0 RS2.0 RS1.0 RS0.0 AG0.1 AG1.1 AG2.1 RS2.1 RS1.1 RS0.1"
    )


# -- the rate limiter -------------------------------------------------------------------------


def starts(knobs: Fsdp1, iteration: int | None, *, units: int = 6) -> dict[str, Any]:
    step = played(knobs.program(job_of(toy(10, 20, units=units)), iteration), 1.0)
    return {span.name: (span.start, span.end) for span in step.spans((0,))}


def test_in_the_first_step_a_gather_waits_until_the_unit_two_before_is_freed() -> None:
    """AG_{i+1} starts when F_{i-1} has ended, where FSDP2's may when it has begun."""
    found = starts(Fsdp1(), 1)
    assert (found["AG0"][0], found["AG1"][0]) == (0, 1)
    for i in range(2, 6):
        assert found[f"AG{i}"][0] == pytest.approx(found[f"F{i - 2}"][1])
    second = played(Fsdp().program(job_of(toy(10, 20, units=6)), 1), 1.0)
    later = {span.name: span for span in second.spans((0,))}
    for i in range(2, 6):
        free = max(later[f"AG{i - 1}"].end, later[f"F{i - 2}"].start)
        assert later[f"AG{i}"].start == pytest.approx(free)


def test_without_the_limiter_all_gathers_of_forward_are_issued_at_once() -> None:
    found = starts(Fsdp1(limit_all_gathers=False), None)
    assert [found[f"AG{i}"][0] for i in range(6)] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("units", [1, 2, 3, 6, 12])
def test_events_left_over_let_later_steps_gather_a_unit_further_ahead(units: int) -> None:
    """Every unit is freed twice and unsharded twice in a step, but the first unsharding finds too
    few events to take, so some are left; the first gathers of the next step take those."""
    job = job_of(toy(10, 20, units=units))
    first, _ = Fsdp1().played(job, 1)
    settled, _ = Fsdp1().played(job, None)
    assert len(settled.events) == len(first.events) == min(2 * units, 3)
    if units >= 6:
        found = starts(Fsdp1(), None, units=units)
        for i in range(3, units):
            assert found[f"AG{i}"][0] == pytest.approx(found[f"F{i - 3}"][1])


# -- times ------------------------------------------------------------------------------------


def test_the_overlapped_timeline() -> None:
    """AG = 2, F = 3, B = 6, RS = 2, one communicator; in the settled step no event is awaited in
    forward.  AG2' follows AG2 at once: nothing makes it wait for the end of forward."""
    step = played(Fsdp1().program(job_of(toy(3, 6)), None), 2.0)
    found = {span.name: (span.start, span.end) for span in step.spans((0,))}
    expected = {
        "AG0": (0, 2), "AG1": (2, 4), "AG2": (4, 6), "F0": (2, 5), "F1": (5, 8), "F2": (8, 11),
        "AG2'": (6, 8), "AG1'": (8, 10), "B2": (11, 17), "RS2": (17, 19), "AG0'": (19, 21),
        "B1": (17, 23), "RS1": (23, 25), "B0": (23, 29), "RS0": (29, 31),
    }  # fmt: skip
    for name, interval in expected.items():
        assert found[name] == pytest.approx(interval), name
    assert step.duration == pytest.approx(31)


def test_gathers_that_are_not_prefetched_queue_behind_the_reduction_above() -> None:
    """A host that runs ahead loses nothing by prefetching after backward instead of before it; with
    no prefetch every unit but the last waits for a reduce-scatter and its own gather."""
    job = job_of(toy(3, 6, units=5))
    pre = played(Fsdp1().program(job, None), 2.0).duration
    post = played(Fsdp1(backward_prefetch="BACKWARD_POST").program(job, None), 2.0).duration
    none = played(Fsdp1(backward_prefetch="none").program(job, None), 2.0).duration
    assert pre == post == pytest.approx(2 + 5 * 9 + 2)
    assert none == pytest.approx(pre + 4 * (2 + 2))


def test_the_first_gather_of_a_step_waits_for_the_optimizer() -> None:
    job = job_of(toy(3, 6), update=1e-3)
    step = played(Fsdp1().program(job, None), 2.0, steps=3)
    assert step.duration == pytest.approx(31 + 1.5)


def test_replicas_are_reduced_on_a_communicator_of_their_own() -> None:
    knobs = Fsdp1(sharding_strategy="HYBRID_SHARD", shard=2)
    program = knobs.program(job_of(toy(3, 6), ranks=4), None)
    step = played(program, 2.0, groups=knobs.groups(4), ranks=4)
    found = {span.name: (span.start, span.end) for span in step.spans((0,))}
    assert found["AR2"] == pytest.approx((19, 21))  # beside AG0'
    assert found["AG0'"] == pytest.approx((19, 21))
    assert step.duration == pytest.approx(33)


# -- bytes ------------------------------------------------------------------------------------


def ring_bytes(strategy: Any, job: Job) -> float:
    ring = IdealRing(bandwidth=1e9)
    groups = {"world": (tuple(range(job.ranks)),), **strategy.groups(job.ranks)}
    return sum(
        ring.plan(op.operation, groups[op.group][0], op.bytes - op.padding, None).sent
        for op in strategy.program(job, None).ops
        if op.operation
    )


@pytest.mark.parametrize("ranks", range(1, 65))
def test_a_rank_of_a_ring_sends_the_published_multiples(ranks: int) -> None:
    model = toy(1, 2)
    size, job = 4.0 * model.parameters, job_of(model, ranks=ranks, control=True)
    share = (ranks - 1) / ranks
    multiples = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 2}
    for strategy, multiple in multiples.items():
        sent = ring_bytes(Fsdp1(sharding_strategy=strategy), job)  # type: ignore[arg-type]
        assert sent == pytest.approx(multiple * size * share, rel=1e-12)
    for s in (s for s in range(2, ranks + 1) if ranks % s == 0):
        r = ranks // s
        between = 2 * (size / s) * (r - 1) / r
        for strategy, multiple in (("HYBRID_SHARD", 3), ("_HYBRID_SHARD_ZERO2", 2)):
            knobs = Fsdp1(sharding_strategy=strategy, shard=s)  # type: ignore[arg-type]
            expected = multiple * size * (s - 1) / s + between
            assert ring_bytes(knobs, job) == pytest.approx(expected, rel=1e-12)


def sizes(knobs: Fsdp1, shapes: Sequence[tuple[int, ...]], **rest: Any) -> set[tuple[float, float]]:
    """(bytes, padding) of the collectives of one unit with these tensors."""
    tensors = tuple(Tensor(f"t{i}", shape) for i, shape in enumerate(shapes))
    layer = Layer(name="l", tensors=tensors, forward=1.0, backward=1.0)
    job = job_of(Model(name="m", layers=(layer,)), control=True, **rest)
    return {(op.bytes, op.padding) for op in knobs.program(job, None).ops if op.operation}


def test_a_flat_parameter_is_padded_to_the_ranks_that_share_it() -> None:
    assert sizes(Fsdp1(), [(5, 3), (2,)], ranks=4) == {(20 * 4, 3 * 4)}
    # aligned to 4 fp32 elements: 15, 1 of padding, 2; then to the 4 ranks
    assert sizes(Fsdp1(use_orig_params=True), [(5, 3), (2,)], ranks=4) == {(20 * 4, 3 * 4)}
    # to 8 bf16 elements: 15, 1, 2, to 20
    narrow = Precision(compute="bf16")
    assert sizes(Fsdp1(use_orig_params=True), [(9,), (2,)], ranks=2, precision=narrow) == {
        (18 * 2, 7 * 2)
    }


@pytest.mark.parametrize(
    ("reduce", "expected"), [(None, 2000.0), ("fp32", 4000.0), ("bf16", 2000.0)]
)
def test_gradients_travel_in_the_compute_dtype_unless_said(reduce: Any, expected: float) -> None:
    job = job_of(toy(1, 2), precision=Precision(compute="bf16", reduce=reduce))
    ops = Fsdp1().program(job, None).ops
    assert {op.bytes for op in ops if op.operation == "all_gather"} == {2000.0}
    assert {op.bytes for op in ops if op.operation == "reduce_scatter"} == {expected}


# -- memory -----------------------------------------------------------------------------------


def test_memory() -> None:
    """16 bytes a parameter over the ranks that share; gathered at once: two units as the first
    step begins, in the settled one three."""
    precision = Precision(parameters="bf16", compute="bf16")
    job = job_of(toy(1, 2, units=6), ranks=8, precision=precision, optimizer=Optimizer())
    states = ("parameters", "gradients", "optimizer states")

    def kept(**knobs: Any) -> dict[str, float]:
        return Fsdp1(**knobs).memory(job)

    for knobs, shards in (
        ({}, 8), ({"sharding_strategy": "SHARD_GRAD_OP"}, 8),
        ({"sharding_strategy": "HYBRID_SHARD", "shard": 2}, 2),
        ({"sharding_strategy": "NO_SHARD"}, 1),
    ):  # fmt: skip
        parts = kept(**knobs)  # type: ignore[arg-type]
        assert sum(parts[n] for n in states) == pytest.approx(16 * 6000 / shards)
    assert kept()["gathered parameters"] == 3 * 2000
    assert kept(limit_all_gathers=False)["gathered parameters"] == 6 * 2000
    assert kept(sharding_strategy="SHARD_GRAD_OP")["gathered parameters"] == 6 * 2000
    assert kept()["unsharded gradients"] == 2 * 2000
    assert "gathered parameters" not in kept(sharding_strategy="NO_SHARD")
    job = replace(job, micro_batches=4)
    assert kept()["unsharded gradients"] == 6 * 2000
    assert kept(no_sync=False)["unsharded gradients"] == 2 * 2000


def test_gradients_that_wait_are_in_what_was_gathered() -> None:
    """Six units of 1,000 parameters in bf16 without synchronisation: 2 bytes each, whatever they
    are reduced in, as they stay `.grad` of the flat parameter; FSDP2 keeps them in fp32 then."""
    precision = Precision(parameters="fp32", compute="bf16", reduce="fp32")
    model = toy(1, 2, units=6)
    job = job_of(model, ranks=8, precision=precision, optimizer=Optimizer(), micro_batches=4)
    kept = {
        "fsdp1": Fsdp1().held(job).always["unsharded gradients"],
        "fsdp": Fsdp().held(job).always["unsharded gradients"],
    }
    assert kept == {"fsdp1": 2 * 6000, "fsdp": 4 * 6000}


def test_longer_models_never_keep_less() -> None:
    found = [
        Fsdp1().memory(job_of(toy(1, 2, units=n), ranks=2))["gathered parameters"]
        for n in range(1, 12)
    ]
    assert all(a <= b for a, b in pairwise(found))
    assert found[-1] == found[5]


# -- what is refused --------------------------------------------------------------------------


def mixed() -> Model:
    layers = tuple(
        Layer(name=f"l{i}", tensors=(Tensor("w", (4,)),), forward=1.0, backward=1.0, unit="u",
              dtype=dtype)
        for i, dtype in enumerate(("fp32", "bf16"))
    )  # fmt: skip
    return Model(name="mixed", layers=layers)


REFUSED: dict[str, tuple[Any, str]] = {
    "hybrid without its size": (lambda: Fsdp1(sharding_strategy="HYBRID_SHARD"), "is missing"),
    "a size without hybrid": (lambda: Fsdp1(shard=8), "shards over all ranks or none"),
    "a shard of one rank": (
        lambda: Fsdp1(sharding_strategy="HYBRID_SHARD", shard=1), "is not in 2"
    ),
    "shards that do not divide": (
        lambda: Fsdp1(sharding_strategy="HYBRID_SHARD", shard=3).groups(8), "groups of 3"
    ),
    "two dtypes in a unit": (lambda: Fsdp1().program(job_of(mixed()), None), "one dtype"),
    "DDP's unused parameters": (
        lambda: build(Fsdp1, {"find_unused_parameters": True}), "unknown key"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_go_together_is_refused_with_the_reason(what: str) -> None:
    make, reason = REFUSED[what]
    with pytest.raises((Refused, ValidationError), match=reason):
        make()


# -- the policy that wraps by size ----------------------------------------------------------------


def language() -> Model:
    """Llama of two blocks of 2,592 (attention 1,024, products 1,536) and tables of 3,200."""
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16,
        "num_hidden_layers": 2, "num_attention_heads": 1, "num_key_value_heads": 1,
        "intermediate_size": 32, "vocab_size": 200, "tie_word_embeddings": False,
    }  # fmt: skip
    return read_config(config, sequence_length=8, name="small")


def test_modules_large_enough_are_units_and_the_root_holds_the_rest() -> None:
    model = language()
    block = sum(layer.parameters for layer in model.layers if layer.unit == "layers.0")
    names = [
        [[model.layers[i].name for i in unit.layers] for unit in by_size(model, least)]
        for least in (block, 10**6)
    ]
    ends = [["embed_tokens"], ["layers.0.attention", "layers.0.mlp"]]
    assert names[0] == [["norm"], *ends, ["layers.1.attention", "layers.1.mlp"], ["lm_head"]]
    assert names[1] == [[layer.name for layer in model.layers]]


def _nested() -> nn.Module:
    """Modules nested as in `LlamaForCausalLM`, of the sizes of `language`, without storage."""
    with torch.device("meta"):
        root, inner = nn.Module(), nn.Module()
        inner.embed_tokens, inner.layers = nn.Embedding(200, 16), nn.ModuleList()
        for _ in range(2):
            block = nn.Module()
            block.self_attn = nn.Linear(16, 64, bias=False)
            block.mlp = nn.Linear(16, 96, bias=False)
            block.norms = nn.Embedding(2, 16)
            inner.layers.append(block)
        inner.norm, root.model = nn.RMSNorm(16), inner
        root.lm_head = nn.Linear(16, 200, bias=False)
    return root


@pytest.mark.parametrize("least", [2592, 3201, 4000, 8400, 8401, 10**6])
def test_the_model_inside_the_root_is_wrapped_as_torch_does(least: int) -> None:
    """Parameters of each unit and of the root: torch's policy on the same modules, on which no unit
    stands around another."""

    class Wrapper(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            taken.append(sum(p.numel() for p in module.parameters()))

    taken: list[int] = []
    net = _nested()
    policy = partial(size_based_auto_wrap_policy, min_num_params=least)
    _recursive_wrap(net, policy, Wrapper, set(), set(), only_wrap_children=True)
    whole = sum(p.numel() for p in _nested().parameters())
    model = language()
    units = by_size(model, least)
    sizes = [sum(model.layers[i].parameters for i in unit.layers) for unit in units]
    assert sorted(sizes) == sorted(filter(None, [*taken, whole - sum(taken)]))


@pytest.mark.parametrize(
    ("least", "said"), [(1500, "wraps a part of layers.0.mlp"), (200, "of layers.0.attention")]
)
def test_a_size_that_wraps_a_part_of_a_block_is_refused(least: int, said: str) -> None:
    model = language()
    with pytest.raises(Refused, match=f"{said}.* wraps blocks whole"):
        by_size(model, least)


def test_a_size_needs_its_policy() -> None:
    with pytest.raises(Refused, match="needs wrap: size"):
        Fsdp1(min_num_params=1000)


@pytest.mark.parametrize(
    ("family", "inside", "root"),
    [
        ({"model_type": "bert", "vocab_size": 30522, "max_position_embeddings": 512},
         109_482_240, 1_538),
        ({"model_type": "roberta", "vocab_size": 50265, "max_position_embeddings": 512},
         124_054_272, 592_130),
    ],
)  # fmt: skip
def test_an_encoder_stands_beside_its_classifier(
    family: dict[str, Any], inside: int, root: int
) -> None:
    """What torch 2.13's `_recursive_wrap` makes of transformers 5.23's
    ...ForSequenceClassification with its default of 100 million parameters."""
    sizes = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12}
    config = {**family, **sizes, "num_attention_heads": 12, "type_vocab_size": 2}
    model = read_config(config, sequence_length=128, name="m", head="classification")
    units = by_size(model, LEAST_WRAPPED)
    found = {unit.root: sum(model.layers[i].parameters for i in unit.layers) for unit in units}
    assert found == {False: inside, True: root}


def test_a_table_that_a_head_of_masked_words_uses_too_is_not_cut_off() -> None:
    sizes = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12}
    config = {"model_type": "bert", "vocab_size": 30522, "max_position_embeddings": 512, **sizes,
              "num_attention_heads": 12, "type_vocab_size": 2}  # fmt: skip
    model = read_config(config, sequence_length=128, name="m", head="mlm")
    with pytest.raises(Refused, match=r"cls\.decoder uses the table of embeddings"):
        by_size(model, LEAST_WRAPPED)
