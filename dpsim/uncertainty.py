"""How sure is a prediction: 90 % intervals from what is not known.

Nothing here is fitted yet, so the widths are priors, each with its source:

compute, uncalibrated  x 0.7 … 2.0   large language models report 38-57 % of peak (PaLM
                       arXiv:2204.02311, MegaScale arXiv:2402.15627, Llama 3 arXiv:2407.21783),
                       convolutional networks much less, and eight frameworks differ by 1.8 on one
                       GPU and one model (DLPerf's ResNet-50 table)
compute, calibrated    x 0.97 … 1.03 repeated published points differ by up to 3 %
collectives            x 0.85 … 1.8  NCCL's own model predicts 0.56-1.1 of measured times at large
                       sizes over eight machines, hence measured = 0.9-1.8 of modelled
collectives, measured  the curve's own spread, at least 3 %, where curves serve all of them on
                       their own group; in between elsewhere (dpsim/coverage.py)
unmodelled loss        0 … +10 % per doubling inside a node, 0 … +4 % per doubling of nodes beyond
                       the calibrated count: input pipeline, clocks, stragglers.  90th percentiles
                       of 241 and 23 published NVIDIA DeepLearningExamples points on DGX machines
                       are 11.5 % and 2.5 %, with communication mostly hidden

Toys with explicit durations and ideal networks have none of these: their interval is the number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpsim.case import Case, Stretch
from dpsim.coverage import network_range
from dpsim.player import Played, lane_times

COMPUTE_PRIOR = (0.7, 2.0)
COMPUTE_CALIBRATED = (0.97, 1.03)
NETWORK_PRIOR = (0.85, 1.8)
LOSS_PER_DOUBLING_IN_NODE = 0.10
LOSS_PER_DOUBLING_OF_NODES = 0.04
Z90 = 1.645


#: causes -> step time at their two ends, relative to the predicted one
Causes = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Interval:
    """Bounds of the mean step time at 90 % [s], and what each cause alone would do to it."""

    low: float
    high: float
    causes: Causes


def interval(case: Case, played: Played, calibrated_at: int | None) -> Interval:
    """The interval around `played`; independent causes add in quadrature."""
    time = played.step_time
    causes: Causes = {}
    variants = _variants(case, calibrated_at)
    asked = [v for group in variants.values() for v in group]
    flat = lane_times(case, asked, time) if asked and time > 0 else []
    for k, name in enumerate(variants):
        if flat:
            causes[name] = (flat[2 * k] / time, flat[2 * k + 1] / time)
    if case.machine is not None:
        causes["unmodelled loss"] = (1.0, 1.0 + _loss(case, calibrated_at))
    if len(played.timeline.durations) > 1 and time > 0:
        spread = _standard_error(played.timeline.durations) * Z90 / time
        causes["sampling"] = (1.0 - spread, 1.0 + spread)
    below, above = _quadrature(causes)
    return Interval(max(time * (1.0 - below), 0.0), time * (1.0 + above), causes)


def efficiency_interval(first: Causes, point: Causes) -> tuple[float, float]:
    """Bounds of an efficiency or speed-up over the `first` point, relative to it.

    A cause moves both steps in the same direction, so only what it does to their ratio counts;
    sampling is independent.
    """
    ratios: Causes = {}
    for name, (low, high) in point.items():
        base = first.get(name, (1.0, 1.0)) if name != "sampling" else (1.0, 1.0)
        ratios[name] = (base[0] / low if low > 0 else 1.0, base[1] / high)
    below, above = _quadrature(ratios)
    return max(1.0 - below, 0.0), 1.0 + above


def _quadrature(causes: Causes) -> tuple[float, float]:
    """How far below and above 1 the causes lead together."""
    below = [max(0.0, 1.0 - min(ends)) for ends in causes.values()]
    above = [max(0.0, max(ends) - 1.0) for ends in causes.values()]
    return math.hypot(*below, 0.0), math.hypot(*above, 0.0)


def _variants(case: Case, calibrated_at: int | None) -> dict[str, list[Stretch]]:
    found: dict[str, list[Stretch]] = {}
    if case.machine is not None:
        if calibrated_at is not None:
            found["compute (calibrated)"] = [Stretch(compute=f) for f in COMPUTE_CALIBRATED]
        elif any(layer.forward is None for layer in case.model.layers):
            found["compute (prior)"] = [Stretch(compute=f) for f in COMPUTE_PRIOR]
    if not case.backend.ideal and case.ranks > 1:
        name, ends = network_range(case, NETWORK_PRIOR)
        found[name] = [Stretch(latency=f, transfer=f) for f in ends]
    return found


def _loss(case: Case, calibrated_at: int | None) -> float:
    """Largest plausible loss that no part of the model explains, as a share of the step."""
    assert case.topology is not None
    start, per_node = calibrated_at or 1, case.topology.gpus
    inside = math.log2(max(min(case.ranks, per_node) / min(start, per_node), 1.0))
    nodes = math.log2(max(case.ranks / max(start, per_node), 1.0))
    return inside * LOSS_PER_DOUBLING_IN_NODE + nodes * LOSS_PER_DOUBLING_OF_NODES


def _standard_error(values: tuple[float, ...]) -> float:
    mean = sum(values) / len(values)
    variance = sum((v - mean) ** 2 for v in values) / (len(values) - 1)
    return math.sqrt(variance / len(values))
