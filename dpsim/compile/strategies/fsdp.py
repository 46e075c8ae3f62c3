"""PyTorch FSDP2 (``fully_shard``).

Rules read in pytorch/pytorch torch/distributed/fsdp/_fully_shard/ (_fsdp_param_group.py,
_fsdp_state.py, _fsdp_collectives.py, _fsdp_init.py; 2.13-2.15).  One parameter group per unit, plus
a root group for what no unit holds:

* Forward: the root's gather comes first.  Gather group i, wait, copy out, compute, free.  The
  gather of group i+1 may start no earlier than the copy-out of group i-1 (two buffers), so at most
  two gathers run ahead.
* Backward: the gather of the next group is issued when the backward of this one begins; after a
  group's backward the compute stream waits until at most `reduce_scatter_max_input_buffers` (1)
  reduce-scatter inputs are alive, copies in, and reduce-scatters.
* The root stays gathered after forward.  It is reduced when backward has ended, and after it a
  unit whose input needs no gradient.
* All-gathers and reduce-scatters share one communicator and run in issue order.
* The first gather of a step waits for the previous optimizer step.
* Hybrid sharding: a reduce-scatter is followed by an all-reduce of the shard over the replicas, on
  a communicator of its own.
* Resharding to fewer ranks: after forward a rank copies its larger shard; backward gathers over
  those ranks only, on their communicator.
* Experts that are shared out are a second group of their unit, over the ranks that hold the same
  ones, and units are gathered one ahead explicitly (pytorch/torchtitan b5bcd76c
  torchtitan/distributed/fsdp.py, apply_fsdp_to_decoder): the last group of a unit is reduced first,
  and waits alone for earlier reduce-scatters.  Where there are more ranks than experts, they are
  split along the second dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Annotated

from dpsim.compile.groups import Partition, consecutive
from dpsim.compile.held import Held
from dpsim.compile.job import Job, state_bytes, summed
from dpsim.compile.program import Program
from dpsim.compile.strategies import TORCH, Exchange, Lighter, Strategy, Torch, offloading
from dpsim.compile.strategies._fsdp2_step import AFTER, Fsdp2Step, Group
from dpsim.compile.strategies._fsdp_held import Sharding, held
from dpsim.compile.strategies._units import Sharers, WrappedUnit, hybrid, shards_of, units_of
from dpsim.core.dtypes import DTYPE_BYTES, QUANTISED, rest_of, stored_bytes
from dpsim.core.record import Check, Count, Flag, Refused, record
from dpsim.models import Model, Tensor
from dpsim.models.sums import GradientSums

#: since this version reduce_dtype=None means the parameters' own dtype, before it the compute
#: dtype (_fsdp_api.py)
REDUCE_IN_PARAMETER_DTYPE = (2, 15)
#: 8-bit formats hold matrices only, with dimensions divisible by so many elements (pytorch/ao
#: torchao/float8/README.md)
FLOAT8_MULTIPLE = 16


@record
class Fsdp(Strategy):
    """Knobs as torch names them; `separate_reduce_scatter_group` gives reduce-scatters a
    communicator of their own (`set_separate_reduce_scatter_group`).

    shard                  hybrid sharding: so many consecutive ranks share the parameters, the
                           others replicate them; left out, or fewer ranks than that: all share
    reshard_after_forward  as in torch: free a group's parameters after its forward; a number:
                           keep them shared by so many ranks until backward, a divisor of those
                           that share them; left out: true, and false on the stages of a pipeline,
                           as torchtitan has it
    no_sync                with accumulation, reduce in the last micro-batch only
                           (`set_requires_gradient_sync`)
    all_reduce_in_last     hybrid sharding with `no_sync: false`: all-reduce in the last
                           micro-batch only (`set_requires_all_reduce`)
    reshard_after_backward  false: with accumulation, parameters stay gathered after backward of
                           all but the last micro-batch (`set_reshard_after_backward`)
    reduce_scatter_max_input_buffers  inputs of reduce-scatters that are kept at a time
    blocks_per_group       so many consecutive blocks are one group, `fully_shard([…])` of a list;
                           the last has what is left
    float8_all_gather      torchao's `enable_fsdp_float8_all_gather`: with `precision.compute: fp8`
                           matrices inside units are gathered at 1 byte an element
    """

    sharded = True
    torch_attention = True
    torch_stages = True
    shares_experts = True
    torch: Torch = TORCH
    reshard_after_forward: Flag | Count | None = None
    separate_reduce_scatter_group: Flag = False
    shard: Count | None = None
    no_sync: Flag = True
    all_reduce_in_last: Flag = False
    reshard_after_backward: Flag = True
    reduce_scatter_max_input_buffers: Annotated[int, Check(1, 1000)] = 1
    blocks_per_group: Count = 1
    float8_all_gather: Flag = False

    def __post_init__(self) -> None:
        if self.all_reduce_in_last and (self.no_sync or self.shard is None):
            need = "no_sync: false" if self.no_sync else "shard, for hybrid sharding"
            raise Refused(f"changes nothing; it needs {need}", ("all_reduce_in_last",))

    # -- groups of ranks ----------------------------------------------------------------------

    def sharing(self, job: Job) -> int:
        """How many ranks share the parameters of `job`; of experts those of the same ranks that
        hold the same ones."""
        if job.holders is None:
            return self.shards(job.ranks)
        size = self.shards(job.holders) * job.ranks
        if size % job.holders:
            raise Refused(
                f"{self.shards(job.holders)} ranks that share the parameters do not hold every "
                "expert as often: experts are shared out among them; a multiple is accepted",
                ("strategy", "shard"),
            )
        return size // job.holders

    def shards(self, ranks: int) -> int:
        """How many ranks share the parameters."""
        return shards_of(self.shard, ranks)

    def kept_by(self, shards: int, *, piped: bool = False) -> int | None:
        """How many ranks share a group's parameters between forward and backward; None: every
        rank keeps them whole.  One of `shards` ranks only is torch's word for that too.  `piped`:
        the job is a stage of a pipeline."""
        asked = self.reshard_after_forward
        asked = not piped if asked is None else asked
        if isinstance(asked, bool):
            return shards if asked else None
        asked = min(asked, shards)  # for one rank, and for experts, which fewer ranks may share
        if shards % asked:
            raise _undivided(shards, asked)
        return None if asked == 1 < shards else asked

    def groups(self, ranks: int) -> dict[str, Partition]:
        """Groups of hybrid sharding, and of resharding to fewer ranks.  Refused where more than
        share the parameters were to keep them: torch takes a divisor only (2.13,
        torch/distributed/fsdp/_fully_shard/_fsdp_init.py); a single rank has nothing to reshard."""
        size, asked = self.shards(ranks), self.reshard_after_forward
        if not isinstance(asked, bool) and asked is not None and asked > size > 1:
            raise _undivided(size, asked)
        return self._among(size, ranks)

    def expert_groups(self, job: Job) -> dict[str, Partition]:
        return self._among(self.sharing(job), job.ranks)

    def _among(self, size: int, ranks: int) -> dict[str, Partition]:
        """The same of `ranks` of which so many share the parameters."""
        found = hybrid(size, ranks)
        kept = self.kept_by(size)
        if kept is not None and kept < size:
            found[AFTER] = consecutive(kept, ranks)
        return found

    # -- program ------------------------------------------------------------------------------

    def program(self, job: Job, iteration: int | None) -> Program:
        """Forward and backward of every micro-batch, reduce-scatters, optimizer."""
        return self.stage_walk(job).play()

    def stage_walk(self, job: Job) -> Fsdp2Step:
        if self.float8_all_gather and job.precision.compute != "fp8":
            raise Refused(
                f"parameters are computed with in {job.precision.compute}; it needs "
                "precision.compute: fp8",
                ("strategy", "float8_all_gather"),
            )
        return Fsdp2Step(self, job, self._groups(job))

    def on_stage(self, job: Job) -> Exchange:
        """Nothing beside what every pass does."""
        return Exchange(shards=self.sharing(job))

    def _reduce_dtype(self, job: Job, layer: int) -> str:
        if job.precision.reduce is not None:
            return job.precision.reduce
        if tuple(self.torch) >= REDUCE_IN_PARAMETER_DTYPE:
            return job.parameter_dtype(layer)
        return narrowed(job, job.parameter_dtype(layer))

    def idle(self, model: Model) -> tuple[str, ...]:
        """That a group holds fewer blocks than it might."""
        blocks = sum(not unit.root for unit in units_of(model))
        if not 0 < blocks < self.blocks_per_group:
            return ()
        asked = f"blocks_per_group: {self.blocks_per_group:,}"
        return (f"{asked} is taken as {blocks:,}, all blocks of the model: they are one group",)

    def notes(self, job: Job) -> tuple[str, ...]:
        """That more padding travels than parameters."""
        return _mostly_padding(_padded(job, self.sharing(job)), self.sharing(job))

    def gradient_dtype(self, job: Job, layer: int, tensor: Tensor, *, kept: bool) -> str:
        """What backward leaves a gradient in, or, where it was `kept` from an earlier one, what it
        was kept in."""
        if kept and job.precision.reduce is not None:
            return job.precision.reduce
        return gather_dtype(job, layer, tensor)

    def _groups(self, job: Job) -> tuple[Group, ...]:
        """Groups that have parameters, in forward order; the root comes first, and experts that
        are shared out behind all else of their unit."""
        return tuple(
            self._group(part, unit)
            for unit in units_of(job.model, self.blocks_per_group)
            for part in job.parts
            if any(part.model.layers[i].parameters for i in unit.layers)
        )

    def _group(self, job: Job, unit: WrappedUnit) -> Group:
        gather = reduce = gather_padding = reduce_padding = gradient = stored = 0.0
        shards = self.sharing(job)
        for i in unit.layers:
            stored += job.gradient_bytes(i)
            rs = DTYPE_BYTES[self._reduce_dtype(job, i)]
            for tensor in job.model.layers[i].tensors:
                own = stored_bytes(gather_dtype(job, i, tensor))
                eight = self.float8_all_gather and not unit.root and _fits_float8(tensor)
                ag = DTYPE_BYTES["fp8"] if eight else own
                experts = job.model.layers[i].experts if job.holders else 0
                extra = _padding(tensor, shards, experts) if _pads(job) else 0
                gather += ag * tensor.elements
                gather_padding += ag * extra
                if tensor.trained:
                    gradient += own * tensor.elements
                    reduce += rs * tensor.elements
                    reduce_padding += rs * extra
        return Group(
            unit.layers, gather, reduce, gather_padding, reduce_padding, unit.root,
            gradient, stored, unit.raw,
            sharers=Sharers(job.ranks, shards, experts=job.holders is not None),
            own=tuple(i for i in unit.layers if job.model.layers[i].parameters),
        )  # fmt: skip

    # -- memory -------------------------------------------------------------------------------

    def lighter(self, *, split: bool) -> Iterator[Lighter]:
        """Everything sharded, over all ranks and after forward; states on the host."""
        if self.reshard_after_forward not in (True, None):
            cost = "parameters are gathered in every pass"
            yield from self.changed("sharded", cost, reshard_after_forward=True)
        if self.shard is not None:
            yield from self.changed("sharded", "gathers cross all nodes", shard=None)
        if not split:
            yield from offloading(3)

    def sums(self, *, piped: bool) -> GradientSums | None:
        """Whole gradients in what is reduced; where every micro-batch is reduced, shards."""
        added = GradientSums(gathered=True, reduced=True)
        return added if piped or self.no_sync else None

    @property
    def casts_gradients(self) -> bool:
        return True

    def memory(self, job: Job) -> dict[str, float]:
        """Shards, and the transient buffers at their largest: the root gathered throughout, two
        gather outputs and two unsharded groups beside it, the root's and one group's unsharded
        gradients, and the inputs of the last reduce-scatters."""
        if len(job.parts) > 1:
            return summed(self.memory(part) for part in job.parts)
        groups = self._groups(job)
        shards = self.sharing(job)
        parts = state_bytes(job, 1.0 / shards)
        sizes = sorted((g.gather for g in groups if not g.root), reverse=True) or [0.0]
        root = sum(g.gather for g in groups if g.root)
        parts["gathered parameters"] = root + self._kept(job, sizes, shards) + sum(sizes[:2])
        parts["unsharded gradients"] = self._gradients(job, groups)
        inputs = sorted((g.reduce for g in groups if not g.root), reverse=True)
        last = [g.reduce for g in groups if g.root] + inputs
        alive = self.reduce_scatter_max_input_buffers + 1
        parts["reduce-scatter inputs"] = sum(last[:alive])
        if shards < job.ranks and any(g.reduce != g.stored for g in groups):
            # held until backward has ended, beside the gradients that are cast from them
            parts["all-reduce inputs"] = sum(g.reduce for g in groups) / shards
        return parts

    def held(self, job: Job) -> Held:
        times = _padded(job, self.sharing(job))
        parts = summed(state_bytes(part, times / self.sharing(part)) for part in job.parts)
        if "all-reduce inputs" in (all_ := self.memory(job)):
            parts["all-reduce inputs"] = all_["all-reduce inputs"]
        shards = self.shards(job.ranks)
        fewer, many = self.kept_by(shards), job.micro_batches > 1
        stays = fewer is None or (many and not self.reshard_after_backward)
        after = 1.0 if stays else 1.0 / fewer if fewer and fewer < shards else 0.0
        alive = self.reduce_scatter_max_input_buffers
        shared, waits = shards > 1, many and self.no_sync
        how = Sharding(shards, after, stays and many, waits, alive, buffers=shared, alone=True)
        groups = self._groups(job)
        return held(how, job, groups if times == 1 else [g.whole for g in groups], parts)

    def _kept(self, job: Job, sizes: list[float], shards: int) -> float:
        """Unsharded parameters outside the root: two groups, or what is never given up, as on the
        stages of a pipeline."""
        fewer, piped = self.kept_by(shards), job.stages > 1
        if piped or fewer is None or (job.micro_batches > 1 and not self.reshard_after_backward):
            return sum(sizes)
        return sum(sizes[:2]) + (sum(sizes) / fewer if fewer < shards else 0.0)

    def _gradients(self, job: Job, groups: tuple[Group, ...]) -> float:
        """Unsharded gradients: all of them while micro-batches accumulate, and on stages, in the
        wider of the compute and the reduce dtype; else the root's and the largest group's."""
        if job.stages > 1 or (job.micro_batches > 1 and self.no_sync):
            return sum(max(g.gradient, g.reduce) for g in groups)
        root = sum(g.gradient for g in groups if g.root)
        return root + max((g.gradient for g in groups if not g.root), default=0.0)


def _undivided(shards: int, asked: int) -> Refused:
    return Refused(
        f"{shards} ranks that share the parameters do not split into groups of {asked}; true, "
        f"false or a divisor of {shards} is accepted",
        ("strategy", "reshard_after_forward"),
    )


def gather_dtype(job: Job, layer: int, tensor: Tensor) -> str:
    """Parameters travel in the compute dtype where that is narrower than their own, and quantised
    ones as they are.

    With matrix products in 8 or 4 bits they are cast from 16 bit where they are used: torchao
    gathers them so unless `enable_fsdp_float8_all_gather` is set (pytorch/ao
    torchao/float8/config.py).
    """
    own = job.tensor_dtype(layer, tensor)
    return own if own in QUANTISED else narrowed(job, own)


def narrowed(job: Job, dtype: str) -> str:
    """The dtype that parameters of `dtype` are cast to before they travel."""
    compute = rest_of(job.precision.compute)
    return compute if DTYPE_BYTES[compute] < DTYPE_BYTES[dtype] else dtype


def _fits_float8(tensor: Tensor) -> bool:
    return len(tensor.shape) == 2 and all(size % FLOAT8_MULTIPLE == 0 for size in tensor.shape)


def _pads(job: Job) -> bool:
    """Whether tensors are padded: XLA lays them out along dimensions that ranks divide."""
    return job.control and not job.compiled


def _padded(job: Job, ranks: int) -> float:
    """How many times the parameters of `job` are with the padding of experts, which are one tensor
    each, to as many as `ranks` share them; 1 where that is less than twice."""
    whole = sum(layer.parameters for layer in job.model.layers)
    if job.holders or job.expert_ranks is not None or not _pads(job) or not whole:
        return 1.0
    experts = (t for layer in job.model.layers if layer.experts for t in layer.tensors)
    times = 1 + sum(_padding(tensor, ranks) for tensor in experts) / whole
    return times if times > 2 else 1.0


def _mostly_padding(times: float, ranks: int) -> tuple[str, ...]:
    """That so many `times` the parameters travel, where they are padded."""
    if times == 1:
        return ()
    return (
        f"fully_shard pads experts in one tensor to as many as the {ranks} ranks of a group, so "
        f"{times:.3g} times the parameters travel and are held; parallel.expert, smaller groups "
        "(strategy.shard) or fsdp1 pad less, and so does code with a module for each expert, or "
        "with a shard_placement_fn",
    )


def _padding(tensor: Tensor, ranks: int, experts: int = 0) -> int:
    """Elements added so that dimension 0 splits evenly over the ranks; of so many `experts`, where
    there are fewer of them, dimension 1."""
    if len(tensor.shape) > 1 and 0 < experts < ranks:
        return (-tensor.shape[1]) % ranks * tensor.shape[0] * prod(tensor.shape[2:])
    rows = tensor.shape[0] if tensor.shape else 1
    return (-rows) % ranks * prod(tensor.shape[1:])
