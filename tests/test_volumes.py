"""What a rank sends in a step, for every system and 1 to 64 ranks, in copies of the parameters.

The units are those of rings: an all-reduce sends 2 (N-1)/N of its size, an all-gather or a
reduce-scatter (N-1)/N (Patarasuk and Yuan 2009).  Padding and control bytes are counted apart.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from toys import job_of, sent

from dpsim.core.plugins import find
from dpsim.core.record import build
from dpsim.describe.scenario import read
from dpsim.predict.prediction import predict

#: settings -> copies of the gradients, copies of the parameters, in one micro-batch
SYSTEMS: list[tuple[str, dict[str, Any], int]] = [
    ("horovod", {}, 2),
    ("horovod", {"fusion_threshold": 0}, 2),
    ("mirrored", {}, 2),
    ("mirrored", {"num_packs": 3}, 2),
    ("mirrored", {"num_packs": 0}, 2),
    ("multi_worker_mirrored", {}, 2),
    ("multi_worker_mirrored", {"bytes_per_pack": 4_000_000}, 2),
    ("pmap", {}, 2),
    ("pmap", {"xla_gpu_enable_latency_hiding_scheduler": True}, 2),
    ("megatron", {}, 2),
    ("megatron", {"overlap_grad_reduce": True, "bucket_size": 1_000_000}, 2),
    ("megatron", {"use_distributed_optimizer": True}, 2),
    (
        "megatron",
        {"use_distributed_optimizer": True, "overlap_grad_reduce": True,
         "overlap_param_gather": True, "bucket_size": 1_000_000},
        2,
    ),
    ("zero", {"stage": 1, "as_shipped": False}, 2),
    ("zero", {"stage": 2, "as_shipped": False}, 2),
    ("zero", {"stage": 3, "as_shipped": False}, 3),
    ("zero", {"stage": 1}, 3),
    ("zero", {"stage": 2}, 3),
    ("zero", {"stage": 2, "overlap_comm": True, "reduce_bucket_size": 1e6}, 3),
    ("zero", {"stage": 1, "use_multi_rank_bucket_allreduce": False}, 2),
    ("zero", {"stage": 2, "use_multi_rank_bucket_allreduce": False, "reduce_bucket_size": 1e6}, 2),
    ("zero", {"stage": 2, "offload_optimizer": "cpu"}, 3),
    ("zero", {"stage": 3, "stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0}, 3),
    ("zero", {"stage": 3}, 2),
    ("accelerate", {}, 2),
    ("accelerate", {"distributed_type": "deepspeed"}, 3),
    ("lightning", {}, 2),
    ("lightning", {"strategy": "deepspeed_stage_2"}, 3),
    ("lightning", {"strategy": "deepspeed_stage_3"}, 2),
    ("ray_train", {}, 2),
]  # fmt: skip


def strategy_of(kind: str, given: dict[str, Any]) -> Any:
    return build(find("strategies", kind), given)


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize(("kind", "given", "units"), SYSTEMS, ids=str)
def test_a_rank_sends_so_many_copies(
    kind: str, given: dict[str, Any], units: int, control: bool
) -> None:
    """Exactly: to a relative error of 1e-12, whether or not there are padding and control bytes."""
    strategy = strategy_of(kind, given)
    for ranks in range(1, 65):
        job = job_of(ranks, control=control)
        expected = Fraction(units * (ranks - 1), ranks) * 4 * job.model.parameters
        found = sent(strategy, job)
        assert found["payload"] == pytest.approx(float(expected), rel=1e-12), ranks
        if not control:
            assert found["padding"] == found["control"] == 0


@pytest.mark.parametrize(
    ("kind", "given", "gradients", "parameters"),
    [
        ("horovod", {}, 2, 0),
        ("mirrored", {}, 2, 0),
        ("multi_worker_mirrored", {}, 2, 0),
        ("pmap", {}, 2, 0),
        ("megatron", {}, 2, 0),
        ("megatron", {"use_distributed_optimizer": True}, 1, 1),
        ("zero", {"stage": 1}, 2, 1),
        # every micro-batch
        ("zero", {"stage": 2}, 2 * 5, 1),
        ("zero", {"stage": 3, "as_shipped": False}, 5, 2 * 5),
        ("zero", {"stage": 3}, 5, 5),
        ("accelerate", {}, 2, 0),
        ("accelerate", {"sync_each_batch": True}, 2 * 5, 0),
        ("lightning", {"strategy": "deepspeed_stage_2"}, 2 * 5, 1),
    ],
)
def test_five_micro_batches(
    kind: str, given: dict[str, Any], gradients: int, parameters: int
) -> None:
    strategy = strategy_of(kind, given)
    for ranks in (2, 7, 64):
        job = job_of(ranks, micro_batches=5)
        expected = (gradients + parameters) * 4 * job.model.parameters * (ranks - 1) / ranks
        assert sent(strategy, job)["payload"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "padding", "control"),
    [
        ("{kind: horovod, cycle_time: 100}", False, False),  # all are multiples of 16 bytes
        ("{kind: zero, stage: 2}", False, True),
        ("{kind: megatron, use_distributed_optimizer: true}", True, True),
        ("{kind: multi_worker_mirrored}", False, False),
        ("{kind: pmap}", False, False),
    ],
)
def test_padding_and_control_bytes_have_their_own_keys(
    kind: str, padding: bool, control: bool
) -> None:
    """On a machine: VGG-16, whose biases have 64 to 4,096 and 1,000 elements."""
    sets = (f"strategy={kind}", "sweep={cluster.nodes: [3]}", "collective={backend: nccl}")
    found = predict(read("vgg16-10gbe", sets)).points[0]
    assert (found["padding_bytes_per_rank"] > 0) == padding
    assert (found["control_bytes_per_rank"] > 0) == control


def test_ideal_rings_on_the_command_lines_path() -> None:
    """The same through a whole prediction, played on both engines."""
    for kind, units in (("mirrored", 2), ("pmap", 2), ("megatron", 2)):
        for ranks in (1, 2, 63):
            for engine in ("event", "vectorised"):
                sets = (
                    f"strategy={{kind: {kind}}}", f"cluster.ranks={ranks}", f"engine={engine}",
                    "collective={backend: ideal_ring, bandwidth: 10 GB/s}",
                )  # fmt: skip
                point = predict(read("worked/ddp_steady", sets)).points[0]
                expected = units * (ranks - 1) / ranks * 57.75 * 1024 * 1024
                assert point["bytes_sent_per_rank"] == pytest.approx(expected, rel=1e-12)
