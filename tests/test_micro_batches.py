"""A global batch in micro-batches of a fixed size: how many there are follows from the replicas, as
in Megatron (--global-batch-size, --micro-batch-size) and DeepSpeed (train_batch_size,
train_micro_batch_size_per_gpu)."""

from __future__ import annotations

from typing import Any

import pytest

import dpsim
from dpsim.core.record import Refused
from dpsim.predict.advice import with_advice
from dpsim.report.bending import bend
from dpsim.report.points import run_columns

LAYER = {"parameters": 1_000_000, "forward": "1 ms", "backward": "2 ms", "activation": "0 B"}
TOY: dict[str, Any] = {
    "model": {"layers": [{"name": f"l{i}", **LAYER} for i in range(4)]},
    "cluster": {"ranks": 8},
    "collective": {"backend": "ideal", "latency": "1 ms", "bandwidth": "10 GB/s"},
    "strategy": {"kind": "megatron"},
    "optimizer": {"kind": "none"},
}


def points(**changes: Any) -> list[Any]:
    return dpsim.predict({**TOY, **changes}).document["points"]


@pytest.mark.parametrize("engine", ["event", "vectorised"])
@pytest.mark.parametrize("mesh", [{}, {"tensor": 2}, {"pipeline": 2}, {"tensor": 2, "pipeline": 4}])
def test_a_step_is_that_of_the_micro_batches_counted_by_hand(
    mesh: dict[str, int], engine: str
) -> None:
    split = mesh.get("tensor", 1) * mesh.get("pipeline", 1)
    for ranks in (8, 16, 32):
        same = {"cluster": {"ranks": ranks}, "parallel": mesh, "engine": engine}
        [follows] = points(batch={"global": 64, "per_device": 2}, **same)
        by_hand = {"global": 64, "accumulation": 64 * split // (2 * ranks)}
        [given] = points(batch=by_hand, **same)
        assert follows["step_time_s"] == given["step_time_s"]
        assert follows["global_batch"] == 64
        assert follows["memory_bytes"] == given["memory_bytes"]


def test_bubbles_grow_as_replicas_share_the_micro_batches() -> None:
    """(p - 1) passes of p + m - 1, of m = global / (per_device x replicas) micro-batches (Narayanan
    et al., arXiv:2104.04473, section 2.2)."""
    found = points(
        batch={"global": 64, "per_device": 1}, parallel={"pipeline": 4},
        sweep={"cluster.ranks": [4, 8, 16, 32]},
        collective={"backend": "free"},
    )  # fmt: skip
    shares = [point["bubble_s"] / point["step_time_s"] for point in found]
    assert shares == pytest.approx([3 / (3 + m) for m in (64, 32, 16, 8)])


def test_a_table_has_bubbles_where_there_are_some() -> None:
    heads = [
        run_columns(
            dpsim.predict(
                {**TOY, "batch": {"global": 64, "per_device": 1}, "parallel": mesh}
            ).points
        )[0]
        for mesh in ({}, {"pipeline": 4})
    ]
    assert ["bubble" in head for head in heads] == [False, True]


def test_a_mesh_says_where_it_bends_and_what_has_grown() -> None:
    """Of 4 stages and 64, 16 and 8 micro-batches a step is bubble for 3 of m + 3 passes."""
    found = dpsim.predict(
        {
            **TOY, "batch": {"global": 64, "per_device": 1}, "parallel": {"pipeline": 4},
            "collective": {"backend": "free"}, "sweep": {"cluster.ranks": [4, 16, 32]},
        }
    )  # fmt: skip
    assert bend(found.answer) == [
        "Efficiency first falls below 90 % at 16 ranks, where 15.8 % of the step is pipeline "
        "bubble (4.5 % at the first)."
    ]
    alone = dpsim.predict({**TOY, "batch": {"per_device": 1}, "parallel": {"pipeline": 4},
                           "collective": {"backend": "free"},
                           "sweep": {"cluster.ranks": [4, 8]}})  # fmt: skip
    assert bend(alone.answer) == ["Efficiency stays above 90 % (lowest 100 % at 4 ranks)."]


def test_strong_scaling_says_what_is_held() -> None:
    found = dpsim.predict({**TOY, "batch": {"global": 64, "per_device": 2}}).document
    assert (found["scaling"], found["held_constant"]) == (
        "strong", "global batch of 64 samples, in micro-batches of 2",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("point", "same"),
    [
        # the scenario's own batch on so many ranks
        ({"ranks": 16}, {"global": 64, "accumulation": 2}),
        # so many micro-batches of the scenario's size, whatever the global batch is then
        ({"ranks": 16, "accumulation": 4}, {"per_device": 2, "accumulation": 4}),
        ({"ranks": 16, "per_device": 4}, {"global": 64, "accumulation": 1}),
        ({"ranks": 16, "global": 32}, {"global": 32, "accumulation": 1}),
        ({"ranks": 16, "global": 32, "accumulation": 2}, {"global": 32, "accumulation": 2}),
        ({"ranks": 16, "global": 64, "per_device": 1}, {"global": 64, "accumulation": 4}),
    ],
)
def test_a_measured_point_has_the_batch_that_it_says(
    point: dict[str, int], same: dict[str, int]
) -> None:
    machine = {
        "model": {"huggingface": "gpt2.json", "sequence_length": 1024},
        "cluster": {"machine": "dgx-a100", "nodes": 1}, "collective": {"backend": "nccl"},
    }  # fmt: skip
    levels = [
        dpsim.predict(
            {
                **TOY,
                **machine,
                "batch": batch,
                "calibrate": {"points": [{"step_time": "1 s", **at}]},
            }
        ).document["points"][0]["step_time_s"]
        for batch, at in (
            ({"global": 64, "per_device": 2}, point),
            ({"global": 64, "accumulation": 4}, {"ranks": 16, **_all_of(same)}),
        )
    ]
    assert levels[0] == pytest.approx(levels[1], rel=1e-12)


def _all_of(batch: dict[str, int]) -> dict[str, int]:
    return {"accumulation": 1, **batch}


def test_advice_names_keys_that_can_be_set() -> None:
    """A smaller micro-batch keeps less, and the number of them follows, as with fewer replicas."""
    found = dpsim.predict(
        {
            "model": {"huggingface": "llama-3-8b.json", "sequence_length": 8192},
            "cluster": {"machine": "dgx-h100", "nodes": 1}, "strategy": {"kind": "fsdp"},
            "batch": {"global": 64, "per_device": 8}, "recompute": "full",
            "precision": {"parameters": "fp32", "compute": "bf16", "reduce": "fp32"},
        }
    )  # fmt: skip
    changes = [one["changes"] for one in with_advice(found)["advice"]]
    assert changes[:2] == [["batch.per_device: 1"], ["parallel.tensor: 4"]]


# -- questions ------------------------------------------------------------------------------------


def scenario(**changes: Any) -> dict[str, Any]:
    data = {
        "model": {"huggingface": "gpt2.json", "sequence_length": 1024}, "strategy": {"kind": "ddp"},
        "cluster": {"machine": "dgx-a100", "nodes": 2}, "batch": {"global": 512, "per_device": 4},
        "precision": {"parameters": "bf16", "compute": "bf16"},
    }  # fmt: skip
    return {**data, **changes}


def test_values_that_do_not_divide_the_batch_are_passed_over() -> None:
    """Of 1 to 16 nodes of eight, 1, 2, 4, 8 and 16 take 512 samples in micro-batches of four."""
    step = dpsim.predict(scenario(cluster={"machine": "dgx-a100", "nodes": 4})).document["points"][
        0
    ]
    wanted = f"step_time_s<={step['step_time_s'] * 1.01}s"
    found = dpsim.plan(scenario(), require=wanted, vary="cluster.nodes=1:16").document
    assert found["answer"]["at_least"]["value"] == 4
    assert [point["set"]["cluster.nodes"] for point in found["points"]] == [1, 2, 4, 8, 16]
    assert any("are passed over" in text for text in found["warnings"])
    with pytest.raises(Refused, match="at none of 9 to 15 is"):
        dpsim.plan(scenario(), require=wanted, vary="cluster.nodes=9:15")


def test_a_mesh_is_chosen_where_the_scenarios_own_does_not_divide_the_batch() -> None:
    data = scenario(
        cluster={"machine": "dgx-a100", "nodes": 3}, batch={"global": 48, "per_device": 4}
    )
    answer = dpsim.plan(data, choose="parallel").document["answer"]
    assert answer["set"]["batch"]["global"] == 48


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"largest": "batch.global"}, "divisors alone are accepted"),
        ({"tune": "batch.accumulation"}, "follows from batch.global and batch.per_device"),
    ],
)
def test_questions_with_no_answer_are_refused_by_name(asked: dict[str, str], said: str) -> None:
    with pytest.raises(Refused, match=said):
        dpsim.plan(scenario(), **asked)  # type: ignore[arg-type]


def test_a_law_starts_from_as_many_micro_batches_as_a_step_has() -> None:
    """On one rank and two of a batch of 18 in threes, as where six are stated."""
    same = {"cluster": {"ranks": 3}, "strategy": {"kind": "ddp"}}
    laws = [
        dpsim.predict({**TOY, **same, "batch": batch}).document["laws"]
        for batch in ({"global": 18, "per_device": 2}, {"global": 18, "accumulation": 3})
    ]
    assert laws[0]["amdahl"] is not None
    assert laws[0] == laws[1]


def test_what_is_held_is_what_all_points_share() -> None:
    found = dpsim.predict(
        {**TOY, "batch": {"global": 64, "per_device": 2}, "sweep": {"batch.per_device": [1, 2]}}
    )
    assert found.document["held_constant"] == "global batch of 64 samples"


def test_fewer_nodes_take_the_batch_unevenly_where_a_run_goes_on_without_some() -> None:
    """Of four nodes three are left: 48 samples in the eight micro-batches of a step."""
    data = scenario(
        cluster={"machine": "dgx-a100", "nodes": 4}, batch={"global": 256, "per_device": 1},
        training={"tokens": 1e10}, failures={"node": {"mtbf": "2000 h"}}, strategy={"kind": "fsdp"},
        checkpoint={"mode": "free"},
        recovery={"kind": "torchft"},
    )  # fmt: skip
    stated = {**data, "batch": {"global": 256, "accumulation": 8}}
    goodputs = [dpsim.predict(one).document["points"][0]["goodput"] for one in (data, stated)]
    assert goodputs[0] == goodputs[1]


def test_more_micro_batches_than_a_step_may_have_are_refused_where_they_come_from() -> None:
    with pytest.raises(Refused, match="200,000 micro-batches follow from it and per_device"):
        points(cluster={"ranks": 1}, batch={"global": 200_000, "per_device": 1})
