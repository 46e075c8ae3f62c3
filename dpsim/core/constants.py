"""Fitted constants: numbers with a physical meaning, read off measurements, with standard errors.

They are shipped as ``dpsim/core/fitted/NAME.yaml``, a mapping of dotted names
(``ethernet.efficiency``) to `Constant`s.  A constant belongs to a kind of fabric, a backend or a
device; there is none for a single model, series or source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


class _OnDemand(Mapping[str, Constant]):
    """The constants of a file, each checked when it is asked for: a run needs few of hundreds."""

    def __init__(self, path: Path) -> None:
        self._name = path.name
        self.data, self._lines = yamlfile.load(path, path.name)
        self._known: dict[str, Constant] = {}

    def __getitem__(self, key: str) -> Constant:
        if key not in self._known:
            try:
                self._known[key] = build(Constant, self.data[key], file=True)
            except Refused as error:
                raise yamlfile.located(error, self._name, self._lines) from None
        return self._known[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)


@cache
def shipped(name: str) -> Mapping[str, Constant]:
    """The shipped constants called `name`, which are checked when they are asked for.

    Raises FileRefused where the file is not there, or a constant is not right.
    """
    return _OnDemand(folder() / f"{name}.yaml")


def numbers(name: str) -> dict[str, float]:
    """The values of all shipped constants called `name`, in their units."""
    found = shipped(name)
    assert isinstance(found, _OnDemand)
    return {key: float(one["value"]) for key, one in found.data.items()}


def load(path: Path) -> Mapping[str, Constant]:
    """The constants of one file, all of them checked."""
    return MappingProxyType(dict(_OnDemand(path)))


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
