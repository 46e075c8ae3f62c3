"""What a device multiplies at its peak, beside what a measured step would need of it."""

from __future__ import annotations

from dpsim.cases.case import Case
from dpsim.core.record import Refused
from dpsim.models.compute import beyond_peak
from dpsim.models.recomputing import flop_again

#: what to say of a step that is faster than its device
FASTER = (
    "if it ran in a faster dtype (autocast, tf32), say so (precision.compute; in a table column "
    "precision)"
)


class BeyondPeak(Refused):
    """A measured step that is faster than any algorithm lets its device multiply."""


def above_peak(case: Case) -> str:
    """What to say where `case` computes faster than its device multiplies and an algorithm explains
    it; else ""."""
    most = beyond_peak(case.model, case.precision.compute)
    if not 1 < _share_of_peak(case) <= most:
        return ""
    return (
        f"calibrated at {_shown(case)}: convolutions of 3 x 3 by Winograd's algorithm, which needs "
        f"up to {most:g} times fewer multiplications, explain it; {FASTER}"
    )


def check_possible(case: Case, step: float, *, again: bool = False, share: float = 1.0) -> None:
    """Refused where no algorithm lets the devices of `case` multiply what a step of it needs in
    `step` [s], were they to do nothing else; `again`: with what it says to compute again; `share`:
    the part of its samples that is surely computed."""
    flop = case.model.flop_per_sample() * share
    if again:
        flop += flop_again(case.model.layers, case.scenario.recompute)
    flop *= max(case.shares) * case.batch.accumulation
    if case.device is None or flop == 0:
        return
    most = beyond_peak(case.model, case.precision.compute)
    peak = case.pace.peak_of(0) * case.mesh.replica
    if step * peak * most < flop:
        raise Refused(
            f"a step of {step:.4g} s is shorter than {case.device.name} can be: at its peak in "
            f"{case.precision.compute} the multiplications alone take {flop / peak / most:.4g} s; "
            f"{_how(case)}"
        )


def check_peak(case: Case) -> None:
    """Refused where `case` computes faster than any algorithm lets its device."""
    if _share_of_peak(case) > beyond_peak(case.model, case.precision.compute):
        message = f"the measured step would need {_shown(case)}; {_how(case)}"
        raise BeyondPeak(message, ("calibrate",))


def _how(case: Case) -> str:
    """What may have made a step of `case` faster than it is played."""
    peaks, parallel = case.device.peak if case.device else {}, case.scenario.parallel
    own, samples = peaks.get(case.precision.compute, 0.0), _samples(case)
    ways = [FASTER] if any(rate > own for rate in peaks.values()) else []
    if samples > 1:
        ways.append(
            f"a step may have had fewer than {samples:,} samples a replica (batch; in a table "
            "batch_per_gpu)"
        )
    if parallel.tensor > 1 and not parallel.async_tensor_parallel:
        beside = "if tensor ranks exchanged beside products, with parallel.sequence_parallel and"
        ways.append(f"{beside} parallel.async_tensor_parallel")
    return "; ".join(ways) or "is what was measured the time of a whole step?"


def _samples(case: Case) -> int:
    """Samples of a step of the replica that has most."""
    return max(case.shares) * case.batch.accumulation


def _shown(case: Case) -> str:
    name = case.device.name if case.device else "none"
    return f"{_share_of_peak(case):.0%} of {name}'s peak in {case.precision.compute}"


def _share_of_peak(case: Case) -> float:
    """FLOP of a step over what the device multiplies directly in the time of its compute; 0 where
    nothing is known."""
    flop = case.model.flop_per_sample() * _samples(case)
    if case.device is None or flop == 0:
        return 0.0
    job = case.job(max(case.shares))
    seconds = sum(t.forward + t.backward for t in job.times) * job.micro_batches
    return flop / (seconds * case.pace.peak_of(0))
