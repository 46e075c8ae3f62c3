"""Learn what large collectives of healthy machines take, and write it into the package.

    python validation/fit_plateaus.py TABLE [TABLE …]

reads tables as `dpsim validate` does.  The plateau of a series is the median of ln(measured /
predicted) over its rows from 64 MiB up; rows of other libraries than NCCL
and RCCL, rows that show a fault, and series whose name has an odd
CRC-32, are left out.  A machine counts once for each kind of link, with the mean of its series.
The middle of a kind is the mean of its machines and of one more at the middle of all kinds; its
spread that of a new machine: sqrt((1 + 1/n) (n v + PRIOR V) / (n + PRIOR)) of the variance v of
series and machines of the kind and V of all kinds.  Written is dpsim/core/fitted/plateau.yaml;
printed are the held-out series that would be low, or told by nobody.  NCCL's constants of RoCE and
EFA have seen all series, so held-out ones over these are out of the plateaus' sample only.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import _collective_tables

from dpsim.accuracy.collectives.model import Estimate, Question, estimates
from dpsim.accuracy.scores import fitted_on
from dpsim.checks.diagnosis import LARGE_SIZE
from dpsim.checks.plateau import ANY, DOUBTFUL, FAULTY, NAME, plateau_of
from dpsim.core.constants import Constant, save

HEAD = """\
What large collectives of healthy machines take.
Written by: python validation/fit_plateaus.py """
#: how many machines the variance of all kinds counts as in that of one
PRIOR = 3
#: libraries whose curves `dpsim check-nccl` is asked about
NCCL = ("NCCL", "RCCL")
HEALTHY = "healthy, held out of the plateaus (RoCE, EFA: seen by NCCL's constants)"


class SeriesPlateau(NamedTuple):
    """The plateau of one series: its machine, kind of link and ln(measured / predicted)."""

    series: str
    machine: str
    kind: str
    log: float
    faulty: bool


def plateaus(paths: Sequence[Path]) -> list[SeriesPlateau]:
    """Those of all series that are modelled and have large sizes."""
    groups: dict[tuple[str, str, str, bool], list[float]] = defaultdict(list)
    for path in paths:
        table = _collective_tables.read(path)
        at = table.columns.index("machine_id")
        large = (r for r in table.rows if r.size >= LARGE_SIZE and not r.issuing)
        rows = [row for row in large if row.library.startswith(NCCL)]
        known = estimates([Question.of(row) for row in rows])
        for row in rows:
            answer = known[Question.of(row)]
            if isinstance(answer, Estimate):
                key = (row.series, row.cells[at], answer.kind, row.faulty)
                groups[key].append(math.log(row.measured / answer.seconds))
    return [
        SeriesPlateau(series, machine, kind, statistics.median(logs), faulty)
        for (series, machine, kind, faulty), logs in sorted(groups.items())
    ]


def learned(found: Sequence[SeriesPlateau], tables: str) -> dict[str, Constant]:
    """The constants of every kind and of all."""
    every = _machines(found)
    middles = [statistics.fmean(logs) for logs in every.values()]
    whole = statistics.fmean(middles)
    variance = _variance(every, whole)
    constants = _constants(ANY, whole, variance**0.5, every, tables)
    for kind in sorted({each.kind for each in found}):
        own = _machines([each for each in found if each.kind == kind])
        n = len(own)
        middle = (sum(statistics.fmean(logs) for logs in own.values()) + whole) / (n + 1)
        spread = (n * _variance(own, middle) + PRIOR * variance) / (n + PRIOR) * (1 + 1 / n)
        constants |= _constants(kind, middle, spread**0.5, own, tables)
    return constants


def _machines(found: Sequence[SeriesPlateau]) -> dict[tuple[str, str], list[float]]:
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for each in found:
        groups[each.machine, each.kind].append(each.log)
    return groups


def _variance(machines: Mapping[tuple[str, str], Sequence[float]], middle: float) -> float:
    """Mean over machines of the mean squared distance of their series from `middle`."""
    each = [statistics.fmean((log - middle) ** 2 for log in logs) for logs in machines.values()]
    return statistics.fmean(each)


def _constants(
    kind: str, middle: float, spread: float, machines: Mapping[object, Sequence[float]], tables: str
) -> dict[str, Constant]:
    n, series = len(machines), sum(map(len, machines.values()))
    on = (
        f"{series} series of {n} published machines without a fault ({tables}), from 64 MiB up, "
        "whose names have an even CRC-32; a machine counts once"
    )
    what = "links of any kind" if kind == ANY else kind
    values = {
        "middle": (
            middle,
            spread / n**0.5,
            f"ln(measured / predicted) of large collectives: {what}",
        ),
        "spread": (
            spread,
            spread / (2 * n) ** 0.5,
            f"its standard deviation, a new machine: {what}",
        ),
    }
    return {
        f"{kind}.{name}": Constant(
            value=float(f"{value:.4g}"), error=float(f"{error:.2g}"), unit="1", meaning=meaning,
            fitted_on=on, n=n,
        )
        for name, (value, error, meaning) in values.items()
    }  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tables", nargs="+", type=Path)
    given = parser.parse_args(arguments)
    found = plateaus(given.tables)
    names = " ".join(path.name for path in given.tables)
    fit = [each for each in found if not each.faulty and fitted_on(each.series)]
    head = f"{HEAD}{names}"
    constants = learned(fit, names)
    target = save(NAME, head, constants)
    print(f"wrote {target.name}: {len(constants)} constants, of {len(fit)} series")
    for what, ill in ((HEALTHY, False), ("faulty", True)):
        part = [e for e in found if e.faulty == ill and (ill or not fitted_on(e.series))]
        away = {each.series: plateau_of(each.kind).away(math.exp(each.log)) for each in part}
        low = [name for name, z in away.items() if z > FAULTY]
        doubtful = [name for name, z in away.items() if DOUBTFUL < z <= FAULTY]
        print(f"{what}: {len(part)} series, {len(low)} low, {len(doubtful)} told by nobody")
        for name in low if not ill else [n for n in away if n not in low]:
            print(f"    {name}: {away[name]:.2f} standard deviations")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
