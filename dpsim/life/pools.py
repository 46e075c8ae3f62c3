"""Pools: which nodes take the places of those that a job lacks, and when they are there."""

from __future__ import annotations

import numpy as np

from dpsim.core.arrays import Array
from dpsim.life import draws
from dpsim.life.course import BROKEN, LOST, Course
from dpsim.life.lanes import Lanes, Mask, Places, some_bad


def ask(course: Course, s: Lanes, at: Array) -> None:
    """From time `at` on nodes are on their way to jobs that lack some: cold ones are asked for;
    where others go on meanwhile, warm and idle ones start up."""
    if course.endless:
        return
    s.settle(at, course.spares.warm, course.joins > 0)
    coming = s.ordered(np.arange(len(s))) if course.joins else 0.0
    if (short := s.lack > s.warm + s.idle).any() and not course.one_by_one:
        _order(course, s, np.flatnonzero(short), at)
    if course.joins == 0:
        return
    # warm ones start up even where cold ones are asked for now: these fill up the pool then
    wanted = np.where(BROKEN[s.kind], s.lack - s.ready - coming, 0.0)
    wanted = np.maximum(wanted, 0.0)
    selects = wanted > s.warm
    nodes, bad = _out_of(s, wanted)
    _warm_up(course.spares.warm, s, selects)
    ready = at + np.where(selects, course.selection, 0.0) + course.joins
    if len(some := np.flatnonzero(nodes > 0)):
        s.put(some, ready[some], nodes[some], bad[some], new=True)


def find(course: Course, s: Lanes, at: Array) -> tuple[Array, Array, Mask]:
    """Nodes take the places of those that lack, from time `at` on: when they are found, when
    they are ready, and whether warm ones were enough."""
    needs = s.lack > 0
    if course.endless:
        share = course.bad[0]
        s.bad += np.where(needs, np.floor(s.lack * share + s.last[:, draws.PICK]), 0.0)
        s.lack = np.zeros(len(s))
        return at, at + np.where(needs, course.selection, 0.0), needs & False
    swap = needs & (s.warm >= s.lack) & BROKEN[s.kind] & (s.kind != LOST)
    selects = needs & (s.lack > s.warm)
    if len(course.speeds) > 1:
        selects &= s.idle > 0
    found = (_fetch if course.one_by_one else _await)(course, s, at)
    if course.joins > 0:
        s.lack, s.bad = s.lack - s.ready, s.bad + s.ready_bad
        s.ready, s.ready_bad = np.zeros(len(s)), np.zeros(len(s))
        return found, found, needs & False
    nodes, bad = _out_of(s, s.lack)
    s.lack = s.lack - nodes
    s.bad = s.bad + bad
    _warm_up(course.spares.warm, s, selects)
    return found, found + np.where(selects, course.selection, 0.0), swap


def _order(course: Course, s: Lanes, lanes: Places, at: Array) -> None:
    """Cold nodes are asked for, to fill what is at work and warm."""
    spares = course.spares
    there = s.warm[lanes] + s.idle[lanes] + s.ready[lanes] + s.ordered(lanes)
    wanted = np.maximum(s.lack[lanes] + spares.warm - there, 0.0)
    nodes = np.minimum(wanted, s.cold[lanes])
    bad = some_bad(s.cold_bad[lanes], s.cold[lanes], nodes, s.last[lanes, draws.FILL])
    s.cold[lanes] -= nodes
    s.cold_bad[lanes] -= bad
    if (some := nodes > 0).any():
        ready = at[lanes] + spares.provision + course.joins
        s.put(lanes[some], ready[some], nodes[some], bad[some], new=True)


def _await(course: Course, s: Lanes, at: Array) -> Array:
    """When each run has nodes enough to go on."""
    most = len(course.speeds) - 1
    found = at.copy()
    joins = course.joins > 0
    while (short := s.lack - (s.ready if joins else s.warm + s.idle) > most).any():
        found = np.where(short, np.maximum(found, s.soon), found)
        s.settle(np.where(short, found, -np.inf), course.spares.warm, joins)
    return found


def _fetch(course: Course, s: Lanes, at: Array) -> Array:
    """Cold nodes come one after another, or others back, until job and warm ones are complete: when
    they are."""
    spares, found = course.spares, at.copy()
    begun, wanted = s.lack > s.warm + s.idle, s.lack + spares.warm
    while (short := begun & (s.warm + s.idle < wanted)).any():
        comes = short & (s.cold > 0)
        found = np.where(comes, found + spares.provision, found)
        found = np.where(short & ~comes, np.maximum(found, s.soon), found)
        s.settle(np.where(short, found, -np.inf), spares.warm, False)
        bad = some_bad(s.cold_bad, s.cold, comes.astype(float), s.last[:, draws.FILL])
        warm = comes & (s.warm < spares.warm)
        idle = comes & ~warm
        for pool, some, sign in (("cold", comes, -1), ("warm", warm, 1), ("idle", idle, 1)):
            getattr(s, pool)[:] += sign * some
            getattr(s, f"{pool}_bad")[:] += sign * np.where(some, bad, 0.0)
    return found


def _out_of(s: Lanes, wanted: Array) -> tuple[Array, Array]:
    """So many nodes at most out of the pools, warm ones first: how many, and how many bad."""
    first = np.minimum(wanted, s.warm)
    bad = some_bad(s.warm_bad, s.warm, first, s.last[:, draws.PICK])
    second = np.minimum(wanted - first, s.idle)
    worse = some_bad(s.idle_bad, s.idle, second, s.last[:, draws.PICK])
    s.warm -= first
    s.warm_bad -= bad
    s.idle -= second
    s.idle_bad -= worse
    return first + second, bad + worse


def _warm_up(cap: int, s: Lanes, selects: Mask) -> None:
    """A selection of nodes makes idle ones warm."""
    more = np.where(selects, np.minimum(np.maximum(cap - s.warm, 0.0), s.idle), 0.0)
    bad = some_bad(s.idle_bad, s.idle, more, s.last[:, draws.FILL])
    s.idle -= more
    s.idle_bad -= bad
    s.warm += more
    s.warm_bad += bad
