"""Sentences on where a curve bends."""

from __future__ import annotations

from collections.abc import Sequence

from dpsim.predict.answer import Answer, NoLaws
from dpsim.predict.point import Point, computed
from dpsim.predict.scaling import BENT
from dpsim.report.points import settings
from dpsim.report.text import PARTS, SPLIT, clean, percent, ranks

#: share of a step by which a part must grow to be named as what makes a curve bend
GROWN = 0.01


def bend(answer: Answer) -> list[str]:
    """Where efficiency first falls below 90 %, and what makes it."""
    good = [p for p in computed(answer.points) if p.efficiency is not None]
    laws = answer.laws
    if len({p.ranks for p in good}) < 2 or any(map(settings, good)):
        return []
    if isinstance(laws, NoLaws):
        return _meshed_bend(good) if _split(answer) else []
    if laws.bend is None:
        return [f"The curve does not bend: efficiency stays above 90 % ({_lowest(good)})."]
    cause = PARTS.get(laws.bend.part, clean(laws.bend.part))
    return [
        f"The curve bends at {ranks(laws.bend.ranks)}: efficiency first falls below 90 % there, "
        f"mostly because of {cause}."
    ]


def _lowest(good: Sequence[Point]) -> str:
    lowest = min(good, key=lambda p: p.efficiency or 0.0)
    return f"lowest {percent(lowest.efficiency)} at {ranks(lowest.ranks)}"


def _split(answer: Answer) -> bool:
    """Whether ranks share a model, of which the laws tell nothing."""
    mesh = answer.scenario.get("parallel") or {}
    return any(isinstance(size, int) and size > 1 for size in mesh.values())


def _meshed_bend(good: Sequence[Point]) -> list[str]:
    """Where ranks that share a model do less, and what of their step has grown most."""
    first, low = good[0], next((p for p in good if (p.efficiency or 0.0) < BENT), None)
    if low is None:
        return [f"Efficiency stays above 90 % ({_lowest(good)})."]
    shares = {
        name: [getattr(p.parts, key) / p.step_time_s for p in (first, low)]
        for key, name in SPLIT.items() if key != "compute_s"
    }  # fmt: skip
    name, (before, then) = max(shares.items(), key=lambda item: item[1][1] - item[1][0])
    said = f"Efficiency first falls below 90 % at {ranks(low.ranks)}"
    if then - before < GROWN:
        return [f"{said}; `dpsim explain` says what limits it."]
    return [
        f"{said}, where {percent(then)} of the step is {name} ({percent(before)} at the first)."
    ]
