"""The commands that README and how-tos show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "tutorial.md",
    *sorted((ROOT / "docs/howto").glob("*.md")),
)
#: what is a command in a block that is no Python and no YAML
_COMMAND = re.compile(r"^(?:\$ )?(dpsim .*)$")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
#: a block that is a file: its first line is a comment with the name
_FILE = re.compile(r"# ([\w./-]+\.(?:yaml|csv|json|txt|py))(?::.*)?\n")

ENDS = (".yaml", ".json", ".csv", ".txt", ".conf", ".xml", ".gz", ".py", ".jsonl", ".log", ".sh",
        ".parquet", "/*")  # fmt: skip
_NCCL = "tests/data/calibration/new-layout-h100-8gpu-allreduce-nccl-tests-extra-header.txt"
#: what a reader would have under these names: a file of the checkout
OWN = {
    "nccl.log": "tests/data/files/nccl-sockets.log",
    "all_reduce_perf.txt": _NCCL, "all_reduce.txt": _NCCL, "nccl.txt": _NCCL,
    "all_gather.txt": "tests/data/calibration/old-layout-a100-8gpu-alltoall.log",
    "my-machine.yaml": "topologies/dgx-1v.yaml",
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
    **{
        f"{name}.yaml": f"cluster: {{machine: {machine}, nodes: 1}}\njobs: common/jobs.yaml\n"
        for name, machine in (("ethernet", "a100-4"), ("cloud", "p4d.24xlarge"))
    },
    "my-runs.csv": "model,accelerator,gpus_per_node,total_gpus,batch_per_gpu,precision,value,unit\n"
    "ResNet-50,NVIDIA V100-SXM2-16GB,8,1,256,FP16 mixed,802.9,images/s\n"
    "ResNet-50,NVIDIA V100-SXM2-16GB,8,8,256,FP16 mixed,6154.66,images/s\n",
    "common/prices.csv": "instance,devices,usd_per_hour,as_of,source\n"
    "rails-400g,8,30.0,2026-01-01,an offer\n",
    "incidents.csv": "time,cause\n2026-01-03T04:00:00,gpu\n2026-01-20T16:30:00,network\n",
    "goodput.jsonl": "\n".join(
        [
            f'{{"job_name": "a", "job_start_time": {1000 + 500 * run}}}\n'
            + "\n".join(
                f'{{"job_name": "a", "step_count": {7 * run + k}, '
                f'"step_start_time": {1060 + 500 * run + 5 * k}}}'
                for k in range(10)
            )
            for run in range(3)
        ]
    )
    + '\n{"job_name": "a", "job_end_time": 2110}\n',
    "resnet50.yaml": "model: {name: resnet50}\ncluster: {machine: dgx-h100, nodes: 1}\n"
    + _JOB
    + "training: {epochs: 90, samples_per_epoch: 1281167}\nprice: {per_device_hour: 2.5 usd}\n",
    "jobs.txt": "JobID|State|Start|End|NNodes\n1|NODE_FAIL|2026-01-01T00:00:00|2026-01-02T00:00:00"
    "|4\n2|COMPLETED|2026-01-02T00:00:00|2026-01-04T00:00:00|4\n",
}
#: and those that nothing small can stand for: a reader's own script, a recorder's parquet, and the
#: folders of a job array
READERS = ("train.py", "trace.parquet", "sweep/*")


class Shown(NamedTuple):
    """A command of a page, as it stands there without its comment."""

    page: Path
    text: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text, comments=True)


def shown() -> Iterator[Shown]:
    """All commands, in their pages' order."""
    for page in PAGES:
        for kind, block in _BLOCK.findall(page.read_text("utf-8")):
            if kind in ("", "console", "sh", "bash"):
                yield from (Shown(page, text) for text in _commands(block))


def _commands(block: str) -> Iterator[str]:
    """The commands of a block; one whose quotes are open goes on in the next line."""
    open_ = ""
    for line in re.sub(r"\\\n\s*", " ", block).splitlines():
        found = _COMMAND.match(line.strip())
        if open_ or found:
            open_ += f"\n{line}" if open_ else found[1] if found else ""
            try:
                shlex.split(open_, comments=True)
            except ValueError:
                continue
            yield open_
            open_ = ""


def files(page: Path) -> dict[str, str]:
    """The files that a page gives as blocks; a table has no comments, so not the one with its
    name."""
    blocks = (block for _, block in _BLOCK.findall(page.read_text("utf-8")))
    named = ((found[1], block) for block in blocks if (found := _FILE.match(block)))
    bare = (".csv", ".txt", ".json")
    return {k: text.partition("\n")[2] if k.endswith(bare) else text for k, text in named}


def inputs(words: list[str]) -> list[str]:
    """The words that name files which are read."""
    names = [word.rpartition("=")[2].rstrip(")").removeprefix("./") for word in words]
    return [name for name in names if name.endswith(ENDS) and name not in outputs(words)]


def outputs(words: list[str]) -> list[str]:
    """What is written: `dpsim measure` puts a scenario beside its record."""
    named = [b for a, b in pairwise(words) if a in ("-o", "--out", "--trace")]
    beside = named if words[1] == "measure" else []
    return named + [name.replace(".json", ".yaml") for name in beside]
