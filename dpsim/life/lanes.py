"""Lanes: the state of many drawn runs, a number each, and the pools of nodes of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from dpsim.core.arrays import Array
from dpsim.life import draws
from dpsim.life.course import BEGIN, LABELS, Course

#: which lanes, and the places of some
Mask = np.ndarray[tuple[Any, ...], np.dtype[np.bool_]]
Places = np.ndarray[tuple[Any, ...], np.dtype[np.intp]]
#: places for nodes that are on their way back, at first
_PLACES = 64


@dataclass
class Lanes:
    """The state of runs that are played abreast: arrays whose first axis is the run.

    run       its place among all that are played
    rates     of what breaks at a constant rate: failures per second, of each node or of the job
    now       [s]
    saved     checkpoints that there are
    since     productive seconds since the last one
    lack      nodes that the job lacks; bad: of those at work
    ready     nodes that have started up, for jobs that went on meanwhile
    hazard    exponential hazard until something breaks; age: the clock that parts age by
    kind      what the job answers to next
    row       the numbers of its next failure; last: of the one before
    back      when nodes come back, how many, how many of them bad, and whether they were ordered;
              when they come to a technician, and for how long: no columns where there are none
    soon      the first of these times
    seconds   by label; failures: by cause
    """

    run: Places
    rates: Array
    now: Array
    saved: Array
    since: Array
    lack: Array
    bad: Array
    warm: Array
    warm_bad: Array
    idle: Array
    idle_bad: Array
    cold: Array
    cold_bad: Array
    ready: Array
    ready_bad: Array
    hazard: Array
    age: Array
    kind: Places
    row: Array
    last: Array
    back: Array
    back_nodes: Array
    back_bad: Array
    back_new: Array
    back_due: Array
    back_work: Array
    soon: Array
    seconds: Array
    failures: Array

    def __len__(self) -> int:
        return len(self.run)

    def only(self, kept: Mask) -> Self:
        """The lanes where `kept` is true."""
        return type(self)(*(getattr(self, one.name)[kept] for one in fields(self)))

    def put(
        self, lanes: Places, at: Array, nodes: Array, bad: Array, new: bool = False
    ) -> Places:  # fmt: skip
        """Nodes of some `lanes` are there again `at` a time [s]: which column has them."""
        free = np.isinf(self.back[lanes])
        if not free.any(axis=1).all():
            self._widen()
            free = np.isinf(self.back[lanes])
        place: Places = free.argmax(axis=1)
        self.back[lanes, place] = at
        self.back_nodes[lanes, place] = nodes
        self.back_bad[lanes, place] = bad
        self.back_new[lanes, place] = new
        if self.back_due.size:
            self.back_due[lanes, place] = np.inf
        self.soon[lanes] = np.minimum(self.soon[lanes], at)
        return place

    def _widen(self) -> None:
        more = self.back.shape
        self.back = np.concatenate([self.back, np.full(more, np.inf)], axis=1)
        for name in ("back_nodes", "back_bad", "back_new", "back_due", "back_work"):
            now = getattr(self, name)
            setattr(self, name, np.concatenate([now, np.zeros(now.shape)], axis=1))

    def settle(self, at: Array, warm: int, joins: bool) -> None:
        """Nodes that are back by then join their pools: where they have started up already
        (`joins`) those that jobs lack are ready, at most `warm` are warm, others idle."""
        while (due := self.soon <= at).any():
            lanes = np.flatnonzero(due)
            place = self.back[lanes].argmin(axis=1)
            nodes, bad = self.back_nodes[lanes, place], self.back_bad[lanes, place]
            if joins:
                first = np.minimum(nodes, np.maximum(self.lack[lanes] - self.ready[lanes], 0.0))
                worst = np.minimum(bad, first)
                self.ready[lanes] += first
                self.ready_bad[lanes] += worst
                nodes, bad = nodes - first, bad - worst
            taken = np.minimum(nodes, np.maximum(warm - self.warm[lanes], 0.0))
            worse = np.minimum(bad, taken)
            self.warm[lanes] += taken
            self.warm_bad[lanes] += worse
            self.idle[lanes] += nodes - taken
            self.idle_bad[lanes] += bad - worse
            self.back[lanes, place] = np.inf
            self.soon[lanes] = self.back[lanes].min(axis=1)

    def ordered(self, lanes: Places) -> Array:
        """Nodes that were asked for and are not there yet."""
        waiting = np.isfinite(self.back[lanes]) * self.back_new[lanes]
        made: Array = (waiting * self.back_nodes[lanes]).sum(axis=1)
        return made


#: what a pick changes, and takes back where a failure comes first
POOLS = ("lack", "bad", "warm", "warm_bad", "idle", "idle_bad", "cold", "cold_bad", "ready",
         "ready_bad", "back", "back_nodes", "back_bad", "back_new", "back_due", "back_work",
         "soon")  # fmt: skip


def start(course: Course, runs: Sequence[int], rates: Array, first: Array) -> Lanes:
    """The lanes of `runs` before anything has happened, with their `rates`; `first` are their
    first rows."""
    count = len(runs)
    dealt = np.array(
        [draws.first_bad(course.seed, run, course.pools, course.bad[0]) for run in runs], float
    )
    shop = _PLACES if course.technicians else 0
    pools = np.tile(np.array(course.pools, float), (count, 1))

    def zeros(*shape: int) -> Array:
        return np.zeros((count, *shape))

    return Lanes(
        run=np.arange(count), rates=rates,
        now=zeros(), saved=zeros(), since=zeros(), lack=zeros(), bad=dealt[:, 0],
        warm=pools[:, 1], warm_bad=dealt[:, 1], idle=pools[:, 2], idle_bad=dealt[:, 2],
        cold=pools[:, 3], cold_bad=dealt[:, 3], ready=zeros(), ready_bad=zeros(),
        hazard=draws.gap(first), age=zeros(), kind=np.full(count, BEGIN), row=first,
        last=first.copy(), back=np.full((count, _PLACES), np.inf),
        back_nodes=zeros(_PLACES), back_bad=zeros(_PLACES), back_new=zeros(_PLACES),
        back_due=zeros(shop), back_work=zeros(shop),
        soon=np.full(count, np.inf), seconds=zeros(len(LABELS)),
        failures=zeros(len(course.hazards)),
    )  # fmt: skip


def some_bad(bad: Array, whole: Array, taken: Array, uniform: Array) -> Array:
    """How many of `taken` nodes out of `whole`, `bad` of them bad, are bad: the mean, rounded up
    with the probability of its fraction."""
    share = taken * bad / np.maximum(whole, 1.0)
    made = np.floor(share + uniform)
    found: Array = np.minimum(np.maximum(made, taken - (whole - bad)), np.minimum(bad, taken))
    return found
