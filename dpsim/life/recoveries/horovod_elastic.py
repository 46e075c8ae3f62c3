"""Horovod Elastic: workers that are left go back to the state that they committed in memory."""

from __future__ import annotations

from dpsim.core import units
from dpsim.core.record import Count, record
from dpsim.life.recoveries import Event, Outage, Recovery, Setting


@record
class HorovodElastic(Recovery):
    """After a failure the workers that are left initialise Horovod anew, take the state that they
    committed last and send it to all; new ones come in at a commit, and nothing is lost then
    (horovod/common/elastic.py).  Where no worker is left, or the whole job stops, the commits are
    gone with their memory, and the last checkpoint is read.

    fewest  workers' nodes with which it goes on (`--min-np`); with fewer it waits
    commit  steps between two calls of `state.commit()`
    sync    until all have the state of rank 0
    """

    fewest: Count
    commit: Count = 1
    sync: units.Seconds = 0.0

    def outage(self, event: Event, setting: Setting) -> Outage:
        if event == "growth":
            return Outage(0.0, setting.startup, self.sync, 0.0)
        kept = self.commit * setting.step
        return Outage(self.detection + self.diagnosis, setting.startup, self.sync, kept)

    def lost(self, setting: Setting) -> Outage:
        return Outage(self.detection + self.diagnosis, setting.startup, setting.restore)

    def usable(self, lack: int, setting: Setting) -> int:
        return setting.left(lack, self.fewest)
