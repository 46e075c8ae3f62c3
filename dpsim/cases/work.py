"""Work: what is trained, and in which dtypes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dpsim.machines.devices import Device
from dpsim.models import Model
from dpsim.models.precision import Precision, PrecisionSpec
from dpsim.models.section import load


@dataclass(frozen=True)
class Work:
    """A scenario's model section `spec` and its precision, on the machine's `device`."""

    spec: Any
    given: PrecisionSpec | None
    base: Path
    device: Device | None

    @cached_property
    def model(self) -> Model:
        return load(self.spec, self.base, self.device)

    @cached_property
    def precision(self) -> Precision:
        """As given, else everything in the model's own dtype."""
        dtype = self.model.dtype
        return (self.given or PrecisionSpec()).filled(dtype)  # type: ignore[arg-type]
