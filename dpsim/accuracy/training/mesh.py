"""From a row of a table of training runs to its mesh: tensor, pipeline, context and data
parallelism.

Columns: `tp`, `pp` and `cp` are the ranks that split layers, the stages of the pipeline, and the
ranks that split sequences, `dp` the replicas; `ep` are the ranks that share experts out, which
multiply nothing.  `batch_per_gpu` is the micro-batch of a replica and
`grad_accum` their number, so that batch_per_gpu x grad_accum x dp is the global batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dpsim.accuracy.rules import told
from dpsim.accuracy.training.degrees import shares_heads
from dpsim.accuracy.training.experts import shared_among
from dpsim.accuracy.training.layouts import layers_of, layout_of, loaded
from dpsim.accuracy.training.models import ModelChoice, blocks_of, modules_of
from dpsim.accuracy.training.strategies import date_of
from dpsim.accuracy.training.table import TrainingRow
from dpsim.accuracy.words import vocabulary
from dpsim.core.record import Refused

#: since this month Megatron-LM sums gradients of inputs beside the products for weights
#: (NVIDIA/Megatron-LM 16c90445e7, async_tensor_model_parallel_allreduce)
_OVERLAPPED = "2021-09"


@dataclass(frozen=True)
class RowMesh:
    """Ranks along the axes of a row's mesh; `corrected` where column dp contradicts the others.

    torch    it is one of torchtitan's
    cut      the batch of a replica is cut into a micro-batch for every stage, and blocks into
             stages as evenly as they go
    expert   ranks that share experts out
    """

    tensor: int
    pipeline: int
    replicas: int
    corrected: bool = False
    context: int = 1
    cut: bool = False
    torch: bool = False
    expert: int = 1

    @property
    def label(self) -> str:
        """What regimes say behind the strategy: "+tp", "+pp", "+tp+pp", "+ep", … or
        nothing."""
        split = "+tp" * (self.tensor > 1) + "+pp" * (self.pipeline > 1)
        return split + "+cp" * (self.context > 1) + "+ep" * (self.expert > 1)

    def data(self, row: TrainingRow, model: ModelChoice, notes: list[str]) -> dict[str, Any]:
        """The sections `parallel` and `schedule` of the scenario of `row` with `model`."""
        found: dict[str, Any] = {}
        if self.label:
            found["parallel"] = {"tensor": self.tensor, "pipeline": self.pipeline}
        if self.tensor > 1:
            found["parallel"] |= _tensor_groups(row)
        if self.expert > 1:
            found["parallel"]["expert"] = self.expert
            found["parallel"] |= self._whole_experts(notes)
        if self.context > 1:
            found["parallel"]["context"] = self.context
            found |= self._attending(row, model, notes)
        if self.pipeline > 1:
            found["schedule"] = self._schedule(row, model, notes)
            found |= self._stages(row, model, found["schedule"].get("chunks", 1), notes)
        if self.corrected:
            notes.append(
                f"dp says {row.count('dp')}, but {row.gpus} GPUs make {self.replicas} replicas of "
                f"{self.tensor * self.pipeline * self.context}"
            )
        return found

    def _whole_experts(self, notes: list[str]) -> dict[str, int]:
        """That tensor ranks have whole experts, where these could not be shared out otherwise."""
        room = self.replicas * self.context
        if room % self.expert == 0 or room * self.tensor % self.expert:
            return {}
        notes.append(
            "tensor ranks are assumed to have whole experts, for ep says more than dp x cp"
        )
        return {"expert_tensor": 1}

    def _schedule(self, row: TrainingRow, model: ModelChoice, notes: list[str]) -> dict[str, Any]:
        """1F1B, which Megatron-LM and DeepSpeed run unless told otherwise; interleaved where the
        row says so, or where its code is known to; chunks of which nothing is said have one
        block, as in 12 of 19 recipes that interleave (A98)."""
        words, plainly = vocabulary().strategies, {"kind": "one_f_one_b"}
        said = f"{row.strategy_words} | {row.text('schedule')}".lower()
        text = words.plain.sub("", said)
        named = next(told(words.schedules, text, row.text), None)
        if named is not None:
            return dict(named[0])
        said_chunks = _chunks_said(text)
        laid_out = self._laid_out(row, said_chunks or 0)
        stated = said_chunks is not None or bool(laid_out)
        chunks = laid_out or said_chunks or 0
        plain = words.one_f_one_b.search(text) or text != said
        woven = words.interleaved.search(text)
        if not stated and (woven or not plain):
            if not (woven or words.unsaid.search(row.text("schedule").lower())):
                message = f"{row.text('schedule')[:60]!r} is not read; 1F1B is, or interleaved"
                raise Refused(message, ("schedule",))
            chunks = self._chunks(row, model)
            if woven and not chunks:
                chunks = self._of_blocks(model, 1)
            if woven and not chunks:
                message = "the chunks of the interleaved pipeline are not known"
                raise Refused(f"{message} ({woven[0]})")
            own = f"interleave {chunks} chunks" if chunks > 1 else "run 1F1B without interleaving"
            notes.append(f"the pipeline is assumed to {own}")
        return {"kind": "interleaved_1f1b", "chunks": chunks} if chunks > 1 else plainly

    def _laid_out(self, row: TrainingRow, chunks: int) -> int:
        """The chunks that the layout of the pipeline of `row` makes, 0 where none is said; Refused
        where those that it says beside it, if any, are others."""
        stages = len(layout_of(row))
        made = stages // self.pipeline
        if stages % self.pipeline or (stages and chunks not in (0, made)):
            told = f"{chunks} chunks of {self.pipeline} ranks" if chunks else f"pp {self.pipeline}"
            raise Refused(f"strategy_detail: a layout of {stages} stages contradicts {told}")
        return made

    def _chunks(self, row: TrainingRow, model: ModelChoice) -> int:
        """The chunks of a stage in NVIDIA's recipes, and in its code for MLPerf, where a row does
        not say; 0 elsewhere.

        Recipes' chunks have one block (A98).  MLPerf's have two, embedding and loss counted where
        the blocks alone do not divide: what its configurations of GPT-3
        (mlcommons/training_results_v4.1, NVIDIA/benchmarks/gpt3/implementations/
        eos_n32_ngc24.09_nemo/, INTERLEAVED_PIPELINE=6 of 8 stages) and of Llama 3.1 405B
        (mlcommons/training_results_v5.1, NVIDIA/benchmarks/llama31_405b/, INTERLEAVED_PIPELINE=8,
        ASYM_PP_EMBED, ASYM_PP_LOSS) say; one submitter has chunks of three, and where a
        configuration says nothing it is one.
        """
        if _submitted(row):
            return self._of_blocks(model, 2)
        recipe = vocabulary().strategies.recipe.search(row.text("schedule").lower())
        return self._of_blocks(model, 1) if recipe else 0

    def _of_blocks(self, model: ModelChoice, each: int) -> int:
        """How many chunks of `each` blocks a rank has; 0 where they are shared out unevenly."""
        blocks, share = blocks_of(model), each * self.pipeline
        counted = next((n for n in (blocks, blocks + 2) if n % share == 0), 0)
        return counted // share if blocks else 0

    def _stages(
        self, row: TrainingRow, model: ModelChoice, chunks: int, notes: list[str]
    ) -> dict[str, Any]:
        """Which blocks a stage holds, where not the same number: those that the row's layout says;
        else embedding and loss, and the modules of multi-token prediction of a model that has
        some, may count as a block each (Megatron-LM,
        megatron/core/transformer/transformer_config.py,
        account_for_embedding_in_pipeline_split and the same of the loss)."""
        if layout := layout_of(row):
            return {"stages": layers_of(layout, loaded(model))}
        blocks, stages = blocks_of(model), self.pipeline * chunks
        further = modules_of(model)
        if blocks and stages == blocks + 2:
            notes.append("embedding and loss are stages of their own")
            return {"stages": layers_of(("E", *"t" * blocks, "L"), loaded(model))}
        if any(blocks % n and (blocks + 2) % n == 0 for n in (self.pipeline, stages)):
            notes.append("embedding and loss count as a block each of their stages")
        elif blocks % stages and further and (blocks + 2 + further) % stages == 0:
            notes.append(
                "embedding, loss and multi-token prediction count as a block each of their stages"
            )
        elif self.cut or vocabulary().strategies.copies_out.search(_framework(row)):
            pass
        elif blocks % stages == 0:
            return {}
        else:
            notes.append("blocks do not make equal stages, and as equal ones as can be are assumed")
        return {"stages": "balanced"}

    def _attending(self, row: TrainingRow, model: ModelChoice, notes: list[str]) -> dict[str, Any]:
        """The section `context`.  torchtitan gathers keys and values unless told otherwise, of as
        many heads as queries have (pytorch/torchtitan at 9dec370, `torchtitan/config_manager.py`,
        context_parallel_rotate_method, and `models/llama/model.py`, repeat_kv).  Windows of
        attention go round no ring (NVIDIA/TransformerEngine,
        transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py takes them
        with all_gather and a2a alone): keys and values are gathered, unless the row says a ring."""
        if self.torch:
            notes.append("keys and values are gathered, a copy for each head of queries")
            return {"context": {"kind": "all_gather", "copied_keys": True}}
        if shares_heads(row):
            notes.append("ranks share sequences, and in attention its heads, by all-to-alls")
            return {"context": {"kind": "ulysses"}}
        ring = vocabulary().strategies.ring.search(row.text("strategy_detail").lower())
        if not ring and _windowed(model):
            notes.append("keys and values are assumed to be gathered, for windows go round no ring")
            return {"context": {"kind": "all_gather"}}
        notes.append("keys and values are assumed to go round a ring")
        return {}

    def micro_batches(self, row: TrainingRow) -> int | None:
        """Micro-batches of a step where `grad_accum` does not say it; None where nothing does.

        Raises Refused where a pipeline needs to know.
        """
        micro, total = row.get("batch_per_gpu"), row.get("global_batch")
        if self.pipeline == 1 and not self.corrected:
            return None
        if not micro or not total:
            raise Refused(
                "a pipeline's micro-batches are not stated: grad_accum, or batch_per_gpu and "
                "global_batch, are missing"
            )
        count = total / (micro * self.replicas)
        if count < 1 or abs(count - round(count)) > 1e-6 * count:
            raise Refused(
                f"global_batch {total:g} is no whole number of micro-batches of {micro:g}"
            )
        return round(count)


def _chunks_said(text: str) -> int | None:
    """The chunks of each rank of a pipeline that `text` says; None where it says none.

    Raises Refused where it says several numbers.
    """
    found = {int(at[1] or at[2]) for at in vocabulary().strategies.chunks.finditer(text)}
    if len(found) > 1:
        counts = " and ".join(map(str, sorted(found)))
        raise Refused(f"strategy: a rank of the pipeline is said to hold {counts} chunks")
    return found.pop() if found else None


def _windowed(model: ModelChoice) -> bool:
    """Whether tokens of some layer look back at a window only."""
    attended = (layer.attended for layer in loaded(model).layers)
    return any(work is not None and work.window for work in attended)


def _framework(row: TrainingRow) -> str:
    return row.text("framework").lower()


def mesh_of(row: TrainingRow) -> RowMesh:
    """The mesh of `row`.  Raises Refused, naming the column, where it is not known or modelled."""
    _require_sizes(row)
    tensor, pipeline, context = row.count("tp"), row.count("pp"), row.count("cp")
    if tensor < 1 or pipeline < 1 or context < 1:
        raise Refused("tp, pp and cp must be at least 1")
    words = vocabulary().strategies
    parts = tensor * pipeline * context
    replicas = row.gpus // parts
    stated = row.count("dp", replicas) if parts > 1 else _plain(row)
    corrected = stated != replicas and bool(row.get("batch_per_gpu") and row.get("global_batch"))
    if replicas < 1 or parts * (replicas if corrected else stated) != row.gpus:
        inside = "tp x pp x cp" if context > 1 else "tp x pp"
        shown, ranks = (f"{inside} x dp", parts * stated) if stated else (inside, parts)
        raise Refused(f"{shown} is {ranks}, which is not the row's {row.gpus} GPUs")
    said = f"{row.text('framework')} {row.text('strategy_detail')}".lower()
    cut = bool(words.torch_mesh.search(said))
    own = RowMesh(tensor, pipeline, replicas, corrected, context, expert=shared_among(row))
    return replace(own, cut=cut and pipeline > 1, torch=cut)


def _tensor_groups(row: TrainingRow) -> dict[str, bool]:
    """What the tensor groups of `row` do, as keys of `parallel`: whether they split sequences too,
    exchange beside computing, and, whatever the strategy, sum gradients beside products."""
    words, own = vocabulary().strategies, _framework(row)
    named = row.text("tensor_groups").lower()
    if words.plain_groups.search(named):
        said = ""
    elif (
        named
        and not words.unsaid.search(named)
        and not any(rule.search(named) for rule in (words.beside_computing, words.sequences))
    ):
        message = f"{named[:60]!r} is not read; tp comm overlap, sequence parallel or plain is"
        raise Refused(message, ("tensor_groups",))
    else:
        said = f"{row.text('strategy_detail').lower()} | {named}"
    beside = bool(words.beside_computing.search(said)) or _submitted(row) or _by_xla(row)
    splitting = (words.torch_mesh, words.splits_sequences, words.sequences)
    found: dict[str, bool] = {}
    if beside or any(rule.search(f"{own} {said}") for rule in splitting):
        found = {"sequence_parallel": True, "async_tensor_parallel": beside}
    over = words.overlapped_sums.search(own) and date_of(row) >= _OVERLAPPED
    return found | {"overlap_tensor_gradients": bool(over)}


def _by_xla(row: TrainingRow) -> bool:
    """Whether XLA makes the exchanges of tensor ranks of `row`, beside products that it cuts (Wang
    et al., ASPLOS 2023), where nothing else is said and they share sequences equally."""
    chips = vocabulary().tpus.search(row.text("accelerator").lower())
    shared = row.get("seq_len") and not row.count("seq_len") % row.count("tp")
    return bool(chips and shared and not row.text("tensor_groups"))


def _require_sizes(row: TrainingRow) -> None:
    """Refuse a mesh of which the words say that there is one, and nothing how large it is; words
    beside the strategy tell it only where no size is stated."""
    words = vocabulary().strategies
    if row.gpus == 1:
        return
    stated = any(row.text(axis) for axis in ("tp", "pp", "cp"))
    said = row.text("strategy").lower() if stated else row.strategy_words
    said = words.not_shared.sub("", said)
    for axis, name in (("tp", "tensor"), ("pp", "pipeline"), ("cp", "context")):
        if not row.text(axis) and words.shares[axis].search(said):
            told = words.shares[axis].search(row.text("strategy").lower())
            shown = row.text("strategy" if told else "strategy_detail")[:60]
            raise Refused(f"{axis}: {name} parallelism of unknown size ({shown})")
    if words.in_some_way.search(said) and not stated:
        raise Refused(f"tp, pp: {row.text('strategy')[:60]!r} does not say how large they are")


def _plain(row: TrainingRow) -> int:
    """Replicas of a row whose mesh is data parallelism alone, as `dp` says them: where parameters
    or experts are shared out, that may be how often all of them are held, and every GPU is a
    replica."""
    stated = row.count("dp", row.gpus)
    sharded = vocabulary().strategies.shared_out.search(row.text("strategy").lower())
    return row.gpus if sharded and stated >= 1 and row.gpus % stated == 0 else stated


def _submitted(row: TrainingRow) -> bool:
    """Whether it is of a submission to MLPerf that ran NVIDIA's code."""
    words = vocabulary().strategies
    submitted = words.submitted.search(row.text("source_repo"))
    return bool(submitted and words.submitted_by.search(_framework(row)))
