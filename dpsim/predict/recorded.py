"""What to know about a prediction that rests on a record: where it is more than what was seen."""

from __future__ import annotations

from collections.abc import Iterator

from dpsim.cases.case import Case
from dpsim.core.units import show
from dpsim.models import Buckets, Recorded
from dpsim.models.recording import same_device

#: share of the recorded step from which what hooks cost, or a wait, is worth a warning
HOOKS = 0.05


def measured_at(case: Case) -> int | None:
    """Ranks at which compute was measured, without `calibrate`: one where layers state their
    durations on a machine, or where those of a record are played on the recorded device; else
    None."""
    recorded = case.model.recorded
    if recorded is not None:
        return 1 if recorded.timed and _at_home(case, recorded) else None
    stated = all(layer.forward is not None for layer in case.model.layers)
    return 1 if stated and case.machine is not None else None


def warnings_of(case: Case) -> list[str]:
    """What of `case` differs from its record, or rests on something else than it."""
    recorded = case.model.recorded
    if recorded is None:
        return []
    return [
        *_device(case, recorded), *_batch(case, recorded), *_hooks(recorded), *_memory(recorded),
        *_buckets(case, recorded),
    ]  # fmt: skip


def _at_home(case: Case, recorded: Recorded) -> bool:
    return case.device is None or same_device(recorded.device, case.device.name)


def _device(case: Case, recorded: Recorded) -> Iterator[str]:
    if not recorded.timed:
        own = recorded.step - recorded.between
        computing = case.pace.seconds(recorded.batch)
        yield (
            f"durations are modelled from the recorded FLOP and traffic: computing takes "
            f"{show(computing, 's')} where {recorded.device} took {show(own, 's')}; what the host "
            "needs to issue it was not recorded (host: {launch: …})"
        )
        if recorded.between > HOOKS * recorded.step:
            yield (
                f"the recorded step waited {show(recorded.between, 's')} between its optimizer and "
                "the next forward, for data most likely; that is kept as host time, and workers "
                "that load ahead would hide some of it"
            )
    elif case.device is not None and not _at_home(case, recorded):
        here = case.device.name
        yield f"durations were recorded on {recorded.device}, and are played as {here}'s"


def _batch(case: Case, recorded: Recorded) -> Iterator[str]:
    other = sorted({share for share in case.shares if share != recorded.batch})
    if other:
        yield (
            f"recorded with {recorded.batch} samples per step and played with {other[0]}: "
            "durations are taken to grow in proportion"
        )


def _hooks(recorded: Recorded) -> Iterator[str]:
    if recorded.timed and recorded.step > recorded.plain_step * (1 + HOOKS):
        cost, plain = recorded.step / recorded.plain_step - 1, show(recorded.plain_step, "s")
        yield (
            f"the played step of the record is {cost:.0%} longer than its steps without hooks "
            f"({plain}); calibrate: {{step_time: …, ranks: 1}} sets that right"
        )


def _memory(recorded: Recorded) -> Iterator[str]:
    if recorded.frozen_bytes:
        size = show(float(recorded.frozen_bytes), "B")
        yield f"memory leaves out {size} of parameters that need no gradient"


def _buckets(case: Case, recorded: Recorded) -> Iterator[str]:
    """Whether the strategy's rule gives the buckets that were recorded."""
    strategy, job = case.scenario.strategy, case.job(max(case.shares))
    if not strategy.recorded_buckets:
        yield "the record is of DistributedDataParallel; its own buckets are not compared"
        return
    for what, iteration, theirs in (
        ("iteration 1", 1, recorded.first_buckets),
        ("the steady state", None, recorded.buckets),
    ):
        program = strategy.program(job, iteration)
        ours = tuple((size, names) for _, size, names in program.buckets)
        if ours != theirs:
            differs = _difference(ours, theirs)
            yield f"buckets of {what} are not the recorded ones: {differs}"


def _difference(ours: Buckets, theirs: Buckets) -> str:
    sizes = [[size for size, _ in buckets] for buckets in (ours, theirs)]
    if sizes[0] != sizes[1]:
        shown = [", ".join(f"{size / 1e6:.4g}" for size in part[:8]) for part in sizes]
        return f"{shown[0]} MB, recorded {shown[1]} MB"
    return "same bytes, other parameters or another order in them"
