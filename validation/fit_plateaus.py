"""Learn what large collectives of healthy machines take, and write it into the package.

    python validation/fit_plateaus.py TABLE [TABLE …]

reads tables as `dpsim validate` does.  The plateau of a series is the median of ln(measured /
predicted) over its rows from 64 MiB up; rows of other libraries than NCCL and RCCL, of networks
that their source does not name, rows that show a fault, and series whose name has an odd CRC-32,
are left out.  A machine counts once for each kind of link, with the mean of its series.  A kind's
plateaus are normal about a middle, neither of which is known but by its n machines and by a prior:
the middle of all kinds, which counts as one machine, and their variance V, which counts as PRIOR.
What a new machine takes is then Student's t with n + PRIOR degrees of freedom about the mean of
n + 1, of scale sqrt((1 + 1/(n + 1)) (n v + d^2 + PRIOR V) / (n + PRIOR)): v is the mean square of
series and machines of the kind about that mean, and d how far it lies from the middle of all
(Gelman and others, Bayesian Data Analysis, 3rd edition, 2013, section 3.3).  Written is
dpsim/core/fitted/plateau.yaml; printed are the held-out series that would be low, or told by
nobody.  NCCL's constants of RoCE and EFA have seen all series, so held-out ones
over these are out of the plateaus' sample only.
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
from dpsim.checks.diagnosis import LARGE_SIZE, of_plateau, sensitivity
from dpsim.checks.plateau import ANY, NAME, plateau_of
from dpsim.core.constants import Constant, save

HEAD = """\
What large collectives of healthy machines take.
Written by: python validation/fit_plateaus.py """
#: how many machines the variance of all kinds counts as in that of one: as many as let the
#: variances of published kinds, from 0.01 to 0.3, be draws of one distribution
PRIOR = 3
#: how many of 100 new machines stay below each end
ENDS = {"doubtful": 0.95, "faulty": 0.99}
#: what tables call a network between nodes that their source does not name
UNTOLD = "unknown_internode"
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
        at, link = (table.columns.index(name) for name in ("machine_id", "fabric"))
        large = (r for r in table.rows if r.size >= LARGE_SIZE and not r.issuing)
        told = (row for row in large if row.cells[link] != UNTOLD)
        rows = [row for row in told if row.library.startswith(NCCL)]
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
    whole = statistics.fmean(statistics.fmean(logs) for logs in every.values())
    variance = _variance(every, whole)
    constants = _constants(ANY, whole, _ends(variance, 0), every, tables)
    for kind in sorted({each.kind for each in found}):
        own = _machines([each for each in found if each.kind == kind])
        n = len(own)
        middle = (sum(statistics.fmean(logs) for logs in own.values()) + whole) / (n + 1)
        apart = n * _variance(own, middle) + (middle - whole) ** 2
        both = (apart + PRIOR * variance) / (n + PRIOR)
        constants |= _constants(kind, middle, _ends(both, n), own, tables)
    return constants


def _ends(variance: float, n: int) -> dict[str, float]:
    """How far above their middle new machines stay of a kind of which `n` were published."""
    from scipy.stats import t

    scale = math.sqrt(variance * (1 + 1 / (n + 1)))
    return {name: scale * float(t.ppf(share, n + PRIOR)) for name, share in ENDS.items()}


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
    kind: str, middle: float, ends: Mapping[str, float],
    machines: Mapping[tuple[str, str], Sequence[float]], tables: str,
) -> dict[str, Constant]:  # fmt: skip
    """A middle is as unsure as half of the way to `doubtful` over the root of its machines, that
    way itself as a standard deviation of so many."""
    n, series = len(machines), sum(map(len, machines.values()))
    on = (
        f"{series} series of {n} published machines without a fault ({tables}), from 64 MiB up, "
        "whose names have an even CRC-32; a machine counts once"
    )
    what = "links of a kind that nobody published" if kind == ANY else kind
    above = {
        name: f"how far above that {share:.0%} of new machines stay" for name, share in ENDS.items()
    }
    values = {
        "middle": (
            middle,
            ends["doubtful"] / 2 / n**0.5,
            f"ln(measured / predicted) of large collectives: {what}",
        ),
        **{
            name: (end, end / (2 * n) ** 0.5, f"{above[name]}: {what}")
            for name, end in ends.items()
        },
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
        _report(what, part, ill)
    return 0


def _report(what: str, part: Sequence[SeriesPlateau], ill: bool) -> None:
    """How many of `part` are low, or told by nobody, and those that are not what they should be."""
    said = [(one, of_plateau(plateau_of(one.kind), math.exp(one.log))) for one in part]
    low, untold = (sum(verdict == name for _, verdict in said) for name in ("low", "cannot_tell"))
    print(f"{what}: {len(part)} series, {low} low, {untold} told by nobody")
    for one in (one for one, verdict in said if (verdict == "low") != ill):
        print(f"    {one.series}: {math.exp(one.log):.2f} times; low from "
              f"{sensitivity(one.kind).low:.2f} over {one.kind}")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
