"""`dpsim compare`: which cluster or strategy is best, how surely, and what a mistake costs.

All candidates do the same work: the training runs that their jobs ask for, or, where they ask for
none, what the first candidate does in an hour.  What that costs is drawn many times, with the
causes of uncertainty that candidates share drawn once for all of them (dpsim/planning/causes.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from dpsim.core.arrays import Array
from dpsim.core.record import Refused
from dpsim.describe.scenario import Scenario
from dpsim.planning.candidates import DEVICES, Candidate, PlayedJob
from dpsim.planning.causes import Cause, Factor, factors, numbers
from dpsim.planning.equal_work import HOUR, EqualWork, check_alike, differences, work_of
from dpsim.predict.compressed import throughout

KWH = 3.6e6
By = Literal["cost", "time", "energy"]
UNITS: dict[str, str] = {"cost": "usd", "time": "s", "energy": "kWh"}
DRAWS = 20_000
#: fewest and most draws that an answer may rest on
DRAWN = (100, 1_000_000)


@dataclass(frozen=True)
class Term:
    """One job of one candidate: what it adds to the objective if nothing is off, its seconds, and
    the factors of what may be off of its steps, all of it but a share that is `paused`."""

    amount: float
    seconds: float
    factors: tuple[Factor, ...]
    paused: float = 0.0

    @property
    def shape(self) -> tuple[object, ...]:
        """What it is but for whose numbers are drawn; amounts to nine digits."""
        return f"{self.amount:.9g}", [(one.low, one.high) for one in self.factors], self.paused

    def drawn(self, draws: dict[Cause, Array]) -> Array:
        """`amount` under every draw."""
        count = len(next(iter(draws.values()))) if draws else 1
        found = np.ones(count)
        for factor in self.factors:
            found = found * factor.of(draws[factor.cause])
        return self.amount * self.longer(found)

    def longer(self, steps: Array) -> Array:
        """By what all of it takes longer where its steps take so many times as long."""
        return self.paused + (1.0 - self.paused) * steps


@dataclass(frozen=True)
class Comparison:
    """Candidates that do the same work, and the objective that says which is best.

    usable  places in `candidates` of those that can be chosen
    """

    candidates: tuple[Candidate, ...]
    work: EqualWork
    by: By
    seed: int
    draws: int
    notes: tuple[str, ...]

    @cached_property
    def usable(self) -> tuple[int, ...]:
        return tuple(i for i, found in enumerate(self.candidates) if found.usable)

    @cached_property
    def terms(self) -> dict[int, tuple[Term, ...]]:
        """The terms of every usable candidate's objective."""
        return {
            i: tuple(
                _term(self.by, self.candidates[i], job, like, steps)
                for job, like, steps in zip(
                    self.candidates[i].jobs, self.likes[i], self.work.steps[i], strict=True
                )
            )
            for i in self.usable
        }

    @cached_property
    def likes(self) -> dict[int, tuple[PlayedJob, ...]]:
        """The jobs of every usable candidate, those in place of them that came first and run alike,
        step by step: so do runs that end before their compression begins."""
        known: list[tuple[Scenario, float, PlayedJob]] = []
        return {
            i: tuple(
                _first(known, job, steps, self.by)
                for job, steps in zip(self.candidates[i].jobs, self.work.steps[i], strict=True)
            )
            for i in self.usable
        }

    def alike(self, a: int, b: int) -> bool:
        """Whether two usable candidates run alike, but for how one run differs from the next."""
        pairs = zip(self.likes[a], self.likes[b], strict=True)
        shapes = [[one.shape for one in self.terms[i]] for i in (a, b)]
        return shapes[0] == shapes[1] and all(one is other for one, other in pairs)

    @cached_property
    def causes(self) -> tuple[Cause, ...]:
        """All unknown numbers, in a fixed order."""
        every = {f.cause for terms in self.terms.values() for t in terms for f in t.factors}
        return tuple(sorted(every))

    @cached_property
    def objective(self) -> Array:
        """The objective of the usable candidates (rows, in order) under every draw."""
        drawn = {cause: numbers(cause, self.seed, self.draws) for cause in self.causes}
        if not drawn:
            drawn = {Cause("nothing", ()): np.zeros(self.draws)}
        rows = [sum(term.drawn(drawn) for term in self.terms[i]) for i in self.usable]
        return np.array(rows, dtype=float).reshape(len(self.usable), self.draws)

    @property
    def chosen(self) -> int | None:
        """The place of the candidate with the least expected objective; the first of equals."""
        if not self.usable:
            return None
        return min(self._means, key=lambda i: self._means[i])

    @property
    def runner_up(self) -> int | None:
        """The place of the next best."""
        means = {place: mean for place, mean in self._means.items() if place != self.chosen}
        return min(means, key=lambda i: means[i]) if means else None

    @property
    def _means(self) -> dict[int, float]:
        """The expected objective by place; rounding makes no two differ that are equal."""
        means = self.objective.mean(axis=1).tolist()
        return {i: float(f"{mean:.12g}") for i, mean in zip(self.usable, means, strict=True)}


def comparison(
    candidates: Sequence[Candidate], *, by: By | None = None, seed: int = 0, draws: int = DRAWS
) -> Comparison:
    """Compare `candidates` by cost where prices are known, by time otherwise, or as `by` says.

    Raises Refused where they do not do the same work, or where `by` asks for what is not known.
    """
    numbered = [c for c in candidates if not c.error]
    check_alike(numbered)
    work = work_of(candidates)
    if by is None:
        by, notes = _objective(numbered)
    else:
        _check_known(numbered, by)
        notes = []
    if by == "cost":
        notes += _electricity_alone(numbered)
    notes += differences(numbered, work.trained)
    return Comparison(tuple(candidates), work, by, seed, draws, tuple(notes))


# -- the objective --------------------------------------------------------------------------------


def _objective(candidates: Sequence[Candidate]) -> tuple[By, list[str]]:
    """Cost where all have a price; else time, saying who has none."""
    missing = [c.name for c in candidates if any(job.point.cost is None for job in c.jobs)]
    if not missing and candidates:
        return "cost", []
    if len(missing) == len(candidates):
        return "time", []
    return "time", [f"compared by time: {', '.join(missing[:5])} has no price"]


def _electricity_alone(candidates: Sequence[Candidate]) -> list[str]:
    """Who has no price of its devices, where others have one."""
    bills = [(c.name, [job.point.cost for job in c.jobs if job.point.cost]) for c in candidates]
    bare = [
        name
        for name, found in bills
        if not any(item.name == DEVICES for bill in found for item in bill.items)
    ]
    if len(bare) == len(bills):
        return []
    return [f"{name}: no price of its devices; its cost is electricity alone" for name in bare]


def _check_known(candidates: Sequence[Candidate], by: By) -> None:
    attribute, section = {
        "cost": ("cost_usd_per_hour", "price"), "energy": ("power_w", "energy"),
        "time": ("step_time_s", ""),
    }[by]  # fmt: skip
    for candidate in candidates:
        if any(getattr(job.point, attribute) is None for job in candidate.jobs):
            raise Refused(f"--by {by}: {candidate.name} has no `{section}` section")


def _term(by: By, candidate: Candidate, job: PlayedJob, like: PlayedJob, steps: float) -> Term:
    """One of `job`, which runs like another."""
    seconds = steps * job.step_time * job.longer
    own = (candidate.name, job.name)
    found = factors(like.case, like.causes, own)
    return Term(worth(by, job, seconds), seconds, tuple(found), job.paused)


def _first(
    known: list[tuple[Scenario, float, PlayedJob]], job: PlayedJob, steps: float, by: By
) -> PlayedJob:  # fmt: skip
    """The job among those `known` that runs as `job` does for so many steps; else itself, known."""
    runs = replace(throughout(job.case, steps).scenario, title="")
    amount = worth(by, job, steps * job.step_time * job.longer)
    for other, same, first in known:
        if math.isclose(same, amount, rel_tol=1e-9) and other == runs:
            return first
    known.append((runs, amount, job))
    return job


def worth(by: By, job: PlayedJob, seconds: float) -> float:
    """The objective of so many seconds of `job` [UNITS[by]]."""
    if by == "cost":
        assert job.point.cost_usd_per_hour is not None
        return job.point.cost_usd_per_hour * seconds / HOUR
    if by == "energy":
        assert job.point.power_w is not None
        return job.point.power_w * seconds / KWH
    return seconds
