"""Jobs: one rank's share of a training step, its gradients, and what it keeps on a device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import ceil
from typing import NamedTuple

from dpsim.compile.compression import Compression
from dpsim.compile.exchange import Work
from dpsim.core.dtypes import DTYPE_BYTES, stored_bytes
from dpsim.core.lean import dataclass
from dpsim.core.many import longest
from dpsim.models import Model, Tensor
from dpsim.models.compute import LayerTime
from dpsim.models.expert_split import apart
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
    least_update  seconds that the kernels of an update of all parameters take at least [s]
    slowest       `times` on the slowest rank, which decides what all ranks do together; None:
                  they are `times`
    local_size    ranks on one node; None: all of them
    sites         ranks of every place, where they are at several far apart
    stage         the stage of a pipeline that `model` is, counted in forward order
    stages        how many stages the pipeline has
    elsewhere     samples in one micro-batch of all ranks but rank 0, where ranks differ; None: the
                  others have `samples` each
    compression   what gradients become before they travel; None: nothing
    coder         how fast gradients are coded; None: as copies are made
    gpu           whether the device has queues that its host can wait for
    compiled      whether a compiler lays parameters out along dimensions that ranks divide (XLA)
    servers       whether gradients go through parameter servers
    whole         whether a collective costs all its bytes, however few each rank sends (`ideal`)
    expert_ranks  ranks that hold the same experts, where experts are shared out; None: as `ranks`
    holders       where `model` is experts alone, the ranks that hold the same of all else; None:
                  it is not
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
    least_update: float = 0.0
    slowest: tuple[LayerTime, ...] | None = None
    local_size: int | None = None
    sites: tuple[int, ...] = ()
    stage: int = 0
    stages: int = 1
    elsewhere: float | None = None
    compression: Compression | None = None
    coder: Coder | None = None
    gpu: bool = False
    compiled: bool = False
    servers: bool = False
    whole: bool = False
    expert_ranks: int | None = None
    holders: int | None = None

    def elsewhere_held(self, layer: int) -> bool:
        """Whether the parameters of a layer are those of experts that other ranks do not have."""
        return self.expert_ranks is not None and self.model.layers[layer].experts > 0

    @property
    def parts(self) -> tuple[Job, ...]:
        """The job by who holds the same parameters: all of it, or, where experts are shared out,
        what is outside experts and the experts, if there are any."""
        if self.expert_ranks is None:
            return (self,)
        outside, own = apart(self.model)
        first = replace(self, model=outside, expert_ranks=None)
        if not own.parameters:
            return (first,)
        sparse = replace(
            self, model=own, ranks=self.expert_ranks, expert_ranks=None, holders=self.ranks
        )
        return first, sparse

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

    def update_seconds(self, parameters: float) -> float:
        """What updating so many parameters of all tensors takes [s]."""
        return longest({"work": self.update * parameters, "host": self.least_update})[0]

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
        """The dtype of a layer's parameters, but for those that have one of their own."""
        return self.model.layers[layer].dtype or self.precision.parameters

    def tensor_dtype(self, layer: int, tensor: Tensor) -> str:
        """What a tensor of a layer is stored in."""
        return tensor.dtype or self.parameter_dtype(layer)

    def trained(self, layer: int) -> Iterator[tuple[str, int]]:
        """(dtype, elements) of a layer's parameters that have a gradient."""
        for dtype, trained, elements in self.model.layers[layer].kinds:
            if trained:
                yield dtype or self.parameter_dtype(layer), elements

    def gradient_bytes(self, layer: int) -> float:
        """Bytes of a layer's gradients, as wide as its parameters."""
        return float(sum(DTYPE_BYTES[dtype] * n for dtype, n in self.trained(layer)))


class Gradient(NamedTuple):
    """One parameter tensor: its layer, name, elements, bytes, dtype, the layer whose backward
    ends its gradient, its shape, and whether it has one."""

    layer: int
    name: str
    elements: int
    bytes: int
    dtype: str
    ready: int
    shape: tuple[int, ...] = ()
    trained: bool = True


def gradients_of(job: Job) -> list[Gradient]:
    """Every parameter tensor that has a gradient, in registration order."""
    return [tensor for tensor in parameters_of(job) if tensor.trained]


def parameters_of(job: Job) -> list[Gradient]:
    """Every parameter tensor in registration order."""
    known = job.model.kept  # a sweep makes many jobs of one model
    key = "gradients", job.precision.parameters
    if key not in known:
        known[key] = _parameters_of(job)
    return list(known[key])


def _parameters_of(job: Job) -> list[Gradient]:
    final = job.model.ready_after()
    found = []
    for i, layer in enumerate(job.model.layers):
        for j, tensor in enumerate(layer.tensors):
            dtype, count = job.tensor_dtype(i, tensor), tensor.elements
            size = ceil(count * stored_bytes(dtype))
            name, ready = f"{layer.name}.{tensor.name}", final[i] if j == 0 else i
            found.append(Gradient(i, name, count, size, dtype, ready, tensor.shape, tensor.trained))
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
        trained = [t for t, tensor in enumerate(parameters_of(job)) if tensor.trained]
        place = {t: k for k, t in enumerate(trained)}
        return [place[t] for t in job.model.arrival if t in place]
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


def summed(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Bytes by name, of all `parts` together."""
    found: dict[str, float] = {}
    for part in parts:
        for name, size in part.items():
            found[name] = found.get(name, 0.0) + size
    return found


def state_bytes(job: Job, share: float) -> dict[str, float]:
    """Parameters, gradients and optimizer states when a device keeps `share` of each; what is
    frozen has neither gradients nor states.

    A parameter kept in 16 bit has an fp32 master copy in the optimizer (mixed-precision Adam:
    2 + 2 + 12 bytes a parameter; Rajbhandari et al., ZeRO, arXiv:1910.02054, section 3.1), unless
    master weights are switched off: then the states are as wide as the parameters.
    """
    stored = gradients = states = 0.0
    optimizer = job.optimizer
    masters = optimizer.kind != "none" and optimizer.master_weights is not False
    for i, layer in enumerate(job.model.layers):
        for dtype, trained, elements in layer.kinds:
            width = stored_bytes(dtype or job.parameter_dtype(i))
            stored += width * elements
            if trained:
                gradients += width * elements
                master = masters and width < 4
                each = 4 * (optimizer.states + 1) if master else width * optimizer.states
                states += elements * each
    return {
        "parameters": stored * share,
        "gradients": gradients * share,
        "optimizer states": states * share,
    }
