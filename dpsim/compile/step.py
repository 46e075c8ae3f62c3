"""Steps: the operations of a rank that holds the whole model, in issue order.

A `StepWalk` runs forward and backward of every micro-batch, layer by layer; systems say in methods
of their own what they do beside.  An `ExchangeStep` plays an Exchange into it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from dpsim.compile.exchange import Exchange, Leg, Message, Work
from dpsim.compile.job import Job, gradients_of
from dpsim.compile.program import COMPUTE, Op, Program
from dpsim.models.compute import LayerTime


class Issue:
    """Collects the operations of a program in issue order."""

    def __init__(self, job: Job) -> None:
        self.ops: list[Op] = []
        if job.serial:
            self.add("host", "serial", seconds=job.serial)

    def add(self, name: str, kind: str, **rest: Any) -> int:
        """Append an operation; returns its index."""
        self.ops.append(Op(name, kind, **rest))
        return len(self.ops) - 1

    def collective(self, name: str, operation: str, stream: str, size: float, **rest: Any) -> int:
        """Append a collective of `size` bytes; returns its index."""
        return self.add(
            name, "collective", stream=stream, operation=operation, bytes=float(size), **rest
        )

    def send(
        self, legs: Sequence[Leg], number: str, stream: str, after: tuple[int, ...], **rest: Any
    ) -> int:
        """Append the legs of message `number`; returns the index of the last one."""
        ready = after
        for leg in legs:
            name = f"{leg.name}{number}{leg.tail}"
            own = {"group": leg.group} if leg.group else {}
            done = self.collective(
                name, leg.operation, leg.stream or stream, leg.bytes, padding=leg.padding,
                after=ready if leg.delay is None else after, delay=leg.delay or 0.0, root=leg.root,
                repeats=leg.repeats, **{**rest, **own},
            )  # fmt: skip
            after = (done,)
        return self.last

    @property
    def last(self) -> int:
        """The index of the operation that was appended last."""
        return len(self.ops) - 1

    @property
    def computed(self) -> tuple[int, ...]:
        """The last operation of the compute stream, as something to wait for."""
        for index in range(self.last, -1, -1):
            if self.ops[index].stream == COMPUTE:
                return (index,)
        return ()

    def program(
        self, buckets: tuple[tuple[str, float, tuple[str, ...]], ...] = (), listing: str = ""
    ) -> Program:
        return Program(tuple(self.ops), buckets, listing)


def _nothing(*_: object) -> None:
    pass


class StepWalk:
    """Forward and backward of every micro-batch.

    A subclass adds what else there is: `before_…` and `after_…` a layer's pass, around `forward`
    and `backward` of a micro-batch, and in `finish`.

    quiet   only the last micro-batch exchanges anything
    m       the micro-batch that is being issued
    act     what a schedule calls the pass that is being issued; "": there is none
    kept    a stage's backward has kept gradients of one before it
    leading what is done right before every layer's pass, once its parameters are there, of (layer,
            whether it is forward)
    behind  what is done right behind every layer's pass, of the same
    summed  what sums gradients of tensors that every rank of a tensor group has whole but of which
            each has seen a part of the sequence, of (name, bytes of one, how many)
    """

    def __init__(self, job: Job, *, quiet: bool) -> None:
        self.job, self.quiet = job, quiet
        self.issue = Issue(job)
        self.m = 0
        self.act = ""
        self.kept = False
        self.leading: Callable[[int, bool], None] = _nothing
        self.behind: Callable[[int, bool], None] = _nothing
        self.summed: Callable[[str, float, int], None] = _nothing

    def play(self) -> Program:
        """The program of the whole step."""
        for m, times in self.job.rounds(self.quiet):
            self.m = m
            self.forward(times)
            self.backward(times)
        return self.finish()

    @property
    def last(self) -> bool:
        """Whether this is the last micro-batch."""
        return self.m == self.job.micro_batches - 1

    def label(self, letter: str, index: int) -> str:
        """ "F3" for a step of one micro-batch, "F3.1" for micro-batch 1 of several; a pass that a
        schedule names has its name, and the layer's number behind it."""
        if self.act and letter in "FB":
            return f"{self.act}.{index}"
        one = self.job.micro_batches == 1
        return f"{letter}{index}" if one else f"{letter}{index}.{self.m}"

    def forward(self, times: Sequence[LayerTime]) -> None:
        """The forward of a micro-batch."""
        for i in self.job.model.forward_order:
            after = self.before_forward(i)
            self.leading(i, True)
            self.issue.add(self.label("F", i), "forward", seconds=times[i].forward, after=after)
            self.behind(i, True)
            self.after_forward(i)

    def backward(self, times: Sequence[LayerTime]) -> None:
        """The backward of a micro-batch."""
        for i in self.job.model.backward_order():
            after = self.before_backward(i)
            self.leading(i, False)
            self.issue.add(self.label("B", i), "backward", seconds=times[i].backward, after=after)
            self.behind(i, False)
            self.after_backward(i)

    def before_forward(self, layer: int) -> tuple[int, ...]:
        """Operations that the layer's forward waits for."""
        return ()

    def before_backward(self, layer: int) -> tuple[int, ...]:
        """Operations that the layer's backward waits for."""
        return ()

    def after_forward(self, layer: int) -> None:
        """What follows the layer's forward."""

    def after_backward(self, layer: int) -> None:
        """What follows the layer's backward."""

    # -- on a stage of a pipeline ---------------------------------------------------------------

    def idle(self, kind: str) -> bool:
        """Whether the next pass of a `kind` ("F", "B", "I", "W") is nothing but its layers."""
        return kind == "W"

    def bring(self) -> None:
        """Gather ahead all that the stage computes with."""

    def arrive_ahead(self) -> None:
        """Wait for all that was gathered ahead."""

    def give_up(self) -> None:
        """Keep no more than the rank's share of it."""

    def conclude(self) -> None:
        """What follows the last pass of the stage."""

    def finish(self) -> Program:
        """What ends the step."""
        raise NotImplementedError

    def copy(self, name: str, work: Work, after: tuple[int, ...] = ()) -> None:
        """Work of the device beside the passes; nothing where it takes no time."""
        if seconds := self.job.work_seconds(work):
            self.issue.add(name, "copy", seconds=seconds, after=after)


def _whose(place: tuple[int, Leg]) -> tuple[str, int]:
    """The same for broadcasts of one rank; else every collective is by itself."""
    number, leg = place
    broadcast = leg.operation == "broadcast"
    return (leg.operation, leg.root) if broadcast else ("", number)


class ExchangeStep(StepWalk):
    """A step with an exchange: messages are issued as backward makes them due, in the last
    micro-batch or, unless `quiet`, in all of them.

    sent      the last leg of every message that was issued and not waited for yet
    encoding, copied_back   names of what the device does for a message, and for all in the end
    in_turn   a message waits for the end of the one before it, whatever its communicator
    """

    encoding, copied_back = "C", "copy.out"
    in_turn = False

    def __init__(self, job: Job, exchange: Exchange, *, quiet: bool = True) -> None:
        super().__init__(job, quiet=quiet)
        self.exchange = exchange
        self.sent: list[int] = []

    @property
    def exchanges(self) -> bool:
        """Whether this micro-batch does."""
        return bool(self.exchange.messages) and (self.last or not self.quiet)

    def backward(self, times: Sequence[LayerTime]) -> None:
        super().backward(times)
        if self.exchanges:
            self.arrive()

    def after_backward(self, layer: int) -> None:
        """Copies, and the messages that are due."""
        if not self.exchanges:
            return
        self.copy(f"C{layer}", Work(self.exchange.copies.get(layer, 0.0)))
        for k in self.exchange.due.get(layer, ()):
            self.send(k)

    def send(self, k: int) -> None:
        """Issue message `k`."""
        message = self.exchange.messages[k]
        self.copy(f"{self.encoding}{k}", message.encode)
        after = (*self.trigger(message), *(self.sent[-1:] if self.in_turn else ()))
        self.sent.append(self.issue.send(message.legs, self.number(k), self.exchange.stream, after))
        if message.blocks:
            self.issue.add(f"W{self.number(k)}", "wait", after=self.sent[-1:])
            self.copy(f"D{self.number(k)}", message.decode)

    def number(self, k: int) -> str:
        """How traces count message `k`."""
        return str(k)

    def trigger(self, message: Message) -> tuple[int, ...]:
        """What the first leg of a message waits for."""
        return self.issue.computed

    def arrive(self) -> None:
        """Wait for all messages that are under way, and take them apart."""
        for k, message in enumerate(self.exchange.messages):
            if not message.blocks:
                self.copy(f"D{k}", message.decode, after=(self.sent[k],))
        self.issue.add("W", "wait", after=tuple(self.sent))
        self.copy(self.copied_back, Work(self.exchange.copy_back))
        self.sent = []

    def finish(self) -> Program:
        self.update()
        self.gather()
        return self.issue.program(self.buckets())

    def update(self) -> None:
        """The optimizer, on this rank's share of the parameters."""
        seconds = self.job.update_seconds(self.job.model.trained / self.exchange.shards)
        self.issue.add("O", "optimizer", seconds=seconds)

    def gather(self) -> None:
        """The updated parameters of all ranks.  What one rank broadcasts leaves in turn: whole
        messages follow one another between two hosts, also where several are under way at once."""
        updated, found = self.issue.computed, list[int]()
        for _, turn in groupby(enumerate(self.exchange.gathers), _whose):
            legs = [leg for _, leg in turn]
            found.append(self.issue.send(legs, "", self.exchange.stream, updated))
        if found:
            self.issue.add("W.parameters", "wait", after=tuple(found))

    def agree(self, name: str, size: float, stream: str) -> None:
        """All ranks reduce `size` bytes of bookkeeping and wait for the result."""
        done = self.issue.collective(
            name, "all_reduce", stream, size, control=True, after=self.issue.computed
        )
        self.issue.add(f"W.{name}", "wait", after=(done,))

    def buckets(self) -> tuple[tuple[str, float, tuple[str, ...]], ...]:
        """The messages by title, with bytes and gradients."""
        names = [gradient.name for gradient in gradients_of(self.job)]
        return tuple(
            (m.title, float(m.bytes or m.largest), tuple(names[g] for g in m.gradients))
            for m in self.exchange.messages
        )
