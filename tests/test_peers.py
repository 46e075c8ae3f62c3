"""Other simulators' rows: as they were published, and compared as the page says."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "validation"))

import peers
from _peers_page import Row, group_of, medians, uncalibrated

from dpsim.models.huggingface import read_config
from dpsim.predict.shortened import step_time

ROWS: list[Row] = list(csv.DictReader(peers.TABLE.read_text(encoding="utf-8").splitlines()))
#: cases, and ranges of errors of steps and memory [%] that SimuMax prints in another document of
#: its repository (docs/FULL_RESULTS.md, 4dcaae51)
RANGES = {
    "dense": (24, (-11.37, -0.18), (-0.49, -0.17)),
    "experts": (12, (-13.54, 0.06), (-0.81, -0.50)),
    "long sequences": (7, (-9.27, -5.05), (-1.38, -0.06)),
}


def errors(rows: list[Row], unit: str) -> list[float]:
    """The peer's errors [%]."""
    return [100 * (float(r[f"peer_{unit}"]) / float(r[f"measured_{unit}"]) - 1) for r in rows]


@pytest.mark.parametrize("area", list(RANGES))
def test_the_table_has_the_errors_that_its_source_prints(area: str) -> None:
    rows = [row for row in ROWS if group_of(row).partition(",")[0] == area]
    count, steps, memory = RANGES[area]
    assert len(rows) == count
    # five digits of a step and two decimals of a GiB are printed, so these end within 0.02 %
    for unit, wanted in (("ms", steps), ("gib", memory)):
        found = errors(rows, unit)
        assert (min(found), max(found)) == pytest.approx(wanted, abs=0.02)


def test_every_mesh_fills_its_ranks_and_says_what_its_name_says() -> None:
    for row in ROWS:
        split = int(row["tensor"]) * int(row["context"]) * int(row["pipeline"])
        replicas = int(row["ranks"]) // split
        assert replicas * split == int(row["ranks"]) == 8
        words = row["source_loc"].split("_")
        assert {f"tp{row['tensor']}", f"pp{row['pipeline']}", f"dp{replicas}"} <= set(words)
        assert {f"l{row['blocks']}", f"mbc{row['accumulation']}"} <= set(words)


@pytest.mark.parametrize(
    ("name", "blocks", "billions"),
    [("deepseek-v2", 60, 235.7), ("deepseek-v3", 61, 671.0), ("llama-3-70b", 80, 70.6)],
)
def test_models_have_their_published_sizes(name: str, blocks: int, billions: float) -> None:
    base, changed = peers.MODELS[name]
    if name == "deepseek-v3":  # its launcher makes one block dense, its release three
        changed = {**changed, "first_k_dense_replace": 3}
    data = json.loads((peers.CONFIGS / f"{base}.json").read_text())
    data |= {**changed, "num_hidden_layers": blocks}
    model = read_config(data, sequence_length=4096, name=name)
    assert sum(layer.parameters for layer in model.layers) / 1e9 == pytest.approx(billions, 2e-3)


def test_runs_that_took_what_is_predicted_have_no_error(tmp_path: Path) -> None:
    """And calibrating on the first of them changes nothing; the peer's error stays its own."""
    rows = [dict(row) for row in ROWS if row["model"] == "llama-3-70b"][:2]
    for row in rows:
        own = 1e3 * step_time(peers.case_of(row, tmp_path))
        row["measured_ms"], row["peer_ms"] = f"{own:.9f}", f"{1.1 * own:.9f}"
    first, second = peers.compared(rows, tmp_path)
    assert first.calibrated is None
    assert first.anchored is None
    assert second.own.point == pytest.approx(second.measured, rel=1e-9)
    assert second.calibrated is not None
    assert second.calibrated.point == pytest.approx(second.measured, rel=1e-6)
    assert second.anchored == pytest.approx(second.measured, rel=1e-9)
    assert uncalibrated(second).peer == pytest.approx(0.1)
    assert list(medians([first, second]))[-1].startswith("| all | 2 | 10.0 % | 0.0 % | 2 of 2, ")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "llama-9"}, "llama-9 on b200 is not known here"),
        ({"device": "b9"}, "llama-3-70b on b9 is not known here"),
        ({"measured_gib": "nan"}, "measured_gib: nan is no positive number"),
        ({"tensor": "3", "ranks": "6"}, "heads"),
    ],
)
def test_a_row_that_cannot_be_played_is_named_and_loses_no_other(
    change: Row, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = [row for row in ROWS if row["model"] == "llama-3-70b"][:1]
    found = peers.compared([*good, {**good[0], "row_id": "X", **change}], tmp_path)
    assert [one.row["row_id"] for one in found] == ["S01"]
    heard = capsys.readouterr().err
    assert heard.startswith("X: ")
    assert said in heard


def test_runs_without_a_peers_prediction_are_named_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One plan of the shipped table of training runs, and none of the peer's own rows."""
    with peers.TRAINING.open(encoding="utf-8") as file:
        table = csv.reader(file)
        head = next(table)
        plans = [row for row in table if row[0] in ("T2470", "T2471")]
    for path, rows in ((tmp_path / "plans.csv", plans), (tmp_path / "none.csv", [])):
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([head, *rows])
    found = peers.plans(tmp_path / "plans.csv")
    assert [one.calibrated is None for one in found] == [True, False]
    assert peers.main([str(tmp_path / "none.csv"), "--training", str(tmp_path / "plans.csv")]) == 0
    told = capsys.readouterr().out
    assert told.count("| – |") >= 3
    assert "| vTrain, as its authors say | 109 | 14.73 % |" in told
    assert "| all | 0 | – |" in told
