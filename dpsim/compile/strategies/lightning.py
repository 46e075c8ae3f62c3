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

from dpsim.compile.strategies import Beside, Job
from dpsim.compile.strategies._wrapper import Wrapper
from dpsim.core.record import Check, Count, Refused, record

#: deepspeed.py, DeepSpeedStrategy.__init__
DEEPSPEED = {"overlap_comm": True, "contiguous_gradients": True, "reduce_bucket_size": 200_000_000}
_OFFLOADED = ("deepspeed_stage_3_offload", "deepspeed_stage_3_offload_nvme", "fsdp_cpu_offload")
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

    strategy: Name = "ddp"
    devices: Count | None = None
    num_nodes: Count = 1
    logged: Annotated[int, Check(0, 1000)] = 0
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.strategy in _OFFLOADED:
            raise Refused(
                f"{self.strategy} keeps parameters off the device, which is not modelled; "
                "deepspeed_stage_2_offload and deepspeed_stage_3 are",
                ("strategy",),
            )
        super().__post_init__()

    def backend(self) -> tuple[str, dict[str, Any]]:
        if self.strategy.startswith("ddp"):
            return "ddp", {"find_unused_parameters": self.strategy.endswith("_true")}
        if self.strategy == "fsdp":
            return "fsdp1", {"use_orig_params": True}
        _, _, rest = self.strategy.partition("_stage_")
        stage = int(rest[0]) if rest else 2
        offload = {"offload_optimizer": "cpu"} if rest.endswith("_offload") else {}
        return "zero", {**DEEPSPEED, "stage": stage, **offload}

    @property
    def processes(self) -> tuple[str, int] | None:
        return None if self.devices is None else ("devices", self.devices * self.num_nodes)

    def added(self, job: Job) -> tuple[Beside, ...]:
        """Barriers (NCCL's reduce one float32), and one reduction per logged value, after which the
        host goes on."""
        found = [
            Beside(f"barrier around {what}", what, 0.0, "all_reduce", 4.0)
            for what in ("validation", "checkpoint")
        ]
        found += [
            Beside(f"logged value {k + 1}", "step", 0.0, "all_reduce", 4.0)
            for k in range(self.logged)
        ]
        return tuple(found)
