"""TPUs: slices as tori, and collectives over their links."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import product
from typing import Any

import numpy as np
import pytest

import dpsim
from dpsim.backends import Plan
from dpsim.backends._ici_box import TorusBox, box_of
from dpsim.backends.ici import Ici
from dpsim.backends.nccl import Nccl
from dpsim.core.record import Refused
from dpsim.machines.fabrics.torus import chip_at
from dpsim.machines.machine import load_machine
from dpsim.machines.topology import Topology

S = 6e9
HOP, SHARE = 1e-6, 0.9


def slice_of(machine: str, chips: int, slices: int = 1) -> Topology:
    return load_machine(machine).topology(slices, gpus_per_node=chips)


def plan(topology: Topology, operation: str, ranks: Any = None, size: float = S) -> Plan:
    return Ici().plan(operation, range(topology.ranks) if ranks is None else ranks, size, topology)


# -- closed forms of How to Scale Your Model, chapter 3 -------------------------------------------


@pytest.mark.parametrize(
    ("machine", "chips", "axes", "both_ways", "hops"),
    [
        ("tpu-v5p", 64, 3, 200e9, 6),  # 4x4x4
        ("tpu-v5p", 512, 3, 200e9, 12),  # 8x8x8
        ("tpu-v4", 64, 3, 100e9, 6),
        ("tpu-v6e", 256, 2, 200e9, 16),  # 16x16, the whole pod
        ("tpu-v5e", 256, 2, 100e9, 16),
        ("tpu-v5e", 16, 2, 50e9, 6),  # 4x4 does not go round: half the bandwidth
    ],
)
def test_gathers_and_reductions_use_all_axes(
    machine: str, chips: int, axes: int, both_ways: float, hops: int
) -> None:
    topology = slice_of(machine, chips)
    once = (1 - 1 / chips) * S / (axes * both_ways * SHARE) + hops * HOP
    assert plan(topology, "all_gather").seconds == pytest.approx(once, rel=1e-12)
    assert plan(topology, "reduce_scatter").seconds == pytest.approx(once, rel=1e-12)
    assert plan(topology, "all_reduce").seconds == pytest.approx(2 * once, rel=1e-12)
    assert plan(topology, "broadcast").seconds == pytest.approx(2 * once, rel=1e-12)


def test_an_all_to_all_round_a_ring_is_a_quarter_of_a_gather() -> None:
    """Of what all 16 chips of a v5e pod's side have together, per step round the ring."""
    topology = slice_of("tpu-v5e", 256)
    side = range(16)
    moved = [plan(topology, o, side).phases[0].seconds for o in ("all_to_all", "all_gather")]
    # every chip has S to hand out; gathered are S in all, of which 15 of 16 arrive
    assert moved[0] == pytest.approx(16 * moved[1] * 16 / 15 / 4)


def test_a_group_along_one_axis_has_its_two_links() -> None:
    topology = slice_of("tpu-v5p", 512)
    first = plan(topology, "all_gather", range(8))
    assert first.seconds == pytest.approx(7 / 8 * S / (200e9 * SHARE) + 4 * HOP)
    column = plan(topology, "all_gather", range(0, 512, 64))
    assert column.seconds == pytest.approx(first.seconds)
    assert not column.meets(first)


def test_half_an_axis_is_a_line() -> None:
    found = plan(slice_of("tpu-v5p", 512), "all_gather", range(4))
    assert found.seconds == pytest.approx(3 / 4 * S / (100e9 * SHARE) + 3 * HOP)


def test_slices_reduce_their_shards_over_the_data_centre() -> None:
    inside = plan(slice_of("tpu-v6e", 256), "all_reduce")
    across = plan(slice_of("tpu-v6e", 256, 4), "all_reduce")
    (dcn,) = [p for p in across.phases if "nic" in {end[0] for end in p.busiest or ()}]
    assert dcn.seconds == pytest.approx(2 * 3 / 4 * S / 256 / (12.5e9 * 0.94))
    assert dcn.latency == pytest.approx(2 * 3 * 14e-6)
    assert across.seconds == pytest.approx(inside.seconds + dcn.latency + dcn.seconds)
    gathered = plan(slice_of("tpu-v6e", 256, 4), "all_gather")
    assert gathered.seconds < across.seconds / 1.9


# -- an oracle that moves numbers, link by link ---------------------------------------------------


class Slice:
    """Numbers on chips, which only neighbours pass on; counts what crosses each link."""

    def __init__(self, topology: Topology, box: TorusBox) -> None:
        self.topology, self.box = topology, box
        self.crossed: defaultdict[Any, float] = defaultdict(float)

    def send(self, chip: int, to: int, amount: float) -> None:
        (edge,) = self.topology.route(chip, to)
        self.crossed[edge] += amount

    def scatter(self, axis: Any, data: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        """Reduce-scatter along `axis`: chip k of a line is left with the sum of parts k."""
        left: dict[int, np.ndarray] = {}
        ranges = [range(n) if i != axis.number else [0] for i, n in enumerate(self.box.counts)]
        for place in product(*ranges):
            line = []
            for k in range(axis.length):
                at = tuple(k if i == axis.number else p for i, p in enumerate(place))
                line.append(chip_at(at, self.box.shape))
            parts = {chip: np.array_split(data[chip], axis.length) for chip in line}
            for k, owner in enumerate(line):
                left[owner] = self.collected(axis, line, k, parts)
        return left

    def collected(self, axis: Any, line: list[int], k: int, parts: Any) -> np.ndarray:
        n = len(line)
        if not axis.ring:
            for j in range(n - 1):  # sums flow to k from both ends
                a, b = (line[j], line[j + 1]) if j < k else (line[j + 1], line[j])
                self.send(a, b, len(parts[a][k]))
        else:  # one half of the part goes round one way, one the other
            for step in (1, -1):
                for j in range(1, n):
                    a, b = line[(k + step * j) % n], line[(k + step * (j + 1)) % n]
                    self.send(a, b, len(parts[a][k]) / 2)
        found: np.ndarray = np.add.reduce([parts[chip][k] for chip in line])
        return found


@pytest.mark.parametrize(
    ("machine", "chips"), [("tpu-v6e", 8), ("tpu-v5p", 16), ("tpu-v5p", 64), ("tpu-v6e", 128)]
)
def test_a_reduction_by_neighbours_crosses_the_links_that_were_counted(
    machine: str, chips: int
) -> None:
    topology = slice_of(machine, chips)
    box = box_of(tuple(range(chips)), topology)
    length = 2 * chips
    random = np.random.default_rng(1)
    phases = plan(topology, "reduce_scatter", size=1.0).phases
    steps = list(box.steps())
    ways = [axis.ways for axis in box.axes]
    moving = []  # one part per axis, of its own length
    for way in ways:
        moving.append({c: random.integers(0, 9, length * way).astype(float) for c in range(chips)})
    wanted = [sum(v.sum() for v in part.values()) for part in moving]
    for number, (step, phase) in enumerate(zip(steps, phases, strict=True)):
        slice_ = Slice(topology, box)
        for p in range(len(moving)):
            axis = step[p][0]
            moving[p] = slice_.scatter(axis, moving[p])
            assert axis is box.axes[(p + number) % len(ways)]
        total = length * sum(ways)
        for edge, load in (phase.loads or {}).items():
            assert slice_.crossed[edge] / total == pytest.approx(load, rel=1e-9, abs=1e-12), edge
        assert set(slice_.crossed) == set(phase.loads or {})
        slowest = max(slice_.crossed.values()) / total / box.torus.link.bandwidth
        assert phase.seconds == pytest.approx(slowest / SHARE)
    assert [sum(v.sum() for v in part.values()) for part in moving] == wanted


@pytest.mark.parametrize("chips", [16, 128])
def test_an_exchange_crosses_the_links_of_the_shorter_ways(chips: int) -> None:
    topology = slice_of("tpu-v6e", chips)
    crossed: defaultdict[Any, float] = defaultdict(float)
    for a, b in product(range(chips), repeat=2):
        for edge in topology.route(a, b) if a != b else ():
            crossed[edge] += S / chips
    found = plan(topology, "all_to_all").phases[0]
    # of two equally short ways round a ring, routes take one and the exchange both
    evened = {e: (crossed[e] + crossed[(e[1], e[0])]) / 2 for e in crossed}
    assert found.seconds == pytest.approx(max(evened.values()) / 100e9 / SHARE)


# -- routes, and what is refused ------------------------------------------------------------------


def test_messages_go_axis_by_axis_the_shorter_way_round() -> None:
    topology = slice_of("tpu-v5p", 64)
    way = [edge[1][2] for edge in topology.route(0, chip_at((3, 0, 2), (4, 4, 4)))]
    assert way == [48, 49, 50]  # once down, round the first axis, and twice up the last
    sent = plan(topology, "send", (0, 50))
    assert sent.seconds == pytest.approx(3 * HOP + S / (100e9 * SHARE))


@pytest.mark.parametrize(
    ("chips", "slices", "operation", "ranks", "message"),
    [
        (64, 1, "all_reduce", (0, 2, 4), "no box of neighbours in a slice of 4x4x4"),
        (64, 1, "all_reduce", (0, 1, 5), "no box"),
        (64, 2, "all_to_all", range(128), "all_to_all between slices"),
        (64, 2, "all_reduce", (0, 1, 64), "the same chips"),
    ],
)
def test_what_is_not_modelled_is_refused(
    chips: int, slices: int, operation: str, ranks: Any, message: str
) -> None:
    with pytest.raises(Refused, match=message):
        plan(slice_of("tpu-v5p", chips, slices), operation, ranks)


def test_there_are_slices_of_some_sizes_only() -> None:
    with pytest.raises(Refused, match=r"no slice has 100 chips; there are slices of 4, 8, 16"):
        plan(slice_of("tpu-v5p", 100), "all_reduce")


def test_neither_has_the_others_machines() -> None:
    with pytest.raises(Refused, match="ici joins TPUs"):
        plan(load_machine("dgx-h100").topology(1), "all_reduce")
    with pytest.raises(Refused, match="NCCL has no TPUs"):
        Nccl().plan("all_reduce", range(4), S, slice_of("tpu-v5p", 4))


def test_a_slice_is_used_whole() -> None:
    """48 of 256 chips would keep the wrap-around of the whole pod, which no slice of 48 has."""
    topology = load_machine("tpu-v6e").topology(1, ranks=48)
    with pytest.raises(Refused, match="48 ranks do not fill slices of 256 chips"):
        plan(topology, "all_reduce", range(48))


def test_a_slice_has_a_network_port_for_every_chip() -> None:
    """So a chip's share of the data centre's network does not depend on the slice's size."""
    for chips in (64, 128, 2048):
        assert load_machine("tpu-v5p").topology(2, gpus_per_node=chips).nics == chips


@pytest.mark.parametrize("shape", [(4, 64, 8), (8, 12, 16), (8, 16, 48), (2, 1, 2)])
def test_a_slice_of_v5p_has_the_shape_that_is_asked_for(shape: tuple[int, ...]) -> None:
    chips = math.prod(shape)
    topology = load_machine("tpu-v5p").sliced(shape).topology(1, gpus_per_node=chips)
    box = box_of(tuple(range(chips)), topology)
    assert box.counts == shape


@pytest.mark.parametrize(
    ("machine", "shape", "message"),
    [
        ("tpu-v5p", (2, 3, 8), "is none; there are slices of 3 axes from 2x2x1 to 16x16x24, or"),
        ("tpu-v5p", (16, 16, 28), "of 6,144 chips at most"),
        ("tpu-v5p", (8, 8), "is none"),
        ("tpu-v6e", (4, 12), "there are slices of 2 axes from 1x1 to 16x16, of 256"),
        ("dgx-h100", (2, 4), "is for slices of TPUs"),
    ],
)
def test_other_shapes_are_refused(machine: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(Refused, match=message) as error:
        load_machine(machine).sliced(shape)
    assert error.value.path == ("cluster", "slice")


def test_no_other_node_has_more_than_1024() -> None:
    with pytest.raises(Refused, match="2048 is not in 1 … 1,024") as error:
        load_machine("dgx-h100").topology(1, gpus_per_node=2048)
    assert error.value.path == ("cluster", "gpus_per_node")


def on_slices(model: str, tokens: int, slices: int, chips: int, batch: int) -> dict[str, Any]:
    """FSDP over so many slices of TPU v5p."""
    return {
        "model": {"huggingface": model, "sequence_length": tokens},
        "cluster": {"machine": "tpu-v5p", "nodes": slices, "gpus_per_node": chips},
        "strategy": {"kind": "fsdp"}, "collective": {"backend": "ici"},
        "precision": {"compute": "bf16"}, "batch": {"per_device": batch},
    }  # fmt: skip


def test_steps_of_several_slices_are_less_sure() -> None:
    """8 % more for each doubling, since one slice or since those that were measured."""
    data = on_slices("llama-3-8b", 4096, 4, 128, batch=1) | {"recompute": "full"}

    def slow(**changed: Any) -> float:
        (point,) = dpsim.predict({**data, **changed}).document["points"]
        return float(point["interval_causes"].get("slices (prior)", (1.0, 1.0))[1])

    assert slow() == pytest.approx(1.08**2)
    assert slow(calibrate={"ranks": 256, "step_time": "1 s"}) == pytest.approx(1.08)
    assert slow(cluster={**data["cluster"], "nodes": 1}) == 1.0


def test_what_several_slices_cost_is_carried_from_measured_steps() -> None:
    """Published ones took 30 and 45 times what their bytes take on the network."""
    data = on_slices("gpt2-xl", 1024, 1, 64, batch=8) | {"engine": "vectorised"}
    steps = [(1, 1.0), (2, 1.08), (4, 1.16)]
    first = dpsim.predict(data).document["points"][0]["step_time_s"]
    points = [{"ranks": 64 * n, "step_time": f"{first * by} s"} for n, by in steps]
    found = dpsim.predict(
        {**data, "calibrate": {"points": points}, "sweep": {"cluster.nodes": [1, 2, 4]}}
    )
    for (_, by), point in zip(steps, found.document["points"], strict=True):
        assert point["step_time_s"] == pytest.approx(first * by, rel=0.05)  # the prior pulls
    assert found.level is not None
    assert not found.level.findings
