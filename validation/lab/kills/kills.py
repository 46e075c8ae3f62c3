"""kill -9 of real ranks under torchrun, with real checkpoints, beside what dpsim says of such runs.

    python validation/lab/kills/kills.py --histories 20 -o out/kills      # about 20 min
    python validation/lab/kills/kills.py --predict validation/lab/results/kills-1.json

measures once, on a run without kills, the step and a checkpoint, and on kills at fixed times what
passes from a kill until steps go on; then plays histories whose kills are drawn by seed: the n-th
comes after so many seconds of steps and checkpoints as dpsim's own draw says.  A scenario with what
was measured once predicts the goodput of each.

Exit codes: 0 done, 1 the mean of all is more than 5 % off, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from dpsim.core.yamlfile import dump_yaml
from dpsim.describe.scenario import load
from dpsim.life import draws
from dpsim.life.history import life_of
from dpsim.predict.course import course_of
from dpsim.predict.prediction import predict

HERE = Path(__file__).resolve().parent
SCHEMA = "dpsim-kills/1"
#: ranks, steps, steps between checkpoints
RANKS, STEPS, EVERY = 2, 120, 16
#: seconds that a step sleeps, and that saving takes longer
WORK, WRITE = 0.5, 1.0
#: mean seconds of steps and checkpoints between kills
MTTI = 40.0
#: kills at fixed times of which recovery is measured, in a run before every few histories and in
#: one after them all: what else runs on the machine comes and goes
MEASURED, BETWEEN = 4, 5
#: how much the ranks are preferred to what else runs, where that is allowed
NICE = -20
ALLOWED = 0.05


class Job:
    """A training run under torchrun, whose rank 0 tells what it does."""

    def __init__(self, folder: Path, steps: int) -> None:
        folder.mkdir(parents=True)
        self.folder, self._read = folder, 0
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone",
            f"--nproc-per-node={RANKS}", "--max-restarts=1000", str(HERE / "rank.py"),
            f"--dir={folder}", f"--steps={steps}", f"--every={EVERY}", f"--work={WORK}",
            f"--write={WRITE}",
        ]  # fmt: skip
        quiet = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
        with (folder / "log.txt").open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=quiet)
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, self.process.pid, NICE)

    def news(self) -> list[dict[str, Any]]:
        """Events since the last time that it was asked."""
        path = self.folder / "events.jsonl"
        if not path.exists():
            return []
        whole = path.read_bytes()[self._read :]
        whole = whole[: whole.rfind(b"\n") + 1]
        self._read += len(whole)
        return [json.loads(line) for line in whole.splitlines()]

    def kill(self, rank: int) -> float:
        """kill -9 of a rank, now."""
        os.kill(int((self.folder / f"pid.{rank}").read_text()), signal.SIGKILL)
        return time.time()


def play(folder: Path, gaps: list[float], seed: int, steps: int = STEPS) -> dict[str, Any]:
    """A run whose n-th kill comes `gaps[n]` seconds after it has begun to work again."""
    job, dice = Job(folder, steps), np.random.default_rng(seed)
    events: list[dict[str, Any]] = []
    due, waiting = float("inf"), list(gaps)
    while job.process.poll() is None:
        for event in job.news():
            events.append(event)
            if event["what"] == "ready" and waiting:
                due = event["at"] + waiting.pop(0)
            if event["what"] == "done":
                due = float("inf")
        if time.time() >= due:
            due = float("inf")
            rank = int(dice.integers(RANKS))
            events.append({"what": "kill", "at": job.kill(rank), "rank": rank})
        time.sleep(0.005)
    events = sorted([*events, *job.news()], key=lambda event: float(event["at"]))
    if job.process.returncode or events[-1]["what"] != "done":
        raise SystemExit(f"torchrun ended with {job.process.returncode}: see {folder}/log.txt")
    return {"seed": seed, "gaps": gaps, "events": [_short(event) for event in events
                                                   if event["what"] != "step"],
            "steps": _steps(events)}  # fmt: skip


def _short(event: dict[str, Any]) -> dict[str, Any]:
    return {**event, "at": round(event["at"], 4)}


def _steps(events: list[dict[str, Any]]) -> float:
    """The mean time between two steps with no checkpoint between them."""
    pairs = itertools.pairwise(events)
    return statistics.fmean(
        b["at"] - a["at"] for a, b in pairs if a["what"] == "step" and b["what"] == "step"
    )


def times(record: dict[str, Any], what: str) -> list[float]:
    """When it happened [s]."""
    return [event["at"] for event in record["events"] if event["what"] == what]


def wall(record: dict[str, Any]) -> float:
    """From the first step's beginning to the last one's end [s]."""
    return times(record, "done")[0] - times(record, "ready")[0]


def outages(record: dict[str, Any]) -> list[tuple[float, float]]:
    """Of each kill: seconds until processes are there again, and then until they work."""
    found = []
    for at in times(record, "kill"):
        new = min((event for event in record["events"]
                   if event["what"] == "begin" and event["at"] > at),
                  key=lambda event: float(event["at"]))  # fmt: skip
        begin = new["at"] - new["age"]
        found.append((begin - at, min(t for t in times(record, "ready") if t > begin) - begin))
    return found


# -- what dpsim says ------------------------------------------------------------------------------


def scenario(measured: dict[str, float]) -> dict[str, Any]:
    """The job in dpsim's words, from what was measured once."""
    return {
        "model": {"layers": [{"name": "net", "parameters": 4160, "forward": "0 s",
                              "backward": f"{measured['step_s']} s"}]},
        "cluster": {"ranks": RANKS},
        "collective": {"backend": "free"},
        "strategy": {"kind": "ddp"},
        "training": {"samples": STEPS * RANKS},
        "startup": {"load": f"{measured['load_s']} s"},
        "failures": {"software": {"mtbf": f"{MTTI} s"}, "during": "running", "runs": 1000},
        "checkpoint": {"every": {"steps": EVERY}, "write_time": f"{measured['save_s']} s",
                       "read_time": "0 s"},
        "recovery": {"kind": "restart", "detection": f"{measured['detection_s']} s"},
    }  # fmt: skip


def gaps_of(seed: int, run: int) -> list[float]:
    """Seconds of work between the kills of a run, as dpsim draws them."""
    rows, place = draws.Rows(seed, range(run, run + 1)), np.zeros(1, int)
    return [float(draws.gap(rows.next(place)[0]) * MTTI) for _ in range(40)]


def compare(record: dict[str, Any], folder: Path | None) -> float:
    """Print each history beside its prediction; how far the mean is off."""
    told = scenario(record["measured"])
    if folder is not None:
        (folder / "scenario.yaml").write_text(dump_yaml({**told, "seed": record["seed"]}))
    loaded = load({**told, "seed": record["seed"]}, Path(), "kills")
    prediction = predict(loaded)
    outcome = prediction.outcomes[0]
    productive = STEPS * record["measured"]["step_s"]
    course = course_of(outcome.case, outcome.point, productive)
    startup = record["measured"]["load_s"]
    print(f"{'history':>7} {'kills':>5} {'wall s':>8} {'goodput':>8} {'dpsim':>8} {'error':>7}")
    rows = []
    for number, one in enumerate(record["histories"]):
        life = life_of(course, number)
        said, real = productive / (life.end - startup), productive / wall(one)
        rows.append((said, real))
        kills = len(times(one, "kill"))
        print(f"{number:7d} {kills:5d} {wall(one):8.2f} {real:8.4f} {said:8.4f} "
              f"{said / real - 1:+7.1%}")  # fmt: skip
    errors = sorted(abs(said / real - 1) for said, real in rows)
    said, real = (statistics.fmean(row[k] for row in rows) for k in (0, 1))
    print(
        f"mean goodput {real:.4f}, dpsim {said:.4f} ({said / real - 1:+.1%}); of single ones "
        f"the median error is {statistics.median(errors):.1%}, the worst {errors[-1]:.1%}"
    )
    print(
        f"over {loaded.scenario.failures.runs} other draws dpsim says "
        f"{prediction.points[0]['goodput']:.4f}, with the first start-up"
    )
    return abs(said / real - 1)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """What is needed once, then the histories."""

    def history(number: int) -> dict[str, Any]:
        one = play(args.out / f"history-{number}", gaps_of(args.seed, number), number)
        kills = len(times(one, "kill"))
        print(f"history {number}: {kills} kills, {wall(one):.1f} s", flush=True)
        return {**one, "gaps": one["gaps"][: kills + 1]}

    with ThreadPoolExecutor(args.lanes) as lanes:
        one = lanes.submit(play, args.out / "quiet", [], 0)
        fixed, drawn = [], []
        for number in range(args.histories + 1):
            if number % BETWEEN == 0:
                name = args.out / f"fixed-{number}"
                fixed.append(lanes.submit(play, name, [3.0] * MEASURED, number, EVERY))
            if number < args.histories:
                drawn.append(lanes.submit(history, number))
        found = [each.result() for each in drawn]
        quiet, recovered = one.result(), [each.result() for each in fixed]
    pause = (wall(quiet) - STEPS * quiet["steps"]) / len(times(quiet, "save"))
    both = [pair for run in recovered for pair in outages(run)]
    measured = {
        "step_s": quiet["steps"], "save_s": pause,
        "detection_s": statistics.fmean(one for one, _ in both),
        "load_s": statistics.fmean(two for _, two in both),
    }  # fmt: skip
    versions = {"python": platform.python_version(), "system": platform.system(),
                "cores": os.cpu_count()}  # fmt: skip
    return {"schema": SCHEMA, "seed": args.seed, "versions": versions, "measured": measured,
            "calibration": [quiet, *recovered], "histories": found}  # fmt: skip


def main() -> int:
    """Measure or read, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--predict", type=Path, help="a record: compare again, measure nothing")
    parser.add_argument("--histories", type=int, default=20)
    parser.add_argument("--lanes", type=int, default=2, help="histories at a time: they sleep")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--out", type=Path, default=Path("out/kills"))
    args = parser.parse_args()
    if args.predict is not None:
        return int(compare(json.loads(args.predict.read_text()), None) > ALLOWED)
    if args.out.exists():
        parser.error(f"{args.out} is there already")
    record = measure(args)
    (args.out / f"kills-{args.seed}.json").write_text(json.dumps(record) + "\n")
    return int(compare(record, args.out) > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
