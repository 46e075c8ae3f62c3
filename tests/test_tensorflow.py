"""TensorFlow's MirroredStrategy and MultiWorkerMirroredStrategy: packs, timelines, copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from toys import collectives, job_of, play_of, volume

from dpsim.compile.job import gradients_of
from dpsim.compile.strategies.mirrored import Mirrored, cut
from dpsim.compile.strategies.multi_worker_mirrored import MultiWorkerMirrored, group
from dpsim.core.record import Refused
from dpsim.describe.scenario import read
from dpsim.play import event, vectorised
from dpsim.predict.prediction import predict

MiB = 1024 * 1024
ENGINES = ["event", "vectorised"]


def step(*sets: str) -> float:
    return predict(read("worked/ddp_steady", sets)).step_time_s


# -- packs ------------------------------------------------------------------------------------


def test_a_pack_that_is_exactly_full_takes_one_more() -> None:
    sizes = [1, 4, 2, 3, 5, 1]  # in the order of the variables
    packs = group([(i, sizes[i]) for i in reversed(range(6))], 5)
    assert [[sizes[i] for i in pack] for pack in packs] == [[1, 5], [3, 2, 4], [1]]


@pytest.mark.parametrize(
    ("sizes", "limit", "expected"),
    [
        ([5, 5, 5], 5, [[5, 5], [5]]),
        ([6, 5, 5], 5, [[6], [5, 5]]),
        ([1, 1, 1], 0, [[1, 1, 1]]),
        ([9], 5, [[9]]),
        ([], 5, []),
    ],
)
def test_a_pack_is_closed_by_what_it_already_holds(
    sizes: list[int], limit: int, expected: list[list[int]]
) -> None:
    packs = group(list(enumerate(sizes)), limit)
    assert [[sizes[i] for i in pack] for pack in packs] == expected


@pytest.mark.parametrize(
    ("total", "packs", "expected"),
    [(10, 3, [3, 3, 4]), (10, 1, [10]), (2, 3, [2]), (9, 3, [3, 3, 3])],
)
def test_the_concatenation_is_cut_into_equal_ranges_the_last_takes_the_rest(
    total: int, packs: int, expected: list[int]
) -> None:
    assert cut(total, packs) == expected


def test_a_tensor_that_is_cut_belongs_to_every_pack_with_a_part_of_it() -> None:
    job = job_of(4, sizes=(2, 10))
    packs = Mirrored(num_packs=3).packs(job, gradients_of(job))
    assert [(pack.gradients, pack.bytes) for pack in packs] == [
        ((0, 1), 16), ((1,), 16), ((1,), 16),
    ]  # fmt: skip


# -- timelines: gradients of the worked DDP example, 1 ms + 1 ms per 10 MiB ---------------------

BY_HAND = {
    # all 57.75 MiB after backward: 20 + 1 + 5.775
    "{kind: mirrored}": 26.775,
    # two messages of half the size
    "{kind: mirrored, num_packs: 2}": 27.775,
    # p5 3-4.025 (ready at 1), p4 1.3; p3 8-11; p2 16-20; p1 20-21.4 (ready at 18); p0 21.4-22.45
    "{kind: mirrored, num_packs: 0}": 22.45,
    "{kind: multi_worker_mirrored}": 26.775,
    # {p5,p4,p3,p2} 53.25 MiB 16-22.325, {p1,p0} 22.325-23.775
    f"{{kind: multi_worker_mirrored, bytes_per_pack: {25 * MiB}}}": 23.775,
    # 3.25 MiB is exactly full and takes p3: {p5,p4,p3} 8-11.325, {p2} 16-20, {p1} 20-21.4, {p0}
    f"{{kind: multi_worker_mirrored, bytes_per_pack: {int(3.25 * MiB)}}}": 22.45,
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("strategy", BY_HAND)
def test_steps_played_by_hand(strategy: str, engine: str) -> None:
    found = step(f"strategy={strategy}", f"engine={engine}")
    assert found == pytest.approx(BY_HAND[strategy] * 1e-3, rel=1e-12)


def test_the_first_iteration_is_like_any_other() -> None:
    for kind in ("mirrored", "multi_worker_mirrored"):
        assert step(f"strategy={{kind: {kind}}}", "iteration=1") == pytest.approx(0.026775)


def test_one_pack_is_never_hidden_whatever_the_bandwidth() -> None:
    """Backward ends at 20 ms; the all-reduce only then begins."""
    for rate, seconds in ((10, 5.775), (20, 2.8875), (5, 11.55)):
        sets = ("strategy={kind: mirrored}", f"collective.bandwidth={rate} MiB/ms")
        assert step(*sets) == pytest.approx((21 + seconds) * 1e-3, rel=1e-12)


# -- copies, volumes, memory ------------------------------------------------------------------


@pytest.mark.parametrize(("packs", "passes"), [(0, 0), (1, 2), (4, 4)])
def test_the_concatenation_is_copied_in_and_out(packs: int, passes: int) -> None:
    job = job_of(4, control=True)
    ops = Mirrored(num_packs=packs).program(job, None).ops
    copied = sum(op.seconds for op in ops if op.kind == "copy")
    assert copied == pytest.approx(passes * 2 * 4 * job.model.parameters / 1e12)


def test_a_pack_of_one_tensor_is_not_copied() -> None:
    job = job_of(4, control=True)
    alone = MultiWorkerMirrored(bytes_per_pack=1)  # every pack is larger after one tensor
    assert all(op.kind != "copy" for op in alone.program(job, None).ops)
    assert len(collectives(alone.program(job, None))) == 4
    together = MultiWorkerMirrored().program(job, None)
    copied = sum(op.seconds for op in together.ops if op.kind == "copy")
    assert copied == pytest.approx(2 * 2 * 4 * job.model.parameters / 1e12)


@pytest.mark.parametrize("kind", [Mirrored, MultiWorkerMirrored])
def test_one_replica_reduces_and_copies_nothing(kind: Any) -> None:
    ops = kind().program(job_of(1, control=True), None).ops
    assert {op.kind for op in ops} == {"forward", "backward", "optimizer"}


@pytest.mark.parametrize("micro_batches", [1, 4, 40])
@pytest.mark.parametrize("kind", [Mirrored, MultiWorkerMirrored])
def test_every_gradient_byte_is_reduced_once_a_step(kind: Any, micro_batches: int) -> None:
    job = job_of(4, micro_batches=micro_batches)
    assert volume(kind().program(job, None)) == {"all_reduce": 4 * job.model.parameters}


def test_memory_holds_the_packed_gradients() -> None:
    job = job_of(4)
    size = 4 * job.model.parameters
    assert Mirrored().memory(job)["packed gradients"] == size
    assert Mirrored(num_packs=2).memory(job)["packed gradients"] == 2 * size
    assert MultiWorkerMirrored().memory(job)["packed gradients"] == size
    assert "packed gradients" not in Mirrored(num_packs=0).memory(job)


# -- both engines, refusals -------------------------------------------------------------------


@pytest.mark.parametrize(
    "knobs",
    [Mirrored(), Mirrored(num_packs=3), Mirrored(num_packs=0), MultiWorkerMirrored(),
     MultiWorkerMirrored(bytes_per_pack=4_000_000)],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("seed", range(3))
def test_engines_agree_under_jitter(knobs: Any, seed: int) -> None:
    play = play_of(knobs, job_of(3 + seed, control=True), jitter=0.2, seed=seed)
    a, b = event.play(play), vectorised.play(play)
    assert a.durations == pytest.approx(b.durations, rel=1e-9)
    assert np.array(a.splits) == pytest.approx(np.array(b.splits), rel=1e-9, abs=1e-12)


def test_mirrored_strategy_stays_on_one_node() -> None:
    with pytest.raises(Refused, match=r"one node; 16 ranks fill more than one of 8"):
        Mirrored().program(job_of(16, local_size=8), None)
    assert Mirrored().program(job_of(8, local_size=8), None).ops


def test_the_ring_over_grpc_is_refused_by_name() -> None:
    with pytest.raises(Refused, match="gRPC is not modelled; auto and nccl are"):
        step("strategy={kind: multi_worker_mirrored, implementation: ring}")


def test_gradients_of_two_dtypes_cannot_be_concatenated() -> None:
    job = job_of(4, dtypes=("fp32", "fp16", "fp32", "fp32"))
    for knobs in (Mirrored(), MultiWorkerMirrored()):
        with pytest.raises(Refused, match="need one dtype"):
            knobs.program(job, None)
    assert len(collectives(Mirrored(num_packs=0).program(job, None))) == 4
