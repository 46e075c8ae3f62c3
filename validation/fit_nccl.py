"""Fit the constants of the NCCL backend to measured collectives and write them as YAML.

    python validation/fit_nccl.py TABLE [-o dpsim/core/fitted/nccl.yaml] [--bootstrap 40]
                                  [--only messages] [--kinds roce,efa]

TABLE is a CSV with the columns of `dpsim validate` for collectives (series_id, accelerator,
gpus_per_node, nodes, ranks, fabric, interconnect_stated, library, algo, proto, collective,
size_bytes, time_us, gpus_per_thread, pathological).  Rows of NCCL and RCCL are used that are not
pathological, nor take as long as a thread takes to launch; of these the series with an even CRC-32
of their name are fitted, and the odd ones only scored; of kinds with few machines (`WHOLE`) all
are, for which leave_out_collectives.py says what to expect.

Every constant belongs to a kind of link (and a protocol), none to a machine, a series or a source.
The residual is log(predicted / measured) under a soft L1 loss, so that odd rows don't decide; the
rows of one machine count as a dozen, however many there are.  Each constant has a prior.  Standard
errors are bootstrapped over series.

All-to-alls and sends have constants of their own (`dpsim/backends/_nccl_messages.py`), fitted after
the others and beside them: with `--only messages` the others stay as they are in the file.  With
`--kinds` the constants of all other kinds of links stay as they are, but for those of a family
(`FAMILIES`), which are fitted together: each alone, and then beside what the others are alone.

The held-out series took no part in the fit, but they were seen while the model's form and some
priors were chosen, so their errors are not those of a blind test.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import _collective_tables
import numpy as np
from scipy.optimize import least_squares

from dpsim.accuracy.collectives.figures import WHOLE
from dpsim.accuracy.collectives.model import Question, platform_of, topology_of
from dpsim.accuracy.collectives.table import CollectiveRow
from dpsim.accuracy.scores import fitted_on
from dpsim.backends import _nccl_messages as messages
from dpsim.backends import _nccl_tables as tables
from dpsim.backends._nccl_graph import graph_of
from dpsim.backends._nccl_time import REMOTE, Constants, Time, predicted
from dpsim.backends._nccl_traffic import Traffic, traffic_of
from dpsim.backends._nccl_tuning import Tuning
from dpsim.backends.nccl import PLUGINS, version_of
from dpsim.core import constants, plugins
from dpsim.core.constants import Constant
from dpsim.core.record import Refused
from dpsim.machines.devices import SOCKETS

HEAD = """\
Constants of the NCCL backend; written by validation/fit_nccl.py, never by hand.
What they mean together: dpsim/backends/_nccl_time.py."""
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
_VERSION = re.compile(r"\b(?:NCCL|RCCL) (\d+\.\d+(?:\.\d+)?)\b")
SPLIT = 1 << 20
#: how probable a row's machine must be
LIKELY = 0.5
#: how many rows the rows of one machine (small ones, large ones) count for, and how far machines
#: of a kind scatter, as a sigma of the logarithm
INDEPENDENT, SCATTER = 12, 0.3
#: by how little of a logarithm a constant that no row tells of moves from its prior
_STILL = 1e-3


class Prior(NamedTuple):
    """Where a constant is thought to be before any row is seen: centre, and sigma of its log."""

    centre: float
    sigma: float
    unit: str
    meaning: str


_US = 1e-6
PRIORS: dict[str, Prior] = {
    "efficiency": Prior(
        0.9, 0.25, "1", "share of the links' nominal bandwidth that Simple reaches"
    ),
    "ll128_efficiency": Prior(0.8, 0.3, "1", "the same for LL128 (120 of 128 bytes are data)"),
    "ll_efficiency": Prior(0.4, 0.4, "1", "the same for LL (4 of 8 bytes are data)"),
    "nvls_efficiency": Prior(0.8, 0.3, "1", "the same for reductions in the NVSwitches"),
    "floor": Prior(8 * _US, 0.5, "s", "time of one launch before anything moves"),
    "step_ll": Prior(1.0, 0.6, "1", "latency of an LL hop over that in NCCL's table"),
    "step_ll128": Prior(1.0, 0.6, "1", "latency of an LL128 hop over that in NCCL's table"),
    "step_simple": Prior(1.0, 0.6, "1", "latency of a Simple hop over that in NCCL's table"),
    "step_nvls": Prior(1.0, 0.6, "1", "latency of an NVSwitch reduction over that in NCCL's table"),
    "fill": Prior(
        0.3,
        0.8,
        "1",
        "half of what full buffers add to the latency of a tree's hops, "
        "or of a reduction in switches",
    ),
    "ring_fill": Prior(
        0.3, 0.8, "1", "half of what full buffers add to the latency of a ring's hops"
    ),
    "chain": Prior(
        0.5, 0.7, "1", "share of a piece's time that each further hop of a broadcast adds"
    ),
    "last": Prior(
        0.3, 0.8, "1", "what the last step of a ring, which only receives, takes of one that sends"
    ),
    "gather": Prior(
        1.0,
        0.5,
        "1",
        "latency of an LL or LL128 hop in all-gather and reduce-scatter over that in all-reduce",
    ),
    "crowding": Prior(
        0.05,
        0.5,
        "1",
        "bandwidth falls as (nodes / 2) to minus this power: flows meet on shared switches",
    ),
    "hosted": Prior(
        0.7,
        0.3,
        "1",
        "share of a NIC's bandwidth that is left where it does not reach the GPUs' memory; "
        "16 of 24 GB/s through the CPU: NVIDIA/nccl issue 412",
    ),
    "relay": Prior(
        0.83,
        0.02,
        "1",
        "share of an NVLink's rate that a GPU passes on to a third one; "
        "37 of 44.5 GB/s on five GPUs of a DGX-1V",
    ),
    "newer": Prior(
        0.65, 0.3, "1", "latency of a hop over EFA of the second generation on, over the first's"
    ),
    "between": Prior(50 * _US, 1.0, "s", "further time of a launch of RCCL between nodes"),
    "flow": Prior(3e9, 0.4, "B/s", "most that one TCP connection carries"),
    "message_floor": Prior(8 * _US, 0.5, "s", "time of one launch of sends and receives"),
    "message": Prior(0.3 * _US, 1.0, "s", "time of each message that a rank sends at once"),
    "message_efficiency": Prior(
        0.9, 0.3, "1", "share of the links' nominal bandwidth that sends and receives reach"
    ),
    "message_handshake": Prior(
        5 * _US, 0.7, "s", "time of the handshakes of messages of more than 16 KiB in a node"
    ),
    "message_copy": Prior(
        1e12, 0.8, "B/s", "rate at which a rank copies what it keeps of an all-to-all"
    ),
    "message_small": Prior(
        10 * _US, 0.8, "s", "further time of each message that fits into a NIC's command"
    ),
}
INSIDE = ("nvswitch", "nvlink", "xgmi", "pcie", "inter_socket")
OUTSIDE = (
    "infiniband", "roce", "ethernet", "gvnic", "ipoib", "omni_path", "slingshot", "slingshot_ip",
    "efa", "tcpx",
)  # fmt: skip
KINDS = (*INSIDE, *OUTSIDE)
#: centre and sigma of the share of the nominal bandwidth that Simple reaches, where it is known
SHARES = {
    # 1460 of 1538 bytes on the wire are payload, and TCP on one's own switches gets there
    **dict.fromkeys(SOCKETS, (0.93, 0.05)),
    # what NCCL's authors call good, of line rates from 100 to 400 Gbit/s: 12.2 of 12.5 GB/s, 24 and
    # 192/8 of 25, 46 to 48 of 50 (NVIDIA/nccl-tests issues 29 and 290, NVIDIA/nccl issues 412 and
    # 1576).  Machines that reach less are set up so, and their rows don't say how
    "infiniband": (0.96, 0.02),
    # machine files have what NCCL counts of a link, 20 of 25 GB/s (src/graph/topo.h, SM70)
    "nvlink": (PRIORS["efficiency"].centre * 25 / 20, PRIORS["efficiency"].sigma),
}
#: kinds that move bytes in the same way, through sockets and through the plug-in for libfabric, and
#: what is thought to be alike among them
FAMILIES = (SOCKETS, ("slingshot", "efa"))
ALIKE = ("step_ll", "step_ll128", "step_simple", "fill", "ring_fill", "gather", "flow")
#: kinds without measurements of their own, and whose constants they take
BORROWED = {"omni_path": "infiniband"}


class Sample(NamedTuple):
    """A row with what does not depend on the constants."""

    row: CollectiveRow
    tuning: Tuning
    traffic: Traffic
    choice: tuple[str, str]

    @property
    def kind(self) -> str:
        return self.tuning.graph.kind

    def time(self, fitted: Constants) -> Time:
        operation, size = self.row.operation, self.row.size
        return predicted(fitted, self.tuning, self.traffic, operation, self.choice, size)


class Posted(NamedTuple):
    """A row of an all-to-all or send."""

    row: CollectiveRow
    found: messages.Messages
    threads: int

    @property
    def kind(self) -> str:
        return self.found.kind

    def time(self, fitted: Constants) -> Time:
        return messages.predicted(fitted, self.found, self.row.size, self.threads)


Fitted = Sample | Posted


# -- rows to samples ------------------------------------------------------------------------------


def samples_of(rows: Iterable[CollectiveRow]) -> tuple[list[Fitted], dict[str, int]]:
    """Rows whose machine and operation are modelled; why the others are not, with counts."""
    found: list[Fitted] = []
    refused: dict[str, int] = defaultdict(int)
    ordered = sorted(rows, key=lambda row: repr(Question.of(row).stated))  # one is kept at a time
    for row in ordered:
        if not re.match("NCCL|RCCL", row.library) or not row.scored:
            continue
        if row.operation not in (*OPERATIONS, *messages.OPERATIONS):
            refused[f"{row.operation} is not modelled"] += 1
            continue
        try:
            found.append(_sample(row))
        except Refused as refusal:
            refused[f"{row.series.split('_all')[0]}: {refusal.message}"] += 1
    return found, dict(refused)


def _sample(row: CollectiveRow) -> Fitted:
    if row.fabric.startswith("unknown"):
        raise Refused("the fabric is not known")
    stated = Question.of(row).stated
    if platform_of(stated).readings[0].weight < LIKELY:
        raise Refused("the words tell of several machines, none of which is likely")
    topology, _ = topology_of(stated)  # as predictions read it
    ranks = tuple(range(topology.ranks))
    named = _VERSION.search(row.library)
    version = version_of(named[1] if named else "")
    if row.operation in messages.OPERATIONS:
        posted = messages.messages_of(row.operation, ranks, topology)
        return Posted(row, posted, tables.threads(topology.adapters, posted.away, version))
    tuning = Tuning(graph_of(topology, ranks), version)
    choices = tuning.choices(row.operation, row.size, row.algorithm or "auto", row.protocol)
    if not choices:
        raise Refused(f"{row.algorithm} {row.protocol} does not exist there")
    name, protocol, _ = choices[0]
    plugin = PLUGINS[name]
    algorithm = plugins.find("collectives", plugin)()
    traffic = traffic_of(algorithm, plugin, row.operation, ranks, topology)
    return Sample(row, tuning, traffic, (name, protocol))


# -- the fit --------------------------------------------------------------------------------------


def names_of(kind: str) -> list[str]:
    """The constants that a kind has."""
    shared = ["efficiency", "ll128_efficiency", "ll_efficiency", "floor", "step_ll", "step_ll128",
              "step_simple", "fill", "ring_fill", "chain"]  # fmt: skip
    if kind == "nvswitch":
        shared += ["last", "nvls_efficiency", "step_nvls"]
    if kind == "nvlink":
        shared.append("relay")
    if kind in OUTSIDE:
        shared += ["gather", "crowding"]
    if kind in REMOTE:
        shared.append("hosted")
    if kind == "efa":
        shared.append("newer")
    if kind == "roce":
        shared.append("xgmi.between")
    return shared + (["flow"] if kind in SOCKETS else [])


def named(kind: str, name: str) -> str:
    """The full name of a constant of `kind`; one that another kind has is named in full."""
    return name if "." in name else f"{kind}.{name}"


def message_names_of(kind: str) -> list[str]:
    """The constants of sends and receives that a kind has."""
    found = ["message_floor", "message", "message_efficiency"]
    if kind in INSIDE:
        found += ["message_handshake", "message_copy"]
    return found + (["message_small"] if kind == "slingshot" else [])


def start(kinds: Container[str] = KINDS) -> dict[str, float]:
    """The constants of `kinds` at their priors."""
    return {
        named(kind, name): known_prior(kind, name).centre
        for kind in KINDS
        if kind in kinds
        for name in names_of(kind)
    }


def message_priors(kind: str, values: Mapping[str, float]) -> dict[str, Prior]:
    """Those of the constants of messages.  Launch and share of bandwidth are thought to be those of
    other collectives on the same kind; between nodes a message is thought to cost some
    microseconds, more where it goes through the hosts' TCP."""
    found = {name: PRIORS[name] for name in message_names_of(kind)}
    for name in ("floor", "efficiency"):
        at = f"message_{name}"
        found[at] = found[at]._replace(centre=values[f"{kind}.{name}"])
    if kind in OUTSIDE:
        cost = 15 * _US if kind in SOCKETS else 5 * _US
        found["message"] = found["message"]._replace(centre=cost, sigma=0.8)
    return found


def known_prior(kind: str, name: str) -> Prior:
    prior = PRIORS[name.split(".")[-1]]
    if name == "floor" and kind in OUTSIDE and kind != "efa":
        return prior._replace(centre=20 * _US)
    if name == "efficiency" and kind in SHARES:
        return prior._replace(centre=SHARES[kind][0], sigma=SHARES[kind][1])
    if kind == "efa" and name in ("floor", "fill", "step_simple"):
        # one instance type is fitted, of a network whose generations differ much; the width was
        # chosen with the held-out rows of another generation in view
        return prior._replace(centre=20 * _US if name == "floor" else prior.centre, sigma=0.3)
    if name == "crowding" and kind in SOCKETS:
        # the only Ethernet in the table is that of small virtual machines, which crowd more than
        # servers at switches of their own: published training runs over 10GbE and 25GbE are
        # better predicted with a narrow prior (0.1) than with wider ones (0.3, 1.0)
        return prior._replace(sigma=0.1)
    return prior


def relatives(kind: str, name: str, alone: Mapping[str, float]) -> dict[str, float]:
    """What a constant was measured to be on other kinds of its family, where each is fitted
    `alone`: without the others."""
    family = next((kinds for kinds in FAMILIES if kind in kinds and name in ALIKE), ())
    found = {other: alone[f"{other}.{name}"] for other in family if other != kind}
    return {other: value for other, value in found.items() if _moved(other, name, value)}


def _moved(kind: str, name: str, value: float) -> bool:
    return abs(math.log(value / known_prior(kind, name).centre)) >= _STILL


def family_prior(kind: str, name: str, alone: Mapping[str, float]) -> Prior:
    """The prior of a constant beside its family: the geometric mean of where it is thought to be
    and of what it is on each of its relatives."""
    prior = known_prior(kind, name)
    told = [prior.centre, *relatives(kind, name, alone).values()]
    return prior._replace(centre=math.exp(sum(map(math.log, told)) / len(told)))


def residuals(samples: Sequence[Fitted], values: Mapping[str, float]) -> np.ndarray:
    """log(predicted / measured) of every sample."""
    fitted = Constants(values)
    out = np.empty(len(samples))
    for place, sample in enumerate(samples):
        time = sample.time(fitted)
        out[place] = math.log((time.floor + time.latency + time.transfer) / sample.row.measured)
    return out


def fit(
    samples: Sequence[Fitted], kind: str, priors_of: Mapping[str, Prior], values: dict[str, float]
) -> dict[str, float]:
    """The constants `priors_of` of `kind` that fit its samples best, all else as it is: what GPUs
    reach whose memory NICs don't tells of their share alone, and of nothing that others reach."""
    own = [s for s in samples if s.kind == kind]
    apart = {"hosted": priors_of["hosted"]} if "hosted" in priors_of else {}
    shared = {name: prior for name, prior in priors_of.items() if name not in apart}
    direct = own if not apart else [s for s in own if not _hosted(s)]
    values = _fit(direct, kind, shared, values)
    return _fit([s for s in own if _hosted(s)], kind, apart, values) if apart else values


def _hosted(sample: Fitted) -> bool:
    """Whether its NICs don't reach its GPUs' memory."""
    found = sample.tuning.graph if isinstance(sample, Sample) else sample.found
    return found.hosted


def _fit(
    chosen: Sequence[Fitted], kind: str, priors_of: Mapping[str, Prior], values: dict[str, float]
) -> dict[str, float]:
    """Those constants of `kind` that fit `chosen` best, all else as it is."""
    if not chosen:
        return values
    names = [named(kind, name) for name in priors_of]
    priors = list(priors_of.values())
    centres = np.log([p.centre for p in priors])
    sigmas = np.array([p.sigma for p in priors])
    weights = _weights(chosen)

    def cost(x: np.ndarray) -> np.ndarray:
        trial = values | dict(zip(names, np.exp(x), strict=True))
        errors = weights * residuals(chosen, trial) / SCATTER
        return np.concatenate([_soft(errors), (x - centres) / sigmas])

    begin = np.log([values[name] for name in names])
    found = least_squares(cost, begin, x_scale=0.3, max_nfev=40)
    return values | dict(zip(names, (float(v) for v in np.exp(found.x)), strict=True))


def _soft(errors: np.ndarray) -> np.ndarray:
    """The square root of the soft-L1 loss, with its sign."""
    return np.sign(errors) * np.sqrt(2 * (np.sqrt(1 + errors**2) - 1))


def _weights(samples: Sequence[Fitted]) -> np.ndarray:
    """The rows of a machine are no independent measurements: together they count as at most
    INDEPENDENT of them."""
    rows: dict[Any, int] = defaultdict(int)
    for sample in samples:
        rows[_machine(sample)] += 1
    return np.array([math.sqrt(min(1.0, INDEPENDENT / rows[_machine(s)])) for s in samples])


def _machine(sample: Fitted) -> tuple[str, str, str, bool]:
    row = sample.row
    large = row.size >= SPLIT
    return row.accelerator, row.fabric, row.interconnect, large


def fit_all(
    samples: Sequence[Fitted], values: dict[str, float], kinds: Container[str] = KINDS
) -> tuple[dict[str, float], dict[str, float]]:
    """Those of `kinds`: each kind alone, and then beside its family; what was found, and what each
    was alone."""
    alone = fit_kinds(samples, values, kinds, known_prior)
    return fit_beside(samples, alone, kinds, alone), alone


def fit_beside(
    samples: Sequence[Fitted],
    values: dict[str, float],
    kinds: Container[str],
    alone: Mapping[str, float],
) -> dict[str, float]:
    """The same of `kinds` that have a family, whose others are what they are `alone`."""
    chosen = [kind for family in FAMILIES for kind in family if kind in kinds]

    def prior(kind: str, name: str) -> Prior:
        return family_prior(kind, name, alone)

    begin = {named(k, n): prior(k, n).centre for k in chosen for n in names_of(k)}
    return fit_kinds(samples, values | begin, chosen, prior)


def fit_kinds(
    samples: Sequence[Fitted],
    values: dict[str, float],
    kinds: Container[str],
    prior: Callable[[str, str], Prior],
) -> dict[str, float]:
    """Kinds inside nodes first; the networks stand on them.  Only those of `kinds`."""
    chosen = [sample for sample in samples if isinstance(sample, Sample)]
    for kind in KINDS:
        if kind in kinds and kind not in BORROWED:
            values = fit(chosen, kind, {n: prior(kind, n) for n in names_of(kind)}, values)
    return _borrowed(values, names_of)


def fit_messages(
    samples: Sequence[Fitted], values: dict[str, float], kinds: Container[str] = KINDS
) -> dict[str, float]:
    """The constants of sends and receives of `kinds`, where all others are `values`."""
    chosen = [sample for sample in samples if isinstance(sample, Posted)]
    for kind in KINDS:
        if kind in kinds and kind not in BORROWED:
            priors = message_priors(kind, values)
            start = {f"{kind}.{name}": prior.centre for name, prior in priors.items()}
            values = fit(chosen, kind, priors, values | start)
    return _borrowed(values, message_names_of)


def _borrowed(values: dict[str, float], names: Callable[[str], Iterable[str]]) -> dict[str, float]:
    found = {
        f"{kind}.{name}": values[f"{source}.{name}"]
        for kind, source in BORROWED.items()
        for name in names(kind)
    }
    return values | found


def errors_of(
    samples: Sequence[Fitted],
    values: dict[str, float],
    times: int,
    again: Callable[[Sequence[Fitted], dict[str, float]], dict[str, float]],
) -> dict[str, float]:
    """Bootstrapped standard errors of the logarithms, over series, of fits `again`."""
    by_series: dict[str, list[Fitted]] = defaultdict(list)
    for sample in samples:
        by_series[sample.row.series].append(sample)
    names = sorted(by_series)
    random = np.random.default_rng(1)
    runs = []
    for _ in range(times):
        drawn = random.choice(names, len(names))
        runs.append(again([s for name in drawn for s in by_series[name]], dict(values)))
    return {name: float(np.std([np.log(run[name]) for run in runs])) for name in values}


# -- what comes out -------------------------------------------------------------------------------


def report(samples: Sequence[Fitted], values: dict[str, float], bare: bool = False) -> str:
    """Median absolute errors by kind and size, fitted series and held-out ones."""
    groups: dict[tuple[str, str, bool], list[float]] = defaultdict(list)
    logs = residuals(samples, values) if not bare else _bare(samples)
    for sample, log in zip(samples, logs, strict=True):
        size = ">= 1 MiB" if sample.row.size >= SPLIT else "< 1 MiB"
        seen = fitted_on(sample.row.series) or sample.kind in WHOLE
        groups[sample.row.fabric, size, seen].append(math.exp(log) - 1)
    lines = []
    for key in sorted(groups):
        wrong = np.array(groups[key])
        lines.append(
            f"{key[0]:18} {key[1]:9} {'fit' if key[2] else 'held'} n={len(wrong):4} "
            f"median |error| {100 * np.median(abs(wrong)):5.1f} %  "
            f"median error {100 * np.median(wrong):+6.1f} %"
        )
    return "\n".join(lines)


def _bare(samples: Iterable[Fitted]) -> np.ndarray:
    return np.array([
        math.log(s.tuning.seconds(s.row.operation, *s.choice, s.row.size) / s.row.measured)
        for s in samples if isinstance(s, Sample)
    ])  # fmt: skip


def constants_of(
    samples: Sequence[Fitted],
    values: Mapping[str, float],
    errors: Mapping[str, float],
    prior_of: Callable[[str, str], Prior],
    relatives_of: Callable[[str, str], Collection[str]] = lambda kind, name: (),
) -> dict[str, Constant]:
    """The constants with their errors, and what they rest on."""
    found = {}
    for name, value in values.items():
        kind, short = name.split(".")
        prior = prior_of(kind, short)
        source = BORROWED.get(kind, kind)
        rows = [s for s in samples if _moves(s, source, short)]
        if abs(math.log(value / prior.centre)) < _STILL:  # no row moves it
            rows = []
        error = value * (errors.get(f"{source}.{short}", 0.0) if rows else prior.sigma)
        if _told_apart(prior, short):  # draws of series keep the prior, and with it the value
            error = max(error, value * prior.sigma)
        found[name] = Constant(
            value=float(f"{value:.4g}"),
            error=float(f"{error:.2g}"),
            unit=prior.unit,
            meaning=prior.meaning,
            fitted_on=_told(kind, short, rows, prior, relatives_of(kind, short)),
            n=len(rows),
        )
    return found


def _moves(sample: Fitted, kind: str, name: str) -> bool:
    """Whether `sample` says something about constants of `kind`."""
    if name == "between":
        return isinstance(sample, Sample) and sample.tuning.graph.inside == kind != sample.kind
    if sample.kind != kind or name.startswith("message") or "hosted" not in names_of(kind):
        return sample.kind == kind
    return _hosted(sample) == (name == "hosted")


def _told_apart(prior: Prior, name: str) -> bool:
    """Whether a share's prior is narrower than where nothing is known, so that it rules out what
    machines that are set up badly reach."""
    return name == "efficiency" and prior.sigma < PRIORS[name].sigma


def _told(
    kind: str, name: str, rows: Sequence[Fitted], prior: Prior, others: Collection[str]
) -> str:
    """What the constant `name` of `kind` rests on; `rows` moved it, `others` its prior."""
    if rows:
        what = " of all-to-alls" if name.startswith("message") else ""
        series = len({s.row.series for s in rows})
        source = BORROWED.get(kind, kind)
        told = f"{len(rows)} rows of {series} series of published measurements{what} on {source}"
        if name == "hosted":
            told += f", of {len({(s.row.machine, s.row.accelerator) for s in rows})} machines"
        if _told_apart(prior, name):
            told += f", beside a prior whose width {prior.sigma:g} is the least error"
        return told + (f"; there are none on {kind}" if kind in BORROWED else "")
    if name == "relay":
        return "read off one published curve (five GPUs of a DGX-1V), not fitted"
    if name in ("message_floor", "message_efficiency"):
        return (
            "no measurement; that of other collectives on this kind, with the prior's width "
            f"{prior.sigma:g} as error"
        )
    if others:
        names = " and ".join(sorted(others))
        return (
            f"no measurement; the geometric mean of a prior and of what it is on {names}, each "
            f"fitted alone, with the prior's width {prior.sigma:g} as error"
        )
    return f"no measurement; the prior, with its width {prior.sigma:g} as error"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--bootstrap", type=int, default=40)
    parser.add_argument("--only", choices=("messages",))
    parser.add_argument("--kinds", type=lambda text: set(text.split(",")), default=set(KINDS))
    options = parser.parse_args(arguments)
    related = {k for family in FAMILIES if options.kinds & {*family} for k in family}
    if also := sorted(related - options.kinds):
        print(f"fitted too, as of one family: {', '.join(also)}", file=sys.stderr)
    options.kinds |= related
    samples, refused = samples_of(_collective_tables.read(options.table).rows)
    samples = [sample for sample in samples if sample.kind in options.kinds]
    for reason, count in sorted(refused.items()):
        print(f"{count:5} rows left out: {reason}", file=sys.stderr)
    fitting = [s for s in samples if fitted_on(s.row.series) or s.kind in WHOLE]
    kept = options.only == "messages"
    kinds = _with_borrowers(options.kinds)
    found = {n: c for n, c in _known(options.output).items() if n.split(".")[0] not in kinds}
    found |= (
        _kept(options.output, kinds)
        if kept
        else _fitted(samples, fitting, options.bootstrap, kinds, found)
    )
    found |= _fitted_messages(samples, fitting, found, options.bootstrap, kinds)
    if options.output:
        found = dict(sorted(found.items(), key=lambda item: _order(item[0])))
        options.output.write_text(constants.text(HEAD, found), encoding="utf-8")
    return 0


def _order(name: str) -> tuple[bool, int]:
    """Where a constant stands in the file."""
    return ".message" in name, KINDS.index(name.split(".")[0])


def _known(file: Path | None) -> dict[str, Constant]:
    """The constants of `file`, or else the shipped ones."""
    return dict(constants.load(file) if file else constants.shipped("nccl"))


def _kept(file: Path | None, kinds: Container[str]) -> dict[str, Constant]:
    """Those of `kinds` but for those of messages."""
    known = _known(file).items()
    return {n: c for n, c in known if n.split(".")[0] in kinds and ".message" not in n}


def _fitted(
    samples: Sequence[Fitted],
    fitting: Sequence[Fitted],
    times: int,
    kinds: Container[str],
    others: Mapping[str, Constant],
) -> dict[str, Constant]:
    """The constants of all but messages of `kinds`, where `others` are what they are."""
    begin = {name: c.value for name, c in others.items()} | start(kinds)
    tuned = [sample for sample in samples if isinstance(sample, Sample)]
    chosen = [sample for sample in fitting if isinstance(sample, Sample)]
    values, alone = fit_all(chosen, begin, kinds)
    print("NCCL's own estimates:", report(tuned, values, bare=True), sep="\n")
    print("fitted:", report(tuned, values), sep="\n")
    own = start(kinds)  # kinds of which a draw has no row are as if nobody had measured them
    errors = errors_of(chosen, values, times, lambda drawn, v: fit_all(drawn, v | own, kinds)[0])
    return constants_of(
        chosen,
        {name: value for name, value in values.items() if name in own},
        errors,
        lambda kind, name: family_prior(kind, name, alone),
        lambda kind, name: relatives(kind, name, alone),
    )


def _with_borrowers(kinds: Container[str]) -> list[str]:
    """`kinds`, and those that take their constants."""
    return [kind for kind in KINDS if BORROWED.get(kind, kind) in kinds]


def _fitted_messages(
    samples: Sequence[Fitted],
    fitting: Sequence[Fitted],
    others: Mapping[str, Constant],
    times: int,
    kinds: Container[str],
) -> dict[str, Constant]:
    """The constants of messages of `kinds`, where `others` are what they are."""
    posted = [sample for sample in samples if isinstance(sample, Posted)]
    chosen = [sample for sample in fitting if isinstance(sample, Posted)]
    fixed = {name: constant.value for name, constant in others.items()}
    values = fit_messages(chosen, fixed, kinds)
    print("messages:", report(posted, values), sep="\n")
    errors = errors_of(chosen, values, times, lambda drawn, _: fit_messages(drawn, fixed, kinds))
    return constants_of(
        chosen,
        {name: value for name, value in values.items() if name not in fixed},
        errors,
        lambda kind, name: message_priors(kind, fixed)[name],
    )


if __name__ == "__main__":
    sys.exit(main())
