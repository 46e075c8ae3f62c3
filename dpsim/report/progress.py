"""Progress: a bar on a terminal for what takes longer, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Timer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

#: seconds after which a bar appears
PATIENCE = 2.0


@dataclass(frozen=True)
class Progress:
    """Told how many pieces are done, or how many of a known number; without `bars` it shows
    nothing."""

    bars: Bars | None = None

    def played(self, count: int) -> None:
        """So many, of nobody knows how many."""
        if self.bars is not None and self.bars.tasks[0].total is None:
            self.bars.update(self.bars.tasks[0].id, completed=count)

    def of(self, done: int, total: int) -> None:
        """So many of `total`."""
        if self.bars is not None:
            self.bars.update(self.bars.tasks[0].id, completed=done, total=total)


@contextmanager
def progress(what: str = "points", *, left: bool = False) -> Iterator[Progress]:
    """A bar of `what` with the time that has passed and, where their number is known, that is
    `left`.  It is there where stderr is a terminal, and only after PATIENCE."""
    if not sys.stderr.isatty():
        yield Progress()
        return
    from rich import progress as rich
    from rich.console import Console

    columns = [rich.TextColumn(what), rich.BarColumn(), rich.MofNCompleteColumn()]
    columns.append(rich.TimeElapsedColumn())
    if left:
        columns += [rich.TextColumn("left"), rich.TimeRemainingColumn()]
    bars = rich.Progress(*columns, console=Console(stderr=True), transient=True)
    bars.add_task(what, total=None)
    later = Timer(PATIENCE, bars.start)
    later.daemon = True
    later.start()
    try:
        yield Progress(bars)
    finally:
        later.cancel()
        later.join()
        if bars.live.is_started:
            bars.stop()
