"""What `left_out.json` says, as sections of `accuracy.md`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).resolve().parent / "left_out.json"

SEEN = """
## What was seen

| figure | series | source, machine |
| --- | --- | --- |
| *fit* | seen: constants were fitted on them (collectives over RoCE and EFA: all series) | seen |
| *held out* | unseen by fits; seen by widths, A88, A100 | mostly seen: others are in the fit half |
| coverage and widths below | seen: widths are learned on all series | seen |
| intervals, left out | unseen by the widths | unseen by the widths, half seen by constants |

Constants are few (NCCL's by kind of fabric, a share of peak by generation and dtype, contention and
spread), so one source moves them little; a machine of a kind of fabric that nobody measured is as
far off as those of such kinds were that were left out.
"""

HEAD = """
## Left out

Each source of training runs, and each machine of collectives, is left out once and judged by widths
that were learned, and widened, on the others (`python validation/left_out.py`). The interval score
is, on logarithms, the width and twenty times what lies outside (Gneiting and Raftery 2007): smaller
is better. Beside it stands that of the best constant interval, learned and widened on the others
too; in brackets are means over sources or machines. The tables hold the published rows and some
that do not ship; `recent` has H100 and newer, nearly all of it of a shared cluster (`PLAYBOOK`)
whose rates fall without a reason, and which is left out of *uncalibrated*, by its name;
`recent_levels` has single counts of such devices. Where its
table flags such a fall, larger counts that are still below 35 % of the rate before it are not
scored either (40 of 550, two to sixty times too slow; with them own scores were 4 % above the
constant's: no interval says that a cluster breaks).
*Uncalibrated* widths are learned as factors on whole steps, beyond which what ships never reaches:
[A25](../docs/assumptions.md) has figures of that.

| intervals | table | n | score | best constant | inside | ± width |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
"""

ELSEWHERE = """
Not scored are {rows} rows of which the source lists the same rates, to 2 %, for a link of a tenth
of the rate: they ran on that one (`ELSEWHERE` in `validation/left_out.py`). With them scores would
be {scores}, the median error {median}, the 90th percentile {p90}.
"""

ERRORS = """
Calibrated on the smallest count; linear scaling beside it on the same rows. *Charged* is the median
where a row of quality A or B that is refused counts with linear scaling's error, at least 50 %.

| source | predicted | median | 90th | linear | linear 90th | charged |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""


def sections() -> str:
    """The sections; of figures that nobody made there is none."""
    if not FIGURES.is_file():
        return SEEN
    found: Mapping[str, Any] = json.loads(FIGURES.read_text(encoding="utf-8"))
    kinds = [kind for kind in ("calibrated", "uncalibrated", "collectives") if kind in found]
    rows = [_interval(kind, table, own) for kind in kinds for table, own in found[kind].items()]
    errors = found.get("errors", {})
    tables = {f"*{t.removesuffix('.csv')}*": own for t, own in found.get("tables", {}).items()}
    sources = {name: own for name, own in errors.items() if name != "all"}
    every = {name: own for name, own in errors.items() if name == "all"}
    told = [_error(*one) for one in (sources | tables | every).items() if one[1]["n"]]
    own = HEAD + "".join(rows) + _elsewhere(found)
    return SEEN + own + ERRORS + "".join(told) + _simpler(errors, found.get("tables", {}))


def _elsewhere(found: Mapping[str, Any]) -> str:
    """What rows that are not scored, for they were not measured where their table says, would
    make of it."""
    told = found.get("elsewhere")
    if not told:
        return ""
    kinds = [kind for kind in ("calibrated", "uncalibrated") if kind in told]
    largest = [max(told[kind].items(), key=lambda one: one[1]["own"]["n"]) for kind in kinds]
    scores = [
        f"{own['own']['score']:.2f} beside {own['constant']['score']:.2f} {kind} "
        f"({table.removesuffix('.csv')})"
        for kind, (table, own) in zip(kinds, largest, strict=True)
    ]
    errors = told["errors"]
    return ELSEWHERE.format(
        rows=told["rows"], scores=" and ".join(scores), median=_share(errors["median"]),
        p90=_share(errors["p90"]),
    )  # fmt: skip


def _interval(kind: str, table: str, found: Mapping[str, Mapping[str, float]]) -> str:
    own, constant = found["own"], found["constant"]
    return _line(
        [
            kind,
            table.removesuffix(".csv"),
            f"{own['n']:,}",
            f"{own['score']:.2f} ({own['score_over_groups']:.2f})",
            f"{constant['score']:.2f} ({constant['score_over_groups']:.2f})",
            f"{_share(own['coverage'])} ({_share(own['coverage_over_groups'])})",
            _share(own["half_width"]),
        ]
    )


def _error(name: str, own: Mapping[str, float]) -> str:
    keys = ("median", "p90", "linear_median", "linear_p90", "charged_median")
    shown = f"**{name}**" if name == "all" else name
    return _line([shown, f"{own['n']} of {own['rows']}", *(_share(own[key]) for key in keys)])


def _simpler(
    errors: Mapping[str, Mapping[str, float]], tables: Mapping[str, Mapping[str, float]]
) -> str:
    """Where linear scaling has the smaller median, and the means over sources."""
    if not errors:
        return ""
    better = [
        f"{name} ({_share(own['linear_median'])} against {_share(own['median'])})"
        for name, own in errors.items()
        if own["n"] and name != "all" and own["linear_median"] < own["median"]
    ]
    means = [
        f" ({table.removesuffix('.csv')}: {_share(own['mean_over_sources'])})"
        for table, own in tables.items()
    ]
    mean = _share(errors["all"]["mean_over_sources"])
    text = f"\nThe mean over sources of their medians is {mean}{''.join(means)}."
    if better:
        text += f" Linear scaling is nearer on {', '.join(better)}."
    return text + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _share(value: float) -> str:
    """One decimal below 10 %, whole percents above."""
    return f"{value * 100:.1f} %" if value < 0.0995 else f"{value * 100:,.0f} %"
