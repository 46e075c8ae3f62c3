"""What a layer's products take longer than wide ones: whose sums and whose tiles count (A88)."""

from __future__ import annotations

from typing import Any

import pytest

from dpsim.machines.machine import load_device
from dpsim.models import Layer, Tensor, waves
from dpsim.models.products import lengthened
from dpsim.models.rates import WIDE

A100 = load_device("a100-sxm-80gb")
HALF, TOKENS = 140.0, 2048
ALIKE = 1 + HALF / WIDE


def layer(*tensors: Tensor, **more: Any) -> Layer:
    weights = sum(t.elements for t in tensors)
    each = 2.0 * TOKENS * weights / max(more.get("experts", 0), 1)
    return Layer(name="a", unit="0", tensors=tensors, kernels=0,
                 forward_flop=each, backward_flop=2 * each, **more)  # fmt: skip


def factors(one: Layer, *table: Tensor) -> tuple[float, float]:
    return lengthened(one, A100, HALF, 1.0, table)


def test_outputs_are_tiled_forward_and_inputs_backward() -> None:
    """512 outputs of 3,072 inputs; gradients of weights sum over tokens, and lose nothing."""
    ahead, back = factors(layer(Tensor("w", (512, 3072))))
    assert ahead == pytest.approx((1 + HALF / 3072) * waves.longer(A100, TOKENS, 512) / ALIKE)
    inputs = (1 + HALF / 512) * waves.longer(A100, TOKENS, 3072)
    assert back == pytest.approx((inputs + 1 + HALF / TOKENS) / 2 / ALIKE)
    assert waves.longer(A100, TOKENS, 512) > 1.2 > 1.1 > waves.longer(A100, TOKENS, 3072)


def test_a_matrix_stored_the_other_way_round_and_a_table_are_the_same_product() -> None:
    plain = factors(layer(Tensor("w", (512, 3072))))
    assert factors(layer(Tensor("w", (3072, 512), transposed=True))) == plain
    tied = Layer(name="a", tied="t", kernels=0, forward_flop=2.0 * TOKENS * 512 * 3072,
                 backward_flop=4.0 * TOKENS * 512 * 3072)  # fmt: skip
    assert factors(tied, Tensor("t", (512, 3072))) == plain


def test_a_frozen_square_matrix_takes_as_long_backward_as_forward() -> None:
    ahead, back = factors(layer(Tensor("w", (1024, 1024), trained=False)))
    assert back == pytest.approx(ahead)


def test_a_library_multiplies_by_queries_keys_and_values_at_once() -> None:
    """And by gate and up; a matrix between them, or one that is frozen, is another product."""
    parts = [Tensor(f"layers.0.{name}_proj.weight", (512, 2048)) for name in "qkv"]
    whole = Tensor("layers.0.qkv.weight", (1536, 2048))
    assert factors(layer(*parts, library=True)) == pytest.approx(factors(layer(whole)))
    assert factors(layer(*parts))[0] > 1.1 * factors(layer(whole))[0]
    between = [parts[0], Tensor("lora_A.weight", (512, 2048)), *parts[1:]]
    assert factors(layer(*between, library=True))[0] > 1.1 * factors(layer(whole))[0]


def test_experts_lose_by_their_sums_alone() -> None:
    one = layer(Tensor("e", (4, 512, 3072)), experts=4)
    assert factors(one)[0] == pytest.approx((1 + HALF / 3072) / ALIKE)
