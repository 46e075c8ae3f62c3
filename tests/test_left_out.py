"""Errors and intervals of sources left out: what counts how, and what the page says of it."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "validation"))

import _fit_intervals
import _left_out_page
import _left_out_rows
import left_out
import memory
from _fit_intervals import Cause

from dpsim.accuracy.training.table import read_table

TABLE = """\
series_id,row_id,role,quality,model,accelerator,gpus_per_node,total_gpus,batch_per_gpu,precision,\
strategy,value,unit,throughput_global
a,a1,calib,A,resnet50,V100-SXM2-16GB,8,1,64,fp32,DDP,370,images/s,370
a,a8,predict,A,resnet50,V100-SXM2-16GB,8,8,64,fp32,DDP,2800,images/s,2800
a,a9,predict,A,no such model,V100-SXM2-16GB,8,8,64,fp32,DDP,1000,images/s,1000
a,ac,predict,C,resnet50,V100-SXM2-16GB,8,4,64,fp32,DDP,1400,images/s,1400
b,b8,absolute,A,resnet50,V100-SXM2-16GB,8,8,64,fp32,DDP,99999,images/s,99999
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("left_out") / "measured"
    folder.mkdir()
    (folder / "t.csv").write_text(TABLE, encoding="utf-8")
    assert len(read_table(folder / "t.csv").rows) == 5
    found = _left_out_rows.rows_of([folder / "t.csv"])
    _left_out_rows.save(folder / "rows.jsonl", found)
    assert _left_out_rows.load([folder / "rows.jsonl"]) == json.loads(json.dumps(found))
    return found


def test_a_row_is_kept_with_what_is_predicted_and_known_of_it(rows: list[dict[str, Any]]) -> None:
    kinds = {(row["row"], row["kind"]) for row in rows}
    both = ("calibrated", "uncalibrated")
    alone = {(row, "uncalibrated") for row in ("a1", "b8")}
    assert kinds == {*alone, *((r, k) for r in ("a8", "a9") for k in both)}
    found = next(row for row in rows if (row["row"], row["kind"]) == ("a8", "calibrated"))
    assert (found["at"], found["ranks"], found["shares"]) == (1, 8, 64)
    # linear scaling says 8 x 370, a seventeenth more than measured
    assert math.exp(found["linear"]) == pytest.approx(8 * 370 / 2800)
    assert abs(found["log"]) < 0.2
    low, high = found["network"]
    assert low <= 1.0 <= high


def test_refused_rows_are_charged_what_linear_scaling_misses(rows: list[dict[str, Any]]) -> None:
    """8 x 370 against 1,000 is off by 196 %; where nothing is calibrated the least is charged."""
    charged = {row["kind"]: row["charged"] for row in rows if row["row"] == "a9"}
    assert charged["calibrated"] == pytest.approx(8 * 370 / 1000 - 1)
    assert charged["uncalibrated"] == _left_out_rows.CHARGED
    figures = left_out._missed([row for row in rows if row["kind"] == "calibrated"])
    assert (figures["n"], figures["rows"]) == (1, 2)
    assert figures["linear_median"] == pytest.approx(8 * 370 / 2800 - 1)
    assert figures["charged_mean"] == pytest.approx((figures["median"] + 1.96) / 2)


def test_nothing_is_learned_of_what_readings_explain() -> None:
    """Where the readings of a row lie as far apart as it is off, no other width is needed."""
    logs = np.array([0.5, -0.5] * 6)
    groups = np.repeat(["a", "b", "c"], 4)
    one, apart = np.ones(len(logs)), np.full(len(logs), 0.6)
    causes = {"any": Cause(one, one), "readings": Cause(apart, apart, given=True)}
    found = _fit_intervals.learned(causes, logs, groups)
    assert [side[1] for side in found.widths] == [1.0, 1.0]
    assert max(side[0] for side in found.widths) < 0.05
    assert found.below == pytest.approx(0.6, abs=0.01)
    assert "readings.slow" not in _fit_intervals.constants(causes, found, "", 12)


def test_what_is_judged_has_no_part_in_its_own_width() -> None:
    """Of three groups one is ten times as far off: its own interval is that of the other two,
    widened by what these need, and no wider for the group being far off."""
    logs = np.array([0.1, -0.1, 0.09, -0.11, 0.1, -0.1, 1.0, -1.0])
    groups = np.array(["a", "a", "b", "b", "b", "b", "far", "far"])
    even = logs.copy()
    even[groups == "far"] *= 0.1
    one = {"constant": Cause(*[np.ones(len(logs))] * 2)}
    with_far, without = (_fit_intervals.learned(one, each, groups) for each in (logs, even))
    far = groups == "far"
    assert with_far.factor > 2 * without.factor
    below, above = _fit_intervals.constant(logs, groups)
    assert below[far] == pytest.approx(with_far.below[far])
    assert above[far] == pytest.approx(with_far.above[far])
    assert max(above[far]) < 0.2


def test_a_run_published_again_with_the_same_bytes_counts_once() -> None:
    """Of the shipped rows 16 of Megatron are distinct and 9 of torchtitan."""
    with memory.TABLE.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert Counter(row["source_id"] for row in rows) == {"SIMUMAX": 48, "TITAN": 9}
    kept = memory.distinct(rows)
    assert Counter(row["source_id"] for row in kept) == {"SIMUMAX": 16, "TITAN": 9}


def test_tables_of_one_name_stay_apart(rows: list[dict[str, Any]]) -> None:
    assert {row["table"] for row in rows} == {"measured/t.csv"}


def test_a_row_that_is_faster_than_its_devices_is_refused_and_charged(
    rows: list[dict[str, Any]],
) -> None:
    found = next(row for row in rows if row["row"] == "b8")
    assert "shorter than Tesla V100-SXM2-16GB can be" in found["refused"]
    assert found["charged"] == _left_out_rows.CHARGED


def test_rows_of_another_link_than_their_table_says_tell_nothing() -> None:
    """Of two series of one source that were not measured where it says: between nodes alone."""
    series = left_out.ELSEWHERE[0]
    assert left_out._elsewhere({"series": series, "nodes": 2})
    assert not left_out._elsewhere({"series": series, "nodes": 1})
    assert not left_out._elsewhere({"series": series.replace("100GbE", "10GbE"), "nodes": 2})


@pytest.mark.parametrize("pull", [0.5, 9.0])
def test_widths_are_learned_beside_the_width_that_they_end_with(
    pull: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Intervals that may reach farther down need no factor: the width of runs falls by `pull` times
    what they are given, from 0.1; 0.1 / (1 + pull) is where it stays, if it gets there."""
    rows = [{"row": "1", "log": 0.0, "stand_in": False}]
    causes = {"run": _fit_intervals.Cause(np.ones(1), np.ones(1))}

    def judged(rows: Any, causes: Any, group: str, most: Any) -> Any:
        width = np.array([0.1 - pull * float(most[0])])
        found = _fit_intervals.Learned((width, width), (), width, width, 1.0)
        return found, {"most": float(most[0])}

    monkeypatch.setattr(left_out, "_judged", judged)
    if pull > 1.0:
        with pytest.raises(ValueError, match="has not settled"):
            left_out._settled(rows, causes, {"1": 1.0})
        return
    found, figures = left_out._settled(rows, causes, {"1": 1.0})
    assert found.widths[0][0] == pytest.approx(0.1 / (1.0 + pull), abs=1e-3)
    assert figures["most"] == pytest.approx(found.widths[0][0], abs=1e-3)


def test_the_page_says_where_linear_scaling_is_nearer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"median": 0.05, "p90": 0.2, "linear_median": 0.02, "linear_p90": 0.3}
    own |= {"charged_median": 0.06, "n": 3, "rows": 4}
    other = {**own, "linear_median": 0.07}
    part = {"n": 7, "score": 0.5, "score_over_groups": 0.6, "coverage": 0.9}
    part |= {"coverage_over_groups": 0.8, "half_width": 0.12}
    figures = {
        "errors": {"X": own, "Y": other, "Z": {"n": 0, "rows": 2},
                   "all": {**other, "mean_over_sources": 0.05}},
        "calibrated": {"t.csv": {"own": part, "constant": {**part, "score": 0.7}}},
    }  # fmt: skip
    figures["tables"] = {"t.csv": {**own, "mean_over_sources": 0.04}}
    figures["elsewhere"] = {"rows": 2, "calibrated": figures["calibrated"],
                            "errors": {**own, "median": 0.06}}  # fmt: skip
    (tmp_path / "left_out.json").write_text(json.dumps(figures), encoding="utf-8")
    monkeypatch.setattr(_left_out_page, "FIGURES", tmp_path / "left_out.json")
    text = _left_out_page.sections()
    assert "Linear scaling is nearer on X (2.0 % against 5.0 %)." in text
    assert "| calibrated | t | 7 | 0.50 (0.60) | 0.70 (0.60) | 90 % (80 %) | 12 % |" in text
    assert "| X | 3 of 4 |" in text
    assert text.index("| Y | 3 of 4 |") < text.index("| *t* | 3 of 4 |") < text.index("| **all** |")
    assert "The mean over sources of their medians is 5.0 % (t: 4.0 %)." in text
    assert "Not scored are 2 rows" in text
    assert "0.50 beside 0.70 calibrated (t), the median error 6.0 %" in text.replace("\n", " ")
    assert "| Z |" not in text
    monkeypatch.setattr(_left_out_page, "FIGURES", tmp_path / "none.json")
    assert _left_out_page.sections() == _left_out_page.SEEN
