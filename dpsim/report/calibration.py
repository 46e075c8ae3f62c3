"""Tables of `dpsim calibrate`: what each file said and what was made of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dpsim.core.units import show
from dpsim.report.text import brief, clean, percent

if TYPE_CHECKING:
    from rich.console import Console

    from dpsim.measurements.calibration.gathering import Gathered

#: layers that are printed; the file has all of them
SHOWN = 12
_CURVES = ("collective", "ranks", "nodes", "points", "sizes", "fastest bus", "latency", "line")
_STEPS = ("ranks", "batch", "steps", "mean", "spread", "jitter")
_LAYERS = ("layer or operator", "forward", "backward")


def print_calibration(gathered: Gathered, console: Console, out: Path | None) -> None:
    """What was found per file, the curves, steps and layers, and every warning."""
    for findings in gathered.found:
        said = "; ".join(findings.notes) or "read"
        console.print(f"{brief(findings.source, 80)}: {clean(said)}", markup=False)
    calibration = gathered.calibration
    _print(console, _CURVES, _curves(gathered))
    _print(console, _STEPS, _steps(gathered))
    layers = _layers(gathered)
    _print(console, _LAYERS, layers[:SHOWN])
    if len(layers) > SHOWN:
        console.print(f"and {len(layers) - SHOWN} shorter ones")
    buckets = [b for findings in gathered.found for b in findings.buckets]
    if buckets:
        size = sum(b.bytes for b in buckets)
        console.print(f"{len(buckets)} buckets of gradients, {show(size, 'B')} together")
    if calibration.overlap is not None:
        console.print(f"{percent(calibration.overlap)} of communication ran beside compute")
    for warning in calibration.warnings:
        console.print(f"warning: {clean(warning)}", markup=False)
    if out is not None:
        console.print(f"written: {clean(out)}", markup=False)


def _print(console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table

    table = Table(*heads, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    if rows:
        console.print(table)


def _curves(found: Gathered) -> list[list[str]]:
    return [
        [
            clean(curve.operation),
            str(curve.ranks),
            str(curve.nodes or "?"),
            str(len(curve.points)),
            f"{show(curve.smallest, 'B')} … {show(curve.largest, 'B')}",
            show(curve.fastest_bus, "B/s"),
            _with_error(curve.latency, curve.latency_error, "s"),
            _with_error(curve.bandwidth, curve.bandwidth_error, "B/s"),
        ]
        for curve in found.calibration.curves
    ]


def _with_error(value: float | None, error: float | None, dimension: str) -> str:
    if value is None or error is None:
        return "–"
    return f"{show(value, dimension, 3)} ± {show(error, dimension, 2)}"


def _steps(found: Gathered) -> list[list[str]]:
    return [
        [
            str(steps.ranks or "?"),
            str(steps.batch or "?"),
            str(steps.n),
            show(steps.mean, "s"),
            show(steps.spread, "s", 3),
            f"{percent(steps.jitter)} ± {percent(steps.jitter_error)}",
        ]
        for steps in found.calibration.steps
    ]


def _layers(found: Gathered) -> list[list[str]]:
    """The longest first."""
    longest = sorted(found.calibration.layers, key=lambda layer: -(layer.forward + layer.backward))
    return [[brief(layer.name, 60), show(layer.forward, "s"), show(layer.backward, "s")]
            for layer in longest]  # fmt: skip
