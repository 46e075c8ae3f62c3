"""Every command that README and how-tos show, run as a reader would.

    python tests/campaigns/commands.py [--only PAGE] [--limit SECONDS]

The commands of a page run in order in one folder that is empty but for the files that the page
gives.  A reader's own file is a sample of its kind out of `tests/data` (OWN).  A command that names
a file for which there is none has to be refused in one sentence, with exit code 2.  All others have
to end with 0 or 1.  Exit code 1 where one does not.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import groupby, pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from documented import Shown, files, shown

ENDS = (".yaml", ".json", ".csv", ".txt", ".conf", ".xml", ".gz", ".py", ".jsonl", ".log", ".sh",
        ".parquet", "/*")  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]
_NCCL = "tests/data/calibration/new-layout-h100-8gpu-allreduce-nccl-tests-extra-header.txt"
#: what a reader would have under these names: a file of the checkout
OWN = {
    "nccl.log": "tests/data/files/nccl-sockets.log",
    "all_reduce_perf.txt": _NCCL, "all_reduce.txt": _NCCL, "nccl.txt": _NCCL,
    "topo.xml": "tests/data/topology/azure-ndv4-topo.xml",
    "topo.txt": "tests/data/topology/asus-esc8000a-4gpu-pcie-2socket.txt",
    "ib.txt": "tests/data/files/ibnetdiscover-hdr-superbench.txt",
    "topology.conf": "tests/data/files/slurm-topology-tree.conf",
    "ds_config.json": "tests/data/files/deepspeed-zero3.json",
    "trace.json.gz": "tests/data/calibration/hta-sampled_rank-0.json.gz",
    "rank0.json.gz": "tests/data/calibration/hta-sampled_rank-0.json.gz",
    "rank1.json.gz": "tests/data/calibration/hta-sampled_rank-1.json.gz",
}  # fmt: skip
_STEPS = "".join(f"{rank},{k},{0.1 + 0.01 * (k % 7) + rank / 1000}\n"
                 for k in range(40) for rank in range(4))  # fmt: skip
_JOB = "strategy: {kind: ddp}\nbatch: {per_device: 32}\nprecision: {compute: bf16}\n"
#: or this text
WRITTEN = {
    "times.csv": "rank,step,seconds\n" + _STEPS,
    "steps.csv": "step,seconds\n" + "".join(f"{k},{0.1 + 0.001 * (k % 7)}\n" for k in range(40)),
    "mine.yaml": "model: {name: resnet50}\ncluster: {machine: dgx-h100, nodes: 1}\n" + _JOB,
    "resnet50.yaml": "model: {name: resnet50}\ncluster: {machine: dgx-h100, nodes: 1}\n"
    + _JOB
    + "training: {epochs: 90, samples_per_epoch: 1281167}\nprice: {per_device_hour: 2.5 usd}\n",
    "jobs.txt": "JobID|State|Start|End|NNodes\n1|NODE_FAIL|2026-01-01T00:00:00|2026-01-02T00:00:00"
    "|4\n2|COMPLETED|2026-01-02T00:00:00|2026-01-04T00:00:00|4\n",
}


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
            for one in commands:
                _own(one, Path(folder))
                wrong += not _fine(one, Path(folder), options.limit)
    print(f"{wrong} commands do something else")
    return int(wrong > 0)


def _own(one: Shown, folder: Path) -> None:
    """Put the files there that a reader would have, where the page has not given or made them."""
    for name in _inputs(one.words):
        place = folder / name
        if not place.exists() and name in WRITTEN:
            place.write_text(WRITTEN[name], "utf-8")
        elif not place.exists() and name in OWN:
            shutil.copy(ROOT / OWN[name], place)


def _fine(one: Shown, folder: Path, limit: float) -> bool:
    """Run it, say what happened, and whether that is what should."""
    lacks = [word for word in _inputs(one.words) if not (folder / word).exists()]
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
    fine = code == 2 and len(said) == 1 if lacks or refused else code in (0, 1)
    what = "needs a reader's file" if lacks else "refused, as the page says" if refused else "ran"
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


def _inputs(words: list[str]) -> list[str]:
    """The words that name files which are read."""
    outputs = [b for a, b in pairwise(words) if a in ("-o", "--out", "--trace")]
    names = [word.rpartition("=")[2].rstrip(")") for word in words]
    return [name for name in names if name.endswith(ENDS) and name not in outputs]


if __name__ == "__main__":
    sys.exit(main())
