"""The machine of a row in one line: what was read, what was assumed, and what else it may be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpsim.accuracy.platforms import Platform
from dpsim.machines.machine import gbits, load_device, load_machine, node_in_words

#: ratios that are not worth telling
_SAME = 0.01
#: most readings beside the usual one that are told each
_SHOWN = 4


def in_words(cluster: Mapping[str, Any], crossed: bool = True) -> str:
    """A cluster: GPUs of a node, whose node it is and, where it is `crossed`, its network."""
    machine = load_machine(cluster["machine"])
    device = load_device(cluster["device"]) if "device" in cluster else machine.device
    node = cluster["gpus_per_node"], device.name, machine.name
    link = getattr(machine.network, "link", None)
    if crossed and "nics_per_node" in cluster:
        rate, kind = cluster["inter_node_bandwidth"], cluster["inter_node_kind"]
        return node_in_words(*node, cluster["nics_per_node"], rate, kind)
    if not crossed or link is None:
        return node_in_words(*node)
    return node_in_words(*node, machine.nics_per_node, gbits(link), link.kind)


def described(
    found: Platform, times: Sequence[float] = (), crossed: bool = True, notes: Sequence[str] = ()
) -> str:
    """What was read, the assumptions of the usual reading and `notes`, and the other readings.

    times    how long each reading takes [any unit], in the readings' order; () where not known
    crossed  whether the network between nodes is in use
    """
    usual, *others = found.readings
    shares = percents([reading.weight for reading in found.readings])
    told = [in_words(usual.cluster, crossed), *usual.notes, *notes]
    if others:
        told.append(f"assumed {usual.label} ({shares[0]}%)")
    places = sorted(range(1, len(shares)), key=lambda place: -shares[place])
    shown, rest = sorted(places[:_SHOWN]), places[_SHOWN:]
    for place in shown:
        ratio = times[place] / times[0] if len(times) > place else None
        longer = "" if ratio is None else f", {_ratio(ratio)}"
        told.append(f"or {found.readings[place].label} ({shares[place]}%){longer}")
    if rest:
        told.append(f"or {len(rest)} more ({sum(shares[place] for place in rest)}%)")
    return "; ".join(text.rstrip(".") for text in told)


def percents(weights: Sequence[float]) -> list[int]:
    """Whole percents of `weights`, which add up to 100: what rounding down leaves goes to those
    that lose most by it.

    >>> percents([0.125, 0.125, 0.75]), percents([2.0, 1.0])
    ([13, 12, 75], [67, 33])
    """
    exact = [100.0 * weight / sum(weights) for weight in weights]
    found = [math.floor(one + 1e-9) for one in exact]
    order = sorted(range(len(exact)), key=lambda k: found[k] - exact[k])
    for place in order[: 100 - sum(found)]:
        found[place] += 1
    return found


def _ratio(ratio: float) -> str:
    if abs(ratio - 1.0) < _SAME:
        return "as long"
    return f"{ratio:.3g} times as long"
