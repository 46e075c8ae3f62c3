"""The measuring programs run here, on CPU, and what they write is read back.

No time is judged: what must hold is what holds on any machine.
"""

from __future__ import annotations

import gzip
import importlib
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tomllib
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import shared
import torch

from dpsim.core.record import Refused
from dpsim.measurements.readers import measuring_programs, read_any
from dpsim.models.named import load_named

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "validation"
TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
STEPS = 5
Record = dict[str, Any]


def strict(text: str) -> Record:
    """JSON without NaN and Infinity."""

    def refuse(name: str) -> Any:
        raise AssertionError(f"{name} is no JSON")

    found: Record = json.loads(text, parse_constant=refuse)
    return found


def launch(*words: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Python on `words`, one thread, outside of any process group."""
    clean = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder, capture_output=True, text=True, timeout=240, check=False,
        env={**clean, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROGRAMS), **variables},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared.folder(tmp_path_factory, "records")


def once(output: Path, *words: str, **variables: str) -> str:
    """What a program that writes `output` prints."""
    printed = output.with_suffix(".txt")

    def measure() -> None:
        done = launch(*words, "--output", output.name, folder=output.parent, **variables)
        printed.write_text(done.stdout)

    shared.once(output, measure)
    return printed.read_text()


@pytest.fixture(scope="module")
def two(folder: Path) -> Record:
    """measure_ddp.py on two ranks: every section, two models, small buckets."""
    once(
        folder / "two.json", *TWO, str(PROGRAMS / "measure_ddp.py"), "--quick", "--scale", "tiny",
        "--steps", str(STEPS),
        "--models", "resnet50,bert", "--batches", "2", "--bucket-cap-mb", "0.1",
        "--sizes", "1KiB:64KiB:4", "--trace",
        NCCL_COMM_ID="10.1.2.3:45", NCCL_DEBUG="WARN",
    )  # fmt: skip
    return strict((folder / "two.json").read_text())


@pytest.fixture(scope="module")
def one(folder: Path) -> Record:
    """measure_ddp.py without torchrun."""
    once(
        folder / "one.json", str(PROGRAMS / "measure_ddp.py"), "--quick", "--scale", "tiny",
        "--steps", str(STEPS),
        "--models", "llama", "--batches", "1,2", "--sections", "layers,steps,ddp,collectives,trace",
        "--sizes", "1KiB", "--precision", "bf16",
    )  # fmt: skip
    return strict((folder / "one.json").read_text())


@pytest.fixture(scope="module")
def fake(folder: Path) -> Record:
    """DDP in a world of 64 ranks that are not there."""
    once(
        folder / "fake.json", str(PROGRAMS / "measure_ddp.py"), "--quick", "--scale", "tiny",
        "--steps", str(STEPS),
        "--models", "vgg", "--batches", "2", "--sections", "layers,ddp,buckets,collectives,overlap",
        "--fake-world", "64",
    )  # fmt: skip
    return strict((folder / "fake.json").read_text())


@pytest.fixture(scope="module")
def table(folder: Path) -> str:
    """What measure_collectives.py prints on two ranks."""
    return once(
        folder / "collectives.json", *TWO, str(PROGRAMS / "measure_collectives.py"),
        "--sizes", "1KiB:64KiB:4", "--steps", "4",
    )  # fmt: skip


@pytest.fixture(scope="module")
def collectives(folder: Path, table: str) -> Record:
    return strict((folder / "collectives.json").read_text())


def runs(record: Record, section: str) -> list[Record]:
    found: list[Record] = record["sections"][section]["data"]["runs"]
    assert found
    return found


# -- the record -----------------------------------------------------------------------------------


def test_every_section_is_there_and_done(two: Record) -> None:
    assert {name: found["status"] for name, found in two["sections"].items()} == dict.fromkeys(
        ("peaks", "layers", "steps", "ddp", "buckets", "collectives", "overlap", "contention",
         "trace"), "done",
    )  # fmt: skip
    assert (two["schema"], two["schema_version"]) == ("dpsim-measurement", 1)
    assert two["world"] == {
        "ranks": 2, "ranks_recorded": 2, "nodes": 1, "backend": "gloo", "device": "cpu",
        "share_gpu": False, "fake": False,
    }  # fmt: skip
    assert two["environment"]["torch"] == torch.__version__
    assert two["environment"]["host_of_rank"] == [0, 0]


def test_what_cannot_run_says_why(one: Record, fake: Record) -> None:
    assert one["sections"]["trace"]["status"] == "left_out"
    assert "--trace" in one["sections"]["trace"]["reason"]
    for name in ("collectives", "overlap"):
        assert fake["sections"][name]["status"] == "left_out"
        assert "fake" in fake["sections"][name]["reason"]


def test_every_rank_has_every_sample(two: Record) -> None:
    for section, key in (("ddp", "samples_s"), ("steps", "together_s"), ("overlap", "after_s"),
                         ("overlap", "beside_s"), ("buckets", "steps")):  # fmt: skip
        for run in runs(two, section):
            count = max(3, STEPS // 5) if section == "buckets" else STEPS
            assert [len(samples) for samples in run[key]] == [count, count], (section, key)


def test_parts_of_a_step_are_the_step(two: Record) -> None:
    for run in runs(two, "steps"):
        parts = zip(run["forward_s"], run["backward_s"], run["optimizer_s"], strict=True)
        assert run["alone_s"] == pytest.approx([sum(part) for part in parts], abs=4e-9)


def test_buckets_hold_every_parameter_once(two: Record, fake: Record) -> None:
    for run in (*runs(two, "buckets"), *runs(fake, "buckets")):
        names = [name for bucket in run["buckets"] for name in bucket["parameters"]]
        assert sum(bucket["bytes"] for bucket in run["buckets"]) == run["gradient_bytes"]
        assert run["gradient_bytes"] == 4 * run["parameters"]
        assert len(names) == len(set(names)) == run["ddp_logging_data"]["num_parameter_tensors"]


def test_buckets_are_those_that_ddp_says(two: Record) -> None:
    for run in runs(two, "buckets"):
        said = run["ddp_logging_data"]["rebuilt_bucket_sizes"]
        sizes = [bucket["bytes"] for bucket in run["buckets"]]
        assert len(sizes) > 1
        assert sizes == [int(size) for size in said.split(",")]


def test_a_bucket_is_ready_then_issued_then_over(two: Record, fake: Record) -> None:
    for run in (*runs(two, "buckets"), *runs(fake, "buckets")):
        for step in (step for rank in run["steps"] for step in rank):
            rows = step["buckets"]
            assert [row["index"] for row in rows] == list(range(len(run["buckets"])))
            for row in rows:
                assert 0 <= row["ready_s"] <= row["issued_s"] <= row["end_s"]
                assert row["end_s"] <= step["step_end_s"]
            issued = [row["issued_s"] for row in rows]
            assert issued == sorted(issued)
            assert 0 < step["forward_end_s"] < step["backward_end_s"] < step["step_end_s"]


def test_layers_hold_all_parameters_and_samples(two: Record, one: Record) -> None:
    for run in (*runs(two, "layers"), *runs(one, "layers")):
        assert sum(layer["parameters"] for layer in run["layers"]) == run["parameters"]
        for layer in run["layers"]:
            for key in ("forward_s", "backward_s"):
                assert len(layer[key]) == 3
                assert min(layer[key]) >= 0


def test_rates_follow_from_times(two: Record, collectives: Record) -> None:
    factors = {"all_reduce": 1.0, "all_gather": 0.5, "reduce_scatter": 0.5, "broadcast": 1.0,
               "all_to_all": 0.5}  # 2 (n - 1) / n, (n - 1) / n and 1 for n = 2  # fmt: skip
    sections = [found["data"] for found in collectives["sections"].values()]
    seen = set()
    for curve in (c for data in (two["sections"]["collectives"]["data"], *sections)
                  for c in data["curves"]):  # fmt: skip
        seen.add(curve["operation"])
        for point in curve["points"]:
            first, second = point["samples_s"]
            slowest = statistics.median(map(max, first, second))
            rate = point["bytes"] / slowest
            assert point["seconds"] == slowest
            assert point["algorithm_bytes_per_s"] == pytest.approx(rate, rel=1e-12)
            assert point["bus_bytes_per_s"] == rate * factors[curve["operation"]]
    assert seen == set(factors)


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 1000])
def test_the_bus_bandwidth_is_nccl_tests(ranks: int) -> None:
    factor = program("_measure").bus_factor
    assert factor("all_reduce", ranks) == 2 * (ranks - 1) / ranks
    assert factor("all_gather", ranks) == factor("reduce_scatter", ranks) == (ranks - 1) / ranks


def test_the_table_shows_every_size(table: str, collectives: Record) -> None:
    rows = [line.split() for line in table.splitlines() if not line.startswith("#")]
    sizes = [1024, 4096, 16384, 65536]
    assert [int(row[0]) for row in rows] == sizes * 5
    assert collectives["options"]["sizes"] == sizes


def test_a_fake_world_is_recorded_as_such(fake: Record) -> None:
    assert (fake["world"]["ranks"], fake["world"]["ranks_recorded"]) == (64, 1)
    assert fake["world"]["fake"] is True
    assert [len(run["samples_s"]) for run in runs(fake, "ddp")] == [1]


def test_peaks_are_work_over_time(two: Record) -> None:
    peaks = two["sections"]["peaks"]["data"]
    for row in peaks["matmul"]:
        assert row["flop"] == 2 * row["m"] * row["n"] * row["k"]
        assert row["flop_per_s"] == row["flop"] / statistics.median(row["samples_s"])
    for row in peaks["copy"]:
        assert row["bytes_per_s"] == row["bytes"] / statistics.median(row["samples_s"])


def test_contention_compares_the_same_work(two: Record) -> None:
    found = two["sections"]["contention"]["data"]
    works = [row["work"] for row in found["copies"]]
    assert [row["work"] for row in found["all_reduces"]] == works
    assert len(works) == 3
    for row in found["copies"]:
        assert len(row["alone_s"]) == len(row["beside_s"]) == STEPS
        assert row["copy_alone_bytes_per_s"] > 0
    for row in found["all_reduces"]:
        assert [len(samples) for samples in row["alone_s"]] == [STEPS, STEPS]
        assert len(set(map(len, row["beside_s"]))) == 1


def test_records_tell_no_names(two: Record, folder: Path) -> None:
    text = (folder / "two.json").read_text()
    assert two["environment"]["variables"]["NCCL_COMM_ID"] == "(set)"
    assert two["environment"]["variables"]["NCCL_DEBUG"] == "WARN"
    assert f'"{socket.gethostname()}"' not in text
    assert "10.1.2.3" not in text
    assert str(folder) not in text
    assert str(ROOT) not in text


def test_the_trace_has_three_steps_and_no_host(two: Record, folder: Path) -> None:
    path = folder / two["sections"]["trace"]["data"]["file"]
    trace = strict(gzip.decompress(path.read_bytes()).decode())
    steps = {each["name"] for each in trace["traceEvents"]} & {
        f"ProfilerStep#{k}" for k in range(9)
    }
    assert steps == {"ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"}
    assert trace["host_name"] == ""


# -- several ranks, and failures ------------------------------------------------------------------


def program(name: str) -> ModuleType:
    sys.path.insert(0, str(PROGRAMS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(PROGRAMS))


def test_what_fails_on_one_rank_fails_on_all(folder: Path) -> None:
    """Otherwise the ranks would wait for each other in different places."""
    script = folder / "uneven.py"
    script.write_text(
        "import argparse\n"
        "from _measure import Failed, add_world_options, joined\n"
        "parser = argparse.ArgumentParser()\n"
        "add_world_options(parser)\n"
        "def work():\n"
        "    if world.rank == 1:\n"
        "        raise MemoryError('no room in /home/somebody')\n"
        "with joined(parser.parse_args([])) as world:\n"
        "    try:\n"
        "        world.agreed(work)\n"
        "        said = 'nothing'\n"
        "    except Failed as error:\n"
        "        said = str(error)\n"
        "    if world.gather(said) == ['MemoryError: no room in …'] * 2:\n"
        "        world.alone(lambda: print('agreed'))\n"
    )
    assert launch(*TWO, str(script), folder=folder).stdout.split() == ["agreed"]


def made(output: Path) -> Any:
    """A Record of one rank on the CPU, in this process."""
    measure = program("_measure")
    world = measure.World(0, 1, torch.device("cpu"), "gloo", False, False)
    return measure.Record("test", Namespace(output=output, secret=Path("/home/me")), world)


def test_a_section_that_fails_loses_no_other(tmp_path: Path) -> None:
    record, path = made(tmp_path / "r.json"), tmp_path / "r.json"
    record.section("first", lambda: {"value": 1})
    record.section("second", lambda: 1 / 0)
    assert strict(path.read_text())["sections"]["second"] == {
        "status": "failed", "reason": "ZeroDivisionError: division by zero",
        "wall_s": record.content["sections"]["second"]["wall_s"],
    }  # fmt: skip
    record.section("third", lambda: {"value": 3})
    found = strict(path.read_text())
    assert [found["sections"][name]["status"] for name in ("first", "second", "third")] == [
        "done", "failed", "done",
    ]  # fmt: skip
    assert found["options"] == {}
    assert list(tmp_path.iterdir()) == [path]  # nothing half-written is left


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    record, path = made(tmp_path / "r.json"), tmp_path / "r.json"
    record.section("first", lambda: {"value": 1})
    before = path.read_bytes()
    record.content["sections"]["bad"] = {"value": float("nan")}
    with pytest.raises(ValueError, match="JSON"):
        record.write()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_sizes() -> None:
    sizes = program("_measure").parse_sizes
    assert sizes("1KiB:1GiB:2") == tuple(2**k for k in range(10, 31))
    assert sizes("1MB,64KiB") == (65536, 10**6)
    for wrong in ("", "1KB", "0", "1KiB:1MiB:1", "-1", "1KiB:2KiB:2:2", "NaN"):
        with pytest.raises(ArgumentTypeError):
            sizes(wrong)


# -- networks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "twin"), [("resnet50", "resnet50"), ("vgg", "vgg16"), ("bert", "bert-base-uncased")]
)
def test_networks_have_the_layers_of_dpsims_models(name: str, twin: str) -> None:
    networks = program("_networks")
    with torch.device("meta"):
        network = networks.network(name, tiny=False, llama_size="1b", sequence=512)
    layers = {
        key: sum(each.numel() for each in module.parameters())
        for key, module in network.module.named_modules()
        if isinstance(module, networks.Layer)
    }
    assert layers == {layer.name: layer.parameters for layer in load_named(twin, 512).layers}


def test_the_big_llama_has_the_parameters_of_llama_3_2_1b() -> None:
    networks = program("_networks")
    with torch.device("meta"):
        module = networks.LlamaModel(networks.LLAMAS["1b"])
    assert sum(each.numel() for each in module.parameters()) == 1_235_814_400


# -- reading back ---------------------------------------------------------------------------------


def test_a_record_of_two_ranks_is_read(two: Record, folder: Path) -> None:
    found = read_any(folder / "two.json")
    assert {curve.operation for curve in found.curves} == {
        "all_reduce", "all_gather", "reduce_scatter",
    }  # fmt: skip
    for curve, written in zip(
        found.curves, two["sections"]["collectives"]["data"]["curves"], strict=True
    ):
        assert (curve.ranks, curve.nodes) == (2, 1)
        assert [p[:2] for p in curve.points] == [
            (each["bytes"], each["seconds"]) for each in written["points"]
        ]
    first = runs(two, "ddp")[0]["samples_s"]
    assert [(step.ranks, step.batch, len(step.samples)) for step in found.steps] == [
        (2, 2, STEPS), (1, 2, STEPS),
    ]  # fmt: skip
    assert found.steps[0].samples == tuple(map(max, *first))
    assert [layer.name for layer in found.layers] == [
        layer["name"] for layer in runs(two, "layers")[0]["layers"]
    ]
    buckets = runs(two, "buckets")[0]["buckets"]
    assert [(b.step, b.index, b.bytes) for b in found.buckets] == [
        (step, row["index"], row["bytes"]) for step in range(3) for row in buckets
    ]
    assert any("bert" in warning for warning in found.warnings)  # one model per record is used
    assert found.device is None


def test_a_record_on_one_line_is_read(two: Record, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "two.json"
    path.write_text(json.dumps(two))
    assert read_any(path) == read_any(folder / "two.json")


def test_a_record_of_one_rank_is_read(one: Record, folder: Path) -> None:
    found = read_any(folder / "one.json")
    assert [(step.ranks, step.batch) for step in found.steps] == [(1, 1), (1, 2)]
    assert not found.curves
    assert any("one rank" in note for note in found.notes)


def test_a_fake_world_gives_layers_only(fake: Record, folder: Path) -> None:
    found = read_any(folder / "fake.json")
    assert found.layers
    assert (found.steps, found.buckets, found.curves) == ((), (), ())


def test_all_collectives_are_read(collectives: Record, folder: Path) -> None:
    found = read_any(folder / "collectives.json")
    assert len(found.curves) == 5
    assert all(len(curve.points) == 4 for curve in found.curves)
    assert not found.warnings


def test_the_shipped_records_are_read() -> None:
    paths = sorted((PROGRAMS / "records").glob("*.json"))
    assert paths
    for path in paths:
        assert path.stat().st_size < 300_000
        assert not read_any(path).empty
        assert f"`{path.name}`" in (PROGRAMS / "records" / "README.md").read_text()


def changed(record: Record, change: Callable[[Record], Any]) -> str:
    copy: Record = json.loads(json.dumps(record))
    change(copy)
    return json.dumps(copy, indent=1)


def points(record: Record) -> list[Record]:
    found: list[Record] = record["sections"]["all_reduce"]["data"]["curves"][0]["points"]
    return found


BROKEN: dict[str, tuple[Callable[[Record], Any], str]] = {
    "another version": (lambda r: r.update(schema_version=2), "reads 1"),
    "no version": (lambda r: r.pop("schema_version"), "reads 1"),
    "a true version": (lambda r: r.update(schema_version=True), "reads 1"),
    "no world": (lambda r: r.pop("world"), "world"),
    "no rank": (lambda r: r["world"].update(ranks=0), "world.ranks"),
    "a missing rank": (lambda r: r["world"].update(ranks_recorded=1), "all are needed"),
    "sections in a list": (lambda r: r.update(sections=[]), "mapping"),
    "no section": (lambda r: r.update(sections={}), "nothing to calibrate"),
    "a strange status": (lambda r: r["sections"]["all_reduce"].update(status="fine"), "status"),
    "data that is none": (lambda r: r["sections"]["all_reduce"].update(data=[1]), "mapping"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_frame_is_refused(name: str, collectives: Record, tmp_path: Path) -> None:
    change, said = BROKEN[name]
    path = tmp_path / "broken.json"
    path.write_text(changed(collectives, change))
    with pytest.raises(Refused, match=re.escape(said)):
        read_any(path)


DOUBTFUL: dict[str, tuple[Callable[[Record], Any], str]] = {
    "a negative time": (lambda r: points(r)[0]["samples_s"][0].__setitem__(0, -1e-3), "above 0"),
    "a time of zero": (lambda r: points(r)[0]["samples_s"][0].__setitem__(0, 0), "above 0"),
    "a time as text": (lambda r: points(r)[0]["samples_s"][1].__setitem__(0, "1"), "no number"),
    "an endless time": (lambda r: points(r)[0]["samples_s"][0].__setitem__(0, 10**400), "above 0"),
    "a missing rank": (lambda r: points(r)[0]["samples_s"].pop(), "2 ranks were measured"),
    "a missing sample": (lambda r: points(r)[0]["samples_s"][0].pop(), "different numbers"),
    "no samples": (lambda r: points(r)[0].update(samples_s=[[], []]), "no samples"),
    "no size": (lambda r: points(r)[0].pop("bytes"), "no number"),
    "a negative size": (lambda r: points(r)[0].update(bytes=-4), "above 0"),
    "a point that is none": (lambda r: points(r).__setitem__(0, 7), "mapping"),
}


@pytest.mark.parametrize("name", DOUBTFUL)
def test_a_doubtful_entry_is_left_out_and_named(
    name: str, collectives: Record, tmp_path: Path
) -> None:
    change, said = DOUBTFUL[name]
    path = tmp_path / "doubtful.json"
    path.write_text(changed(collectives, change))
    found = read_any(path)
    (warning,) = found.warnings
    assert warning.startswith("all_reduce[0].points[0]: is left out: ")
    assert said in warning
    assert [len(curve.points) for curve in found.curves] == [3, 4, 4, 4, 4]


def test_text_that_is_no_strict_json_is_refused(collectives: Record, tmp_path: Path) -> None:
    path, text = tmp_path / "r.json", json.dumps(collectives, indent=1)
    deep = '"sections": {"x": ' + "[" * 100_000
    for broken, said in (
        (text[: len(text) // 2], "cut short"),
        (re.sub(r'"seconds": [\d.e-]+', '"seconds": NaN', text, count=1), "NaN"),
        (text.replace('"sections": {', deep, 1), "levels|deep"),
    ):
        path.write_text(broken)
        with pytest.raises(Refused, match=said):
            read_any(path)


def test_a_huge_record_is_refused_unread(collectives: Record, tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    path.write_text(json.dumps(collectives))
    os.truncate(path, measuring_programs.MAX_BYTES + 1)
    with pytest.raises(Refused, match="larger than 100 MB"):
        measuring_programs.MeasuringPrograms().read(path)


# -- where they are -------------------------------------------------------------------------------


def test_the_wheel_holds_both_programs_and_what_they_import() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    build = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    programs = PROGRAMS.glob("measure_*.py")
    # what measures to compare with dpsim itself runs in a checkout
    wanted = {path.name for path in programs if "import dpsim" not in path.read_text()}
    wanted.discard("measure_host_copy.py")  # of one constant of dpsim, and no record that it reads
    for name in tuple(wanted):
        text = (PROGRAMS / name).read_text()
        wanted |= {f"{found}.py" for found in re.findall(r"^(?:import|from) (_\w+)", text, re.M)}
    wanted.discard("__future__.py")
    assert len(wanted) == 4
    for name in wanted:
        assert build[f"validation/{name}"] == f"dpsim/data/validation/{name}"


def test_dpsim_shows_where_they_are(tmp_path: Path) -> None:
    words = ("-m", "dpsim", "show", "measuring-programs")
    shown = launch(*words, folder=tmp_path, PYTHONPATH=str(ROOT), NO_COLOR="1").stdout.splitlines()
    assert [Path(line).name for line in shown[:2]] == ["measure_collectives.py", "measure_ddp.py"]
    assert all(Path(line).is_file() for line in shown[:2])


@pytest.mark.parametrize(
    ("changed", "apart"),
    [
        ({}, False),
        ({"hostname": "b"}, True),
        ({"boot": "another"}, True),
        # containers of one kernel with one name, each with a network of its own
        ({"space": "net:[2]"}, True),
        ({"card": 0x02_42_AC_11_00_03}, True),
        # without a card every process draws a number, which says nothing
        ({"card": 0x01_00_00_00_00_07}, True),
        ({"card": 0x01_00_00_00_00_07, "also": 0x01_00_00_00_00_08}, False),
        ({"hostname": "b", "id": "one"}, False),
    ],
    ids=str,
)
def test_hosts_are_told_apart_by_what_their_messages_cross(
    changed: dict[str, Any], apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring = program("_measure")

    def mark(hostname="a", boot="boot", space="net:[1]", card=0x02_42_AC_11_00_02, id=None):  # type: ignore[no-untyped-def]
        monkeypatch.setattr(measuring.socket, "gethostname", lambda: hostname)
        monkeypatch.setattr(measuring, "_boot", lambda: boot)
        monkeypatch.setattr(measuring.os, "readlink", lambda path: space)
        monkeypatch.setattr(measuring.uuid, "getnode", lambda: card)
        if id is None:
            monkeypatch.delenv("NCCL_HOSTID", raising=False)
        else:
            monkeypatch.setenv("NCCL_HOSTID", id)
        return measuring._host_mark()

    both = {"id": changed["id"]} if "id" in changed else {}
    both |= {"card": changed.pop("also")} if "also" in changed else {}
    assert (mark(**both) != mark(**changed)) == apart
