"""Extensions: a module is a plug-in, its file name is its name in scenarios.

``dpsim/strategies/ddp.py`` is what ``strategy: {kind: ddp}`` means.  Nothing is registered: the
folder is the list.  Another package adds one with an entry point of the group ``dpsim.strategies``
(or ``dpsim.collectives``, …) that names a module.  A plug-in module holds exactly one public
subclass of its folder's contract class.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import importlib.util
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

from dpsim.record import Refused, build, json_schema, unknown


@lru_cache(maxsize=64)
def names(package: str) -> tuple[str, ...]:
    """Names of all plug-ins of `package` ("dpsim.strategies"), sorted."""
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or []) if spec else []
    own = [
        m.name for m in pkgutil.iter_modules(places) if not m.name.startswith("_") and not m.ispkg
    ]
    return tuple(sorted({*own, *_elsewhere(package)}))


@lru_cache(maxsize=64)
def _elsewhere(package: str) -> Mapping[str, str]:
    """Plug-ins of other packages: name -> module.  Looking them up takes milliseconds."""
    return {p.name: p.value for p in importlib.metadata.entry_points(group=package)}


def find(package: str, name: str) -> type[Any]:
    """The class of plug-in `name` of `package`; Refused, naming what exists, if there is none."""
    if name not in names(package):
        folder = package.rpartition(".")[2]
        near = difflib.get_close_matches(name, names(package), n=1, cutoff=0.6)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise Refused(f"no {name[:60]!r} in {folder}; {hint}there are {', '.join(names(package))}")
    contract = importlib.import_module(package).CONTRACT
    return _class_in(_module(package, name), contract)


def _module(package: str, name: str) -> ModuleType:
    return importlib.import_module(_elsewhere(package).get(name, f"{package}.{name}"))


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
class Plugin:
    """Marks a field that holds a plug-in: ``{kind: ddp, …}`` becomes an instance of ddp's class.

    `package` is the folder, `tag` the key that names the plug-in.
    """

    package: str
    tag: str

    def make(self, data: Any, *, file: bool) -> Any:
        if not isinstance(data, Mapping):
            shown = "nothing" if data is None else f"{str(data)[:60]!r}"
            named = isinstance(data, str) and data in names(self.package)
            hint = f"; write {{{self.tag}: {data}}}" if named else ""
            raise Refused(f"{shown} where a mapping with {self.tag!r} is needed{hint}")
        if self.tag not in data:
            known = ", ".join(names(self.package))
            raise Refused(f"is missing; one of {known}", (self.tag,))
        name = data[self.tag]
        if not isinstance(name, str):
            raise Refused(f"{str(name)[:60]!r} is not a name", (self.tag,))
        try:
            cls = find(self.package, name)
        except Refused as error:
            raise Refused(error.message, (self.tag,)) from None
        rest = {key: value for key, value in data.items() if key != self.tag}
        return build(cls, rest, file=file)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        def validate(value: Any, info: Any) -> Any:
            contract = importlib.import_module(self.package).CONTRACT
            if isinstance(value, contract):
                return value
            return self.make(value, file=bool((info.context or {}).get("file")))

        return core_schema.with_info_plain_validator_function(
            validate,
            metadata={"pydantic_js_functions": [lambda schema, handler: self.json_schema()]},
        )

    def json_schema(self) -> dict[str, Any]:
        options = []
        for name in names(self.package):
            cls = find(self.package, name)
            schema = json_schema(cls)
            schema["properties"] = {self.tag: {"const": name}, **schema.get("properties", {})}
            schema["required"] = [self.tag, *schema.get("required", [])]
            options.append(schema)
        return {"oneOf": options}


def name_of(value: Any) -> str:
    """The name under which scenarios know the plug-in instance (or class) `value`."""
    cls = value if isinstance(value, type) else type(value)
    return cls.__module__.rpartition(".")[2]


__all__ = ["Plugin", "find", "name_of", "names", "unknown"]
