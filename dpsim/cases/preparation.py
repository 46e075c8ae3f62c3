"""Preparation: who prepares the batches of a case, and how long a sample and a batch take.

Workers of a node share its cores with the processes that train, and what is read with all nodes.
Times are of loaders that are all at work: where they are not, steps do not wait for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from dpsim.cases.batches import Batches
from dpsim.cases.mixing import SampleDraws
from dpsim.cases.provisions import Provisions
from dpsim.compile.loaders import Loader, Supply
from dpsim.core.arrays import Array
from dpsim.core.lean import dataclass
from dpsim.core.places import below
from dpsim.core.record import Refused
from dpsim.describe.sections import Input
from dpsim.machines.machine import Machine
from dpsim.variability import read_numbers
from dpsim.variability.distributions import Distribution
from dpsim.variability.draws import stream

#: what a loader that is slower than training lacks
Limit = Literal["rate", "workers", "cores", "storage"]
#: samples that may be drawn for all batches of a play; beyond, batches are drawn from a pool
DRAWN, POOL = 4_000_000, 4096
#: rounds in which the time on shared cores settles
ROUNDS = 40


class Preparing(NamedTuple):
    """What a sample takes a thread that prepares it, with all others at work [s]; what limits the
    loader; the share of that time that is work on a core; and what it takes where nobody else is
    at work [s]."""

    seconds: float
    limit: Limit
    share: float
    alone: float


@dataclass(frozen=True)
class Preparation:
    """How batches are prepared: `given` is a loader, or its rate; `tokens` of a sample."""

    given: Loader | Input
    batches: Batches
    machine: Machine | None
    seed: int
    base: Path
    tokens: int

    @cached_property
    def at_hand(self) -> Provisions:
        """What the loader has at hand."""
        return Provisions(self.loader, self.machine, self.base, self.tokens)

    # -- who is fed ---------------------------------------------------------------------------

    @property
    def loader(self) -> Loader | None:
        """The loader; None where only its rate is known."""
        return self.given if isinstance(self.given, Loader) else None

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Samples of a batch of every loader; each replica of the model has one."""
        mesh, shares = self.batches.mesh, self.batches.shares
        if mesh.plain:
            return shares
        own = {mesh.place(rank, "data"): share for rank, share in enumerate(shares)}
        return tuple(own[place] for place in sorted(own))

    @property
    def per_node(self) -> int:
        """Loaders of a full node; without a machine each rank is a node."""
        gpus = self.batches.site.gpus
        return max(min(gpus // self.batches.mesh.replica, len(self.counts)), 1) if gpus else 1

    @property
    def nodes(self) -> int:
        """Nodes that have loaders."""
        return -(-len(self.counts) // self.per_node)

    @property
    def micro(self) -> int:
        """Batches of a step."""
        return self.batches.batch.accumulation

    @cached_property
    def supply(self) -> Supply:
        """How batches come about."""
        if self.loader is None:
            return Supply(1, 2)
        found = self.loader.supply(len(self.counts))
        self.at_hand.check_memory(self.loader, found.ahead * max(self.counts), self.per_node)
        return found

    # -- what a sample takes ------------------------------------------------------------------

    @property
    def limit_of_cores(self) -> bool:
        """Whether workers wait for cores where all are at work."""
        return self.loader is not None and self.pace(1.0).limit == "cores"

    @cached_property
    def draws(self) -> SampleDraws:
        """What single samples take."""

        def resolved(factor: Distribution) -> Distribution:
            return factor.resolved(lambda name: read_numbers(below(self.base, name, "input")))

        return SampleDraws(self.loader.kinds if self.loader else (), resolved)

    @cached_property
    def random(self) -> bool:
        """Whether samples are drawn."""
        return self.draws.random

    def pace(self, busy: float, slower: float = 1.0) -> Preparing:
        """What a sample takes a thread, where processes train for the share `busy` of the time; all
        takes `slower` times as long."""
        assert self.loader is not None
        mean = self.draws.seconds
        read, most = self.at_hand.reading(self.nodes)
        threads = self.per_node * self.supply.threads
        stretch = self._stretch(threads, mean, read, busy)
        alone, floor = mean * stretch + read, threads * self.nodes / most
        seconds, quiet = max(floor, alone) * slower, (mean + read) * slower
        share = mean * stretch * slower / seconds if seconds else 0.0
        if floor > alone or read > mean * stretch:
            return Preparing(seconds, "storage", share, quiet)
        return Preparing(seconds, "cores" if stretch > 1.0 + 1e-9 else "workers", share, quiet)

    def _stretch(self, threads: int, work: float, read: float, busy: float) -> float:
        """How many times as long work on a core takes, beside all others of the node."""
        cores, found = self.at_hand.cores, 1.0
        if cores is None or work == 0:
            return 1.0
        assert self.loader is not None
        site = self.batches.site
        ranks = min(site.gpus or 1, site.ranks)
        training = ranks * self.loader.training_cores * busy if self.supply.lines else 0.0
        for _ in range(ROUNDS):  # who reads needs no core
            running = threads * work * found / (work * found + read) + training
            found = (found + max(running / cores.work(running), 1.0)) / 2.0
        return found

    # -- what a batch takes -------------------------------------------------------------------

    def batch(self, count: Array, pace: Preparing) -> Array:
        """What batches of `count` samples take a line at `pace` [s].

        Threads that begin a batch together take turns at its samples; in the last turn some have
        none, which those that are left use where cores or storage were short."""
        supply = self.supply
        shared = count / supply.helpers * pace.seconds
        if not supply.barrier:
            return np.asarray(shared)
        return np.maximum(np.ceil(count / supply.helpers) * pace.alone, shared)

    @property
    def loaders(self) -> int:
        """Loaders that differ, each of which is followed."""
        return len(self._kinds)

    @cached_property
    def _kinds(self) -> Array:
        """The batches of loaders that differ: all of them where anything is random."""
        return np.array(self.counts if self.random else sorted(set(self.counts)), dtype=float)

    def _sums(self, number: int, played: int) -> Array:
        """How many times the mean the samples of the run's batch `number` take to prepare and to
        read, in the mean of each batch."""
        counts, most = self._kinds.astype(int), int(self._kinds.max())
        size = len(counts) * most
        if size * played <= DRAWN:
            drawn = self.draws.sample(stream(self.seed, "input", number), size)
            rows = drawn.reshape(2, len(counts), most)
            inside = np.arange(most) < counts[:, None]
            return np.asarray((rows * inside).sum(axis=2) / counts)
        chosen = stream(self.seed, "input", number).random(len(counts)) * self._pool.shape[1]
        return np.asarray(self._pool[:, chosen.astype(int)])

    @cached_property
    def _pool(self) -> Array:
        """Means over batches to draw from, where drawing every sample would take long."""
        count = int(self._kinds.max())
        some = max(min(POOL, DRAWN // count), 16)
        drawn = self.draws.sample(stream(self.seed, "input pool", 0), some * count)
        return np.asarray(drawn.reshape(2, some, count).mean(axis=2))

    def times(self, pace: Preparing, played: int, batch: int, number: int) -> Array:
        """What batch `batch` of an epoch, the run's `number`, takes every loader [s]."""
        loader, counts = self.loader, self._kinds
        if loader is None:
            return self.batch(np.full_like(counts, max(counts)), pace)
        if self.supply.fill and batch < max(self.supply.lines, 1):
            counts = counts + self.supply.fill
        usual = self.batch(counts, pace)
        if self.random:
            prepared, read = self._sums(number, played) - 1.0
            usual = usual * (1.0 + pace.share * prepared + (1.0 - pace.share) * read)
        return np.asarray(usual + loader.collate)

    @property
    def slow_batches(self) -> Mapping[int, float]:
        """Batches that take another time [s]."""
        return (self.loader.slow_batches if self.loader else None) or {}

    def equal(self, seconds: float) -> Array:
        """A batch that takes every loader so long [s]."""
        return np.full(len(self._kinds), seconds)

    @property
    def numbers(self) -> Iterator[float]:
        """The numbers that were given."""
        loader = self.loader
        if loader is None:
            yield from (self.given.rate or ())[:1] if isinstance(self.given, Input) else ()
            return
        kinds = (part for kind in loader.kinds for part in (kind, kind.decode))
        parts = (loader, *kinds, self.at_hand.cores, self.at_hand.storage)
        for part in parts:
            yield from (x for x in vars(part).values() if isinstance(x, float)) if part else ()

    def kind(self, batch: int, number: int) -> int:
        """A number for batch `batch` of an epoch, the run's `number`; of equal numbers, batches
        take equal times."""
        if self.random:
            return number
        return min(batch, max(self.supply.lines, 1)) if self.supply.fill else 0

    def period(self, pace: Preparing) -> float:
        """What the loader takes for the batches of a step in the mean, left to itself [s].

        Lines work at once, the training process takes batches one by one, and of so many that are
        asked for ahead each is asked for when the one that many before it has been taken."""
        most = np.array([float(max(self.counts))])
        beside, taken = (self.loader.collate, self.loader.take) if self.loader else (0.0, 0.0)
        each = float(self.batch(most, pace)[0]) + beside
        lines, ahead = self.supply.lines, self.supply.ahead
        if lines == 0:
            return self.micro * (each + taken)
        return self.micro * max(each / lines, (each + taken) / ahead, taken)

    @property
    def beside(self) -> float:
        """What the device that trains prepares of a batch [s]."""
        return self.loader.device_seconds() * max(self.counts) if self.loader else 0.0

    def _by_rate(self) -> Preparing:
        """What a sample takes, at the rate that was given for a node, the loader of one rank."""
        assert isinstance(self.given, Input)
        assert self.given.rate is not None
        value, unit = self.given.rate
        if unit == "tokens" and self.tokens == 1:
            message = "this model's samples have no tokens; write it in samples/s"
            raise Refused(message, ("input", "rate"))
        samples = sum(self.counts[: self.per_node]) * (self.tokens if unit == "tokens" else 1)
        return Preparing(samples / value / max(self.counts), "rate", 0.0, 0.0)

    def settled(self, training: float, slower: float = 1.0) -> Preparing:
        """The pace of threads beside steps that train for so long [s], where each takes `slower`
        times as long as is known."""
        if self.loader is None:
            pace = self._by_rate()
            return pace._replace(seconds=pace.seconds * slower)
        pace = self.pace(1.0, slower)
        for _ in range(ROUNDS):
            period = max(self.period(pace), training)
            new = self.pace(training / period if period else 1.0, slower)
            if abs(new.seconds - pace.seconds) <= 1e-12 * pace.seconds:
                break
            pace = new._replace(seconds=(new.seconds + pace.seconds) / 2.0)
        return pace
