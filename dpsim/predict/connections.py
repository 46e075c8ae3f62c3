"""What an answer says of exchanges that go through the hosts' TCP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dpsim.backends.nccl import Nccl
from dpsim.cases.case import Case
from dpsim.cases.coverage import MEASURED, PARTLY
from dpsim.cases.typical_code import is_typical
from dpsim.core.plugins import name_of
from dpsim.machines.topology import Topology
from dpsim.predict.collective import kind_of, timing
from dpsim.predict.collective_error import through_tcp
from dpsim.predict.outcome import Outcome
from dpsim.predict.point import Causes, Point
from dpsim.predict.uncertainty import OTHERS

#: connections per channel that are tried: as many as the widest of NCCL's own settings have
SOCKETS = 8
#: how they are asked for
MORE = (
    f"collective: {{backend: nccl, sockets: {SOCKETS}}} (NCCL_SOCKET_NTHREADS x "
    "NCCL_NSOCKS_PERTHREAD)"
)
#: a size at which bandwidth is all [B], and what is worth saying
_LARGE, _SHORTER = 2**28, 0.9
#: in how many of how many sources that nobody had looked at calibrated steps on several nodes over
#: TCP took this many times as long as predicted, and more, and how many times in their median
#: (`over_tcp` in validation/published/strangers.csv)
SLOW, SOURCES, LONGER, MEDIAN = 3, 7, 1.8, 1.4


def warnings(outcomes: Sequence[Outcome], counts: Sequence[int]) -> Iterator[str]:
    """Of the largest point that the network between nodes limits: that more connections of a
    channel would shorten its collectives, and that such steps may take longer than intervals say,
    where no measured step, of which `counts` has the ranks, was on several nodes."""
    limited = [
        (one.case, one.point)
        for one in outcomes
        if isinstance(one.point, Point) and one.point.bottleneck == "inter_node_network"
    ]
    for case, point in limited[-1:]:
        yield from _held(case)
        if case.topology is not None and max(counts, default=1) <= case.topology.gpus:
            yield from _through_tcp(case, case.topology, point.interval.causes)


def _held(case: Case) -> Iterator[str]:
    """That connections hold exchanges, and not their links."""
    backend, topology = case.transport.backend, case.topology
    if not isinstance(backend, Nccl) or topology is None:
        return
    own, more = (
        timing(one, "all_reduce", _LARGE, topology).seconds
        for one in (backend, replace(backend, sockets=SOCKETS))
    )
    if more < _SHORTER * own:
        yield (
            f"{case.ranks:,} ranks: TCP connections hold exchanges between nodes, not their links: "
            f"a faster link changes little, and {MORE} makes a large all-reduce take "
            f"{more / own:.2g} times as long"
        )


def _through_tcp(case: Case, topology: Topology, causes: Causes) -> Iterator[str]:
    """That such steps of others took longer than intervals reach, unless these are of typical code
    or a curve was measured."""
    widened = is_typical(case.scenario) or OTHERS in causes
    known = MEASURED in causes or PARTLY in causes or case.backend.ideal
    tcp = through_tcp(kind_of(topology)) or name_of(case.backend) == "gloo"
    if tcp and not known and not widened:
        yield (
            f"{case.ranks:,} ranks: exchanges between nodes go through the hosts' TCP, which "
            "containers, virtual networks and busy hosts slow far below their links: beside a "
            f"measured step of fewer ranks such steps took {MEDIAN} times as long as predicted in "
            f"the median of {SOURCES} sources that nobody had looked at, and {LONGER} times or "
            f"longer in {SLOW}, beyond most intervals; `dpsim collective` has how far single "
            "exchanges may lie, and a measured step of two nodes (calibrate) or a curve of "
            "nccl-tests (calibration) tells"
        )
