"""What a command costs: CPU seconds and peak memory of a whole process, the best of several."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: a command that has taken so many CPU seconds in all is not repeated [s]
ENOUGH = 60.0


@dataclass(frozen=True)
class Cost:
    """CPU seconds of user and system, the largest resident memory [B], and how it ended.

    said    what it wrote to standard output
    failed  why there is no cost; empty where there is one
    """

    cpu: float
    memory: int
    said: str = ""
    failed: str = ""


def environment(cache: Path) -> dict[str, str]:
    """Commands find this checkout, and bytecode in `cache`, as that of an installed package is."""
    own = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return own | {"PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(cache)}


def compiled(cache: Path) -> None:
    """Let bytecode of this checkout, and of what it needs, be in `cache`."""
    command = [sys.executable, "-m", "compileall", "-q", str(ROOT / "dpsim")]
    subprocess.run(command, env=environment(cache), check=True)
    subprocess.run(
        [sys.executable, "-m", "dpsim", "run", "quickstart", "--json"],
        env=environment(cache), check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip


def why_failed(command: Sequence[str], code: int, said: str, errors: str) -> str:
    """Why a command that ended with `code` did not do its work; empty where it did.

    With 1 dpsim says "done, with a finding", but Python says so that it crashed.
    """
    finding = code == 1 and tuple(command[1:3]) == ("-m", "dpsim") and said
    if code == 0 or (finding and "Traceback (most recent call last)" not in errors):
        return ""
    return errors.splitlines()[-1] if errors else f"exit code {code}"


def once(command: Sequence[str], cache: Path, limit: float, kill_after: float = 0.0) -> Cost:
    """What one run costs, its child processes included.

    It is ended after `limit` seconds; after `kill_after`, where that is said, as by `kill -9`.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command, stdout=out, stderr=err, env=environment(cache), start_new_session=True
        )
        late = threading.Event()

        def end() -> None:
            late.set()
            os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(kill_after or limit, end)
        timer.start()
        _, status, used = os.wait4(process.pid, 0)
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode("utf-8", "replace").strip())
    failed = ""
    if late.is_set() and not kill_after:
        failed = f"ended after {limit:.0f} s"
    elif not late.is_set():
        failed = why_failed(command, process.returncode, *texts)
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, texts[0], failed)


def best(command: Sequence[str], cache: Path, times: int, limit: float) -> Cost:
    """The cheapest of several runs; the first that fails."""
    found: list[Cost] = []
    while len(found) < times and sum(one.cpu for one in found) < ENOUGH:
        found.append(once(command, cache, limit))
        if found[-1].failed:
            return found[-1]
    return min(found, key=lambda one: one.cpu)


def fastest(work: Callable[[], object], times: int = 3) -> float:
    """CPU seconds of the fastest of several calls of `work` in this process."""
    found = []
    for _ in range(times):
        begin = time.process_time()
        work()
        found.append(time.process_time() - begin)
    return min(found)
