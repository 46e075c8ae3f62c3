"""From a row of a table of training runs to a scenario, or to the reason why there is none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsim.accuracy.platforms import platform
from dpsim.accuracy.training_mesh import RowMesh, mesh_of
from dpsim.accuracy.training_models import ModelChoice, choose_model
from dpsim.accuracy.training_strategies import date_of, strategy_of
from dpsim.accuracy.training_table import RUN_TIMES, SAMPLES, TIMES, Row
from dpsim.cases.case import Case
from dpsim.core.record import Refused
from dpsim.describe.scenario import load

_BATCH = {"convnet": 64, "language": 8, "large": 1}


@dataclass(frozen=True)
class Point:
    """A row as dpsim plays it.

    step_time  what was measured, as the time of one step [s]
    time       whether `value` is a time (else a rate, which falls as the step gets longer)
    notes      what was assumed or replaced, in plain words
    """

    row: Row
    case: Case
    data: dict[str, Any]
    step_time: float
    time: bool
    strategy: str
    notes: tuple[str, ...]

    @property
    def stand_in(self) -> bool:
        """Whether only the size of the model is known, and so nothing of its compute."""
        return bool(self.data["model"].get("name") == "scaled")

    def value(self, step_time: float) -> float:
        """What the table's `value` would be if a step took `step_time` seconds."""
        measured = self.row.get("value")
        if measured is None:
            return step_time
        ratio = step_time / self.step_time
        return measured * ratio if self.time else measured / ratio


def point_of(row: Row, compute: Mapping[str, Any] | None = None) -> Point:
    """The scenario of `row`, with `compute` as its section of that name, and what was measured.

    Raises Refused where there is none.
    """
    if (column := row.unclear()) is not None:
        raise Refused(f"{column}: {row.text(column)[:60]!r} is not one number")
    notes: list[str] = []
    mesh = mesh_of(row)
    model = _model(row, mesh, notes)
    data: dict[str, Any] = {
        **mesh.data(row, notes),
        "model": model.data,
        "strategy": strategy_of(row, notes),
        "cluster": _cluster(row, notes),
        "precision": _precision(row, notes),
        "batch": _batch(row, model, mesh, notes),
        "optimizer": {"kind": "adam" if model.language else "momentum"},
        "recompute": _recompute(row),
        "collective": {"backend": "nccl", "version": _nccl_version(row)},
        "engine": "vectorised",
        "compute": dict(compute or {}),
    }
    loaded = load(data, Path(), row.text("row_id") or f"line {row.line}")
    case = _share(Case(loaded.scenario, Path()))
    step_time, time = _measured(row, case)
    strategy = data["strategy"]["kind"] + mesh.label
    return Point(row, case, data, step_time, time, strategy, tuple(notes))


#: what cases on the same cluster have in common; building a machine takes longer than playing it
_CLUSTERS: dict[str, Case] = {}
_KEPT = 64


def forget_clusters() -> None:
    """Work everything out anew: constants have changed."""
    _CLUSTERS.clear()


def _share(case: Case) -> Case:
    """`case`, with what an earlier case on the same cluster and backend has worked out."""
    key = repr((case.scenario.cluster, case.scenario.collective))
    if key not in _CLUSTERS:
        if len(_CLUSTERS) >= _KEPT:
            _CLUSTERS.pop(next(iter(_CLUSTERS)))
        _ = case.costs
        _CLUSTERS[key] = case
    return case.knowing(_CLUSTERS[key])


def _model(row: Row, mesh: RowMesh, notes: list[str]) -> ModelChoice:
    tokens = row.get("seq_len")
    found = _chosen(row, mesh, int(tokens) if tokens else None)
    if found.language and not tokens:
        length = found.data["sequence_length"]
        most = _tokens_per_gpu(row, mesh)
        if most and most < length:  # a sequence cannot be longer than all tokens of a GPU
            found, length = _chosen(row, mesh, most), most
        notes.append(f"sequences of {length:,} tokens are assumed")
    if found.note:
        notes.append(found.note)
    return found


def _chosen(row: Row, mesh: RowMesh, tokens: int | None) -> ModelChoice:
    millions = row.get("params_m")
    count = millions * 1e6 if millions else None
    return choose_model(row.text("model"), row.text("task"), count, tokens, mesh.pipeline)


def _in_tokens(row: Row) -> bool:
    return "token" in row.text("batch_unit").lower()


def _tokens_per_gpu(row: Row, mesh: RowMesh) -> int | None:
    """Tokens of a micro-batch on one replica, where batches are counted in tokens."""
    if not _in_tokens(row):
        return None
    batch, total = row.get("batch_per_gpu"), row.get("global_batch")
    if batch is None and total is not None:
        batch = total / mesh.replicas / (row.get("grad_accum") or 1.0)
    return int(batch) if batch else None


#: NCCL inside PyTorch's own binaries (pytorch/pytorch, third_party/nccl and
#: .ci/docker/common/install_nccl.sh at each release tag): from that torch version on
_BUNDLED_NCCL = (
    ((1, 0), "2.3"), ((1, 2), "2.4"), ((1, 7), "2.7"), ((1, 10), "2.10"), ((1, 13), "2.14"),
    ((2, 1), "2.18"), ((2, 2), "2.19"), ((2, 3), "2.20"), ((2, 5), "2.21"), ((2, 7), "2.26"),
    ((2, 8), "2.27"),
)  # fmt: skip
#: when NCCL was released (NVIDIA/nccl, tags)
_RELEASED = (
    ("2018-09", "2.3"), ("2019-01", "2.4"), ("2019-11", "2.5"), ("2020-03", "2.6"),
    ("2020-06", "2.7"), ("2020-11", "2.8"), ("2021-04", "2.9"), ("2021-07", "2.10"),
    ("2022-03", "2.12"), ("2022-08", "2.14"), ("2023-03", "2.17"), ("2023-04", "2.18"),
    ("2023-09", "2.19"), ("2024-01", "2.20"), ("2024-04", "2.21"), ("2024-06", "2.22"),
    ("2024-09", "2.23"), ("2025-03", "2.26"), ("2025-06", "2.27"),
)  # fmt: skip


def _nccl_version(row: Row) -> str:
    """The NCCL that such a run had: its torch's own, else the newest of its time; "" (the newest)
    where neither is known."""
    torch = re.search(r"pytorch (\d)\.(\d{1,2})\b", row.text("framework").lower())
    if torch:
        found = [v for low, v in _BUNDLED_NCCL if low <= (int(torch[1]), int(torch[2]))]
        return found[-1] if found else "2.3"
    date = date_of(row)
    found = [v for since, v in _RELEASED if since <= date] if date else []
    return found[-1] if found else ""


def _cluster(row: Row, notes: list[str]) -> dict[str, Any]:
    gpus, nodes = row.gpus, row.get("nodes")
    stated = row.get("gpus_per_node")
    per_node = int(stated) if stated else min(gpus, 8)
    if not stated:
        notes.append(f"{per_node} GPUs a node are assumed")
    found = platform(
        accelerator=row.text("accelerator"),
        gpus_per_node=per_node,
        intra_node=row.text("intra_node"),
        inter_node=row.text("inter_node"),
        inter_gbits_s=row.get("inter_gbits_s_per_node"),
    )
    notes.extend(found.notes)
    cluster = {**found.cluster, "ranks": gpus}
    if nodes and nodes > 1 and gpus < nodes * per_node:
        cluster["gpus_per_node"] = -(-gpus // int(nodes))
    return cluster


def _precision(row: Row, notes: list[str]) -> dict[str, Any]:
    words = row.text("precision").lower()
    sharded = "fsdp" in row.text("strategy").lower()
    if not words:
        notes.append("mixed precision is assumed")
        return {"parameters": "fp32", "compute": "fp16"}
    if "tf32" in words:
        return {"parameters": "fp32", "compute": "tf32"}
    half = "bf16" if "bf16" in words else "fp16"
    if "fp8" in words:
        return {"parameters": "bf16", "compute": "fp8"}
    if re.search(r"megatron", row.text("framework").lower()) and "fp32" not in words:
        return {"parameters": half, "compute": half}
    if sharded and half == "bf16":
        return {"parameters": "fp32", "compute": "bf16", "reduce": "bf16"}
    if re.search(r"amp|mixed", words):
        return {"parameters": "fp32", "compute": half}
    if re.search(r"fp16|bf16|half", words):
        return {"parameters": half, "compute": half}
    if re.search(r"fp32|float32|single", words):
        return {"parameters": "fp32", "compute": "fp32"}
    raise Refused(f"precision {row.text('precision')!r} is not known")


def _recompute(row: Row) -> str:
    words = row.text("act_ckpt").lower()
    if re.match(r"true|full|yes|1", words):
        return "full"
    return "selective" if "selective" in words else "none"


def _batch(row: Row, model: ModelChoice, mesh: RowMesh, notes: list[str]) -> dict[str, Any]:
    batch, total, gpus = row.get("batch_per_gpu"), row.get("global_batch"), mesh.replicas
    steps = row.get("grad_accum") or mesh.micro_batches(row) or 1.0
    if steps != int(steps):
        raise Refused(f"grad_accum: {steps} is not a whole number")
    accumulation = int(steps)
    if _in_tokens(row):
        tokens = row.get("seq_len") or (model.data["sequence_length"] if model.language else None)
        if not tokens:
            raise Refused("a batch in tokens needs seq_len")
        batch = batch and batch / tokens
        total = total and total / tokens
    if batch is None and total is None:
        size = "convnet" if not model.language else _size(row)
        notes.append(f"a batch of {_BATCH[size]} per GPU is assumed")
        batch = float(_BATCH[size])
    if batch is not None and total is not None:
        if _near(batch * accumulation * gpus, total):
            total = None
        elif accumulation > 1 and _near(batch * gpus, total):
            batch, total = batch / accumulation, None
            notes.append("batch_per_gpu holds all micro-batches of a step")
        else:
            notes.append("global_batch counts; it is not batch_per_gpu x GPUs x accumulation")
            batch = None
    if batch is not None and batch == int(batch) and batch >= 1:
        return {"per_device": int(batch), "accumulation": accumulation}
    samples = round(total if total is not None else (batch or 0) * accumulation * gpus)
    return {"global": max(samples, 1), "accumulation": accumulation}


def _size(row: Row) -> str:
    return "large" if (row.get("params_m") or 0) > 1000 else "language"


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= 0.02 * b


def _measured(row: Row, case: Case) -> tuple[float, bool]:
    """The measured step time [s], and whether `value` is a time."""
    unit, value, step = row.text("unit"), row.get("value"), row.get("step_time_s")
    is_time = unit in TIMES or unit in RUN_TIMES
    if step and step > 0:
        return step, is_time or value is None
    if value is None or value <= 0:
        raise Refused("value: is empty" if value is None else "value: 0 is no measurement")
    if unit in TIMES:
        return value * TIMES[unit], True
    if unit in RUN_TIMES:
        raise Refused(f"{unit} to train: the steps are not stated")
    return case.global_batch / _samples_per_second(row, case, value, unit), False


def _samples_per_second(row: Row, case: Case, value: float, unit: str) -> float:
    match = re.fullmatch(r"(\w+)/s(?:ec|econd)?(/gpu)?", unit.lower())
    if not match:
        raise Refused(f"unit {unit!r} is not known; write for example samples/s, tokens/s or ms")
    per = row.gpus if match[2] else 1
    what = match[1] if match[1].endswith("s") else f"{match[1]}s"
    if what == "tflops" or match[1] == "tflop":
        return value * 1e12 * per / case.model.flop_per_sample()
    if what == "tokens":
        return value * per / case.tokens_per_sample
    if what in SAMPLES:
        return value * per
    raise Refused(f"unit {unit!r} is not known; write for example samples/s, tokens/s or ms")
