"""The column `loader` of tables of training runs: what is said is what is played."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from dpsim.accuracy.training.validate import validated_training

ROW = {
    "model": "resnet50", "framework": "PyTorch", "strategy": "DDP", "precision": "fp32",
    "accelerator": "V100-SXM2-16GB", "gpus_per_node": "8", "intra_node": "NVLink",
    "inter_node": "100G InfiniBand", "batch_per_gpu": "128", "unit": "images/s", "task": "imagenet",
}  # fmt: skip
#: images/s on so many V100, DataLoader with 8 workers a process: Oneflow-Inc/DLPerf at
#: c89430bac64f, PyTorch/resnet50v1.5/README.md (Apache-2.0)
DLPERF = {1: 306.35, 8: 1070.37, 16: 2093.53}


def predicted(
    place: Path,
    loader: str,
    measured: dict[int, float] = DLPERF,
    other: dict[str, str] = {},  # noqa: B006
) -> list[Any]:
    """Outcomes of a series with that loader, calibrated on its first row."""
    table = place / "runs.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        names = [*{**ROW, **other}, "total_gpus", "nodes", "value", "loader", "series_id"]
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        for gpus, value in measured.items():
            own = {"total_gpus": gpus, "nodes": -(-gpus // 8), "value": value, "series_id": "one"}
            writer.writerow({**ROW, **other, **own, "loader": loader})
    return validated_training(table).outcomes


def test_stated_workers_and_cores_bend_a_curve_as_it_was_measured(tmp_path: Path) -> None:
    """24 cores of a node feed no more than 1,070 images/s, whatever the devices do."""
    said = predicted(tmp_path, "torch, 8 workers, 24 cores")
    found = [one.predicted for one in said[1:]]
    assert found == pytest.approx([DLPERF[8], DLPERF[16]], rel=0.12)
    unsaid = predicted(tmp_path, "")
    assert unsaid[1].predicted > 2.0 * DLPERF[8]


def test_synthetic_data_are_read_where_they_are_said(tmp_path: Path) -> None:
    """In `loader` or `task`; ranks differ by less than with a loader that keeps up."""
    told = predicted(tmp_path, "synthetic")[2].predicted
    assert told > 1.02 * predicted(tmp_path, "no limit")[2].predicted
    for task in ("synthetic ImageNet", "ImageNet (mock data)", "dummy data"):
        assert predicted(tmp_path, "", other={"task": task})[2].predicted == told, task
    real = predicted(tmp_path, "")[2].predicted
    for task in ("ImageNet, no synthetic data", "imagenet (not synthetic)", "fake news"):
        assert predicted(tmp_path, "", other={"task": task})[2].predicted == real, task


def test_a_synthetic_row_says_nothing_of_the_loader_of_another(tmp_path: Path) -> None:
    """Which may be a limit, as if one GPU had been measured; `machine` says what was synthetic."""
    table = tmp_path / "t.csv"
    width = {}
    for first in ("synthetic ImageNet", "imagenet"):
        with table.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [*ROW, "total_gpus", "nodes", "value", "series_id"])
            writer.writeheader()
            for gpus, task in ((8, first), (16, "imagenet")):
                own = {"total_gpus": gpus, "nodes": gpus // 8, "value": 300 * gpus, "task": task}
                writer.writerow({**ROW, **own, "series_id": "one"})
        base, other = validated_training(table).outcomes
        width[first] = other.high / other.low
        assert ("synthetic" in base.machine) == first.startswith("synthetic")
    assert width["synthetic ImageNet"] > 1.15 * width["imagenet"]


def test_a_row_of_another_batch_or_dtype_was_not_measured(tmp_path: Path) -> None:
    """On as many GPUs as the calibrated row, which alone is known to 3 %."""
    table = tmp_path / "t.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*ROW, "total_gpus", "value", "series_id"])
        writer.writeheader()
        for batch in (64, 64, 128):
            own = {"batch_per_gpu": batch, "total_gpus": 8, "value": 2000, "series_id": "one"}
            writer.writerow({**ROW, **own})
    _, again, other = validated_training(table).outcomes
    width = {name: one.high / one.low for name, one in (("again", again), ("other", other))}
    assert width["again"] == pytest.approx(1.03 / 0.97, rel=0.01)
    assert width["other"] > 1.15


def test_a_rate_is_that_of_a_node(tmp_path: Path) -> None:
    said = predicted(tmp_path, "1,000 images/s per node", {1: 300.0, 16: 1.0})
    assert said[1].predicted == pytest.approx(2000.0, rel=0.01)


PADDLE = {
    "framework": "PaddlePaddle", "source_repo": "Oneflow-Inc/DLPerf", "model": "ResNet-50 v1.5",
    "precision": "FP16 mixed (AMP)", "batch_per_gpu": "224",
}  # fmt: skip


def test_hosts_that_are_known_to_decode_feed_a_node_no_faster(tmp_path: Path) -> None:
    """64 threads and 8 processes on 24 cores, 6.9 ms a photograph: 3,865 images/s a node."""
    eight, sixteen = predicted(tmp_path, "", {1: 800.0, 8: 1.0, 16: 1.0}, PADDLE)[1:]
    assert [eight.predicted, sixteen.predicted] == pytest.approx([3865, 7729], rel=0.01)
    assert "3,865 images/s a node are assumed" in eight.machine
    assert eight.low < 0.55 * eight.predicted  # nobody has timed that host
    assert eight.high > 6000  # and it may be no limit


def test_a_script_that_does_not_hand_its_loader_on_decodes_on_several_nodes(tmp_path: Path) -> None:
    dali = {**PADDLE, "framework": "PaddlePaddle w/DALI"}
    one, two = predicted(tmp_path, "", {1: 800.0, 8: 1.0, 16: 1.0}, dali)[1:]
    assert "the host decodes" not in one.machine
    assert "10 threads a GPU" in two.machine
    assert two.predicted < 1.5 * one.predicted


@pytest.mark.parametrize(
    ("loader", "other"),
    [
        ("not stated", {}),
        ("", {"framework": "NGC PyTorch"}),
        ("", {"source_repo": "somebody/else"}),
    ],
)
def test_of_other_hosts_nothing_is_assumed(
    tmp_path: Path, loader: str, other: dict[str, str]
) -> None:
    one = predicted(tmp_path, loader, {1: 800.0, 8: 1.0}, {**PADDLE, **other})[1]
    assert one.predicted > 5000
    assert "the host decodes" not in one.machine


def test_a_run_that_was_faster_than_its_host_is_assumed_to_be_tells_otherwise(
    tmp_path: Path,
) -> None:
    one = predicted(tmp_path, "", {8: 6000.0, 16: 1.0}, PADDLE)[1]
    assert one.predicted > 10_000
    assert "the host decodes" not in one.machine


def test_a_run_that_was_faster_than_its_workers_are_assumed_to_be_tells_otherwise(
    tmp_path: Path,
) -> None:
    """Eight workers for each of eight GPUs, at 26.1 ms a photograph, make 2,452 a second."""
    one = predicted(tmp_path, "torch, 8 workers", {8: 6000.0, 16: 1.0}, PADDLE)[1]
    assert one.predicted > 10_000
    stated = predicted(tmp_path, "torch, 8 workers, 26 ms", {8: 6000.0, 16: 1.0}, PADDLE)[0]
    assert "shorter than what the loader takes" in stated.reason


def test_what_a_row_says_of_its_loader_is_never_dropped(tmp_path: Path) -> None:
    first = predicted(tmp_path, "2000 images/s per node", {8: 6000.0, 16: 1.0}, PADDLE)[0]
    assert first.status == "refused"
    assert "shorter than what the loader takes" in first.reason


def test_an_assumed_rate_leaves_the_input_pipeline_unsure(tmp_path: Path) -> None:
    """Where it limits nothing, the interval is as wide as where nothing is known of a loader."""
    quick = {**PADDLE, "precision": "FP32"}
    known, unknown = (
        predicted(tmp_path, loader, {1: 100.0, 8: 1.0}, quick)[1] for loader in ("", "not stated")
    )
    assert known.predicted == pytest.approx(unknown.predicted, rel=1e-6)
    assert known.low <= unknown.low * (1 + 1e-9)


@pytest.mark.parametrize(("words", "told"), [("", True), (" per node", False)])
def test_how_a_bare_rate_is_read_is_told(tmp_path: Path, words: str, told: bool) -> None:
    _, one = predicted(tmp_path, f"1000 images/s{words}", {1: 300.0, 16: 1.0})
    assert ("1000 images/s is taken as what each node is fed" in str(one)) == told


@pytest.mark.parametrize(
    ("loader", "said"),
    [
        ("torch, 8 foos", "'8 foos' is not known"),
        ("8 workers", "loader: which"),
        ("tf.data, 8 threads", "what does a sample take one core"),
        ("torch, 8 workers, tape", "'tape' is not known"),
        ("torch, 16 workers per node", "'16 workers per node' is not known"),
        ("torch, 8 workers per GPU, 4 workers", "'4 workers' says workers twice"),
        ("torch, 8 workers, 1.2.3 ms", "'1.2.3 ms' is not known"),
        ("1.0.7 images/s", "'1.0.7 images/s' is not known"),
    ],
)
def test_words_that_are_not_known_are_refused(tmp_path: Path, loader: str, said: str) -> None:
    (row,) = predicted(tmp_path, loader, {8: 1000.0})
    assert row.status == "refused"
    assert said in row.reason
