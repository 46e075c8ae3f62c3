"""Transformer blocks written in torch as transformers writes them, and what torch dispatches.

The modules are re-written from the equations of huggingface/transformers 4.5x, `modeling_llama.py`
and `modeling_gpt2.py`, with the operations that a GPU dispatches where the meta device has others
(softmax into 32 bit, dropout).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

#: operations that move nothing, beside views
_FREE = (
    "aten::empty", "aten::new_empty", "aten::detach", "aten::_unsafe_view", "aten::scalar_tensor",
)  # fmt: skip
#: those whose traffic is that of products
PRODUCTS = ("aten::mm", "aten::addmm", "aten::_grouped", "aten::_scaled_dot_product_flash")


class Dispatched(TorchDispatchMode):
    """What torch dispatches: (operation, bytes that it reads and writes), without views."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._schema.name
        views = any(r.alias_info and not r.alias_info.is_write for r in func._schema.returns)
        if not views and not name.startswith(_FREE):
            read = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
            wrote = [x for x in tree_flatten(out)[0] if isinstance(x, torch.Tensor)]
            if name == "aten::copy_":  # what is overwritten is not read
                read = read[1:]
            size = sum(x.numel() * x.element_size() for x in (*read, *wrote))
            self.ops.append((name, size))
        return out

    @property
    def moved(self) -> int:
        """Bytes of all that is neither a product nor flash attention."""
        return sum(size for name, size in self.ops if not name.startswith(PRODUCTS))


class Autocast(TorchFunctionMode):
    """What torch.autocast does on CUDA with 16 bit, where there is none: pytorch/pytorch
    aten/src/ATen/autocast_mode.h (2.13), AT_FORALL_LOWER_PRECISION_FP and AT_FORALL_FP32, as far as
    the blocks go.  Parameters are cast once."""

    narrow = (nn.functional.linear, torch.matmul, torch.Tensor.matmul)
    wide = (nn.functional.layer_norm, torch.pow, torch.Tensor.pow, torch.rsqrt)

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, torch.Tensor] = {}

    def _narrowed(self, x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.dtype != torch.float32:
            return x
        if not isinstance(x, nn.Parameter):
            return x.to(torch.bfloat16)
        if id(x) not in self.known:
            self.known[id(x)] = x.to(torch.bfloat16)
        return self.known[id(x)]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.narrow or "flash" in str(func):
            args = [self._narrowed(x) for x in args]
        elif func in self.wide:
            args = [x.float() if isinstance(x, torch.Tensor) else x for x in args]
        return func(*args, **(kwargs or {}))


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * wide.to(x.dtype)


def scored(q: Any, k: Any, v: Any, mask: Any, drop: float) -> torch.Tensor:
    """Eager attention: scale, mask, softmax in 32 bit, cast, dropout, each by itself."""
    weights = torch.matmul(q, k.transpose(2, 3)) * q.shape[-1] ** -0.5
    weights = torch.where(mask, weights, -math.inf)
    weights = torch.ops.aten._softmax(weights, -1, weights.dtype != torch.float32)
    weights = weights.to(v.dtype)
    if drop:
        weights = torch.native_dropout(weights, drop, True)[0]
    return torch.matmul(weights, v).transpose(1, 2).contiguous()


def flashed(q: Any, k: Any, v: Any) -> torch.Tensor:
    found: Any = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)
    return found[0].transpose(1, 2)


class Llama(nn.Module):
    """A block with rotary positions, three products and a gated feed-forward part."""

    drop = 0.0

    def __init__(self, h: int, heads: int, kv_heads: int, f: int, mask: Any) -> None:
        super().__init__()
        self.heads, self.kv, self.d, self.mask = heads, kv_heads, h // heads, mask
        self.one, self.two = RMSNorm(h), RMSNorm(h)
        shapes = ((h, h), (h, kv_heads * self.d), (h, kv_heads * self.d), (h, h))
        self.q, self.k, self.v, self.o = (nn.Linear(*s, bias=False) for s in shapes)
        feed = ((h, f), (h, f), (f, h))
        self.gate, self.up, self.down = (nn.Linear(*s, bias=False) for s in feed)
        self.cos = self.sin = torch.empty(1, 1, 1, self.d, dtype=torch.bfloat16)

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        return x * self.cos + torch.cat((-x[..., half:], x[..., :half]), -1) * self.sin

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        y, (b, s, _) = self.one(x), x.shape
        q = self.q(y).view(b, s, self.heads, self.d).transpose(1, 2)
        k = self.k(y).view(b, s, self.kv, self.d).transpose(1, 2)
        v = self.v(y).view(b, s, self.kv, self.d).transpose(1, 2)
        q, k = self.turned(q), self.turned(k)
        out = flashed(q, k, v) if self.mask is None else scored(q, k, v, self.mask, 0.0)
        return x + self.o(out.reshape(b, s, -1))

    def feed(self, x: torch.Tensor) -> torch.Tensor:
        y = self.two(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Mixture(nn.Module):
    """The feed-forward half of a block with experts, with torch's grouped products
    (huggingface/transformers 5.23 integrations/moe.py, grouped_mm_experts_forward, and
    MixtralTopKRouter)."""

    def __init__(self, h: int, experts: int, chosen: int, m: int) -> None:
        super().__init__()
        self.experts, self.chosen = experts, chosen
        self.two, self.gate = RMSNorm(h), nn.Parameter(torch.empty(experts, h))
        self.up = nn.Parameter(torch.empty(experts, 2 * m, h))
        self.down = nn.Parameter(torch.empty(experts, h, m))

    def router(self, x: torch.Tensor) -> Any:
        y = self.two(x).view(-1, x.shape[-1])
        scores = torch.ops.aten._softmax(nn.functional.linear(y, self.gate), -1, True)
        top, index = torch.topk(scores, self.chosen, dim=-1)
        return y, top / top.sum(-1, keepdim=True), index

    def feed(self, x: torch.Tensor) -> torch.Tensor:
        y, top, index = self.router(x)
        ordered, order = torch.sort(index.reshape(-1))
        come, weights = y[order // self.chosen], top.reshape(-1)[order]
        counts = torch.histc(ordered.int(), bins=self.experts, min=0, max=self.experts - 1)
        ends = torch.cumsum(counts, 0, dtype=torch.int32)
        one, other = torch._grouped_mm(come, self.up.transpose(-2, -1), offs=ends).chunk(2, -1)
        made = nn.functional.silu(one) * other
        out = torch._grouped_mm(made, self.down.transpose(-2, -1), offs=ends)
        weighed, back = out * weights.unsqueeze(-1), torch.empty_like(order)
        back[order] = torch.arange(order.shape[0], device=order.device)
        found = weighed[back].view(-1, self.chosen, x.shape[-1]).sum(1).to(x.dtype)
        return x + found.view_as(x)


class Latent(nn.Module):
    """Attention of narrow widths, and experts that every token passes (transformers 5.23
    `modeling_deepseek_v3.py`); sizes are h, heads, q, c, n, r, v and f of the model, and `mask` is
    None for flash attention, whose meta kernel wants v = n + r."""

    def __init__(self, sizes: tuple[int, ...], mask: Any) -> None:
        super().__init__()
        h, self.heads, q, c, self.n, self.r, self.v, f = sizes
        self.c, self.mask, key = c, mask, self.heads * (self.n + self.r)
        shapes = ((q or h, key), (h, c + self.r), (c, self.heads * (self.n + self.v)))
        self.query, self.narrowed, self.widened = (nn.Linear(*s, bias=False) for s in shapes)
        self.first = nn.Sequential(nn.Linear(h, q, bias=False), RMSNorm(q)) if q else nn.Identity()
        self.one, self.two = RMSNorm(h), RMSNorm(c)
        self.o = nn.Linear(self.heads * self.v, h, bias=False)
        feed = ((h, f), (h, f), (f, h))
        self.gate, self.up, self.down = (nn.Linear(*s, bias=False) for s in feed)
        self.cos = self.sin = torch.empty(1, 1, 1, self.r // 2, dtype=torch.bfloat16)

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        one, two = x[..., 0::2], x[..., 1::2]
        parts = (one * self.cos - two * self.sin, two * self.cos + one * self.sin)
        return torch.cat(parts, dim=-1)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        y, (b, s, _) = self.one(x), x.shape
        q = self.query(self.first(y)).view(b, s, self.heads, -1).transpose(1, 2)
        plain, turned = q.split((self.n, self.r), -1)
        narrow, key = self.narrowed(y).split((self.c, self.r), -1)
        key = self.turned(key.view(b, 1, s, self.r)).expand(-1, self.heads, -1, -1)
        q = torch.cat((plain, self.turned(turned)), -1)
        wide = self.widened(self.two(narrow)).view(b, s, self.heads, -1).transpose(1, 2)
        plain, v = wide.split((self.n, self.v), -1)
        k = wide.new_empty(*wide.shape[:-1], self.n + self.r)
        k[..., : self.n].copy_(plain)
        k[..., self.n :].copy_(key)
        out = flashed(q, k, v) if self.mask is None else scored(q, k, v, self.mask, 0.0)
        return x + self.o(out.reshape(b, s, -1))

    def feed(self, x: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        return others + self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class GroupChoice(nn.Module):
    """The choice of experts among groups in 32 bit (DeepseekV3TopkRouter)."""

    def __init__(self, h: int, experts: int, chosen: int, groups: int) -> None:
        super().__init__()
        self.two, self.weight = RMSNorm(h), nn.Parameter(torch.empty(experts, h))
        self.chosen, self.groups = chosen, groups

    def feed(self, x: torch.Tensor) -> torch.Tensor:
        y = self.two(x).view(-1, x.shape[-1])
        scores = nn.functional.linear(y.float(), self.weight.float()).sigmoid()
        biased = scores + torch.empty(scores.shape[-1], device=scores.device)
        of_groups = biased.view(y.shape[0], self.groups, -1).topk(2, dim=-1)[0].sum(dim=-1)
        best = torch.topk(of_groups, k=self.groups // 2, dim=-1, sorted=False)[1]
        mask = torch.zeros_like(of_groups).scatter_(1, best, 1).unsqueeze(-1)
        mask = mask.expand(-1, -1, scores.shape[-1] // self.groups).reshape(scores.shape)
        index = torch.topk(biased.masked_fill(~mask.bool(), -math.inf), self.chosen, dim=-1)[1]
        weights = scores.gather(1, index)
        return weights / (weights.sum(-1, keepdim=True) + 1e-20) * 2.5


class Gpt2(nn.Module):
    """A block with one product for q, k and v, biases, dropout and `gelu_new`."""

    def __init__(self, h: int, heads: int, f: int, mask: Any, drop: float) -> None:
        super().__init__()
        self.heads, self.mask, self.drop = heads, mask, drop
        self.one, self.two = nn.LayerNorm(h), nn.LayerNorm(h)
        self.qkv, self.out = nn.Linear(h, 3 * h), nn.Linear(h, h)
        self.up, self.down = nn.Linear(h, f), nn.Linear(f, h)

    def dropped(self, x: torch.Tensor) -> torch.Tensor:
        return torch.native_dropout(x, self.drop, True)[0] if self.drop else x

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        b, s, h = x.shape
        parts = self.qkv(self.one(x)).split(h, 2)
        q, k, v = (t.view(b, s, self.heads, h // self.heads).transpose(1, 2) for t in parts)
        found = flashed(q, k, v) if self.mask is None else scored(q, k, v, self.mask, self.drop)
        return x + self.dropped(self.out(found.reshape(b, s, h)))

    def feed(self, x: torch.Tensor) -> torch.Tensor:
        y = self.up(self.two(x))
        inner = math.sqrt(2 / math.pi) * (y + 0.044715 * torch.pow(y, 3.0))
        return x + self.dropped(self.down(0.5 * y * (1.0 + torch.tanh(inner))))
