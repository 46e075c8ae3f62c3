"""`dpsim sweep`: what a grid is, that nothing that was stored is lost, and that the result is the
same to the byte however it came about."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsim.core import capacity
from dpsim.core.errors import EnginesDisagree
from dpsim.core.overrides import with_change
from dpsim.core.record import Refused
from dpsim.describe.scenario import load, read
from dpsim.machines.machine import load_machine
from dpsim.planning import log as logs
from dpsim.planning.cluster import on_ray
from dpsim.planning.grid import MAX_GRID, Axis, Grid, SweptKey, check, grid_of, parse_axis
from dpsim.planning.log import Damaged, frame, parse, read_log, writing
from dpsim.planning.sweep import Sweep, play_point, play_points, sweep_of
from dpsim.planning.swept import GridAnswer, Swept, merge, player, sweep
from dpsim.planning.unswept import Unswept
from dpsim.planning.workers import TRIES, Lost, in_processes
from dpsim.predict.document import from_json, to_json
from dpsim.predict.numbers import HEAD, RELATIVE
from dpsim.predict.point import computed
from dpsim.predict.prediction import predict
from dpsim.report.sweep import write_sweep
from dpsim.report.sweep_picture import check_field, check_grid, check_name, make_figure, scale_of

Cli = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parent.parent
TOY = """
model:
  dtype: fp32
  layers:
    - {name: a, parameters: 1000000, forward: 1 ms, backward: 2 ms}
    - {name: b, parameters: 4000000, forward: 1 ms, backward: 3 ms}
cluster: {ranks: 2}
collective: {backend: ideal_ring, latency: 100 us, bandwidth: 10 GB/s}
strategy: {kind: ddp, torch: "2.13"}
optimizer: {kind: none}
"""
SMALL = ("cluster.ranks=1,2,4", "strategy.bucket_cap_mb=1,25")


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text(TOY, encoding="utf-8")
    return path


@pytest.fixture
def plan(toy: Path) -> Sweep:
    return sweep_of(read(toy), SMALL)


def swept(plan: Sweep, folder: Path, jobs: int = 1, **options: Any) -> Swept:
    return sweep(plan, folder, player(jobs), **options)


def files(folder: Path) -> tuple[bytes, bytes]:
    return (folder / "sweep.json").read_bytes(), (folder / "sweep.csv").read_bytes()


# -- grids ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a.b=1,2,4", (1, 2, 4)),
        ("a=1:1024:x2", tuple(2**k for k in range(11))),
        ("a=1:10:1", tuple(range(1, 11))),
        ("a=1:10:4", (1, 5, 9)),
        ("a=3:20:x3", (3, 9)),
        ("a=0.1:0.3:0.1", (0.1, 0.2, 0.3)),
        ("a=25:100:x2 Gbit/s", ("25 Gbit/s", "50 Gbit/s", "100 Gbit/s")),
        ("a=0:10:5 %", ("0 %", "5 %", "10 %")),
        ("a=1,8:10:1", (1, 8, 9, 10)),
        ("a=25 Gbit/s,1e9,true,null", ("25 Gbit/s", 1e9, True, None)),
        ("a='1,5',\"2\"", ("1,5", "2")),
        ("a={kind: ddp},{kind: fsdp, x: [1, 2]}", ({"kind": "ddp"}, {"kind": "fsdp", "x": [1, 2]})),
        ("strategy.torch=2.1,2.10", ("2.1", "2.10")),
    ],
)
def test_values_are_yaml_and_ranges_include_their_end(text: str, values: tuple[Any, ...]) -> None:
    found = parse_axis(text).values
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a", "write it as key.path=value"),
        ("=1", "write it as key.path=value"),
        ("a=", "an empty value"),
        ("a=1,,2", "an empty value"),
        ("a=1,1", "1 is given twice"),
        ("a=1:8", "1:8 has no step; write 1:8:1, or 1:8:x2"),
        ("a=8:1:1", "a range goes up"),
        ("a=1:8:x1", "a factor above 1"),
        ("a=0:8:x2", "a start above 0"),
        ("a=1:8:0", "a step above 0"),
        ("a=1:1000000000:1", "more than 100,000 values"),
        ("a=[1", "not valid YAML"),
        ("sweep.x=1,2", "cannot be swept"),
        ("calibrate.ranks=1,2", "calibrated once"),
        ("a=.nan,1", "not finite"),
        ("batch..per_device=4,8", "'batch..per_device' is no path to a key"),
    ],
)
def test_an_axis_that_is_none_is_refused(text: str, said: str) -> None:
    with pytest.raises(Refused, match=said.replace(".", r"\.")):
        parse_axis(text)


@pytest.mark.parametrize(
    ("sweep", "text", "names"),
    [
        ({"cluster.nodes": [1, 2]}, "cluster={machine: dgx-a100, nodes: 4}", ["cluster"]),
        ({"cluster.ranks": [1, 2]}, "cluster.nodes=4,8", ["cluster.nodes"]),
        (
            {"strategy": [{"kind": "ddp"}]},
            "strategy.torch=2.9,2.10",
            ["strategy", "strategy.torch"],
        ),
        ({"strategy": [{"kind": "ddp"}, {"kind": "fsdp"}]}, "strategy.kind=zero,ddp", None),
        ({"cluster.nodes": [1, 2]}, "cluster={machine: dgx-a100}", None),
        ([{"cluster.nodes": 1, "seed": 1}], "cluster.ranks=4,8", None),
        ([{"cluster": {"nodes": 1}, "seed": 1}], "cluster.nodes=4,8", None),
    ],
)
def test_an_axis_takes_the_place_of_what_the_scenario_sweeps_or_is_refused(
    sweep: Any, text: str, names: list[str] | None
) -> None:
    if names is None:
        with pytest.raises(Refused, match="the points of the scenario's sweep set this key"):
            grid_of({"sweep": sweep}, [text])
    else:
        assert [axis.name for axis in grid_of({"sweep": sweep}, [text]).axes] == names


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_points_are_the_product_of_the_axes_the_last_varying_fastest(sizes: list[int]) -> None:
    names = "abcd"
    axes = tuple(
        Axis(name, tuple({name: step} for step in range(size)))
        for name, size in zip(names, sizes, strict=False)
    )
    points = [tuple(change.values()) for change in Grid(axes)]
    assert points == sorted(points)
    assert len(set(points)) == len(points) == len(Grid(axes))


def test_a_grid_too_large_to_keep_is_refused_before_it_is_made() -> None:
    axes = tuple(parse_axis(f"a{k}=1:50000:1") for k in range(3))
    with pytest.raises(Refused, match=f"125,000,000,000,000 points.*at most {MAX_GRID:,}"):
        Grid(axes)


def test_axes_that_undo_each_other_are_refused() -> None:
    for texts in (
        ("a=1,2", "a=3,4"),
        ("cluster.nodes=1,2", "cluster.ranks=1,2"),
        ("strategy.bucket_cap_mb=1,25", "strategy={kind: ddp},{kind: fsdp}"),
    ):
        with pytest.raises(Refused, match="--grid"):
            grid_of({}, texts)


def test_the_scenarios_own_sweep_comes_first_and_gives_way() -> None:
    data = {"sweep": {"cluster.nodes": [1, 2], "seed": [0, 1]}}
    assert [axis.name for axis in grid_of(data, ["b=1"]).axes] == ["cluster.nodes", "seed", "b"]
    replaced = grid_of(data, ["cluster.ranks=8,16"])
    assert [axis.name for axis in replaced.axes] == ["seed", "cluster.ranks"]
    listed = {"sweep": [{"seed": 1, "cluster.nodes": 2}, {"seed": 2}]}
    assert len(grid_of(listed, ["b=1,2"])) == 4
    with pytest.raises(Refused, match="sweep=null"):
        grid_of(listed, ["seed=1,2"])
    with pytest.raises(Refused, match="nothing is swept"):
        grid_of({}, [])


def test_a_value_that_no_point_accepts_is_refused_others_become_errors() -> None:
    grid = Grid((parse_axis("a=1,2"), parse_axis("b=1,2,3")))
    tried = []

    def only(*good: tuple[int, int]) -> Callable[[dict[str, Any]], None]:
        def accept(change: dict[str, Any]) -> None:
            tried.append(change)
            if (change["a"], change["b"]) not in good:
                raise Refused("is wrong", ("b",))

        return accept

    check(grid, only((1, 1), (2, 2), (2, 3)))
    with pytest.raises(Refused, match=r"--grid b=2: is wrong"):
        check(grid, only((1, 1), (2, 1), (1, 3)))
    tried.clear()
    check(grid, only(*((a, b) for a in (1, 2) for b in (1, 2, 3))))
    assert len(tried) == 4  # as many as it takes to see every value once


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ("cluster.ranks=2,0", "--grid cluster.ranks=0: 0 is not in 1 … 1,048,576"),
        ("cluster.rank=1,2", "--grid cluster.rank=1: unknown key; did you mean 'ranks'?"),
        ("collective.latency=1 us,5", "--grid collective.latency=5: 5 has no unit"),
        ("strategy.kind=ddp,fsdq", "did you mean 'fsdp'?"),
        ("cluster.machine=dgx-h1000", "no machine 'dgx-h1000'; did you mean 'dgx-h100'?"),
    ],
)
def test_the_scenarios_schema_is_asked_before_anything_is_played(
    cli: Cli, toy: Path, tmp_path: Path, grid: str, said: str
) -> None:
    code, out, err = cli("sweep", str(toy), "--grid", grid, "-o", "out")
    assert (code, out) == (2, "")
    assert said in err
    assert not (tmp_path / "out").exists()


# -- points ---------------------------------------------------------------------------------------


def test_a_point_is_what_run_predicts_for_it_alone(plan: Sweep, toy: Path, tmp_path: Path) -> None:
    document = swept(plan, tmp_path / "out").document
    base = document["points"][0]
    for point in document["points"]:
        sets = [f"{key}={value}" for key, value in point["set"].items()]
        alone = predict(read(toy, sets)).points[0]
        relative = ("speedup", "efficiency", "efficiency_low", "efficiency_high", "set")
        assert {k: v for k, v in point.items() if k not in relative} == {
            k: v for k, v in json.loads(json.dumps(dict(alone))).items() if k not in relative
        }
        assert point["speedup"] == point["throughput_per_s"] / base["throughput_per_s"]


def test_a_sweep_is_calibrated_once_on_the_scenario_as_it_stands(toy: Path, tmp_path: Path) -> None:
    toy.write_text(TOY + "calibrate: {step_time: 20 ms, ranks: 2}\n", encoding="utf-8")
    plan = sweep_of(read(toy), ["cluster.ranks=1,2"])
    assert swept(plan, tmp_path / "a").document["points"][1]["step_time_s"] == pytest.approx(20e-3)
    other = sweep_of(read(toy), ["cluster.ranks=1,2", "strategy.bucket_cap_mb=1,25"])
    points = swept(other, tmp_path / "b").document["points"]
    times = [point["step_time_s"] for point in points]
    assert other.unswept.found == plan.unswept.found
    assert times[0] == times[1]  # alone, buckets make no difference
    toy.write_text(toy.read_text(encoding="utf-8").replace(", ranks: 2", ""), encoding="utf-8")
    for ranks in (1, 4):  # without `ranks` it is the first point of the scenario's own sweep
        loaded = read(toy, [f"sweep={{cluster.ranks: [{ranks}, 8]}}"])
        another = sweep_of(loaded, ["cluster.ranks=1,2,4"])
        assert another.unswept.found is not None
        assert another.unswept.found.ranks == ranks
        assert another.header["id"] not in (plan.header["id"], other.header["id"])
        other = another
    assert times[2] != times[3]  # beside others they do: no point is fitted to the measurement


def test_a_calibrated_sweep_over_machines_says_that_one_at_most_was_measured(
    tmp_path: Path,
) -> None:
    def said(*axes: str) -> list[str]:
        found = swept(sweep_of(read("quickstart"), list(axes)), tmp_path / axes[0].replace("=", ""))
        return [text for text in found.document["warnings"] if "carried to" in text]

    assert said("cluster.machine=v100-1x100g,dgx-1v") == [
        "calibrate: measured at one cluster.machine at most, and carried to all of v100-1x100g, "
        "dgx-1v"
    ]
    assert said("cluster.machine=dgx-1v") == [
        "calibrate: measured without cluster.machine=dgx-1v, and carried to it"
    ]
    assert not said("cluster.machine=v100-1x100g")
    assert not said("cluster.nodes=1,2")


def test_a_point_that_cannot_be_computed_is_there_with_its_error(
    cli: Cli, toy: Path, tmp_path: Path
) -> None:
    code, out, _ = cli(
        "sweep", str(toy), "--set", "batch.global=4", "--grid", "cluster.ranks=2,4,8", "--json"
    )
    points = json.loads(out)["points"]
    assert code == 1
    assert [point["ranks"] for point in points] == [2, 4, 8]
    assert "without a sample" in points[2]["error"]
    assert points[0]["speedup"] == 1.0


def test_the_document_is_the_file_and_csv_has_the_same_numbers(
    cli: Cli, toy: Path, tmp_path: Path
) -> None:
    code, out, err = cli(
        "sweep", str(toy), "--grid", SMALL[0], "--grid", SMALL[1], "--json", "-o", "out",
        "--jobs", "1",
    )  # fmt: skip
    assert code == 0
    assert "6 points: cluster.ranks (3) x strategy.bucket_cap_mb (2)" in err
    document = json.loads(out)
    assert out == (tmp_path / "out/sweep.json").read_text(encoding="utf-8")
    with open(tmp_path / "out/sweep.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(document["points"]) == 6
    for row, point in zip(rows, document["points"], strict=True):
        assert float(row["step_time_s"]) == point["step_time_s"]
        assert int(row["set cluster.ranks"]) == point["set"]["cluster.ranks"]
    assert document["grid"][0] == {"key": "cluster.ranks", "values": [1, 2, 4]}


# -- columns --------------------------------------------------------------------------------------


def test_a_column_is_what_the_whole_point_has_there(toy: Path) -> None:
    toy.write_text(TOY + "variability: {jitter: 5 %, steps: 6}\nseed: 3\n", encoding="utf-8")
    known = [key for key in predict(read(toy)).points[0] if key not in (*HEAD, *RELATIVE)]
    asked = sweep_of(read(toy), ["cluster.ranks=2,4"], known)
    for number, ranks in enumerate((2, 4)):
        whole = dict(predict(read(toy, [f"cluster.ranks={ranks}", "engine=vectorised"])).points[0])
        point = play_point(asked, number)["point"]
        assert list(point) == [*HEAD[:-1], *known, "set"]
        for key in set(known) - {"engine_reason"}:
            said = json.loads(json.dumps(whole[key]))
            near = pytest.approx(said, rel=1e-12) if isinstance(said, float) else said
            assert point[key] == near, key


def test_what_no_column_asks_for_is_not_worked_out(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = sweep_of(read(toy), SMALL, ["step_time_s", "throughput_per_s"])
    for name in ("interval", "memory_of", "bottleneck", "startup_of", "_bound", "_sent"):
        monkeypatch.setattr(f"dpsim.predict.numbers.{name}", None)
    found = swept(asked, tmp_path / "out").answer
    assert all(set(point) == {*HEAD, *asked.columns} for point in found.points)


def test_engines_are_compared_at_every_kind_of_point(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers make no kind, but none, one and more of something do."""
    found: list[Any] = []
    monkeypatch.setattr("dpsim.planning.unswept.cross_check", found.append)
    grids = {
        "cluster.ranks=2,4": 1,
        "strategy.kind=ddp,fsdp": 2,
        "variability.jitter=0,2 %,3 %": 2,
        "compute.contention=0,0.5,0.7": 2,
        "batch.accumulation=1,2,3": 2,
        "collective={backend: ideal},{backend: ideal, latency: 1 us},{backend: free}": 3,
    }
    for grid, kinds in grids.items():
        asked = sweep_of(read(toy), [grid], ["step_time_s"])
        for numbers in (range(len(asked.grid)), reversed(range(len(asked.grid)))):
            fresh = sweep_of(read(toy), [grid], ["step_time_s"])
            found.clear()
            points = [play_point(fresh, number)["point"] for number in numbers]
            assert {point["engine"] for point in points} == {"vectorised"}
            assert len(found) == kinds, grid


def test_engines_that_disagree_are_no_answer_to_any_point(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or one point would have none because it came first."""

    def wrong(case: Any) -> None:
        raise EnginesDisagree("the engines disagree")

    monkeypatch.setattr("dpsim.planning.unswept.cross_check", wrong)
    asked = sweep_of(read(toy), SMALL, ["step_time_s"])
    with pytest.raises(EnginesDisagree):
        swept(asked, tmp_path / "out")
    assert len(read_log(tmp_path / "out").records) == 1


@pytest.mark.parametrize("columns", [(), ("step_time_s",)])
def test_a_machine_that_is_too_small_is_no_answer(
    toy: Path, tmp_path: Path, columns: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A larger one goes on where it ended."""
    asked = sweep_of(read(toy, ["engine=vectorised"]), SMALL, columns)
    with monkeypatch.context() as small:
        small.setattr(capacity, "room", lambda: capacity.Room(1e3))
        with pytest.raises(capacity.TooSmall, match="80 % of this machine's"):
            swept(asked, tmp_path / "out")
    assert len(read_log(tmp_path / "out").records) == 1
    found = swept(asked, tmp_path / "out")
    assert not found.missing
    assert json.dumps(found.document) == json.dumps(swept(asked, tmp_path / "whole").document)


def test_a_machine_that_is_too_small_is_the_environments_fault(
    cli: Cli, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "room", lambda: capacity.Room(1e3))
    for command in (("run", str(toy)), ("sweep", str(toy), "--jobs", "1", "--grid", SMALL[0])):
        code, out, err = cli(*command)
        assert (code, out) == (3, "")
        assert "80 % of this machine's" in err


def test_columns_are_in_the_files_and_in_the_table(cli: Cli, toy: Path, tmp_path: Path) -> None:
    command = ("sweep", str(toy), "--grid", SMALL[0], "--jobs", "1", "-o", "out")
    code, out, _ = cli(*command, "--column", "step_time_s", "--column", "mfu")
    assert (code, "step_time_s" in out) == (0, True)
    with open(tmp_path / "out/sweep.csv", encoding="utf-8", newline="") as file:
        header = next(csv.reader(file))
    assert header == ["set cluster.ranks", *HEAD[:-1], "step_time_s", "mfu"]
    document = json.loads((tmp_path / "out/sweep.json").read_text(encoding="utf-8"))
    assert to_json(from_json(GridAnswer, document)) == document
    code, _, err = cli(*command)
    assert (code, "is the log of another sweep (the columns)" in err) == (2, True)


@pytest.mark.parametrize(
    ("column", "said"),
    [("step_time", "did you mean 'step_time_s'?"), ("speedup", "of a point alone")],
)
def test_a_column_that_is_none_is_refused(toy: Path, column: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        sweep_of(read(toy), SMALL, [column])


CHANGES: list[dict[str, Any]] = [
    {"collective.latency": "3 us"}, {"cluster.ranks": 4, "seed": 7}, {"strategy.bucket_cap_mb": 3},
    {"strategy": {"kind": "fsdp"}}, {"compute.contention": 0.5}, {"batch.global": 12}, {},
    {"model.layers[1].forward": "3 ms"}, {"variability": {"jitter": "2 %"}}, {"title": "other"},
    {"precision": {"compute": "fp16"}}, {"iteration": 1}, {"collective": None}, {"seed": -1},
    {"host.launch": "5 us"}, {"strategy.buckets": 3}, {"cluster.machine": "dgx-h1000"},
    {"nothing": 1}, {"variability": None},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_changed_scenario_is_what_reading_all_of_it_gives(
    toy: Path, change: dict[str, Any]
) -> None:
    unswept = Unswept.of(read(toy))
    said: list[Any] = []
    whole = with_change(unswept.data, change, ())
    for make in (lambda: unswept.changed(change), lambda: load(whole, unswept.base, unswept.name)):
        try:
            found = make()
            said.append((found.scenario, found.points, found.data, found.name, found.changes))
        except Refused as error:
            said.append((str(error), error.path))
    assert said[0] == said[1]


# -- the log --------------------------------------------------------------------------------------


def test_points_that_come_at_once_are_stored_at_once(
    plan: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(asked: Sweep, numbers: Any) -> Any:
        for number in numbers:
            yield [play_point(asked, number)]

    monkeypatch.setattr("dpsim.planning.together.TOGETHER", 3600.0)
    stored: list[tuple[int, int]] = []
    out = tmp_path / "out"
    sweep(plan, out, play, tell=lambda done, of, new: stored.append((done, len(new))))
    assert stored[0] == (0, 0)
    assert stored[-1][0] == 6
    assert len(stored) <= 3


def test_a_point_is_stored_while_the_next_one_is_played(plan: Sweep, tmp_path: Path) -> None:
    """However long that takes: it goes on here when all before it are stored."""
    stored = threading.Condition()
    count = [0]

    def play(asked: Sweep, numbers: Any) -> Any:
        for done, number in enumerate(numbers):
            with stored:
                assert stored.wait_for(lambda done=done: count[0] == done, timeout=30)
            yield [play_point(asked, number)]

    def tell(done: int, of: int, new: Any) -> None:
        with stored:
            count[0] = done
            stored.notify_all()

    assert not sweep(plan, tmp_path / "out", play, tell=tell).missing


def waits_for_the_others(plan: Sweep, numbers: Sequence[int], log: str) -> Any:
    """Point 0 is played for as long as any other one is not in the log."""
    until = time.monotonic() + 60
    while 0 in numbers and len(read_log(Path(log)).records) < 6:
        assert time.monotonic() < until
        time.sleep(0.01)
    return play_points(plan, numbers)


def test_points_of_one_process_are_stored_while_another_one_plays(
    plan: Sweep, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    task = partial(waits_for_the_others, log=str(out))
    assert not sweep(plan, out, partial(in_processes, task=task, jobs=2)).missing


def test_what_goes_wrong_with_storing_late_ends_the_sweep(plan: Sweep, tmp_path: Path) -> None:
    said = threading.Event()

    def play(asked: Sweep, numbers: Any) -> Any:
        for number in numbers:
            yield [play_point(asked, number)]
            assert number != 1 or said.wait(30)

    def tell(done: int, of: int, new: Any) -> None:
        if done == 2:
            said.set()
            raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        sweep(plan, tmp_path / "out", play, tell=tell)


def test_what_waits_is_stored_where_playing_ends_early(plan: Sweep, tmp_path: Path) -> None:
    def play(asked: Sweep, numbers: Any) -> Any:
        for number in list(numbers)[:3]:
            yield [play_point(asked, number)]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(plan, tmp_path / "out", play)
    assert len(read_log(tmp_path / "out").records) == 1 + 3


def header(name: str = "x") -> dict[str, Any]:
    return {"format": 1, "id": name * 64, "parts": {"dpsim": name}, "points": 100}


def written(count: int) -> bytes:
    records = ({"of": "x" * 16, "n": n, "point": {"step_time_s": n / 7}} for n in range(count))
    return frame(header()) + b"".join(map(frame, records))


def test_any_cut_keeps_the_records_before_it_and_is_no_damage() -> None:
    data = written(4)
    whole = parse(data)
    ends = [i + 1 for i, byte in enumerate(data) if byte == ord("\n")]
    for size in range(len(data) + 1):
        found = parse(data[:size])
        kept = sum(end <= size for end in ends)
        assert found.records == whole.records[:kept]
        assert found.end + found.torn == size
        assert not found.damage


def test_every_single_bit_that_flips_is_named_and_costs_one_record_or_two() -> None:
    data = written(3)
    whole = parse(data)
    starts = [0, *(i + 1 for i, byte in enumerate(data) if byte == ord("\n"))]
    for place in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        found = parse(bytes(flipped))
        number = sum(start <= place // 8 for start in starts) - 1
        assert found.damage, place
        assert found.damage[0].startswith(f"record {number} (at byte {starts[number]:,})"), place
        assert set(map(str, found.records)) < set(map(str, whole.records))
        assert len(found.records) >= len(whole.records) - 2


def test_a_torn_tail_is_cut_with_a_note(tmp_path: Path) -> None:
    with writing(tmp_path, header()) as log:
        log.append([{"n": 0}, {"n": 1}])
    path = tmp_path / "sweep.log"
    sound = path.read_bytes()
    path.write_bytes(sound + frame({"n": 2})[:-5])
    with writing(tmp_path, header()) as log:
        assert [record["n"] for record in log.records] == [0, 1]
        assert "cut off an unfinished record" in log.notes[0]
        log.append([{"n": 2}])
    assert path.read_bytes() == sound + frame({"n": 2})


def test_damage_is_refused_by_name_and_salvaged_on_demand(
    cli: Cli, toy: Path, tmp_path: Path
) -> None:
    command = ("sweep", str(toy), "--grid", SMALL[0], "--grid", SMALL[1], "--jobs", "1", "-o")
    assert cli(*command, "whole")[0] == cli(*command, "out")[0] == 0
    path = tmp_path / "out/sweep.log"
    data = bytearray(path.read_bytes())
    start = data.index(b"\n", data.index(b"\n") + 1) + 1  # of record 2
    data[start + 40] ^= 4
    path.write_bytes(data)
    code, _, err = cli(*command, "out")
    assert code == 2
    assert f"sweep.log: record 2 (at byte {start:,}) is damaged: its checksum is" in err
    assert "--salvage" in err
    assert path.read_bytes() == data  # untouched
    code, _, err = cli(*command, "out", "--salvage")
    assert code == 0
    assert "5 sound records are kept" in err
    assert (tmp_path / "out/sweep.damaged").read_bytes() == data
    assert files(tmp_path / "out") == files(tmp_path / "whole")
    path.write_bytes(b"\0" + path.read_bytes()[1:])  # now the header
    assert cli(*command, "out")[0] == 2
    assert cli(*command, "out", "--salvage")[0] == 0
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_the_log_of_another_sweep_is_refused_and_what_differs_is_said(
    cli: Cli, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = toy.with_name("layers.json")
    layers.write_text(
        (ROOT / "dpsim/models/configs/bert-base-uncased.json").read_text(encoding="utf-8")
    )
    scenario = toy.with_name("own.yaml")
    scenario.write_text(
        "model: {huggingface: layers.json, sequence_length: 128}\n"
        "cluster: {machine: dgx-a100, nodes: 1}\nstrategy: {kind: ddp}\n",
        encoding="utf-8",
    )
    command = ("sweep", str(scenario), "--jobs", "1", "-o", "out", "--grid")
    grid = "strategy.bucket_cap_mb=25"
    assert cli(*command, grid)[0] == 0
    for part, more in (("the grid", (grid + ",50",)), ("the scenario", (grid, "--set", "seed=1"))):
        code, _, err = cli(*command, *more)
        assert code == 2
        assert f"log of another sweep ({part})" in err
    layers.write_text(layers.read_text(encoding="utf-8") + "\n")
    assert "(a file that the scenario names)" in cli(*command, grid)[2]
    layers.write_text(layers.read_text(encoding="utf-8")[:-1])
    assert cli(*command, grid)[0] == 0
    monkeypatch.setattr("dpsim.planning.sweep.__version__", "99.0")
    assert "there, 99.0 here)" in cli(*command, grid)[2]


def test_every_file_that_is_opened_is_in_the_header_also_the_device_beside_a_machine(
    tmp_path: Path,
) -> None:
    topologies = ROOT / "topologies"
    machine, device = tmp_path / "boxes" / "box.yaml", tmp_path / "boxes" / "own.yaml"
    machine.parent.mkdir()
    text = (topologies / "dgx-a100.yaml").read_text(encoding="utf-8")
    machine.write_text(re.sub(r"(?m)^device: .*$", "device: own.yaml", text), encoding="utf-8")
    device.write_bytes((topologies / "devices" / "a100-sxm-80gb.yaml").read_bytes())
    factors = tmp_path / "factors.csv"
    factors.write_text("factor\n1.5\n")
    scenario = tmp_path / "own.yaml"
    scenario.write_text(
        "model: {name: resnet50}\ncluster: {machine: boxes/box.yaml, nodes: 1}\n"
        "strategy: {kind: ddp}\nvariability: {jitter: {kind: empirical, file: factors.csv}}\n"
    )

    def header() -> str:
        return str(sweep_of(read(scenario), ["cluster.nodes=1,2"]).header["id"])

    first = header()
    for path in (machine, device, factors):
        was = path.read_bytes()
        path.write_bytes(was + b"\n")
        assert header() != first
        path.write_bytes(was)
    assert header() == first
    device.write_text(re.sub(r"memory: .*", "memory: 7 GB", device.read_text(), count=1))
    machine_now = load_machine("boxes/box.yaml", tmp_path)
    assert machine_now.device.memory == 7e9


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "device"])
def test_a_log_that_is_no_regular_file_is_refused_at_once(
    kind: str, plan: Sweep, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    sweep(plan, out, player(1), shard=(1, 4))
    path = out / "sweep.log"
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "device" else "nowhere")
    for salvage in (False, True):
        with pytest.raises(Refused, match="is no regular file"):
            sweep(plan, out, player(1), salvage=salvage)


def test_a_second_writer_is_refused_by_name(plan: Sweep, tmp_path: Path) -> None:
    with (
        writing(tmp_path / "out", plan.header),
        pytest.raises(Refused, match=f"process {os.getpid()} on .* is writing there"),
    ):
        swept(plan, tmp_path / "out")
    assert not swept(plan, tmp_path / "out").missing  # the lock went with its holder


def test_a_full_disk_keeps_what_counted(
    cli: Cli, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("sweep", str(toy), "--grid", SMALL[0], "--grid", SMALL[1], "--jobs", "1", "-o")
    assert cli(*command, "whole")[0] == 0
    size = (tmp_path / "whole/sweep.log").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for share in (0.3, 0.6, 0.8):
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(size * share), before[1]))
            code, _, err = cli(*command, "out")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert code == 3
        assert "points are stored, and the same command goes on from there" in err
        contents = read_log(tmp_path / "out")
        assert contents.torn == 0
        assert 0 < len(contents.records) - 1 < 6
    assert cli(*command, "out")[0] == 0
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_a_record_counts_only_after_it_is_synchronised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writing(tmp_path, header()) as log:
        log.append([{"n": 0}])

        def fails(file: int) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(logs, "_sync", fails)
        with pytest.raises(OSError, match="cannot be written: Input/output error; 1 points"):
            log.append([{"n": 1}])
        assert [record["n"] for record in log.records] == [0]
        monkeypatch.undo()
    assert [record.get("n") for record in read_log(tmp_path).records] == [None, 0]


def test_records_that_repeat_or_belong_elsewhere_are_refused(plan: Sweep, tmp_path: Path) -> None:
    swept(plan, tmp_path / "out")
    path = tmp_path / "out/sweep.log"
    sound = path.read_bytes()
    path.write_bytes(sound + sound.splitlines(keepends=True)[-1])
    with pytest.raises(Refused, match="record 7 repeats point 5"):
        swept(plan, tmp_path / "out")
    path.write_bytes(sound + frame({"of": "f" * 16, "n": 1}))
    with pytest.raises(Refused, match="record 7 belongs to another sweep"):
        swept(plan, tmp_path / "out")
    path.write_bytes(frame({**plan.header, "format": 2}))
    with pytest.raises(Refused, match="has format 2; this dpsim reads format 1"):
        swept(plan, tmp_path / "out")
    path.write_bytes(b"")
    with pytest.raises(Damaged, match="no header"):
        swept(plan, tmp_path / "out")


# -- processes ------------------------------------------------------------------------------------


def test_the_result_does_not_depend_on_where_points_are_played(plan: Sweep, tmp_path: Path) -> None:
    whole = swept(plan, tmp_path / "a", jobs=1).document
    several = swept(plan, tmp_path / "b", jobs=3).document
    assert json.dumps(several) == json.dumps(whole)


def dies_once(plan: Sweep, numbers: Sequence[int], folder: str) -> Any:
    """Plays points; the first process that gets point 2 is killed."""
    mark = Path(folder) / "died"
    if 2 in numbers and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return play_points(plan, numbers)


def dies_always(plan: Sweep, numbers: Sequence[int]) -> Any:
    if 2 in numbers:
        os.kill(os.getpid(), signal.SIGKILL)
    return play_points(plan, numbers)


def fails(plan: Sweep, numbers: Sequence[int]) -> Any:
    raise OSError("no file is open any more")


def test_a_process_that_is_killed_loses_nothing(plan: Sweep, tmp_path: Path) -> None:
    whole = swept(plan, tmp_path / "a").document
    task = partial(dies_once, folder=str(tmp_path))
    found = sweep(plan, tmp_path / "b", partial(in_processes, task=task, jobs=2))
    assert (tmp_path / "died").exists()
    assert json.dumps(found.document) == json.dumps(whole)


def test_a_point_that_kills_its_process_is_given_up_and_tried_again_next_time(
    plan: Sweep, tmp_path: Path
) -> None:
    found = sweep(plan, tmp_path / "b", partial(in_processes, task=dies_always, jobs=2))
    points = found.document["points"]
    assert len(points) == 6
    assert points[2]["error"] == (
        f"its process ended {TRIES} times without an answer (killed by SIGKILL)"
    )
    assert points[2]["set"] == plan.grid.change(2)
    assert [number for number, point in enumerate(points) if "error" in point] == [2]
    again = swept(plan, tmp_path / "b").document
    assert json.dumps(again) == json.dumps(swept(plan, tmp_path / "a").document)


def test_what_is_wrong_with_the_machine_is_no_property_of_a_point(
    plan: Sweep, tmp_path: Path
) -> None:
    with pytest.raises(OSError, match="no file is open"):
        sweep(plan, tmp_path / "b", partial(in_processes, task=fails, jobs=2))
    assert len(read_log(tmp_path / "b").records) == 1
    assert not multiprocessing.active_children()


# -- interruptions --------------------------------------------------------------------------------

LONG = (
    "cluster.ranks=1:10:1",
    "strategy.bucket_cap_mb=1:5:1",
    "collective.latency=10:60:10 us",
)  # 300 points


def command(toy: Path, out: Path, jobs: int) -> list[str]:
    grid = [word for text in LONG for word in ("--grid", text)]
    return [
        sys.executable, "-m", "dpsim", "sweep", str(toy), *grid,
        "-o", str(out), "--jobs", str(jobs),
    ]  # fmt: skip


def started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        arguments, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def heeds_ctrl_c() -> None:
    """Even if the tests run as a background job of a shell, which ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def wait_for_growth(process: subprocess.Popen[str], path: Path, more: int) -> None:
    """Until the file has grown by `more` bytes, or the process has ended."""
    least = size(path) + more
    while size(path) < least and process.poll() is None:
        time.sleep(0.001)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[bytes, bytes]]:
    """The toy, and the files of the long sweep without interruption."""
    folder = tmp_path_factory.mktemp("whole")
    toy = folder / "toy.yaml"
    toy.write_text(TOY, encoding="utf-8")
    found = swept(sweep_of(read(toy), LONG), folder / "out")
    write_sweep(found.answer, folder / "out")
    return toy, files(folder / "out")


def test_kill_9_and_resume_with_other_workers_gives_the_same_bytes(
    whole: tuple[Path, tuple[bytes, bytes]], tmp_path: Path
) -> None:
    toy, expected = whole
    log, dice = tmp_path / "out/sweep.log", random.Random(1)
    before: tuple[Any, ...] = ()
    for jobs in (2, 1, 3):
        process = started(*command(toy, tmp_path / "out", jobs))
        wait_for_growth(process, log, 3000 + dice.randrange(30_000))
        process.kill()
        process.communicate()
        found = read_log(tmp_path / "out").records
        assert found[: len(before)] == before  # what counted stays
        assert len(found) > len(before)
        before = found
    assert len(before) < 301, "all points were played before the last kill"
    process = started(*command(toy, tmp_path / "out", 2))
    assert process.communicate()[1]
    assert process.returncode == 0
    assert files(tmp_path / "out") == expected


def test_ctrl_c_ends_with_130_and_an_intact_log(
    whole: tuple[Path, tuple[bytes, bytes]], tmp_path: Path
) -> None:
    toy, expected = whole
    process = subprocess.Popen(
        command(toy, tmp_path / "out", 2), cwd=ROOT, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
        preexec_fn=heeds_ctrl_c,
    )  # fmt: skip
    wait_for_growth(process, tmp_path / "out/sweep.log", 20_000)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes
    _, err = process.communicate()
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err
    contents = read_log(tmp_path / "out")
    assert contents.torn == 0
    assert 1 < len(contents.records) < 301
    again = started(*command(toy, tmp_path / "out", 1))
    again.communicate()
    assert files(tmp_path / "out") == expected


# -- shards ---------------------------------------------------------------------------------------


def test_merged_shards_are_the_whole_sweep(cli: Cli, toy: Path, tmp_path: Path) -> None:
    command = ("sweep", str(toy), "--grid", SMALL[0], "--grid", SMALL[1], "--jobs", "1", "-o")
    assert cli(*command, "whole")[0] == 0
    for part in (1, 2, 3, 4):
        code, out, err = cli(*command, f"part-{part}", "--shard", f"{part}/4")
        assert (code, out) == (0, "")
        assert f"{2 if part < 3 else 1} of 6 points are in part-{part}" in err
        assert not (tmp_path / f"part-{part}/sweep.json").exists()
    parts = [f"part-{part}" for part in (4, 1, 3, 2)]
    code, _, err = cli("sweep", "--merge", *parts[:3], "-o", "merged")
    assert code == 2
    said = "2 of 6 points are missing, the first at cluster.ranks = 1, strategy.bucket_cap_mb = 25"
    assert said in err
    assert not (tmp_path / "merged/sweep.json").exists()
    assert cli("sweep", "--merge", *parts, "-o", "merged")[0] == 0
    assert files(tmp_path / "merged") == files(tmp_path / "whole")


def test_shards_that_do_not_belong_together_are_refused(toy: Path, tmp_path: Path) -> None:
    one, other = sweep_of(read(toy), SMALL), sweep_of(read(toy, ["seed=1"]), SMALL)
    swept(one, tmp_path / "a", shard=(1, 2))
    swept(other, tmp_path / "b", shard=(2, 2))
    with pytest.raises(Refused, match="is of another sweep than"):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "out")
    with writing(tmp_path / "c", one.header) as log:
        record = play_point(one, 0)
        record["point"]["step_time_s"] *= 1.0 + 1e-15
        log.append([record])
    with pytest.raises(Refused, match="different answers for point 0"):
        merge([tmp_path / "a", tmp_path / "c"], tmp_path / "out")
    with pytest.raises(Refused, match="there is no such log"):
        merge([tmp_path / "none"], tmp_path / "out")


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "1/0"])
def test_a_shard_that_is_none_is_refused(cli: Cli, toy: Path, shard: str) -> None:
    code, _, err = cli("sweep", str(toy), "--grid", SMALL[0], "-o", "out", "--shard", shard)
    assert code == 2
    assert "write I/N with I from 1 to N" in err


def test_options_that_do_not_go_together_are_refused(cli: Cli, toy: Path) -> None:
    for arguments, said in (
        ((str(toy), str(toy)), "one scenario"),
        ((str(toy), "--grid", SMALL[0], "--shard", "1/2"), "--shard: say with --out"),
        ((str(toy), "--grid", SMALL[0], "--plot", "mfu"), "--plot: say with --out"),
        (("--merge", "a", "--grid", "a=1", "-o", "b"), "--grid"),
        (("--merge", "a"), "--out"),
    ):
        code, _, err = cli("sweep", *arguments)
        assert code == 2
        assert said in err


# -- plots ----------------------------------------------------------------------------------------


def answered(toy: Path, tmp_path: Path, *grid: str, sets: tuple[str, ...] = ()) -> GridAnswer:
    return swept(sweep_of(read(toy, sets), grid), tmp_path / "plotted").answer


def test_lines_are_drawn_over_one_number_a_line_per_choice(toy: Path, tmp_path: Path) -> None:
    answer = answered(toy, tmp_path, "cluster.ranks=8,2,4", "strategy.kind=ddp,fsdp")
    figure = make_figure(answer, "step_time_s")
    (axes,) = figure.axes
    assert "no number" not in figure.get_suptitle()
    drawn = {line.get_label(): line for line in axes.get_lines()}
    assert set(drawn) == {"ddp", "fsdp"}
    ddp = [p for p in computed(answer.points) if p.set["strategy.kind"] == "ddp"]
    assert list(drawn["ddp"].get_xdata()) == [2, 4, 8]
    by_ranks = {p.ranks: p.step_time_s * 1e3 for p in ddp}
    assert list(drawn["ddp"].get_ydata()) == pytest.approx([by_ranks[n] for n in (2, 4, 8)])
    assert axes.get_ylabel() == "step time [ms]"
    assert axes.get_xlabel() == "cluster.ranks"


def test_a_heat_map_is_drawn_over_two_and_errors_stay_empty(toy: Path, tmp_path: Path) -> None:
    answer = answered(
        toy, tmp_path, "cluster.ranks=2,8", "collective.latency=1:5:2 us", sets=("batch.global=4",)
    )
    figure = make_figure(answer, "step_time_s")
    axes, _ = figure.axes
    assert "no number at 3 of 6 points" in figure.get_suptitle()
    (image,) = axes.get_images()
    cells = image.get_array()
    assert cells.shape == (3, 2)
    for row in range(3):
        assert cells[row, 0] == pytest.approx(answer.points[row]["step_time_s"] * 1e3)
        assert np.ma.is_masked(cells[row, 1])  # no number
    assert axes.get_xlabel() == "cluster.ranks"
    assert axes.get_ylabel() == "collective.latency [us]"
    assert [text.get_text() for text in axes.texts].count("none") == 3


def test_a_plot_that_shows_nothing_is_refused(toy: Path, tmp_path: Path) -> None:
    answer = answered(toy, tmp_path, "cluster.ranks=2,4")
    with pytest.raises(Refused, match=r"no point has such a number; known: .*step_time_s"):
        check_field(answer.points, "step_time")
    with pytest.raises(Refused, match="no point has such a number"):
        check_name(answer.points, "step_time")
    check_name(answer.points, "mfu")  # there, and nowhere a number
    with pytest.raises(Refused, match="no point has such a number"):
        check_field(answer.points, "mfu")
    for keys in (["strategy.kind=ddp,fsdp"], ["a=1,2", "b=1,2", "c=1,2"]):
        axes = [parse_axis(text) for text in keys]
        grid = [SweptKey(axis.name, axis.values) for axis in axes]
        with pytest.raises(Refused, match="one swept number"):
            check_grid(grid)


def test_quantities_are_numbers_with_their_unit() -> None:
    assert scale_of(SweptKey("a", ("25 Gbit/s", "100 Gbit/s"))).numbers == (25, 100)
    mixed = scale_of(SweptKey("a", ("500 us", "2 ms")))
    assert (mixed.numbers, mixed.unit) == ((0.0005, 0.002), "s")
    assert scale_of(SweptKey("a", ("2.13", "1.5.1"))).numbers is None
    assert scale_of(SweptKey("a", (True, False))).numbers is None


def test_plots_are_written_with_the_result(cli: Cli, toy: Path, tmp_path: Path) -> None:
    code, out, _ = cli(
        "sweep", str(toy), "--grid", "cluster.ranks=1,2,4", "--jobs", "1", "-o", "out",
        "--plot", "step_time_s", "--plot", "memory_parts.gradients",
    )  # fmt: skip
    assert code == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"step_time_s.png", "step_time_s.svg", "memory_parts.gradients.png"} <= names
    assert "step_time_s.png" in out


# -- Ray ------------------------------------------------------------------------------------------


def test_without_ray_the_message_says_what_to_install(
    cli: Cli, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, err = cli("sweep", str(toy), "--grid", SMALL[0], "--ray", "local", "-o", "out")
    assert code == 3
    assert "pip install 'dpsim[ray]'" in err


def ray_lost() -> None:
    """Stands for a task whose worker has ended."""


class CrashingRay:
    """What is used of Ray, with tasks carried out at once; those with point 5 end their worker."""

    class exceptions:  # noqa: N801
        class RayError(Exception): ...

        class RayTaskError(RayError): ...

    def __init__(self) -> None:
        self.tried: list[list[int]] = []

    def init(self, **options: Any) -> None: ...

    def shutdown(self) -> None: ...

    def put(self, value: Any) -> Any:
        return value

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 1.0}

    def remote(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        def of(call: Callable[..., Any]) -> Any:
            def start(task: Any, asked: Sweep, some: Sequence[int]) -> Any:
                self.tried.append(list(some))
                return partial(call, task, asked, some) if 5 not in some else ray_lost

            return SimpleNamespace(remote=start)

        return of

    def wait(self, some: list[Any], num_returns: int, timeout: int = 1) -> tuple[list[Any], Any]:
        return some[:num_returns], None

    def get(self, started: Any) -> Any:
        if started is ray_lost:
            raise self.exceptions.RayError("the worker died")
        return started()


def test_a_point_that_ends_its_worker_on_ray_loses_none_of_its_batch(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = CrashingRay()
    monkeypatch.setitem(sys.modules, "ray", ray)
    asked = sweep_of(read(toy), ["strategy.bucket_cap_mb=1:16:1"], ["step_time_s"])
    batches = on_ray(asked, range(16), play_points, "local", 1)
    found = {o.number if isinstance(o, Lost) else o["n"]: o for some in batches for o in some}
    assert [4, 5] in ray.tried
    assert sorted(found) == list(range(16))
    assert [n for n, one in found.items() if isinstance(one, Lost)] == [5]


@pytest.mark.filterwarnings("ignore")
def test_ray_gives_the_same_result_also_when_a_worker_is_killed(
    plan: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{ROOT / 'tests'}")  # the workers'
    expected = json.dumps(swept(plan, tmp_path / "a").document)
    found = sweep(plan, tmp_path / "b", player(2, "local"))
    assert json.dumps(found.document) == expected
    task = partial(dies_once, folder=str(tmp_path))
    play = partial(on_ray, task=task, address="local", jobs=2)
    assert json.dumps(sweep(plan, tmp_path / "c", play).document) == expected
    assert (tmp_path / "died").exists()
    play = partial(on_ray, task=dies_always, address="local", jobs=2)
    lost = sweep(plan, tmp_path / "d", play).lost
    assert [answer.number for answer in lost] == [2]
    assert isinstance(lost[0], Lost)
    with pytest.raises(OSError, match="no file is open"):
        sweep(plan, tmp_path / "e", partial(on_ray, task=fails, address="local", jobs=2))
