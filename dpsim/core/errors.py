"""What goes wrong inside, where the input is not to blame (that is `dpsim.core.record.Refused`)."""

from __future__ import annotations


class SimulationError(RuntimeError):
    """The simulation itself went wrong; there is no number."""
