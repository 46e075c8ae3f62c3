"""The network at run time: links shared max-min fairly by flows.

A flow loads some links; all its bytes move in lock step.  Rates are max-min fair: raise all rates
together until a link is full, freeze the flows on it, go on with the rest (progressive filling;
Bertsekas and Gallager, Data Networks, section 6.5.2).  Fluid: no packets, no congestion control.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import simpy

from dpsim.backends import Plan

#: flows whose remaining time is below this share of their own length end now: without it, equal
#: flows would end one rounding error apart and multiply events
_SAME_INSTANT = 1e-13
#: links whose levels differ by less, as a share, are full together
_SAME_LEVEL = 1e-12


@dataclass(eq=False)
class _Flow:
    """`loads` is what each link carries, in proportion; `size` and `left` are the bytes of the
    most loaded link, `alone` is its rate without other flows."""

    loads: Mapping[Any, float]
    size: float
    left: float
    alone: float
    done: simpy.Event
    rate: float = 0.0

    @cached_property
    def crossings(self) -> Mapping[Any, float]:
        """How often the flow crosses each link, relative to its most loaded one."""
        most = max(self.loads.values())
        return {link: load / most for link, load in self.loads.items() if load > 0.0}

    @cached_property
    def demand(self) -> Mapping[Any, float]:
        """What the flow asks of each link when it goes at its own pace [B/s]."""
        return {link: crossing * self.alone for link, crossing in self.crossings.items()}


class SharedLinks:
    """Flows in progress on links of known capacity [B/s]."""

    def __init__(self, env: simpy.Environment, capacity: Callable[[Any], float]) -> None:
        self._env = env
        self._capacity = capacity
        self._flows: list[_Flow] = []
        self._demand: dict[Any, float] = {}
        self._full: set[Any] = set()
        self._updated = env.now
        self._version = 0
        self._pending = False

    def transfer(
        self, loads: Mapping[Any, float], alone: float | None = None, size: float | None = None
    ) -> simpy.Event:
        """Move `loads[link]` bytes over each link, all in lock step; the event fires at the end.

        A caller that knows them gives the time that this takes on idle links, `alone` [s], and the
        bytes of the most loaded link, `size`; `loads` then only states proportions.
        """
        done = self._env.event()
        if size is None:
            size = max(loads.values(), default=0.0)
        if size <= 0.0:
            return done.succeed()
        if alone is None:
            alone = max(load / self._capacity(link) for link, load in loads.items())
        self._advance()
        flow = _Flow(loads, size, size, size / alone, done)
        self._flows.append(flow)
        for link, asked in flow.demand.items():
            self._demand[link] = demand = self._demand.get(link, 0.0) + asked
            if demand > self._capacity(link) * (1.0 + _SAME_LEVEL):
                self._full.add(link)
        self._replan()
        return done

    def _room(self, link: Any) -> float:
        return link.alone if isinstance(link, _Flow) else self._capacity(link)

    def _advance(self) -> None:
        elapsed = self._env.now - self._updated
        self._updated = self._env.now
        for flow in self._flows:
            flow.left -= flow.rate * elapsed

    def _replan(self) -> None:
        """Recompute the rates once, after everything that happens at this instant."""
        self._version += 1
        if not self._pending:
            self._pending = True
            self._later(0.0, self._plan)

    def _later(self, delay: float, act: Callable[[], None]) -> None:
        """Do `act` after `delay` seconds; a process would cost three events more."""
        callbacks = self._env.timeout(delay).callbacks
        assert callbacks is not None
        callbacks.append(lambda _: act())

    def _plan(self) -> None:
        self._pending = False
        self._advance()
        self._finish()
        self._share()
        if self._flows:
            first = min(flow.left / flow.rate for flow in self._flows)
            version = self._version
            self._later(max(first, 0.0), lambda: self._wake(version))

    def _share(self) -> None:
        """Set the rate of every flow.

        A flow that crosses no link of which more is asked than it has goes at its own pace, and
        the other links of those that do are never full.
        """
        full, slowed = self._full, []
        for flow in self._flows:
            flow.rate = flow.alone
            if full and not full.isdisjoint(flow.crossings):
                slowed.append(flow)
        if not slowed:
            return
        # its own pace is a limit too: a sender slower than its links leaves the rest to others
        limits: list[dict[Any, float]] = [
            {flow: 1.0} | {link: c for link, c in flow.crossings.items() if link in full}
            for flow in slowed
        ]
        for flow, rate in zip(slowed, fair_rates(limits, self._room), strict=True):
            flow.rate = rate

    def _wake(self, version: int) -> None:
        if version == self._version:
            self._advance()
            soonest = min(flow.left / flow.rate for flow in self._flows)
            for flow in self._flows:
                if flow.left / flow.rate <= soonest + _SAME_INSTANT * self._env.now:
                    flow.left = 0.0
            self._finish()
            self._replan()

    def _finish(self) -> None:
        ended = [flow for flow in self._flows if flow.left <= flow.size * _SAME_INSTANT]
        if ended:
            gone = {id(flow) for flow in ended}
            self._flows = [flow for flow in self._flows if id(flow) not in gone]
            for flow in ended:
                flow.done.succeed()
                self._release(flow)

    def _release(self, flow: _Flow) -> None:
        for link, asked in flow.demand.items():
            capacity, demand = self._capacity(link), self._demand[link] - asked
            self._demand[link] = demand
            if demand <= capacity * (1.0 + _SAME_LEVEL):
                self._full.discard(link)
            # what is left when nobody crosses a link any more is rounding
            if demand <= _SAME_LEVEL * capacity:
                del self._demand[link]


def together(plans: Sequence[Plan], capacity: Callable[[Any], float]) -> tuple[float, ...]:
    """When each of `plans` ends [s], if all start at once on links of `capacity` [B/s]."""
    env = simpy.Environment()
    network = SharedLinks(env, capacity)
    ends = [0.0] * len(plans)

    def played(number: int) -> Generator[simpy.Event, Any, None]:
        yield env.timeout(plans[number].launch)
        for phase in plans[number].phases:
            yield env.timeout(phase.latency + (0.0 if phase.loads else phase.seconds))
            if phase.loads:
                yield network.transfer(phase.loads, phase.seconds, phase.size)
        ends[number] = env.now

    for number in range(len(plans)):
        env.process(played(number))
    env.run()
    return tuple(ends)


def fair_rates(
    flows: Sequence[Mapping[Any, float]], capacity: Callable[[Any], float]
) -> list[float]:
    """Max-min fair rates of `flows`, each a map from link to how often it crosses it.

    All links that are full at the same level are frozen at once, so symmetric flows take one round
    however many they are.  A flow that crosses nothing has an infinite rate.
    """
    crossings = [(f, link, c) for f, flow in enumerate(flows) for link, c in flow.items() if c > 0]
    links = {link: k for k, link in enumerate(dict.fromkeys(link for _, link, _ in crossings))}
    rates = np.full(len(flows), np.inf)
    flow_of = np.array([f for f, _, _ in crossings], dtype=int)
    link_of = np.array([links[link] for _, link, _ in crossings], dtype=int)
    weight = np.array([c for _, _, c in crossings], dtype=float)
    free = np.array([capacity(link) for link in links], dtype=float)
    while len(weight):
        total = np.bincount(link_of, weight, len(links))
        level = np.divide(free, total, out=np.full(len(links), np.inf), where=total > 0)
        lowest = max(float(level.min()), 0.0)
        frozen = np.zeros(len(flows), dtype=bool)
        frozen[flow_of[level[link_of] <= lowest * (1.0 + _SAME_LEVEL)]] = True
        rates[frozen] = lowest
        gone = frozen[flow_of]
        free -= lowest * np.bincount(link_of[gone], weight[gone], len(links))
        flow_of, link_of, weight = flow_of[~gone], link_of[~gone], weight[~gone]
    return [float(rate) for rate in rates]
