"""An extension is one new file: the how-to pages' own files are added and used here.

And what every collective algorithm and every strategy must keep.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dpsim import plugins
from dpsim.backends.nccl import phase_of
from dpsim.collectives import Algorithm
from dpsim.fabrics import Network, NodeFabric
from dpsim.machine import load_machine
from dpsim.plugins import Plugin
from dpsim.prediction import predict
from dpsim.scenario import load, read
from dpsim.topology import Topology

HOWTO = Path(__file__).resolve().parent.parent / "docs" / "howto"
SIZE = 1.0e8
TOY: dict[str, Any] = {
    "model": {
        "layers": [{"name": "a", "parameters": 10**6, "forward": "1 ms", "backward": "2 ms"}]
    },
    "cluster": {"ranks": 2},
    "collective": {"backend": "ideal", "latency": "1 ms", "bandwidth": "1 GB/s"},
    "optimizer": {"kind": "none"},
}


def block(page: str, language: str) -> str:
    """The first block of `language` in a how-to page."""
    found = re.search(rf"```{language}\n(.*?)```", (HOWTO / page).read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def added(tmp_path: Path) -> Iterator[None]:
    """The files of the how-to pages, as if they lay in the package's folders."""
    new = []
    for package, page in (
        ("collectives", "add-a-collective.md"),
        ("strategies", "add-a-strategy.md"),
    ):
        name = re.search(rf"`dpsim/{package}/(\w+)\.py`:", (HOWTO / page).read_text("utf-8"))
        assert name is not None
        folder = tmp_path / package
        folder.mkdir()
        (folder / f"{name[1]}.py").write_text(block(page, "python"), encoding="utf-8")
        parent = importlib.import_module(f"dpsim.{package}")
        parent.__path__.append(str(folder))
        new.append((parent, name[1], str(folder)))
    plugins.names.cache_clear()
    importlib.invalidate_caches()
    yield
    plugins.names.cache_clear()
    for parent, module, path in new:
        parent.__path__.remove(path)
        sys.modules.pop(f"{parent.__name__}.{module}", None)
        vars(parent).pop(module, None)


@pytest.mark.usefixtures("added")
def test_a_strategy_is_one_file() -> None:
    found = predict(load(TOY | {"strategy": {"kind": "lockstep", "messages": 2}}, HOWTO, "x"))
    assert found.document["scenario"]["strategy"] == {"kind": "lockstep", "messages": 2}
    # 1 + 2 ms of compute, then two messages of 1 ms + 2 MB at 1 GB/s
    assert found.step_time_s == pytest.approx(0.009, rel=1e-12)
    check_points(found.points)


@pytest.mark.usefixtures("added")
def test_a_collective_is_one_file(tmp_path: Path) -> None:
    layer = {"name": "a", "parameters": 100, "forward": "1 ms", "backward": "2 ms"}
    data = TOY | {
        "model": {"layers": [layer]},
        "cluster": {"machine": "rack-10gbe", "nodes": 8, "gpus_per_node": 1},
        "strategy": {"kind": "ddp"},
    }
    del data["collective"]
    found = predict(load(data, tmp_path, "x"))
    world = tuple(range(8))
    assert found.cases[0].costs.plan("all_reduce", world, 400.0).algorithm == "butterfly"
    assert found.cases[0].costs.plan("all_reduce", world, 1e9).algorithm != "butterfly"
    assert found.points[0]["bytes_sent_per_rank"] == pytest.approx(3 * 400.0)


def test_a_machine_is_one_file(tmp_path: Path) -> None:
    folder = tmp_path / "machines"
    folder.mkdir()
    (folder / "box.yaml").write_text(block("add-a-machine.md", "yaml"), encoding="utf-8")
    (tmp_path / "x.yaml").write_text(
        "model: {name: vgg16}\ncluster: {machine: machines/box.yaml, nodes: 2}\n"
        "strategy: {kind: ddp}\nsweep: {cluster.nodes: [1, 2, 32]}\n"
    )
    found = predict(read(tmp_path / "x.yaml"))
    assert [point["ranks"] for point in found.points] == [4, 8, 128]
    assert found.cases[0].machine is not None
    assert found.cases[0].machine.name == "my-box"
    check_points(found.points)


@pytest.mark.parametrize("kind", plugins.names("dpsim.strategies"))
def test_parts_of_a_step_add_up(kind: str) -> None:
    sweep = {"cluster.ranks": [1, 2, 8], "batch.accumulation": [1, 3]}
    check_points(
        predict(load(TOY | {"strategy": {"kind": kind}, "sweep": sweep}, HOWTO, "x")).points
    )


def check_points(points: list[dict[str, Any]]) -> None:
    for point in points:
        parts = ("compute_s", "exposed_communication_s", "bubble_s", "stall_s")
        assert sum(point[part] for part in parts) == pytest.approx(point["step_time_s"], rel=1e-9)
        assert point["step_time_s"] >= point["bound_s"] * (1 - 1e-9)


def star(nodes: int) -> Topology:
    """Nodes of one GPU and one NIC on one switch: every rank has its own link."""
    wire = {"bandwidth": "20 GB/s", "latency": "2 us"}
    inside = {"family": "explicit", "vertices": ["gpu0", "nic0"],
              "links": [{"from": "gpu0", "to": "nic0", **wire}]}  # fmt: skip
    cable = {"bandwidth": "10 GB/s", "latency": "3 us"}
    make = Plugin("dpsim.fabrics", "family").make
    node: NodeFabric = make(inside, file=True)
    network: Network = make({"family": "star", "link": cable}, file=True)
    return Topology(node, network, nodes=nodes, gpus=1, nics=1)


#: bytes that the busiest rank must at least move, over S: (n-1)/n a pass (facts of any algorithm)
LOWEST = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "broadcast": 1}
GROUPS = [
    pytest.param(topology, id=name)
    for name, topology in {
        **{f"star of {n}": star(n) for n in (2, 3, 4, 8)},
        "2 x 8 H100": load_machine("dgx-h100").topology(2),
        "3 x 4 V100": load_machine("rack-10gbe").topology(3),
        "8 V100": load_machine("dgx-1v").topology(1),
    }.items()
]


def applicable(topology: Topology) -> Iterator[tuple[Algorithm, str]]:
    world = tuple(range(topology.ranks))
    for name in plugins.names("dpsim.collectives"):
        algorithm = plugins.find("dpsim.collectives", name)()
        if algorithm.applies(world, topology):
            yield from ((algorithm, operation) for operation in algorithm.operations)


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize("topology", GROUPS)
def test_collectives_move_what_they_must(topology: Topology) -> None:
    n, checked = topology.ranks, 0
    for algorithm, operation in applicable(topology):
        out: Counter[int] = Counter()
        into: Counter[int] = Counter()
        for stage in algorithm.stages(operation, tuple(range(n)), SIZE, topology):
            assert stage.repeats > 0
            for transfer in stage.transfers:
                assert transfer.source != transfer.target
                assert transfer.bytes >= 0
                out[transfer.source] += stage.repeats * transfer.bytes
                into[transfer.target] += stage.repeats * transfer.bytes
        assert sum(out.values()) == pytest.approx(sum(into.values()), rel=1e-12)
        mean = sum(out.values()) / n
        assert mean == pytest.approx(algorithm.bytes_sent(operation, n, SIZE), rel=1e-9)
        lowest = LOWEST[operation] * (n - 1) / n * SIZE
        assert max(*out.values(), *into.values()) >= lowest * (1 - 1e-12)
        checked += 1
    assert checked >= 4


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_closed_forms_hold_on_a_star(n: int) -> None:
    """One way there are two wires in the nodes and two cables: 10 us, and 10 GB/s."""
    topology = star(n)
    for algorithm, operation in applicable(topology):
        for size in (1.0, 1e4, SIZE):
            stages = algorithm.stages(operation, tuple(range(n)), size, topology)
            phases = [phase_of(stage, topology) for stage in stages]
            played = sum(phase.latency + phase.seconds for phase in phases)
            try:
                closed = algorithm.seconds(operation, n, size, 10e-6, 10e9)
            except NotImplementedError:
                continue
            assert played == pytest.approx(closed, rel=1e-9), (algorithm, operation)
