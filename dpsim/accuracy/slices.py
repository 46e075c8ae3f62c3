"""Slices of TPUs that a text tells: how many chips each has, and what joins several."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from dpsim.accuracy.grammar import chosen, networks
from dpsim.accuracy.link_rates import GPU, NODE
from dpsim.accuracy.words import vocabulary
from dpsim.core.record import Refused
from dpsim.machines.fabrics.torus import Torus
from dpsim.machines.machine import MOST_NICS, Machine


def counted(text: str) -> int | None:
    """How many slices `text`, in lower case, counts; None where it counts none.

    Raises Refused where a count is no whole number of at least 1, and where two of them differ."""
    words = vocabulary().slices
    if odd := words.odd.search(text):
        raise Refused(
            f"{odd[0].strip()[:40]!r} is no count of slices; a whole number from 1 to 999,999,999 "
            "is, as in '2 slices'"
        )
    found = {found[0].strip(): _number(found) for found in words.counted.finditer(text)}
    if len(set(found.values())) > 1:
        both = " and ".join(repr(told[:40]) for told in found)
        raise Refused(f"{both} contradict each other; one count of slices is accepted")
    return next(iter(found.values()), None)


def _number(found: re.Match[str]) -> int:
    told = next(group for group in found.groups() if group)
    return int(told) if told.isdigit() else vocabulary().network.spoken[told]


def require_filled(text: str, slices: int, chips: int) -> None:
    """Raise Refused where the chips that `text`, in lower case, tells of each of so many `slices`
    do not make `chips` in all."""
    for told in vocabulary().slices.sized.finditer(text):
        each = math.prod(map(int, told[1].split("x")))
        if each * slices != chips:
            raise Refused(
                f"{slices} {told[0]!r} are {slices * each:,} chips, which is not the row's "
                f"total_gpus {chips:,}"
            )


def chips_of(torus: Torus, chips: int, accelerator: str, notes: list[str]) -> int:
    """The chips of a slice of `chips` in all: all in one, unless the words of the `accelerator`
    tell several ("TPU v6e, 2 slices"); of more chips than any slice has, those of as few equal
    slices as there may be.  Adds a note."""
    told = counted(accelerator) or 0
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


def of_chips(machine: Machine, chips: int) -> Machine:
    """`machine` with a slice of so many `chips` for a node, each with its share of the network."""
    if not isinstance(machine.node, Torus):
        return machine
    return replace(machine, gpus_per_node=chips, nics_per_node=min(chips, MOST_NICS))


def joined(
    machine: Machine, ranks: int | None, chips: int, parts: Sequence[str], notes: list[str]
) -> bool:
    """Whether slices of so many `chips` are joined by a network of which the `parts` of a text tell
    no number: the data centre's, as the machine has it for each chip; adds a note.

    Raises Refused where they tell a rate and not of what: a slice has a NIC for every chip, or for
    every host, and one rate may be any part of that.
    """
    if not isinstance(machine.node, Torus) or (ranks or chips) <= chips:
        return False
    read = chosen(networks(parts), None, chips, [])
    if not read.numbers:
        link = machine.network.link  # type: ignore[union-attr]
        source = machine.sources["network.link.bandwidth"]
        notes.append(
            f"Slices are joined by the data centre's network, {link.bandwidth * 8e-9:g} Gbit/s a "
            f"chip ({source})."
        )
        return True
    if read.count is None and not (read.rate and read.rate.of in (GPU, NODE)):
        told = " ; ".join(part.strip() for part in parts)
        message = (
            f"{told[:60]!r} does not tell whether its rate is a chip's or a host's; '100 Gbit/s "
            "per chip' or 'per host' would"
        )
        raise Refused(message, ("inter_node",))
    return False
