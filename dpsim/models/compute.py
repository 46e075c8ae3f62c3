"""Compute: how long a layer takes on a device (the roofline), and the optimizer.

One layer, one pass:  t = max(FLOP / (peak x efficiency), bytes / memory bandwidth,
kernels x launch overhead).  The first two are the roofline (Williams, Waterman and Patterson,
CACM 52(4), 2009); the third is the floor that makes small layers launch-bound.

Where it is said how kernels are made (dpsim/models/execution.py), they run one after the other:
t = max(FLOP of products / (peak x efficiency), their bytes / memory bandwidth) + attention's own
kernel + bytes of all others / (0.8 x memory bandwidth), with the same floor.

Products in 8 or 4 bits cast their operands first, and all else stays in 16
(dpsim/models/few_bits.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from dpsim.core.dtypes import QUANTISED, operand_bytes, rest_of, working_bytes
from dpsim.core.lean import dataclass
from dpsim.core.many import longer, longest
from dpsim.machines.devices import Device
from dpsim.models import Layer, Model, Tensor
from dpsim.models.few_bits import cast_bytes, cast_elements, is_cast
from dpsim.models.products import lengthened
from dpsim.models.recomputing import Recompute, done_again, stops_early
from dpsim.models.streams import Streamed

#: share of the dense peak that large training kernels reach when nothing has been measured.
#: MegaScale (arXiv:2402.15627) trains at 55 % MFU and PaLM (arXiv:2204.02311) at 46 %, whole step
#: included; the prior interval around it is docs/assumptions.md, A20.
DEFAULT_EFFICIENCY = 0.5
#: the same of TPUs of which their maker published what language models reach: medians on one slice
#: (AI-Hypercomputer/maxtext 0ed7bd52 MaxText/configs v4, v5e and v5p README.md: 3, 4 and 8 models;
#: 56 to 57 %, 56 to 67 % and 55 to 71 % of the peak, whole step included), without what is computed
#: again, which those figures do not count: all of forward, a third of what they do count, on v4 and
#: v5e (remat_policy: full).  On v5p attention is computed again and tensor ranks exchange: 0.73 is
#: what brings the 32B and 64B models there nearest, 0.98 to 1.01 times as long, 0.95 and 1.0.  Two
#: of v6e and two of TPU7x reach half
PUBLISHED_EFFICIENCY = {"TPU v4": 0.57 * 4 / 3, "TPU v5e": 0.62 * 4 / 3, "TPU v5p": 0.73}

#: multiplications of a direct convolution of 3 x 3 over those of F(2 x 2, 3 x 3) (Lavin and Gray,
#: "Fast algorithms for convolutional neural networks", CVPR 2016)
_WINOGRAD = 2.25
#: rows that a grouped product of experts computes beside those that it has: each expert's are
#: padded to whole tiles of 128 rows, by half a tile in the mean (deepseek-ai/DeepGEMM `README.md`,
#: NVIDIA/cutlass `media/docs/cpp/efficient_gemm.md`: tiles of 128 x 128)
HALF_TILE = 64
#: generations on which a grouped product takes as long as it computes and as it moves its weights
#: together, not as the longer of both.  B200, TransformerEngine's grouped products, 128 to 1,232
#: rows an expert, 36 shapes in three passes: together 4, 13 and 0 % off in the median, the longer
#: 23, 32 and 30 short; A100: the longer is right (MooreThreads/SimuMax; 4 shapes).  Hopper: forward
#: alone, 14 shapes in 16 bits (ai-dynamo/aiconfigurator)
APART = ("hopper", "blackwell")
#: share of the memory bandwidth that kernels reach which read and write each element once: 0.8 to
#: 0.95 of the datasheet's is measured for additions and copies on A100, H100 and A40
#: (RRZE-HPC/gpu-benches, linkedin/Liger-Kernel)
STREAMED = 0.8
#: the same of all kernels of a layer together, where it is not known which there are: inside what
#: is measured, above its middle (0.875)
TOGETHER = 0.9


def usual_share(device: Device, model: Model) -> float:
    """Share of the peak of `device` where nothing was fitted: as published of language models, or
    the default."""
    known = PUBLISHED_EFFICIENCY if model.sample == "sequence" else {}
    return known.get(device.name, DEFAULT_EFFICIENCY)


class PassWork(NamedTuple):
    """One pass of a layer, kernel by kernel: FLOP, those of attention over pairs and the share of
    the peak at which these run (None: as the others; 0: as fast as they move bytes), and elements
    that products and that all other kernels move.  `apart`: products move their weights before and
    behind what they compute; `share`: what they reach of what others do."""

    flop: float
    pairs: float
    pace: float | None
    products: float
    streamed: float
    apart: bool = False
    share: float = 1.0


class Shares(NamedTuple):
    """What some products reach of the share of the peak that wide ones in 16 bits do.

    few     products in 8 or 4 bits
    narrow  elements of a sum at which half is reached (k in k / (k + narrow), over what `WIDE` ones
            reach); 0: all are alike
    grouped grouped products of experts, over others
    """

    few: float = 1.0
    narrow: float = 0.0
    grouped: float = 1.0


WHOLE = Shares()


@dataclass(frozen=True)
class LayerTime:
    """Duration of one micro-batch's passes through one layer [s], what bounds them, the share of
    backward that makes gradients of weights (no later stage waits for it), and what of it computes
    again what forward did [s]."""

    forward: float
    backward: float
    bound: str
    weight_share: float = 0.5
    again: float = 0.0

    def scaled(self, factor: float) -> LayerTime:
        """The same work, `factor` times as long."""
        forward, backward, again = (
            seconds * factor for seconds in (self.forward, self.backward, self.again)
        )
        return LayerTime(forward, backward, self.bound, self.weight_share, again)


def layer_times(
    model: Model,
    device: Device | None,
    dtype: str,
    samples: float,
    efficiency: float,
    recompute: Recompute,
    *,
    floor: bool = True,
    shares: Shares = WHOLE,
) -> tuple[LayerTime, ...]:
    """Durations of every layer for a micro-batch of `samples` samples.

    `efficiency` is the share of the peak that is reached, of which `shares` has what some products
    do.
    `floor`: kernels take the device's launch overhead at least; not where the host's launches are
    played by themselves (dpsim/compile/host.py).  Raises ValueError where a layer states no
    duration and there is no device to derive one from.
    """
    if device is not None and not floor:
        device = replace(device, launch_overhead=0.0)
    if device is None:
        return tuple(_layer_time(layer, None, samples, recompute) for layer in model.layers)
    rest = Roofline(device, rest_of(dtype), efficiency, shares._replace(few=1.0))
    cast = Roofline(device, dtype, efficiency, shares)
    tables = {layer.name: layer.tensors[:1] for layer in model.layers}
    return tuple(
        _layer_time(
            layer, cast if is_cast(layer, dtype) else rest, samples, recompute,
            tables.get(layer.tied or "", ()),
        )
        for layer in model.layers
    )  # fmt: skip


def beyond_peak(model: Model, dtype: str) -> float:
    """How many times the peak the FLOP that are counted can seem to reach [1]: convolutions in fp32
    of 3 x 3 by an algorithm with fewer multiplications.  A stand-in of images, which has no shapes,
    may have some."""
    tensors = (tensor for layer in model.layers for tensor in layer.tensors)
    shapes = [tensor.shape for tensor in tensors if len(tensor.shape) == 4]
    small = (3, 3) in (shape[2:] for shape in shapes) or (model.sample == "image" and not shapes)
    return _WINOGRAD if dtype == "fp32" and small else 1.0


@dataclass(frozen=True)
class Roofline:
    """A device that computes in `dtype` and reaches the share `efficiency` of its peak, or what
    `shares` says of it."""

    device: Device
    dtype: str
    efficiency: float
    shares: Shares = WHOLE

    def bound(
        self, flop: float, elements: float, parameters: float, kernels: int, pairs: float = 0.0
    ) -> tuple[float, str]:
        """What one pass takes [s], and what bounds it; `pairs` of the FLOP are attention's."""
        moved = elements * working_bytes(self.dtype) + parameters * operand_bytes(self.dtype)
        attention = pairs * (self.peak * self.shares.few / self.peak_of_rest - 1.0)
        times = {
            "compute": (flop + attention) / self.reached,
            "memory_bandwidth": moved / self.device.memory_bandwidth / TOGETHER,
            "host": kernels * self.device.launch_overhead,
        }
        return longest(times)

    def one_by_one(self, own: PassWork, parameters: float, kernels: int) -> tuple[float, str]:
        """What one pass takes whose kernels run one after the other [s], and what bounds it."""
        weights = parameters * operand_bytes(self.dtype) / self.device.memory_bandwidth
        share = self.efficiency if own.pace is None else own.pace
        attention = own.pairs / (self.peak_of_rest * share) if share else 0.0
        computed = (own.flop - own.pairs) / (self.reached * own.share)
        moved = self.moving(own.products) + weights
        busy, bound = longest(
            {"compute": computed + weights * own.apart, "memory_bandwidth": moved}
        )
        streamed = self.moving(own.streamed) / STREAMED
        bound = longer((busy + attention, bound), (streamed, "memory_bandwidth"))[1]
        launches = kernels * self.device.launch_overhead
        return longer((busy + attention + streamed, bound), (launches, "host"))

    @property
    def peak(self) -> float:
        """What products could reach [FLOP/s]."""
        return self.device.peak_for(self.dtype)

    @property
    def reached(self) -> float:
        """What products do reach [FLOP/s]."""
        return self.peak * self.efficiency * self.shares.few

    @property
    def peak_of_rest(self) -> float:
        """What attention could reach [FLOP/s]."""
        return self.device.peak_for(rest_of(self.dtype))

    def casts(self, layer: Layer, samples: float) -> tuple[float, float]:
        """What forward and backward take to cast operands to 8 or 4 bits [s]."""
        if self.dtype == rest_of(self.dtype):
            return 0.0, 0.0
        ahead, back = cast_elements(layer, samples)
        forward, backward = cast_bytes(layer, self.dtype)
        rate = self.device.memory_bandwidth
        return ahead * forward / rate, back * backward / rate

    def moving(self, elements: float) -> float:
        """What reading or writing so many elements of the dtype takes [s]."""
        return elements * working_bytes(self.dtype) / self.device.memory_bandwidth

    def adding(self, layer: Layer) -> float:
        """Elements that backward moves to add a layer's gradients to those before."""
        return layer.adding * layer.trained / working_bytes(self.dtype)

    def seconds_adding(self, layer: Layer) -> float:
        """What that takes [s]."""
        return self.moving(self.adding(layer)) / STREAMED

    def unpacking(self, layer: Layer) -> float:
        """What one pass takes to unpack the quantised matrices of a layer [s]: they are read, and
        written in the dtype, by kernels of their own before each product."""
        packed = sum(
            QUANTISED[dtype] * count for dtype, _, count in layer.kinds if dtype in QUANTISED
        )
        return packed / self.device.memory_bandwidth + self.moving(layer.quantised)


def _rooflined(
    layer: Layer, roofline: Roofline, samples: float, table: tuple[Tensor, ...]
) -> tuple[float, float, str]:
    """Forward and backward [s], and what bounds them; `table`: what the layer uses of the one that
    it is tied to."""
    ahead, back = roofline.casts(layer, samples)
    if layer.streamed is not None:
        forward, backward, bound = _one_by_one(layer, roofline, samples, layer.streamed, table)
    else:
        forward, backward, bound = _at_once(layer, roofline, samples)
    return forward + ahead, backward + back, bound


def _padded(layer: Layer) -> tuple[float, float]:
    """FLOP of rows that grouped products pad in forward, and backward's over these: as many for
    every matrix that is read, and written as a gradient."""
    padded = 2.0 * HALF_TILE * layer.parameters if layer.experts else 0.0
    return padded, 1.0 + layer.trained / layer.parameters if layer.parameters else 0.0


def _at_once(layer: Layer, roofline: Roofline, samples: float) -> tuple[float, float, str]:
    """The same of a layer whose kernels are not known."""
    padded, share = _padded(layer)
    flop, moved = layer.forward_flop * samples + padded, layer.forward_bytes * samples
    pairs = layer.pairs * samples
    forward, bound = roofline.bound(flop, moved, layer.parameters, layer.kernels, pairs)
    unpacked = roofline.unpacking(layer)
    forward += unpacked + roofline.moving(layer.once)
    if layer.detached:
        return forward, 0.0, bound
    touched = layer.parameters + layer.trained  # weights are read, their gradients written
    flop = layer.backward_flop * samples + share * padded
    moved = layer.backward_bytes * samples
    backward, _ = roofline.bound(flop, moved, touched, layer.launched_backward, 2 * pairs)
    return forward, backward + unpacked + roofline.seconds_adding(layer), bound


def _one_by_one(
    layer: Layer, roofline: Roofline, samples: float, streamed: Streamed,
    table: tuple[Tensor, ...],
) -> tuple[float, float, str]:  # fmt: skip
    """The same of a layer whose kernels are known."""
    pace = layer.pace or (None, None)
    padded, share = _padded(layer)
    pairs, unpacked = layer.pairs * samples, roofline.unpacking(layer)
    slower = lengthened(layer, roofline.device, roofline.shares.narrow, samples, table)
    apart = bool(layer.experts) and roofline.device.generation in APART
    reached = roofline.shares.grouped if layer.experts else 1.0
    ahead = PassWork(
        pairs + (layer.forward_flop * samples - pairs) * slower[0] + padded,
        pairs, pace[0], layer.forward_bytes * samples,
        streamed.forward * samples + layer.cast_weights, apart, reached,
    )  # fmt: skip
    forward, bound = roofline.one_by_one(ahead, layer.parameters, layer.kernels)
    forward += unpacked + roofline.moving(layer.once)
    if layer.detached:
        return forward, 0.0, bound
    back = PassWork(
        2 * pairs + (layer.backward_flop * samples - 2 * pairs) * slower[1] + share * padded,
        2 * pairs, pace[1],
        layer.backward_bytes * samples,
        streamed.backward * samples + layer.cast_weights + roofline.adding(layer), apart, reached,
    )  # fmt: skip
    touched = layer.parameters + layer.trained
    backward, _ = roofline.one_by_one(back, touched, layer.launched_backward)
    return forward, backward + unpacked, bound


def _layer_time(
    layer: Layer, roofline: Roofline | None, samples: float, recompute: Recompute,
    table: tuple[Tensor, ...] = (),
) -> LayerTime:  # fmt: skip
    if layer.forward is not None and layer.backward is not None:
        forward, backward, bound = layer.forward * samples, layer.backward * samples, "compute"
    elif roofline is None:
        raise ValueError(
            f"layer {layer.name} has no forward and backward time, and there is no machine"
        )
    else:
        forward, backward, bound = _rooflined(layer, roofline, samples, table)
    if layer.detached:
        return LayerTime(forward, 0.0, bound, 0.0)
    return _with_again(layer, roofline, samples, recompute, LayerTime(forward, backward, bound))


def _with_again(
    layer: Layer, roofline: Roofline | None, samples: float, recompute: Recompute, own: LayerTime
) -> LayerTime:
    """`own` with what backward computes again, and the share of it all that is for weights."""
    forward, backward = own.forward, own.backward
    again = forward if done_again(layer, recompute) else 0.0
    if again and roofline is not None and stops_early(layer, recompute):
        again -= min(roofline.bound(layer.last_flop * samples, 0.0, 0.0, 1)[0], again)
    if recompute == "selective" and roofline is not None and layer.again_kernels:
        flop, moved = layer.again_flop * samples, layer.again_bytes * samples
        again, _ = roofline.bound(flop, moved, 0, layer.again_kernels, flop)
    if recompute == "selective_op" and roofline is not None and layer.op_flop:
        flop, moved = layer.op_flop * samples, layer.forward_bytes * samples
        again, _ = roofline.bound(flop, moved, layer.parameters, layer.kernels)
        streamed = layer.streamed.forward if layer.streamed else 0.0
        again += roofline.moving(streamed * samples) / STREAMED
    adding = roofline.seconds_adding(layer) if roofline is not None and layer.adding else 0.0
    share = layer.weight_share
    if again or adding:
        share = (share * (backward - adding) + adding) / (backward + again)
    return LayerTime(forward, backward + again, own.bound, share, again)


#: bytes read and written per parameter by one update in fp32: (p, g) -> p; (p, g, m) -> (p, m);
#: (p, g, m, v) -> (p, m, v)
_TOUCHED = {"none": 0, "sgd": 12, "momentum": 20, "adam": 28}


def optimizer_seconds(kind: str, parameters: float, device: Device | None) -> float:
    """Time to update `parameters` parameters: it is bound by memory traffic (fused kernels)."""
    return parameters * _TOUCHED[kind] / device.memory_bandwidth if device else 0.0
