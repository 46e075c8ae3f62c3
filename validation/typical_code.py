"""What steps of code that nobody tuned take, over what is predicted for tuned code.

    python validation/typical_code.py

Prints quantiles over sources of training runs that nobody had looked at when all was learned: of
each the median of measured / predicted without calibration.  Of the first two draws, of 50 sources,
quantiles are kept (`QUANTILES`); published/strangers.csv has the third to the fifth, source by
source, with the predictions of 2026-11-30.  `dpsim/cases/typical_code.py` has the pooled ones.
Beside them how far calibrated predictions of the same sources lie off, and how many runs lie inside
their intervals.

Rows were drawn from public repositories, issues and pages by what they tell (devices, batch, model,
rate), never by their rates, and each source counts once.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpsim.core.arrays import Array

TABLE = Path(__file__).resolve().parent / "published" / "strangers.csv"
#: sources of the first two draws, and their quantiles (docs/assumptions.md, A103); beyond
#: the tenths as far again, on logarithms, as a normal distribution's ends are: 0.5 % and 99.5 %
FIRST = 50
QUANTILES = {0.1: 0.76, 0.5: 1.32, 0.75: 1.91, 0.9: 3.4}
_ENDS = {0.005: (0.5, 0.1), 0.995: (0.5, 0.9)}
_FARTHER = 2.576 / 1.2816
ASKED = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


def strangers(*draws: int) -> list[dict[str, str]]:
    """The sources of these draws, of all that are kept where none is named."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [row for row in rows if not draws or int(row["draw"]) in draws]


def ratios(*draws: int) -> Array:
    """Measured / predicted without calibration of the sources of these draws."""
    return np.array([float(row["ratio"]) for row in strangers(*draws) if row["ratio"]])


def first() -> Array:
    """Ratios with the quantiles of the first two draws, between which logarithms are linear."""
    logs = {share: float(np.log(ratio)) for share, ratio in QUANTILES.items()}
    for share, (middle, tenth) in _ENDS.items():
        logs[share] = logs[middle] + _FARTHER * (logs[tenth] - logs[middle])
    shares = sorted(logs)
    found: Array = np.exp(
        np.interp((np.arange(FIRST) + 0.5) / FIRST, shares, [logs[one] for one in shares])
    )
    return found


def twentieths(*draws: int) -> tuple[float, float]:
    """What a twentieth of the first two draws and of these takes at most, and another at least."""
    low, high = np.quantile(np.concatenate([first(), *map(ratios, draws)]), [0.05, 0.95])
    return float(low), float(high)


def pooled() -> dict[float, float]:
    """Quantiles of all draws together."""
    found = np.concatenate([first(), ratios()])
    return {share: float(np.quantile(found, share)) for share in ASKED}


@dataclass(frozen=True)
class Calibrated:
    """Calibrated predictions of sources: how many runs, how many of them lie inside, and over
    sources the median of the medians by which they, and linear scaling, are off."""

    sources: int
    runs: int
    inside: int
    error: float
    linear: float


def calibrated(*draws: int) -> Calibrated:
    """Those of these draws, of all that are kept where none is named."""
    found = [row for row in strangers(*draws) if row["calibrated"]]
    runs, inside = (sum(int(row[name]) for row in found) for name in ("calibrated", "inside"))
    error, linear = (
        float(np.median([float(row[name]) for row in found])) for name in ("error", "linear")
    )
    return Calibrated(len(found), runs, inside, error, linear)


def carried(column: str) -> Array:
    """Measured / predicted of calibrated steps of all sources that are kept, of a `column` of where
    ranks were: inside_node or between_nodes, and of these over_tcp."""
    return np.array([float(row[column]) for row in strangers() if row[column]])


def main() -> None:
    columns = [ratios(3), ratios(4), ratios(5), np.concatenate([first(), ratios()])]
    print(
        "third, fourth and fifth draw, and all: "
        + ", ".join(f"{len(own)} sources" for own in columns)
    )
    for share in ASKED:
        print(f"  {share:5.0%}" + "".join(f"  {np.quantile(own, share):5.2f}" for own in columns))
    for draw, before in ((3, ()), (4, (3,)), (5, (3, 4))):
        low, high = twentieths(*before)
        own = ratios(draw)
        inside = int(((low <= own) & (own <= high)).sum())
        print(f"of draw {draw} {inside} of {len(own)} lie from {low:.2f} to {high:.2f}, where")
        print("nine of ten of the draws before it do")
    for draws in ((3,), (4,), (5,), (3, 4, 5)):
        found = calibrated(*draws)
        print(
            f"draw {', '.join(map(str, draws))}, calibrated: {found.runs} runs of {found.sources} "
            f"sources, {found.error:.1%} off (linear {found.linear:.1%}), "
            f"{found.inside / found.runs:.0%} inside"
        )
    for column in ("inside_node", "between_nodes", "over_tcp"):
        own = carried(column)
        low, middle, high = np.quantile(own, [0.05, 0.5, 0.95])
        print(
            f"calibrated, {column}: measured / predicted of {len(own)} sources {low:.2f} to "
            f"{high:.2f} in nine of ten, {middle:.2f} in the median"
        )


if __name__ == "__main__":
    main()
