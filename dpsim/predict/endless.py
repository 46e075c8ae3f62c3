"""Runs that would hardly ever end, refused before any is drawn."""

from __future__ import annotations

import math
from statistics import NormalDist

from dpsim.core.record import Refused
from dpsim.life.course import Course
from dpsim.life.recoveries import Recovery, Repair
from dpsim.life.renewal import renewals
from dpsim.life.saving import expected
from dpsim.life.shop import away_for

#: failures of a run beyond which it is refused: no run that anybody would wait for has as many
MOST_FAILURES = 100_000
#: likewise of parts that go by their age, in the time of the steps: their drawn runs take seconds
MOST_EARLY = 20_000
#: probability of having enough nodes below which a job hardly ever runs
_HARDLY = 0.01
_NORMAL = NormalDist()


def check_spares(recovery: Recovery, nodes: int, during: str, fewer: bool) -> None:
    """Refuse spare nodes that are more than the job's, or that are fetched as it cannot be."""
    spares = recovery.spares
    if spares is not None and spares.fetched == "one_by_one" and (fewer or during == "always"):
        said = "the job goes on with fewer nodes" if fewer else "failures strike meanwhile, too"
        raise Refused(
            f"one_by_one is for jobs that wait, with failures.during: running: here {said}; "
            "together is accepted",
            ("recovery", "spares", "fetched"),
        )
    for key in ("warm", "idle"):
        asked = getattr(spares, key) if spares else 0
        if asked > nodes:
            said = f"{asked:,} spare nodes of a job that has {nodes:,}"
            raise Refused(said, ("recovery", "spares", key))


def check(course: Course) -> None:
    """Refuse runs that would hardly ever end."""
    early = sum(renewals(one, course.productive) for one in course.aging)
    if early > MOST_EARLY:
        names = ", ".join(one.name for one in course.aging)
        raise Refused(
            f"parts that are new break so often (distribution and shape of {names}) that a run "
            f"would be interrupted {_many(early)} times; at most {MOST_EARLY:,} are accepted",
            ("failures",),
        )
    _check_windows(course)
    unseen = sum(one.rate for one in (course.slow, course.corrupt) if one)
    rate, saving = course.rate + unseen, course.saving
    mtti = 1.0 / rate if rate > 0 else math.inf
    restart = course.restart if course.always else 0.0
    if rate == 0.0:
        return
    time = expected(course.productive, saving.interval if not course.free else 1e-3 * mtti,
                    saving.cost, restart, mtti)  # fmt: skip
    if time * rate > MOST_FAILURES:
        raise Refused(
            f"something breaks every {mtti:,.4g} s, going on takes {course.restart:,.4g} s, and "
            f"{min(saving.interval, course.productive):,.4g} s of steps lie between checkpoints: "
            f"a run would be interrupted {_many(time * rate)} times; at most {MOST_FAILURES:,} are "
            "accepted",
            ("failures",),
        )
    if course.always:
        _check_pools(course)


def _check_pools(course: Course) -> None:
    """Nodes come back as fast as they go."""
    repair = course.repair
    if repair is not None:
        share, factor = course.bad
        worse = 1.0 + share * (factor - 1.0)
        own = [one for one in course.hazards if one.nodes > 0
               and not (course.reclaimed and one.name == "preemption")]  # fmt: skip
        rates = [one.rate * (worse if one.nodes == 1 else 1.0) for one in own]
        away = away_for(repair, sum(rates), course.productive)
        gone = away * sum(rate * one.nodes for rate, one in zip(rates, own, strict=True))
        if course.reclaimed:
            gone += course.reclaimed.back * sum(
                one.rate * one.nodes for one in course.hazards if one.name == "preemption"
            )
        most = sum(course.pools[1:]) + len(course.speeds) - 1
        if _at_most(most, gone) < _HARDLY:
            raise Refused(
                f"{gone:,.4g} nodes are away at a time in the mean, and {most:,} are spare: "
                f"the job would hardly ever have all of its nodes{_by_whom(repair)}",
                ("recovery", "spares"),
            )


def _by_whom(repair: Repair) -> str:
    if repair.technicians is None:
        return ""
    return f" (repair.technicians: {repair.technicians:,})"


def _check_windows(course: Course) -> None:
    """Between two windows of maintenance the job has to work."""
    found = course.windows
    if found is None:
        return
    anew = course.outages.failure  # announced: nobody has to find out
    takes = found.takes + course.last_save + anew.startup + anew.restore
    if takes >= found.every:
        raise Refused(
            f"a window every {found.every:,.4g} s, which takes {takes:,.4g} s with saving and "
            "starting anew, leaves no time to train",
            ("failures", "maintenance"),
        )


def _many(count: float) -> str:
    return f"{count:,.0f}" if count < 1e12 else "countless"


def _at_most(most: int, mean: float) -> float:
    """Probability that a Poisson number of mean `mean` is at most `most`."""
    if mean > 1e4:  # as a normal number
        return _NORMAL.cdf((most + 0.5 - mean) / math.sqrt(mean))
    logs = (k * math.log(mean) - mean - math.lgamma(k + 1) for k in range(most + 1)) if mean else ()
    return min(math.fsum(map(math.exp, logs)), 1.0) if mean else 1.0
