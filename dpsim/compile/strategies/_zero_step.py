"""The operations of one step of ZeRO: gathers, what reductions wait for, copies to the host (see
`zero`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpsim.compile.exchange import Message
from dpsim.compile.job import Job, gradients_of, parameters_of
from dpsim.compile.program import BARRIER
from dpsim.compile.routing import EXPERT_DATA
from dpsim.compile.step import ExchangeStep
from dpsim.compile.strategies._offload import MASTER_BYTES
from dpsim.compile.strategies._zero3 import Limits, VisitTrace, trace
from dpsim.compile.strategies._zero_exchange import COMM
from dpsim.core.record import Refused
from dpsim.models.compute import LayerTime

if TYPE_CHECKING:
    from dpsim.compile.strategies.zero import Zero

OFFLOAD = "zero.offload"
SECONDARY, SELF = "hpz", "self"
INT8 = 1.0  # bytes an element; scales are left out
#: stage3.py: a flush waits until at most this many reduce-scatters are under way
REDUCTIONS = 2


class ZeroStep(ExchangeStep):
    """Issues the operations of one step.

    sent    the last operation of every reduction of the step
    waited  how many of them the compute stream has waited for
    named   them, as buckets are listed
    """

    def __init__(self, knobs: Zero, job: Job, iteration: int | None) -> None:
        self.knobs, self.iteration = knobs, iteration
        super().__init__(job, knobs.exchange(job, iteration), quiet=knobs.stage == 1)
        self.gradients, self.parameters = gradients_of(job), parameters_of(job)
        self.host = knobs.host(job)
        self.in_turn = self.host is not None  # the copy before it is on the same stream
        self._check_node()
        self.gathers: _Gathers | None = None
        self.waited = 0
        self.named: list[tuple[str, float, tuple[str, ...]]] = []

    def _check_node(self) -> None:
        """On a machine the ranks of a node are known."""
        knobs, job = self.knobs, self.job
        if not knobs.zero_quantized_gradients or job.local_size is None:
            return
        if (size := knobs.node(job.ranks)) != job.local_size:
            raise Refused(
                f"a node has {job.local_size} ranks here, not {size}",
                ("strategy", "local_world_size"),
            )

    # -- gathering (stage 3) ------------------------------------------------------------------

    def forward(self, times: Sequence[LayerTime]) -> None:
        if self.knobs.stage == 3:
            self.gathers = _Gathers(self, self._trace())
            self.gathers.visit()  # the root module
        super().forward(times)

    def _trace(self) -> VisitTrace:
        first = self.iteration == 1
        recorded = self.knobs.as_shipped and not (first and self.m == 0)
        resident = not (first and self.m <= 1)
        return traced(self.knobs.limits, self.job, recorded=recorded, resident=resident)

    def backward(self, times: Sequence[LayerTime]) -> None:
        if self.gathers:
            self.gathers.backward()
            self.gathers.visit()  # the root module
        super().backward(times)

    def before_forward(self, layer: int) -> tuple[int, ...]:
        return self.gathers.visit() if self.gathers else ()

    def before_backward(self, layer: int) -> tuple[int, ...]:
        return self.gathers.visit() if self.gathers else ()

    # -- reducing -----------------------------------------------------------------------------

    def send(self, k: int) -> None:
        """One reduction, and what the compute stream waits for around it."""
        if self.knobs.as_shipped and self.knobs.overlaps:
            self._wait_until(REDUCTIONS if self.knobs.stage == 3 else 0)
        first = len(self.issue.ops)
        super().send(k)
        message = self.exchange.messages[k]
        names = tuple(self.gradients[g].name for g in message.gradients)
        self.named.append((self.issue.ops[first].name, message.bytes, names))
        if self.host:
            self.sent[-1] = self._to_host(message)
        if not self.knobs.overlaps:
            self._wait_until(0)

    def number(self, k: int) -> str:
        """Reductions are counted through the step."""
        return str(len(self.sent))

    def _to_host(self, message: Message) -> int:
        """Copy the rank's slice of a reduced bucket to the host, after the copy before it."""
        assert self.host is not None
        done = self.sent[-1]
        elements = sum(self.gradients[g].elements for g in message.gradients)
        seconds = self.host.copy(MASTER_BYTES * elements / self.exchange.shards)
        name = f"D2H{len(self.sent) - 1}"
        if not self.knobs.overlaps:  # everything is on the compute stream
            self.issue.add(f"W.{name}", "wait", after=(done,))
            return self.issue.add(name, "serial", seconds=seconds)
        return self.issue.collective(
            name, BARRIER, OFFLOAD, 0.0, after=(done,), delay=seconds, group=SELF
        )

    def _wait_until(self, under_way: int) -> None:
        """The compute stream waits until at most so many reductions are under way."""
        done = len(self.sent) - under_way
        if done > self.waited:
            self.waited = done
            self.issue.add(f"W{done - 1}", "wait", after=(self.sent[done - 1],))

    # -- the end ------------------------------------------------------------------------------

    def arrive(self) -> None:
        """Reductions run on from one micro-batch into the next; the last one ends the step's."""
        if self.last:
            self.issue.add("W", "wait", after=(self.sent[-1],))

    def update(self) -> None:
        """Agree on overflow and norm; update a shard on the device, or on the host and copy the
        parameters back."""
        job, issue = self.job, self.issue
        if self.knobs.as_shipped and job.control:
            self.agree("overflow", 1.0, COMM)
            self.agree("norm", 4.0, COMM)
        parameters = job.model.trained / self.exchange.shards
        if self.host is None:
            issue.add("O", "optimizer", seconds=job.update * parameters)
            return
        issue.add("O", "serial", seconds=self.host.update(job.optimizer.kind, parameters))
        share = parameters / max(job.model.trained, 1)
        size = sum(gradient.bytes for gradient in self.gradients) * share
        issue.add("H2D", "serial", seconds=self.host.copy(size))

    def buckets(self) -> tuple[tuple[str, float, tuple[str, ...]], ...]:
        return tuple(self.named)


class _Gathers:
    """Issues the all-gathers of one forward and backward as modules are visited."""

    def __init__(self, run: ZeroStep, plan: VisitTrace) -> None:
        self.run, self.visits = run, iter(plan.visits)
        self.uses = _uses(run.job)
        self.by: dict[int, int] = {}  # parameter -> the gather that brought it
        self.count = 0
        self.group = "world"

    def backward(self) -> None:
        """From here on gathers are of the secondary copy, if there is one."""
        if self.run.knobs.zero_hpz_partition_size > 1:
            self.group = SECONDARY

    def visit(self) -> tuple[int, ...]:
        """The gathers that the next module of the trace waits for."""
        visit = next(self.visits)
        self._gather(visit.fetch)
        needed = {self.by[p] for p in self.uses[visit.module] if p in self.by}
        self._gather(visit.prefetch)
        return tuple(sorted(needed))

    def _gather(self, parameters: tuple[int, ...]) -> None:
        if not parameters:
            return
        by_group: dict[str, list[int]] = {}  # (partition_parameters.py, all_gather_coalesced)
        for p in parameters:
            experts = self.run.job.elsewhere_held(self.run.parameters[p].layer)
            by_group.setdefault(EXPERT_DATA if experts else self.group, []).append(p)
        for group, members in by_group.items():
            self._gather_among(group, members)

    def _gather_among(self, group: str, parameters: Sequence[int]) -> None:
        """One all-gather of parameters that the ranks of `group` share."""
        found = [self.run.parameters[p] for p in parameters]
        quantised = self.run.knobs.zero_quantized_weights
        size = sum(min(g.bytes, INT8 * g.elements) if quantised else g.bytes for g in found)
        first = self.run.m == 0 and self.count == 0
        name = self.run.label("AG", self.count)
        gathered = self.run.issue.collective(
            name, "all_gather", COMM, size, after_step=first, group=group
        )
        self.by.update(dict.fromkeys(parameters, gathered))
        self.count += 1


def _uses(job: Job) -> list[list[int]]:
    """Per layer, the indices of the parameters that it uses, tied ones included; last the root
    module, which has none of its own."""
    found: list[list[int]] = []
    first: dict[str, int] = {}
    index = 0
    for layer in job.model.layers:
        first[layer.name] = index
        own = list(range(index, index + len(layer.tensors)))
        found.append(([first[layer.tied]] if layer.tied is not None else []) + own)
        index += len(layer.tensors)
    return [*found, []]


def traced(limits: Limits, job: Job, *, recorded: bool, resident: bool = True) -> VisitTrace:
    """What is gathered, and when, in one forward and backward of a model."""
    root = len(job.model.layers)
    order = [root, *job.model.forward_order, root, *job.model.backward_order()]
    elements = [p.elements for p in parameters_of(job)]
    return trace(order, _uses(job), elements, limits, recorded=recorded, resident=resident)
