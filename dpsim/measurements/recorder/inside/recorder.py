"""The recorder: what one DDP model does in its steps.

A step begins where DDP's forward does and ends where the next step begins.  The first `warmup`
iterations give the buckets only; the next `steps` are timed with nothing on them (so that the
hooks' own cost is known); the next `steps` have a hook on every layer and gradient; one more is
counted instead of timed.
"""

from __future__ import annotations

import importlib
import os
from collections import Counter as Tally
from typing import Any

from . import Stop, model
from .clocks import Counter, Cuda, Wall
from .document import write
from .step import Step

#: arguments of DDP that change what is reduced in a way that a record does not say
OTHERS = ("mixed_precision", "delay_all_reduce_named_params", "bucket_cap_mb_list")


class Recorder:
    """Watches the script's DDP model; `document` says what it saw."""

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
        model.check(ddp.module)
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
        self.step.batch = model.batch_of(self.torch, (args, kwargs))
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
            os._exit(write(self))
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
            "dtype": model.dtype_name(buffer.dtype),
            "parameters": [self.names[id(p)] for p in bucket.parameters()],
            "ready": mark,
        }

    def _hook_layers(self) -> None:
        for index, (_, module) in enumerate(model.holders(self.ddp.module)):
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
            return model.dtype_name(torch.get_autocast_dtype(kind))
        sizes: Tally[str] = Tally()
        for parameter in self.ddp.module.parameters():
            sizes[model.dtype_name(parameter.dtype)] += parameter.numel()
        most = sizes.most_common(1)[0][0]
        fast = kind == "cuda" and torch.get_float32_matmul_precision() != "highest"
        return "tf32" if fast and most == "fp32" else most


def _no_comm_hook(*args: Any, **kwargs: Any) -> None:
    raise Stop("the script sets a communication hook of its own; that is not recorded")
