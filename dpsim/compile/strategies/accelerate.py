"""Hugging Face Accelerate: DDP, FSDP or DeepSpeed with Accelerate's defaults.

Read in huggingface/accelerate src/accelerate/ (accelerator.py, data_loader.py, utils/random.py,
utils/dataclasses.py, commands/launch.py; 1.15.0): `prepare` wraps the model unchanged, `accumulate`
uses no_sync unless `sync_each_batch`.  FSDP is version 1 by default, with FULL_SHARD, original
parameters and no backward prefetch; DeepSpeed is ZeRO stage 2.  At the start of an epoch the state
of the sampler's generator is broadcast.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal

from dpsim.compile.strategies import Beside
from dpsim.compile.strategies._wrapper import Preset, Wrapper
from dpsim.core.record import Count, Flag, Refused, record

#: torch.Generator().get_state() of the CPU: Mersenne Twister and two cached normals
GENERATOR = 5056


@record
class Accelerate(Wrapper):
    """What `accelerate launch` and the plug-ins are told.

    distributed_type   `multi_gpu` is DDP, `fsdp` FSDP, `deepspeed` ZeRO
    num_processes      `--num_processes`: must be the cluster's ranks; left out: they are
    fsdp_version       `--fsdp_version`, with `fsdp`
    zero_stage         `--zero_stage`, with `deepspeed`
    sync_each_batch    of GradientAccumulationPlugin: reduce in every micro-batch
    options            further settings of the wrapped strategy, by its own names
    """

    processes = "num_processes"
    added = (Beside("sampler's generator", "epoch", 0.0, "broadcast", float(GENERATOR)),)

    distributed_type: Literal["multi_gpu", "fsdp", "deepspeed"] = "multi_gpu"
    num_processes: Count | None = None
    fsdp_version: Literal[1, 2] | None = None
    zero_stage: Literal[1, 2, 3] | None = None
    sync_each_batch: Flag = False
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, kind in (("fsdp_version", "fsdp"), ("zero_stage", "deepspeed")):
            if getattr(self, name) is not None and self.distributed_type != kind:
                raise Refused(f"belongs to distributed_type: {kind}", (name,))
        if self.sync_each_batch and self.distributed_type == "deepspeed":
            raise Refused("DeepSpeed decides itself when it reduces", ("sync_each_batch",))
        super().__post_init__()

    @property
    def preset(self) -> Preset:
        synced = {"no_sync": not self.sync_each_batch}
        fsdp1 = {"backward_prefetch": "none", "use_orig_params": True}
        return {
            "multi_gpu": ("ddp", synced),
            "fsdp": ("fsdp", synced) if self.fsdp_version == 2 else ("fsdp1", synced | fsdp1),
            "deepspeed": ("zero", {"stage": self.zero_stage or 2}),
        }[self.distributed_type]
