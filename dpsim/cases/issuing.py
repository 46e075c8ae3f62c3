"""What is known of a host that issues kernels one by one, and what is refused of it."""

from __future__ import annotations

from dpsim.compile.strategies import Strategy
from dpsim.core.plugins import name_of
from dpsim.core.record import Refused
from dpsim.describe.sections import Host
from dpsim.models import Model

_LAUNCH = ("host", "launch")


def accept_launches(told: Host, model: Model, strategy: Strategy) -> None:
    """Raises Refused where launches are not modelled, or are in the durations already."""
    if told.launch is None:
        return
    if model.recorded is not None and model.recorded.timed:
        raise Refused("recorded durations hold what the host cost; leave it out", _LAUNCH)
    if strategy.own_launches:
        kind = name_of(strategy)
        raise Refused(f"the host's launches are not modelled for {kind}; leave it out", _LAUNCH)


def accept_shared_launches(told: Host, model: Model, strategy: Strategy) -> None:
    """The same where ranks share a model, which take their launches layer by layer."""
    if told.captured or told.waits:
        message = (
            "is not modelled with tensor, pipeline, context or expert parallelism; leave it out"
        )
        raise Refused(message, ("host", "captured" if told.captured else "waits"))
    accept_launches(told, model, strategy)
    if told.launch is not None and any(layer.forward is not None for layer in model.layers):
        message = "the layers state their durations, launches and all; leave it out"
        raise Refused(message, _LAUNCH)
