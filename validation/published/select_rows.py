"""Choose the rows that ship: `python validation/published/select_rows.py TABLE…`.

Each TABLE is a CSV of measured training runs or collectives with all columns of README.md beside
this file.  The chosen rows are written as training.csv and collectives.csv beside this file, in
the order of the tables and to the letter; line ends become LF.

Rows ship whose source has a permissive licence.  Of training runs, whole series ship that have a
row of quality A or B; of collectives, every third size of a series.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: what the column `license` says of sources whose rows may ship beside Apache-2.0 code: permissive
#: licences only; anything else stays out
OPEN = frozenset(
    {
        "Apache-2.0",
        "Apache-2.0 (Alibaba files)",
        "Apache-2.0 (repo); MLPerf results usage rules apply to comparisons",
        "BSD-3-Clause",
        "MIT",
        "MIT (README)",
        "MIT-0",
        "MIT-style (KAIST)",
        "UPL-1.0",
        "per-model LICENSE files (Apache-2.0 / BSD-3)",
        "repo LICENSE (BSD-style, NVIDIA)",
    }
)
#: qualities of training rows that make their series worth shipping
QUALITIES = frozenset({"A", "B"})
#: of so many sizes of a series of collectives one ships: the second, the fifth, the eighth …
EVERY = 3

Row = dict[str, str]


def training(rows: Sequence[Row]) -> list[Row]:
    """Whole series that have a permissive licence and a row of quality A or B."""
    wanted = {row["series_id"] for row in rows if row["quality"] in QUALITIES}
    return [row for row in rows if row["series_id"] in wanted and row["license"] in OPEN]


def collectives(rows: Sequence[Row]) -> list[Row]:
    """Every third size of each series, in place and out of place; one that has only one keeps it.

    Rows that show a fault are chosen like all others.
    """
    sizes: dict[str, set[int]] = {}
    for row in rows:
        sizes.setdefault(row["series_id"], set()).add(int(row["size_bytes"]))
    kept = {name: set(sorted(found)[1::EVERY] or found) for name, found in sizes.items()}
    return [
        row
        for row in rows
        if int(row["size_bytes"]) in kept[row["series_id"]] and row["license"] in OPEN
    ]


def read(path: Path) -> tuple[list[str], list[Row]]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        return list(reader.fieldnames or ()), list(reader)


def write(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main(tables: Sequence[str]) -> int:
    if not tables:
        print(__doc__)
        return 2
    for name in tables:
        columns, rows = read(Path(name))
        chosen, target = (
            (collectives(rows), "collectives.csv")
            if "size_bytes" in columns
            else (training(rows), "training.csv")
        )
        write(HERE / target, columns, chosen)
        left = Counter(row["license"] for row in rows if row["license"] not in OPEN)
        print(
            f"{target}: {len(chosen)} of {len(rows)} rows; left out for their licence: {dict(left)}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
