"""Changes to a scenario's plain data: ``--set`` and the points of a sweep."""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dpsim.core import yamlfile
from dpsim.core.record import Refused

MAX_POINTS = 10_000
#: the keys that say which plug-in a section is
_TAGS = ("kind", "backend", "name")
#: setting one says how large the cluster is, so it replaces the other
INSTEAD = {"cluster.nodes": "ranks", "cluster.ranks": "nodes"}


def of_one_kind(path: tuple[str | int, ...], changed: Mapping[str, Any]) -> str:
    """What to do about an unknown key at `path` where `changed` sets which kind its section is."""
    section = str(path[0]) if len(path) == 2 else ""
    kind = next((k for tag in _TAGS if (k := f"{section}.{tag}") in changed), None)
    if kind is None or f"{section}.{path[-1]}" == kind:
        return ""
    return (
        f"; it is of another {kind}: {section}={{{kind.partition('.')[2]}: …}} sets the section "
        "anew, and `dpsim compare --vary` leaves out what a kind does not have"
    )


def sweep_changes(data: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """What every point of the sweep sets (nothing, once, if there is no sweep)."""
    sweep = data.get("sweep")
    if sweep is None:
        return ({},)
    if not sweep:
        raise Refused("has no points; leave it out, or give values", ("sweep",))
    if not isinstance(sweep, Mapping):
        _limit(len(sweep))
        return tuple(dict(change) for change in sweep)
    for key, values in sweep.items():
        if not values:
            raise Refused("an empty list has no points", ("sweep", key))
    _limit(math.prod(len(values) for values in sweep.values()))
    grid = itertools.product(*sweep.values())
    return tuple(dict(zip(sweep.keys(), values, strict=True)) for values in grid)


def _limit(points: int) -> None:
    if points > MAX_POINTS:
        raise Refused(
            f"{points:,} points; at most {MAX_POINTS:,} are played in one run", ("sweep",)
        )


def with_change(
    data: dict[str, Any], change: Mapping[str, Any], place: tuple[str | int, ...]
) -> dict[str, Any]:
    """A copy of `data` with ``{path: value, …}`` set; errors are reported at `place`."""
    result = copy.deepcopy(data)
    for key, value in change.items():
        if re.split(r"[.\[]", key)[0] == "sweep":
            raise Refused("a sweep cannot change the sweep", (*place, key))
        try:
            _put(result, key, value)
        except Refused as error:
            raise Refused(error.message, (*place, key)) from None
    return result


def apply_sets(data: dict[str, Any], sets: Sequence[str]) -> dict[str, str]:
    """Apply ``a.b=v`` texts to `data` in place; returns path -> text.

    A key that the sweep varies is taken out of the sweep: what is asked for last, wins.
    """
    changed = {}
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise Refused(f"--set {text}: write it as key.path=value")
        parsed = value_of(key.strip(), value, f"--set {text}")
        try:
            _put(data, key.strip(), parsed)
        except Refused as error:
            raise Refused(f"--set {text}: {error.message}") from None
        changed[key.strip()] = text
        _unsweep(data, key.strip(), text)
        if key.strip() in INSTEAD:
            _unsweep(data, f"cluster.{INSTEAD[key.strip()]}", text)
    return changed


def value_of(key: str, text: str, shown: str) -> Any:
    """The value that `text`, as YAML, gives to `key`; errors call it `shown`."""
    value, _ = yamlfile.loads(text, shown)
    if key == "strategy.torch" and isinstance(value, int | float):
        return text.strip()  # 2.13 is a version, though YAML reads a number
    return value


def _unsweep(data: dict[str, Any], key: str, text: str) -> None:
    """Take `key` out of the sweep."""
    sweep = data.get("sweep")
    if isinstance(sweep, dict) and key in sweep:
        del sweep[key]
        if not sweep:
            del data["sweep"]
    elif isinstance(sweep, list) and any(isinstance(c, dict) and key in c for c in sweep):
        raise Refused(f"--set {text}: the points of the sweep set this key; set sweep too")


def _put(data: dict[str, Any], path: str, value: Any) -> None:
    """Set ``a.b`` or ``layers[0].forward`` in nested plain data."""
    parts: list[str | int] = [
        int(part) if part.isdigit() else part for part in re.findall(r"[^.\[\]]+", path)
    ]
    if not parts or len(parts) > 32:
        raise Refused(f"{path!r} is no path to a key")
    here: Any = data
    for part, following in itertools.pairwise(parts):
        here = _step(here, part, path, {} if isinstance(following, str) else [])
    last = parts[-1]
    item = isinstance(here, list) and isinstance(last, int) and last < len(here)
    if not item and not isinstance(here, dict):
        raise Refused(f"{path!r} leads into something that has no such key")
    here[last] = value
    other = INSTEAD.get(path)
    if other is not None and isinstance(here, dict) and value is not None:
        here.pop(other, None)


def _step(here: Any, part: str | int, path: str, fresh: Any) -> Any:
    if isinstance(here, list) and isinstance(part, int) and part < len(here):
        return here[part]
    if isinstance(here, dict):
        if here.get(part) is None:
            here[part] = fresh
        return here[part]
    raise Refused(f"{path!r} leads into something that has no such key")
