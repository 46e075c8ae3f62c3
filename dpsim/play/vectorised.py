"""The vectorised engine: one pass in issue order over arrays of ranks.

A program with a fixed order per stream is a max-plus system: an operation starts at the maximum of
what it waits for and ends its duration later; a collective starts at the maximum over its group.
Arrays are shaped (lanes, ranks).  A lane is a variant played at once: lane 0 is the question
itself, the others stretch all compute or all communication, which is how intervals are made.

It applies where collectives of different communicators don't load the same links at the same time;
otherwise it says so (NotApplicable) and the event engine is the one to ask.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import Any

import networkx as nx
import numpy as np

from dpsim.backends import Plan
from dpsim.compile.program import COMPUTE, RECEIVE, SEND, Cast, Op
from dpsim.compile.timeline import Split, Step, Timeline
from dpsim.core.arrays import Array
from dpsim.core.errors import SimulationError
from dpsim.machines.fabrics import Edge
from dpsim.play import NotApplicable, Play, check_time

Lane = tuple[float, float]
_Meeting = tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]


@dataclass(eq=False)
class _Role:
    """The state of all ranks of one role: arrays (lanes, ranks of the role)."""

    members: Array
    streams: dict[str, Array]
    host: Array
    step_end: Array
    next: int = 0
    ends: list[Array] = field(default_factory=list)
    starts: list[Array] = field(default_factory=list)
    readies: list[Array] = field(default_factory=list)
    arrival: Array | None = None
    #: when collectives moved bytes of these ranks, by stream: begin and end, arrays like the others
    talk: dict[str, deque[tuple[Array, Array]]] = field(default_factory=dict)


def play(
    request: Play, *, lanes: tuple[Lane, ...] = ((1.0, 1.0),), sharing: bool = True
) -> Timeline:
    """Play `request`; lane = (multiplier of all compute, multiplier of all communication).

    NotApplicable where communicators share links, unless `sharing` is not to be looked at.
    """
    run = _Run(request, lanes, sharing)
    finish = np.zeros(len(lanes))
    total = np.zeros(len(lanes))
    durations: list[float] = []
    splits: list[Split] = []
    for number in range(request.steps):
        origin = finish
        step = run.step(number, float(origin[0]))
        finish = run.finish
        if number >= request.warmup:
            total += finish - origin
            durations.append(step.duration)
            splits.append(step.split())
    measured = request.steps - request.warmup
    return Timeline(
        tuple(durations), tuple(splits), step, lanes=tuple(float(x) for x in total / measured)
    )


class _Run:
    def __init__(self, request: Play, lanes: tuple[Lane, ...], sharing: bool) -> None:
        self.request = request
        self.sharing = sharing
        # without sharing, collectives that run at once would each have the links to themselves;
        # one after the other comes nearer
        self.width = request.costs.concurrency if sharing else 1
        self.compute = np.array([[lane[0]] for lane in lanes])
        self.comm = np.array([lane[1] for lane in lanes])
        cast = request.cast(0)
        shape = len(lanes)
        self.roles = [
            _Role(
                np.array(cast.members(role), dtype=float),
                {},
                np.zeros((shape, len(cast.members(role)))),
                np.zeros((shape, len(cast.members(role)))),
            )
            for role in range(len(cast.programs))
        ]
        self.finish = np.zeros(shape)
        self._orders: dict[int, tuple[Cast, Cast, tuple[tuple[int, ...], ...]]] = {}
        self._meetings: dict[tuple[int, str], dict[int, _Meeting]] = {}
        self._last: Step | None = None

    def step(self, number: int, origin: float) -> Step:
        asked = self.request.cast(number)
        cast, orders = self._order(asked)
        factors = self.request.factors(number)
        self.slow = self.request.network(number)
        if not (factors >= 0).all():
            raise SimulationError(f"step {number} has a compute factor that is no factor")
        for role in self.roles:
            role.next, role.arrival = 0, None
            role.ends, role.starts, role.readies = [], [], []
        self._parted = False
        self._talk: list[tuple[str, float, float, Plan]] = []
        self._messages: dict[tuple[str, str, int], tuple[Array, Array]] = {}
        while any(r.next < len(p.ops) for r, p in zip(self.roles, cast.programs, strict=True)):
            moved = [self._advance(k, cast, factors) for k in range(len(self.roles))]
            if not (any(moved) | self._meet(cast)):
                raise _stuck(cast, self.roles)
        if self.sharing:
            self._check_sharing()
        for role, program in zip(self.roles, cast.programs, strict=True):
            role.step_end = role.ends[program.end]
        self.finish = np.max([role.step_end.max(axis=1) for role in self.roles], axis=0)
        start, end, ready = (
            tuple(
                _first_lane(getattr(role, name), len(role.members), order)
                for role, order in zip(self.roles, orders, strict=True)
            )
            for name in ("starts", "ends", "readies")
        )
        step = Step(
            asked, origin, start, end, ready, self._last and replace(self._last, previous=None)
        )
        self._last = step
        return step

    def _order(self, asked: Cast) -> tuple[Cast, tuple[tuple[int, ...], ...]]:
        """`asked` in the order to play it in, and that order for each role.

        Under contention a computation must know of all collectives beside it, so they come first.
        """
        if id(asked) not in self._orders:
            programs, orders = [], []
            for program in asked.programs:
                early = self.request.contention > 0 and not program.host_matters
                early = early and not program.transfers  # a receive must not come before its turn
                order = program.collectives_first if early else tuple(range(len(program.ops)))
                programs.append(program.reordered(order) if early else program)
                orders.append(order)
            played = replace(asked, programs=tuple(programs))
            self._orders[id(asked)] = asked, played, tuple(orders)
        return self._orders[id(asked)][1:]

    def _advance(self, number: int, cast: Cast, factors: Array) -> bool:
        """Play this role's operations up to its next collective."""
        role, ops = self.roles[number], cast.programs[number].ops
        moved = False
        own = factors[role.members.astype(int)]
        while role.next < len(ops) and role.arrival is None:
            op = ops[role.next]
            if op.operation == RECEIVE and not self._sent(number, cast):
                return moved
            ready = self._ready(role, op)
            role.readies.append(ready)
            if op.kind == "transfer":
                self._transfer(number, cast, ready)
                moved = True
                continue
            if op.kind == "collective":
                role.arrival = ready
                return True
            seconds = check_time(op.seconds, op.name)
            stretch = own * self.compute if op.scales else 1.0
            end = ready + seconds * stretch
            if self.request.contention and op.scales:
                end = _contended(role, ready, end, self.request.contention)
            self._record(role, op, ready, end)
            moved = True
        return moved

    def _plan(self, op: Op, ranks: tuple[int, ...]) -> Plan:
        """How `ranks` carry out `op` in this step."""
        return self.request.costs.slowed(self.request.costs.of(op, ranks), self.slow)

    def _message(self, number: int, cast: Cast) -> tuple[Array, Array]:
        """Begin and end of the next transfer of a role, by receiver: arrays (lanes, ranks), not a
        number where it has not been sent."""
        program, index = cast.programs[number], self.roles[number].next
        key = (program.ops[index].stream, program.ops[index].group, program.ordinals[index])
        if key not in self._messages:
            shape = (len(self.comm), cast.ranks)
            self._messages[key] = np.full(shape, np.nan), np.full(shape, np.nan)
        return self._messages[key]

    def _sent(self, number: int, cast: Cast) -> bool:
        columns = self.roles[number].members.astype(int)
        return not np.isnan(self._message(number, cast)[1][:, columns]).any()

    def _transfer(self, number: int, cast: Cast, ready: Array) -> None:
        """Send, or take what has been sent."""
        role, op = self.roles[number], cast.programs[number].ops[self.roles[number].next]
        begin, end = self._message(number, cast)
        receivers = role.members.astype(int)
        if op.operation == SEND:
            pairs = [_pair(cast, rank, op) for rank in receivers.tolist()]
            receivers = np.array([pair[1] for pair in pairs])
            plans = [self._plan(op, pair) for pair in pairs]
            begin[:, receivers] = ready
            end[:, receivers] = ready + self.comm[:, None] * [plan.seconds for plan in plans]
            for pair, plan in zip(pairs, plans, strict=True):
                name = op._replace(stream=f"{op.stream} of rank {pair[0]}")
                self._note(name, plan, begin[:, pair[1]], end[:, pair[1]])
        self._record(role, op, begin[:, receivers], end[:, receivers])

    def _ready(self, role: _Role, op: Op) -> Array:
        if op.issue:
            role.host = role.host + check_time(op.issue, f"issuing {op.name}")
        ready = np.maximum(role.host, self._free(role, op))
        delay = check_time(op.delay, f"the delay of {op.name}") if op.delay else 0.0
        for other in op.after:
            ready = np.maximum(ready, role.ends[other] + delay)
        return np.maximum(ready, role.step_end) if op.after_step else ready

    def _record(self, role: _Role, op: Op, start: Array, end: Array) -> None:
        if not np.isfinite(end).all():
            raise SimulationError(f"{op.name} ends at no finite time")
        role.starts.append(start)
        role.ends.append(end)
        self._occupy(role, op, end)
        if op.blocks_host:
            role.host = np.maximum(role.host, end)
        role.next += 1

    def _free(self, role: _Role, op: Op) -> Array | float:
        """When the first worker of the operation's stream is free."""
        if self.width == 1 or op.stream == COMPUTE:
            return role.streams.get(op.stream, 0.0)
        return role.streams[op.stream][0] if op.stream in role.streams else 0.0

    def _occupy(self, role: _Role, op: Op, end: Array) -> None:
        """That worker is busy until `end`.  Where a stream has several, their times are kept
        sorted in front of the axes of lanes and ranks."""
        if self.width == 1 or op.stream == COMPUTE:
            role.streams[op.stream] = end
            return
        old = role.streams.get(op.stream, np.zeros((self.width, 1, 1)))
        times = [*old[1:], end]
        role.streams[op.stream] = np.sort(np.stack(np.broadcast_arrays(*times)), axis=0)

    def _meet(self, cast: Cast) -> bool:
        """Carry out collectives whose participants have all arrived."""
        waiting = [k for k, role in enumerate(self.roles) if role.arrival is not None]
        met = False
        for k in waiting:
            if self.roles[k].arrival is not None:
                met |= self._try(cast, k, cast.programs[k].ops[self.roles[k].next])
        return met

    def _everyone(self, cast: Cast, op: Op) -> bool:
        """The usual case, without copies: one role, whose ranks form one group."""
        role = self.roles[0]
        plan = self._plan(op, cast.groups[op.group][0])
        assert role.arrival is not None
        begin = role.arrival.max(axis=1, keepdims=True)
        end = begin + plan.seconds * self.comm[:, None]
        self._note(op, plan, begin, end)
        self._beside(role, op, begin, end)
        role.arrival = None
        self._record(role, op, begin, end)
        return True

    def _beside(self, role: _Role, op: Op, begin: Array, end: Array) -> None:
        """Remember when a collective may slow down what these ranks compute beside it."""
        if not self.request.contention:
            return
        if (begin < role.streams.get(COMPUTE, np.zeros(1)) * (1 - 1e-12)).any():
            raise NotApplicable(f"{op.name} begins beside a computation that was issued before it")
        role.talk.setdefault(op.stream, deque()).append((begin, end))

    def _note(self, op: Op, plan: Plan, begin: Array, end: Array) -> None:
        """Remember who used which links when, for the check that nobody shared them."""
        if plan.rates:
            self._talk.append((op.stream, float(begin.flat[0]), float(end.flat[0]), plan))

    def _meeting(self, cast: Cast, number: int, name: str) -> _Meeting:
        """The roles that role `number` meets in groups of that name, itself among them, and these
        groups; roles that share no group need not agree on anything."""
        if (id(cast), name) not in self._meetings:
            graph: nx.Graph[int] = nx.Graph()
            for group in cast.groups[name]:
                nx.add_path(graph, dict.fromkeys(cast.roles[rank] for rank in group))
            found = self._meetings[id(cast), name] = {}
            for roles in nx.connected_components(graph):
                groups = tuple(g for g in cast.groups[name] if cast.roles[g[0]] in roles)
                found |= dict.fromkeys(roles, (tuple(sorted(roles)), groups))
        return self._meetings[id(cast), name][number]

    def _try(self, cast: Cast, number: int, op: Op) -> bool:
        partition = cast.groups.get(op.group, ())
        if len(self.roles) == 1 and len(partition) == 1 and len(partition[0]) == cast.ranks:
            return self._everyone(cast, op)
        present = {rank for group in partition for rank in group}
        _require_members(cast, self.roles, op, present)
        involved, groups = self._meeting(cast, number, op.group)
        for k in involved:
            role = self.roles[k]
            theirs = cast.programs[k].ops[role.next] if role.arrival is not None else None
            if theirs is None or (theirs.stream, theirs.group) != (op.stream, op.group):
                return False
            if (theirs.operation, theirs.bytes) != (op.operation, op.bytes):
                raise SimulationError(
                    f"ranks disagree on {op.stream}: {op.name} meets {theirs.name}; "
                    "real ranks would hang"
                )
        arrival = np.zeros((len(self.comm), cast.ranks))
        for k in involved:
            arrival[:, self.roles[k].members.astype(int)] = self.roles[k].arrival
        start, end = np.zeros_like(arrival), np.zeros_like(arrival)
        self._parted = self._parted or len(partition) > 1
        for group in groups:
            self._group(op, group, arrival, start, end)
        for k in involved:
            role = self.roles[k]
            columns = role.members.astype(int)
            role.arrival = None
            self._beside(role, op, start[:, columns], end[:, columns])
            self._record(role, cast.programs[k].ops[role.next], start[:, columns], end[:, columns])
        return True

    def _group(
        self, op: Op, group: tuple[int, ...], arrival: Array, start: Array, end: Array
    ) -> None:
        plan = self._plan(op, group)
        members = slice(None) if len(group) == arrival.shape[1] else list(group)
        begin = arrival[:, members].max(axis=1)
        finish = begin + plan.seconds * self.comm
        start[:, members] = begin[:, None]
        end[:, members] = finish[:, None]
        self._note(op, plan, begin, finish)

    def _check_sharing(self) -> None:
        """Refuse where collectives that may run at once ask more of a link than it has."""
        if self.width == 1 and len({stream for stream, *_ in self._talk}) < 2 and not self._parted:
            return
        busy: dict[Edge, list[tuple[float, str, float]]] = {}
        for stream, begin, end, plan in sorted(self._talk, key=lambda talk: talk[1]):
            for link, rate in plan.rates.items():
                # those of one group begin when the one before has ended
                rivals = [rival for rival in busy.get(link, ()) if rival[0] > begin]
                if rivals and rate + sum(rival[2] for rival in rivals) > self._capacity(link):
                    raise _shares(rivals[0][1], stream)
                busy[link] = [*rivals, (end, stream, rate)]

    def _capacity(self, link: Edge) -> float:
        """Bandwidth of `link`, and a little for rounding [B/s]."""
        topology = self.request.costs.topology
        assert topology is not None
        return topology.link(link).bandwidth * (1 + 1e-9)


def _shares(one: str, other: str) -> NotApplicable:
    pair = f"{one} and {other}" if one != other else f"two of {one}"
    return NotApplicable(
        f"{pair} share links at the same time; only engine: event shares bandwidth between them"
    )


def _contended(role: _Role, start: Array, end: Array, contention: float) -> Array:
    """When work that would take from `start` to `end` alone ends beside the role's collectives.

    While one of them moves bytes, work goes on 1 + contention times as slowly.
    """
    beside = _beside(role, start, start + (end - start) * (1.0 + contention))
    if not beside:
        return end
    begins = np.stack([np.broadcast_to(b, start.shape) for b, _ in beside])
    ends = np.stack([np.broadcast_to(e, start.shape) for _, e in beside])
    if len(beside) > 1:
        order = np.argsort(begins, axis=0, kind="stable")
        begins, ends = (np.take_along_axis(x, order, axis=0) for x in (begins, ends))
    now, left = start, end - start
    for begin, finish in zip(begins, ends, strict=True):
        alone = np.minimum(left, np.maximum(begin - now, 0.0))
        now, left = now + alone, left - alone
        slowed = np.minimum(left, np.maximum(finish - now, 0.0) / (1.0 + contention))
        now, left = now + slowed * (1.0 + contention), left - slowed
    result: Array = now + left
    return result


def _beside(role: _Role, start: Array, latest: Array) -> list[tuple[Array, Array]]:
    """The role's collectives that may run between `start` and `latest`; on a stream they begin in
    order.  Those that ended before are forgotten, for work begins in order too."""
    found = []
    for queue in role.talk.values():
        while queue and (queue[0][1] <= start).all():
            queue.popleft()
        for begin, end in queue:
            if (begin >= latest).all():
                break
            found.append((begin, end))
    return found


def _first_lane(arrays: list[Array], ranks: int, order: tuple[int, ...]) -> Array:
    """Lane 0 of every operation in issue order, shaped (operations, ranks); operation number i of
    `arrays` is number order[i]."""
    result = np.empty((len(arrays), ranks))
    for row, array in zip(order, arrays, strict=True):
        result[row] = array[0]
    return result


def _pair(cast: Cast, rank: int, op: Op) -> tuple[int, int]:
    try:
        return cast.pair(rank, op)[1]
    except ValueError as error:
        raise SimulationError(str(error)) from None


def _require_members(cast: Cast, roles: list[_Role], op: Op, present: set[int]) -> None:
    """Refuse a collective that a rank outside its groups has reached."""
    for role, program in zip(roles, cast.programs, strict=True):
        if role.arrival is None or program.ops[role.next].group != op.group:
            continue
        for rank in role.members.astype(int).tolist():
            if rank not in present:
                raise SimulationError(
                    f"rank {rank} is in no group {op.group!r}, which {op.name} needs"
                )


def _stuck(cast: Cast, roles: list[_Role]) -> SimulationError | NotApplicable:
    """Why no role can go on: a deadlock, or only an order that one pass cannot follow."""
    stuck = [
        f"role {k} (rank {int(role.members[0])}, …) at {cast.programs[k].ops[role.next].name}"
        for k, role in enumerate(roles)
        if role.arrival is not None
    ]
    counts = [
        Counter((op.stream, op.group) for op in program.ops if op.kind == "collective")
        for program in cast.programs
    ]
    if counts.count(counts[0]) == len(counts) and nx.is_directed_acyclic_graph(_waits(cast)):
        return NotApplicable(
            "roles issue collectives of different communicators in different orders; only "
            "engine: event plays that"
        )
    return SimulationError("deadlock: these wait for each other: " + "; ".join(stuck))


def _waits(cast: Cast) -> nx.DiGraph[Any]:
    """What waits for what in a step; the roles' shares of a collective are one vertex."""
    graph: nx.DiGraph[Any] = nx.DiGraph()
    for role, program in enumerate(cast.programs):
        tail: dict[str, tuple[object, ...]] = {}
        hosts: list[tuple[object, ...]] = []
        vertices: list[tuple[object, ...]] = []
        for index, op in enumerate(program.ops):
            shared = (op.stream, op.group, program.ordinals[index])
            vertex = shared if op.kind == "collective" else (role, index)
            before = [vertices[other] for other in op.after] + hosts
            before += [tail[op.stream]] if op.stream in tail else []
            graph.add_edges_from((other, vertex) for other in before)
            hosts += [vertex] if op.blocks_host else []
            vertices.append(vertex)
            tail[op.stream] = vertex
    return graph
