"""Hot spares: processes of warm nodes run already, and one of them takes a broken node's place."""

from __future__ import annotations

from dpsim.core import units
from dpsim.core.record import Refused, record
from dpsim.life.recoveries import Event, Outage, Recovery, Setting


@record
class HotSpares(Recovery):
    """While a warm spare is at hand nothing starts up: after `swap` the last checkpoint is read.
    Without one the whole job starts again.

    swap  until a warm spare has the place of a broken node
    """

    swap: units.Seconds = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.spares is None or self.spares.warm == 0:
            raise Refused("needs warm nodes: {warm: 2}", ("spares",))

    def outage(self, event: Event, setting: Setting) -> Outage:
        known = self.detection + self.diagnosis
        startup = self.swap if event == "swap" else setting.startup
        return Outage(known, startup, setting.restore)
