"""Compression: how a bucket of gradients is made smaller before it travels.

Contract.  A plug-in module of this folder holds one `Compression`: a record whose fields are its
knobs.  `transits` says which collectives take the place of a bucket's all-reduce, with what the
device does before each, and `decode` what it does after the last; `memory` says what it keeps.
What else is asked of it has a default: whether it begins later (`phases`) or leaves out steps
(`period`), what workers push through servers (`pushed`), what an answer says of it (`notes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, prod
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic_core import PydanticKnownError

from dpsim.compile.exchange import Work
from dpsim.core import plugins
from dpsim.core.lean import dataclass

__all__ = ["Compression", "Hook", "Payload", "Prelude", "Stated", "Transit", "Wanted", "Work"]


class Payload(NamedTuple):
    """What a bucket holds: the shapes of its tensors, their dtype, and their bytes.

    shaped  whether the model's tensors have known shapes; without, each is one dimension
    """

    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    bytes: int
    shaped: bool = True

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
    control  it moves scales or other bookkeeping, which toys leave out
    """

    operation: str
    bytes: float
    encode: Work = Work()
    awaits: bool = False
    control: bool = False


class Prelude(NamedTuple):
    """Until iteration `last` (counted from 1) gradients travel as `compression` has it; None: as
    they are."""

    last: float
    compression: Compression | None


class Stated(NamedTuple):
    """Seconds that coding all gradients of a step takes, where the scenario says it; None: as
    modelled."""

    encode: float | None = None
    decode: float | None = None


class Compression:
    """Contract of this folder.

    whole   all gradients of a dtype travel together, when backward has ended
    blocks  on a GPU the host waits until a bucket has been decoded: backward stands still
    part_of the optimizer that it is a part of; "": of none
    """

    tag = "kind"
    kind: ClassVar[str]
    whole: ClassVar[bool] = False
    blocks: ClassVar[bool] = False
    part_of: ClassVar[str] = ""

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

    def pushed(self, payload: Payload) -> float | None:
        """What a worker pushes to parameter servers, and pulls from them [B]; None: no server can
        add it up."""
        return None

    def phases(self, steps: float) -> tuple[Prelude, ...]:
        """What goes before, in a run of so many steps; it holds itself from then on."""
        return ()

    def at(self, iteration: int | None) -> Compression | None:
        """What holds in `iteration` (1, 2, …; None: the steady state); None: nothing is
        compressed."""
        if iteration is None:
            return self
        before = (phase.compression for phase in self.phases(inf) if iteration <= phase.last)
        return next(before, self)

    def idle(self, payload: Payload) -> str | None:
        """Why all of `payload` travels as it would without; None where something does not."""
        return None

    def break_even_density(self, ranks: int) -> float | None:
        """The share of elements at which it sends as much as a dense ring; None where it has no
        such share."""
        return None

    @property
    def learns_alike(self) -> bool:
        """Whether it is published to learn from as many samples as gradients that travel whole, at
        its settings; `notes` says where."""
        return False

    def learns_alike_with(self, optimizer: str) -> bool:
        """The same with an optimizer of that kind; where the scenario has "none", nothing says
        that it is another than what was published."""
        return self.learns_alike and (not self.part_of or optimizer in (self.part_of, "none"))

    def notes(self) -> tuple[str, ...]:
        """What is published about its effect on learning, as sentences."""
        return ()

    def accept_backend(self, backend: str, where: tuple[str, ...]) -> None:
        """Refuse, at key `where`, a library of collectives that it cannot use."""

    @property
    def period(self) -> int:
        """Steps from one exchange to the next, each with what `transits` says; those in between
        exchange nothing.  More than one goes together with `whole`."""
        return 1

    @property
    def stated(self) -> Stated:
        """What the scenario says of the time that coding takes."""
        return Stated()


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


@dataclass(frozen=True)
class _Wanted(_Named):
    """The same, or `none`."""

    @property
    def ways(self) -> tuple[str, ...]:
        """None, and each as its defaults have it."""
        return ("none", *plugins.names(self.folder))

    def take(self, value: Any, file: bool) -> Any:
        return value if value == "none" else super().take(value, file)

    def json_schema(self) -> dict[str, Any]:
        """A name, or the mapping."""
        named = {"enum": ["none", *plugins.names(self.folder)]}
        return {"oneOf": [named, super().json_schema()]}


#: what `compression` at the top of a scenario is annotated with: "none" where there is none
Wanted = Annotated[Any, _Wanted("compression", "kind")]
#: what a key that takes a compression is annotated with
Hook = Annotated[Compression, _Named("compression", "kind")]

CONTRACT = Compression
