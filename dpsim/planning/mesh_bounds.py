"""Bounds of settings by the work of the whole model, before any of them is looked at: that of
`dpsim.cases.least` where nothing is known of the cut."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from dpsim.cases.case import Case
from dpsim.cases.least import in_turn, whole_passes
from dpsim.core.record import Refused
from dpsim.describe.parallel import Parallel
from dpsim.planning.mesh_space import MeshSetting, MeshSpace

#: the order in which ranks are numbered if nobody says
USUAL = Parallel().order


@dataclass
class Whole:
    """Bounds by the work of the whole model, which settings have in common that differ in replicas
    and stages; `case_of` compiles a setting."""

    space: MeshSpace
    case_of: Callable[[MeshSetting], Case]
    known: dict[tuple[object, ...], float] = field(default_factory=dict)

    def bound(self, setting: MeshSetting) -> float:
        """What `setting` takes at least [s]: nothing where ranks lie in another order, for then
        who is neighbour to whom depends on all axes, and where samples are dealt by speed."""
        if self.space.case.scenario.parallel.order != USUAL or self.space.dealt(setting):
            return 0.0
        own = self._seconds(setting)
        count, stages = setting.micro_batches, setting.pipeline
        if whole_passes(self.space.case):
            return own / (1.0 - (1.0 - 1.0 / count) ** stages)
        return count * own / stages

    def _seconds(self, setting: MeshSetting) -> float:
        """A micro-batch's passes through all layers on one rank [s]."""
        s = setting
        key = s.tensor, s.context, s.expert, s.micro_batch, s.recompute, s.split == 1
        if key not in self.known:
            self.known[key] = self._worked_out(setting)
        return self.known[key]

    def _worked_out(self, setting: MeshSetting) -> float:
        """Without stages where the batch allows that: how layers are cut makes no difference."""
        flat = replace(setting, pipeline=1, data=setting.data * setting.pipeline)
        for one in (flat, setting):
            with suppress(Refused, ValueError):  # told when the setting's turn comes
                case = self.case_of(one)
                if case.mesh.plain:
                    return case.script.waiting * case.pace.seconds(setting.micro_batch)
                counts = self._kinds.values()
                job = case.programs.part_job(tuple(self._kinds), setting.micro_batch)
                return in_turn(case, job, tuple(counts))
        return 0.0

    @cached_property
    def _kinds(self) -> dict[int, int]:
        """The first layer of every kind, in registration order, and how many are like it."""
        first: dict[object, int] = {}
        counts: dict[int, int] = {}
        for number, layer in enumerate(self.space.case.model.layers):
            shapes = tuple((t.shape, t.trained, t.dtype) for t in layer.tensors)
            kind = replace(layer, name="", unit="", tensors=(), saved=(), tied=None), shapes
            own = first.setdefault(kind, number)
            counts[own] = counts.get(own, 0) + 1
        return counts
