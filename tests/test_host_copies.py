"""Batches are copied to the devices over PCIe links, which collectives use too."""

from __future__ import annotations

from typing import Any

import pytest

from dpsim.core.record import Refused
from dpsim.predict.point import Point
from dpsim.predict.prediction import predict

#: of a DGX-1: from a socket to a switch, and from there to a GPU [B/s]; a GPU's link [s]
RATE, LATENCY = 12e9, 2.85e-6
MB60 = {"sample_bytes": "60 MB"}


def scenario(copy: dict[str, Any] | None, nodes: int = 1, **more: Any) -> dict[str, Any]:
    """A step of 5 ms on DGX-1s, whose batches of one sample are copied so."""
    layer = {"name": "b", "parameters": 25_000_000, "forward": "5 ms", "backward": "0 s"}
    return {
        "model": {"layers": [layer]},
        "cluster": {"machine": "dgx-1v", "nodes": nodes},
        "collective": {"backend": "free"},
        "strategy": {"kind": "ddp"},
        "optimizer": {"kind": "none"},
        "compute": {"spread": 0},
        "input": {"limiting": False, **({"copy": copy} if copy else {})},
        **more,
    }


def point(copy: dict[str, Any] | None, nodes: int = 1, **more: Any) -> Point:
    """The one point of it."""
    (found,) = predict(scenario(copy, nodes, **more)).points
    assert isinstance(found, Point)
    return found


def test_gpus_behind_a_switch_share_its_way_to_the_socket() -> None:
    two, one = (point(MB60, cluster={"machine": "dgx-1v", "ranks": n}) for n in (2, 1))
    assert two.step_time_s == pytest.approx(5e-3 + 120e6 / RATE + LATENCY)
    assert one.step_time_s == pytest.approx(5e-3 + 60e6 / RATE + LATENCY)


def test_copying_ahead_is_among_the_what_ifs() -> None:
    shown = predict(scenario(MB60)).explain()["points"][0]
    gains = {each["change"]: each["step_time_s"] for each in shown["what_if"]}
    assert gains["batches copied ahead, from pinned memory"] == pytest.approx(10e-3 + LATENCY)


def test_copies_are_a_cause_of_their_own_beside_a_loader() -> None:
    """A batch takes 20 ms to load and, on eight GPUs, 10 ms to copy, of a step of 5 ms of work:
    what the loader loses is what copies leave of it."""
    given = {"loader": "torch", "workers": 1, "decode": "20 ms", "copy": MB60}
    shown = predict(scenario(None, input=given)).explain()["points"][0]["blame"]
    assert shown["quiet_s"] == pytest.approx(5e-3)
    without = {one["cause"]: one["step_time_without_s"] for one in shown["causes"]}
    assert without["input"] == pytest.approx(15e-3 + LATENCY)
    assert without["copy"] == pytest.approx(20e-3)
    assert sum(one["loss_s"] for one in shown["causes"]) == pytest.approx(15e-3)


def test_a_loader_does_not_hide_copies_from_the_interval() -> None:
    """Loaded at once, a batch is copied all the same."""
    quick = {"loader": "torch", "workers": 8, "decode": "1 us", "copy": MB60}
    fed, plain = point(None, input=quick), point(MB60)
    assert fed.interval.high == pytest.approx(plain.interval.high, rel=1e-3)
    assert fed.interval.low == pytest.approx(plain.interval.low, rel=1e-3)


def test_pageable_memory_is_copied_twice() -> None:
    pageable = point({**MB60, "memory": "pageable", "staging": "6 GB/s"})
    assert pageable.step_time_s == pytest.approx(5e-3 + 10e-3 + 10e-3 + LATENCY)


@pytest.mark.parametrize("parallel", [None, {"pipeline": 2}])
def test_a_rate_of_staging_that_is_assumed_is_a_cause_by_name(
    parallel: dict[str, Any] | None,
) -> None:
    """Each rank of the first stage copies at 6.1 GB/s, or in 0.67 to 3.05 times the time."""
    split = {"model": {"layers": LAYERS}, "parallel": parallel} if parallel else {}
    assumed = point({**MB60, "memory": "pageable"}, **split)
    stated = point({**MB60, "memory": "pageable", "staging": "6.1 GB/s"}, **split)
    assert assumed.step_time_s == stated.step_time_s
    low, high = assumed.interval.causes.pop("staging (assumed)")
    assert assumed.interval.causes == stated.interval.causes
    copied = 60e6 / 6.1e9 / stated.step_time_s
    assert (low, high) == pytest.approx((1 - 3.0 / 9.1 * copied, 1 + 4.1 / 2.0 * copied))


@pytest.mark.parametrize(("size", "step"), [(24e6, 5e-3), (90e6, 15e-3 + LATENCY)])
def test_copies_ahead_are_hidden_until_they_take_longer_than_the_step(
    size: float, step: float
) -> None:
    found = point({"sample_bytes": f"{size} B", "ahead": True})
    assert found.step_time_s == pytest.approx(step)


def test_copies_and_messages_between_nodes_share_the_links_of_the_gpus() -> None:
    """Gradients are sent when copies begin; every byte of both crosses a GPU's own link."""
    early = {"name": "b", "parameters": 200_000_000, "forward": "0 s", "backward": "1 us"}
    given: dict[str, Any] = {
        "nodes": 2,
        "model": {"layers": [early]},
        "collective": {"backend": "nccl"},
    }
    copy = {"sample_bytes": "200 MB", "ahead": True}
    alone, both = point(None, **given), point(copy, **given)
    copying = 400e6 / RATE
    assert alone.engine == both.engine == "event"
    assert both.step_time_s > alone.step_time_s * 1.02
    assert max(alone.step_time_s, copying) < both.step_time_s < alone.step_time_s + copying
    assert both.sent == alone.sent


def test_computing_is_not_slowed_beside_a_copy() -> None:
    slowed = {
        "compute": {"contention": 0.5, "spread": 0},
        "cluster": {"machine": "dgx-1v", "ranks": 1},
    }
    found = point({"sample_bytes": "50 MB", "ahead": True}, **slowed)
    assert found.step_time_s == pytest.approx(5e-3)


LAYERS = [{"name": n, "parameters": 1000, "forward": "1 ms", "backward": "2 ms"} for n in "abcd"]
GPT = {"name": "gpt2", "sequence_length": 64}
BOTH = pytest.mark.parametrize("engine", ["event", "vectorised"])


def lost(copy: dict[str, Any], parallel: dict[str, Any], **more: Any) -> float:
    """What copying four samples of every replica adds to a step of ranks that share a model."""
    given = {"model": {"layers": LAYERS}, "batch": {"per_device": 1, "accumulation": 4}, **more}
    plain, copied = (point(one, parallel=parallel, **given) for one in (None, copy))
    return copied.step_time_s - plain.step_time_s


@BOTH
@pytest.mark.parametrize(
    ("parallel", "behind"),
    [
        ({"pipeline": 2}, 2),  # ranks 0 to 3 have the first stage, two of them behind a switch
        ({"pipeline": 4}, 2),
        ({"pipeline": 8}, 1),
        ({"pipeline": 4, "order": ["pipeline", "tensor", "data"]}, 1),  # ranks 0 and 4
    ],
)
def test_ranks_of_the_first_stage_copy_all_micro_batches(
    parallel: dict[str, Any], behind: int, engine: str
) -> None:
    layers = [{**one, "name": f"{one['name']}{k}"} for one in LAYERS for k in range(2)]
    found = lost(MB60, parallel, engine=engine, model={"layers": layers})
    assert found == pytest.approx(behind * 4 * 60e6 / RATE + LATENCY)


@BOTH
@pytest.mark.parametrize("parallel", [{"tensor": 2}, {"tensor": 2, "pipeline": 2}])
def test_every_rank_that_splits_layers_copies_whole_samples(
    parallel: dict[str, Any], engine: str
) -> None:
    found = lost(MB60, parallel, engine=engine, model=GPT)
    assert found == pytest.approx(2 * 4 * 60e6 / RATE + LATENCY)


def test_two_pipelines_from_either_end_copy_half_of_the_samples_each() -> None:
    """On eight GPUs, ranks 0, 1 and 6, 7 begin with four of the eight samples."""
    batch = {"per_device": 1, "accumulation": 8}
    found = lost(MB60, {"pipeline": 4}, batch=batch, schedule={"kind": "dualpipe"})
    assert found == pytest.approx(2 * 4 * 60e6 / RATE + LATENCY)


def test_copies_ahead_of_the_next_step_hide_in_a_pipeline_until_they_take_longer() -> None:
    hidden = {"sample_bytes": "1 MB", "ahead": True}
    assert lost(hidden, {"pipeline": 4}) == pytest.approx(0.0, abs=1e-12)
    longer = point(
        {**MB60, "ahead": True}, parallel={"pipeline": 4},
        model={"layers": LAYERS}, batch={"per_device": 1, "accumulation": 4},
    )  # fmt: skip
    assert longer.step_time_s == pytest.approx(2 * 4 * 60e6 / RATE + LATENCY)


def test_the_last_node_may_have_fewer_ranks_than_it_has_gpus() -> None:
    given: dict[str, Any] = {"cluster": {"machine": "dgx-1v", "ranks": 9}}
    found = point(MB60, **given).step_time_s - point(None, **given).step_time_s
    assert found == pytest.approx(120e6 / RATE + LATENCY)


@pytest.mark.parametrize(
    ("copy", "more", "said"),
    [
        ({}, {}, r"input\.copy\.sample_bytes: is missing"),
        ({"sample_bytes": "0 B"}, {}, r"input\.copy\.sample_bytes: "),
        ({**MB60, "memory": "shared"}, {}, r"input\.copy\.memory: 'shared'"),
        ({**MB60, "memory": "pageable", "ahead": True}, {}, r"input\.copy\.ahead: "),
        (MB60, {"cluster": {"ranks": 4}}, r"input\.copy: copies go over the PCIe links"),
        (MB60, {"strategy": {"kind": "local_sgd", "period": 4}}, r"input\.copy: copies are"),
    ],
)
def test_what_is_not_known_of_copies_is_refused(
    copy: dict[str, Any], more: dict[str, Any], said: str
) -> None:
    layers = [{"name": n, "parameters": 1, "forward": "1 ms", "backward": "1 ms"} for n in "ab"]
    given: dict[str, Any] = {"model": {"layers": layers}, **more}
    with pytest.raises(Refused, match=said):
        point(copy or {"memory": "pinned"}, **given)
