"""A campaign against lives of runs: what two players say of courses that nobody writes.

    python tests/campaigns/lives.py [--seed 1] [--count 400]

Course number k is made from seed + k: any recovery, spares, repair shops, levels, timers; every
second one is as long as so many intervals between checkpoints, to within rounding.  `abreast` and
`history` must tell two of its runs alike, every second of them with one label, its productive ones
being those of the course, with no more checkpoints than fit; with one more spare node (where
nodes are mended alike and none has to be selected) no run may take longer; and without failures
the run takes what its steps and stops take.  Prints every finding; exits with 1 where there is one.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dpsim.life.abreast import live
from dpsim.life.course import Course
from dpsim.life.history import life_of
from dpsim.life.recoveries import Outage, Repair, Spares
from tests.test_life import drawn, plain
from tests.test_life_levels import rich
from tests.test_life_lost import mortal

RUNS = 2


def course_of(seed: int) -> Course:
    """Any course; of every second one the steps end where a checkpoint would begin."""
    dice = random.Random(seed)
    course = dice.choice([drawn, rich, mortal])(seed)
    course = replace(course, bad=(0.0, 1.0))
    if course.repair is not None and dice.random() < 0.5:
        hands = dice.choice([1, 2, 5])
        course = replace(course, repair=replace(course.repair, technicians=hands))
    if seed % 2 or course.free:
        return course
    step, steps = dice.uniform(0.05, 9.0), dice.randrange(3, 400)
    steps = max(steps, int(2 * (course.saving.pause + course.saving.write) / step))
    whole = round(course.productive / (step * steps)) * steps
    saving = replace(course.saving, interval=steps * step)
    return replace(course, saving=saving, productive=step * max(whole, steps))


def alike(course: Course) -> Iterator[str]:
    """In what both players differ, and what either says that cannot be."""
    runs = live(course, RUNS)
    if (runs.seconds < 0).any():
        yield "a label has less than no time"
    if not np.allclose(runs.seconds.sum(axis=1), runs.times, rtol=1e-9):
        yield "labels do not add up"
    if not np.allclose(runs.seconds[:, 0], course.productive, rtol=1e-9):
        yield "productive seconds are not those that were needed"
    for run in range(RUNS):
        told = life_of(course, run)
        if abs(told.end - runs.times[run]) > 1e-9 * told.end:
            yield f"run {run}: {told.end!r} s beside {runs.times[run]!r} s"
        elif not np.allclose(told.seconds, runs.seconds[run], rtol=1e-7, atol=1e-3):
            yield f"run {run}: labels {told.seconds} beside {runs.seconds[run].tolist()}"
        if tuple(told.failures.values()) != tuple(runs.failures[run]):
            yield f"run {run}: failures {told.failures} beside {runs.failures[run].tolist()}"


def spared(seed: int) -> Iterator[str]:
    """Whether a spare node more ever costs time."""
    dice = random.Random(seed)
    repair = Repair(automatic=dice.choice([60.0, 7200.0]), manual=86400.0, escalates=dice.random())
    warm, idle = dice.randrange(4), dice.randrange(3)
    outage = Outage(dice.choice([0.0, 60.0]), dice.choice([0.0, 300.0]), dice.choice([0.0, 40.0]))
    few, more = (
        plain(outage, always=False, repair=repair, seed=seed, spares=Spares(warm=one, idle=idle))
        for one in (warm, warm + 1)
    )
    worse = live(more, 20).times > live(few, 20).times * (1 + 1e-12)
    if worse.any():
        yield f"a warm node more costs time in run {int(worse.argmax())}"


def unbroken(course: Course) -> Iterator[str]:
    """Whether a run without failures takes its steps, its start and its checkpoints."""
    quiet = replace(course, hazards=(), windows=None, slow=None, corrupt=None, reclaimed=None,
                    levels=(), evaluation=None)  # fmt: skip
    time = float(live(quiet, 1).times[0])
    stops = 0.0 if course.free else max(
        round(course.productive / course.saving.interval * (1 - 1e-12) + 0.5) - 1, 0)  # fmt: skip
    begin = course.outages.begin
    least = course.productive / course.speeds[0] + begin.detection + begin.startup + begin.restore
    most = least + stops * course.saving.cost
    if not least * (1 - 1e-9) <= time <= most * (1 + 1e-9):
        yield f"without failures {time!r} s, not {least!r} to {most!r} s"


def looked_at(seed: int) -> list[str]:
    """What is wrong with the course made from `seed`."""
    try:
        course = course_of(seed)
        return [*alike(course), *unbroken(course), *spared(seed)]
    except Exception:
        return [traceback.format_exc(limit=-3)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=400)
    chosen = parser.parse_args()
    counts = Counter[str]()
    for seed in range(chosen.seed, chosen.seed + chosen.count):
        found = looked_at(seed)
        counts["wrong" if found else "right"] += 1
        for line in found:
            print(f"made from {seed}: {line}", flush=True)
    print(f"{chosen.count:,} courses from seed {chosen.seed}: {counts['wrong']} findings")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
