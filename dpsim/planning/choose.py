"""The cheapest cluster that meets a deadline: the best point of a grid that meets all constraints.

It comes with the Pareto front of time and cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dpsim.core import told
from dpsim.core.record import Refused
from dpsim.planning.bench import Bench
from dpsim.planning.finding import Finding, Tried
from dpsim.planning.grid import Axis, SweptKey
from dpsim.planning.knobs import knob_of
from dpsim.planning.search import pareto
from dpsim.planning.settings import Settings, axes_of, error_notes
from dpsim.planning.trials import limits
from dpsim.planning.wanted import Wanted, value_of
from dpsim.predict.document import Keyed
from dpsim.predict.point import Change

#: what may be minimised by a short name
OBJECTIVES = {"cost": "cost_usd", "time": "time_to_train_s", "energy": "energy_kwh"}


@dataclass(frozen=True)
class WhichBest(Keyed):
    """The question: what is minimised, what is required, over which values; `front` names the two
    fields of which there is a front."""

    kind: str
    minimise: str
    require: Sequence[str]
    vary: Sequence[SweptKey]
    front: Sequence[str] | None
    at: Change


@dataclass(frozen=True)
class Sure:
    """The best point that meets everything over its whole 90 % interval."""

    set: Change
    value: float | None
    point: Tried


@dataclass(frozen=True)
class BestPoint(Keyed):
    """The answer, what is sure too, and what the points on the front set."""

    set: Change
    objective: str
    value: float | None
    point: Tried
    sure: Sure | None
    front: Sequence[Change]


def default_axis(bench: Bench) -> Axis:
    """Nodes (ranks, where the scenario has no nodes) by doubling, up to the machine's limit."""
    key = "cluster.ranks" if bench.scenario().cluster.machine is None else "cluster.nodes"
    _, high = limits(bench, knob_of(bench.scenario(), key, "--vary"))
    counts = [2**k for k in range(int(math.log2(high)) + 1)]
    return Axis(key, tuple({key: count} for count in counts))


def _require_values(texts: Sequence[str]) -> None:
    """Refuse a key without values."""
    for bare in (text for text in texts if "=" not in text):
        raise Refused(
            f"--vary {bare}: --deadline, --budget and --minimise want its values, "
            f"{bare}=V1,V2,…; where the number of nodes is left out, it is doubled"
        )


def choose(
    bench: Bench,
    texts: Sequence[str],
    wanted: Sequence[Wanted],
    objective: str,
    tell: told.Told = told.nobody,
) -> Finding:
    """The point of a grid with the least `objective` (a field) that fits and meets all `wanted`.

    texts   axes as ``KEY=V1,V2,…``; the cluster's size is one of them, by doubling if not given
    """
    _require_values(texts)
    axes, doubled = axes_of(texts), ""
    if not any(axis.name in ("cluster.nodes", "cluster.ranks") for axis in axes):
        axes.append(default_axis(bench))
        doubled = axes[-1].name
    asked = Settings(bench, axes, wanted, objective)
    points, other = _front(asked.played(asked.grid, tell), objective)
    front = ("time_to_train_s", other) if other else None
    question = WhichBest("choose", objective, asked.required, asked.vary, front, asked.at)
    notes = error_notes(points)
    if doubled and wanted:
        notes = [*notes, _between(doubled, wanted)]
    good = _best([one for one in points if one.holds], objective)
    if good is None:
        return Finding(question, points, wanted, infeasible=asked.missed(points), notes=notes)
    sure = _best([one for one in points if one.holds_sure], objective)
    point = asked.tried(good.set, confirmed=True)
    answer = BestPoint(
        good.set,
        objective,
        value_of(point, objective),
        point,
        sure=Sure(sure.set, value_of(sure, objective), sure) if sure else None,
        front=[one.set for one in points if one.on_front],
    )
    return Finding(question, points, wanted, answer, notes=notes)


def _between(key: str, wanted: Sequence[Wanted]) -> str:
    """What finds the least of `key` that meets what is `wanted`, between counts that were
    played."""
    asked = " ".join(f"--require '{one}'" for one in wanted)
    return f"{key} was played by doubling; {asked} --vary {key} finds the least that will do"


def _best(points: Sequence[Tried], objective: str) -> Tried | None:
    """The usable point with the least objective; of equal ones the smaller cluster."""
    good = [p for p in points if p.usable and value_of(p, objective) is not None]
    return min(good, key=lambda p: (value_of(p, objective), p.point.ranks), default=None)


def _front(points: list[Tried], objective: str) -> tuple[list[Tried], str | None]:
    """The points, marked where they are on the front of time and cost (or what else is minimised),
    and the second field; None where there is no time to train or nothing beside it."""
    usable = [p for p in points if p.usable and value_of(p, "time_to_train_s") is not None]
    known = [f for f in ("cost_usd", "energy_kwh") if usable and value_of(usable[0], f) is not None]
    other = objective if objective != "time_to_train_s" else next(iter(known), None)
    if not usable or other is None or any(value_of(p, other) is None for p in usable):
        return points, None
    chosen = pareto([(value_of(p, "time_to_train_s"), value_of(p, other)) for p in usable])  # type: ignore[misc]
    front = {id(usable[place]) for place in chosen}
    return [replace(p, on_front=id(p) in front) for p in points], other
