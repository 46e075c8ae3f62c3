"""The recorder: what one DDP model does in its steps.

A step begins where DDP's forward does and ends where the next step begins.  The first `warmup`
iterations give the buckets only; the next `steps` are timed with nothing on them (so that the
hooks' own cost is known); the next `steps` have a hook on every layer and gradient; one more is
counted instead of timed.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
from collections import Counter as Tally
from typing import Any

from .clocks import Counter, Cuda, Wall

KNOBS = (
    "bucket_cap_mb",
    "find_unused_parameters",
    "static_graph",
    "gradient_as_bucket_view",
    "broadcast_buffers",
)
#: arguments of DDP that change what is reduced in a way that a record does not say
OTHERS = ("mixed_precision", "delay_all_reduce_named_params", "bucket_cap_mb_list")
DTYPES = {"float64": "fp64", "float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


class Stop(BaseException):
    """Ends the script: with the reason of a refusal, or without one when all is recorded."""


class Step:
    """The marks of one iteration; `kind` is warm, plain, detailed or counted."""

    def __init__(self, kind: str, clock: Any) -> None:
        self.kind, self.clock = kind, clock
        self.start = clock.mark()
        self.phase = "forward"
        self.batch: int | None = None
        self.compute = ""
        self.backward_start: Any = None
        self.backward_end: Any = None
        self.optimizer_end: Any = None
        self.end: Any = None
        self.forward: list[list[Any]] = []  # module, start, end
        self.ready: dict[str, Any] = {}
        self.buckets: list[dict[str, Any]] = []

    @property
    def fine(self) -> bool:
        return self.kind in ("detailed", "counted")


class Recorder:
    """Watches the script's DDP model; `document` is what it saw."""

    def __init__(self, options: Any) -> None:
        self.options = options
        self.torch: Any = None
        self.ddp: Any = None
        self.arguments: dict[str, Any] = {}
        self.names: dict[int, str] = {}
        self.step: Step | None = None
        self.steps: list[Step] = []
        self.optimizer: dict[str, Any] | None = None
        self.handles: list[Any] = []
        self.clock: Any = None
        self.enough = False

    # -- what the patches call ----------------------------------------------------------------

    def attach(self, ddp: Any, arguments: dict[str, Any]) -> None:
        """Watch `ddp`, made with `arguments`; Stop says what is not recorded."""
        if self.ddp is not None:
            raise Stop("the script makes two DistributedDataParallel models; one is recorded")
        for name in OTHERS:
            if arguments.get(name) is not None:
                raise Stop(f"DistributedDataParallel({name}=…) is not recorded")
        if ddp.process_group.size() != self.options.world_size:
            raise Stop("the model's process group is not the whole world; that is not recorded")
        self.ddp, self.arguments = ddp, arguments
        self.names = {id(p): name for name, p in ddp.module.named_parameters()}
        _check_model(self.torch, ddp.module)
        cuda = ddp.device.type == "cuda"
        if not cuda and ddp.device.type != "cpu":
            raise Stop(f"the model is on {ddp.device.type}; cpu and cuda are recorded")
        self.clock = Cuda(self.torch) if cuda else Wall()
        ddp.register_comm_hook(None, self._bucket_hook())
        ddp.register_comm_hook = ddp._register_builtin_comm_hook = _no_comm_hook
        ddp.register_forward_pre_hook(self._forward_begins, with_kwargs=True)
        optimizers = importlib.import_module("torch.optim.optimizer")
        optimizers.register_optimizer_step_pre_hook(self._optimizer_begins)
        optimizers.register_optimizer_step_post_hook(self._optimizer_ends)

    def backward_begins(self) -> bool:
        """Whether this is a step's own backward, and no other inside it."""
        step = self.step
        if step is None or step.phase == "backward":
            return False
        if step.phase == "forward":
            step.backward_start = step.clock.mark()
            if isinstance(step.clock, Counter):
                step.clock.forward_ends()
        step.phase = "backward"
        return True

    def backward_ends(self) -> None:
        if self.step is not None:
            self.step.backward_end = self.step.clock.mark()
            self.step.phase = "after"

    # -- hooks --------------------------------------------------------------------------------

    def _forward_begins(self, ddp: Any, args: Any, kwargs: Any) -> None:
        if not self.torch.is_grad_enabled():
            return  # an evaluation
        if not ddp.require_backward_grad_sync:
            raise Stop(
                "the script accumulates gradients (no_sync); measure one micro-batch per step, "
                "and say batch.accumulation in the scenario"
            )
        self._close()
        kind = self._kind(len(self.steps) + 1)
        if kind == "enough":
            raise Stop
        clock = Counter(self.torch, list(ddp.parameters())) if kind == "counted" else self.clock
        if kind in ("detailed", "counted") and not self.handles:
            self._hook_layers()
        self.step = Step(kind, clock)
        self.step.batch = _batch(self.torch, (args, kwargs))
        self.step.compute = self._compute_dtype()
        if isinstance(clock, Counter):
            clock.start()

    def _kind(self, iteration: int) -> str:
        o = self.options
        if iteration <= o.warmup:
            return "warm"
        if iteration <= o.warmup + o.steps:
            return "plain"
        if iteration <= o.warmup + 2 * o.steps:
            return "detailed"
        if iteration == o.warmup + 2 * o.steps + 1 and o.flops:
            return "counted"
        if self.enough:  # the script caught Stop; it must not go on for ever
            os._exit(importlib.import_module(f"{__package__}.start").write(self, ""))
        self.enough = True
        return "enough"

    def _close(self) -> None:
        """End the step that is open; one without any bucket was no training step."""
        step, self.step = self.step, None
        if step is None:
            return
        if isinstance(step.clock, Counter):
            step.clock.stop()
        if step.buckets:
            step.end = step.clock.mark()
            self.steps.append(step)

    def _bucket_hook(self) -> Any:
        torch = self.torch

        def record_bucket(state: Any, bucket: Any) -> Any:
            if self.step is not None:
                self.step.buckets.append(self._bucket(bucket, self.step.clock.mark()))
            buffer = bucket.buffer()
            torch.distributed.all_reduce(buffer, group=self.ddp.process_group, async_op=True)
            devices = [buffer.device] if buffer.is_cuda else None
            future = torch.futures.Future(devices=devices)
            future.set_result(buffer)
            return future

        # torch compares these annotations with its own classes, not with their names
        record_bucket.__annotations__ = {
            "bucket": torch.distributed.GradBucket,
            "return": torch.futures.Future[torch.Tensor],
        }
        return record_bucket

    def _bucket(self, bucket: Any, mark: Any) -> dict[str, Any]:
        buffer = bucket.buffer()
        return {
            "index": bucket.index(),
            "bytes": buffer.numel() * buffer.element_size(),
            "dtype": _dtype(buffer.dtype),
            "parameters": [self.names[id(p)] for p in bucket.parameters()],
            "ready": mark,
        }

    def _hook_layers(self) -> None:
        for index, (_, module) in enumerate(_holders(self.ddp.module)):
            before, after = self._module_hooks(index)
            self.handles += [
                module.register_forward_pre_hook(before),
                module.register_forward_hook(after),
            ]
        for parameter in self.ddp.module.parameters():
            if parameter.requires_grad:
                name = self.names[id(parameter)]
                hook = self._gradient_hook(name)
                self.handles.append(parameter.register_post_accumulate_grad_hook(hook))

    def _module_hooks(self, index: int) -> tuple[Any, Any]:
        begun: list[Any] = []

        def before(module: Any, args: Any) -> None:
            step = self.step
            if step is not None and step.fine and step.phase == "forward":
                begun[:] = [step.clock.mark()]

        def after(module: Any, args: Any, output: Any) -> None:
            step = self.step
            if step is not None and step.fine and step.phase == "forward" and begun:
                step.forward.append([index, begun.pop(), step.clock.mark()])

        return before, after

    def _gradient_hook(self, name: str) -> Any:
        def ready(parameter: Any) -> None:
            step = self.step
            if step is not None and step.fine:
                step.ready.pop(name, None)  # the last time counts, and its place in the order
                step.ready[name] = step.clock.mark()

        return ready

    def _optimizer_begins(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.step is not None and isinstance(self.step.clock, Counter):
            self.step.clock.stop()
        defaults = optimizer.defaults
        self.optimizer = {
            "class": type(optimizer).__name__,
            "momentum": bool(defaults.get("momentum")),
        }

    def _optimizer_ends(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.step is not None:
            self.step.optimizer_end = self.step.clock.mark()

    def _compute_dtype(self) -> str:
        torch, kind = self.torch, self.ddp.device.type
        if torch.is_autocast_enabled(kind):
            return _dtype(torch.get_autocast_dtype(kind))
        sizes: Tally[str] = Tally()
        for parameter in self.ddp.module.parameters():
            sizes[_dtype(parameter.dtype)] += parameter.numel()
        most = sizes.most_common(1)[0][0]
        fast = kind == "cuda" and torch.get_float32_matmul_precision() != "highest"
        return "tf32" if fast and most == "fp32" else most

    # -- the document -------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """The record as plain data, or {"refused": reason}."""
        refusal = self._refusal()
        if refusal:
            return {"refused": refusal}
        self.clock.finish()
        usual = Tally(s.batch for s in self.steps if s.kind == "detailed").most_common(1)[0][0]
        steps = [s for s in self.steps if s.batch == usual]
        counted = next((s for s in steps if s.kind == "counted"), None)
        if counted is not None and counted.clock.failed:
            print(f"dpsim: the record has no FLOP: {counted.clock.failed}", file=sys.stderr)
            counted = None
        model = self.ddp.module
        return {
            "schema": "dpsim-ddp-record",
            "schema_version": 1,
            "torch": str(self.torch.__version__),
            "device": {"type": self.ddp.device.type, "name": _device_name(self.torch, self.ddp)},
            "world_size": self.options.world_size,
            "batch": usual,
            "compute_dtype": steps[-1].compute,
            "model": type(model).__name__,
            "ddp": {name: self._knob(name) for name in KNOBS},
            "optimizer": self.optimizer,
            "modules": [name for name, _ in _holders(model)],
            "parameters": _parameters(model),
            "buffers": _buffers(model),
            "first_buckets": [_described(b) for b in self.steps[0].buckets],
            "steady_buckets": [_described(b) for b in steps[-1].buckets],
            "plain_steps_s": [s.clock.between(s.start, s.end) for s in steps if s.kind == "plain"],
            "steps": [_timed(s) for s in steps if s.kind == "detailed"],
            "work": _worked(counted) if counted else None,
        }

    def _refusal(self) -> str:
        if self.ddp is None:
            return "the script never made a DistributedDataParallel model"
        detailed = [s for s in self.steps if s.kind == "detailed"]
        if len(detailed) < self.options.steps:
            need = self.options.warmup + 2 * self.options.steps + 1 + self.options.flops
            return (
                f"the script made {len(self.steps)} complete training steps; with --steps "
                f"{self.options.steps} and --warmup {self.options.warmup} a record needs {need}"
            )
        if any(s.batch is None for s in detailed):
            return "the model's forward gets no tensor, so its batch is unknown"
        done = [s.optimizer_end is not None for s in detailed]
        if any(done) and not all(done):
            return (
                "some steps have no optimizer step (gradients accumulated, or a gradient scaler "
                "that skips); measure one micro-batch per step, or with a longer --warmup"
            )
        return ""

    def _knob(self, name: str) -> Any:
        if name == "broadcast_buffers":
            return bool(self.ddp.broadcast_buffers)
        value = self.arguments.get(name)
        return float(value) if name == "bucket_cap_mb" and value is not None else value


def _no_comm_hook(*args: Any, **kwargs: Any) -> None:
    raise Stop("the script sets a communication hook of its own; that is not recorded")


def _check_model(torch: Any, model: Any) -> None:
    for name, module in model.named_modules():
        if type(module).__name__ == "OptimizedModule":
            raise Stop("the model is compiled (torch.compile), which hides its layers")
        if any(type(p).__name__ == "DTensor" for p in module.parameters(recurse=False)):
            raise Stop(f"parameters of {name or 'the model'} are sharded (DTensor)")
    for parameter in model.parameters():
        if parameter.requires_grad:
            _dtype(parameter.dtype)


def _dtype(dtype: Any) -> str:
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise Stop(f"parameters of {name}; recorded are {', '.join(DTYPES)}")
    return DTYPES[name]


def _holders(model: Any) -> list[tuple[str, Any]]:
    """The modules that hold parameters of their own, in registration order."""
    return [
        (name, module)
        for name, module in model.named_modules()
        if next(module.parameters(recurse=False), None) is not None
    ]


def _parameters(model: Any) -> list[dict[str, Any]]:
    """Every parameter once, in registration order, with the module that registers it first."""
    return [
        {
            "name": name,
            "module": name.rpartition(".")[0],
            "shape": list(parameter.shape),
            "dtype": DTYPES.get(str(parameter.dtype).removeprefix("torch."), str(parameter.dtype)),
            "bytes": parameter.numel() * parameter.element_size(),
            "trainable": bool(parameter.requires_grad),
        }
        for name, parameter in model.named_parameters()
    ]


def _buffers(model: Any) -> list[list[Any]]:
    """Elements of the buffers by dtype, as DDP broadcasts them."""
    counts: Tally[str] = Tally()
    for buffer in model.buffers():
        name = str(buffer.dtype).removeprefix("torch.")
        counts[DTYPES.get(name, name)] += buffer.numel()
    return [[dtype, count] for dtype, count in counts.items()]


def _described(bucket: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in bucket.items() if key != "ready"}


def _timed(step: Step) -> dict[str, Any]:
    """The marks of a step as seconds since its start."""
    clock = step.clock

    def at(mark: Any) -> Any:
        return None if mark is None else clock.between(step.start, mark)

    return {
        "forward": [[index, at(start), at(end)] for index, start, end in step.forward],
        "backward_start_s": at(step.backward_start),
        "ready_s": {name: at(mark) for name, mark in step.ready.items()},
        "buckets_s": [at(bucket["ready"]) for bucket in step.buckets],
        "backward_end_s": at(step.backward_end),
        "optimizer_end_s": at(step.optimizer_end),
        "end_s": at(step.end),
    }


def _worked(step: Step) -> dict[str, Any]:
    """The marks of the counted step: work done since its start."""
    clock = step.clock

    def at(mark: Any) -> Any:
        return clock.between(step.start, mark)

    return {
        "columns": list(Counter.NAMES),
        "forward": [[index, at(start), at(end)] for index, start, end in step.forward],
        "backward_start": at(step.backward_start),
        "ready": {name: at(mark) for name, mark in step.ready.items()},
    }


def _batch(torch: Any, inputs: Any) -> int | None:
    """First dimension of the first tensor among `inputs`."""
    for leaf in torch.utils._pytree.tree_leaves(inputs):
        if isinstance(leaf, torch.Tensor) and leaf.dim() > 0:
            return int(leaf.shape[0])
    return None


def _device_name(torch: Any, ddp: Any) -> str:
    if ddp.device.type == "cuda":
        return str(torch.cuda.get_device_name(ddp.device))
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "cpu"
