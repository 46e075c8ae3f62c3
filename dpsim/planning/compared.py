"""What a comparison says: every candidate's numbers and chances, pairs, and what to know."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from dpsim._version import __version__
from dpsim.core.arrays import Array
from dpsim.planning.candidates import DEVICES, PlayedJob
from dpsim.planning.compare import UNITS, By, Comparison, Term, worth
from dpsim.planning.equal_work import HOUR
from dpsim.predict.document import to_json
from dpsim.predict.point import UNFIT_WORDS

SCHEMA_VERSION = 1
DAY = 86_400.0
#: numbers of a candidate that are means over its jobs' steps
_MEANS = (
    "step_time_s", "compute_s", "exposed_communication_s", "bubble_s", "stall_s",
    "bytes_sent_per_rank",
)  # fmt: skip
#: what a candidate without numbers has none of
_NOTHING = (
    *_MEANS, "efficiency", "bottleneck", "memory_bytes", "fits", "days", "cost_usd", "energy_kwh",
    "usd_per_hour", "usd_per_device_hour", "spare_nodes",
)  # fmt: skip
#: what is said of a job as of its point
_OF_JOB = (
    "step_time_s", "step_time_low_s", "step_time_high_s", "exposed_communication_s",
    "bytes_sent_per_rank", "memory_bytes", "fits", "bottleneck", "throughput_per_s",
    "throughput_unit",
)  # fmt: skip
#: what is said of a candidate that cannot be chosen
_UNDECIDED = {
    **dict.fromkeys(("objective", "objective_low", "objective_high")),
    **dict.fromkeys(("expected_regret", "expected_regret_error", "expected_regret_usd")),
    "probability_best": 0.0,
    "probability_best_error": 0.0,
}


def document(found: Comparison) -> dict[str, Any]:
    """What ``dpsim compare --json`` prints, without what to measure next."""
    chances = decided(found)
    names = [candidate.name for candidate in found.candidates]
    return {
        "schema_version": SCHEMA_VERSION,
        "dpsim_version": __version__,
        "by": found.by,
        "unit": UNITS[found.by],
        "work": found.work.text,
        "seed": found.seed,
        "draws": found.draws,
        "candidates": [
            {**_candidate(found, i), **chances.get(i, _UNDECIDED)} for i in range(len(names))
        ],
        "pairs": [_pair(found, a, b) for a, b in itertools.combinations(range(len(chances)), 2)],
        "recommendation": None if found.chosen is None else names[found.chosen],
        "runner_up": None if found.runner_up is None else names[found.runner_up],
        "break_even_price_usd": break_even(found),
        "measure_next": None,
        "measurements": [],
        "warnings": list(_warnings(found)),
    }


# -- candidates -----------------------------------------------------------------------------------


def _candidate(found: Comparison, i: int) -> dict[str, Any]:
    """Numbers of one candidate: sums and means over its jobs."""
    candidate, steps = found.candidates[i], found.work.steps[i]
    head: dict[str, Any] = {"name": candidate.name, "title": candidate.title}
    if at := candidate.failed:
        counts = {"ranks": at.ranks, "nodes": at.nodes, "global_batch": at.global_batch}
        return {**head, **counts, **dict.fromkeys(_NOTHING), "error": at.error}
    jobs = candidate.jobs
    seconds = [n * job.step_time * job.longer for n, job in zip(steps, jobs, strict=True)]
    points = [to_json(job.point) for job in jobs]
    longest = jobs[seconds.index(max(seconds))]
    known = [job.efficiency for job in jobs if job.efficiency is not None]
    return {
        **head,
        "ranks": longest.case.ranks,
        "nodes": longest.case.nodes,
        "spare_nodes": longest.spare_nodes,
        **{key: _weighted([float(point[key]) for point in points], steps) for key in _MEANS},
        "efficiency": _weighted(known, seconds) if len(known) == len(jobs) else None,
        "bottleneck": longest.point.bottleneck,
        "memory_bytes": max(float(job.point.memory.bytes) for job in jobs),
        "fits": candidate.fits,
        **_totals(jobs, found.work.trained),
        "jobs": [
            {
                "name": job.name,
                "weight": job.weight,
                "model": job.case.model.name,
                "ranks": job.case.ranks,
                "global_batch": job.case.global_batch,
                "steps": count,
                "share_of_time": share,
                "efficiency": job.efficiency,
                **{key: point[key] for key in _OF_JOB},
            }
            for job, point, count, share in zip(jobs, points, steps, _parts(seconds), strict=True)
        ],
    }


def _weighted(values: Sequence[float], weights: Sequence[float]) -> float:
    """The mean; of a single value that itself."""
    if len(values) == 1:
        return values[0]
    return sum(v * w for v, w in zip(values, _parts(weights), strict=True))


def _parts(amounts: Sequence[float]) -> list[float]:
    """The share of each in the sum."""
    whole = sum(amounts)
    return [amount / whole for amount in amounts]


def _totals(jobs: Sequence[PlayedJob], trained: bool) -> dict[str, float | None]:
    """Days, dollars and energy of all runs, one after the other; None where not asked for."""
    runs = [(job, job.weight * job.point.run.time_s) for job in jobs if job.point.run]
    cost, hourly = jobs[0].point.cost, [job.point.cost_usd_per_hour for job in jobs]

    def total(by: By, known: bool) -> float | None:
        return sum(worth(by, job, s) for job, s in runs) if trained and known else None

    devices = [item.usd_per_hour for item in cost.items if item.name == DEVICES] if cost else []
    return {
        "days": sum(seconds for _, seconds in runs) / DAY if trained else None,
        "cost_usd": total("cost", cost is not None),
        "energy_kwh": total("energy", any(job.point.power_w is not None for job in jobs)),
        "usd_per_hour": max((price for price in hourly if price is not None), default=None),
        "usd_per_device_hour": sum(devices) / jobs[0].paid if cost else None,
    }


# -- which is best --------------------------------------------------------------------------------


def decided(found: Comparison) -> dict[int, dict[str, float | None]]:
    """What the draws say of every candidate that can be chosen."""
    drawn = found.objective
    if not drawn.size:
        return {}
    least = drawn.min(axis=0)
    first = drawn <= least * (1 + 1e-12)
    shares = first / first.sum(axis=0)
    ends = np.quantile(drawn, (0.05, 0.95), axis=1)
    regret = drawn - least
    for row, i in enumerate(found.usable):  # equal ones are the best equally often
        alike = [k for k, other in enumerate(found.usable) if found.alike(i, other)]
        if alike[0] == row and len(alike) > 1:
            shares[alike] = shares[alike].mean(axis=0)
    return {
        i: {
            "objective": float(drawn[row].mean()),
            "objective_low": float(ends[0, row]),
            "objective_high": float(ends[1, row]),
            "probability_best": float(shares[row].mean()),
            "probability_best_error": _error(shares[row]),
            "expected_regret": float(regret[row].mean()),
            "expected_regret_error": _error(regret[row]),
            "expected_regret_usd": float(regret[row].mean()) if found.by == "cost" else None,
        }
        for row, i in enumerate(found.usable)
    }


def _error(values: Array) -> float:
    """Standard error of the mean of draws."""
    return float(values.std()) / math.sqrt(len(values))


def _pair(found: Comparison, a: int, b: int) -> dict[str, Any]:
    """How often the first of two that can be chosen is better, equal ones counting half; of two
    that run alike neither is."""
    first, second = found.objective[a], found.objective[b]
    alike = found.alike(found.usable[a], found.usable[b])
    equal = np.isclose(first, second, rtol=1e-12, atol=0.0) | alike
    won = np.where(equal, 0.5, first < second)
    one, other = (found.candidates[found.usable[row]].name for row in (a, b))
    return {
        "a": one,
        "b": other,
        "probability_a_better": float(won.mean()),
        "probability_a_better_error": _error(won),
        "equal": bool(equal.all()),
    }


def break_even(found: Comparison) -> float | None:
    """The price of a device-hour of the runner-up at which its work costs as much as the winner's,
    in the mean [usd]; None without prices, or where its other costs alone are more."""
    if found.chosen is None or found.runner_up is None:
        return None
    best, second = found.chosen, found.runner_up
    jobs = (*found.candidates[best].jobs, *found.candidates[second].jobs)
    if any(job.point.cost is None for job in jobs):
        return None
    target = _expected(found, best, lambda job: job.point.cost_usd_per_hour or 0.0)
    beside = _expected(found, second, lambda job: job.beside)
    hours = _expected(found, second, lambda job: job.paid)
    price = (target - beside) / hours if hours > 0 else 0.0
    return price if price > 0 else None


def _expected(found: Comparison, i: int, hourly: Callable[[PlayedJob], float]) -> float:
    """The expected sum over the jobs of candidate `i` of what is so much an hour."""
    return sum(
        hourly(job) * term.seconds / HOUR * float(term.longer(np.array(_mean(term))))
        for job, term in zip(found.candidates[i].jobs, found.terms[i], strict=True)
    )


def _mean(term: Term) -> float:
    """By what its steps take longer in the mean."""
    return math.prod(factor.mean for factor in term.factors)


def _warnings(found: Comparison) -> Iterator[str]:
    yield from found.notes
    for candidate in found.candidates:
        if candidate.error:
            yield f"{candidate.name}: no number: {candidate.error}"
        elif candidate.fits in UNFIT_WORDS:
            words = UNFIT_WORDS[candidate.fits]
            yield f"{candidate.name}: {words} in memory, so it cannot be chosen"
    said: dict[str, list[str]] = {}
    for candidate in found.candidates:
        for text in candidate.warnings:
            said.setdefault(text, []).append(candidate.name)
    for text, names in said.items():
        of = "" if len(names) == len(found.candidates) else f"{', '.join(names)}: "
        yield of + text
