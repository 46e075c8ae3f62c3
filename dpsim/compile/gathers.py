"""Gathers of updated parameters beside the next forward: which buckets a layer waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dpsim.compile.exchange import Exchange
from dpsim.compile.job import Job, gradients_of

#: dispatches the gather of a bucket, of which it may be the first of a step: its operation
Send = Callable[[int, bool], int]
#: waits for the gather of a bucket, which is that operation
Wait = Callable[[int, int], object]


class Gathers:
    """The gathers of one exchange in one step, a bucket each.

    The first layer that needs a bucket waits for its gather, and then dispatches that of the bucket
    before (NVIDIA/Megatron-LM megatron/core/distributed/param_and_grad_buffer.py d98e8a64,
    `finish_param_sync`): buckets are filled in reverse order of registration.

    sent     bucket -> the operation that gathers it
    """

    def __init__(self, job: Job, exchange: Exchange) -> None:
        self.sent: dict[int, int] = {}
        self._waited: set[int] = set()
        self._needed: dict[int, list[int]] = {}
        layers = [gradient.layer for gradient in gradients_of(job)]
        for k in range(len(exchange.messages) - 1, -1, -1):
            for layer in {layers[g] for g in exchange.messages[k].gradients}:
                self._needed.setdefault(layer, []).append(k)

    def awaiting(self, order: Iterable[int]) -> set[int]:
        """The layers, forward being in this `order`, that wait for a bucket."""
        known, found = set[int](), set[int]()
        for layer in order:
            needed = set(self._needed.get(layer, ()))
            if needed - known:
                known |= needed
                found.add(layer)
        return found

    def before(self, layer: int, send: Send, wait: Wait) -> None:
        """What precedes the forward of `layer`: `send` dispatches the gather of a bucket, `wait`
        waits for it."""
        for k in self._needed.get(layer, ()):
            if k in self._waited:
                continue
            self._waited.add(k)
            self._dispatch(k, send)
            wait(k, self.sent[k])
            if k > 0:
                self._dispatch(k - 1, send)

    def _dispatch(self, k: int, send: Send) -> None:
        if k not in self.sent:
            self.sent[k] = send(k, not self.sent)
