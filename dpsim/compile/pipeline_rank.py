"""The program of one pipeline rank: its schedule, its transfers, and its strategy's exchanges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dpsim.compile.dispatch import Dispatch
from dpsim.compile.exchange import Leg
from dpsim.compile.gathers import Gathers
from dpsim.compile.job import Job
from dpsim.compile.program import BARRIER, Program
from dpsim.compile.schedules import Act, spell
from dpsim.compile.stage_plan import StagePlan, plans_of
from dpsim.compile.stage_rank import StageRank, backward_stream, forward_stream
from dpsim.compile.step import Issue
from dpsim.compile.strategies import Strategy
from dpsim.core.dtypes import DTYPE_BYTES

#: the exchanges of every stage of a rank
Plans = Mapping[int, tuple[StagePlan, ...]]


@dataclass(eq=False)
class PipelineRank(StageRank):
    """Compiles the program of one pipeline rank.

    brought  stage -> what its first forward waits for, where a rank holds several
    opened   stages of which a forward has been issued
    """

    strategy: Strategy
    sent: list[int] = field(default_factory=list)
    seconds: dict[tuple[int, str], float] = field(default_factory=dict)
    brought: dict[int, tuple[int, ...]] = field(default_factory=dict)
    opened: set[int] = field(default_factory=set)

    def program(self, acts: Sequence[Act]) -> Program:
        """What it issues where it runs `acts`."""
        self.held = {s: self.jobs(s, self.share) for s in self.layout.held(self.row)}
        first = next(iter(self.held.values()))
        self.issue = Issue(first)
        schedule, mesh = self.layout.schedule, self.layout.mesh
        self.plans = {s: plans_of(self.strategy, job) for s, job in self.held.items()}
        self.dispatch = Dispatch(self.layout, self.row)
        if len(self.held) > 1:
            self.brought = {stage: self._bring(stage) for stage in self.held}
        self.paired = self.dispatch.paired(tuple(acts))
        final = {act.stage: k for k, act in enumerate(acts) if act.kind in ("B", "W")}
        blocks = schedule.blocks(self.row, mesh.pipeline, first.micro_batches)
        listing = spell(acts, schedule.chunks)
        names, todo = listing.split(" "), iter(enumerate(acts))
        for k, act in todo:
            # two operations side by side: both need all that either does, and end together
            block = [(k, act), next(todo)] if k in blocks else [(k, act)]
            named = [(n, a, names[n]) for n, a in block]
            for _, one, name in named:
                self._receive_for(one, name)
            for n, one, name in named:
                self._compute_act(one, name, last=final[one.stage] == n, paired=n in self.paired)
            for _, one, name in named:
                self._send_from(one, name)
        self._end(first)
        return self.issue.program(_buckets(self.plans), listing)

    # -- one operation of the schedule -----------------------------------------------------------

    def _receive_for(self, act: Act, name: str) -> None:
        stage = act.stage
        if act.kind == "F" and not self.layout.opens(stage):
            self._receive(name, forward_stream(stage - 1), stage - 1)
        if act.kind in ("B", "I") and not self.layout.closes(stage):
            self._receive(name, backward_stream(stage), stage)

    def _send_from(self, act: Act, name: str) -> None:
        stage = act.stage
        if act.kind == "F" and not self.layout.closes(stage):
            self._send(name, forward_stream(stage), stage)
        if act.kind in ("B", "I") and not self.layout.opens(stage):
            self._send(name, backward_stream(stage - 1), stage - 1)

    def _compute_act(self, act: Act, name: str, *, last: bool, paired: bool) -> None:
        """Compute, attend over the sequences of others, send tokens to experts and back, and
        exchange within the tensor group."""
        job, stage, forward = self.held[act.stage], act.stage, act.kind == "F"
        opening = forward and stage not in self.opened
        if opening:
            self.opened.add(stage)
            self.gate = (*self.gate, *self.brought.get(stage, ()))
        if opening and len(self.held) == 1 and any(p.exchange.beside for p in self.plans[stage]):
            self._opening(act, name, job)
        elif last and any(plan.exchange.messages for plan in self.plans[stage]):
            self._last(act, name, job)
        elif not (paired and self._beside(act, name, job)):
            seconds = self._pass_seconds(stage, act.kind)
            self._pass(act, name, job, range(_size(job)), seconds)

    def _pass(
        self, act: Act, name: str, job: Job, layers: range | tuple[int, ...], seconds: float
    ) -> None:
        """Compute some layers, all at once, and exchange what they put out."""
        self._attend(name, act, job, layers, seconds)
        if act.kind != "W":
            for size, count in self.dispatch.sizes(job, layers, forward=act.kind == "F"):
                self._route(name, size, count)
            self._exchange(name, job, layers, forward=act.kind == "F")

    def _opening(self, act: Act, name: str, job: Job) -> None:
        """The first forward of a stage whose parameters are gathered beside it: layers wait for
        their buckets, and those that need no more of them are computed together."""
        ahead = [_Ahead(self, p, act.stage) for p in self.plans[act.stage] if p.exchange.beside]
        order = job.model.forward_order
        first = set[int]().union(*(one.gathers.awaiting(order) for one in ahead))
        parts: list[tuple[int, ...]] = [()]
        for i in order:
            if i in first and parts[-1]:
                parts.append(())
            parts[-1] += (i,)
        for layers in parts:
            for one in ahead:
                one.before(layers[0])
            part = name if len(parts) == 1 else f"{name}.{layers[0]}"
            self._pass(act, part, job, layers, sum(_seconds(job, i, "F") for i in layers))

    def _beside(self, act: Act, name: str, job: Job) -> bool:
        """A pass whose all-to-alls run beside computing; False where there are none."""
        seconds = [_seconds(job, i, act.kind) for i in range(_size(job))]
        told = self.dispatch.beside(job, act, seconds)
        kind = "forward" if act.kind == "F" else "backward"
        if told is None:
            return False
        self._compute(name, kind, told.outside)
        for part, (size, count, beside) in zip("em", told.phases, strict=True):
            start = self.gate or (self.done,)
            sent = self.dispatch.send(self.issue, name, size, count, start)
            self._compute(f"{name}.{part}", kind, beside)
            self.done, self.gate = self.issue.add(f"W.{name}", "wait", after=sent), ()
        self._exchange(name, job, range(_size(job)), forward=act.kind == "F")
        return True

    def _route(self, name: str, size: float, count: int = 1) -> None:
        """All-to-alls of tokens, behind all that was issued; the compute stream waits for them."""
        start = self.gate + (self.done,) * (self.done >= 0)
        self.gate = self.dispatch.send(self.issue, name, size, count, start)
        self.done = self.gate[-1]
        if len(self.gate) > 1:
            self.done, self.gate = self.issue.add(f"W.{name}", "wait", after=self.gate), ()

    def _pass_seconds(self, stage: int, kind: str) -> float:
        """How long `kind` of all layers of a stage takes, of every micro-batch alike [s]."""
        if (stage, kind) not in self.seconds:
            job = self.held[stage]
            self.seconds[stage, kind] = sum(_seconds(job, i, kind) for i in range(_size(job)))
        return self.seconds[stage, kind]

    def _last(self, act: Act, name: str, job: Job) -> None:
        """The last backward of a stage, layer by layer: each message starts when the gradients
        in it are there."""
        for i in job.model.backward_order():
            own = job.model.layers[i]
            routed = () if act.kind == "W" else self.dispatch.of_layer(job, own, forward=False)
            for size in routed[:-1]:
                self._route(f"{name}.{i}", size)
            self._attend(f"{name}.{i}", act, job, (i,), _seconds(job, i, act.kind))
            if act.kind != "W":
                self._exchange(f"{name}.{i}", job, (i,), forward=False)
            for plan in self.plans[act.stage]:
                if seconds := job.work_seconds(plan.exchange.work_after(i)):
                    self._compute(f"{name}.{i}.copy", "copy", seconds)
            for plan in self.plans[act.stage]:
                for k in plan.exchange.due.get(i, ()):
                    after = (self.done, *(self.sent[-1:] if plan.exchange.in_turn else ()))
                    legs = plan.exchange.messages[k].legs
                    self.sent.append(self._message(plan, legs, k, act.stage, after))
            for size in routed[-1:]:  # gradients of weights are there before the tokens' leave
                self._route(f"{name}.{i}", size)

    def _message(
        self,
        plan: StagePlan,
        legs: Sequence[Leg],
        number: int | str,
        stage: int,
        after: tuple[int, ...],
    ) -> int:
        group = f"{plan.group}.{self.layout.first_home(stage)}"
        return self.issue.send(legs, f"{plan.mark}{number}.{stage}", plan.group, after, group=group)

    # -- the end of the step ---------------------------------------------------------------------

    def _end(self, job: Job) -> None:
        """Wait for gradients, sum those of shared tables, wait for all ranks, optimizer."""
        if self.sent:
            self.issue.add("W", "wait", after=(*self.gate, *self.sent))
            self.gate = (self.issue.last,)
            plans = (plan for own in self.plans.values() for plan in own)
            if back := sum(job.work_seconds(plan.exchange.work_back) for plan in plans):
                self._compute("copy.back", "copy", back)
        self._tables(job)
        after = self.gate or (self.issue.last,)
        operation, size = ("all_reduce", 4.0) if job.control else (BARRIER, 0.0)
        self.issue.collective("norm", operation, "world", size, control=True, after=after)
        self.gate = (self.issue.last,)
        self._compute("O", "optimizer", job.update_seconds(_updated(self.plans)))
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

    def _bring(self, stage: int) -> tuple[int, ...]:
        """Gather what the step before has updated of `stage`, all of it, where that is done beside
        forward."""
        found = list[int]()
        for plan in self.plans[stage]:
            for k in range(len(plan.exchange.gathers) * plan.exchange.beside):
                found.append(self.gather_bucket(plan, stage, k, (), first=not k))
        return tuple(found[-1:])

    def gather_bucket(
        self, plan: StagePlan, stage: int, k: int, after: tuple[int, ...], *, first: bool
    ) -> int:
        """Dispatch the gather of bucket `k`, the `first` of a step or not."""
        leg, group = plan.exchange.gathers[k], f"{plan.group}.{self.layout.first_home(stage)}"
        name = f"{plan.mark}.{stage}"
        return self.issue.send((leg,), name, plan.group, after, group=group, after_step=first)

    def _gathers(self) -> None:
        """Collectives behind the optimizer; the next step starts when they have ended."""
        updated, found = (self.issue.last,), list[int]()
        for stage, own in self.plans.items():
            for plan in own:
                for leg in () if plan.exchange.beside else plan.exchange.gathers:
                    after = tuple(found[-1:]) if plan.exchange.in_turn else ()
                    found.append(self._message(plan, (leg,), "", stage, after or updated))
        if found:
            self.issue.add("W'", "wait", after=tuple(found))


class _Ahead:
    """The gathers of one exchange beside the first forward of a stage."""

    def __init__(self, rank: PipelineRank, plan: StagePlan, stage: int) -> None:
        self.rank, self.plan, self.stage = rank, plan, stage
        self.gathers = Gathers(plan.job, plan.exchange)

    def before(self, layer: int) -> None:
        """What `layer` waits for."""
        self.gathers.before(layer, self._send, self._wait)

    def _send(self, k: int, first: bool) -> int:
        rank = self.rank
        after = rank.gate or (() if rank.done < 0 else (rank.done,))
        return rank.gather_bucket(self.plan, self.stage, k, after, first=first)

    def _wait(self, k: int, gather: int) -> None:
        rank, name = self.rank, f"W.AG{k}{self.plan.mark}.{self.stage}"
        rank.done, rank.gate = rank.issue.add(name, "wait", after=(*rank.gate, gather)), ()


def _size(job: Job) -> int:
    return len(job.model.layers)


def _seconds(job: Job, layer: int, kind: str) -> float:
    """How long `kind` ("F", "B", "I", "W") of one layer takes [s]."""
    times = job.times[layer]
    if kind == "F":
        return times.forward
    weight = times.backward * times.weight_share
    return {"B": times.backward, "I": times.backward - weight, "W": weight}[kind]


def _buckets(plans: Plans) -> tuple[tuple[str, float, tuple[str, ...]], ...]:
    """The messages of all stages, by name, with their bytes."""
    return tuple(
        (f"{message.legs[0].name}{plan.mark}{k}.{stage}", message.legs[0].bytes, ())
        for stage, own in plans.items()
        for plan in own
        for k, message in enumerate(plan.exchange.messages)
    )


def _updated(plans: Plans) -> float:
    """Parameters that the optimizer updates on this rank."""
    found = (plan for own in plans.values() for plan in own)
    return sum(1.0 / plan.exchange.shards * plan.job.model.trained for plan in found)
