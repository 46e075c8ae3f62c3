"""Links that collectives would share, which one pass cannot play."""

from __future__ import annotations

from dpsim.backends import Edge, Plan, Topology
from dpsim.core.arrays import Array
from dpsim.play import NotApplicable


class Sharing:
    """Who uses which links when in a step: stream, begin, end [s], plan.

    parted  a stream carried out several collectives at once, of different groups
    """

    def __init__(self) -> None:
        self._talk: list[tuple[str, float, float, Plan]] = []
        self.parted = False

    def note(self, stream: str, plan: Plan, begin: Array, end: Array) -> None:
        """A collective of `stream` ran from `begin` to `end`."""
        if plan.rates:
            self._talk.append((stream, float(begin.flat[0]), float(end.flat[0]), plan))

    def check(self, topology: Topology | None, width: int) -> None:
        """Refuse where collectives that may run at once ask more of a link than it has."""
        alone = width == 1 and len({stream for stream, *_ in self._talk}) < 2 and not self.parted
        if alone or topology is None:
            return
        busy: dict[Edge, list[tuple[float, str, float]]] = {}
        for stream, begin, end, plan in sorted(self._talk, key=lambda talk: talk[1]):
            for link, rate in plan.rates.items():
                # those of one group begin when the one before has ended
                rivals = [rival for rival in busy.get(link, ()) if rival[0] > begin]
                room = topology.link(link).bandwidth * (1 + 1e-9)  # a little for rounding
                if rivals and rate + sum(rival[2] for rival in rivals) > room:
                    raise _shares(rivals[0][1], stream)
                busy[link] = [*rivals, (end, stream, rate)]


def _shares(one: str, other: str) -> NotApplicable:
    pair = f"{one} and {other}" if one != other else f"two of {one}"
    return NotApplicable(
        f"{pair} share links at the same time; only engine: event shares bandwidth between them"
    )
