"""DataParallel sends everything through GPU 0, and nothing beside anything else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch._utils import _take_tensors  # type: ignore[attr-defined]

from dpsim.backends.ideal import Ideal
from dpsim.backends.ideal_ring import IdealRing
from dpsim.compile.program import Cast, Program
from dpsim.compile.strategies import Job
from dpsim.compile.strategies.data_parallel import (
    BUFFER,
    DataParallel,
    broadcast_chunks,
    reduce_chunks,
)
from dpsim.compile.strategies.ddp import Ddp
from dpsim.compile.timeline import Step
from dpsim.core.record import Refused
from dpsim.models import Layer, Model, Tensor
from dpsim.models.compute import layer_times
from dpsim.models.precision import Optimizer, Precision
from dpsim.play import Costs, Play, event, vectorised

MIB = 1024 * 1024


def toy(mib: tuple[float, ...] = (4, 30, 3), **rest: Any) -> Model:
    layers = tuple(
        Layer(name=f"l{i}", tensors=(Tensor("w", (int(size * MIB / 4),)),), forward=2e-3,
              backward=4e-3, kernels=3, activations_full=100.0, output=10.0)
        for i, size in enumerate(mib)
    )  # fmt: skip
    return Model(name="toy", layers=layers, **rest)


def job_of(model: Model, *, ranks: int = 4, **rest: Any) -> Job:
    times = layer_times(model, None, "fp32", 1, 1, "none")
    fields = {"control": False, **rest}
    return Job(model, ranks, times, 1, 8, Precision(), Optimizer(kind="none"), **fields)


def played(program: Program, ranks: int, bandwidth: float) -> Step:
    cast = Cast.uniform(program, ranks)
    costs = Costs(Ideal(bandwidth=bandwidth), None)
    play = Play(lambda k: cast, costs, 1, 0, lambda k: np.ones(ranks))
    a, b = event.play(play), vectorised.play(play)
    assert a.durations == pytest.approx(b.durations, rel=1e-9)
    return a.last


def names(program: Program) -> list[str]:
    return [op.name for op in program.ops if op.operation]


def test_the_order_of_a_step() -> None:
    """10 MiB a message: a broadcast closes when it has reached that, a reduction before."""
    program = DataParallel().program(job_of(toy()), None)
    assert names(program) == [
        "scatter.0", "BC0", "BC1", "gather.0", "scatter.gradients.0", "R0", "R1", "R2",
    ]  # fmt: skip
    sizes = {op.name: op.bytes / MIB for op in program.ops if op.name[0] in "BR" and op.operation}
    assert sizes == {"BC0": 34, "BC1": 3, "R0": 4, "R1": 30, "R2": 3}


def test_inputs_and_outputs_of_all_but_gpu_0_cross_it() -> None:
    """8 samples a GPU of 100 elements in and 10 out, in fp32; tokens are int64."""
    program = DataParallel().program(job_of(toy()), None)
    sizes = {op.name: op.bytes for op in program.ops}
    assert sizes["scatter.0"] == 3 * 8 * 100 * 4
    assert sizes["gather.0"] == sizes["scatter.gradients.0"] == 3 * 8 * 10 * 4
    text = toy(sample="sequence", tokens=50)
    ids = next(op for op in DataParallel().program(job_of(text), None).ops if op.operation)
    assert ids.bytes == 3 * 8 * 50 * 8


@pytest.mark.parametrize("ranks", range(1, 65))
def test_parameters_and_gradients_cross_gpu_0_for_every_other_gpu(ranks: int) -> None:
    """2 (N-1) Psi b in all, of which a ring carries an Nth on each of its links."""
    model = toy()
    ring = IdealRing(bandwidth=1e9)
    sent = sum(
        ring.plan(op.operation, tuple(range(ranks)), op.bytes, None).sent
        for op in DataParallel().program(job_of(model, ranks=ranks), None).ops
        if op.name.startswith(("BC", "R"))
    )
    assert sent * ranks == pytest.approx(2 * (ranks - 1) * 4 * model.parameters, rel=1e-12)


def test_a_hundred_million_parameters_on_8_gpus_are_5_6_gigabytes() -> None:
    model = toy((100e6 * 4 / MIB,))
    ring = IdealRing(bandwidth=1e9)
    ops = DataParallel().program(job_of(model, ranks=8), None).ops
    moved = [op for op in ops if op.name.startswith(("BC", "R"))]
    sent = sum(ring.plan(op.operation, tuple(range(8)), op.bytes, None).sent for op in moved)
    assert sent * 8 == pytest.approx(5.6e9)


def test_nothing_overlaps() -> None:
    """The step is the sum of its parts: 37 MiB twice at 10 MiB/ms, and 3 layers of 6 ms."""
    model = replace(toy(), layers=tuple(replace(x, output=0.0, activations_full=0.0)
                                        for x in toy().layers))  # fmt: skip
    program = DataParallel().program(job_of(model), None)
    step = played(program, 4, 10 * MIB / 1e-3)
    assert step.duration == pytest.approx(2 * 3.7e-3 + 3 * 6e-3)
    assert step.split().exposed_communication == pytest.approx(7.4e-3)


def test_threads_take_turns_to_launch_and_modules_are_copied_by_the_host() -> None:
    """Forward of 3 kernels takes at least 4 x 3 x launch; 9 modules are copied 4 times."""
    job = job_of(toy(), control=True)
    program = DataParallel(launch=1e-3, replicate=1e-3).program(job, None)
    assert [op.seconds for op in program.ops if op.kind == "forward"] == [12e-3] * 3
    assert [op.seconds for op in program.ops if op.kind == "backward"] == [4e-3] * 3
    assert [op.seconds for op in program.ops if op.kind == "serial"] == [pytest.approx(36e-3)]
    times = {s.name: s for s in played(program, 4, 10 * MIB / 1e-3).spans((0,))}
    assert times["BC0"].start < times["replicate.0"].end <= times["F0"].start


def test_one_gpu_sends_nothing_and_copies_nothing() -> None:
    program = DataParallel().program(job_of(toy(), ranks=1, control=True), None)
    assert not names(program)
    assert {op.kind for op in program.ops} == {"forward", "backward", "optimizer"}
    assert played(program, 1, 1e9).duration == pytest.approx(18e-3)


def test_buffers_are_broadcast_with_the_parameters() -> None:
    model = toy(buffers=(("fp32", 1000), ("int64", 10)))
    ops = DataParallel().program(job_of(model, control=True), None).ops
    found = {op.name: (op.bytes, op.control) for op in ops if op.name.startswith("buffers")}
    assert found == {"buffers.fp32.0": (4000.0, True), "buffers.int64.0": (80.0, True)}


def test_gpu_0_keeps_its_replicas_gradients_until_all_are_reduced() -> None:
    job = replace(job_of(toy()), optimizer=Optimizer(kind="adam"))
    parts = DataParallel().memory(job)
    size = 4.0 * toy().parameters
    assert parts["parameters"] == parts["gradients"] == parts["replica's gradients"] == size
    assert parts["optimizer states"] == 2 * size
    assert parts["gathered outputs"] == 2 * 4 * 8 * 10 * 4
    assert "replica's gradients" not in DataParallel().memory(replace(job, ranks=1))


def test_more_than_one_node_is_refused_with_the_reason() -> None:
    job = job_of(toy(), ranks=16, local_size=8)
    with pytest.raises(Refused, match="sees the 8 GPUs of its node, not 16"):
        DataParallel().program(job, None)
    assert DataParallel().program(job_of(toy(), ranks=8, local_size=8), None).ops


def test_it_is_slower_than_ddp_on_the_same_ring() -> None:
    job = job_of(toy((25, 25, 25)), ranks=8)
    steps = []
    for knobs in (DataParallel(), Ddp()):
        cast = Cast.uniform(knobs.program(job, None), 8)
        costs = Costs(IdealRing(bandwidth=10e9), None)
        play = Play(lambda k, cast=cast: cast, costs, 4, 2, lambda k: np.ones(8))  # type: ignore[misc]
        steps.append(event.play(play).step_time)
    assert steps[0] > steps[1]


# -- chunks -----------------------------------------------------------------------------------

TORCH = {"fp32": torch.float32, "bf16": torch.bfloat16}


@pytest.mark.parametrize("seed", range(60))
def test_reductions_are_chunked_as_torchs_own_function_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dtypes = [str(rng.choice(list(TORCH))) for _ in range(int(rng.integers(1, 40)))]
    counts = [int(rng.integers(1, 2_000_000)) for _ in dtypes]
    tensors = [
        torch.empty(n, dtype=TORCH[d], device="meta") for d, n in zip(dtypes, counts, strict=True)
    ]
    theirs = [
        (sum(t.numel() * t.element_size() for t in chunk), len(chunk))
        for chunk in _take_tensors(tensors, BUFFER)
    ]
    sizes = [(d, float(t.numel() * t.element_size())) for d, t in zip(dtypes, tensors, strict=True)]
    assert [(size, count) for _, size, count in reduce_chunks(sizes)] == theirs


@pytest.mark.parametrize("seed", range(20))
def test_broadcasts_close_when_they_have_reached_the_buffer(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = [
        (str(rng.choice(["fp32", "bf16"])), float(rng.integers(1, BUFFER)))
        for _ in range(int(rng.integers(1, 40)))
    ]
    chunks = broadcast_chunks(sizes)
    assert sum(size for _, size, _ in chunks) == sum(size for _, size in sizes)
    assert sum(count for *_, count in chunks) == len(sizes)
    rest = {dtype for dtype, size, _ in chunks if size < BUFFER}
    assert sum(size < BUFFER for _, size, _ in chunks) == len(rest)
    assert all(size < 2 * BUFFER for _, size, _ in chunks)
