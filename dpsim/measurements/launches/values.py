"""Values as configurations write them: "auto", quoted numbers, flags; and the lines they are on."""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping
from typing import Any

from dpsim.core.record import Refused

AUTO = "auto"
_KEY = re.compile(r"(?<![^\s{,\"'])[\"']?([^\s{,\"':]+)[\"']?\s*:")


def whole(value: Any, what: str) -> int | None:
    """A whole number, also as text; None for "auto" and nothing.  Refused for anything else."""
    if value in (None, AUTO, ""):
        return None
    try:
        number = float(value)
        if isinstance(value, bool) or number != int(number) or not 0 <= number < 10**15:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise Refused(f"{what}: {str(value)[:40]!r} is no whole number") from None
    return int(number)


def count(value: Any, what: str) -> int | None:
    """The same of something that there is at least one of; Refused for 0."""
    found = whole(value, what)
    if found == 0:
        raise Refused(f"{what}: 0 is less than 1")
    return found


def truth(value: Any) -> bool | None:
    """true or false, also as text or number; None for "auto" and nothing else known."""
    word = str(value).strip().lower()
    if word in ("true", "yes", "1", "on"):
        return True
    if word in ("false", "no", "0", "off"):
        return False
    return None


def section(data: Any, key: str) -> Mapping[str, Any]:
    """The mapping under `key`, an empty one where there is none; Refused where it is no mapping."""
    found = data.get(key)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise Refused(f"{key}: {str(found)[:40]!r} where a mapping is needed")
    return found


class Where:
    """On which line a key of a JSON or YAML text stands."""

    def __init__(self, text: str) -> None:
        self._lines: dict[str, list[int]] = {}
        for number, line in enumerate(text.splitlines(), 1):
            for found in _KEY.finditer(line):
                self._lines.setdefault(found[1], []).append(number)

    def __call__(self, key: str, under: str = "") -> int:
        """The line of `key`, of the first one behind `under`; 0 where it is not found."""
        return self._first(key, self._first(under, 1) if under else 1)

    def _first(self, key: str, start: int) -> int:
        lines = self._lines.get(key, [])
        place = bisect.bisect_left(lines, start)
        return lines[place] if place < len(lines) else 0
