"""Pools: which nodes take the places of those that a job lacks, and when they are there."""

from __future__ import annotations

import numpy as np

from dpsim.core.arrays import Array
from dpsim.life import draws
from dpsim.life.course import Course
from dpsim.life.lanes import Lanes, Mask, Places, some_bad


def pick(course: Course, s: Lanes, at: Array) -> tuple[Array, Array, Mask]:
    """Nodes take the places of those that lack, from time `at` on: when they are found, when
    they are ready, and whether warm ones were enough."""
    needs = s.lack > 0
    if course.endless:
        share = course.bad[0]
        s.bad += np.where(needs, np.floor(s.lack * share + s.last[:, draws.PICK]), 0.0)
        s.lack = np.zeros(len(s))
        return at, at + np.where(needs, course.selection, 0.0), needs & False
    s.settle(at, course.spares.warm)
    swap = needs & (s.warm >= s.lack)
    selects = needs & ~swap
    found = at
    if (short := selects & (s.lack > s.warm + s.idle)).any():
        _order(course, s, np.flatnonzero(short), at)
        found = _await(course, s, at)
    _take(course.spares.warm, s, selects)
    return found, found + np.where(selects, course.selection, 0.0), swap


def _order(course: Course, s: Lanes, lanes: Places, at: Array) -> None:
    """Cold nodes are asked for, to fill what is at work and warm."""
    spares = course.spares
    there = s.warm[lanes] + s.idle[lanes] + s.ordered(lanes)
    wanted = np.maximum(s.lack[lanes] + spares.warm - there, 0.0)
    nodes = np.minimum(wanted, s.cold[lanes])
    bad = some_bad(s.cold_bad[lanes], s.cold[lanes], nodes, s.last[lanes, draws.FILL])
    s.cold[lanes] -= nodes
    s.cold_bad[lanes] -= bad
    if (some := nodes > 0).any():
        ready = at[lanes] + spares.provision
        s.put(lanes[some], ready[some], nodes[some], bad[some], new=True)


def _await(course: Course, s: Lanes, at: Array) -> Array:
    """When each run has nodes enough to go on."""
    most = len(course.speeds) - 1
    found = at.copy()
    while (short := s.lack - s.warm - s.idle > most).any():
        found = np.where(short, np.maximum(found, s.soon), found)
        s.settle(np.where(short, found, -np.inf), course.spares.warm)
    return found


def _take(cap: int, s: Lanes, selects: Mask) -> None:
    """Warm nodes first, then idle ones; a selection makes idle ones warm."""
    first = np.minimum(s.lack, s.warm)
    bad = some_bad(s.warm_bad, s.warm, first, s.last[:, draws.PICK])
    second = np.minimum(s.lack - first, s.idle)
    worse = some_bad(s.idle_bad, s.idle, second, s.last[:, draws.PICK])
    s.warm -= first
    s.warm_bad -= bad
    s.idle -= second
    s.idle_bad -= worse
    s.lack = s.lack - first - second
    s.bad = s.bad + bad + worse
    more = np.where(selects, np.minimum(np.maximum(cap - s.warm, 0.0), s.idle), 0.0)
    fill = some_bad(s.idle_bad, s.idle, more, s.last[:, draws.FILL])
    s.idle -= more
    s.idle_bad -= fill
    s.warm += more
    s.warm_bad += fill
