"""Table, picture, page and files of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsim.core.units import dollars, show
from dpsim.report import figures, text
from dpsim.report.bundle import Bundle, write_bundle
from dpsim.report.figures import BLACK, BLUE, GREY
from dpsim.report.table import Columns, columns, put, say, warn
from dpsim.report.text import between, brief, clean, duration, number, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.console import Console

Document = Mapping[str, Any]
#: what `dpsim compare -o` writes
FILES = ("comparison.json", "candidates.csv", "comparison.png", "comparison.svg", "index.html")
#: what is left out first where a terminal is too narrow; --json and candidates.csv have all of it
_DROPPED = ("sent/rank", "exposed", "eff.", "of time", "memory",
            "energy", "expected regret", "cost", "90 % interval")  # fmt: skip
#: pairs that are told in words
MOST_PAIRS = 6
_WHAT = {"cost": "costs", "time": "takes", "energy": "draws"}
_LABELS = {"cost": "cost [usd]", "time": "time [{}]", "energy": "energy [kWh]"}


# -- values ---------------------------------------------------------------------------------------


def worth(value: float, by: str) -> str:
    """An objective with its unit."""
    if by == "cost":
        return dollars(value)
    return duration(value) if by == "time" else f"{number(value)} kWh"


def interval(low: float, high: float, by: str) -> str:
    """Both ends, with the unit once where it is the same."""
    if high - low <= 1e-9 * high:
        return "exact"
    return between(worth(low, by), worth(high, by))


def probability(share: float, error: float) -> str:
    """A probability from draws: never more certain than they are."""
    return _share(share) + (f" ± {error * 100:.1f}" if error >= 0.0005 else "")


def _share(share: float) -> str:
    """A probability; a share of draws is never 0 or 1 for sure."""
    if share > 0.999:
        return "> 99.9 %"
    return "< 0.1 %" if share < 0.001 else f"{share * 100:.1f} %"


# -- tables ---------------------------------------------------------------------------------------


def step_columns(document: Document) -> Columns:
    """A row per candidate (and job, where there are several): the step and what limits it."""
    order = ("candidate", "job", "ranks", "step", "exposed", "sent/rank", "memory", "fits", "eff.",
             "of time", "bottleneck")  # fmt: skip
    return columns([row for c in document["candidates"] for row in _step_rows(c)], order)


def _step_rows(candidate: Document) -> list[dict[str, str]]:
    head = {"candidate": clean(candidate["name"])}
    if "error" in candidate:
        return [{**head, "step": "no number"}]
    head["ranks"] = f"{candidate['ranks']:,}"
    jobs = candidate["jobs"]
    if len(jobs) < 2:
        return [{**head, **_step_cells(candidate)}]
    rows = [
        {"job": clean(job["name"]), "of time": percent(job["share_of_time"]), **_step_cells(job)}
        for job in jobs
    ]
    return [{**head, **rows[0]}, *rows[1:]]


def _step_cells(at: Document) -> dict[str, str]:
    return {
        "step": show(at["step_time_s"], "s"),
        "exposed": show(at["exposed_communication_s"], "s", 3),
        "sent/rank": show(at["bytes_sent_per_rank"], "B", 3),
        "memory": show(at["memory_bytes"], "B", 3),
        "fits": text.fits(at["fits"]),
        "eff.": percent(at["efficiency"]),
        "bottleneck": text.bottleneck(at["bottleneck"]),
    }


def choice_columns(document: Document) -> Columns:
    """A row per candidate: what the work takes and costs, and how surely it is best."""
    by = document["by"]
    rows = []
    for c in document["candidates"]:
        row = {"candidate": clean(c["name"])}
        if c["days"] is not None:
            row["time"] = duration(c["days"] * 86400.0)
        if c["cost_usd"] is not None:
            row["cost"] = dollars(c["cost_usd"])
        elif c["usd_per_hour"] is not None:
            row["cost"] = f"{dollars(c['usd_per_hour'])}/h"
        if c["energy_kwh"] is not None:
            row["energy"] = f"{number(c['energy_kwh'])} kWh"
        if c["objective"] is not None:
            row[f"mean {by}"] = worth(c["objective"], by)
            row["90 % interval"] = interval(c["objective_low"], c["objective_high"], by)
            row["best"] = probability(c["probability_best"], c["probability_best_error"])
            row["expected regret"] = worth(c["expected_regret"], by)
        else:
            row["best"] = "cannot be chosen"
        rows.append(row)
    order = ("candidate", "time", "cost", "energy", f"mean {by}", "90 % interval", "best",
             "expected regret")  # fmt: skip
    return columns(rows, order)


# -- sentences ------------------------------------------------------------------------------------


def headline(document: Document) -> str:
    """The answer in one sentence."""
    name, second = document["recommendation"], document["runner_up"]
    if name is None:
        return "None of the candidates can be chosen: they do not fit in memory, or have no number."
    found = _named(document, name)
    by = document["by"]
    takes = f"{clean(document['work'])} {_WHAT[by]} {worth(found['objective'], by)} in the mean"
    if second is None:
        return f"{clean(name)}: {takes}; there is nothing to choose between."
    other = _named(document, second)
    if _equal(document, name, second):
        return f"{clean(name)} and {clean(second)} are equal: {takes}."
    return (
        f"Take {clean(name)}: {takes}, with {clean(second)} {worth(other['objective'], by)}; it is "
        f"the best of all with a probability of {_share(found['probability_best'])}."
    )


def sentences(document: Document) -> list[str]:
    """Regret, break-even price, pairs, and what to measure."""
    name, by = document["recommendation"], document["by"]
    if name is None or document["runner_up"] is None:
        return []
    found = _named(document, name)
    lines = [
        f"If it is wrong: choosing {clean(name)} loses {worth(found['expected_regret'], by)} in "
        f"the mean (± {worth(found['expected_regret_error'], by)}) against knowing what is best."
        if found["expected_regret"] > 0.0 else
        f"No other candidate was better than {clean(name)} in any draw."
    ]  # fmt: skip
    lines += [*_spares(document), *_break_even(document)]
    if len(document["pairs"]) > 1:
        lines += [
            f"{clean(p['a'])} and {clean(p['b'])} are equal."
            if p["equal"] else
            f"{clean(p['a'])} beats {clean(p['b'])} with a probability of "
            f"{_share(p['probability_a_better'])}."
            for p in document["pairs"][:MOST_PAIRS]
        ]  # fmt: skip
    return [*lines, *_measure(document)]


def _spares(document: Document) -> list[str]:
    """Which candidates keep spare nodes, that cost and draw as those that train."""
    kept = [c for c in document["candidates"] if c["spare_nodes"]]
    priced = any(c["cost_usd"] is not None or c["energy_kwh"] is not None for c in kept)
    if not priced:
        return []
    names = ", ".join(f"{c['spare_nodes']:,} of {clean(c['name'])}" for c in kept)
    return [f"Cost and energy count warm spare nodes beside those that train: {names}."]


def _equal(document: Document, name: str, second: str) -> bool:
    """Whether two candidates run alike."""
    return any(p["equal"] for p in document["pairs"] if {p["a"], p["b"]} == {name, second})


def _named(document: Document, name: str) -> Document:
    found: Document = next(c for c in document["candidates"] if c["name"] == name)
    return found


def _break_even(document: Document) -> list[str]:
    price, second = document["break_even_price_usd"], document["runner_up"]
    own = _named(document, second)["usd_per_device_hour"]
    if own is None:
        return []
    if price is None:
        return [
            f"No price of its devices makes {clean(second)} as cheap: its other costs are more."
        ]
    return [
        f"{clean(second)} would cost the same at {dollars(price)} per device-hour; now it is "
        f"{dollars(own)}."
    ]


def _measure(document: Document) -> list[str]:
    found, by = document["measure_next"], document["by"]
    if found is None:
        return [
            "No single measurement is sure to lower the expected regret by 1 %: what one would "
            "tell is the same for all, or less than what stays open beside it."
        ]
    return [
        f"Measure next: {clean(found['what'])}. It lowers the expected regret by "
        f"{worth(found['saves'], by)}, to {worth(found['expected_regret_after'], by)}."
    ]


# -- the terminal ---------------------------------------------------------------------------------


def print_comparison(document: Document, console: Console, files: str) -> None:
    """The answer first, then the tables, then why and what to measure."""
    say(console, [headline(document)], "bold")
    put(console, step_columns(document), ("candidate", "job", "bottleneck"), _DROPPED)
    put(console, choice_columns(document), ("candidate",), _DROPPED)
    say(console, sentences(document))
    for command in (document["measure_next"] or {}).get("commands", ()):
        console.print(f"    {clean(command)}", markup=False, highlight=False, soft_wrap=True)
    warn(console, document["warnings"], 12)
    say(console, [files] if files else [])


# -- files ----------------------------------------------------------------------------------------


def write_comparison(document: Document, out: Path) -> list[str]:
    """Write `FILES` into folder `out`; returns their names."""
    from dpsim.report.pages.compare import page

    def fill(bundle: Bundle) -> None:
        bundle.json(FILES[0], document)
        jobs_apart = [{k: v for k, v in c.items() if k != "jobs"} for c in document["candidates"]]
        bundle.csv(FILES[1], jobs_apart)
        bundle.figure(FILES[2], FILES[3], lambda: make_figure(document))
        bundle.text(FILES[4], page(document))

    return write_bundle(out, fill)


def measurement_columns(document: Document) -> Columns:
    """What could be measured, and what that saves."""
    by = document["by"]
    rows = [
        [clean(m["what"]), worth(m["saves"], by), worth(m["expected_regret_after"], by),
         clean(", ".join(m["informs"]))]
        for m in document["measurements"]
    ]  # fmt: skip
    return ["measurement", "saves", "regret left", "informs"], rows


# -- the picture ----------------------------------------------------------------------------------


def make_figure(document: Document) -> Figure:
    """Above, what the work costs with its 90 % interval; below, where the step's time goes."""
    shown = document["candidates"]
    figure = figures.blank(8.5, 3.0 + 0.75 * len(shown), brief(_title(document), 90), 11)
    above, below = figure.subplots(2, 1)
    _choice(above, document, shown)
    _steps(below, shown)
    for axes in (above, below):
        figures.named_rows(axes, [brief(c["name"], 32) for c in shown])
    return figure


def draw_on(axes: Axes, document: Document) -> None:
    """What the work costs with its 90 % interval, on `axes`."""
    _choice(axes, document, document["candidates"])
    figures.named_rows(axes, [brief(c["name"], 32) for c in document["candidates"]])


def _title(document: Document) -> str:
    best = document["recommendation"]
    return "No candidate can be chosen" if best is None else f"Best by {document['by']}: {best}"


def _choice(axes: Axes, document: Document, shown: Sequence[Document]) -> None:
    by = document["by"]
    ends = [c["objective_high"] for c in shown if c["objective_high"] is not None]
    scale, unit = figures.time_scale(ends, long=True) if by == "time" else (1.0, "")
    most = max(ends, default=1.0) * scale
    for place, c in enumerate(shown):
        if c["objective"] is None:
            axes.text(0.0, place, "  cannot be chosen", va="center", fontsize=9, color=GREY)
            continue
        best = c["name"] == document["recommendation"]
        middle = c["objective"] * scale
        low, high = c["objective_low"] * scale, c["objective_high"] * scale
        axes.barh(place, middle, height=0.5, color=BLUE if best else "#A9C9E0")
        error = [[max(middle - low, 0.0)], [max(high - middle, 0.0)]]
        axes.errorbar(middle, place, xerr=error, color=BLACK, capsize=3, linewidth=1.2)
        said = f"best {probability(c['probability_best'], c['probability_best_error'])}"
        axes.text(high + 0.01 * most, place, f"  {said}", va="center", fontsize=9)
    axes.set_xlim(0.0, most * 1.28)
    figures.tick(axes.xaxis)
    axes.set_xlabel(
        f"mean {_LABELS[by].format(unit)} with 90 % interval: {clean(document['work'])}"
    )


def _steps(axes: Axes, shown: Sequence[Document]) -> None:
    """Parts of the (mean) step."""
    scale, unit = figures.time_scale(
        [c["step_time_s"] for c in shown if c["step_time_s"] is not None]
    )
    for place, c in enumerate(shown):
        figures.stack(axes, place, c, scale, 0.5)
    several = any(len(c["jobs"]) > 1 for c in shown)
    axes.set_xlabel(f"{'mean of all jobs: ' * several}time per step [{unit}]")
    if axes.patches:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.32), ncols=4, fontsize=8)
