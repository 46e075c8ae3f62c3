"""Rhythms: when workers that train apart exchange what they have become."""

from __future__ import annotations

from typing import NamedTuple


class Rhythm(NamedTuple):
    """When fragments leave and have to be there.

    period     steps of a round
    fragments  exchanged in it, one by one
    delay      steps after which a fragment has to be there
    outside    operations on the device, by name, that are the exchange's and of no inner step
    """

    period: int
    fragments: int = 1
    delay: int = 0
    outside: tuple[str, ...] = ("delta", "W.outer", "outer")

    @property
    def stretch(self) -> float:
        """Steps from one exchange to the next, in the mean."""
        return self.period / self.fragments

    @property
    def under_way(self) -> int:
        """How many fragments have left since, when one has to be there."""
        whole = -(-self.delay // self.stretch) - 1 if self.delay else 0
        return max(int(whole), 0)

    def step_times(self, inner: float, mean: float) -> tuple[float, ...]:
        """What each step of a round takes [s], where one without an exchange takes `inner` and the
        mean of all is `mean`: what is waited for stands at the step in which it has to be there."""
        found = [inner] * self.period
        waited = max(mean - inner, 0.0) * self.period / self.fragments
        for k in range(1, self.fragments + 1):
            left = round(k * self.stretch)
            found[(left + self.delay - 1) % self.period] += waited
        return tuple(found)
