"""A parsed `config.json`: checked access to its keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dpsim.core.lean import dataclass
from dpsim.core.record import Refused

SIZE_LIMIT = 10**7
_LAYER_LIMIT = 10_000


def whole(value: Any, key: str, high: int) -> int:
    """`value` if it is an integer from 1 to `high`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(f"{str(value)[:60]!r} is not a whole number", (key,))
    if not 1 <= value <= high:
        shown = f"{value:,}" if abs(value) < 10**30 else "a huge number"
        raise Refused(f"{shown} is not in 1 … {high:,}", (key,))
    return value


@dataclass(frozen=True)
class Config:
    """Checked access to a configuration; every complaint names its key.

    length   tokens per sequence; None where the scenario does not say
    target   tokens of what a decoder is given beside an encoder; None: as many
    image    pixels along one side; None: the configuration's
    head     what stands behind an encoder; None: what is usual
    stored   scores of attention are stored (no flash attention)
    wide     and their softmax is one of torch's, in 32 bit
    ahead    modules that predict further tokens are trained too
    """

    data: Mapping[str, Any]
    length: int | None
    stored: bool = False
    target: int | None = None
    image: int | None = None
    head: str | None = None
    wide: bool = False
    ahead: bool = False

    @property
    def tokens(self) -> int:
        """Tokens per sequence, which models of text cannot do without."""
        if self.length is None:
            raise Refused("is missing", ("sequence_length",))
        return self.length

    @property
    def target_tokens(self) -> int:
        return self.tokens if self.target is None else self.target

    def size(self, *keys: str, default: int | None = None, high: int = SIZE_LIMIT) -> int:
        """The integer under the first of `keys` (aliases must agree); null counts as absent."""
        found = {key: self.data[key] for key in keys if self.data.get(key) is not None}
        if not found:
            if default is None:
                raise Refused("is missing", (keys[0],))
            return default
        values = [whole(value, key, high) for key, value in found.items()]
        if len(set(values)) > 1:
            first, second = list(found)[:2]
            raise Refused(f"{values[0]} contradicts {second} = {values[1]}", (first,))
        return values[0]

    def count(self, key: str) -> int:
        """The integer under `key`, 0 where it is 0, null or absent."""
        return 0 if self.data.get(key) in (0, None) else self.size(key)

    def section(self, key: str) -> Config:
        """The mapping under `key`."""
        found = self.data.get(key)
        if not isinstance(found, Mapping):
            raise Refused("is missing" if found is None else "is not a mapping", (key,))
        return replace(self, data=found)

    def layers(self, *keys: str) -> int:
        return self.size(*keys, high=_LAYER_LIMIT)

    def flag(self, key: str, default: bool) -> bool:
        value = self.data.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise Refused(f"{str(value)[:60]!r} is not true or false", (key,))
        return value

    def dropout(self, key: str, default: float) -> bool:
        """Whether the dropout probability under `key` is above 0."""
        value = default if self.data.get(key) is None else self.data[key]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
            raise Refused(f"{str(value)[:60]!r} is not a probability below 1", (key,))
        return value > 0

    def require(self, key: str, wanted: Any) -> None:
        """Refuse any value of `key` but `wanted` (or none), because it changes the model."""
        value = self.data.get(key, wanted)
        if value is not None and value != wanted:
            raise Refused(f"{str(value)[:60]!r} is not modelled; only {wanted!r} is", (key,))

    def share(self, total: int, parts: int, total_key: str, parts_key: str) -> int:
        """`total` / `parts`, which must divide."""
        if total % parts:
            raise Refused(f"{parts} does not divide {total_key} = {total}", (parts_key,))
        return total // parts

    def positions(self, *keys: str) -> int:
        """The learned positions, which no sequence may exceed."""
        count = self.size(*keys)
        if self.tokens > count:
            key = next((key for key in keys if key in self.data), keys[0])
            raise Refused(
                f"{self.tokens:,} is beyond the {count:,} learned positions ({key})",
                ("sequence_length",),
            )
        return count
