"""Routing: which experts tokens are sent to, and what carries them there.

A token is sent to `k` experts (dispatch) and what they make of it comes back (combine); backward
does both the other way.  A rank of T tokens of width H sends T k H elements to all E experts alike,
and the ranks that hold them take as many.  Two ways (NVIDIA/Megatron-LM
`megatron/core/transformer/moe/token_dispatcher.py`; deepseek-ai/DeepEP `README.md`):

* `all_to_all`: every copy goes to the rank of its expert.
* `once_per_node`: a token goes to each node once, over the network, to the rank of the same place,
  and from there to the ranks of its experts inside the node; both at the same time.  Of M nodes its
  k experts are on M (1 - (1 - 1/M)^k) in the mean, or on at most `routing_nodes` (DeepSeek-AI,
  arXiv:2412.19437, section 2.1.2).

What nobody knows beforehand is how evenly the router chooses.  `balanced`: every expert has its
share.  Otherwise all ranks wait for the fullest one.  `dropless` stands for a router that an
auxiliary loss was to balance: over a whole set of data, the busiest expert had 1.72 and 1.52 times
its share in two models, and 1.04 times where a bias balanced it (MaxVio of 0.72, 0.52 and 0.04;
Wang et al., arXiv:2408.15664, table 2).  Taken as those of 64 experts, a lognormal load of standard
deviation 0.22 gives the former (0.18 to 0.25 for each alone), one of 0.017 the latter.  How far the
experts of one rank are busy together nobody has published; half of the variance is taken as theirs
in common.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

from dpsim.compile.groups import Partition
from dpsim.core import units
from dpsim.core.dtypes import DTYPE_BYTES, working_bytes
from dpsim.core.lean import dataclass
from dpsim.core.marks import Mark
from dpsim.core.plugins import Plugin
from dpsim.core.record import Count, Flag, Refused, record
from dpsim.models import Layer, Model
from dpsim.variability.distributions import Distribution
from dpsim.variability.distributions.lognormal import Lognormal

EXPERT, EXPERT_DATA = "expert", "expert data"
#: standard deviation of an expert's load over its mean, and the share of the variance that the
#: experts of a rank have in common
SPREAD, COMMON = 0.22, 0.5
#: the same at the ends of what is thought possible: experts as even as those that a bias balances,
#: each for itself; and, in single micro-batches, which are less even than a whole run, three times
#: as uneven and all of a rank together (assumed)
EVEN, UNEVEN = (0.017, 0.0), (0.66, 1.0)
Width = Literal["fp32", "bf16", "fp16", "fp8"]


class Imbalance(Mark):
    """Marks how loads lie: `balanced`, `dropless`, or a distribution ``{kind: …}`` of an expert's
    load over its mean."""

    def take(self, value: object, file: bool) -> object:
        if value in ("balanced", "dropless") or isinstance(value, Distribution):
            return value
        if isinstance(value, dict):
            return Plugin("variability", "kind").make(value, file=file)
        shown = f"{str(value)[:60]!r}"
        raise Refused(
            f"{shown} is not known; balanced, dropless, or a distribution of an expert's load, as "
            "{kind: lognormal, spread: 0.3}, is accepted"
        )

    def json_schema(self) -> dict[str, object]:
        options = Plugin("variability", "kind").json_schema()["oneOf"]
        return {"oneOf": [{"enum": ["balanced", "dropless"]}, *options]}


@record
class Moe:
    """How tokens are routed to experts.

    imbalance      `balanced`: all experts have equal loads (force-balanced benchmarks); `dropless`:
                   as a trained router chooses, none dropped; or a distribution of an expert's load
                   over its mean, `{kind: lognormal, spread: 0.3}`; left out: balanced, and the
                   interval spans what a router may do
    capacity       an expert takes at most so many times its share; what is beyond is dropped
    overlap        all-to-alls run beside the computing of another micro-batch
    dispatcher     `all_to_all`: a copy of a token for each of its experts; `once_per_node`: one for
                   each node that has some (DeepEP, HybridEP); left out: `once_per_node` with
                   routing_nodes, else `all_to_all`
    routing_nodes  nodes that a token is sent to at most; without a machine every rank is a node
    dispatch_dtype  what tokens are sent in; left out: as activations are kept.  What comes back,
                   and gradients, are always sent so
    """

    imbalance: Annotated[Distribution | Literal["balanced", "dropless"] | None, Imbalance()] = None
    capacity: Annotated[float, units.Unit("1", low=1.0, high=1e6)] | None = None
    overlap: Flag = False
    dispatcher: Literal["all_to_all", "once_per_node"] | None = None
    routing_nodes: Count | None = None
    dispatch_dtype: Width | None = None

    def __post_init__(self) -> None:
        if self.routing_nodes is not None and self.dispatcher == "all_to_all":
            raise Refused("needs dispatcher: once_per_node", ("routing_nodes",))
        if self.capacity is not None and self.imbalance == "balanced":
            message = "balanced experts never have more than their share; leave it out"
            raise Refused(message, ("capacity",))

    def check(self, model: Model, micro_batches: int) -> None:
        """Refuse what would have no effect on `model` in steps of so many micro-batches."""
        if self == Moe():
            return
        if not any(layer.experts for layer in model.layers):
            raise Refused(f"{model.name} has no experts; leave it out", ("moe",))
        if self.overlap and micro_batches == 1:
            message = (
                "all-to-alls run beside the computing of another micro-batch, and there is one; "
                "batch.accumulation of 2 and more is accepted"
            )
            raise Refused(message, ("moe", "overlap"))

    @property
    def once(self) -> bool:
        """Whether a token goes to a node once."""
        return self.dispatcher == "once_per_node" or self.routing_nodes is not None

    def load(self, ranks: int, experts: int) -> float:
        """How many times its mean share the fullest of `ranks` ranks has that hold `experts`
        experts together."""
        if self.imbalance in (None, "balanced"):
            return 1.0
        if self.imbalance == "dropless":
            return self._capped(fullest(ranks, experts, SPREAD, COMMON))
        assert isinstance(self.imbalance, Distribution)
        mean = self.imbalance.mean()
        if not mean > 0:
            raise Refused("the mean load has to be above 0", ("moe", "imbalance"))
        drawn = self.imbalance.expected_maximum(ranks) / mean if ranks > 1 else 1.0
        each = max(experts // ranks, 1)  # the mean of so many varies less
        return self._capped(1.0 + max(drawn - 1.0, 0.0) / math.sqrt(each))

    def ends(self, ranks: int, experts: int) -> tuple[float, float]:
        """Between what the load of the fullest rank is thought to lie."""
        if self.imbalance == "balanced":
            return 1.0, 1.0
        if isinstance(self.imbalance, Distribution):
            own = self.load(ranks, experts)
            return own, own
        least = 1.0 if self.imbalance is None else self._capped(fullest(ranks, experts, *EVEN))
        return least, self._capped(fullest(ranks, experts, *UNEVEN))

    def _capped(self, load: float) -> float:
        return load if self.capacity is None else min(load, self.capacity)

    def widths(self, compute: str) -> tuple[int, int]:
        """Bytes of an element that is dispatched in forward, and of all others sent."""
        usual = working_bytes(compute)
        return DTYPE_BYTES[self.dispatch_dtype] if self.dispatch_dtype else usual, usual


def fullest(ranks: int, experts: int, spread: float, common: float) -> float:
    """Mean of the largest of the mean loads of `ranks` ranks; `spread` is that of an expert's load,
    of whose variance the experts of a rank have the share `common` together."""
    if ranks == 1:
        return 1.0
    own = spread * math.sqrt(common + (1.0 - common) * ranks / max(experts, ranks))
    return Lognormal(spread=own).expected_maximum(ranks)


@dataclass(frozen=True)
class Carrier:
    """One collective of a dispatch: the groups that carry it out, by name, and its size over that
    of all copies of all tokens of a rank."""

    group: str
    share: float


def ways(
    moe: Moe, groups: Partition, gpus: int | None, chosen: int, experts: int
) -> tuple[tuple[Carrier, Partition], ...]:
    """What carries a dispatch among `groups` of ranks, in nodes of `gpus` ranks (None: of one), for
    tokens that are sent to `chosen` of `experts`.  A single way where nodes make no difference."""
    straight = ((Carrier(EXPERT, 1.0), groups),)
    if not moe.once:
        return straight
    split = [_by_node(group, gpus or 1) for group in groups]
    nodes, each = len(split[0]), len(split[0][0])
    if any(len(one) != nodes or any(len(part) != each for part in one) for one in split):
        raise Refused(
            "groups of ranks that share out experts do not lie evenly on nodes; "
            "dispatcher: all_to_all is accepted",
            ("moe", "dispatcher"),
        )
    if nodes == 1:
        return straight
    reached = nodes_reached(nodes, chosen, experts, moe.routing_nodes)
    across = tuple(tuple(column) for one in split for column in zip(*one, strict=True))
    found = [(Carrier(f"{EXPERT} nodes", reached / chosen), across)]
    if each > 1:
        inside = tuple(tuple(part) for one in split for part in one)
        found.append((Carrier(f"{EXPERT} inside", 1.0), inside))
    return tuple(found)


def nodes_reached(nodes: int, chosen: int, experts: int, limit: int | None = None) -> float:
    """Nodes that hold one of the `chosen` experts of a token, in the mean, where all of `experts`
    are as likely and nodes hold equally many: a token's experts are distinct, so a node has none of
    them with probability C(E - E/M, k) / C(E, k).  A router that is held to `limit` nodes reaches
    that many, or as many as it has experts; one that binds nothing changes nothing.

    >>> nodes_reached(2, 1, 4), nodes_reached(4, 4, 4), round(nodes_reached(8, 4, 16), 3)
    (1.0, 4.0, 3.6)
    """
    away = math.comb(experts - experts // nodes, chosen) / math.comb(experts, chosen)
    free = nodes * (1.0 - away)
    return free if limit is None or limit >= nodes else min(float(min(chosen, limit)), free)


def _by_node(group: Sequence[int], gpus: int) -> list[list[int]]:
    found: dict[int, list[int]] = {}
    for rank in group:
        found.setdefault(rank // gpus, []).append(rank)
    return list(found.values())


def copies(layer: Layer, samples: float, width: int) -> float:
    """Bytes of all copies of all tokens that a rank sends to the experts of `layer`."""
    if layer.routed_bytes is not None:
        return layer.routed_bytes * samples
    return layer.routed * layer.chosen * samples * width
