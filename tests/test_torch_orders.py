"""Collectives of random small models: their order and sizes are those of the real frameworks.

Torch itself runs every model, in two processes on gloo and, where more ranks are needed, as rank 0
of a world that answers at once.  A process group between torch and the backend notes every
collective: its kind, the ranks that take part, and its bytes.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import shared
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.api import BackwardPrefetch, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
from torch.nn.modules._functions import SyncBatchNorm
from torch.nn.parallel import DistributedDataParallel

from dpsim.compile.program import Op
from dpsim.compile.strategies import Job, Strategy, zero_redundancy_optimizer
from dpsim.compile.strategies._wrap_policy import by_size
from dpsim.compile.strategies.ddp import Ddp
from dpsim.compile.strategies.fsdp import Fsdp
from dpsim.compile.strategies.fsdp1 import Fsdp1
from dpsim.core.record import Refused
from dpsim.models import Layer, Model, Tensor
from dpsim.models.adapters import Adapters
from dpsim.models.compute import layer_times
from dpsim.models.precision import Optimizer, Precision
from dpsim.models.tuning import Tunable

#: so many times the models: a campaign sets more (tests/campaigns/README.md)
DRAWS = int(os.environ.get("DPSIM_DRAWS", "1"))
MODELS = 12 * DRAWS  # of each framework
PARTLY = 6 * DRAWS  # of each framework that are trained in part
WRAPPED = 6 * DRAWS  # of each framework that are wrapped otherwise than unit by unit
RANK = 3  # of adapters
ITERATIONS = 4


@dataclass(frozen=True)
class Spec:
    """A random network: widths of its linear layers by unit, and what the root holds.

    head, tail  whether the root has a layer before and after the units
    norms       whether a batch normalisation follows every linear layer; `shared`: whether over
                all ranks
    trained     linear layers that are trained, the others are frozen; None: all
    adapted     linear layers with an adapter; all else is frozen but for `trained`
    """

    units: tuple[tuple[int, ...], ...]
    head: bool
    tail: bool
    norms: bool
    biases: bool
    knobs: dict[str, Any] = field(default_factory=dict)
    micro_batches: int = 1
    narrow: bool = False
    reduce: str | None = None
    join: bool = False
    shared: bool = False
    trained: tuple[str, ...] | None = None
    adapted: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Of the input."""
        return self.units[0][0]


def network(seed: int, **rest: Any) -> Spec:
    draw = random.Random(seed)
    width = draw.randint(4, 24)
    units = []
    for _ in range(draw.randint(1, 6)):
        widths = [width] + [draw.randint(4, 24) for _ in range(draw.randint(1, 3))]
        units.append(tuple(widths))
        width = widths[-1]
    flags = {k: draw.random() < 0.5 for k in ("head", "tail", "biases")}
    return Spec(tuple(units), **{"norms": False, **flags, **rest})


class SharedNorm(nn.BatchNorm1d):
    """Torch's own SyncBatchNorm function, which exists for GPUs only: with kernels that return
    zeros of the right shape its collectives run on CPUs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = SyncBatchNorm.apply(
            x, self.weight, self.bias, self.running_mean, self.running_var, self.eps, 0.1,
            dist.group.WORLD, dist.get_world_size(),
        )  # fmt: skip
        return found


def fake_kernels() -> None:
    kernels: dict[str, Any] = {
        "batch_norm_stats": lambda x, eps: (torch.zeros(x.shape[1]), torch.ones(x.shape[1])),
        "batch_norm_gather_stats_with_counts": lambda x, *rest: (
            torch.zeros(x.shape[1]), torch.ones(x.shape[1])
        ),
        "batch_norm_elemt": lambda x, *rest: x.clone(),
        "batch_norm_backward_reduce": lambda g, x, *rest: (torch.zeros(x.shape[1]),) * 4,
        "batch_norm_backward_elemt": lambda g, *rest: g.clone(),
    }  # fmt: skip
    for name, kernel in kernels.items():
        setattr(torch, name, kernel)


class Adapted(nn.Module):
    """A linear layer with an adapter, registered as huggingface/peft does."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base
        self.lora_A = nn.Linear(base.in_features, RANK, bias=False)
        self.lora_B = nn.Linear(RANK, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base_layer(x) + 2.0 * self.lora_B(self.lora_A(x))


class Unit(nn.Module):
    def __init__(self, widths: tuple[int, ...], spec: Spec) -> None:
        super().__init__()
        for i, (a, b) in enumerate(pairwise(widths)):
            self.add_module(f"linear{i}", nn.Linear(a, b, bias=spec.biases))
            if spec.norms:
                self.add_module(f"norm{i}", (SharedNorm if spec.shared else nn.BatchNorm1d)(b))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for module in self.children():
            x = module(x)
        return x


class Net(nn.Module):
    def __init__(self, spec: Spec) -> None:
        super().__init__()
        last = spec.units[-1][-1]
        self.head = nn.Linear(spec.width, spec.width) if spec.head else nn.Identity()
        self.units = nn.ModuleList(Unit(widths, spec) for widths in spec.units)
        self.tail = nn.Linear(last, last) if spec.tail else nn.Identity()
        if spec.trained is not None or spec.adapted:
            self.requires_grad_(False)
        for name, module in list(self.named_modules()):
            if name in (spec.trained or ()):
                module.requires_grad_(True)
            if name in spec.adapted:
                parent, _, leaf = name.rpartition(".")
                setattr(self.get_submodule(parent), leaf, Adapted(module))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.head(x)
        for unit in self.units:
            x = unit(x)
        return self.tail(x)


def model_of(spec: Spec) -> Model:
    """The same network in dpsim's words."""
    layers, buffers = [], []
    net = Net(replace(spec, trained=None, adapted=()))
    units = ((f"units.{k}", f"units.{k}", u) for k, u in enumerate(net.units))
    parts = [("head", "", net.head), *units]
    for name, unit, module in [*parts, ("tail", "", net.tail)]:
        leaves = list(module.named_children()) if unit else [("", module)]
        for leaf, inner in leaves:
            tensors = tuple(Tensor(n, tuple(p.shape)) for n, p in inner.named_parameters())
            if tensors:
                channels = inner.num_features if isinstance(inner, nn.BatchNorm1d) else 0
                flop = 2.0 * tensors[0].elements
                layers.append(Layer(name=f"{name}.{leaf}" if leaf else name, tensors=tensors,
                                    unit=unit, forward=1.0, backward=2.0, forward_flop=flop,
                                    batch_norm=channels))  # fmt: skip
            buffers += list(inner.buffers())
    floats = sum(b.numel() for b in buffers if b.is_floating_point())
    counted = (("fp32", floats), ("int64", sum(b.numel() for b in buffers) - floats))
    model = Model(name="random", layers=tuple(layers), buffers=counted if buffers else ())
    patterns = None if spec.trained is None else tuple(re.escape(name) for name in spec.trained)
    adapters = Adapters(rank=RANK, targets=spec.adapted) if spec.adapted else None
    return Tunable(trainable=patterns, adapters=adapters).tuned(model)


# -- the real frameworks ----------------------------------------------------------------------

LOG: list[str] = []


class Recording(dist.ProcessGroup):
    """Notes every collective and passes it on."""

    def __init__(self, rank: int, size: int, inner: Any) -> None:
        super().__init__(rank, size)
        self.inner, self.members, self.me = inner, size, rank

    def getBackendName(self) -> str:  # noqa: N802
        return "recording"

    def size(self) -> int:
        return self.members

    def rank(self) -> int:
        return self.me

    def _set_group_name(self, name: str) -> None:
        self.name = name

    @property
    def group_name(self) -> str:
        return self.name

    def note(self, letters: str, tensors: list[torch.Tensor]) -> None:
        size = sum(t.numel() * t.element_size() for t in tensors)
        LOG.append(f"{letters}{self.members}:{size}")

    def allreduce(self, tensors: Any, *rest: Any) -> Any:
        self.note("AR", tensors)
        return self.inner.allreduce(tensors, *rest)

    def broadcast(self, tensors: Any, *rest: Any) -> Any:
        self.note("BC", tensors)
        return self.inner.broadcast(tensors, *rest)

    def allgather(self, out: Any, tensors: Any, *rest: Any) -> Any:
        self.note("AG", out[0])
        return self.inner.allgather(out, tensors, *rest)

    def _allgather_base(self, out: Any, tensor: Any, *rest: Any) -> Any:
        self.note("AG", [out])
        return self.inner._allgather_base(out.view(-1), tensor.view(-1), *rest)

    def _reduce_scatter_base(self, out: Any, tensor: Any, *rest: Any) -> Any:
        self.note("RS", [tensor])
        return self.inner._reduce_scatter_base(out, tensor, *rest)

    all_gather_single = _allgather_base
    reduce_scatter_single = _reduce_scatter_base

    def barrier(self, *rest: Any, **named: Any) -> Any:
        return self.inner.barrier(*rest, **named)


def on_gloo(store: Any, rank: int, size: int, timeout: Any) -> Recording:
    return Recording(rank, size, dist.ProcessGroupGloo(store, rank, size, timeout))


def alone(store: Any, rank: int, size: int, timeout: Any) -> Recording:
    from torch._C._distributed_c10d import FakeProcessGroup

    return Recording(rank, size, FakeProcessGroup._create_internal(rank, size))


def steps(
    module: nn.Module, spec: Spec, accumulate: Callable[[bool], Any], end: Callable[[], str] = str
) -> str:
    """The collectives of every iteration, one line each, and what `end` says after it."""
    lines = []
    for _ in range(ITERATIONS):
        LOG.clear()
        for m in range(spec.micro_batches):
            with accumulate(m == spec.micro_batches - 1):
                module(torch.randn(4, spec.width)).float().sum().backward()
        lines.append(" ".join(LOG) + end())
        module.zero_grad()
    return "\n".join(lines)


class NoStream:
    """In place of a device's stream, for the optimizer in backward."""

    def __enter__(self) -> NoStream:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait_stream(self, other: NoStream) -> None:
        pass


def run_ddp(spec: Spec) -> str:
    knobs = dict(spec.knobs)
    quiet, hook = knobs.pop("no_sync", True), knobs.pop("comm_hook", "none")
    net = Net(spec)
    if knobs.pop("optimizer_in_backward", False):
        from torch.distributed.optim import _apply_optimizer_in_backward  # warns when imported

        _apply_optimizer_in_backward(torch.optim.SGD, net.parameters(), {"lr": 0.1})
    module = DistributedDataParallel(net, **knobs)
    compress = getattr(default_hooks, f"{hook}_compress_hook", None)

    def compressed(_: Any, bucket: Any) -> Any:
        assert compress is not None
        return compress(None, bucket)

    if compress:  # under its own name torch refuses the bf16 hook outside of NCCL
        compressed.__annotations__ = compress.__annotations__
        module.register_comm_hook(None, compressed)

    def accumulate(last: bool) -> Any:
        return nullcontext() if last or not quiet else module.no_sync()

    streams = patch.multiple(torch, Stream=NoStream)
    current = patch.object(torch.accelerator, "current_stream", lambda *_: NoStream())
    with Join([module]) if spec.join else nullcontext(), streams, current:
        return steps(module, spec, accumulate)


DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, None: None}


def run_fsdp2(spec: Spec) -> str:
    knobs = dict(spec.knobs)
    shard = knobs.pop("shard", None)
    ranks = dist.get_world_size()
    shape, names = ((ranks,), ("shard",))
    if shard:
        shape, names = (ranks // shard, shard), ("replicate", "shard")
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if spec.narrow else None, reduce_dtype=DTYPES[spec.reduce]
    )
    common = {"mesh": mesh, "mp_policy": policy}
    module: Any = Net(spec)
    keep, each = knobs.get("reshard_after_forward", True), knobs.get("blocks_per_group", 1)
    for k in range(0, len(module.units), each):
        some = list(module.units[k : k + each])
        fully_shard(some if each > 1 else some[0], reshard_after_forward=keep, **common)
    fully_shard(module, **common)
    if knobs.get("separate_reduce_scatter_group"):
        module.set_separate_reduce_scatter_group(True)

    def accumulate(last: bool) -> Any:
        module.set_requires_gradient_sync(last or not knobs.get("no_sync", True))
        module.set_reshard_after_backward(last or knobs.get("reshard_after_backward", True))
        if knobs.get("all_reduce_in_last"):
            module.set_requires_all_reduce(last)
        return nullcontext()

    return steps(module, spec, accumulate)


def run_fsdp1(spec: Spec) -> str:
    knobs = dict(spec.knobs)
    strategy = knobs.pop("sharding_strategy", "FULL_SHARD")
    shard, quiet = knobs.pop("shard", None), knobs.pop("no_sync", True)
    prefetch = knobs.pop("backward_prefetch", "BACKWARD_PRE")
    wrap, least = knobs.pop("wrap", None), knobs.pop("min_num_params", None)
    mesh = None
    if shard:
        mesh = init_device_mesh(
            "cpu", (dist.get_world_size() // shard, shard), mesh_dim_names=("replicate", "shard")
        )
    common = {
        "sharding_strategy": ShardingStrategy[strategy],
        "backward_prefetch": None if prefetch == "none" else BackwardPrefetch[prefetch],
        "device_id": torch.device("cpu"),
        "device_mesh": mesh,
        "mixed_precision": MixedPrecision(
            param_dtype=torch.bfloat16 if spec.narrow else None, reduce_dtype=DTYPES[spec.reduce]
        ),
        **knobs,
    }
    net = Net(spec)
    policy = partial(size_based_auto_wrap_policy, min_num_params=least) if least else None
    for k, unit in enumerate(net.units):
        if wrap is None:
            net.units[k] = FullyShardedDataParallel(unit, **common)
    module = FullyShardedDataParallel(net, auto_wrap_policy=policy, **common)

    def accumulate(last: bool) -> Any:
        return nullcontext() if last or not quiet else module.no_sync()

    def end() -> str:
        """How many events wait in the rate limiter's queue."""
        return f" {len(module._free_event_queue._queue)} events"

    return steps(module, spec, accumulate, end)


def run_zero(spec: Spec) -> str:
    from torch.distributed.optim import ZeroRedundancyOptimizer  # warns when imported

    knobs = dict(spec.knobs)
    one = knobs.pop("parameters_as_bucket_view", False)
    module = DistributedDataParallel(Net(spec), **knobs)
    optimizer = ZeroRedundancyOptimizer(
        [p for p in module.parameters() if p.requires_grad], torch.optim.SGD, lr=0.1,
        parameters_as_bucket_view=one,
    )  # fmt: skip

    def end() -> str:
        """What the optimizer's step sends."""
        before = len(LOG)
        optimizer.step()
        return "".join(f" {word}" for word in LOG[before:])

    return steps(module, spec, lambda last: nullcontext() if last else module.no_sync(), end)


RUN = {"ddp": run_ddp, "fsdp": run_fsdp2, "fsdp1": run_fsdp1, "zero": run_zero}


def worker(rank: int, folder: str) -> None:
    """One of two processes.  The first is also rank 0 of eight, while the other waits for it."""
    torch.set_num_threads(1)
    fake_kernels()
    if rank == 0:
        record("alone", alone, rank, 8, folder)
        dist.destroy_process_group()
    record("two", on_gloo, rank, 2, folder)
    dist.barrier()
    os._exit(0)  # gloo's threads now and then abort an orderly exit


def record(
    backend: str, create: Callable[..., Recording], rank: int, size: int, folder: str
) -> None:
    """Run every network of so many ranks; rank 0 writes what it noted."""
    dist.Backend.register_backend(backend, create, devices=["cpu"])
    dist.init_process_group(
        backend, init_method=f"file://{folder}/store{size}", rank=rank, world_size=size
    )
    for name, (kind, spec, ranks) in CASES.items():
        if ranks == size:
            torch.manual_seed(0)
            found = RUN[kind](spec)
            if rank == 0:
                Path(folder, name).write_text(found)


# -- which networks with which knobs ----------------------------------------------------------


def choices(seed: int, **options: list[Any]) -> dict[str, Any]:
    """One of the options of every knob; the first is the default and left out."""
    draw = random.Random(seed + 1000)
    drawn = {name: draw.choice(values) for name, values in options.items()}
    return {name: value for name, value in drawn.items() if value != options[name][0]}


def ddp_spec(seed: int) -> Spec:
    knobs = choices(
        seed,
        find_unused_parameters=[False, False, True],
        static_graph=[False, False, True],
        bucket_cap_mb=[None, 0.001, 0.004],
        gradient_as_bucket_view=[False, True],
        broadcast_buffers=[True, True, False],
        no_sync=[True, False],
        comm_hook=["none", "none", "fp16", "bf16"],
        optimizer_in_backward=[False, True],
    )
    draw = random.Random(seed + 2000)
    if "bucket_cap_mb" not in knobs and draw.random() < 0.5:
        knobs["bucket_cap_mb_list"] = [0.001, 0.002, 0.004]
    micro_batches = draw.choice([1, 1, 2, 3])
    if knobs.get("static_graph"):  # together with no_sync torch stops
        knobs["no_sync"] = False
    if "comm_hook" in knobs:  # torch takes one hook
        knobs.pop("optimizer_in_backward", None)
    return network(
        seed, norms=draw.random() < 0.6, knobs=knobs, micro_batches=micro_batches,
        join=draw.random() < 0.3, shared=draw.random() < 0.5,
    )  # fmt: skip


def zero_spec(seed: int) -> Spec:
    knobs = choices(seed, bucket_cap_mb=[None, 0.002], parameters_as_bucket_view=[False, True])
    spec = network(seed, knobs=knobs, micro_batches=random.Random(seed + 6000).choice([1, 2]))
    return spec if seed % 3 else partly(spec, seed)


def fsdp2_spec(seed: int, ranks: int) -> Spec:
    options: dict[str, list[Any]] = {
        "reshard_after_forward": [True, True, False],
        "separate_reduce_scatter_group": [False, True],
        "no_sync": [True, False],
        "reshard_after_backward": [True, False],
    }
    if ranks > 2:
        options |= {"shard": [None, 2, 4], "reshard_after_forward": [True, False, 2]}
    knobs = choices(seed, **options)
    draw = random.Random(seed + 3000)
    if "shard" in knobs and not knobs.get("no_sync", True):
        knobs["all_reduce_in_last"] = draw.random() < 0.5
    narrow = draw.random() < 0.5
    return network(
        seed, knobs=knobs, micro_batches=draw.choice([1, 1, 2, 3]), narrow=narrow,
        reduce=draw.choice([None, "fp32"]) if narrow else None,
    )  # fmt: skip


def fsdp1_spec(seed: int, ranks: int) -> Spec:
    strategies = ["FULL_SHARD", "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"]
    if ranks > 2:
        strategies = ["FULL_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"]
    knobs = choices(
        seed,
        sharding_strategy=strategies,
        backward_prefetch=["BACKWARD_PRE", "BACKWARD_POST", "none"],
        forward_prefetch=[False, True],
        limit_all_gathers=[True, True, False],
        use_orig_params=[False, True],
        no_sync=[True, False],
    )
    draw = random.Random(seed + 4000)
    if "HYBRID" in knobs.get("sharding_strategy", ""):
        knobs["shard"] = draw.choice([2, 4])
    narrow = draw.random() < 0.5
    return network(
        seed, knobs=knobs, micro_batches=draw.choice([1, 1, 2, 3]), narrow=narrow,
        reduce=draw.choice([None, "fp32"]) if narrow else None,
    )  # fmt: skip


def grouped(spec: Spec, seed: int) -> Spec:
    """The same network with several units in a group."""
    each = random.Random(seed + 7000).randint(2, 4)
    return replace(spec, knobs={**spec.knobs, "blocks_per_group": each})


def sized(spec: Spec, seed: int) -> Spec:
    """The same network wrapped by size: by that of one of its modules, of those that make no unit
    inside a larger one."""
    sizes = {sum(p.numel() for p in m.parameters()) for m in Net(spec).modules()} - {0}
    fits = [least for least in sorted(sizes) if accepted(model_of(spec), least)]
    least = random.Random(seed + 8000).choice(fits)
    return replace(spec, knobs={**spec.knobs, "wrap": "size", "min_num_params": least})


def whole(spec: Spec) -> Spec:
    """The same network with nothing wrapped but the root."""
    return replace(spec, knobs={**spec.knobs, "wrap": "none"})


def accepted(model: Model, least: int) -> bool:
    try:
        return bool(by_size(model, least))
    except Refused:
        return False


def partly(spec: Spec, seed: int) -> Spec:
    """The same network with an adapter beside some linear layers, or with some of them frozen."""
    draw = random.Random(seed + 5000)
    inner = [
        f"units.{k}.linear{i}" for k, unit in enumerate(spec.units) for i in range(len(unit) - 1)
    ]
    outer = ["head"] * spec.head + ["tail"] * spec.tail
    knobs = {**spec.knobs}
    knobs.pop("optimizer_in_backward", None)  # torch applies it to all parameters
    some = tuple(name for name in inner if draw.random() < 0.5) or (inner[-1],)
    if draw.random() < 0.5:
        return replace(spec, knobs=knobs, adapted=some)
    more = tuple(name for name in outer if draw.random() < 0.5)
    return replace(spec, knobs=knobs, trained=some + more)


def flat(spec: Spec) -> Spec:
    """Torch flattens trained and frozen parameters together only so."""
    return replace(spec, knobs={**spec.knobs, "use_orig_params": True})


def cases() -> Iterator[tuple[str, tuple[str, Spec, int]]]:
    for seed in range(MODELS):
        yield f"ddp-{seed}", ("ddp", ddp_spec(seed), 2)
        yield f"fsdp-{seed}", ("fsdp", fsdp2_spec(seed, 2), 2)
        yield f"fsdp1-{seed}", ("fsdp1", fsdp1_spec(seed, 2), 2)
        yield f"fsdp-8-{seed}", ("fsdp", fsdp2_spec(seed + 100, 8), 8)
        yield f"fsdp1-8-{seed}", ("fsdp1", fsdp1_spec(seed + 100, 8), 8)
    for seed in range(300, 300 + MODELS // 2):
        yield f"zero-{seed}", ("zero", zero_spec(seed), 2)
    for seed in range(400, 400 + WRAPPED):
        yield f"fsdp-groups-{seed}", ("fsdp", grouped(fsdp2_spec(seed, 8), seed), 8)
        yield f"fsdp1-size-{seed}", ("fsdp1", sized(fsdp1_spec(seed, 2), seed), 2)
        yield f"fsdp1-whole-{seed}", ("fsdp1", whole(fsdp1_spec(seed, 2)), 2)
    for seed in range(200, 200 + PARTLY):
        yield f"ddp-partly-{seed}", ("ddp", partly(ddp_spec(seed), seed), 2)
        yield f"fsdp-partly-{seed}", ("fsdp", partly(fsdp2_spec(seed, 8), seed), 8)
        yield f"fsdp1-partly-{seed}", ("fsdp1", flat(partly(fsdp1_spec(seed, 2), seed)), 2)


CASES = dict(cases())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = shared.folder(tmp_path_factory, "orders")
    shared.once(
        folder / "all", lambda: torch.multiprocessing.spawn(worker, args=(str(folder),), nprocs=2)
    )
    return folder


# -- dpsim ------------------------------------------------------------------------------------

LETTERS = {"all_reduce": "AR", "all_gather": "AG", "reduce_scatter": "RS", "broadcast": "BC"}
KINDS: dict[str, type[Strategy]] = {
    "ddp": Ddp,
    "fsdp": Fsdp,
    "fsdp1": Fsdp1,
    "zero": zero_redundancy_optimizer.ZeroRedundancyOptimizer,
}


def predicted(kind: str, spec: Spec, ranks: int, iteration: int) -> str:
    knobs = dict(spec.knobs)
    if kind == "ddp":
        knobs |= {"join": spec.join, "sync_batchnorm": spec.norms and spec.shared}
    strategy = KINDS[kind](**knobs)
    model = model_of(spec)
    precision = Precision(compute="bf16" if spec.narrow else "fp32", reduce=spec.reduce)  # type: ignore[arg-type]
    times = layer_times(model, None, "fp32", 1, 1, "none")
    job = Job(
        model, ranks, times, spec.micro_batches, 1, precision, Optimizer(kind="none"), control=True
    )
    groups = {"world": (tuple(range(ranks)),), **strategy.groups(ranks)}

    def token(op: Op) -> str:
        return f"{LETTERS[op.operation]}{len(groups[op.group][0])}:{op.bytes:.0f}"

    if isinstance(strategy, Fsdp1):
        step, program = strategy.played(job, iteration)
        end = f" {len(step.events)} events"
    else:
        program, end = strategy.program(job, iteration), ""
    return " ".join(token(op) for op in program.ops if op.operation) + end


@pytest.mark.parametrize("name", CASES)
def test_collectives_are_those_of_torch(name: str, recorded: Path) -> None:
    kind, spec, ranks = CASES[name]
    lines = (recorded / name).read_text().split("\n")
    assert len(lines) == ITERATIONS
    for iteration, line in enumerate(lines, start=1):
        assert predicted(kind, spec, ranks, iteration) == line, f"iteration {iteration} of {spec}"
