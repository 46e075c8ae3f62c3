"""What frameworks know about themselves, and a case has to ask."""

from __future__ import annotations

from dpsim.compile.strategies import Strategy
from dpsim.compile.strategies._wrapper import Wrapper
from dpsim.core.plugins import name_of

#: strategies that work out from durations what they issue, or launch kernels by a rule of their own
_OWN_LAUNCHES = ("horovod", "data_parallel")


def innermost(strategy: Strategy) -> Strategy:
    """The strategy that a wrapper plays."""
    return innermost(strategy.inner) if isinstance(strategy, Wrapper) else strategy


def own_launches(strategy: Strategy) -> str | None:
    """The name of the strategy, if it cannot be told what a launch costs the host."""
    kind = name_of(innermost(strategy))
    return kind if kind in _OWN_LAUNCHES else None


def backup_workers(strategy: Strategy) -> int:
    """Ranks whose gradients a step does not wait for."""
    return int(getattr(strategy, "backup_workers", 0))
