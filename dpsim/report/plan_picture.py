"""The picture of a plan: a requirement over the key that is varied, or a front of two fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpsim.planning.wanted import ends_of, value_of
from dpsim.predict.point import UNFIT
from dpsim.report.fields import drawn, name_of, set_value, setting_text
from dpsim.report.figures import BLUE, GREEN, GREY, ORANGE, band, bars, blank, legend, tick
from dpsim.report.plan_text import Document, any_has, required
from dpsim.report.text import brief, clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Place = Callable[[Mapping[str, Any]], tuple[float, float]]
#: times by which a front's times are apart from which on their axis is logarithmic
_FAR_APART = 10.0
#: how wide and high letters of labels are, on average and at most [points, 1/72 inch]
_LETTER = 4.6, 11.0
_LIMIT: Any = {"color": GREY, "linewidth": 1.2, "linestyle": "--"}


def plotted(document: Document) -> bool:
    """Whether there is a plot: of a requirement over its key, or of a front."""
    asked = document["question"]
    if asked["kind"] == "require":
        field = next(iter(required(document)), None)
        return field is not None and any_has(document, field)
    return bool(asked["kind"] == "choose" and asked["front"])


def make_figure(document: Document) -> Figure:
    """The first required field over the key that is varied, or the front of time and cost."""
    figure = blank(8.0, 5.0, brief(document["name"], 72))
    axes = figure.subplots()
    draw_on(axes, document)
    legend(figure, axes)
    return figure


def draw_on(axes: Axes, document: Document) -> None:
    """The same on `axes`, without a legend."""
    if document["question"]["kind"] == "require":
        _draw_require(axes, document)
    else:
        _draw_front(axes, document)


def scaled(document: Document, field: str) -> tuple[float, str]:
    """By what `field` is multiplied where it is drawn, and what its axis is called."""
    factor, unit = drawn(field, document["points"], long=True)
    unit = {"cost_usd": "usd", "energy_kwh": "kWh"}.get(field, unit)
    return factor, f"{name_of(field)} [{unit}]" if unit else name_of(field)


def _draw_require(axes: Axes, document: Document) -> None:
    """The field over the key, its 90 % interval, the limit, and where the limit is met."""
    key, field = document["question"]["vary"], required(document)[0]
    factor, label = scaled(document, field)
    points = [p for p in document["points"] if value_of(p, field) is not None]
    x = [plain_number(p["set"][key]) for p in points]
    y = [(value_of(p, field) or 0.0) * factor for p in points]
    known = [found for p in points if (found := ends_of(p, field)) is not None]
    ends = [(low * factor, high * factor) for low, high in known]
    if len(ends) == len(points) and all(low != high for low, high in ends):
        band(axes, x, ends, BLUE)
    axes.plot(x, y, color=BLUE, marker="o", markersize=4, label=name_of(field), gid="line")
    limit = next(one for one in document["limits"] if one["field"] == field)
    axes.axhline(limit["limit"] * factor, label="required", **_LIMIT)
    for edge, colour, text in edges(document["answer"]):
        axes.axvline(plain_number(edge["text"]), color=colour, linewidth=1.2, label=text)
    if min(x) > 0 and max(x) >= 8 * min(x):
        _logarithmic(axes, x)
    unit = str(points[0]["set"][key]).partition(" ")[2]
    axes.set(xlabel=f"{clean(key)} [{clean(unit)}]" if unit else clean(key), ylabel=label)


def _logarithmic(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis along x for `values`, ticked as densely as these are near."""
    from matplotlib.ticker import LogLocator

    axes.set_xscale("log")
    steps = (1.0, 2.0, 5.0) if max(values) < 1000 * min(values) else (1.0,)
    tick(axes.xaxis, LogLocator(subs=steps))


def edges(answer: Mapping[str, Any] | None) -> Iterator[tuple[Mapping[str, Any], str, str]]:
    """The ends of where it holds: as predicted, and at 90 %."""
    kinds = ((answer, GREEN, ""), ((answer or {}).get("sure"), ORANGE, " at 90 %"))
    for found, colour, label in kinds:
        for name, way in (("at_least", "holds from here"), ("at_most", "holds up to here")):
            if found and found[name]:
                yield found[name], colour, way + label


def plain_number(text: Any) -> float:
    """The number of "4 GB/s", without its unit."""
    return float(str(text).split(" ")[0])


def _draw_front(axes: Axes, document: Document) -> None:
    """All points by time and cost; those on the front joined, and the one to take with its 90 %
    interval."""
    fields = document["question"]["front"]
    scales = {field: scaled(document, field) for field in fields}

    def place(point: Mapping[str, Any]) -> tuple[float, float]:
        x, y = ((value_of(point, f) or 0.0) * factor for f, (factor, _) in scales.items())
        return x, y

    points = [p for p in document["points"] if all(value_of(p, f) is not None for f in fields)]
    on_front = [p for p in points if p.get("on_front")]
    _draw_rest(axes, [p for p in points if not p.get("on_front")], place)
    if on_front:
        axes.plot(*zip(*sorted(map(place, on_front)), strict=True), "-o", color=BLUE, markersize=5,
                  gid="front", label="front: none is faster and cheaper")  # fmt: skip
    for one in document["limits"]:
        for field, draw in zip(fields, (axes.axvline, axes.axhline), strict=True):
            if one["field"] == field:
                draw(one["limit"] * scales[field][0], label="required", **_LIMIT)
    places = [place(p) for p in points]
    if document["answer"]:
        taken, factors = document["answer"]["point"], {f: by for f, (by, _) in scales.items()}
        places += _draw_taken(axes, taken, place(taken), factors)
        on_front.sort(key=lambda point: point["set"] != taken["set"])  # it is labelled first
    x_label, y_label = (label for _, label in scales.values())
    axes.set(xlabel=x_label, ylabel=y_label)
    _span(axes, places)
    _label(axes, on_front, place)


def _draw_taken(
    axes: Axes, point: Mapping[str, Any], at: tuple[float, float], factors: Mapping[str, float]
) -> list[tuple[float, float]]:
    """The `point` to take, and its 90 % interval in fields that `factors` scale, where it has one;
    the ends of it."""
    x, y = ([value] for value in at)
    axes.plot(x, y, "D", color=ORANGE, markersize=8, label="to take", gid="answer")
    ends = [
        (middle, middle) if found is None else (found[0] * factor, found[1] * factor)
        for middle, factor, found in zip(
            at, factors.values(), (ends_of(point, field) for field in factors), strict=True
        )
    ]
    if any(low != high for low, high in ends):
        along, up = (bars([middle], [span]) for middle, span in zip(at, ends, strict=True))
        look: Any = {"fmt": "none", "ecolor": ORANGE, "elinewidth": 1.2, "capsize": 3}
        axes.errorbar(x, y, xerr=along, yerr=up, label="its 90 % interval", **look)
    (fast, slow), (cheap, dear) = ends
    return [(fast, cheap), (slow, dear)]


def _span(axes: Axes, places: Sequence[tuple[float, float]]) -> None:
    """The axes from 0 on, or times on a logarithmic one where they are far apart."""
    times = [x for x, _ in places]
    if min(times) > 0 and max(times) > _FAR_APART * min(times):
        _logarithmic(axes, times)
        axes.set_xlim(min(times) / 1.3, 2.0 * max(times))
    else:
        axes.set_xlim(0.0, 1.12 * max(times) or 1.0)
    axes.set_ylim(0.0, 1.08 * max(y for _, y in places) or 1.0)


def _label(axes: Axes, points: Sequence[Mapping[str, Any]], place: Place) -> None:
    """What `points` set beside each, the first ones first, where it lies on no other's; where they
    set several keys their values alone, and the legend has their names."""
    keys = list(dict.fromkeys(key for point in points for key in point["set"]))
    taken: list[tuple[float, float, float]] = []
    for point in points:
        own = {key.rpartition(".")[2]: value for key, value in point["set"].items()}
        text = setting_text(own) if len(keys) < 2 else ", ".join(map(set_value, own.values()))
        x, y = axes.transData.transform(place(point)) * 72.0 / axes.figure.dpi
        long = _LETTER[0] * min(len(text), 40)
        if not any(a - long < x < a + b and abs(y - c) < _LETTER[1] for a, b, c in taken):
            taken.append((x, long, y))
            axes.annotate(brief(text, 40), place(point), xytext=(6, 5), textcoords="offset points",
                          fontsize=8)  # fmt: skip
    if len(keys) > 1:
        names = ", ".join(clean(key.rpartition(".")[2]) for key in keys)
        axes.plot([], [], linestyle="none", label=f"beside points: {names}")


def _draw_rest(axes: Axes, rest: Sequence[Mapping[str, Any]], place: Place) -> None:
    """Points that others beat; crosses have no room in memory."""
    kinds = (("o", "other points", "rest", False), ("x", "no room in memory", "unfit", True))
    for mark, label, gid, unfit in kinds:
        if places := [place(p) for p in rest if (p["fits"] in UNFIT) == unfit]:
            axes.plot(*zip(*places, strict=True), mark, color=GREY, markersize=5, label=label,
                      markerfacecolor="white", gid=gid)  # fmt: skip
