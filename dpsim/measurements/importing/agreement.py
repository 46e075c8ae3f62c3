"""Where two files of one node contradict each other: NVLinks, and how near devices are.

Files speak of places in their own ways (NUMA numbers and bus addresses, or words for each pair),
so pairs are compared: below one PCIe switch, on one NUMA node, or on different ones.  Network cards
are compared where both files have their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from dpsim.core.record import Refused
from dpsim.measurements.importing.facts import (
    APART,
    NODE,
    SWITCH,
    TOGETHER,
    Facts,
    Pair,
    Place,
    many,
)

#: disagreements that a refusal names; the rest is counted
_SHOWN = 8


def require(facts: Sequence[Facts]) -> None:
    """Refused where files contradict each other on more than places, or are of one format."""
    formats = [f.format for f in facts]
    for form in formats:
        if formats.count(form) > 1:
            named = ", ".join(f.source for f in facts if f.format == form)
            raise Refused(f"several files are {form} ({named}); give one, of one node")
    counts = {f.source: f.gpus for f in facts if f.gpus is not None}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{n} in {source}" for source, n in counts.items())
        raise Refused(f"the files disagree on the number of GPUs: {said}")
    if found := about_links(facts):
        files = " and ".join(f.source for f in facts if f.wires is not None)
        raise Refused(f"{files} disagree on NVLinks: {listed(found)}")


def about_links(facts: Sequence[Facts]) -> list[str]:
    """One entry for each pair of GPUs whose number of NVLinks two files state differently."""
    found = []
    for first, second in combinations([f for f in facts if f.wires is not None], 2):
        one, other = nvlinks_of(first), nvlinks_of(second)
        found += [
            f"GPU{a} to GPU{b}: {many(one.get((a, b), 0), 'NVLink')} in {first.source}, "
            f"{other.get((a, b), 0)} in {second.source}"
            for a, b in sorted(one.keys() | other.keys())
            if one.get((a, b), 0) != other.get((a, b), 0)
        ]
    return found


def about_places(facts: Sequence[Facts], taken: str) -> list[str]:
    """One line for each pair of devices that two files put differently near; places are taken
    from the file called `taken`."""

    def mark(file: Facts) -> str:
        return " (taken)" if file.source == taken else ""

    found = []
    for first, second in combinations(facts, 2):
        one, other = nearness_of(first), nearness_of(second)
        found += [
            f"{a} and {b} are {one[a, b]} in {first.source}{mark(first)}, {other[a, b]} in "
            f"{second.source}{mark(second)}"
            for a, b in one
            if (a, b) in other and not _agree(one[a, b], other[a, b])
        ]
    return found


def listed(entries: Sequence[str]) -> str:
    """`entries` in one sentence, shortened."""
    more = f"; and {len(entries) - _SHOWN} more" if len(entries) > _SHOWN else ""
    return "; ".join(entries[:_SHOWN]) + more


def nvlinks_of(facts: Facts) -> dict[Pair, int]:
    """NVLinks between pairs as nvidia-smi shows them: those to a switch lead to every GPU."""
    wires = facts.wires
    assert wires is not None
    if not wires.to_switch:
        return {pair: count for pair, count in wires.pairs.items() if count}
    every = range(len(wires.to_switch))
    return {(a, b): min(wires.to_switch[a], wires.to_switch[b])
            for a in every for b in every if a < b}  # fmt: skip


def nearness_of(facts: Facts) -> dict[tuple[str, str], str]:
    """How near each two GPUs, and each GPU and NIC, are, where the file says so."""
    if facts.near:
        return dict(facts.near)
    found = {}
    for (a, here), (b, there) in _pairs(facts):
        if here is not None and there is not None:
            found[a, b] = _nearness(here, there)
    return found


def _pairs(facts: Facts) -> Iterator[tuple[tuple[str, Place | None], tuple[str, Place | None]]]:
    places = facts.places or ()
    gpus: list[tuple[str, Place | None]] = [(f"GPU{i}", place) for i, place in enumerate(places)]
    yield from combinations(gpus, 2)
    for gpu in gpus:
        for nic in facts.nics or ():
            yield gpu, (nic.name, nic.place)


def _nearness(a: Place, b: Place) -> str:
    if a.socket != b.socket:
        return APART
    return SWITCH if a.switch is not None and a.switch == b.switch else NODE


def _agree(one: str, other: str) -> bool:
    if TOGETHER in (one, other):
        return APART not in (one, other)
    return one == other
