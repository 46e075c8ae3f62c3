"""Words for what is trained: models, their experts, slices of TPUs and formats of few bits (see
`dpsim.accuracy.words`)."""

from __future__ import annotations

import re

from dpsim.accuracy.rules import KeyRule, Named, Words
from dpsim.core.record import Count, Text, record


@record
class SparseFamily(Named):
    """A family whose blocks may have experts in the place of their feed-forward part, with gates:
    tokens that it knows, the width of an expert over the model's, and queries that share a key."""

    name: Text
    vocabulary: Count
    wide: float
    queries: Count


@record
class ExpertWords:
    """How experts are shared out among ranks, and how tokens are routed to them."""

    parallel: Words
    named: Words
    denied: Words
    routing: tuple[KeyRule, ...]
    capacity: Words
    apart: Words


@record
class SliceWords:
    """Slices of TPUs: their number, what is none, the chips of each, a single one, several, and
    that they are replicas of what each holds."""

    counted: Words
    odd: Words
    sized: Words
    one: Words
    several: Words
    replicas: Words


@record
class FewBitsWords:
    """Formats of 8 and 4 bits: that they are denied, or several, and blocks that stay in 16."""

    aside: Words
    names: dict[str, Text]
    format: Words
    denied: Words
    several: Words
    alternatives: Words
    wide: Words
    unread: Words


@record
class CountedModel(Named):
    """A model whose parameters no table needs to state, in millions, by its words; not with those
    of `unless`."""

    millions: float
    unless: Words | None = None


@record
class ModelWords:
    """Names of models, and what tells how many parameters and which samples they have."""

    images: tuple[KeyRule, ...]
    language: tuple[KeyRule, ...]
    behind: tuple[KeyRule, ...]
    sequences: Words
    no_images: Words
    no_texts: Words
    other_transformers: Words
    in_short: dict[str, str]
    experts: Words
    sparse: tuple[KeyRule, ...]
    sparse_families: tuple[SparseFamily, ...]
    routed: Words
    padded: Words
    adapted: Words
    adapted_alone: Words
    adapted_size: Words
    whole: Words
    lora: Words
    adapted_bits: dict[str, Words]
    larger: Words
    around: Words
    sized: Words
    cut_to: Words
    several: Words
    not_whole: Words
    adapter_rank: Words
    adapter_targets: Words
    adapter_target: Words
    pixels: Words
    pixels_behind: Words
    pixels_alone: Words
    pixels_oblong: Words
    pixels_unclear: Words
    everywhere: Words
    not_partly: Words
    partly: Words
    left_out: Words
    tokens_left: float
    bins: Words
    shaped: Words
    shape: Words
    shape_denied: Words
    shape_parts: dict[str, Words]
    shape_settings: dict[str, Words]
    shape_none: Words
    shape_families: tuple[KeyRule, ...]
    shape_bundled: dict[str, tuple[int, int, int]]
    tokens_known: Words
    size: Words
    millions: dict[str, float]
    lengths: dict[str, Words]
    decoders: Words
    counted: tuple[CountedModel, ...]

    def in_letters(self, name: str) -> str:
        """`name` as models are called: without what their letters stand for."""
        plain = name.lower().strip()
        for long, short in self.in_short.items():
            plain = re.sub(long, short, plain)
        return plain
