"""Does dpsim pick the better of two configurations?  Pairs of measured runs, and what it picks.

    python validation/decisions.py [TABLE …] [--jobs N] [--differ 0.10]

reads tables of measured training runs as `dpsim validate` does (validation/published/training.csv
if none is named) and takes every pair of runs of one source that share the model, the GPU and their
number, the batch, precision, sequence length and recomputation, differ in fabric or in method, and
whose measured speeds differ by more than `--differ`.  Pairs that differ in the framework are told
apart and do not count in the sum: which framework computes faster is what calibration says, not
dpsim.  Each series is calibrated on its smallest
count; calibrated rows are in no such pair, because their answer is known.  Where that leaves a pair
without two predictions, both are predicted without calibration, and the pair is told apart.  Pairs
in which a run is refused or not scored are counted, with the reason.

A pick is right where it is the faster one.  Its regret is how much longer its step was measured to
take than the better one's.  Beside dpsim stand simpler ways to pick: the one with more Gbit/s per
node, and the baselines of `dpsim validate` (linear scaling, an alpha-beta ring, NCCL's bare cost
model).  Where a way sees no difference, it is right half the time, and its regret is the mean of
both picks.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from dpsim.accuracy.training.series import TrainingOutcome, play_series
from dpsim.accuracy.training.table import TrainingRow, TrainingTable, read_table
from dpsim.accuracy.words import vocabulary

PUBLISHED = Path(__file__).with_name("published") / "training.csv"
#: what two runs of a pair have in common
SAME = (
    "source_id", "model", "params_m", "task", "accelerator", "gpus_per_node", "total_gpus",
    "batch_per_gpu", "global_batch", "grad_accum", "precision", "seq_len", "tp", "pp", "cp",
    "act_ckpt", "unit",
)  # fmt: skip
FABRIC = ("inter_node", "inter_gbits_s_per_node", "intra_node")
METHOD = ("strategy", "strategy_detail", "compression", "shard")
WAYS = ("dpsim", "more Gbit/s", "linear", "alpha_beta", "nccl_bare")
#: closer than this, a way sees no difference
EQUAL = 1e-9


@dataclass(frozen=True)
class Pair:
    """Two runs of one workload.

    slower  by how much longer the worse one's step takes
    picks   by way: 1 if it picks the better one, 0 if the worse one, 0.5 if it sees no difference;
            None where it has no number
    """

    source: str
    kind: str
    ranks: int
    model: str
    slower: float
    picks: dict[str, float | None]

    def regret(self, way: str) -> float | None:
        pick = self.picks[way]
        return None if pick is None else (1.0 - pick) * self.slower


@dataclass(frozen=True)
class Judged:
    """The pairs of a table; why others are not judged, with their number."""

    pairs: tuple[Pair, ...]
    close: int
    refused: dict[str, int]


def judged(table: TrainingTable, *, differ: float = 0.10, jobs: int = 1) -> Judged:
    """All pairs of `table` that differ by more than `differ`, and what each way picks."""
    candidates = list(_candidates(table))
    known = _outcomes(table, candidates, "smallest", jobs)
    open_ = [pair for pair in candidates if _problems(pair, known)]
    bare = _outcomes(table, open_, "none", jobs)
    pairs, close = [], 0
    refused: dict[str, int] = {}
    for a, b in candidates:
        found, how = (bare, "uncalibrated") if _problems((a, b), known) else (known, "calibrated")
        if problems := _problems((a, b), found):
            refused[problems[0]] = refused.get(problems[0], 0) + 1
            continue
        pair = _pair((a, found[a.number]), (b, found[b.number]), how)
        if pair.slower > differ:
            pairs.append(pair)
        else:
            close += 1
    return Judged(tuple(pairs), close, dict(sorted(refused.items(), key=lambda i: -i[1])))


def _candidates(table: TrainingTable) -> Iterator[tuple[TrainingRow, TrainingRow]]:
    """Pairs of rows that share the workload and differ in fabric or method."""
    groups: dict[tuple[str, ...], list[TrainingRow]] = {}
    for row in table.rows:
        groups.setdefault(tuple(row.text(column) for column in SAME), []).append(row)
    for rows in groups.values():
        for a, b in itertools.combinations(rows, 2):
            if _kind(a, b):
                yield a, b


def _kind(a: TrainingRow, b: TrainingRow) -> str:
    """In what two rows differ: fabric, method, framework, several of them, or nothing."""
    parts = (("fabric", FABRIC), ("method", METHOD), ("framework", ("framework",)))
    found = [name for name, columns in parts if any(a.text(c) != b.text(c) for c in columns)]
    return " and ".join(found)


def _outcomes(
    table: TrainingTable,
    pairs: Sequence[tuple[TrainingRow, TrainingRow]],
    calibrate: str,
    jobs: int,
) -> dict[int, TrainingOutcome]:
    """What `dpsim validate --calibrate` makes of the series that rows of `pairs` are in."""
    wanted = {row.number for pair in pairs for row in pair}
    series = [rows for rows in table.series.values() if any(r.number in wanted for r in rows)]
    if calibrate == "none":
        series = [[row for row in rows if row.number in wanted] for rows in series]
    if jobs == 1:
        found: Iterable[list[TrainingOutcome]] = (play_series(rows, calibrate) for rows in series)
        return {outcome.number: outcome for outcomes in found for outcome in outcomes}
    with ProcessPoolExecutor(jobs) as pool:
        found = pool.map(play_series, series, [calibrate] * len(series), chunksize=2)
        return {outcome.number: outcome for outcomes in found for outcome in outcomes}


def _problems(
    pair: tuple[TrainingRow, TrainingRow], outcomes: dict[int, TrainingOutcome]
) -> list[str]:
    """Why a pair is not judged; empty where it is."""
    return [text for row in pair if (text := _problem(outcomes[row.number]))]


def _problem(outcome: TrainingOutcome) -> str:
    """Why a row is in no pair; empty where there is no reason."""
    if outcome.status == "calibrated":
        return "a run is the calibrated one of its series"
    if outcome.status != "predicted":
        return f"refused: {outcome.reason.partition(' (')[0][:70]}"
    return "" if outcome.scored is not None else outcome.reason.partition(";")[0]


def _pair(
    a: tuple[TrainingRow, TrainingOutcome], b: tuple[TrainingRow, TrainingOutcome], how: str
) -> Pair:
    """Picks by every way, on step times relative to one another."""
    words = vocabulary().tables
    time = a[0].text("unit") in {**words.times, **words.run_times}

    def slowness(value: float | None) -> float | None:
        return None if value is None else value if time else 1.0 / value

    measured = [slowness(outcome.measured) or 0.0 for _, outcome in (a, b)]
    better = 0 if measured[0] <= measured[1] else 1
    ways = {
        "dpsim": [slowness(outcome.predicted) for _, outcome in (a, b)],
        "more Gbit/s": [_narrow(row) for row, _ in (a, b)],
    }
    for name in WAYS[2:]:
        ways[name] = [
            slowness(o.scored.baselines.get(name) if o.scored else None) for _, o in (a, b)
        ]
    return Pair(
        source=a[0].text("source_id"),
        kind=f"{_kind(a[0], b[0])}, {how}",
        ranks=a[0].gpus,
        model=a[0].text("model"),
        slower=max(measured) / min(measured) - 1.0,
        picks={name: _picked(values, better) for name, values in ways.items()},
    )


def _narrow(row: TrainingRow) -> float | None:
    """The less, the more Gbit/s a node has."""
    rate = row.get("inter_gbits_s_per_node")
    return 1.0 / rate if rate else None


def _picked(values: Sequence[float | None], better: int) -> float | None:
    first, second = values
    if first is None or second is None:
        return None
    if abs(first - second) <= EQUAL * max(first, second):
        return 0.5
    return float((0 if first < second else 1) == better)


def report(found: Judged, name: str) -> None:
    """Tables of how often each way is right, and its regret."""
    print(f"\n{name}: {len(found.pairs)} pairs, {found.close} more differ by less")
    print(f"\n{'pairs':<44}{'n':>5}" + "".join(f"{way:>24}" for way in WAYS))
    groups: dict[str, list[Pair]] = {"all": [p for p in found.pairs if "framework" not in p.kind]}
    for pair in found.pairs:
        groups.setdefault(f"{pair.source}: {pair.kind}", []).append(pair)
    for label, pairs in sorted(groups.items(), key=lambda item: item[0] != "all"):
        cells = "".join(f"{_cell(pairs, way):>24}" for way in WAYS)
        print(f"{label:<44}{len(pairs):>5}{cells}")
    print("\nright of those with an answer, mean regret (largest); 2/4 5 % (40 %)")
    for reason, count in found.refused.items():
        print(f"  not judged: {count} pairs: {reason}")


def _cell(pairs: Sequence[Pair], way: str) -> str:
    picks = [pick for pair in pairs if (pick := pair.picks[way]) is not None]
    regrets = [regret for pair in pairs if (regret := pair.regret(way)) is not None]
    if not picks:
        return "–"
    mean, most = statistics.mean(regrets), max(regrets)
    return f"{sum(picks):g}/{len(picks)} {mean:.1%} ({most:.0%})"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tables", nargs="*", type=Path, metavar="TABLE", default=[])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--differ", type=float, default=0.10)
    given = parser.parse_args(arguments)
    for path in given.tables or [PUBLISHED]:
        found = judged(read_table(path), differ=given.differ, jobs=given.jobs)
        report(found, path.name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
