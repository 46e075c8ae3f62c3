"""What DeepSpeed's ZeRO-3 gathers, when, and what it keeps.

Rules read in deepspeedai/DeepSpeed deepspeed/runtime/zero/partitioned_param_coordinator.py
(commit edaa7221) and held against runs of 0.19.8, played here in the order in which the host meets
the modules of one forward and backward:

* Fetch.  Before a module all of its parameters that are missing are gathered at once.
* Prefetch.  Once one forward and backward has been recorded: the parameters that follow in the
  trace, until their elements reach min(max_live - live, prefetch_bucket); the one that reaches it
  is taken too, and one already there is passed over.  They are gathered at once.
* Release.  After a module its parameters go.  Once recorded they stay if they are persistent, or
  recur before max_reuse_distance further elements have been traversed, or if the prefetcher passed
  over a later use of them because they were there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class Limits:
    """DeepSpeed's stage3_* settings [elements], as the module's docstring uses them."""

    prefetch_bucket: int
    persistence_threshold: int
    max_live: int
    max_reuse_distance: int


@dataclass(frozen=True)
class Visit:
    """One module of the trace: parameters gathered before it, and ahead of later modules."""

    module: int
    fetch: tuple[int, ...]
    prefetch: tuple[int, ...]


@dataclass(frozen=True)
class VisitTrace:
    """The visits of one forward and backward, and the most elements gathered at any time."""

    visits: tuple[Visit, ...]
    peak: int


def trace(
    order: Sequence[int],
    uses: Sequence[Sequence[int]],
    elements: Sequence[int],
    limits: Limits,
    *,
    recorded: bool,
    resident: bool = True,
) -> VisitTrace:
    """Play the visits of modules in `order`, forward then backward.

    uses      per module, the parameters that it uses
    elements  per parameter
    recorded  whether an earlier forward and backward was recorded
    resident  whether persistent parameters are there from the start
    """
    return _Coordinator(order, uses, elements, limits, recorded, resident).play()


class _Coordinator:
    def __init__(
        self,
        order: Sequence[int],
        uses: Sequence[Sequence[int]],
        elements: Sequence[int],
        limits: Limits,
        recorded: bool,
        resident: bool,
    ) -> None:
        self.order, self.uses, self.elements = order, uses, elements
        self.limits, self.recorded = limits, recorded
        self.persistent = persistent(elements, limits) if recorded else set()
        self.there = set(self.persistent) if resident else set()
        self.live = self.peak = 0
        self.queue = deque((p, step) for step, module in enumerate(order) for p in uses[module])
        self.fetched_for: dict[int, int] = {}
        traversed = [sum(elements[p] for p in uses[module]) for module in order]
        self.before = [0, *accumulate(traversed)]  # elements traversed before each step
        self.next_use = self._next_uses()

    def _next_uses(self) -> list[dict[int, int]]:
        """Per step, where each parameter of its module is used next."""
        found: list[dict[int, int]] = []
        later: dict[int, int] = {}
        for step in reversed(range(len(self.order))):
            own = self.uses[self.order[step]]
            found.append({p: later[p] for p in own if p in later})
            later |= dict.fromkeys(own, step)
        return found[::-1]

    def play(self) -> VisitTrace:
        visits = []
        for step, module in enumerate(self.order):
            fetch = self._gather(self.uses[module])
            ahead = self._prefetch(step) if self.recorded else ()
            visits.append(Visit(module, fetch, ahead))
            self._release(step)
        return VisitTrace(tuple(visits), self.peak)

    def _gather(self, parameters: Sequence[int]) -> tuple[int, ...]:
        missing = tuple(p for p in dict.fromkeys(parameters) if p not in self.there)
        self.there.update(missing)
        self.live += sum(self.elements[p] for p in missing)
        self.peak = max(self.peak, self.live)
        return missing

    def _prefetch(self, step: int) -> tuple[int, ...]:
        while self.queue and self.queue[0][1] <= step:
            parameter, used = self.queue.popleft()
            self.fetched_for[parameter] = max(used, self.fetched_for.get(parameter, -1))
        room = min(self.limits.max_live - self.live, self.limits.prefetch_bucket)
        chosen: list[int] = []
        size = 0
        while self.limits.prefetch_bucket and self.queue and size < room:
            parameter, used = self.queue.popleft()
            self.fetched_for[parameter] = max(used, self.fetched_for.get(parameter, -1))
            if parameter not in self.there and parameter not in chosen:
                chosen.append(parameter)
                size += self.elements[parameter]
        return self._gather(chosen)

    def _release(self, step: int) -> None:
        for parameter in set(self.uses[self.order[step]]) - self.persistent:
            if self.recorded and self._kept(parameter, step):
                continue
            if parameter in self.there:
                self.there.discard(parameter)
                self.live -= self.elements[parameter]

    def _kept(self, parameter: int, step: int) -> bool:
        if self.fetched_for.get(parameter, -1) > step + 1:
            return True
        following = self.next_use[step].get(parameter)
        if following is None:
            return False
        return self.before[following] - self.before[step + 1] < self.limits.max_reuse_distance


def persistent(elements: Sequence[int], limits: Limits) -> set[int]:
    """Parameters so small that they are never given up within a step.

    parameter_offload.py, mark_persistent_parameters (older versions: below the threshold only).
    """
    return {p for p, size in enumerate(elements) if size <= limits.persistence_threshold}
