"""What torch itself allocates in a training step: tests/data/memory/torch.json.

    python validation/record_memory.py [-o FILE] [--only TEXT]

Every case is a model, a strategy, a precision, a recomputation and an accumulation.  torch trains
it for three steps on fake tensors (FakeTensorMode: shapes without data) as a rank of a fake process
group of eight, and torch.distributed._tools.mem_tracker.MemTracker counts what the last step has
alive at its fullest.  No GPU, no network, no second process.  The cases are in `_memory_cases.py`,
the models in `_memory_models.py`.
"""

import argparse
import gc
import json
import sys
from collections import OrderedDict
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from _memory_cases import cases
from _memory_context import splitting
from _memory_models import Language, ResNet50, adapted
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, size_based_auto_wrap_policy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
from torch.utils.hooks import RemovableHandle

FILE = Path(__file__).resolve().parent.parent / "tests/data/memory/torch.json"
RANKS = 8
STEPS = 3


def every_second_product() -> Any:
    """torchtitan's selective recomputation by operator: attention and every second matrix product
    of a block are kept (torchtitan/distributed/activation_checkpoint.py)."""
    aten, met = torch.ops.aten, {"count": 0, "again": 0}
    attention = aten._scaled_dot_product_flash_attention_for_cpu.default

    def policy(ctx: Any, func: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        mode = "again" if ctx.is_recompute else "count"
        if func in (aten.mm.default, aten.addmm.default):
            met[mode] += 1
            if met[mode] % 2:
                return CheckpointPolicy.MUST_SAVE
        elif func is attention:
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def recomputed(model: nn.Module, how: str) -> None:
    for k, block in enumerate(model.blocks):
        if how == "full":
            model.blocks[k] = checkpoint_wrapper(block)
        elif how == "selective_op":
            model.blocks[k] = checkpoint_wrapper(block, context_fn=every_second_product)


def wrapped(model: nn.Module, case: dict[str, Any]) -> nn.Module:
    kind, knobs, low = case["strategy"], case.get("knobs", {}), case["precision"] == "mixed"
    if kind == "ddp":
        model = DistributedDataParallel(model, **knobs)
        model.register_comm_hook(None, unreduced)
        return model
    if kind == "fsdp":
        policy = MixedPrecisionPolicy()
        if low:
            policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        each = knobs.get("blocks_per_group", 1)
        knobs = {key: value for key, value in knobs.items() if key != "blocks_per_group"}
        for k in range(0, len(model.blocks), each):
            some = list(model.blocks[k : k + each])
            fully_shard(some if each > 1 else some[0], mesh=case["mesh"], mp_policy=policy, **knobs)
        return fully_shard(model, mesh=case["mesh"], mp_policy=policy, **knobs)
    if kind == "fsdp1":
        wrap: Any = ModuleWrapPolicy({type(model.blocks[0])})
        if knobs.get("wrap") == "size":
            least = knobs["min_num_params"]
            wrap = partial(size_based_auto_wrap_policy, min_num_params=least)
        if knobs.get("wrap") == "none":
            wrap = None
        mixed = MixedPrecision(torch.bfloat16, torch.float32) if low else None
        return FullyShardedDataParallel(
            model,
            auto_wrap_policy=wrap,
            mixed_precision=mixed,
            sharding_strategy=ShardingStrategy[knobs.get("sharding_strategy", "FULL_SHARD")],
            use_orig_params=False,
            device_id=torch.device("cpu"),
        )
    return model


def unreduced(state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A bucket as it is: the fake process group has no all-reduce that C++ could wait for."""
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def optimizer_of(model: nn.Module, case: dict[str, Any]) -> Any:
    how = {"adam": (torch.optim.AdamW, {}), "momentum": (torch.optim.SGD, {"momentum": 0.9}),
           "sgd": (torch.optim.SGD, {})}[case["optimizer"]]  # fmt: skip
    cls, rest = how
    rest = {**rest, "lr": 1e-3, "foreach": case.get("foreach", True)}
    if case["strategy"] == "zero":
        return ZeroRedundancyOptimizer(model.parameters(), optimizer_class=cls, **rest)
    return cls([p for p in model.parameters() if p.requires_grad], **rest)


def step(
    model: nn.Module, optimizer: Any, batch: Any, case: dict[str, Any], tracker: MemTracker
) -> None:
    """A step; the logits are let go before backward, as torchtitan does."""
    times = case.get("accumulation", 1)
    auto = case["precision"] == "mixed" and case["strategy"] in ("ddp", "zero", "none")
    for m in range(times):
        last = m == times - 1
        tracker.reset_mod_stats()
        if case["strategy"] == "fsdp" and times > 1:
            model.set_requires_gradient_sync(last)
        quiet = model.no_sync() if case["strategy"] == "ddp" and not last else None
        if quiet:
            quiet.__enter__()
        with torch.autocast("cpu", torch.bfloat16, enabled=auto):
            out = model(batch[0])
        loss = functional.cross_entropy(out.flatten(0, -2).float(), batch[1].flatten())
        del out
        loss.backward()
        if quiet:
            quiet.__exit__(None, None, None)
    optimizer.step()
    optimizer.zero_grad()


def hooked(register: Any) -> Any:
    """MemTracker hooks into the gradients of all parameters; frozen ones have none."""

    def tried(tensor: torch.Tensor, hook: Any) -> Any:
        return register(tensor, hook) if tensor.requires_grad else RemovableHandle(OrderedDict())

    return tried


for _name in ("register_hook", "register_post_accumulate_grad_hook"):
    setattr(torch.Tensor, _name, hooked(getattr(torch.Tensor, _name)))


class Whole(MemTracker):
    """MemTracker without its peaks of single modules, which take the square of their number."""

    def _update_peak_stats(self, peak_state: Any) -> None:
        for device, held in self._curr_mem_snap.items():
            if self._peak_mem.get(device, 0) < held["Total"]:
                self._peak_mem[device] = held["Total"]
                self._peak_mem_snap[device] = dict(held)


def recorded(case: dict[str, Any]) -> dict[str, Any]:
    """Bytes at the fullest moment of the last step, by MemTracker's categories.

    DDP's reducer and FSDP1's flat parameters look at data, so these run on real tensors.
    """
    real = case["strategy"] in ("ddp", "fsdp1")
    tracker = Whole()
    with nullcontext() if real else FakeTensorMode(allow_non_fake_inputs=True), tracker:
        model, batch = made(case)
        optimizer = optimizer_of(model, case)
        for _ in range(case.get("steps", STEPS) - 1):
            step(model, optimizer, batch, case, tracker)
        gc.collect()
        tracker._peak_mem.clear()
        tracker._peak_mem_snap.clear()
        step(model, optimizer, batch, case, tracker)
        peak = tracker.get_tracker_snapshot("peak")
    found = {str(getattr(k, "value", k)): int(v) for k, v in next(iter(peak.values())).items()}
    return {"peak_bytes": found.pop("Total"), "by_category": found}


def made(case: dict[str, Any]) -> tuple[nn.Module, Any]:
    """The wrapped model, and a batch."""
    m, n = case["model"], case["samples"]
    if m["family"] == "resnet50":
        model: nn.Module = ResNet50()
        batch = (torch.randn(n, 3, 224, 224), torch.zeros(n, dtype=torch.long))
    else:
        fake = "adapters" in case and case["precision"] == "bf16"  # fakes are not converted
        torch.set_default_dtype(torch.bfloat16 if fake else torch.float32)
        model = Language(m)
        torch.set_default_dtype(torch.float32)
        ids = torch.zeros(n, m["sequence_length"], dtype=torch.long)
        batch = (ids, ids.clone())
    if case["precision"] == "bf16" and "adapters" not in case:
        model = model.bfloat16()
        batch = tuple(x.bfloat16() if x.is_floating_point() else x for x in batch)
    if "adapters" in case:
        adapted(model, case["adapters"])
    recomputed(model, case.get("recompute", "none"))
    return wrapped(model, case), batch


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=FILE)
    parser.add_argument("--only", default="", help="cases whose name has this text; writes nothing")
    parser.add_argument("--append", action="store_true", help="to OUTPUT, the cases it lacks")
    args = parser.parse_args()
    known = json.loads(args.output.read_text(encoding="utf-8"))["cases"] if args.append else []
    names = {case["name"] for case in known}
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    mesh = init_device_mesh("cpu", (RANKS,))
    done = known
    for case in cases():
        if args.only in case["name"] and case["name"] not in names:
            own = mesh if "ranks" not in case else DeviceMesh("cpu", range(case["ranks"]))
            with splitting({**case, "mesh": own}) as part:
                done.append({**case, **recorded(part)})
            print(f"{case['name']:32} {done[-1]['peak_bytes'] / 1e6:10.2f} MB", file=sys.stderr)
    if args.append or not args.only:
        source = {"torch": torch.__version__, "program": "validation/record_memory.py"}
        text = json.dumps({**source, "ranks": RANKS, "cases": done}, indent=1)
        args.output.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
