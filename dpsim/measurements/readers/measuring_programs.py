"""Reader of the records of validation/measure_ddp.py and measure_collectives.py.

The format is described in validation/records/README.md.  A sample of a step or a collective counts
with its slowest rank, because nobody goes on earlier.  Entries that cannot be right are left out,
each with a warning; a record whose frame is wrong is refused.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from dpsim.core.files import read_bytes
from dpsim.core.record import Refused
from dpsim.measurements.findings import (
    OPERATIONS,
    Curve,
    Findings,
    LayerSeconds,
    MeasuredBucket,
    Point,
    StepTime,
    unique,
)
from dpsim.measurements.readers import Reader, json_content, opens_json

VERSION = 1
#: largest record [B]; one of 1,024 ranks has about 20 MB
MAX_BYTES = 100_000_000
_SCHEMA = re.compile(rb'"schema"\s*:\s*"dpsim-measurement"')
_MAX_WARNINGS = 20

T = TypeVar("T")


class MeasuringPrograms(Reader):
    """A record of the measuring programs becomes curves, steps, layers and buckets."""

    accepts = "records of measure_ddp.py and measure_collectives.py (JSON)"

    def claims(self, path: Path, head: bytes) -> bool:
        return opens_json(head) and _SCHEMA.search(head) is not None

    def read(self, path: Path) -> Findings:
        read_bytes(path, MAX_BYTES)  # less than other readers take
        reading = _Reading(json_content(path))
        found = Findings(
            path.name,
            curves=tuple(reading.curves()),
            steps=tuple(reading.steps()),
            layers=tuple(reading.layers()),
            buckets=tuple(reading.buckets()),
            device=reading.device(),
            warnings=reading.said(),
            notes=unique(reading.notes),
        )
        if found.empty:
            raise Refused(
                f"has nothing to calibrate with: {'; '.join((*found.warnings, *found.notes))}"
            )
        return found


class _Reading:
    """One record on its way; collects warnings and notes."""

    def __init__(self, data: Any) -> None:
        content = _mapping(data, "the record")
        version = content.get("schema_version")
        if content.get("schema") != "dpsim-measurement":
            raise Refused("is not 'dpsim-measurement'", ("schema",))
        if isinstance(version, bool) or version != VERSION:
            raise Refused(f"{_brief(version)} is not known; dpsim reads {VERSION}",
                          ("schema_version",))  # fmt: skip
        world = _mapping(content.get("world"), "world")
        self.ranks = _count(world.get("ranks"), "world.ranks")
        self.recorded = _count(world.get("ranks_recorded"), "world.ranks_recorded")
        self.nodes = _count(world.get("nodes"), "world.nodes")
        self.fake = world.get("fake") is True
        if self.recorded != (1 if self.fake else self.ranks):
            raise Refused(f"{self.recorded} of {self.ranks} ranks; all are needed",
                          ("world", "ranks_recorded"))  # fmt: skip
        self.backend = str(world.get("backend"))
        self.warnings: list[str] = []
        self.notes = [f"ranks: {self.ranks}, nodes: {self.nodes}, backend: {self.backend[:20]}"]
        self.environment = _mapping(content.get("environment"), "environment")
        self.sections = self._sections(_mapping(content.get("sections"), "sections"))
        if world.get("share_gpu") is True:
            self.warnings.append("ranks shared a GPU; that slows compute and communication")
        if self.fake:
            self.notes.append("a fake world: its steps and buckets have no communication")

    def _sections(self, sections: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """The data of the sections that were measured."""
        found = {}
        for name, section in sections.items():
            status = section.get("status") if isinstance(section, dict) else None
            if status == "done":
                found[name] = _mapping(section.get("data"), f"sections.{name}.data")
            elif status in ("failed", "left_out"):
                said = self.warnings if status == "failed" else self.notes
                said.append(f"{name[:60]}: {status}: {str(section.get('reason'))[:200]}")
            else:
                raise Refused(f"{_brief(status)} is none of done, failed, left_out",
                              ("sections", name[:60], "status"))  # fmt: skip
        return found

    def device(self) -> str | None:
        gpus = self.environment.get("gpus")
        names = {str(gpu.get("name"))[:80] for gpu in gpus or () if isinstance(gpu, dict)}
        if len(names) > 1:
            self.warnings.append(f"several kinds of GPU: {', '.join(sorted(names))}")
        return names.pop() if len(names) == 1 else None

    def said(self) -> tuple[str, ...]:
        warnings = unique(self.warnings)
        more = len(warnings) - _MAX_WARNINGS
        return (*warnings[:_MAX_WARNINGS], *([f"{more} warnings more"] if more > 0 else []))

    def _each(self, items: Any, where: str, make: Callable[[Any, str], T | None]) -> Iterator[T]:
        """`make` of every item; one that is refused is a warning."""
        if not isinstance(items, list):
            self.warnings.append(f"{where}: is left out: a list is needed")
            return
        for number, item in enumerate(items):
            try:
                made = make(item, f"{where}[{number}]")
            except Refused as error:
                self.warnings.append(f"{where}[{number}]: is left out: {error.message}")
            else:
                if made is not None:
                    yield made

    # -- collectives ------------------------------------------------------------------------------

    def curves(self) -> Iterator[Curve]:
        for name, data in self.sections.items():
            if "curves" in data:
                yield from self._each(data["curves"], name, self._curve)

    def _curve(self, item: Any, where: str) -> Curve | None:
        curve = _mapping(item, "the curve")
        operation = curve.get("operation")
        if operation not in OPERATIONS:
            raise Refused(f"{_brief(operation)} is none of {', '.join(OPERATIONS)}")
        if curve.get("reason"):
            self.warnings.append(f"{operation}: ended: {str(curve['reason'])[:200]}")
        if self.ranks == 1:
            self.notes.append("curves of one rank are left out; it communicates nothing")
            return None
        points = tuple(self._each(curve.get("points"), f"{where}.points", self._point))
        return Curve(operation, self.ranks, self.nodes, points) if points else None

    def _point(self, item: Any, where: str) -> Point:
        point = _mapping(item, "the point")
        samples = self._slowest(point.get("samples_s"))
        spread = statistics.stdev(samples) if len(samples) > 1 else 0.0
        return _seconds(point.get("bytes"), "bytes"), statistics.median(samples), spread

    def _slowest(self, value: Any) -> tuple[float, ...]:
        """Every repetition's duration on its slowest rank [s]."""
        if not isinstance(value, list) or len(value) != self.recorded:
            count = len(value) if isinstance(value, list) else "no"
            raise Refused(f"samples of {count} ranks; {self.recorded} ranks were measured")
        rows = [_samples(row) for row in value]
        if len({len(row) for row in rows}) > 1:
            raise Refused("ranks have different numbers of samples")
        return tuple(max(each) for each in zip(*rows, strict=True))

    # -- one model --------------------------------------------------------------------------------

    def _runs(self, section: str) -> list[dict[str, Any]]:
        """The runs of the first model; the others are named."""
        data = self.sections.get(section, {})
        listed = data.get("runs", [])
        runs = list(self._each(listed, section, lambda item, _: _mapping(item, "the run")))
        for each in self._each(data.get("failures", []), section, lambda f, _: _mapping(f, "it")):
            what = f"{str(each.get('model'))[:40]}, batch {_brief(each.get('batch'))}"
            self.warnings.append(f"{section}: {what} failed: {str(each.get('reason'))[:200]}")
        models = list(dict.fromkeys(str(run.get("model"))[:40] for run in runs))
        if len(models) > 1:
            self.warnings.append(
                f"steps, layers and buckets are those of {models[0]}; {', '.join(models[1:])} "
                "left out: measure one model per record to use it (--models)"
            )
        return [run for run in runs if str(run.get("model"))[:40] == models[0]]

    def _largest(self, section: str) -> dict[str, Any] | None:
        """The run of the largest batch, whose kernels are the most efficient."""
        runs = [run for run in self._runs(section) if isinstance(run.get("batch"), int)]
        found = max(runs, key=lambda run: int(run["batch"]), default=None)
        if found is not None:
            about = f"{str(found.get('model'))[:40]}, batch {found['batch']}"
            self.notes.append(f"{section} of {about}, {str(found.get('precision'))[:10]}")
        return found

    def steps(self) -> Iterator[StepTime]:
        """Steps under DDP; of several ranks also those of one rank alone, without DDP."""

        def together(run: Any, where: str) -> StepTime:
            batch = _count(run.get("batch"), "batch")
            return StepTime(self.ranks, batch, self._slowest(run.get("samples_s")))

        def alone(run: Any, where: str) -> StepTime:
            return StepTime(1, _count(run.get("batch"), "batch"), _samples(run.get("alone_s")))

        if not self.fake:
            yield from self._each(self._runs("ddp"), "ddp", together)
        if self.ranks > 1 or "ddp" not in self.sections:
            yield from self._each(self._runs("steps"), "steps", alone)

    def layers(self) -> Iterator[LayerSeconds]:
        def layer(item: Any, where: str) -> LayerSeconds:
            row = _mapping(item, "the layer")
            name = row.get("name")
            if not isinstance(name, str) or not 0 < len(name) <= 200:
                raise Refused(f"name: {_brief(name)} is no name")
            parts = (_samples(row.get(key), zero=True) for key in ("forward_s", "backward_s"))
            return LayerSeconds(name, *(statistics.median(part) for part in parts))

        run = self._largest("layers")
        if run is not None:
            yield from self._each(run.get("layers"), "layers", layer)

    def buckets(self) -> Iterator[MeasuredBucket]:
        """Rank 0's; NCCL carries a group's buckets one by one, gloo several at a time."""
        run = None if self.fake else self._largest("buckets")
        if run is None:
            return
        sizes = dict(self._each(run.get("buckets"), "buckets", lambda item, _: _size(item)))
        ranks = run.get("steps")
        first = ranks[0] if isinstance(ranks, list) and ranks else None
        if not isinstance(ranks, list) or len(ranks) != self.recorded:
            self.warnings.append(f"buckets: steps of {self.recorded} ranks are needed")
            return
        steps = list(self._each(first, "buckets", lambda item, _: _mapping(item, "the step")))
        for number, step in enumerate(steps):
            last = 0.0
            for row in self._each(step.get("buckets"), "buckets", lambda item, _: _bucket(item)):
                index, ready, end = row
                start = max(ready, last) if self.backend == "nccl" else ready
                last = end
                if index not in sizes or end < start:
                    self.warnings.append(f"bucket {index} of step {number}: is left out: "
                                         "no size, or an end before its start")  # fmt: skip
                else:
                    yield MeasuredBucket(index, sizes[index], ready, start, end, number)


def _size(item: Any) -> tuple[int, float]:
    row = _mapping(item, "the bucket")
    return _index(row), _seconds(row.get("bytes"), "bytes")


def _bucket(item: Any) -> tuple[int, float, float]:
    """Index, when it was handed over and when it ended [s]."""
    row = _mapping(item, "the bucket")
    ready = _seconds(row.get("issued_s"), "issued_s", zero=True)
    return _index(row), ready, _seconds(row.get("end_s"), "end_s", zero=True)


def _index(row: dict[str, Any]) -> int:
    index = row.get("index")
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < 10**6:
        raise Refused(f"index: {_brief(index)} is no index")
    return index


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(f"{what}: {_brief(value)} where a mapping is needed")
    return value


def _count(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**7:
        raise Refused(f"{what}: {_brief(value)} is not a whole number in 1 … 10,000,000")
    return value


def _samples(value: Any, *, zero: bool = False) -> tuple[float, ...]:
    if not isinstance(value, list) or not value:
        raise Refused("has no samples")
    return tuple(_seconds(each, "a sample", zero=zero) for each in value)


def _seconds(value: Any, what: str, *, zero: bool = False) -> float:
    """A finite number above 0 (or 0 too)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused(f"{what}: {_brief(value)} is no number")
    if not 0 <= value < 1e18 or not math.isfinite(value) or (value == 0 and not zero):
        raise Refused(f"{what}: {_brief(value)} is not {'0 or more' if zero else 'above 0'}")
    return float(value)


def _brief(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
