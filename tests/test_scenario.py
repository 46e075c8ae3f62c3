"""Scenario files: what is read is what is written, whatever the notation; and it is repeatable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsim.core import yamlfile
from dpsim.core.overrides import apply_sets, sweep_changes, with_change
from dpsim.core.places import data_folder
from dpsim.core.record import Refused
from dpsim.describe.bundled import find
from dpsim.describe.scenario import Loaded, load, read, to_data
from dpsim.predict.prediction import predict
from dpsim.report import canonical_json

# those of one job; folders of candidates are read by tests/test_compare.py
FOLDER = data_folder("scenarios")
BUNDLED = sorted(
    str(p.relative_to(FOLDER).with_suffix(""))
    for p in (*FOLDER.glob("*.yaml"), *FOLDER.glob("worked/*.yaml"))
)
ROOT = Path(__file__).resolve().parent.parent
TOY: dict[str, Any] = {
    "model": {
        "layers": [{"name": "a", "parameters": 10**6, "forward": "1 ms", "backward": "2 ms"}]
    },
    "cluster": {"ranks": 2},
    "collective": {"backend": "ideal", "latency": "1 ms", "bandwidth": "10 GB/s"},
    "strategy": {"kind": "ddp"},
    "optimizer": {"kind": "none"},
}
JITTERED = TOY | {
    "cluster": {"ranks": 4},
    "variability": {"jitter": "5 %", "steps": 20},
    "sweep": {"cluster.ranks": [2, 4, 8]},
}


def made(data: dict[str, Any]) -> Loaded:
    return load(data, ROOT, "toy")


def again(loaded: Loaded) -> Loaded:
    """`loaded` written as YAML and read back."""
    data, _ = yamlfile.loads(yamlfile.dump_yaml(to_data(loaded.scenario)), "again.yaml")
    return load(data, loaded.base, loaded.name)


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_scenarios_round_trip(name: str) -> None:
    loaded = read(name)
    assert again(loaded).scenario == loaded.scenario
    assert again(loaded).points == loaded.points


def seconds() -> st.SearchStrategy[str]:
    return (st.just(0.0) | st.floats(1e-20, 1e6)).map(lambda value: f"{value!r} s")


LAYERS = st.lists(
    st.fixed_dictionaries(
        {"parameters": st.integers(0, 10**9) | st.lists(st.integers(0, 10**6), max_size=3),
         "forward": seconds(), "backward": seconds()},
        optional={"dtype": st.sampled_from(["fp32", "bf16"])},
    ), min_size=1, max_size=4,
).map(lambda rows: [{"name": f"l{k}", **row} for k, row in enumerate(rows)])  # fmt: skip
SCENARIOS = st.fixed_dictionaries(
    {
        "model": st.fixed_dictionaries({"layers": LAYERS}),
        "cluster": st.fixed_dictionaries({"ranks": st.integers(1, 1_048_576)}),
        "collective": st.fixed_dictionaries(
            {"backend": st.sampled_from(["ideal", "ideal_ring"]), "latency": seconds(),
             "bandwidth": st.floats(1e-3, 1e17).map(lambda value: f"{value!r} B/s")}
        ),
        "strategy": st.sampled_from(
            [{"kind": "ddp"}, {"kind": "ddp", "torch": "1.5", "bucket_cap_mb": 3.7},
             {"kind": "fsdp", "reshard_after_forward": False}]
        ),
    },
    optional={
        "title": st.text(max_size=20),
        "batch": st.sampled_from([{"per_device": 3}, {"global": 12, "accumulation": 4}]),
        "variability": (st.just(0.0) | st.floats(1e-20, 1)).map(lambda value: {"jitter": value}),
        "iteration": st.sampled_from(["steady", 1, 7]),
        "seed": st.integers(0, 2**31 - 1),
        "calibrate": st.sampled_from([{"step_time": "1.5 s"}, {"throughput": "80.1 images/s"}]),
    },
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(SCENARIOS)
def test_made_scenarios_round_trip(data: dict[str, Any]) -> None:
    loaded = made(data)
    assert again(loaded).scenario == loaded.scenario
    assert to_data(again(loaded).scenario) == to_data(loaded.scenario)


def test_set_replaces_adds_and_reaches_into_lists(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(yamlfile.dump_yaml(TOY))
    sets = ("cluster.ranks=4", "batch.per_device=3", "model.layers[0].forward=7 ms", "title=a=b")
    loaded = read(path, sets)
    assert loaded.scenario.cluster.ranks == 4
    assert loaded.scenario.batch.per_device == 3
    assert loaded.scenario.model.layers[0].forward == 0.007
    assert loaded.name == "a=b"
    assert read(path, ("cluster.ranks=4", "cluster.ranks=8")).scenario.cluster.ranks == 8
    swept = read(path, ("sweep={cluster.ranks: [1, 2]}",))
    assert [point.cluster.ranks for point in swept.points] == [1, 2]


def test_origins_say_where_a_value_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(yamlfile.dump_yaml(TOY))
    origins = read(path, ("cluster.ranks=4",)).origins
    assert origins["cluster.ranks"] == "--set cluster.ranks=4"
    assert origins["model"] == f"{path}:1"
    assert origins["model.layers[0].forward"] == f"{path}:5"


def test_what_was_set_is_named_where_a_key_of_the_file_is_at_odds_with_it(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(yamlfile.dump_yaml({**TOY, "parallel": {"pipeline": 2}}))
    with pytest.raises(Refused, match=r"x.yaml:\d+: parallel: .*; with --set cluster.ranks=3$"):
        predict(read(path, ("cluster.ranks=3",)))


def test_units_do_not_matter() -> None:
    """The same quantities in other units give the same bytes."""
    same = [
        ("1 ms", "10 GB/s"),
        ("1000 us", "80 Gbit/s"),
        ("0.001 s", "10000000000 B/s"),
        ("1e-3 s", "10 MB/ms"),
        ("1000000 ns", "80000 Mbit/s"),
    ]
    found = set()
    for latency, bandwidth in same:
        collective = {"backend": "ideal", "latency": latency, "bandwidth": bandwidth}
        found.add(canonical_json(predict(made(TOY | {"collective": collective})).document))
    assert len(found) == 1


def test_json_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(TOY, indent=1))
    assert read(path).scenario == made(TOY).scenario


def test_bundled_names() -> None:
    assert find("quickstart") == FOLDER / "quickstart.yaml"
    assert find("scenarios/quickstart") in (
        FOLDER / "quickstart.yaml",
        Path("scenarios/quickstart"),
    )
    assert find("worked/ddp_steady") == FOLDER / "worked" / "ddp_steady.yaml"
    with pytest.raises(Refused, match="bundled: amdahl, "):
        find("nothing")


def test_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(yamlfile.dump_yaml(JITTERED))
    found = set()
    for seed in ("0", "1", "random"):
        out = tmp_path / seed
        subprocess.run(
            [sys.executable, "-m", "dpsim", "run", "x.yaml", "--json", "-o", str(out)],
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
            cwd=tmp_path, check=True, capture_output=True, timeout=120,
        )  # fmt: skip
        found.add((out / "prediction.json").read_bytes())
    assert len(found) == 1


def test_draws_do_not_depend_on_the_other_points() -> None:
    alone = predict(made(JITTERED | {"sweep": {"cluster.ranks": [4]}})).points[0]
    among = predict(made(JITTERED)).points[1]
    back = predict(made(JITTERED | {"sweep": {"cluster.ranks": [8, 4]}})).points[1]
    for key in ("step_time_s", "step_time_low_s", "step_time_high_s", "step_p99_s"):
        assert alone[key] == among[key] == back[key], key


def test_another_seed_gives_other_draws() -> None:
    one, two = (predict(made(JITTERED | {"seed": seed})).step_time_s for seed in (1, 2))
    assert one != two


def test_set_takes_a_swept_key_out_of_the_sweep() -> None:
    """What is asked for last, wins: the sweep does not silently overwrite it."""
    loaded = read("quickstart", ["cluster.ranks=4"])
    assert [point.cluster.ranks for point in loaded.points] == [4]
    with pytest.raises(Refused, match="the points of the sweep set this key"):
        read("two-3090", ["cluster.machine=dgx-1v"])


NODES = [{"machine": "dgx-a100", "nodes": 1}, {"machine": "dgx-a100", "nodes": 2}]


@pytest.mark.parametrize(
    ("sweep", "text", "points"),
    [
        ({"cluster": NODES}, "cluster.nodes=8", [{"cluster": {**NODES[0], "nodes": 8}}]),
        ({"cluster": NODES}, "cluster.ranks=4", [{"cluster": {"machine": "dgx-a100", "ranks": 4}}]),
        (
            {"cluster": NODES},
            "cluster.machine=dgx-1v",
            [{"cluster": {"machine": "dgx-1v", "nodes": nodes}} for nodes in (1, 2)],
        ),
        ({"cluster.nodes": [1, 2]}, "cluster={machine: dgx-a100, nodes: 4}", [{}]),
        ({"cluster.nodes": [1, 2]}, "cluster={machine: dgx-a100, ranks: 4}", [{}]),
        (
            {"cluster.nodes": [1, 2]},
            "cluster={machine: dgx-a100}",
            [{"cluster.nodes": 1}, {"cluster.nodes": 2}],
        ),
        (
            {"strategy": [{"kind": "ddp"}, {"kind": "fsdp"}]},
            "strategy.kind=horovod",
            [{"strategy": {"kind": "horovod"}}],
        ),
        ({"model.layers[0].forward": ["1 ms", "2 ms"]}, "model.layers.0.forward=50ms", [{}]),
    ],
)
def test_what_is_set_holds_in_all_points_of_a_sweep(
    sweep: Any, text: str, points: list[Any]
) -> None:
    """Whether the sweep sets the key itself, what it is in, what is in it, or spells it another
    way."""
    data = {"model": {"layers": [{"forward": "3 ms"}]}, "sweep": sweep}
    apply_sets(data, [text])
    assert sweep_changes(data) == tuple(points)


@pytest.mark.parametrize(
    ("sweep", "text"),
    [
        ([{"cluster": NODES[0]}, {"cluster": NODES[1]}], "cluster.nodes=8"),
        ([{"cluster.nodes": 1}, {"cluster.nodes": 2}], "cluster={nodes: 8}"),
        ([{"cluster.nodes": 1}, {"cluster.nodes": 2}], "cluster.ranks=8"),
        ({"batch.per_device": [1, 2]}, "jobs[0].batch.per_device=8"),
    ],
)
def test_what_is_set_is_refused_where_listed_points_set_it_too(sweep: Any, text: str) -> None:
    with pytest.raises(Refused, match=r"^--set .*: the points of the sweep set this key"):
        apply_sets({"sweep": sweep, "jobs": [{}]}, [text])


def test_what_is_set_is_refused_where_a_job_has_its_own() -> None:
    jobs = [{"name": "a"}, {"name": "b", "batch": {"per_device": 2}}]
    with pytest.raises(Refused, match=r"set it there: jobs\[1\]\.batch\.per_device"):
        apply_sets({"jobs": jobs}, ["batch.per_device=8"])


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        ({"cluster.nodes": [1, 2], "cluster.ranks": [2, 4]}, "sweep.cluster.ranks: cluster.nodes"),
        ([{"cluster.nodes": 1, "cluster.ranks": 2}], "sweep[0].cluster.ranks: cluster.nodes says"),
        ({"batch.per_device": [1], "batch": [{"per_device": 4}]}, "sweep.batch: replaces what"),
        ({"batch": [{"per_device": 4}], "batch.per_device": [1]}, "per_device: batch sets it"),
        ({"a[0]": [1], "a.0": [2]}, "sweep.a.0: is given twice"),
        ({"batch..per_device": [1]}, "'batch..per_device' is no path to a key"),
        ([{".batch": 1}], "'.batch' is no path to a key"),
        ({"batch]per_device[": [1]}, "'batch]per_device[' is no path to a key"),
        ({"cluster[nodes]": [1]}, "'cluster[nodes]' is no path to a key"),
    ],
)
def test_points_whose_labels_would_not_hold_are_refused(sweep: Any, said: str) -> None:
    with pytest.raises(Refused) as caught:
        sweep_changes({"sweep": sweep})
    assert said in str(caught.value)


def test_an_axis_inside_of_another_leaves_its_values_as_they_are() -> None:
    """A point's label says what the file says, not what other axes add to it."""
    kinds = [{"kind": "ddp"}]
    data = made(TOY | {"sweep": {"strategy": kinds, "strategy.bucket_cap_mb": [1, 2]}})
    assert [point.strategy.bucket_cap_mb for point in data.points] == [1, 2]
    assert kinds == [{"kind": "ddp"}]


@pytest.mark.parametrize(
    "text", ["strategy.torch=2.10", "strategy.horovod=0.20", "collective.version=2.20"]
)
def test_versions_need_no_quotes_where_they_are_set(text: str) -> None:
    data: dict[str, Any] = {}
    key, _, version = text.partition("=")
    apply_sets(data, [text])
    section, name = key.split(".")
    assert data[section][name] == version


def test_the_size_of_the_cluster_is_what_was_said_last() -> None:
    (point,) = read("quickstart", ["cluster.nodes=2"]).points
    assert (point.cluster.nodes, point.cluster.ranks) == (2, None)
    loaded = read("vgg16-10gbe", ["sweep=null", "cluster.nodes=4"])
    assert (loaded.scenario.cluster.nodes, loaded.scenario.cluster.ranks) == (4, None)


def test_a_version_needs_no_quotes_on_the_command_line() -> None:
    strategy = read("quickstart", ["strategy.torch=2.10"]).scenario.strategy
    assert str(strategy.torch) == "2.10"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("own", "text", "left"),
    [
        ({"global": 64, "accumulation": 8}, "batch.per_device=2", {"global": 64, "per_device": 2}),
        (
            {"per_device": 2, "accumulation": 8},
            "batch.per_device=4",
            {"per_device": 4, "accumulation": 8},
        ),
        (
            {"global": 64, "per_device": 2},
            "batch.accumulation=1",
            {"global": 64, "per_device": 2, "accumulation": 1},
        ),
    ],
)
def test_of_a_global_batch_the_number_of_micro_batches_follows_from_their_size(
    own: dict[str, int], text: str, left: dict[str, int]
) -> None:
    data: dict[str, Any] = {"batch": own}
    apply_sets(data, [text])
    assert data["batch"] == left


def test_both_at_once_replace_nothing_and_a_sweep_of_the_other_is_told() -> None:
    both = ["batch.per_device=2", "batch.accumulation=4"]
    data: dict[str, Any] = {"batch": {"global": 64}}
    apply_sets(data, both)
    assert data["batch"] == {"global": 64, "per_device": 2, "accumulation": 4}
    change = {"batch.per_device": 2, "batch.accumulation": 4}
    assert with_change({"batch": {"global": 64}}, change, ()) == data
    swept = {"batch": {"global": 64}, "sweep": {"batch.accumulation": [4, 8]}}
    with pytest.raises(Refused, match=r"the sweep sets batch\.accumulation"):
        apply_sets(swept, both[:1])
    apply_sets(swept | {"batch": {}}, both[:1])
