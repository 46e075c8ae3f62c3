"""Models from Hugging Face `config.json` files: sizes in, layers out.

`read_config` knows the families gpt2, bert, opt, the rotary families llama, mistral, qwen2,
qwen3, phi3, gemma and gemma2, and with sparse experts mixtral, qwen2_moe, qwen3_moe, olmoe,
gpt_oss, dbrx, deepseek_v2, deepseek_v3 and kimi_k2; every other family is refused by name.  Tensor
names, shapes and their registration order follow huggingface/transformers
`src/transformers/models/FAMILY/modeling_FAMILY.py`.  FLOP, traffic and memory follow the rules in
`dpsim/models/transformer_layers.py` and `dpsim/models/expert_layers.py`.

A block is two layers, ``….attention`` and ``….mlp``, of one unit.  The norm of each half belongs
to that half and comes after its matrices, as the rotary families register them (GPT-2 registers it
before them, and so it is here).  The rotary families register both norms after both halves; here
the first stands at the end of the attention half, a shift of one vector of h elements.

Parameter counts, with P positions, T token types, L blocks, and h, f, a, k, d, V as in
`transformer_layers`:

* GPT-2: V h + P h + L (12 h^2 + 13 h) + 2 h at f = 4 h (Radford et al., 2019)
* BERT, encoder and pooler: (V + P + T) h + 2 h + L (4 (h^2 + h) + 2 h f + f + h + 4 h) + h^2 + h
  (Devlin et al., arXiv:1810.04805)
* OPT: V w + (P + 2) h + L (4 (h^2 + h) + 2 h f + f + h + 4 h) + 2 h, and 2 w h if the embedding
  width w is not h (Zhang et al., arXiv:2205.01068)
* rotary families: V h (twice unless tied) + L (2 h a d + 2 h k d + 3 h f + 2 h) + h
  (Touvron et al., arXiv:2302.13971); Qwen2 adds (a + 2 k) d per block, Qwen3 2 d, Gemma 2 2 h
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

from dpsim.core import unknown
from dpsim.core.record import Refused
from dpsim.models import Model
from dpsim.models.huggingface import deepseek, rotary, sparse
from dpsim.models.huggingface.config import SIZE_LIMIT, Config, whole
from dpsim.models.huggingface.learned import bert, gpt2, opt
from dpsim.models.huggingface.tensors import Parts

#: what there is for all other models
_RECORD = "`dpsim measure -- python train.py` records any torch model (model: {record: FILE})"

Attention = Literal["flash", "math"]


def read_config(
    data: Mapping[str, Any], *, sequence_length: int, name: str, attention: Attention = "flash"
) -> Model:
    """The model that `data` (a parsed `config.json`) describes, for sequences of that many tokens;
    `attention: math` stores the scores of every pair of tokens.

    One sample is one sequence.  Parameters are fp32 unless the trainer says otherwise: the file's
    `torch_dtype` states how weights were stored and is ignored.  Raises Refused naming the key.
    """
    if not isinstance(data, Mapping):
        raise Refused("a model configuration must be a mapping (a JSON object)")
    tokens = whole(sequence_length, "sequence_length", SIZE_LIMIT)
    config = Config(data, tokens, stored=attention == "math")
    layers, order = _FAMILIES[_family(data)](config)
    return Model(name=name, layers=layers, forward_order=order, sample="sequence", tokens=tokens)


def _family(data: Mapping[str, Any]) -> str:
    """The model family; BERT files of Google's original key set carry no `model_type`."""
    family = data.get("model_type")
    if family is None and "type_vocab_size" in data and "intermediate_size" in data:
        return "bert"
    known = ", ".join(sorted(_FAMILIES))
    if family is None:
        raise Refused(f"is missing; known: {known}", ("model_type",))
    if not isinstance(family, str):
        raise Refused(f"{str(family)[:60]!r} is not a name; known: {known}", ("model_type",))
    if family not in _FAMILIES:
        said = (
            unknown.not_modelled(family)
            or f"model family {family[:60]!r} is not modelled; {_RECORD}"
        )
        raise Refused(f"{said}; known: {known}", ("model_type",))
    return family


_FAMILIES: dict[str, Callable[[Config], Parts]] = {
    "gpt2": gpt2,
    "bert": bert,
    "opt": opt,
    **{name: partial(rotary.rotary, family) for name, family in rotary.FAMILIES.items()},
    **{name: partial(sparse.sparse, family) for name, family in sparse.FAMILIES.items()},
    "dbrx": sparse.dbrx,
    **{name: partial(deepseek.deepseek, biased) for name, biased in deepseek.FAMILIES.items()},
}
