"""Packages that are imported when something of them is first used."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any


class Deferred(ModuleType):
    """What ``import name`` gives until one of the package's attributes is asked for."""

    def __getattr__(self, attribute: str) -> Any:
        name = self.__name__
        if sys.modules.get(name) is self:
            del sys.modules[name]
        return getattr(importlib.import_module(name), attribute)


def defer(name: str) -> None:
    """Let every ``import name`` from now on give a `Deferred`, which imports the package when it is
    used; ``from name import …`` imports it at once.

    Nothing happens where the package is there already, or is not installed.
    """
    if name not in sys.modules and importlib.util.find_spec(name) is not None:
        sys.modules[name] = Deferred(name)
