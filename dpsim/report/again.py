"""Answers printed again: the JSON of a command as the tables that the command prints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsim.core import jsonfile
from dpsim.core.files import read_text
from dpsim.core.record import Refused
from dpsim.planning.swept import GridAnswer
from dpsim.predict.answer import SCHEMA_VERSION, Answer
from dpsim.predict.document import from_json
from dpsim.predict.explanation import Explanation
from dpsim.report.compare import print_comparison
from dpsim.report.explained import print_explanation
from dpsim.report.plan import print_plan
from dpsim.report.run import print_answer
from dpsim.report.sweep import print_sweep

if TYPE_CHECKING:
    from rich.console import Console

#: bytes of an answer
MOST = 200_000_000


def show_answer(path: Path, console: Console) -> None:
    """Print the answer of run, explain, sweep, compare or plan that the file at `path` holds.

    Refused where it holds none, or one of another version of dpsim's answers."""
    try:
        _print(_read(path), console)
    except Refused as error:
        raise Refused(f"{path.name}: {error.message}") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
        raise Refused(f"{path.name}: is no whole answer of dpsim ({error})") from None


def _read(path: Path) -> Mapping[str, Any]:
    found = jsonfile.loads(read_text(path, MOST))
    version = found.get("schema_version") if isinstance(found, dict) else None
    if version is None:
        raise Refused(
            "is no answer: what run, explain, sweep, compare and plan say as JSON is; dpsim import "
            "tells what other files are"
        )
    if version != SCHEMA_VERSION:
        raise Refused(f"answers of version {SCHEMA_VERSION} are shown, this one has {version!r}")
    answer: Mapping[str, Any] = found
    return answer


def _print(found: Mapping[str, Any], console: Console) -> None:
    if "candidates" in found:
        print_comparison(found, console, "")
    elif "question" in found:
        print_plan(found, console, "")
    elif "grid" in found:
        print_sweep(from_json(GridAnswer, found), console, "")
    elif any("critical_path" in point for point in found["points"]):
        print_explanation(from_json(Explanation, found), console)
    else:
        print_answer(from_json(Answer, found), console)
