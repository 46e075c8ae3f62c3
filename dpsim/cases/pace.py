"""Pace: how long a device takes for the layers of the model."""

from __future__ import annotations

from dataclasses import dataclass

from dpsim.cases.hardware import Hardware
from dpsim.core.constants import shipped
from dpsim.core.record import Refused
from dpsim.describe.scenario import Scenario
from dpsim.machines.devices import Device, dtype_class
from dpsim.models import Model
from dpsim.models.compute import DEFAULT_EFFICIENCY, LayerTime, layer_times


@dataclass(frozen=True)
class Pace:
    """Layer times on every kind of device; `level` multiplies them, as calibration has it."""

    scenario: Scenario
    hardware: Hardware
    level: float

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
        work, device, s = self.hardware.work, self.hardware.kinds[kind], self.scenario
        model, dtype = model or work.model, work.precision.compute
        if device is not None:
            self.hardware.peak_of(kind)
        efficiency, floor = self.efficiency(kind), s.host.launch is None
        try:
            return layer_times(model, device, dtype, samples, efficiency, s.recompute, floor=floor)
        except ValueError as error:
            raise Refused(str(error), ("model",)) from None

    def efficiency(self, kind: int = 0) -> float:
        """Share of the device's peak that kernels reach: as given, else as fitted for devices of
        its generation in this dtype, else DEFAULT_EFFICIENCY."""
        given, device = self.scenario.compute.efficiency, self.hardware.kinds[kind]
        if given is not None or device is None:
            return DEFAULT_EFFICIENCY if given is None else given
        return fitted(f"{self._class_of(device)}.efficiency", device) or DEFAULT_EFFICIENCY

    @property
    def device_class(self) -> str:
        """Generation of the machine's device and class of the dtype that it computes in:
        "volta.half"."""
        return self._class_of(self.hardware.site.device)

    def _class_of(self, device: Device | None) -> str:
        generation = device.generation if device else "other"
        return f"{generation}.{dtype_class(self.hardware.work.precision.compute)}"


def _sum(times: tuple[LayerTime, ...]) -> float:
    return sum(t.forward + t.backward for t in times)


def fitted(name: str, device: Device | None) -> float:
    """A constant fitted on training runs; 0 where there is none, and where `device` is no GPU."""
    constants = shipped("training")
    gpu = device is not None and device.compute_capability > 0
    return constants[name].value if gpu and name in constants else 0.0
