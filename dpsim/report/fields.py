"""Fields of points for people: their names, their values, their intervals, and how to draw them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpsim.core.units import dollars
from dpsim.planning.wanted import ends_of, said, value_of
from dpsim.report.figures import time_scale
from dpsim.report.text import between, clean, duration, number, percent

_NAMES = {
    "cost_usd": "cost",
    "time_to_train_s": "time to train",
    "energy_kwh": "energy",
    "throughput_per_s": "throughput",
    "step_time_s": "step time",
    "memory_bytes": "memory",
    "mfu": "MFU",
}


def name_of(field: str) -> str:
    """What `field` is called in a sentence."""
    plain = field.removesuffix("_s") if not field.endswith("_per_s") else field
    return _NAMES.get(field, clean(plain).replace("_", " "))


def shown(point: Mapping[str, Any], field: str) -> str:
    """The value of `field` with its unit, for people; empty where there is none."""
    value = value_of(point, field)
    if value is None:
        return ""
    if field == "time_to_train_s":
        return duration(value)
    if field.endswith("_usd"):
        return dollars(value)
    if field.startswith("efficiency") or field == "mfu":
        return percent(value)
    if field == "throughput_per_s":
        return f"{number(value)} {clean(point['throughput_unit'])}"
    return said(field, value)


def interval(point: Mapping[str, Any], field: str) -> str:
    """The 90 % interval of `field`, such as "85.1–93 %"."""
    ends = ends_of(point, field)
    if ends is None or value_of(point, field) is None:
        return ""
    if ends[0] == ends[1]:
        return "exact"
    return between(*(shown({**point, field: end}, field) for end in ends))


def setting_text(change: Mapping[str, Any]) -> str:
    """{"cluster.nodes": 4} as "cluster.nodes = 4"; "as it is" where nothing is set."""
    found = ", ".join(f"{clean(key)} = {set_value(value)}" for key, value in change.items())
    return found or "as it is"


def set_value(value: Any) -> str:
    """A value of a key, as a scenario writes it."""
    if isinstance(value, bool) or value is None:
        return "null" if value is None else str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{clean(k)}: {set_value(v)}" for k, v in value.items()) + "}"
    return clean(value)


def told_apart(texts: Sequence[str], digits: int = 3) -> list[str]:
    """Numbers of one unit, to the fewest digits, but at least so many, that tell them apart; other
    texts as they are.

    >>> told_apart(["25.2982 Gbit/s", "37.8773 Gbit/s", "37.9212 Gbit/s"])
    ['25.3 Gbit/s', '37.88 Gbit/s', '37.92 Gbit/s']
    """
    found = [re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)( \S+|)", text) for text in texts]
    parts = [(float(one[1]), one[2]) for one in found if one]
    if len(parts) < len(texts) or len({unit for _, unit in parts}) != 1:
        return list(texts)
    for count in range(digits, 16):
        near = [v if v.is_integer() else float(f"{v:.{count}g}") for v, _ in parts]
        if len(set(near)) == len(set(parts)):
            break
    return [f"{value:,.15g}{unit}" for value, (_, unit) in zip(near, parts, strict=True)]


def drawn(
    field: str, points: Iterable[Mapping[str, Any]], *, long: bool = False
) -> tuple[float, str]:
    """By what the values of `field` are multiplied where `points` are drawn, and their unit then;
    a time may be `long`."""
    if field.endswith("_s") and not field.endswith("_per_s"):
        values = [v for point in points if (v := value_of(point, field)) is not None]
        return time_scale(values, long=long, least=2.0 if long else 1.0)
    if "bytes" in field or field.startswith("memory_parts"):
        return 1e-9, "GB"
    return (100.0, "%") if field.startswith(("efficiency", "mfu")) else (1.0, "")
