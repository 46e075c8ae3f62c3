"""Compressions of four shapes, against closed forms: what is sent, when, and what is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from plugged import plugged
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import dpsim
from dpsim.cases.case import Case
from dpsim.compile.program import Program
from dpsim.core.record import Refused
from dpsim.describe.scenario import load, to_data
from dpsim.play import event, vectorised
from tests.gloo_group import leave

MS = 1e-3
HEAD = """
from dpsim.compile.compression import Compression, Payload, Transit, Work
from dpsim.core.record import record
"""
#: 1 ms to encode and 3 ms to decode what travels as 8 bits
EIGHT = """
@record
class Eight(Compression):
    def transits(self, payload, ranks):
        return (Transit("all_reduce", payload.elements, Work(seconds=1e-3)),)

    def decode(self, payload, ranks):
        return Work(seconds=3e-3)
"""
#: indices and values of a hundredth, chosen in 1 ms
SPARSE = """
@record
class Sparse(Compression):
    def transits(self, payload, ranks):
        kept = 0.01 * payload.elements * ranks
        sent = Transit("all_gather", 8 * kept, Work(seconds=1e-3))
        return (sent, Transit("all_gather", 4 * kept))
"""
#: a factor of rows, from which 2 ms make the factor of columns
LOWRANK = """
@record
class Lowrank(Compression):
    rank: int = 4

    def transits(self, payload, ranks):
        rows = sum(shape[0] for shape in payload.shapes)
        columns = sum(shape[-1] for shape in payload.shapes)
        return (
            Transit("all_reduce", 4 * self.rank * rows, Work(seconds=1e-3)),
            Transit("all_reduce", 4 * self.rank * columns, Work(seconds=2e-3), awaits=True),
        )

    def decode(self, payload, ranks):
        return Work(seconds=3e-3)
"""
#: signs, of which every rank averages its part in 2 ms; what is lost is kept for the next step
SIGNS = """
@record
class Signs(Compression):
    def transits(self, payload, ranks):
        size = payload.elements / 8
        return (
            Transit("all_to_all", size, Work(seconds=1e-3)),
            Transit("all_gather", size, Work(seconds=2e-3), awaits=True),
        )

    def memory(self, payload, ranks):
        return {"error feedback": payload.bytes * (1 + 1 / ranks)}
"""
FILES = {"eight": EIGHT, "sparse": SPARSE, "lowrank": LOWRANK, "signs": SIGNS}


@pytest.fixture(autouse=True)
def _made_up(tmp_path: Path) -> Iterator[None]:
    with plugged("compression", {name: HEAD + text for name, text in FILES.items()}, tmp_path):
        yield


def case_of(hook: Any, layers: int = 1, **rest: Any) -> Case:
    """Layers of 1 ms forward, 2 ms backward and a million parameters, each a bucket, on two ranks;
    a collective takes 1 ms and its bytes at 1 GB/s."""
    layer = {"parameters": 10**6, "forward": "1 ms", "backward": "2 ms"}
    data = {
        "model": {"layers": [{"name": f"l{k}", **layer} for k in range(layers)], "dtype": "fp32"},
        "cluster": {"ranks": 2},
        "collective": {"backend": "ideal", "latency": "1 ms", "bandwidth": "1 GB/s"},
        "strategy": {"kind": "ddp", "bucket_cap_mb": 1, "comm_hook": hook},
        "optimizer": {"kind": "none"},
        **rest,
    }
    return Case(load(data, Path(), "").points[0], Path())


def times(case: Case) -> list[float]:
    (request, *_) = case.plays()
    return [engine.play(request).step_time for engine in (event, vectorised)]


def names(program: Program) -> list[str]:
    return [op.name for op in program.ops]


#: what the communicator is busy with for one bucket, by shape [s]
CHAINS = {
    "eight": 1 * MS + 1e6 / 1e9,
    "sparse": 1 * MS + 16e4 / 1e9 + 1 * MS + 8e4 / 1e9,
    "lowrank": 1 * MS + 16e6 / 1e9 + 2 * MS + 1 * MS + 16e6 / 1e9,
    "signs": 1 * MS + 125e3 / 1e9 + 2 * MS + 1 * MS + 125e3 / 1e9,
}
DECODED = {"eight": 3 * MS, "lowrank": 3 * MS}


@pytest.mark.parametrize("hook", CHAINS)
def test_a_bucket_is_encoded_sent_in_phases_and_decoded(hook: str) -> None:
    """Forward and backward 3 ms, encoding 1 ms, then the transits and decoding."""
    expected = 4 * MS + CHAINS[hook] + DECODED.get(hook, 0.0)
    assert times(case_of(hook)) == pytest.approx([expected] * 2, rel=1e-12)


@pytest.mark.parametrize("hook", CHAINS)
def test_work_between_phases_runs_beside_backward_and_holds_up_the_next_bucket(hook: str) -> None:
    """Backward of l1 ends at 4 ms and its bucket leaves at 5; that of l0 is ready at 8 ms."""
    first = 5 * MS + CHAINS[hook]
    last = max(first, 8 * MS) + CHAINS[hook]
    decoded = DECODED.get(hook, 0.0)
    expected = max(max(first, 8 * MS) + decoded, last) + decoded
    assert times(case_of(hook, layers=2)) == pytest.approx([expected] * 2, rel=1e-12)


def test_phases_of_one_kind_are_told_apart() -> None:
    issued = names(case_of("lowrank").programs.cast(None).programs[0])
    assert issued == ["F0", "B0", "H0", "AR0", "AR0'", "D0", "W", "O"]
    issued = names(case_of("signs").programs.cast(None).programs[0])
    assert issued == ["F0", "B0", "H0", "A2A0", "AG0", "W", "O"]


@pytest.mark.parametrize("hook", CHAINS)
def test_a_stage_of_a_pipeline_compresses_its_own_buckets(hook: str) -> None:
    """Two stages of one layer, each on two replicas.  Forward ends at 3 ms, with 1 ms for the
    activations; backward of stage 1 and its encoding at 6 ms; those of stage 0 at 10 ms, with 1 ms
    for the gradients; then come its transits and decoding."""
    mesh = {"cluster": {"ranks": 4}, "parallel": {"pipeline": 2}}
    expected = 10 * MS + CHAINS[hook] + DECODED.get(hook, 0.0)
    case = case_of(hook, layers=2, **mesh)
    assert times(case) == pytest.approx([expected] * 2, rel=1e-12)


def test_what_a_compression_keeps_is_memory() -> None:
    case = case_of("signs")
    kept = case.scenario.strategy.memory(case.job(1))
    assert kept["error feedback"] == pytest.approx(1.5 * 4e6)
    assert "error feedback" not in case_of("eight").scenario.strategy.memory(case.job(1))


def test_a_compression_has_settings_and_is_written_back() -> None:
    hook = {"kind": "lowrank", "rank": 2}
    case = case_of(hook)
    assert to_data(case.scenario)["strategy"]["comm_hook"] == hook
    expected = 4 * MS + 2 * (1 * MS + 8e6 / 1e9) + 2 * MS + 3 * MS
    assert times(case) == pytest.approx([expected] * 2, rel=1e-12)


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        ("fp8", "strategy.comm_hook: 'fp8' is none of none, fp16, bf16"),
        ({"kind": "lowrnk"}, "strategy.comm_hook.kind: .*did you mean 'lowrank'"),
        ({"kind": "lowrank", "rnk": 2}, "strategy.comm_hook.rnk: .*did you mean 'rank'"),
        ({"rank": 2}, "strategy.comm_hook.kind: is missing"),
    ],
    ids=str,
)
def test_what_is_no_compression_is_refused(hook: Any, message: str) -> None:
    with pytest.raises(Refused, match=message):
        case_of(hook)


@pytest.mark.parametrize(
    ("strategy", "key"),
    [
        ({"kind": "ddp", "comm_hook": "bf16"}, "strategy.comm_hook"),
        ({"kind": "ddp", "comm_hook": {"kind": "bf16"}}, "strategy.comm_hook"),
        ({"kind": "accelerate", "options": {"comm_hook": "bf16"}}, "strategy.comm_hook"),
    ],
    ids=str,
)
def test_the_bf16_hook_is_refused_over_gloo_as_by_torch(strategy: Any, key: str) -> None:
    def over(backend: str, told: Any) -> Case:
        cluster = {"machine": "rack-10gbe", "nodes": 2, "gpus_per_node": 1}
        data = {"model": {"name": "resnet50"}, "cluster": cluster, "strategy": told}
        return Case(
            load({**data, "collective": {"backend": backend}}, Path(), "x").scenario, Path()
        )

    with pytest.raises(Refused, match=f"{key}: torch takes its bf16 hook only with NCCL.*fp16 is"):
        over("gloo", strategy)
    assert over("nccl", strategy)
    assert over("gloo", {"kind": "ddp", "comm_hook": "fp16"})


def test_torch_built_without_nccl_refuses_the_bf16_hook_and_takes_fp16(tmp_path: Path) -> None:
    """The rule itself, asked of the torch that is here."""
    if torch.version.cuda is not None or torch.version.hip is not None:
        pytest.skip("this torch has NCCL")
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.FileStore(str(tmp_path / "s")))
    try:
        wrapped = DistributedDataParallel(torch.nn.Linear(2, 2))
        with pytest.raises(TypeError, match="BF16 all reduce communication hook required"):
            wrapped.register_comm_hook(None, default_hooks.bf16_compress_hook)
        wrapped.register_comm_hook(None, default_hooks.fp16_compress_hook)
    finally:
        leave()


@pytest.mark.parametrize(
    ("parameters", "idle"), [([1000, 8000], True), ([[1000, 800], 8000], False)]
)
def test_powersgd_says_where_it_has_no_matrix(parameters: list[Any], idle: bool) -> None:
    """And quotes no accuracy of what it does not do."""
    layer = {"name": "a", "parameters": parameters, "forward": "1 ms", "backward": "2 ms"}
    data = {
        "model": {"dtype": "fp32", "layers": [layer]},
        "cluster": {"ranks": 4},
        "collective": {"backend": "ideal", "latency": "0 s", "bandwidth": "1 GB/s"},
        "strategy": {"kind": "ddp"},
        "optimizer": {"kind": "none"},
        "compression": {"kind": "powersgd", "rank": 2, "start_iteration": 2},
    }
    warned = [text for text in dpsim.predict(data).warnings if text.startswith("compression: ")]
    assert any("powersgd changes nothing" in text for text in warned) == idle
    assert any("arXiv:1905.13727" in text for text in warned) != idle
