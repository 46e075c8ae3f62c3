"""Published steps of dense models on Hopper and Blackwell against what dpsim says of them.

    python validation/dense.py TABLE

TABLE is that of `experts.py`, of which this reads NVIDIA's rows of Llama 3 (Megatron-Bridge); what
rows do not say is taken as there.  It prints, by device and dtype, by how much uncalibrated steps
are predicted too long or too short, and how many lie inside their 90 % intervals.  Shares of the
peak on Blackwell were chosen with these rows in view (docs/assumptions.md, A88).
"""

from __future__ import annotations

import csv
import math
import re
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import experts

from dpsim.core.errors import SimulationError
from dpsim.core.record import Refused


class Scored(NamedTuple):
    """ln(predicted / measured), and whether the measured step lies inside the interval."""

    late: float
    inside: bool


def scenario(row: experts.Row, folder: Path) -> dict[str, Any]:
    """A row as a scenario; Refused where it is none."""
    found = experts.scenario(row | {"strategy": _without_experts(row["strategy"])}, folder)
    del found["moe"]
    for key in ("expert", "expert_tensor"):
        found["parallel"].pop(key, None)
    return found


def _without_experts(strategy: str) -> str:
    return f"{re.sub(r'EP ?n/a', '', strategy)} EP1"


def scored(row: experts.Row, folder: Path) -> Scored:
    data = scenario(row, folder)
    truth = experts.measured(row, data)
    data["engine"] = "auto"
    step, ends = experts.shown(data, folder)
    return Scored(math.log(step / truth), ends.low <= truth <= ends.high)


def rows_of(table: Path) -> list[experts.Row]:
    """The rows of dense models that state tokens a second."""
    with table.open(newline="", encoding="utf-8") as file:
        return [
            row
            for row in csv.DictReader(file)
            if row["source"].startswith("Megatron-Bridge performance")
            and row["model"].startswith("LLAMA3")
            and row["metric"] == "tokens/s/GPU"
        ]


def main() -> int:
    if len(sys.argv) != 2:
        print("dense.py: which table?  A CSV of published rows is accepted", file=sys.stderr)
        return 2
    found: dict[str, list[Scored]] = defaultdict(list)
    refused: dict[str, int] = defaultdict(int)
    with tempfile.TemporaryDirectory() as place:
        for row in rows_of(Path(sys.argv[1])):
            try:
                one = scored(row, Path(place))
            except (Refused, SimulationError) as error:
                refused[str(error)[:70]] += 1
                continue
            found[f"{row['hardware']} {experts.dtype_of(row)}"].append(one)
            found["all"].append(one)
    for reason, count in sorted(refused.items()):
        print(f"refused {count:4}: {reason}")
    for name, own in sorted(found.items()):
        late = [math.expm1(one.late) for one in own]
        print(
            f"{name:18} {len(own):3} rows: median {statistics.median(late):+.1%}, "
            f"{min(late):+.0%} … {max(late):+.0%}, inside {sum(one.inside for one in own)}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
