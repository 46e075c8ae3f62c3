"""How often `dpsim check-nccl` is right: faults it notices, healthy curves that it doubts.

    python validation/check_nccl_rates.py TABLE [TABLE …]

reads tables of measured collectives as `dpsim validate` does and applies the rule of
dpsim/checks/diagnosis.py to every series of NCCL and RCCL.  A series is pathological where at least
half of its rows are marked so; in the others marked rows are left out.  Rates are printed apart for
series whose name has an even CRC-32, on which the rule is chosen, and for the others.  The widths
of intervals, and NCCL's constants of RoCE and EFA, have seen all series.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dpsim.accuracy.collectives.figures import CollectiveOutcome
from dpsim.accuracy.collectives.model import Estimate, Question, estimates
from dpsim.accuracy.collectives.validate import validated_collectives
from dpsim.accuracy.scores import fitted_on
from dpsim.checks.diagnosis import MeasuredSize, Verdict, bands, overall

#: verdicts that say that something is wrong
FLAGGED = ("low", "suspicious")
ODD = "odd, held out of the rule (seen by widths; RoCE, EFA: by constants)"


class Judged(NamedTuple):
    """A series, whether its source says that it shows a fault, and the verdict."""

    series: str
    pathological: bool
    verdict: Verdict


def kinds_of(outcomes: Sequence[CollectiveOutcome]) -> dict[str, str]:
    """The kind of link of every series that is predicted."""
    questions = {o.row.series: Question.of(o.row) for o in outcomes if o.predicted}
    known = estimates(list(questions.values()))
    answers = {series: known[question] for series, question in questions.items()}
    return {series: one.kind for series, one in answers.items() if isinstance(one, Estimate)}


def judged(outcomes: Sequence[CollectiveOutcome]) -> tuple[list[Judged], int]:
    """Every series that is predicted, and how many pathological ones are not."""
    groups: dict[str, list[CollectiveOutcome]] = {}
    kinds = kinds_of(outcomes)
    for outcome in outcomes:
        if not outcome.row.library.startswith(("NCCL", "RCCL")):
            continue
        groups.setdefault(outcome.row.series, []).append(outcome)
    found, missing = [], 0
    for name, members in sorted(groups.items()):
        marked = sum(o.row.faulty for o in members)
        pathological = 2 * marked >= len(members)
        readings = [
            MeasuredSize(o.row.size, o.row.measured, o.predicted, o.low, o.high)
            for o in members
            if o.predicted
            and o.low
            and o.high
            and (o.row.scored or (pathological and o.row.faulty))
        ]
        if readings:
            found.append(Judged(name, pathological, overall(bands(readings, kinds[name]))))
        else:
            missing += pathological
    return found, missing


def report(found: Sequence[Judged], half: str) -> None:
    """Both rates of one half, and the names of what was missed or doubted."""
    ill = [j for j in found if j.pathological]
    well = [j for j in found if not j.pathological]
    noticed = [j for j in ill if j.verdict in FLAGGED]
    untold = [j for j in well if j.verdict == "cannot_tell"]
    doubted = [j for j in well if j.verdict in FLAGGED]
    print(f"{half}: {_rate(noticed, ill)} pathological series flagged, "
          f"{sum(j.verdict == 'low' for j in ill)} of them low; "
          f"{_rate(doubted, well)} healthy ones flagged, "
          f"{_rate(untold, well)} told by nobody")  # fmt: skip
    for j in (*doubted, *(j for j in ill if j.verdict not in FLAGGED)):
        print(f"    {'missed' if j.pathological else j.verdict}: {j.series}")


def _rate(some: Sequence[Judged], every: Sequence[Judged]) -> str:
    share = f" ({len(some) / len(every):.1%})" if every else ""
    return f"{len(some)} of {len(every)}{share}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tables", nargs="+", type=Path, metavar="TABLE")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args(arguments)
    outcomes = [
        outcome
        for path in given.tables
        for outcome in validated_collectives(path, jobs=given.jobs).outcomes
    ]
    found, missing = judged(outcomes)
    report([j for j in found if fitted_on(j.series)], "even, chosen on")
    report([j for j in found if not fitted_on(j.series)], ODD)
    print(f"{missing} pathological series are not predicted and not counted")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
