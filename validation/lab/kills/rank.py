"""A rank that trains a small net, saves it, and goes on from what was saved last.

    torchrun --nproc-per-node 2 rank.py --dir DIR --steps 400 --every 40 --work 0.1

Each step sleeps for `--work` seconds in place of a device, then averages real gradients with gloo.
Rank 0 appends a line per event to DIR/events.jsonl: begin (its process is there), ready (it has its
state), step, save (a checkpoint is written, synced and renamed), done.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

WIDTH = 64


def note(folder: Path, what: str, **more: Any) -> None:
    """Append an event, in one write."""
    if int(os.environ["RANK"]) == 0:
        line = json.dumps({"what": what, "at": time.time(), **more}) + "\n"
        with (folder / "events.jsonl").open("a") as file:
            file.write(line)


def save(path: Path, state: dict[str, Any]) -> None:
    """Write it so that a kill leaves the one before or this one."""
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)


def age() -> float:
    """Seconds since this process was started."""
    ticks = float(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    now = float(Path("/proc/uptime").read_text().split()[0])
    return now - ticks / os.sysconf("SC_CLK_TCK")


def train(args: argparse.Namespace) -> None:
    """Steps from the last checkpoint to the last step."""
    folder, path = args.dir, args.dir / "checkpoint.pt"
    note(folder, "begin", age=age())
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    # a store of its own for each attempt: gloo sometimes met addresses of the one before
    store = f"file://{folder.resolve()}/store-{attempt}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    (folder / f"pid.{rank}.new").write_text(str(os.getpid()))
    (folder / f"pid.{rank}.new").rename(folder / f"pid.{rank}")
    torch.manual_seed(0)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(WIDTH, WIDTH))
    adam = torch.optim.Adam(net.parameters())
    first = 0
    if path.exists():
        state = torch.load(path, weights_only=True)
        net.load_state_dict(state["net"])
        adam.load_state_dict(state["adam"])
        first = state["step"]
    dist.barrier()
    note(folder, "ready", step=first)
    for step in range(first + 1, args.steps + 1):
        time.sleep(args.work)
        adam.zero_grad()
        net(torch.full((1, WIDTH), float(step))).square().mean().backward()
        adam.step()
        note(folder, "step", step=step)
        if step % args.every == 0 and step < args.steps:
            if rank == 0:
                time.sleep(args.write)
                save(path, {"net": net.state_dict(), "adam": adam.state_dict(), "step": step})
                note(folder, "save", step=step)
            dist.barrier()
    note(folder, "done", step=args.steps)
    dist.destroy_process_group()


def main() -> None:
    """Read the arguments, train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--every", type=int, required=True, help="steps between checkpoints")
    parser.add_argument("--work", type=float, required=True, help="seconds that a step sleeps")
    parser.add_argument("--write", type=float, default=0.0, help="seconds more that saving takes")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
