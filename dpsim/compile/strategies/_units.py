"""Units: which layers FSDP wraps together, and the groups of ranks of hybrid sharding.

A layer belongs to the unit that it names; what names none is the root's.  Where no layer names one,
every layer is a unit and the root holds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpsim.core.record import Refused
from dpsim.models import Model

SHARD, REPLICATE = "shard", "replicate"
Partition = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Unit:
    """Layers wrapped together, in forward order.

    raw   its input needs no gradient: nothing with parameters comes before it in forward
    """

    layers: tuple[int, ...]
    root: bool
    raw: bool


def units_of(model: Model) -> tuple[Unit, ...]:
    """Units that hold parameters: the root first, then the others as forward meets them."""
    explicit = all(not layer.unit for layer in model.layers)
    members: dict[str, list[int]] = {} if explicit else {"": []}
    for i in model.forward_order:
        layer = model.layers[i]
        members.setdefault(layer.name if explicit else layer.unit, []).append(i)
    found = [(layers, name == "" and not explicit) for name, layers in members.items()]
    first = next((i for i in model.forward_order if model.layers[i].parameters), None)
    return tuple(
        Unit(tuple(layers), root, raw=first in layers)
        for layers, root in found
        if any(model.layers[i].parameters for i in layers)
    )


def shards_of(shard: int | None, ranks: int) -> int:
    """How many ranks share the parameters, all where there are fewer than `shard`; Refused where
    the ranks do not split so."""
    size = min(shard or ranks, ranks)
    if ranks % size:
        raise Refused(
            f"{ranks} ranks do not split into groups of {size}; a divisor of {ranks} is accepted",
            ("strategy", "shard"),
        )
    return size


def consecutive(size: int, ranks: int) -> Partition:
    """Groups of `size` consecutive ranks."""
    return tuple(tuple(range(i, i + size)) for i in range(0, ranks, size))


def hybrid(size: int, ranks: int) -> dict[str, Partition]:
    """ "shard": consecutive ranks that share parameters; "replicate": the ranks that hold the same
    shard.  Nothing where all ranks share."""
    if size == ranks:
        return {}
    strided = tuple(tuple(range(i, ranks, size)) for i in range(size))
    return {SHARD: consecutive(size, ranks), REPLICATE: strided}
