"""How far the NCCL backend is off on machines that its constants have not seen.

    python validation/leave_out_collectives.py TABLE [--by machine|source] [--every 3]

For every machine (or source) of TABLE the constants are fitted, as `fit_nccl.py` does, to the rows
of all others, and its own rows are predicted with them.  TABLE has the columns that `fit_nccl.py`
needs, and `machine_id` (or `source_repo`).  Printed are medians of |predicted / measured - 1| by
kind of link, size and operation, where every machine weighs alike however many rows it has, beside
those of constants that were fitted with it, and the medians of each machine.

`--every K` takes every K-th size of each series, for fits and scores alike.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import _collective_tables
import fit_nccl
import numpy as np
from fit_nccl import Fitted, Posted, Sample

from dpsim.accuracy.collectives.table import CollectiveTable
from dpsim.core.record import Refused

COLUMNS = {"machine": "machine_id", "source": "source_repo"}


@dataclass(frozen=True)
class Scored:
    """A row of one machine: log(predicted / measured) with its rows left out, and with them."""

    machine: str
    sample: Fitted
    without: float
    fitted: float

    @property
    def regime(self) -> tuple[str, str]:
        large = self.sample.row.size >= fit_nccl.SPLIT
        return self.sample.kind, ">= 1 MiB" if large else "< 1 MiB"

    @property
    def operation(self) -> tuple[str, str]:
        return self.sample.row.operation, self.regime[1]


def machines_of(table: CollectiveTable, by: str) -> dict[int, str]:
    """What each line of `table` was measured on; Refused where no column says so."""
    column = COLUMNS[by]
    if column not in table.columns:
        raise Refused(f"{table.name}: no column {column}, which --by {by} needs")
    place = table.columns.index(column)
    return {row.line: row.cells[place] for row in table.rows}


def thinned(samples: Iterable[Fitted], every: int) -> list[Fitted]:
    """Every K-th size of each series."""
    by_series: dict[str, list[Fitted]] = defaultdict(list)
    for sample in samples:
        by_series[sample.row.series].append(sample)
    return [
        sample
        for _, found in sorted(by_series.items())
        for sample in sorted(found, key=lambda s: (s.row.size, s.row.line))[::every]
    ]


def left_out(
    samples: Sequence[Fitted], machines: dict[int, str], tell: Callable[[str], None]
) -> list[Scored]:
    """Every row with and without its machine in the fit."""
    every = {s.kind for s in samples}
    whole, alone = fit_nccl.fit_all(samples, fit_nccl.start(), every)
    whole = fit_nccl.fit_messages(samples, whole, every)
    found = []
    for machine in sorted(set(machines.values())):
        own = [s for s in samples if machines[s.row.line] == machine]
        if not own:
            continue
        tell(machine)
        others = [s for s in samples if machines[s.row.line] != machine]
        values = _without(others, {s.kind for s in own}, whole, alone)
        logs = fit_nccl.residuals(own, values), fit_nccl.residuals(own, whole)
        found += [Scored(machine, *each) for each in zip(own, *map(list, logs), strict=True)]
    return found


def _without(
    others: Sequence[Fitted], kinds: set[str], whole: dict[str, float], alone: dict[str, float]
) -> dict[str, float]:
    """The constants of `kinds` fitted to `others`, from their priors, and all else as in `whole`;
    their families are what each other kind is `alone`, of which none has a row of the machine
    (links inside nodes, on which they stand, may)."""
    chosen = [s for s in others if s.kind in kinds]
    alone = fit_nccl.fit_kinds(chosen, alone | fit_nccl.start(kinds), kinds, fit_nccl.known_prior)
    own = fit_nccl.start(kinds)
    values = whole | {name: alone[name] for name in own}
    values = fit_nccl.fit_beside(chosen, values, kinds, alone)
    return fit_nccl.fit_messages(chosen, values, kinds)


def off(logs: Iterable[float]) -> float:
    """Median of |predicted / measured - 1| [%]."""
    return 100.0 * float(np.median([abs(math.expm1(log)) for log in logs]))


def report(found: Sequence[Scored]) -> str:
    """The table, by regime, then by operation, then by machine."""
    lines = []
    for what in ("regime", "operation"):
        groups: dict[tuple[str, str], list[Scored]] = defaultdict(list)
        for scored in found:
            groups[getattr(scored, what)].append(scored)
        lines += [_line(" ".join(key), group) for key, group in sorted(groups.items())]
    for large in (True, False):
        name = "all, >= 1 MiB" if large else "all, < 1 MiB"
        lines.append(_line(name, [s for s in found if s.regime[1].startswith(">") == large]))
    per: dict[tuple[str, str, str], list[Scored]] = defaultdict(list)
    for scored in found:
        per[(scored.machine, *scored.regime)].append(scored)
    return "\n".join(lines + [_line(" ".join(key), group) for key, group in sorted(per.items())])


def _line(name: str, group: Sequence[Scored]) -> str:
    """Medians over machines of their medians, and over rows."""
    by_machine: dict[str, list[Scored]] = defaultdict(list)
    for scored in group:
        by_machine[scored.machine].append(scored)
    mean = [
        float(np.median([off(getattr(s, of) for s in each) for each in by_machine.values()]))
        for of in ("without", "fitted")
    ]
    rows, within = (off(getattr(s, of) for s in group) for of in ("without", "fitted"))
    bias = 100 * math.expm1(float(np.median([s.without for s in group])))
    return (
        f"{name:44} {len(by_machine):2} machines {len(group):5} rows: left out {mean[0]:6.1f} % "
        f"(rows {rows:6.1f} %, bias {bias:+6.1f} %), fitted {mean[1]:6.1f} % ({within:6.1f} %)"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--by", choices=sorted(COLUMNS), default="machine")
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args(arguments)
    table = _collective_tables.read(options.table)
    samples, _ = fit_nccl.samples_of(table.rows)
    chosen = thinned(samples, options.every)
    machines = machines_of(table, options.by)
    print(report(left_out(chosen, machines, lambda name: print(name, file=sys.stderr))))
    return 0


__all__ = ["Posted", "Sample"]

if __name__ == "__main__":
    sys.exit(main())
