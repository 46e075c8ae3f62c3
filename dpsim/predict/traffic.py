"""What crosses links between sites, and what that costs."""

from __future__ import annotations

from decimal import Decimal

from dpsim.cases.case import Case
from dpsim.cases.far import FarCosts
from dpsim.machines.wan import Hop
from dpsim.money.currency import decimal, exactly
from dpsim.money.usage import HOUR
from dpsim.predict.point import Point


def crossing(case: Case) -> dict[Hop, float]:
    """The bytes that a step sends over each link between sites, from place to place [B]."""
    costs, found = case.transport.costs, dict[Hop, float]()
    if not isinstance(costs, FarCosts):
        return found
    cast = case.programs.asked
    for op in (op for op in cast.programs[0].ops if op.exchanges):
        for group in cast.groups[op.group]:
            flows = costs.flows(op.operation, group, op.bytes)
            for hop, size in costs.wan.carried(flows).items():
                found[hop] = found.get(hop, 0.0) + size * op.repeats
    return found


def told(point: Point) -> dict[Hop, float]:
    """The same where workers behave: as it was counted."""
    found = point.asynchrony and point.asynchrony.crossing_bytes_per_s
    return {
        (a, b): each * point.step_time_s
        for a, targets in (found or {}).items()
        for b, each in targets.items()
    }


@exactly
def charged(case: Case, point: Point) -> tuple[Decimal, str]:
    """Dollars an hour for what crosses priced links, and how they come about."""
    moved = told(point) if case.scenario.strategy.behaves else crossing(case)
    step_time, total, texts = point.step_time_s, Decimal(0), []
    for link in case.scenario.links or ():
        a, b = link.between
        size = moved.get((a, b), 0.0) + moved.get((b, a), 0.0)
        if link.price is not None and size:
            total += decimal(size) / 10**9 * link.price.number / decimal(step_time) * HOUR
            texts.append(f"{size / 1e9:.4g} GB a step between {a} and {b} x {link.price}")
    return total, "; ".join(texts)
