"""The answer in sentences: what comes out, why, and what would make it fit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from statistics import median

from dpsim.core.units import dollars, show
from dpsim.predict.answer import Advice, Answer, NoLaws
from dpsim.predict.fit import FittedNumber
from dpsim.predict.level import Level
from dpsim.predict.point import FITS_WORDS, UNFIT_WORDS, FedStep, Interval, Point, computed
from dpsim.predict.unmeasured import whose
from dpsim.report import behaved, lived
from dpsim.report.bending import bend
from dpsim.report.points import interval, place, rate, settings, spoken_of
from dpsim.report.text import PARTS, between, clean, duration, number, percent, ranks, signed

#: what fitted numbers are of
NUMBERS = {
    "between": "collectives between nodes",
    "inside": "collectives inside a node",
    "spread": "spread of ranks",
    "launch": "host launch of kernels",
    "host_s": "host time per step",
    "compute": "compute",
}
#: what limits a loader
LIMITS = {
    "workers": "its workers",
    "cores": "the cores of a node",
    "storage": "its storage",
    "rate": "its rate",
}
#: least share of its prior's variance that points took from a number that is worth telling
TOLD = 0.1


def scaling_title(answer: Answer) -> str:
    """Which kind of scaling it is and what is held constant, always."""
    held = answer.held_constant.replace("1 samples", "1 sample")
    return f"{answer.scaling.capitalize()} scaling: {clean(held)} held constant"


def titles(answer: Answer) -> list[str]:
    """What stands above the points: what is held constant, the machine, its products' dtype."""
    if not answer.machine:
        return [scaling_title(answer)]
    products = f", products in {answer.products}" if answer.products else ""
    return [scaling_title(answer), f"On {clean(answer.machine)}{products}"]


def headline(answer: Answer) -> str:
    """The answer in one sentence."""
    good = [p for p in computed(answer.points) if p.speedup is not None]
    if not good:
        return "No point of this scenario has a throughput."
    first, last = good[0], spoken_of(good) or good[0]
    if last.ranks == first.ranks:
        told = f"On {place(last)} a step takes {_sure(last, answer)}: {rate(last)}."
        return told + _asked(last, answer) + _unfit(answer)
    times = number(last.ranks / first.ranks)
    start = place(first) if settings(first) else f"{first.ranks:,}"
    grown = last.speedup or 0.0
    if settings(first) != settings(last) and last.efficiency:  # compared with ranks set up alike
        grown = last.efficiency * last.ranks / first.ranks
    told = (
        f"From {start} to {place(last)} ({times} times as many) throughput "
        f"grows {number(grown)}-fold to {rate(last)}: efficiency {_share(last)}"
        f", a step of {_sure(last, answer)}."
    )
    return told + _asked(last, answer) + _unfit(answer)


def _interval_of(answer: Answer) -> str:
    """What an interval is of: without a measured step, of tuned code or typical one."""
    return f"90 % interval{whose(answer.warnings)}"


def _asked(point: Point, answer: Answer) -> str:
    """What the training run takes and costs, where that was asked for, with their intervals."""
    if point.run is None:
        return ""
    ends = between(duration(point.run.low_s), duration(point.run.high_s))
    of = "of steps and failures together" if point.life else "as its steps'"
    text = (
        f" Training then takes {duration(point.run.time_s)} ({_interval_of(answer)} {ends}, {of})"
    )
    if point.money:
        low, high = (dollars(usd) for usd in (point.money.low, point.money.high))
        text += f" and costs {dollars(point.money.usd)} ({between(low, high)})"
    return text + "."


def widest_cause(found: Interval) -> str:
    """The cause that widens an interval most, by the ratio of its two ends; "" where there is
    none."""
    widths = {name: max(pair) / max(min(pair), 1e-9) for name, pair in found.causes.items()}
    widest = max(widths, key=lambda name: widths[name], default="")
    return widest if widths.get(widest, 1.0) > 1.0 else ""


def _unfit(answer: Answer) -> str:
    """The end of the headline where something is in the way."""
    good, count = computed(answer.points), len(answer.points)
    unfit = Counter(str(p.memory.fits) for p in good if not p.memory.holds)
    errors = count - len(good)
    of = "" if count == 1 else f" at {{}} of {count} points"
    told = [
        f"{words} in memory{of.format(unfit[fits])}"
        for fits, words in UNFIT_WORDS.items()
        if unfit[fits]
    ]
    found = f" It {', and '.join(told)}." if told else ""
    return found + (f" There is no number{of.format(errors)}." if errors else "")


def _share(point: Point) -> str:
    """The efficiency with its interval: "95.3 % (78–96 %)"."""
    ends = point.efficiency_low or 0.0, point.efficiency_high or 0.0
    low, high = (f"{end * 100:.0f}" for end in ends)
    return percent(point.efficiency) + ("" if ends[0] == ends[1] else f" ({low}–{high} %)")


def _sure(point: Point, answer: Answer) -> str:
    """The step time with its interval: "322.1 ms (90 % interval 313–445 ms)"."""
    bounds = interval(point)
    return show(point.step_time_s, "s") + (
        f" ({_interval_of(answer)} {bounds})" if bounds != "exact" else ""
    )


# -- why the curve is as it is --------------------------------------------------------------------


def sentences(answer: Answer) -> list[str]:
    """Why the curve is as it is: bend, law, measured points, engine."""
    found = [*bend(answer), *_peak(answer), *_law(answer), *_measured(answer)]
    found += [*_training(answer), *lived.sentences(answer), *_epoch(answer)]
    found += [*_startup(answer), *_beside(answer), *_input(answer), *behaved.sentences(answer)]
    return [*found, *_engines(answer)]


def _peak(answer: Answer) -> list[str]:
    good = [p for p in computed(answer.points) if p.throughput_per_s and not settings(p)]
    if not good:
        return []
    best = max(good, key=lambda p: p.throughput_per_s or 0.0)
    last = max(good, key=lambda p: p.ranks)
    if best.ranks >= last.ranks:
        return []
    return [f"Throughput peaks at {ranks(best.ranks)} ({rate(best)}); more ranks are slower."]


def _law(answer: Answer) -> list[str]:
    laws = answer.laws
    if isinstance(laws, NoLaws) or len({settings(p) for p in answer.points}) > 1:
        return []
    if len({point.ranks for point in answer.points}) < 2:
        return []  # a law is about a change of the number of ranks
    at = laws.amdahl.points[-1]
    gap = {key.removesuffix("_s"): value for key, value in vars(laws.amdahl.gap).items()}
    beyond = sum(gap.values())
    name = "Gustafson's" if answer.scaling == "weak" else "Amdahl's"
    said = {**PARTS, "communication": "communication, with the compute that it slows down,"}
    parts = [
        f"{said[key]} {show(value, 's', 3)}"
        for key, value in sorted(gap.items(), key=lambda item: -item[1])
        if value > 0.01 * max(beyond, 1e-12)
    ]
    if gap["unexplained"] < -0.01 * max(beyond, 1e-12):
        less = show(-gap["unexplained"], "s", 3)
        parts.append(f"less {less} that measured steps show and nothing explains")
    share = f"serial fraction {percent(laws.amdahl.serial_fraction)}"
    if beyond < -0.01 * at.law_s:
        why = ", which measured steps show and nothing explains" * (gap["unexplained"] < 0)
        return [
            f"At {ranks(at.ranks)} a step takes {show(-beyond, 's', 3)} less than the "
            f"{show(at.law_s, 's', 3)} of {name} law ({share}){why}."
        ]
    if not parts or beyond <= 1e-6 * max(at.law_s, 1e-12):
        return [f"At {ranks(at.ranks)} the step is what {name} law allows ({share})."]
    return [
        f"At {ranks(at.ranks)} a step takes {show(beyond, 's', 3)} more than the "
        f"{show(at.law_s, 's', 3)} of {name} law ({share}): {', '.join(parts)}."
    ]


def _measured(answer: Answer) -> list[str]:
    held_out = [p for p in answer.measured if p.role == "predicted"]
    found = []
    if held_out:
        worst = max(held_out, key=lambda p: abs(p.error))
        inside = sum(p.inside_interval for p in held_out)
        count = f"{len(held_out)} measured point{'s' * (len(held_out) > 1)}"
        middle = percent(median(abs(p.error) for p in held_out))
        largest = f"{signed(worst.error)} at {ranks(worst.ranks)}"
        found.append(
            f"Against {count} the median absolute error is {middle} (largest {largest}); "
            f"{inside} of {len(held_out)} lie inside the 90 % interval."
        )
    return [*found, *_calibrated(answer.calibration)]


def _calibrated(level: Level | None) -> list[str]:
    """What was calibrated, and how well it fits."""
    if level is None:
        return []
    if level.fit is None:
        return [
            f"The measured step of {show(level.step_time, 's')} at "
            f"{ranks(level.ranks)} set the level of compute (times "
            f"{level.scale:.4g}); it is not counted as a prediction."
        ]
    rest = ", ".join(f"{signed(p.error)} at {ranks(p.ranks)}" for p in level.fit.residuals)
    said = ", ".join(_fitted(one) for one in level.fit.numbers if one.learned >= TOLD)
    return [
        f"{len(level.fit.residuals)} measured steps were fitted: {said}.  Fitted against measured: "
        f"{rest}; what is left is {percent(level.fit.noise)} (one standard deviation), and carried "
        "from each to the counts near it."
    ]


def _fitted(one: FittedNumber) -> str:
    """A fitted number with its 90 % interval."""
    if one.name.endswith("_s"):
        ends = f"{show(one.low, 's')} to {show(one.high, 's')}"
        return f"{NUMBERS[one.name]} {show(one.value, 's')} ({ends})"
    return f"{NUMBERS[one.name]} times {one.value:.3g} ({one.low:.3g} to {one.high:.3g})"


def _training(answer: Answer) -> list[str]:
    """How much sooner training ends with more ranks, which is less than throughput grows where
    larger batches need more samples."""
    timed = [(p, p.run) for p in computed(answer.points) if p.run and not settings(p)]
    if len(timed) < 2:
        return []
    (first, short), (last, long) = timed[0], max(timed, key=lambda pair: pair[0].ranks)
    text = (
        f"Training takes {duration(long.time_s)} on {ranks(last.ranks)}, "
        f"{duration(short.time_s)} on {ranks(first.ranks)}: "
        f"{number(last.training_speedup or 0.0)} times as fast"
    )
    more = long.samples / short.samples
    if more > 1.0005:
        rates = (last.throughput_per_s or 0.0) / (first.throughput_per_s or math.inf)
        text += (
            f", and not {number(rates)} times, for "
            f"global batch {last.global_batch:,} needs {number(more)} times the samples of "
            f"{first.global_batch:,}"
        )
    return [text + "."]


def _last(answer: Answer, tells: Callable[[Point], object]) -> Point | None:
    """The point to speak of among those that tell something."""
    return spoken_of(p for p in computed(answer.points) if tells(p))


def _beside(answer: Answer) -> list[str]:
    """What the strategy costs beside its steps, at the largest count."""
    if (last := _last(answer, lambda p: p.beside_step)) is None:
        return []
    texts = []
    for cost in last.beside_step:
        text = "unknown" if cost.seconds is None else duration(cost.seconds)
        text += f", at most {duration(cost.at_most_s)}" if cost.at_most_s is not None else ""
        texts.append(f"{cost.name} ({text}) per {cost.per}")
    return [f"Beside the step, on {place(last)}: {'; '.join(texts)}."]


def _input(answer: Answer) -> list[str]:
    """How steps are fed, and what would hold up none, at the largest count."""
    last = _last(answer, lambda p: p.input)
    if last is None or (fed := last.input) is None:
        return []
    text = (
        f"The loader takes {duration(fed.input_s)} for the batches of a step on "
        f"{place(last)}, limited by {LIMITS[fed.limit]}; settled steps wait "
        f"{duration(fed.exposed_input_s)} for them{_late(last, fed)}. "
    )
    text += f"Steps never wait at {number(fed.needed_per_s)} samples/s a node"
    if fed.cores is not None:
        text += f", for which {number(fed.cores)} cores of it prepare samples"
    if fed.read_needed is not None:
        text += f" and {show(fed.read_needed, 'B/s')} are read"
    if fed.epoch_s is not None:
        text += f". An epoch takes {duration(fed.epoch_s)}; until its first step"
        text += f" {duration(fed.first_batch_s)} pass"
    return [text + "."]


def _late(point: Point, fed: FedStep) -> str:
    """Which of the first steps waits longest for its batch, where that is half a step and more."""
    step = point.step_time_s
    waits = [b - a - step for a, b in pairwise(fed.starts)]
    longest = max(waits, default=0.0)
    if longest < 0.5 * step:
        return ""
    which = waits.index(longest) + 2
    return f"; of the first {len(fed.starts)}, step {which} waits longest: {duration(longest)}"


def _epoch(answer: Answer) -> list[str]:
    """How an epoch is dealt to the ranks, at the largest count."""
    last = _last(answer, lambda p: p.epoch)
    if last is None or (dealt := last.epoch) is None:
        return []
    text = f"An epoch on {place(last)} has {dealt.samples:,} samples"
    text += f", {dealt.repeated:,} of them twice" if dealt.repeated else ""
    text += f", and leaves out {dealt.dropped:,}" if dealt.dropped else ""
    steps, tail = dealt.steps, dealt.last_micro_batch
    return [f"{text}: {steps:,} step{'s' * (steps != 1)}, the last micro-batch of {tail:,}."]


def _startup(answer: Answer) -> list[str]:
    """What passes before the first step, at the largest count."""
    last = _last(answer, lambda p: p.startup and p.startup.seconds)
    if last is None or (found := last.startup) is None:
        return []
    parts = ", ".join(f"{name} {duration(s)}" for name, s in found.parts.items())
    return [f"Before the first step, on {place(last)}: {duration(found.seconds)}, once ({parts})."]


def _engines(answer: Answer) -> list[str]:
    counts = Counter(point.engine for point in computed(answer.points))
    names = [
        f"the {name} engine ({count} point{'s' * (count > 1)})" for name, count in counts.items()
    ]
    return [f"Played by {' and '.join(names)}."] if names else []


# -- what would make it fit -----------------------------------------------------------------------


def memory_sentences(answer: Answer) -> list[str]:
    """What would make it fit, for the smallest count that does not; nothing without advice."""
    if answer.advice is None:
        return []
    unfit = [point for point in computed(answer.points) if not point.memory.holds]
    point = min(unfit, key=lambda point: point.ranks)
    short = f"{point.memory.bytes / 1e9:.1f} GB are needed"
    if answer.advice:
        short += f" and {answer.advice[0].capacity_bytes / 1e9:.1f} GB are there"
    words = UNFIT_WORDS[str(point.memory.fits)]
    intro = f"On {ranks(point.ranks)} it {words} on a device: {short}."
    lines = [advice_text(one) for one in answer.advice]
    return [intro, *(lines or ["None of the changes tried, alone or in pairs, makes it fit."])]


def advice_text(advice: Advice) -> str:
    """One change, or a pair, what is then needed, and what it costs."""
    ratio = advice.throughput_ratio
    parts = [f"about {ratio:.2g} x the throughput"] if ratio else []
    parts += [advice.cost] if advice.cost else []
    cost = f" ({'; '.join(parts)})" if parts else ""
    needed, there = advice.memory_bytes / 1e9, advice.capacity_bytes / 1e9
    sure = FITS_WORDS[str(advice.fits)]
    changes = " and ".join(advice.changes)
    return f"It {sure} with {changes}: {needed:.1f} GB of {there:.1f} GB{cost}."
