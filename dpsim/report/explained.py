"""What `dpsim explain` prints and writes: where steps go, and what would help."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from dpsim.core.record import Refused
from dpsim.core.units import show
from dpsim.predict.answer import NoLaws
from dpsim.predict.document import to_json
from dpsim.predict.point import Failed
from dpsim.report.blame import print_blame
from dpsim.report.bundle import Bundle, write_bundle
from dpsim.report.points import settings
from dpsim.report.sentences import titles
from dpsim.report.table import Columns, put, say, warn
from dpsim.report.text import bottleneck, brief, clean, percent, ranks, signed, split_text
from dpsim.report.trace import Traced, trace_file, traced

if TYPE_CHECKING:
    from rich.console import Console

    from dpsim.predict.answer import Laws
    from dpsim.predict.compressed import CompressionGain
    from dpsim.predict.explanation import Explained, Explanation, Launched, Operation
    from dpsim.predict.point import Cost
    from dpsim.predict.prediction import Prediction
    from dpsim.predict.symmetry import Symmetry

FILES = ("explanation.json", "trace.json",
         "pipeline.png", "pipeline.svg", "arrivals.png", "arrivals.svg", "index.html")  # fmt: skip
#: points that are printed in full
SHOWN = 12
#: kinds of nodes that are named beside the most frequent one
MOST_KINDS = 4


def print_explanation(found: Explanation, console: Console) -> None:
    """Per point: the split of the step, the critical path, buckets, and what would help."""
    answer, points = found.answer, found.points
    say(console, [brief(answer.name, 240)], "bold")
    say(console, titles(answer))
    half, hidden = SHOWN // 2, len(points) - SHOWN
    for place, one in enumerate(points):
        if hidden > 0 and place == half:
            say(console, ["", f"… {hidden} points in between are left out; --json has them …"])
        if hidden <= 0 or not half <= place < half + hidden:
            _explain_point(one, answer.laws, console)
    warn(console, answer.warnings)


def _explain_point(one: Explained | Failed, laws: Laws | NoLaws, console: Console) -> None:
    point = one if isinstance(one, Failed) else one.point
    count = "?" if point.ranks is None else ranks(point.ranks)
    say(console, [""])
    say(console, [", ".join(part for part in (count, settings(point)) if part)], "bold")
    if isinstance(one, Failed):
        say(console, [f"no number: {clean(one.error)}"])
    else:
        _explain(one, console, _unexplained(one, laws))


def _unexplained(found: Explained, laws: Laws | NoLaws) -> list[str]:
    """What of the step measured steps alone tell, where it is worth a word."""
    if isinstance(laws, NoLaws):
        return []
    step = found.point.step_time_s
    gaps = (at.gap for at in laws.amdahl.points if at.ranks == found.point.ranks)
    beyond = next((gap.unexplained_s for gap in gaps), 0.0)
    if abs(beyond) < 0.02 * step:
        return []
    return [
        f"It takes {show(abs(beyond), 's', 3)} ({percent(abs(beyond) / step)} of the step) "
        f"{'more' if beyond > 0 else 'less'} than measured steps of the first point tell, which "
        "measured steps near it show and nothing explains; the parts below have their share of it."
    ]


def _hidden(found: Explained) -> list[str]:
    """What of the compute is loss, where it is worth a word."""
    parts, step = found.point.parts, found.point.step_time_s
    lost = found.blame.loss_s - (step - parts.compute_s)
    if lost < 0.02 * step:
        return []
    return [
        f"Of the compute {show(lost, 's', 3)} ({percent(lost / step)} of the step) is lost, to "
        "waiting for slower ranks or to computing beside collectives; the shares stand below."
    ]


def _explain(found: Explained, console: Console, unexplained: Sequence[str]) -> None:
    point = found.point
    lines = [
        f"A step takes {show(point.step_time_s, 's')}: {split_text(point)}.",
        *unexplained,
        f"What limits it: {bottleneck(point.bottleneck)}.",
        *_hidden(found),
    ]
    if path := condensed(found.critical_path):
        lines.append(f"Critical path (rank {found.critical_rank}): {path}")
    if found.buckets:
        lines.append(_buckets(found.buckets))
    if found.symmetry and found.symmetry.broken:
        lines.append(symmetry_text(found.symmetry))
    if found.compression:
        lines.append(compression_text(found.compression))
    say(console, lines)
    if point.cost:
        put(console, cost_columns(point.cost), ("item", "basis"))
    gains = [(c, c.throughput_gain) for c in found.what_if if c.throughput_gain is not None]
    rows = [
        [clean(c.change), show(c.step_time_s, "s"), signed(gain)]
        for c, gain in sorted(gains, key=lambda pair: -pair[1])
    ]
    if rows:
        put(console, (("what if", "step time", "throughput"), rows), ("what if",))
    print_blame(found.blame, console)


def compression_text(found: CompressionGain) -> str:
    """Whether compressing pays, and up to which bandwidth."""
    times = [show(t, "s", 4) for t in (found.step_time_s, found.uncompressed_step_time_s)]
    gain = found.throughput_gain or 0.0
    verdict = "wins" if gain > 0 else "loses" if gain < 0 else "brings nothing"
    said = f"{clean(found.kind)} {verdict} ({signed(gain)}): {times[0]} a step, {times[1]} without"
    if found.wins_below is None:
        more = "no bandwidth within 10,000 times this one changes that"
    else:
        link = found.wins_below_bandwidth
        rate = f" ({link * 8 / 1e9:.3g} Gbit/s)" if link else ""
        more = f"it wins below {found.wins_below:.3g} times this bandwidth{rate}, and loses above"
    if found.run_speedup is not None:
        more += f"; with what goes before, a whole run is {found.run_speedup:.3g} times as fast"
    dense = found.break_even_density
    share = f"; beyond a density of {dense:.3g} it sends more than dense gradients" if dense else ""
    return f"{said}; {more}{share}."


def symmetry_text(found: Symmetry) -> str:
    """Of how many kinds nodes and links are."""
    usual, *others = found.nodes
    nodes, kinds = sum(kind.nodes for kind in found.nodes), len(found.nodes)
    told = [f"{usual.nodes:,} alike", *(
        f"{kind.nodes:,} with other {' and '.join(kind.differs)} "
        f"({'' if kind.nodes == 1 else 'from '}node {kind.first:,}{' on' * (kind.nodes > 1)})"
        for kind in others[:MOST_KINDS]
    )]  # fmt: skip
    if rest := others[MOST_KINDS:]:
        told.append(f"{sum(kind.nodes for kind in rest):,} of {len(rest):,} other kinds")
    said = f"{nodes:,} nodes are of {kinds:,} kinds: {', '.join(told)}." if others else (
        f"{nodes:,} nodes are alike.")  # fmt: skip
    links = found.links
    if links is None:
        return said
    between = f", {links.between:,} of them between switches in {links.between_classes:,}"
    return (
        f"{said}  The {links.links:,} links of the longest collective, {links.collective}, are of "
        f"{links.classes:,} classes{between * found.hashed}."
    )


def cost_columns(cost: Cost) -> Columns:
    """Headers and rows of the line items of a point, in amounts that add up."""
    spans = {"usd_per_hour": "usd/h", "usd_per_run": "usd/run", "usd_per_year": "usd/year"}
    shown = {key: title for key, title in spans.items() if getattr(cost, key) is not None}
    amounts = [[f"{value:,}" for value in cost.adding_up(key)] for key in shown]
    names = [*(clean(item.name) for item in cost.items), "total"]
    basis = [*(clean(item.basis) for item in cost.items), ""]
    rows = [list(row) for row in zip(names, *amounts, basis, strict=True)]
    return ["item", *shown.values(), "basis"], rows


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
    neighbours merge; where most of it is in such runs, as in a pipeline, kinds are told in all.
    """
    whole = sum(span.seconds for span in path)
    large = _without_small(path, 0.01 * whole) if len(path) > most else list(path)
    small = whole - sum(span.seconds for span in large)
    if small > 0.5 * whole:
        return _in_all(path)
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


def _in_all(path: Sequence[Operation]) -> str:
    """Kinds of operations of `path` with their counts and sums, the longest first."""
    kinds: dict[str, list[float]] = {}
    for span in path:
        kinds.setdefault(clean(span.op).replace("_", "-"), []).append(span.seconds)
    known = sorted(kinds.items(), key=lambda one: -sum(one[1]))
    return ", ".join(f"{kind} ×{len(each)} {show(sum(each), 's')}" for kind, each in known)


def _without_small(path: Sequence[Operation], least: float) -> list[Operation]:
    """`path` without runs of one kind shorter than `least`; copies and waits go first, so that
    the layers on both sides of them count as one run."""
    kept = [span for span in path if span.op not in ("copy", "wait") or span.seconds >= least]
    runs = [list(members) for _, members in groupby(kept, key=lambda span: span.op)]
    return [span for run in runs if sum(s.seconds for s in run) >= least for span in run]


# -- files ----------------------------------------------------------------------------------------


def last_step(prediction: Prediction) -> Traced:
    """The last played step of the last point that has a number, for traces and pictures.

    Raises Refused where no point has one.
    """
    found = [(one.case, one.played) for one in prediction.outcomes if one.played is not None]
    if not found:
        raise Refused("no point could be computed, so there is no timeline to write")
    case, made = found[-1]
    name = prediction.answer.name
    wait = made.meal.wait if made.meal else 0.0
    return traced(made.timeline.last, name, case.device.name if case.device else None, wait)


def layers_of(prediction: Prediction) -> Sequence[str]:
    """The names of the layers that the operations of `last_step` are numbered after; none where
    stages of a pipeline are."""
    case = [one.case for one in prediction.outcomes if one.played is not None][-1]
    piped = case.scenario.parallel.pipeline > 1
    return () if piped else tuple(layer.name for layer in case.model.layers)


def write_explanation(
    found: Explanation, shown: Traced, out: Path, layers: Sequence[str] = ()
) -> None:
    """Write `FILES` into folder `out`; `layers` are the names of numbered ones."""
    from dpsim.report import arrivals, pipeline
    from dpsim.report.pages.explained import page

    def fill(bundle: Bundle) -> None:
        bundle.json(FILES[0], to_json(found))
        bundle.files[FILES[1]] = trace_file(shown)
        for picture, png, svg in ((pipeline, *FILES[2:4]), (arrivals, *FILES[4:6])):
            bundle.figure(
                png, svg, partial(picture.make_figure, shown.spans, shown.title, ranks=shown.ranks)
            )
        bundle.text(FILES[6], page(found, shown, layers))

    write_bundle(out, fill)


def written(shown: Traced, files: list[Path]) -> str:
    """One sentence about what was written."""
    where = files[0] if len(files) == 1 else files[0].parent
    part = "" if len(shown.shown) == shown.ranks else f"{len(shown.shown):,} of "
    return f"Timeline of {part}{ranks(shown.ranks)} written to {where}"
