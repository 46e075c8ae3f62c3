"""Words for people: text that is safe to print, numbers with their units, names of causes."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from dpsim.core.units import show

_BOTTLENECKS = {
    "memory_bandwidth": "memory bandwidth",
    "intra_node_network": "network in node",
    "inter_node_network": "network between nodes",
    "network_latency": "network latency",
    "pipeline_bubble": "pipeline bubble",
    "data_loading": "data loading",
}
#: what a step takes beyond a law
PARTS = {
    "communication": "communication",
    "jitter": "stragglers",
    "bubble": "pipeline bubbles",
    "input": "waits for batches",
    "load": "uneven or less efficient work per rank",
    "unexplained": "what measured steps show and nothing explains",
    "serial": "work that ranks do not share out",
}
#: what marks of points and cells say that are unlikely to fit, or do not
NOT_HELD = "not taken to fit in memory"
SPLIT = {
    "compute_s": "compute",
    "exposed_communication_s": "exposed communication",
    "bubble_s": "pipeline bubble",
    "stall_s": "stall (host, a slower rank, or no batch)",
}


def clean(text: object) -> str:
    """`text` on one line without control characters, escape sequences or invisible marks."""
    kept = (
        c if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") else " "
        for c in str(text)
    )
    return " ".join("".join(kept).split())


def brief(text: object, length: int) -> str:
    """`clean` text, cut to `length` characters."""
    whole = clean(text)
    return whole if len(whole) <= length else whole[: length - 1] + "…"


def bottleneck(name: str) -> str:
    """What limits a step, in words."""
    return _BOTTLENECKS.get(name, clean(name))


def split_text(point: Mapping[str, Any]) -> str:
    """ "compute 20 ms (85.3 %), exposed communication 3.45 ms (14.7 %)" """
    whole = point["step_time_s"]
    parts = [
        f"{name} {show(point[key], 's')} ({percent(point[key] / whole)})"
        for key, name in SPLIT.items()
        if whole > 0 and point[key] > 1e-4 * whole
    ]
    return ", ".join(parts) or "nothing takes time"


def shortened(warnings: Sequence[str], most: int = 8) -> list[str]:
    """The first `most` warnings, each once, and how many more there are."""
    warnings = list(dict.fromkeys(warnings))
    rest = len(warnings) - most
    return [*warnings[:most], *([f"and {rest} more, see prediction.json"] if rest > 0 else [])]


# -- numbers --------------------------------------------------------------------------------------


def number(value: float) -> str:
    """A rate or a ratio to four digits, thousands grouped."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def plain(value: float) -> str:
    """A value of an axis, as it would be typed."""
    return f"{value:,.10g}"


def percent(share: float | None) -> str:
    """A share to a tenth of a percent, small ones to three digits; nothing of None."""
    if share is None:
        return ""
    if share >= 9.995:
        return f"{share * 100:,.0f} %"
    return f"{share * 100:.1f} %" if 0.001 <= share < 0.9995 else f"{share * 100:.3g} %"


def error(share: float | None) -> str:
    """Two figures of an error below 10 %, whole percents above."""
    if share is None:
        return ""
    return f"{share * 100:.1f} %" if share < 0.0995 else f"{share * 100:,.0f} %"


def signed(share: float) -> str:
    """An error with its sign: "+5.4 %"."""
    return f"{share * 100:+.1f} %"


def duration(seconds: float) -> str:
    """A long time in minutes, hours or days."""
    for unit, scale in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * scale:
            return f"{number(seconds / scale)} {unit}"
    return show(seconds, "s", 3)


def between(low: str, high: str) -> str:
    """Both ends of an interval, with the unit once where it is the same: "313–445 ms"."""
    value, _, unit = low.partition(" ")
    return f"{value if unit and high.partition(' ')[2] == unit else low}–{high}"


def ranks(count: int) -> str:
    """So many ranks."""
    return f"{count:,} rank" + ("" if count == 1 else "s")


def fits(known: str | None) -> str:
    """Whether a step fits in memory, as tables say it."""
    return {"no": "NO", None: ""}.get(known, known or "")
