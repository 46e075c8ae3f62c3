"""`dpsim validate` on training runs: what is read, what is played, how it is scored."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpsim.accuracy.scores import Scored, count_band, skill, summary
from dpsim.accuracy.training.baselines import baselines, gradient_bytes, linear
from dpsim.accuracy.training.columns import named, unread
from dpsim.accuracy.training.hosts import AWAY, COPY, ISSUE
from dpsim.accuracy.training.mesh import mesh_of
from dpsim.accuracy.training.models import ModelChoice, choose_model
from dpsim.accuracy.training.scenarios import MeasuredCase, measured_case, platform_of
from dpsim.accuracy.training.series import anchor_of, anchors_of, calibration_row, play_series
from dpsim.accuracy.training.table import TrainingRow, TrainingTable, read_table
from dpsim.accuracy.training.unscored import unscored
from dpsim.accuracy.training.validate import validated_training
from dpsim.cases.case import Case
from dpsim.cases.variant import scaled
from dpsim.core.errors import SimulationError
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.describe.sections import Calibrate
from dpsim.machines.machine import load_device
from dpsim.models.architectures.transformer import Transformer
from dpsim.predict import shortened
from dpsim.predict.level import level
from dpsim.predict.memory import memory_of
from dpsim.predict.peak import BeyondPeak
from dpsim.predict.player import step_time
from dpsim.report.accuracy_training import FEW, make_figure

Cli = Callable[..., tuple[int, str, str]]
HEAD = (
    *("model", "accelerator", "gpus_per_node", "total_gpus"),
    *("batch_per_gpu", "precision", "value", "unit"),
)
RESNET = ("ResNet-50", "NVIDIA V100-SXM2-16GB", 8, 8, 256, "FP16 mixed", 6154.66, "images/s")


def write(path: Path, rows: list[tuple[Any, ...]], head: tuple[str, ...] = HEAD) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])
    return path


def row_of(tmp_path: Path, **changes: Any) -> TrainingRow:
    cells = dict(zip(HEAD, RESNET, strict=True)) | changes
    return read_table(write(tmp_path / "t.csv", [tuple(cells.values())], tuple(cells))).rows[0]


def point(tmp_path: Path, **changes: Any) -> MeasuredCase:
    return measured_case(row_of(tmp_path, **changes))


def test_rows_on_other_clusters_share_the_model_and_nothing_that_differs(tmp_path: Path) -> None:
    one, other = (point(tmp_path, total_gpus=gpus) for gpus in (8, 16))
    assert one.case.model is other.case.model
    assert (one.case.ranks, other.case.ranks) == (8, 16)
    assert point(tmp_path, model="VGG-16").case.model is not one.case.model


# -- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is empty"),
        ("a,b\n1,2\n", "no column total_gpus"),
        ("total_gpus,accelerator,model\n1,V100,x\n", "no column value"),
        ("total_gpus,accelerator,model,value\n1,V100,x,1\n", "needs a column unit"),
        ("total_gpus,total_gpus,accelerator,model,step_time_s\n", "is there twice"),
        ("gpus,total_gpus,accelerator,model,step_time_s\n", "two columns"),
        ("total_gpus,accelerator,model,step_time_s\n", "has no rows"),
        ("total_gpus,accelerator,model,step_time_s\n,V100,x,1\n", "2: total_gpus: is empty"),
        ("total_gpus,accelerator,model,step_time_s\n1,V100,x,abc\n", "'abc' is not a number"),
        ("total_gpus,accelerator,model,step_time_s\n1,V100,x,nan\n", "'nan' is not a number"),
        ("total_gpus,accelerator,model,step_time_s\n1,V100,x,inf\n", "'inf' is not a number"),
        ("total_gpus,accelerator,model,step_time_s\n1,V100,x,-1\n", "-1 is not in"),
        ("total_gpus,accelerator,model,step_time_s\n1.5,V100,x,1\n", "not a whole number"),
        ("total_gpus,accelerator,model,step_time_s\n0,V100,x,1\n", "0 is not in 1"),
        ("total_gpus,accelerator,model,step_time_s\n1e9,V100,x,1\n", "1000000000 is not in 1"),
        ("total_gpus,accelerator,model,step_time_s\n1,V100,x,1,9,9\n", "has 6 cells"),
        ('total_gpus,accelerator,model,step_time_s\n1,"V100,x,1\n', "is no CSV"),
        (
            "total_gpus,nodes,gpus_per_node,accelerator,model,step_time_s\n17,2,8,V100,x,1\n",
            "total_gpus: 2 nodes of 8 have no 17",
        ),
        (
            "total_gpus,accelerator,model,step_time_s,throughput_global,global_batch\n"
            "8,V100,x,0.5,512,128\n",
            "throughput_global: 512 per second is not global_batch 128",
        ),
    ],
)
def test_a_broken_table_is_refused_naming_line_and_column(
    tmp_path: Path, text: str, complaint: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(Refused, match=complaint):
        read_table(path)


def test_junk_is_refused(tmp_path: Path) -> None:
    for name, data in (("a", b"\xff\xfe\x00\x01"), ("b", b"total_gpus\0,x\n")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(Refused):
            read_table(tmp_path / name)
    with pytest.raises(Refused, match="there is no such file"):
        read_table(tmp_path / "missing.csv")


def test_a_byte_order_mark_crlf_and_semicolons_are_read(tmp_path: Path) -> None:
    text = ";".join(HEAD) + "\r\n" + ";".join(map(str, RESNET)) + "\r\n"
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    table = read_table(tmp_path / "t.csv")
    assert table.rows[0].gpus == 8
    assert table.rows[0].get("value") == 6154.66


def test_columns_left_out_are_told(tmp_path: Path) -> None:
    head = ("model", "accelerator", "gpus", "value", "unit")
    table = read_table(write(tmp_path / "t.csv", [("resnet50", "V100", 4, 1.0, "s")], head))
    told = " ".join(table.warnings)
    for name in (
        "batch_per_gpu",
        "gpus_per_node",
        "precision",
        "strategy",
        "inter_node",
        "seq_len",
    ):
        assert f"no column {name}: assumed" in told


def test_columns_are_read_however_their_words_are_joined(tmp_path: Path) -> None:
    head = ("Model", "GPU", "GPUs", "per_gpu_batch", "Global batch size", "Value", "unit")
    row = ("resnet50", "V100", 4, 32, 128, 1.0, "s")
    table = read_table(write(tmp_path / "t.csv", [row], head))
    found = table.rows[0]
    assert (found.gpus, found.get("batch_per_gpu"), found.get("global_batch")) == (4, 32, 128)
    assert not [text for text in table.warnings if "is not read" in text]


def test_columns_that_nobody_reads_are_told_with_what_is_read_instead(tmp_path: Path) -> None:
    """Else a batch in a column of another name would be a default's without a word."""
    head = ("model", "accelerator", "gpus", "batch_size", "presicion", "colour", "value", "unit")
    row = ("resnet50", "V100", 4, 32, "FP32", "red", 1.0, "s")
    told = read_table(write(tmp_path / "t.csv", [row], head)).warnings
    assert [text for text in told if "is not read" in text] == [
        "column batch_size is not read; batch_per_gpu or global_batch is",
        "column presicion is not read; precision is",
        "column colour is not read",
    ]


def test_rows_that_say_their_nodes_have_their_share_where_no_node_has_all(tmp_path: Path) -> None:
    head = ("model", "accelerator", "gpus", "nodes", "batch_per_gpu", "value", "unit")
    rows = [("resnet50", "DGX Spark", n, n, 64, 1.0, "s") for n in (2, 4)]
    for row in read_table(write(tmp_path / "t.csv", rows, head)).rows:
        (found,) = {r.cluster["gpus_per_node"] for r in platform_of(row).readings}
        assert found == 1
    (lone,) = read_table(
        write(tmp_path / "t.csv", [("resnet50", "GB10", 2, "", 64, 1, "s")], head)
    ).rows
    (found,) = {r.cluster["gpus_per_node"] for r in platform_of(lone).readings}
    assert found == 1


BOTH = ("model", "accelerator", "gpus", "batch_per_gpu", "Throughput (img/s)", "step time (ms)")


@pytest.mark.parametrize("head", [BOTH, (*BOTH[:4], "throughput", "step time (ms)", "unit")])
def test_a_rate_beside_the_time_of_a_step_is_checked_against_it(
    tmp_path: Path, head: tuple[str, ...]
) -> None:
    unit = ("img/s",) * (len(head) - len(BOTH))
    rows = [("resnet50", "V100", n, 256, 750 * n, ms, *unit) for n, ms in ((8, 341), (16, 541))]
    table = read_table(write(tmp_path / "t.csv", rows, head))
    assert [row.get("step_time_s") for row in table.rows] == [0.341, 0.541]
    name = head[4].lower()
    (said,) = [text for text in table.warnings if "what was measured" in text]
    assert said.lower().startswith(
        f"column step time (ms) is what was measured; column {name} is checked against it"
    )
    assert measured_case(table.rows[0]).step_time == 0.341
    with pytest.raises(Refused, match="is not 4096 samples in step_time_s"):
        measured_case(table.rows[1])


RATES = (*BOTH[:4], "tokens/s", "img/s")


@pytest.mark.parametrize("head", [RATES, (*BOTH[:4], "Throughput (tokens/s)", "speed (img/s)")])
def test_of_several_columns_of_rates_the_one_that_is_filled_is_read(
    tmp_path: Path, head: tuple[str, ...]
) -> None:
    """Images in one, tokens in the other: each row has its own unit, in its file of predictions
    too."""
    images = [("resnet50", "V100", n, 64, "", 360 * n) for n in (8, 16)]
    tokens = [("gpt2", "A100", n, 8, f"{60 * n}k", "") for n in (8, 16)]
    path = write(tmp_path / "t.csv", [*images, *tokens], head)
    table = read_table(path)
    found = [(row.get("value"), row.text("unit")) for row in table.rows]
    assert found == [(2880, "img/s"), (5760, "img/s"), (480e3, "tokens/s"), (960e3, "tokens/s")]
    assert not any("is not read" in text for text in table.warnings)
    (said,) = [text for text in table.warnings if "are rates" in text]
    assert said.startswith(f"columns {head[4]} and {head[5]} are rates: of each row the one that")
    lines = validated_training(path).predictions()
    assert [line["status"] for line in lines] == ["calibrated", "predicted"] * 2
    assert [line["unit"] for line in lines] == [unit for _, unit in found]


def test_where_several_columns_of_rates_are_filled_the_first_is_read(tmp_path: Path) -> None:
    rows = [("gpt2", "A100", 8, 8, 481_280, 940), ("gpt2", "A100", 16, 8, "", 1860)]
    table = read_table(write(tmp_path / "t.csv", rows, (*BOTH[:4], "tokens/s", "samples/s")))
    found = [(row.get("value"), row.text("unit")) for row in table.rows]
    assert found == [(481_280, "tokens/s"), (1860, "samples/s")]


def test_repeats_in_columns_of_rates_that_contradict_each_other_are_told(tmp_path: Path) -> None:
    rows = [("resnet50", "V100", 8, 64, "", rate) for rate in (2900, 1400)]
    told = read_table(write(tmp_path / "t.csv", rows, RATES)).warnings
    assert any("line 2 repeats line 3 and contradicts it" in text for text in told)


def test_rates_with_a_decimal_comma_in_any_of_their_columns_have_no_thousands(
    tmp_path: Path,
) -> None:
    rows = [("resnet50", "V100", 8, 64, "", "2,9"), ("gpt2", "A100", 8, 8, "480,000", "")]
    fine = ("gpt2", "A100", 16, 8, "960000", "")
    for row in read_table(write(tmp_path / "t.csv", [*rows, fine], RATES)).rows[:2]:
        assert "decimals have a point" in row.fault


def test_a_row_of_a_steps_time_alone_is_told_in_seconds(cli: Cli, tmp_path: Path) -> None:
    """Beside a column of rates whose name says their unit: it was 0.36 img/s."""
    head = (*BOTH[:4], "img/s", "step time (ms)")
    rows = [("resnet50", "V100", n, 256, "", ms) for n, ms in ((8, 341), (16, 360))]
    _, out, _ = cli("validate", str(write(tmp_path / "t.csv", rows, head)))
    assert "0.36 s " in out
    assert "0.36 img/s" not in out


def test_a_time_that_is_not_said_to_be_a_steps_is_not_read_beside_a_rate(tmp_path: Path) -> None:
    head = (*BOTH[:5], "time (s)")
    table = read_table(write(tmp_path / "t.csv", [("resnet50", "V100", 8, 256, 6000, 90)], head))
    assert table.rows[0].get("value") == 6000
    assert any(text.startswith("column time (s) is not read") for text in table.warnings)


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("76,000", 76000), ("1,234,567", 1234567), ("13,000.5", 13000.5), ("1,5", None),
        ("12,34", None), ("0,125", None), ("76,00", None), ("1,2345", None),
    ],
)  # fmt: skip
def test_thousands_of_a_rate_may_be_grouped_where_no_decimals_are_meant(
    tmp_path: Path, written: str, number: float | None
) -> None:
    rows = [("resnet50", "V100", 8, 32, "fp32", "fp32", "800", "samples/s")]
    rows.append((*rows[0][:6], written, rows[0][7]))
    found = read_table(write(tmp_path / "t.csv", rows)).rows[1]
    assert found.get("value") == number
    assert ("decimals have a point" in found.fault) == (number is None)


@pytest.mark.parametrize(
    ("written", "unit", "number"),
    [
        ("86k", "samples/s", 86e3), ("141.2K", "tokens/s", 141.2e3), ("1.2M", "tokens/s", 1.2e6),
        ("~6300", "samples/s", 6300), ("about 6300", "samples/s", 6300), ("~ 1.5", "s", 1.5),
        ("86k", "ms", None), ("86kk", "samples/s", None), ("k", "samples/s", None),
        ("~", "samples/s", None), ("about", "samples/s", None), ("86-90k", "samples/s", None),
    ],
)  # fmt: skip
def test_rates_have_thousands_and_what_is_rounded_says_so(
    tmp_path: Path, written: str, unit: str, number: float | None
) -> None:
    rows = [("resnet50", "V100", 8, 32, "fp32", "fp32", "800", "samples/s")]
    rows.append((*rows[0][:6], written, unit))
    found = read_table(write(tmp_path / "t.csv", rows)).rows[1]
    assert found.get("value") == number
    assert bool(found.fault) == (number is None)


def test_a_cell_of_a_book_is_refused(tmp_path: Path) -> None:
    """The rows beside it are read."""
    long = (RESNET[0], "V100 " * 1300, *RESNET[2:])
    book, other = read_table(write(tmp_path / "t.csv", [long, RESNET])).rows
    assert book.fault == "accelerator: a cell has at most 6,000 characters"
    assert not other.fault


@pytest.mark.parametrize("role", ["calib", "Calib", "calibration"])
def test_a_calibrated_row_is_told_in_any_case(tmp_path: Path, role: str) -> None:
    rows = [(*RESNET, role), (*RESNET[:3], 16, *RESNET[4:6], 12000, RESNET[7], "predict")]
    found = validated_training(write(tmp_path / "t.csv", rows, (*HEAD, "role")))
    assert [line["status"] for line in found.predictions()] == ["calibrated", "predicted"]


def test_a_batch_of_which_nobody_says_whose_it_is_is_told(tmp_path: Path) -> None:
    for name, said in (("Batch", True), ("batch_per_gpu", False), ("Global batch", False)):
        head = tuple(name if column == "batch_per_gpu" else column for column in HEAD)
        table = read_table(write(tmp_path / "t.csv", [RESNET], head))
        told = [text for text in table.warnings if "is taken for the batch of one GPU" in text]
        assert bool(told) == said


def test_a_comma_that_may_be_a_decimal_one_is_refused(tmp_path: Path) -> None:
    """In a time, beside a number that has one, and where cells have other separators."""
    head = "model,accelerator,gpus,value,unit\n"
    for text in (
        head + 'm,V100,8,"1,234",s\nm,V100,8,1.5,s\n',
        head + 'm,V100,8,"1,234",img/s\nm,V100,8,"1,5",img/s\nm,V100,8,2,img/s\n',
        (head + "m,V100,8,1.234,img/s\nm,V100,8,2,img/s\n").replace(",", ";").replace(".", ","),
    ):
        (tmp_path / "t.csv").write_text(text, encoding="utf-8")
        assert "may be a decimal one" in read_table(tmp_path / "t.csv").rows[0].fault


def test_no_column_of_the_published_tables_is_unread() -> None:
    """Their schema, as validation/published/README.md lists it, is all known."""
    published = Path(__file__).parents[1] / "validation/published/training.csv"
    columns = published.read_text().splitlines()[0].split(",")
    assert list(unread(named(columns))) == []
    assert named(columns) == tuple(columns)


def test_repeats_of_a_run_that_contradict_each_other_are_told(tmp_path: Path) -> None:
    """Slower by half is told with both lines; a tenth is what runs differ by."""
    for share, told in ((0.49, True), (0.9, False)):
        other = (*RESNET[:6], RESNET[6] * share, RESNET[7])
        more = (*RESNET[:3], 16, *RESNET[4:])
        table = read_table(write(tmp_path / "t.csv", [RESNET, more, other]))
        found = [text for text in table.warnings if "contradicts" in text]
        assert len(found) == told
        assert all(text.startswith("line 2 repeats line 4") for text in found)


# -- from words to scenarios ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "millions", "expected"),
    [
        ("ResNet-50 v1.5", None, {"name": "resnet50"}),
        ("VGG16", None, {"name": "vgg16"}),
        ("BERT-Large", 330, {"huggingface": "bert-large", "sequence_length": 512}),
        ("Llama 3.1 8B", 8000, {"huggingface": "llama-3.1-8b", "sequence_length": 8192}),
        ("Llama2-70b", None, {"huggingface": "llama-2-70b", "sequence_length": 4096}),
        ("Stable Diffusion 2.1", None, {"huggingface": "stable-diffusion-v2.1"}),
        ("SD-v1.5", None, {"huggingface": "stable-diffusion-v1.5"}),
        ("SDXL", None, {"huggingface": "stable-diffusion-xl"}),
        (
            "Mask R-CNN R50-FPN",
            44.4,
            {"name": "scaled", "like": "resnet50", "parameters": 44400000, "sample": "image"},
        ),
        (
            "Jasper 10x5",
            333,
            {"name": "scaled", "like": "resnet50", "parameters": 333000000, "sample": "sequence"},
        ),
    ],
)
def test_models_by_name(name: str, millions: float | None, expected: dict[str, Any]) -> None:
    found = choose_model(name, "", millions and millions * 1e6, None)
    assert found.data == expected
    assert bool(found.note) == (expected.get("name") == "scaled")


def test_shapes_of_nemos_models_are_its_own() -> None:
    shapes = {"GPT3-20B": (6144, 44), "gpt-3 5b": (4096, 24), "Nemotron-22B": (6144, 40)}
    for name, (width, blocks) in shapes.items():
        found = choose_model(name, "LLM", 1e9, 4096).data  # whatever the parameters' column rounds
        assert (found["hidden"], found["blocks"]) == (width, blocks)
    assert choose_model("Nemotron-15B", "LLM", 15e9, 4096).note  # a stand-in


def test_columns_that_no_row_would_need_are_not_missed(tmp_path: Path) -> None:
    def said(unit: str, nodes: int) -> str:
        head = "model,accelerator,total_gpus,nodes,value,unit"
        path = tmp_path / "t.csv"
        path.write_text(f"{head}\nResNet-50,A100,{8 * nodes},{nodes},100,{unit}\n")
        return " ".join(read_table(path).warnings)

    assert "no column inter_node" not in said("images/s", 1)
    assert "no column seq_len" not in said("images/s", 1)
    assert "no column inter_node" in said("images/s", 2)
    assert "no column seq_len" in said("sequences/s", 1)


@pytest.mark.parametrize("billions", [0.125, 0.355, 1.3, 6.7, 13, 30, 70, 175, 530, 1000])
def test_a_decoder_of_unknown_shape_has_about_the_parameters_stated(billions: float) -> None:
    from dpsim.models.section import load, make

    found = choose_model(f"LLM {billions}B", "LLM pre-training", billions * 1e9, 2048)
    model = load(make(found.data, file=False), Path())
    assert model.parameters == pytest.approx(billions * 1e9, rel=0.06)
    assert found.note


def test_dimensions_in_the_name_count() -> None:
    data = choose_model("GPT h3072 L30", "LLM", 3.6e9, 2048).data
    assert (data["hidden"], data["blocks"]) == (3072, 30)


def test_a_row_may_say_the_vocabulary_of_a_shape() -> None:
    """In words; else it is GPT-2's."""
    words = {
        "vocabulary 131072 (README)": 131072, "vocab size: 250,880": 250880,
        "a large vocabulary": None, "": None,
    }  # fmt: skip
    for notes, rows in words.items():
        column = {"notes": notes}.get
        found = choose_model(
            "GPT h2048 L24 a16", "LLM", 1.7e9, 4096, column=lambda name, of=column: of(name, "")
        )
        assert found.data.get("vocabulary") == rows


@pytest.mark.parametrize(
    ("repository", "shape"),
    [("bigscience-workshop/bigscience", (14400, 80)), ("a/b", (11776, 120))],
)
def test_a_shape_that_a_source_tells_elsewhere_is_of_that_source_alone(
    repository: str, shape: tuple[int, int]
) -> None:
    columns = {"source_repo": repository}
    found = choose_model("GPT 200B", "LLM", 200e9, 2048, (8, 4), lambda name: columns.get(name, ""))
    assert (found.data["hidden"], found.data["blocks"]) == shape


def test_a_model_without_name_or_size_is_refused() -> None:
    with pytest.raises(Refused, match="not known and its parameters are not stated"):
        choose_model("Frobnicator", "", None, None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"strategy": "parameter server on GPU"}, "on the workers' own devices"),
        ({"strategy": "parameter server on CPU", "nodes": 2, "total_gpus": 16}, "in one node"),
        ({"strategy": "DP+TP+PP", "tp": 4}, "pp: pipeline parallelism of unknown size"),
        ({"strategy": "DP+PP"}, "pp: pipeline parallelism of unknown size"),
        ({"strategy": "DP+CP"}, "cp: context parallelism of unknown size"),
        ({"strategy": "DP, async"}, "rows of asynchronous training are not read"),
        ({"strategy": "async TensorFlow DP"}, "rows of asynchronous training are not read"),
        ({"strategy": "DP all-reduce", "compression": "sketches"}, "compressed communication"),
        ({"strategy": "decentralised DP (neighbor averaging)"}, "decentralised"),
        ({"strategy": "gossip"}, "'gossip' is not known"),
        ({"precision": "posit"}, "'posit' is not known"),
        ({"precision": "MXFP4 mixed"}, "'MXFP4 mixed' is not modelled"),
        ({"precision": "fp6"}, "'fp6' is not modelled"),
        ({"accelerator": "Abacus 9000"}, "abacus 9000"),
        ({"batch_per_gpu": "64 (s128) / 8 (s512)"}, "is not one number"),
        ({"unit": "furlongs"}, "'furlongs' is not known"),
        ({"unit": "minutes"}, "the steps are not stated"),
        ({"grad_accum": 1.5}, "not a whole number"),
        ({"batch_unit": "tokens", "batch_per_gpu": 4096}, "needs seq_len"),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        point(tmp_path, **changes)


CONTRADICTING = [
    ({"throughput_global": 3000}, "throughput_global: 3000 per second is not value 6154.66"),
    ({"throughput_global": 3000, "throughput_unit": "images/s"}, "throughput_global: 3000"),
    ({"unit": "images/s/GPU", "throughput_global": 6154.66}, "49237.3 of all"),
    ({"params_m": 2.5}, "params_m: 2.5 million are not the 25.56 of 'ResNet-50'"),
    ({"params_m": 25557032}, "params_m: 2.5557e.07 million parameters are not in the"),
    ({"strategy": "no DDP"}, "strategy 'no DDP' only says what it is not"),
    ({"strategy": "without DDP"}, "only says what it is not"),
    ({"strategy": "DDP + FSDP"}, "several strategies"),
    ({"strategy": "Horovod/ZeRO-3"}, "several strategies"),
    ({"strategy": "ZeRO-3 offload"}, "not stated what is offloaded"),
    ({"strategy": "ZeRO-3", "strategy_detail": "activation offload"}, "not stated what"),
    ({"strategy": "ZeRO-3 offload_optimizer, offload_param"}, "offloading parameters"),
]


@pytest.mark.parametrize(("changes", "reason"), CONTRADICTING, ids=str)
def test_columns_that_contradict_each_other_are_refused(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        point(tmp_path, **changes)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"throughput_global": 6154.66}, "ddp"),
        ({"unit": "images/s/GPU", "value": 769.3, "throughput_global": 6154.66}, "ddp"),
        ({"params_m": 23.5}, "ddp"),
        ({"strategy": "DDP (no ZeRO-1)"}, "ddp"),
        ({"strategy": "FSDP, not DDP"}, "fsdp"),
        ({"strategy": "ZeRO-2, no offload"}, "zero"),
        ({"strategy": "ZeRO-2 with ZeRO-Offload"}, "zero"),
    ],
    ids=str,
)
def test_columns_that_say_the_same_twice_are_read(
    tmp_path: Path, changes: dict[str, Any], kind: str
) -> None:
    assert point(tmp_path, **changes).strategy == kind


def test_parameters_of_adapters_may_be_stated(tmp_path: Path) -> None:
    changes = {
        "model": "Llama-2-7B LoRA",
        "seq_len": 512,
        "batch_per_gpu": 1,
        "unit": "sequences/s",
    }
    assert point(tmp_path, **changes, params_m=4.2).data["model"]["adapters"]


INFERENCE = [
    {"task": "inference"},
    {"task": "MLPerf Inference v4.0 resnet"},
    {"task": "LLM serving"},
    {"task": "decoding"},
    {"task": "LLM prefill/decode"},
    {"metric": "inference latency"},
    {"framework": "vLLM 0.6"},
]


@pytest.mark.parametrize("changes", INFERENCE, ids=str)
def test_rows_of_inference_are_refused_by_name(tmp_path: Path, changes: dict[str, str]) -> None:
    with pytest.raises(Refused, match=r"rows of inference are not read.*`dpsim serve`"):
        point(tmp_path, **changes)


MORE_PASSES = [
    {"task": "SimCLR pre-training"},
    {"task": "DINO v2"},
    {"task": "knowledge distillation"},
    {"task": "DPO"},
    {"framework": "TRL GRPOTrainer"},
    {"task": "MAE pretraining"},
    {"task": "MAE"},
    {"task": "RLHF (PPO)"},
    {"task": "ORPO"},
]


@pytest.mark.parametrize("changes", MORE_PASSES, ids=str)
def test_what_computes_more_than_the_model_does_is_refused(
    tmp_path: Path, changes: dict[str, str]
) -> None:
    with pytest.raises(Refused, match="more than a forward and a backward pass of one model"):
        point(tmp_path, **changes)


@pytest.mark.parametrize("model", ["ResNet-50", "ResNet-101", "ViT-B/16", "Swin-T", "DenseNet-121"])
@pytest.mark.parametrize("task", ["COCO object detection", "semantic segmentation (ADE20K)"])
def test_a_network_that_classifies_images_detects_nothing(
    tmp_path: Path, model: str, task: str
) -> None:
    with pytest.raises(Refused, match=r"alone does no task .*detector's own name"):
        point(tmp_path, model=model, task=task)
    assert point(tmp_path, model="SSD300", task="COCO object detection").step_time > 0


@pytest.mark.parametrize(
    "task",
    [
        "ImageNet without distillation", "no knowledge distillation", "distillation: none",
        "fine-tuning of DINO weights", "SFT before DPO", "reward model training",
        "classification, no object detection", "pneumonia detection from chest X-rays",
        "SQuAD fine-tuning", "BERT pre-training", "natural language inference (MNLI)",
        "image training incl. JPEG decoding", "training without inference", "fine-tuning",
    ],
)  # fmt: skip
def test_rows_of_training_are_read_whatever_it_is_for(tmp_path: Path, task: str) -> None:
    assert point(tmp_path, task=task).step_time > 0


@pytest.mark.parametrize(
    ("strategy", "kind"),
    [
        ("", "ddp"), ("DDP all-reduce (NCCL)", "ddp"), ("FSDP FULL_SHARD", "fsdp1"),
        ("Horovod all-reduce (NCCL)", "horovod"), ("ZeRO-1 data parallel", "zero"),
        ("DeepSpeed (no ZeRO stage in config)", "ddp"),
        ("ZeRO-3 data parallel", "zero"), ("data parallel all-reduce (NCCL)", "ddp"),
    ],
)  # fmt: skip
def test_strategies_by_name(tmp_path: Path, strategy: str, kind: str) -> None:
    assert point(tmp_path, strategy=strategy).strategy == kind


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"strategy": "FSDP (fully_shard)"}, {"kind": "fsdp"}),
        ({"strategy": "HSDP", "shard": "shard=8"}, {"kind": "fsdp", "shard": 8}),
        ({"strategy": "FSDP SHARD_GRAD_OP"},
         {"kind": "fsdp1", "sharding_strategy": "SHARD_GRAD_OP"}),
        ({"strategy": "FSDP HYBRID_SHARD"},
         {"kind": "fsdp1", "sharding_strategy": "HYBRID_SHARD", "shard": 8}),
        ({"strategy": "FSDP _HYBRID_SHARD_ZERO2", "shard": "group=4"},
         {"kind": "fsdp1", "sharding_strategy": "_HYBRID_SHARD_ZERO2", "shard": 4}),
        ({"strategy": "FSDP", "framework": "Composer"},
         {"kind": "fsdp1", "backward_prefetch": "BACKWARD_POST"}),
        ({"strategy": "nn.DataParallel"}, {"kind": "data_parallel"}),
        ({"strategy": "DistributedDataParallel all-reduce"}, {"kind": "ddp"}),
        ({"strategy": "MirroredStrategy"}, {"kind": "mirrored"}),
        ({"strategy": "MultiWorkerMirroredStrategy"}, {"kind": "multi_worker_mirrored"}),
        ({"strategy": "data parallel", "framework": "JAX 0.4 (pmap)"}, {"kind": "pmap"}),
        ({"strategy": "Horovod hierarchical all-reduce"},
         {"kind": "horovod", "hierarchical_allreduce": True, "local_size": 8}),
        ({"strategy": "DP all-reduce", "framework": "PyTorch 1.4 + Horovod/NCCL",
          "strategy_detail": "layer-wise overlap, no tensor fusion"},
         {"kind": "horovod", "fusion_threshold": 0, "cycle_time": 0.0, "cache_capacity": 0}),
        ({"strategy": "DDP", "compression": "fp16"}, {"kind": "ddp", "comm_hook": "fp16"}),
        ({"strategy": "DDP", "compression": "BF16 compression hook"},
         {"kind": "ddp", "comm_hook": "bf16"}),
        ({"strategy": "DDP", "strategy_detail": "fp16_compress_hook", "compression": "none"},
         {"kind": "ddp", "comm_hook": "fp16"}),
        ({"strategy": "DDP", "compression": "none (fp32 gradients)"}, {"kind": "ddp"}),
        ({"strategy": "DP", "compression": "1-bit Adam (16x volume reduction)"},
         {"kind": "ddp", "comm_hook": {"kind": "one_bit"}}),
        ({"strategy": "DDP", "compression": "PowerSGD rank 4"},
         {"kind": "ddp", "comm_hook": {"kind": "powersgd", "rank": 4}}),
        ({"strategy": "DP", "framework": "BytePS + MXNet", "compression": "topk k=1"},
         {"kind": "ddp", "comm_hook": {"kind": "top_k", "density": "1e-9"}}),
        ({"strategy": "DP all-reduce", "framework": "DeepSpeed"},  # when backward has ended
         {"kind": "ddp", "bucket_cap_mb": 1000000}),
        ({"strategy": "ZeRO-2, ZeRO-Offload", "framework": "DeepSpeed"},
         {"kind": "zero", "stage": 2, "offload_optimizer": "cpu"}),
    ],
)  # fmt: skip
def test_a_system_is_played_with_the_knobs_that_its_row_names(
    tmp_path: Path, changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert point(tmp_path, **changes).data["strategy"] == expected


def test_horovod_casts_where_a_row_says_so(tmp_path: Path) -> None:
    found = point(tmp_path, strategy="Horovod", compression="fp16")
    assert found.data["compression"] == "fp16"
    assert found.data["strategy"]["kind"] == "horovod"


def test_zero_plus_plus_has_the_parts_that_are_named(tmp_path: Path) -> None:
    plus = {"total_gpus": 16, "nodes": 2, "framework": "DeepSpeed", "shard": "ZeRO-3"}
    every = {
        "kind": "zero", "stage": 3, "zero_quantized_weights": True, "zero_hpz_partition_size": 8,
        "zero_quantized_gradients": True, "local_world_size": 8,
    }  # fmt: skip
    quantised = "INT8 weights / INT4 gradients (ZeRO++)"
    whole = point(tmp_path, **plus, strategy="ZeRO++", compression=quantised)
    assert whole.data["strategy"] == every
    assert any("hpZ's groups are nodes, 8 ranks" in note for note in whole.notes)
    named = point(tmp_path, **plus, strategy="ZeRO++", strategy_detail="qwZ+hpZ+qgZ")
    assert named.data["strategy"] == every
    weights = point(tmp_path, **plus, strategy="ZeRO-3", strategy_detail="qwZ only")
    assert weights.data["strategy"] == {"kind": "zero", "stage": 3, "zero_quantized_weights": True}
    with pytest.raises(Refused, match="gpus_per_node is not stated"):
        point(tmp_path, **plus | {"gpus_per_node": ""}, strategy="ZeRO++")


def test_quantised_exchange_takes_less_time_than_the_whole_one(tmp_path: Path) -> None:
    row = {
        "model": "GPT h1024 L4", "total_gpus": 16, "nodes": 2, "framework": "DeepSpeed",
        "inter_node": "10 GbE", "inter_gbits_s_per_node": 10, "precision": "FP16", "seq_len": 512,
        "batch_per_gpu": 1, "shard": "ZeRO-3", "value": 1.0, "unit": "s",
    }  # fmt: skip
    plain = point(tmp_path, **row, strategy="ZeRO-3 data parallel").case
    plus = point(tmp_path, **row, strategy="ZeRO++").case
    assert step_time(plus) < step_time(plain)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"strategy": "HSDP"}, "groups of unknown size; shard=N in column shard"),
        ({"strategy": "FSDP HYBRID_SHARD", "gpus_per_node": ""}, "groups of unknown size"),
        ({"strategy": "Horovod hierarchical all-reduce", "gpus_per_node": ""}, "gpus_per_node"),
        ({"strategy": "Horovod", "strategy_detail": "Adasum"}, "Adasum"),
        ({"strategy": "Horovod", "compression": "bf16"}, "bf16 with horovod"),
        ({"strategy": "DDP", "compression": "8-bit floats"}, "8-bit floats with ddp"),
        ({"strategy": "Horovod", "compression": "topk k=1"}, "compressed communication"),
        ({"strategy": "ZeRO-Infinity, NVMe"}, "NVMe is not modelled"),
        ({"strategy": "MultiWorkerMirroredStrategy, RING over gRPC"}, "gRPC"),
    ],
)
def test_a_knob_that_is_missing_or_not_modelled_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        point(tmp_path, **changes)


@pytest.mark.parametrize(
    ("detail", "kind"),
    [("FSDP", "fsdp"), ("may use FSDP, not stated in its file", "ddp"), ("ZeRO-1", "zero")],
)
def test_what_a_row_says_that_it_may_use_tells_no_strategy(
    tmp_path: Path, detail: str, kind: str
) -> None:
    said = f"degrees from its file; {detail}"
    found = point(tmp_path, framework="PyTorch", strategy="DP", strategy_detail=said)
    assert found.data["strategy"]["kind"] == kind


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [("nn.DataParallel", "DataParallel is one process"), ("MirroredStrategy", "one node")],
)
def test_a_system_of_one_node_is_refused_on_two(tmp_path: Path, strategy: str, reason: str) -> None:
    row = dict(zip(HEAD, RESNET, strict=True)) | {"total_gpus": 16, "strategy": strategy}
    path = write(tmp_path / "t.csv", [tuple(row.values())], tuple(row))
    (outcome,) = validated_training(path).outcomes
    assert outcome.status == "refused"
    assert reason in outcome.reason


@pytest.mark.parametrize(("tokens", "length"), [(1024, 1024), (2048, 2048), (4096, 2048)])
def test_a_batch_in_tokens_without_seq_len_assumes_no_sequence_longer_than_it(
    tmp_path: Path, tokens: int, length: int
) -> None:
    found = point(
        tmp_path, model="GPT 6.7B", params_m=6700, precision="FP16", batch_unit="tokens",
        batch_per_gpu=f"{tokens} tokens", global_batch=8 * tokens, value=1.0, unit="s",
    )  # fmt: skip
    assert found.data["model"]["sequence_length"] == length
    assert found.data["batch"] == {"per_device": tokens // length, "accumulation": 1}
    assert any(f"sequences of {length:,} tokens are assumed" in note for note in found.notes)


def test_another_frameworks_exchange_is_told(tmp_path: Path) -> None:
    assert not any("MXNet" in note for note in point(tmp_path, framework="PyTorch 2.1").notes)
    assert any("MXNet" in note for note in point(tmp_path, framework="MXNet 1.9").notes)


_DEEPSPEED: dict[str, Any] = {
    "model": "BERT-Large",
    "framework": "DeepSpeed",
    "strategy": "DP all-reduce",
    "precision": "FP16",
    "batch_unit": "sequences",
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"compression": "1-bit Adam (16x)"}, True),
        ({"precision": "fp32"}, False),
        ({"strategy": "ZeRO-2"}, False),
        ({"framework": "PyTorch 1.6"}, False),
        ({"framework": "Megatron-DeepSpeed"}, False),
        ({"precision": "FP32 (no fp16 option used)"}, False),
        ({"strategy_detail": "deepspeed_train.py"}, True),
        ({"strategy": "Horovod", "strategy_detail": "ddp.sh / deepspeed.sh / horovod.sh"}, False),
    ],
)
def test_deepspeeds_update_in_half_precision_moves_more_and_its_host_waits(
    tmp_path: Path, changes: dict[str, Any], expected: bool
) -> None:
    found = point(tmp_path, **_DEEPSPEED | changes).data
    wrapped = {"master_weights": True, "extra_bytes": "32 B", "fused": "foreach"}
    assert found["optimizer"] == {"kind": "adam", **(wrapped if expected else {})}
    assert found["host"] == ({"launch": "46 us", "waits": True} if expected else {})


def test_deepspeeds_step_in_half_precision_takes_what_its_authors_timed(tmp_path: Path) -> None:
    """BERT-Large on one V100, sequences of 128 (arXiv:2102.02888, table of latencies): one takes
    48.6 and 70.3 ms of forward and backward on its two clusters, the step 57.3 and 75.6 ms."""
    one = {"accelerator": "V100-SXM2-16GB", "total_gpus": 1, "batch_per_gpu": 1, "seq_len": 128}
    found = point(tmp_path, **_DEEPSPEED | one)
    frozen = load({**found.data, "optimizer": {"kind": "none"}}, tmp_path, "frozen").scenario
    passes = step_time(Case(frozen, tmp_path))
    assert 48.6e-3 < passes < 70.3e-3
    assert step_time(found.case) - passes == pytest.approx(57.3e-3, rel=0.1)


# -- units ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "unit", "step"),
    [
        (0.5, "s", 0.5), (500, "ms", 0.5), (4096, "images/s", 0.5), (4096, "samples/s", 0.5),
        (4096, "img/s", 0.5), (4096, "imgs/sec", 0.5),
        (512, "images/s/GPU", 0.5), (512, "images/s/GPU (as printed)", 0.5),
        (512, "images/s (per GPU)", 0.5), (500, "ms (mean of 100 steps)", 0.5),
        (0.5, "seconds per iteration", 0.5), (500, "ms/iteration", 0.5), (0.5, "sec/it", 0.5),
        (50, "s/100 steps", 0.5), (50, "s/100 batches", 0.5), (250, "s/1024k images", 0.5),
        (500 / 2.048, "ms/kimg", 0.5),
    ],
)  # fmt: skip
def test_every_unit_means_the_same_step(
    tmp_path: Path, value: float, unit: str, step: float
) -> None:
    found = point(tmp_path, value=value, unit=unit)
    assert found.step_time == pytest.approx(step, rel=1e-12)
    doubled = found.value(2 * step)
    timed = unit.startswith(("s", "ms")) and not unit.startswith("samples")
    assert doubled == pytest.approx(value * 2 if timed else value / 2, rel=1e-12)


@pytest.mark.parametrize("unit", ["s/epoch", "minutes", "s (400 steps on 1 GPU, 200 on 2)"])
def test_a_time_of_a_whole_run_beside_a_steps_grows_with_it(tmp_path: Path, unit: str) -> None:
    found = point(tmp_path, value=70.0, unit=unit, step_time_s=0.5)
    assert found.step_time == 0.5
    assert found.value(1.0) == pytest.approx(140.0)
    with pytest.raises(Refused, match=r"is of a whole run or of an epoch|is not known"):
        point(tmp_path, value=70.0, unit=unit)


@pytest.mark.parametrize(
    "unit",
    [
        "images/s (thousands)", "images/s (x1000)", "images/s (per node)", "images/s (speedup)",
        "ms (forward only)", "ms (per image)", "images/s (mean of 8 GPUs)",
        "s (mean of 3 epochs)", "s (100 batches)", "s/0 steps", "ms/256 batch",
        "images/s" + "()" * 1000,
    ],
)  # fmt: skip
def test_a_unit_that_may_mean_something_else_is_refused(tmp_path: Path, unit: str) -> None:
    with pytest.raises(Refused, match="is not known"):
        point(tmp_path, value=70.0, unit=unit)


def test_tokens_and_flop_rates(tmp_path: Path) -> None:
    changes = {"model": "BERT-Large", "seq_len": 128, "batch_per_gpu": 32}
    tokens = point(tmp_path, **changes, value=8 * 32 * 128 / 0.25, unit="tokens/s")
    assert tokens.step_time == pytest.approx(0.25, rel=1e-12)
    flop = tokens.case.model.flop_per_sample() * 8 * 32
    rated = point(tmp_path, **changes, value=flop / 0.25 / 8 / 1e12, unit="TFLOP/s/GPU")
    assert rated.step_time == pytest.approx(0.25, rel=1e-12)


def test_batch_with_and_without_accumulation(tmp_path: Path) -> None:
    plain = point(tmp_path, batch_per_gpu=8, grad_accum=4, global_batch=256)
    assert plain.data["batch"] == {"per_device": 8, "accumulation": 4}
    whole = point(tmp_path, batch_per_gpu=32, grad_accum=4, global_batch=256)
    assert whole.data["batch"] == {"per_device": 8, "accumulation": 4}
    odd = point(tmp_path, batch_per_gpu=3.5, global_batch=28)
    assert odd.data["batch"] == {"global": 28, "accumulation": 1}


# -- tensor and pipeline parallelism --------------------------------------------------------------

GPT = {
    "model": "GPT h1024 L8", "accelerator": "NVIDIA A100-SXM4-80GB", "total_gpus": 16,
    "seq_len": 512, "precision": "FP16", "framework": "Megatron-DeepSpeed",
    "strategy": "DP+TP+PP", "strategy_detail": "1F1B", "tp": 2, "pp": 4, "dp": 2,
    "batch_per_gpu": 2, "grad_accum": 32, "global_batch": 128, "value": 3.0, "unit": "s",
}  # fmt: skip


def test_a_mesh_is_read_from_its_columns(tmp_path: Path) -> None:
    found = point(tmp_path, **GPT)
    split = {"tensor": 2, "pipeline": 4}
    assert found.data["parallel"] == {**split, "overlap_tensor_gradients": False}
    assert found.data["schedule"] == {"kind": "one_f_one_b"}
    assert found.data["batch"] == {"per_device": 2, "accumulation": 32}
    assert (found.case.mesh.data, found.case.global_batch) == (2, 128)
    assert found.strategy == "megatron+tp+pp"
    assert not any("1F1B" in note for note in found.notes)
    unsaid = point(tmp_path, **GPT | {"strategy_detail": ""})
    assert any("1F1B without interleaving" in note for note in unsaid.notes)
    plain = point(tmp_path, **GPT | {"tp": 1, "pp": 1, "dp": 16, "global_batch": 1024})
    assert plain.case.mesh.plain
    assert plain.strategy == "megatron"


@pytest.mark.parametrize(
    ("framework", "date", "overlaps"),
    [
        ("Megatron-LM", "2021-08", False),
        ("Megatron-LM", "2021-09", True),
        ("NVIDIA NeMo Framework Release 24.04", "2024-06", True),
        ("Megatron-DeepSpeed", "2024-06", False),
        ("nanotron (PyTorch)", "2025-01", True),
    ],
)
def test_tensor_ranks_overlap_gradients_since_megatron_does(
    framework: str, date: str, overlaps: bool, tmp_path: Path
) -> None:
    found = point(tmp_path, **GPT | {"framework": framework, "data_date": date})
    assert found.data["parallel"]["overlap_tensor_gradients"] is overlaps


def test_micro_batches_follow_from_the_batches_where_they_can(tmp_path: Path) -> None:
    found = point(tmp_path, **GPT | {"grad_accum": ""})
    assert found.data["batch"] == {"per_device": 2, "accumulation": 32}
    only_tensor = {"pp": 1, "dp": 8, "grad_accum": "", "batch_per_gpu": "", "strategy": "TP"}
    found = point(tmp_path, **GPT | only_tensor)
    assert found.data["batch"] == {"global": 128, "accumulation": 1}


UNSAID = GPT | {
    "gpus_per_node": 8, "inter_node": "8x HDR InfiniBand", "grad_accum": "", "batch_per_gpu": "",
    "batch_unit": "sequences",
}  # fmt: skip


def test_micro_batches_of_which_nothing_is_told_are_alternatives(tmp_path: Path) -> None:
    """Those of one, two and four sequences that a replica's batch is made of, by how often NVIDIA's
    recipes of decoders with a pipeline have them: 23, 2 and once."""
    row = row_of(tmp_path, **UNSAID)
    found = platform_of(row).readings
    assert [one.label for one in found] == [
        f"micro-batches of {many}" for many in ("one sequence", "two sequences", "four sequences")
    ]
    assert [one.weight for one in found] == pytest.approx([23 / 26, 2 / 26, 1 / 26])
    batches = [measured_case(row, reading=one).data["batch"] for one in found]
    assert [one["per_device"] for one in batches] == [1, 2, 4]
    assert [one["accumulation"] for one in batches] == [64, 32, 16]


@pytest.mark.parametrize(
    ("changes", "answers"),
    [
        ({"global_batch": 132}, 2),  # 66 sequences a replica
        ({"global_batch": 126}, 1),  # 63
        ({"global_batch": 129}, 1),  # none, which is refused
        ({"grad_accum": 4}, 0),
        ({"batch_per_gpu": 2}, 0),
        ({"pp": 1, "dp": 8}, 0),
        ({"batch_unit": "tokens", "global_batch": 262144}, 0),
    ],
)
def test_micro_batches_are_asked_for_where_they_fit_and_are_not_told(
    tmp_path: Path, changes: dict[str, Any], answers: int
) -> None:
    found = platform_of(row_of(tmp_path, **UNSAID | changes)).readings
    assert sum("micro_batch" in one.answers for one in found) == answers


def test_an_interval_holds_all_micro_batches(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", [tuple(UNSAID.values())], tuple(UNSAID))
    (outcome,) = validated_training(path, calibrate="none").outcomes
    assert outcome.status == "predicted"
    assert "assumed micro-batches of one sequence (88%)" in outcome.machine
    assert "or micro-batches of four sequences (4%)" in outcome.machine
    row = row_of(tmp_path, **UNSAID)
    cases = [measured_case(row, reading=one).case for one in platform_of(row).readings]
    steps = [step_time(case) for case in cases]
    assert len(set(steps)) == 3
    assert outcome.low is not None
    assert outcome.high is not None
    assert outcome.low <= min(steps) < max(steps) <= outcome.high
    # quicker ones than the usual move the lower end alone
    told = tuple((UNSAID | {"batch_per_gpu": 1}).values())
    (alone,) = validated_training(
        write(tmp_path / "t.csv", [told], tuple(UNSAID)), calibrate="none"
    ).outcomes
    assert min(steps) < steps[0] == max(steps)
    assert outcome.low < 0.99 * (alone.low or 0.0)
    assert outcome.high <= 1.01 * (alone.high or 0.0)


@pytest.mark.parametrize("detail", ["interleaved, 2 chunks", "virtual pipeline 2", "VPP=2"])
def test_an_interleaved_pipeline_says_its_chunks(tmp_path: Path, detail: str) -> None:
    found = point(tmp_path, **GPT | {"strategy_detail": detail})
    assert found.data["schedule"] == {"kind": "interleaved_1f1b", "chunks": 2}


@pytest.mark.parametrize(
    ("changes", "chunks"),
    [
        ({"model": "GPT-3 175B"}, 12),  # 96 blocks on 4 stages
        ({"model": "Llama 3.1 405B", "pp": 8, "dp": 1, "tp": 2}, 8),  # 126 blocks and 2
        ({"model": "GPT-3 175B", "framework": "Megatron-LM"}, 0),
        ({"model": "GPT-3 175B", "strategy_detail": "virtual pipeline 4"}, 4),
    ],
)
def test_nvidias_code_for_mlperf_interleaves_chunks_of_two_blocks(
    tmp_path: Path, changes: dict[str, Any], chunks: int
) -> None:
    row = {"framework": "NVIDIA NeMo", "strategy_detail": ""}
    row |= {"source_repo": "mlcommons/training_results_v4.1", "grad_accum": "", "global_batch": 128}
    found = point(tmp_path, **GPT | row | changes)
    assert found.data["schedule"].get("chunks", 0) == chunks
    assumed = f"assumed to interleave {chunks} chunks"
    stated = "strategy_detail" in changes or not chunks
    assert any(assumed in note for note in found.notes) is not stated


def nvidias(folder: Path, cells: dict[str, Any]) -> list[dict[str, Any]]:
    """Scenarios of all readings of a GPT-3 that NVIDIA's code trains on 16 GPUs."""
    row = {
        "framework": "NVIDIA NeMo", "strategy_detail": "", "model": "GPT-3 175B", "dp": 2,
        "total_gpus": 16, "nodes": 2, "global_batch": 128, "grad_accum": "",
    }  # fmt: skip
    only = row_of(folder, **GPT | row | cells)
    return [measured_case(only, reading=one).data for one in platform_of(only).readings]


@pytest.mark.parametrize(
    ("changes", "chunks"),
    [
        # 19 of 20 recipes for decoders of three stages and more interleave, of two stages none
        ({}, [12, 0]),
        ({"framework": "Megatron-Core r0.8.0"}, [12, 0]),
        ({"pp": 2, "dp": 8, "total_gpus": 16, "nodes": 2}, [0]),
        ({"framework": "Megatron-DeepSpeed"}, [0]),
        ({"strategy_detail": "1F1B"}, [0]),
        ({"schedule": "1F1B"}, [0]),
        ({"schedule": "interleaved"}, [12]),  # chunks of one block
        ({"schedule": "interleaved, 6 chunks"}, [6]),
        ({"schedule": "virtual pipeline 4"}, [4]),
        ({"schedule": "not stated"}, [12, 0]),
        ({"strategy_detail": "1F1B, non-interleaved"}, [0]),
        ({"strategy_detail": "no interleaving"}, [0]),
        ({"schedule": "1F1B (non-interleaved)"}, [0]),
        ({"schedule": "1F1B", "strategy_detail": "on virtual machines"}, [0]),
    ],
)
def test_nvidias_pipelines_of_which_nothing_is_told_interleave(
    tmp_path: Path, changes: dict[str, Any], chunks: list[int]
) -> None:
    found = nvidias(tmp_path, {"tp": 1, "pp": 8} | changes)
    assert list(dict.fromkeys(data["schedule"].get("chunks", 0) for data in found)) == chunks


PLAIN, SEQUENCES, OVERLAPPED = (False, False), (True, False), (True, True)
SPLIT = (
    "sequence-parallel", "TP+PP+SP", "SP", "SP+TP", "TP=8, SP", "TP8-SP8", "sequence_parallel",
    "sequence_parallel=True", "not Ulysses; sequence parallel",
)  # fmt: skip
UNSPLIT = (
    "no sequence parallelism", "sequence parallel: off", "sequence parallelism disabled",
    "without tensor/sequence parallelism", "no tp, no SP", "sequence_parallel=False",
    "sequence parallel not used", "no pipeline or sequence parallel",
)  # fmt: skip
BESIDE = (
    "tp-comm-overlap", "tp_comm_overlap", "ub_tp_comm_overlap=True", "SP, async TP", "userbuffers",
    "TP communication overlap", "TP comm. overlap", "overlap TP comm", "async tensor parallel",
    "asynchronous tensor parallelism", "asynchronous TP", "enable_async_tensor_parallel: true",
    "async tensor model parallel allreduce",
)  # fmt: skip
NOT_BESIDE = (
    "no tp-comm-overlap", "tp comm overlap off", "tp-comm-overlap: false", "async TP disabled",
    "no async tensor parallel", "async checkpointing, no async TP",
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "groups"),
    [
        # of 44 recipes for decoders whose layers are split 19, 13 and 12
        ({}, [OVERLAPPED, SEQUENCES, PLAIN]),
        ({"framework": "Megatron-Core r0.8.0"}, [OVERLAPPED, SEQUENCES, PLAIN]),
        ({"tp": 1, "dp": 16}, [None]),
        ({"framework": "Megatron-DeepSpeed"}, [PLAIN]),
        ({"framework": "Megatron-LM"}, [PLAIN]),
        (
            {"framework": "Megatron-LM", "strategy_detail": "TP with sequence parallelism"},
            [SEQUENCES],
        ),
        ({"tensor_groups": "not stated"}, [OVERLAPPED, SEQUENCES, PLAIN]),
        *(({"strategy_detail": text}, [OVERLAPPED, SEQUENCES]) for text in SPLIT),
        *(({"strategy_detail": text}, [PLAIN]) for text in UNSPLIT),
        *(({"strategy_detail": text}, [OVERLAPPED]) for text in BESIDE),
        *(({"strategy_detail": text}, [SEQUENCES, PLAIN]) for text in NOT_BESIDE),
        ({"strategy_detail": "sequence parallel, no tp-comm-overlap"}, [SEQUENCES]),
        ({"strategy_detail": "neither sequence parallel nor tp comm overlap"}, [PLAIN]),
        ({"framework": "NeMo2.0"}, [OVERLAPPED, SEQUENCES, PLAIN]),
        ({"tensor_groups": "plain"}, [PLAIN]),
        ({"tensor_groups": "sequence parallel"}, [SEQUENCES]),
        ({"framework": "DeepSpeed", "strategy_detail": "sequence parallel (Ulysses)"}, [PLAIN]),
    ],
)
def test_nvidias_tensor_groups_of_which_not_all_is_told_do_what_recipes_say(
    tmp_path: Path, changes: dict[str, Any], groups: list[tuple[bool, bool] | None]
) -> None:
    found = nvidias(tmp_path, {"tp": 8, "pp": 1} | changes)
    split = (data.get("parallel", {}) for data in found)
    told = [
        tuple(bool(own.get(key)) for key in ("sequence_parallel", "async_tensor_parallel"))
        if own.get("tensor", 1) > 1
        else None
        for own in split
    ]
    assert list(dict.fromkeys(told)) == groups


def test_tensor_groups_that_are_not_read_are_refused(tmp_path: Path) -> None:
    said = "tensor_groups: 'whatever' is not read; tp comm overlap, sequence parallel or plain is"
    row = {"strategy_detail": "", "tp": 2, "dp": 4}
    with pytest.raises(Refused, match=said):
        point(tmp_path, **GPT | row | {"tensor_groups": "whatever"})


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"strategy_detail": "GPipe"}, "gpipe"),
        ({"schedule": "AFAB"}, "gpipe"),
        ({"schedule": "ZB-H1"}, "zb1p"),
        ({"schedule": "DualPipeV"}, "dualpipe_v"),
        ({"schedule": "DualPipe"}, "dualpipe"),
    ],
)
def test_a_schedule_has_its_name(tmp_path: Path, changes: dict[str, Any], kind: str) -> None:
    row = {"framework": "NVIDIA NeMo", "strategy_detail": ""}
    assert point(tmp_path, **GPT | row | changes).data["schedule"] == {"kind": kind}


def test_a_schedule_that_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="'Chimera' is not read; 1F1B is, or interleaved"):
        point(tmp_path, **GPT | {"strategy_detail": "", "schedule": "Chimera"})


@pytest.mark.parametrize(
    ("changes", "dtype"),
    [
        ({"total_gpus": 1024}, "fp16"),
        ({"total_gpus": 1000}, "fp32"),
        ({"total_gpus": 1024, "framework": "PaddlePaddle"}, "fp32"),
        ({"total_gpus": 1024, "source_repo": "someone/else"}, "fp32"),
    ],
)
def test_nvidias_bert_for_mlperf_has_a_model_in_16_bits_on_many_gpus(
    tmp_path: Path, changes: dict[str, Any], dtype: str
) -> None:
    row = {
        "precision": "FP16/AMP", "padding": "left out", "framework": "PyTorch NVIDIA Release 22.04",
        "source_repo": "mlcommons/training_results_v2.0", "batch_per_gpu": 4,
    }  # fmt: skip
    assert point(tmp_path, **BERT | row | changes).data["precision"]["parameters"] == dtype


def test_replicas_follow_from_the_gpus_where_dp_contradicts_them(tmp_path: Path) -> None:
    """The global batch and the micro-batch hold: half the replicas take twice the micro-batches."""
    found = point(tmp_path, **GPT | {"dp": 4, "grad_accum": 16})
    assert found.data["batch"] == {"per_device": 2, "accumulation": 32}
    assert any("dp says 4" in note for note in found.notes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dp": 4, "global_batch": ""}, "tp x pp x dp is 32, which is not the row's 16 GPUs"),
        ({"tp": 3}, "tp x pp x dp is 24"),
        ({"pp": 32, "dp": ""}, "tp x pp is 64, which is not the row's 16 GPUs"),
        ({"grad_accum": "", "global_batch": ""}, "micro-batches are not stated"),
        ({"grad_accum": "", "batch_per_gpu": 3}, "no whole number of micro-batches of 3"),
        ({"tp": "4 or 8"}, "'4 or 8' is not one number"),
        ({"cp": 32, "dp": ""}, "tp x pp x cp is "),
        ({"strategy_detail": "interleaved 1F1B", "model": "ResNet-50"}, "interleaved pipeline are"),
    ],
)
def test_a_mesh_that_is_not_known_is_refused(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        point(tmp_path, **GPT | changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"shard": "ZeRO-2"}, "stage 2 exchanges in every micro-batch, and DeepSpeed itself")],
)
def test_what_a_mesh_cannot_take_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    row = GPT | changes
    path = write(tmp_path / "t.csv", [tuple(row.values())], tuple(row))
    (outcome,) = validated_training(path).outcomes
    assert outcome.status == "refused"
    assert reason in outcome.reason


def test_megatron_exchanges_what_its_arguments_say(tmp_path: Path) -> None:
    half = point(tmp_path, **GPT | {"precision": "FP16 mixed"})
    assert half.data["precision"] == {"parameters": "fp16", "compute": "fp16"}
    assert half.data["strategy"] == {"kind": "megatron"}
    wide = point(tmp_path, **GPT | {"precision": "BF16"})
    assert wide.data["precision"] == {"parameters": "bf16", "compute": "bf16"}
    assert wide.data["strategy"] == {"kind": "megatron", "grad_reduce_in_fp32": True}
    eight = point(tmp_path, **GPT | {"precision": "FP8 mixed", "accelerator": "H100 SXM"})
    assert eight.data["precision"] == {"parameters": "bf16", "compute": "fp8"}
    assert eight.data["strategy"] == {"kind": "megatron", "grad_reduce_in_fp32": False}
    detail = "1F1B, distributed optimizer, overlap-grad-reduce"
    assert point(tmp_path, **GPT | {"strategy_detail": detail}).data["strategy"] == {
        "kind": "megatron",
        "overlap_grad_reduce": True,
        "use_distributed_optimizer": True,
    }
    zero = point(tmp_path, **GPT | {"shard": "ZeRO-1"})
    assert zero.data["strategy"] == {"kind": "zero", "stage": 1}


@pytest.mark.parametrize("stages", [5, 6, 7, 8, 9, 10, 12, 24])
@pytest.mark.parametrize("billions", [22, 178, 205, 530])
def test_a_stand_in_makes_equal_stages(billions: float, stages: int) -> None:
    from dpsim.models.section import load, make

    data = choose_model(f"GPT {billions}B", "LLM", billions * 1e9, 2048, (1, stages)).data
    assert data["blocks"] % stages == 0
    assert data["hidden"] % 128 == 0
    model = load(make(data, file=False), Path())
    assert model.parameters == pytest.approx(billions * 1e9, rel=0.02)


MESHES = [
    {},
    {"shard": "ZeRO-1"},
    {"tp": 1, "dp": 4, "global_batch": 256},
    {"tp": 8, "pp": 1, "strategy": "DP+TP"},
    {"pp": 2, "dp": 4, "grad_accum": 33, "global_batch": 264},
    {"strategy_detail": "1F1B, overlap-grad-reduce, distributed optimizer"},
]


def test_assumed_heads_are_those_that_tensor_ranks_share_out() -> None:
    """97 of width 128 would be usual; 4 ranks have whole ones of 128."""
    for tensor, heads in ((1, 97), (4, 128)):
        data = choose_model("GPT h12416 L96", "LLM", None, 2048, (tensor, 1)).data
        assert data["heads"] == heads


@pytest.mark.parametrize("split", [(4, 12), (8, 12), (8, 4), (4, 8), (8, 64)], ids=str)
def test_heads_of_a_stand_in_are_as_wide_as_models_have_them(split: tuple[int, int]) -> None:
    """11,776 in 128 heads of 92, say, would miss the tensor cores by our own guess."""
    for billions in (39, 178, 181, 203):
        data = choose_model(f"GPT {billions}B", "LLM", billions * 1e9, 2048, split).data
        assert data["heads"] % split[0] == 0
        assert data["hidden"] / data["heads"] in range(64, 257, 8)
        assert data["blocks"] % split[1] == 0


@pytest.mark.parametrize("changes", MESHES, ids=str)
def test_a_long_step_is_played_shortened_with_the_same_result(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    from dpsim.cases.plays import Stretch

    case = point(tmp_path, **GPT | changes).case
    assert next(shortened.shorts(case), None) is not None
    whole = shortened._played(case)
    short = shortened.play(case)
    assert short.step_time == pytest.approx(whole.step_time, rel=1e-9)
    assert short.timeline.mean_split() == pytest.approx(whole.mean_split(), rel=1e-6, abs=1e-9)
    variants = [Stretch(latency=2.0, transfer=2.0), Stretch(compute=1.3)]
    lanes = shortened._played(case, ((1.0, 1.0), (1.0, 2.0), (1.3, 1.0))).lanes
    found = shortened.lane_times(case, variants, short)
    assert found == pytest.approx(lanes[1:], rel=1e-9)


def test_a_step_whose_length_is_no_straight_line_is_played_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    case = point(tmp_path, **GPT).case
    played = []
    inner = shortened._played

    def watched(case: Case, *rest: Any, **named: Any) -> Any:
        played.append(case.scenario.batch.accumulation)
        return inner(case, *rest, **named)

    monkeypatch.setattr(shortened, "_played", watched)
    assert shortened.step_time(case) == pytest.approx(inner(case).step_time, rel=1e-9)
    assert max(played) < 32
    monkeypatch.setattr(shortened, "STRAIGHT", -1.0)
    assert shortened.step_time(case) == inner(case).step_time
    assert played[-1] == 32


@pytest.mark.parametrize("changes", MESHES, ids=str)
def test_leaving_out_shared_links_hardly_shortens_a_step(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    from dpsim.play import event

    case = point(tmp_path, **GPT | changes).case
    shared = event.play(case.plays()[0]).step_time
    assert shared * 0.995 <= shortened.step_time(case) <= shared * (1 + 1e-9)


def mesh_table(tmp_path: Path) -> Path:
    """A sweep of meshes at one count whose times are dpsim's own, at the first row's level."""

    first = point(tmp_path, **GPT)
    scale = level(first.case, Calibrate(step_time=3.0), shortened.step_time).scale
    rows = [GPT]
    for changes in MESHES[1:]:
        case = scaled(point(tmp_path, **GPT | changes).case, scale)
        rows.append(GPT | changes | {"value": repr(shortened.step_time(case))})
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    lines = [
        (*(row.get(name, "") for name in columns), "s", "predict" if k else "calib")
        for k, row in enumerate(rows)
    ]
    return write(tmp_path / "mesh.csv", lines, (*columns, "series_id", "role"))


def test_a_sweep_of_meshes_is_calibrated_on_one_of_them(tmp_path: Path) -> None:
    found = validated_training(mesh_table(tmp_path))
    assert found.document["status"] == {"calibrated": 1, "predicted": len(MESHES) - 1}
    assert found.document["all"]["median_error"] < 1e-4  # its machine's readings are mixed
    for outcome in found.outcomes[1:]:
        assert outcome.low is not None
        assert outcome.high is not None
        assert outcome.predicted is not None
        # as wide as two runs of one mesh differ, or wider
        assert outcome.low < 0.971 * outcome.predicted
        assert outcome.high > 1.03 * outcome.predicted
        assert "links are not shared" in outcome.reason


def test_nanotron_all_reduces_in_fp32_and_with_zero_after_backward(tmp_path: Path) -> None:
    """Both send 4 bytes a parameter; DDP's hook in buckets of 25 MiB of 16 bits, each of which may
    hold one tensor beyond that, ZeRO-1 in one message."""
    words = {"framework": "nanotron (PyTorch)", "precision": "BF16", "model": "Llama 1B"}
    words |= {"params_m": 1300, "seq_len": 512, "batch_per_gpu": 1, "accelerator": "H100 SXM"}
    plain, zero = (point(tmp_path, **words, strategy=s).case for s in ("DP", "DP+ZeRO-1"))
    sent = {}
    for one in (plain, zero):
        ops = one.programs.asked.program(0).ops
        reduced = [op for op in ops if op.operation == "all_reduce" and op.bytes > 8]
        sent[one] = (sum(op.bytes for op in reduced), len(reduced))
    assert sent[zero] == (4.0 * zero.model.parameters, 1)
    assert "gradient buffers" not in memory_of(zero).parts  # in which a bucket would be copied
    # gathered parameters are copied out one by one, of every replica: 8 ranks, 6 tensors a block
    assert zero.scenario.host.serial == pytest.approx(8 * (6 * 24 + 3) * COPY)
    assert plain.scenario.host.serial == 0.0
    assert sent[plain][0] == pytest.approx(4.0 * plain.model.parameters)
    largest = max(t.elements for layer in plain.model.layers for t in layer.tensors)
    buckets = plain.model.parameters / (25 * 2**20 / 2)
    assert buckets / (1 + largest * 2 / (25 * 2**20)) - 1 <= sent[plain][1] <= buckets + 1


def test_nanotrons_benchmarks_are_its_models_and_its_host_issues_split_layers(
    tmp_path: Path,
) -> None:
    """1.34, 3.57, 8.86 and 80 billion parameters, as its runs print them; 28 blocks make eight
    stages as even as they go."""
    words: dict[str, Any] = {"framework": "nanotron (PyTorch)", "precision": "BF16"}
    words |= {"accelerator": "H100 SXM", "seq_len": 4096, "batch_per_gpu": 1}
    name = "Llama-type {} (nanotron benchmark model)"
    for size, parameters in {"1B": 1.34e9, "3B": 3.57e9, "8B": 8.86e9, "80B": 79.97e9}.items():
        alone = point(tmp_path, **words, model=name.format(size), strategy="DP").case
        assert alone.model.parameters == pytest.approx(parameters, rel=0.003)
        assert alone.scenario.host.launch is None
    mesh = {"strategy": "DP+TP+PP", "tp": 1, "pp": 8, "dp": 1, "total_gpus": 8}
    more = {"grad_accum": 8, "global_batch": 8, "model": name.format("3B")}
    split = point(tmp_path, **words, **mesh, **more).case
    assert split.scenario.host.launch == pytest.approx(ISSUE)
    blocks = [
        len({split.model.layers[i].unit for i in stage} - {""})
        for stage in split.programs.layout.stages
    ]
    assert sum(blocks) == 28
    assert set(blocks) <= {1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    ("tensor", "pipeline", "gpus", "away"),
    [(4, 2, 16, 4), (2, 4, 16, 2), (4, 2, 8, 0), (4, 1, 16, 0), (1, 4, 16, 0)],
)
def test_nanotrons_host_is_slower_where_pipelines_of_tensor_ranks_leave_the_node(
    tmp_path: Path, tensor: int, pipeline: int, gpus: int, away: int
) -> None:
    """Each tensor rank adds to every kernel's launch, and only if all three come together."""
    row: dict[str, Any] = {"framework": "nanotron (PyTorch)", "precision": "BF16"}
    row |= {"accelerator": "H100 SXM", "seq_len": 4096, "batch_per_gpu": 1, "grad_accum": 8}
    row |= {"model": "Llama-type 1B (nanotron benchmark model)", "strategy": "DP+TP+PP"}
    row |= {"inter_node": "AWS EFA", "gpus_per_node": 8, "total_gpus": gpus}
    mesh = {"tp": tensor, "pp": pipeline, "dp": gpus // tensor // pipeline}
    case = point(tmp_path, **row, **mesh, global_batch=8 * mesh["dp"]).case
    assert case.scenario.host.launch == pytest.approx(ISSUE + away * AWAY)


def test_low_rank_training_is_played_as_that(tmp_path: Path) -> None:
    """Of Llama 2 70B, 80 blocks with adapters of rank 16 on q, k, v and o are trained (65.5 M, as
    in MLPerf's fine-tuning); of a stand-in its own attention's."""
    name = "Llama 2 70B (LoRA fine-tuning)"
    row = row_of(tmp_path, model=name, params_m=70000, strategy="DDP")
    played = measured_case(row)
    sizes = (8192 + 8192) + (8192 + 1024) + (8192 + 1024) + (8192 + 8192)
    assert played.case.model.trained == 80 * 16 * sizes
    assert any("rank 16" in note for note in played.notes)
    words = {"params_m": 13000, "strategy": "DP", "strategy_detail": "LoRA"}
    between = measured_case(row_of(tmp_path, model="LLAMA2-13B", **words))
    assert between.case.model.trained == 40 * 4 * 16 * (5120 + 5120)
    other = measured_case(row_of(tmp_path, model="MPT-13B", **words))
    assert 0 < other.case.model.trained < 0.002 * 13e9


def test_counts_behind_a_flagged_collapse_are_not_scored_until_the_rate_is_back(
    tmp_path: Path,
) -> None:
    head = (*HEAD, "series_id", "throughput_global", "notes")
    rates = {8: 100, 16: 90, 32: 20, 64: 21, 128: 60}  # per GPU
    rows = [
        (*RESNET[:3], n, *RESNET[4:6], r * n, RESNET[7], "s", r * n, "FLAG collapse" * (n == 32))
        for n, r in rates.items()
    ]
    own = read_table(write(tmp_path / "t.csv", rows, head)).rows
    assert [row.gpus for row in own if unscored(row, own)] == [32, 64]
    assert unscored(own[3]) == ""  # of a row alone nobody can say


def test_linear_scaling_grows_with_the_work(tmp_path: Path) -> None:
    small = point(tmp_path, **GPT)
    deep = point(tmp_path, **GPT | {"model": "GPT h1024 L16"})
    ratio = deep.case.model.flop_per_sample() / small.case.model.flop_per_sample()
    assert ratio > 1.2
    assert linear(deep, small) == pytest.approx(3.0 * ratio, rel=1e-12)
    long = point(tmp_path, **GPT | {"grad_accum": 64, "global_batch": 256})
    assert linear(long, small) == pytest.approx(6.0, rel=1e-12)


def test_baselines_reduce_a_ranks_own_gradients_over_its_replicas(tmp_path: Path) -> None:
    found = point(tmp_path, **GPT)
    assert gradient_bytes(found.case) == pytest.approx(found.case.model.parameters / 8 * 2)
    alone = point(tmp_path, **GPT | {"tp": 4, "dp": 1, "global_batch": 64})
    assert baselines(alone, alone)["alpha_beta"] == pytest.approx(alone.step_time)


# -- parameter servers, and padding ---------------------------------------------------------------

SERVERS = {
    "strategy": "parameter server", "framework": "PyTorch 1.4 + BytePS", "nodes": 4,
    "total_gpus": 32, "inter_node": "10 GbE, TCP", "intra_node": "NVLink",
}  # fmt: skip


def test_a_push_and_a_pull_through_servers_take_a_node_s_bytes_once(tmp_path: Path) -> None:
    """10 GbE carries at most 1.25 GB/s one way, whatever the number of nodes."""
    found = point(tmp_path, **SERVERS).data["collective"]
    assert (found["backend"], found["servers"]) == ("parameter_server", 32)
    assert 0.5e9 < float(found["bandwidth"].split()[0]) < 1.25e9
    twice = point(tmp_path, **SERVERS | {"nodes": 8, "total_gpus": 64}).data["collective"]
    assert twice["bandwidth"] == found["bandwidth"]
    alone = point(tmp_path, **SERVERS | {"nodes": 1, "total_gpus": 8}).data["collective"]
    assert alone["backend"] == "nccl"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"strategy": "parameter server on GPU"}, "on the workers' own devices"),
        ({"strategy": "asynchronous parameter server"}, "asynchronous"),
    ],
)
def test_other_servers_are_refused(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        point(tmp_path, **SERVERS | changes)


def test_padded_texts_faster_than_the_device_are_played_without_padding(tmp_path: Path) -> None:
    """BERT at 120 % of what A100s could do with all 512 tokens."""
    head = ("model", "accelerator", "gpus_per_node", "total_gpus", "batch_per_gpu", "precision",
            "seq_len", "value", "unit")  # fmt: skip
    rows = [
        ("BERT-Large", "A100-SXM4-80GB", 8, gpus, 64, "FP16 mixed", 512, 340 * gpus, "sequences/s")
        for gpus in (1, 2)
    ]
    found = validated_training(write(tmp_path / "t.csv", [*rows[:2]], head))
    assert found.document["status"] == {"calibrated": 1, "predicted": 1}
    assert "256 of 512 tokens" in found.predictions()[1]["machine"]
    slow = [(*row[:7], row[7] / 4, row[8]) for row in rows]
    shown = validated_training(write(tmp_path / "t.csv", slow, head)).predictions()[1]["machine"]
    assert "tokens" not in shown


def test_padded_texts_faster_than_the_device_without_their_padding_are_refused(
    tmp_path: Path,
) -> None:
    """BERT at 120 % of what an A100 could do with all 512 tokens, and at 240 %, uncalibrated."""
    head = ("model", "accelerator", "gpus_per_node", "total_gpus", "batch_per_gpu", "precision",
            "seq_len", "value", "unit", "padding")  # fmt: skip
    row = ("BERT-Large", "A100-SXM4-80GB", 8, 1, 64, "FP16 mixed", 512)
    rows = [(*row, rate, "sequences/s", "all") for rate in (340, 680)]
    found = validated_training(write(tmp_path / "t.csv", rows, head), calibrate="none")
    assert [line["status"] for line in found.predictions()] == ["predicted", "refused"]
    assert "shorter than A100-SXM4-80GB can be" in found.predictions()[1]["reason"]


# -- a table of dpsim's own predictions -----------------------------------------------------------


def own_table(tmp_path: Path, factor: float = 1.0) -> Path:
    """Rows at 1, 2, 4, 8 GPUs that say what dpsim predicts; `factor` on all but the first."""
    first = point(tmp_path, total_gpus=1, value=802.9)
    scale = level(first.case, Calibrate(step_time=first.step_time)).scale
    rows: list[tuple[Any, ...]] = [(*RESNET[:3], 1, *RESNET[4:6], 802.9, "images/s")]
    for gpus in (2, 4, 8):
        case = scaled(point(tmp_path, total_gpus=gpus).case, scale)
        rate = 256 * gpus / step_time(case) * factor
        rows.append((*RESNET[:3], gpus, *RESNET[4:6], repr(rate), "images/s"))
    return write(tmp_path / "own.csv", rows)


def test_its_own_predictions_have_no_error(tmp_path: Path) -> None:
    found = validated_training(own_table(tmp_path))
    document = found.document
    assert document["status"] == {"calibrated": 1, "predicted": 3}
    assert document["all"]["n"] == 3
    assert document["all"]["p90_error"] < 1e-9
    assert document["all"]["coverage"] == 1.0
    assert document["all"]["skill"] == pytest.approx(1.0, abs=1e-9)


def test_a_tenth_off_is_found(tmp_path: Path) -> None:
    figures = validated_training(own_table(tmp_path, 1 / 1.1)).document["all"]
    assert figures["median_error"] == pytest.approx(0.1, rel=1e-6)
    assert figures["signed_bias"] == pytest.approx(1 / 1.1 - 1.0, rel=1e-6)  # of steps


def test_the_bias_of_times_and_of_throughputs_has_one_sign() -> None:
    slow = Scored("x", "y", measured=2.0, predicted=2.5, low=2.0, high=3.0)
    rate = replace(slow, measured=2.5, predicted=2.0, rate=True)
    assert summary([slow])["signed_bias"] == summary([rate])["signed_bias"] == pytest.approx(0.25)


def test_predictions_keep_order_and_columns(tmp_path: Path) -> None:
    path = own_table(tmp_path)
    rows = validated_training(path).predictions()
    with path.open(encoding="utf-8", newline="") as file:
        given = list(csv.DictReader(file))
    assert [row["total_gpus"] for row in rows] == [row["total_gpus"] for row in given]
    assert list(rows[0])[: len(HEAD)] == list(HEAD)
    assert list(rows[0])[len(HEAD) :] == [
        "measured", "predicted", "low", "high", "status", "reason", "bottleneck", "machine",
    ]  # fmt: skip
    assert rows[0]["status"] == "calibrated"
    for row in rows[1:]:
        assert float(row["low"]) <= float(row["predicted"]) <= float(row["high"])


def test_the_answer_does_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    path = own_table(tmp_path)
    assert validated_training(path, jobs=2).predictions() == validated_training(path).predictions()


def test_without_calibration_everything_is_predicted(tmp_path: Path) -> None:
    document = validated_training(own_table(tmp_path), calibrate="none").document
    assert document["status"] == {"predicted": 4}
    assert document["uncalibrated"]["n"] == 4
    assert document["all"]["n"] == 0


def test_the_calibration_row_is_the_one_with_that_role(tmp_path: Path) -> None:
    head = (*HEAD, "role", "series_id")
    rows = [
        (*RESNET[:3], 4, *RESNET[4:], "predict", "a"),
        (*RESNET, "calib", "a"),
        (*RESNET[:3], 1, *RESNET[4:], "absolute", "b"),
    ]
    table = read_table(write(tmp_path / "t.csv", rows, head))
    chosen = {name: calibration_row(rows) for name, rows in table.series.items()}
    assert chosen["a"] is table.rows[1]
    assert chosen["b"] is None


def test_bad_rows_are_predicted_and_not_scored(tmp_path: Path) -> None:
    path = own_table(tmp_path)
    text = path.read_text(encoding="utf-8").splitlines()
    text = [text[0] + ",quality", *(line + ",C" for line in text[1:])]
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    found = validated_training(path)
    assert found.document["status"] == {"calibrated": 1, "predicted": 3}
    assert found.document["all"]["n"] == 0
    assert "not scored: quality C" in found.predictions()[1]["reason"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"total_gpus": 0}, "total_gpus: 0 is not in 1"),
        ({"total_gpus": "nan"}, "total_gpus: 'nan' is not a number"),
        ({"value": "1,5"}, "value: '1,5' has a comma"),
        ({"gpus_per_node": 0}, "gpus_per_node: 0 is not in 1"),
        ({"nodes": 3}, "total_gpus: 3 nodes of 8 have no 2"),
        ({"dp": 3}, "tp x pp x dp is 3, which is not the row's 2 GPUs"),
        ({"unit": "tokens/s"}, "'tokens/s': samples of 'ResNet-50' have no tokens"),
        ({"value": 1e9}, "shorter than Tesla V100-SXM2-16GB can be"),
        ({"dp": 1.5}, "dp: 1.5 is not a whole number of at least 1"),
        ({"grad_accum": 0}, "grad_accum: 0 is not a whole number of at least 1"),
        ({"batch_per_gpu": 0}, "batch_per_gpu: 0 is not above 0"),
        ({"step_time_s": 0.4}, "images/s is not 512 samples in step_time_s 0.4, which are 1280"),
        ({"value": 500, "unit": "ms", "step_time_s": 0.4}, "value: 500 ms is not step_time_s 0.4"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused_and_the_others_are_answered(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    more = ("nodes", "dp", "grad_accum", "step_time_s")
    head = (*HEAD, *more, "series_id")
    with own_table(tmp_path).open(encoding="utf-8") as file:
        rows = [
            dict.fromkeys(more, "") | row | {"series_id": "one"} for row in csv.DictReader(file)
        ]
    rows[1].update({name: str(value) for name, value in changes.items()})
    path = write(tmp_path / "t.csv", [tuple(row[c] for c in head) for row in rows], head)
    found = validated_training(path)
    statuses = [outcome.status for outcome in found.outcomes]
    assert statuses == ["calibrated", "refused", "predicted", "predicted"]
    assert reason in found.outcomes[1].reason
    assert found.document["all"]["median_error"] < 1e-9
    assert [row["status"] for row in found.predictions()] == statuses


def test_a_row_with_other_cells_than_the_header_is_refused_and_the_others_are_answered(
    tmp_path: Path,
) -> None:
    lines = own_table(tmp_path).read_text("utf-8").splitlines()
    path = tmp_path / "ragged.csv"
    path.write_text("\n".join([*lines[:2], lines[2] + ",9", *lines[3:], "8,V100"]), "utf-8")
    found = validated_training(path)
    columns = len(lines[0].split(","))
    assert [o.status for o in found.outcomes if o.status == "refused"] == ["refused"] * 2
    assert f"has {columns + 1} cells, and the header {columns}" in found.outcomes[1].reason
    assert found.outcomes[-1].reason == f"has 2 cells, and the header {columns}"
    assert len(found.predictions()[-1]) == len(found.predictions()[0])


def test_refused_rows_are_counted_the_same_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text(own_table(tmp_path).read_text("utf-8") + "8,V100\n", "utf-8")
    for calibrate, group in (("smallest", "all"), ("none", "uncalibrated")):
        document = validated_training(path, calibrate=calibrate).document
        refused = document["status"]["refused"]
        assert refused == sum(document["refusals"].values()) == 1
        last = len(path.read_text("utf-8").splitlines())
        assert list(document["refused_lines"].values()) == [[last]]
        assert refused == sum(source["refused"] for source in document["sources"].values())
        assert document["all"]["refused"] == document[group]["refused"] == refused
        assert document[group]["share_refused"] == 1 / (1 + document[group]["n"])


@pytest.mark.parametrize(
    ("strategy", "dp", "played"), [("FSDP", 1, True), ("FSDP", 3, False), ("PyTorch DDP", 1, False)]
)
def test_dp_of_shared_parameters_may_count_groups_that_hold_all(
    tmp_path: Path, strategy: str, dp: int, played: bool
) -> None:
    changes = {"strategy": strategy, "dp": dp}
    if played:
        assert point(tmp_path, **changes).case.mesh.data == 8
    else:
        with pytest.raises(Refused, match=f"tp x pp x dp is {dp}, which is not the row's 8 GPUs"):
            point(tmp_path, **changes)


# -- scores ---------------------------------------------------------------------------------------


def scored(measured: float, predicted: float, half: float = 0.1, **rest: Any) -> Scored:
    return Scored("s", "r", measured, predicted, predicted - half, predicted + half, **rest)


def test_error_coverage_and_interval_score() -> None:
    rows = [scored(1.0, 1.05), scored(1.0, 1.3), scored(2.0, 1.9)]
    figures = summary(rows, refused=1)
    assert figures["median_error"] == pytest.approx(0.05)
    assert figures["coverage"] == pytest.approx(2 / 3)
    assert figures["share_refused"] == 0.25
    assert rows[0].interval_score == pytest.approx(0.2)
    assert rows[1].interval_score == pytest.approx(0.2 + 20 * 0.2)
    assert rows[2].interval_score == pytest.approx(0.1)


def test_skill_is_one_for_the_truth_and_zero_for_linear_scaling() -> None:
    assert skill([scored(1, 1, lost=0.2, lost_predicted=0.2)]) == 1.0
    assert skill([scored(1, 1, lost=0.2, lost_predicted=0.0)]) == 0.0
    assert skill([scored(1, 1, lost=0.2, lost_predicted=0.5)]) == pytest.approx(-0.5)
    assert skill([scored(1, 1, lost=0.0, lost_predicted=0.1)]) is None


@pytest.mark.parametrize(
    ("ranks", "band"),
    [(1, "1"), (2, "2-8"), (8, "2-8"), (9, "9-64"), (64, "9-64"), (512, "65-512"), (513, "> 512")],
)
def test_bands_of_counts(ranks: int, band: str) -> None:
    assert count_band(ranks) == band


# -- the command ----------------------------------------------------------------------------------


def test_the_command_prints_a_table_writes_its_files_and_one_json(  # type: ignore[no-untyped-def]
    cli, tmp_path: Path
) -> None:
    path = own_table(tmp_path)
    code, out, err = cli("validate", str(path), "-o", "out")
    assert code == 0, err
    assert "4 measured training runs" in out
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert names == {
        "predictions.csv", "validation.json", "scatter.png", "scatter.svg", "index.html",
        "dpsim.sha256",
    }  # fmt: skip
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "Measured and predicted" in page
    document = json.loads(cli("validate", str(path), "--json")[1])
    assert document == json.loads((tmp_path / "out" / "validation.json").read_text())


def test_few_rows_are_printed_one_by_one_and_many_are_not(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """The calibrated row is no prediction: it has neither an interval nor an error.  How far off
    another is has the sign of `bias`: + where its step is predicted too long, whatever its unit."""
    rows = [(*RESNET[:3], ranks, *RESNET[4:6], 760.0 * ranks, RESNET[7]) for ranks in (1, 8)]
    code, out, err = cli("validate", str(write(tmp_path / "t.csv", rows)))
    assert code == 0, err
    named = [line.partition(RESNET[1])[::2] for line in out.splitlines() if " line " in line]
    assert [before for before, _ in named] == [" line 2, ResNet-50, ", " line 3, ResNet-50, "]
    lines = [["", *cells.split()] for _, cells in named]
    assert [line[1:4] for line in lines] == [["1", "760", "images/s"], ["8", "6,080", "images/s"]]
    assert lines[0][4:] == ["760", "calibrated"]
    predicted, error = float(lines[1][4].replace(",", "")), float(lines[1][6])
    assert error == pytest.approx((6080 / predicted - 1) * 100, abs=0.06)
    bias = next(line.split() for line in out.splitlines() if line.startswith(" -  "))[6]
    assert (error > 0) == bias.startswith("+")
    many = [(*rows[1][:4], batch, *rows[1][5:]) for batch in range(1, FEW + 2)]
    assert " line 2, " not in cli("validate", str(write(tmp_path / "t.csv", many)))[1]


def test_a_broken_table_exits_with_2_and_writes_nothing(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "t.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    code, out, err = cli("validate", "t.csv", "-o", "out")
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_table_knows_its_series() -> None:
    cells = {"model": "m", "accelerator": "a", "unit": "s"}
    rows = tuple(
        TrainingRow(k, k + 2, {**cells, "series_id": name}, {"total_gpus": 1.0})
        for k, name in enumerate(("x", "y", "x", ""))
    )
    series = TrainingTable("t", (), rows, ()).series
    assert [len(found) for found in series.values()] == [2, 1, 1]
    assert math.isclose(sum(map(len, series.values())), 4)


SAME = (
    ("H100 SXM", "8x NDR"),
    ("H100 SXM5", "8x400G InfiniBand"),
    ("NVIDIA H100 80GB HBM3", "400 Gb/s InfiniBand per GPU"),
)


def test_rows_of_one_machine_are_a_series_however_it_is_written() -> None:
    """Without a series_id; other networks, and words that cannot be read, stay apart."""
    cells = {"model": "m", "unit": "s", "gpus_per_node": "8"}
    words = (*SAME, ("H100 SXM", "25 GbE, TCP"), ("no such GPU", ""), ("nor this", ""))
    rows = [
        TrainingRow(
            k, k + 2, {**cells, "accelerator": name, "inter_node": network}, {"gpus_per_node": 8.0}
        )
        for k, (name, network) in enumerate(words)
    ]
    series = TrainingTable("t", (), tuple(rows), ()).series
    assert [len(found) for found in series.values()] == [3, 1, 1, 1]


def test_times_in_seconds_and_in_milliseconds_are_a_series_and_throughputs_another() -> None:
    cells = {"model": "m", "accelerator": "H100 SXM", "gpus_per_node": "8"}
    rows = [
        TrainingRow(k, k + 2, {**cells, "unit": unit}, {"gpus_per_node": 8.0})
        for k, unit in enumerate(("s", "ms", "images/s"))
    ]
    series = TrainingTable("t", (), tuple(rows), ()).series
    assert [len(found) for found in series.values()] == [2, 1]


def test_a_series_of_one_row_is_warned_of_where_it_is_calibrated_on(tmp_path: Path) -> None:
    table = write(tmp_path / "t.csv", [RESNET, ("VGG-16", *RESNET[1:])])
    told = {
        way: [
            w
            for w in validated_training(table, calibrate=way).document["warnings"]
            if "of one" in w
        ]
        for way in ("smallest", "none")
    }
    assert told["none"] == []
    (warning,) = told["smallest"]
    assert warning.startswith("2 series of one row (line 2, line 3): nothing to predict there")


def test_padded_texts_beyond_the_peak_are_played_without_their_padding(tmp_path: Path) -> None:
    """400 sequences of 512 tokens a second are more than an A100 multiplies; those that say
    nothing of the peak stay refused, whatever their words."""
    bert = ("BERT-Large", "NVIDIA A100-SXM4-80GB", 8)
    rows = [(*bert, n, 32, "FP16 mixed", n * 400, "sequences/s", 512) for n in (8, 16)]
    table = read_table(write(tmp_path / "t.csv", rows, (*HEAD, "seq_len")))
    found = anchors_of(table.rows[0], table.rows)
    assert [row.text("padding") for row in found.rows] == ["left out"] * 2
    assert not found.usual.failure
    assert anchor_of(table.rows[0], table.rows).beyond is BeyondPeak
    strange = replace(table.rows[0], cells=table.rows[0].cells | {"precision": "need beyond peak"})
    assert anchor_of(strange, table.rows).beyond is None


def test_blocks_that_do_not_divide_are_shared_out_to_stages(tmp_path: Path) -> None:
    """126 blocks of Llama 3.1 405B on 8 stages; and a precision that only excludes 4 bits."""
    row = {"model": "Llama 3.1 405B", "batch_per_gpu": 1, "global_batch": 64, "tp": 8, "pp": 8,
           "dp": 1, "total_gpus": 64, "strategy": "DP+TP+PP", "unit": "sequences/s", "value": 5,
           "accelerator": "NVIDIA H100-SXM5-80GB", "precision": "FP8 mixed (config without fp4)",
           "framework": "NeMo"}  # fmt: skip
    found = point(tmp_path, **row)
    assert (len(found.data["stages"]), found.data["stages"][0]) == (128, ["embed_tokens"])
    assert found.data["precision"]["compute"] == "fp8"
    assert any("are stages of their own" in note for note in found.notes)
    even = point(tmp_path, **row | {"strategy_detail": "1F1B"})
    assert even.data["stages"] == "balanced"
    assert any("count as a block" in note for note in even.notes)
    assert "stages" not in point(tmp_path, **row | {"pp": 2, "total_gpus": 16}).data
    images = {"strategy": "DP+PP", "pp": 2, "dp": 4, "global_batch": 1024}
    assert "stages" not in point(tmp_path, **images).data  # ResNet-50 has no blocks to count


BERT = {"model": "BERT-Large", "batch_per_gpu": 32, "seq_len": 512, "value": 1600.0,
        "unit": "sequences/s", "accelerator": "NVIDIA H100-SXM5-80GB"}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "answers"),
    [
        ({"precision": "bf16 mixed"}, [{"padding": "padded"}, {"padding": "left_out"}]),
        ({"precision": "bf16 mixed", "padding": "all"}, [{}]),
        ({"precision": "bf16 mixed", "seq_len": 128}, [{}]),
        ({"precision": "bf16 mixed", "task": "pre-training, texts cut from one stream"}, [{}]),
        ({"precision": "bf16 mixed", "notes": "padding is computed"}, [{}]),
        ({"precision": "bf16 mixed", "notes": "texts are not concatenated"},
         [{"padding": "padded"}, {"padding": "left_out"}]),
        ({"precision": "bf16 mixed", "notes": "padding is not computed"},
         [{"padding": "padded"}, {"padding": "left_out"}]),
        ({"precision": "bf16 mixed", "notes": "concatenated embeddings"},
         [{"padding": "padded"}, {"padding": "left_out"}]),
        ({"precision": "bf16 mixed", "task": "SQuAD fine-tuning"}, [{}]),
        ({"precision": "bf16 mixed", "framework": "TensorFlow 1.15"}, [{}]),
        ({"precision": "bf16 mixed", "framework": "NGC MXNet 22.05, NGC TensorFlow 22.05-tf1"},
         [{"padding": "padded"}, {"padding": "left_out"}]),
        ({"precision": "bf16 mixed", "framework": "NGC MXNet 22.05, NGC TensorFlow 22.05-tf1",
          "source_repo": "mlcommons/training_results_v2.1"}, [{"padding": "left_out"}]),
        ({"precision": "fp16", "framework": "PyTorch 21.11",
          "source_repo": "NVIDIA/DeepLearningExamples"}, [{"padding": "bins"}]),
        ({"precision": "fp16", "framework": "TensorFlow 2 (21.02)",
          "source_repo": "NVIDIA/DeepLearningExamples"}, [{}]),
        ({"precision": "AMP (default, not logged)", "padding": "all", "framework": "NVIDIA NeMo"},
         [{"precision": "half"}, {"precision": "fp8"}]),
        ({"precision": "AMP (default, not logged)", "padding": "left out", "framework": "PyTorch",
          "source_repo": "mlcommons/training_results_v4.0"},
         [{"precision": "half"}, {"precision": "fp8"}]),
        ({"precision": "BF16 (nanotron default, not printed)", "padding": "all",
          "framework": "nanotron (PyTorch)"}, [{}]),
        ({"precision": "AMP (default, not logged)", "padding": "all",
          "accelerator": "NVIDIA A100-SXM4-80GB"}, [{}]),
        ({"precision": "NVFP4 or FP8 (both config files exist)", "padding": "all"},
         [{"precision": "nvfp4"}, {"precision": "fp8"}]),
        ({"precision": "NVFP4 mixed (config file)", "padding": "all"}, [{}]),
        ({"precision": "FP8 mixed (config file without fp4)", "padding": "all"}, [{}]),
    ],
)  # fmt: skip
def test_what_a_row_leaves_open_of_its_run_is_a_question(
    tmp_path: Path, changes: dict[str, Any], answers: list[dict[str, str]]
) -> None:
    found = platform_of(row_of(tmp_path, **BERT | changes)).readings
    assert [{q: a.name for q, a in one.answers.items()} for one in found] == answers
    assert sum(one.weight for one in found) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("words", "compute"),
    [("NVFP4 mixed (config file)", "nvfp4"), ("FP8 mixed (config file without fp4)", "fp8")],
)
def test_a_row_in_4_bits_is_computed_in_them(tmp_path: Path, words: str, compute: str) -> None:
    """With gradients in 16 bits, as of those in 8."""
    row = {"model": "Llama 3.1 8B", "strategy": "DP", "unit": "sequences/s", "value": 35,
           "batch_per_gpu": 2, "seq_len": 8192, "accelerator": "NVIDIA B200-SXM-180GB",
           "framework": "NeMo", "precision": words}  # fmt: skip
    found = point(tmp_path, **row).data
    assert found["precision"] == {"parameters": "bf16", "compute": compute}
    assert found["strategy"]["grad_reduce_in_fp32"] is False


@pytest.mark.parametrize(
    ("padding", "tokens"),
    [("all", 512), ("left out", 256), ("bins of 64", 256 + 32), ("bins of 1024", 512)],
)
def test_texts_without_padding_are_half_as_long_and_those_in_bins_have_half_a_bin_more(
    tmp_path: Path, padding: str, tokens: int
) -> None:
    row = {**BERT, "precision": "bf16 mixed", "padding": padding}
    assert point(tmp_path, **row).data["model"]["sequence_length"] == tokens


@pytest.mark.parametrize(
    ("task", "head"), [("ELECTRA pre-training", "replaced_tokens"), ("SQuAD (finetune)", "encoder")]
)
def test_electra_has_its_generator_where_it_is_pretrained(
    tmp_path: Path, task: str, head: str
) -> None:
    row = {**BERT, "model": "ELECTRA-Base", "precision": "bf16 mixed", "padding": "all"}
    found = point(tmp_path, **row, task=task, framework="TensorFlow 2 (20.07)").data["model"]
    assert (found["huggingface"], found["head"]) == ("bert-base-uncased", head)


@pytest.mark.parametrize(
    ("task", "framework", "head"),
    [
        ("BERT pre-training", "PyTorch 1.4 + Horovod/NCCL", "pretraining"),
        ("BERT pre-training", "NGC PyTorch", "pretraining"),
        ("BERT pre-training phase 1/2", "PyTorch 21.11", "pretraining_masked"),
        ("BERT pre-training (LAMB)", "TensorFlow 2 (21.02)", "pretraining_masked"),
        ("MLPerf Training v3.0 bert", "PyTorch NVIDIA Release 23.04", "pretraining_masked"),
        ("SQuAD v1.1 (finetune)", "PyTorch 21.11", "encoder"),
        ("", "PyTorch 21.11", None),
    ],
)
def test_what_bert_is_trained_on_tells_its_head(
    tmp_path: Path, task: str, framework: str, head: str | None
) -> None:
    """Every token, or masked words alone, as the framework's own code has it."""
    row = {**BERT, "precision": "bf16 mixed", "padding": "all"}
    found = point(tmp_path, **row, task=task, framework=framework)
    assert found.data["model"].get("head") == head


@pytest.mark.parametrize(
    ("changes", "attention"),
    [
        ({"data_date": "2021-05"}, "math"),
        ({"data_date": "2024-05"}, None),
        ({}, None),
        ({"data_date": "2022-11", "strategy_detail": "flash attention"}, None),
        ({"data_date": "2021-05", "source_repo": "mlcommons/training_results_v1.0"}, None),
        ({"data_date": "2021-05", "accelerator": "NVIDIA V100-SXM2-16GB"}, "math"),
        ({"data_date": "2021-05", "accelerator": "NVIDIA P100-SXM2"}, None),
        ({"data_date": "2021-05", "precision": "FP32"}, None),
        ({"strategy_detail": "no flash attention"}, "math"),
        ({"strategy_detail": "use_flash_attn=False"}, "math"),
        ({"strategy_detail": "attn_implementation=eager"}, "math"),
        ({"data_date": "2021-05", "strategy_detail": "use_flash_attn=True, offload=False"}, None),
        ({"data_date": "2021-05", "strategy_detail": "data on flash storage"}, "math"),
        ({"data_date": "2024-05", "framework": "PyTorch 1.13"}, "eager"),
        ({"data_date": "2024-05", "framework": "PyTorch 1.13, FlashAttention"}, None),
        ({"data_date": "2024-05", "framework": "PyTorch 2.1"}, None),
        ({"framework": "PyTorch 2.1", "strategy_detail": "eager attention"}, "eager"),
        ({"framework": "PyTorch 2.1", "strategy_detail": "eager attention, XLA"}, "math"),
        ({"framework": "Megatron-LM", "strategy_detail": "eager attention"}, "math"),
        ({"data_date": "2024-05", "framework": "PyTorch 2.1, transformers 4.31"}, "eager"),
        ({"data_date": "2024-05", "framework": "PyTorch 2.1, transformers==4.40.1"}, None),
    ],
)
def test_attention_stored_its_scores_before_it_was_fused(
    tmp_path: Path, changes: dict[str, Any], attention: str | None
) -> None:
    """Where kernels count: shares of the peak that are fitted to whole steps know it already.
    Where nothing is fused, scale, mask and softmax are not either."""
    row = {**BERT, "accelerator": "NVIDIA A100-SXM4-80GB", "precision": "fp16", "padding": "all"}
    found = point(tmp_path, **{**row, **changes})
    assert found.data["model"].get("attention") == attention
    assert any("stores its scores" in note for note in found.notes) == (attention is not None)


def test_a_precision_that_a_configuration_has_by_default_is_told(tmp_path: Path) -> None:
    told, open_ = (
        row_of(
            tmp_path, **{**BERT, "padding": "all", "precision": text, "framework": "NVIDIA NeMo"}
        )
        for text in ("FP8 mixed (default of the submitted configuration)", "AMP (default)")
    )
    assert [len(platform_of(row).readings) for row in (told, open_)] == [1, 2]
    assert measured_case(told).data["precision"]["compute"] == "fp8"


@pytest.mark.parametrize(
    ("changes", "split"),
    [
        ({"framework": "NVIDIA NeMo Framework Release 25.01"}, True),
        ({"framework": "PyTorch NVIDIA Release 24.09"}, True),
        ({"framework": "maxtext"}, False),
        ({"framework": "NVIDIA NeMo 24.09", "source_repo": "NVIDIA/NeMo"}, False),
    ],
)
def test_submissions_on_nvidias_code_split_sequences_and_exchange_beside_products(
    tmp_path: Path, changes: dict[str, Any], split: bool
) -> None:
    """Their files set SEQ_PARALLEL and TP_COMM_OVERLAP where tensor ranks are several."""
    row = {"source_repo": "mlcommons/training_results_v5.0", "tp": "4", "strategy": "DP+TP"}
    own = row_of(tmp_path, **{**BERT, **row, **changes})
    found = mesh_of(own).data(own, ModelChoice({}, language=True), [])["parallel"]
    said = [found.get(key, False) for key in ("sequence_parallel", "async_tensor_parallel")]
    assert said == [split, split]


@pytest.mark.parametrize(
    ("changes", "compiled"),
    [
        ({"framework": "TensorFlow 2 (21.02)"}, False),
        ({"framework": "TensorFlow 2 (22.11) + XLA"}, True),
        ({"framework": "PyTorch 21.11"}, False),
        ({"framework": "PyTorch 2.3", "strategy_detail": "torch.compile"}, True),
        ({"framework": "PyTorch FSDP (fms-fsdp)"}, None),
        ({"framework": "Megatron-LM"}, None),
        ({"framework": "PyTorch NVIDIA Release 23.04", "source_repo": "mlcommons/x"}, None),
        ({"framework": "PyTorch 21.11", "precision": "FP32"}, False),
        ({"framework": "PyTorch 21.11", "accelerator": "NVIDIA P100-SXM2"}, None),
    ],
)
def test_plain_frameworks_fuse_nothing_unless_a_compiler_is_named(
    tmp_path: Path, changes: dict[str, Any], compiled: bool | None
) -> None:
    """Where kernels count; libraries and MLPerf's code have fused kernels of their own."""
    row = {**BERT, "accelerator": "NVIDIA V100-SXM2-16GB", "precision": "fp16", "padding": "all"}
    found = point(tmp_path, **{**row, **changes})
    assert found.case.scenario.execution.compile is compiled
    assert any("not fused" in note for note in found.notes) == (compiled is False)


@pytest.mark.parametrize(
    ("times", "act_ckpt", "again"),
    [(4 / 3, "", True), (1.0, "", False), (2.0, "", False), (4 / 3, "False", False)],
)
def test_who_counts_forward_twice_computes_it_again(
    tmp_path: Path, times: float, act_ckpt: str, again: bool
) -> None:
    """FLOP of a step = tflops_per_gpu x GPUs x step time: 3 forwards' without, 4 with."""
    row = {**BERT, "precision": "fp16", "padding": "all", "value": "", "step_time_s": 0.5}
    plain = point(tmp_path, **row).case
    counted = times * plain.model.flop_per_sample() * plain.global_batch / 8 / 0.5 / 1e12
    told = {"tflops_per_gpu": f"{counted:.4g}", "act_ckpt": act_ckpt}
    found = point(tmp_path, **row, **told)
    assert found.data["recompute"] == ("full" if again else "none")
    assert any("computed again" in note for note in found.notes) == again


@pytest.mark.parametrize(("times", "again"), [(4 / 3, True), (1.0, False), (2.0, False)])
def test_flop_beside_a_rate_tell_what_is_computed_again_too(
    tmp_path: Path, times: float, again: bool
) -> None:
    """FLOP of a sample = tflops_per_gpu x GPUs / rate, whatever the batch is; TFLOP/s beside
    themselves tell nothing."""
    row = {**BERT, "precision": "fp16", "padding": "all", "value": 100, "unit": "samples/s"}
    counted = times * point(tmp_path, **row).case.model.flop_per_sample() * 100 / 8 / 1e12
    told = {"tflops_per_gpu": f"{counted:.4g}"}
    assert point(tmp_path, **row, **told).data["recompute"] == ("full" if again else "none")
    beside = {**row, **told, "value": counted / 1.4, "unit": "TFLOP/s/GPU"}
    assert point(tmp_path, **beside).data["recompute"] == "none"


@pytest.mark.parametrize(
    ("changes", "again"),
    [
        ({"framework": "DeepSpeed"}, True),
        ({"framework": "Megatron-DeepSpeed", "act_ckpt": "True"}, True),
        ({"framework": "DeepSpeed", "act_ckpt": "False"}, False),
        ({"framework": "DeepSpeed", "metric": "model TFLOP/s per GPU"}, False),
        ({"framework": "Megatron-LM"}, False),
    ],
)
def test_rates_of_flop_of_deepspeed_have_forward_twice(
    tmp_path: Path, changes: dict[str, str], again: bool
) -> None:
    """3 forwards' FLOP without, 4 with, over 8 GPUs of 10 TFLOP/s each."""
    told = {"precision": "fp16", "padding": "all", "value": 10, "unit": "TFLOP/s/GPU"}
    found = point(tmp_path, **{**BERT, **told, **changes})
    plain = found.case.model.flop_per_sample() * found.case.global_batch / (8 * 10e12)
    assert found.step_time == pytest.approx(plain * (4 / 3 if again else 1))
    assert found.data["recompute"] == ("full" if again else "none")
    assert found.value(2 * found.step_time) == pytest.approx(5)


@pytest.mark.parametrize(("name", "billions"), [("Llama2-13b", 13.016), ("llama-2-34b", 33.74)])
def test_sizes_of_llama_2_between_its_configurations_have_their_own_shapes(
    name: str, billions: float
) -> None:
    """13,015,864,320 parameters (its published index of weights); Code Llama's 33,743,970,304."""
    found = choose_model(name, "", None, 4096)
    made = Transformer(**{key: value for key, value in found.data.items() if key != "name"})
    assert made.model().parameters / 1e9 == pytest.approx(billions, rel=1e-3)


def test_a_run_is_predicted_between_its_readings(tmp_path: Path) -> None:
    """Uncalibrated, the middle of padded texts and of texts without padding, each alone."""
    rows = [BERT | {"precision": "bf16 mixed", "padding": text} for text in ("", "all", "left out")]
    cells = [dict(zip(HEAD, RESNET, strict=True)) | row for row in rows]
    path = write(tmp_path / "t.csv", [tuple(c.values()) for c in cells], tuple(cells[0]))
    told = validated_training(path, calibrate="none").predictions()
    both, padded, packed = (float(row["predicted"]) for row in told)
    assert packed > 1.8 * padded
    assert both == pytest.approx(math.sqrt(padded * packed))
    assert "or texts without padding (50%)" in told[0]["machine"]
    # calibrated, both say nearly the same of the next count
    pair = [{**cells[0], "total_gpus": 4, "value": 2000}, cells[0]]
    path = write(tmp_path / "c.csv", [tuple(c.values()) for c in pair], tuple(pair[0]))
    (row,) = [r for r in validated_training(path).predictions() if r["status"] == "predicted"]
    assert float(row["predicted"]) == pytest.approx(4000, rel=0.1)


def test_a_row_is_predicted_alike_whatever_came_before_it(tmp_path: Path) -> None:
    """Rows on one cluster share its machine, and not the NCCL of another time."""
    head = "series_id,model,accelerator,gpus_per_node,total_gpus,batch_per_gpu,precision,value,unit"
    rows = [
        f"{date},ResNet-50,NVIDIA V100-SXM2-16GB,8,{gpus},256,FP16 mixed,{gpus * 700},"
        f"images/s,{date}"
        for date in ("2018-10", "2024-06")
        for gpus in (8, 16)
    ]
    for name, lines in (("both", rows), ("late", rows[2:])):
        text = "\n".join([f"{head},data_date", *lines])
        (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
    both, late = (validated_training(tmp_path / f"{name}.csv") for name in ("both", "late"))
    assert both.predictions()[-1]["predicted"] == late.predictions()[-1]["predicted"]
    assert both.predictions()[1]["predicted"] != both.predictions()[3]["predicted"]


# -- communicators that share links ---------------------------------------------------------------

HSDP = {
    "model": "GPT h1024 L4", "total_gpus": 16, "nodes": 2, "seq_len": 512, "batch_per_gpu": 1,
    "precision": "FP16", "accelerator": "NVIDIA A100-SXM4-80GB", "inter_node": "10 GbE",
    "inter_gbits_s_per_node": 10, "strategy": "HSDP", "shard": "shard=8", "value": 1.0, "unit": "s",
}  # fmt: skip


def test_shared_links_are_played_event_by_event_where_that_is_affordable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = point(tmp_path, **HSDP).case
    played = shortened.play(case)
    assert played.engine == "event"
    assert shortened.step_time(case) == pytest.approx(played.step_time, rel=1e-12)
    monkeypatch.setattr("dpsim.predict.shortened.MOST_SECONDS", 0.0)
    with pytest.raises(SimulationError, match="communicators of fsdp share links"):
        shortened.play(case)


def test_zero_plus_plus_beyond_that_says_that_links_are_not_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = point(tmp_path, **HSDP | {"strategy": "ZeRO++", "shard": "ZeRO-3"}).case
    exact = shortened.play(case)
    assert exact.engine == "event"
    monkeypatch.setattr("dpsim.predict.shortened.MOST_SECONDS", 0.0)
    unshared = shortened.play(case)
    assert unshared.reason == shortened.NOTE
    assert 0.5 * exact.step_time < unshared.step_time <= exact.step_time


@pytest.mark.parametrize(
    "told",
    [
        {"model": "Llama-3 MoE {} experts top-2", "params_m": 9230},
        {"model": "h{} l24 a16", "params_m": ""},
        {"loader": "torch, {} workers"},
        {"strategy": "FSDP hybrid shard={}"},
        {"model": "Mixtral 8x7B", "params_m": "", "strategy_detail": "expert parallel {}"},
    ],
    ids=str,
)
def test_more_digits_than_a_number_has_are_refused(tmp_path: Path, told: dict[str, Any]) -> None:
    """Of 5,000 digits Python makes no number at all."""
    filled = {column: str(text).format("9" * 5000) for column, text in told.items()}
    with pytest.raises(Refused):
        point(tmp_path, **filled)


ON_B200 = {
    "model": "Llama 3.1 8B", "strategy": "Megatron distributed optimizer", "value": 35,
    "unit": "sequences/s", "batch_per_gpu": 2, "seq_len": 8192, "framework": "Megatron-LM",
    "accelerator": "NVIDIA B200-SXM-180GB",
}  # fmt: skip


@pytest.mark.parametrize("words", ["NVFP4 or FP8", "FP8 or NVFP4", "nvfp4 or MXFP8"])
def test_either_of_two_formats_is_two_readings(tmp_path: Path, words: str) -> None:
    found = platform_of(row_of(tmp_path, **ON_B200, precision=words)).readings
    assert {one.answers["precision"].name for one in found} == {"nvfp4", "fp8"}


@pytest.mark.parametrize(
    "words", ["MXFP8 / NVFP4", "NVFP4 and FP8", "NVFP4 (FP8 attention)", "FP8, NVFP4"]
)
def test_two_formats_at_once_are_refused(tmp_path: Path, words: str) -> None:
    with pytest.raises(Refused, match="names NVFP4 and FP8; one of them is accepted"):
        point(tmp_path, **ON_B200, precision=words)


@pytest.mark.parametrize(
    ("words", "compute"),
    [
        ("not NVFP4, FP8", "fp8"),
        ("FP8 without NVFP4", "fp8"),
        ("NVFP4, no FP8", "nvfp4"),
        ("bf16 (FP8 disabled)", "bf16"),
        ("NVFP4 mixed (config file; config_common_fp8attn.sh)", "nvfp4"),
    ],
)
def test_a_format_that_is_denied_or_a_files_does_not_count(
    tmp_path: Path, words: str, compute: str
) -> None:
    assert point(tmp_path, **ON_B200, precision=words).data["precision"]["compute"] == compute


@pytest.mark.parametrize("words", ["not NVFP4", "not NVFP4 or FP8"])
def test_a_precision_that_is_only_denied_is_refused(tmp_path: Path, words: str) -> None:
    with pytest.raises(Refused, match=f"precision: '{words}' does not say what it is"):
        point(tmp_path, **ON_B200, precision=words)


@pytest.mark.parametrize(
    "told",
    [
        {"precision": "NVFP4, first 2 and last 8 layers in bf16"},
        {"precision": "NVFP4", "strategy_detail": "first 2 and last 8 layers in BF16"},
        {"precision": "NVFP4, first 2 layers in bf16, last 8 blocks in bf16"},
        {"precision": "NVFP4 or FP8, first 2 and last 8 layers in bf16"},
    ],
    ids=str,
)
def test_blocks_that_stay_in_16_bits_are_read(tmp_path: Path, told: dict[str, Any]) -> None:
    """And reduce gradients as all others do."""
    found = point(tmp_path, **ON_B200 | {"strategy_detail": ""} | told).data
    assert found["precision"] == {
        "parameters": "bf16", "compute": "nvfp4", "wide_first": 2, "wide_last": 8,
    }  # fmt: skip
    assert found["strategy"]["grad_reduce_in_fp32"] is False


@pytest.mark.parametrize("words", ["NVFP4, some layers in bf16", "FP8 with bf16 in outer blocks"])
def test_blocks_in_16_bits_that_are_not_read_are_refused(tmp_path: Path, words: str) -> None:
    with pytest.raises(Refused, match="is not read; 'first 2 and last 8 layers in bf16' is"):
        point(tmp_path, **ON_B200, precision=words)


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        ("vocabulary 50257", 50257),
        ("vocab of 32k", 32_000),
        ("vocab of 50.3k", 50_300),
        ("vocab size: 128,256", 128_256),
        ("vocabulary 10000000", 10_000_000),
        ("vocab size 256", 256),  # bytes
        ("nothing of it", None),
    ],
)
def test_a_vocabulary_is_what_words_say(words: str, rows: int | None) -> None:
    found = choose_model("h1024 l24 a16", "LLM", None, 512, column=lambda _: words)
    assert found.data.get("vocabulary") == rows


@pytest.mark.parametrize(
    "words", ["vocabulary 0", "vocab 255", "vocabulary 999999999", "vocab 1" + "0" * 5000]
)
def test_a_vocabulary_that_cannot_be_is_refused(words: str) -> None:
    with pytest.raises(Refused, match="is no vocabulary; 256 to 10,000,000 tokens are accepted"):
        choose_model("h1024 l24 a16", "LLM", None, 512, column=lambda _: words)


def test_a_series_is_calibrated_on_its_own_accelerator(tmp_path: Path) -> None:
    """A level of one device says nothing of another's compute."""
    head = ("series_id", *HEAD)
    cells = dict(zip(HEAD, RESNET, strict=True))
    rows = []
    for gpus, accelerator in ((1, "V100-SXM2-16GB"), (8, "V100-SXM2-16GB"), (8, "A100-SXM4-40GB")):
        own = cells | {"total_gpus": gpus, "accelerator": accelerator, "value": 770.0 * gpus}
        rows.append(("s", *own.values()))
    table = read_table(write(tmp_path / "t.csv", rows, head))
    first, alike, other = play_series(table.series["s"])
    assert (first.status, alike.status, other.status) == ("calibrated", "predicted", "refused")
    assert other.reason.startswith("accelerator: its calibration row ran on Tesla V100")
    assert "A100" in other.reason


# -- what words on the run say --------------------------------------------------------------------

LLAMA = {
    "model": "Llama-3.1-8B", "accelerator": "H100 SXM5 80GB", "gpus_per_node": 8, "total_gpus": 64,
    "inter_node": "8x NDR InfiniBand", "precision": "bf16", "seq_len": 8192, "batch_per_gpu": 1,
    "strategy": "FSDP", "framework": "PyTorch", "step_time_s": 20.0,
}  # fmt: skip


def llama(tmp_path: Path, **changes: Any) -> MeasuredCase:
    cells = {key: value for key, value in {**LLAMA, **changes}.items() if value is not None}
    table = read_table(write(tmp_path / "t.csv", [tuple(cells.values())], tuple(cells)))
    return measured_case(table.rows[0])


@pytest.mark.parametrize(
    "words", ["TP8 PP4 DP2", "TP8PP4DP2", "TP=8, PP=4", "(t=8, p=4, d=2)", "tp-8 / pp-4"]
)
def test_sizes_of_a_mesh_are_read_from_the_strategys_words(tmp_path: Path, words: str) -> None:
    for column in ("strategy", "strategy_detail"):
        own = {"strategy": "", column: words, "framework": "Megatron-LM", "global_batch": 64}
        found = llama(tmp_path, **own)
        assert (found.case.mesh.tensor, found.case.mesh.pipeline) == (8, 4)
        assert found.told[0].startswith("tp 8, pp 4, as the strategy's words say")


def test_columns_count_where_words_say_a_mesh_too(tmp_path: Path) -> None:
    found = llama(tmp_path, strategy="TP4", tp=8, framework="Megatron-LM", global_batch=64)
    assert found.case.mesh.tensor == 8
    assert llama(tmp_path, strategy="FSDP + CP8", framework="torchtitan").case.mesh.context == 8


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("3D parallel", "does not say how large"), ("model parallel", "tp: tensor parallelism of"),
        ("FSDP + context parallel", "cp: context parallelism of"),
        ("TP4, TP8", "said to be 4 and 8"),
        ("Ulysses + ZeRO-3", "cp: context"), ("DDP vs FSDP", "several strategies"),
        ("FSDP NO_SHARD", "NO_SHARD is DDP"),
    ],
)  # fmt: skip
def test_a_mesh_of_unknown_size_and_two_strategies_are_refused(
    tmp_path: Path, words: str, complaint: str
) -> None:
    with pytest.raises(Refused, match=complaint):
        llama(tmp_path, strategy=words)


@pytest.mark.parametrize(
    ("cells", "strategy"),
    [
        ({"strategy": "Fully Sharded Data Parallel"}, {"kind": "fsdp"}),
        ({"strategy": "FSDP ZeRO-2"}, {"kind": "fsdp", "reshard_after_forward": False}),
        ({"strategy": "ZeRO stage 3"}, {"kind": "zero", "stage": 3}),
        ({"strategy": "", "framework": "DeepSpeed stage 3"}, {"kind": "zero", "stage": 3}),
        ({"strategy": "DistributedDataParallel"}, {"kind": "ddp"}),
        ({"strategy": "DDP, fp16 gradient compression"}, {"kind": "ddp", "comm_hook": "fp16"}),
        ({"strategy": "HSDP", "shard": "8"}, {"kind": "fsdp", "shard": 8}),
    ],
)
def test_strategies_are_read_as_people_write_them(
    tmp_path: Path, cells: dict[str, Any], strategy: dict[str, Any]
) -> None:
    assert llama(tmp_path, **cells).data["strategy"] == strategy


@pytest.mark.parametrize(
    "words",
    [
        "mpirun -n 4 distributed training", "torchrun", "torch.distributed.launch", "ddp_spawn",
        "python -m torch.distributed.launch --nproc_per_node=8", "HF Accelerate (multi-GPU)",
        "baseline (no pipeline)", "single GPU (baseline)", "multi-GPU (--num-gpus)", "8 GPUs",
        "2 nodes x 8 GPUs", "Synchronous SGD", "kvstore=device", "multi_gpu_model", "NCCL",
        "no parallelism", "n/a", "plain", "multiprocessing-distributed", "Paddle Fleet collective",
        "torchrun --nproc_per_node=8 --nnodes 2", "mpirun --hostfile hosts -np 8",
        "torchrun --rdzv_backend c10d --rdzv_endpoint host:29500", "srun --ntasks-per-node=8",
        "accelerate launch --multi_gpu --num_processes 8 --num_machines 1",
        "python -m torch.distributed.launch --master_addr 10.0.0.1 --master_port 29500",
    ],
)  # fmt: skip
def test_words_that_tell_no_strategy_are_data_parallelism(tmp_path: Path, words: str) -> None:
    assert llama(tmp_path, strategy=words).data["strategy"]["kind"] == "ddp"


@pytest.mark.parametrize(
    "words",
    [
        "GPipe", "dist_async", "BMUF", "of", "gloo", "baseline + ZeRO", "torchrun --gossip",
        "torchrun --diloco", "torchrun --use-adasum", "torchrun --shard-optimizer",
        "torchrun --local-steps 8", "torchrun --expert-parallel 8", "torchrun --sp 8",
        "torchrun --sharding_strategy 1", "torchrun --bagua", "torchrun --grad-compress",
        "torch.distributed.launch --sharded_ddp", "torchrun --compile", "torchrun --grad-accum 8",
    ],
)  # fmt: skip
def test_words_that_tell_another_are_refused(tmp_path: Path, words: str) -> None:
    with pytest.raises(Refused, match=r"is not known|are not read"):
        llama(tmp_path, strategy=words)


@pytest.mark.parametrize("framework", ["torchtitan", "torchtune"])
def test_a_launcher_alone_is_no_data_parallelism_where_parameters_are_shared(
    tmp_path: Path, framework: str
) -> None:
    with pytest.raises(Refused, match="is not known"):
        llama(tmp_path, strategy="torchrun", framework=framework)


@pytest.mark.parametrize(
    ("text", "compute"),
    [
        ("bfloat16", "bf16"), ("BFloat16 mixed", "bf16"), ("FP32 (TF32 off)", "fp32"),
        ("fp32 without tf32", "fp32"), ("fp8 attention off, bf16", "bf16"), ("float16", "fp16"),
    ],
)  # fmt: skip
def test_precisions_are_read_as_people_write_them(tmp_path: Path, text: str, compute: str) -> None:
    assert llama(tmp_path, precision=text).data["precision"]["compute"] == compute


def test_a_precision_that_is_not_read_is_no_fp16(tmp_path: Path) -> None:
    for text in ("int8", "fp64"):
        with pytest.raises(Refused, match="is not known"):
            llama(tmp_path, precision=text, framework="Megatron-LM", strategy="")


@pytest.mark.parametrize(
    ("cells", "kept"),
    [
        ({"act_ckpt": "on"}, "full"), ({"act_ckpt": "every layer"}, "full"),
        ({"act_ckpt": "✓"}, "full"), ({"act_ckpt": "full_early_stop"}, "full_early_stop"),
        ({"act_ckpt": "full (use_reentrant=False)"}, "full_early_stop"),
        ({"act_ckpt": "full, non-reentrant"}, "full_early_stop"),
        ({"act_ckpt": "yes, selective"}, "selective"), ({"act_ckpt": "SAC"}, "selective"),
        ({"act_ckpt": "no"}, "none"), ({"strategy": "FSDP + activation checkpointing"}, "full"),
        ({"strategy": "FSDP without activation checkpointing"}, "none"),
    ],
)  # fmt: skip
def test_what_is_computed_again_is_read(tmp_path: Path, cells: dict[str, Any], kept: str) -> None:
    assert llama(tmp_path, **cells).data["recompute"] == kept


def test_a_part_that_is_computed_again_is_refused(tmp_path: Path) -> None:
    for text in ("every 2 layers", "50%"):
        with pytest.raises(Refused, match="act_ckpt"):
            llama(tmp_path, act_ckpt=text)


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ({"batch_per_gpu": 1, "batch_unit": "tokens"}, "batch_per_gpu: '1' is less than a sample"),
        ({"batch_per_gpu": "", "global_batch": "64 tokens"}, "global_batch: '64 tokens' is less"),
        ({"batch_per_gpu": 0.001}, "batch_per_gpu: '0.001' is less than a sample of all ranks"),
    ],
)
def test_a_batch_of_less_than_a_sample_is_refused(
    tmp_path: Path, cells: dict[str, Any], told: str
) -> None:
    with pytest.raises(Refused, match=told):
        llama(tmp_path, **cells)
    whole = llama(tmp_path, batch_per_gpu=8192 / 64, batch_unit="tokens")
    assert whole.case.global_batch == 1


def test_batches_in_tokens_and_implied_micro_batches(tmp_path: Path) -> None:
    for cells in ({"global_batch": "524288 tokens"}, {"global_batch": 524288, "batch_unit": "tok"}):
        assert llama(tmp_path, batch_per_gpu=None, **cells).case.global_batch == 64
    found = llama(tmp_path, batch_per_gpu=2, global_batch=512)
    assert found.data["batch"] == {"per_device": 2, "accumulation": 4}
    with pytest.raises(Refused, match="per node"):
        llama(tmp_path, batch_unit="sequences per node")


@pytest.mark.parametrize(
    "name",
    [
        "Llama-2-7B (4 layers)", "Llama-3.1-8B, 16 layers", "DeepSeek-V3 (proxy, 8 layers)",
        "Llama-2-7B / 13B", "Llama-3.1-8B + Llama-3.1-70B teacher", "DeepSeek-V3 16B",
    ],
)  # fmt: skip
def test_another_model_than_its_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Refused, match="model: "):
        llama(tmp_path, model=name)


def test_parameters_are_counted_in_millions(tmp_path: Path) -> None:
    for millions in (6_700_000_000, 6_700_000):
        with pytest.raises(Refused, match="params_m"):
            llama(tmp_path, model="GPT-3 6.7B", params_m=millions)


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ({"model": "GPT", "params_m": "1e-6"}, "params_m: 1e-06 million .* 0.001 to 20,000,000"),
        ({"model": "GPT", "params_m": "0"}, "params_m: 0 million parameters are not in the 0.001"),
        ({"model": "GPT-3 6.7B", "params_m": "0"}, "params_m: 0 million parameters are not in"),
        ({"model": "GPT-3 6.7B", "params_m": "-3"}, "params_m: '-3' is not one number from 0 up"),
        ({"model": "GPT 0.0001M", "params_m": ""}, "model: 0.0001 million .* not in the 0.001"),
        ({"model": "GPT 90000B", "params_m": ""}, r"model: 9e\+07 million parameters are not in"),
    ],
)
def test_sizes_that_no_model_has_are_refused_with_those_that_they_have(
    tmp_path: Path, cells: dict[str, str], told: str
) -> None:
    with pytest.raises(Refused, match=told):
        llama(tmp_path, **cells)


def test_what_has_a_known_network_in_it_is_a_stand_in(tmp_path: Path) -> None:
    """Of the parameters that its row states, for those of the network in its name are fewer."""
    for name in ("RetinaNet (ResNet-50)", "Wide ResNet-50-8", "DETR (ResNet-50 backbone)"):
        assert llama(tmp_path, model=name, seq_len=None, params_m=68).stand_in
    for name in ("Wide ResNet-50-8", "DETR (ResNet-50 backbone)"):
        with pytest.raises(Refused, match="column params_m would tell"):
            llama(tmp_path, model=name, seq_len=None, params_m=None)
    for name in ("Gemma", "Granite", "Mamba"):
        assert llama(tmp_path, model=name, params_m=9000).data["model"]["name"] == "transformer"


@pytest.mark.parametrize(
    ("unit", "metric", "value"),
    [
        ("tokens/s", "throughput per GPU", 11200), ("tokens/s", "throughput", 716_800),
        ("tokens/s/chip", "", 11200), ("tokens/GPU/s", "", 11200), ("s/it", "", 0.7314286),
        ("it/s", "", 1 / 0.7314286),
    ],
)  # fmt: skip
def test_rates_are_of_a_gpu_or_of_all(tmp_path: Path, unit: str, metric: str, value: float) -> None:
    found = llama(tmp_path, step_time_s=None, unit=unit, metric=metric, value=value)
    assert found.step_time == pytest.approx(64 * 8192 / 716_800, rel=1e-4)


@pytest.mark.parametrize(
    ("unit", "metric"),
    [
        ("% MFU", ""), ("percent MFU", ""), ("MFU", ""), ("MFU (%)", ""), ("%", "MFU"),
        ("%", "Model FLOPs utilization"), ("model flop utilisation %", ""),
    ],
)  # fmt: skip
def test_utilisation_of_model_flop_tells_a_step(tmp_path: Path, unit: str, metric: str) -> None:
    """42.7 % of the 312 TFLOP/s of an A100 are 133.224."""
    own = {"accelerator": "A100-SXM4-80GB", "inter_node": "8x HDR InfiniBand", "step_time_s": None}
    found = llama(tmp_path, **own, unit=unit, metric=metric, value=42.7)
    rate = llama(tmp_path, **own, unit="TFLOP/s/GPU", value=133.224)
    assert found.step_time == pytest.approx(rate.step_time)
    assert found.value(2 * found.step_time) == pytest.approx(42.7 / 2)


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ({"unit": "MFU", "value": 0.427}, "0.427 may be a share; '% MFU' counts percent"),
        ({"unit": "%", "metric": "scaling efficiency"}, "unit '%' is not known"),
        ({"unit": "%", "metric": "GPU utilization"}, "unit '%' is not known"),
        ({"unit": "% HFU"}, "unit '% HFU' is not known"),  # which has what is computed again
        ({"unit": "% MFU", "precision": "FP8", "accelerator": "H100-SXM5-80GB"},
         "which peak is not known in fp8; 'TFLOP/s/GPU' needs none"),
    ],
)  # fmt: skip
def test_percent_of_something_else_tell_no_step(
    tmp_path: Path, cells: dict[str, Any], told: str
) -> None:
    with pytest.raises(Refused, match=told):
        llama(tmp_path, **{"value": 42.7, "step_time_s": None, **cells})


def test_a_time_that_is_no_steps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no time of a step"):
        llama(tmp_path, step_time_s=None, unit="s", metric="time per epoch", value=20)


def test_adapters_are_as_large_as_words_say(tmp_path: Path) -> None:
    found = llama(tmp_path, task="LoRA r=64, all linear layers").data["model"]["adapters"]
    assert (found["rank"], len(found["targets"])) == (64, 7)
    assert "adapters" not in llama(tmp_path, task="full fine-tuning (not LoRA)").data["model"]
    with pytest.raises(Refused, match="dora"):
        llama(tmp_path, task="DoRA")


def test_words_that_deny_a_mesh_or_tell_of_the_runs_beside_are_none(tmp_path: Path) -> None:
    alone = {"total_gpus": 1, "gpus_per_node": 1, "strategy_detail": "TP8 from 8 GPUs on"}
    assert llama(tmp_path, **alone, model="GPT-2", params_m=124).case.mesh.tensor == 1
    found = llama(tmp_path, strategy="FSDP", strategy_detail="no tensor parallelism")
    assert found.case.mesh.tensor == 1
    said = r"tp: tensor parallelism of unknown size \(tensor parallelism inside nodes\)"
    with pytest.raises(Refused, match=said):
        llama(tmp_path, strategy="FSDP", strategy_detail="tensor parallelism inside nodes")


def test_each_batch_is_in_the_unit_behind_its_number(tmp_path: Path) -> None:
    cells = {"batch_per_gpu": "1", "global_batch": "524288 tokens", "grad_accum": None}
    found = llama(tmp_path, **cells, batch_unit=None)
    assert found.case.global_batch == 64
    assert llama(tmp_path, **{**cells, "global_batch": "64"}).case.global_batch == 64


def test_a_run_that_was_slow_of_itself_is_named(tmp_path: Path) -> None:
    """Its level goes into all others; and so is a row that is far off."""
    head = ("series_id", *LLAMA)
    rows = [
        ("s", *{**LLAMA, "total_gpus": gpus, "step_time_s": step}.values())
        for gpus, step in ((8, 20.0), (16, 0.7), (64, 0.75))
    ]
    path = write(tmp_path / "t.csv", rows, head)
    first = validated_training(path).document["warnings"][-2]
    assert re.match(r"line 2 \(8 GPUs\): its compute would be [\d.]+ times as long", first)
    rows[0], rows[2] = ("s", *{**LLAMA, "total_gpus": 8, "step_time_s": 0.7}.values()), rows[2]
    rows[2] = ("s", *{**LLAMA, "step_time_s": 20.0}.values())
    said = validated_training(write(tmp_path / "u.csv", rows, head)).document["warnings"][-1]
    assert said.startswith("1 measured more than 3 times off, outside of the interval: line 4")


def test_intervals_that_say_little_are_named(tmp_path: Path) -> None:
    """A network of which nothing is told may be TCP over one NIC; one that is told may not."""
    cells = {**LLAMA, "accelerator": "H100 SXM5 80GB", "strategy": "FSDP"}
    rows = [
        ("s", *{**cells, "total_gpus": 64, "inter_node": said}.values())
        for said in ("", "8x NDR InfiniBand")
    ]
    path = write(tmp_path / "t.csv", rows, ("series_id", *cells))
    found = validated_training(path, calibrate="none").document["warnings"]
    wide = [text for text in found if "with ends of the interval" in text]
    assert [text.partition(": ")[0] for text in wide] == [
        "1 with ends of the interval more than 5 times apart"
    ]
    assert re.search(r"times apart: line 2 \([\d.]+ times\)", wide[0])


def test_the_picture_of_few_rows_has_their_intervals(tmp_path: Path) -> None:
    """Those of the rows' steps, beside linear scaling's as their marks are."""
    rows = [
        ("s", *{**LLAMA, "total_gpus": gpus, "step_time_s": step}.values())
        for gpus, step in ((8, 0.7), (16, 0.72), (64, 0.8))
    ]
    found = validated_training(write(tmp_path / "t.csv", rows, ("series_id", *LLAMA)))
    (axes,) = make_figure(found).axes
    (bars,) = axes.collections
    (marks,) = (line for line in axes.lines if line.get_gid() == "strategy-0")
    for outcome, (x, y), bar in zip(
        found.outcomes[1:], marks.get_xydata(), bars.get_segments(), strict=True
    ):
        assert outcome.predicted
        ends = sorted(y * (end or 0.0) / outcome.predicted for end in (outcome.low, outcome.high))
        assert [tuple(end) for end in bar] == [pytest.approx((x, end)) for end in ends]


def test_a_table_of_which_nothing_is_predicted_is_a_finding(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    head = ("series_id", *LLAMA)
    rows = [
        ("s", *{**LLAMA, "total_gpus": gpus, "accelerator": accelerator}.values())
        for gpus, accelerator in ((8, "A100 SXM4 80GB"), (16, "H100 SXM5 80GB"))
    ]
    path = write(tmp_path / "t.csv", rows, head)
    assert cli("validate", str(path))[0] == 1


def test_longer_texts_than_a_known_model_has_positions_for_are_those_of_a_decoder_as_large(
    tmp_path: Path,
) -> None:
    """GPT-2 as it was published has 1,024 positions; who trains on more gave it more."""
    row = {"model": "gpt2-medium", "precision": "BF16", "batch_per_gpu": "2"}
    assert point(tmp_path, **row, seq_len="1024").data["model"]["huggingface"] == "gpt2-medium"
    longer = point(tmp_path, **row, seq_len="2048").data["model"]
    assert (longer["hidden"], longer["blocks"], longer["heads"]) == (1024, 24, 16)
    assert longer["sequence_length"] == 2048
    said = point(tmp_path, **{**row, "model": "GPT-2 (medium), ours"}, seq_len="2048")
    assert said.data["model"] == longer


@pytest.mark.parametrize(
    ("metric", "value", "step"),
    [
        ("time for 1,024 samples", 64.0, 0.5),  # 128 steps of eight
        ("seconds per 1k images", 125.0, 1.0),
        ("time for 8 samples", 0.5, 0.5),
        ("time for 100 iterations", 50.0, 0.5),
        ("time of 4 sequences", 0.25, 0.5),
        ("time for 100 checkpoints", 0.5, 0.5),  # of what nobody counts: a step's, as units say
        ("total time for 2.5k iterations", 1250.0, 0.5),
        ("elapsed time per iteration", 0.5, 0.5),
        ("step time", 0.5, 0.5),
    ],
)
def test_a_time_of_so_many_samples_is_that_of_their_steps(
    tmp_path: Path, metric: str, value: float, step: float
) -> None:
    told = {"metric": metric, "value": value, "unit": "s", "batch_per_gpu": 1, "total_gpus": 8}
    assert point(tmp_path, **told).step_time == pytest.approx(step)


@pytest.mark.parametrize(
    "metric",
    [
        "time to train", "total training time", "time per epoch", "wall-clock", "runtime",
        "train_runtime", "epoch_time", "total_time", "s_per_epoch", "makespan", "end-to-end time",
        "training time", "fine-tuning time", "compile time", "time for the whole run",
        "forward time", "step time without optimizer", "time per sample",
    ],
)  # fmt: skip
def test_times_of_whole_runs_and_of_parts_of_a_step_are_none_of_a_step(
    tmp_path: Path, metric: str
) -> None:
    with pytest.raises(Refused, match="no time of a step"):
        point(tmp_path, metric=metric, value=3600, unit="s")


def test_a_metric_tells_whose_rate_it_is_however_it_is_joined(tmp_path: Path) -> None:
    own = {"value": 1000, "unit": "images/s", "total_gpus": 8, "batch_per_gpu": 64}
    each = [point(tmp_path, **own, metric=m) for m in ("throughput per GPU", "throughput_per_gpu")]
    assert each[0].step_time == each[1].step_time == pytest.approx(0.064)


def test_the_time_of_a_whole_run_beside_that_of_a_step_is_no_contradiction(tmp_path: Path) -> None:
    whole = {"metric": "wall-clock time of the whole job", "value": 7200, "unit": "s"}
    assert point(tmp_path, **whole, step_time_s=0.5).step_time == 0.5
    with pytest.raises(Refused, match="is not step_time_s"):
        point(tmp_path, **{**whole, "metric": "step time"}, step_time_s=0.5)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"throughput_unit": "tokens/s"}, False),  # of sequences of unknown length
        ({"throughput_unit": "words/s"}, False),
        ({"throughput_unit": "fps"}, True),
        ({"throughput_unit": "samples/s"}, True),
        ({"throughput_unit": "tokens/s", "seq_len": 128}, True),
        ({"throughput_unit": "tokens/s", "seq_len": 512}, False),
        ({"throughput_unit": "tokens/s", "batch_unit": "tokens"}, True),
        ({}, True),
    ],
)
def test_a_rate_beside_a_step_contradicts_it_where_both_count_the_same(
    tmp_path: Path, changes: dict[str, Any], fault: bool
) -> None:
    """8 sequences of 512 tokens in 10 ms are 409,600 tokens a second."""
    cells = {"value": "", "step_time_s": 0.01, "global_batch": 8, "throughput_global": 409600}
    cells |= changes
    expected = pytest.raises(Refused, match="throughput_global") if fault else nullcontext()
    with expected:
        row_of(tmp_path, **cells)


@pytest.mark.parametrize(
    ("framework", "changes", "kernels"),
    [
        ("PyTorch 2.5", {}, {"compile": False}),
        ("PyTorch 2.5", {"notes": "torch.compile; 5,100 steps"}, {"compile": True}),
        ("PyTorch 2.5", {"notes": "torch.compile off"}, {"compile": False}),
        ("PyTorch 2.5", {"notes": "1.4x slower than with torch.compile"}, {"compile": False}),
        ("PyTorch 2.5", {"notes": "eager; torch.compile unsupported"}, {"compile": False}),
        ("PyTorch 2.5", {"notes": "Compiled from the blog's figure 3"}, {"compile": False}),
        ("PyTorch 2.5", {"notes": "bs 8, with torch.compile (2.5)"}, {"compile": True}),
        (
            "PyTorch 2.5",
            {"notes": "torch.compile", "strategy_detail": "no torch.compile"},
            {"compile": False},
        ),
        ("PyTorch + Transformer Engine", {}, None),  # a library with fused kernels of its own
        ("PyTorch with TransformerEngine 2.1", {}, None),
        ("PyTorch, fused MLP and LayerNorm", {}, None),
        # of a decoder as large all kernels are known; of what may be another network, none
        ("PyTorch 2.5", {"model": "Qwen-7B", "batch_per_gpu": 1}, {"compile": False}),
        ("PyTorch 2.5", {"model": "Transformer-XL large"}, None),
    ],
)
def test_kernels_are_fused_where_notes_or_a_library_say_so(
    tmp_path: Path, framework: str, changes: dict[str, Any], kernels: dict[str, bool] | None
) -> None:
    own = {"model": "gpt2", "accelerator": "H100", "precision": "BF16", "seq_len": 1024,
           "batch_per_gpu": 8}  # fmt: skip
    found = point(tmp_path, **{**own, "framework": framework, **changes}).data.get("execution")
    assert found == kernels


@pytest.mark.parametrize(
    ("act_ckpt", "recompute"),
    [
        ("use_gradient_checkpointing True (template command)", "full"),
        ("use_gradient_checkpointing False", "none"),
        ("use_recompute: 0", "none"),
        ("use_activation_checkpointing=no", "none"),
        ("gradient_checkpointing: true", "full"),
    ],
)
def test_settings_of_checkpointing_are_read(tmp_path: Path, act_ckpt: str, recompute: str) -> None:
    own = {"model": "gpt2", "precision": "BF16", "seq_len": 1024, "act_ckpt": act_ckpt}
    assert point(tmp_path, **own).data["recompute"] == recompute


@pytest.mark.parametrize(
    ("unit", "samples"), [("tokens", 4), ("packed 2048-token samples", 8192), ("sequences", 8192)]
)
def test_samples_of_so_many_tokens_are_no_tokens(tmp_path: Path, unit: str, samples: int) -> None:
    own = {"model": "Llama-2-7B", "precision": "BF16", "seq_len": 2048, "batch_per_gpu": 8192}
    found = point(tmp_path, **own, batch_unit=unit).data["batch"]
    assert found["per_device"] * found.get("accumulation", 1) == samples


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("Llama-3-8B", 8192), ("Llama 3.1 70B", 8192), ("Llama-2-7B", 4096), ("Qwen2.5-7B", 4096),
        ("llama-30b", 2048), ("open-llama-3b", 2048), ("phi-4", 2048), ("gpt3 175B", 2048),
        ("bert-large", 512), ("opt-1.3b", 2048), ("gpt 6.7B", 2048),
    ],
)  # fmt: skip
def test_a_length_that_nobody_tells_is_what_the_family_was_trained_on(
    tmp_path: Path, model: str, tokens: int
) -> None:
    assert point(tmp_path, model=model, precision="BF16").case.model.tokens == tokens


def test_a_model_with_no_room_for_its_vocabulary_is_no_decoder(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no room for 50,257 tokens"):
        point(tmp_path, model="3.3M transformer language model", precision="BF16", seq_len=128)
    small = point(tmp_path, model="46M gpt", precision="BF16", seq_len=128).data["model"]
    assert (small["hidden"], small["blocks"]) == (512, 6)


def test_strong_scaling_of_micro_batches_that_nobody_counts_is_refused(tmp_path: Path) -> None:
    """A rank's samples would be as many at every count, and a step as long."""
    head = (*HEAD, "scaling", "series_id", "global_batch")
    rows = [
        (*RESNET[:3], gpus, *RESNET[4:6], step, "s", "strong (global step)", "one", total)
        for gpus, step, total in ((8, 0.9, ""), (16, 0.5, ""), (32, 0.3, 2048))
    ]
    played = validated_training(write(tmp_path / "t.csv", rows, head)).outcomes
    assert [one.status for one in played] == ["calibrated", "refused", "predicted"]
    assert "scaling is strong, and 4,096 samples a step follow" in played[1].reason


def test_a_dtype_that_no_device_of_a_series_has_is_refused_row_by_row(tmp_path: Path) -> None:
    rows = [("ResNet-50", "GTX 1080 Ti", 2, n, 64, "FP16", 150.0 * n, "images/s") for n in (1, 2)]
    played = validated_training(write(tmp_path / "t.csv", rows)).outcomes
    assert [one.status for one in played] == ["refused", "refused"]
    assert all("GeForce GTX 1080 Ti states no peak for fp16" in one.reason for one in played)


@pytest.mark.parametrize(
    ("accelerator", "device"),
    [
        ("AMD MI250X GCD (LUMI-G; script: gpus-per-node=mi250:8)", "mi250x-gcd"),
        ("NVIDIA A100 40GB (Slurm gpu:a100:4)", "a100-sxm-40gb"),
        ("gpu:a100-sxm4-80gb:8, 64 cores", "a100-sxm-80gb"),
        ("A100 (Slurm gpu:a100-pcie-40gb:2)", "a100-pcie-40gb"),
        ("Pascal TITAN X", "titan-x-pascal"),
        ("GTX TITAN X", "titan-x-maxwell"),
    ],
)
def test_an_accelerator_is_the_one_that_is_named(
    tmp_path: Path, accelerator: str, device: str
) -> None:
    found = point(tmp_path, accelerator=accelerator, precision="FP32", value=150.0)
    assert found.case.device == load_device(device)


def test_mxnets_distributed_store_is_a_parameter_server(tmp_path: Path) -> None:
    own = {"framework": "MXNet 1.0", "total_gpus": 16, "nodes": 2}
    stores = ("DP (kvstore dist_sync)", "DP (kvstore nccl)")
    backends = [
        point(tmp_path, **own, strategy=one).data["collective"]["backend"] for one in stores
    ]
    assert backends == ["parameter_server", "nccl"]


def test_a_precision_that_is_not_stated_may_say_whose_default_it_is(tmp_path: Path) -> None:
    said = (
        "not stated",
        "not stated (defaults)",
        "not stated (AMP)",
        "FP32 (no fp16 used)",
        "FP32",
    )
    bare, told, amp, denied, plain = (
        point(tmp_path, precision=one).data["precision"] for one in said
    )
    assert bare == told
    assert amp["compute"] == "fp16"
    assert denied == plain
    mixed = point(tmp_path, precision="FP32 weights, BF16 compute (not FP16)").data["precision"]
    assert mixed["compute"] == "bf16"


def test_a_reading_with_a_level_that_hardly_any_series_has_counts_for_less(tmp_path: Path) -> None:
    """BERT of unknown length: as 128 tokens its calibration row would be 7 times too slow."""
    head = (*HEAD, "framework", "strategy", "series_id")
    rows = [
        ("BERT-base", "V100-SXM2-16GB", 8, gpus, 32, "FP16", ms, "ms", "PyTorch", "DDP", "one")
        for gpus, ms in ((1, 260), (4, 278))
    ]
    _, found = validated_training(write(tmp_path / "t.csv", rows, head)).outcomes
    assert found.low is not None
    assert found.low > 230  # with both as likely as they were it is 67
