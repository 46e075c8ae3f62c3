"""Advice: what would make a model fit, each change checked by computing its memory again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

from dpsim.cases.case import Case
from dpsim.cases.variant import Variant, with_micro_batches
from dpsim.core.errors import SimulationError
from dpsim.core.record import Refused
from dpsim.models.memory import UNFIT, MemoryUse
from dpsim.predict.answer import Advice, Answer
from dpsim.predict.document import to_json
from dpsim.predict.memory import memory_of
from dpsim.predict.player import estimate, play
from dpsim.predict.prediction import Prediction
from dpsim.predict.savings import ELSE, SAVINGS, TOGETHER, Saving

#: changes that are advised at most; the rest are further pairs
MOST = 8
#: estimated seconds of event playing beyond which a change's throughput is not said
MOST_SECONDS = 1.0
#: what joins the keys in the name of a change
_AND = " and "


def advised(prediction: Prediction) -> Answer:
    """The answer of `prediction`, with advice where a point does not fit."""
    if unfit(prediction) is None:
        return prediction.answer
    return replace(prediction.answer, advice=prediction.advice)


def with_advice(prediction: Prediction) -> dict[str, Any]:
    """The same as JSON."""
    document: dict[str, Any] = to_json(advised(prediction))
    return document


def unfit(prediction: Prediction) -> tuple[Case, MemoryUse] | None:
    """The case with the fewest ranks that does not fit, and what it needs."""
    used = [(one.case, one.memory) for one in prediction.outcomes if one.memory]
    found = [(case, use) for case, use in used if use.fits in UNFIT]
    return min(found, key=lambda pair: pair[0].ranks, default=None)


def advice(case: Case, used: MemoryUse) -> tuple[Advice, ...]:
    """Changes of the scenario with which `case` fits: single ones first, then pairs of changes
    of which neither is enough alone, where none is `TOGETHER`, then more devices and other models.
    Empty where it fits already or nothing tried helps."""
    if used.fits not in UNFIT:
        return ()
    single = {saving: _first_that_fits(case, saving(case)) for saving in SAVINGS}
    found = [fitting for fitting in single.values() if fitting]
    rest = [saving for saving, fitting in single.items() if not fitting]
    last = [fitting for saving in ELSE if (fitting := _first_that_fits(case, saving(case)))]
    for first, second in combinations(rest, 2):
        if len(found) >= MOST - len(last):
            break
        fitting = _first_that_fits(case, _both(case, first, second))
        found += [fitting] if fitting else []
    if not found and (fitting := _first_that_fits(case, _together(case))):
        found = [fitting]
    found = [*found[: MOST - len(last)], *last]
    pace = _pace(case)
    return tuple(_advice(case, pace, *fitting) for fitting in found)


def _advice(case: Case, pace: float | None, variant: Variant, use: MemoryUse) -> Advice:
    now = _pace(variant.of(case)) if pace else None
    ratio = now / pace if pace and now else None
    keys, capacity = tuple(variant.name.split(_AND)), use.capacity or 0.0
    return Advice(case.ranks, keys, use.total, capacity, use.fits, ratio, variant.cost)


def _pace(case: Case) -> float | None:
    """Samples per second; None where playing the case would take long, or cannot be done."""
    try:
        if estimate(case) > MOST_SECONDS:
            return None
        return case.global_batch / play(case).step_time
    except (Refused, SimulationError, ValueError, ZeroDivisionError):
        return None


def _first_that_fits(case: Case, variants: Iterable[Variant]) -> tuple[Variant, MemoryUse] | None:
    """The mildest of `variants` that fits; those that cannot be computed are passed over."""
    for variant in variants:
        try:
            changed = variant.of(case)
            use = memory_of(changed)
            if use.holds and not changed.mesh.plain:
                _check_compiles(changed)
        except (Refused, ValueError):
            continue
        if use.holds:
            return variant, use
    return None


def _check_compiles(case: Case) -> None:
    """Refuse what the strategy or the schedule cannot take; of a step of many micro-batches its
    order and the program of a shorter one tell."""
    short = 2 * max(case.mesh.pipeline, 4)
    if case.batch.accumulation > 2 * short:
        _ = case.acts
        case = with_micro_batches(case, short)
    _ = case.programs.asked


def _together(case: Case) -> Iterator[Variant]:
    """Three changes of which no two are enough."""
    first, second, third = TOGETHER
    return _both(case, lambda own: _both(own, first, second), third)


def _both(case: Case, first: Saving, second: Saving) -> Iterator[Variant]:
    """The second change of what the first one made; where both set a key, the second counts.

    A first one that cannot be made, as one that leaves too few replicas for experts, is passed
    over."""
    for a in first(case):
        try:
            after = tuple(second(a.of(case)))
        except (Refused, ValueError):
            continue
        for b in after:
            cost = "; ".join(text for text in dict.fromkeys((a.cost, b.cost)) if text)
            later = b.name.split(_AND)
            names = {text.partition(":")[0] for text in later}
            kept = [text for text in a.name.split(_AND) if text.partition(":")[0] not in names]
            yield Variant(_AND.join((*kept, *later)), {**a.changes, **b.changes}, cost)
