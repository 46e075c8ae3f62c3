"""DeepSpeed's configuration, key by key, as scenarios say it.

Keys and defaults: deepspeed.ai "DeepSpeed Configuration JSON"; microsoft/DeepSpeed
deepspeed/runtime/config.py and zero/config.py.  `strategy: {kind: zero}` bears DeepSpeed's names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsim.core.record import Refused
from dpsim.measurements.launches.draft import Draft
from dpsim.measurements.launches.values import AUTO, Where, count, section, truth, whole

#: keys of `zero_optimization` that are keys of `strategy`
_SAME = (
    "reduce_bucket_size", "overlap_comm", "contiguous_gradients",
    "use_multi_rank_bucket_allreduce", "stage3_prefetch_bucket_size",
    "stage3_param_persistence_threshold", "stage3_max_live_parameters",
    "stage3_max_reuse_distance", "zero_quantized_weights", "zero_hpz_partition_size",
    "zero_quantized_gradients",
)  # fmt: skip
#: older names of some: microsoft/DeepSpeed deepspeed/runtime/zero/config.py
_OLDER = {"cpu_offload": "offload_optimizer", "prefetch_bucket_size": "stage3_prefetch_bucket_size",
          "param_persistence_threshold": "stage3_param_persistence_threshold",
          "max_live_parameters": "stage3_max_live_parameters",
          "max_reuse_distance": "stage3_max_reuse_distance"}  # fmt: skip
#: DeepSpeed's words for 32 bit: deepspeed/runtime/config.py, DtypeEnum
_WIDE = ("fp32", "float32", "float", "torch.float32")
_NO_TIME = "changes no step's time"
_IGNORED = {
    "allgather_bucket_size": "gathers are those that DeepSpeed's partitions make",
    "allgather_partitions": "gathers are those that DeepSpeed's partitions make",
    "reduce_scatter": "gradients travel as DeepSpeed ships it",
    "round_robin_gradients": "the order of ranks in a bucket is not modelled",
    "sub_group_size": "the update is one pass over what a rank holds",
    "ignore_unused_parameters": _NO_TIME,
    "load_from_fp32_weights": _NO_TIME,
    "elastic_checkpoint": _NO_TIME,
    "stage3_gather_16bit_weights_on_model_save": _NO_TIME,
    "stage3_gather_fp16_weights_on_model_save": _NO_TIME,
    "gather_16bit_weights_on_model_save": _NO_TIME,
}
#: top-level keys that say nothing of time: deepspeed.ai, by section
_SILENT = {
    "steps_per_print": "what is printed", "wall_clock_breakdown": "what is printed",
    "dump_state": "what is printed", "memory_breakdown": "what is printed",
    "scheduler": "the learning rate", "gradient_clipping": "its norm is not modelled",
    "prescale_gradients": _NO_TIME, "gradient_predivide_factor": _NO_TIME,
    "zero_allow_untested_optimizer": _NO_TIME, "zero_force_ds_cpu_optimizer": _NO_TIME,
    "tensorboard": "what is logged", "wandb": "what is logged", "csv_monitor": "what is logged",
    "comms_logger": "what is logged", "flops_profiler": "what is logged",
    "checkpoint": "write the key checkpoint for it", "aio": "of offloading to NVMe",
    "data_efficiency": "which samples are taken", "curriculum_learning": "which samples are taken",
    "activation_checkpointing": "how it is kept, where the model does it; recompute says that it "
                                "does",
    "seed": "the order of samples", "train_iters": "how long it runs",
}  # fmt: skip
_MATTERS = {
    "sparse_attention": "sparse attention is not modelled: attention is dense here",
    "compression_training": "quantised and pruned training is not modelled",
    "autotuning": "what DeepSpeed's tuner would choose is not in the file",
    "pipeline": "give the stages with parallel.pipeline",
    "tensor_parallel": "set parallel.tensor: it is autotp_size",
    "quantize_training": "quantised training is not modelled",
    "progressive_layer_drop": "layers that are dropped are computed here",
    "communication_data_type": "gradients are reduced in the dtype that they have",
    "elasticity": "the batch is what the file says, whatever the number of ranks",
    "hybrid_engine": "generation is not modelled",
}
#: optimizers by their states: one, or two as Adam
_OPTIMIZERS = {"adam": "adam", "adamw": "adam", "fusedadam": "adam", "cpuadam": "adam",
               "deepspeedcpuadam": "adam", "lamb": "adam", "fusedlamb": "adam", "lion": "momentum",
               "adagrad": "momentum", "sgd": "sgd", "muon": "momentum"}  # fmt: skip
#: optimizers that compress what they exchange: the nearest kind of `compression`, and its keys
#: (microsoft/DeepSpeed deepspeed/runtime/fp16/onebit, whose names they bear)
_COMPRESSED = {
    "onebitadam": ("one_bit", ("freeze_step",)),
    "onebitlamb": ("one_bit", ()),
    "zerooneadam": ("zero_one_adam", ("var_freeze_step", "var_update_scaler", "local_step_scaler",
                                      "local_step_clipper")),
}  # fmt: skip


def fill(draft: Draft, data: Mapping[str, Any], where: Where) -> None:
    """What a DeepSpeed configuration says, into `draft`."""
    _strategy(draft, section(data, "zero_optimization"), where)
    _sums(draft, section(data, "data_types"), where)
    _batch(draft, data, where)
    _precision(draft, data, where)
    _optimizer(draft, section(data, "optimizer"), where)
    done = {"zero_optimization", "optimizer", "fp16", "bf16", "bfloat16", "amp", "data_types",
            "train_batch_size", "train_micro_batch_size_per_gpu",
            "gradient_accumulation_steps"}  # fmt: skip
    for key in data:
        line = where(str(key))
        if key in done:
            continue
        if key in _MATTERS and truth(section_or(data, key).get("enabled", True)) is not False:
            draft.find(f"{key}: {_MATTERS[key]}")
            draft.ignore(str(key), _MATTERS[key], line)
        else:
            draft.ignore(str(key), _SILENT.get(key, "no key that dpsim knows"), line)


def section_or(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The mapping under `key`, or an empty one."""
    found = data.get(key)
    return found if isinstance(found, Mapping) else {}


def _strategy(draft: Draft, zero: Mapping[str, Any], where: Where) -> None:
    under = "zero_optimization"
    stage = whole(zero.get("stage", 0), f"{under}.stage")
    line = where("stage", under) if zero else 0
    if not stage:
        why = "without ZeRO DeepSpeed reduces buckets after backward; DDP reduces them beside it"
        draft.assume("strategy", {"kind": "ddp"}, why, line)
        draft.find(f"zero_optimization.stage 0: {why}")
        return
    draft.take("strategy", {"kind": "zero", "stage": stage}, f"{under}.stage: {stage}", line)
    for key, value in zero.items():
        if key != "stage":
            setting(draft, str(key), value, where(str(key), under))


def setting(draft: Draft, key: str, value: Any, line: int, at: str = "strategy") -> None:
    """One key of `zero_optimization`, into the section `at`."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    name = _OLDER.get(key, key)
    said = f"{key}: {str(value)[:60]}"
    third = name.startswith("stage3_") and draft.get("strategy.stage") in (1, 2)
    if name in ("offload_optimizer", "offload_param"):
        _offload(draft, name, value, line, at)
    elif value == AUTO:
        draft.ignore(said, "what fills it in is not in the file; DeepSpeed's own default", line)
    elif name in _SAME and third:
        draft.ignore(said, "of stage 3", line)
    elif name in _SAME:
        draft.take(f"{at}.{name}", value, said, line)
    else:
        draft.ignore(said, _IGNORED.get(name, "no key that dpsim knows"), line)


def _offload(draft: Draft, name: str, value: Any, line: int, at: str) -> None:
    device = value.get("device", "cpu") if isinstance(value, Mapping) else value
    device = {"true": "cpu", "false": "none"}.get(str(device).lower(), str(device).lower())
    if device == "none":
        draft.ignore(f"{name}: none", "nothing is offloaded", line)
    elif name == "offload_param":
        draft.find(f"offload_param: {device}: parameters that live on the host are not modelled")
        draft.ignore(f"offload_param: {device}", "not modelled", line)
    elif device == "cpu":
        draft.take(f"{at}.offload_optimizer", "cpu", f"{name}: {device}", line)
    else:
        draft.find(f"offload_optimizer: {device} is not modelled; cpu is taken in its place")
        draft.assume(f"{at}.offload_optimizer", "cpu", f"{name}: {device} is not modelled", line)


def _sums(draft: Draft, types: Mapping[str, Any], where: Where) -> None:
    """What gradients of micro-batches are added up in, and what else the section says."""
    for key, value in types.items():
        line, said = where(str(key), "data_types"), f"data_types.{key}: {str(value)[:60]}"
        if key != "grad_accum_dtype" or value is None:
            draft.ignore(said, "no key that dpsim knows", line)
        elif str(value).lower() not in _WIDE:
            draft.ignore(said, "gradients are added up as wide as parameters", line)
        elif draft.get("strategy.stage") == 1:
            draft.take("strategy.grad_accum_dtype", "fp32", said, line)
        else:
            draft.ignore(said, "only stage 1 adds up whole gradients", line)


def _batch(draft: Draft, data: Mapping[str, Any], where: Where) -> None:
    """Samples of a step: DeepSpeed's three numbers, of which two give the third."""
    names = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size")
    micro, steps, total = (count(data.get(name), name) for name in names)
    line = {name: where(name) for name in names}
    if steps:
        draft.take("batch.accumulation", steps, f"{names[1]}: {steps}", line[names[1]])
    if micro:
        draft.take("batch.per_device", micro, f"{names[0]}: {micro}", line[names[0]])
        if total and steps:
            _ranks(draft, micro * steps, total, line[names[2]])
        elif total:
            draft.take("batch.global", total, f"{names[2]}: {total}", line[names[2]])
    elif total:
        draft.take("batch.global", total, f"{names[2]}: {total}", line[names[2]])
    else:
        draft.assume("batch.per_device", 1, "the file leaves it to the program (auto)")


def _ranks(draft: Draft, each: int, total: int, line: int) -> None:
    if total % each:
        raise Refused(
            f"train_batch_size {total} is no multiple of train_micro_batch_size_per_gpu x "
            f"gradient_accumulation_steps = {each}; DeepSpeed refuses it too"
        )
    why = f"train_batch_size: {total} over {each} on each"
    draft.take("cluster.ranks", total // each, why, line)


def _precision(draft: Draft, data: Mapping[str, Any], where: Where) -> None:
    for key, dtype in (("bf16", "bf16"), ("bfloat16", "bf16"), ("fp16", "fp16")):
        on = section_or(data, key).get("enabled")
        line = where("enabled", key)
        pair = {"parameters": dtype, "compute": dtype}
        if truth(on):
            draft.take("precision", pair, f"{key}.enabled: true", line)
            return
        if on == AUTO:
            draft.assume("precision", pair, f"{key}.enabled: auto, left to the program", line)
            return
    if truth(section_or(data, "amp").get("enabled")):
        draft.take("precision", {"compute": "fp16"}, "amp.enabled: true", where("amp"))


def _optimizer(draft: Draft, data: Mapping[str, Any], where: Where) -> None:
    kind = str(data.get("type", ""))
    if not kind:
        return
    name, line = kind.lower().replace("_", ""), where("type", "optimizer")
    if name in _COMPRESSED:
        _compressed(draft, kind, data, where)
    known = _OPTIMIZERS.get(name, "adam")
    if known == "sgd" and section_or(data, "params").get("momentum"):
        known = "momentum"
    said = f"optimizer.type: {kind}"
    if name in _OPTIMIZERS:
        draft.take("optimizer.kind", known, said, line)
    else:
        draft.assume("optimizer.kind", known, f"{said}; two states an element", line)


def _compressed(draft: Draft, kind: str, data: Mapping[str, Any], where: Where) -> None:
    """An optimizer that compresses its exchange: dpsim compresses it with ddp."""
    nearest, keys = _COMPRESSED[kind.lower().replace("_", "")]
    line, params = where("type", "optimizer"), section_or(data, "params")
    knobs = {key: found for key in keys if (found := whole(params.get(key), key)) is not None}
    written = ", ".join(f"{key}: {value}" for key, value in {"kind": nearest, **knobs}.items())
    if not keys or draft.get("strategy.kind") != "ddp":
        draft.find(f"optimizer {kind}: its compressed exchange is not taken over; "
                   f"compression: {{{written}}} with ddp is the nearest")  # fmt: skip
        return
    draft.take("compression.kind", nearest, f"optimizer.type: {kind}", line)
    for key, value in knobs.items():
        draft.take(f"compression.{key}", value, f"{key}: {value}", where(key, "params"))
