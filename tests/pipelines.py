"""Steps of a pipeline as spans, played by a few lines of Python, for the tests of pictures."""

from __future__ import annotations

from collections.abc import Sequence
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
    block = _side_by_side(schedule, lists, micro_batches)
    needs = {act: _needs(act, there, schedule.stages(ranks)) for act in there}
    last = {act: block.get(act, (act,))[-1] for act in there}

    def home(act: Act) -> int:
        return schedule.rank_of(act.stage, ranks)

    def seconds(act: Act) -> float:
        return (
            SECONDS[act.kind] * schedule.pipes / schedule.chunks * (late or {}).get(home(act), 1.0)
        )

    @cache
    def start(act: Act) -> float:
        parts = block.get(act, (act,))
        waits = [
            end(last[other]) + latency * (home(other) != home(act))
            for part in parts[parts.index(act) :]
            for other in needs[part]
        ]
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
            for other in needs[act]:
                if home(other) == rank:
                    continue
                way = "activations" if act.kind == "F" else "gradients"
                stream = f"{way}.{min(act.stage, other.stage)}"
                word, when = spell((other,), schedule.chunks), end(last[other])
                times = (when, when, when + latency)
                spans.append(Span(home(other), stream, f"send.{word}", "send", stream, 1e6, *times))
                spans.append(Span(rank, stream, f"receive.{name}", "receive", stream, 1e6, *times))
    if gradients:
        spans += _end([max(s.end for s in spans if s.rank == r) for r in range(ranks)], gradients)
    return spans


def _side_by_side(
    schedule: Schedule, lists: Sequence[Sequence[Act]], micro_batches: int
) -> dict[Act, tuple[Act, Act]]:
    """What runs side by side: neither begins before both can, both are sent when both are done."""
    return {
        acts[k + n]: (acts[k], acts[k + 1])
        for rank, acts in enumerate(lists)
        for k in schedule.blocks(rank, len(lists), micro_batches)
        for n in (0, 1)
    }


def _needs(act: Act, there: set[Act], along: int) -> list[Act]:
    """Of the operations `there`, those of other stages that `act` waits for; micro-batches pass
    `along` stages."""
    s, m = act.stage, act.micro_batch
    if act.kind == "F":
        return [Act(s - 1, "F", m)] if s % along else []
    if act.kind == "W" or (s + 1) % along == 0:
        return []
    return [a for k in "BI" if (a := Act(s + 1, k, m)) in there]


def _end(ready: list[float], gradients: float) -> list[Span]:
    """The all-reduce that waits for all ranks, and the optimizer."""
    start, spans = max(ready), []
    for rank, when in enumerate(ready):
        done = start + gradients
        spans.append(Span(rank, "world", "AR0", "all_reduce", "world", 4e6, when, start, done))
        spans.append(Span(rank, "compute", "O", "optimizer", "world", 0.0, done, done, done + 1e-3))
    return spans
