"""Wide-area links: places far apart, what joins them, and the rings that can be laid over that."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import pairwise, permutations
from typing import NamedTuple

from dpsim.core.record import Refused

#: bytes of a TCP segment on Ethernet: 1,500 less the headers of IPv4 and TCP (RFC 9293)
SEGMENT = 1460
#: of Mathis, Semke, Mahdavi and Ott, CCR 27(3), 1997: sqrt(3/2), every segment acknowledged
MATHIS = math.sqrt(1.5)
#: places up to which every ring is looked at
TRIED = 7

Hop = tuple[str, str]


class Trunk(NamedTuple):
    """What joins two places, one way: so many bytes a second, and how long one byte takes [s].

    loss     share of the packets that are lost
    streams  TCP connections that share the bytes out
    """

    bandwidth: float
    latency: float
    loss: float = 0.0
    streams: int = 1

    @property
    def rate(self) -> float:
        """What it carries [B/s]: with losses, what its TCP connections reach: each a segment over a
        round trip, times sqrt(3/2) over the square root of the loss."""
        if not self.loss or not self.latency:
            return self.bandwidth
        each = SEGMENT / (2.0 * self.latency) * MATHIS / math.sqrt(self.loss)
        return min(self.bandwidth, self.streams * each)


class Lap(NamedTuple):
    """A ring over places: their order, the largest latency of a step of it [s], and how long a byte
    takes that every place sends to the next [s/B]."""

    order: tuple[str, ...]
    latency: float
    per_byte: float

    def step(self, size: float) -> float:
        """How long it takes until every place has sent `size` bytes to the next [s]."""
        return self.latency + size * self.per_byte


class Wan:
    """Places, by name, and the trunks between pairs of them; both ways alike."""

    def __init__(self, places: Sequence[str], trunks: Mapping[Hop, Trunk]) -> None:
        self.places = tuple(places)
        self.trunks = {**trunks, **{(b, a): trunk for (a, b), trunk in trunks.items()}}
        self._ways: dict[Hop, tuple[Hop, ...]] = {}
        self._laps: dict[tuple[tuple[str, ...], float], Lap] = {}

    def way(self, source: str, target: str) -> tuple[Hop, ...]:
        """The trunks from one place to another: theirs if there is one, else those over which a
        byte is the least long under way.  Refused where there are none."""
        key = (source, target)
        if key not in self._ways:
            self._ways[key] = (key,) if key in self.trunks else self._found(source, target)
        return self._ways[key]

    def _found(self, source: str, target: str) -> tuple[Hop, ...]:
        queue: list[tuple[float, tuple[str, ...]]] = [(0.0, (source,))]
        seen: set[str] = set()
        while queue:
            taken, path = heappop(queue)
            here = path[-1]
            if here == target:
                return tuple(pairwise(path))
            if here in seen:
                continue
            seen.add(here)
            for (a, b), trunk in self.trunks.items():
                if a == here and b not in seen:
                    heappush(queue, (taken + 1e6 / trunk.rate + trunk.latency, (*path, b)))
        raise Refused(f"nothing joins {source!r} and {target!r}", ("links",))

    def latency(self, source: str, target: str) -> float:
        """From one place to another [s]."""
        return sum(self.trunks[hop].latency for hop in self.way(source, target))

    def per_byte(self, flows: Mapping[Hop, float]) -> float:
        """How long it takes until all `flows`, bytes from one place to another, have arrived at the
        rates of the trunks that they share [s]."""
        return max((size / self.trunks[hop].rate for hop, size in self.carried(flows).items()),
                   default=0.0)  # fmt: skip

    def carried(self, flows: Mapping[Hop, float]) -> dict[Hop, float]:
        """The bytes on every trunk."""
        found: dict[Hop, float] = {}
        for (source, target), size in flows.items():
            for hop in self.way(source, target):
                found[hop] = found.get(hop, 0.0) + size
        return found

    def lap(self, places: Iterable[str], size: float) -> Lap:
        """The fastest ring over `places` for steps of `size` bytes: of all where they are few, else
        the one that goes to the nearest place that is left."""
        key = (tuple(sorted(places)), size)
        if key not in self._laps:
            self._laps[key] = min(self._tried(key[0], size), key=lambda lap: lap.step(size))
        return self._laps[key]

    def _tried(self, places: tuple[str, ...], size: float) -> Iterable[Lap]:
        first, *rest = places
        if len(places) <= TRIED:
            yield from (self._lap((first, *order)) for order in permutations(rest))
            return
        order, near = [first], self._nearness(size)
        while rest:
            order.append(min(rest, key=lambda place: near(order[-1], place)))
            rest.remove(order[-1])
        yield self._lap(tuple(order))

    def _nearness(self, size: float) -> Callable[[str, str], float]:
        return lambda a, b: self.latency(a, b) + self.per_byte({(a, b): size})

    def _lap(self, order: tuple[str, ...]) -> Lap:
        hops = list(zip(order, (*order[1:], order[0]), strict=True))
        latency = max(self.latency(*hop) for hop in hops)
        return Lap(order, latency, self.per_byte(dict.fromkeys(hops, 1.0)))
