"""Every command that README and how-tos show, run as a reader would.

    python tests/campaigns/commands.py [--only PAGE] [--limit SECONDS]

The commands of a page run in order in one folder that is empty but for the files that the page
gives.  A reader's own file is a sample of its kind (OWN and WRITTEN in `tests/documented.py`).  A
command that names a file for which there is none (READERS) has to be refused in one sentence, with
exit code 2, and one whose optional package is not installed with 3.  All others have to end with 0
or 1.  Exit code 1 where one does not.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from documented import OWN, WRITTEN, Shown, files, inputs, shown

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run them and print a table; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="pages whose name has this")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each command")
    options = parser.parse_args()
    wrong = 0
    for page, commands in groupby(shown(), key=lambda one: one.page):
        if options.only not in page.name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files(page).items():
                (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(folder) / name).write_text(text, "utf-8")
                for beside in (one for one in WRITTEN if one in text and "/" in one):
                    (Path(folder) / beside).parent.mkdir(parents=True, exist_ok=True)
                    (Path(folder) / beside).write_text(WRITTEN[beside], "utf-8")
            for one in commands:
                _own(one, Path(folder))
                wrong += not _fine(one, Path(folder), options.limit)
    print(f"{wrong} commands do something else")
    return int(wrong > 0)


def _own(one: Shown, folder: Path) -> None:
    """Put the files there that a reader would have, where the page has not given or made them."""
    for name in inputs(one.words):
        place = folder / name
        if not place.exists() and name in WRITTEN:
            place.write_text(WRITTEN[name], "utf-8")
        elif not place.exists() and name in OWN:
            shutil.copy(ROOT / OWN[name], place)


def _fine(one: Shown, folder: Path, limit: float) -> bool:
    """Run it, say what happened, and whether that is what should."""
    lacks = [word for word in inputs(one.words) if not (folder / word).exists()]
    began = time.monotonic()
    line = one.text.partition(" #")[0].strip().replace("dpsim ", f"{sys.executable} -m dpsim ", 1)
    try:
        done = subprocess.run(
            ["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=limit,
            stdin=subprocess.DEVNULL, check=False, env=_environment(folder),
        )  # fmt: skip
        code, said = done.returncode, (done.stderr or done.stdout).strip().splitlines()
    except subprocess.TimeoutExpired:
        code, said = 124, [f"not done after {limit:.0f} s"]
    refused = "# refused" in one.text
    extra = code == 3 and "is not installed; pip install 'dpsim[" in said[-1]
    fine = code == 2 and len(said) == 1 if lacks or refused else extra or code in (0, 1)
    done_as = "refused, as the page says" if refused else "needs an extra" if extra else "ran"
    what = "needs a reader's file" if lacks else done_as
    seconds = time.monotonic() - began
    shown_as = one.text.partition(" #")[0].strip()
    print(f"{one.page.name:26} {code:3} {seconds:6.1f} s  {what if fine else 'WRONG'}: {shown_as}")
    if not fine:
        print("    ", *said[-1:])
    return fine


def _environment(home: Path) -> dict[str, str]:
    """As in an activated virtual environment, at `home`, in a task of Slurm's that has a core."""
    here = os.environ["PATH"]
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{here}",
            "HOME": str(home), "SHELL": "/bin/bash", "SLURM_ARRAY_TASK_ID": "1",
            "SLURM_CPUS_PER_TASK": "1"}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
