"""What commands print: one JSON document, or tables for people; and their exit codes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dpsim.core.silence import no_answers, no_notes

if TYPE_CHECKING:
    from rich.console import Console


def answer(json: bool, document: Callable[[], Any], show: Callable[[Console], None]) -> None:
    """Print `document` with --json, else let `show` print."""
    from dpsim.report import canonical_json, console

    if json:
        typer.echo(canonical_json(document()))
    elif not no_answers():
        show(console())


def written(out: Path | None, names: Sequence[str]) -> str:
    """The line that says which files are in folder `out`; empty where none are."""
    return f"Written to {out}: {', '.join(names)}" if out is not None and names else ""


def unfit(points: Iterable[Mapping[str, Any]]) -> int:
    """Exit code: 1 where a point does not fit in memory or has no number."""
    return int(any(point.get("fits") in ("unlikely", "no") or "error" in point for point in points))


def note(text: str) -> None:
    """Say something beside the answer, on standard error."""
    if not no_notes():
        typer.echo(f"dpsim: {text}", err=True)
