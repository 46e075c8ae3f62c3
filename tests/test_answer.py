"""The answer as records: JSON is a view of them that reads back, and `dpsim schema answer` is what
it keeps to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import golden
import pytest

import dpsim
from dpsim.core.errors import SimulationError
from dpsim.predict.answer import Answer
from dpsim.predict.document import from_json, schema_of, to_json
from dpsim.predict.point import Failed, Point, computed
from dpsim.predict.prediction import relate

SCHEMA = schema_of(Answer)
GOLDENS = [path for path in golden.scenarios() if path.is_file()]
#: with laws and without, measured, trained, paid, dealt, refused at one of its points
ANSWERS = {
    "quickstart": (),
    "amdahl": (),
    "worked/train_steps": (),
    "worked/epoch_of_ten": (),
    "worked/zero2_deepspeed": ("strategy={kind: accelerate}", "startup={load: 3 s}"),
    "worked/ddp_steady": ("batch={global: 8}", "sweep={cluster.ranks: [4, 16]}"),
}
TYPES: dict[str, Any] = {
    "null": type(None), "integer": int, "number": (int, float), "string": str, "boolean": bool,
    "array": list, "object": dict,
}  # fmt: skip


def strange(schema: dict[str, Any], value: Any, where: str = "", *, part: bool) -> Iterator[str]:
    """Where `value` is not as `schema` says; of a `part` of a document keys may be left out."""
    options = [list(strange(one, value, where, part=part)) for one in schema.get("anyOf", ())]
    yield from min(options, key=len, default=[])
    kind = schema.get("type")
    if kind and (
        not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")
    ):
        yield f"{where}: {value!r} is no {kind}"
        return
    if kind == "object":
        known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        if not part:
            yield from (
                f"{where}.{key} is missing"
                for key in schema.get("required", ())
                if key not in value
            )
        for key, item in value.items():
            if key in known or isinstance(others, dict):
                yield from strange(known.get(key, others), item, f"{where}.{key}", part=part)
            elif not others:
                yield f"{where}.{key} is unknown"
    if kind == "array":
        each = schema.get("prefixItems") or [schema.get("items", {})] * len(value)
        for number, (one, item) in enumerate(zip(each, value, strict=True)):
            yield from strange(one, item, f"{where}[{number}]", part=part)


@pytest.fixture(scope="module", params=ANSWERS)
def answer(request: pytest.FixtureRequest) -> Answer:
    return dpsim.predict(dpsim.read(request.param, ANSWERS[request.param])).answer


def test_a_document_keeps_to_the_schema(answer: Answer) -> None:
    assert list(strange(SCHEMA, json.loads(json.dumps(to_json(answer))), part=False)) == []


def test_a_document_reads_back_to_the_same_answer(answer: Answer) -> None:
    assert from_json(Answer, json.loads(json.dumps(to_json(answer)))) == answer


@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.stem)
def test_an_expected_output_keeps_to_the_schema(path: Any) -> None:
    expected = json.loads(golden.expected_of(path).read_text())["expected"]
    nulls = [
        {key: value for key, value in point.items() if value is not None}
        for point in expected["points"]
    ]
    assert list(strange(SCHEMA, {**expected, "points": nulls}, part=True)) == []


def test_what_is_not_as_the_schema_says_is_seen() -> None:
    document = json.loads(json.dumps(dpsim.predict(dpsim.read("worked/ddp_steady")).document))
    point = document["points"][0]
    del point["step_time_s"]
    point |= {"ranks": "4", "speed": 1.0, "mfu": True}
    complaints = set(strange(SCHEMA, document, part=False))
    assert {".points[0].step_time_s is missing", ".points[0].speed is unknown"} <= complaints
    assert ".points[0].ranks: '4' is no integer" in complaints


def test_the_command_prints_the_schema(cli) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = cli("schema", "answer")
    assert code == 0
    printed = json.loads(out)
    assert printed.pop("$schema")
    assert printed == SCHEMA


# -- points ---------------------------------------------------------------------------------------


def test_a_point_can_be_read_by_the_keys_of_its_json() -> None:
    (point,) = computed(dpsim.predict(dpsim.read("worked/train_steps")).points[:1])
    assert point["speedup"] == point.speedup == 1.0
    assert point["memory_bytes"] == point.memory.bytes
    assert point["cost"]["items"][0]["name"] == point.cost.items[0].name  # type: ignore[union-attr]
    assert dict(point) == to_json(point)
    with pytest.raises(KeyError):
        point["energy_kwh"]


def test_a_point_without_numbers_has_its_error_instead() -> None:
    sets = ("batch={global: 8}", "sweep={cluster.ranks: [16, 4]}")
    found = dpsim.predict(dpsim.read("worked/ddp_steady", sets))
    first, second = found.points
    assert isinstance(first, Failed)
    assert isinstance(second, Point)
    assert list(first) == ["ranks", "nodes", "global_batch", "error", "set"]
    assert second.speedup == 1.0  # over the first point that has numbers
    with pytest.raises(SimulationError, match="without a sample"):
        _ = found.step_time_s


def test_points_are_compared_without_being_changed() -> None:
    points = computed(dpsim.predict(dpsim.read("amdahl")).points)
    others = computed(relate(points[1:]))
    assert [p.speedup for p in others] == pytest.approx(
        [p.step_time_s and points[1].step_time_s / p.step_time_s for p in points[1:]]
    )
    assert points[0].speedup == 1.0
    assert points[1].speedup != 1.0


DATA = Path(__file__).parent / "data/calibration"
RUNS = (
    "model,accelerator,gpus_per_node,total_gpus,batch_per_gpu,precision,value,unit\n"
    "ResNet-50,NVIDIA V100-SXM2-16GB,8,1,256,FP16 mixed,802.9,images/s\n"
    "ResNet-50,NVIDIA V100-SXM2-16GB,8,8,256,FP16 mixed,6154.66,images/s\n"
    "ResNet-50,NVIDIA V100-SXM2-16GB,8,8,256,FP6,6154.66,images/s\n"
)
COLLECTIVES = "\n".join((DATA / "../collectives/sample.csv").read_text().splitlines()[:4])
COMMANDS = {
    "explanation": ("explain", "worked/ddp_steady", "--operations"),
    "sweep": ("sweep", "worked/ddp_steady", "--grid", "cluster.ranks=2,4"),
    "plan": ("plan", "worked/ddp_steady", "--require", "efficiency>=0.5",
             "--vary", "cluster.ranks=2:8"),
    "comparison": ("compare", "worked/ddp_steady", "--vary", "cluster.ranks=2,4"),
    "collective": ("collective", "all_reduce", "--cluster", "dgx-h100", "--sizes", "1MiB:2MiB"),
    "calibrate": ("calibrate", f"{DATA}/osu-allreduce-gke-cpu-4node.out", "--ranks", "4"),
    "calibrate a trace": ("calibrate", f"{DATA}/hta-nccl_data.json.gz"),
    "validate": ("validate", "runs.csv"),
    "validate collectives": ("validate", "collectives.csv"),
    "import a node": ("import", f"{DATA}/../topology/azure-ndv4-topo.xml", "--like", "dgx-a100"),
    **{f"show {thing}": ("show", thing) for thing in
       ("dgx-1v", "h200", "gpt2", "ddp", "zb1p", "quickstart", "worked/two_sites", "machines",
        "scenarios", "doctor")},
}  # fmt: skip


@pytest.mark.parametrize("what", COMMANDS)
def test_what_a_command_prints_keeps_to_the_schema_of_that_name(  # type: ignore[no-untyped-def]
    cli, tmp_path: Path, what: str
) -> None:
    (tmp_path / "runs.csv").write_text(RUNS)
    (tmp_path / "collectives.csv").write_text(COLLECTIVES)
    code, out, err = cli("schema", what.partition(" ")[0])
    assert code == 0, err
    schema = json.loads(out)
    code, out, err = cli(*COMMANDS[what], "--json")
    assert code in (0, 1), err
    assert list(strange(schema, json.loads(out), part=False)) == []
    other = [{"schema_version": 1}] if what.startswith("show") else {"schema_version": "1"}
    assert list(strange(schema, other, part=False))
