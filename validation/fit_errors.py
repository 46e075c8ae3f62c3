"""Learn how far measured collectives lie from their predictions, and write it into the package.

    python validation/fit_errors.py TABLE [TABLE …] [--only messages]

reads tables as `dpsim validate` does, predicts every row without calibration, and writes the
factors of the intervals to dpsim/core/fitted/collective_error.yaml; with `--only messages` those
of sends and all-to-alls, while the others stay as they are.  Series whose name has an odd
CRC-32 are held out: only their coverage is printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from dpsim.accuracy.collectives.intervals import Residual, learn
from dpsim.accuracy.collectives.model import Estimate, Question, estimates
from dpsim.accuracy.collectives.table import read_collectives
from dpsim.accuracy.scores import fitted_on
from dpsim.core.constants import Constant, save, shipped
from dpsim.predict import collective_error

HEAD = """\
Measured over predicted time of collectives: the 5 % and 95 % points by kind of fabric
and band of sizes (1: < 32 KiB, 2: < 1 MiB, 3: < 64 MiB, 4: the rest; any: all).
Written by: """


def residuals(paths: Iterable[Path]) -> list[Residual]:
    """ln(measured / predicted) of every row that is modelled and shows no fault."""
    rows = [row for path in paths for row in read_collectives(path).rows if not row.excluded]
    known = estimates([Question.of(row) for row in rows])
    found = []
    for row in rows:
        answer = known[Question.of(row)]
        if isinstance(answer, Estimate):
            log = float(np.log(row.measured / answer.seconds))
            kind = collective_error.pool(row.operation, answer.kind)
            found.append(Residual(row.series, kind, collective_error.band_of(row.size), log))
    return found


def coverage(residuals: Sequence[Residual], constants: Mapping[str, Constant]) -> float:
    """Share of `residuals` inside their intervals."""
    inside = []
    below = {name: min(end, 2.0**60) / 2 for name, end in collective_error.BANDS}  # a size of each
    for found in residuals:
        low, high = collective_error.factors(found.kind, below[found.band], constants)
        inside.append(np.log(low) <= found.log <= np.log(high))
    return float(np.mean(inside))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--only", choices=("messages",))
    options = parser.parse_args(arguments)
    tables = options.tables
    found = residuals(tables)
    kept: dict[str, Constant] = {}
    if options.only:
        begins = collective_error.pool("send", "")
        found = [r for r in found if r.kind.startswith(begins)]
        known = shipped(collective_error.NAME)
        kept = {name: c for name, c in known.items() if not name.startswith(begins)}
    fit = [r for r in found if fitted_on(r.series)]
    constants = kept | learn(fit)
    names = " ".join(path.name for path in tables)
    target = save(
        collective_error.NAME, f"{HEAD}python validation/fit_errors.py {names}", constants
    )
    held = [r for r in found if not fitted_on(r.series)]
    for name, part in (("fitted on", fit), ("held out", held)):
        if part:
            print(f"{name}: {len(part)} rows, {coverage(part, constants):.1%} inside")
    print(f"wrote {target}: {len(constants)} constants")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
