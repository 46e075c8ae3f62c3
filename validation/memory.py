"""Memory of published runs beside what dpsim predicts.

    python validation/memory.py [TABLE ...] [--rows]

A TABLE has the columns of published/memory.csv, which is taken without one.  `what` says which
figure was published: `allocated` (what tensors take at the peak, torch.cuda.max_memory_allocated),
`reserved` (that and what the caching allocator holds beside it) or `total` (the device's).  Printed
are per source the rows, the mean and the worst error, the share of rows inside the interval, and
the rows above it, which could be called `yes` and not fit.  A run that was published again with
other micro-batches and the same bytes counts once.

Figures of the shipped table are in sample where it says `reserved`, and where the share inside the
interval is told: the shares of fragmentation and the width of what is allocated are read off these
very rows (`FRAGMENTATION`, `FRAGMENTATION_LAZY`, `ALLOCATED_ERROR` in dpsim/models/memory.py).  No
constant comes from the points of `allocated`.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from statistics import mean
from typing import Any

from dpsim.cases.case import Case
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.models.memory import MemoryUse
from dpsim.predict.memory import memory_of

TABLE = Path(__file__).parent / "published/memory.csv"
MACHINES = {"b200": "dgx-b200", "h100-sxm": "dgx-h100", "h200-sxm": "dgx-h200"}
#: parts that a published figure does not hold
WITHOUT = {"allocated": ("fragmentation", "runtime"), "reserved": ("runtime",), "total": ()}


def scenario_of(row: dict[str, str], folder: Path) -> dict[str, Any]:
    """The run of a row; its model is written to `folder` where it has another depth."""
    name = row["model"]
    if row["blocks"]:
        text = (resources.files("dpsim.models") / "configs" / f"{name}.json").read_text()
        data = json.loads(text) | {"num_hidden_layers": int(row["blocks"])}
        name = f"{name}-{row['blocks']}.json"
        (folder / name).write_text(json.dumps(data), encoding="utf-8")
    ranks, tensor, pipeline = (int(row[key]) for key in ("ranks", "tensor", "pipeline"))
    found: dict[str, Any] = {
        "model": {"huggingface": name, "sequence_length": int(row["seq_len"])},
        "cluster": {"machine": MACHINES[row["device"]], "ranks": ranks},
        "strategy": {"kind": row["strategy"], **_knobs(row["knobs"])},
        "batch": {"per_device": int(row["per_device"]), "accumulation": int(row["accumulation"])},
        "precision": {key: row[key] for key in ("parameters", "compute", "reduce")},
        "recompute": row["recompute"],
        "memory": {key: row[key] for key in ("kernels", "loss") if row[key]},
    }
    if tensor * pipeline > 1:
        flag = row["sequence_parallel"] == "1"
        found["parallel"] = {"tensor": tensor, "pipeline": pipeline, "sequence_parallel": flag}
    return found


def _knobs(text: str) -> dict[str, Any]:
    pairs = (pair.split("=") for pair in text.split(";") if pair)
    return {key: json.loads(value) for key, value in pairs}


def distinct(rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """The rows without those that repeat the bytes of a run with another number of micro-batches:
    a pipeline or an accumulation that keeps as much is no second measurement."""
    names = ("row_id", "source_loc", "accumulation")
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        found.setdefault(tuple(v for k, v in row.items() if k not in names), row)
    return list(found.values())


def compared(row: dict[str, str], used: MemoryUse) -> tuple[float, float, float]:
    """What is predicted of what was published: the point and both ends [B]."""
    out = sum(used.parts.get(name, 0.0) for name in WITHOUT[row["what"]])
    return used.total - out, used.low - min(out, 0.5e9 * bool(out)), used.high


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tables", nargs="*", type=Path, default=[TABLE])
    parser.add_argument("--rows", action="store_true", help="print every row")
    args = parser.parse_args()
    errors: dict[str, list[float]] = defaultdict(list)
    inside: dict[str, list[bool]] = defaultdict(list)
    above: dict[str, int] = defaultdict(int)
    refused: dict[str, int] = defaultdict(int)
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for table in args.tables for row in csv.DictReader(table.open())]
        for row in distinct(rows):
            key = f"{row['source_id']} {row['framework']} {row['what']}"
            measured = float(row["bytes"])
            try:
                data = scenario_of(row, Path(folder))
                used = memory_of(Case(load(data, Path(folder), "").points[0], Path(folder)))
            except Refused as error:
                refused[key] += 1
                print(f"{row['row_id']}: {error}", file=sys.stderr)
                continue
            point, low, high = compared(row, used)
            errors[key].append(point / measured - 1)
            inside[key].append(low <= measured <= high)
            above[key] += measured > high
            if args.rows:
                _tell(row, measured, point, used)
    for key, found in errors.items():
        sizes = [abs(one) for one in found]
        print(
            f"{key:34} rows {len(found):4}  mean |error| {mean(sizes):6.1%}"
            f"  bias {mean(found):+.1%}  worst {max(sizes):6.1%}  inside {mean(inside[key]):.0%}"
            f"  above {above[key]}  refused {refused[key]}"
        )
    return 0


def _tell(row: dict[str, str], measured: float, point: float, used: MemoryUse) -> None:
    parts = ", ".join(f"{name} {size / 1e9:.1f}" for name, size in used.parts.items())
    print(
        f"{row['row_id']} {row['source_loc'][:40]:40} {measured / 1e9:7.2f} {point / 1e9:7.2f} GB "
        f"{point / measured - 1:+6.1%}  {parts}"
    )


if __name__ == "__main__":
    sys.exit(main())
