"""A sweep in one call: what `dpsim sweep` does, without a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from dpsim.core.record import Refused
from dpsim.core.refusals import texts, whole
from dpsim.core.staging import scratch
from dpsim.describe.scenario import Given, taken
from dpsim.planning import swept
from dpsim.planning.grid import Axes
from dpsim.planning.sweep import Sweep, sweep_of
from dpsim.planning.swept import Kept, Swept


def sweep(
    scenario: Given,
    grid: Axes = (),
    *,
    columns: Sequence[str] = (),
    out: str | Path | None = None,
    jobs: int = 1,
    ray: str | None = None,
    shard: tuple[int, int] = (1, 1),
    salvage: bool = False,
    tell: Kept = lambda done, of, records: None,
) -> Swept:
    """The prediction of `scenario` at every point of a grid.

    grid     ``{"cluster.nodes": [1, 2, 4]}``, or texts as ``cluster.nodes=1:64:x2``; beside the
             scenario's own sweep
    columns  what of each point is worked out; nothing: all of it
    out      the folder of the log, which goes on where it was interrupted; None: nothing is kept
    jobs     processes; more than one need a script that can be imported
    ray      the address of a Ray cluster
    shard    (i, n): only every n-th point, from the i-th on
    salvage  keep the sound records of a damaged log
    tell     is told (points done, of how many, the records just stored)

    Raises Refused, before anything is played, where no point can be read.
    """
    if not 1 <= shard[0] <= shard[1]:
        raise Refused(f"shard {shard}: (i, n) with i from 1 to n is accepted")
    texts("columns", columns)
    jobs = whole("jobs", jobs, 1)
    asked = sweep_of(taken(scenario), grid, columns)
    return played(asked, out, jobs=jobs, ray=ray, shard=shard, salvage=salvage, tell=tell)


def played(
    asked: Sweep,
    out: str | Path | None,
    *,
    jobs: int,
    ray: str | None,
    shard: tuple[int, int],
    salvage: bool,
    tell: Kept,
) -> Swept:
    """The same of a sweep that is known already."""
    with _folder(out) as folder:
        play = swept.player(min(jobs, len(asked.grid)), ray)
        return swept.sweep(asked, folder, play, shard=shard, salvage=salvage, tell=tell)


@contextlib.contextmanager
def _folder(out: str | Path | None) -> Iterator[Path]:
    """Where the log goes: `out`, or a folder that is gone afterwards."""
    if out is not None:
        yield Path(out)
    else:
        with scratch() as folder:
            yield folder
