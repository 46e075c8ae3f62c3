"""Which of DeepSpeed's settings go together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsim.core.record import Refused

if TYPE_CHECKING:
    from dpsim.compile.strategies.zero import Zero

#: ZeRO++'s settings and what they are without it
_PLUS = {
    "zero_quantized_weights": False,
    "zero_hpz_partition_size": 1,
    "zero_quantized_gradients": False,
}
STAGE_3 = (
    "stage3_prefetch_bucket_size",
    "stage3_param_persistence_threshold",
    "stage3_max_live_parameters",
    "stage3_max_reuse_distance",
)


def check(knobs: Zero) -> None:
    """Raises Refused where they do not."""
    if not knobs.use_multi_rank_bucket_allreduce and (knobs.stage == 3 or not knobs.as_shipped):
        raise Refused(
            "only stages 1 and 2 as shipped have it", ("use_multi_rank_bucket_allreduce",)
        )
    if not knobs.use_multi_rank_bucket_allreduce and knobs.partition_size is not None:
        raise Refused(
            "partition_size goes with one all-reduce per bucket only",
            ("use_multi_rank_bucket_allreduce",),
        )
    given = [name for name in STAGE_3 if getattr(knobs, name) is not None]
    if given and (knobs.stage != 3 or not knobs.as_shipped):
        where = f"stage {knobs.stage}" if knobs.stage != 3 else "the paper (as_shipped: false)"
        raise Refused(f"{where} has no such setting; only DeepSpeed's stage 3 has", (given[0],))
    if knobs.partition_size is not None and (knobs.stage != 1 or not knobs.as_shipped):
        raise Refused("only stage 1 as shipped shards over groups of ranks", ("partition_size",))
    if knobs.grad_accum_dtype is not None and (knobs.stage != 1 or not knobs.as_shipped):
        raise Refused("only stage 1 as shipped adds up whole gradients", ("grad_accum_dtype",))
    if knobs.overlap_comm is False and not knobs.as_shipped:
        raise Refused("the paper overlaps reductions with backward", ("overlap_comm",))
    _check_plus(knobs)
    _check_offload(knobs)


def _check_plus(knobs: Zero) -> None:
    """ZeRO++ belongs to stage 3 as shipped; its exchange of gradients needs a node's size."""
    for name, plain in _PLUS.items():
        if getattr(knobs, name) != plain and (knobs.stage != 3 or not knobs.as_shipped):
            raise Refused("only stage 3 as shipped has ZeRO++", (name,))
    if knobs.zero_quantized_gradients and knobs.node_ranks is None:
        message = "quantised gradients are exchanged inside a node first; say how many ranks"
        raise Refused(f"{message} it has", ("local_world_size",))
    if knobs.local_world_size is not None and not knobs.zero_quantized_gradients:
        raise Refused("only zero_quantized_gradients needs it", ("local_world_size",))


def _check_offload(knobs: Zero) -> None:
    if knobs.offload_optimizer != "none" and not knobs.as_shipped:
        raise Refused("the paper (as_shipped: false) offloads nothing", ("offload_optimizer",))
    for name in ("pcie_bandwidth", "host_memory_bandwidth"):
        if getattr(knobs, name) is not None and knobs.offload_optimizer == "none":
            raise Refused("only offload_optimizer: cpu needs it", (name,))
