"""What one pipeline rank issues on its device and between ranks: passes, transfers to other stages,
and what the ranks exchange that split its layers and its sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from dpsim.compile.asynchronous import TensorPasses, waits
from dpsim.compile.context import ContextPasses, PassPost, Posts, hidden
from dpsim.compile.job import Job
from dpsim.compile.layout import TENSOR, Layout
from dpsim.compile.program import RECEIVE, SEND
from dpsim.compile.schedules import Act
from dpsim.compile.step import Issue
from dpsim.core.dtypes import operand_bytes, working_bytes
from dpsim.models import Layer
from dpsim.models.few_bits import is_cast
from dpsim.models.recomputing import exchanged_again

#: how listings call operations of a tensor group
SHORT = {"all_gather": "AG", "reduce_scatter": "RS", "all_reduce": "AR"}
#: one rank's part of a stage: (stage, samples of its micro-batches) -> Job
Jobs = Callable[[int, int], Job]


def forward_stream(stage: int) -> str:
    """Name of the stream and of the pairs from `stage` to the next one."""
    return f"activations.{stage}"


def backward_stream(stage: int) -> str:
    """Name of the stream and of the pairs that bring gradients back to `stage`."""
    return f"gradients.{stage}"


@dataclass(eq=False)
class StageRank:
    """Issues operations of pipeline rank `row`, whose micro-batches have `share` samples.

    gate, done   what the next operation on the device waits for, and the last one there
    """

    layout: Layout
    row: int
    share: int
    jobs: Jobs
    issue: Issue = field(init=False)
    gate: tuple[int, ...] = field(default=(), kw_only=True)
    done: int = field(default=-1, kw_only=True)
    exchanged: dict[object, dict[tuple[str, float], int]] = field(
        default_factory=dict, kw_only=True
    )
    put_out: dict[int, float] = field(default_factory=dict, kw_only=True)

    def _compute(self, name: str, kind: str, seconds: float) -> None:
        self.done, self.gate = self.issue.add(name, kind, seconds=seconds, after=self.gate), ()

    def _attend(
        self, name: str, act: Act, job: Job, layers: range | tuple[int, ...], seconds: float
    ) -> None:
        """A pass through `layers`, with what ranks that split sequences exchange."""
        posts = self._posts(job, layers, act.kind)
        alone, beside = hidden(posts, seconds)
        kind = "forward" if act.kind == "F" else "backward"
        self._compute(name, kind, alone)
        self._attended(name, kind, posts, beside)

    def _attended(self, name: str, kind: str, posts: Posts, beside: Sequence[float]) -> None:
        """What is exchanged behind what was computed, and the attention beside it."""
        for number, (post, own) in enumerate(zip(posts, beside, strict=True)):
            sent = self._post(f"CP.{name}.c{number}", post)
            if own:
                self._compute(f"{name}.c{number}", kind, own)
                sent = self.issue.add(f"W.{name}.c{number}", "wait", after=(sent,))
            self.done, self.gate = sent, () if own else (sent,)

    def _post(self, name: str, post: PassPost) -> int:
        return self.issue.collective(
            name, post.operation, post.group, post.bytes, group=f"{post.group}.{self.row}",
            after=self.gate or (self.done,), repeats=post.repeats,
        )  # fmt: skip

    @cached_property
    def passes(self) -> ContextPasses | None:
        """What ranks that split sequences exchange; None where none do."""
        way = self.layout.splitting
        return None if way is None else ContextPasses(self.layout.recompute, way)

    def _posts(self, job: Job, layers: range | tuple[int, ...], kind: str) -> Posts:
        """What runs beside a pass through `layers`, or between its parts."""
        found = self.passes.of(job, layers, kind) if self.passes else ()
        return found + (self.beside.of(job, layers, kind) if self.beside else ())

    @cached_property
    def beside(self) -> TensorPasses | None:
        """What ranks that split layers exchange beside computing; None where they wait for it."""
        layout = self.layout
        if not (layout.asynchronous or layout.overlapped) or layout.mesh.tensor == 1:
            return None
        return TensorPasses(
            layout.recompute, layout.mesh.tensor, TENSOR, self._of_layer,
            cut=layout.asynchronous, overlapped=layout.overlapped, sequence=layout.sequence,
        )  # fmt: skip

    def _of_layer(self, job: Job, layer: Layer, forward: bool) -> tuple[float, float]:
        if layer.experts and self.layout.mesh.expert_tensor < self.layout.mesh.tensor:
            return 0.0, 0.0  # each has its own experts whole
        return _exchanged(job, layer, forward=forward)

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
        if stage not in self.put_out:
            job = self.jobs(stage, self.share)
            self.put_out[stage] = _bytes(job, job.model.layers[job.model.forward_order[-1]])
        return self.put_out[stage]

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

    def _exchange(
        self, name: str, job: Job, layers: range | tuple[int, ...], *, forward: bool
    ) -> None:
        """Activations (or their gradients) of these layers, among the ranks that split them, that
        nothing runs beside."""
        if self.layout.mesh.tensor == 1 or self.layout.asynchronous:
            return
        key = (job.stage, layers, forward)
        if key not in self.exchanged:
            self.exchanged[key] = waited_for(self.layout, job, layers, forward=forward)
        for (operation, size), count in self.exchanged[key].items():
            self._within(f"{SHORT[operation]}.{name}", operation, size, count)

    def _within(self, name: str, operation: str, size: float, count: int) -> None:
        """Collectives of the tensor group, which wait for all that the compute stream was given
        before (torch ProcessGroupNCCL.cpp, syncStream), and for which it waits."""
        awaited = self.gate if self.done in self.gate or self.done < 0 else (*self.gate, self.done)
        self.done = self.issue.collective(
            name, operation, TENSOR, size,
            group=f"{TENSOR}.{self.row}", after=awaited, repeats=count,
        )  # fmt: skip
        self.gate = (self.done,)


def _bytes(job: Job, layer: Layer) -> float:
    """What `layer` puts out for one micro-batch, whole [B]."""
    if layer.sends is not None:
        return layer.sends * job.samples
    return layer.output * job.samples * working_bytes(job.precision.compute)


def _exchanged(job: Job, layer: Layer, *, forward: bool) -> tuple[float, float]:
    """Bytes that the ranks that split `layer` gather, where they split the sequence too, and sum
    for one micro-batch; explicit layers sum what they put out, both ways.

    With products in 8 or 4 bits a block's inputs, and the gradients of its outputs, are cast before
    they are gathered (pytorch/ao torchao/float8/float8_tensor_parallel.py;
    NVIDIA/TransformerEngine transformer_engine/pytorch/distributed.py, `_all_gather_nvfp4`).
    """
    if layer.sends is not None:
        return _bytes(job, layer), _bytes(job, layer)
    elements = layer.forward_sum if forward else layer.backward_sum
    dtype = job.precision.compute
    each, wide = elements * job.samples, working_bytes(dtype)
    return each * (operand_bytes(dtype) if is_cast(layer, dtype) else wide), each * wide


def waited_for(
    layout: Layout, job: Job, layers: Iterable[int], *, forward: bool
) -> dict[tuple[str, float], int]:
    """(operation, bytes) of what ranks that split these layers exchange in a pass of every
    micro-batch alike with nothing beside it, and how often.

    One all-reduce per layer and pass that ends or begins with a split matrix; with sequence
    parallelism an all-gather and a reduce-scatter instead, of which overlapped gradients leave
    backward the gather.  Backward repeats those of what it computes again.
    """
    found: dict[tuple[str, float], int] = {}
    for i in layers:
        layer = job.model.layers[i]
        if layer.experts and layout.mesh.expert_tensor < layout.mesh.tensor:
            continue  # each has its own experts whole
        gathers, sums = exchanged_again(layer, layout.recompute, sequence=layout.sequence)
        waited = not layout.overlapped or waits(job.model, layer)
        own = [(True, True, True)] if forward else [(False, True, waited), (True, gathers, sums)]
        for way, gathering, summing in own:
            gathered, size = _exchanged(job, layer, forward=way)
            if not (gathered or size):
                continue
            sent = [("all_gather", gathered)] * (layout.sequence and gathering)
            sent += [("reduce_scatter" if layout.sequence else "all_reduce", size)] * summing
            for one in sent:
                found[one] = found.get(one, 0) + 1
    return found
