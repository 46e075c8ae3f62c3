"""The repair shop: who mends broken nodes, and in which order these come back."""

from __future__ import annotations

import math

import numpy as np

from dpsim.life.lanes import Lanes, Places
from dpsim.life.recoveries import Repair


def queued(rate: float, work: float, servers: int) -> float:
    """Mean wait for one of `servers` who take `work` seconds in the mean, each as long as an
    exponential number, where so many come a second [s]: Erlang's C formula (M/M/k; Kleinrock,
    Queueing Systems I, 1975, section 3.5).  Infinite where more come than they can do.

    >>> round(queued(0.5, 1.0, 1), 12)  # M/M/1: rho / (1 - rho)
    1.0
    """
    load = rate * work
    if load >= servers:
        return math.inf
    lost = 1.0  # Erlang's B
    for one in range(1, servers + 1):
        lost = load * lost / (one + load * lost)
    waits = lost / (1.0 - load / servers * (1.0 - lost))
    return waits * work / (servers - load)


def away_for(repair: Repair, rate: float, time: float) -> float:
    """Seconds for which a broken node is away, in the mean, where so many repairs begin a second.
    A run of so much `time` may end before the queue is as long as it would be in the end: until
    then it grows by what is more than technicians can do, and else as a random walk whose steps are
    exponential, with the root of time."""
    away = repair.automatic + repair.escalates * repair.manual
    if repair.technicians is None or rate == 0.0 or repair.manual == 0.0:
        return away
    comes = rate * repair.escalates
    wait = queued(comes, repair.manual, repair.technicians)
    load = comes * repair.manual / repair.technicians
    grown = time * max(load - 1.0, 0.0) / 2.0
    grown += math.sqrt(load * repair.manual * time / repair.technicians)
    return away + repair.escalates * min(wait, grown)


def line_up(s: Lanes, lanes: Places, new: Places, technicians: int, joins: float) -> None:
    """A repair more in each of `lanes`, in column `new` of what is on its way back: when all those
    that no technician has begun come back, first come, first served.

    Who is begun stays so.  When the others come is known until something breaks next, and said
    anew then: what breaks later may be at the shop earlier.

    joins  from being mended until a node works [s]
    """
    there = np.isfinite(s.back[lanes]) & np.isfinite(s.back_due[lanes])
    crowded = there.sum(axis=1) > technicians  # else everybody finds one who is free
    if not crowded.any():
        return
    lanes, new, there = lanes[crowded], new[crowded], there[crowded]
    used = int(np.flatnonzero(there.any(axis=0))[-1]) + 1
    there = there[:, :used]
    back, due, work = (one[lanes, :used] for one in (s.back, s.back_due, s.back_work))
    each, ends = np.arange(len(lanes)), back - joins
    begun = there & (ends - work <= s.now[lanes][:, None])
    begun[each, new] = False
    free = np.sort(np.where(begun, ends, -np.inf), axis=1)[:, -technicians:]
    waiting = np.where(there & ~begun, due, np.inf)
    for _ in range(int(np.isfinite(waiting).sum(axis=1).max())):
        turn, first = waiting.argmin(axis=1), free.argmin(axis=1)
        some = np.isfinite(waiting[each, turn])
        ready = np.maximum(due[each, turn], free[each, first]) + work[each, turn]
        back[each, turn] = np.where(some, ready + joins, back[each, turn])
        free[each, first] = np.where(some, ready, free[each, first])
        waiting[each, turn] = np.inf
    s.back[lanes, :used] = back
    s.soon[lanes] = s.back[lanes].min(axis=1)
