"""Patches of torch: one process is rank 0 of any world size, and every DDP model is recorded.

torch's own `fake` process group (torch/testing/_internal/distributed/fake_pg.py) answers every
collective at once.  DDP's plain all-reduce does not run on it, a communication hook does.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from . import Stop
from .recorder import Recorder


def install_on_import(recorder: Recorder) -> None:
    """Patch torch as soon as the script imports it: not earlier, so that what the script sets
    before (threads, visible devices) still counts."""
    world = str(recorder.options.world_size)
    os.environ.update(RANK="0", LOCAL_RANK="0", GROUP_RANK="0", WORLD_SIZE=world)
    os.environ.update(LOCAL_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
    _after("torch", lambda torch: install(torch, recorder))


def _after(name: str, then: Callable[[Any], None]) -> None:
    """Call `then` with module `name` when it has been imported, which may be never."""
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, _After(name, then))


class _After(importlib.abc.MetaPathFinder):
    """Finds module `name` where it is, once, and calls `then` when it has been imported."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self.name, self.then = name, then

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run, then = spec.loader.exec_module, self.then

        def exec_module(module: ModuleType) -> None:
            run(module)
            then(module)

        setattr(spec.loader, "exec_module", exec_module)  # noqa: B010 (mypy: a method)
        return spec


def install(torch: Any, recorder: Recorder) -> None:
    """Replace what makes process groups and DDP models."""
    recorder.torch = torch
    if not torch.distributed.is_available():
        raise Stop("this torch has no torch.distributed")
    _process_groups(torch, recorder.options.world_size)
    _data_parallel(torch, recorder)
    _backward(torch, recorder)
    _spawn(torch)
    _refuse_others(torch)


def _process_groups(torch: Any, world_size: int) -> None:
    importlib.import_module("torch.testing._internal.distributed.fake_pg")
    dist = torch.distributed
    begin, subgroup = dist.init_process_group, dist.new_group

    @functools.wraps(begin)
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        fake = sys.modules["torch.testing._internal.distributed.fake_pg"]
        begin("fake", rank=0, world_size=world_size, store=fake.FakeStore())

    @functools.wraps(subgroup)
    def new_group(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(subgroup).bind(*args, **kwargs).arguments
        for name in ("backend", "pg_options", "device_id"):
            given.pop(name, None)
        return subgroup(**given)

    _replace(begin, init_process_group)
    _replace(subgroup, new_group)


def _replace(old: Any, new: Any) -> None:
    """Put `new` wherever a module of torch.distributed holds `old`."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.distributed"):
            for key, value in list(vars(module).items()):
                if value is old:
                    setattr(module, key, new)


def _data_parallel(torch: Any, recorder: Recorder) -> None:
    cls = torch.nn.parallel.DistributedDataParallel
    make, signature = cls.__init__, inspect.signature(cls.__init__)

    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        make(self, *args, **kwargs)
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        recorder.attach(self, bound.arguments)

    cls.__init__ = __init__


def _backward(torch: Any, recorder: Recorder) -> None:
    backward = torch.autograd.backward

    @functools.wraps(backward)
    def marked(*args: Any, **kwargs: Any) -> Any:
        outer = recorder.backward_begins()
        result = backward(*args, **kwargs)
        if outer:
            recorder.backward_ends()
        return result

    torch.autograd.backward = marked


def _spawn(torch: Any) -> None:
    """torch.multiprocessing.spawn runs rank 0 only, in this process."""

    def spawn(fn: Any, args: tuple[Any, ...] = (), *rest: Any, **kwargs: Any) -> None:
        fn(0, *args)

    multiprocessing: Any = importlib.import_module("torch.multiprocessing")
    multiprocessing.spawn = spawn


def _refuse_others(torch: Any) -> None:
    """Stop with a sentence where the script uses what is not recorded."""
    _after("torch.distributed.fsdp", _refuse_fsdp)
    _after("torch.distributed.optim", _refuse_optimizers)
    compile_ = torch.compile

    @functools.wraps(compile_)
    def no_compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(model, torch.nn.Module):
            raise Stop(
                "the script compiles its model (torch.compile), which hides its layers; "
                "measure without it"
            )
        return compile_(model, *args, **kwargs)

    torch.compile = no_compile


def _refuse_fsdp(fsdp: Any) -> None:
    def no_fsdp(*args: Any, **kwargs: Any) -> Any:
        raise Stop("the script uses FSDP; only DistributedDataParallel is recorded")

    fsdp.FullyShardedDataParallel.__init__ = no_fsdp
    if hasattr(fsdp, "fully_shard"):
        _replace(fsdp.fully_shard, no_fsdp)


def _refuse_optimizers(optim: Any) -> None:
    """Optimizers that send something themselves; a record of DDP's buckets would not show it."""
    for name in ("ZeroRedundancyOptimizer", "PostLocalSGDOptimizer", "DistributedOptimizer"):
        if hasattr(optim, name):
            getattr(optim, name).__init__ = _refusing(name)


def _refusing(name: str) -> Any:
    def no_optimizer(*args: Any, **kwargs: Any) -> None:
        raise Stop(
            f"the script uses {name}, which communicates in its step; only the exchange of "
            "DistributedDataParallel is recorded; measure with the optimizer that it wraps"
        )

    return no_optimizer
