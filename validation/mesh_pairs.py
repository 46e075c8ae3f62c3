"""Does dpsim order meshes rightly, and how good is the one that it would choose?

    python validation/mesh_pairs.py TABLE [--source NAME] [--every K] [--part N] [--differ 0.10]
                                          [--calibrate]

reads a table of measured training runs as `dpsim validate` does and groups its runs by workload and
number of GPUs: what differs in a group is the mesh (tensor, pipeline, context and data parallelism,
what is sharded), the micro-batch and the schedule.  Runs of one mesh count once, with their median.
Predictions are not calibrated; with `--calibrate`, or where only the size of a model is known,
those of a group are calibrated on its smallest mesh (the fewest ranks a replica), which then is in
no pair and cannot be chosen.  Runs that `dpsim validate` would not score are left out.

It prints, per source, of the pairs measured more than `--differ` apart how many are ordered rightly
(predictions that are equal count half), and by how much longer the step of the mesh with the
shortest prediction was measured to take than the best measured one of its group.  `--every K` takes
every K-th group, `--part N` every N-th mesh of a group (the order is that of the table), for a
sample.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpsim.accuracy.training.scenarios import MeasuredCase, measured_case
from dpsim.accuracy.training.table import TrainingRow, read_table, series_of
from dpsim.accuracy.training.unscored import unscored
from dpsim.core.errors import SimulationError
from dpsim.core.record import Refused
from dpsim.describe.sections import Calibrate
from dpsim.predict import shortened
from dpsim.predict.level import Level

#: what the runs of a group have in common
SAME = (
    "source_id", "model", "params_m", "task", "framework", "accelerator", "gpus_per_node",
    "total_gpus", "inter_node", "inter_gbits_s_per_node", "global_batch", "seq_len", "precision",
    "act_ckpt", "unit",
)  # fmt: skip
#: what makes a mesh
MESH = ("tp", "pp", "cp", "dp", "shard", "batch_per_gpu", "grad_accum", "strategy",
        "strategy_detail")  # fmt: skip
#: closer than this, predictions are equal
EQUAL = 1e-9


@dataclass(frozen=True)
class MeasuredMesh:
    """A mesh as it was measured (median of its runs) and predicted: times of a step [s]."""

    measured: float
    predicted: float


@dataclass(frozen=True)
class MeshScore:
    """What became of one group.

    right, pairs  pairs apart that are ordered rightly, and all that are apart
    behind        by how much longer the chosen mesh's step takes than the best measured one's
    """

    meshes: int
    right: float
    pairs: int
    behind: float


def groups(rows: Sequence[TrainingRow]) -> list[list[list[TrainingRow]]]:
    """Groups of meshes, and of each mesh its runs; groups of a single mesh say nothing."""
    found: dict[tuple[str, ...], dict[tuple[str, ...], list[TrainingRow]]] = {}
    series: dict[str, list[TrainingRow]] = {}
    for row in rows:
        series.setdefault(series_of(row), []).append(row)
    for row in rows:
        if not unscored(row, series[series_of(row)]):
            group = found.setdefault(tuple(row.text(column) for column in SAME), {})
            group.setdefault(tuple(row.text(column) for column in MESH), []).append(row)
    return [list(group.values()) for group in found.values() if len(group) > 1]


def smallest(meshes: Sequence[list[TrainingRow]]) -> int:
    """The place of the mesh with the fewest ranks a replica, the first of several."""
    sizes = [runs[0].count("tp") * runs[0].count("pp") * runs[0].count("cp") for runs in meshes]
    return sizes.index(min(sizes))


def _median(runs: Sequence[TrainingRow]) -> float:
    return statistics.median(measured_case(run).step_time for run in runs)


def level(runs: Sequence[TrainingRow]) -> Level:
    """What the mesh of `runs` tells of the others."""
    return shortened.level(measured_case(runs[0]).case, Calibrate(step_time=_median(runs)))


def played(
    meshes: Sequence[list[TrainingRow]], calibrate: bool, refused: dict[str, int]
) -> Iterator[MeasuredMesh]:
    """The meshes of a group that can be played; the others are counted in `refused` by reason."""
    known, first = None, smallest(meshes)
    if calibrate or measured_case(meshes[first][0]).stand_in:
        known = level(meshes[first])
    for place, runs in enumerate(meshes):
        if known is not None and place == first:
            continue
        try:
            here: MeasuredCase = measured_case(runs[0])
            case = here.case if known is None else known.of(here.case)
            yield MeasuredMesh(_median(runs), shortened.step_time(case))
        except (Refused, SimulationError, ValueError) as error:
            reason = str(error)[:90]
            refused[reason] = refused.get(reason, 0) + 1


def scored(meshes: Sequence[MeasuredMesh], differ: float) -> MeshScore:
    """Pairs of `meshes` that were measured more than `differ` apart, and the mesh chosen."""
    right, pairs = 0.0, 0
    for a, b in itertools.combinations(meshes, 2):
        good, bad = (a, b) if a.measured <= b.measured else (b, a)
        if bad.measured / good.measured - 1 > differ:
            pairs += 1
            equal = abs(good.predicted - bad.predicted) <= EQUAL * bad.predicted
            right += 0.5 if equal else float(good.predicted < bad.predicted)
    chosen = min(meshes, key=lambda mesh: mesh.predicted)
    best = min(mesh.measured for mesh in meshes)
    return MeshScore(len(meshes), right, pairs, chosen.measured / best - 1)


def report(source: str, found: Sequence[MeshScore]) -> None:
    """The line of a source, over its groups."""
    pairs, right = sum(one.pairs for one in found), sum(one.right for one in found)
    behind = sorted(one.behind for one in found)
    share = f"{right / pairs:.1%}" if pairs else "-"
    print(
        f"== {source}: {len(found)} groups, {sum(one.meshes for one in found)} meshes; "
        f"{share} of {pairs} pairs ordered rightly; chosen mesh behind the best: "
        f"median {statistics.median(behind):.1%}, worst {behind[-1]:.1%}"
    )


def main() -> int:
    """Read, play, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--source", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--part", type=int, default=1)
    parser.add_argument("--differ", type=float, default=0.10)
    parser.add_argument("--calibrate", action="store_true")
    asked = parser.parse_args()
    rows = [r for r in read_table(asked.table).rows if asked.source in r.text("source_id")]
    results: dict[str, list[MeshScore]] = {}
    refused: dict[str, int] = {}
    for meshes in groups(rows)[:: asked.every]:
        some, first = meshes[:: asked.part], meshes[0][0]
        try:
            mine = list(played(some, asked.calibrate, refused))
        except (Refused, SimulationError, ValueError) as error:
            refused[f"a group: {error}"[:90]] = len(some)
            continue
        if len(mine) > 1:
            one = scored(mine, asked.differ)
            results.setdefault(first.text("source_id"), []).append(one)
            print(
                f"{first.text('source_id')} {first.text('model')[:30]} {first.gpus} GPUs: "
                f"{one.meshes} meshes, {one.right:g} of {one.pairs} pairs, {one.behind:+.1%}",
                flush=True,
            )
    for source, found in results.items():
        report(source, found)
    for reason, count in refused.items():
        print(f"refused {count}: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
