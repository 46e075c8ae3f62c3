"""Fitted constants: numbers with a physical meaning, read off measurements, with standard errors.

They are shipped as ``dpsim/calibrations/NAME.yaml``, a mapping of dotted names
(``ethernet.efficiency``) to `Constant`s.  A constant belongs to a kind of fabric, a backend or a
device; there is none for a single model, series or source.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from dpsim import yamlfile
from dpsim.record import Natural, Refused, Text, build, record
from dpsim.units import Unit


@record
class Constant:
    """One fitted number.

    value, error  its value and standard error, in `unit` ("1" for a share or factor)
    meaning       what it is physically
    fitted_on     the measurements it was fitted on, and how; `n` says how many
    """

    value: Annotated[float, Unit("1", low=-1e15, high=1e15)]
    error: Annotated[float, Unit("1", low=0.0, high=1e15)]
    unit: Text
    meaning: Text
    fitted_on: Text
    n: Natural


@cache
def shipped(name: str) -> Mapping[str, Constant]:
    """The shipped constants called `name`.

    Raises FileRefused where the file is not there or not right.
    """
    return load(folder() / f"{name}.yaml")


def load(path: Path) -> Mapping[str, Constant]:
    """The constants of one file."""
    data, lines = yamlfile.load(path, path.name)
    found = {}
    for key, value in (data or {}).items():
        try:
            found[key] = build(Constant, value, file=True)
        except Refused as error:
            raise yamlfile.located(error, path.name, lines) from None
    return MappingProxyType(found)


def folder() -> Path:
    """Where the shipped constants are."""
    return Path(str(resources.files("dpsim"))) / "calibrations"
