"""Models of tables whose names state a shape, or nothing but a size."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dpsim.accuracy.training.models import ModelChoice, choose_model
from dpsim.core.record import Refused
from dpsim.models.section import load, make


def chosen(
    name: str, unit: str = "samples/s", parameters: float | None = None, task: str = ""
) -> ModelChoice:
    millions = f"{parameters / 1e6:g}" if parameters else ""
    cells = {"unit": unit, "params_m": millions, "task": task}
    return choose_model(name, task, parameters, None, column=lambda key: cells.get(key, ""))


def shape(name: str) -> tuple[Any, ...]:
    found = chosen(name).data
    return tuple(found.get(key) for key in ("family", "blocks", "hidden", "heads", "feed_forward"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("GPT-2 num_layers = 24 hidden_size=1536", ("gpt2", 24, 1536, 24, None)),
        ("GPT n_layer=24, n_embd=1024, n_head=8", ("gpt2", 24, 1024, 8, None)),
        ("TinyGPT (117M parameters, 12 layers, 768 hidden size)", ("gpt2", 12, 768, 12, None)),
        ("GPT-2 style transformer (12 layers, 768 hidden)", ("gpt2", 12, 768, 12, None)),
        ("GPT (24 layers, 16 heads, head dim 64, hidden size 1024)", ("gpt2", 24, 1024, 16, None)),
        ("GPT 24 layers, 128-dim heads, width 2048", ("gpt2", 24, 2048, 32, None)),
        ("GPT-style 7B (5.24B): 32 layers, dim 4096, FF 11008", ("gpt2", 32, 4096, 32, 11008)),
        ("Llama-style 7B, 32 layers, dim 4096", ("llama", 32, 4096, 32, 11008)),
        ("Qwen-like, 28 layers, hidden size 3584, intermediate size 18944, 28 heads",
         ("llama", 28, 3584, 28, 18944)),
        ("BERT (L=12, H=512)", ("bert", 12, 512, 8, None)),
        ("RoBERTa-like bert, 6 layers, 768 hidden", ("bert", 6, 768, 12, None)),
        ("GPT 345M (24L, 1024H, 16A)", ("gpt2", 24, 1024, 16, None)),
        ("GPT 2.7B 32 layers 2560 hidden 80 head dim", ("gpt2", 32, 2560, 40, None)),
        ("GPT h1024 L24 a16", ("gpt2", 24, 1024, 16, None)),
        ("GPT layers=24 seq=2048 hidden=1024", ("gpt2", 24, 1024, 16, None)),
        ("GPT ffn_hidden_size=4096 hidden_size=1024 num_layers=24", ("gpt2", 24, 1024, 16, None)),
        ("GPT heads=16 layers=24 hidden=1024", ("gpt2", 24, 1024, 16, None)),
        ("transformer d_ff=3072 d_model=512 n_layers=6 n_heads=8", ("gpt2", 6, 512, 8, 3072)),
        ("GPT num_layers: 24 hidden_size: 1024 seq_length: 2048", ("gpt2", 24, 1024, 16, None)),
        ("GPT 24 layers 1024 hidden 16 heads", ("gpt2", 24, 1024, 16, None)),
        ("GPT h4096 l32 a32 ffn 11008", ("gpt2", 32, 4096, 32, 11008)),
        ("GPT h1024 l24 a16 ffn=2048", ("gpt2", 24, 1024, 16, 2048)),
        ("Llama h4096 l32 a32 ffn=14336", ("llama", 32, 4096, 32, 14336)),
        ("GPT layers=24 hidden=1,024", ("gpt2", 24, 1024, 16, None)),
        ("GPT, 24 layers, 1,024 hidden", ("gpt2", 24, 1024, 16, None)),
        ("GPT, 32 layers, hidden 4,096, ffn 11,008", ("gpt2", 32, 4096, 32, 11008)),
        ("GPT 24 layers 1024 hidden LoRA r=8 a=8", ("gpt2", 24, 1024, 16, None)),
        ("GPT A=8, L=24, H=1024", ("gpt2", 24, 1024, 8, None)),
    ],
)  # fmt: skip
def test_a_shape_is_told_part_by_part(name: str, expected: tuple[Any, ...]) -> None:
    found = chosen(name)
    assert not found.note
    assert shape(name) == expected


def test_heads_of_keys_are_told_beside_a_shape_in_short() -> None:
    assert chosen("GPT h4096 l32 a32 kv heads=8").data["kv_heads"] == 8


def test_32_layers_are_no_third_llama() -> None:
    assert chosen("Llama 32 layers hidden 4096 ffn=14336").data["vocabulary"] == 32000
    assert chosen("Llama 3, 32 layers, hidden 4096, ffn 14336").data["vocabulary"] == 128256


@pytest.mark.parametrize(
    ("name", "bundled"),
    [
        ("BERT num_layers = 24 hidden_size = 1024", "bert-large"),
        ("uncased BERT L-24_H-1024_A-16", "bert-large"),
        ("BERT (L=12, H=768, A=12)", "bert-base-uncased"),
        ("Llama-2-7B (32 layers, 4096 hidden)", "llama-2-7b"),
    ],
)
def test_a_shape_that_is_a_known_model_s_is_that_one(name: str, bundled: str) -> None:
    assert chosen(name).data["huggingface"] == bundled


@pytest.mark.parametrize(
    "name",
    [
        "GPT 1.3B (not 12 layers, 768 hidden)",  # denied
        "GPT 1.3B, 24 layers",  # a part of it
        "GPT 1.3B, hidden size not stated, 24 layers",
        "GPT 1.3B with 12 layers, head dim 128",
        "GPT 1.3B, 6 layers per stage, 768 hidden",
        "GPT 1.3B, 24 layers, ffn hidden size 1024",
    ],
)
def test_what_states_no_shape_is_played_by_its_size(name: str) -> None:
    found = chosen(name)
    assert found.note
    assert found.data["hidden"] == 2048


def test_of_other_families_a_shape_says_too_little() -> None:
    """No single row of blocks, or blocks of another model than the name's."""
    assert chosen("T5 3B, 24 layers, 1024 hidden").note
    with pytest.raises(Refused, match="not the whole model"):
        chosen("Qwen 7B-like, 28 layers, hidden size 3584")
    with pytest.raises(Refused, match="is not known"):
        chosen("ViT (12 layers, 768 hidden)")


def test_a_shape_of_translators_says_too_little() -> None:
    """For they have an encoder and a decoder."""
    name = "Transformer (6 layers, hidden 512)"
    assert chosen(name).data["blocks"] == 6
    assert chosen(name, task="translation WMT14", parameters=6.5e7).note


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("BERT-base, 12-layer, 768-hidden, 12-heads, 110M", "bert-base-uncased"),
        ("BERT-Large 24-layer 1024-hidden", "bert-large"),
    ],
)
def test_a_shape_beside_a_known_name_is_checked(name: str, key: str) -> None:
    assert chosen(name).data["huggingface"] == key


def test_what_is_assumed_of_a_shape_is_told() -> None:
    assert chosen("GPT, 24 layers, 1024 hidden, 16 heads").assumed == ()
    assert chosen("GPT, 24 layers, 1024 hidden").assumed == (
        "16 heads are assumed for width 1,024",
    )
    assert chosen("GPT h1024 L24").assumed == ("16 heads are assumed for width 1,024",)
    gated = " ".join(chosen("Llama-style, 32 layers, dim 4096").assumed)
    assert "width 11,008 are assumed, as Llama has them" in gated


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("GPT 1.3B (24 layers, 768 hidden)", True),
        ("GPT 117M (12 layers, 768 hidden)", False),  # 124 with all of its tokens
        ("GPT 85M (12 layers, 768 hidden)", False),  # without them
        ("GPT 7B (5.24B): 32 layers, dim 4096, FF 11008", False),
        ("GPT (12 layers, 768 hidden)", False),
    ],
)
def test_a_size_that_is_not_its_shape_s_is_told(name: str, told: bool) -> None:
    assert ("the shape is taken" in " ".join(chosen(name).assumed)) == told


def test_contradictions_are_refused() -> None:
    with pytest.raises(Refused, match="several numbers for its blocks"):
        chosen("GPT, 24 layers or 12 layers, 768 hidden")
    with pytest.raises(Refused, match="several numbers for its width"):
        chosen("GPT, 24 layers, 768 hidden / 1024 hidden")
    with pytest.raises(Refused, match="no model of width 2,048"):
        chosen("Llama-2-7B (32 layers, 2048 hidden)")
    with pytest.raises(Refused, match="not the whole model"):
        chosen("Llama-2-7B (4 layers, 4096 hidden)")


@pytest.mark.parametrize("name", ["open_lm_410m", "lm 410M of ours"])
def test_tokens_tell_a_language_model(name: str) -> None:
    found = chosen(name, "tokens/s/gpu")
    assert (found.language, found.data["name"]) == (True, "transformer")
    assert "decoder" in found.note
    assert not chosen(name, "samples/s", 4.1e8).language


def test_tokens_beside_parameters_tell_it_too() -> None:
    assert chosen("our network", "tok/s", 4.1e8).language
    assert not chosen("our network", "samples/s", 4.1e8).language
    with pytest.raises(Refused, match="is not known"):
        chosen("our network", "tokens/s")


@pytest.mark.parametrize("name", ["coca_ViT-L-14", "resnet50d", "LSTM", "GNMT v3", "Whisper-like"])
def test_networks_of_other_kinds_are_none_though_tokens_are_counted(name: str) -> None:
    assert not chosen(name, "tokens/s", 4.1e8).language


@pytest.mark.parametrize(
    ("name", "parameters", "bundled"),
    [
        ("megatron bert 345m", None, "bert-large"), ("Megatron-BERT 345M", None, "bert-large"),
        ("bert 345m", None, "bert-large"), ("bert-336m", None, "bert-large"),
        ("BERT (340M)", None, "bert-large"), ("BERT", 3.36e8, "bert-large"),
        ("bert-110m", None, "bert-base-uncased"), ("BERT", 1.1e8, "bert-base-uncased"),
        ("bert 1.3b", None, None), ("bert-350m", None, None), ("modernbert 345m", None, None),
        ("gpt 345m", None, None), ("BERT", 6.7e8, None),
    ],
)  # fmt: skip
def test_bert_is_told_by_its_size(name: str, parameters: float | None, bundled: str | None) -> None:
    assert chosen(name, parameters=parameters).data.get("huggingface") == bundled


def test_no_part_of_bert_is_the_whole() -> None:
    for name in ("bert 345m (12 layers, 768 hidden)", "BERT 345M teacher"):
        with pytest.raises(Refused):
            chosen(name)


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("convnext_base", {"name": "convnext_base"}), ("ConvNeXt-Base", {"name": "convnext_base"}),
        ("facebook/convnext-base-224", {"name": "convnext_base"}),
        ("swin_b", {"name": "swin_b"}), ("Swin-T", {"name": "swin_t"}),
        ("swin_base_patch4_window7_224", {"name": "swin", "variant": "base"}),
        ("vit_b_16", {"name": "vit_b_16"}),
        ("vit_base_patch16_224", {"huggingface": "vit-base-patch16-224"}),
        ("vit_base_patch32_384", {"name": "vision_transformer", "patch": 32, "image_size": 384}),
        ("mobilenetv2_100", {"name": "mobilenet_v2"}),
    ],
)  # fmt: skip
def test_image_networks_by_their_libraries_names(name: str, keys: dict[str, Any]) -> None:
    assert chosen(name).data == keys


@pytest.mark.parametrize(
    ("name", "width", "blocks"),
    [
        ("vit_large_patch16_224", 1024, 24), ("vit_large_patch16_224.augreg_in21k", 1024, 24),
        ("vit_small_patch16_224", 384, 12), ("deit_small_patch16_224", 384, 12),
        ("deit_tiny_patch16_224", 192, 12),
    ],
)  # fmt: skip
def test_vision_transformers_by_timms_names(name: str, width: int, blocks: int) -> None:
    found = chosen(name).data
    assert (found["hidden"], found["blocks"], found["image_size"]) == (width, blocks, 224)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("resnet50t", "resnet50"), ("mobilenetv2_140", "mobilenet_v2"), ("swinv3_b", "swin_b"),
        ("vit_base_resnet50_384", "resnet50"), ("vit_large_patch14_clip_224", "clip"),
        ("deit_small_distilled_patch16_224", "vit"), ("not convnext_base", "convnext_base"),
    ],
)  # fmt: skip
def test_networks_like_known_ones_are_refused_with_these(name: str, near: str) -> None:
    with pytest.raises(Refused, match=f"the nearest that are known: .*{near}"):
        chosen(name)


def test_a_network_like_nothing_known_has_no_neighbours() -> None:
    with pytest.raises(Refused, match=r"would tell$"):
        chosen("xyz")


def test_detectors_are_scaled_networks() -> None:
    for name in ("Mask R-CNN R50-FPN", "mask_rcnn_r50_fpn", "R50-FPN Mask R-CNN", "Mask R-CNN"):
        assert chosen(name).data["parameters"] == 44.4e6


def test_a_number_between_two_words_is_nobodys() -> None:
    with pytest.raises(Refused, match="several numbers for its width"):
        chosen("GPT 24 layers ffn 4096 hidden 1024")


def test_a_perceptron_is_no_decoder() -> None:
    with pytest.raises(Refused, match="is not known"):
        chosen("MLP 4 layers hidden 1024", unit="tokens/s")


@pytest.mark.parametrize("name", ["GPT 1,300M", "gpt 1e3b"])
def test_a_part_of_a_number_is_no_size(name: str) -> None:
    with pytest.raises(Refused, match="parameters are not stated"):
        chosen(name)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("llama-7b layers=2", "of 2 blocks, for that of its name has 32;"),
        ("Llama-2-7B h4096 l2 a32", "of 2 blocks, for that of its name has 32;"),
        ("BERT-Large n_layer=12", "of 12 blocks, for that of its name has 24;"),
        ("Mixtral-8x7B layers=4", "of 4 blocks, for that of its name has 32;"),
        ("gpt2-xl hidden=1024", "of width 1,024, for that of its name has 1,600;"),
        ("Llama-2-7B heads=8", "of 8 heads, for that of its name has 32;"),
        ("Llama-3-8B, 4 kv heads", "of 4 heads of keys, for that of its name has 8;"),
        ("Llama-2-13B ffn=5120", "with feed-forward parts of width 5,120, for .* has 13,824"),
        ("Mixtral-8x7B 4 experts", "of 4 experts, .* has 8; a shape, as in 'Llama-3 MoE 8 exp"),
        ("Mixtral-8x7B top-1", "with 1 experts a token, for that of its name has 2;"),
        ("Qwen3-30B-A3B num_experts=64", "of 64 experts, for that of its name has 128;"),
        ("Llama-2-13B ffn=20736", "with feed-forward parts of width 20,736, for .* has 13,824"),
    ],
)
def test_a_name_and_a_part_of_another_shape_are_refused(name: str, told: str) -> None:
    with pytest.raises(Refused, match=f"is no model {told}"):
        chosen(name)


@pytest.mark.parametrize(
    "name",
    [
        "llama-7b layers=32", "Llama-2-7B h4096 l32 a32", "BERT-Large n_layer=24 heads=16",
        "Mixtral-8x7B, 8 kv heads", "Mixtral-8x7B, 2 of 8 experts",
        "DeepSeek-V3, 256 routed experts, 1 shared expert, 8 experts per token",
        "Qwen3-30B-A3B, num_experts=128 num_experts_per_tok=8", "gpt2-xl hidden=1600 ffn=6400",
        "Llama-2-13B ffn=13824",
        "Nemotron-4 340B ffn=73728", "StarCoder2 3B ffn=12288", "phi-2 ffn=10240",  # without gates
        "llama-7b LoRA (r=8, a=16)", "llama-7b lora r=8 a=16", "llama-7b a=16",
        "GPT h1024 l24 a16 ffn=4096", "BERT-Large seq=512 heads: 16",
    ],
)  # fmt: skip
def test_a_name_and_a_part_of_its_own_shape_are_that_model(name: str) -> None:
    bare = re.split(r",| (?:ffn|layers|lora|a=)", name, flags=re.IGNORECASE)[0]
    assert chosen(name).data == chosen(bare).data


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("GPT 24 layers 1024 hidden heads=0", "'heads=0' is no number of heads; .* 1 to 999 is"),
        ("GPT 24 layers 1024 hidden 0 heads", "'0 heads' is no number of heads"),
        ("GPT layers=24 hidden=4096 ffn=10", "'ffn=10' is no feed-forward width; .* 100 to 999,9"),
        ("GPT layers=24 hidden=4096 ffn=100", "'100' is no feed-forward width beside .* 512 to"),
        ("GPT layers=0 hidden=1024", "'layers=0' is no number of blocks; .* 1 to 999 is accepted"),
        ("GPT 300M layers=24 hidden=-5", "'hidden=-5' is no width; a whole number of 100 to"),
        ("GPT 300M num_layers=2.5", "'layers=2.5' is no number of blocks"),
        ("GPT 300M hidden=1,02", "'hidden=1' is no width"),
        ("GPT 300M heads=1e3", "'heads=1e3' is no number of heads"),
        ("Llama-2-7B kv_heads=0", "'kv_heads=0' is no number of heads of keys"),
        ("Mixtral-8x7B layers=0", "'layers=0' is no number of blocks"),
        ("GPT layers=24 hidden=1024 heads=7", "7 does not divide n_embd = 1024"),
    ],
)
def test_a_part_that_no_shape_has_is_refused(name: str, told: str) -> None:
    with pytest.raises(Refused, match=told):
        load(make(chosen(name).data, file=False), Path())
