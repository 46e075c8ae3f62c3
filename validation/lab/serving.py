"""A parameter server and its workers on the lab's hosts: real gloo messages, compute that sleeps.

Rank 0 serves, one thread for each worker; all others push gradients and wait for parameters.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist


def part(order: dict[str, Any]) -> dict[str, Any]:
    """What this rank did: when its updates were made or its clocks over [s]."""
    begin = torch.tensor([time.monotonic() + 0.5], dtype=torch.float64)
    dist.broadcast(begin, 0)  # all hosts are one machine, with one clock
    if order["rank"] == 0:
        return Server(order).run()
    return work(order, float(begin[0]))


class Server:
    """Adds up what workers push, under a lock, and answers them with the parameters."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.mode, self.service = order["mode"], order["service"]
        self.workers = order["world"] - 1
        self.wanted = order["aggregate"] or self.workers
        self.bound = order["bound"]
        self.parameters = torch.zeros(order["count"])
        self.lock, self.change = threading.Lock(), threading.Condition()
        self.clocks = [0] * self.workers
        self.step = self.collected = 0
        self.over = False
        self.updates: list[float] = []

    def run(self) -> dict[str, Any]:
        threads = [threading.Thread(target=self.attend, args=(k,)) for k in range(self.workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"updates": self.updates}

    def attend(self, worker: int) -> None:
        """Serve one worker until it says that it has ended."""
        gradients, read = torch.empty_like(self.parameters), 0
        while True:
            dist.recv(gradients, src=worker + 1, tag=worker)
            if torch.isnan(gradients[0]):
                break
            with self.lock:
                self.parameters.add_(gradients, alpha=-1e-3)
                time.sleep(self.service)
            with self.change:
                read = self.admit(worker, read)
            dist.send(self.parameters, dst=worker + 1, tag=worker)
        with self.change:
            self.over = True
            self.change.notify_all()

    def admit(self, worker: int, read: int) -> int:
        """Wait until `worker` may begin its next clock; the step that it then reads."""
        self.clocks[worker] += 1
        if self.mode == "sync":
            if read == self.step:
                self.collected += 1
                if self.collected == self.wanted:
                    self.update()
                self.change.wait_for(lambda: self.step > read or self.over)
            return self.step
        self.updates.append(time.monotonic())
        self.change.notify_all()
        if self.mode == "ssp":
            self.change.wait_for(self._near(worker))
        return self.step

    def _near(self, worker: int) -> Any:
        return lambda: self.clocks[worker] - min(self.clocks) <= self.bound or self.over

    def update(self) -> None:
        self.step, self.collected = self.step + 1, 0
        self.updates.append(time.monotonic())
        self.change.notify_all()


def work(order: dict[str, Any], begin: float) -> dict[str, Any]:
    """Clock after clock until the time is over."""
    rank = order["rank"]
    gradients = torch.ones(order["count"])
    parameters = torch.empty_like(gradients)
    draws = np.random.default_rng([order["seed"], rank])
    ends = []
    time.sleep(max(begin - time.monotonic(), 0.0))
    while time.monotonic() < begin + order["duration"]:
        factor = max(1.0 + order["jitter"] * draws.standard_normal(), 0.0)
        time.sleep(order["compute"] * order["factors"][rank - 1] * factor)
        dist.send(gradients, dst=0, tag=rank - 1)
        dist.recv(parameters, src=0, tag=rank - 1)
        ends.append(time.monotonic())
    gradients[0] = float("nan")
    dist.send(gradients, dst=0, tag=rank - 1)
    return {"clocks": ends, "begin": begin}
