"""Measurements in, calibration out, and scenarios that use it.

What the samples in tests/data/calibration hold was computed from the files themselves, by hand or
by other programs than the readers (see SOURCES.md there).
"""

from __future__ import annotations

import gzip
import json
import math
import random
import re
import shlex
import statistics
import sys
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsim import cli
from dpsim.backends.curves import MeasuredCurve, bus_factor
from dpsim.backends.curves import file as calibrated
from dpsim.cases.case import Case
from dpsim.cases.coverage import AWAY, SMALLEST, collectives, network_range
from dpsim.core.record import Refused
from dpsim.core.yamlfile import FileRefused
from dpsim.describe import scenario
from dpsim.measurements.calibration.fitting import calibration_of, fit_line
from dpsim.measurements.calibration.gathering import gather, save
from dpsim.measurements.findings import Curve, Findings, StepTime, merged
from dpsim.measurements.readers import MAX_RATIO, Reader, read_any, readers
from dpsim.play.measured import MeasuredCosts
from dpsim.predict.prediction import Prediction, predict
from dpsim.predict.uncertainty import NETWORK_PRIOR
from tests.gloo_group import leave

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(__file__).resolve().parent / "data" / "calibration"
H100 = "new-layout-h100-8gpu-allreduce-nccl-tests-extra-header.txt"
GKE = "new-layout-gke-v100-4node-repeat.out"

# -- nccl-tests --------------------------------------------------------------------------------

#: file -> operation, ranks, nodes, rows of the table, last size [B], last bus bandwidths out of
#: place and in place [GB/s] as printed
TABLES: dict[str, tuple[str, int, int | None, int, float, float, float]] = {
    "new-layout-gh200-8gpu-allreduce-slow-network.txt": (
        "all_reduce", 8, 2, 25, 134217728, 5.43, 5.41,
    ),
    "new-layout-gh200-8gpu-allreduce-starting-line.txt": (
        "all_reduce", 8, 2, 25, 134217728, 122.57, 123.11,
    ),
    H100: ("all_reduce", 8, 1, 32, 17179869184, 479.90, 479.99),
    "new-layout-mpi-tagged-p5-elided-rows.txt": (
        "all_reduce", 16, None, 7, 2147483648, 437.79, 437.89,
    ),
    "new-layout-srun-label-p4de-2node-allreduce.txt": (
        "all_reduce", 16, None, 29, 2147483648, 78.33, 78.33,
    ),
    "new-layout-srun-label-p5-2node-allreduce.txt": (
        "all_reduce", 16, None, 32, 17179869184, 487.09, 487.26,
    ),
    "old-layout-a100-8gpu-allreduce.log": (
        "all_reduce", 8, 1, 34, 8589934592, 235.26, 235.03,
    ),
    "old-layout-a100-8gpu-alltoall.log": (
        "all_to_all", 8, 1, 34, 8589934592, 224.31, 226.16,
    ),
    "old-layout-a100-8gpu-reduce-root-column.log": (
        "reduce", 8, 1, 34, 8589934592, 228.38, 228.83,
    ),
    "old-layout-mpi-tagged-a100-128gpu-allreduce.log": (
        "all_reduce", 128, 16, 23, 4294967296, 122.05, 122.07,
    ),
    "old-layout-mpi-tagged-a100-16gpu-allreduce.log": (
        "all_reduce", 16, 2, 25, 17179869184, 127.95, 128.50,
    ),
    "old-layout-mpi-tagged-efa-16gpu-interleaved-debug.txt": (
        "all_reduce", 16, 2, 30, 4294967296, 43.81, 43.72,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_every_layout_of_nccl_tests_is_read(name: str) -> None:
    operation, ranks, nodes, rows, size, out_of_place, in_place = TABLES[name]
    found = read_any(DATA / name)
    (curve,) = found.curves
    assert (curve.operation, curve.ranks, curve.nodes) == (operation, ranks, nodes)
    assert found.notes == (f"nccl-tests: 1 table, {rows} rows",)
    last, seconds, spread = curve.points[-1]
    assert last == size
    taken, other = (
        (in_place, out_of_place) if operation == "all_reduce" else (out_of_place, in_place)
    )
    moved = size * bus_factor(operation, ranks) / 1e9
    assert moved / seconds == pytest.approx(taken, abs=0.006, rel=3e-4)
    # the spread is the standard deviation of the row's two times
    others = [moved / (seconds + sign * math.sqrt(2) * spread) for sign in (1, -1)]
    assert min(abs(o - other) for o in others) < 0.006 + 3e-4 * other


@pytest.mark.parametrize("name", [n for n in TABLES if "tagged" not in n and "srun" not in n])
@pytest.mark.parametrize("cell", ["size", "count", "type", "time", "algbw", "busbw"])
def test_a_cell_that_contradicts_its_row_is_refused_by_line(
    name: str, cell: str, tmp_path: Path
) -> None:
    """size = count x width, algbw = size / time, busbw = factor x algbw, as far as printed."""
    lines = (DATA / name).read_text("utf-8").splitlines()
    header = next(line for line in lines if line.lstrip("# ").startswith("size "))
    columns = header.lstrip("# ").split()
    number, cells = next(
        (number, line.split()) for number, line in enumerate(lines)
        if re.search(r"\b(10485|33554|167772|10737418)\d+ +\d+ +float ", line)
    )  # fmt: skip
    kind = cells.index("float")
    k = {"size": kind - 2, "count": kind - 1, "type": kind}.get(cell, columns.index(cell))
    k -= len(columns) if cell in ("time", "algbw", "busbw") else 0
    other = "half" if cell == "type" else str(float(cells[k]) * 2).removesuffix(".0")
    lines[number] = " ".join([*cells[:k], other, *cells[k:][1:]])
    (tmp_path / name).write_text("\n".join(lines))
    with pytest.raises(Refused, match=rf"line ({number + 1}|{number + 2}): "):
        gather([tmp_path / name])


def test_sizes_of_zero_bytes_are_no_points(tmp_path: Path) -> None:
    text = (DATA / "old-layout-a100-8gpu-allreduce.log").read_text()
    path = tmp_path / "log.txt"
    path.write_text(text.replace("nGpus 8", "nGpus 1"))
    curve = read_any(path).curves[0]
    assert len(curve.points) == 32  # of 34 rows; the first two move nothing
    assert min(size for size, _, _ in curve.points) == 4


@pytest.mark.parametrize(
    ("name", "last", "left"),
    [("allreduce", 64 << 10, 15), ("reduce-root-column", 64 << 10, 15), ("alltoall", 2 << 20, 17)],
)
def test_rows_that_a_thread_takes_to_issue_to_its_gpus_say_nothing_of_links(
    name: str, last: int, left: int
) -> None:
    """One thread launched for eight A100: 34 us whatever the size, and 86 of eight sends each."""
    found = read_any(DATA / f"old-layout-a100-8gpu-{name}.log")
    (curve,) = found.curves
    assert min(size for size, _, _ in curve.points) == 2 * last
    assert f"one thread issues to 8 GPUs (nGpus 8): {left} rows take" in str(found.warnings)
    assert f"up to {last:,} bytes, whatever the links" in str(found.warnings)


def test_threads_that_issue_to_one_gpu_keep_all_rows() -> None:
    name = "old-layout-mpi-tagged-a100-16gpu-allreduce.log"
    assert "nGpus" not in str(read_any(DATA / name).warnings)


def test_every_table_of_a_log_is_read_and_repetitions_merge_by_median() -> None:
    found = read_any(DATA / GKE)
    assert [len(curve.points) for curve in found.curves] == [28] * 5
    out_of_place = (0.73, 0.70, 0.74, 0.69, 0.71)  # GB/s at 1 GiB, by run
    for curve, bus in zip(found.curves, out_of_place, strict=True):
        assert (curve.ranks, curve.nodes) == (4, 4)
        size, seconds, spread = curve.points[-1]
        ends = [size * 1.5 / 1e9 / (seconds + sign * math.sqrt(2) * spread) for sign in (1, -1)]
        assert min(abs(end - bus) for end in ends) < 0.006
    (one,) = calibration_of([found], []).curves
    times = [curve.points[-1][1] for curve in found.curves]
    assert one.points[-1][1] == statistics.median(times)
    assert one.points[-1][2] == pytest.approx(statistics.stdev(times))


def test_files_whose_steps_are_far_apart_are_pooled_with_a_word(tmp_path: Path) -> None:
    """Eight steps of 0.3 s and eight of 0.9 s of as many ranks, of which nothing tells why."""
    for name, seconds in (("a", 0.3), ("b", 0.9), ("c", 0.31)):
        (tmp_path / f"{name}.csv").write_text("\n".join(["step_time_s", *[str(seconds)] * 8]))
    far = calibration_of([read_any(tmp_path / "a.csv"), read_any(tmp_path / "b.csv")], [])
    assert any("a.csv and b.csv: steps differ by 3 times" in said for said in far.warnings)
    near = calibration_of([read_any(tmp_path / "a.csv"), read_any(tmp_path / "c.csv")], [])
    assert not any("steps differ" in said for said in near.warnings)


def test_one_rank_measures_nothing() -> None:
    found = read_any(DATA / "old-layout-a100-1gpu-allreduce.log")
    assert not found.curves
    with pytest.raises(Refused, match="1 rank moves nothing"):
        calibration_of([found], [])


def test_an_outlier_among_the_two_times_of_a_row_is_said_and_not_taken() -> None:
    found = read_any(DATA / H100)
    assert {p[0]: p[1] for p in found.curves[0].points}[32] == pytest.approx(13.52e-6)
    assert any("68.14 us" in warning for warning in found.warnings)


def test_rows_that_a_document_left_out_are_said() -> None:
    said = " ".join(read_any(DATA / "new-layout-mpi-tagged-p5-elided-rows.txt").warnings)
    assert "rows were left out" in said
    assert "52.9753 GB/s is not that of the rows" in said


def test_a_tag_in_the_middle_of_a_line_is_no_other_node() -> None:
    name = "old-layout-mpi-tagged-a100-128gpu-allreduce.log"
    assert "node-[1,0]<stdout>:00000C" in (DATA / name).read_text(encoding="utf-8")
    assert read_any(DATA / name).curves[0].nodes == 16


def test_without_a_list_of_ranks_the_bandwidths_say_how_many() -> None:
    found = read_any(DATA / "new-layout-srun-label-p5-2node-allreduce.txt")
    assert found.curves[0].ranks == 16  # bus/algorithm = 1.875 = 2 * 15/16
    assert any("no list of ranks" in warning for warning in found.warnings)
    assert found.told(nodes=2).curves[0].nodes == 2
    with pytest.raises(Refused, match="says ranks 16, not 8"):
        found.told(ranks=8)


def test_two_networks_are_not_pooled() -> None:
    pair = [
        DATA / f"new-layout-gh200-8gpu-allreduce-{k}.txt" for k in ("slow-network", "starting-line")
    ]
    with pytest.raises(Refused, match="did not measure the same network"):
        gather(pair)


def row(size: int, seconds: float, n: int, *, factor: Callable[[int], float]) -> str:
    us, algorithm = seconds * 1e6, size / seconds / 1e9
    bus = algorithm * factor(n)
    cells = f"{us:9.2f} {algorithm:.2f} {bus:.2f} 0"
    return f"{size} {size // 4} float sum -1 {cells} {cells}"


HEADER = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong"


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 200), st.floats(5.0, 400.0))
def test_the_inferred_rank_count_is_right_or_none(n: int, bandwidth: float) -> None:
    """Printed bandwidths have two decimals; a count is inferred only where they leave no choice."""
    seconds = 2**33 / (bandwidth * 1e9)
    line = row(2**33, seconds, n, factor=lambda n: 2 * (n - 1) / n)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "all_reduce.txt"
        path.write_text(f"{HEADER}\n{line}\n", encoding="utf-8")
        assert read_any(path).curves[0].ranks in (n, None)


def test_a_table_that_contradicts_its_list_of_ranks_needs_to_be_told_them(tmp_path: Path) -> None:
    ranks = "\n".join(
        f"#  Rank  {k} Group  0 Pid {k} on  host device  {k} [0000:19:00] NVIDIA H100"
        for k in range(4)
    )
    line = row(2**30, 0.005, 8, factor=lambda n: 2 * (n - 1) / n)
    path = tmp_path / "x.txt"
    path.write_text(f"# all_reduce_perf\n{ranks}\n{HEADER}\n{line}\n", encoding="utf-8")
    with pytest.raises(Refused, match="lists 4 ranks, but its bus bandwidth is that of 8"):
        gather([path])
    with pytest.raises(Refused, match="its bus bandwidth is that of 8 ranks, not 4"):
        gather([path], ranks=4)
    (curve,) = gather([path], ranks=8, nodes=1).calibration.curves
    assert (curve.ranks, curve.nodes) == (8, 1)


def test_sends_of_all_ranks_at_once_are_left_out(tmp_path: Path) -> None:
    """They do not tell what one send takes between two stages, which is what a step has."""
    path = tmp_path / "x.txt"
    line = row(2**30, 0.005, 8, factor=lambda n: 1).replace(" sum ", " none ")
    path.write_text(f"# sendrecv_perf\n{HEADER}\n{line}\n", encoding="utf-8")
    (curve,) = read_any(path).told(ranks=8).curves
    assert (curve.operation, curve.ranks) == ("send", 8)
    with pytest.raises(Refused, match="sendrecv times all ranks at once"):
        gather([path], ranks=8)


# -- OSU, Kineto, DDP logging, CSV -------------------------------------------------------------


def test_osu_tables_are_read_and_need_the_rank_count() -> None:
    found = read_any(DATA / "osu-allreduce-gke-cpu-4node.out")
    assert len(found.curves) == 5
    first = found.curves[0]
    assert first.points[0][:2] == (4, pytest.approx(118.08e-6))
    assert first.points[-1][:2] == (1048576, pytest.approx(1937.90e-6))
    with pytest.raises(Refused, match="--ranks"):
        calibration_of([found], [])
    (curve,) = calibration_of([found.told(ranks=352, nodes=4)], []).curves
    assert (curve.ranks, curve.nodes, len(curve.points)) == (352, 4, 19)


def test_a_test_between_two_processes_is_no_collective() -> None:
    with pytest.raises(Refused, match="Bandwidth"):
        read_any(DATA / "osu-bw-gke-cpu-4node.out")


def test_kineto_resnet_ddp() -> None:
    found = read_any(DATA / "hta-nccl_data.json.gz")
    assert found.notes[0] == "Kineto: 2700 kernels, 21 NCCL"
    assert {"Kineto: 15 all_reduce kernels", "Kineto: 6 broadcast kernels"} <= set(found.notes)
    assert found.device == "NVIDIA A100-PG509-200"
    (steps,) = found.steps
    assert steps.ranks == 2
    assert [round(s * 1e3) for s in steps.samples] == [222, 220, 225]
    elements = (2049000, 7875584, 6563840, 6637568, 2431040)
    for step in range(3):
        buckets = [b for b in found.buckets if b.step == step]
        assert [b.index for b in buckets] == list(range(5))
        assert [b.bytes for b in buckets] == [4 * n for n in elements]
        assert all(b.ready <= b.start < b.end for b in buckets)
    assert sum(elements) == 25_557_032  # ResNet-50's parameters
    assert not found.curves  # kernels wait for the other rank
    assert any("waiting for other ranks" in warning for warning in found.warnings)


def test_kineto_times_of_operators_are_those_of_the_kernels() -> None:
    """All kernels that are not NCCL's are given to an operator, forward or backward, once."""
    with gzip.open(DATA / "hta-nccl_data.json.gz") as file:
        events = json.load(file)["traceEvents"]
    kernels = [e for e in events if e.get("cat") == "kernel" and "nccl" not in e["name"].lower()]
    found = read_any(DATA / "hta-nccl_data.json.gz")
    total = sum(layer.forward + layer.backward for layer in found.layers)
    assert total == pytest.approx(sum(e["dur"] for e in kernels) * 1e-6 / 3, rel=1e-9)
    by_name = {layer.name: layer for layer in found.layers}
    assert by_name["aten::conv2d"].backward > by_name["aten::conv2d"].forward > 0
    assert by_name["aten::batch_norm"].backward > 0  # not lost to the counter's add_ beside it


def test_kineto_overlap_is_that_of_a_plain_count() -> None:
    """Against a count over a fine grid of times."""
    with gzip.open(DATA / "hta-nccl_data.json.gz") as file:
        kernels = [e for e in json.load(file)["traceEvents"] if e.get("cat") == "kernel"]
    zero = min(e["ts"] for e in kernels)
    wire = np.zeros(1_000_000, bool)
    busy = np.zeros_like(wire)
    for e in kernels:
        mask = wire if "nccl" in e["name"].lower() else busy
        mask[int(e["ts"] - zero) : int(e["ts"] - zero + e["dur"])] = True
    expected = (wire & busy).sum() / wire.sum()
    assert read_any(DATA / "hta-nccl_data.json.gz").overlap == pytest.approx(expected, abs=0.01)


def test_kineto_without_collectives() -> None:
    found = read_any(DATA / "hta-mi250-minitoy.kineto.json.gz")
    assert found.notes[0] == "Kineto: 14 kernels, 0 NCCL"
    assert found.device == "AMD Radeon Graphics"
    assert not found.buckets
    assert found.overlap is None
    assert len(found.steps[0].samples) == 1  # the other step ran nothing
    assert any("steps without a kernel" in warning for warning in found.warnings)


@pytest.mark.parametrize(("rank", "kernels"), [(0, 1154), (1, 1104)])
def test_kineto_of_the_older_format(rank: int, kernels: int) -> None:
    """Sizes come from the annotations' inputs; kernels are all called SendRecv."""
    found = read_any(DATA / f"hta-sampled_rank-{rank}.json.gz")
    assert found.notes[0] == f"Kineto: {kernels} kernels, 10 NCCL"
    assert found.steps[0].ranks == 128
    assert len(found.steps[0].samples) == 2
    assert found.buckets[0].bytes == 4 * 19618307
    assert any("one rank of 128" in warning for warning in found.warnings)


def test_a_kernel_without_annotations_is_known_by_its_name(tmp_path: Path) -> None:
    event = kernel(name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    path = tmp_path / "t.json"
    path.write_bytes(kineto(event, kernel(ts=5.0)))
    found = read_any(path)
    assert "Kineto: 1 all_reduce kernels" in found.notes
    assert "1 collectives don't say their size and are left out" in found.warnings


def test_times_of_a_log_collector_are_no_part_of_the_table(tmp_path: Path) -> None:
    text = (DATA / H100).read_text(encoding="utf-8")
    path = tmp_path / "pod.log"
    stamped = (f"2024-05-01T12:00:00.123456789Z {line}" for line in text.splitlines())
    path.write_text("\n".join(stamped) + "\n", encoding="utf-8")
    assert read_any(path).curves == read_any(DATA / H100).curves


def test_execution_traces_are_refused_by_name(tmp_path: Path) -> None:
    archive = DATA / "chakra-1.0.2-chakra.0.0.4.tgz"
    with pytest.raises(Refused, match="tar archive"):
        read_any(archive)
    with tarfile.open(archive) as tar:
        name = next(n for n in tar.getnames() if n.endswith(".json") and "._" not in n)
        member = tar.extractfile(name)
        assert member is not None
        (tmp_path / "trace.json").write_bytes(member.read())
    with pytest.raises(Refused, match=r"execution trace \(schema 1\.0\.2-chakra\.0\.0\.4\)"):
        read_any(tmp_path / "trace.json")


def test_records_of_ddp_steps_are_pointed_to_the_model(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text('{"schema": "dpsim-ddp-record", "schema_version": 1}', encoding="utf-8")
    with pytest.raises(Refused, match=r"model: \{record: r\.json\}"):
        read_any(path)


def test_what_torch_ddp_logs_about_itself(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    distributed.init_process_group("gloo", rank=0, world_size=1, store=distributed.HashStore())
    try:
        model = DistributedDataParallel(torch.nn.Linear(64, 64))
        model._set_ddp_runtime_logging_sample_rate(1)
        for _ in range(3):
            model(torch.randn(8, 64)).sum().backward()
        data = model._get_ddp_logging_data()
    finally:
        leave()
    path = tmp_path / "ddp.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    found = read_any(path)
    (layer,) = found.layers
    assert layer.name == "Linear"
    assert layer.forward == data["avg_forward_compute_time"] * 1e-9
    assert layer.backward == data["avg_backward_compute_time"] * 1e-9
    assert "buckets of 16640 bytes" in found.notes[0]  # 64 * 64 + 64 parameters of 4 bytes


@pytest.mark.parametrize(
    ("text", "ranks", "samples"),
    [
        ("step,seconds\n0,0.5\n1,0.25\n", None, (0.5, 0.25)),
        ("iteration;time_ms\n0;500\n1;250\n", None, (0.5, 0.25)),
        ("Iter\tStep Time (us)\n0\t500000\n1\t250000\n", None, (0.5, 0.25)),
        ("ranks,step_time_s,source\n4,0.5,x\n4,0.25,y\n", 4, (0.5, 0.25)),
        ("step,rank,seconds\n0,0,0.5\n0,1,0.4\n1,0,0.2\n1,1,0.25\n", 2, (0.5, 0.25)),
        ("step,world_size,duration_ns\n0,8,500000000\n1,8,250000000\n", 8, (0.5, 0.25)),
    ],
)
def test_variants_of_step_times(
    text: str, ranks: int | None, samples: tuple[float, ...], tmp_path: Path
) -> None:
    path = tmp_path / "steps.csv"
    path.write_text(text, encoding="utf-8")
    found = read_any(path)
    assert found.steps == (StepTime(ranks, None, samples),)
    assert found.notes[0].startswith("CSV: took ")


def test_what_a_csv_leaves_open_is_said(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.write_text("step,rank,seconds,loss\n0,0,0.5,1\n0,2,0.4,1\n1,0,1,1\n", encoding="utf-8")
    found = read_any(path)
    assert found.steps == (StepTime(3, None, (0.5,)),)
    assert found.notes[1] == "CSV: left out loss"
    assert "only 2 of 3 ranks" in found.warnings[0]
    assert "1 steps lack a rank" in found.warnings[1]


# -- curves and fits ---------------------------------------------------------------------------

POINTS = ((1024.0, 2e-5, 0.0), (4096.0, 3e-5, 3e-6), (16384.0, 2.5e-5, 0.0), (65536.0, 9e-5, 0.0))


def curve_of(
    points: tuple[tuple[float, float, float], ...] = POINTS, **other: Any
) -> MeasuredCurve:
    return MeasuredCurve(operation="all_reduce", ranks=8, nodes=1, points=points, **other)


def test_a_curve_goes_through_its_points() -> None:
    """Also where it is not monotone."""
    for size, seconds, spread in POINTS:
        assert curve_of().at(size).seconds == seconds
        assert curve_of().at(size).beyond == 0
        assert curve_of().at(size).spread >= spread / seconds


def test_between_two_points_it_is_a_power_of_the_size() -> None:
    assert curve_of().at(2048).seconds == pytest.approx(math.sqrt(2e-5 * 3e-5), rel=1e-14)
    assert curve_of().at(8192).seconds == pytest.approx(math.sqrt(3e-5 * 2.5e-5), rel=1e-14)
    assert curve_of().at(2048).spread == pytest.approx(0.1)  # the worse of its two ends


def test_below_it_keeps_the_latency_and_above_it_goes_on_as_a_line() -> None:
    below, above = curve_of().at(128), curve_of().at(131072)
    assert (below.seconds, below.beyond) == (2e-5, 3.0)
    slope = (9e-5 - 2.5e-5) / (65536 - 16384)
    assert above.seconds == pytest.approx(9e-5 + slope * 65536, rel=1e-14)
    assert above.beyond == 1.0


def test_a_curve_that_falls_at_its_end_does_not_fall_below_zero() -> None:
    falling = curve_of(((1024.0, 3e-5, 0.0), (2048.0, 2e-5, 0.0)))
    assert falling.at(4096).seconds == pytest.approx(4e-5)  # in proportion to the size
    assert curve_of(((1024.0, 3e-5, 0.0),)).at(2048).seconds == pytest.approx(6e-5)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 10**12), st.floats(1e-7, 1e3), st.floats(0, 1)),
        min_size=1, max_size=20,
    ),
    st.floats(1, 1e13),
)  # fmt: skip
def test_every_reading_is_a_time(points: list[tuple[int, float, float]], size: float) -> None:
    curve = curve_of(merged((float(s), t, e) for s, t, e in points))
    reading = curve.at(size)
    assert math.isfinite(reading.seconds)
    assert reading.seconds > 0
    if reading.beyond == 0:
        times = [t for _, t, _ in curve.points]
        assert min(times) * (1 - 1e-12) <= reading.seconds <= max(times) * (1 + 1e-12)


def test_repetitions_merge_by_median() -> None:
    points = ((8.0, 3.0, 0.0), (4.0, 1.0, 0.5), (8.0, 9.0, 0.0), (8.0, 4.0, 0.0))
    assert merged(points) == ((4.0, 1.0, 0.5), (8.0, 4.0, statistics.stdev((3.0, 9.0, 4.0))))


@settings(deadline=None, max_examples=15)
@given(st.floats(1e-6, 1e-3), st.floats(1e8, 1e12))
def test_the_fit_finds_latency_and_bandwidth_of_a_line(latency: float, bandwidth: float) -> None:
    sizes = [2.0**k for k in range(3, 34)]
    found = fit_line([(s, latency + s / bandwidth, 0.0) for s in sizes])
    assert found is not None
    assert found[0] == pytest.approx(latency, rel=1e-4)
    assert found[2] == pytest.approx(bandwidth, rel=1e-4)
    assert found[1] <= 1e-4 * latency
    assert found[3] <= 1e-4 * bandwidth


def test_the_standard_errors_are_those_of_repeated_measurements() -> None:
    """Fits to 100 noisy measurements of one line scatter as much as one of them says."""
    stream = random.Random(3)

    def measure() -> list[tuple[float, float, float]]:
        times = [(2.0**k, 2e-5 + 2.0**k / 1e10) for k in range(3, 30)]
        return [(s, t * stream.gauss(1, 0.05), 0.0) for s, t in times]

    fits = [fit for _ in range(100) if (fit := fit_line(measure()))]
    for value, error in ((0, 1), (2, 3)):
        scatter = statistics.stdev(fit[value] for fit in fits)
        assert statistics.median(fit[error] for fit in fits) == pytest.approx(scatter, rel=0.35)


def test_errors_of_a_fit_are_the_same_every_time() -> None:
    """The bootstrap has its own seed, and the sample's standard deviation (n - 1)."""
    sizes = [(2.0**k, 1.05 if k % 2 else 0.95) for k in range(3, 30)]
    found = fit_line([(s, (2e-5 + s / 1e10) * noise, 0.0) for s, noise in sizes])
    assert found == pytest.approx((1.9932e-05, 2.59347e-07, 1.00284e10, 1.56246e8), rel=1e-5)


def test_too_few_or_falling_points_make_no_line() -> None:
    assert fit_line(POINTS[:2]) is None
    assert fit_line([(1e6, 3.0, 0.0), (2e6, 2.0, 0.0), (4e6, 1e-9, 0.0)]) is None
    assert fit_line([(2.0**k, 1.0, 0.0) for k in range(9)]) is None


def test_the_jitter_is_the_variation_of_steps_with_its_error() -> None:
    stream = random.Random(5)
    samples = tuple(stream.gauss(0.1, 0.002) for _ in range(400))
    (steps,) = calibration_of([Findings("s.csv", steps=(StepTime(1, None, samples),))], []).steps
    assert steps.jitter == pytest.approx(0.02, rel=0.1)
    assert steps.jitter_error == pytest.approx(0.02 / math.sqrt(2 * 400), rel=0.25)
    assert steps.n == 400


def test_slow_first_steps_are_warm_up() -> None:
    steps = StepTime(1, None, (5.0, 1.9, *[1.0] * 10))
    found = calibration_of([Findings("s.csv", steps=(steps,))], [])
    assert found.steps[0].n == 10
    assert found.steps[0].jitter == 0
    assert found.warnings == ("s.csv: the first 2 steps are left out as warm-up",)


def test_a_step_far_from_all_others_is_left_out_and_named() -> None:
    steps = StepTime(1, None, (*[0.005] * 6, 1e9))
    found = calibration_of([Findings("s.csv", steps=(steps,))], [])
    assert (found.steps[0].n, found.steps[0].mean) == (6, pytest.approx(0.005))
    assert found.steps[0].jitter == 0
    assert len(found.warnings) == 1
    assert "s.csv: steps of 1e+09 s are left out" in found.warnings[0]


@pytest.mark.parametrize("samples", [(0.01, 1.0), (*[0.01] * 5, *[1.0] * 4)])
def test_steps_that_are_of_two_kinds_count_all_and_are_told(samples: tuple[float, ...]) -> None:
    found = calibration_of([Findings("s.csv", steps=(StepTime(1, None, samples),))], [])
    assert found.steps[0].n == len(samples)
    assert "count too" in found.warnings[0]


# -- the file ----------------------------------------------------------------------------------


def everything() -> calibrated.Calibration:
    files = [DATA / H100, DATA / GKE, DATA / "hta-mi250-minitoy.kineto.json.gz"]
    return gather(files, "t").calibration


def test_a_calibration_reads_back_equal(tmp_path: Path) -> None:
    calibration = everything()
    save(calibration, tmp_path / "c.yaml")
    assert calibrated.load(tmp_path / "c.yaml") == calibration
    assert [source.file for source in calibration.made_from][:2] == [H100, GKE]
    assert str(tmp_path) not in (tmp_path / "c.yaml").read_text(encoding="utf-8")
    assert [p.name for p in tmp_path.iterdir()] == ["c.yaml"]


def test_the_bundled_calibration_is_what_its_source_gives() -> None:
    bundled = calibrated.load(calibrated.folder() / "h100-8gpu.yaml")
    made = gather([DATA / H100], bundled.title).calibration
    assert replace(made, curves=()) == replace(bundled, curves=())
    assert made.curves[0].points == bundled.curves[0].points
    assert made.curves[0].bandwidth == pytest.approx(bundled.curves[0].bandwidth, rel=1e-3)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema_version: 1", "schema_version: 2", "only version 1"),
        ("ranks: 8", "ranks: 1", "one rank moves nothing"),
        ("ranks: 8", "ranks: eight", "not a whole number"),
        ("nodes: 1", "nodes: 9", "9 nodes for 8 ranks"),
        ("- 8 B, ", "- 16 B, ", "does not come after"),
        ("- 8 B, ", "- 8 B, 1 us, 0 s, ", "write size, time, spread"),
        ("- 8 B, ", "- 0 B, ", "no positive size"),
        ("- 8 B, 1", "- 8 B, -1", "no positive size"),
        ("- 8 B, ", "- 8, ", "has no unit"),
        ("operation: all_reduce", "operation: 7", "where text is needed"),
        ("device:", "devise:", "did you mean 'device'"),
        ("1.63069e-05", "1.73069e-05", "is not as dpsim calibrate wrote it"),
        ("digest: ", "digest: 0", "is not as dpsim calibrate wrote it"),
        ("\ndigest: ", "\n# ", "write made_from: [] and no digest"),
    ],
)
def test_a_calibration_file_is_read_strictly(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    text = (calibrated.folder() / "h100-8gpu.yaml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "c.yaml").write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(FileRefused, match=r"^c\.yaml:\d+: ") as caught:
        calibrated.load(tmp_path / "c.yaml")
    assert message in str(caught.value)


# -- scenarios that use it ---------------------------------------------------------------------

SIZES = (26_000_000, 9_000_000, 3_000_000, 70_000)


def loaded(folder: Path, **changes: Any) -> scenario.Loaded:
    """A DDP of explicit layers on H100 servers, with the bundled curve of 8 ranks."""
    layers = [
        {"name": f"l{k}", "parameters": n, "forward": "1 ms", "backward": "2 ms"}
        for k, n in enumerate(SIZES)
    ]
    data: dict[str, Any] = {
        "model": {"dtype": "fp32", "layers": layers},
        "cluster": {"machine": "dgx-h100", "ranks": 8},
        "strategy": {"kind": "ddp", "torch": "2.13"},
        "optimizer": {"kind": "none"},
        "calibration": "h100-8gpu",
    }
    data |= changes
    return scenario.load({k: v for k, v in data.items() if v is not None}, folder, "test")


def reductions(prediction: Prediction) -> list[dict[str, Any]]:
    operations = prediction.explain()["points"][0]["operations"]
    return [op for op in operations if op["op"] == "all_reduce" and op["rank"] == 0]


@pytest.mark.parametrize("engine", ["event", "vectorised"])
def test_the_measured_group_takes_the_curve_itself(engine: str, tmp_path: Path) -> None:
    curve = calibrated.load(calibrated.folder() / "h100-8gpu.yaml").curves[0]
    found = reductions(predict(loaded(tmp_path, engine=engine)))
    assert len(found) > 2
    for op in found:
        took = op["end_s"] - op["start_s"]
        assert took == pytest.approx(curve.at(op["bytes"]).seconds, rel=1e-9)


@pytest.mark.parametrize(("machine", "said"), [("dgx-h100", False), ("dgx-a100", True)])
def test_a_curve_of_another_kind_of_device_is_told(
    machine: str, said: bool, tmp_path: Path
) -> None:
    found = predict(loaded(tmp_path, cluster={"machine": machine, "ranks": 8}))
    assert any("curves were measured on" in text for text in warnings(found)) == said


def test_both_engines_agree_with_measured_curves(tmp_path: Path) -> None:
    times = [predict(loaded(tmp_path, engine=e)).step_time_s for e in ("event", "vectorised")]
    assert times[0] == pytest.approx(times[1], rel=1e-9)
    assert times[0] != predict(loaded(tmp_path, calibration=None)).step_time_s


@pytest.mark.parametrize("ranks", [2, 4])
def test_another_rank_count_follows_the_models_ratio(ranks: int, tmp_path: Path) -> None:
    curve = calibrated.load(calibrated.folder() / "h100-8gpu.yaml").curves[0]
    costs = {}
    for n in (ranks, 8):
        plain = loaded(tmp_path, calibration=None, cluster={"machine": "dgx-h100", "ranks": n})
        costs[n] = Case(plain.points[0], tmp_path).costs
    case = Case(
        loaded(tmp_path, cluster={"machine": "dgx-h100", "ranks": ranks}).points[0], tmp_path
    )
    for size in (100.0, 3e4, 2.5e7, 1e9, 1e11):
        here, there = (
            costs[n].plan("all_reduce", tuple(range(n)), size).seconds for n in (ranks, 8)
        )
        expected = curve.at(size).seconds * here / there
        plan = case.costs.plan("all_reduce", tuple(range(ranks)), size)
        assert plan.seconds == pytest.approx(expected, rel=1e-12)


def test_several_nodes_take_no_curve_of_one_node(tmp_path: Path) -> None:
    changed = {"machine": "dgx-h100", "nodes": 2}
    measured = predict(loaded(tmp_path, cluster=changed))
    plain = predict(loaded(tmp_path, cluster=changed, calibration=None))
    assert measured.step_time_s == plain.step_time_s
    assert "calibration: no curve of all_reduce between nodes; modelled" in warnings(measured)
    assert "collectives (prior)" in measured.points[0]["interval_causes"]


def warnings(prediction: Prediction) -> list[str]:
    found: list[str] = prediction.document["warnings"]
    return found


def test_the_nearest_group_serves(tmp_path: Path) -> None:
    """Of curves over 2 and 4 nodes, 3 nodes take the nearer one by the ratio of counts."""
    line = [(2.0**k, 1e-5 + 2.0**k / 1e11, 0.0) for k in range(3, 34)]
    group = {16: 2, 32: 4}
    curves = [Curve("all_reduce", n, nodes, tuple(line)) for n, nodes in group.items()]
    save(calibration_of([Findings("x", tuple(curves))], []), tmp_path / "c.yaml")
    found = loaded(tmp_path, calibration="c.yaml", cluster={"machine": "dgx-h100", "nodes": 3})
    costs = Case(found.points[0], tmp_path).costs
    assert isinstance(costs, MeasuredCosts)
    served = costs.served("all_reduce", tuple(range(24)), 1e6)
    assert served is not None
    assert served.curve.ranks == 32  # 32/24 < 24/16
    assert served.away == pytest.approx(math.log2(32 / 24))


def test_links_and_traffic_stay_those_of_the_plan(tmp_path: Path) -> None:
    """Only times change, so bytes sent and links loaded are as before."""
    with_curve = Case(loaded(tmp_path).points[0], tmp_path).costs
    without = Case(loaded(tmp_path, calibration=None).points[0], tmp_path).costs
    world = tuple(range(8))
    a, b = (costs.plan("all_reduce", world, 1e6) for costs in (with_curve, without))
    assert (set(a.rates), a.sent, a.algorithm) == (set(b.rates), b.sent, b.algorithm)
    assert a.seconds != b.seconds


def test_the_interval_is_that_of_what_was_measured(tmp_path: Path) -> None:
    causes = [
        predict(loaded(tmp_path, cluster={"machine": "dgx-h100", "ranks": n})).points[0][
            "interval_causes"
        ]
        for n in (8, 4, 2)
    ]
    assert "collectives (measured)" in causes[0]
    assert all("collectives (partly measured)" in found for found in causes[1:])
    prior = predict(loaded(tmp_path, calibration=None)).points[0]["interval_causes"]
    high = [max(x for name in c if "collectives" in name for x in c[name]) for c in causes]
    assert 1.0 <= high[0] < prior["collectives (prior)"][1]


def test_the_range_grows_from_the_curve_to_the_prior(tmp_path: Path) -> None:
    ranges = []
    for ranks in (8, 4, 2):
        found = loaded(tmp_path, cluster={"machine": "dgx-h100", "ranks": ranks})
        ranges.append(network_range(Case(found.points[0], tmp_path), NETWORK_PRIOR)[1])
    assert ranges[0] == pytest.approx((1 - SMALLEST, 1 + SMALLEST), rel=1e-3)
    for near, far in pairwise(ranges):
        assert NETWORK_PRIOR[0] * (1 - 1e-9) <= far[0] <= near[0] * (1 + 1e-9)
        assert near[1] < far[1] <= NETWORK_PRIOR[1] * (1 + 1e-9)
    assert ranges[1][1] == pytest.approx((1 + SMALLEST) * math.exp(AWAY), rel=1e-3)


def test_a_rank_alone_asks_nothing_of_a_curve(tmp_path: Path) -> None:
    """DDP's all-reduces of one rank, and FSDP's gathers where each rank has a shard of its own."""
    alone = {"cluster": {"machine": "dgx-h100", "ranks": 1}}
    for changes in (alone, alone | {"strategy": {"kind": "fsdp", "shard": 1}}):
        found = loaded(tmp_path, **changes)
        assert list(collectives(Case(found.points[0], tmp_path))) == []
    assert list(collectives(Case(loaded(tmp_path).points[0], tmp_path)))


def test_sizes_outside_the_curve_are_said_and_widen_the_interval(tmp_path: Path) -> None:
    small = tuple(p for p in calibrated.find("h100-8gpu", tmp_path).curves[0].points if p[0] < 1e6)
    curve = Curve("all_reduce", 8, 1, small)
    save(calibration_of([Findings("x", (curve,))], []), tmp_path / "c.yaml")
    found = predict(loaded(tmp_path, calibration="c.yaml"))
    assert any("lies outside and is extrapolated" in text for text in warnings(found))
    assert "collectives (partly measured)" in found.points[0]["interval_causes"]


def test_a_measured_jitter_is_taken_only_where_none_is_given(tmp_path: Path) -> None:
    steps = StepTime(1, None, (1.0, 1.02, 0.98, 1.01, 0.99))
    save(calibration_of([Findings("x", steps=(steps,))], []), tmp_path / "c.yaml")
    jitter = statistics.stdev(steps.samples) / statistics.fmean(steps.samples)
    taken = loaded(tmp_path, calibration="c.yaml", variability={"steps": 3})
    assert taken.points[0].variability.jitter == pytest.approx(jitter)
    assert any("variability.jitter is 1.58%" in text for text in warnings(predict(taken)))
    own = loaded(tmp_path, calibration="c.yaml", variability={"jitter": 0, "steps": 3})
    assert own.points[0].variability.jitter == 0
    assert not any("jitter" in text for text in warnings(predict(own)))
    swept = loaded(
        tmp_path, calibration="c.yaml", variability={"steps": 3}, sweep={"variability.jitter": [0]}
    )
    assert swept.points[0].variability.jitter == 0


def test_without_a_machine_or_with_an_ideal_backend_curves_are_refused(tmp_path: Path) -> None:
    ideal = {"backend": "ideal", "latency": "0 s"}
    for cluster in ({"ranks": 8}, {"machine": "dgx-h100", "ranks": 8}):
        with pytest.raises(Refused, match="measured curves need a machine") as caught:
            loaded(tmp_path, cluster=cluster, collective=ideal)
        assert caught.value.path == ("calibration",)


@pytest.mark.parametrize("name", ["nowhere.yaml", "../c.yaml", "/etc/hostname", "a\0b"])
def test_a_calibration_lies_below_the_scenario(name: str, tmp_path: Path) -> None:
    with pytest.raises(Refused) as caught:
        loaded(tmp_path, calibration=name)
    assert caught.value.path == ("calibration",)


def test_changing_the_network_of_a_measured_curve_is_said(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "model: {dtype: fp32, layers: [{name: a, parameters: 9, forward: 0 s, backward: 1 ms}]}\n"
        "cluster: {machine: dgx-h100, ranks: 8}\nstrategy: {kind: ddp, torch: '2.13'}\n"
        "calibration: h100-8gpu\n",
        encoding="utf-8",
    )
    found = predict(scenario.read(tmp_path / "s.yaml", ["cluster.inter_node_bandwidth=1 GB/s"]))
    assert any("curves measured without --set cluster" in text for text in warnings(found))


# -- the command -------------------------------------------------------------------------------


def run(*words: object) -> int:
    """Exit code of `dpsim calibrate`."""
    return in_process("calibrate", *words)


def in_process(*words: object) -> int:
    old = sys.argv
    sys.argv = ["dpsim", *map(str, words)]
    try:
        return cli._run()
    finally:
        sys.argv = old


def test_the_command_prints_and_writes(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "sub" / "c.yaml"
    assert run(DATA / H100, DATA / "hta-nccl_data.json.gz", "-o", out) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "all_reduce 8 1 32 8 B … 17.18 GB 480 GB/s" in printed
    assert "15 buckets of gradients" in printed
    assert "warning:" in printed
    calibration = calibrated.load(out)
    assert calibration.curves[0].ranks == 8
    assert calibration.steps[0].n == 3


def test_json_is_one_document(capsys: Any) -> None:
    assert run(DATA / GKE, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    (curve,) = document["calibration"]["curves"]
    assert len(curve["points"]) == 28
    assert document["files"][0]["understood"] == ["nccl-tests: 5 tables, 140 rows"]


def test_what_a_file_does_not_say_is_told(tmp_path: Path, capsys: Any) -> None:
    file = DATA / "osu-allreduce-gke-cpu-4node.out"
    assert run(file) == 2
    assert "--ranks" in capsys.readouterr().err
    assert run(file, "--ranks", 352, "--nodes", 4, "-o", tmp_path / "c.yaml") == 0
    assert calibrated.load(tmp_path / "c.yaml").curves[0].nodes == 4


def test_nothing_is_written_where_something_is_refused(tmp_path: Path, capsys: Any) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text("no table\n", encoding="utf-8")
    assert run(DATA / H100, bad, "-o", tmp_path / "c.yaml") == 2
    assert run(DATA / H100, "-o", tmp_path) == 2
    assert run(DATA / H100, DATA / H100) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["bad.txt"]
    assert all(line.startswith("dpsim: ") for line in capsys.readouterr().err.splitlines())


def test_the_how_to_page_does_what_it_says(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    """Its commands run in order, on the files it names."""
    text = (ROOT / "docs" / "howto" / "calibrate.md").read_text(encoding="utf-8")
    for name, block in re.findall(r"```\w+\n# ([\w.-]+)\n(.*?)```", text, flags=re.DOTALL):
        (tmp_path / name).write_text(block, encoding="utf-8")
    for name, block in re.findall(r"\(`([\w.-]+)`\):\n\n```csv\n(.*?)```", text, flags=re.DOTALL):
        (tmp_path / name).write_text(block, encoding="utf-8")
    samples = {"all_reduce.txt": H100, "trace.json.gz": "hta-nccl_data.json.gz"}
    for name, sample in samples.items():
        (tmp_path / name).write_bytes((DATA / sample).read_bytes())
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)
    commands = [line[2:] for b in blocks for line in b.splitlines() if line.startswith("$ ")]
    assert len(commands) >= 3
    for command in commands:
        program, *words = shlex.split(command, comments=True)
        assert program == "dpsim"
        assert in_process(*words) == 0, (command, capsys.readouterr().err)


# -- what is wrong with a file -----------------------------------------------------------------

CELLS = "13.03 0.08 0.14 0"
GOOD = f"# all_reduce_perf\n{HEADER}\n"


def table(*rows: str) -> bytes:
    return (GOOD + "\n".join(rows) + "\n").encode()


def osu(*rows: str) -> bytes:
    head = "# Size  Avg Latency(us)  Min Latency(us)  Max Latency(us)"
    return "\n".join(("# OSU MPI Allreduce Latency Test v7.5", head, *rows, "")).encode()


def kineto(*events: dict[str, Any] | str, **more: Any) -> bytes:
    """A trace of `events`; numbers that are not finite are written as Python's json does."""
    return json.dumps({"schemaVersion": 1, "traceEvents": list(events), **more}).encode()


def kernel(**changes: Any) -> dict[str, Any]:
    event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1.0, "dur": 1.0, "pid": 0, "tid": 7}
    return event | changes


def packed(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


LINE = f"1024 256 float sum -1 {CELLS} {CELLS}"
TRACE = (DATA / "hta-mi250-minitoy.kineto.json.gz").read_bytes()
REFUSED: dict[str, tuple[str, bytes, str]] = {
    "empty": ("a.txt", b"", "is empty"),
    "text": ("a.txt", b"hello\n", "accepted:"),
    "binary": ("a.bin", bytes(range(256)) * 40, "accepted:"),
    "a picture": ("a.png", b"\x89PNG\r\n\x1a\n" + bytes(100), "accepted:"),
    "other JSON": ("a.json", b'{"a": 1}', "accepted:"),
    "a list": ("a.json", b"[1, 2]", "accepted:"),
    "a table with zero bytes": ("a.txt", table(LINE) + b"\0\0", "binary"),
    "a table that is not UTF-8": ("a.txt", table(LINE) + b"\xff\xfe", "UTF-8"),
    "a table without rows": ("a.txt", table(), "without any row"),
    "a program without a table": ("a.txt", b"$ ./all_reduce_perf -b 8\n", "no table"),
    "a time that is NaN": ("a.txt", table(LINE.replace("13.03", "nan")), "not a number"),
    "an infinite time": ("a.txt", table(LINE.replace("13.03", "inf")), "not a number"),
    "a negative time": ("a.txt", table(LINE.replace("13.03", "-1")), "no time"),
    "no time at all": ("a.txt", table(LINE.replace("13.03", "0.00")), "a time of 0 s"),
    "a time that is text": ("a.txt", table(LINE.replace("13.03", "fast")), "not a number"),
    "a size without ranks": ("a.txt", table(LINE), "--ranks"),
    "times in ms": (
        "a.txt", f"# all_reduce_perf\n{HEADER}\n# (B) (elements) (ms)\n{LINE}\n".encode(), "in us",
    ),
    "a wrong average": (
        "a.txt", table(LINE, "# Avg bus bandwidth : much"), "not a number",
    ),
    "ranks with a gap": (
        "a.txt",
        b"#  Rank  0 Pid 1 on h device  0 [0x00] X\n#  Rank  2 Pid 1 on h device  2 [0x00] X\n"
        + table(LINE),
        "lines are missing",
    ),
    "a program of other columns": (
        "a.txt",
        table(LINE).replace(b"all_reduce_perf", b"broadcast_perf"),
        "of all_reduce or reduce_scatter",
    ),
    "only a program that is unknown": (
        "a.txt", table(LINE).replace(b"all_reduce_perf", b"hypercube_perf"), "hypercube",
    ),
    "impossible bandwidths": (
        "a.txt", table("1024 256 float sum -1 9 9.00 90.00 0 9 9.00 90.00 0"), "",
    ),
    "gzip cut short": ("t.json.gz", TRACE[:3000], "cut short"),
    "gzip with damage": ("t.json.gz", TRACE[:3000] + b"xx" + TRACE[3002:], ""),
    "gzip that is only a header": ("t.json.gz", TRACE[:12], ""),
    "gzip of nothing": ("t.json.gz", packed(b""), ""),
    "gzip in two parts": ("t.json.gz", TRACE + TRACE, "several parts"),
    "gzip that explodes": (
        "t.json.gz", packed(b'{"traceEvents": [' + b" " * 300_000_000), "decompressed",
    ),
    "gzip within gzip": ("t.json.gz", packed(TRACE), "accepted:"),
    "JSON cut short": ("t.json", gzip.decompress(TRACE)[:9000], "cut short"),
    "JSON with NaN": ("t.json", kineto(kernel(dur=math.nan)), "NaN"),
    "JSON with Infinity": ("t.json", kineto(kernel(ts=math.inf)), "Infinity"),
    "JSON out of range": (
        "t.json", kineto(kernel()).replace(b'"dur": 1.0', b'"dur": 1e999'), "not a number",
    ),
    "JSON with a huge whole number": (
        "t.json", kineto(kernel()).replace(b'"dur": 1.0', b'"dur": ' + b"9" * 5000), "out of range",
    ),
    "deep JSON": ("t.json", b'{"traceEvents": ' + b"[" * 100_000, "nested too deeply"),
    "deep mappings": ("t.json", b'{"traceEvents": ' + b'{"a":' * 100_000, "nested too deeply"),
    "a negative duration": ("t.json", kineto(kernel(dur=-1.0)), "negative"),
    "a duration that is text": ("t.json", kineto(kernel(dur="soon")), "not a number"),
    "a duration that is true": ("t.json", kineto(kernel(dur=True)), "not a number"),
    "an event without a time": ("t.json", kineto({"ph": "X", "cat": "kernel"}), "not a number"),
    "events that are none": ("t.json", kineto("kernel"), "no mapping"),
    "no list of events": ("t.json", b'{"traceEvents": {}}', "traceEvents"),
    "no events": ("t.json", kineto(), "no kernel"),
    "no kernels": ("t.json", kineto(kernel(cat="cpu_op")), "no kernel"),
    "a trace without traceEvents": ("t.json", b'{"deviceProperties": []}', "traceEvents"),
    "a CSV without columns": ("s.csv", b"\n", "is empty"),
    "a CSV of other columns": ("s.csv", b"a,b\n1,2\n", "needs exactly one time"),
    "a CSV of two times": ("s.csv", b"step,seconds,time_ms\n1,2,3\n", "needs exactly one time"),
    "a CSV of a time without unit": ("s.csv", b"step,step_time\n1,2\n", "with its unit"),
    "a CSV without rows": ("s.csv", b"step,seconds\n", "no step"),
    "a CSV with a gap": ("s.csv", b"step,seconds\n0,\n", "nothing where a number"),
    "a CSV with NaN": ("s.csv", b"step,seconds\n0,nan\n", "not a number"),
    "a CSV with Infinity": ("s.csv", b"step,seconds\n0,inf\n", "not a number"),
    "a CSV with a negative time": ("s.csv", b"step,seconds\n0,-1\n", "-1 s is not in"),
    "a CSV with a step of no time": ("s.csv", b"step,seconds\n0,0\n", "0 s is not in"),
    "a CSV with half a rank": ("s.csv", b"step,rank,seconds\n0,0.5,1\n", "whole number"),
    "a CSV with a rank twice": ("s.csv", b"step,rank,seconds\n0,0,1\n0,0,1\n", "repeats line 2"),
    "a CSV with a rank too many": (
        "s.csv", b"step,rank,ranks,seconds\n0,4,2,1\n", "a rank 4, but 2 ranks",
    ),
    "a CSV of ranks without steps": ("s.csv", b"rank,seconds\n0,1\n", "none of steps"),
    "a CSV that is binary": ("s.csv", b"step,seconds\n\0\0\0", "binary"),
    "a CSV with an endless field": ("s.csv", b'step,seconds\n0,"' + b"9" * 200_000, ""),
    "DDP logging before its first sample": (
        "d.json", b'{"avg_forward_compute_time": 0, "avg_backward_compute_time": 0}', "no forward",
    ),
    "DDP logging of negative times": (
        "d.json", b'{"avg_forward_compute_time": -5, "avg_backward_compute_time": 1}', "no time",
    ),
    "DDP logging of text": (
        "d.json", b'{"avg_forward_compute_time": "x", "avg_backward_compute_time": 1}',
        "not a number",
    ),
    "OSU without rows": ("o.txt", b"# OSU MPI Allreduce Latency Test v5.8\n", "no table"),
    "an OSU row of words": ("o.txt", osu("1024 fast"), "line 3: is no row of the table: has"),
    "an OSU row cut short": ("o.txt", osu("1024"), "line 3: is no row of the table: has 1 cells"),
    "an OSU size that is none": (
        "o.txt", osu("10x4   13.0   12.0   14.0"), "line 3: is no row of the table: '10x4'",
    ),
    "an OSU mean beyond its bounds": (
        "o.txt", osu("1024   19.0   12.0   14.0"), "19.0 us on average, and 12 … 14",
    ),
    "OSU sizes out of order": (
        "o.txt", osu("1024 13.0 12.0 14.0", "512 9.0 8.0 10.0"), "line 4: sizes do not grow: 512",
    ),
    "OSU without its column": (
        "o.txt", b"# OSU MPI Allreduce Latency Test v5.8\n# Size  Bandwidth (MB/s)\n", "no column",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_wrong_files_are_refused_in_one_line(what: str, tmp_path: Path, capsys: Any) -> None:
    name, data, message = REFUSED[what]
    path = tmp_path / name
    path.write_bytes(data)
    assert run(path, "-o", tmp_path / "c.yaml") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("dpsim: ")
    assert name in line
    assert message in line
    assert not (tmp_path / "c.yaml").exists()


def test_there_are_sixty_of_them() -> None:
    assert len(REFUSED) >= 60


def test_a_folder_and_a_file_that_is_not_there_are_refused(tmp_path: Path, capsys: Any) -> None:
    assert run(tmp_path) == 2
    assert run(tmp_path / "none.txt") == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


@pytest.mark.parametrize("rows", [1, 7, 19])
def test_a_table_cut_anywhere_gives_its_whole_rows_and_a_warning(rows: int, tmp_path: Path) -> None:
    text = (DATA / H100).read_text(encoding="utf-8")
    lines = text.splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith("           8"))
    path = tmp_path / "all_reduce.txt"
    cut = "\n".join(lines[: first + rows]) + "\n" + lines[first + rows][:60] + "\n"
    path.write_text(cut, encoding="utf-8")
    found = read_any(path)
    assert len(found.curves[0].points) == rows
    assert any("cut short" in warning for warning in found.warnings)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_a_damaged_sample_is_read_or_refused(seed: int, damage: int) -> None:
    """Bytes are changed at random places of a table and of a trace."""
    stream = random.Random(seed)
    for name in (H100, "hta-mi250-minitoy.kineto.json.gz"):
        data = bytearray((DATA / name).read_bytes())
        if name.endswith(".gz"):
            data = bytearray(gzip.decompress(data))
        for _ in range(damage):
            data[stream.randrange(len(data))] = stream.randrange(256)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name.removesuffix(".gz")
            path.write_bytes(data)
            try:
                calibrated.write(gather([path]).calibration)
            except Refused as error:
                assert str(error)


def test_a_number_with_an_underscore_is_refused(tmp_path: Path) -> None:
    """Python itself reads 14_72 as 1472."""
    text = (DATA / H100).read_text("utf-8")
    row = next(line for line in text.splitlines() if line.split()[2:3] == ["float"])
    time = row.split()[5]
    path = tmp_path / H100
    path.write_text(text.replace(row, row.replace(time, f"{time[0]}_{time[1:]}", 1)), "utf-8")
    with pytest.raises(Refused, match=rf"line \d+: '{time[0]}_.*' is not a number"):
        gather([path])


def test_the_limit_on_gzip_admits_real_traces() -> None:
    for path in DATA.glob("*.gz"):
        packed_size = path.stat().st_size
        assert len(gzip.decompress(path.read_bytes())) < MAX_RATIO / 3 * packed_size


def test_every_reader_keeps_the_contract() -> None:
    for reader in readers():
        assert isinstance(reader, Reader)
        assert isinstance(reader.accepts, str)
        assert "claims" in vars(type(reader))
        assert "read" in vars(type(reader))


# -- the link that a curve crossed ----------------------------------------------------------------


def across(rate: str | None, gigabytes: float, tmp_path: Path) -> None:
    """A prediction with a curve of 16 ranks on two DGX H100, 8 NICs of 400 Gbit/s each, by hand."""
    size = 2**30
    known = f"  link_rate: {rate}\n" if rate else ""
    seconds = size / (gigabytes * 1e9)
    (tmp_path / "c.yaml").write_text(
        "schema_version: 1\ntitle: t\nmade_from: []\ncurves:\n- operation: all_reduce\n"
        f"  ranks: 16\n  nodes: 2\n{known}  points:\n  - 1 MiB, 90 us, 1 us\n"
        f"  - {size} B, {seconds * 1e6!r} us, 1 us\n",
        encoding="utf-8",
    )
    cluster = {"machine": "dgx-h100", "nodes": 2}
    predict(loaded(tmp_path, calibration="c.yaml", cluster=cluster))


def test_a_curve_holds_at_the_rate_of_its_link(tmp_path: Path) -> None:
    across("400 Gbit/s", 200, tmp_path)
    across(None, 200, tmp_path)
    with pytest.raises(Refused, match="was measured at 100 Gbit/s per NIC, and here are 400"):
        across("100 Gbit/s", 200, tmp_path)


def test_a_curve_faster_than_the_link_it_is_said_to_cross_is_refused(tmp_path: Path) -> None:
    """Of 900 GB/s on two nodes each sends half at least, and its NICs carry 400 GB/s."""
    with pytest.raises(Refused, match="faster than the link that it is said to cross"):
        across(None, 900, tmp_path)


def test_the_command_writes_the_rate_of_the_link(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "c.yaml"
    assert run(DATA / GKE, DATA / H100, "--link-rate", "100 Gbit/s", "-o", out) == 0
    rates = {curve.nodes: curve.link_rate for curve in calibrated.load(out).curves}
    assert rates == {1: None, 4: 12.5e9}
    assert run(DATA / GKE, "--link-rate", "fast", "-o", tmp_path / "d.yaml") == 2
    assert "--link-rate" in capsys.readouterr().err
