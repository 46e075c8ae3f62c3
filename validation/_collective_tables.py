"""Tables of measured collectives as the fitting programs take them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dpsim.accuracy.collectives.table import CollectiveTable, issued, read_collectives

#: how many GPUs a thread of nccl-tests had, where logs say so and a table may lack the column, by
#: the beginning of the series: "nThread 1 nGpus 8" (microsoft/superbenchmark 700d6501
#: tests/data/nccl_*.log)
GPUS_PER_THREAD = {"superbench_a100_": 8}


def read(path: Path) -> CollectiveTable:
    """The table at `path`; Refused where it is none."""
    table = read_collectives(path)
    known = (
        next((n for name, n in GPUS_PER_THREAD.items() if row.series.startswith(name)), None)
        for row in table.rows
    )
    rows = [
        row if gpus is None else replace(row, gpus_per_thread=gpus)
        for row, gpus in zip(table.rows, known, strict=True)
    ]
    return replace(table, rows=issued(rows))
