"""What both engines promise: one answer, closed forms, and an error where there is no number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from dpsim.backends import Backend, Phase, Plan
from dpsim.backends.ideal import Ideal
from dpsim.backends.nccl import Nccl
from dpsim.collectives import OPERATIONS
from dpsim.collectives.hierarchical import two_level
from dpsim.collectives.ring import Ring
from dpsim.compile.program import KINDS, SEND, Cast, Op, Program
from dpsim.compile.strategies import Job, Strategy
from dpsim.compile.strategies.ddp import Ddp
from dpsim.compile.strategies.fsdp import Fsdp
from dpsim.compile.timeline import Timeline
from dpsim.core import plugins
from dpsim.core.errors import SimulationError
from dpsim.machines.devices import Link
from dpsim.machines.fabrics.explicit import ExplicitNode, Wire
from dpsim.machines.fabrics.star import Star
from dpsim.machines.topology import Topology
from dpsim.models import Layer, Model, Tensor
from dpsim.models.compute import layer_times
from dpsim.models.precision import Optimizer, Precision
from dpsim.play import Costs, NotApplicable, Play, event, vectorised
from dpsim.play.network import SharedLinks, fair_rates
from dpsim.variability import Variability

ENGINES = [event, vectorised]
TOLERANCE = 1e-9
#: what a whole group does; a send is between two
COLLECTIVES = [operation for operation in OPERATIONS if operation != SEND]
BANDWIDTH, LATENCY = 10e9, 2e-6
#: strategies whose ranks form workers, in groups that a job has to have: tests/test_local_steps.py
WORKERS = {"diloco", "gossip", "post_local_sgd"}


def play_of(
    cast: Cast | Callable[[int], Cast],
    backend: Backend | None = None,
    *,
    topology: Topology | None = None,
    steps: int = 1,
    factors: Callable[[int], np.ndarray] | None = None,
    contention: float = 0.0,
) -> Play:
    of_step = (lambda k: cast) if isinstance(cast, Cast) else cast
    ranks = of_step(0).ranks
    costs = Costs(backend or Ideal(latency=1e-3), topology)
    return Play(of_step, costs, steps, 0, factors or (lambda k: np.ones(ranks)), contention)


def job_of(ranks: int, *, micro_batches: int = 1, buffers: bool = False) -> Job:
    layers = tuple(
        Layer(name=f"l{i}", tensors=(Tensor("w", (size,)), Tensor("b", (64,))),
              forward=1e-3 * (i + 1), backward=2e-3 * (i + 1))
        for i, size in enumerate((300_000, 900_000, 2_500_000, 400_000))
    )  # fmt: skip
    model = Model(name="toy", layers=layers, buffers=(("fp32", 100),) if buffers else ())
    times = layer_times(model, None, "fp32", 1, 1, "none")
    return Job(
        model, ranks, times, micro_batches, 1, Precision(), Optimizer(),
        serial=1e-4, copy_bandwidth=1e12, update=1e-10,
    )  # fmt: skip


def assert_same(a: Timeline, b: Timeline) -> None:
    assert a.durations == pytest.approx(b.durations, rel=TOLERANCE, abs=1e-12)
    assert np.array(a.splits) == pytest.approx(np.array(b.splits), rel=TOLERANCE, abs=1e-12)
    for theirs, ours in ((a.last.start, b.last.start), (a.last.end, b.last.end)):
        for x, y in zip(theirs, ours, strict=True):
            np.testing.assert_allclose(x, y, rtol=TOLERANCE, atol=1e-12)


# -- one answer -------------------------------------------------------------------------------

seconds = st.one_of(st.just(0.0), st.floats(1e-6, 1e-2))


@st.composite
def op_rest(draw: Any, index: int) -> dict[str, Any]:
    """What every operation may have: waits, issue costs, a blocked host."""
    after = draw(st.lists(st.integers(0, index - 1), max_size=2)) if index else []
    return {
        "after": tuple(after),
        "delay": draw(seconds) if after else 0.0,
        "after_step": draw(st.integers(0, 5)) == 0,
        "issue": draw(st.one_of(st.just(0.0), st.floats(1e-6, 1e-3))),
        "blocks_host": draw(st.integers(0, 7)) == 0,
    }


@st.composite
def programs(draw: Any, talk: Sequence[tuple[str, str, str, float]]) -> Program:
    """A role: collectives of `talk` in that order, with local work before, between and after."""
    ops: list[Op] = []
    for stream, group, operation, size in [*talk, ("", "", "", 0.0)]:
        for _ in range(draw(st.integers(0 if ops or stream else 1, 2))):
            kind = draw(st.sampled_from(KINDS))
            rest = draw(op_rest(len(ops)))
            ops.append(Op(f"L{len(ops)}", kind, seconds=draw(seconds), **rest))
        if stream:
            rest = draw(op_rest(len(ops)))
            ops.append(
                Op(f"C{len(ops)}", "collective", stream=stream, group=group, operation=operation,
                   bytes=size, **rest)
            )  # fmt: skip
    if all(op.kind == "collective" for op in ops):
        ops.append(Op("W", "wait", after=(len(ops) - 1,)))
    return Program(tuple(ops))


@st.composite
def plays(draw: Any) -> Play:
    ranks = draw(st.sampled_from([1, 2, 3, 4, 6, 8]))
    size = draw(st.sampled_from([d for d in range(1, ranks + 1) if ranks % d == 0]))
    groups = {
        "world": (tuple(range(ranks)),),
        "blocks": tuple(tuple(range(i, i + size)) for i in range(0, ranks, size)),
        "strided": tuple(tuple(range(i, ranks, ranks // size)) for i in range(ranks // size)),
    }
    roles = tuple(draw(st.lists(st.integers(0, 1), min_size=ranks, max_size=ranks)))
    roles = roles if len(set(roles)) == 2 else (0,) * ranks
    casts = []
    for _ in range(draw(st.integers(1, 2))):
        talk = draw(
            st.lists(
                st.tuples(
                    st.sampled_from(["a", "b"]), st.sampled_from(list(groups)),
                    st.sampled_from(COLLECTIVES), st.floats(0, 1e6),
                ),
                max_size=5,
            )
        )  # fmt: skip
        casts.append(Cast(tuple(draw(programs(talk)) for _ in set(roles)), roles, groups))
    steps = draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    factors = rng.lognormal(0.0, 0.5, (steps, ranks))
    backend = Ideal(latency=draw(seconds), bandwidth=1e9)
    return play_of(
        lambda k: casts[k % len(casts)], backend, steps=steps, factors=lambda k: factors[k],
        contention=draw(st.sampled_from([0.0, 0.5])),
    )  # fmt: skip


@settings(
    max_examples=200,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(plays())
def test_engines_agree_on_random_programs_and_splits_sum_to_the_step(play: Play) -> None:
    a = event.play(play)
    try:
        b = vectorised.play(play)
    except NotApplicable:  # a collective begins beside work that was issued before it
        assert play.contention
        b = a
    assert_same(a, b)
    for timeline in (a, b):
        for duration, split in zip(timeline.durations, timeline.splits, strict=True):
            assert split.total == pytest.approx(duration, rel=1e-12, abs=1e-12)
            assert min(split) >= -1e-12


@pytest.mark.parametrize("contention", [0.0, 0.7])
@pytest.mark.parametrize("steady", [True, False], ids=["steady state", "first iterations"])
@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize("name", sorted(set(plugins.names("strategies")) - WORKERS))
def test_engines_agree_on_every_strategy_under_jitter(
    name: str, micro_batches: int, steady: bool, contention: float
) -> None:
    strategy = plugins.find("strategies", name)()
    job = job_of(4, micro_batches=micro_batches, buffers=True)
    casts = [Cast.uniform(strategy.program(job, None if steady else k + 1), 4) for k in range(5)]
    noise = Variability(jitter=0.1)
    play = play_of(
        lambda k: casts[k],
        Ideal(latency=1e-4, bandwidth=1e10),
        steps=5,
        factors=lambda k: noise.factors(7, k, 4),
        contention=contention,
    )
    assert_same(event.play(play), vectorised.play(play))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("work", "talk", "slow"), [(8e-3, 4e-3, 0.5), (3e-3, 6e-3, 1.0)])
def test_work_beside_a_collective_is_slowed_while_bytes_move(
    engine: ModuleType, work: float, talk: float, slow: float
) -> None:
    """W of work beside T of a collective takes min(W (1 + c), T) while it lasts, the rest alone."""
    program = Program(
        (
            Op("before", "forward", seconds=1e-3),
            Op("reduce", "collective", stream="a", group="world", operation="all_reduce",
               bytes=1.0, after=(0,)),
            Op("beside", "backward", seconds=work),
            Op("step", "wait", after=(1, 2)),
        )
    )  # fmt: skip
    played = engine.play(play_of(Cast.uniform(program, 2), Ideal(latency=talk), contention=slow))
    done = min(work, talk / (1 + slow))
    beside = done * (1 + slow) + work - done
    assert played.step_time == pytest.approx(1e-3 + max(beside, talk), rel=1e-12)


def test_roles_that_order_independent_communicators_differently_are_for_the_event_engine() -> None:
    a = Op("A", "collective", stream="x", operation="all_reduce", bytes=1.0)
    b = Op("B", "collective", stream="y", operation="all_reduce", bytes=1.0)
    play = play_of(two_roles((a, b), (b, a)), Ideal(latency=2.0))
    assert event.play(play).last.end[0][:2].tolist() == [[2.0], [2.0]]
    with pytest.raises(NotApplicable, match="different orders"):
        vectorised.play(play)


def test_a_host_that_blocks_in_one_step_only_delays_the_next() -> None:
    talk = Op("C", "collective", stream="c", operation="broadcast", bytes=1.0, blocks_host=True)
    work = Op("F", "forward", seconds=1.0)
    casts = [Cast.uniform(Program(ops), 2) for ops in ((work, talk), (work,), (work, talk))]
    play = play_of(lambda k: casts[k], Ideal(latency=5.0), steps=3)
    for engine in ENGINES:
        assert engine.play(play).durations == (1.0, 5.0, 1.0)


@pytest.mark.parametrize("engine", ENGINES)
def test_serial_work_during_a_collective_is_a_stall_and_the_rest_is_exposed(
    engine: ModuleType,
) -> None:
    ops = (talk("C"), Op("host", "serial", seconds=4.0), Op("W", "wait", after=(0,)))
    played = engine.play(play_of(Cast.uniform(Program(ops), 2), Ideal(latency=10.0)))
    assert played.splits == ((0.0, 6.0, 0.0, 4.0),)


# -- closed forms -----------------------------------------------------------------------------


def machine(nodes: int, gpus: int = 1) -> Topology:
    """A star of nodes; every pair of GPUs is two links of BANDWIDTH, LATENCY in all, apart."""
    names = [f"{kind}{i}" for kind in ("gpu", "nic") for i in range(gpus)]
    wires = [Wire(source=f"gpu{i}", target=f"nic{i}", bandwidth=1e15) for i in range(gpus)]
    if gpus > 1:
        names.append("nvswitch0")
        wires += [
            Wire(source=f"gpu{i}", target="nvswitch0", bandwidth=BANDWIDTH, latency=LATENCY / 2)
            for i in range(gpus)
        ]
    network = Star(link=Link(bandwidth=BANDWIDTH, latency=LATENCY / 2))
    node = ExplicitNode(vertices=tuple(names), links=tuple(wires))
    return Topology(node, network, nodes=nodes, gpus=gpus, nics=gpus)


def seconds_of_one(operation: str, size: float, topology: Topology, detail: str, how: str) -> float:
    talk = Op("C", "collective", stream="c", operation=operation, bytes=size)
    cast = Cast.uniform(Program((talk, Op("W", "wait", after=(0,)))), topology.ranks)
    play = play_of(cast, Nccl(algorithm=how, launch=0.0), topology=topology)
    return event.play(play, detail=detail).step_time


@pytest.mark.parametrize("detail", ["collective", "rounds"])
@pytest.mark.parametrize("operation", Ring.operations)
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_a_ring_takes_its_closed_form(operation: str, ranks: int, detail: str) -> None:
    passes = 1 if operation in ("all_gather", "reduce_scatter") else 2
    expected = passes * (ranks - 1) * (LATENCY + 6e6 / (ranks * BANDWIDTH))
    found = seconds_of_one(operation, 6e6, machine(ranks), detail, "ring")
    assert found == pytest.approx(expected, rel=TOLERANCE)


@pytest.mark.parametrize("detail", ["collective", "rounds"])
@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize(("nodes", "gpus"), [(2, 2), (2, 4), (4, 2), (3, 3)])
def test_two_levels_take_their_closed_form(
    operation: str, nodes: int, gpus: int, detail: str
) -> None:
    found = seconds_of_one(operation, 6e6, machine(nodes, gpus), detail, "hierarchical")
    k = 2 if operation == "all_reduce" else 1
    inside = k * (gpus - 1) * (LATENCY + 6e6 / (gpus * BANDWIDTH))
    expected = inside + k * (nodes - 1) * (LATENCY + 6e6 / (gpus * nodes * BANDWIDTH))
    assert two_level(operation, gpus, nodes, 6e6, LATENCY, BANDWIDTH) == pytest.approx(expected)
    assert found == pytest.approx(expected, rel=TOLERANCE)


@pytest.mark.parametrize("ranks", [2, 4, 7])
@pytest.mark.parametrize("strategy", [Ddp(bucket_cap_mb=2), Fsdp()], ids=["ddp", "fsdp"])
def test_engines_agree_on_a_machine(strategy: Strategy, ranks: int) -> None:
    cast = Cast.uniform(strategy.program(job_of(ranks), None), ranks)
    noise = Variability(jitter=0.2)
    play = play_of(
        cast,
        Nccl(algorithm="ring"),
        topology=machine(ranks),
        steps=3,
        factors=lambda k: noise.factors(1, k, ranks),
    )
    assert_same(event.play(play), vectorised.play(play))


def test_communicators_that_share_links_at_once_are_for_the_event_engine() -> None:
    program = Fsdp(separate_reduce_scatter_group=True).program(job_of(4), None)
    play = play_of(
        Cast.uniform(program, 4), Nccl(algorithm="ring"), topology=slow(machine(4)), steps=2
    )
    with pytest.raises(NotApplicable, match="share links"):
        vectorised.play(play)
    shared = event.play(play).step_time
    alone = sum(
        play.costs.plan(op.operation, (0, 1, 2, 3), op.bytes).seconds
        for op in program.ops
        if op.kind == "collective"
    )
    assert shared > 0.9 * alone  # two at once take as long as one after the other


def slow(topology: Topology) -> Topology:
    """The same machine with cables that make communication the bottleneck."""
    for *_, data in topology.graph.edges(data=True):
        data["link"] = Link(bandwidth=data["link"].bandwidth / 50, latency=data["link"].latency)
    return topology


@pytest.mark.parametrize("detail", ["collective", "rounds"])
@pytest.mark.parametrize(
    ("partition", "times"),
    [(((0, 1), (2, 3)), 1.0), (((0, 2), (1, 3)), 2.0)],
    ids=["disjoint links", "one link"],
)
def test_two_groups_take_twice_as_long_on_one_link_and_no_longer_apart(
    partition: tuple[tuple[int, ...], ...], times: float, detail: str
) -> None:
    """Nodes of two GPUs behind one NIC: groups inside nodes share nothing, groups across share
    the cables."""
    gpus = ("gpu0", "gpu1", "nic0")
    wires = (
        Wire(source="gpu0", target="gpu1", bandwidth=BANDWIDTH),
        *(Wire(source=gpu, target="nic0", bandwidth=1e15) for gpu in gpus[:2]),
    )
    network = Star(link=Link(bandwidth=BANDWIDTH, latency=0.0))
    node = ExplicitNode(vertices=gpus, links=wires)
    topology = Topology(node, network, nodes=2, gpus=2, nics=1)
    talk = Op("C", "collective", stream="c", group="halves", operation="all_reduce", bytes=1e9)
    program = Program((talk, Op("W", "wait", after=(0,))))
    cast = Cast((program,), (0,) * 4, {"world": (tuple(range(4)),), "halves": partition})
    play = play_of(cast, Nccl(algorithm="ring", launch=0.0), topology=topology)
    found = event.play(play, detail=detail).step_time
    assert found == pytest.approx(times * 1e9 / BANDWIDTH, rel=1e-6)


# -- guards -----------------------------------------------------------------------------------


class Odd(Backend):
    """A backend whose plans are given."""

    def __init__(self, *phases: Phase) -> None:
        self.phases = phases

    def plan(self, operation: str, ranks: Any, size: float, topology: Any) -> Plan:
        return Plan(self.phases, None, "odd", size)


def two_roles(first: Sequence[Op], second: Sequence[Op]) -> Cast:
    ends = [(*ops, Op("W", "wait", after=tuple(range(len(ops))))) for ops in (first, second)]
    return Cast(tuple(Program(ops) for ops in ends), (0, 1), {"world": ((0, 1),)})


def talk(name: str, **rest: Any) -> Op:
    fields = {"stream": "c", "operation": "all_reduce", "bytes": 1.0, **rest}
    return Op(name, "collective", **fields)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_duration_that_is_no_time_is_an_error(engine: ModuleType, bad: float) -> None:
    cast = Cast.uniform(Program((Op("F", "forward", seconds=bad),)), 2)
    with pytest.raises(SimulationError, match="F"):
        engine.play(play_of(cast))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_a_factor_that_is_no_factor_is_an_error(engine: ModuleType, bad: float) -> None:
    cast = Cast.uniform(Program((Op("F", "forward", seconds=1.0),)), 2)
    with pytest.raises(SimulationError):
        engine.play(play_of(cast, factors=lambda k: np.array([1.0, bad])))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_an_issue_cost_or_a_collective_that_takes_no_time_is_an_error(
    engine: ModuleType, bad: float
) -> None:
    late = Cast.uniform(Program((Op("F", "forward", issue=bad),)), 2)
    with pytest.raises(SimulationError, match="issuing F"):
        engine.play(play_of(late))
    cast = Cast.uniform(Program((talk("C"), Op("W", "wait"))), 2)
    with pytest.raises(SimulationError, match="all_reduce"):
        engine.play(play_of(cast, Odd(Phase(bad))))


def test_a_program_refuses_negative_durations_itself() -> None:
    with pytest.raises(ValueError, match="negative"):
        Program((Op("F", "forward", seconds=-1.0),))
    with pytest.raises(ValueError, match="delayed after nothing"):
        Program((Op("F", "forward", delay=1.0),))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_delay_counts_from_the_last_end_that_is_waited_for(engine: ModuleType) -> None:
    """A 0-1, B 1-4; C (2 s) may start 2.5 s after A, at 3.5; D 0.5 s after C."""
    ops = (
        Op("A", "forward", seconds=1.0),
        talk("C", after=(0,), delay=2.5),
        Op("B", "backward", seconds=3.0),
        Op("D", "copy", seconds=1.0, after=(0, 1), delay=0.5),
    )
    played = engine.play(play_of(Cast.uniform(Program(ops), 2), Ideal(latency=2.0)))
    assert played.last.start[0][:, 0].tolist() == [0.0, 3.5, 1.0, 6.0]
    assert played.durations == (7.0,)
    assert played.splits == ((5.0, 1.5, 0.0, 0.5),)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_deadlock_names_who_waits(engine: ModuleType) -> None:
    first = (talk("A", stream="x"), talk("B", stream="y", after=(0,)))
    second = (talk("B", stream="y"), talk("A", stream="x", after=(0,)))
    with pytest.raises(SimulationError, match=r"deadlock.*A.*B") as caught:
        engine.play(play_of(two_roles(first, second)))
    assert "rank 0" in str(caught.value)
    assert "rank 1" in str(caught.value)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_collective_that_one_rank_never_joins_is_a_deadlock(engine: ModuleType) -> None:
    with pytest.raises(SimulationError, match=r"deadlock.*A2"):
        engine.play(play_of(two_roles((talk("A1"), talk("A2")), (talk("A1"),))))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("other", [{"bytes": 2.0}, {"operation": "broadcast"}])
def test_collectives_that_do_not_match_are_named(engine: ModuleType, other: Any) -> None:
    with pytest.raises(SimulationError, match=r"ranks disagree on c.*"):
        engine.play(play_of(two_roles((talk("AR0"),), (talk("AR1", **other),))))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_rank_outside_every_group_of_its_collective_is_named(engine: ModuleType) -> None:
    program = Program((talk("C", group="odd"), Op("W", "wait")))
    for groups in ({}, {"odd": ((1,),)}, {"odd": ((0,),)}):
        with pytest.raises(SimulationError, match="is in no group 'odd'"):
            engine.play(play_of(Cast((program,), (0, 0), groups)))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_rank_outside_does_not_slip_into_another_collective(engine: ModuleType) -> None:
    first, second = talk("A", group="one"), talk("B", group="other")
    groups = {"one": ((0, 1),), "other": ((1,),)}
    program = Program((first, second, Op("W", "wait", after=(0, 1))))
    with pytest.raises(SimulationError, match="rank 0 is in no group 'other', which B needs"):
        engine.play(play_of(Cast((program,), (0, 0), groups)))


def test_the_number_of_events_is_limited() -> None:
    cast = Cast.uniform(Ddp().program(job_of(4), None), 4)
    with pytest.raises(SimulationError, match="more than 10 events"):
        event.play(play_of(cast, steps=20), max_events=10)


def test_time_that_stands_still_is_an_error() -> None:
    ops = (Op("F", "forward", seconds=1.0), talk("C", after=(0,)), Op("W", "wait", after=(1,)))
    play = play_of(Cast.uniform(Program(ops), 2), Odd(*[Phase(1e-30)] * 50_000))
    with pytest.raises(SimulationError, match="time stands still at 1"):
        event.play(play)


def test_at_least_one_step_is_measured() -> None:
    cast = Cast.uniform(Program((Op("F", "forward"),)), 1)
    with pytest.raises(ValueError, match="at least one step"):
        Play(lambda k: cast, Costs(Ideal(), None), 2, 2, lambda k: np.ones(1))


# -- cost and fairness ------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [Ddp(), Fsdp()], ids=["ddp", "fsdp"])
@pytest.mark.parametrize("contention", [0.0, 0.5])
def test_events_grow_linearly_with_ranks(strategy: Strategy, contention: float) -> None:
    """And not at all where nothing that happens elsewhere can change what a rank computes."""
    counts = []
    for ranks in (8, 16, 32):
        cast = Cast.uniform(strategy.program(job_of(8), None), ranks)
        play = play_of(
            cast, steps=2, contention=contention,
            factors=lambda k, ranks=ranks: np.linspace(1.0, 1.01, ranks),  # type: ignore[misc]
        )  # fmt: skip
        counts.append(event.play(play).events)
    assert counts[2] - counts[1] == pytest.approx(2 * (counts[1] - counts[0]), rel=0.1)
    assert (counts[1] > counts[0]) == (contention > 0)


def random_flows(rng: np.random.Generator) -> tuple[list[dict[int, float]], np.ndarray]:
    capacity = rng.uniform(1.0, 10.0, int(rng.integers(1, 7)))
    flows = []
    for _ in range(int(rng.integers(1, 9))):
        links = rng.choice(len(capacity), int(rng.integers(1, len(capacity) + 1)), replace=False)
        flows.append({int(link): float(rng.choice([0.25, 0.5, 1.0])) for link in links})
    return flows, capacity


@pytest.mark.parametrize("seed", range(60))
def test_rates_are_max_min_fair(seed: int) -> None:
    """Every flow crosses a full link on which no flow is faster (Bertsekas and Gallager)."""
    flows, capacity = random_flows(np.random.default_rng(seed))
    rates = fair_rates(flows, lambda link: float(capacity[link]))  # type: ignore[call-overload]
    used = [sum(f.get(k, 0.0) * r for f, r in zip(flows, rates, strict=True))
            for k in range(len(capacity))]  # fmt: skip
    fastest = [max((r for f, r in zip(flows, rates, strict=True) if k in f), default=0.0)
               for k in range(len(capacity))]  # fmt: skip
    assert all(u <= c * (1 + 1e-12) for u, c in zip(used, capacity, strict=True))
    for flow, rate in zip(flows, rates, strict=True):
        assert any(
            used[k] >= capacity[k] * (1 - 1e-9) and rate >= fastest[k] * (1 - 1e-9) for k in flow
        )


@pytest.mark.parametrize("seed", range(20))
def test_the_slowest_rate_is_the_best_that_a_linear_program_finds(seed: int) -> None:
    flows, capacity = random_flows(np.random.default_rng(seed))
    rates = fair_rates(flows, lambda link: float(capacity[link]))  # type: ignore[call-overload]
    n = len(flows)
    use = np.array([[f.get(k, 0.0) for f in flows] + [0.0] for k in range(len(capacity))])
    floor = np.hstack([-np.eye(n), np.ones((n, 1))])
    best = linprog(
        [0.0] * n + [-1.0],
        A_ub=np.vstack([use, floor]),
        b_ub=np.concatenate([capacity, np.zeros(n)]),
    )
    assert min(rates) == pytest.approx(-best.fun, rel=1e-7)


def test_a_slow_sender_leaves_the_rest_of_a_link_to_others() -> None:
    """Ten on a link; one flow cannot do more than two, so the other gets eight."""
    env = simpy.Environment()
    network = SharedLinks(env, lambda link: 10.0)
    ends = {}

    def wait(name: str, event: simpy.Event) -> Any:
        yield event
        ends[name] = env.now

    env.process(wait("slow", network.transfer({"x": 20.0}, alone=10.0)))
    env.process(wait("fast", network.transfer({"x": 40.0})))
    env.run()
    assert ends == {"slow": pytest.approx(10.0), "fast": pytest.approx(5.0)}


def test_symmetric_flows_get_equal_shares_whatever_their_number() -> None:
    """4,096 flows, each over two of 4,096 links in a ring: every link carries two."""
    n = 4096
    flows = [{k: 1.0, (k + 1) % n: 1.0} for k in range(n)]
    assert set(fair_rates(flows, lambda link: 12.0)) == {6.0}
    assert fair_rates([{}, {0: 1.0}], lambda link: 3.0) == [float("inf"), 3.0]
