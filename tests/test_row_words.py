"""Words of rows of tables of training runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from rows import LLAMA, measured

from dpsim.accuracy.training.table import read_table


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
