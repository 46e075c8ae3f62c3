"""JAX with XLA: combined all-reduces, with and without the latency-hiding scheduler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toys import job_of, play_of, volume

from dpsim.compile.strategies.pmap import OPERANDS, THRESHOLD, Pmap, combine
from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.core.record import build
from dpsim.describe.scenario import read
from dpsim.play import event, vectorised
from dpsim.predict.prediction import predict

RECORDED = json.loads((Path(__file__).parent / "data" / "xla" / "combined.json").read_text())
CASES = [(part["threshold"], case) for part in RECORDED for case in part["cases"]]
LHS = "xla_gpu_enable_latency_hiding_scheduler"


def fp32(*sizes: int) -> list[tuple[str, int]]:
    return [("fp32", size) for size in sizes]


# -- the combiner -----------------------------------------------------------------------------


@pytest.mark.parametrize(("threshold", "case"), CASES, ids=str)
def test_groups_are_those_of_xla(threshold: int | None, case: dict[str, Any]) -> None:
    """Programs compiled for an H100 by jaxlib 0.10.2; sizes tell the members apart."""
    leaves = [(dtype, elements * DTYPE_BYTES[dtype]) for dtype, elements in case["leaves"]]
    found = combine(leaves, threshold or THRESHOLD)
    sums = [
        [leaves[group[0]][0], sum(case["leaves"][leaf][1] for leaf in group)] for group in found
    ]
    assert sorted(sums) == sorted(case["combined"])


def test_a_leaf_above_the_threshold_is_passed_over_and_stays_alone() -> None:
    found = combine(fp32(10, 10, 15, 20, 40, 5), 30)
    assert found == [(0, 1), (2,), (3, 5), (4,)]


def test_the_threshold_itself_still_fits() -> None:
    assert combine(fp32(15, 15), 30) == [(0, 1)]
    assert combine(fp32(15, 16), 30) == [(0,), (1,)]
    assert combine(fp32(30, 31), 30) == [(0,), (1,)]


def test_dtypes_are_combined_apart() -> None:
    leaves = [("fp32", 4), ("bf16", 4), ("fp32", 4), ("bf16", 4)]
    assert combine(leaves, 30) == [(0, 2), (1, 3)]


def test_at_most_256_operands_are_combined() -> None:
    found = combine(fp32(*[1] * 600), THRESHOLD)
    assert [len(group) for group in found] == [OPERANDS, OPERANDS, 88]


@pytest.mark.parametrize("seed", range(20))
def test_every_leaf_is_in_exactly_one_group_that_keeps_the_rules(seed: int) -> None:
    rng = np.random.default_rng(seed)
    leaves = [(str(rng.choice(["fp32", "bf16"])), int(size)) for size in rng.integers(1, 100, 50)]
    found = combine(leaves, 90)
    assert sorted(leaf for group in found for leaf in group) == list(range(50))
    for group in found:
        assert list(group) == sorted(group)
        assert len({leaves[leaf][0] for leaf in group}) == 1
        assert len(group) == 1 or sum(leaves[leaf][1] for leaf in group) <= 90


def test_the_default_threshold_is_30_mib_and_7_bytes() -> None:
    assert Pmap().xla_gpu_all_reduce_combine_threshold_bytes == 31_457_287


# -- timelines: gradients of the worked DDP example, 1 ms + 1 ms per 10 MiB ---------------------

BY_HAND = {
    # combined in the order of the leaves: {p0,p1} 4.5, {p2} 30, {p3,p4,p5} 23.25 MiB, ready at
    # 20, 16, 8.  In that order: 20-21.45, 21.45-25.45, 25.45-28.775
    f"{{kind: pmap, {LHS}: false}}": 28.775,
    # as they get ready: 8-11.325, 16-20, 20-21.45
    f"{{kind: pmap, {LHS}: true}}": 21.45,
    # one all-reduce of 57.75 MiB, after backward in both cases
    f"{{kind: pmap, xla_gpu_all_reduce_combine_threshold_bytes: {2**30}}}": 26.775,
    f"{{kind: pmap, xla_gpu_all_reduce_combine_threshold_bytes: {2**30}, {LHS}: true}}": 26.775,
    # none combined, as they get ready: p5 1-2.025, p4 3-4.3, p3 8-11, p2 16-20, p1 20-21.4, p0
    f"{{kind: pmap, xla_gpu_all_reduce_combine_threshold_bytes: 0, {LHS}: true}}": 22.45,
}


@pytest.mark.parametrize("engine", ["event", "vectorised"])
@pytest.mark.parametrize("strategy", BY_HAND)
def test_steps_played_by_hand(strategy: str, engine: str) -> None:
    sets = (f"strategy={strategy}", f"engine={engine}")
    found = predict(read("worked/ddp_steady", sets)).step_time_s
    assert found == pytest.approx(BY_HAND[strategy] * 1e-3, rel=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_the_scheduler_never_makes_a_step_longer(seed: int) -> None:
    rng = np.random.default_rng(seed)
    job = job_of(4, sizes=tuple(int(n) for n in rng.integers(1, 10**6, 8)))
    steps = []
    for on in (True, False):
        knobs = build(Pmap, {LHS: on, "xla_gpu_all_reduce_combine_threshold_bytes": 3_000_000})
        steps.append(vectorised.play(play_of(knobs, job)).step_time)
    assert steps[0] <= steps[1] * (1 + 1e-12)


# -- copies, volumes, memory, engines ---------------------------------------------------------


def test_operands_of_a_combined_all_reduce_are_copied_together_and_apart() -> None:
    job = job_of(4, sizes=(100, 100, 10**7), control=True)  # the last one is above the threshold
    ops = Pmap().program(job, None).ops
    copied = sum(op.seconds for op in ops if op.kind == "copy")
    assert copied == pytest.approx(2 * 2 * 4 * 200 / 1e12)
    assert Pmap().memory(job)["combined gradients"] == 800


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_every_gradient_byte_is_reduced_once_a_step(micro_batches: int) -> None:
    job = job_of(4, micro_batches=micro_batches)
    assert volume(Pmap().program(job, None)) == {"all_reduce": 4 * job.model.parameters}


def test_one_device_reduces_nothing() -> None:
    ops = Pmap().program(job_of(1, control=True), None).ops
    assert {op.kind for op in ops} == {"forward", "backward", "optimizer"}


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_engines_agree_under_jitter(on: bool, seed: int) -> None:
    knobs = build(Pmap, {LHS: on, "xla_gpu_all_reduce_combine_threshold_bytes": 4_000_000})
    play = play_of(knobs, job_of(3 + seed, control=True), jitter=0.2, seed=seed)
    a, b = event.play(play), vectorised.play(play)
    assert a.durations == pytest.approx(b.durations, rel=1e-9)
    assert np.array(a.splits) == pytest.approx(np.array(b.splits), rel=1e-9, abs=1e-12)
