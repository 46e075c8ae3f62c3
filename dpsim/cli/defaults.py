"""Defaults of options: a user's file, and variables ``DPSIM_…`` of the environment.

The file is ``$DPSIM_CONFIG``, else ``dpsim/config.yaml`` in ``$XDG_CONFIG_HOME`` (``~/.config``; on
Windows ``%APPDATA%``).  It says options by command, and under `every` those of all commands that
have them.  What the command line says counts most, then the environment, then the file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

#: the section of the file that holds for all commands
EVERY = "every"
#: the variable that names the file
CONFIG = "DPSIM_CONFIG"


def variables(command: str, option: str) -> list[str]:
    """The variables that give a default: DPSIM_SWEEP_JOBS, then DPSIM_JOBS."""
    names = [f"{command}_{option}", option]
    return [f"DPSIM_{name}".replace("-", "_").upper() for name in names]


def place() -> Path:
    """Where the file is, or would be."""
    if named := os.environ.get(CONFIG):
        return Path(named)
    windows = os.environ.get("APPDATA") if sys.platform == "win32" else None
    home = os.environ.get("XDG_CONFIG_HOME") or windows or Path("~/.config").expanduser()
    return Path(home) / "dpsim" / "config.yaml"


def check_environment(known: Iterable[str]) -> None:
    """Raises Refused where the environment has a variable ``DPSIM_…`` that is none of `known`."""
    given = [name for name in os.environ if name.startswith("DPSIM_") and name != CONFIG]
    names = {CONFIG, *known} if given else set()
    for name in sorted(set(given) - names):
        from dpsim.core import unknown
        from dpsim.core.record import Refused

        rest = unknown.did_you_mean(name[6:], sorted(one[6:] for one in names))
        near = rest.replace("'", "'DPSIM_", 1)
        said = "no option has it (DPSIM_COMMAND_OPTION and DPSIM_OPTION are read)"
        raise Refused(f"environment: {name[:80]}: {near or said}")


def of(command: str, options: Mapping[str, str], commands: Iterable[str]) -> dict[str, Any]:
    """The values that the file gives to a command's `options`, by the names of their parameters.

    options   the option without its dashes -> the name of its parameter
    commands  all there are

    Raises Refused where the file is not right.
    """
    path = place()
    if not path.is_file() and not os.environ.get(CONFIG):
        return {}
    sections = _read(path, [EVERY, *commands])
    found: dict[str, Any] = {}
    for section in (EVERY, command):
        for name, value in sections.get(section, {}).items():
            if name in options:
                found[options[name]] = _plain(value)
            elif section == command:
                _refuse(path, f"{section}.{name}", name, options)
    return found


def _read(path: Path, known: list[str]) -> dict[str, dict[str, Any]]:
    from dpsim.core import yamlfile
    from dpsim.core.record import Refused

    data, _ = yamlfile.load(path)
    if not isinstance(data, dict):
        raise Refused(f"{path}: a mapping of commands to their options is needed")
    for name, section in data.items():
        if name not in known:
            _refuse(path, name, name, known)
        if not isinstance(section, dict):
            raise Refused(f"{path}: {name}: a mapping of options is needed, as {{jobs: 4}}")
    return data


def _refuse(path: Path, where: str, name: str, known: Iterable[str]) -> None:
    from dpsim.core import unknown
    from dpsim.core.record import Refused

    near = unknown.did_you_mean(name, list(known)) or f"known: {', '.join(known)}"
    raise Refused(f"{path}: {where}: there is none; {near}")


def _plain(value: Any) -> Any:
    """As the command line would give it."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if isinstance(value, bool) or value is None else str(value)
