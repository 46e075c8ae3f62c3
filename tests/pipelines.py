"""Steps of a pipeline as spans, played by a few lines of Python, for the tests of pictures."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

from dpsim.compile.schedules import Act, Schedule, spell
from dpsim.compile.timeline import Span

SECONDS = {"F": 1e-3, "B": 2e-3, "I": 1e-3, "W": 1e-3}


def step(
    schedule: Schedule,
    ranks: int,
    micro_batches: int,
    *,
    latency: float = 0.0,
    gradients: float = 0.0,
    late: dict[int, float] | None = None,
) -> list[Span]:
    """Every operation of a step: equal stages, transfers that take `latency`, then an all-reduce
    of `gradients` seconds and an optimizer.  A rank of `late` takes so many times longer."""
    lists = schedule.lists(ranks, micro_batches)
    before = {b: a for acts in lists for a, b in pairwise(acts)}
    there = {act for acts in lists for act in acts}

    def home(act: Act) -> int:
        return schedule.rank_of(act.stage, ranks)

    def seconds(act: Act) -> float:
        return SECONDS[act.kind] / schedule.chunks * (late or {}).get(home(act), 1.0)

    @cache
    def start(act: Act) -> float:
        waits = [end(other) + latency * (home(other) != home(act)) for other in _needs(act, there)]
        return max([0.0, *waits, *([end(before[act])] if act in before else [])])

    @cache
    def end(act: Act) -> float:
        return start(act) + seconds(act)

    spans = []
    for rank, acts in enumerate(lists):
        for act in acts:
            name = spell((act,), schedule.chunks)
            kind = "forward" if act.kind == "F" else "backward"
            spans.append(
                Span(rank, "compute", name, kind, "world", 0.0, start(act), start(act), end(act))
            )
            for other in _needs(act, there):
                if home(other) == rank:
                    continue
                way = "activations" if act.kind == "F" else "gradients"
                stream = f"{way}.{min(act.stage, other.stage)}"
                sent = spell((other,), schedule.chunks)
                times = (end(other), end(other), end(other) + latency)
                spans.append(Span(home(other), stream, f"send.{sent}", "send", stream, 1e6, *times))
                spans.append(Span(rank, stream, f"receive.{name}", "receive", stream, 1e6, *times))
    if gradients:
        spans += _end([max(s.end for s in spans if s.rank == r) for r in range(ranks)], gradients)
    return spans


def _needs(act: Act, there: set[Act]) -> list[Act]:
    """Of the operations `there`, those of other stages that `act` waits for."""
    s, m = act.stage, act.micro_batch
    if act.kind == "F":
        return [Act(s - 1, "F", m)] if s else []
    return [] if act.kind == "W" else [a for k in "BI" if (a := Act(s + 1, k, m)) in there]


def _end(ready: list[float], gradients: float) -> list[Span]:
    """The all-reduce that waits for all ranks, and the optimizer."""
    start, spans = max(ready), []
    for rank, when in enumerate(ready):
        done = start + gradients
        spans.append(Span(rank, "world", "AR0", "all_reduce", "world", 4e6, when, start, done))
        spans.append(Span(rank, "compute", "O", "optimizer", "world", 0.0, done, done, done + 1e-3))
    return spans
