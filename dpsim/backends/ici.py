"""The links between TPUs of a slice (ICI), and the data centre's network between slices.

XLA's own choices are not public; this is what the links can do when they are used as in Austin et
al., "How to Scale Your Model" (jax-ml/scaling-book), chapter 3, "Sharded matrices":

reduce-scatter  rings along each axis in both directions, all axes at once: (1 - 1/N) S / (A W) for
                N chips along A axes, where W is what the two links of an axis carry together
all-gather      the same backwards; an all-reduce is both
all-to-all      every chip sends to every other the shorter way: a quarter of an all-gather's time
                per step round a ring
broadcast       a scatter and an all-gather; a reduce, a reduce-scatter and a gather

An axis that does not go round is a line, whose ends must take everything over one link, so it has
half the bandwidth.  Axes of different length or kind share the buffer by their bandwidth, and step
after step the slowest axis sets the pace.  Each neighbour on the way to the farthest chip adds a
hop.  Over several slices, the ranks in the same place of all slices all-reduce their shards round
a ring over the data centre's network, between the reduce-scatter and the all-gather of the slice.

Not modelled: groups that are no box of neighbouring chips, all-to-alls between slices, twisted
tori, and work that XLA does while bytes are under way beyond what the strategy overlaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from dpsim.backends import Backend, Edge, Phase, Plan, Ranks, Topology
from dpsim.backends._ici_box import TorusAxis, TorusBox, box_of, torus_of
from dpsim.collectives import TransferList, convoys_of, members_of, onward, rank_array, ring_payload
from dpsim.core import units
from dpsim.core.record import Refused, record
from dpsim.machines.tally import Tally
from dpsim.machines.topology import moved

_SCATTERS = ("reduce_scatter", "all_reduce", "broadcast", "reduce")
_GATHERS = ("all_gather", "all_reduce", "broadcast", "reduce")


class _Step(NamedTuple):
    """What moves at once, per byte of the collective's size.

    hops     links on the way to the farthest chip
    seconds  of the slowest link at its nominal bandwidth, per byte
    most     bytes on the most loaded link, per byte
    """

    hops: float
    seconds: float
    most: float
    loads: dict[Edge, float]
    busiest: Edge


@record
class Ici(Backend):
    """What is known of the links beside their bandwidth, which the machine file states.

    hop         latency of one ICI link on the way [s].  Default: ibid. (jax-ml/scaling-book at
                0819a7d8, sharding.md), which takes about 1 us
    efficiency  of an ICI link's nominal bandwidth.  Default: 9e10 B/s, ibid., over the 100 GB/s of
                a v5p or v6e link (Cloud TPU documentation); 4.5e10 over 50 GB/s for v4 and v5e
    dcn_efficiency  payload over the nominal bandwidth of the network between slices.  Default: 1448
                of the 1538 bytes that a full Ethernet frame takes on the wire (MTU 1500)
    """

    hop: units.Seconds = 1e-6
    efficiency: units.PositiveFraction = 0.9
    dcn_efficiency: units.PositiveFraction = 0.94

    @property
    def by_place(self) -> bool:
        return True

    def plan(self, operation: str, ranks: Ranks, size: float, topology: Topology | None) -> Plan:
        if len(ranks) == 1:
            return Plan((), None, "none", 0.0)
        assert topology is not None
        torus_of(topology)
        sent = ring_payload(operation, len(ranks), size)
        if operation == "send":
            return Plan((self._shift(ranks, size, topology),), None, "direct", sent)
        group = members_of(ranks, topology)
        chips = group.shapes[0]
        box = topology.once(("ici box", chips), lambda: box_of(chips, topology))
        if not group.alike:
            message = "every slice must have the same chips in a group that spans slices"
            raise Refused(message, ("collective", "backend"))
        slices = [int(node) for node in group.nodes]
        if operation == "all_to_all":
            return Plan((self._exchange(box, slices, size, topology),), None, "direct", sent)
        phases = tuple(self._collective(operation, box, slices, ranks, size, topology))
        return Plan(phases, None, "torus" if len(slices) == 1 else "torus and dcn", sent)

    def _collective(
        self,
        operation: str,
        box: TorusBox,
        slices: list[int],
        ranks: Ranks,
        size: float,
        topology: Topology,
    ) -> Iterator[Phase]:
        steps = _steps(box, slices, topology)
        if operation in _SCATTERS:
            yield from (self._phase(step, size) for step in steps)
        if len(slices) > 1:
            once = (operation in _SCATTERS) + (operation in _GATHERS)
            rounds, shard = once * (len(slices) - 1), size / box.chips
            yield self._around(ranks, rounds, shard / len(slices), topology)
        if operation in _GATHERS:
            yield from (self._phase(step, size) for step in reversed(steps))

    def _phase(self, step: _Step, size: float) -> Phase:
        size = size / self.efficiency
        moved = step.most * size
        return Phase(step.hops * self.hop, step.seconds * size, step.loads, moved, step.busiest)

    def _exchange(self, box: TorusBox, slices: list[int], size: float, topology: Topology) -> Phase:
        if len(slices) > 1:
            message = "an all_to_all between slices of TPUs is not modelled; inside one it is"
            raise Refused(message, ("collective", "backend"))

        def find() -> _Step:
            step = _step([(axis, 1.0) for axis in box.axes], TorusAxis.exchanged, box, slices)
            return step._replace(hops=float(sum(axis.hops for axis in box.axes)))

        return self._phase(topology.once(("ici exchange", box, slices[0]), find), size)

    # -- routes of single messages ----------------------------------------------------------------

    def _around(self, ranks: Ranks, rounds: int, message: float, topology: Topology) -> Phase:
        """`rounds` messages from every rank to that in its place in the next slice."""
        found = np.sort(rank_array(ranks)).reshape(len(members_of(ranks, topology).nodes), -1)
        flows = TransferList.between(found.ravel(), np.roll(found, -1, axis=0).ravel(), 1.0)
        return self._moving(flows, ranks, rounds, message, self.dcn_efficiency, topology)

    def _shift(self, ranks: Ranks, size: float, topology: Topology) -> Phase:
        """From every rank to the next; a message between slices goes by the slower network."""
        spread = len(members_of(ranks, topology).nodes) > 1
        share = self.dcn_efficiency if spread else self.efficiency
        return self._moving(onward(ranks, 1.0), ranks, 1, size, share, topology)

    def _moving(
        self,
        flows: TransferList,
        ranks: Ranks,
        rounds: int,
        message: float,
        share: float,
        topology: Topology,
    ) -> Phase:
        tally = Tally(topology, members_of(ranks, topology).nodes)
        latency = 0.0
        for flow in flows.parts:
            for convoy, part in convoys_of(flow, topology):
                tally.add(convoy, part.bytes, part.order)
                links = (*convoy.way.out, *convoy.way.into)
                hops = sum(topology.link(edge).kind == "ici" for edge in links)
                latency = max(latency, float(tally.latencies(convoy).max()) + hops * self.hop)
        loads = tally.loads()
        pace, busiest = loads.slowest
        moved = rounds * message / share
        return Phase(rounds * latency, pace * moved, loads, loads.most * moved, busiest)


def _steps(box: TorusBox, slices: list[int], topology: Topology) -> tuple[_Step, ...]:
    """The steps of a reduce-scatter in every one of `slices`, worked out once."""

    def find() -> tuple[_Step, ...]:
        hops = sum(axis.hops for axis in box.axes) / max(len(box.axes), 1)
        found = (_step(each, TorusAxis.scattered, box, slices) for each in box.steps())
        return tuple(step._replace(hops=hops) for step in found)

    return topology.once(("ici steps", box, tuple(slices)), find)


def _step(
    parts: list[tuple[TorusAxis, float]],
    crossing: Callable[[TorusAxis, int], tuple[float, float]],
    box: TorusBox,
    slices: list[int],
) -> _Step:
    """What crosses links where each axis has so many bytes of a byte of size."""
    loads: dict[Edge, float] = {}
    for axis, fraction in parts:
        for link, (a, b) in box.links(axis):
            up, down = crossing(axis, link)
            for node in slices:
                loads[moved((a, b), node)] = fraction * up
                loads[moved((b, a), node)] = fraction * down
    busiest = max(loads, key=loads.__getitem__)
    most = loads[busiest]
    return _Step(0.0, most / box.torus.link.bandwidth, most, loads, busiest)
