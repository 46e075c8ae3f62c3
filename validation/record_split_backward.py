"""What torch keeps between the two halves of a split backward: tests/data/memory/split.json.

    python validation/record_split_backward.py [-o FILE]

Blocks of a stage, with a head and a loss behind them or not, do one micro-batch's forward, backward
for the input and backward for the weights, as torch.distributed.pipelining runs them
(`_backward.py`); torch.profiler counts what the CPU's allocator gives and takes back.  Gradients of
parameters are there before, as in all micro-batches but the first.  No GPU, no second process.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _memory_models import Block
from torch import nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

FILE = Path(__file__).resolve().parent.parent / "tests/data/memory/split.json"
SHAPE = {"hidden": 512, "heads": 8, "feed_forward": 1536, "sequence_length": 512}
SHAPE |= {"vocabulary": 8192, "blocks": 4}


class Stage(nn.Module):
    """Blocks, and behind the last stage's the norm and the head."""

    def __init__(self, case: dict[str, Any]) -> None:
        super().__init__()
        m = {**SHAPE, "kv_heads": SHAPE["heads"], "family": case["family"]}
        self.blocks = nn.ModuleList(Block(m) for _ in range(m["blocks"]))
        norm = nn.RMSNorm if case["family"] == "llama" else nn.LayerNorm
        head = nn.Linear(m["hidden"], m["vocabulary"], bias=False)
        self.end = nn.Sequential(norm(m["hidden"]), head) if case["last"] else None
        self.again, self.ran = case["recompute"] == "full", 0
        if case["family"] == "llama":
            self.turn = torch.ones(2, m["sequence_length"], m["hidden"] // m["heads"])
        else:
            self.turn = None

    def block(self, block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        self.ran += 1
        return block(x, self.turn)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            run = partial(self.block, block)
            x = checkpoint(run, x, use_reentrant=False) if self.again else run(x)
        return x if self.end is None else self.end(x)


def counted(work: Callable[[], Any]) -> tuple[Any, int, int]:
    """What `work` gives, and by how many bytes what is allocated changes: at its end, at most."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        given = work()
    events = [e for e in found.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return given, now, most


def recorded(case: dict[str, Any]) -> dict[str, Any]:
    stage = Stage(case).to(torch.bfloat16)
    weights = list(stage.parameters())
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    tokens, hidden = SHAPE["sequence_length"], SHAPE["hidden"]
    given = torch.randn(1, tokens, hidden, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.zeros(tokens, dtype=torch.int64)

    def forward() -> list[torch.Tensor]:
        out = stage(given)
        if case["last"]:
            return [functional.cross_entropy(out.flatten(0, 1).float(), labels)]
        return [out]

    out, kept, _ = counted(forward)
    grads = None if case["last"] else [torch.ones_like(out[0])]
    half = partial(stage_backward_input, out, grads, [given], iter(weights))
    (_, groups), more, first = counted(half)
    out.clear()
    stage.ran = 0
    _, _, second = counted(partial(stage_backward_weight, iter(weights), groups))
    peaks = {"first": kept + first, "second": second}
    return {**case, "kept": kept, "waiting": kept + more, **peaks, "blocks_again": stage.ran}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    asked.add_argument("-o", "--output", type=Path, default=FILE)
    cases = [
        {"family": family, "last": last, "recompute": again}
        for family in ("llama", "gpt2")
        for last in (False, True)
        for again in ("none", "full")
    ]
    found = {"program": "validation/record_split_backward.py", "torch": torch.__version__}
    found |= {"shape": SHAPE, "cases": [recorded(case) for case in cases]}
    asked.parse_args().output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
