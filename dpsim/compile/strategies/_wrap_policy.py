"""FSDP1's policy that wraps modules by their size, `size_based_auto_wrap_policy`.

Rules read in pytorch/pytorch torch/distributed/fsdp/wrap.py (2.13), `_recursive_wrap`: a module
that has `min_num_params` parameters or more is looked into, its children first, in the order in
which they are registered; it is wrapped if so many of its own parameters are left that no child's
wrapping took.  Lists of modules are looked into and never wrapped; the whole model, the root,
holds what is left.

Modules are told by the names of tensors, "layers.0.mlp.up_proj.weight".  What numbered modules of
a language model make is a list (`ModuleList`, as in huggingface/transformers), of an image model a
module of its own (`Sequential`, as in torchvision).  A language model with a head is
a module inside the root (`LlamaForCausalLM.model`, `BertForMaskedLM.bert`), which is wrapped too
where it is large enough and its blocks are not; T5's parts stand in the root themselves.  What
is played comes and goes with whole layers, so a policy that wraps a part of one is refused, and so
is a unit around others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dpsim.compile.strategies._units import WrappedUnit, wrapped
from dpsim.core.record import Refused
from dpsim.models import Layer, Model, Tensor

WHERE = ("strategy", "min_num_params")
#: heads that huggingface/transformers' classes have beside a module with all the rest: language
#: models', and those of encoders
_HEADS = ("lm_head", "proj_out", "cls", "pre_classifier", "classifier")
#: what that module is called here; layers' names begin inside it
_INNER = "model"


@dataclass(eq=False)
class Module:
    """A module: where it is, its children by name, and how many parameters it has with them."""

    path: tuple[str, ...] = ()
    children: dict[str, Module] = field(default_factory=dict)
    parameters: int = 0

    def add(self, path: tuple[str, ...], parameters: int) -> None:
        """Note so many parameters of the module at `path`, seen from here."""
        self.parameters += parameters
        if path:
            below = self.children.setdefault(path[0], Module((*self.path, path[0])))
            below.add(path[1:], parameters)

    def taken(self, least: int, *, lists: bool) -> Iterator[tuple[tuple[str, ...], int]]:
        """The modules of this one that the policy wraps, and how many parameters go with each."""
        if self.parameters < least:
            return
        left = self.parameters
        for child in self.children.values():
            for path, parameters in child.taken(least, lists=lists):
                left -= parameters
                yield path, parameters
        numbered = bool(self.children) and all(name.isdigit() for name in self.children)
        if self.path and left >= least and not (numbered and lists):
            yield self.path, left


def by_size(model: Model, least: int) -> tuple[WrappedUnit, ...]:
    """The units of a policy whose `min_num_params` is `least`.  Raises Refused where one is not
    made of whole layers."""
    root, lists = Module(), model.sample != "image"
    inner = _inner(model)
    for layer in model.layers:
        for tensor in layer.tensors:
            root.add(_module_of(layer, tensor, inner), tensor.elements)
    taken = {path for path, _ in root.taken(least, lists=lists)}
    members: dict[str, list[int]] = {}
    for i in model.forward_order:
        layer = model.layers[i]
        owners = {_owner(_module_of(layer, tensor, inner), taken) for tensor in layer.tensors}
        if len(owners) > 1:
            raise _refused(model, f"wraps a part of {layer.name}", root, least)
        members.setdefault(owners.pop() if owners else "", []).append(i)
    for path in sorted(taken):
        if any(path[:n] in taken for n in range(1, len(path))):
            raise _refused(model, f"wraps {'.'.join(path)} inside a larger unit", root, least)
    _accept_tied(model, members, least)
    return wrapped(model, [(layers, not name) for name, layers in members.items()])


def _inner(model: Model) -> tuple[str, ...]:
    """The path of the module that a language model with a head is inside the root."""
    names = {layer.name.partition(".")[0] for layer in model.layers}
    t5 = any(t.name.startswith("encoder.block.") for one in model.layers for t in one.tensors)
    return (_INNER,) if model.sample != "image" and not t5 and names & {*_HEADS} else ()


def _module_of(layer: Layer, tensor: Tensor, inner: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The path of the module that holds a tensor; names without one are those of the layer's."""
    whole = "." in tensor.name and tensor.name.startswith(f"{layer.unit}." if layer.unit else "")
    name = tensor.name if whole else f"{layer.name}.{tensor.name}"
    path = tuple(name.split(".")[:-1])
    return path if path[:1] and path[0] in _HEADS else (*inner, *path)


def _owner(path: tuple[str, ...], taken: set[tuple[str, ...]]) -> str:
    """The name of the unit around a module; "": the root."""
    return next((".".join(path[:n]) for n in range(len(path), 0, -1) if path[:n] in taken), "")


def _accept_tied(model: Model, members: dict[str, list[int]], least: int) -> None:
    """Refuse a tensor that two units use: torch shards it with the first, and the other finds a
    shard (_flat_param.py, shared parameters)."""
    unit = {i: name for name, layers in members.items() for i in layers}
    of = {layer.name: unit[i] for i, layer in enumerate(model.layers) if i in unit}
    for i, layer in enumerate(model.layers):
        if layer.tied and of.get(layer.tied, "") != unit.get(i, "") and of.get(layer.tied):
            raise Refused(
                f"{layer.name} uses the table of {layer.tied}, which {least:,} wraps without "
                "it; a larger one leaves both to the root",
                WHERE,
            )


def _refused(model: Model, what: str, root: Module, least: int) -> Refused:
    """What is wrong, and up to how many parameters blocks are wrapped whole."""
    blocks: dict[str, int] = {}
    for layer in model.layers:
        if layer.unit:
            own = sum(tensor.elements for tensor in layer.tensors)
            blocks[layer.unit] = blocks.get(layer.unit, 0) + own
    fits = f"; {min(blocks.values()):,} wraps blocks whole" if blocks else ""
    return Refused(f"{least:,} {what}, and layers come and go whole{fits}", WHERE)
