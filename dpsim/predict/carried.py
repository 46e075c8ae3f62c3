"""What was measured or is paid on one machine or program, and is carried to another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dpsim.core.overrides import INSTEAD
from dpsim.describe.scenario import Loaded
from dpsim.money.price import Price

#: keys that say how many of a machine there are, over which a measurement is carried
_COUNTS = {*INSTEAD, "cluster.gpus_per_node"}
#: what of a cluster says which devices compute
_DEVICES = ("machine", "device")
#: beginnings of keys of what joins nodes
_BETWEEN = ("cluster.inter_node", "cluster.nics_per_node", "cluster.oversubscription")
#: beginnings of keys of what devices cost
_COSTS = tuple(f"price.{k}" for k in ("per_device_hour", "per_node_hour", "row", "purchase"))
#: values of a swept key that a warning shows
_SHOWN = 8


def altered(loaded: Loaded) -> list[str]:
    """Warnings where --set turned the scenario into another experiment than the measured one."""
    sets, warnings = ", ".join(f"--set {text}" for text in loaded.altered), []
    if sets and loaded.scenario.measured is not None:
        warnings.append(f"measured points are left out: {sets} changes what was measured")
    if elsewhere := made_without(loaded):
        warnings.append(elsewhere)
    network = [s for s in loaded.altered if s.startswith(("cluster.", "collective."))]
    if network and loaded.scenario.calibration and "calibration" not in loaded.origins_set:
        warnings.append(f"calibration: curves measured without --set {', --set '.join(network)}")
    return [*warnings, *_swept(loaded)]


def made_without(loaded: Loaded) -> str:
    """What to say where --set names what the calibrated step was not measured with; else ""."""
    calibrate = loaded.scenario.calibrate
    if calibrate is None or "calibrate" in loaded.origins_set:
        return ""
    alone = calibrate.ranks == 1  # which sends nothing between nodes
    own = [text for text in loaded.altered if not (alone and text.startswith(_BETWEEN))]
    if not own:
        return ""
    return (
        f"calibrated on a measurement made without --set {', --set '.join(own)}: it is taken "
        "as made with it; dpsim sweep with --grid in place of --set carries the level of "
        "compute over, and --set calibrate=null models compute instead"
    )


def _swept(loaded: Loaded) -> Iterator[str]:
    given = [key for key in ("calibrate", "calibration") if getattr(loaded.scenario, key)]
    values = values_of(loaded.changes)
    yield from carried(given, values)
    points = (point.cluster.machine for point in loaded.points)
    here = {**values, "cluster.machine": [name for name in points if name]} if values else {}
    yield from one_for_all(loaded.scenario.price, here)


def values_of(changes: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The values of each key in `changes`, of which each may set other keys."""
    found: dict[str, list[str]] = {}
    for change in changes:
        for key, value in change.items():
            found.setdefault(key, []).append(str(value))
    return found


def carried(
    given: Sequence[str],
    values: Mapping[str, Sequence[str]],
    scenario: Mapping[str, Any] | None = None,
) -> Iterator[str]:
    """Warnings where `values` of keys go over machines or networks, of which what is `given` was
    measured on one at most, or are not the one that `scenario` has, which it was measured on."""
    measured_on = (scenario or {}).get("cluster") or {}
    for key, several in values.items() if given else ():
        if not key.startswith(("cluster.", "collective.")) or key in _COUNTS:
            continue
        told = list(dict.fromkeys(several))
        name = key.removeprefix("cluster.")
        if len(told) == 1 and name in _DEVICES and measured_on and told[0] != measured_on.get(name):
            yield f"{', '.join(given)}: measured without {key}={told[0]}, and carried to it"
        elif len(told) > 1:
            yield (
                f"{', '.join(given)}: measured at one {key} at most, and carried to all of "
                f"{', '.join(told[:_SHOWN])}{', …' * (len(told) > _SHOWN)}"
            )


def one_for_all(
    price: Price | Mapping[str, object] | None, values: Mapping[str, Sequence[str]]
) -> list[str]:
    """What to know where `values` of keys go over machines, and nothing in `price`, a record or
    the data of one, says what each costs."""
    told = list(dict.fromkeys(values.get("cluster.machine", ())))
    each = price.get("machines") if isinstance(price, Mapping) else price and price.machines
    if not price or each or len(told) < 2 or any(key.startswith(_COSTS) for key in values):
        return []
    example = ", ".join(f"{name}: {{per_node_hour: 20 usd/h}}" for name in told[:2])
    return [
        "price: all machines are paid for alike; price.machines has what each costs, such as "
        f"{{{example}}}"
    ]
