"""Ranks, API servers and the coordinator on one clock (SimPy): what becomes of every request.

A rank without experts, or alone, steps by itself.  Ranks that share experts step together, each as
long as the longest; one without work computes a dummy token.  They ask only every 32 steps whether
all are through (vllm-project/vllm `vllm/v1/engine/core.py`, `_has_global_unfinished_reqs`), so a
wave of steps ends at a multiple of 32.

The engine hands out a step while the one before it is computed (`step_with_batch_queue` there):
what comes meanwhile waits for its end, and for all of the next one, before its own begins.

A token counts for who asked when an API server has put it out: it takes one after the other, each
`output_token` seconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator
from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from typing import Any

import simpy

from dpsim.serving.balancer import PUBLISHED, Client, InTurn
from dpsim.serving.described import ServingEngine
from dpsim.serving.pace import PARTS, StepPace, StepParts, StretchedPace
from dpsim.serving.scheduler import Scheduler, Sequence, StepWork
from dpsim.serving.workload import Ask

#: steps between two times that ranks in lockstep ask whether all are through
ASKED = 32
#: steps that are chosen and have not ended (`max_concurrent_batches` with asynchronous scheduling)
AHEAD = 2
#: a step that was chosen: when it ends [s], what each of its ranks computes, and what it takes
_Chosen = tuple[float, list[StepWork], StepParts]


@dataclass(eq=False)
class RankRecord:
    """What a rank did: steps, dummy ones, seconds of its steps by part, and time integrals of those
    that wait and run, of blocks in use, and of why the first that waits does; `chosen`: when steps
    were chosen."""

    steps: int = 0
    dummies: int = 0
    prompts: int = 0
    spent: StepParts = field(default_factory=StepParts)
    waiting: float = 0.0
    running: float = 0.0
    blocks: float = 0.0
    most_waiting: int = 0
    most_running: int = 0
    most_blocks: int = 0
    held: dict[str, float] = field(default_factory=dict)
    changed: float = 0.0
    chosen: list[float] = field(default_factory=list)

    def until(self, now: float, rank: Scheduler) -> None:
        """Count the time since the last change."""
        gone = now - self.changed
        self.changed = now
        self.waiting += gone * len(rank.waiting)
        self.running += gone * len(rank.running)
        self.blocks += gone * rank.used
        if rank.held:
            self.held[rank.held] = self.held.get(rank.held, 0.0) + gone
        self.most_waiting = max(self.most_waiting, len(rank.waiting))
        self.most_running = max(self.most_running, len(rank.running))
        self.most_blocks = max(self.most_blocks, rank.used)

    def spend(self, parts: StepParts) -> None:
        for name in PARTS:
            setattr(self.spent, name, getattr(self.spent, name) + getattr(parts, name))


def nobody() -> None:
    """Nobody asks how many requests are answered."""


class Fleet:
    """A service at work; `play` answers all requests.

    nodes   the ranks of each node
    served  sequences in the order of their last tokens; records  one for each rank
    busy    seconds that each API server put out tokens
    answered  is called for every request that is
    """

    def __init__(
        self, engine: ServingEngine, pace: StepPace | StretchedPace, asks: Several[Ask],
        concurrency: int | None, ranks: Several[Scheduler], nodes: Several[Several[int]],
    ) -> None:  # fmt: skip
        self.engine, self.pace, self.asks = engine, pace, asks
        self.concurrency = concurrency
        self.ranks = list(ranks)
        self.records = [RankRecord() for _ in ranks]
        self.clock = simpy.Environment()
        self.bells = [self.clock.event() for _ in ranks]
        self.stirred = self.clock.event()
        self.served: list[Sequence] = []
        self.next = 0
        self.groups = self._places(nodes)
        self.place_of = {rank: k for k, group in enumerate(self.groups) for rank in group}
        servers = engine.api_servers
        self.outside = InTurn(len(self.groups))
        self.clients = [
            [Client(len(group), k, servers) for k in range(servers)] for group in self.groups
        ]
        self.turns = [InTurn(servers) for _ in self.groups]
        self.free = [[0.0] * servers for _ in self.groups]
        self.busy = [[0.0] * servers for _ in self.groups]
        self.done = self.clock.event()
        self.answered: Callable[[], None] = nobody

    def _places(self, nodes: Several[Several[int]]) -> list[list[int]]:
        """The ranks that a request's API servers choose among, by place."""
        count = len(self.ranks)
        if self.engine.balancing == "external":
            return [[rank] for rank in range(count)]
        if self.engine.balancing == "hybrid":
            return [list(node) for node in nodes]
        return [list(range(count))]

    # -- requests ---------------------------------------------------------------------------------

    def play(self) -> None:
        """Answer all requests."""
        if self.pace.lockstep:
            self.clock.process(self._together())
        else:
            for rank in range(len(self.ranks)):
                self.clock.process(self._alone(rank))
        if self.engine.balancing != "external" and len(self.ranks) > 1:
            self.clock.process(self._coordinator())
        self.clock.process(self._arrivals())
        self.clock.run(until=self.done)
        for own, record in zip(self.ranks, self.records, strict=True):
            record.until(self.clock.now, own)

    def _arrivals(self) -> Generator[Any, Any, None]:
        if self.concurrency is not None:
            for _ in range(min(self.concurrency, len(self.asks))):
                self._come()
            return
        while self.next < len(self.asks):
            at = self.asks[self.next].arrival
            assert at is not None
            if at > self.clock.now:
                yield self.clock.timeout(at - self.clock.now)
            self._come()

    def _come(self) -> None:
        """The next request comes, and goes to a rank."""
        ask = self.asks[self.next]
        self.next += 1
        place = self.outside.choose() if len(self.groups) > 1 else 0
        server = self.turns[place].choose()
        rank = self.groups[place][self.clients[place][server].choose()]
        one = Sequence(ask, self.clock.now, server=server, rank=rank)
        self.records[rank].until(self.clock.now, self.ranks[rank])
        self.ranks[rank].waiting.append(one)
        bell = self.bells[0 if self.pace.lockstep else rank]
        for waits in (bell, self.stirred):
            if not waits.triggered:
                waits.succeed()

    def _coordinator(self) -> Generator[Any, Any, None]:
        """Publish what has changed, at most every 100 ms."""
        last: list[tuple[int, int]] = []
        while not self.done.triggered:
            now = [(len(rank.waiting), len(rank.running)) for rank in self.ranks]
            if now != last:
                for group, clients in zip(self.groups, self.clients, strict=True):
                    for client in clients:
                        client.learn([now[rank] for rank in group])
                last = now
            elif not any(map(any, now)):  # nothing changes before a request comes
                self.stirred = self.clock.event()
                yield self.stirred
                yield self.clock.timeout(PUBLISHED - self.clock.now % PUBLISHED)
                continue
            yield self.clock.timeout(PUBLISHED)

    # -- steps ------------------------------------------------------------------------------------

    def _alone(self, rank: int) -> Generator[Any, Any, None]:
        """A rank that waits for nobody; the step after the one that is computed is chosen."""
        own, ahead, free = self.ranks[rank], deque[_Chosen](), 0.0
        while True:
            if not ahead and not own.waiting and not own.running:
                self.bells[rank] = self.clock.event()
                yield self.bells[rank]
            while len(ahead) < AHEAD:
                work = self._scheduled(rank)
                if not work.tokens:
                    break
                parts = self.pace.step(work, work.tokens, work.tokens)
                free = max(free, self.clock.now) + parts.seconds
                ahead.append((free, [work], parts))
            yield from self._ended(*ahead.popleft(), [rank])

    def _together(self) -> Generator[Any, Any, None]:
        """Ranks that share experts, step by step."""
        ranks = range(len(self.ranks))
        ahead, free, count = deque[_Chosen](), 0.0, 0
        while True:
            if not ahead and not self._asked():
                self.bells[0] = self.clock.event()
                yield self.bells[0]
            while len(ahead) < AHEAD and (count % ASKED or self._asked()):
                works = [self._scheduled(rank) for rank in ranks]
                most = max(1, *(work.tokens for work in works))
                each = [self.pace.step(work, most, most * len(works)) for work in works]
                longest = max(each, key=lambda parts: parts.seconds)
                free = max(free, self.clock.now) + longest.seconds
                ahead.append((free, works, longest))
                count += 1
            yield from self._ended(*ahead.popleft(), ranks)

    def _asked(self) -> bool:
        """Whether any rank has something to choose."""
        return any(rank.waiting or rank.unchosen for rank in self.ranks)

    def _scheduled(self, rank: int) -> StepWork:
        record, now = self.records[rank], self.clock.now
        record.until(now, self.ranks[rank])
        work = self.ranks[rank].step()
        record.chosen.append(now)
        for one in work.begun:
            one.queued = now - record.chosen[bisect_left(record.chosen, one.came)]
        return work

    def _ended(
        self, at: float, works: Several[StepWork], parts: StepParts, ranks: Several[int]
    ) -> Generator[Any, Any, None]:
        """Wait for a step's end: tokens go to those who asked."""
        if at > self.clock.now:
            yield self.clock.timeout(at - self.clock.now)
        for rank, work in zip(ranks, works, strict=True):
            self._stepped(rank, work, parts)

    def _stepped(self, rank: int, work: StepWork, parts: StepParts) -> None:
        own, record = self.ranks[rank], self.records[rank]
        record.until(self.clock.now, own)
        record.steps += 1
        record.dummies += not work.tokens
        record.prompts += work.prompts
        record.spend(parts)
        through = own.done(work)
        self._put_out(rank, work.putting)
        for one in through:
            self.clock.process(self._answered(one))

    def _put_out(self, rank: int, putting: Several[Sequence]) -> None:
        """API servers put out a token of each sequence of a step that has ended."""
        place, took, now = self.place_of[rank], self.engine.output_token, self.clock.now
        free, busy = self.free[place], self.busy[place]
        for one in putting:
            server = one.server
            one.last = free[server] = max(free[server], now) + took
            busy[server] += took
            if one.put_out == 1:
                one.first = one.last

    def _answered(self, one: Sequence) -> Generator[Any, Any, None]:
        """Who asked has the whole answer, and may ask again."""
        yield self.clock.timeout(max(one.last - self.clock.now, 0.0))
        self.served.append(one)
        self.answered()
        if self.concurrency is not None and self.next < len(self.asks):
            self._come()
        if len(self.served) == len(self.asks):
            self.done.succeed()
