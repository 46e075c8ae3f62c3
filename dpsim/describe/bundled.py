"""Scenarios by name: files, and those that come with dpsim."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpsim.core import unknown
from dpsim.core.files import STANDARD, streamed
from dpsim.core.places import as_text, data_folder
from dpsim.core.record import Refused
from dpsim.machines.machine import machine_names
from dpsim.models.configurations import section_of

#: characters of a file name beyond which systems refuse it
LONGEST = 250


def find(source: str | Path) -> Path:
    """The file of a path or of a bundled name ("quickstart", "worked/ddp_steady")."""
    if not isinstance(source, str | Path):
        raise Refused(f"a {type(source).__name__} is no scenario file; accepted: a name, a path")
    path = Path(source)
    name, folder = as_text(source), data_folder("scenarios")
    if not name:
        raise Refused("'' names no scenario; a path, or a bundled name as quickstart, is accepted")
    if len(path.name) > LONGEST:
        raise Refused(f"{name[:60]!r}… is no name of a file")
    if (
        streamed(path)
        or path.exists()
        or path.suffix in (".yaml", ".yml", ".json")
        or ".." in path.parts
    ):
        return path
    bundled = folder / f"{name.removeprefix('scenarios/')}.yaml"
    if not path.is_absolute() and bundled.is_file():
        return bundled
    if not path.is_absolute() and (folder / name).is_dir():
        raise Refused(
            f"{name!r} is a folder of scenarios ({', '.join(_stems(folder / name))}); "
            f"`dpsim compare {name}` compares them"
        )
    known = _stems(folder)
    near = unknown.did_you_mean(name, known)
    if said := _no_scenario(name):
        raise Refused(f"{name!r} is {said}")
    if not near and (said := unknown.not_modelled(name)):
        raise Refused(said)
    raise Refused(
        f"no scenario file {name!r}, and no such bundled scenario; {near}{near and ' '}"
        f"bundled: {', '.join(known)}"
    )


def check_command(data: Mapping[str, Any]) -> None:
    """Refuse what another command predicts: several jobs, and serving."""
    if "jobs" in data:
        raise Refused(
            "several jobs are predicted by `dpsim compare`; here a scenario has one job", ("jobs",)
        )
    if "serving" in data:
        message = "requests to replicas of a model are predicted by `dpsim serve`"
        raise Refused(message, ("serving",))


def base_and_name(path: Path) -> tuple[Path, str]:
    """The folder of the files that a scenario names, and the scenario's own name."""
    if streamed(path):
        return Path(), "standard input" if path == STANDARD else "a pipe"
    return path.parent, as_text(path.stem)


def _no_scenario(name: str) -> str:
    """What `name` is, and how it is used, where it is something else that there is."""
    if name.endswith(".py"):
        return f"no scenario; `dpsim measure --world-size RANKS -- python {name}` records a script"
    if name in machine_names():
        way = f"cluster.machine={name}"
        return (
            f"a machine: `dpsim run SCENARIO --set {way}` puts a scenario on it, `dpsim compare "
            f"SCENARIO --vary {way},…` compares it with others"
        )
    section = section_of(name)
    return f"a model: a scenario names it model: {section}" if section else ""


def _stems(place: Path) -> list[str]:
    """Names of the scenarios in folder `place`."""
    return sorted(file.stem for file in place.glob("*.yaml"))
