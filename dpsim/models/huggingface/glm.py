"""GLM-4.5 and its like (`glm4_moe`): grouped-query attention with DeepSeek-V3's experts.

The number of parameters, with a heads and k of keys of d elements, E experts of width m, w shared
ones, D dense first blocks of width f, u = 1 where queries and keys are normalised
(`use_qk_norm`), and b = 1 where they and values have biases (`attention_bias`):

    V h (twice unless tied) + h + L (2 h a d + 2 h k d + 2 h + 2 d u + (a + 2 k) d b)
    + D 3 h f + (L - D) (3 h m (E + w) + h E)

The biases of the choice of experts are buffers, and modules that predict further tokens
(`num_nextn_predict_layers`) are no part of the model that the file's architecture names
(huggingface/transformers 5.23 `models/glm4_moe/modeling_glm4_moe.py`).
"""

from __future__ import annotations

from dpsim.models.expert_layers import Routing
from dpsim.models.huggingface.config import Config
from dpsim.models.huggingface.deepseek import dense_half, expert_half
from dpsim.models.huggingface.rotary import Rotary, attention_tensors, block_of
from dpsim.models.huggingface.sparse import checked, closed, opened
from dpsim.models.huggingface.tensors import Parts
from dpsim.models.transformer_layers import attention


def glm4_moe(config: Config) -> Parts:
    """A model of the family."""
    family = Rotary(bias="qkv option", kv=True, head_norms=config.flag("use_qk_norm", False))
    block, s = block_of(family, config), config.tokens
    h, width = block.hidden, config.size("moe_intermediate_size")
    routing = checked(
        Routing(
            config.size("n_routed_experts"), config.size("num_experts_per_tok"), width, grouped=True
        ),
        "num_experts_per_tok",
    )
    wide, dense = width * config.count("n_shared_experts"), config.count("first_k_dense_replace")
    layers = [opened(config, h)]
    for i in range(config.layers("num_hidden_layers")):
        unit = f"layers.{i}"
        layers.append(attention(block, unit, attention_tensors(family, config, block, unit), s))
        if i < dense:
            layers.append(dense_half(config, h, unit))
        else:
            layers += expert_half(routing, h, unit, wide, s, biased=False)
    return closed(config, layers, h)
