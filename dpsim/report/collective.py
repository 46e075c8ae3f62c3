"""Tables and plot of `dpsim collective`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsim.checks.diagnosis import LARGE_SIZE, sensitivity
from dpsim.report.bundle import Bundle, write_bundle
from dpsim.report.figures import GREY, SERIES, blank, legend, look, tick
from dpsim.report.table import Columns, put, say
from dpsim.report.text import clean, number, plain, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.console import Console

    from dpsim.predict.collective import Line, RankGroup, Setup

#: what `dpsim collective -o` writes
FILES = ("collective.json", "busbw.png", "busbw.svg", "index.html")
#: operations whose bus bandwidth a ring's slowest wires limit (NVIDIA/nccl-tests
#: doc/PERFORMANCE.md: the factors make it comparable with the hardware's peak)
_RINGS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
#: what is left out first where a terminal is too narrow; --json has all of it
_DROPPED = ("protocol", "algbw GB/s")
#: columns of words
WORDS = ("algorithm", "protocol", "bound by", "verdict", "sizes")


def size_text(size: float) -> str:
    """Bytes in the binary unit that divides them: "64 MiB"; plain bytes where none does."""
    whole = int(size)
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if whole >= scale and whole % scale == 0:
            return f"{whole // scale:,} {unit}"
    return f"{whole:,} B"


def print_collective(
    operation: str, setup: Setup, groups: Sequence[RankGroup], console: Console, out: Path | None
) -> None:
    """One table per number of nodes."""
    for group in groups:
        title = (
            f"{operation} on {clean(setup.machine.name)}: {group.ranks} ranks on {group.nodes} "
            f"node{'s' * (group.nodes > 1)} ({group.kind})"
        )
        if group.at_once > 1:
            each = group.ranks // group.at_once
            title += f", {group.at_once} groups of {each} ranks at once; times of the slowest"
        say(console, [title], "bold")
        put(console, group_columns(group), WORDS, _DROPPED)
    say(console, healthy_told(groups))
    if out is not None:
        console.print(f"written: {clean(out)}: {', '.join(FILES)}", markup=False)


def healthy_told(groups: Sequence[RankGroup]) -> list[str]:
    """What machines without a fault take of the largest sizes, over each kind of link of which some
    were published: intervals are of all published ones, so they are wider than what `dpsim
    check-nccl` accepts."""
    kinds = {
        group.kind: sensitivity(group.kind)
        for group in groups
        if group.at_once == 1 and any(line.size >= LARGE_SIZE for line in group.lines)
    }
    told = " and ".join(
        f"{known.doubtful:.3g} ({clean(kind)}, {known.machines} published)"
        for kind, known in kinds.items()
        if known.machines
    )
    return [
        f"From 64 MiB up 19 of 20 machines without a fault take at most {told} times as long as "
        "this, and dpsim check-nccl judges by that; intervals are of all published machines."
    ] * bool(told)


def group_columns(group: RankGroup) -> Columns:
    """The lines as nccl-tests prints them, with the interval and what limits."""
    beside = any(line.measured for line in group.lines)
    heads = ["size", "time us", "90 % interval us", "algbw GB/s", "busbw GB/s", *WORDS[:3]]
    if beside:
        heads += ["measured us", "error"]
    if group.at_once > 1:
        heads += ["alone us", "slower"]
    return heads, [_cells(line, beside) for line in group.lines]


def _cells(line: Line, beside: bool) -> list[str]:
    cells = [
        size_text(line.size),
        _us(line.seconds),
        f"{_us(line.low)} … {_us(line.high)}",
        f"{line.algbw / 1e9:,.2f}",
        f"{line.busbw / 1e9:,.2f}",
        line.algorithm,
        line.protocol,
        line.bound,
    ]
    if beside:
        known = line.measured is not None and line.error is not None
        cells += [_us(line.measured or 0.0), signed(line.error or 0.0)] if known else ["", ""]
    if line.alone is not None:
        cells += [_us(line.alone), f"x {line.seconds / line.alone:.2f}"]
    return cells


def _us(seconds: float) -> str:
    """Microseconds."""
    return number(seconds * 1e6)


def name_of(group: RankGroup) -> str:
    """ "2 nodes, 16 ranks" """
    nodes = f"{group.nodes} node{'s' * (group.nodes > 1)}, {group.ranks} ranks"
    return nodes if group.at_once == 1 else f"{nodes} in {group.at_once} groups at once"


def chosen(line: Line) -> str:
    """Algorithm and protocol, where there are any."""
    return " ".join(clean(word) for word in (line.algorithm, line.protocol) if word)


def wire_limit(operation: str, setup: Setup, group: RankGroup) -> tuple[float, str] | None:
    """The bus bandwidth that a ring's narrowest wires carry one way [B/s], and which they are:
    those that leave a GPU, or all NICs of a node.  None where that says little: groups that
    share wires, other operations, a single rank, nodes without NICs (a torus)."""
    if operation not in _RINGS or group.at_once > 1 or group.ranks < 2:
        return None
    nodes = min(group.nodes, 2)
    graph = setup.topology(group.ranks // group.nodes * nodes, nodes).graph
    wires: dict[str, float] = {}
    outside = 0.0
    for a, b, data in graph.edges(data=True):
        link: Any = data["link"]
        if a == ("gpu", 0, 0):
            wires[link.kind] = wires.get(link.kind, 0.0) + link.bandwidth
        elif a[:2] == ("nic", 0) and (b[0] in ("leaf", "spine") or b[1:2] == (1,)):
            outside += link.bandwidth
    if not wires or (nodes > 1 and not outside):
        return None
    kind = max(wires, key=lambda name: wires[name])
    inside = (wires[kind], f"{kind.replace('_', ' ')} of a GPU")
    return min(inside, (outside, "NICs of a node")) if nodes > 1 else inside


# -- files ----------------------------------------------------------------------------------------


def write_collective(
    document: dict[str, object], setup: Setup, groups: Sequence[RankGroup], out: Path
) -> None:
    """Write `FILES` into folder `out`."""
    from dpsim.report.pages.collective import page

    def fill(bundle: Bundle) -> None:
        bundle.json(FILES[0], document)
        title = f"{document['operation']} on {document['machine']}"
        bundle.figure(FILES[1], FILES[2], lambda: make_figure(groups, title, setup))
        bundle.text(FILES[3], page(str(document["operation"]), setup, groups))

    write_bundle(out, fill)


def make_figure(groups: Sequence[RankGroup], title: str, setup: Setup) -> Figure:
    """Bus bandwidth over size, a line per number of nodes, with diamonds where another algorithm
    or protocol is chosen; the last one's 90 % interval, and what a ring's wires carry."""
    figure = blank(8.0, 5.6, clean(title))
    axes = figure.subplots()
    draw_on(axes, groups, setup)
    legend(figure, axes)
    return figure


def draw_on(axes: Axes, groups: Sequence[RankGroup], setup: Setup) -> None:
    """The same on `axes`, without a legend."""
    for place, group in enumerate(groups):
        _draw(axes, group, place, banded=group is groups[-1])
    _limits(axes, groups, setup)
    axes.set(xscale="log", yscale="log", xlabel="size", ylabel="bus bandwidth [GB/s]")
    _ticks(axes, groups)


def _limits(axes: Axes, groups: Sequence[RankGroup], setup: Setup) -> None:
    """A line for every limit of a ring's wires."""
    operation = groups[0].lines[0].operation
    found = dict.fromkeys(wire_limit(operation, setup, group) for group in groups)
    for limit in filter(None, found):
        value, what = limit[0] / 1e9, f"a ring's limit: {limit[1]}, {number(limit[0] / 1e9)} GB/s"
        axes.axhline(value, color=GREY, linestyle="--", linewidth=1.1, gid="limit")
        axes.annotate(what, (0.01, value), xycoords=("axes fraction", "data"), xytext=(0, 3),
                      textcoords="offset points", fontsize=8, color=GREY)  # fmt: skip


def _draw(axes: Axes, group: RankGroup, place: int, *, banded: bool) -> None:
    x = [line.size for line in group.lines]
    busy = [line.busbw / 1e9 for line in group.lines]
    ends = [
        [line.busbw / 1e9 * line.seconds / end for line, end in zip(group.lines, side, strict=True)]
        for side in ([n.high for n in group.lines], [n.low for n in group.lines])
    ]
    name = f"{group.nodes} node{'s' * (group.nodes > 1)}, {group.ranks} ranks"
    if banded:
        axes.fill_between(x, ends[0], ends[1], color=look(place)["color"], alpha=0.16, linewidth=0,
                          label=f"{name}: 90 % interval")  # fmt: skip
    axes.plot(
        x, busy, **look(place), markersize=3.5, linewidth=1.6, label=name, gid=f"group-{place}",
        linestyle=("-", "--")[place // len(SERIES) % 2],
    )  # fmt: skip
    changed = [b for a, b in pairwise(group.lines) if chosen(a) != chosen(b)]
    axes.plot(
        [n.size for n in changed], [n.busbw / 1e9 for n in changed], linestyle="none", marker="D",
        markersize=6, color=look(place)["color"], markeredgecolor="white", gid=f"changes-{place}",
        label="another algorithm or protocol" if place == 0 and changed else None,
    )  # fmt: skip
    known = [(n.size, n.busbw * n.seconds / n.measured / 1e9) for n in group.lines if n.measured]
    if known:
        axes.plot(
            *zip(*known, strict=True), linestyle="none", marker="x", markersize=5,
            color=look(place)["color"], label=f"{name}, measured", gid=f"measured-{place}",
        )  # fmt: skip


def _ticks(axes: Axes, groups: Sequence[RankGroup]) -> None:
    """Sizes in binary units, at most ten of them; bandwidths in plain figures."""
    from matplotlib.ticker import LogLocator

    every = sorted({line.size for group in groups for line in group.lines})
    tick(axes.xaxis, every[:: -(-len(every) // 10)], lambda size: size_text(round(size)))
    tick(axes.yaxis, LogLocator(subs=(1.0, 2.0, 5.0)), plain)
    axes.tick_params(colors=GREY)
