"""torchft: replica groups; where one fails the others go on, and it comes back beside them."""

from __future__ import annotations

from typing import Literal

from dpsim.core import units
from dpsim.core.record import Count, Refused, record
from dpsim.life.recoveries import Event, Outage, Recovery, Setting


@record
class TorchFt(Recovery):
    """A failure is noticed after the lighthouse's heartbeat timeout (src/lighthouse.rs: 5 s) and a
    quorum tick (100 ms); the step is discarded for all (torchft/manager.py, should_commit), the
    group of the broken node is left out, and the others go on.  A group starts up on its own, gets
    the state of a live one, and then takes part.  Nodes that break on their own are in groups of
    their own, the worst case; shared causes of several nodes go with groups of one node.

    Where no group is left, or the whole job stops, its launcher notices after `detection` and
    `diagnosis`, and the last checkpoint is read.

    group         nodes of a replica group: all of it is lost with one of them
    min_replicas  groups without which there is no quorum; left out: more than half
    mode          `dynamic`: all that are there take part; `fixed_with_spares`: `min_replicas` do,
                  others stand by
    heartbeat     timeout after which a group counts as lost
    quorum        tick in which groups agree who takes part
    reconfigure   until the groups' communicator is there anew
    heal          until a group that comes back has its state
    overhead      what each step takes longer: fault-tolerant all-reduces, `should_commit`
    """

    group: Count = 1
    min_replicas: Count | None = None
    mode: Literal["dynamic", "fixed_with_spares"] = "dynamic"
    heartbeat: units.Seconds = 5.0
    quorum: units.Seconds = 0.1
    reconfigure: units.Seconds = 0.0
    heal: units.Seconds = 0.0
    overhead: units.Seconds = 0.0

    def outage(self, event: Event, setting: Setting) -> Outage:
        if event == "growth":
            return Outage(0.0, self.quorum + self.reconfigure, 0.0, 0.0)
        return Outage(self.heartbeat, self.quorum + self.reconfigure, 0.0, setting.step)

    def lost(self, setting: Setting) -> Outage:
        return Outage(self.detection + self.diagnosis, setting.startup, setting.restore)

    def rarely(self) -> tuple[str, ...]:
        return ("detection", "diagnosis")

    def holders(self, setting: Setting) -> int:
        return setting.nodes // self.group

    def usable(self, lack: int, setting: Setting) -> int:
        if setting.nodes % self.group:
            said = f"{setting.nodes} nodes are no whole number of groups of {self.group}"
            raise Refused(said, ("recovery", "group"))
        if self.group > 1 and setting.together > 1:
            said = (
                f"groups of {self.group} nodes beside a cause that takes {setting.together} nodes "
                "at once are not modelled: how many groups these are in is not known; take "
                "group: 1, or failures without shared causes"
            )
            raise Refused(said, ("recovery", "group"))
        groups = setting.nodes // self.group
        least = self.min_replicas or groups // 2 + 1
        if least > groups:
            raise Refused(f"there are {groups} groups", ("recovery", "min_replicas"))
        left = groups - lack
        if left < least:
            return 0
        return (least if self.mode == "fixed_with_spares" else left) * self.group

    def joins(self, setting: Setting) -> float:
        return setting.startup + self.heal

    def pace(self, setting: Setting) -> float:
        return setting.step / (setting.step + self.overhead)
