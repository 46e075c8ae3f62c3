"""What a case of many points has from cases of single ones, which take nothing from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpsim.cases.chapters import Chapters
from dpsim.cases.costs import Transport
from dpsim.cases.site import Site
from dpsim.cases.work import ModelWork, Seats

#: chapters that look nothing up by whether numbers are equal that may be those of many points
_LENT = (Site, Seats, ModelWork, Transport)


class Borrowed(Chapters):
    """Chapters of a case whose numbers are of many points (`dpsim.core.many`).

    Chapters of `lender` that depend on the very same things hold here too.  Nothing is compared: to
    ask whether numbers are equal would part the points.
    """

    def __init__(self, lender: Chapters) -> None:
        super().__init__()
        self._lender = lender

    def _equal(self, make: Callable[..., Any], depends: tuple[Any, ...]) -> Any:
        lent = self._lender.there(make, *depends) if make in _LENT else None
        return make(*depends) if lent is None else lent
