"""Blame: what of a step is lost to which cause and to which rank, by playing it without them.

The loss is what the step takes beyond one in which nothing varies, communication is free, no batch
is late, copying batches takes no time and the host adds nothing.  Causes hide one another (a slow
rank costs nothing while everybody waits for the network), so leaving out one alone says too little
and all such gains together are no whole.  Each cause is therefore given its Shapley value: the
mean, over all orders in which the causes could be taken away, of what taking it away gains
(Shapley, A Value for n-Person Games, 1953).  The values sum to the loss.  With many causes the mean
is over two opposite orders only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from math import factorial

import numpy as np

from dpsim.cases.case import Case
from dpsim.cases.unlimited import unlimited
from dpsim.cases.variant import Variant, without_communication
from dpsim.core.arrays import Array
from dpsim.describe.sections import Host
from dpsim.play import NotApplicable, vectorised
from dpsim.predict.player import step_time

#: what is no variability of the scenario's
BESIDE = COMMUNICATION, HOST, SPREAD, INPUT, COPY = (
    "communication", "host", "spread", "input", "copy",
)  # fmt: skip
#: causes up to which all orders count
MOST_EXACT = 4
#: slow ranks and nodes up to which each is a cause of its own
MOST_NAMED = 8
#: ranks that are named; the rest is summed up
MOST_RANKS = 10
#: CPU seconds that one random variant may cost, and what the vectorised engine takes per operation
#: and per operation and rank, roughly
BUDGET, PER_OPERATION, PER_RANK = 0.25, 1e-5, 1e-8
#: steps of a random variant that only the event engine can play
FEW = 8


@dataclass(frozen=True)
class BlamedCause:
    """A cause: its part of the loss, and the step without it [s]."""

    cause: str
    loss_s: float
    step_time_without_s: float


@dataclass(frozen=True)
class BlamedRank:
    """A rank's part of what varying ranks cost [s]; None is all others."""

    rank: int | None
    loss_s: float


@dataclass(frozen=True)
class Blame:
    """Who the loss of a step is due to [s].

    loss_s   beyond the quiet step; its `causes` sum to it
    method   "shapley", or "two orders"
    """

    quiet_s: float
    loss_s: float
    method: str
    causes: tuple[BlamedCause, ...]
    ranks: tuple[BlamedRank, ...]


def blame(case: Case, time: float) -> Blame:
    """The loss of a step of `case`, which takes `time`, by cause and rank.

    Random variants are played over the same steps with the same draws, and what counts is their
    time relative to that of `case` over these steps.
    """
    names = causes(case)
    steps = affordable(case)
    known: dict[frozenset[str], float] = {}

    def value(present: frozenset[str]) -> float:
        """Step time with the causes `present` [s]."""
        if present not in known:
            left_out = [name for name in names if name not in present]
            variant = without(case, left_out)
            found = step_time(variant, at_most=steps)
            known[present] = found * scale if variant.scenario.variability.random else found
        return known[present]

    everything, scale = frozenset(names), 1.0
    if case.scenario.variability.random:
        sampled = value(everything)
        scale = time / sampled if sampled > 0 else 1.0
    known[everything] = time
    exact = len(names) <= MOST_EXACT
    parts = _shapley(names, value) if exact else _two_orders(names, value)
    found = tuple(
        BlamedCause(name, parts[name], value(everything - {name}))
        for name in sorted(names, key=lambda name: -parts[name])
    )
    quiet = value(frozenset())
    varied = sum(one.loss_s for one in found if one.cause not in BESIDE)
    ranks = tuple(BlamedRank(*one) for one in by_rank(case, steps, varied).items())
    return Blame(quiet, time - quiet, "shapley" if exact else "two orders", found, ranks)


def affordable(case: Case) -> int:
    """Steps to play each random variant with."""
    most = case.scenario.variability.steps
    request = case.plays(at_most=1)[0]
    if case.scenario.detail == "rounds":
        return min(FEW, most)
    try:
        vectorised.play(request)
    except NotApplicable:
        return min(FEW, most)
    operations = max(len(program.ops) for program in request.cast(0).programs)
    cost = operations * (PER_OPERATION + PER_RANK * case.ranks)
    return min(max(FEW, int(BUDGET / cost)), most)


def causes(case: Case) -> tuple[str, ...]:
    """What of `case` can be taken away."""
    return tuple(_causes(case))


def _causes(case: Case) -> Iterator[str]:
    variability = case.scenario.variability
    for name in variability.causes:
        entries = variability.named.get(name, ())
        if 0 < len(entries) <= MOST_NAMED:
            yield from (f"{name}[{number}]" for number in entries)
        else:
            yield name
    if case.script.waiting > 1.0:
        yield SPREAD
    host, strategy = case.scenario.host, case.scenario.strategy
    if host.serial > 0 or host.launch or strategy.on_device() is not strategy:
        yield HOST
    if case.feed is not None:
        yield INPUT
    if case.scenario.input is not None and case.scenario.input.copy is not None:
        yield COPY
    if case.ranks > 1:
        yield COMMUNICATION


def without(case: Case, left_out: list[str]) -> Case:
    """`case` without these causes."""
    scenario = case.scenario
    variability, compute, host = scenario.variability, scenario.compute, scenario.host
    for name in left_out:
        if name not in BESIDE:
            variability = variability.without(name)
    if SPREAD in left_out or case.script.waiting == 1.0:
        # without variability the spread that was fitted would take its place
        compute = replace(compute, spread=0.0)
    if HOST in left_out:
        host = Host(launch=None if host.launch is None else 0.0)
    strategy = scenario.strategy.on_device() if HOST in left_out else scenario.strategy
    changes = {"variability": variability, "compute": compute, "host": host, "strategy": strategy}
    given = scenario.input
    if INPUT in left_out:
        given = unlimited(given)
    if COPY in left_out and given is not None:
        given = replace(given, copy=None)
    changes["input"] = given
    other = Variant(f"without {', '.join(left_out)}", changes).of(case)
    return without_communication(other) if COMMUNICATION in left_out else other


def _shapley(names: tuple[str, ...], value: Callable[[frozenset[str]], float]) -> dict[str, float]:
    """Each cause's mean gain over all orders: sets of k others weigh k! (n - 1 - k)! / n!."""
    n = len(names)
    parts = {}
    for name in names:
        others = [other for other in names if other != name]
        parts[name] = sum(
            factorial(k)
            * factorial(n - 1 - k)
            / factorial(n)
            * (value(frozenset({*chosen, name})) - value(frozenset(chosen)))
            for k in range(n)
            for chosen in combinations(others, k)
        )
    return parts


def _two_orders(
    names: tuple[str, ...], value: Callable[[frozenset[str]], float]
) -> dict[str, float]:
    """The same over two orders, the given one and its reverse."""
    parts = dict.fromkeys(names, 0.0)
    for order in (names, names[::-1]):
        for place, name in enumerate(order):
            gain = value(frozenset(order[place:])) - value(frozenset(order[place + 1 :]))
            parts[name] += gain / 2.0
    return parts


def _late(case: Case) -> Array | float:
    """What every rank is late, as a multiple of what the slowest computes."""
    delays, busy = case.script.delays, case.batches.rank_seconds.max()
    busy *= case.batch.accumulation
    return delays.of_ranks(case.programs.asked) / (busy or 1.0) if delays else 0.0


def by_rank(case: Case, steps: int, loss: float) -> dict[int | None, float]:
    """`loss` shared out to the ranks that were the slowest of a step, by how much slower than a
    quiet rank each was then; the largest first."""
    if not case.scenario.variability.varies:
        return {}
    factors_of, shares = case.plays(at_most=1)[0].factors, np.array(case.shares, dtype=float)
    shares = case.batches.rank_seconds if len(case.pace.kinds) > 1 else shares
    shares = shares / shares.max()
    late = _late(case)
    excess = np.zeros(case.ranks)
    for step in range(2, 2 + (steps if case.scenario.variability.random else 1)):
        factors = factors_of(step) * shares + late
        if not case.scenario.strategy.waits_for_all:  # every rank is late for itself alone
            excess += np.maximum(factors - 1.0, 0.0)
            continue
        slowest = int(factors.argmax())
        excess[slowest] += max(float(factors[slowest]) - 1.0, 0.0)
    total = float(excess.sum())
    if total == 0:
        return {None: loss}
    order = [int(r) for r in np.argsort(-excess, kind="stable")[:MOST_RANKS] if excess[r] > 0]
    found: dict[int | None, float] = {r: loss * float(excess[r]) / total for r in order}
    rest = loss - sum(found.values())
    if np.count_nonzero(excess) > len(order):
        found[None] = rest
    return found
