"""ZeRO stages 1 to 3, as DeepSpeed ships them (`as_shipped`) or as in the paper.

Paper: Rajbhandari et al., ZeRO, arXiv:1910.02054.  Gradients are reduce-scattered while backward
runs, and the updated shards gathered after the step; stage 3 gathers every layer before its
forward and before its backward.

As shipped, read in deepspeedai/DeepSpeed deepspeed/runtime/zero/ (config.py, stage_1_and_2.py,
stage3.py, partitioned_param_coordinator.py; commit edaa7221):

* Buckets count elements.  A gradient that would overfill the bucket flushes it first, so the flush
  comes when that gradient is ready; what is left is flushed when backward has ended.
* Stages 1 and 2 all-reduce a bucket and copy out the owned slice, or without
  `use_multi_rank_bucket_allreduce` reduce the slices of a bucket to the ranks that own them.  Stage
  2 does so in every micro-batch while backward runs, stage 1 in the last one, after backward unless
  `overlap_comm`.  Without `overlap_comm` the reduction is on the compute stream; with it a flush
  first waits for the reduction before it.  After the step one all-gather per dtype brings the
  parameters.
* Stage 3 reduce-scatters, at most two at a time beside compute, and gathers what the module
  `_zero3` says.  Persistent parameters are gathered once after the step, one by one.
* `offload_optimizer: cpu` keeps optimizer states on the host (`_offload`).
* ZeRO++ (docs/_tutorials/zeropp.md, runtime/comm/coalesced_collectives.py): quantised weights are
  gathered in int8; hpZ gathers in backward within groups of `zero_hpz_partition_size`; quantised
  gradients of matrices are exchanged in int4 by an all-to-all inside the node, reduced, and by
  another one between the nodes, and those of vectors are reduce-scattered as they are.
* Experts that are shared out (AutoEP; runtime/engine.py, _validate_zero3_moe_compatibility) belong
  to the ranks that hold the same ones.  Stage 2 reduces a bucket's share of them on its own, stage
  3 flushes a bucket where they begin and end, and gathers them by themselves; hpZ is refused.
* With a pipeline only stage 1 runs (runtime/pipe/engine.py refuses ZeRO-2 and 3); every stage has
  its own buckets and gathers.  What a flush waits for inside backward, with `overlap_comm`, is left
  out there: a message starts when its gradients are there and the one before it has ended.

`tests/data/deepspeed` holds orders of DeepSpeed 0.19.8 that this module reproduces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

from dpsim.collectives import ring_payload
from dpsim.compile.compression import Compression
from dpsim.compile.exchange import Exchange, Leg
from dpsim.compile.groups import Partition, consecutive, everyone, fitting, strided
from dpsim.compile.held import Held, constant, gradient_bytes, so_far
from dpsim.compile.job import Job, parameters_of
from dpsim.compile.program import COMPUTE, Program
from dpsim.compile.step import StepWalk
from dpsim.compile.strategies import Lighter, Strategy
from dpsim.compile.strategies._offload import LINK, MEMORY, OffloadHost
from dpsim.compile.strategies._zero3 import Limits
from dpsim.compile.strategies._zero_exchange import ACROSS, COMM, NODE, SHARD, Reductions, gathered
from dpsim.compile.strategies._zero_memory import kept
from dpsim.compile.strategies._zero_settings import STAGE_3, check
from dpsim.compile.strategies._zero_step import SECONDARY, SELF, ZeroStep
from dpsim.core import units
from dpsim.core.record import Count, Flag, Refused, record
from dpsim.models.sums import GradientSums

BUCKET = 500_000_000  # elements; config.py, reduce_bucket_size
PREFETCH = 50_000_000  # elements; config.py, stage3_prefetch_bucket_size
PERSISTENCE = 100_000  # elements; config.py, stage3_param_persistence_threshold
LIVE = REUSE = 1_000_000_000  # elements; config.py, max_live_parameters, max_reuse_distance
Elements = Annotated[float, units.Unit("1", low=0.0, high=1e15)]


@record
class Zero(Strategy):
    """Settings as DeepSpeed names them, sizes in elements; `as_shipped: false` is the paper's.

    `overlap_comm` left out is true for stage 3 and false otherwise, as in DeepSpeed.
    `partition_size` shards the optimizer states of stage 1 over groups of so many ranks
    (InternEvo's `zero1`).  `grad_accum_dtype: fp32` adds up gradients of 16 bit in fp32
    (`data_types`; DeepSpeed's BF16_Optimizer).  `pcie_bandwidth` (of a device, one way) and
    `host_memory_bandwidth` (of a node, for all of its ranks) say what offloading costs;
    `local_world_size`, the ranks of a node, where quantised gradients are exchanged first.
    """

    sharded = True
    shares_experts = True
    copies_weights = True  # stage_1_and_2.py, single_partition_of_fp32_groups

    stage: Literal[1, 2, 3] = 1
    as_shipped: Flag = True
    reduce_bucket_size: Annotated[float, units.Unit("1", low=0.0, high=1e15, above=True)] = BUCKET
    overlap_comm: Flag | None = None
    contiguous_gradients: Flag = True
    use_multi_rank_bucket_allreduce: Flag = True
    partition_size: Count | None = None
    stage3_prefetch_bucket_size: Elements | None = None
    stage3_param_persistence_threshold: Elements | None = None
    stage3_max_live_parameters: Elements | None = None
    stage3_max_reuse_distance: Elements | None = None
    grad_accum_dtype: Literal["fp32"] | None = None
    offload_optimizer: Literal["none", "cpu"] = "none"
    pcie_bandwidth: units.BytesPerSecond | None = None
    host_memory_bandwidth: units.BytesPerSecond | None = None
    zero_quantized_weights: Flag = False
    zero_hpz_partition_size: Count = 1
    zero_quantized_gradients: Flag = False
    local_world_size: Count | None = None

    def __post_init__(self) -> None:
        check(self)

    @property
    def node_ranks(self) -> int | None:
        """Ranks of a node as the settings say it; hpZ's groups are nodes."""
        hpz = self.zero_hpz_partition_size
        return self.local_world_size or (hpz if hpz > 1 else None)

    @property
    def offloads(self) -> bool:
        """Whether optimizer states and updates are on the host."""
        return self.offload_optimizer == "cpu"

    @property
    def overlaps(self) -> bool:
        """Whether reductions run beside backward."""
        if self.overlap_comm is None:
            return self.stage == 3 or not self.as_shipped
        return self.overlap_comm

    @property
    def limits(self) -> Limits:
        """What governs gathering in stage 3; the paper keeps and prefetches nothing."""
        if not self.as_shipped:
            return Limits(0, 0, 0, 0)
        defaults = (PREFETCH, PERSISTENCE, LIVE, REUSE)
        values = (getattr(self, name) for name in STAGE_3)
        return Limits(*(int(d if v is None else v) for v, d in zip(values, defaults, strict=True)))

    def shards(self, ranks: int) -> int:
        """How many ranks share the optimizer states."""
        return fitting(self.partition_size, ranks, "partition_size")

    def copies(self, ranks: int) -> int:
        """How many ranks share a secondary copy of the parameters."""
        return fitting(self.zero_hpz_partition_size, ranks, "zero_hpz_partition_size")

    def node(self, ranks: int) -> int:
        """Ranks of a node."""
        if self.local_world_size is None:
            return self.copies(ranks)
        return fitting(self.local_world_size, ranks, "local_world_size")

    def groups(self, ranks: int) -> dict[str, Partition]:
        """ "shard": consecutive ranks that share the optimizer states; "hpz": those that share a
        secondary copy of the parameters; "node" and "across nodes": where quantised gradients are
        exchanged; "self": every rank alone, for copies beside collectives."""
        size, found = self.shards(ranks), {}
        if size != ranks:
            found[SHARD] = consecutive(size, ranks)
        if self.zero_hpz_partition_size > 1:
            found[SECONDARY] = consecutive(self.copies(ranks), ranks)
        if self.zero_quantized_gradients:
            size = self.node(ranks)
            found[NODE] = consecutive(size, ranks)
            found[ACROSS] = strided(size, ranks)
        if self.offloads:
            found[SELF] = consecutive(1, ranks)
        return found

    def host(self, job: Job) -> OffloadHost | None:
        """What copies to the host and updates there cost; None where nothing is offloaded."""
        if not self.offloads:
            return None
        link = self.pcie_bandwidth or LINK
        return OffloadHost(link, self.host_memory_bandwidth or MEMORY, job.local_size or job.ranks)

    def on_device(self) -> Zero:
        if not self.offloads:
            return self
        return replace(
            self, offload_optimizer="none", pcie_bandwidth=None, host_memory_bandwidth=None
        )

    def notes(self, job: Job) -> tuple[str, ...]:
        """How far what DeepSpeed ships differs from the paper in what a rank sends."""
        if not self.as_shipped or job.ranks == 1:
            return ()
        paper = Zero(stage=self.stage, as_shipped=False)
        job = replace(job, control=False)
        ships, said = self._sent(job), paper._sent(job)
        if not said or abs(ships / said - 1) < 1e-9:
            return ()
        return (
            f"ZeRO stage {self.stage} as DeepSpeed ships it sends {ships / 1e9:.4g} GB per rank "
            f"and step, {ships / said:.3g} times the paper's {said / 1e9:.4g} GB "
            "(as_shipped: false)",
        )

    def _sent(self, job: Job) -> float:
        """Bytes that a rank sends in a steady step, by rings."""
        groups = {"world": everyone(job.ranks), **self.groups(job.ranks)}
        return sum(
            ring_payload(op.operation, len(groups[op.group][0]), op.bytes)
            for op in self.program(job, None).ops
            if op.stream != COMPUTE and op.bytes
        )

    # -- the step -----------------------------------------------------------------------------

    def program(self, job: Job, iteration: int | None) -> Program:
        """Forward and backward of every micro-batch, reductions, optimizer, all-gather."""
        return ZeroStep(self, job, iteration).play()

    def exchange(self, job: Job, iteration: int | None) -> Exchange:
        """Reductions of a micro-batch that exchanges; the updated parameters are gathered."""
        shards, found = self.shards(job.ranks), Reductions(self, job)
        brought = parameters_of(job) if self.stage == 3 else found.gradients
        group = "" if shards == job.ranks else SHARD
        gathers = tuple(
            Leg(f"AG.{name}", "all_gather", size, group=group)
            for name, size in gathered(self, brought)
        )
        return Exchange(  # one stream, or calls that block: of experts and all else in turn
            found.messages(), COMM, found.copies(), gathers=gathers, shards=shards, in_turn=True
        )

    def sums(self, *, piped: bool) -> GradientSums | None:
        """Stages 2 and 3, and the paper's, add what they have reduced."""
        wide = self.grad_accum_dtype or ""
        whole = self.stage == 1 and self.as_shipped
        return GradientSums(total=wide, zeroed=bool(wide)) if whole else None

    def accept_compression(self, compression: Compression) -> None:
        """What DeepSpeed calls communication_data_type."""
        if compression.kind not in ("fp16", "bf16"):
            raise Refused(
                f"{compression.kind} is not modelled with zero, and DeepSpeed's 1-bit optimizers "
                "run without it; fp16 and bf16 (communication_data_type), "
                "zero_quantized_gradients, or ddp are accepted",
                ("compression",),
            )

    def stage_walk(self, job: Job) -> StepWalk | None:
        """Stages 2 and 3 exchange in every micro-batch."""
        return None if self.stage == 1 else ZeroStep(self, job, None)

    def accept_stage(self, job: Job) -> None:
        """Refuse what is not modelled where layers are split over ranks, and what DeepSpeed refuses
        (runtime/pipe/engine.py: "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism")."""
        where = "with tensor, pipeline, context or expert parallelism"
        if self.stage != 1 and job.stages > 1:
            raise Refused(
                f"stage {self.stage} exchanges in every micro-batch, and DeepSpeed itself runs no "
                "pipeline with it; 1 is accepted, or fsdp",
                ("strategy", "stage"),
            )
        if self.shards(job.ranks) != job.ranks:
            message = f"groups of fewer than all {job.ranks} replicas are not modelled {where}"
            raise Refused(message, ("strategy", "partition_size"))
        if self.zero_quantized_gradients:
            message = f"exchanging quantised gradients by nodes is not modelled {where}"
            raise Refused(f"{message}; false is accepted", ("strategy", "zero_quantized_gradients"))
        if not self.use_multi_rank_bucket_allreduce:
            message = f"one reduce per owning rank is not modelled {where}; true is accepted"
            raise Refused(message, ("strategy", "use_multi_rank_bucket_allreduce"))
        if self.zero_hpz_partition_size > 1 and (job.expert_ranks or job.holders):
            raise Refused(
                "DeepSpeed does not run hpZ where experts are shared out; 1 is accepted",
                ("strategy", "zero_hpz_partition_size"),
            )
        if self.offloads:
            message = f"offloading is not modelled {where}; none is accepted"
            raise Refused(message, ("strategy", "offload_optimizer"))

    # -- memory -------------------------------------------------------------------------------

    def lighter(self, *, split: bool) -> Iterator[Lighter]:
        """Gradients and parameters sharded too; states on the host."""
        for stage in range(self.stage + 1, 4):
            cost = "parameters are gathered in every pass" if stage == 3 else ""
            yield from self.changed("sharded", cost, stage=stage)
        if not self.offloads:
            yield from self.changed("offloaded", "the host's CPUs update", offload_optimizer="cpu")

    @property
    def casts_gradients(self) -> bool:
        return True

    def memory(self, job: Job) -> dict[str, float]:
        return kept(self, job)

    def held(self, job: Job) -> Held:
        """The paper's has gradients as backward makes them; DeepSpeed's stay in its buffers."""
        parts = self.memory(job)
        if self.as_shipped or job.micro_batches > 1:
            return constant(parts)
        late = {"gradients": parts.pop("gradients")}
        sizes = [0.0] * len(job.model.layers)
        for part in job.parts:
            share = 1.0 / self.shards(part.ranks) if self.stage >= 2 else 1.0
            sizes = [a + share * b for a, b in zip(sizes, gradient_bytes(part), strict=True)]
        made = so_far(job, sizes)
        return Held(parts, backward={"gradients": made}, update=late)
