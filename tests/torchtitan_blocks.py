"""torchtitan's Llama written in torch: pytorch/torchtitan at b5bcd76c, torchtitan/models/common
(attention.py, rope.py, feed_forward.py), re-written.  The norm, which torch fuses on GPUs alone,
is one operation here that reads and writes as much."""

from __future__ import annotations

from typing import Any

import torch
from nanotron_blocks import normed
from torch import nn


class TorchtitanLlama(nn.Module):
    """A block of sequences in the layout [batch, tokens, width]."""

    def __init__(self, h: int, heads: int, f: int) -> None:
        super().__init__()
        self.heads = heads
        self.one, self.two = (nn.Parameter(torch.ones(h)) for _ in range(2))
        shapes = (*[(h, h)] * 4, (h, f), (h, f), (f, h))
        made = (nn.Linear(*shape, bias=False) for shape in shapes)
        self.wq, self.wk, self.wv, self.wo, self.w1, self.w3, self.w2 = made

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        b, s, h = x.shape
        y = normed(x, self.one)
        q, k, v = (w(y).view(b, s, self.heads, -1) for w in (self.wq, self.wk, self.wv))
        at = torch.empty(1, s, 1, h // self.heads // 2, dtype=torch.complex64, device=x.device)
        parts = (one.transpose(1, 2) for one in (self.turned(q, at), self.turned(k, at), v))
        found: Any = torch.ops.aten._scaled_dot_product_flash_attention(*parts, 0.0, True)
        done: torch.Tensor = self.wo(found[0].transpose(1, 2).contiguous().view(b, s, -1)) + x
        return done

    @staticmethod
    def turned(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        """Rotary positions, as complex numbers."""
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * at).flatten(-2).type_as(x)

    def feed(self, x: torch.Tensor) -> torch.Tensor:
        y = normed(x, self.two)
        done: torch.Tensor = self.w2(nn.functional.silu(self.w1(y)) * self.w3(y)) + x
        return done
