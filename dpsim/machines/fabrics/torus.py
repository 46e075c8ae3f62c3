"""Chips in a torus: every chip is wired to its two neighbours along each axis, without a switch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Annotated

from dpsim.core.deferred import nx
from dpsim.core.record import Check, Count, Refused, record
from dpsim.machines.devices import Link
from dpsim.machines.fabrics import NodeFabric, Vertex
from dpsim.machines.wire import add, wire

Length = Annotated[int, Check(1, 1024)]
Place = tuple[int, ...]
#: chips of a slice that a scenario may ask for
MOST = 8192


@record
class Torus(NodeFabric):
    """A slice of TPUs, which is one node here; slices are joined by their network.

    Chip number i lies at the i-th place of the slice, the last axis first.  With a NIC for every
    chip, each stands for the chip's share of its host's.

    link      between two neighbours, one way [B/s], with the latency of a step [s]
    nic       between a chip and its NIC
    shapes    lengths of the axes of the slices that there are; that with as many chips is taken
    wraps_at  an axis goes round where its length is a multiple of this number [1] …
    whole     … and, if this is set, only where the lengths of all axes are
    """

    link: Link
    nic: Link | None = None
    shapes: tuple[tuple[Length, ...], ...]
    wraps_at: Count
    whole: bool = False

    @property
    def most(self) -> int:  # type: ignore[override]
        """No slice is too large by itself: `shape` knows which ones there are."""
        return MOST

    def sliced(self, shape: tuple[int, ...]) -> Torus:
        """The same with slices of that shape: one that there is, however it is turned, or, where
        cubes are joined at will, one of whole cubes that is no larger than the largest."""
        axes, largest = len(self.shapes[0]), max(map(math.prod, self.shapes))
        turned = any(sorted(shape) == sorted(known) for known in self.shapes)
        cubes = self.whole and not any(length % self.wraps_at for length in shape)
        if len(shape) != axes or not (turned or cubes) or math.prod(shape) > largest:
            by = f", or multiples of {self.wraps_at}" if self.whole else ""
            ends = " to ".join("x".join(map(str, known)) for known in self._ends())
            message = f"{list(shape)} is none; there are slices of {axes} axes from {ends}{by}"
            raise Refused(f"{message}, of {largest:,} chips at most", ("cluster", "slice"))
        return replace(self, shapes=(shape,))

    def _ends(self) -> tuple[Place, Place]:
        """The shapes of the smallest and the largest slice."""
        return min(self.shapes, key=math.prod), max(self.shapes, key=math.prod)

    def shape(self, chips: int) -> Place:
        """The lengths of the axes of a slice of `chips`; Refused where there is no such slice."""
        for shape in self.shapes:
            if math.prod(shape) == chips:
                return shape
        sizes = ", ".join(str(math.prod(shape)) for shape in self.shapes)
        message = f"no slice has {chips} chips; there are slices of {sizes}"
        raise Refused(message, ("cluster", "gpus_per_node"))

    def around(self, shape: Place) -> tuple[bool, ...]:
        """Which axes of a slice go round, so that the last chip is beside the first."""
        multiple = [length % self.wraps_at == 0 and length > 2 for length in shape]
        if self.whole and not all(multiple):
            return (False,) * len(shape)
        return tuple(multiple)

    def build(self, graph: nx.DiGraph[Vertex], node: int, gpus: int, nics: int) -> None:
        shape = self.shape(gpus)
        for chip in range(gpus):
            add(graph, ("gpu", node, chip))
        for chip, next_ in self._neighbours(shape):
            wire(graph, ("gpu", node, chip), ("gpu", node, next_), self.link)
        for nic in range(nics):
            if self.nic is None:
                raise ValueError("NICs need nic, the link from a chip to its NIC")
            wire(graph, ("gpu", node, nic * gpus // nics), ("nic", node, nic), self.nic)

    def _neighbours(self, shape: Place) -> Iterator[tuple[int, int]]:
        """Every pair of chips that a link joins, once."""
        around = self.around(shape)
        for place in product(*map(range, shape)):
            for axis, length in enumerate(shape):
                onward = place[axis] + 1
                if onward < length or around[axis]:
                    beside = (*place[:axis], onward % length, *place[axis + 1 :])
                    yield chip_at(place, shape), chip_at(beside, shape)

    def nics_of(self, gpus: int, nics: int) -> int:
        """One for every chip, however large the slice is."""
        return gpus if nics else 0

    def path(self, source: Vertex, target: Vertex, gpus: int, nics: int) -> list[Vertex]:
        """Axis after axis, each the shorter way round (of two equal ones, up)."""
        shape = self.shape(gpus)
        around = self.around(shape)
        first, last = (v[2] * gpus // nics if v[0] == "nic" else v[2] for v in (source, target))
        here, there = place_of(first, shape), place_of(last, shape)
        found: list[Vertex] = [source] if source[0] == "nic" else []
        found.append(("gpu", source[1], first))
        for axis, length in enumerate(shape):
            up = (there[axis] - here[axis]) % length
            forward = up <= length - up if around[axis] else there[axis] >= here[axis]
            step = 1 if forward else -1
            while here[axis] != there[axis]:
                here = (*here[:axis], (here[axis] + step) % length, *here[axis + 1 :])
                found.append(("gpu", source[1], chip_at(here, shape)))
        return [*found, target] if target[0] == "nic" else found


def chip_at(place: Place, shape: Place) -> int:
    """The number of the chip at `place`."""
    number = 0
    for position, length in zip(place, shape, strict=True):
        number = number * length + position
    return number


def place_of(chip: int, shape: Place) -> Place:
    """Where chip number `chip` is."""
    found = []
    for length in reversed(shape):
        chip, position = divmod(chip, length)
        found.append(position)
    return tuple(reversed(found))
