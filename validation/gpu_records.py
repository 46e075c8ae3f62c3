"""Record one GPU with every measuring program, within eight minutes, ready to commit.

    make gpu-records                                      # or, where torch is in another Python:
    python validation/gpu_records.py [--out FOLDER] [--minutes 8] [--dry-run]

runs what `records/README.md` wants of a machine with one GPU, one program after the other, and
writes a record each to validation/records, named after the GPU.  A program that its time does not
suffice for is ended; its record then has the sections that were done, for it is whole after every
section.  Records that dpsim cannot read are not kept.  `--dry-run` prints the commands.
`--device cpu --tiny` goes through all of it without a GPU; such records say so and are good for no
accuracy claim.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
RECORDS = HERE / "records"
#: what ending a program takes beyond its time [s]
GRACE = 10.0


class Wanted(NamedTuple):
    """A record that is wanted: its name, the seconds that its program may take, and the words."""

    name: str
    seconds: float
    ranks: int
    program: str
    words: tuple[str, ...]


DDP, COLLECTIVES = "measure_ddp.py", "measure_collectives.py"
#: in the order of what they are worth: the last ones go without where time is short
WANTED = (
    Wanted("peaks-layers", 100, 1, DDP, ("--sections", "peaks,layers")),
    Wanted("steps", 110, 1, DDP, ("--sections", "steps,ddp,buckets,collectives")),
    Wanted("contention", 45, 1, DDP, ("--sections", "ddp,contention,overlap", "--models",
                                     "resnet50")),
    Wanted("fake-64", 60, 1, DDP, ("--sections", "layers,buckets", "--fake-world", "64")),
    Wanted("shared-2", 50, 2, DDP, ("--share-gpu", "--sections", "steps,ddp,buckets,overlap",
                                    "--models", "resnet50,bert", "--batches", "8")),
    Wanted("shared-4", 40, 4, DDP, ("--share-gpu", "--sections", "steps,ddp", "--models",
                                    "resnet50", "--batches", "8")),
    Wanted("shared-2-collectives", 25, 2, COLLECTIVES, ("--share-gpu",)),
    Wanted("spread", 50, 1, DDP, ("--sections", "ddp", "--models", "resnet50", "--batches", "8",
                                  "--steps", "2000")),
)  # fmt: skip


def command(wanted: Wanted, output: Path, device: str, tiny: bool) -> list[str]:
    """What runs `wanted` and writes `output`."""
    launcher = [sys.executable]
    if wanted.ranks > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
        launcher.append(str(wanted.ranks))
    words = [word for word in wanted.words if device == "cuda" or word != "--share-gpu"]
    small: list[str] = []
    if tiny and wanted.program == DDP:
        words = [w if w != "2000" else "3" for w in words]
        small = ["--scale", "tiny", "--sizes", "1KiB"]
        small += [] if "--steps" in words else ["--steps", "2"]
        small += [] if "--batches" in words else ["--batches", "2"]
        small += [] if "--models" in words else ["--models", "bert"]
    elif tiny:
        small = ["--sizes", "1KiB:4KiB:4", "--steps", "3"]
    given = ["--quick", "--device", device, *words, *small, "--output", str(output)]
    return [*launcher, str(HERE / wanted.program), *given]


def kept(record: Path, device: str) -> str:
    """Why `record` cannot be kept; empty where it can."""
    from dpsim.core.record import Refused
    from dpsim.measurements.readers import read_any

    if not record.is_file():
        return "wrote nothing"
    try:
        read_any(record)
    except Refused as error:
        return f"dpsim cannot read it: {error}"
    found = json.loads(record.read_text(encoding="utf-8"))
    if found["world"]["device"] != device:
        return f"ran on {found['world']['device']}, not on {device}"
    done = [name for name, each in found["sections"].items() if each["status"] == "done"]
    return "" if done else "no section was done"


def run(words: Sequence[str], seconds: float) -> str:
    """What became of a command within `seconds`; empty where all was well."""
    child = subprocess.Popen(words, cwd=HERE)
    try:
        code = child.wait(seconds)
    except subprocess.TimeoutExpired:
        child.terminate()
        try:
            child.wait(GRACE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        return f"ended after {seconds:.0f} s; later sections are missing"
    return f"exit code {code}" if code else ""


def name_of(device: str) -> str:
    """The GPU as part of a file's name."""
    if device == "cpu":
        return "cpu"
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("gpu_records: torch sees no GPU; --device cpu --tiny tries the programs")
    text = torch.cuda.get_device_name(0).lower().removeprefix("nvidia ")
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")


def record_all(out: Path, device: str, tiny: bool, minutes: float) -> int:
    """Run all programs; how many records there are not."""
    gpu, end, missing = name_of(device), time.monotonic() + 60 * minutes, 0
    with tempfile.TemporaryDirectory() as folder:
        for wanted in WANTED:
            place = Path(folder) / f"{gpu}-{wanted.name}.json"
            left = end - time.monotonic() - GRACE
            said = "no time is left"
            if left > GRACE:
                limit = min(wanted.seconds, left)
                said = run(command(wanted, place, device, tiny), limit)
            refused = kept(place, device)
            if refused:
                missing += 1
            else:
                (out / place.name).write_bytes(place.read_bytes())
            what = f"not kept: {refused}" if refused else f"-> {place.name}"
            print(f"{wanted.name}: {what}{f' ({said})' if said else ''}", flush=True)
    return missing


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=RECORDS, help="an existing folder")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny networks: does everything run?")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--dry-run", action="store_true", help="print the commands")
    given = parser.parse_args(arguments)
    if not given.out.is_dir():
        parser.error(f"--out: {given.out} is no folder")
    if given.dry_run:
        for wanted in WANTED:
            words = command(wanted, Path(f"GPU-{wanted.name}.json"), given.device, given.tiny)
            print(f"{wanted.seconds:4.0f} s  {' '.join(words)}")
        return 0
    return int(record_all(given.out, given.device, given.tiny, given.minutes) > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
