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
    """What this rank did: of the server, when updates were made and workers' clocks were over [s];
    of a worker, when it began."""
    begin = torch.tensor([time.monotonic() + 0.5], dtype=torch.float64)
    dist.broadcast(begin, 0)  # all hosts are one machine, with one clock
    time.sleep(max(float(begin[0]) - time.monotonic(), 0.0))
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
        self.ticks: list[list[float]] = [[] for _ in range(self.workers)]
        self.step = self.collected = 0
        self.over = False
        self.updates: list[float] = []

    def run(self) -> dict[str, Any]:
        threads = [threading.Thread(target=self.attend, args=(k,)) for k in range(self.workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"updates": self.updates, "clocks": self.ticks}

    def attend(self, worker: int) -> None:
        """Serve one worker, which begins with parameters, until it says that it has ended."""
        gradients, read = torch.empty_like(self.parameters), 0
        while True:
            dist.send(self.parameters, dst=worker + 1, tag=worker)
            dist.recv(gradients, src=worker + 1, tag=worker)
            if torch.isnan(gradients[0]):
                break
            with self.lock:
                self.parameters.add_(gradients, alpha=-1e-3)
                time.sleep(self.service)
            with self.change:
                read = self.admit(worker, read)
        with self.change:
            self.over = True
            self.change.notify_all()

    def admit(self, worker: int, read: int) -> int:
        """Wait until `worker` may begin its next clock; the step that it then reads."""
        self.ticks[worker].append(time.monotonic())
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
        def near() -> bool:
            ended = [len(ticks) for ticks in self.ticks]
            return self.over or ended[worker] - min(ended) <= self.bound

        return near

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
    while True:
        dist.recv(parameters, src=0, tag=rank - 1)
        if time.monotonic() >= begin + order["duration"]:
            break
        factor = max(1.0 + order["jitter"] * draws.standard_normal(), 0.0)
        time.sleep(order["compute"] * order["factors"][rank - 1] * factor)
        dist.send(gradients, dst=0, tag=rank - 1)
    gradients[0] = float("nan")
    dist.send(gradients, dst=0, tag=rank - 1)
    return {"begin": begin}
