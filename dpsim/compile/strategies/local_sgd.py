"""Local SGD: workers train apart and average their parameters every `period` steps.

Stich, arXiv:1805.09767.  As torch does it (torch/distributed/algorithms/model_averaging,
`PeriodicModelAverager`, 2.13): after the optimizer all parameters are copied into one buffer, which
is divided and all-reduced over all ranks while everything waits; `warmup_steps` average none, and
the steady state is behind them.
"""

from __future__ import annotations

from typing import Annotated

from dpsim.compile.job import Job
from dpsim.compile.strategies import Rhythm
from dpsim.compile.strategies._rounds import Trade
from dpsim.compile.strategies._workers import Inner, Workers
from dpsim.core.record import Check, Count, record

#: times the parameters that the device reads or writes: concatenated (2) and divided (2)
TOUCHED = (4.0, 0.0)


@record
class LocalSgd(Workers):
    """Rounds of local steps that end with the mean of all parameters.

    period        steps of a round
    warmup_steps  the first steps, after which nothing is averaged
    workers       how many train apart; left out: the sites, where there are several; the nodes,
                  where `inner` is given; else every rank
    inner         how the ranks of one worker train together; left out: ddp
    """

    period: Annotated[int, Check(1, 100_000)] = 1
    warmup_steps: Annotated[int, Check(0, 10**9)] = 0
    workers: Count | None = None
    inner: Inner | None = None

    @property
    def rhythm(self) -> Rhythm:
        return Rhythm(self.period)

    def trade(self, job: Job) -> Trade:
        return self.averaged(job, TOUCHED)

    def kept(self, job: Job, parameters: float) -> dict[str, float]:
        """The buffer."""
        return {"averaged parameters": parameters}

    def averages(self, iteration: int) -> bool:
        """Whether the parameters are averaged after `iteration` (1, 2, …): torch counts from 0."""
        done = iteration - 1 - self.warmup_steps
        return done >= 0 and done % self.period == 0
