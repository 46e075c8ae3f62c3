"""Toy jobs and their counts, for tests of strategies."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from dpsim.backends.ideal import Ideal
from dpsim.backends.ideal_ring import IdealRing
from dpsim.compile.program import COMPUTE, Cast, Program
from dpsim.compile.strategies import Job, Strategy
from dpsim.compile.timeline import Timeline
from dpsim.models import Layer, Model, Tensor
from dpsim.models.compute import layer_times
from dpsim.models.precision import Optimizer, Precision
from dpsim.play import Costs, Play
from dpsim.variability import Variability

SIZES = (300_000, 900_000, 2_500_000, 400_000)


def job_of(
    ranks: int,
    *,
    sizes: tuple[int, ...] = SIZES,
    dtype: str = "fp32",
    dtypes: tuple[str, ...] = (),
    backward: tuple[float, ...] = (),
    micro_batches: int = 1,
    control: bool = False,
    **rest: Any,
) -> Job:
    """A job of one tensor a layer; forward takes 1 ms and backward 2 ms unless given."""
    layers = tuple(
        Layer(
            name=f"l{i}",
            tensors=(Tensor("w", (size,)),),
            forward=1e-3,
            backward=backward[i] if backward else 2e-3,
            dtype=dtypes[i] if dtypes else None,  # type: ignore[arg-type]
        )
        for i, size in enumerate(sizes)
    )
    model = Model(name="toy", layers=layers, dtype=dtype)
    times = layer_times(model, None, "fp32", 1, 1, "none")
    precision = Precision(parameters=dtype, compute=dtype)  # type: ignore[arg-type]
    copies = 1e12 if control else None
    return Job(
        model, ranks, times, micro_batches, 1, precision, Optimizer(), control=control,
        **{"copy_bandwidth": copies, "update": 1e-10, **rest},
    )  # fmt: skip


def cast_of(knobs: Strategy, job: Job, iteration: int | None = None) -> Cast:
    program, ranks = knobs.program(job, iteration), job.ranks
    groups = {"world": (tuple(range(ranks)),), **knobs.groups(ranks)}
    return Cast((program,), (0,) * ranks, groups)


def of_70_b(**rest: Any) -> dict[str, Any]:
    """Llama-3-70B over 128 H100, 8 sequences of 8,192 tokens for each: it fits by no one change."""
    return {
        "model": {"huggingface": "llama-3-70b.json", "sequence_length": 8192},
        "cluster": {"machine": "dgx-h100", "nodes": 16},
        "strategy": {"kind": "fsdp"},
        "batch": {"global": 1024},
        "precision": {"parameters": "fp32", "compute": "bf16", "reduce": "fp32"},
        **rest,
    }


def sent(knobs: Strategy, job: Job, iteration: int | None = None) -> dict[str, float]:
    """Bytes that rank 0 sends on rings in a step: payload, padding and control."""
    cast = cast_of(knobs, job, iteration)
    total = dict.fromkeys(("payload", "padding", "control"), 0.0)
    for op in cast.programs[0].ops:
        if op.stream != COMPUTE and op.bytes:
            plan = IdealRing(latency=0.0, bandwidth=1e9).plan(
                op.operation, cast.peers(0, op.group), op.bytes, None
            )
            padding = plan.sent * op.padding / op.bytes
            total["padding"] += padding
            total["control" if op.control else "payload"] += plan.sent - padding
    return total


def volume(program: Program) -> dict[str, float]:
    """Payload bytes by operation, padding left out."""
    total: Counter[str] = Counter()
    for op in program.ops:
        if op.kind == "collective" and not op.control and op.bytes:
            total[op.operation] += op.bytes - op.padding
    return dict(total)


def collectives(program: Program) -> list[tuple[str, float]]:
    return [(op.operation, op.bytes) for op in program.ops if op.kind == "collective" and op.bytes]


def play_of(
    knobs: Strategy, job: Job, *, iteration: int | None = None, jitter: float = 0.0, seed: int = 0
) -> Play:
    """Four steps on collectives of 1 ms and 1 ns a byte."""
    cast, noise = cast_of(knobs, job, iteration), Variability(jitter=jitter)

    def factors(step: int) -> Any:
        return noise.factors(seed, step, job.ranks) if jitter else np.ones(job.ranks)

    costs = Costs(Ideal(latency=1e-3, bandwidth=1e9), None)
    return Play(lambda step: cast, costs, 4, 0, factors)


def spans(timeline: Timeline) -> dict[str, tuple[float, float]]:
    """Start and end of every operation of rank 0 in the last step [s]."""
    return {s.name: (s.start, s.end) for s in timeline.last.spans((0,))}
