"""Packages that are imported when something of them is first used.

What stands for such a package is an object of this module and nothing else: what ``import`` gives
elsewhere, and what ``sys.modules`` holds, stays as Python has it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any


class Deferred:
    """Stands for the package `name`, which is imported when an attribute of it is asked for.

    Any number of threads may ask first: they wait for the one import, as import statements do.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


if TYPE_CHECKING:
    import networkx as nx
else:
    nx = Deferred("networkx")  # 300 modules, for graphs that few commands need

__all__ = ["Deferred", "nx"]
