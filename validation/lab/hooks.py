"""Communication hooks of the lab's hosts: torch's own, and two written by hand.

torch's quantization_pertensor_hook reads what NCCL's futures hold; gloo's hold something else, so
it stops there (2.13).  `int8_hook` does the same with what it has gathered itself.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel


class TopKHook:
    """The largest elements of a bucket and their places are gathered; the rest is kept for the next
    step.  Called by DDP for every bucket."""

    def __init__(self, density: float) -> None:
        self.density = density
        self.left: dict[int, torch.Tensor] = {}

    def send(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """Both gathers are issued at once; their elements are added up when both have ended."""
        buffer, key = bucket.buffer(), bucket.index()
        if key in self.left and self.left[key].numel() == buffer.numel():
            buffer.add_(self.left[key])
        count = max(1, int(self.density * buffer.numel()))
        places = buffer.abs().topk(count, sorted=False).indices
        values = buffer[places]
        self.left[key] = buffer.clone()
        self.left[key][places] = 0.0
        world = dist.get_world_size()
        found = []
        for sent in (values, places.to(torch.int32)):
            into = [torch.empty_like(sent) for _ in range(world)]
            found.append((into, dist.all_gather(into, sent, async_op=True).get_future()))

        def added(_: Any) -> torch.Tensor:
            buffer.zero_()
            for value, place in zip(found[0][0], found[1][0], strict=True):
                buffer.index_add_(0, place.long(), value)
            return buffer.div_(world)

        return torch.futures.collect_all([future for _, future in found]).then(added)


def int8_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Scales are gathered, then bytes; every rank's are turned back and added up."""
    buffer, world = bucket.buffer(), dist.get_world_size()
    low, high = torch.aminmax(buffer)
    scale = torch.stack([(high - low) / 255.0, low])
    scales = [torch.empty_like(scale) for _ in range(world)]
    gathered = [torch.empty(buffer.numel(), dtype=torch.uint8) for _ in range(world)]

    def quantised(_: Any) -> Any:
        codes = torch.clamp(torch.round(buffer / scale[0]) - scale[1] / scale[0], 0, 255)
        return dist.all_gather(gathered, codes.to(torch.uint8), async_op=True).get_future().wait()

    def added(_: Any) -> torch.Tensor:
        total = torch.zeros_like(buffer)
        for code, (step, least) in zip(gathered, scales, strict=True):
            total += step * code.to(torch.float32) + least
        return total / world

    first = dist.all_gather(scales, scale, async_op=True).get_future()
    return first.then(quantised).then(added)


def register(model: DistributedDataParallel, compression: dict[str, Any]) -> None:
    """Compress the gradients of `model`; keys are those of a scenario's `compression`."""
    kind = compression["kind"]
    if kind == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif kind == "int8":
        model.register_comm_hook(None, int8_hook)
    elif kind == "top_k":
        hook = TopKHook(compression["density"])
        model.register_comm_hook(None, lambda _, bucket: hook.send(bucket))
    else:
        state = powerSGD_hook.PowerSGDState(None, compression["rank"], start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
