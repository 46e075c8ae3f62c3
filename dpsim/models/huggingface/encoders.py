"""BERT and what descends from it: RoBERTa (XLM-RoBERTa, CamemBERT), ELECTRA, DistilBERT, ALBERT
and DeBERTa; and the heads that BERT's pre-training tasks put behind an encoder.

Names and order of registration follow huggingface/transformers `modeling_FAMILY.py`.  What stands
behind the encoder is the scenario's `head`: a pooler where the family has one (`encoder`, which is
also what is taken without the key), the head of masked words (`mlm`), that and the pooler with next
sentences (`pretraining`), the same of which masked words alone pass the former
(`pretraining_masked`), what ELECTRA's pre-training has (`replaced_tokens`), or a classifier of two
classes (`classification`).

* head of masked words: h e + e, 2 e of its norm and V of a bias (e: width of the embedding), its
  matrix being that of the embedding; next sentences: 2 h + 2; classification: of BERT 2 h + 2
  behind the pooler, of the others h^2 + h + 2 h + 2 in the pooler's place
* RoBERTa (Liu et al., arXiv:1907.11692) counts as BERT; two of its positions are never used
* DistilBERT (Sanh et al., arXiv:1910.01108): no token types and no pooler
* ELECTRA (Clark et al., arXiv:2003.10555): embeddings of width e and e h + h to widen them, no
  pooler
* its pre-training: a generator of as many blocks that is a third as wide where the discriminator is
  768 wide, else a fourth (table 6), of heads of 64; it uses the discriminator's embeddings, which
  g h + g narrow, and predicts the masked words; behind the discriminator h^2 + h + h + 1 tell
  whether a token was replaced (google-research/electra, run_pretraining.py)
* ALBERT (Lan et al., arXiv:1909.11942): as ELECTRA; the blocks of a group are one set of tensors
  that is used again and again, whose gradients are final when its first use has been gone back
  through
* DeBERTa-v2 and v3 (He et al., arXiv:2006.03654): 2 B h of relative positions and their norm; a
  block multiplies these with its matrices of k and q too, and scores get two more terms of s x 2 B
  pairs each, gathered to s x s, so they are stored whatever kernels there are
"""

from __future__ import annotations

import math
from dataclasses import replace

from dpsim.core.record import Refused
from dpsim.models import Layer, Tensor
from dpsim.models.huggingface.config import Config
from dpsim.models.huggingface.tensors import Parts, linear, norm
from dpsim.models.layer_sum import LayerSum
from dpsim.models.streams import CodedKernels
from dpsim.models.transformer_layers import Block, attention, embedding, head, mlp, pooler

HEADS = (
    "encoder", "mlm", "pretraining", "pretraining_masked", "replaced_tokens", "classification",
)  # fmt: skip
#: share of the tokens that BERT's pretraining masks (Devlin et al., arXiv:1810.04805, section 3.1):
#: at most 20 of 128, 77 of 512 (google-research/bert, `max_predictions_per_seq`)
_MASKED = 0.15
#: width of ELECTRA's base model, and the share that larger ones mask (Clark et al.,
#: arXiv:2003.10555, table 6)
_BASE, _MASKED_LARGE = 768, 0.25


def behind(
    config: Config, h: int, table: str, width: int, vocabulary: int,
    *, pooled: str = "", apart: str = "",
) -> list[Layer]:  # fmt: skip
    """What the scenario's `head` puts behind an encoder of width `h` whose token table `table` is
    (`vocabulary`, `width`); `pooled` names its pooler, if it has one, `apart` that of its
    classifier, where that is another."""
    kind, s = config.head or "encoder", config.tokens
    if kind not in HEADS:
        raise Refused(f"{kind[:60]!r} is none of {', '.join(HEADS)}", ("head",))
    if kind == "replaced_tokens":
        return _replaced(config, h, table, width, vocabulary)
    found: list[Layer] = []
    if pooled and kind != "mlm":
        pooled = apart if apart and kind == "classification" else pooled
        found.append(pooler(pooled, h, linear(f"{pooled}.dense", h, h)))
    if kind in ("mlm", "pretraining", "pretraining_masked"):
        seen = math.ceil(_MASKED * s) if kind == "pretraining_masked" else s
        found += _masked_words(h, table, width, vocabulary, seen)
    if kind.startswith("pretraining"):
        found.append(_classes("cls.seq_relationship", h))
    if kind == "classification":
        inside = [] if pooled else [pooler("pre_classifier", h, linear("pre_classifier", h, h))]
        found += [*inside, _classes("classifier", h)]
    return found


def _masked_words(h: int, table: str, width: int, vocabulary: int, tokens: int) -> list[Layer]:
    """A matrix, an activation and a norm, and the product with the token table, for `tokens` tokens
    of a sequence."""
    turned = LayerSum("cls.transform")
    turned.own("cls.predictions.bias", vocabulary)
    turned.matrix("cls.predictions.transform.dense", tokens, width, h)
    turned.activation(tokens * width).norm("cls.predictions.norm", tokens * width, width)
    words = head("cls.decoder", width, vocabulary, tokens, tied=table)
    return [turned.layer(read=tokens * h, wrote=tokens * width), words]


def _replaced(config: Config, h: int, table: str, width: int, vocabulary: int) -> list[Layer]:
    """ELECTRA's discriminator head, and its generator, which words that are masked alone leave."""
    s, g = config.tokens, round(h / (3 if h == _BASE else 4))
    heads = max(g // 64, 1)
    masked = _MASKED_LARGE if h > _BASE else _MASKED
    if g % heads:
        raise Refused(f"a generator {g:,} wide has no heads of 64", ("head",))
    told = LayerSum("discriminator_predictions")
    told.matrix("discriminator_predictions.dense", s, h, h).activation(s * h)
    told.matrix("discriminator_predictions.dense_prediction", s, 1, h)
    narrowed = LayerSum("generator.embeddings_project")
    narrowed.matrix("generator.embeddings_project", s, g, width)
    own = replace(
        _block(config), hidden=g, heads=heads, kv_heads=heads, head_dim=g // heads, ffn=4 * g
    )
    made = [told.layer(read=s * h, wrote=s), narrowed.layer(read=s * width, wrote=s * g)]
    for i in range(config.layers("num_hidden_layers")):
        made += _block_layers(own, f"generator.layer.{i}", s)
    return [*made, *_masked_words(g, table, width, vocabulary, math.ceil(masked * s))]


def _classes(name: str, h: int) -> Layer:
    return LayerSum(name).matrix(name, 1, 2, h).layer(read=h, wrote=2)


# BERT, RoBERTa and ELECTRA ------------------------------------------------------------------------


def bert(config: Config) -> Parts:
    """BERT (Devlin et al., arXiv:1810.04805)."""
    config.size("type_vocab_size")  # of BERT alone every configuration says it
    return _bert_like(config, spare=0, pooled="pooler")


def roberta(config: Config) -> Parts:
    """RoBERTa: BERT with other words and positions, the first two of which are never used."""
    return _bert_like(config, spare=2, pooled="pooler", apart="classifier.pooled")


def electra(config: Config) -> Parts:
    """ELECTRA's discriminator or generator: embeddings that are widened, and no pooler."""
    width = config.size("embedding_size", default=config.size("hidden_size"))
    return _bert_like(config, spare=0, pooled="", width=width)


def _bert_like(
    config: Config, *, spare: int, pooled: str, apart: str = "", width: int | None = None
) -> Parts:
    block, s = _block(config), config.tokens
    h, width = block.hidden, width or block.hidden
    vocabulary, tables = _tables(config, width, spare)
    if width != h:
        tables = (*tables, *linear("embeddings_project", h, width))
    name = "embeddings"
    layers = [embedding(name, h, tables, s, dropout=block.dropout, lookups=3)]
    for i in range(config.layers("num_hidden_layers")):
        layers += _block_layers(block, f"encoder.layer.{i}", s)
    last = behind(config, h, name, width, vocabulary, pooled=pooled, apart=apart)
    return (*layers, *last), ()


def _block(config: Config) -> Block:
    config.require("position_embedding_type", "absolute")
    config.require("add_cross_attention", False)
    config.require("is_decoder", False)
    h, heads = config.size("hidden_size"), config.size("num_attention_heads")
    d = config.share(h, heads, "hidden_size", "num_attention_heads")
    return Block(
        h, heads, heads, d, config.size("intermediate_size"), causal=False,
        stored=config.stored, wide=config.wide, normed=True,
        dropout=config.dropout("hidden_dropout_prob", 0.1),
        score_dropout=config.dropout("attention_probs_dropout_prob", 0.1),
    )  # fmt: skip


def _tables(config: Config, width: int, spare: int) -> tuple[int, tuple[Tensor, ...]]:
    """The rows of the token table, and the tables and norm of an embedding of `width`."""
    vocabulary, places = config.size("vocab_size"), config.size("max_position_embeddings")
    if config.tokens > places - spare:
        raise Refused(
            f"{config.tokens:,} is beyond the {places - spare:,} learned positions "
            "(max_position_embeddings)",
            ("sequence_length",),
        )
    rows = [("word", vocabulary), ("position", places)]
    if types := config.data.get("type_vocab_size", 2):
        rows.append(("token_type", config.size("type_vocab_size", default=types)))
    tables = tuple(Tensor(f"embeddings.{kind}_embeddings.weight", (n, width)) for kind, n in rows)
    return vocabulary, tables + norm("embeddings.LayerNorm", width)


def _block_layers(block: Block, unit: str, tokens: int) -> list[Layer]:
    """BERT normalises behind each half, so there the norm follows the matrices."""
    h, f = block.hidden, block.ffn
    first: tuple[Tensor, ...] = ()
    for part in ("self.query", "self.key", "self.value", "output.dense"):
        first += linear(f"{unit}.attention.{part}", h, h)
    first += norm(f"{unit}.attention.output.LayerNorm", h)
    second = linear(f"{unit}.intermediate.dense", f, h) + linear(f"{unit}.output.dense", h, f)
    second += norm(f"{unit}.output.LayerNorm", h)
    return [attention(block, unit, first, tokens), mlp(block, unit, second, tokens)]


# DistilBERT --------------------------------------------------------------------------------------


def distilbert(config: Config) -> Parts:
    """DistilBERT: half the blocks of BERT, no token types and no pooler."""
    h, heads = config.size("dim", "hidden_size"), config.size("n_heads", "num_attention_heads")
    d, s = config.share(h, heads, "dim", "n_heads"), config.tokens
    f = config.size("hidden_dim")
    block = Block(
        h, heads, heads, d, f, causal=False, dropout=config.dropout("dropout", 0.1),
        stored=config.stored, wide=config.wide, normed=True,
        score_dropout=config.dropout("attention_dropout", 0.1),
    )  # fmt: skip
    vocabulary, places = config.size("vocab_size"), config.positions("max_position_embeddings")
    tables = (
        Tensor("embeddings.word_embeddings.weight", (vocabulary, h)),
        Tensor("embeddings.position_embeddings.weight", (places, h)),
        *norm("embeddings.LayerNorm", h),
    )
    layers = [embedding("embeddings", h, tables, s, dropout=block.dropout, lookups=2)]
    for i in range(config.layers("n_layers", "num_hidden_layers")):
        unit = f"transformer.layer.{i}"
        first: tuple[Tensor, ...] = ()
        for part in ("q_lin", "k_lin", "v_lin", "out_lin"):
            first += linear(f"{unit}.attention.{part}", h, h)
        first += norm(f"{unit}.sa_layer_norm", h)
        second = linear(f"{unit}.ffn.lin1", f, h) + linear(f"{unit}.ffn.lin2", h, f)
        second += norm(f"{unit}.output_layer_norm", h)
        layers += [attention(block, unit, first, s), mlp(block, unit, second, s)]
    return (*layers, *behind(config, h, "embeddings", h, vocabulary)), ()


# ALBERT ------------------------------------------------------------------------------------------


def albert(config: Config) -> Parts:
    """ALBERT: narrow embeddings, and blocks that share their tensors."""
    config.require("inner_group_num", 1)
    block, s = _block(config), config.tokens
    h, width = block.hidden, config.size("embedding_size", default=128)
    groups = config.size("num_hidden_groups", default=1)
    count = config.layers("num_hidden_layers")
    config.share(count, groups, "num_hidden_layers", "num_hidden_groups")
    vocabulary, tables = _tables(config, width, 0)
    tables += linear("encoder.embedding_project", h, width)
    layers = [embedding("embeddings", h, tables, s, dropout=block.dropout, lookups=3)]
    for i in range(count):
        made = _block_layers(block, f"encoder.layer.{i}", s)
        again = i % (count // groups) > 0
        layers += [replace(layer, tensors=()) for layer in made] if again else made
    return (*layers, *behind(config, h, "embeddings", width, vocabulary, pooled="pooler")), ()


# DeBERTa -----------------------------------------------------------------------------------------


def deberta_v2(config: Config) -> Parts:
    """DeBERTa-v2 and v3, whose attention knows how far apart tokens are."""
    config.require("relative_attention", True)
    config.require("share_att_key", True)
    config.require("conv_kernel_size", 0)
    kinds = config.data.get("pos_att_type") or []
    kinds = kinds.split("|") if isinstance(kinds, str) else kinds
    h, s = config.size("hidden_size"), config.tokens
    block = replace(_block(config), stored=True)
    places = config.size("max_position_embeddings")
    buckets = config.size("position_buckets", default=places)
    vocabulary = config.size("vocab_size")
    tables: tuple[Tensor, ...] = (Tensor("embeddings.word_embeddings.weight", (vocabulary, h)),)
    if config.flag("position_biased_input", True):
        tables += (Tensor("embeddings.position_embeddings.weight", (places, h)),)
    lookups = len(tables)
    tables += norm("embeddings.LayerNorm", h)
    layers = [embedding("embeddings", h, tables, s, dropout=block.dropout, lookups=lookups)]
    terms = sum(kind in ("c2p", "p2c") for kind in kinds)
    more = 2.0 * terms * (2 * buckets * h * h + s * 2 * buckets * h)
    blocks: list[Layer] = []
    for i in range(config.layers("num_hidden_layers")):
        first, second = _block_layers(block, f"encoder.layer.{i}", s)
        blocks += [_relative(first, more, terms * block.heads * float(s) * s), second]
    far = LayerSum("encoder.rel_embeddings").own("encoder.rel_embeddings.weight", 2 * buckets, h)
    far.norm("encoder.LayerNorm", 2 * buckets * h, h)
    table = far.layer(read=0, wrote=2 * buckets * h)
    order = (0, len(blocks) + 1, *range(1, len(blocks) + 1))
    last = behind(config, h, "embeddings", h, vocabulary)
    count = len(order)
    return (*layers, *blocks, table, *last), (*order, *range(count, count + len(last)))


def _relative(layer: Layer, flop: float, gathered: float) -> Layer:
    """An attention whose scores get terms of relative positions: `flop` more, and `gathered`
    elements that are gathered from them and added."""
    return replace(
        layer,
        forward_flop=layer.forward_flop + flop,
        backward_flop=layer.backward_flop + 2 * flop,
        forward_bytes=layer.forward_bytes + 5 * gathered,
        backward_bytes=layer.backward_bytes + 10 * gathered,
        kernels=layer.kernels + 4,
        eager_kernels=None,
        coded_kernels=CodedKernels(),
        compiled_kernels=None,
    )
