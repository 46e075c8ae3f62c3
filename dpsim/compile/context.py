"""Context parallelism: how ranks that split every sequence between them attend over all of it.

Four ways, by the rules of NVIDIA/TransformerEngine d0067d0d (2.20.0.dev0)
transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py, which carries out
`cp_comm_type` of NVIDIA/Megatron-LM d98e8a64 (0.20.0) megatron/core/transformer/
transformer_config.py.  With c ranks, queries of Q and keys and values of K bytes on a rank:

* `ring` (p2p; Liu et al., arXiv:2310.01889).  Keys and values go from neighbour to neighbour, c - 1
  times K, each time beside the attention over the block that is there.  Backward passes them round
  again, and their gradients with them, as wide as they are: K in the first post, 2 K in each
  between, K in the last, 2 (c - 1) K in c posts, each beside the attention over one block
  (AttnFuncWithCPAndKVP2P; 8-bit attention, which sums gradients by an all-to-all, is not played).
* `all_gather` (Llama Team, arXiv:2407.21783, section 3.3.2).  Keys and values are gathered before
  attention, one collective each; backward gathers them again and reduce-scatters their gradients.
  Nothing runs beside them (AttnFuncWithCPAndKVAllGather).
* `ulysses` (a2a; Jacobs et al., arXiv:2309.14509).  All-to-alls turn parts of the sequence with all
  heads into all of it with some heads: of queries, keys, values, and back of the output; backward
  does the same with their gradients.  Heads have to divide.  Nothing runs beside them but the
  reordering of the tensor before (AttnFuncWithCPAndQKVOA2A).
* `hierarchical` (a2a+p2p; Gu et al., LoongTrain, arXiv:2406.18485).  All-to-alls among `inside`
  neighbours, a ring across them.

Strategies of torch's own play the first two by torch 2.13's rules, torch/distributed/tensor/
experimental/_context_parallel/_attention.py (`rotate_method` "alltoall" and "allgather"):

* Forward, a ring is as above; a gather is one collective of keys and values together, beside the
  attention over a rank's own block, the first.
* Backward moves keys and values as forward does.  Gradients go round in fp32 whatever the method,
  c times: each is posted behind a block, and awaited behind the next one's attention; beside the
  last, which brings them home, nothing runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Literal, NamedTuple

from dpsim.collectives import SHIFT
from dpsim.compile.groups import Partition
from dpsim.compile.job import Job
from dpsim.core.dtypes import DTYPE_BYTES, working_bytes
from dpsim.core.lean import dataclass
from dpsim.core.record import Count, Flag, Refused, record
from dpsim.models import AttentionWork, Layer, Model
from dpsim.models.context_split import context_part
from dpsim.models.recomputing import Recompute, done_again

#: names of the groups, and of the communicators
CONTEXT, NEAR, FAR = "context", "context inside", "context across"
ContextKind = Literal["ring", "all_gather", "ulysses", "hierarchical"]


@record
class Context:
    """How ranks that split every sequence (`parallel.context`) attend over all of it.

    kind     `ring`: keys and values go round, beside attention (Megatron's `p2p`, torch's
             `alltoall`); `all_gather`: they are gathered first; `ulysses`: all-to-alls split heads
             instead (`a2a`); `hierarchical`: all-to-alls among neighbours, a ring across them
             (`a2a+p2p`)
    balance  `head_tail`: each rank has a stretch from either end of a sequence, so that causal work
             is equal; `none`: one stretch, and all wait for the last rank
    inside   neighbours of `hierarchical`; left out: those of a node, as far as heads divide
    copied_keys  heads of queries that share keys and values have a copy each, which goes round
             too, as in models that repeat them before attention (pytorch/torchtitan at 9dec370,
             `torchtitan/models/llama/model.py`, repeat_kv)
    """

    kind: ContextKind = "ring"
    balance: Literal["head_tail", "none"] = "head_tail"
    inside: Count | None = None
    copied_keys: Flag = False

    def __post_init__(self) -> None:
        if self.inside is not None and self.kind != "hierarchical":
            raise Refused("needs kind: hierarchical", ("inside",))


class PassPost(NamedTuple):
    """Equal collectives of a pass: so many, one after the other, each of `bytes`, all of them
    beside `beside` seconds of its work; `last`: behind it, with nothing left beside them."""

    operation: str
    group: str
    bytes: float
    repeats: int
    beside: float = 0.0
    last: bool = False


@dataclass(frozen=True)
class Splitting:
    """Sequences that `ranks` ranks split, `near` of them by heads; `torch`: by torch's rules."""

    way: Context
    ranks: int
    near: int = 1
    torch: bool = False

    @property
    def far(self) -> int:
        """Ranks that tokens are split over while attention runs."""
        return self.ranks // self.near

    def part(self, model: Model) -> Model:
        """One rank's share of `model`; the slowest one's, where they differ."""
        uneven = self.far if self.way.balance == "none" else 1
        gathered = {"all_gather": self.ranks, "ring": 2.0}.get(self.way.kind, 1.0)
        return context_part(model, self.ranks, uneven, gathered)

    # -- who takes part -------------------------------------------------------------------------

    def groups(self, among: Partition) -> dict[str, Partition]:
        """The groups that exchange something, of the `among` that split sequences."""
        if self.way.kind != "hierarchical":
            return {CONTEXT: among}
        found: dict[str, Partition] = {}
        if self.near > 1:
            found[NEAR] = tuple(
                group[k : k + self.near] for group in among for k in range(0, self.ranks, self.near)
            )
        if self.far > 1:
            found[FAR] = tuple(group[k :: self.near] for group in among for k in range(self.near))
        return found

    # -- what they exchange ---------------------------------------------------------------------

    def _bytes(self, work: AttentionWork, samples: float, width: int) -> tuple[float, float]:
        """Bytes of queries, and of keys and values, of a rank."""
        each = samples * (width if work.width is None else work.width)
        keys = work.keys
        if self.way.copied_keys and work.key_heads:
            # where more ranks split heads than there are of keys, queries of fewer share one
            copies = keys * work.heads / work.key_heads
            keys = max(keys, min(copies, 2.0 * work.queries))
        return each * work.queries, each * keys

    def forward(self, work: AttentionWork, samples: float, seconds: float, width: int) -> Posts:
        """Of a layer's pass that takes `seconds`, elements being `width` bytes wide."""
        queries, keys = self._bytes(work, samples, width)
        if self.way.kind == "all_gather" and self.torch:
            first = seconds * work.share * self._first(work)
            return (PassPost("all_gather", CONTEXT, self.ranks * keys, 1, first),)
        if self.way.kind == "all_gather":
            return (PassPost("all_gather", CONTEXT, self.ranks * keys / 2, 2),)
        found = self._turned(queries, keys)
        if self.far > 1:
            hidden = seconds * work.share * self._before_last(work)
            found += (PassPost(SHIFT, self._across, keys, self.far - 1, hidden),)
        return found

    def backward(self, work: AttentionWork, samples: float, seconds: float, width: int) -> Posts:
        """The same of its backward."""
        queries, keys = self._bytes(work, samples, width)
        if self.torch and self.way.kind in ("ring", "all_gather"):
            return self._torch_backward(work, keys, seconds * work.share, width)
        if self.way.kind == "all_gather":
            whole = self.ranks * keys / 2
            return (
                PassPost("all_gather", CONTEXT, whole, 2),
                PassPost("reduce_scatter", CONTEXT, whole, 2),
            )
        found = self._turned(queries, keys)
        if self.far > 1:
            each = 2.0 * (self.far - 1) * keys / self.far
            hidden = seconds * work.share
            found += (PassPost(SHIFT, self._across, each, self.far, hidden),)
        return found

    def _torch_backward(
        self, work: AttentionWork, keys: float, attention: float, width: int
    ) -> Posts:
        """Keys and values again, and their gradients in fp32 until they are home.

        In a ring both are beside the same attention: each has its part of it by bytes.
        """
        wide = DTYPE_BYTES["fp32"] / width
        if self.way.kind == "ring":
            first = attention / (1.0 + wide)
            again = PassPost(SHIFT, CONTEXT, keys, self.ranks - 1, first)
        else:
            first = attention * self._first(work)
            again = PassPost("all_gather", CONTEXT, self.ranks * keys, 1, first)
        rest = attention - first
        return (
            again,
            PassPost(SHIFT, CONTEXT, wide * keys, self.ranks - 1, rest),
            PassPost(SHIFT, CONTEXT, wide * keys, 1, last=True),
        )

    def _first(self, work: AttentionWork) -> float:
        """The share of attention that is over a rank's own block; of causal work that is not
        balanced half a block, of the slowest rank's c - 1/2."""
        uneven = self.way.balance == "none" and work.causal
        return 1.0 / (2.0 * self.ranks - 1.0) if uneven else 1.0 / self.ranks

    @property
    def _across(self) -> str:
        return FAR if self.way.kind == "hierarchical" else CONTEXT

    def _before_last(self, work: AttentionWork) -> float:
        """The share of attention that is over all blocks but the last to come.  Of causal work that
        is not balanced the slowest rank has half a block first, of its own tokens."""
        if self.way.balance == "none" and work.causal:
            return (2.0 * self.far - 3.0) / (2.0 * self.far - 1.0)
        return (self.far - 1.0) / self.far

    def _turned(self, queries: float, keys: float) -> Posts:
        """All-to-alls of queries and output, and of keys and values."""
        if self.near == 1:
            return ()
        group = NEAR if self.way.kind == "hierarchical" else CONTEXT
        return (
            PassPost("all_to_all", group, queries, 2),
            PassPost("all_to_all", group, keys / 2, 2),
        )


Posts = tuple[PassPost, ...]


def splitting(
    way: Context, model: Model, ranks: int, tensor: int, adjacent: int | None, *, torch: bool
) -> Splitting:
    """How `ranks` ranks split the sequences of `model`, whose heads `tensor` ranks share out
    already; `adjacent` of them lie in one node (None: there are no nodes); `torch`: by torch's
    rules, where it has any.

    Raises Refused, with what would work, where its attention cannot be split so.
    """
    _accept_model(model)
    _accept_length(model, ranks, way)
    layers = [layer for layer in model.layers if layer.attended is not None]
    if way.kind in ("ring", "hierarchical") and any(_work(layer).window for layer in layers):
        raise Refused(
            f"tokens of {model.name} look back at a window only, which {way.kind} does not pass "
            "round; all_gather and ulysses are accepted",
            ("context", "kind"),
        )
    if way.kind == "ulysses":
        near = ranks
    elif way.kind == "hierarchical":
        near = _near(way, layers, ranks, tensor, adjacent)
    else:
        near = 1
    for layer in layers:
        _accept_heads(layer, near, tensor, way)
    return Splitting(way, ranks, near, torch)


def _accept_model(model: Model) -> None:
    """Refuse models of which nobody knows what ranks that split a sequence exchange."""
    where = ("parallel", "context")
    if not any(layer.attended or layer.scan for layer in model.layers):
        timed = any(layer.forward is not None for layer in model.layers)
        message = f"{model.name} is not split: context parallelism is modelled for language models"
        if timed:
            message = (
                "no layer says what ranks that split a sequence exchange; give one "
                "attention: {queries: …, keys: …}"
            )
        raise Refused(message, where)
    if any(layer.scan for layer in model.layers):
        message = f"layers of {model.name} hand a state from token to token, which is not split"
        raise Refused(f"{message}; 1 is accepted", where)
    crossed = any(layer.attended and layer.attended.crossed for layer in model.layers)
    if crossed or model.sample == "image":
        what = "attend over another sequence" if crossed else "are of images"
        message = f"layers of {model.name} {what}, which is not split; 1 is accepted"
        raise Refused(message, where)


def _accept_length(model: Model, ranks: int, way: Context) -> None:
    """Refuse sequences that do not split into equal stretches, two for each rank where these are
    balanced (Megatron-LM megatron/training/arguments.py asserts it of `seq_length`, torch's
    _HeadTailLoadBalancer of its own)."""
    each = 2 if way.balance == "head_tail" else 1
    if model.tokens == 1 or model.tokens % (each * ranks) == 0:  # 1: layers of a toy
        return
    fits = [n for n in range(1, ranks) if model.tokens % (each * n) == 0]
    shown = ", ".join(map(str, fits[-4:])) or "none"
    two = "two for each rank (context.balance: head_tail)" if each == 2 else "one for each rank"
    raise Refused(
        f"sequences of {model.tokens} tokens do not split into {each * ranks} equal stretches, "
        f"{two}; {shown} would, or a model.sequence_length that {each * ranks} divides",
        ("parallel", "context"),
    )


def _near(
    way: Context, layers: Sequence[Layer], ranks: int, tensor: int, adjacent: int | None
) -> int:
    """Ranks that split heads in a hierarchy: as asked, else the most of a node that can; 1
    where heads divide over no more."""
    if way.inside is not None:
        if ranks % way.inside:
            fitting = ", ".join(str(n) for n in range(1, ranks + 1) if ranks % n == 0)
            message = f"{way.inside} does not divide context, {ranks}; {fitting} would"
            raise Refused(message, ("context", "inside"))
        return way.inside
    room = min(ranks, max(adjacent or 1, 1))
    fits = (n for n in range(room, 1, -1) if ranks % n == 0)
    return next((n for n in fits if all(_divides(layer, n, tensor) for layer in layers)), 1)


def _divides(layer: Layer, near: int, tensor: int) -> bool:
    work = _work(layer)
    return all(heads % (near * tensor) == 0 for heads in (work.heads, work.key_heads) if heads)


def _accept_heads(layer: Layer, near: int, tensor: int, way: Context) -> None:
    """Refuse where heads do not divide (TransformerEngine asserts it of both)."""
    if near == 1 or _divides(layer, near, tensor):
        return
    work = _work(layer)
    least = min(heads for heads in (work.heads, work.key_heads) if heads)
    others = (n for n in range(2, least + 1) if _divides(layer, n, tensor))
    fitting = ", ".join(map(str, (1, *others)))
    split = f", of which {tensor} tensor ranks have a part each," if tensor > 1 else ""
    raise Refused(
        f"{work.heads} heads of queries and {work.key_heads} of keys{split} do not split over "
        f"{near} ranks; {fitting} would, or kind: ring",
        ("context", "inside") if way.kind == "hierarchical" else ("parallel", "context"),
    )


def _work(layer: Layer) -> AttentionWork:
    assert layer.attended is not None
    return layer.attended


@dataclass(eq=False)
class Passes:
    """What is exchanged in whole passes through layers, of micro-batches alike; `recompute`:
    layers that backward computes again exchange again."""

    recompute: Recompute
    known: dict[object, Posts] = field(default_factory=dict, init=False)

    def of(self, job: Job, layers: range | tuple[int, ...], kind: str) -> Posts:
        """Of these layers of a stage in a pass of `kind` ("F", "B", "I", "W")."""
        key = job.stage, layers, kind
        if key not in self.known:
            found = (post for i in layers for post in self._of_layer(job, i, kind))
            self.known[key] = together(found)
        return self.known[key]

    def _of_layer(self, job: Job, number: int, kind: str) -> Posts:
        raise NotImplementedError


@dataclass(eq=False)
class ContextPasses(Passes):
    """The exchanges that attention takes."""

    splitting: Splitting

    def _of_layer(self, job: Job, number: int, kind: str) -> Posts:
        """Gradients of weights need none; a block that is computed again attends again."""
        layer, times = job.model.layers[number], job.times[number]
        work = layer.attended
        if work is None or kind == "W":
            return ()
        own, width = self.splitting, working_bytes(job.precision.compute)
        ahead = own.forward(work, job.samples, times.forward, width)
        if kind == "F":
            return ahead
        again = done_again(layer, self.recompute)
        back = max(times.backward - times.again, 0.0)
        return ahead * again + own.backward(work, job.samples, back, width)


def together(posts: Iterable[PassPost]) -> Posts:
    """Posts that are alike as one."""
    found: dict[tuple[str, str, float, bool], PassPost] = {}
    for post in posts:
        key = post.operation, post.group, post.bytes, post.last
        known = found.get(key)
        found[key] = post if known is None else known._replace(
            repeats=known.repeats + post.repeats, beside=known.beside + post.beside
        )  # fmt: skip
    return tuple(found.values())


def hidden(posts: Sequence[PassPost], seconds: float) -> tuple[float, list[float]]:
    """What of a pass of `seconds` runs alone, and beside each of `posts`: never more than it is."""
    wanted = sum(post.beside for post in posts)
    share = min(1.0, seconds / wanted) if wanted else 0.0
    beside = [post.beside * share for post in posts]
    return max(seconds - sum(beside), 0.0), beside
