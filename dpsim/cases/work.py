"""Work: what is trained, on which devices, and how long they take for its layers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dpsim.cases.chapters import Chapters
from dpsim.cases.site import device_of
from dpsim.core.constants import shipped
from dpsim.core.dtypes import dtype_class, rest_of
from dpsim.core.lean import dataclass
from dpsim.core.many import Many, added, root, smaller
from dpsim.core.record import Refused
from dpsim.describe.compute import Compute
from dpsim.describe.parallel import Parallel
from dpsim.describe.scenario import Scenario
from dpsim.describe.sections import made_up
from dpsim.describe.uneven import ranks_of
from dpsim.machines.devices import Device
from dpsim.machines.machine import devices_with
from dpsim.models import Model, convolutions
from dpsim.models.compute import (
    DEFAULT_EFFICIENCY,
    WHOLE,
    LayerTime,
    Shares,
    layer_times,
    usual_share,
)
from dpsim.models.execution import NOTHING_BROUGHT, Brought, Execution, executed, floor_of
from dpsim.models.few_bits import grouped_share, kept_wide, products_share
from dpsim.models.precision import Precision, PrecisionSpec
from dpsim.models.rates import kept, knows, reached
from dpsim.models.recomputing import Recompute, stopping
from dpsim.models.section import load
from dpsim.models.sums import GradientSums
from dpsim.models.sums import added as added_up

#: parts of a model whose times are kept, the latest: stages of pipelines, each for some sizes of
#: micro-batches
_PARTS = 128


@dataclass(frozen=True)
class Seats:
    """The ranks of a site, apart from what links them.

    gpus     devices of a node; None where there are no nodes
    device   the machine's own; None where ranks alone are given
    devices  ranks that have another one, or the scenario's name of it
    base     the folder of the scenario's files
    sites    ranks of every site, where there are several
    """

    ranks: int
    gpus: int | None
    device: Device | None
    devices: Mapping[str, str | Device] | None
    base: Path
    sites: tuple[int, ...] = ()


@dataclass(frozen=True)
class ModelWork:
    """A scenario's model section `spec` and its precision, on the machine's `device`, with kernels
    that are made and issued as `execution` says; `autocasts`: where parameters are wider than what
    is computed in, that is autocast's doing; `rated`: no share of the peak is given; `others`:
    devices of some ranks; `brought`: what the strategy's framework brings; `sums`: how gradients of
    micro-batches are added up."""

    spec: Any
    given: PrecisionSpec | None
    base: Path
    device: Device | None
    execution: Execution = field(default_factory=Execution)
    autocasts: bool = True
    rated: bool = False
    others: tuple[Device, ...] = ()
    brought: Brought = NOTHING_BROUGHT
    sums: GradientSums | None = None

    @cached_property
    def model(self) -> Model:
        """As read from the section, a file or a record."""
        return load(self.spec, self.base, self.device, self._executed)

    @cached_property
    def convolves(self) -> bool:
        """Whether it is known how convolutions run, one after the other with all else."""
        return convolutions.is_listed(self.model)

    @property
    def lies(self) -> bool:
        """Whether it counts how its images lie."""
        return self.convolves and convolutions.turns(self.device, self.precision.compute)

    @cached_property
    def convolves_in_part(self) -> bool:
        """Whether convolutions are a part of what it multiplies."""
        return convolutions.in_part(self.model)

    @cached_property
    def large(self) -> float:
        """How far kernels are those of a large model: of experts they are as short as of small
        ones."""
        parts = any(layer.experts for layer in self.model.layers)
        return 0.0 if parts else large_share(self.model.parameters)

    def _executed(self, model: Model) -> Model:
        """`model` with its kernels as they are made."""
        own = self._precision(model)
        kind: Any = getattr(self.spec, "attention", "flash")
        # what autocast casts to: an image network's convolutions stay in 16 bits
        narrow = rest_of(own.compute) if convolutions.is_network(model) else own.compute
        cast = self.autocasts and own.parameters == "fp32" and narrow in ("bf16", "fp16")
        made = executed(
            model, self.execution, kind, self.device, own.compute,
            autocast=cast, rated=self.rated, others=self.others, brought=self.brought,
        )  # fmt: skip
        made = stopping(made, own.compute, compiled=bool(self.execution.compile))
        return added_up(kept_wide(made, own), self.sums, own)

    def times(
        self,
        model: Model,
        device: Device | None,
        samples: float,
        efficiency: float,
        recompute: Recompute,
        launched: bool,
        shares: Shares = WHOLE,
    ) -> tuple[LayerTime, ...]:
        """Of `model`, which is this one or a part of it, as `layer_times` has it; each once."""
        if device is not None and self.execution.cuda_graphs:
            device, launched = floor_of(device, self.execution), False
        dtype = self.precision.compute
        own = (samples, dtype, efficiency, recompute, launched, shares, device, model)
        if isinstance(samples, Many) or isinstance(efficiency, Many):
            return _times(*own)  # which are not looked up: they are equal to no others
        return self._times.known(_times, *own)

    @cached_property
    def _times(self) -> Chapters:
        return Chapters(_PARTS, compared=_PARTS)

    @cached_property
    def precision(self) -> Precision:
        """As given, else everything in the model's own dtype."""
        return self._precision(self.model)

    def _precision(self, model: Model) -> Precision:
        return (self.given or PrecisionSpec()).filled(model.dtype)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Pace:
    """The device of every rank, and layer times on each kind of them.

    site      who computes
    work      what is computed
    compute   the scenario's section
    launched  whether the host's launches are played by themselves
    level     what multiplies layer times, as calibration has it
    least     what every kernel takes at least, where ranks share a model and the host issues its
              kernels one by one [s]
    """

    site: Seats
    work: ModelWork
    compute: Compute
    parallel: Parallel
    recompute: Recompute
    launched: bool
    level: float
    least: float = 0.0

    @cached_property
    def kinds(self) -> tuple[Device | None, ...]:
        """The kinds of devices that ranks have; the machine's own is the first."""
        given = self.site.devices
        if not given:
            return (self.site.device,)
        found = [self.site.device]
        for name in given.values():
            device = device_of(self.site.base, name)
            if device not in found:
                found.append(device)
        if len(found) > 1 and not self.parallel.mesh(self.site.ranks).plain:
            message = "ranks that share a model have one kind of device; leave it out"
            raise Refused(message, ("cluster", "devices"))
        if len(found) > 1 and any(layer.forward is not None for layer in self.work.model.layers):
            raise Refused(
                "the model's layers state their durations, whatever the device; say how slow ranks "
                "are with variability.slow_ranks",
                ("cluster", "devices"),
            )
        return tuple(found)

    @cached_property
    def of_rank(self) -> tuple[int, ...]:
        """The place in `kinds` of every rank's own."""
        found = [0] * self.site.ranks
        for text, name in (self.site.devices or {}).items():
            number = self.kinds.index(device_of(self.site.base, name))
            for ranks in ranks_of(text):
                found[ranks.start : ranks.stop] = [number] * len(found[ranks.start : ranks.stop])
        return tuple(found)

    @property
    def peak(self) -> float | None:
        """What all devices could do in the dtype that they compute in [FLOP/s]."""
        if self.site.device is None:
            return None
        counts = np.bincount(self.of_rank, minlength=len(self.kinds))
        return float(sum(self.peak_of(k) * int(count) for k, count in enumerate(counts) if count))

    def peak_of(self, kind: int) -> float:
        """What one device of this kind could do [FLOP/s]; Refused where it lacks the dtype."""
        device = self.kinds[kind]
        assert device is not None
        dtype = self.work.precision.compute
        try:
            return device.peak_for(dtype)
        except ValueError as error:
            have = f"; {dtype} is on {', '.join(devices_with(dtype))}" if dtype == "nvfp4" else ""
            raise Refused(f"{error}{have}", ("precision", "compute")) from None

    def times(
        self, samples: float, model: Model | None = None, kind: int = 0
    ) -> tuple[LayerTime, ...]:
        """The times of one micro-batch of `samples` samples, layer by layer; `model` is the part
        that is computed, where it is not all of it."""
        return tuple(t.scaled(self.level) for t in self._unscaled(samples, model, kind))

    def seconds(self, samples: float, kind: int = 0) -> float:
        """Their sum over the whole model [s]."""
        return _sum(self.times(samples, kind=kind))

    def uncalibrated_seconds(self, samples: float, kind: int) -> float:
        """The same before calibration."""
        return _sum(self._unscaled(samples, None, kind))

    def _unscaled(self, samples: float, model: Model | None, kind: int) -> tuple[LayerTime, ...]:
        work, device = self.work, self.kinds[kind]
        model, efficiency = model or work.model, self.efficiency(kind)
        if device is not None:
            self.peak_of(kind)
            least = max(device.launch_overhead, self.least)
            device = replace(device, launch_overhead=least) if self.least else device
        try:
            own = self.recompute, self.launched, self._shares(kind)
            return work.times(model, device, samples, efficiency, *own)
        except ValueError as error:
            raise Refused(str(error), ("model",)) from None

    def efficiency(self, kind: int = 0) -> float:
        """Share of the device's peak that kernels reach: as given, as fitted for its generation in
        this dtype, as published, or the default; of products alone where kernels are known."""
        given, device = self.compute.efficiency, self.kinds[kind]
        if given is not None or device is None:
            return DEFAULT_EFFICIENCY if given is None else given
        in_part = self.work.convolves_in_part and convolutions.has_shares(device)
        if self.work.convolves or in_part:
            share = convolutions.share(device, self.work.precision.compute)
            return share * convolutions.IN_PART if in_part else share
        if self._kernelwise(device):
            return kept(device, self.work.large) * reached(device, self.work.precision.compute)[0]
        found = fitted(f"{self._class_of(device)}.efficiency", device)
        return found or usual_share(device, self.work.model)

    def _shares(self, kind: int) -> Shares:
        """What products in few bits, narrow and grouped ones reach of that efficiency: all of one
        that is given, or is fitted to whole steps."""
        device, dtype = self.kinds[kind], self.work.precision.compute
        if self.compute.efficiency is not None or device is None or not self._kernelwise(device):
            return WHOLE
        few, narrow = products_share(device, dtype), reached(device, dtype)[1]
        return Shares(few, narrow, grouped_share(device, dtype))

    def _kernelwise(self, device: Device | None) -> bool:
        """Whether it is known what products alone reach on `device`."""
        library = any(layer.library for layer in self.work.model.layers)
        told = (self.work.execution.kernelwise or library) and not self.work.convolves
        return told and knows(device, self.work.precision.compute)

    @property
    def at_rates(self) -> bool:
        """Whether a transformer's kernels run at rates of their own, not at one share."""
        return self.compute.efficiency is None and self._kernelwise(self.site.device)

    @property
    def device_class(self) -> str:
        """Generation of the machine's device and class of the dtype that it computes in:
        "volta.half"."""
        return self._class_of(self.site.device)

    def _class_of(self, device: Device | None) -> str:
        generation = device.generation if device else "other"
        return f"{generation}.{dtype_class(self.work.precision.compute)}"


def _times(
    samples: float,
    dtype: str,
    efficiency: float,
    recompute: Recompute,
    launched: bool,
    shares: Shares,
    device: Device | None,
    model: Model,
) -> tuple[LayerTime, ...]:
    """What tells them apart soonest comes first."""
    return layer_times(
        model, device, dtype, samples, efficiency, recompute, floor=not launched, shares=shares
    )


def _sum(times: tuple[LayerTime, ...]) -> float:
    return added(t.forward + t.backward for t in times)


def has_rates(device: Device | None, dtype: str) -> bool:
    """Whether a transformer's kernels run at rates of their own on `device`, unless another share
    of the peak is given."""
    return knows(device, dtype)


def fitted(name: str, device: Device | None) -> float:
    """A constant fitted on training runs; 0 where there is none, and where `device` is none of
    NVIDIA's, whose runs they were fitted on."""
    constants = shipped("training")
    gpu = device is not None and device.compute_capability > 0
    return constants[name].value if gpu and name in constants else 0.0


#: parameters of a model up to which its kernels are as slow beside collectives as those of small
#: models, and from which on as those of large ones
FEW_PARAMETERS, MANY_PARAMETERS = 3e8, 3e9


def large_share(parameters: float) -> float:
    """How far a model is a large one, from 0 to 1, by the logarithm of its parameters."""
    share = _over(parameters) / _over(MANY_PARAMETERS) if parameters > 0 else 0.0
    return min(max(share, 0.0), 1.0)


def _over(parameters: float) -> float:
    return math.log(parameters / FEW_PARAMETERS)


def contended(kernels: str, device: Device | None, large: float) -> float:
    """How much longer kernels take on `device` while collectives of `kernels` move bytes: the less,
    the farther their model is a `large` one, for these are longer."""
    small = fitted(f"{kernels}.contention", device)
    return contended_between(small, fitted(f"{kernels}.contention.large", device) or small, large)


def contended_between(small: float, large: float, share: float) -> float:
    """That of a model that is so far a large one; no more than of a `small` one."""
    return small + share * (min(large, small) - small)


#: the most that ranks differ by: that of steps of 0.19 s; of shorter ones MLPerf's differ more, and
#: those of a shared cluster of H100 less
MOST_SPREAD = 0.06
#: what of that lasts: GPUs of one kind and cluster are 8 % apart, from one end of a box plot's
#: whiskers to the other (Sinha and others, SC 2022, abstract), 5.4 standard deviations
LASTING = 0.015


def spread_of(scenario: Scenario, device: Device | None, seconds: float) -> float:
    """Standard deviation of what ranks with `device` take for `seconds` of compute, as a share: as
    given, else as fitted; 0 for toys without a machine.

    Beside what lasts (`LASTING`), what makes them differ comes and goes, so what it adds grows with
    the root of the time in which it adds up, and its share falls with the root.  Of runs on
    synthetic data what lasts is left (A35).
    """
    given = scenario.compute.spread
    if given is not None:
        return given
    return spread_after(fitted("gpu.spread", device), seconds, made_up(scenario.input))


def spread_after(second: float, seconds: float, synthetic: bool = False) -> float:
    """The same where what comes and goes is `second` in a second; 0 where nothing is known."""
    if synthetic and second:
        return LASTING
    if not second or not seconds > 0:
        return MOST_SPREAD if second else 0.0
    return smaller(root(LASTING**2 + second**2 / seconds), MOST_SPREAD)
