"""Progress: a bar of points on a terminal, nothing elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bars


@dataclass(frozen=True)
class Progress:
    """Told how many points have been played, or how many of a known number."""

    bars: Bars

    def played(self, count: int) -> None:
        """So many points, of nobody knows how many."""
        (task,) = self.bars.tasks
        if task.total is None:
            self.bars.update(task.id, completed=count)

    def of(self, done: int, total: int) -> None:
        """So many points of `total`."""
        self.bars.update(self.bars.tasks[0].id, completed=done, total=total)


@contextmanager
def progress(*, left: bool = False) -> Iterator[Progress]:
    """A bar with the time that has passed, or that is `left`."""
    from rich import progress as rich
    from rich.console import Console

    console = Console(stderr=True)
    time = rich.TimeRemainingColumn() if left else rich.TimeElapsedColumn()
    columns = (rich.TextColumn("points"), rich.BarColumn(), rich.MofNCompleteColumn(), time)
    hidden = not console.is_terminal
    with rich.Progress(*columns, console=console, disable=hidden, transient=True) as bars:
        bars.add_task("points", total=None)
        yield Progress(bars)
