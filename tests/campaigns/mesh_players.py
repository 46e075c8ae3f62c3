"""Both engines against a third player, on drawn meshes of all axes, strategies and schedules.

    python tests/campaigns/mesh_players.py [--first 0] [--count 1000]

Mesh number k is drawn from seed k (`tests/drawn_meshes.py`).  Prints every difference; exits with 1
where there is one.  A fifth of a CPU second a mesh.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from drawn_meshes import disagreements, drawn  # noqa: E402

from dpsim.core.record import Refused  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    chosen = parser.parse_args()
    played = both = wrong = 0
    refused: dict[str, int] = {}
    for seed in range(chosen.first, chosen.first + chosen.count):
        try:
            found, taken = disagreements(seed)
        except Refused as error:
            refused[str(error)[:90]] = refused.get(str(error)[:90], 0) + 1
            continue
        played, both, wrong = played + 1, both + taken, wrong + bool(found)
        if found:
            print(f"seed {seed}: {found}\n   {drawn(seed)}")
    for why, count in sorted(refused.items(), key=lambda item: -item[1]):
        print(f"refused {count} times: {why}")
    print(f"{played} meshes, {both} of them on the vectorised engine too: {wrong} wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
