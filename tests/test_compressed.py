"""Compressed gradients: bytes, times, what goes before; against closed forms and torch's hooks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks,
    powerSGD_hook,
    quantization_hooks,
)
from torch.nn.parallel import DistributedDataParallel

from dpsim.cases.case import Case
from dpsim.core.record import Refused
from dpsim.describe.scenario import load, read
from dpsim.predict.compressed import compression_gain
from dpsim.predict.prediction import predict
from tests.gloo_group import leave

MS = 1e-3


def toy(compression: Any, parameters: Any = 10**6, **rest: Any) -> Any:
    """One layer of 1 ms forward and 2 ms backward on four ranks; 1 ms and 1 GB/s a collective."""
    layer = {"name": "l", "parameters": parameters, "forward": "1 ms", "backward": "2 ms"}
    data = {
        "model": {"layers": [layer], "dtype": "fp32"},
        "cluster": {"ranks": 4},
        "collective": {"backend": "ideal", "latency": "1 ms", "bandwidth": "1 GB/s"},
        "strategy": {"kind": "ddp"},
        "optimizer": {"kind": "none"},
        "compression": compression,
        **rest,
    }
    return load(data, Path(), "toy")


def case(compression: Any, **rest: Any) -> Case:
    return Case(toy(compression, **rest).points[0], Path())


def point(compression: Any, **rest: Any) -> Any:
    return predict(toy(compression, **rest)).points[0]


#: kind -> what a rank of four sends of a million fp32 gradients, by rings [B]
SENT = {
    "fp16": 1.5 * 2e6,
    "bf16": 1.5 * 2e6,
    "int8": 1.5 * 1e6,
    "one_bit": 1.5 * 125e3,
    "top_k": 3 * 1e4 * 8,
    "random_k": 1.5 * 4e4,
    "dgc": 3 * 1e3 * 12,
    "batched_powersgd": 2 * 1.5 * 4e3,
    "powersgd": 1.5 * 4e6,  # without shapes there is no matrix
    "signsgd": 3 * 125e3,
    "qsgd": 3 * 1e6,
    "terngrad": 3 * 250e3,
}
#: kind -> its collectives
COUNT = {"int8": 2, "one_bit": 2, "top_k": 2, "dgc": 2, "batched_powersgd": 2}


@pytest.mark.parametrize("kind", SENT)
def test_a_rank_sends_what_the_closed_form_says_and_a_toy_codes_at_once(kind: str) -> None:
    found = point(kind)
    assert found["bytes_sent_per_rank"] == pytest.approx(SENT[kind], rel=1e-12)
    job = case(kind).job(1)
    legs = job and case(kind).scenario.strategy.exchange(job, None).messages[0].legs
    assert len(legs) == COUNT.get(kind, 1)
    moved = sum(leg.bytes for leg in legs) / 1e9
    assert found["step_time_s"] == pytest.approx(3 * MS + len(legs) * MS + moved, rel=1e-12)


def test_factors_are_of_matrices_that_become_smaller_and_vectors_go_first() -> None:
    """64 x 64 of rank 16 is no smaller by half; 1-D tensors never are."""
    shapes = [[64, 64], [4096, 1024], 1000]
    together = {"strategy": {"kind": "ddp", "bucket_cap_mb": 100}}
    found = case({"kind": "powersgd", "rank": 16}, parameters=shapes, **together)
    (message,) = found.scenario.strategy.exchange(found.job(1), None).messages
    assert [leg.bytes for leg in message.legs] == [4 * 5096.0, 64 * 4096.0, 64 * 1024.0]
    always = {"kind": "powersgd", "rank": 16, "min_compression_rate": 1.5}
    found = case(always, parameters=shapes, **together)
    (message,) = found.scenario.strategy.exchange(found.job(1), None).messages
    assert [leg.bytes for leg in message.legs] == [4 * 1000.0, 64 * 4160.0, 64 * 1088.0]


def test_iterations_before_the_start_are_dense() -> None:
    """torch counts from 0: with start_iteration 6 the seventh is the first with factors."""
    compression = {"kind": "batched_powersgd", "start_iteration": 6}
    times = [point(compression, iteration=k)["step_time_s"] for k in (5, 6, 7)]
    assert times[:2] == pytest.approx([3 * MS + 1 * MS + 4 * MS] * 2, rel=1e-12)
    assert times[2] == pytest.approx(3 * MS + 2 * (1 * MS + 4e-6), rel=1e-12)


def test_dgc_becomes_sparse_by_and_by() -> None:
    """Densities 0.1 % ^ (k/6) in five stages of two steps, and 0.1 % from then on."""
    compression = {"kind": "dgc", "warm_up_steps": 10, "index": "int32"}
    sent = [point(compression, iteration=k)["bytes_sent_per_rank"] for k in (1, 2, 3, 10, 11)]
    densities = [0.001 ** (k / 6) for k in (1, 1, 2, 5, 6)]
    assert sent == pytest.approx([3 * 8e6 * density for density in densities], rel=1e-3)


def test_dgc_gathers_every_rank_s_elements_most_of_them_first() -> None:
    """Values and int64 places of four ranks; in the first stage 0.1 % ^ (1/6) of them."""
    for warm_up, density in ((0, 0.001), (10, 0.001 ** (1 / 6))):
        found = predict(toy({"kind": "dgc", "warm_up_steps": warm_up})).points[0]
        assert found.memory.parts["gathered elements"] == pytest.approx(
            4 * 1e6 * density * 12, rel=1e-5
        )


def test_a_run_counts_the_warm_up() -> None:
    """Of 1000 steps 150 take 8 ms and 850 take 5.25 ms; `explain` says so without a sweep."""
    training = {"samples": 4000, "largest_batch": 4}
    compression = {"kind": "one_bit", "warm_up": "15 %"}
    found = predict(toy(compression, training=training))
    assert found.points[0]["time_to_train_s"] == pytest.approx(0.15 * 8 + 0.85 * 5.25, rel=1e-12)
    (shown,) = found.explain().points
    assert shown.compression.run_speedup == pytest.approx(8 / (1.2 + 4.4625), rel=1e-12)


def test_a_run_that_ends_within_the_warm_up_is_told_so() -> None:
    """1000 steps, of which the first 100,000 would be warm-up, and of which 150 are."""
    training = {"samples": 4000, "largest_batch": 4}
    (said,) = [text for text in predict(toy("one_bit", training=training)).warnings
               if "the whole run is warm-up" in text]  # fmt: skip
    assert "lasts 100,000 steps and the run 1,000 on 4 ranks" in said
    settled = predict(toy({"kind": "one_bit", "warm_up": "15 %"}, training=training)).warnings
    assert not any("the whole run" in text for text in settled)


def test_worked_runs_are_as_much_faster_as_published() -> None:
    """6.6 times after 15 %, 6.2 times after 25 %: 3.58 and 2.70 (1-bit Adam)."""
    for name, speedup in (("bert", 1 / (0.15 + 0.85 / 6.6)), ("squad", 1 / (0.25 + 0.75 / 6.2))):
        _, compressed = predict(read(f"worked/compression_warm_up_{name}")).points
        assert compressed["training_speedup"] == pytest.approx(speedup, rel=1e-9)


def test_a_break_even_is_where_both_steps_take_equally_long() -> None:
    """1 + 4/x = 1 + 2/x + 1 ms: at twice the bandwidth, 2 GB/s."""
    gain = compression_gain(case({"kind": "fp16", "encode": "0.6 ms", "decode": "0.4 ms"}), None)
    assert gain is not None
    assert gain.wins_below == pytest.approx(2.0, rel=1e-9)
    assert gain.wins_below_bandwidth == pytest.approx(2e9, rel=1e-9)
    assert gain.throughput_gain == pytest.approx(8 / 7 - 1, rel=1e-9)
    lost = compression_gain(case({"kind": "fp16", "encode": "4 ms"}), None)
    assert lost is not None
    assert lost.throughput_gain == pytest.approx(8 / 10 - 1, rel=1e-9)
    assert lost.wins_below == pytest.approx(0.5, rel=1e-9)


def test_top_k_breaks_even_at_a_density_of_one_over_the_ranks() -> None:
    gain = compression_gain(case("top_k"), None)
    assert gain is not None
    assert gain.break_even_density == 1 / 4


def test_servers_take_what_they_can_add_up() -> None:
    """A push and a pull of n/8 bytes, N of them on one server's link; factors are refused."""
    served = {"collective": {"backend": "parameter_server", "bandwidth": "1 GB/s"}}
    found = point("one_bit", **served)
    assert found["step_time_s"] == pytest.approx(3 * MS + 2 * 4 * 125e3 / 1e9, rel=1e-12)
    with pytest.raises(Refused, match=r"compression: .* cannot add up what powersgd sends"):
        point("powersgd", parameters=[[1000, 1000]], **served)


def test_horovod_enqueues_gradients_as_fp16() -> None:
    horovod = {"strategy": {"kind": "horovod", "cycle_time": 0}}
    assert point("fp16", **horovod)["bytes_sent_per_rank"] == 1.5 * 2e6
    assert point("none", **horovod)["bytes_sent_per_rank"] == 1.5 * 4e6


@pytest.mark.parametrize(
    ("compression", "rest", "message"),
    [
        ("top_k", {"strategy": {"kind": "fsdp"}}, "compression: top_k is not modelled with fsdp"),
        ("top_k", {"strategy": {"kind": "horovod"}}, "compression: Horovod has no top_k"),
        ("one_bit", {"strategy": {"kind": "zero"}}, "compression: one_bit is not modelled with"),
        ("fp16", {"strategy": {"kind": "ddp", "comm_hook": "fp16"}}, "compression: says the same"),
        ({"kind": "powersgd", "start_iteration": 1}, {}, "compression.start_iteration: 1 is too"),
        ({"kind": "top_k", "density": 0}, {}, "compression.density: "),
        ({"kind": "one_bit", "warm_up": 0.1, "freeze_step": 3}, {}, "compression.warm_up: says"),
        ("onebit", {}, "compression: .*did you mean 'one_bit'"),
        ("onebit_lamb", {}, "compression: 'onebit_lamb' is not modelled"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(compression: Any, rest: Any, message: str) -> None:
    with pytest.raises(Refused, match=message):
        toy(compression, **rest)


@pytest.mark.parametrize("kind", ["fp16", {"kind": "powersgd", "rank": 2}, "top_k"], ids=str)
def test_a_hook_means_the_same_as_the_key_at_the_top(kind: Any) -> None:
    shapes = [[512, 256], 512]
    hook = {"strategy": {"kind": "ddp", "comm_hook": kind}}
    there, here = point("none", parameters=shapes, **hook), point(kind, parameters=shapes)
    for key in ("step_time_s", "bytes_sent_per_rank", "memory_bytes"):
        assert there[key] == here[key]


def test_a_gpu_stands_still_until_powersgd_has_decoded_a_bucket() -> None:
    """Whatever comes after a bucket's launch begins when its factors have arrived."""
    data = {
        "model": {"name": "resnet50"},
        "cluster": {"machine": "rack-10gbe", "nodes": 2, "gpus_per_node": 1},
        "strategy": {"kind": "ddp"},
        "compression": {"kind": "powersgd", "rank": 2},
    }

    def operations(**more: Any) -> list[str]:
        made = Case(load({**data, **more}, Path(), "x").scenario, Path())
        return [op.name for op in made.programs.cast(None).programs[0].ops]

    names = operations()
    assert names.index("D0") < names.index("AR1") < names.index("D1")
    names = operations(collective={"backend": "gloo"})
    assert names.index("AR1") < names.index("D0")


# -- torch's own hooks ----------------------------------------------------------------------------


class Net(torch.nn.Module):
    """Matrices that become factors, one that does not, a convolution, and vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 40, 5)
        self.second = torch.nn.Linear(40, 300)
        self.third = torch.nn.Linear(300, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.third(self.second(self.first(x).mean((2, 3)))).sum()


SHAPES = {"first": [[40, 3, 5, 5], 40], "second": [[300, 40], 300], "third": [[4, 300], 4]}


def top_k_hook(share: float) -> Callable[..., Any]:
    """Values, then places, of the largest elements of a bucket, gathered."""

    def gathered(bucket: Any) -> Any:
        buffer = bucket.buffer()
        places = buffer.abs().topk(max(1, int(share * buffer.numel()))).indices.to(torch.int32)
        for sent in (buffer[places.long()], places):
            dist.all_gather([torch.empty_like(sent)], sent)
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(buffer)
        return done

    return lambda state, bucket: gathered(bucket)


class Done:
    """A collective that has been carried out when it is issued; what follows in callbacks is then
    done at once, as with NCCL's futures."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def get_future(self) -> torch.futures.Future[Any]:
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(self.value)
        return future

    def wait(self) -> None:
        """It has ended."""


def recorded(
    register: Callable[[Any], None], monkeypatch: Any, folder: Path
) -> list[tuple[str, int]]:
    """What torch sends in a late iteration; an all-gather's as if there were four ranks."""
    sent: list[tuple[str, int]] = []

    def all_reduce(tensor: torch.Tensor, *args: Any, **rest: Any) -> Any:
        sent.append(("all_reduce", tensor.numel() * tensor.element_size()))
        return Done([tensor])

    def all_gather(out: list[torch.Tensor], tensor: torch.Tensor, *args: Any, **rest: Any) -> Any:
        sent.append(("all_gather", 4 * tensor.numel() * tensor.element_size()))
        out[0].copy_(tensor)
        return Done([out])

    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "s")), rank=0, world_size=1)
    try:
        wrapped = DistributedDataParallel(Net(), bucket_cap_mb=0.02)
        monkeypatch.setattr(dist, "all_reduce", all_reduce)
        monkeypatch.setattr(dist, "all_gather", all_gather)
        register(wrapped)
        for _ in range(4):
            sent.clear()
            wrapped(torch.randn(2, 3, 8, 8)).backward()
    finally:
        monkeypatch.undo()
        leave()
    return [one for one in sent if one[1]]


def low_rank(rank: int) -> Callable[[Any], None]:
    return lambda made: made.register_comm_hook(
        powerSGD_hook.PowerSGDState(None, rank, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook
    )


REAL: list[tuple[Any, Callable[[Any], None]]] = [
    *(({"kind": "powersgd", "rank": rank}, low_rank(rank)) for rank in (1, 2, 3, 4)),
    ("fp16", lambda made: made.register_comm_hook(None, default_hooks.fp16_compress_hook)),
    (
        {"kind": "top_k", "density": 0.05},
        lambda made: made.register_comm_hook(None, top_k_hook(0.05)),
    ),
    (
        {"kind": "int8", "exchange": "all_gather"},
        lambda made: made.register_comm_hook(None, quantization_hooks.quantization_pertensor_hook),
    ),
]


@pytest.mark.parametrize(("compression", "register"), REAL, ids=[str(kind) for kind, _ in REAL])
def test_collectives_are_those_of_torchs_hooks(
    compression: Any, register: Callable[[Any], None], monkeypatch: Any, tmp_path: Path
) -> None:
    """Order and bytes, bucket by bucket, but for torch's reductions of nothing."""
    layers = [
        {"name": name, "parameters": shapes, "forward": "1 ms", "backward": "1 ms"}
        for name, shapes in SHAPES.items()
    ]
    data = {
        "model": {"layers": layers, "dtype": "fp32"},
        "cluster": {"machine": "rack-10gbe", "nodes": 4, "gpus_per_node": 1},
        "collective": {"backend": "gloo"},
        "strategy": {"kind": "ddp", "bucket_cap_mb": 0.02},
        "compression": compression,
    }
    made = Case(load(data, Path(), "x").scenario, Path())
    ops = made.programs.cast(None).programs[0].ops
    ours = [(op.operation, int(op.bytes)) for op in ops if op.kind == "collective"]
    assert ours == recorded(register, monkeypatch, tmp_path)


@pytest.mark.parametrize(("kind", "unsure"), [("top_k", True), ("fp16", False), ("one_bit", False)])
def test_a_time_to_train_says_where_nobody_knows_what_compressing_costs(
    kind: str, unsure: bool
) -> None:
    layer = {"name": "a", "parameters": 1000, "forward": "1 ms", "backward": "1 ms"}
    data = {
        "model": {"layers": [layer], "dtype": "fp32"},
        "cluster": {"ranks": 2},
        "collective": {"backend": "ideal", "latency": "0 s", "bandwidth": "1 GB/s"},
        "strategy": {"kind": "ddp"},
        "optimizer": {"kind": "none"},
        "compression": kind,
        "training": {"samples": 1000},
    }
    found = predict(load(data, Path(), "")).warnings
    assert any("no published table bounds how many more" in text for text in found) is unsure
