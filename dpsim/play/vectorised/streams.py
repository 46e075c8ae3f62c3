"""When the communicators' streams of a role are free."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpsim.play.vectorised.slowing import Column, Value, at, latest


class Streams:
    """When the workers of every stream are free, soonest first; each stream has `width` of them."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._free: dict[str, tuple[Value, ...]] = {}

    def copied(self) -> Streams:
        """The same, to go on with separately."""
        other = Streams(self.width)
        other._free = dict(self._free)
        return other

    def of_rank(self, column: Column) -> Streams:
        """Those of one rank of the role, or of several."""
        other = Streams(self.width)
        other._free = {
            stream: tuple(at(time, column) for time in times)
            for stream, times in self._free.items()
        }
        return other

    @property
    def alike(self) -> bool:
        """Whether they are the same for all ranks."""
        return all(isinstance(time, float) for times in self._free.values() for time in times)

    @property
    def times(self) -> Iterator[Value]:
        """When each worker is, stream by stream."""
        for name in sorted(self._free):
            yield from self._free[name]

    def busy(self, time: float) -> bool:
        """Whether any is after `time`."""
        return any(latest(each) > time for each in self.times)

    def free(self, stream: str) -> Value:
        """When the first worker of a stream is."""
        return self._free[stream][0] if stream in self._free else 0.0

    def occupy(self, stream: str, end: Value) -> None:
        """Its first worker is busy until `end`."""
        if self.width == 1:
            self._free[stream] = (end,)
            return
        times = [*self._free.get(stream, (0.0,) * self.width)[1:], end]
        if all(isinstance(time, float) for time in times):
            self._free[stream] = tuple(sorted(times))
        else:
            self._free[stream] = tuple(np.sort(np.stack(np.broadcast_arrays(*times)), axis=0))
