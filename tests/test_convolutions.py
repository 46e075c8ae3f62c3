"""Kernels of image networks: what torch dispatches, what fusing leaves, and how fast they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from asked import predicted
from eager_blocks import Dispatched
from torch import nn

from dpsim.cases.case import Case
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.machines.machine import load_device
from dpsim.models import Layer, convolutions
from dpsim.models.architectures.resnet50 import ResNet50
from dpsim.models.compute import layer_times
from dpsim.models.section import load as load_model
from dpsim.models.section import make
from dpsim.predict.explain import what_if
from dpsim.predict.player import step_time
from dpsim.predict.unused import unused

IMAGES = 4
ONE = {"machine": "dgx-a100", "ranks": 1}
RUN: dict[str, Any] = {
    "model": {"name": "resnet50"},
    "cluster": {"machine": "dgx-a100", "ranks": 8},
    "strategy": {"kind": "ddp"},
    "precision": {"parameters": "fp32", "compute": "fp16"},
    "batch": {"per_device": 256},
}


def block(name: str) -> list[Layer]:
    return [layer for layer in ResNet50().model().layers if layer.unit == name]


class Bottleneck(nn.Module):
    """A block of torchvision's ResNet-50 v1.5 without a shortcut of its own."""

    def __init__(self, wide: int, narrow: int) -> None:
        super().__init__()
        shapes = ((wide, narrow, 1), (narrow, narrow, 3), (narrow, wide, 1))
        self.steps = nn.ModuleList(
            nn.Sequential(nn.Conv2d(i, o, k, padding=k // 2, bias=False), nn.BatchNorm2d(o))
            for i, o, k in shapes
        )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.steps[0](x))
        out = self.steps[2](self.relu(self.steps[1](out)))
        out += x
        return self.relu(out)


def dispatched() -> list[tuple[str, float]]:
    """What torch dispatches of the first stage's second block, in elements per image."""
    with torch.device("meta"):
        net, x = Bottleneck(256, 64), torch.empty(IMAGES, 256, 56, 56, requires_grad=True)
    with Dispatched() as seen:
        net(x * 1.0).sum().backward()
    start = next(i for i, (name, _) in enumerate(seen.ops) if "convolution" in name)
    return [(name, size / 4 / IMAGES) for name, size in seen.ops[start:]]


def of(ops: list[tuple[str, float]], words: str) -> float:
    return sum(size for name, size in ops if words in name)


def test_kernels_run_one_by_one_are_those_that_torch_dispatches() -> None:
    """But for counters of batches, of one element; a convolution's gradients are two kernels."""
    ops = [op for op in dispatched() if op[1] > 1]
    behind = next(i for i, (name, _) in enumerate(ops) if name == "aten::sum")
    ahead, back = ops[:behind], [op for op in ops[behind + 1 :] if op[0] != "aten::mul"]
    lists = [layer.eager_kernels for layer in block("layer1.1")]
    assert sum(k.forward for k in lists if k) == len(ahead)
    twice = sum(name == "aten::convolution_backward" for name, _ in back)
    assert sum(k.backward for k in lists if k) == len(back) + twice
    # the device's kernels read what they reduce twice: 3 of 2 elements, and 5 of 3
    forward = 1.5 * of(ahead, "batch_norm") + of(ahead, "relu") + of(ahead, "add_")
    backward = 5 / 3 * of(back, "batch_norm") + of(back, "threshold") + of(back, "aten::add")
    assert sum(k.moved for k in lists if k) == pytest.approx(forward, rel=1e-3)
    assert sum(k.moved_back for k in lists if k) == pytest.approx(backward, rel=1e-3)
    weights = sum(layer.parameters for layer in block("layer1.1"))
    moved = of(ahead, "convolution") - weights / IMAGES
    assert sum(k.products for k in lists if k) == pytest.approx(moved, rel=1e-2)


def test_fusing_leaves_norms_and_the_other_operand_of_an_addition() -> None:
    for layer in block("layer1.1"):
        fused, added = layer.compiled_kernels, layer.name.endswith("conv3")
        assert fused is not None
        assert fused.moved == layer.output * (3 + added)
        assert fused.moved_back == layer.output * (5 + added)
        assert fused.forward == 2


def test_convolutions_take_turns_with_what_follows_them() -> None:
    device = load_device("a100-sxm-80gb")
    layer, n = block("layer1.1")[1], 256
    model = convolutions.listed(ResNet50().model(), convolutions.ImageRun())
    made = next(one for one in model.layers if one.name == layer.name)
    (time,) = (
        t
        for t, one in zip(
            layer_times(model, device, "fp16", n, 0.5, "none"), model.layers, strict=True
        )
        if one is made
    )
    computed = layer.forward_flop * n / (0.5 * device.peak_for("fp16"))
    streamed = 5 * layer.output * n * 2 / (0.8 * device.memory_bandwidth)
    weights = layer.parameters * 2 / device.memory_bandwidth
    moved = 2 * layer.output * n * 2 / device.memory_bandwidth + weights
    assert time.forward == pytest.approx(max(computed, moved) + streamed, rel=1e-6)


def case(**changes: Any) -> Case:
    return Case(load({**RUN, **changes}, Path(), "test").points[0], Path())


def seconds(**changes: Any) -> float:
    one = case(**changes)
    return one.pace.seconds(256)


def test_torch_runs_them_one_by_one_and_xla_fuses_them() -> None:
    plain, fused = seconds(), seconds(execution={"compile": True})
    assert plain == seconds(execution={"compile": False}) > 1.2 * fused
    whole = {"parameters": "bf16", "compute": "bf16"}  # JAX casts no weights by itself
    compiled = seconds(precision=whole, execution={"compile": True})
    assert seconds(precision=whole, strategy={"kind": "pmap"}) == compiled < fused


def test_a_share_that_is_given_holds_for_all_that_a_layer_does() -> None:
    model = ResNet50().model()
    assert case(compute={"efficiency": 0.4}).model.layers == model.layers
    assert case().model.layers != model.layers


@pytest.mark.parametrize(
    ("device", "dtype", "share"),
    [
        ("a100-sxm-80gb", "bf16", convolutions.TENSOR_CORES),
        ("h100-sxm", "fp8", convolutions.TENSOR_CORES),
        ("v100-sxm2-16gb", "fp16", convolutions.BEFORE_AMPERE),
        ("v100-sxm2-16gb", "fp32", convolutions.PLAIN),
        ("rtx3090", "fp16", convolutions.HALVED),
        ("p100-sxm2-16gb", "fp16", convolutions.PLAIN),
    ],
)
def test_shares_of_the_peak(device: str, dtype: str, share: float) -> None:
    assert convolutions.share(load_device(device), dtype) == share


@pytest.mark.parametrize(
    ("model", "part"),
    [
        ({"name": "sd15"}, True), ({"name": "sdxl"}, True), ({"name": "mask_rcnn"}, True),
        ({"name": "resnet50"}, False), ({"name": "convnext_base"}, False),
        ({"name": "swin_b"}, False), ({"huggingface": "vit-base-patch16-224"}, False),
    ],
)  # fmt: skip
def test_networks_of_which_convolutions_are_a_part_reach_less(
    model: dict[str, Any], part: bool
) -> None:
    """Those that convolve every channel alone, or images to patches, are matrices' networks; of
    other makers' devices nothing is known."""
    assert convolutions.in_part(load_model(make(model, file=False), Path())) is part
    there = {"machine": "dgx-a100", "ranks": 1}
    found = case(model=model, cluster=there, precision={"parameters": "fp32", "compute": "bf16"})
    own = convolutions.IN_PART * convolutions.TENSOR_CORES
    assert (found.pace.efficiency() == pytest.approx(own)) is part


def test_a_stand_in_s_kernels_are_as_much_smaller_as_its_work() -> None:
    def lists(share: float) -> list[float]:
        model = {"name": "scaled", "parameters": round(share * 25_557_032)}
        layers = case(model=model).model.layers
        streams = [one.streamed for one in layers if one.streamed]
        assert all(one.backward_bytes >= 0 for one in layers)
        return [
            sum(one.forward for one in streams), sum(one.backward for one in streams),
            sum(one.forward_bytes for one in layers), sum(one.backward_bytes for one in layers),
        ]  # fmt: skip

    whole = lists(1.0)
    assert lists(0.25) == pytest.approx([0.25 * each for each in whole], rel=1e-6)


def test_eight_bits_change_nothing_and_it_is_said() -> None:
    eight = {"parameters": "fp32", "compute": "fp8"}
    sixteen = {"parameters": "fp32", "compute": "bf16"}
    there = {"machine": "dgx-h100", "ranks": 8}
    one, other = (case(precision=p, cluster=there) for p in (eight, sixteen))
    assert one.pace.seconds(8) == pytest.approx(other.pace.seconds(8), rel=1e-9)
    assert "precision.compute: fp8 is bf16 here" in " ".join(unused(one))
    stated = {"layers": [{"name": "a", "parameters": 1, "forward": "1 ms", "backward": "2 ms"}]}
    assert not list(unused(case(model=stated, precision=eight, cluster=there)))
    plain = case(model={"name": "vgg16"}, execution={"compile": True})
    assert "execution.compile changes nothing" in " ".join(unused(plain))


def test_other_models_of_images_are_refused_by_name() -> None:
    with pytest.raises(Refused, match="not for swin"):
        _ = case(model={"name": "swin_t"}, execution={"compile": True}).model
    for name, code in (("resnet50", "nanotron"), ("vgg16", "tensorflow"), ("alexnet", "nanotron")):
        with pytest.raises(Refused, match="none of the layers of"):
            _ = case(model={"name": name}, execution={"compile": False, "code": code}).model


def test_mixed_devices_take_what_each_takes_alone() -> None:
    """Unless one is of another maker, of which no share is known."""
    cluster = {"machine": "dgx-a100", "ranks": 8, "devices": {"7": "v100-sxm2-16gb"}}
    mixed = case(cluster=cluster)
    assert mixed.pace.seconds(256, kind=0) == seconds()
    slow = {"machine": "dgx-1v", "ranks": 8}
    assert mixed.pace.seconds(256, kind=1) == pytest.approx(seconds(cluster=slow), rel=1e-9)
    foreign = case(cluster={**cluster, "devices": {"7": "mi300x"}})
    assert not convolutions.is_listed(foreign.model)


def test_launches_are_the_frameworks_where_it_is_said_how_kernels_are_made() -> None:
    """Else those of which `host.kernels` may say a share."""
    said, unsaid = case(execution={"compile": False}).model, case().model
    (one,), (other,) = ([x for x in m.layers if x.name == "layer1.1.conv2"] for m in (said, unsaid))
    # forward's three, a cast of its weight and two copies; backward's four, the cast of its
    # gradient and four copies
    assert (one.kernels, one.launched_backward) == (6, 9)
    assert (other.kernels, other.launched_backward) == (3, 6)
    assert one.streamed == other.streamed


#: images of a batch, and images/s in training, of torch's own modules in mixed precision, channels
#: last, on an RTX 3090 (huggingface/pytorch-image-models at 5e7d47ca, Apache-2.0,
#: results/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv)
TIMM = {
    "resnet18": (512, 3481.78), "resnet50": (512, 1218.01), "resnet152": (192, 501.44),
    "resnext101_32x8d": (128, 312.8), "vgg16": (384, 546.06), "vgg16_bn": (256, 470.3),
    "efficientnet_b0": (512, 1751.72), "efficientnet_b1": (256, 1325.85),
    "mobilenet_v2": (512, 2313.1),
}  # fmt: skip


@pytest.mark.parametrize("name", TIMM)
def test_published_rates_of_a_geforce_with_which_its_share_was_chosen(name: str) -> None:
    images, rate = TIMM[name]
    assert rate_of(name, images, turned=False) == pytest.approx(rate, rel=0.2)


def rate_of(name: str, images: int, *, turned: bool) -> float:
    """Images/s in mixed precision on an RTX 3090."""
    device, own = load_device("rtx3090"), make({"name": name, "image_size": 224}, file=False)
    run = convolutions.ImageRun(autocast=True, turned=turned)
    model = convolutions.listed(load_model(own, Path(), device), run)
    times = layer_times(model, device, "fp16", images, convolutions.share(device, "fp16"), "none")
    return images / sum(time.forward + time.backward for time in times)


#: the same with channels first (results/benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv), and
#: batches of these
TIMM_FIRST = {
    "resnet18": (512, 2764.22), "resnet34": (512, 1622.41), "resnet50": (512, 826.06),
    "resnet101": (256, 568.98), "resnet152": (192, 370.08), "resnext50_32x4d": (384, 663.39),
    "vgg16": (384, 465.36), "vgg16_bn": (256, 388.69), "efficientnet_b0": (384, 1459.11),
    "mobilenet_v2": (512, 1832.14), "wide_resnet50_2": (384, 495.68),
}  # fmt: skip
TIMM_LAST = {
    **TIMM, "resnet34": (512, 2036.51), "resnet101": (256, 747.89),
    "resnext50_32x4d": (384, 1001.03), "wide_resnet50_2": (384, 668.78),
}  # fmt: skip


@pytest.mark.parametrize("name", TIMM_FIRST)
def test_channels_first_cost_copies_around_each_convolution(name: str) -> None:
    """Nothing is fitted: 1.17 (VGG-16) to 1.51 times (ResNeXt-50) measured, 1.18 and 1.43 here."""
    images, rate = TIMM_FIRST[name]
    own, before = TIMM_LAST[name]
    longer = rate_of(name, own, turned=False) / rate_of(name, images, turned=True)
    assert longer == pytest.approx(before / rate, rel=0.08)


def test_who_lays_out_images_how() -> None:
    """torch channels first, TensorFlow, JAX and torch.compile last, unless told; not in fp32."""

    def step(kind: str = "ddp", dtype: str = "fp16", **execution: Any) -> float:
        own = {"parameters": "fp32", "compute": dtype}
        data = case(strategy={"kind": kind}, precision=own, execution=execution)
        return sum(layer.streamed.forward for layer in data.model.layers if layer.streamed)

    first, last = step(), step(channels_last=True)
    assert step(channels_last=False) == first > 1.5 * last
    assert step("horovod") == first
    assert step("mirrored") == step("multi_worker_mirrored") == last
    assert step("pmap", compile=False) == last
    assert step("mirrored", channels_last=False) == first
    assert step(compile=True, channels_last=False) > step(compile=True)
    assert step(dtype="fp32") == step(dtype="fp32", channels_last=True)


def test_a_copy_is_two_kernels_for_each_pass_of_a_convolution() -> None:
    """A first one has no gradient of its input; those of each channel alone are as they come."""

    def launches(name: str, **execution: Any) -> tuple[int, int]:
        run = {"compile": False, **execution}
        layers = case(model={"name": name}, execution=run).model.layers
        return (sum(x.kernels for x in layers), sum(x.launched_backward for x in layers))

    one, other = launches("resnet50"), launches("resnet50", channels_last=True)
    assert (one[0] - other[0], one[1] - other[1]) == (2 * 53, 4 * 53 - 2)
    one, other = launches("mobilenet_v2"), launches("mobilenet_v2", channels_last=True)
    assert one[0] - other[0] == 2 * (52 - 17)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model": {"name": "swin_t"}}, "is of image networks"),
        (
            {"compute": {"efficiency": 0.4}, "execution": {"channels_last": True}},
            "compile: false has",
        ),
        ({"cluster": {"machine": "mi300x-8", "ranks": 8}}, "changes nothing on such devices"),
    ],
)
def test_a_layout_of_what_has_none_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=why):
        _ = case(**{"execution": {"channels_last": True}, **changes}).model


def test_what_a_word_of_code_would_bring_is_what_a_run_with_it_takes() -> None:
    """Channels last for images that lie otherwise, torch.compile for what runs operation by
    operation, and neither for what has it already."""
    text = {
        "model": {"huggingface": "gpt2", "sequence_length": 512},
        "cluster": {"machine": "dgx-a100", "ranks": 4},
        "execution": {"compile": False},
    }

    def found(name: str, **keys: Any) -> float | None:
        data = case(**keys)
        return {one.change: one.step_time_s for one in what_if(data, step_time(data))}.get(name)

    for name, keys, key in (
        ("channels last", {}, {"channels_last": True}),
        ("torch.compile", text, {"compile": True}),
    ):
        after = {**keys, "execution": key}
        assert found(name, **keys) == pytest.approx(step_time(case(**after)), rel=1e-9)
        assert found(name, **keys) < 0.95 * step_time(case(**keys))  # type: ignore[operator]
        assert found(name, **after) is None
    assert found("channels last", strategy={"kind": "mirrored"}) is None
    assert found("torch.compile") is None


def test_the_kernels_of_images_are_told_where_they_count() -> None:
    """Once, where nothing says it; and where it changes nothing."""
    first = "images lie with channels first"
    own = {"parameters": "fp32", "compute": "fp32"}
    slow = {"parameters": "fp32", "compute": "tf32"}

    def said(**keys: Any) -> str:
        return " ".join(predicted({**RUN, **keys}).warnings)

    assert first in said()
    assert first not in said(execution={"channels_last": True})
    assert first not in said(strategy={"kind": "mirrored"})
    assert first not in said(precision=own)
    assert "cuDNN convolves in TF32 unless told" in said(precision=own)
    assert "TF32" not in said()
    assert "TF32" not in said(precision=own, cluster={"machine": "rtx3090-8", "ranks": 8})
    l40s = {"machine": "l40s-8", "ranks": 8}
    assert "tf32 may be slower than fp32" in said(precision=slow, cluster=l40s)
    assert "tf32 may be slower" not in said(precision=slow)
    unknown = "no published step of an image network on MI300X"
    amd = {"machine": "mi300x-8", "ranks": 8}
    assert unknown in said(cluster=amd)
    text = {"huggingface": "gpt2", "sequence_length": 1024}
    assert unknown not in said(cluster=amd, model=text)
    assert "no published step" not in said()
    assert "execution.channels_last changes nothing" in said(
        precision=own, execution={"channels_last": True}
    )


def test_channels_last_are_not_offered_to_steps_that_were_as_fast_already() -> None:
    """A step as fast as with channels last is of such a run: the warning says so, and nothing is
    promised twice."""
    quick = step_time(case(execution={"channels_last": True}, cluster=ONE))
    for seconds, offered in ((quick, False), (step_time(case(cluster=ONE)), True)):
        calibrated = {**RUN, "cluster": ONE, "calibrate": {"step_time": f"{seconds} s"}}
        found = predicted(calibrated)
        names = [one.change for one in found.explain().points[0].what_if]
        assert ("channels last" in names) == offered
        told = " ".join(found.warnings)
        assert ("Images that lie with channels last" in told) == (not offered)
