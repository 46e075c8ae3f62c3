"""What is not known of a router: how full the fullest rank will be."""

from __future__ import annotations

from dpsim.cases.case import Case
from dpsim.compile.routing import EXPERT, Moe


def routing_range(case: Case, time: float) -> tuple[float, float] | None:
    """By what factors a step of `time` may be off because of the loads of experts; None where they
    are known, or every rank has all experts.

    What a load multiplies is the computing of experts, and the all-to-alls that nothing hides.
    """
    moe, mesh = case.scenario.moe or Moe(), case.mesh
    if mesh.expert == 1 or time <= 0 or (moe.imbalance is None and case.machine is None):
        return None
    experts = max(layer.experts for layer in case.model.layers)
    now, ends = moe.load(mesh.expert, experts), moe.ends(mesh.expert, experts)
    if ends == (now, now):
        return None
    share = min(max(_loaded(case, row) for row in range(mesh.pipeline)) / time, 1.0)
    low, high = (1.0 + share * (end / now - 1.0) for end in ends)
    return min(low, 1.0), max(high, 1.0)


def _loaded(case: Case, row: int) -> float:
    """Seconds of a step of pipeline rank `row` that are in proportion to the load."""
    layout, samples = case.programs.layout, max(case.shares)
    jobs = [case.programs.stage_job(stage, samples) for stage in layout.held(row)]
    computed = sum(
        job.micro_batches * (time.forward + time.backward)
        for job in jobs
        for layer, time in zip(job.model.layers, job.times, strict=True)
        if layer.experts
    )
    if layout.moe.overlap:
        return computed
    cast = case.programs.asked
    rank = case.mesh.rank(tensor=0, data=0, pipeline=row)
    sent = [op for op in cast.program(rank).ops if op.group.startswith(EXPERT) and op.exchanges]
    routed = [op for op in sent if op.operation == "all_to_all"]
    return computed + sum(case.costs.of(op, cast.peers(rank, op.group)).seconds for op in routed)
