"""How many steps training takes: what a global batch costs in samples.

McCandlish et al., arXiv:1812.06162: to a given quality, S(B) = Smin (1 + Bcrit / B) steps and
E(B) = Emin (1 + B / Bcrit) samples, with Emin = Smin Bcrit.  Smin is what no batch is large enough
to go below, Emin what no batch is small enough to go below, Bcrit the batch that takes twice of
each.  Benchmarks' Emin and Bcrit are fitted to MLPerf's reference convergence points
(dpsim/core/fitted/convergence.yaml); above the largest published batch nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Annotated, Literal

import numpy as np

from dpsim.core import units, unknown, yamlfile
from dpsim.core.constants import folder
from dpsim.core.lean import dataclass
from dpsim.core.record import Check, Count, Refused, Text, build, record
from dpsim.describe.sampler import Sampler

Positive = Annotated[float, units.Unit("1", low=0.0, high=1e18, above=True)]
Batch = Annotated[int, Check(1, 10**10)]
Samples = Annotated[int, Check(1, 10**15)]
RuleName = Literal["linear", "square_root", "lars", "lamb"]


# -- published points -----------------------------------------------------------------------------


@record
class ConvergencePoint:
    """Mean, least and most that `runs` published runs at global batch `batch` needed, in the
    task's unit."""

    batch: Batch
    mean: Positive
    least: Positive
    most: Positive
    runs: Count


@record
class Task:
    """A benchmark with its reference convergence points.

    unit               of the points: epochs, samples or tokens
    samples_per_epoch  size of its training set; None where it is not known
    tokens_per_sample  what turns tokens into samples
    rule               the learning-rate rule of the published runs
    left_out           batches that are no part of the fit, and why
    """

    title: Text
    source: Text
    unit: Literal["epochs", "samples", "tokens"]
    samples_per_epoch: Samples | None = None
    tokens_per_sample: Count | None = None
    rule: RuleName | None = None
    points: tuple[ConvergencePoint, ...]
    left_out: dict[Batch, Text] | None = None

    @property
    def largest_batch(self) -> int:
        return max(point.batch for point in self.points)

    @property
    def smallest_batch(self) -> int:
        return min(point.batch for point in self.points)


@dataclass(frozen=True)
class Fit:
    """Emin in the task's unit, Bcrit in samples, and the largest relative error of the fit."""

    minimum: float
    critical_batch: float
    max_error: float


@cache
def tasks() -> Mapping[str, Task]:
    """The bundled benchmarks by name."""
    path = folder() / "convergence.yaml"
    data, lines = yamlfile.load(path, path.name)
    found = {}
    for name, value in data.items():
        try:
            found[name] = build(Task, value, file=True)
        except Refused as error:
            raise yamlfile.located(error, path.name, lines) from None
    return MappingProxyType(found)


def fit(points: Sequence[ConvergencePoint]) -> Fit:
    """Emin and Bcrit of E = Emin (1 + B / Bcrit) with the least squares of relative errors.

    Raises ValueError for fewer than three batches, or where more batch does not need more samples.
    """
    batch = np.array([float(point.batch) for point in points])
    mean = np.array([point.mean for point in points])
    if len(set(batch)) < 3:
        raise ValueError("needs points at three batches or more")
    design = np.stack([1.0 / mean, batch / mean], axis=1)
    (minimum, slope), *_ = np.linalg.lstsq(design, np.ones_like(mean), rcond=None)
    if minimum <= 0 or slope <= 0:
        raise ValueError("these points have no positive Emin and Bcrit")
    error = np.abs(design @ np.array([minimum, slope]) - 1.0)
    return Fit(float(minimum), float(minimum / slope), float(error.max()))


@cache
def fitted(name: str) -> Fit:
    """The fit of the bundled task `name`."""
    return fit(tasks()[name].points)


# -- learning-rate rules --------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """How the learning rate grows with the batch, and the largest batch that was published to
    train well with it."""

    name: str
    largest_batch: int
    source: str


#: rules do not change how many samples are needed; they say up to which batch that holds
RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "linear": Rule(
            "linear scaling with warm-up", 8192,
            "ResNet-50 with SGD: Goyal et al., arXiv:1706.02677",
        ),
        "square_root": Rule(
            "square-root scaling", 32768,
            "BERT-large with LAMB: You et al., arXiv:1904.00962",
        ),
        "lars": Rule(
            "LARS", 67840,
            "ResNet-50: MLPerf reference convergence points (mlcommons/logging @ 7bbf7926)",
        ),
        "lamb": Rule(
            "LAMB", 65536,
            "BERT-large, sequences of 128: You et al., arXiv:1904.00962",
        ),
    }
)  # fmt: skip


# -- the training section -------------------------------------------------------------------------


@record
class Training:
    """How much training is needed: one of the first five, or epochs of a task's training set.

    tokens             tokens in total, at any global batch
    samples            samples in total, at any global batch
    epochs             passes over the training set, at any global batch
    minimum_steps      Smin of McCandlish et al.; needs `critical_batch`
    task               a benchmark with published convergence points, such as resnet50
    critical_batch     Bcrit in samples: the batch that needs twice the fewest steps
    samples_per_epoch  size of the training set; a task's own if left out
    rule               learning-rate rule; beyond its largest published batch nothing is predicted
    largest_batch      the largest global batch that is known to train well
    sampler            how PyTorch deals whole `epochs` to the ranks, with padding and tails; left
                       out: samples are a stream without ends of epochs
    by                 the time until which it should end; with `failures`, points say how likely
                       that is
    """

    tokens: Annotated[float, units.Unit("1", low=1.0, high=1e18, example="1e12")] | None = None
    samples: Annotated[float, units.Unit("1", low=1.0, high=1e18, example="1e9")] | None = None
    epochs: Positive | None = None
    minimum_steps: Positive | None = None
    task: Text | None = None
    critical_batch: Positive | None = None
    samples_per_epoch: Samples | None = None
    rule: RuleName | None = None
    largest_batch: Batch | None = None
    sampler: Sampler | None = None
    by: units.Seconds | None = None

    def __post_init__(self) -> None:
        kinds = ("tokens", "samples", "epochs", "minimum_steps", "task")
        given = [kind for kind in kinds if getattr(self, kind) is not None]
        if len(given) != 1 and given != ["epochs", "task"]:
            raise ValueError(f"needs exactly one of {', '.join(kinds)} (or epochs of a task)")
        if (self.critical_batch is None) != (self.minimum_steps is None):
            raise ValueError("minimum_steps and critical_batch belong together")
        if self.epochs is not None and self.samples_per_epoch is None and self.task is None:
            raise Refused("is missing: how many samples is an epoch?", ("samples_per_epoch",))
        if self.sampler is not None and (self.epochs is None or self.epochs % 1):
            raise Refused("needs epochs, a whole number of them", ("sampler",))
        if self.task is not None:
            self._check_task(self.task)

    def _check_task(self, name: str) -> None:
        if name not in tasks():
            raise Refused(unknown.sentence(name, tasks(), f"no task {name[:60]!r}"), ("task",))
        task = tasks()[name]
        if task.unit != "epochs" and self.epochs is None:
            return
        if self.samples_per_epoch is None and task.samples_per_epoch is None:
            message = f"is missing: how many samples is an epoch of {name}?"
            raise Refused(message, ("samples_per_epoch",))

    @property
    def constant(self) -> bool:
        """Whether the samples needed are the same at every global batch."""
        return self.epochs is not None or (self.task is None and self.minimum_steps is None)

    def epoch(self) -> int | None:
        """Samples of an epoch, where known."""
        own = tasks()[self.task].samples_per_epoch if self.task else None
        return self.samples_per_epoch or own


def limit(training: Training) -> tuple[int | None, str]:
    """The largest global batch for which something is known, and where that is from."""
    known: list[tuple[int, str]] = []
    if training.task is not None:
        task = tasks()[training.task]
        known.append((task.largest_batch, f"the largest published for {training.task}"))
    if training.rule is not None:
        rule = RULES[training.rule]
        known.append(
            (rule.largest_batch, f"the largest published with {rule.name} ({rule.source})")
        )
    if training.largest_batch is not None:
        own = (training.largest_batch, "training.largest_batch")
        known = [own] if training.task is None else [*known, own]
    return min(known) if known else (None, "")


def samples_needed(minimum: float, critical_batch: float, batch: float) -> float:
    """E(B) = Emin (1 + B / Bcrit), in the unit of `minimum`.

    >>> samples_needed(1000 * 2048, 2048, 8192)
    10240000.0
    """
    return minimum * (1.0 + batch / critical_batch)


def steps_needed(minimum_steps: float, critical_batch: float, batch: float) -> float:
    """S(B) = Smin (1 + Bcrit / B).

    >>> [steps_needed(1000, 2048, batch) for batch in (512, 2048, 8192)]
    [5000.0, 2000.0, 1250.0]
    """
    return minimum_steps * (1.0 + critical_batch / batch)


@dataclass(frozen=True)
class Need:
    """What a training run takes: whole steps, of which the last may be partly used; samples;
    epochs where the training set's size is known."""

    steps: int
    samples: float
    epochs: float | None


def needed(training: Training, batch: int, tokens_per_sample: int = 1) -> Need:
    """Steps, samples and epochs of `training` at global batch `batch` [samples].

    Raises Refused beyond the largest batch of which anything is known, and for tokens where a
    sample of the model is none.
    """
    most, why = limit(training)
    if most is not None and batch > most:
        raise Refused(f"no convergence is known at global batch {batch:,}: {most:,} is {why}",
                      ("training",))  # fmt: skip
    samples = _samples(training, batch, tokens_per_sample)
    steps = max(math.ceil(samples / batch * (1 - 1e-12)), 1)
    epoch = training.epoch()
    return Need(steps, samples, samples / epoch if epoch else None)


def _samples(training: Training, batch: int, tokens_per_sample: int) -> float:
    if training.tokens is not None:
        if tokens_per_sample <= 1:
            message = "samples of this model are not made of tokens; say samples, or epochs"
            raise Refused(message, ("training", "tokens"))
        return training.tokens / tokens_per_sample
    if training.samples is not None:
        return training.samples
    epoch = training.epoch() or 1
    if training.epochs is not None:
        return training.epochs * epoch
    if training.minimum_steps is not None and training.critical_batch is not None:
        least = training.minimum_steps * training.critical_batch
        return samples_needed(least, training.critical_batch, batch)
    assert training.task is not None
    task, found = tasks()[training.task], fitted(training.task)
    amount = samples_needed(found.minimum, found.critical_batch, batch)
    if task.unit == "epochs":
        return amount * epoch
    return amount / (task.tokens_per_sample or 1) if task.unit == "tokens" else amount
