"""torchtitan's Llama, run one by one: kernels as torch dispatches them for modules written so."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from asked import case_of, predicted, refusal
from eager_blocks import Dispatched
from torchtitan_blocks import TorchtitanLlama

from dpsim.models import Layer

TOKENS, HIDDEN, HEADS, INNER = 512, 256, 64, 704
LLAMA: dict[str, Any] = {
    "name": "transformer", "family": "llama", "hidden": HIDDEN, "blocks": 1, "heads": HEADS,
    "feed_forward": INNER, "vocabulary": 1024, "sequence_length": TOKENS,
}  # fmt: skip
TORCHTITAN: dict[str, Any] = {
    "model": LLAMA,
    "cluster": {"machine": "dgx-h100", "nodes": 1},
    "strategy": {"kind": "fsdp", "torch": "2.13"},
    "precision": {"parameters": "fp32", "compute": "bf16"},
    "execution": {"compile": False, "code": "torchtitan"},
}


def layers(changes: dict[str, Any] | None = None) -> dict[str, Layer]:
    case = case_of({**TORCHTITAN, **(changes or {})})
    return {layer.name.rpartition(".")[2]: layer for layer in case.model.layers}


@pytest.mark.parametrize(("half", "run"), [("attention", "attention"), ("mlp", "feed")])
def test_blocks_run_the_kernels_that_torch_dispatches(half: str, run: str) -> None:
    """Launches one by one, beside the sum of a norm's weights, which is one operation here with its
    backward on a GPU; bytes but for tables of one head's width."""
    own = layers()[half]
    with torch.device("meta"):
        block = TorchtitanLlama(HIDDEN, HEADS, INNER).to(torch.bfloat16)
    x = torch.empty(1, TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True, device="meta")
    with Dispatched() as ahead:
        y = getattr(block, run)(x)
    with Dispatched() as back:
        y.backward(torch.empty_like(y))
    assert own.streamed is not None
    assert (own.kernels, own.launched_backward) == (len(ahead.ops), len(back.ops) - 1)
    assert 2 * own.streamed.forward == pytest.approx(ahead.moved, rel=0.01)
    assert 2 * own.streamed.backward == pytest.approx(back.moved, rel=0.01)


def test_norms_of_heads_are_fused_too() -> None:
    """Qwen3's, 2 of q and k | 3: two kernels each way."""
    own, plain = (layers({"model": {"huggingface": name, "sequence_length": 512}})["attention"]
                  for name in ("qwen3-8b", "llama-3-8b"))  # fmt: skip
    assert own.streamed is not None
    assert plain.streamed is not None  # of the same widths
    assert (own.kernels, own.launched_backward) == (plain.kernels + 2, plain.launched_backward + 2)
    assert own.streamed.forward - plain.streamed.forward == 512 * 2 * (4096 + 1024)
    assert own.streamed.backward - plain.streamed.backward == 512 * 3 * (4096 + 1024)


def test_a_step_is_slower_than_compiled_and_faster_than_transformers() -> None:
    kinds = [{"compile": True}, TORCHTITAN["execution"], {"compile": False}]
    model = {"huggingface": "llama-3-8b", "sequence_length": 4096}
    times = [predicted({**TORCHTITAN, "model": model, "execution": kind}).computed[0].step_time_s
             for kind in kinds]  # fmt: skip
    assert times == sorted(times)
    assert len(set(times)) == 3


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"execution": {"code": "torchtitan"}}, "goes with compile: false"),
        ({"model": {**LLAMA, "family": "gpt2"}}, "torchtitan has no attention, mlp as"),
        ({"strategy": {"kind": "ddp"}}, "autocast"),
    ],
)  # fmt: skip
def test_what_torchtitan_does_not_run_is_refused(changes: dict[str, Any], why: str) -> None:
    assert why in refusal({**TORCHTITAN, **changes})
