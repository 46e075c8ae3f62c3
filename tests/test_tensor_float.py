"""In tables, fp32 is what frameworks make of it on devices with TF32; and how images lie."""

from __future__ import annotations

from pathlib import Path

import pytest
from rows import BERT, measured

from dpsim.core.record import Refused


@pytest.mark.parametrize(
    ("cells", "dtype"),
    [
        ({}, "tf32"),  # cuDNN's default
        ({"precision": "FP32 (TF32 off)"}, "fp32"),
        ({"precision": "strict fp32"}, "fp32"),
        ({"accelerator": "V100-SXM2-16GB"}, "fp32"),
        ({"accelerator": "RTX 3090"}, "fp32"),  # TF32 is no faster there
        ({"accelerator": "A100-SXM4-80GB", "framework": "TensorFlow 2.4"}, "tf32"),
        ({**BERT}, "fp32"),  # torch's products, since 1.12
        ({**BERT, "framework": "PyTorch 1.10"}, "tf32"),
        ({**BERT, "framework": "PyTorch 1.13.1"}, "fp32"),
        ({**BERT, "framework": "PyTorch", "data_date": "2021-03"}, "tf32"),
        ({**BERT, "framework": "PyTorch", "data_date": "2023-03"}, "fp32"),
        ({**BERT, "framework": "PyTorch 22.09-py3"}, "tf32"),  # NVIDIA's container
        ({**BERT, "framework": "NGC PyTorch"}, "tf32"),
        ({**BERT, "framework": "TensorFlow 2.9"}, "tf32"),
        ({**BERT, "framework": "PaddlePaddle 2.5"}, "tf32"),
        ({**BERT, "framework": "JAX"}, "tf32"),
        ({"precision": "FP16 mixed"}, "fp16"),
        ({"accelerator": "MI300X"}, "fp32"),  # which has no cuDNN
        ({"framework": "PyTorch 2.1 (TF32 disabled)"}, "fp32"),
        ({"strategy_detail": "TF32 off"}, "fp32"),
        ({"precision": "FP32 (disable TF32)"}, "fp32"),
        ({"precision": "FP32, TF32 turned off"}, "fp32"),
        ({"strategy_detail": "NVIDIA_TF32_OVERRIDE=0", "framework": "NGC PyTorch 20.12"}, "fp32"),
        ({**BERT, "strategy_detail": "torch.backends.cuda.matmul.allow_tf32=True"}, "tf32"),
        ({**BERT, "strategy_detail": "torch.set_float32_matmul_precision('high')"}, "tf32"),
        ({**BERT, "framework": "PyTorch 2.1 (TF32 enabled)"}, "tf32"),
        ({**BERT, "framework": "PyTorch 2.0, Ubuntu 22.04"}, "fp32"),
        ({**BERT, "framework": "PyTorch 2.1 + NVIDIA Apex"}, "fp32"),
        ({**BERT, "framework": "PyTorch-1.10"}, "tf32"),
        ({"model": "DLRM", "params_m": "540", "task": "recommendation"}, "fp32"),
    ],
)
def test_fp32_is_what_the_framework_multiplies(
    tmp_path: Path, cells: dict[str, str], dtype: str
) -> None:
    assert measured(tmp_path, **cells).data["precision"]["compute"] == dtype


def test_a_precision_that_is_only_denied_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="'TF32 disabled' does not say what it is"):
        measured(tmp_path, precision="TF32 disabled")


@pytest.mark.parametrize(
    ("cells", "last"),
    [
        ({}, False),
        ({"framework": "PyTorch 2.2, channels_last"}, True),
        ({"strategy_detail": "NHWC"}, True),
        ({"strategy_detail": "channels_last=False"}, False),
        ({"strategy": "DDP NHWC"}, True),
        ({"strategy_detail": "ChannelsLast"}, True),
        ({"framework": "TensorFlow r1.9"}, False),
        ({"notes": "--channels-last"}, True),
        ({"notes": "no channels-last"}, False),
        ({"notes": "twice as fast as TensorFlow 2.4"}, False),
        ({"strategy_detail": "no torch.compile"}, False),
        ({"framework": "PyTorch 1.13 (tf.data loader)"}, False),
        ({"framework": "PyTorch (PaddleDetection port)"}, False),
        ({"framework": "TF 1.13"}, False),
        ({"framework": "TensorFlow 2.4", "precision": "mixed FP16/FP32"}, True),
        ({"framework": "TensorFlow 2.4"}, True),
        ({"framework": "TensorFlow 1.13.1"}, False),
        ({"framework": "TensorFlow 2.4", "precision": "FP32"}, False),
        ({"framework": "MXNet 1.6"}, True),
        ({"framework": "MXNet 1.6", "strategy_detail": "NCHW"}, False),
        ({"strategy_detail": "torch.compile"}, True),
        ({"source_repo": "NVIDIA/DeepLearningExamples"}, True),
    ],
)
def test_images_lie_as_the_framework_has_them(
    tmp_path: Path, cells: dict[str, str], last: bool
) -> None:
    found = measured(tmp_path, **{"precision": "FP16 mixed", **cells})
    assert found.data["execution"]["channels_last"] is last


def test_what_is_taken_is_told(tmp_path: Path) -> None:
    told = " ".join(measured(tmp_path).notes)
    assert "fp32 is multiplied in TF32, as cuDNN does" in told
    assert "channels first are assumed" in told
    told = " ".join(measured(tmp_path, framework="TensorFlow 2.4", precision="AMP").notes)
    assert "channels last are assumed" in told
    told = " ".join(measured(tmp_path, accelerator="V100-SXM2-16GB").notes)
    assert "channels" not in told  # where it changes nothing
