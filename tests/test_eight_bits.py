"""What computes in 8 bits and what does not, and what casting to them takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dpsim.machines.machine import load_machine
from dpsim.models import Layer, Model, Tensor
from dpsim.models.compute import Shares, layer_times
from dpsim.models.few_bits import cast_elements
from tests.asked import case_of

LLAMA: dict[str, Any] = {
    "model": {"huggingface": "llama-3-8b", "sequence_length": 8192},
    "cluster": {"machine": "dgx-h100", "nodes": 1},
    "strategy": {"kind": "fsdp"},
}


def times(dtype: str, **rest: Any) -> dict[str, float]:
    """Forward of every layer of one sequence [s], by name, at half of the peak."""
    more = {"precision": {"parameters": "fp32", "compute": dtype}, "compute": {"efficiency": 0.5}}
    case = case_of({**LLAMA, **more, **rest})
    layers = case.model.layers
    return {one.name: t.forward for one, t in zip(layers, case.pace.times(1), strict=True)}


def test_products_of_blocks_alone_are_twice_as_fast() -> None:
    """Peaks of H100 are 989 and 1,979 TFLOP/s; embedding and head take what they take in bf16, and
    pairs of tokens too."""
    half, eight = times("bf16"), times("fp8")
    assert eight["lm_head"] == half["lm_head"]
    pairs = 4 * 4096 * 8192**2 / 2 / (989.4e12 * 0.5)
    name = "layers.0.attention"
    assert eight[name] == pytest.approx((half[name] - pairs) / 2 + pairs, rel=2e-3)


def test_what_is_cast_by_hand() -> None:
    """Two products of 3 tokens that share an input of 8 elements, 4 and 2 wide, and one of 4 by 8
    behind them: inputs 8 + 4 a token, then gradients of 4 + 2 + 8 outputs."""
    shapes = {"gate": (4, 8), "up": (2, 8), "down": (8, 4)}
    tensors = tuple(Tensor(f"{name}.weight", shape) for name, shape in shapes.items())
    layer = Layer(name="m", tensors=tensors, forward_flop=2.0 * 3 * 80, unit="0")
    assert cast_elements(layer, 1) == (3 * 12, 3 * 14)
    assert cast_elements(layer, 2) == (6 * 12, 6 * 14)
    assert cast_elements(replace(layer, tensors=(Tensor("norm", (8,)),)), 1) == (0.0, 0.0)


def test_what_products_are_not_with_is_not_cast() -> None:
    """Biases of every expert's own, and a convolution of 6 channels one by one over 4 tokens."""
    product = Tensor("in_proj.weight", (6, 8))
    beside = (Tensor("conv1d.weight", (6, 1, 4)), Tensor("up_proj_bias", (2, 6)))
    layer = Layer(name="m", tensors=(product,), forward_flop=2.0 * 3 * 48, unit="0")
    assert cast_elements(layer, 1) == (3 * 8, 3 * 6)
    assert cast_elements(replace(layer, tensors=(*beside, product)), 1) == (3 * 8, 3 * 6)


def test_layers_outside_blocks_cast_nothing() -> None:
    device = load_machine("dgx-h100").device
    tensor = Tensor("w", (4096, 4096))
    own: dict[str, Any] = {"tensors": (tensor,), "forward_flop": 1e12, "backward_flop": 2e12}
    inside, outside = Layer(name="a", unit="0", **own), Layer(name="b", **own)
    model = Model(name="m", layers=(inside, outside))
    eight, half = (layer_times(model, device, t, 1, 0.5, "none") for t in ("fp8", "bf16"))
    assert eight[1] == half[1]
    assert eight[0].forward < half[0].forward


@pytest.mark.parametrize("dtype", ["fp8", "nvfp4"])
def test_convolutions_stay_in_16_bits(dtype: str) -> None:
    """Transformer Engine has none, and torchao leaves them as they are."""
    images = {"model": {"name": "resnet50"}, "cluster": {"machine": "dgx-b200", "nodes": 1}}
    assert times(dtype, **images) == times("bf16", **images)


@pytest.mark.parametrize("compiled", [True, False])
def test_eight_bits_bring_less_than_twice_kernel_by_kernel_too(compiled: bool) -> None:
    """torchtitan measures 1.28 for Llama 3.1 8B with torch.compile (benchmarks/
    llama3_h100_202412_torchtitan.md, table 1)."""
    own = {"execution": {"compile": compiled}, "batch": {"per_device": 2}}
    half, eight = (sum(times(dtype, **own).values()) for dtype in ("bf16", "fp8"))
    assert 1.05 < half / eight < 1.5


def test_what_stays_in_16_bits_takes_what_it_takes_there_kernel_by_kernel_too() -> None:
    """The head, and attention over pairs: 8-bit products alone reach less of their peak."""
    own: dict[str, Any] = {"compute": {}, "execution": {"compile": True}}
    half, eight = times("bf16", **own), times("fp8", **own)
    assert eight["lm_head"] == half["lm_head"]
    device = load_machine("dgx-h100").device
    tensor = Tensor("w", (4096, 4096))
    pairs = Layer(name="a", unit="0", tensors=(tensor,), forward_flop=1e12, backward_flop=2e12,
                  pairs=1e12)  # fmt: skip
    model = Model(name="m", layers=(pairs,))
    slow, fast = (
        layer_times(model, device, "fp8", 1, 0.5, "none", shares=Shares(share))[0]
        for share in (0.85, 1.0)
    )
    assert slow == fast
