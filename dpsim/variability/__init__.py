"""Variability: how much longer a rank takes in a step than it would on a quiet machine.

A module of this folder is a distribution, its file name the name in scenarios:
``jitter: {kind: pareto, tail_index: 4}``.  Causes multiply; pauses and delays add.  Every cause
draws from its own random stream, keyed by (seed, cause, step) and indexed by rank, so another rank
or another cause shifts nobody's draws.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator

from dpsim.core import units
from dpsim.core.arrays import Array
from dpsim.core.record import Check, Count, Refused, build, record
from dpsim.variability.causes import CoTenant, Crew, LinkEpisodes, Pauses, RandomSlow, Shared
from dpsim.variability.delays import Delays
from dpsim.variability.distributions import Distribution, Drawn, Reader
from dpsim.variability.draws import expected_maximum, expected_slowest, stream
from dpsim.variability.files import read_numbers
from dpsim.variability.lengths import Lengths, SequenceLength
from dpsim.variability.presets import PRESETS, Name


def _whole(key: Any) -> Any:
    """Keys of JSON are text."""
    return int(key) if isinstance(key, str) and key.isdecimal() and len(key) < 8 else key


Number = Annotated[int, Check(0, 1_048_575), BeforeValidator(_whole)]


@record
class Variability:
    """What makes ranks differ.  Causes multiply; what is drawn once for a run is drawn anew for
    every played step, so that the mean is one over such machines.

    jitter           per rank and step: standard deviation of a normal factor with mean 1, or any
                     distribution of factors.  What is given, 0 too, takes the place of the fitted
                     spread of devices
    slow_ranks       rank -> factor on all its compute, in every step
    slow_nodes       node -> factor on the compute of all its ranks, in every step
    random_slow      ranks that are slow now and then, or nodes that are slow throughout; one
                     mapping or a list of them
    shared           a factor that the ranks of a node, of a rack or all ranks share
    co_tenant        other jobs on the same nodes
    pauses           ranks that stop now and then
    sequence_length  samples of unequal length
    preset           published variability by name; keys that are given replace the preset's
    nodes_per_rack   how many nodes make a rack
    delays           seconds that single operations of single ranks take longer, in every step
    link_episodes    links between nodes that are slow for a while
    steps            steps that are played where anything is random; a loader's random batches are
                     counted by its own turns, whatever this says
    """

    jitter: Annotated[float | Distribution, Drawn(units.Unit("1", high=1.0))] | None = None
    slow_ranks: dict[Number, units.Factor] | None = None
    slow_nodes: dict[Number, units.Factor] | None = None
    random_slow: RandomSlow | tuple[RandomSlow, ...] | None = None
    shared: Shared | None = None
    co_tenant: CoTenant | None = None
    pauses: Pauses | None = None
    sequence_length: SequenceLength | None = None
    preset: Name | None = None
    nodes_per_rack: Count | None = None
    delays: Delays | None = None
    link_episodes: LinkEpisodes | None = None
    steps: Annotated[int, Check(1, 100_000)] = 100

    def __post_init__(self) -> None:
        every = self.pauses.every if self.pauses else None
        if every is not None and every > self.steps:
            message = f"{self.steps} steps don't hold one period of pauses; at least {every} do"
            raise Refused(message, ("steps",))
        for name in ("co_tenant", "link_episodes"):
            cause = getattr(self, name)
            if cause is not None and 2 * cause.episode > self.steps:
                message = f"{self.steps} steps don't hold two episodes of {name}; at least "
                raise Refused(f"{message}{2 * cause.episode} do", ("steps",))

    # -- what there is ------------------------------------------------------------------------

    @property
    def spread(self) -> float:
        """Standard deviation of a normal jitter; 0 where it is none, or not given."""
        return self.jitter if isinstance(self.jitter, float | int) else 0.0

    @property
    def expanded(self) -> Variability:
        """With the keys that its preset stands for."""
        if self.preset is None:
            return self
        known = build(Variability, PRESETS[self.preset].keys)
        missing = {
            name: getattr(known, name)
            for name in PRESETS[self.preset].keys
            if not getattr(self, name)
        }
        return replace(self, preset=None, **missing)

    @property
    def slow(self) -> tuple[RandomSlow, ...]:
        """`random_slow` as a list."""
        given = self.random_slow
        return given if isinstance(given, tuple) else (given,) if given else ()

    @property
    def causes(self) -> tuple[str, ...]:
        """The names of what is there, in the order in which it is applied."""
        whole = self.expanded
        return tuple(name for name in CAUSES if getattr(whole, name))

    @property
    def named(self) -> dict[str, tuple[int, ...]]:
        """The ranks and nodes that are slow in every step, by cause."""
        whole = self.expanded
        return {name: tuple(getattr(whole, name) or ()) for name in _NAMED}

    @property
    def source(self) -> str:
        """Where its preset comes from; empty without one."""
        return PRESETS[self.preset].source if self.preset else ""

    @property
    def random(self) -> bool:
        """Whether steps differ from one another."""
        return any(name not in FIXED for name in self.causes)

    @property
    def varies(self) -> bool:
        """Whether ranks or steps differ at all."""
        return bool(self.causes)

    @property
    def scatters(self) -> bool:
        """Whether it says how devices differ by themselves, be it not at all, and not only what
        comes on top of that: which are slow or when, what all share or neighbours take, and whose
        samples are long."""
        shared = self.expanded.shared
        return self.jitter is not None or (shared is not None and shared.per != "all")

    @property
    def drawn_once(self) -> bool:
        """Whether anything random lasts for the whole run."""
        return any(cause.drawn_once for cause in self.expanded.slow)

    def without(self, cause: str) -> Variability:
        """The same without `cause`; "slow_ranks[3]" and "slow_nodes[3]" leave out one of them."""
        whole = self.expanded
        name, _, number = cause.partition("[")
        left: Any = None
        if number:
            entries = getattr(whole, name).items()
            left = {k: v for k, v in entries if k != int(number[:-1])} or None
        changed: dict[str, Any] = {name: left}
        return replace(whole, **changed)

    # -- what it does -------------------------------------------------------------------------

    def factors(self, seed: int, step: int, crew: int | Crew, read: Reader | None = None) -> Array:
        """Multiplier of every rank's compute in step `step`, shape (ranks,)."""
        place = Crew(crew) if isinstance(crew, int) else crew
        return Variation(self, place, seed, read).factors(step)


#: the causes that multiply compute, in the order in which they are applied
OF_COMPUTE = (
    "jitter", "random_slow", "slow_ranks", "slow_nodes", "shared", "co_tenant", "sequence_length",
    "pauses",
)  # fmt: skip
CAUSES = (*OF_COMPUTE, "delays", "link_episodes")
#: those that name ranks or nodes
_NAMED = ("slow_ranks", "slow_nodes")
#: those that are the same in every step
FIXED = (*_NAMED, "delays")


@dataclass
class Variation:
    """Variability at one place: files read, distributions made."""

    variability: Variability
    crew: Crew
    seed: int
    read: Reader | None = None
    jitter: float | Distribution | None = field(init=False)
    lengths: Lengths | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        whole = self.variability.expanded
        read = self.read or _no_files
        self.jitter = whole.jitter
        if isinstance(whole.jitter, Distribution):
            self.jitter = whole.jitter.resolved(read)
        slow = tuple(_resolved(cause, read) for cause in whole.slow)
        shared = _resolved(whole.shared, read) if whole.shared else None
        links = _resolved(whole.link_episodes, read) if whole.link_episodes else None
        self.variability = replace(
            whole, random_slow=slow or None, shared=shared, link_episodes=links
        )
        if whole.sequence_length:
            self.lengths = whole.sequence_length.lengths(read)
        if whole.pauses and self.crew.seconds <= 0:
            raise Refused("there is no compute to pause", ("variability", "pauses"))
        if whole.slow_nodes:
            self.crew.dice("node")

    @property
    def fixed(self) -> dict[int, float]:
        """Rank -> its factor in every step, where that is not 1."""
        found = {
            r: f for r, f in (self.variability.slow_ranks or {}).items() if r < self.crew.ranks
        }
        for node, factor in (self.variability.slow_nodes or {}).items():
            size = self.crew.gpus or 1
            for rank in range(node * size, min((node + 1) * size, self.crew.ranks)):
                found[rank] = found.get(rank, 1.0) * factor
        return found

    def network(self, step: int) -> float:
        """How many times as long bytes between nodes take in this step."""
        episodes = self.variability.link_episodes
        return episodes.slowest(self.crew, self.seed, step) if episodes else 1.0

    def factors(self, step: int, scale: float = 1.0, busy: Array | None = None) -> Array:
        """Multiplier of every rank's compute in this step; `scale` multiplies all but pauses.

        busy  what it multiplies, for every rank [s]; left out: the crew's compute
        """
        v, crew, seed = self.variability, self.crew, self.seed
        factors = np.ones(crew.ranks)
        if isinstance(self.jitter, Distribution):
            factors *= self.jitter.sample(stream(seed, "jitter", step), crew.ranks)
        elif self.jitter:
            draws = stream(seed, "jitter", step).standard_normal(crew.ranks)
            factors *= np.maximum(1.0 + self.jitter * draws, 0.0)
        for k, cause in enumerate(v.slow):
            name = "random_slow" if k == 0 else f"random_slow.{k}"
            factors *= cause.factors(name, crew, seed, step)
        for rank, factor in self.fixed.items():
            factors[rank] *= factor
        for shared in (v.shared, v.co_tenant):
            if shared:
                factors *= shared.factors(crew, seed, step)
        if v.sequence_length and self.lengths:
            factors *= v.sequence_length.factors(self.lengths, crew, seed, step)
        factors *= scale
        if v.pauses:
            factors += v.pauses.seconds(crew, seed, step) / (crew.seconds if busy is None else busy)
        return factors


def _resolved(cause: Any, read: Reader) -> Any:
    """`cause` with the file of its distribution read."""
    factor = cause.factor
    return (
        replace(cause, factor=factor.resolved(read)) if isinstance(factor, Distribution) else cause
    )


def _no_files(name: str) -> tuple[tuple[float, ...], str]:
    raise Refused(f"{name[:60]!r}: files are read where there is a scenario", ("variability",))


__all__ = [
    "CAUSES", "OF_COMPUTE", "PRESETS", "CoTenant", "Crew", "Delays", "Distribution", "LinkEpisodes",
    "Pauses", "RandomSlow", "SequenceLength", "Shared", "Variability", "Variation",
    "expected_maximum", "expected_slowest", "read_numbers", "stream",
]  # fmt: skip
