"""A campaign against engines: what both say of thousands of programs that no strategy writes.

    python tests/campaigns/engines.py [--seed 1] [--count 20000]

Program number k is made from seed + k by tests/random_plays.py and played by both engines; of
every tenth, lanes too are compared with plays of their own.  Prints counts and every finding;
exits with 1 where there is one.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

from agreement import compared, lanes_compared  # noqa: E402
from random_plays import play_of  # noqa: E402

from dpsim.play import Play  # noqa: E402

Comparison = Callable[[Play], tuple[str, list[str]]]
#: what is compared, and of every how many programs
COMPARISONS: dict[str, tuple[Comparison, int]] = {
    "engines": (compared, 1),
    "lanes": (lanes_compared, 10),
}


def looked_at(seed: int, comparison: Comparison) -> tuple[str, list[str]]:
    """What comes of the program made from `seed`, and in what the answers differ."""
    try:
        return comparison(play_of(seed))
    except Exception:
        return "ENDED WITH AN ERROR", [traceback.format_exc(limit=-4)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20_000)
    chosen = parser.parse_args()
    counts, findings = Counter[str](), 0
    for seed in range(chosen.seed, chosen.seed + chosen.count):
        for name, (comparison, every) in COMPARISONS.items():
            if (seed - chosen.seed) % every:
                continue
            outcome, differ = looked_at(seed, comparison)
            counts[f"{name}: {outcome}"] += 1
            findings += bool(differ)
            for line in differ:
                print(f"{name}, made from {seed}: {line}", flush=True)
    for what, count in sorted(counts.items()):
        print(f"{count:7,}  {what}")
    print(f"{chosen.count:,} programs from seed {chosen.seed}: {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
