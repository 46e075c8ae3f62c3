"""Playing a sweep: its points into the log of a folder, and the answer that a log makes.

Points are stored one by one; what is missing is played, and logs of several folders are merged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from dpsim.core.presented import Presented
from dpsim.core.record import Refused
from dpsim.core.refusals import brief
from dpsim.planning.grid import Axis, Grid, SweptKey
from dpsim.planning.log import NAME, Log, Record, read_log, writing
from dpsim.planning.sweep import Sweep, play_points
from dpsim.planning.together import together
from dpsim.planning.workers import Lost, Outcome, Playing, here, in_processes
from dpsim.predict.carried import carried, one_for_all
from dpsim.predict.document import from_json, to_json
from dpsim.predict.level import Level
from dpsim.predict.numbers import failed
from dpsim.predict.point import Chosen, Failed, Point
from dpsim.predict.relative import relate

SCHEMA_VERSION = 1


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
    points: tuple[Point | Failed | Chosen, ...]
    calibration: Level | None
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Swept(Presented):
    """A sweep as far as it has come: its log's header and records, points without an answer, and
    notes on the log."""

    header: Record
    records: tuple[Record, ...]
    lost: tuple[Lost, ...] = ()
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        size, played = self.header["points"], len(self.records)
        return f"Swept({brief(self.header['name'])}: {played:,} of {size:,} points)"

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
        kinds = Point | Failed | Chosen
        points = {record["n"]: from_json(kinds, record["point"]) for record in records}
        for lost in self.lost:
            change = _grid(header).change(lost.number)
            points[lost.number] = failed(None, lost.reason, change)
        given = ["calibrate"] if header["calibration"] else []
        swept = {axis["key"]: list(map(str, axis["values"])) for axis in header["grid"]}
        scenario = header["scenario"]
        over = [*carried(given, swept, scenario), *one_for_all(scenario.get("price"), swept)]
        said = [text for record in records for text in record.get("warnings", ())]
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
            warnings=tuple(dict.fromkeys((*over, *said))),
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


Kept = Callable[[int, int, Sequence[Record]], None]


def player(jobs: int, ray: str | None = None) -> Playing:
    """Plays in this process, in `jobs` processes, or on the Ray cluster at `ray`."""
    if ray is not None:
        from dpsim.planning.cluster import on_ray

        return partial(on_ray, task=play_points, address=ray, jobs=jobs)
    if jobs == 1:
        return partial(here, task=play_points)
    return partial(in_processes, task=play_points, jobs=jobs)


def sweep(
    asked: Sweep,
    folder: Path,
    play: Playing,
    *,
    shard: tuple[int, int] = (1, 1),
    salvage: bool = False,
    tell: Kept = lambda done, of, records: None,
) -> Swept:
    """Play the points of `asked` that the log in `folder` does not hold yet.

    play     plays points: see `player`
    shard    (i, n): only every n-th point, from the i-th on
    tell     called with (points stored, points of this shard, the records just stored), one call
             at a time, also from another thread
    """
    first, step = shard
    with writing(folder, asked.header, salvage=salvage) as log:
        known = _checked(log.path, asked.header, log.records)
        mine = range(first - 1, len(asked.grid), step)
        todo = [number for number in mine if number not in known]
        done = len(mine) - len(todo)
        lost: list[Lost] = []

        def keep(batch: Sequence[Outcome]) -> None:
            nonlocal done
            records = [answer for answer in batch if not isinstance(answer, Lost)]
            lost.extend(answer for answer in batch if isinstance(answer, Lost))
            if records:
                log.append(records)
            done += len(batch)
            tell(done, len(mine), records)

        tell(done, len(mine), log.records)
        with contextlib.closing(play(asked, todo)) as batches, together(keep) as take:
            for batch in batches if todo else ():
                take(batch)
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
