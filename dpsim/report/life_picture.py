"""Runs with failures as a picture: where their time goes, and how one of them went."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpsim.core.arrays import Array
from dpsim.life.spells import Life
from dpsim.predict.point import Point
from dpsim.report import figures
from dpsim.report.figures import (
    BLACK,
    BLUE,
    BROWN,
    GREEN,
    GREY,
    LEMON,
    ORANGE,
    PINK,
    PURPLE,
    SILVER,
    SKY,
    YELLOW,
)
from dpsim.report.lived import LABELS
from dpsim.report.points import settings
from dpsim.report.text import brief, ranks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dpsim.predict.prediction import Prediction

#: label -> name and colour, from bottom to top
KINDS = {"step": ("productive steps", BLUE)} | {
    key: (LABELS[key], colour)
    for key, colour in {
        "fewer_nodes": SKY,
        "checkpoint_save": GREEN,
        "wasted_progress": ORANGE,
        "detection": YELLOW,
        "waiting_for_nodes": GREY,
        "initialization": PURPLE,
        "checkpoint_restore": BLACK,
        "step_overhead": LEMON,
        "evaluation": PINK,
        "slow_nodes": BROWN,
        "maintenance": SILVER,
    }.items()
}
#: points that are drawn, and parts that a run is cut into
_MOST, _PARTS = 12, 160


def make_figure(prediction: Prediction) -> Figure:
    """A bar of labels for each point with failures, by when it ends, and one drawn run of the
    largest below."""
    from dpsim.predict.lived import told

    pairs = [(one.case, one.point) for one in prediction.outcomes
             if isinstance(one.point, Point) and one.point.life]  # fmt: skip
    points = [point for _, point in pairs][-_MOST:]
    case, largest = max(pairs, key=lambda pair: pair[1].ranks)
    one = told(case, largest)
    figure = figures.blank(8.0, 4.8 + 0.35 * len(points) + (2.2 if one else 0.0))
    figures.entitle(figure, "Time to train with failures")
    count = 3 if one else 2
    heights = (1.0 + 0.3 * len(points), 2.2, 2.2)[:count]
    rows = figure.subplots(count, 1, squeeze=False, height_ratios=heights)
    _bars(rows[0, 0], points)
    _chances(rows[1, 0], points, case.scenario.training.by if case.scenario.training else None)
    if one:
        _strip(rows[2, 0], one, largest)
    figures.legend(figure, rows[0, 0], columns=4)
    return figure


def _chances(axes: Axes, points: list[Point], by: float | None) -> None:
    """With what probability a run has ended by when, for each point; a mark at the time until which
    it should end."""
    lines = [(point, point.life.chances) for point in points if point.life]
    scale, unit = figures.time_scale((pairs[-1][0] for _, pairs in lines), long=True)
    for place, (point, pairs) in enumerate(lines):
        times, shares = zip(*[(pairs[0][0], 0.0), *pairs], strict=True)
        axes.plot([time * scale for time in times], [100.0 * share for share in shares],
                  color=figures.look(place)["color"], label=_name(point))  # fmt: skip
    if by is not None:
        axes.axvline(by * scale, color=BLACK, linewidth=1.0, linestyle=":")
        axes.annotate("training.by", (by * scale, 1.0), xycoords=("data", "axes fraction"),
                      ha="center", va="bottom", fontsize=8)  # fmt: skip
    axes.set(ylim=(0.0, 102.0), xlim=(0.0, None))
    axes.set_ylabel("has ended [%]")
    axes.set_xlabel(f"time since the start [{unit}]")
    if len(lines) > 1:
        axes.legend(fontsize=8, loc="lower right")


def _bars(axes: Axes, points: list[Point]) -> None:
    """The mean of the drawn runs by label, and a mark where they would end without failures."""
    longest = [point.run.time_s for point in points if point.run]
    scale, unit = figures.time_scale(longest, long=True)
    drawn: set[str] = set()
    for place, point in enumerate(points):
        if point.run is None or point.life is None:
            continue
        left, shares = 0.0, {"step": point.life.goodput, **point.life.badput}
        for key, (name, colour) in KINDS.items():
            width = shares.get(key, 0.0) * point.run.time_s * scale
            if width > 0:
                axes.barh(place, width, left=left, height=0.7, color=colour,
                          label=None if name in drawn else name)  # fmt: skip
                drawn.add(name)
                left += width
    figures.named_rows(axes, [_name(point) for point in points])
    axes.set_xlabel(f"mean of drawn runs [{unit}]")


def _name(point: Point) -> str:
    more = brief(settings(point, short=True), 30)
    return f"{ranks(point.ranks)} {more}".strip()


def _strip(axes: Axes, one: Life, point: Point) -> None:
    """How a run spends each part of its time."""
    scale, unit = figures.time_scale([one.end], long=True)
    edges = np.linspace(0.0, one.end, _PARTS + 1)
    bottom = np.zeros(_PARTS)
    for key, (_, colour) in KINDS.items():
        share = _shares(one, key, edges)
        if share.any():
            axes.bar(edges[:-1] * scale, share, width=np.diff(edges) * scale, bottom=bottom,
                     align="edge", color=colour, linewidth=0)  # fmt: skip
            bottom += share
    axes.set(xlim=(0.0, one.end * scale), ylim=(0.0, 100.0))
    axes.set_ylabel("share of time [%]")
    axes.set_xlabel(f"one drawn run on {ranks(point.ranks)} [{unit}]")


def _shares(one: Life, label: str, edges: Array) -> Array:
    """Percent of each part between `edges` that has `label`."""
    spells = [spell for spell in one.spells if spell.label == label]
    whole = np.zeros(len(edges))
    if spells:
        begin = np.array([spell.begin for spell in spells])
        end = np.array([spell.end for spell in spells])
        before = np.concatenate([[0.0], np.cumsum(end - begin)])
        place = np.searchsorted(begin, edges, side="right")
        last = np.maximum(place - 1, 0)
        inside = np.where(place > 0, np.maximum(end[last] - edges, 0.0), 0.0)
        whole = before[place] - inside
    made: Array = 100.0 * np.diff(whole) / np.diff(edges)
    return made
