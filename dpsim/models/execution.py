"""How a model's kernels are made and issued: eagerly, compiled, in captured graphs.

Kernels run one after the other: products at the rate that products reach, flash attention at its
own, and what else there is as fast as it streams through memory.  Where nothing is said, that holds
of transformers on devices whose products were measured in their dtype (`dpsim.models.rates`), and
of image networks on NVIDIA's (`dpsim.models.convolutions`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from dpsim.core.dtypes import rest_of
from dpsim.core.record import Flag, Refused, altered, record
from dpsim.machines.devices import Device
from dpsim.models import Layer, Model, convolutions
from dpsim.models.huggingface import Attention
from dpsim.models.rates import ATTENTION, GRAPH_LAUNCH, HALF, PRODUCTS, UNALIGNED, knows
from dpsim.models.streams import Kernels, Streamed

#: those whose elements take 32 bits
_SINGLE = ("fp32", "tf32")
#: backward's FLOP of flash attention over those that are counted, twice forward's: scores are
#: computed again
_AGAIN = 1.25
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
    channels_last  images are laid out with channels last, as tensor cores want them; false: with
                 channels first, so that each convolution in 16 bits or tf32 copies what it reads
                 and writes.  Left out: last with compile: true and with the strategies mirrored,
                 multi_worker_mirrored, parameter_server, pmap and megatron, whose frameworks lay
                 them so by themselves; first with all others, torch's (also horovod)
    cuda_graphs  a step is captured once and replayed: the host issues it as a whole, and a kernel
                 takes 1.3 us at least
    """

    compile: Flag | None = None
    code: Literal["transformers", "nanotron", "torchtitan", "tensorflow"] = "transformers"
    channels_last: Flag | None = None
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

    def lays_last(self, brought: Brought) -> bool:
        """Whether images are laid out with channels last."""
        own = bool(self.compile) or brought.channels_last
        return own if self.channels_last is None else self.channels_last

    @property
    def kernelwise(self) -> bool:
        """Whether it is said which kernels there are."""
        return self.compile is not None


def floor_of(device: Device, execution: Execution) -> Device:
    """`device` with what a kernel takes on it at least, in a captured graph if there is one."""
    least = min(device.launch_overhead, GRAPH_LAUNCH)
    return replace(device, launch_overhead=least) if execution.cuda_graphs else device


class Brought(NamedTuple):
    """What a strategy's framework brings of its own accord: a hand-tuned library's attention,
    kernels that are fused, and images laid out with channels last."""

    attention: bool = False
    fused: bool = False
    channels_last: bool = False


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
    network = convolutions.is_network(model)
    known = rated and all(map(convolutions.has_shares, (device, *others)))
    run = network and (execution.kernelwise or known)
    if execution.channels_last is not None and not run:
        why = _laid_out(model, network=network, counts=convolutions.turns(device, dtype))
        raise Refused(why, ("execution", "channels_last"))
    if network:
        turned = convolutions.turns(device, dtype) and not execution.lays_last(brought)
        how = brought.fused, autocast, turned
        return _convolved(model, execution, *how) if run else model
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


def _laid_out(model: Model, *, network: bool, counts: bool) -> str:
    """Why a layout of images is refused; `counts`: whether it would change anything."""
    if network and not counts:
        return "changes nothing on such devices in such a dtype; leave it out"
    if network:
        return "goes with convolutions whose kernels are known; compile: false has them"
    return f"is of image networks of convolutions, which {model.name} is not; leave it out"


def _convolved(
    model: Model, execution: Execution, fused: bool, autocast: bool, turned: bool
) -> Model:
    """An image network kernel by kernel."""
    if execution.code != "transformers":
        message = f"{_CODES[execution.code]} has none of the layers of {model.name}; leave it out"
        raise Refused(message, ("execution", "code"))
    if execution.compile is None:
        own = convolutions.ImageRun(fused, autocast, turned, launched=False)
    else:
        own = convolutions.ImageRun(execution.compile, autocast, turned)
    return convolutions.listed(model, own)


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
        counted = _of_library(layer)
        own = _changes(layer, counted, pace, bare, single=dtype in _SINGLE) if counted else {}
        launches = {"kernels": layer.kernels, "backward_kernels": layer.backward_kernels}
        layers.append(altered(layer, {**own, **launches, "library": True}))
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
    if counted is None:
        return layer
    return altered(layer, _changes(layer, counted, pace, bare, single=single))


def _changes(
    layer: Layer, counted: Kernels, pace: tuple[float, float] | None, bare: float, *, single: bool
) -> dict[str, Any]:
    """What `layer` has of the kernels `counted`, or of those of them in 32 bit (`single`); `bare`:
    what its products reach that miss the tensor cores."""
    if single:
        counted = counted.single or counted
    stored = bare / layer.unaligned if layer.unaligned else 0.0
    # products with stored scores take as long as the scores are moved, which is counted, but for
    # those that miss the tensor cores
    own = (stored, stored) if layer.again_kernels > 0 else pace and (pace[0], pace[1] / _AGAIN)
    return {
        "kernels": counted.forward,
        "backward_kernels": counted.backward,
        "forward_bytes": counted.products,
        "backward_bytes": 2 * counted.products,
        "streamed": Streamed(counted.moved, counted.moved_back, counted.whole, counted.whole_back),
        "cast_weights": counted.weights,
        "pace": own,
    }
