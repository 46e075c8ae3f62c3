"""`dpsim validate` on runs whose blocks no stages share equally, and on sequences that are split
where attention has windows."""

from __future__ import annotations

import csv
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from dpsim.accuracy.training.layouts import layout_of
from dpsim.accuracy.training.models import ModelChoice, blocks_of
from dpsim.accuracy.training.scenarios import MeasuredCase, measured_case
from dpsim.accuracy.training.table import TrainingRow, read_table
from dpsim.core.record import Refused
from dpsim.models.named import load_named
from dpsim.predict.player import step_time

DEEPSEEK: dict[str, Any] = {
    "model": "DeepSeek-V3", "accelerator": "H100 SXM", "gpus_per_node": 8, "total_gpus": 32,
    "framework": "NVIDIA NeMo", "strategy": "DP+PP+EP", "tp": 1, "pp": 4, "ep": 8, "dp": 8,
    "strategy_detail": "virtual pipeline 4; PIPELINE_LAYOUT=Et*4|(t*4|)*14tmL; SHARP not stated",
    "precision": "BF16", "inter_node": "8x NDR400 InfiniBand", "seq_len": 512,
    "batch_per_gpu": 1, "grad_accum": 8, "global_batch": 64, "value": 3.0, "unit": "s",
}  # fmt: skip
CONFIGS = Path(str(resources.files("dpsim.models") / "configs"))
#: 61 blocks and a module of multi-token prediction, on 16 stages
SIXTEEN = ("Etttt", *["tttt"] * 14, "tmL")


def row_of(tmp_path: Path, **changes: Any) -> TrainingRow:
    row = DEEPSEEK | {"cp": ""} | changes
    with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([list(row), list(row.values())])
    return read_table(tmp_path / "t.csv").rows[0]


def point(tmp_path: Path, **changes: Any) -> MeasuredCase:
    return measured_case(row_of(tmp_path, **changes))


def blocks(stages: list[list[str]]) -> list[int]:
    """How many blocks each stage has some layer of."""
    named = [{name.split(".")[1] for name in stage if "layers." in name} for stage in stages]
    return [len(found) for found in named]


# -- how many blocks there are ---------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(path.stem for path in CONFIGS.glob("*.json")))
def test_blocks_of_every_model_are_counted_or_refused_by_its_name(name: str) -> None:
    try:
        found = blocks_of(ModelChoice({"huggingface": name}, language=True))
    except Refused as refusal:
        assert f"the blocks of {name} are not one row" in str(refusal)
    else:
        assert found == len({layer.unit for layer in load_named(name, 128).layers if layer.unit})


def test_stages_of_dbrx_share_its_40_blocks(tmp_path: Path) -> None:
    found = point(tmp_path, model="DBRX", strategy="DP+PP", strategy_detail="1F1B", ep="", dp=8)
    assert found.data["parallel"]["pipeline"] == 4


# -- layouts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("detail", "stages"),
    [
        ("PIPELINE_LAYOUT=Et*4|(t*4|)*14tmL", SIXTEEN),
        ("--pipeline-model-parallel-layout Et*3|(tt|)*2,m|L", ("Ettt", "tt", "tt", "m", "L")),
        ("1F1B, Et|(t,t|)*2L", ("Et", "tt", "tt", "L")),
        ("VPP 2 (EtL|tt)", ()),  # what ends with no loss is no layout
        ("virtual pipeline 4", ()),
        ("EP32 | TP4 | FULL", ()),
    ],
)
def test_a_layout_is_read_as_megatron_writes_it(
    tmp_path: Path, detail: str, stages: tuple[str, ...]
) -> None:
    assert layout_of(row_of(tmp_path, strategy_detail=detail)) == stages


def test_stages_hold_the_blocks_that_the_layout_says(tmp_path: Path) -> None:
    found = point(tmp_path)
    assert found.data["schedule"] == {"kind": "interleaved_1f1b", "chunks": 4}
    stages = found.data["stages"]
    assert blocks(stages) == [4] * 15 + [2]
    assert stages[0][0] == "embed_tokens"
    assert stages[-1][:1] == ["layers.60.attention"]
    assert {"norm", "lm_head"} < set(stages[-1])
    assert step_time(found.case) > 0.0


def test_a_layout_says_how_many_chunks_there_are(tmp_path: Path) -> None:
    alone = point(tmp_path, strategy_detail="Et*4|(t*4|)*14tmL")
    assert alone.data["schedule"] == {"kind": "interleaved_1f1b", "chunks": 4}
    once = point(tmp_path, strategy_detail="Et*15|t*16|t*16|t*14mL")
    assert once.data["schedule"] == {"kind": "one_f_one_b"}
    assert blocks(once.data["stages"]) == [15, 16, 16, 15]


def test_multi_token_prediction_is_trained_where_the_layout_has_it(tmp_path: Path) -> None:
    with_it = point(tmp_path)
    assert with_it.data["model"]["multi_token"] is True
    assert any("multi-token prediction" in note for note in with_it.notes)
    without = point(tmp_path, strategy_detail="Et*4|(t*4|)*14tL")
    assert "multi_token" not in without.data["model"]
    assert with_it.case.model.parameters > without.case.model.parameters


@pytest.mark.parametrize(
    ("detail", "reason"),
    [
        ("Et*4|(t*4|)*14L", "its layout has 60 blocks, and .* has 61"),
        ("virtual pipeline 2; Et*4|(t*4|)*14tmL", "16 stages contradicts 2 chunks of 4 ranks"),
        ("Et*30|t*31L|", "2 stages contradicts pp 4"),
        ("Et*30||t*31|L", "stage 2 of its layout holds nothing"),
        ("PIPELINE_LAYOUT=Et*4|x*4|L", "'Et.4|x.4|L' is no layout of a pipeline; E, then t"),
        ("PIPELINE_LAYOUT=Et*99999|L", "more than 10,000 parts"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(tmp_path: Path, detail: str, reason: str) -> None:
    with pytest.raises(Refused, match=f"strategy_detail: .*{reason}"):
        point(tmp_path, strategy_detail=detail)


@pytest.mark.parametrize(
    ("changes", "counted"),
    [
        # 61 blocks and 3 on 16 stages; 126 and 2 on 64, and on 8 of them
        ({"strategy_detail": "virtual pipeline 4"}, "embedding, loss and multi-token prediction"),
        ({"model": "Llama 3.1 405B", "ep": "", "pp": 8, "dp": 4,
          "strategy_detail": "virtual pipeline 8"}, "embedding and loss count"),
        ({"model": "Llama 3.1 405B", "ep": "", "pp": 2, "dp": 16,
          "strategy_detail": "virtual pipeline 32"}, "embedding and loss count"),
    ],
)  # fmt: skip
def test_blocks_without_a_layout_are_as_even_as_they_go(
    tmp_path: Path, changes: dict[str, Any], counted: str
) -> None:
    found = point(tmp_path, **{"grad_accum": "", "global_batch": 64} | changes)
    assert found.data["stages"] == "balanced"
    assert any(note.startswith(counted) for note in found.notes)
    even = point(tmp_path, model="Qwen3-235B", strategy_detail="1F1B", pp=2, dp=16)
    assert "stages" not in even.data


# -- windows --------------------------------------------------------------------------------------

WINDOWED: dict[str, Any] = {
    "model": "GPT-OSS 20B", "strategy": "DP+CP+EP", "pp": 1, "cp": 2, "dp": 16, "ep": 4,
    "strategy_detail": "", "grad_accum": 1, "global_batch": 16, "seq_len": 1024,
}  # fmt: skip


def test_windows_are_gathered_where_nobody_says_how_sequences_are_split(tmp_path: Path) -> None:
    found = point(tmp_path, **WINDOWED)
    assert found.data["context"] == {"kind": "all_gather"}
    assert any("for windows go round no ring" in note for note in found.notes)
    assert step_time(found.case) > 0.0
    whole = point(tmp_path, **WINDOWED | {"model": "Qwen3-30B-A3B"})
    assert "context" not in whole.data
    assert "keys and values are assumed to go round a ring" in whole.notes


def test_windows_on_a_ring_that_a_row_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="which ring does not pass round; all_gather and ulysses"):
        step_time(point(tmp_path, **WINDOWED | {"strategy_detail": "ring attention"}).case)
