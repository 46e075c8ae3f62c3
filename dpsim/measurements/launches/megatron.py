"""Megatron-LM's arguments: the model by its dimensions, the mesh, the schedule, the optimizer.

Names and defaults: NVIDIA/Megatron-LM megatron/training/arguments.py.  Global batch = micro-batch x
accumulation x data-parallel ranks, as there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsim.core.record import Refused
from dpsim.models.configurations import bundled_models, config_text

if TYPE_CHECKING:
    from dpsim.measurements.launches.started import Started

_MARKS = ("num_layers", "hidden_size", "num_attention_heads")
_FLAGS = {
    "use_distributed_optimizer": "strategy.use_distributed_optimizer",
    "overlap_grad_reduce": "strategy.overlap_grad_reduce",
    "overlap_param_gather": "strategy.overlap_param_gather",
    "accumulate_allreduce_grads_in_fp32": "strategy.grad_reduce_in_fp32",
    "sequence_parallel": "parallel.sequence_parallel",
}
_UNFUSED = "no_gradient_accumulation_fusion"
_NARROW = "grad_reduce_in_bf16"
_NUMBERS = {
    "tensor_model_parallel_size": "parallel.tensor",
    "pipeline_model_parallel_size": "parallel.pipeline",
    "context_parallel_size": "parallel.context",
    "ddp_bucket_size": "strategy.bucket_size",
    "num_distributed_optimizer_instances": "strategy.num_distributed_optimizer_instances",
}
#: what is refused by a finding where it is more than 1 (or given)
_FOREIGN = {
    "num_experts": "experts: take a model with experts (--model mixtral-8x7b-v0.1)",
    "expert_model_parallel_size": "experts: set parallel.expert",
    "use_torch_fsdp2": "FSDP2 in Megatron: set strategy: {kind: fsdp}",
    "cpu_offloading_num_layers": "offloading of activations is not modelled",
}
#: --cp-comm-type: Megatron-LM megatron/core/model_parallel_config.py
_CONTEXTS = {"p2p": "ring", "a2a": "ulysses", "allgather": "all_gather", "all_gather": "all_gather",
             "a2a+p2p": "hierarchical"}  # fmt: skip
#: what makes products run in fewer than 16 bits
_FEW = "--fp8-format or --fp4-format"
_GPT_WORDS, _LLAMA_WORDS = 50257, 32000
#: dimensions of the model, and what a configuration calls them
_DIMENSIONS = {
    "num_layers": "num_hidden_layers", "hidden_size": "hidden_size",
    "num_attention_heads": "num_attention_heads", "num_query_groups": "num_key_value_heads",
    "ffn_hidden_size": "intermediate_size", "swiglu": "", "normalization": "",
    "group_query_attention": "", "untie_embeddings_and_output_weights": "",
}  # fmt: skip


def is_megatron(given: Mapping[str, str]) -> bool:
    """Whether these flags are Megatron's."""
    return all(name in given for name in _MARKS)


def fill(started: Started) -> None:
    """What the arguments say, into the draft of `started`."""
    _mesh(started)
    _strategy(started)
    _model(started)
    _batch(started)
    _precision(started)
    _recompute(started)
    _switches(started)
    for name, why in _FOREIGN.items():
        found = started.flag((name,))
        if found and found[1] not in ("1", "0"):
            started.draft.find(f"{started.command.spelt.get(name, name)} {found[1]}: {why}")


def _strategy(started: Started) -> None:
    draft = started.draft
    draft.take("strategy", {"kind": "megatron"}, "Megatron's arguments", started.command.line)
    for name, path in _FLAGS.items():
        if not started.flag((name,)):
            continue
        draft.take(path, True, _spelt(started, name), started.where(name))
    if started.flag((_UNFUSED,)):
        path = "strategy.gradient_accumulation_fusion"
        draft.take(path, False, _spelt(started, _UNFUSED), started.where(_UNFUSED))
    if started.flag((_NARROW,)):
        path = "strategy.grad_reduce_in_fp32"
        draft.take(path, False, _spelt(started, _NARROW), started.where(_NARROW))


def _mesh(started: Started) -> None:
    for name, path in _NUMBERS.items():
        if found := started.number((name,)):
            draft_value, said, line = found
            if draft_value > 1 or not path.startswith("parallel"):
                started.draft.take(path, draft_value, said, line)
    pipeline = started.draft.get("parallel.pipeline") or 1
    each = started.number(("num_layers_per_virtual_pipeline_stage",))
    layers = started.command.given.get("num_layers", "")
    if each and layers.isdigit() and pipeline > 1:
        chunks = int(layers) // pipeline // each[0]
        if chunks > 1:
            schedule = {"kind": "interleaved_1f1b", "chunks": chunks}
            started.draft.take("schedule", schedule, each[1], each[2])
    stages = started.number(("num_virtual_stages_per_pipeline_rank",))
    if stages and stages[0] > 1 and pipeline > 1:
        schedule = {"kind": "interleaved_1f1b", "chunks": stages[0]}
        started.draft.take("schedule", schedule, stages[1], stages[2])
    elif stages:
        started.draft.ignore(stages[1], "one stage a rank, or no pipeline", stages[2])


def _model(started: Started) -> None:
    """A transformer by its dimensions; gated and normed by root mean squares, it is llama's."""
    draft = started.draft
    tokens = started.number(("seq_length", "encoder_seq_length"))
    draft.tokens = tokens[0] if tokens else None
    if draft.wanted.model:
        _beside(started, draft.wanted.model)
        return
    gated = started.flag(("swiglu",)) is not None
    rms = (started.flag(("normalization",)) or ("", ""))[1].lower() == "rmsnorm"
    bert = "bert" in started.command.program
    family = "llama" if gated or rms else "bert" if bert else "gpt2"
    model: dict[str, Any] = {"name": "transformer", "family": family}
    names = {"hidden": "hidden_size", "blocks": "num_layers", "heads": "num_attention_heads",
             "feed_forward": "ffn_hidden_size", "sequence_length": "seq_length"}  # fmt: skip
    if started.flag(("group_query_attention",)):
        names["kv_heads"] = "num_query_groups"
    lines = []
    for key, name in names.items():
        if found := started.number((name,)):
            model[key] = found[0]
            lines.append(found[1])
    _require(started, model)
    draft.take("model", model, ", ".join(lines), started.where("num_layers"))
    if gated and "feed_forward" not in model:
        why = "--swiglu without --ffn-hidden-size: Megatron's 2/3 of 4 h, in multiples of 64"
        draft.assume("model.feed_forward", int(4 * model["hidden"] * 2 / 3 / 64) * 64, why)
    _words(started, family)
    _tie(started, family, model["hidden"])


def _tie(started: Started, family: str, hidden: int) -> None:
    """Megatron shares one table between embedding and output unless told not to; of the families
    here llama has two, gpt2 and bert one."""
    flag = "untie_embeddings_and_output_weights"
    untied = started.flag((flag,)) is not None
    count = started.draft.get("model.vocabulary") * hidden
    spelt, line = _spelt(started, flag) if untied else f"--{flag.replace('_', '-')}", 0
    if untied and family == "llama":
        line = started.where(flag)
        started.draft.note(f"model.family: llama has an output table of its own ({spelt})", line)
    elif untied:
        why = f"{family} here shares its table with the output: {count:,} parameters fewer"
        started.draft.find(f"{spelt}: {why}")
        started.draft.ignore(spelt, why, started.where(flag))
    elif family == "llama":
        started.draft.find(f"no {spelt}: Megatron shares the embedding's table with the output; "
                           f"family llama here has {count:,} parameters more")  # fmt: skip


def _require(started: Started, model: Mapping[str, Any]) -> None:
    for key, name in (("hidden", "--hidden-size"), ("blocks", "--num-layers"),
                      ("heads", "--num-attention-heads")):  # fmt: skip
        if key not in model:
            raise Refused(f"{name} has no number in the file; give the model with --model")
    if "sequence_length" not in model:
        started.draft.assume(
            "model.sequence_length", 2048, "--seq-length has no number in the file"
        )


def _beside(started: Started, name: str) -> None:
    """Dimensions that the file has beside the model that was asked for, of which some may be
    another's."""
    config = _config(name)
    if tokens := started.number(("seq_length", "encoder_seq_length")):
        started.draft.note(f"model.sequence_length: {tokens[0]} ({tokens[1]})", tokens[2])
    for key, own in _DIMENSIONS.items():
        found = started.flag((key,))
        if found is None:
            continue
        said = _spelt(started, key) + f" {found[1]}".rstrip()
        started.draft.ignore(said, f"the model is {name}, as asked for", started.where(key))
        if own in config and found[1].isdigit() and int(found[1]) != config[own]:
            started.draft.find(f"{said}: {name} has {config[own]:,}")


def _config(name: str) -> dict[str, Any]:
    """The configuration of a bundled model; empty where it is none."""
    if name not in bundled_models():
        return {}
    found: dict[str, Any] = json.loads(config_text(name, Path()))
    return found


def _words(started: Started, family: str) -> None:
    """Rows of the embedding: as said, or as many as the tokenizer of a known model has."""
    draft = started.draft
    if found := started.number(("vocab_size", "padded_vocab_size")):
        draft.take("model.vocabulary", *found)
        return
    named = started.flag(("tokenizer_model", "tokenizer_name_or_path"))
    known = draft.known(named[1]) if named else ""
    if named and (count := _config(known).get("vocab_size")):
        said = f"{_spelt(started, named[0])} {named[1]}: {known}"
        draft.take("model.vocabulary", count, said, started.where(named[0]))
        return
    words = _LLAMA_WORDS if family == "llama" else 30522 if family == "bert" else _GPT_WORDS
    draft.assume("model.vocabulary", words, "the tokenizer's, which is not in the file")


def _batch(started: Started) -> None:
    draft = started.draft
    micro, total = started.number(("micro_batch_size",)), started.number(("global_batch_size",))
    if micro:
        draft.take("batch.per_device", *micro)
    data = _data_ranks(started)
    if micro and total and data and (total[0] < micro[0] * data or total[0] % (micro[0] * data)):
        raise Refused(
            f"--global-batch-size {total[0]} is no multiple of --micro-batch-size {micro[0]} x "
            f"{data} data-parallel ranks; Megatron refuses it too"
        )
    if total:
        draft.take("batch.global", *total)


def _data_ranks(started: Started) -> int | None:
    """Replicas of the model; None where nodes or GPUs are not known."""
    get = started.draft.get
    nodes, each = get("cluster.nodes"), get("cluster.gpus_per_node")
    ranks = get("cluster.ranks") or (nodes * each if nodes and each else None)
    if ranks is None:
        return None
    sizes = [get(f"parallel.{axis}") or 1 for axis in ("tensor", "pipeline", "context")]
    split = math.prod(sizes)
    if ranks % split:
        raise Refused(f"{ranks} ranks are no multiple of tensor x pipeline x context = {split}")
    return int(ranks // split)


def _precision(started: Started) -> None:
    for name in ("bf16", "fp16"):
        if started.flag((name,)):
            pair = {"parameters": name, "compute": name}
            started.draft.take("precision", pair, f"--{name}", started.where(name))
            if name == "bf16" and started.draft.get("strategy.grad_reduce_in_fp32") is None:
                why = "--bf16 accumulates and reduces gradients in fp32"
                started.draft.assume("strategy.grad_reduce_in_fp32", True, why)
    _few_bits(started)


def _few_bits(started: Started) -> None:
    """Products in 8 bits or in NVFP4, whose elements are e2m1."""
    four, eight = started.flag(("fp4_format",)), started.flag(("fp8_format",))
    recipe = (started.flag(("fp4_recipe",)) or ("", "nvfp4"))[1].lower()
    if four and eight:
        both = f"{_spelt(started, 'fp4_format')} beside {_spelt(started, 'fp8_format')}"
        raise Refused(
            f"line {started.where('fp4_format')}: {both}: one of them; Megatron refuses both too"
        )
    if four and four[1].lower() != "e2m1":
        said = f"{_spelt(started, 'fp4_format')} {four[1][:40]}".strip()
        raise Refused(f"line {started.where('fp4_format')}: {said}: e2m1 alone is accepted")
    few = (bool(four) and recipe == "nvfp4") or bool(eight)
    if few:
        name, dtype = ("fp4_format", "nvfp4") if four else ("fp8_format", "fp8")
        line = started.where(name)
        started.draft.take("precision.compute", dtype, _spelt(started, name), line)
    elif four:
        why = "of formats in 4 bits nvfp4 alone is modelled"
        started.draft.find(f"--fp4-recipe {recipe[:40]}: {why}")
    _wide(started, few)


def _wide(started: Started, few: bool) -> None:
    """Blocks at either end that stay in 16 bits where others have `few`: one each unless told, and
    none without the switch (megatron/core/fp8_utils.py, is_first_last_bf16_layer)."""
    switch = "first_last_layers_bf16"
    asked, line = started.flag((switch,)) is not None, started.where(switch)
    if asked and not few:
        why = "everything is in 16 bits, for no format of fewer is taken"
        started.draft.ignore(_spelt(started, switch), why, line)
    for end, path in (("start", "precision.wide_first"), ("end", "precision.wide_last")):
        told = started.number((f"num_layers_at_{end}_in_bf16",), least=0)
        if asked and few:
            started.draft.take(path, *(told or (1, _spelt(started, switch), line)))
        elif told:
            started.draft.ignore(told[1], f"without --first-last-layers-bf16 and {_FEW}", told[2])


def _switches(started: Started) -> None:
    """The exchange of context and tensor ranks, the optimizer and captured graphs."""
    get = started.draft.get
    _chosen(started, "cp_comm_type", "context.kind", _CONTEXTS, (get("parallel.context") or 1) > 1)
    _chosen(started, "optimizer", "optimizer.kind", {"adam": "adam", "sgd": "sgd"}, True)
    beside = bool(get("parallel.sequence_parallel")) and (get("parallel.tensor") or 1) > 1
    _chosen(started, "tp_comm_overlap", "parallel.async_tensor_parallel", {"": True}, beside)
    _chosen(started, "enable_cuda_graph", "execution.cuda_graphs", {"": True}, True)
    graphs = {"local": True, "transformer_engine": True, "none": False}
    _chosen(started, "cuda_graph_impl", "execution.cuda_graphs", graphs, True)


def _chosen(
    started: Started, name: str, path: str, words: Mapping[str, Any], applies: bool
) -> None:
    """The key that the word of one flag stands for; a finding where dpsim knows none."""
    found = started.flag((name,))
    if found is None:
        return
    said, line = f"{_spelt(started, name)} {found[1]}".strip(), started.where(name)
    if not applies:
        started.draft.ignore(said, "without the ranks that it is for", line)
    elif found[1] in words:
        started.draft.take(path, words[found[1]], said, line)
    else:
        started.draft.find(f"{said}: not known; {path} is for it")
        started.draft.ignore(said, "see the finding", line)


def _recompute(started: Started) -> None:
    whole_block = started.flag(("recompute_granularity",))
    if whole_block and whole_block[1] in ("full", "selective"):
        line = started.where("recompute_granularity")
        started.draft.take("recompute", whole_block[1], _spelt(started, whole_block[0]), line)
    elif name := started.flag(("recompute_activations", "checkpoint_activations")):
        kind = "selective" if name[0] == "recompute_activations" else "full"
        started.draft.take("recompute", kind, _spelt(started, name[0]), started.where(name[0]))


def _spelt(started: Started, name: str) -> str:
    return started.command.spelt.get(name, name)
