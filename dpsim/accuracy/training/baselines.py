"""Baselines: what simpler methods predict for the same rows.

linear      work per second and GPU stays what it was at the calibrated count: samples, and FLOP
            where the model or its sequences are others
alpha_beta  compute of the calibrated count, then one ring all-reduce of a rank's gradients over
            all replicas that overlaps with nothing: 2 (n-1) (alpha + S / (n B)) on nominal links
            (Thakur et al., IJHPCA 19(1), 2005)
nccl_bare   the same with the time that NCCL's own cost model has for that all-reduce; of TPUs,
            which NCCL does not drive, that of `ici`
"""

from __future__ import annotations

import itertools

from dpsim.accuracy.training.scenarios import MeasuredCase
from dpsim.cases.case import Case
from dpsim.collectives import Ranks
from dpsim.core import plugins
from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.machines.fabrics.torus import Torus
from dpsim.machines.topology import Topology

#: start-up of one message that textbooks take for a network [s]
ALPHA = 5e-6


def baselines(point: MeasuredCase, first: MeasuredCase) -> dict[str, float]:
    """What the baselines predict for the step time of `point` [s]."""
    here, there = point.case, first.case
    work = linear(point, first) / first.step_time
    found = {"linear": first.step_time * work}
    for name, reduce in (("alpha_beta", _alpha_beta), ("nccl_bare", _nccl_bare)):
        compute = max(first.step_time - reduce(there), 0.0)
        found[name] = compute * work + reduce(here)
    return found


def linear(point: MeasuredCase, first: MeasuredCase) -> float:
    """The step time if every GPU did as much per second as at the calibrated count [s]."""
    here, there = point.case, first.case
    work = here.global_batch / here.ranks / (there.global_batch / there.ranks)
    flop = here.model.flop_per_sample(), there.model.flop_per_sample()
    return first.step_time * work * (flop[0] / flop[1] if all(flop) else 1.0)


def gradient_bytes(case: Case) -> float:
    """Bytes of one rank's gradients, in the dtype that the parameters are kept in."""
    own = case.model.parameters / (case.mesh.tensor * case.mesh.pipeline)
    return own * float(DTYPE_BYTES[case.precision.parameters])


def _replicas(case: Case) -> Ranks:
    """The ranks that hold the same parameters as rank 0."""
    return case.mesh.data_groups(0)[0]


def _alpha_beta(case: Case) -> float:
    group = _replicas(case)
    n = len(group)
    if n == 1 or case.topology is None:
        return 0.0
    return 2 * (n - 1) * (ALPHA + gradient_bytes(case) / (n * _narrowest(case.topology, group)))


def _narrowest(topology: Topology, group: Ranks) -> float:
    """Nominal bandwidth that a ring over `group` has [B/s]: the network's share of a node
    where there are several nodes, else the first link out of a GPU."""
    ring = [*group, group[0]]
    best = float("inf")
    for a, b in itertools.pairwise(ring):
        route = topology.route(a, b)
        best = min(best, min(topology.link(edge).bandwidth for edge in route))
    return best


def _nccl_bare(case: Case) -> float:
    group = _replicas(case)
    if len(group) == 1 or case.topology is None:
        return 0.0
    tpus = case.machine is not None and isinstance(case.machine.node, Torus)
    library = plugins.find("backends", "ici" if tpus else "nccl")()
    return float(library.plan("all_reduce", group, gradient_bytes(case), case.topology).seconds)
