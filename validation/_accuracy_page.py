"""`accuracy.md`: the figures of `accuracy.json` for people to read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _accuracy_gate import ENOUGH, Kept
from _left_out_page import sections

Figures = Mapping[str, Any]

RECORDS = Path(__file__).resolve().parent / "records"
#: names of the baselines, in the order of their columns
BASELINES = {"linear": "linear", "alpha_beta": "α–β", "nccl_bare": "bare NCCL"}
#: reasons for refusals that are listed
REASONS = 12
_NONE = "–"

HEAD = """# Accuracy

Written by `python validation/accuracy.py` from [published rows](published/README.md); every figure
and those of smaller groups are in `accuracy.json`. Revision {revision}: {because}

An error is |predicted / measured − 1|. *Bias* is the median of predicted / measured − 1 of times,
of steps or collectives: above 0 they are predicted too slow. *Coverage* is the share of
measurements inside the intervals, which should be 90 %, and *± width* the median half-width of
these. *Fit* and *held out* are the halves of the series, by the CRC-32 of their names: constants
are fitted on the *fit* half, but those of RoCE and EFA, and the widths of intervals, on all series
([what was seen](#what-was-seen)). *n* counts the rows that a line rests on.
"""

TRAINING = """
Each series is calibrated on its smallest count; the other counts are predicted. Errors are of the
row's own unit, mostly a throughput. *Skill* is 1 − error / error of linear scaling, both on the
lost efficiency: 1 is perfect, 0 is no better than saying that nothing is lost. Linear, α–β and bare
NCCL are the median errors of simpler methods on the same rows.
"""

COLLECTIVES = """
Nothing is calibrated: machine, library and size are all that is known. Predicted and measured are
times. α–β and bare NCCL are the median errors of a ring on nominal links, and of NCCL's own cost
model.
"""

FOOT = """
## Again

    python validation/accuracy.py            write accuracy.md and accuracy.json (`make accuracy`)
    python validation/accuracy.py --check    fail where they are stale or predictions are worse

[CONTRIBUTING](../CONTRIBUTING.md) says how a worse prediction is accepted. One table alone, row by
row: `dpsim validate validation/published/training.csv -o out`.

"""


def page(kept: Kept) -> str:
    """The whole text; it follows from `kept` and from `left_out.json` alone."""
    training, collectives = kept.figures["training"], kept.figures["collectives"]
    parts = [
        HEAD.format(revision=kept.revision, because=kept.because),
        _headline(training, collectives),
        sections(),
        "\n## Training runs\n",
        TRAINING,
        _tables(training, ("skill", "linear", "alpha_beta", "nccl_bare")),
        "\n## Collectives\n",
        COLLECTIVES,
        _tables(collectives, ("alpha_beta", "nccl_bare")),
        _faulty(collectives),
        recorded(RECORDS),
        FOOT,
        _versions(kept),
    ]
    return "".join(parts)


def _headline(training: Figures, collectives: Figures) -> str:
    rows = [
        ["training runs", *_headline_cells(training)],
        ["collectives", *_headline_cells(collectives)],
    ]
    heads = ("", "rows", "refused", "n", "median", "held-out median (n)", "90th percentile")
    across = training["across_nodes"]
    text = (
        f"\nTraining runs across nodes, of series with at least three counts: the median error is "
        f"{_share(across['mean_over_sources_of_median_error'])} as a mean over "
        f"{across['sources']} sources (n = {across['n']}), the skill {_skill(across['skill'])}.\n"
    )
    return "\n" + _table(heads, rows) + text + _simpler(training, collectives)


def _headline_cells(found: Figures) -> list[str]:
    every, held = found["all"]["all"], found["all"]["held_out"]
    refused = found["status"].get("refused", 0)
    return [
        f"{found['rows']:,}",
        f"{refused:,}",
        f"{every['n']:,}",
        _share(every.get("median_error")),
        _with_n(held),
        _share(every.get("p90_error")),
    ]


def _simpler(training: Figures, collectives: Figures) -> str:
    """Which simpler methods are nearer to all rows of a table, by the median."""
    lines = []
    for name, found in (("training runs", training), ("collectives", collectives)):
        every = found["all"]["all"]
        for baseline, figures in every["baselines"].items():
            if figures["median_error"] < every["median_error"]:
                lines.append(
                    f"\nOn {name}, {BASELINES[baseline]} has the smaller median error: "
                    f"{_share(figures['median_error'])} (n = {figures['n']:,}).\n"
                )
    return "".join(lines)


def _tables(found: Figures, extra: Sequence[str]) -> str:
    sources = {**found["sources"], "**all**": found["all"]}
    large = {k: v for k, v in found["regimes"].items() if v["all"]["n"] >= ENOUGH}
    small = [v["all"]["n"] for v in found["regimes"].values() if v["all"]["n"] < ENOUGH]
    rest = f"\nRegimes with fewer than {ENOUGH} rows: {len(small)}, which hold {sum(small)} rows.\n"
    return "".join(
        [
            "\n### By source\n\n",
            _groups("source", sources, extra),
            "\n### By regime\n\n",
            _groups("regime", large, extra),
            rest if small else "",
            "\n### Refused\n\n",
            _refusals(found["refusals"]),
        ]
    )


def _groups(head: str, groups: Mapping[str, Figures], extra: Sequence[str]) -> str:
    named = [BASELINES.get(name, name) for name in extra]
    heads = (head, "n", "median", "90th", "bias", "coverage", "± width", *named, "fit (n)",
             "held out (n)")  # fmt: skip
    rows = []
    for name, halves in groups.items():
        every = halves["all"]
        rows.append(
            [
                name.replace(" | ", ", "),
                f"{every['n']:,}",
                _share(every["median_error"]),
                _share(every["p90_error"]),
                f"{every['signed_bias']:+.1%}".replace("%", " %"),
                _share(every["coverage"]),
                _share(every["median_half_width"]),
                *(_extra(every, name) for name in extra),
                _with_n(halves["fit"]),
                _with_n(halves["held_out"]),
            ]
        )
    return _table(heads, rows)


def _extra(figures: Figures, name: str) -> str:
    if name == "skill":
        return _skill(figures.get("skill"))
    return _share(figures["baselines"].get(name, {}).get("median_error"))


def _refusals(found: Mapping[str, int]) -> str:
    if not found:
        return "Nothing.\n"
    rows = [[reason.replace("|", "/"), f"{n:,}"] for reason, n in list(found.items())[:REASONS]]
    rest = list(found.values())[REASONS:]
    if rest:
        rows.append([f"{len(rest)} other reasons", f"{sum(rest):,}"])
    return _table(("why", "rows"), rows)


def _faulty(collectives: Figures) -> str:
    faulty = collectives["faulty"]
    return (
        f"\nRows that are marked as showing a fault are not scored: {faulty['outside']} of the "
        f"{faulty['predicted']} that can be predicted lie outside their intervals.\n"
    )


def recorded(folder: Path) -> str:
    """What the project itself has measured on GPUs, by the records in `folder`."""
    texts = {path.name: json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")}
    gpus = sorted(name for name, found in texts.items() if found["world"]["device"] == "cuda")
    if not gpus:
        said = (
            "The project has recorded no GPU of its own yet: all figures rest on what others "
            "published. `make gpu-records` records one in eight minutes"
        )
    else:
        said = f"The project's own records of GPUs: {', '.join(f'`{name}`' for name in gpus)}"
    return f"\n## Own records\n\n{said} ([what is wanted](records/README.md)).\n"


def _versions(kept: Kept) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in kept.versions.items())
    tables = ", ".join(f"{kind}.csv {digest[:12]}" for kind, digest in kept.tables.items())
    return f"With {versions}; SHA-256 of the tables: {tables}.\n"


# -- cells ----------------------------------------------------------------------------------------


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _share(value: float | None) -> str:
    """One decimal below 10 %, whole percents above."""
    if value is None or not math.isfinite(value):
        return _NONE
    return f"{value * 100:.1f} %" if value < 0.0995 else f"{value * 100:,.0f} %"


def _skill(value: float | None) -> str:
    return _NONE if value is None else f"{value:.2f}"


def _with_n(figures: Figures) -> str:
    """The median error of a half, and how many rows it has."""
    return f"{_share(figures.get('median_error'))} ({figures['n']:,})"
