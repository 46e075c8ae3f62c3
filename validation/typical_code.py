"""What steps of code that nobody tuned take, over what is predicted for tuned code.

    python validation/typical_code.py

Prints quantiles over sources of training runs that nobody had looked at when all was learned: of
each the median of measured / predicted without calibration.  Of the first two draws, of 50 sources,
quantiles are kept (`FIRST`); published/typical_code.csv has the third, source by source, with the
predictions of 2026-11-30.  `dpsim/cases/typical_code.py` has the pooled ones.

Rows were drawn from public repositories, issues and pages by what they tell (devices, batch, model,
rate), never by their rates, and each source counts once.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from dpsim.core.arrays import Array

TABLE = Path(__file__).resolve().parent / "published" / "typical_code.csv"
#: sources of the first two draws, and their quantiles (docs/assumptions.md, A103); beyond
#: the tenths as far again, on logarithms, as a normal distribution's ends are: 0.5 % and 99.5 %
FIRST = 50
QUANTILES = {0.1: 0.76, 0.5: 1.32, 0.75: 1.91, 0.9: 3.4}
_ENDS = {0.005: (0.5, 0.1), 0.995: (0.5, 0.9)}
_FARTHER = 2.576 / 1.2816
ASKED = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


def third() -> Array:
    """The ratios of the third draw."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return np.array([float(row["ratio"]) for row in csv.DictReader(file)])


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


def twentieths() -> tuple[float, float]:
    """What a twentieth of the first two draws takes at most, and another at least."""
    low, high = np.quantile(first(), [0.05, 0.95])
    return float(low), float(high)


def pooled() -> dict[float, float]:
    """Quantiles of all draws together."""
    ratios = np.concatenate([first(), third()])
    return {share: float(np.quantile(ratios, share)) for share in ASKED}


def main() -> None:
    own, both = third(), pooled()
    print(f"third draw, {len(own)} sources, and all {FIRST + len(own)}: measured / predicted")
    for share in ASKED:
        print(f"  {share:5.0%}  {np.quantile(own, share):5.2f}  {both[share]:5.2f}")
    for said, low, high in (("all", both[0.05], both[0.95]), ("the first two", *twentieths())):
        inside = int(((low <= own) & (own <= high)).sum())
        print(
            f"of the third {inside} of {len(own)} lie from {low:.2f} to {high:.2f}, those of {said}"
        )


if __name__ == "__main__":
    main()
