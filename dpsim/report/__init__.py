"""Report: tables, plots, pages and files; it prints, draws and writes, and never plays."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def canonical_json(document: Any) -> str:
    """`document` as JSON text; a number that is not finite is an error, not a word."""
    return json.dumps(_checked(document, "document"), indent=2, ensure_ascii=False, allow_nan=False)


def _checked(value: Any, where: str) -> Any:
    if isinstance(value, dict):
        return {str(key): _checked(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_checked(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        from dpsim.core.errors import SimulationError

        raise SimulationError(f"{where} is {value}, which is no number")
    return value


def console() -> Console:
    """The terminal: colours only where it is one; NO_COLOR is honoured by rich."""
    from rich.console import Console

    found = Console()
    return found if found.is_terminal else Console(width=118, highlight=False)
