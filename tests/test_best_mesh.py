"""`dpsim plan --choose parallel`: the fastest mesh, found without playing all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dpsim
from dpsim.cases.case import Case
from dpsim.cases.least import at_least
from dpsim.core.record import Refused
from dpsim.core.yamlfile import loads
from dpsim.describe.scenario import load
from dpsim.planning import planned
from dpsim.planning.bench import Bench, bench_of
from dpsim.planning.mesh_bounds import Whole
from dpsim.planning.mesh_search import MeshSearch, exhaustive
from dpsim.planning.mesh_space import MeshSpace, divisors
from dpsim.planning.mesh_times import alone, step_time
from dpsim.play import vectorised
from dpsim.predict.memory import CROWDED, memory_of
from dpsim.predict.player import fastest
from dpsim.predict.point import Point
from dpsim.report.plan import keys_of


def toy(**rest: Any) -> dict[str, Any]:
    """Four layers of which two attend, on eight ranks, for eight samples a step."""
    each = {"parameters": 2_000_000, "forward": "4 ms", "backward": "8 ms", "activation": "1 MiB"}
    work = {"queries": "1 MiB", "keys": "1 MiB", "share": 0.5}
    layers = [{"name": f"l{k}", **each} | ({"attention": work} if k % 2 else {}) for k in range(4)]
    return {
        "model": {"layers": layers},
        "cluster": {"ranks": 8},
        "collective": {"backend": "ideal", "latency": "20 us", "bandwidth": "2 MiB/ms"},
        "strategy": {"kind": "megatron"},
        "batch": {"global": 8},
        "optimizer": {"kind": "none"},
        **rest,
    }


def unlike() -> dict[str, Any]:
    """Two layers exchange alike, and one's attention hides more than it takes: the other's too."""
    found = toy(context={"kind": "all_gather"}, strategy={"kind": "ddp"}, batch={"global": 4})
    for layer, share in zip(found["model"]["layers"][1::2], (0.9, 0.1), strict=True):
        layer["attention"] = {"queries": "1 MiB", "keys": "3 MiB", "share": share}
    return found


def bench(data: dict[str, Any]) -> Bench:
    return bench_of(load(data, Path(), "toy"))


CASES = {
    "as it is": toy(),
    "slow links": toy(
        collective={"backend": "ideal", "latency": "1 ms", "bandwidth": "0.5 MiB/ms"}
    ),
    "all to all": toy(context={"kind": "ulysses"}, strategy={"kind": "ddp"}),
    "layers unlike": unlike(),
}


@pytest.mark.parametrize("name", CASES)
def test_the_search_finds_what_playing_all_finds_and_no_bound_is_above_a_step(name: str) -> None:
    own = bench(CASES[name])
    space = MeshSpace(own.case())
    every = dict(exhaustive(own, space))
    search = MeshSearch(own, space, 3)
    whole = Whole(space, search.case)
    for setting, seconds in every.items():
        case = search.case(setting)
        assert whole.bound(setting) <= at_least(case) * (1 + 1e-9)
        assert at_least(case) <= seconds * (1 + 1e-9)
    fastest = sorted({one.mesh: None for one in every})
    best = {mesh: min(s for o, s in every.items() if o.mesh == mesh) for mesh in fastest}
    found = search.run()
    assert [one.seconds for one in found.meshes()[:3]] == sorted(best.values())[:3]
    assert len(found.timed) < len(every)


#: four nodes of two GPUs behind one NIC: contexts that lie across them share it with FSDP's shards
ONE_NIC: dict[str, Any] = {
    "model": {"huggingface": "llama-3.2-1b-tied", "sequence_length": 8192},
    "cluster": {"machine": "dgx-h100", "nodes": 4, "gpus_per_node": 2, "nics_per_node": 1},
    "strategy": {"kind": "fsdp"},
    "batch": {"global": 4},
    "precision": {"parameters": "fp32", "compute": "bf16"},
}


@pytest.mark.parametrize(
    ("more", "error"),
    [({}, 1e-9), ({"variability": {"jitter": "2 %", "steps": 4}}, 0.02)],
    ids=["all steps alike", "one step of several"],
)
def test_meshes_are_compared_with_the_links_that_they_share(
    more: dict[str, Any], error: float
) -> None:
    own = bench({**ONE_NIC, **more})
    search = MeshSearch(own, MeshSpace(own.case()), 3)
    kept = search.run().meshes()[:3]
    told = [own.point(search.space.change(one.setting)) for one in kept]
    times = [one.step_time_s for one in told if isinstance(one, Point)]
    assert times == [pytest.approx(one.seconds, rel=error) for one in kept]
    assert times == sorted(times)
    cases = [search.case(one.setting) for one in kept]
    assert max(step_time(case) / alone(case) for case in cases) > 1.05


def test_the_number_of_settings_that_are_left_falls_to_what_is_looked_at() -> None:
    """Who waits sees the end coming: what bounds leave out is not counted."""
    own, told = bench(toy()), list[tuple[int, int]]()
    space = MeshSpace(own.case())
    found = MeshSearch(own, space, 3, lambda *at: told.append(at)).run()
    totals = [total for _, total in told]
    assert totals[0] == found.settings == len(list(space.settings()))
    assert sorted(totals, reverse=True) == totals
    assert told[-1] == (totals[-1], totals[-1])
    assert totals[-1] < totals[0]
    assert max(done for done, _ in told) == totals[-1]


def test_settings_keep_ranks_and_global_batch() -> None:
    space = MeshSpace(bench(toy()).case())
    settings = list(space.settings())
    assert {one.split * one.data for one in settings} == {8}
    assert {one.data * one.micro_batch * one.micro_batches for one in settings} == {8}
    assert {one.context for one in settings} == {1, 2, 4, 8}
    assert divisors(12) == [1, 2, 3, 4, 6, 12]


def test_the_answer_says_the_runners_up_and_why_they_lose() -> None:
    found = planned.plan(toy(), choose="parallel")
    answer = found.answer
    assert answer is not None
    assert answer["value"] == min(point["step_time_s"] for point in found.document["points"])
    first = answer["runners_up"][0]
    assert first["slower"] >= 0
    assert first["because"] == max(first["longer"], key=first["longer"].get)
    looked = answer["searched"]
    others = ("played", "slower_by_bound", "too_large", "refused")
    assert looked["settings"] == sum(looked[key] for key in others)


def test_the_answer_can_be_pasted_into_the_scenario() -> None:
    """What is printed reads back to the mesh, and with it the scenario takes the time that is
    said."""
    data = toy()
    found = planned.plan(data, choose="parallel")
    assert found.answer is not None
    pasted, _ = loads(keys_of(found.document), "pasted")
    assert pasted == found.answer["set"]
    (point,) = dpsim.predict(data | pasted).document["points"]
    assert point["step_time_s"] == pytest.approx(found.answer["value"])


def test_calibration_is_of_the_scenarios_own_micro_batches() -> None:
    """Of layers half as long again a measured step of a pipeline tells just that."""
    own = {"parallel": {"pipeline": 2}, "batch": {"global": 8, "per_device": 1}}
    slow = toy(**own)
    for layer in slow["model"]["layers"]:
        layer |= {"forward": "6 ms", "backward": "12 ms"}
    [point] = dpsim.predict(slow).document["points"]
    measured = {"ranks": 8, "step_time": f"{point['step_time_s']!r} s"}
    asked = planned.plan(toy(**own, calibrate=measured), choose="parallel")
    assert any(
        "calibrated on the mesh of the scenario" in text for text in asked.document["warnings"]
    )
    found = asked.answer
    expected = planned.plan(slow, choose="parallel").answer
    assert found is not None
    assert expected is not None
    assert found["value"] == pytest.approx(expected["value"])
    assert found["set"] == expected["set"]


def test_nothing_that_fits_is_told_as_memory() -> None:
    data = toy(
        model={"huggingface": "llama-3.1-405b", "sequence_length": 2048},
        cluster={"machine": "dgx-h100", "nodes": 1}, collective={"backend": "nccl"},
    )  # fmt: skip
    found = planned.plan(data, choose="parallel")
    assert not found.found
    assert found.infeasible is not None
    assert found.infeasible["binds"] == "memory"


def test_refusals_are_told_where_nothing_is_left_that_fits() -> None:
    """What could be tried does not fit, and what would split the model is refused."""
    instances = {"num_distributed_optimizer_instances": 2, "use_distributed_optimizer": True}
    data = toy(
        model={"huggingface": "llama-2-70b", "sequence_length": 4096},
        cluster={"machine": "dgx-h100", "nodes": 1}, collective={"backend": "nccl"},
        strategy={"kind": "megatron", **instances},
    )  # fmt: skip
    found = planned.plan(data, choose="parallel")
    assert not found.found
    told = next(text for text in found.document["warnings"] if "settings are refused" in text)
    assert "strategy.num_distributed_optimizer_instances" in told
    assert "expert parallelism; 1 is accepted" in told


def test_where_no_mesh_fits_what_stands_for_the_nearest_has_the_ranks_that_were_asked_about() -> (
    None
):
    data = toy(
        model={"huggingface": "llama-2-70b", "sequence_length": 4096},
        cluster={"machine": "dgx-h100", "ranks": 1}, collective={"backend": "nccl"},
    )  # fmt: skip
    missed = planned.plan(data, choose="parallel").infeasible
    assert missed is not None
    near = missed["nearest"]
    assert (near["ranks"], near["nodes"], near["error"]) == (1, 1, "no mesh fits in memory")


def test_every_recomputation_that_keeps_less_is_searched_and_named_in_the_question() -> None:
    data = toy(
        model={"huggingface": "llama-3-8b", "sequence_length": 4096},
        cluster={"machine": "dgx-h100", "nodes": 1}, collective={"backend": "nccl"},
    )  # fmt: skip
    own = bench(data)
    space = MeshSpace(own.case())
    tried = {one.recompute for one in space.settings()}
    assert tried == set(space.recomputes()) == {"none", "selective_op", "full"}


def dealt(**batch: Any) -> dict[str, Any]:
    """Two layers on four ranks of which one computes three times as long."""
    layers = [{"name": n, "parameters": 8, "forward": "4 ms", "backward": "8 ms"} for n in "ab"]
    return {
        "model": {"layers": layers}, "cluster": {"ranks": 4}, "collective": {"backend": "free"},
        "strategy": {"kind": "ddp"}, "batch": batch, "variability": {"slow_ranks": {1: 3.0}},
    }  # fmt: skip


@pytest.mark.parametrize("way", [{"by_speed": True}, {"rebalance": {"every": 10}}])
def test_the_best_mesh_deals_samples_as_the_scenario_does(way: dict[str, Any]) -> None:
    own = bench(dealt(**{"global": 64}, **way))
    written = own.point({})
    assert isinstance(written, Point)
    assert written.step_time_s == pytest.approx(0.504)
    answer = planned.plan(dealt(**{"global": 64}, **way), choose="parallel").answer
    assert answer is not None
    # two micro-batches of 32: shares 10, 3, 10, 9 of each; 10 samples of 24 ms, twice
    assert answer["value"] == pytest.approx(0.480)
    assert way.keys() <= answer["set"]["batch"].keys()


def test_samples_that_name_ranks_or_cannot_be_dealt_to_all_are_refused() -> None:
    with pytest.raises(Refused, match="names ranks of this mesh"):
        planned.plan(dealt(per_device=16, per_rank={1: 8}), choose="parallel")
    with pytest.raises(Refused, match="62 is not a multiple of 4 ranks"):
        planned.plan(dealt(**{"global": 62}, by_speed=True), choose="parallel")


def test_tensor_ranks_go_on_holding_whole_experts() -> None:
    whole = bench(toy(parallel={"expert_tensor": 1}))
    space = MeshSpace(whole.case())
    split = next(one for one in space.settings() if one.tensor == 1 and one.pipeline == 2)
    assert space.change(split)["parallel"]["expert_tensor"] == 1


@pytest.mark.parametrize(("tokens", "shared"), [(32, True), (33, False)])
def test_tensor_ranks_share_sequences_that_are_equal_parts(tokens: int, shared: bool) -> None:
    llama = {"huggingface": "llama-3-8b", "sequence_length": tokens}
    own = bench(toy(model=llama, cluster={"ranks": 8}))
    space = MeshSpace(own.case())
    split = next(one for one in space.settings() if one.tensor == 2 and one.context == 1)
    assert space.change(split)["parallel"].get("sequence_parallel", False) is shared


def test_what_is_wanted_of_a_point_is_known_while_searching() -> None:
    slow, limit = CASES["slow links"], 0.027
    own = bench(slow)
    space = MeshSpace(own.case())
    every = [own.point(space.change(one)) for one in space.settings()]
    played = [one for one in every if isinstance(one, Point)]
    good = [one.step_time_s for one in played if one["exposed_communication_s"] <= limit]
    assert min(good) > sorted(one.step_time_s for one in played)[0]
    asked = planned.plan(slow, choose="parallel", require="exposed_communication_s<=27 ms")
    assert asked.answer is not None
    assert asked.answer["value"] == min(good)
    none = planned.plan(slow, choose="parallel", require="step_time_s<=1 us")
    assert none.infeasible is not None
    assert none.infeasible["misses"][0]["require"] == "step_time_s <= 1 us"


def test_less_memory_is_searched_for_and_told_as_what_was_wanted() -> None:
    data = toy(
        model={"huggingface": "llama-3.2-1b-tied", "sequence_length": 1024},
        cluster={"machine": "dgx-h100", "nodes": 1}, collective={"backend": "nccl"},
    )  # fmt: skip
    less = planned.plan(data, choose="parallel", require="memory_bytes<=4 GB")
    assert less.answer is not None  # the four fastest meshes take 5.5 GB and more
    assert less.answer["point"]["memory_bytes"] <= 4e9
    none = planned.plan(data, choose="parallel", require="memory_bytes<=1 MB")
    assert none.infeasible is not None
    assert [miss["require"] for miss in none.infeasible["misses"]] == ["memory_bytes <= 1 MB"]
    with pytest.raises(Refused, match="cost_usd: needs training and price"):
        planned.plan(data, choose="parallel", require="cost_usd<=5 usd")


def test_other_things_to_choose_and_other_questions_are_refused() -> None:
    with pytest.raises(Refused, match="parallel is accepted"):
        planned.plan(toy(), choose="strategy")
    with pytest.raises(Refused, match="--tune: does not go with --choose"):
        planned.plan(toy(), choose="parallel", tune="batch.accumulation")


#: 70 billion parameters on 256 GPUs, of which pipelines of four stages take nearly all memory
LARGE: dict[str, Any] = {
    "model": {"huggingface": "llama-3.1-70b.json", "sequence_length": 8192},
    "cluster": {"machine": "dgx-h100", "nodes": 32},
    "strategy": {"kind": "fsdp"},
    "batch": {"per_device": 2},
    "precision": {"parameters": "fp32", "compute": "bf16", "reduce": "fp32"},
}


def test_pipelines_whose_memory_may_be_full_are_looked_at_only_on_demand() -> None:
    own = bench(LARGE)
    space = MeshSpace(own.case())
    search = MeshSearch(own, space, 3)
    found = (s for s in space.settings() if s.pipeline >= CROWDED)
    full = next(s for s in found if memory_of(search.case(s)).fits == "likely")
    assert search._opened(full) is None
    assert (search.found.crowded, search.found.too_large) == (1, 1)
    bound, surely = MeshSearch(own, space, 3, crowded=True)._opened(full) or (0.0, True)
    assert bound > 0.0
    assert not surely


def test_ranks_that_differ_at_random_are_the_same_in_the_step_of_every_mesh() -> None:
    """A mesh is not faster for being timed over one step, and another over many."""
    varied = {**toy(), "variability": {"jitter": "20 %", "steps": 50}}
    case = Case(load(varied, Path(), "toy").points[0], Path())
    first = replace(case.plays()[0], steps=1, warmup=0)
    assert step_time(case) == vectorised.play(first, sharing=False).step_time
    assert step_time(case) != fastest(case).step_time


def test_a_mesh_that_one_pass_cannot_follow_is_played_event_by_event() -> None:
    """FSDP's pipelines of a model with tied embeddings: two stages hold the table."""
    data = {
        **ONE_NIC,
        "model": {"huggingface": "gpt2", "sequence_length": 1024},
        "cluster": {"machine": "dgx-h100", "nodes": 2, "gpus_per_node": 4, "nics_per_node": 1},
    }
    found = planned.plan(data, choose="parallel")
    assert found.answer is not None
    assert found.answer["searched"]["refused"] == 0
    pipelined = {"parallel": {"pipeline": 4}, "batch": {"global": 4, "accumulation": 2}}
    (point,) = dpsim.predict({**data, **pipelined, "stages": "balanced"}).document["points"]
    assert found.answer["value"] <= point["step_time_s"] * (1 + 1e-9)
