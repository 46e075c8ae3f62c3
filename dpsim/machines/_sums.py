"""Sums over links, and the classes of those that are alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpsim.core.arrays import Array, IntArray
from dpsim.machines.fabrics import Edge

BoolArray = npt.NDArray[np.bool_]
#: a link's key is (message, place on its way, kind): the least is that of its first use
PLACES, KINDS = 1 << 8, 1 << 6
NEVER = np.iinfo(np.int64).max
#: links of a row up to which it is short
_SHORT = 1 << 10


class Alike(NamedTuple):
    """Links by class: the class of each; and for each class how many there are, the row and the
    place of the first used, its key, its kind, what it carries and its bandwidth."""

    classes: IntArray
    counts: list[int]
    rows: list[int]
    places: list[int]
    keys: list[int]
    kinds: list[int]
    loads: list[float]
    bandwidths: list[float]


class Sums:
    """Rows of links, `width` in each: what they carry and their keys.

    Short rows lie in one array, and what is added to them waits until somebody asks: many short
    additions at once cost less than each on its own.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.rows: dict[Edge | None, int] = {}
        self._long = width > _SHORT
        self._blocks: list[tuple[Array, IntArray]] = []  # a long row each, or all that are short
        self._forced: dict[int, IntArray] = {}
        self._waiting: list[tuple[IntArray, float | Array, IntArray]] = []

    def row(self, name: Edge | None) -> int:
        """The number of a row."""
        if name not in self.rows:
            self.rows[name] = len(self.rows)
            if self._long:
                self._blocks.append(_block(self.width))
        return self.rows[name]

    def add(self, row: int, at: IntArray, bytes_: float | Array, keys: IntArray) -> None:
        """Links `at` of a row carry so much more."""
        if self._long:
            np.add.at(self._blocks[row][0], at, bytes_)
            np.minimum.at(self._blocks[row][1], at, keys)
        else:
            self._waiting.append((at + row * self.width, bytes_, keys))

    def force(self, row: int, at: IntArray, kind: int) -> None:
        """Links `at` of a row count as `kind`, whatever else crosses them."""
        self._forced.setdefault(row, np.full(self.width, -1))[at] = kind

    def loads(self, row: int) -> Array:
        """What the links of a row carry."""
        return self._of(row)[0]

    def keys(self, row: int) -> IntArray:
        """The keys of the links of a row, NEVER of those that are not used."""
        return self._of(row)[1]

    def kinds(self, row: int) -> IntArray:
        """What the links of a row count as."""
        found, forced = self.keys(row) % KINDS, self._forced.get(row)
        return found if forced is None else np.where(forced < 0, found, forced)

    def even(self) -> BoolArray:
        """By row, whether all its links are used, carry the same and count as the same."""
        self._settle()
        used = len(self.rows) * self.width
        even = np.zeros(0, dtype=np.bool_)
        for loads, keys in self._blocks:
            shape = (-1, self.width)
            found = _even(loads[:used].reshape(shape), keys[:used].reshape(shape))
            even = np.concatenate((even, found))
        even[list(self._forced)] = False
        return even

    def _of(self, row: int) -> tuple[Array, IntArray]:
        if self._long:
            return self._blocks[row]
        self._settle()
        loads, keys = self._blocks[0]
        here = slice(row * self.width, (row + 1) * self.width)
        return loads[here], keys[here]

    def _settle(self) -> None:
        """Add what waits."""
        if not self._waiting:
            return
        (loads, keys), size = self._blocks[0] if self._blocks else _block(0), len(self.rows)
        if size * self.width > len(loads):
            more = _block(2 * size * self.width - len(loads))
            loads, keys = np.concatenate((loads, more[0])), np.concatenate((keys, more[1]))
        self._blocks = [(loads, keys)]
        places, bytes_, own = zip(*self._waiting, strict=True)
        at = np.concatenate(places)
        np.add.at(loads, at, _each(bytes_, [len(at) for at in places]))
        np.minimum.at(keys, at, np.concatenate(own))
        self._waiting = []


def _each(bytes_: Sequence[float | Array], counts: Sequence[int]) -> Array:
    """Each of `bytes_` so many times, or if they are arrays, all that are in them."""
    if not any(isinstance(one, np.ndarray) for one in bytes_):
        return np.repeat(np.array(bytes_, dtype=np.float64), counts)
    return np.concatenate(
        [np.broadcast_to(one, (n,)) for one, n in zip(bytes_, counts, strict=True)]
    )


def _block(size: int) -> tuple[Array, IntArray]:
    return np.zeros(size), np.full(size, NEVER)


def _even(loads: Array, keys: IntArray) -> BoolArray:
    """By row, whether all is used and the same."""
    found: BoolArray = (loads.min(axis=1) == loads.max(axis=1)) & (keys.max(axis=1) < NEVER)
    kinds = keys % KINDS
    found &= kinds.min(axis=1) == kinds.max(axis=1)
    return found


def sorted_out(
    rows: IntArray, loads: Array, keys: IntArray, kinds: IntArray, bandwidths: Array
) -> Alike:
    """The classes of links, of which all is given: their rows, row by row, and so on."""
    which = rows - rows[0]
    for values in (loads, kinds, bandwidths):
        if values.min() != values.max():
            _, code = np.unique(values, return_inverse=True)
            _, which = np.unique(which * len(values) + code, return_inverse=True)
    _, classes = np.unique(which, return_inverse=True)
    counts = np.bincount(classes)
    least = np.full(len(counts), NEVER)
    np.minimum.at(least, classes, keys)
    first = np.flatnonzero(keys == least[classes])[::-1]
    at = np.zeros(len(counts), dtype=np.int64)
    at[classes[first]] = first
    begin = np.searchsorted(rows, rows[at])
    return Alike(
        classes, counts.tolist(), rows[at].tolist(), (at - begin).tolist(), keys[at].tolist(),
        kinds[at].tolist(), loads[at].tolist(), bandwidths[at].tolist(),
    )  # fmt: skip
