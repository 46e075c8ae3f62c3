"""nanotron's Llama written in torch: huggingface/nanotron at e24d2483, src/nanotron/models/llama.py
and parallel/tensor_parallel/functional.py, re-written.  What is a kernel of flash-attn there
(norms, rotary positions) is one operation here that reads and writes as much."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class FusedNorm(torch.autograd.Function):
    """One kernel forward; one backward, and a sum of a few rows for the weights."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return x + grads[0], weight.clone()


class Turned(torch.autograd.Function):
    """Rotary positions of queries, to a new place."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0] * 2


class TurnedKeys(torch.autograd.Function):
    """Those of keys, in place beside values."""

    @staticmethod
    def forward(ctx: Any, kv: torch.Tensor) -> torch.Tensor:
        kv[:, :, 0].mul_(2)
        ctx.mark_dirty(kv)
        return kv

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        grads[0][:, :, 0].mul_(2)
        return grads[0]


class CrossEntropy(torch.autograd.Function):
    """`_ShardedCrossEntropy` on one rank, without what it would exchange."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        size = logits.shape[-1]
        logits = logits - torch.max(logits, dim=-1)[0].unsqueeze(-1)
        mask = (target < 0) | (target >= size)
        masked = target.clone() - 0
        masked = torch.where(mask, 0, masked)
        flat, rows = logits.view(-1, size), torch.arange(target.numel(), device=target.device)
        found = flat[rows, masked.view(-1)].clone().view_as(target)
        found = torch.where(mask, 0.0, found)
        torch.exp(logits, out=logits)
        total = logits.sum(dim=-1)
        loss = torch.log(total) - found
        logits.div_(total.unsqueeze(-1))
        ctx.save_for_backward(logits, mask, masked.view(-1))
        return loss.view_as(target)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        softmax, _, _ = ctx.saved_tensors
        softmax.mul_(grads[0].unsqueeze(-1))
        return softmax, None


#: torch has no types for what `apply` takes
normed: Any = FusedNorm.apply
turned: Any = Turned.apply
turned_keys: Any = TurnedKeys.apply
cross_entropy: Any = CrossEntropy.apply


class NanotronLlama(nn.Module):
    """A block of sequences in the layout [tokens, batch, width]."""

    def __init__(self, h: int, heads: int, f: int) -> None:
        super().__init__()
        self.heads, self.d, self.f = heads, h // heads, f
        self.one, self.two = (nn.Parameter(torch.ones(h)) for _ in range(2))
        shapes = (h, 3 * h), (h, h), (h, 2 * f), (f, h)
        self.qkv, self.o, self.gate_up, self.down = (nn.Linear(*s, bias=False) for s in shapes)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        s, b, h = x.shape
        y = self.qkv(normed(x, self.one))
        shape = s, b, 3, self.heads, self.d
        q, k, v = y.view(*shape).permute(2, 1, 0, 3, 4).contiguous()
        kv = torch.cat([k.unsqueeze(0), v.unsqueeze(0)], dim=0)
        kv = kv.permute(1, 2, 0, 3, 4).contiguous()
        q, kv = turned(q), turned_keys(kv)
        keys, values = torch.split(kv, 1, dim=2)
        self.lengths(b, s, x.device)
        parts = (one.view(b, s, self.heads, self.d).transpose(1, 2) for one in (q, keys, values))
        found: Any = torch.ops.aten._scaled_dot_product_flash_attention(*parts, 0.0, True)
        out = found[0].transpose(1, 2).contiguous().view(b, s, h).transpose(0, 1)
        done: torch.Tensor = self.o(out) + x
        return done

    def lengths(self, batch: int, tokens: int, device: Any) -> None:
        """Where sequences begin, of queries and of keys."""
        mask = torch.empty(batch, tokens, dtype=torch.bool, device=device)
        for _ in range(2):
            ends = torch.zeros(batch + 1, dtype=torch.int32, device=device)
            torch.cumsum(mask.sum(-1, dtype=torch.int32), 0, dtype=torch.int32, out=ends[1:])

    def feed(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = torch.split(self.gate_up(normed(x, self.two)), self.f, dim=-1)
        done: torch.Tensor = self.down(nn.functional.silu(gate) * up) + x
        return done
