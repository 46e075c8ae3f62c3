"""Megatron's DDP and distributed optimizer: buckets, padding, timelines, volumes, memory."""

from __future__ import annotations

from dataclasses import replace
from math import lcm
from typing import Any

import numpy as np
import pytest
from toys import collectives, job_of, play_of, sent, spans, volume

from dpsim.compile.job import gradients_of
from dpsim.compile.strategies.megatron import Megatron, fill
from dpsim.core.record import Refused, build
from dpsim.describe.scenario import read
from dpsim.play import event, vectorised
from dpsim.predict.prediction import predict

DISTRIBUTED = {"use_distributed_optimizer": True}
OVERLAP = {"overlap_grad_reduce": True}
ALL = DISTRIBUTED | OVERLAP | {"overlap_param_gather": True}


def knobs(**given: Any) -> Megatron:
    return build(Megatron, given)


# -- buckets ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "elements"), [(1, 40_000_000), (8, 40_000_000), (40, 40_000_000),
                            (41, 41_000_000), (64, 64_000_000), (1024, 1_024_000_000)],
)  # fmt: skip
def test_a_bucket_holds_40_million_elements_or_a_million_a_rank(ranks: int, elements: int) -> None:
    assert knobs(**OVERLAP).capacity(ranks) == elements


def test_without_overlap_there_is_one_bucket() -> None:
    assert knobs().capacity(8) is None
    assert knobs(bucket_size=10).capacity(8) is None
    job = job_of(8)
    assert len(knobs(bucket_size=10).buckets(job, gradients_of(job))) == 1


def test_buckets_are_filled_in_reverse_order_until_they_reach_the_size() -> None:
    job = job_of(8, sizes=(5, 4, 6, 3, 7))
    found = knobs(**OVERLAP, bucket_size=10).buckets(job, gradients_of(job))
    assert [bucket.gradients for bucket in found] == [(4, 3), (2, 1), (0,)]
    assert [bucket.elements for bucket in found] == [10, 10, 5]


def test_every_dtype_has_a_buffer_of_its_own() -> None:
    job = job_of(8, sizes=(5, 4, 6, 3), dtypes=("fp32", "bf16", "fp32", "bf16"))
    found = knobs().buckets(job, gradients_of(job))
    assert [(b.gradients, b.dtype) for b in found] == [((2, 0), "fp32"), ((3, 1), "bf16")]


# -- padding ----------------------------------------------------------------------------------


def test_parameters_start_at_64_elements_and_buckets_end_at_128() -> None:
    (bucket,) = fill([(0, 100), (1, 100)], None, (64, 128), "fp32")
    assert bucket.elements == 256  # 100 -> 128, + 100 -> 228 -> 256
    assert bucket.padding == 56
    first, second = fill([(0, 130), (1, 1)], 130, (64, 128), "fp32")
    assert (first.elements, second.elements) == (256, 128)


@pytest.mark.parametrize("high", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 48, 100])
def test_shards_are_even_and_padding_has_its_own_key(ranks: int, high: bool) -> None:
    strategy = knobs(**DISTRIBUTED, **OVERLAP, bucket_size=1_000_001,
                     pad_buckets_for_high_nccl_busbw=high)  # fmt: skip
    job = job_of(ranks, sizes=(999_999, 123_457, 77, 1_000_003), control=True)
    buckets = strategy.buckets(job, gradients_of(job))
    unit = lcm(ranks, 128, 2**16 if high else 1)
    assert all(bucket.elements % unit == 0 for bucket in buckets)
    padding = sum(bucket.padding for bucket in buckets)
    kept = sum(bucket.elements for bucket in buckets) - padding
    assert kept == job.model.parameters
    assert 0 < padding < len(buckets) * unit + 4 * 64
    found = sent(strategy, job)
    once = 4 * (ranks - 1) / ranks
    assert found["payload"] == pytest.approx(2 * once * job.model.parameters, rel=1e-12)
    assert found["padding"] == pytest.approx(2 * once * padding, rel=1e-9)


def test_nothing_is_padded_without_the_distributed_optimizer() -> None:
    assert sent(knobs(), job_of(3, sizes=(101, 77), control=True))["padding"] == 0


# -- volumes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("micro_batches", [1, 4, 40])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"all_reduce": 1}),
        (OVERLAP, {"all_reduce": 1}),
        (DISTRIBUTED, {"reduce_scatter": 1, "all_gather": 1}),
        (ALL, {"reduce_scatter": 1, "all_gather": 1}),
    ],
)
def test_gradients_are_exchanged_in_the_last_micro_batch_only(
    given: dict[str, Any], expected: dict[str, float], micro_batches: int
) -> None:
    job = job_of(8, micro_batches=micro_batches)
    found = volume(knobs(**given).program(job, None))
    assert found == {name: 4 * n * job.model.parameters for name, n in expected.items()}


def test_gradients_in_fp32_are_twice_as_wide_as_parameters_in_bf16() -> None:
    job = job_of(8, dtype="bf16")
    psi = job.model.parameters
    narrow = volume(knobs(**DISTRIBUTED, grad_reduce_in_fp32=False).program(job, None))
    wide = volume(knobs(**DISTRIBUTED, grad_reduce_in_fp32=True).program(job, None))
    assert narrow == {"reduce_scatter": 2 * psi, "all_gather": 2 * psi}
    assert wide == {"reduce_scatter": 4 * psi, "all_gather": 2 * psi}


@pytest.mark.parametrize(("dtype", "width"), [("bf16", 4), ("fp16", 2), ("fp32", 4)])
def test_left_out_gradients_of_bf16_alone_are_in_fp32(dtype: str, width: int) -> None:
    """As `--bf16` and `--fp16` of Megatron-LM have it."""
    job = job_of(8, dtype=dtype)
    psi = job.model.parameters
    found = knobs(**DISTRIBUTED)
    assert volume(found.program(job, None))["reduce_scatter"] == width * psi
    assert found.memory(job)["gradients"] == width * psi
    assert found.memory(job)["fp32 gradients"] == (4 * psi / 8 if width == 2 else 0)


@pytest.mark.parametrize("instances", [1, 2, 4])
def test_instances_scatter_inside_and_reduce_their_shards_across(instances: int) -> None:
    """(s-1)/s for the scatter and the gather, 2 (r-1)/r of 1/s across r instances."""
    strategy = knobs(**ALL, num_distributed_optimizer_instances=instances)
    job, size = job_of(8), 8 // instances
    across = 2 * (instances - 1) / instances / size
    expected = 4 * job.model.parameters * (2 * (size - 1) / size + across)
    assert sent(strategy, job)["payload"] == pytest.approx(expected, rel=1e-12)
    states = knobs(**DISTRIBUTED, num_distributed_optimizer_instances=instances).memory(job)
    assert states["optimizer states"] == pytest.approx(8 * job.model.parameters / size)


def test_instances_are_consecutive_ranks() -> None:
    groups = knobs(**DISTRIBUTED, num_distributed_optimizer_instances=2).groups(4)
    found = {name: [list(group) for group in parts] for name, parts in groups.items()}
    assert found == {"instance": [[0, 1], [2, 3]], "across instances": [[0, 2], [1, 3]]}


# -- timelines: gradients of the worked DDP example, 1 ms + 1 ms per 10 MiB ---------------------

CAP = 6_553_600  # 25 MiB in fp32: {p5,p4,p3,p2} 53.25 MiB, {p1,p0} 4.5 MiB
BY_HAND = {
    # one bucket of 57.75 MiB after backward: 20 + 6.775
    "{kind: megatron}": 26.775,
    # 16-22.325, 22.325-23.775
    f"{{kind: megatron, overlap_grad_reduce: true, bucket_size: {CAP}}}": 23.775,
    # default bucket size: one bucket
    "{kind: megatron, overlap_grad_reduce: true}": 26.775,
    # reduce-scatter 20-26.775, all-gather 26.775-33.55
    "{kind: megatron, use_distributed_optimizer: true}": 33.55,
    # reduce-scatters as above, then both gathers: 23.775 + 6.325 + 1.45
    "{kind: megatron, use_distributed_optimizer: true, overlap_grad_reduce: true, "
    f"bucket_size: {CAP}}}": 31.55,
    # gathers first: {p1,p0} 0-1.45, then the other 1.45-7.775, which forward of p2 waits for;
    # backward is 7.775 later than above
    "{kind: megatron, use_distributed_optimizer: true, overlap_grad_reduce: true, "
    f"overlap_param_gather: true, bucket_size: {CAP}}}": 31.55,
}


@pytest.mark.parametrize("engine", ["event", "vectorised"])
@pytest.mark.parametrize("strategy", BY_HAND)
def test_steps_played_by_hand(strategy: str, engine: str) -> None:
    sets = (f"strategy={strategy}", f"engine={engine}")
    found = predict(read("worked/ddp_steady", sets)).step_time_s
    assert found == pytest.approx(BY_HAND[strategy] * 1e-3, rel=1e-12)


def test_forward_hides_all_gathers_but_the_first() -> None:
    """Four equal layers, a bucket each: gathers of 2 ms, forward of 3 ms a layer."""
    strategy = knobs(**ALL, bucket_size=1)
    job = job_of(4, sizes=(250_000,) * 4)
    long = tuple(replace(t, forward=3e-3) for t in job.times)
    found = spans(event.play(play_of(strategy, replace(job, times=long))))
    assert [found[f"AG{k}"] for k in (3, 2, 1, 0)] == [
        pytest.approx(x) for x in ((0, 2e-3), (2e-3, 4e-3), (5e-3, 7e-3), (8e-3, 10e-3))
    ]
    assert [found[f"F{i}"][0] for i in range(4)] == pytest.approx([2e-3, 5e-3, 8e-3, 11e-3])


def test_the_first_iteration_reduces_at_the_end_and_gathers_nothing() -> None:
    job = job_of(4)
    strategy = knobs(**ALL, bucket_size=1)
    names = [op.name for op in strategy.program(job, 1).ops]
    assert not [name for name in names if name.startswith(("AG", "W.AG"))]
    assert names.index("RS0") > names.index("B0")
    steady = [op.name for op in strategy.program(job, None).ops]
    assert steady.index("RS0") < steady.index("B0")


def test_the_shards_norm_is_agreed_on_before_the_update() -> None:
    ops = knobs(**DISTRIBUTED).program(job_of(4, control=True), None).ops
    assert [(op.name, op.bytes) for op in ops if op.control] == [("norm", 4)]


# -- memory -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2, 8, 64])
@pytest.mark.parametrize(
    ("dtype", "fp32", "whole", "sharded"),
    [("fp16", None, 4, 16), ("bf16", None, 6, 12), ("bf16", False, 4, 16), ("fp32", None, 8, 8)],
)
def test_bytes_per_parameter_are_those_of_megatrons_documentation(
    dtype: str, fp32: bool | None, whole: int, sharded: int, ranks: int
) -> None:
    job = job_of(ranks, dtype=dtype)
    plain = sum(knobs(grad_reduce_in_fp32=fp32).memory(job).values())
    assert plain == pytest.approx((whole + sharded) * job.model.parameters)
    spread = sum(knobs(**DISTRIBUTED, grad_reduce_in_fp32=fp32).memory(job).values())
    assert spread == pytest.approx((whole + sharded / ranks) * job.model.parameters)


def test_bf16_on_64_ranks_takes_6_1875_bytes_a_parameter() -> None:
    job = job_of(64, dtype="bf16")
    found = sum(knobs(**DISTRIBUTED, grad_reduce_in_fp32=True).memory(job).values())
    assert found / job.model.parameters == pytest.approx(6.1875, rel=1e-12)


# -- both engines, refusals -------------------------------------------------------------------

VARIANTS = [
    {}, OVERLAP, DISTRIBUTED, ALL, ALL | {"bucket_size": 1_000_000},
    ALL | {"num_distributed_optimizer_instances": 2, "bucket_size": 1_000_000},
]  # fmt: skip


@pytest.mark.parametrize("iteration", [1, None])
@pytest.mark.parametrize("given", VARIANTS, ids=str)
def test_engines_agree_under_jitter(given: dict[str, Any], iteration: int | None) -> None:
    job = job_of(4, control=True, micro_batches=2)
    play = play_of(knobs(**given), job, iteration=iteration, jitter=0.2)
    a, b = event.play(play), vectorised.play(play)
    assert a.durations == pytest.approx(b.durations, rel=1e-9)
    assert np.array(a.splits) == pytest.approx(np.array(b.splits), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("given", VARIANTS, ids=str)
def test_every_gradient_is_in_one_bucket(given: dict[str, Any]) -> None:
    program = knobs(**given).program(job_of(4), None)
    names = [name for _, _, members in program.buckets for name in members]
    assert sorted(names) == [f"l{i}.w" for i in range(4)]


def test_one_rank_reduces_and_gathers_nothing() -> None:
    assert collectives(knobs(**ALL).program(job_of(1), None)) == []


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"overlap_param_gather": True}, "overlap_param_gather: needs use_distributed_optimizer"),
        (
            {"overlap_param_gather": True, "use_distributed_optimizer": True},
            "overlap_param_gather: needs overlap_grad_reduce",
        ),
        ({"num_distributed_optimizer_instances": 2}, "needs use_distributed_optimizer: true"),
        ({"pad_buckets_for_high_nccl_busbw": True}, "needs use_distributed_optimizer: true"),
        ({"bucket_size": 0}, "bucket_size"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        knobs(**given)


def test_ranks_that_do_not_split_into_instances_are_refused() -> None:
    with pytest.raises(Refused, match="7 ranks do not split into 2 instances"):
        knobs(**DISTRIBUTED, num_distributed_optimizer_instances=2).groups(7)
