"""Strategies: what a data-parallel system issues in a step.

Contract.  A plug-in module of this folder holds one `Strategy`: a record whose fields are the
system's own knobs, with its names, its bare numbers and its true defaults.  `program` compiles a
`Job` into a Program; `memory` says what it keeps on a device.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from dpsim.compile.program import Op, Program
from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.core.plugins import name_of
from dpsim.core.record import Refused
from dpsim.models import Model
from dpsim.models.compute import LayerTime
from dpsim.models.precision import Optimizer, Precision

#: micro-batches from which on those that exchange nothing are folded into one
FOLDED = 32


@dataclass(frozen=True)
class Job:
    """One rank's share of a training step, ready to be compiled.

    times         per layer, for one micro-batch [s]
    micro_batches how many micro-batches make a step
    samples       samples in one micro-batch of this rank
    serial        host work per step that no rank shares out [s]
    copy_bandwidth  device memory bandwidth for copies [B/s]; None: copies take no time
    control       whether bookkeeping traffic and padding exist (not under ideal backends)
    update        seconds that the optimizer takes per parameter [s]
    slowest       `times` on the slowest rank, which decides what all ranks do together; None:
                  they are `times`
    local_size    ranks on one node; None: all of them
    stage         the stage of a pipeline that `model` is, counted in forward order
    elsewhere     samples in one micro-batch of all ranks but rank 0, where ranks differ; None: the
                  others have `samples` each
    """

    model: Model
    ranks: int
    times: tuple[LayerTime, ...]
    micro_batches: int
    samples: float
    precision: Precision
    optimizer: Optimizer
    serial: float = 0.0
    copy_bandwidth: float | None = None
    control: bool = True
    update: float = 0.0
    slowest: tuple[LayerTime, ...] | None = None
    local_size: int | None = None
    stage: int = 0
    elsewhere: float | None = None

    def rounds(self, quiet: bool) -> Iterator[tuple[int, tuple[LayerTime, ...]]]:
        """The micro-batches of a step: number and layer times.

        Where only the last one exchanges anything (`quiet`), the many between the first and the
        last are played as one that takes as long as all of them.
        """
        last = self.micro_batches - 1
        if not quiet or last < FOLDED:
            yield from ((m, self.times) for m in range(self.micro_batches))
            return
        many = last - 1
        long = (t.scaled(many) for t in self.times)
        yield from ((0, self.times), (1, tuple(long)), (last, self.times))

    def copy_seconds(self, size: float) -> float:
        """Time to read and write `size` bytes once in device memory."""
        return 2.0 * size / self.copy_bandwidth if self.copy_bandwidth else 0.0

    def parameter_dtype(self, layer: int) -> str:
        return self.model.layers[layer].dtype or self.precision.parameters


class Message(NamedTuple):
    """One collective over the data-parallel replicas of a pipeline stage.

    layer   index into the stage's layers: it may start when that layer's gradients are there
    """

    name: str
    operation: str
    bytes: float
    layer: int
    padding: float = 0.0


@dataclass(frozen=True)
class Synchronisation:
    """How the replicas of a pipeline stage exchange gradients in the last micro-batch.

    messages   in launch order; none launches before the one before it
    overlap    they run beside backward; else they start when backward of the stage has ended
    copies     seconds of copying into buckets after each layer's backward
    copy_back  seconds of copying back after the last message
    gathers    collectives after the optimizer (of updated parameters), which the next step awaits
    share      share of the stage's parameters that one rank updates
    """

    messages: tuple[Message, ...]
    overlap: bool = True
    copies: tuple[float, ...] = ()
    copy_back: float = 0.0
    gathers: tuple[Message, ...] = ()
    share: float = 1.0


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


class Strategy:
    """Contract of this folder."""

    tag = "kind"

    def program(self, job: Job, iteration: int | None) -> Program:
        """What one rank issues in `iteration` (1, 2, …); None is the steady state."""
        raise NotImplementedError

    def groups(self, ranks: int) -> dict[str, tuple[tuple[int, ...], ...]]:
        """Groups of ranks beside "world" that collectives name: each a partition of the ranks."""
        return {}

    def synchronisation(self, job: Job) -> Synchronisation:
        """What the replicas of a stage do, where layers are split over ranks; `job` is one rank's
        part of the stage, and its `ranks` are the replicas."""
        raise Refused(
            f"{name_of(self)} is not modelled together with tensor or pipeline parallelism; ddp, "
            "zero (stage 1) and megatron are",
            ("strategy", "kind"),
        )

    def memory(self, job: Job) -> dict[str, float]:
        """Parameters, gradients, optimizer states and buffers on one device [B], by name."""
        raise NotImplementedError

    def notes(self, job: Job) -> tuple[str, ...]:
        """What an answer should say about this strategy, as sentences."""
        return ()

    def beside(self, job: Job) -> tuple[Beside, ...]:
        """What the system costs beside its steps."""
        return ()


class Issue:
    """Collects the operations of a program in issue order."""

    def __init__(self, job: Job) -> None:
        self.ops: list[Op] = []
        if job.serial:
            self.add("host", "serial", seconds=job.serial)

    def add(self, name: str, kind: str, **rest: Any) -> int:
        """Append an operation; returns its index."""
        self.ops.append(Op(name, kind, **rest))
        return len(self.ops) - 1

    def collective(self, name: str, operation: str, stream: str, size: float, **rest: Any) -> int:
        return self.add(
            name, "collective", stream=stream, operation=operation, bytes=float(size), **rest
        )

    @property
    def last(self) -> int:
        return len(self.ops) - 1

    def program(
        self, buckets: tuple[tuple[str, float, tuple[str, ...]], ...] = (), listing: str = ""
    ) -> Program:
        return Program(tuple(self.ops), buckets, listing)


def label(letter: str, index: int, micro_batch: int, micro_batches: int) -> str:
    """ "F3" for a step of one micro-batch, "F3.1" for micro-batch 1 of several."""
    return f"{letter}{index}" if micro_batches == 1 else f"{letter}{index}.{micro_batch}"


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


def state_bytes(job: Job, share: float) -> dict[str, float]:
    """Parameters, gradients and optimizer states when a device keeps `share` of each.

    A parameter kept in 16 bit has an fp32 master copy in the optimizer (mixed-precision Adam:
    2 + 2 + 12 bytes a parameter; Rajbhandari et al., ZeRO, arXiv:1910.02054, section 3.1), unless
    master weights are switched off: then the states are as wide as the parameters.
    """
    stored = states = 0.0
    optimizer = job.optimizer
    for i, layer in enumerate(job.model.layers):
        width = DTYPE_BYTES[job.parameter_dtype(i)]
        master = width < 4 and optimizer.kind != "none" and optimizer.master_weights is not False
        stored += width * layer.parameters
        states += layer.parameters * (
            4 * (optimizer.states + 1) if master else width * optimizer.states
        )
    return {
        "parameters": stored * share,
        "gradients": stored * share,
        "optimizer states": states * share,
    }


CONTRACT = Strategy
