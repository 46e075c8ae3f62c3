"""Commands that tell which of the likely faults it is.

They repeat what was asked: the scenario, its --set and every point with its batch.  To be filled in
are TIME, TRUSTED_TIME and TIME_WITHOUT_LOADER (a step that is still to be measured), MACHINE (where
the scenario names none) and the names of files and programs (nccl.txt, times.csv, train.py).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dpsim.cases.case import Case
from dpsim.cases.typical_code import is_typical
from dpsim.cases.variant import at_ranks
from dpsim.checks.hypotheses import UNKNOWN
from dpsim.checks.steps import StepCheck
from dpsim.core.record import Refused
from dpsim.predict.memory import memory_of
from dpsim.predict.recorded import measured_at

#: faults whose probability is at least this share of the likeliest one's are followed up
WORTH = 0.25
#: one form for all faults that it tells, so that it is listed once
CLOCKS = "nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE,POWER"


@dataclass(frozen=True)
class AskedCheck:
    """A `dpsim check` as it was asked: the scenario, and the texts of its options."""

    scenario: str
    step_times: Sequence[str] = ()
    throughputs: Sequence[str] = ()
    sets: Sequence[str] = ()

    @property
    def points(self) -> list[tuple[str, str]]:
        """Options and texts of the measured steps."""
        return [
            *(("--step-time", text) for text in self.step_times),
            *(("--throughput", text) for text in self.throughputs),
        ]

    def again(self, points: Sequence[tuple[str, str]], *sets: str) -> str:
        """The command with these points, and further --set."""
        options = [*points, *(("--set", one) for one in (*self.sets, *sets))]
        words = [word for option in options for word in option]
        return shlex.join(["dpsim", "check", self.scenario, *words])


def next_commands(found: StepCheck, asked: AskedCheck) -> list[str]:
    """What to run next for `found`, the outcome of `asked`; nothing where steps are normal, and
    none is faster than its interval."""
    if found.verdict == "normal" and not found.below:
        return []
    top = max((cause.probability for cause in found.causes), default=0.0)
    likely = [c.name for c in found.causes if c.probability >= max(WORTH * top, 0.05)]
    untold = found.verdict == "slow" and of_tuned_code(found)
    commands = list(_more(found, asked)) if untold or found.verdict == "cannot_tell" else []
    if untold:
        commands.append(asked.again(asked.points, "compute.code=typical"))
    if found.below:
        commands.append(shlex.join(["dpsim", "run", asked.scenario, *_sets(asked)]))
    if found.only_faster or found.verdict == "normal":
        return list(dict.fromkeys([*commands, *_at_this_level(found, asked)]))
    for name in likely if found.verdict == "slow" else likely[:1]:
        commands += _of(name, found, asked)
    return list(dict.fromkeys(commands))


def of_tuned_code(found: StepCheck) -> bool:
    """Whether healthy steps are those of tuned code, for nothing was measured that says more."""
    case = found.observed[0].case
    told = case.scenario.calibrate is not None or measured_at(case) is not None
    return case.machine is not None and not told and not is_typical(case.scenario)


def _more(found: StepCheck, asked: AskedCheck) -> Iterator[str]:
    """Another count of ranks, or a calibration on the fewest, narrows what is not known.  What
    calibrates is an earlier step that is trusted: it is not checked as well."""
    case = found.observed[0].case
    counts = {seen.case.ranks for seen in found.observed}
    few = next((n for n in _counts(min(counts)) if _fits(case, n)), min(counts))
    if few not in counts:
        yield asked.again([("--step-time", f"{few}=TIME"), *asked.points])
    elif others := [one for one in asked.points if _ranks(one) != few]:
        if case.scenario.calibrate is None:
            yield asked.again(others, f"calibrate={{step_time: TRUSTED_TIME, ranks: {few}}}")
    else:
        node = case.topology.gpus if case.topology else few
        many = node if few < node else 2 * few
        if _runs(case, many):
            yield asked.again([*asked.points, ("--step-time", f"{many}=TIME")])


def _at_this_level(found: StepCheck, asked: AskedCheck) -> Iterator[str]:
    """The scenario calibrated on the first measured step that is so fast, with the scenario's
    batch: either it is refused, or it shows what the others should take."""
    plain = {_ranks(one) for one in asked.points if "," not in one[1]}
    seen = next((seen for seen in found.below if seen.case.ranks in plain), None)
    if seen is not None:
        level = f"calibrate={{step_time: {seen.seconds:.6g} s, ranks: {seen.case.ranks}}}"
        sets = [word for one in (*asked.sets, level) for word in ("--set", one)]
        yield shlex.join(["dpsim", "run", asked.scenario, *sets])


def _sets(asked: AskedCheck) -> list[str]:
    return [word for one in asked.sets for word in ("--set", one)]


def _ranks(point: tuple[str, str]) -> int:
    return int(point[1].split(",")[0].split("=")[0])


def _counts(most: int) -> Iterator[int]:
    """1, 2, 4, … up to `most`."""
    yield from (2**k for k in range(most.bit_length()) if 2**k <= most)


def _runs(case: Case, ranks: int) -> bool:
    """Whether the cluster can have so many ranks."""
    try:
        return at_ranks(case, ranks).ranks == ranks
    except (Refused, ValueError):
        return False


def _fits(case: Case, ranks: int) -> bool:
    """Whether the model can be trained on so many ranks."""
    try:
        return memory_of(at_ranks(case, ranks)).holds
    except (Refused, ValueError):
        return False


def _quiet(asked: AskedCheck) -> str:
    """The point of most ranks on synthetic data, all else as it was."""
    heads = {_ranks(one): one[1].rpartition("=")[0] for one in asked.points}
    point = ("--step-time", f"{heads[max(heads)]}=TIME_WITHOUT_LOADER")
    return asked.again([point], "input={synthetic: true}")


def _of(name: str, found: StepCheck, asked: AskedCheck) -> list[str]:
    case = max((seen.case for seen in found.observed), key=lambda case: case.ranks)
    nodes = case.nodes or 1
    machine = case.scenario.cluster.machine or "MACHINE"
    inside = min(case.ranks, case.topology.gpus if case.topology else case.ranks)
    across = [
        f"mpirun -np {case.ranks} --map-by ppr:{-(-case.ranks // nodes)}:node "
        "all_reduce_perf -b 1M -e 1G -f 2 > nccl.txt",
        f"dpsim check-nccl nccl.txt --cluster {machine} --ranks {case.ranks} --nodes {nodes}",
    ]
    known = {
        "p2p_off": [
            "nvidia-smi topo -m",
            "nvidia-smi topo -p2p r",
            f"mpirun -np {inside} all_reduce_perf -g 1 -b 1M -e 1G -f 2 > nccl.txt",
            f"dpsim check-nccl nccl.txt --cluster {machine} --ranks {inside} --nodes 1",
        ],
        "wrong_nic": ["NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET python train.py", *across],
        "shared_link": ["ibstat", *across],
        "throttled": [CLOCKS],
        "slow_rank": ["dpsim stragglers times.csv", CLOCKS],
        "host_bound": [f"dpsim measure --world-size {case.ranks} -- python train.py"],
        "full_memory": [
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py",
            shlex.join(["dpsim", "run", asked.scenario, *_sets(asked)]),
        ],
        UNKNOWN: [f"dpsim measure --world-size {case.ranks} -- python train.py"],
        "slow_loader": [_quiet(asked)],
    }
    return known[name]
