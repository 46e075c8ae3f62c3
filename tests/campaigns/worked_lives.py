"""A campaign against runs with failures: closed forms and a small simulation with other numbers.

    python tests/campaigns/worked_lives.py [--seed 1] [--count 20]

Setting number k is made from seed + k.  Two of five are Daly's exact form (equation 20 of FGCS
22(3), 2006) and Young's interval, three are AIReSim's model with other failure rates, spares, bad
servers and repair times (arXiv:2603.07041), played server by server by `simulated` below, which
shares nothing with dpsim.  Means of drawn runs have to be within three standard errors of the
difference.  Prints every setting; exits with 1 where one is not.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dpsim.describe.scenario import load
from dpsim.life.saving import young
from dpsim.predict.prediction import predict

RUNS, DRAWN = 60, 300
MINUTE, HOUR = 60.0, 3600.0


def job(nodes: int, minutes: int, **more: Any) -> dict[str, Any]:
    """A job of so many nodes whose steps of a minute take so many minutes."""
    layer = {"name": "all", "parameters": 1, "forward": "20 s", "backward": "40 s"}
    return {
        "model": {"layers": [layer]}, "cluster": {"ranks": nodes},
        "collective": {"backend": "free"}, "strategy": {"kind": "ddp"},
        "optimizer": {"kind": "none"}, "training": {"samples": nodes * minutes}, **more,
    }  # fmt: skip


def said(asked: dict[str, Any]) -> Any:
    """The point that dpsim predicts."""
    return predict(load(asked, Path(), "worked")).points[0]


# -- Daly and Young -------------------------------------------------------------------------------


def daly(dice: random.Random) -> tuple[str, float, float, float]:
    """Its exact mean, and dpsim's with its standard error; Young's interval to the digit."""
    hours, cost, restart = dice.uniform(0.5, 30), dice.uniform(5, 400), dice.uniform(0, 900)
    interval = dice.randrange(5, 90)
    whole = interval * dice.randrange(60, 200)
    point = said(job(
        8, whole, seed=dice.randrange(10**6), startup={"load": f"{restart} s"},
        failures={"software": {"mtbf": f"{hours} h"}, "runs": DRAWN},
        checkpoint={"steps": interval, "write_time": f"{cost} s", "read_time": "0 s"},
        recovery={"kind": "restart", "detection": "0 s"},
    ))  # fmt: skip
    mean = hours * HOUR
    exact = mean * math.exp(restart / mean) * math.expm1((interval * MINUTE + cost) / mean)
    # the last interval has no checkpoint, and the first start is made as often as it takes
    last = mean * math.exp(restart / mean) * math.expm1(interval * MINUTE / mean)
    whole_time = exact * (whole / interval - 1) + last + mean * math.expm1(restart / mean)
    assert math.isclose(point["checkpoints"]["young_s"], math.sqrt(2 * cost * mean), rel_tol=1e-9)
    assert math.isclose(young(cost, mean), math.sqrt(2 * cost * mean), rel_tol=1e-12)
    error = point["time_to_train_spread_s"] / math.sqrt(DRAWN)
    what = f"Daly, M {hours:.2f} h, C {cost:.0f} s, R {restart:.0f} s, every {interval} min"
    return what, whole_time, point["time_to_train_s"], error


# -- AIReSim --------------------------------------------------------------------------------------


def drawn(dice: random.Random) -> dict[str, float]:
    """AIReSim's parameters, in minutes, around and beyond its defaults."""
    size = dice.randrange(100, 600)
    return {
        "job": size, "warm": dice.randrange(2, 12), "idle": dice.randrange(2, 30),
        "spare": dice.randrange(20, 80), "length": 1440.0 * dice.randrange(40, 160),
        "rate": math.exp(-dice.uniform(2, 5.3)) / 1440.0, "times": dice.uniform(2, 8),
        "bad": dice.uniform(0, 0.3), "recovery": dice.uniform(5, 40),
        "selection": dice.uniform(1, 10), "wait": dice.uniform(5, 40),
        "auto": dice.uniform(30, 300), "manual": 1440.0 * dice.uniform(0.3, 3),
        "escalates": dice.uniform(0.2, 0.9), "auto_fails": dice.uniform(0, 0.5),
        "manual_fails": dice.uniform(0, 0.3),
    }  # fmt: skip


def simulated(p: dict[str, float], dice: random.Random) -> float:
    """Minutes until the job is done, server by server; True is a bad one."""
    total = int(p["job"] + p["warm"] + p["idle"] + p["spare"])
    servers = [k < round(total * p["bad"]) for k in range(total)]
    dice.shuffle(servers)
    pool, away = servers[: total - int(p["spare"])], list[tuple[float, int, bool]]()
    spare = servers[total - int(p["spare"]) :]
    now, left, number = 0.0, p["length"], 0
    active: list[bool] = []
    standby: list[bool] = []

    def back() -> None:
        while away and away[0][0] <= now:
            bad = heapq.heappop(away)[2]
            (standby if active and len(standby) < p["warm"] else pool).append(bad)

    while True:
        pool, active, standby = pool + active + standby, [], []
        wanted = p["job"] if len(pool) >= p["job"] else p["job"] + p["warm"]
        while len(pool) < wanted:
            if spare:
                now += p["wait"]
                pool.append(spare.pop())
            else:
                now = max(now, away[0][0])
            back()
        dice.shuffle(pool)
        size = int(p["job"])
        active, standby = pool[:size], pool[size : size + int(p["warm"])]
        pool = pool[size + int(p["warm"]) :]
        now += p["selection"]
        while True:
            bad = sum(active)
            rates = (len(active) - bad) * p["rate"], bad * p["rate"] * (1 + p["times"])
            gap = dice.expovariate(sum(rates))
            if gap >= left:
                return now + left
            now, left, number = now + gap, left - gap, number + 1
            hit = dice.random() * sum(rates) < rates[1]
            active.remove(hit)
            mended = dice.expovariate(1 / p["auto"])
            worse = dice.random() < p["escalates"]
            mended += dice.expovariate(1 / p["manual"]) if worse else 0.0
            still = hit and dice.random() < p["manual_fails" if worse else "auto_fails"]
            heapq.heappush(away, (now + mended, number, still))
            now += p["recovery"]
            back()
            if not standby:
                break
            active.append(standby.pop(0))


def airesim(dice: random.Random) -> tuple[str, float, float, float]:
    """The simulation's mean, dpsim's, and the standard error of their difference."""
    p = drawn(dice)
    found = [simulated(p, dice) * MINUTE for _ in range(RUNS)]
    point = said(job(
        int(p["job"]), int(p["length"]), seed=dice.randrange(10**6),
        startup={"load": f"{p['recovery']} min"}, checkpoint={"mode": "free"},
        failures={"node": {"mtbf": f"{1 / p['rate']} min"}, "during": "running", "runs": DRAWN,
                  "bad": {"share": p["bad"], "factor": 1 + p["times"]}},
        recovery={
            "kind": "restart", "detection": "0 s", "selection": f"{p['selection']} min",
            "spares": {"warm": int(p["warm"]), "idle": int(p["idle"]), "cold": int(p["spare"]),
                       "provision": f"{p['wait']} min", "fetched": "one_by_one"},
            "repair": {"automatic": f"{p['auto']} min", "manual": f"{p['manual']} min",
                       "escalates": p["escalates"], "automatic_fails": p["auto_fails"],
                       "manual_fails": p["manual_fails"]},
        },
    ))  # fmt: skip
    spread = statistics.stdev(found), point["time_to_train_spread_s"]
    error = math.hypot(spread[0] / math.sqrt(RUNS), spread[1] / math.sqrt(DRAWN))
    first = (p["recovery"] - p["selection"]) * MINUTE  # dpsim's first start, AIReSim's selection
    what = ", ".join(f"{key} {value:.4g}" for key, value in p.items())
    return f"AIReSim, {what}", statistics.fmean(found) + first, point["time_to_train_s"], error


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    chosen = parser.parse_args()
    wrong = 0
    for place in range(chosen.count):
        dice = random.Random(chosen.seed + place)
        what, want, got, error = (daly if place % 5 < 2 else airesim)(dice)
        off = (got - want) / error
        wrong += abs(off) > 3.0
        print(f"{want / HOUR:10.2f} h, dpsim {got / HOUR:10.2f} h, {off:+5.1f} standard errors "
              f"({got / want - 1:+.2%}): {what}", flush=True)  # fmt: skip
    print(f"{chosen.count} settings from seed {chosen.seed}: {wrong} beyond three standard errors")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
