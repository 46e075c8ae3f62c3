"""Do predictions miss in the same way on two devices of one generation?

    python validation/alike_devices.py ROWS TABLE [TABLE …]

ROWS is what `left_out.py predict` keeps of the tables.  Uncalibrated rows on at most eight ranks
are averaged by source, model, framework, precision and accelerator (errors are logarithms of
measured over predicted).  Of every two accelerators of one such workload the errors are compared,
apart for two of one generation and for two of different ones: how far each is off, and how far the
two differ (root mean squares), which were the root of two times that if they missed independently.
"""

from __future__ import annotations

import csv
import itertools
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import _left_out_rows
import numpy as np

#: columns that two runs of one workload have in common; of the framework the first word
SAME = ("source_id", "model", "task", "precision")
MOST_RANKS = 8
Errors = dict[tuple[str, str], float]


def errors_of(
    rows: Iterable[_left_out_rows.Known], cells: dict[str, dict[str, str]]
) -> Iterator[Errors]:
    """The mean error of each (generation, accelerator) of every workload."""
    found: dict[tuple[str, ...], dict[tuple[str, str], list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        own = cells.get(row["row"])
        if own is None or row["stand_in"] or row["ranks"] > MOST_RANKS:
            continue
        workload = (*(own[name] for name in SAME), own["framework"].split(" ")[0])
        generation = row["class"].split(".")[0]
        if generation == "other":
            continue
        found[workload][generation, own["accelerator"]].append(row["log"])
    for by_device in found.values():
        yield {device: float(np.mean(logs)) for device, logs in by_device.items()}


def told(name: str, pairs: list[tuple[float, float]]) -> str:
    """One line on `pairs` of errors."""
    if not pairs:
        return f"{name}: no pairs"
    own, apart = (float(np.sqrt(np.mean(np.square(x)))) for x in (pairs, np.diff(pairs)))
    return f"{name}: {len(pairs)} pairs, each {own:.1%} off, {apart:.1%} apart"


def main() -> int:
    if len(sys.argv) < 3:
        print(f"alike_devices.py: {(__doc__ or '').splitlines()[2].strip()}", file=sys.stderr)
        return 2
    cells = {}
    for table in sys.argv[2:]:
        with open(table, newline="", encoding="utf-8") as file:
            cells |= {row["row_id"]: row for row in csv.DictReader(file)}
    rows = _left_out_rows.of_kind(_left_out_rows.load([Path(sys.argv[1])]), "uncalibrated")
    pairs: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for errors in errors_of(rows, cells):
        for (one, first), (other, second) in itertools.combinations(errors.items(), 2):
            pairs[one[0] == other[0]].append((first, second))
    print(told("two devices of one generation", pairs[True]))
    print(told("of two generations", pairs[False]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
