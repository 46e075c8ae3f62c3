"""Dispatch and combine: the all-to-alls of the layers with experts of one pipeline rank."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from dpsim.compile.job import Job
from dpsim.compile.layout import Layout
from dpsim.compile.routing import copies
from dpsim.compile.schedules import Act
from dpsim.compile.step import Issue
from dpsim.core.lean import dataclass
from dpsim.models import Layer
from dpsim.models.recomputing import WHOLE_BLOCKS, done_again


@dataclass(frozen=True)
class HiddenPass:
    """A pass whose all-to-alls run beside its computing.

    outside   seconds of layers that have no experts near
    phases    (bytes of all copies, how often, seconds of computing beside it), in order
    """

    outside: float
    phases: tuple[tuple[float, int, float], ...]


@dataclass(eq=False)
class Dispatch:
    """Sizes and operations of the all-to-alls of pipeline rank `row`."""

    layout: Layout
    row: int
    known: dict[object, tuple[tuple[float, int], ...]] = field(default_factory=dict)

    def sizes(
        self, job: Job, layers: Iterable[int], *, forward: bool
    ) -> tuple[tuple[float, int], ...]:
        """(bytes of all copies of all tokens, how often) of a pass through `layers`, what is equal
        together: tokens leave and come back."""
        key = (job.stage, tuple(layers), forward)
        if key not in self.known:
            found: dict[float, int] = {}
            for i in key[1] if self.layout.routes else ():
                for size in self.of_layer(job, job.model.layers[i], forward=forward):
                    found[size] = found.get(size, 0) + 1
            self.known[key] = tuple(found.items())
        return self.known[key]

    def of_layer(self, job: Job, layer: Layer, *, forward: bool) -> tuple[float, ...]:
        """The same of one layer, one by one: out and back; where backward computes again, forward's
        come first."""
        if not layer.experts or not self.layout.routes:
            return ()
        out, back = self.layout.moe.widths(job.precision.compute)
        there, home = copies(layer, job.samples, out), copies(layer, job.samples, back)
        if not home:
            return ()
        if forward:
            return there, home
        recompute = self.layout.recompute
        again = done_again(layer, recompute) or (recompute in WHOLE_BLOCKS and layer.unit)
        return (there, home, home, home) if again else (home, home)

    def send(
        self, issue: Issue, name: str, size: float, count: int, after: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Issue `count` all-to-alls of `size` bytes a rank, one after the other; returns what ends
        them."""
        return tuple(
            issue.collective(
                f"A2A.{name}", "all_to_all", way.group, size * way.share,
                group=f"{way.group}.{self.row}", after=after, repeats=count,
            )
            for way, _ in self.layout.routes[self.row]
        )  # fmt: skip

    def paired(self, acts: list[Act] | tuple[Act, ...]) -> frozenset[int]:
        """The operations beside which another micro-batch computes: forwards after the first
        backward, and backwards before the last forward."""
        if not (self.layout.routes and self.layout.moe.overlap):
            return frozenset()
        forwards = [k for k, act in enumerate(acts) if act.kind == "F"]
        backwards = [k for k, act in enumerate(acts) if act.kind in ("B", "I")]
        found = {k for k in forwards if k > min(backwards)}
        return frozenset(found | {k for k in backwards if k < max(forwards)})

    def beside(self, job: Job, act: Act, seconds: list[float]) -> HiddenPass | None:
        """`act` of a stage whose layers take `seconds`, with its all-to-alls beside its computing;
        None where it has none.

        NVIDIA/Megatron-LM (`overlap_moe_expert_parallel_comm`) runs the dispatch of one micro-batch
        beside the experts of another, and what combines beside its attention.  All-to-alls of all
        passes are alike, so each may as well be told beside the same part of its own pass.
        """
        layers = job.model.layers
        units = {layer.unit for layer in layers if layer.experts}
        sizes = [
            sent for layer in layers if (sent := self.of_layer(job, layer, forward=act.kind == "F"))
        ]
        if not sizes:
            return None
        own = sum(s for s, layer in zip(seconds, layers, strict=True) if layer.experts)
        near = sum(
            s
            for s, layer in zip(seconds, layers, strict=True)
            if layer.unit in units and not layer.experts
        )
        first, second = sizes[0][0], sizes[0][1]
        many = sum(len(sent) for sent in sizes) // 2
        pairs = zip(seconds, layers, strict=True)
        outside = sum(s for s, layer in pairs if layer.unit not in units)
        return HiddenPass(outside, ((first, many, own), (second, many, near)))
