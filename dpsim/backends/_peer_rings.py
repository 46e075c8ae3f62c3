"""What the rings of other simulators have in common: which operations they are, and how often."""

from __future__ import annotations

from dpsim.core.record import Refused

#: how often the bytes go round
_PASSES = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}


def passes(operation: str, peer: str, also: str = "") -> int:
    """How many passes of N-1 messages `operation` is on the ring of `peer`; Refused where it is
    none.  `also` says what the peer has or lacks beside them."""
    if operation not in _PASSES:
        known = ", ".join(_PASSES)
        said = f"{operation} is not modelled as {peer} plays it: its rings are {known}{also}"
        raise Refused(said, ("collective",))
    return _PASSES[operation]
