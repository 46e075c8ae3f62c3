"""How a model's kernels are made and issued: eagerly, compiled, in captured graphs.

Kernels run one after the other: products at the rate that products reach, flash attention at its
own, and what else there is as fast as it streams through memory.  Where nothing is said, that holds
of transformers on devices whose products were measured in their dtype (`PRODUCTS`, `SINGLE`), and
of image networks on NVIDIA's (`dpsim.models.convolutions`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal, NamedTuple

from dpsim.core.dtypes import rest_of
from dpsim.core.record import Flag, Refused, record
from dpsim.machines.devices import Device
from dpsim.models import Layer, Model, convolutions
from dpsim.models.huggingface import Attention
from dpsim.models.streams import Kernels, Streamed

#: dtypes in which tensor cores run flash attention
HALF = ("bf16", "fp16", "fp8", "nvfp4")
#: those whose elements take 32 bits
_SINGLE = ("fp32", "tf32")
#: shares of the dense 16-bit peak that large matrix products reach on devices of a generation, in
#: training: medians of measured shapes with 4,096 and more columns (ai-dynamo/aiconfigurator,
#: Apache-2.0: A100 0.77, H100 0.78, B200 0.65, L40S 0.57), which are bursts, times what loops
#: keep of that (A100 0.93, H100 0.91: MooreThreads/SimuMax's loops, stas00/ml-engineering's best
#: shapes; 0.92 on Blackwell), times 0.98 for gradients of weights, a third of all products,
#: which are 5 % slower (SimuMax on A100).  A block's twelve in 13.102 ms on a B300 are 0.65
#: (NVIDIA/TransformerEngine 8f2e6357 docs/examples/gemm_profiling).  Volta: inside 0.74 (Jia et
#: al., arXiv:1803.04014) to
#: 0.9 (forums.developer.nvidia.com/t/79781) of bursts times what loops keep on Ampere, 0.68 to
#: 0.82; chosen with published steps on V100 in view (docs/assumptions.md, A88).  CDNA 3 and 4: of
#: what a search for the best shape finds (MI300X 0.511, MI325X 0.600, MI355X 0.622:
#: stas00/ml-engineering at 744d01e1) 0.84, the mean of what the figures above are of it on A100 and
#: H100 (0.869, 0.803)
PRODUCTS = {
    "volta": 0.70, "ampere": 0.70, "ada": 0.57, "hopper": 0.70, "blackwell": 0.59,
    "cdna3": 0.47, "cdna4": 0.52,
}  # fmt: skip
#: the same of a device by itself: SimuMax's loops on a B200, of 1,000 W, keep 0.80 of bursts, where
#: B300, GB200 and GB300 may draw 1,200 to 1,400
SUSTAINED = {"B200-SXM6-180GB": 0.52}
#: what products of large models keep of that in training, where clocks fall with the power that
#: they draw: chosen with published steps on H100 and H200 in view (docs/assumptions.md, A88); not
#: of devices of less than so many FLOP/s, as H20, whose power does not bind
LARGE, _BOUND = {"hopper": 0.92}, 3e14
#: the same of grouped products of experts, where they were measured: SimuMax's loops of
#: TransformerEngine on a B200, 36 shapes in three passes, are 4, 13 and 0 % off with it
GROUPED = {"blackwell": 0.52}
#: elements of a sum at which products reach half of what they reach of very long ones: kh of
#: k / (k + kh), fitted to the same tables of ai-dynamo/aiconfigurator (A100 140, L40S 138, H100 159
#: and H200 142, B200 61, B300 34, GB200 44, GB300 62); no table has Volta's, which is
#: Ampere's; ROCm/aiter's tuned tables of 22,272 shapes on MI300X (243) and 866 on MI355X (163).
#: `PRODUCTS` are of sums of `WIDE` elements
NARROW = {
    "volta": 140.0, "ampere": 140.0, "ada": 138.0, "hopper": 150.0, "blackwell": 50.0,
    "cdna3": 243.0, "cdna4": 163.0,
}  # fmt: skip
WIDE = 4096.0
#: the same two of products in 32 bits.  Volta's fp32: 32 shapes of DeepBench on a V100 (500 and
#: more rows, columns and elements of a sum), up to 0.2 s each, reach 0.84 of the peak in the median
#: of all layouts, and half of that with sums of 33 +- 39 (baidu-research/DeepBench).  Ampere's tf32
#: reaches of its peak what 16 bits do of theirs (A100: 116 of 156 TFLOP/s beside 230 of 312,
#: mli/transformers-benchmarks), and with equal sums, for twice the bytes meet half the rate
SINGLE = {("volta", "fp32"): (0.84, 33.0), ("ampere", "tf32"): (0.70, 140.0)}
#: shares of it that causal attention reaches forward and backward, with 2.5 times forward's FLOP in
#: backward.  flash: Dao, arXiv:2307.08691, and SimuMax's kernels on A100; Shah et al.,
#: arXiv:2407.08608 (H100: 35 to 40 %).  flash3: the same, and its tables at 4,096 tokens and more.
#: efficient: xformers' kernels in Dao's figures.  library: cuDNN's, which TransformerEngine takes
#: on Hopper, and which are as fast as flash3 there (Shah et al., figures 5 and 6); elsewhere flash.
#: On Blackwell both are the middle of TransformerEngine's on a B200 with 4,096 tokens (0.44, 0.37:
#: MooreThreads/SimuMax) and FlashAttention's (0.64, 0.50: its CuTe kernels, causal and not).
#: On CDNA 3 and 4 both are ROCm/aiter's: causal heads 128 wide in its table for MI300X and MI355X
ATTENTION = {
    "flash": {
        "ampere": (0.58, 0.48),
        "hopper": (0.37, 0.30),
        "blackwell": (0.54, 0.43),
        "cdna3": (0.39, 0.33),
        "cdna4": (0.47, 0.33),
    },
    "flash3": {"hopper": (0.65, 0.50)},
    "library": {
        "ampere": (0.58, 0.48),
        "hopper": (0.65, 0.50),
        "blackwell": (0.54, 0.43),
        "cdna3": (0.39, 0.33),
        "cdna4": (0.47, 0.33),
    },
    "efficient": {"ampere": (0.28, 0.22)},
}
#: backward's FLOP of flash attention over those that are counted, twice forward's: scores are
#: computed again
_AGAIN = 1.25
#: share of the fp32 peak that products of stored scores reach in 16 bits where heads are no
#: multiple of eight wide: tensor cores want rows of 16 bytes (NVIDIA, Deep Learning Performance,
#: Matrix Multiplication, "Tensor Core Usage"), and other cores widen what they read.  From 80
#: blocks on 40 nodes of A100 (bigscience-workshop/bigscience, train/tr11-176B-ml/
#: chronicles-prequel.md): 208.2 s of a step with heads 150 wide and 147.4 with 216, of width 14,400
#: and 13,824, are 5.0e14 FLOP of scores a device in 45 s, 0.56; 78 blocks with heads 108 wide
#: beside 216 ("NHEADS comparison") 0.52.  Measured on Ampere alone; taken for all generations
UNALIGNED = 0.5
#: what a small kernel takes when a captured graph replays it [s]: 1.34 us on an A100, 1.26 on an
#: H200 (RRZE-HPC/gpu-benches, `gpu-small-kernels`)
GRAPH_LAUNCH = 1.34e-6
#: whose code there is beside torch's own
_CODES = {
    "nanotron": "nanotron",
    "torchtitan": "torchtitan",
    "tensorflow": "BERT's code in TensorFlow",
}


@record
class Execution:
    """How kernels are made and issued.

    compile      true: torch.compile, whose kernels do what neighbours compute element by element at
                 once; false: torch runs every operation by itself.  Left out, transformers have the
                 kernels of a hand-tuned library, which move as much as compiled ones; one share of
                 the peak holds for all that a layer does where products were not measured (before
                 Volta; in 32 bit all but Volta's fp32 and Ampere's tf32) and with
                 compute.efficiency.  Left out, image networks of convolutions run one by one, but
                 fused with pmap and megatron; one share holds on other makers' devices and with
                 compute.efficiency.  Detectors, U-Nets, ConvNeXt and Swin have no such lists
    code         whose code torch runs one by one, with compile: false; huggingface/nanotron's Llama
                 has norms and rotary positions in one kernel each, copies between layouts, and a
                 loss in 32 bit; torchtitan's has torch's fused norms (torch 2.9) and complex rotary
                 positions; tensorflow: BERT's own code in a graph without XLA, which fuses nothing
    cuda_graphs  a step is captured once and replayed: the host issues it as a whole, and a kernel
                 takes 1.3 us at least
    """

    compile: Flag | None = None
    code: Literal["transformers", "nanotron", "torchtitan", "tensorflow"] = "transformers"
    cuda_graphs: Flag = False

    def __post_init__(self) -> None:
        if self.code != "transformers" and self.compile is not False:
            raise Refused("goes with compile: false, operations one by one", ("code",))

    def list_of(self, layer: Layer) -> Kernels | None:
        """The kernels of `layer` that are run so; None: not counted."""
        if self.code != "transformers":
            counted: Kernels | None = getattr(layer.coded_kernels, self.code)
            return counted
        return layer.compiled_kernels if self.compile else layer.eager_kernels

    @property
    def kernelwise(self) -> bool:
        """Whether it is said which kernels there are."""
        return self.compile is not None


def floor_of(device: Device, execution: Execution) -> Device:
    """`device` with what a kernel takes on it at least, in a captured graph if there is one."""
    least = min(device.launch_overhead, GRAPH_LAUNCH)
    return replace(device, launch_overhead=least) if execution.cuda_graphs else device


class Brought(NamedTuple):
    """What a strategy's framework brings of its own accord: a hand-tuned library's attention, and
    kernels that are fused."""

    attention: bool = False
    fused: bool = False


NOTHING_BROUGHT = Brought()


def executed(
    model: Model,
    execution: Execution,
    attention: Attention,
    device: Device | None,
    dtype: str,
    *,
    autocast: bool = False,
    rated: bool = False,
    others: tuple[Device, ...] = (),
    brought: Brought = NOTHING_BROUGHT,
) -> Model:
    """`model` whose layers are run as `execution` says, in `dtype` on `device`, where products are
    cast to by `autocast`.  Where nothing is said, no share of the peak is given (`rated`) and it is
    known how fast kernels are: by a hand-tuned library, unless there are `others`, image networks
    one by one unless the framework fuses them (`brought`); else the same model.  Raises Refused
    where that is not counted, also of some kinds of layers alone."""
    if convolutions.is_network(model):
        known = rated and all(map(convolutions.has_shares, (device, *others)))
        run = execution.kernelwise or known
        return _convolved(model, execution, brought, autocast=autocast) if run else model
    kind = _attention(attention, device, dtype, execution)
    if not execution.kernelwise:
        known = rated and not others and knows(device, dtype)
        own = "library" if brought.attention and kind == "flash" else kind
        return _by_library(model, own, device, dtype) if known else model
    _accept(model, execution, autocast=autocast)
    pace, bare = _pace(kind, device, dtype), _unaligned(device, dtype)
    single = dtype in _SINGLE
    layers = (
        _layer(layer, pace, bare, execution, autocast=autocast, single=single)
        for layer in model.layers
    )
    return replace(model, layers=tuple(layers))


def _convolved(model: Model, execution: Execution, brought: Brought, *, autocast: bool) -> Model:
    """An image network kernel by kernel."""
    if execution.code != "transformers":
        message = f"{_CODES[execution.code]} has none of the layers of {model.name}; leave it out"
        raise Refused(message, ("execution", "code"))
    if execution.compile is None:
        return convolutions.listed(model, fused=brought.fused, autocast=autocast, launched=False)
    return convolutions.listed(model, fused=execution.compile, autocast=autocast)


def _accept(model: Model, execution: Execution, *, autocast: bool) -> None:
    """Refuse models of which no kernels are counted."""
    if any(layer.forward is not None for layer in model.layers):
        message = "the layers state their durations, however kernels are made; leave it out"
        raise Refused(message, ("execution", "compile"))
    if all(layer.eager_kernels is None for layer in model.layers):
        raise Refused(
            f"kernels are counted for transformers and image networks of convolutions, not for "
            f"{model.name}; leave it out "
            "(host.kernels says which share a compiler leaves; cuda_graphs goes with any model)",
            ("execution", "compile"),
        )
    _accept_lists(model, execution, autocast=autocast)


def _accept_lists(model: Model, execution: Execution, *, autocast: bool) -> None:
    """Refuse models of which some layers of blocks have no list of kernels run so; what stands
    outside blocks is counted by its rules."""
    where, compiled = ("execution", "compile"), bool(execution.compile)
    blocks = [layer for layer in model.layers if layer.unit]
    lists = [execution.list_of(layer) for layer in blocks]
    lacking = _kinds(one for one, counted in zip(blocks, lists, strict=True) if counted is None)
    if lacking and execution.code != "transformers":
        message = f"{_CODES[execution.code]} has no {lacking} as {model.name} has; leave it out"
        raise Refused(message, ("execution", "code"))
    if lacking:
        how = "compiled" if compiled else "run one by one"
        eagerly = compiled and all(layer.eager_kernels is not None for layer in blocks)
        instead = "compile: false is, and so is leaving it out" if eagerly else "leave it out"
        message = f"kernels of {lacking} of {model.name} {how} are not counted; {instead}"
        raise Refused(message, where)
    cast = _kinds(
        one for one, counted in zip(blocks, lists, strict=True)
        if autocast and counted is not None and counted.autocast is None
    )  # fmt: skip
    if cast:
        raise Refused(
            f"kernels of {cast} of {model.name} under autocast are not counted; parameters in 16 "
            "bit are, and strategies that cast whole modules (fsdp, zero, megatron)",
            where,
        )


def _kinds(layers: Iterable[Layer]) -> str:
    """The last names of `layers`, each once."""
    return ", ".join(dict.fromkeys(layer.name.rpartition(".")[2] for layer in layers))


def knows(device: Device | None, dtype: str) -> bool:
    """Whether it is known what products in `dtype` reach on `device`."""
    return device is not None and _reached(device.generation, dtype) is not None


def reached(device: Device, dtype: str) -> tuple[float, float]:
    """Share of the peak in `dtype` that large products reach on `device`, and elements of a sum at
    which they reach half of it; KeyError where it is not known."""
    found = _reached(device.generation, dtype)
    if found is None:
        raise KeyError(f"products in {dtype} on {device.name}")
    return SUSTAINED.get(device.name, found[0]) if dtype in HALF else found[0], found[1]


def kept(device: Device, large: float) -> float:
    """What products of a model that is a `large` one (0 to 1) keep of that in training."""
    least = LARGE.get(device.generation, 1.0)
    return least**large if least < 1.0 and device.peak_for("bf16") >= _BOUND else 1.0


def _reached(generation: str, dtype: str) -> tuple[float, float] | None:
    if dtype in HALF and generation in PRODUCTS:
        return PRODUCTS[generation], NARROW[generation]
    return SINGLE.get((generation, dtype))


def _by_library(model: Model, kind: str, device: Device | None, dtype: str) -> Model:
    """`model` whose layers are a hand-tuned library's kernels, which move what a compiler's do
    (fused norms, residuals, rotary positions, activations and losses: NVIDIA/TransformerEngine,
    NVIDIA/Megatron-LM megatron/core/fusions, linkedin/Liger-Kernel) or what
    `dpsim/models/library_kernels.py` counts; the same model where not all layers of its blocks are
    counted."""
    inside = [layer for layer in model.layers if layer.unit]
    timed = any(layer.forward is not None for layer in model.layers)
    if timed or not inside or any(_of_library(layer) is None for layer in inside):
        return model
    pace, bare = _pace(kind, device, dtype), _unaligned(device, dtype)
    layers = []
    for layer in model.layers:
        own = _counted(layer, _of_library(layer), pace, bare, single=dtype in _SINGLE)
        launches = layer.kernels, layer.backward_kernels
        layers.append(replace(own, kernels=launches[0], backward_kernels=launches[1], library=True))
    return replace(model, layers=tuple(layers))


def _of_library(layer: Layer) -> Kernels | None:
    """What the kernels of a hand-tuned library move in `layer`."""
    return layer.library_kernels or layer.compiled_kernels


def _attention(
    asked: Attention, device: Device | None, dtype: str, execution: Execution
) -> Attention:
    """The kernel that attention runs in: flash attention needs 16 bits and, of NVIDIA's devices,
    Ampere; `sdpa` takes it where it can (torch.nn.functional.scaled_dot_product_attention)."""
    where = ("model", "attention")
    capability = device.compute_capability if device else 0
    if asked in ("efficient", "flash3") and not execution.kernelwise:
        message = f"{asked} counts as a kernel; say execution: {{compile: true}} or false"
        raise Refused(message, where)
    if asked == "flash3" and (dtype not in HALF or (device and device.generation != "hopper")):
        message = f"flash3 runs in 16 bits on Hopper devices, not in {dtype} on"
        name = device.name if device else "what there is"
        raise Refused(f"{message} {name}; sdpa chooses what runs there", where)
    if asked in ("flash", "sdpa"):
        able = dtype in HALF and (capability == 0 or capability >= 80)
        return "flash" if able else "efficient"
    return asked


def _pace(kind: str, device: Device | None, dtype: str) -> tuple[float, float] | None:
    """Shares of the peak of attention forward and backward.  On generations without figures it
    loses against products what it loses on Ampere; None: its kernels are products, as in fp32,
    where these are so slow that nothing beside them counts."""
    known, generation = ATTENTION.get(kind), device.generation if device else "other"
    if known is None or generation not in PRODUCTS or dtype == "fp32":
        return None
    if generation in known:
        return known[generation]
    forward, backward = known["ampere"]
    scale = PRODUCTS[generation] / PRODUCTS["ampere"]
    return forward * scale, backward * scale


def _unaligned(device: Device | None, dtype: str) -> float:
    """Share of the peak in `dtype` of products that miss the tensor cores; 0: none do."""
    own = rest_of(dtype)
    if device is None or dtype not in HALF or not {own, "fp32"} <= device.peak.keys():
        return 0.0
    return UNALIGNED * device.peak["fp32"] / device.peak[own]


def _layer(
    layer: Layer, pace: tuple[float, float] | None, bare: float, execution: Execution, *,
    autocast: bool, single: bool,
) -> Layer:  # fmt: skip
    """`layer` kernel by kernel; as it is where its kernels are not counted so."""
    counted = execution.list_of(layer)
    if counted is not None and autocast:
        counted = counted.autocast or counted
    return _counted(layer, counted, pace, bare, single=single)


def _counted(
    layer: Layer, counted: Kernels | None, pace: tuple[float, float] | None, bare: float, *,
    single: bool,
) -> Layer:  # fmt: skip
    """`layer` with the kernels `counted`, or those of them in 32 bit (`single`); `bare`: what its
    products reach that miss the tensor cores."""
    if counted is None:
        return layer
    if single:
        counted = counted.single or counted
    stored = bare / layer.unaligned if layer.unaligned else 0.0
    return replace(
        layer,
        kernels=counted.forward,
        backward_kernels=counted.backward,
        forward_bytes=counted.products,
        backward_bytes=2 * counted.products,
        streamed=Streamed(counted.moved, counted.moved_back, counted.whole, counted.whole_back),
        cast_weights=counted.weights,
        # products with stored scores take as long as the scores are moved, which is counted, but
        # for those that miss the tensor cores
        pace=(stored, stored) if layer.again_kernels > 0 else pace and (pace[0], pace[1] / _AGAIN),
    )
