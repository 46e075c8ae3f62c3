"""How sure is a prediction: 90 % intervals from what is not known.

Nothing here is fitted yet, so the widths are priors, each with its source:

compute, uncalibrated  x 0.7 … 2.0   large language models report 38-57 % of peak (PaLM
                       arXiv:2204.02311, MegaScale arXiv:2402.15627, Llama 3 arXiv:2407.21783),
                       convolutional networks much less, and eight frameworks differ by 1.8 on one
                       GPU and one model (DLPerf's ResNet-50 table)
compute, calibrated    x 0.97 … 1.03 repeated published points differ by up to 3 %
collectives            x 0.85 … 1.8  NCCL's own model predicts 0.56-1.1 of measured times at large
                       sizes over eight machines, hence measured = 0.9-1.8 of modelled
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
from dpsim.player import Played, lane_times

COMPUTE_PRIOR = (0.7, 2.0)
COMPUTE_CALIBRATED = (0.97, 1.03)
NETWORK_PRIOR = (0.85, 1.8)
LOSS_PER_DOUBLING_IN_NODE = 0.10
LOSS_PER_DOUBLING_OF_NODES = 0.04
Z90 = 1.645


@dataclass(frozen=True)
class Interval:
    """Bounds of the mean step time at 90 % [s], and what they are made of."""

    low: float
    high: float
    sources: tuple[str, ...]


def interval(case: Case, played: Played, calibrated_at: int | None) -> Interval:
    """The interval around `played`; independent causes add in quadrature."""
    time = played.step_time
    below, above, sources = [0.0], [0.0], []
    variants = _variants(case, calibrated_at)
    asked = [v for group in variants.values() for v in group]
    flat = lane_times(case, asked, time) if asked else []
    for k, name in enumerate(variants):
        times = flat[2 * k : 2 * k + 2]
        below.append(max(0.0, time - min(times)))
        above.append(max(0.0, max(times) - time))
        sources.append(name)
    if case.machine is not None:
        above.append(time * _loss(case, calibrated_at))
        sources.append("unmodelled loss")
    if len(played.timeline.durations) > 1:
        spread = _standard_error(played.timeline.durations) * Z90
        below.append(spread)
        above.append(spread)
        sources.append("sampling")
    low = max(time - math.hypot(*below), 0.0)
    return Interval(low, time + math.hypot(*above), tuple(sources))


def _variants(case: Case, calibrated_at: int | None) -> dict[str, list[Stretch]]:
    found: dict[str, list[Stretch]] = {}
    if case.machine is not None:
        if calibrated_at is not None:
            found["compute (calibrated)"] = [Stretch(compute=f) for f in COMPUTE_CALIBRATED]
        elif any(layer.forward is None for layer in case.model.layers):
            found["compute (prior)"] = [Stretch(compute=f) for f in COMPUTE_PRIOR]
    if not case.backend.ideal and case.ranks > 1:
        found["collectives (prior)"] = [Stretch(latency=f, transfer=f) for f in NETWORK_PRIOR]
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
