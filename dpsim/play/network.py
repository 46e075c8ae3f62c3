"""The network at run time: links shared max-min fairly by flows.

A flow loads some links; all its bytes move in lock step.  Rates are max-min fair (`fair_rates`).
Fluid: no packets, no congestion control.

A flow that shares no link goes at its own pace and costs one event.  Only where flows share links
is there an account of what is asked of each; only where more is asked than there is are rates
worked out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from math import inf
from typing import Any

import numpy as np
import simpy

from dpsim.backends import Plan
from dpsim.machines.loads import Loads
from dpsim.play.clock import Act, Alarm, Clock, alarm
from dpsim.play.fairness import SAME_LEVEL, fair_rates

#: flows whose remaining time is below this share of their own length end now: without it, equal
#: flows would end one rounding error apart and multiply events
_SAME_INSTANT = 1e-13


class FlowShape:
    """What a flow is like: how often it crosses each link, and how fast it goes by itself.

    loads     bytes on each link of `network`, in proportion; `most` on the most loaded one
    size      bytes of its most loaded link
    pace      its rate without other flows [B/s]
    overfull  whether it asks more of a link than that has, all by itself
    """

    def __init__(
        self, network: SharedLinks, loads: Mapping[Any, float], most: float, size: float,
        pace: float, overfull: bool,
    ) -> None:  # fmt: skip
        self._network, self._loads, self._most = network, loads, most
        self.size, self.pace, self.overfull = size, pace, overfull

    @cached_property
    def crossings(self) -> list[tuple[int, float]]:
        """Numbers of links, and how often it crosses each, relative to its most loaded one."""
        number, most = self._network.number, self._most
        return [(number(link), load / most) for link, load in self._loads.items() if load > 0]

    @cached_property
    def links(self) -> int:
        """The numbers of its links, as bits; found out when another flow is there."""
        numbers = [number for number, _ in self.crossings]
        bits = np.zeros(max(numbers, default=0) + 1, dtype=np.uint8)
        bits[numbers] = 1
        return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


class _Flow:
    """A flow in progress: `left` bytes at time `since` of its most loaded link, going at `rate`."""

    __slots__ = ("alarm", "left", "links", "rate", "shape", "since", "then")

    def __init__(self, links: SharedLinks, shape: FlowShape, then: Act) -> None:
        env = links.env
        self.links, self.shape, self.then = links, shape, then
        self.left, self.rate, self.since = shape.size, shape.pace, env.now
        self.alarm: Alarm | None = alarm(env, self.end, shape.size / shape.pace)

    def end(self, _: object) -> None:
        self.links.end(self)

    def advance(self, now: float) -> None:
        self.left -= self.rate * (now - self.since)
        self.since = now

    @property
    def through(self) -> bool:
        return self.left <= self.shape.size * _SAME_INSTANT


#: what carrying out a plan is made of: its launch and first wait [s], then waits and flows
Parts = tuple[float, float, tuple[float | FlowShape, ...]]


class SharedLinks:
    """Flows in progress on links of known capacity [B/s].

    A link in use is either one flow's that shares none (`_apart`), or there is an account of what
    is asked of it by those that may (`_among`).  The latter go at their own pace too, but for those
    on a link of which more is asked than it has (`_slowed`).
    """

    def __init__(self, env: simpy.Environment, capacity: Callable[[Any], float]) -> None:
        self.env = env
        self._capacity_of = capacity
        self._numbers: dict[Any, int] = {}
        self._capacity: list[float] = []
        self._asked: list[float] = []
        self._apart: dict[_Flow, None] = {}
        self._among: dict[_Flow, None] = {}
        self._slowed: dict[_Flow, None] = {}
        #: links as bits: of flows apart (None: not known, one flow is alone on all of them), of
        #: those among, and those of which too much is asked
        self._alone: int | None = 0
        self._shared = self._full = 0
        self._wake: Alarm | None = None
        self._pending = False

    def transfer(
        self, loads: Mapping[Any, float], alone: float | None = None, size: float | None = None
    ) -> simpy.Event:
        """Move `loads[link]` bytes over each link, all in lock step; the event fires at the end.

        A caller that knows them gives the time that this takes on idle links, `alone` [s], and the
        bytes of the most loaded link, `size`; `loads` then only states proportions.
        """
        done = self.env.event()
        shape = self.shape(loads, alone, size)
        if shape is None:
            return done.succeed()

        def through(_: object) -> None:
            done.succeed()

        self.start(shape, through)
        return done

    def shape(
        self, loads: Mapping[Any, float], alone: float | None = None, size: float | None = None
    ) -> FlowShape | None:
        """The shape of such a flow, to be started any number of times; None if nothing moves."""
        if not loads or (size is not None and size <= 0.0):
            return None
        most, quickest = self._extent(loads)
        size = most if size is None else size
        if size <= 0.0:
            return None
        alone = quickest if alone is None else alone
        overfull = quickest * size > alone * most * (1.0 + SAME_LEVEL)
        return FlowShape(self, loads, most, size, size / alone, overfull)

    def _extent(self, loads: Mapping[Any, float]) -> tuple[float, float]:
        """The bytes of the most loaded link, and how long it takes until all are through [s]."""
        if isinstance(loads, Loads):
            return loads.most, loads.slowest[0]
        times = (load / self._capacity_of(link) for link, load in loads.items())
        return max(loads.values()), max(times)

    def start(self, shape: FlowShape, then: Act) -> None:
        """Start a flow; `then` is called when it is through."""
        flow = _Flow(self, shape, then)
        if not (self._apart or self._among or shape.overfull):
            self._apart[flow], self._alone = None, None
            return
        taken = self._taken()
        if shape.overfull or shape.links & (taken | self._shared):
            self._mix(flow)
        else:
            self._apart[flow], self._alone = None, taken | shape.links

    def _taken(self) -> int:
        """The links of flows apart, as bits."""
        if self._alone is None:
            self._alone = 0
            for flow in self._apart:
                self._alone |= flow.shape.links
        return self._alone

    def left(self, now: float) -> dict[Act, float]:
        """Of every flow in progress, by what it calls at its end: bytes that its most loaded link
        has yet to carry at `now` [s]."""
        flows = (*self._apart, *self._among)
        return {f.then: max(f.left - f.rate * (now - f.since), 0.0) for f in flows}

    def capacity(self, link: Any) -> float:
        """What a link carries [B/s]."""
        return self._capacity_of(link)

    def number(self, link: Any) -> int:
        """The number of a link here."""
        if link not in self._numbers:
            self._numbers[link] = len(self._numbers)
            self._capacity.append(self._capacity_of(link))
            self._asked.append(0.0)
        return self._numbers[link]

    def _room(self, link: int) -> float:
        """What may be asked of a link: its capacity, and a little for rounding."""
        return self._capacity[link] * (1.0 + SAME_LEVEL)

    def _mix(self, flow: _Flow) -> None:
        """`flow` shares links: it, and those that it meets, are accounted for."""
        met = [other for other in self._apart if other.shape.links & flow.shape.links]
        taken = self._taken()
        for other in met:
            del self._apart[other]
            taken ^= other.shape.links
        self._alone = taken
        for one in (*met, flow):
            self._among[one] = None
            self._shared |= one.shape.links
            for link, crossing in one.shape.crossings:
                self._asked[link] += crossing * one.shape.pace
                if self._asked[link] > self._room(link):
                    self._full |= 1 << link
        if self._full & flow.shape.links:
            self._replan()

    def _replan(self) -> None:
        """Work out the rates once, after everything that happens at this instant."""
        if not self._pending:
            self._pending = True
            alarm(self.env, self._plan)

    def _plan(self, _: object) -> None:
        """Set the rates of the flows on full links, and of those that no longer are.

        A flow that crosses no link of which more is asked than it has goes at its own pace, and
        the other links of those that do are never full.
        """
        self._pending, now = False, self.env.now
        slowed = {flow: None for flow in self._among if flow.shape.links & self._full}
        before, self._slowed = self._slowed, slowed
        for flow in before.keys() | slowed.keys():
            flow.advance(now)
        for flow in before:
            if flow not in slowed:
                flow.rate = flow.shape.pace
                flow.alarm = alarm(self.env, flow.end, max(flow.left / flow.rate, 0.0))
        self._slow_down()

    def _slow_down(self) -> None:
        """Give every flow on full links its fair rate, and wake up at the first one's end."""
        if self._wake is not None:
            self._wake.call_off()
            self._wake = None
        for flow in [flow for flow in self._slowed if flow.through]:
            self.end(flow)
        flows = list(self._slowed)
        if not flows:
            return
        rates = fair_rates([self._limits(flow, k) for k, flow in enumerate(flows)], self._limit)
        first = inf
        for flow, rate in zip(flows, rates, strict=True):
            if flow.alarm is not None:
                flow.alarm.call_off()
                flow.alarm = None
            flow.rate = rate
            first = min(first, flow.left / rate)
        self._wake = alarm(self.env, self._woken, max(first, 0.0))

    def _limits(self, flow: _Flow, place: int) -> dict[Any, float]:
        """How often it crosses full links; its own pace is a limit too: a sender slower than its
        links leaves the rest to others."""
        crossed = {link: c for link, c in flow.shape.crossings if self._full >> link & 1}
        return {(place, flow.shape.pace): 1.0} | crossed

    def _limit(self, link: Any) -> float:
        return float(link[1]) if isinstance(link, tuple) else self._capacity[link]

    def _woken(self, _: object) -> None:
        """The flow on full links that is through first is through, with those at the same time."""
        self._wake, now = None, self.env.now
        for flow in self._slowed:
            flow.advance(now)
        soonest = min(flow.left / flow.rate for flow in self._slowed)
        for flow in list(self._slowed):
            if flow.left / flow.rate <= soonest + _SAME_INSTANT * now:
                self.end(flow)
        self._replan()

    def end(self, flow: _Flow) -> None:
        """`flow` is through."""
        if flow in self._apart:
            del self._apart[flow]
            if self._alone is not None:
                self._alone ^= flow.shape.links
        else:
            self._leave(flow)
        flow.then(None)

    def _leave(self, flow: _Flow) -> None:
        """Take `flow` out of the account."""
        del self._among[flow]
        self._slowed.pop(flow, None)
        if flow.alarm is not None:
            flow.alarm.call_off()
        if not self._among:
            self._shared = 0
        crossed = self._full & flow.shape.links
        for link, crossing in flow.shape.crossings:
            asked = self._asked[link] - crossing * flow.shape.pace
            # what is left when nobody crosses a link any more is rounding
            self._asked[link] = asked if asked > SAME_LEVEL * self._capacity[link] else 0.0
            if crossed and asked <= self._room(link):
                self._full &= ~(1 << link)
        if crossed:
            self._replan()


class Passage:
    """A plan that is carried out: its waits and flows one after the other, and then `over`."""

    __slots__ = ("_clock", "_links", "_parts", "_place")

    def carry_out(self, clock: Clock, links: SharedLinks, time: float, parts: Parts) -> None:
        """Begin at `time` [s], which must not be past."""
        launch, first, self._parts = parts
        self._clock, self._links, self._place = clock, links, 0
        clock.at(time + launch + first, self._go_on)

    def _go_on(self, _: object) -> None:
        if self._place == len(self._parts):
            self.over()
            return
        part = self._parts[self._place]
        self._place += 1
        if isinstance(part, FlowShape):
            self._links.start(part, self._go_on)
        else:
            self._clock.at(self._clock.now + part, self._go_on)

    def over(self) -> None:
        """What happens at the end, at once."""
        raise NotImplementedError

    def to_go(self, left: Mapping[Act, float]) -> float | None:
        """The share of its bytes that has not moved, where so many are `left` of flows in progress;
        None where none of its parts loads a link."""
        every = [part.size for part in self._parts if isinstance(part, FlowShape)]
        if not every:
            return None
        rest = self._parts[self._place :]
        waiting = sum(part.size for part in rest if isinstance(part, FlowShape))
        return (waiting + left.get(self._go_on, 0.0)) / sum(every)


def parts(plan: Plan, links: SharedLinks) -> Parts:
    """What carrying out `plan` is made of."""
    first, found = 0.0, list[float | FlowShape]()
    for number, phase in enumerate(plan.phases):
        wait = phase.latency if phase.loads else phase.latency + phase.seconds
        if number == 0:
            first = max(wait, 0.0)
        elif wait > 0:
            found.append(wait)
        if phase.loads and (shape := links.shape(phase.loads, phase.seconds, phase.size)):
            found.append(shape)
    return plan.launch, first, tuple(found)


class _Timed(Passage):
    """A passage that notes when it is over."""

    def over(self) -> None:
        self.end = float(self._clock.now)


def together(plans: Sequence[Plan], capacity: Callable[[Any], float]) -> tuple[float, ...]:
    """When each of `plans` ends [s], if all start at once on links of `capacity` [B/s]."""
    clock = Clock()
    links = SharedLinks(clock, capacity)
    passages = [_Timed() for _ in plans]
    for passage, plan in zip(passages, plans, strict=True):
        passage.carry_out(clock, links, 0.0, parts(plan, links))
    clock.run()
    return tuple(passage.end for passage in passages)


__all__ = [
    "FlowShape", "Parts", "Passage", "SharedLinks", "fair_rates", "parts", "together",
]  # fmt: skip
