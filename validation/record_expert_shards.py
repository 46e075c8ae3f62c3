"""Record the collectives that torch's FSDP2 issues where experts are shared out among ranks, in
order, on small models.

    python validation/record_expert_shards.py tests/data/experts/fsdp.json

Needs torch, no GPU: rank 0 of a world that answers at once.  A block is a dense matrix, experts
that tokens reach by torch's own all-to-alls, and is wrapped as pytorch/torchtitan b5bcd76c
torchtitan/distributed/fsdp.py (`apply_fsdp_to_decoder`) wraps it: one `fully_shard`, whose
`shard_placement_fn` puts the experts on a mesh of those ranks that hold the same ones, by their
second dimension where there are more ranks than experts, and with prefetching said explicitly.
The root holds a matrix in front of the blocks and one behind them.  What is recorded is a list per
world of a second step: [collective, ranks, bytes of the full tensor].
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from _record import target
from record_experts import Experts, Notes, Sent
from torch import nn
from torch._C._distributed_c10d import ProcessGroup
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_common import ShardPlacementResult
from torch.distributed.fsdp._fully_shard._fsdp_init import _get_mesh_info
from torch.distributed.tensor import Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

WIDTH, TOKENS, EXPERTS, CHOSEN, BLOCKS = 16, 16, 8, 2, 3
#: torch's operators -> what they are, and which argument is the full tensor
CALLS = {
    "c10d::_allgather_base_": ("all_gather", 0),
    "c10d::_reduce_scatter_base_": ("reduce_scatter", 1),
    "c10d::allreduce_": ("all_reduce", 0),
}
#: (ranks, of which so many share out experts; settings) of the worlds that are recorded
WORLDS: tuple[dict[str, Any], ...] = (
    {"ranks": 4, "expert": 2},
    {"ranks": 8, "expert": 4, "reshard_after_forward": False},
    {"ranks": 4, "expert": 4},
    {"ranks": 32, "expert": 2},
    {"ranks": 8, "expert": 2, "shard": 4},
    {"ranks": 8, "expert": 2, "accumulation": 2},
    {"ranks": 8, "expert": 2, "compute": "bf16", "reduce": "fp32"},
)


class Log(Notes):
    """Notes what FSDP2 issues too."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (name := func.name().partition(".")[0]) in CALLS:
            operation, place = CALLS[name]
            tensor = args[place][0] if isinstance(args[place], list) else args[place]
            boxed = (one for one in args if isinstance(one, torch.ScriptObject))
            self.note(operation, ProcessGroup.unbox(next(boxed)), tensor)
        return super().__torch_dispatch__(func, types, args, kwargs)


class Cubic(Experts):
    """The same with a dimension for experts, as torchtitan keeps their weights."""

    def __init__(self, held: int, group: Any) -> None:
        super().__init__(WIDTH, held, CHOSEN, group)
        self.weight = nn.Parameter(torch.zeros(held, WIDTH, WIDTH))


class Block(nn.Module):
    def __init__(self, held: int, group: Any) -> None:
        super().__init__()
        self.dense = nn.Linear(WIDTH, WIDTH, bias=False)
        self.experts = Cubic(held, group)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.experts(self.dense(x))
        return out


class Model(nn.Module):
    def __init__(self, held: int, group: Any) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)
        self.blocks = nn.ModuleList(Block(held, group) for _ in range(BLOCKS))
        self.tail = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.head(x)
        for block in self.blocks:
            x = block(x)
        out: torch.Tensor = self.tail(x)
        return out


def sharded(case: dict[str, Any], model: Any, dense: Any, sparse: Any) -> Any:
    """`model` wrapped block by block."""
    dtypes = {"bf16": torch.bfloat16, "fp32": torch.float32}
    policy = MixedPrecisionPolicy(
        param_dtype=dtypes.get(case.get("compute", "")),
        reduce_dtype=dtypes.get(case.get("reduce", "")),
    )
    common = {"mesh": dense, "mp_policy": policy}
    own, others = _get_mesh_info(sparse, None), _get_mesh_info(dense, None)
    size = case.get("shard", case["ranks"])
    axis = 1 if size > EXPERTS else 0
    for block in model.blocks:
        kept = set(block.experts.parameters())

        def place(one: nn.Parameter, kept: Any = kept) -> ShardPlacementResult:
            found = (Shard(axis), own) if one in kept else (Shard(0), others)
            return ShardPlacementResult(placement=found[0], mesh_info=found[1])

        fully_shard(
            block, shard_placement_fn=place,
            reshard_after_forward=case.get("reshard_after_forward", True), **common,
        )  # fmt: skip
    fully_shard(model, **common)
    for one, following in pairwise([model, *model.blocks]):
        one.set_modules_to_forward_prefetch([following])
    for one, before in pairwise([model, *reversed(model.blocks)]):
        one.set_modules_to_backward_prefetch([before])
    return model


def recorded(case: dict[str, Any]) -> list[Sent]:
    """The collectives of the second step."""
    ranks, expert = case["ranks"], case["expert"]
    shard = case.get("shard", ranks)
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    names = ("replicate", "shard")
    axes: Any = names if shard < ranks else "shard"
    dense = init_device_mesh("cpu", (ranks // shard, shard), mesh_dim_names=names)
    shape = (ranks // shard, shard // expert, expert)
    sparse = init_device_mesh("cpu", shape, mesh_dim_names=(*names, "expert"))
    log = Log()
    model = Model(EXPERTS // expert, sparse.get_group("expert"))
    model = sharded(case, model, dense[axes], sparse[axes])
    many = case.get("accumulation", 1)
    for _ in range(2):
        log.found.clear()
        with log:
            for m in range(many):
                model.set_requires_gradient_sync(m == many - 1)
                model(torch.zeros(TOKENS, WIDTH, requires_grad=True)).float().sum().backward()
        model.zero_grad()
    return log.found


def main(where: str) -> int:
    torch.set_num_threads(1)
    with get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        found = pool.map(recorded, WORLDS, chunksize=1)
    told = {
        "torch": torch.__version__,
        "program": "validation/record_expert_shards.py",
        "shape": {
            "width": WIDTH, "tokens": TOKENS, "experts": EXPERTS, "chosen": CHOSEN,
            "blocks": BLOCKS,
        },
        "worlds": [{**case, "sent": sent} for case, sent in zip(WORLDS, found, strict=True)],
    }  # fmt: skip
    Path(where).write_text(json.dumps(told) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(target(__doc__)))
