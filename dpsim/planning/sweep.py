"""Sweeps: the predictions of a scenario over a grid of changes, stored point by point.

A sweep's result depends on what is asked alone: each point is predicted as if there were no other,
and what is stored is put into the grid's order at the end.  So it does not matter where points were
played, in which order, by how many processes, or how often the sweep was interrupted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from dpsim._version import __version__
from dpsim.cases.case import Case
from dpsim.core import yamlfile
from dpsim.core.errors import SimulationError
from dpsim.core.overrides import with_change
from dpsim.core.record import Refused
from dpsim.describe.scenario import Loaded, load, to_data
from dpsim.planning.grid import Axis, Grid, check, grid_of
from dpsim.planning.log import FORMAT, NAME, Log, Record, read_log, writing
from dpsim.planning.workers import Lost, Player, here, in_processes
from dpsim.predict.document import from_json, to_json
from dpsim.predict.level import Level, level
from dpsim.predict.numbers import failed
from dpsim.predict.point import Change, Failed, Point
from dpsim.predict.prediction import predict, relate

SCHEMA_VERSION = 1
#: keys of the scenario that are no part of a point
_NO_POINT = ("sweep", "measured")
#: what a record says beside its point
_SAID = ("scaling", "held_constant", "warnings")


@dataclass(frozen=True)
class SweptKey:
    """An axis of the grid: what is swept, and the values of its steps."""

    key: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Sweep:
    """Everything that determines the result of a sweep, for other processes too.

    data   the scenario as plain data, without its sweep; `sets` are the --set texts in it
    base   the folder of its files, absolute
    grid   what the points change
    found  the level of compute, calibrated once on the scenario as it stands
    first  what the first point of the scenario's own sweep sets, on which `found` may rest
    """

    name: str
    data: dict[str, Any]
    base: Path
    sets: dict[str, str]
    grid: Grid
    found: Level | None
    scenario: Mapping[str, Any]
    first: Change

    @property
    def keys(self) -> tuple[SweptKey, ...]:
        return tuple(SweptKey(axis.name, axis.values) for axis in self.grid.axes)

    @cached_property
    def header(self) -> Record:
        """What a log of this sweep says first: enough to make the document from the log alone."""
        axes = to_json(self.keys)
        parts = {
            "dpsim": __version__,
            "the scenario": _digest([self.name, self.data, self.first]),
            "the grid": _digest(axes),
            "a file that the scenario names": _digest(sorted(self._files().items())),
        }
        return {
            "format": FORMAT,
            "id": _digest(parts),
            "parts": parts,
            "name": self.name,
            "scenario": self.scenario,
            "grid": axes,
            "points": len(self.grid),
            "calibration": self.found and asdict(self.found),
        }

    def _files(self) -> dict[str, str]:
        """Digests of the files below `base` that texts of the scenario or the grid name, and of
        those that texts in these files name."""
        found: dict[str, str] = {}
        waiting = [*_texts(self.data), *(text for change in self._changes() for text in change)]
        while waiting:
            name = waiting.pop()
            if name in found or len(name) > 200 or "\0" in name or _leads_out(name):
                continue
            path = self.base / name
            if not path.is_file():
                continue
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
            if path.suffix in (".yaml", ".yml", ".json"):
                try:
                    waiting.extend(_texts(yamlfile.load(path)[0]))
                except Refused:
                    continue  # whoever reads it will say what is wrong with it
        return found

    def _changes(self) -> Iterator[Iterator[str]]:
        return (_texts(change) for axis in self.grid.axes for change in axis.changes)

    def point(self, change: Change) -> Loaded:
        """The scenario with `change`, as `dpsim run` would read it."""
        data = with_change(self.data, change, ())
        return replace(load(data, self.base, self.name), sets=self.sets)


def _leads_out(name: str) -> bool:
    path = Path(name)
    return path.is_absolute() or ".." in path.parts


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


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def sweep_of(loaded: Loaded, texts: Sequence[str]) -> Sweep:
    """The sweep of `loaded` over the axes in `texts` (and over those of its own sweep).

    Refuses, before anything is played, a key or a value with which no point can be read.
    """
    grid = grid_of(loaded.data, texts)
    data = {key: value for key, value in loaded.data.items() if key not in _NO_POINT}
    scenario = to_data(replace(loaded.scenario, sweep=None, measured=None))
    calibrate = loaded.scenario.calibrate
    first = loaded.changes[0] if calibrate else {}
    base = loaded.base.resolve()
    asked = Sweep(loaded.name, data, base, loaded.sets, grid, None, scenario, first)
    check(grid, _accept(asked))
    try:
        found = level(Case(loaded.points[0], loaded.base), calibrate) if calibrate else None
    except Refused as error:
        raise loaded.located(error) from None
    return replace(asked, found=found)


def _accept(asked: Sweep) -> Callable[[Change], object]:
    """Reads a point, its machine and its model; Refused if one of them is not right."""
    known: dict[str, Refused | None] = {}

    def accept(change: Change) -> None:
        scenario = asked.point(change).points[0]
        key = repr((scenario.cluster.machine, scenario.cluster.device, scenario.model))
        if key not in known:
            known[key] = _unreadable(Case(scenario, asked.base))
        if (error := known[key]) is not None:
            raise error

    return accept


def _unreadable(case: Case) -> Refused | None:
    """What is wrong with the machine or the model of `case`."""
    try:
        _ = case.machine, case.model
    except Refused as error:
        return error
    return None


# -- one point ------------------------------------------------------------------------------------


def play_point(asked: Sweep, number: int) -> Record:
    """The record of point `number`: its prediction, or the `error` that stands in its place.

    What is wrong with the machine rather than with the point (OSError, MemoryError) is raised.
    """
    change = asked.grid.change(number)
    point: Point | Failed
    said: Record = {}
    loaded = None
    try:
        loaded = asked.point(change)
        answer = predict(loaded, asked.found).answer
        point = replace(answer.points[0], set=change)
        json.dumps(to_json(point), allow_nan=False)  # a number that is none is an error, not a word
        said = {key: to_json(getattr(answer, key)) for key in _SAID}
    except (Refused, SimulationError, ValueError) as error:
        point = _failed(asked, loaded, str(error), change)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a mistake of dpsim's at one point is no reason to lose the others
        text = f"internal error, please report it: {type(error).__name__}: {error}"
        point = _failed(asked, loaded, text, change)
    record = {"of": asked.header["id"][:16], "n": number, "point": to_json(point), **said}
    plain: Record = json.loads(json.dumps(record))
    return plain  # as the log gives it back, to the type of every number


def _failed(asked: Sweep, loaded: Loaded | None, error: str, change: Change) -> Failed:
    return failed(Case(loaded.points[0], asked.base) if loaded else None, error, change)


# -- all points -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class GridAnswer:
    """The answer at every point of a grid; `scaling` and `held_constant` are None where they
    differ from point to point."""

    schema_version: int
    dpsim_version: str
    name: str
    scenario: Mapping[str, Any]
    scaling: str | None
    held_constant: str | None
    grid: tuple[SweptKey, ...]
    points: tuple[Point | Failed, ...]
    calibration: Level | None
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Swept:
    """A sweep as far as it has come: its log's header and records, points without an answer, and
    notes on the log."""

    header: Record
    records: tuple[Record, ...]
    lost: tuple[Lost, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def missing(self) -> list[int]:
        """Numbers of the points that have neither been played nor given up."""
        known = {record["n"] for record in self.records} | {lost.number for lost in self.lost}
        return [number for number in range(self.header["points"]) if number not in known]

    @cached_property
    def answer(self) -> GridAnswer:
        """The result, in the grid's order."""
        header = self.header
        records = sorted(self.records, key=lambda record: int(record["n"]))
        points = {record["n"]: from_json(Point | Failed, record["point"]) for record in records}
        for lost in self.lost:
            change = _grid(header).change(lost.number)
            points[lost.number] = failed(None, lost.reason, change)
        said = (text for record in records for text in record.get("warnings", ()))
        return GridAnswer(
            schema_version=SCHEMA_VERSION,
            dpsim_version=header["parts"]["dpsim"],
            name=header["name"],
            scenario=header["scenario"],
            scaling=_common(records, "scaling"),
            held_constant=_common(records, "held_constant"),
            grid=from_json(tuple[SweptKey, ...], header["grid"]),
            points=relate([points[number] for number in sorted(points)]),
            calibration=from_json(Level | None, header["calibration"]),
            warnings=tuple(dict.fromkeys(said)),
        )

    @property
    def document(self) -> dict[str, Any]:
        """The result as sweep.json holds it."""
        made: dict[str, Any] = to_json(self.answer)
        return made


def _common(records: Sequence[Record], key: str) -> str | None:
    """What all points with numbers say; None where they differ."""
    found = {record[key] for record in records if key in record}
    return found.pop() if len(found) == 1 else None


def _grid(header: Record) -> Grid:
    """The grid that a header describes."""

    def change(key: str, value: Any) -> dict[str, Any]:
        return value if key == "sweep" else {key: value}

    return Grid(
        tuple(
            Axis(axis["key"], tuple(change(axis["key"], value) for value in axis["values"]))
            for axis in header["grid"]
        )
    )


Told = Callable[[int, int, Sequence[Record]], None]


def player(jobs: int, ray: str | None = None) -> Player:
    """Plays in this process, in `jobs` processes, or on the Ray cluster at `ray`."""
    if ray is not None:
        from dpsim.planning.cluster import on_ray

        return partial(on_ray, task=play_point, address=ray, jobs=jobs)
    if jobs == 1:
        return partial(here, task=play_point)
    return partial(in_processes, task=play_point, jobs=jobs)


def sweep(
    asked: Sweep,
    folder: Path,
    play: Player,
    *,
    shard: tuple[int, int] = (1, 1),
    salvage: bool = False,
    tell: Told = lambda done, of, records: None,
) -> Swept:
    """Play the points of `asked` that the log in `folder` does not hold yet.

    play     plays points: see `player`
    shard    (i, n): only every n-th point, from the i-th on
    tell     called with (points stored, points of this shard, the records just stored)
    """
    first, step = shard
    with writing(folder, asked.header, salvage=salvage) as log:
        known = _checked(log.path, asked.header, log.records)
        mine = range(first - 1, len(asked.grid), step)
        todo = [number for number in mine if number not in known]
        done = len(mine) - len(todo)
        lost: list[Lost] = []
        tell(done, len(mine), log.records)
        with contextlib.closing(play(asked, todo)) as batches:
            for batch in batches if todo else ():
                records = [answer for answer in batch if not isinstance(answer, Lost)]
                lost += [answer for answer in batch if isinstance(answer, Lost)]
                if records:
                    log.append(records)
                done += len(batch)
                tell(done, len(mine), records)
        return _swept(log, lost)


def _swept(log: Log, lost: Sequence[Lost]) -> Swept:
    return Swept(log.header, tuple(log.records), tuple(lost), tuple(log.notes))


def _checked(path: Path, header: Record, records: Sequence[Record]) -> set[int]:
    """The numbers of `records`; Refused where one is of another sweep, or is there twice."""
    known: set[int] = set()
    for place, record in enumerate(records, 1):
        number = record.get("n")
        if record.get("of") != header["id"][:16] or not isinstance(number, int):
            raise Refused(f"{path}: record {place} belongs to another sweep; delete the folder")
        if number in known or not 0 <= number < header["points"]:
            raise Refused(f"{path}: record {place} repeats point {number}, or there is none")
        known.add(number)
    return known


def merge(folders: Sequence[Path], out: Path) -> Swept:
    """The whole of a sweep whose points are in the logs of several folders; written to `out` as a
    log too.  Refuses logs of different sweeps, two answers to one point, and missing points."""
    header: Record = {}
    records: dict[int, Record] = {}
    places: dict[int, Path] = {}
    for folder in folders:
        found, *rest = read_log(folder).records
        header = header or found
        if found["id"] != header["id"]:
            raise Refused(f"--merge: {folder} is of another sweep than {folders[0]}")
        _checked(folder / NAME, header, rest)
        for record in rest:
            number = record["n"]
            if records.setdefault(number, record) != record:
                raise Refused(
                    f"--merge: {folder} and {places[number]} have different answers for point "
                    f"{number}: they come from different machines or libraries; play it again"
                )
            places.setdefault(number, folder)
    _complete(header, records)
    with writing(out, header) as log:
        known = _checked(log.path, header, log.records)
        new = [record for number, record in sorted(records.items()) if number not in known]
        if new:
            log.append(new)
        return _swept(log, ())


def _complete(header: Record, records: dict[int, Record]) -> None:
    missing = [number for number in range(header["points"]) if number not in records]
    if missing:
        first = "; ".join(
            ", ".join(f"{key} = {value}" for key, value in _grid(header).change(number).items())
            for number in missing[:3]
        )
        raise Refused(
            f"--merge: {len(missing):,} of {header['points']:,} points are missing, the first at "
            f"{first}; play their shards too, or again"
        )


__all__ = ["Sweep", "Swept", "merge", "play_point", "player", "sweep", "sweep_of"]
