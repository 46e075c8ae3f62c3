"""Compression: how a bucket of gradients is made smaller before it travels.

Contract.  A plug-in module of this folder holds one `Compression`: a record whose fields are its
knobs.  `transits` says which collectives take the place of a bucket's all-reduce, with what the
device does before each, and `decode` what it does after the last; `memory` says what it keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic_core import PydanticKnownError

from dpsim.compile.exchange import Work
from dpsim.core import plugins

__all__ = ["Compression", "Hook", "Payload", "Transit", "Work"]


class Payload(NamedTuple):
    """What a bucket holds: the shapes of its tensors, their dtype, and their bytes."""

    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    bytes: int

    @property
    def elements(self) -> int:
        """Of all its tensors."""
        return sum(prod(shape) for shape in self.shapes)


class Transit(NamedTuple):
    """One collective of a compressed bucket.

    bytes   full, unsharded size: of an all-gather what all ranks bring together [B]
    encode  what the device does before it
    awaits  that needs the result of the transit before it: it is done beside backward and holds up
            this collective; else it is done where the bucket is ready
    """

    operation: str
    bytes: float
    encode: Work = Work()
    awaits: bool = False


class Compression:
    """Contract of this folder."""

    tag = "kind"
    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        cls.kind = plugins.name_of(cls)

    def transits(self, payload: Payload, ranks: int) -> tuple[Transit, ...]:
        """What is sent of a bucket, in order."""
        raise NotImplementedError

    def decode(self, payload: Payload, ranks: int) -> Work:
        """What the device does when the last transit has ended."""
        return Work()

    def memory(self, payload: Payload, ranks: int) -> dict[str, float]:
        """What a device keeps for a bucket beside the gradients [B], by name."""
        return {}


@dataclass(frozen=True)
class _Named(plugins.Plugin):
    """A compression by its name, where its defaults do, or as a mapping."""

    def make(self, data: Any, *, file: bool) -> Any:
        """The compression of that name, or of that mapping."""
        known = plugins.names(self.folder)
        if isinstance(data, str) and data in known:
            data = {self.tag: data}
        if not isinstance(data, Mapping):
            raise PydanticKnownError("literal_error", {"expected": ", ".join(("none", *known))})
        return super().make(data, file=file)


#: what a key that takes a compression is annotated with
Hook = Annotated[Compression, _Named("compression", "kind")]

CONTRACT = Compression
