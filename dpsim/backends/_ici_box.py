"""The chips of a slice that a group has, and what its steps put on their links."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from dpsim.backends import Edge, Topology
from dpsim.core.record import Refused
from dpsim.machines.fabrics.torus import Place, Torus, chip_at, place_of


@dataclass(frozen=True)
class TorusAxis:
    """One axis of a box: its number, how many chips of the group lie along it, and whether the
    last of them is beside the first."""

    number: int
    length: int
    ring: bool

    @property
    def ways(self) -> int:
        """Links' worth of bandwidth of a reduce-scatter: a ring is used in both directions, and
        of a line's directions one carries nearly everything at each end."""
        return 2 if self.ring else 1

    @property
    def hops(self) -> int:
        """Steps until the farthest chip has been heard of."""
        return self.length // 2 if self.ring else self.length - 1

    def scattered(self, link: int) -> tuple[float, float]:
        """Parts of what a chip begins with that cross link number `link`, up and down, while each
        chip of the axis collects the sum of its own part (of `length`)."""
        if self.ring:
            each = (self.length - 1) / (2 * self.length)
            return each, each
        return (self.length - 1 - link) / self.length, (link + 1) / self.length

    def exchanged(self, link: int) -> tuple[float, float]:
        """The same where every chip has a part for each other one, the shorter way round."""
        n = self.length
        if self.ring:
            each = n * n // 4 / (2 * n)  # n/4 steps on average, over two directions
            return each, each
        across = (link + 1) * (n - 1 - link) / n
        return across, across


@dataclass(frozen=True)
class TorusBox:
    """A group inside a slice: the same places of some axes, whole or a stretch.

    first, counts  the first place, and how many chips there are along each axis of the slice
    """

    torus: Torus
    shape: Place
    first: Place
    counts: Place

    @cached_property
    def axes(self) -> tuple[TorusAxis, ...]:
        """The axes along which there is somebody."""
        around = self.torus.around(self.shape)
        return tuple(
            TorusAxis(i, count, around[i] and count == self.shape[i])
            for i, count in enumerate(self.counts)
            if count > 1
        )

    @property
    def chips(self) -> int:
        return math.prod(self.counts)

    def steps(self) -> Iterator[list[tuple[TorusAxis, float]]]:
        """A reduce-scatter, step by step: along each axis, the fraction of a chip's buffer that it
        begins with.

        There is a part for each axis, as large as the axis is fast; each part goes along all axes,
        beginning with its own, so that all axes are busy in every step.
        """
        axes, ways = self.axes, sum(axis.ways for axis in self.axes)
        left = [axis.ways / ways for axis in axes]
        for step in range(len(axes)):
            found = []
            for part in range(len(axes)):
                axis = axes[(part + step) % len(axes)]
                found.append((axis, left[part]))
                left[part] /= axis.length
            yield found

    def links(self, axis: TorusAxis) -> Iterator[tuple[int, Edge]]:
        """The links up along `axis`, each with its number in its ring or line."""
        ranges = [range(a, a + n) for a, n in zip(self.first, self.counts, strict=True)]
        here = axis.number
        for place in product(*ranges):
            link = place[here] - self.first[here]
            if link == axis.length - 1 and not axis.ring:
                continue
            beside = (place[here] + 1) % self.shape[here]
            end = (*place[:here], beside, *place[here + 1 :])
            yield link, (self._vertex(place), self._vertex(end))

    def _vertex(self, place: Place) -> tuple[str, int, int]:
        return ("gpu", 0, chip_at(place, self.shape))


def torus_of(topology: Topology) -> Torus:
    """The torus that slices are; Refused on other machines, and where ranks leave a slice partly
    idle: its shape, and so its wrap-around, would not be that of a slice of as many chips."""
    if not isinstance(topology.fabric, Torus):
        message = "ici joins TPUs, and this machine has none; take nccl, gloo or mpi"
        raise Refused(message, ("collective", "backend"))
    if topology.ranks % topology.gpus:
        raise Refused(
            f"{topology.ranks:,} ranks do not fill slices of {topology.gpus:,} chips, which are "
            "used whole; cluster.gpus_per_node chooses the slice",
            ("cluster", "ranks"),
        )
    return topology.fabric


def box_of(chips: tuple[int, ...], topology: Topology) -> TorusBox:
    """The box that `chips` of a slice are; Refused where they are none."""
    torus = torus_of(topology)
    shape = torus.shape(topology.gpus)
    places = [place_of(chip, shape) for chip in chips]
    along = [sorted({place[axis] for place in places}) for axis in range(len(shape))]
    stretches = all(found[-1] - found[0] == len(found) - 1 for found in along)
    if not stretches or math.prod(map(len, along)) != len(chips):
        lengths = "x".join(map(str, shape))
        raise Refused(
            f"a group of {len(chips)} chips is no box of neighbours in a slice of {lengths}, which "
            "is all that is modelled; ranks go along the last axis first",
            ("collective", "backend"),
        )
    first = tuple(found[0] for found in along)
    return TorusBox(torus, shape, first, tuple(len(found) for found in along))
