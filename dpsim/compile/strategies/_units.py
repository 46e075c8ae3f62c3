"""Units: which layers FSDP wraps together, and the groups of ranks of hybrid sharding.

A layer belongs to the unit that it names; what names none is the root's.  Where no layer names one,
every layer is a unit and the root holds nothing.  Several units may be wrapped as one.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from dpsim.compile.groups import Partition, consecutive, fitting, strided
from dpsim.compile.routing import EXPERT_DATA
from dpsim.core.lean import dataclass
from dpsim.models import Model

SHARD, REPLICATE = "shard", "replicate"


class Sharers(NamedTuple):
    """Who shares the parameters of a unit: so many `ranks` hold the same ones, `shards` of them a
    part each; `experts`: they are those of experts that other ranks do not have."""

    ranks: int
    shards: int
    experts: bool = False

    def named(self, group: str) -> str:
        """Their own name for a group of ranks, "" for all of them."""
        if not self.experts:
            return group
        return f"expert {group}" if group else EXPERT_DATA

    def stream(self, communicator: str) -> str:
        """Their own name for a communicator."""
        return f"{communicator}.experts" if self.experts else communicator


@dataclass(frozen=True)
class WrappedUnit:
    """Layers wrapped together, in forward order.

    raw   its input needs no gradient: nothing that is trained comes before it in forward
    """

    layers: tuple[int, ...]
    root: bool
    raw: bool


def units_of(model: Model, together: int = 1) -> tuple[WrappedUnit, ...]:
    """Units that hold parameters: the root first, then the others as forward meets them, so many
    `together`."""
    explicit = all(not layer.unit for layer in model.layers)
    members: dict[str, list[int]] = {} if explicit else {"": []}
    for i in model.forward_order:
        layer = model.layers[i]
        members.setdefault(layer.name if explicit else layer.unit, []).append(i)
    root = [] if explicit else [(members.pop(""), True)]
    own = [layers for layers in members.values() if _held(model, layers)]
    each = (own[k : k + together] for k in range(0, len(own), together))
    return wrapped(model, [*root, *((list(chain(*some)), False) for some in each)])


def wrapped(model: Model, found: Iterable[tuple[list[int], bool]]) -> tuple[WrappedUnit, ...]:
    """Those of the (layers, whether they are the root's) that hold parameters, the root first."""
    first = next((i for i in model.forward_order if model.layers[i].trained), None)
    return tuple(
        WrappedUnit(tuple(layers), root, raw=first in layers)
        for layers, root in sorted(found, key=lambda one: not one[1])
        if _held(model, layers)
    )


def _held(model: Model, layers: list[int]) -> bool:
    """Whether these layers have parameters."""
    return any(model.layers[i].parameters for i in layers)


def shards_of(shard: int | None, ranks: int) -> int:
    """How many ranks share the parameters."""
    return fitting(shard, ranks, "shard", hint=f"; a divisor of {ranks} is accepted")


def hybrid(size: int, ranks: int) -> dict[str, Partition]:
    """ "shard": consecutive ranks that share parameters; "replicate": the ranks that hold the same
    shard.  Nothing where all ranks share."""
    if size == ranks:
        return {}
    return {SHARD: consecutive(size, ranks), REPLICATE: strided(size, ranks)}
