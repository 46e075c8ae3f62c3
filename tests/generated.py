"""Whole scenarios, made at random: models, clusters, strategies with their knobs, backends, meshes,
schedules, variability.

`scenario` builds one from a source of choices; `scenarios` is that as a Hypothesis strategy (it
shrinks), `seeded` as a function of a number.  Most of what is made is accepted; what is refused
has to be refused well, and the tests look at that too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from dpsim.cases.case import Case
from dpsim.core import plugins
from dpsim.describe.scenario import load
from dpsim.predict.prediction import Prediction, predict

T = TypeVar("T")
Data = dict[str, Any]

#: machines, and the most ranks that are asked of each here
MACHINES = {
    "dgx-a100": 64,
    "dgx-h100": 64,
    "rack-10gbe": 16,
    "four-rtx4090": 4,
    "two-rtx3090": 2,
    "dgx-1v": 16,
    "v100-1x100g": 32,
}
#: what a knob that is no flag and no choice may be; None leaves it out
NUMBERS: dict[str, tuple[Any, ...]] = {
    "torch": ("2.0", "2.4", "2.13"),
    "horovod": ("0.19", "0.28"),
    "bucket_cap_mb": (0.5, 3, 25, 400),
    "bucket_cap_mb_list": ([1, 4], [0.5]),
    "backup_workers": (1, 2),
    "shard": (2, 4),
    "reduce_scatter_max_input_buffers": (1, 3),
    "cycle_time": (0, 0.5, 5),
    "fusion_threshold": (0, 4_000_000, 10**9),
    "cache_capacity": (0, 1024),
    "reduce_bucket_size": (1e5, 2e6, 5e8),
    "partition_size": (2, 4),
    "stage3_prefetch_bucket_size": (0, 1e5, 5e7),
    "stage3_param_persistence_threshold": (0, 1e5),
    "stage3_max_live_parameters": (1e5, 1e9),
    "stage3_max_reuse_distance": (0, 1e6),
    "zero_hpz_partition_size": (2, 4),
    "local_world_size": (2, 4),
    "bucket_size": (1, 10**6, 10**8),
    "num_distributed_optimizer_instances": (1, 2),
    "num_packs": (0, 1, 3),
    "bytes_per_pack": (0, 10**6),
    "xla_gpu_all_reduce_combine_threshold_bytes": (0, 10**6, 31_457_287),
    "logged": (0, 3),
    "launch": ("0 s", "5 us"),
    "replicate": ("0 s", "14 us"),
    "host_latency": ("0 s", "50 us"),
    "request_cost": ("0 s", "1 us"),
    "report_latency": ("1 ms",),
}
SCHEDULES = ("gpipe", "one_f_one_b", "interleaved_1f1b", "zb1p", "looped_bfs", "zbv", "naive",
             "dualpipe_v")  # fmt: skip
DISTRIBUTIONS: dict[str, Data] = {
    "bernoulli": {"probability": 0.1, "factor": 3.0},
    "exponential": {"tail": 0.2},
    "gamma": {"spread": 0.2},
    "lognormal": {"spread": 0.3},
    "normal": {"spread": 0.05},
    "pareto": {"tail_index": 4.0},
    "uniform": {"low": 0.5, "high": 1.5},
}


class Source(Protocol):
    """Where choices come from."""

    def whole(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`."""

    def one_of(self, options: Sequence[T]) -> T:
        """One of `options`; the first is the plainest."""


class Seeded:
    """Choices of Python's own generator."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def whole(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def one_of(self, options: Sequence[T]) -> T:
        return self._random.choice(options)


class Drawn:
    """Choices of Hypothesis, which makes them plainer where a test fails."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw

    def whole(self, low: int, high: int) -> int:
        found: int = self._draw(st.integers(low, high))
        return found

    def one_of(self, options: Sequence[T]) -> T:
        return options[self.whole(0, len(options) - 1)]


def chance(source: Source, percent: int) -> bool:
    return source.whole(1, 100) > 100 - percent


# -- parts --------------------------------------------------------------------------------------


def explicit(source: Source, fewest: int = 1, most: int = 6) -> Data:
    """Layers with durations of their own, some of them zero, and parameters, some of them none."""
    layers = []
    for k in range(source.whole(fewest, most)):
        layer: Data = {
            "name": f"l{k}",
            "parameters": source.one_of((1000, 0, 250_000, 3_000_000, [100_000, 64])),
            "forward": f"{source.one_of((1000, 0, 130, 3210))} us",
        }
        if chance(source, 20):
            layer |= {"backward_input": "700 us", "backward_weight": "300 us"}
        else:
            layer["backward"] = f"{source.one_of((2000, 0, 310, 7100))} us"
        if chance(source, 30):
            layer["activation"] = f"{source.whole(1, 4000)} kB"
        layers.append(layer)
    model: Data = {"layers": layers, "dtype": source.one_of(("fp32", "bf16"))}
    if chance(source, 10):
        model["forward_order"] = [layer["name"] for layer in reversed(layers)]
    return model


def model_on_machine(source: Source) -> Data:
    kind = source.one_of(("explicit", "transformer", "transformer", "resnet50"))
    if kind == "resnet50":
        return {"name": "resnet50"}
    if kind == "explicit":
        return explicit(source)
    return {
        "name": "transformer",
        "hidden": source.one_of((256, 512)),
        "blocks": source.one_of((2, 4)),
        "heads": 8,
        "sequence_length": 128,
        "family": source.one_of(("gpt2", "bert", "llama")),
        "vocabulary": source.one_of((1000, 30_000)),
    }


def knobs(source: Source, kind: str) -> Data:
    """A few of the knobs of strategy `kind`, changed."""
    found: Data = {}
    record = plugins.find("strategies", kind)
    hints = get_type_hints(record)
    for name in (field.name for field in fields(record)):
        if name == "options" or not chance(source, 15):
            continue
        hint = hints[name]
        kinds = (hint, *get_args(hint))
        choices = next((get_args(h) for h in kinds if get_origin(h) is Literal), ())
        if choices:
            found[name] = source.one_of(choices)
        elif name in NUMBERS:
            found[name] = source.one_of(NUMBERS[name])
        elif bool in kinds:
            found[name] = source.one_of((True, False))
    return found


def toy_backend(source: Source) -> Data:
    kind = source.one_of(("ideal", "ideal_ring", "free", "parameter_server"))
    if kind == "free":
        return {"backend": "free"}
    latency = source.one_of((100, 0, 1, 900))
    found: Data = {"backend": kind, "latency": f"{latency} us"}
    if chance(source, 80):
        found["bandwidth"] = f"{source.one_of((10, 1, 80))} GB/s"
    if kind == "parameter_server":
        found["servers"] = source.one_of((1, 3))
    return found


def backend_on_machine(source: Source) -> Data | None:
    kind = source.one_of(("nccl", "nccl", "gloo", "mpi", "ideal", "free"))
    if kind == "nccl":
        found: Data = {"backend": "nccl"}
        if chance(source, 30):
            found["algorithm"] = source.one_of(("ring", "tree", "hierarchical"))
        if chance(source, 10):
            found["fitted"] = False
        return found if len(found) > 1 or chance(source, 50) else None
    if kind == "ideal":
        return {"backend": "ideal", "latency": "50 us", "bandwidth": "12 GB/s"}
    if kind == "mpi":
        return {"backend": "mpi", "shared_memory": "8 GB/s"}
    return {"backend": kind}


def factor(source: Source) -> Data:
    kind = source.one_of(tuple(DISTRIBUTIONS))
    return {"kind": kind, **DISTRIBUTIONS[kind]}


def variability(source: Source, ranks: int, nodes: bool) -> Data:
    """One to three causes."""
    causes: Data = {"steps": source.whole(3, 8)}
    per = ("rank", "step", "node") if nodes else ("rank", "step")
    cures = ("none", "packing", "sorting", "bucketing")
    often = ({"every": 3}, {"interval": "20 ms"})
    make: dict[str, Callable[[], Any]] = {
        "jitter": lambda: source.one_of((0.05, factor(source))),
        "slow_ranks": lambda: {source.whole(0, ranks - 1): source.one_of((1.5, 0.8, 3.0))},
        "random_slow": lambda: {"probability": 0.2, "factor": 2.0, "per": source.one_of(per)},
        "shared": lambda: {"factor": factor(source), "per": "node" if nodes else "all"},
        "co_tenant": lambda: {"share": 0.5, "probability": 0.3, "episode": source.whole(1, 3)},
        "pauses": lambda: {"duration": "2 ms", **source.one_of(often)},
        "sequence_length": lambda: {"spread": 0.4, "cure": source.one_of(cures)},
        "slow_nodes": lambda: {0: 1.3},
        "preset": lambda: source.one_of(("megascale", "greyhound", "llama3")),
    }
    for kind in sorted({source.one_of(tuple(make)) for _ in range(source.whole(1, 3))}):
        if nodes or kind != "slow_nodes":
            causes[kind] = make[kind]()
    return causes


def batch(source: Source, ranks: int) -> Data:
    accumulation = source.one_of((1, 1, 2, 4))
    if chance(source, 25):
        return {
            "global": accumulation * (ranks * source.whole(1, 3) + source.whole(0, ranks - 1)),
            "accumulation": accumulation,
        }
    return {"per_device": source.whole(1, 4), "accumulation": accumulation}


def mesh(source: Source, ranks: int, *, tensors: bool, toy: bool) -> Data:
    """`parallel`, `schedule` and what they need of the model and the batch."""
    divisors = [d for d in (2, 4, 8) if ranks % d == 0]
    if not divisors:
        return {}
    tensor = source.one_of([1, *(d for d in (2, 4) if ranks % d == 0)]) if tensors else 1
    left = [d for d in divisors if ranks % (d * tensor) == 0 and d <= 4]
    pipeline = source.one_of(left) if left and (tensor == 1 or chance(source, 60)) else 1
    found: Data = {"tensor": tensor, "pipeline": pipeline}
    if chance(source, 30):
        found["order"] = source.one_of(
            (["data", "tensor", "pipeline"], ["pipeline", "data", "tensor"])
        )
    if tensor > 1 and chance(source, 30):
        found["sequence_parallel"] = True
    if chance(source, 15):
        found["blocking_sends"] = True
    result: Data = {"parallel": found, "batch": {"accumulation": pipeline * source.whole(1, 3)}}
    chunks = 1
    if pipeline > 1:
        kind = source.one_of(SCHEDULES)
        result["schedule"] = {"kind": kind}
        chunks = 2 if kind in ("interleaved_1f1b", "looped_bfs", "zbv", "dualpipe_v") else 1
        if kind == "dualpipe_v":
            result["batch"]["accumulation"] = 2 * pipeline
    if toy:
        many = pipeline * chunks
        result["model"] = explicit(source, many, many)
        result["model"].pop("forward_order", None)
    elif pipeline * chunks > 1:
        result["stages"] = "balanced"
    return result


# -- whole scenarios ----------------------------------------------------------------------------


def scenario(source: Source, *, varied: int = 25) -> Data:
    """A scenario of one point, as plain data; so many per cent vary from rank to rank."""
    toy = chance(source, 60)
    ranks = source.one_of((2, 1, 3, 4, 6, 8, 8, 16, 64))
    data: Data = {}
    if toy:
        data |= {
            "model": explicit(source),
            "cluster": {"ranks": ranks},
            "collective": toy_backend(source),
        }
    else:
        machine = source.one_of(tuple(MACHINES))
        ranks = min(ranks, MACHINES[machine])
        data |= {
            "model": model_on_machine(source),
            "cluster": {"machine": machine, "ranks": ranks},
            "precision": {"parameters": "fp32", "compute": source.one_of(("fp16", "fp32"))},
        }
        if backend := backend_on_machine(source):
            data["collective"] = backend
    kind = source.one_of(("ddp", *plugins.names("strategies")))
    data["strategy"] = {"kind": kind, **knobs(source, kind)}
    data["batch"] = batch(source, ranks)
    data["optimizer"] = {"kind": source.one_of(("none", "sgd", "momentum", "adam"))}
    if chance(source, 25):
        split = data["model"].get("name") == "transformer"
        shape = mesh(source, ranks, tensors=toy or split, toy=toy)
        if shape:
            data |= shape
            data["strategy"] = {"kind": source.one_of(("ddp", "megatron", "zero"))}
    return data | _rest(source, ranks, nodes=not toy, varied=varied)


def _rest(source: Source, ranks: int, *, nodes: bool, varied: int) -> Data:
    """What most scenarios leave out."""
    data: Data = {}
    if chance(source, varied):
        data["variability"] = variability(source, ranks, nodes)
    if chance(source, 20):
        data["recompute"] = source.one_of(("selective", "full"))
    if chance(source, 10):
        data["host"] = {"serial": "2 ms"}
    if chance(source, 15):
        data["compute"] = {"contention": source.one_of((0.3, 1.0))}
    if chance(source, 10):
        data["iteration"] = source.whole(1, 5)
    if chance(source, 10):
        data["seed"] = source.whole(0, 1000)
    return data


def scenarios(*, varied: int = 25) -> st.SearchStrategy[Data]:
    return st.composite(lambda draw: scenario(Drawn(draw), varied=varied))()


def seeded(seed: int, *, varied: int = 25) -> Data:
    return scenario(Seeded(seed), varied=varied)


# -- answers ------------------------------------------------------------------------------------


def predicted(data: Data) -> Prediction:
    """The prediction of `data`; Refused or SimulationError as it comes."""
    return predict(load(data, Path(), "generated"))


def case_of(data: Data) -> Case:
    return Case(load(data, Path(), "generated").points[0], Path())
