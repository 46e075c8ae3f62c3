"""Ends of a service's intervals: it is played again with slower and with faster steps.

Steps are uncertain by the factors that TPOT had in published runs.  Where requests come whether or
not others are answered, a slower pace does more than to stretch answers: queues grow, or it still
keeps up.  Where each answer brings the next request, everything is stretched alike,
but for API servers where these are the limit.  A first token
is less sure than steps are, by TTFT's factors, but for the time that its request is queued.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpsim.core.constants import numbers
from dpsim.serving.fleet import Fleet


class ServedMeans(NamedTuple):
    """Of a play: tokens put out a second, and means over requests of the time until the first
    token, how much of it they are queued, between tokens (0 where no answer has two), and from the
    first token to the last [s]."""

    tokens: float
    ttft: float
    queued: float
    tpot: float
    rest: float

    def stretched(self, factor: float) -> ServedMeans:
        """The same where everything takes `factor` times as long."""
        return ServedMeans(self.tokens / factor, *(value * factor for value in self[1:]))


class Ends(NamedTuple):
    """(low, high) of tokens a second and of mean delays [s]."""

    tokens: tuple[float, float]
    ttft: tuple[float, float]
    tpot: tuple[float, float]
    latency: tuple[float, float]


def between_tokens(fleet: Fleet) -> list[float]:
    """From token to token of every answer that has two [s]."""
    return [(o.last - o.first) / (o.ask.answer - 1) for o in fleet.served if o.ask.answer > 1]


def means_of(fleet: Fleet) -> ServedMeans:
    """What came out of a play."""
    served = fleet.served
    between = between_tokens(fleet)
    return ServedMeans(
        tokens=sum(one.ask.answer for one in served) / max(one.last for one in served),
        ttft=float(np.mean([one.first - one.came for one in served])),
        queued=float(np.mean([one.queued for one in served])),
        tpot=float(np.mean(between)) if between else 0.0,
        rest=float(np.mean([one.last - one.first for one in served])),
    )


def paces() -> tuple[float, float]:
    """Factors of steps at the fast and the slow end."""
    known = numbers("serving")
    return 1.0 / known["tpot.fast"], known["tpot.slow"]


def ends_of(own: ServedMeans, fast: ServedMeans, slow: ServedMeans) -> Ends:
    """Ends around `own`, of the same service with fast and with slow steps."""
    known = numbers("serving")
    first = own.ttft - own.queued
    ttft = _around(
        own.ttft, fast.ttft, fast.queued + first / known["ttft.fast"],
        slow.ttft, slow.queued + first * known["ttft.slow"],
    )  # fmt: skip
    rest = _around(own.rest, fast.rest, slow.rest)
    return Ends(
        tokens=_around(own.tokens, slow.tokens, fast.tokens),
        ttft=ttft,
        tpot=_around(own.tpot, fast.tpot, slow.tpot),
        latency=(ttft[0] + rest[0], ttft[1] + rest[1]),
    )


def _around(*values: float) -> tuple[float, float]:
    return min(values), max(values)
