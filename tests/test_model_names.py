"""Models of tables by the names that dpsim has for them, however they are written."""

from __future__ import annotations

from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from dpsim.accuracy.rules import told
from dpsim.accuracy.training.models import choose_model
from dpsim.accuracy.words import vocabulary
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
        ("ViT-B/16", "vit_b_16"), ("Vision Transformer (ViT-L/16)", "vit_l_16"),
        ("Swin Transformer-T", "swin_t"), ("Swin Transformer Base", "swin_b"),
        ("facebook/opt-1.3b", "opt-1.3b"), ("OPT 1.3B", "opt-1.3b"),
        ("EleutherAI/gpt-neox-20b", "gpt-neox-20b"), ("Qwen2.5-7B", "qwen2.5-7b"),
        ("meta-llama/Llama-3.2-3B", "llama-3.2-3b"), ("Llama-7b", "llama-2-7b"),
        ("GPT-2", "gpt2"), ("gpt2-xl", "gpt2-xl"),
        ("wide_resnet50_2", "wide_resnet50_2"), ("wide_resnet101_2", "wide_resnet101_2"),
        ("openai/whisper-base", "whisper-base"), ("facebook/convnext-base-224", "convnext_base"),
        ("google/vit-base-patch16-224", "vit-base-patch16-224"),
        ("Hugging Face ResNet-50", "resnet50"), ("resnet-50 (hugging face)", "resnet50"),
        ("resnet50-8gpu", "resnet50"), ("resnet50_v1.5", "resnet50"), ("gemma 1.1 2b", "gemma-2b"),
        ("DeepSeek-R1-Distill-Qwen-7B", "qwen2.5-7b"),
        ("DeepSeek-R1-Distill-Qwen-14B", "qwen2.5-14b"),
        ("DeepSeek-R1-Distill-Qwen-32B", "qwen2.5-32b"),
    ],
)  # fmt: skip
def test_what_is_bundled_is_found(name: str, bundled: str) -> None:
    found = chosen(name)
    assert bundled in (found.get("huggingface"), found.get("name"))


def test_another_number_of_parameters_is_another_model() -> None:
    """GPT-2 of 1.5 billion is no small one, and is played by its size; 13 is not 1.3."""
    for name in ("OPT-175B", "Qwen 25 7b"):
        assert chosen(name)["name"] == "transformer"
    assert chosen("facebook/opt-13b")["huggingface"] == "opt-13b"
    assert chosen("GPT-2", parameters=1.24e8)["huggingface"] == "gpt2"
    assert chosen("GPT-2", parameters=1.5e9)["name"] == "transformer"


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("Pangu 3D Swin Transformer (depths 2,6,6,2)", "weather forecasting"),
        ("Graph Transformer", "molecules"), ("CosmoFlow (3D CNN)", ""),
    ],
)  # fmt: skip
def test_transformers_over_other_things_are_no_decoders(name: str, task: str) -> None:
    """A decoder's texts have a length that sets its compute; of a grid only the size is known."""
    found = chosen(name, task, None if "Cosmo" in name else 7.9e7)
    assert (found["name"], found["sample"]) == ("scaled", "sequence")
    assert chosen("Transformer, 8 layers", "LLM", 7.9e7)["name"] == "transformer"


@pytest.mark.parametrize(
    "name",
    [
        "3D ResNet-50",
        "ResNet-50 (3D)",
        "I3D ResNet-50",
        "TSM ResNet-50",
        "SimpleBaseline ResNet-50",
    ],
)
def test_networks_on_clips_and_volumes_are_not_those_on_images(name: str) -> None:
    with pytest.raises(Refused, match="is not known"):
        chosen(name)


def test_shapes_that_are_published() -> None:
    tiny = chosen("TinyLlama 1.1B")
    assert (tiny["blocks"], tiny["kv_heads"], tiny["feed_forward"]) == (22, 4, 5632)
    assert chosen("granite-code-3b") == chosen("granite-3b-code-base")
    assert chosen("codestral-mamba-7b")["family"] == "gpt2"  # a stand-in, no Codestral


def written(pattern: Any) -> str:
    """A text that the parsed `pattern` finds, its joints written as hyphens."""
    return "".join(_written(str(kind), what) for kind, what in pattern)


def _written(kind: str, what: Any) -> str:
    text = ""
    match kind:
        case "LITERAL":
            text = chr(what)
        case "IN":
            joint = ("LITERAL", ord("-")) in [(str(k), v) for k, v in what]
            text = "-" if joint else _one(what)
        case "BRANCH":
            text = written(what[1][0])
        case "SUBPATTERN":
            text = written(what[-1])
        case "MAX_REPEAT":
            text = written(what[2])
            text = text * what[0] or ("-" if text == "-" else "")
        case "ASSERT" if what[0] > 0:
            text = f"{written(what[1])} "
    return text


def _one(members: Any) -> str:
    kind, what = str(members[0][0]), members[0][1]
    return "5" if kind == "CATEGORY" else chr(what[0] if kind == "RANGE" else what)


def test_no_rule_of_decoders_and_encoders_is_dead() -> None:
    rules = vocabulary().models.language
    for rule in rules:
        name = written(parser.parse(rule.words.pattern))
        assert rule.words.search(name), (name, rule.words.pattern)
        cells = {key: written(parser.parse(words.pattern)) for key, words in rule.columns.items()}
        column = lambda key, cells=cells: cells.get(key, "")  # noqa: E731
        keys, _ = next(told(rules, name, column))
        assert keys == rule.keys, (name, rule.words.pattern)


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("SSD300", 22.9), ("GNMT", 161), ("RetinaNet R50-FPN", 34.01), ("Mask R-CNN", 44.4),
        ("Mask R-CNN R-50-FPN 1x", 44.4), ("Mask RCNN (ResNet-50)", 44.4),
        ("Mask R-CNN X-101-32x8d-FPN 1x", 107.63), ("Faster R-CNN R-101-FPN", 60.75),
        ("Faster R-CNN Res-101", 47.5), ("Faster R-CNN VGG-16", 137.1), ("SSD300 VGG16", 35.64),
        ("FCOS R50-FPN", 32.27), ("resnet50_ssd", 25.56), ("IResNet-50 arcface_torch", 43.59),
        ("DETR R50", 41), ("Deformable DETR R50", 40), ("yolov3-spp.cfg 416", 63),
        ("YOLOv3", 61.9), ("yolov3-tiny", 8.8), ("YOLOv5s", 7.2), ("yolov8x", 68.2),
        ("PSPNet50 ADE20K 473x473", 49.1), ("DeepLabv3 ResNet-101", 61), ("FCN ResNet-50", 35.32),
        ("SE-ResNeXt50", 27.56), ("RegNetY-16GF", 83.59), ("EfficientNetV2-S", 21.46),
        ("Inception-v4", 42.68), ("Swin-L", 196.53), ("ResNet-110", 1.7), ("IResNet-50", 43.59),
        ("StyleGAN2 config-f 1024x1024", 59.38), ("StyleGAN2-ADA cfg=auto 1024x1024", 57.81),
        ("BigGAN 128", 158.42), ("CLIP ViT-B/32", 151.28), ("wav2vec 2.0 base", 95),
        ("Conformer-L", 118.8), ("MoCo ResNet-50", 25.56),
    ],
)  # fmt: skip
def test_sizes_that_need_not_be_stated(name: str, millions: float) -> None:
    found = chosen(name)
    assert (found["name"], found["parameters"]) == ("scaled", pytest.approx(millions * 1e6))


@pytest.mark.parametrize(
    "name",
    [
        "IResNet-50 (arcface_torch, 618K classes)", "ResNet-50 ArcFace, 1 Million identities",
        "AlexNet-like CNN", "DETR", "DeepLabv3", "SSD512", "MAE ViT-L", "DINO ViT-small/16",
        "AmoebaNet-D (18, 256)", "Conformer", "wav2vec2", "Transformer En-de", "StyleGAN2 256x256",
        "Levenshtein transformer", "yolov3-mobilenet", "Stable Diffusion", "ResNeXt-101", "DLRM",
        "resnet50_fpn", "resnet50_wide", "resnet50_2", "Wide ResNet-32", "wide-resnet-32-10",
        "Mask R-CNN ConvNeXt-T", "UperNet ConvNeXt-T", "Cascade Mask R-CNN ConvNeXt-B",
        "ssd mobilenet v1", "yolov3 mobilenet-v1", "mask r-cnn swin-l", "UperNet Swin-L",
        "DINO Swin-L", "retinanet regnetx-3.2gf", "faster r-cnn inception-resnet-v2",
        "UperNet ResNet-50", "Mask2Former ResNet-50", "CenterNet ResNet-18", "SlowFast ResNet-50",
        "FaceNet ResNet-50",
    ],
)  # fmt: skip
def test_sizes_that_a_name_leaves_open_are_asked_for(name: str) -> None:
    with pytest.raises(Refused, match="is not known and its parameters are not stated"):
        chosen(name)


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("ViT-S/16", {"hidden": 384}), ("DeiT-Ti", {"hidden": 192}),
        ("vit_base", {"name": "vit_b_16"}),
        ("HuggingFace ViT-Base", {"name": "vit_b_16"}), ("ViT Large", {"name": "vit_l_16"}),
        ("ViT-L/16 384x384", {"image_size": 384}), ("ConvNeXt-T", {"name": "convnext_tiny"}),
        ("SiT-XL/2", {"name": "dit", "variant": "XL"}), ("ResNeXt50", {"group_width": 4}),
        ("WRN-50-2", {"name": "wide_resnet50_2"}), ("ResNet 50 v1.5", {"name": "resnet50"}),
        ("CLIP ViT-L/14", {"huggingface": "clip-vit-large-patch14"}),
        ("SD3 Medium", {"huggingface": "stable-diffusion-3-medium"}),
    ],
)  # fmt: skip
def test_image_networks_by_what_their_papers_call_them(name: str, keys: dict[str, Any]) -> None:
    assert keys.items() <= chosen(name).items()


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
