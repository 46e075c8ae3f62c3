"""Other simulators' published rows beside dpsim's: measured, theirs, ours, row by row.

    python validation/peers.py [TABLE] [--training TABLE] [--write]

TABLE (published/peers.csv) has the runs that a peer measured and predicted itself, in its own
units.  Printed are, for each, the measured step and the errors of the peer, of dpsim uncalibrated
(and whether the run lies inside its 90 % interval), and of dpsim calibrated on one run of its
model: the first row that names it.  Then the peak of what tensors take
(torch.cuda.max_memory_allocated of the fullest rank) and the errors of both.  `--write` puts all
of it into peers.md.

What SimuMax's rows do not say is taken from its launchers (simu_tools/megatron_scripts/scripts in
the same commit): Megatron's distributed optimizer, gradients added up in fp32, nothing overlapped
with gradients, sequence parallelism, no recomputation, all-to-alls for context; of experts also
capacity 1 with padding (every expert gets as much), `alltoall`, one dense block.

vTrain prints no prediction per run, only a mean over 109; its 62 runs in --training
(published/training.csv) are listed with dpsim's errors alone, calibrated as `dpsim validate` does
and uncalibrated.  fit_training.py has seen their three series: these errors are in sample.

Nothing is fitted, and no constant of dpsim comes from the steps of TABLE; its widths of memory come
from the dense runs' figures (memory.py).
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import memory
from _peers_page import GIB, MeasuredPlan, PeerRow, Row, Told, page

from dpsim.accuracy.training.series import play_series
from dpsim.accuracy.training.table import read_table
from dpsim.cases.case import Case
from dpsim.core.errors import SimulationError
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.describe.sections import Calibrate
from dpsim.predict import shortened
from dpsim.predict.level import Level
from dpsim.predict.memory import memory_of
from dpsim.predict.uncertainty import interval
from dpsim.predict.widths import reference

HERE = Path(__file__).resolve().parent
TABLE, TRAINING = HERE / "published/peers.csv", HERE / "published/training.csv"
PAGE = HERE / "peers.md"
CONFIGS = HERE.parent / "dpsim/models/configs"
MACHINES = {"b200": "dgx-b200"}
#: what a run's model is made of: a bundled configuration, and what its launcher has otherwise.
#: 405B: `num_query_groups=16`; DeepSeek: `MOE_LAYER_FREQ`, and V2's sizes (configs/models/
#: deepseekv2.json and scripts/run_pretrain_deepseekv2.sh)
_V2 = {
    "hidden_size": 5120, "intermediate_size": 12288, "moe_intermediate_size": 1536,
    "n_routed_experts": 160, "n_shared_experts": 2, "num_experts_per_tok": 6,
    "vocab_size": 102400,
}  # fmt: skip
_DEEPSEEK = {"first_k_dense_replace": 1, "num_nextn_predict_layers": 0}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-3-70b": ("llama-3-70b", {}),
    "llama-3.1-405b": ("llama-3.1-405b", {"num_key_value_heads": 16}),
    "deepseek-v2": ("deepseek-v3", {**_DEEPSEEK, **_V2}),
    "deepseek-v3": ("deepseek-v3", _DEEPSEEK),
}


@dataclass(frozen=True)
class AnchorRun:
    """The run that the others of its model are calibrated on: the level that it sets for dpsim, and
    what the peer's step has to be multiplied by there."""

    row: Row
    case: Case
    level: Level
    factor: float


def scenario(row: Row, folder: Path) -> dict[str, Any]:
    """The run of a row; its model is written to `folder`."""
    if row["model"] not in MODELS or row["device"] not in MACHINES:
        raise Refused(f"{row['model']} on {row['device']} is not known here")
    base, changed = MODELS[row["model"]]
    data = json.loads((CONFIGS / f"{base}.json").read_text()) | changed
    name = f"{row['model']}-{row['blocks']}.json"
    text = json.dumps(data | {"num_hidden_layers": int(row["blocks"])})
    (folder / name).write_text(text, encoding="utf-8")
    axes = {key: int(row[key]) for key in ("tensor", "context", "pipeline", "expert")}
    found: dict[str, Any] = {
        "model": {"huggingface": name, "sequence_length": int(row["seq_len"])},
        "cluster": {"machine": MACHINES[row["device"]], "ranks": int(row["ranks"])},
        "strategy": {"kind": "megatron", "use_distributed_optimizer": True,
                     "grad_reduce_in_fp32": True},
        "parallel": {key: size for key, size in axes.items() if size > 1},
        "batch": {"per_device": int(row["per_device"]), "accumulation": int(row["accumulation"])},
        "precision": {"parameters": "bf16", "compute": "bf16", "reduce": "fp32"},
        "recompute": "none",
        "memory": {"kernels": "fused"},
    }  # fmt: skip
    if axes["tensor"] > 1:
        found["parallel"]["sequence_parallel"] = True
    if axes["context"] > 1:
        found["context"] = {"kind": "ulysses"}
    if axes["expert"] > 1:
        found["moe"] = {"imbalance": "balanced", "dispatcher": "all_to_all"}
    return found


def number(row: Row, name: str) -> float:
    """A cell that has to be a positive number."""
    found = float(row[name])
    if not (math.isfinite(found) and found > 0):
        raise Refused(f"{name}: {row[name]} is no positive number")
    return found


def case_of(row: Row, folder: Path) -> Case:
    return Case(load(scenario(row, folder), folder, "").points[0], folder)


def first_of(rows: Iterable[Row]) -> dict[str, Row]:
    """Of each model the run that the others are calibrated on."""
    found: dict[str, Row] = {}
    for row in rows:
        found.setdefault(row["model"], row)
    return found


def anchor_of(row: Row, folder: Path) -> AnchorRun:
    case, measured = case_of(row, folder), number(row, "measured_ms")
    level = shortened.level(case, Calibrate(step_time=measured / 1e3))
    return AnchorRun(row, case, level, measured / number(row, "peer_ms"))


def compared(rows: Sequence[Row], folder: Path) -> list[PeerRow]:
    """Every row that can be played; the others are named on stderr."""
    first, anchors, found = first_of(rows), dict[str, AnchorRun](), list[PeerRow]()
    for row in rows:
        name = row["model"]
        try:
            if name not in anchors:
                anchors[name] = anchor_of(first[name], folder)
            found.append(_compared(row, folder, anchors[name]))
        except (Refused, SimulationError, ValueError) as error:
            print(f"{row['row_id']}: {error}", file=sys.stderr)
    return found


def _compared(row: Row, folder: Path, anchor: AnchorRun) -> PeerRow:
    case, peer = case_of(row, folder), number(row, "peer_ms") / 1e3
    others = row is not anchor.row
    return PeerRow(
        row,
        number(row, "measured_ms") / 1e3,
        peer,
        _told(case),
        peer * anchor.factor if others else None,
        _told(anchor.level.of(case), anchor) if others else None,
        number(row, "measured_gib") * GIB,
        number(row, "peer_gib") * GIB,
        Told(*memory.compared({"what": "allocated"}, memory_of(case))),
    )


def _told(case: Case, anchor: AnchorRun | None = None) -> Told:
    """The step of `case`; calibrated on `anchor`, as `dpsim validate` has it, or not at all."""
    played = shortened.play(case, splits=False)
    base = anchor.case if anchor else None
    measured = number(anchor.row, "measured_ms") / 1e3 if anchor else 0.0
    ends = interval(
        case, played, base.ranks if base else None, shortened.lane_times, repeated=False,
        batches=math.log2(max(case.shares) / max(base.shares)) if base else None,
        linear=reference(base, measured).linear(case) if base else None,
    )  # fmt: skip
    return Told(played.step_time, ends.low, ends.high)


def plans(table: Path, source: str = "VTRAIN") -> list[MeasuredPlan]:
    """The runs of `source` that can be played; the others are named on stderr."""
    found = []
    for rows in read_table(table).series.values():
        if rows[0].text("source_id") != source:
            continue
        pairs = zip(rows, play_series(rows), play_series(rows, "none"), strict=True)
        for row, after, before in pairs:
            if before.status != "predicted" or after.status == "refused":
                reason = before.reason if before.status != "predicted" else after.reason
                print(f"{row.text('row_id')}: {reason}", file=sys.stderr)
                continue
            found.append(MeasuredPlan(row, after if after.status == "predicted" else None, before))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", nargs="?", type=Path, default=TABLE)
    parser.add_argument("--training", type=Path, default=TRAINING, help="vTrain's runs")
    parser.add_argument("--write", action="store_true", help="write peers.md, print nothing")
    asked = parser.parse_args(arguments)
    with asked.table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    with tempfile.TemporaryDirectory() as folder:
        found = compared(rows, Path(folder))
    text = page(found, plans(asked.training))
    if asked.write:
        PAGE.write_text(text, encoding="utf-8", newline="\n")
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
