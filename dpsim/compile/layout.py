"""Layouts: which layers of a model make which stage, and which rank of a mesh holds it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Literal

from dpsim.compile.context import Splitting
from dpsim.compile.groups import Partition
from dpsim.compile.job import Job
from dpsim.compile.placement import Axis, Mesh, evenly
from dpsim.compile.routing import Carrier, Moe
from dpsim.compile.schedules import Act, Schedule
from dpsim.core.lean import dataclass
from dpsim.core.record import Refused
from dpsim.models import Model, Tensor, split
from dpsim.models.recomputing import Recompute

TENSOR: Axis = "tensor"
DATA: Axis = "data"
#: (stage of the owner, stage of the user, tensor)
Tables = Sequence[tuple[int, int, Tensor]]


@dataclass(frozen=True)
class Layout:
    """How a job is spread over a mesh.

    stages     layers (indices into the whole model) of every stage, of one pipeline behind those of
               the other where there are several
    sequence   ranks that split layers split the sequence too
    asynchronous   they exchange beside the products next to it
    overlapped  they exchange gradients of inputs beside the products that make those of weights
    blocking_sends   a rank goes on only when what it sent has arrived
    recompute  which layers backward computes again, and whose activations it exchanges again
    tables     (stage, stage, elements) of tensors tied across two stages
    moe        how tokens are routed to experts
    routes     for every pipeline rank what carries tokens to experts on other ranks; empty: none
    splitting  how ranks split sequences; None: they do not
    """

    mesh: Mesh
    schedule: Schedule
    stages: tuple[tuple[int, ...], ...]
    sequence: bool = False
    asynchronous: bool = False
    overlapped: bool = False
    blocking_sends: bool = False
    recompute: Recompute = "none"
    tables: tuple[tuple[int, int, int], ...] = ()
    moe: Moe = field(default_factory=Moe)
    routes: tuple[tuple[tuple[Carrier, Partition], ...], ...] = ()
    splitting: Splitting | None = None

    def home(self, stage: int) -> int:
        """The pipeline rank that holds `stage`."""
        return self.schedule.rank_of(stage, self.mesh.pipeline)

    @property
    def along(self) -> int:
        """Stages that a micro-batch passes: those of one pipeline."""
        return len(self.stages) // self.schedule.pipes

    def opens(self, stage: int) -> bool:
        """Whether micro-batches begin with `stage`."""
        return stage % self.along == 0

    def closes(self, stage: int) -> bool:
        """Whether micro-batches end with `stage`."""
        return (stage + 1) % self.along == 0

    def held(self, rank: int) -> tuple[int, ...]:
        """The stages of pipeline rank `rank`, in an order that is the same on all that hold copies
        of them."""
        own = (s for s in range(len(self.stages)) if self.home(s) == rank)
        return tuple(sorted(own, key=lambda s: s % self.along))

    def acts(self, micro_batches: int) -> tuple[tuple[Act, ...], ...]:
        """What every pipeline rank runs, in order.  Refused where the schedule cannot take it."""
        try:
            return self.schedule.lists(self.mesh.pipeline, micro_batches)
        except Refused as error:
            raise Refused(error.message, ("schedule",)) from None

    def placed(self, job: Job, stage: int) -> Job:
        """`job` as that of `stage`: where micro-batches pass it, and who holds its parameters."""
        copies, experts = self.schedule.pipes, job.expert_ranks
        return replace(
            job,
            stage=stage % self.along,
            stages=self.along,
            ranks=job.ranks * copies,
            expert_ranks=experts and experts * copies,
        )

    def first_home(self, stage: int) -> int:
        """The pipeline rank that holds the first copy of `stage`, which its replicas are named
        after."""
        return self.home(stage % self.along)

    def replicas(self, row: int, of: Callable[[int], Partition]) -> Partition:
        """Ranks that hold the same parameters as those of `of(row)`, and copies of them: where
        there are several pipelines, also those that hold the stages of `row` of another one."""
        if self.schedule.pipes == 1:
            return of(row)
        same = range(len(self.stages))
        rows = sorted({self.home(s) for s in same if self.first_home(s) == row})
        return tuple(
            evenly(sorted(itertools.chain(*groups))) for groups in zip(*map(of, rows), strict=True)
        )

    @property
    def shared(self) -> tuple[tuple[int, int, int], ...]:
        """The tables whose two stages lie on different ranks; the others are there only once.

        Of pipelines from either end, a rank that holds one of them holds the other (`mirrored`).
        """
        if self.schedule.pipes > 1:
            return ()
        return tuple(t for t in self.tables if self.home(t[0]) != self.home(t[1]))

    @property
    def neighbours(self) -> tuple[int, ...]:
        """The stages whose successor lies on another rank."""
        ahead = (s for s in range(len(self.stages)) if not self.closes(s))
        return tuple(s for s in ahead if self.home(s) != self.home(s + 1))


def assign(
    model: Model,
    costs: Sequence[float],
    count: int,
    wanted: Literal["balanced"] | tuple[tuple[str, ...], ...] | None,
) -> tuple[tuple[int, ...], ...]:
    """The layers of `count` stages, in forward order.

    `wanted` names them; or says that the dearest stage is to be as cheap as can be, by the `costs`
    of the layers; else stages get equal counts of blocks.  Raises Refused, with what would work,
    where that cannot be.
    """
    if isinstance(wanted, tuple):
        return _named(model, count, wanted)
    items = split.blocks(model)
    what = "blocks" if any(len(item) > 1 for item in items) else "layers"
    if count > len(items):
        raise Refused(
            f"{count} stages of a model of {len(items)} {what}; at most {len(items)} stages "
            "(pipeline x chunks) are accepted",
            ("parallel", "pipeline"),
        )
    if wanted == "balanced":
        ends = split.balanced([sum(costs[i] for i in item) for item in items], count)
    elif len(items) % count:
        fitting = [n for n in range(1, len(items) + 1) if len(items) % n == 0]
        raise Refused(
            f"{len(items)} {what} do not make {count} equal stages; "
            f"{', '.join(map(str, fitting[-12:]))} would, or the scenario's key "
            "stages: balanced",
            ("parallel", "pipeline"),
        )
    else:
        ends = split.equal(len(items), count)
    return tuple(split.runs(items, ends))


def _named(
    model: Model, count: int, wanted: tuple[tuple[str, ...], ...]
) -> tuple[tuple[int, ...], ...]:
    if len(wanted) != count:
        message = f"{len(wanted)} stages where pipeline x chunks is {count}"
        raise Refused(message, ("stages",))
    index = {layer.name: i for i, layer in enumerate(model.layers)}
    for number, names in enumerate(wanted):
        for name in names:
            if name not in index:
                raise Refused(f"no layer is called {name[:60]!r}", ("stages", number))
        if not names:
            raise Refused("a stage needs a layer", ("stages", number))
    given = [index[name] for names in wanted for name in names]
    if given != list(model.forward_order):
        missing = [layer.name for i, layer in enumerate(model.layers) if i not in given]
        why = f"; {', '.join(missing[:3])} is missing" if missing else ""
        raise Refused(f"name every layer once, in the order of forward{why}", ("stages",))
    return tuple(tuple(index[name] for name in names) for names in wanted)


def mirrored(tables: Tables, pipes: int, stages: int) -> Tables:
    """`tables`, tensors tied across stages; Refused where two pipelines from either end do not
    bring such stages together on every rank that holds one."""
    for one, other, tensor in tables:
        if pipes > 1 and one + other != stages - 1:
            raise Refused(
                f"{tensor.name} is tied between stages {one} and {other}, which lie on different "
                "ranks where two pipelines run; dualpipe_v and other schedules are accepted",
                ("schedule", "kind"),
            )
    return tables
