"""Collectives transfer by transfer: a rank's next round waits for its own transfers only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial

from dpsim.backends import Plan, Transfer
from dpsim.collectives import Stage
from dpsim.play import Costs
from dpsim.play.clock import Clock
from dpsim.play.network import FlowShape, SharedLinks

Over = Callable[[], None]


class Rounds:
    """Carries out plans in all their rounds, over `links`."""

    def __init__(self, clock: Clock, links: SharedLinks, costs: Costs) -> None:
        self.clock, self.links, self.costs = clock, links, costs
        self._paths: dict[Transfer, tuple[float, FlowShape | None]] = {}

    def begin(self, plan: Plan, over: Over) -> None:
        """Carry out `plan` from now on; `over` is called at the end."""
        stages = list(plan.stages()) if plan.stages else []
        self.clock.at(self.clock.now + plan.launch, _Carried(self, stages, over).begin)

    def path(self, transfer: Transfer) -> tuple[float, FlowShape | None]:
        """Latency of a transfer's path [s], and the shape of its flow."""
        if transfer not in self._paths:
            topology = self.costs.topology
            assert topology is not None
            route = topology.route(transfer.source, transfer.target)
            latency = sum(topology.link(edge).latency for edge in route)
            efficiency = getattr(self.costs.backend, "efficiency", 1.0)
            shape = self.links.shape(dict.fromkeys(route, transfer.bytes / efficiency))
            self._paths[transfer] = latency, shape
        return self._paths[transfer]


class _Carried:
    """One collective under way: the round that each rank is in, (stage, repeat), what it still
    waits for there, and which transfers one of their two ranks has come to; by number, for a stage
    may have equal ones."""

    def __init__(self, rounds: Rounds, stages: list[Stage], over: Over) -> None:
        self.rounds, self.stages, self.over = rounds, stages, over
        self.own: list[dict[int, list[int]]] = []
        for stage in stages:
            own = defaultdict(list)
            for which, transfer in enumerate(stage.transfers):
                for rank in dict.fromkeys(transfer[:2]):
                    own[rank].append(which)
            self.own.append(dict(own))
        self.place: dict[int, tuple[int, int]] = {}
        self.open: dict[int, int] = {}
        self.half: set[tuple[int, int, int]] = set()

    def begin(self, _: object) -> None:
        ranks = dict.fromkeys(rank for own in self.own for rank in own)
        self.left = len(ranks)
        for rank in ranks:
            self._enter(rank, 0, 0)
        if not ranks:
            self.over()

    def _enter(self, rank: int, number: int, repeat: int) -> None:
        """`rank` goes on with its next round from there on; nothing is left to wait for before."""
        while number < len(self.stages) and (
            repeat >= self.stages[number].repeats or rank not in self.own[number]
        ):
            number, repeat = number + 1, 0
        if number == len(self.stages):
            self.left -= 1
            if not self.left:
                self.over()
            return
        own = self.own[number][rank]
        self.place[rank], self.open[rank] = (number, repeat), len(own)
        for which in own:
            key, transfer = (number, repeat, which), self.stages[number].transfers[which]
            if key in self.half or transfer.source == transfer.target:
                self.half.discard(key)
                self._start(transfer, self.stages[number].latency)
            else:
                self.half.add(key)

    def _start(self, transfer: Transfer, latency: float | None) -> None:
        """Both ranks have come to `transfer`."""
        clock, (own, shape) = self.rounds.clock, self.rounds.path(transfer)
        latency = own if latency is None else latency
        through = partial(self._through, transfer)
        if shape is None:
            clock.at(clock.now + max(latency, 0.0), through)
        elif latency > 0:
            links = self.rounds.links
            clock.at(clock.now + latency, lambda _: links.start(shape, through))
        else:
            self.rounds.links.start(shape, through)

    def _through(self, transfer: Transfer, _: object) -> None:
        for rank in dict.fromkeys(transfer[:2]):
            self.open[rank] -= 1
            if not self.open[rank]:
                number, repeat = self.place[rank]
                self._enter(rank, number, repeat + 1)
