"""Where files are: below the scenario's folder, or with what comes with dpsim."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from dpsim.core.record import Refused


def below(base: Path, name: str, key: str) -> Path:
    """`name` as a path inside `base` (`home_of`); Refused where it leads elsewhere."""
    where = tuple(key.split("."))
    try:
        base = home_of(base, name)
        path = base / name
        inside = path.resolve().is_relative_to(base.resolve())
        path.is_file()
    except (OSError, ValueError, RuntimeError):  # too long, a NUL, links in a circle
        raise Refused(f"{name[:60]!r} is not a path", where) from None
    if Path(name).is_absolute() or not inside:
        raise Refused(f"{name[:200]!r} lies outside the scenario's own folder", where)
    return path


def home_of(base: Path, name: str) -> Path:
    """The folder in which a scenario of folder `base` finds the file `name`: its own; of a bundled
    scenario that has no such file the current one, for a reader writes nothing among those."""
    if Path(name).is_absolute() or (base / name).exists():
        return base
    bundled = base.resolve().is_relative_to(data_folder("scenarios").resolve())
    return Path() if bundled else base


def as_text(name: str | Path) -> str:
    """The name of a file as text that can be written: "?" for bytes that are no UTF-8."""
    return str(name).encode("utf-8", "replace").decode()


def data_folder(name: str) -> Path:
    """The folder "scenarios", "topologies" or "validation" that comes with dpsim: inside the
    installed package, or beside it in a checkout."""
    package = Path(str(resources.files("dpsim")))
    inside = package / "data" / name
    return inside if inside.is_dir() else package.parent / name
