"""Words of rows of tables of training runs."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from rows import LLAMA, measured, row_of

from dpsim.accuracy.training.execution import recomputed
from dpsim.accuracy.training.scenarios import platform_of
from dpsim.accuracy.training.table import read_table
from dpsim.cases.case import Case
from dpsim.core.record import Refused
from dpsim.describe.scenario import load


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ({"strategy": "replicated", "framework": "TensorFlow tf_cnn_benchmarks"}, "ddp"),
        ({"strategy": "DeepSpeed"}, "ddp"),
        ({**LLAMA, "strategy": "LoRA + DDP", "framework": "PyTorch (fsdp_qlora)"}, "ddp"),
        ({**LLAMA, "strategy": "QLoRA + FSDP", "framework": "PyTorch (fsdp_qlora)"}, "fsdp"),
        ({**LLAMA, "strategy": "DDP + ZeRO-1"}, "zero"),
        ({"strategy": "DDP", "framework": "Horovod 0.28"}, "horovod"),
        ({**LLAMA, "strategy": "DDP", "framework": "DeepSpeed 0.9 ZeRO-3"}, "zero"),
    ],
)
def test_a_strategy_is_what_its_own_column_says(
    tmp_path: Path, cells: dict[str, str], kind: str
) -> None:
    assert measured(tmp_path, **cells).data["strategy"]["kind"] == kind


def test_four_bits_beside_adapters_are_told(tmp_path: Path) -> None:
    found = measured(tmp_path, **LLAMA, strategy="QLoRA + FSDP")
    assert found.data["model"]["adapters"]["base_dtype"] == "nf4"
    assert "in 4 bits (NF4)" in " ".join(found.notes)


@pytest.mark.parametrize(
    ("task", "targets"),
    [
        ("lora r=8, target_modules q_proj, v_proj", "q_proj v_proj"),
        ("LoRA, target_modules=['q_proj', 'up_proj'], lora_alpha=32", "q_proj up_proj"),
        ("LoRA r=8, target_modules q_proj and k_proj, not v_proj", "q_proj k_proj"),
        ("LoRA, k_proj frozen; target modules: q_proj/v_proj", "q_proj v_proj"),
        ("QLoRA, target_modules q_proj k_proj v_proj o_proj c_attn", "q_proj k_proj v_proj o_proj"),
        ("LoRA, target_modules not stated", "q_proj k_proj v_proj o_proj"),
        ("LoRA r=8, target_modules *_proj",
         "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj"),
    ],
)  # fmt: skip
def test_adapters_are_on_the_modules_that_are_named(
    tmp_path: Path, task: str, targets: str
) -> None:
    found = measured(tmp_path, **LLAMA, task=task)
    assert found.data["model"]["adapters"]["targets"] == targets.split()
    assumed = "adapters" in " ".join(note for note in found.notes if note.endswith("are assumed"))
    assert assumed == ("r=8" not in task)


def test_adapters_on_modules_that_nobody_knows_are_refused(tmp_path: Path) -> None:
    for task in ("LoRA, target_modules q_proj, lm_head", "LoRA, target_modules c_attn"):
        with pytest.raises(Refused, match="are not read; q_proj, k_proj"):
            measured(tmp_path, **LLAMA, task=task)


def test_an_exchange_by_mpi_is_told(tmp_path: Path) -> None:
    by_mpi = measured(tmp_path, strategy="Horovod all-reduce (IntelMPI)")
    assert "an exchange by MPI is played as NCCL's" in " ".join(by_mpi.notes)
    for detail in ("NCCL, launched by Open MPI", "mpirun -np 8", "Open MPI 4.0 launcher"):
        other = measured(tmp_path, strategy="Horovod", strategy_detail=detail)
        assert "by MPI" not in " ".join(other.notes)


@pytest.mark.parametrize(
    ("strategy", "compression"),
    [
        ("DDP (no PowerSGD)", ""), ("DDP without PowerSGD", ""), ("DDP (PowerSGD off)", ""),
        ("DDP", "no PowerSGD"), ("DDP, no gradient compression", "none"),
    ],
)  # fmt: skip
def test_compression_that_is_denied_is_none(
    tmp_path: Path, strategy: str, compression: str
) -> None:
    found = measured(tmp_path, strategy=strategy, compression=compression)
    assert "comm_hook" not in found.data["strategy"]
    assert (
        "comm_hook" in measured(tmp_path, strategy="DDP", compression="PowerSGD").data["strategy"]
    )


def test_words_are_taken_for_tokens(tmp_path: Path) -> None:
    """As translators count them."""
    cells = {"model": "Transformer Big", "task": "translation", "seq_len": "128"}
    rate = measured(tmp_path, **cells, value="100000", unit="words/s")
    assert rate.step_time == measured(tmp_path, **cells, value="100000", unit="tokens/s").step_time


@pytest.mark.parametrize(
    ("cells", "execution"),
    [
        ({"framework": "HF transformers (fms-hf-tuning)"}, {"compile": False}),
        ({"framework": "Hugging Face Trainer, torch.compile"}, {"compile": True}),
        ({"framework": "HF transformers, foak-fast-kernels"}, None),
        ({"framework": "Hugging Face Trainer, DeepSpeed"}, None),
        ({"framework": "PyTorch 2.2", "model": "GPT-2 (h1024 L24 a16)"}, {"compile": False}),
        ({"framework": "PyTorch 2.2", "model": "GPT 1.3B"}, {"compile": False}),
        ({"framework": "PyTorch 2.2", "model": "T5 1.3B"}, None),
    ],
)
def test_plain_modules_run_one_by_one_where_their_shape_is_known(
    tmp_path: Path, cells: dict[str, str], execution: dict[str, bool] | None
) -> None:
    assert measured(tmp_path, **{**LLAMA, **cells}).data.get("execution") == execution


def test_decoders_beside_an_encoder_have_the_length_of_their_targets(tmp_path: Path) -> None:
    row = {"model": "t5_small", "seq_len": "1024", "precision": "BF16", "value": "9"}
    for task, length in (
        ("summarisation, targets of 128 tokens", 128), ("targets of up to 64 tokens", 64),
        ("summarisation, no targets of known length", None), ("windows of 128 tokens", None),
    ):  # fmt: skip
        found = measured(tmp_path, **row, task=task).data["model"]
        assert found.get("target_length") == length
    other = measured(tmp_path, **LLAMA, task="targets of 128 tokens").data["model"]
    assert "target_length" not in other


def test_torchtitan_runs_its_own_kernels_since_torch_fused_its_norms(tmp_path: Path) -> None:
    def code(date: str) -> str | None:
        cells = {**LLAMA, "framework": "torchtitan", "strategy": "FSDP", "data_date": date}
        found: str | None = measured(tmp_path, **cells).data["execution"].get("code")
        return found

    assert code("2025-11") == "torchtitan"
    assert code("2025-06") is None


@pytest.mark.parametrize(
    ("framework", "code"),
    [("torchtitan (torch 2.7)", None), ("torchtitan, torch 2.9", "torchtitan")],
)
def test_a_version_of_torch_says_what_was_fused(
    tmp_path: Path, framework: str, code: str | None
) -> None:
    cells = {**LLAMA, "framework": framework, "strategy": "FSDP", "data_date": "2025-11"}
    assert measured(tmp_path, **cells).data["execution"].get("code") == code


@pytest.mark.parametrize(
    ("framework", "compiled"),
    [("torchtitan + torch.compile", True), ("torchtitan, no torch.compile", False)],
)
def test_torchtitan_may_be_compiled(tmp_path: Path, framework: str, compiled: bool) -> None:
    found = measured(tmp_path, **{**LLAMA, "framework": framework, "strategy": "FSDP"})
    assert found.data["execution"]["compile"] is compiled
    assert any("not fused are assumed" in note for note in found.notes) is not compiled


def test_columns_have_the_names_that_people_give_them(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text(
        "model,gpu,gpus,dtype,network,date,value,unit\nx,A100,8,bf16,HDR,2025-01,1,s\n"
    )
    own = {"accelerator", "total_gpus", "precision", "inter_node", "data_date"}
    assert own <= set(read_table(table).columns)


@pytest.mark.parametrize("model", ["Qwen3-30B-A3B", "Mixtral 8x7B"])
def test_torchtitan_s_experts_run_as_transformers_do(tmp_path: Path, model: str) -> None:
    cells = {**LLAMA, "framework": "torchtitan", "strategy": "FSDP", "data_date": "2025-11"}
    found = measured(tmp_path, **{**cells, "model": model})
    assert found.data["execution"] == {"compile": False}


def test_another_task_is_another_series(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    rows = ["pretraining,1", "pretraining,8", "fine-tuning,8"]
    text = "".join(f"BERT-Large,A100-SXM4-80GB,{row},1,s\n" for row in rows)
    table.write_text("model,accelerator,task,gpus,value,unit\n" + text)
    assert [len(rows) for rows in read_table(table).series.values()] == [2, 1]


@pytest.mark.parametrize(
    "cells",
    [
        {"strategy": "single GPU", "total_gpus": "1", "gpus_per_node": "1"},
        {"strategy": "No FSDP", "total_gpus": "1", "gpus_per_node": "1"},
        {"strategy": "FSDP 0"}, {"strategy": "FSDP: off"},
        {"strategy": "fp16"}, {"strategy": "multi-GPU DeepSpeed"},
        {**LLAMA, "strategy": "3-D Parallel", "tp": "2", "pp": "2", "grad_accum": "4"},
        {**LLAMA, "strategy": "Tensor Model Parallel", "tp": "2"},
    ],
)  # fmt: skip
def test_words_that_tell_no_strategy_are_data_parallelism(
    tmp_path: Path, cells: dict[str, str]
) -> None:
    assert measured(tmp_path, **cells).data["strategy"]["kind"] == "ddp"


def test_megatron_bridge_shards_its_optimizer(tmp_path: Path) -> None:
    """Its recipes have use_distributed_optimizer, overlap_grad_reduce and overlap_param_gather."""
    found = measured(tmp_path, **LLAMA, strategy="DDP", framework="Megatron-Bridge, NeMo 26.04")
    assert found.data["strategy"]["use_distributed_optimizer"]
    assert "which is assumed" in " ".join(found.notes)
    cells = {**LLAMA, "strategy": "DDP", "framework": "Megatron-Bridge"}
    for detail in ("no distributed optimizer", "use_distributed_optimizer=False"):
        denied = measured(tmp_path, **cells, strategy_detail=detail).data["strategy"]
        assert not denied.get("use_distributed_optimizer")
    bare = measured(tmp_path, **LLAMA, strategy="DDP", framework="Megatron-LM")
    assert "use_distributed_optimizer" not in bare.data["strategy"]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("recompute: norm, act", "selective"), ("core_attn", "selective"),
        ("recompute-activations", "selective"), ("recompute-activations off", "none"),
        ("layernorm, moe_act", "selective"), ("uniform", "full"), ("whole layer", "full"),
        ("enable activation checkpointing", "full"), ("acfalse", "none"), ("T", "full"),
    ],
)  # fmt: skip
def test_recomputation_is_read_in_the_words_of_its_code(
    tmp_path: Path, said: str, kept: str
) -> None:
    assert measured(tmp_path, **LLAMA, act_ckpt=said).data["recompute"] == kept


@pytest.mark.parametrize(
    ("detail", "kept"),
    [
        ("zero2+gradcp", "full"), ("full recompute", "full"), ("grad ckpt", "full"),
        ("use_gradient_checkpointing", "full"), ("selective grad ckpt", "selective"),
        ("no grad ckpt", "none"), ("without gradient-checkpointing", "none"),
        ("no full recompute", "none"), ("gradcp off", "none"), ("grad_ckpt=False", "none"),
        ("activation_checkpointing: false", "none"), ("no activation-checkpointing", "none"),
        ("--no-gradient_checkpointing", "none"), ("activation checkpointing where needed", "none"),
        ("--recompute-activations", "selective"), ("no recompute-activations", "none"),
        ("recompute_activations=False, flash attention", "none"), ("recompute=False", "none"),
        ("flash_attention=True, recompute=True", "full"), ("recompute-granularity full", "full"),
        ("recompute_granularity=selective", "selective"), ("recompute_granularity=none", "none"),
    ],
)  # fmt: skip
def test_recomputation_is_read_out_of_a_strategys_words(
    tmp_path: Path, detail: str, kept: str
) -> None:
    found = measured(tmp_path, **LLAMA, strategy="ZeRO-2", strategy_detail=detail)
    assert found.data["recompute"] == kept


def test_cp_is_context_parallelism_beside_zero_too(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="context parallelism"):
        measured(tmp_path, **LLAMA, strategy="ZeRO-2+CP")


@pytest.mark.parametrize(
    "said",
    [
        "use_recompute: some", "user default", "used in MLP only",
        "with 50% of layers", "use 4 of 32 layers", "with offload", "uniform, 2 layers of 32",
        "mlp", "moe, mlp", "shared_experts",
    ],
)  # fmt: skip
def test_recomputation_of_a_part_is_refused(tmp_path: Path, said: str) -> None:
    with pytest.raises(Refused, match="act_ckpt"):
        measured(tmp_path, **LLAMA, act_ckpt=said)


def test_recomputed_experts_are_those_of_a_model_that_has_them(tmp_path: Path) -> None:
    assert recomputed(row_of(tmp_path, act_ckpt="moe")) == {"recompute": "moe"}


@pytest.mark.parametrize(
    ("strategy", "detail", "kind"),
    [
        ("DeepSpeed (ds_config stage3)", "", "zero"), ("DeepSpeed", "stage3", "zero"),
        ("DeepSpeed", "", "ddp"), ("FSDP / bf16", "", "fsdp"), ("FSDP no recompute", "", "fsdp"),
        ("FSDP no offload", "", "fsdp"), ("FSDP: no CPU offload", "", "fsdp"),
    ],
)  # fmt: skip
def test_strategies_are_read_beside_other_words(
    tmp_path: Path, strategy: str, detail: str, kind: str
) -> None:
    found = measured(tmp_path, **LLAMA, strategy=strategy, strategy_detail=detail)
    assert found.data["strategy"]["kind"] == kind


@pytest.mark.parametrize("detail", ["no offload of the optimizer", "Adam offload disabled"])
def test_offloading_that_is_denied_is_none(tmp_path: Path, detail: str) -> None:
    found = measured(tmp_path, **LLAMA, strategy="ZeRO-2", strategy_detail=detail)
    assert "offload_optimizer" not in found.data["strategy"]
    told = measured(tmp_path, **LLAMA, strategy="ZeRO-2", strategy_detail="Adam offload")
    assert told.data["strategy"]["offload_optimizer"] == "cpu"


@pytest.mark.parametrize(
    "said", ["FP32 (no mixed precision)", "no AMP", "AMP off", "without mixed precision"]
)
def test_mixed_precision_that_is_denied_is_fp32(tmp_path: Path, said: str) -> None:
    assert measured(tmp_path, precision=said).data["precision"]["parameters"] == "fp32"
    assert measured(tmp_path, precision=said).data["precision"]["compute"] in ("fp32", "tf32")


def test_images_of_no_precision_may_be_in_either(tmp_path: Path) -> None:
    """Frameworks multiply in fp32 unless they are told otherwise."""
    row = row_of(tmp_path, precision="")
    labels = [reading.label for reading in platform_of(row).readings]
    assert labels == ["32 bit", "mixed precision"]
    for column in ("strategy_detail", "notes", "framework"):
        told = row_of(tmp_path, precision="", **{column: "PyTorch 2.2 with AMP"})
        assert len(platform_of(told).readings) == 1


@pytest.mark.parametrize(
    ("unit", "metric", "value"),
    [
        ("samples per second", "", 800), ("Samples per second per GPU", "", 100),
        ("samples per GPU per second", "", 100), ("Sec/step", "", 0.64), ("rec/s", "", 800),
        ("samples/s", "samples per second per device", 100),
    ],
)  # fmt: skip
def test_units_are_read_in_other_words(
    tmp_path: Path, unit: str, metric: str, value: float
) -> None:
    cells = {"step_time_s": "", "metric": metric, "unit": unit, "value": str(value)}
    found = measured(tmp_path, **cells)
    assert found.step_time == pytest.approx(0.64)


@pytest.mark.parametrize(("said", "tokens"), [("8K", 8192), ("12 000", 12_000), ("2,048", 2048)])
def test_lengths_are_read_in_thousands(tmp_path: Path, said: str, tokens: int) -> None:
    found = measured(tmp_path, **{**LLAMA, "seq_len": said})
    assert found.data["model"]["sequence_length"] == tokens


@pytest.mark.parametrize(
    ("said", "tokens"),
    [("512 (max)", 512), ("up to 2K", 2048), ("max 1,024 tokens", 1024), ("4096 max length", 4096)],
)
def test_the_longest_sequence_is_that_of_all(tmp_path: Path, said: str, tokens: int) -> None:
    found = measured(tmp_path, **{**LLAMA, "seq_len": said})
    assert found.data["model"]["sequence_length"] == tokens


@pytest.mark.parametrize("said", ["variable", "dynamic", "N/A", "80 frames", "10 s"])
def test_lengths_that_count_no_tokens_are_not_stated(tmp_path: Path, said: str) -> None:
    told, empty = (measured(tmp_path, **{**LLAMA, "seq_len": text}) for text in (said, ""))
    assert told.data == empty.data
    with pytest.raises(Refused, match="is not one number"):
        measured(tmp_path, **{**LLAMA, "seq_len": "128 / 512"})


@pytest.mark.parametrize(
    "unit", ["h", "hr", "Hours", "days", "hr/epoch", "minutes/epoch", "s/epoch", "GPU-hours"]
)
def test_the_time_of_a_run_is_refused_and_what_would_tell_is_named(
    tmp_path: Path, unit: str
) -> None:
    cells = {**LLAMA, "unit": unit, "value": "12", "step_time_s": ""}
    with pytest.raises(Refused, match=r"of a whole run or of an epoch.*step_time_s, or a rate"):
        measured(tmp_path, **cells)
    assert measured(tmp_path, **{**cells, "step_time_s": "2"}).step_time == 2


def test_a_length_that_nobody_says_follows_from_rate_step_and_batch(tmp_path: Path) -> None:
    cells = {**LLAMA, "seq_len": "", "batch_per_gpu": "8", "grad_accum": "1", "step_time_s": "10.0"}
    found = measured(tmp_path, **cells, unit="tokens/s/device", value="3276.8")
    assert found.data["model"]["sequence_length"] == 4096
    assert "follow from rate, step time and batch" in " ".join(found.notes)


def test_models_have_no_more_tokens_than_positions(tmp_path: Path) -> None:
    cells = {**LLAMA, "model": "GPT2-XL (~1.6B)", "params_m": "", "seq_len": ""}
    assert measured(tmp_path, **cells).data["model"]["sequence_length"] == 1024


def test_flop_rates_of_all_that_no_device_is_idle_for_are_of_one(tmp_path: Path) -> None:
    cells = {**LLAMA, "step_time_s": "", "batch_per_gpu": "4"}
    one = measured(tmp_path, **cells, unit="TFLOP/s/GPU", value="150")
    assert measured(tmp_path, **cells, unit="TFLOPS", value="150").step_time == one.step_time
    assert measured(tmp_path, **cells, unit="TFLOPS", value="1200").step_time == one.step_time
    whole = measured(tmp_path, **cells, unit="TFLOPS", metric="total TFLOPS", value="300")
    assert whole.step_time == pytest.approx(4 * one.step_time)
    with pytest.raises(Refused, match="of each of 8 GPUs or of all"):
        measured(tmp_path, **cells, unit="TFLOPS", value="300")


@pytest.mark.parametrize(
    ("model", "million"),
    [
        ("DeiT ViT-B_16_224", 86.6), ("distilbert", 66), ("bigcode/gpt_bigcode-santacoder", 1125),
        ("starcoderbase", 15_500), ("aquila2_7b", 7000),
        # by their published shapes
        ("Gemma 2B", 2506), ("gemma-7b-it", 8538), ("Gemma 2 9B", 9242), ("gemma-2-27b", 27_227),
        ("Gemma 3 4B", 3880), ("OLMo-1B", 1177), ("OLMo-2-1124-7B", 7299), ("OLMo 3 7B", 7298),
        ("SmolLM-135M", 134.5), ("SmolLM2 1.7B", 1711), ("SmolLM3-3B", 3075), ("Yi-1.5-9B", 8829),
        ("Yi 34B chat", 34_389), ("Baichuan2-7B", 7506), ("InternLM2.5-7B", 7738),
        ("StableLM 2 1.6B", 1644), ("phi-1.5", 1418), ("Phi-2", 2780), ("phi-4-mini", 3836),
        ("Qwen1.5-4B-Chat", 3950), ("Qwen-14B", 14_167), ("Qwen2.5-Coder-7B-Instruct", 7616),
        ("granite-3.1-8b-instruct", 8171), ("granite-3b-code-base", 3481), ("StarCoder2-3B", 3030),
        ("Vicuna-13B v1.5", 13_016), ("LLaMA 33B", 32_529), ("CodeLlama-34b", 33_744),
        ("OpenLLaMA v2 3B", 3426), ("deepseek-coder-6.7b", 6740), ("DeepSeek LLM 7B", 6910),
        ("DeepSeek-R1-Distill-Llama-8B", 8030), ("zephyr-7b-beta", 7242), ("GLM-4-9B", 9400),
        ("Mistral Nemo 12B", 12_248), ("Solar 10.7B", 10_731), ("Pythia 410M", 405),
        ("EleutherAI/pythia-1.4b-deduped", 1415), ("dolly-v2-3b", 2775), ("OPT-6.7B", 6658),
        ("bloom-1b7", 1722), ("GPT-Neo 2.7B", 2651), ("GPT-2 (small) replication", 124.4),
        ("distilgpt2", 82), ("GPT-2 1.5B", 1558), ("roberta-base", 125), ("xlm-roberta-base", 278),
        ("ESM2 650M", 651), ("esm2_t33_650M_UR50D", 651), ("BERT (XNLI fine-tune)", 109.5),
        ("T5-3B", 2852), ("flan-t5-base", 247.6), ("T5 v1.1 XL", 2850), ("whisper small", 240.6),
    ],
)  # fmt: skip
def test_models_are_known_by_their_usual_names(tmp_path: Path, model: str, million: float) -> None:
    cells = {**LLAMA, "model": model, "seq_len": "512", "accelerator": "H200"}
    case = Case(load(measured(tmp_path, **cells).data, tmp_path, "test").scenario, tmp_path)
    assert case.model.parameters == pytest.approx(million * 1e6, rel=0.05)


@pytest.mark.parametrize(
    "model", ["paligemma-3b", "Qwen-VL", "mt5-base", "Phi-3-vision", "OLMo (size not stated)"]
)
def test_models_that_have_a_known_name_in_theirs_are_no_such_model(
    tmp_path: Path, model: str
) -> None:
    with pytest.raises(Refused, match="is not known and its parameters are not stated"):
        measured(tmp_path, **{**LLAMA, "model": model, "params_m": "", "unit": "s"})


@pytest.mark.parametrize(
    ("machine", "gpus", "nodes", "each"),
    [
        ("g5.12xlarge", 8, 2, 4), ("A10G (g5.12xlarge)", 32, 8, 4), ("g5.xlarge", 4, 4, 1),
        ("g4dn.12xlarge", 8, 2, 4), ("p3.8xlarge", 16, 4, 4), ("p3.16xlarge", 16, 2, 8),
        ("a2-highgpu-4g", 16, 4, 4), ("Standard_NC24ads_A100_v4", 2, 2, 1),
        ("g5.48xlarge", 16, 2, 8), ("p3.8x (AWS)", 16, 4, 4), ("AWS P2.16xlarge", 32, 2, 16),
        ("Summit", 12, 2, 6), ("Perlmutter", 8, 2, 4), ("Cori GPU", 16, 2, 8), ("Vista", 4, 4, 1),
        ("ABCI (A)", 16, 2, 8), ("ABCI (V)", 16, 4, 4), ("p3.8xlarge x 2", 8, 2, 4),
    ],
)  # fmt: skip
def test_machines_of_clouds_have_the_gpus_of_their_size(
    tmp_path: Path, machine: str, gpus: int, nodes: int, each: int
) -> None:
    cells = {"accelerator": machine, "gpus_per_node": "", "total_gpus": str(gpus)}
    assert (row_of(tmp_path, **cells).get("gpus_per_node") or 8) == each
    data = measured(tmp_path, **cells).data
    case = Case(load(data, tmp_path, "test").points[0], tmp_path)
    assert case.ranks == gpus
    assert len({case.topology.node_of(rank) for rank in range(gpus)}) == nodes
    assert data["cluster"]["gpus_per_node"] == each


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"strategy": "FSDP offload_optimizer"}, "FSDP's offloading"),
        ({"strategy": "FSDP w/ CPU offload"}, "FSDP's offloading"),
        ({"strategy": "FSDP", "strategy_detail": "optimizer offload to CPU"}, "FSDP's offloading"),
        ({"strategy": "FSDP, no CPU offload"}, ""),
        ({"strategy": "ZeRO-2, optimizer offload"}, ""),
    ],
)
def test_what_fsdp_offloads_is_refused(tmp_path: Path, changes: dict[str, str], why: str) -> None:
    row = {**LLAMA, "framework": "PyTorch 2.2", **changes}
    with pytest.raises(Refused, match=why) if why else nullcontext():
        measured(tmp_path, **row)


@pytest.mark.parametrize(
    ("notes", "recompute"),
    [
        ("gradient checkpointing enabled", "full"),
        ("bs 1; with activation recomputation", "full"),
        ("gradient_checkpointing=True, LoRA r=64", "full"),
        ("gradient checkpointing disabled", "none"),
        ("no activation checkpointing; packed", "none"),
        ("20 % slower than with gradient checkpointing", "none"),  # of another run
    ],
)
def test_notes_tell_by_themselves_what_is_computed_again(
    tmp_path: Path, notes: str, recompute: str
) -> None:
    row = {**LLAMA, "model": "Llama-3.2-1B", "notes": notes}
    assert measured(tmp_path, **row).data["recompute"] == recompute
