"""The event engine agrees with a player that shares no code with it, to 1e-9 relative.

The machine is a star of single-GPU nodes: a rank's GPU reaches its NIC over a link that is never
the narrowest, and the NIC reaches the switch over the link that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from independent import Player, Star, shares

from dpsim.backends.nccl import Nccl
from dpsim.compile.program import Cast, Op, Program
from dpsim.compile.strategies import Job, Strategy
from dpsim.compile.strategies.ddp import Ddp
from dpsim.compile.strategies.fsdp import Fsdp
from dpsim.compile.strategies.horovod import Horovod
from dpsim.compile.strategies.zero import Zero
from dpsim.machines.devices import Link
from dpsim.machines.fabrics.explicit import ExplicitNode, Wire
from dpsim.machines.fabrics.star import Star as StarNetwork
from dpsim.machines.topology import Topology
from dpsim.models import Layer, Model, Tensor
from dpsim.models.compute import layer_times
from dpsim.models.precision import Optimizer, Precision
from dpsim.play import Costs, Play, event

BANDWIDTH, LATENCY, LAUNCH = 10e9, 2e-6, 8.4e-6
TOLERANCE = 1e-9


def machine(ranks: int) -> Topology:
    wire = Wire(source="gpu0", target="nic0", bandwidth=1e15)
    node = ExplicitNode(vertices=("gpu0", "nic0"), links=(wire,))
    network = StarNetwork(link=Link(bandwidth=BANDWIDTH, latency=LATENCY / 2))
    return Topology(node, network, nodes=ranks, gpus=1, nics=1)


def star(ranks: int) -> Star:
    return Star((BANDWIDTH,) * ranks, (BANDWIDTH,) * ranks, LATENCY)


def toy(sizes: Sequence[int] = (300_000, 900_000, 2_500_000, 400_000)) -> Model:
    layers = tuple(
        Layer(
            name=f"l{i}",
            tensors=(Tensor("w", (size,)),),
            forward=1e-4 * (i + 1),
            backward=2e-4 * (i + 1),
        )
        for i, size in enumerate(sizes)
    )
    return Model(name="toy", layers=layers)


def program(strategy: Strategy, ranks: int, micro_batches: int = 1) -> Program:
    model = toy()
    times = layer_times(model, None, "fp32", 1, 1, "none")
    job = Job(
        model, ranks, times, micro_batches, 1, Precision(), Optimizer(), serial=3e-5, update=1e-11
    )
    return strategy.program(job, None)


def both(
    casts: Sequence[Cast], factors: Sequence[np.ndarray], *, detail: str = "rounds"
) -> tuple[list[float], list[float]]:
    """All step durations and the last step's times: by the event engine, by the third player."""
    ranks, steps = casts[0].ranks, len(casts)
    costs = Costs(Nccl(algorithm="ring", launch=LAUNCH), machine(ranks))
    play = Play(lambda k: casts[k], costs, steps, 0, lambda k: factors[k])
    found = event.play(play, detail=detail)
    times = Player(casts, star(ranks), [f.tolist() for f in factors], LAUNCH).play()
    finish = [0.0]
    for step, cast in enumerate(casts):
        ends = [times[step, rank, cast.program(rank).end][1] for rank in range(ranks)]
        finish.append(max(ends))
    theirs = [b - a for a, b in pairwise(finish)]
    ours = list(found.durations)
    for rank in range(ranks):
        role, column = found.last.place(rank)
        for index in range(len(casts[-1].program(rank).ops)):
            ours += [a[role][index, column] for a in (found.last.start, found.last.end)]
            theirs += times[steps - 1, rank, index]
    return ours, theirs


def asymmetric(ranks: int, seed: int, steps: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [1.0 + rng.random(ranks) for _ in range(steps)]


STRATEGIES = {
    "ddp": Ddp(),
    "ddp, small buckets": Ddp(bucket_cap_mb=2),
    "fsdp": Fsdp(),
    "fsdp, two communicators": Fsdp(separate_reduce_scatter_group=True),
    "horovod": Horovod(cycle_time=0.5, fusion_threshold=5_000_000),
    "zero 2": Zero(stage=2, reduce_bucket_size=2e6, overlap_comm=True),
    "zero 3": Zero(stage=3, stage3_max_reuse_distance=2e6, stage3_prefetch_bucket_size=5e5),
}


@pytest.mark.parametrize("ranks", range(2, 9))
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_round_ends_when_the_independent_player_says(name: str, ranks: int) -> None:
    cast = Cast.uniform(program(STRATEGIES[name], ranks), ranks)
    ours, theirs = both([cast] * 2, asymmetric(ranks, seed=ranks))
    assert ours == pytest.approx(theirs, rel=TOLERANCE, abs=1e-15)


@pytest.mark.parametrize("name", STRATEGIES)
def test_sixteen_ranks_agree(name: str) -> None:
    cast = Cast.uniform(program(STRATEGIES[name], 16), 16)
    ours, theirs = both([cast], asymmetric(16, seed=1, steps=1))
    assert ours == pytest.approx(theirs, rel=TOLERANCE, abs=1e-15)


@pytest.mark.parametrize("seed", range(20))
def test_random_compute_factors_agree(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ranks = int(rng.integers(2, 6))
    name = list(STRATEGIES)[seed % len(STRATEGIES)]
    micro_batches = int(rng.integers(1, 3))
    cast = Cast.uniform(program(STRATEGIES[name], ranks, micro_batches), ranks)
    factors = [rng.lognormal(0.0, 0.7, ranks) for _ in range(3)]
    ours, theirs = both([cast] * 3, factors)
    assert ours == pytest.approx(theirs, rel=TOLERANCE, abs=1e-15)


def overlapping(ranks: int, rng: np.random.Generator) -> Cast:
    """World, pairs and halves talk at once, so rounds of one ring load links unevenly."""
    groups = {
        "world": (tuple(range(ranks)),),
        "pairs": tuple((i, i + 1) for i in range(0, ranks, 2)),
        "halves": (tuple(range(ranks // 2)), tuple(range(ranks // 2, ranks))),
    }
    ops = []
    for i in range(9):
        group = str(rng.choice(list(groups)))
        ops.append(Op(f"B{i}", "backward", seconds=float(rng.uniform(0, 2e-4))))
        ops.append(
            Op(f"C{i}", "collective", stream=f"comm {group}", group=group, after=(2 * i,),
               operation=str(rng.choice(["all_reduce", "all_gather", "reduce_scatter"])),
               bytes=float(rng.uniform(1e5, 5e6)))
        )  # fmt: skip
    ops.append(Op("W", "wait", after=tuple(range(1, 18, 2))))
    return Cast((Program(tuple(ops)),), (0,) * ranks, groups)


@pytest.mark.parametrize("seed", range(12))
def test_collectives_of_several_groups_share_links_as_the_independent_player_says(
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    ranks = int(rng.choice([4, 6, 8]))
    cast = overlapping(ranks, rng)
    ours, theirs = both([cast] * 2, [rng.lognormal(0.0, 1.0, ranks) for _ in range(2)])
    assert ours == pytest.approx(theirs, rel=TOLERANCE, abs=1e-15)


@pytest.mark.parametrize("ranks", [2, 5, 8])
@pytest.mark.parametrize("name", ["ddp", "ddp, small buckets", "fsdp"])
def test_phases_equal_rounds_where_one_collective_is_in_flight_and_hops_are_equal(
    name: str, ranks: int
) -> None:
    cast = Cast.uniform(program(STRATEGIES[name], ranks), ranks)
    ours, theirs = both([cast] * 2, asymmetric(ranks, seed=7), detail="collective")
    assert ours == pytest.approx(theirs, rel=TOLERANCE, abs=1e-15)


def test_the_independent_player_is_right_on_two_messages_that_share_a_link() -> None:
    wide = Star((10.0, 10.0, 10.0), (4.0, 10.0, 10.0), 0.0)
    paths = [(("up", 1), ("down", 0)), (("up", 2), ("down", 0)), (("up", 2), ("down", 1))]
    assert shares(paths, wide) == [2.0, 2.0, 8.0]


def test_the_independent_player_is_right_on_one_ring() -> None:
    ops = (Op("C", "collective", stream="c", operation="all_reduce", bytes=8e6), Op("W", "wait"))
    cast = Cast.uniform(Program(ops), 4)
    times = Player([cast], star(4), [[1.0] * 4], LAUNCH).play()
    assert times[0, 2, 0][1] == pytest.approx(LAUNCH + 6 * (LATENCY + 2e6 / BANDWIDTH), rel=1e-12)
