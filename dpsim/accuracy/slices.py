"""Slices of TPUs that a text tells: how many chips each has, and what joins several."""

from __future__ import annotations

import math
from collections.abc import Iterable

from dpsim.accuracy.grammar import networks
from dpsim.accuracy.words import vocabulary
from dpsim.core.record import Refused
from dpsim.machines.fabrics.torus import Torus
from dpsim.machines.machine import Machine


def chips_of(torus: Torus, chips: int, accelerator: str, notes: list[str]) -> int:
    """The chips of a slice of `chips` in all: all in one, unless the words of the `accelerator`
    tell several ("TPU v6e, 2 slices"); of more chips than any slice has, those of as few equal
    slices as there may be.  Adds a note."""
    counted = vocabulary().slices.counted.search(accelerator)
    told = int(counted[1]) if counted else 0
    known = [math.prod(shape) for shape in torus.shapes]
    fewest = min((chips // n for n in known if chips % n == 0), default=1)
    slices = told or (fewest if chips > max(known) else 1)
    if chips % slices:
        message = f"{chips} chips do not make {slices} equal slices"
        raise Refused(message, ("total_gpus",))
    each, assumed = chips // slices, "" if told or slices == 1 else ", the fewest,"
    many = "One slice" if slices == 1 else f"{slices} slices"
    notes.append(f"{many} of {each} chips{assumed} {'is' if slices == 1 else 'are'} taken.")
    return each


def joined(
    machine: Machine, ranks: int | None, chips: int, parts: Iterable[str], notes: list[str]
) -> bool:
    """Whether slices of so many `chips` are joined by a network of which the `parts` of a text tell
    no number: the data centre's, as the machine has it for each chip; adds a note."""
    if not isinstance(machine.node, Torus) or (ranks or chips) <= chips:
        return False
    if any(phrase.numbers for phrase in networks(parts)):
        return False
    link = machine.network.link  # type: ignore[union-attr]
    notes.append(
        f"Slices are joined by the data centre's network, {link.bandwidth * 8e-9:g} Gbit/s a chip "
        "(Cloud TPU documentation)."
    )
    return True
