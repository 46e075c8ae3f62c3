"""Clocks: what an instant of a step is marked by.

`Wall` marks seconds of the host, `Cuda` events of the current stream, `Counter` the work done so
far.  A mark costs little; `between` says what lies between two of them, once all is done.
"""

from __future__ import annotations

import importlib
import time
from typing import Any

Columns = list[float]


class Wall:
    """The host's clock, for devices that compute when they are told to."""

    def mark(self) -> float:
        return time.perf_counter()

    def between(self, first: float, second: float) -> float:
        """Seconds from `first` to `second`."""
        return second - first

    def finish(self) -> None:
        """All marks can be read at once."""


class Cuda:
    """Events on the current CUDA stream."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def mark(self) -> Any:
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, first: Any, second: Any) -> float:
        """Seconds from `first` to `second` on the device."""
        return float(first.elapsed_time(second)) * 1e-3

    def finish(self) -> None:
        """Wait until the device has passed all marks."""
        self.torch.cuda.synchronize()


class Counter:
    """Counts the work of everything that torch dispatches: FLOP of matrix products, convolutions
    and attention (torch.utils.flop_counter's own formulas), bytes that kernels read and write,
    kernels, and bytes kept for backward.
    """

    NAMES = ("flop", "bytes", "kernels", "kept_bytes")

    def __init__(self, torch: Any, parameters: list[Any]) -> None:
        self.torch = torch
        self.now: Columns = [0.0] * len(self.NAMES)
        self.formulas = importlib.import_module("torch.utils.flop_counter").flop_registry
        self.seen = {p.untyped_storage().data_ptr() for p in parameters}
        self.open: list[Any] = []
        self.failed = ""  # why nothing of it counts

    def start(self) -> None:
        """Count from here on, until `stop`."""
        graph = self.torch.autograd.graph
        self.open = [_dispatch(self), graph.saved_tensors_hooks(self._pack, lambda x: x)]
        for context in self.open:
            context.__enter__()

    def forward_ends(self) -> None:
        """Tensors kept from here on are none of forward's."""
        if len(self.open) > 1:
            self.open.pop().__exit__(None, None, None)

    def stop(self) -> None:
        while self.open:
            self.open.pop().__exit__(None, None, None)

    def mark(self) -> Columns:
        return list(self.now)

    def between(self, first: Columns, second: Columns) -> Columns:
        """The work between two marks, in the order of NAMES."""
        return [b - a for a, b in zip(first, second, strict=True)]

    def finish(self) -> None:
        """Counts are there at once."""

    def _pack(self, tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.seen:
            self.seen.add(storage.data_ptr())
            self.now[3] += storage.nbytes()
        return tensor.detach()

    def count(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Add one operation."""
        formula = self.formulas.get(func._overloadpacket)
        if formula is not None:
            try:
                self.now[0] += formula(*args, **kwargs, out_val=out)
            except Exception as error:  # torch's formula; the script itself has gone well
                self.failed = f"torch counts no FLOP of {func}: {error}"
        views = any(r.alias_info and not r.alias_info.is_write for r in func._schema.returns)
        if views or func.namespace != "aten" or "empty" in func._schema.name:
            return
        leaves = self.torch.utils._pytree.tree_leaves((args, kwargs, out))
        tensors = [leaf for leaf in leaves if isinstance(leaf, self.torch.Tensor)]
        self.now[1] += sum(t.numel() * t.element_size() for t in tensors)
        self.now[2] += 1


def _dispatch(counter: Counter) -> Any:
    """A dispatch mode that tells `counter` every operation."""
    base = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode

    class Mode(base):  # type: ignore[misc, valid-type]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            counter.count(func, args, kwargs or {}, out)
            return out

    return Mode()
