"""Strategies: what a data-parallel system issues in a step.

Contract.  A plug-in module of this folder holds one `Strategy`: a record whose fields are the
system's own knobs, with its names, its bare numbers and its true defaults.  `exchange` states what
ranks send each other in a step, from which its program follows, alone and on the stages of a
pipeline; a system that does more than that compiles a `Job` into a `program` itself.  `memory` says
what it keeps on a device.  What else is asked of a system has a default.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, NamedTuple

from dpsim.compile.behaviour import Behaviour, World
from dpsim.compile.compression import Compression
from dpsim.compile.exchange import Exchange, Leg, Message, Work
from dpsim.compile.groups import Partition
from dpsim.compile.held import Held, constant
from dpsim.compile.job import Job, due_after, gradients_of, state_bytes
from dpsim.compile.program import Program
from dpsim.compile.rhythm import Rhythm
from dpsim.compile.step import ExchangeStep, Issue, StepWalk
from dpsim.compile.strategies._answers import check_answers
from dpsim.core import plugins
from dpsim.core.record import Refused
from dpsim.models import Model
from dpsim.models.sums import GradientSums

__all__ = [
    "TORCH", "Beside", "Exchange", "ExchangeStep", "Folded", "Issue", "Job", "Leg", "Lighter",
    "Message", "Program", "Rhythm", "StepWalk", "Strategy", "Torch", "TorchVersion", "Work",
    "due_after", "gradients_of", "state_bytes",
]  # fmt: skip


class Beside(NamedTuple):
    """A cost that is no part of a step: `seconds` of its own (None: unknown), and a collective
    over all ranks.

    per      how often it occurs: "epoch", "checkpoint", "report", "restart", …
    at_most  where the time varies or is unknown: its upper end [s]
    """

    name: str
    per: str
    seconds: float | None = 0.0
    operation: str = ""
    bytes: float = 0.0
    at_most: float | None = None


class Lighter(NamedTuple):
    """Another way to train the same, with which a device keeps less.

    what      "buckets", "sharded", "offloaded", or "system" where it is another strategy
    strategy  the changed one
    keys      what a scenario sets for that
    cost      what it costs, for people
    """

    what: str
    strategy: Strategy
    keys: dict[str, Any]
    cost: str = ""

    def applies(self, replicas: int) -> bool:
        """Whether a rank keeps less with it: sharing out needs another replica to share with."""
        return replicas > 1 or self.what in ("buckets", "offloaded")


class Folded(NamedTuple):
    """What one played step stands for: so many `steps`, in each of which as many consecutive ranks
    as are `together` wait for each other."""

    steps: int = 1
    together: int = 1


class Strategy:
    """Contract of this folder.

    recordable    `dpsim measure` records its scripts as they are
    recorded_buckets  a record of DistributedDataParallel holds the buckets of this system
    split_as      the strategy that takes its place where layers are split over ranks; "": none
    """

    tag = "kind"
    recordable: ClassVar[bool] = False
    recorded_buckets: ClassVar[bool] = False
    split_as: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        check_answers(cls)

    # -- the step -----------------------------------------------------------------------------

    def exchange(self, job: Job, iteration: int | None) -> Exchange:
        """What the ranks of `job` exchange in `iteration` (1, 2, …); None is the steady state."""
        raise NotImplementedError

    def program(self, job: Job, iteration: int | None) -> Program:
        """What one rank issues in `iteration`."""
        return ExchangeStep(job, self.exchange(job, iteration)).play()

    def groups(self, ranks: int) -> dict[str, Partition]:
        """Groups of ranks beside "world" that collectives name: each a partition of the ranks."""
        return {}

    def groups_of(self, job: Job) -> dict[str, Partition]:
        """The same, where they follow from more than the number of ranks."""
        return self.groups(job.ranks)

    def folded(self, job: Job) -> Folded:
        """How many steps the program of the steady state stands for."""
        return Folded()

    def rounds(self, job: Job) -> Rhythm | None:
        """The round of which the steady state's program is the mean step; None: there is none."""
        return None

    def expert_groups(self, job: Job) -> dict[str, Partition]:
        """The same of the ranks that hold the same experts, where `job` is experts alone."""
        return {}

    # -- where ranks decide while they run ---------------------------------------------------

    @property
    def behaves(self) -> bool:
        """Whether ranks behave; what `program` says is then what a rank computes in a clock."""
        return type(self).behave is not Strategy.behave

    def behave(self, world: World) -> Behaviour:
        """What the rank of `world` does: see `dpsim.compile.behaviour`."""
        raise NotImplementedError

    @property
    def waits_for_all(self) -> bool:
        """Whether a step ends when the slowest rank's does."""
        return True

    def servers_at(self, ranks: int) -> tuple[int | None, ...]:
        """The servers beside `ranks` workers, places of their own for those who behave: the rank
        whose node each shares, None for a node of its own."""
        return ()

    def servers_in(self, sites: tuple[str, ...]) -> tuple[int, ...]:
        """Of several `sites`, the number of that of each server on a node of its own: in turn.
        Refused where the system's own settings do not go with them."""
        count = sum(seat is None for seat in self.servers_at(1)) if sites else 0
        return tuple(k % len(sites) for k in range(count))

    def held_by_servers(self, job: Job) -> tuple[float, ...]:
        """The bytes of the parameters that each of `servers_at` holds."""
        return ()

    def gradients_of_step(self, ranks: int) -> int:
        """Gradients that make what an answer calls a step."""
        return ranks - self.backup_workers

    def on_stage(self, job: Job) -> Exchange:
        """What the replicas of a stage exchange, where layers are split over ranks; `job` is one
        rank's part of the stage, and its `ranks` are the replicas."""
        self.accept_stage(job)
        return self.exchange(job, None)

    def stage_walk(self, job: Job) -> StepWalk | None:
        """Who issues what the replicas of a stage do beside its passes, where that is more than an
        exchange in the last one; `job` as for `on_stage`.  None: `on_stage` says it all."""
        return None

    def accept_stage(self, job: Job) -> None:
        """Refuse what is not modelled where layers are split over ranks."""
        raise Refused(
            f"{plugins.name_of(self)} is not modelled together with tensor, pipeline or expert "
            "parallelism; ddp, fsdp, fsdp1, zero, horovod and megatron are",
            ("strategy", "kind"),
        )

    def accept_backend(self, backend: str) -> None:
        """Refuse a library of collectives that the system itself refuses."""

    @property
    def compression(self) -> Compression | None:
        """What the system's own settings compress gradients with."""
        return None

    @property
    def bare(self) -> Strategy:
        """The same system without that."""
        return self

    def accept_compression(self, compression: Compression) -> None:
        """Refuse what its gradients cannot become before they travel (key `compression`)."""
        raise Refused(
            f"{plugins.name_of(compression)} is not modelled with {plugins.name_of(self)}; ddp "
            "takes every compression, horovod fp16, zero fp16 and bf16, and precision.reduce is "
            "what sharded gradients travel in",
            ("compression",),
        )

    # -- memory -------------------------------------------------------------------------------

    def memory(self, job: Job) -> dict[str, float]:
        """Parameters, gradients, states and buffers of a device [B], by name, at their largest."""
        raise NotImplementedError

    def held(self, job: Job) -> Held:
        """The same in the course of a step; at their largest where no more is known."""
        return constant(self.memory(job))

    @property
    def fused_kernels(self) -> bool:
        """Whether it has fused kernels; torch's own keep more, or move more."""
        return False

    @property
    def channels_last(self) -> bool:
        """Whether its framework lays out images in 16 bits so unasked; torch has channels first."""
        return False

    @property
    def library_attention(self) -> bool:
        """Whether it brings a library's attention: TransformerEngine, which takes cuDNN's."""
        return False

    @property
    def sharded(self) -> bool:
        """Whether a device keeps less where there are more ranks."""
        return False

    @property
    def shares_experts(self) -> bool:
        """Whether a system that does something in every pass knows experts that are shared out."""
        return False

    @property
    def torch_attention(self) -> bool:
        """Whether ranks that split sequences attend by torch's `context_parallel`, if it can."""
        return False

    @property
    def torch_stages(self) -> bool:
        """Whether its stages run on torch's pipelining."""
        return False

    @property
    def overlaps_tensors(self) -> bool:
        """Default of `parallel.overlap_tensor_gradients`: exchanges beside products."""
        return False

    @property
    def copies_weights(self) -> bool:
        """Default of `optimizer.master_weights`; none in torch's (torch/optim/adam.py)."""
        return False

    def lighter(self, *, split: bool) -> Iterator[Lighter]:
        """Ways to keep less, the mildest of a kind first; `split`: ranks share layers."""
        yield from ()

    def changed(self, what: str, cost: str = "", **knobs: Any) -> Iterator[Lighter]:
        """The same system with other settings, unless it refuses them."""
        try:
            other = dataclasses.replace(self, **knobs)  # type: ignore[type-var]
        except (Refused, ValueError):
            return
        keys = {f"strategy.{key}": value for key, value in knobs.items()}
        yield Lighter(what, other, keys, cost)

    def on_device(self) -> Strategy:
        """The same system with nothing left to the host: what its work costs shows beside it."""
        return self

    # -- what answers say -----------------------------------------------------------------------

    def notes(self, job: Job) -> tuple[str, ...]:
        """What an answer should say about this strategy, as sentences."""
        return ()

    def idle(self, model: Model) -> tuple[str, ...]:
        """Knobs that change less than they say with `model`: sentences that begin with them."""
        return ()

    def more_samples(self, job: Job) -> float | None:
        """How many times as many samples as synchronous training it needs at most for the same
        loss, as far as was published; None where nothing is known."""
        return 1.0

    @property
    def caveat(self) -> str:
        """What an answer should say once of this way to train; "": nothing."""
        return ""

    def beside(self, job: Job) -> tuple[Beside, ...]:
        """What the system costs beside its steps."""
        return ()

    def first_messages(self, job: Job) -> tuple[int, ...]:
        """Broadcasts of rank 0's state before the first step [B]; empty where not known."""
        return ()

    @property
    def casts_gradients(self) -> bool:
        """Whether gradients travel in `precision.reduce`."""
        return False

    @property
    def autocasts(self) -> bool:
        """Whether parameters of 32 bit are cast product by product, or whole modules are."""
        return not (self.casts_gradients or self.fused_kernels)

    def sums(self, *, piped: bool) -> GradientSums | None:
        """How whole gradients of micro-batches are added up, if they are; `piped`: on stages."""
        return GradientSums()

    @property
    def own_launches(self) -> bool:
        """Whether the host's launches are in its program already, or follow a rule of its own."""
        return False

    @property
    def takes_uneven_inputs(self) -> bool:
        """Whether a rank may run out of inputs before the others do."""
        return False

    @property
    def backup_workers(self) -> int:
        """Ranks whose gradients a step does not wait for."""
        return 0


check_answers(Strategy)


class TorchVersion(tuple[int, ...]):
    """A torch version such as "2.13", compared by number."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        def validate(value: Any) -> TorchVersion:
            if isinstance(value, TorchVersion):
                return value
            value = value.partition("+")[0] if isinstance(value, str) else value
            if not isinstance(value, str) or not re.fullmatch(
                r"\d{1,3}\.\d{1,3}(\.\d{1,3})?", value
            ):
                raise ValueError(
                    f"{value!r} is not a version; write it in quotes, for example '2.13'"
                )
            return cls(int(part) for part in value.split("."))

        return core_schema.no_info_plain_validator_function(
            validate,
            metadata={
                "pydantic_js_functions": [lambda s, h: {"type": "string", "examples": ["2.13"]}]
            },
        )

    def __str__(self) -> str:
        return ".".join(map(str, self))


Torch = Annotated[TorchVersion, "torch version"]
TORCH = TorchVersion((2, 13))


def offloading(*stages: int) -> Iterator[Lighter]:
    """DeepSpeed in its place, with optimizer states on the host."""
    cost = "DeepSpeed in its place; states in the host's memory, updated by its CPUs"
    for stage in stages:
        knobs = {"stage": stage, "offload_optimizer": "cpu"}
        keys = {"strategy": {"kind": "zero", **knobs}}
        yield Lighter("offloaded", plugins.find("strategies", "zero")(**knobs), keys, cost)


CONTRACT = Strategy
