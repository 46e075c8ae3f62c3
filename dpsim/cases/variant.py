"""Variants: a case with something changed, and all else as it was.

What-ifs, cures, calibration and advice all ask the same thing: what would this case be, were it
not for that?  They live beside the case, not in `dpsim.predict`, for whoever changes a case needs
nothing of how it is played.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dpsim.backends.free import Free
from dpsim.cases.case import Case
from dpsim.core.record import altered


@dataclass(frozen=True)
class Variant:
    """A change of a case, by name.

    changes  sections of the scenario -> what they are instead
    cost     what the change costs, in words
    level    the level of compute, where that changes
    spares   how many of the slowest nodes are replaced by quiet ones, where any are

    Machine, routes, model and plans are shared with the original as far as they don't change.
    """

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    cost: str = ""
    level: float | None = None
    spares: int | None = None

    def of(self, case: Case) -> Case:
        """`case`, changed."""
        own = {"compute_scale": self.level, "spares": self.spares}
        given: dict[str, Any] = {key: value for key, value in own.items() if value is not None}
        scenario = altered(case.scenario, self.changes) if self.changes else case.scenario
        return replace(case, scenario=scenario, **given).knowing(case)


def scaled(case: Case, level: float) -> Case:
    """`case` with another level of compute."""
    return Variant("calibrated", level=level).of(case)


def at_ranks(case: Case, ranks: int) -> Case:
    """`case` on `ranks` ranks."""
    if case.ranks == ranks:
        return case
    cluster = replace(case.scenario.cluster, nodes=None, ranks=ranks)
    return Variant(f"{ranks} ranks", {"cluster": cluster}).of(case)


def with_micro_batches(case: Case, count: int) -> Case:
    """`case` with `count` micro-batches of the same size in a step."""
    batch = case.scenario.batch
    whole = batch.global_
    if whole is not None:
        whole = whole // batch.accumulation * count
    short = replace(batch, accumulation=count, global_=whole)
    return Variant(f"{count} micro-batches", {"batch": short}).of(case)


def without_communication(case: Case) -> Case:
    """`case` with collectives that take no time."""
    return Variant("free communication", {"collective": Free(), "calibration": None}).of(case)
