"""What the replicas of a stage exchange: those of its parameters, and those of its experts, which
other ranks hold."""

from __future__ import annotations

from dpsim.compile.exchange import Exchange
from dpsim.compile.job import Job
from dpsim.compile.layout import DATA
from dpsim.compile.routing import EXPERT_DATA
from dpsim.compile.strategies import Strategy
from dpsim.core.lean import dataclass


@dataclass(frozen=True)
class StagePlan:
    """One exchange of a stage.

    job    the part of the stage whose parameters it is about; `ranks` hold the same ones
    group  of these ranks, and the communicator
    """

    job: Job
    exchange: Exchange
    group: str

    @property
    def mark(self) -> str:
        """What sets its messages apart in traces."""
        return "e" if self.group == EXPERT_DATA else ""


def plans_of(strategy: Strategy, job: Job) -> tuple[StagePlan, ...]:
    """The exchanges of a stage; Refused where the strategy does not know stages."""
    found = []
    for part, group in zip(job.parts, (DATA, EXPERT_DATA), strict=False):
        exchange = strategy.on_stage(part)
        found.append(StagePlan(part, exchange if part.ranks > 1 else Exchange(), group))
    return tuple(found)
