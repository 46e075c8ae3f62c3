"""Tables and sentences: a prediction and its explanation for people, on a terminal."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from dpsim.core.units import show
from dpsim.predict.answer import Answer, NoLaws
from dpsim.predict.point import Cost, Failed, Point, computed
from dpsim.report.blame import print_blame

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from dpsim.predict.explanation import Explained, Explanation, Launched, Operation
    from dpsim.predict.prediction import Prediction

BOTTLENECKS = {
    "compute": "compute",
    "memory_bandwidth": "memory bandwidth",
    "intra_node_network": "network in node",
    "inter_node_network": "network between nodes",
    "network_latency": "network latency",
    "pipeline_bubble": "pipeline bubble",
    "stragglers": "stragglers",
    "data_loading": "data loading",
    "host": "host",
}
PARTS = {
    "communication": "communication",
    "jitter": "stragglers",
    "bubble": "pipeline bubbles",
    "load": "uneven or less efficient work per rank",
    "serial": "work that ranks do not share out",
}
#: sweep keys that a table of ranks and nodes shows already
COUNTS = ("cluster.ranks", "cluster.nodes")
#: what `dpsim run -o` writes
FILES = ("prediction.json", "points.csv", "curve.png", "curve.svg", "index.html")
#: points of an explanation that are printed in full
SHOWN = 12


def clean(text: object) -> str:
    """`text` on one line without control characters, escape sequences or invisible marks."""
    kept = (
        c if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") else " "
        for c in str(text)
    )
    return " ".join("".join(kept).split())


def brief(text: object, length: int) -> str:
    """`clean` text, cut to `length` characters."""
    whole = clean(text)
    return whole if len(whole) <= length else whole[: length - 1] + "…"


def scaling_title(answer: Answer) -> str:
    """Which kind of scaling it is and what is held constant, always."""
    held = answer.held_constant.replace("1 samples", "1 sample")
    return f"{answer.scaling.capitalize()} scaling: {clean(held)} held constant"


def settings(point: Point | Failed, *, short: bool = False) -> str:
    """What the sweep set at `point`, other than the counts: "cluster.oversubscription = 2", or in
    `short` "oversubscription=2"."""
    other = {k: v for k, v in point.set.items() if k not in COUNTS}
    if short:
        return " ".join(f"{clean(k.rpartition('.')[2])}={_setting(v)}" for k, v in other.items())
    return ", ".join(f"{clean(key)} = {_setting(value)}" for key, value in other.items())


def _setting(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{clean(key)}={_setting(item)}" for key, item in value.items())
    return clean(value)


def percent(share: float | None) -> str:
    if share is None:
        return ""
    return f"{share * 100:.1f} %" if 0.001 <= share < 0.9995 else f"{share * 100:.3g} %"


def money(dollars: float) -> str:
    """Dollars: whole cents, or four digits of what is less than ten cents."""
    return f"{dollars:,.2f} usd" if dollars >= 0.1 or dollars == 0 else f"{dollars:.4g} usd"


def duration(seconds: float) -> str:
    """A long time in minutes, hours or days."""
    for unit, scale in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * scale:
            return f"{number(seconds / scale)} {unit}"
    return show(seconds, "s", 3)


def signed(share: float) -> str:
    """An error with its sign: "+5.4 %"."""
    return f"{share * 100:+.1f} %"


def ranks(count: int) -> str:
    return f"{count:,} rank" + ("" if count == 1 else "s")


def number(value: float) -> str:
    """A rate or a ratio to four digits, thousands grouped."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


# -- sentences ------------------------------------------------------------------------------------


def headline(answer: Answer) -> str:
    """The answer in one sentence."""
    good = [p for p in computed(answer.points) if p.speedup is not None]
    if not good:
        return "No point of this scenario has a throughput."
    first, last = good[0], max(good, key=lambda p: p.ranks)
    if last.ranks == first.ranks:
        best = max(good, key=lambda p: p.throughput_per_s or 0.0)
        told = f"On {ranks(best.ranks)} a step takes {_sure(best)}: {_rate(best)}."
        return told + _unfit(answer)
    times = number(last.ranks / first.ranks)
    told = (
        f"From {first.ranks:,} to {ranks(last.ranks)} ({times} times as many) throughput "
        f"grows {number(last.speedup or 0.0)}-fold to {_rate(last)}: efficiency {_share(last)}"
        f", a step of {_sure(last)}."
    )
    return told + _unfit(answer)


def _unfit(answer: Answer) -> str:
    """The end of the headline where something is in the way."""
    good, count = computed(answer.points), len(answer.points)
    unfit = sum(p.memory.fits is False for p in good)
    errors = count - len(good)
    of = "" if count == 1 else f" at {{}} of {count} points"
    found = f" It does not fit in memory{of.format(unfit)}." if unfit else ""
    return found + (f" There is no number{of.format(errors)}." if errors else "")


def _rate(point: Point) -> str:
    return f"{number(point.throughput_per_s or 0.0)} {clean(point.throughput_unit)}"


def _time(point: Point) -> str:
    return show(point.step_time_s, "s")


def _share(point: Point) -> str:
    """The efficiency with its interval: "95.3 % (78–96 %)"."""
    ends = point.efficiency_low or 0.0, point.efficiency_high or 0.0
    low, high = (f"{end * 100:.0f}" for end in ends)
    return percent(point.efficiency) + ("" if ends[0] == ends[1] else f" ({low}–{high} %)")


def _sure(point: Point) -> str:
    """The step time with its interval: "322.1 ms (90 % interval 313–445 ms)"."""
    bounds = _interval(point)
    return _time(point) + (f" (90 % interval {bounds})" if bounds != "exact" else "")


def sentences(prediction: Prediction) -> list[str]:
    """Why the curve is as it is: bend, law, measured points, engine."""
    answer = prediction.answer
    found = [*_bend(answer), *_peak(answer), *_law(answer), *_measured(answer)]
    found += [*_training(answer), *_epoch(answer)]
    found += [*_startup(answer), *_beside(answer)]
    return [*found, *_engines(answer)]


def _bend(answer: Answer) -> list[str]:
    good = [p for p in computed(answer.points) if p.efficiency is not None]
    laws = answer.laws
    if isinstance(laws, NoLaws) or len({p.ranks for p in good}) < 2 or any(map(settings, good)):
        return []
    if laws.bend is None:
        lowest = min(good, key=lambda p: p.efficiency or 0.0)
        return [
            f"The curve does not bend: efficiency stays above 90 % "
            f"(lowest {percent(lowest.efficiency)} at {ranks(lowest.ranks)})."
        ]
    cause = PARTS.get(laws.bend.part, clean(laws.bend.part))
    return [
        f"The curve bends at {ranks(laws.bend.ranks)}: efficiency first falls below 90 % there, "
        f"mostly because of {cause}."
    ]


def _peak(answer: Answer) -> list[str]:
    good = [p for p in computed(answer.points) if p.throughput_per_s and not settings(p)]
    if not good:
        return []
    best = max(good, key=lambda p: p.throughput_per_s or 0.0)
    last = max(good, key=lambda p: p.ranks)
    if best.ranks >= last.ranks:
        return []
    return [f"Throughput peaks at {ranks(best.ranks)} ({_rate(best)}); more ranks are slower."]


def _law(answer: Answer) -> list[str]:
    laws = answer.laws
    if isinstance(laws, NoLaws) or len({settings(p) for p in answer.points}) > 1:
        return []
    at = laws.amdahl.points[-1]
    gap = {key.removesuffix("_s"): value for key, value in vars(laws.amdahl.gap).items()}
    beyond = sum(gap.values())
    name = "Gustafson's" if answer.scaling == "weak" else "Amdahl's"
    parts = [
        f"{PARTS[key]} {show(value, 's', 3)}"
        for key, value in sorted(gap.items(), key=lambda item: -item[1])
        if value > 0.01 * max(beyond, 1e-12)
    ]
    share = f"serial fraction {percent(laws.amdahl.serial_fraction)}"
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
    if level := answer.calibration:
        found.append(
            f"The measured step of {show(level.step_time, 's')} at "
            f"{ranks(level.ranks)} set the level of compute (times "
            f"{level.scale:.4g}); it is not counted as a prediction."
        )
    return found


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


def _beside(answer: Answer) -> list[str]:
    """What the strategy costs beside its steps, at the largest count."""
    told = [p for p in computed(answer.points) if p.beside_step]
    if not told:
        return []
    last = max(told, key=lambda p: p.ranks)
    texts = []
    for cost in last.beside_step:
        text = "unknown" if cost.seconds is None else duration(cost.seconds)
        text += f", at most {duration(cost.at_most_s)}" if cost.at_most_s is not None else ""
        texts.append(f"{cost.name} ({text}) per {cost.per}")
    return [f"Beside the step, on {ranks(last.ranks)}: {'; '.join(texts)}."]


def _epoch(answer: Answer) -> list[str]:
    """How an epoch is dealt to the ranks, at the largest count."""
    told = [(p.ranks, p.epoch) for p in computed(answer.points) if p.epoch]
    if not told:
        return []
    count, dealt = max(told, key=lambda pair: pair[0])
    text = f"An epoch on {ranks(count)} has {dealt.samples:,} samples"
    text += f", {dealt.repeated:,} of them twice" if dealt.repeated else ""
    text += f", and leaves out {dealt.dropped:,}" if dealt.dropped else ""
    steps, tail = dealt.steps, dealt.last_micro_batch
    return [f"{text}: {steps:,} step{'s' * (steps != 1)}, the last micro-batch of {tail:,}."]


def _startup(answer: Answer) -> list[str]:
    """What passes before the first step, at the largest count."""
    told = [
        (p.ranks, p.startup) for p in computed(answer.points) if p.startup and p.startup.seconds
    ]
    if not told:
        return []
    count, last = max(told, key=lambda pair: pair[0])
    parts = ", ".join(f"{name} {duration(s)}" for name, s in last.parts.items())
    return [f"Before the first step, on {ranks(count)}: {duration(last.seconds)}, once ({parts})."]


def _engines(answer: Answer) -> list[str]:
    counts = Counter(point.engine for point in computed(answer.points))
    names = [
        f"the {name} engine ({count} point{'s' * (count > 1)})" for name, count in counts.items()
    ]
    return [f"Played by {' and '.join(names)}."] if names else []


def memory_sentences(prediction: Prediction) -> list[str]:
    """What would make it fit, for the smallest count that does not."""
    from dpsim.predict.advice import unfit
    from dpsim.report.advice import sentence

    found = unfit(prediction)
    if found is None:
        return []
    case, used = found
    short = (
        f"{used.total / 1e9:.1f} GB are needed and {(used.capacity or 0) / 1e9:.1f} GB are there"
    )
    intro = f"On {ranks(case.ranks)} it does not fit on a device: {short}."
    lines = [sentence(one) for one in prediction.advice]
    return [intro, *(lines or ["None of the changes tried, alone or in pairs, makes it fit."])]


# -- the table of a run ---------------------------------------------------------------------------


Columns = tuple[list[str], list[list[str]]]
#: what is left out first where a terminal is too narrow; --json and points.csv have all of it
_DROPPED = ("nodes", "MFU", "exposed", "speed-up", "memory", "90 % interval", "fits")
#: characters after which a setting goes on in the next line
_WRAPPED = 34


def run_columns(points: Sequence[Point | Failed]) -> Columns:
    """Headers and rows of the table of points; columns without any value are left out."""
    units = {clean(p.throughput_unit) for p in computed(points)}
    unit = units.pop() if len(units) == 1 else "per second"
    rows = [_row(point, unit) for point in points]
    headers = list(dict.fromkeys(key for row in rows for key in row))
    used = [h for h in headers if any(row.get(h) for row in rows)]
    return used, [[row.get(h, "") for h in used] for row in rows]


def measured_columns(answer: Answer) -> Columns:
    """Headers and rows of the measured points beside the predictions."""
    rows = [
        [
            f"{p.ranks:,}",
            show(p.step_time_s, "s"),
            show(p.step_time_s * (1.0 + p.error), "s"),
            "calibrated" if p.role == "calibrated" else signed(p.error),
            "yes" if p.inside_interval or p.role == "calibrated" else "no",
        ]
        for p in answer.measured
    ]
    return ["ranks", "measured step", "predicted step", "error", "in 90 % interval"], rows


def _fitting(headers: list[str], rows: list[list[str]], width: int) -> Columns:
    """The columns that there is room for."""
    kept = list(range(len(headers)))
    for name in _DROPPED:
        cells = [[headers[i], *(row[i] for row in rows)] for i in kept]
        if sum(_width(column) + 2 for column in cells) <= width:
            break
        kept = [i for i in kept if headers[i] != name]
    return [headers[i] for i in kept], [[row[i] for i in kept] for row in rows]


def _width(column: list[str]) -> int:
    """Characters that a column needs; settings are wrapped."""
    longest = max(map(len, column))
    return min(longest, _WRAPPED) if column[0] == "setting" else longest


def _row(point: Point | Failed, unit: str) -> dict[str, str]:
    head = {
        "ranks": "?" if point.ranks is None else f"{point.ranks:,}",
        "nodes": "" if point.nodes is None else f"{point.nodes:,}",
        "setting": settings(point, short=True),
    }
    if isinstance(point, Failed):
        return {**head, "step": "no number"}
    rate = point.throughput_per_s
    return {
        **head,
        "step": _time(point),
        "90 % interval": _interval(point),
        unit: "" if rate is None else number(rate),
        "speed-up": "" if point.speedup is None else number(point.speedup),
        "eff.": percent(point.efficiency),
        "MFU": percent(point.mfu),
        "exposed": show(point.parts.exposed_communication_s, "s", 3),
        "memory": show(point.memory.bytes, "B", 3),
        "fits": {True: "yes", False: "NO", None: ""}[point.memory.fits],
        **_run_cells(point),
        "bottleneck": BOTTLENECKS.get(point.bottleneck, clean(point.bottleneck)),
    }


def _run_cells(point: Point) -> dict[str, str]:
    """What a training run takes; without one, what an hour costs; nothing where not asked for."""
    cells = {}
    if point.run:
        cells["to train"] = duration(point.run.time_s)
    if point.money:
        cells["cost"] = money(point.money.usd)
    elif point.cost:
        cells["cost"] = f"{money(point.cost.usd_per_hour)}/h"
    if point.energy:
        cells["energy"] = f"{number(point.energy.kwh)} kWh"
    elif point.power_w is not None:
        cells["power"] = f"{number(point.power_w / 1e3)} kW"
    return cells


def _interval(point: Point) -> str:
    low, high = point.interval.low, point.interval.high
    if low == high:
        return "exact"
    a, b = show(low, "s", 3), show(high, "s", 3)
    same = a.rpartition(" ")[2] == b.rpartition(" ")[2]
    return f"{a.rpartition(' ')[0] if same else a}–{b}"


def print_run(prediction: Prediction, console: Console, out: Path | None) -> None:
    """The answer: a table, then why, how sure, whether it fits, and where the files are."""
    answer = prediction.answer
    console.print(brief(answer.name, 100), style="bold", markup=False)
    console.print(scaling_title(answer), markup=False)
    headers, rows = _fitting(*run_columns(answer.points), console.width)
    console.print(table(headers, rows, left={"setting", "bottleneck"}))
    if answer.measured:
        console.print(table(*measured_columns(answer)))
    _say(console, [headline(answer), *sentences(prediction)])
    _say(console, memory_sentences(prediction))
    _say(console, [f"Warning: {clean(w)}" for w in shortened(answer.warnings)], style="yellow")
    if out is not None:
        _say(
            console,
            [f"Written to {clean(out)}: {', '.join(FILES)}"],
        )


def shortened(warnings: Sequence[str], most: int = 8) -> list[str]:
    """The first `most` warnings, and how many more there are."""
    warnings = list(dict.fromkeys(warnings))
    rest = len(warnings) - most
    return [*warnings[:most], *([f"and {rest} more, see prediction.json"] if rest > 0 else [])]


def _say(console: Console, lines: Iterable[str], style: str = "") -> None:
    for line in lines:
        console.print(line, style=style, markup=False, highlight=False)


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], left: Iterable[str] = ()) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, padding=(0, 1, 0, 0))
    for header in headers:
        words = header in left
        justify: Any = "left" if words else "right"
        table.add_column(Text(clean(header)), justify=justify, overflow="fold", no_wrap=not words)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


# -- the explanation ------------------------------------------------------------------------------


def print_explanation(found: Explanation, console: Console) -> None:
    """Per point: the split of the step, the critical path, buckets, and what would help."""
    answer, points = found.answer, found.points
    console.print(brief(answer.name, 100), style="bold", markup=False)
    console.print(scaling_title(answer), markup=False)
    half = SHOWN // 2
    chosen = points if len(points) <= SHOWN else [*points[:half], *points[-half:]]
    for place, one in enumerate(chosen):
        if len(points) > SHOWN and place == half:
            _say(
                console,
                ["", f"… {len(points) - SHOWN} points in between are left out; --json has them …"],
            )
        _explain_point(one, console)
    _say(console, [f"Warning: {clean(w)}" for w in shortened(answer.warnings)], style="yellow")


def _explain_point(one: Explained | Failed, console: Console) -> None:
    point = one if isinstance(one, Failed) else one.point
    extra = settings(point)
    count = "?" if point.ranks is None else ranks(point.ranks)
    console.print()
    console.print(count + (f", {extra}" if extra else ""), style="bold", markup=False)
    if isinstance(one, Failed):
        _say(console, [f"no number: {clean(one.error)}"])
    else:
        _explain(one.point, one, console)


def _explain(point: Point, found: Explained, console: Console) -> None:
    limit = BOTTLENECKS.get(point.bottleneck, clean(point.bottleneck))
    _say(
        console, [f"A step takes {_time(point)}: {split_text(point)}.", f"What limits it: {limit}."]
    )
    if path := condensed(found.critical_path):
        _say(console, [f"Critical path (rank {found.critical_rank}): {path}"])
    if found.buckets:
        _say(console, [_buckets(found.buckets)])
    if point.cost:
        headers, lines = cost_columns(point.cost)
        console.print(table(headers, lines, left=("item", "basis")))
    gains = [(c, c.throughput_gain) for c in found.what_if if c.throughput_gain is not None]
    rows = [
        [clean(c.change), show(c.step_time_s, "s"), signed(gain)]
        for c, gain in sorted(gains, key=lambda pair: -pair[1])
    ]
    if rows:
        console.print(table(("what if", "step time", "throughput"), rows, left=("what if",)))
    print_blame(found.blame, console)


def cost_columns(cost: Cost) -> Columns:
    """Headers and rows of the line items of a point, in whole cents that add up."""
    from decimal import Decimal

    from dpsim.money.currency import rounded

    spans = {"usd_per_hour": "usd/h", "usd_per_run": "usd/run", "usd_per_year": "usd/year"}
    shown = {key: title for key, title in spans.items() if getattr(cost, key) is not None}
    columns = []
    for key in shown:
        cents = rounded([Decimal(repr(getattr(item, key))) for item in cost.items])
        columns.append([f"{value:,}" for value in [*cents, sum(cents, Decimal(0))]])
    names = [*(clean(item.name) for item in cost.items), "total"]
    basis = [*(clean(item.basis) for item in cost.items), ""]
    rows = [list(row) for row in zip(names, *columns, basis, strict=True)]
    return ["item", *shown.values(), "basis"], rows


def split_text(point: Mapping[str, Any]) -> str:
    """ "compute 20 ms (85.3 %), exposed communication 3.45 ms (14.7 %)" """
    names = {
        "compute_s": "compute",
        "exposed_communication_s": "exposed communication",
        "bubble_s": "pipeline bubble",
        "stall_s": "stall (host, or a slower rank)",
    }
    whole = point["step_time_s"]
    parts = [
        f"{name} {show(point[key], 's')} ({percent(point[key] / whole)})"
        for key, name in names.items()
        if whole > 0 and point[key] > 1e-4 * whole
    ]
    return ", ".join(parts) or "nothing takes time"


def _buckets(buckets: Sequence[Launched]) -> str:
    def shown_as(bucket: Launched) -> str:
        count = len(bucket.tensors)  # of a pipeline's buckets only the bytes are known
        tensors = f" ({count} tensor{'s' * (count != 1)})" if count else ""
        return f"{show(bucket.bytes, 'B', 3)}{tensors}"

    shown = [shown_as(bucket) for bucket in buckets[:10]]
    more = f", and {len(buckets) - 10} more" if len(buckets) > 10 else ""
    kind = "parameter group" if buckets[0].name.startswith("group") else "bucket"
    count = f"{len(buckets)} {kind}{'s' * (len(buckets) != 1)}"
    return f"{count} in launch order: {', '.join(shown)}{more}"


def condensed(path: Sequence[Operation], most: int = 14) -> str:
    """The critical path with consecutive operations of one kind merged: "forward ×6 12 ms → …".

    On a long path, runs of one kind below 1 % of it are summed up at its end, and their
    neighbours merge.
    """
    whole = sum(span.seconds for span in path)
    large = _without_small(path, 0.01 * whole) if len(path) > most else list(path)
    small = whole - sum(span.seconds for span in large)
    runs = []
    for kind, members in groupby(large, key=lambda span: span.op):
        spans = list(members)
        seconds = sum(span.seconds for span in spans)
        label = clean(kind).replace("_", "-")
        if len(spans) == 1:
            name = clean(spans[0].name)
            label += f" {name}" if name != label else ""
        else:
            label += f" ×{len(spans)}"
        runs.append(f"{label} {show(seconds, 's')}")
    if len(runs) > most:
        half = most // 2
        runs = [*runs[:half], f"… {len(runs) - 2 * half} more …", *runs[-half:]]
    rest = f" (and {show(small, 's', 3)} in small operations)" if len(large) < len(path) else ""
    return " → ".join(runs) + rest


def _without_small(path: Sequence[Operation], least: float) -> list[Operation]:
    """`path` without runs of one kind shorter than `least`; copies and waits go first, so that
    the layers on both sides of them count as one run."""
    kept = [span for span in path if span.op not in ("copy", "wait") or span.seconds >= least]
    runs = [list(members) for _, members in groupby(kept, key=lambda span: span.op)]
    return [span for run in runs if sum(s.seconds for s in run) >= least for span in run]
