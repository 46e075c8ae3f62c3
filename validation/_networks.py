"""Four networks in plain torch, so that no other package is needed.

Their layers are modules of class `Layer`, and have the names and the parameters of dpsim's layers:
a convolution with its normalisation and activation, an attention or MLP block with its norm and
residual.  Nothing works in place, because backward hooks do not allow it.

Shapes: He et al. 2015 (ResNet-50, stride on the 3x3 as torchvision does), Simonyan and Zisserman
2014 (VGG-16), Devlin et al. 2018 (BERT-base with pooler), Touvron et al. 2023 (Llama).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

NAMES = ("resnet50", "vgg", "bert", "llama")


@dataclass(frozen=True)
class Llama:
    width: int
    inner: int
    layers: int
    heads: int
    key_heads: int
    vocabulary: int
    tied: bool


LLAMAS = {
    "160m": Llama(768, 3072, 12, 12, 12, 32_000, tied=False),  # huggingface JackFram/llama-160m
    "1b": Llama(2048, 8192, 16, 32, 8, 128_256, tied=True),  # huggingface meta-llama/Llama-3.2-1B
    "tiny": Llama(64, 128, 2, 4, 2, 256, tied=False),
}


class Layer(nn.Module):
    """One layer as dpsim counts them: what the hooks of measure_ddp.py time."""


# -- images ---------------------------------------------------------------------------------------


class Convolution(Layer):
    """Convolution, batch norm if wanted, sum with a second branch if given, ReLU if wanted."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int = 1, *, norm: bool, relu: bool
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=not norm)
        self.norm = nn.BatchNorm2d(outputs) if norm else None
        self.relu = relu

    def forward(self, x: Tensor, beside: Tensor | None = None) -> Tensor:
        y = self.conv(x)
        y = y if self.norm is None else self.norm(y)
        y = y if beside is None else y + beside
        return functional.relu(y) if self.relu else y


class MaxPool(Layer):
    def __init__(self, kernel: int, stride: int, padding: int = 0) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(kernel, stride, padding)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(x)


class AveragePool(Layer):
    def __init__(self, side: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(side)

    def forward(self, x: Tensor) -> Tensor:
        return torch.flatten(self.pool(x), 1)


class Dense(Layer):
    """Linear, then ReLU and dropout where wanted."""

    def __init__(self, inputs: int, outputs: int, *, relu: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return functional.dropout(functional.relu(y), 0.5, self.training) if self.relu else y


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1 = Convolution(inputs, width, 1, norm=True, relu=True)
        self.conv2 = Convolution(width, width, 3, stride, norm=True, relu=True)
        self.conv3 = Convolution(width, outputs, 1, norm=True, relu=True)
        self.downsample = (
            nn.Sequential(Convolution(inputs, outputs, 1, stride, norm=True, relu=False))
            if stride != 1 or inputs != outputs
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(self.conv1(x))
        return self.conv3(y, x if self.downsample is None else self.downsample(x))


class ResNet(nn.Module):
    def __init__(self, width: int, blocks: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.conv1 = Convolution(3, width, 7, 2, norm=True, relu=True)
        self.maxpool = MaxPool(3, 2, 1)
        inputs = width
        for stage, count in enumerate(blocks):
            wide = width * 2**stage
            made = []
            for block in range(count):
                made.append(Bottleneck(inputs, wide, 2 if stage and not block else 1))
                inputs = 4 * wide
            self.add_module(f"layer{stage + 1}", nn.Sequential(*made))
        self.avgpool = AveragePool(1)
        self.fc = Dense(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.children():
            x = layer(x)
        return x


class Vgg(nn.Module):
    """The convolutions' numbers are torchvision's, where a ReLU counts as a module too."""

    def __init__(self, widths: tuple[tuple[int, int], ...], dense: int, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential()
        number, inputs = 0, 3
        for width, count in widths:
            for _ in range(count):
                made = Convolution(inputs, width, 3, norm=False, relu=True)
                self.features.add_module(str(number), made)
                number, inputs = number + 2, width
            self.features.add_module(str(number), MaxPool(2, 2))
            number += 1
        self.avgpool = AveragePool(7)
        self.classifier = nn.Sequential()
        self.classifier.add_module("0", Dense(inputs * 49, dense, relu=True))
        self.classifier.add_module("3", Dense(dense, dense, relu=True))
        self.classifier.add_module("6", Dense(dense, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)))


# -- text -----------------------------------------------------------------------------------------


def heads(x: Tensor, count: int) -> Tensor:
    batch, length, width = x.shape
    return x.view(batch, length, count, width // count).transpose(1, 2)


class BertEmbeddings(Layer):
    def __init__(self, width: int, vocabulary: int, length: int) -> None:
        super().__init__()
        self.word = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(length, width)
        self.kind = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.word(tokens) + self.position(places) + self.kind(torch.zeros_like(tokens))
        return functional.dropout(self.norm(x), 0.1, self.training)


class BertAttention(Layer):
    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.norm = nn.LayerNorm(width)
        self.count = count

    def forward(self, x: Tensor) -> Tensor:
        parts = (heads(made(x), self.count) for made in (self.query, self.key, self.value))
        y = functional.scaled_dot_product_attention(*parts, dropout_p=0.1 * self.training)
        y = self.output(y.transpose(1, 2).flatten(2))
        return self.norm(x + functional.dropout(y, 0.1, self.training))


class BertMlp(Layer):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.down(functional.gelu(self.up(x)))
        return self.norm(x + functional.dropout(y, 0.1, self.training))


class Pooler(Layer):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.dense(x[:, 0]))


class Bert(nn.Module):
    def __init__(self, width: int, layers: int, count: int, vocabulary: int, length: int) -> None:
        super().__init__()
        self.embeddings = BertEmbeddings(width, vocabulary, length)
        blocks = [
            nn.ModuleDict(
                {"attention": BertAttention(width, count), "mlp": BertMlp(width, 4 * width)}
            )
            for _ in range(layers)
        ]
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(blocks)})
        self.pooler = Pooler(width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embeddings(tokens)
        for block in self.encoder["layer"]:
            x = block["mlp"](block["attention"](x))
        return self.pooler(x)


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)
        return (x.float() * scale).to(x.dtype) * self.weight


class Embedding(Layer):
    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocabulary, width) * 0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        return functional.embedding(tokens, self.weight)


class LlamaAttention(Layer):
    def __init__(self, shape: Llama) -> None:
        super().__init__()
        self.shape = shape
        side = shape.width // shape.heads
        self.norm = RmsNorm(shape.width)
        self.query = nn.Linear(shape.width, shape.width, bias=False)
        self.key = nn.Linear(shape.width, side * shape.key_heads, bias=False)
        self.value = nn.Linear(shape.width, side * shape.key_heads, bias=False)
        self.output = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        shape, y = self.shape, self.norm(x)
        query = rotate(heads(self.query(y), shape.heads), turn)
        key = rotate(heads(self.key(y), shape.key_heads), turn)
        value = heads(self.value(y), shape.key_heads)
        group = shape.heads // shape.key_heads
        key, value = (part.repeat_interleave(group, 1) for part in (key, value))
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return x + self.output(y.transpose(1, 2).flatten(2))


class LlamaMlp(Layer):
    def __init__(self, shape: Llama) -> None:
        super().__init__()
        self.norm = RmsNorm(shape.width)
        self.gate = nn.Linear(shape.width, shape.inner, bias=False)
        self.up = nn.Linear(shape.width, shape.inner, bias=False)
        self.down = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class FinalNorm(Layer):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = RmsNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


class Head(Layer):
    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight)


class LlamaModel(nn.Module):
    def __init__(self, shape: Llama) -> None:
        super().__init__()
        self.side = shape.width // shape.heads
        self.embed_tokens = Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(
            nn.ModuleDict({"attention": LlamaAttention(shape), "mlp": LlamaMlp(shape)})
            for _ in range(shape.layers)
        )
        self.norm = FinalNorm(shape.width)
        own = nn.Parameter(torch.randn(shape.vocabulary, shape.width) * 0.02)
        self.lm_head = Head(self.embed_tokens.weight if shape.tied else own)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed_tokens(tokens)
        turn = turns(tokens.shape[1], self.side, x.device)
        for block in self.layers:
            x = block["mlp"](block["attention"](x, turn))
        return self.lm_head(self.norm(x))


def turns(length: int, side: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines of rotary positions (Su et al. 2021)."""
    rates = 1e4 ** (-torch.arange(0, side, 2, device=device) / side)
    angles = torch.outer(torch.arange(length, device=device), rates).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * turn[0].to(x.dtype) + torch.cat((-second, first), -1) * turn[1].to(x.dtype)


# -- all four -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Network:
    """A model with its synthetic input; `sample` is what its batch counts."""

    name: str
    module: nn.Module
    shape: tuple[int, ...]
    sample: str
    classes: int

    def batch(self, count: int, device: torch.device) -> tuple[Tensor, Tensor | None]:
        """Random input on the device, and the answers to compare with, if there are any."""
        if self.sample == "image":
            answers = torch.randint(self.classes, (count,), device=device)
            return torch.randn(count, *self.shape, device=device), answers
        tokens = torch.randint(self.classes, (count, *self.shape), device=device)
        return tokens, tokens if self.name == "llama" else None

    def loss(self, module: nn.Module, batch: tuple[Tensor, Tensor | None]) -> Tensor:
        """Cross entropy, of the next token for Llama; mean square for BERT, which has no head."""
        found, answers = module(batch[0]), batch[1]
        if answers is None:
            return found.float().pow(2).mean()
        if answers.dim() == 2:
            found, answers = found[:, :-1].flatten(0, 1), answers[:, 1:].flatten()
        return functional.cross_entropy(found.float(), answers)


def network(name: str, *, tiny: bool, llama_size: str, sequence: int) -> Network:
    """One of NAMES, on the CPU.  `sequence` is the number of tokens of BERT and Llama."""
    torch.manual_seed(0)
    made: dict[str, Any] = {"name": name}
    if name == "resnet50":
        module = ResNet(8, (1, 1, 1, 1), 10) if tiny else ResNet(64, (3, 4, 6, 3), 1000)
        side = 64 if tiny else 224
        return Network(**made, module=module, shape=(3, side, side), sample="image",
                       classes=10 if tiny else 1000)  # fmt: skip
    if name == "vgg":
        full = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
        module = Vgg(((8, 1), (16, 1)), 64, 10) if tiny else Vgg(full, 4096, 1000)
        side = 32 if tiny else 224
        return Network(**made, module=module, shape=(3, side, side), sample="image",
                       classes=10 if tiny else 1000)  # fmt: skip
    length = 16 if tiny else sequence
    if name == "bert":
        module = Bert(64, 2, 4, 256, 64) if tiny else Bert(768, 12, 12, 30_522, max(512, length))
        words = 256 if tiny else 30_522
        return Network(**made, module=module, shape=(length,), sample="sequence", classes=words)
    shape = LLAMAS["tiny" if tiny else llama_size]
    return Network(**made, module=LlamaModel(shape), shape=(length,), sample="sequence",
                   classes=shape.vocabulary)  # fmt: skip
