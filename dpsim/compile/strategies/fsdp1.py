"""PyTorch FSDP1 (``FullyShardedDataParallel``).

Rules read in pytorch/pytorch torch/distributed/fsdp/ (_runtime_utils.py, _flat_param.py,
_limiter_utils.py, _exec_order_utils.py, _init_utils.py; 2.13).  One flat parameter per unit, plus
the root's for what no unit holds:

* Forward: the root is gathered first and kept.  A unit is gathered before its forward, straight
  into its flat parameter (no copy-out), and freed after it (FULL_SHARD and HYBRID_SHARD).
* Rate limiter: freeing a unit puts an event into a queue; unsharding, needed or not, takes the
  oldest event if there are two or more, and the host waits for it.  What is left in the queue at
  the end of a step is taken in the next, so gathers run further ahead in later steps than in the
  first.
* Backward prefetch: the next unit is gathered before this one's backward (BACKWARD_PRE), after it
  and before its reduction (BACKWARD_POST), or when its own backward begins (none).
* forward_prefetch: the next unit is gathered right after this one, once an order is known.  It is
  then reduced one unit later (docs/assumptions.md, A55).
* Reduction: a reduce-scatter of the flat gradient when the unit's backward has ended, the root's
  last; NO_SHARD all-reduces; hybrid strategies all-reduce the shard over the replicas after it, on
  another communicator.  All-gathers and reduce-scatters share one communicator.
* no_sync keeps unsharded gradients; strategies that keep parameters after forward keep them after
  backward then too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from dpsim.compile.groups import Partition
from dpsim.compile.held import Held
from dpsim.compile.job import Job, state_bytes
from dpsim.compile.program import Program
from dpsim.compile.step import StepWalk
from dpsim.compile.strategies import Exchange, Lighter, Strategy, offloading
from dpsim.compile.strategies._fsdp1_step import Fsdp1Step
from dpsim.compile.strategies._fsdp2_step import Group
from dpsim.compile.strategies._fsdp_held import Sharding, held
from dpsim.compile.strategies._unit_step import GatheredUnit
from dpsim.compile.strategies._units import WrappedUnit, hybrid, shards_of, units_of, wrapped
from dpsim.compile.strategies._wrap_policy import by_size
from dpsim.compile.strategies.fsdp import narrowed
from dpsim.core.dtypes import DTYPE_BYTES, QUANTISED, stored_bytes
from dpsim.core.record import Check, Flag, Refused, record
from dpsim.models import Model
from dpsim.models.sums import GradientSums

FULL = ("FULL_SHARD", "HYBRID_SHARD")
HYBRID = ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")
#: wrap.py: default of `min_num_params`
LEAST_WRAPPED = 100_000_000
ALIGNED = 16  # bytes; _flat_param.py, _get_aligned_numel
#: steps after which the limiter's queue has settled in any case
STEPS = 64


@record
class Fsdp1(Strategy):
    """Knobs as torch names them, with the defaults of torch 2.13.

    sharding_strategy  as in torch; hybrid ones need `shard`
    shard              so many consecutive ranks share the parameters, the others replicate them
    backward_prefetch  as in torch; `none` for None
    forward_prefetch   gather the next unit before this one's forward, from the second forward on
    limit_all_gathers  as in torch: the rate limiter
    use_orig_params    parameters are aligned to 16 bytes in the flat one
    no_sync            with accumulation, reduce in the last micro-batch only
    wrap               `transformer`: a block is a unit (`transformer_auto_wrap_policy`); `size`: a
                       module of `min_num_params` or more (`size_based_auto_wrap_policy`); `none`:
                       the whole model is one (`auto_wrap_policy=None`)
    min_num_params     of `wrap: size`; left out: torch's 100 million
    """

    sharded = True
    torch_attention = True
    sharding_strategy: Literal[
        "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"
    ] = "FULL_SHARD"
    shard: Annotated[int, Check(2, 1_048_576)] | None = None
    backward_prefetch: Literal["BACKWARD_PRE", "BACKWARD_POST", "none"] = "BACKWARD_PRE"
    forward_prefetch: Flag = False
    limit_all_gathers: Flag = True
    use_orig_params: Flag = False
    no_sync: Flag = True
    wrap: Literal["transformer", "size", "none"] = "transformer"
    min_num_params: Annotated[int, Check(1, 10**15)] | None = None

    def __post_init__(self) -> None:
        if self.min_num_params is not None and self.wrap != "size":
            raise Refused("needs wrap: size", ("min_num_params",))
        if self.shard is None and self.sharding_strategy in HYBRID:
            raise Refused(
                f"is missing; {self.sharding_strategy} shards over so many consecutive ranks "
                "(torch's own default is the ranks of a node)",
                ("shard",),
            )
        if self.shard is not None and self.sharding_strategy not in HYBRID:
            raise Refused(
                f"{self.sharding_strategy} shards over all ranks or none; {' or '.join(HYBRID)} "
                "takes it",
                ("shard",),
            )

    def shards(self, ranks: int) -> int:
        """How many ranks share the parameters."""
        return 1 if self.sharding_strategy == "NO_SHARD" else shards_of(self.shard, ranks)

    @property
    def reshards_after_forward(self) -> bool:
        return self.sharding_strategy in FULL

    def groups(self, ranks: int) -> dict[str, Partition]:
        """Groups of the hybrid strategies."""
        shards = self.shards(ranks)
        return {} if shards == 1 else hybrid(shards, ranks)

    def _units(self, model: Model) -> tuple[WrappedUnit, ...]:
        """What is wrapped, by the policy."""
        if self.wrap == "transformer":
            return units_of(model)
        if self.wrap == "none":
            return wrapped(model, [(list(model.forward_order), True)])
        return by_size(model, self.min_num_params or LEAST_WRAPPED)

    # -- program ------------------------------------------------------------------------------

    def program(self, job: Job, iteration: int | None) -> Program:
        """Forward and backward of every micro-batch, reductions, optimizer."""
        return self.played(job, iteration)[1]

    def played(self, job: Job, iteration: int | None) -> tuple[Fsdp1Step, Program]:
        """The step of `iteration`, after the steps before it; None: when the limiter's queue
        begins a step as it ends it."""
        units = tuple(self._flat(job, unit) for unit in self._units(job.model))
        left = 0
        for k in range(1, STEPS):
            step = Fsdp1Step(self, job, units, recorded=k > 1, left_over=left)
            program = step.play()
            settled = k > 1 and len(step.events) == left
            if k == iteration or settled:
                return step, program
            left = len(step.events)
        raise Refused("the queue of free events does not settle", ("strategy", "limit_all_gathers"))

    def stage_walk(self, job: Job) -> StepWalk:
        step, _ = self.played(job, None)
        return Fsdp1Step(self, job, tuple(step.units), recorded=True, left_over=len(step.events))

    def on_stage(self, job: Job) -> Exchange:
        """Nothing beside what every pass does."""
        self.accept_stage(job)
        return Exchange(shards=self.shards(job.ranks))

    def accept_stage(self, job: Job) -> None:
        """Refuse a pipeline, as torch's own does not know it
        (torch/distributed/pipelining/stage.py, backward_maybe_with_nosync)."""
        if job.stages > 1:
            raise Refused(
                "fsdp1 is not modelled with a pipeline, and torch's pipelining does not know it: "
                "it would reduce in every micro-batch; fsdp is accepted",
                ("strategy", "kind"),
            )

    def _flat(self, job: Job, unit: WrappedUnit) -> GatheredUnit:
        """A unit's flat parameter: its tensors one after the other, padded to the shards."""
        dtype, trained = self._uniform(job, unit)
        width = DTYPE_BYTES[narrowed(job, dtype)]
        payload = sum(job.model.layers[i].parameters for i in unit.layers)
        elements = self._aligned(job, unit, width) if job.control else payload
        shards = self.shards(job.ranks)
        whole = -(-elements // shards) * shards if job.control else elements
        reduced = DTYPE_BYTES[job.precision.reduce or narrowed(job, dtype)] * trained
        extra = whole - payload
        sizes = (width * payload, reduced * payload, width * extra, reduced * extra)
        return GatheredUnit(unit.layers, *sizes, unit.root)

    def _uniform(self, job: Job, unit: WrappedUnit) -> tuple[str, bool]:
        """The dtype of a unit's flat parameter, and whether it has a gradient: if one of its
        tensors has, autograd makes a whole one, with zeros for what is frozen.  Refused where
        torch refuses (_flat_param.py, _validate_tensors_to_flatten)."""
        layers = job.model.layers
        kinds = [(i, kind) for i in unit.layers for kind in layers[i].kinds]
        first = layers[unit.layers[0]].name
        dtypes = {dtype or job.parameter_dtype(i) for i, (dtype, _, _) in kinds}
        if len(dtypes) > 1 or not dtypes.isdisjoint(QUANTISED):
            raise Refused(
                f"a flat parameter has one dtype, and none that is quantised; {first} and others "
                f"of its unit have {', '.join(sorted(dtypes))}; fsdp is accepted",
                ("strategy", "kind"),
            )
        trained = {one for _, (_, one, _) in kinds}
        if len(trained) > 1 and not self.use_orig_params:
            raise Refused(
                f"{first} and others of its unit have trained and frozen parameters, and "
                "torch flattens them together only with use_orig_params: true; that, or fsdp, is "
                "accepted",
                ("strategy", "use_orig_params"),
            )
        return dtypes.pop(), True in trained

    def _aligned(self, job: Job, unit: WrappedUnit, width: float) -> int:
        """Elements of a flat parameter, with what aligns each tensor (use_orig_params)."""
        sizes = [
            tensor.elements for i in sorted(unit.layers) for tensor in job.model.layers[i].tensors
        ]
        if not self.use_orig_params:
            return sum(sizes)
        aligned, total = int(ALIGNED // width), 0
        for size in sizes:
            total += -total % aligned + size
        sharing = self.shards(job.ranks)
        return total + -total % (sharing if sharing > 1 else job.ranks)

    # -- memory -------------------------------------------------------------------------------

    def lighter(self, *, split: bool) -> Iterator[Lighter]:
        """Everything sharded over all ranks; states on the host."""
        if self.sharding_strategy != "FULL_SHARD":
            cost = "parameters are gathered in every pass"
            yield from self.changed("sharded", cost, sharding_strategy="FULL_SHARD", shard=None)
        if not split:
            yield from offloading(3)

    def sums(self, *, piped: bool) -> GradientSums | None:
        """Whole gradients in what was gathered; where every micro-batch is reduced, shards."""
        return GradientSums(gathered=True) if self.no_sync else None

    @property
    def casts_gradients(self) -> bool:
        return True

    def memory(self, job: Job) -> dict[str, float]:
        """Shards; the root's parameters and the most units that the limiter lets be gathered at
        once; unsharded gradients of the root and two units (one computed, one reduced), or of all
        while micro-batches accumulate."""
        shards = self.shards(job.ranks)
        parts = state_bytes(job, 1.0 / shards)
        step, _ = self.played(job, None)
        whole = sum(unit.gather for unit in step.units)
        root = sum(unit.gather for unit in step.units if unit.root)
        if shards > 1:
            parts["gathered parameters"] = root + step.peak
            if not self.limit_all_gathers:  # the host runs ahead of all frees
                parts["gathered parameters"] = whole
            sizes = sorted((u.gather for u in step.units if not u.root), reverse=True)
            accumulates = job.micro_batches > 1 and self.no_sync
            parts["unsharded gradients"] = whole if accumulates else root + sum(sizes[:2])
        return parts

    def held(self, job: Job) -> Held:
        shards, many = self.shards(job.ranks), job.micro_batches > 1
        parts = state_bytes(job, 1.0 / shards)
        stays = not self.reshards_after_forward or not self.limit_all_gathers
        always = many and stays and self.no_sync
        how = Sharding(shards, float(stays), always, many and self.no_sync, buffers=False)
        units = [self._flat(job, unit) for unit in self._units(job.model)]
        return held(how, job, [_group(job, unit) for unit in units], parts)


def _group(job: Job, unit: GatheredUnit) -> Group:
    """The same unit with its gradients, as wide as what is gathered, and its stored parameters."""
    sizes = (unit.gather, unit.reduce, unit.gather_padding, unit.reduce_padding)
    stored = sum(
        stored_bytes(job.tensor_dtype(i, tensor)) * tensor.elements
        for i in unit.layers
        for tensor in job.model.layers[i].tensors
    )
    trained = bool(unit.reduce)
    return Group(
        unit.layers, *sizes, unit.root, unit.gather * trained, stored * trained, raw=False
    )  # fmt: skip
