"""Grids of changes to a scenario: axes such as ``cluster.nodes=1,2,4``, and their product.

>>> axis = parse_axis("cluster.nodes=1:16:x2")
>>> axis.values
(1, 2, 4, 8, 16)
>>> grid = Grid((axis, parse_axis("cluster.inter_node_bandwidth=25 Gbit/s,100 Gbit/s")))
>>> str(grid)
'10 points: cluster.nodes (5) x cluster.inter_node_bandwidth (2)'
>>> grid.change(3)
{'cluster.nodes': 2, 'cluster.inter_node_bandwidth': '100 Gbit/s'}
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

from dpsim.core import yamlfile
from dpsim.core.overrides import check_axes, of_one_kind, parts_of, says, value_of, within
from dpsim.core.record import Refused, dotted
from dpsim.core.refusals import brief, texts
from dpsim.describe.written import plain_data
from dpsim.predict.point import Change

#: points of one grid; all are in memory when the result is written
MAX_GRID = 100_000
#: how axes are asked for: texts KEY=VALUES, or the values of each key
Axes = Sequence[str] | Mapping[str, str | Sequence[Any]]
#: keys that all points share, and why
SHARED = {
    "sweep": "the sweep itself cannot be swept",
    "calibrate": "a sweep is calibrated once, on the scenario as it stands; use --set",
    "measured": "a sweep is not laid over measured points",
    "title": "the title is the same for all points",
}
_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_RANGE = re.compile(rf"({_NUMBER}):({_NUMBER}):(x?)({_NUMBER})(?:\s*([^\W\d]\S*|%))?")
_OPEN, _CLOSE = "[{", "]}"


@dataclass(frozen=True)
class SweptKey:
    """An axis of the grid: what is swept, and the values of its steps."""

    key: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Axis:
    """One axis of a grid: its `name`, and what each of its steps sets."""

    name: str
    changes: tuple[Change, ...]

    @property
    def values(self) -> tuple[Any, ...]:
        """The value of each step; where a step sets several keys, the whole change."""
        return tuple(change.get(self.name, change) for change in self.changes)

    @property
    def listed(self) -> SweptKey:
        """The axis as JSON has it."""
        return SweptKey(self.name, self.values)


@dataclass(frozen=True)
class Grid:
    """The product of axes; point number n varies the last axis fastest."""

    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        try:
            check_axes([axis.changes for axis in self.axes])
        except Refused as error:
            raise Refused(f"--grid {error}") from None
        if len(self) > MAX_GRID:
            raise Refused(f"--grid: {self}; at most {MAX_GRID:,} are played in one sweep")

    def __len__(self) -> int:
        return math.prod(len(axis.changes) for axis in self.axes)

    def __str__(self) -> str:
        """The number of points and where it comes from."""
        sizes = " x ".join(f"{axis.name} ({len(axis.changes):,})" for axis in self.axes)
        points = len(self)
        return f"{points:,} point{'s' * (points != 1)}: {sizes}"

    def steps(self, number: int) -> tuple[int, ...]:
        """The step on every axis of point `number`."""
        found = []
        for axis in reversed(self.axes):
            number, step = divmod(number, len(axis.changes))
            found.append(step)
        return tuple(reversed(found))

    def change(self, number: int) -> Change:
        """What point `number` sets."""
        change: dict[str, Any] = {}
        for axis, step in zip(self.axes, self.steps(number), strict=True):
            change |= axis.changes[step]
        return change

    def __iter__(self) -> Iterator[Change]:
        return (self.change(number) for number in range(len(self)))


@contextmanager
def as_vary() -> Iterator[None]:
    """What is refused inside speaks of --vary, where grids speak of --grid."""
    try:
        yield
    except Refused as error:
        raise Refused(error.message.replace("--grid", "--vary"), error.path) from None


# -- from text ------------------------------------------------------------------------------------


def parse_axis(text: str) -> Axis:
    """The axis of ``key=v1,v2,…``; a value is YAML, or a range.

    ``1:10:1`` goes up by 1, ``1:1024:x2`` by a factor of 2, both up to and with the end; a unit
    may follow: ``25:400:x2 Gbit/s``.
    """
    key, equals, values = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise Refused(f"--grid {text}: write it as key.path=value,value,…")
    try:
        root = parts_of(key)[0]
    except Refused as error:
        raise Refused(f"--grid {text}: {error}") from None
    if root in SHARED:
        raise Refused(f"--grid {text}: {SHARED[root]}")
    found: list[Any] = []
    for part in _split(values):
        found.extend(_values(key, part, text))
        if len(found) > MAX_GRID:
            raise Refused(f"--grid {text}: more than {MAX_GRID:,} values")
    twice = [value for value, times in Counter(map(repr, found)).items() if times > 1]
    if twice:
        raise Refused(f"--grid {text}: {twice[0]} is given twice")
    return Axis(key, tuple({key: value} for value in found))


def _split(text: str) -> list[str]:
    """`text` at its commas, apart from those inside quotes and brackets."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"" and not parts[-1].strip():
            quote = letter
        elif letter in _OPEN + _CLOSE:
            depth += 1 if letter in _OPEN else -1
        if letter == "," and not quote and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _values(key: str, part: str, text: str) -> Iterator[Any]:
    """The values that one part of an axis stands for."""
    found = _RANGE.fullmatch(part.strip())
    if found is not None:
        first, last, factor, step, unit = found.groups()
        yield from _ranged((first, last, step), bool(factor), unit, text)
    elif re.fullmatch(rf"{_NUMBER}:{_NUMBER}", part.strip()):
        low, high = part.strip().split(":")
        raise Refused(
            f"--grid {text}: {part.strip()} has no step; write {low}:{high}:1, or "
            f"{low}:{high}:x2 to double"
        )
    elif re.fullmatch(rf"{_NUMBER}:{_NUMBER}:.*", part.strip()):
        raise Refused(
            f"--grid {text}: {part.strip()} is no range; write 1:10:3 (steps), 1:1024:x2 "
            "(doubling) or 25:400:x2 Gbit/s (with a unit)"
        )
    elif not part.strip():
        raise Refused(f"--grid {text}: an empty value; write null to set nothing")
    else:
        yield value_of(key, part, f"--grid {text}")


def _ranged(numbers: Sequence[str], factor: bool, unit: str | None, text: str) -> Iterator[Any]:
    """The values of a range, in decimal arithmetic: 0.1:0.3:0.1 is 0.1, 0.2, 0.3."""
    first, last, step = (Decimal(number) for number in numbers)
    if first > last:
        raise Refused(f"--grid {text}: a range goes up; {first} is above {last}")
    if step <= (1 if factor else 0) or (factor and first <= 0):
        needed = "a factor above 1 and a start above 0" if factor else "a step above 0"
        raise Refused(f"--grid {text}: a range needs {needed}")
    whole = not any("." in number for number in numbers)
    value = first
    for _ in range(MAX_GRID + 1):
        if value > last:
            return
        if unit is not None:
            yield f"{value.normalize():f} {unit}"
        else:
            yield int(value) if whole else float(value)
        value = value * step if factor else value + step


def axes_of(asked: Axes) -> tuple[Axis, ...]:
    """The axes that are asked for: of texts, or of keys with their values (or with the text of
    them).  Refused where one is not right."""
    if not isinstance(asked, Mapping):
        texts("--grid", asked)
        return tuple(parse_axis(text) for text in asked)
    return tuple(_axis(key, values) for key, values in asked.items())


def _axis(key: str, values: str | Sequence[Any]) -> Axis:
    """The axis of `key` over `values`, which texts need not hold: sections, say."""
    if isinstance(values, str):
        return parse_axis(f"{key}={values}")
    if not isinstance(values, Sequence) and not hasattr(type(values), "__array__"):
        raise Refused(f"--grid {key}: {brief(values)} where a list of values is needed")
    name = parse_axis(f"{key}=null").name  # refuses what is no key, or none that can be swept
    plain = plain_data(list(values))
    if not plain:
        raise Refused(f"--grid {key}: an empty list has no points")
    return Axis(name, tuple({name: value} for value in plain))


def grid_of(data: Mapping[str, Any], asked_for: Axes) -> Grid:
    """The grid of a scenario's own sweep (in `data`) and of the axes asked for, in this order.

    An axis takes the place of the sweep's over the same key, or over what is in its values: what is
    asked for last, wins.
    """
    asked = axes_of(asked_for)
    keys = dict.fromkeys(axis.name for axis in asked)
    own = []
    for axis in _own(data.get("sweep")):
        if axis.name != "sweep" and _replaced(axis.name, asked):
            continue
        there = [pair for change in axis.changes for pair in change.items()]
        for key in keys:
            if any(says(name, value, key) or within(name, key) for name, value in there):
                raise Refused(
                    f"--grid {key}: the points of the scenario's sweep set this key; take them "
                    "out with --set sweep=null"
                )
        own.append(axis)
    axes = (*own, *asked)
    if not axes:
        raise Refused("nothing is swept; give --grid key=value,value,… or a scenario with a sweep")
    return Grid(axes)


def _replaced(name: str, asked: Sequence[Axis]) -> bool:
    """Whether all values of one of the axes `asked` say what the key `name` is."""
    return any(
        all(says(key, value, name) for change in axis.changes for key, value in change.items())
        for axis in asked
    )


def _own(sweep: Any) -> Iterator[Axis]:
    """The axes of a scenario's `sweep`: a grid, or a list of points."""
    if isinstance(sweep, Mapping):
        for key, values in sweep.items():
            yield Axis(key, tuple({key: value} for value in values))
    elif sweep:
        keys = {key for change in sweep for key in change}
        single = len(keys) == 1 and all(sweep)
        yield Axis(keys.pop() if single else "sweep", tuple(dict(change) for change in sweep))


# -- before anything is played --------------------------------------------------------------------


def check(grid: Grid, accept: Callable[[Change], object]) -> None:
    """Refuse a value with which no point of `grid` is accepted; `accept` raises Refused.

    A value that goes with some values of the other axes only is no error: its other points say
    what is wrong with them.
    """
    known: dict[int, Refused | None] = {}
    for place, axis in enumerate(grid.axes):
        for step, value in enumerate(axis.values):
            first = None
            for number in _with(grid, place, step):
                if number not in known:
                    known[number] = refusal(partial(accept, grid.change(number)))
                if known[number] is None:
                    break
                first = first or known[number]
            else:
                at_fault = _at_fault(grid, first)
                shown = axis.name + f"={_shown(value)}" if at_fault in ("", axis.name) else at_fault
                said = _detail(first, at_fault or axis.name, {a.name: a for a in grid.axes})
                raise Refused(f"--grid {shown}: {said}")


def _at_fault(grid: Grid, error: Refused | None) -> str:
    """The axis whose own key is what `error` is about; "" if it is about something else."""
    at = dotted(error.path) if error is not None else ""
    return next((axis.name for axis in grid.axes if axis.name == at), "")


def _detail(error: Refused | None, name: str, kinds: Mapping[str, Any]) -> str:
    """What is wrong, and where unless it is at the axis itself."""
    assert error is not None
    if error.unknown_key:
        error = Refused(error.message + of_one_kind(error.path, kinds), error.path)
    return error.message if dotted(error.path) == name else str(error)


def _shown(value: Any) -> str:
    text = yamlfile.dump_yaml(value).strip().replace("\n", ", ")
    return text if len(text) <= 60 else text[:57] + "…"


def _with(grid: Grid, place: int, step: int) -> Iterator[int]:
    """The numbers of the points at `step` of axis number `place`, in order."""
    sizes = [len(axis.changes) for axis in grid.axes]
    inner = math.prod(sizes[place + 1 :])
    for outer in range(math.prod(sizes[:place])):
        start = (outer * sizes[place] + step) * inner
        yield from range(start, start + inner)


def refusal(make: Callable[[], object]) -> Refused | None:
    """Why `make` refuses; None where it does not."""
    try:
        make()
    except Refused as error:
        return error
    return None
