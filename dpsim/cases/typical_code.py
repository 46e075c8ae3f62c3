"""What typical code takes, beside tuned code, of which predictions without a measured step are.

Of 84 sources of training runs that nobody had looked at (A25), steps take 1.31 times as long as
predicted in the median, in a tenth of them more than 4.2 times and in a tenth less than 0.78 times.
"""

from __future__ import annotations

from dpsim.core.record import Refused
from dpsim.describe.scenario import Scenario
from dpsim.models import Model

#: what the median source takes, and a tenth takes at most and at least, over what is predicted
LEVEL, FASTEST_TENTH, SLOWEST_TENTH = 1.31, 0.78, 4.2
#: standard deviations from the middle of a normal distribution to its 95 % point, over those to its
#: 90 % point: sources tell of that, too few of them of what lies farther out
_FARTHER = 1.6449 / 1.2816


def level_of(scenario: Scenario, model: Model) -> float:
    """What multiplies the modelled time of compute; Refused where that was measured."""
    if scenario.compute.code != "typical":
        return 1.0
    if scenario.calibrate is not None:
        message = "calibrate says how fast the code is; leave one of them out"
        raise Refused(message, ("compute", "code"))
    if any(layer.forward is not None for layer in model.layers):
        message = "layers state their durations, which say how fast the code is; leave it out"
        raise Refused(message, ("compute", "code"))
    return LEVEL


def ends() -> tuple[float, float]:
    """By what factors a step of typical code may be off."""
    return (FASTEST_TENTH / LEVEL) ** _FARTHER, (SLOWEST_TENTH / LEVEL) ** _FARTHER
