"""Replicas of pipeline stages: what ZeRO-1 and Megatron exchange, when, and how long it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asked import predicted

from dpsim.cases.case import Case
from dpsim.collectives import ring_payload
from dpsim.compile.program import Op, Program
from dpsim.compile.strategies import Job
from dpsim.compile.strategies.gossip import Gossip
from dpsim.compile.strategies.megatron import Megatron
from dpsim.compile.strategies.zero import Zero
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.play import event, vectorised

MS = 1e-3
#: parameters of a layer; the layers of a stage differ in width
WIDE, NARROW = 3_000_000, 1_000_000


def case_of(strategy: dict[str, Any], **rest: Any) -> Case:
    """Two stages of two layers, two replicas, GPipe with four micro-batches: a layer takes 1 ms
    forward and 2 ms backward, a collective its bytes at 1 GB/s, a send nothing."""
    layer = {"forward": "1 ms", "backward": "2 ms", "activation": "0 B"}
    sizes = (WIDE, NARROW, NARROW, WIDE)
    data = {
        "model": {
            "dtype": "fp32",
            "layers": [{"name": f"l{k}", **layer, "parameters": n} for k, n in enumerate(sizes)],
        },
        "cluster": {"ranks": 4},
        "parallel": {"pipeline": 2},
        "schedule": {"kind": "gpipe"},
        "collective": {"backend": "ideal", "latency": "0 ms", "bandwidth": "1 GB/s"},
        "strategy": strategy,
        "optimizer": {"kind": "none"},
        "batch": {"accumulation": 4},
        **rest,
    }
    return Case(load(data, Path(), "").points[0], Path())


def program(case: Case, stage: int = 0) -> Program:
    rank = next(r for r in range(case.ranks) if case.mesh.place(r, "pipeline") == stage)
    return case.programs.cast(None).program(rank)


def exchanged(found: Program) -> list[Op]:
    return [op for op in found.ops if op.group.startswith("data.")]


def times(case: Case) -> list[float]:
    (request, *_) = case.plays()
    return [engine.play(request).step_time for engine in (event, vectorised)]


# -- bytes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tensor", [1, 2])
@pytest.mark.parametrize("replicas", [2, 4, 8])
@pytest.mark.parametrize(
    ("strategy", "copies"),
    [
        ({"kind": "ddp"}, 2),
        ({"kind": "zero", "stage": 1}, 3),
        ({"kind": "zero", "stage": 1, "overlap_comm": True}, 3),
        ({"kind": "zero", "stage": 1, "as_shipped": False}, 2),
        ({"kind": "megatron"}, 2),
        ({"kind": "megatron", "overlap_grad_reduce": True}, 2),
        ({"kind": "megatron", "use_distributed_optimizer": True}, 2),
    ],
)
def test_a_rank_sends_so_many_copies_of_its_part_of_the_stage(
    strategy: dict[str, Any], copies: int, replicas: int, tensor: int
) -> None:
    # per stage and rank: copies x parameters / tensor x (N - 1) / N, whatever the micro-batches
    case = case_of(
        strategy,
        cluster={"ranks": 2 * replicas * tensor},
        parallel={"pipeline": 2, "tensor": tensor},
    )
    for stage in (0, 1):
        sent = sum(
            ring_payload(op.operation, replicas, op.bytes) for op in exchanged(program(case, stage))
        )
        part = 4 * (WIDE + NARROW) / tensor
        assert sent == pytest.approx(copies * part * (replicas - 1) / replicas, rel=1e-12)


def test_gradients_in_fp32_are_twice_as_wide_as_what_is_gathered() -> None:
    knobs = {"kind": "megatron", "use_distributed_optimizer": True, "grad_reduce_in_fp32": True}
    case = case_of(knobs, precision={"parameters": "bf16", "compute": "bf16"})
    sizes = {op.operation: op.bytes for op in exchanged(program(case))}
    assert sizes == {"reduce_scatter": 4.0 * (WIDE + NARROW), "all_gather": 2.0 * (WIDE + NARROW)}


def test_buckets_of_zero_are_counted_in_elements() -> None:
    case = case_of({"kind": "zero", "reduce_bucket_size": NARROW})
    reduced = [op.bytes for op in exchanged(program(case)) if op.operation == "all_reduce"]
    assert reduced == [4.0 * WIDE, 4.0 * NARROW]
    whole = case_of({"kind": "zero"})
    assert len(exchanged(program(whole))) == 2  # one all-reduce, one all-gather


# -- order ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize(
    "strategy",
    [{"kind": "zero"}, {"kind": "megatron", "use_distributed_optimizer": True}],
    ids=lambda s: s["kind"],
)
def test_parameters_are_gathered_when_they_have_been_updated(
    strategy: dict[str, Any], stage: int
) -> None:
    ops = program(case_of(strategy), stage).ops
    update = next(i for i, op in enumerate(ops) if op.kind == "optimizer")
    gathers = [i for i, op in enumerate(ops) if op.operation == "all_gather"]
    assert gathers
    assert all(i > update and ops[i].after == (update,) for i in gathers)
    assert ops[-1].kind == "wait"
    assert set(gathers) <= set(ops[-1].after)  # the next step needs them all
    reductions = [i for i, op in enumerate(ops) if op.operation.startswith(("all_r", "reduce_"))]
    assert max(reductions) < update


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("kind", ["zero", "megatron"])
def test_nothing_is_reduced_before_the_last_micro_batch(kind: str, stage: int) -> None:
    overlap = {"zero": "overlap_comm", "megatron": "overlap_grad_reduce"}[kind]
    ops = program(case_of({"kind": kind, overlap: True}), stage).ops
    reductions = [i for i, op in enumerate(ops) if op.operation == "all_reduce"]
    earlier = [i for i, op in enumerate(ops) if op.kind == "backward" and op.name in "B0 B1 B2"]
    assert len(earlier) == 3
    assert min(reductions) > max(earlier)


def test_only_the_first_stage_of_a_megatron_pipeline_has_several_buckets() -> None:
    knobs = {"kind": "megatron", "overlap_grad_reduce": True, "bucket_size": NARROW}
    case = case_of(knobs)
    assert [op.bytes for op in exchanged(program(case, 0))] == [4.0 * NARROW, 4.0 * WIDE]
    assert [op.bytes for op in exchanged(program(case, 1))] == [4.0 * (WIDE + NARROW)]
    late = case_of({**knobs, "overlap_grad_reduce": False})
    assert [op.bytes for op in exchanged(program(late, 0))] == [4.0 * (WIDE + NARROW)]


def test_further_chunks_of_the_first_rank_are_one_bucket_each() -> None:
    knobs = {"kind": "megatron", "overlap_grad_reduce": True, "bucket_size": 1}
    layers = [
        {"name": f"l{k}", "forward": "1 ms", "backward": "2 ms", "parameters": NARROW}
        for k in range(8)
    ]
    case = case_of(
        knobs,
        model={"dtype": "fp32", "layers": layers},
        schedule={"kind": "interleaved_1f1b", "chunks": 2},
    )
    names = sorted(op.name for op in exchanged(program(case, 0)))
    assert names == ["AR0.0", "AR0.2", "AR1.0"]


# -- time -----------------------------------------------------------------------------------------

# forward of a stage 2 ms, backward 4 ms: backward of stage 1 ends at 5 x 2 + 4 x 4 = 26 ms, that of
# stage 0 at 30 ms; its last micro-batch has l1 (1 M parameters, 4 MB) ready at 28 ms and l0 (12 MB)
# at 30 ms
BY_HAND = [
    ({"kind": "megatron"}, 30 + 16),
    ({"kind": "megatron", "overlap_grad_reduce": True, "bucket_size": NARROW}, 32 + 12),
    ({"kind": "megatron", "overlap_grad_reduce": True}, 30 + 16),
    ({"kind": "megatron", "use_distributed_optimizer": True}, 30 + 16 + 16),
    ({"kind": "zero"}, 30 + 16 + 16),
    ({"kind": "zero", "reduce_bucket_size": NARROW}, 30 + 16 + 16),
    # the gradient of l0 does not fit any more and flushes that of l1 at 30 ms
    ({"kind": "zero", "overlap_comm": True, "reduce_bucket_size": NARROW}, 30 + 16 + 16),
    ({"kind": "zero", "as_shipped": False}, 30 + 16 + 16),
]


@pytest.mark.parametrize(("strategy", "milliseconds"), BY_HAND, ids=str)
def test_steps_played_by_hand(strategy: dict[str, Any], milliseconds: float) -> None:
    assert times(case_of(strategy)) == pytest.approx([milliseconds * MS] * 2, rel=1e-12)


def test_a_table_on_two_stages_is_summed_when_gradients_have_been() -> None:
    tied = {"huggingface": "gpt2-large", "sequence_length": 128}
    case = case_of(
        {"kind": "megatron"},
        model=tied,
        cluster={"machine": "dgx-a100", "ranks": 4},
        collective={"backend": "nccl"},
    )
    ops = program(case).ops
    wait = next(i for i, op in enumerate(ops) if op.name == "W")
    table = next(op for op in ops if op.name == "table.0")
    assert table.after == (wait,)


@pytest.mark.parametrize("engine", ["event", "vectorised"])
@pytest.mark.parametrize(
    ("schedule", "waited"),
    # 8 MB a rank at 1 GB/s.  1F1B: the second stage's gather begins when it has received what the
    # first, which had gathered, sent.  Two stages a rank: the first one's 4 ms, and of the second
    # one's what two forwards do not hide
    [({"kind": "one_f_one_b"}, 8 + 8), ({"kind": "interleaved_1f1b", "chunks": 2}, 4 + 4 - 2)],
)
def test_updated_parameters_are_gathered_beside_the_next_forward(
    schedule: dict[str, Any], waited: float, engine: str
) -> None:
    layer = {"parameters": 1_000_000, "forward": "1 ms", "backward": "2 ms", "activation": "0 B"}
    data = {
        "model": {"layers": [{"name": f"l{i}", **layer} for i in range(4)]},
        "cluster": {"ranks": 4}, "parallel": {"pipeline": 2}, "schedule": schedule,
        "collective": {"backend": "ideal", "latency": "0 ms", "bandwidth": "1 GB/s"},
        "optimizer": {"kind": "none"}, "batch": {"per_device": 1, "accumulation": 4},
        "engine": engine,
    }  # fmt: skip
    knobs = {"kind": "megatron", "use_distributed_optimizer": True, "overlap_grad_reduce": True}
    points: list[Any] = [
        predicted({**data, "strategy": {**knobs, "overlap_param_gather": ahead}}).points[0]
        for ahead in (False, True)
    ]
    behind, beside = points
    assert beside.step_time_s == pytest.approx(behind.step_time_s + (waited - 8) * 1e-3, rel=1e-9)


@pytest.mark.parametrize("engine", ["event", "vectorised"])
@pytest.mark.parametrize(
    ("mesh", "bucket", "behind", "beside"),
    # gathers at 1 GB/s, of buckets of a layer each.  The first stage waits 4 ms for its first
    # bucket, and then for the second, which its first layer's 1 ms hides; the second stage has one
    # bucket.  Two ranks that split every layer: four buckets of 2 ms, of which a layer's 0.5 ms
    # hide all but the first.  One bucket: nothing is hidden
    [
        ({"pipeline": 2}, 1_000_000, 8, (4 + 4 - 1) + 8),
        ({"tensor": 2}, 500_000, 8, 2 + 3 * (2 - 0.5)),
        ({"tensor": 2}, 2_000_000, 8, 8),
    ],
)
def test_a_layer_of_a_mesh_waits_for_its_own_bucket(
    mesh: dict[str, int], bucket: int, behind: float, beside: float, engine: str
) -> None:
    layer = {"parameters": 1_000_000, "forward": "1 ms", "backward": "2 ms", "activation": "0 B"}
    knobs = {
        "kind": "megatron", "use_distributed_optimizer": True, "overlap_grad_reduce": True,
        "bucket_size": bucket,
    }  # fmt: skip
    data = {
        "model": {"layers": [{"name": f"l{i}", **layer} for i in range(4)]},
        "cluster": {"ranks": 4}, "parallel": mesh,
        "collective": {"backend": "ideal", "latency": "0 ms", "bandwidth": "1 GB/s"},
        "optimizer": {"kind": "none"}, "batch": {"per_device": 1, "accumulation": 4},
        "engine": engine,
    }  # fmt: skip
    waits, ahead = (
        predicted({**data, "strategy": {**knobs, "overlap_param_gather": way}}).points[0]
        for way in (False, True)
    )
    hidden = (behind - beside) * 1e-3
    assert waits.step_time_s - ahead.step_time_s == pytest.approx(hidden, rel=1e-9)


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        (Zero(stage=2), "strategy.stage: stage 2 exchanges in every micro-batch"),
        (Zero(stage=3), "strategy.stage: stage 3 exchanges in every micro-batch"),
        (Zero(partition_size=2), "strategy.partition_size: groups of fewer than all 4"),
        (Zero(use_multi_rank_bucket_allreduce=False), "one reduce per owning rank is not modelled"),
        (Zero(offload_optimizer="cpu"), "strategy.offload_optimizer: offloading is not modelled"),
        (
            Megatron(use_distributed_optimizer=True, num_distributed_optimizer_instances=2),
            "num_distributed_optimizer_instances: more than one optimizer instance",
        ),
        (Gossip(), "strategy.kind: gossip is not modelled together"),
    ],
    ids=str,
)
def test_what_is_not_modelled_is_refused_by_name(strategy: Any, reason: str) -> None:
    with pytest.raises(Refused) as caught:
        strategy.on_stage(job())
    assert reason in str(caught.value)


def job() -> Job:
    case = case_of({"kind": "ddp"}, cluster={"ranks": 8})
    return case.programs.stage_job(0, 1)
