"""Accelerate, Lightning and Ray Train: the backend's step, its defaults, and what comes beside."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from dpsim.compile.strategies.accelerate import Accelerate
from dpsim.compile.strategies.ddp import Ddp
from dpsim.compile.strategies.fsdp import Fsdp
from dpsim.compile.strategies.fsdp1 import Fsdp1
from dpsim.compile.strategies.lightning import Lightning
from dpsim.compile.strategies.ray_train import RayTrain
from dpsim.compile.strategies.zero import Zero
from dpsim.core.plugins import find, names
from dpsim.core.record import Refused, build
from dpsim.describe.scenario import Scenario, load, read, to_data
from dpsim.predict.prediction import predict
from dpsim.report.sentences import sentences


def point(strategy: str, *sets: str) -> dict[str, Any]:
    return predict(read("worked/ddp_steady", (f"strategy={strategy}", *sets))).points[0]


def on_machine(strategy: str, *sets: str) -> dict[str, Any]:
    loaded = read("vgg16-10gbe", (f"strategy={strategy}", "sweep={cluster.nodes: [2]}", *sets))
    return predict(loaded).points[0]


# -- defaults ---------------------------------------------------------------------------------

DEFAULTS = [
    (Accelerate, {}, Ddp()),
    (Accelerate, {"sync_each_batch": True}, Ddp(no_sync=False)),
    (Accelerate, {"options": {"bucket_cap_mb": 10}}, Ddp(bucket_cap_mb=10)),
    (
        Accelerate,
        {"distributed_type": "fsdp"},
        Fsdp1(backward_prefetch="none", use_orig_params=True),
    ),
    (Accelerate, {"distributed_type": "fsdp", "fsdp_version": 2}, Fsdp()),
    (Accelerate, {"distributed_type": "deepspeed"}, Zero(stage=2)),
    (Accelerate, {"distributed_type": "deepspeed", "zero_stage": 3}, Zero(stage=3)),
    (Lightning, {}, Ddp()),
    (Lightning, {"strategy": "ddp_find_unused_parameters_true"}, Ddp(find_unused_parameters=True)),
    (Lightning, {"strategy": "ddp_find_unused_parameters_false"}, Ddp()),
    (Lightning, {"strategy": "fsdp"}, Fsdp1(use_orig_params=True)),
    (
        Lightning,
        {"strategy": "deepspeed"},
        Zero(stage=2, overlap_comm=True, reduce_bucket_size=2e8),
    ),
    (
        Lightning,
        {"strategy": "deepspeed_stage_1"},
        Zero(stage=1, overlap_comm=True, reduce_bucket_size=2e8),
    ),
    (
        Lightning,
        {"strategy": "deepspeed_stage_2_offload"},
        Zero(stage=2, overlap_comm=True, reduce_bucket_size=2e8, offload_optimizer="cpu"),
    ),
    (
        Lightning,
        {"strategy": "deepspeed_stage_3", "options": {"overlap_comm": False}},
        Zero(stage=3, overlap_comm=False, reduce_bucket_size=2e8),
    ),
    (RayTrain, {}, Ddp()),
    (RayTrain, {"parallel_strategy": "fsdp"}, Fsdp1()),
]


@pytest.mark.parametrize(("cls", "given", "inner"), DEFAULTS, ids=str)
def test_what_is_wrapped_and_with_which_defaults(cls: Any, given: Any, inner: Any) -> None:
    assert build(cls, given).inner == inner


@pytest.mark.parametrize(
    ("wrapped", "plain"),
    [
        ("{kind: accelerate}", "{kind: ddp}"),
        ("{kind: lightning}", "{kind: ddp}"),
        ("{kind: ray_train}", "{kind: ddp}"),
        ("{kind: accelerate, distributed_type: deepspeed}", "{kind: zero, stage: 2}"),
        (
            "{kind: lightning, strategy: deepspeed_stage_2}",
            "{kind: zero, stage: 2, overlap_comm: true, reduce_bucket_size: 2e8}",
        ),
        ("{kind: accelerate, distributed_type: fsdp, fsdp_version: 2}", "{kind: fsdp}"),
        (
            "{kind: lightning, strategy: ddp_find_unused_parameters_true}",
            "{kind: ddp, find_unused_parameters: true}",
        ),
    ],
)
def test_the_step_is_the_backends(wrapped: str, plain: str) -> None:
    a, b = dict(point(wrapped)), dict(point(plain))
    assert a.pop("beside_step")
    assert "beside_step" not in b
    assert {k: v for k, v in a.items() if k != "set"} == {k: v for k, v in b.items() if k != "set"}


# -- beside the step --------------------------------------------------------------------------


def beside(found: dict[str, Any]) -> dict[str, tuple[str, float | None, float | None]]:
    return {x["name"]: (x["per"], x["seconds"], x["at_most_s"]) for x in found["beside_step"]}


def test_accelerate_broadcasts_the_samplers_generator_every_epoch() -> None:
    ((per, seconds, _),) = beside(on_machine("{kind: accelerate}")).values()
    assert per == "epoch"
    assert seconds is not None
    assert 0 < seconds < 0.01  # 5,056 bytes


def test_lightning_has_barriers_and_reduces_logged_values() -> None:
    found = beside(on_machine("{kind: lightning, logged: 3}"))
    assert [per for per, *_ in found.values()] == ["validation", "checkpoint"] + ["step"] * 3
    times = {seconds for _, seconds, _ in found.values()}
    assert len(times) == 1  # all of them reduce four bytes
    assert all(0 < seconds < 0.01 for seconds in times if seconds is not None)


def test_ray_says_what_a_restart_is_made_of_and_what_it_does_not_know() -> None:
    found = beside(point("{kind: ray_train, max_failures: 2, checkpoint_load: 40 s}"))
    assert found == {
        "report's barrier": ("report", None, None),
        "failure seen by the controller": ("restart", 1.0, 600.0),
        "worker group started": ("restart", None, 60.0),
        "checkpoint loaded": ("restart", 40.0, None),
    }


def test_without_restarts_ray_ends_the_run_and_the_answer_says_so() -> None:
    document = predict(read("worked/ddp_steady", ("strategy={kind: ray_train}",))).document
    assert [x["name"] for x in document["points"][0]["beside_step"]] == ["report's barrier"]
    assert any("max_failures is 0" in text for text in document["warnings"])


def test_traffic_beside_the_step_takes_no_time_on_an_ideal_backend() -> None:
    assert {x[1] for x in beside(point("{kind: accelerate}")).values()} == {0.0}


def test_the_text_says_what_comes_beside_the_step() -> None:
    knobs = "{kind: ray_train, max_failures: 2, checkpoint_load: 40 s}"
    found = sentences(predict(read("worked/ddp_steady", (f"strategy={knobs}",))).answer)
    (text,) = (line for line in found if line.startswith("Beside"))
    assert "report's barrier (unknown) per report" in text
    assert "failure seen by the controller (1 s, at most 10 min) per restart" in text
    assert "checkpoint loaded (40 s) per restart" in text
    plain = sentences(predict(read("worked/ddp_steady")).answer)
    assert not [line for line in plain if line.startswith("Beside")]


# -- the number of processes ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("{kind: accelerate, num_processes: 3}", "strategy.num_processes: 3 processes"),
        ("{kind: lightning, devices: 2, num_nodes: 2}", "strategy.devices: 4 processes"),
        ("{kind: ray_train, num_workers: 1}", "strategy.num_workers: 1 processes"),
    ],
)
def test_as_many_processes_as_ranks_must_be_launched(strategy: str, message: str) -> None:
    with pytest.raises(Refused, match=message):
        point(strategy)


def test_the_right_number_of_processes_is_accepted() -> None:
    for strategy in ("{kind: accelerate, num_processes: 2}", "{kind: lightning, devices: 2}",
                     "{kind: ray_train, num_workers: 2}"):  # fmt: skip
        assert point(strategy)["step_time_s"] == pytest.approx(0.02345, rel=1e-12)


# -- refusals, and back to a file -------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("{kind: accelerate, options: {bucket_cap: 5}}", r"options.bucket_cap: .*'bucket_cap_mb'"),
        ("{kind: accelerate, zero_stage: 2}", "belongs to distributed_type: deepspeed"),
        ("{kind: accelerate, fsdp_version: 2}", "belongs to distributed_type: fsdp"),
        (
            "{kind: accelerate, distributed_type: deepspeed, sync_each_batch: true}",
            "DeepSpeed decides itself",
        ),
        ("{kind: lightning, strategy: deepspeed_stage_3_offload}", "parameters off the device"),
        ("{kind: lightning, strategy: dpp}", "did you mean 'ddp'"),
        ("{kind: lightning, strategy: deepspeed_stage_2, options: {stage: 7}}", "options.stage"),
        ("{kind: ray_train, worker_group_start: 90 s}", "beyond Ray's own limit of 60 s"),
    ],
)
def test_what_does_not_go_together_is_refused(strategy: str, message: str) -> None:
    with pytest.raises(Refused, match=message):
        read("worked/ddp_steady", (f"strategy={strategy}",))


@pytest.mark.parametrize(
    "strategy",
    [
        {"kind": "accelerate", "distributed_type": "fsdp", "options": {"forward_prefetch": True}},
        {"kind": "lightning", "strategy": "deepspeed_stage_2", "logged": 1},
        {"kind": "ray_train", "max_failures": 1, "checkpoint_load": "3.0 s"},
    ],
)
def test_a_wrapper_writes_itself_back(strategy: dict[str, Any]) -> None:
    loaded = read("worked/ddp_steady")
    scenario = load({**loaded.data, "strategy": strategy}, loaded.base, "x").scenario
    assert to_data(scenario)["strategy"] == strategy


# -- the page for users of launchers ----------------------------------------------------------

PAGE = Path(__file__).resolve().parent.parent / "docs" / "howto" / "your-launcher.md"
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_example_of_the_page_can_be_predicted(number: int, tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(BLOCKS[number], encoding="utf-8")
    assert predict(read(file)).step_time_s > 0


def test_every_key_that_the_page_names_exists() -> None:
    """The tables' second columns: dotted keys of the scenario, and settings of strategies."""
    rows = [line.split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines()
            if line.startswith("| ") and line.count(" | ") == 1]  # fmt: skip
    found = {key for _, cell in rows for key in re.findall(r"`(?:\w+\.)?(\w+)(?::[^`]*)?`", cell)}
    known = {"strategy", "options", "precision", "compute", "null"}
    for name in names("strategies"):
        known |= {field.name for field in dataclasses.fields(find("strategies", name))}
    known |= {"nodes", "ranks", "gpus_per_node", "per_device", "accumulation", "global"}
    known |= {field.name for field in dataclasses.fields(Scenario)} | {"selective"}
    unknown = {
        key for key in found if key not in known and not key.startswith(("xla_gpu_", "dpsim"))
    }
    assert not unknown
