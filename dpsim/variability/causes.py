"""The causes: who is slow, how often it is drawn, and who shares a draw."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt

from dpsim.core import units
from dpsim.core.arrays import Array
from dpsim.core.lean import dataclass
from dpsim.core.plugins import Plugin
from dpsim.core.record import Check, Flag, Refused, record
from dpsim.variability.distributions import Distribution, Drawn
from dpsim.variability.draws import stream

Places = npt.NDArray[np.int64]
FactorOrDraw = Annotated[
    float | Distribution, Drawn(units.Unit("1", low=0.0, high=1e6, above=True))
]


@dataclass(frozen=True)
class Crew:
    """The ranks that run a step, and how they share nodes and racks.

    ranks    how many there are
    gpus     ranks of a node, which fill the nodes in turn; None: there are no nodes
    racked   nodes of a rack; None: there are no racks
    seconds  what a quiet rank computes in a step [s]
    samples  of one rank in a step
    """

    ranks: int
    gpus: int | None = None
    racked: int | None = None
    seconds: float = 0.0
    samples: int = 1

    def dice(self, per: str) -> tuple[int, Places | slice]:
        """How many draws there are, and which of them each rank gets."""
        if per in ("rank", "step"):
            return self.ranks, slice(None)
        if per == "all":
            return 1, np.zeros(self.ranks, dtype=np.int64)
        if self.gpus is None:
            raise Refused("a cluster without a machine has no nodes or racks", ("variability",))
        size = self.gpus
        if per == "rack":
            if self.racked is None:
                raise Refused(
                    "is missing; racks are as many nodes as it says",
                    ("variability", "nodes_per_rack"),
                )
            size *= self.racked
        return -(-self.ranks // size), np.arange(self.ranks) // size


@record
class RandomSlow:
    """Each rank is slowed by `factor` with `probability`, drawn anew every step (`per: step`), or
    each rank, node or rack once for the whole run (`per: rank`, `node`, `rack`).

    probability  of being slow
    factor       on the compute of who is slow; a number or a distribution
    per          how often it is drawn, and for whom
    """

    probability: units.PositiveFraction
    factor: FactorOrDraw
    per: Literal["step", "rank", "node", "rack"] = "step"

    @property
    def drawn_once(self) -> bool:
        return self.per != "step"

    def factors(self, name: str, crew: Crew, seed: int, step: int) -> Array:
        count, place = crew.dice(self.per)
        source = stream(seed, name, step)
        slow = source.random(count) < self.probability
        if isinstance(self.factor, Distribution):
            drawn = self.factor.sample(stream(seed, f"{name}.factor", step), count)
        else:
            drawn = np.full(count, self.factor)
        return np.asarray(np.where(slow, drawn, 1.0)[place])


@record
class Shared:
    """A factor that all ranks of a node, a rack or the whole job share, drawn anew every step.

    factor  its distribution
    per     who shares a draw
    """

    factor: Annotated[Distribution, Plugin("variability", "kind")]
    per: Literal["node", "rack", "all"]

    def factors(self, crew: Crew, seed: int, step: int) -> Array:
        count, place = crew.dice(self.per)
        return np.asarray(self.factor.sample(stream(seed, "shared", step), count)[place])


@record
class CoTenant:
    """Other jobs on the same nodes take a `share` of the compute in episodes of so many steps.

    share        of the compute that is lost during an episode: what is left takes 1/(1 - share)
    probability  of a node (or rank) to have such neighbours in an episode
    episode      steps of an episode
    per          who has the same neighbours
    """

    share: Annotated[float, units.Unit("1", low=0.0, high=0.99)]
    probability: units.PositiveFraction
    episode: Annotated[int, Check(1, 100_000)] = 1
    per: Literal["rank", "node"] = "rank"

    def factors(self, crew: Crew, seed: int, step: int) -> Array:
        count, place = crew.dice(self.per)
        busy = stream(seed, "co_tenant", step // self.episode).random(count) < self.probability
        return np.asarray(np.where(busy, 1.0 / (1.0 - self.share), 1.0)[place])


@record
class LinkEpisodes:
    """Links out of nodes that are slow for a while.  A collective or transfer between nodes moves
    its bytes as slowly as the slowest of them: one slow link is in every ring.

    factor       how many times as long bytes take on a link in an episode; a number or a
                 distribution
    probability  of a link to be in an episode
    episode      steps of an episode
    per          what has a link of its own; `all`: the whole network is slow at once
    """

    factor: FactorOrDraw
    probability: units.PositiveFraction
    episode: Annotated[int, Check(1, 100_000)] = 1
    per: Literal["rank", "node", "all"] = "node"

    def slowest(self, crew: Crew, seed: int, step: int) -> float:
        """How many times as long bytes between nodes take in this step."""
        number = step // self.episode
        count, _ = crew.dice(self.per)
        slow = stream(seed, "link_episodes", number).random(count) < self.probability
        if not slow.any():
            return 1.0
        if not isinstance(self.factor, Distribution):
            return max(self.factor, 1.0)
        drawn = self.factor.sample(stream(seed, "link_episodes.factor", number), count)
        return max(float(drawn[slow].max()), 1.0)


@record
class Pauses:
    """Every rank stops for `duration` now and then: garbage collection, a checkpoint of the host.

    duration      of one pause
    every         steps between two pauses of a rank; ranks are out of step with one another
    interval      mean computing time between two pauses of a rank, at random; instead of `every`
    synchronised  all ranks pause in the same step, as planned garbage collection does
    """

    duration: units.Seconds
    every: Annotated[int, Check(1, 100_000)] | None = None
    interval: Annotated[float, units.Unit("s", high=1e9, above=True)] | None = None
    synchronised: Flag = False

    def __post_init__(self) -> None:
        if (self.every is None) == (self.interval is None):
            raise ValueError("needs either every (steps) or interval (seconds)")

    def seconds(self, crew: Crew, seed: int, step: int) -> Array:
        """Seconds of pauses of every rank in this step."""
        count, place = crew.dice("all" if self.synchronised else "rank")
        if self.every is not None:
            if self.synchronised:
                phase = np.zeros(1, dtype=int)
            else:
                phase = (stream(seed, "pauses", 0).random(count) * self.every).astype(int)
            hits = ((step + phase) % self.every == 0).astype(float)
        else:
            assert self.interval is not None
            hits = stream(seed, "pauses", step).poisson(crew.seconds / self.interval, count)
        return np.asarray(self.duration * hits[place])
