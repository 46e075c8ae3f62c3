"""DDP launches the buckets that torch launches, when torch launches them.

The hand-checked example: parameters p0 … p5 of 0.5, 4, 30, 20, 3 and 0.25 MiB, whose gradients are
ready at 20, 18, 16, 8, 3 and 1 ms; an all-reduce of S takes 1 ms + S/(10 MiB/ms).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from pydantic import ValidationError
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from dpsim.backends.ideal import Ideal
from dpsim.backends.ideal_ring import IdealRing
from dpsim.compile.compression import Payload
from dpsim.compile.compression.fp16 import Fp16
from dpsim.compile.program import Cast, Op, Program
from dpsim.compile.strategies import Job, TorchVersion
from dpsim.compile.strategies.ddp import Bucket, Ddp, assign_buckets
from dpsim.compile.timeline import Step
from dpsim.core.record import Refused
from dpsim.models import Layer, Model, Tensor
from dpsim.models.architectures.resnet50 import ResNet50
from dpsim.models.compute import LayerTime, layer_times
from dpsim.models.precision import Optimizer, Precision
from dpsim.play import Costs, Play, event, vectorised

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
    assert [b[2] for b in program.buckets] == [("p5.w", "p4.w"), ("p3.w", "p1.w", "p0.w", "p2.w")]
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


# -- hooks, batch statistics, Join, optimizer in backward --------------------------------------


def ring_bytes(program: Program, ranks: int) -> float:
    """Payload that a rank of a ring sends in one step."""
    ring = IdealRing(bandwidth=1e9)
    return sum(
        ring.plan(op.operation, tuple(range(ranks)), op.bytes, None).sent
        for op in program.ops
        if op.operation and not op.control
    )


@pytest.mark.parametrize("ranks", range(1, 65))
def test_a_rank_of_a_ring_sends_twice_its_share_whatever_the_buckets(ranks: int) -> None:
    for knobs in (Ddp(), Ddp(find_unused_parameters=True), Ddp(bucket_cap_mb_list=(1, 4))):
        job = replace(job_of(toy(), micro_batches=3), ranks=ranks)
        sent = ring_bytes(knobs.program(job, None), ranks)
        assert sent == pytest.approx(2 * 57.75 * MIB * (ranks - 1) / ranks, rel=1e-12)
    half = ring_bytes(Ddp(comm_hook="bf16").program(job, None), ranks)
    assert half == pytest.approx(57.75 * MIB * (ranks - 1) / ranks, rel=1e-12)


@pytest.mark.parametrize("hook", ["fp16", "bf16"])
def test_a_compressing_hook_halves_fp32_buckets_and_casts_twice(hook: Any) -> None:
    """Before: read 4 bytes an element, write 2, divide 2 in place; after: read 2, write 4."""
    knobs, job = Ddp(comm_hook=hook), job_of(toy(), copy_bandwidth=1e12)
    program = knobs.program(job, None)
    assert [op.bytes / MIB for op in collectives(program)] == [3.25 / 2, 25, 4.5 / 2]
    casts = {op.name: op.seconds for op in program.ops if op.name[0] in "HD"}
    for k, mib in enumerate((3.25, 50, 4.5)):
        elements = mib * MIB / 4
        assert casts[f"H{k}"] == pytest.approx((4 + 2 + 2 * 2) * elements / 1e12)
        assert casts[f"D{k}"] == pytest.approx((2 + 4) * elements / 1e12)
    assert knobs.memory(job)["compressed buckets"] == pytest.approx(57.75 / 2 * MIB)


def test_a_hook_leaves_16_bit_gradients_as_wide_as_they_are() -> None:
    model = toy(dtypes=["bf16"] * 6)
    program = Ddp(comm_hook="fp16").program(job_of(model), None)
    plain = Ddp().program(job_of(model), None)
    assert [op.bytes for op in collectives(program)] == [op.bytes for op in collectives(plain)]
    assert Ddp(comm_hook="fp16").memory(job_of(model))["compressed buckets"] == 0
    payload = Payload(((500_000,),), "bf16", 1_000_000)
    assert Fp16().decode(payload, 8).bytes == 0  # nothing is cast


def normed() -> Model:
    """Three layers of 2 ms and 3 ms with 1 MiB each; the first two normalise 256 channels."""
    layers = tuple(
        Layer(name=f"c{i}", tensors=(Tensor("w", (MIB // 4,)),), forward=2e-3, backward=3e-3,
              batch_norm=256 if i < 2 else 0)
        for i in range(3)
    )  # fmt: skip
    return Model(name="normed", layers=layers)


def test_batch_statistics_are_gathered_in_forward_and_reduced_in_backward() -> None:
    """256 channels on 8 ranks: 8 x 513 elements forward, 512 backward, in fp32."""
    job = replace(job_of(normed()), ranks=8)
    program = Ddp(sync_batchnorm=True).program(job, None)
    found = [(op.name, op.operation, op.bytes) for op in program.ops if op.name.startswith("SN")]
    assert found == [
        ("SN0", "all_gather", 4104 * 4),
        ("SN1", "all_gather", 4104 * 4),
        ("SN1'", "all_reduce", 512 * 4),
        ("SN0'", "all_reduce", 512 * 4),
    ]


def test_batch_statistics_queue_behind_buckets_and_nothing_runs_beside_them() -> None:
    """A bucket takes 8 ms and is issued 3 ms into backward; the statistics of the layer below
    are reduced after it."""
    cost = Ideal(latency=1e-3, bandwidth=MIB / 7e-3)
    cast = Cast.uniform(Ddp(sync_batchnorm=True).program(job_of(normed()), None), 2)
    play = Play(lambda k: cast, Costs(cost, None), 1, 0, lambda k: np.ones(2))
    step = event.play(play).last
    assert step.duration == pytest.approx(vectorised.play(play).last.duration, rel=1e-12)
    times = {span.name: span for span in step.spans((0,))}
    small = 1e-3 + 2 * 513 * 4 / (MIB / 7e-3)
    assert times["F1"].start == pytest.approx(2e-3 + small)
    begin = times["B2"].start
    assert times["AR0"].end == pytest.approx(begin + 11e-3)
    assert times["SN1'"].start == pytest.approx(begin + 11e-3)
    assert times["B1"].start == pytest.approx(times["SN1'"].end)
    assert times["B0"].start == pytest.approx(times["SN0'"].end)


def test_resnet50_normalises_in_53_layers() -> None:
    model = ResNet50().model()
    job = Job(model, 8, (LayerTime(1e-3, 2e-3, "compute"),) * len(model.layers), 1, 32,
              Precision(), Optimizer())  # fmt: skip
    ops = Ddp(sync_batchnorm=True).program(job, None).ops
    forward = [op.bytes for op in ops if op.operation == "all_gather"]
    assert len(forward) == 53
    assert sum(forward) == 4 * 8 * (2 * 26_560 + 53)
    assert sum(op.name.startswith("SN") for op in ops) == 106


@pytest.mark.parametrize("buffers", [(), (("fp32", 1000), ("int64", 10))])
def test_join_adds_two_scalars_to_a_forward_and_a_rank_where_buffers_are_broadcast(
    buffers: Any,
) -> None:
    program = Ddp(join=True).program(job_of(toy(buffers=buffers), control=True), None)
    found = [(op.name, op.bytes) for op in program.ops if op.control]
    around = [("join.rank", 8.0), ("buffers.fp32", 4000.0), ("buffers.int64", 80.0)]
    assert found == [("join", 4.0), *(around if buffers else []), ("join.sync", 4.0)]


def test_the_optimizer_in_backward_updates_what_has_been_reduced() -> None:
    """1 ms for each 10 Mi parameters.  Backward ends at 20 ms, buckets of 3.25, 50 and 4.5 MiB
    are there at 4.325, 22 and 23.45 ms."""
    job = job_of(toy(), update=1e-3 / (10 * MIB))
    program = Ddp(optimizer_in_backward=True).program(job, None)
    times = {span.name: span for span in played(program).spans((0,))}
    seconds = [mib * MIB / 4 * job.update for mib in (3.25, 50, 4.5)]
    starts = [20e-3, 22e-3, max(22e-3 + seconds[1], 23.45e-3)]
    for k, (start, length) in enumerate(zip(starts, seconds, strict=True)):
        assert times[f"O{k}"].start == pytest.approx(start, rel=1e-9)
        assert times[f"O{k}"].end == pytest.approx(start + length, rel=1e-9)
    total = job.update * toy().parameters
    assert played(Ddp().program(job, None)).duration == pytest.approx(23.45e-3 + total)
    assert played(program).duration == pytest.approx(23.45e-3 + seconds[2])


def test_without_no_sync_buckets_are_rebuilt_within_the_first_step() -> None:
    knobs = Ddp(no_sync=False)
    sizes = [op.bytes / MIB for op in collectives(knobs.program(job_of(toy(), micro_batches=2), 1))]
    assert sizes == [57.75, 3.25, 50, 4.5]
    static = replace(knobs, static_graph=True)
    sizes = [
        op.bytes / MIB for op in collectives(static.program(job_of(toy(), micro_batches=3), 1))
    ]
    assert sizes == [57.75, 57.75, 3.25, 50, 4.5]


def test_a_list_of_caps_holds_from_the_first_iteration_on() -> None:
    """Caps 4, 25, 25, …  Iteration 1 in registration order: p0+p1, p2, p3+p4+p5, launched in
    reverse; then as gradients arrive: p5+p4+p3, p2, p1+p0."""
    knobs = Ddp(bucket_cap_mb_list=(4, 25))
    sizes = [
        [op.bytes / MIB for op in collectives(knobs.program(job_of(toy()), k))] for k in (1, 2)
    ]
    assert sizes == [[23.25, 30, 4.5]] * 2
    members = [[b[2] for b in knobs.program(job_of(toy()), k).buckets] for k in (1, 2)]
    assert members[0][0] == ("p3.w", "p4.w", "p5.w")
    assert members[1][0] == ("p5.w", "p4.w", "p3.w")


def test_a_static_graph_reduces_its_map_in_the_first_backward() -> None:
    job = job_of(toy(), control=True)
    for iteration, expected in ((1, ["map", "AR0"]), (2, ["AR0"])):
        program = Ddp(static_graph=True).program(job, iteration)
        assert [op.name for op in collectives(program)] == expected


REFUSED: dict[str, tuple[Any, str]] = {
    "two hooks": (lambda: Ddp(comm_hook="fp16", optimizer_in_backward=True), "takes one hook"),
    "two caps": (lambda: Ddp(bucket_cap_mb=5, bucket_cap_mb_list=(5,)), "one of the two"),
    "no caps": (lambda: Ddp(bucket_cap_mb_list=()), "leave it out"),
    "an old torch": (
        lambda: Ddp(torch=TorchVersion((2, 4)), bucket_cap_mb_list=(5,)), "2.13 has"
    ),
    "a static graph inside no_sync": (
        lambda: Ddp(static_graph=True).program(job_of(toy(), micro_batches=2), None), "torch itself"
    ),
    "no batch normalisation": (
        lambda: Ddp(sync_batchnorm=True).program(job_of(toy()), None), "no batch normalisation"
    ),
    "Join over a pipeline": (lambda: Ddp(join=True).on_stage(job_of(toy())), "split over"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_go_together_is_refused_with_the_reason(what: str) -> None:
    make, reason = REFUSED[what]
    with pytest.raises((Refused, ValidationError), match=reason):
        make()


def test_torch_itself_stops_where_a_static_graph_begins_inside_no_sync(tmp_path: Path) -> None:
    """Why the combination is refused; and a second hook is."""
    torch.multiprocessing.spawn(stopping_run, args=(str(tmp_path),), nprocs=1)
    assert "expect_autograd_hooks_" in (tmp_path / "static").read_text()
    assert "can only be called once" in (tmp_path / "hooks").read_text()


def stopping_run(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=1)
    module = DistributedDataParallel(torch.nn.Linear(2, 2), static_graph=True)
    try:
        with module.no_sync():
            module(torch.ones(1, 2)).sum().backward()
        module(torch.ones(1, 2)).sum().backward()
        said = ""
    except RuntimeError as error:
        said = str(error)
    Path(folder, "static").write_text(said)
    module = DistributedDataParallel(torch.nn.Linear(2, 2))
    said = ""
    for _ in range(2):
        try:
            module.register_comm_hook(None, default_hooks.fp16_compress_hook)
        except RuntimeError as error:
            said = str(error)
    Path(folder, "hooks").write_text(said)
    os._exit(0)


@pytest.mark.parametrize(
    "knobs",
    [
        Ddp(join=True),
        Ddp(join=True, sync_batchnorm=True, comm_hook="fp16"),
        Ddp(static_graph=True),
        Ddp(no_sync=False),
        Ddp(optimizer_in_backward=True, find_unused_parameters=True),
    ],
    ids=str,
)
def test_what_goes_before_forward_waits_for_the_step_before(knobs: Ddp) -> None:
    """Both engines play the first four iterations alike, also where collectives slow compute."""
    model = replace(normed(), buffers=(("fp32", 1000), ("int64", 10)))
    micro_batches = 1 if knobs.static_graph else 2
    job = job_of(model, control=True, micro_batches=micro_batches, update=1e-9)
    casts = [Cast.uniform(knobs.program(job, k), 2) for k in (1, 2, 3, 4)]
    costs = Costs(TOY_COST, None)
    play = Play(lambda k: casts[k], costs, 4, 0, lambda k: np.ones(2), contention=0.3)
    a, b = event.play(play), vectorised.play(play)
    assert a.durations == pytest.approx(b.durations, rel=1e-9)


def test_350_million_fp32_parameters_with_adam_take_7_gigabytes_or_5_6() -> None:
    """4 + 4 + 8 bytes a parameter, and 4 of buckets unless gradients are views of them."""
    layer = Layer(name="l", tensors=(Tensor("w", (350_000_000,)),), forward=0.0, backward=1.0)
    job = replace(job_of(Model(name="m", layers=(layer,))), optimizer=Optimizer(kind="adam"))
    assert sum(Ddp().memory(job).values()) == pytest.approx(7.0e9)
    view = Ddp(gradient_as_bucket_view=True)
    assert sum(view.memory(job).values()) == pytest.approx(5.6e9)
    mixed = replace(job, precision=Precision(parameters="bf16", compute="bf16"))
    assert sum(view.memory(mixed).values()) == pytest.approx(16 * 350e6)
