"""A transformer given by its dimensions, without a configuration file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from dpsim.core.record import Check, Flag, Refused, record
from dpsim.models import Model
from dpsim.models.architectures import Architecture
from dpsim.models.huggingface import Attention, read_config

Size = Annotated[int, Check(1, 10**7)]


@record
class Transformer(Architecture):
    """A transformer of one of three families, given by its dimensions.

    family           gpt2 (decoder with learned positions), bert (encoder) or llama (gated, rotary)
    hidden, blocks, heads   width, blocks and attention heads
    feed_forward     width of the feed-forward part; 4 x hidden without it
    kv_heads         key/value heads (llama); as many as heads without it
    vocabulary       rows of the embedding table
    tied             the head uses the embedding table (llama; gpt2's does)
    experts          experts in the place of every feed-forward part (llama), each `feed_forward`
                     wide, as Mixtral has them; 0: none
    experts_per_token   how many of them a token takes
    sequence_length  tokens per sample
    attention        as of a Hugging Face configuration: flash, math (the scores of every pair of
                     tokens are stored), eager, sdpa, efficient or flash3
    """

    hidden: Size
    blocks: Annotated[int, Check(1, 10_000)]
    heads: Size
    sequence_length: Size
    family: Literal["gpt2", "bert", "llama"] = "gpt2"
    feed_forward: Size | None = None
    kv_heads: Size | None = None
    vocabulary: Size = 50257
    tied: Flag = False
    experts: Annotated[int, Check(0, 10**6)] = 0
    experts_per_token: Annotated[int, Check(1, 10**6)] = 1
    attention: Attention = "flash"

    def __post_init__(self) -> None:
        if self.experts and self.family != "llama":
            raise Refused(f"{self.family} has none here; llama may have", ("experts",))
        if self.kv_heads not in (None, self.heads) and self.family != "llama":
            message = f"{self.family} has a key and a value for each of its {self.heads} heads here"
            raise Refused(f"{message}; llama may share them", ("kv_heads",))
        if self.experts_per_token > max(self.experts, 1):
            message = f"{self.experts_per_token} of {self.experts} experts"
            raise Refused(message, ("experts_per_token",))

    def model(self) -> Model:
        """The layers of this transformer.  Raises Refused where the dimensions do not divide."""
        return read_config(
            self._config(),
            sequence_length=self.sequence_length,
            name=f"{self.family} h{self.hidden} L{self.blocks}",
            attention=self.attention,
        )

    def _config(self) -> dict[str, Any]:
        """These dimensions under the keys of a Hugging Face configuration."""
        wide = self.feed_forward or 4 * self.hidden
        positions = max(self.sequence_length, 1024)
        if self.family == "gpt2":
            return {
                "model_type": "gpt2",
                "n_embd": self.hidden,
                "n_layer": self.blocks,
                "n_head": self.heads,
                "n_inner": wide,
                "n_positions": positions,
                "vocab_size": self.vocabulary,
            }
        config = {
            "model_type": self.family,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.blocks,
            "num_attention_heads": self.heads,
            "intermediate_size": wide,
            "max_position_embeddings": positions,
            "vocab_size": self.vocabulary,
        }
        if self.family == "llama":
            config["num_key_value_heads"] = self.kv_heads or self.heads
            config["tie_word_embeddings"] = self.tied
            config |= self._sparse()
        else:
            config["type_vocab_size"] = 2
        return config

    def _sparse(self) -> dict[str, Any]:
        """What a configuration of Llama with experts, which is Mixtral's, says otherwise."""
        if not self.experts:
            return {}
        return {
            "model_type": "mixtral",
            "num_local_experts": self.experts,
            "num_experts_per_tok": self.experts_per_token,
        }
