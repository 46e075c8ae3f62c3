"""What is not known of one program alone, and not of another on the same devices.

A calibrated prediction misses by `interval.run`, and where ranks share a model by `interval.split`
too, however little there is to predict: that is an error of this run of this program (strategy,
mesh, schedule), which another program does not share.  Two uncalibrated predictions have it as
well, inside of what is not known of all compute.  Between meshes of one workload on as many GPUs,
nine in ten of the ratios of measured steps lie within 1.16 (DDL), 1.20 (BIGSCI), 1.34 (VTRAIN),
1.46 (TITAN), 1.56 (DS) and 2.3 (PLAYBOOK) of the predicted ones, uncalibrated; both twice give
1.22, the first alone 1.14 (`validation/mesh_pairs.py` groups such runs).
"""

from __future__ import annotations

import math

from dpsim.cases.case import Case
from dpsim.core import plugins
from dpsim.predict.point import Causes
from dpsim.predict.uncertainty import SPLIT, efficiency_interval
from dpsim.predict.widths import program_range

#: of a calibrated prediction, and of one that is not
RUN, PROGRAM = "run to run", "program (prior)"
_OWN = (RUN, SPLIT, PROGRAM)
#: causes of which an uncalibrated program's own error is a part
_WHOLE = ("compute (prior)", "overheads (prior)", "collectives", "input pipeline")


def program_of(case: Case) -> tuple[str, ...]:
    """What makes a program another one: its strategy, how the model is split, the schedule, and
    what is recomputed."""
    mesh, run = case.mesh, case.scenario
    axes = (f"{axis} {getattr(mesh, axis)}" for axis in ("tensor", "pipeline", "context", "expert"))
    schedule = "no schedule" if run.schedule is None else plugins.name_of(run.schedule)
    return plugins.name_of(run.strategy), *axes, schedule, str(run.recompute)


def apart(case: Case, causes: Causes) -> Causes:
    """`causes` with `PROGRAM` taken out of those that uncalibrated programs share, so that all of
    them together are as wide as before; as they are where compute is calibrated."""
    parts = [name for name in causes if name.startswith(_WHOLE)]
    if "compute (prior)" not in causes:
        return dict(causes)
    found, own = dict(causes), [0.0, 0.0]
    for side, run in enumerate(program_range(case)):
        logs = {name: _log(causes[name][side], side) for name in parts}
        whole = math.hypot(*logs.values())
        share = min(abs(math.log(run)) / whole, 1.0) if whole > 0 else 0.0
        own[side] = math.copysign(share * whole, math.log(run))
        for name in parts:
            ends = list(found[name])
            ends[side] = math.exp(logs[name] * math.sqrt(1.0 - share**2))
            found[name] = (ends[0], ends[1])
    return {**found, PROGRAM: (math.exp(own[0]), math.exp(own[1]))}


def _log(end: float, side: int) -> float:
    """The logarithm of an end of a factor, below 1 or above."""
    logarithm = math.log(max(end, 1e-3))
    return min(logarithm, 0.0) if side == 0 else max(logarithm, 0.0)


def ratio_interval(case: Case, first: Causes, after: Causes) -> tuple[float, float]:
    """Bounds of the step of one program over that of another, relative to their ratio: of their
    `first` and `after` causes, on the cluster of `case`.  What they share moves both; what is one
    program's own does not."""
    point, base = apart(case, first), apart(case, after)
    for name in _OWN:
        if name in point:
            point[f"{name}, the first's"] = point.pop(name)
        if name in base:
            low, high = base.pop(name)
            point[f"{name}, the other's"] = (1.0 / low, 1.0 / high)
    return efficiency_interval(base, point)
