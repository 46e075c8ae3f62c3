"""Drawn meshes of toys on ideal links, played by both engines and by a third player."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from numpy import array
from plain_player import PlainPlayer

from dpsim.backends.ideal import Ideal
from dpsim.cases.case import Case
from dpsim.compile import pipeline
from dpsim.compile.program import Cast
from dpsim.describe.scenario import load
from dpsim.play import Costs, NotApplicable, Play, event, vectorised

LATENCY, BANDWIDTH, TOLERANCE = 1e-4, 5e9, 1e-9
#: strategies, and whether they take a pipeline
STRATEGIES: tuple[tuple[dict[str, Any], bool], ...] = (
    ({"kind": "ddp", "bucket_cap_mb": 4}, True),
    ({"kind": "zero", "stage": 1}, True),
    ({"kind": "zero", "stage": 2, "overlap_comm": True}, False),
    ({"kind": "zero", "stage": 3}, False),
    ({"kind": "megatron", "use_distributed_optimizer": True, "overlap_grad_reduce": True}, True),
    (
        {
            "kind": "megatron",
            "use_distributed_optimizer": True,
            "overlap_grad_reduce": True,
            "overlap_param_gather": True,
        },
        True,
    ),
    ({"kind": "horovod"}, True),
    ({"kind": "fsdp"}, True),
    ({"kind": "fsdp", "reshard_after_forward": False}, True),
    ({"kind": "fsdp", "shard": 2}, True),
    ({"kind": "fsdp1"}, False),
)
SCHEDULES = ("naive", "gpipe", "one_f_one_b", "interleaved_1f1b", "looped_bfs", "zb1p", "zb2p",
             "zbv", "dualpipe_v", "dualpipe")  # fmt: skip
CHUNKS = {"interleaved_1f1b": 2, "looped_bfs": 2, "zbv": 2, "dualpipe_v": 2}


def drawn(seed: int) -> dict[str, Any]:
    """A scenario on at most 16 ranks that is split along one axis at least."""
    draw = random.Random(seed)
    strategy, piped = draw.choice(STRATEGIES)
    axes = [1, 1, 1, draw.choice((1, 2, 2))]
    for _ in range(draw.choice((1, 2, 2, 3))):
        axes[draw.randrange(3)] *= 2
    tensor, pipeline, context, data = axes
    if not piped:
        tensor, pipeline = tensor * pipeline, 1
    kind = draw.choice(SCHEDULES) if pipeline > 1 else "one_f_one_b"
    stages = pipeline * CHUNKS.get(kind, 1)
    parallel: dict[str, Any] = {"tensor": tensor, "pipeline": pipeline, "context": context}
    parallel["order"] = draw.sample(["tensor", "context", "data", "pipeline"], 4)
    if tensor > 1 and draw.random() < 0.5:
        parallel["sequence_parallel"] = True
        parallel["async_tensor_parallel"] = draw.random() < 0.5
    if tensor > 1 and (over := draw.choice((None, False, True))) is not None:
        parallel["overlap_tensor_gradients"] = over
    parallel["blocking_sends"] = draw.random() < 0.2
    sparse = context * data > 1 and draw.random() < 0.4
    if sparse:
        parallel["expert"] = 2
    found: dict[str, Any] = {
        "model": {"layers": [_layer(draw, k, sparse=sparse) for k in range(2 * stages)]},
        "cluster": {"ranks": tensor * pipeline * context * data},
        "parallel": parallel,
        "context": {"kind": draw.choice(("ring", "all_gather", "ulysses"))},
        "strategy": strategy,
        "batch": {"accumulation": 2 * pipeline * draw.choice((1, 1, 2))},
        "collective": {"backend": "ideal", "latency": "0.1 ms", "bandwidth": "5 GB/s"},
        "optimizer": {"kind": "none"},
        "recompute": draw.choice(("none", "full")),
    }
    if pipeline > 1:
        found["schedule"] = {"kind": kind}
    return found


def _layer(draw: random.Random, number: int, *, sparse: bool) -> dict[str, Any]:
    """An attending layer, or one with or without experts."""
    found: dict[str, Any] = {
        "name": f"l{number}", "parameters": draw.randrange(1, 2_000_000), "activation": "1 MiB",
        "forward": f"{draw.uniform(0.1, 2)} ms", "backward": f"{draw.uniform(0.1, 4)} ms",
    }  # fmt: skip
    if number % 2 == 0:
        sizes = {key: f"{draw.randrange(1, 4)} MiB" for key in ("queries", "keys")}
        return found | {"attention": {**sizes, "share": draw.random(), "heads": 8}}
    if sparse:
        whole = max(8, found["parameters"] // 8 * 8)
        found |= {"experts": 8, "experts_per_token": 2, "parameters": whole}
    return found


def disagreements(seed: int) -> tuple[list[str], bool]:
    """What is not alike in what three players say of the mesh of `seed`, ranks being of unlike
    speed, and whether the vectorised engine plays it.

    Raises Refused where such a mesh is none."""
    case = Case(load(drawn(seed), Path(), "drawn").points[0], Path())
    found, taken = _compared(case.programs.asked, seed)
    whole = PlainPlayer([case.programs.asked], [[1.0] * case.ranks], LATENCY, BANDWIDTH).play()
    folded = event.play(case.plays()[0]).durations[:1]  # of ranks that do the same one plays
    return found + _unlike("ranks as one", folded, whole), taken


def whole_and_split(
    strategy: dict[str, Any], micro_batches: int
) -> tuple[list[float], list[float]]:
    """Three steps of a job on four replicas: as it is, and compiled as a mesh of one rank each."""
    data = drawn(0) | {
        "cluster": {"ranks": 4}, "parallel": {}, "strategy": strategy,
        "batch": {"accumulation": micro_batches},
    }  # fmt: skip
    del data["schedule"]
    case = Case(load(data, Path(), "drawn").points[0], Path())
    programs = case.programs
    split = pipeline.cast(programs.layout, case.scenario.strategy, case.shares, programs.stage_job)
    one, other = (
        PlainPlayer([cast] * 3, [[1.0] * 4] * 3, LATENCY, BANDWIDTH).play()
        for cast in (programs.asked, split)
    )
    return one, other


def _compared(cast: Cast, seed: int) -> tuple[list[str], bool]:
    draw, steps = random.Random(seed), 2
    factors = [[draw.uniform(1.0, 1.5) for _ in range(cast.ranks)] for _ in range(steps)]
    plain = PlainPlayer([cast] * steps, factors, LATENCY, BANDWIDTH)
    theirs = plain.play()
    costs = Costs(Ideal(latency=LATENCY, bandwidth=BANDWIDTH), None)
    play = Play(lambda k: cast, costs, steps, 0, lambda k: array(factors[k]))
    timeline, found, taken = event.play(play), [], True
    found += _unlike("event", timeline.durations, theirs)
    for rank in range(cast.ranks):
        role, column = timeline.last.place(rank)
        ours = [float(end[column]) for end in timeline.last.end[role]]
        wanted = [plain.end[steps - 1, rank, i] for i in range(len(cast.program(rank).ops))]
        found += _unlike(f"event, rank {rank}", ours, wanted)
    try:
        found += _unlike("vectorised", vectorised.play(play).durations, theirs)
    except NotApplicable:
        taken = False
    return found, taken


def _unlike(who: str, ours: Any, theirs: Any) -> list[str]:
    pairs = zip(ours, theirs, strict=True)
    off = [f"{who}: {a!r} and {b!r}" for a, b in pairs if abs(a - b) > TOLERANCE * max(a, b, 1e-6)]
    return off[:2]
