"""`dpsim validate` on runs of models with experts: which model is meant, how ranks share experts
out, and how tokens are routed."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from dpsim.accuracy.training.experts import has_experts, shared_among
from dpsim.accuracy.training.models import choose_model
from dpsim.accuracy.training.scenarios import MeasuredCase, measured_case
from dpsim.accuracy.training.series import play_series
from dpsim.accuracy.training.table import TrainingRow, read_table
from dpsim.core.record import Refused
from dpsim.models.named import load_named
from dpsim.models.section import load, make

RUN: dict[str, Any] = {
    "model": "Mixtral-8x7B", "accelerator": "H100 SXM", "gpus_per_node": 8, "total_gpus": 16,
    "framework": "PyTorch FSDP2", "strategy": "FSDP", "strategy_detail": "", "precision": "BF16",
    "inter_node": "8x NDR400 InfiniBand", "seq_len": 4096, "batch_per_gpu": 1, "act_ckpt": "full",
    "ep": "", "notes": "", "value": 3.0, "unit": "s",
}  # fmt: skip
DESCRIBED = {"model": "Llama-3 MoE 8 experts top-2", "params_m": 9230}


def rows_of(tmp_path: Path, *changes: dict[str, Any]) -> list[TrainingRow]:
    rows = [RUN | {"params_m": ""} | change for change in changes]
    with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([list(rows[0]), *(list(row.values()) for row in rows)])
    return list(read_table(tmp_path / "t.csv").rows)


def point(tmp_path: Path, **changes: Any) -> MeasuredCase:
    return measured_case(rows_of(tmp_path, changes)[0])


# -- which model ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("Mixtral 8x7B", "mixtral-8x7b-v0.1"),
        ("mixtral_8x22b", "mixtral-8x22b-v0.1"),
        ("gpt-oss-120b", "gpt-oss-120b"),
        ("GPT-OSS 20B", "gpt-oss-20b"),
        ("Qwen3-235B-A22B", "qwen3-235b-a22b"),
        ("qwen3_30b_a3b MoE", "qwen3-30b-a3b"),
        ("DeepSeek-V3", "deepseek-v3"),
        ("deepseek3-671b", "deepseek-v3"),
        ("Kimi-K2", "kimi-k2"),
        ("gemma4-26b", "gemma-4-26b-a4b"),
        ("Nemotron-3-Nano-30B-A3B", "nemotron-3-nano-30b-a3b"),
        ("DBRX", "dbrx"),
        ("OLMoE-1B-7B", "olmoe-1b-7b"),
        ("Grok-1 314B", "grok-1"),
        # the same names with blanks, underscores, or less of them, and as MLPerf writes them
        ("Qwen3-235B", "qwen3-235b-a22b"),
        ("Qwen3_235B_A22B", "qwen3-235b-a22b"),
        ("Qwen3 30B A3B", "qwen3-30b-a3b"),
        ("DeepSeek V3", "deepseek-v3"),
        ("DeepSeek_V3", "deepseek-v3"),
        ("DeepSeek-V3 671B", "deepseek-v3"),
        ("DeepSeek_R1", "deepseek-v3"),
        ("gpt oss 120b", "gpt-oss-120b"),
        ("Kimi K2", "kimi-k2"),
        ("Gemma 4 26B", "gemma-4-26b-a4b"),
        ("Nemotron 3 Nano", "nemotron-3-nano-30b-a3b"),
    ],
)
def test_a_model_with_experts_is_known_by_its_name(name: str, known: str) -> None:
    found = choose_model(name, "LLM", None, 4096)
    assert found.data == {"huggingface": known, "sequence_length": 4096}
    assert found.language
    assert not found.note
    assert any(layer.experts for layer in load_named(known, 512).layers)


@pytest.mark.parametrize(
    ("experts", "billions", "shape"),
    [
        # KempnerInstitute/KempnerForge at 5666d0d, configs/model/moe_small.toml: 24 blocks of
        # 2,048, 16 heads, 4 of keys, experts of 7,168 (1.3 x 8/3, in steps of 256)
        (8, 9.23, (2048, 24, 16, 4, 7168)),
        (16, 17.69, (2048, 24, 16, 4, 7168)),
    ],
)
def test_a_described_block_of_llama_3_follows_from_all_parameters(
    experts: int, billions: float, shape: tuple[int, ...]
) -> None:
    found = choose_model(f"Llama-3 MoE {experts} experts top-2", "LLM", billions * 1e9, 4096)
    keys = ("hidden", "blocks", "heads", "kv_heads", "feed_forward")
    assert tuple(found.data[key] for key in keys) == shape
    assert (found.data["experts"], found.data["experts_per_token"]) == (experts, 2)
    assert f"{experts} experts of width 7,168" in found.note
    model = load(make(found.data, file=False), Path())
    assert model.parameters == pytest.approx(billions * 1e9, rel=0.001)


def test_mixtral_is_what_its_own_description_makes() -> None:
    found = choose_model("Mistral-style MoE, 8 experts, top-2", "LLM", 46.7e9, 512)
    described = load(make(found.data, file=False), Path())
    assert described.parameters == load_named("mixtral-8x7b-v0.1", 512).parameters


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"model": "Phi-3.5-MoE"}, r"'Phi-3.5-MoE' are not known: .* a family \(Llama 3"),
        ({"model": "grok-2"}, "experts of 'grok-2' are not known"),
        ({"model": "Grok 2", "params_m": 270000}, "experts of 'Grok 2' are not known"),
        ({"model": "Llama 4 Maverick 400B"}, "experts of 'Llama 4 Maverick 400B' are not known"),
        ({"model": "Llama_4_Scout", "params_m": 109000}, "experts of 'Llama_4_Scout' are not"),
        ({"model": "GLM 4.5", "params_m": 355000}, "experts of 'GLM 4.5' are not known"),
        ({"model": "DeepSeek V2", "params_m": 236000}, "experts of 'DeepSeek V2' are not known"),
        ({"model": "Llama-3 MoE 8 experts", "params_m": 9230}, "how many a token takes"),
        ({"model": "MoE 8 experts top-2", "params_m": 9230}, "and a family"),
        ({"model": "Llama-3 MoE 64 experts top-2"}, "params_m, of all experts together"),
        ({"model": "Mixtral 8x7B", "params_m": 7000}, "7,000 million are not the 46,703"),
    ],
)
def test_experts_that_are_not_known_are_refused_with_what_is_missing(
    tmp_path: Path, changes: dict[str, Any], missing: str
) -> None:
    with pytest.raises(Refused, match=missing):
        point(tmp_path, **changes)


@pytest.mark.parametrize(
    "name",
    ["DeepSeek-R1-Distill-Llama-8B", "DeepSeek_R1_Distill_Qwen_7B", "DeepSeek 67B", "Llama-4B",
     "Nemotron-3-Nano-4B"],
)  # fmt: skip
def test_a_dense_model_stays_one_whatever_its_name_shares_with_models_of_experts(
    tmp_path: Path, name: str
) -> None:
    (row,) = rows_of(tmp_path, {"model": name, "params_m": 8000})
    assert not has_experts(row)
    assert "experts" not in choose_model(name, "LLM", 8e9, 4096).data


# -- how ranks share them out, and how tokens are routed ------------------------------------------


@pytest.mark.parametrize(
    "told",
    [
        {"ep": 4},
        {"strategy_detail": "expert parallel 4"},
        {"strategy_detail": "EP4"},
        {"strategy": "FSDP+EP", "notes": "expert parallelism degree 4"},
        {"shard": "EP=4"},
    ],
    ids=str,
)
def test_ranks_that_share_experts_out_are_told_by_column_or_words(
    tmp_path: Path, told: dict[str, Any]
) -> None:
    found = point(tmp_path, **{"shard": ""} | told)
    assert found.data["parallel"]["expert"] == 4
    assert found.case.mesh.expert == 4
    assert found.strategy == "fsdp+ep"


def test_without_a_word_of_it_every_rank_has_all_experts(tmp_path: Path) -> None:
    told = ("", "no expert parallelism", "without EP", "EP not used", "EP: none", "ep 3 of 10")
    for detail in told:
        assert "parallel" not in point(tmp_path, strategy_detail=detail).data
    dense = point(tmp_path, model="Llama-2-7B", strategy_detail="EP4")
    assert "parallel" not in dense.data


def test_expert_parallelism_of_unknown_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="ep: expert parallelism of unknown size"):
        point(tmp_path, strategy="FSDP+EP")
    with pytest.raises(Refused, match="ep: expert parallelism of unknown size"):
        point(tmp_path, strategy_detail="EP no overlap")
    for cell in ("8 or 16", "unknown"):
        (row,) = rows_of(tmp_path, {"ep": cell})
        with pytest.raises(Refused, match=f"ep: '{cell}' is not one number"):
            shared_among(row)
    with pytest.raises(Refused, match="3 does not divide data, 16"):
        _ = point(tmp_path, ep=3).case.mesh


def test_tensor_ranks_have_whole_experts_where_data_ranks_are_too_few(tmp_path: Path) -> None:
    megatron = {"framework": "Megatron-LM", "strategy": "DP+TP+EP", "tp": 4, "dp": 4}
    found = point(tmp_path, **megatron, ep=8)
    assert found.data["parallel"]["expert_tensor"] == 1
    assert any("whole experts" in note for note in found.notes)
    assert "expert_tensor" not in point(tmp_path, **megatron, ep=4).data["parallel"]


@pytest.mark.parametrize(
    ("detail", "moe"),
    [
        ("", None),
        ("force-balanced", {"imbalance": "balanced"}),
        ("dropless, DeepEP", {"imbalance": "dropless", "dispatcher": "once_per_node"}),
        ("capacity factor 1.25", {"capacity": 1.25}),
    ],
)
def test_routing_is_what_the_row_says(
    tmp_path: Path, detail: str, moe: dict[str, Any] | None
) -> None:
    found = point(tmp_path, ep=4, strategy_detail=detail)
    assert found.data.get("moe") == moe
    assumed = "experts are assumed to get as many tokens each, and none is dropped"
    assert (assumed in found.notes) is (moe is None)


@pytest.mark.parametrize("note", ["HBM capacity=80", "memory capacity 80 GB"])
def test_a_capacity_of_memory_is_none_of_experts(tmp_path: Path, note: str) -> None:
    assert "moe" not in point(tmp_path, ep=4, notes=note).data
    told = point(tmp_path, ep=4, notes=f"{note}; capacity factor of 1.5")
    assert told.data["moe"] == {"capacity": 1.5}


def test_experts_that_are_not_packed_are_told_and_widen_what_follows(tmp_path: Path) -> None:
    """Copies that stack experts are not modelled: a run without them is not this one again."""
    told = ({"strategy_detail": "unpacked experts"}, {"strategy_detail": "packed experts"})
    first, other = rows_of(tmp_path, *(DESCRIBED | change for change in told))
    assert any("not packed" in note for note in measured_case(first).notes)
    assert not any("not packed" in note for note in measured_case(other).notes)
    (_, apart), (_, alike) = play_series([first, other]), play_series([other, other])
    assert apart.predicted == pytest.approx(alike.predicted or 0.0)
    assert (apart.high or 0.0) - (apart.low or 0.0) > (alike.high or 0.0) - (alike.low or 0.0)


def test_a_series_of_tpus_is_scored_without_nccl(tmp_path: Path) -> None:
    """NCCL, whose bare all-reduce is a baseline, drives no TPUs: `ici`'s is that of theirs."""
    chips = {"accelerator": "TPU v7x (Ironwood)", "gpus_per_node": 4, "inter_node": ""}
    chips["model"] = "Llama-2-7B"
    rows = rows_of(tmp_path, *(chips | {"total_gpus": n} for n in (64, 256)))
    first, other = play_series(rows)
    assert (first.status, other.status) == ("calibrated", "predicted")
    assert other.scored is not None
    assert set(other.scored.baselines) == {"linear", "alpha_beta", "nccl_bare"}


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("Llama-3 MoE 8 experts top-2", 0.001),
        ("Llama-3 MoE 8 experts top-2", 1),
        ("Llama-3 MoE 100000 experts top-2", 47000),
    ],
)
def test_parameters_that_make_no_such_blocks_are_refused(name: str, millions: float) -> None:
    with pytest.raises(Refused, match=r"params_m: .* make no blocks of \d+ experts of Llama 3"):
        choose_model(name, "LLM", millions * 1e6, 4096)


def test_ranks_that_share_experts_out_need_a_model_that_has_some(tmp_path: Path) -> None:
    dense = {"model": "Llama-2-7B", "notes": ""}
    with pytest.raises(Refused, match="ep: 8 ranks share experts out, but 'Llama-2-7B' has none"):
        point(tmp_path, **dense, ep=8)
    assert "parallel" not in point(tmp_path, **dense, ep=1).data
