"""A campaign of kills: commands that write, ended at any moment, and what is then on the disk.

    python tests/campaigns/kills.py [--count 3000] [--seed 1] [--log out/kills.jsonl] [--only run …]

A trial has a folder of its own.  In it a command is ended (SIGKILL, SIGTERM) a few times, at its
n-th call that changes the disk or after a random time, sometimes over what another scenario left
there, and in the end it comes through.  After each kill what is there must be the old set, whole,
the new one, whole, or none where there was none; a set that is under way must be nothing but one of
them, and marked.  A sweep's stored points must stay stored.  After SIGTERM no temporary folder is
left; processes end with the one that started them; and the command that comes through leaves the
bytes of one that nobody disturbed.  Trials are told in the log, and those that it tells are not
repeated.  Commands run in forks of this process, so that one takes milliseconds; pictures are made
up, for what is drawn does not matter here (--draw draws them).  Leave the checkout alone
meanwhile: a change in it is a difference.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import importlib.util
import itertools
import json
import mmap
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep import TOY, _name, _processes, _stat

from dpsim import cli
from dpsim.core.outputs import MANIFEST, READY
from dpsim.planning import log as sweep_log
from dpsim.report import figures

ROOT = Path(__file__).resolve().parent.parent.parent
#: calls that change the disk, or begin to
CALLS = ("fsync", "rename", "replace", "unlink", "rmdir", "mkdir", "write", "open", "ftruncate")
GRID = ["--grid", "cluster.ranks=1:4:1", "--grid", "strategy.bucket_cap_mb=1:3:1"]
#: seconds in which processes end with the one that started them
PATIENCE = 10.0
State = dict[str, bytes]
Listed = dict[str, str]


@dataclass(frozen=True)
class Kind:
    """A command, and how often it is drawn.

    words   its arguments for the scenario "a" or "b"
    out     the folder, or the file, that it writes
    weight  cheap ones are drawn more often
    logs    whether `out` has the log of a sweep
    workers whether it starts processes
    """

    words: Callable[[str], list[str]]
    out: str
    weight: int
    logs: bool = False
    workers: bool = False


def _sweep(*more: str, out: str = "out") -> Callable[[str], list[str]]:
    return lambda one: ["sweep", f"{one}.yaml", *GRID, "-o", out, *more]


KINDS = {
    "run": Kind(lambda one: ["run", f"{one}.yaml", "-o", "out"], "out", 8),
    "explain": Kind(lambda one: ["explain", f"{one}.yaml", "-o", "out"], "out", 5),
    "trace": Kind(lambda one: ["explain", f"{one}.yaml", "--trace", "out"], "out", 4),
    "compare": Kind(
        lambda one: ["compare", f"{one}.yaml", "c.yaml", "--draws", "100", "-o", "out"], "out", 4
    ),
    "plan": Kind(
        lambda one: ["plan", f"{one}.yaml", "--tune", "strategy.bucket_cap_mb", "-o", "out"],
        "out", 4,
    ),
    "validate": Kind(
        lambda one: ["validate", f"{one}.csv", "-o", "out", "--jobs", "1"], "out", 3
    ),
    "validate 2": Kind(
        lambda one: ["validate", f"{one}.csv", "-o", "out", "--jobs", "2"], "out", 1, workers=True
    ),
    "calibrate": Kind(
        lambda one: ["calibrate", f"{one}.steps.csv", "-o", "new.yaml"], "new.yaml", 8
    ),
    "import": Kind(
        lambda one: ["import", "topo.xml", "--like", {"a": "dgx-h100", "b": "dgx-h200"}[one],
                     "-o", "new.yaml"],
        "new.yaml", 5,
    ),
    "sweep": Kind(_sweep("--jobs", "1"), "out", 5, logs=True),
    "sweep 2": Kind(_sweep("--jobs", "2"), "out", 1, logs=True, workers=True),
    "shard": Kind(_sweep("--jobs", "1", "--shard", "2/3"), "out", 3, logs=True),
    "merge": Kind(
        lambda one: ["sweep", "--merge", f"{one}1", f"{one}2", "-o", "out"], "out", 4, logs=True
    ),
}  # fmt: skip
if importlib.util.find_spec("ray") is not None:
    KINDS["ray"] = Kind(_sweep("--jobs", "2", "--ray", "local"), "out", 1, logs=True, workers=True)


# -- commands in forks ----------------------------------------------------------------------------


def fork(words: list[str], place: Path, before: Callable[[], None] = lambda: None) -> int:
    """The command, in a session of its own; returns the process."""
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        os.setsid()
        os.chdir(place)
        said = os.open(place / "said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        sys.argv = ["dpsim", *words]
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        before()
        code = cli.status()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(code)


def ended(child: int) -> int:
    """Its exit code; negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def at_call(number: int, with_: int = 0, seen: mmap.mmap | None = None) -> Callable[[], None]:
    """Ends the process that calls it at its call `number` of CALLS; `seen` counts them."""

    def arm() -> None:
        calls, mine = itertools.count(1), os.getpid()

        def wrapped(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*given: Any, **named: Any) -> Any:
                count = next(calls)
                if seen is not None:
                    seen[:8] = count.to_bytes(8, "little")
                if count == number and os.getpid() == mine:
                    os.kill(os.getpid(), with_)
                return real(*given, **named)

            return call

        for name in CALLS:
            setattr(os, name, wrapped(getattr(os, name)))
        sweep_log._sync = wrapped(sweep_log._sync)

    return arm


# -- what is there --------------------------------------------------------------------------------


def state(out: Path) -> State:
    """The files that are there; of a sweep's folder the result alone."""
    if out.is_file():
        return {out.name: out.read_bytes()}
    own = (MANIFEST, sweep_log.NAME, sweep_log.LOCK)
    found = sorted(out.iterdir()) if out.is_dir() else []
    return {p.name: p.read_bytes() for p in found if p.name not in own and p.name[0] != "."}


def manifest(out: Path) -> Listed:
    path = out / MANIFEST
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = (line.split("  ") for line in lines if not line.startswith("#"))
    return {name: digest for digest, name in pairs}


def stored(out: Path) -> tuple[str, ...]:
    """The points that count."""
    path = out / sweep_log.NAME
    found = sweep_log.parse(path.read_bytes()) if path.exists() else None
    if found is not None and found.damage:
        return (f"damaged: {found.damage[0]}",)
    return tuple(sorted(json.dumps(record) for record in found.records[1:])) if found else ()


def wrong(out: Path, old: State, new: State) -> str:
    """What is wrong with what a killed command left; "" where nothing is."""
    now = state(out)
    if (out / READY).exists():
        sound = now.items() <= old.items() or now.items() <= new.items()
        return "" if sound else "mixed while under way"
    if out.is_dir():
        listed = manifest(out)
        for name, data in now.items():
            if listed.get(name) != hashlib.sha256(data).hexdigest():
                return f"partial: {name} is not what the manifest says"
        if missing := sorted(listed.keys() - now.keys()):
            return f"partial: {missing[0]} is missing"
    if now in (old, new):
        return ""
    return "lost" if not now else "mixed or partial"


def left(place: Path) -> set[str]:
    """What is there of sets that were being written."""
    return {path.name for path in place.rglob(".dpsim-*")}


def alive(session: int) -> list[int]:
    """Processes of `session` that are not about to end."""
    found = ((pid, _stat(pid)) for pid in _processes())
    return [pid for pid, stat in found if len(stat) > 3 and stat[3] == str(session)
            and stat[0] != "Z" and "resource_tracker" not in _name(pid)]  # fmt: skip


# -- the campaign ---------------------------------------------------------------------------------


class Campaign:
    """What the commands do undisturbed, and what was found so far."""

    def __init__(self, folder: Path, only: list[str]) -> None:
        self.folder = folder
        self.inputs = folder / "inputs"
        self.inputs.mkdir()
        self._write_inputs()
        self.kinds = {name: kind for name, kind in KINDS.items() if not only or name in only}
        self.whole: dict[tuple[str, str], State] = {}
        self.points: dict[tuple[str, str], tuple[str, ...]] = {}
        self.calls: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        for name, kind in self.kinds.items():
            if not kind.workers:
                self._import(kind)
            for one in "ab":
                place = self.place()
                begun = time.monotonic()
                seen = mmap.mmap(-1, 8)
                code = ended(fork(kind.words(one), place, at_call(0, seen=seen)))
                self.calls[name] = int.from_bytes(seen[:8], "little")
                self.seconds[name] = time.monotonic() - begun
                if code not in (0, 1):
                    raise SystemExit(f"{name}: exit {code}: {(place / 'said.txt').read_text()}")
                self.whole[name, one] = state(place / kind.out)
                self.points[name, one] = stored(place / kind.out)
                shutil.rmtree(place)
            print(f"{name}: {self.seconds[name]:.2f} s, {self.calls[name]} calls", flush=True)

    def _write_inputs(self) -> None:
        place = self.inputs
        for one, latency in (("a", "100 us"), ("b", "200 us"), ("c", "300 us")):
            text = TOY.replace("100 us", latency) + "sweep: {cluster.ranks: [1, 2, 4]}\n"
            (place / f"{one}.yaml").write_text(text)
            steps = "\n".join(
                f"8,{0.1 + 0.01 * k + len(latency) / 7 + ord(one) / 9:.4f}" for k in range(5)
            )
            (place / f"{one}.steps.csv").write_text(f"ranks,step_time_s\n{steps}\n")
        head, *lines = (ROOT / "validation/published/training.csv").read_text().splitlines()
        cheap = [line for line in lines if "ResNet-50," in line and "Horovod" in line]
        for one, rows in (("a", cheap[:3]), ("b", cheap[3:6])):
            (place / f"{one}.csv").write_text("\n".join([head, *rows, ""]))
        topology = next((ROOT / "tests/data/topology").glob("azure-ndv5-topo.xml"))
        shutil.copy(topology, place / "topo.xml")
        for one in "ab":
            for part in (1, 2):
                out = f"{one}{part}"
                words = _sweep("--jobs", "1", "--shard", f"{part}/2", out=out)(one)
                if ended(fork(words, place)):
                    raise SystemExit((place / "said.txt").read_text())

    def _import(self, kind: Kind) -> None:
        """Run the command in this process, so that its forks find everything imported."""
        here, place = Path.cwd(), self.place()
        sys.argv = ["dpsim", *kind.words("a")]
        os.chdir(place)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            cli._run()
        os.chdir(here)
        shutil.rmtree(place)

    def place(self) -> Path:
        """A new folder with the inputs."""
        place = Path(tempfile.mkdtemp(dir=self.folder))
        shutil.copytree(self.inputs, place, dirs_exist_ok=True)
        return place

    def trial(self, seed: str) -> dict[str, Any]:
        """Kill a command a few times, let it come through; what happened."""
        dice = random.Random(seed)
        names = list(self.kinds)
        name = dice.choices(names, [self.kinds[name].weight for name in names])[0]
        kind, found, kills = self.kinds[name], list[str](), collections.Counter[str]()
        place = self.place()
        out, one = place / kind.out, dice.choice("ab")
        old: State = {}
        if not kind.logs and dice.random() < 0.6:  # another scenario's answer is there
            other = "ab".replace(one, "")
            ended(fork(kind.words(other), place))
            old = self.whole[name, other]
        points: tuple[str, ...] = ()
        for _ in range(dice.choice((2, 3, 6, 8))):
            sent = dice.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
            there = left(place)
            code, child = self.kill(dice, name, one, place, sent)
            if code not in (-sent, -signal.SIGKILL, 143, 0, 1):
                found.append(f"exit {code}: {(place / 'said.txt').read_text()[-300:]}")
            if code in (-signal.SIGKILL, 143, -signal.SIGTERM):
                kills[signal.Signals(sent).name] += 1
            found += [text] if (text := wrong(out, old, self.whole[name, one])) else []
            if code == 143 and (more := left(place) - there):
                found.append(f"SIGTERM left {sorted(more)}")
            before, points = points, stored(out)
            if not set(before) <= set(points) <= set(self.points[name, one]):
                found.append(f"points: {len(before)} before, {len(points)} now")
            if kind.workers:
                found += self.orphans(child)
            if state(out) == self.whole[name, one]:
                old = self.whole[name, one]
        found += self.through(name, one, place)
        shutil.rmtree(place, ignore_errors=True)
        return {"seed": seed, "kind": name, "kills": dict(kills), "found": found}

    def kill(
        self, dice: random.Random, name: str, one: str, place: Path, sent: int
    ) -> tuple[int, int]:
        """Run the command, and end it; its exit code, and its process."""
        words = self.kinds[name].words(one)
        if dice.random() < 0.8:
            child = fork(words, place, at_call(dice.randint(1, self.calls[name]), sent))
        else:
            child = fork(words, place)
            time.sleep(dice.uniform(0.0, self.seconds[name]))
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, sent)
        return ended(child), child

    def through(self, name: str, one: str, place: Path) -> list[str]:
        """The command comes through; what is wrong then."""
        kind = self.kinds[name]
        code = ended(fork(kind.words(one), place))
        if code not in (0, 1):
            return [f"does not come through: {(place / 'said.txt').read_text()[-300:]}"]
        found = []
        if state(place / kind.out) != self.whole[name, one]:
            found.append("the result differs")
        if stored(place / kind.out) != self.points[name, one]:
            found.append("the log differs")
        return found + ([f"leftovers: {sorted(left(place))}"] if left(place) else [])

    def orphans(self, session: int) -> list[str]:
        end = time.monotonic() + PATIENCE
        while (pids := alive(session)) and time.monotonic() < end:
            time.sleep(0.02)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return [f"{len(pids)} processes did not end"] if pids else []


def told(path: Path) -> Iterator[dict[str, Any]]:
    """The trials that the log tells."""
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):  # a line that was cut off
            yield json.loads(line)


def made_up(make: Callable[[], Any], png: Any, svg: Any) -> None:
    png.write(b"\x89PNG")
    svg.write(b"<svg/>")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=3000, help="kills")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, default=Path("out/kills.jsonl"))
    parser.add_argument("--minutes", type=float, default=120.0, help="stop after so many")
    parser.add_argument("--only", nargs="*", default=[], help="names of commands")
    parser.add_argument("--draw", action="store_true", help="draw the pictures")
    options = parser.parse_args()
    if not options.draw:
        figures.draw = made_up
    options.log.parent.mkdir(parents=True, exist_ok=True)
    trials = [t for t in told(options.log) if t["seed"].startswith(f"{options.seed}-")]
    known = {trial["seed"] for trial in trials}
    end = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="dpsim-kills-") as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        campaign = Campaign(Path(folder), options.only)
        kills = sum(sum(trial["kills"].values()) for trial in trials)
        for number in itertools.count():
            if kills >= options.count or time.monotonic() > end:
                break
            if (seed := f"{options.seed}-{number}") in known:
                continue
            trials.append(trial := campaign.trial(seed))
            kills += sum(trial["kills"].values())
            with options.log.open("a") as file:
                file.write(json.dumps(trial) + "\n")
            if trial["found"]:
                print(f"{seed} {trial['kind']}: {trial['found']}", flush=True)
    return summary(trials)


def summary(trials: list[dict[str, Any]]) -> int:
    total: collections.Counter[str] = collections.Counter()
    for name in KINDS:
        mine = [trial for trial in trials if trial["kind"] == name]
        kills = sum((collections.Counter(trial["kills"]) for trial in mine), collections.Counter())
        total += kills
        print(f"{name:11} {len(mine):5} trials, {sum(kills.values()):5} kills, "
              f"{sum(bool(trial['found']) for trial in mine)} wrong")  # fmt: skip
    wrong_ones = sum(bool(trial["found"]) for trial in trials)
    print(f"{sum(total.values()):,} kills ({dict(total)}): {wrong_ones} trials with a finding")
    return int(bool(wrong_ones))


if __name__ == "__main__":
    sys.exit(main())
