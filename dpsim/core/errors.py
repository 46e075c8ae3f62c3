"""What goes wrong inside, where the input is not to blame (that is `dpsim.core.record.Refused`)."""

from __future__ import annotations


class SimulationError(RuntimeError):
    """The simulation itself went wrong; there is no number."""


class EnginesDisagree(SimulationError):
    """Two engines that should agree do not: neither has an answer, to this point or to another."""
