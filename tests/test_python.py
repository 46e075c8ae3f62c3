"""dpsim as a Python package: what a prompt sees, what a type checker finds, what it needs."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path

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
    ],
)
def test_predict_refuses_what_says_none(given: object, said: str) -> None:
    with pytest.raises(dpsim.Refused, match=said):
        dpsim.predict(given)


def test_the_package_lists_what_it_offers() -> None:
    assert dir(dpsim) == ["Prediction", "Refused", "Scenario", "__version__", "predict", "read"]
    assert all(getattr(dpsim, name) for name in dir(dpsim))
    assert (Path(dpsim.__file__).parent / "py.typed").is_file()


@pytest.mark.parametrize("count", [1, 2, 9, 10, 300])
def test_a_prediction_shows_itself_in_ten_lines_and_as_a_table(count: int) -> None:
    found = dpsim.predict("worked/ddp_steady")
    failed = Failed(ranks=3, nodes=None, global_batch=None, error="no <b>", set={})
    points = (*found.points * (count - 1), failed)
    many = dataclasses.replace(found, answer=dataclasses.replace(found.answer, points=points))
    lines = repr(many).splitlines()
    assert len(lines) == min(count + 1, 10)
    assert max(map(len, lines)) <= 120
    assert lines[-1] == "     3 ranks  no number: no <b>"
    shown = many._repr_html_()
    assert shown.count("<tr") == count + 1
    assert "no &lt;b&gt;" in shown
    assert len(repr(found.loaded).splitlines()) == 1
