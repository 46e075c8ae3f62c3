"""dpsim as a Python package: what a prompt sees, what a type checker finds, what it needs."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import json
import os
import pickle
import re
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas
import pytest
from matplotlib.figure import Figure

import dpsim
from dpsim.describe.sections import Cluster
from dpsim.machines.exchange import graph_text
from dpsim.predict.point import Failed

ROOT = Path(__file__).resolve().parent.parent


def test_the_lowest_versions_are_those_that_pyproject_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["fit"], *extras["parquet"]]
    bounds = {re.match(r"[a-z0-9]+", text)[0]: text for text in needed}  # type: ignore[index]
    assert all(">=" in text for text in needed), "a requirement without a floor"
    floors = {name: text.partition(">=")[2].partition(",")[0] for name, text in bounds.items()}
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    written = dict(line.split("==") for line in lines if not line.startswith("#"))
    pytest_floor = next(text for text in extras["test"] if text.startswith("pytest>="))
    assert written == {**floors, "pytest": pytest_floor.partition(">=")[2]}


# -- what a Python prompt sees --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["name", "path", "text", "data", "record", "loaded"])
def test_predict_takes_whatever_says_a_scenario(kind: str) -> None:
    loaded = dpsim.read("worked/ddp_steady")
    path = loaded.base / "ddp_steady.yaml"
    given = {
        "name": "worked/ddp_steady", "path": path, "text": str(path), "data": loaded.data,
        "record": loaded.scenario, "loaded": loaded,
    }[kind]  # fmt: skip
    before = repr(loaded.data)
    assert dpsim.predict(given).step_time_s == dpsim.predict(loaded).step_time_s
    assert repr(loaded.data) == before


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (3, "a int is no scenario; accepted: a name, a path, a dict"),
        ({}, "model: is missing"),
        ("no-such", "no scenario file"),
        ("", "'' names no scenario; a path, or a bundled name as quickstart, is accepted"),
    ],
)
def test_predict_refuses_what_says_none(given: object, said: str) -> None:
    with pytest.raises(dpsim.Refused, match=said):
        dpsim.predict(given)


def _ouroboros() -> dict[str, Any]:
    """A scenario that holds itself."""
    found: dict[str, Any] = {}
    found["model"] = found
    return found


MISTAKEN = {
    "changes: 'batch=3' where a dict": lambda: dpsim.change("quickstart", "batch=3"),  # type: ignore[arg-type]
    "a int is no scenario file": lambda: dpsim.read(3),  # type: ignore[arg-type]
    "sets: 'a=b' is one text": lambda: dpsim.read("quickstart", sets="a=b"),
    "grid: 'cluster.ranks=1' is one text": lambda: dpsim.sweep("quickstart", "cluster.ranks=1"),
    "grid cluster.ranks: 3 where a list": lambda: dpsim.sweep("quickstart", {"cluster.ranks": 3}),  # type: ignore[dict-item]
    "a dict is one scenario": lambda: dpsim.compare(dpsim.read("quickstart").data),
    "a Loaded is one scenario": lambda: dpsim.compare(dpsim.read("quickstart")),  # type: ignore[arg-type]
    "cluster: 3 is no machine": lambda: dpsim.collective("all_reduce", 3),  # type: ignore[arg-type]
    "sizes: true is no size": lambda: dpsim.collective("all_reduce", "dgx-h100", sizes=True),
    "operation: nothing is no coll": lambda: dpsim.collective(None, "dgx-h100"),  # type: ignore[arg-type]
    "table: a list where a CSV": lambda: dpsim.validate([]),  # type: ignore[arg-type]
    "--draws: 0 is not a whole number in 100": lambda: dpsim.compare(["quickstart"], draws=0),
    "--draws: 1.5 is not": lambda: dpsim.compare(["quickstart"], draws=1.5),  # type: ignore[arg-type]
    "--seed: -1 is not": lambda: dpsim.compare(["quickstart"], seed=-1),
    "--seed: 'x' is not": lambda: dpsim.compare(["quickstart"], seed="x"),  # type: ignore[arg-type]
    "jobs: '2' is not": lambda: dpsim.sweep("quickstart", jobs="2"),  # type: ignore[arg-type]
    "columns: 'fits' is one text": lambda: dpsim.sweep("quickstart", columns="fits"),
    "--largest: 3 where a text": lambda: dpsim.plan("quickstart", largest=3),  # type: ignore[arg-type]
    "--choose: .'parallel'. where a text": lambda: dpsim.plan("quickstart", choose=["parallel"]),  # type: ignore[arg-type]
    "list_iterator .* where a list": lambda: dpsim.change(
        "quickstart", {"sweep": {"seed": iter([1])}}
    ),
    "holds itself": lambda: dpsim.predict(_ouroboros()),
    "give batch first": lambda: dpsim.change("quickstart", {"batch.per_device": 1, "batch": {}}),
    "batch sets it already": lambda: dpsim.change(
        "quickstart", {"batch": {"per_device": 7}, "batch.per_device": 1}
    ),
    "ax 3 is no axes": lambda: dpsim.collective("all_reduce", "dgx-h100", sizes=1024).plot(ax=3),  # type: ignore[arg-type]
    "field 3 is no name": lambda: dpsim.collective("all_reduce", "dgx-h100", sizes=1).plot(field=3),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("said", MISTAKEN)
def test_an_argument_of_another_kind_is_refused_by_name(said: str) -> None:
    with pytest.raises(dpsim.Refused, match=said):
        MISTAKEN[said]()


def test_sizes_are_bytes_where_they_are_numbers() -> None:
    texts, numbers = (
        dpsim.collective("all_reduce", "dgx-h100", sizes=sizes)
        for sizes in (["1 KiB", "2 MB"], [1024, 2e6])
    )
    assert numbers.document == texts.document
    one = dpsim.collective("all_reduce", "dgx-h100", sizes=1024)
    assert one.document["groups"][0]["lines"] == texts.document["groups"][0]["lines"][:1]


def test_an_answer_is_one_short_line_at_a_prompt() -> None:
    answers = [
        dpsim.sweep("worked/ddp_steady", {"batch.per_device": [1, 2]}),
        dpsim.explain("worked/ddp_steady"),
        dpsim.compare({"a": "worked/ddp_steady", "b": "worked/ddp_steady"}),
        dpsim.collective("all_reduce", "dgx-h100", sizes=1024),
    ]
    shown = [repr(answer) for answer in answers]
    assert all(len(text.splitlines()) == 1 and len(text) <= 120 for text in shown), shown
    assert shown[0] == "Swept('ddp_steady': 2 of 2 points)"


ONE_POINT = {
    "model": {"name": "resnet50"}, "cluster": {"machine": "v100-1x100g", "nodes": 2},
    "strategy": {"kind": "ddp"},
}  # fmt: skip


def test_numbers_of_numpy_are_numbers() -> None:
    theirs = ONE_POINT | {
        "batch": {"per_device": np.int64(4)}, "compute": {"efficiency": np.float32(0.5)},
        "sweep": {"cluster.nodes": np.array([1, 2])},
    }  # fmt: skip
    ours = ONE_POINT | {
        "batch": {"per_device": 4}, "compute": {"efficiency": 0.5},
        "sweep": {"cluster.nodes": [1, 2]},
    }  # fmt: skip
    assert dpsim.predict(theirs) == dpsim.predict(ours)


def test_numbers_of_other_libraries_are_read_as_pythons_own() -> None:
    """Of numpy, of pandas and of decimal, in scenarios, grids and arguments."""
    given = {"batch.per_device": Decimal(64), "sweep": {"seed": pandas.Series([1, 2])}}
    assert [p.seed for p in dpsim.change("quickstart", given).points] == [1, 2]
    assert dpsim.change("quickstart", given).scenario.batch.per_device == 64
    answers = [dpsim.collective("all_reduce", "dgx-h100", nodes=n) for n in (1, np.int64(1))]  # type: ignore[arg-type]
    assert answers[0].document == answers[1].document
    some = [ONE_POINT, ONE_POINT]
    least = [dpsim.compare(some, ranks=ranks).document for ranks in (2, np.int64(2))]  # type: ignore[arg-type]
    assert least[0] == least[1]
    swept = dpsim.sweep(ONE_POINT, {"seed": pandas.Series([1, 2])}, columns=["step_time_s"])
    assert len(swept.document["points"]) == 2


def test_a_key_set_to_what_it_was_is_no_other_experiment() -> None:
    before = dpsim.read("quickstart").data["batch"]["per_device"]
    same = f"batch.per_device={before}"
    assert dpsim.read("quickstart", [same]).altered == ()
    assert dpsim.change("quickstart", {"batch.per_device": before}).altered == ()
    other = f"batch.per_device={before // 2}"
    assert dpsim.read("quickstart", [other]).altered == (other,)
    assert dpsim.read("quickstart", [other, same]).altered == ()
    new = "strategy.bucket_cap_mb=10"
    assert dpsim.read("quickstart", [same, new]).altered == (new,)


def test_predictions_travel_and_are_equal_where_their_answers_are() -> None:
    one, same, other = map(dpsim.predict, (ONE_POINT, dict(ONE_POINT), "worked/ddp_steady"))
    assert one == same != other
    assert {one, same, other} == {one, other}
    for copied in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
        assert copied == one
    assert copied.explain() == one.explain()


def test_a_file_name_that_is_no_text_is_written_with_question_marks(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"b\xffd.yaml")
    path.write_bytes((dpsim.read("worked/ddp_steady").base / "ddp_steady.yaml").read_bytes())
    found = dpsim.predict(path)
    assert found.document["name"] == "b?d"
    json.dumps(found.document, ensure_ascii=False).encode()
    path.write_text("modell: 1\n")
    with pytest.raises(dpsim.Refused, match=r"b\?d\.yaml:1: modell"):
        dpsim.predict(path)


def test_the_package_lists_what_it_offers() -> None:
    assert dir(dpsim) == sorted(dpsim.__all__)
    assert all(getattr(dpsim, name) for name in dir(dpsim))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = dpsim.nonsense
    assert (Path(dpsim.__file__).parent / "py.typed").is_file()


FUNCTIONS = sorted(n for n in dpsim.__all__ if n.islower() and not n.startswith("_"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_type_checker_sees_every_argument_and_answer(name: str) -> None:
    """`tests/campaigns/types_seen.py` asks mypy itself."""
    function = getattr(importlib.import_module(dpsim._WHERE[name]), name)
    signature = inspect.signature(function)
    kinds = [signature.return_annotation, *(p.annotation for p in signature.parameters.values())]
    assert inspect.Signature.empty not in kinds
    assert kinds[0] != "Any"
    assert function.__doc__
    optional = [n for n, p in signature.parameters.items() if p.default is not p.empty]
    missing = [one for one in optional if one not in function.__doc__]
    assert not missing, f"the docstring says nothing of {missing}"
    stated = (Path(dpsim.__file__)).read_text("utf-8").partition("if TYPE_CHECKING:")[2]
    assert re.search(rf"\b{name}\b", stated.partition("#:")[0])


@pytest.mark.parametrize("count", [1, 2, 9, 10, 300])
def test_a_prediction_shows_itself_in_ten_lines_and_as_a_table(count: int) -> None:
    found = dpsim.predict("worked/ddp_steady")
    failed = Failed(ranks=3, nodes=None, global_batch=None, error="no <b>", set={})
    one = found.outcomes[0]
    outcomes = (*[one] * (count - 1), dataclasses.replace(one, point=failed))
    many = dataclasses.replace(found, outcomes=outcomes)
    lines = repr(many).splitlines()
    assert len(lines) == min(count + 1, 10)
    assert max(map(len, lines)) <= 120
    assert lines[-1] == "     3 ranks  no number: no <b>"
    shown = many._repr_html_()
    assert shown.count("<tr") == count + 1
    assert "no &lt;b&gt;" in shown
    assert len(repr(found.loaded).splitlines()) == 1


# -- answers as tables and pictures ---------------------------------------------------------------


def test_the_session_of_the_tutorial_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Build, predict, change, plot on own axes, to_pandas, explain, ask more, take a graph."""
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "tutorial-python.md").read_text("utf-8")
    session: dict[str, Any] = {}
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)):
        exec(compile(block, f"block {number}", "exec"), session)
    try:
        _check_session(session, capsys.readouterr().out)
        assert (tmp_path / "scaling.png").stat().st_size > 10_000
        assert nx.read_graphml(tmp_path / "node.graphml").nodes["gpu0"]["kind"] == "gpu"
    finally:
        plt.close("all")


def _check_session(session: dict[str, Any], said: str) -> None:
    """What came of it is the same as what the answers hold."""
    assert "did you mean 'v100-1x100g'?" in said
    prediction, table = session["prediction"], session["table"]
    assert list(table["step_time_s"]) == [point.step_time_s for point in prediction.points]
    line = next(one for one in session["left"].lines if one.get_label() == "predicted")
    assert list(line.get_xdata()) == [8, 16]
    assert line.get_ydata() == pytest.approx([100 * p.efficiency for p in prediction.points])
    assert session["after"].points[-1].step_time_s > prediction.points[-1].step_time_s
    assert session["last"].what_if
    assert len(session["swept"].to_pandas()) == 4
    assert session["answer"].found
    assert session["choice"].recommendation == "now"
    assert set(session["times"].to_pandas()["nodes"]) == {1, 2}


@pytest.mark.parametrize("section", ["record", "own dataclass"])
def test_a_section_may_be_a_dataclass(section: str) -> None:
    @dataclasses.dataclass
    class Mine:
        machine: str
        nodes: int

    record = Cluster(machine="v100-1x100g", nodes=2)
    cluster = record if section == "record" else Mine("v100-1x100g", 2)
    assert dpsim.predict({**ONE_POINT, "cluster": cluster}) == dpsim.predict(ONE_POINT)


def test_a_change_takes_a_key_out_of_the_sweep_and_leaves_the_scenario_as_it_was() -> None:
    before = dpsim.read("quickstart")
    after = dpsim.change(before, {"batch.per_device": 16, "cluster.ranks": 4})
    assert len(before.points) == 6
    assert [point.cluster.ranks for point in after.points] == [4]
    assert after.scenario.batch.per_device == 16
    with pytest.raises(dpsim.Refused, match="did you mean"):
        dpsim.change(before, {"batch.per_devise": 1})


def test_what_cannot_be_drawn_is_refused() -> None:
    prediction = dpsim.predict("worked/ddp_steady")
    with pytest.raises(dpsim.Refused, match="no point has a number 'colour'"):
        prediction.plot(Figure().subplots(), "colour")
    with pytest.raises(dpsim.Refused, match="has one picture"):
        dpsim.explain(prediction).plot(Figure().subplots(), "mfu")


@pytest.mark.parametrize("machine", ["dgx-1v", "dual-root-pcie3"])
def test_a_machine_comes_back_from_its_graph_wire_by_wire(machine: str, tmp_path: Path) -> None:
    graph = dpsim.machine_graph(machine)
    for suffix in (".graphml", ".json"):
        (tmp_path / f"g{suffix}").write_text(graph_text(graph, suffix))
        dpsim.machine_of(tmp_path / f"g{suffix}", out=tmp_path / f"m{suffix}.yaml")
        again = dpsim.machine_graph(tmp_path / f"m{suffix}.yaml")
        assert dict(again.edges) == dict(graph.edges)
        assert set(again) == set(graph)


@pytest.mark.parametrize(
    ("edges", "said"),
    [
        ([("gpu0", "gpu1", {})], "edge gpu0 – gpu1: has no bandwidth_bytes_per_s"),
        ([("gpu0", "host", {"bandwidth": "1 GB/s"})], "vertex 'host' is not called gpu0"),
        ([("gpu0", "gpu1", {"bandwidth": "1 GB"})], "edge gpu0 – gpu1: .*1 GB"),
        (
            [("gpu0", "gpu1", {"bandwidth": "1 GB/s"}), ("gpu1", "gpu0", {"bandwidth": "2 GB/s"})],
            "its two directions differ",
        ),
    ],
)
def test_a_graph_that_is_no_node_is_refused(edges: list[Any], said: str) -> None:
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_edges_from(edges)
    with pytest.raises(dpsim.Refused, match=said):
        dpsim.machine_of(graph, device="h100-sxm")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("<graphml", '<!DOCTYPE g [<!ENTITY lol "ha">]><graphml', "declares entities"),
        (">32000000000.0<", ">x<", "edge gpu0 – .*: bandwidth_bytes_per_s 'x' is not a number"),
        (">0</data>", ">inf</data>", "node gpu0: node 'inf' is not a whole number"),
        ("</graphml>", "", "no element found: line"),
    ],
)
def test_a_broken_graph_file_is_refused_in_plain_words(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_node("gpu0", node=0)
    graph.add_edge("gpu0", "gpu1", bandwidth_bytes_per_s=32e9)
    text = graph_text(graph, ".graphml")
    assert old in text
    path = tmp_path / "node.graphml"
    path.write_text(text.replace(old, new, 1), "utf-8")
    with pytest.raises(dpsim.Refused, match=f"node.graphml: .*{said}"):
        dpsim.machine_of(path, device="h100-sxm")
    path.write_bytes(text.encode("utf-16"))
    with pytest.raises(dpsim.Refused, match="UTF-16, and UTF-8 is read"):
        dpsim.machine_of(path, device="h100-sxm")


def test_a_gpu_that_says_it_is_another_device_is_refused() -> None:
    graph = dpsim.machine_graph("dgx-h100")
    for vertex in graph:
        if vertex.startswith("gpu"):
            graph.nodes[vertex]["device"] = "h100-sxm"
    alike = dpsim.machine_of(graph, device="h100-sxm")
    graph.nodes["gpu3"]["device"] = "a100-sxm4-80gb"
    with pytest.raises(dpsim.Refused, match="vertex gpu3 is a a100-sxm4-80gb, and the machine's"):
        dpsim.machine_of(graph, device="h100-sxm")
    assert alike["gpus_per_node"] == 8
