"""From findings to a calibration: merge repetitions, fit latency and bandwidth, say how sure.

Standard errors come from the bootstrap (Efron 1979): points or samples are drawn again with
replacement, REPEATS times, from a seeded stream, and what is fitted to them is the spread.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from dpsim.backends.curves import MeasuredCurve, Timing
from dpsim.backends.curves.file import Calibration, MeasuredLayer, MeasuredSteps, Source
from dpsim.core.arrays import Array
from dpsim.core.record import Refused
from dpsim.measurements.findings import SEND, Curve, Findings, StepTime, merged, unique

REPEATS = 200
SEED = 0
#: fewest sizes that make a line, with one to doubt it
FEWEST = 3
#: two files of one group that differ by more than this, in the median over common sizes, measured
#: different things; five runs of one log differ by 10 % (see dpsim/cases/coverage.py)
DISAGREE = 1.5
#: a first step that takes more than this many medians is warm-up
WARM_UP = 1.5
#: a step this many times from the median is another thing than the steps it is among: a pause, a
#: row in another unit; and how many of them are named
APART, NAMED = 10.0, 3
_SENDS = (
    "sendrecv times all ranks at once, and no send alone; it is left out (check-nccl judges it)"
)
#: how many layers a file keeps
MOST_LAYERS = 500


def calibration_of(
    found: Sequence[Findings], sources: Sequence[Source], title: str = ""
) -> Calibration:
    """One calibration of all `found`; Refused where they contradict each other or say nothing."""
    warnings = [f"{f.source}: {text}" for f in found for text in f.warnings]
    curves = _curves(found, warnings)
    steps = _steps(found, warnings)
    layers = _layers(found, warnings)
    if not (curves or steps or layers):
        said = "; ".join(warnings) or "no curve, no step time, no layer"
        raise Refused(f"nothing here to calibrate with: {said}"[:600])
    devices = unique(f.device for f in found if f.device)
    if len(devices) > 1:
        warnings.append(f"measured on several devices: {', '.join(devices)}")
    overlaps = [f.overlap for f in found if f.overlap is not None]
    return Calibration(
        schema_version=1,
        title=title or ", ".join(unique(source.file for source in sources))[:200],
        made_from=tuple(sources),
        device=devices[0] if len(devices) == 1 else None,
        curves=curves,
        steps=steps,
        layers=layers,
        overlap=statistics.median(overlaps) if overlaps else None,
        warnings=unique(warnings),
    )


# -- curves ------------------------------------------------------------------------------------


def _curves(found: Sequence[Findings], warnings: list[str]) -> tuple[MeasuredCurve, ...]:
    """One curve per operation and group, from all files that have it.

    Sends are left out: all ranks' at once do not tell what one takes between two stages."""
    groups: dict[tuple[str, int, int], dict[str, list[Curve]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for findings in found:
        for curve in findings.curves:
            if curve.operation == SEND:
                warnings.append(f"{findings.source}: {_SENDS}")
                continue
            if curve.operation is None:
                raise Refused(f"{findings.source}: say which operation it is: --operation")
            if curve.ranks is None:
                why = f"{curve.doubt}; " if curve.doubt else ""
                raise Refused(f"{findings.source}: {why}say how many ranks there were: --ranks")
            key = (curve.operation, curve.ranks, curve.nodes or 0)
            if curve.ranks > 1 and curve.points:
                groups[key][findings.source].append(curve)
    return tuple(_curve(key, groups[key]) for key in sorted(groups))


def _curve(key: tuple[str, int, int], files: dict[str, list[Curve]]) -> MeasuredCurve:
    operation, ranks, nodes = key
    _check_agreement(files, f"{operation} over {ranks} ranks")
    points = merged(p for curves in files.values() for curve in curves for p in curve.points)
    line = fit_line(points)
    return MeasuredCurve(
        operation=operation,
        ranks=ranks,
        nodes=nodes or None,
        points=points,
        latency=line and line[0],
        latency_error=line and line[1],
        bandwidth=line and line[2],
        bandwidth_error=line and line[3],
    )


def _check_agreement(files: dict[str, list[Curve]], what: str) -> None:
    """Refuse files that did not measure the same thing: their points must not be pooled."""
    curves = {name: merged(p for c in curves for p in c.points) for name, curves in files.items()}
    first, *others = curves
    for other in others:
        mine, theirs = ({p[0]: p[1] for p in curves[name]} for name in (first, other))
        ratios = sorted(theirs[size] / mine[size] for size in mine.keys() & theirs.keys())
        apart = statistics.median(ratios) if ratios else 1.0
        apart = max(apart, 1 / apart)
        if apart > DISAGREE:
            raise Refused(
                f"{first} and {other} both have {what}, and differ by {apart:.3g} times: they did "
                "not measure the same network; calibrate with one of them"
            )


def fit_line(points: Sequence[Timing]) -> tuple[float, float, float, float] | None:
    """(latency [s], its error, bandwidth [B/s], its error) of time = latency + size/bandwidth.

    Least squares of the relative error, neither parameter negative; None where fewer than FEWEST
    sizes, or times that do not grow, allow no line.  Bandwidth is algorithm bandwidth.
    """
    if len(points) < FEWEST:
        return None
    data = np.array(points)
    line = _line(data)
    if line is None:
        return None
    stream = np.random.default_rng(SEED)
    drawn = []
    for _ in range(REPEATS):
        sample = data[stream.integers(0, len(data), len(data))]
        noise = stream.standard_normal(len(data)) * sample[:, 2]
        sample[:, 1] = np.maximum(sample[:, 1] + noise, sample[:, 1] * 0.1)
        again = _line(sample)
        if again is not None:
            drawn.append(again)
    if len(drawn) < REPEATS // 2:
        return None
    latency, slope = line
    errors = np.std(np.array(drawn), axis=0, ddof=1)
    if errors[1] >= slope:
        return None  # the sizes say nothing about bandwidth
    values = (latency, errors[0], 1 / slope, errors[1] / slope**2)
    a, b, c, d = (float(f"{value:.6g}") for value in values)  # digits that mean something
    return a, b, c, d


def _line(data: Array) -> tuple[float, float] | None:
    """(latency [s], seconds per byte) for rows of (size, time, …)."""
    size, time = data[:, 0], data[:, 1]
    columns = np.stack([1 / time, size / time], axis=1)
    (latency, slope), *_ = np.linalg.lstsq(columns, np.ones(len(data)), rcond=None)
    if latency < 0:
        latency, slope = 0.0, _alone(columns[:, 1])
    if slope * size.max() <= 1e-6 * max(latency, time.max()):
        return None
    return float(latency), float(slope)


def _alone(column: Array) -> float:
    """The factor that brings `column` nearest to ones."""
    return float(column.sum() / (column @ column))


# -- steps and layers --------------------------------------------------------------------------


def _steps(found: Sequence[Findings], warnings: list[str]) -> tuple[MeasuredSteps, ...]:
    groups: dict[tuple[int, int], list[float]] = defaultdict(list)
    first: dict[tuple[int, int], tuple[str, float]] = {}
    for findings in found:
        for steps in findings.steps:
            samples = _alike(_warm(steps, findings.source, warnings), findings.source, warnings)
            key = steps.ranks or 0, steps.batch or 0
            groups[key].extend(samples)
            middle = statistics.median(samples)
            source, before = first.setdefault(key, (findings.source, middle))
            apart = max(middle / before, before / middle)
            if apart > DISAGREE:
                warnings.append(
                    f"{source} and {findings.source}: steps differ by {apart:.3g} times, and are "
                    "pooled; of another batch, model or number of ranks they belong into files "
                    "that say so, or into a calibration of their own"
                )
    return tuple(_measured(*key, groups[key]) for key in sorted(groups))


def _warm(steps: StepTime, source: str, warnings: list[str]) -> tuple[float, ...]:
    """The samples without slow ones at the beginning."""
    middle = statistics.median(steps.samples)
    start = 0
    while start < len(steps.samples) // 4 and steps.samples[start] > WARM_UP * middle:
        start += 1
    if start:
        warnings.append(f"{source}: the first {start} steps are left out as warm-up")
    return steps.samples[start:]


def _alike(samples: Sequence[float], source: str, warnings: list[str]) -> Sequence[float]:
    """The samples without those that are far from the others, which no jitter is; all of them where
    the far ones are so many that nobody knows which are the steps."""
    middle = statistics.median_low(samples)
    low, high = middle / APART, middle * APART
    far = sorted((value for value in samples if not low <= value <= high), reverse=True)
    if not far:
        return samples
    few = len(far) <= len(samples) // 4
    named = ", ".join(f"{value:.4g} s" for value in far[:NAMED])
    more = f" and {len(far) - NAMED} more" if len(far) > NAMED else ""
    warnings.append(
        f"{source}: steps of {named}{more} {'are left out' if few else 'count too'}: they are more "
        f"than {APART:g} times from the median, {middle:.4g} s (a pause, or another unit?)"
    )
    return [value for value in samples if low <= value <= high] if few else samples


def _measured(ranks: int, batch: int, samples: Sequence[float]) -> MeasuredSteps:
    jitter, error = bootstrap(samples, _variation) if len(samples) > 1 else (0.0, 0.0)
    return MeasuredSteps(
        ranks=ranks or None,
        batch=batch or None,
        n=len(samples),
        mean=statistics.fmean(samples),
        spread=statistics.stdev(samples) if len(samples) > 1 else 0.0,
        jitter=jitter,
        jitter_error=error,
    )


def _variation(values: Array) -> float:
    """Coefficient of variation."""
    return float(np.std(values, ddof=1) / np.mean(values))


def bootstrap(samples: Sequence[float], what: Callable[[Array], float]) -> tuple[float, float]:
    """`what` of `samples`, and its standard error."""
    data = np.array(samples)
    stream = np.random.default_rng(SEED)
    draws = [what(data[stream.integers(0, len(data), len(data))]) for _ in range(REPEATS)]
    return what(data), float(np.std(draws, ddof=1))


def _layers(found: Sequence[Findings], warnings: list[str]) -> tuple[MeasuredLayer, ...]:
    """Layers by name, the median over files; the longest MOST_LAYERS of them."""
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for layer in (layer for findings in found for layer in findings.layers):
        groups[layer.name].append((layer.forward, layer.backward))
    layers = [
        MeasuredLayer(
            name=name, forward=_middle(f for f, _ in pairs), backward=_middle(b for _, b in pairs)
        )
        for name, pairs in groups.items()
    ]
    if len(layers) > MOST_LAYERS:
        warnings.append(f"{len(layers) - MOST_LAYERS} short layers are left out")
        layers.sort(key=lambda layer: -(layer.forward + layer.backward))
    return tuple(layers[:MOST_LAYERS])


def _middle(values: Iterable[float]) -> float:
    return statistics.median(values)
