"""What to measure before choosing: the measurement that saves most of the expected regret.

The value of a measurement is its expected value of sample information (Raiffa and Schlaifer,
Applied Statistical Decision Theory, 1961): choose by what is expected once its result is known, and
average over the results that may come.  A measurement tells a cause's number up to an error of its
own, which is that of measured curves or of repeated runs.  Objectives are sums of products of
independent factors, so what is expected given the results is a product of means.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpsim.cases.case import Case
from dpsim.cases.coverage import SMALLEST, network_range
from dpsim.cases.variant import at_ranks
from dpsim.core import plugins
from dpsim.core.arrays import Array
from dpsim.core.errors import SimulationError
from dpsim.core.record import Refused
from dpsim.planning.candidates import Candidate, PlayedJob
from dpsim.planning.causes import Cause, factors, numbers
from dpsim.planning.compare import UNITS, Comparison
from dpsim.predict.memory import memory_of
from dpsim.predict.point import UNFIT
from dpsim.predict.uncertainty import DEPARTURE, REPEATED, collectives_range
from dpsim.predict.widths import compute_range

#: nccl-tests' programs
PROGRAMS = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "broadcast": "broadcast_perf",
    "reduce": "reduce_perf",
    "all_to_all": "alltoall_perf",
}
#: sizes of collectives that are worth timing [B]
_LEAST = 2.0**20
#: share of the expected regret that a measurement has to save to be worth its while
_WORTH = 0.01
#: GPUs of a compute tray of NVLink domains larger than a server (NVIDIA's data sheets of GB200 and
#: GB300 NVL72: 18 trays of four)
_TRAY = 4


@dataclass(frozen=True)
class Measurement:
    """Something that can be measured, and how.

    kind      nccl-tests, collectives (other backends) or step
    left      causes that it tells of, with the share of their standard deviation that stays
    commands  what to run, in order
    """

    kind: str
    candidate: str
    what: str
    commands: tuple[str, ...]
    left: dict[Cause, float] = field(hash=False)


@dataclass(frozen=True)
class Valued:
    """A measurement, by how much it lowers the expected regret, and the error of that mean."""

    measurement: Measurement
    saves: float
    error: float


def document(found: Comparison) -> list[dict[str, Any]]:
    """All measurements that may change the choice, the most valuable first."""
    known = valued(found)
    least = _WORTH * _least_regret(found) if known else 0.0
    return [_entry(v, found) for v in known if v.saves > max(2.0 * v.error, least)]


def valued(found: Comparison) -> list[Valued]:
    """Every possible measurement with its value, the most valuable first."""
    if len(found.usable) < 2:
        return []
    options = (_value(found, m) for m in possible(found))
    return sorted(options, key=lambda v: (-v.saves, v.measurement.what))


def _entry(value: Valued, found: Comparison) -> dict[str, Any]:
    m = value.measurement
    regret = _least_regret(found)
    informs = [
        found.candidates[i].name
        for i, terms in found.terms.items()
        if any(f.cause in m.left for t in terms for f in t.factors)
    ]
    return {
        "kind": m.kind,
        "candidate": m.candidate,
        "what": m.what,
        "command": "\n".join(m.commands),
        "commands": list(m.commands),
        "causes": sorted({cause.name for cause in m.left}),
        "informs": informs,
        "saves": value.saves,
        "saves_error": value.error,
        "saves_usd": value.saves if found.by == "cost" else None,
        "unit": UNITS[found.by],
        "expected_regret_before": regret,
        "expected_regret_after": max(regret - value.saves, 0.0),
    }


def _least_regret(found: Comparison) -> float:
    """Expected regret of the best choice, with nothing more known."""
    drawn = found.objective
    return float(drawn.mean(axis=1).min() - drawn.min(axis=0).mean())


# -- the value ------------------------------------------------------------------------------------


def _value(found: Comparison, measurement: Measurement) -> Valued:
    """Over the results that may come: the best choice's objective now, less that of the choice
    made once the result is known."""
    seen = {c: numbers(c, found.seed + 1, found.draws) for c in measurement.left}
    rows = []
    for i in found.usable:
        total = np.zeros(found.draws)
        for term in found.terms[i]:
            known: Array = np.ones(found.draws)
            for factor in term.factors:
                if factor.cause in seen:
                    left = measurement.left[factor.cause]
                    known = known * factor.expected(seen[factor.cause], left)
                else:
                    known = known * factor.mean
            total = total + term.amount * term.longer(known)
        rows.append(total)
    expected = np.array(rows)
    now = expected[int(np.argmin(expected.mean(axis=1)))]
    saved = now - expected.min(axis=0)
    return Valued(measurement, float(saved.mean()), float(saved.std()) / math.sqrt(found.draws))


# -- what can be measured -------------------------------------------------------------------------


def possible(found: Comparison) -> list[Measurement]:
    """Collectives on every kind of fabric, and a step on every kind of device, that candidates
    depend on; each on the first candidate that has it."""
    known: dict[tuple[str, tuple[Cause, ...]], Measurement] = {}
    for i in found.usable:
        candidate = found.candidates[i]
        for measurement in (*_collectives(candidate), *_steps(candidate)):
            key = (measurement.kind, tuple(sorted(measurement.left)))
            known.setdefault(key, measurement)
    return list(known.values())


def _causes(candidate: Candidate, job: PlayedJob, start: str) -> list[Cause]:
    own = (candidate.name, job.name)
    found = factors(job.case, job.causes, own)
    return [factor.cause for factor in found if factor.cause.name.startswith(start)]


def _collectives(candidate: Candidate) -> Iterator[Measurement]:
    """One run of all collectives of all jobs, for every kind of fabric and backend."""
    groups: dict[Cause, list[PlayedJob]] = {}
    for job in candidate.jobs:
        for cause in _causes(candidate, job, "collectives"):
            groups.setdefault(cause, []).append(job)
    for cause, jobs in groups.items():
        case = jobs[0].case
        prior = collectives_range(case, carried=DEPARTURE in jobs[0].causes)
        ends = network_range(case, prior)[1]
        left = _left(math.log((1 + SMALLEST) / (1 - SMALLEST)), ends)
        kind, commands = _collective_commands(candidate.name, [job.case for job in jobs])
        yield Measurement(
            kind,
            candidate.name,
            f"collectives over {cause.about[1]} on {case.ranks:,} ranks of {candidate.name}",
            commands,
            {cause: left},
        )


def _left(width: float, prior: tuple[float, float]) -> float:
    """The share of a cause's standard deviation that stays where the measurement's own error is
    `width`, from the logarithm of its 5 % to that of its 95 % point."""
    whole = math.log(prior[1] / prior[0]) if prior[0] > 0 else math.inf
    return min(width / whole, 1.0) if whole > 0 else 1.0


def _collective_commands(name: str, cases: list[Case]) -> tuple[str, tuple[str, ...]]:
    sizes: dict[str, list[float]] = {}
    for case in cases:
        for operation, size in _operations(case):
            sizes.setdefault(operation, []).append(size)
    first, file = cases[0], _file(name)
    hosts, per_host = _hosts(first, first.ranks)
    use = f"# put calibration: {file}-curves.yaml into the scenario, and compare again"
    if plugins.name_of(first.backend) != "nccl" or not set(sizes) <= set(PROGRAMS):
        names = ",".join(sorted(sizes))
        command = (
            f"torchrun --nnodes {hosts} --nproc-per-node {per_host} "
            f"measure_collectives.py --backend {plugins.name_of(first.backend)} "
            f"--operations {names} --output {file}.json"
        )
        return "collectives", (command, f"dpsim calibrate {file}.json -o {file}-curves.yaml", use)
    commands, outputs = [], []
    for operation, found in sorted(sizes.items()):
        low, high = _span(found)
        output = f"{file}-{operation}.txt"
        outputs.append(output)
        commands.append(
            f"mpirun -np {first.ranks} -N {per_host} {PROGRAMS[operation]} "
            f"-b {low} -e {high} -f 2 -g 1 -n 20 > {output}"
        )
    return "nccl-tests", (
        *commands,
        f"dpsim calibrate {' '.join(outputs)} -o {file}-curves.yaml",
        use,
    )


def _hosts(case: Case, ranks: int) -> tuple[int, int]:
    """Hosts that `ranks` run on, and processes on each: an NVLink domain of more GPUs than any
    server has is made of trays."""
    gpus = case.topology.gpus if case.topology else 1
    if case.topology and case.topology.of_servers:
        gpus = _TRAY
    elif ranks == case.ranks:  # spread as the scenario has them
        gpus = -(-ranks // (case.nodes or 1))
    return -(-ranks // min(gpus, ranks)), min(gpus, ranks)


def _operations(case: Case) -> Iterator[tuple[str, float]]:
    """The collectives that rank 0 takes part in, with their whole sizes [B]; barriers have none."""
    cast = case.programs.asked
    for op in cast.program(0).ops:
        if op.exchanges and op.bytes > 0 and not op.control:
            yield op.carried, op.bytes


def _span(sizes: Iterable[float]) -> tuple[str, str]:
    """Powers of two around all large sizes, as nccl-tests writes them: ("64M", "512M")."""
    found = sorted(sizes)
    low = 2 ** math.floor(math.log2(max(min(found[0], found[-1]), _LEAST)))
    high = 2 ** math.ceil(math.log2(max(found[-1], _LEAST)))
    return _binary(low), _binary(max(high, low))


def _binary(size: int) -> str:
    for unit, scale in (("G", 2**30), ("M", 2**20), ("K", 2**10)):
        if size % scale == 0:
            return f"{size // scale}{unit}"
    return str(size)


def _steps(candidate: Candidate) -> Iterator[Measurement]:
    """A step of each job on the smallest machine that holds it, which sets the level of compute;
    one of a whole node also tells what reading and decoding costs there."""
    for job in candidate.jobs:
        compute = _causes(candidate, job, "compute")
        if not compute:
            continue
        width = math.log(REPEATED[1] / REPEATED[0])  # what the program's own run adds stays
        left = _left(width, compute_range(job.case, False))
        ranks = _smallest(job.case)
        told = dict.fromkeys(compute, left)
        if ranks is not None:
            yield _step(candidate, job, ranks, told)
        whole = min(job.case.topology.gpus if job.case.topology else 1, job.case.ranks)
        loading = _causes(candidate, job, "input pipeline")
        if loading and whole > 1:
            yield _step(candidate, job, whole, {**told, **dict.fromkeys(loading, 0.0)})


def _smallest(case: Case) -> int | None:
    """The smallest power of two of ranks inside a node, whole replicas, that holds the job."""
    most = min(case.topology.gpus if case.topology else 1, case.ranks)
    count = 1
    while count <= most:
        try:
            if memory_of(at_ranks(case, count)).fits not in UNFIT:
                return count
        except (Refused, SimulationError, ValueError):
            pass
        count *= 2
    return None


def _step(
    candidate: Candidate, job: PlayedJob, ranks: int, left: dict[Cause, float]
) -> Measurement:
    case = job.case
    device = case.device.name if case.device else "the device"
    what = f"a step of {job.name} ({case.model.name}) on {ranks} {device}"
    use = f"calibrate: {{step_time: MEASURED, ranks: {ranks}}} into files on {device}, and compare"
    hosts, per_host = _hosts(case, ranks)
    several = f"--nnodes {hosts} " if hosts > 1 else ""
    command = f"torchrun {several}--nproc-per-node {per_host} train.py"
    if ranks == 1 and case.scenario.strategy.recordable and case.mesh.plain:
        record = f"{_file(job.name)}-step.json"
        command = f"dpsim measure --world-size {case.ranks} -o {record} -- python train.py"
        use = f"model: {{record: {record}}} or {use}"
    return Measurement("step", candidate.name, what, (command, f"# put {use}"), left)


def _file(name: str) -> str:
    """`name` as part of a file's name."""
    return "".join(c if c.isalnum() or c in "-._" else "-" for c in name)
