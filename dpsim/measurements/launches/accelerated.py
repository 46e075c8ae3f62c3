"""What `accelerate config` writes and `accelerate launch` is told, as scenarios say it.

Keys: huggingface/accelerate docs/source/package_reference/cli.md and
src/accelerate/commands/config/config_args.py; flags of `accelerate launch` bear the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsim.core.record import Refused
from dpsim.measurements.launches import making, zero
from dpsim.measurements.launches.draft import Draft
from dpsim.measurements.launches.values import Where, count, section, truth, whole

_TYPES = {"MULTI_GPU": "multi_gpu", "FSDP": "fsdp", "DEEPSPEED": "deepspeed", "NO": "multi_gpu"}
_START = "how processes find one another"
_SILENT = {
    "compute_environment": _START, "machine_rank": _START, "main_process_ip": _START,
    "main_process_port": _START, "main_training_function": _START, "rdzv_backend": _START,
    "same_network": _START, "gpu_ids": "which GPUs of a node", "debug": "checks of shapes",
    "enable_cpu_affinity": "where processes run", "downcast_bf16": "of TPUs", "tpu_env": "of TPUs",
    "tpu_use_cluster": "of TPUs", "tpu_use_sudo": "of TPUs", "tpu_name": "of TPUs",
    "tpu_zone": "of TPUs", "commands": "of TPUs", "command_file": "of TPUs",
    "mpirun_config": _START, "ipex_config": "of CPUs",
}  # fmt: skip
_FSDP_SILENT = {
    "fsdp_auto_wrap_policy": "units are the model's blocks",
    "fsdp_transformer_layer_cls_to_wrap": "of TRANSFORMER_BASED_WRAP, which takes blocks",
    "fsdp_min_num_params": "of SIZE_BASED_WRAP",
    "fsdp_state_dict_type": "of checkpoints",
    "fsdp_cpu_ram_efficient_loading": "of the start",
    "fsdp_sync_module_states": "of the start",
}
_DEEPSPEED_SILENT = {
    "zero3_init_flag": "of the start", "zero3_save_16bit_model": "of checkpoints",
    "gradient_clipping": "its norm is not modelled", "deepspeed_multinode_launcher": _START,
    "deepspeed_hostfile": _START, "deepspeed_inclusion_filter": _START,
    "deepspeed_exclusion_filter": _START,
}  # fmt: skip
_POLICIES = ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP")
_PREFETCH = {"NO_PREFETCH": "none"}
_AXES = {"tp": "parallel.tensor", "cp": "parallel.context"}
_SHARDINGS = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")


def fill(draft: Draft, data: Mapping[str, Any], where: Where) -> None:
    """What a configuration of accelerate says, into `draft`."""
    given = str(data.get("distributed_type", "MULTI_GPU"))
    kind = _TYPES.get(given.upper().rpartition(".")[2])
    if kind is None:
        raise Refused(f"distributed_type: {given[:40]} is not modelled; {', '.join(_TYPES)} are")
    draft.take(
        "strategy.kind", "accelerate", f"distributed_type: {given}", where("distributed_type")
    )
    draft.take("strategy.distributed_type", kind, f"distributed_type: {given}",
               where("distributed_type"))  # fmt: skip
    _cluster(draft, data, where)
    _precision(draft, data, where)
    {"fsdp": _fsdp, "deepspeed": _deepspeed}.get(kind, _nothing)(draft, data, where)
    steps = count(data.get("gradient_accumulation_steps"), "gradient_accumulation_steps")
    if steps and draft.get("batch.accumulation") is None:
        line = where("gradient_accumulation_steps")
        draft.take("batch.accumulation", steps, f"gradient_accumulation_steps: {steps}", line)
    _rest(draft, data, where, kind)
    if draft.get("batch.per_device") is None:
        draft.assume("batch.per_device", 1, "the file doesn't say how large a batch is")


def _nothing(draft: Draft, data: Mapping[str, Any], where: Where) -> None:
    """DDP has no section."""


def _cluster(draft: Draft, data: Mapping[str, Any], where: Where) -> None:
    """`num_processes` counts those of all machines together."""
    ranks = count(data.get("num_processes"), "num_processes")
    nodes = count(data.get("num_machines"), "num_machines") or 0
    line = where("num_processes")
    if str(data.get("distributed_type")).upper() == "NO":
        at = where("distributed_type")
        draft.take("cluster.ranks", 1, "distributed_type: NO: one process", at)
        return
    if not ranks:
        return
    if nodes > 1:
        if ranks % nodes:
            raise Refused(f"num_processes: {ranks} is no multiple of num_machines: {nodes}")
        draft.take("cluster.nodes", nodes, f"num_machines: {nodes}", where("num_machines"))
        why = f"num_processes: {ranks} over {nodes} machines"
        draft.take("cluster.gpus_per_node", ranks // nodes, why, line)
    else:
        draft.take("cluster.ranks", ranks, f"num_processes: {ranks}", line)


def _precision(draft: Draft, data: Mapping[str, Any], where: Where) -> None:
    asked = str(data.get("mixed_precision", "no")).lower()
    line = where("mixed_precision")
    if asked in ("bf16", "fp16", "fp8"):
        pair = {"parameters": "fp32", "compute": asked}
        draft.take("precision", pair, f"mixed_precision: {asked}", line)
    elif asked in ("no", "false", "none"):
        draft.note("precision: the model's own (mixed_precision: no)", line)
    else:
        raise Refused(f"mixed_precision: {asked[:40]!r}; no, bf16, fp16 or fp8 are known")


def _fsdp(draft: Draft, data: Mapping[str, Any], where: Where) -> None:
    config = section(data, "fsdp_config")
    version = count(config.get("fsdp_version"), "fsdp_version") or 1
    line = where("fsdp_version")
    if "fsdp_version" in config:
        draft.take("strategy.fsdp_version", version, f"fsdp_version: {version}", line)
    else:
        draft.assume(
            "strategy.fsdp_version", 1, "accelerate's default where fsdp_version is not said"
        )
    wrapped = _wrap(draft, config, version, where)
    for key, value in config.items():
        if key != "fsdp_version" and key not in wrapped:
            _fsdp_key(draft, str(key), value, version, where(str(key)))


def _wrap(draft: Draft, config: Mapping[str, Any], version: int, where: Where) -> tuple[str, ...]:
    """What is sharded and gathered together; returns the keys that said it.

    As in accelerate's utils/dataclasses.py and commands/launch.py: without a policy nothing is
    wrapped, `--fsdp_min_num_params` is 1e8 if left out, and with 0 the policy is ignored.
    """
    policy, least = "fsdp_auto_wrap_policy", "fsdp_min_num_params"
    given = config.get(policy)
    word = "NO_WRAP" if given is None else str(given).upper()
    if word not in _POLICIES:
        raise Refused(f"{policy}: {str(given)[:40]!r}; {', '.join(_POLICIES)} are known")
    if word == "TRANSFORMER_BASED_WRAP":
        return ()
    if version == 2:
        said = f"{policy}: {word}" if given is not None else f"{policy} left out, so NO_WRAP"
        draft.find(f"{said}: not modelled for FSDP 2, whose units are the model's blocks here")
        return ()
    smallest = whole(config.get(least), least) if word == "SIZE_BASED_WRAP" else None
    if word == "SIZE_BASED_WRAP" and smallest != 0:
        draft.take("strategy.options.wrap", "size", f"{policy}: {given}", where(policy))
        if smallest is not None:
            at, said = "strategy.options.min_num_params", f"{least}: {config[least]}"
            draft.take(at, smallest, said, where(least))
        return policy, least
    if given is None:
        why = "accelerate wraps nothing where fsdp_auto_wrap_policy is not said"
        draft.assume("strategy.options.wrap", "none", why)
        return ()
    said = f"{policy}: {given}" + (f", {least}: 0" if smallest == 0 else "")
    draft.take("strategy.options.wrap", "none", said, where(policy))
    return (policy, least) if smallest == 0 else (policy,)


def _fsdp_key(draft: Draft, key: str, value: Any, version: int, line: int) -> None:
    said, name = f"{key}: {value}", key.removeprefix("fsdp_")
    word, flag = str(value).upper(), truth(value)
    at = "strategy.options"
    if name == "reshard_after_forward" and version == 2 and flag is not None:
        draft.take(f"{at}.reshard_after_forward", flag, said, line)
    elif name in ("sharding_strategy", "reshard_after_forward") and version == 1:
        chosen = _SHARDINGS[int(word) - 1] if word in ("1", "2", "3", "4", "5") else word
        _sharding(draft, chosen, said, line)
    elif name == "backward_prefetch" and version == 1:
        draft.take(f"{at}.backward_prefetch", _PREFETCH.get(word, word), said, line)
    elif name in ("forward_prefetch", "use_orig_params") and version == 1 and flag is not None:
        draft.take(f"{at}.{name}", flag, said, line)
    elif name == "activation_checkpointing" and flag:
        draft.take("recompute", "full_early_stop", said, line)  # CheckpointImpl.NO_REENTRANT
    elif name == "offload_params" and flag:
        draft.find("fsdp_offload_params: parameters that live on the host are not modelled")
        draft.ignore(said, "not modelled", line)
    else:
        why = "as it is left out" if flag is False else f"not of FSDP {version}, or not modelled"
        draft.ignore(said, _FSDP_SILENT.get(key, why), line)


def _sharding(draft: Draft, chosen: str, said: str, line: int) -> None:
    name = "_HYBRID_SHARD_ZERO2" if chosen == "HYBRID_SHARD_ZERO2" else chosen
    draft.take("strategy.options.sharding_strategy", name, said, line)
    if "HYBRID" in name:
        each = draft.get("cluster.gpus_per_node") or draft.get("cluster.ranks")
        why = "hybrid sharding shares parameters inside a node"
        draft.assume("strategy.options.shard", each or 8, why, line)


def _deepspeed(draft: Draft, data: Mapping[str, Any], where: Where) -> None:
    config = section(data, "deepspeed_config")
    file = config.get("deepspeed_config_file")
    stage = whole(config.get("zero_stage"), "zero_stage")
    if file:
        draft.find(f"ZeRO's settings are in {str(file)[:80]}: dpsim import reads that file too")
    if stage:
        draft.take("strategy.zero_stage", stage, f"zero_stage: {stage}", where("zero_stage"))
    elif file or stage is None:
        draft.assume("strategy.zero_stage", 2, "accelerate's default; the file doesn't say it")
    else:
        draft.take("strategy.distributed_type", "multi_gpu", "zero_stage: 0", where("zero_stage"))
        return
    for key, value in config.items():
        _deepspeed_key(draft, str(key), value, where(str(key)))


def _deepspeed_key(draft: Draft, key: str, value: Any, line: int) -> None:
    said, steps = f"{key}: {str(value)[:60]}", "gradient_accumulation_steps"
    if key == steps:
        if number := count(value, steps):
            draft.take("batch.accumulation", number, said, line)
    elif key in ("offload_optimizer_device", "offload_param_device"):
        name = key.removesuffix("_device")
        zero.setting(draft, name, {"device": value}, line, "strategy.options")
    elif key not in ("zero_stage", "deepspeed_config_file"):
        draft.ignore(said, _DEEPSPEED_SILENT.get(key, "no key that dpsim knows"), line)


def _rest(draft: Draft, data: Mapping[str, Any], where: Where, kind: str) -> None:
    done = {"distributed_type", "num_processes", "num_machines", "mixed_precision",
            "gradient_accumulation_steps", f"{kind}_config"}  # fmt: skip
    for key, value in data.items():
        line, said = where(str(key)), f"{key}: {str(value)[:60]}"
        if key in done:
            continue
        if key == "parallelism_config" and isinstance(value, Mapping):
            _parallelism(draft, value, where)
        elif key == "use_cpu" and truth(value):
            draft.find("use_cpu: true: dpsim's machines have GPUs or TPUs")
        elif key == "dynamo_config" and isinstance(value, Mapping):
            making.dynamo(draft, value, where("dynamo_backend") or line)
        elif key == "dynamo_backend":
            making.dynamo(draft, {"backend": value}, line)
        elif str(key).startswith("fp8") and value and truth(value) is not False:
            draft.ignore(said, "what an fp8 recipe does is set with precision", line)
        else:
            draft.ignore(said, _SILENT.get(str(key), "not of this run, or no key that dpsim knows"),
                         line)  # fmt: skip


def _parallelism(draft: Draft, value: Mapping[str, Any], where: Where) -> None:
    """Sizes of a mesh: shards and replicas of FSDP, tensor and context ranks."""
    sizes = {
        str(key).removeprefix("parallelism_config_").removesuffix("_size"): count(size, str(key))
        or 1
        for key, size in value.items()
        if str(key).endswith("_size")
    }
    line = where("parallelism_config")
    for key, other in value.items():
        if not str(key).endswith("_size"):
            _mesh_word(draft, str(key), other, (sizes.get("cp") or 1) > 1, where(str(key)))
    shards, replicas = sizes.pop("dp_shard", 1), sizes.pop("dp_replicate", 1)
    if shards > 1 and replicas > 1:
        why = f"dp_shard_size: {shards}, dp_replicate_size: {replicas}"
        draft.take("strategy.options.shard", shards, why, line)
    else:
        said = f"parallelism_config: dp_shard_size {shards}, dp_replicate_size {replicas}"
        draft.ignore(said, "fewer than two of one of them; the strategy's sharding holds", line)
    for name, size in sizes.items():
        if size > 1 and name in _AXES:
            draft.take(_AXES[name], size, f"{name}_size: {size}", line)
        elif size > 1:
            draft.find(f"parallelism_config: {name} of {size} is not modelled")
        else:
            draft.ignore(f"parallelism_config: {name}_size: {size}", "no split", line)


def _mesh_word(draft: Draft, key: str, value: Any, split: bool, line: int) -> None:
    """How context ranks exchange; every other word of a mesh is told as ignored."""
    name, said = key.removeprefix("parallelism_config_"), f"{key}: {str(value)[:60]}"
    kinds = {"allgather": "all_gather", "alltoall": "ring"}  # torch's names of rotations
    if name == "cp_comm_strategy" and split and str(value) in kinds:
        draft.take("context.kind", kinds[str(value)], said, line)
    elif name == "cp_comm_strategy" and not split:
        draft.ignore(said, "without context ranks", line)
    else:
        draft.find(f"{said}: no key that dpsim knows")
        draft.ignore(said, "see the finding", line)
