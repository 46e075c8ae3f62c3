"""Gossip: workers exchange parameters with fixed neighbours, and never with all.

Decentralised parallel SGD (Lian et al., arXiv:1705.09056) on a ring, or in fixed pairs: every
worker sends its parameters to each neighbour and takes the mean of what it has and gets.  An
exchange takes as long on a thousand workers as on two: for each neighbour a latency and the bytes
of all parameters over the bandwidth, both ways at once.

A ring of an odd number of workers has no pairs: all send to the next one, and then to the one
before.  On the exponential graph worker i sends to i + 1, i + 2, i + 4, … and gets from i - 1,
i - 2, i - 4, …: to all of them in every exchange (Bluefog's `ExponentialTwoGraph`,
bluefog/common/topology_util.py), or to some of them in turn (Assran et al., Stochastic Gradient
Push, arXiv:1811.10792, one at a time).  Inside and outside of nodes, one rank of each node in turn
sends to its like 1, 2, 4, … nodes further on, also in turn, and the others send to one of their own
node (Bluefog's `GetInnerOuterExpo2DynamicSendRecvRanks`, its benchmark's graph on several nodes).
"""

from __future__ import annotations

from math import gcd
from typing import Annotated, Literal

from dpsim.collectives import SHIFT
from dpsim.compile.exchange import Work
from dpsim.compile.groups import Partition, consecutive
from dpsim.compile.job import Job
from dpsim.compile.program import Program
from dpsim.compile.strategies import Rhythm
from dpsim.compile.strategies._rounds import Trade
from dpsim.compile.strategies._workers import Inner, Workers
from dpsim.core.record import Check, Count, Flag, Refused, record

#: the pairs of a ring of an even number, every other one
PAIRS = ("neighbours", "other neighbours")
#: and those of an odd number: to whom all workers send
WAYS = {"next": 1, "one before": -1}
#: the ranks of a node among each other
INSIDE = "inside"


@record
class Gossip(Workers):
    """Local steps with exchanges between neighbours.

    topology    ring: the workers on both sides; exponential: those 1, 2, 4, … further on;
                inner_outer: one of their own node, and of each node one in turn on another
    neighbours  how many of them a worker sends to in an exchange: of a ring 1 (fixed pairs, or of
                an odd number the next one) or 2, one after the other; of the exponential graph so
                many in turn; left out: all
    period      steps from one exchange to the next
    overlap     the exchange runs beside the next step, as in the paper; else between steps
    workers     how many train apart; left out: the sites, where there are several; the nodes, where
                `inner` is given; else every rank
    inner       how the ranks of one worker train together; left out: ddp
    """

    topology: Literal["ring", "exponential", "inner_outer"] = "ring"
    neighbours: Count | None = None
    period: Annotated[int, Check(1, 100_000)] = 1
    overlap: Flag = False
    workers: Count | None = None
    inner: Inner | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.topology == "ring" and (self.neighbours or 0) > len(PAIRS):
            said = f"{self.neighbours} neighbours: a ring has 1 or 2"
            raise Refused(f"{said}; topology: exponential has more", ("neighbours",))
        if self.topology == "inner_outer":
            self._check_turns()

    def _check_turns(self) -> None:
        for name in ("workers", "inner"):
            if getattr(self, name) is not None:
                raise Refused("topology: inner_outer is of workers of one rank each", (name,))
        if (self.neighbours or 1) > 1:
            said = f"{self.neighbours} neighbours: on topology: inner_outer a worker meets one"
            raise Refused(said, ("neighbours",))

    @property
    def rhythm(self) -> Rhythm:
        return Rhythm(self.period, 1, int(self.overlap))

    def program(self, job: Job, iteration: int | None) -> Program:
        if iteration is not None and self.exchanges(job) and self._often(job):
            said = "first iterations are not modelled where neighbours take turns; steady is"
            raise Refused(said, ("iteration",))
        return super().program(job, iteration)

    def trade(self, job: Job) -> Trade:
        """In each pair, both parts gathered: each sends its own and gets the other's.  Where that
        would cost as much as both parts after each other, it is what a pair's mean costs.  Without
        pairs every worker sends its part on."""
        own, often, groups = self.share(job, None), self._often(job), self._met(job)
        gathered = own * self.size(job) if self.replicated(job) else 0.0
        after = Work((2 + self._count_met(job)) / 2 * own)
        if not self._pairs(job):
            return Trade(own, SHIFT, groups, gathered, after=after, often=often)
        if job.whole:
            return Trade(own, "all_reduce", groups, gathered, after=after)
        return Trade(2.0 * own, "all_gather", groups, gathered, after=after)

    # -- who exchanges with whom -------------------------------------------------------------------

    def _apart(self, job: Job) -> int:
        """How many workers there are."""
        return job.ranks // self.size(job)

    def _pairs(self, job: Job) -> bool:
        return self.topology == "ring" and self._apart(job) % 2 == 0

    def _ways(self, job: Job) -> dict[str, int]:
        """How far on all workers send, by the name of the groups that do."""
        count = self._apart(job)
        if self.topology == "exponential":
            return {f"{far} further on": far for far in _powers(count)}
        if self.topology == "inner_outer":
            node = self._node(job)
            known = {f"{far} nodes further on": far * node for far in _powers(count // node)}
            return {INSIDE: 1, **known}
        return WAYS

    def _node(self, job: Job) -> int:
        """Ranks of a node: all nodes have as many, and beside the one that is outside two."""
        node = min(job.local_size or 0, job.ranks)
        if not node or job.ranks % node or node < min(job.ranks, 3):
            said = f"topology: inner_outer needs nodes of 3 or more that {job.ranks} ranks fill"
            raise Refused(said, ("strategy", "topology"))
        return node

    def _met(self, job: Job) -> tuple[str, ...]:
        """The groups of all exchanges."""
        if self.topology != "ring":
            return tuple(self._ways(job))
        names = PAIRS if self._pairs(job) else tuple(WAYS)
        return names[: min(self.neighbours or len(names), self._apart(job) - 1)]

    def _often(self, job: Job) -> dict[str, float]:
        """Where groups take turns, in what share of exchanges each meets."""
        known = self._ways(job)
        if self.topology == "inner_outer":
            node, far = self._node(job), len(_powers(self._apart(job) // self._node(job)))
            outside = 1.0 / node if far else 0.0
            return {n: 1.0 - outside if n == INSIDE else outside / far for n in known}
        if self.topology == "ring" or self.neighbours is None:
            return {}
        if self.neighbours > len(known):
            said = f"{self.neighbours} neighbours: of {self._apart(job)} workers each has"
            said = f"{said} {len(known)} on the exponential graph"
            raise Refused(said, ("strategy", "neighbours"))
        some = self.neighbours < len(known)
        return dict.fromkeys(known, self.neighbours / len(known)) if some else {}

    def _count_met(self, job: Job) -> float:
        """How many neighbours a worker hears from in an exchange, in the mean."""
        often = self._often(job)
        return sum(often.get(name, 1.0) for name in self._met(job))

    def groups_of(self, job: Job) -> dict[str, Partition]:
        """Beside those of workers, the pairs: of worker 0 and 1, 2 and 3, …, and of 1 and 2, …; or
        the laps of those who send so far on, each in the order in which it sends."""
        found, size, ranks = super().groups_of(job), self.size(job), job.ranks
        if ranks == size:
            return found
        if not self._pairs(job):
            ways = self._ways(job)
            if INSIDE in ways:
                found[INSIDE] = consecutive(self._node(job), ranks)
            apart = {name: far for name, far in ways.items() if name != INSIDE}
            return found | {name: _laps(ranks // size, size, far) for name, far in apart.items()}
        for name, first in zip(PAIRS, (0, size), strict=True):
            found[name] = tuple(
                tuple(sorted(((at + k) % ranks, (at + k + size) % ranks)))
                for at in range(first, ranks + first, 2 * size)
                for k in range(size)
            )
        return found

    def kept(self, job: Job, parameters: float) -> dict[str, float]:
        """What the neighbours sent in an exchange: of two workers each has one."""
        count = self._count_met(job) if self.exchanges(job) else 0.0
        return {"neighbours' parameters": count * parameters}


def _laps(workers: int, size: int, far: int) -> Partition:
    """The ranks of the same place in workers of `size` ranks that are `far` apart, lap by lap."""
    count = gcd(workers, far)
    return tuple(
        tuple((start + k * far) % workers * size + place for k in range(workers // count))
        for start in range(count)
        for place in range(size)
    )


def _powers(count: int) -> tuple[int, ...]:
    """1, 2, 4, … below `count`."""
    return tuple(2**k for k in range((count - 1).bit_length()))
