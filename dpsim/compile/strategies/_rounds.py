"""Rounds of local steps: workers train apart, and now and then exchange what they have become.

A worker is one rank, or several that train together by a strategy of their own.  A round is
`period` steps; in it each of `fragments` parts of the parameters is exchanged once, at equal
distances, and has to be there `delay` steps after it left.  Every stretch from one exchange to the
next is the same, so one program stands for all of them: its operations are counted as often as they
come in a step of the round on average, work by its seconds and collectives by their repeats.  The
times of a program whose every duration is multiplied by one number are multiplied by it too, so its
step is the mean step of a round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from dpsim.collectives import BARRIER
from dpsim.compile.exchange import Work
from dpsim.compile.job import Job
from dpsim.compile.program import COMPUTE, Op, Program
from dpsim.compile.rhythm import Rhythm
from dpsim.compile.step import Issue

#: communicator of the exchanges between workers
OUTER = "outer"
#: groups: the ranks of a worker; those with the same place in all workers; every rank by itself
WORKER, PEERS, ALONE = "worker", "peers", "alone"


class Trade(NamedTuple):
    """What a rank exchanges with its peers, for one fragment.

    operation, bytes  of the collective over the peers [B]
    groups   the groups that carry it out one after the other, each in full
    gathered what the ranks of a worker gather among them afterwards [B]
    before, after    what the device does before it leaves and when it is there
    often    of `groups` that take turns, in what share of exchanges each carries it out
    """

    bytes: float
    operation: str = "all_reduce"
    groups: tuple[str, ...] = (PEERS,)
    gathered: float = 0.0
    before: Work = Work()
    after: Work = Work()
    often: Mapping[str, float] = MappingProxyType({})


def mean_step(job: Job, inner: Program, trade: Trade, rhythm: Rhythm) -> Program:
    """The mean step of a round of `inner` steps."""
    return _Round(job, inner, trade, rhythm).program()


def single_step(job: Job, inner: Program, trade: Trade, *, inside: bool = True) -> Program:
    """One step as it is, and the exchange behind it; `inside` workers, or over all ranks."""
    made = _Round(job, inner, trade, Rhythm(1), inside=inside)
    made.inner_steps(1.0)
    made.arrive(made.leave(1.0), 1.0)
    return made.issue.program(inner.buckets)


class _Round:
    """Issues the operations of a mean step."""

    def __init__(
        self, job: Job, inner: Program, trade: Trade, rhythm: Rhythm, *, inside: bool = True
    ) -> None:
        self.inner, self.trade, self.rhythm, self.job = inner, trade, rhythm, job
        self.inside = inside
        self.issue = Issue(_without_host(job))

    def program(self) -> Program:
        """Stretches one after the other: as many as fragments are under way at once."""
        rhythm = self.rhythm
        cycles = rhythm.under_way + 1
        late = (rhythm.delay - rhythm.under_way * rhythm.stretch) / rhythm.stretch
        weight = 1.0 / (rhythm.stretch * cycles)
        for cycle in range(cycles):
            left = self.leave(weight)
            if cycles > 1:
                left = self._passed_on(left, cycle, cycles)
            self.inner_steps(late / cycles)
            if cycles > 1:
                left = self._token("due", f"under way {(cycle + 1) % cycles}", ())
            self.arrive(left, weight)
            self.inner_steps((1.0 - late) / cycles)
        return self.issue.program(self.inner.buckets)

    def leave(self, weight: float) -> int:
        """A fragment leaves; the last collective that it takes."""
        trade, job = self.trade, self.job
        seconds = weight * job.work_seconds(trade.before)
        done = self.issue.add("delta", "copy", seconds=seconds)
        for number, group in enumerate(trade.groups):
            done = self.issue.collective(
                f"X{number or ''}", trade.operation, OUTER, trade.bytes,
                group=group, after=(done,), repeats=weight * trade.often.get(group, 1.0),
            )  # fmt: skip
        if trade.gathered:
            done = self.issue.collective(
                "X.gather", "all_gather", OUTER, trade.gathered,
                group=WORKER, after=(done,), repeats=weight,
            )  # fmt: skip
        return done

    def arrive(self, left: int, weight: float) -> None:
        """Wait for a fragment, and take it over."""
        self.issue.add("W.outer", "wait", after=(left,))
        if seconds := weight * self.job.work_seconds(self.trade.after):
            self.issue.add("outer", "copy", seconds=seconds)

    def _passed_on(self, left: int, cycle: int, cycles: int) -> int:
        """What later stretches can wait for: operations of a communicator end in turn, so what is
        put behind the exchange on one of its own ends with it, and what is put there next too.
        """
        return self._token("sent", f"under way {cycle % cycles}", (left,))

    def _token(self, name: str, stream: str, after: tuple[int, ...]) -> int:
        return self.issue.add(
            name, "collective", stream=stream, operation=BARRIER, group=ALONE, after=after
        )

    def inner_steps(self, share: float) -> None:
        """So much of a stretch of inner steps."""
        if share <= 0.0:
            return
        issue, gate = self.issue, self.issue.computed
        first = len(issue.ops)
        for op in self.inner.ops:
            after = tuple(first + other for other in op.after)
            begins = op.stream != COMPUTE and (op.after_step or not op.after)
            after += gate if begins else ()
            group = within(op.group) if self.inside else op.group
            issue.ops.append(_shared(op, share)._replace(after=after, group=group))


def _shared(op: Op, share: float) -> Op:
    """`op` as often as `share` says."""
    return op._replace(
        seconds=op.seconds * share,
        delay=op.delay * share,
        issue=op.issue * share,
        repeats=op.repeats * share if op.exchanges else op.repeats,
    )


def within(group: str) -> str:
    """The name of an inner strategy's group, inside each worker."""
    return WORKER if group == "world" else f"{WORKER}.{group}"


def _without_host(job: Job) -> Job:
    """`job` without the host's work, which the inner steps have already."""
    return replace(job, serial=0.0) if job.serial else job
