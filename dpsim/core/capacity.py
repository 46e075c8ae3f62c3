"""Capacity: how much memory of this machine a process may take.

It lies in the machine and not in what is asked for, so no answer may depend on it.
"""

from __future__ import annotations

import os
from pathlib import Path

from dpsim.core import processes
from dpsim.core.lean import dataclass

#: share of the machine's memory that a run may take
SHARE = 0.8
#: memory where the system does not say how much there is [B]
UNSAID = 8e9
#: what a container may take of the machine's memory; `max`: all of it
CONTAINER = Path("/sys/fs/cgroup/memory.max")


class TooSmall(OSError):
    """This machine has too little memory for what is asked; another may have enough (exit code 3:
    environment).  Never an answer, for it says nothing of what is asked."""


@dataclass(frozen=True)
class Room:
    """Memory of a machine, or of the container on it [B], and how many processes play there."""

    whole: float
    processes: int = 1

    @property
    def bytes(self) -> float:
        """What one of the processes may take [B]."""
        return SHARE * self.whole / self.processes

    def __str__(self) -> str:
        said = f"{SHARE * 100:.0f} % of this machine's {shown(self.whole)}"
        return f"{said}, shared by {self.processes} processes" if self.processes > 1 else said


def room() -> Room:
    """The memory of this machine, or of the container that this process is in."""
    return Room(min(_physical(), _granted()), processes.sharing())


def shown(size: float) -> str:
    """`size` bytes in words."""
    return f"{size / 1e9:,.0f} GB" if size >= 1e10 else f"{size / 1e9:,.1f} GB"


def _physical() -> float:
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # not on this system
        return UNSAID


def _granted() -> float:
    """What the container's limit leaves; infinite where there is none."""
    try:
        return float(CONTAINER.read_text(encoding="ascii"))
    except (OSError, ValueError):  # there is no such file, or it says "max"
        return float("inf")
