"""nanotron's Llama, run one by one: kernels as torch dispatches them for modules written so."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from asked import case_of, refusal
from eager_blocks import Dispatched
from nanotron_blocks import NanotronLlama, cross_entropy

from dpsim.models import Layer

TOKENS, HIDDEN, HEADS, INNER, WORDS = 512, 128, 8, 352, 1024
LLAMA: dict[str, Any] = {
    "name": "transformer", "family": "llama", "hidden": HIDDEN, "blocks": 1, "heads": HEADS,
    "feed_forward": INNER, "vocabulary": WORDS, "sequence_length": TOKENS,
}  # fmt: skip
NANOTRON: dict[str, Any] = {
    "model": LLAMA,
    "cluster": {"machine": "dgx-h100", "nodes": 1},
    "strategy": {"kind": "megatron"},
    "precision": {"parameters": "bf16", "compute": "bf16"},
    "execution": {"compile": False, "code": "nanotron"},
}


def layers() -> dict[str, Layer]:
    return {layer.name.rpartition(".")[2]: layer for layer in case_of(NANOTRON).model.layers}


@pytest.mark.parametrize(("half", "run"), [("attention", "attention"), ("mlp", "feed")])
def test_blocks_run_the_kernels_that_torch_dispatches(half: str, run: str) -> None:
    """Launches one by one; bytes but for rows of one number a token."""
    own = layers()[half]
    with torch.device("meta"):
        block = NanotronLlama(HIDDEN, HEADS, INNER).to(torch.bfloat16)
    x = torch.empty(TOKENS, 1, HIDDEN, dtype=torch.bfloat16, requires_grad=True, device="meta")
    with Dispatched() as ahead:
        y = getattr(block, run)(x)
    with Dispatched() as back:
        y.backward(torch.empty_like(y))
    assert own.streamed is not None
    assert (own.kernels, own.launched_backward) == (len(ahead.ops), len(back.ops))
    assert 2 * own.streamed.forward == pytest.approx(ahead.moved, rel=0.003)
    assert 2 * own.streamed.backward == pytest.approx(back.moved, rel=0.003)


def test_the_loss_runs_in_32_bit_operation_by_operation() -> None:
    """`exp` does not read where it writes, nor does taking one logit a token read all of them."""
    own = layers()["lm_head"]
    logits = torch.empty(TOKENS, 1, WORDS, dtype=torch.bfloat16, requires_grad=True, device="meta")
    target = torch.empty(TOKENS, 1, dtype=torch.long, device="meta")
    with Dispatched() as ahead:
        loss = cross_entropy(logits.float(), target)
    with Dispatched() as back:
        loss.backward(torch.empty_like(loss))
    whole, unread = TOKENS * WORDS, 2 * 4 * TOKENS * WORDS
    assert own.streamed is not None
    assert own.kernels == len(ahead.ops) + 1
    assert 2 * own.streamed.forward == pytest.approx(ahead.moved - unread, rel=0.01)
    assert 2 * own.streamed.backward == pytest.approx(back.moved, rel=0.01)
    assert own.streamed.backward == 7 * whole


def test_a_layer_is_slower_than_compiled_and_faster_than_transformers() -> None:
    """Its norms and rotary positions are one kernel each."""
    kinds = [{"compile": True}, NANOTRON["execution"], {"compile": False}]
    cases = [case_of({**NANOTRON, "execution": kind}) for kind in kinds]
    moved = [sum(each.streamed.forward for each in case.model.layers if each.unit and each.streamed)
             for case in cases]  # fmt: skip
    assert moved == sorted(moved)
    assert len(set(moved)) == 3


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"execution": {"compile": True, "code": "nanotron"}}, "goes with compile: false"),
        ({"execution": {"code": "nanotron"}}, "goes with compile: false"),
        ({"model": {**LLAMA, "family": "gpt2"}}, "nanotron has no attention, mlp as"),
        ({"model": {"huggingface": "qwen3-8b", "sequence_length": 512}}, "nanotron has no"),
        ({"strategy": {"kind": "ddp"},
          "precision": {"parameters": "fp32", "compute": "bf16"}}, "autocast"),
    ],
)  # fmt: skip
def test_what_nanotron_does_not_run_is_refused(changes: dict[str, Any], why: str) -> None:
    assert why in refusal({**NANOTRON, **changes})
