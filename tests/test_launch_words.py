"""Words of launchers that have a key, and those that have none: none of them is gone unsaid."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.measurements import brought
from dpsim.measurements.kinds import Account, Wishes

SHAPE = (
    "torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --hidden-size 4096 "
    "--num-attention-heads 32 --seq-length 2048 --vocab-size 32000 --micro-batch-size 1 "
)
TRAINER = "torchrun --nproc_per_node 8 train.py --per_device_train_batch_size 1 "
UNTIED = "--untie-embeddings-and-output-weights"
TABLE = "131,072,000"  # 32000 x 4096


def bring(folder: Path, text: str, name: str = "run.sh", model: str = "") -> Account:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return brought.bring([path], Wishes(machine="dgx-a100", model=model), load)


def told(account: Account) -> str:
    return "\n".join((*(entry.text for entry in account.entries), *account.findings))


def key(account: Account, path: str) -> object:
    found: object = account.document
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def test_swiglu_without_a_width_is_two_thirds_of_four_times_hidden(tmp_path: Path) -> None:
    account = bring(tmp_path, SHAPE + "--swiglu")
    assert key(account, "model.feed_forward") == 10880  # int(4 x 4096 x 2 / 3 / 64) x 64
    assert any(e.how == "assumed" and "feed_forward" in e.text for e in account.entries)
    given = bring(tmp_path, SHAPE + "--swiglu --ffn-hidden-size 11008")
    assert key(given, "model.feed_forward") == 11008
    assert key(bring(tmp_path, SHAPE), "model.feed_forward") is None


def test_tables_that_are_shared_otherwise_are_found(tmp_path: Path) -> None:
    assert f"{TABLE} parameters more" in "\n".join(bring(tmp_path, SHAPE + "--swiglu").findings)
    assert TABLE not in "\n".join(bring(tmp_path, SHAPE + "--swiglu " + UNTIED).findings)
    assert f"{TABLE} parameters fewer" in "\n".join(bring(tmp_path, SHAPE + UNTIED).findings)
    assert TABLE not in "\n".join(bring(tmp_path, SHAPE).findings)


@pytest.mark.parametrize(
    ("flags", "path", "value"),
    [
        ("--context-parallel-size 2 --cp-comm-type a2a", "context.kind", "ulysses"),
        ("--context-parallel-size 2 --cp-comm-type allgather", "context.kind", "all_gather"),
        ("--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap",
         "parallel.async_tensor_parallel", True),
        ("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2",
         "schedule", {"kind": "interleaved_1f1b", "chunks": 2}),
        ("--optimizer sgd", "optimizer.kind", "sgd"),
        ("--enable-cuda-graph", "execution.cuda_graphs", True),
        ("--bf16 --grad-reduce-in-bf16", "strategy.grad_reduce_in_fp32", False),
        ("--bf16 --fp4-format e2m1 --fp4-recipe nvfp4", "precision",
         {"parameters": "bf16", "compute": "nvfp4"}),
        ("--bf16 --fp4-format e2m1 --first-last-layers-bf16 --num-layers-at-end-in-bf16 4",
         "precision",
         {"parameters": "bf16", "compute": "nvfp4", "wide_first": 1, "wide_last": 4}),
        ("--bf16 --fp4-format e2m1 --first-last-layers-bf16 --num-layers-at-start-in-bf16 0 "
         "--num-layers-at-end-in-bf16 4", "precision",  # as Megatron-Bridge's recipes have it
         {"parameters": "bf16", "compute": "nvfp4", "wide_first": 0, "wide_last": 4}),
        ("--bf16 --fp8-format hybrid", "precision", {"parameters": "bf16", "compute": "fp8"}),
        ("--bf16 --fp8-format e4m3 --first-last-layers-bf16 --num-layers-at-start-in-bf16 2",
         "precision", {"parameters": "bf16", "compute": "fp8", "wide_first": 2, "wide_last": 1}),
        ("--bf16 --fp8-format e4m3 --num-layers-at-start-in-bf16 2", "precision.wide_first", None),
        ("--bf16 --first-last-layers-bf16", "precision", {"parameters": "bf16", "compute": "bf16"}),
        ("--bf16 --fp4-format e2m1 --fp4-recipe mxfp4", "precision.compute", "bf16"),
    ],
)  # fmt: skip
def test_megatron_s_words_are_keys(flags: str, path: str, value: object, tmp_path: Path) -> None:
    assert key(bring(tmp_path, SHAPE + flags), path) == value


@pytest.mark.parametrize("format", ["", "--fp8-format hybrid", "--fp4-format e2m1"])
def test_blocks_in_16_bits_that_megatron_ignores_are_told(format: str, tmp_path: Path) -> None:
    account = bring(tmp_path, f"{SHAPE}--bf16 {format} --num-layers-at-end-in-bf16 2")
    ignored = [entry.text for entry in account.entries if entry.how == "ignored"]
    why = "without --first-last-layers-bf16 and --fp8-format or --fp4-format"
    assert f"--num-layers-at-end-in-bf16 2: {why}" in ignored
    assert not any("no key of dpsim's" in text for text in ignored)


def test_8_and_4_bits_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"line 1: --fp4-format beside --fp8-format: one of them"):
        bring(tmp_path, SHAPE + "--bf16 --fp8-format hybrid --fp4-format e2m1")


@pytest.mark.parametrize("format", ["e3m0", ""])
def test_other_formats_in_4_bits_are_refused(format: str, tmp_path: Path) -> None:
    said = f"--fp4-format {format}".strip()
    with pytest.raises(Refused, match=f"line 1: {said}: e2m1 alone is accepted"):
        bring(tmp_path, f"{SHAPE}--bf16 {said}")


def test_offloading_by_the_trainer_is_a_finding(tmp_path: Path) -> None:
    account = bring(tmp_path, TRAINER + '--fsdp "full_shard auto_wrap offload"', model="resnet50")
    assert "live on the host" in "\n".join(account.findings)


@pytest.mark.parametrize(
    ("words", "wrap"), [("full_shard auto_wrap", None), ("full_shard", "none")]
)
def test_the_trainer_wraps_blocks_where_it_is_told_to(
    words: str, wrap: str | None, tmp_path: Path
) -> None:
    account = bring(tmp_path, TRAINER + f'--fsdp "{words}"', model="resnet50")
    assert key(account, "strategy.wrap") == wrap


FSDP = "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: %s\n%s"
SIZED = "  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n"


@pytest.mark.parametrize(
    ("said", "options"),
    [
        ("", {"wrap": "none"}),
        ("  fsdp_auto_wrap_policy: NO_WRAP\n", {"wrap": "none"}),
        ("  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n", {}),
        (SIZED, {"wrap": "size"}),  # accelerate launch then says 100 million, as torch does
        (SIZED + "  fsdp_min_num_params: 0\n", {"wrap": "none"}),
        (SIZED + "  fsdp_min_num_params: 2e7\n", {"wrap": "size", "min_num_params": 20_000_000}),
    ],
)
def test_accelerate_wraps_what_its_policy_says_and_nothing_without_one(
    said: str, options: dict[str, object], tmp_path: Path
) -> None:
    account = bring(tmp_path, FSDP % (1, said), "accelerate.yaml", "resnet50")
    assert (key(account, "strategy.options") or {}) == options


def test_what_fsdp_2_wraps_without_blocks_is_a_finding(tmp_path: Path) -> None:
    for said in ("", SIZED):
        account = bring(tmp_path, FSDP % (2, said), "accelerate.yaml", "resnet50")
        assert any("not modelled for FSDP 2" in text for text in account.findings)


def test_a_policy_that_accelerate_does_not_know_is_refused(tmp_path: Path) -> None:
    text = FSDP % (1, "  fsdp_auto_wrap_policy: EVERY_LAYER\n")
    with pytest.raises(Refused, match="'EVERY_LAYER'; TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP"):
        bring(tmp_path, text, "accelerate.yaml", "resnet50")


MESH = {"tp_size": "1", "cp_size": "2", "dp_shard_size": "4", "dp_replicate_size": "1",
        "cp_comm_strategy": "allgather", "sp_backend": "deepspeed"}  # fmt: skip


def test_every_word_of_a_mesh_is_told(tmp_path: Path) -> None:
    lines = "".join(f"  parallelism_config_{name}: {value}\n" for name, value in MESH.items())
    text = f"distributed_type: MULTI_GPU\nnum_processes: 8\nparallelism_config:\n{lines}"
    account = bring(tmp_path, text, "accelerate.yaml", "resnet50")
    assert key(account, "context.kind") == "all_gather"
    for name in MESH:
        assert name in told(account), name


def test_every_flag_is_told(tmp_path: Path) -> None:
    flags = ("swiglu", "untie-embeddings-and-output-weights", "cp-comm-type p2p", "optimizer lion",
             "tp-comm-overlap", "num-virtual-stages-per-pipeline-rank 1", "enable-cuda-graph",
             "something-new 3")  # fmt: skip
    text = told(bring(tmp_path, SHAPE + " ".join(f"--{flag}" for flag in flags)))
    for flag in flags:
        assert flag.split()[0] in text, flag


# -- how kernels are made -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "path", "value"),
    [
        ("--torch_compile", "execution", {"compile": True}),
        ("--torch_compile_mode reduce-overhead", "execution",
         {"compile": True, "cuda_graphs": True}),
        ("--torch_compile True --torch_compile_backend cudagraphs", "execution",
         {"compile": False, "cuda_graphs": True}),
        ("--torch_compile False", "execution", None),
        ("--attn_implementation flash_attention_2", "model.attention", "flash"),
        ("--attn_implementation flash_attention_3 --torch_compile", "model.attention", "flash3"),
        ("--optim adamw_torch_fused", "optimizer", {"kind": "adam", "fused": True}),
        ("--optim adamw_torch", "optimizer", {"kind": "adam", "fused": "foreach"}),
        ("--optim adafactor", "optimizer", {"kind": "adam"}),
        ("--tf32 true", "precision.compute", "tf32"),
        ("--tf32 true --bf16 true", "precision.compute", "bf16"),
        ("--ddp_bucket_cap_mb 50", "strategy.bucket_cap_mb", 50),
        ("--ddp_bucket_cap_mb nan", "strategy.bucket_cap_mb", None),
        ("--ddp_bucket_cap_mb 1e400", "strategy.bucket_cap_mb", None),
    ],
)  # fmt: skip
def test_the_trainer_s_words_of_kernels_are_keys(
    flags: str, path: str, value: object, tmp_path: Path
) -> None:
    account = bring(tmp_path, TRAINER + flags, model="llama-3-8b")
    assert key(account, path) == value


def test_accelerate_s_compiler_is_a_key_where_kernels_are_counted(tmp_path: Path) -> None:
    text = (
        "distributed_type: MULTI_GPU\nnum_processes: 8\ndynamo_config:\n"
        "  dynamo_backend: INDUCTOR\n  dynamo_mode: max-autotune\n"
    )
    graphs = {"compile": True, "cuda_graphs": True}
    assert key(bring(tmp_path, text, "a.yaml", "llama-3-8b"), "execution") == graphs
    other = bring(tmp_path, text, "a.yaml", "resnet50")
    assert key(other, "execution") == {"cuda_graphs": True}
    assert "not for this model" in "".join(other.findings)


@pytest.mark.parametrize(
    "text",
    [
        "distributed_type: MULTI_GPU\nnum_processes: 0\n",
        '{"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": 0}',
        TRAINER.replace("8", "0"),
    ],
)
def test_a_count_of_zero_is_not_taken_for_unsaid(text: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="less than 1"):
        bring(tmp_path, text, model="resnet50")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--gradient_accumulation_steps -4", "-4: less than 1"),
        ("--gradient_accumulation_steps 1000000000000", "more than 999,999,999"),
    ],
)
def test_a_count_out_of_range_is_not_said_to_be_elsewhere(
    flags: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(Refused, match=said):
        bring(tmp_path, TRAINER + flags, model="resnet50")
