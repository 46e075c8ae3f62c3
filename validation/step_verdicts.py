"""How often `dpsim check` is right: healthy and faulty runs that another model makes up.

    python validation/step_verdicts.py [--healthy 60] [--faulty 63] [--seed 1] [--misses]

Every case is drawn by the seed.  The real cluster is not the one that the check assumes: its level
of compute, NCCL's algorithm and version, how much computing takes beside collectives, how ranks
differ, the rate of every link, the size of buckets and host time are drawn anew, and every measured
step has noise; half of the runs are calibrated on an earlier, healthy step of one rank.  Faults are
injected in other ways than the check's hypotheses where there is one, and with strengths drawn from
a continuum: a slow rank among the first node's, host work per kernel with a serial part, a loader
and a step that hinder each other (a sixth power mean, not the longer of the two), other links by
their own rates and kinds, and no peer-to-peer access as another node.  A fault counts where it
lengthens some measured step by a third.  Both worlds are this simulator's, so the figures say how
well faults can be told apart, and not how often real clusters have other ones.

Printed are precision and recall of the verdict "slow", how often the injected fault is the first
cause of a slow verdict, the table of injected faults against first causes, and all verdicts of
healthy runs.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpsim.cases.case import Case
from dpsim.cases.variant import at_ranks, batched
from dpsim.checks.hypotheses import PRIORS, SOMETIMES, UNKNOWN
from dpsim.checks.steps import StepCheck, check_steps
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.machines.fabrics.pcie_tree import PcieTree
from dpsim.predict.player import step_time
from dpsim.predict.timed import timed

#: least factor by which a fault lengthens some measured step
MATERIAL = 1.33
#: a case that cannot be built or has no visible fault is drawn again at most so often
TRIES = 60
Data = dict[str, Any]
Draw = np.random.Generator

VISION = {"optimizer": {"kind": "momentum"}, "precision": {"compute": "fp16"}}
TEXT = {"optimizer": {"kind": "adam"}, "precision": {"compute": "fp16"}}
#: faults that are injected: all that can be played on machines without a pipeline
INJECTED = tuple(name for name in PRIORS if name not in (UNKNOWN, *SOMETIMES))
#: what is trained where: model and the samples of a rank, then clusters and their counts of ranks
Trained = Sequence[tuple[Data, tuple[int, ...]]]
TRAINED: Trained = (
    ({"model": {"name": "resnet50"}, **VISION}, (32, 64, 128)),
    ({"model": {"name": "vgg16"}, **VISION}, (16, 32, 64)),
    ({"model": {"huggingface": "bert-large", "sequence_length": 384}, **TEXT}, (4, 8, 16)),
    ({"model": {"huggingface": "gpt2-large", "sequence_length": 1024}, **TEXT}, (1, 2, 4)),
)
CLUSTERS: Trained = (
    ({"machine": "v100-1x100g"}, (1, 4, 8, 16, 32)),
    ({"machine": "v100-1x100g", "inter_node_bandwidth": "25 Gbit/s"}, (1, 8, 16, 32)),
    ({"machine": "dgx-a100"}, (1, 8, 16, 64)),
    ({"machine": "dgx-h100"}, (1, 8, 32, 64)),
    ({"machine": "dgx-1v"}, (1, 8, 16, 32)),
)


@dataclass(frozen=True)
class VerdictCase:
    """A made-up run: the fault that it has (none: healthy), and what the check says of it."""

    fault: str
    slower: float
    found: StepCheck

    @property
    def first(self) -> str:
        """The likeliest cause."""
        return self.found.causes[0].name if self.found.causes else "none"


def drawn(stream: Draw, fault: str, trained: Trained) -> VerdictCase:
    """One case with `fault`, or healthy where it is ""."""
    for _ in range(TRIES):
        found = _drawn(stream, fault, trained)
        if found is not None:
            return found
    raise SystemExit(f"no case with {fault} in {TRIES} draws")


def _drawn(stream: Draw, fault: str, trained: Trained) -> VerdictCase | None:
    user, points = _scenario(stream, trained)
    try:
        level = float(np.exp(stream.normal(0.05, 0.2)))
        healthy = replace(_case(_other(user, stream)), compute_scale=level)
        cases = [batched(at_ranks(healthy, n), dict(more)) for n, more in points]
        quiet = np.array([step_time(case) for case in cases])
        ill = quiet if not fault else _faulty(fault, healthy, cases, quiet, stream)
    except (Refused, ValueError):
        return None
    slower = float(np.max(ill / quiet))
    if fault and slower < MATERIAL:
        return None
    noise = np.exp(stream.normal(0, 0.02) + stream.normal(0, 0.02, len(ill)))
    if stream.random() < 0.5:  # an earlier run of one rank, before anything went wrong
        before = step_time(at_ranks(healthy, 1)) * float(np.exp(stream.normal(0, 0.02)))
        user["calibrate"] = {"ranks": 1, "step_time": f"{before!r} s"}
    texts = [_told(n, more, float(t)) for (n, more), t in zip(points, ill * noise, strict=True)]
    try:
        found = check_steps(timed(load(user, Path(), "case"), texts, ()))
    except Refused:
        return None
    return VerdictCase(fault, slower, found)


def _told(ranks: int, batch: Data, seconds: float) -> str:
    return ",".join([str(ranks), *(f"{k}={v}" for k, v in batch.items())]) + f"={seconds!r}s"


def _case(data: Data) -> Case:
    return Case(load(data, Path(), "real").points[0], Path())


def _scenario(stream: Draw, known: Trained) -> tuple[Data, list[tuple[int, Data]]]:
    """What the user says, and the points that are measured: two to four, of them some with
    accumulation or another batch."""
    trained, sizes = known[stream.integers(len(known))]
    cluster, counts = CLUSTERS[stream.integers(len(CLUSTERS))]
    batch = int(sizes[stream.integers(len(sizes))])
    many = int(stream.integers(2, min(len(counts), 4) + 1))
    chosen = sorted(stream.choice(len(counts), many, replace=False))
    points: list[tuple[int, Data]] = [(counts[k], {}) for k in chosen]
    if stream.random() < 0.6:
        points.append((points[-1][0], {"accumulation": 4}))
    if stream.random() < 0.6:
        points.append((points[-1][0], {"per_device": batch * 2}))
    user = {
        **trained, "cluster": {"ranks": 1, **cluster}, "strategy": {"kind": "ddp"},
        "batch": {"per_device": batch}, "engine": "vectorised",
    }  # fmt: skip
    return user, points


def _other(user: Data, stream: Draw) -> Data:
    """The real cluster: other constants, other algorithms, other links."""
    rate = float(np.clip(stream.normal(0.92, 0.08), 0.7, 1.05))
    cluster = dict(user["cluster"])
    topology = _case(user).machine
    assert topology is not None
    link = getattr(topology.network, "link", None)
    said = cluster.get("inter_node_bandwidth")
    base = float(said.split()[0]) / 8 * 1e9 if said else float(link.bandwidth if link else 12.5e9)
    cluster["inter_node_bandwidth"] = f"{base * rate!r} B/s"
    compute = {
        "contention": float(stream.uniform(0.1, 1.0)),
        "spread": float(stream.uniform(0.01, 0.07)),
    }
    real: Data = {**user, "cluster": cluster, "compute": compute}
    real["collective"] = {
        "backend": "nccl",
        "algorithm": str(stream.choice(["auto", "ring", "tree"])),
        "version": str(stream.choice(["2.10", "2.18", "2.21"])),
    }
    real["strategy"] = {"kind": "ddp", "bucket_cap_mb": int(stream.choice([15, 25, 50]))}
    real["host"] = {"serial": f"{stream.uniform(0, 0.002)!r} s"}
    return real


def _faulty(
    fault: str, real: Case, cases: Sequence[Case], quiet: np.ndarray, stream: Draw
) -> np.ndarray:
    """Steps of `cases` with the fault [s]."""
    if fault == "slow_loader":
        return _loading(cases, quiet, stream)
    return np.array([step_time(case) for case in _ill(fault, real, cases, stream)])


def _loading(cases: Sequence[Case], quiet: np.ndarray, stream: Draw) -> np.ndarray:
    """Workers of a node decode so many samples per second; they and the step hinder each other."""
    samples = np.array([case.global_batch / (case.nodes or 1) for case in cases])
    rate = float(np.max(samples / quiet)) / stream.uniform(1.3, 4.0)
    load = samples / rate * np.exp(stream.normal(0, 0.03, len(cases)))
    found: np.ndarray = (quiet**6 + load**6) ** (1 / 6)
    return found


def _ill(fault: str, real: Case, cases: Sequence[Case], stream: Draw) -> list[Case]:
    if fault == "throttled":
        factor = float(stream.uniform(1.35, 2.8))
        return [replace(case, compute_scale=case.compute_scale * factor) for case in cases]
    if fault == "slow_rank":
        slow, factor = int(stream.integers(0, 8)), float(stream.uniform(1.35, 3.0))
        return [_with(case, variability=_slow(case, slow, factor)) for case in cases]
    if fault == "host_bound":
        host = replace(real.scenario.host, launch=float(stream.uniform(20e-6, 150e-6)))
        host = replace(host, serial=host.serial + float(stream.uniform(0, 0.01)))
        return [_with(case, host=host) for case in cases]
    if fault == "p2p_off":
        share = float(stream.uniform(0.25, 0.6))
        return [_staged(case, share) for case in cases]
    changes = _links(fault, real, stream)
    return [_relinked(case, changes) for case in cases]


def _links(fault: str, real: Case, stream: Draw) -> Data:
    """What the cluster's links between nodes really are."""
    said = real.scenario.cluster.inter_node_bandwidth
    assert said is not None
    if fault == "shared_link":
        return {"inter_node_bandwidth": said * float(stream.uniform(0.12, 0.5))}
    if fault != "wrong_nic":
        raise KeyError(fault)
    if stream.random() < 0.5:
        slow = float(stream.choice([1e9, 10e9])) / 8 * float(stream.uniform(0.8, 1.0))
        return {"inter_node_bandwidth": slow, "nics_per_node": 1, "inter_node_kind": "ethernet"}
    return {"inter_node_kind": "ethernet", "nics_per_node": int(stream.choice([1, 2]))}


def _relinked(case: Case, changes: Data) -> Case:
    cluster = replace(case.scenario.cluster, **changes)
    return _with(case, cluster=cluster) if case.nodes and case.nodes > 1 else case


def _slow(case: Case, rank: int, factor: float) -> Any:
    ranks = {rank: factor} if rank < case.ranks else None
    return replace(case.scenario.variability, slow_ranks=ranks)


def _with(case: Case, **sections: Any) -> Case:
    return replace(case, scenario=replace(case.scenario, **sections))


def _staged(case: Case, share: float) -> Case:
    """`case` on nodes whose GPUs copy through the host, at that share of their PCIe rate."""
    changed = replace(case, scenario=replace(case.scenario), shared=type(case.shared)())
    machine = case.machine
    assert machine is not None
    host = getattr(machine.node, "host", None)
    if host is None:
        raise Refused("no PCIe slots to fall back on")
    slow = replace(host.gpu, bandwidth=host.gpu.bandwidth * share)
    node = PcieTree(host=replace(host, gpu=slow))
    changed.site.__dict__["machine"] = replace(machine, node=node)
    return changed


# -- the whole --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tally:
    """What all cases give together; None where nothing is counted."""

    precision: float | None
    recall: float | None
    first: float | None


def tally(cases: Sequence[VerdictCase]) -> Tally:
    """Precision and recall of "slow", and how often the fault is then the first cause."""
    slow = [case for case in cases if case.found.verdict == "slow"]
    right = [case for case in slow if case.fault]
    ill = [case for case in cases if case.fault]
    return Tally(
        len(right) / len(slow) if slow else None,
        len(right) / len(ill) if ill else None,
        sum(case.first == case.fault for case in right) / len(right) if right else None,
    )


def all_cases(
    healthy: int, faulty: int, seed: int, trained: Trained = TRAINED
) -> list[VerdictCase]:
    """So many cases of what is `trained`; the faults take turns."""
    names = list(INJECTED)
    wanted = [""] * healthy + [names[k % len(names)] for k in range(faulty)]
    return [drawn(np.random.default_rng((seed, k)), name, trained) for k, name in enumerate(wanted)]


def report(cases: Sequence[VerdictCase], misses: bool) -> None:
    """Everything that is printed."""
    found = tally(cases)
    told = {"precision": found.precision, "recall": found.recall, "true cause first": found.first}
    for name, value in told.items():
        print(f"{name}: {'-' if value is None else f'{value:.3f}'}")
    print("\nverdicts:        normal  cannot_tell  slow")
    for what, kind in (("healthy", ""), *((name, name) for name in INJECTED)):
        counts = Counter(case.found.verdict for case in cases if case.fault == kind)
        print(f"  {what:12s} {counts['normal']:8d} {counts['cannot_tell']:12d} {counts['slow']:5d}")
    print("\nfirst cause of slow verdicts, by injected fault:")
    print(" " * 14 + " ".join(f"{name:>11s}" for name in PRIORS))
    for what, kind in (("healthy", ""), *((name, name) for name in INJECTED)):
        slow = [c for c in cases if c.fault == kind and c.found.verdict == "slow"]
        counts = Counter(case.first for case in slow)
        print(f"  {what:12s}" + " ".join(f"{counts[name]:11d}" for name in PRIORS))
    for case in cases if misses else ():
        wrong = (case.found.verdict == "slow") != bool(case.fault) or (
            case.fault and case.first != case.fault
        )
        if wrong:
            seen = [
                f"{o.case.ranks}x{o.case.global_batch}: {o.seconds / e[0]:.2f}"
                for o, e in zip(case.found.observed, case.found.expected, strict=True)
            ]
            where = case.found.observed[0].case.scenario
            causes = [f"{c.name} {c.probability:.2f}" for c in case.found.causes[:3]]
            kind = f"{case.fault or 'healthy'} ({case.slower:.2f}) {case.found.verdict}"
            print(kind, where.cluster.machine, where.model, bool(where.calibrate), seen, causes)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--healthy", type=int, default=60)
    parser.add_argument("--faulty", type=int, default=63)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--misses", action="store_true", help="print what was wrong")
    given = parser.parse_args(arguments)
    report(all_cases(given.healthy, given.faulty, given.seed), given.misses)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
