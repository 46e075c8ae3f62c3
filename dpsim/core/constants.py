"""Fitted constants: numbers with a physical meaning, read off measurements, with standard errors.

They are shipped as ``dpsim/core/fitted/NAME.yaml``, a mapping of dotted names
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

from dpsim.core import yamlfile
from dpsim.core.record import Natural, Refused, Text, build, dump, record
from dpsim.core.units import Unit


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


def text(head: str, constants: Mapping[str, Constant]) -> str:
    """A file of `constants` that `load` reads; `head` becomes comments above them."""
    comments = "".join(f"# {line}\n" for line in head.splitlines())
    return comments + yamlfile.dump_yaml({name: dump(found) for name, found in constants.items()})


def save(name: str, head: str, constants: Mapping[str, Constant]) -> Path:
    """Let `constants` be the shipped ones called `name`, in this process too."""
    target = folder() / f"{name}.yaml"
    target.write_text(text(head, constants), encoding="utf-8")
    shipped.cache_clear()
    return target


def folder() -> Path:
    """Where the shipped constants are."""
    return Path(str(resources.files("dpsim"))) / "core" / "fitted"
