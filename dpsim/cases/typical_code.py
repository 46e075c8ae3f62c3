"""What typical code takes and loses, beside tuned code, of which predictions are (A103).

Whole steps of sources of training runs that nobody had looked at, over what is predicted of tuned
code, are taken for what their compute takes; `validation/typical_code.py` pools the sources.
"""

from __future__ import annotations

from dpsim.core.record import Refused
from dpsim.describe.scenario import Scenario
from dpsim.models import Model

#: how many sources there are, what the median of them takes over what is predicted, and what a
#: twentieth takes at most and at least
SOURCES, LEVEL, FASTEST, SLOWEST = 120, 1.36, 0.67, 6.1
#: of how many sources of the last three draws steps could be calibrated on a smaller count, and
#: what a twentieth of these takes at most and at least over such a prediction: inside a node, and
#: between nodes
SCALED, INSIDE, BETWEEN = 58, (0.96, 1.69), (0.92, 3.15)


def is_typical(scenario: Scenario) -> bool:
    """Whether compute is typical code's: asked for, and no measured step says how fast it is."""
    return scenario.compute.typical and scenario.calibrate is None


def level_of(scenario: Scenario, model: Model) -> float:
    """What multiplies the modelled time of compute: 1 where it was measured, or is tuned code's.

    Raises Refused where layers state how long they take.
    """
    if not is_typical(scenario):
        return 1.0
    if any(layer.forward is not None for layer in model.layers):
        message = "layers state their durations, which say how fast the code is; leave it out"
        raise Refused(message, ("compute", "code"))
    return LEVEL


def carried_ends(nodes: int) -> tuple[float, float]:
    """By what factors a step of typical code on so many `nodes` may be off that is carried from the
    measured one."""
    return BETWEEN if nodes > 1 else INSIDE


def compute_ends() -> tuple[float, float]:
    """By what factors the compute of typical code may be off."""
    return FASTEST / LEVEL, SLOWEST / LEVEL
