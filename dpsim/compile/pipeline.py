"""Pipelines: a schedule, a mesh and a strategy become the programs of all ranks.

Execution (docs/assumptions.md).  Every pipeline rank runs its schedule's list strictly in order.
What a stage puts out travels to the next stage when the operation that made it has ended, on a
stream of its own for every pair of stages; a transfer delays its receiver only, unless
`blocking_sends`.  Ranks that split layers between them exchange activations after each of a
stage's passes, all of a pass at once: nothing else can run meanwhile.  Gradients are exchanged
between replicas in the last micro-batch of each stage.  Then all ranks wait for each other (the
gradient norm and the check for infinities), and the optimizer runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dpsim.compile.placement import Axis, Mesh
from dpsim.compile.program import BARRIER, RECEIVE, SEND, Cast, Program
from dpsim.compile.schedules import Act, Schedule, spell
from dpsim.compile.strategies import Issue, Job, Strategy, Synchronisation
from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.core.record import Refused
from dpsim.models import Layer, Model
from dpsim.models.split import balanced, blocks, equal, runs

TENSOR: Axis = "tensor"
DATA: Axis = "data"
Groups = dict[str, tuple[tuple[int, ...], ...]]


@dataclass(frozen=True)
class Layout:
    """How a job is spread over a mesh.

    stages     layers (indices into the whole model) of every stage
    sequence   ranks that split layers split the sequence too
    blocking_sends   a rank goes on only when what it sent has arrived
    recompute  backward computes the forward pass again, and exchanges activations again
    tables     (stage, stage, elements) of tensors tied across two stages
    """

    mesh: Mesh
    schedule: Schedule
    stages: tuple[tuple[int, ...], ...]
    sequence: bool = False
    blocking_sends: bool = False
    recompute: bool = False
    tables: tuple[tuple[int, int, int], ...] = ()

    def home(self, stage: int) -> int:
        """The pipeline rank that holds `stage`."""
        return self.schedule.rank_of(stage, self.mesh.pipeline)

    def held(self, rank: int) -> tuple[int, ...]:
        """The stages of pipeline rank `rank`."""
        return tuple(s for s in range(len(self.stages)) if self.home(s) == rank)

    def acts(self, micro_batches: int) -> tuple[tuple[Act, ...], ...]:
        """What every pipeline rank runs, in order.  Refused where the schedule cannot take it."""
        try:
            return self.schedule.lists(self.mesh.pipeline, micro_batches)
        except Refused as error:
            raise Refused(error.message, ("schedule",)) from None

    @property
    def shared(self) -> tuple[tuple[int, int, int], ...]:
        """The tables whose two stages lie on different ranks; the others are there only once."""
        return tuple(t for t in self.tables if self.home(t[0]) != self.home(t[1]))

    @property
    def neighbours(self) -> tuple[int, ...]:
        """The stages whose successor lies on another rank."""
        last = len(self.stages) - 1
        return tuple(s for s in range(last) if self.home(s) != self.home(s + 1))


#: one rank's part of a stage: (stage, samples of its micro-batches) -> Job
Jobs = Callable[[int, int], Job]


def cast(layout: Layout, strategy: Strategy, shares: Sequence[int], jobs: Jobs) -> Cast:
    """Who plays what: one program per pipeline rank and size of micro-batch.

    Raises Refused where the schedule or the strategy cannot take the mesh.
    """
    mesh = layout.mesh
    micro_batches = jobs(0, shares[0]).micro_batches
    lists = layout.acts(micro_batches)
    roles: dict[tuple[int, int], int] = {}
    programs: list[Program] = []
    numbers = []
    for rank in range(mesh.ranks):
        key = (mesh.place(rank, "pipeline"), shares[rank])
        if key not in roles:
            roles[key] = len(programs)
            programs.append(_Rank(layout, strategy, key[0], key[1], jobs).program(lists[key[0]]))
        numbers.append(roles[key])
    return Cast(tuple(programs), tuple(numbers), _groups(layout))


def players(cast: Cast, mesh: Mesh) -> Cast:
    """`cast` with one player per pipeline rank, for all ranks that do the same at the same time."""
    first = {TENSOR: 0, DATA: 0}
    real = tuple(mesh.rank(pipeline=row, **first) for row in range(mesh.pipeline))
    number = {rank: player for player, rank in enumerate(real)}
    groups: Groups = {}
    for name, partition in cast.groups.items():
        kept = (tuple(number[r] for r in group if r in number) for group in partition)
        groups[name] = tuple(group for group in kept if group)
    return Cast(cast.programs, tuple(cast.roles[rank] for rank in real), groups, real)


def _groups(layout: Layout) -> Groups:
    mesh = layout.mesh
    groups: Groups = {"world": (tuple(range(mesh.ranks)),)}
    for row in range(mesh.pipeline):
        groups[f"{TENSOR}.{row}"] = mesh.tensor_groups(row)
        groups[f"{DATA}.{row}"] = mesh.data_groups(row)
    for stage in layout.neighbours:
        here, there = layout.home(stage), layout.home(stage + 1)
        groups[_activations(stage)] = mesh.pairs(here, there)
        groups[_gradients(stage)] = mesh.pairs(there, here)
    for k, (one, other, _) in enumerate(layout.shared):
        groups[f"table.{k}"] = mesh.pairs(layout.home(one), layout.home(other))
    return groups


def _activations(stage: int) -> str:
    """Name of the stream and of the pairs from `stage` to the next one."""
    return f"activations.{stage}"


def _gradients(stage: int) -> str:
    """Name of the stream and of the pairs that bring gradients back to `stage`."""
    return f"gradients.{stage}"


@dataclass(eq=False)
class _Rank:
    """Compiles the program of one pipeline rank."""

    layout: Layout
    strategy: Strategy
    row: int
    share: int
    jobs: Jobs
    gate: tuple[int, ...] = ()
    done: int = -1
    sent: list[int] = field(default_factory=list)

    def program(self, acts: Sequence[Act]) -> Program:
        self.held = {s: self.jobs(s, self.share) for s in self.layout.held(self.row)}
        first = next(iter(self.held.values()))
        self.issue = Issue(first)
        self.plans = {s: self._plan(job) for s, job in self.held.items()}
        schedule, mesh = self.layout.schedule, self.layout.mesh
        final = {act.stage: k for k, act in enumerate(acts) if act.kind in ("B", "W")}
        blocks = schedule.blocks(self.row, mesh.pipeline, first.micro_batches)
        todo = iter(enumerate(acts))
        for k, act in todo:
            # two operations side by side: both need all that either does, and end together
            block = [(k, act), next(todo)] if k in blocks else [(k, act)]
            named = [(n, a, spell((a,), schedule.chunks)) for n, a in block]
            for _, one, name in named:
                self._receive_for(one, name)
            for n, one, name in named:
                self._compute_act(one, name, last=final[one.stage] == n)
            for _, one, name in named:
                self._send_from(one, name)
        self._end(first)
        return self.issue.program(self._buckets(), spell(acts, schedule.chunks))

    def _plan(self, job: Job) -> Synchronisation:
        return self.strategy.synchronisation(job)

    # -- one operation of the schedule -----------------------------------------------------------

    def _receive_for(self, act: Act, name: str) -> None:
        stage = act.stage
        if act.kind == "F" and stage > 0:
            self._receive(name, _activations(stage - 1), stage - 1)
        if act.kind in ("B", "I") and stage < len(self.layout.stages) - 1:
            self._receive(name, _gradients(stage), stage)

    def _send_from(self, act: Act, name: str) -> None:
        stage = act.stage
        if act.kind == "F" and stage < len(self.layout.stages) - 1:
            self._send(name, _activations(stage), stage)
        if act.kind in ("B", "I") and stage > 0:
            self._send(name, _gradients(stage - 1), stage - 1)

    def _compute_act(self, act: Act, name: str, *, last: bool) -> None:
        """Compute, and exchange within the tensor group."""
        job, stage, forward = self.held[act.stage], act.stage, act.kind == "F"
        if last and self.layout.mesh.data > 1 and self.plans[stage].messages:
            self._last(act, name, job)
        else:
            kind = "forward" if forward else "backward"
            self._compute(name, kind, sum(_seconds(job, i, act.kind) for i in range(_size(job))))
            if act.kind != "W":
                self._exchange(name, job, range(_size(job)), forward=forward)

    def _compute(self, name: str, kind: str, seconds: float) -> None:
        self.done, self.gate = self.issue.add(name, kind, seconds=seconds, after=self.gate), ()

    def _last(self, act: Act, name: str, job: Job) -> None:
        """The last backward of a stage, layer by layer: each message starts when the gradients
        in it are there."""
        plan, order = self.plans[act.stage], list(job.model.backward_order())
        due: dict[int, list[int]] = {}
        for k, message in enumerate(plan.messages):
            due.setdefault(message.layer if plan.overlap else order[-1], []).append(k)
        for i in order:
            self._compute(f"{name}.{i}", "backward", _seconds(job, i, act.kind))
            if act.kind != "W":
                self._exchange(f"{name}.{i}", job, (i,), forward=False)
            if plan.copies and plan.copies[i]:
                self._compute(f"{name}.{i}.copy", "copy", plan.copies[i])
            ready = (self.done,)
            for k in due.get(i, ()):
                self._message(plan, act.stage, k, ready)

    def _message(self, plan: Synchronisation, stage: int, k: int, ready: tuple[int, ...]) -> None:
        message = plan.messages[k]
        self.sent.append(
            self.issue.collective(
                f"{message.name}.{stage}",
                message.operation,
                DATA,
                message.bytes,
                group=f"{DATA}.{self.row}",
                padding=message.padding,
                after=ready,
            )
        )

    # -- between ranks ---------------------------------------------------------------------------

    def _receive(self, name: str, stream: str, stage: int) -> None:
        """What `stage` (and the stage after it) sends; nothing where both are on this rank."""
        if self.layout.home(stage) == self.layout.home(stage + 1):
            return
        self.issue.add(
            f"receive.{name}", "transfer", stream=stream, group=stream, operation=RECEIVE,
            bytes=self._transfer_bytes(stage),
        )  # fmt: skip
        self.gate = (*self.gate, self.issue.last)
        if self._scattered:
            self._gather(f"gather.{name}", self._output_bytes(stage))

    def _send(self, name: str, stream: str, stage: int) -> None:
        if self.layout.home(stage) == self.layout.home(stage + 1):
            return
        self.issue.add(
            f"send.{name}", "transfer", stream=stream, group=stream, operation=SEND,
            bytes=self._transfer_bytes(stage), after=(self.done,),
        )  # fmt: skip
        if self.layout.blocking_sends:
            self.gate = (*self.gate, self.issue.last)

    def _output_bytes(self, stage: int) -> float:
        """What the last layer of `stage` puts out for one micro-batch [B]."""
        job = self.jobs(stage, self.share)
        return _bytes(job, job.model.layers[job.model.forward_order[-1]])

    def _transfer_bytes(self, stage: int) -> float:
        """What one rank sends: its share, where several split the layers (each sends a part, and
        receivers gather; Narayanan et al., arXiv:2104.04473, section 4.1)."""
        return self._output_bytes(stage) / self.layout.mesh.tensor

    @property
    def _scattered(self) -> bool:
        """Whether receivers must put together what they get in parts."""
        return self.layout.mesh.tensor > 1 and not self.layout.sequence

    def _gather(self, name: str, size: float) -> None:
        if size:
            self._within(name, "all_gather", size, 1)

    def _exchange(self, name: str, job: Job, layers: Sequence[int], *, forward: bool) -> None:
        """Activations (or their gradients) of these layers, among the ranks that split them.

        One all-reduce per layer and pass that ends or begins with a split matrix; with sequence
        parallelism an all-gather and a reduce-scatter instead.
        """
        if self.layout.mesh.tensor == 1:
            return
        sizes: dict[float, int] = {}
        for i in layers:
            layer = job.model.layers[i]
            # what keeps all its activations is not computed again: embedding, final norm, head
            again = self.layout.recompute and layer.activations_full < layer.activations
            for way in (True,) if forward else (False, True) if again else (False,):
                size = _exchanged(job, layer, forward=way)
                if size:
                    sizes[size] = sizes.get(size, 0) + 1
        for size, count in sizes.items():
            if self.layout.sequence:
                self._within(f"AG.{name}", "all_gather", size, count)
                self._within(f"RS.{name}", "reduce_scatter", size, count)
            else:
                self._within(f"AR.{name}", "all_reduce", size, count)

    def _within(self, name: str, operation: str, size: float, count: int) -> None:
        """Collectives of the tensor group; the compute stream waits for them."""
        self.done = self.issue.collective(
            name, operation, TENSOR, size,
            group=f"{TENSOR}.{self.row}", after=self.gate or (self.done,), repeats=count,
        )  # fmt: skip
        self.gate = (self.done,)

    # -- the end of the step ---------------------------------------------------------------------

    def _end(self, job: Job) -> None:
        """Wait for gradients, sum those of shared tables, wait for all ranks, optimizer."""
        back = sum(plan.copy_back for plan in self.plans.values()) if self.sent else 0.0
        if self.sent:
            self.issue.add("W", "wait", after=(*self.gate, *self.sent))
            self.gate = (self.issue.last,)
        if back:
            self._compute("copy.back", "copy", back)
        self._tables(job)
        after = self.gate or (self.issue.last,)
        operation, size = ("all_reduce", 4.0) if job.control else (BARRIER, 0.0)
        self.issue.collective("norm", operation, "world", size, control=True, after=after)
        self.gate = (self.issue.last,)
        parameters = sum(self.plans[s].share * j.model.parameters for s, j in self.held.items())
        self._compute("O", "optimizer", job.update * parameters)
        self._gathers()

    def _tables(self, job: Job) -> None:
        for k, (one, other, elements) in enumerate(self.layout.shared):
            if self.row not in (self.layout.home(one), self.layout.home(other)):
                continue
            width = DTYPE_BYTES[job.precision.parameters]
            self.issue.collective(
                f"table.{k}", "all_reduce", f"table.{k}", float(width * elements),
                group=f"table.{k}", after=self.gate or (self.done,),
            )  # fmt: skip
            self.gate = (self.issue.last,)

    def _gathers(self) -> None:
        """Collectives behind the optimizer; the next step starts when they have ended."""
        if self.layout.mesh.data == 1:
            return
        updated, found = self.issue.last, []
        for stage, plan in self.plans.items():
            for message in plan.gathers:
                found.append(
                    self.issue.collective(
                        f"{message.name}.{stage}", message.operation, DATA, message.bytes,
                        group=f"{DATA}.{self.row}", padding=message.padding, after=(updated,),
                    )
                )  # fmt: skip
        if found:
            self.issue.add("W'", "wait", after=tuple(found))

    def _buckets(self) -> tuple[tuple[str, float, tuple[str, ...]], ...]:
        if self.layout.mesh.data == 1:
            return ()
        return tuple(
            (f"{message.name}.{stage}", message.bytes, ())
            for stage, plan in self.plans.items()
            for message in plan.messages
        )


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
    items = blocks(model)
    what = "blocks" if any(len(item) > 1 for item in items) else "layers"
    if count > len(items):
        raise Refused(
            f"{count} stages of a model of {len(items)} {what}; at most {len(items)} stages "
            "(pipeline x chunks) are accepted",
            ("parallel", "pipeline"),
        )
    if wanted == "balanced":
        ends = balanced([sum(costs[i] for i in item) for item in items], count)
    elif len(items) % count:
        fitting = [n for n in range(1, len(items) + 1) if len(items) % n == 0]
        raise Refused(
            f"{len(items)} {what} do not make {count} equal stages; "
            f"{', '.join(map(str, fitting[-12:]))} would, or stages: balanced",
            ("parallel", "pipeline"),
        )
    else:
        ends = equal(len(items), count)
    return tuple(runs(items, ends))


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


def _size(job: Job) -> int:
    return len(job.model.layers)


def _seconds(job: Job, layer: int, kind: str) -> float:
    """How long `kind` ("F", "B", "I", "W") of one layer takes [s]."""
    times = job.times[layer]
    if kind == "F":
        return times.forward
    weight = times.backward * times.weight_share
    return {"B": times.backward, "I": times.backward - weight, "W": weight}[kind]


def _bytes(job: Job, layer: Layer) -> float:
    """What `layer` puts out for one micro-batch, whole [B]."""
    if layer.sends is not None:
        return layer.sends * job.samples
    return layer.output * job.samples * DTYPE_BYTES[job.precision.compute]


def _exchanged(job: Job, layer: Layer, *, forward: bool) -> float:
    """Bytes that the ranks that split `layer` sum for one micro-batch; explicit layers sum what
    they put out, both ways."""
    if layer.sends is not None:
        return _bytes(job, layer)
    elements = layer.forward_sum if forward else layer.backward_sum
    return elements * job.samples * DTYPE_BYTES[job.precision.compute]
