"""The models of `record_memory.py`: plain torch modules, and adapters beside their matrices.

torch.nn.functional.scaled_dot_product_attention is flash attention on CPU too.  Dropout is left
out: its fused kernel, which keeps one byte an element, is CUDA's alone.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    def __init__(self, m: dict[str, int]) -> None:
        super().__init__()
        self.heads, self.kv, self.gated = m["heads"], m["kv_heads"], m["family"] == "llama"
        self.size = m["hidden"] // m["heads"]
        self.causal = m["family"] != "bert"
        h, key = m["hidden"], self.size * self.kv
        if m["family"] == "gpt2":
            self.qkv = nn.Linear(h, 3 * h)
        else:
            self.q, self.k, self.v = (nn.Linear(h, n, bias=not self.gated) for n in (h, key, key))
        self.o = nn.Linear(h, h, bias=not self.gated)
        self.widths = (h, key, key)

    def forward(self, x: torch.Tensor, turn: torch.Tensor | None) -> torch.Tensor:
        parts = (
            self.qkv(x).split(self.widths, -1)
            if hasattr(self, "qkv")
            else (self.q(x), self.k(x), self.v(x))
        )
        q, k, v = (p.unflatten(-1, (-1, self.size)).transpose(1, 2) for p in parts)
        if turn is not None:
            cos, sin = turn.to(x.dtype).unbind()
            q, k = (t * cos + torch.cat((-t[..., 1::2], t[..., ::2]), -1) * sin for t in (q, k))
        out = functional.scaled_dot_product_attention(
            q, k, v, is_causal=self.causal, enable_gqa=self.kv != self.heads
        )
        return self.o(out.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, m: dict[str, int]) -> None:
        super().__init__()
        h, f, gated = m["hidden"], m["feed_forward"], m["family"] == "llama"
        self.up, self.down = nn.Linear(h, f, bias=not gated), nn.Linear(f, h, bias=not gated)
        self.gate = nn.Linear(h, f, bias=False) if gated else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.gate is None:
            return self.down(functional.gelu(self.up(x)))
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, m: dict[str, int]) -> None:
        super().__init__()
        norm = nn.RMSNorm if m["family"] == "llama" else nn.LayerNorm
        self.first, self.second = norm(m["hidden"]), norm(m["hidden"])
        self.attention, self.mlp = Attention(m), Mlp(m)
        self.behind = m["family"] == "bert"

    def forward(self, x: torch.Tensor, turn: torch.Tensor | None) -> torch.Tensor:
        if self.behind:
            x = self.first(x + self.attention(x, turn))
            return self.second(x + self.mlp(x))
        x = x + self.attention(self.first(x), turn)
        return x + self.mlp(self.second(x))


class Language(nn.Module):
    """A small transformer: gpt2 (learned positions, tied head) or llama (gated, rotary)."""

    def __init__(self, m: dict[str, Any]) -> None:
        super().__init__()
        h, llama = m["hidden"], m["family"] == "llama"
        self.tokens = nn.Embedding(m["vocabulary"], h)
        self.places = None if llama else nn.Embedding(max(1024, m["sequence_length"]), h)
        self.blocks = nn.ModuleList(Block(m) for _ in range(m["blocks"]))
        self.norm = (nn.RMSNorm if llama else nn.LayerNorm)(h)
        self.head = nn.Linear(h, m["vocabulary"], bias=False)
        if not llama:
            self.head.weight = self.tokens.weight
        self.llama, self.turn = llama, (2, m["sequence_length"], h // m["heads"])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids)
        turn = None
        if self.places is not None:
            x = x + self.places(torch.arange(ids.shape[1]))
        else:
            turn = torch.ones(self.turn)
        for block in self.blocks:
            x = block(x, turn)
        return self.head(self.norm(x))


class Bottleneck(nn.Module):
    def __init__(self, read: int, width: int, stride: int) -> None:
        super().__init__()
        sizes = ((read, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1))
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, k, s, k // 2, bias=False) for a, b, k, s in sizes
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for _, b, _, _ in sizes)
        self.short = None
        if stride > 1 or read != 4 * width:
            conv = nn.Conv2d(read, 4 * width, 1, stride, bias=False)
            self.short = nn.Sequential(conv, nn.BatchNorm2d(4 * width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for k, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            y = norm(conv(y))
            if k < 2:
                y = functional.relu_(y)
        return functional.relu_(y + (x if self.short is None else self.short(x)))


class ResNet50(nn.Module):
    """He et al. 2015, with torchvision's strides and in-place ReLUs."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64))
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks, read = nn.ModuleList(), 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for k in range(count):
                self.blocks.append(Bottleneck(read, width, stride if k == 0 else 1))
                read = 4 * width
        self.head = nn.Linear(2048, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(functional.relu_(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


# -- adapters -------------------------------------------------------------------------------------


class Unpacked(torch.autograd.Function):
    """A product with a matrix that is stored in few bytes: it is unpacked, in either pass."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, packed: torch.Tensor, shape: Any) -> torch.Tensor:
        ctx.save_for_backward(packed)
        ctx.shape = shape
        return functional.linear(x, x.new_zeros(shape))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient @ gradient.new_zeros(ctx.shape), None, None


class Adapted(nn.Module):
    """A frozen linear layer, packed into so many bytes an element or as it is, and its adapter."""

    def __init__(self, base: nn.Linear, rank: int, packed: float | None) -> None:
        super().__init__()
        self.shape, self.packed = tuple(base.weight.shape), packed is not None
        stored = base.weight.detach()
        if packed is not None:
            stored = torch.zeros(round(packed * base.weight.numel()), dtype=torch.uint8)
        self.base = nn.Parameter(stored, requires_grad=False)
        low = {"bias": False, "dtype": base.weight.dtype}
        self.lora_A = nn.Linear(self.shape[1], rank, **low)
        self.lora_B = nn.Linear(rank, self.shape[0], **low)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.packed:
            out = Unpacked.apply(x, self.base, self.shape)
        else:
            out = functional.linear(x, self.base)
        return out + self.lora_B(self.lora_A(x)) * 2.0


def adapted(model: nn.Module, adapters: dict[str, Any]) -> None:
    """Freeze a model, and put adapters beside the matrices of its blocks."""
    model.requires_grad_(False)
    for block in model.blocks:
        for name, module in list(block.named_modules()):
            if isinstance(module, nn.Linear):
                parent, _, leaf = name.rpartition(".")
                made = Adapted(module, adapters["rank"], adapters.get("bytes"))
                setattr(block.get_submodule(parent), leaf, made)
