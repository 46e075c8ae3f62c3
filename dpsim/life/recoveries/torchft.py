"""torchft: replica groups; where one fails the others go on, and it comes back beside them."""

from __future__ import annotations

from typing import Literal

from dpsim.core import units
from dpsim.core.record import Count, Refused, record
from dpsim.life.recoveries import Event, Outage, Recovery, Setting


@record
class TorchFt(Recovery):
    """The step in hand is discarded for all at its end (torchft/manager.py, should_commit).  With
    the next one each group asks for a quorum, computes beside that (use_async_quorum), and waits
    for it where gradients are reduced first.  The lighthouse leaves a group out `heartbeat` after
    its last one (src/lighthouse.rs: 5 s), which is half an `interval` old in the mean, and finds
    that at a tick (`quorum`, 100 ms), half of one later.  With the quorum there, which nobody asks
    for before the step in hand has ended, communicators are made anew (_async_quorum).  So a
    failure costs what is left of its step, or more where the lighthouse takes longer, and what of
    making anew is not beside computing; the mean over times in a step is taken here.

    A group starts up on its own, gets the state of a live one, and takes part from the next quorum
    on, which all who are there agree on at once.  Nodes that break on their own are in groups of
    their own, the worst case; shared causes of several nodes go with groups of one node.

    Where no group is left, or the whole job stops, its launcher notices after `detection` and
    `diagnosis`, and the last checkpoint is read.

    group         nodes of a replica group: all of it is lost with one of them
    min_replicas  groups without which there is no quorum; left out: more than half
    mode          `dynamic`: all that are there take part; `fixed_with_spares`: `min_replicas` do,
                  others stand by
    heartbeat     timeout after which a group counts as lost
    interval      between two heartbeats (torchft/manager.py, heartbeat_interval)
    quorum        tick in which the lighthouse looks who takes part
    abort         until collectives of the step in hand give up: gloo sees at once that a connection
                  is closed; NCCL's are aborted after 60 s (torchft/process_group.py)
    reconfigure   until the groups' communicator is there anew
    heal          until a group that comes back has its state
    overhead      what each step takes longer: fault-tolerant all-reduces, `should_commit`
    """

    group: Count = 1
    min_replicas: Count | None = None
    mode: Literal["dynamic", "fixed_with_spares"] = "dynamic"
    heartbeat: units.Seconds = 5.0
    interval: units.Seconds = 0.1
    quorum: units.Seconds = 0.1
    abort: units.Seconds = 0.0
    reconfigure: units.Seconds = 0.0
    heal: units.Seconds = 0.0
    overhead: units.Seconds = 0.0

    def outage(self, event: Event, setting: Setting) -> Outage:
        step, ahead = setting.step, setting.ahead
        if event == "growth":
            return Outage(0.0, max(self.reconfigure - ahead, 0.0), 0.0, 0.0)
        least, late = self._beside(ahead)
        ended = least
        if least < step:  # the rest of the step in hand, uniform on 0 … step, where that is more
            ended = (step * step + least * least) / (2.0 * step)
        wait = ended + late
        anew = min(self.reconfigure, wait)
        return Outage(wait - anew, anew, 0.0, step)

    def costs(self, rest: float, ahead: float) -> float:
        """Seconds from a failure, `rest` seconds before its step would have ended, to the end of
        the next one that counts, less a step; `ahead` as in Setting [s]."""
        least, late = self._beside(ahead)
        return max(rest, least) + late

    def _beside(self, ahead: float) -> tuple[float, float]:
        """How long the step in hand seems to last at the least, for its collectives give up no
        sooner, or the lighthouse takes longer than what is computed beside it; and what is left of
        making communicators anew then [s]."""
        known = self.heartbeat + (self.quorum - self.interval) / 2.0
        least = max(known - max(ahead - self.reconfigure, 0.0), self.abort, 0.0)
        return least, max(self.reconfigure - ahead, 0.0)

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
