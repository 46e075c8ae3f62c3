"""Other simulators' rings and steps, to the nanosecond: what they printed is what dpsim says.

The numbers are SimGrid 3.32's (S4U, CM02) and ASTRA-sim 2.0's (analytical network, a ring), whose
runs had 500 ns and 50 GB/s a link for rings, 5 us and 10 GB/s for steps, 1600 GB/s of local memory
and 10 ns of endpoint delay.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpsim.backends.astra_sim import AstraSim
from dpsim.backends.simgrid import SimGrid
from dpsim.collectives import OPERATIONS
from dpsim.core.places import data_folder
from dpsim.core.record import Refused
from dpsim.describe.scenario import load, read
from dpsim.predict.prediction import predict

MIB, GIB = 2**20, 2**30
NETWORK = {"latency": "500 ns", "bandwidth": "50 GiB/s"}
MEMORY = {"local_memory_bandwidth": "1600 GB/s"}
#: bundled scenarios and the other program's number [ns]
AGAINST = {
    "simgrid_ring_1024": 40_983_937.5,
    "astra_ring_256": 42_108_925,
    "astra_ring_1024": 43_014_091,
    "astra_ring_4096": 46_162_945,
    "astra_ddp_64_jitter": 215_353_816,
    "astra_ddp_256_jitter": 225_572_520,
    "astra_ddp_1024_jitter": 246_042_841,
}
#: those whose number is the time of a whole run, which tests/test_life.py compares
RUNS = ("airesim_default",)


def nanoseconds(seconds: float) -> float:
    """To the thousandth, which is far below what either program prints."""
    return round(seconds * 1e9, 3)


def test_every_scenario_against_another_program_has_its_number() -> None:
    assert {path.stem for path in (data_folder("scenarios") / "against").glob("*.yaml")} == {
        *AGAINST,
        *RUNS,
    }


@pytest.mark.parametrize("engine", ["auto", "vectorised"])
@pytest.mark.parametrize("name", AGAINST)
def test_a_scenario_takes_what_the_other_program_printed(name: str, engine: str) -> None:
    found = predict(read(f"against/{name}", [f"engine={engine}"])).step_time_s
    assert nanoseconds(found) == AGAINST[name]


@pytest.mark.parametrize(
    ("ranks", "printed"), [(64, 211_720_816), (256, 221_727_520), (1024, 242_064_841)]
)
def test_without_jitter_it_takes_what_the_other_program_printed_without(
    ranks: int, printed: int
) -> None:
    found = predict(read(f"against/astra_ddp_{ranks}_jitter", ["variability={}"])).step_time_s
    assert nanoseconds(found) == printed


@pytest.mark.parametrize(
    ("ranks", "size", "splits", "printed"),
    [
        (8, 100 * MIB, 1, 3_597_142), (64, 100 * MIB, 1, 4_102_948),
        (256, 100 * MIB, 1, 4_346_740), (1024, 100 * MIB, 1, 5_141_608),
        (8, GIB, 1, 36_768_756), (64, GIB, 1, 41_420_935), (256, GIB, 1, 42_108_925),
        (1024, GIB, 1, 43_014_091), (4096, GIB, 1, 46_162_945),
        (8, 100 * MIB, 4, 3_618_592), (64, 100 * MIB, 4, 4_295_632),
        (256, 100 * MIB, 4, 5_126_560), (1024, 100 * MIB, 4, 8_265_880),
        (64, GIB, 4, 41_613_556), (256, GIB, 4, 42_887_980), (1024, GIB, 4, 46_129_156),
    ],
)  # fmt: skip
def test_rings_of_astra_sim(ranks: int, size: int, splits: int, printed: int) -> None:
    peer = AstraSim(splits=splits, **NETWORK, **MEMORY)
    plan = peer.plan("all_reduce", tuple(range(ranks)), float(size), None)
    assert nanoseconds(plan.seconds) == printed


def test_the_all_gather_that_astra_sim_documents() -> None:
    """Ring_allgather_16npus: 1 MiB of each rank in 4 parts takes 323,560 cycles of 1 ns."""
    plan = AstraSim(splits=4, **NETWORK).plan("all_gather", tuple(range(16)), 16.0 * MIB, None)
    assert nanoseconds(plan.seconds) == 323_560


@pytest.mark.parametrize("size", [0.0, 1.0, 63.0, 1e6, 1e9])
def test_an_all_reduce_of_astra_sim_is_its_two_halves_but_for_one_endpoint(size: float) -> None:
    peer, ranks = AstraSim(**NETWORK, **MEMORY), tuple(range(64))
    whole, scatter, gather = (
        peer.plan(name, ranks, size, None).seconds
        for name in ("all_reduce", "reduce_scatter", "all_gather")
    )
    shared = 10e-9 if size else 0.0
    if size >= 64:  # an all-reduce of fewer bytes has one for every rank
        assert whole == pytest.approx(scatter + gather - shared, rel=1e-12)
    assert whole >= scatter >= gather


@pytest.mark.parametrize(
    ("ranks", "size", "milliseconds"),
    [
        (8, 100 * MIB, 3.424969), (64, 100 * MIB, 3.908215), (256, 100 * MIB, 4.145991),
        (1024, 100 * MIB, 4.925435), (8, GIB, 35.007000), (64, GIB, 39.438000),
        (256, GIB, 40.098750), (1024, GIB, 40.983938),
    ],
)  # fmt: skip
def test_rings_of_simgrid(ranks: int, size: int, milliseconds: float) -> None:
    plan = SimGrid(**NETWORK).plan("all_reduce", tuple(range(ranks)), float(size), None)
    assert plan.seconds * 1e3 == pytest.approx(milliseconds, abs=1e-6)  # printed to the nanosecond


def test_a_window_that_is_smaller_than_the_link_holds_simgrid_back() -> None:
    """4 MiB on the way in two latencies of 1 ms: 2.097152 GB/s, whatever the link can."""
    peer = SimGrid(latency="1 ms", bandwidth="100 GB/s")
    plan = peer.plan("all_gather", (0, 1), 2 * 2_097_152_000.0, None)
    assert plan.seconds == pytest.approx(0.001 + 1.0)
    assert SimGrid(latency="1 ms", bandwidth="100 GB/s", tcp_gamma="0 B").plan(
        "all_gather", (0, 1), 2 * 2_097_152_000.0, None
    ).seconds == pytest.approx(0.001 + 0.02097152)


STEP: dict[str, Any] = {
    "collective": {"backend": "astra_sim", "latency": "5 us", "bandwidth": "10 GiB/s", **MEMORY},
    "optimizer": {"kind": "none"},
}


@pytest.mark.parametrize("engine", ["event", "vectorised"])
@pytest.mark.parametrize(
    ("ranks", "buckets", "most", "printed"),
    [
        (8, 4, None, 187_899_312), (8, 4, 2000, 191_471_312),
        (8, 40, None, 185_924_320), (8, 40, 200, 186_235_320),
        (64, 4, None, 211_720_816), (64, 4, 2000, 215_353_816),
        (64, 40, None, 229_942_000), (64, 40, 200, 230_297_000),
    ],
)  # fmt: skip
def test_steps_of_astra_sim_with_and_without_jitter(
    ranks: int, buckets: int, most: int | None, printed: int, engine: str
) -> None:
    """10 ms of forward and 20 ms of backward, 1000 MiB of gradients in equal buckets."""
    layers = [
        {"name": f"l{k}", "parameters": 1000 * MIB // 4 // buckets,
         "forward": "0 s" if k else "10 ms", "backward": f"{20 / buckets} ms"}
        for k in range(buckets)
    ]  # fmt: skip
    late = {"generator": "mersenne", "seed": 1234, "low": "0 us", "high": f"{most} us"}
    scenario = STEP | {
        "model": {"layers": layers},
        "cluster": {"ranks": ranks},
        "strategy": {"kind": "ddp", "bucket_cap_mb": 1000 / buckets},
        "variability": {"delays": late} if most else {},
        "engine": engine,
    }
    assert nanoseconds(predict(load(scenario, Path(), "test")).step_time_s) == printed


@pytest.mark.parametrize("peer", [AstraSim(), SimGrid()])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_a_peer_does_not_play_on_a_ring_is_refused_by_name(
    peer: AstraSim | SimGrid, operation: str
) -> None:
    if operation in ("all_reduce", "all_gather", "reduce_scatter"):
        assert peer.plan(operation, (0,), 1e6, None).seconds == 0.0
        return
    with pytest.raises(Refused, match=f"{operation} is not modelled as"):
        peer.plan(operation, (0, 1), 1e6, None)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"topology": "Switch"}, "'Switch' is not modelled as ASTRA-sim plays it; Ring is"),
        ({"endpoint_delay": "1.5 ns"}, "whole nanoseconds"),
        ({"bandwidth": 50}, "has no unit"),
    ],
)
def test_other_networks_of_astra_sim_are_refused(keys: dict[str, Any], said: str) -> None:
    collective = {"backend": "astra_sim", **keys}
    layer = {"name": "a", "parameters": 1, "forward": "0 s", "backward": "1 s"}
    toy = {"model": {"layers": [layer]}, "cluster": {"ranks": 2}, "strategy": {"kind": "ddp"}}
    with pytest.raises(Refused, match=said):
        load({**toy, "collective": collective}, Path(), "test")
