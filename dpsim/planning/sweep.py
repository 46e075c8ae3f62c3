"""Sweeps: the predictions of a scenario over a grid of changes, stored point by point.

A sweep's result depends on what is asked alone: each point is predicted as if there were no other,
and what is stored is put into the grid's order at the end.  So it does not matter where points were
played, in which order, by how many processes, or how often the sweep was interrupted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from dpsim._version import __version__
from dpsim.cases.case import Case
from dpsim.core import jsonfile, yamlfile
from dpsim.core.errors import EnginesDisagree, SimulationError
from dpsim.core.overrides import called
from dpsim.core.record import Refused
from dpsim.describe.scenario import Loaded, to_data
from dpsim.planning.alike import Crowd
from dpsim.planning.grid import Axes, Grid, SweptKey, check, grid_of, refusal
from dpsim.planning.log import FORMAT, Record
from dpsim.planning.unswept import Unswept
from dpsim.predict.document import to_json
from dpsim.predict.level import level_of
from dpsim.predict.numbers import check_column
from dpsim.predict.point import Change, Chosen, Failed, Point

#: what a record says beside its point
_SAID = ("scaling", "held_constant", "warnings")


@dataclass(frozen=True)
class Sweep:
    """Everything that determines the result of a sweep, for other processes too.

    unswept  the scenario that the points change
    grid     what they change
    first    what the first point of the scenario's own sweep sets, on which its level may rest
    columns  what is asked of each point; nothing: all there is
    """

    unswept: Unswept
    grid: Grid
    scenario: Mapping[str, Any]
    first: Change
    columns: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[SweptKey, ...]:
        return tuple(axis.listed for axis in self.grid.axes)

    def __getstate__(self) -> dict[str, Any]:
        """What it is made of, and its header, for other processes: files may be others by then."""
        return {key: value for key, value in self.__dict__.items() if key != "crowd"}

    @cached_property
    def crowd(self) -> Crowd:
        """Who plays its points at once."""
        return Crowd(self)

    @cached_property
    def header(self) -> Record:
        """What a log of this sweep says first: enough to make the document from the log alone."""
        axes = to_json(self.keys)
        parts = {
            "dpsim": __version__,
            "the scenario": jsonfile.digest([self.unswept.name, self.unswept.data, self.first]),
            "the grid": jsonfile.digest(axes),
            "a file that the scenario names": jsonfile.digest(sorted(self._files().items())),
        }
        if self.columns:
            parts["the columns"] = jsonfile.digest(self.columns)
        return {
            "format": FORMAT,
            "id": jsonfile.digest(parts),
            "parts": parts,
            "name": called(self.unswept.name, self.unswept.sets),
            "scenario": self.scenario,
            "grid": axes,
            "points": len(self.grid),
            "calibration": to_json(self.unswept.found),
        }

    def _files(self) -> dict[str, str]:
        """Digests, by name relative to the scenario's folder, of every file that a text of the
        scenario or the grid names, or a text in one of these: beside the file, as a machine names
        its device, or in the scenario's folder."""
        base = self.unswept.base
        changes = [change for axis in self.grid.axes for change in axis.changes]
        waiting = [base / text for text in _texts([self.unswept.data, changes])]
        found: dict[str, str] = {}
        while waiting:
            path = waiting.pop()
            name = os.path.relpath(path, base)
            if name in found or not _is_file(path):
                continue
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
            with contextlib.suppress(Refused):  # whoever reads it will say what is wrong with it
                if path.suffix != ".csv":
                    texts = list(_texts(yamlfile.load(path)[0]))
                    waiting += [folder / text for folder in (path.parent, base) for text in texts]
        return found


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long for a name, or with a zero byte
        return False


def _texts(value: Any) -> Iterator[str]:
    """All texts inside plain data, keys apart."""
    if isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str) and value:
        yield value


def sweep_of(loaded: Loaded, axes: Axes, columns: Sequence[str] = ()) -> Sweep:
    """The sweep of `loaded` over `axes` (and over those of its own sweep).

    `columns` are keys of a point's JSON, where not all of it is asked for.  Refuses, before
    anything is played, a column, a key or a value with which no point can be read.
    """
    for column in columns:
        check_column(column)
    grid, unswept = grid_of(loaded.data, axes), Unswept.of(loaded)
    check(grid, _accept(unswept))
    scenario = to_data(replace(loaded.scenario, sweep=None, measured=None))
    first = loaded.changes[0] if loaded.scenario.calibrate else {}
    found = replace(unswept, found=level_of(loaded))
    return Sweep(found, grid, scenario, first, tuple(dict.fromkeys(columns)))


def _accept(unswept: Unswept) -> Callable[[Change], object]:
    """Reads a point, its machine and its model; Refused if one of them is not right."""
    known: dict[str, Refused | None] = {}

    def accept(change: Change) -> None:
        scenario = unswept.changed(change).points[0]
        key = repr((scenario.cluster.machine, scenario.cluster.device, scenario.model))
        if key not in known:
            case = Case(scenario, unswept.base)
            known[key] = refusal(lambda: (case.machine, case.model))
        if (error := known[key]) is not None:
            raise error

    return accept


def play_point(asked: Sweep, number: int) -> Record:
    """The record of point `number`: its prediction, or the `error` that stands in its place.

    What is wrong with the machine (OSError, of which TooSmall is one, and MemoryError) or with the
    engines (EnginesDisagree) rather than with the point is raised.
    """
    change = asked.grid.change(number)
    point: Point | Failed | Chosen
    said: Record = {}
    loaded = None
    try:
        loaded = asked.unswept.changed(change)
        if asked.columns:
            return _record(asked, number, asked.unswept.chosen(loaded, asked.columns, change))
        found = asked.unswept.predicted(loaded)
        point = replace(found.points[0], set=change)
        said = {key: to_json(getattr(found, key)) for key in _SAID}
    except (OSError, MemoryError, EnginesDisagree):
        raise
    except (Refused, SimulationError, ValueError) as error:
        point = asked.unswept.failed(loaded, error, change)
    except Exception as error:  # a mistake of dpsim's at one point is no reason to lose the others
        text = f"internal error, please report it: {type(error).__name__}: {error}"
        point = asked.unswept.failed(loaded, text, change)
    return _record(asked, number, point, **said)


def play_points(asked: Sweep, numbers: Sequence[int]) -> Iterator[list[Record]]:
    """The records of the points with these `numbers`, in any order: those that are alike at once
    where only columns are asked for, and the others one by one, as `play_point` has it."""
    if asked.columns:
        yield from asked.crowd.play(numbers, partial(play_point, asked))
    else:
        for number in numbers:
            yield [play_point(asked, number)]


def _record(asked: Sweep, number: int, point: Point | Failed | Chosen, **said: Any) -> Record:
    """As the log gives it back, to the type of every number; ValueError for one that is none."""
    record = {"of": asked.header["id"][:16], "n": number, "point": to_json(point), **said}
    plain: Record = json.loads(json.dumps(record, allow_nan=False))
    return plain
