"""The document: what the recorder saw as plain data, or the reason of a refusal."""

from __future__ import annotations

import json
import sys
from collections import Counter as Tally
from typing import TYPE_CHECKING, Any

from . import model
from .step import timed, worked

if TYPE_CHECKING:
    from .recorder import Recorder

#: exit code of this process where the record was refused; the reason is in the output file
REFUSED = 97
KNOBS = (
    "bucket_cap_mb",
    "find_unused_parameters",
    "static_graph",
    "gradient_as_bucket_view",
    "broadcast_buffers",
)


def write(recorder: Recorder, refusal: str = "") -> int:
    """Write the document, or the reason why there is none; returns the exit code."""
    found: dict[str, Any] = {"refused": refusal} if refusal else document(recorder)
    with open(recorder.options.out, "w", encoding="utf-8") as file:
        json.dump(found, file, allow_nan=False)
    sys.stdout.flush()
    sys.stderr.flush()
    return REFUSED if "refused" in found else 0


def document(recorder: Recorder) -> dict[str, Any]:
    """The record as plain data, or {"refused": reason}."""
    refusal = _refusal(recorder)
    if refusal:
        return {"refused": refusal}
    recorder.clock.finish()
    usual = Tally(s.batch for s in recorder.steps if s.kind == "detailed").most_common(1)[0][0]
    steps = [s for s in recorder.steps if s.batch == usual]
    counted = next((s for s in steps if s.kind == "counted"), None)
    if counted is not None and counted.clock.failed:
        print(f"dpsim: the record has no FLOP: {counted.clock.failed}", file=sys.stderr)
        counted = None
    module = recorder.ddp.module
    return {
        "schema": "dpsim-ddp-record",
        "schema_version": 1,
        "torch": str(recorder.torch.__version__),
        "device": {
            "type": recorder.ddp.device.type,
            "name": model.device_name(recorder.torch, recorder.ddp),
        },
        "world_size": recorder.options.world_size,
        "batch": usual,
        "compute_dtype": steps[-1].compute,
        "model": type(module).__name__,
        "ddp": {name: _knob(recorder, name) for name in KNOBS},
        "optimizer": recorder.optimizer,
        "modules": [name for name, _ in model.holders(module)],
        "parameters": model.parameters(module),
        "buffers": model.buffers(module),
        "first_buckets": [_described(b) for b in recorder.steps[0].buckets],
        "steady_buckets": [_described(b) for b in steps[-1].buckets],
        "plain_steps_s": [s.clock.between(s.start, s.end) for s in steps if s.kind == "plain"],
        "steps": [timed(s) for s in steps if s.kind == "detailed"],
        "work": worked(counted) if counted else None,
    }


def _refusal(recorder: Recorder) -> str:
    if recorder.ddp is None:
        return "the script never made a DistributedDataParallel model"
    detailed = [s for s in recorder.steps if s.kind == "detailed"]
    if len(detailed) < recorder.options.steps:
        need = recorder.options.warmup + 2 * recorder.options.steps + 1 + recorder.options.flops
        return (
            f"the script made {len(recorder.steps)} complete training steps; with --steps "
            f"{recorder.options.steps} and --warmup {recorder.options.warmup} a record needs {need}"
        )
    if any(s.batch is None for s in detailed):
        return "the model's forward gets no tensor, so its batch is unknown"
    done = [s.optimizer_end is not None for s in detailed]
    if any(done) and not all(done):
        return (
            "some steps have no optimizer step (gradients accumulated, or a gradient scaler "
            "that skips); measure one micro-batch per step, or with a longer --warmup"
        )
    return ""


def _knob(recorder: Recorder, name: str) -> Any:
    if name == "broadcast_buffers":
        return bool(recorder.ddp.broadcast_buffers)
    value = recorder.arguments.get(name)
    return float(value) if name == "bucket_cap_mb" and value is not None else value


def _described(bucket: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in bucket.items() if key != "ready"}
