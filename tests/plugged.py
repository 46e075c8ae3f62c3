"""Plug-ins that exist during a test only: files put into the package's folders."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpsim.core import plugins


@contextmanager
def plugged(folder: str, files: dict[str, str], place: Path) -> Iterator[None]:
    """`files` (name -> text), written below `place`, as if they lay in the package's `folder`."""
    parent = importlib.import_module(plugins.FOLDERS[folder])
    path = place / folder
    path.mkdir()
    for name, text in files.items():
        (path / f"{name}.py").write_text(text, encoding="utf-8")
    parent.__path__.append(str(path))
    plugins.names.cache_clear()
    importlib.invalidate_caches()
    yield
    plugins.names.cache_clear()
    parent.__path__.remove(str(path))
    for name in files:
        sys.modules.pop(f"{parent.__name__}.{name}", None)
        vars(parent).pop(name, None)
