"""Words of tables that others publish, each read as its source means it.

The texts are those of MaxText's, FlagPerf's, xtuner's, Megatron-Bridge's and IBM's own tables; what
each means is said where it is asserted.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from dpsim.accuracy.accelerators import as_written
from dpsim.accuracy.platforms import platform
from dpsim.accuracy.training.models import choose_model, stated_size
from dpsim.accuracy.training.scenarios import MeasuredCase, measured_case
from dpsim.accuracy.training.table import TrainingRow, read_table
from dpsim.core.record import Refused

LLAMA: dict[str, Any] = {
    "model": "Llama 3.1 8B", "accelerator": "NVIDIA A100-SXM4-80GB", "gpus_per_node": 8,
    "total_gpus": 8, "batch_per_gpu": 1, "precision": "bf16", "seq_len": 4096, "value": 9,
    "unit": "s",
}  # fmt: skip


def row_of(folder: Path, **changes: Any) -> TrainingRow:
    cells = {**LLAMA, **changes}
    path = folder / "t.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([cells.keys(), cells.values()])
    return read_table(path).rows[0]


def point(folder: Path, **changes: Any) -> MeasuredCase:
    return measured_case(row_of(folder, **changes))


# -- machines -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("NVIDIA_A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"),
        ("nvidia_h100", "nvidia h100"),
        ("8x NVIDIA_H100_80GB_HBM3", "NVIDIA H100 80GB HBM3"),
        ("Tesla_V100_SXM2_32GB", "Tesla V100 SXM2 32GB"),
        ("2x8xH100", "H100"),
        ("16x v5e-256", "tpu v5e-256"),
        ("v5litepod-256", "tpu v5litepod-256"),
        ("TPU v4-128", "TPU v4-128"),
        ("Standard_ND96amsr_A100_v4", "NVIDIA A100 Standard_ND96amsr_A100_v4"),
    ],
)
def test_names_are_read_with_their_vendors_underscore_and_as_google_names_slices(
    text: str, plain: str
) -> None:
    assert as_written(text) == plain


@pytest.mark.parametrize(
    ("text", "chips", "machine"),
    [("v6e-256", 256, "tpu-v6e"), ("1x v4-128", 64, "tpu-v4"), ("1x v4-384", 192, "tpu-v4")],
)
def test_a_slice_of_tpus_by_name(tmp_path: Path, text: str, chips: int, machine: str) -> None:
    found = point(tmp_path, accelerator=text, total_gpus=chips, gpus_per_node="", strategy="FSDP")
    cluster = found.data["cluster"]
    assert (cluster["machine"], cluster["gpus_per_node"]) == (machine, chips)


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("H100 Snellius", 4), ("Jean Zay H100", 4), ("Jean Zay A100", 8), ("NCSA Delta, A100", 4),
        ("HGX A100 4-GPU", 4), ("HGX A100", 8), ("HGX H100 8-GPU (4 GPUs)", 8),
        ("A100 (Delta) 8-way", 8), ("A100 (Delta)", 4),
    ],
)  # fmt: skip
def test_a_node_is_as_large_as_where_the_gpu_is(tmp_path: Path, text: str, gpus: int) -> None:
    found = point(tmp_path, accelerator=text, total_gpus=16, gpus_per_node="")
    assert found.data["cluster"]["gpus_per_node"] == gpus


def test_an_a100_on_azures_v4_is_no_tpu() -> None:
    found = platform(accelerator="A100", gpus_per_node=8, inter_node="ND A100 v4")
    assert found.cluster["machine"] == "nd-a100-v4"


# -- models ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Qwen3_30B_a3B", 30e9), ("Qwen3-235B-A22B", 235e9), ("Qwen3 30B A3B", 30e9),
        ("mpt-7b", 7e9), ("opt1.3b", 1.3e9), ("ResNet-50", None),
    ],
)  # fmt: skip
def test_the_parameters_that_a_token_takes_are_not_the_models(
    name: str, parameters: float | None
) -> None:
    assert stated_size(name) == parameters


@pytest.mark.parametrize("name", ["ViT 22B", "DLRM 24B", "Whisper large 1.5B"])
def test_a_size_beside_another_kind_of_model_is_no_decoder(tmp_path: Path, name: str) -> None:
    said = {"value": 900, "unit": "tokens/s/device", "seq_len": 2048}
    with pytest.raises(Refused):
        point(tmp_path, model=name, **said)


def test_a_size_with_tokens_a_second_is_a_language_model(tmp_path: Path) -> None:
    said = {"value": 900, "unit": "tokens/s/device", "seq_len": 2048}
    found = point(tmp_path, model="16B", **said)
    assert found.data["model"]["sequence_length"] == 2048
    assert found.case.model.sample == "sequence"
    with pytest.raises(Refused, match=r"is not known|only the size"):
        point(tmp_path, model="16B", value=900, unit="images/s", seq_len="")


def test_names_that_say_the_size_first_or_the_pixels_last_are_known() -> None:
    assert choose_model("8B Llama3.1", "", None, 2048).data["huggingface"] == "llama-3.1-8b"
    assert choose_model("ViT-B_16_224", "", None, None).data["name"] == "vit_b_16"
    found = choose_model("Nemotron-4 340B", "", None, 4096).data
    assert (found["hidden"], found["blocks"], found["kv_heads"]) == (18432, 96, 8)


# -- strategies -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "framework", "stage"),
    [
        ("ZeRO-DP O3", "deepspeed", 3), ("ZeRO-DP O1", "deepspeed", 1), ("zero2(dp8)", "", 2),
        ("deepspeed_zero3", "", 3), ("sharding stage2", "PaddlePaddle 2.5", 2),
    ],
)  # fmt: skip
def test_stages_of_zero(tmp_path: Path, words: str, framework: str, stage: int) -> None:
    strategy = point(tmp_path, strategy=words, framework=framework).data["strategy"]
    assert strategy["kind"] == "zero"
    assert int(strategy["stage"]) == stage


def test_experts_under_fsdp_are_modules_unless_fsdp_2_is_said(tmp_path: Path) -> None:
    """In one tensor they would be padded to all ranks: 8 to 64 in each layer."""
    said = {"model": "Mixtral 8x7B", "total_gpus": 64, "value": 60}
    for words, kind in (("FSDP", "fsdp1"), ("FSDP2", "fsdp")):
        assert point(tmp_path, **said, strategy=words).data["strategy"]["kind"] == kind
    assert point(tmp_path, **{**said, "ep": 8}, strategy="FSDP").data["strategy"]["kind"] == "fsdp"


def test_what_a_row_denies_of_shared_sequences_is_not_there(tmp_path: Path) -> None:
    for words in (
        "ZeRO-3 without Ulysses",
        "ZeRO-3, Ulysses off",
        "ZeRO-3, sequence parallel 4k tokens",
    ):
        assert "context" not in point(tmp_path, strategy=words).data.get("parallel", {})
    with pytest.raises(Refused, match="cp is said to be 2 and 4"):
        point(tmp_path, strategy="ZeRO-3, CP2, Ulysses 4")


def test_scaled_dot_products_are_not_hybrid_sharding(tmp_path: Path) -> None:
    found = point(tmp_path, strategy="FSDP", framework="PyTorch, TorchSDPA")
    assert found.data["strategy"]["kind"].startswith("fsdp")
    assert "shard" not in found.data["strategy"]


@pytest.mark.parametrize(
    "words", ["Sequence Parallel 4", "sequence_parallel_size=4", "Ulysses sequence parallel 4"]
)
def test_sequences_that_ranks_share_beside_zero_are_ulysses(tmp_path: Path, words: str) -> None:
    """Not Megatron's, whose tensor ranks are; and not beside them."""
    found = point(tmp_path, strategy=f"ZeRO-3, {words}", framework="xtuner, DeepSpeed")
    assert found.data["parallel"]["context"] == 4
    assert found.data["context"] == {"kind": "ulysses"}
    assert found.case.mesh.holders == 8
    said = {"strategy": "TP4, sequence parallel", "tp": 4, "framework": "Megatron-LM"}
    assert "context" not in point(tmp_path, **said).data["parallel"]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("minimal_with_context", "none"), ("minimal_flash", "none"), ("minimal", "selective"),
        ("save_dot_with_context_except_mlp", "selective"), ("qkv_proj_offloaded", "selective"),
        ("custom: offload decoder_layer_input query_proj", "selective"), ("null", "none"),
        ("custom remat", "none"), ("full", "full"),
    ],
)  # fmt: skip
def test_what_maxtext_keeps_of_a_block(tmp_path: Path, words: str, kind: str) -> None:
    assert point(tmp_path, act_ckpt=words).data["recompute"] == kind


def test_adapters_under_fsdp_are_flattened_as_torch_allows(tmp_path: Path) -> None:
    said = {"strategy": "FSDP FULL_SHARD", "framework": "PyTorch"}
    plain = point(tmp_path, **said).data["strategy"]
    found = point(tmp_path, task="LoRA fine-tuning", **said)
    assert found.data["strategy"] == {**plain, "use_orig_params": True}
    assert any("use_orig_params: true is assumed" in note for note in found.notes)
    four = point(tmp_path, task="QLoRA fine-tuning", **said)
    assert four.data["strategy"] == {"kind": "fsdp"}
    partly = {"strategy": "FSDP SHARD_GRAD_OP", "framework": "PyTorch"}
    four = point(tmp_path, task="QLoRA fine-tuning", **partly)
    assert four.data["strategy"] == {"kind": "fsdp", "reshard_after_forward": False}


# -- pipelines, batches and what is computed again ------------------------------------------------


def test_pipelines_whose_blocks_do_not_divide(tmp_path: Path) -> None:
    """126 blocks in 16 stages of 8 chunks: embedding and loss are a stage each; 32 blocks in 3
    stages are as even as can be."""
    said = {"accelerator": "NVIDIA H100 80GB HBM3", "framework": "Megatron-Bridge", "value": 20}
    large = {"model": "Llama 3.1 405B", "total_gpus": 1024, "tp": 8, "pp": 16, "global_batch": 512}
    stages = point(tmp_path, **said, **large, strategy_detail="VP 8").data["stages"]
    assert (len(stages), len(stages[0]), len(stages[-1])) == (128, 1, 2)
    assert all(len(stage) == len(stages[1]) for stage in stages[1:-1])
    uneven = {"total_gpus": 24, "tp": 8, "pp": 3, "global_batch": 64}
    found = point(tmp_path, **said, **uneven, strategy_detail="1F1B")
    assert found.data["stages"] == "balanced"
    assert any("as equal ones as can be" in note for note in found.notes)


@pytest.mark.parametrize("words", ["VP n/a", "VP -", "VPP none"])
def test_no_virtual_pipeline_is_none(tmp_path: Path, words: str) -> None:
    said = {"tp": 1, "pp": 2, "global_batch": 16, "framework": "NeMo", "strategy_detail": words}
    assert point(tmp_path, **said).data["schedule"]["kind"] == "one_f_one_b"


def test_a_rate_and_the_time_of_a_step_make_a_batch(tmp_path: Path) -> None:
    """1,326.3 tokens a second of each of 256 chips for 24.706 s are 16 sequences of 2,048."""
    said = {
        "accelerator": "TPU v6e", "total_gpus": 256, "batch_per_gpu": "", "seq_len": 2048,
        "value": 1326.307, "unit": "tokens/s/device", "step_time_s": 24.706, "strategy": "FSDP",
    }  # fmt: skip
    found = point(tmp_path, **said, gpus_per_node="", framework="MaxText")
    assert found.case.global_batch == 16 * 256
    odd = point(tmp_path, **{**said, "value": 1400.0}, gpus_per_node="", framework="MaxText")
    assert odd.case.global_batch == 256  # no whole number: the usual batch is assumed


def test_what_has_no_room_is_computed_again_where_nothing_is_said(tmp_path: Path) -> None:
    """4 sequences of 4,096 tokens of Llama-3.1-8B on each of eight A100 have no room; not
    where the row says so, nor of MLPerf's submissions."""
    said = {"strategy": "FSDP2", "batch_per_gpu": 4, "value": 60}
    found = point(tmp_path, **said)
    assert found.data["recompute"] == "full"
    assert any("is assumed to be computed again" in note for note in found.notes)
    for more in (
        {"act_ckpt": "none"}, {"source_repo": "mlcommons/training_results_v5.0"},
        {"strategy_detail": "no gradient checkpointing"},
    ):  # fmt: skip
        assert point(tmp_path, **said, **more).data["recompute"] == "none"
    assert point(tmp_path, strategy="FSDP2", seq_len=512).data["recompute"] == "none"


def test_nvidias_builds_of_torch_multiply_fp32_in_tf32(tmp_path: Path) -> None:
    said = {"precision": "fp32", "value": 60}
    for framework, dtype in (("pytorch-1.13.0a0+936e930", "tf32"), ("pytorch 1.13.0", "fp32")):
        assert point(tmp_path, **said, framework=framework).data["precision"]["compute"] == dtype


@pytest.mark.parametrize(
    ("text", "nics", "gbits"),
    [("100 GbE, NCCL over TCP", 1, 100), ("2x100 GbE bonded (LACP), NCCL over TCP", 2, 100),
     ("2x 25GbE, NCCL via sockets", 2, 25)],
)  # fmt: skip
def test_a_transport_is_no_other_network_than_the_link_beside_it(
    text: str, nics: int, gbits: float
) -> None:
    cluster = platform(accelerator="H100 SXM", gpus_per_node=8, inter_node=text).cluster
    assert cluster["inter_node_kind"] == "ethernet"
    assert cluster["nics_per_node"] == nics
    assert cluster["inter_node_bandwidth"] == f"{gbits} Gbit/s"


@pytest.mark.parametrize(
    ("metric", "of"),
    [("throughput per node", "node"), ("per-node throughput", "node"), ("tokens/s/node", "node"),
     ("throughput (per host)", "host"), ("throughput per worker", "worker"),
     ("throughput per replica", "replica")],
)  # fmt: skip
def test_a_rate_of_a_node_or_a_worker_is_not_that_of_all(
    tmp_path: Path, metric: str, of: str
) -> None:
    two = {"total_gpus": 16, "value": 30_000, "unit": "tokens/s", "metric": metric}
    with pytest.raises(Refused, match=f"is a rate of each {of}; one of all GPUs"):
        point(tmp_path, **two)


def test_a_rate_of_a_rank_is_a_gpus_and_one_of_the_only_node_is_all(tmp_path: Path) -> None:
    told = {"value": 3000, "unit": "tokens/s"}
    each, node, whole = (
        point(tmp_path, **told, metric=metric).step_time
        for metric in ("throughput per rank", "throughput per node", "throughput")
    )
    assert node == whole == pytest.approx(8 * each)
