"""A row of a table of training runs, and what dpsim makes of it."""

from __future__ import annotations

from pathlib import Path

from dpsim.accuracy.training.scenarios import MeasuredCase, measured_case
from dpsim.accuracy.training.table import TrainingRow, read_table

ROW = {
    "model": "ResNet-50", "accelerator": "A100-SXM4-80GB", "gpus_per_node": "8",
    "total_gpus": "8", "strategy": "DDP", "framework": "PyTorch 2.2", "precision": "FP32",
    "batch_per_gpu": "64", "value": "1.0", "unit": "s",
}  # fmt: skip
BERT = {"model": "BERT-Large", "seq_len": "512", "batch_per_gpu": "4", "value": "1000"}
LLAMA = {"model": "Llama-2-7B", "seq_len": "2048", "batch_per_gpu": "1", "precision": "BF16"}


def measured(folder: Path, **cells: str) -> MeasuredCase:
    """The case of that row with other `cells`, by a table in `folder`."""
    return measured_case(row_of(folder, **cells))


def row_of(folder: Path, **cells: str) -> TrainingRow:
    """That row with other `cells`, by a table in `folder`."""
    row = {**ROW, **cells}
    table = folder / "rows.csv"
    lines = (",".join(f'"{text}"' for text in texts) for texts in (row.keys(), row.values()))
    table.write_text("\n".join(lines) + "\n")
    (only,) = (row for rows in read_table(table).series.values() for row in rows)
    return only
