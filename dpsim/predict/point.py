"""A point of a prediction, and what it is made of.

JSON, CSV and tables are views of these records.  Attributes have the names of the JSON's keys,
except inside the small records whose keys stand among those of their point.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Annotated, Any

from dpsim.core.lean import dataclass
from dpsim.describe.sampler import DealtEpoch
from dpsim.models.memory import FITS_WORDS as FITS_WORDS
from dpsim.models.memory import FITTING as FITTING
from dpsim.models.memory import UNFIT as UNFIT
from dpsim.models.memory import UNFIT_WORDS as UNFIT_WORDS
from dpsim.models.memory import Fits as Fits
from dpsim.money.currency import CENT, rounded
from dpsim.predict.document import JsonKey, Keyed, Spread
from dpsim.predict.saved import Saved

#: causes -> step time at their two ends, relative to the predicted one
Causes = dict[str, tuple[float, float]]
#: keys of a scenario -> what is set there
Change = Mapping[str, Any]


@dataclass(frozen=True)
class Interval:
    """Bounds of the mean step time at 90 % [s], and what each cause alone would do to it."""

    low: Annotated[float, JsonKey("step_time_low_s")]
    high: Annotated[float, JsonKey("step_time_high_s")]
    causes: Annotated[Causes, JsonKey("interval_causes")]


@dataclass(frozen=True)
class Parts:
    """What the step of the critical rank is made of [s]; the parts sum to the step."""

    compute_s: float
    exposed_communication_s: float
    bubble_s: float
    stall_s: float


@dataclass(frozen=True)
class Sent:
    """What a rank sends in a step, in the mean over all ranks [B]."""

    payload: Annotated[float, JsonKey("bytes_sent_per_rank")]
    padding: Annotated[float, JsonKey("padding_bytes_per_rank")]
    control: Annotated[float, JsonKey("control_bytes_per_rank")]


@dataclass(frozen=True)
class Memory:
    """Memory of the busiest rank [B] and between what it lies in nine of ten runs; whether it fits
    (dpsim.models.memory.Fits) is None where the device is not known."""

    bytes: Annotated[float, JsonKey("memory_bytes")]
    parts: Annotated[dict[str, float], JsonKey("memory_parts")]
    low: Annotated[float, JsonKey("memory_low_bytes")]
    high: Annotated[float, JsonKey("memory_high_bytes")]
    fits: Fits | None

    @property
    def holds(self) -> bool:
        """Whether the step is not taken to need more than there is."""
        return self.fits not in UNFIT


@dataclass(frozen=True)
class BesideStep:
    """What the strategy costs beside its steps, once `per` something; what is not known is None."""

    name: str
    per: str
    seconds: float | None
    at_most_s: float | None


@dataclass(frozen=True)
class FedStep:
    """How the steps of a point are fed.

    input_s          what the loader takes for the batches of a step, left to itself [s]
    exposed_input_s  what of the step passes without a batch [s]; a part of `stall_s`
    limit            what the loader would be limited by: workers, cores, storage or its rate
    starts           of the first steps, from the moment at which the first batch is asked for [s]
    first_batch_s    until the first step of an epoch [s]; the gap between epochs
    epoch_s          a whole epoch with its beginning [s], the second where workers stay; None where
                     epochs do not end
    needed_per_s     samples a second and node without which steps would wait
    reached_per_s    samples a second and node that the loader makes, left to itself
    cores            of a node that preparing what is needed keeps busy, beside those that train;
                     None where only a rate is known
    read             by all nodes, of the storage, in a second [B/s]; read_needed: without waits
    """

    input_s: float
    exposed_input_s: float
    limit: Annotated[str, JsonKey("input_limit")]
    starts: Annotated[tuple[float, ...], JsonKey("loader_starts")]
    first_batch_s: float
    epoch_s: float | None
    needed_per_s: Annotated[float, JsonKey("input_needed_per_s")]
    reached_per_s: Annotated[float, JsonKey("input_reached_per_s")]
    cores: Annotated[float | None, JsonKey("input_cores_per_node")]
    read: Annotated[float | None, JsonKey("storage_bytes_per_s")]
    read_needed: Annotated[float | None, JsonKey("storage_needed_bytes_per_s")]


@dataclass(frozen=True)
class DealtBatch:
    """Samples as they were dealt while training ran.

    step     before which they were dealt, from 0
    step_time_s  of steps with them [s]; None of deals that were not played
    least, most  samples of a micro-batch of the ranks with fewest and most
    samples  of every rank in a micro-batch; None of many ranks
    """

    step: int
    step_time_s: float | None
    least: int
    most: int
    samples: tuple[int, ...] | None


@dataclass(frozen=True)
class TrainingRun:
    """The training run that is asked for, and what it takes."""

    steps: int
    samples: float
    epochs: float | None
    time_s: Annotated[float, JsonKey("time_to_train_s")]
    low_s: Annotated[float, JsonKey("time_to_train_low_s")]
    high_s: Annotated[float, JsonKey("time_to_train_high_s")]
    device_hours: float


@dataclass(frozen=True)
class WithFailures:
    """What failures make of the training run, over drawn runs at the predicted step time.

    ideal_s         without failures and checkpoints; p10_s, p50_s, p90_s: shares of drawn runs
                    that take no longer
    goodput         productive time over all time; `badput` has the rest by label
    interruptions   in the mean over runs; `interruptions_by` what broke
    mtti_s          mean time between interruptions, from what breaks, at the beginning; as
                    drawn where parts break by their age
    spread_s        standard deviation of the runs' times
    in_time         probability of ending by `training.by`, as sure as the step time is
    chances         times since the start [s], rising, each with the probability that the run has
                    ended by then; it is that of `in_time`
    usd_per_useful_sample  what the run costs by the samples it needs
    """

    ideal_s: Annotated[float, JsonKey("time_to_train_ideal_s")]
    p10_s: Annotated[float, JsonKey("time_to_train_p10_s")]
    p50_s: Annotated[float, JsonKey("time_to_train_p50_s")]
    p90_s: Annotated[float, JsonKey("time_to_train_p90_s")]
    spread_s: Annotated[float, JsonKey("time_to_train_spread_s")]
    goodput: float
    badput: dict[str, float]
    drawn_runs: int
    interruptions: float
    interruptions_by: dict[str, float]
    interruptions_per_day: float
    mtti_s: float
    checkpoints: Saved | None = None
    in_time: float | None = None
    chances: tuple[tuple[float, float], ...] = ()
    usd_per_useful_sample: float | None = None


@dataclass(frozen=True)
class RunCost:
    """What the training run costs [usd]."""

    usd: Annotated[float, JsonKey("cost_usd")]
    low: Annotated[float, JsonKey("cost_low_usd")]
    high: Annotated[float, JsonKey("cost_high_usd")]


@dataclass(frozen=True)
class CostItem:
    """A line of the bill."""

    name: str
    basis: str
    usd_per_hour: float
    usd_per_step: float
    usd_per_run: float | None
    usd_per_year: float


@dataclass(frozen=True)
class Cost:
    """The bill of a point, and what a step, a sample, a token, a run and a year cost."""

    usd_per_hour: float
    usd_per_step: float
    usd_per_sample: float
    usd_per_token: float | None
    usd_per_run: float | None
    usd_per_year: float
    items: tuple[CostItem, ...]
    as_of: str | None
    source: str | None

    def adding_up(self, key: str) -> list[Decimal]:
        """The line items' `key` in whole cents, in whole dollars from 1,000 on, and last their sum,
        to which they add up."""
        amounts = [Decimal(repr(getattr(item, key))) for item in self.items]
        shown = rounded(amounts, CENT if sum(amounts) < 1000 else Decimal(1))
        return [*shown, sum(shown, Decimal(0))]


@dataclass(frozen=True)
class RunEnergy:
    """The energy that the training run draws [kWh]."""

    kwh: Annotated[float, JsonKey("energy_kwh")]
    low: Annotated[float, JsonKey("energy_low_kwh")]
    high: Annotated[float, JsonKey("energy_high_kwh")]


@dataclass(frozen=True)
class StartupTime:
    """What passes once, before the first step [s], and by what."""

    seconds: Annotated[float, JsonKey("startup_s")]
    parts: Annotated[dict[str, float], JsonKey("startup_parts")]


@dataclass(frozen=True)
class Period:
    """A round of local steps: how many there are, and what each takes [s]."""

    steps: int
    step_times_s: tuple[float, ...]


@dataclass(frozen=True)
class LocalRound:
    """What a step is the mean of, where steps are local; `utilisation` is its share of compute."""

    period: Period
    utilisation: float


@dataclass(frozen=True)
class Staleness:
    """How many updates others made while a gradient was computed, over all gradients that counted;
    per_worker: in the mean over each worker's, None of one that brought none."""

    mean: float
    p50: float
    p99: float
    per_worker: tuple[float | None, ...]


@dataclass(frozen=True)
class ServerUse:
    """A parameter server.

    bytes     of the parameters that it holds
    busy      share of the time that it works, of what works on one push after the other; None
              where all are worked on at once
    wait_s    what a push waits for it in the mean [s]
    received, sent  share of what its link carries that comes to it and that it sends; None on a
              network that carries any amount, and over several sites
    """

    bytes: float
    busy: float | None
    wait_s: float
    received: float | None
    sent: float | None


@dataclass(frozen=True)
class Asynchrony:
    """What workers that decide while they run made of their time.

    clocks         that each worker ended while it was played
    played_s       how long was played
    updates_per_s  updates of the parameters
    wasted         share of all gradients that were dropped
    staleness      None where no gradient was an update by itself: `mode: sync` drops stale ones
    spent          shares of the workers' time, by what it went to
    crossing_bytes_per_s  over each link between sites, from one to the other; None: one site
    """

    clocks: tuple[int, ...]
    played_s: float
    updates_per_s: float
    wasted: float
    spent: dict[str, float]
    staleness: Staleness | None = None
    servers: tuple[ServerUse, ...] = ()
    notes: dict[str, dict[str, float]] | None = None
    crossing_bytes_per_s: dict[str, dict[str, float]] | None = None


@dataclass(frozen=True, kw_only=True)
class Point(Keyed):
    """What is predicted for one point of a scenario.

    throughput_per_s  in `throughput_unit`; None where a step takes no time
    mfu               model FLOP utilisation; None where nothing is known of the device
    bound_s           no schedule of the same program is faster
    set               what the sweep sets here
    speedup           over the first point of the run; None where there is no throughput
    efficiency        over the first point that differs in its ranks only; None where no other
                      point has another number of them
    """

    ranks: int
    nodes: int | None
    global_batch: int
    engine: str
    engine_reason: str
    step_time_s: float
    interval: Annotated[Interval, Spread()]
    step_p50_s: float
    step_p99_s: float
    throughput_per_s: float | None
    throughput_unit: str
    mfu: float | None
    parts: Annotated[Parts, Spread()]
    sent: Annotated[Sent, Spread()]
    memory: Annotated[Memory, Spread()]
    bound_s: float
    cost_usd_per_hour: float | None
    bottleneck: str
    beside_step: tuple[BesideStep, ...] = ()
    input: Annotated[FedStep | None, Spread()] = None
    rebalancing: tuple[DealtBatch, ...] | None = None
    round: Annotated[LocalRound | None, Spread()] = None
    asynchrony: Annotated[Asynchrony | None, Spread()] = None
    run: Annotated[TrainingRun | None, Spread()] = None
    life: Annotated[WithFailures | None, Spread()] = None
    epoch: DealtEpoch | None = None
    money: Annotated[RunCost | None, Spread()] = None
    cost: Cost | None = None
    power_w: float | None = None
    energy: Annotated[RunEnergy | None, Spread()] = None
    startup: Annotated[StartupTime | None, Spread()] = None
    set: Change
    training_speedup: float | None = None
    speedup: float | None
    efficiency: float | None
    efficiency_low: float | None
    efficiency_high: float | None


@dataclass(frozen=True, kw_only=True)
class Failed(Keyed):
    """A point that has no numbers, and why; its counts are None where they are not known."""

    ranks: int | None
    nodes: int | None
    global_batch: int | None
    error: str
    set: Change


@dataclass(frozen=True, kw_only=True)
class Chosen(Keyed):
    """A point of which some columns were asked for; nothing else was worked out."""

    ranks: int
    nodes: int | None
    global_batch: int
    engine: str
    columns: Annotated[Mapping[str, Any], Spread()]
    set: Change


def computed(points: Iterable[Point | Failed | Chosen]) -> list[Point]:
    """Those of `points` that have numbers."""
    return [point for point in points if isinstance(point, Point)]
