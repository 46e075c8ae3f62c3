"""Record the collectives that DeepSpeed's ZeRO issues, in order, on small models.

    python validation/record_deepspeed.py tests/data/deepspeed/orders.json

Needs torch and deepspeed (`DS_BUILD_OPS=0 pip install deepspeed`), no GPU: two processes on gloo.
A model is a chain of linear layers without bias.  Every case is its layers' shapes, the settings of
ZeRO and the number of micro-batches.  What is recorded is one string per step: the forward (F) and
backward (B) of layers and the collectives of at least 16 bytes, by name and number of elements, in
the order in which the host of rank 0 meets them.  Smaller ones are flags and norms.
"""

from __future__ import annotations

import json
import os
import random
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from _record import target

RANKS, STEPS, SMALL = 2, 3, 16
Case = dict[str, Any]
#: torch.distributed's calls -> what they are, and which argument is the full tensor
CALLS = {
    "all_reduce": ("AR", 0), "all_gather_into_tensor": ("AG", 0),
    "reduce_scatter_tensor": ("RS", 1), "reduce": ("R", 0), "broadcast": ("BC", 0),
    "_all_gather_base": ("AG", 0), "_reduce_scatter_base": ("RS", 1),
    "all_to_all_single": ("A2A", 1), "all_gather": ("AGL", 1), "reduce_scatter": ("RSL", 0),
}  # fmt: skip


def cases(seed: int = 20261121) -> list[Case]:
    """Ten random chains under every stage; widths are multiples of 8: nothing is padded."""
    draw = random.Random(seed)
    found: list[Case] = []
    for _ in range(10):
        widths = [8 * draw.randint(1, 16) for _ in range(draw.randint(4, 9))]
        shapes = [[a, b] for a, b in pairwise(widths)]
        sizes = [a * b for a, b in shapes]
        micro = draw.choice((1, 1, 2))
        bucket = draw.choice((sum(sizes) + 1, max(sizes), sum(sizes) // 2 + 1, 10**9))
        for stage in (1, 2, 3):
            zero: dict[str, Any] = {"stage": stage, "reduce_bucket_size": bucket}
            if stage == 3:
                zero |= {
                    "stage3_prefetch_bucket_size": draw.choice((0, min(sizes), sum(sizes) // 2)),
                    "stage3_param_persistence_threshold": draw.choice((0, min(sizes))),
                    "stage3_max_live_parameters": 10**9,
                    "stage3_max_reuse_distance": draw.choice((0, sum(sizes), 10**9)),
                }
            found.append({"shapes": shapes, "micro_batches": micro, "zero": zero})
    alone = {"use_multi_rank_bucket_allreduce": False}
    return found + [case | {"zero": case["zero"] | alone} for case in found if _reduces(case)]


def _reduces(case: Case) -> bool:
    """Whether the case is played once more with one reduce per owning rank."""
    return case["zero"]["stage"] < 3


class Log:
    """What rank 0's host meets."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.depth = 0

    def take(self) -> str:
        text, self.names = " ".join(self.names), []
        return text

    def watch(self) -> None:
        """Wrap the calls of torch.distributed.  One that calls another counts once."""
        for name, (short, place) in CALLS.items():
            if hasattr(dist, name):
                setattr(dist, name, self._wrapped(getattr(dist, name), short, place))

    def _wrapped(self, call: Any, short: str, place: int) -> Any:
        def wrapper(*arguments: Any, **named: Any) -> Any:
            values = [*arguments, *named.values()]
            if not self.depth:
                tensor = values[place]
                tensors = tensor if isinstance(tensor, list) else [tensor]
                size = sum(t.numel() for t in tensors)
                if size * tensors[0].element_size() > SMALL:
                    self.names.append(f"{short}{size}")
            self.depth += 1
            try:
                return call(*arguments, **named)
            finally:
                self.depth -= 1

        return wrapper


class Layer(torch.nn.Linear):
    """A linear layer that logs its forward and backward."""

    def __init__(self, number: int, shape: list[int], log: Log) -> None:
        super().__init__(*shape, bias=False)
        self.number, self.log = number, log

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.log.names.append(f"F{self.number}")
        return _Marked.apply(super().forward(x), self.number, self.log)  # type: ignore[no-any-return]


class _Marked(torch.autograd.Function):
    """The identity; its backward comes right before that of the layer."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, number: int, log: Log) -> torch.Tensor:
        ctx.number, ctx.log = number, log
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        ctx.log.names.append(f"B{ctx.number}")
        return gradient, None, None


def record(case: Case, log: Log) -> list[str]:
    """One string per step."""
    import deepspeed

    torch.manual_seed(0)
    layers = [Layer(i, shape, log) for i, shape in enumerate(case["shapes"])]
    model = torch.nn.Sequential(*layers)
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.Adam(model.parameters()),
        config={
            "train_micro_batch_size_per_gpu": 2,
            "gradient_accumulation_steps": case["micro_batches"],
            "zero_optimization": case["zero"],
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
        },
    )
    log.take()
    found = []
    for _ in range(STEPS):
        for _ in range(case["micro_batches"]):
            loss = engine(torch.randn(2, case["shapes"][0][0])).pow(2).mean()
            engine.backward(loss)
            engine.step()
        found.append(log.take())
    engine.destroy()
    return found


def work(rank: int, port: int, target: str) -> None:
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port), DS_ACCELERATOR="cpu",
    )  # fmt: skip
    torch.set_num_threads(1)
    log = Log()
    log.watch()
    import deepspeed

    deepspeed.init_distributed("gloo")
    done = [case | {"steps": record(case, log)} for case in cases()]
    if rank == 0:
        document = {
            "deepspeed": deepspeed.__version__, "torch": torch.__version__, "ranks": RANKS,
            "cases": done,
        }  # fmt: skip
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).write_text(json.dumps(document, indent=0) + "\n", encoding="utf-8")
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # threads of deepspeed would abort a regular end


if __name__ == "__main__":
    mp.spawn(work, (29600 + os.getpid() % 300, target(__doc__)), nprocs=RANKS)
