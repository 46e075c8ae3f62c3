"""Exchanges: what the ranks that hold the same parameters send each other in a step, as plain data.

A strategy states it once.  `dpsim.compile.step` plays it where a rank holds the whole model, and
`dpsim.compile.pipeline` on every stage of a pipeline.
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import NamedTuple

from dpsim.core.lean import dataclass


@dataclass(frozen=True)
class Work:
    """What a device does for an exchange: `bytes` that it reads and writes once, `flop` and
    `kernels` beside that, and `seconds` of anything else."""

    bytes: float = 0.0
    seconds: float = 0.0
    flop: float = 0.0
    kernels: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.bytes + other.bytes,
            self.seconds + other.seconds,
            self.flop + other.flop,
            self.kernels + other.kernels,
        )


class Leg(NamedTuple):
    """One collective of a message.

    name, tail  what traces show around the message's number ("AR0", "A2A0.node")
    bytes       full, unsharded size, padding included [B]
    padding     bytes of it that are padding [B]
    stream, group  communicator and ranks, where they are not those of the exchange
    root        the place in its group of the rank that a broadcast comes from
    delay       from the end of the leg before it to its start [s]; None: it does not wait for that
    repeats     so many times a step, in a program that stands for several
    """

    name: str
    operation: str
    bytes: float
    padding: float = 0.0
    tail: str = ""
    stream: str = ""
    group: str = ""
    delay: float | None = 0.0
    root: int = 0
    repeats: float = 1


class Message(NamedTuple):
    """Gradients that travel together.

    layer      it is due when the backward of this layer has ended
    legs       its collectives, in order
    gradients  their indices, in the order of registration
    title, bytes  its name and size where buckets are listed [B]; 0: the size of its largest leg
    encode, decode  what the device does before the first leg and after the last
    blocks  the device goes on only when it has been decoded
    """

    layer: int
    legs: tuple[Leg, ...]
    gradients: tuple[int, ...] = ()
    title: str = ""
    bytes: float = 0.0
    encode: Work = Work()
    decode: Work = Work()
    blocks: bool = False

    @property
    def largest(self) -> float:
        """The payload of its largest leg [B]."""
        return max((leg.bytes - leg.padding for leg in self.legs), default=0.0)


@dataclass(frozen=True)
class Exchange:
    """What a rank exchanges with the others that hold the same parameters.

    messages   in launch order; of one communicator none starts before the one before it has ended
    stream     name of the communicator
    copies     bytes copied after each layer's backward, by layer [B]
    copy_back  bytes copied when all messages have arrived [B]
    gathers    collectives after the optimizer, of updated parameters; the next step awaits them
    beside     on the stages of a pipeline that step gathers them itself, beside its forward
    shards     how many ranks share the update of the parameters; all over what the rank with most
               has, where they share it unevenly
    in_turn    of several such exchanges of a rank, over other communicators, none starts a
               collective before that of another has ended
    """

    messages: tuple[Message, ...] = ()
    stream: str = "data"
    copies: dict[int, float] = field(default_factory=dict)
    copy_back: float = 0.0
    gathers: tuple[Leg, ...] = ()
    beside: bool = False
    shards: float = 1
    in_turn: bool = False

    @cached_property
    def due(self) -> dict[int, list[int]]:
        """The messages that are due after each layer's backward."""
        found: dict[int, list[int]] = {}
        for k, message in enumerate(self.messages):
            found.setdefault(message.layer, []).append(k)
        return found

    def work_after(self, layer: int) -> Work:
        """What the device does for the exchange when the backward of `layer` has ended."""
        encoded = (self.messages[k].encode for k in self.due.get(layer, ()))
        return sum(encoded, Work(self.copies.get(layer, 0.0)))

    @property
    def work_back(self) -> Work:
        """What the device does for it when all messages have arrived."""
        return sum((message.decode for message in self.messages), Work(self.copy_back))
