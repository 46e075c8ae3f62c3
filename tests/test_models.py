"""What models promise: exact parameters, FLOP by the published counts, refusals by name.

Expected parameter counts of bundled files are those that the published formulas give (GPT-2:
Vh + Ph + L(12h^2 + 13h) + 2h, …), and where a vendor states a count, the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import dpsim.models
from dpsim.core.plugins import find, names
from dpsim.core.record import Refused, build
from dpsim.models import Model
from dpsim.models.architectures.resnet50 import ResNet50
from dpsim.models.architectures.transformer import Transformer
from dpsim.models.architectures.vgg16 import VGG16
from dpsim.models.huggingface import read_config, takes_length
from dpsim.models.image_layers import linear

CONFIGS = Path(dpsim.models.__file__).parent / "configs"

COUNTS = {
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "bert-base-uncased": 109_482_240,
    "bert-large": 335_141_888,
    "gpt3-175b": 174_615_846_912,
    "llama-2-7b": 6_738_415_616,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b-tied": 1_235_814_400,
    "mistral-7b-v0.1": 7_241_732_096,
    "qwen2-7b": 7_615_616_512,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-1b": 999_885_952,
    "gemma-3-4b": 3_880_263_168,
    "gemma-3-27b": 27_009_346_304,
    "olmo-2-1b": 1_484_916_736,
    "olmo-2-7b": 7_298_617_344,
    "olmo-2-13b": 13_716_198_400,
    "olmo-2-32b": 32_234_279_936,
    "olmo-3-7b": 7_298_011_136,
    "smollm3-3b": 3_075_098_624,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200,
    "pythia-70m": 70_426_624,
    "pythia-160m": 162_322_944,
    "pythia-410m": 405_334_016,
    "pythia-1b": 1_011_781_632,
    "pythia-1.4b": 1_414_647_808,
    "pythia-2.8b": 2_775_208_960,
    "pythia-6.9b": 6_857_302_016,
    "pythia-12b": 11_846_072_320,
    "opt-125m": 125_239_296,
    "opt-2.7b": 2_651_596_800,
    "opt-6.7b": 6_658_473_984,
    "opt-13b": 12_853_473_280,
    "opt-30b": 29_974_540_288,
    "opt-66b": 65_719_701_504,
    "bloom-560m": 559_214_592,
    "bloom-1b1": 1_065_314_304,
    "bloom-1b7": 1_722_408_960,
    "bloom-3b": 3_002_557_440,
    "bloom-7b1": 7_069_016_064,
    "whisper-tiny": 37_184_640,
    "whisper-base": 71_825_920,
    "whisper-small": 240_582_912,
    "whisper-medium": 762_321_920,
    "whisper-large-v3": 1_541_570_560,
    "t5-3b": 2_851_598_336,
    "t5-v1_1-small": 76_961_152,
    "t5-v1_1-base": 247_577_856,
    "t5-v1_1-large": 783_150_080,
    "t5-v1_1-xl": 2_849_757_184,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "mixtral-8x7b-v0.1": 46_702_792_704,
    "qwen3-30b-a3b": 30_532_122_624,
    "nemotron-3-nano-30b-a3b": 31_577_937_344,
    "deepseek-v3": 671_026_419_200,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "qwen3-235b-a22b": 235_093_634_560,
    "mixtral-8x22b-v0.1": 140_620_634_112,
    "kimi-k2": 1_026_408_232_448,
    "gemma-4-26b-a4b": 25_233_141_760,
    "dbrx": 131_596_523_520,
    "olmoe-1b-7b": 6_919_161_856,
    "grok-1": 315_684_034_560,
    "falcon-40b": 41_303_293_952,
    "t5-v1_1-xxl": 11_135_332_352,
    "opt-1.3b": 1_315_758_080,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-11b": 11_307_321_344,
    "falcon-7b": 6_921_720_704,
    "bloom": 176_247_271_424,
    "gpt-j-6b": 6_050_882_784,
    "gpt-neox-20b": 20_554_567_680,
    "bart-large": 406_291_456,
    "roberta-large": 355_359_744,
    "whisper-large-v2": 1_541_384_960,
    "vit-base-patch16-224": 86_567_656,
    "clip-vit-large-patch14": 427_616_513,
    "stable-diffusion-v1.5": 859_520_964,
    "stable-diffusion-v2.1": 865_910_724,
    "stable-diffusion-xl": 2_567_463_684,
    "stable-diffusion-3-medium": 2_028_328_000,
    "flux.1-dev": 11_901_408_320,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "llama-3.2-3b": 3_212_749_824,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
}

GPT2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 32,
        "vocab_size": 100}  # fmt: skip
LLAMA = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 100}  # fmt: skip
BERT = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 256, "vocab_size": 100, "type_vocab_size": 2,
        "max_position_embeddings": 32}  # fmt: skip
OPT = {"model_type": "opt", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
       "ffn_dim": 256, "vocab_size": 100, "max_position_embeddings": 32}  # fmt: skip
GEMMA2 = {**LLAMA, "model_type": "gemma2", "num_key_value_heads": 2, "head_dim": 32}
PHI3 = {**LLAMA, "model_type": "phi3"}


def bundled(name: str, tokens: int = 512) -> Model:
    data = json.loads((CONFIGS / f"{name}.json").read_text())
    stated = tokens if takes_length(data) else None
    return read_config(data, sequence_length=stated, name=name)


def read(data: dict[str, Any], tokens: int = 32, **changes: Any) -> Model:
    return read_config({**data, **changes}, sequence_length=tokens, name="m")


def forward(model: Model) -> float:
    return sum(layer.forward_flop for layer in model.layers)


# Image networks


def test_image_networks_are_found_by_their_file_names() -> None:
    assert {"resnet50", "vgg16"} <= set(names("models"))
    assert find("models", "resnet50") is ResNet50
    assert not any(name.startswith("_") for name in names("models"))


def test_resnet50_counts() -> None:
    model = ResNet50().model()
    assert model.parameters == 25_557_032
    assert forward(model) == pytest.approx(8.178e9, rel=1e-3)  # 4.09 G multiply-adds
    assert model.buffers == (("fp32", 53_120), ("int64", 53))
    assert (model.sample, model.tokens) == ("image", 1)
    assert sum(len(layer.tensors) for layer in model.layers) == 161


def test_a_linear_layer_moves_what_follows_it_too() -> None:
    """ReLU reads and writes its output; dropout reads one, writes another, and its mask."""
    plain, relu, both = (
        linear("x", 100, 10, relu=r, dropout=d)
        for r, d in ((False, False), (True, False), (True, True))
    )
    moved = [layer.forward_bytes for layer in (plain, relu, both)]
    assert moved == [110, 130, 160]
    assert [layer.activations for layer in (plain, relu, both)] == [10, 10, 30]


def test_vgg16_counts() -> None:
    model = VGG16().model()
    assert model.parameters == 138_357_544
    assert forward(model) == 2 * 15_470_264_320
    assert model.layers[-1].parameters == 4_097_000
    assert sum(len(layer.tensors) for layer in model.layers) == 32


def test_first_layer_computes_no_input_gradient() -> None:
    for architecture in (ResNet50(), VGG16()):
        first, *rest = architecture.model().layers
        assert first.backward_flop == first.forward_flop > 0
        assert all(layer.backward_flop == 2 * layer.forward_flop for layer in rest)


def test_shortcut_runs_after_the_main_branch_and_is_ready_before_it() -> None:
    model = ResNet50().model()
    index = {layer.name: i for i, layer in enumerate(model.layers)}
    backward = list(model.backward_order())
    assert backward == list(reversed(model.forward_order))
    shortcut, main = index["layer2.0.downsample.0"], index["layer2.0.conv3"]
    assert backward.index(shortcut) < backward.index(main)
    assert model.layers[main + 1].tensors[1].name == "layer2.0.downsample.1.weight"


def test_stride_stands_on_the_wide_convolution() -> None:
    layers = {layer.name: layer for layer in ResNet50().model().layers}
    assert layers["layer2.0.conv1"].output == 128 * 56 * 56
    assert layers["layer2.0.conv2"].output == 128 * 28 * 28


def test_image_fields() -> None:
    assert build(ResNet50, {"classes": 10}).model().parameters == 25_557_032 - 990 * 2049
    large, usual = build(VGG16, {"image_size": 448}).model(), VGG16().model()
    assert large.parameters == usual.parameters
    for big, small in zip(large.layers, usual.layers, strict=True):
        factor = 1 if small.name.startswith("classifier") else 4
        assert big.forward_flop == factor * small.forward_flop
    for bad in ({"image_size": 0}, {"image_size": 224.0}, {"classes": -1}, {"depth": 50}):
        with pytest.raises(Refused):
            build(ResNet50, bad)


def torch_resnet50(nn: Any) -> Any:
    """ResNet-50 v1.5 written anew from the paper's table, as modules in the usual order."""

    class Bottleneck(nn.Module):  # type: ignore[misc]
        def __init__(self, inputs: int, width: int, stride: int) -> None:
            super().__init__()
            outputs = 4 * width
            self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(width)
            self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
            if stride != 1 or inputs != outputs:
                projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
                self.downsample = nn.Sequential(projection, nn.BatchNorm2d(outputs))

        def forward(self, x: Any) -> Any:
            y = self.bn1(self.conv1(x)).relu()
            y = self.bn3(self.conv3(self.bn2(self.conv2(y)).relu()))
            return (y + (self.downsample(x) if hasattr(self, "downsample") else x)).relu()

    net = nn.Sequential()
    net.add_module("conv1", nn.Conv2d(3, 64, 7, 2, 3, bias=False))
    net.add_module("bn1", nn.BatchNorm2d(64))
    net.add_module("relu", nn.ReLU())
    net.add_module("maxpool", nn.MaxPool2d(3, 2, 1))
    inputs = 64
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), start=1):
        parts = nn.Sequential()
        for block in range(blocks):
            parts.append(Bottleneck(inputs, width, 2 if stage > 1 and block == 0 else 1))
            inputs = 4 * width
        net.add_module(f"layer{stage}", parts)
    net.add_module("avgpool", nn.AdaptiveAvgPool2d(1))
    net.add_module("flatten", nn.Flatten())
    net.add_module("fc", nn.Linear(2048, 1000))
    return net


def test_resnet50_agrees_with_torch() -> None:
    torch = pytest.importorskip("torch")
    counter = pytest.importorskip("torch.utils.flop_counter").FlopCounterMode(display=False)
    model = ResNet50().model()
    with torch.device("meta"):
        net = torch_resnet50(torch.nn)
        with counter:
            net(torch.empty(1, 3, 224, 224)).sum().backward()
    theirs = [(name, tuple(p.shape)) for name, p in net.named_parameters()]
    assert [t[:2] for layer in model.layers for t in layer.tensors] == theirs
    assert counter.get_total_flops() == model.flop_per_sample()
    buffers = list(net.buffers())
    assert sum(b.numel() for b in buffers if b.dtype == torch.float32) == 53_120
    assert sum(b.numel() for b in buffers if b.dtype == torch.int64) == 53


# Hugging Face configurations


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_bundled_configuration_counts(name: str) -> None:
    model = bundled(name)
    assert model.parameters == COUNTS[name]
    assert model.parameters == sum(t.elements for layer in model.layers for t in layer.tensors)
    assert (model.sample, model.tokens) in (("sequence", 512), ("sequence", 448), ("image", 1))
    tensors = [tensor.name for layer in model.layers for tensor in layer.tensors]
    assert len(set(tensors)) == len(tensors)


def test_every_bundled_file_is_counted_and_has_a_source() -> None:
    assert {path.stem for path in CONFIGS.glob("*.json")} == set(COUNTS)
    sources = (CONFIGS / "SOURCES.md").read_text()
    for name, count in COUNTS.items():
        row = next(line for line in sources.splitlines() if f"`{name}.json`" in line)
        assert f"{count:,}" in row


def test_small_families_by_formula() -> None:
    h, f, layers, v = 64, 96, 2, 100
    llama = 2 * v * h + layers * (4 * h * h + 3 * h * f + 2 * h) + h
    assert read(LLAMA).parameters == llama
    assert read(PHI3).parameters == llama
    assert read(LLAMA, attention_bias=True, mlp_bias=True).parameters == llama + layers * (
        5 * h + 2 * f
    )
    gemma2 = v * h + layers * (2 * h * 128 + 2 * h * 64 + 3 * h * f + 4 * h) + h
    assert read(GEMMA2).parameters == gemma2
    block = 4 * (h * h + h) + 2 * h * 256 + 256 + h + 4 * h
    assert read(OPT).parameters == v * h + 34 * h + layers * block + 2 * h
    narrow = read(OPT, word_embed_proj_dim=16).parameters
    assert narrow == v * 16 + 34 * h + layers * block + 2 * h + 2 * 16 * h


def test_opt_registers_its_final_norm_first_and_runs_it_last() -> None:
    model = read(OPT)
    assert model.layers[1].name == "decoder.final_layer_norm"
    assert model.forward_order == (0, 2, 3, 4, 5, 1, 6)


def test_bert_without_model_type() -> None:
    assert read(BERT).parameters == read(BERT, model_type="bert").parameters


def test_tied_head_is_counted_once_but_works() -> None:
    tied, untied = read(LLAMA, tie_word_embeddings=True), read(LLAMA, tie_word_embeddings=False)
    assert untied.parameters - tied.parameters == 100 * 64
    head = tied.layers[-1]
    assert (head.tied, head.tensors) == (tied.layers[0].name, ())
    assert tied.layers[0].tensors[0].shape == (100, 64)
    assert head.forward_flop == untied.layers[-1].forward_flop == 2 * 64 * 100 * 32
    assert tied.ready_after()[0] == 0  # the embedding's backward runs after the head's
    assert untied.layers[-1].tied is None


def test_blocks_are_two_layers_of_one_unit() -> None:
    model = read(GPT2)
    assert [(layer.name, layer.unit) for layer in model.layers] == [
        ("wte", ""),
        ("h.0.attention", "h.0"),
        ("h.0.mlp", "h.0"),
        ("h.1.attention", "h.1"),
        ("h.1.mlp", "h.1"),
        ("ln_f", ""),
        ("lm_head", ""),
    ]
    assert list(model.backward_order()) == [6, 5, 4, 3, 2, 1, 0]


def test_tensors_stand_in_registration_order() -> None:
    llama = read(LLAMA).layers[1:3]
    assert [t.name.removeprefix("layers.0.") for layer in llama for t in layer.tensors] == [
        "self_attn.q_proj.weight",
        "self_attn.k_proj.weight",
        "self_attn.v_proj.weight",
        "self_attn.o_proj.weight",
        "input_layernorm.weight",
        "mlp.gate_proj.weight",
        "mlp.up_proj.weight",
        "mlp.down_proj.weight",
        "post_attention_layernorm.weight",
    ]
    assert read(GPT2).layers[1].tensors[2][:2] == ("h.0.attn.c_attn.weight", (64, 192))
    phi3 = [t.name.split(".")[-2] for t in read(PHI3).layers[1].tensors]
    assert phi3 == ["o_proj", "qkv_proj", "input_layernorm"]


def test_flop_of_a_block() -> None:
    s, h = 32, 64
    first, second = read(GPT2).layers[1:3]
    assert first.forward_flop == 2 * s * 4 * h * h + 2 * s * s * h  # causal: half of s^2
    assert second.forward_flop == 2 * s * 8 * h * h
    assert first.backward_flop == 2 * first.forward_flop
    encoder = read(BERT).layers[1]
    assert encoder.forward_flop == 2 * s * 4 * h * h + 4 * s * s * h  # all of s^2


def test_flop_is_about_six_per_parameter_and_token() -> None:
    model = bundled("llama-2-7b", 4096)
    embedding = 32_000 * 4096
    dense = 6 * (model.parameters - embedding) * 4096
    assert dense < model.flop_per_sample() < 1.2 * dense


def test_sliding_window_bounds_attention() -> None:
    mistral = {**LLAMA, "model_type": "mistral", "num_key_value_heads": 4}
    full, narrow = read(mistral).layers[1], read(mistral, sliding_window=8).layers[1]
    assert full.forward_flop - narrow.forward_flop == 4 * 64 * (32 * 32 / 2 - (32 * 8 - 8 * 8 / 2))
    qwen2 = {**mistral, "model_type": "qwen2", "sliding_window": 8}
    assert read(qwen2, use_sliding_window=False).layers[1].forward_flop == full.forward_flop
    late = read(qwen2, use_sliding_window=True, max_window_layers=1).layers
    assert late[1].forward_flop == full.forward_flop > late[3].forward_flop


def test_block_memory_is_34_s_h_bytes_at_16_bit() -> None:
    first, second = bundled("gpt2-xl", 1024).layers[1:3]
    assert 2 * (first.activations + second.activations) == 34 * 1024 * 1600
    assert (first.activations_full, second.activations_full) == (1024 * 1600, 0)
    assert first.activations_selective == first.activations


def test_block_memory_is_linear_in_the_sequence() -> None:
    short, long = bundled("llama-3-8b", 1024).layers[1], bundled("llama-3-8b", 8192).layers[1]
    assert long.activations == 8 * short.activations
    gated = bundled("llama-3-8b", 1024).layers[2]
    assert gated.activations == 1024 * (2 * 4096 + 3 * 14336)


def test_logits_are_kept_in_32_bit() -> None:
    assert read(GPT2).layers[-1].activations == 32 * (64 + 2 * 100)


# Refusals


@pytest.mark.parametrize("family", ["grok", "mamba", "rwkv", "jamba", "x" * 500])
def test_other_families_are_refused_by_name(family: str) -> None:
    with pytest.raises(Refused, match=r"is not modelled.*; known: bert, ") as caught:
        read(LLAMA, model_type=family)
    assert repr(family[:60]) in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("data", [GPT2, LLAMA, BERT, OPT, GEMMA2])
def test_missing_and_broken_sizes_are_refused_by_key(data: dict[str, Any]) -> None:
    data = {"model_type": "bert", **data}
    for key in data.keys() - {"model_type"}:
        if key != "head_dim":  # Gemma's default is 256
            with pytest.raises(Refused, match=f"^{key}: is missing"):
                read({other: value for other, value in data.items() if other != key})
        broken: tuple[Any, ...] = (0, -1, 64.0, "64", True, [64], 10**8, 10**5000)
        for bad in broken:
            with pytest.raises(Refused, match=f"^{key}: "):
                read({**data, key: bad})


def test_sizes_that_do_not_fit_each_other_are_refused() -> None:
    for data, key, value in (
        (GPT2, "n_head", 5),
        (LLAMA, "num_attention_heads", 5),
        (BERT, "num_attention_heads", 5),
        (OPT, "num_attention_heads", 5),
        (LLAMA, "num_key_value_heads", 3),
        (LLAMA, "num_key_value_heads", 8),
        (LLAMA, "num_hidden_layers", 10_001),
        (LLAMA, "tie_word_embeddings", "yes"),
        (LLAMA, "attention_bias", 1),
        (GPT2, "resid_pdrop", 1.5),
        (BERT, "position_embedding_type", "relative_key"),
        (BERT, "is_decoder", True),
        (GPT2, "n_embd", 10**30),
    ):
        with pytest.raises(Refused, match=f"^{key}: "):
            read({**data, key: value})
    with pytest.raises(Refused, match="contradicts hidden_size"):
        read(GPT2, hidden_size=128)


def test_model_type_must_be_a_name() -> None:
    with pytest.raises(Refused, match="model_type: is missing; known: bert"):
        read({"hidden_size": 64})
    with pytest.raises(Refused, match="model_type: "):
        read(LLAMA, model_type=["llama"])
    with pytest.raises(Refused, match="mapping"):
        read_config([], sequence_length=8, name="m")  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [GPT2, BERT, OPT])
def test_learned_positions_bound_the_sequence(data: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="sequence_length: 33 is beyond the 32 learned positions"):
        read(data, tokens=33)


def test_rotary_positions_do_not_bound_the_sequence() -> None:
    assert read(LLAMA, tokens=1000, max_position_embeddings=32).tokens == 1000


@pytest.mark.parametrize("tokens", [0, -1, 1.5, True, "512", 10**8])
def test_broken_sequence_length_is_refused(tokens: Any) -> None:
    with pytest.raises(Refused, match=r"^sequence_length: "):
        read(LLAMA, tokens=tokens)


@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_keys_that_heads_share_are_llamas_alone(family: str) -> None:
    keys = {"hidden": 256, "blocks": 2, "heads": 4, "sequence_length": 64, "family": family}
    with pytest.raises(Refused, match="a key and a value for each of its 4 heads"):
        Transformer(**keys, kv_heads=1)
    assert Transformer(**keys, kv_heads=4).model() == Transformer(**keys).model()
