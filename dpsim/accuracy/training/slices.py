"""How many slices of TPUs a row of a table of training runs has, as its words say it."""

from __future__ import annotations

from dpsim.accuracy.training.table import TrainingRow
from dpsim.accuracy.words import vocabulary

#: the columns whose words may tell it
_COLUMNS = (
    "accelerator", "intra_node", "inter_node", "strategy", "strategy_detail", "shard", "notes",
)  # fmt: skip


def slices_of(row: TrainingRow) -> int | None:
    """The slices of `row`, joined by the data centre's network: as counted, else as many as `dp`
    where they are said to be its replicas; None where nothing is said."""
    words, text = vocabulary().slices, " | ".join(map(row.text, _COLUMNS)).lower()
    if told := words.counted.search(text):
        return int(told[1])
    if words.one.search(text):
        return 1
    replicas = row.get("dp")
    return int(replicas) if replicas and words.replicas.search(text) else None
