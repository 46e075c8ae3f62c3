"""The program of one rank of a mesh whose strategy does something in every pass: it gathers
parameters, reduces gradients, or both.

A walk of the strategy (`Strategy.stage_walk`) issues the passes of a stage layer by layer, and the
ranks that split a layer exchange right behind it.  Without a pipeline that is the walk of the whole
model, as where nothing is split.  With one, torch's runtime decides when parameters come and
gradients go (torch/distributed/pipelining/schedules.py and stage.py, 2.13):

* Schedules of one stage a rank leave gathering to the hooks of the first passes; the others gather
  the next three stages that a rank will run, whole, and give up what is not among them
  (`_add_unshard_reshard`).
* No backward reduces or gives up anything (`backward_maybe_with_nosync`); behind a stage's last one
  all is reduced, and compute waits for it (`perform_reduce_grad`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dpsim.compile.context import hidden
from dpsim.compile.job import Job
from dpsim.compile.layout import DATA
from dpsim.compile.pipeline_rank import PipelineRank
from dpsim.compile.program import COMPUTE, Program
from dpsim.compile.schedules import Act
from dpsim.compile.step import Issue, StepWalk
from dpsim.core.plugins import name_of
from dpsim.core.record import Refused
from dpsim.models.compute import LayerTime

#: stages of a rank that torch's runtime has gathered at a time (`max_active_stages`)
ACTIVE = 3


class StageIssue(Issue):
    """What the walk of one stage issues into the program of its rank.

    gate   what the next operation of the compute stream waits for
    """

    def __init__(self, issue: Issue, row: int, mark: str) -> None:
        self.ops, self.row, self.mark = issue.ops, row, mark
        self.gate: tuple[int, ...] = ()

    def add(self, name: str, kind: str, **rest: Any) -> int:
        """Append an operation: its group is the one of this stage's replicas."""
        if kind == "collective":
            group = rest.get("group", "world")
            rest["group"] = f"{DATA if group == 'world' else group}.{self.row}"
        elif self.gate and rest.get("stream", COMPUTE) == COMPUTE:
            rest["after"] = (*rest.get("after", ()), *self.gate)
            self.gate = ()
        return super().add(f"{name}{self.mark}", kind, **rest)


@dataclass(eq=False)
class WalkedRank(PipelineRank):
    """Compiles the program of one rank of such a mesh.

    walks   stage -> who issues its passes
    active  stages that are gathered, or will be, in the order in which that was decided
    due     stages whose last pass has been issued
    weighed   stages of which a backward for the weights has been issued
    at      operations of the schedule that have been begun
    """

    walks: dict[int, StepWalk] = field(default_factory=dict)
    active: list[int] = field(default_factory=list)
    due: set[int] = field(default_factory=set)
    weighed: set[int] = field(default_factory=set)
    at: int = 0

    def program(self, acts: Sequence[Act]) -> Program:
        if self.layout.mesh.expert > 1:
            self._accept_experts()
        self.acts = tuple(acts)
        found = super().program(acts)
        return found if self._piped else replace(found, listing="")

    def _accept_experts(self) -> None:
        """Refuse what is not modelled where experts are shared out."""
        if not self.strategy.shares_experts:
            raise Refused(
                f"sharing out experts is not modelled with {name_of(self.strategy)}; 1 is "
                "accepted, or ddp, fsdp, zero and megatron",
                ("parallel", "expert"),
            )
        if self.layout.moe.overlap:
            raise Refused(
                "beside the computing of another micro-batch is modelled with ddp, zero (stage 1) "
                "and megatron; false is accepted",
                ("moe", "overlap"),
            )

    @property
    def _piped(self) -> bool:
        return self.layout.mesh.pipeline > 1

    def _walk(self, stage: int) -> StepWalk:
        if stage not in self.walks:
            job = self.held[stage]
            walk = self.strategy.stage_walk(job)
            assert walk is not None
            mark = f"@{stage}" if job.stages > 1 else ""
            walk.issue = StageIssue(self.issue, self.row, mark)
            walk.behind = lambda layer, forward: self._passed(walk, layer, forward=forward)
            if self.layout.routes:
                walk.leading = lambda layer, forward: self._dispatched(walk, layer, forward=forward)
            if self.layout.sequence:
                walk.summed = lambda name, size, count: self._summed(walk, name, size, count)
            self.walks[stage] = walk
        return self.walks[stage]

    def _dispatched(self, walk: StepWalk, layer: int, *, forward: bool) -> None:
        """Send tokens to the experts of a layer, or gradients of what came back; where backward
        computes again, forward's come first."""
        own = walk.job.model.layers[layer]
        sizes = self.dispatch.of_layer(walk.job, own, forward=forward)[:-1]
        self._tokens(walk, layer, sizes, forward=forward)

    def _tokens(self, walk: StepWalk, layer: int, sizes: Sequence[float], *, forward: bool) -> None:
        """All-to-alls behind what was computed; compute waits for them."""
        issue = walk.issue
        assert isinstance(issue, StageIssue)
        for size in sizes:
            self.done, self.gate = next(iter(issue.computed), -1), issue.gate
            self._route(walk.label("F" if forward else "B", layer), size)
            issue.gate = self.gate

    def _passed(self, walk: StepWalk, layer: int, *, forward: bool) -> None:
        """Exchange behind a layer's pass, within the group that splits sequences, beside its
        attention, and within the one that splits layers."""
        issue, kind = walk.issue, "F" if forward else "B"
        assert isinstance(issue, StageIssue)
        self.done, self.gate = issue.last, ()
        name = walk.label(kind, layer)
        if posts := self._posts(walk.job, (layer,), kind):
            own = issue.ops[self.done]
            alone, beside = hidden(posts, own.seconds)
            issue.ops[self.done] = own._replace(seconds=alone)
            self._attended(name, own.kind, posts, beside)
            if self.gate:  # gradients of the layer are made behind it
                issue.add(f"W.{name}", "wait", after=self.gate)
                self.gate = ()
        self._exchange(name, walk.job, (layer,), forward=forward)
        issue.gate = self.gate
        sizes = self.dispatch.of_layer(walk.job, walk.job.model.layers[layer], forward=forward)
        self._tokens(walk, layer, sizes[-1:], forward=forward)

    def _summed(self, walk: StepWalk, name: str, size: float, count: int) -> None:
        """Sum gradients within the tensor group, once compute has made them."""
        issue = walk.issue
        assert isinstance(issue, StageIssue)
        self.done, self.gate = issue.computed[0], issue.gate
        self._within(f"AR.{name}", "all_reduce", size, count)
        issue.gate = self.gate

    # -- one operation of the schedule -----------------------------------------------------------

    def _receive_for(self, act: Act, name: str) -> None:
        if self._piped and self.layout.schedule.gathers_ahead:
            self._gather_ahead()
        self.at += 1
        super()._receive_for(act, name)

    def _gather_ahead(self) -> None:
        """Of the stages to come, bring the first ones; give up what is not among them."""
        coming = list(dict.fromkeys(act.stage for act in self.acts[self.at :]))[:ACTIVE]
        for stage in [stage for stage in self.active if stage not in coming]:
            self._walk(stage).give_up()
            self.active.remove(stage)
        for stage in [stage for stage in coming if stage not in self.active]:
            self._walk(stage).bring()
            self.active.append(stage)

    def _compute_act(self, act: Act, name: str, *, last: bool, paired: bool) -> None:
        walk, job = self._walk(act.stage), self.held[act.stage]
        if last:
            self.due.add(act.stage)
        self._note_kept(act, walk)
        if walk.idle(act.kind):
            super()._compute_act(act, name, last=False, paired=paired)
            return
        issue = walk.issue
        assert isinstance(issue, StageIssue)
        walk.m, walk.act = act.micro_batch, name if self._piped else ""
        issue.gate, self.gate = self.gate, ()
        if self._piped and issue.gate:  # gathers of this pass come behind what it received
            issue.add(f"W.{name}", "wait")
        walk.arrive_ahead()
        if act.kind == "F":
            walk.forward(job.times)
        else:
            walk.backward(_of(act.kind, job))
        self.gate = issue.gate
        self.done = max((*issue.computed, *self.gate))

    def _note_kept(self, act: Act, walk: StepWalk) -> None:
        """Gradients of weights are kept by the next backward that reaches the stage's inputs; the
        first stage, which has no such inputs, makes all of a backward at once."""
        if act.kind == "W":
            self.weighed.add(act.stage)
        whole = act.kind == "B" or (act.kind == "W" and act.stage == 0)
        walk.kept |= whole or (act.kind == "I" and act.stage in self.weighed)

    def _send_from(self, act: Act, name: str) -> None:
        super()._send_from(act, name)
        if act.stage not in self.due:
            return
        self.due.remove(act.stage)
        walk = self._walk(act.stage)
        issue = walk.issue
        assert isinstance(issue, StageIssue)
        issue.gate = self.gate
        walk.conclude()
        self.gate = issue.gate


def _of(kind: str, job: Job) -> tuple[LayerTime, ...]:
    """The times of a backward, or of its part for the input ("I")."""
    if kind == "B":
        return job.times
    return tuple(
        replace(time, backward=time.backward * (1.0 - time.weight_share)) for time in job.times
    )
