"""What a record says of the script's model: modules, parameters, buffers, device."""

from __future__ import annotations

import platform
from collections import Counter as Tally
from typing import Any

from . import Stop

DTYPES = {"float64": "fp64", "float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def check(model: Any) -> None:
    """Stop with a sentence where a record cannot say what the model is."""
    for name, module in model.named_modules():
        if type(module).__name__ == "OptimizedModule":
            raise Stop("the model is compiled (torch.compile), which hides its layers")
        if any(type(p).__name__ == "DTensor" for p in module.parameters(recurse=False)):
            raise Stop(f"parameters of {name or 'the model'} are sharded (DTensor)")
    for parameter in model.parameters():
        if parameter.requires_grad:
            dtype_name(parameter.dtype)


def dtype_name(dtype: Any) -> str:
    """A record's name of a dtype; Stop where it has none."""
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise Stop(f"parameters of {name}; recorded are {', '.join(DTYPES)}")
    return DTYPES[name]


def holders(model: Any) -> list[tuple[str, Any]]:
    """The modules that hold parameters of their own, in registration order."""
    return [
        (name, module)
        for name, module in model.named_modules()
        if next(module.parameters(recurse=False), None) is not None
    ]


def parameters(model: Any) -> list[dict[str, Any]]:
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


def buffers(model: Any) -> list[list[Any]]:
    """Elements of the buffers by dtype, as DDP broadcasts them."""
    counts: Tally[str] = Tally()
    for buffer in model.buffers():
        name = str(buffer.dtype).removeprefix("torch.")
        counts[DTYPES.get(name, name)] += buffer.numel()
    return [[dtype, count] for dtype, count in counts.items()]


def batch_of(torch: Any, inputs: Any) -> int | None:
    """First dimension of the first tensor among `inputs`."""
    for leaf in torch.utils._pytree.tree_leaves(inputs):
        if isinstance(leaf, torch.Tensor) and leaf.dim() > 0:
            return int(leaf.shape[0])
    return None


def device_name(torch: Any, ddp: Any) -> str:
    """What the model runs on, as the system calls it."""
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
