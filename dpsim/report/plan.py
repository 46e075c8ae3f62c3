"""Table, sentences, files and plots of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dpsim.core.units import show
from dpsim.planning.wanted import ends_of, said, value_of
from dpsim.report.bundle import Bundle, flat, write_bundle
from dpsim.report.figures import BLUE, GREEN, GREY, ORANGE
from dpsim.report.tables import (
    BOTTLENECKS,
    Columns,
    brief,
    clean,
    duration,
    money,
    number,
    percent,
    ranks,
    signed,
    split_text,
    table,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.console import Console

Document = Mapping[str, Any]
#: what `dpsim plan -o` always writes, and the plot where there is one
FILES = ("plan.json", "plan.csv")
PLOTS = ("plan.png", "plan.svg")
#: rows of a table on the terminal
SHOWN = 24
#: rows of a ranking
RANKED = 10


# -- progress -------------------------------------------------------------------------------------


class Progress(Protocol):
    """Told how many points have been played, or how many of a known number."""

    def played(self, count: int) -> None: ...

    def of(self, done: int, total: int) -> None: ...


@contextmanager
def progress() -> Iterator[Progress]:
    """A bar on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    columns = (TextColumn("points"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=console, disable=not console.is_terminal, transient=True) as bars:
        task = bars.add_task("points", total=None)

        class Bar:
            def played(self, count: int) -> None:
                if bars.tasks[0].total is None:
                    bars.update(task, completed=count)

            def of(self, done: int, total: int) -> None:
                bars.update(task, completed=done, total=total)

        yield Bar()


# -- the terminal ---------------------------------------------------------------------------------


def print_plan(document: Document, console: Console, written: str) -> None:
    """The question, what was played, the answer in words, and what to know about it."""
    console.print(brief(document["name"], 100), style="bold", markup=False)
    _say(console, [question_text(document)])
    headers, rows = columns_of(document)
    if rows:
        left = {"bottleneck", "memory", "will do", "holds"}
        console.print(table(headers, rows, left=left))
    lines = answer_text(document)
    headers, rows = _raised_columns(document)
    if rows:
        console.print(table(headers, rows, left={"with", "costs"}))
    _say(console, lines)
    _say(console, [f"Warning: {clean(text)}" for text in document["warnings"][:8]], "yellow")
    _say(console, [written] if written else [])


def _say(console: Console, lines: Sequence[str], style: str = "") -> None:
    for line in lines:
        console.print(line, style=style, markup=False, highlight=False)


def setting_text(change: Mapping[str, Any]) -> str:
    """{"cluster.nodes": 4} as "cluster.nodes = 4"; "as it is" where nothing is set."""
    found = ", ".join(f"{clean(key)} = {_value(value)}" for key, value in change.items())
    return found or "as it is"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{clean(k)}: {_value(v)}" for k, v in value.items()) + "}"
    return clean(value)


def question_text(document: Document) -> str:
    """What was asked, in one sentence."""
    asked = document["question"]
    at = f" at {setting_text(asked['at'])}" if asked["at"] else ""
    need = " and ".join(asked.get("require") or ())
    if asked["kind"] == "require":
        base = asked["relative_to"]
        compared = f", relative to {setting_text(base)}" if base is not None else ""
        return f"Which {asked['vary']} makes {need}{at}{compared}?"
    if asked["kind"] == "choose":
        keys = ", ".join(axis["key"] for axis in asked["vary"])
        under = f" with {need}" if need else ""
        return f"Which {keys} has the least {_name(asked['minimise'])}{under}?"
    if asked["kind"] == "largest":
        under = f" with {need}" if need else ""
        return f"How large can {asked['largest']} be{under}{at}?"
    best = "most" if asked["maximise"] else "least"
    return f"Which {', '.join(asked['tune'])} has the {best} {_name(asked['objective'])}{at}?"


_NAMES = {
    "cost_usd": "cost",
    "time_to_train_s": "time to train",
    "energy_kwh": "energy",
    "throughput_per_s": "throughput",
    "step_time_s": "step time",
    "memory_bytes": "memory",
    "mfu": "MFU",
}


def _name(field: str) -> str:
    return _NAMES.get(field, clean(field).replace("_", " "))


def shown(point: Mapping[str, Any], field: str) -> str:
    """The value of `field` with its unit, for people; empty where there is none."""
    value = value_of(point, field)
    if value is None:
        return ""
    if field == "time_to_train_s":
        return duration(value)
    if field.endswith("_usd"):
        return money(value)
    if field.startswith("efficiency") or field == "mfu":
        return percent(value)
    if field == "throughput_per_s":
        return f"{number(value)} {clean(point['throughput_unit'])}"
    return said(field, value)


def _ends(point: Mapping[str, Any], field: str) -> str:
    """The 90 % interval of `field`, such as "85.1–93 %"."""
    ends = ends_of(point, field)
    if ends is None or value_of(point, field) is None:
        return ""
    if ends[0] == ends[1]:
        return "exact"
    low, high = (shown({**point, field: end}, field) for end in ends)
    number_of, _, unit = low.partition(" ")
    return f"{number_of if unit and high.endswith(f' {unit}') else low}–{high}"


# -- tables ---------------------------------------------------------------------------------------


def columns_of(document: Document) -> Columns:
    """The table of what was played."""
    kind = document["question"]["kind"]
    if kind == "largest":
        return _memory_columns(document)
    if kind == "require":
        return _require_columns(document)
    return _ranked_columns(document)


def _require_columns(document: Document) -> Columns:
    key = document["question"]["vary"]
    fields = _fields(document)
    headers = [key, *(label for f in fields for label in (_name(f), "90 % interval"))]
    headers += ["step", "bottleneck", "holds"]
    rows = [_require_row(point, key, fields) for point in document["points"]]
    return headers, rows[:SHOWN]


def _fields(document: Document) -> list[str]:
    """The fields that are required, apart from the step time and whether it fits."""
    names = [text.split(" ")[0] for text in document["question"].get("require") or ()]
    return [name for name in dict.fromkeys(names) if name != "fits"]


def _require_row(point: Mapping[str, Any], key: str, fields: Sequence[str]) -> list[str]:
    head = _value(point["set"][key])
    if "error" in point:
        return [head, *[""] * (2 * len(fields)), "no number", "", "no"]
    cells = [cell for f in fields for cell in (shown(point, f), _ends(point, f))]
    holds = "yes" if point["holds_sure"] else "yes, not at 90 %" if point["holds"] else "no"
    return [head, *cells, show(point["step_time_s"], "s"), _bottleneck(point), holds]


def _bottleneck(point: Mapping[str, Any]) -> str:
    return BOTTLENECKS.get(point["bottleneck"], clean(point["bottleneck"]))


def _ranked_columns(document: Document) -> Columns:
    """The points of a grid: those on the front for a choice, the best ones for a tuning."""
    asked = document["question"]
    objective = asked.get("minimise") or asked.get("objective")
    also = [f for f in ("time_to_train_s", "cost_usd") if _any(document, f)]
    fields = list(dict.fromkeys([objective, *also, *_fields(document)]))
    keys = [axis["key"] for axis in asked["vary"]]
    headers = [*(clean(key.rpartition(".")[2]) for key in keys), "ranks"]
    headers += [_name(fields[0]), "90 % interval", *(_name(f) for f in fields[1:])]
    headers += ["step", "bottleneck", *(["front"] if _front(document) else []), "will do"]
    rows = [_ranked_row(point, keys, fields, _front(document)) for point in _chosen(document)]
    if len({row[len(keys)] for row in rows}) > 1:
        return headers, rows
    return _without(headers, len(keys)), [_without(row, len(keys)) for row in rows]


def _without(cells: Sequence[str], place: int) -> list[str]:
    return [cell for k, cell in enumerate(cells) if k != place]


def _front(document: Document) -> bool:
    return bool(document["question"].get("front"))


def _any(document: Document, field: str) -> bool:
    return any(value_of(point, field) is not None for point in document["points"])


def _chosen(document: Document) -> list[Mapping[str, Any]]:
    """What the table shows of a grid."""
    points = document["points"]
    if document["question"]["kind"] == "choose":
        if len(points) <= SHOWN:
            return list(points)
        front = [p for p in points if p.get("on_front")]
        return (front or points)[:SHOWN]
    order = (document["answer"] or {}).get("ranking") or [p["set"] for p in points]
    by = {repr(point["set"]): point for point in points}
    first = [by[repr(change)] for change in order[:RANKED]]
    now = by[repr({})]
    return first if now in first else [*first, now]


def _ranked_row(
    point: Mapping[str, Any], keys: Sequence[str], fields: Sequence[str], front: bool
) -> list[str]:
    sets = point["set"]
    head = [brief(_value(sets[key]), 30) if key in sets else "as it is" for key in keys]
    head.append(f"{point['ranks']:,}" if point["ranks"] else "?")
    if "error" in point:
        return [*head, *[""] * (len(fields) + 1), "no number", "", *[""] * front, "no"]
    first, *rest = fields
    sure = "yes" if point["holds_sure"] else "yes, not at 90 %"
    return [
        *head,
        *(shown(point, first), _ends(point, first), *(shown(point, f) for f in rest)),
        show(point["step_time_s"], "s"),
        _bottleneck(point),
        *(["*" if point.get("on_front") else ""] if front else []),
        "no, memory" if point["fits"] is False else sure if point["holds"] else "no",
    ]


def _memory_columns(document: Document) -> Columns:
    """What memory is made of at the largest value, and at the one after it."""
    told = document["answer"] or document["infeasible"]
    if "memory" not in told:
        return ["memory"], []
    here, after = told["memory"], told.get("following")
    at = told["value"] if document["found"] else next(iter(told["at"].values()))
    headers = ["memory", f"at {at:,}", *([f"at {after['value']:,}"] if after else [])]
    parts = sorted(here["parts"], key=lambda name: -here["parts"][name])
    uses = [here, *([after] if after else [])]
    rows = [[clean(n), *(show(u["parts"].get(n, 0.0), "B") for u in uses)] for n in parts]
    rows.append(["sum", *(show(u["bytes"], "B") for u in uses)])
    rows.append(["the device has", *(show(u["capacity"] or 0.0, "B") for u in uses)])
    return headers, rows


def _raised_columns(document: Document) -> Columns:
    """What would raise the largest value."""
    told = document["answer"] or document["infeasible"]
    rows = [
        [setting_text(entry["set"]), f"{entry['value']:,}", clean(entry["cost"])]
        for entry in told.get("raised_by", ())
    ]
    return ["with", "largest", "costs"], rows


# -- sentences ------------------------------------------------------------------------------------


def answer_text(document: Document) -> list[str]:
    """The answer in words."""
    kind = document["question"]["kind"]
    if kind == "require":
        found = _require_text(document) if document["found"] else _missed_text(document)
        return [*found, *_now_text(document)]
    if not document["found"]:
        return _missed_text(document)
    texts = {"choose": _choose_text, "largest": _largest_text, "tune": _tune_text}
    return texts[kind](document)


def _require_text(document: Document) -> list[str]:
    answer, asked = document["answer"], document["question"]
    lines = [f"{clean(answer['key'])} {_stretch(answer)}{_reached(document, answer)}."]
    sure = answer["sure"]
    if any(point.get("holds_sure") != point.get("holds") for point in document["points"]) or (
        sure is None
    ):
        how = _stretch(sure) if sure else f"no value up to {asked['to']} is enough"
        lines.append(
            f"For the whole 90 % interval of the prediction: {how}"
            f"{_reached(document, sure) if sure else ''}."
        )
    return lines


def _stretch(found: Mapping[str, Any]) -> str:
    least, most = found["at_least"], found["at_most"]
    if least and most:
        return f"must be between {least['text']} and {most['text']}"
    if least:
        return f"must be at least {least['text']}"
    if most:
        return f"may be at most {most['text']}"
    return f"does not matter: it holds everywhere from {found['from']} to {found['to']}"


def _reached(document: Document, found: Mapping[str, Any]) -> str:
    """What the edge reaches, in brackets."""
    end = found["at_least"] or found["at_most"]
    fields = _fields(document)
    if end is None or not fields:
        return ""
    values = [f"{_name(f)} {shown(end['point'], f)}" for f in fields]
    return f" ({', '.join(values)}; {_where(end['point'])})"


def _where(point: Mapping[str, Any]) -> str:
    return f"{ranks(point['ranks'])}, step {show(point['step_time_s'], 's')}"


def _now_text(document: Document) -> list[str]:
    answer = document["answer"]
    if answer is None or "error" in answer["now"]["point"]:
        return []
    now, fields = answer["now"], _fields(document)
    values = ", ".join(f"{_name(f)} {shown(now['point'], f)}" for f in fields)
    verdict = "holds" if now["holds"] else "does not hold"
    return [f"As the scenario stands, it {verdict}{f' ({values})' if values else ''}."]


def _missed_text(document: Document) -> list[str]:
    """Why there is no answer: by how much, and what binds."""
    told = document["infeasible"]
    lines = ["Nothing that was searched will do."]
    for miss in told.get("alone") or told["misses"]:
        lines.append(_miss(miss, told))
    if "alone" in told and not told["alone"]:
        both = " and ".join(miss["require"] for miss in told["misses"])
        lines.append(f"Each requirement can be met alone, not all together: nearest is {both}.")
        lines += [_miss(miss, told) for miss in told["misses"]]
    nearest = told.get("nearest")
    if nearest is not None and "error" not in nearest:
        lines.append(
            f"At {setting_text(nearest['set'])} ({_where(nearest)}) it is {_bottleneck(nearest)} "
            f"that binds: {split_text(nearest)}."
        )
    return lines


def _miss(miss: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    if miss["field"] == "fits" or miss["require"] == "fits":
        need = show(miss["value"], "B") if miss["value"] is not None else "more than there is"
        room = f"; a device has {show(miss['limit'], 'B')}" if miss["limit"] else ""
        return f"It does not fit in memory: at least {need} are needed{room}."
    change = miss.get("set", (told.get("nearest") or {}).get("set", {}))
    if miss["value"] is None:
        return f"{miss['require']}: there is no number."
    value = shown({miss["field"]: miss["value"], "throughput_unit": "per second"}, miss["field"])
    by = f", {percent(miss['by'])} away" if miss["by"] is not None else ""
    return f"{miss['require']}: the nearest is {value} at {setting_text(change)}{by}."


def _choose_text(document: Document) -> list[str]:
    answer = document["answer"]
    point, objective = answer["point"], answer["objective"]
    facts = [
        f"{_name(f)} {shown(point, f)}{_bracket(point, f)}"
        for f in dict.fromkeys((objective, "time_to_train_s", "cost_usd", *_fields(document)))
        if value_of(point, f) is not None
    ]
    lines = [f"Take {setting_text(answer['set'])}: {', '.join(facts)}, on {_where(point)}."]
    sure = answer["sure"]
    if not document["question"]["require"]:
        return lines
    if sure is None:
        lines.append("For the whole 90 % interval of the prediction nothing searched is enough.")
    elif sure["set"] != answer["set"]:
        lines.append(
            f"For the whole 90 % interval: {setting_text(sure['set'])}, "
            f"{_name(objective)} {shown(sure['point'], objective)}."
        )
    else:
        lines.append("That holds for the whole 90 % interval of the prediction.")
    return lines


def _bracket(point: Mapping[str, Any], field: str) -> str:
    ends = _ends(point, field)
    return f" ({ends})" if ends not in ("", "exact") else ""


def _largest_text(document: Document) -> list[str]:
    answer = document["answer"]
    point, key = answer["point"], clean(answer["key"])
    lines = [f"{key} can be {answer['value']:,}, limited by {clean(answer['limited_by'])}."]
    if answer["limited_by"] == "memory" and answer["following"]:
        short = show(answer["following"]["short_by"], "B", 3)
        lines[0] = lines[0][:-1] + f": {answer['following']['value']:,} is {short} short."
    if answer["limited_by"] == "memory" and not answer["raised_by"]:
        lines.append("No single change that was tried makes more fit.")
    if "error" not in point:
        rate = shown(point, "throughput_per_s")
        lines.append(f"There a step takes {show(point['step_time_s'], 's')}: {rate}.")
    return lines


def _tune_text(document: Document) -> list[str]:
    answer = document["answer"]
    objective, point = answer["objective"], answer["point"]
    gain = answer["gain"]
    text = (
        f"Best: {setting_text(answer['set'])}, {_name(objective)} {shown(point, objective)}"
        f"{_bracket(point, objective)}"
    )
    if gain is None:
        return [text + "."]
    lines = [f"{text}; {_gain_text(answer)} over now."]
    same = answer["same_batch"]
    if same is not None:
        lines.append(
            f"At the present global batch: {setting_text(same['set'])}, {_gain_text(same)}."
        )
    return lines


def _gain_text(gained: Mapping[str, Any]) -> str:
    low, high = gained["gain_low"], gained["gain_high"]
    ends = "" if low == high else f" (90 % interval {signed(low)} to {signed(high)})"
    return f"{signed(gained['gain'])}{ends}"


# -- files ----------------------------------------------------------------------------------------


def files_of(document: Document) -> tuple[str, ...]:
    """The files that `write_plan` writes."""
    return (*FILES, *PLOTS) if _plotted(document) else FILES


def write_plan(document: Document, out: Path) -> None:
    """Write the answer, its points and the plot into folder `out`."""

    def fill(bundle: Bundle) -> None:
        bundle.json(FILES[0], document)
        bundle.csv(FILES[1], [flat({"set": p["set"], **p}) for p in document["points"]])
        if _plotted(document):
            bundle.figure(*PLOTS, lambda: make_figure(document))

    write_bundle(out, files_of(document), fill)


# -- plots ----------------------------------------------------------------------------------------


def _plotted(document: Document) -> bool:
    """Whether there is a plot: of a requirement over its key, or of a front."""
    asked = document["question"]
    if asked["kind"] == "require":
        field = next(iter(_fields(document)), None)
        return field is not None and _any(document, field)
    return bool(asked["kind"] == "choose" and asked["front"])


def make_figure(document: Document) -> Figure:
    """The first required field over the key that is varied, or the front of time and cost."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    axes = figure.subplots()
    figure.suptitle(brief(document["name"], 72), x=0.02, ha="left", fontsize=12)
    if document["question"]["kind"] == "require":
        _draw_require(axes, document)
    else:
        _draw_front(axes, document)
    if axes.get_legend_handles_labels()[1]:
        figure.legend(loc="outside lower center", ncols=3, fontsize=9)
    return figure


class _Scaled(NamedTuple):
    """How a field is drawn: its numbers times `factor`, on an axis called `label`."""

    factor: float
    label: str


def _scaled(document: Document, field: str) -> _Scaled:
    values = [v for p in document["points"] if (v := value_of(p, field)) is not None]
    most = max(values)
    if field.endswith("_s") and not field.endswith("_per_s"):
        steps = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"))
        scale, unit = next((s for s in steps if most >= 2 * s[0]), (1e-6, "us"))
        return _Scaled(1.0 / scale, f"{_name(field)} [{unit}]")
    if field.startswith("efficiency") or field == "mfu":
        return _Scaled(100.0, f"{_name(field)} [%]")
    if "bytes" in field or field.startswith("memory_parts"):
        return _Scaled(1e-9, f"{_name(field)} [GB]")
    unit = {"cost_usd": " [usd]", "energy_kwh": " [kWh]"}.get(field, "")
    return _Scaled(1.0, _name(field) + unit)


def _draw_require(axes: Axes, document: Document) -> None:
    """The field over the key, its 90 % interval, the limit, and where the limit is met."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    asked, answer = document["question"], document["answer"]
    key, field = asked["vary"], _fields(document)[0]
    scale = _scaled(document, field)
    points = [p for p in document["points"] if value_of(p, field) is not None]
    x = [_plain(p["set"][key]) for p in points]
    y = [(value_of(p, field) or 0.0) * scale.factor for p in points]
    bands = [ends_of(p, field) for p in points]
    if all(band is not None and band[0] != band[1] for band in bands):
        low, high = ([b[k] * scale.factor for b in bands if b] for k in (0, 1))
        axes.fill_between(x, low, high, color=BLUE, alpha=0.12, linewidth=0, label="90 % interval")
    axes.plot(x, y, color=BLUE, marker="o", markersize=4, label=_name(field), gid="line")
    limit = next(one for one in document["limits"] if one["field"] == field)
    axes.axhline(limit["limit"] * scale.factor, color=GREY, linewidth=1.2, linestyle="--",
                 label="required")  # fmt: skip
    for found, colour, label in _edges(answer):
        axes.axvline(_plain(found["text"]), color=colour, linewidth=1.2, label=label)
    if min(x) > 0 and max(x) >= 8 * min(x):
        axes.set_xscale("log")
        steps = (1.0, 2.0, 5.0) if max(x) < 1000 * min(x) else (1.0,)
        axes.xaxis.set_major_locator(LogLocator(subs=steps))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
        axes.xaxis.set_minor_locator(NullLocator())
    unit = str(points[0]["set"][key]).partition(" ")[2]
    axes.set(xlabel=f"{clean(key)} [{clean(unit)}]" if unit else clean(key), ylabel=scale.label)


def _edges(answer: Mapping[str, Any] | None) -> Iterator[tuple[Mapping[str, Any], str, str]]:
    """The ends of where it holds: as predicted, and at 90 %."""
    kinds = ((answer, GREEN, ""), ((answer or {}).get("sure"), ORANGE, " at 90 %"))
    for found, colour, label in kinds:
        for name, way in (("at_least", "holds from here"), ("at_most", "holds up to here")):
            if found and found[name]:
                yield found[name], colour, way + label


def _plain(text: Any) -> float:
    return float(str(text).split(" ")[0])


def _draw_front(axes: Axes, document: Document) -> None:
    """All points by time and cost; those on the front joined, and the one to take."""
    x_field, y_field = document["question"]["front"]
    x_scale, y_scale = _scaled(document, x_field), _scaled(document, y_field)

    def place(point: Mapping[str, Any]) -> tuple[float, float]:
        x, y = value_of(point, x_field) or 0.0, value_of(point, y_field) or 0.0
        return x * x_scale.factor, y * y_scale.factor

    points = [p for p in document["points"] if value_of(p, x_field) and value_of(p, y_field)]
    front = sorted(place(p) for p in points if p.get("on_front"))
    rest = [place(p) for p in points if not p.get("on_front")]
    if rest:
        axes.plot(*zip(*rest, strict=True), "o", color=GREY, markersize=5, label="other points",
                  markerfacecolor="white", gid="rest")  # fmt: skip
    if front:
        axes.plot(*zip(*front, strict=True), "-o", color=BLUE, markersize=5, gid="front",
                  label="front: none is faster and cheaper")  # fmt: skip
    for one in document["limits"]:
        for field, scale, draw in (
            (x_field, x_scale, axes.axvline),
            (y_field, y_scale, axes.axhline),
        ):
            if one["field"] == field:
                draw(one["limit"] * scale.factor, color=GREY, linewidth=1.2, linestyle="--",
                     label="required")  # fmt: skip
    if document["answer"]:
        x, y = place(document["answer"]["point"])
        axes.plot([x], [y], "D", color=ORANGE, markersize=8, label="to take", gid="answer")
    for p in [p for p in points if p.get("on_front")][:12]:
        text = setting_text({k.rpartition(".")[2]: v for k, v in p["set"].items()})
        axes.annotate(clean(text), place(p), xytext=(6, 5), textcoords="offset points", fontsize=8)
    axes.set(xlabel=x_scale.label, ylabel=y_scale.label)
    axes.set_xlim(0.0, 1.12 * max(place(p)[0] for p in points))
    axes.set_ylim(0.0, 1.08 * max(place(p)[1] for p in points))
