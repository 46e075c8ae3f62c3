"""Parts of a model: the layers of one pipeline stage, and one rank's share of split layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, groupby, pairwise
from typing import Any

from dpsim.core.record import Refused
from dpsim.models import AttentionWork, Layer, Model, Tensor


def stage_of(model: Model, indices: Sequence[int]) -> Model:
    """The model of the layers `indices` alone, in registration order.

    A layer whose tied tensor lies in another stage keeps a copy of it (Megatron-LM holds the
    token table on the first and the last stage and sums its gradients; `shared_tables`).
    """
    order = tuple(sorted(indices))
    return model.once(("stage", order), lambda: _stage_of(model, order))


def _stage_of(model: Model, order: Sequence[int]) -> Model:
    names = {model.layers[i].name for i in order}
    owners = {layer.name: layer for layer in model.layers}
    layers = []
    for i in order:
        layer = model.layers[i]
        if layer.tied is not None and layer.tied not in names:
            table = owners[layer.tied].tensors[:1]
            layer = replace(layer, tied=None, tensors=(*table, *layer.tensors))
        layers.append(layer)
    place = {old: new for new, old in enumerate(order)}
    forward = tuple(place[i] for i in model.forward_order if i in place)
    backward = tuple(place[i] for i in model.backward if i in place)
    return replace(
        model,
        layers=tuple(layers),
        forward_order=forward,
        backward=backward,
        arrival=_arrival(model, order),
        recorded=None,
    )


def _arrival(model: Model, order: Sequence[int]) -> tuple[int, ...]:
    """The recorded order of arrival of the tensors of the layers `order`, renumbered."""
    if not model.arrival:
        return ()
    numbers, first, kept = {}, 0, 0
    for i, layer in enumerate(model.layers):
        for t in range(len(layer.tensors)):
            if i in order:
                numbers[first + t] = kept
                kept += 1
        first += len(layer.tensors)
    return tuple(numbers[t] for t in model.arrival if t in numbers)


def shared_tables(model: Model, stages: Sequence[Sequence[int]]) -> list[tuple[int, int, Tensor]]:
    """(stage of the owner, stage of the user, tensor) of every trained tensor that is tied across
    two stages."""
    home = {i: s for s, indices in enumerate(stages) for i in indices}
    index = {layer.name: i for i, layer in enumerate(model.layers)}
    found = []
    for i, layer in enumerate(model.layers):
        if layer.tied is not None and home[i] != home[index[layer.tied]]:
            owner = model.layers[index[layer.tied]]
            own = [t for t in owner.tensors[:1] if t.trained]
            found += [(home[index[layer.tied]], home[i], t) for t in own]
    return found


def blocks(model: Model) -> list[list[int]]:
    """What a stage boundary may not cut: the layers of one unit, in forward order.  Layers outside
    units go with the first unit (embeddings) or the last one (norm, head); without units, or where
    a unit is visited twice, every layer stands alone."""
    runs = [
        (unit, list(layers))
        for unit, layers in groupby(model.forward_order, key=lambda i: model.layers[i].unit)
    ]
    units = [unit for unit, _ in runs if unit]
    if not units or len(set(units)) < len(units):
        return [[i] for i in model.forward_order]
    found: list[list[int]] = []
    waiting: list[int] = []
    for unit, layers in runs:
        if unit:
            found.append([*waiting, *layers])
            waiting = []
        elif found:
            found[-1] += layers
        else:
            waiting = layers
    return found


def balanced(costs: Sequence[float], parts: int) -> list[int]:
    """Where to cut `costs` into `parts` runs, none empty, so that the dearest is as cheap as can
    be: the ends of the runs."""
    plain = all(type(cost) is float for cost in costs)
    return list((_known_cuts if plain else _cuts)(tuple(costs), parts))


def _cuts(costs: tuple[float, ...], parts: int) -> list[int]:
    total = [0.0, *accumulate(costs)]
    return cheapest(len(costs), parts, lambda _, first, end: total[end] - total[first])


#: steps of other numbers of micro-batches ask the same
_known_cuts = lru_cache(maxsize=16)(_cuts)


def cheapest(count: int, parts: int, cost: Callable[[int, int, int], float]) -> list[int]:
    """Where to cut `count` items into `parts` runs, none empty, so that the dearest is as cheap as
    can be: the ends of the runs.  `cost` of (part, first, end) is that of a run as so manieth part.
    Dynamic programming over (parts, end), O(parts count^2)."""
    best = [cost(0, 0, end) for end in range(count + 1)]
    cuts: list[list[int]] = []
    for part in range(1, parts):
        row, cut = [float("inf")] * (count + 1), [0] * (count + 1)
        for end in range(part + 1, count + 1):
            row[end], cut[end] = min(
                (max(best[k], cost(part, k, end)), k) for k in range(part, end)
            )
        best = row
        cuts.append(cut)
    ends = [count]
    for cut in reversed(cuts):
        ends.append(cut[ends[-1]])
    return ends[::-1]


def equal(count: int, parts: int) -> list[int]:
    """The ends of `parts` equal runs of `count`."""
    return [count // parts * (k + 1) for k in range(parts)]


def runs(items: Sequence[list[int]], ends: Sequence[int]) -> list[tuple[int, ...]]:
    """`items` cut at `ends`, every run flattened."""
    return [tuple(i for item in items[a:b] for i in item) for a, b in pairwise([0, *ends])]


def accept_tensor(model: Model, ranks: int) -> None:
    """Refuse models that `ranks` ranks cannot split: each has whole heads, and heads of keys and
    values either divide or are there on several (NVIDIA/Megatron-LM d98e8a64
    megatron/core/transformer/transformer_config.py checks both); of a scan each has whole heads
    and groups (`megatron/core/ssm/mamba_mixer.py`)."""
    where = ("parallel", "tensor")
    if ranks > 1 and _whole(model):
        message = f"{model.name} is not split: tensor parallelism is modelled for transformers"
        raise Refused(message, where)
    for layer in model.layers:
        if layer.scan is not None and any(number % ranks for number in layer.scan):
            heads, groups = layer.scan
            message = f"{heads} heads and {groups} groups of the scan of {model.name} do not split"
            raise Refused(f"{message} over {ranks} ranks", where)
        work = layer.attended
        if work is None or _whole_heads(work, ranks):
            continue
        fitting = (n for n in range(1, work.heads + 1) if _whole_heads(work, n))
        raise Refused(
            f"{work.heads} heads of queries and {work.key_heads or work.heads} of keys of "
            f"{model.name} do not split over {ranks} ranks; {', '.join(map(str, fitting))} would",
            where,
        )


def accept_sequence(model: Model, ranks: int, context: int) -> None:
    """Refuse stretches of a sequence, one for each of `context` ranks, that `ranks` tensor ranks
    do not share equally (NVIDIA/Megatron-LM 00caa53a megatron/core/tensor_parallel/mappings.py
    asserts it of what it scatters)."""
    if shares_sequence(model, ranks, context):
        return
    what = f"sequences of {model.tokens} tokens" + (f" over {context} ranks" if context > 1 else "")
    raise Refused(
        f"{what} do not split over {ranks} tensor ranks; false would do, or a "
        f"model.sequence_length that {ranks * context} divides",
        ("parallel", "sequence_parallel"),
    )


def shares_sequence(model: Model, ranks: int, context: int) -> bool:
    """Whether `ranks` tensor ranks share a sequence, or its stretch of one of `context` ranks,
    equally; a toy's layers have one token."""
    return model.tokens == 1 or model.tokens % (ranks * context) == 0


def _whole(model: Model) -> bool:
    """Whether nothing in `model` has heads or experts, nor times of its own; lengths tell nothing,
    for a sequence may be one token long."""
    split = any(layer.attended or layer.scan or layer.experts for layer in model.layers)
    return model.tokens == 1 and not split and model.layers[0].forward is None


def _whole_heads(work: AttentionWork, ranks: int) -> bool:
    keys = work.key_heads or ranks
    return work.heads % ranks == 0 and (keys % ranks == 0 or ranks % keys == 0)


def tensor_part(model: Model, ranks: int, *, sequence: bool, whole_experts: bool = False) -> Model:
    """One rank's share of a model whose layers `ranks` ranks split between them.

    Matrices are cut along their first dimension (column parallel), the last one of a layer whose
    output is summed along its second (row parallel; Shoeybi et al., arXiv:1909.08053, section 3),
    vectors are kept whole.  With `sequence` parallelism the
    parts between the matrices are cut along the sequence too (Korthikanti et al.,
    arXiv:2205.05198, section 4.2.2).  Tokens go to experts from the rank that has them; with
    `whole_experts` an expert is not cut, and has the tokens that are sent to it alone.
    """
    key = "tensor part", ranks, sequence, whole_experts
    return model.once(key, lambda: _model_part(model, ranks, sequence, whole_experts))


def _model_part(model: Model, ranks: int, sequence: bool, whole_experts: bool) -> Model:
    layers = []
    for layer in model.layers:
        part = _tensor_part(layer, ranks, sequence)
        if layer.experts and whole_experts:
            part = replace(part, tensors=layer.tensors, forward_sum=0.0, backward_sum=0.0)
        layers.append(part)
    return replace(model, layers=tuple(layers))


#: what tensor ranks have in equal parts
_SHARED = (
    "forward_flop", "backward_flop", "forward_bytes", "backward_bytes", "pairs", "inside",
    "inside_bytes", "eager", "logits", "again_flop", "again_bytes", "op_flop", "last_flop", "once",
    "cast_weights", "scratch", "routed",
)  # fmt: skip


def _tensor_part(layer: Layer, ranks: int, sequence: bool) -> Layer:
    whole, everywhere = (0.0, 0.0) if sequence else (layer.replicated, layer.cast_replicated)
    timed = layer.forward is not None and layer.backward is not None

    def share(elements: float) -> float:
        return min(whole, elements) + (elements - min(whole, elements)) / ranks

    saves = everywhere + (layer.cast_saves - everywhere) / ranks
    parts: dict[str, Any] = {name: getattr(layer, name) / ranks for name in _SHARED}
    return replace(
        layer,
        **parts,
        tensors=_parts(layer, ranks, flat=timed),
        streamed=layer.streamed and layer.streamed.shared(ranks, sequence=sequence),
        activations=share(layer.activations),
        activations_full=share(layer.activations_full),
        activations_selective=share(layer.activations_selective),
        activations_op=share(layer.activations_op),
        activations_moe=layer.activations_moe and share(layer.activations_moe),
        eager_op=layer.eager_op if not sequence else layer.eager_op / ranks,
        rms=layer.rms / (ranks if sequence else 1),
        cast_saves=saves,
        routed_bytes=None if layer.routed_bytes is None else layer.routed_bytes / ranks,
        forward=None if layer.forward is None else layer.forward / ranks,
        backward=None if layer.backward is None else layer.backward / ranks,
        attended=None if layer.attended is None else _with_heads(layer.attended, ranks),
    )


def _with_heads(work: AttentionWork, ranks: int) -> AttentionWork:
    """The attention of one rank's heads; where there are more ranks than heads of keys and values,
    several have the same ones."""
    keyed = min(ranks, work.key_heads or ranks)
    return work._replace(queries=work.queries / ranks, keys=work.keys / keyed)


def _parts(layer: Layer, ranks: int, *, flat: bool) -> tuple[Tensor, ...]:
    """One rank's part of a layer's tensors."""
    matrices = [t for t, tensor in enumerate(layer.tensors) if len(tensor.shape) == 2]
    last = matrices[-1] if matrices and layer.forward_sum and layer.backward_sum else None
    each = enumerate(layer.tensors)
    return tuple(
        _cut(tensor, ranks, flat=flat, across=(t == last) != tensor.transposed)
        for t, tensor in each
    )


def _cut(tensor: Tensor, ranks: int, *, flat: bool, across: bool) -> Tensor:
    """One rank's part of a tensor, along its second dimension if `across` and it divides; padded
    up where it does not divide."""
    shape = tensor.shape
    if len(shape) < 2 and not flat:
        return tensor
    rows = shape[0]
    if (across or rows % ranks) and len(shape) > 1 and shape[1] % ranks == 0:
        return tensor._replace(shape=(rows, shape[1] // ranks, *shape[2:]))
    return tensor._replace(shape=(-(-rows // ranks), *shape[1:]))
