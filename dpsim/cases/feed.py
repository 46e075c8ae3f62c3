"""Feed: when the steps of a case can start, as its batches are prepared, and how long they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

import numpy as np

from dpsim.cases.preparation import Limit, Preparation, Preparing
from dpsim.core.arrays import Array
from dpsim.core.lean import dataclass
from dpsim.core.many import Leaked, Many
from dpsim.core.record import Refused
from dpsim.play.feeding import Epochs, Fed, feed

#: epochs over which the mean of a random one is taken
DRAWN = 16
#: steps that are played where anything is random; starts that are shown; steps of an epoch up to
#: which it is played whole
PLAYED, SHOWN, WHOLE = 400, 16, 20_000
#: turns of a loader's lines that are played at least where anything is random, so that their means
#: tell how far they scatter; steps beyond which neither these are nor whole turns of what was
#: played before
TURNS, LONGEST = 16, 2048
#: turns of the lines in which a queue settles where nothing is random, however long it is
SETTLED = 8
#: share of a step that is no wait but the rounding of its end
NOTHING = 1e-9
#: seconds that feeding once may take, as estimated; a point is fed some ten times
LIMIT = 30.0
#: what feeding takes on a core of a server [s]: a batch; each loader beside it; where batches are
#: taken out of order, each loader's every batch, and each line that is looked at for it
#: (measured: a core of an x86-64 machine of 2 cores, Python 3.11)
BATCH, BESIDE, LOOSE, LOOK = 5e-6, 1.5e-7, 4e-6, 1e-7


@dataclass(frozen=True)
class Meal:
    """Steps as they are fed [s].

    durations  from the end of a step to the end of the next, once the loader has settled
    waits      what of each was spent without a batch
    starts     of the first steps, from the moment at which the loader is asked for the first batch
    period     what the loader takes for the batches of a step, left to itself
    pace       of its threads
    epoch      a whole epoch with its beginning, in the mean; None where epochs do not end
    gap        from an epoch's beginning to its first step
    beside     what the device that trains prepares in a step
    """

    durations: tuple[float, ...]
    waits: tuple[float, ...]
    starts: tuple[float, ...]
    period: float
    limit: Limit
    pace: Preparing
    epoch: float | None
    gap: float
    beside: float = 0.0

    @property
    def step(self) -> float:
        """Mean step [s]."""
        return math.fsum(self.durations) / len(self.durations)

    @property
    def wait(self) -> float:
        """What of it passes without a batch, in the mean [s]."""
        return math.fsum(self.waits) / len(self.waits)


def _wait(duration: float, busy: float) -> float:
    """What of a step passes without a batch [s]; sums of ends are off by less than NOTHING."""
    wait = duration - busy
    return wait if wait > NOTHING * duration else 0.0


@dataclass(frozen=True)
class Feed:
    """What feeds the ranks of a case."""

    made: Preparation

    def meal(self, training: Sequence[float], slower: float = 1.0) -> Meal:
        """Steps that train for so long each [s], in turn and then from the first again, as they are
        fed by a loader that takes `slower` times as long."""
        made = self.made
        if any(isinstance(one, Many) for one in (*training, *made.numbers)):
            raise Leaked("a loader is played point by point")
        self._check(len(training))
        beside = made.beside * made.micro
        own = [one + beside for one in training]
        pace = made.settled(math.fsum(own) / len(own), slower)
        skipped, kept = self._span(len(own))
        fed = self._fed(pace, own, (skipped + kept) * made.micro, None)
        ends = fed.ends[made.micro - 1 :: made.micro]
        durations = np.diff(ends[skipped - 1 :]).tolist()
        busy = [own[k % len(own)] for k in range(skipped, skipped + kept)]
        waits = tuple(_wait(a, b) for a, b in zip(durations, busy, strict=True))
        starts, epoch, gap = self._epoch(pace, own)
        period, limit = made.period(pace), pace.limit
        return Meal(tuple(durations), waits, starts, period, limit, pace, epoch, gap, beside)

    @property
    def turn(self) -> int:
        """Steps after which each line of a loader has its turn again where a step begins."""
        lines = max(self.made.supply.lines, 1)
        return lines // math.gcd(lines, self.made.micro)

    def _span(self, steps: int) -> tuple[int, int]:
        """Steps that are played before the loader has settled, and steps that count: whole turns
        of its lines, for batches come in bursts of a turn, and of the steps that were played."""
        lines = max(self.made.supply.lines, 1)
        ahead = max(self.made.supply.ahead, lines)
        if steps == 1 and not self.made.random:  # queues neither fill nor empty by chance
            ahead = min(ahead, SETTLED * lines)
        before = 2 * -(-ahead // self.made.micro) + 8
        least = 32 if not self.made.random else max(PLAYED, min(TURNS * self.turn, LONGEST))
        together = math.lcm(self.turn, max(steps, 1))
        if together <= max(LONGEST, steps):
            return before, together * -(-least // together)
        return before, self.turn * -(-max(least, steps) // self.turn)

    def _check(self, steps: int) -> None:
        """Refuse what would take too long to feed, before any batch is made."""
        made, supply = self.made, self.made.supply
        batches = (sum(self._span(steps)) + self._counted * self._drawn) * made.micro
        if supply.lines and not supply.ordered:
            each = LOOSE + LOOK * supply.lines
            seconds = (batches + supply.ahead * (1 + self._drawn)) * made.loaders * each
        else:
            seconds = batches * (BATCH + BESIDE * made.loaders)
        if seconds > LIMIT:
            raise Refused(
                f"following {batches:,} batches of {made.loaders:,} loaders that keep "
                f"{supply.ahead:,} ahead would take about {seconds:,.0f} s (it may take "
                f"{LIMIT:.0f} s); fewer workers, less prefetch or less accumulation would do",
                ("input",),
            )

    @property
    def _counted(self) -> int:
        """Steps of an epoch that are played."""
        return min(self.steps_of_epoch or SHOWN, WHOLE)

    @property
    def _drawn(self) -> int:
        """Epochs that are played."""
        several = self.made.random and self.steps_of_epoch is not None
        return max(min(DRAWN, WHOLE // self._counted), 1) if several else 1

    def _fed(
        self, pace: Preparing, own: Sequence[float], count: int, since: float | None, again: int = 0
    ) -> Fed:
        """`count` batches, of which the first is asked for at once and workers work after `since`;
        None: of the settled sequence, where no single batch is slow.  `again` draws other times."""
        made, known = self.made, dict[int, Array]()
        training = [own[k // made.micro % len(own)] / made.micro for k in range(count)]
        slow = {} if since is None else made.slow_batches

        def times(batch: int, number: int) -> Array:
            if number in slow:
                return made.equal(slow[number])
            key = made.kind(batch, number)
            if key not in known:
                known[key] = made.times(pace, count, batch, number + again * count)
            return known[key]

        take = made.loader.take if made.loader else 0.0
        steps = None if since is None else self.steps_of_epoch
        epochs = Epochs(steps and steps * made.micro, first=since or 0.0)
        return feed(made.supply, times, training, epochs, take)

    def _epoch(
        self, pace: Preparing, own: Sequence[float]
    ) -> tuple[tuple[float, ...], float | None, float]:
        """The first starts of all, a later epoch and the wait at its beginning [s]."""
        loader = self.made.loader
        start = loader.start if loader else 0.0
        steps = self.steps_of_epoch
        count, drawn = self._counted, range(self._drawn)
        each = [self._fed(pace, own, count * self.made.micro, start, k) for k in drawn]
        fed = each[0]
        starts, last = fed.starts[:: self.made.micro], fmean(one.ends[-1] for one in each)
        if steps is None:
            return starts[:SHOWN], None, starts[0]
        if steps > count:  # the rest goes on as its second half went
            middle = count // 2
            last += (
                (steps - count) * (last - fed.ends[middle * self.made.micro - 1]) / (count - middle)
            )
        once = self.once
        return starts[:SHOWN], last - once, starts[0] - once

    @property
    def once(self) -> float:
        """What passes until workers that stay from epoch to epoch work, in the first one [s]."""
        loader = self.made.loader
        return loader.start if loader and getattr(loader, "persistent", False) else 0.0

    @property
    def steps_of_epoch(self) -> int | None:
        """Steps of an epoch as DistributedSampler deals it; None where epochs do not end."""
        samples = self.made.loader.samples if self.made.loader else None
        if samples is None:
            return None
        step = sum(self.made.counts) * self.made.micro
        return max(-(-samples // step), 1)
