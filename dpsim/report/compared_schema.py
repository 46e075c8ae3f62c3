"""What `dpsim compare --json` prints, as records of which the schema is made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ComparedJob:
    """A job on a candidate: how often it steps, its share of the time, and its point."""

    name: str
    weight: float
    model: str
    ranks: int
    global_batch: int
    steps: float
    share_of_time: float
    efficiency: float | None
    step_time_s: float
    step_time_low_s: float
    step_time_high_s: float
    exposed_communication_s: float
    bytes_sent_per_rank: float
    memory_bytes: float
    fits: str | None
    bottleneck: str
    throughput_per_s: float | None
    throughput_unit: str


@dataclass(frozen=True)
class ComparedCandidate:
    """A candidate: means over its jobs' steps, sums over their runs, and its chances; null where it
    has no numbers, and `error` says why.  Cost and energy count `spare_nodes` too."""

    name: str
    title: str
    ranks: int | None
    nodes: int | None
    spare_nodes: int | None
    step_time_s: float | None
    compute_s: float | None
    exposed_communication_s: float | None
    bubble_s: float | None
    stall_s: float | None
    bytes_sent_per_rank: float | None
    efficiency: float | None
    bottleneck: str | None
    memory_bytes: float | None
    fits: str | None
    days: float | None
    cost_usd: float | None
    energy_kwh: float | None
    usd_per_hour: float | None
    usd_per_device_hour: float | None
    objective: float | None
    objective_low: float | None
    objective_high: float | None
    probability_best: float
    probability_best_error: float
    expected_regret: float | None
    expected_regret_error: float | None
    expected_regret_usd: float | None
    jobs: tuple[ComparedJob, ...] | None = None
    global_batch: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class ComparedPair:
    """How often the first of two is better; `equal` where they run alike, or
    take the same in every draw."""

    a: str
    b: str
    probability_a_better: float
    probability_a_better_error: float
    equal: bool


@dataclass(frozen=True)
class WorthMeasuring:
    """A measurement: what to run, what it tells of, and what it saves of the expected regret."""

    kind: str
    candidate: str
    what: str
    command: str
    commands: tuple[str, ...]
    causes: tuple[str, ...]
    informs: tuple[str, ...]
    saves: float
    saves_error: float
    saves_usd: float | None
    unit: str
    expected_regret_before: float
    expected_regret_after: float


@dataclass(frozen=True)
class ComparisonAnswer:
    """Candidates that do the same work, how surely which is best, and what to measure."""

    schema_version: int
    dpsim_version: str
    by: str
    unit: str
    work: str
    seed: int
    draws: int
    candidates: tuple[ComparedCandidate, ...]
    pairs: tuple[ComparedPair, ...]
    recommendation: str | None
    runner_up: str | None
    break_even_price_usd: float | None
    measure_next: WorthMeasuring | None
    measurements: tuple[WorthMeasuring, ...]
    warnings: tuple[str, ...]
