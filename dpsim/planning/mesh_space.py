"""The meshes that a cluster and a global batch allow, as settings of a scenario.

tensor x pipeline x context x data are the ranks.  Tensor ranks lie in one node and divide heads;
stages hold a block at least; ranks that split a sequence divide it, none into less than 1,024
tokens each, and data parallelism divides the
global batch; experts divide experts, and context x data (with tensor, where tensor ranks hold whole
experts).  Micro-batches of a replica are its share of the batch halved as often as that goes.  A
scenario's own schedule is kept, and how samples are dealt where a rank holds the model; layers go
to stages in equal counts where that can be, balanced otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from dpsim.cases.case import Case
from dpsim.cases.least import blocks_of, shares_sequence
from dpsim.predict.point import Change

#: micro-batches of a step at most
MOST_MICRO_BATCHES = 100_000
#: of a sequence that several ranks split, each has so many tokens at least
LEAST_TOKENS = 1024


@dataclass(frozen=True)
class MeshSetting:
    """A mesh with its micro-batches: samples of one, and how many a replica has in a step."""

    tensor: int
    pipeline: int
    context: int
    expert: int
    data: int
    micro_batch: int
    micro_batches: int
    recompute: str

    @property
    def mesh(self) -> tuple[int, ...]:
        """What of it is the mesh."""
        return self.tensor, self.pipeline, self.context, self.expert, self.data

    @property
    def split(self) -> int:
        """Ranks that work on one sample together."""
        return self.tensor * self.pipeline * self.context


@dataclass(frozen=True)
class MeshSpace:
    """The settings that the point `case` may have on its ranks with its global batch."""

    case: Case

    def settings(self) -> Iterator[MeshSetting]:
        """All of them."""
        ranks, batch = self.case.ranks, self.case.global_batch
        own = self._stage_counts(), self._contexts(), self.recomputes()
        for tensor, (pipeline, context, recompute) in product(self._tensors(), product(*own)):
            parts = tensor * pipeline * context
            if ranks % parts or batch % (ranks // parts):
                continue
            data = ranks // parts
            holders = context * data * (tensor if self._whole_experts else 1)
            for expert, samples in product(self._experts(holders), halved(batch // data)):
                count = batch // data // samples
                if count <= MOST_MICRO_BATCHES and self._takes(pipeline, count):
                    yield MeshSetting(
                        tensor, pipeline, context, expert, data, samples, count, recompute
                    )

    def change(self, setting: MeshSetting) -> Change:
        """What of the scenario `setting` sets."""
        given, keys = self.case.scenario.parallel, ("tensor", "pipeline", "context", "expert")
        parallel: dict[str, Any] = {k: getattr(setting, k) for k in keys if getattr(setting, k) > 1}
        if setting.tensor > 1 and self._language:
            shared = shares_sequence(self.case, setting.tensor, setting.context)
            parallel |= {"sequence_parallel": True} if shared else {}
        beside = given.async_tensor_parallel and "sequence_parallel" in parallel
        parallel |= {"async_tensor_parallel": True} if beside else {}
        said = given.overlap_tensor_gradients
        if said is not None and setting.tensor > 1:
            parallel |= {"overlap_tensor_gradients": said}
        parallel |= {"blocking_sends": True} if given.blocking_sends else {}
        parallel |= {"expert_tensor": 1} if self._whole_experts else {}
        parallel["order"] = list(given.order)
        change: dict[str, Any] = {
            "parallel": parallel,
            "batch": self._batch(setting),
            "recompute": setting.recompute,
        }
        scenario = self.case.scenario
        if scenario.schedule is not None and setting.pipeline == 1:
            change["schedule"] = None
        schedule = self.case.scenario.schedule
        stages = setting.pipeline if schedule is None else schedule.stages(setting.pipeline)
        if setting.pipeline > 1 and blocks_of(self.case) % stages:
            change["stages"] = "balanced"
        elif scenario.stages is not None:
            change["stages"] = None
        return change

    def dealt(self, setting: MeshSetting) -> bool:
        """Whether samples are dealt to ranks by their speed, so that shares differ: where the
        scenario says so, and each rank holds a whole model."""
        batch = self.case.batch
        return setting.split == 1 and (batch.by_speed or batch.rebalance is not None)

    def _batch(self, setting: MeshSetting) -> dict[str, Any]:
        """The batch of `setting`, dealt in the way of the scenario."""
        batch = self.case.batch
        found: dict[str, Any] = {"global": self.case.global_batch}
        found["accumulation"] = setting.micro_batches
        if self.dealt(setting):
            found |= {"by_speed": True} if batch.by_speed else {}
            found |= {"rebalance": asdict(batch.rebalance)} if batch.rebalance is not None else {}
        return found

    @property
    def _whole_experts(self) -> bool:
        """Whether tensor ranks hold whole experts."""
        return self.case.scenario.parallel.expert_tensor == 1

    # -- what axes there are --------------------------------------------------------------------

    @property
    def _language(self) -> bool:
        return any(layer.attended for layer in self.case.model.layers)

    @property
    def _chunks(self) -> int:
        schedule = self.case.scenario.schedule
        return 1 if schedule is None else schedule.chunks

    def _takes(self, pipeline: int, count: int) -> bool:
        """Whether the schedule is one of a pipeline of `pipeline` ranks: interleaved ones have
        whole rounds of micro-batches."""
        return pipeline == 1 or self._chunks == 1 or count % pipeline == 0

    def _tensors(self) -> list[int]:
        """Ranks that split layers: of one node, dividing all heads of models that have some."""
        gpus = self.case.site.gpus
        room = min(self.case.ranks, gpus or self.case.ranks)
        works = [layer.attended for layer in self.case.model.layers if layer.attended]
        if not works and self.case.model.layers[0].forward is None:
            return [1]
        heads = [n for work in works for n in (work.heads, work.key_heads) if n]
        return [n for n in divisors(room) if all(many % n == 0 for many in heads)]

    def _stage_counts(self) -> list[int]:
        schedule = self.case.scenario.schedule
        most = blocks_of(self.case) // (1 if schedule is None else schedule.stages(1))
        return [n for n in divisors(self.case.ranks) if n <= most]

    def _contexts(self) -> list[int]:
        """Ranks that split a sequence into a head and a tail each."""
        works = [layer.attended for layer in self.case.model.layers if layer.attended]
        if not works or self.case.model.sample == "image" or any(work.crossed for work in works):
            return [1]
        tokens = self.case.model.tokens
        free = works[0].width is not None  # a toy says no tokens
        fits = (n for n in divisors(self.case.ranks) if n > 1)
        if not free:
            fits = (n for n in fits if tokens % (2 * n) == 0 and tokens // n >= LEAST_TOKENS)
        return [1, *fits]

    def _experts(self, holders: int) -> list[int]:
        counts = {layer.experts for layer in self.case.model.layers if layer.experts}
        if not counts:
            return [1]
        return [n for n in divisors(holders) if all(count % n == 0 for count in counts)]

    def recomputes(self) -> list[str]:
        """All that keep less, and what the scenario says."""
        layers = self.case.model.layers
        found: dict[str, None] = {"none": None, self.case.scenario.recompute: None}
        if any(layer.again_kernels for layer in layers):
            found["selective"] = None
        if any(layer.op_flop for layer in layers):
            found["selective_op"] = None
        if any(layer.activations_moe is not None for layer in layers):
            found["moe"] = None
        rebuilds = self.case.rebuilds_blocks
        if not rebuilds and any(layer.activations_full < layer.activations for layer in layers):
            found["full"] = None
        return list(found)


def divisors(number: int) -> list[int]:
    """All whole numbers that divide `number`, rising."""
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def halved(number: int) -> list[int]:
    """`number`, and what is left where it is halved as often as that goes.

    >>> halved(12)
    [12, 6, 3]
    """
    found = [number]
    while found[-1] % 2 == 0:
        found.append(found[-1] // 2)
    return found
