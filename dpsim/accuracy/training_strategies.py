"""From the words of a row of a table of training runs to the `strategy:` section of a scenario.

What no strategy plays is refused by name.  Where a row leaves open what a strategy has to know, a
default of the system itself is taken and told in the row's notes, or the row is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dpsim.accuracy.training_table import Row
from dpsim.core import plugins
from dpsim.core.record import Refused

#: what is refused, by words of the columns strategy, strategy_detail, framework and compression
_REFUSED = (
    (r"decentrali|neighbou?r aver", "decentralised averaging is not modelled"),
    (r"parameter.server|\bps\b|byteps", "a parameter server is not modelled"),
    (
        r"\b(?:1|one)-?bit|onebit|powersgd|\bdgc\b|top-?k\b|random-?k\b|qsgd|signsgd|terngrad",
        "compressed communication is not modelled",
    ),
    (r"mg-wfbp", "MG-WFBP's merging of gradients is not modelled"),
    (r"bytescheduler", "ByteScheduler's partitioning and priorities are not modelled"),
    (r"async(?![- ]?tp)|stale|local sgd|easgd", "asynchronous training is not modelled"),
    (r"\blora\b", "LoRA, which trains a small part of the parameters, is not modelled"),
    (r"zero-?infinity|nvme", "offloading to NVMe is not modelled"),
)
_COLUMNS = ("strategy", "strategy_detail", "framework", "compression", "shard")
#: texts of column compression that say that nothing is compressed
_UNCOMPRESSED = r"|-|no|off|n/?a|(?:none|uncompressed|not (?:stated|used))\b.*"
#: the three parts of ZeRO++ (Wang et al., arXiv:2306.10209): weights, a second copy, gradients
_PLUS = (r"\bqwz\b", r"\bhpz\b", r"\bqgz\b")
#: words of torch.distributed.fsdp (ShardingStrategy, FullyShardedDataParallel), which FSDP2
#: (fully_shard) does not have
_FSDP1 = r"fsdp-?1\b|full_shard|shard_grad_op|hybrid_shard|fullysharded ?data ?parallel"
#: Composer and llm-foundry before Composer 0.31: FSDP1, and not torch's prefetching
#: (mosaicml/composer composer/utils/parallelism.py, FSDPConfig)
_COMPOSER = r"composer|llm-?foundry|mosaic"
_FSDP = r"fsdp|full_shard|shard_grad_op|fully_?shard|hybrid_shard|hsdp|hybrid shard"


def strategy_of(row: Row, notes: list[str]) -> dict[str, Any]:
    """The `strategy:` section of `row`; appends to `notes` what is assumed.

    Raises Refused, naming the system, where no strategy plays it or a fact about it is missing.
    """
    words = " | ".join(row.text(column) for column in _COLUMNS).lower()
    for pattern, reason in _REFUSED:
        if re.search(pattern, words):
            raise Refused(f"{reason} ({row.text('strategy')})")
    found = _found(words, row, notes)
    _compress(found, words, row)
    return found


def _found(words: str, row: Row, notes: list[str]) -> dict[str, Any]:
    """The strategy that `words` name, without compression."""
    if re.search(_FSDP, words):
        return _fsdp(words, row, notes)
    if match := re.search(r"zero-?([123])", words):
        return _zero(int(match[1]), words, row, notes)
    if re.search(r"zero\+\+", words):
        return _zero(3, words, row, notes)
    for pattern, made in _NAMED:
        if re.search(pattern, words):
            return made(words, row, notes)
    if "horovod" in words and "no overlap" not in words:
        return _horovod(words, row, notes)
    if re.search(r"megatron", row.text("framework").lower()):
        return _megatron(words, row)
    if not re.search(r"all-?reduce|\bddp\b|data.parallel|\b[dtp]p\b|^ \|", words):
        raise Refused(f"strategy {row.text('strategy')!r} is not known")
    return _ddp(words, row, notes)


def _ddp(words: str, row: Row, notes: list[str]) -> dict[str, Any]:
    own = row.text("framework")
    if (
        own
        and "no overlap" not in words
        and not re.search(r"pytorch|torch|lightning|accelerate", own.lower())
    ):
        notes.append(f"{own}'s own gradient exchange is played as PyTorch DDP's")
    if "no overlap" in words:
        notes.append("gradients are exchanged after backward, in one bucket")
        return {"kind": "ddp", "bucket_cap_mb": 1_000_000}
    return {"kind": "ddp"}


# -- sharded --------------------------------------------------------------------------------------


def _fsdp(words: str, row: Row, notes: list[str]) -> dict[str, Any]:
    """FSDP1 where the row has its words or Composer's, else FSDP2."""
    composer = re.search(_COMPOSER, words) is not None
    hybrid = re.search(r"hybrid|hsdp", words) is not None
    if not (composer or re.search(_FSDP1, words)):
        data = _known("fsdp", row)
        if hybrid:
            data["shard"] = _hybrid(words, row)
        return data
    data = _known("fsdp1", row)
    if hybrid:
        zero2 = "zero2" in words or "zero-2" in words
        data["sharding_strategy"] = "_HYBRID_SHARD_ZERO2" if zero2 else "HYBRID_SHARD"
        data["shard"] = _hybrid(words, row, notes)
    elif "shard_grad_op" in words:
        data["sharding_strategy"] = "SHARD_GRAD_OP"
    if composer:
        notes.append("FSDP1 with Composer's defaults, backward_prefetch BACKWARD_POST")
        data["backward_prefetch"] = "BACKWARD_POST"
    return data


def _hybrid(words: str, row: Row, notes: list[str] | None = None) -> int:
    """Ranks that share the parameters in hybrid sharding: as stated, else, where `notes` are
    given, those of a node, which FSDP1 takes by itself (torch/distributed/fsdp/_init_utils.py)."""
    stated = re.search(r"\b(?:group|shard(?:ing)?(?: (?:size|degree))?|dp_shard)[ =:]*(\d+)", words)
    if stated:
        return int(stated[1])
    per_node = row.get("gpus_per_node")
    if notes is None or not per_node:
        what = "shard=N" if notes is None else "shard=N or gpus_per_node"
        raise Refused(
            f"hybrid sharding over groups of unknown size; {what} in column shard would tell "
            f"({row.text('strategy')})"
        )
    notes.append(f"parameters are shared by the {int(per_node)} ranks of a node, FSDP1's default")
    return int(per_node)


def _zero(stage: int, words: str, row: Row, notes: list[str]) -> dict[str, Any]:
    data = {**_known("zero", row), "stage": stage}
    own = row.text("framework")
    if stage < 3 and own and "deepspeed" not in own.lower():
        notes.append(f"{own}'s ZeRO is played as DeepSpeed's with overlap_comm")
        data["overlap_comm"] = True
    if match := re.search(r"group=(\d+)", row.text("shard")):
        data["partition_size"] = int(match[1])
    if re.search(r"zero\+\+", words) or any(re.search(part, words) for part in _PLUS):
        _plus(data, words, row, notes)
    if re.search(r"zero-?offload|offload_optimizer|optimizer offload(?!.*where needed)", words):
        data["offload_optimizer"] = "cpu"
    return data


def _plus(data: dict[str, Any], words: str, row: Row, notes: list[str]) -> None:
    """ZeRO++: the parts that the row names, all three where it names none; groups are nodes
    (deepspeedai/DeepSpeed docs/_tutorials/zeropp.md)."""
    named = [re.search(part, words) is not None for part in _PLUS]
    weights, copies, gradients = named if any(named) else (True, True, True)
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


# -- replicated -----------------------------------------------------------------------------------


def _data_parallel(words: str, row: Row, notes: list[str]) -> dict[str, Any]:
    return _known("data_parallel", row)


def _multi_worker(words: str, row: Row, notes: list[str]) -> dict[str, Any]:
    if re.search(r"grpc|\bring\b", words):
        return {**_known("multi_worker_mirrored", row), "implementation": "ring"}
    return _known("multi_worker_mirrored", row)


def _mirrored(words: str, row: Row, notes: list[str]) -> dict[str, Any]:
    return _known("mirrored", row)


def _pmap(words: str, row: Row, notes: list[str]) -> dict[str, Any]:
    return _known("pmap", row)


_Made = Callable[[str, Row, list[str]], dict[str, Any]]
#: strategies that are told by their own names
_NAMED: tuple[tuple[str, _Made], ...] = (
    (r"(?<!distributed )(?<!distributed)\bdataparallel\b", _data_parallel),
    (r"multi_?worker_?mirrored|collectiveallreducestrategy", _multi_worker),
    (r"\bmirrored(?:strategy)?\b", _mirrored),
    (r"\bpmap\b|\bpjit\b|\bjax\b", _pmap),
)


def _megatron(words: str, row: Row) -> dict[str, Any]:
    """Megatron's own gradient exchange, with the switches that the row names.

    Its parameters are in 16 bit, and so are gradients in fp16; in bf16 they are accumulated and
    exchanged in fp32 (NVIDIA/Megatron-LM megatron/training/arguments.py, validate_args).
    """
    data = _known("megatron", row)
    if "bf16" in row.text("precision").lower():
        data["grad_reduce_in_fp32"] = True
    for name in ("overlap_grad_reduce", "overlap_param_gather", "use_distributed_optimizer"):
        if name.removeprefix("use_") in words.replace("-", "_").replace(" ", "_"):
            data[name] = True
    if data.get("overlap_param_gather"):  # only the distributed optimizer has it
        data["use_distributed_optimizer"] = True
    return data


def _horovod(words: str, row: Row, notes: list[str]) -> dict[str, Any]:
    """Horovod, with the defaults before 0.21 (2020-11-23) where the run is older than that."""
    data = _known("horovod", row)
    if "no tensor fusion" in words:
        data["fusion_threshold"] = 0
    if "adasum" in words:
        data["op"] = "adasum"  # which the strategy refuses, saying why
    if re.search(r"hierarchical", words):
        per_node = row.get("gpus_per_node")
        if not per_node:
            raise Refused("a hierarchical all-reduce needs gpus_per_node, which is not stated")
        data |= {"hierarchical_allreduce": True, "local_size": min(int(per_node), row.gpus)}
    if (date := date_of(row)) and date < "2020-11":
        notes.append(f"Horovod's defaults before 0.21, as the run is of {date}")
        data["horovod"] = "0.20"
    return data


def date_of(row: Row) -> str:
    """When it was run, "2020-06": as stated, else the month of NVIDIA's container, else that of
    the source's commit; empty where nothing tells."""
    container = re.search(r"\b(\d\d)\.(0[1-9]|1[0-2])\b", row.text("framework"))
    stated = row.text("data_date")
    if re.match(r"20\d\d-\d\d", stated):
        return stated[:7]
    if container and 17 <= int(container[1]) <= 40:
        return f"20{container[1]}-{container[2]}"
    return row.text("source_commit_date")[:7]


# -- compression ----------------------------------------------------------------------------------


def _compress(data: dict[str, Any], words: str, row: Row) -> None:
    """DDP's compressing hooks.  What else is compressed is refused, never played whole."""
    column = row.text("compression").lower()
    hook = re.search(r"\b(fp16|bf16)_compress|comm_?hook[ =:]*(fp16|bf16)", words)
    named = re.fullmatch(r"(fp16|bf16)(?: (?:gradients?|compress\w*|hook))*", column)
    unsaid = re.fullmatch(_UNCOMPRESSED, column) is not None
    if unsaid and not hook:
        return
    if "zero_quantized_weights" in data or "zero_quantized_gradients" in data:
        return
    if data["kind"] != "ddp" or not (hook or named):
        what = "a communication hook" if unsaid else column
        raise Refused(f"compressed communication is not modelled ({what[:40]} with {data['kind']})")
    data["comm_hook"] = (hook and (hook[1] or hook[2])) or (named and named[1])


def _known(kind: str, row: Row) -> dict[str, Any]:
    if kind not in plugins.names("strategies"):
        raise Refused(f"{kind} is not modelled ({row.text('strategy')})")
    return {"kind": kind}
