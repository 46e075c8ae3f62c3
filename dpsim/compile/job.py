"""Jobs: one rank's share of a training step, its gradients, and what it keeps on a device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from dpsim.compile.compression import Compression
from dpsim.compile.exchange import Work
from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.core.many import longest
from dpsim.models import Model
from dpsim.models.compute import LayerTime
from dpsim.models.precision import Optimizer, Precision

#: micro-batches from which on those that exchange nothing are folded into one
FOLDED = 32


class Coder(NamedTuple):
    """A device that codes gradients: memory bandwidth [B/s], arithmetic [FLOP/s], and the least
    time that a kernel takes [s]."""

    bandwidth: float
    flop_rate: float
    launch: float

    def seconds(self, work: Work) -> float:
        """Traffic, arithmetic or launches, whichever takes longest (the roofline of
        `dpsim.models.compute`)."""
        times = {
            "memory_bandwidth": 2.0 * work.bytes / self.bandwidth,
            "compute": work.flop / self.flop_rate,
            "host": work.kernels * self.launch,
        }
        return longest(times)[0]


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
    compression   what gradients become before they travel; None: nothing
    coder         how fast gradients are coded; None: as copies are made
    gpu           whether the device has queues that its host can wait for
    servers       whether gradients go through parameter servers
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
    compression: Compression | None = None
    coder: Coder | None = None
    gpu: bool = False
    servers: bool = False

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

    def work_seconds(self, work: Work) -> float:
        """Time that the device takes for `work`."""
        return self.copy_seconds(work.bytes) + work.seconds

    def coding_seconds(self, work: Work) -> float:
        """Time that it takes to encode or decode gradients so."""
        if self.coder is None:
            return self.work_seconds(work)
        return self.coder.seconds(work) + work.seconds

    def parameter_dtype(self, layer: int) -> str:
        """The dtype of a layer's parameters."""
        return self.model.layers[layer].dtype or self.precision.parameters


class Gradient(NamedTuple):
    """One parameter tensor: its layer, name, elements, bytes, dtype, the layer whose backward
    ends it, and its shape."""

    layer: int
    name: str
    elements: int
    bytes: int
    dtype: str
    ready: int
    shape: tuple[int, ...] = ()


def gradients_of(job: Job) -> list[Gradient]:
    """Every parameter tensor in registration order."""
    known = job.model.kept  # a sweep makes many jobs of one model
    key = "gradients", job.precision.parameters
    if key not in known:
        known[key] = _gradients_of(job)
    return list(known[key])


def _gradients_of(job: Job) -> list[Gradient]:
    final = job.model.ready_after()
    found = []
    for i, layer in enumerate(job.model.layers):
        dtype = job.parameter_dtype(i)
        for j, tensor in enumerate(layer.tensors):
            ready = final[i] if j == 0 else i
            size = tensor.elements * DTYPE_BYTES[dtype]
            name = f"{layer.name}.{tensor.name}"
            found.append(Gradient(i, name, tensor.elements, size, dtype, ready, tensor.shape))
    return found


def copied(found: Sequence[Gradient]) -> dict[int, float]:
    """Bytes of the gradients that are ready after each layer's backward."""
    sizes: dict[int, float] = {}
    for gradient in found:
        sizes[gradient.ready] = sizes.get(gradient.ready, 0.0) + gradient.bytes
    return sizes


def arrival(found: Sequence[Gradient], job: Job) -> list[int]:
    """Indices of gradients in the order in which autograd finishes them: as recorded, or by layer
    as backward visits them, inside a layer the last registered first."""
    if job.model.arrival:
        return list(job.model.arrival)
    position = {layer: place for place, layer in enumerate(job.model.backward_order())}
    return sorted(range(len(found)), key=lambda t: (position[found[t].ready], -t))


def due_after(
    job: Job,
    found: Sequence[Gradient],
    groups: Sequence[Sequence[int]],
    *,
    late: bool = False,
    in_turn: bool = True,
) -> list[int]:
    """The layer whose backward makes each of the `groups` of gradients due: the last that ends one
    of them; with `late` the last of all; with `in_turn` none before that of the group before."""
    order = list(job.model.backward_order())
    position = {layer: place for place, layer in enumerate(order)}
    places = [max(position[found[g].ready] for g in group) for group in groups]
    if late:
        places = [len(order) - 1] * len(groups)
    return [order[place] for place in (accumulate(places, max) if in_turn else places)]


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
