"""What a plan requires of a point: ``efficiency>=0.9``, ``step_time_s<=300ms``, ``fits``.

>>> wanted = parse_wanted("step_time_s<=300ms")
>>> wanted.field, wanted.least, wanted.limit, str(wanted)
('step_time_s', False, 0.3, 'step_time_s <= 300 ms')
>>> round(wanted.margin({"step_time_s": 0.24}), 6)
0.2
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from dpsim.core import unknown
from dpsim.core.record import Refused
from dpsim.core.units import dollars, parse, show
from dpsim.predict.point import FITTING

#: fields that compare a point with another one
RELATIVE = ("efficiency", "speedup", "training_speedup")
#: fields that the scenario has to ask for, and what asks for them
_ASKED = {
    "time_to_train_s": "training",
    "steps": "training",
    "samples": "training",
    "epochs": "training",
    "device_hours": "training",
    "training_speedup": "training",
    "cost_usd": "training and price",
    "cost_usd_per_hour": "price",
    "energy_kwh": "training and energy",
    "power_w": "energy",
}
_TEXT = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(>=|<=|≥|≤)\s*(\S.*?)\s*")
_RATE = re.compile(r"([0-9.,_]+(?:[eE][+-]?\d+)?)\s*(\w+/s)?")
#: a share beyond that is meant in percent; efficiencies of a little above 1 are real
_MOST_SHARE = 10.0
#: what money is told in
_LARGE = {"": 1, "k": 10**3, "M": 10**6, "B": 10**9}
_KWH = {"kWh": 1.0, "MWh": 1000.0, "GWh": 1e6}


@dataclass(frozen=True)
class Wanted:
    """`field` of a point is at least (or with `least` false at most) `limit`; SI units, usd, kWh.

    `fits` has no limit: the point fits in memory.  `option` is where it was asked for."""

    field: str
    least: bool
    limit: float
    option: str = "--require"

    def __str__(self) -> str:
        if self.field == "fits":
            return "fits"
        limit = said(self.field, self.limit)
        if dimension(self.field) == "usd" and self.limit >= 1.0:  # as it was asked, to the cent
            limit = f"{self.limit:,.2f}".removesuffix(".00") + " usd"
        return f"{self.field} {'>=' if self.least else '<='} {limit}"

    def margin(self, point: Mapping[str, Any], *, sure: bool = False) -> float:
        """How far `point` is on the right side, relative to the limit; -inf without a number.

        With `sure` it is the end of the 90 % interval that is worse; the value itself where the
        point has no interval of this field.
        """
        if self.field == "fits":
            fits, taken = point.get("fits"), FITTING[:1] if sure else FITTING
            return -math.inf if fits is None else 1.0 if fits in taken else -1.0
        value = value_of(point, self.field)
        if value is None:
            return -math.inf
        if sure and (ends := ends_of(point, self.field)) is not None:
            value = ends[0] if self.least else ends[1]
        distance = value - self.limit if self.least else self.limit - value
        return distance / abs(self.limit) if self.limit else distance

    @property
    def relative(self) -> bool:
        return self.field in RELATIVE


def margin_of(wanted: Sequence[Wanted], point: Mapping[str, Any], *, sure: bool = False) -> float:
    """The smallest margin of all that is wanted; -inf where the point has no numbers."""
    if "error" in point:
        return -math.inf
    return min((one.margin(point, sure=sure) for one in wanted), default=math.inf)


def parse_wanted(text: str, option: str = "--require") -> Wanted:
    """What ``FIELD>=VALUE`` or ``FIELD<=VALUE`` wants; the value carries the field's unit."""
    if text.strip() == "fits":
        return Wanted("fits", True, 1.0)
    found = _TEXT.fullmatch(text)
    if found is None:
        raise Refused(
            f"{option} {text}: write it as FIELD>=VALUE or FIELD<=VALUE, as in efficiency>=0.9 or "
            "step_time_s<=300ms, or as fits"
        )
    field, sign, value = found.groups()
    try:
        limit = _limit(field, value)
    except ValueError as error:
        shown = text if option == "--require" else value
        said = "" if dimension(field) else _meant(field) or unknown.not_modelled(field)
        raise Refused(f"{option} {shown}: {said or error}") from None
    if limit < 0:
        raise Refused(f"{option} {text}: no point has a {field} below 0")
    return Wanted(field, sign in (">=", "≥"), limit, option)


def _meant(field: str) -> str:
    """The field whose name is `field` with its unit behind it; "" where there is none."""
    known = (*_ASKED, "step_time_s", "memory_bytes", "throughput_per_s")
    near = [name for name in known if name.startswith(f"{field}_") and dimension(name)]
    return f"points have no such field; did you mean {near[0]!r}?" if near else ""


def dimension(field: str) -> str:
    """The dimension of a point's field: "s", "B", "usd", "usd/h", "kWh", "W", "1", or "" of a
    count or a rate."""
    name = field.partition(".")[0]
    if name.endswith("_per_s"):
        return ""
    if name.endswith("usd_per_hour"):
        return "usd/h"
    for end, found in (("_s", "s"), ("_usd", "usd"), ("_kwh", "kWh"), ("_w", "W")):
        if name.endswith(end):
            return found
    if "bytes" in name or name == "memory_parts":
        return "B"
    if name.startswith("efficiency") or name == "mfu":
        return "1"
    return ""


def _limit(field: str, text: str) -> float:
    """The number of `text`, in the unit of `field`."""
    kind = dimension(field)
    if kind == "usd":
        return float(_amount(text))
    if kind == "kWh":
        found = re.fullmatch(r"([0-9.]+)\s*([kMG]Wh)", text)
        if found is None:
            raise ValueError(f"{text!r} is no energy; write for example '50000 kWh'")
        return float(found[1]) * _KWH[found[2]]
    if kind == "s" and re.fullmatch(r"[0-9.]+", text):
        raise ValueError(f"{text!r} has no unit; write for example '300 ms', '10 min' or '30 d'")
    if kind:
        value = parse(text, kind)
        if kind == "1" and value > _MOST_SHARE:
            number = text.rstrip(" %")
            raise ValueError(f"{text!r} is no share; for {number} percent write '{number} %'")
        return value
    rate = _RATE.fullmatch(text)
    if rate is None or (rate[2] and not field.endswith("_per_s")):
        raise ValueError(f"{text!r} is no number; {field} has no unit")
    return float(rate[1].replace(",", "").replace("_", ""))


def _amount(text: str) -> str:
    found = re.fullmatch(r"([0-9][0-9_,]*(?:\.[0-9]+)?(?:[eE][0-9]{1,2})?)\s*([kMB]?)\s*usd", text)
    if found is None:
        raise ValueError(
            f"{text!r} is no amount in usd; write for example '200000 usd', '200k usd' or "
            "'4.5 M usd' (B: 1e9)"
        )
    return f"{Decimal(found[1].replace(',', '').replace('_', '')) * _LARGE[found[2]]}"


def said(field: str, value: float) -> str:
    """`value` of `field` with its unit, for people."""
    kind = dimension(field)
    if kind == "usd":
        return dollars(value)
    if kind == "kWh":
        return f"{value:,.4g} kWh" if value < 1e4 else f"{value:,.0f} kWh"
    if kind == "s" and value >= 120:
        scale, unit = next(p for p in ((86400, "d"), (3600, "h"), (60, "min")) if value >= 2 * p[0])
        return f"{value / scale:,.4g} {unit}"
    if kind:
        return show(value, kind)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


# -- fields of points -----------------------------------------------------------------------------


def value_of(point: Mapping[str, Any], field: str) -> float | None:
    """The number under the dotted `field` of `point`, if it has one."""
    here: Any = point
    for part in (field,) if field in point else field.split("."):
        here = here.get(part) if isinstance(here, Mapping) else None
    if isinstance(here, bool) or not isinstance(here, int | float):
        return None
    return float(here)


def ends_of(point: Mapping[str, Any], field: str) -> tuple[float, float] | None:
    """The 90 % interval of `field`; None where the point has none.

    Throughput and MFU are what the step time's ends make of them, speed-up what those of
    efficiency do."""
    named = {
        "step_time_s": ("step_time_low_s", "step_time_high_s"),
        "efficiency": ("efficiency_low", "efficiency_high"),
        "time_to_train_s": ("time_to_train_low_s", "time_to_train_high_s"),
        "cost_usd": ("cost_low_usd", "cost_high_usd"),
        "energy_kwh": ("energy_low_kwh", "energy_high_kwh"),
    }
    value = value_of(point, field)
    if field in named:
        low, high = (value_of(point, key) for key in named[field])
        return None if low is None or high is None else (low, high)
    if value is None:
        return None
    if field in ("throughput_per_s", "mfu"):
        time, ends = point["step_time_s"], ends_of(point, "step_time_s")
        return ends and (value * time / ends[1], value * time / ends[0] if ends[0] else value)
    if field == "device_hours" and (time := value_of(point, "time_to_train_s")):
        ends = ends_of(point, "time_to_train_s")
        return ends and (value * ends[0] / time, value * ends[1] / time)
    if field == "speedup" and (share := value_of(point, "efficiency")):
        ends = ends_of(point, "efficiency")
        return ends and (value * ends[0] / share, value * ends[1] / share)
    return None


def check_fields(fields: Sequence[str], point: Mapping[str, Any], option: str) -> None:
    """Refuse fields that `point`, a computed one, does not have as numbers."""
    for field in fields:
        if field == "fits" or value_of(point, field) is not None:
            continue
        if (asked := _ASKED.get(field)) is not None:
            raise Refused(
                f"{option} {field}: needs {asked} in the scenario, as in "
                "scenarios/worked/train_resnet50.yaml"
            )
        top = field.partition(".")[0]
        if top in point:
            what = "has no value here" if point[top] is None else "is no number"
            raise Refused(f"{option} {field}: {what}")
        known = sorted(name for name in point if value_of(point, name) is not None)
        near = difflib.get_close_matches(field, [*known, *_ASKED], n=1, cutoff=0.6)
        if not near and (said := unknown.not_modelled(field)):
            raise Refused(f"{option} {field}: {said}")
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        raise Refused(f"{option} {field}: points have no such field; {hint}")
