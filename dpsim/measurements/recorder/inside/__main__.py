"""Entry point, started by path: ``PYTHON .../inside OPTIONS.json [script arguments]``.

OPTIONS.json says what to run and where to write; see `start.Options`.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

NAME = "_dpsim_inside"


def load() -> None:
    """Import this folder as a package of its own: dpsim need not be importable here."""
    folder = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location(
        NAME, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    sys.path.pop(0)  # this folder; the script's own takes its place
    load()
    sys.exit(importlib.import_module(f"{NAME}.start").main(sys.argv[1], sys.argv[2:]))
