"""One iteration of the script: its marks, and what lies between them."""

from __future__ import annotations

from typing import Any

from .clocks import Counter


class Step:
    """The marks of one iteration; `kind` is warm, plain, detailed or counted."""

    def __init__(self, kind: str, clock: Any) -> None:
        self.kind, self.clock = kind, clock
        self.start = clock.mark()
        self.phase = "forward"
        self.batch: int | None = None
        self.compute = ""
        self.backward_start: Any = None
        self.backward_end: Any = None
        self.optimizer_end: Any = None
        self.end: Any = None
        self.forward: list[list[Any]] = []  # module, start, end
        self.ready: dict[str, Any] = {}
        self.buckets: list[dict[str, Any]] = []

    @property
    def fine(self) -> bool:
        return self.kind in ("detailed", "counted")


def timed(step: Step) -> dict[str, Any]:
    """The marks of a step as seconds since its start."""
    clock = step.clock

    def at(mark: Any) -> Any:
        return None if mark is None else clock.between(step.start, mark)

    return {
        "forward": [[index, at(start), at(end)] for index, start, end in step.forward],
        "backward_start_s": at(step.backward_start),
        "ready_s": {name: at(mark) for name, mark in step.ready.items()},
        "buckets_s": [at(bucket["ready"]) for bucket in step.buckets],
        "backward_end_s": at(step.backward_end),
        "optimizer_end_s": at(step.optimizer_end),
        "end_s": at(step.end),
    }


def worked(step: Step) -> dict[str, Any]:
    """The marks of the counted step: work done since its start."""
    clock = step.clock

    def at(mark: Any) -> Any:
        return clock.between(step.start, mark)

    return {
        "columns": list(Counter.NAMES),
        "forward": [[index, at(start), at(end)] for index, start, end in step.forward],
        "backward_start": at(step.backward_start),
        "ready": {name: at(mark) for name, mark in step.ready.items()},
    }
