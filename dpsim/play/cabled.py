"""Costs of an ideal ring where places send to each other: every place has a cable, which all of its
messages share, one way each."""

from __future__ import annotations

from typing import Any

from dpsim.backends import Backend, Phase, Plan, Ranks
from dpsim.collectives import SEND
from dpsim.play import Costs


class Cabled(Costs):
    """A message takes `latency` [s] and its bytes over `bandwidth` [B/s], unless others use the
    sender's or the receiver's cable meanwhile."""

    def __init__(self, backend: Backend, latency: float, bandwidth: float) -> None:
        super().__init__(backend, None)
        self._latency, self._bandwidth = latency, bandwidth

    def capacity(self, link: Any) -> float:
        return self._bandwidth

    def plan(self, operation: str, ranks: Ranks, size: float) -> Plan:
        if operation != SEND or len(ranks) != 2 or not size:
            return super().plan(operation, ranks, size)
        out, into = (("cable", ranks[0], 0), ("out",)), (("in",), ("cable", ranks[1], 0))
        seconds = size / self._bandwidth
        phase = Phase(self._latency, seconds, {out: size, into: size}, size, out)
        return Plan((phase,), None, "direct", size)
