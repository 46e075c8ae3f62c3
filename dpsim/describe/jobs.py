"""Jobs: a scenario file with one job, or with several that share a cluster, read job by job.

A file with `jobs` is read as one scenario per job: what the job gives stands in place of the
file's section of the same name, all else is shared.  `dpsim compare` plays such a mix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

from dpsim.core import units, unknown, yamlfile
from dpsim.core.overrides import apply_sets, origins_of
from dpsim.core.places import as_text, below, data_folder
from dpsim.core.record import Refused, Text, build, json_schema, record
from dpsim.describe.bundled import base_and_name, find
from dpsim.describe.scenario import Loaded, Scenario, load, placed

MAX_JOBS = 100
#: the sections that a job may have of its own; the cluster and its prices belong to all
SECTIONS = (
    "model", "strategy", "collective", "batch", "precision", "optimizer", "compute", "recompute",
    "memory", "parallel", "schedule", "stages", "host", "execution", "input", "variability",
    "iteration", "calibrate", "calibration", "training",
)  # fmt: skip


@record
class JobEntry:
    """What an entry of `jobs` has beside its sections.

    name    name of the job, once in a file
    weight  how much of it there is: with `training` how many such runs, else its share of the
            device-hours (on the first cluster compared; shares need not add up to 1)
    """

    name: Text
    weight: Annotated[float, units.Unit("1", low=0.0, high=1e9, above=True)] = 1.0


@dataclass(frozen=True)
class MixedJob:
    """One job of a mix: its `weight`, and the scenario that it makes with what is shared;
    `calibrated` is another one that its calibration was measured on."""

    name: str
    weight: float
    loaded: Loaded
    calibrated: Loaded | None = None


@dataclass(frozen=True)
class Mix:
    """A scenario file, job by job; `several` says whether it lists jobs."""

    name: str
    title: str
    jobs: tuple[MixedJob, ...]
    several: bool


def read_mix(source: str | Path, sets: Sequence[str] = ()) -> Mix:
    """The jobs of a scenario file or bundled scenario, with ``a.b=v`` overrides.

    A file without `jobs` is one job of weight 1.  `jobs` may name a file below the scenario's
    folder that holds the list.  Raises FileRefused for anything that is not right.
    """
    path = find(source)
    shown = as_text(source) if path == Path(source) else path.name
    data, lines = yamlfile.load(path, shown)
    if not isinstance(data, dict):
        raise yamlfile.FileRefused("the file holds no mapping", shown=shown)
    base, name = base_and_name(path)
    try:
        elsewhere = _fetch(data, base)
    except Refused as error:
        raise yamlfile.located(error, shown, lines) from None
    changed = apply_sets(data, sets)
    reader = _Reader(path, shown, {**lines, **elsewhere.lines}, elsewhere.shown, changed)
    try:
        return mix_of(data, base, name, reader)
    except Refused as error:
        raise reader.placed(error) from None


@dataclass(frozen=True)
class _Elsewhere:
    """The file that `jobs` names, as errors call it, and its lines; empty where there is none."""

    shown: str = ""
    lines: yamlfile.Lines = field(default_factory=dict)


@dataclass(frozen=True)
class _Reader:
    """Where everything in a file of jobs comes from."""

    path: Path
    shown: str
    lines: yamlfile.Lines
    jobs_file: str
    changed: dict[str, str]

    def placed(self, error: Refused) -> Refused:
        """`error` with its place: --set, this file, or the file of jobs."""
        inside = self.jobs_file and error.path[:1] == ("jobs",) and len(error.path) > 1
        return placed(error, self.jobs_file if inside else self.shown, self.lines, self.changed)

    def origins(self, number: int, own: Mapping[str, Any]) -> dict[str, str]:
        """Where the keys of job `number` come from; `own` are the sections that it gives."""
        lines = {p: n for p, n in self.lines.items() if p and p[0] != "jobs" and p[0] not in own}
        found = origins_of(self.shown, lines, self.changed)
        place = ("jobs", number)
        mine = {p[2:]: n for p, n in self.lines.items() if p[:2] == place and len(p) > 2}
        start = f"jobs[{number}]."
        sets = {k.removeprefix(start): t for k, t in self.changed.items() if k.startswith(start)}
        return found | origins_of(self.jobs_file or self.shown, mine, sets)


def _fetch(data: dict[str, Any], base: Path) -> _Elsewhere:
    """Put the list of jobs that another file holds into `data`."""
    name = data.get("jobs")
    if not isinstance(name, str):
        return _Elsewhere()
    path = below(base, name, "jobs")
    if not path.is_file():
        raise Refused(f"no file {name[:200]!r} below the scenario's folder", ("jobs",))
    found, lines = yamlfile.load(path, name)
    if not isinstance(found, list):
        raise yamlfile.FileRefused("a file of jobs holds a list of them", shown=name)
    data["jobs"] = found
    return _Elsewhere(name, {("jobs", *place): line for place, line in lines.items() if place})


def mix_of(data: dict[str, Any], base: Path, name: str, reader: _Reader | None = None) -> Mix:
    """A Mix from plain data."""
    if "jobs" not in data:
        origins = reader.origins(0, {}) if reader else {}
        loaded = load(data, base, name, origins=origins)
        loaded = replace(loaded, sets=reader.changed if reader else {})
        return Mix(name, loaded.name, (MixedJob(loaded.name, 1.0, loaded),), False)
    entries = data["jobs"]
    if not isinstance(entries, list) or not 1 <= len(entries) <= MAX_JOBS:
        raise Refused(f"needs a list of 1 … {MAX_JOBS} jobs (or a file of them)", ("jobs",))
    shared = {key: value for key, value in data.items() if key != "jobs"}
    if "measured" in shared:
        raise Refused("measured points belong to a single job", ("measured",))
    title = data.get("title") or name
    jobs: list[MixedJob] = []
    for number, entry in enumerate(entries):
        head, own = _entry(entry, number)
        if head.name in {job.name for job in jobs}:
            raise Refused(f"there are two jobs called {head.name!r}", ("jobs", number, "name"))
        merged = {**shared, **own, "title": f"{title}: {head.name}"}
        origins = reader.origins(number, own) if reader else {}
        try:
            loaded = load(merged, base, name, origins=origins)
        except yamlfile.FileRefused:
            raise
        except Refused as error:
            mine = error.path[:1] and error.path[0] in (*own, "model", "strategy")
            raise Refused(
                error.message, ("jobs", number, *error.path) if mine else error.path
            ) from None
        sets = reader.changed if reader else {}
        jobs.append(MixedJob(head.name, head.weight, replace(loaded, sets=sets)))
    return Mix(name, str(title), tuple(jobs), True)


def _entry(entry: Any, number: int) -> tuple[JobEntry, dict[str, Any]]:
    """The name and weight of entry `number`, and its sections."""
    place = ("jobs", number)
    if not isinstance(entry, dict):
        raise Refused("a job is a mapping with a name", place)
    own = {field.name for field in fields(JobEntry)}
    for key in entry:
        if key not in own and key in Scenario.__dataclass_fields__ and key not in SECTIONS:
            raise Refused("belongs to all jobs; give it beside `jobs`", (*place, key))
        if key not in own and key not in SECTIONS:
            raise Refused(unknown.sentence(str(key), [*own, *SECTIONS]), (*place, key))
    head = build(JobEntry, {k: v for k, v in entry.items() if k in own}, file=True, path=place)
    return head, {key: value for key, value in entry.items() if key in SECTIONS}


# -- folders --------------------------------------------------------------------------------------


def sources(source: str | Path) -> list[Path | str]:
    """The scenario files that `source` stands for: itself, or the *.yaml directly in a folder.

    Raises Refused for a folder without one.
    """
    path = Path(source)
    if not path.exists() and not path.is_absolute() and ".." not in path.parts:
        bundled = data_folder("scenarios") / str(source).removeprefix("scenarios/")
        path = bundled if bundled.is_dir() else path
    if not path.is_dir():
        return [source]
    found: list[Path | str] = sorted(p for p in path.glob("*.yaml") if p.is_file())
    if not found:
        raise Refused(f"{path}: the folder has no *.yaml directly in it")
    return found


# -- the schema -----------------------------------------------------------------------------------


def schema() -> dict[str, Any]:
    """JSON Schema of scenario files: those of one job, and those with `jobs`."""
    whole = json_schema(Scenario)
    entry = json_schema(JobEntry)
    known = whole["properties"]
    entry["properties"] |= {key: known[key] for key in SECTIONS}
    entry["description"] = JobEntry.__doc__
    listed = {"type": "array", "items": entry, "minItems": 1, "maxItems": MAX_JOBS}
    whole["properties"] = {**known, "jobs": {"anyOf": [listed, {"type": "string"}]}}
    single = [key for key in whole["required"] if key in SECTIONS]
    whole["required"] = [key for key in whole["required"] if key not in SECTIONS]
    whole["anyOf"] = [{"required": single}, {"required": ["jobs"]}]
    return whole


__all__ = ["JobEntry", "Mix", "MixedJob", "mix_of", "read_mix", "schema", "sources"]
