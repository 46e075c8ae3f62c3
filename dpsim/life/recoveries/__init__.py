"""The contract of this folder: what a job does when something broke."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from dpsim.core import units
from dpsim.core.lean import dataclass
from dpsim.core.record import Check, Refused, record

#: what a job answers to: something broke, something broke and a warm spare is at hand, nodes came
#: (for a failure that leaves nobody with the job's state see `Recovery.lost`)
Event = Literal["failure", "swap", "growth"]
Nodes = Annotated[int, Check(0, 1_048_576)]


@record
class Spares:
    """Nodes beside those of the job.

    warm       assigned to the job: one takes the place of a broken node at once
    idle       free: the job takes them when it selects nodes anew, and makes some of them warm
    cold       in use by others, or not switched on
    provision  time until cold ones are there
    fetched    `together`: all that lack come at once; `one_by_one`: each after the one before,
               until the job and its warm nodes are complete, and only then steps go on, as AIReSim
               takes nodes from its spare pool (airesim/simulator.py); without cold ones those
               that come back from repair
    """

    warm: Nodes = 0
    idle: Nodes = 0
    cold: Nodes = 0
    provision: units.Seconds = 0.0
    fetched: Literal["together", "one_by_one"] = "together"


@record
class Repair:
    """What becomes of a broken node.  Times are means of exponential ones.  Nodes that broke
    together are one repair.

    automatic        time of the first attempt
    manual           time of the second, by people
    escalates        share of nodes that need it
    technicians      who mend one at a time each, first come, first served; left out, nobody waits
                     for one, as in AIReSim's repair shop (airesim/repairs.py)
    automatic_fails  share that comes back from the first as it was: a bad node stays bad
    manual_fails     likewise from the second
    """

    automatic: units.Seconds
    manual: units.Seconds = 0.0
    escalates: units.Fraction = 0.0
    technicians: Annotated[int, Check(1, 1024)] | None = None
    automatic_fails: units.Fraction = 0.0
    manual_fails: units.Fraction = 0.0


@dataclass(frozen=True)
class Setting:
    """What a recovery may have to know of the job.

    startup   the scenario's start-up parts together [s]
    restore   reading a checkpoint [s]
    step      a step [s]
    nodes     of the job
    together  most nodes that one cause takes at once
    replica   fewest nodes that hold the model
    ahead     of a step, what is computed before its first reduction over ranks [s]
    """

    startup: float
    restore: float
    step: float
    nodes: int
    together: int = 1
    replica: int = 1
    ahead: float = 0.0

    def left(self, lack: int, fewest: int) -> int:
        """Nodes that are left while `lack` are away; 0 where they are less than `fewest`."""
        left = self.nodes - lack
        return left if left >= min(fewest, self.nodes) else 0


@dataclass(frozen=True)
class Outage:
    """What passes before steps go on, in this order, and what is left of what was done.

    detection  until it is known what broke [s]; then nodes are found
    startup    until processes are there and know each other [s]
    restore    until they have their state [s]
    keeps      state is kept up to the last multiple of so many productive seconds; None: up to
               the last checkpoint
    """

    detection: float
    startup: float
    restore: float
    keeps: float | None = None


@record
class Recovery:
    """A plug-in says what passes after an event, and with how few nodes the job goes on.

    detection  until the job knows that something broke
    diagnosis  until it is known what
    selection  of nodes, where no warm spare is at hand
    spares     nodes beside those of the job; left out: a broken node's place is taken at once
    repair     how long broken nodes are away; left out: for ever, and others take their place
    """

    tag: ClassVar[str] = "kind"
    detection: units.Seconds = 600.0
    diagnosis: units.Seconds = 0.0
    selection: units.Seconds = 0.0
    spares: Spares | None = None
    repair: Repair | None = None

    def __post_init__(self) -> None:
        if self.spares is not None and self.repair is None:
            message = "is missing: without it spares run out, and then the job waits for ever"
            raise Refused(message, ("repair",))

    def outage(self, event: Event, setting: Setting) -> Outage:
        """What passes before the job goes on after `event`."""
        raise NotImplementedError

    def lost(self, setting: Setting) -> Outage | None:
        """What passes after a failure that leaves nobody with the state that is kept in memory;
        None: as after any other, for jobs that keep none."""
        return None

    def rarely(self) -> tuple[str, ...]:
        """Keys that matter after such a failure only."""
        return ()

    def holders(self, setting: Setting) -> int:
        """Nodes that have to be away for the state in memory to be lost with them."""
        return setting.nodes

    def usable(self, lack: int, setting: Setting) -> int:
        """Nodes that go on while `lack` others are away; 0: the job waits for nodes."""
        return 0 if lack else setting.nodes

    def joins(self, setting: Setting) -> float:
        """From having a node until it works, while the others go on [s]; 0: it comes at once, in
        the outage of its event."""
        return 0.0

    def pace(self, setting: Setting) -> float:
        """Productive seconds a second with all nodes: below 1 where steps take longer with it."""
        return 1.0


CONTRACT = Recovery
