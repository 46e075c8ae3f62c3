"""Where each thing of an imported machine is from, and what nobody says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dpsim.machines.machine import Machine
from dpsim.measurements.importing import nccl_xml
from dpsim.measurements.importing.facts import Facts

T = TypeVar("T")


@dataclass(frozen=True)
class Told:
    """Where one thing of the machine is from: `how` is file, preset, option, constant or
    assumption."""

    path: str
    value: str
    how: str
    source: str


class Ledger:
    """Notes where each value is from, and what nobody says."""

    def __init__(self, facts: Sequence[Facts], like: Machine | None) -> None:
        self.facts = sorted(facts, key=lambda f: f.format != nccl_xml.FORMAT)
        self.like = like
        self.told: list[Told] = []
        self.missing: list[str] = []

    def first(self, get: Callable[[Facts], T | None]) -> tuple[T, str] | None:
        """What the first file that says it says, and that file's name."""
        for facts in self.facts:
            if (value := get(facts)) is not None:
                return value, facts.source
        return None

    def note(self, path: str, value: str, how: str, source: str) -> None:
        self.told.append(Told(path, value, how, source))

    def preset(self, path: str, value: str, *cited: str) -> None:
        assert self.like is not None
        sources = self.like.sources
        found = next((text for key in (path, *cited) if (text := sources.get(key))), "")
        self.note(path, value, "preset", f"as {self.like.name}" + (f": {found}" if found else ""))

    def lacks(self, path: str, what: str) -> None:
        self.missing.append(f"{path} ({what})")
