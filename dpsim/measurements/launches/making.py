"""How kernels are made, as programs are told it: compilers, attention's kernel, optimizers.

Flags: huggingface/transformers src/transformers/training_args.py (`torch_compile…`, `tf32`,
`OptimizerNames`) and modeling_utils.py (`attn_implementation`); huggingface/accelerate
src/accelerate/utils/dataclasses.py (`DynamoBackend`, `TorchDynamoPlugin`); modes: torch.compile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpsim.measurements.launches.draft import Draft
from dpsim.measurements.launches.values import truth

if TYPE_CHECKING:
    from dpsim.measurements.launches.started import Started

#: --attn_implementation -> model.attention
ATTENTIONS = {"eager": "eager", "sdpa": "sdpa", "flash_attention_2": "flash", "flash": "flash",
              "flash_attention_3": "flash3"}  # fmt: skip
#: backends of torch.compile -> whether kernels are fused, and whether graphs are captured
_BACKENDS = {"inductor": (True, False), "eager": (False, False), "aot_eager": (False, False),
             "cudagraphs": (False, True), "aot_ts_nvfuser": (True, False),
             "nvprims_nvfuser": (True, False)}  # fmt: skip
#: modes of torch.compile that capture graphs
_CAPTURING = ("reduce-overhead", "max-autotune")
_MODES = ("default", "max-autotune-no-cudagraphs", *_CAPTURING)
#: names of optimizers -> kind, and how its kernels are launched (None: not said)
_OPTIMIZERS: dict[str, tuple[str, object]] = {
    "adamw_torch": ("adam", "foreach"), "adamw_torch_fused": ("adam", True),
    "adamw_apex_fused": ("adam", True), "adamw_hf": ("adam", "for_loop"), "adamw": ("adam", None),
    "adam": ("adam", None), "lamb": ("adam", None), "sgd": ("sgd", None),
    "momentum": ("momentum", None), "adagrad": ("momentum", None), "rmsprop": ("momentum", None),
    "lion": ("momentum", None),
    "lion_32bit": ("momentum", None), "muon": ("momentum", None),
}  # fmt: skip
_FOREACH = "torch's default on GPUs"
_COMPILE, _ATTENTION = ("torch_compile", "compile"), ("attn_implementation", "attention_backend")
_FLASH = ("use_flash_attn", "use_flash_attention_2", "use_flash_attention", "flash_attn")
_OPTIM = ("optim", "optimizer", "opt")
#: flags of transformers that are knobs of DDP
_DDP = {"ddp_bucket_cap_mb": "bucket_cap_mb",
        "ddp_find_unused_parameters": "find_unused_parameters"}  # fmt: skip


def fill(started: Started) -> None:
    """What the flags of a program say of it."""
    draft = started.draft
    for names, take in ((_ATTENTION, attention), (_OPTIM, optimizer), (("tf32",), tf32)):
        if found := started.flag(names):
            take(draft, found[1], *started.told(found))
    if (found := started.flag(_FLASH)) and truth(found[1] or "true"):
        attention(draft, "flash", *started.told(found))
    _compile_flags(started)
    for name, knob in _DDP.items():
        if draft.get("strategy.kind") == "ddp" and (found := started.flag((name,))):
            said, line = started.told(found)
            number = truth(found[1]) if knob.startswith("find") else _number(found[1])
            if number is None:
                draft.find(f"{said}: no value of strategy.{knob}")
            else:
                draft.take(f"strategy.{knob}", number, said, line)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _compile_flags(started: Started) -> None:
    """transformers compiles where any of the three flags is given."""
    on = started.flag(_COMPILE)
    backend, mode = (started.flag((f"torch_compile_{word}",)) for word in ("backend", "mode"))
    given = [found for found in (on, backend, mode) if found]
    if not given:
        return
    said = ", ".join(started.told(found)[0] for found in given)
    line = started.told(given[0])[1]
    if on and truth(on[1] or "true") is False and not (backend or mode):
        started.draft.ignore(said, "nothing is compiled", line)
    else:
        compiled(started.draft, backend[1] if backend else "", mode[1] if mode else "", said, line)


def attention(draft: Draft, value: str, said: str, line: int) -> None:
    """The kernel of attention; it is taken when the model is known (`Draft.account`)."""
    word = value.lower().removeprefix("paged|")
    if word in ATTENTIONS:
        draft.attention = (ATTENTIONS[word], said, line)
    else:
        draft.find(f"{said}: no kernel of attention that dpsim counts; model.attention is for it")
        draft.ignore(said, "see the finding", line)


def compiled(draft: Draft, backend: str, mode: str, said: str, line: int) -> None:
    """torch.compile with this backend and mode, "" where not said."""
    name, how = backend.lower() or "inductor", mode.lower() or "default"
    if name not in _BACKENDS or how not in _MODES:
        draft.find(f"{said}: not known; execution.compile and execution.cuda_graphs are for it")
        draft.ignore(said, "see the finding", line)
        return
    fused, captured = _BACKENDS[name]
    draft.take("execution.compile", fused, said, line)
    if captured or (fused and how in _CAPTURING):
        draft.take("execution.cuda_graphs", True, said, line)


def dynamo(draft: Draft, config: Mapping[str, Any], line: int) -> None:
    """accelerate's section `dynamo_config`, or its flags of the same names."""
    given = {str(key).removeprefix("dynamo_"): str(value) for key, value in config.items()}
    backend, mode = given.get("backend", "no"), given.get("mode", "")
    said = f"dynamo_backend: {backend[:40]}" + (f", dynamo_mode: {mode[:40]}" if mode else "")
    if backend.lower() in ("no", "false", "none"):
        draft.ignore(said, "nothing is compiled", line)
    else:
        compiled(draft, backend, mode, said, line)
    for key in set(given) - {"backend", "mode"}:
        draft.ignore(f"dynamo_{key}: {given[key][:40]}", "what torch.compile does with it where "
                     "graphs break or sizes change is not modelled", line)  # fmt: skip


def optimizer(draft: Draft, value: str, said: str, line: int) -> None:
    """The optimizer by its name in transformers, or its class in small letters."""
    found = _OPTIMIZERS.get(value.lower())
    if found is None:
        draft.find(f"{said}: its states are not modelled; adam's two of 32 bit are taken")
        draft.assume("optimizer.kind", "adam", said, line)
        return
    kind, launches = found
    draft.take("optimizer.kind", kind, said, line)
    if launches == "foreach":
        draft.assume("optimizer.fused", launches, f"{said}: {_FOREACH}", line)
    elif launches is not None:
        draft.take("optimizer.fused", launches, said, line)


def tf32(draft: Draft, value: str, said: str, line: int) -> None:
    """32-bit products in TF32; without effect where they are in 16 bit."""
    if truth(value or "true") is False:
        draft.ignore(said, "products are in the dtype of precision", line)
    elif draft.get("precision") is not None:
        draft.ignore(said, "products are in 16 bit", line)
    else:
        draft.take("precision", {"parameters": "fp32", "compute": "tf32"}, said, line)
