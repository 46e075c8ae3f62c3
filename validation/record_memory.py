"""What torch itself allocates in a training step: tests/data/memory/torch.json.

    python validation/record_memory.py [-o FILE] [--only TEXT]

Every case is a model, a strategy, a precision, a recomputation and an accumulation.  torch trains
it for three steps on fake tensors (FakeTensorMode: shapes without data) as rank 0 of a fake process
group of eight, and torch.distributed._tools.mem_tracker.MemTracker counts what the last step has
alive at its fullest.  No GPU, no network, no second process.  The models are plain torch modules;
torch.nn.functional.scaled_dot_product_attention is flash attention on CPU too.  Dropout is left
out: its fused kernel, which keeps one byte an element, is CUDA's alone.
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


# -- models ---------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, m: dict[str, int]) -> None:
        super().__init__()
        self.heads, self.kv, self.gated = m["heads"], m["kv_heads"], m["family"] == "llama"
        self.size = m["hidden"] // m["heads"]
        self.causal = m["family"] != "bert"
        h, key = m["hidden"], self.size * self.kv
        if m["family"] == "gpt2":
            self.qkv = nn.Linear(h, 3 * h)
        else:
            self.q, self.k, self.v = (nn.Linear(h, n, bias=not self.gated) for n in (h, key, key))
        self.o = nn.Linear(h, h, bias=not self.gated)
        self.widths = (h, key, key)

    def forward(self, x: torch.Tensor, turn: torch.Tensor | None) -> torch.Tensor:
        parts = (
            self.qkv(x).split(self.widths, -1)
            if hasattr(self, "qkv")
            else (self.q(x), self.k(x), self.v(x))
        )
        q, k, v = (p.unflatten(-1, (-1, self.size)).transpose(1, 2) for p in parts)
        if turn is not None:
            cos, sin = turn.to(x.dtype).unbind()
            q, k = (t * cos + torch.cat((-t[..., 1::2], t[..., ::2]), -1) * sin for t in (q, k))
        out = functional.scaled_dot_product_attention(
            q, k, v, is_causal=self.causal, enable_gqa=self.kv != self.heads
        )
        return self.o(out.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, m: dict[str, int]) -> None:
        super().__init__()
        h, f, gated = m["hidden"], m["feed_forward"], m["family"] == "llama"
        self.up, self.down = nn.Linear(h, f, bias=not gated), nn.Linear(f, h, bias=not gated)
        self.gate = nn.Linear(h, f, bias=False) if gated else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.gate is None:
            return self.down(functional.gelu(self.up(x)))
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, m: dict[str, int]) -> None:
        super().__init__()
        norm = nn.RMSNorm if m["family"] == "llama" else nn.LayerNorm
        self.first, self.second = norm(m["hidden"]), norm(m["hidden"])
        self.attention, self.mlp = Attention(m), Mlp(m)
        self.behind = m["family"] == "bert"

    def forward(self, x: torch.Tensor, turn: torch.Tensor | None) -> torch.Tensor:
        if self.behind:
            x = self.first(x + self.attention(x, turn))
            return self.second(x + self.mlp(x))
        x = x + self.attention(self.first(x), turn)
        return x + self.mlp(self.second(x))


class Language(nn.Module):
    """A small transformer: gpt2 (learned positions, tied head) or llama (gated, rotary)."""

    def __init__(self, m: dict[str, Any]) -> None:
        super().__init__()
        h, llama = m["hidden"], m["family"] == "llama"
        self.tokens = nn.Embedding(m["vocabulary"], h)
        self.places = None if llama else nn.Embedding(max(1024, m["sequence_length"]), h)
        self.blocks = nn.ModuleList(Block(m) for _ in range(m["blocks"]))
        self.norm = (nn.RMSNorm if llama else nn.LayerNorm)(h)
        self.head = nn.Linear(h, m["vocabulary"], bias=False)
        if not llama:
            self.head.weight = self.tokens.weight
        self.llama, self.turn = llama, (2, m["sequence_length"], h // m["heads"])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids)
        turn = None
        if self.places is not None:
            x = x + self.places(torch.arange(ids.shape[1]))
        else:
            turn = torch.ones(self.turn)
        for block in self.blocks:
            x = block(x, turn)
        return self.head(self.norm(x))


class Bottleneck(nn.Module):
    def __init__(self, read: int, width: int, stride: int) -> None:
        super().__init__()
        sizes = ((read, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1))
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, k, s, k // 2, bias=False) for a, b, k, s in sizes
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for _, b, _, _ in sizes)
        self.short = None
        if stride > 1 or read != 4 * width:
            conv = nn.Conv2d(read, 4 * width, 1, stride, bias=False)
            self.short = nn.Sequential(conv, nn.BatchNorm2d(4 * width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for k, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            y = norm(conv(y))
            if k < 2:
                y = functional.relu_(y)
        return functional.relu_(y + (x if self.short is None else self.short(x)))


class ResNet50(nn.Module):
    """He et al. 2015, with torchvision's strides and in-place ReLUs."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64))
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks, read = nn.ModuleList(), 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for k in range(count):
                self.blocks.append(Bottleneck(read, width, stride if k == 0 else 1))
                read = 4 * width
        self.head = nn.Linear(2048, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(functional.relu_(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


# -- adapters -------------------------------------------------------------------------------------


class Unpacked(torch.autograd.Function):
    """A product with a matrix that is stored in few bytes: it is unpacked, in either pass."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, packed: torch.Tensor, shape: Any) -> torch.Tensor:
        ctx.save_for_backward(packed)
        ctx.shape = shape
        return functional.linear(x, x.new_zeros(shape))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient @ gradient.new_zeros(ctx.shape), None, None


class Adapted(nn.Module):
    """A frozen linear layer, packed into so many bytes an element or as it is, and its adapter."""

    def __init__(self, base: nn.Linear, rank: int, packed: float | None) -> None:
        super().__init__()
        self.shape, self.packed = tuple(base.weight.shape), packed is not None
        stored = base.weight.detach()
        if packed is not None:
            stored = torch.zeros(round(packed * base.weight.numel()), dtype=torch.uint8)
        self.base = nn.Parameter(stored, requires_grad=False)
        low = {"bias": False, "dtype": base.weight.dtype}
        self.lora_A = nn.Linear(self.shape[1], rank, **low)
        self.lora_B = nn.Linear(rank, self.shape[0], **low)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.packed:
            out = Unpacked.apply(x, self.base, self.shape)
        else:
            out = functional.linear(x, self.base)
        return out + self.lora_B(self.lora_A(x)) * 2.0


def adapted(model: nn.Module, adapters: dict[str, Any]) -> None:
    """Freeze a model, and put adapters beside the matrices of its blocks."""
    model.requires_grad_(False)
    for block in model.blocks:
        for name, module in list(block.named_modules()):
            if isinstance(module, nn.Linear):
                parent, _, leaf = name.rpartition(".")
                made = Adapted(module, adapters["rank"], adapters.get("bytes"))
                setattr(block.get_submodule(parent), leaf, made)


# -- strategies -----------------------------------------------------------------------------------


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


# -- cases ----------------------------------------------------------------------------------------

SMALL = {"hidden": 256, "blocks": 6, "heads": 8, "kv_heads": 8, "sequence_length": 128}
LLAMA = {"family": "llama", **SMALL, "kv_heads": 2, "feed_forward": 704, "vocabulary": 4096}
GPT = {"family": "gpt2", **SMALL, "feed_forward": 1024, "vocabulary": 8192}
WIDE = {**LLAMA, "hidden": 512, "heads": 8, "kv_heads": 2, "feed_forward": 1408, "blocks": 4}
IMAGES = {"family": "resnet50"}
LLAMA_8B = {"family": "llama", "hidden": 4096, "blocks": 3, "heads": 32, "kv_heads": 8,
            "sequence_length": 1024, "feed_forward": 14336, "vocabulary": 128256}  # fmt: skip
#: of its blocks so many, up to all 32, on so many ranks
WHOLE = ((8, "lora", 1), (8, "qlora", 8), (32, "lora", 1), (32, "lora", 2), (32, "lora", 8),
         (32, "qlora", 1), (32, "qlora", 2), (32, "qlora", 4), (32, "qlora", 8))  # fmt: skip
#: 4 bits, scales of 8 bits for 64 elements, scales of 32 bits for 256 of these
NF4 = (4 + 8 / 64 + 32 / (64 * 256)) / 8


def larger() -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Models of 8 and of all 32 blocks with adapters: names, models, and what else is said."""
    found = []
    for blocks, kind, ranks in WHOLE:
        rest = {"ranks": ranks, "samples": 1, "precision": "bf16", "recompute": "full", "steps": 2}
        own: dict[str, Any] = {"rank": 16, "targets": "all-linear"}
        if kind == "qlora":
            own |= {"base_dtype": "nf4", "bytes": NF4}
        name = f"8b {kind} fsdp x{ranks} of {blocks}"
        found.append((name, {**LLAMA_8B, "blocks": blocks}, {"adapters": own, **rest}))
    return found


def one_unit() -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """FSDP1 with nothing wrapped inside: names, models, and what else is said."""
    found = []
    for name, model in (("wide", WIDE), ("gpt2", GPT)):
        one = {"knobs": {"wrap": "none"}}
        found.append((f"{name} fsdp1 fp32 whole", model, one))
        found.append((f"{name} fsdp1 mixed whole", model, {"precision": "mixed", **one}))
    each = {"wrap": "none", "no_sync": False}
    rest = {"precision": "mixed", "accumulation": 4, "knobs": each}
    return [*found, ("wide fsdp1 mixed whole x4", WIDE, rest)]


def cases() -> list[dict[str, Any]]:
    """What is recorded, by name."""
    found = []

    def add(name: str, model: dict[str, Any], strategy: str, **rest: Any) -> None:
        base = {"name": name, "model": model, "strategy": strategy, "samples": 4}
        found.append({**base, "precision": "fp32", "optimizer": "adam", **rest})

    for name, model in (("llama", LLAMA), ("gpt2", GPT), ("wide", WIDE)):
        add(f"{name} ddp fp32", model, "ddp")
        add(f"{name} ddp bf16", model, "ddp", precision="bf16")
        add(f"{name} fsdp fp32", model, "fsdp")
        add(f"{name} fsdp mixed", model, "fsdp", precision="mixed")
        add(f"{name} fsdp mixed full", model, "fsdp", precision="mixed", recompute="full")
        op = "selective_op"
        add(f"{name} fsdp mixed op", model, "fsdp", precision="mixed", recompute=op)
        keep = {"reshard_after_forward": False}
        add(f"{name} fsdp mixed kept", model, "fsdp", precision="mixed", knobs=keep)
        add(f"{name} fsdp mixed x4", model, "fsdp", precision="mixed", accumulation=4)
    add("llama ddp mixed", LLAMA, "ddp", precision="mixed")
    add("gpt2 ddp mixed", GPT, "ddp", precision="mixed")
    add("wide ddp fp32 loop", WIDE, "ddp", foreach=False)
    add("wide fsdp mixed few", WIDE, "fsdp", precision="mixed", samples=1)
    add("llama ddp fp32 full", LLAMA, "ddp", recompute="full")
    add("wide ddp fp32 few", WIDE, "ddp", samples=1)
    add("wide ddp fp32 sgd", WIDE, "ddp", optimizer="sgd")
    add("wide ddp fp32 momentum x4", WIDE, "ddp", optimizer="momentum", accumulation=4)
    add("wide zero1 fp32", WIDE, "zero")
    add("gpt2 zero1 fp32", GPT, "zero")
    add("wide fsdp1 fp32", WIDE, "fsdp1")
    add("wide fsdp1 mixed", WIDE, "fsdp1", precision="mixed")
    add("gpt2 fsdp1 mixed", GPT, "fsdp1", precision="mixed")
    grads = {"sharding_strategy": "SHARD_GRAD_OP"}
    add("wide fsdp1 mixed kept", WIDE, "fsdp1", precision="mixed", knobs=grads)
    two = {"blocks_per_group": 2}
    add("llama fsdp mixed groups", LLAMA, "fsdp", precision="mixed", knobs=two)
    add("wide fsdp mixed groups", WIDE, "fsdp", precision="mixed", knobs=two)
    add("gpt2 fsdp fp32 groups", GPT, "fsdp", knobs={"blocks_per_group": 4})
    sized = {"wrap": "size", "min_num_params": 700_000}  # blocks, embedding and head
    add("llama fsdp1 mixed by size", LLAMA, "fsdp1", precision="mixed", knobs=sized)
    for name, model, rest in one_unit():
        add(name, model, "fsdp1", **rest)
    add("resnet50 ddp fp32", IMAGES, "ddp", samples=8, optimizer="momentum")
    add("resnet50 ddp bf16", IMAGES, "ddp", samples=8, optimizer="momentum", precision="bf16")
    add("resnet50 fsdp fp32", IMAGES, "fsdp", samples=8, optimizer="momentum")
    low = {"rank": 16, "targets": "all-linear"}
    for ranks in (1, 2, 4, 8):
        rest = {"ranks": ranks, "samples": 1, "precision": "bf16"}
        packed = {**low, "base_dtype": "nf4", "bytes": NF4}
        full = {**rest, "recompute": "full"}
        add(f"8b lora fsdp x{ranks}", LLAMA_8B, "fsdp", adapters=low, **full)
        add(f"8b qlora fsdp x{ranks}", LLAMA_8B, "fsdp", adapters=packed, **full)
    packed, rest = {**low, "base_dtype": "nf4", "bytes": NF4}, {"samples": 1, "precision": "bf16"}
    add("8b qlora fsdp x1 kept", LLAMA_8B, "fsdp", adapters=packed, ranks=1, **rest)
    add("wide lora fsdp bf16", WIDE, "fsdp", adapters=low, precision="bf16")
    add("llama lora ddp fp32", LLAMA, "ddp", adapters=low)
    for name, model, rest in larger():
        add(name, model, "fsdp", **rest)
    return found


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
            done.append({**case, **recorded({**case, "mesh": own})})
            print(f"{case['name']:32} {done[-1]['peak_bytes'] / 1e6:10.2f} MB", file=sys.stderr)
    if args.append or not args.only:
        source = {"torch": torch.__version__, "program": "validation/record_memory.py"}
        text = json.dumps({**source, "ranks": RANKS, "cases": done}, indent=1)
        args.output.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
