"""What a single drawn run was like: stretches of time, each with its label."""

from __future__ import annotations

from typing import NamedTuple

from dpsim.core.lean import dataclass
from dpsim.life.course import LABELS, STEP, WASTED


class Spell(NamedTuple):
    """A stretch of a run and its label [s]; `done` are the productive seconds at its end."""

    begin: float
    end: float
    label: str
    done: float


@dataclass(frozen=True)
class Life:
    """One drawn history of a job: spells with exactly one label each, from its first start to the
    end of its last step.

    seconds   by label
    failures  by what broke
    """

    spells: tuple[Spell, ...]
    seconds: tuple[float, ...]
    failures: dict[str, int]

    @property
    def end(self) -> float:
        """When the last step ends [s]."""
        return self.spells[-1].end


def relabel(spells: list[Spell], left: float) -> None:
    """Steps beyond `left` productive seconds were for nothing."""
    for at in range(len(spells) - 1, -1, -1):
        one = spells[at]
        if one.label == LABELS[STEP] and one.done > left:
            spells[at] = one._replace(label=LABELS[WASTED])
        elif one.label == LABELS[STEP]:
            break
