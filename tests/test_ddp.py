"""DDP launches the buckets that torch launches, when torch launches them.

The hand-checked example: parameters p0 … p5 of 0.5, 4, 30, 20, 3 and 0.25 MiB, whose gradients are
ready at 20, 18, 16, 8, 3 and 1 ms; an all-reduce of S takes 1 ms + S/(10 MiB/ms).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dpsim.backends.ideal import Ideal
from dpsim.compute import layer_times
from dpsim.engines import Costs, Play, event, vectorised
from dpsim.models import Layer, Model, Tensor
from dpsim.precision import Optimizer, Precision
from dpsim.program import Cast, Op, Program
from dpsim.strategies import Job, TorchVersion
from dpsim.strategies.ddp import Bucket, Ddp, assign_buckets
from dpsim.timeline import Step

MIB = 1024 * 1024
SIZES = (0.5, 4.0, 30.0, 20.0, 3.0, 0.25)
BACKWARD = (2e-3, 2e-3, 8e-3, 5e-3, 2e-3, 1e-3)
TOY_COST = Ideal(latency=1e-3, bandwidth=10 * MIB / 1e-3)


def toy(
    mib: Sequence[float] = SIZES,
    backward: Sequence[float] = BACKWARD,
    *,
    dtypes: Sequence[str] | None = None,
    forward_order: tuple[int, ...] = (),
    **rest: Any,
) -> Model:
    layers = tuple(
        Layer(name=f"p{i}", tensors=(Tensor("w", (int(size * MIB / 4),)),),
              forward=0.0, backward=time, dtype=dtypes[i] if dtypes else None)
        for i, (size, time) in enumerate(zip(mib, backward, strict=True))
    )  # fmt: skip
    return Model(name="toy", layers=layers, forward_order=forward_order, **rest)


def job_of(model: Model, *, micro_batches: int = 1, control: bool = False, **rest: Any) -> Job:
    times = layer_times(model, None, "fp32", 1, 1, "none")
    return Job(
        model, 2, times, micro_batches, 1, Precision(), Optimizer(kind="none"),
        control=control, **rest,
    )  # fmt: skip


def played(program: Program) -> Step:
    cast = Cast.uniform(program, 2)
    play = Play(lambda k: cast, Costs(TOY_COST, None), 1, 0, lambda k: np.ones(2))
    a, b = event.play(play), vectorised.play(play)
    assert a.durations == pytest.approx(b.durations, rel=1e-9)
    return a.last


def collectives(program: Program, operation: str = "all_reduce") -> list[Op]:
    return [op for op in program.ops if op.operation == operation]


def intervals(step: Step) -> list[tuple[float, float]]:
    """Start and end of every all-reduce of rank 0 [ms]."""
    return [
        (span.start * 1e3, span.end * 1e3) for span in step.spans((0,)) if span.op == "all_reduce"
    ]


def names(buckets: Sequence[Bucket]) -> list[str]:
    return [" ".join(f"p{t}" for t in bucket.tensors) for bucket in buckets]


#: mode: (knobs, iteration, buckets in launch order, all-reduces [ms], start of the optimizer [ms])
TABLE: dict[str, tuple[Ddp, int | None, list[str], list[float], list[tuple[float, float]], float]]
TABLE = {
    "iteration 1": (
        Ddp(), 1, ["p0 p1 p2 p3 p4 p5"], [57.75], [(20, 26.775)], 26.775,
    ),
    "iteration 2 and later": (
        Ddp(), 2, ["p5 p4", "p3 p2", "p1 p0"], [3.25, 50, 4.5],
        [(3, 4.325), (16, 22), (22, 23.45)], 23.45,
    ),
    "steady state": (
        Ddp(), None, ["p5 p4", "p3 p2", "p1 p0"], [3.25, 50, 4.5],
        [(3, 4.325), (16, 22), (22, 23.45)], 23.45,
    ),
    "bucket_cap_mb=25 said explicitly": (
        Ddp(bucket_cap_mb=25), None, ["p5 p4 p3 p2", "p1 p0"], [53.25, 4.5],
        [(16, 22.325), (22.325, 23.775)], 23.775,
    ),
    "find_unused_parameters": (
        Ddp(find_unused_parameters=True), None, ["p3 p4 p5", "p2", "p0 p1"], [23.25, 30, 4.5],
        [(8, 11.325), (16, 20), (20, 21.45)], 21.45,
    ),
}  # fmt: skip


@pytest.mark.parametrize("mode", TABLE)
def test_the_worked_example(mode: str) -> None:
    knobs, iteration, members, mib, times, optimizer = TABLE[mode]
    program = knobs.program(job_of(toy()), iteration)
    buckets = [" ".join(name.removesuffix(".w") for name in b[2]) for b in program.buckets]
    assert buckets == members
    payload = [op for op in collectives(program) if not op.control]
    assert [op.bytes / MIB for op in payload] == mib
    step = played(program)
    # the map of used parameters, where there is one, is the last all-reduce
    assert np.array(intervals(step)[: len(times)]) == pytest.approx(np.array(times), rel=1e-9)
    start = next(span.start for span in step.spans((0,)) if span.name == "O")
    assert start * 1e3 == pytest.approx(optimizer, rel=1e-9)
    assert step.duration * 1e3 == pytest.approx(optimizer, rel=1e-9)


def test_before_torch_2_5_an_explicit_cap_leaves_the_first_bucket_at_one_mebibyte() -> None:
    program = Ddp(bucket_cap_mb=25, torch=TorchVersion((2, 4))).program(job_of(toy()), None)
    assert [op.bytes / MIB for op in collectives(program)] == [3.25, 50, 4.5]


def test_rebuilt_buckets_follow_the_order_of_arrival_not_of_registration() -> None:
    model = toy(forward_order=(2, 0, 1, 3, 4, 5))
    program = Ddp().program(job_of(model), None)
    assert [b[2] for b in program.buckets] == [
        ("p5.w", "p4.w"),
        ("p3.w", "p1.w", "p0.w", "p2.w"),
    ]
    assert [op.bytes / MIB for op in collectives(program)] == [3.25, 54.5]


@pytest.mark.parametrize(("iteration", "expected"), [(1, ["bd", "ac"]), (2, ["ca", "db"])])
def test_dtypes_have_buckets_of_their_own(iteration: int, expected: list[str]) -> None:
    model = toy([4 / MIB] * 4, [1e-3] * 4, dtypes=["fp32", "bf16", "fp32", "bf16"])
    buckets = Ddp().program(job_of(model), iteration).buckets
    letters = ["".join("abcd"[int(n[1])] for n in b[2]) for b in buckets]
    assert letters == expected
    assert sorted(b[1] for b in buckets) == [4.0, 8.0]


def test_a_ready_bucket_waits_for_the_earlier_one() -> None:
    """Bucket 0 is ready at 10 ms, bucket 1 at 2 ms: both go at 10 ms, one after the other."""
    ops = (
        Op("B1", "backward", seconds=2e-3),
        Op("B0", "backward", seconds=8e-3),
        Op("AR0", "collective", stream="ddp", operation="all_reduce", bytes=MIB, after=(1,)),
        Op("AR1", "collective", stream="ddp", operation="all_reduce", bytes=MIB, after=(1,)),
        Op("W", "wait", after=(2, 3)),
    )
    cost = Ideal(latency=1e-3, bandwidth=MIB / 1e-3)
    cast = Cast.uniform(Program(ops), 2)
    play = Play(lambda k: cast, Costs(cost, None), 1, 0, lambda k: np.ones(2))
    step = event.play(play).last
    assert np.array(intervals(step)) == pytest.approx(np.array([(10, 12), (12, 14)]))


def test_buckets_launch_in_order_even_where_a_later_one_is_complete_first() -> None:
    """With find_unused_parameters the launch order is that of registration, reversed; a model
    that is used in registration order backwards completes the last bucket first."""
    model = toy([1, 25, 1], [2e-3, 3e-3, 5e-3], forward_order=(2, 1, 0))
    program = Ddp(find_unused_parameters=True).program(job_of(model), None)
    assert [b[2] for b in program.buckets] == [("p2.w",), ("p1.w",), ("p0.w",)]
    assert np.array(intervals(played(program))[:3]) == pytest.approx(
        np.array([(10, 11.1), (11.1, 14.6), (14.6, 15.7)])
    )


# -- bucket assignment against torch's own function -------------------------------------------

TORCH_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64}


def random_case(seed: int) -> tuple[list[tuple[str, int]], tuple[int, ...], list[Any]]:
    rng = np.random.default_rng(seed)
    kinds = list(rng.permutation(list(TORCH_DTYPES)))[: int(rng.integers(1, 4))]
    dtypes = [str(rng.choice(kinds)) for _ in range(int(rng.integers(1, 25)))]
    tensors = [torch.empty(int(rng.integers(1, 400)), dtype=TORCH_DTYPES[d]) for d in dtypes]
    caps = tuple(int(c) for c in rng.integers(1, 3000, int(rng.integers(1, 4))))
    sizes = [(d, t.numel() * t.element_size()) for d, t in zip(dtypes, tensors, strict=True)]
    return sizes, caps, tensors


@pytest.mark.parametrize("seed", range(120))
def test_assignment_in_registration_order_is_torchs(seed: int) -> None:
    sizes, caps, tensors = random_case(seed)
    theirs, _ = dist._compute_bucket_assignment_by_size(tensors, list(caps))
    assert [list(b.tensors) for b in assign_buckets(sizes, caps, None)] == theirs


@pytest.mark.parametrize("seed", range(120))
def test_assignment_in_order_of_arrival_is_torchs(seed: int) -> None:
    sizes, caps, tensors = random_case(seed)
    order = np.random.default_rng(seed + 1000).permutation(len(sizes)).tolist()
    theirs, _ = dist._compute_bucket_assignment_by_size(
        [tensors[t] for t in order], list(caps), [False] * len(order), order
    )
    assert [list(b.tensors) for b in assign_buckets(sizes, caps, order)] == theirs


@pytest.mark.parametrize("seed", range(40))
def test_every_tensor_is_in_one_bucket_and_bytes_are_kept(seed: int) -> None:
    sizes, caps, _ = random_case(seed)
    buckets = assign_buckets(sizes, caps, None)
    assert sorted(t for b in buckets for t in b.tensors) == list(range(len(sizes)))
    assert all(b.bytes == sum(sizes[t][1] for t in b.tensors) for b in buckets)
    assert all({sizes[t][0] for t in b.tensors} == {b.dtype} for b in buckets)


# -- other modes ------------------------------------------------------------------------------


@pytest.mark.parametrize("unused", [False, True])
def test_a_static_graph_rebuilds_before_its_third_iteration(unused: bool) -> None:
    knobs = Ddp(static_graph=True, find_unused_parameters=unused)
    one, rebuilt = [57.75], [3.25, 50, 4.5]
    for iteration, mib in ((1, one), (2, one), (3, rebuilt), (None, rebuilt)):
        program = knobs.program(job_of(toy()), iteration)
        assert [op.bytes / MIB for op in collectives(program)] == mib


@pytest.mark.parametrize(
    ("knobs", "rebuilt_in"),
    [(Ddp(), 2), (Ddp(static_graph=True), 3), (Ddp(find_unused_parameters=True), None)],
)
def test_the_rebuilt_assignment_is_broadcast_once(knobs: Ddp, rebuilt_in: int | None) -> None:
    job = job_of(toy(), control=True)
    for iteration in (1, 2, 3, 4, None):
        found = collectives(knobs.program(job, iteration), "broadcast")
        assert len(found) == (2 if iteration is not None and iteration == rebuilt_in else 0)
        assert all(op.blocks_host and op.control for op in found)


def test_no_sync_reduces_in_the_last_micro_batch_only() -> None:
    once = Ddp().program(job_of(toy(), micro_batches=3), None)
    each = Ddp(no_sync=False).program(job_of(toy(), micro_batches=3), None)
    assert len(collectives(once)) == 3
    assert len(collectives(each)) == 9
    first = next(i for i, op in enumerate(once.ops) if op.operation)
    assert sum(op.kind == "backward" for op in once.ops[:first]) == 2 * 6 + 2
    # two micro-batches of 20 ms without communication, then the worked example
    assert played(once).duration * 1e3 == pytest.approx(40 + 23.45)


def test_find_unused_parameters_reduces_a_map_of_four_bytes_a_parameter() -> None:
    found = collectives(Ddp(find_unused_parameters=True).program(job_of(toy()), None))
    assert [(op.name, op.bytes, op.control) for op in found if op.control] == [("map", 24.0, True)]
    assert not [op for op in collectives(Ddp().program(job_of(toy()), None)) if op.control]


def test_buffers_are_broadcast_before_every_forward_once_a_dtype() -> None:
    model = toy(buffers=(("fp32", 1000), ("int64", 10)))
    program = Ddp().program(job_of(model, control=True), None)
    found = collectives(program, "broadcast")
    assert [op.bytes for op in found] == [4000.0, 80.0]
    forward = next(op for op in program.ops if op.kind == "forward")
    assert [program.ops[i].name for i in forward.after] == ["buffers.int64"]
    off = Ddp(broadcast_buffers=False).program(job_of(model, control=True), None)
    assert not collectives(off, "broadcast")


def test_bucket_copies_cost_time_unless_gradients_are_views() -> None:
    job = job_of(toy(), copy_bandwidth=1e12)
    copied = sum(op.seconds for op in Ddp().program(job, None).ops if op.kind == "copy")
    assert copied == pytest.approx(2 * 2 * 57.75 * MIB / 1e12)
    view = Ddp(gradient_as_bucket_view=True)
    assert view.memory(job)["gradients"] == 57.75 * MIB
    assert "DDP buckets" not in view.memory(job)
    assert Ddp().memory(job)["DDP buckets"] == 57.75 * MIB


# -- a live run -------------------------------------------------------------------------------

LIVE: dict[str, dict[str, Any]] = {
    "default": {},
    "explicit cap": {"bucket_cap_mb": 2},
    "find_unused_parameters": {"find_unused_parameters": True},
    "find_unused_parameters and a cap": {"find_unused_parameters": True, "bucket_cap_mb": 2},
    "static graph": {"static_graph": True},
}


def network() -> torch.nn.Sequential:
    """Seven layers; three of their tensors are larger than 1 MiB."""
    widths = (600, 700, 800, 100, 90, 80, 70, 10)
    return torch.nn.Sequential(*(torch.nn.Linear(a, b) for a, b in pairwise(widths)))


def live_run(rank: int, folder: str) -> None:
    """One of two gloo processes: four iterations in every mode; rank 0 writes the bucket sizes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    for number, knobs in enumerate(LIVE.values()):
        module = DistributedDataParallel(network(), **knobs)
        module._set_ddp_runtime_logging_sample_rate(1)
        for _ in range(4):
            module(torch.randn(2, 600)).sum().backward()
        data = module._get_ddp_logging_data()
        if rank == 0:
            found = [str(data.get(k, "")) for k in ("bucket_sizes", "rebuilt_bucket_sizes")]
            Path(folder, f"{number}.txt").write_text("\n".join(found))
    dist.barrier()
    os._exit(0)  # gloo's threads now and then abort an orderly exit


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[int]]]:
    """Bytes of the first and of the rebuilt buckets, by mode, as torch itself logs them."""
    folder = tmp_path_factory.mktemp("gloo")
    torch.multiprocessing.spawn(live_run, args=(str(folder),), nprocs=2)
    return {
        mode: [
            [int(size) for size in line.split(",") if size.strip()]
            for line in (folder / f"{number}.txt").read_text().split("\n")
        ]
        for number, mode in enumerate(LIVE)
    }


def described() -> Model:
    layers = tuple(
        Layer(name=name, forward=0.0, backward=0.0,
              tensors=tuple(Tensor(n, tuple(p.shape)) for n, p in module.named_parameters()))
        for name, module in network().named_children()
    )  # fmt: skip
    return Model(name="live", layers=layers)


@pytest.mark.parametrize("mode", LIVE)
def test_buckets_of_a_live_run_are_the_predicted_ones(
    mode: str, logged: dict[str, list[list[int]]]
) -> None:
    knobs, job = Ddp(**LIVE[mode]), job_of(described())
    first, rebuilt = logged[mode]
    sizes = [[int(b[1]) for b in knobs.program(job, k).buckets] for k in (1, None)]
    assert sizes[0] == first
    assert sizes[1] == (rebuilt or sizes[0])
