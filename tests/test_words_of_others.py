"""Words of tables that others wrote: said, denied, and beside something else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from rows import LLAMA, ROW, measured, row_of

from dpsim.accuracy.training.columns import plain_unit
from dpsim.accuracy.training.series import play_series
from dpsim.accuracy.training.table import read_table
from dpsim.core.record import Refused

IMAGES = {
    "framework": "TensorFlow 1.13 tf_cnn_benchmarks", "accelerator": "V100-SXM2-16GB",
    "total_gpus": "4", "gpus_per_node": "4", "nodes": "1", "precision": "FP16",
}  # fmt: skip


def _strategy(folder: Path, **cells: str) -> dict[str, Any]:
    found = measured(folder, **{**LLAMA, **cells}).data["strategy"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("samples_per_sec", "samples/s"),
        ("tokens_per_second_per_gpu", "tokens/s/gpu"),
        ("Seconds per step", "s/step"),
        ("milliseconds per iteration", "ms/it"),
        ("img_per_sec", "img/s"),
        ("img-per-sec", "img/s"),
        ("tokens-per-second", "tokens/s"),
        ("not_samples_per_sec", "not_samples_per_sec"),
        ("eval_samples_per_second", "eval_samples_per_second"),
        ("samples_per_sec and tokens_per_sec", "samples_per_sec and tokens_per_sec"),
        ("images/s (unit not printed)", "images/s"),
        ("sec/step", "sec/step"),
        ("micro_batches per parsec", "micro_batches per parsec"),
    ],
)
def test_words_of_a_unit_may_be_joined_or_written_out(text: str, unit: str) -> None:
    assert plain_unit(text) == unit


@pytest.mark.parametrize(
    ("strategy", "bits"),
    [
        ("LoRA", None),
        ("LoRA (multinode)", None),
        ("LoRA Fine-tune", None),
        ("SFT + LoRA", None),
        ("LoRA r=16, single GPU", None),
        ("Q-LoRA", "nf4"),
        ("QLora (int4)", "nf4"),
        ("4-bit LoRA", "nf4"),
        ("QLoRA, not LoRA", "nf4"),
        ("LoRA (int8)", "int8"),
        ("LoRA, no QLoRA", None),
        ("LoRA, no Q-LoRA", None),
    ],
)
def test_a_strategy_that_names_adapters_alone_is_data_parallel(
    tmp_path: Path, strategy: str, bits: str | None
) -> None:
    found = measured(tmp_path, **LLAMA, strategy=strategy).data
    assert found["strategy"] == {"kind": "ddp"}
    assert found["model"]["adapters"]["kind"] == "lora"
    assert found["model"]["adapters"].get("base_dtype") == bits


@pytest.mark.parametrize(
    ("strategy", "rank", "targets"),
    [
        ("LoRA rank 8", 8, 4), ("LoRA r=8 alpha=32", 8, 4), ("LoRA (r=8, alpha=16)", 8, 4),
        ("LoRA r64 a32", 64, 4), ("LoRA: lora_r=8 lora_alpha=32", 8, 4), ("LoRA rank64", 64, 4),
        ("LoRA rank=8, alpha=32, dropout=0.05", 8, 4), ("QLoRA rank-64", 64, 4),
        ("DDP, one GPU per rank 8 LoRA", 16, 4),
        ("LoRA r=64, all linear layers", 64, 7), ("FSDP, LoRA r64", 64, 4),
        ("LoRA alpha 32", 16, 4),  # which says nothing of their rank
    ],
)  # fmt: skip
def test_a_strategy_tells_how_large_adapters_are(
    tmp_path: Path, strategy: str, rank: int, targets: int
) -> None:
    found = measured(tmp_path, **LLAMA, strategy=strategy).data["model"]["adapters"]
    assert (found["rank"], len(found["targets"])) == (rank, targets)


def test_adapters_of_more_than_a_model_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="rank: 99999 is not in 1"):
        measured(tmp_path, **LLAMA, strategy="DDP", strategy_detail="LoRA rank 99999")


@pytest.mark.parametrize(
    "strategy",
    [
        "Full-parameter", "Full Fine-tune", "full finetuning", "SFT",
        "Full parameters (multi-node)", "Full fine-tuning, no LoRA", "full finetuning (not Q-LoRA)",
        "no LoRA", "not LoRA", "full finetune (vs LoRA 2x)",
    ],
)  # fmt: skip
def test_a_strategy_that_names_all_parameters_is_data_parallel(
    tmp_path: Path, strategy: str
) -> None:
    found = measured(tmp_path, **LLAMA, strategy=strategy).data
    assert found["strategy"] == {"kind": "ddp"}
    assert "adapters" not in found["model"]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ({"strategy": "LoRA + FSDP"}, "fsdp"),
        ({"strategy": "LoRA", "strategy_detail": "FSDP"}, "fsdp"),
        ({"strategy": "Full Fine-tune", "framework": "DeepSpeed ZeRO-2"}, "zero"),
        ({"strategy": "SFT", "framework": "Megatron-LM"}, "megatron"),
        ({"strategy": "LoRA", "framework": "torchtune"}, "fsdp"),
        ({"strategy": "Full Fine-tune", "framework": "torchtune", "strategy_detail": "DDP"}, "ddp"),
        ({"strategy": "LoRA", "framework": "torchtune", "total_gpus": "1", "gpus_per_node": "1"},
         "ddp"),
    ],
)  # fmt: skip
def test_who_names_what_is_trained_beside_a_strategy_has_that(
    tmp_path: Path, cells: dict[str, str], kind: str
) -> None:
    assert _strategy(tmp_path, **cells)["kind"] == kind


@pytest.mark.parametrize(
    "strategy", ["not Q-LoRA", "SFT with DPO", "LoRA + pipeline", "LoRA, no DDP, GaLore"]
)
def test_what_else_stands_beside_adapters_is_not_guessed(tmp_path: Path, strategy: str) -> None:
    with pytest.raises(Refused, match=r"not known|read as LoRA alone|more than a forward"):
        measured(tmp_path, **LLAMA, strategy=strategy)


def test_bits_of_an_optimizer_are_not_the_adapters_model_s(tmp_path: Path) -> None:
    found = measured(tmp_path, **LLAMA, strategy="LoRA", strategy_detail="LoRA 8-bit Adam").data
    assert "base_dtype" not in found["model"]["adapters"]


@pytest.mark.parametrize(
    ("strategy", "framework", "stage"),
    [
        ("zero-level 1", "llmq", 1),
        ("zero level 2", "llmq", 2),
        ("ZeRO_stage 1", "llmq", 1),
        ("zero (stage 3)", "llmq", 3),
        ("no zero-level 1", "llmq", None),
        ("DDP, no ZeRO stage 3", "DeepSpeed", None),
        ("DDP without ZeRO_stage 1", "llmq", None),
        ("Stage-3", "DeepSpeed", 3),
        ("stage 2", "accelerate (DeepSpeed)", 2),
        ("Stage 1 + LoRA", "DeepSpeed", 1),
        ("Stage-3 offload optimizer", "DeepSpeed", 3),
        ("DDP, not stage 3", "DeepSpeed", None),
    ],
)
def test_a_stage_of_zero_may_be_its_level_or_stand_alone(
    tmp_path: Path, strategy: str, framework: str, stage: int | None
) -> None:
    found = _strategy(tmp_path, strategy=strategy, framework=framework)
    assert (found["kind"], found.get("stage")) == ("zero" if stage else "ddp", stage)


@pytest.mark.parametrize(
    ("strategy", "framework"),
    [("Stage-3", "PyTorch"), ("stage 2 of training", "DeepSpeed"), ("no stage 3", "DeepSpeed")],
)
def test_a_stage_of_something_else_is_not_read(
    tmp_path: Path, strategy: str, framework: str
) -> None:
    with pytest.raises(Refused, match=r"not known|only says what it is not"):
        _strategy(tmp_path, strategy=strategy, framework=framework)


@pytest.mark.parametrize(
    ("strategy", "detail", "quoted"),
    [
        ("Stage-3 offload optimizer and params", "", "Stage-3 offload optimizer and params"),
        ("data parallel", "ZeRO-3, parameter offload", "ZeRO-3, parameter offload"),
        ("ZeRO-3", "offload_param: cpu", "offload_param: cpu"),
    ],
)
def test_offloaded_parameters_are_refused_quoting_the_cell_that_says_so(
    tmp_path: Path, strategy: str, detail: str, quoted: str
) -> None:
    with pytest.raises(Refused, match="offloading parameters is not modelled") as error:
        _strategy(tmp_path, strategy=strategy, strategy_detail=detail, framework="DeepSpeed")
    assert f"({quoted})" in str(error.value)


@pytest.mark.parametrize(
    ("strategy", "offloads"),
    [
        ("Stage-3 offload optimizer, no param offload", True),
        ("Stage-3, offload_param: none", False),
        ("Stage-3 offload optimizer", True),
    ],
)
def test_parameters_that_are_not_offloaded_are_no_reason_to_refuse(
    tmp_path: Path, strategy: str, offloads: bool
) -> None:
    found = _strategy(tmp_path, strategy=strategy, framework="DeepSpeed")
    assert (found["stage"], "offload_optimizer" in found) == (3, offloads)


@pytest.mark.parametrize(
    ("strategy", "kind"),
    [
        ("variable-update=replicated", "ddp"),
        ("variable_update=replicated use-fp16", "ddp"),
        ("variable-update=horovod", "horovod"),
        ("variable-update=parameter_server", "ddp"),
        ("parameters server at CPU", "ddp"),
        ("parameter servers", "ddp"),
        ("Horovod, no parameter servers", "horovod"),
    ],
)
def test_variables_of_tensorflow_s_benchmark(tmp_path: Path, strategy: str, kind: str) -> None:
    found = measured(tmp_path, **IMAGES, strategy=strategy)
    assert (found.data["strategy"]["kind"], found.data["collective"]["backend"]) == (kind, "nccl")
    told = "parameters in the host of one node" in " ".join(found.notes)
    assert told == strategy.endswith("CPU")


@pytest.mark.parametrize("strategy", ["parameters server at CPU", "parameter server on the hosts"])
def test_hosts_of_several_nodes_serve_no_parameters(tmp_path: Path, strategy: str) -> None:
    cells = {**IMAGES, "nodes": "2", "total_gpus": "8", "inter_node": "100 Gbit/s RoCE"}
    with pytest.raises(Refused, match="own hosts is read in one node"):
        measured(tmp_path, **cells, strategy=strategy)


def test_parameter_servers_push_between_nodes(tmp_path: Path) -> None:
    cells = {**IMAGES, "nodes": "2", "total_gpus": "8", "inter_node": "100 Gbit/s RoCE"}
    found = measured(tmp_path, **cells, strategy="parameter servers")
    assert found.data["collective"]["backend"] == "parameter_server"


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("variable-update=distributed_replicated", "on the workers' own devices"),
        ("parameters server at GPU", "on the workers' own devices"),
        ("no parameter servers", "only says what it is not"),
        ("not replicated", "not known"),
    ],
)
def test_other_places_of_variables_are_refused(tmp_path: Path, strategy: str, message: str) -> None:
    with pytest.raises(Refused, match=message):
        measured(tmp_path, **IMAGES, strategy=strategy)


@pytest.mark.parametrize(
    ("act_ckpt", "recompute"),
    [
        ("ac", "full"), ("AC", "full"), ("ckpt", "full"), ("recomp", "full"), ("full AC", "full"),
        ("grad ckpt", "full"), ("AC: on", "full"),
        ("no AC", "none"), ("w/o ckpt", "none"), ("without recomp", "none"), ("AC=false", "none"),
        ("recomp off", "none"), ("AC: no", "none"),
        ("selective AC", "selective"), ("selective ckpt", "selective"),
    ],
)  # fmt: skip
def test_recomputation_in_short(tmp_path: Path, act_ckpt: str, recompute: str) -> None:
    assert measured(tmp_path, **LLAMA, act_ckpt=act_ckpt).data["recompute"] == recompute


@pytest.mark.parametrize("act_ckpt", ["AC 8 of 32 layers", "ckpt every 2 h", "accumulate"])
def test_what_is_no_recomputation_in_short_is_not_read(tmp_path: Path, act_ckpt: str) -> None:
    with pytest.raises(Refused, match="act_ckpt"):
        measured(tmp_path, **LLAMA, act_ckpt=act_ckpt)


PIPELINE = {
    **LLAMA, "framework": "Megatron-Core", "total_gpus": "16", "nodes": "2", "global_batch": "16",
    "tp": "2", "pp": "4",
}  # fmt: skip


@pytest.mark.parametrize(
    ("strategy", "detail", "chunks"),
    [
        ("TP2 PP4 VPP2", "", 2),
        ("TP2 PP4 vp 2", "", 2),
        ("TP2 PP4, interleave 4", "", 4),
        ("TP2 PP4 VPP2", "DeepEP +1f1b overlap", 2),
        ("TP2 PP4", "1f1b A2A overlap, vpp 4", 4),
        ("TP2 PP4", "1f1b overlap", 8),
        ("TP2 PP4", "", 8),
        ("TP2 PP4, no VPP", "", 1),
        ("TP2 PP4", "no VPP4", 1),
        ("TP2 PP4, without interleaving", "", 1),
        ("TP2 PP4", "1f1b", 1),
    ],
)
def test_chunks_of_a_pipeline_may_stand_in_the_strategy(
    tmp_path: Path, strategy: str, detail: str, chunks: int
) -> None:
    cells = {**PIPELINE, "strategy": strategy, "strategy_detail": detail}
    schedule = measured(tmp_path, **cells).data["schedule"]
    assert schedule.get("chunks", 1) == chunks
    assert schedule["kind"] == ("interleaved_1f1b" if chunks > 1 else "one_f_one_b")


def test_two_numbers_of_chunks_contradict(tmp_path: Path) -> None:
    cells = {**PIPELINE, "strategy": "TP2 PP4 VPP2", "strategy_detail": "4 chunks"}
    with pytest.raises(Refused, match="said to hold 2 and 4 chunks"):
        measured(tmp_path, **cells)


@pytest.mark.parametrize(
    ("strategy", "detail", "compiled"),
    [
        ("replicated use-xla-compile", "", True),
        ("variable-update=replicated use-xla-compile", "", True),
        ("replicated", "use_xla", True),
        ("replicated + XLA", "synthetic", True),
        ("replicated", "", False),
        ("replicated, no XLA", "", False),
        ("replicated without use-xla-compile", "", False),
        ("replicated use-xla-compile: false", "", False),
        ("replicated", "XLA off", False),
    ],
)
def test_xla_counts_in_both_columns_of_the_strategy(
    tmp_path: Path, strategy: str, detail: str, compiled: bool
) -> None:
    found = measured(tmp_path, **IMAGES, strategy=strategy, strategy_detail=detail).data
    assert found["execution"]["compile"] is compiled


@pytest.mark.parametrize(
    ("strategy", "compiled"),
    [("DDP + torch.compile", True), ("DDP + XLA", True), ("DDP, no torch.compile", False)],
)
def test_compilers_of_texts_count_in_the_strategy(
    tmp_path: Path, strategy: str, compiled: bool
) -> None:
    found = measured(tmp_path, **LLAMA, strategy=strategy).data
    assert found["execution"] == {"compile": compiled}


@pytest.mark.parametrize(
    ("framework", "sharded", "chunks"),
    [
        ("Nvidia EOS (NeMo)", True, 8),
        ("NeMo 2.0", True, 8),
        ("MBridge", True, 8),
        ("MegaScale", False, 1),
        ("BERT-Megatron", False, 1),
        ("Megatron-LM (not NeMo)", False, 1),
    ],
)
def test_codes_on_megatron_have_its_exchange(
    tmp_path: Path, framework: str, sharded: bool, chunks: int
) -> None:
    cells = {**PIPELINE, "framework": framework, "strategy": "data parallel, TP2 PP4"}
    found = measured(tmp_path, **cells)
    assert found.data["strategy"]["kind"] == "megatron"
    assert found.data["strategy"].get("use_distributed_optimizer", False) is sharded
    assert found.data["schedule"].get("chunks", 1) == chunks
    assert "own gradient exchange" not in " ".join(found.notes)


@pytest.mark.parametrize(
    "framework",
    [
        "PyTorch (bionemo)",
        "PyTorch, no Megatron",
        "PyTorch, not MegaScale",
        "PyTorch, no NeMo",
        "PyTorch, NeMo, HugeCTR, DGL NVIDIA Release 24.09",
    ],
)
def test_other_codes_do_not(tmp_path: Path, framework: str) -> None:
    assert _strategy(tmp_path, framework=framework, strategy="DDP")["kind"] == "ddp"


@pytest.mark.parametrize(
    ("accelerator", "message"),
    [
        ("AWS p2.16xlarge (8 V100s, 16G memory each)", "p2 instances hold K80s"),
        ("p3.16xlarge, A100", "p3 instances hold V100s"),
        ("p4d.24xlarge (8 H100)", "p4 instances hold A100s"),
        ("g4dn.metal with V100", "g4dn instances hold T4s"),
        ("Intel Data Center GPU Max 1550 (Aurora)", "Intel's Data Center GPU Max is not modelled"),
        ("Ponte Vecchio", "Intel's Data Center GPU Max is not modelled"),
        ("GTX 1070 (7gforce)", "not modelled; the nearest is gtx1080"),
        ("GTX 1060 6GB", "not modelled; the nearest is gtx1080"),
        ("not MI300, MI250X", "says what the accelerator is not"),
        ("MI300A", "MI300A is not modelled; the nearest is mi300x"),
        ("RTX 2070 (lab)", "the nearest are rtx2080ti"),
    ],
)
def test_accelerators_are_refused_by_name(tmp_path: Path, accelerator: str, message: str) -> None:
    with pytest.raises(Refused, match=message):
        measured(tmp_path, accelerator=accelerator)


@pytest.mark.parametrize(
    ("accelerator", "device"),
    [
        ("p3.16xlarge (8 V100s, 16G memory each)", "Tesla V100-SXM2-16GB"),
        ("8 V100s", "Tesla V100-SXM2-16GB"),
        ("8x V100s", "Tesla V100-SXM2-16GB"),
        ("8x V100S", "Tesla V100-PCIE-32GB"),
        ("V100S", "Tesla V100-PCIE-32GB"),
        ("p4d.24xlarge A100", "A100-SXM4-40GB"),
        ("data center GPU A100 of 80 GB", "A100-SXM4-80GB"),
        ("GTX 1080", "GeForce GTX 1080"),
        ("MI300 192GB", "MI300X"),
    ],
)
def test_accelerators_beside_other_words_are_read(
    tmp_path: Path, accelerator: str, device: str
) -> None:
    found = measured(tmp_path, accelerator=accelerator).case.device
    assert found is not None
    assert found.name == device


def test_mi300_in_nodes_of_eight_is_mi300x(tmp_path: Path) -> None:
    found = measured(tmp_path, accelerator="MI300")
    assert "MI300 in a node of eight is taken as MI300X." in found.notes
    assert not any("is taken" in n for n in measured(tmp_path, accelerator="MI300X").notes)
    with pytest.raises(Refused, match="in nodes of 8 alone, as mi300x"):
        measured(tmp_path, accelerator="MI300", gpus_per_node="4", total_gpus="4")


_DTYPE, _ALL = "if it ran in a faster dtype", "or is this the rate of all GPUs?"


@pytest.mark.parametrize(
    ("cells", "said", "unsaid"),
    [
        ({"batch_per_gpu": "", "value": "0.01", "unit": "s"},
         ["the batch is not stated, and 1 per GPU is assumed"], [_DTYPE, _ALL]),
        ({"batch_per_gpu": "8", "value": "0.1", "unit": "s"}, [_DTYPE], ["not stated", _ALL]),
        ({"value": "2000", "unit": "tokens/s/gpu"}, [_DTYPE, _ALL], ["not stated"]),
        ({"value": "2000", "unit": "tokens/s", "metric": "throughput per GPU"}, [_ALL], []),
        ({"batch_per_gpu": "", "value": "1", "unit": "samples/s/gpu"},
         ["the batch is not stated", _ALL], [_DTYPE]),
        ({"value": "480000", "unit": "tokens/s"}, [_DTYPE], [_ALL]),
        ({"value": "600000", "unit": "tokens/s/gpu"}, [_DTYPE], [_ALL]),
        ({"value": "2000", "unit": "tokens/s/gpu", "total_gpus": "1", "gpus_per_node": "1"},
         [_DTYPE], [_ALL]),
    ],
)  # fmt: skip
def test_what_is_faster_than_its_device_is_told_what_may_be_wrong(
    tmp_path: Path, cells: dict[str, str], said: list[str], unsaid: list[str]
) -> None:
    row = row_of(tmp_path, **{**LLAMA, "strategy": "FSDP", "precision": "FP32", **cells})
    (found,) = play_series([row], "none")
    assert found.status == "refused"
    assert all(text in found.reason for text in said)
    assert not any(text in found.reason for text in unsaid)


@pytest.mark.parametrize(
    ("cells", "said", "asked"),
    [
        ({"model": "Llama-2-7B", "value": "60000", "unit": "tokens/s/gpu"}, "", True),
        ({"model": "Llama-2-7B", "value": "480000", "unit": "tokens/s"}, "", False),
        ({"model": "ResNet-50", "value": "20000", "unit": "images/s/gpu", "batch_per_gpu": ""},
         "a batch of 64 per GPU is assumed", True),
    ],
)  # fmt: skip
def test_a_calibration_row_is_told_so_too(
    tmp_path: Path, cells: dict[str, str], said: str, asked: bool
) -> None:
    texts = {**LLAMA, "strategy": "FSDP"} if "Llama" in cells["model"] else {}
    (found,) = play_series([row_of(tmp_path, **{**texts, **cells})], "smallest")
    assert found.status == "refused"
    assert said in found.reason
    assert (_ALL in found.reason) is asked


def test_what_is_possible_is_not_asked(tmp_path: Path) -> None:
    cells = {**LLAMA, "params_m": "6738", "strategy": "FSDP", "batch_per_gpu": ""}
    row = row_of(tmp_path, **cells, value="3000", unit="tokens/s/gpu")
    (found,) = play_series([row], "none")
    assert found.status == "predicted"
    assert "is not stated, and" not in found.reason


@pytest.mark.parametrize(
    "words",
    ["use_lora=False", "use_lora: false", "not using LoRA", "LoRA n/a", "lora_rank=0",
     "--lora_r 0", "LoRA was not applied", "never LoRA", "instead of LoRA full fine-tuning",
     "tried LoRA, not used", "LoRA r=0"],
)  # fmt: skip
def test_adapters_that_are_switched_off_are_none(tmp_path: Path, words: str) -> None:
    found = measured(tmp_path, **LLAMA, strategy="DDP", strategy_detail=words).data["model"]
    assert "adapters" not in found
    other = measured(tmp_path, **LLAMA, strategy="DDP", strategy_detail="lora_rank=8")
    assert other.data["model"]["adapters"]["rank"] == 8


@pytest.mark.parametrize(
    "cells",
    [
        {"strategy": "FSDP full fine-tuning (LoRA comparison: 2x faster)"},
        {"strategy": "FSDP, isn't LoRA"}, {"strategy": "FSDP, 2x slower than LoRA"},
        {"strategy_detail": "full-rank; LoRA is 2x faster"},
        {"task": "full fine-tuning (LoRA in other table)"}, {"task": "SFT", "notes": "LoRA failed"},
        {"model": "Llama-3-8B full (vs LoRA)"}, {"task": "full fine-tuning", "notes": "LoRA r=64"},
    ],
)  # fmt: skip
def test_adapters_that_another_run_has_are_none(tmp_path: Path, cells: dict[str, str]) -> None:
    assert "adapters" not in measured(tmp_path, **{**LLAMA, **cells}).data["model"]


def test_which_run_has_adapters_is_asked(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="compares LoRA with another run, and which"):
        measured(tmp_path, **LLAMA, strategy="FSDP + LoRA vs full")
    own = measured(tmp_path, **LLAMA, strategy="FSDP LoRA (2x faster than full)")
    assert own.data["model"]["adapters"]["rank"] == 16


@pytest.mark.parametrize(
    ("notes", "rank"), [("LoRA r=64", 64), ("using LoRA, rank 8; packed", 8), ("LoRA. New", 16)]
)
def test_notes_tell_adapters_by_themselves(tmp_path: Path, notes: str, rank: int) -> None:
    found = measured(tmp_path, **LLAMA, task="fine-tuning", notes=notes).data["model"]
    assert found["adapters"]["rank"] == rank


def test_bits_beside_adapters_are_the_frozen_models_and_no_gradients(tmp_path: Path) -> None:
    found = measured(tmp_path, **LLAMA, strategy="DDP", strategy_detail="LoRA, quantized int8").data
    assert found["strategy"] == {"kind": "ddp"}
    assert found["model"]["adapters"]["base_dtype"] == "int8"


@pytest.mark.parametrize("words", ["VPP: off", "VPP disabled", "VPP not used", "vpp=0", "VPP no"])
def test_chunks_that_are_switched_off_are_none(tmp_path: Path, words: str) -> None:
    own = {"model": "GPT-3 175B", "framework": "Megatron-LM", "tp": "2", "pp": "4",
           "total_gpus": "64", "global_batch": "64", "strategy": "TP+PP"}  # fmt: skip
    found = measured(tmp_path, **{**LLAMA, **own}, strategy_detail=words).data["schedule"]
    assert found == {"kind": "one_f_one_b"}
    said = measured(tmp_path, **{**LLAMA, **own}, strategy_detail="VPP 2").data["schedule"]
    assert said == {"kind": "interleaved_1f1b", "chunks": 2}


@pytest.mark.parametrize(
    ("strategy", "beside"),
    [("Stage 2", "no DeepSpeed"), ("Stage 2", "DeepSpeed not used"), ("Stage 2 (SFT)", "DeepSpeed"),
     ("stage 2: SFT", "DeepSpeed"), ("Stage 1 alignment", "DeepSpeed")],
)  # fmt: skip
def test_stages_that_are_none_of_zero_are_not_known(
    tmp_path: Path, strategy: str, beside: str
) -> None:
    assert _strategy(tmp_path, strategy="Stage 2", strategy_detail="DeepSpeed")["kind"] == "zero"
    with pytest.raises(Refused, match="is not known"):
        _strategy(tmp_path, strategy=strategy, strategy_detail=beside)


def test_recipes_that_shard_do_not_where_that_is_denied(tmp_path: Path) -> None:
    own = {"strategy": "Full-parameter", "framework": "torchtune"}
    assert _strategy(tmp_path, **own)["kind"] == "fsdp"
    assert _strategy(tmp_path, **own, strategy_detail="no FSDP")["kind"] == "ddp"
    assert _strategy(tmp_path, **{**own, "framework": "not torchtune"})["kind"] == "ddp"


@pytest.mark.parametrize(
    "words",
    ["recompute=1 layer", "recompute:full layers 2", "recompute-num-layers 4",
     "recompute: 4 of 32 layers", "recompute 50%", "recompute 3.5 layers",
     "full except last 2 layers", "activation checkpointing for half of layers",
     "activation checkpointing every other layer", "full, but the first 4 blocks"],
)  # fmt: skip
def test_blocks_of_which_some_compute_again_are_refused(tmp_path: Path, words: str) -> None:
    for column in ("strategy_detail", "act_ckpt"):
        with pytest.raises(Refused, match="a part of the blocks, is not played"):
            measured(tmp_path, **LLAMA, **{column: words})
    assert measured(tmp_path, **LLAMA, act_ckpt="full").data["recompute"] == "full"


@pytest.mark.parametrize(
    ("words", "recompute"),
    [
        ("full recompute, method=uniform, num layers=0", "none"),
        ("recompute_num_layers 0", "none"),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 0", "none"),
        ("recompute: 0 of 32 layers", "none"), ("recompute 0%", "none"),
        ("recompute-granularity selective, recompute-num-layers 0", "selective"),
    ],
)  # fmt: skip
def test_no_block_that_computes_again_is_no_recomputation(
    tmp_path: Path, words: str, recompute: str
) -> None:
    for column in ("strategy_detail", "act_ckpt"):
        assert measured(tmp_path, **LLAMA, **{column: words}).data["recompute"] == recompute


@pytest.mark.parametrize(
    "words",
    ["activation checkpointing not needed", "recompute is not required",
     "gradient checkpointing wasn't applied"],
)  # fmt: skip
def test_recomputation_that_is_not_needed_is_none(tmp_path: Path, words: str) -> None:
    for column in ("strategy_detail", "act_ckpt"):
        assert measured(tmp_path, **LLAMA, **{column: words}).data["recompute"] == "none"


@pytest.mark.parametrize(
    "words", ["--grad-checkpointing (default)", "gradcp", "grad_cp=1", "cp (checkpointing)",
              "act checkpointing"]
)  # fmt: skip
def test_checkpointing_in_short_is_recomputation(tmp_path: Path, words: str) -> None:
    assert measured(tmp_path, **{**LLAMA, "act_ckpt": words}).data["recompute"] == "full"


@pytest.mark.parametrize(
    "words", ["--no-grad-checkpointing", "--no-gradient-checkpointing", "grad_cp=0",
              "gradient_checkpointing: null", "gradient_checkpointing=n",
              "gradient_checkpointing_disable()", "checkpointing: never"]
)  # fmt: skip
def test_checkpointing_that_is_off_is_none(tmp_path: Path, words: str) -> None:
    assert measured(tmp_path, **{**LLAMA, "act_ckpt": words}).data["recompute"] == "none"


@pytest.mark.parametrize("words", ["cp 2", "full except attention", "all but attention"])
def test_contexts_and_parts_of_blocks_are_refused(tmp_path: Path, words: str) -> None:
    with pytest.raises(Refused, match="act_ckpt"):
        measured(tmp_path, **{**LLAMA, "act_ckpt": words})


@pytest.mark.parametrize(
    ("words", "parameters", "compute"),
    [
        ("fp32, not bf16", "fp32", "tf32"), ("fp32 (no bf16)", "fp32", "tf32"),
        ("fp32 instead of bf16", "fp32", "tf32"), ("bf16, not fp16", "bf16", "bf16"),
        ("bf16 autocast", "fp32", "bf16"), ("torch.autocast(bf16)", "fp32", "bf16"),
        ("fp16 without AMP", "fp16", "fp16"), ("fp16, no mixed precision", "fp16", "fp16"),
        ("fp32 weights, compute fp16", "fp32", "fp16"),
        ("params fp32, compute bf16", "fp32", "bf16"),
    ],
)  # fmt: skip
def test_what_is_denied_is_no_precision_and_weights_may_have_another(
    tmp_path: Path, words: str, parameters: str, compute: str
) -> None:
    found = measured(tmp_path, precision=words).data["precision"]
    assert (found["parameters"], found["compute"]) == (parameters, compute)


@pytest.mark.parametrize("words", ["DDP, no FSDP", "DDP not FSDP", "DDP rather than FSDP"])
def test_sharding_that_is_denied_tells_no_precision(tmp_path: Path, words: str) -> None:
    plain, denied = (
        measured(tmp_path, **{**LLAMA, "precision": "bf16", "strategy": strategy}).data
        for strategy in ("DDP", words)
    )
    assert denied["precision"] == plain["precision"]
    assert denied["strategy"] == plain["strategy"]


def test_recomputation_of_another_run_is_none(tmp_path: Path) -> None:
    for words in ("compared to activation checkpointing", "faster than with full recompute"):
        assert measured(tmp_path, **LLAMA, strategy_detail=words).data["recompute"] == "none"
    own = measured(tmp_path, **LLAMA, strategy_detail="full recompute (slower than without)")
    assert own.data["recompute"] == "full"
    with pytest.raises(Refused, match="compares two runs, and which of them was measured"):
        measured(tmp_path, **LLAMA, strategy_detail="activation checkpointing vs none")


def test_a_kernel_that_is_named_beside_a_denied_one_counts(tmp_path: Path) -> None:
    own = {**LLAMA, "framework": "PyTorch 2.1"}
    denied = measured(tmp_path, **own, strategy_detail="no flash attention").data["model"]
    other = measured(tmp_path, **own, strategy_detail="not flash attention, but sdpa").data["model"]
    assert denied["attention"] == "eager"
    assert "attention" not in other


@pytest.mark.parametrize(
    ("cells", "size"),
    [
        ({"model": "ViT-B/16 at 384"}, 384), ({"model": "ViT-B/16@384"}, 384),
        ({"model": "ViT-B/16-384"}, 384), ({"model": "ViT-B/16, resolution 384"}, 384),
        ({"model": "ViT-B/16 img_size=384"}, 384), ({"model": "ViT-B/16 res 384"}, 384),
        ({"model": "ResNet-50@128"}, 128), ({"model": "ResNet-50 @ 160"}, 160),
        ({"task": "ImageNet at 128"}, 128), ({"notes": "AMP; 128x128 images"}, 128),
        ({"notes": "image size: 160x160"}, 160), ({"notes": "tried 128x128, slower"}, None),
        ({"model": "ResNet-50 at 256 GPUs"}, None), ({"model": "ResNet-50 v1.5"}, None),
    ],
)  # fmt: skip
def test_images_are_as_large_as_a_row_says(
    tmp_path: Path, cells: dict[str, str], size: int | None
) -> None:
    assert measured(tmp_path, **cells).data["model"].get("image_size") == size


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"model": "ResNet-50, 448"}, "448 in 'resnet-50, 448' may be the size of images"),
        ({"model": "ResNet-50 (128)"}, "'128 px' or '128x128' is read"),
        ({"model": "ResNet-50 1024x512"}, "images of 1024x512 pixels are not read"),
        ({"task": "ImageNet 1024x512"}, "square ones are"),
    ],
)
def test_what_may_be_a_size_of_images_is_asked(
    tmp_path: Path, cells: dict[str, str], message: str
) -> None:
    with pytest.raises(Refused, match=re.escape(message)):
        measured(tmp_path, **cells)


@pytest.mark.parametrize(
    ("notes", "last"),
    [
        ("channels_last did not help", False), ("tried channels_last, slower", False),
        ("channels last gives 20% more", False), ("AMP; channels last", True),
        ("memory_format=channels_last", True), ("using NHWC. DALI", True),
        ("channels_last disabled", False), ("NCHW", False),
    ],
)  # fmt: skip
def test_notes_tell_a_layout_by_themselves(tmp_path: Path, notes: str, last: bool) -> None:
    found = measured(tmp_path, precision="amp", notes=notes).data["execution"]
    assert found["channels_last"] is last


@pytest.mark.parametrize(
    ("accelerator", "gpus"),
    [
        ("g5.12xl", 4), ("g5.12x", 4), ("g6.12xl", 4), ("g6e.24xl", 4), ("A10G, g5.12x", 4),
        ("g5.xl", 1), ("p3.8x", 4), ("GH200", 4), ("Alps GH200", 4), ("GB10", 1), ("DGX Spark", 1),
    ],
)  # fmt: skip
def test_nodes_hold_what_machines_do_however_short_their_names(
    tmp_path: Path, accelerator: str, gpus: int
) -> None:
    own = {"accelerator": accelerator, "gpus_per_node": "", "total_gpus": "16"}
    case = measured(tmp_path, **own, precision="amp").case
    assert case.topology is not None
    assert case.topology.gpus == gpus


@pytest.mark.parametrize(
    "strategy", ["DDP, TP disabled", "DDP (tensor parallelism off)", "DDP, pipeline parallel: none"]
)
def test_ranks_that_are_said_to_share_nothing_do_not(tmp_path: Path, strategy: str) -> None:
    assert _strategy(tmp_path, strategy=strategy) == {"kind": "ddp"}


@pytest.mark.parametrize(
    ("cells", "parameters", "compute"),
    [
        ({"precision": "32"}, "fp32", "tf32"), ({"precision": "16"}, "fp16", "fp16"),
        ({"precision": "32-true"}, "fp32", "tf32"), ({"precision": "16-mixed"}, "fp32", "fp16"),
        ({"precision": "16", "framework": "PyTorch Lightning 1.9"}, "fp32", "fp16"),
        ({"precision": "O1"}, "fp32", "fp16"), ({"precision": "O2"}, "fp16", "fp16"),
        ({"precision": "Apex O0"}, "fp32", "tf32"),
        ({"precision": "full precision (as the maintainer says)"}, "fp32", "tf32"),
        ({"precision": "fp32 master weights (compute not stated)"}, "fp32", "bf16"),
        ({"precision": "fp32 weights"}, "fp32", "tf32"),
    ],
)  # fmt: skip
def test_bits_alone_and_levels_of_apex(
    tmp_path: Path, cells: dict[str, str], parameters: str, compute: str
) -> None:
    found = measured(tmp_path, **cells).data["precision"]
    assert (found["parameters"], found["compute"]) == (parameters, compute)


@pytest.mark.parametrize(
    ("column", "texts", "message"),
    [
        ("strategy", ["ZeRO 1/2", "ZeRO-1/2/3", "zero stage 2 and 3", "ZeRO-2 vs ZeRO-3"],
         "several stages of ZeRO are named"),
        ("strategy", ["FSDP vs DDP", "DDP vs FSDP", "FSDP/DDP", "DDP vs ZeRO-2", "DDP, ZeRO-3",
                      "FSDP2 + DDP", "FSDP or ZeRO-3", "ZeRO-1+FSDP", "DDP or ZeRO-1"],
         "several strategies are named"),
        ("precision", ["bf16/fp8", "fp8 vs bf16", "bf16 (vs fp8)", "fp32 vs tf32"],
         "names several, of which one is accepted"),
        ("model", ["ResNet-50/101", "VGG16/19", "ResNet-50 and ResNet-101", "bert-base/large"],
         "names several, of which one is accepted"),
    ],
)  # fmt: skip
def test_a_cell_that_names_several_is_refused(
    tmp_path: Path, column: str, texts: list[str], message: str
) -> None:
    for text in texts:
        with pytest.raises(Refused, match=message):
            measured(tmp_path, **{**LLAMA, column: text})


def test_what_stands_beside_a_strategy_or_a_precision_is_no_other(tmp_path: Path) -> None:
    zero = (
        "ZeRO-1, 2 nodes",
        "ZeRO-2/Adam",
        "ZeRO-3, 1 GPU a node",
        "DDP + ZeRO-2 (default)",
        "ZeRO-2 + DDP",
    )
    for own in (*zero, "FSDP (faster than DDP)"):
        assert _strategy(tmp_path, strategy=own)["kind"] in ("zero", "fsdp")
    for own in ("BF16/FP16", "bf16+fp8", "FP16/AMP"):
        device = {"accelerator": "H100 SXM5", "precision": own}
        assert measured(tmp_path, **{**LLAMA, **device}).step_time == 1.0


def test_of_several_rates_a_dash_is_none(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    head = "model,accelerator,gpus_per_node,total_gpus,precision,throughput (img/s),samples/s\n"
    own = "ResNet-50,A100-SXM4-80GB,8"
    rates = ("1,amp,-,1000", "4,amp,n/a,3900", "2,amp,1900,-", "8,amp,-,-")
    table.write_text(head + "\n".join(f"{own},{rate}" for rate in rates) + "\n")
    found = read_table(table).rows
    assert [row.get("value") for row in found] == [1000, 3900, 1900, None]
    assert [row.text("unit") for row in found[:3]] == ["samples/s", "samples/s", "img/s"]
    assert found[3].fault == "throughput (img/s): '-' is not a number"


def test_a_series_goes_on_where_its_first_row_measured_nothing(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    told = (("1", ""), ("4", "0.5"), ("8", "0.51"))
    cells = ({**ROW, "total_gpus": gpus, "value": value} for gpus, value in told)
    table.write_text("\n".join((",".join(ROW), *(",".join(row.values()) for row in cells))) + "\n")
    read = read_table(table)
    assert [row.fault for row in read.rows] == ["value: is empty", "", ""]
    (series,) = read.series.values()
    assert [one.status for one in play_series(series)] == ["calibrated", "predicted"]


def test_a_refusal_names_its_place_once_and_a_model_without_a_name(tmp_path: Path) -> None:
    row = row_of(tmp_path, batch_per_gpu="", global_batch="4")
    (found,) = play_series([row], "none")
    assert found.reason.startswith("batch.global: global 4 leaves some of 8 ranks")
    unnamed = measured(tmp_path, **{**LLAMA, "model": "", "params_m": "7000", "unit": "tokens/s"})
    assert any(note.startswith("the model is played as a decoder") for note in unnamed.notes)
