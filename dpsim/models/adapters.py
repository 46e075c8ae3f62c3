"""Adapters: trained low-rank matrices beside frozen ones.

LoRA (Hu et al., arXiv:2106.09685, section 4.1): beside a frozen W of (out, in) stand A of (rank,
in) and B of (out, rank), and the output is W x + B A x times a constant.  DoRA (Liu et al.,
arXiv:2402.09353, section 4) scales every row of W + B A to a trained length of its own, whose
present norm is worked out anew for every micro-batch and taken as a constant (section 4.3).

The order of tensors and the kernels are those of huggingface/peft (`src/peft/tuners/lora/layer.py`,
`dora.py`), without dropout: two products, a scaling and an addition; its rule of names too (a
target is the end of a module's path; `all-linear` is every matrix product but the output's).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Annotated, Literal

from dpsim.core.dtypes import QUANTISED
from dpsim.core.record import Check, Refused, Text, record
from dpsim.models import Layer, Model, Tensor, WeightInput
from dpsim.models.weights import columns, full_name, is_weight, positions

ALL = "all-linear"
#: what the names of the tensors of adapters have
MARK = "lora_"
#: what is not quantised beside quantised matrices: tables, norms, biases, the output's product
BESIDE_QUANTISED = "bf16"


@record
class Adapters:
    """Trained low-rank matrices beside frozen matrices; all else is frozen.

    kind        `lora`, or `dora`, which trains the length of every row too
    rank        of the low-rank matrices
    targets     names of the modules that get one, by the ends of their paths (`q_proj`), as in
                peft; or `all-linear`: all matrix products but the output's
    base_dtype  what frozen parameters are stored in; `nf4` (QLoRA: 4 bits and double-quantised
                scales) and `int8` hold for the matrices of blocks, which are unpacked before every
                product, and leave all else in bf16; left out: `precision.parameters`
    """

    rank: Annotated[int, Check(1, 65_536)]
    targets: tuple[Text, ...] | Literal["all-linear"]
    kind: Literal["lora", "dora"] = "lora"
    base_dtype: Literal["nf4", "int8", "bf16", "fp16", "fp32"] | None = None

    def model(self, base: Model) -> Model:
        """`base` with its adapters, frozen but for them.  Raises Refused where a target names no
        matrix, and where nothing can be quantised."""
        wanted = [self.targets] if isinstance(self.targets, str) else list(self.targets)
        if not wanted:
            raise Refused("an empty list adapts nothing; name modules", ("adapters", "targets"))
        for target in wanted:
            self._check(base, target)
        layers = tuple(self._layer(base, layer) for layer in base.layers)
        if self.base_dtype in QUANTISED and not any(layer.quantised for layer in layers):
            said = f"{base.name} has no blocks with matrices that {self.base_dtype} could hold"
            raise Refused(f"{said}; bf16 is accepted", ("adapters", "base_dtype"))
        return replace(base, layers=layers)

    def _check(self, base: Model, target: str) -> None:
        """Refuse a target that names no matrix."""
        named = [(layer, t) for layer in base.layers for t in layer.tensors]
        if any(self._adapts(base, layer, t, (target,)) for layer, t in named):
            return
        ends = {_module(*one).rpartition(".")[2]: None for one in named if _matrix(base, *one)}
        if not ends:
            said = (
                f"{base.name} has no matrices of known shape; give the adapters as layers of their "
                "own, and the others trainable: false"
            )
        else:
            said = f"no matrix product is called {target[:60]!r}; there are {', '.join(ends)}"
        raise Refused(said, ("adapters", "targets"))

    def _adapts(self, base: Model, layer: Layer, tensor: Tensor, targets: tuple[str, ...]) -> bool:
        if not _matrix(base, layer, tensor):
            return False
        if targets == (ALL,):
            return not layer.logits
        path = f".{_module(layer, tensor)}"
        return any(path.endswith(f".{target}") for target in targets)

    def _layer(self, base: Model, layer: Layer) -> Layer:
        """A layer with its adapters: their tensors behind those of the module that they adapt."""
        targets = (self.targets,) if isinstance(self.targets, str) else self.targets
        chosen = [t for t in layer.tensors if self._adapts(base, layer, t, targets)]
        own: list[Tensor] = []
        waiting: list[Tensor] = []
        for tensor in layer.tensors:
            if waiting and _module(layer, tensor) != _module(layer, waiting[0]):
                own, waiting = [*own, *self._added(waiting[0])], []
            stored = self._stored(base, layer, tensor)
            own.append(tensor._replace(trained=False, dtype=stored))
            waiting += [tensor] if tensor in chosen else []
        for tensor in waiting:
            own += self._added(tensor)
        return self._worked(base, replace(layer, tensors=tuple(own)), layer, chosen)

    def _stored(self, base: Model, layer: Layer, tensor: Tensor) -> str | None:
        """What a frozen tensor is stored in."""
        if self.base_dtype not in QUANTISED:
            return self.base_dtype or tensor.dtype
        block = bool(layer.unit) and not layer.logits and len(tensor.shape) < 4
        product = is_weight(tensor) and positions(base, layer, tensor) > 0
        return self.base_dtype if block and product else BESIDE_QUANTISED

    def _added(self, tensor: Tensor) -> Iterator[Tensor]:
        """The tensors of one adapter."""
        stem = tensor.name.removesuffix("weight")
        out, read, *window = tensor.shape
        yield Tensor(f"{stem}{MARK}A.weight", (self.rank, read, *window))
        yield Tensor(f"{stem}{MARK}B.weight", (out, self.rank, *(1 for _ in window)))
        if self.kind == "dora":
            yield Tensor(f"{stem}{MARK}magnitude", (out,))

    def _worked(self, base: Model, layer: Layer, plain: Layer, chosen: list[Tensor]) -> Layer:
        """The work of the adapters beside that of their layer.

        Per position an adapter reads its input, writes and reads `rank` numbers, writes its output,
        scales it and adds it (6 outputs); backward does twice as much.  DoRA multiplies its output
        and that of the frozen product by the row's factor, and keeps both; once a micro-batch it
        multiplies B A, adds it to W and takes the norms of the rows (5 times the elements of W).
        """
        flop = moved = added = kept = once = scratch = 0.0
        dora = self.kind == "dora"
        for tensor in chosen:
            n, (out, read) = positions(base, plain, tensor), columns(tensor)
            flop += 2.0 * n * sum(prod(t.shape) for t in self._added(tensor) if len(t.shape) > 1)
            moved += n * (read + 2 * self.rank + (6 + 6 * dora) * out)
            added += n * (5 + 6 * dora) * out
            kept += n * (self.rank + 2 * out * dora)
            once += 5.0 * tensor.elements * dora
            scratch = max(scratch, 2.0 * tensor.elements * dora)
        if layer.streamed is not None:  # what no product moves goes after the products
            moved -= added
            ahead, back = layer.streamed.forward + added, layer.streamed.backward + 2 * added
            layer = replace(layer, streamed=layer.streamed._replace(forward=ahead, backward=back))
        kernels = (9 if dora else 4) * len(chosen)
        own = layer.backward_kernels
        return replace(
            layer,
            forward_flop=layer.forward_flop + flop,
            backward_flop=layer.backward_flop + 2 * flop,
            forward_bytes=layer.forward_bytes + moved,
            backward_bytes=layer.backward_bytes + 2 * moved,
            kernels=layer.kernels + kernels,
            backward_kernels=own if own is None else own + 2 * kernels,
            activations=layer.activations + kept,
            activations_selective=layer.activations_selective + kept,
            op_flop=layer.op_flop + flop * bool(layer.op_flop),
            last_flop=_spared(layer, plain, chosen),
            saved=tuple(self._kept_for(one, chosen) for one in layer.saved),
            once=once,
            scratch=scratch,
        )

    def _kept_for(self, saved: WeightInput, chosen: list[Tensor]) -> WeightInput:
        """A product's input is kept for its adapter's gradient too."""
        own = [t for t in chosen if t.name in saved.tensors]
        return saved._replace(
            tensors=(*saved.tensors, *(a.name for t in own for a in self._added(t)))
        )


def _spared(layer: Layer, plain: Layer, chosen: list[Tensor]) -> float:
    """FLOP of the product that ends `plain`, if it still does: no adapter is beside it, and it is
    torch's own (that of a quantised matrix is bitsandbytes')."""
    matrices = [tensor for tensor in plain.tensors if len(tensor.shape) > 1]
    ended = not layer.quantised and not any(tensor in chosen for tensor in matrices[-1:])
    return layer.last_flop * ended


def is_adapter(tensor: Tensor) -> bool:
    """Whether a tensor is one of an adapter's."""
    return MARK in tensor.name


def _module(layer: Layer, tensor: Tensor) -> str:
    """The path of the module that holds a tensor."""
    return full_name(layer, tensor).rpartition(".")[0]


def _matrix(base: Model, layer: Layer, tensor: Tensor) -> bool:
    """Whether a tensor is the weight of a module: of one matrix product or a convolution."""
    alone = is_weight(tensor) and len(tensor.shape) != 3
    return alone and positions(base, layer, tensor) > 0
