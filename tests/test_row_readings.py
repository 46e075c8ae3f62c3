"""What rows of tables leave open of padding and precision, and what is computed again."""

from __future__ import annotations

from pathlib import Path

import pytest
from rows import measured, row_of

from dpsim.accuracy.training.scenarios import platform_of

BERT = {"model": "BERT-Large", "seq_len": "512", "batch_per_gpu": "4", "value": "1000"}


def labels(folder: Path, **cells: str) -> list[str]:
    """What the readings of such a row are called, beside those of its machine."""
    told = {"padded texts", "texts without padding", "32 bit", "mixed precision"}
    row = row_of(folder, **{**BERT, "accelerator": "V100-SXM2-32GB", **cells})
    answers = [one.answers for one in platform_of(row).readings]
    found = {a.label for options in answers for a in options.values()}
    return sorted(found & told)


@pytest.mark.parametrize(
    "framework", ["Megatron-LM", "LiBai", "Megatron", "Megatron-DeepSpeed", "PyTorch, Megatron-LM"]
)
def test_code_that_computes_padding_leaves_none_out(tmp_path: Path, framework: str) -> None:
    assert labels(tmp_path, framework=framework) == []
    found = measured(tmp_path, **{**BERT, "framework": framework})
    assert found.data["model"]["sequence_length"] == 512


@pytest.mark.parametrize(
    "framework", ["PyTorch 2.2", "PyTorch (not Megatron-LM)", "PyTorch or Megatron-LM"]
)
def test_of_other_code_padding_is_open(tmp_path: Path, framework: str) -> None:
    assert labels(tmp_path, framework=framework) == ["padded texts", "texts without padding"]


def test_padding_that_is_told_is_left_out_by_any_code(tmp_path: Path) -> None:
    cells = {**BERT, "framework": "Megatron-LM", "padding": "left out"}
    assert measured(tmp_path, **cells).data["model"]["sequence_length"] == 256


BITS = ["32 bit", "mixed precision"]


@pytest.mark.parametrize(
    "framework", ["transformers 4.20", "Hugging Face Trainer", "PyTorch 1.12", "PyTorch Lightning"]
)
def test_small_texts_of_no_precision_may_be_in_either(tmp_path: Path, framework: str) -> None:
    for model in ("BERT-Large", "roberta-large", "GPT-2", "t5-small"):
        cells = {"model": model, "framework": framework, "precision": "", "seq_len": "128"}
        assert labels(tmp_path, **cells) == BITS


@pytest.mark.parametrize(
    "cells",
    [
        {"precision": "FP32"}, {"precision": "FP16"},
        {"framework": "transformers+fp16"}, {"notes": "with AMP"},
        {"strategy_detail": "bf16 gradients"}, {"strategy": "DeepSpeed ZeRO-1"},
        {"framework": "Megatron-LM"}, {"framework": "PyTorch, DeepSpeed"},
        {"framework": "NeMo (PyTorch)"}, {"framework": "NVIDIA PyTorch 21.11"},
        {"framework": "LLM Foundry (PyTorch)"},
        {"model": "GPT-2 13B"}, {"model": "Llama-2-7B"}, {"model": "BERT", "params_m": "3900"},
        {"model": "GPT-J"}, {"model": "t5-11b"}, {"source_repo": "mlcommons/training_results_v1.0"},
    ],
)  # fmt: skip
def test_what_tells_a_precision_or_has_its_own_leaves_none_open(
    tmp_path: Path, cells: dict[str, str]
) -> None:
    told = {"framework": "transformers 4.20", "precision": "", "seq_len": "128", **cells}
    assert not set(labels(tmp_path, **told)) & set(BITS)


@pytest.mark.parametrize(
    "cells",
    [
        {"notes": "no AMP"}, {"strategy_detail": "mixed precision off"},
        {"framework": "PyTorch 1.12 (no DeepSpeed)"}, {"notes": "without fp16; bucket of 25 MB"},
    ],
)  # fmt: skip
def test_what_is_denied_tells_none(tmp_path: Path, cells: dict[str, str]) -> None:
    told = {"framework": "transformers 4.20", "precision": "", "seq_len": "128", **cells}
    assert labels(tmp_path, **told) == BITS


def test_devices_with_bf16_are_as_often_in_sixteen_bits(tmp_path: Path) -> None:
    cells = {**BERT, "framework": "transformers 4.20", "precision": "", "seq_len": "128"}
    for accelerator, share in (("V100-SXM2-32GB", 0.75), ("P100-SXM2-16GB", 0.75),
                               ("A100-SXM4-80GB", 0.5), ("H100 SXM", 0.5)):  # fmt: skip
        readings = platform_of(row_of(tmp_path, **cells, accelerator=accelerator)).readings
        single = sum(one.weight for one in readings if "32 bit" in one.label)
        assert single == pytest.approx(share), accelerator


QWEN = {
    "model": "Qwen-72B", "seq_len": "2048", "batch_per_gpu": "1", "precision": "bf16",
    "nodes": "4", "total_gpus": "32", "strategy": "ZeRO-3", "value": "40",
}  # fmt: skip


def test_large_decoders_of_which_the_size_is_known_may_compute_again(tmp_path: Path) -> None:
    found = measured(tmp_path, **{**QWEN, "seq_len": "8192"})
    assert found.data["recompute"] == "full"
    assert "for else nothing has room for it" in " ".join(found.notes)


@pytest.mark.parametrize(
    "cells",
    [
        {"act_ckpt": "none"},
        {"strategy": "ZeRO-3, no activation checkpointing"},
        {"seq_len": "512", "batch_per_gpu": "1"},  # which has room
    ],
)
def test_what_is_kept_is_not_computed_again(tmp_path: Path, cells: dict[str, str]) -> None:
    found = measured(tmp_path, **{**QWEN, "seq_len": "8192", **cells})
    assert found.data["recompute"] == "none"


def test_what_has_no_blocks_has_nothing_to_compute_again(tmp_path: Path) -> None:
    """GNMT is of LSTMs, and a decoder stands in for it."""
    cells = {"model": "GNMT v2", "task": "translation WMT16", "accelerator": "V100-SXM2-16GB",
             "batch_per_gpu": "512", "seq_len": "512", "value": "2"}  # fmt: skip
    found = measured(tmp_path, **cells)
    assert found.data["recompute"] == "none"
    assert "as it is read, it has no room in memory" in found.notes
