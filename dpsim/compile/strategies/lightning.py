"""PyTorch Lightning: DDP, FSDP or DeepSpeed with Lightning's defaults.

Read in Lightning-AI/pytorch-lightning src/lightning/pytorch/strategies/ (ddp.py, fsdp.py,
deepspeed.py; 2.6.6): DDP is torch's, and the strategies whose names end so set
find_unused_parameters; FSDP is version 1 with original parameters; DeepSpeed has stage 2,
`overlap_comm`, and buckets of 2e8 elements.  There are barriers around validation and checkpoints,
and a reduction for every value logged with sync_dist.
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any, Literal

from dpsim.compile.strategies import Beside
from dpsim.compile.strategies._wrapper import Preset, Wrapper
from dpsim.core.record import Check, Count, Refused, record

#: deepspeed.py, DeepSpeedStrategy.__init__
DEEPSPEED = {"overlap_comm": True, "contiguous_gradients": True, "reduce_bucket_size": 200_000_000}
#: what is played under Lightning's names; its others keep parameters off the device
PRESETS: dict[str, Preset] = {
    "ddp": ("ddp", {}),
    "ddp_find_unused_parameters_true": ("ddp", {"find_unused_parameters": True}),
    "ddp_find_unused_parameters_false": ("ddp", {"find_unused_parameters": False}),
    "fsdp": ("fsdp1", {"use_orig_params": True}),
    "deepspeed": ("zero", DEEPSPEED | {"stage": 2}),
    "deepspeed_stage_1": ("zero", DEEPSPEED | {"stage": 1}),
    "deepspeed_stage_2": ("zero", DEEPSPEED | {"stage": 2}),
    "deepspeed_stage_2_offload": ("zero", DEEPSPEED | {"stage": 2, "offload_optimizer": "cpu"}),
    "deepspeed_stage_3": ("zero", DEEPSPEED | {"stage": 3}),
}
Name = Literal[
    "ddp", "ddp_find_unused_parameters_true", "ddp_find_unused_parameters_false", "fsdp",
    "fsdp_cpu_offload", "deepspeed", "deepspeed_stage_1", "deepspeed_stage_2",
    "deepspeed_stage_2_offload", "deepspeed_stage_3", "deepspeed_stage_3_offload",
    "deepspeed_stage_3_offload_nvme",
]  # fmt: skip


@record
class Lightning(Wrapper):
    """What the Trainer is told.

    strategy      one of the names that Lightning registers
    devices       `Trainer(devices=…)`, of a node; with `num_nodes` must make the cluster's ranks
    num_nodes     `Trainer(num_nodes=…)`
    logged        values logged with `sync_dist=True` in a step
    options       further settings of the wrapped strategy, by its own names
    """

    processes = "devices"

    strategy: Name = "ddp"
    devices: Count | None = None
    num_nodes: Count = 1
    logged: Annotated[int, Check(0, 1000)] = 0
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.strategy not in PRESETS:
            raise Refused(
                f"{self.strategy} keeps parameters off the device, which is not modelled; "
                "deepspeed_stage_2_offload and deepspeed_stage_3 are",
                ("strategy",),
            )
        super().__post_init__()

    @property
    def preset(self) -> Preset:
        return PRESETS[self.strategy]

    @property
    def launched(self) -> int | None:
        return self.devices and self.devices * self.num_nodes

    @property
    def added(self) -> tuple[Beside, ...]:
        """Barriers (NCCL's reduce one float32), and one reduction per logged value, after which the
        host goes on."""
        found = [(f"barrier around {what}", what) for what in ("validation", "checkpoint")]
        found += [(f"logged value {k + 1}", "step") for k in range(self.logged)]
        return tuple(Beside(name, per, 0.0, "all_reduce", 4.0) for name, per in found)
