"""A small U-Net with cross-attention, written anew from the blocks that diffusers documents."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.functional import silu as act


class Residual(nn.Module):
    def __init__(self, read: int, width: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, read), nn.Conv2d(read, width, 3, 1, 1)
        self.time_emb_proj, self.norm2 = nn.Linear(128, width), nn.GroupNorm(8, width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1)
        self.conv_shortcut = nn.Conv2d(read, width, 1) if read != width else nn.Identity()

    def forward(self, x: Any, time: Any) -> Any:
        y = self.conv1(act(self.norm1(x))) + self.time_emb_proj(act(time))[:, :, None, None]
        return self.conv_shortcut(x) + self.conv2(act(self.norm2(y)))


class Attention(nn.Module):
    def __init__(self, c: int, context: int) -> None:
        super().__init__()
        self.to_q = nn.Linear(c, c, bias=False)
        self.to_k, self.to_v = (nn.Linear(context, c, bias=False) for _ in range(2))
        self.to_out = nn.Sequential(nn.Linear(c, c))

    def forward(self, x: Any, y: Any) -> Any:
        q, k, v = (
            f(z).unflatten(2, (4, -1)).transpose(1, 2)
            for f, z in ((self.to_q, x), (self.to_k, y), (self.to_v, y))
        )
        heads = torch.softmax(q @ k.transpose(2, 3), 3) @ v
        return self.to_out(heads.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.norm1, self.attn1 = nn.LayerNorm(c), Attention(c, c)
        self.norm2, self.attn2 = nn.LayerNorm(c), Attention(c, 48)
        self.norm3, self.ff = nn.LayerNorm(c), nn.Module()
        self.ff.net = nn.ModuleDict()
        self.ff.net["0"], self.ff.net["2"] = nn.Module(), nn.Linear(4 * c, c)
        self.ff.net["0"].proj = nn.Linear(c, 8 * c)

    def forward(self, x: Any, prompt: Any) -> Any:
        y = self.norm1(x)
        x = x + self.attn1(y, y)
        x = x + self.attn2(self.norm2(x), prompt)
        a, b = self.ff.net["0"].proj(self.norm3(x)).chunk(2, 2)
        return x + self.ff.net["2"](a * torch.nn.functional.gelu(b))


class Transformer(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.norm, self.proj_in = nn.GroupNorm(8, c), nn.Conv2d(c, c, 1)
        self.transformer_blocks = nn.ModuleList([Block(c)])
        self.proj_out = nn.Conv2d(c, c, 1)

    def forward(self, x: Any, prompt: Any) -> Any:
        y = self.proj_in(self.norm(x))
        y = self.transformer_blocks[0](y.flatten(2).transpose(1, 2), prompt)
        return x + self.proj_out(y.transpose(1, 2).reshape(x.shape))


class Stage(nn.Module):
    def __init__(self, reads: list[int], width: int, crossed: bool, resized: str) -> None:
        super().__init__()
        if crossed:
            self.attentions = nn.ModuleList([Transformer(width) for _ in reads])
        self.resnets = nn.ModuleList([Residual(read, width) for read in reads])
        if resized:
            conv = nn.Module()
            conv.conv = nn.Conv2d(width, width, 3, 2 if resized == "downsamplers" else 1, 1)
            setattr(self, resized, nn.ModuleList([conv]))

    def step(self, number: int, x: Any, time: Any, prompt: Any) -> Any:
        x = self.resnets[number](x, time)
        return self.attentions[number](x, prompt) if hasattr(self, "attentions") else x


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv_in, self.time_embedding = nn.Conv2d(4, 32, 3, 1, 1), nn.Module()
        self.time_embedding.linear_1 = nn.Linear(32, 128)
        self.time_embedding.linear_2 = nn.Linear(128, 128)
        down = [Stage([32], 32, True, "downsamplers"), Stage([32], 64, False, "")]
        self.down_blocks = nn.ModuleList(down)
        up = [Stage([128, 96], 64, False, "upsamplers"), Stage([96, 64], 32, True, "")]
        self.up_blocks, self.mid_block = nn.ModuleList(up), Stage([64, 64], 64, False, "")
        self.mid_block.attentions = nn.ModuleList([Transformer(64)])
        self.mid_block._modules["resnets"] = self.mid_block._modules.pop("resnets")
        self.conv_norm_out, self.conv_out = nn.GroupNorm(8, 32), nn.Conv2d(32, 4, 3, 1, 1)

    def forward(self, x: Any, time: Any, prompt: Any) -> Any:
        time = self.time_embedding.linear_2(act(self.time_embedding.linear_1(time)))
        x = self.conv_in(x)
        skips = [x]
        x = self.down_blocks[0].step(0, x, time, prompt)
        skips.append(x)
        x = self.down_blocks[0].downsamplers[0].conv(x)
        skips.append(x)
        x = self.down_blocks[1].step(0, x, time, prompt)
        skips.append(x)
        mid = self.mid_block
        x = mid.resnets[1](mid.attentions[0](mid.resnets[0](x, time), prompt), time)
        for stage in self.up_blocks:
            for number in range(2):
                x = stage.step(number, torch.cat([x, skips.pop()], 1), time, prompt)
            if hasattr(stage, "upsamplers"):
                larger = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
                x = stage.upsamplers[0].conv(larger)
        return self.conv_out(act(self.conv_norm_out(x)))
