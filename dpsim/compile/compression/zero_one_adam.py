"""0/1 Adam: the variance is updated ever more rarely, signs travel in between, and later steps are
local.

Lu et al., ICLR 2023 (arXiv:2202.06009).  Rules read in deepspeedai/DeepSpeed
deepspeed/runtime/fp16/onebit/zoadam.py (commit edaa7221), steps counted from 1:

* The first step all-reduces gradients.  From then on a step that is a multiple of the interval of
  the variance all-reduces them too; in every other one signs of the gradient travel as 1-bit Adam's
  do.  The interval begins at 1 and doubles with every `var_update_scaler` updates.
* The variance freezes when step `var_freeze_step` + 1 has ended.  Then workers step by themselves
  and add up what they did; steps that are multiples of the local interval exchange signs of that.
  The interval begins at 1 and doubles every `local_step_scaler` steps, up to `local_step_clipper`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import Annotated

from dpsim.compile.compression import Compression, Payload, Prelude, Transit, Work
from dpsim.compile.compression._codec import FP32, Codec
from dpsim.compile.compression.one_bit import OneBit
from dpsim.core.record import Check, record

#: passes over fp32 momentum beside those of 1-bit Adam's exchange, as zoadam.py runs them: in every
#: local step what is added to the sum; before an exchange, the sum off the parameters and times the
#: root of the variance; after it, new momentum and parameters
EACH, BEFORE, AFTER = 5, 12, 19
#: kernels of each of the three
KERNELS = (2, 5, 9)
#: steps of the longest round that was published to converge (arXiv:2202.06009, section 6)
PUBLISHED = 16
Steps = Annotated[int, Check(1, 10**9)]


@record
class ZeroOneAdam(Codec):
    """Signs and a scale, of all gradients together, and later of what several local steps did;
    settings and defaults are DeepSpeed's.

    var_freeze_step     the last step that may update the variance
    var_update_scaler   updates of the variance after which the steps from one to the next double
    local_step_scaler   steps after which those from one exchange to the next double
    local_step_clipper  steps from one exchange to the next at most: the settled round
    """

    var_freeze_step: Annotated[int, Check(0, 10**9)] = 100_000
    var_update_scaler: Steps = 16
    local_step_scaler: Steps = 32_678
    local_step_clipper: Annotated[int, Check(1, 100_000)] = 16

    whole = True
    part_of = "adam"

    @property
    def period(self) -> int:
        return self.local_step_clipper

    # -- which step does what ----------------------------------------------------------------------

    def at(self, iteration: int | None) -> Compression | None:
        if iteration is None:
            return self
        if iteration <= self.var_freeze_step + 1:
            return None if self._whole_in(iteration) else self._signs
        begun: float = self.var_freeze_step + 1
        for interval, length in self._stages():
            if iteration <= begun + length:
                return self._every(1) if iteration % interval == 0 else self._local
            begun += length
        raise AssertionError("the last stage has no end")

    def phases(self, steps: float) -> tuple[Prelude, ...]:
        """How many steps there are of each kind: gradients that travel whole, signs of them, and
        of those that are no part of a settled round, exchanges and local steps.  They come in
        between each other; only their numbers count here."""
        until = min(self.var_freeze_step + 1, steps)
        end = float(until)
        found = [Prelude(float(self._whole_until(until)), None), Prelude(end, self._signs)]
        exchanges, alone = self._unsettled(steps) if until < steps else (0, 0)
        for count, each in ((exchanges, self._every(1)), (alone, self._local)):
            end += count
            found += [Prelude(end, each)] if count else []
        return tuple(found)

    def _unsettled(self, steps: float) -> tuple[int, int]:
        """Exchanges and local steps of a run of so many steps after the variance is frozen, but for
        as many whole rounds as the settled interval has."""
        begun, exchanges, alone = self.var_freeze_step + 1, 0, 0
        for interval, length in self._stages():
            end = min(begun + length, steps)
            if end == inf:
                break
            last = int(end)
            here, count = last // interval - begun // interval, last - begun
            rounds = min(here, count // interval) if length == inf else 0
            exchanges += here - rounds
            alone += count - here - rounds * (interval - 1)
            begun = last
        return exchanges, alone

    def _updates(self) -> Iterator[tuple[int, int, int]]:
        """The interval of the variance, and its first and last multiple that updates it."""
        last, interval = 1, 1
        while True:
            first = (last // interval + 1) * interval
            last = first + (self.var_update_scaler - 1) * interval
            yield interval, first, last
            interval *= 2

    def _whole_in(self, step: int) -> bool:
        """Whether gradients travel whole in `step`."""
        interval, first, _ = next(found for found in self._updates() if step <= found[2])
        return step == 1 or (step >= first and step % interval == 0)

    def _whole_until(self, step: float) -> int:
        """In how many steps up to `step` they do."""
        count = int(step >= 1)
        for interval, first, last in self._updates():
            if first > step:
                return count
            count += int((min(step, last) - first) // interval) + 1
        raise AssertionError("intervals have no end")

    def _stages(self) -> Iterator[tuple[int, float]]:
        """The steps from one exchange to the next when the variance is frozen, and for how many
        steps it is so many."""
        interval = 1
        while interval < self.local_step_clipper:
            yield interval, self.local_step_scaler
            interval = min(2 * interval, self.local_step_clipper)
        yield interval, inf

    @property
    def _signs(self) -> OneBit:
        """Gradients as 1-bit Adam sends momentum."""
        return OneBit(freeze_step=0, encode_=self.encode_, decode_=self.decode_)

    def _every(self, steps: int) -> ZeroOneAdam:
        """The same with an exchange every so many steps."""
        return replace(self, local_step_clipper=steps)

    @property
    def _local(self) -> _Local:
        return _Local()

    # -- an exchange -------------------------------------------------------------------------------

    def transits(self, payload: Payload, ranks: int) -> tuple[Transit, ...]:
        if ranks == 1:
            return ()
        first, *rest = self._signs.transits(payload, ranks)
        work = _passes(payload, BEFORE, KERNELS[1]) + self._summed(payload)
        return (first._replace(encode=work + first.encode), *rest)

    def decode(self, payload: Payload, ranks: int) -> Work:
        if ranks == 1:
            return self._summed(payload) + _passes(payload, BEFORE + AFTER, KERNELS[1] + KERNELS[2])
        return self._signs.decode(payload, ranks) + _passes(payload, AFTER, KERNELS[2])

    def _summed(self, payload: Payload) -> Work:
        """What the local steps of a round add to the sum."""
        return _passes(payload, EACH * self.period, KERNELS[0] * self.period)

    def memory(self, payload: Payload, ranks: int) -> dict[str, float]:
        """As 1-bit Adam's, and the sum of what local steps did."""
        kept = self._signs.memory(payload, ranks)
        return {**kept, "sum of local steps": float(FP32 * payload.elements)}

    def pushed(self, payload: Payload) -> float | None:
        return self._signs.pushed(payload)

    @property
    def learns_alike(self) -> bool:
        return self.local_step_clipper <= PUBLISHED

    def notes(self) -> tuple[str, ...]:
        return (
            "0/1 Adam: BERT, GPT-2 and ImageNet are published to converge as with Adam and 1-bit "
            f"Adam, with rounds of up to {PUBLISHED} local steps (Lu et al., arXiv:2202.06009); "
            f"local_step_clipper is {self.local_step_clipper}",
        )


@record
class _Local(Codec):
    """A local step, in which nothing travels."""

    whole = True

    def transits(self, payload: Payload, ranks: int) -> tuple[Transit, ...]:
        return ()

    def decode(self, payload: Payload, ranks: int) -> Work:
        return _passes(payload, EACH, KERNELS[0])


def _passes(payload: Payload, count: float, kernels: float) -> Work:
    """`count` times the fp32 momentum read or written."""
    return Work(count * FP32 * payload.elements / 2, kernels=kernels)
