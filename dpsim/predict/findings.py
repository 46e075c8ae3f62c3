"""What a calibration found that no healthy machine explains, and the likely fault.

A fitted number is a finding where it lies beyond the 90 % range of what published runs and
collectives of healthy machines needed: a scale alone would carry a fault into every prediction.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from dpsim.cases.case import Case
from dpsim.core.lean import dataclass
from dpsim.predict.fit import SLICED, PointsFit
from dpsim.predict.memory import crowded
from dpsim.predict.routing import level_range
from dpsim.predict.uncertainty import collectives_range
from dpsim.predict.widths import sliced

FaultName = Literal[
    "p2p_off", "wrong_nic", "slow_loader", "throttled", "host_bound", "shared_link",
    "faster_than_link", "contradiction", "full_memory",
]  # fmt: skip
#: between nodes: beyond this it is another network, below it may be others on the same one.  TCP
#: over one interface instead of InfiniBand on all NICs is a factor of 8 to 40
OTHER_NETWORK = 4.0
#: times as long as modelled from which on steps may have been of full memory (A99)
PRESSED = 3.0
#: least share of its prior's variance that points must take from a number to speak of it
LEARNED = 0.3
#: host time of a step, as a share of it, that is beyond what DDP itself needs
HOST_BOUND = 0.2


@dataclass(frozen=True)
class CalibrationFinding:
    """Something that was fitted and is not healthy.

    fault   the likeliest fault
    factor  fitted over modelled [1]; of host time: the share of the shortest measured step; of a
            contradiction: fitted over measured step at the worst point
    """

    fault: FaultName
    factor: float
    text: str


#: by what factor exchanges take longer over a faulty link at least
FAULT_FROM = 1.5
#: relative range of what fitted steps are off by, from which that is worth a warning
UNEXPLAINED = 0.15


def of_level(case: Case, scale: float) -> Iterator[CalibrationFinding]:
    """Compute that is slower than 9 of 10 uncalibrated runs; `case` is calibrated.  One that is too
    fast is refused where the peak says so, and warned of otherwise."""
    high = level_range(case)[1] if case.machine is not None else scale
    if scale > high:
        images = case.model.sample == "image" and case.scenario.input is None
        fault: FaultName = "slow_loader" if images else "throttled"
        why = "decoding of images" if images else "clocks held down (heat, power)"
        if scale > PRESSED and crowded(case):
            fault, why = "full_memory", f"blocks of full memory, freed and asked for again, {why}"
        yield CalibrationFinding(
            fault, scale, f"calibrated compute is x {scale:.3g} of modelled, and for 19 of 20 "
            f"published runs no more than x {high:.2g}: {why}, another device, dtype or batch, or "
            "code that nobody tuned",
        )  # fmt: skip


def of_points(cases: Sequence[Case], fit: PointsFit) -> list[CalibrationFinding]:
    """What several points say that no healthy machine does; where they contradict each other, that
    alone, for what was fitted is then of no machine."""
    worst = fit.contradiction
    if worst is None:
        compute = next(number.value for number in fit.numbers if number.name == "compute")
        return [*of_level(cases[0], compute), *of_fit(cases, fit)]
    at = f"{worst.ranks} rank{'s' * (worst.ranks != 1)}"
    said = (
        f"what comes nearest to all takes {worst.fitted_s:.4g} s at {at}, measured were "
        f"{worst.measured_s:.4g} s ({worst.error:+.0%})"
    )
    if (pair := fit.shrinking) is not None:
        said = (
            f"a step took {worst.measured_s:.4g} s at {at} and {pair[1].measured_s:.4g} s at "
            f"{pair[1].ranks}, with the same work for each rank"
        )
    text = f"the points contradict each other: {said}; are all of one machine and program?"
    return [CalibrationFinding("contradiction", 1.0 + worst.error, text)]


def unexplained(fit: PointsFit) -> str | None:
    """That measured steps are not those of one machine of the scenario's kind, where they are
    farther apart than such steps are, and nothing worse is said of them."""
    pairs = zip(fit.rest.missed, fit.rest.correlation.places, strict=True)
    runs = sorted(pairs, key=lambda run: run[0])
    (fast, few), (slow, many) = runs[0], runs[-1]
    if math.exp(slow - fast) - 1.0 < UNEXPLAINED:
        return None
    return (
        f"the measured steps are not explained by one level of compute, nor by a faulty link: at "
        f"{many.ranks} ranks the step is {math.expm1(slow):+.0%} off what fits all best, "
        f"at {few.ranks} {math.expm1(fast):+.0%}; other counts are taken to be off as the "
        "measured ones near them are, and are less sure; dpsim check with --set calibrate=null"
        f"{_options(fit)} says what may be wrong"
    )


def _options(fit: PointsFit) -> str:
    """The measured steps of a fit as options of `dpsim check`; "" where their batches differ."""
    if len({(one.micro_batch, one.accumulation) for one in fit.rest.correlation.places}) > 1:
        return ""
    steps = [f" --step-time {one.ranks}={one.measured_s:.4g}s" for one in fit.residuals]
    return "".join(dict.fromkeys(steps))


def of_fit(cases: Sequence[Case], fit: PointsFit) -> Iterator[CalibrationFinding]:
    """What of the other fitted numbers is beyond healthy machines."""
    low, high = collectives_range(cases[0])
    high = max(high, FAULT_FROM)
    widest = SLICED if sliced(cases) else high
    for number in fit.numbers:
        if number.learned < LEARNED:
            continue
        most = widest if number.name == "between" else high
        if number.name in ("inside", "between") and not low <= number.value <= most:
            yield _exchange(number.name, number.value)
        if number.name == "host_s" and number.value > HOST_BOUND * fit.unit_s:
            share = number.value / fit.unit_s
            yield CalibrationFinding(
                "host_bound", share, f"{number.value:.3g} s of every step, {share:.0%} of the "
                "shortest measured one, pass on the host beside what is modelled",
            )  # fmt: skip


def _exchange(where: str, factor: float) -> CalibrationFinding:
    place = "inside a node" if where == "inside" else "between nodes"
    if factor < 1:
        text = (
            f"collectives {place} take x {factor:.3g} of what their link allows: the measured "
            "steps crossed another link than the one named, or communicate less"
        )
        return CalibrationFinding("faster_than_link", factor, text)
    why = {
        "p2p_off": "copies go through the host (no peer-to-peer access), on several nodes as well",
        "wrong_nic": "another interface, or TCP instead of RDMA",
        "shared_link": "fewer NICs than named, or others on the same links",
    }
    fault: FaultName = "p2p_off" if where == "inside" else (
        "wrong_nic" if factor > OTHER_NETWORK else "shared_link"
    )  # fmt: skip
    text = f"collectives {place} take {factor:.3g} times as long as their link allows: {why[fault]}"
    return CalibrationFinding(fault, factor, text)
