"""Time a loader of the user's own code, and write its record."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dpsim.core.outputs import check_file, write_files
from dpsim.core.record import Refused
from dpsim.core.units import show
from dpsim.measurements.loading import timed
from dpsim.measurements.recorder.runner import ScriptFailed, target
from dpsim.models.timed_loader import parse


def measure(command: Sequence[str], out: Path, batches: int) -> Iterator[str]:
    """Write the record of the loader that `command`, module:function, returns to `out`; says what
    was found.  Raises Refused for another command, ScriptFailed where the user's code fails."""
    what = target(command)
    if what.kind != "call":
        raise Refused("--input takes module:function, which returns what yields batches")
    check_file(out, "-o")
    text = json.dumps(timed(_made(what.name), batches), indent=1, allow_nan=False)
    found = parse(text)
    write_files({out: f"{text}\n".encode()}, "-o")
    fetch = max(found.cold - found.cached, 0.0)
    yield (
        f"{what.name}: batches of {found.batch}, {found.workers} workers; a worker takes "
        f"{show(found.cached, 's')} for a sample, and {show(fetch, 's')} more to fetch it cold"
    )
    yield f"{out} written; next: input: {{record: {out.name}}} in a scenario beside it"


def _made(name: str) -> Iterable[Any]:
    """What the function called `name`, module:function, returns."""
    module, _, function = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), function)()
    except Exception as error:  # whatever the user's code does
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise ScriptFailed(f"{name} cannot be called: {reason}") from None
    finally:
        sys.path.pop(0)
    if not isinstance(found, Iterable):
        raise Refused(f"{name} returns a {type(found).__name__}, which yields no batches")
    return found
