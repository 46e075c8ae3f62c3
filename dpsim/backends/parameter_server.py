"""Parameter servers of their own beside the ranks, which are workers: a toy without a machine.

N workers push S bytes and pull S bytes.  The busiest server holds the fraction f of all bytes, so
its link carries N f S each way, and a worker's own S:

push, pull   latency + max(1, N f) S / bandwidth, each
all-reduce   a push, then a pull: 2 N f S / bandwidth where servers limit
reduce, reduce-scatter: a push; broadcast, all-gather: a pull

Sources: Li et al., OSDI 2014; tensorflow/tensorflow ParameterServerStrategyV2, whose variables lie
whole on one server each unless a partitioner splits them, so that f may be far above 1/s.  Links
are full duplex, but a worker pulls only after the push, as synchronous training does.
"""

from __future__ import annotations

from typing import Annotated

from dpsim.backends import Phase, Plan, Ranks, Topology
from dpsim.backends._toy import Toy
from dpsim.core import units
from dpsim.core.record import Check, Refused, record

_ROUNDS = {"all_reduce": 2, "reduce": 1, "reduce_scatter": 1, "broadcast": 1, "all_gather": 1}
_PULLS = ("broadcast", "all_gather")


@record
class ParameterServer(Toy):
    """`latency` [s] of a message and `bandwidth` [B/s] of a worker's and of a server's link, one
    way (None: infinite).

    servers  how many there are, each with a link of its own
    largest  the fraction of all bytes on the busiest one; left out: all hold the same, 1/servers
    """

    servers: Annotated[int, Check(1, 100_000)] = 1
    largest: units.PositiveFraction | None = None

    def __post_init__(self) -> None:
        least = 1 / self.servers
        if self.largest is not None and self.largest < least * (1 - 1e-9):
            message = f"{self.largest:g} is less than the mean of {self.servers} servers, {least:g}"
            raise Refused(message, ("largest",))

    def plan(self, operation: str, ranks: Ranks, size: float, topology: Topology | None) -> Plan:
        if operation not in _ROUNDS:
            known = ", ".join(_ROUNDS)
            raise Refused(
                f"parameter servers have no {operation}; there are {known}",
                ("collective", "backend"),
            )
        n, rounds = len(ranks), _ROUNDS[operation]
        fraction = 1 / self.servers if self.largest is None else self.largest
        busiest = max(1.0, n * fraction)
        phase = Phase(rounds * self.latency, rounds * busiest * self.moving(size))
        pulls = operation in _PULLS
        name = "push and pull" if rounds == 2 else "pull" if pulls else "push"
        return Plan((phase,), None, name, 0.0 if pulls else size)
