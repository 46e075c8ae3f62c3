"""Attention of one rank of several that split every sequence, as torch's `context_parallel` has it
(torch 2.13, torch/distributed/tensor/experimental/_context_parallel/_attention.py), on a fake
process group."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental._context_parallel import _attention as ring
from torch.nn import functional

ROTATE = {"ring": "ALL_TO_ALL", "all_gather": "ALL_GATHER"}
AHEAD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
BACK = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def attention(group: Any) -> Callable[..., Tensor]:
    """What stands for scaled_dot_product_attention on the ranks of `group`."""

    class Ring(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out, total, *_ = ring._templated_ring_attention(
                group, 2, AHEAD, q, k, v, is_causal=True
            )
            ctx.save_for_backward(q, k, v, out, total)
            return out

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
            q, k, v, out, total = ctx.saved_tensors
            found = ring._templated_ring_attention_backward(
                group, 2, BACK, grad, "grad_out", q, k, v, out, total,
                is_causal=True, dropout_p=0.0,
            )  # fmt: skip
            return found[:3]

    def split(q: Tensor, k: Tensor, v: Tensor, **settings: Any) -> Tensor:
        if settings.get("enable_gqa"):
            raise NotImplementedError("as many heads of keys as of queries are recorded")
        return Ring.apply(q, k, v)

    return split


@contextmanager
def splitting(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """`case` as each rank has it, with its stretch of a sequence."""
    asked = case.get("context")
    if asked is None:
        yield case
        return
    ranks, world = asked["ranks"], dist.get_world_size()
    mesh = init_device_mesh("cpu", (world // ranks, ranks), mesh_dim_names=("data", "context"))
    ring._cp_options.enable_load_balance = True
    ring._cp_options.rotate_method = ring._RotateMethod[ROTATE[asked["kind"]]]
    plain = functional.scaled_dot_product_attention
    functional.scaled_dot_product_attention = attention(mesh.get_group("context"))
    length = case["model"]["sequence_length"] // ranks
    try:
        yield {**case, "model": {**case["model"], "sequence_length": length}}
    finally:
        functional.scaled_dot_product_attention = plain
