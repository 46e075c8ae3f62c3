"""What roles do together: collectives and transfers, as soon as those who take part have come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from dpsim.backends import Plan
from dpsim.compile.program import SEND, Cast, Op
from dpsim.core.arrays import Array
from dpsim.core.errors import SimulationError
from dpsim.play import Play
from dpsim.play.vectorised.role import Role
from dpsim.play.vectorised.sharing import Sharing

#: roles that meet in groups of one name, and these groups
Involved = tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]


class Exchanges:
    """Collectives and transfers of `roles`, `comm` (by lane) times as long as planned."""

    def __init__(self, request: Play, comm: Array, roles: Sequence[Role]) -> None:
        self.request, self.comm, self.roles = request, comm, roles
        self._meetings: dict[tuple[int, str], dict[int, Involved]] = {}

    def begin(self, step: int) -> None:
        """Step number `step` begins."""
        self.slow = self.request.network(step)
        self.sharing = Sharing()
        self._messages: dict[tuple[str, str, int], tuple[Array, Array]] = {}

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

    def sent(self, number: int, cast: Cast) -> bool:
        """Whether what a role is to receive has been sent to all its ranks."""
        return not np.isnan(self._message(number, cast)[1][:, self.roles[number].members]).any()

    def transfer(self, number: int, cast: Cast, ready: Array) -> None:
        """Send, or take what has been sent."""
        role, op = self.roles[number], cast.programs[number].ops[self.roles[number].next]
        begin, end = self._message(number, cast)
        receivers = role.members
        if op.operation == SEND:
            pairs = [_pair(cast, rank, op) for rank in receivers.tolist()]
            receivers = np.array([pair[1] for pair in pairs])
            plans = [self._plan(op, pair) for pair in pairs]
            begin[:, receivers] = ready
            end[:, receivers] = ready + self.comm[:, None] * [plan.seconds for plan in plans]
            for pair, plan in zip(pairs, plans, strict=True):
                stream = f"{op.stream} of rank {pair[0]}"
                self.sharing.note(stream, plan, begin[:, pair[1]], end[:, pair[1]])
        role.record(op, begin[:, receivers], end[:, receivers])

    def meet(self, cast: Cast) -> bool:
        """Carry out collectives whose participants have all arrived."""
        waiting = [k for k, role in enumerate(self.roles) if role.arrival is not None]
        met = False
        for k in waiting:
            if self.roles[k].arrival is not None:
                met |= self._try(cast, k, cast.programs[k].ops[self.roles[k].next])
        return met

    def _try(self, cast: Cast, number: int, op: Op) -> bool:
        involved, groups = self._meeting(cast, number, op.group)
        self.sharing.parted = self.sharing.parted or len(cast.groups[op.group]) > 1
        if len(involved) == len(groups) == 1:
            self._everyone(self.roles[number], op, groups[0])
            return True
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
            arrival[:, self.roles[k].members] = self.roles[k].arrival
        start, end = np.zeros_like(arrival), np.zeros_like(arrival)
        for group in groups:
            self._group(op, group, arrival, start, end)
        for k in involved:
            role = self.roles[k]
            own = cast.programs[k].ops[role.next]
            self._carried_out(role, own, start[:, role.members], end[:, role.members])
        return True

    def _everyone(self, role: Role, op: Op, group: tuple[int, ...]) -> None:
        """The usual case, without copies: the ranks of one role, and they only, form a group."""
        plan = self._plan(op, group)
        assert role.arrival is not None
        begin = role.arrival.max(axis=1, keepdims=True)
        end = begin + plan.seconds * self.comm[:, None]
        self.sharing.note(op.stream, plan, begin, end)
        self._carried_out(role, op, begin, end)

    def _group(
        self, op: Op, group: tuple[int, ...], arrival: Array, start: Array, end: Array
    ) -> None:
        plan = self._plan(op, group)
        members = slice(None) if len(group) == arrival.shape[1] else list(group)
        begin = arrival[:, members].max(axis=1)
        finish = begin + plan.seconds * self.comm
        start[:, members] = begin[:, None]
        end[:, members] = finish[:, None]
        self.sharing.note(op.stream, plan, begin, finish)

    def _carried_out(self, role: Role, op: Op, begin: Array, end: Array) -> None:
        """The role is through with `op`."""
        role.arrival = None
        if self.request.contention:
            role.talk(op, begin, end)
        role.record(op, begin, end)

    def _meeting(self, cast: Cast, number: int, name: str) -> Involved:
        """The roles that role `number` meets in groups of that name, itself among them, and these
        groups; roles that share no group need not agree on anything."""
        if (id(cast), name) not in self._meetings:
            _require_members(cast, name)
            found = self._meetings[id(cast), name] = {}
            for roles in _connected({cast.roles[rank] for rank in g} for g in cast.groups[name]):
                groups = tuple(g for g in cast.groups[name] if cast.roles[g[0]] in roles)
                found |= dict.fromkeys(roles, (tuple(sorted(roles)), groups))
        return self._meetings[id(cast), name][number]


def _connected(sets: Iterable[set[int]]) -> list[set[int]]:
    """Unions of the sets that share something, directly or through others."""
    found: list[set[int]] = []
    for one in sets:
        touched = [other for other in found if other & one]
        found = [other for other in found if not other & one]
        found.append(one.union(*touched))
    return found


def _pair(cast: Cast, rank: int, op: Op) -> tuple[int, int]:
    try:
        return cast.pair(rank, op)[1]
    except ValueError as error:
        raise SimulationError(str(error)) from None


def _require_members(cast: Cast, name: str) -> None:
    """Refuse collectives in groups of that name by ranks outside them."""
    present = {rank for group in cast.groups.get(name, ()) for rank in group}
    for role, program in enumerate(cast.programs):
        outside = [rank for rank in cast.members(role) if rank not in present]
        needs = (op for op in program.ops if op.kind == "collective" and op.group == name)
        if outside and (op := next(needs, None)):
            raise SimulationError(
                f"rank {outside[0]} is in no group {name!r}, which {op.name} needs"
            )
