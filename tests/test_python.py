"""dpsim as a Python package: what a prompt sees, what a type checker finds, what it needs."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import pickle
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

import dpsim
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
    assert dir(dpsim) == [
        "Prediction", "Refused", "Scenario", "__version__", "from_torch", "predict", "read",
    ]  # fmt: skip
    assert all(getattr(dpsim, name) for name in dir(dpsim))
    assert (Path(dpsim.__file__).parent / "py.typed").is_file()


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
