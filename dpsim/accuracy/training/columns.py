"""Columns of a table of training runs: their names, what people call them, and which nobody reads.

>>> named(["GPUs", "Batch per GPU", "per_gpu_batch_size", "Colour"])
('total_gpus', 'batch_per_gpu', 'batch_per_gpu', 'colour')
>>> list(unread(["accelerator", "batch_size", "colour"]))
['column batch_size is not read; batch_per_gpu or global_batch is', 'column colour is not read']
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator

from dpsim.accuracy.words import vocabulary

#: columns that say what was run, and where; the rest of the schema is read by nobody
READ = frozenset(
    (
        "row_id", "series_id", "role", "quality", "source_id", "source_repo",
        "source_commit_date", "data_date", "model", "params_m", "task", "padding", "framework",
        "strategy", "strategy_detail", "precision", "accelerator", "gpus_per_node", "nodes",
        "total_gpus", "intra_node", "inter_node", "inter_gbits_s_per_node", "batch_per_gpu",
        "grad_accum", "global_batch", "batch_unit", "seq_len", "tp", "pp", "dp", "cp", "ep",
        "tensor_groups", "schedule", "shard", "act_ckpt", "loader", "compression", "metric",
        "value", "unit", "rel_unc_pct", "throughput_global", "throughput_unit", "step_time_s",
        "tflops_per_gpu", "notes",
    )
)  # fmt: skip
#: of the schema, what tells where a figure is from, and how sure it is
_BESIDE = re.compile(
    r"source_\w+|\w+_src|license|scaling|fabric_status|value_kind|mfu_pct|intra_gbytes_s"
)
#: how alike the spelling of a column is to one that may be meant
_ALIKE = 0.75


def named(given: Iterable[str]) -> tuple[str, ...]:
    """The columns under their own names: without capitals, and however their words are joined and
    ordered; others as they are, in small letters."""
    own = {name: name for name in READ} | dict(vocabulary().tables.columns)
    words = {_words(name): meant for name, meant in own.items()}
    return tuple(words.get(_words(name), name.lower()) for name in given)


def _words(name: str) -> tuple[str, ...]:
    return tuple(sorted(re.findall(r"[a-z0-9]+", name.lower())))


def unread(columns: Iterable[str]) -> Iterator[str]:
    """A sentence for each of these `columns`, under their own names, that nobody reads, with what
    is read instead, where something is near."""
    unclear = vocabulary().tables.unclear
    for name in columns:
        if name in READ or _BESIDE.fullmatch(name):
            continue
        near = difflib.get_close_matches(name, sorted(READ), 1, _ALIKE)
        meant = unclear.get(name.replace(" ", "_")) or "".join(near)
        yield f"column {name[:60]} is not read" + (f"; {meant} is" if meant else "")
