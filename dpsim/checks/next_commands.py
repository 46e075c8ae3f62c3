"""Commands that tell which of the likely faults it is; each can be run as it stands."""

from __future__ import annotations

from dpsim.checks.hypotheses import UNKNOWN
from dpsim.checks.steps import StepCheck

#: faults whose probability is at least this share of the likeliest one's are followed up
WORTH = 0.25


def next_commands(found: StepCheck, scenario: str) -> list[str]:
    """What to run next for `found`, a check of `scenario`; nothing where steps are normal."""
    if found.verdict == "normal":
        return []
    top = max((cause.probability for cause in found.causes), default=0.0)
    likely = [c.name for c in found.causes if c.probability >= max(WORTH * top, 0.05)]
    commands = _more(found, scenario) if found.verdict == "cannot_tell" else []
    if found.too_fast:
        commands.append(f"dpsim run {scenario}")
    for name in likely if found.verdict == "slow" else likely[:1]:
        commands += _of(name, found, scenario)
    return list(dict.fromkeys(commands))


def _more(found: StepCheck, scenario: str) -> list[str]:
    """Another count of ranks, and a calibration, narrow what is not known."""
    most = max(seen.case.ranks for seen in found.observed)
    told = " ".join(f"--step-time {s.case.ranks}={s.seconds:.6g}s" for s in found.observed)
    if any(seen.case.ranks == 1 for seen in found.observed) or most == 1:
        calibrate = "calibrate={step_time: TIME, ranks: 1}"
        return [f"dpsim check {scenario} {told} --set '{calibrate}'"]
    return [f"dpsim check {scenario} --step-time 1=TIME {told}"]


def _of(name: str, found: StepCheck, scenario: str) -> list[str]:
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
            f"all_reduce_perf -g {inside} -b 1M -e 1G -f 2 > nccl.txt",
            f"dpsim check-nccl nccl.txt --cluster {machine} --ranks {inside} --nodes 1",
        ],
        "wrong_nic": ["NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET python train.py", *across],
        "shared_link": ["ibstat", *across],
        "throttled": ["nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE,POWER"],
        "slow_rank": ["dpsim stragglers times.csv", "nvidia-smi -q -d CLOCK,PERFORMANCE"],
        "host_bound": [f"dpsim measure --world-size {case.ranks} -- python train.py"],
        UNKNOWN: [
            f"dpsim measure --world-size {case.ranks} -- python train.py",
            f"dpsim check {scenario} --step-time 1=TIME",
        ],
        "slow_loader": [
            f"dpsim check {scenario} --step-time {case.ranks}=TIME_WITHOUT_LOADER "
            "--set input.limiting=false"
        ],
    }
    return known[name]
