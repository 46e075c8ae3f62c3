#!/usr/bin/env python3
"""Measure one machine and PyTorch DDP on it, for `dpsim calibrate` and for comparisons.

    python measure_ddp.py --output one.json                       # one GPU, or the CPU
    torchrun --nproc-per-node 8 measure_ddp.py --output eight.json
    torchrun --nproc-per-node 2 measure_ddp.py --share-gpu --output shared.json
    python measure_ddp.py --fake-world 64 --sections layers,buckets --output fake.json

Needs torch and numpy, and _measure.py and _networks.py beside it.  The input is synthetic and
already on the device: no data loading is measured.  records/README.md describes the record.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import itertools
import math
import re
import statistics
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import _networks
import numpy as np
import torch
import torch.distributed as dist
from _measure import (
    Clock,
    Failed,
    LeftOut,
    Record,
    World,
    add_world_options,
    curve,
    joined,
    kept,
    leave,
    parse_sizes,
    positive,
    reason,
)
from torch.nn.parallel import DistributedDataParallel

ADDRESSES = ("master_addr", "master_port", "gloo_socket_ifname", "nccl_socket_ifname")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add_world_options(parser)
    add("--sections", default=",".join(SECTIONS), help=f"of {', '.join(SECTIONS)}")
    add("--models", default=None, help=f"of {', '.join(_networks.NAMES)}; default: all")
    add("--scale", choices=("full", "tiny"), default="full", help="tiny: for tests")
    add("--llama-size", choices=("160m", "1b"), default="160m")
    add("--sequence", type=int, default=512, help="tokens per sequence of bert and llama")
    add("--batches", type=counts, default=None, help="samples per rank, such as 1,8,32,64")
    add("--precision", choices=("fp32", "tf32", "bf16"), default=None, help="bf16 is autocast")
    add("--channels-last", action="store_true", help="memory format of images")
    add("--bucket-cap-mb", type=float, default=25.0)
    add("--steps", type=positive, default=None, help="timed steps per model and batch")
    add("--warmup", type=positive, default=None, help="steps before them")
    add("--sizes", type=parse_sizes, default=None, help="of collectives: 1KiB:256MiB:4")
    add("--fake-world", type=positive, default=0, metavar="RANKS", help="DDP without communication")
    add("--trace", action="store_true", help="one Kineto trace beside the record, of rank 0")
    found = parser.parse_args()
    for name, known in (("sections", SECTIONS), ("models", _networks.NAMES)):
        text = getattr(found, name)
        chosen = text.split(",") if text else list(known)
        strange = [each for each in chosen if each not in known]
        if strange:
            parser.error(f"--{name}: {strange[0]!r} is none of {', '.join(known)}")
        setattr(found, name, chosen)
    return found


def counts(text: str) -> list[int]:
    return sorted({positive(part) for part in text.split(",")})


def fill(chosen: argparse.Namespace, world: World) -> None:
    """Defaults that depend on the machine: a GPU is worth more samples than a CPU."""
    small = chosen.quick or not world.on_gpu
    on_gpu = [8, 32] if chosen.quick else [1, 8, 32, 64]
    chosen.batches = chosen.batches or (on_gpu if world.on_gpu else [1, 4])
    chosen.precision = chosen.precision or ("bf16" if world.on_gpu else "fp32")
    chosen.steps = chosen.steps or (10 if small else 50)
    chosen.warmup = chosen.warmup or (3 if small else 10)
    chosen.sizes = chosen.sizes or parse_sizes("1KiB:16MiB:4" if small else "1KiB:256MiB:4")
    tf32 = chosen.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True


# -- one model in training ------------------------------------------------------------------------


class Trainee:
    """A network, its optimizer and one batch on the device."""

    def __init__(self, name: str, count: int, chosen: argparse.Namespace, world: World) -> None:
        with world.device:
            self.network = _networks.network(
                name,
                tiny=chosen.scale == "tiny",
                llama_size=chosen.llama_size,
                sequence=chosen.sequence,
            )
        self.chosen, self.world, self.count = chosen, world, count
        self.module: torch.nn.Module = self.network.module.to(world.device).train()
        self.batch = self.network.batch(count, world.device)
        if chosen.channels_last and self.network.sample == "image":
            self.module.to(memory_format=torch.channels_last)
            self.batch = (self.batch[0].to(memory_format=torch.channels_last), self.batch[1])
        parameters = self.module.parameters()
        self.optimizer: torch.optim.Optimizer = (
            torch.optim.SGD(parameters, lr=1e-4, momentum=0.9)
            if self.network.sample == "image"
            else torch.optim.AdamW(parameters, lr=1e-5)
        )

    @property
    def about(self) -> dict[str, Any]:
        """What was trained, for the record."""
        own = list(self.network.module.parameters())
        return {
            "model": self.network.name,
            "batch": self.count,
            "sample": self.network.sample,
            "shape": list(self.network.shape),
            "precision": self.chosen.precision,
            "optimizer": type(self.optimizer).__name__,
            "parameters": sum(each.numel() for each in own),
            "gradient_bytes": sum(each.numel() * each.element_size() for each in own),
        }

    def wrapped(self, hook: Callable[..., Any] | None = None) -> DistributedDataParallel:
        """Under DDP from now on, with a communication hook if given."""
        device_ids = [self.world.device.index] if self.world.on_gpu else None
        made = DistributedDataParallel(
            self.module, device_ids=device_ids, bucket_cap_mb=self.chosen.bucket_cap_mb
        )
        if hook is not None or self.world.fake:
            made.register_comm_hook(None, hook or (lambda _, bucket: arrived(bucket.buffer())))
        self.module = made
        return made

    def forward(self) -> torch.Tensor:
        mixed = self.chosen.precision == "bf16"
        with torch.autocast(self.world.device.type, torch.bfloat16, enabled=mixed):
            return self.network.loss(self.module, self.batch)

    def step(self, note: Callable[[], Any] = lambda: None) -> None:
        """One training step; `note` is called after forward and after backward."""
        loss = self.forward()
        note()
        loss.backward()
        note()
        self.update()

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def arrived(buffer: torch.Tensor) -> torch.futures.Future[Any]:
    """What a collective of a fake world gives: its input, at once."""
    devices = [buffer.device] if buffer.is_cuda else None
    future: torch.futures.Future[Any] = torch.futures.Future(devices=devices)
    future.set_result(buffer)
    return future


Run = Callable[[Trainee], dict[str, Any]]


def runs(chosen: argparse.Namespace, world: World, measure: Run) -> dict[str, Any]:
    """`measure` of every model and batch.

    One that fails on any rank, as one that does not fit in memory, is listed with its reason.
    """
    found: dict[str, Any] = {"runs": [], "failures": []}
    for name in chosen.models:
        for count in chosen.batches:
            try:
                trainee = world.agreed(lambda: Trainee(name, count, chosen, world))  # noqa: B023
                found["runs"].append(trainee.about | measure(trainee))
            except Failed as error:  # out of memory, above all
                found["failures"].append({"model": name, "batch": count, "reason": str(error)})
            trainee = None
            gc.collect()
            if world.on_gpu:
                torch.cuda.empty_cache()
    if not found["runs"]:
        reasons = dict.fromkeys(each["reason"] for each in found["failures"])
        raise Failed("; ".join(reasons))
    return found


# -- peaks ----------------------------------------------------------------------------------------

GPU_SHAPES = (
    *((side, side, side) for side in (256, 512, 1024, 2048, 4096, 8192)),
    *((8192, 4096, 4096), (8192, 14336, 4096), (8192, 4096, 14336)),  # a Llama-3-8B's, 8,192 tokens
    *((4096, 768, 768), (4096, 3072, 768), (4096, 768, 3072)),  # a BERT-base's, 4,096 tokens
    *((16, 4096, 4096), (128, 4096, 4096)),  # few rows
)
CPU_SHAPES = (*((side, side, side) for side in (128, 256, 512)), (256, 3072, 768), (16, 768, 768))
GPU_DTYPES = ("fp32", "tf32", "bf16", "fp16")
TORCH = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


def peaks(chosen: argparse.Namespace, world: World) -> dict[str, Any]:
    """Matrix products by dtype and shape, and copies by size: rank 0 alone, the others wait."""
    if not world.leads:
        return {}
    shapes = GPU_SHAPES if world.on_gpu else CPU_SHAPES
    shapes = shapes[:4] if chosen.quick else shapes
    dtypes = GPU_DTYPES if world.on_gpu else ("fp32", "bf16")
    products = [_product(dtype, shape, world) for dtype in dtypes for shape in shapes]
    return {
        "matmul": products,
        "copy": _copies(chosen, world),
        "left_out": ["fp8: torch has no public matrix product for it"],
    }


def _product(dtype: str, shape: tuple[int, int, int], world: World) -> dict[str, Any]:
    """(m x k) by (k x n); every sample is the mean of `inner` products."""
    m, n, k = shape
    clock, before = Clock(world.device), torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    try:
        a = torch.randn(m, k, device=world.device).to(TORCH[dtype])
        b = torch.randn(k, n, device=world.device).to(TORCH[dtype])
        samples, inner = _sampled(clock, lambda: torch.mm(a, b))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    work = 2 * m * n * k
    rate = work / statistics.median(samples)
    made = {"dtype": dtype, "m": m, "n": n, "k": k, "flop": work, "inner": inner}
    return made | {"samples_s": samples, "flop_per_s": rate}


def _sampled(clock: Clock, work: Callable[[], Any], count: int = 10) -> tuple[list[float], int]:
    """`count` means of so many repetitions as take about 2 ms, so that marks do not weigh."""
    inner = lasting(clock, work, 2e-3)
    samples = clock.repeat(times(inner, work), count, 1)
    return kept(value / inner for value in samples), inner


def lasting(clock: Clock, work: Callable[[], Any], seconds: float) -> int:
    """How often `work` must be repeated to last so long [s]."""
    once = statistics.median(clock.repeat(work, 3, 2))
    return max(1, min(10_000, math.ceil(seconds / max(once, 1e-7))))


def times(count: int, work: Callable[[], Any]) -> Callable[[], None]:
    """`work` `count` times, as one call."""

    def several() -> None:
        for _ in range(count):
            work()

    return several


def _copies(chosen: argparse.Namespace, world: World) -> list[dict[str, Any]]:
    """Copies inside the device, and between host and GPU.  The rate counts bytes copied once."""
    sizes = parse_sizes("1MiB:64MiB:8" if chosen.quick or not world.on_gpu else "1MiB:1GiB:8")
    found = []
    for size in sizes:
        here = torch.zeros(size, dtype=torch.uint8, device=world.device)
        pairs = {"device": (torch.empty_like(here), here)}
        if world.on_gpu:
            host = torch.zeros(size, dtype=torch.uint8, pin_memory=True)
            pairs |= {"host_to_device": (here, host), "device_to_host": (host, here)}
        for way, (target, source) in pairs.items():
            samples, inner = _sampled(
                Clock(world.device),
                lambda target=target, source=source: target.copy_(source, non_blocking=True),
            )
            rate = size / statistics.median(samples)
            made = {"way": way, "bytes": size, "inner": inner}
            found.append(made | {"samples_s": samples, "bytes_per_s": rate})
    return found


# -- layers ---------------------------------------------------------------------------------------


class LayerTimer:
    """Marks at the start and the end of forward and backward of every layer, by hooks.

    Backward ends when the gradient of the layer's input and of all its parameters is there.  A
    parameter that two layers share counts for the first of them, where its gradient is complete.
    """

    def __init__(self, module: torch.nn.Module, clock: Clock) -> None:
        self.clock, self.kinds = clock, {}
        self.starts: dict[tuple[str, str], Any] = {}
        self.ends: dict[tuple[str, str], list[Any]] = {}
        seen: set[int] = set()
        for name, layer in module.named_modules():
            if isinstance(layer, _networks.Layer):
                own = [each for each in layer.parameters() if id(each) not in seen]
                seen |= {id(each) for each in own}
                self.kinds[name] = (type(layer).__name__, sum(each.numel() for each in own))
                self._watch(name, layer, own)

    def _watch(self, name: str, layer: torch.nn.Module, own: list[torch.nn.Parameter]) -> None:
        forward, backward = (name, "forward"), (name, "backward")
        layer.register_forward_pre_hook(lambda *_: self._start(forward))
        layer.register_forward_hook(lambda *_: self._end(forward))
        layer.register_full_backward_pre_hook(lambda *_: self._start(backward))
        layer.register_full_backward_hook(lambda *_: self._end(backward))
        for each in own:
            each.register_post_accumulate_grad_hook(lambda *_: self._end(backward))

    def _start(self, key: tuple[str, str]) -> None:
        self.starts[key] = self.clock.mark()

    def _end(self, key: tuple[str, str]) -> None:
        self.ends.setdefault(key, []).append(self.clock.mark())

    def collect(self) -> dict[tuple[str, str], float]:
        """Durations since the last call [s]."""
        self.clock.settle()
        found = {
            key: max(self.clock.seconds(start, end) for end in self.ends[key])
            for key, start in self.starts.items()
        }
        self.starts, self.ends = {}, {}
        return found


def layers(chosen: argparse.Namespace, world: World) -> dict[str, Any]:
    """Forward and backward of every layer: rank 0 alone, without DDP."""
    return runs(chosen, world, lambda trainee: world.alone(lambda: _layers(trainee)) or {})


def _layers(trainee: Trainee) -> dict[str, Any]:
    clock, chosen = Clock(trainee.world.device), trainee.chosen
    plain = clock.repeat(trainee.step, max(3, chosen.steps // 5), chosen.warmup)
    timer = LayerTimer(trainee.module, clock)
    # the first layer's input needs no gradient; its parameters' gradients end its backward
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    steps = []
    for _ in range(1 + max(3, chosen.steps // 5)):
        trainee.step()
        steps.append(timer.collect())
    steps = steps[1:]  # the first one makes the hooks' own buffers
    rows = [
        {
            "name": name,
            "kind": kind,
            "parameters": parameters,
            "forward_s": kept(step[name, "forward"] for step in steps),
            "backward_s": kept(step[name, "backward"] for step in steps),
        }
        for name, (kind, parameters) in timer.kinds.items()
    ]
    return {"layers": rows, "step_without_hooks_s": plain}


# -- steps ----------------------------------------------------------------------------------------


def steps(chosen: argparse.Namespace, world: World) -> dict[str, Any]:
    """Steps without DDP: rank 0 alone, then all ranks at once, as far as there are several."""
    return runs(chosen, world, lambda trainee: _steps(trainee, world))


def _steps(trainee: Trainee, world: World) -> dict[str, Any]:
    chosen, clock = trainee.chosen, Clock(world.device)
    found: dict[str, Any] = world.alone(lambda: _phases(trainee)) or {}
    if world.size > 1 and not world.fake:
        mine = world.agreed(lambda: clock.repeat(trainee.step, chosen.steps, chosen.warmup))
        found["together_s"] = world.gather(mine)
    return found


def _phases(trainee: Trainee) -> dict[str, Any]:
    """Back-to-back steps, and their parts."""
    clock, chosen = Clock(trainee.world.device), trainee.chosen
    on_gpu, marks = trainee.world.on_gpu, []
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    for _ in range(chosen.warmup):
        trainee.step()
    clock.settle()
    marks.append(clock.mark())
    for _ in range(chosen.steps):
        trainee.step(lambda: marks.append(clock.mark()))
        marks.append(clock.mark())
    clock.settle()
    parts = [clock.seconds(a, b) for a, b in itertools.pairwise(marks)]
    return {
        "alone_s": kept(sum(parts[i : i + 3]) for i in range(0, len(parts), 3)),
        "forward_s": kept(parts[0::3]),
        "backward_s": kept(parts[1::3]),
        "optimizer_s": kept(parts[2::3]),
        "memory_peak_bytes": torch.cuda.max_memory_allocated() if on_gpu else None,
    }


# -- DDP ------------------------------------------------------------------------------------------


def ddp(chosen: argparse.Namespace, world: World) -> dict[str, Any]:
    """Steps under DDP, back to back, every sample of every rank."""

    def measure(trainee: Trainee) -> dict[str, Any]:
        model = world.agreed(trainee.wrapped)
        clock = Clock(world.device)
        mine = world.agreed(lambda: clock.repeat(trainee.step, chosen.steps, chosen.warmup))
        return {"samples_s": world.gather(mine), "ddp_logging_data": logging_data(model)}

    return runs(chosen, world, measure)


def logging_data(model: DistributedDataParallel) -> dict[str, Any]:
    """What DDP says about itself, of rank 0, without addresses; its times are in nanoseconds."""
    if not hasattr(model, "_get_ddp_logging_data"):  # a prototype of torch that may go away
        return {}
    logged = model._get_ddp_logging_data()
    return {name: value for name, value in logged.items() if name not in ADDRESSES}


class BucketTimer:
    """A communication hook that averages as DDP does and notes when each bucket came and went.

    The end is a mark of the stream on which the collective ended, as NCCL's futures give it.
    gloo's futures end on a thread of the host, so there the host's clock counts.
    """

    def __init__(self, trainee: Trainee) -> None:
        self.trainee, self.world = trainee, trainee.world
        self.clock = Clock(self.world.device)
        self.on_host = self.world.backend == "gloo"
        self.names = {id(each): name for name, each in trainee.module.named_parameters()}
        self.layout: dict[int, dict[str, Any]] = {}
        self.ready: dict[int, Any] = {}
        self.issued: dict[int, tuple[Any, list[int]]] = {}
        self.ended: dict[int, Any] = {}
        for each in trainee.module.parameters():
            each.register_post_accumulate_grad_hook(self._note)
        self.model = trainee.wrapped(self._hook)

    def _note(self, parameter: torch.Tensor) -> None:
        self.ready[id(parameter)] = self.clock.mark()

    def _hook(self, _, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations as text
        index, buffer = bucket.index(), bucket.buffer()
        members = [id(each) for each in bucket.parameters()]
        self.issued[index] = (self.clock.mark(), members)
        self.layout[index] = {
            "index": index,
            "bytes": buffer.numel() * buffer.element_size(),
            "dtype": str(buffer.dtype).removeprefix("torch."),
            "parameters": [self.names[each] for each in members],
        }

        def end(future: torch.futures.Future[Any]) -> torch.Tensor:
            self.ended[index] = time.perf_counter() if self.on_host else self.clock.mark()
            return buffer

        buffer.div_(self.world.size)
        if self.world.fake:
            return arrived(buffer).then(end)
        return dist.all_reduce(buffer, async_op=True).get_future().then(end)

    def step(self) -> dict[str, Any]:
        """One step from a settled device; all times from its start [s]."""
        self.clock.settle()
        start, host = self.clock.mark(), time.perf_counter()
        marks: list[Any] = []
        self.trainee.step(lambda: marks.append(self.clock.mark()))
        marks.append(self.clock.mark())
        self.clock.settle()

        def since(mark: Any) -> float:
            return round(self.clock.seconds(start, mark), 9)

        rows = [
            {
                "index": index,
                "ready_s": max(since(self.ready[each]) for each in members),
                "issued_s": since(issued),
                "end_s": round(self.ended[index] - host, 9)
                if self.on_host
                else since(self.ended[index]),
            }
            for index, (issued, members) in sorted(self.issued.items())
        ]
        names = ("forward_end_s", "backward_end_s", "step_end_s")
        return dict(zip(names, map(since, marks), strict=True)) | {"buckets": rows}


def buckets(chosen: argparse.Namespace, world: World) -> dict[str, Any]:
    """DDP's buckets after their rebuild: layout, times in a step, and DDP's own logging data."""

    def measure(trainee: Trainee) -> dict[str, Any]:
        timer = world.agreed(lambda: BucketTimer(trainee))

        def several() -> list[dict[str, Any]]:
            for _ in range(max(2, chosen.warmup)):  # DDP rebuilds its buckets after the first
                trainee.step()
            timer.layout = {}
            return [timer.step() for _ in range(max(3, chosen.steps // 5))]

        timeline = world.agreed(several)
        return {
            "bucket_cap_mb": chosen.bucket_cap_mb,
            "buckets": [timer.layout[index] for index in sorted(timer.layout)],
            "steps": world.gather(timeline),
            "ddp_logging_data": logging_data(timer.model),
        }

    return runs(chosen, world, measure)


def collectives(chosen: argparse.Namespace, world: World) -> dict[str, Any]:
    """Curves of what DDP and FSDP call."""
    if world.fake:
        raise LeftOut("a fake world communicates nothing")
    count, budget = (5, 0.5) if chosen.quick else (20, 2.0)
    names = ("all_reduce", "all_gather", "reduce_scatter")
    made = [curve(name, chosen.sizes, world, count=count, warmup=2, budget=budget)
            for name in names]  # fmt: skip
    return {"curves": made}


def overlap(chosen: argparse.Namespace, world: World) -> dict[str, Any]:
    """The same step with communication beside backward, after it, and without it.

    `after`: under no_sync, then one all-reduce of a flat buffer of all gradients' bytes, then the
    optimizer.  Copies into and out of that buffer are not made.  `none`: no_sync only.
    """
    if world.fake:
        raise LeftOut("a fake world communicates nothing")

    def measure(trainee: Trainee) -> dict[str, Any]:
        model, clock = world.agreed(trainee.wrapped), Clock(world.device)
        flat = torch.zeros(trainee.about["gradient_bytes"] // 4, device=world.device)

        def quiet() -> None:
            with model.no_sync():
                trainee.forward().backward()

        def after() -> None:
            quiet()
            dist.all_reduce(flat)
            trainee.update()

        def none() -> None:
            quiet()
            trainee.update()

        ways = {"beside": trainee.step, "after": after, "none": none,
                "all_reduce": lambda: dist.all_reduce(flat)}  # fmt: skip
        made: dict[str, Any] = {"flat_bytes": 4 * flat.numel()}
        for name, way in ways.items():
            mine = world.agreed(lambda: clock.repeat(way, chosen.steps, chosen.warmup))  # noqa: B023
            made[f"{name}_s"] = world.gather(mine)
        return made

    return runs(chosen, world, measure)


# -- contention -----------------------------------------------------------------------------------


class Copies:
    """Copies that run beside whatever else runs, from a thread of their own.

    On a GPU they are kernels on a second stream, a few ahead at a time; on a CPU they are memcpy of
    NumPy, which lets other threads run.
    """

    def __init__(self, world: World) -> None:
        self.world, self.stop, self.count, self.error = world, threading.Event(), 0, ""
        size = 2**28 if world.on_gpu else 2**25
        if world.on_gpu:
            self.stream = torch.cuda.Stream(world.device)
            self.buffers = [torch.zeros(size // 4, device=world.device) for _ in range(2)]
        else:
            self.arrays = [np.zeros(size, np.uint8) for _ in range(2)]
        self.bytes = size

    def _copy_on_gpu(self, ahead: list[torch.cuda.Event]) -> None:
        # an addition, not copy_: a kernel on the multiprocessors, which a copy engine would spare
        torch.add(self.buffers[0], 1.0, out=self.buffers[1])
        event = torch.cuda.Event()
        event.record()
        ahead.append(event)
        if len(ahead) > 8:
            ahead.pop(0).synchronize()
            self.count += 1

    def _run(self) -> None:
        try:
            if self.world.on_gpu:
                torch.cuda.set_device(self.world.device)
                ahead: list[torch.cuda.Event] = []
                with torch.cuda.stream(self.stream):
                    while not self.stop.is_set():
                        self._copy_on_gpu(ahead)
                self.stream.synchronize()
            else:
                while not self.stop.is_set():
                    np.copyto(self.arrays[0], self.arrays[1])
                    self.count += 1
        except Exception as error:  # told by the thread that waits
            self.error = reason(error)

    @contextmanager
    def running(self) -> Iterator[Callable[[], float]]:
        """Inside, copies run; the value gives the rate so far [bytes copied per second]."""
        self.stop.clear()
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            self._wait_for(self.count + 2)
            start, first = time.perf_counter(), self.count
            yield lambda: self.bytes * (self.count - first) / (time.perf_counter() - start)
        finally:
            self.stop.set()
            thread.join()

    def _wait_for(self, count: int) -> None:
        limit = time.perf_counter() + 60
        while self.count < count:
            if self.error or time.perf_counter() > limit:
                raise RuntimeError(f"the copies do not run: {self.error or 'after a minute'}")
            time.sleep(1e-3)


class Reduces:
    """All-reduces that run beside: so many are issued ahead that they outlast the work."""

    AHEAD = 400  # at most; a GPU's queue holds about 1,000 launches

    def __init__(self, world: World, bytes_: int) -> None:
        self.world, self.bytes = world, bytes_
        self.buffer = torch.zeros(bytes_ // 4, device=world.device)
        clock = Clock(world.device)
        once = world.agreed(lambda: clock.repeat(lambda: dist.all_reduce(self.buffer), 3, 1))
        self.seconds = world.first(statistics.median(once))

    def measure(self, work: Callable[[], Any], count: int, ahead: int) -> dict[str, Any]:
        """`work` beside `ahead` all-reduces; `covered` says whether they really outlasted it."""
        handles = [dist.all_reduce(self.buffer, async_op=True) for _ in range(ahead)]
        samples = Clock(self.world.device).repeat(work, count)
        covered = not handles[-1].is_completed()
        for handle in handles:
            handle.wait()
        return {"beside_s": samples, "covered": covered}


def contention(chosen: argparse.Namespace, world: World) -> dict[str, Any]:
    """Compute alone, beside a stream of copies, and beside all-reduces: its slowing down."""
    found: dict[str, Any] = {"copies": world.alone(lambda: _beside_copies(chosen, world))}
    if world.size > 1 and not world.fake:
        found["all_reduces"] = _beside_reduces(chosen, world)
    else:
        found["left_out"] = ["all_reduces: one rank communicates nothing"]
    return found


LASTING = 20e-3  # [s] of work per sample, many times as long as one copy or all-reduce


def _works(chosen: argparse.Namespace, world: World) -> dict[str, tuple[Callable[[], Any], int]]:
    """Work that is slowed, and how often it makes a sample.

    A product that computes, a sum that streams, a training step.
    """
    side = 4096 if world.on_gpu else 256
    dtype = torch.bfloat16 if world.on_gpu else torch.float32
    a = torch.randn(side, side, device=world.device).to(dtype)
    b = torch.randn(2**26 if world.on_gpu else 2**21, device=world.device)
    trainee = Trainee(chosen.models[0], min(chosen.batches), chosen, world)
    works: dict[str, Callable[[], Any]] = {
        f"matmul_{side}": lambda: torch.mm(a, a),
        f"add_{4 * b.numel()}_bytes": lambda: torch.add(b, 1.0),
        f"step_{chosen.models[0]}_{min(chosen.batches)}": trainee.step,
    }
    clock = Clock(world.device)
    return {name: (work, lasting(clock, work, LASTING)) for name, work in works.items()}


def _beside_copies(chosen: argparse.Namespace, world: World) -> list[dict[str, Any]]:
    clock, copies, found = Clock(world.device), Copies(world), []
    with copies.running() as rate:
        time.sleep(0.2)
        free = rate()
    for name, (work, inner) in _works(chosen, world).items():
        sample = times(inner, work)
        alone = clock.repeat(sample, chosen.steps, 1)
        with copies.running() as rate:
            beside = clock.repeat(sample, chosen.steps, 1)
            during = rate()
        found.append({
            "work": name,
            "inner": inner,
            "alone_s": kept(value / inner for value in alone),
            "beside_s": kept(value / inner for value in beside),
            "copy_bytes": copies.bytes,
            "copy_alone_bytes_per_s": free,
            "copy_beside_bytes_per_s": during,
        })  # fmt: skip
    return found


def _beside_reduces(chosen: argparse.Namespace, world: World) -> list[dict[str, Any]]:
    clock, found = Clock(world.device), []
    works = world.agreed(lambda: _works(chosen, world))
    reduces = Reduces(world, 2**28 if world.on_gpu else 2**25)
    for name, (work, own) in works.items():
        inner = max(world.gather(own))
        sample = times(inner, work)
        alone = world.agreed(lambda: clock.repeat(sample, chosen.steps, 1))  # noqa: B023
        # 3: room for the work to slow down
        each = 3 * max(world.gather(statistics.median(alone))) / reduces.seconds
        count = max(1, min(chosen.steps, int(Reduces.AHEAD / each)))
        ahead = min(Reduces.AHEAD, 2 + math.ceil(count * each))
        made = world.agreed(lambda: reduces.measure(sample, count, ahead))  # noqa: B023
        beside = kept(value / inner for value in made["beside_s"])
        found.append({
            "work": name,
            "inner": inner,
            "alone_s": world.gather(kept(value / inner for value in alone)),
            "beside_s": world.gather(beside),
            "covered": all(world.gather(made["covered"])),
            "all_reduce_bytes": reduces.bytes,
            "all_reduce_s": reduces.seconds,
            "issued": ahead,
        })  # fmt: skip
    return found


# -- trace ----------------------------------------------------------------------------------------


def trace(chosen: argparse.Namespace, world: World) -> dict[str, Any]:
    """A Kineto trace of three DDP steps of the first model, of rank 0, beside the record."""
    if not chosen.trace:
        raise LeftOut("--trace was not given")
    if chosen.output is None:
        raise LeftOut("without --output there is no place for a trace")
    path: Path = chosen.output.with_suffix(".trace.json.gz")
    trainee = world.agreed(lambda: Trainee(chosen.models[0], min(chosen.batches), chosen, world))
    world.agreed(lambda: _profile(trainee, path))
    return trainee.about | {"file": path.name, "steps": 3}


def _profile(trainee: Trainee, path: Path) -> None:
    world = trainee.world
    trainee.wrapped()
    for _ in range(max(2, trainee.chosen.warmup)):
        trainee.step()
    Clock(world.device).settle()
    kinds = [torch.profiler.ProfilerActivity.CPU]
    kinds += [torch.profiler.ProfilerActivity.CUDA] if world.on_gpu else []
    profile: AbstractContextManager[Any] = (
        torch.profiler.profile(activities=kinds) if world.leads else nullcontext()
    )
    with profile as profiler:
        for number in range(3):
            with torch.profiler.record_function(f"ProfilerStep#{number}"):
                trainee.step()
        Clock(world.device).settle()
    if world.leads:
        profiler.export_chrome_trace(str(path))
        text = gzip.decompress(path.read_bytes())
        path.write_bytes(gzip.compress(re.sub(rb'("host_name": )"[^"]*"', rb'\1""', text)))


SECTIONS: dict[str, Callable[[argparse.Namespace, World], dict[str, Any]]] = {
    "peaks": peaks,
    "layers": layers,
    "steps": steps,
    "ddp": ddp,
    "buckets": buckets,
    "collectives": collectives,
    "overlap": overlap,
    "contention": contention,
    "trace": trace,
}


def main() -> int:
    chosen = options()
    with joined(chosen, chosen.fake_world) as world:
        fill(chosen, world)
        record = Record("measure_ddp", chosen, world)
        for name in SECTIONS:
            if name in chosen.sections:
                record.section(name, lambda name=name: SECTIONS[name](chosen, world))
        record.end()
    return 0


if __name__ == "__main__":
    leave(main())
