"""Actors: behaviours that are under way, each resumed by what it waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpsim.compile.behaviour import CAUSES, Behaviour, Occurrence
from dpsim.core.errors import SimulationError

#: how often a behaviour may go on without time passing, before it is taken not to end
_AT_ONCE = 20_000


class Actor:
    """A behaviour of `rank`: what it waits for, and what its time went to by cause [s].

    over  happens when it has ended
    """

    def __init__(
        self, rank: int, behaviour: Behaviour, what: str, now: Callable[[], float]
    ) -> None:
        self.rank, self.what, self._now = rank, what, now
        self._behaviour = behaviour
        self.waits: Occurrence | None = None
        self.over = Occurrence(what)
        self.spent = dict.fromkeys(CAUSES, 0.0)
        self._since = now()
        self._turns = 0

    def begin(self) -> None:
        """It starts, and goes on as far as it can."""
        self._resume(None)

    def _resume(self, value: Any) -> None:
        while True:
            self._check_turns()
            try:
                found = self._behaviour.send(value)
            except StopIteration:
                self._end()
                return
            if not isinstance(found, Occurrence):
                raise SimulationError(
                    f"rank {self.rank} waits for {str(found)[:60]!r}, which is nothing that "
                    "happens; `yield` what a method of the world gives"
                )
            if not found.happened:
                self.waits, self._turns = found, 0
                found.then(self._go_on)
                return
            value = found.value

    def _check_turns(self) -> None:
        self._turns += 1
        if self._turns > _AT_ONCE:
            raise SimulationError(
                f"rank {self.rank} never waits: time stands still at {self._now()} s"
            )

    def _go_on(self, one: Occurrence) -> None:
        self.account(one)
        self.waits = None
        self._resume(one.value)

    def account(self, one: Occurrence) -> None:
        """The time since it last went on was spent waiting for `one`."""
        now = self._now()
        waited, self._since = now - self._since, now
        told = one.spent
        whole = sum(told.values()) if told else 0.0
        if told is None or whole <= 0:
            self.spent[one.cause] += waited
            return
        for cause, seconds in told.items():
            self.spent[cause] += waited * seconds / whole

    def _end(self) -> None:
        self.over.spent = self.spent
        self.over.happen()
