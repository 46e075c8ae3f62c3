"""What ranks do together in a step: collectives of groups, and transfers of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import networkx as nx
import numpy as np

from dpsim.backends import Plan
from dpsim.compile.program import SEND, Cast, Op
from dpsim.core.arrays import Array
from dpsim.core.errors import SimulationError
from dpsim.play import Costs, Play
from dpsim.play.vectorised.role import Role
from dpsim.play.vectorised.sharing import Sharing, Talk
from dpsim.play.vectorised.slowing import Indices, Value

Groups = tuple[Sequence[int], ...]


class Meeting:
    """Roles that meet in groups of one name, and these groups."""

    def __init__(self, cast: Cast, roles: tuple[int, ...], groups: Groups) -> None:
        self.cast, self.roles, self.groups = cast, roles, groups

        self._plans: dict[tuple[str, float, int, float], tuple[list[Plan], Array]] = {}

    @property
    def whole(self) -> bool:
        """Whether all of their ranks, and they only, are one group."""
        return len(self.groups) == 1

    def plans(self, costs: Costs, op: Op, slow: float) -> tuple[list[Plan], Array]:
        """How each group carries out `op` where bytes between nodes take `slow` times as long, and
        in what time [s]."""
        key = (op.operation, op.bytes, op.repeats, slow)
        if key not in self._plans:
            found = [
                costs.slowed(costs.of(op, group), slow)  # type: ignore[arg-type]
                for group in self.groups
            ]
            self._plans[key] = found, np.array([plan.seconds for plan in found])
        return self._plans[key]

    def tags(self, name: str) -> list[tuple[str, int]]:
        """What tells the groups of that name apart from all others."""
        return [(name, group[0]) for group in self.groups]

    @cached_property
    def _order(self) -> Indices:
        """The ranks, group by group."""
        return np.concatenate([np.asarray(group) for group in self.groups])

    @cached_property
    def _sizes(self) -> Indices:
        return np.array([len(group) for group in self.groups])

    def latest(self, arrivals: Sequence[Value]) -> Array:
        """When the last rank of each group has come; `arrivals` are those of each role."""
        flat = np.zeros(self.cast.ranks)
        for role, arrival in zip(self.roles, arrivals, strict=True):
            flat[np.asarray(self.cast.members(role))] = arrival
        starts = np.cumsum(self._sizes) - self._sizes
        found: Array = np.maximum.reduceat(flat[self._order], starts)
        return found

    def spread(self, times: Array) -> list[Array]:
        """The times of groups as those of the ranks of each role."""
        flat = np.zeros(self.cast.ranks)
        flat[self._order] = np.repeat(times, self._sizes)
        return [flat[np.asarray(self.cast.members(role))] for role in self.roles]


class Exchanges:
    """Collectives and transfers of `roles`, `comm` times as long as planned."""

    def __init__(self, request: Play, comm: float, roles: Sequence[Role]) -> None:
        self.request, self.comm, self.roles = request, comm, roles
        self._meetings: dict[tuple[int, str], dict[int, Meeting]] = {}
        self._pairs: dict[tuple[int, int, str, str], list[tuple[int, int]]] = {}
        self._alone: dict[int, list[Plan]] = {}

    def begin(self, step: int, sharing: Sharing | None) -> None:
        """Step number `step` begins; `sharing` is told who uses which links when."""
        self.slow = self.request.network(step)
        self.sharing = sharing
        if sharing is not None:
            sharing.begin()
        self._messages: dict[tuple[str, str, int], dict[int, tuple[float, float]]] = {}

    def _plan(self, op: Op, ranks: Sequence[int]) -> Plan:
        """How `ranks` carry out `op` in this step."""
        return self.request.costs.slowed(self.request.costs.of(op, ranks), self.slow)  # type: ignore[arg-type]

    # -- transfers --------------------------------------------------------------------------------

    def _message(self, number: int, cast: Cast) -> dict[int, tuple[float, float]]:
        """Begin and end of the next transfer of a role, by receiver, as far as it has been sent."""
        task = self.roles[number].task
        ordinal = cast.programs[number].ordinals[task.number]
        return self._messages.setdefault((task.op.stream, task.op.group, ordinal), {})

    def sent(self, number: int, cast: Cast) -> bool:
        """Whether what a role is to receive has been sent to all its ranks."""
        message = self._message(number, cast)
        return all(rank in message for rank in self.roles[number].members)

    def transfer(self, number: int, cast: Cast) -> None:
        """Send, or take what has been sent."""
        role, op = self.roles[number], self.roles[number].task.op
        message = self._message(number, cast)
        role.come()
        receivers: Sequence[int] = role.members
        if op.operation == SEND:
            pairs = self._pairs_of(number, cast, op)
            receivers = [receiver for _, receiver in pairs]
            ready = np.broadcast_to(role.arrival, (len(pairs),)).tolist()
            for pair, begin in zip(pairs, ready, strict=True):
                plan = self._plan(op, pair)
                message[pair[1]] = begin, begin + plan.seconds * self.comm
                if self.sharing is not None:
                    self._note(op, pair, plan, *message[pair[1]])
        spans = [message[rank] for rank in receivers]
        if len(spans) == 1:
            role.carry_out(*spans[0])
        else:
            begins, ends = np.array(spans).T
            role.carry_out(begins, ends)

    def _note(self, op: Op, pair: tuple[int, int], plan: Plan, begin: float, end: float) -> None:
        """One transfer, on links that others may need too."""
        assert self.sharing is not None
        stream = f"{op.stream} of rank {pair[0]}"
        plans = self._alone.setdefault(id(plan), [plan])
        self.sharing.note(Talk(stream, [(op.group, pair[0])], plans, (begin,), (end,)))

    def _pairs_of(self, number: int, cast: Cast, op: Op) -> list[tuple[int, int]]:
        """Sender and receiver of what each rank of a role sends."""
        key = (id(cast), number, op.group, op.operation)
        if key not in self._pairs:
            self._pairs[key] = [_pair(cast, rank, op) for rank in cast.members(number)]
        return self._pairs[key]

    # -- collectives ------------------------------------------------------------------------------

    def meet(self, cast: Cast) -> bool:
        """Carry out collectives whose participants have all arrived."""
        met = False
        for number, role in enumerate(self.roles):
            if role.arrived:
                met |= self._try(cast, number, role.task.op)
        return met

    def _try(self, cast: Cast, number: int, op: Op) -> bool:
        meeting = self._meeting(cast, number, op.group)
        involved = [self.roles[k] for k in meeting.roles]
        for role in involved:
            theirs = role.task.op if role.arrived else None
            if theirs is None or (theirs.stream, theirs.group) != (op.stream, op.group):
                return False
            if (theirs.operation, theirs.bytes) != (op.operation, op.bytes):
                raise SimulationError(
                    f"ranks disagree on {op.stream}: {op.name} meets {theirs.name}; "
                    "real ranks would hang"
                )
        if meeting.whole:
            self._together(op, meeting, involved)
        else:
            self._apart(op, meeting, involved)
        return True

    def _together(self, op: Op, meeting: Meeting, involved: Sequence[Role]) -> None:
        """The usual case: the roles form one group."""
        plans, seconds = meeting.plans(self.request.costs, op, self.slow)
        begin = max(role.last_arrival for role in involved)
        end = begin + float(seconds[0]) * self.comm
        if self.sharing is not None:
            self.sharing.note(Talk(op.stream, meeting.tags(op.group), plans, (begin,), (end,)))
        for role in involved:
            role.carry_out(begin, end)

    def _apart(self, op: Op, meeting: Meeting, involved: Sequence[Role]) -> None:
        """Each of several groups carries out its own."""
        plans, seconds = meeting.plans(self.request.costs, op, self.slow)
        begins = meeting.latest([role.arrival for role in involved])
        ends = begins + seconds * self.comm
        if self.sharing is not None:
            self.sharing.note(Talk(op.stream, meeting.tags(op.group), plans, begins, ends))
        times = zip(involved, meeting.spread(begins), meeting.spread(ends), strict=True)
        for role, begin, end in times:
            role.carry_out(begin, end)

    def _meeting(self, cast: Cast, number: int, name: str) -> Meeting:
        """The roles that role `number` meets in groups of that name, itself among them, and these
        groups; roles that share no group need not agree on anything."""
        if (id(cast), name) not in self._meetings:
            _require_members(cast, name)
            self._meetings[id(cast), name] = _meetings(cast, cast.groups[name])
        return self._meetings[id(cast), name][number]


def _meetings(cast: Cast, groups: Groups) -> dict[int, Meeting]:
    if len(cast.programs) == 1:
        return {0: Meeting(cast, (0,), groups)}
    graph: nx.Graph[int] = nx.Graph()
    for group in groups:
        nx.add_path(graph, dict.fromkeys(cast.roles[rank] for rank in group))
    found: dict[int, Meeting] = {}
    for roles in nx.connected_components(graph):
        own = tuple(group for group in groups if cast.roles[group[0]] in roles)
        found |= dict.fromkeys(roles, Meeting(cast, tuple(sorted(roles)), own))
    return found


def _pair(cast: Cast, rank: int, op: Op) -> tuple[int, int]:
    try:
        return cast.pair(rank, op)[1]
    except ValueError as error:
        raise SimulationError(str(error)) from None


def _require_members(cast: Cast, name: str) -> None:
    """Refuse collectives in groups of that name by ranks outside them."""
    groups = cast.groups.get(name, ())
    if sum(len(group) for group in groups) == cast.ranks:
        return
    present = {rank for group in groups for rank in group}
    for role, program in enumerate(cast.programs):
        outside = [rank for rank in cast.members(role) if rank not in present]
        needs = (op for op in program.ops if op.kind == "collective" and op.group == name)
        if outside and (op := next(needs, None)):
            raise SimulationError(
                f"rank {outside[0]} is in no group {name!r}, which {op.name} needs"
            )
