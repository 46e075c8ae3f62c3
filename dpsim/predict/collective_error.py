"""How far one collective may lie from its prediction: widths learned on machines left out.

What is missed on a machine that no constant was fitted on grows with the share of the time that is
latency, and is larger between nodes: nominal bandwidths are known, what libraries, hosts and
switches add to a message is not; inside nodes and between them it differs.  It is largest where
bytes go through the hosts' TCP, measured or not: machines of that kind differ more than any others.
Other kinds of link of which nobody measured a machine are less sure than those of which somebody
did.  Six widths a side, whose logarithms add in quadrature, are in
``dpsim/core/fitted/collective_error.yaml``, with the machines that were measured of each kind;
``validation/left_out.py`` writes them.  Widths by kind of link, by operation and for MPI apart did
worse on machines left out, for each rests on few machines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from dpsim.core.constants import Constant, shipped
from dpsim.machines.devices import SOCKETS

#: names of the bands, and the sizes below which they end [B]
BANDS = (
    ("< 32 KiB", 2**15),
    ("32 KiB-1 MiB", 2**20),
    ("1-64 MiB", 2**26),
    (">= 64 MiB", float("inf")),
)
ANY = "any"
NAME = "collective_error"
#: what the constants that count machines begin with
_MACHINES = "machines"
#: operations that are messages between pairs
MESSAGES = ("all_to_all", "send")


def band_of(size: float) -> str:
    """The name of the band of `size` [B]."""
    return next(name for name, end in BANDS if size < end)


def interval(
    kind: str, latency: float, apart: bool, constants: Mapping[str, Constant] | None = None
) -> tuple[float, float]:
    """The interval around a prediction as two factors, low at most 1 and high at least 1.

    kind     of link that joins its ranks, as `dpsim.predict.collective.kind_of` has it; or `ANY`;
             or "mpi", whose machines are counted apart: what is known of a kind is NCCL's on it
    latency  the share of the predicted time that is latency [1]
    apart    whether its ranks are on several nodes
    """
    known = shipped(NAME) if constants is None else constants
    shares = {"any": 1.0, "nodes": float(apart), "sockets": float(through_tcp(kind))}
    if f"{_MACHINES}.{kind}" not in known and not through_tcp(kind):
        shares["unmeasured"] = 1.0
    shares |= {"latency": latency * (not apart), "passage": latency * apart}
    return 1.0 / _factor(known, shares, "fast"), _factor(known, shares, "slow")


def through_tcp(kind: str) -> bool:
    """Whether bytes over a kind of link go through the hosts' TCP; GPUDirect-TCPX's do, but for
    their copies."""
    return kind in SOCKETS or kind == "tcpx"


def _factor(known: Mapping[str, Constant], shares: Mapping[str, float], end: str) -> float:
    logs = [share * math.log(known[f"{name}.{end}"].value) for name, share in shares.items()]
    return math.exp(math.hypot(*logs))
