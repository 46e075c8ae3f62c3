"""Extensions: a module is a plug-in, its file name is its name in scenarios.

``dpsim/compile/strategies/ddp.py`` is what ``strategy: {kind: ddp}`` means.  Nothing is registered:
the folder is the list.  Another package adds one with an entry point of the group
``dpsim.strategies`` (or ``dpsim.collectives``, …: ``dpsim.`` and a key of FOLDERS) that names a
module, or ``module:Class``; the name of the entry point is its name in scenarios.  A plug-in module
holds exactly one public subclass of its folder's contract class.  A package whose plug-in cannot be
used is named where that plug-in is asked for, and disturbs no other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.metadata
import importlib.util
import pkgutil
import re
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

from dpsim.core import unknown
from dpsim.core.errors import SimulationError
from dpsim.core.lean import dataclass
from dpsim.core.marks import Mark
from dpsim.core.record import Refused, build, json_schema

#: what can be extended -> the package whose modules are its plug-ins
FOLDERS = {
    "models": "dpsim.models.architectures",
    "strategies": "dpsim.compile.strategies",
    "schedules": "dpsim.compile.schedules",
    "compression": "dpsim.compile.compression",
    "loaders": "dpsim.compile.loaders",
    "backends": "dpsim.backends",
    "collectives": "dpsim.collectives",
    "fabrics": "dpsim.machines.fabrics",
    "variability": "dpsim.variability.distributions",
    "recoveries": "dpsim.life.recoveries",
    "readers": "dpsim.measurements.readers",
    "kinds": "dpsim.measurements.kinds",
}
#: those whose plug-ins have no keys, so that they need not be records
PLAIN = ("collectives", "readers", "kinds")


@lru_cache(maxsize=64)
def names(folder: str) -> tuple[str, ...]:
    """Names of all plug-ins of `folder` ("strategies"), sorted."""
    return tuple(sorted({*_own(folder), *_elsewhere(folder)}))


def _own(folder: str) -> list[str]:
    """Those that are dpsim's own."""
    spec = importlib.util.find_spec(FOLDERS[folder])
    places = list(spec.submodule_search_locations or []) if spec else []
    return [
        m.name for m in pkgutil.iter_modules(places) if not m.name.startswith("_") and not m.ispkg
    ]


@lru_cache(maxsize=64)
def _elsewhere(folder: str) -> Mapping[str, Sequence[EntryPoint]]:
    """Plug-ins of other packages by name.  Looking them up takes milliseconds."""
    found: dict[str, list[EntryPoint]] = defaultdict(list)
    for point in importlib.metadata.entry_points(group=f"dpsim.{folder}"):
        found[point.name].append(point)
    return dict(found)


def find(folder: str, name: str) -> type[Any]:
    """The class of plug-in `name` of `folder`; Refused, naming what exists, if there is none."""
    known = names(folder)
    if name not in known:
        there = f"there are {', '.join(known)}"
        if missing := unknown.not_modelled(name):
            raise Refused(f"{missing}; {there}")
        near = unknown.did_you_mean(name, known)
        raise Refused(f"no {name[:60]!r} in {folder}; {near}{near and ' '}{there}")
    points = _elsewhere(folder).get(name, ())
    if not points:
        return _own_class(importlib.import_module(f"{FOLDERS[folder]}.{name}"), folder)
    owners = ["dpsim itself"] * (name in _own(folder)) + [_package(point) for point in points]
    if len(owners) > 1:
        raise Refused(
            f"{name!r} in {folder} belongs to {' and to '.join(owners)}: which one is meant? "
            "Uninstall a package, or rename its entry point"
        )
    try:
        found = _loaded(points[0], contract(folder))
        if folder not in PLAIN and not dataclasses.is_dataclass(found):
            raise Refused(f"{found.__name__} is no record: @record is needed above it")
        return found
    except Refused as error:
        raise Refused(f"{name!r} in {folder} is of {owners[0]}: {error}") from None


def usable(folder: str) -> Iterator[tuple[str, type[Any]]]:
    """Names and classes of the plug-ins of `folder`; warns of those that cannot be used."""
    for name in names(folder):
        try:
            yield name, find(folder, name)
        except Refused as error:
            warnings.warn(f"left out: {error}", stacklevel=2)


def contract(folder: str) -> type[Any]:
    """The class that every plug-in of `folder` derives from."""
    found: type[Any] = importlib.import_module(FOLDERS[folder]).CONTRACT
    return found


@lru_cache(maxsize=256)
def _own_class(module: ModuleType, folder: str) -> type[Any]:
    """The class of dpsim's own plug-in in `module`, which is asked for with every message."""
    return _class_in(module, contract(folder))


def _package(point: EntryPoint) -> str:
    return f"package {point.dist.name if point.dist else 'unknown'}"


def _loaded(point: EntryPoint, contract: type) -> type[Any]:
    """The class that `point` names, or that is in the module it names."""
    if not re.fullmatch(r"[\w.]+\s*(:\s*[\w.]+\s*)?(\[.*\]\s*)?", point.value):
        raise Refused(f"{point.value[:60]!r} names nothing; module or module:Class is needed")
    try:
        found = point.load()
    except (Exception, SystemExit) as error:  # whatever another's module does when it is imported
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise Refused(f"{point.value} cannot be loaded: {reason}") from None
    if isinstance(found, ModuleType):
        return _class_in(found, contract)
    if not isinstance(found, type) or not issubclass(found, contract):
        raise Refused(f"{point.value} is no {contract.__name__}")
    return found


def _class_in(module: ModuleType, contract: type) -> type[Any]:
    found = [
        value
        for key, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, contract)
        and value.__module__ == module.__name__
        and not key.startswith("_")
    ]
    if len(found) != 1:
        raise Refused(
            f"{module.__name__} must hold exactly one {contract.__name__}, not {len(found)}"
        )
    return found[0]


@dataclass(frozen=True)
class Plugin(Mark):
    """Marks a field that holds a plug-in: ``{kind: ddp, …}`` becomes an instance of ddp's class.

    `folder` is a key of FOLDERS, `tag` the key that names the plug-in.
    """

    folder: str
    tag: str

    def make(self, data: Any, *, file: bool) -> Any:
        if not isinstance(data, Mapping):
            shown = "nothing" if data is None else f"{str(data)[:60]!r}"
            hint = self._hint(data) if isinstance(data, str) else ""
            raise Refused(f"{shown} where a mapping with {self.tag!r} is needed{hint}")
        if self.tag not in data:
            known = ", ".join(names(self.folder))
            raise Refused(f"is missing; one of {known}", (self.tag,))
        name = data[self.tag]
        if not isinstance(name, str):
            raise Refused(f"{str(name)[:60]!r} is not a name", (self.tag,))
        try:
            cls = find(self.folder, name)
        except Refused as error:
            raise Refused(error.message, (self.tag,)) from None
        rest = {key: value for key, value in data.items() if key != self.tag}
        return build(cls, rest, file=file)

    def _hint(self, name: str) -> str:
        """How to write the plug-in `name`; the sentence for one that there is not."""
        known = names(self.folder)
        if name in known:
            return f"; write {{{self.tag}: {name}}}"
        return f"; {meant}" if (meant := unknown.did_you_mean(name, known)) else ""

    def take(self, value: Any, file: bool) -> Any:
        return value if isinstance(value, contract(self.folder)) else self.make(value, file=file)

    def json_schema(self) -> dict[str, Any]:
        options = []
        for name, cls in usable(self.folder):
            schema = json_schema(cls)
            schema["properties"] = {self.tag: {"const": name}, **schema.get("properties", {})}
            schema["required"] = [self.tag, *schema.get("required", [])]
            options.append(schema)
        return {"oneOf": options}


def name_of(value: Any) -> str:
    """The name under which scenarios know the plug-in instance (or class) `value`."""
    point = _registered(value)
    return point.name if point else _class_of(value).__module__.rpartition(".")[2]


def _class_of(value: Any) -> type[Any]:
    return value if isinstance(value, type) else type(value)


def _registered(value: Any) -> EntryPoint | None:
    """The entry point of a plug-in of another package."""
    cls = _class_of(value)
    own = cls.__module__.partition(".")[0] == __name__.partition(".")[0]
    for folder in () if own else FOLDERS:
        for point, *_ in _elsewhere(folder).values():
            with contextlib.suppress(Refused):
                if _loaded(point, contract(folder)) is cls:
                    return point
    return None


def of_another(value: Any) -> bool:
    """Whether another package brought the plug-in `value`."""
    return _registered(value) is not None


@contextlib.contextmanager
def asked(value: Any, what: str) -> Iterator[None]:
    """While the plug-in `value` is asked for `what`: if it fails, the message says who, and of
    which package.

    Raises Refused where another package or a wrong value is to blame, else SimulationError.
    """
    try:
        yield
    except (Refused, SimulationError):
        raise
    except Exception as error:  # whatever another's code does
        point = _registered(value)
        owner = f" of {_package(point)}" if point else ""
        kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
        reason = " ".join(f"{kind}{error}".split())[:300]
        said = f"{name_of(value)!r}{owner}: {what} fails: {reason}"
        blamed = Refused if point or isinstance(error, ValueError) else SimulationError
        raise blamed(said) from error
