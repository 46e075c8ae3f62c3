"""Variants: a case with something changed, and all else as it was.

What-ifs, cures, calibration and advice all ask the same thing: what would this case be, were it
not for that?  They live beside the case, not in `dpsim.predict`, for whoever changes a case needs
nothing of how it is played.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from dpsim.backends.free import Free
from dpsim.cases.case import Case
from dpsim.compile.compression import Compression
from dpsim.core.lean import dataclass
from dpsim.core.record import altered

#: host time of a step that is no time: a fit's rounding, far below what any clock tells [s]
NO_TIME = 1e-15


@dataclass(frozen=True)
class Variant:
    """A change of a case, by name.

    changes  sections of the scenario -> what they are instead
    cost     what the change costs, in words
    level    the level of compute, where that changes
    exchange  by what collectives take longer, in a node and between nodes, where that changes
    spares   how many of the slowest nodes are replaced by quiet ones, where any are

    Machine, routes, model and plans are shared with the original as far as they don't change.
    """

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    cost: str = ""
    level: float | None = None
    spares: int | None = None
    exchange: tuple[float, float] | None = None

    def of(self, case: Case) -> Case:
        """`case`, changed."""
        own = {"compute_scale": self.level, "spares": self.spares, "exchange": self.exchange}
        given: dict[str, Any] = {key: value for key, value in own.items() if value is not None}
        scenario = altered(case.scenario, self.changes) if self.changes else case.scenario
        return replace(case, scenario=scenario, **given).knowing(case)


def scaled(case: Case, level: float, issuing: float = 1.0) -> Case:
    """`case` with another level of compute, which launches that ranks who share a model take layer
    by layer follow to the power of `issuing`."""
    if issuing == 1.0 or not case.pace.least:
        return Variant("calibrated", level=level).of(case)
    launch = case.scenario.host.launch * level ** (issuing - 1.0)
    host = replace(case.scenario.host, launch=launch)
    return Variant("calibrated", {"host": host}, level=level).of(case)


@dataclass(frozen=True)
class Adjustment:
    """What a calibration has found a case to be other than modelled.

    compute  by what layers take longer
    host_s   host time per step beside what the scenario says [s]
    launch   by what the host takes longer to issue a kernel, where the scenario says how long
    inside, between  by what collectives take longer in a node and between nodes
    spread   by what ranks differ more than fitted
    """

    compute: float = 1.0
    host_s: float = 0.0
    launch: float = 1.0
    inside: float = 1.0
    between: float = 1.0
    spread: float = 1.0

    def of(self, case: Case) -> Case:
        """`case`, adjusted."""
        own = case.scenario
        changes: dict[str, Any] = {}
        if self.host_s or self.launch != 1.0:
            launch = None if own.host.launch is None else own.host.launch * self.launch
            serial = float(own.host.serial + self.host_s)
            serial = serial if serial > NO_TIME else 0.0
            changes["host"] = replace(own.host, serial=serial, launch=launch)
        if self.spread != 1.0:
            spread = min(scaled(case, self.compute).script.spread * self.spread, 1.0)
            changes["compute"] = replace(own.compute, spread=spread)
        exchange = (self.inside, self.between)
        return Variant("calibrated", changes, level=self.compute, exchange=exchange).of(case)

    def longer(self, factor: float) -> Adjustment:
        """This, of a machine on which compute, the host and exchanges take `factor` times as long;
        loaders, copies and curves that were measured stay as they are."""
        return replace(
            self,
            compute=self.compute * factor,
            host_s=self.host_s * factor,
            launch=self.launch * factor,
            inside=self.inside * factor,
            between=self.between * factor,
        )

    def beyond(self, other: Adjustment) -> Adjustment:
        """What makes this of a case that `other` has adjusted already."""
        return replace(
            self,
            host_s=self.host_s - other.host_s,
            launch=self.launch / other.launch,
            spread=self.spread / other.spread,
        )


def batched(case: Case, sizes: Mapping[str, int]) -> Case:
    """`case` with these keys of its batch.

    One that counts its micro-batches needs a global batch or a rank's, not both; where their number
    follows from both, the other of the two stays."""
    own, batch = dict[str, Any](sizes), case.scenario.batch
    if not own:
        return case
    if {"per_device", "global_"} <= own.keys():
        own.setdefault("accumulation", 1)
    elif "accumulation" in own or not batch.follows:
        if "global_" in own:
            own["per_device"] = None
        elif "per_device" in own or batch.follows:
            own["global_"] = None
    return Variant("batch", {"batch": replace(batch, **own)}).of(case)


def at_ranks(case: Case, ranks: int, *, counted: bool = False) -> Case:
    """`case` on `ranks` ranks, of one cluster; `counted`: with as many micro-batches as it has,
    where their number follows from the ranks."""
    if case.ranks == ranks:
        return case
    cluster = replace(case.scenario.cluster, nodes=None, ranks=ranks)
    changes: dict[str, Any] = {"cluster": cluster, "sites": None, "links": None}
    if counted:
        changes["batch"] = case.batch
    return Variant(f"{ranks} ranks", changes).of(case)


def with_micro_batches(case: Case, count: int) -> Case:
    """`case` with `count` micro-batches of the same size in a step, whose ranks differ as in it:
    by what they compute in all of its step."""
    batch, compute = case.batch, case.scenario.compute
    whole = batch.global_
    if whole is not None:
        whole = whole // batch.accumulation * count
    changes: dict[str, Any] = {"batch": replace(batch, accumulation=count, global_=whole)}
    if compute.spread is None and not case.scenario.variability.scatters:
        changes["compute"] = replace(compute, spread=case.script.spread)
    return Variant(f"{count} micro-batches", changes).of(case)


def without_communication(case: Case) -> Case:
    """`case` with collectives that take no time."""
    return Variant("free communication", {"collective": Free(), "calibration": None}).of(case)


def with_compression(case: Case, compression: Compression | None) -> Case:
    """`case` with gradients that travel as `compression` has it; None: as they are."""
    own = case.scenario.strategy.bare
    changes = {"strategy": own, "compression": compression or "none"}
    return Variant("other compression", changes).of(case)
