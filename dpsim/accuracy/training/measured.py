"""What a row of a table of training runs measured, as the time of a step."""

from __future__ import annotations

import re

from dpsim.accuracy.training.columns import MANY, counted, is_time
from dpsim.accuracy.training.execution import AGAIN, rate_has_again
from dpsim.accuracy.training.table import AGREE, TrainingRow
from dpsim.accuracy.words import vocabulary
from dpsim.cases.case import Case
from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.core.record import Refused

#: share of their peak below which a rate of FLOP is not that of all devices: who publishes FLOP/s
#: has more
_IDLE = 0.1
#: words for a node
_NODES = ("node", "host", "server", "machine", "instance", "vm")
#: tokens of the shortest and the longest sequence that a step may tell
_LENGTHS = (16, 4_194_304)


def measured(row: TrainingRow, case: Case) -> tuple[float, bool]:
    """The measured step time [s] of `row`, played as `case`, and whether `value` is a time.

    Raises Refused where nothing was measured, and where a rate is not that of the step time.
    """
    words = vocabulary().tables
    unit, value, step = row.text("unit"), row.get("value"), row.get("step_time_s")
    timed, of = is_time(unit), counted(unit)
    metric = _metric(row)
    if unit in words.times and not step and _of_other(metric):
        raise Refused(
            f"metric: {row.text('metric')[:60]!r} is no time of a step; step_time_s, or a rate in "
            "value and unit (samples/s), would tell"
        )
    if value and not timed:
        _check_global(row, value, unit)
    if step and step > 0:
        if value and unit in words.times and not _of_other(metric):
            _check_time(value, unit, step)
        elif value and not timed:
            _check_rate(row, case, value, step)
        return step, timed or value is None
    if value is None or value <= 0:
        raise Refused("value: is empty" if value is None else "value: 0 is no measurement")
    if unit in words.times:
        return value * words.times[unit] / _steps_of(metric, case), True
    if of is not None:
        return value * words.times[of.unit] / _steps_in(of.many, of.what, case), True
    return case.global_batch / _samples_per_second(row, case, value, unit), False


def _metric(row: TrainingRow) -> str:
    """What `row` says that it measured, in words: "throughput_per_gpu" too."""
    return row.text("metric").lower().replace("_", " ")


def _of_other(metric: str) -> bool:
    """Whether a time that `metric` tells of is of a whole run, of a part of a step, or of one
    sample, of a GPU's or of all."""
    words = vocabulary().tables
    found = words.time_of.search(metric)
    if found:
        steps = _things(found["what"]) in words.steps
        return not steps and not found["count"]
    whole = words.other_times.search(metric) and not words.of_step.search(metric)
    return bool(whole or words.part_of_step.search(metric))


def _steps_of(metric: str, case: Case) -> float:
    """How many steps of `case` take the time that `metric` tells of: as many as it says, or as so
    many samples or tokens make ("time for 1,024 samples"); one else."""
    words = vocabulary().tables
    found = words.time_of.search(metric)
    if not found:
        return 1.0
    count = float((found["count"] or "1").replace(",", "")) * MANY[found["many"] or ""]
    return _steps_in(count, found["what"], case)


def _steps_in(count: float, what: str, case: Case) -> float:
    """How many steps of `case` so many samples, tokens or steps are."""
    things = _things(what)
    if things in (*vocabulary().tables.steps, "batches"):
        return count
    return count / case.global_batch / (case.model.tokens if things == "tokens" else 1.0)


def _check_global(row: TrainingRow, value: float, unit: str) -> None:
    """Refused where `throughput_global` counts the same things and is another rate than `value`;
    without a unit of its own it may be in samples or in tokens."""
    stated, own = row.get("throughput_global"), row.text("throughput_unit").lower()
    words = vocabulary().tables.throughput
    told = words.fullmatch(unit.lower())
    beside = words.fullmatch(own) if own else told
    if not stated or not told or not beside or _things(told["what"]) != _things(beside["what"]):
        return
    whole = value * (row.gpus if _of_a_gpu(told, row) else 1)
    stated *= row.gpus if own and (beside["per_gpu"] or beside["before"]) else 1
    length = (row.get("seq_len") or 1.0) if not own else 1.0
    if min(abs(whole * by / stated - 1) for by in (1.0, length, 1 / length)) > AGREE:
        raise Refused(
            f"throughput_global: {stated:g} per second is not value {value:g} {unit}, which are "
            f"{whole:g} of all; leave one of them empty"
        )


def _check_time(value: float, unit: str, step: float) -> None:
    """Refused where the time of a step is not the `step` [s] beside it."""
    seconds = value * vocabulary().tables.times[unit]
    if abs(seconds / step - 1) > AGREE:
        raise Refused(
            f"value: {value:g} {unit} is not step_time_s {step:g}; leave one of them empty"
        )


def _check_rate(row: TrainingRow, case: Case, value: float, step: float) -> None:
    """Refused where a rate in samples or tokens is not that of a step of `step` [s] with the batch
    that the row states, tokens counted with their padding; of FLOP too many things are counted to
    tell."""
    unit = row.text("unit")
    match = vocabulary().tables.throughput.fullmatch(unit.lower())
    what = _things(match["what"]) if match else ""
    if not any(map(row.text, ("batch_per_gpu", "global_batch"))):
        return
    if what in ("tokens", *vocabulary().tables.samples):
        rate = _samples_per_second(row, case, value, unit)
        length = row.get("seq_len") if what == "tokens" else None
        rate *= case.model.tokens / length if length else 1.0
        found = case.global_batch / step
        if abs(rate / found - 1) > AGREE:
            raise Refused(
                f"value: {value:g} {unit} is not {case.global_batch:g} samples in step_time_s "
                f"{step:g}, which are {value * found / rate:.4g}"
            )


def samples_of_step(row: TrainingRow, tokens: float | None) -> float | None:
    """The samples, of so many `tokens` each, that `row` says are done in a step: its rate times
    `step_time_s`; None where one of them is not there, or the rate counts other things."""
    words = vocabulary().tables
    value, step = row.get("value"), row.get("step_time_s")
    match = words.throughput.fullmatch(row.text("unit").lower())
    what = _things(match["what"]) if match else ""
    if not (match and value and step) or what not in ("tokens", *words.samples):
        return None
    each = tokens if what == "tokens" else 1.0
    return value * step * (row.gpus if _of_a_gpu(match, row) else 1) / each if each else None


def length_of_step(row: TrainingRow, notes: list[str]) -> int | None:
    """Tokens of a sequence of which nobody says how long it is, where a rate in tokens, the time of
    a step and its batch tell; None where they don't."""
    tokens, batch = samples_of_step(row, 1.0), row.get("global_batch")
    whole = all(row.count(column) == 1 for column in ("tp", "pp", "cp"))
    steps = row.get("grad_accum")
    if batch is None and whole and steps and (own := row.get("batch_per_gpu")):
        batch = own * row.gpus * steps
    unit = row.text("unit").lower()
    if not (tokens and batch and "tok" in unit) or "tok" in row.text("batch_unit").lower():
        return None
    length = round(tokens / batch)
    if not _LENGTHS[0] <= length <= _LENGTHS[1]:
        return None
    notes.append(f"sequences of {length:,} tokens follow from rate, step time and batch")
    return length


def _samples_per_second(row: TrainingRow, case: Case, value: float, unit: str) -> float:
    words = vocabulary().tables
    if words.of_peak.search(unit.lower() if unit != "%" else f"% {row.text('metric').lower()}"):
        return (
            _share_of_peak(case, value, unit)
            * _peak(case)
            * row.gpus
            / case.model.flop_per_sample()
        )
    match = words.throughput.fullmatch(unit.lower())
    if match:
        _require_of_all(row, case)
        per = row.gpus if _of_a_gpu(match, row) else 1
        what = _things(match["what"])
        if what in words.steps:
            return value * case.global_batch
        if what == "tflops":
            per = per if per > 1 else _devices_of(row, case, value * 1e12)
            counted = case.model.flop_per_sample() * (AGAIN if rate_has_again(row) else 1.0)
            return value * 1e12 * per / counted
        if what == "tokens":
            if case.model.tokens <= 1:
                raise Refused(
                    f"unit {unit!r}: samples of {row.text('model')[:60]!r} have no tokens"
                )
            return value * per / case.model.tokens
        if what in words.samples:
            return value * per
    raise Refused(f"unit {unit!r} is not known; write for example samples/s, tokens/s or ms")


def _require_of_all(row: TrainingRow, case: Case) -> None:
    """Refuse a rate that column metric says is of each node, worker or the like: of several."""
    of = vocabulary().tables.per_other.search(_metric(row))
    if of is None or (case.nodes == 1 and of["what"] in _NODES) or row.gpus == 1:
        return
    raise Refused(
        f"metric: {row.text('metric')[:60]!r} is a rate of each {of['what']}; one of all GPUs, or "
        "of each GPU ('throughput per GPU'), is read"
    )


def _share_of_peak(case: Case, value: float, unit: str) -> float:
    """The share of the peak that `value` tells as model FLOP utilisation.

    Raises Refused where it may be a share or percent, and where nobody knows of which peak it is.
    """
    dtype = case.precision.compute
    if "%" not in unit and value <= 1:
        raise Refused(f"unit {unit!r}: {value:g} may be a share; '% MFU' counts percent")
    if not _peak(case) or DTYPE_BYTES[dtype] < 2:  # of 8 bits some count it by the peak of 16
        raise Refused(
            f"unit {unit!r}: of which peak is not known in {dtype}; 'TFLOP/s/GPU' needs none"
        )
    return value / 100


def _devices_of(row: TrainingRow, case: Case, rate: float) -> int:
    """How many times a `rate` of FLOP/s counts that is not said to be one device's: as often as
    there are devices where so few of all would be idle, once where no device could.

    Raises Refused between the two.
    """
    peak = _peak(case)
    if row.gpus == 1 or rate > peak or vocabulary().tables.of_all.search(_metric(row)):
        return 1
    if rate / row.gpus < _IDLE * peak:
        return row.gpus
    raise Refused(
        f"unit {row.text('unit')!r} is of each of {row.gpus} GPUs or of all, which is not said: "
        "'TFLOPS/GPU' is of each, and column metric may say 'total'"
    )


def _peak(case: Case) -> float:
    """What one device can multiply [FLOP/s]; 0 where nobody knows."""
    device, dtype = case.device, case.precision.compute
    return device.peak.get(dtype, 0.0) if device else 0.0


def _of_a_gpu(rate: re.Match[str], row: TrainingRow) -> bool:
    """Whether a rate is one GPU's, as its unit or column metric says."""
    named = vocabulary().tables.per_gpu.search(_metric(row))
    return bool(rate["per_gpu"] or rate["before"] or named)


def counts_one_gpu(row: TrainingRow) -> bool:
    """Whether what was measured of `row` is a rate that is said to be one GPU's."""
    rate = vocabulary().tables.throughput.fullmatch(row.text("unit").lower())
    return bool(rate and row.get("value") and not row.get("step_time_s") and _of_a_gpu(rate, row))


def _things(what: str) -> str:
    """What a rate counts, in the plural."""
    return vocabulary().tables.short.get(what, what.removesuffix("s") + "s")
