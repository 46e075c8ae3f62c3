"""How far one collective may lie from its prediction: widths learned from published residuals.

There is a pair of factors per kind of fabric and band of sizes in
``dpsim/core/fitted/collective_error.yaml``, which ``validation/fit_errors.py`` writes: the 5 % and
95 % points of measured over predicted.

Sends and all-to-alls miss otherwise than collectives that a library tunes, so they have groups of
their own (`pool`) and change none of the others.  Their constants rest on few series, which they
meet too well; so their intervals are never narrower than those of other collectives there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from dpsim.core.constants import Constant, shipped

#: names of the bands, and the sizes below which they end [B]
BANDS = (
    ("< 32 KiB", 2**15),
    ("32 KiB-1 MiB", 2**20),
    ("1-64 MiB", 2**26),
    (">= 64 MiB", float("inf")),
)
ANY = "any"
NAME = "collective_error"
#: operations that are messages between pairs, and what the names of their groups begin with
MESSAGES, _POOL = ("all_to_all", "send"), "messages_"
#: operations of which there was no series to fit on, and how much further their intervals go
_UNFITTED, _BEYOND = ("reduce", "send"), 2.0


def band_of(size: float) -> str:
    """The name of the band of `size` [B]."""
    return next(name for name, end in BANDS if size < end)


def pool(operation: str, kind: str) -> str:
    """The kind of link `kind` (or `ANY`) as the groups of `operation` name it."""
    return _POOL + kind if operation in MESSAGES else kind


def any_of(kind: str) -> str:
    """The group of all fabrics that `kind` belongs to."""
    return _POOL + ANY if kind.startswith(_POOL) else ANY


def fabric_of(kind: str) -> str:
    """The fabrics of the groups of `kind`, in words."""
    fabric = "any fabric" if kind == any_of(kind) else kind.removeprefix(_POOL)
    return f"sends and all-to-alls, {fabric}" if kind.startswith(_POOL) else fabric


def key(kind: str, band: str) -> str:
    """The name of a group in the file of constants."""
    place = ANY if band == ANY else str([name for name, _ in BANDS].index(band) + 1)
    return f"{kind}.band_{place}"


def interval(operation: str, kind: str, size: float) -> tuple[float, float]:
    """The factors of `operation` on `size` bytes over links of `kind` (or `ANY`).

    They go further by `_BEYOND` for operations that were not fitted: of the reduces and sends that
    were seen, all held out, many lie outside the plain ones.
    """
    low, high = factors(pool(operation, kind), size)
    more = _BEYOND if operation in _UNFITTED else 1.0
    return low / more, high * more


def factors(
    kind: str, size: float, constants: Mapping[str, Constant] | None = None
) -> tuple[float, float]:
    """The interval around a prediction as two factors, low at most 1 and high at least 1.

    `kind` is as `pool` has it.  The factors lie one standard error further out than the quantiles,
    for a new series is not one of those that the quantiles were read off.  Where the group has too
    few residuals the kind's own over all sizes, then the band's over all fabrics, then those of
    everything stand in.
    """
    known = shipped(NAME) if constants is None else constants
    found = _found(kind, band_of(size), known)
    if kind.startswith(_POOL):
        others = factors(kind.removeprefix(_POOL), size, known)
        found = found or others
        return min(found[0], others[0]), max(found[1], others[1])
    if found is None:
        raise ValueError(f"{NAME} has no factors for any fabric")
    return found


def _found(kind: str, band: str, known: Mapping[str, Constant]) -> tuple[float, float] | None:
    """The factors of the nearest group that there is."""
    every = any_of(kind)
    for group in (key(kind, band), key(kind, ANY), key(every, band), key(every, ANY)):
        if f"{group}.low" in known:
            return _wide(known[f"{group}.low"], known[f"{group}.high"])
    return None


def _wide(low: Constant, high: Constant) -> tuple[float, float]:
    """A standard error further out than `low` and `high`, around 1."""
    ends = (
        low.value * math.exp(-low.error / low.value),
        high.value * math.exp(high.error / high.value),
    )
    return min(ends[0], 1.0), max(ends[1], 1.0)
