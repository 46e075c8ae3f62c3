"""Image rows of a training table: error and half-width of the interval, by what is said of loaders.

    python validation/image_rows.py TABLE [--every 3]

Each row on images is predicted three times: as if nothing were said of its loader, as its task says
(synthetic data need none), and as if every loader were known to keep up (`limiting: false`).  The
third says what the first pays for not knowing, and, where it covers less, that it has to.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from dpsim.accuracy.scores import Scored, summary
from dpsim.accuracy.training.validate import validated_training

IMAGES = re.compile(r"imagenet|coco|resnet|maskrcnn|ssd|vgg|inception|alexnet|efficientnet", re.I)
MADE_UP = re.compile(r"synthetic\s*", re.I)
Row = Mapping[str, str]


def image_series(table: Path, every: int) -> list[dict[str, str]]:
    """The rows of every so many-th series on images."""
    with table.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if IMAGES.search(row["task"] + row["model"])]
    names = list(dict.fromkeys(row["series_id"] for row in rows))[::every]
    return [row for row in rows if row["series_id"] in names]


def scored(rows: Sequence[Row], place: Path) -> dict[str, list[Scored]]:
    """Scores of `rows` by source, those of rows that are calibrated on left out."""
    with place.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    found: dict[str, list[Scored]] = defaultdict(list)
    for outcome in validated_training(place).outcomes:
        if outcome.scored is not None and outcome.anchored:
            found[outcome.scored.source].append(outcome.scored)
            found["all"].append(outcome.scored)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--every", type=int, default=1, help="of so many series one")
    asked = parser.parse_args()
    rows = image_series(asked.table, asked.every)
    readings = {
        "nothing said": [{**row, "task": MADE_UP.sub("", row["task"])} for row in rows],
        "as stated": rows,
        "no loader is a limit": [{**row, "loader": "no limit"} for row in rows],
    }
    print(f"{'':22}{'source':10}{'n':>5}{'median':>9}{'90th':>9}{'half-width':>12}{'held':>8}")
    with tempfile.TemporaryDirectory() as place:
        for name, some in readings.items():
            for source, scores in sorted(scored(some, Path(place) / "rows.csv").items()):
                of = summary(scores)
                print(
                    f"{name:22}{source:10}{of['n']:5}{of['median_error']:9.1%}{of['p90_error']:9.1%}"
                    f"{of['median_half_width']:12.1%}{of['coverage']:8.0%}"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
