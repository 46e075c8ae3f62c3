"""What an answer says where TCP connections hold its exchanges, and not the links they cross."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dpsim.backends.nccl import Nccl
from dpsim.predict.collective import timing
from dpsim.predict.outcome import Outcome
from dpsim.predict.point import Point

#: connections per channel that are tried: as many as the widest of NCCL's own settings have
SOCKETS = 8
#: how they are asked for
MORE = (
    f"collective: {{backend: nccl, sockets: {SOCKETS}}} (NCCL_SOCKET_NTHREADS x "
    "NCCL_NSOCKS_PERTHREAD)"
)
#: a size at which bandwidth is all [B], and what is worth saying
_LARGE, _SHORTER = 2**28, 0.9


def warnings(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Of the largest point that the network between nodes limits, where more connections of a
    channel would shorten its collectives."""
    limited = [
        one for one in outcomes
        if isinstance(one.point, Point) and one.point.bottleneck == "inter_node_network"
    ]  # fmt: skip
    if not limited:
        return
    case = limited[-1].case
    backend, topology = case.transport.backend, case.topology
    if not isinstance(backend, Nccl) or topology is None:
        return
    own, more = (
        timing(one, "all_reduce", _LARGE, topology).seconds
        for one in (backend, replace(backend, sockets=SOCKETS))
    )
    if more < _SHORTER * own:
        yield (
            f"{case.ranks:,} ranks: TCP connections hold exchanges between nodes, not their links: "
            f"a faster link changes little, and {MORE} makes a large all-reduce take "
            f"{more / own:.2g} times as long"
        )
