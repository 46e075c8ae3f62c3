"""Gossip: workers exchange parameters with fixed neighbours, and never with all.

Decentralised parallel SGD (Lian et al., arXiv:1705.09056) on a ring, or in fixed pairs: every
worker sends its parameters to each neighbour and takes the mean of what it has and gets.  An
exchange takes as long on a thousand workers as on two: for each neighbour a latency and the bytes
of all parameters over the bandwidth, both ways at once.
"""

from __future__ import annotations

from typing import Annotated, Literal

from dpsim.compile.exchange import Work
from dpsim.compile.groups import Partition
from dpsim.compile.job import Job
from dpsim.compile.strategies import Rhythm
from dpsim.compile.strategies._rounds import Trade
from dpsim.compile.strategies._workers import Inner, Workers
from dpsim.core.record import Check, Count, Flag, Refused, record

#: the pairs of a ring, every other one
PAIRS = ("neighbours", "other neighbours")


@record
class Gossip(Workers):
    """Local steps with exchanges between neighbours, of an even number of workers: a ring of an odd
    number does not split into pairs.

    neighbours  1: fixed pairs; 2: those on both sides of a ring, one after the other
    period      steps from one exchange to the next
    overlap     the exchange runs beside the next step, as in the paper; else between steps
    workers     how many train apart; left out: the sites, where there are several; the nodes, where
                `inner` is given; else every rank
    inner       how the ranks of one worker train together; left out: ddp
    """

    neighbours: Literal[1, 2] = 2
    period: Annotated[int, Check(1, 100_000)] = 1
    overlap: Flag = False
    workers: Count | None = None
    inner: Inner | None = None

    @property
    def rhythm(self) -> Rhythm:
        return Rhythm(self.period, 1, int(self.overlap))

    def trade(self, job: Job) -> Trade:
        """In each pair, both parts gathered: each sends its own and gets the other's.  Where that
        would cost as much as both parts after each other, it is what a pair's mean costs."""
        self._accept(job)
        own = self.share(job, None)
        count = job.ranks // self.size(job)
        groups = PAIRS[: min(self.neighbours, count - 1)]
        gathered = own * self.size(job) if self.replicated(job) else 0.0
        after = Work((2 + len(groups)) / 2 * own)
        if job.whole:
            return Trade(own, "all_reduce", groups, gathered, after=after)
        return Trade(2.0 * own, "all_gather", groups, gathered, after=after)

    def _accept(self, job: Job) -> None:
        count = job.ranks // self.size(job)
        if count > 1 and count % 2:
            said = f"{count} workers do not pair up, on a ring either; an even number is accepted"
            raise Refused(said, ("strategy", "workers"))

    def groups_of(self, job: Job) -> dict[str, Partition]:
        """Beside those of workers, the pairs: of worker 0 and 1, 2 and 3, …, and of 1 and 2, …"""
        found, size, ranks = super().groups_of(job), self.size(job), job.ranks
        if ranks == size:
            return found
        for name, first in zip(PAIRS, (0, size), strict=True):
            found[name] = tuple(
                tuple(sorted(((at + k) % ranks, (at + k + size) % ranks)))
                for at in range(first, ranks + first, 2 * size)
                for k in range(size)
            )
        return found

    def kept(self, job: Job, parameters: float) -> dict[str, float]:
        """What the neighbours sent: of two workers each has one."""
        count = min(self.neighbours, job.ranks // self.size(job) - 1)
        return {"neighbours' parameters": count * parameters}
