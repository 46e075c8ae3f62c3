"""Models: what one training step must compute, and which gradients it leaves.

All work is **per sample** (an image or `sequence_length` tokens); n samples cost n times as much.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import cached_property
from math import prod
from typing import Annotated, Any, NamedTuple, TypeVar

from dpsim.core import units
from dpsim.core.dtypes import QUANTISED
from dpsim.core.record import Check, Text, record
from dpsim.models.streams import CodedKernels, Kernels, Streamed

Made = TypeVar("Made")


class Tensor(NamedTuple):
    """One parameter tensor: its name and shape, in the order of `module.parameters()`.

    trained  whether it has a gradient (`requires_grad`)
    dtype    what it is stored in, where that is not its layer's: also a quantised one
    transposed  a matrix that is stored as (inputs, outputs), as GPT-2's are
    """

    name: str
    shape: tuple[int, ...]
    trained: bool = True
    dtype: str | None = None
    transposed: bool = False

    @property
    def elements(self) -> int:
        return prod(self.shape)


class WeightInput(NamedTuple):
    """What forward keeps for the gradients of some tensors alone: nothing, where they are frozen.

    elements  per sample
    tensors   their names
    whole     every rank keeps it whole where ranks split the layer but not the sequence
    """

    elements: float
    tensors: tuple[str, ...]
    whole: bool = False


class AttentionWork(NamedTuple):
    """What of a layer is attention over all tokens of a sample.

    queries   elements per sample of queries, and as many of what attention puts out
    keys      elements per sample of keys and values together
    share     of the layer's work, what is over pairs of tokens (not products with weights)
    heads, key_heads   of queries, and of keys and values; 0: nobody has said
    causal    tokens look at those before them alone
    window    tokens look back at fewer than there are
    width     bytes of an element, where stated; else the compute dtype's
    crossed   what it looks at is another sequence than its own
    """

    queries: float
    keys: float
    share: float = 1.0
    heads: int = 0
    key_heads: int = 0
    causal: bool = True
    window: bool = False
    width: float | None = None
    crossed: bool = False


@record
class Layer:
    """A stretch of the model whose gradients become ready together, when its backward ends.

    name          unique in the model
    tensors       its parameter tensors in registration order (may be empty)
    forward_flop  FLOP per sample, a multiply-add counted as 2 (matrix multiplies, convolutions)
    backward_flop FLOP per sample (twice the forward where the input needs a gradient)
    forward_bytes, backward_bytes   elements read and written per sample, in units of the compute
                  dtype's size (activations; parameters are added by the roofline)
    kernels       device kernels launched in forward (backward: twice as many)
    activations   elements per sample kept from forward to backward, in the compute dtype (bf16
                  where that is fp8 or nvfp4)
    activations_full   elements kept when the whole layer is recomputed (its input)
    activations_selective   elements kept when only attention is recomputed
    activations_op   elements kept when all is recomputed but attention and every second product
    activations_moe   elements kept when a half with experts is recomputed; None: it is of no such
    eager, eager_op   elements that torch's own modules keep beside what fused kernels do, without
                  recomputation and with `activations_op`
    rms           elements per sample of root-mean-square norms, in 32 bit in torch's own module
    inside        elements per sample of the gradients that its backward has at most at a time
    inside_bytes  bytes per sample that it has beside these, where they are stated in bytes
    logits        elements per sample that a loss follows; `activations` counts them in 32 bit
    cast_saves    bytes per sample by which inputs of products that nothing else keeps are fewer
                  where they are cast to 8 bits than in 16 (in 4: `few_bits.saved_bytes`)
    cast_replicated   of these, what every rank saves when ranks split the layer between them but
                  not the sequence
    again_flop, again_bytes, again_kernels   the forward work that recomputing attention does again
    op_flop       FLOP per sample of the products that are done again with `activations_op`
    last_flop     FLOP per sample of the product that ends its forward, where no backward needs
                  what it puts out
    replicated    elements of `activations` that every rank keeps when ranks split the layer between
                  them but not the sequence (inputs and outputs of norms, dropout masks)
    forward_sum, backward_sum   elements per sample that ranks which split the layer between them
                  sum in either pass (outputs of row-parallel, inputs of column-parallel matrices)
    output        elements per sample of its output (what a pipeline sends)
    sends         bytes per sample of its output, where stated; it replaces `output`
    unit          layers of one transformer block share one unit (FSDP wraps units); "" is the root
    dtype         overrides the model's parameter dtype
    tied          name of an earlier-registered layer whose first tensor this layer uses too
    forward, backward  fixed durations per sample [s]; they replace the roofline
    weight_share  share of backward that makes gradients of weights; the rest is for the input
    batch_norm    channels of its batch normalisation; 0: it has none
    saved         which of `activations` are there for the gradients of weights alone
    once          elements that its forward moves once a micro-batch, whatever the samples
    cast_weights  elements that kernels move once a micro-batch in either pass, whatever the samples
    adding        bytes per trained parameter that backward moves, once a micro-batch, to add
                  gradients to those of the micro-batches before (`dpsim.models.sums`)
    scratch       elements that its forward has beside all else, whatever the samples
    detached      no gradient reaches it: its backward does not run (`frozen`)
    backward_kernels   device kernels launched in backward; None: twice `kernels`
    experts       experts that its tensors are of, in equal parts; 0: every token passes all of it
    chosen        experts that a token is sent to
    routed        elements per sample that are sent to one expert, where all were (tokens x width);
                  to `chosen` ones go so many times as much, and as much comes back
    routed_bytes  bytes per sample sent to all chosen experts, where stated; it replaces `routed`
    eager_kernels, compiled_kernels   its kernels run one by one by torch, and as a compiler leaves
                  them; None: not counted so
    coded_kernels   and one by one as others' code writes them
    library_kernels   what a hand-tuned library's move, where these are no compiler's
    pairs         FLOP of `forward_flop` that attention over pairs of tokens takes; backward's are
                  twice as many
    unaligned     stored scores over `pairs`, where heads are so wide that 16 bits miss the tensor
                  cores; 0: they do not
    streamed      what its kernels move one after the other with products; None: all that is moved
                  is moved beside arithmetic
    pace          shares of the device's peak that attention in a kernel of its own reaches, forward
                  and backward; 0: it takes as long as what it moves; None: as products
    library       its kernels are a hand-tuned library's, though nothing is said of them
    convolves     it is an image network's (`dpsim.models.convolutions`)
    wide          its products stay in 16 bits where others of blocks run in 8 or 4
    attended      its attention, where it has one that ranks can split a sequence for
    scan          heads and groups of a scan that hands a state on from token to token; None: none
    """

    name: Text
    tensors: tuple[Tensor, ...] = ()
    forward_flop: float = 0.0
    backward_flop: float = 0.0
    forward_bytes: float = 0.0
    backward_bytes: float = 0.0
    kernels: Annotated[int, Check(0, 10**9)] = 1
    activations: float = 0.0
    activations_full: float = 0.0
    activations_selective: float = 0.0
    activations_op: float = 0.0
    activations_moe: float | None = None
    eager: float = 0.0
    eager_op: float = 0.0
    rms: float = 0.0
    inside: float = 0.0
    inside_bytes: float = 0.0
    logits: float = 0.0
    cast_saves: float = 0.0
    cast_replicated: float = 0.0
    again_flop: float = 0.0
    again_bytes: float = 0.0
    again_kernels: Annotated[int, Check(0, 10**9)] = 0
    op_flop: float = 0.0
    last_flop: float = 0.0
    replicated: float = 0.0
    forward_sum: float = 0.0
    backward_sum: float = 0.0
    output: float = 0.0
    sends: float | None = None
    unit: Text = ""
    dtype: Text | None = None
    tied: Text | None = None
    forward: units.Seconds | None = None
    backward: units.Seconds | None = None
    weight_share: float = 0.5
    batch_norm: Annotated[int, Check(0, 10**9)] = 0
    saved: tuple[WeightInput, ...] = ()
    once: float = 0.0
    cast_weights: float = 0.0
    adding: float = 0.0
    scratch: float = 0.0
    detached: bool = False
    backward_kernels: Annotated[int, Check(0, 10**9)] | None = None
    experts: Annotated[int, Check(0, 10**6)] = 0
    chosen: Annotated[int, Check(0, 10**6)] = 0
    routed: float = 0.0
    routed_bytes: float | None = None
    eager_kernels: Kernels | None = None
    compiled_kernels: Kernels | None = None
    coded_kernels: CodedKernels = CodedKernels()
    library_kernels: Kernels | None = None
    pairs: float = 0.0
    unaligned: float = 0.0
    streamed: Streamed | None = None
    pace: tuple[float, float] | None = None
    library: bool = False
    convolves: bool = False
    wide: bool = False
    attended: AttentionWork | None = None
    scan: tuple[int, int] | None = None

    @cached_property
    def parameters(self) -> int:
        return sum(tensor.elements for tensor in self.tensors)

    @cached_property
    def trained(self) -> int:
        """Those of its parameters that have a gradient."""
        return sum(tensor.elements for tensor in self.tensors if tensor.trained)

    @cached_property
    def kinds(self) -> tuple[tuple[str | None, bool, int], ...]:
        """(dtype of their own, whether trained, elements) of its tensors, alike ones together."""
        found: dict[tuple[str | None, bool], int] = {}
        for tensor in self.tensors:
            key = tensor.dtype, tensor.trained
            found[key] = found.get(key, 0) + tensor.elements
        return tuple((*key, count) for key, count in found.items())

    @property
    def quantised(self) -> int:
        """Those of its parameters that are stored quantised."""
        return sum(count for dtype, _, count in self.kinds if dtype in QUANTISED)

    @property
    def unpacked(self) -> int:
        """Elements of the largest of these: one at a time is unpacked."""
        return max((t.elements for t in self.tensors if t.dtype in QUANTISED), default=0)

    @property
    def unscaled(self) -> bool:
        """Whether a norm's weight is frozen."""
        return any(not t.trained and "norm" in t.name.lower() for t in self.tensors)

    @property
    def launched_backward(self) -> int:
        """Device kernels launched in its backward."""
        return 2 * self.kernels if self.backward_kernels is None else self.backward_kernels

    @property
    def active(self) -> int:
        """Parameters that one token passes: of experts those that it is sent to."""
        return self.parameters * self.chosen // self.experts if self.experts else self.parameters


class Doubt(NamedTuple):
    """Something about a model that nobody knows before it runs.

    cause    its name among the causes of an interval
    level    the factors between which a step may lie where no step was measured
    growth   the same where a step of the model was measured at another count of ranks
    says     the sentence that warns of it
    """

    cause: str
    level: tuple[float, float]
    growth: tuple[float, float]
    says: str


Buckets = tuple[tuple[float, tuple[str, ...]], ...]


@record
class Recorded:
    """What a recorded run adds to the layers that were made from it.

    device        what it ran on; `batch` samples per step
    timed         whether the layers carry the recorded durations (else the roofline's)
    step          duration of the recorded step, from forward to the next forward [s]
    plain_step    the same with no hooks on layers and gradients [s]
    after         what followed the last gradient: DDP's copies back, optimizer, the script's own
                  work until the next forward [s per step]
    between       of that, what came after the optimizer: the wait for the next batch [s per step]
    first_buckets, buckets   (bytes, tensors as "layer.tensor") of iteration 1 and later ones
    frozen_bytes  parameters that need no gradient, which no layer holds
    """

    device: Text
    batch: Annotated[int, Check(1, 10**9)]
    timed: bool
    step: units.Seconds
    plain_step: units.Seconds
    after: units.Seconds
    between: units.Seconds
    first_buckets: Buckets
    buckets: Buckets
    frozen_bytes: Annotated[int, Check(0, 10**15)] = 0


@record
class Model:
    """Layers in registration order, and the order in which forward visits them.

    `forward_order` holds indices into `layers`; backward runs in the reverse of it unless
    `backward` says its own order.  `arrival` holds indices into all tensors, counted through the
    layers, in the order in which their gradients are finished; without it, layer by layer as
    backward visits them, the last registered first.  `sample` is what one sample is called
    ("image", "sequence"), `tokens` the tokens per sample (1 for images).  `buffers` are the counts
    of non-trainable elements per dtype that DDP broadcasts (BatchNorm).  `recorded` is there where
    the layers come from a recorded run; `doubts` are what widens every interval.
    """

    name: Text
    layers: tuple[Layer, ...]
    forward_order: tuple[int, ...] = ()
    sample: Text = "sample"
    tokens: Annotated[int, Check(1, 10**9)] = 1
    dtype: Text = "fp32"
    buffers: tuple[tuple[str, int], ...] = ()
    backward: tuple[int, ...] = ()
    arrival: tuple[int, ...] = ()
    recorded: Recorded | None = None
    doubts: tuple[Doubt, ...] = ()

    def __post_init__(self) -> None:
        if not self.layers:
            raise ValueError("layers: a model needs at least one layer")
        seen: set[str] = set()
        for layer in self.layers:
            if layer.name in seen:
                raise ValueError(f"layers: two layers are called {layer.name!r}")
            if layer.tied is not None and layer.tied not in seen:
                raise ValueError(
                    f"layers: {layer.name} is tied to {layer.tied!r}, which does not precede it"
                )
            seen.add(layer.name)
        order = self.forward_order or tuple(range(len(self.layers)))
        if sorted(order) != list(range(len(self.layers))):
            raise ValueError("forward_order must name every layer exactly once")
        object.__setattr__(self, "forward_order", order)
        if self.backward and sorted(self.backward) != sorted(order):
            raise ValueError("backward must name every layer exactly once")
        tensors = sum(len(layer.tensors) for layer in self.layers)
        if self.arrival and sorted(self.arrival) != list(range(tensors)):
            raise ValueError("arrival must name every tensor exactly once")

    @cached_property
    def parameters(self) -> int:
        """Parameters, trained or frozen, tied tensors once."""
        return sum(layer.parameters for layer in self.layers)

    @cached_property
    def trained(self) -> int:
        """Those of them that have a gradient."""
        return sum(layer.trained for layer in self.layers)

    @cached_property
    def active(self) -> int:
        """Parameters that one token passes: of experts those that it is sent to."""
        return sum(layer.active for layer in self.layers)

    @cached_property
    def kept(self) -> dict[Hashable, Any]:
        """What others have worked out from the model alone, by what it is."""
        return {}

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make` makes of this model, made once and known by `key`."""
        if key not in self.kept:
            self.kept[key] = make()
        found: Made = self.kept[key]
        return found

    def flop_per_sample(self) -> float:
        """FLOP of one forward and backward pass over one sample (no recomputation)."""
        return sum(layer.forward_flop + layer.backward_flop for layer in self.layers)

    def backward_order(self) -> Iterator[int]:
        """The layers that backward visits: all that a gradient reaches."""
        order = iter(self.backward) if self.backward else reversed(self.forward_order)
        return (i for i in order if not self.layers[i].detached)

    def ready_after(self) -> tuple[int, ...]:
        """For each layer, the layer whose backward makes its gradients final.

        A tied tensor collects gradients from both users, so it is final only after the later of
        the two backwards.
        """
        position = {layer: place for place, layer in enumerate(self.backward_order())}
        index = {layer.name: i for i, layer in enumerate(self.layers)}
        last = list(range(len(self.layers)))
        for i, layer in enumerate(self.layers):
            if layer.tied is not None:
                owner = index[layer.tied]
                last[owner] = max(last[owner], i, key=lambda k: position.get(k, -1))
        return tuple(last)
