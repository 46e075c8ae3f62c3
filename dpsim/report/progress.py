"""Progress: a bar of points on a terminal, nothing elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """Told how many points have been played, or how many of a known number."""

    def played(self, count: int) -> None: ...

    def of(self, done: int, total: int) -> None: ...


@contextmanager
def progress(*, left: bool = False) -> Iterator[Progress]:
    """A bar with the time that has passed, or that is `left`."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    time = TimeRemainingColumn() if left else TimeElapsedColumn()
    columns = (TextColumn("points"), BarColumn(), MofNCompleteColumn(), time)
    with Bars(*columns, console=console, disable=not console.is_terminal, transient=True) as bars:
        task = bars.add_task("points", total=None)

        class Bar:
            def played(self, count: int) -> None:
                if bars.tasks[0].total is None:
                    bars.update(task, completed=count)

            def of(self, done: int, total: int) -> None:
                bars.update(task, completed=done, total=total)

        yield Bar()
