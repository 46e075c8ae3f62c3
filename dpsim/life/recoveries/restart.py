"""The whole job starts again from its last checkpoint, as torchrun's and Slurm's requeue do."""

from __future__ import annotations

from dpsim.core.record import record
from dpsim.life.recoveries import Event, Outage, Recovery, Setting


@record
class Restart(Recovery):
    """All processes end and start again: the start-up parts pass anew, the last checkpoint is read.
    PyTorch's NCCL process group gives up after 10 minutes unless `detection` says better
    (ProcessGroupNCCL.hpp, kProcessGroupNCCLDefaultTimeout).
    """

    def outage(self, event: Event, setting: Setting) -> Outage:
        return Outage(self.detection + self.diagnosis, setting.startup, setting.restore)
