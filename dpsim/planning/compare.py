"""`dpsim compare`: which cluster or strategy is best, how surely, and what a mistake costs.

All candidates do the same work: the training runs that their jobs ask for, or, where they ask for
none, what the first candidate does in an hour.  What that costs is drawn many times, with the
causes of uncertainty that candidates share drawn once for all of them (dpsim/planning/causes.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from dpsim._version import __version__
from dpsim.core.record import Refused
from dpsim.planning.candidates import Candidate, PlayedJob
from dpsim.planning.causes import Array, Cause, Factor, factors, numbers

SCHEMA_VERSION = 1
DAY, HOUR, KWH = 86_400.0, 3600.0, 3.6e6
By = Literal["cost", "time", "energy"]
UNITS: dict[str, str] = {"cost": "usd", "time": "s", "energy": "kWh"}
DRAWS = 20_000


@dataclass(frozen=True)
class Term:
    """One job of one candidate: what it adds to the objective if nothing is off, its seconds, and
    the factors of what may be off."""

    amount: float
    seconds: float
    factors: tuple[Factor, ...]

    def drawn(self, draws: dict[Cause, Array]) -> Array:
        """`amount` under every draw."""
        count = len(next(iter(draws.values()))) if draws else 1
        found = np.full(count, self.amount)
        for factor in self.factors:
            found = found * factor.of(draws[factor.cause])
        return found


@dataclass(frozen=True)
class Work:
    """How many steps of each of its jobs a candidate has to do; `reference` is the candidate whose
    hour it is where no training is asked for."""

    steps: tuple[tuple[float, ...], ...]
    trained: bool
    reference: str = ""

    @property
    def text(self) -> str:
        if self.trained:
            return "the training asked for"
        return f"as many samples as {self.reference} is predicted to do in an hour"


@dataclass(frozen=True)
class Comparison:
    """Candidates that do the same work, and the objective that says which is best.

    usable  places in `candidates` of those that can be chosen
    """

    candidates: tuple[Candidate, ...]
    work: Work
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
                _term(self.by, self.candidates[i], job, steps)
                for job, steps in zip(self.candidates[i].jobs, self.work.steps[i], strict=True)
            )
            for i in self.usable
        }

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
        return self.usable[int(np.argmin(self.objective.mean(axis=1)))]

    @property
    def runner_up(self) -> int | None:
        """The place of the next best."""
        means = dict(zip(self.usable, self.objective.mean(axis=1), strict=True))
        means.pop(self.chosen, None)  # type: ignore[arg-type]
        return min(means, key=lambda i: means[i]) if means else None


def comparison(
    candidates: Sequence[Candidate], *, by: By | None = None, seed: int = 0, draws: int = DRAWS
) -> Comparison:
    """Compare `candidates` by cost where prices are known, by time otherwise, or as `by` says.

    Raises Refused where they do not do the same work, or where `by` asks for what is not known.
    """
    numbered = [c for c in candidates if not c.error]
    _check_alike(numbered)
    work = _work(candidates)
    if by is None:
        by, notes = _objective(numbered)
    else:
        _check_known(numbered, by)
        notes = []
    if by == "cost":
        notes += _electricity_alone(numbered)
    notes += _same_work(numbered, work.trained)
    return Comparison(tuple(candidates), work, by, seed, draws, tuple(notes))


# -- the same work --------------------------------------------------------------------------------


def _check_alike(candidates: Sequence[Candidate]) -> None:
    """All candidates have the same jobs with the same weights, and training for all or none."""
    if not candidates:
        return
    first = candidates[0]
    for other in candidates[1:]:
        mixed = first.several or other.several
        if mixed and _shape(first) != _shape(other):
            raise Refused(
                f"{other.name} has the jobs {_listed(other)}, {first.name} {_listed(first)}; "
                "candidates need the same jobs with the same weights"
            )
    without = [f"{c.name} ({j.name})" for c in candidates for j in c.jobs if j.run is None]
    if without and len(without) < sum(len(c.jobs) for c in candidates):
        raise Refused(f"{without[0]} has no `training`, others have; give it to all jobs or none")


def _shape(candidate: Candidate) -> dict[str, float]:
    return {job.name: job.weight for job in candidate.jobs}


def _listed(candidate: Candidate) -> str:
    return ", ".join(f"{name} ({weight:g})" for name, weight in _shape(candidate).items())


def _work(candidates: Sequence[Candidate]) -> Work:
    first = next((c for c in candidates if not c.error), None)
    if first is None:
        return Work(((),) * len(candidates), False)
    trained = first.jobs[0].run is not None
    whole = sum(job.weight for job in first.jobs)
    steps = []
    for candidate in candidates:
        own = {job.name: job for job in candidate.jobs}
        pairs = [
            (own[job.name] if first.several else candidate.jobs[0], job)
            for job in (first.jobs if own else ())
        ]
        by_name = {
            mine.name: mine.weight * mine.run.need.steps
            if mine.run
            else _as_many(mine, job, job.weight / whole)
            for mine, job in pairs
        }
        steps.append(tuple(by_name[job.name] for job in candidate.jobs))
    return Work(tuple(steps), trained, first.name)


def _as_many(mine: PlayedJob, reference: PlayedJob, share: float) -> float:
    """Steps of `mine` with as many samples (of sequences: tokens) as `reference` has in so great a
    share of an hour."""
    own, other = mine.case, reference.case
    if own.model.sample != other.model.sample:
        raise Refused(
            f"{own.model.name} learns from {own.model.sample}s and {other.model.name} from "
            f"{other.model.sample}s: they have no work in common; say with `training` what is "
            "to be done"
        )
    if reference.step_time <= 0 or mine.step_time <= 0 or own.global_batch <= 0:
        raise Refused(f"{reference.name}: a step that takes no time cannot be compared")
    samples = share * HOUR / reference.step_time * other.global_batch
    return samples * other.tokens_per_sample / (own.global_batch * own.tokens_per_sample)


def _same_work(candidates: Sequence[Candidate], trained: bool) -> list[str]:
    """What to know where the candidates do not train quite the same."""
    found = []
    for jobs in zip(*(sorted(c.jobs, key=lambda job: job.name) for c in candidates), strict=False):
        models = list(dict.fromkeys(job.case.model.name for job in jobs))
        if len(models) > 1:
            found.append(f"candidates train different models ({', '.join(models[:4])})")
        batches = {job.case.global_batch for job in jobs}
        constant = [job.case.scenario.training for job in jobs]
        if len(batches) > 1 and (not trained or any(t and t.constant for t in constant)):
            found.append(
                f"{jobs[0].name}: global batches differ ({min(batches):,} to {max(batches):,}), "
                "and a sample is taken to be worth the same in each"
            )
        amounts = {repr(t) for t in constant}
        if trained and len(amounts) > 1:
            found.append(f"{jobs[0].name}: `training` differs between candidates")
    return found


# -- the objective --------------------------------------------------------------------------------


def _objective(candidates: Sequence[Candidate]) -> tuple[By, list[str]]:
    """Cost where all have a price; else time, saying who has none."""
    missing = [c.name for c in candidates if any(job.bill is None for job in c.jobs)]
    if not missing and candidates:
        return "cost", []
    if len(missing) == len(candidates):
        return "time", []
    return "time", [f"compared by time: {', '.join(missing[:5])} has no price"]


def _electricity_alone(candidates: Sequence[Candidate]) -> list[str]:
    """Who has no price of its devices, where others have one."""
    bills = [(c.name, [job.bill for job in c.jobs if job.bill]) for c in candidates]
    bare = [
        name
        for name, found in bills
        if not any(item.name == "devices" for bill in found for item in bill.items)
    ]
    if len(bare) == len(bills):
        return []
    return [f"{name}: no price of its devices; its cost is electricity alone" for name in bare]


def _check_known(candidates: Sequence[Candidate], by: By) -> None:
    needed = {"cost": ("bill", "price"), "energy": ("power", "energy"), "time": ("point", "")}
    attribute, section = needed[by]
    for candidate in candidates:
        if any(getattr(job, attribute) is None for job in candidate.jobs):
            raise Refused(f"--by {by}: {candidate.name} has no `{section}` section")


def _term(by: By, candidate: Candidate, job: PlayedJob, steps: float) -> Term:
    seconds = steps * job.step_time
    own = (candidate.name, job.name)
    found = factors(job.case, job.causes, own)
    return Term(_worth(by, job, seconds), seconds, tuple(found))


def _worth(by: By, job: PlayedJob, seconds: float) -> float:
    """The objective of so many seconds of `job` [UNITS[by]]."""
    if by == "cost":
        assert job.bill is not None
        return float(job.bill.usd_per_hour) * seconds / HOUR
    if by == "energy":
        assert job.power is not None
        return float(job.power.total) * seconds / KWH
    return seconds


# -- the answer -----------------------------------------------------------------------------------


def document(found: Comparison) -> dict[str, Any]:
    """What ``dpsim compare --json`` prints, without `measure_next`."""
    best, second = found.chosen, found.runner_up
    decided = _decided(found)
    return {
        "schema_version": SCHEMA_VERSION,
        "dpsim_version": __version__,
        "by": found.by,
        "unit": UNITS[found.by],
        "work": found.work.text,
        "seed": found.seed,
        "draws": found.draws,
        "candidates": [
            {**_candidate(found, i), **decided.get(i, _undecided(c))}
            for i, c in enumerate(found.candidates)
        ],
        "pairs": _pairs(found),
        "recommendation": None if best is None else found.candidates[best].name,
        "runner_up": None if second is None else found.candidates[second].name,
        "break_even_price_usd": break_even(found),
        "measure_next": None,
        "measurements": [],
        "warnings": _warnings(found),
    }


def _candidate(found: Comparison, i: int) -> dict[str, Any]:
    """Numbers of one candidate: sums and means over its jobs."""
    candidate, steps = found.candidates[i], found.work.steps[i]
    head: dict[str, Any] = {"name": candidate.name, "title": candidate.title}
    if candidate.failed:
        at = candidate.failed
        counts = {"ranks": at.ranks, "nodes": at.nodes, "global_batch": at.global_batch}
        return {**head, **counts, **_NOTHING, "error": at.error}
    jobs = candidate.jobs
    seconds = [n * job.step_time for n, job in zip(steps, jobs, strict=True)]
    points = [job.point for job in jobs]
    longest = jobs[seconds.index(max(seconds))]

    def mean(key: str) -> float:
        values = [float(point[key]) for point in points]
        return values[0] if len(values) == 1 else _weighted(values, steps)

    shares = [job.efficiency for job in jobs]
    known = [share for share in shares if share is not None]
    return {
        **head,
        "ranks": longest.case.ranks,
        "nodes": longest.case.nodes,
        "step_time_s": mean("step_time_s"),
        "compute_s": mean("compute_s"),
        "exposed_communication_s": mean("exposed_communication_s"),
        "bubble_s": mean("bubble_s"),
        "stall_s": mean("stall_s"),
        "bytes_sent_per_rank": mean("bytes_sent_per_rank"),
        "efficiency": _weighted(known, seconds) if len(known) == len(shares) else None,
        "bottleneck": longest.point.bottleneck,
        "memory_bytes": max(float(point.memory.bytes) for point in points),
        "fits": candidate.fits,
        **_totals(jobs, found.work.trained),
        "jobs": [
            _job(job, n, share) for job, n, share in zip(jobs, steps, _parts(seconds), strict=True)
        ],
    }


#: keys of a candidate that has no numbers
_NOTHING: dict[str, None] = dict.fromkeys(
    (
        "step_time_s", "compute_s", "exposed_communication_s", "bubble_s", "stall_s",
        "bytes_sent_per_rank", "efficiency", "bottleneck", "memory_bytes", "fits", "days",
        "cost_usd", "energy_kwh", "usd_per_hour", "usd_per_device_hour",
    )
)  # fmt: skip


def _weighted(values: Sequence[float], weights: Sequence[float]) -> float:
    return sum(v * w for v, w in zip(values, _parts(weights), strict=True))


def _parts(amounts: Sequence[float]) -> list[float]:
    """The share of each in the sum; equal ones where all are 0, as where no step takes time."""
    whole = sum(amounts)
    return [amount / whole if whole else 1.0 / len(amounts) for amount in amounts]


def _totals(jobs: Sequence[PlayedJob], trained: bool) -> dict[str, float | None]:
    """Days, dollars and energy of all runs, one after the other; None where not asked for."""
    runs = [(job, job.weight * job.run.seconds) for job in jobs if job.run is not None]
    bills = [job.bill for job in jobs if job.bill is not None]
    powers = [job for job in jobs if job.power is not None]

    def total(known: bool, by: By) -> float | None:
        return sum(_worth(by, job, s) for job, s in runs) if trained and known else None

    hourly = None if not bills else float(max(bill.usd_per_hour for bill in bills))
    days = sum(seconds for _, seconds in runs) / DAY if trained else None
    return {
        "days": days,
        "cost_usd": total(bool(bills), "cost"),
        "energy_kwh": total(bool(powers), "energy"),
        "usd_per_hour": hourly,
        "usd_per_device_hour": _device_price(jobs[0]) if bills else None,
    }


def _device_price(job: PlayedJob) -> float:
    """What the devices alone cost, for one of them and one hour [usd]; network, storage and
    electricity apart."""
    assert job.bill is not None
    items = [item.usd_per_hour for item in job.bill.items if item.name == "devices"]
    return float(sum(items)) / job.case.ranks


def _job(job: PlayedJob, steps: float, share: float) -> dict[str, Any]:
    """One job of a candidate."""
    keys = (
        "step_time_s", "step_time_low_s", "step_time_high_s", "exposed_communication_s",
        "bytes_sent_per_rank", "memory_bytes", "fits", "bottleneck", "throughput_per_s",
        "throughput_unit",
    )  # fmt: skip
    return {
        "name": job.name,
        "weight": job.weight,
        "model": job.case.model.name,
        "ranks": job.case.ranks,
        "global_batch": job.case.global_batch,
        "steps": steps,
        "share_of_time": share,
        "efficiency": job.efficiency,
        **{key: job.point[key] for key in keys},
    }


def _decided(found: Comparison) -> dict[int, dict[str, Any]]:
    """What the draws say of every candidate that can be chosen."""
    drawn = found.objective
    if not drawn.size:
        return {}
    least = drawn.min(axis=0)
    first = drawn <= least * (1 + 1e-12)
    shares = first / first.sum(axis=0)
    ends = np.quantile(drawn, (0.05, 0.95), axis=1)
    return {
        i: {
            "objective": float(drawn[row].mean()),
            "objective_low": float(ends[0, row]),
            "objective_high": float(ends[1, row]),
            "probability_best": float(shares[row].mean()),
            "probability_best_error": _error(shares[row]),
            **_regret(drawn[row] - least, found.by),
        }
        for row, i in enumerate(found.usable)
    }


def _regret(lost: Array, by: By) -> dict[str, float | None]:
    mean = float(lost.mean())
    return {
        "expected_regret": mean,
        "expected_regret_error": _error(lost),
        "expected_regret_usd": mean if by == "cost" else None,
    }


def _undecided(candidate: Candidate) -> dict[str, Any]:
    """What is said of a candidate that cannot be chosen."""
    names = ("objective", "objective_low", "objective_high")
    nothing = dict.fromkeys(
        (*names, "expected_regret", "expected_regret_error", "expected_regret_usd")
    )
    return {**nothing, "probability_best": 0.0, "probability_best_error": 0.0}


def _error(values: Array) -> float:
    """Standard error of the mean of draws."""
    return float(values.std()) / math.sqrt(len(values))


def _pairs(found: Comparison) -> list[dict[str, Any]]:
    """Every pair once: how often the first is better, equal ones counting half."""
    pairs = []
    for a, i in enumerate(found.usable):
        for b, j in enumerate(found.usable):
            if a < b:
                first, second = found.objective[a], found.objective[b]
                equal = np.isclose(first, second, rtol=1e-12, atol=0.0)
                won = np.where(equal, 0.5, first < second)
                pairs.append(
                    {
                        "a": found.candidates[i].name,
                        "b": found.candidates[j].name,
                        "probability_a_better": float(won.mean()),
                        "probability_a_better_error": _error(won),
                    }
                )
    return pairs


def break_even(found: Comparison) -> float | None:
    """The price of a device-hour of the runner-up at which its work costs as much as the winner's,
    in the mean [usd]; None without prices, or where its other costs alone are more."""
    if found.chosen is None or found.runner_up is None:
        return None
    winner, other = found.candidates[found.chosen], found.candidates[found.runner_up]
    if any(job.bill is None for job in (*winner.jobs, *other.jobs)):
        return None
    target = sum(_mean_cost(found, found.chosen, only=None))
    beside = sum(_mean_cost(found, found.runner_up, only=False))
    hours = sum(
        job.case.ranks * term.seconds / HOUR * math.prod(f.mean for f in term.factors)
        for job, term in zip(other.jobs, found.terms[found.runner_up], strict=True)
    )
    price = (target - beside) / hours if hours > 0 else 0.0
    return price if price > 0 else None


def _mean_cost(found: Comparison, i: int, only: bool | None) -> list[float]:
    """Expected dollars of every job of candidate `i`: of the devices (`only`), of all else (not),
    or of everything (None)."""
    costs = []
    for job, term in zip(found.candidates[i].jobs, found.terms[i], strict=True):
        assert job.bill is not None
        hourly = sum(
            item.usd_per_hour
            for item in job.bill.items
            if only is None or (item.name == "devices") == only
        )
        mean = math.prod(factor.mean for factor in term.factors)
        costs.append(float(hourly) * term.seconds / HOUR * mean)
    return costs


def _warnings(found: Comparison) -> list[str]:
    texts = list(found.notes)
    for candidate in found.candidates:
        if candidate.error:
            texts.append(f"{candidate.name}: no number: {candidate.error}")
        elif candidate.fits is False:
            texts.append(f"{candidate.name}: does not fit in memory, so it cannot be chosen")
    said: dict[str, list[str]] = {}
    for candidate in found.candidates:
        for text in candidate.warnings:
            said.setdefault(text, []).append(candidate.name)
    for text, names in said.items():
        of = "" if len(names) == len(found.candidates) else f"{', '.join(names)}: "
        texts.append(of + text)
    return texts


__all__ = ["By", "Comparison", "break_even", "comparison", "document"]
