"""Measured collectives: tables in, predictions, calibration, intervals and figures out."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpsim.accuracy.collectives import curves, model
from dpsim.accuracy.collectives import table as tables
from dpsim.accuracy.collectives.curves import Knot
from dpsim.accuracy.collectives.model import Estimate, Question
from dpsim.accuracy.collectives.validate import validated_collectives
from dpsim.accuracy.platforms import MachineReading, Platform
from dpsim.accuracy.scores import ADDED, fitted_on
from dpsim.backends.nccl import Nccl
from dpsim.core.constants import Constant
from dpsim.core.record import Refused
from dpsim.predict import collective_error
from dpsim.report.accuracy import print_validation
from dpsim.report.accuracy_collectives import make_figure
from dpsim.report.figures import draw

COLUMNS = (
    "series_id", "machine_id", "accelerator", "gpus_per_node", "nodes", "ranks", "fabric",
    "interconnect_stated", "library", "algo", "proto", "collective", "size_bytes", "inplace",
    "time_us", "pathological", "note",
)  # fmt: skip
ROW = {
    "series_id": "dgx_ar_r8",
    "machine_id": "dgx",
    "accelerator": "NVIDIA A100",
    "gpus_per_node": 8,
    "nodes": 1,
    "ranks": 8,
    "fabric": "nvlink_nvswitch",
    "interconnect_stated": "not stated in source",
    "library": "NCCL (version not stated)",
    "algo": "auto",
    "proto": "auto",
    "collective": "all_reduce",
    "size_bytes": 2**20,
    "inplace": 0,
    "time_us": 100.0,
    "pathological": 0,
    "note": "",
}
SIZES = [2**k for k in range(10, 29)]
WIDTH = 1.25


def _learned(**widths: float) -> dict[str, Constant]:
    """Widths that are the same at both ends."""
    return {f"{k}.{end}": _constant(v) for k, v in widths.items() for end in ("fast", "slow")}


def _constant(value: float) -> Constant:
    return Constant(value=value, error=0.0, unit="1", meaning="m", fitted_on="f", n=100)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One known machine, and intervals of a known width."""

    def known_platform(site: model.StatedMachine) -> Platform:
        if "A100" not in site.accelerator:
            raise Refused(f"no machine with {site.accelerator} is known")
        cluster = {"machine": "dgx-a100", "gpus_per_node": site.gpus_per_node}
        return Platform((MachineReading(cluster, ("one DGX assumed",)),))

    widths = _learned(any=WIDTH, latency=1.0, passage=1.0, nodes=1.0, unmeasured=1.0, sockets=1.0)
    monkeypatch.setattr(model, "platform_of", known_platform)
    monkeypatch.setattr(collective_error, "shipped", lambda name: widths)
    model.topology_for.cache_clear()
    yield
    model.topology_for.cache_clear()


def _row(**changes: Any) -> dict[str, Any]:
    return {**ROW, **changes}


def _text(rows: Sequence[dict[str, Any]], columns: Sequence[str] = COLUMNS) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(content: Sequence[dict[str, Any]] | str | bytes) -> Path:
        path = tmp_path / "table.csv"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            text = content if isinstance(content, str) else _text(content)
            path.write_text(text, encoding="utf-8", newline="")
        return path

    return written


def validate_collectives(path: Path, **options: Any) -> dict[str, Any]:
    return validated_collectives(path, **options).document


def predictions(path: Path, **options: Any) -> list[dict[str, Any]]:
    return validated_collectives(path, **options).predictions()


def _estimate(row: dict[str, Any]) -> Estimate:
    question = Question(
        model.StatedMachine(
            accelerator=str(row["accelerator"]),
            gpus_per_node=int(row["gpus_per_node"]),
            nodes=int(row["nodes"]),
            ranks=int(row["ranks"]),
            fabric=str(row["fabric"]),
            interconnect=str(row["interconnect_stated"]),
            machine="",
        ),
        str(row["library"]),
        str(row["algo"]),
        str(row["proto"]),
        str(row["collective"]),
        int(row["size_bytes"]),
    )
    found = model.estimates([question])[question]
    assert isinstance(found, Estimate)
    return found


def _own(factor: float = 1.0, latency: float = 1.0, **changes: Any) -> list[dict[str, Any]]:
    """Rows that dpsim itself predicts, all of it times `factor` and its latency times `latency`."""
    rows = [_row(size_bytes=size, **changes) for size in SIZES]
    for row in rows:
        found = _estimate(row)
        row["time_us"] = repr(factor * (latency * found.latency + found.transfer) * 1e6)
    return rows


# -- closed forms ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "ranks"), [(1, 8), (4, 32)])
@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter"])
def test_own_predictions_have_no_error(
    write: Write, operation: str, nodes: int, ranks: int
) -> None:
    rows = _own(collective=operation, nodes=nodes, ranks=ranks)
    overall = validate_collectives(write(rows))["overall"]
    assert overall["n"] == len(SIZES)
    assert overall["median_error"] < 1e-9
    assert overall["p90_error"] < 1e-9
    assert overall["signed_bias"] == pytest.approx(0.0, abs=1e-9)
    assert overall["coverage"] == 1.0


def test_a_table_ten_percent_slower_has_an_error_of_one_eleventh(write: Write) -> None:
    overall = validate_collectives(write(_own(1.1)))["overall"]
    assert overall["median_error"] == pytest.approx(1 / 11, rel=1e-9)
    assert overall["p90_error"] == pytest.approx(1 / 11, rel=1e-9)
    assert overall["signed_bias"] == pytest.approx(-math.log(1.1), rel=1e-9)


@pytest.mark.parametrize(
    ("factor", "coverage"), [(1.24, 1.0), (1.26, 0.0), (0.81, 1.0), (0.79, 0.0)]
)
def test_coverage_ends_where_the_interval_does(
    write: Write, factor: float, coverage: float
) -> None:
    assert validate_collectives(write(_own(factor)))["overall"]["coverage"] == coverage


def test_every_second_size_mends_a_constant_factor(write: Write) -> None:
    document = validate_collectives(write(_own(1.7)), calibrate="every:2")
    assert document["status"] == {"calibrated": 10, "predicted": 9}
    overall = document["overall"]
    assert overall["baselines"]["alpha_beta"]["n"] == 9
    assert overall["median_error"] < overall["baselines"]["log_log"]["median_error"]


def test_few_points_of_its_own_take_the_bends_from_the_model() -> None:
    """A curve 1.7 times the model's is met exactly by the model's shape, and missed by the plain
    one; both count alike while there are fewer than `MANY` points."""
    sizes = [2.0**k for k in range(10, 29)]
    parts = {size: (20e-6 if size < 2**17 else 60e-6, size / 1e9) for size in sizes}
    points = [Knot(size, 1.7 * sum(parts[size]), parts[size]) for size in sizes]
    few, many = curves.through(points[::4]), curves.through(points[::3])
    assert few.model is not None
    assert few.plain is not None
    assert many.model is None
    size = sizes[6]
    exact, missed = few.model.seconds(size, parts[size]), few.plain.seconds(size, (1.0, size))
    assert exact == pytest.approx(1.7 * sum(parts[size]), rel=1e-12)
    assert missed != pytest.approx(exact, rel=0.01)
    assert few.seconds(size, parts[size]) == pytest.approx(math.sqrt(exact * missed), rel=1e-12)


def test_one_row_of_a_series_mends_the_part_that_it_shows(write: Write) -> None:
    """The smallest size is all latency, so the transfer time stays the model's own."""
    rows = _own(latency=2.0)
    found = predictions(write(rows), calibrate="smallest")
    assert [line["status"] for line in found] == ["calibrated"] + ["predicted"] * (len(SIZES) - 1)
    assert found[0]["predicted"] == pytest.approx(found[0]["measured"], rel=1e-8)
    first, last = _estimate(rows[0]), _estimate(rows[-1])
    factor = (float(rows[0]["time_us"]) / 1e6 - first.transfer) / first.latency
    expected = (factor * last.latency + last.transfer) * 1e6
    assert found[-1]["predicted"] == pytest.approx(expected, rel=1e-8)


def test_a_curve_without_a_model_follows_its_own_sizes(write: Write) -> None:
    """alpha + S / B through some of its points is exact, where log-log interpolation is not."""
    rows = [
        _row(size_bytes=size, library="Baidu RingAllReduce", time_us=repr(20.0 + size / 1e4))
        for size in SIZES
    ]
    document = validate_collectives(write(rows), calibrate="every:4")
    assert document["overall"]["median_error"] < 1e-9
    assert document["overall"]["baselines"]["log_log"]["median_error"] > 0.01
    line = predictions(write(rows), calibrate="every:4")[1]
    assert line["status"] == "predicted"
    assert "Baidu" in line["reason"]


def test_the_alpha_beta_baseline_is_the_ring_on_nominal_links() -> None:
    """dgx-a100: 1.7 us into and 1.7 us out of the switch, 240 GB/s; NICs of 8 x 25 GB/s."""
    inside = _estimate(_row(size_bytes=2**26))
    assert inside.alpha_beta == pytest.approx(14 * (3.4e-6 + 2**26 / 8 / 240e9), rel=1e-12)
    outside = _estimate(_row(size_bytes=2**26, nodes=4, ranks=32))
    hop = outside.alpha_beta / 62 - 2**26 / 32 / 200e9
    assert 5e-6 < hop < 50e-6


# -- what calibrates ------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [2, 3, 5, 40])
def test_every_kth_size_of_each_series_calibrates(write: Write, step: int) -> None:
    rows = [
        *(_row(series_id="a", size_bytes=size) for size in SIZES),
        *(_row(series_id="b", size_bytes=size, inplace=1) for size in reversed(SIZES[3:])),
    ]
    found = predictions(write(rows), calibrate=f"every:{step}")
    for series, sizes in (("a", SIZES), ("b", SIZES[3:])):
        own = {
            int(r["size_bytes"])
            for r in found
            if (r["series_id"], r["status"]) == (series, "calibrated")
        }
        assert own == set(sizes[::step])


def test_both_rows_of_a_size_calibrate(write: Write) -> None:
    rows = [_row(size_bytes=size, inplace=place) for size in SIZES for place in (0, 1)]
    found = predictions(write(rows), calibrate="every:2")
    assert [line["status"] for line in found[:4]] == [
        "calibrated",
        "calibrated",
        "predicted",
        "predicted",
    ]


def test_smallest_takes_the_first_row_of_each_series_or_those_with_the_role(write: Write) -> None:
    rows = [_row(series_id=name, size_bytes=size) for name in "ab" for size in (2**20, 2**10)]
    statuses = [line["status"] for line in predictions(write(rows), calibrate="smallest")]
    assert statuses == ["calibrated", "predicted", "calibrated", "predicted"]
    for row, role in zip(rows, ("test", "calib", "test", "test"), strict=True):
        row["role"] = role
    path = write(_text(rows, (*COLUMNS, "role")))
    statuses = [line["status"] for line in predictions(path, calibrate="smallest")]
    assert statuses == ["predicted", "calibrated", "predicted", "predicted"]


def test_rows_that_show_a_fault_are_predicted_but_neither_scored_nor_used(write: Write) -> None:
    rows = _own()
    for row in rows[::2]:
        row |= {"pathological": 1, "time_us": repr(float(row["time_us"]) * 50)}
    document = validate_collectives(write(rows))
    assert document["overall"]["n"] == len(rows) // 2
    assert document["overall"]["median_error"] < 1e-9
    assert document["excluded"] == {"predicted": 10, "outside_interval": 10}
    found = predictions(write(rows), calibrate="every:2")
    assert {line["status"] for line in found[::2]} == {"excluded"}
    assert all(line["predicted"] > 0 for line in found)


def test_rows_that_one_thread_takes_to_launch_are_predicted_but_not_scored(write: Write) -> None:
    """Eight launches of 4 us each, whatever the size, and then what links take; so many GPUs of a
    thread are told by a column, and a process per GPU is meant where it says nothing."""
    sizes = [2**k for k in range(10, 24)]
    rows = [_row(size_bytes=n, time_us=max(32.0, n / 1e5), gpus_per_thread=8) for n in sizes]
    columns = (*COLUMNS, "gpus_per_thread")
    found = predictions(write(_text(rows, columns)), calibrate="every:2")
    launched = [line["status"] for line in found].count("excluded")
    assert launched == sum(n / 1e5 <= 32.0 * 1.25 for n in sizes)
    assert all(
        "thread takes to launch on its 8 GPUs" in line["reason"] for line in found[:launched]
    )
    assert {line["status"] for line in found[launched:]} == {"calibrated", "predicted"}
    for row in rows:
        row["gpus_per_thread"] = ""
    assert validate_collectives(write(_text(rows, columns)))["status"] == {"predicted": len(rows)}


def test_a_thread_has_no_more_gpus_than_its_node(write: Write) -> None:
    path = write(_text([_row(), _row(gpus_per_thread=9)], (*COLUMNS, "gpus_per_thread")))
    document = validate_collectives(path)
    assert document["status"] == {"predicted": 1, "refused": 1}
    assert "gpus_per_thread: 9 is not in 1 … 8" in str(document["warnings"])


@pytest.mark.parametrize(
    "mode", ["every", "every:", "every:1", "every:0", "every:-2", "every:2.5", "all", "", "EVERY:2"]
)
def test_other_ways_to_calibrate_are_refused(write: Write, mode: str) -> None:
    with pytest.raises(Refused, match="every:K"):
        validate_collectives(write([_row()]), calibrate=mode)


def test_no_processes_are_refused(write: Write) -> None:
    with pytest.raises(Refused, match="--jobs"):
        validate_collectives(write([_row()]), jobs=0)


# -- rows out -------------------------------------------------------------------------------------


def test_rows_keep_their_order_and_all_columns(write: Write) -> None:
    rows = [_row(size_bytes=size, note=f'n{k}, "x"') for k, size in enumerate(reversed(SIZES))]
    found = predictions(write(rows))
    assert [list(line) for line in found] == [[*COLUMNS, *ADDED]] * len(rows)
    for row, line in zip(rows, found, strict=True):
        assert {name: line[name] for name in COLUMNS} == {name: str(row[name]) for name in COLUMNS}
        assert line["measured"] == 100.0
        assert line["unit"] == "us"
        assert line["low"] < line["predicted"] < line["high"]
        assert line["bottleneck"] in ("network_latency", "intra_node_network")


def test_a_column_of_the_same_name_is_written_once(write: Write) -> None:
    columns = ("status", *COLUMNS, "predicted")
    path = write(_text([_row(status="old", predicted="7")], columns))
    (line,) = predictions(path)
    assert list(line) == [*columns, *(name for name in ADDED if name not in columns)]
    assert line["status"] == "predicted"
    assert line["predicted"] != "7"


def test_the_document_and_the_rows_agree(write: Write) -> None:
    rows = [*_own(1.3), _row(collective="gather"), _row(library="Intel MLSL"), _row(pathological=1)]
    found = validated_collectives(write(rows))
    lines = found.predictions()
    errors = [abs(r["predicted"] / r["measured"] - 1) for r in lines if r["status"] == "predicted"]
    assert found.document["overall"]["median_error"] == pytest.approx(np.median(errors), rel=1e-6)
    assert found.document["status"] == {"excluded": 1, "predicted": 19, "refused": 2}
    assert found.document["overall"]["share_refused"] == pytest.approx(2 / 21)
    assert found.document["assumed"] == {"one DGX assumed": 20}


def test_processes_give_the_same_document(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # processes are started afresh, and know the real machines
    model.topology_for.cache_clear()
    rows = [row for nodes in (1, 2) for row in _own(1.2, nodes=nodes, ranks=8 * nodes)]
    path = write(rows)
    assert validate_collectives(path) == validate_collectives(path, jobs=2)


REFUSED = {
    "gather": {"collective": "gather"},
    "scatter": {"collective": "scatter"},
    "frobnicate": {"collective": "frobnicate"},
    "Baidu": {"library": "Baidu RingAllReduce"},
    "CPU host memory": {"accelerator": "CPU host memory"},
    "0 bytes": {"size_bytes": 0},
    "alone": {"ranks": 1},
    "bruck": {"algo": "bruck"},
    "Abacus": {"accelerator": "Abacus"},
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_not_modelled_is_refused_by_name(write: Write, words: str) -> None:
    (line,) = predictions(write([_row(**REFUSED[words])]))
    assert line["status"] == "refused"
    assert words in line["reason"]
    assert line["predicted"] is line["low"] is line["high"] is None
    overall = validate_collectives(write([_row(**REFUSED[words])]))["overall"]
    assert (overall["n"], overall["refused"], overall["share_refused"]) == (0, 1, 1.0)
    assert overall["refusals"] == {line["reason"]: 1}


@pytest.mark.parametrize(
    ("library", "version"),
    [
        ("NCCL 2.18.5", "2.18.5"),
        ("NCCL 2.18", "2.18"),
        ("nccl-2.21.5+cuda12.4", "2.21.5"),
        ("RCCL 2.22.3", "2.22.3"),
        ("RCCL (ROCm 6.4.1)", ""),
        ("NCCL (version not stated), CUDA 12.2", ""),
        ("OpenMPI 4.1.5 with NCCL v2.27.3", "2.27.3"),
    ],
)
def test_the_version_is_the_librarys_own(library: str, version: str) -> None:
    assert model.backend_of(library, "auto", "auto") == Nccl(version=version)


def test_what_was_forced_is_forced() -> None:
    assert model.backend_of("NCCL 2.21.5", "Tree", "LL128") == Nccl(
        version="2.21.5", algorithm="tree", protocol="ll128"
    )
    assert model.backend_of("NCCL", "NVLSTree", "not stated") == Nccl(algorithm="nvls_tree")


@pytest.mark.parametrize("name", ["AllReduce", "all-reduce", "ALL_REDUCE", "allreduce"])
def test_a_collective_may_be_spelt_as_usual(write: Write, name: str) -> None:
    (line,) = predictions(write([_row(collective=name)]))
    assert line["status"] == "predicted"


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("alltoall", "all_to_all"), ("All-to-all", "all_to_all"), ("reduce", "reduce"),
        ("sendrecv", "send"), ("p2p", "send"),
    ],
)  # fmt: skip
def test_messages_and_reduces_are_predicted_as_the_backend_says(
    write: Write, name: str, operation: str
) -> None:
    (outcome,) = validated_collectives(
        write([_row(collective=name, nodes=2, ranks=16, fabric="ib")])
    ).outcomes
    assert outcome.row.operation == operation
    topology, _ = model.topology_of(model.Question.of(outcome.row).stated)
    plan = Nccl(version="2.21.5").plan(operation, tuple(range(16)), outcome.row.size, topology)
    assert outcome.predicted == pytest.approx(plan.seconds, rel=1e-12)
    assert outcome.low is not None
    assert outcome.high is not None
    assert outcome.low < outcome.predicted < outcome.high


@pytest.mark.parametrize("name", ["alltoall", "sendrecv"])
def test_nccl_has_no_estimate_of_messages_so_that_baseline_is_absent(
    write: Write, name: str
) -> None:
    outcomes = validated_collectives(write([_row(collective=name), _row()])).outcomes
    assert set(outcomes[0].baselines) == {"alpha_beta"}
    assert set(outcomes[1].baselines) == {"alpha_beta", "nccl_bare"}
    (baseline,) = [
        found
        for key, found in validate_collectives(write([_row(collective=name)]))["overall"][
            "baselines"
        ].items()
    ]
    assert baseline["n"] == 1


def test_the_textbook_shares_the_nics_of_a_node_out_in_an_all_to_all(write: Write) -> None:
    """n-1 messages of S/n, each GPU at its part of the NICs: as an all-gather where it has one."""
    many, own = (
        validated_collectives(
            write([_row(collective=name, nodes=2, ranks=16, fabric="ib", size_bytes=2**30)])
        ).outcomes[0].baselines["alpha_beta"]
        for name in ("alltoall", "allgather")
    )  # fmt: skip
    assert many >= own


# -- tables in ------------------------------------------------------------------------------------

GOOD = _text([_row()])
HEADER, LINE = GOOD.splitlines()


def _cell(column: str, value: str) -> str:
    return _text([_row(**{column: value})])


def _without(column: str) -> str:
    return _text([_row()], [name for name in COLUMNS if name != column])


MALFORMED: dict[str, tuple[str | bytes, str]] = {
    "empty file": ("", "is empty"),
    "blank header": ("\n\n", "is empty"),
    "header alone": (HEADER + "\n", "no row"),
    "no text": (b"\x89PNG\r\n\x1a\n\xff\xfe", "UTF-8"),
    "utf-16": (GOOD.encode("utf-16"), "UTF-8"),
    "latin-1": (_cell("note", "Z").encode().replace(b"Z", b"\xe9"), "UTF-8"),
    "zero byte": (GOOD.replace("dgx_ar", "dgx\0ar"), ":2: .*zero byte"),
    "open quote": (HEADER + '\n"' + LINE, "is no CSV"),
    "a column twice": (HEADER + ",note\n" + LINE + ",", ":1: note: .*twice"),
    "a column without a name": (HEADER + ",\n" + LINE + ",", ":1: column number 18"),
    "too few cells": (HEADER + "\n" + LINE.rsplit(",", 1)[0], ":2: has 16 cells"),
    "too many cells": (HEADER + "\n" + LINE + ",,", ":2: has 19 cells"),
    "another kind of table": ("ranks,throughput\n1,2\n", ":1: accelerator"),
    "a name nearly right": (GOOD.replace("size_bytes", "size_byte"), "size_bytes: .*'size_byte'"),
    "decimal comma": (GOOD.replace(",", ";").replace("100.0", "100,0"), ":2: time_us: '100,0'"),
    "another bandwidth": (
        f"{HEADER},algbw_GBps\n{LINE},1.5\n", ":2: algbw_GBps: 1.5 is not size_bytes over",
    ),
    "a line break in a number": (_cell("time_us", "1\n2"), ":3: time_us"),
    **{f"no {name}": (_without(name), f":1: {name}: .*missing") for name in tables.NEEDED},
    **{
        f"{column} {value!r}": (_cell(column, value), f":2: {column}")
        for column, values in {
            "time_us": (
                "", "nan", "inf", "-inf", "-1", "0", "1e-9", "1e14", "ten", "1_000", "0x10",
                "1e999", "--1", "\u0663",
            ),
            "size_bytes": ("", "-1", "1.5", "1e30", "64K", "NaN", "=1+1"),
            "nodes": ("", "0", "-1", "1.5", "x", "2000000"),
            "ranks": ("", "0", "9", "1.5"),
            "gpus_per_node": ("0", "4096", ""),
            "inplace": ("2", "yes"),
            "pathological": ("2", "maybe", "-1"),
            "accelerator": ("", "  "),
            "library": ("",),
            "collective": ("", " "),
            "series_id": ("",),
        }.items()
        for value in values
    },
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_a_wrong_table_is_refused_with_its_place(write: Write, name: str) -> None:
    content, place = MALFORMED[name]
    with pytest.raises(Refused, match=rf"^table\.csv.*{place}") as caught:
        validate_collectives(write(content))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("fabric", ["", "unknown", "n/a"])
def test_an_empty_cell_on_the_network_is_one_that_states_nothing(write: Write, fabric: str) -> None:
    rows = [_row(fabric=one, nodes=2, ranks=16) for one in ("not stated", fabric)]
    stated, found = validated_collectives(write(rows)).predictions()
    assert [found[key] for key in ("status", "predicted", "low", "high")] == [
        stated[key] for key in ("status", "predicted", "low", "high")
    ]
    assert stated["status"] == "predicted"


def test_a_row_that_contradicts_itself_is_refused_and_the_others_are_answered(write: Write) -> None:
    rows = [_row(), _row(nodes=0), _row(ranks=9), _row(size_bytes=2**21)]
    found = validated_collectives(write(rows))
    lines = found.predictions()
    assert [line["status"] for line in lines] == ["predicted", "refused", "refused", "predicted"]
    assert "nodes: 0 is not in 1" in lines[1]["reason"]
    assert "ranks: 9 ranks do not fit 1 nodes of 8 GPUs" in lines[2]["reason"]
    assert lines[2]["size_bytes"] == lines[0]["size_bytes"]
    assert (found.document["rows"], found.document["status"]) == (4, {"predicted": 2, "refused": 2})
    assert any(
        "2 rows cannot be read or contradict themselves" in text
        for text in found.document["warnings"]
    )


def test_a_row_with_other_cells_than_the_header_is_refused_and_the_others_are_answered(
    write: Write,
) -> None:
    found = validated_collectives(
        write("\n".join([HEADER, LINE, LINE.rsplit(",", 1)[0], LINE + ",9"]))
    )
    assert [line["status"] for line in found.predictions()] == ["predicted", "refused", "refused"]
    assert found.predictions()[1]["reason"] == "has 16 cells, and the header 17"
    assert [line.strip() for line in found.table.faulty[1].cells] == LINE.split(",")


def test_rows_that_cannot_be_read_count_as_refused_everywhere(write: Write) -> None:
    document = validated_collectives(write([_row(), _row(nodes=0), _row(ranks=9)])).document
    overall, line = document["overall"], document["figures"][0]
    assert (line["fabric"], line["band"]) == ("all", "all")
    for found in (overall, line):
        assert (found["n"], found["refused"], found["share_refused"]) == (1, 2, 2 / 3)
        assert sum(found["refusals"].values()) == document["status"]["refused"] == 2
    assert all(one["refused"] == 0 for one in document["figures"][1:])


def test_more_than_forty_wrong_tables_are_tried() -> None:
    assert len(MALFORMED) >= 40


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.csv", tmp_path):
        with pytest.raises(Refused, match=r"no such file|is a folder"):
            validate_collectives(path)


def test_a_table_too_large_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write([_row(size_bytes=size) for size in SIZES])
    monkeypatch.setattr(tables, "MOST_ROWS", 3)
    with pytest.raises(Refused, match=r"table\.csv:5: more than 3 rows"):
        validate_collectives(path)
    monkeypatch.setattr(tables, "MOST_BYTES", 100)
    with pytest.raises(Refused, match="is larger than"):
        validate_collectives(path)


ODD: dict[str, tuple[str | bytes, str]] = {
    "semicolons": (GOOD.replace(",", ";"), "';'"),
    "tabs": (GOOD.replace(",", "\t"), "separates"),
    "twice": (GOOD + LINE + "\n", "1 rows repeat another to the letter: lines 3 .as 2."),
    "blank lines": (HEADER + "\n\n" + LINE + "\n\n", "2 empty lines"),
    "no bytes": (_text([_row(), _row(size_bytes=0)]), "size of 0 .*lines 3"),
    "a formula": (_cell("note", "=SUM(A1:A9)"), "apostrophe: lines 2"),
    "a link": (_cell("machine_id", "@import"), "apostrophe: lines 2"),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_table_is_loaded_with_a_warning(write: Write, name: str) -> None:
    content, words = ODD[name]
    found = validated_collectives(write(content))
    assert found.outcomes[0].status == "predicted"
    assert len(found.document["warnings"]) == 1
    assert re.search(words, found.document["warnings"][0])


def test_line_ends_of_any_system_are_fine(write: Write) -> None:
    one = predictions(write(GOOD))
    assert predictions(write(GOOD.replace("\n", "\r\n"))) == one
    assert validate_collectives(write(GOOD.replace("\n", "\r\n")))["warnings"] == []


def test_numbers_may_be_written_as_spreadsheets_do(write: Write) -> None:
    one, two = (
        predictions(write(_cell("size_bytes", text)))[0] for text in ("1048576", "1.048576E+6")
    )
    assert one["predicted"] == two["predicted"]


def test_without_series_the_machine_and_what_it_did_make_one(write: Write) -> None:
    columns = [name for name in COLUMNS if name != "series_id"]
    rows = [
        *(_row(size_bytes=size) for size in SIZES),
        *(_row(size_bytes=size, collective="all_gather") for size in SIZES),
        *(_row(size_bytes=size, nodes=2, ranks=16) for size in SIZES),
    ]
    document = validate_collectives(write(_text(rows, columns)), calibrate="every:2")
    assert document["series"] == 3
    assert document["status"]["calibrated"] == 30


# -- curves ---------------------------------------------------------------------------------------


def test_log_log_is_exact_on_a_power_of_the_size() -> None:
    points = [Knot(float(s), 3e-9 * s**0.7) for s in (2**10, 2**14, 2**20)]
    for size in (2**12, 2**19, 2**24):
        assert curves.loglog(points, size) == pytest.approx(3e-9 * size**0.7, rel=1e-12)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=8), st.floats(-1, 9))
@example([1.0, 0.0, -5e-324], 1.0)
@settings(max_examples=200, deadline=None)
def test_a_monotone_cubic_stays_between_its_neighbours(values: list[float], at: float) -> None:
    x, y = np.arange(float(len(values))), np.array(values)
    found = curves.monotone(x, y, at)
    before = min(max(int(np.floor(at)), 0), len(values) - 1)
    after = min(before + 1, len(values) - 1) if at > 0 else 0
    low, high = sorted((y[before], y[after]))
    assert low - 1e-9 <= found <= high + 1e-9


def test_a_curve_goes_through_its_points_and_stays_level_beyond_them() -> None:
    points = [Knot(float(2**k), 1e-6 * (5 + k**2), (4e-6, 2.0**k / 1e9)) for k in range(8, 30, 3)]
    found = curves.through(points)
    for point in points:
        assert found.seconds(point.size, point.parts) == pytest.approx(point.seconds, rel=1e-12)
    last = points[-1]
    twice = found.seconds(2 * last.size, (4e-6, 2 * last.size / 1e9))
    assert last.seconds < twice <= 2 * last.seconds


def test_each_point_left_out_of_an_exact_curve_is_met() -> None:
    points = [Knot(float(2**k), 7e-6 + 2.0**k / 3e9) for k in range(8, 30, 2)]
    assert len(curves.left_out(points)) == len(points) - 2
    assert max(abs(log) for _, log in curves.left_out(points)) < 1e-9


def test_one_size_without_a_model_says_nothing() -> None:
    with pytest.raises(Refused, match="single size"):
        curves.through([Knot(1024.0, 1e-5)]).seconds(2048.0, None)


# -- intervals ------------------------------------------------------------------------------------


def test_bands_begin_where_they_say() -> None:
    names = [name for name, _ in collective_error.BANDS]
    sizes = (1, 2**15 - 1, 2**15, 2**20 - 1, 2**20, 2**26 - 1, 2**26, 2**40)
    assert [collective_error.band_of(size) for size in sizes] == [names[k // 2] for k in range(8)]


def test_series_are_split_by_the_checksum_of_their_name() -> None:
    """CRC-32 of "123456789" is CBF43926 (ITU-T V.42's check value): even."""
    assert fitted_on("123456789")
    assert sum(fitted_on(f"series {k}") for k in range(1000)) == pytest.approx(500, abs=60)


def test_an_interval_grows_with_latency_and_between_nodes() -> None:
    """Logarithms add in quadrature: 2 by nature, 3 by latency inside a node and 4 by that between
    nodes, 5 between them anyway, 7 where no machine with such links was measured, 8 over TCP,
    measured or not."""
    found = _learned(any=2.0, latency=3.0, passage=4.0, nodes=5.0, unmeasured=7.0, sockets=8.0)
    found["machines.roce"] = _constant(1.0)
    assert collective_error.interval("roce", 0.0, False, found) == pytest.approx((0.5, 2.0))
    half = math.exp(math.hypot(math.log(2.0), 0.5 * math.log(3.0)))
    assert collective_error.interval("roce", 0.5, False, found) == pytest.approx((1 / half, half))
    all_three = math.exp(math.hypot(math.log(2.0), math.log(4.0), math.log(5.0)))
    ends = collective_error.interval("roce", 1.0, True, found)
    assert ends == pytest.approx((1 / all_three, all_three))
    new = math.exp(math.hypot(math.log(2.0), math.log(7.0)))
    assert collective_error.interval("smoke", 0.0, False, found)[1] == pytest.approx(new)
    over_tcp = math.exp(math.hypot(math.log(2.0), math.log(8.0)))
    found["machines.gvnic"] = _constant(1.0)
    for kind in ("ipoib", "gvnic", "tcpx"):
        assert collective_error.interval(kind, 0.0, False, found)[1] == pytest.approx(over_tcp)


def test_an_interval_holds_its_prediction() -> None:
    for latency, apart in ((0.0, False), (1.0, False), (0.3, True)):
        low, high = collective_error.interval("nvswitch", latency, apart)
        assert 0.0 < low < 1.0 < high


# -- what people see ------------------------------------------------------------------------------


def test_the_table_shows_error_bias_coverage_and_refusals(write: Write) -> None:
    from rich.console import Console

    rows = [*_own(1.1), _row(collective="gather"), _row(fabric="[red]x\x1b[31m")]
    out = io.StringIO()
    print_validation(validated_collectives(write(rows)), Console(file=out, width=140), None)
    text = out.getvalue()
    for words in ("9.1 %", "-0.10", "nvlink_nvswitch", ">= 64 MiB", "gather"):
        assert words in text
    assert "\x1b" not in text
    assert "[red]x" in text


def test_the_picture_has_a_point_for_every_scored_row(write: Write, tmp_path: Path) -> None:
    rows = [*_own(), *_own(fabric="ib", nodes=2, ranks=16), _row(pathological=1)]
    outcomes = validated_collectives(write(rows)).outcomes
    (axes,) = make_figure(outcomes).axes
    drawn = [line for line in axes.lines if str(line.get_gid()).startswith("fabric")]
    assert [len(line.get_xdata()) for line in drawn] == [len(SIZES), len(SIZES)]
    files = [(tmp_path / f"{k}.png", tmp_path / f"{k}.svg") for k in range(2)]
    for png, svg in files:
        draw(lambda: make_figure(outcomes), png, svg)
    assert files[0][0].read_bytes()[:4] == b"\x89PNG"
    assert files[0][1].read_bytes() == files[1][1].read_bytes()


def test_a_table_without_any_prediction_has_a_picture_too(write: Write) -> None:
    outcomes = validated_collectives(write([_row(collective="gather")])).outcomes
    assert make_figure(outcomes).axes[0].texts


# -- published timings ----------------------------------------------------------------------------

SAMPLE = Path(__file__).parent / "data" / "collectives" / "sample.csv"


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machines and intervals that ship."""
    monkeypatch.undo()


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(("step", "most"), [(2, 0.04), (4, 0.06)])
def test_published_curves_are_met_between_their_own_sizes(step: int, most: float) -> None:
    overall = validate_collectives(SAMPLE, calibrate=f"every:{step}")["overall"]
    assert overall["refused"] == 0
    assert overall["median_error"] < most
    assert overall["median_error"] < overall["baselines"]["log_log"]["median_error"]


@pytest.mark.usefixtures("real")
def test_published_curves_are_predicted_where_their_library_is_modelled() -> None:
    document = validate_collectives(SAMPLE)
    assert document["status"] == {"predicted": 117}
    overall = document["overall"]
    assert overall["median_error"] < overall["baselines"]["nccl_bare"]["median_error"]
    assert overall["median_error"] < overall["baselines"]["alpha_beta"]["median_error"]
