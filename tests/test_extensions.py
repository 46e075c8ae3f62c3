"""An extension is one new file: the how-to pages' own files are added and used here.

And what every strategy must keep (test_collectives.py says the same of collectives).
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from plugged import plugged

from dpsim.backends.nccl import phase_of
from dpsim.core import plugins
from dpsim.core.record import Refused
from dpsim.describe.scenario import load, read
from dpsim.machines.machine import load_machine
from dpsim.measurements.findings import StepTime
from dpsim.measurements.readers import read_any
from dpsim.predict.prediction import predict

HOWTO = Path(__file__).resolve().parent.parent / "docs" / "howto"
SIZE = 1.0e8
#: folder of plug-ins -> what one of them is called in the how-to pages
FILES = {
    "collectives": "collective",
    "fabrics": "fabric",
    "strategies": "strategy",
    "compression": "compression",
    "recoveries": "recovery",
    "loaders": "loader",
    "readers": "reader",
}
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
    with ExitStack() as stack:
        for folder, what in FILES.items():
            page = f"add-a-{what}.md"
            path = rf"`{plugins.FOLDERS[folder].replace('.', '/')}/(\w+)\.py`:"
            name = re.search(path, (HOWTO / page).read_text("utf-8"))
            assert name is not None
            stack.enter_context(plugged(folder, {name[1]: block(page, "python")}, tmp_path))
        yield


@pytest.mark.usefixtures("added")
def test_a_strategy_is_one_file() -> None:
    found = predict(load(TOY | {"strategy": {"kind": "lockstep", "messages": 2}}, HOWTO, "x"))
    assert found.document["scenario"]["strategy"] == {"kind": "lockstep", "messages": 2}
    # 1 + 2 ms of compute, then two messages of 1 ms + 2 MB at 1 GB/s
    assert found.step_time_s == pytest.approx(0.009, rel=1e-12)
    (shown,) = found.explain()["points"]
    assert [bucket["bytes"] for bucket in shown["buckets"]] == [2e6, 2e6]
    check_points(found.points)


@pytest.mark.usefixtures("added")
def test_a_strategy_that_states_its_exchange_runs_on_stages_too() -> None:
    """Two stages of 1 + 2 ms with 1 ms between them both ways, then 2 x (1 ms + 2 MB)."""
    stages = {
        "model": {"layers": [{**TOY["model"]["layers"][0], "name": name} for name in "ab"]},
        "cluster": {"ranks": 4},
        "parallel": {"pipeline": 2},
        "strategy": {"kind": "lockstep", "messages": 2},
    }
    found = predict(load(TOY | stages, HOWTO, "x"))
    assert found.step_time_s == pytest.approx(0.014, rel=1e-12)


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize("hook", ["topk", {"kind": "topk"}, {"kind": "topk", "share": 0.02}])
def test_a_compression_is_one_file(hook: Any) -> None:
    found = predict(load(TOY | {"strategy": {"kind": "ddp", "comm_hook": hook}}, HOWTO, "x"))
    asked = {"kind": "topk"} if hook == "topk" else hook
    assert found.document["scenario"]["strategy"]["comm_hook"] == asked
    # 1 + 2 ms of compute, 1 ms to choose, then two all-gathers of 1 ms + 4 bytes an element of both
    share = 0.02 if "share" in asked else 0.01
    size = 2 * 4 * share * 10**6
    assert found.step_time_s == pytest.approx(0.004 + 2 * (0.001 + size / 1e9), rel=1e-12)
    check_points(found.points)


@pytest.mark.usefixtures("added")
def test_a_recovery_is_one_file() -> None:
    """It loses a step in place of up to ten minutes, and reads nothing."""
    job = TOY | {
        "strategy": {"kind": "ddp"},
        "training": {"samples": 2e7},
        "failures": {"node": {"mtbf": "1 h"}, "runs": 20},
        "checkpoint": {"every": "10 min", "write_time": "1 s"},
    }
    own = {"kind": "neighbours", "detection": "5 s", "copy": "2 s"}
    found = predict(load(job | {"recovery": own}, HOWTO, "x"))
    assert found.document["scenario"]["recovery"]["kind"] == "neighbours"
    there, here = (
        predict(load(job | {"recovery": {"kind": "restart", "detection": "5 s"}}, HOWTO, "x")),
        found,
    )
    lost = [p.points[0]["badput"]["wasted_progress"] for p in (there, here)]
    assert lost[1] < 0.01 * lost[0]


@pytest.mark.usefixtures("added")
def test_a_loader_is_one_file() -> None:
    """Eight workers, of which three have a slot: 9 s for a batch, one every 3 s."""
    own = {"loader": "ring_buffer", "workers": 8, "slots": 3, "decode": "9 s"}
    found = predict(load(TOY | {"strategy": {"kind": "ddp"}, "input": own}, HOWTO, "x"))
    assert found.document["scenario"]["input"]["slots"] == 3
    assert found.step_time_s == pytest.approx(3.0)


@pytest.mark.usefixtures("added")
def test_a_collective_is_one_file(tmp_path: Path) -> None:
    layer = {"name": "a", "parameters": 100, "forward": "1 ms", "backward": "2 ms"}
    data = TOY | {
        "model": {"layers": [layer]},
        "cluster": {"machine": "rack-10gbe", "nodes": 8, "gpus_per_node": 1},
        "strategy": {"kind": "ddp"},
    }
    data["collective"] = {"backend": "nccl", "algorithm": "butterfly"}
    found = predict(load(data, tmp_path, "x"))
    plan = found.outcomes[0].case.costs.plan("all_reduce", tuple(range(8)), 400.0)
    assert plan.algorithm == "butterfly"
    assert len(plan.phases) == 3
    assert found.points[0]["bytes_sent_per_rank"] == pytest.approx(3 * 400.0)


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize("n", [2, 4, 8])
def test_the_collective_of_the_page_keeps_its_closed_form(n: int) -> None:
    """On single-GPU nodes at one switch, where every pair has its own links."""
    algorithm = plugins.find("collectives", "butterfly")()
    topology = load_machine("rack-10gbe").topology(n, gpus_per_node=1)
    route = topology.route(0, 1)
    latency = sum(topology.link(edge).latency for edge in route)
    narrow = min(topology.link(edge).bandwidth for edge in route)
    stages = list(algorithm.stages("all_reduce", tuple(range(n)), 1e8, topology))
    played = sum(p.latency + p.seconds for p in (phase_of(s, topology) for s in stages))
    closed = algorithm.seconds("all_reduce", n, 1e8, latency, narrow)
    assert played == pytest.approx(closed, rel=1e-9)
    sent = sum(s.repeats * t.bytes for s in stages for t in s.transfers) / n
    assert sent == pytest.approx(algorithm.bytes_sent("all_reduce", n, 1e8), rel=1e-9)


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
    assert found.outcomes[0].case.machine is not None
    assert found.outcomes[0].case.machine.name == "my-box"
    check_points(found.points)


@pytest.mark.usefixtures("added")
def test_a_fabric_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "hallway.yaml").write_text(block("add-a-fabric.md", "yaml"), encoding="utf-8")
    (tmp_path / "x.yaml").write_text(
        "model: {name: vgg16}\ncluster: {machine: hallway.yaml, nodes: 4}\n"
        "strategy: {kind: ddp}\nsweep: {cluster.nodes: [1, 2, 4]}\n"
    )
    found = predict(read(tmp_path / "x.yaml"))
    assert [point["ranks"] for point in found.points] == [4, 8, 16]
    check_points(found.points)
    topology = found.outcomes[-1].case.costs.topology
    trunks = [edge for edge in topology.route(0, 12) if edge[0][0] == edge[1][0] == "leaf"]
    assert trunks == [(("leaf", k), ("leaf", k + 1)) for k in range(3)]
    # a trunk is narrower than a NIC's cable, so it decides how long an all-reduce takes
    plan = found.outcomes[-1].case.costs.plan("all_reduce", tuple(range(16)), SIZE)
    assert {kind for phase in plan.phases for kind, *_ in phase.busiest} == {"leaf"}


@pytest.mark.parametrize("kind", plugins.names("strategies"))
def test_parts_of_a_step_add_up(kind: str) -> None:
    sweep = {"cluster.ranks": [1, 2, 8], "batch.accumulation": [1, 3]}
    strategy = {"kind": kind} | ({"workers": 1} if kind == "post_local_sgd" else {})
    check_points(predict(load(TOY | {"strategy": strategy, "sweep": sweep}, HOWTO, "x")).points)


def check_points(points: list[dict[str, Any]]) -> None:
    for point in points:
        parts = ("compute_s", "exposed_communication_s", "bubble_s", "stall_s")
        assert sum(point[part] for part in parts) == pytest.approx(point["step_time_s"], rel=1e-9)
        assert point["step_time_s"] >= point["bound_s"] * (1 - 1e-9)


@pytest.mark.usefixtures("added")
def test_a_reader_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "steps.jsonl").write_text('{"step": 0, "seconds": 0.5}\n{"seconds": 0.25}\n')
    (tmp_path / "bad.jsonl").write_text('{"seconds": 0.5}\n{"seconds": "soon"}\n')
    (tmp_path / "other.txt").write_text("nothing that is known")
    assert read_any(tmp_path / "steps.jsonl").steps == (StepTime(None, None, (0.5, 0.25)),)
    with pytest.raises(Refused, match=r"bad\.jsonl: line 2: has no number of seconds"):
        read_any(tmp_path / "bad.jsonl")
    with pytest.raises(Refused, match=r"accepted: .*; step times as lines of JSON"):
        read_any(tmp_path / "other.txt")


def test_a_command_is_one_file(  # type: ignore[no-untyped-def]
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = importlib.import_module("dpsim.cli")
    (tmp_path / "quantity.py").write_text(block("add-a-command.md", "python"), encoding="utf-8")
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])
    try:
        assert cli("quantity", "400 Gbit/s") == (0, "5e+10 B/s\n", "")
        shown = cli("quantity", "5 us", "--unit", "s", "--json")[1]
        assert json.loads(shown) == {"value": 5e-06, "unit": "s"}
        assert cli("quantity", "400") == (
            2, "", "dpsim: '400' has no unit; write for example '400 Gbit/s'\n"
        )  # fmt: skip
        listed = re.findall(r"^  ([a-z-]+)  ", cli("--help")[1], re.MULTILINE)
        assert listed[listed.index("show") + 1] == "quantity"
    finally:
        sys.modules.pop("dpsim.cli.quantity", None)
        vars(commands).pop("quantity", None)
