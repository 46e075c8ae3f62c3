"""Ray Train: DDP or FSDP on a group of Ray workers.

Read in ray-project/ray python/ray/train/ (torch/train_loop_utils.py, v2/_internal/constants.py,
v2/_internal/execution/; 2.60): `prepare_model` wraps the model in torch's DDP or FSDP with the
arguments it is given.  `report` with a checkpoint is a barrier over all ranks.  The controller
polls every 2 s; a worker that answers no health check for 600 s counts as failed; a failure tears
down the whole group, which starts again (within 60 s, or that fails) from the latest checkpoint, at
most `max_failures` times (0 by default).
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal

from dpsim.compile.job import Job
from dpsim.compile.strategies import Beside
from dpsim.compile.strategies._wrapper import Preset, Wrapper
from dpsim.core import units
from dpsim.core.record import Count, Natural, Refused, record

#: constants.py: health check interval, health check timeout, worker group start timeout
POLL, SILENT, START = 2.0, 600.0, 60.0


@record
class RayTrain(Wrapper):
    """What the trainer is told.  Times that are left out are unknown, and the answer says so.

    num_workers          of ScalingConfig: must be the cluster's ranks; left out: they are
    parallel_strategy    of `prepare_model`
    max_failures         of FailureConfig: restarts before the run fails
    report_latency       of one `report`: calls to an actor, besides waiting for the slowest rank
    worker_group_start   time until a new group of workers trains, checkpoint apart
    checkpoint_load      time to load the latest checkpoint
    options              further settings of the wrapped strategy, by its own names
    """

    processes = "num_workers"

    num_workers: Count | None = None
    parallel_strategy: Literal["ddp", "fsdp"] = "ddp"
    max_failures: Natural = 0
    report_latency: units.Seconds | None = None
    worker_group_start: units.Seconds | None = None
    checkpoint_load: units.Seconds | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.worker_group_start is not None and self.worker_group_start > START:
            raise Refused(
                f"{self.worker_group_start:g} s is beyond Ray's own limit of {START:g} s",
                ("worker_group_start",),
            )
        super().__post_init__()

    @property
    def preset(self) -> Preset:
        return ("ddp" if self.parallel_strategy == "ddp" else "fsdp1", {})

    @property
    def added(self) -> tuple[Beside, ...]:
        """A report, and the parts of a restart, where restarts are allowed."""
        report = Beside("report's barrier", "report", self.report_latency)
        if not self.max_failures:
            return (report,)
        return (
            report,
            # a failure falls anywhere between two polls; a worker that hangs is silent for longer
            Beside("failure seen by the controller", "restart", POLL / 2, at_most=SILENT),
            Beside("worker group started", "restart", self.worker_group_start, at_most=START),
            Beside("checkpoint loaded", "restart", self.checkpoint_load),
        )

    def notes(self, job: Job) -> tuple[str, ...]:
        """Without restarts the first failure ends the run."""
        own = () if self.max_failures else ("max_failures is 0: Ray ends the run at a failure",)
        return (*super().notes(job), *own)
