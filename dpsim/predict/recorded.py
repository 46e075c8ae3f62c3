"""What to know about a prediction that rests on a record: where it is more than what was seen."""

from __future__ import annotations

from dpsim.cases.case import Case
from dpsim.core.units import show
from dpsim.models import Buckets, Recorded
from dpsim.models.recording import same_device

#: hooks that slow the recorded step by more than this share are worth a warning
HOOKS = 0.05


def measured_at(case: Case) -> int | None:
    """Ranks at which compute was measured: one where the record's durations are played as they
    were recorded, on the recorded device; else None."""
    recorded = case.model.recorded
    if recorded is None or not recorded.timed or not _at_home(case, recorded):
        return None
    return 1


def warnings_of(case: Case) -> list[str]:
    """What of `case` differs from its record, or rests on something else than it."""
    recorded = case.model.recorded
    if recorded is None:
        return []
    return [
        *_device(case, recorded),
        *_batch(case, recorded),
        *_hooks(recorded),
        *_memory(recorded),
        *_buckets(case, recorded),
    ]


def _at_home(case: Case, recorded: Recorded) -> bool:
    return case.device is None or same_device(recorded.device, case.device.name)


def _device(case: Case, recorded: Recorded) -> list[str]:
    if not recorded.timed:
        return [
            f"durations are modelled from the recorded FLOP and traffic; the record's own, of "
            f"{recorded.device}, are not used"
        ]
    if not _at_home(case, recorded):
        assert case.device is not None
        return [
            f"durations were recorded on {recorded.device}, and are played as {case.device.name}'s"
        ]
    return []


def _batch(case: Case, recorded: Recorded) -> list[str]:
    other = sorted({share for share in case.shares if share != recorded.batch})
    if not other:
        return []
    return [
        f"recorded with {recorded.batch} samples per step and played with {other[0]}: durations "
        "are taken to grow in proportion"
    ]


def _hooks(recorded: Recorded) -> list[str]:
    if not recorded.timed or recorded.step <= recorded.plain_step * (1 + HOOKS):
        return []
    cost = recorded.step / recorded.plain_step - 1
    return [
        f"the played step of the record is {cost:.0%} longer than its steps without hooks "
        f"({show(recorded.plain_step, 's')}); calibrate: {{step_time: …, ranks: 1}} sets that right"
    ]


def _memory(recorded: Recorded) -> list[str]:
    if not recorded.frozen_bytes:
        return []
    size = show(float(recorded.frozen_bytes), "B")
    return [f"memory leaves out {size} of parameters that need no gradient"]


def _buckets(case: Case, recorded: Recorded) -> list[str]:
    """Whether the strategy's rule gives the buckets that were recorded."""
    strategy = case.scenario.strategy
    if not strategy.recorded_buckets:
        return ["the record is of DistributedDataParallel; its own buckets are not compared"]
    job = case.job(max(case.shares))
    found = []
    for what, iteration, theirs in (
        ("iteration 1", 1, recorded.first_buckets),
        ("the steady state", None, recorded.buckets),
    ):
        program = strategy.program(job, iteration)
        ours = tuple((size, names) for _, size, names in program.buckets)
        if ours != theirs:
            found.append(
                f"buckets of {what} are not the recorded ones: {_difference(ours, theirs)}"
            )
    return found


def _difference(ours: Buckets, theirs: Buckets) -> str:
    sizes = [[size for size, _ in buckets] for buckets in (ours, theirs)]
    if sizes[0] != sizes[1]:
        shown = [", ".join(f"{size / 1e6:.4g}" for size in part[:8]) for part in sizes]
        return f"{shown[0]} MB, recorded {shown[1]} MB"
    return "same bytes, other parameters or another order in them"
