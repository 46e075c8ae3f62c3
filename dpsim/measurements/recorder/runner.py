"""Start a training script in its own Python with the recorder inside, and take what it wrote."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dpsim.core.record import Refused
from dpsim.core.staging import scratch

#: exit code of the process inside where it refuses; its reason is in the output file
REFUSED = 97
INSIDE = Path(__file__).with_name("inside")
_PYTHON = re.compile(r"python(\d+(\.\d+)*)?(\.exe)?")
#: options of Python that take a value of their own
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
TAIL = 5


class Target(NamedTuple):
    """What to run: the Python and its own options, and the script, module or function."""

    python: tuple[str, ...]
    kind: str
    name: str
    arguments: tuple[str, ...]

    @property
    def title(self) -> str:
        """Its short name: "train" for train.py, package.train and package.train:main."""
        if self.kind == "script":
            return Path(self.name).stem
        return self.name.partition(":")[0].rpartition(".")[2]


class ScriptFailed(OSError):
    """The script itself ended with an error (exit code 3: the environment's)."""


def target(command: Sequence[str]) -> Target:
    """`command` as the user would type it: ``python train.py …``, ``python -m package.train …``
    or ``module:function``.  Refused for anything else."""
    if not command:
        raise Refused("what is to be measured? write it after --: -- python train.py")
    first, *rest = command
    if _PYTHON.fullmatch(Path(first).name):
        return _python(first, rest)
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", first):
        return Target((sys.executable,), "call", first, tuple(rest))
    if Path(first).name in ("torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun"):
        raise Refused(
            f"{Path(first).name} starts one process per rank, and here one plays them all; "
            "write: -- python train.py"
        )
    raise Refused(f"{first[:80]!r} is none of: python train.py, python -m module, module:function")


def _python(python: str, rest: list[str]) -> Target:
    if shutil.which(python) is None:
        raise Refused(f"there is no program {python!r}")
    options = [python]
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c", "-"):
        options.append(rest.pop(0))
        if options[-1] in _WITH_VALUE and rest:
            options.append(rest.pop(0))
    if rest[:1] in (["-c"], ["-"], []):
        raise Refused("python needs a script or -m and a module to measure")
    if rest[0] == "-m":
        if len(rest) < 2:
            raise Refused("python -m needs a module")
        return Target(tuple(options), "module", rest[1], tuple(rest[2:]))
    if not Path(rest[0]).is_file():
        raise Refused(f"there is no script {rest[0][:200]!r}")
    return Target(tuple(options), "script", rest[0], tuple(rest[1:]))


def run(
    what: Target, *, world_size: int, steps: int, warmup: int, flops: bool = True
) -> dict[str, Any]:
    """Run `what` as rank 0 of `world_size` ranks and return what it recorded, unchecked.

    Its output goes to stderr.  Raises Refused with the reason where nothing was recorded, and
    ScriptFailed with its last line where the script failed.
    """
    with scratch() as folder:
        options, out = folder / "options.json", folder / "record.json"
        wanted = {"world_size": world_size, "steps": steps, "warmup": warmup, "flops": flops}
        task = {"kind": what.kind, "target": what.name, **wanted, "out": str(out)}
        options.write_text(json.dumps(task), encoding="utf-8")
        code, tail = _process([*what.python, str(INSIDE), str(options), *what.arguments])
        found = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else None
    if code == REFUSED and found is not None:
        raise Refused(found["refused"])
    if code != 0 or found is None:
        raise ScriptFailed(f"the script failed (exit code {code}): {' | '.join(tail)}"[:1500])
    return dict(found)


def _process(command: list[str]) -> tuple[int, list[str]]:
    """Run `command` with its output on stderr; its exit code and last lines."""
    tail: deque[str] = deque(maxlen=TAIL)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                sys.stderr.write(line)
                if line.strip():
                    tail.append(line.strip()[:300])
        except BaseException:
            process.terminate()
            raise
    return process.returncode, list(tail)
