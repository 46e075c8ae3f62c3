"""Causes of uncertainty that candidates share, and draws of them.

A cause stretches a step by a factor whose 5 % and 95 % points are the ends that
dpsim/predict/uncertainty.py gives; between and beyond them its logarithm is linear in a standard
normal number, with a slope of its own on either side of 0.  Candidates take the same number where
it is the same mistake of the same model (A60): the level of compute of one generation of devices
in one dtype on one model, collectives of one backend over one kind of link, the decoding of one
model's images beside one kind of device.  A part of what is not known of compute is one program's
alone (strategy, mesh, schedule: dpsim/predict/programs.py).  All else (run to run, sampling,
which ranks are slow) is independent.  Causes multiply.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpsim.cases.case import Case
from dpsim.cases.typical_code import compute_ends, is_typical
from dpsim.core import plugins
from dpsim.core.arrays import Array
from dpsim.core.dtypes import dtype_class
from dpsim.predict.drawn import Z90
from dpsim.predict.point import Causes
from dpsim.predict.programs import PROGRAM, apart, program_of
from dpsim.predict.uncertainty import CHANGED, COMPUTE, DEPARTURE, DOUBTED, OTHERS, OVERHEADS, SPLIT

#: what is unsure of typical code: it is the same wherever it runs
CODE = ("typical code",)
#: what a factor is at least, whatever an interval says
SMALLEST = 1e-3
#: nodes of the quadrature over what a measurement leaves open
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(15)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@dataclass(frozen=True, order=True)
class Cause:
    """A cause and what it is about: equal ones are one unknown number."""

    name: str
    about: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} of {', '.join(self.about)}"


@dataclass(frozen=True)
class Factor:
    """What `cause` does to one job of one candidate: the factors at its 5 % and 95 % points.

    part  the factors there on the part of the job that the cause is of: the rest keeps its time,
          and nothing is known of what lies farther out
    """

    cause: Cause
    low: float
    high: float
    part: tuple[float, float] | None = None

    def of(self, z: Array) -> Array:
        """The factor where the cause's standard normal number is `z`."""
        z = z if self.part is None else np.clip(z, -Z90, Z90)
        ends = self.part or (self.low, self.high)
        low, high = (np.log(max(end, SMALLEST)) for end in ends)
        found: Array = np.exp(np.where(z < 0, -z * low, z * high) / Z90)
        if self.part is None:
            return found
        fast, slow = (
            (o - 1.0) / (e - 1.0) for o, e in zip((self.low, self.high), ends, strict=True)
        )
        return 1.0 + (found - 1.0) * np.where(z < 0, fast, slow)

    def expected(self, known: Array | float, left: float) -> Array:
        """Its mean where all of its number is `known` but a share `left` of its standard deviation
        (1: nothing is known)."""
        sure = np.sqrt(1.0 - left**2)
        at = sure * np.atleast_1d(np.asarray(known, dtype=float))[:, None] + left * _NODES
        return np.asarray(self.of(at) @ _WEIGHTS, dtype=float)

    @property
    def mean(self) -> float:
        return float(self.expected(0.0, 1.0)[0])


def factors(case: Case, ends: Causes, own: Sequence[str]) -> list[Factor]:
    """The factors of a job whose causes have `ends`; `own` names the job where nobody else shares
    a cause with it."""
    return [_factor(case, name, own, *each) for name, each in apart(case, ends).items()]


def _factor(case: Case, name: str, own: Sequence[str], low: float, high: float) -> Factor:
    """The factor of one cause; what nobody knows of typical code is so large that the rest of a
    step counts beside its compute."""
    if name == COMPUTE and is_typical(case.scenario):
        return Factor(Cause(name, CODE), low, high, compute_ends())
    return Factor(Cause(name, _about(case, name, own)), low, high)


def _about(case: Case, name: str, own: Sequence[str]) -> tuple[str, ...]:
    device = case.device.name if case.device else "no device"
    if name.startswith("compute") or name == CHANGED:
        return _generation(case), dtype_class(case.precision.compute), case.model.name
    if name == PROGRAM:
        return device, dtype_class(case.precision.compute), case.model.name, *program_of(case)
    if name in (OVERHEADS, DEPARTURE, SPLIT, OTHERS):
        return device, case.model.name, fabric_of(case), *program_of(case)
    if name.startswith("collectives"):
        source = case.scenario.calibration
        known = (source,) if source and "measured" in name else ()
        return plugins.name_of(case.backend), fabric_of(case), *known
    if name in ("input pipeline", DOUBTED) or name in _ASSUMED:
        return device, case.model.name
    return tuple(own)


def _generation(case: Case) -> str:
    """Whose compute is unsure in the same way: a generation's devices of one compute capability (an
    A100 is no RTX 3090), a device without one."""
    if (device := case.device) is None:
        return "no device"
    capability = device.compute_capability
    return device.name if device.generation == "other" else f"{device.generation} {capability}"


#: causes that stand for a number that is assumed
_ASSUMED = ("decode (assumed)", "rate (assumed)", "staging (assumed)")
#: kinds of links inside a node
_INSIDE = ("nvlink", "nvswitch", "xgmi", "ici", "pcie", "inter_socket")


def fabric_of(case: Case) -> str:
    """The kind of link that joins the nodes; in one node, that of the slowest link between the
    first two ranks."""
    topology = case.topology
    if topology is None or topology.ranks == 1:
        return "nothing"
    last = topology.gpus if topology.ranks > topology.gpus else 1
    links = [topology.link(edge) for edge in topology.route(0, last)]
    between = [link for link in links if link.kind not in _INSIDE]
    return min(between or links, key=lambda link: link.bandwidth).kind


def numbers(cause: Cause, seed: int, count: int) -> Array:
    """`count` standard normal numbers of `cause`: its own stream, whoever else is compared."""
    text = "\0".join((str(seed), cause.name, *cause.about))
    digest = hashlib.sha256(text.encode()).digest()
    found: Array = np.random.default_rng(int.from_bytes(digest[:16], "big")).standard_normal(count)
    return found
