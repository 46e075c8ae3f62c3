"""Models of tables by the names that dpsim has for them, however they are written."""

from __future__ import annotations

from typing import Any

import pytest

from dpsim.accuracy.training.models import choose_model
from dpsim.core.record import Refused


def chosen(name: str, task: str = "", parameters: float | None = None) -> dict[str, Any]:
    return choose_model(name, task, parameters, None).data


@pytest.mark.parametrize(
    ("name", "bundled"),
    [
        ("resnext50_32x4d", "resnext50_32x4d"), ("ResNeXt-50 32x4d", "resnext50_32x4d"),
        ("resnext101_32x8d", "resnext101_32x8d"), ("DenseNet-201", "densenet201"),
        ("densenet161", "densenet161"), ("Wide ResNet-50-2", "wide_resnet50_2"),
        ("Inception v3", "inception_v3"), ("inception3", "inception_v3"),
        ("EfficientNet-B7", "efficientnet_b7"), ("MobileNet V3 Large", "mobilenet_v3_large"),
        ("ViT-B/16", "vit_b_16"), ("facebook/opt-1.3b", "opt-1.3b"), ("OPT 1.3B", "opt-1.3b"),
        ("EleutherAI/gpt-neox-20b", "gpt-neox-20b"), ("Qwen2.5-7B", "qwen2.5-7b"),
        ("meta-llama/Llama-3.2-3B", "llama-3.2-3b"), ("Llama-7b", "llama-2-7b"),
        ("GPT-2", "gpt2"), ("gpt2-xl", "gpt2-xl"),
    ],
)  # fmt: skip
def test_what_is_bundled_is_found(name: str, bundled: str) -> None:
    found = chosen(name)
    assert bundled in (found.get("huggingface"), found.get("name"))


def test_another_number_of_parameters_is_another_model() -> None:
    """GPT-2 of 1.5 billion is no small one, and is played by its size; 13 is not 1.3."""
    for name in ("OPT-13B", "facebook/opt-13b", "Qwen 25 7b"):
        assert chosen(name)["name"] == "transformer"
    assert chosen("GPT-2", parameters=1.24e8)["huggingface"] == "gpt2"
    assert chosen("GPT-2", parameters=1.5e9)["name"] == "transformer"


def test_shapes_that_are_published() -> None:
    tiny = chosen("TinyLlama 1.1B")
    assert (tiny["blocks"], tiny["kv_heads"], tiny["feed_forward"]) == (22, 4, 5632)


@pytest.mark.parametrize(
    ("name", "millions"),
    [("SSD300", 22.9), ("GNMT", 161), ("RetinaNet R50-FPN", 34.01), ("Mask R-CNN", 44.4)],
)
def test_sizes_that_need_not_be_stated(name: str, millions: float) -> None:
    assert chosen(name)["parameters"] == millions * 1e6


def test_sizes_of_translators() -> None:
    assert chosen("Transformer-XL Base", "language modelling")["name"] == "transformer"
    assert chosen("Transformer Big", "translation")["name"] == "transformer"
    assert chosen("GNMT")["sample"] == "sequence"


@pytest.mark.parametrize(
    ("name", "task", "pixels"),
    [
        ("Stable Diffusion 2 UNet (512x512)", "", 512), ("SD 2.1", "text to image, 256 px", 256),
        ("Stable Diffusion 2.1 base", "", 512), ("Stable Diffusion v2", "", None),
        ("ResNet-50", "ImageNet 288x288", 288), ("ResNet-50", "ImageNet", None),
        ("DenseNet-201", "288x288", 288), ("EfficientNet-B7 600x600", "", 600),
        ("ResNet-50", "3x256x256", 256), ("Stable Diffusion v2", "64x64 latents", None),
        ("ResNet-50", "on 128x128 GPUs", None), ("ResNet-50", "512x512x3", 512),
        ("ResNet-50", "CIFAR-10 (32x32)", 32), ("ResNet-50", "patch 16x16", None),
        ("ResNet-50", "resize 256x256, crop 224x224", 224), ("ResNet-50", "64x64", 64),
    ],
)  # fmt: skip
def test_pixels_are_read(name: str, task: str, pixels: int | None) -> None:
    assert chosen(name, task).get("image_size") == pixels


def test_a_length_that_nobody_says_has_positions() -> None:
    """GPT-2 XL has 1,024; Llama 3 was trained on 8,192."""
    assert chosen("GPT-2 XL")["sequence_length"] == 1024
    assert chosen("Llama-3.2-3B")["sequence_length"] == 8192


def test_what_nobody_knows_is_refused() -> None:
    with pytest.raises(Refused, match="is not known and its parameters are not stated"):
        chosen("HRNet-W18")
