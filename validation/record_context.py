"""Record what torch's `context_parallel` sends, in order, on a fake process group.

    python validation/record_context.py tests/data/context/orders.json

Runs _templated_ring_attention and its backward (torch 2.13, torch/distributed/tensor/experimental/
_context_parallel/_attention.py) as the last of four ranks, with the processor's flash attention in
bf16, for either `rotate_method` and with and without balance.  A row is what is issued: an
operation, the bytes of its result and its dtype; attention over a block is "attend", and where
the rank waits is "wait".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from _record import target
from torch.distributed.tensor.experimental._context_parallel import _attention as ring
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

RANKS, HEADS, TOKENS, WIDTH = 4, 2, 16, 8
NAMES = {"all_to_all_single": "all_to_all", "all_gather_into_tensor": "all_gather"}


class Listing(TorchDispatchMode):
    """Lists collectives, waits and attention as torch dispatches them."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, found = func._schema.name.split("::")[-1], func(*args, **(kwargs or {}))
        if "attention" in name:
            self.rows.append(["attend"])
        elif name == "wait_tensor":
            self.rows.append(["wait"])
        elif name in NAMES:
            dtype = str(found.dtype).removeprefix("torch.")
            self.rows.append([NAMES[name], found.numel() * found.element_size(), dtype])
        return found


def recorded(method: str, *, balance: bool) -> dict[str, Any]:
    """Rows of a forward and of its backward."""
    ring._cp_options.enable_load_balance = balance
    ring._cp_options.rotate_method = ring._RotateMethod[method]
    flash, group = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu, dist.group.WORLD
    query, key, value = (
        torch.zeros(1, HEADS, TOKENS, WIDTH, dtype=torch.bfloat16) for _ in range(3)
    )
    with Listing() as ahead:
        out, total, *_ = ring._templated_ring_attention(
            group, 2, flash, query, key, value, is_causal=True
        )
    with Listing() as back:
        ring._templated_ring_attention_backward(
            group, 2, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
            out, "grad_out", query, key, value, out, total, is_causal=True, dropout_p=0.0,
        )  # fmt: skip
    return {"forward": ahead.rows, "backward": back.rows}


def main(where: str) -> None:
    dist.init_process_group("fake", store=FakeStore(), rank=RANKS - 1, world_size=RANKS)
    runs = [
        {"rotate_method": name.lower(), "load_balance": balance, **recorded(name, balance=balance)}
        for name in ("ALL_TO_ALL", "ALL_GATHER")
        for balance in (True, False)
    ]
    keys = 2 * HEADS * TOKENS * WIDTH * 2
    found = {"torch": torch.__version__, "ranks": RANKS, "keys_bytes": keys, "runs": runs}
    rows = ",\n".join(json.dumps(run) for run in runs)
    text = json.dumps({**found, "runs": []}).replace("[]", f"[\n{rows}\n]")
    Path(where).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(target(__doc__))
