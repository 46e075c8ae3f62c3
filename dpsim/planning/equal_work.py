"""The same work: what all candidates of a comparison are to do, and whether they can do it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpsim.core.record import Refused
from dpsim.planning.candidates import Candidate, PlayedJob

HOUR = 3600.0


@dataclass(frozen=True)
class EqualWork:
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


def check_alike(candidates: Sequence[Candidate]) -> None:
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
    without = [f"{c.name} ({j.name})" for c in candidates for j in c.jobs if j.point.run is None]
    if without and len(without) < sum(len(c.jobs) for c in candidates):
        raise Refused(f"{without[0]} has no `training`, others have; give it to all jobs or none")


def _shape(candidate: Candidate) -> dict[str, float]:
    return {job.name: job.weight for job in candidate.jobs}


def _listed(candidate: Candidate) -> str:
    return ", ".join(f"{name} ({weight:g})" for name, weight in _shape(candidate).items())


def work_of(candidates: Sequence[Candidate]) -> EqualWork:
    first = next((c for c in candidates if not c.error), None)
    if first is None:
        return EqualWork(((),) * len(candidates), False)
    trained = first.jobs[0].point.run is not None
    whole = sum(job.weight for job in first.jobs)
    steps = []
    for candidate in candidates:
        own = {job.name: job for job in candidate.jobs}
        pairs = [
            (own[job.name] if first.several else candidate.jobs[0], job)
            for job in (first.jobs if own else ())
        ]
        by_name = {
            mine.name: mine.weight * mine.point.run.steps
            if mine.point.run
            else _as_many(mine, job, job.weight / whole)
            for mine, job in pairs
        }
        steps.append(tuple(by_name[job.name] for job in candidate.jobs))
    return EqualWork(tuple(steps), trained, first.name)


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
    return samples * other.model.tokens / (own.global_batch * own.model.tokens)


def differences(candidates: Sequence[Candidate], trained: bool) -> list[str]:
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
