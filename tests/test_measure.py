"""`dpsim measure`: real DDP on one device as rank 0 of any world size, recorded and played.

The scripts below are run by torch itself, with its own buckets and autograd; nothing of dpsim is
in them.  No test compares two measured times: durations are compared with the record they are from.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shared

from dpsim import cli
from dpsim.cases.case import Case
from dpsim.core.record import Refused
from dpsim.core.units import show
from dpsim.describe.scenario import read
from dpsim.measurements.recorder import files, runner
from dpsim.models import Model
from dpsim.models.recorded import SPREAD, model_of
from dpsim.models.recording import Recording, parse, same_device
from dpsim.predict.document import from_json, to_json
from dpsim.predict.prediction import predict
from dpsim.report.measured_schema import LoaderTimes, StepsRecord
from dpsim.report.schemas import schema_named

ROOT = Path(__file__).resolve().parent.parent
WORLDS = (1, 8)
STEPS, WARMUP, BATCH = 2, 3, 4
HIDDEN = 2048

#: used in another order than registered; `head` shares the embedding's weight; one layer is frozen
TRAIN = """
import argparse
import json

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self, unused):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(64))
        self.head = nn.Linear(64, 2000, bias=False)
        self.b = nn.Linear(2048, 64)
        self.embedding = nn.Embedding(2000, 64)
        self.a = nn.Linear(64, 2048)
        self.norm = nn.LayerNorm(64)
        self.frozen = nn.Linear(64, 64).requires_grad_(False)
        self.head.weight = self.embedding.weight
        if unused:
            self.unused = nn.Linear(7, 11)

    def forward(self, x):
        h = self.frozen(self.embedding(x))
        h = h + self.b(torch.relu(self.a(h))).mul(self.scale)
        return self.head(self.norm(h))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ddp", type=json.loads, default={})
    parser.add_argument("--steps", type=int, default=10**6)
    parser.add_argument("--mode", default="")
    a = parser.parse_args()
    dist.init_process_group("nccl", init_method="env://")
    print("rank", dist.get_rank(), "of", dist.get_world_size())
    torch.manual_seed(0)
    net = Net(a.mode == "unused")
    if a.mode == "no ddp":
        return
    if a.mode == "two dtypes":
        net.norm, net.scale.data = net.norm.double(), net.scale.data.double()
        net.forward = lambda x, f=net.forward: f(x)
        net.norm.register_forward_pre_hook(lambda m, x: x[0].double())
        net.norm.register_forward_hook(lambda m, x, out: out.float())
    if a.mode == "fsdp":
        from torch.distributed.fsdp import fully_shard
        fully_shard(net)
    if a.mode == "compile":
        net = torch.compile(net)
    model = DistributedDataParallel(net, **a.ddp)
    if a.mode == "two models":
        DistributedDataParallel(Net(False))
    if a.mode == "comm hook":
        model.register_comm_hook(None, lambda state, bucket: None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if a.mode == "zero":
        from torch.distributed.optim import ZeroRedundancyOptimizer
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
    x = torch.randint(0, 2000, (4, 8))
    for step in range(a.steps):
        if a.mode == "fails" and step == 2:
            raise ValueError("out of luck")
        if a.mode == "no_sync":
            with model.no_sync():
                model(x).sum().backward()
        optimizer.zero_grad()
        if a.mode == "stubborn":
            try:
                model(x).sum().backward()
            except BaseException:
                pass
            optimizer.step()
            continue
        nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten()).backward()
        loss = torch.ones(1)
        dist.all_reduce(loss)
        dist.barrier()
        if a.mode != "no step" or step % 2:
            optimizer.step()
        with torch.no_grad():
            model(x[:1])


if __name__ == "__main__":
    main()
"""


def measured(folder: Path, *arguments: str, world_size: int = 8, flops: bool = True) -> Recording:
    """The record of TRAIN with `arguments`, written to `folder` with its scenario."""
    script = folder / "train.py"
    script.write_text(TRAIN, encoding="utf-8")
    what = runner.target([sys.executable, str(script), *arguments])
    found = runner.run(what, world_size=world_size, steps=STEPS, warmup=WARMUP, flops=flops)
    return files.write(found, folder / "my.json", None)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """The scripts compute little; threads would only get into each other's way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a record made at 1,024 ranks and its scenario."""
    place = shared.folder(tmp_path_factory, "measured")
    shared.once(place / "all", lambda: measured(place, world_size=1024))
    return place


@pytest.fixture(scope="module")
def recording(folder: Path) -> Recording:
    return parse((folder / "my.json").read_text(encoding="utf-8"))


def points(folder: Path, *sets: str) -> tuple[list[dict[str, Any]], list[str]]:
    document = predict(read(folder / "my.yaml", sets)).document
    return document["points"], document["warnings"]


# -- what is recorded -------------------------------------------------------------------------


@pytest.mark.parametrize("world_size", WORLDS)
def test_the_script_is_rank_0_of_any_world_size(
    world_size: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = measured(tmp_path, world_size=world_size)
    streams = capsys.readouterr()
    assert f"rank 0 of {world_size}\n" in streams.err
    assert not streams.out
    assert (found.world_size, found.batch, found.device.type) == (world_size, BATCH, "cpu")
    assert (len(found.steps), len(found.plain_steps_s)) == (STEPS, STEPS)
    assert not bucket_warnings(tmp_path)
    assert len(found.first_buckets) == 1
    assert len(found.steady_buckets) == 2


def test_a_record_keeps_to_the_schema_of_measure(folder: Path) -> None:
    typed = StepsRecord | LoaderTimes
    document = json.loads((folder / "my.json").read_text("utf-8"))
    assert json.loads(json.dumps(to_json(from_json(typed, document)))) == document
    every = schema_named("measure")["anyOf"][0]
    assert set(every["required"]) <= set(document) <= set(every["properties"])


@pytest.mark.parametrize(
    ("mode", "knobs"),
    [
        ("", {"static_graph": True, "bucket_cap_mb": 0.1, "gradient_as_bucket_view": True}),
        ("unused", {"find_unused_parameters": True}),
        ("two dtypes", {"bucket_cap_mb": 0.05}),
    ],
)
def test_recorded_buckets_are_those_of_dpsims_rule(
    mode: str, knobs: dict[str, Any], tmp_path: Path
) -> None:
    found = measured(tmp_path, "--ddp", json.dumps(knobs), "--mode", mode, flops=False)
    assert not bucket_warnings(tmp_path)
    total = sum(p.bytes for p in found.trainable.values())
    for buckets in (found.first_buckets, found.steady_buckets):
        assert sum(bucket.bytes for bucket in buckets) == total
    assert {b.dtype for b in found.steady_buckets} == (
        {"fp32", "fp64"} if "two" in mode else {"fp32"}
    )


def bucket_warnings(folder: Path, *sets: str) -> list[str]:
    free = ("collective={backend: free}", "sweep={cluster.ranks: [2]}")
    return [text for text in points(folder, *free, *sets)[1] if "buckets" in text]


#: the same script on two real processes; rank 0 prints what DDP itself logs about its buckets
REAL = """
import runpy
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

rank, store, *sys.argv = sys.argv[1:]
begin, make, made = dist.init_process_group, DistributedDataParallel.__init__, []
dist.init_process_group = lambda *args, **kwargs: begin(
    "gloo", init_method=f"file://{store}", rank=int(rank), world_size=2
)


def remember(self, *args, **kwargs):
    make(self, *args, **kwargs)
    made.append(self)


DistributedDataParallel.__init__ = remember
runpy.run_path(sys.argv[0], run_name="__main__")
logged = made[0]._get_ddp_logging_data()
print(logged["bucket_sizes"], logged["rebuilt_bucket_sizes"], sep="\\n")
print(logged["rebuilt_per_bucket_param_indices"])
"""


def test_two_real_processes_have_the_recorded_buckets(tmp_path: Path) -> None:
    knobs = {"bucket_cap_mb": 0.2}
    found = measured(tmp_path, "--ddp", json.dumps(knobs), world_size=2, flops=False)
    (tmp_path / "real.py").write_text(REAL, encoding="utf-8")
    words = [str(tmp_path / "store"), "train.py", "--steps", "4", "--ddp", json.dumps(knobs)]
    processes = [
        subprocess.Popen(
            [sys.executable, "real.py", rank, *words],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        for rank in "01"
    ]  # fmt: skip
    printed = [process.communicate(timeout=120)[0] for process in processes]
    sizes, rebuilt, members = printed[0].splitlines()[1:]
    assert sizes == ", ".join(str(bucket.bytes) for bucket in found.first_buckets)
    assert rebuilt == ", ".join(str(bucket.bytes) for bucket in found.steady_buckets)
    mine = [[found.place[name] for name in b.parameters] for b in found.steady_buckets]
    assert members == ", ".join(" ".join(map(str, bucket)) for bucket in mine)
    assert not bucket_warnings(tmp_path)


def test_buckets_of_other_knobs_are_warned_about(folder: Path) -> None:
    """A cap that was not recorded: the comparison sees it."""
    assert not bucket_warnings(folder)
    (text,) = bucket_warnings(folder, "strategy.bucket_cap_mb=0.1")
    assert text.startswith("buckets of the steady state are not the recorded ones")


def test_parameters_are_recorded_in_registration_order(recording: Recording) -> None:
    names = ["scale", "head.weight", "b.weight", "b.bias", "a.weight", "a.bias"]
    names += ["norm.weight", "norm.bias"]
    assert list(recording.trainable) == names
    frozen = [p.name for p in recording.parameters if not p.trainable]
    assert frozen == ["frozen.weight", "frozen.bias"]
    assert recording.modules == ("", "head", "b", "embedding", "a", "norm", "frozen")
    assert recording.optimizer is not None
    assert (recording.optimizer.class_, recording.optimizer.momentum) == ("SGD", True)


def test_forward_order_and_tied_weights(recording: Recording) -> None:
    model = model_of(recording, timed=True, name="net")
    names = [layer.name.partition(" [")[0] for layer in model.layers]  # split where far apart
    visited = list(dict.fromkeys(names[i] for i in model.forward_order))
    assert visited == ["embedding", "frozen", "a", "b", "norm", "head", "(root)"]
    backward = [names[i] for i in model.backward_order()]
    ready = [name for name in backward if name not in ("embedding", "frozen")]
    assert ready[0] == "norm"
    assert ready[-1] == "head"  # the shared weight is ready when the embedding's backward is done
    assert model.parameters == 64 + 2000 * 64 + 2 * 64 * HIDDEN + 64 + HIDDEN + 2 * 64


def test_flop_are_those_of_the_matrix_products(recording: Recording) -> None:
    """A Linear layer on T tokens: 2 T in out forward, twice that backward."""
    model = model_of(recording, timed=False, name="net")
    layers = {layer.name: layer for layer in model.layers}
    tokens = 8  # per sample
    for name in ("a", "b"):
        assert layers[name].forward_flop == 2 * tokens * 64 * HIDDEN
    assert layers["frozen"].forward_flop == 2 * tokens * 64 * 64
    total = sum(layer.forward_flop for layer in model.layers)
    assert total == 2 * tokens * 64 * (2 * HIDDEN + 64 + 2000)
    # frozen weights need no gradient; their input's is needed
    back = sum(layer.backward_flop for layer in model.layers)
    assert back == 2 * total - 2 * tokens * 64 * 64
    assert all(layer.forward_bytes >= 0 for layer in model.layers)
    assert sum(layer.activations for layer in model.layers) > tokens * (HIDDEN + 2000)


# -- how it is played -------------------------------------------------------------------------


def ready_times(model: Model, batch: int) -> dict[str, float]:
    """When each tensor's gradient is ready in the model [s since the step's start]."""
    forward = batch * sum(layer.forward or 0.0 for layer in model.layers)
    order = list(model.backward_order())
    ends = accumulate(batch * (model.layers[i].backward or 0.0) for i in order)
    return {
        f"{model.layers[i].name}.{tensor.name}": forward + end
        for i, end in zip(order, ends, strict=True)
        for tensor in model.layers[i].tensors
    }


def assert_reproduced(found: Recording) -> None:
    """Forward and backward sum to the record's, and gradients are ready when they were."""
    model, step = model_of(found, timed=True, name="net"), found.step
    last = max(step.ready_s.values())
    forward = found.batch * sum(layer.forward or 0.0 for layer in model.layers)
    backward = found.batch * sum(layer.backward or 0.0 for layer in model.layers)
    assert forward == pytest.approx(step.backward_start_s, rel=1e-9)
    assert backward == pytest.approx(last - step.backward_start_s, rel=1e-9, abs=1e-15)
    mine = ready_times(model, found.batch)
    labels = {label.rpartition(".")[0]: [] for label in mine}
    flat = [f"{layer.name}.{t.name}" for layer in model.layers for t in layer.tensors]
    for label, name in zip(flat, found.trainable, strict=True):
        if name in step.ready_s:
            labels[label.rpartition(".")[0]].append(mine[label] - step.ready_s[name])
    for late in labels.values():
        slack = 1e-9 * last
        assert all(-slack <= x <= SPREAD * (last - step.backward_start_s) + slack for x in late)
        assert not late or min(late) <= slack  # the last gradient of a layer is exact
    order = sorted(step.ready_s, key=lambda name: step.ready_s[name])
    assert [list(found.trainable)[i] for i in model.arrival][-len(order) :] == order


def test_layers_reproduce_forward_backward_and_every_gradient(recording: Recording) -> None:
    assert_reproduced(recording)


def test_without_communication_a_step_lasts_as_long_as_recorded(
    folder: Path, recording: Recording
) -> None:
    found, warnings = points(folder, "collective={backend: free}")
    assert [p["ranks"] for p in found] == [2**k for k in range(11)]
    for point in found:
        assert point["step_time_s"] == pytest.approx(recording.step.end_s, rel=1e-9)
    assert not [text for text in warnings if "modelled" in text]


def test_buckets_are_launched_when_their_last_gradient_was_ready(
    folder: Path, recording: Recording
) -> None:
    """On a network that takes no time every all-reduce starts then."""
    ideal = "collective={backend: ideal, latency: 0 s, bandwidth: 1000 PB/s}"
    loaded = read(folder / "my.yaml", [ideal, "sweep={cluster.ranks: [8]}"])
    played = predict(loaded).outcomes[0].played
    assert played is not None
    spans = [s for s in played.timeline.last.spans((0,)) if s.op == "all_reduce"]
    start = min(span.start for span in played.timeline.last.spans((0,)))
    ready = [
        max(recording.step.ready_s[name] for name in bucket.parameters)
        for bucket in recording.steady_buckets
    ]
    tolerance = SPREAD * recording.step.end_s
    assert [s.start - start for s in spans] == pytest.approx(ready, abs=tolerance)


def test_on_another_device_durations_are_modelled_and_said_to_be(
    folder: Path, recording: Recording
) -> None:
    on = ("cluster.machine=dgx-h100", "sweep={cluster.ranks: [8, 64, 1024]}")
    found, warnings = points(folder, *on)
    assert all(point["step_time_s"] > 0 for point in found)
    own = recording.step.end_s - recording.between
    said = next(text for text in warnings if text.startswith("durations are modelled"))
    assert f"{recording.device.name} took {show(own, 's')}" in said
    kept, warnings = points(folder, *on, "model.times=recorded")
    assert not any(text.startswith("durations are modelled") for text in warnings)
    assert any(text.startswith("durations were recorded on") for text in warnings)
    assert all(point["step_time_s"] >= recording.step.end_s * (1 - 1e-9) for point in kept)


def test_a_wait_for_the_next_batch_is_no_shorter_on_another_device(
    folder: Path, tmp_path: Path
) -> None:
    """50 ms of data loading stay 50 ms, however fast the device is."""
    data = json.loads((folder / "my.json").read_text(encoding="utf-8"))
    (tmp_path / "my.yaml").write_text((folder / "my.yaml").read_text("utf-8"), encoding="utf-8")
    on, found = ("cluster.machine=dgx-h100", "sweep={cluster.ranks: [1]}"), []
    for wait in (0.0, 0.05):
        for step in data["steps"]:
            step["end_s"] = step["optimizer_end_s"] + wait
        (tmp_path / "my.json").write_text(json.dumps(data), encoding="utf-8")
        (point,), warnings = points(tmp_path, *on)
        found.append(point["step_time_s"])
        assert any("waited 50 ms" in text for text in warnings) == (wait > 0)
    assert found[1] - found[0] == pytest.approx(0.05, rel=1e-9)


def test_another_batch_is_said_to_be_a_proportion(folder: Path, recording: Recording) -> None:
    free = ("collective={backend: free}", "sweep={cluster.ranks: [8]}", "batch.per_device=8")
    (point,), warnings = points(folder, *free)
    step = recording.step
    expected = step.end_s + max(step.ready_s.values())
    assert point["step_time_s"] == pytest.approx(expected, rel=1e-9)
    assert any("8: durations are taken to grow in proportion" in text for text in warnings)


def test_on_the_recorded_device_compute_counts_as_measured(tmp_path: Path, folder: Path) -> None:
    data = json.loads((folder / "my.json").read_text(encoding="utf-8"))
    data["device"] = {"type": "cuda", "name": "NVIDIA H100 80GB HBM3"}
    (tmp_path / "my.json").write_text(json.dumps(data), encoding="utf-8")
    (tmp_path / "my.yaml").write_text((folder / "my.yaml").read_text("utf-8"), encoding="utf-8")
    on = ("cluster.machine=dgx-h100", "sweep={cluster.ranks: [1]}")
    (point,), warnings = points(tmp_path, *on)
    assert point["step_time_s"] == pytest.approx(parse(json.dumps(data)).step.end_s, rel=1e-9)
    assert "compute (prior)" not in point["interval_causes"]
    assert not [text for text in warnings if "not calibrated" in text]
    assert same_device("NVIDIA GeForce RTX 3090", "GeForce RTX 3090")
    assert not same_device("NVIDIA H100 PCIe", "H100-SXM5-80GB")


def test_a_record_without_work_is_played_as_recorded_only(folder: Path) -> None:
    data = json.loads((folder / "my.json").read_text(encoding="utf-8"))
    found = parse(json.dumps({**data, "work": None}))
    assert model_of(found, timed=True, name="net").flop_per_sample() == 0
    with pytest.raises(Refused, match="no FLOP"):
        model_of(found, timed=False, name="net")


# -- records of any shape ---------------------------------------------------------------------


def made_up(seed: int) -> dict[str, Any]:
    """A record of random modules whose gradients arrive in any order, some never."""
    rng = np.random.default_rng(seed)
    modules = [f"m.{i}" for i in range(int(rng.integers(1, 8)))]
    parameters = [
        {"name": f"{m}.p{j}", "module": m, "shape": [int(rng.integers(1, 50))], "dtype": "fp32",
         "bytes": 0, "trainable": True}
        for m in modules for j in range(int(rng.integers(1, 4)))
    ]  # fmt: skip
    for p in parameters:
        p["bytes"] = 4 * p["shape"][0]
    names = [p["name"] for p in parameters]
    arrived = [names[i] for i in rng.permutation(len(names))][: max(1, len(names) - 1)]
    backward = float(rng.uniform(1, 2))
    times = np.sort(backward + rng.uniform(0, 1, len(arrived)) ** 4)
    ends = np.sort(rng.uniform(0, backward, len(modules)))
    end = float(times[-1]) + float(rng.uniform(0, 1))
    bucket = {"index": 0, "bytes": sum(p["bytes"] for p in parameters), "dtype": "fp32"}
    step = {
        "forward": [[i, 0.0, float(ends[k])] for k, i in enumerate(rng.permutation(len(modules)))],
        "backward_start_s": backward,
        "ready_s": {n: float(t) for n, t in zip(arrived, times, strict=True)},
        "buckets_s": [float(times[-1])],
        "backward_end_s": end,
        "optimizer_end_s": None,
        "end_s": end,
    }
    step["forward"] = [[int(i), s, e] for i, s, e in step["forward"]]
    return {
        "schema": "dpsim-ddp-record", "schema_version": 1, "torch": "2.13.0",
        "device": {"type": "cpu", "name": "cpu"}, "world_size": 8, "batch": int(rng.integers(1, 9)),
        "compute_dtype": "fp32", "model": "Net",
        "ddp": {"bucket_cap_mb": None, "find_unused_parameters": True, "static_graph": False,
                "gradient_as_bucket_view": False, "broadcast_buffers": True},
        "optimizer": None, "modules": modules, "parameters": parameters, "buffers": [],
        "first_buckets": [{**bucket, "parameters": names}],
        "steady_buckets": [{**bucket, "parameters": names}],
        "plain_steps_s": [end], "steps": [step], "work": None,
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(30))
def test_gradients_that_arrive_in_any_order_are_reproduced(seed: int, tmp_path: Path) -> None:
    found = files.write(made_up(seed), tmp_path / "my.json", None)
    assert_reproduced(found)
    model = model_of(found, timed=True, name="net")
    tensors = [(layer.name, t.shape) for layer in model.layers for t in layer.tensors]
    assert [shape for _, shape in tensors] == [p.shape for p in found.parameters]
    loaded = read(tmp_path / "my.yaml", ["collective={backend: free}"])
    assert Case(loaded.points[-1], tmp_path).model == model_of(found, timed=True, name="Net")
    for point in predict(loaded).points:
        assert point["step_time_s"] == pytest.approx(found.step.end_s, rel=1e-9)


# -- what is refused --------------------------------------------------------------------------


def command(capsys: pytest.CaptureFixture[str], monkeypatch: Any, *words: str) -> tuple[int, str]:
    """Exit code and the last line on stderr of the command line."""
    monkeypatch.setattr(sys, "argv", ["dpsim", *words])
    code = cli._run()
    return code, (capsys.readouterr().err.strip().splitlines() or [""])[-1]


FREE = ("--set", "collective={backend: free}")
REFUSED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "NaN, which is not finite": lambda d: d["steps"][0].update(end_s=float("nan")),
    "Infinity, which is not finite": lambda d: d["plain_steps_s"].append(float("inf")),
    "-0.1 is not in 0": lambda d: d["steps"][0].update(backward_start_s=-0.1),
    "is not in the order start, end": lambda d: d["steps"][0]["forward"][0].__setitem__(2, 0.0),
    "'head.weight' is no trainable parameter": lambda d: d["parameters"].pop(1),
    "parameter 'extra' is in no bucket": lambda d: d["parameters"].append(
        {**d["parameters"][0], "name": "extra"}
    ),
    "has schema_version 2; this dpsim reads 1": lambda d: d.update(schema_version=2),
    "is no record of dpsim measure": lambda d: d.update(schema="something else"),
    "unknown key": lambda d: d.update(stpes=[]),
    "batch: is missing": lambda d: d.pop("batch"),
    "there is no module 'nowhere'": lambda d: d["parameters"][0].update(module="nowhere"),
    "its parameters have": lambda d: d["first_buckets"][0].update(bytes=1),
    "has 256 bytes, and its shape 260": lambda d: d["parameters"][0].update(shape=[65]),
    "is not ready in every step": lambda d: d["steps"][1]["ready_s"].pop("scale"),
    "optimizer_end_s: is after end_s": lambda d: d["steps"][0].update(optimizer_end_s=1e9),
    "there is no step": lambda d: d.update(steps=[]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_broken_record_is_refused_in_one_line(
    message: str, folder: Path, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    data = copy.deepcopy(json.loads((folder / "my.json").read_text(encoding="utf-8")))
    REFUSED[message](data)
    (tmp_path / "my.json").write_text(json.dumps(data), encoding="utf-8")
    check_refused(message, folder, tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is JSON that was cut short"),
        ("[" * 100_000, "is nested too deeply"),
        ("[]", "is no record of dpsim measure"),
        ('{"schema": "a", "schema": "b"}', "gives the key 'schema' twice"),
    ],
)
def test_what_is_no_record_is_refused_in_one_line(
    text: str | None, message: str, folder: Path, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    whole = (folder / "my.json").read_text(encoding="utf-8")
    (tmp_path / "my.json").write_text(whole[: len(whole) // 2] if text is None else text, "utf-8")
    check_refused(message, folder, tmp_path, monkeypatch, capsys)


def check_refused(
    message: str, folder: Path, place: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "my.yaml").write_text((folder / "my.yaml").read_text("utf-8"), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["dpsim", "run", str(place / "my.yaml"), *FREE])
    assert cli._run() == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "model.record: my.json: " in err
    assert message in err


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("no ddp", "never made a DistributedDataParallel model"),
        ("fsdp", "uses FSDP"),
        ("zero", "uses ZeroRedundancyOptimizer, which communicates in its step"),
        ("compile", "torch.compile"),
        ("two models", "two DistributedDataParallel models"),
        ("comm hook", "communication hook of its own"),
        ("no_sync", "accumulates gradients"),
        ("no step", "no optimizer step"),
    ],
)
def test_scripts_that_cannot_be_recorded_are_refused_by_name(
    mode: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(Refused, match=message):
        measured(tmp_path, "--mode", mode)
    assert not (tmp_path / "my.json").exists()


def test_a_script_that_catches_everything_is_ended_all_the_same(tmp_path: Path) -> None:
    found = measured(tmp_path, "--mode", "stubborn", flops=False)
    assert len(found.steps) == STEPS


def test_too_few_steps_are_refused_with_the_number_needed(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"made 3 complete training steps.* needs 9$"):
        measured(tmp_path, "--steps", "4")


def test_a_script_that_fails_is_the_environments_fault(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    words = ("--", sys.executable, "train.py", "--mode", "fails")
    code, last = command(capsys, monkeypatch, "measure", "--world-size", "8", *words)
    assert code == 3
    assert last.endswith("ValueError: out of luck")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["torchrun", "train.py"], "starts one process per rank"),
        (["./train.sh"], "is none of"),
        ([sys.executable, "-c", "pass"], "needs a script"),
        ([sys.executable, "nowhere.py"], "there is no script 'nowhere.py'"),
        (["python9.99", "train.py"], "there is no program"),
    ],
)
def test_commands_that_cannot_be_measured_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(Refused, match=message):
        runner.target(words)


def test_a_command_is_taken_apart_as_python_does() -> None:
    what = runner.target([sys.executable, "-u", "-W", "error", "-m", "package.train", "--lr", "1"])
    assert what.python == (sys.executable, "-u", "-W", "error")
    assert (what.kind, what.name, what.arguments) == ("module", "package.train", ("--lr", "1"))
    assert what.title == "train"
    assert runner.target(["package.train:main"]).title == "train"


# -- the two-line story -----------------------------------------------------------------------


def howto() -> tuple[str, list[str]]:
    """The script and the commands of the how-to."""
    text = (ROOT / "docs/howto/record-your-own-model.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```python\n(# train\.py\n.*?)```", text, flags=re.DOTALL)
    blocks = "".join(re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL))
    return script, re.findall(r"^\$ dpsim (.*)$", blocks, flags=re.MULTILINE)


def test_the_how_to_runs_as_it_stands(  # type: ignore[no-untyped-def]
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, commands = howto()
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    monkeypatch.setenv("PATH", path)
    steps = []
    for words in commands:
        code, out, err = cli(*shlex.split(words))
        assert code == 0, err
        steps.append(out)
    assert len(steps) == 5
    assert "rank 0 of 1,024" in steps[0]
    assert "my.yaml" in steps[0]
    assert re.search(r"^ *1,024 ", steps[1], flags=re.MULTILINE)


@pytest.mark.parametrize("words", [["train:main"], [sys.executable, "-m", "train"]])
def test_a_module_and_a_function_are_recorded_too(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    what = runner.target([*words, "--ddp", "{}"])
    found = runner.run(what, world_size=4, steps=STEPS, warmup=WARMUP, flops=False)
    assert len(found["steady_buckets"]) == 2


def test_a_scenario_that_was_edited_is_not_written_over(tmp_path: Path) -> None:
    place = tmp_path / "my.json"
    files.write(made_up(1), place, None)
    files.check(place)  # its own may be
    text = files.scenario_file(place).read_text(encoding="utf-8")
    files.scenario_file(place).write_text(text.partition("\n")[2], encoding="utf-8")
    with pytest.raises(Refused, match="dpsim did not write it"):
        files.check(place)


def test_dpsim_starts_without_torch() -> None:
    modules = "dpsim.cli.app, dpsim.cli.measure, dpsim.measurements.recorder.runner"
    recorder = "dpsim.measurements.recorder"
    inside = f"{recorder}.files, {recorder}.inside.recorder, {recorder}.inside.patches"
    code = f"import sys, {modules}, {inside}; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert done.returncode == 0
