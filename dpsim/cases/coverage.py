"""How far measured curves carry a case: which collectives they serve, and how surely.

The error of a served collective is that of the curve itself (its spread, at least SMALLEST), and
grows with the square root of the doublings of the rank count away from the measured group and of
the size beyond the measured ones.  It is never larger than that of the model alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from dpsim.cases.case import Case
from dpsim.core.lean import dataclass
from dpsim.machines.devices import same_kind
from dpsim.play.measured import MeasuredCosts, Served

#: repeated runs of nccl-tests on one machine differ by a few per cent at large sizes: 0.69 to 0.74
#: GB/s over five runs of one log (converged-computing/google-performance-study, size-4)
SMALLEST = 0.03
#: 90 % range of the logarithm of measured over predicted, one doubling of the rank count away.
#: Published curves of six kinds of machine (dgx-a100, dgx-h100, dgx-b200, h100-4, polaris,
#: mi325x-8; all-reduce, all-gather, reduce-scatter from 1 MiB up), each predicted from the others:
#: 5th and 95th percentiles are 0.67 and 1.49 in a node (384 pairs), 0.61 and 1.63 between nodes
#: (204); two doublings away 0.53 and 1.90 (180), 0.60 and 1.67 (232); medians are 1.00
AWAY = 0.4
Z90 = 1.645
#: the cause of collectives of which nothing, some or all was measured
PRIOR = "collectives (prior)"
PARTLY, MEASURED = "collectives (partly measured)", "collectives (measured)"
Range = tuple[float, float]


@dataclass(frozen=True)
class Collective:
    """One collective of a step and what serves it; `seconds` on idle links [s]."""

    operation: str
    ranks: int
    nodes: int
    size: float
    seconds: float
    served: Served | None


def collectives(case: Case) -> Iterator[Collective]:
    """The collectives that rank 0 takes part in, in one step; none where no curve is given."""
    costs, topology = case.costs, case.topology
    if not isinstance(costs, MeasuredCosts) or topology is None:
        return
    cast = case.programs.asked
    for op in cast.programs[cast.roles[0]].ops:
        if not op.exchanges:
            continue
        ranks = next((g for g in cast.groups[op.group] if 0 in g), ())
        if len(ranks) < 2 or op.bytes <= 0:
            continue
        nodes = len({topology.node_of(rank) for rank in ranks})
        operation = op.carried
        seconds = costs.plan(operation, ranks, op.bytes).seconds
        served = costs.served(operation, ranks, op.bytes)
        yield Collective(operation, len(ranks), nodes, op.bytes, seconds, served)


def network_range(case: Case, prior: Range) -> tuple[str, Range]:
    """The name of the cause, and by what factors the time of all collectives may be off at 90 %.

    `prior` is the range of the model alone.  Collectives count by their time.
    """
    found = [c for c in collectives(case) if c.seconds > 0]
    total = sum(c.seconds for c in found)
    if not any(c.served for c in found):
        return PRIOR, prior
    ranges = [(c.seconds / total, served_range(c.served, prior)) for c in found]
    low = sum(share * ends[0] for share, ends in ranges)
    high = sum(share * ends[1] for share, ends in ranges)
    exact = all(c.served is not None and c.served.exact for c in found)
    return MEASURED if exact else PARTLY, (low, high)


def served_range(served: Served | None, prior: Range) -> Range:
    """By what factors the time of one collective may be off; `prior` is that of the model."""
    if served is None:
        return prior
    error = max(SMALLEST, Z90 * served.reading.spread)
    way = math.exp(min(AWAY * math.sqrt(served.away + served.reading.beyond), 100.0))
    low, high = (1.0 - error) / way, (1.0 + error) * way
    return max(low, prior[0]), min(high, prior[1])


def notes(cases: Sequence[Case], jitter: float) -> list[str]:
    """What of a calibration was used other than as measured; `jitter` is the scenario's own."""
    said: dict[str, None] = {}
    for case in cases:
        if case.transport.calibration is None:
            continue
        for text in (*_elsewhere(case), *_of(collectives(case))):
            said[f"calibration: {text}"] = None
        own, steps = case.scenario.variability.spread, case.transport.calibration.jitter
        if steps is not None and own != jitter and own == min(steps.jitter, 1.0):
            source = f"{steps.n} steps of {steps.ranks or 'unknown'} ranks"
            said[f"calibration: variability.jitter is {own:.2%}, measured on {source}"] = None
    return list(said)


def _elsewhere(case: Case) -> Iterator[str]:
    """Where curves that are used were measured on another kind of device."""
    found = case.transport.calibration
    if found is None or not found.curves or not found.device or case.device is None:
        return
    if not same_kind(found.device, case.device.name):
        yield (
            f"its curves were measured on {found.device}, and here is {case.device.name}, whose "
            "links may be others; measure there, or leave the calibration out"
        )


def _of(found: Iterable[Collective]) -> Iterator[str]:
    """One sentence for each way in which a curve was stretched or missing."""
    outside: dict[str, list[float]] = {}
    for c in found:
        here = f"{c.operation} over {c.ranks} ranks"
        if c.served is None:
            where = "inside a node" if c.nodes == 1 else "between nodes"
            yield f"no curve of {c.operation} {where}; modelled"
        elif c.served.away:
            yield f"{here} follows the curve of {c.served.curve.ranks} by the model's ratio"
        if c.served is not None and c.served.reading.beyond:
            curve = c.served.curve
            bounds = f"{curve.smallest:,.0f} … {curve.largest:,.0f} B"
            outside.setdefault(f"{here} was measured at {bounds}", []).append(c.size)
    for text, sizes in outside.items():
        shown = f"{min(sizes):,.0f}" + (f" … {max(sizes):,.0f}" if len(set(sizes)) > 1 else "")
        yield f"{text}; {shown} B lies outside and is extrapolated"
