"""A campaign against `dpsim sweep`: kills, damage, full disks, second writers.

    python tests/campaigns/sweep.py [--points 2000] [--kills 20] [--seed 1]

Plays one sweep without interruption, then the same one through each kind of trouble, and compares
the files to the byte.  Prints what it did and found; exits with 1 where anything differs.  It takes
minutes, so it is no part of the tests; they hold the same promises on a small scale.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dpsim.planning.log import parse, read_log

TOY = """
model:
  dtype: fp32
  layers:
    - {name: a, parameters: 1000000, forward: 1 ms, backward: 2 ms}
    - {name: b, parameters: 4000000, forward: 1 ms, backward: 3 ms}
    - {name: c, parameters: 500000, forward: 1 ms, backward: 1 ms}
cluster: {ranks: 2}
collective: {backend: ideal_ring, latency: 100 us, bandwidth: 10 GB/s}
strategy: {kind: ddp, torch: "2.13"}
optimizer: {kind: none}
"""
WORKERS = (1, 2, 3, 4)
#: bytes of one record, about
RECORD = 1300


class Campaign:
    """A folder, a sweep in it, and what went wrong so far."""

    def __init__(self, folder: Path, points: int, seed: int) -> None:
        self.folder, self.dice = folder, random.Random(seed)
        self.scenario = folder / "toy.yaml"
        self.scenario.write_text(TOY, encoding="utf-8")
        self.points = points // 50 * 50
        self.grid = [
            f"--grid=collective.latency=1:{points // 50}:1 us",
            "--grid=cluster.ranks=1:10:1",
            "--grid=strategy.bucket_cap_mb=1:5:1",
        ]
        self.failures: list[str] = []
        self.expected = ""

    def command(self, out: str, jobs: int, *more: str) -> list[str]:
        program = [sys.executable, "-m", "dpsim", "sweep", str(self.scenario), *self.grid]
        return [*program, "-o", str(self.folder / out), "--jobs", str(jobs), *more]

    def start(
        self, out: str, jobs: int, *more: str, limit: int | None = None
    ) -> subprocess.Popen[str]:
        """The sweep in a session of its own; `limit` is the largest file that it may write."""

        def limited() -> None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background job ignores it
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

        return subprocess.Popen(
            self.command(out, jobs, *more),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=limited,
        )

    def finish(self, out: str, jobs: int, *more: str) -> tuple[int, str]:
        process = self.start(out, jobs, *more)
        _, err = process.communicate()
        return process.returncode, err

    def digest(self, out: str) -> str:
        paths = [self.folder / out / f"sweep.{end}" for end in ("json", "csv")]
        both = b"".join(path.read_bytes() if path.exists() else b"none" for path in paths)
        return hashlib.sha256(both).hexdigest()

    def check(self, holds: bool, what: str) -> None:
        if not holds:
            self.failures.append(what)
            print(f"    FAILED: {what}")

    def same(self, out: str, what: str) -> None:
        self.check(self.digest(out) == self.expected, f"{what}: the result differs")

    def log(self, out: str) -> Path:
        return self.folder / out / "sweep.log"

    def stored(self, out: str) -> tuple[str, ...]:
        """The records that count, as text; none before there is a log."""
        path = self.log(out)
        found = parse(path.read_bytes()) if path.exists() else None
        self.check(found is None or not found.damage, f"{out}: the log is damaged")
        return tuple(map(str, found.records[1:])) if found else ()

    def wait(self, process: subprocess.Popen[str], out: str, records: float) -> None:
        """Until about so many more records are stored, or the process has ended."""
        path = self.log(out)
        least = (path.stat().st_size if path.exists() else 0) + records * RECORD
        while process.poll() is None and (not path.exists() or path.stat().st_size < least):
            time.sleep(0.0005)

    # -- the kinds of trouble ---------------------------------------------------------------------

    def uninterrupted(self) -> None:
        begun = time.monotonic()
        code, err = self.finish("whole", 2)
        seconds = time.monotonic() - begun
        self.check(code == 0, f"the sweep itself: exit {code}: {err[-300:]}")
        self.expected = self.digest("whole")
        print(f"{self.points:,} points, 2 processes, uninterrupted: {seconds:.1f} s")
        self.finish("single", 1)
        self.same("single", "one process")

    def killed(self, kills: int) -> None:
        """SIGKILL at random, to the process alone or with its workers; other workers each time."""
        before: tuple[str, ...] = ()
        done = torn = during_start = 0
        while done < kills:
            jobs = WORKERS[done % len(WORKERS)]
            process = self.start("killed", jobs)
            if self.dice.random() < 0.15:
                time.sleep(self.dice.uniform(0.0, 1.0))  # maybe before the first point
            else:
                self.wait(process, "killed", self.dice.uniform(0, 1.6 * self.points / kills))
                time.sleep(self.dice.uniform(0.0, 0.01))
            if process.poll() is not None:
                print(f"    all points were played after {done} kills; starting over")
                self.same("killed", "killed and resumed")
                shutil.rmtree(self.folder / "killed")
                before = ()
                continue
            both = self.dice.random() < 0.5
            (os.killpg if both else os.kill)(process.pid, signal.SIGKILL)
            process.communicate()
            done += 1
            path = self.log("killed")
            torn += path.exists() and parse(path.read_bytes()).torn > 0
            now = self.stored("killed")
            self.check(now[: len(before)] == before, f"kill {done}: stored points are gone")
            during_start += now == before
            before = now
        print(
            f"{done} times SIGKILL, {len(before):,} points stored after the last; "
            f"{during_start} before any new point, {torn} left an unfinished record"
        )
        code, _ = self.finish("killed", 2)
        self.check(code == 0, f"resumed after kills: exit {code}")
        self.same("killed", "killed and resumed")

    def interrupted(self, times: int) -> None:
        """SIGINT to all processes, as a terminal sends it."""
        codes = []
        for turn in range(times):
            process = self.start("interrupted", WORKERS[turn % len(WORKERS)])
            self.wait(process, "interrupted", self.dice.uniform(1, self.points / times / 2))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            _, err = process.communicate()
            codes.append(process.returncode)
            said = f"SIGINT {turn}: exit {process.returncode}: {err[-300:]}"
            self.check(process.returncode == 130 and "Traceback" not in err, said)
            self.check(read_log(self.folder / "interrupted").torn == 0, "SIGINT: a torn log")
        self.finish("interrupted", 2)
        self.same("interrupted", "interrupted and resumed")
        print(f"{times} times SIGINT to all processes: exit codes {sorted(set(codes))}")

    def workers_killed(self, kills: int) -> None:
        """SIGKILL to single workers of one run."""
        process, done = self.start("workers", 3), 0
        while process.poll() is None and done < kills:
            self.wait(process, "workers", self.points / kills / 2)
            children = _children(process.pid)
            if children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.dice.choice(children), signal.SIGKILL)
                    done += 1
        _, err = process.communicate()
        self.check(process.returncode == 0, f"workers killed: {process.returncode} {err[-300:]}")
        self.same("workers", "workers killed")
        print(f"{done} workers killed in one run: result the same")

    def flipped(self, flips: int) -> None:
        """One bit: every one of a short log, and some of the long one through the command."""
        data = self.log("whole").read_bytes()
        short = b"".join(data.splitlines(keepends=True)[:4])
        missed = sum(not parse(_flip(short, place)).damage for place in range(len(short) * 8))
        self.check(missed == 0, f"{missed} flipped bits were not seen")
        print(f"{len(short) * 8:,} single-bit flips of a log of 3 points: {missed} not named")
        named = 0
        for _ in range(flips):
            shutil.copytree(self.folder / "whole", self.folder / "flipped")
            place = self.dice.randrange(len(data) * 8)
            number = data[: place // 8].count(b"\n")
            self.log("flipped").write_bytes(_flip(data, place))
            code, err = self.finish("flipped", 2)
            named += code == 2 and f"record {number} (at byte" in err
            self.check(self.log("flipped").read_bytes() == _flip(data, place), "a log was changed")
            code, err = self.finish("flipped", 2, "--salvage")
            self.check(code == 0, f"salvage: {err[-300:]}")
            self.same("flipped", "salvaged")
            shutil.rmtree(self.folder / "flipped")
        self.check(named == flips, f"only {named} of {flips} flips were refused by name")
        print(
            f"{named} of {flips} flips in the log of {self.points:,} points: refused with exit 2, "
            "record and byte named; result the same after --salvage"
        )

    def full(self, limits: int) -> None:
        """No room for the log beyond a random size."""
        size, before = self.log("whole").stat().st_size, 0
        for share in sorted(self.dice.uniform(0.02, 0.95) for _ in range(limits)):
            limit = int(size * share)
            process = self.start("full", WORKERS[limit % 3], limit=limit)
            _, err = process.communicate()
            self.check(process.returncode == 3, f"full disk: exit {process.returncode}")
            self.check("cannot be written" in err, f"full disk: {err[-300:]}")
            contents = read_log(self.folder / "full")
            self.check(contents.torn == 0, "full disk: a torn log")
            self.check(len(contents.records) > before, "full disk: points are gone")
            before = len(contents.records)
        code, _ = self.finish("full", 2)
        self.check(code == 0, f"resumed with room: exit {code}")
        self.same("full", "resumed with room")
        print(f"{limits} times no room (RLIMIT_FSIZE): exit 3, nothing lost, result the same")

    def tiny_disk(self) -> None:
        """A file system of 256 kB, where the system lets one be mounted."""
        place = self.folder / "tiny"
        place.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            print("a file system of 256 kB: not allowed here, left out")
            return
        try:
            code, err = self.finish("tiny", 2)
            stored = len(self.stored("tiny"))
            self.check(code == 3 and "No space left" in err and stored > 50, f"tiny disk: {err}")
            print(f"a file system of 256 kB: exit {code}, {stored} points kept")
            shutil.copytree(place, self.folder / "moved")
        finally:
            subprocess.run(["umount", str(place)], check=True)
        self.finish("moved", 2)
        self.same("moved", "moved to a larger disk")

    def writers(self, tries: int) -> None:
        """Several at once: one writes, the others are refused by name."""
        refused = 0
        for _ in range(tries):
            processes = [self.start("writers", 2) for _ in range(4)]
            ends = [(process.communicate()[1], process.returncode) for process in processes]
            codes = sorted(code for _, code in ends)
            self.check(codes[0] == 0 and set(codes[1:]) <= {0, 2}, f"writers: {codes}")
            texts = [err for err, code in ends if code == 2]
            self.check(all("is writing there" in text for text in texts), f"writers: {texts}")
            refused += len(texts)
            self.same("writers", "four writers")
            shutil.rmtree(self.folder / "writers")
        self.check(refused > 0, "no second writer was refused")
        print(f"{tries} times four writers at once: {refused} refused by name, result the same")

    def shards(self, count: int) -> None:
        for part in range(1, count + 1):
            self.finish(f"shard-{part}", 2, "--shard", f"{part}/{count}")
        folders = [str(self.folder / f"shard-{part}") for part in range(1, count + 1)]
        self.dice.shuffle(folders)
        merge = [sys.executable, "-m", "dpsim", "sweep", "--merge", *folders]
        out = str(self.folder / "merged")
        done = subprocess.run([*merge, "-o", out], capture_output=True, text=True, check=False)
        self.check(done.returncode == 0, f"merge: {done.stderr[-300:]}")
        self.same("merged", "merged")
        print(f"{count} shards, merged: result the same")

    def on_ray(self, kills: int) -> None:
        """Two workers of a local Ray; some of them are killed."""
        if importlib.util.find_spec("ray") is None:
            print("Ray: not installed, left out")
            return
        process, done = self.start("ray", 2, "--ray", "local"), 0
        while process.poll() is None and done < kills:
            self.wait(process, "ray", self.points / kills / 2)
            workers = [pid for pid in _session(process.pid) if _name(pid).startswith("ray::_call")]
            if workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.dice.choice(workers), signal.SIGKILL)
                    done += 1
        _, err = process.communicate()
        self.check(process.returncode == 0, f"Ray: exit {process.returncode}: {err[-500:]}")
        self.same("ray", "Ray")
        print(f"a local Ray of 2 workers, {done} workers killed: result the same")


def _flip(data: bytes, place: int) -> bytes:
    found = bytearray(data)
    found[place // 8] ^= 1 << place % 8
    return bytes(found)


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name: state, parent, group, session, …"""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def _processes() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def _children(parent: int) -> list[int]:
    """Workers of `parent`; the tracker of multiprocessing is none."""
    found = [pid for pid in _processes() if _stat(pid)[1:2] == [str(parent)]]
    return [pid for pid in found if "spawn_main" in _name(pid)]


def _session(leader: int) -> list[int]:
    """Processes below `leader`, however deep."""
    parents = {pid: int(stat[1]) for pid in _processes() if len(stat := _stat(pid)) > 1}

    def below(pid: int) -> bool:
        while pid in parents and pid != leader:
            pid = parents[pid]
        return pid == leader

    return [pid for pid in parents if pid != leader and below(pid)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--points", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[], help="names of parts, such as killed full")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dpsim-campaign-") as folder:
        campaign = Campaign(Path(folder), options.points, options.seed)
        parts: dict[str, Callable[[], None]] = {
            "killed": lambda: campaign.killed(options.kills),
            "interrupted": lambda: campaign.interrupted(options.kills // 2),
            "workers": lambda: campaign.workers_killed(options.kills),
            "flipped": lambda: campaign.flipped(max(1, options.kills // 4)),
            "full": lambda: campaign.full(options.kills // 2),
            "tiny": campaign.tiny_disk,
            "writers": lambda: campaign.writers(3),
            "shards": lambda: campaign.shards(5),
            "ray": lambda: campaign.on_ray(max(1, options.kills // 4)),
        }
        campaign.uninterrupted()
        for name, part in parts.items():
            if not options.only or name in options.only:
                part()
        print("all as promised" if not campaign.failures else f"{len(campaign.failures)} failures")
        return int(bool(campaign.failures))


if __name__ == "__main__":
    sys.exit(main())
