"""kill -9 of a replica group under torchft: when the other one goes on, and when both work again.

    python validation/lab/kills/replicas.py --kills 4 --seed 1 [--work 4]    # needs torchft

Two groups of one rank each train a small net over gloo; steps sleep for `--work` seconds.  One is
killed after some common steps, at a time in a step that is drawn by seed, and started anew at once.
Prints for each kill the seconds until the survivor's next step counts, beside what dpsim says from
torchft's defaults alone, how many steps were discarded, and until both work again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from dpsim.life.recoveries.torchft import TorchFt

STEPS, TOGETHER = 400, 4


def train(name: str, path: Path, work: float) -> None:
    """A replica group of one rank: a line of JSON for each step."""
    import torch
    import torch.distributed as dist
    from torchft import Manager, Optimizer, ProcessGroupGloo

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    net = torch.nn.Linear(64, 64)
    adam = torch.optim.Adam(net.parameters())

    def load(state: dict[str, Any]) -> None:
        net.load_state_dict(state["net"])
        adam.load_state_dict(state["adam"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=5)), load_state_dict=load,
        state_dict=lambda: {"net": net.state_dict(), "adam": adam.state_dict()},
        min_replica_size=1, replica_id=f"group_{name}", store_addr="127.0.0.1",
        store_port=store.port, rank=0, world_size=1, hostname="127.0.0.1",
    )  # fmt: skip
    optimizer = Optimizer(manager, adam)
    while manager.current_step() < STEPS:
        optimizer.zero_grad()
        time.sleep(work)
        net(torch.ones(1, 64)).square().mean().backward()
        for reduced in [manager.allreduce(one.grad) for one in net.parameters()]:
            reduced.wait()
        before = manager.current_step()
        optimizer.step()
        event = {"who": name, "at": time.time(), "groups": manager.num_participants(),
                 "counts": manager.current_step() > before}  # fmt: skip
        with path.open("a") as file:
            file.write(json.dumps(event) + "\n")


def events(path: Path) -> list[dict[str, Any]]:
    """What the groups have written; the last line may be half there."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def watch(phases: list[float], path: Path, work: float) -> list[float]:
    """Play, and say when the second group was killed: so many seconds into a step each."""
    from torchft.coordination import LighthouseServer

    house = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=1000)
    where = f"http://127.0.0.1:{house.address().rpartition(':')[2]}"
    quiet = {**os.environ, "TORCHFT_LIGHTHOUSE": where, "OMP_NUM_THREADS": "1"}

    def started(name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, __file__, "--rank", name, "--path", str(path),
                   "--work", str(work)]  # fmt: skip
        return subprocess.Popen(command, env=quiet, stderr=subprocess.DEVNULL)

    groups, found = {name: started(name) for name in "ab"}, [0.0]
    while groups["a"].poll() is None:
        mine = [one for one in events(path) if one["who"] == "a" and one["at"] > found[-1]]
        common = [one for one in mine if one["groups"] == 2]
        if len(common) >= TOGETHER:
            if len(found) > len(phases):
                break
            time.sleep(max(common[-1]["at"] + phases[len(found) - 1] - time.time(), 0.0))
            groups["b"].kill()
            found.append(time.time())
            groups["b"].wait()
            groups["b"] = started("b")
        time.sleep(0.01)
    for each in groups.values():
        each.kill()
    return found[1:]


def said(at: float, before: float, work: float) -> float:
    """Seconds from a kill at `at` until the next step counts, as dpsim's torchft has it, where the
    step in hand began at `before` and all of the next one is computed before its reduction."""
    return TorchFt().costs(before + work - at, work) + work


def main() -> None:
    """Kill, and print what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=float, default=0.5)
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.rank:
        train(asked.rank, asked.path, asked.work)
        return
    path = Path(tempfile.mkdtemp()) / "events.jsonl"
    dice = random.Random(asked.seed)
    for at in watch([dice.uniform(0.0, asked.work) for _ in range(asked.kills)], path, asked.work):
        before = max(one["at"] for one in events(path) if one["who"] == "a" and one["at"] <= at)
        later = [one for one in events(path) if one["who"] == "a" and one["at"] > at]
        counts = [one["at"] - at for one in later if one["counts"]]
        both = [one["at"] - at for one in later if one["counts"] and one["groups"] == 2]
        lost = sum(not one["counts"] for one in later if one["at"] - at < counts[0])
        print(f"{at - before:.2f} s into a step: the next counts after {counts[0]:.2f} s, dpsim "
              f"{said(at, before, asked.work):.2f} s, {lost} discarded, both after {both[0]:.2f} s",
              flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
