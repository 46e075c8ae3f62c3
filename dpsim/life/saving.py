"""Checkpoints: what is asked for, and what they do to a stretch of a run, in closed form."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np

from dpsim.core import units
from dpsim.core.arrays import Array
from dpsim.core.lean import dataclass
from dpsim.core.marks import Mark
from dpsim.core.record import Check, Refused, build, record

#: productive seconds between checkpoints where there are none: beyond any run
NEVER = 1e300


#: of an interval: where rounding alone decides, what ends this little before a multiple has
#: reached it.  Multiples of steps fall on one another, so that ties are the rule
TIE = 1e-6


@record
class StepsBetween:
    """So many steps between two checkpoints."""

    steps: Annotated[int, Check(1, 10**9)]


#: '500 steps'
_STEPS = re.compile(r"\s*(\d{1,10})\s*steps?\s*")


@dataclass(frozen=True)
class Every(Mark):
    """Marks an interval of what recurs in a run: a time, ``500 steps``, ``{steps: 500}``, and where
    it may be searched ``best``."""

    searched: bool = True

    def take(self, value: Any, file: bool) -> float | StepsBetween | str:
        if isinstance(value, StepsBetween) or (value == "best" and self.searched):
            return value  # type: ignore[no-any-return]
        if isinstance(value, Mapping):
            return build(StepsBetween, value, file=file)
        if isinstance(value, str) and (found := _STEPS.fullmatch(value)):
            return build(StepsBetween, {"steps": int(found[1])}, file=file)
        if isinstance(value, str) and not re.match(r"\s*[+-]?[\d.]", value):
            known = "'20 min', '500 steps' or best" if self.searched else "'20 min' or '500 steps'"
            raise ValueError(f"{value[:60]!r} is no interval; write {known}")
        return units.Unit("s", high=1e9, above=True).take(value, file)

    def json_schema(self) -> dict[str, Any]:
        steps = {"type": "object", "properties": {"steps": {"type": "integer", "minimum": 1}},
                 "required": ["steps"], "additionalProperties": False}  # fmt: skip
        known = ["20 min", "500 steps", *(["best"] if self.searched else [])]
        return {"oneOf": [{"type": "string", "examples": known}, steps]}


#: where a checkpoint is, and how many nodes have to be lost at once for it to be lost with them
PLACES = {"memory": 1.0, "peer": 2.0, "storage": math.inf}
Place = Literal["memory", "peer", "storage"]


@record
class SavingPace:
    """How fast a checkpoint is copied, written and read, wherever it goes.

    write, read  rates of the storage, of all nodes together; the nodes' NICs limit it too
    write_time, read_time  how long it takes, where that is known instead
    staging     rate at which a device's part is copied to its host (async)
    slowdown    how much longer steps take while a checkpoint is written (async)
    """

    write: units.BytesPerSecond | None = None
    read: units.BytesPerSecond | None = None
    write_time: units.Seconds | None = None
    read_time: units.Seconds | None = None
    staging: units.BytesPerSecond | None = None
    slowdown: Annotated[float, units.Unit("1", high=100.0)] = 0.0

    def _check_pace(self, mode: str, *, writes: bool, stages: bool) -> None:
        """Refuse what contradicts itself or is missing: `writes` and `stages` say whether it has to
        be said how fast it is written, and how fast it is copied."""
        given = [key for key in ("write", "write_time") if getattr(self, key) is not None]
        if len(given) > 1 or (writes and not given):
            raise Refused("needs either write (a rate) or write_time", ("write",))
        if self.read is not None and self.read_time is not None:
            raise Refused("give read (a rate) or read_time, not both", ("read",))
        if self.slowdown and mode != "async":
            raise Refused("is for mode: async", ("slowdown",))
        if self.staging is None and (stages or mode == "async"):
            said = "is missing: how fast is a device's state copied to its host?"
            raise Refused(said, ("staging",))


@record
class CheckpointLevel(SavingPace):
    """One of several places for checkpoints, with an interval of its own.

    to        `memory` of the nodes themselves, lost with any of them; `peer`: the memory of other
              nodes too; `storage`, which outlives them all
    every     between two of them: `20 min` of steps, or `500 steps`
    copies    of peer: nodes that hold each part; it is lost where as many are lost at once
    mode      `sync` or `async`, as that of a single checkpoint; so are the keys that follow
    write, read, write_time, read_time, staging, slowdown  likewise; left out, memory is written at
              `staging`, and peers through the nodes' NICs
    """

    to: Place
    every: Annotated[float | StepsBetween, Every(searched=False)]
    copies: Annotated[int, Check(2, 64)] | None = None
    mode: Literal["sync", "async"] = "sync"

    def __post_init__(self) -> None:
        if self.copies is not None and self.to != "peer":
            raise Refused("is for to: peer", ("copies",))
        if self.to == "memory" and self.mode == "async":
            raise Refused("is in memory once it is copied; sync is accepted", ("mode",))
        if self.mode == "sync" and self.to == "storage" and self.staging:
            raise Refused("is for mode: async", ("staging",))
        alone = self.to == "memory" and self.write is None and self.write_time is None
        self._check_pace(self.mode, writes=self.to == "storage", stages=alone)

    @property
    def survives(self) -> float:
        """Nodes that have to be lost at once for it to be lost."""
        return float(self.copies) if self.copies else PLACES[self.to]


@record
class Evaluation:
    """Pauses in which the model is evaluated, and no step is done.

    every  between two of them: `2 h` of steps, or `1000 steps`
    takes  for which steps stand still
    """

    every: Annotated[float | StepsBetween, Every(searched=False)]
    takes: units.Seconds


@record
class Checkpoint(SavingPace):
    """How the job's state is saved.

    every       between two checkpoints: `20 min` of steps, `500 steps`, or `best`: with which
                drawn runs take least time
    steps       the same in steps
    to          `storage`, `memory` of the nodes, or also that of a `peer`
    levels      in place of all but `bytes`, `storage` and `readers`: several places, finest first
    mode        `sync`: training stands still until all is written; `async`: until it is copied to
                the hosts, and what is not written yet is of no use; `free`: saving takes no time
                and nothing is ever lost
    bytes       of a checkpoint; left out: parameters, their fp32 copies and optimizer states
    storage     room for checkpoints; the newest and the one being written are kept
    readers     of the storage when the job starts again: each part is read once (`parts`), or all
                of it by every `replica` or `rank`
    """

    every: Annotated[float | StepsBetween | str, Every()] | None = None
    steps: Annotated[int, Check(1, 10**9)] | None = None
    to: Place = "storage"
    levels: tuple[CheckpointLevel, ...] | None = None
    mode: Literal["sync", "async", "free"] = "sync"
    bytes: units.Bytes | None = None
    storage: units.Bytes | None = None
    readers: Literal["parts", "replica", "rank"] = "parts"

    def __post_init__(self) -> None:
        if self.levels is not None:
            self._check_levels(self.levels)
            return
        if self.steps is not None:
            if self.every is not None:
                raise Refused("give every or steps, not both", ("steps",))
            object.__setattr__(self, "every", StepsBetween(steps=self.steps))
            object.__setattr__(self, "steps", None)
        if self.mode == "free":
            given = [key for key in (*_SAVING, "slowdown") if getattr(self, key)]
            if given:
                raise Refused("mode: free saves at no cost, always; leave it out", (given[0],))
            return
        self._check_alone()

    def _check_alone(self) -> None:
        """The keys of a single place."""
        if self.every is None:
            raise Refused("is missing: '20 min', {steps: 500} or best", ("every",))
        if self.mode != "async" and self.staging:
            raise Refused("is for mode: async", ("staging",))
        self._check_pace(self.mode, writes=True, stages=False)

    def _check_levels(self, levels: tuple[CheckpointLevel, ...]) -> None:
        """Each place once, those that outlive more after those that outlive less."""
        for key in (*_SAVING, "steps", "slowdown"):
            if key not in ("bytes", "storage") and getattr(self, key):
                raise Refused("is said by each of the levels; leave it out", (key,))
        if self.mode != "sync" or self.to != "storage":
            key = "mode" if self.mode != "sync" else "to"
            raise Refused("is said by each of the levels; leave it out", (key,))
        if not levels:
            raise Refused("is empty: {to: storage, every: '20 min', write: '20 GB/s'}", ("levels",))
        order = [list(PLACES).index(one.to) for one in levels]
        if sorted(set(order)) != order:
            said = "each place once, in the order memory, peer, storage"
            raise Refused(said, ("levels",))

    @property
    def parts(self) -> tuple[CheckpointLevel | Checkpoint, ...]:
        """Its levels, or itself."""
        return self.levels or (self,)

    @property
    def survives(self) -> float:
        """Nodes that have to be lost at once for it to be lost, where it is the only one."""
        return PLACES[self.to]


_SAVING = ("every", "bytes", "write", "read", "write_time", "read_time", "staging", "storage")


@dataclass(frozen=True)
class Saving:
    """Checkpoints of a run, in seconds.

    interval  productive time between two of them
    pause     for which steps stand still
    write     time after the pause until the checkpoint is of use
    slowdown  how much longer steps take while that goes on
    """

    interval: float = NEVER
    pause: float = 0.0
    write: float = 0.0
    slowdown: float = 0.0

    @property
    def cost(self) -> float:
        """Time that a checkpoint costs the run [s]."""
        return self.pause + self.write * self.slowdown / (1.0 + self.slowdown)

    def cycle(self, speed: Array) -> Array:
        """From one pause to the next at `speed` (productive seconds a second) [s]."""
        made: Array = self.interval / speed + self.cost
        return made

    def advance(self, seconds: Array, since: Array, speed: Array) -> tuple[Array, Array]:
        """Productive seconds of a stretch of so many `seconds`, and checkpoints that it leaves.

        since  productive seconds since the last checkpoint at its beginning
        """
        first, cycle = (self.interval - since) / speed, self.cycle(speed)
        beyond = seconds - first
        whole = np.maximum(np.floor(beyond / cycle), 0.0)
        rest = np.maximum(beyond - whole * cycle - self.pause, 0.0)
        slow = np.minimum(rest, self.write) / (1.0 + self.slowdown)
        inside = slow + np.maximum(rest - self.write, 0.0)
        steps = np.where(beyond < 0.0, seconds * speed,
                         self.interval * (whole + 1.0) - since + inside * speed)  # fmt: skip
        late = beyond - self.pause - self.write
        saved = np.where(late < 0.0, 0.0, np.floor(late / cycle) + 1.0)
        return steps, saved

    def duration(self, productive: Array, since: Array, speed: Array) -> Array:
        """Seconds that `productive` seconds take with the checkpoints between them; there is none
        at their end."""
        first, each = self.interval - since, self.interval
        pauses = np.maximum(np.ceil((productive - first) / each - TIE), 0.0)
        last = (productive - first - np.maximum(pauses - 1.0, 0.0) * each) / speed
        quick = self.write / (1.0 + self.slowdown)
        tail = np.where(last <= quick, last * (1.0 + self.slowdown), last + self.write - quick)
        after = (pauses - 1.0) * self.cycle(speed) + self.pause + tail
        ends: Array = np.where(pauses > 0, first / speed + after, productive / speed)
        return ends


# -- published intervals --------------------------------------------------------------------------


def young(cost: float, mtti: float) -> float:
    """Young's interval sqrt(2 C M) between checkpoints that cost C (Young, CACM 17(9), 1974) [s].

    >>> round(young(60, 3.0931 * 3600))
    1156
    """
    return math.sqrt(2.0 * cost * mtti)


def daly(cost: float, mtti: float) -> float:
    """Daly's interval of higher order (Daly, FGCS 22(3), 2006, equation 37) [s].

    >>> round(daly(60, 3.0931 * 3600), 1)
    1116.3
    """
    if cost >= 2.0 * mtti:
        return mtti
    part = math.sqrt(cost / (2.0 * mtti))
    return young(cost, mtti) * (1.0 + part / 3.0 + part * part / 9.0) - cost


def expected(productive: float, interval: float, cost: float, restart: float, mtti: float) -> float:
    """Daly's exact mean of a run whose failures come at any time, at a constant rate
    (equation 20): M e^(R/M) (e^((tau + C)/M) - 1) Ts / tau [s]; infinite where it overflows."""
    interval = min(interval, productive)
    try:
        grown = math.exp(restart / mtti) * math.expm1((interval + cost) / mtti)
    except OverflowError:
        return math.inf
    return mtti * grown * productive / interval
