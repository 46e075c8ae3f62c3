"""What `record_memory.py` records: models, strategies and settings, by name."""

from collections.abc import Iterator
from typing import Any

Recorded = dict[str, Any]

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
LOW: Recorded = {"rank": 16, "targets": "all-linear"}
PACKED: Recorded = {**LOW, "base_dtype": "nf4", "bytes": NF4}
MIXED = {"precision": "mixed"}


def cases() -> list[Recorded]:
    """All of them."""
    return [
        *_usual(),
        *_replicated(),
        *_sharded(),
        *_images(),
        *_adapted(),
        *_whole(),
        *_stretches(),
    ]


def _case(name: str, model: Recorded, strategy: str, **rest: Any) -> Recorded:
    base = {"name": name, "model": model, "strategy": strategy, "samples": 4}
    return {**base, "precision": "fp32", "optimizer": "adam", **rest}


def _usual() -> Iterator[Recorded]:
    """Each language model under DDP and FSDP2, with what they are usually run with."""
    for name, model in (("llama", LLAMA), ("gpt2", GPT), ("wide", WIDE)):
        yield _case(f"{name} ddp fp32", model, "ddp")
        yield _case(f"{name} ddp bf16", model, "ddp", precision="bf16")
        yield _case(f"{name} fsdp fp32", model, "fsdp")
        yield _case(f"{name} fsdp mixed", model, "fsdp", **MIXED)
        yield _case(f"{name} fsdp mixed full", model, "fsdp", **MIXED, recompute="full")
        yield _case(f"{name} fsdp mixed op", model, "fsdp", **MIXED, recompute="selective_op")
        keep = {"reshard_after_forward": False}
        yield _case(f"{name} fsdp mixed kept", model, "fsdp", **MIXED, knobs=keep)
        yield _case(f"{name} fsdp mixed x4", model, "fsdp", **MIXED, accumulation=4)


def _replicated() -> Iterator[Recorded]:
    """DDP and ZeRO-1 otherwise: autocast, optimizers, batches."""
    yield _case("llama ddp mixed", LLAMA, "ddp", **MIXED)
    yield _case("gpt2 ddp mixed", GPT, "ddp", **MIXED)
    yield _case("wide ddp fp32 loop", WIDE, "ddp", foreach=False)
    yield _case("wide fsdp mixed few", WIDE, "fsdp", **MIXED, samples=1)
    yield _case("llama ddp fp32 full", LLAMA, "ddp", recompute="full")
    yield _case("wide ddp fp32 few", WIDE, "ddp", samples=1)
    yield _case("wide ddp fp32 sgd", WIDE, "ddp", optimizer="sgd")
    yield _case("wide ddp fp32 momentum x4", WIDE, "ddp", optimizer="momentum", accumulation=4)
    yield _case("wide zero1 fp32", WIDE, "zero")
    yield _case("gpt2 zero1 fp32", GPT, "zero")


def _sharded() -> Iterator[Recorded]:
    """FSDP1, and FSDP2 with units of several blocks."""
    yield _case("wide fsdp1 fp32", WIDE, "fsdp1")
    yield _case("wide fsdp1 mixed", WIDE, "fsdp1", **MIXED)
    yield _case("gpt2 fsdp1 mixed", GPT, "fsdp1", **MIXED)
    grads = {"sharding_strategy": "SHARD_GRAD_OP"}
    yield _case("wide fsdp1 mixed kept", WIDE, "fsdp1", **MIXED, knobs=grads)
    two = {"blocks_per_group": 2}
    yield _case("llama fsdp mixed groups", LLAMA, "fsdp", **MIXED, knobs=two)
    yield _case("wide fsdp mixed groups", WIDE, "fsdp", **MIXED, knobs=two)
    yield _case("gpt2 fsdp fp32 groups", GPT, "fsdp", knobs={"blocks_per_group": 4})
    sized = {"wrap": "size", "min_num_params": 700_000}  # blocks, embedding and head
    yield _case("llama fsdp1 mixed by size", LLAMA, "fsdp1", **MIXED, knobs=sized)
    one = {"wrap": "none"}
    for name, model in (("wide", WIDE), ("gpt2", GPT)):
        yield _case(f"{name} fsdp1 fp32 whole", model, "fsdp1", knobs=one)
        yield _case(f"{name} fsdp1 mixed whole", model, "fsdp1", **MIXED, knobs=one)
    each = {**one, "no_sync": False}
    yield _case("wide fsdp1 mixed whole x4", WIDE, "fsdp1", **MIXED, accumulation=4, knobs=each)


def _images() -> Iterator[Recorded]:
    rest = {"samples": 8, "optimizer": "momentum"}
    yield _case("resnet50 ddp fp32", IMAGES, "ddp", **rest)
    yield _case("resnet50 ddp bf16", IMAGES, "ddp", **rest, precision="bf16")
    yield _case("resnet50 fsdp fp32", IMAGES, "fsdp", **rest)


def _adapted() -> Iterator[Recorded]:
    """Adapters, beside frozen matrices that are packed or not."""
    one = {"samples": 1, "precision": "bf16"}
    for ranks in (1, 2, 4, 8):
        full = {"ranks": ranks, **one, "recompute": "full"}
        yield _case(f"8b lora fsdp x{ranks}", LLAMA_8B, "fsdp", adapters=LOW, **full)
        yield _case(f"8b qlora fsdp x{ranks}", LLAMA_8B, "fsdp", adapters=PACKED, **full)
    yield _case("8b qlora fsdp x1 kept", LLAMA_8B, "fsdp", adapters=PACKED, ranks=1, **one)
    yield _case("wide lora fsdp bf16", WIDE, "fsdp", adapters=LOW, precision="bf16")
    yield _case("llama lora ddp fp32", LLAMA, "ddp", adapters=LOW)


def _whole() -> Iterator[Recorded]:
    """Models of 8 and of all 32 blocks with adapters."""
    for blocks, kind, ranks in WHOLE:
        own = PACKED if kind == "qlora" else LOW
        rest = {"ranks": ranks, "samples": 1, "precision": "bf16", "recompute": "full", "steps": 2}
        name = f"8b {kind} fsdp x{ranks} of {blocks}"
        yield _case(name, {**LLAMA_8B, "blocks": blocks}, "fsdp", adapters=own, **rest)


def _stretches() -> Iterator[Recorded]:
    """Sequences that ranks split between them by ring attention, units shared by all ranks."""
    equal = {**LLAMA, "kv_heads": 8}
    for ranks in (2, 4):
        for name, model in (("gpt2", GPT), ("llama", equal)):
            longer = {**model, "sequence_length": 128 * ranks}
            for how in ("ring", "all_gather"):
                rest = {"context": {"ranks": ranks, "kind": how}, **MIXED}
                yield _case(f"{name} fsdp mixed {how} {ranks}", longer, "fsdp", **rest)
    narrow = {**equal, "vocabulary": 256, "sequence_length": 1024}
    for how in ("ring", "all_gather"):
        rest = {"context": {"ranks": 4, "kind": how}, **MIXED}
        yield _case(f"attention fsdp mixed {how} 4", narrow, "fsdp", **rest)
