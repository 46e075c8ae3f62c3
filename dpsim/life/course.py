"""A course: all that the drawn runs of one job have in common."""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property
from typing import Any

import numpy as np

from dpsim.core.arrays import Array
from dpsim.core.lean import dataclass
from dpsim.life.failures import Hazard
from dpsim.life.halts import Halt, Halts
from dpsim.life.recoveries import Outage, Repair, Spares
from dpsim.life.saving import NEVER, Saving
from dpsim.life.timers import Reclaimed, Silent, Windows

#: every second of a run has one of these labels.  The first is productive; the others are those of
#: ml-goodput-measurement (AI-Hypercomputer, v0.2.0), with recovery of infrastructure in two parts,
#: and what a recovery makes every step take longer
LABELS = (
    "step", "fewer_nodes", "checkpoint_save", "wasted_progress", "detection", "waiting_for_nodes",
    "initialization", "checkpoint_restore", "step_overhead", "evaluation", "slow_nodes",
    "maintenance",
)  # fmt: skip
(STEP, FEWER, SAVE, WASTED, DETECTION, WAITING, STARTUP, RESTORE, OVERHEAD, EVALUATION, SLOW,
 MAINTENANCE) = range(len(LABELS))  # fmt: skip
#: what a job answers to, as numbers; `ON`: it goes on
BEGIN, FAILURE, SWAP, GROWTH, LOST, ON, PREEMPTED, MAINTAINED, REPLACED, CORRUPT = range(10)
#: whether a warm node may take a place after each of them
BROKEN = np.isin(np.arange(10), (FAILURE, LOST, PREEMPTED, REPLACED, CORRUPT))


@dataclass(frozen=True)
class Outages:
    """What the job answers to the beginning and to each event.

    lost  to a failure that leaves nobody with the job's state; None: as to any other failure
    diagnosis  the part of an outage's detection that passes where it was known that something would
               break, too [s]
    """

    begin: Outage
    failure: Outage
    swap: Outage
    growth: Outage
    lost: Outage | None = None
    diagnosis: float = 0.0

    def column(self, name: str) -> Array:
        """One number of each, shape (5,); what keeps nothing beyond a checkpoint is -1."""
        events = (self.begin, self.failure, self.swap, self.growth, self.lost or self.failure)
        found = (getattr(one, name) for one in events)
        return np.array([-1.0 if value is None else value for value in found])

    @property
    def numbered(self) -> tuple[Outage, ...]:
        """What the job answers, in the order of BEGIN … CORRUPT.  Whoever is warned has nothing to
        detect; a job that stops for maintenance, or goes back before a corruption, starts anew."""
        lost = self.lost or self.failure
        known = replace(self.failure, detection=self.diagnosis)
        anew = replace(lost, detection=0.0)
        return (
            self.begin, self.failure, self.swap, self.growth, lost,
            Outage(0.0, 0.0, 0.0, 0.0), replace(known, detection=0.0), replace(anew, keeps=0.0),
            known, replace(anew, detection=self.diagnosis, keeps=None),
        )  # fmt: skip


@dataclass(frozen=True)
class Course:
    """What the runs of a job have in common.

    productive  seconds of steps, with all nodes, that the run needs
    nodes       of the job
    speeds      productive seconds a second with 0, 1, 2, … nodes lacking; with more it waits
    pace        of these, what is left where every step takes longer: also with all nodes
    bad         share of all nodes that are bad at the beginning, and how much oftener they break
    always      failures strike while the job recovers, too
    levels      of checkpoints, finest first, where there are several; else `saving` is the only one
    evaluation  what steps stop for beside checkpoints
    reclaimed   how spot nodes go and come back
    windows     of maintenance
    slow, corrupt  what goes wrong unseen
    joins       from having a node until it works, while the others go on; 0: it comes at once [s]
    holders     nodes that have to be away for the job's state to be lost with them; 0: all
    endless     a broken node's place is taken at once, by another
    """

    productive: float
    nodes: int
    saving: Saving
    outages: Outages
    hazards: tuple[Hazard, ...]
    seed: int = 0
    speeds: tuple[float, ...] = (1.0,)
    pace: float = 1.0
    spares: Spares = field(default_factory=Spares)
    repair: Repair | None = None
    selection: float = 0.0
    joins: float = 0.0
    holders: int = 0
    bad: tuple[float, float] = (0.0, 1.0)
    always: bool = True
    levels: tuple[Halt, ...] = ()
    evaluation: Halt | None = None
    reclaimed: Reclaimed | None = None
    windows: Windows | None = None
    slow: Silent | None = None
    corrupt: Silent | None = None

    @property
    def layered(self) -> bool:
        """Whether there is more to it than failures that are seen, and one kind of checkpoint."""
        return bool(
            self.levels or self.evaluation or self.reclaimed or self.windows or self.slow
            or self.corrupt
        )  # fmt: skip

    @property
    def timed(self) -> tuple[str, ...]:
        """What comes at a time of its own, by the names under which it is counted."""
        known = {"maintenance": self.windows, "slow": self.slow, "corruption": self.corrupt}
        return tuple(name for name, one in known.items() if one)

    @cached_property
    def halts(self) -> Halts:
        """All that steps stand still for, checkpoints first."""
        own, saving = self.levels, self.saving
        if not own and not self.free:
            own = (Halt(saving.interval, saving.pause, saving.write, saving.slowdown,
                        self.outages.failure.restore),)  # fmt: skip
        return Halts((*own, self.evaluation) if self.evaluation else own)

    @property
    def last_save(self) -> float:
        """Seconds until everything is written to the last level."""
        levels = self.halts.levels
        return levels[-1].pause + levels[-1].write if levels else 0.0

    @property
    def in_time(self) -> bool:
        """Whether all is saved between the notice that a node goes and its going."""
        return self.reclaimed is not None and self.last_save <= self.reclaimed.notice

    @property
    def endless(self) -> bool:
        return self.repair is None

    @property
    def one_by_one(self) -> bool:
        """Whether cold nodes are fetched one after another."""
        return self.spares.fetched == "one_by_one"

    @property
    def technicians(self) -> int | None:
        """Who mend broken nodes, one at a time each; None: as many as are needed."""
        return self.repair.technicians if self.repair else None

    def loses(self, takes: Array, lack: Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether failures that take so many nodes (0: they stop the job), after which so many
        lack, leave nobody with the state; of the shape of both."""
        left = lack < (self.holders or self.nodes)
        found: np.ndarray[Any, np.dtype[np.bool_]] = (takes == 0) | ~left
        return found & (self.outages.lost is not None)

    @property
    def free(self) -> bool:
        """Whether nothing that was done is ever lost."""
        return self.saving.interval == NEVER

    @cached_property
    def steady(self) -> tuple[Hazard, ...]:
        """What breaks at a constant rate."""
        return tuple(one for one in self.hazards if one.shape is None)

    @cached_property
    def aging(self) -> tuple[Hazard, ...]:
        """What breaks by its age."""
        return tuple(one for one in self.hazards if one.shape is not None)

    @property
    def rate(self) -> float:
        """Failures per second at the beginning, in the mean."""
        share, factor = self.bad
        worse = 1.0 + share * (factor - 1.0)
        return sum(one.rate * (worse if one.nodes == 1 else 1.0) for one in self.hazards)

    @property
    def restart(self) -> float:
        """Seconds from a failure until steps go on, where no node has to be waited for."""
        found = self.outages.failure
        return found.detection + found.startup + found.restore

    @property
    def pools(self) -> tuple[int, ...]:
        """Nodes at work, warm, idle and cold at the beginning."""
        return self.nodes, self.spares.warm, self.spares.idle, self.spares.cold


@dataclass(frozen=True)
class Lives:
    """Drawn runs, one row each.

    times     from the first start to the end of the last step [s], shape (runs,)
    seconds   by label, shape (runs, labels); a row sums to its time
    failures  by what broke, shape (runs, hazards), steady ones first
    names     of what breaks
    """

    times: Array
    seconds: Array
    failures: Array
    names: tuple[str, ...]

    @property
    def goodput(self) -> float:
        """Productive time over all time."""
        return float(self.seconds[:, STEP].sum() / self.times.sum())

    @property
    def badput(self) -> dict[str, float]:
        """Shares of all time by label, without what took none."""
        shares = self.seconds.sum(axis=0) / self.times.sum()
        return {label: float(share) for label, share in zip(LABELS[1:], shares[1:], strict=True)
                if share > 0}  # fmt: skip
