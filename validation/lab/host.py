"""One host of the lab: obeys one JSON line after the other on its standard input.

curve   time all-reduces of given sizes
memory  time passes over memory
train   steps of real DistributedDataParallel whose compute is sleeping, with a hook where one is
        asked for
serve   clocks of workers, or what a parameter server did for them

It needs torch and numpy only.  Its compute is sleep, so that two cores carry eight hosts.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import signal
import sys
import time
from datetime import timedelta
from typing import Any

import numpy as np
import serving
import strategies
import torch
import torch.distributed as dist
from torch import nn

TIMEOUT = timedelta(seconds=60)


class Slept(torch.autograd.Function):
    """A layer: forward and backward take their time and nothing else."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, layer: SleepLayer) -> torch.Tensor:
        ctx.layer = layer
        layer.sleep(layer.forward_time)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        layer = ctx.layer
        layer.sleep(layer.backward_time)
        return grads[0], layer.gradient, None


def shape(count: int) -> tuple[int, int]:
    """The matrix nearest to a square of no more than `count` elements, as draw.matrix has it."""
    rows = math.isqrt(count)
    return rows, count // rows


class SleepLayer(nn.Module):
    """`count` parameters; `factor` stretches the sleeps of the current step."""

    def __init__(self, count: int, forward_time: float, backward_time: float) -> None:
        super().__init__()
        rows, columns = shape(count)
        self.weight = nn.Parameter(torch.zeros(rows, columns))
        self.gradient = torch.randn(rows, columns)
        self.forward_time, self.backward_time = forward_time, backward_time
        self.factor = 1.0

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds * self.factor)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = Slept.apply(x, self.weight, self)
        return result


def curve(order: dict[str, Any]) -> dict[str, Any]:
    """Seconds of every all-reduce, by size in bytes; a barrier before each."""
    found: dict[str, list[float]] = {}
    for size in order["sizes"]:
        tensor = torch.ones(size // 4)
        times = []
        for _ in range(order["repeats"] + 1):
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(tensor)
            times.append(time.perf_counter() - start)
        found[str(size)] = times[1:]
    return {"seconds": found}


def memory(order: dict[str, Any]) -> dict[str, Any]:
    """Seconds of adding one array of `size` bytes to another: three passes."""
    one, other = torch.ones(order["size"] // 4), torch.ones(order["size"] // 4)
    times = []
    for _ in range(order["repeats"] + 1):
        start = time.perf_counter()
        one.add_(other)
        times.append(time.perf_counter() - start)
    return {"seconds": times[1:]}


def train(order: dict[str, Any]) -> dict[str, Any]:
    """Duration of every measured step on this rank, the mean of a round where there are rounds
    [s]."""
    layers = [SleepLayer(*layer) for layer in order["layers"]]
    knobs = order.get("strategy") or {"kind": "ddp"}
    model, after_step = strategies.prepared(nn.Sequential(*layers), order, knobs)
    if order.get("compression"):
        import hooks

        hooks.register(model, order["compression"])
    period = knobs.get("period", 1)
    warmup = -(-order["warmup"] // period) * period
    draws = np.random.default_rng([order["seed"], order["rank"]])
    x = torch.ones(1, requires_grad=True)
    ends = []
    dist.barrier()
    for step in range(warmup + order["steps"]):
        factor = order["factor"]
        if order["jitter"]:
            factor *= max(1.0 + order["jitter"] * draws.standard_normal(), 0.0)
        for layer in layers:
            layer.factor = factor
        model.zero_grad(set_to_none=True)
        model(x).sum().backward()
        after_step()
        if (step + 1) % period == 0:
            ends.append(time.perf_counter())
    spans = np.diff(ends)[warmup // period - 1 :] / period
    return {"seconds": spans.tolist()}


def prefer() -> None:
    """Run before the machine's other programs, where that is allowed: a real host has its cores
    to itself, and this one uses a few percent of one."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def serve() -> None:
    """Obey until the input ends."""
    torch.set_num_threads(1)
    print(json.dumps({"torch": torch.__version__, "numpy": np.__version__}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        where = f"tcp://{order['master']}:{order['port']}"
        dist.init_process_group(
            "gloo", init_method=where, rank=order["rank"], world_size=order["world"],
            timeout=TIMEOUT,
        )  # fmt: skip
        try:
            parts = {"curve": curve, "memory": memory, "train": train, "serve": serving.part}
            answer = parts[order["do"]](order)
            dist.barrier()
            # gloo's thread drops the last work with the interpreter, which torch (2.13) holds while
            # it waits for that thread
            time.sleep(0.2)
        finally:
            dist.destroy_process_group()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    # die with the program that started this host, even if that one is killed
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    prefer()
    serve()
