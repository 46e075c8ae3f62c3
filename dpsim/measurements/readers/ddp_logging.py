"""Reader of what DDP logs about itself: a JSON dump of ``model._get_ddp_logging_data()``.

Times are in ns and are 0 or absent until DDP has sampled them: pytorch v2.13
torch/csrc/distributed/c10d/logger.cpp (`set_runtime_stats_and_log`; every iteration only with
``model._set_ddp_runtime_logging_sample_rate(1)``).  `backward_comm_time` runs from the first
bucket's launch to the last one's end, so it is no sum over buckets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpsim.core.record import Refused
from dpsim.measurements.findings import Findings, LayerSeconds
from dpsim.measurements.readers import Reader, json_content, opens_json

_MARKS = (b'"avg_forward_compute_time"', b'"bucket_cap_bytes"', b'"avg_backward_compute_time"')


class DdpLogging(Reader):
    """What DDP timed becomes one layer and the overlap."""

    accepts = "JSON of DDP's logging data (_get_ddp_logging_data)"

    def claims(self, path: Path, head: bytes) -> bool:
        ours = b'"dpsim-measurement"' in head  # a record of measure_ddp.py, which holds such a dump
        return opens_json(head) and not ours and any(mark in head for mark in _MARKS)

    def read(self, path: Path) -> Findings:
        data = json_content(path)
        if not isinstance(data, dict):
            raise Refused("is no mapping")
        forward = _seconds(data, "avg_forward_compute_time")
        backward = _seconds(data, "avg_backward_compute_time")
        if not forward or not backward:
            raise Refused(
                "has no forward and backward times yet; call "
                "_set_ddp_runtime_logging_sample_rate(1) before training and dump it after some "
                "steps"
            )
        wire = _seconds(data, "avg_backward_comm_time")
        hidden = _seconds(data, "avg_backward_compute_comm_overlap_time")
        warnings = []
        overlap = None
        if wire and hidden is not None:
            overlap = min(hidden / wire, 1.0)
        else:
            warnings.append("no time of communication was logged")
        name = str(data.get("module_name") or "model")[:80]
        return Findings(
            path.name,
            layers=(LayerSeconds(name, forward, backward),),
            warnings=tuple(warnings),
            notes=_notes(data, wire),
            overlap=overlap,
        )


def _seconds(data: Mapping[str, Any], key: str) -> float | None:
    """The time [s] that `key` gives in ns (dumps may hold it as text); None where it is absent."""
    value = data.get(key)
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise Refused(f"{str(value)[:40]!r} is not a number", (key,)) from None
    if isinstance(value, bool) or not math.isfinite(number) or number < 0:
        raise Refused(f"{str(value)[:40]} is no time", (key,))
    return number * 1e-9


def _notes(data: Mapping[str, Any], wire: float | None) -> tuple[str, ...]:
    said = [f"{key} {str(data[key])[:60]}" for key in ("world_size", "backend_name") if key in data]
    sizes = str(data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes") or "")
    if sizes:
        said.append(f"buckets of {sizes[:120]} bytes")
    if wire:
        said.append(f"communication {wire * 1e3:.4g} ms from the first launch to the last end")
    return ("DDP logging data: " + ", ".join(said),) if said else ()
