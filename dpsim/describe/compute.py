"""How fast devices compute, where nothing was measured: the section `compute`."""

from __future__ import annotations

from typing import Annotated, Literal

from dpsim.core import units
from dpsim.core.record import Refused, record


@record
class Compute:
    """How fast the devices compute.

    efficiency  share of the device's peak that large kernels reach; left out: what was fitted for
                its generation and dtype, else as its maker publishes (TPU v4, v5e, v5p), else 50 %
    contention  how much longer computing takes while a collective runs beside it (0.5: half as
                long again); left out: what was fitted for the backend and the model's size
    spread      standard deviation of the ranks' step times, as a share of the step: synchronous
                ranks wait for the slowest; left out: what was fitted for GPU machines, the less the
                longer a step computes and least with synthetic data, or 0 where `variability` says
                how ranks differ at random
    code        how fast the code is taken to be where no step was measured: `tuned`, as published
                benchmarks', or `typical`, as other sources', 1.36 times as long and less sure;
                steps carried from a measured one to other counts are as unsure as theirs were
    """

    efficiency: units.PositiveFraction | None = None
    contention: Annotated[float, units.Unit("1", low=0.0, high=10.0)] | None = None
    spread: Annotated[float, units.Unit("1", low=0.0, high=1.0)] | None = None
    code: Literal["tuned", "typical"] = "tuned"

    def __post_init__(self) -> None:
        if self.typical and self.efficiency is not None:
            message = "efficiency says what the code reaches; leave one of them out"
            raise Refused(message, ("code",))

    @property
    def typical(self) -> bool:
        """Whether the code is taken to be as that of sources that nobody had looked at."""
        return self.code == "typical"
