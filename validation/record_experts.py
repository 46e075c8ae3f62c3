"""Record torch's own collectives of a small model with experts, as rank 0 of a world that answers
at once: two blocks of a dense layer and experts, tokens sent by torch's all-to-alls, gradients
reduced by DDP over all ranks and over those that hold the same experts.

    python validation/record_experts.py tests/data/experts/torch.json
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from _record import target
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

Sent = tuple[str, tuple[int, ...], float]


class Notes(TorchDispatchMode):
    """Notes every collective: its kind, the ranks that take part, its bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Sent] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        name = func.name()
        if name == "_c10d_functional::all_to_all_single":
            group = dist.distributed_c10d._resolve_process_group(args[3])
            self.note("all_to_all", group, args[0])
        return func(*args, **(kwargs or {}))

    def note(self, operation: str, group: Any, tensor: torch.Tensor) -> None:
        ranks = tuple(dist.get_process_group_ranks(group))
        size = float(tensor.numel() * tensor.element_size())
        self.found.append((operation, ranks, size))


class Experts(nn.Module):
    """The experts that one rank holds; tokens come from and go to the ranks of `group`."""

    def __init__(self, width: int, held: int, chosen: int, group: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(held * width, width))
        self.held, self.chosen, self.group = held, chosen, group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sent = x.repeat_interleave(self.chosen, dim=0)
        come = all_to_all_single_autograd(sent, None, None, self.group)
        parts = come.reshape(self.held, -1, x.shape[1])
        made = torch.bmm(parts, self.weight.reshape(self.held, x.shape[1], -1))
        made = made.reshape(sent.shape)
        back = all_to_all_single_autograd(made, None, None, self.group)
        return back.reshape(x.shape[0], self.chosen, -1).sum(1)


def noted(state: tuple[Notes, Any], bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A hook of DDP that notes what would be reduced, bucket by bucket."""
    notes, group = state
    notes.note("all_reduce", group, bucket.buffer())
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


class Chain(nn.Module):
    """Blocks of a dense layer and experts."""

    def __init__(self, dense: list[nn.Module], own: list[nn.Module]) -> None:
        super().__init__()
        self.dense, self.own = nn.ModuleList(dense), nn.ModuleList(own)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for first, second in zip(self.dense, self.own, strict=True):
            x = second(first(x))
        return x


def reduced(model: nn.Module, kind: str, notes: Notes, group: Any) -> nn.Module:
    """`model` with the parameters whose names have `kind` reduced over `group`."""
    others = [name for name, _ in model.named_parameters() if f"{kind}." not in name]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, others)
    found = DistributedDataParallel(model, process_group=group)
    found.register_comm_hook((notes, group), noted)
    return found


def recorded(
    ranks: int, expert: int, width: int, tokens: int, experts: int, chosen: int, blocks: int
) -> list[Sent]:
    """The collectives of the third step, when DDP's buckets are as they stay."""
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    try:
        ours = dist.new_group(list(range(expert)))
        same = dist.new_group(list(range(0, ranks, expert)))
        notes, held = Notes(), experts // expert
        dense: list[nn.Module] = [nn.Linear(width, width, bias=False) for _ in range(blocks)]
        own: list[nn.Module] = [Experts(width, held, chosen, ours) for _ in range(blocks)]
        model: nn.Module = Chain(dense, own)
        model = reduced(model, "dense", notes, dist.group.WORLD)
        if ranks > expert:
            model = reduced(model, "own", notes, same)
        with notes:
            for _ in range(3):
                notes.found.clear()
                model(torch.zeros(tokens, width, requires_grad=True)).sum().backward()
        return notes.found
    finally:
        dist.destroy_process_group()


#: (ranks, of which so many share out experts) of the worlds that are recorded
WORLDS = ((4, 2), (8, 4), (4, 4))
SHAPE = {"width": 8, "tokens": 16, "experts": 8, "chosen": 2, "blocks": 2}


def main(where: str) -> int:
    worlds = [
        {"ranks": ranks, "expert": expert, "sent": recorded(ranks, expert, **SHAPE)}
        for ranks, expert in WORLDS
    ]
    found = {
        "torch": torch.__version__,
        "program": "validation/record_experts.py",
        "shape": SHAPE,
        "worlds": worlds,
    }
    Path(where).write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(target(__doc__)))
