"""Horovod: cycles, negotiation and fusion.

The hand-played example: gradients of 20, 30, 30, 10 and 50 MiB are ready at 1, 2, 4, 7 and 12 ms;
an all-reduce takes 1 ms and 1 ms per 10 MiB.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsim.backends.ideal import Ideal
from dpsim.compile.job import Gradient
from dpsim.compile.program import Cast, Program
from dpsim.compile.strategies import Job
from dpsim.compile.strategies.horovod import Horovod, cycles, fuse
from dpsim.core.record import Refused, build
from dpsim.describe.scenario import load, read
from dpsim.models import Layer, Model, Tensor
from dpsim.models.compute import layer_times
from dpsim.models.precision import Optimizer, Precision
from dpsim.play import Costs, Play, event, vectorised
from dpsim.predict.prediction import Prediction, predict
from dpsim.variability import Variability

MiB = 1024 * 1024
ENGINES = ["event", "vectorised"]


def first_step(*sets: str) -> Prediction:
    return predict(read("worked/horovod_first_step", sets))


# -- the worked example and its variants ------------------------------------------------------

#: knobs of the hand-played example -> step [ms], and how it comes about
BY_HAND = {
    # cycles 5, 10, 15: {20,30} 5-11, {30} 11-15, {10} 15-17, {50} 17-23
    (): 23.0,
    # everything of cycle 5 in one: {20,30,30} 5-14, {10} 14-16, {50} 16-22
    ("strategy.fusion_threshold=134217728",): 22.0,
    # nothing fused: {20} 5-8, {30} 8-12, {30} 12-16, {10} 16-18, {50} 18-24
    ("strategy.fusion_threshold=0",): 24.0,
    # cycles 1, 2, 4, 7, 12: {20} 1-4, {30} 4-8, {30} 8-12, {10} 12-14, {50} 14-20
    ("strategy.cycle_time=1",): 20.0,
    # a cycle at every gradient is the same here
    ("strategy.cycle_time=0",): 20.0,
    # cycles 2, 4, 8, 12: {20,30} 2-8, {30} 8-12, {10} 12-14, {50} 14-20
    ("strategy.cycle_time=2",): 20.0,
    # one cycle at 20: {20,30} 20-26, {30,10} 26-31, {50} 31-37
    ("strategy.cycle_time=20",): 37.0,
    # cycles 7 and 14: {20,30} 7-13, {30,10} 13-18, {50} 18-24
    ("strategy.cycle_time=7",): 24.0,
    # 20 MiB/ms: {20,30} 5-8.5, {30} 8.5-11, {10} 11-12.5, {50} 15-18.5
    ("collective.bandwidth=20 MiB/ms",): 18.5,
    # free communication still waits for the cycle
    ("collective={backend: free}",): 15.0,
    # a slow rank: ready at 2, 4, 8, 14, 24; cycles 5, 10, 15, 25: {20,30} 5-11, {30} 11-15,
    # {10} 15-17, {50} 25-31
    ("variability.slow_ranks={1: 2.0}",): 31.0,
    # alone there are no hooks and no cycles
    ("cluster.ranks=1",): 12.0,
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("sets", BY_HAND, ids=" ".join)
def test_variants_of_the_worked_example_played_by_hand(sets: tuple[str, ...], engine: str) -> None:
    found = first_step(*sets, f"engine={engine}").step_time_s
    assert found == pytest.approx(BY_HAND[sets] * 1e-3, rel=1e-12)


def by_clock(
    arrivals: list[tuple[int, int]], cycle: int, threshold: int, latency: int, rate: int
) -> int:
    """When the last all-reduce ends, told microsecond by microsecond of cycles [us].

    arrivals: (ready [us], bytes) in order; rate in bytes per us.
    """
    clock, free, queue = 0, 0, list(arrivals)
    while queue:
        clock += cycle
        here = [size for ready, size in queue if ready <= clock]
        queue = [(ready, size) for ready, size in queue if ready > clock]
        while here:
            total, rest, passed, closed = here[0], [], 0, False
            for size in here[1:]:
                if closed or total + size > threshold:
                    passed += size
                    closed = closed or total + passed > threshold
                    rest.append(size)
                else:
                    total += size
            here = rest
            free = max(free, clock) + latency + total // rate
    return max(free, arrivals[-1][0])


@pytest.mark.parametrize("seed", range(30))
def test_any_first_step_ends_when_a_clock_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, rate = int(rng.integers(1, 12)), 1024
    times = rng.integers(1, 4000, count).tolist()
    sizes = (rng.integers(1, 4000, count) * 4 * rate).tolist()
    cycle, threshold = int(rng.integers(1, 6000)), int(rng.integers(0, 20)) * 1024 * 1024
    layers = [
        {"name": f"l{i}", "parameters": size // 4, "forward": "0 s", "backward": f"{time} us"}
        for i, (time, size) in enumerate(zip(times, sizes, strict=True))
    ]
    data = {
        "model": {"layers": layers[::-1]},
        "cluster": {"ranks": 2},
        "collective": {"backend": "ideal", "latency": "100 us", "bandwidth": "1024 B/us"},
        "strategy": {"kind": "horovod", "cycle_time": cycle / 1e3, "fusion_threshold": threshold},
        "optimizer": {"kind": "none"},
        "iteration": 1,
    }
    arrivals = list(zip(np.cumsum(times).tolist(), sizes, strict=True))
    expected = by_clock(arrivals, cycle, threshold, 100, rate)
    for engine in ENGINES:
        found = predict(load(data | {"engine": engine}, Path(), "x")).step_time_s
        assert found == pytest.approx(expected * 1e-6, rel=1e-9)


# -- fusion -----------------------------------------------------------------------------------


def grads(*sizes: int | tuple[int, str]) -> list[Gradient]:
    pairs = [size if isinstance(size, tuple) else (size, "fp32") for size in sizes]
    return [Gradient(i, f"g{i}", s // 4, s, d, i) for i, (s, d) in enumerate(pairs)]


@pytest.mark.parametrize(
    ("sizes", "threshold", "expected"),
    [
        ((20, 30, 30), 64, [(0, 1), (2,)]),
        ((20, 30, 30), 80, [(0, 1, 2)]),
        ((100, 1, 1), 64, [(0,), (1, 2)]),  # larger than the threshold: alone
        ((10, 60, 10), 64, [(0,), (1,), (2,)]),  # 10 + 60 skipped is beyond 64: no look-ahead
        ((30, 30, 10), 44, [(0,), (1, 2)]),
        (((8, "fp16"), (8, "fp32"), (8, "fp16"), (8, "fp32")), 64, [(0, 2), (1, 3)]),
        (((8, "fp16"), (60, "fp32"), (8, "fp16")), 64, [(0,), (1,), (2,)]),
        ((4, 4, 4), 0, [(0,), (1,), (2,)]),
    ],
)
def test_a_response_takes_what_fits_and_looks_past_what_does_not(
    sizes: tuple[Any, ...], threshold: int, expected: list[tuple[int, ...]]
) -> None:
    found = fuse(grads(*sizes), range(len(sizes)), threshold)
    assert [response.tensors for response in found] == expected


def test_the_threshold_is_rounded_up_to_512_bytes_a_local_rank() -> None:
    assert Horovod().threshold(6) == 134_218_752
    assert Horovod().threshold(8) == 134_217_728
    assert Horovod(fusion_threshold=1).threshold(4) == 2048
    assert Horovod(fusion_threshold=0).threshold(4) == 0


def test_defaults_are_those_of_the_version() -> None:
    old, new = Horovod(horovod="0.20.3"), Horovod(horovod="0.21.0")  # type: ignore[arg-type]
    assert (old.cycle, old.threshold(8)) == (0.005, 64 * MiB)
    assert (new.cycle, new.threshold(8)) == (0.001, 128 * MiB)
    assert Horovod().cycle == 0.001


def test_tensors_of_a_fused_response_are_padded_to_16_bytes_since_0_21() -> None:
    job = job_of(4, control=True)
    for version, padded in (("0.20", 0), ("0.21", 16)):
        found = build(Horovod, {"horovod": version, "cycle_time": 1000}).launches(job, None)
        assert [x.response.padding for x in found] == [padded]  # four of 12 bytes beyond 16
    alone = Horovod(fusion_threshold=0, cycle_time=1000.0).launches(job, None)
    assert {x.response.padding for x in alone} == {0}


# -- cycles and negotiation -------------------------------------------------------------------


def test_a_negotiation_longer_than_the_cycle_delays_the_next_cycle() -> None:
    found = cycles([1.0, 2.0, 9.0], 0.0, 1.0, lambda waiting: 4.0 if waiting else 0.0)
    assert [(t, list(r)) for t, r in found] == [(5.0, [0]), (9.0, [1]), (13.0, [2])]


def test_a_gradient_ready_as_the_cycle_starts_takes_part() -> None:
    free = lambda waiting: 0.0  # noqa: E731
    assert cycles([5.0, 5.1], 0.0, 5.0, free) == [(5.0, range(0, 1)), (10.0, range(1, 2))]
    assert cycles([0.3], 0.0, 0.1, free) == [(pytest.approx(0.3), range(0, 1))]


def test_requests_on_rank_0_grow_with_ranks_and_cached_responses_with_their_logarithm() -> None:
    knobs = Horovod(host_latency=10e-6, request_cost=1e-6)
    cost = {
        (ranks, step): knobs._negotiation(job_of(ranks, control=True), 8, step)(8)
        for ranks in (2, 5, 1024)
        for step in (1, None)
    }
    assert cost[5, None] == pytest.approx(30e-6)  # 3 rounds reach 5 hosts, 2 do not
    assert cost[2, None] == pytest.approx(10e-6)
    assert cost[1024, None] == pytest.approx(100e-6)
    assert cost[2, 1] == pytest.approx(30e-6 + 8e-6)
    assert cost[1024, 1] == pytest.approx(300e-6 + 1023 * 8e-6)


def test_a_model_larger_than_the_cache_is_negotiated_in_every_step() -> None:
    job = job_of(8, control=True)
    first = Horovod()._negotiation(job, 8, 1)(8)
    assert Horovod(cache_capacity=7)._negotiation(job, 8, None)(8) == first
    assert Horovod(cache_capacity=8)._negotiation(job, 8, None)(8) < first
    without = Horovod(cache_capacity=0)._negotiation(job, 8, None)
    assert without(8) == pytest.approx(2 * 3 * 20e-6 + 7 * 8 * 1e-6)
    assert without(0) == pytest.approx(2 * 3 * 20e-6)  # they still meet, with empty lists


def test_in_steady_state_the_last_gradient_waits_the_mean_over_all_phases() -> None:
    """With one tensor the wait is the step's, so the mean can be played phase by phase."""
    job = job_of(4, sizes=(1000,))
    knobs = Horovod(cycle_time=5.0)
    (launch,) = knobs.launches(job, None)
    phases = np.linspace(0, 0.005, 1001)[:-1] + 2.5e-6
    waits = [cycles([launch.ready], p, 0.005, lambda n: 0.0)[0][0] - launch.ready for p in phases]
    assert launch.time - launch.ready == pytest.approx(0.0025)
    assert np.mean(waits) == pytest.approx(0.0025, rel=1e-3)


def test_steady_state_launches_in_half_a_cycle_after_backward() -> None:
    found = first_step("iteration=steady", "collective={backend: free}").step_time_s
    assert found == pytest.approx(0.0145, rel=1e-12)


# -- what must hold for any model -------------------------------------------------------------


def job_of(
    ranks: int,
    *,
    control: bool = False,
    sizes: tuple[int, ...] = (1_000_003, 1_000_003, 1_000_003, 1_000_003),
    micro_batches: int = 1,
) -> Job:
    layers = tuple(
        Layer(name=f"l{i}", tensors=(Tensor("w", (size,)), Tensor("b", (64,))),
              forward=1e-3, backward=2e-3)
        for i, size in enumerate(sizes)
    )  # fmt: skip
    if len(sizes) == 1:
        layers = (replace(layers[0], tensors=layers[0].tensors[:1]),)
    model = Model(name="toy", layers=layers)
    times = layer_times(model, None, "fp32", 1, 1, "none")
    return Job(model, ranks, times, micro_batches, 1, Precision(), Optimizer(), control=control,
               serial=1e-4, copy_bandwidth=1e12 if control else None, update=1e-10)  # fmt: skip


def reduced(program: Program) -> list[str]:
    return [name for _, _, names in program.buckets for name in names]


@pytest.mark.parametrize("iteration", [1, 2, None])
@pytest.mark.parametrize("micro_batches", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_every_gradient_byte_is_reduced_exactly_once(
    seed: int, micro_batches: int, iteration: int | None
) -> None:
    rng = np.random.default_rng(seed)
    sizes = tuple(int(n) for n in rng.integers(1, 10**6, 9))
    job = job_of(4, control=True, sizes=sizes, micro_batches=micro_batches)
    threshold = int(rng.integers(0, 6 * 10**6))
    knobs = Horovod(cycle_time=float(rng.uniform(0, 30)), fusion_threshold=threshold)
    program = knobs.program(job, iteration)
    names = [f"{layer.name}.{t.name}" for layer in job.model.layers for t in layer.tensors]
    assert sorted(reduced(program)) == sorted(names)
    payload = sum(op.bytes - op.padding for op in program.ops if op.kind == "collective")
    assert payload == 4 * job.model.parameters
    for op in program.ops:
        assert op.delay >= 0
        assert op.bytes <= max(knobs.threshold(4), 4 * max(sizes))


@pytest.mark.parametrize("ranks", range(1, 65))
def test_a_rank_sends_twice_the_gradients_times_n_minus_1_over_n(ranks: int) -> None:
    point = first_step(f"cluster.ranks={ranks}").points[0]
    gradients = 140 * MiB
    expected = 2 * (ranks - 1) / ranks * gradients
    assert point["bytes_sent_per_rank"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("iteration", [1, None])
@pytest.mark.parametrize("seed", range(6))
def test_engines_agree_under_jitter(seed: int, iteration: int | None) -> None:
    rng = np.random.default_rng(seed)
    ranks = int(rng.integers(2, 7))
    sizes = tuple(int(n) for n in rng.integers(1, 10**6, 6))
    job = job_of(ranks, control=True, sizes=sizes, micro_batches=int(rng.integers(1, 3)))
    knobs = Horovod(cycle_time=float(rng.uniform(0, 8)), fusion_threshold=2_000_000)
    cast = Cast.uniform(knobs.program(job, iteration), ranks)
    noise = Variability(jitter=0.2)
    play = Play(
        lambda k: cast, Costs(Ideal(latency=1e-3, bandwidth=1e9), None), 4, 0,
        lambda k: noise.factors(seed, k, ranks),
    )  # fmt: skip
    a, b = event.play(play), vectorised.play(play)
    assert a.durations == pytest.approx(b.durations, rel=1e-9)
    assert np.array(a.splits) == pytest.approx(np.array(b.splits), rel=1e-9, abs=1e-12)


def test_uneven_shares_form_the_same_responses_on_all_ranks() -> None:
    """The rank with one sample more decides; the others' gradients wait for it."""
    sets = ("cluster.ranks=3", "batch={global: 4}")
    steps = [first_step(*sets, f"engine={engine}").step_time_s for engine in ENGINES]
    # ready at 2, 4, 8, 14, 24 on rank 0, as with a rank that is twice as slow
    assert steps == [pytest.approx(0.031, rel=1e-12)] * 2


def test_jitter_shifts_launches_but_not_the_fusion() -> None:
    quiet = first_step().outcomes[0].played
    noisy = first_step("variability={jitter: 0.3, steps: 20}").outcomes[0].played
    assert quiet is not None
    assert noisy is not None
    programs = [p.timeline.last.cast.programs[0] for p in (quiet, noisy)]
    assert programs[0].buckets == programs[1].buckets
    assert noisy.step_time != pytest.approx(quiet.step_time, rel=1e-3)


def test_the_lower_end_of_the_interval_is_not_held_up_by_the_clock() -> None:
    """Delays follow compute: half the compute time halves what is not communication."""
    case = first_step("collective={backend: free}", "strategy.cycle_time=1").outcomes[0].case
    play = case.plays()[0]
    full, half = vectorised.play(play, lanes=((1.0, 1.0), (0.5, 1.0))).lanes
    assert full == pytest.approx(0.012)
    assert half == pytest.approx(0.006)


def test_copies_into_and_out_of_the_fusion_buffer_cost_time() -> None:
    job = job_of(4, control=True)
    fast = replace(job, copy_bandwidth=None)
    (copied,) = (op for op in Horovod(cycle_time=1000.0).program(job, 1).ops if op.delay)
    (free,) = (op for op in Horovod(cycle_time=1000.0).program(fast, 1).ops if op.delay)
    assert copied.delay - free.delay == pytest.approx(2 * copied.bytes / 1e12)
    assert any(op.name == "copy.out" for op in Horovod().program(job, 1).ops)
    single = Horovod(fusion_threshold=0).program(job, 1)
    assert all(op.kind != "copy" for op in single.ops)


def test_the_fusion_buffer_is_as_large_as_the_threshold_if_anything_is_fused() -> None:
    job = job_of(4)
    assert Horovod().memory(job)["fusion buffer"] == 128 * MiB
    assert "fusion buffer" not in Horovod(fusion_threshold=0).memory(job)
    assert "fusion buffer" not in Horovod().memory(replace(job, ranks=1))


# -- hierarchical all-reduce ------------------------------------------------------------------


def hierarchical(ranks: int, local: int, **rest: Any) -> Program:
    knobs = Horovod(hierarchical_allreduce=True, local_size=local, cycle_time=1000.0, **rest)
    return knobs.program(job_of(ranks, control=True), 1)


def test_copies_to_hosts_are_refused_where_there_are_none() -> None:
    with pytest.raises(Refused, match="only hierarchical_allreduce: true needs it") as caught:
        Horovod(pcie_bandwidth=1e9)
    assert caught.value.path == ("pcie_bandwidth",)


@pytest.mark.parametrize(("ranks", "local"), [(4, 2), (16, 8), (8, 8), (8, 1)])
def test_a_hierarchical_all_reduce_scatters_crosses_and_gathers(ranks: int, local: int) -> None:
    found = [op for op in hierarchical(ranks, local).ops if op.kind == "collective"]
    size = found[0].bytes
    assert [(op.operation, op.group, op.bytes) for op in found] == [
        ("reduce_scatter", "local", size),
        ("all_reduce", "cross", size / local),
        ("all_gather", "local", size),
    ]
    groups = Horovod(hierarchical_allreduce=True, local_size=local).groups(ranks)
    assert all(len(group) == local for group in groups["local"])
    assert all(len(group) == ranks // local for group in groups["cross"])


@pytest.mark.parametrize("local", [2, 4, 8])
def test_a_rank_sends_the_same_however_it_is_split(local: int) -> None:
    """2 (N-1)/N copies, as on one ring: 2 (L-1)/L inside and 2 (n-1)/n of 1/L across."""
    knobs = f"strategy={{kind: horovod, hierarchical_allreduce: true, local_size: {local}}}"
    point = first_step(knobs, "cluster.ranks=16", "engine=event").points[0]
    expected = 2 * 15 / 16 * 140 * MiB
    assert point["bytes_sent_per_rank"] == pytest.approx(expected, rel=1e-12)


def test_parts_cross_the_hosts_at_the_rate_of_the_link() -> None:
    slow, fast = (hierarchical(4, 2, pcie_bandwidth=rate) for rate in (1e9, 2e9))
    for name in ("AR0", "AG0"):
        a, b = (next(op for op in x.ops if op.name == name) for x in (slow, fast))
        assert a.delay == pytest.approx(a.bytes / (1 if name == "AR0" else 2) / 1e9)
        assert a.delay == pytest.approx(2 * b.delay)


def test_hierarchical_engines_agree_under_jitter() -> None:
    knobs = Horovod(hierarchical_allreduce=True, local_size=2, cycle_time=2.0,
                    fusion_threshold=5_000_000)  # fmt: skip
    job = job_of(6, control=True)
    cast = Cast((knobs.program(job, None),), (0,) * 6,
                {"world": (tuple(range(6)),), **knobs.groups(6)})  # fmt: skip
    noise = Variability(jitter=0.2)
    play = Play(lambda k: cast, Costs(Ideal(latency=1e-3, bandwidth=1e9), None), 4, 0,
                lambda k: noise.factors(1, k, 6))  # fmt: skip
    a, b = event.play(play), vectorised.play(play)
    assert a.durations == pytest.approx(b.durations, rel=1e-9)


def test_nodes_must_be_known_and_fit() -> None:
    with pytest.raises(Refused, match=r"strategy.local_size: .*horovodrun -H"):
        read("worked/horovod_first_step", ("strategy.hierarchical_allreduce=true",))
    with pytest.raises(Refused, match="6 ranks do not split into nodes of 4"):
        Horovod(hierarchical_allreduce=True, local_size=4).groups(6)
    with pytest.raises(Refused, match="a node has 8 ranks here, not 4"):
        Horovod(local_size=4).program(replace(job_of(16), local_size=8), None)


def test_adasum_is_refused_by_name() -> None:
    with pytest.raises(Refused, match=r"strategy.op: Adasum .* average and sum are"):
        read("worked/horovod_first_step", ("strategy.op=adasum",))
    assert first_step("strategy.op=sum").step_time_s == pytest.approx(0.023)


def test_uncached_requests_on_rank_0_grow_with_ranks_times_tensors() -> None:
    """Iteration 1 of 1,024 ranks: each request of each other rank; cached, only the rounds."""
    cost = {
        (n, step): Horovod()._negotiation(job_of(n, control=True), 8, step)(8)
        for n in (64, 128, 256, 512, 1024)
        for step in (1, None)
    }
    for n in (64, 128, 256, 512):
        assert cost[2 * n, 1] - cost[n, 1] == pytest.approx(3 * 20e-6 + n * 8 * 1e-6)
        assert cost[2 * n, None] - cost[n, None] == pytest.approx(20e-6)


def test_waiting_for_the_cycle_is_a_stall_and_the_host_limits() -> None:
    point = first_step("strategy.cycle_time=100", "collective={backend: free}").points[0]
    assert point["step_time_s"] == pytest.approx(0.1)
    assert point["stall_s"] == pytest.approx(0.088)
    assert point["bottleneck"] == "host"


def test_many_micro_batches_take_as_long_as_they_should() -> None:
    """39 times 12 ms before the first step's 23 ms begins; cycles go on from the step's start."""
    found = first_step("batch.accumulation=40", "strategy.cycle_time=1", "engine=event")
    assert found.step_time_s == pytest.approx(39 * 0.012 + 0.020, rel=1e-9)
