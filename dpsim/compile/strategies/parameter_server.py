"""Parameter servers: workers pull parameters, compute, and push gradients to servers of their own.

Rules read in tensorflow/tensorflow (2.21):

* tensorflow/python/distribute/parameter_server_strategy_v2.py: variables are placed on the servers
  in turn.  MinSizePartitioner (sharded_variable.py) cuts a variable along its first axis (see
  `placed`), into at most `max_shards`; by default it cuts nothing, so that a large variable is a
  hot spot.  Every worker reads all variables and pushes all gradients by itself.
* tensorflow/python/training/sync_replicas_optimizer.py: an update takes the first `aggregate`
  gradients that are fresh, whoever they are from; one whose parameters were read before the last
  update is dropped.  An update releases max(workers, aggregate) tokens, and a worker needs one to
  go on; so where `aggregate` is more than there are workers, fast ones give several.

`tokens: queue` is that one queue, first in, first out, with as many tokens of step 0 at the start:
fast workers take the tokens of slow ones, so one may give two gradients of an update, and what is
computed for an old token is dropped.  With `tokens: own` every worker has one of its own in each
step, and those beyond go to who comes first: the fastest `aggregate` workers give one each, and the
others are backups (Chen et al., Revisiting Distributed Synchronous SGD, arXiv:1604.00981).

Stale synchronous: a worker that has ended c clocks goes on while c minus the fewest that any has
ended is no more than `bound` (Ho et al., More Effective Distributed ML via a Stale Synchronous
Parallel Parameter Server, NIPS 2013).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

from dpsim.compile.behaviour import Behaviour, World
from dpsim.compile.exchange import Exchange
from dpsim.compile.job import Job, gradients_of, state_bytes
from dpsim.compile.program import Program
from dpsim.compile.step import ExchangeStep
from dpsim.compile.strategies import Strategy
from dpsim.compile.strategies._server_state import ServerState, Shards, placed
from dpsim.core import units
from dpsim.core.record import Check, Flag, Refused, Text, record
from dpsim.models.precision import Optimizer

#: bytes that a server's CPU adds up in a second where a machine is described: as gloo's `reduce`
ADDED = 10e9
#: bytes of a message that leave its sender at once, before another's follow: the default receive
#: buffer of Linux's TCP (kernel documentation, ip-sysctl, tcp_rmem: 131072)
WINDOW = 128 * 1024.0
#: bytes of the longest messages of a server that were measured (validation/lab/README.md)
LONG = 1.8e6
Whole = Annotated[int, Check(0, 1_000_000)]
Several = Annotated[int, Check(1, 1_048_576)]


@record
class AsyncServers(Strategy):
    """Servers, and how workers wait for each other.

    servers   how many there are, beside the workers, which `cluster` counts
    mode      sync: an update takes several gradients, and workers wait for it; async: each gradient
              is an update, and nobody waits; ssp: the same, and who is too far ahead waits
    bound     of ssp: clocks that a worker may be ahead of the slowest
    aggregate  of sync: gradients of an update; left out: as many as there are workers
    tokens    of sync: own: a worker gives one gradient of an update, and more only where
              `aggregate` is more than there are workers; queue: TensorFlow's, from which fast
              workers take the tokens of slow ones and give several
    colocated  a server is on the node of a worker; otherwise on a node of its own
    at        of several sites, those of the servers, in turn; left out: all in turn
    max_shards, min_shard_bytes  a variable is cut along its first axis into its bytes over
              min_shard_bytes, rounded up, and into max_shards at most; servers get them in turn
    lock      shard: a server works on one push after the other; none: on all at once
    threads   pushes that a server works on at once; left out: all
    apply     bytes of gradients that a server adds up in a second; with mode sync the update, when
              the last of its gradients is added up, goes over all its bytes once more at this rate
              (in the other modes adding up is the update); left out: 10 GB/s on a machine, and no
              time on an ideal network
    service   a server's time for a push beside that
    """

    channels_last = True  # TensorFlow's, as MirroredStrategy's
    servers: Several = 1
    mode: Literal["sync", "async", "ssp"] = "async"
    bound: Whole | None = None
    aggregate: Several | None = None
    tokens: Literal["own", "queue"] = "own"
    colocated: Flag = False
    at: tuple[Text, ...] | None = None
    max_shards: Several = 1
    min_shard_bytes: units.Bytes = 256 * 1024.0
    lock: Literal["none", "shard"] = "none"
    threads: Several | None = None
    apply: units.BytesPerSecond | None = None
    service: units.Seconds = 0.0

    def __post_init__(self) -> None:
        if self.mode == "ssp" and self.bound is None:
            raise Refused("is missing: how far ahead may a worker be? 0 waits for all", ("bound",))
        if self.at is not None and (self.colocated or not self.at):
            said = "is of servers on nodes of their own; name a site, or leave it out"
            raise Refused(said, ("at",))

    # -- the work ---------------------------------------------------------------------------------

    def program(self, job: Job, iteration: int | None) -> Program:
        """What a worker computes in a clock; the servers update the parameters."""
        alone = replace(job, optimizer=Optimizer(kind="none"), update=0.0)
        return ExchangeStep(alone, Exchange()).play()

    def servers_at(self, ranks: int) -> tuple[int | None, ...]:
        """The worker whose node each server shares; None for a node of its own."""
        if not self.colocated:
            return (None,) * self.servers
        return tuple(k * ranks // self.servers % ranks for k in range(self.servers))

    def servers_in(self, sites: tuple[str, ...]) -> tuple[int, ...]:
        if self.at is not None and not sites:
            raise Refused("names sites, and there is one cluster; leave it out", ("strategy", "at"))
        for name in self.at or ():
            if name not in sites:
                said = f"no site is called {name[:60]!r}; there are {', '.join(sites)}"
                raise Refused(said, ("strategy", "at"))
        turn, count = self.at or sites, 0 if self.colocated else self.servers
        return tuple(sites.index(turn[k % len(turn)]) for k in range(count)) if sites else ()

    def gradients_of_step(self, ranks: int) -> int:
        """Gradients that make what an answer calls a step."""
        return (self.aggregate or ranks) if self.mode == "sync" else ranks

    @property
    def waits_for_all(self) -> bool:
        return self.mode == "sync"

    def memory(self, job: Job) -> dict[str, float]:
        """A worker keeps parameters and gradients; what the optimizer keeps is the servers'."""
        parts = state_bytes(job, 1.0)
        return {name: parts[name] for name in ("parameters", "gradients")}

    @property
    def own_launches(self) -> bool:
        return True

    def shards(self, job: Job) -> Shards:
        """The bytes of every server."""
        every = [(float(one.bytes), one.shape or (one.elements,)) for one in gradients_of(job)]
        return placed(every, self.servers, self.max_shards, self.min_shard_bytes)

    def held_by_servers(self, job: Job) -> tuple[float, ...]:
        return self.shards(job).bytes

    def notes(self, job: Job) -> tuple[str, ...]:
        return tuple(self._notes(job))

    def _notes(self, job: Job) -> Iterator[str]:
        shards = self.shards(job)
        if self.servers > 1 and shards.largest > 1.5 / self.servers:
            yield (
                f"the busiest of {self.servers} servers holds {shards.largest:.0%} of all bytes: "
                "variables are not cut; strategy.max_shards cuts them"
            )
            if self.mode == "async" and shards.largest * sum(shards.bytes) > LONG:
                yield (
                    "equal workers may stay together at the busiest server, which then receives "
                    "and sends in turn and never both: up to twice as slow as where they come "
                    "apart, and slower than one server; no message as long was measured"
                )
        if self.mode == "sync" and (self.aggregate or 0) > job.ranks:
            yield (
                f"strategy.aggregate {self.aggregate} is more than there are workers, {job.ranks}: "
                "an update waits until some have given several gradients"
            )
        for key, mode in (("bound", "ssp"), ("aggregate", "sync")):
            if getattr(self, key) is not None and self.mode != mode:
                yield f"strategy.{key} changes nothing: it is of mode {mode}"
        if self.tokens == "queue" and self.mode != "sync":
            yield "strategy.tokens changes nothing: it is of mode sync"

    @property
    def caveat(self) -> str:
        if self.mode == "sync":
            return ""
        return (
            "throughput is not time to accuracy: stale gradients cost further samples, by no law "
            "that holds everywhere; of TensorFlow's asynchronous ImageNet runs, 50 workers (49 "
            "updates stale) reached the best accuracy, and more did worse "
            "(tensorflow/tensorflow issue 7353)"
        )

    # -- the behaviour ----------------------------------------------------------------------------

    def behave(self, world: World) -> Behaviour:
        """Clock after clock: may I, pull, compute, push."""
        state = world.common(
            lambda: ServerState(world.ranks, self.shards(world.job), self._released(world.ranks))
        )
        ops = self.program(world.job, None).ops
        scaled = sum(op.seconds for op in ops if op.scales)
        fixed = sum(op.seconds for op in ops if not op.scales)
        while True:
            read = yield from self._admission(world, state)
            versions = yield from self._pull(world, state)
            if fixed:
                yield world.compute(fixed, "host", scales=False)
            yield world.compute(scaled, "forward and backward")
            yield from self._push(world, state, versions)
            if self.mode == "sync":
                yield from self._collect(world, state, read)
            world.tick()
            state.ended(world.rank)

    def _released(self, ranks: int) -> int:
        """Tokens that an update puts into the queue."""
        return max(ranks, self.gradients_of_step(ranks)) if self.tokens == "queue" else 0

    def _admission(self, world: World, state: ServerState) -> Behaviour:
        """Until this worker may begin a clock; the step that its gradient is for."""
        if self.mode == "ssp":
            assert self.bound is not None
            while state.clocks[world.rank] - state.slowest > self.bound:
                yield world.until(state.next_slowest)
                yield world.wait(0.0)  # whoever let this one go on goes on first
        elif self.mode == "sync" and self.tokens == "queue":
            while not state.tokens:
                yield world.until(state.next_update)
                yield world.wait(0.0)
            return state.tokens.popleft()
        elif self.mode == "sync":
            extra = max(self.gradients_of_step(world.ranks) - world.ranks, 0)
            while not state.take_token(world.rank, extra):
                yield world.until(state.next_update)
                yield world.wait(0.0)
        return state.step

    def _pull(self, world: World, state: ServerState) -> Behaviour:
        """All parameters, from all servers at once; the versions that they were read at."""
        parts = [(k, size) for k, size in enumerate(state.shards.bytes) if size]
        if world.job.control:
            places = (world.ranks + k for k, _ in parts)
            yield world.all_of(*(world.transfer(world.rank, k, 0.0, "request") for k in places))
        versions = list(state.versions)
        yield world.all_of(
            *(
                world.transfer(world.ranks + k, world.rank, s, "pull", window=self._window(world))
                for k, s in parts
            )
        )
        return versions

    def _push(self, world: World, state: ServerState, versions: list[int]) -> Behaviour:
        """All gradients, to all servers at once, each of which works on its part."""
        parts = [(k, size) for k, size in enumerate(state.shards.bytes) if size]
        late = dict.fromkeys((k for k, _ in parts), 0)

        def one(server: int, size: float) -> Behaviour:
            yield world.transfer(world.rank, world.ranks + server, size, "push")
            yield from self._work(world, server, size, "adding up")
            late[server] = state.versions[server] - versions[server]
            if self.mode != "sync":
                state.versions[server] += 1

        yield world.all_of(*(world.start(one(k, size), "a push") for k, size in parts))
        if self.mode != "sync":
            world.updated(staleness=state.shards.mean(late))

    def _window(self, world: World) -> float | None:
        """Bytes of a reply that a server hands to its network at once."""
        return WINDOW if world.job.control else None

    def _rate(self, job: Job) -> float | None:
        """Bytes that a server adds up in a second; None: it takes no time."""
        return self.apply or (ADDED if job.control else None)

    def _work(self, world: World, server: int, size: float, name: str) -> Behaviour:
        """A server works on `size` bytes, alone or beside others."""
        rate = self._rate(world.job)
        seconds = self.service + (size / rate if rate else 0.0)
        most = 1 if self.lock == "shard" else self.threads
        if not seconds:
            return
        if most is None:
            yield world.serve(world.ranks + server, seconds, name)
            return
        yield world.acquire(f"server {server}", most)
        yield world.serve(world.ranks + server, seconds, name)
        world.release(f"server {server}")

    def _collect(self, world: World, state: ServerState, read: int) -> Behaviour:
        """A gradient counts if it is fresh; the last one of an update makes it."""
        if read < state.step:
            world.wasted()
            return
        wanted = self.gradients_of_step(world.ranks)
        if state.collect(wanted):
            rate = self._rate(world.job)
            held = [(k, size / rate) for k, size in enumerate(state.shards.bytes) if rate and size]
            yield world.all_of(*(world.serve(world.ranks + k, s, "update") for k, s in held))
            world.updated(wanted)
            state.update()
