"""What is not known of a router, how full the fullest rank will be; and of many small experts, how
far their kernels and the host that launches them fall behind.

Small products and the host are what NVIDIA names as the wall of computing of such models
(Megatron-Bridge, `docs/training/moe-optimization.md`, "Small expert GEMMs + host overhead").  How
much that is no source says as a rule.  A layer with 32, 64 and 128 experts (2,048 wide, experts of
768, 8 to a token: the same arithmetic) took 22.82, 15.52 and 12.41 ms on eight H100
(marin-community/marin, issue 4311, Megatron-LM with DeepEP), so up to 1.84 times as long; and
without a second sorting of tokens a step reached 95 TFLOP/s in place of 82
(NVIDIA/Megatron-LM, pull request 7204).  How much longer it may take is learned from published
steps (`experts.slow`, by `validation/experts.py`), and how far these lie from what is predicted of
them (`experts.least`, `experts.median`, `experts.most`) is said beside such predictions.
"""

from __future__ import annotations

from dpsim.cases.case import Case
from dpsim.compile.routing import EXPERT, Moe
from dpsim.core.constants import shipped
from dpsim.predict.widths import compute_range

SMALL_EXPERTS = "small experts (prior)"
#: experts from which on a layer has many: the least number of layers of equal arithmetic (above)
MANY = 32
#: what published steps of such models ran on: H100, B200, B300, GB200 and GB300
GENERATIONS = ("hopper", "blackwell")


def causes_of_experts(case: Case, time: float) -> dict[str, tuple[float, float]]:
    """By what factors an uncalibrated step of `time` may be off for its experts, by cause."""
    found = {"routing (prior)": routing_range(case, time), SMALL_EXPERTS: experts_range(case, time)}
    return {cause: ends for cause, ends in found.items() if ends is not None}


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


def experts_range(case: Case, time: float) -> tuple[float, float] | None:
    """By what factors a step of `time` may be off because its experts are many and small; None
    where they are few, or their durations are stated."""
    if not _many(case) or time <= 0:
        return None
    computed = max(_computed(case, row) for row in range(case.mesh.pipeline))
    return 1.0, 1.0 + min(computed / time, 1.0) * (behind() - 1.0)


def behind() -> float:
    """How many times as long many small experts may take [1]."""
    return shipped("training")["experts.slow"].value


def _many(case: Case) -> bool:
    """Whether a layer has many experts, and its durations are derived."""
    derived = (layer.experts for layer in case.model.layers if layer.forward is None)
    return case.machine is not None and max(derived, default=0) >= MANY


def _as_published(case: Case) -> bool:
    """Whether `case` is like the published steps with many experts, which ran a library's kernels,
    at rates of their own, on devices of `GENERATIONS`."""
    alike = case.pace.at_rates and any(layer.library for layer in case.model.layers)
    newer = case.device is not None and case.device.generation in GENERATIONS
    return alike and newer and _many(case)


def found_of_experts(case: Case) -> str | None:
    """What published steps of models with many experts were beside their predictions; None where
    there are few, their durations are stated, or these rows are of other predictions."""
    if not _as_published(case):
        return None
    known = shipped("training")
    own = [known[f"experts.{which}"] for which in ("least", "median", "most")]
    least, middle, most = (f"{constant.value:.3g}" for constant in own)
    return (
        f"many experts: {own[0].n} published steps of such models took {least} to {most} times "
        f"what is predicted of them without calibration, {middle} times in the median; calibrate "
        "on a step of your own"
    )


def level_range(case: Case) -> tuple[float, float]:
    """Between what measured steps lie over uncalibrated predictions, for 9 of 10 published runs; of
    models with many experts, which are behind for no fault of a machine, for all."""
    low, high = compute_range(case, False)
    if not _as_published(case):
        return low, high
    known = shipped("training")
    return min(low, known["experts.least"].value), max(high, known["experts.most"].value)


def _computed(case: Case, row: int) -> float:
    """Seconds of a step in which pipeline rank `row` computes experts."""
    layout, samples = case.programs.layout, max(case.shares)
    jobs = [case.programs.stage_job(stage, samples) for stage in layout.held(row)]
    passes = case.batch.accumulation // layout.schedule.pipes
    return sum(
        passes * (time.forward + time.backward)
        for job in jobs
        for layer, time in zip(job.model.layers, job.times, strict=True)
        if layer.experts
    )


def _loaded(case: Case, row: int) -> float:
    """Seconds of a step of pipeline rank `row` that are in proportion to the load."""
    layout, computed = case.programs.layout, _computed(case, row)
    if layout.moe.overlap:
        return computed
    cast = case.programs.asked
    rank = case.mesh.rank(tensor=0, data=0, pipeline=row)
    sent = [op for op in cast.program(rank).ops if op.group.startswith(EXPERT) and op.exchanges]
    routed = [op for op in sent if op.operation == "all_to_all"]
    return computed + sum(case.costs.of(op, cast.peers(rank, op.group)).seconds for op in routed)
