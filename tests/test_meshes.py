"""Sharded data parallelism where layers are split over ranks: what every group gathers and
reduces, and when."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from mesh_orders import orders

from dpsim.cases.case import Case
from dpsim.compile.program import Op, Program
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.predict.player import before_reducing
from dpsim.predict.prediction import Prediction, predict

WALKS: list[dict[str, Any]] = [
    {"kind": "fsdp"},
    {"kind": "fsdp", "reshard_after_forward": True},
    {"kind": "fsdp", "shard": 2},
    {"kind": "fsdp1"},
    {"kind": "fsdp1", "sharding_strategy": "HYBRID_SHARD", "shard": 2},
    {"kind": "zero", "stage": 2},
    {"kind": "zero", "stage": 3, "zero_hpz_partition_size": 2},
    {"kind": "horovod"},
]
#: those that torch or DeepSpeed run with a pipeline too
PIPED = [0, 1, 2, 7]


def toy(
    strategy: dict[str, Any], ranks: int, micro_batches: int = 1, layers: int = 4, **rest: Any
) -> dict[str, Any]:
    """Layers of 1, 2, … times 128 Ki parameters over rings of 0.1 ms and 10 MiB/ms."""
    spec = {"forward": "1 ms", "backward": "2 ms", "activation": "4096 B"}
    own = [{"name": f"l{k}", "parameters": 131072 * (k + 1), **spec} for k in range(layers)]
    return {
        "model": {"dtype": "fp32", "layers": own},
        "cluster": {"ranks": ranks},
        "collective": {"backend": "ideal_ring", "latency": "0.1 ms", "bandwidth": "10 MiB/ms"},
        "strategy": strategy,
        "optimizer": {"kind": "none"},
        "batch": {"accumulation": micro_batches},
        **rest,
    }


def predicted(data: dict[str, Any]) -> Prediction:
    return predict(load(data, Path(), "toy"))


def programs(data: dict[str, Any]) -> tuple[Program, ...]:
    return Case(load(data, Path(), "toy").points[0], Path()).programs.cast(None).programs


def exchanged(program: Program, group: str) -> list[Op]:
    """What a rank exchanges with the other replicas."""
    return [op for op in program.ops if op.exchanges and op.group.partition(".")[0] == group]


# -- tensor parallelism ---------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", WALKS, ids=str)
def test_replicas_exchange_a_tensor_ranks_part_as_if_it_were_the_model(
    strategy: dict[str, Any],
) -> None:
    """What replicas send each other is what they would with a model of half the size alone."""
    split = toy(strategy, 8, parallel={"tensor": 2})
    alone = toy(strategy, 4)
    for layer in alone["model"]["layers"]:
        layer |= {"parameters": layer["parameters"] // 2, "forward": "0.5 ms", "backward": "1 ms"}
    (mesh,), (plain,) = programs(split), programs(alone)
    names = {"": "data", "world": "data"}
    own = [op for op in mesh.ops if op.exchanges and op.group != "world"]
    found = [(op.operation, op.bytes, op.group.partition(".")[0]) for op in own]
    told = [op for op in plain.ops if op.exchanges and not op.control]
    expected = [(op.operation, op.bytes, names.get(op.group, op.group)) for op in told]
    assert [one for one in found if one[2] != "tensor"] == expected


def test_ranks_of_a_tensor_group_sum_behind_every_layer_and_compute_waits() -> None:
    (program,) = programs(toy({"kind": "fsdp"}, 4, layers=2, parallel={"tensor": 2}))
    sums = [op.name for op in exchanged(program, "tensor")]
    assert sums == ["AR.F0", "AR.F1", "AR.B1", "AR.B0"]
    ops = program.ops
    for k, op in enumerate(ops):
        if op.group.startswith("tensor"):
            following = next(one for one in ops[k:] if one.on_device)
            assert k in following.after


@pytest.mark.parametrize("strategy", ["fsdp", "ddp"])
def test_sums_of_a_tensor_group_reduce_nothing_over_replicas(strategy: str) -> None:
    """A forward of four layers and one layer's backward come first, halved by two tensor ranks:
    4 x 1 ms + 2 ms, and half of that."""
    whole, split = toy({"kind": strategy}, 2), toy({"kind": strategy}, 4, parallel={"tensor": 2})
    found = [
        before_reducing(Case(load(data, Path(), "toy").points[0], Path()), 1.0)
        for data in (whole, split)
    ]
    assert found == pytest.approx([0.006, 0.003])


def test_a_step_of_two_layers_is_as_long_as_its_chain() -> None:
    """fsdp on 2 x 2 ranks: gather, forward, sum, …; each is waited for as on paper."""
    data = toy({"kind": "fsdp"}, 4, layers=2, parallel={"tensor": 2})
    ms, mib = 1e-3, 2.0**20

    def ring(size: float) -> float:
        return (0.1 + size / 2 / (10 * mib)) * ms

    first, second, summed = ring(0.25 * mib), ring(0.5 * mib), 2 * ring(4096)
    forward = first + 0.5 * ms + summed  # the gather of the second layer runs beside that
    assert second < 0.5 * ms + summed
    # the second layer is gathered again beside its own forward, and reduced beside the first's
    # backward; the last reduction is waited for
    expected = forward + 0.5 * ms + summed + 2 * (1.0 * ms + summed) + first
    assert predicted(data).step_time_s == pytest.approx(expected, rel=1e-12)


def split_sequences(**rest: Any) -> dict[str, Any]:
    """One layer of 1 and 2 ms whose ranks, four, gather and scatter 2 MiB in either pass."""
    data = toy({"kind": "fsdp"}, 4, layers=1, parallel={"tensor": 4, "sequence_parallel": True})
    data["model"]["layers"][0] |= {"activation": "2 MiB", "parameters": 4096}
    data["parallel"] |= rest
    return data


def test_exchanges_beside_products_leave_one_part_of_the_product_alone() -> None:
    """A product of M with an exchange of E takes max(M, E + M/4): half of forward, and half of the
    half of backward that makes gradients of inputs, is beside either exchange."""
    ms, exchange = 1e-3, 3 * (0.1 + 0.5 / 10) * 1e-3
    waited, beside = (
        predicted(split_sequences(async_tensor_parallel=flag)).step_time_s for flag in (False, True)
    )
    assert waited == pytest.approx(0.75 * ms + 4 * exchange, rel=1e-12)
    hidden = 0.125 * ms * 0.75  # of each of the four products, all of them shorter
    assert hidden < exchange
    assert beside == pytest.approx(waited - 4 * hidden, rel=1e-12)
    engines = [
        predicted({**split_sequences(async_tensor_parallel=True), "engine": engine}).step_time_s
        for engine in ("event", "vectorised")
    ]
    assert engines[0] == pytest.approx(engines[1], rel=1e-12)


@pytest.mark.parametrize("slow", [0.5, 4.0], ids=["exchanges hide", "exchanges last"])
@pytest.mark.parametrize("sequence", [False, True], ids=["sums", "scatters"])
def test_gradients_of_inputs_are_exchanged_beside_products(sequence: bool, slow: float) -> None:
    """Megatron-LM sums beside the product for weights, a quarter of a rank's backward of 2 ms as
    half of the products are column parallel; with sequences split it gathers again beside that for
    inputs, another quarter, and waits for the first gather alone."""
    ms, part = 1e-3, slow * 3 * (0.1 + 0.5 / 10) * 1e-3
    link = {"latency": f"{0.1 * slow} ms", "bandwidth": f"{10 / slow} MiB/ms"}
    data = toy({"kind": "megatron"}, 4, layers=1, parallel={"tensor": 4})
    data["model"]["layers"][0] |= {"activation": "2 MiB", "parameters": 4096, "backward": "8 ms"}
    data["collective"] |= link
    data["parallel"] |= {"sequence_parallel": True} if sequence else {}
    waits = {**data, "parallel": {**data["parallel"], "overlap_tensor_gradients": False}}
    assert predicted(waits).step_time_s == pytest.approx(2.25 * ms + 4 * part, rel=1e-12)
    # an all-reduce is a scatter and a gather
    if sequence:
        backward = part + 1.0 * ms + 2 * max(part, 0.5 * ms)
    else:
        backward = 1.5 * ms + max(2 * part, 0.5 * ms)
    for engine in ("event", "vectorised"):
        found = predicted({**data, "engine": engine}).step_time_s
        assert found == pytest.approx(0.25 * ms + 2 * part + backward, rel=1e-12)
    kinds = [op.operation for op in programs(data)[0].ops if op.stream == "tensor"]
    scattered = ["all_gather"] * 3 + ["reduce_scatter"] * 2
    assert sorted(kinds) == (scattered if sequence else ["all_reduce"] * 2)


def test_what_a_stage_gathers_awaits_what_was_computed_before() -> None:
    """A collective of torch waits for all that its stream was given before (syncStream of
    ProcessGroupNCCL.cpp), also where nothing else of the pass before is waited for; so both engines
    play it, with contention."""
    data = toy({"kind": "megatron"}, 8, layers=4, parallel={"tensor": 4, "pipeline": 2})
    data["batch"] = {"per_device": 1, "accumulation": 4}
    data["compute"] = {"contention": 0.5}
    for layer in data["model"]["layers"]:
        layer |= {"activation": "2 MiB", "parameters": 4096}
    found = 0
    for program in programs(data):
        awaited: list[set[int]] = []  # by each operation, itself and what they await too
        for at, op in enumerate(program.ops):
            awaited.append({at}.union(*(awaited[k] for k in op.after)))
            before = [k for k in range(at) if program.ops[k].stream == "compute"]
            if op.name.startswith("gather.") and before:
                found += 1
                assert before[-1] in awaited[at]
    assert found
    each = [predicted({**data, "engine": kind}).step_time_s for kind in ("event", "vectorised")]
    assert each[0] == pytest.approx(each[1], rel=1e-12)


@pytest.mark.parametrize("engine", ["event", "vectorised"])
@pytest.mark.parametrize("sequence", [False, True], ids=["sums", "scatters"])
def test_frozen_layers_wait_for_what_they_exchange(sequence: bool, engine: str) -> None:
    """Megatron-LM's LinearWithFrozenWeight has no product for weights to run beside, and gathers
    no input again; the trained layer behind it goes on beside its own, of a quarter of 2 ms."""
    ms, part = 1e-3, 0.5 * 3 * (0.1 + 0.5 / 10) * 1e-3
    data = toy({"kind": "megatron"}, 4, layers=2, parallel={"tensor": 4}, engine=engine)
    for layer in data["model"]["layers"]:
        layer |= {"activation": "2 MiB", "parameters": 4096, "backward": "8 ms"}
    data["model"]["layers"][1]["trainable"] = False
    data["collective"] |= {"latency": "0.05 ms", "bandwidth": "20 MiB/ms"}
    data["parallel"] |= {"sequence_parallel": True} if sequence else {}
    frozen_backward = 1.0 * ms + 2 * part
    backward = part + 2.0 * ms if sequence else 2.0 * ms
    found = predicted(data).step_time_s
    assert found == pytest.approx(0.5 * ms + 4 * part + frozen_backward + backward, rel=1e-12)
    kinds = [op.operation for op in programs(data)[0].ops for _ in range(int(op.repeats))
             if op.stream == "tensor"]  # fmt: skip
    scattered = ["all_gather"] * 5 + ["reduce_scatter"] * 4
    assert sorted(kinds) == (scattered if sequence else ["all_reduce"] * 4)


@pytest.mark.parametrize(
    ("model", "alike"),
    [
        ({"adapters": {"rank": 16, "targets": ["q_proj", "v_proj"]}}, True),
        ({"trainable": [".*norm.*"]}, True),
        ({"trainable": ["o_proj", "down_proj"]}, True),
        ({"trainable": ["q_proj"]}, False),
    ],
    ids=["adapters", "norms", "row-parallel", "column-parallel"],
)
def test_gradients_overlap_where_a_column_parallel_matrix_is_trained(
    model: dict[str, Any], alike: bool
) -> None:
    data = {
        "model": {"name": "llama-3-8b", "sequence_length": 2048, **model},
        "cluster": {"machine": "dgx-h100", "ranks": 4},
        "strategy": {"kind": "megatron"},
        "precision": {"compute": "bf16"},
    }
    beside, waited = (
        predicted({**data, "parallel": {"tensor": 4, "overlap_tensor_gradients": over}})
        for over in (True, False)
    )
    assert (beside.step_time_s == pytest.approx(waited.step_time_s, rel=1e-12)) is alike
    assert beside.step_time_s <= waited.step_time_s


# -- pipelines ------------------------------------------------------------------------------------


def test_stages_stay_gathered_and_reduce_when_their_last_backward_is_done() -> None:
    data = toy({"kind": "fsdp"}, 4, 4, parallel={"pipeline": 2})
    for program in programs(data):
        kinds = [op.operation for op in exchanged(program, "data")]
        assert kinds == ["all_gather"] * 2 + ["reduce_scatter"] * 2
        last = max(k for k, op in enumerate(program.ops) if op.kind == "backward")
        reduced = [k for k, op in enumerate(program.ops) if op.operation == "reduce_scatter"]
        assert last < reduced[0]


def test_resharding_after_forward_gathers_for_every_forward_that_follows_one() -> None:
    """What a backward gathered stays until the next forward has gone by."""
    data = toy(
        {"kind": "fsdp", "reshard_after_forward": True}, 4, 3, layers=2, parallel={"pipeline": 2}
    )
    first, second = (len(exchanged(p, "data")) - 1 for p in programs(data))
    # 1F1B: F0 F1 B0 F2 B1 B2 on the first rank; the backwards after F1 and F2 gather, so does F1
    assert (first, second) == (4, 4)


def test_interleaved_stages_are_gathered_whole_before_they_run() -> None:
    schedule = {"kind": "interleaved_1f1b", "chunks": 4}
    data = toy({"kind": "fsdp"}, 4, 4, 8, parallel={"pipeline": 2}, schedule=schedule)
    first = programs(data)[0]
    names = [op.name.partition(".")[0] + "@" + op.name.partition("@")[2] for op in first.ops]
    order = [n for n, op in zip(names, first.ops, strict=True) if op.operation == "all_gather"]
    assert order[:4] == ["AG0@0", "AG0@2", "AG0@4", "AG0@6"]
    begun = {name: k for k, name in reversed(list(enumerate(names)))}
    computed = next(k for k, op in enumerate(first.ops) if op.kind == "forward")
    assert begun["AG0@4"] < computed < begun["AG0@6"]  # three stages at a time


# -- engines --------------------------------------------------------------------------------------


def drawn(seed: int) -> dict[str, Any]:
    """A random mesh of up to 16 ranks of a random strategy."""
    draw = random.Random(seed)
    strategy = draw.choice(WALKS)
    pipeline = draw.choice([1, 2]) if WALKS.index(strategy) in PIPED else 1
    tensor, data = draw.choice([1, 2]), draw.choice([2, 4])
    parallel: dict[str, Any] = {"tensor": tensor, "pipeline": pipeline}
    parallel["order"] = draw.sample(["tensor", "data", "pipeline"], 3)
    return toy(
        strategy, tensor * data * pipeline, draw.randint(2, 4), parallel=parallel,
        variability={"jitter": "3 %", "steps": 3},
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_engines_agree_on_drawn_meshes(seed: int) -> None:
    found = [predicted({**drawn(seed), "engine": engine}) for engine in ("event", "vectorised")]
    assert found[0].step_time_s == pytest.approx(found[1].step_time_s, rel=1e-9)


def test_engines_agree_where_computing_beside_gathers_of_a_stage_is_slowed() -> None:
    """Gathers of a stage's first forward begin beside what is computed before them."""
    data = toy({"kind": "fsdp"}, 4, 3, layers=8, parallel={"pipeline": 2})
    data["compute"] = {"contention": 1.5}
    found = [predicted({**data, "engine": engine}) for engine in ("event", "vectorised")]
    alone = predicted(toy({"kind": "fsdp"}, 4, 3, layers=8, parallel={"pipeline": 2}))
    assert found[0].step_time_s == pytest.approx(found[1].step_time_s, rel=1e-9)
    assert found[0].step_time_s > alone.step_time_s


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "parallel", "said"),
    [
        ({"kind": "zero", "stage": 2}, {"pipeline": 2}, "DeepSpeed itself runs no pipeline"),
        ({"kind": "fsdp1"}, {"pipeline": 2}, "torch's pipelining does not know it"),
        ({"kind": "local_sgd"}, {"tensor": 2}, "is not modelled together"),
        (
            {"kind": "zero", "stage": 3, "zero_quantized_gradients": True, "local_world_size": 2},
            {"tensor": 2},
            "exchanging quantised gradients by nodes is not modelled",
        ),
        (
            {"kind": "fsdp"},
            {"tensor": 2, "async_tensor_parallel": True},
            "async_tensor_parallel: needs sequence_parallel: true",
        ),
        (
            {"kind": "megatron"},
            {"pipeline": 2, "overlap_tensor_gradients": True},
            "overlap_tensor_gradients: needs tensor > 1",
        ),
        (
            {"kind": "horovod", "hierarchical_allreduce": True, "local_size": 2},
            {"tensor": 2},
            "strategy.hierarchical_allreduce",
        ),
    ],
)
def test_what_the_system_does_not_run_is_refused(
    strategy: dict[str, Any], parallel: dict[str, Any], said: str
) -> None:
    with pytest.raises(Refused, match=said):
        predicted(toy(strategy, 4, 2, parallel=parallel))


# -- torch ----------------------------------------------------------------------------------------

RECORD = json.loads(Path(__file__).with_name("data").joinpath("meshes/orders.json").read_text())


@pytest.mark.parametrize("case", RECORD["cases"], ids=lambda case: str(case["seed"]))
def test_collectives_of_recorded_meshes_are_those_of_torch(case: dict[str, Any]) -> None:
    """FSDP2 and hybrid sharding with tensor parallelism and torch's own pipeline schedules."""
    assert orders(case) == case["orders"]


def test_what_was_recorded_holds_every_combination() -> None:
    cases = RECORD["cases"]
    kinds = {case["schedule"] for case in cases}
    assert kinds == {"", "gpipe", "one_f_one_b", "interleaved_1f1b", "looped_bfs", "zb1p"}
    for key in ("shard", "reshard_after_forward"):
        assert any(key in case["strategy"] for case in cases)
    sizes = [(case["parallel"]["tensor"], case["parallel"]["pipeline"]) for case in cases]
    assert any(tensor > 1 and pipeline > 1 for tensor, pipeline in sizes)
    assert any(case["parallel"].get("sequence_parallel") for case in cases)
