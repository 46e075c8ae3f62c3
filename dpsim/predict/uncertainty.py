"""How sure is a prediction: 90 % intervals from what is not known.

A cause is a factor on the step time at each end; causes are independent, so their logarithms add in
quadrature.  How wide each is was learned from what this model misses on all published runs, with
the least interval score, and judged on sources that were left out; constants of the model had seen
half of the series (validation/left_out.py; in ``dpsim/core/fitted``: `training`,
`collective_error`):

compute, uncalibrated  the wider the more a step takes over its multiplications at the peak
                       (`widths.overhead`), and on devices after Ampere; learned on whole steps, so
                       that compute, collectives, input and overheads together reach as far as that,
                       and never beyond
overheads              what of that the other three leave: launches, memory traffic, bubbles and
                       exposed communication of a step that reaches little of its peak
run to run             what a calibrated prediction misses however little there is to predict; at
                       the calibrated count itself repeated published points differ by up to 3 %
collectives            the range of all collectives of a step together, which is not that of a
                       single one: their errors average, and some of them nobody waits for
collectives, measured  the curve's own spread, at least 3 %, where curves serve all of them on
                       their own group; in between elsewhere (dpsim/cases/coverage.py)
input pipeline         loss per doubling inside a node of runs on images, whose decoding all GPUs of
                       a node share, by how far they take more than any host decodes; not where the
                       scenario says that it is no limit
loader                 what a described loader takes more or less, where steps wait for it
another batch          per doubling of a rank's samples since the calibrated run (kernels' shapes),
                       of which no more than one counts
split model            where tensor, pipeline or context ranks share a model or its sequences, whose
                       exchanges and bubbles more can go wrong in
other compute          half of what another device, dtype or kernel than the calibrated run's is
                       modelled to change, and no more than without a calibration (prior)
departure              whether the step is far from linear scaling of the calibrated one, by which a
                       prediction can be wrong at all, times what it takes over its multiplications
doubted calibration    a calibrated step far longer than predicted may have been that run's alone:
                       down to what the model says without it (`widths.DOUBTED`)
routing                between what the load of the fullest rank is thought to lie where a router
                       shares out tokens, times what it multiplies (dpsim/compile/routing.py)
stand-in               what a model of that size may do otherwise than equal blocks (`Doubt`)
lengths of texts       between half and all of their longest, where they vary (`Doubt`)
slices                 per doubling of slices of TPUs since the calibrated run, which cost more than
                       their links take (docs/howto/tpus.md)
others' losses         where code is typical, what lets a calibrated step on other counts reach as
                       far as those of sources that nobody had looked at (A103)
little known device    per root of the doublings of ranks since the calibrated run, where no runs
                       tell the share of peak that such devices reach in such dtypes

A measured step tells how slow a run is, and nothing of devices that would be faster than others:
where a calibrated interval reaches below the fast end of the same step uncalibrated, its causes are
drawn in there, but no nearer than runs differ.

Backends that are not NCCL have a prior for collectives, x 0.85 ... 1.8: NCCL's own model predicts
0.56-1.1 of measured times at large sizes over eight machines.  Durations that a scenario gives for
a machine count as measured on one rank.  Only a toy without a machine, with explicit durations and
an ideal network, has none of these: its interval is the number, and a warning says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dpsim.cases.case import Case
from dpsim.cases.coverage import network_range
from dpsim.cases.plays import Stretch
from dpsim.cases.typical_code import carried_ends, is_typical
from dpsim.core import plugins
from dpsim.predict.drawn import drawn
from dpsim.predict.player import Played, lane_times
from dpsim.predict.point import Causes, Interval
from dpsim.predict.routing import causes_of_experts
from dpsim.predict.widths import (
    SLICES,
    changed_range,
    compute_range,
    departure,
    doublings_inside,
    doubt_of,
    fed,
    slices_since,
    split_range,
    stands_in,
    step_range,
    width,
)

NETWORK_PRIOR = (0.85, 1.8)
#: time of offloaded updates: dual-socket servers sustain 60 to 170 GB/s, where 100 are taken
HOST_PRIOR = (0.6, 1.7)
REPEATED = (0.97, 1.03)
COMPUTE, OVERHEADS = "compute (prior)", "overheads (prior)"
CHANGED, OTHERS = "other compute (prior)", "others' losses (prior)"
DEPARTURE, DOUBTED, SPLIT = "departure", "doubted calibration", "split model"
#: the least factor of a cause: nothing is infinitely surprising
_LEAST = 1e-3

#: (case, its variants, how it was played) -> their step times
Lanes = Callable[[Case, Sequence[Stretch], Played], list[float]]


def interval(
    case: Case,
    played: Played,
    calibrated_at: int | None,
    lanes: Lanes = lane_times,
    *,
    repeated: bool = True,
    batches: float | None = None,
    changed: float = 0.0,
    fitted: Causes | None = None,
    linear: float | None = None,
    fullest: int | None = None,
) -> Interval:
    """The interval around `played`; independent causes add in quadrature.

    lanes     what tells the step times of variants of a case
    repeated  at the calibrated count the very run was measured, not one of another mesh or batch
    batches   doublings of a rank's samples since the calibrated run; None: as the scenario's batch
              has it, which is for all ranks together or for each
    changed   logarithm by which a FLOP is computed faster or slower than in the calibrated run
    fitted    causes that a calibration on several points has left, instead of those of one
    linear    the step by linear scaling of the calibrated one [s]; None: what ranks compute in it,
              where layers were measured and no step
    fullest   the most ranks that measured steps have shown to be fed; None: the calibrated one's
    """
    time, same = played.step_time, calibrated_at == case.ranks and repeated
    away = calibrated_at is not None and not same
    bare = fitted is not None and case.scenario.calibration is None
    causes = {} if bare else _of_variants(case, played, calibrated_at, lanes)
    if case.machine is not None or calibrated_at is not None:
        causes |= _losses(case, calibrated_at, same, batches)
        causes |= _input_range(case, fullest or calibrated_at or 1, time)
    causes |= _from_linear(case, played, linear) if away else {}
    causes |= _changed(case, played, changed)
    causes = _told(_whole(causes, case, time), fitted)
    if away and fitted is None:
        causes = _as_others(_no_faster(causes, case, played, lanes), case)
    causes |= _beside(case, played, calibrated_at, same, fed=same and linear is not None)
    low, high = _quadrature(causes)
    return Interval(time * low, time * high, causes)


def _changed(case: Case, played: Played, changed: float) -> Causes:
    """What another model, dtype or other kernels than the calibrated run's may change less or more
    than is modelled."""
    if not changed or not played.step_time > 0:
        return {}
    share = min(played.timeline.mean_split().compute / played.step_time, 1.0)
    return {CHANGED: changed_range(case, changed, share)}


def _beside(
    case: Case, played: Played, calibrated_at: int | None, same: bool, *, fed: bool
) -> Causes:
    """What is unsure beside compute and collectives, whether a step was measured or not, or the
    `same` was, and with it how it was `fed`."""
    found, time = {} if same else _doubts(case, calibrated_at is None), played.step_time
    if more := slices_since(case, calibrated_at):
        found["slices (prior)"] = (min(SLICES**more, 1.0), max(SLICES**more, 1.0))
    if calibrated_at is None:
        found |= causes_of_experts(case, time)
    if case.scenario.strategy.on_device() is not case.scenario.strategy and time > 0:
        found["host (prior)"] = _host_range(case, time)
    return found | (drawn(case, played, calibrated_at, fed) if time > 0 else {})


def _of_variants(case: Case, played: Played, calibrated_at: int | None, lanes: Lanes) -> Causes:
    """What scales compute or collectives, by the steps with them scaled."""
    variants, time = _variants(case, calibrated_at), played.step_time
    asked = [v for group in variants.values() for v in group]
    if not asked or time <= 0:
        return {}
    flat = [one / time for one in lanes(case, asked, played)]
    return dict(zip(variants, zip(flat[::2], flat[1::2], strict=True), strict=True))


def efficiency_interval(first: Causes, point: Causes) -> tuple[float, float]:
    """Bounds of an efficiency or speed-up over the `first` point, relative to it.

    A cause moves both steps in the same direction, so only what it does to their ratio counts;
    sampling is independent, and what is doubted of a calibrated run is doubted of both.
    """
    ratios: Causes = {}
    for name, (low, high) in point.items():
        if name == DOUBTED:
            continue
        base = first.get(name, (1.0, 1.0)) if name != "sampling" else (1.0, 1.0)
        ratios[name] = (base[0] / low if low > 0 else 1.0, base[1] / high)
    return _quadrature(ratios)


def _quadrature(causes: Causes) -> tuple[float, float]:
    """The factors that the causes lead to together: at most 1, and at least 1."""
    below = [math.log(min(max(min(ends), _LEAST), 1.0)) for ends in causes.values()]
    above = [math.log(max(max(ends), 1.0)) for ends in causes.values()]
    return math.exp(-math.hypot(*below, 0.0)), math.exp(math.hypot(*above, 0.0))


def _variants(case: Case, calibrated_at: int | None) -> dict[str, list[Stretch]]:
    found: dict[str, list[Stretch]] = {}
    if case.machine is not None and calibrated_at is None:
        found[COMPUTE] = [Stretch(compute=f) for f in compute_range(case, False)]
    if not case.backend.ideal and case.ranks > 1:
        prior = collectives_range(case, carried=calibrated_at is not None)
        name, ends = network_range(case, prior)
        found[name] = [Stretch(latency=f, transfer=f) for f in ends]
    return found


def _from_linear(case: Case, played: Played, linear: float | None) -> Causes:
    """What a calibrated step need not have in common with the measured one."""
    base = played.timeline.mean_split().compute if linear is None else linear
    way, doubt = departure(case, played.step_time, base), doubt_of(case)
    found: Causes = {}
    if way > 0:
        found[DEPARTURE] = (width("departure.fast") ** -way, width("departure.slow") ** way)
    if doubt > 0:
        found[DOUBTED] = (math.exp(-doubt), 1.0)
    return found


def _no_faster(causes: Causes, case: Case, played: Played, lanes: Lanes) -> Causes:
    """`causes` of a calibrated step, drawn in at the fast end to that of the same step
    uncalibrated, where the layers of the model are known."""
    level, time = case.compute_scale, played.step_time
    if case.machine is None or stands_in(case) or level <= 0 or time <= 0:
        return causes
    [bare] = lanes(case, [Stretch(compute=1.0 / level)], played) if level != 1.0 else [time]
    low, least = _quadrature(causes)[0], bare * step_range(case, bare)[0] / time
    least = min(least, 1.0 / width("run.fast"))
    if not low < least:
        return causes
    share = math.log(least) / math.log(low)
    return {
        name: (max(min(ends), _LEAST) ** share, max(ends)) if min(ends) < 1.0 else ends
        for name, ends in causes.items()
    }


def _as_others(causes: Causes, case: Case) -> Causes:
    """`causes` of a calibrated step, where code is typical with what lets them reach together as
    far as calibrated steps of other sources did: slow loaders and networks, links that are not what
    they seem."""
    if not case.scenario.compute.typical:
        return causes
    ends = carried_ends(case.topology.nodes if case.topology else 1)
    fast, slow = (
        math.sqrt(max(math.log(end) ** 2 - math.log(own) ** 2, 0.0))
        for end, own in zip(ends, _quadrature(causes), strict=True)
    )
    return {**causes, OTHERS: (math.exp(-fast), math.exp(slow))}


def _told(causes: Causes, fitted: Causes | None) -> Causes:
    """`causes` with those that several points have left, which have told whether one is odd."""
    if fitted is None:
        return causes
    return {name: c for name, c in causes.items() if name not in (DOUBTED, SPLIT)} | fitted


def _whole(causes: Causes, case: Case, time: float) -> Causes:
    """`causes` of an uncalibrated step, as wide together as whole steps were found to be: drawn in
    where they reach farther, and with its overheads for the rest; the compute of typical code
    reaches as far as it does, and all else as in steps of tuned code."""
    if COMPUTE not in causes:
        return causes
    found, others = dict(causes), [name for name in causes if name != COMPUTE]
    rest, typical = [1.0, 1.0], is_typical(case.scenario)
    for side, end in enumerate(step_range(case, time)):
        logs = {name: math.log(max(found[name][side], _LEAST)) for name in causes}
        whole = abs(math.log(end))
        compute = 0.0 if typical else min(abs(logs[COMPUTE]), whole)
        room = math.sqrt(max(whole**2 - compute**2, 0.0))
        reach = math.hypot(*(logs[name] for name in others))
        drawn = {} if typical else {COMPUTE: math.copysign(compute, math.log(end))}
        if reach > room:
            drawn |= {name: logs[name] * room / reach for name in others}
        for name, log in drawn.items():
            ends = list(found[name])
            ends[side] = math.exp(log)
            found[name] = (ends[0], ends[1])
        left = math.sqrt(max(room**2 - reach**2, 0.0))
        rest[side] = math.exp(math.copysign(left, math.log(end)))
    return {**found, OVERHEADS: (rest[0], rest[1])}


def collectives_range(case: Case, *, carried: bool = False) -> tuple[float, float]:
    """By what factors the time of all collectives may be off where nothing was measured; less in a
    step that was `carried` from a calibrated one, at other counts beside its departure from linear
    scaling."""
    if plugins.name_of(case.backend) != "nccl":
        return NETWORK_PRIOR
    name = "carried" if carried else "network"
    return width(f"{name}.fast"), width(f"{name}.slow")


def _host_range(case: Case, time: float) -> tuple[float, float]:
    """By what factors a step may be off where the host updates: its work waits for nothing."""
    ops = case.programs.asked.program(0).ops
    share = sum(op.seconds for op in ops if op.kind == "serial") / time
    low, high = HOST_PRIOR
    return 1.0 - (1.0 - low) * share, 1.0 + (high - 1.0) * share


def _losses(case: Case, calibrated_at: int | None, same: bool, batches: float | None) -> Causes:
    """What no part of the model explains, by how far the case is from the calibrated count."""
    found: Causes = {}
    if same:
        found["run to run"] = REPEATED
    elif calibrated_at is not None:
        found["run to run"] = compute_range(case, True)
        if ends := split_range(case):
            found[SPLIT] = ends
        found |= _away(case, calibrated_at, batches)
    return found


def _input_range(case: Case, start: int, time: float) -> Causes:
    """What reading and decoding may cost in a step of `time` that neither `start` ranks nor the
    scenario have told."""
    inside = doublings_inside(case, start) * fed(case, time) if case.topology else 0.0
    given = case.scenario.input
    if case.model.sample != "image" or not inside or not (given is None or given.assumed):
        return {}
    return {"input pipeline": (1.0, 1.0 + inside * (width("images.slow") - 1.0))}


def _doubts(case: Case, uncalibrated: bool) -> Causes:
    """What is not known of the model itself."""
    doubts = case.model.doubts
    return {doubt.cause: doubt.level if uncalibrated else doubt.growth for doubt in doubts}


def _away(case: Case, calibrated_at: int, batches: float | None) -> Causes:
    """What grows with the way from the calibrated run, in ranks and in a rank's samples."""
    ranks = abs(math.log2(case.ranks / calibrated_at))
    if batches is None:
        batches = 0.0 if case.scenario.batch.per_device is not None else ranks
    way = min(abs(batches), 1.0)
    if not way:
        return {}
    return {"another batch": (width("batch.fast") ** -way, width("batch.slow") ** way)}
