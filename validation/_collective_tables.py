"""Tables of measured collectives as the fitting programs take them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dpsim.accuracy.collectives.table import (
    CollectiveRow,
    CollectiveTable,
    issued,
    read_collectives,
)

#: how many GPUs a thread of nccl-tests had, where logs say so and a table may lack the column, by
#: the beginning of the series: "nThread 1 nGpus 8" (microsoft/superbenchmark 700d6501
#: tests/data/nccl_*.log)
GPUS_PER_THREAD = {"superbench_a100_": 8}


def read(path: Path) -> CollectiveTable:
    """The table at `path`; Refused where it is none."""
    table = read_collectives(path)
    return replace(table, rows=issued([_threaded(row) for row in table.rows]))


def _threaded(row: CollectiveRow) -> CollectiveRow:
    """`row` with the GPUs of a thread that its series is known to have had."""
    told = (n for name, n in GPUS_PER_THREAD.items() if row.series.startswith(name))
    return replace(row, gpus_per_thread=next(told, row.gpus_per_thread))
