"""Other architectures: parameters as their makers publish them, arithmetic as torch counts it.

Published counts are those of model cards and of torchvision's and transformers' documentation;
those of files that do not come with dpsim are restated here by the keys that matter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpsim.core.plugins import names
from dpsim.core.record import Refused
from dpsim.models import Layer, Model
from dpsim.models.huggingface import read_config
from dpsim.models.image_layers import Plane
from dpsim.models.image_network import ImageNetwork
from dpsim.models.layer_sum import DEPTHWISE
from dpsim.models.named import load_named
from dpsim.models.section import load, make
from dpsim.models.zoo import zoo_names

BERT = {"model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12, "vocab_size": 30522,
        "num_attention_heads": 12, "intermediate_size": 3072, "type_vocab_size": 2,
        "max_position_embeddings": 512}  # fmt: skip
ROBERTA = {**BERT, "model_type": "roberta", "vocab_size": 50265, "type_vocab_size": 1,
           "max_position_embeddings": 514}  # fmt: skip
T5 = {"model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 128, "num_heads": 4, "num_layers": 2,
      "vocab_size": 100}  # fmt: skip
BART = {"model_type": "bart", "d_model": 64, "encoder_layers": 2, "decoder_layers": 3,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 96,
        "decoder_ffn_dim": 96, "vocab_size": 100, "max_position_embeddings": 32}  # fmt: skip
GEMMA = {"model_type": "gemma", "hidden_size": 3072, "intermediate_size": 24576, "head_dim": 256,
         "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16,
         "vocab_size": 256000}  # fmt: skip
UNET = {"_class_name": "UNet2DConditionModel", "sample_size": 8, "in_channels": 4,
        "out_channels": 4, "block_out_channels": [32, 64], "layers_per_block": 1,
        "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
        "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"], "cross_attention_dim": 48,
        "attention_head_dim": 4}  # fmt: skip

#: a configuration's keys, the head behind it, and the published parameters
PUBLISHED: dict[str, tuple[dict[str, Any], str | None, int]] = {
    "bert-base, masked words": (BERT, "mlm", 109_514_298),
    "bert-large, pre-training": (
        {**BERT, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
         "intermediate_size": 4096}, "pretraining", 336_226_108),
    "bert-large of Google's keys": (
        {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
         "intermediate_size": 4096, "type_vocab_size": 2, "vocab_size": 30522,
         "max_position_embeddings": 512}, None, 335_141_888),
    "roberta-base": (ROBERTA, None, 124_645_632),
    "roberta-base, masked words": (ROBERTA, "mlm", 124_697_433),
    "xlm-roberta-base": (
        {**ROBERTA, "model_type": "xlm-roberta", "vocab_size": 250_002}, None, 278_043_648),
    "distilbert-base": (
        {"model_type": "distilbert", "dim": 768, "n_heads": 12, "n_layers": 6, "hidden_dim": 3072,
         "vocab_size": 30522, "max_position_embeddings": 512}, "mlm", 66_985_530),
    "albert-base-v2": (
        {**BERT, "model_type": "albert", "vocab_size": 30000, "embedding_size": 128}, None,
        11_683_584),
    "electra-base": ({**BERT, "model_type": "electra"}, None, 108_891_648),
    "deberta-v3-base": (
        {**BERT, "model_type": "deberta-v2", "vocab_size": 128_100, "type_vocab_size": 0,
         "position_buckets": 256, "pos_att_type": ["p2c", "c2p"], "relative_attention": True,
         "share_att_key": True, "position_biased_input": False}, None, 183_831_552),
    "mpt-7b": (
        {"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "vocab_size": 50432},
        None, 6_649_286_656),
    "gpt-neo-1.3b": (
        {"model_type": "gpt_neo", "hidden_size": 2048, "num_heads": 16, "num_layers": 24,
         "max_position_embeddings": 2048, "vocab_size": 50257}, None, 1_315_575_808),
    "chatglm3-6b": (
        {"model_type": "chatglm", "hidden_size": 4096, "num_attention_heads": 32, "num_layers": 28,
         "kv_channels": 128, "multi_query_attention": True, "multi_query_group_num": 2,
         "ffn_hidden_size": 13696, "padded_vocab_size": 65024, "add_qkv_bias": True}, None,
        6_243_584_000),
    "pythia-160m": (
        {"model_type": "gpt_neox", "hidden_size": 768, "num_attention_heads": 12,
         "num_hidden_layers": 12, "intermediate_size": 3072, "vocab_size": 50304}, None,
        162_322_944),
    "bart-base": (
        {**BART, "d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "vocab_size": 50265,
         "encoder_attention_heads": 12, "decoder_attention_heads": 12, "encoder_ffn_dim": 3072,
         "decoder_ffn_dim": 3072, "max_position_embeddings": 1024}, None, 139_420_416),
    "gemma-7b": (GEMMA, None, 8_537_680_896),
    "gemma-3-1b": (
        {**GEMMA, "model_type": "gemma3_text", "hidden_size": 1152, "intermediate_size": 6912,
         "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1,
         "vocab_size": 262144, "sliding_window": 512}, None, 999_885_952),
    "granite-3.1-2b": (
        {**GEMMA, "model_type": "granite", "hidden_size": 2048, "intermediate_size": 8192,
         "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8,
         "head_dim": None, "vocab_size": 49155, "tie_word_embeddings": True},
        None, 2_533_531_648),
    "olmo-2-7b": (
        {**GEMMA, "model_type": "olmo2", "hidden_size": 4096, "intermediate_size": 11008,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
         "head_dim": None, "vocab_size": 100352}, None, 7_298_617_344),
    "smollm3-3b": (
        {**GEMMA, "model_type": "smollm3", "hidden_size": 2048, "intermediate_size": 11008,
         "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4,
         "head_dim": None, "vocab_size": 128256}, None, 3_075_098_624),
    "gemma-2-9b": (
        {**GEMMA, "model_type": "gemma2", "hidden_size": 3584, "intermediate_size": 14336,
         "num_hidden_layers": 42, "num_key_value_heads": 8, "sliding_window": 4096}, None,
        9_241_705_984),
    "phi-3-mini": (
        {"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "vocab_size": 32064,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32}, None,
        3_821_079_552),
    "t5 whose decoder is not counted": (
        {"model_type": "t5", "d_model": 1600, "d_kv": 64, "d_ff": 6400, "num_heads": 25,
         "num_layers": 48, "vocab_size": 32128, "relative_attention_num_buckets": 64}, None,
        3_492_435_200),
    "t5-small cut to a layer": (
        {"model_type": "t5", "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_heads": 8,
         "num_layers": 1, "vocab_size": 32128}, None, 23_793_664),
    "bloom cut to a layer": (
        {"model_type": "bloom", "n_embed": 2048, "n_layer": 1, "num_attention_heads": 16,
         "n_inner": None, "vocab_size": 250_880}, None, 564_168_704),
    "opt of another size than its name's": (
        {"model_type": "opt", "_name_or_path": "facebook/opt-1.3b", "hidden_size": 512,
         "num_hidden_layers": 1, "num_attention_heads": 8, "ffn_dim": 2048, "vocab_size": 50272,
         "max_position_embeddings": 2048, "word_embed_proj_dim": 2048}, None, 109_257_216),
}  # fmt: skip

#: parameters and multiply-adds [1e9] of a forward pass, as torchvision documents its models (DiT:
#: table 4 of its paper; with the positions, which are not trained, 675,129,632)
NAMED = {
    "resnet18": (11_689_512, 1.81), "resnet34": (21_797_672, 3.66), "resnet101": (44_549_160, 7.80),
    "resnet152": (60_192_808, 11.51), "resnext50_32x4d": (25_028_904, 4.23),
    "resnext101_32x8d": (88_791_336, 16.41), "wide_resnet50_2": (68_883_240, 11.40),
    "wide_resnet101_2": (126_886_696, 22.75), "vgg11": (132_863_336, 7.61),
    "vgg13": (133_047_848, 11.31), "vgg19": (143_667_240, 19.63), "vgg16_bn": (138_365_992, 15.47),
    "alexnet": (61_100_840, 0.71), "inception_v3": (27_161_264, 5.71),
    "densenet121": (7_978_856, 2.83), "densenet161": (28_681_000, 7.73),
    "densenet169": (14_149_480, 3.36), "densenet201": (20_013_928, 4.29),
    "mobilenet_v2": (3_504_872, 0.30), "mobilenet_v3_large": (5_483_032, 0.22),
    "mobilenet_v3_small": (2_542_856, 0.06), "efficientnet_b0": (5_288_548, 0.39),
    "efficientnet_b4": (19_341_616, 4.39), "efficientnet_b7": (66_347_960, 37.75),
    "convnext_tiny": (28_589_128, 4.46), "convnext_small": (50_223_688, 8.68),
    "convnext_base": (88_591_464, 15.36), "convnext_large": (197_767_336, 34.36),
    "vit_b_16": (86_567_656, 17.56), "vit_b_32": (88_224_232, 4.41),
    "vit_l_16": (304_326_632, 61.55), "vit_h_14": (632_045_800, 167.29),
    "swin_t": (28_288_354, 4.49), "swin_s": (49_606_258, 8.74), "swin_b": (87_768_224, 15.43),
    "dit_xl_2": (675_129_632 - 256 * 1152, 118.64),
}  # fmt: skip


#: the same of detectors, whose multiply-adds torchvision states for 1,000 regions at 800 x 800
DETECTORS = {"faster_rcnn": (41_755_286, 134.38)}
#: ResNet-50's convolutions that are frozen in them: the first, and those of the first stage
FROZEN = 9408 + 4096 + 36_864 + 16_384 + 16_384 + 2 * (16_384 + 36_864 + 16_384)


def read(data: dict[str, Any], tokens: int | None = 32, **more: Any) -> Model:
    return read_config(data, sequence_length=tokens, name="m", **more)


def forward(model: Model) -> float:
    return sum(layer.forward_flop for layer in model.layers)


def shapes(model: Model) -> list[tuple[str, tuple[int, ...]]]:
    return [(tensor.name, tensor.shape) for layer in model.layers for tensor in layer.tensors]


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_that_are_published(name: str) -> None:
    data, head, count = PUBLISHED[name]
    assert read(data, head=head).parameters == count


def test_a_head_of_masked_words_alone_sees_15_percent_of_the_tokens() -> None:
    """20 of 128, 77 of 512: 2 (h^2 + h V) FLOP each, for the same parameters."""
    for tokens, seen in ((128, 20), (512, 77)):
        every, masked = (read(BERT, tokens, head=h) for h in ("pretraining", "pretraining_masked"))
        spared = (tokens - seen) * 2 * 768 * (768 + 30522)
        flop = [sum(layer.forward_flop for layer in made.layers) for made in (every, masked)]
        assert flop[0] - flop[1] == pytest.approx(spared)
        assert every.parameters == masked.parameters


@pytest.mark.parametrize("name", NAMED)
def test_image_networks_are_those_that_are_published(name: str) -> None:
    parameters, billions = NAMED[name]
    model = load_named(name, 1)
    assert model.parameters == parameters
    assert forward(model) / 2e9 == pytest.approx(billions, abs=0.0055, rel=0.002)
    assert (model.sample, model.tokens) == ("image", 1)
    listed = [name for name, _ in shapes(model)]
    assert len(set(listed)) == len(listed)


def test_a_depthwise_convolution_takes_six_times_its_traffic() -> None:
    """Of 8 channels of 4 x 4: in + out six times forward, twice as much backward; of as many groups
    as channels alone, and with no more FLOP or memory for it."""
    plane = Plane(8, 4)

    def layer(groups: int) -> Layer:
        net = ImageNetwork(plane)
        net.normed("before", active=False)
        net.convolution("c", 8, 3, groups=groups, bias=False, active=False)
        return net.layers[-1]

    deep, grouped = layer(8), layer(4)
    moved = 2 * plane.elements
    assert DEPTHWISE == 6
    assert (deep.forward_bytes, deep.backward_bytes) == (6 * moved, 12 * moved)
    assert (grouped.forward_bytes, grouped.backward_bytes) == (moved, 2 * moved)
    assert deep.forward_flop == grouped.forward_flop / 2 == 2 * 9 * plane.elements
    assert (deep.activations, deep.kernels) == (grouped.activations, grouped.kernels)


def test_a_name_of_the_zoo_stands_for_a_section_that_exists() -> None:
    assert not set(zoo_names()) & set(names("models")) - {"alexnet", "inception_v3"}
    for name in zoo_names():
        section = make({"name": name, "sequence_length": 77} if tokens_of(name) else {"name": name},
                       file=True)  # fmt: skip
        assert section


def tokens_of(name: str) -> bool:
    return name in ("t5", "bart", "falcon", "bloom", "gptj", "gpt_neox", "roberta")


def test_names_are_found_however_they_are_written() -> None:
    assert make({"name": "ResNet-18"}, file=True) == make(
        {"name": "resnet", "depth": 18}, file=True
    )
    wide = make({"name": "vit-b-16", "image_size": 384}, file=True)
    tokens = load(wide, None).layers[1].tensors[0].shape[1]  # type: ignore[arg-type]
    assert tokens == (384 // 16) ** 2 + 1


def test_two_ways_to_a_resnet_give_one_model() -> None:
    own, known = load_named("resnet50", 1), make({"name": "resnet", "depth": 50}, file=True)
    other = load(known, None)  # type: ignore[arg-type]
    assert shapes(own) == shapes(other)
    assert own.flop_per_sample() == other.flop_per_sample()
    assert own.buffers == other.buffers
    assert sum(layer.forward_bytes for layer in own.layers) == pytest.approx(
        sum(layer.forward_bytes for layer in other.layers)
    )


# Encoders with decoders


def test_bart_agrees_with_torch() -> None:
    """A BART block has the tensors and products of torch's own encoder and decoder layers."""
    torch = pytest.importorskip("torch")
    counter = pytest.importorskip("torch.utils.flop_counter").FlopCounterMode(display=False)
    s, t, h = 24, 10, 64
    with torch.device("meta"):
        net = torch.nn.Transformer(h, 4, 2, 3, 96, batch_first=True)
        with counter:
            net(torch.empty(1, s, h), torch.empty(1, t, h)).sum().backward()
    model = read(BART, s, target_length=t)
    inside = [layer for layer in model.layers if layer.unit]
    norms = 2 * 2 * h  # torch has a norm behind either half
    assert sum(layer.parameters for layer in inside) + norms == sum(
        p.numel() for p in net.parameters()
    )
    unmasked = 4 * h * 3 * t * t / 2  # torch computes what the decoder's mask hides
    assert 3 * (sum(layer.forward_flop for layer in inside) + unmasked) - (
        counter.get_total_flops()
    ) == pytest.approx(untaken(inside, s, h))


def untaken(inside: list[Any], s: int, h: int) -> float:
    """torch's first products need no gradient of their input: q, k, v of the first encoder layer,
    and those of the first decoder layer."""
    first = next(layer for layer in inside if layer.unit == "decoder.layers.0")
    tokens = first.output / h - s
    return 2 * h * 3 * h * (s + tokens)


def test_t5_shares_what_it_ties() -> None:
    tied, untied = read(T5), read(T5, target_length=32)
    assert tied.layers == untied.layers
    apart = read({**T5, "tie_word_embeddings": False})
    assert apart.parameters - tied.parameters == 100 * 64
    users = [layer.name for layer in tied.layers if layer.tied == "shared"]
    assert users == ["decoder.embed_tokens", "lm_head"]


def test_a_shorter_target_is_less_work_for_the_decoder_alone() -> None:
    full, short = read(T5), read(T5, target_length=8)
    for one, other in zip(full.layers, short.layers, strict=True):
        decoder = one.name.startswith("decoder") or one.name == "lm_head"
        if one.forward_flop:
            assert (one.forward_flop > other.forward_flop) == decoder, one.name


def test_gated_t5_has_three_matrices() -> None:
    gated = read({**T5, "feed_forward_proj": "gated-gelu"})
    assert gated.parameters - read(T5).parameters == 4 * 64 * 128
    names = [name for name, _ in shapes(gated)]
    assert "encoder.block.0.layer.1.DenseReluDense.wi_1.weight" in names
    tables = [name for name in names if "relative_attention_bias" in name]
    assert len(tables) == 2  # of the first block of either half


def test_bart_looks_up_before_it_normalises() -> None:
    model = read(BART)
    order = [model.layers[i].name for i in model.forward_order]
    assert order[:4] == ["shared", "encoder.embed_positions", "encoder.layernorm_embedding",
                         "encoder.layers.0.attention"]  # fmt: skip
    assert len(order) == len(set(order)) == len(model.layers)


def test_albert_waits_for_the_first_of_its_shared_blocks() -> None:
    data = {**BERT, "model_type": "albert", "embedding_size": 128}
    model = read(data)
    holders = [layer.name for layer in model.layers if layer.tensors and layer.unit]
    assert holders == ["encoder.layer.0.attention", "encoder.layer.0.mlp"]
    assert sum(layer.forward_flop for layer in model.layers if layer.unit) == 12 * sum(
        layer.forward_flop for layer in model.layers if layer.unit == "encoder.layer.0"
    )


# Diffusion


def test_a_u_net_agrees_with_torch() -> None:
    """Names, shapes, order of registration and forward FLOP."""
    torch = pytest.importorskip("torch")
    counter = pytest.importorskip("torch.utils.flop_counter").FlopCounterMode(display=False)
    from torch_unet import UNet

    with torch.device("meta"):
        net = UNet()
        inputs = torch.empty(1, 4, 8, 8), torch.empty(1, 32), torch.empty(1, 5, 48)
        with counter:
            net(*inputs)
    model = read(UNET, 5)
    assert shapes(model) == [(name, tuple(p.shape)) for name, p in net.named_parameters()]
    assert forward(model) == counter.get_total_flops()


def test_a_u_net_runs_down_through_the_middle_and_up() -> None:
    model = read(UNET, None)
    order = [model.layers[i].name for i in model.forward_order]
    places = [order.index(name) for name in (
        "conv_in", "down_blocks.0.resnets.0", "down_blocks.0.attentions.0.proj_in",
        "mid_block.resnets.0", "up_blocks.0.resnets.0", "conv_out")]  # fmt: skip
    assert places == sorted(places)
    listed = [layer.name for layer in model.layers]
    assert listed.index("up_blocks.0.resnets.0") < listed.index("mid_block.resnets.0")


def test_stored_scores_of_a_u_net_are_kept_for_every_head() -> None:
    flash, math = read(UNET, 5), read(UNET, 5, attention="math")
    more = sum(
        m.activations - f.activations for m, f in zip(math.layers, flash.layers, strict=True)
    )
    pairs = 3 * 64 * (64 + 5) + 16 * (16 + 5)  # of three blocks of 8 x 8 and one of 4 x 4 elements
    assert more == 4 * pairs
    assert math.flop_per_sample() == flash.flop_per_sample()


# Refusals


@pytest.mark.parametrize(
    ("data", "given", "says"),
    [
        (T5, {"tokens": None}, "sequence_length: is missing"),
        (T5, {"image_size": 64}, "image_size: t5 has no use for it"),
        (BERT, {"target_length": 8}, "target_length: bert has no use for it"),
        (BART, {"head": "mlm"}, "head: bart has no use for it"),
        (BART, {"tokens": 64}, "beyond the 32 learned positions"),
        (UNET, {"image_size": 100}, "image_size: 100 is no multiple of 8"),
        (UNET, {"image_size": 72}, "image_size: latents of 9 cannot be halved"),
        ({**UNET, "down_block_types": ["AttnDownBlock2D", "DownBlock2D"]}, {}, "AttnDownBlock2D"),
        ({**UNET, "attention_head_dim": [4, 4, 4]}, {}, "3 numbers for 2 blocks"),
        ({**BERT, "model_type": "vit"}, {}, "sequence_length: vit has samples without tokens"),
        ({**BERT, "model_type": "albert", "inner_group_num": 2}, {}, "inner_group_num: "),
    ],
)
def test_what_a_family_has_no_use_for_is_refused(
    data: dict[str, Any], given: dict[str, Any], says: str
) -> None:
    with pytest.raises(Refused, match=says):
        read(data, **given)


def test_the_head_of_images_follows_the_file() -> None:
    vit = {"model_type": "vit", "hidden_size": 768, "num_hidden_layers": 12, "patch_size": 16,
           "num_attention_heads": 12, "intermediate_size": 3072, "image_size": 224}  # fmt: skip
    assert read(vit, None).parameters == 86_389_248  # with its pooler
    assert read(vit, None, head="classification").parameters == 86_567_656


@pytest.mark.parametrize(
    ("name", "near"),
    [("gpt-2", "gpt2"), ("meta-llama/Llama-3-8B", "llama-3-8b"), ("resnet51", "resnet")],
)
def test_a_name_that_is_nearly_a_models_is_refused_with_it(name: str, near: str) -> None:
    with pytest.raises(Refused, match=rf"no model '{name}'; did you mean '{near}'\?"):
        make({"name": name}, file=True)


def test_three_of_four_blocks_of_olmo_3_have_a_window_unless_the_file_names_them() -> None:
    """A window takes pairs of tokens from attention: less arithmetic."""
    olmo = {**GEMMA, "model_type": "olmo3", "num_hidden_layers": 8, "sliding_window": 64}
    named = olmo | {"layer_types": ["full_attention"] * 7 + ["sliding_attention"]}

    def windows(data: dict[str, Any]) -> list[int]:
        model = read_config(data, sequence_length=256, name="m")
        halves = [layer for layer in model.layers if layer.attended is not None]
        return [k for k, layer in enumerate(halves) if layer.attended and layer.attended.window]

    assert windows(olmo) == [0, 1, 2, 4, 5, 6]
    assert windows(named) == [7]


# Detectors


def detector(data: dict[str, Any]) -> Model:
    return load(make(data, file=False), Path())


@pytest.mark.parametrize("name", DETECTORS)
def test_detectors_are_as_large_and_work_as_much_as_torchvision_says(name: str) -> None:
    parameters, published = DETECTORS[name]
    model = detector({"name": name, "image_size": 800, "rois": 1000})
    assert model.parameters == parameters
    assert forward(model) / 2e9 == pytest.approx(published, abs=0.005)


def test_a_mask_head_is_six_convolutions_over_its_regions() -> None:
    """He et al., figure 4: four of 3 x 3 at 14 x 14, one that doubles the size, one for classes."""
    plain, masked = (detector({"name": "mask_rcnn", "masks": masks}) for masks in (0, 128))
    assert masked.parameters == 44_401_393
    convolutions = 4 * (9 * 256 * 256 * 14**2) + 4 * 256 * 256 * 14**2 + 256 * 91 * 28**2
    assert forward(masked) - forward(plain) == pytest.approx(2 * 128 * convolutions)
    more, fewer = (detector({"name": "mask_rcnn", "rois": rois}) for rois in (1000, 500))
    boxes = 12544 * 1024 + 1024 * 1024 + 1024 * 5 * 91
    assert forward(more) - forward(fewer) == pytest.approx(2 * 500 * boxes)


def test_a_detector_s_backbone_is_frozen_up_to_its_first_stage_and_in_its_norms() -> None:
    model = detector({"name": "mask_rcnn"})
    assert model.parameters - model.trained == FROZEN
    still = [layer for layer in model.layers if layer.detached]
    assert all(layer.backward_flop == layer.activations == 0.0 for layer in still)
    assert {layer.name.rpartition(".")[0][:20] for layer in still} <= {
        "backbone.body", "backbone.body.layer1"
    }  # fmt: skip
    assert not any(layer.batch_norm for layer in model.layers)
    # scale, shift, mean and variance of every channel that ResNet-50 norms
    assert model.buffers == (("fp32", 4 * 26_560),)
