"""Strict JSON: no key twice, nothing that is not finite, no more levels than the parser follows.

>>> loads('{"a": 1, "a": 2}')
Traceback (most recent call last):
    ...
dpsim.core.refusals.Refused: gives the key 'a' twice
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NoReturn

from dpsim.core.record import Refused


def loads(text: str) -> Any:
    """The data in `text`; Refused where it is no strict JSON."""
    try:
        return json.loads(text, parse_constant=_constant, object_pairs_hook=_mapping)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) - 1 or "Unterminated" in error.msg
        what = "JSON that was cut short" if cut else "not JSON"
        raise Refused(f"is {what}: {error.msg.lower()} on line {error.lineno}") from None
    except RecursionError:
        raise Refused("is nested too deeply") from None
    except Refused:
        raise
    except ValueError:  # a whole number of more digits than Python converts
        raise Refused("holds a number that is out of range") from None


def digest(data: Any) -> str:
    """The SHA-256 of plain `data`, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _constant(name: str) -> NoReturn:
    raise Refused(f"holds {name}, which is not finite")


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in found if keys.count(key) > 1)
        raise Refused(f"gives the key {twice[:60]!r} twice")
    return found
