"""Points that are alike: they differ in numbers only, and so are played at once.

A sweep's points are each predicted as if there were no other.  Where scenarios differ in numbers
only, what is done with these is the same for all until a comparison comes out differently: so one
pass with numbers of many points (`dpsim.core.many`) does for all that go the same way, and the
others are played among themselves.  The first and the last point that went along to the end are
played alone too, and what they say has to be what the pass says of them, to the last bit; if not,
or where the pass needs a number itself, points are played one by one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dpsim.core.arrays import Array, IntArray
from dpsim.core.many import Leaked, Many, Party
from dpsim.core.overrides import parts_of
from dpsim.core.record import Refused
from dpsim.describe.scenario import Scenario
from dpsim.describe.sections import Batch
from dpsim.planning.log import Record
from dpsim.planning.unswept import NEW
from dpsim.predict.document import to_json

if TYPE_CHECKING:
    from dpsim.planning.sweep import Sweep

#: points below which a pass for all takes longer than all of them alone
LEAST = 8
#: whole numbers that only stand in formulas; all others say what is done
_COUNTED = {(Batch, "per_device"), (Batch, "global_")}


#: plays a point alone: its record
Alone = Callable[[int], Record]


class Numeral(NamedTuple):
    """A number in a section that may differ from point to point."""

    value: float
    whole: bool


def _frame(value: Any, found: list[Numeral], whole: bool = False) -> Any:
    """What a section is apart from its numbers, which are put into `found`, in order.

    Numbers that are 0 or 1 are told from others: they often say that something is not there.
    """
    kind = type(value)
    if kind is float or (whole and kind is int):
        found.append(Numeral(value, kind is int))
        return kind, value if value in (0, 1) else None
    if is_dataclass(value):
        names = (one.name for one in fields(value))
        return kind, tuple(
            _frame(getattr(value, name), found, (kind, name) in _COUNTED) for name in names
        )
    if kind in (tuple, list):
        return kind, tuple(_frame(one, found) for one in value)
    if kind is dict:
        return kind, tuple((key, _frame(one, found)) for key, one in value.items())
    return kind, repr(value)


def filled(section: Any, numbers: Iterator[Any], whole: bool = False) -> Any:
    """`section` with `numbers` in the place of its own, which are not checked again; itself where
    they are its own."""
    kind = type(section)
    if kind is float or (whole and kind is int):
        return next(numbers)
    if is_dataclass(section):
        own = {one.name: getattr(section, one.name) for one in fields(section)}
        new = {k: filled(v, numbers, (kind, k) in _COUNTED) for k, v in own.items()}
        if all(new[name] is value for name, value in own.items()):
            return section
        made: Any = object.__new__(kind)
        for name, value in new.items():
            object.__setattr__(made, name, value)
        return made
    if kind in (tuple, list):
        items = [filled(one, numbers) for one in section]
        return section if all(a is b for a, b in zip(items, section, strict=True)) else kind(items)
    if kind is dict:
        entries = {key: filled(one, numbers) for key, one in section.items()}
        return section if all(entries[key] is one for key, one in section.items()) else entries
    return section


class Face(NamedTuple):
    """A section of a scenario that the sweep changes: its number among frames, and its numerals."""

    name: str
    section: Any
    frame: int
    numerals: tuple[Numeral, ...]
    values: Array


#: a point's number, and the faces of its scenario
Member = tuple[int, tuple[Face, ...]]


class Crowd:
    """Plays the points of `asked` that are alike at once, in this process."""

    def __init__(self, asked: Sweep) -> None:
        self._asked = asked
        self._roots: dict[str, list[int]] = {}
        for place, axis in enumerate(asked.grid.axes):
            for root in {str(parts_of(key)[0]) for change in axis.changes for key in change}:
                self._roots.setdefault(root, []).append(place)
        self._faces: dict[tuple[str, tuple[int, ...]], Face] = {}
        self._frames: dict[Any, int] = {}
        self._set = [json.loads(json.dumps(axis.changes)) for axis in asked.grid.axes]
        #: whether points that are alike in this way can be played at once, where that was tried
        self._ways: dict[tuple[int, ...], bool] = {}

    def play(self, numbers: Sequence[int], alone: Alone) -> Iterator[list[Record]]:
        """The records of the points with these `numbers`, in any order; `alone` plays one."""
        groups: dict[tuple[int, ...] | None, list[Member]] = defaultdict(list)
        for number in numbers:
            faces = self._faces_of(number)
            key = None if faces is None else tuple(face.frame for face in faces)
            groups[key].append((number, faces or ()))
        for key, members in groups.items():
            while key is not None and len(members) >= LEAST and self._ways.get(key, True):
                made = self._at_once(members, alone)
                yield list(made.values())
                members = [member for member in members if member[0] not in made]
                self._ways.setdefault(key, len(made) > 1)
                if len(made) == 1:
                    break
            for number, _ in members:
                yield [alone(number)]

    # -- what is alike ------------------------------------------------------------------------

    def _faces_of(self, number: int) -> tuple[Face, ...] | None:
        """The sections of a point; None where it is not read section by section."""
        if self._asked.unswept.whole is None or NEW & self._roots.keys():
            return None
        steps = self._asked.grid.steps(number)
        found = []
        for root, axes in self._roots.items():
            key = root, tuple(steps[axis] for axis in axes)
            if key not in self._faces:
                try:
                    loaded = self._asked.unswept.changed(self._asked.grid.change(number))
                except Refused:  # playing it says what is wrong
                    return None
                self._faces[key] = self._face(root, getattr(loaded.points[0], root))
            found.append(self._faces[key])
        return tuple(found)

    def _face(self, name: str, section: Any) -> Face:
        found: list[Numeral] = []
        frame = self._frames.setdefault(_frame(section, found), len(self._frames))
        return Face(
            name, section, frame, tuple(found), np.array([numeral.value for numeral in found])
        )

    # -- playing them -------------------------------------------------------------------------

    def _at_once(self, members: Sequence[Member], alone: Alone) -> dict[int, Record]:
        """Records of the first of `members`, played alone, and of those of all of them that most go
        along with, as far as there is a way."""
        first = members[0][0]
        known = {first: alone(first)}
        party = Party(len(members), LEAST)
        try:
            with np.errstate(all="ignore"):
                scenario = self._scenario(members, party)
                found = to_json(self._asked.unswept.together(scenario, self._asked.columns))
            numbers = [members[place][0] for place in party.there.tolist()]
            records = self._records(numbers, found, party.there)
        except Exception:  # what is wrong with a point is said when it is played alone
            return known
        ends = {n: known[n] if n in known else alone(n) for n in (numbers[0], numbers[-1])}
        if any(records[number] != record for number, record in ends.items()):
            return known
        return records | known

    def _scenario(self, members: Sequence[Member], party: Party) -> Scenario:
        """The scenario of all `members`."""
        whole = self._asked.unswept.whole
        sections: dict[str, Any] = {one.name: getattr(whole, one.name) for one in fields(Scenario)}
        for place, face in enumerate(members[0][1]):
            rows = np.array([faces[place].values for _, faces in members])
            numbers = [
                numeral.value
                if (column == column[0]).all()
                else Many(column, party, whole=numeral.whole)
                for numeral, column in zip(face.numerals, rows.T.copy(), strict=True)
            ]
            sections[face.name] = filled(face.section, iter(numbers))
        made: Any = object.__new__(Scenario)
        for name, section in sections.items():
            object.__setattr__(made, name, section)
        made.__post_init__()
        scenario: Scenario = made
        return scenario

    def _records(self, numbers: Sequence[int], found: Record, there: IntArray) -> dict[int, Record]:
        """A record for each of the points `there` that `found` is about: those with `numbers`."""
        columns = {key: _each(value, there) for key, value in found.items()}
        columns["set"] = [self._changes(number) for number in numbers]
        head = {"of": self._asked.header["id"][:16]}
        made = {}
        for place, number in enumerate(numbers):
            point = {key: column[place] for key, column in columns.items()}
            made[number] = {**head, "n": number, "point": point}
        return made

    def _changes(self, number: int) -> dict[str, Any]:
        """What point `number` sets, as JSON has it."""
        found: dict[str, Any] = {}
        for changes, step in zip(self._set, self._asked.grid.steps(number), strict=True):
            found |= changes[step]
        return found


def _each(value: Any, there: IntArray) -> list[Any]:
    """What `value` is at each of the points `there`.  Leaked where a number is none."""
    if isinstance(value, Many):
        found = value.values[there]
        if not np.isfinite(found).all():
            raise Leaked("a number that is none")
        whole: list[Any] = (found.astype(np.int64) if value.whole else found).tolist()
        return whole
    if isinstance(value, Mapping):
        columns = [_each(one, there) for one in value.values()]
        return [dict(zip(value, row, strict=True)) for row in zip(*columns, strict=True)]
    if isinstance(value, list):
        return [list(row) for row in zip(*(_each(one, there) for one in value), strict=True)]
    return [value] * len(there)
