"""The toys: what reduce, all-to-all and send take and move where a sum can be checked by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dpsim.backends import ideal_ones
from dpsim.backends.free import Free
from dpsim.backends.ideal import Ideal
from dpsim.backends.ideal_ring import IdealRing
from dpsim.collectives import OPERATIONS, ring_payload
from dpsim.core import plugins
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.predict.prediction import predict

SIZE, LATENCY, BANDWIDTH = 8e6, 1e-3, 1e9
MILLISECOND = 1e-3


def four() -> tuple[int, ...]:
    return (0, 1, 2, 3)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("n", [2, 3, 8])
def test_ideal_takes_a_latency_and_all_bytes(operation: str, n: int) -> None:
    plan = Ideal(latency=LATENCY, bandwidth=BANDWIDTH).plan(operation, tuple(range(n)), SIZE, None)
    assert plan.seconds == pytest.approx(9 * MILLISECOND)
    assert plan.sent == ring_payload(operation, n, SIZE)


@pytest.mark.parametrize(
    ("operation", "milliseconds"),
    [
        ("all_reduce", 6 * (1 + 2)),
        ("all_gather", 3 * (1 + 2)),
        ("reduce_scatter", 3 * (1 + 2)),
        ("all_to_all", 3 * (1 + 2)),
        ("broadcast", 1 + 8),
        ("reduce", 1 + 8),
        ("send", 1 + 8),
    ],
)
def test_ideal_ring_of_four(operation: str, milliseconds: float) -> None:
    ring = IdealRing(latency=LATENCY, bandwidth=BANDWIDTH)
    assert ring.plan(operation, four(), SIZE, None).seconds == pytest.approx(
        milliseconds * MILLISECOND
    )
    send = ring.plan("send", (2, 0), SIZE, None)
    assert send.seconds == pytest.approx(9 * MILLISECOND)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_rank_alone_and_the_free_backend_take_no_time(operation: str) -> None:
    for backend in (Ideal(latency=LATENCY), IdealRing(latency=LATENCY)):
        plan = backend.plan(operation, (3,), SIZE, None)
        assert (plan.seconds, plan.sent) == (0.0, 0.0)
    assert Free().plan(operation, four(), SIZE, None).seconds == 0.0


@pytest.mark.parametrize(
    ("operation", "megabytes"),
    [
        ("all_reduce", 12.0), ("all_gather", 6.0), ("reduce_scatter", 6.0), ("broadcast", 6.0),
        ("reduce", 6.0), ("all_to_all", 6.0), ("send", 8.0),
    ],
)  # fmt: skip
def test_bytes_that_a_rank_of_four_sends(operation: str, megabytes: float) -> None:
    """Of 8 MB; three of four ranks send all of them in a reduce, three quarters each elsewhere."""
    assert ring_payload(operation, 4, SIZE) == pytest.approx(megabytes * 1e6)


def test_refusals_name_every_backend_that_needs_no_machine() -> None:
    """What they say is accepted is, and nothing else is."""
    said = set(re.split(", | or ", ideal_ones()))
    layer = {"name": "a", "parameters": 1000, "forward": "1 ms", "backward": "1 ms"}
    toy = {
        "model": {"layers": [layer]},
        "cluster": {"ranks": 2}, "strategy": {"kind": "ddp"},
    }  # fmt: skip
    for name in plugins.names("backends"):
        scenario = {**toy, "collective": {"backend": name}}
        if name in said:
            load(scenario, Path(), "toy")
            late = {**scenario, "strategy": {"kind": "ddp", "backup_workers": 1}}
            assert predict(load(late, Path(), "toy")).points[0].ranks == 2
        else:
            with pytest.raises(Refused, match=f"choose {ideal_ones()}"):
                load(scenario, Path(), "toy")
    with pytest.raises(Refused, match=f"is missing.* choose backend {ideal_ones()}"):
        load(toy, Path(), "toy")
