"""What the collectives of a step take: of a tensor group, and of all ranks that share experts."""

from __future__ import annotations

import math

from dpsim.backends import Backend
from dpsim.backends.gloo import Gloo
from dpsim.backends.nccl import Nccl
from dpsim.core.record import Refused
from dpsim.machines.fabrics.torus import Torus
from dpsim.machines.machine import Machine
from dpsim.machines.topology import Topology


class StepExchanges:
    """Collectives on the machine, by their bytes; ranks fill nodes in turn.

    Costs are the project's model of NCCL on idle links, at powers of two of bytes, and straight
    lines between.
    """

    def __init__(self, machine: Machine, replicas: int, tensor: int) -> None:
        ranks = replicas * tensor
        nodes = -(-ranks // machine.gpus_per_node)
        if nodes > 1 and machine.gpus_per_node % tensor:
            gpus = machine.gpus_per_node
            whole = ", ".join(str(n) for n in range(1, gpus + 1) if gpus % n == 0)
            raise Refused(
                f"replicas of {tensor} do not fill the {gpus} devices of a node evenly; {whole} do",
                ("serving", "tensor"),
            )
        if nodes > 1 and machine.network is None:
            raise Refused(
                f"{ranks} GPUs are more than the {machine.gpus_per_node} of {machine.name}, a "
                "single node; fewer replicas, or a machine with a network, are accepted",
                ("serving", "replicas"),
            )
        self.ranks, self.tensor, self.nodes = ranks, tensor, nodes
        self.replicas, self.a_node = replicas, max(machine.gpus_per_node // tensor, 1)
        if isinstance(machine.node, Torus):
            message = f"vLLM on TPUs ({machine.name}) is not modelled; machines with GPUs are"
            raise Refused(message, ("cluster", "machine"))
        self.backend: Backend = Nccl()
        self.topology: Topology | None = None
        if ranks > 1:
            self.topology = machine.topology(nodes, ranks)
            self.topology.require_connected()
        self._known: dict[tuple[str, int, int], float] = {}

    def among_tensor(self, operation: str, size: float) -> float:
        """`operation` on `size` bytes (unsharded) among the ranks of a replica [s]."""
        return self._between(operation, self.tensor, size)

    def among_all(self, operation: str, size: float) -> float:
        """The same among all ranks [s]."""
        return self._between(operation, self.ranks, size)

    @property
    def filled(self) -> tuple[tuple[int, ...], ...]:
        """The replicas of each node, which are filled in turn: the last may have fewer."""
        each = self.a_node
        return tuple(
            tuple(range(first, min(first + each, self.replicas)))
            for first in range(0, self.replicas, each)
        )

    @property
    def agreeing(self) -> float:
        """What it takes replicas to tell each other how many tokens they have [s]: an all-reduce of
        a few bytes by their hosts, a ring of gloo's messages (`disable_nccl_for_dp_synchronization`
        of vLLM 0.19)."""
        return 2.0 * (self.replicas - 1) * Gloo().latency

    def _between(self, operation: str, ranks: int, size: float) -> float:
        if ranks == 1 or size <= 0:
            return 0.0
        place = max(math.log2(size), 8.0)
        low = math.floor(place)
        first, second = self._at(operation, ranks, low), self._at(operation, ranks, low + 1)
        share = max(size, 256.0) / 2.0**low - 1.0
        return first + (second - first) * share

    def _at(self, operation: str, ranks: int, power: int) -> float:
        key = (operation, ranks, power)
        if key not in self._known:
            plan = self.backend.plan(operation, range(ranks), 2.0**power, self.topology)
            self._known[key] = plan.seconds
        return self._known[key]
