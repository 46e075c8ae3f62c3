"""Tables of `dpsim calibrate`: what each file said and what was made of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dpsim.backends.curves import MeasuredCurve, bus_factor
from dpsim.core.units import show
from dpsim.report.tables import brief, clean, percent

if TYPE_CHECKING:
    from rich.console import Console

    from dpsim.backends.curves.file import Calibration
    from dpsim.measurements.calibration.gathering import Gathered

#: layers that are printed; the file has all of them
SHOWN = 12


def print_calibration(gathered: Gathered, console: Console, out: Path | None) -> None:
    """What was found per file, the curves, steps and layers, and every warning."""
    for findings in gathered.found:
        said = "; ".join(findings.notes) or "read"
        console.print(f"{brief(findings.source, 80)}: {clean(said)}", markup=False)
    calibration = gathered.calibration
    _curves(calibration, console)
    _steps(calibration, console)
    _layers(calibration, console)
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


def _curves(calibration: Calibration, console: Console) -> None:
    from rich.table import Table

    if not calibration.curves:
        return
    names = ("collective", "ranks", "nodes", "points", "sizes", "fastest bus", "latency", "line")
    table = Table(*names, box=None, pad_edge=False)
    for curve in calibration.curves:
        table.add_row(*_row(curve))
    console.print(table)


def _row(curve: MeasuredCurve) -> tuple[str, ...]:
    factor = bus_factor(curve.operation, curve.ranks)
    best = max(size / seconds for size, seconds, _ in curve.points) * factor
    return (
        clean(curve.operation),
        str(curve.ranks),
        str(curve.nodes or "?"),
        str(len(curve.points)),
        f"{show(curve.smallest, 'B')} … {show(curve.largest, 'B')}",
        show(best, "B/s"),
        _with_error(curve.latency, curve.latency_error, "s"),
        _with_error(curve.bandwidth, curve.bandwidth_error, "B/s"),
    )


def _with_error(value: float | None, error: float | None, dimension: str) -> str:
    if value is None or error is None:
        return "–"
    return f"{show(value, dimension, 3)} ± {show(error, dimension, 2)}"


def _steps(calibration: Calibration, console: Console) -> None:
    from rich.table import Table

    if not calibration.steps:
        return
    table = Table("ranks", "batch", "steps", "mean", "spread", "jitter", box=None, pad_edge=False)
    for steps in calibration.steps:
        table.add_row(
            str(steps.ranks or "?"),
            str(steps.batch or "?"),
            str(steps.n),
            show(steps.mean, "s"),
            show(steps.spread, "s", 3),
            f"{percent(steps.jitter)} ± {percent(steps.jitter_error)}",
        )
    console.print(table)


def _layers(calibration: Calibration, console: Console) -> None:
    from rich.table import Table

    if not calibration.layers:
        return
    longest = sorted(calibration.layers, key=lambda layer: -(layer.forward + layer.backward))
    table = Table("layer or operator", "forward", "backward", box=None, pad_edge=False)
    for layer in longest[:SHOWN]:
        table.add_row(brief(layer.name, 60), show(layer.forward, "s"), show(layer.backward, "s"))
    console.print(table)
    if len(longest) > SHOWN:
        console.print(f"and {len(longest) - SHOWN} shorter ones")
