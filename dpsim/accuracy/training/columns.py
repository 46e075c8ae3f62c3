"""Columns of a table of training runs: their names, what people call them, and which nobody reads.

>>> named(["GPUs", "Batch per GPU", "per_gpu_batch_size", "Colour"])
('total_gpus', 'batch_per_gpu', 'batch_per_gpu', 'colour')
>>> list(unread(["accelerator", "batch_size", "colour"]))
['column batch_size is not read; batch_per_gpu or global_batch is', 'column colour is not read']
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence

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


def measured_in(columns: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """`columns` with the one that holds what was measured as `value`, where none is called so, and
    the unit that its name says; "" where a column tells it.

    >>> measured_in(["model", "throughput (img/s)"]), measured_in(["step time (ms)"])
    ((('model', 'value'), 'img/s'), (('value',), 'ms'))
    >>> measured_in(["throughput_global", "throughput_unit"]), measured_in(["throughput", "unit"])
    ((('value', 'unit'), ''), (('value', 'unit'), ''))
    """
    if {"value", "step_time_s"} & set(columns):
        return tuple(columns), ""
    units = {name: _unit_in(name) for name in columns}
    held = next((name for name in columns if units[name]), "")
    if held:
        return tuple("value" if name == held else name for name in columns), units[held]
    own = {"throughput": "value", "throughput_global": "value"}
    if not {"unit", "throughput_unit"} & set(columns):
        return tuple(columns), ""
    own |= {} if "unit" in columns else {"throughput_unit": "unit"}
    made = tuple(own.get(name, name) for name in columns)
    return (made, "") if made.count("value") == 1 else (tuple(columns), "")


def plain_unit(text: str) -> str:
    """The unit `text` as the vocabulary writes it, where it is one in other words; else as it is.

    >>> plain_unit("Samples per second per GPU"), plain_unit("Sec/step"), plain_unit("TFLOPS/GPU")
    ('samples/s/gpu', 'sec/step', 'tflop/s/gpu')
    >>> plain_unit("tokens per GPU per second"), plain_unit("tps"), plain_unit("parsecs")
    ('tokens/gpu/s', 'tokens/s', 'parsecs')
    """
    words = vocabulary().tables
    low = re.sub(r"\s*(?:/|\bper\b)\s*", "/", text.strip().lower())
    low = re.sub(r"(?<=/)sec(?:ond)?s?(?=/|$)", "s", low)
    low = re.sub(r"^t(?:era)?flops?(?:/s)?(?=/|$)", "tflop/s", low)
    low = words.rates.get(low, low)
    known = low in words.times or low in words.run_times or words.throughput.fullmatch(low)
    return low if known else text


def _unit_in(name: str) -> str:
    """The unit that is all of `name` but the word for what was measured; "" without one."""
    words = vocabulary().tables
    bare = re.sub(r"^(?:(?:step|iteration) ?time|throughput|speed|rate|time)\b", "", name)
    unit = bare.strip(" ()[],:=")
    return unit if unit in words.times or words.throughput.fullmatch(unit) else ""


def unread(columns: Iterable[str]) -> Iterator[str]:
    """A sentence for each of these `columns`, under their own names, that nobody reads, with what
    is read instead, where something is near."""
    unclear = {_words(name): meant for name, meant in vocabulary().tables.unclear.items()}
    for name in columns:
        if name in READ or _BESIDE.fullmatch(name):
            continue
        near = difflib.get_close_matches(name, sorted(READ), 1, _ALIKE)
        meant = unclear.get(_words(name)) or "".join(near)
        yield f"column {name[:60]} is not read" + (f"; {meant} is" if meant else "")
