"""The step time of a scenario's first point and nothing else.

python benchmarks/step_time.py SCENARIO [KEY=VALUE …]
"""

from __future__ import annotations

import sys

from dpsim.cases.case import Case
from dpsim.core.record import Refused
from dpsim.describe.scenario import read
from dpsim.predict.player import step_time


def main() -> None:
    try:
        loaded = read(sys.argv[1], sys.argv[2:])
        print(step_time(Case(loaded.points[0], loaded.base)))
    except Refused as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
