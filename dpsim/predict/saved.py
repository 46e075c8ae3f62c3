"""The checkpoints of a run, as a point tells them."""

from __future__ import annotations

from dpsim.core.lean import dataclass


@dataclass(frozen=True)
class SavedLevel:
    """Checkpoints to one place: memory, peer or storage; the rest as of `Saved`."""

    to: str
    every_s: float
    steps: int
    pause_s: float
    write_s: float


@dataclass(frozen=True)
class Saved:
    """The checkpoints of a run; of several levels those of the finest that outlives a node.

    every_s    of steps between two of them; `steps` as many
    bytes      None where how long writing takes was given
    pause_s    for which steps stand still; write_s: until the checkpoint is of use
    young_s    Young's interval for what one costs and the first mean time between failures
    daly_s     Daly's of higher order
    levels     all of them, finest first, where there are several
    """

    every_s: float
    steps: int
    bytes: float | None
    pause_s: float
    write_s: float
    restore_s: float
    young_s: float
    daly_s: float
    levels: tuple[SavedLevel, ...] = ()
