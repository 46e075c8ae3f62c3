"""Changes to a scenario's plain data: ``--set`` and the points of a sweep."""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any

from dpsim.core import yamlfile
from dpsim.core.record import Refused, dotted
from dpsim.core.refusals import brief, changes_by_key, texts

MAX_POINTS = 10_000
#: the keys that say which plug-in a section is
_TAGS = ("kind", "backend", "name")
#: setting one says how large the cluster is, so it replaces the other
INSTEAD = {"cluster.nodes": "cluster.ranks", "cluster.ranks": "cluster.nodes"}
#: beside a global batch the number of micro-batches follows from their size
_SIZE, _NUMBER = "batch.per_device", "batch.accumulation"
#: their numbers are versions, though YAML reads a number: 2.10 is not 2.1
_VERSIONS = ("strategy.torch", "strategy.horovod", "collective.version")
#: values beside each other, or a range
_SEVERAL = re.compile(r"[^\[\]{}\"',]+(,[^\[\]{}\"',]+)+|[\d.]+:[\d.]+:x?[\d.]+( ?[A-Za-z]\S*)?")
_PATH = re.compile(r"[^.\[\]]+(?:\.[^.\[\]]+|\[[0-9]+\])*")


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


@lru_cache(maxsize=4096)
def parts_of(path: str) -> tuple[str | int, ...]:
    """What `path` leads through, however it is spelt: layers[0].name is layers.0.name."""
    parts = re.findall(r"[^.\[\]]+", path)
    if not _PATH.fullmatch(path) or len(parts) > 32:
        raise Refused(f"{path[:60]!r} is no path to a key; write it as in model.layers[0].forward")
    return tuple(int(part) if re.fullmatch("[0-9]{1,9}", part) else part for part in parts)


def within(key: str, other: str) -> bool:
    """Whether `key` is `other`, or in it."""
    above = parts_of(other)
    return parts_of(key)[: len(above)] == above


def says(key: str, value: Any, other: str) -> bool:
    """Whether setting `key` to `value` says what `other` is to be."""
    return any(
        within(name, key) and _has(value, parts_of(name)[len(parts_of(key)) :])
        for name in (other, INSTEAD.get(other))
        if name
    )


def _has(value: Any, rest: tuple[str | int, ...]) -> bool:
    for part in rest:
        listed = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if not listed and not (isinstance(value, Mapping) and part in value):
            return False
        value = value[part]
    return True


def check_axes(axes: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    """Refuse, at its key, what sets anew what an axis before it sets: its label would not hold."""
    for first, second in itertools.combinations(axes, 2):
        names = {key for change in second for key in change}
        for change, name in itertools.product(first, names):
            for key, value in change.items():
                if said := _clash(key, value, name):
                    raise Refused(said, (name,))


def check_changes(given: Any) -> None:
    """Refuse `given` where it is no mapping from keys to values, or sets something twice: which
    value holds would hang on their order."""
    changes_by_key(given)
    set_anew = {key: value for key, value in given.items() if value is not None}
    check_axes([[{key: value}] for key, value in set_anew.items()])


def _clash(key: str, value: Any, later: str) -> str:
    if parts_of(key) == parts_of(later):
        return "is given twice; list all its values in one"
    if INSTEAD.get(key) == later:
        return f"{key} says already how large the cluster is"
    if within(key, later):
        return f"replaces what {key} sets; give {later} first"
    return f"{key} sets it already" if says(key, value, later) else ""


def sweep_changes(data: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """What every point of the sweep sets (nothing, once, if there is no sweep)."""
    sweep = data.get("sweep")
    if sweep is None:
        return ({},)
    if not sweep:
        raise Refused("has no points; leave it out, or give values", ("sweep",))
    if not isinstance(sweep, Mapping):
        _limit(len(sweep))
        for number, point in enumerate(sweep):
            _check_sweep({key: [value] for key, value in point.items()}, ("sweep", number))
        return tuple(dict(change) for change in sweep)
    for key, values in sweep.items():
        if not isinstance(values, list | tuple):
            said = f"{brief(values)} where a list of values is needed"
            raise Refused(said, ("sweep", key))
        if not values:
            raise Refused("an empty list has no points", ("sweep", key))
    _limit(math.prod(len(values) for values in sweep.values()))
    _check_sweep(sweep, ("sweep",))
    grid = itertools.product(*sweep.values())
    return tuple(dict(zip(sweep.keys(), values, strict=True)) for values in grid)


def _check_sweep(sweep: Mapping[str, Sequence[Any]], place: tuple[str | int, ...]) -> None:
    for key in sweep:
        try:
            parts_of(key)
        except Refused as error:
            raise Refused(error.message, (*place, key)) from None
    try:
        check_axes([[{key: value} for value in values] for key, values in sweep.items()])
    except Refused as error:
        raise Refused(error.message, (*place, *error.path)) from None


def _limit(points: int) -> None:
    if points > MAX_POINTS:
        raise Refused(
            f"{points:,} points; at most {MAX_POINTS:,} are played in one run", ("sweep",)
        )


def with_change(
    data: dict[str, Any], change: Mapping[str, Any], place: tuple[str | int, ...]
) -> dict[str, Any]:
    """A copy of `data` with ``{path: value, …}`` set; errors are reported at `place`."""
    return {**copy.deepcopy(data), **changed_sections(data, change, place)}


def changed_sections(
    data: Mapping[str, Any], change: Mapping[str, Any], place: tuple[str | int, ...]
) -> dict[str, Any]:
    """Those of the sections of `data` that ``{path: value, …}`` touches, copied and with it set;
    errors are reported at `place`."""
    result: dict[Any, Any] = {}
    for key, value in change.items():
        try:
            if within(key, "sweep"):
                raise Refused("a sweep cannot change the sweep")
            parts = parts_of(key)
            if parts[0] in data and parts[0] not in result:
                result[parts[0]] = copy.deepcopy(data[str(parts[0])])
            _put(result, parts, key, value, change)
        except Refused as error:
            raise Refused(error.message, (*place, key)) from None
    return result


def origins_of(shown: str, lines: Mapping[Any, int], changed: Mapping[str, str]) -> dict[str, str]:
    """The file and line (or the --set text) that every key comes from."""
    found = {dotted(path): f"{shown}:{line}" for path, line in lines.items() if path}
    return found | {path: f"--set {text}" for path, text in changed.items()}


def called(name: str, sets: Mapping[str, str]) -> str:
    """`name`, which was given to a file, and the first of `sets` that have changed that since."""
    said = [text for key, text in sets.items() if key != "title"]
    texts = ", ".join(said[:3]) + (f" and {len(said) - 3} more" if len(said) > 3 else "")
    return f"{name}, with {texts}" if said else name


def changing(
    before: Mapping[str, Any], after: Mapping[str, Any], sets: Mapping[str, str]
) -> dict[str, str]:
    """Those of `sets`, texts by path, that give a key another value `after` than `before`."""
    return {
        path: text
        for path, text in sets.items()
        if not _has(before, parts_of(path)) or _at(before, path) != _at(after, path)
    }


def _at(data: Any, path: str) -> Any:
    """What `data` has at `path`; None where it has nothing there any more."""
    if not _has(data, parts_of(path)):
        return None
    return reduce(lambda here, part: here[part], parts_of(path), data)


def apply_sets(data: dict[str, Any], sets: Sequence[str]) -> dict[str, str]:
    """Apply ``a.b=v`` texts to `data` in place; returns path -> text.

    A key that the sweep varies is taken out of the sweep: what is asked for last, wins.
    """
    texts("sets", sets)
    changed = {}
    beside = {text.partition("=")[0].strip() for text in sets}
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise Refused(f"--set {text}: write it as key.path=value")
        parsed = value_of(key.strip(), value, f"--set {text}")
        try:
            parts = parts_of(key.strip())
            _put(data, parts, key.strip(), parsed, beside)
            asked_last(data, dotted(parts), parsed)
        except Refused as error:
            raise Refused(f"--set {text}: {error}") from None
        changed[dotted(parts)] = text
    return changed


def several(text: str) -> str:
    """What to do about the refused `text` of a --set that lists values, or gives a range."""
    _, _, value = text.partition("=")
    if not _SEVERAL.fullmatch(value.strip()):
        return ""
    return f"; --set gives one value, `dpsim sweep --grid {text}` plays each of several"


def value_of(key: str, text: str, shown: str) -> Any:
    """The value that `text`, as YAML, gives to `key`; errors call it `shown`."""
    value, _ = yamlfile.loads(text, shown)
    if key in _VERSIONS and isinstance(value, int | float):
        return text.strip()
    return value


def asked_last(data: dict[str, Any], key: str, value: Any) -> None:
    """Let `key`, which `data` has as `value`, hold in all points of its sweep.

    An axis of the sweep over what is set goes.  In the values of an axis over what the key is in,
    it is set as well; those that become alike are one.  Refused where the points are a list, and
    where a job has its own.
    """
    sweep: Any = data.get("sweep")
    parts = parts_of(key)
    jobs = data.get("jobs")
    for number, job in enumerate(jobs if isinstance(jobs, list) else ()):
        if isinstance(job, Mapping) and parts[0] in job:
            raise Refused(
                f"jobs[{number}] has its own {parts[0]}; set it there: jobs[{number}].{key}"
            )
    in_job = parts[0] == "jobs" and len(parts) > 2
    if in_job:
        key = dotted(parts[2:])
    points = sweep if isinstance(sweep, list) else [sweep]
    own = [o for p in points if isinstance(p, Mapping) for o in p if isinstance(o, str)]
    gone = {o for o in own if says(key, value, o)}
    touched = gone | {o for o in own if within(key, o)}
    if key == _SIZE and _NUMBER in own and (data.get("batch") or {}).get("global"):
        raise Refused(f"the sweep sets {_NUMBER}; take it out with --set sweep=null")
    if not touched:
        return
    if in_job or isinstance(sweep, list):
        raise Refused("the points of the sweep set this key; take them out with --set sweep=null")
    for name in touched:
        values = sweep.pop(name) if name in gone else sweep[name]
        if name not in gone and isinstance(values, list):
            sweep[name] = _with_inside(values, name, key, value)
    if not sweep:
        del data["sweep"]


def _with_inside(values: list[Any], name: str, key: str, value: Any) -> list[Any]:
    """The values of the axis `name` with `key`, which is in each, set to `value`."""
    inside = (name, *parts_of(key)[len(parts_of(name)) :])
    found = {}
    for one in values:
        holder = {name: copy.deepcopy(one)}
        _put(holder, inside, key, value)
        found[repr(holder)] = holder[name]
    return list(found.values())


def _put(
    data: dict[str, Any],
    parts: tuple[str | int, ...],
    path: str,
    value: Any,
    beside: Collection[str] = (),
) -> None:
    """Set what `parts` lead to in nested plain data, as one of the keys that are set `beside` each
    other; errors call it `path`."""
    here: Any = data
    for part, following in itertools.pairwise(parts):
        here = _step(here, part, path, {} if isinstance(following, str) else [])
    last = parts[-1]
    item = isinstance(here, list) and isinstance(last, int) and last < len(here)
    if not item and not isinstance(here, dict):
        raise Refused(f"{path!r} leads into something that has no such key")
    here[last] = copy.deepcopy(value)  # a later key may set what is in it
    if value is None or not isinstance(here, dict):
        return
    other = INSTEAD.get(path)
    if other is not None:
        here.pop(other.rpartition(".")[2], None)
    if path == _SIZE and _NUMBER not in beside and here.get("global") is not None:
        here.pop(_NUMBER.rpartition(".")[2], None)


def _step(here: Any, part: str | int, path: str, fresh: Any) -> Any:
    if isinstance(here, list) and isinstance(part, int) and part < len(here):
        return here[part]
    if isinstance(here, dict):
        if here.get(part) is None:
            here[part] = fresh
        return here[part]
    raise Refused(f"{path!r} leads into something that has no such key")
