"""What both measuring programs share: ranks, clock, environment, collectives, the record.

Needs torch and numpy only.  All times are in seconds, all sizes in bytes.  The format of the record
is described in records/README.md.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import itertools
import json
import math
import os
import platform
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

SCHEMA, SCHEMA_VERSION = "dpsim-measurement", 1
UNITS = {
    "": 1, "B": 1,
    "kB": 10**3, "MB": 10**6, "GB": 10**9,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
}  # fmt: skip
# Variables that change speed.  Values that may name a host, a user or a file are not copied.
VARIABLES = re.compile(r"^(NCCL|TORCH_NCCL|RCCL|GLOO|OMP|MKL|CUDA|UCX|FI)_")
PRIVATE = re.compile(r"ADDR|HOST|COMM_ID|FILE|PATH|HOME|DIR|ROOT|TOKEN|KEY|PLUGIN|CONF", re.I)


class LeftOut(Exception):
    """A section that does not apply to this machine or these options, with the reason."""


class Failed(RuntimeError):
    """What failed on one rank at least; every rank raises it."""


# -- ranks ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """The ranks of this run.  `fake` worlds are one process that pretends to be rank 0 of many."""

    rank: int
    size: int
    device: torch.device
    backend: str
    share_gpu: bool
    fake: bool

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def gather(self, value: Any) -> list[Any]:
        """`value` of every rank that really runs, in rank order, on every rank."""
        if self.fake or self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value)
        return found

    def first(self, value: Any) -> Any:
        """Rank 0's `value`, on every rank."""
        return self.gather(value)[0]

    def agreed(self, work: Callable[[], Any]) -> Any:
        """This rank's `work()`; if it fails on any rank, every rank raises Failed.

        Without this, one rank would go on where the others still wait for it.
        """
        value, failure = None, None
        try:
            value = work()
        except Exception as error:  # told to all ranks
            failure = reason(error)
        failures = [each for each in self.gather(failure) if each]
        if failures:
            raise Failed(failures[0])
        return value

    def alone(self, work: Callable[[], Any]) -> Any:
        """`work()` of rank 0 while the others wait; None on them."""
        return self.agreed(work if self.leads else lambda: None)


def add_world_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--device", choices=("auto", "cuda", "cpu"), default="auto")
    add("--backend", choices=("auto", "nccl", "gloo"), default="auto")
    add("--share-gpu", action="store_true", help="ranks may share a GPU; gloo carries messages")
    add("--timeout", type=float, default=10.0, metavar="MINUTES", help="of any wait")
    add("--output", type=_file, default=None, metavar="FILE", help="the record (JSON)")
    add("--quick", action="store_true", help="fewer sizes, batches and samples: about a minute")


def _file(text: str) -> Path:
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is no file in an existing folder")
    return path


@contextmanager
def joined(arguments: argparse.Namespace, fake_world: int = 0) -> Iterator[World]:
    """The process group of this run: from torchrun's environment, or of one rank without it."""
    world = _describe(arguments, fake_world)
    if world.on_gpu:
        torch.cuda.set_device(world.device)
        if arguments.share_gpu:
            local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
            per_gpu = math.ceil(local / torch.cuda.device_count())
            torch.cuda.set_per_process_memory_fraction(0.95 / per_gpu, world.device)
    options: dict[str, Any] = {"timeout": datetime.timedelta(minutes=arguments.timeout)}
    if world.fake:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        options |= {"store": FakeStore(), "rank": 0, "world_size": world.size}
    elif "RANK" not in os.environ:
        store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
        options |= {"store": store, "rank": 0, "world_size": 1}
    if world.backend == "nccl":
        options["device_id"] = world.device
    dist.init_process_group(world.backend, **options)
    try:
        yield world
        if not world.fake:
            dist.barrier()  # nobody leaves while another rank still talks to it
        if world.backend == "gloo":
            # its thread drops the last work with the interpreter, which torch (2.13) holds while
            # it waits for that thread
            time.sleep(0.2)
    finally:
        dist.destroy_process_group()


def leave(code: int) -> NoReturn:
    """End the process without its destructors.

    Threads of gloo and of the profiler may still run then (seen with torch 2.13 on a busy CPU), and
    abort a process whose record has long been written.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _describe(arguments: argparse.Namespace, fake_world: int) -> World:
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if fake_world and size > 1:
        raise SystemExit("--fake-world is for a single process, without torchrun")
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if arguments.device == "cuda" and not gpus:
        raise SystemExit("--device cuda: torch sees no GPU here")
    on_gpu = gpus > 0 and arguments.device != "cpu"
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if on_gpu and local_size > gpus and not arguments.share_gpu:
        raise SystemExit(
            f"{local_size} ranks and {gpus} GPUs on this host; --share-gpu lets ranks share them"
        )
    device = torch.device("cuda", local_rank % gpus) if on_gpu else torch.device("cpu")
    backend = "fake" if fake_world else _backend(arguments, on_gpu)
    return World(rank, fake_world or size, device, backend, arguments.share_gpu, bool(fake_world))


def _backend(arguments: argparse.Namespace, on_gpu: bool) -> str:
    nccl = on_gpu and dist.is_nccl_available()
    if arguments.backend == "nccl" and not nccl:
        raise SystemExit("--backend nccl needs GPUs and a torch that has NCCL")
    if arguments.backend == "nccl" and arguments.share_gpu:
        raise SystemExit("NCCL refuses two ranks on one GPU; --share-gpu needs --backend gloo")
    if arguments.backend == "auto":
        return "nccl" if nccl and not arguments.share_gpu else "gloo"
    return str(arguments.backend)


# -- time -----------------------------------------------------------------------------------------


class Clock:
    """Marks in time on the device's own clock: CUDA events, or the host's clock on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self.on_gpu = device.type == "cuda"

    def mark(self) -> Any:
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def settle(self) -> None:
        """Wait until the device has done what this thread issued (not what others issue beside)."""
        if self.on_gpu:
            torch.cuda.current_stream().synchronize()

    def seconds(self, start: Any, end: Any) -> float:
        """From mark to mark [s]; the device must have settled."""
        return float(start.elapsed_time(end)) / 1e3 if self.on_gpu else float(end - start)

    def repeat(self, work: Callable[[], Any], count: int, warmup: int = 0) -> list[float]:
        """`count` durations of `work`, back to back: the period at which it can be repeated."""
        for _ in range(warmup):
            work()
        self.settle()
        marks = [self.mark()]
        for _ in range(count):
            work()
            marks.append(self.mark())
        self.settle()
        return kept(self.seconds(a, b) for a, b in itertools.pairwise(marks))


def kept(seconds: Any) -> list[float]:
    """Durations as they go into the record: rounded to 1 ns, which no clock here resolves."""
    return [round(float(value), 9) for value in seconds]


def slowest(samples: Sequence[Sequence[float]]) -> float:
    """The median over repetitions of the slowest rank's duration [s]."""
    return statistics.median(max(each) for each in zip(*samples, strict=True))


# -- collectives ----------------------------------------------------------------------------------

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")


def bus_factor(operation: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth; NVIDIA/nccl-tests doc/PERFORMANCE.md."""
    if operation == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return 1.0 if operation == "broadcast" else (ranks - 1) / ranks


def collective(operation: str, size: int, world: World) -> tuple[Callable[[], Any], int]:
    """A call of `operation`, and the bytes that it really uses (a multiple of ranks and dtype).

    The size is nccl-tests': what a rank has after an all-gather, before a reduce-scatter and an
    all-to-all, and on both sides of an all-reduce and a broadcast.
    """
    count = max(size // 4 // world.size, 1) * world.size
    whole = torch.zeros(count, device=world.device)
    if operation == "all_reduce":
        return lambda: dist.all_reduce(whole), 4 * count
    if operation == "broadcast":
        return lambda: dist.broadcast(whole, 0), 4 * count
    if operation == "all_to_all":
        other = torch.zeros_like(whole)
        return lambda: dist.all_to_all_single(other, whole), 4 * count
    part = torch.zeros(count // world.size, device=world.device)
    # torch 2.13 renames these two and warns about the names that older versions know
    if operation == "all_gather":
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        return lambda: gather(whole, part), 4 * count
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    return lambda: scatter(part, whole), 4 * count


def curve(
    operation: str, sizes: Sequence[int], world: World, *, count: int, warmup: int, budget: float
) -> dict[str, Any]:
    """Durations of `operation` over `sizes`, all samples of all ranks.

    `budget` [s] bounds the time per size: big messages on slow networks get fewer samples, never
    fewer than three.  The first size that fails ends the curve, with its reason.
    """
    found: dict[str, Any] = {"operation": operation, "points": []}
    for size in sizes:
        try:
            point = _point(operation, size, world, count, warmup, budget)
        except Failed as error:  # whatever the backend cannot do is part of the record
            return found | {"reason": f"{size} B: {error}"}
        found["points"].append(point)
    return found


def _point(
    operation: str, size: int, world: World, count: int, warmup: int, budget: float
) -> dict[str, Any]:
    clock = Clock(world.device)
    call, actual = world.agreed(lambda: collective(operation, size, world))
    # the first call sets up connections, the second shows how long one takes
    once = world.agreed(lambda: clock.repeat(call, 1, 1)[0])
    count = world.first(max(3, min(count, int(budget / max(once, 1e-9)))))
    mine = world.agreed(lambda: clock.repeat(call, count, min(warmup, count)))
    samples = world.gather(mine)
    seconds = slowest(samples)
    rate = actual / seconds if seconds > 0 else 0.0
    return {
        "asked_bytes": size,
        "bytes": actual,
        "samples_s": samples,
        "seconds": seconds,
        "algorithm_bytes_per_s": rate,
        "bus_bytes_per_s": rate * bus_factor(operation, world.size),
    }


def positive(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 up")
    return int(text)


def parse_size(text: str) -> int:
    found = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", text.strip())
    if found is None or found[2] not in UNITS or int(found[1]) == 0:
        said = "write for example 64MiB, 1KiB,1MiB or 1KiB:1GiB:2"
        raise argparse.ArgumentTypeError(f"{text!r} is no size; {said}")
    return int(found[1]) * UNITS[found[2]]


def parse_sizes(text: str) -> tuple[int, ...]:
    """ "1KiB:1GiB:2" (first, last, factor), or sizes separated by commas."""
    if ":" not in text:
        return tuple(sorted({parse_size(part) for part in text.split(",")}))
    first, last, factor = (*text.split(":"), "2")[:3]
    if not re.fullmatch(r"\d+", factor) or int(factor) < 2 or text.count(":") > 2:
        raise argparse.ArgumentTypeError(f"{text!r}: write FIRST:LAST:FACTOR, factor 2 or more")
    sizes = [parse_size(first)]
    while sizes[-1] * int(factor) <= parse_size(last):
        sizes.append(sizes[-1] * int(factor))
    return tuple(sizes)


# -- environment ----------------------------------------------------------------------------------

GPU_FIELDS = (
    "name", "driver_version", "memory.total", "power.limit", "clocks.max.sm", "clocks.max.memory",
    "pcie.link.gen.max", "pcie.link.width.max", "mig.mode.current",
)  # fmt: skip


def environment(world: World) -> dict[str, Any]:
    """What the times depend on.  Host names, addresses and paths are not recorded."""
    hosts = world.gather(_host_mark())
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "cudnn": torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None,
        "nccl": _nccl_version() if world.on_gpu else None,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "cpu_cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "gpus": world.gather(_gpu(world)),
        "nvidia_smi": _nvidia_smi() if world.on_gpu else [],
        "gpu_topology": _gpu_topology() if world.on_gpu else None,
        "hosts": len(set(hosts)),
        "host_of_rank": [list(dict.fromkeys(hosts)).index(host) for host in hosts],
        "variables": _variables(),
    }


def _host_mark() -> str:
    """Tells hosts apart, and is counted only: it never reaches the record.

    NCCL_HOSTID where it is set, as NCCL has it; else name and boot, and the network of the process:
    containers of one kernel, or with one name, that have networks of their own talk over them.
    """
    named = os.environ.get("NCCL_HOSTID")
    marks = [named] if named else [socket.gethostname(), _boot(), _network()]
    return hashlib.sha256("\n".join(marks).encode()).hexdigest()


def _boot() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text() if boot.exists() else ""


def _network() -> str:
    """The network namespace, and the address of its first card."""
    try:
        space = os.readlink("/proc/self/ns/net")
    except OSError:  # no Linux, or hidden
        space = ""
    card = uuid.getnode()
    made_up = card >> 40 & 1  # there is no card: every process gets another number
    return space if made_up else f"{space} {card}"


def _nccl_version() -> str | None:
    try:
        return ".".join(str(part) for part in torch.cuda.nccl.version())
    except (AttributeError, RuntimeError):  # a build of torch without NCCL
        return None


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", info.read_text()) if info.exists() else None
    return found[1].strip() if found else platform.processor() or "unknown"


def _gpu(world: World) -> dict[str, Any] | None:
    if not world.on_gpu:
        return None
    properties = torch.cuda.get_device_properties(world.device)
    return {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "capability": f"{properties.major}.{properties.minor}",
    }


def _nvidia_smi() -> list[dict[str, str]]:
    query = [f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader"]
    rows = _output(["nvidia-smi", *query]).splitlines()
    cells = ([cell.strip() for cell in row.split(",")] for row in rows)
    return [dict(zip(GPU_FIELDS, row, strict=True)) for row in cells if len(row) == len(GPU_FIELDS)]


def _gpu_topology() -> str | None:
    text = re.sub(r"\x1b\[[0-9;]*m", "", _output(["nvidia-smi", "topo", "-m"]))
    return text[:20_000] or None


def _output(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _variables() -> dict[str, str]:
    return {
        name: "(set)" if PRIVATE.search(name) or "/" in value else value[:200]
        for name, value in sorted(os.environ.items())
        if VARIABLES.match(name)
    }


# -- the record -----------------------------------------------------------------------------------


class Record:
    """The measurements of one run; rank 0 writes the file anew after every section."""

    def __init__(self, program: str, arguments: argparse.Namespace, world: World) -> None:
        self.world, self.output = world, arguments.output
        now = datetime.datetime.now(datetime.timezone.utc)  # noqa: UP017 - Python 3.10
        self.content: dict[str, Any] = {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "program": program,
            "started": now.isoformat(timespec="seconds"),
            "options": _options(arguments),
            "world": {
                "ranks": world.size,
                "ranks_recorded": 1 if world.fake else world.size,
                "backend": world.backend,
                "device": world.device.type,
                "share_gpu": world.share_gpu,
                "fake": world.fake,
            },
            "environment": environment(world),
            "sections": {},
        }
        hosts = self.content["world"]["nodes"] = self.content["environment"]["hosts"]
        if hosts != (told := int(os.environ.get("GROUP_WORLD_SIZE", hosts))):
            self.say(
                f"torchrun has {told} nodes, and {hosts} are told apart; if that is wrong, give "
                "every node its own NCCL_HOSTID"
            )
        self.write()  # a place that cannot be written to is told before anything is measured

    def section(self, name: str, measure: Callable[[], Any]) -> None:
        """Add what `measure` returns, or the reason why there is nothing."""
        self.say(f"{name} …")
        start = time.perf_counter()
        found: dict[str, Any] = {"status": "done"}
        try:
            found["data"] = measure()
        except LeftOut as error:
            found = {"status": "left_out", "reason": str(error)}
        except Exception as error:  # one section must not lose the others
            if not isinstance(error, Failed):
                traceback.print_exc(limit=-3)
            found = {"status": "failed", "reason": reason(error)}
        self.world.gather(None)
        found["wall_s"] = round(time.perf_counter() - start, 3)
        self.content["sections"][name] = found
        if found["status"] != "done":
            self.say(f"{name}: {found['status'].replace('_', ' ')}: {found['reason']}")
        self.write()

    def write(self) -> None:
        """Replace the file in one go, so that it is whole whenever the run ends."""
        if self.output is None or not self.world.leads:
            return
        sections = laid_out(self.content["sections"], dumped)
        parts = {name: dumped(value) for name, value in self.content.items()}
        text = laid_out(parts | {"sections": sections}, str)
        with tempfile.NamedTemporaryFile(
            "w", dir=self.output.resolve().parent, suffix=".part", delete=False, encoding="utf-8"
        ) as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.chmod(file.name, 0o644)
        os.replace(file.name, self.output)

    def say(self, text: str) -> None:
        if self.world.leads:
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        done = [name for name, found in self.content["sections"].items() if "data" in found]
        where = self.output or "nowhere; --output FILE keeps them"
        self.say(f"{len(done)} of {len(self.content['sections'])} sections recorded: {where}")


def dumped(value: Any) -> str:
    """Strict JSON in one line.  Numbers that are not finite are refused by json itself."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"), default=str)


def laid_out(entries: dict[str, Any], text: Callable[[Any], str]) -> str:
    """A JSON mapping with a line per entry, so that people find their way in a record."""
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {text(entries[key])}" for key in entries) + "\n}"


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options as given; paths are left out, they may hold names of people."""
    return {
        name: value
        for name, value in sorted(vars(arguments).items())
        if not isinstance(value, Path) and name != "output"
    }


def reason(error: BaseException) -> str:
    """One line about `error`, without paths."""
    if isinstance(error, Failed):
        return str(error)
    lines = str(error).strip().splitlines() or [""]
    text = re.sub(r"(?<![\w.])/[\w./-]+", "…", lines[0])
    return f"{type(error).__name__}: {text}"[:300]
