"""The page of `dpsim explain`: the step as a timeline, what it is lost to, and what would help."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dpsim.core.units import show
from dpsim.predict.point import Failed
from dpsim.report import figures
from dpsim.report.arrivals import arrivals, lateness
from dpsim.report.blame import name_of as cause_name
from dpsim.report.explained import compression_text, condensed, cost_columns, symmetry_text
from dpsim.report.pages import (
    Chart,
    Page,
    PagePart,
    Section,
    Sheet,
    SideBySide,
    Words,
    charts,
    warned,
)
from dpsim.report.pages.charts import Spec
from dpsim.report.pages.curve import MOST, causes_chart, name_of
from dpsim.report.pages.run import reproduced
from dpsim.report.pages.timeline import timeline
from dpsim.report.sentences import scaling_title
from dpsim.report.text import bottleneck, brief, clean, percent, ranks, signed, split_text

if TYPE_CHECKING:
    from dpsim.predict.explanation import Explained, Explanation, Launched
    from dpsim.report.trace import Traced

#: tensors that a tip names
NAMED = 8
#: a layer's own operation, where there is no pipeline: "F3", "B3.1" (layer 3, micro-batch 1)
_LAYER = re.compile(r"[FBIW](\d+)(?:\.\d+)?")


def page(found: Explanation, shown: Traced, layers: Sequence[str]) -> str:
    """The page of `found`; `shown` is the last point's step, `layers` the names of the model's
    layers where its operations are numbered after them."""
    answer = found.answer
    good = [one for one in found.points if not isinstance(one, Failed)]
    sections = [Section("", list(_figures(good, found, shown, layers)))]
    sections += [Section("Why it is so", [Words(list(_lines(good[-1])))])]
    sections += _tables(good[-1])
    if answer.warnings:
        sections.append(Section("Warnings", [warned(answer.warnings)]))
    sections += reproduced(answer, "dpsim explain scenario.yaml -o report")
    name = brief(answer.name, 200)
    return Page(
        f"{name}: where the step goes", name, sections,
        f"Explained by dpsim {answer.dpsim_version}, by playing every change again. All numbers "
        "are in explanation.json beside this page; trace.json opens in Perfetto.",
        scaling_title(answer), _headline(good[-1]), ", and pipeline.svg the step",
    ).render()  # fmt: skip


def _headline(one: Explained) -> str:
    point = one.point
    gains = [(w.throughput_gain, w.change) for w in one.what_if if w.throughput_gain is not None]
    best = max(gains, default=(0.0, ""))
    told = (
        f"On {ranks(point.ranks)} a step takes {show(point.step_time_s, 's')}: "
        f"{split_text(point)}. What limits it: {bottleneck(point.bottleneck)}."
    )
    more = f" What would bring most: {clean(best[1])} ({signed(best[0])} of throughput)."
    return told + (more if best[0] > 0.001 else "")


def _figures(
    good: Sequence[Explained], found: Explanation, shown: Traced, layers: Sequence[str]
) -> Iterator[PagePart]:
    made, count = timeline(shown.spans, notes_of(shown, good[-1].buckets, layers))
    whole = good[-1].point.ranks
    of = "" if count == whole else f": what {count:,} of them do, each for those like it"
    yield Chart("timeline", f"A step on {ranks(whole)}{of}", made)
    named = [(name_of(one.point), one.point) for one in good[:MOST]]
    title = "Where the time of a step goes"
    yield Chart("steps", title, charts.step_bars(named, title))
    yield SideBySide([
        Chart("lost", "What the step is lost to: played without it", _by_point(good, _blame)),
        Chart("gains", "What if: gain of throughput", _by_point(good, _gains)),
    ])  # fmt: skip
    causes = Chart(
        "causes", "What widens the 90 % interval of the step", causes_chart(found.answer)
    )
    late = _late(shown)
    yield SideBySide(
        [causes, *([Chart("late", "Ranks that others waited for", late)] if late else [])]
    )


def _by_point(good: Sequence[Explained], made: Callable[[Explained], Spec]) -> Spec:
    return charts.frames("at", [(name_of(one.point), made(one)) for one in good[:MOST]])


def notes_of(
    shown: Traced, buckets: Sequence[Launched], layers: Sequence[str]
) -> Mapping[str, str]:
    """What operations hold, by their names: tensors of a bucket, the layer of a computation."""
    found = {}
    for span in shown.spans:
        layer = _LAYER.fullmatch(span.name)
        if layer and int(layer[1]) < len(layers):
            found[clean(span.name)] = f"layer {brief(layers[int(layer[1])], 80)}"
    for bucket in buckets:
        if bucket.tensors:
            said = f"{len(bucket.tensors)} tensors: {_few(bucket.tensors)}"
            found[clean(bucket.name.partition(" (")[0])] = said
    return found


def _few(names: Sequence[str]) -> str:
    """The first and the last of `names`."""
    shown = [brief(name, 60) for name in names]
    if len(shown) <= NAMED:
        return ", ".join(shown)
    half = NAMED // 2
    return f"{', '.join(shown[:half])}, …, {', '.join(shown[-half:])}"


# -- charts ---------------------------------------------------------------------------------------


def _blame(one: Explained) -> Spec:
    lost = [c for c in one.blame.causes if abs(c.loss_s) > 1e-9 * one.blame.quiet_s]
    factor, unit = figures.time_scale([abs(c.loss_s) for c in lost])
    whole = one.point.step_time_s or 1.0
    made = charts.amounts(
        "What the step is lost to", f"lost per step [{unit}]",
        [
            (cause_name(c.cause), c.loss_s * factor,
             f"{show(c.loss_s, 's', 3)} ({percent(c.loss_s / whole)})",
             [["step without it", show(c.step_time_without_s, "s")]])
            for c in lost
        ],
    )  # fmt: skip
    return {**made, "empty": "Nothing of the step is lost."}


def _gains(one: Explained) -> Spec:
    gains = [(w, w.throughput_gain) for w in one.what_if if w.throughput_gain is not None]
    made = charts.amounts(
        "What if: gain of throughput", "gain of throughput",
        [
            (w.change, gain, signed(gain), [["step", show(w.step_time_s, "s")]])
            for w, gain in sorted(gains, key=lambda pair: -pair[1])
        ],
    )  # fmt: skip
    return {**made, "percent": True, "empty": "There is nothing to change."}


def _late(shown: Traced) -> Spec | None:
    """By how much ranks came after the median one; None where all come together."""
    late = lateness(arrivals(shown.spans))
    if not late:
        return None
    factor, unit = figures.time_scale(late.values())
    worst = sorted(late.items(), key=lambda item: -item[1])[:MOST]
    rows = [(f"rank {r}", s * factor, show(s, "s", 3), [["summed over", "the collectives that it "
             "was the last to reach"]]) for r, s in worst]  # fmt: skip
    return charts.amounts("Ranks that others waited for", f"after the median rank [{unit}]", rows)


# -- words and tables -----------------------------------------------------------------------------


def _lines(one: Explained) -> Iterator[str]:
    if path := condensed(one.critical_path):
        yield f"Critical path (rank {one.critical_rank}): {path}."
    if one.symmetry and one.symmetry.broken:
        yield symmetry_text(one.symmetry)
    if one.compression:
        yield compression_text(one.compression)
    yield (
        f"No schedule of the same program is faster than {show(one.point.bound_s, 's')}; "
        f"the step takes {show(one.point.step_time_s, 's')}."
    )
    if one.blame.ranks:
        told = [
            ("all others" if r.rank is None else f"rank {r.rank}") + f" {show(r.loss_s, 's', 3)}"
            for r in one.blame.ranks
        ]
        yield f"Of what varies, by the rank that was waited for: {', '.join(told)}."


def _tables(one: Explained) -> list[Section]:
    found = []
    if one.buckets:
        rows = [
            [f"{n:,}", clean(b.name), show(b.bytes, "B"), f"{len(b.tensors):,}", _few(b.tensors)]
            for n, b in enumerate(one.buckets, start=1)
        ]
        heads = ["launched", "bucket or group", "size", "tensors", "which"]
        found.append(Section("Buckets", [Sheet((heads, rows), (heads[1], heads[4]), "buckets")]))
    if one.point.cost:
        bill = Sheet(cost_columns(one.point.cost), ("item", "basis"), "costs")
        found.append(Section("Costs", [bill]))
    return found
