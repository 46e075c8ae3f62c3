"""FSDP2 gathers, scatters and waits as torch does, interval by interval.

The hand-checked timelines have three equal groups, copies cost nothing, and one communicator
carries all-gathers (AG) and reduce-scatters (RS) in issue order.
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
from torch.distributed.fsdp import fully_shard

from dpsim.backends.ideal import Ideal
from dpsim.backends.ideal_ring import IdealRing
from dpsim.compile.program import Cast, Op, Program
from dpsim.compile.strategies import Job, TorchVersion
from dpsim.compile.strategies.fsdp import Fsdp
from dpsim.compile.timeline import Step
from dpsim.core.record import Refused, build
from dpsim.describe.scenario import load
from dpsim.models import Layer, Model, Tensor
from dpsim.models.compute import layer_times
from dpsim.models.precision import Optimizer, Precision
from dpsim.play import Costs, Play, event, vectorised
from dpsim.predict.prediction import predict


def toy(
    forward: float, backward: float, *, units: Sequence[str] = ("", "", ""), count: int = 1000
) -> Model:
    """Three layers; without units every layer is a group of its own."""
    layers = tuple(
        Layer(name=f"l{i}", tensors=(Tensor("w", (count,)),), forward=forward, backward=backward,
              unit=unit)
        for i, unit in enumerate(units)
    )  # fmt: skip
    return Model(name="toy", layers=layers)


def job_of(model: Model, *, ranks: int = 2, micro_batches: int = 1, **rest: Any) -> Job:
    times = layer_times(model, None, "fp32", 1, 1, "none")
    fields = {"precision": Precision(), "control": False, **rest}
    return Job(
        model, ranks, times, micro_batches, 1, optimizer=Optimizer(kind="none"), **fields
    )  # fmt: skip


def played(program: Program, latency: float, *, steps: int = 1) -> Step:
    cast = Cast.uniform(program, 2)
    play = Play(lambda k: cast, Costs(Ideal(latency=latency), None), steps, 0, lambda k: np.ones(2))
    a, b = event.play(play), vectorised.play(play)
    assert a.durations == pytest.approx(b.durations, rel=1e-9)
    return a.last


def order(program: Program) -> str:
    return " ".join(op.name for op in program.ops if op.operation)


def spans(text: str) -> dict[str, tuple[float, float]]:
    """ "AG0 0-2" as {"AG0": (0, 2)}."""
    words = text.split()
    pairs = zip(words[::2], words[1::2], strict=True)
    return {name: tuple(float(x) for x in when.split("-")) for name, when in pairs}  # type: ignore[misc]


# -- the two timelines ------------------------------------------------------------------------

OVERLAPPED = spans(
    "AG0 0-2 F0 2-5 AG1 2-4 F1 5-8 AG2 4-6 F2 8-11 AG2' 8-10 B2 11-17 AG1' 11-13 RS2 17-19 "
    "B1 17-23 AG0' 19-21 RS1 23-25 B0 23-29 RS0 29-31"
)
SATURATED = spans(
    "AG0 0-4 F0 4-6 AG1 4-8 F1 8-10 AG2 8-12 F2 12-14 AG2' 12-16 B2 16-20 AG1' 16-20 RS2 20-24 "
    "B1 20-24 AG0' 24-28 RS1 28-32 B0 28-32 RS0 32-36"
)


@pytest.mark.parametrize(
    ("forward", "backward", "latency", "expected", "step"),
    [(3, 6, 2, OVERLAPPED, 31), (2, 4, 4, SATURATED, 36)],
    ids=["overlapped", "saturated"],
)
def test_the_worked_timelines(
    forward: float, backward: float, latency: float, expected: dict[str, Any], step: float
) -> None:
    found = played(Fsdp().program(job_of(toy(forward, backward)), None), latency)
    times = {span.name: (span.start, span.end) for span in found.spans((0,))}
    for name, interval in expected.items():
        assert times[name] == pytest.approx(interval, rel=1e-12), name
    assert found.duration == pytest.approx(step, rel=1e-12)


def test_the_overlapped_timeline_computes_27_and_exposes_4() -> None:
    split = played(Fsdp().program(job_of(toy(3, 6)), None), 2).split()
    assert split.compute == pytest.approx(27)
    assert split.exposed_communication == pytest.approx(4)
    assert split.stall == pytest.approx(0)


def test_a_communicator_of_their_own_lets_reduce_scatters_overlap_gathers() -> None:
    knobs = Fsdp(separate_reduce_scatter_group=True)
    assert played(knobs.program(job_of(toy(2, 4)), None), 4).duration == pytest.approx(32)


def test_without_reshard_backward_gathers_nothing() -> None:
    knobs = Fsdp(reshard_after_forward=False)
    assert played(knobs.program(job_of(toy(2, 4)), None), 4).duration == pytest.approx(30)


def test_the_first_gather_of_a_step_waits_for_the_optimizer() -> None:
    program = Fsdp().program(job_of(toy(3, 6), update=1e-3), None)
    step = played(program, 2, steps=3)
    assert step.duration == pytest.approx(31 + 1.5)
    assert step.spans((0,))[0][-2:] == pytest.approx((0.0, 2.0))


# -- order, counts and bytes ------------------------------------------------------------------


def test_collectives_are_issued_in_torchs_order() -> None:
    job = job_of(toy(1, 2))
    assert order(Fsdp().program(job, None)) == "AG0 AG1 AG2 AG2' AG1' RS2 AG0' RS1 RS0"
    kept = Fsdp(reshard_after_forward=False).program(job, None)
    assert order(kept) == "AG0 AG1 AG2 RS2 RS1 RS0"


@pytest.mark.parametrize(("reshard", "multiple"), [(True, 3), (False, 2)])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_rank_sends_its_share_of_every_pass(reshard: bool, multiple: int, ranks: int) -> None:
    model = toy(1, 2)
    program = Fsdp(reshard_after_forward=reshard).program(job_of(model, ranks=ranks), None)
    ring = IdealRing(bandwidth=1e9)
    sent = sum(
        ring.plan(op.operation, tuple(range(ranks)), op.bytes, None).sent
        for op in program.ops
        if op.operation
    )
    assert sent == pytest.approx(multiple * 4 * model.parameters * (ranks - 1) / ranks)


def test_seven_billion_bf16_parameters_on_8_ranks_send_36_75_gb() -> None:
    job = job_of(
        toy(1, 2, count=7_000_000_000 // 3), ranks=8,
        precision=Precision(parameters="bf16", compute="bf16"),
    )  # fmt: skip
    for reshard, gigabytes in ((True, 36.75), (False, 24.5)):
        ops = Fsdp(reshard_after_forward=reshard).program(job, None).ops
        assert sum(op.bytes for op in ops) * 7 / 8 == pytest.approx(gigabytes * 1e9, rel=1e-8)


def test_accumulation_gathers_in_every_micro_batch_and_scatters_in_the_last() -> None:
    program = Fsdp().program(job_of(toy(1, 2), micro_batches=2), None)
    assert order(program) == (
        "AG0.0 AG1.0 AG2.0 AG2.0' AG1.0' AG0.0' "
        "AG0.1 AG1.1 AG2.1 AG2.1' AG1.1' RS2.1 AG0.1' RS1.1 RS0.1"
    )
    assert sum(op.operation == "all_gather" for op in program.ops) == 12


def test_padding_makes_the_first_dimension_even() -> None:
    model = Model(
        name="odd",
        layers=(Layer(name="l", tensors=(Tensor("w", (10, 6)),), forward=1.0, backward=1.0),),
    )
    gather = Fsdp().program(job_of(model, ranks=4, control=True), None).ops[0]
    assert (gather.bytes, gather.padding) == (12 * 6 * 4, 2 * 6 * 4)


@pytest.mark.parametrize(
    ("torch_version", "reduce", "expected"),
    [((2, 13), None, 2), ((2, 15), None, 4), ((2, 15), "bf16", 2), ((2, 13), "fp32", 4)],
)
def test_gradients_travel_in_the_dtype_of_the_torch_version(
    torch_version: tuple[int, int], reduce: Any, expected: int
) -> None:
    job = job_of(toy(1, 2), precision=Precision(compute="bf16", reduce=reduce))
    ops = Fsdp(torch=TorchVersion(torch_version)).program(job, None).ops
    assert {op.bytes for op in ops if op.operation == "all_gather"} == {2000.0}
    assert {op.bytes for op in ops if op.operation == "reduce_scatter"} == {expected * 1000.0}


# -- groups -----------------------------------------------------------------------------------


def test_layers_of_a_unit_are_one_group() -> None:
    program = Fsdp().program(job_of(toy(1, 2, units=("a", "a", "b"))), None)
    assert order(program) == "AG0 AG1 AG1' AG0' RS1 RS0"
    assert [op.bytes for op in program.ops if op.operation] == [8e3, 4e3, 4e3, 8e3, 4e3, 8e3]


def test_the_root_stays_gathered_and_scatters_last() -> None:
    program = Fsdp().program(job_of(toy(1, 2, units=("", "a", ""))), None)
    # group 0 is the root: first and last layer in one gather, none in backward
    assert order(program) == "AG0 AG1 AG1' RS1 RS0"
    first = program.ops[0]
    assert (first.name, first.bytes) == ("AG0", 8000.0)


def test_at_most_two_gathers_run_ahead() -> None:
    """The gather of group i+1 starts no earlier than the copy-out of group i-1."""
    model = Model(
        name="deep",
        layers=tuple(
            Layer(name=f"l{i}", tensors=(Tensor("w", (8,)),), forward=5.0, backward=5.0)
            for i in range(6)
        ),
    )
    step = played(Fsdp().program(job_of(model), None), 1.0)
    times = {span.name: span for span in step.spans((0,))}
    for i in range(2, 6):
        free = max(times[f"AG{i - 1}"].end, times[f"CO{i - 2}"].end)
        assert times[f"AG{i}"].start == pytest.approx(free)


def test_compute_waits_until_one_reduce_scatter_input_is_left() -> None:
    knobs = Fsdp(reshard_after_forward=False)
    times = {s.name: s for s in played(knobs.program(job_of(toy(1, 1)), None), 10.0).spans((0,))}
    assert times["B1"].end < times["RS2"].end == times["CI1"].start
    assert times["B0"].end < times["RS1"].end == times["CI0"].start


# -- a live run -------------------------------------------------------------------------------

WIDTHS = (8, 16, 24, 32)
GATHERS = ("all_gather_into_tensor", "all_gather_single")
SCATTERS = ("reduce_scatter_tensor", "reduce_scatter_single")


def record(log: list[str]) -> None:
    """Make torch note every gather ("AG") and reduce-scatter ("RS") with its full elements."""

    def noted(name: str, letters: str) -> None:
        original = getattr(dist, name)

        def call(*args: Any, **rest: Any) -> Any:
            tensors = [t for t in (*args, *rest.values()) if isinstance(t, torch.Tensor)]
            log.append(f"{letters}:{max(t.numel() for t in tensors)}")
            return original(*args, **rest)

        setattr(dist, name, call)

    for letters, names in (("AG", GATHERS), ("RS", SCATTERS)):
        for name in names:
            if hasattr(dist, name):
                noted(name, letters)


def live_run(rank: int, folder: str) -> None:
    """One of two gloo processes: one step, resharding or not; rank 0 writes the order."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    log: list[str] = []
    record(log)
    for reshard in (True, False):
        sizes = pairwise(WIDTHS)
        model = torch.nn.Sequential(*(torch.nn.Linear(a, b, bias=False) for a, b in sizes))
        for layer in model:
            fully_shard(layer, reshard_after_forward=reshard)
        fully_shard(model)
        log.clear()
        model(torch.randn(2, WIDTHS[0], requires_grad=True)).sum().backward()
        if rank == 0:
            Path(folder, f"{reshard}.txt").write_text(" ".join(log))
    dist.barrier()
    os._exit(0)  # gloo's threads now and then abort an orderly exit


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gloo")
    torch.multiprocessing.spawn(live_run, args=(str(folder),), nprocs=2)
    return folder


@pytest.mark.parametrize("reshard", [True, False])
def test_a_live_run_issues_the_predicted_collectives(reshard: bool, recorded: Path) -> None:
    layers = tuple(
        Layer(name=f"l{i}", tensors=(Tensor("weight", (b, a)),), forward=1.0, backward=1.0)
        for i, (a, b) in enumerate(pairwise(WIDTHS))
    )
    job = job_of(Model(name="live", layers=layers), control=True)
    letters = {"all_gather": "AG", "reduce_scatter": "RS"}
    ops: list[Op] = [
        op for op in Fsdp(reshard_after_forward=reshard).program(job, None).ops if op.operation
    ]
    expected = " ".join(f"{letters[op.operation]}:{int(op.bytes / 4)}" for op in ops)
    assert (recorded / f"{reshard}.txt").read_text() == expected


# -- hybrid sharding, fewer ranks after forward, accumulation, dtypes ---------------------------


def ring_bytes(strategy: Any, job: Job) -> float:
    """Payload that a rank of rings sends in one step."""
    ring = IdealRing(bandwidth=1e9)
    groups = {"world": (tuple(range(job.ranks)),), **strategy.groups(job.ranks)}
    return sum(
        ring.plan(op.operation, groups[op.group][0], op.bytes - op.padding, None).sent
        for op in strategy.program(job, None).ops
        if op.operation
    )


@pytest.mark.parametrize("ranks", range(1, 65))
def test_a_rank_of_a_ring_sends_the_published_multiples(ranks: int) -> None:
    """3 Psi (N-1)/N resharding, 2 without; with shards of s and r replicas
    3 Psi (s-1)/s + 2 (Psi/s) (r-1)/r."""
    model = toy(1, 2)
    size, job = 4.0 * model.parameters, job_of(model, ranks=ranks, control=True)
    assert ring_bytes(Fsdp(), job) == pytest.approx(3 * size * (ranks - 1) / ranks, rel=1e-12)
    kept = ring_bytes(Fsdp(reshard_after_forward=False), job)
    assert kept == pytest.approx(2 * size * (ranks - 1) / ranks, rel=1e-12)
    for s in (s for s in range(1, ranks + 1) if ranks % s == 0):
        r = ranks // s
        expected = 3 * size * (s - 1) / s + 2 * (size / s) * (r - 1) / r
        assert ring_bytes(Fsdp(shard=s), job) == pytest.approx(expected, rel=1e-12)
        fewer = size * (2 * (ranks - 1) / ranks + (s - 1) / s)
        assert ring_bytes(Fsdp(reshard_after_forward=s), job) == pytest.approx(fewer, rel=1e-12)


def test_hybrid_sharding_sends_the_worked_38_gigabytes() -> None:
    """7e9 parameters in bf16, shards of 8, 4 replicas: 36.75 + 2.625 GB."""
    precision = Precision(parameters="bf16", compute="bf16")
    model = toy(1, 2, count=7_000_000_000 // 3)
    job = job_of(model, ranks=32, precision=precision)
    assert ring_bytes(Fsdp(shard=8), job) == pytest.approx(39.375e9, rel=1e-8)


def test_hybrid_shards_are_consecutive_ranks_and_replicas_are_strided() -> None:
    groups = Fsdp(shard=4).groups(8)
    assert groups["shard"] == (range(4), range(4, 8))
    assert [list(group) for group in groups["replicate"]] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert Fsdp(shard=8).groups(8) == {}
    assert Fsdp(shard=8).groups(2) == {}  # fewer ranks: all share
    assert Fsdp(reshard_after_forward=4).groups(1) == {}  # nothing to reshard


def hybrid_step(knobs: Fsdp, latency: float, **times: float) -> dict[str, Any]:
    program = knobs.program(job_of(toy(**times), ranks=4), None)
    cast = Cast((program,), (0,) * 4, {"world": ((0, 1, 2, 3),), **knobs.groups(4)})
    play = Play(lambda k: cast, Costs(Ideal(latency=latency), None), 1, 0, lambda k: np.ones(4))
    a, b = event.play(play), vectorised.play(play)
    assert a.durations == pytest.approx(b.durations, rel=1e-9)
    return {span.name: (span.start, span.end) for span in a.last.spans((0,))}


def test_the_all_reduce_of_a_shard_runs_beside_the_next_gather() -> None:
    """The overlapped timeline with shards of 2 and 2 replicas: each reduce-scatter is followed by
    an all-reduce on another communicator; only the last one is exposed."""
    found = hybrid_step(Fsdp(shard=2), 2, forward=3, backward=6)
    for name, interval in OVERLAPPED.items():
        assert found[name] == pytest.approx(interval, rel=1e-12), name
    assert found["AR2"] == pytest.approx((19, 21))  # AG0' runs at the same time
    assert found["AR1"] == pytest.approx((25, 27))
    assert found["AR0"] == pytest.approx((31, 33))
    assert found["O"][1] == pytest.approx(33)


def test_parameters_kept_by_fewer_ranks_are_gathered_by_them_on_their_communicator() -> None:
    knobs = Fsdp(reshard_after_forward=2)
    assert knobs.groups(4)["post_forward"] == (range(2), range(2, 4))
    ops = knobs.program(job_of(toy(1, 2), ranks=4), None).ops
    again = [op for op in ops if op.name.endswith("'") and op.operation]
    assert [(op.name, op.group) for op in again] == [
        ("AG2'", "post_forward"), ("AG1'", "post_forward"), ("AG0'", "post_forward"),
    ]  # fmt: skip
    assert {op.stream for op in again} == {"fsdp.post_forward"}
    first = [op for op in ops if op.operation == "all_gather" and op not in again]
    assert {(op.group, op.stream) for op in first} == {("world", "fsdp")}
    # a rank copies its larger shard, half of the group, before backward's gather
    copies = {op.name: i for i, op in enumerate(ops) if op.name.startswith("CP")}
    assert set(copies) == {"CP0", "CP1", "CP2"}
    assert all(op.after[0] >= copies[f"CP{op.name[2]}"] for op in again)


@pytest.mark.parametrize(("asked", "like"), [(1, False), (4, True)])
def test_one_and_all_ranks_are_torchs_other_words_for_false_and_true(
    asked: int, like: bool
) -> None:
    job = job_of(toy(1, 2), ranks=4)
    assert Fsdp(reshard_after_forward=asked).program(job, None) == Fsdp(
        reshard_after_forward=like
    ).program(job, None)


def test_accumulation_modes() -> None:
    job = job_of(toy(1, 2), micro_batches=2)
    assert order(Fsdp(no_sync=False).program(job, None)) == (
        "AG0.0 AG1.0 AG2.0 AG2.0' AG1.0' RS2.0 AG0.0' RS1.0 RS0.0 "
        "AG0.1 AG1.1 AG2.1 AG2.1' AG1.1' RS2.1 AG0.1' RS1.1 RS0.1"
    )
    assert order(Fsdp(reshard_after_backward=False).program(job, None)) == (
        "AG0.0 AG1.0 AG2.0 AG2.0' AG1.0' AG0.0' AG2.1' AG1.1' RS2.1 AG0.1' RS1.1 RS0.1"
    )
    both = Fsdp(reshard_after_backward=False, reshard_after_forward=False)
    assert order(both.program(job, None)) == "AG0.0 AG1.0 AG2.0 RS2.1 RS1.1 RS0.1"
    late = Fsdp(shard=2, no_sync=False, all_reduce_in_last=True)
    job = job_of(toy(1, 2), micro_batches=2, ranks=4)
    reduced = [n for n in order(late.program(job, None)).split() if n.startswith("AR")]
    assert reduced == ["AR2.1", "AR1.1", "AR0.1"]


def test_the_root_is_gathered_first_and_a_unit_on_raw_data_is_reduced_last() -> None:
    program = Fsdp().program(job_of(toy(1, 2, units=("a", "b", ""))), None)
    # group 0 is the root, which holds the last layer only; group 1's input needs no gradient
    assert order(program) == "AG0 AG1 AG2 AG2' AG1' RS2 RS0 RS1"


@pytest.mark.parametrize(("buffers", "awaited"), [(1, ["RS2", "RS1"]), (2, ["RS2"])])
def test_compute_waits_for_reduce_scatters_beyond_the_kept_input_buffers(
    buffers: int, awaited: list[str]
) -> None:
    knobs = Fsdp(reshard_after_forward=False, reduce_scatter_max_input_buffers=buffers)
    ops = knobs.program(job_of(toy(1, 1)), None).ops
    waits = [op for op in ops if op.name.startswith("wait.")]
    assert [ops[op.after[0]].name for op in waits] == awaited
    times = {s.name: s for s in played(Program(ops), 10.0).spans((0,))}
    assert times["B0"].start == (times["RS2"].end if buffers == 1 else times["B1"].end)


@pytest.mark.parametrize(
    ("asked", "gathered"), [(False, 2 * (64 * 64 + 64)), (True, 64 * 64 + 2 * 64)]
)
def test_8_bit_compute_gathers_8_bit_matrices_only_where_asked(asked: bool, gathered: int) -> None:
    tensors = (Tensor("weight", (64, 64)), Tensor("bias", (64,)))
    layer = Layer(name="l", tensors=tensors, forward=1.0, backward=2.0, unit="a")
    job = job_of(Model(name="m", layers=(layer,)), precision=Precision(compute="fp8"))
    ops = Fsdp(float8_all_gather=asked).program(job, None).ops
    assert {op.bytes for op in ops if op.operation == "all_gather"} == {gathered}
    assert {op.bytes for op in ops if op.operation == "reduce_scatter"} == {2.0 * (64 * 64 + 64)}


def test_memory_of_shards_and_of_what_is_gathered() -> None:
    """Mixed-precision Adam keeps 16 bytes a parameter, over N; hybrid sharding over s."""
    precision = Precision(parameters="bf16", compute="bf16")
    job = replace(job_of(toy(1, 2), ranks=8, precision=precision), optimizer=Optimizer())
    states = ("parameters", "gradients", "optimizer states")
    for knobs, shards in ((Fsdp(), 8), (Fsdp(shard=2), 2), (Fsdp(shard=4), 4)):
        parts = knobs.memory(job)
        assert sum(parts[name] for name in states) == pytest.approx(16 * 3000 / shards)
        assert parts["gathered parameters"] == 2 * (2000 + 2000)  # two outputs, two groups
        assert parts["unsharded gradients"] == 2000
        assert parts["reduce-scatter inputs"] == 2 * 2000
    assert Fsdp(reshard_after_forward=False).memory(job)["gathered parameters"] == 6000 + 4000
    kept = Fsdp(reshard_after_forward=2).memory(job)["gathered parameters"]
    assert kept == 4000 + 6000 / 2 + 4000
    wide = replace(job, precision=Precision(parameters="fp32", compute="bf16", reduce="bf16"))
    assert Fsdp(shard=2).memory(wide)["all-reduce inputs"] == 6000 / 2
    accumulating = replace(wide, micro_batches=4)
    assert Fsdp().memory(accumulating)["unsharded gradients"] == 6000
    assert Fsdp(no_sync=False).memory(accumulating)["unsharded gradients"] == 2000


REFUSED: dict[str, tuple[Any, str]] = {
    "shards that do not divide": (lambda: Fsdp(shard=3).groups(8), "do not split into groups of 3"),
    "fewer ranks that do not divide": (
        lambda: Fsdp(reshard_after_forward=3).groups(8), "true, false or a divisor of 8"
    ),
    "more ranks than share": (
        lambda: Fsdp(reshard_after_forward=8).groups(4), "true, false or a divisor of 4"
    ),
    "a late all-reduce without replicas": (
        lambda: Fsdp(no_sync=False, all_reduce_in_last=True), "needs shard"
    ),
    "a late all-reduce of what is late": (
        lambda: Fsdp(shard=2, all_reduce_in_last=True), "needs no_sync: false"
    ),
    "8-bit gathers of 16-bit compute": (
        lambda: Fsdp(float8_all_gather=True).program(job_of(toy(1, 2)), None), "compute: fp8"
    ),
    "DDP's unused parameters": (
        lambda: build(Fsdp, {"find_unused_parameters": True}), "unknown key"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_go_together_is_refused_with_the_reason(what: str) -> None:
    make, reason = REFUSED[what]
    with pytest.raises((Refused, ValidationError), match=reason):
        make()


def test_experts_in_one_tensor_are_padded_and_that_is_told() -> None:
    """Mixtral's 8 experts over 64 ranks: their tensors are padded to 64 rows, as torch pads
    dimension 0; XLA lays them out along another one."""
    data: dict[str, Any] = {
        "model": {"huggingface": "mixtral-8x7b-v0.1", "sequence_length": 128},
        "cluster": {"machine": "dgx-h100", "ranks": 64},
        "strategy": {"kind": "fsdp"}, "precision": {"compute": "bf16"},
        "batch": {"per_device": 1},
    }  # fmt: skip
    found = predict(load(data, Path(), "test"))
    (told,) = [text for text in found.warnings if "fully_shard pads" in text]
    assert "7.76 times the parameters travel" in told
    few = predict(load({**data, "cluster": {"machine": "dgx-h100", "ranks": 8}}, Path(), "test"))
    slice_of_8 = {"machine": "tpu-v6e", "ranks": 64, "gpus_per_node": 64}
    chips = {**data, "cluster": slice_of_8, "collective": {"backend": "ici"}}
    for other in (few, predict(load(chips, Path(), "test"))):
        assert not [text for text in other.warnings if "fully_shard pads" in text]
