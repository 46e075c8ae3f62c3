"""What rows of a series share though none of them says it, and readings of which one is enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_validate_training import write

from dpsim.accuracy.training.scenarios import measured_case, platform_of
from dpsim.accuracy.training.series import anchors_of, play_series
from dpsim.accuracy.training.table import TrainingRow, read_table
from dpsim.accuracy.training.validate import validated_training

LLAMA: dict[str, Any] = {
    "model": "Llama-3.1-8B", "accelerator": "A100-SXM4-40GB", "gpus_per_node": 8,
    "inter_node": "8x HDR InfiniBand", "precision": "bf16", "seq_len": 4096, "batch_per_gpu": 1,
    "strategy": "FSDP", "framework": "PyTorch", "unit": "tokens/s",
}  # fmt: skip
AGAIN = "forward is assumed to be computed again"


def series(tmp_path: Path, rates: dict[int, float], **changes: Any) -> list[TrainingRow]:
    cells = {**LLAMA, **changes}
    rows = [(*cells.values(), gpus, rate) for gpus, rate in rates.items()]
    head = (*cells, "total_gpus", "value")
    return list(read_table(write(tmp_path / "t.csv", rows, head)).rows)


def machines(rows: list[TrainingRow]) -> list[str]:
    return [one.machine for one in play_series(rows)]


def test_a_series_computes_again_where_its_calibrated_run_has_no_room_else(tmp_path: Path) -> None:
    """8 GPUs have no room for activations beside 16 GB of states each; 256 have, with the same
    command line."""
    both = machines(series(tmp_path, {8: 15000.0, 256: 450000.0}))
    assert all(AGAIN in said for said in both)
    assert both[1].count("as in the calibrated run") == 1
    (alone,) = machines(series(tmp_path, {256: 450000.0}))
    assert AGAIN not in alone


def test_a_series_keeps_what_its_calibrated_run_keeps(tmp_path: Path) -> None:
    """The other way round: what a larger run had room for, a smaller one of the series is not
    assumed to compute again; nor does what a row says itself change."""
    rows = series(tmp_path, {8: 15000.0, 256: 450000.0})
    kept = anchors_of(rows[1], rows).rows
    assert [row.text("recomputing_like") for row in kept] == ["none", ""]
    said = series(tmp_path, {8: 15000.0, 256: 450000.0}, act_ckpt="full")
    assert not any(AGAIN in text for text in machines(said))


@pytest.mark.parametrize(
    ("changes", "readings"),
    [
        ({}, 1),
        ({"batch_per_gpu": ""}, 3),
        ({"batch_per_gpu": "", "global_batch": 64}, 1),
        ({"batch_per_gpu": "", "step_time_s": 7}, 1),
    ],
)
def test_a_batch_that_nobody_tells_is_one_of_three(
    tmp_path: Path, changes: dict[str, Any], readings: int
) -> None:
    own = {"seq_len": 1024, "model": "gpt2-large", "act_ckpt": "none", **changes}
    (found,) = play_series(series(tmp_path, {8: 90000.0}, **own), "none")
    assert found.status == "predicted"
    assert ("an eighth of the usual batch" in found.machine) == (readings == 3)
    (told,) = play_series(series(tmp_path, {8: 90000.0}, **{**own, "batch_per_gpu": 8}), "none")
    if readings == 3:  # a rate depends on it, and not eightfold
        assert found.low is not None and told.low is not None  # noqa: PT018
        assert 0.5 * told.low < found.low < 0.9 * told.low
        assert found.predicted == pytest.approx(told.predicted, rel=0.15)


@pytest.mark.parametrize(
    ("cells", "usual"),
    [
        ({"model": "Llama-2-7B", "params_m": 6738}, 1), ({"model": "Llama-2-7B"}, 1),
        ({"model": "GPT", "params_m": 6700}, 1), ({"model": "GPT 6.7B"}, 1),
        ({"model": "GPT h4096 l32 a32"}, 1),  # whatever tells that a model is large
        ({"model": "GPT", "params_m": 345}, 8), ({"model": "GPT 345M"}, 8),
        ({"model": "gpt2-large", "seq_len": 1024}, 8),
        ({"model": "resnet50", "unit": "images/s"}, 64),
    ],
)  # fmt: skip
def test_a_batch_that_nobody_tells_has_a_sample_at_least(
    tmp_path: Path, cells: dict[str, Any], usual: int
) -> None:
    """An eighth of a batch of one is that one again, which would count twice."""
    (row,) = series(tmp_path, {8: 90000.0}, batch_per_gpu="", **cells)
    found = platform_of(row).readings
    batches = [measured_case(row, reading=one).data["batch"]["per_device"] for one in found]
    weights = [one.weight for one in found]
    if usual == 1:
        assert (batches, weights) == ([1, 8], pytest.approx([2 / 3, 1 / 3]))
    else:
        assert (batches, weights) == ([usual, usual // 8, 8 * usual], [0.5, 0.25, 0.25])


def test_readings_that_cannot_be_leave_the_others(tmp_path: Path) -> None:
    """Ethernet of which nothing is told has three rates; at 10 Gbit/s a step is longer than the
    calibrated one was, and at 25 and 100 it is not."""
    own = {"gpus_per_node": 1, "inter_node": "Standard Ethernet", "act_ckpt": "full",
           "accelerator": "A10", "model": "gpt2-medium", "seq_len": 1024,
           "strategy": "DDP"}  # fmt: skip
    first, second = play_series(series(tmp_path, {2: 6500.0, 4: 13000.0}, **own))
    assert (first.status, second.status) == ("calibrated", "predicted")
    assert "25 Gbit/s" in second.machine
    assert "10 Gbit/s" not in second.machine
    hopeless, other = play_series(series(tmp_path, {2: 500000.0, 4: 13000.0}, **own))
    assert (hopeless.status, other.status) == ("refused", "refused")


@pytest.mark.parametrize(
    ("changes", "open_"),
    [
        ({"unit": "samples/s", "value": 1000}, True),
        ({"unit": "s", "value": 0.2}, True),
        ({"unit": "tokens/s", "value": 1e5}, False),  # a token takes much the same
        ({"unit": "samples/s", "value": 1000, "seq_len": 384}, False),
        ({"unit": "images/s", "value": 9000, "model": "resnet50"}, False),
    ],
)
def test_a_length_that_nobody_tells_is_the_usual_one_or_a_quarter(
    tmp_path: Path, changes: dict[str, Any], open_: bool
) -> None:
    cells = {**LLAMA, "model": "bert-large-uncased", "batch_per_gpu": 8, "seq_len": "", **changes}
    cells |= {"total_gpus": 8, "strategy": "DDP", "task": "SQuAD"}
    rows = read_table(write(tmp_path / "t.csv", [tuple(cells.values())], tuple(cells))).rows
    (found,) = play_series(list(rows), "none")
    assert found.status == "predicted"
    assert ("a quarter of the usual length" in found.machine) == open_


@pytest.mark.parametrize(
    ("changes", "usual"),
    [
        ({}, ""),  # nothing tells fine-tuning
        ({"task": "fine-tuning"}, "activations that are kept (50%)"),
        ({"strategy": "DDP, LoRA"}, "activations that are kept (50%)"),
        ({"framework": "LLaMA-Factory"}, "forward computed again (75%)"),
        ({"framework": "ms-swift", "strategy": "LoRA"}, "forward computed again (75%)"),
        ({"framework": "NeMo", "task": "fine-tuning"}, ""),  # NVIDIA's recipes keep them
        ({"framework": "LLaMA-Factory", "act_ckpt": "none"}, ""),
        ({"task": "fine-tuning", "strategy_detail": "no gradient checkpointing"}, ""),
        ({"task": "fine-tuning", "model": "gpt2"}, ""),
    ],
)
def test_fine_tuning_of_which_nothing_is_told_may_compute_forward_again(
    tmp_path: Path, changes: dict[str, Any], usual: str
) -> None:
    cells = {**LLAMA, "accelerator": "A100-SXM4-80GB", "model": "Llama-3.2-1B", "seq_len": 2048,
             "strategy": "FSDP", "framework": "PyTorch 2.1", "task": "", "act_ckpt": "",
             "strategy_detail": "", **changes}  # fmt: skip
    (found,) = play_series(series(tmp_path, {8: 150000.0}, **cells), "none")
    assert found.status == "predicted", found.reason
    assert usual in found.machine
    assert ("forward computed again" in found.machine) == bool(usual)
    if usual:
        assert found.low is not None
        kept, again = (
            play_series(series(tmp_path, {8: 150000.0}, **{**cells, "act_ckpt": told}), "none")[0]
            for told in ("none", "full")
        )
        assert again.low == pytest.approx(found.low, rel=0.1)
        assert kept.high == pytest.approx(found.high, rel=0.1)


@pytest.mark.parametrize(
    ("roles", "first", "told", "status"),
    [
        (("calib", "predict"), "n/a", "line 2: value: 'n/a' is not a number; nothing is", None),
        (("", ""), "n/a", "line 2: value: 'n/a' is not a number; line 3 is taken", "calibrated"),
        (("calib", "calib"), "n/a", "value: 'n/a' is not a number; line 3 is taken", "calibrated"),
        (("", ""), "15000", "", "predicted"),
        (("predict", "calib"), "n/a", "", "calibrated"),  # the others are calibrated as they said
    ],
)
def test_a_series_tells_which_faulty_row_it_would_be_calibrated_on(
    tmp_path: Path, roles: tuple[str, str], first: str, told: str, status: str | None
) -> None:
    counts = ((8, first, roles[0]), (16, "30000", roles[1]))
    rows = [(*LLAMA.values(), *one) for one in counts]
    head = (*LLAMA, "total_gpus", "value", "role")
    found = validated_training(write(tmp_path / "t.csv", rows, head))
    second, warnings = found.predictions()[1], " ".join(found.document["warnings"])
    assert second["status"] == (status or "predicted")
    assert ("its calibration row: line 2" in second["reason"]) == bool(told)
    assert told in second["reason"]
    assert ("its calibration row: line 2" in warnings) == bool(told)
    assert told in warnings


@pytest.mark.parametrize(
    ("roles", "warned"),
    [
        (("predict", "predict"), True), (("baseline", "scaled"), True), (("", ""), False),
        (("Calibration", "predict"), False), (("absolute", "absolute"), False),
    ],
)  # fmt: skip
def test_a_series_whose_roles_calibrate_nothing_is_warned_of(
    tmp_path: Path, roles: tuple[str, str], warned: bool
) -> None:
    rows = [(*LLAMA.values(), n, n * 1900, role) for n, role in zip((8, 16), roles, strict=True)]
    table = write(tmp_path / "t.csv", rows, (*LLAMA, "total_gpus", "value", "role"))
    warnings = " ".join(validated_training(table).document["warnings"])
    assert ("1 series whose rows have roles, none of them calib (line 2)" in warnings) == warned


def test_a_table_that_calibrates_nothing_has_lost_nothing(tmp_path: Path) -> None:
    rows = [(*LLAMA.values(), gpus, value) for gpus, value in ((8, "n/a"), (16, "30000"))]
    table = write(tmp_path / "t.csv", rows, (*LLAMA, "total_gpus", "value"))
    found = validated_training(table, calibrate="none")
    assert "calibration row" not in f"{found.predictions()} {found.document['warnings']}"


def test_a_usual_reading_that_cannot_be_is_told_to_be_ruled_out(tmp_path: Path) -> None:
    """900 samples a second are three times what V100s multiply in 32 bits."""
    own = {"model": "BERT-Large", "accelerator": "V100-SXM2-16GB", "precision": "",
           "strategy": "DDP", "seq_len": 128, "batch_per_gpu": 8, "unit": "samples/s",
           "inter_node": "one EDR InfiniBand NIC", "framework": "PyTorch 2.2"}  # fmt: skip
    first, second = play_series(series(tmp_path, {8: 900.0, 16: 1800.0}, **own))
    assert (first.status, second.status) == ("calibrated", "predicted")
    assert "32 bit is ruled out: calibrate: the measured step would need" in first.reason
    assert "32 bit is ruled out: its calibration row: calibrate: the measured" in second.reason
    assert "assumed 32 bit" not in first.machine  # which it is not
    possible = play_series(series(tmp_path, {8: 200.0, 16: 390.0}, **own))
    assert not any("ruled out" in one.reason for one in possible)
    assert "assumed 32 bit" in possible[0].machine
