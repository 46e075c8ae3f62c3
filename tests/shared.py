"""What all processes of a run of the tests (``pytest -n``) share, made by one of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

#: how long one process waits for what another makes [s]
LIMIT = 240.0


def folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """One folder per run of the tests, whatever the number of their processes."""
    base = factory.getbasetemp()
    found = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    found.mkdir(exist_ok=True)
    return found


def once(place: Path, make: Callable[[], object]) -> None:
    """Let `make` make what belongs to `place`: the first process to ask does, others wait."""
    done = place.with_suffix(".done")
    try:
        place.with_suffix(".started").mkdir()
    except FileExistsError:
        end = time.monotonic() + LIMIT
        while not done.exists():
            assert time.monotonic() < end, f"another process did not make {place.name}"
            time.sleep(0.05)
    else:
        make()
        done.touch()
