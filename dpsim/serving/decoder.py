"""The model as a rank of the engine holds it: matrices, experts, keys and values of a token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import NamedTuple

from dpsim.core.lean import dataclass
from dpsim.core.record import Refused
from dpsim.models import Layer, Model
from dpsim.models.section import HuggingFace
from dpsim.serving.described import ServingEngine

#: bytes of an element of a matrix; 4 bits have a scale of 8 for each 16 (NVIDIA, NVFP4)
WEIGHT = {"bf16": 2.0, "fp8": 1.0, "nvfp4": 0.5 + 1.0 / 16}
#: tokens at which attention that looks at fewer than there are would show
_LONG = 1 << 20
#: matrices that every rank of a tensor group has whole (vllm-project/vllm
#: `vllm/model_executor/models/deepseek_v2.py`: ReplicatedLinear; gates of experts)
_WHOLE = (".gate.", "q_a_proj", "kv_a_proj_with_mqa", "shared_expert_gate")
#: products that vLLM makes in one kernel: q, k and v; gate and up
_JOINED = {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "gate_proj": "up", "up_proj": "up"}


class HeldMatrix(NamedTuple):
    """`many` equal products of a rank: (rows, columns) of the matrix that it holds, whose inputs
    are as long as `summed` before they are split; `width` bytes of an element; `eight`: computed in
    8 bits; `once`: only for tokens whose successor is wanted."""

    rows: float
    columns: float
    width: float
    eight: bool
    once: bool = False


class HeldExperts(NamedTuple):
    """The experts of a layer: how many, how many a token takes, elements of one, and its width and
    bytes of an element."""

    experts: int
    chosen: int
    elements: int
    hidden: int
    width: float
    eight: bool


@dataclass(frozen=True)
class Decoder:
    """What a rank's devices hold and do, each.

    matrices  how many of each, over all layers
    experts   layers with experts, by kind; split over all ranks of the service
    layers    blocks; `exchanged` all-reduces of a tensor group in a step
    hidden, vocabulary   elements of a token between blocks, and of its logits
    keys      bytes that a token's keys and values take on a device, over all layers
    pair, read_pair      FLOP over all layers for a pair of tokens of a prompt, and for a token that
              looks at one in the cache, on a device
    streamed  elements per token that other kernels move on a device
    kernels   launches of a step
    table     bytes of what tokens are looked up in
    widest    elements per token of the widest activations on a device
    positions tokens that a sequence may have, where the configuration says it
    """

    matrices: tuple[tuple[HeldMatrix, int], ...]
    experts: tuple[tuple[HeldExperts, int], ...]
    layers: int
    exchanged: int
    hidden: int
    vocabulary: int
    keys: float
    pair: float
    read_pair: float
    streamed: float
    kernels: int
    table: float
    widest: float
    positions: int | None = None

    def weights(self, ranks: int) -> float:
        """Bytes of parameters on a device, where experts are split over `ranks`."""
        held = self.table + sum(m.rows * m.columns * m.width * many for m, many in self.matrices)
        return held + sum(
            e.elements * e.width * e.experts / ranks * many for e, many in self.experts
        )


def decoder_of(name: str, engine: ServingEngine, base: Path = Path()) -> Decoder:
    """The language model of configuration `name` as `engine` splits it; Refused where it has what
    is not modelled."""
    where = ("model", "huggingface")
    spec = HuggingFace(huggingface=name, sequence_length=1)
    if spec.kind(base) != "decoder":
        raise Refused(f"{name} is no decoder of text, which is what is served", where)
    model = spec.model(base)
    places = spec.positions(base)
    far = min(_LONG, places or _LONG)
    _check(model, HuggingFace(huggingface=name, sequence_length=far).model(base), name, far)
    return _split(model, engine, name, places)


def _check(model: Model, longer: Model, name: str, far: int) -> None:
    """Refuse what steps are not known of; `longer` is the model with `far` tokens."""
    where = ("model", "huggingface")
    for one, other in zip(model.layers, longer.layers, strict=True):
        if one.unit and (one.library_kernels or one.compiled_kernels) is None:
            raise Refused(f"kernels of {one.name} of {name} are not counted", where)
        if other.pairs < 0.99 * one.pairs * far**2:
            raise Refused(
                f"{name} looks back through a window, which serving does not model", where
            )


def _split(model: Model, engine: ServingEngine, name: str, places: int | None) -> Decoder:
    tensor = engine.tensor
    attention = [layer for layer in model.layers if layer.attended is not None]
    heads = {layer.attended.heads for layer in attention if layer.attended is not None}
    if not attention or any(count % tensor for count in heads):
        raise Refused(
            f"{tensor} does not divide the {', '.join(map(str, sorted(heads)))} heads of {name}",
            ("serving", "tensor"),
        )
    wide = 1.0 if engine.kv_cache == "fp8" else 2.0
    caches = [_cache(layer, tensor) for layer in attention]
    blocks = [layer for layer in model.layers if layer.unit]
    matrices = Counter(one for layer in model.layers for one in _matrices(layer, engine, model))
    streams = [layer.library_kernels or layer.compiled_kernels for layer in blocks]
    hidden = model.layers[-1].tensors[-1].shape[-1] if model.layers[-1].tensors else 0
    table = next(t for layer in model.layers for t in layer.tensors if len(t.shape) == 2)
    experts = Counter(_experts(layer, engine) for layer in blocks if layer.experts)
    return Decoder(
        matrices=tuple(matrices.items()),
        experts=tuple(experts.items()),
        layers=len(attention),
        exchanged=2 * len(attention),
        hidden=hidden or table.shape[1],
        vocabulary=table.shape[0],
        keys=wide * sum(keys for keys, _ in caches),
        pair=2.0 * sum(layer.pairs for layer in attention) / tensor,
        read_pair=sum(flop for _, flop in caches),
        streamed=sum(k.whole + (k.moved - k.whole) / tensor for k in streams if k is not None),
        kernels=sum(k.forward for k in streams if k is not None) + 4,
        table=2.0 * prod(table.shape) / tensor * (not model.layers[-1].tied),
        widest=max(2.0 * one.rows for one in matrices if not one.once),
        positions=places,
    )


def _cache(layer: Layer, tensor: int) -> tuple[float, float]:
    """Elements of a token's keys and values that a device keeps, and FLOP to look at it: latent
    ones are kept whole by every rank (DeepSeek-AI, arXiv:2405.04434, section 2.1; absorbed
    products), and heads of keys are never cut."""
    work = layer.attended
    assert work is not None
    for tensor_ in layer.tensors:
        if "kv_a_proj_with_mqa" in tensor_.name:
            kept = float(tensor_.shape[0])
            rank = next(t.shape[0] for t in layer.tensors if "kv_a_layernorm" in t.name)
            return kept, 2.0 * (kept + rank) * work.heads / tensor
    return work.keys / min(tensor, work.key_heads), 2.0 * layer.pairs / tensor


def _matrices(layer: Layer, engine: ServingEngine, model: Model) -> Iterable[HeldMatrix]:
    """The products of a layer on a device, those together that one kernel makes."""
    if layer.experts:
        return
    head = layer is model.layers[-1]
    tensors = layer.tensors if not layer.tied else model.layers[0].tensors[:1]
    if not layer.unit and not head:
        return  # tables are looked up
    found: dict[str, list[float]] = {}
    for one in tensors:
        if len(one.shape) != 2:
            continue
        kind = one.name.split(".")[-2]
        whole = any(part in f".{one.name}" for part in _WHOLE)
        many, columns = one.shape[::-1] if one.transposed else one.shape
        split = 1 if whole else engine.tensor
        joined = found.setdefault(_JOINED.get(kind, one.name), [0.0, float(columns)])
        joined[0] += many / split  # split by rows or by columns, as many elements either way
    for wide, summed in found.values():
        attends = layer.attended is not None
        plain = head or layer.name.endswith(".router") or (engine.weights == "nvfp4" and attends)
        dtype = "bf16" if plain else engine.weights
        yield HeldMatrix(wide, summed, WEIGHT[dtype], dtype != "bf16", head)


def _experts(layer: Layer, engine: ServingEngine) -> HeldExperts:
    elements = sum(prod(t.shape) for t in layer.tensors) // layer.experts
    hidden = next(t.shape[-1] for t in layer.tensors if len(t.shape) == 3)
    dtype = engine.weights
    return HeldExperts(
        layer.experts, layer.chosen, elements, hidden, WEIGHT[dtype], dtype != "bf16"
    )
