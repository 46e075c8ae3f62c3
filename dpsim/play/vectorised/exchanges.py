"""What ranks do together in a step: collectives of groups, and transfers of pairs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from dpsim.backends import Plan
from dpsim.collectives import Ranks
from dpsim.compile.program import SEND, Cast, Op
from dpsim.core.arrays import Array
from dpsim.core.errors import SimulationError
from dpsim.play import Play, check_time
from dpsim.play.vectorised.role import Role
from dpsim.play.vectorised.sharing import Sharing, Talk
from dpsim.play.vectorised.slowing import Indices, Value, later, one_or_all

Groups = Sequence[Ranks]
#: what a transfer is called on both sides: stream, group, and how many came before
Key = tuple[str, str, int]


class Meeting:
    """Roles that meet in groups of one name, and these groups."""

    def __init__(self, cast: Cast, roles: tuple[int, ...], groups: Groups, name: str) -> None:
        self.cast, self.roles, self.groups = cast, roles, groups
        #: what tells these groups apart from all others
        self.tags = [(name, group[0]) for group in groups]
        #: whether all of their ranks, and they only, are one group
        self.whole = len(groups) == 1

    @cached_property
    def _order(self) -> Indices:
        """The ranks, group by group."""
        return np.concatenate([np.asarray(group) for group in self.groups])

    @cached_property
    def _sizes(self) -> Indices:
        return np.array([len(group) for group in self.groups])

    @cached_property
    def _members(self) -> list[Indices | slice]:
        """The ranks of each role."""
        if len(self.cast.programs) == 1:
            return [slice(None)]
        return [np.asarray(self.cast.members(role)) for role in self.roles]

    def latest(self, arrivals: Sequence[Value]) -> Array:
        """When the last rank of each group has come; `arrivals` are those of each role."""
        flat = np.zeros(self.cast.ranks)
        for members, arrival in zip(self._members, arrivals, strict=True):
            flat[members] = arrival
        starts = np.cumsum(self._sizes) - self._sizes
        found: Array = np.maximum.reduceat(flat[self._order], starts)
        return found

    def spread(self, times: Array) -> list[Array]:
        """The times of groups as those of the ranks of each role."""
        flat = np.zeros(self.cast.ranks)
        flat[self._order] = np.repeat(times, self._sizes)
        return [flat[members] for members in self._members]


class Exchanges:
    """Collectives and transfers of `roles`, `comm` times as long as planned."""

    def __init__(self, request: Play, comm: float, roles: Sequence[Role]) -> None:
        self.request, self.comm, self.roles = request, comm, roles
        self._meetings: dict[tuple[int, str], dict[int, Meeting]] = {}
        self._planned: dict[tuple[Any, ...], tuple[list[Plan], list[float]]] = {}
        self._pairs: dict[tuple[int, int, str, str], list[tuple[int, int]]] = {}
        self._waiting: dict[Key, list[int]] = {}

    def begin(self, step: int, sharing: Sharing | None) -> None:
        """Step number `step` begins; `sharing` is told who uses which links when."""
        self.slow = check_time(self.request.network(step), f"the network's slowing in step {step}")
        self.sharing = sharing
        if sharing is not None:
            sharing.begin()
        self._messages: dict[Key, dict[int, tuple[float, float]]] = {}
        self._sizes: dict[Key, float] = {}

    def _plans(self, op: Op, groups: Groups, whose: object) -> tuple[list[Plan], list[float]]:
        """How each of `groups`, those of `whose`, carries out `op` in this step, and in what time
        [s]."""
        key = (id(whose), op.operation, op.bytes, op.repeats, op.root, self.slow)
        found = self._planned.get(key)
        if found is None:
            costs = self.request.costs
            plans = [costs.slowed(costs.of(op, group), self.slow) for group in groups]
            found = self._planned[key] = plans, [plan.seconds for plan in plans]
        return found

    # -- transfers --------------------------------------------------------------------------------

    def _key(self, number: int, cast: Cast) -> Key:
        task = self.roles[number].task
        return task.op.stream, task.op.group, cast.programs[number].ordinals[task.number]

    def sent(self, number: int, cast: Cast) -> bool:
        """Whether what a role is to receive has been sent to all its ranks; if not, it is noted
        that the role waits for it."""
        key, members = self._key(number, cast), self.roles[number].members
        message = self._messages.setdefault(key, {})
        if len(message) >= len(members) and all(rank in message for rank in members):
            return True
        self._waiting.setdefault(key, []).append(number)
        return False

    def transfer(self, number: int, cast: Cast) -> list[int]:
        """Send, or take what has been sent; returns the roles that waited for it."""
        role, op, key = self.roles[number], self.roles[number].task.op, self._key(number, cast)
        message = self._messages.setdefault(key, {})
        role.come()
        receivers: Sequence[int] = role.members
        freed: list[int] = []
        if op.operation == SEND:
            pairs = self._pairs_of(number, cast, op)
            plans, seconds = self._plans(op, pairs, pairs)
            arrival = role.arrival
            if len(pairs) == 1 and isinstance(arrival, float):
                receivers = pairs[0][1:]
                message[receivers[0]] = arrival, arrival + seconds[0] * self.comm
            else:
                receivers = [receiver for _, receiver in pairs]
                ready = np.broadcast_to(arrival, len(pairs)).tolist()
                for receiver, begin, each in zip(receivers, ready, seconds, strict=True):
                    message[receiver] = begin, begin + each * self.comm
            self._note_sent(op, pairs, plans, message)
            self._sizes[key] = op.bytes
            freed = self._waiting.pop(key, [])
        elif self._sizes[key] != op.bytes:
            raise SimulationError(f"sender and receiver disagree on the bytes of {op.name}")
        spans = [message[rank] for rank in receivers]
        begin, end = spans[0] if len(spans) == 1 else map(one_or_all, np.array(spans).T)
        role.carry_out(begin, end if op.operation == SEND else later(end, role.arrival))
        return freed

    def _note_sent(
        self, op: Op, pairs: Groups, plans: Sequence[Plan], message: dict[int, tuple[float, float]]
    ) -> None:
        """Transfers, on links that others may need too."""
        if self.sharing is not None:
            begins, ends = zip(*(message[receiver] for _, receiver in pairs), strict=True)
            tags = [(op.group, sender) for sender, _ in pairs]
            self.sharing.note(Talk(op.stream, tags, plans, begins, ends))

    def _pairs_of(self, number: int, cast: Cast, op: Op) -> list[tuple[int, int]]:
        """Sender and receiver of what each rank of a role sends."""
        key = (id(cast), number, op.group, op.operation)
        if key not in self._pairs:
            self._pairs[key] = [_pair(cast, rank, op) for rank in cast.members(number)]
        return self._pairs[key]

    # -- collectives ------------------------------------------------------------------------------

    def meet(self, number: int, cast: Cast) -> tuple[int, ...]:
        """Carry out the collective that role `number` has come to if all others have come too;
        returns the roles that took part."""
        op = self.roles[number].task.op
        meeting = self._meeting(cast, number, op.group)
        alone = len(meeting.roles) == 1
        involved = (self.roles[number],) if alone else [self.roles[k] for k in meeting.roles]
        for role in () if alone else involved:
            theirs = role.task.op if role.arrived else None
            if theirs is None or (theirs.stream, theirs.group) != (op.stream, op.group):
                return ()
            if theirs.agreed != op.agreed:
                raise SimulationError(
                    f"ranks disagree on {op.stream}: {op.name} meets {theirs.name}; "
                    "real ranks would hang"
                )
        if meeting.whole:
            self._together(op, meeting, involved)
        else:
            self._apart(op, meeting, involved)
        return meeting.roles

    def _together(self, op: Op, meeting: Meeting, involved: Sequence[Role]) -> None:
        """The usual case: the roles form one group."""
        plans, seconds = self._plans(op, meeting.groups, meeting)
        begin = involved[0].last_arrival
        for role in involved[1:]:
            begin = max(begin, role.last_arrival)
        end = begin + seconds[0] * self.comm
        if self.sharing is not None:
            self.sharing.note(Talk(op.stream, meeting.tags, plans, (begin,), (end,)))
        for role in involved:
            role.carry_out(begin, end)

    def _apart(self, op: Op, meeting: Meeting, involved: Sequence[Role]) -> None:
        """Each of several groups carries out its own."""
        plans, seconds = self._plans(op, meeting.groups, meeting)
        begins = meeting.latest([role.arrival for role in involved])
        ends = begins + np.array(seconds) * self.comm
        if self.sharing is not None:
            self.sharing.note(Talk(op.stream, meeting.tags, plans, begins, ends))
        times = zip(involved, meeting.spread(begins), meeting.spread(ends), strict=True)
        for role, begin, end in times:
            role.carry_out(begin, end)

    def together(self, number: int, cast: Cast) -> bool:
        """Whether all ranks of a role are in one group in everything that they do with others."""
        program = cast.programs[number]
        if program.transfers:
            return False
        groups = program.collective_groups
        return all(self._meeting(cast, number, name).whole for name in groups)

    def _meeting(self, cast: Cast, number: int, name: str) -> Meeting:
        """The roles that role `number` meets in groups of that name, itself among them, and these
        groups; roles that share no group need not agree on anything."""
        found = self._meetings.get((id(cast), name))
        if found is None:
            _require_members(cast, name)
            found = self._meetings[id(cast), name] = _meetings(cast, name)
        return found[number]


def _connected(sets: Iterable[set[int]]) -> list[set[int]]:
    """Unions of the sets that share something, directly or through others."""
    found: list[set[int]] = []
    for one in sets:
        touched = [other for other in found if other & one]
        found = [other for other in found if not other & one]
        found.append(one.union(*touched))
    return found


def _meetings(cast: Cast, name: str) -> dict[int, Meeting]:
    groups = cast.groups[name]
    if len(cast.programs) == 1:
        return {0: Meeting(cast, (0,), groups, name)}
    found: dict[int, Meeting] = {}
    for roles in _connected({cast.roles[rank] for rank in group} for group in groups):
        own = tuple(group for group in groups if cast.roles[group[0]] in roles)
        found |= dict.fromkeys(roles, Meeting(cast, tuple(sorted(roles)), own, name))
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
        outside = next((rank for rank in cast.members(role) if rank not in present), None)
        op = None if outside is None else program.first_of(name)
        if op is not None:
            raise SimulationError(f"rank {outside} is in no group {name!r}, which {op.name} needs")
