"""From the words of a row of a table of training runs to the `strategy:` section of a scenario.

What no strategy plays is refused by name.  Where a row leaves open what a strategy has to know, a
default of the system itself is taken and told in the row's notes, or the row is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from dpsim.accuracy.rules import KeyRule, meaning, told
from dpsim.accuracy.training import compared
from dpsim.accuracy.training.slices import slices_of
from dpsim.accuracy.training.table import TrainingRow
from dpsim.accuracy.words import vocabulary
from dpsim.core import plugins
from dpsim.core.record import Refused

#: the columns whose words tell the strategy
_COLUMNS = ("strategy", "strategy_detail", "framework", "compression", "shard")
#: from this month on Horovod has its defaults of 0.21 (2020-11-23)
_HOROVOD_21 = "2020-11"


def through_servers(row: TrainingRow) -> bool:
    """Whether gradients go through parameter servers."""
    return vocabulary().strategies.servers.search(_said(row)) is not None


def _said(row: TrainingRow) -> str:
    """What the columns say of the strategy, without what they say that it may be or is not."""
    words = vocabulary().strategies
    text = " | ".join(row.text(column) for column in _COLUMNS).lower()
    text = words.perhaps.sub("", words.repositories.sub("", text))
    found = compared.said(text, vocabulary().models.lora)
    return _affirmed(text if found.compared else found.text)


def _telling(row: TrainingRow, rule: re.Pattern[str]) -> str:
    """The cell of `row` in which `rule` finds its words; the strategy where none has them alone."""
    cells = (row.text(column) for column in (*_COLUMNS, "model"))
    return next((cell for cell in cells if rule.search(cell.lower())), row.text("strategy"))


def _affirmed(text: str) -> str:
    """`text` without the strategies that it denies."""
    return vocabulary().strategies.denied.sub("", text)


def strategy_of(row: TrainingRow, notes: list[str]) -> dict[str, Any]:
    """The `strategy:` section of `row`; appends to `notes` what is assumed.

    Raises Refused, naming the system, where no strategy plays it or a fact about it is missing.
    """
    words, text = vocabulary().strategies, _said(row)
    refused = meaning(words.refused, f"{text} | {row.text('model').lower()}")
    if refused is not None:
        raise Refused(f"{refused} ({_telling(row, words.refused[refused])[:60]})")
    _require_servers_beside(row, text)
    named = row.text("strategy")
    if named and not re.search(r"\w", _affirmed(named.lower())):
        if row.gpus == 1:
            return {"kind": "ddp"}
        if words.sharded.search(named.lower()):
            notes.append("parameters are not shared out, and PyTorch DDP is taken")
            return {"kind": "ddp"}
        raise Refused(f"strategy {named[:60]!r} only says what it is not")
    data, more = next(told(words.kinds, text, row.text), ({}, []))
    if not data:
        raise Refused(f"strategy {row.text('strategy')!r} is not known")
    notes += more
    kind = data["kind"]
    if kind not in plugins.names("strategies"):
        raise Refused(f"{kind} is not modelled ({row.text('strategy')})")
    if kind in _FACTS:
        _FACTS[kind](data, text, row, notes)
    for keys, more in told(words.switches.get(kind, ()), text, row.text):
        data |= keys
        notes += more
    _compress(data, text, row, notes)
    return data


def _require_servers_beside(row: TrainingRow, text: str) -> None:
    """Raise Refused where parameters lie on the hosts of several nodes of workers, which share
    their NICs: servers between nodes are played as machines of their own."""
    nodes = row.get("nodes") or row.gpus / (row.get("gpus_per_node") or row.gpus)
    if nodes > 1 and vocabulary().strategies.servers_on_hosts.search(text):
        named = row.text("strategy")[:60]
        raise Refused(f"a parameter server on the workers' own hosts is read in one node ({named})")


def optimizer_of(row: TrainingRow, kind: str, notes: list[str]) -> dict[str, Any]:
    """The `optimizer:` section of `row`, whose optimizer is of `kind`; appends to `notes` what is
    known of its update."""
    return {"kind": kind, **of_system(vocabulary().optimizer, row, notes)}


def of_system(rules: Iterable[KeyRule], row: TrainingRow, notes: list[str]) -> dict[str, Any]:
    """Keys of the first of `rules` that applies to what `row` says of its strategy, and its notes
    in `notes`."""
    keys, more = next(told(rules, _said(row), row.text), ({}, []))
    notes += more
    return keys


# -- what a strategy takes from the facts of a row ------------------------------------------------


def _ddp(data: dict[str, Any], text: str, row: TrainingRow, notes: list[str]) -> None:
    words, own = vocabulary().strategies, row.text("framework")
    if words.servers.search(text):
        return
    if own and not words.no_overlap.search(text) and not words.torch.search(own.lower()):
        notes.append(f"{own}'s own gradient exchange is played as PyTorch DDP's")


def _fsdp(data: dict[str, Any], text: str, row: TrainingRow, notes: list[str]) -> None:
    """The ranks that share the parameters in hybrid sharding: as stated, else, of FSDP1, those of a
    node, which it takes by itself (torch/distributed/fsdp/_init_utils.py); of slices of TPUs that
    are replicas, the chips of a slice."""
    words = vocabulary().strategies
    if shard := _of_axes(row, notes):
        data["shard"] = shard
        if data["kind"] == "fsdp1":
            data["sharding_strategy"] = "HYBRID_SHARD"
        return
    if not words.hybrid.search(text):
        return
    stated, per_node = words.shared_by.search(text), row.get("gpus_per_node")
    if stated or row.text("shard").isdecimal():
        data["shard"] = int(stated[1] if stated else row.text("shard"))
        return
    if per_node and words.within_node.search(text):
        data["shard"] = int(per_node)
        return
    by_node = data["kind"] == "fsdp1"
    if not by_node or not per_node:
        what = "shard=N or gpus_per_node" if by_node else "shard=N"
        raise Refused(
            f"hybrid sharding over groups of unknown size; {what} in column shard would tell "
            f"({row.text('strategy')})"
        )
    notes.append(f"parameters are shared by the {int(per_node)} ranks of a node, FSDP1's default")
    data["shard"] = int(per_node)


def _of_axes(row: TrainingRow, notes: list[str]) -> int:
    """The ranks that share parameters where others hold them too, by the axes of a mesh ("data 4 x
    fsdp 64") or by slices of TPUs with data parallelism between them; 0 where nothing says so."""
    axes = vocabulary().strategies.axes.search(row.text("shard").lower())
    if axes and int(axes[1]) > 1:
        return int(axes[2])
    text = row.strategy_words
    slices = slices_of(row) or 1
    if slices == 1 or not vocabulary().slices.replicas.search(text) or row.gpus % slices:
        return 0
    notes.append(f"parameters are shared by the {row.gpus // slices} chips of a slice")
    return row.gpus // slices


def _zero(data: dict[str, Any], text: str, row: TrainingRow, notes: list[str]) -> None:
    words, own = vocabulary().strategies, row.text("framework")
    if data["stage"] < 3 and own and not words.deepspeed.search(own.lower()):
        notes.append(f"{own}'s ZeRO is played as DeepSpeed's with overlap_comm")
        data["overlap_comm"] = True
    if match := words.partition.search(row.text("shard")):
        data["partition_size"] = int(match[1])
    parts = (words.weights, words.copies, words.gradients)
    named = [part.search(text) is not None for part in parts]
    if any(named) or words.zero_plus.search(text):
        _plus(data, named if any(named) else [True] * len(parts), row, notes)


def _plus(data: dict[str, Any], parts: list[bool], row: TrainingRow, notes: list[str]) -> None:
    """ZeRO++ with these of its parts (weights, copies, gradients); groups are nodes
    (deepspeedai/DeepSpeed docs/_tutorials/zeropp.md)."""
    weights, copies, gradients = parts
    stated = row.get("gpus_per_node")
    if (copies or gradients) and not stated:
        raise Refused("ZeRO++ exchanges inside a node first; gpus_per_node is not stated")
    node = min(int(stated or 1), row.gpus)
    if weights:
        data["zero_quantized_weights"] = True
    if copies and node > 1:
        notes.append(f"hpZ's groups are nodes, {node} ranks")
        data["zero_hpz_partition_size"] = node
    if gradients:
        data["zero_quantized_gradients"] = True
        data["local_world_size"] = node


def _horovod(data: dict[str, Any], text: str, row: TrainingRow, notes: list[str]) -> None:
    if vocabulary().strategies.by_mpi.search(text):
        notes.append("an exchange by MPI is played as NCCL's")
    if vocabulary().strategies.hierarchical.search(text):
        per_node = row.get("gpus_per_node")
        if not per_node:
            raise Refused("a hierarchical all-reduce needs gpus_per_node, which is not stated")
        data |= {"hierarchical_allreduce": True, "local_size": min(int(per_node), row.gpus)}
    if (date := date_of(row)) and date < _HOROVOD_21:
        notes.append(f"Horovod's defaults before 0.21, as the run is of {date}")
        data["horovod"] = "0.20"


def _gossip(data: dict[str, Any], text: str, row: TrainingRow, notes: list[str]) -> None:
    """Workers are ranks, or nodes whose ranks average among themselves first."""
    notes.append("a neighbour a step, beside the next one, as in Bluefog's benchmark")
    if vocabulary().strategies.hierarchical.search(text):
        data["inner"] = {"kind": "ddp"}


_FACTS = {
    "ddp": _ddp, "fsdp": _fsdp, "fsdp1": _fsdp, "zero": _zero, "horovod": _horovod,
    "gossip": _gossip,
}  # fmt: skip


def date_of(row: TrainingRow) -> str:
    """When it was run, "2020-06": as stated, else the month of NVIDIA's container, else that of
    the source's commit; empty where nothing tells."""
    container = re.search(r"\b(\d\d)\.(0[1-9]|1[0-2])\b", row.text("framework"))
    stated = row.text("data_date")
    if re.match(r"20\d\d-\d\d", stated):
        return stated[:7]
    if container and 17 <= int(container[1]) <= 40:
        return f"20{container[1]}-{container[2]}"
    return row.text("source_commit_date")[:7]


def compression_of(strategy: dict[str, Any]) -> dict[str, Any]:
    """The `compression:` section that `strategy_of` found, taken out of its `strategy`."""
    return {key: strategy.pop(key) for key in ("compression",) if key in strategy}


def _compress(data: dict[str, Any], text: str, row: TrainingRow, notes: list[str]) -> None:
    """What gradients become.  What is not known is refused, never played whole."""
    words = vocabulary().strategies
    text = words.not_compressed.sub("", text)
    column = words.not_compressed.sub("", row.text("compression").lower()).strip()
    hook, named = words.hook.search(text), words.compressed.search(column)
    unsaid = words.uncompressed.search(column) is not None
    coded, said = next(told(words.compressions, text, row.text), ({}, []))
    if unsaid and not hook and not coded:
        return
    if "zero_quantized_weights" in data or "zero_quantized_gradients" in data:
        return
    if coded and data["kind"] == "ddp":
        data["comm_hook"] = coded
        notes += said
        return
    sixteen = (hook and (hook[1] or hook[2])) or (named and named[1])
    if data["kind"] == "horovod" and sixteen == "fp16":
        data["compression"] = sixteen
        return
    if data["kind"] != "ddp" or not sixteen:
        what = "a communication hook" if unsaid else column
        raise Refused(f"compressed communication is not modelled ({what[:40]} with {data['kind']})")
    data["comm_hook"] = sixteen
