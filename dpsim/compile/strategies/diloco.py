"""DiLoCo: workers train apart, and an outer optimizer follows the mean of where they went.

Douillard et al., arXiv:2311.08105.  Every `period` steps the workers reduce by how much their
parameters have changed (the outer gradient); an outer optimizer, Nesterov's momentum, updates a
copy of the parameters with it, from which all go on.

Streaming (Douillard et al., arXiv:2501.18512): the parameters are exchanged in `fragments`, one by
one over the round, in fewer bits (`outer_dtype`), and the result is awaited `delay` steps later,
while the worker trains on.  `delay` of a whole round are the eager updates of arXiv:2502.12996.

Frameworks: torchft (torchft/local_sgd.py) waits for the exchange, or with fragments a delay shorter
than the steps between two of them; MaxText splits the parameters, and does not overlap whatever it
is told (docs/tutorials/diloco_pretraining.md: "no hardware benefit in the current SPMD design").
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from dpsim.compile.job import Job
from dpsim.compile.strategies import Rhythm
from dpsim.compile.strategies._rounds import Trade
from dpsim.compile.strategies._workers import WIDTHS, Inner, Workers
from dpsim.core.record import Check, Count, Flag, Refused, record

OuterDtype = Literal["fp64", "fp32", "bf16", "fp16", "fp8", "int8", "fp4", "int4"]
#: times the parameters that the device reads or writes: the outer gradient (reads two, writes one),
#: and the outer optimizer (reads gradient, momentum and copy, writes momentum, copy and parameters)
TOUCHED = (3.0, 6.0)
#: steps of a round -> by how much the loss was higher at most, with the rounding of two numbers to
#: 0.01 (arXiv:2501.18512, table 5: 35 M, 1 B and 4 B parameters)
PUBLISHED = ((30, 0.01), (100, 0.02))
#: the same where an exchange is awaited when the next one leaves (arXiv:2502.12996, table 1)
EAGER = 0.04
#: by how much the loss falls with e times the tokens: 0.28 x 410.7/D^0.28 at D = 2e10 (Hoffmann et
#: al., arXiv:2203.15556, approach 3, 20 tokens for each of 1e9 parameters)
PER_FOLD = 0.28 * 410.7 / 2e10**0.28


@record
class Diloco(Workers):
    """Rounds of local steps with an outer optimizer.

    period       inner steps of a round, in which every parameter is exchanged once
    fragments    equal parts of the parameters, exchanged one by one at equal distances
    delay        steps that a worker goes on before it waits for what it sent
    outer_dtype  what outer gradients travel in; left out: as parameters are stored
    workers      how many train apart; left out: the sites, where there are several; the nodes,
                 where `inner` is given; else every rank
    inner        how the ranks of one worker train together; left out: ddp
    outer_momentum  the outer optimizer has a momentum
    error_feedback  what quantisation leaves out is kept for the next exchange
    outer_states    where the copy of the parameters and the outer momentum are kept; what moves
                    them from and to the host is not modelled
    framework    `maxtext` awaits a fragment where it leaves, whatever the delay; `torchft` takes a
                 delay shorter than the steps between fragments, and a period that they divide
    """

    period: Annotated[int, Check(1, 100_000)] = 500
    fragments: Annotated[int, Check(1, 100_000)] = 1
    delay: Annotated[int, Check(0, 100_000)] = 0
    outer_dtype: OuterDtype | None = None
    workers: Count | None = None
    inner: Inner | None = None
    outer_momentum: Flag = True
    error_feedback: Flag = False
    outer_states: Literal["device", "host"] = "device"
    framework: Literal["torchft", "maxtext"] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fragments > self.period:
            message = f"{self.fragments} fragments do not leave within {self.period} steps"
            raise Refused(f"{message}; at most one a step", ("fragments",))
        if self.delay > self.period:
            message = f"{self.delay} steps: a fragment would leave again before it is there"
            raise Refused(f"{message}; at most the period of {self.period}", ("delay",))
        if self.framework == "torchft":
            self._accept_torchft()

    def _accept_torchft(self) -> None:
        if self.period % self.fragments:
            said = f"torchft wants a period that {self.fragments} fragments divide"
            raise Refused(f"{said}, not {self.period}", ("period",))
        if self.delay and self.delay >= self.period // self.fragments:
            most = self.period // self.fragments - 1
            said = f"torchft awaits a fragment before the next one leaves: at most {most}"
            raise Refused(said, ("delay",))

    @property
    def rhythm(self) -> Rhythm:
        delay = 0 if self.framework == "maxtext" else self.delay
        return Rhythm(self.period, self.fragments, delay)

    def more_samples(self, job: Job) -> float | None:
        """By the published losses that a period comes with."""
        rhythm = self.rhythm
        if rhythm.period > PUBLISHED[-1][0]:
            return super().more_samples(job)
        most = EAGER if rhythm.delay >= rhythm.stretch else 0.0
        loss = next(loss for period, loss in PUBLISHED if rhythm.period <= period)
        return math.exp(max(loss, most) / PER_FOLD)

    def trade(self, job: Job) -> Trade:
        width = None if self.outer_dtype is None else WIDTHS[self.outer_dtype]
        return self.traded(job, width, TOUCHED)

    def kept(self, job: Job, parameters: float) -> dict[str, float]:
        """A copy of the parameters, the outer momentum, what quantisation left, and what is under
        way."""
        rhythm = self.rhythm
        parts = {"fragments under way": self.trade(job).bytes * (rhythm.under_way + 1)}
        if self.outer_states == "device":
            parts["outer parameters"] = parameters
            if self.outer_momentum:
                parts["outer momentum"] = parameters
        if self.error_feedback:
            parts["error feedback"] = parameters
        return parts
