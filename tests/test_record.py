"""How nouns are declared, checked, refused and written back."""

from __future__ import annotations

import dataclasses
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsim.core.many import Many, Party
from dpsim.core.record import (
    Count,
    Flag,
    Natural,
    Refused,
    Text,
    altered,
    build,
    dotted,
    dump,
    record,
)
from dpsim.core.units import Bytes, BytesPerSecond, Factor, Fraction, Seconds
from dpsim.core.yamlfile import dump_yaml, loads


@record
class Wire:
    bandwidth: BytesPerSecond
    latency: Seconds = 0.0
    name: Text = "wire"


@record
class Machine:
    nodes: Count = 1
    wire: Wire | None = None
    wires: tuple[Wire, ...] = ()
    sizes: tuple[Bytes, ...] = ()
    peaks: dict[str, BytesPerSecond] = dataclasses.field(default_factory=dict)
    slow: dict[int, Factor] = dataclasses.field(default_factory=dict)
    load: Fraction = 0.0
    spares: Natural = 0
    fast: Flag = False

    def __post_init__(self) -> None:
        if self.spares > self.nodes:
            raise ValueError(f"{self.spares} spares for {self.nodes} nodes")


def refusal(data: Any, *, file: bool = True) -> str:
    with pytest.raises(Refused) as caught:
        build(Machine, data, file=file)
    return str(caught.value)


def test_fields_are_checked_and_units_become_si() -> None:
    wire = Wire(bandwidth="400 Gbit/s", latency="5 us")
    assert (wire.bandwidth, wire.latency) == (50e9, 5e-06)


def test_python_may_give_si_numbers() -> None:
    assert Wire(bandwidth=50e9) == Wire(bandwidth="50 GB/s")


def test_a_file_may_not() -> None:
    message = refusal({"wire": {"bandwidth": 50}})
    assert message == "wire.bandwidth: 50 has no unit; write for example '400 Gbit/s'"


def test_records_are_frozen_and_replace_checks_again() -> None:
    machine = Machine(nodes=2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        machine.nodes = 3  # type: ignore[misc]
    assert dataclasses.replace(machine, nodes=3).nodes == 3
    with pytest.raises(ValueError, match=r"0 is not in 1 … 1,048,576"):
        dataclasses.replace(machine, nodes=0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"nodes": 0}, "nodes: 0 is not in 1 … 1,048,576"),
        ({"nodes": 1_048_577}, "nodes: 1048577 is not in 1 … 1,048,576"),
        ({"nodes": 2.5}, "nodes: '2.5' is not a whole number; one in 1 … 1,048,576 is needed"),
        ({"nodes": 2.0}, "nodes: '2.0' is not a whole number; one in 1 … 1,048,576 is needed"),
        ({"nodes": True}, "nodes: 'True' is not a whole number; one in 1 … 1,048,576 is needed"),
        ({"nodes": "2"}, "nodes: '2' is not a whole number; one in 1 … 1,048,576 is needed"),
        ({"nodes": None}, "nodes: is empty; one in 1 … 1,048,576 is needed"),
        ({"nodes": 10**40}, "nodes: a huge number is not in 1 … 1,048,576"),
        ({"node": 1}, "node: unknown key; did you mean 'nodes'?"),
        ({"wire": {}}, "wire.bandwidth: is missing"),
        ({"wires": [{"bandwidth": "1 GB/s"}, {}]}, "wires[1].bandwidth: is missing"),
        ({"wire": {"bandwith": "1 GB/s"}}, "wire.bandwith: unknown key; did you mean 'bandwidth'?"),
        ({"spares": 2}, "2 spares for 1 nodes"),
        ([], "[] where a mapping is needed"),
        (None, "nothing where a mapping is needed"),
    ],
)
def test_a_refusal_names_the_field_and_what_would_do(data: Any, message: str) -> None:
    assert refusal(data) == message


def test_an_unknown_key_far_from_all_others_lists_them() -> None:
    assert refusal({"qqqq": 1}).startswith("qqqq: unknown key; known here: fast, load, nodes")


@pytest.mark.parametrize("value", ["yes", 1, "true", None])
def test_a_flag_is_true_or_false(value: Any) -> None:
    assert refusal({"fast": value}).startswith("fast: ")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_refused(value: float) -> None:
    assert refusal({"load": value}).startswith("load: ")
    with pytest.raises(ValueError, match="finite"):
        Wire(bandwidth=value)


def test_a_zero_rate_is_refused_and_a_zero_duration_is_not() -> None:
    assert "is not in 0 (excluded)" in refusal({"wire": {"bandwidth": "0 GB/s"}})
    assert Wire(bandwidth="1 GB/s", latency="0 ms").latency == 0.0


def test_the_path_of_the_whole_is_put_before() -> None:
    with pytest.raises(Refused) as caught:
        build(Machine, {"nodes": 0}, path=("jobs", 1, "cluster"))
    assert str(caught.value) == "jobs[1].cluster.nodes: 0 is not in 1 … 1,048,576"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("model", "layers", 0, "name"), "model.layers[0].name"),
        (("sweep", "cluster.nodes"), "sweep.cluster.nodes"),
        ((0, "a"), "[0].a"),
    ],
)
def test_dotted(path: tuple[str | int, ...], text: str) -> None:
    assert dotted(path) == text


def test_a_refusal_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(Refused("is missing", ("a", 0))))
    assert (str(error), error.path) == ("a[0]: is missing", ("a", 0))


def test_dump_leaves_defaults_out() -> None:
    assert dump(Machine()) == {}
    assert dump(Wire(bandwidth="1 GB/s")) == {"bandwidth": "1000000000.0 B/s"}


def test_a_number_of_numpy_is_written_as_any_other() -> None:
    given = Wire(bandwidth=np.float64(1e9), latency=np.float64(1e-3))
    assert {type(given.bandwidth), type(given.latency)} == {float}
    assert dump(given) == {"bandwidth": "1000000000.0 B/s", "latency": "0.001 s"}
    assert build(Wire, dump(given), file=True) == given


def test_a_number_of_many_points_stays_one() -> None:
    many = Many(np.array([1.0, 2.0]), Party(2))
    taken = Wire(bandwidth=many).bandwidth
    assert isinstance(taken, Many)
    assert taken.values.tolist() == [1.0, 2.0]


def small(most: float) -> st.SearchStrategy[float]:
    """0, or what is not too near to it."""
    return st.just(0.0) | st.floats(1e-24, most)


RATES = st.floats(min_value=1e-3, max_value=1e18)
WIRES = st.builds(Wire, bandwidth=RATES, latency=small(1e9), name=st.text(max_size=9))
MACHINES = st.builds(
    Machine,
    nodes=st.integers(5, 1_048_576),
    wire=st.none() | WIRES,
    wires=st.lists(WIRES, max_size=3).map(tuple),
    sizes=st.lists(small(1e18), max_size=3).map(tuple),
    peaks=st.dictionaries(st.sampled_from(["bf16", "fp32", "no"]), RATES, max_size=3),
    slow=st.dictionaries(st.integers(0, 9), st.floats(1e-3, 1e6), max_size=3),
    load=small(1.0),
    spares=st.integers(0, 5),
    fast=st.booleans(),
)


@settings(deadline=None)
@given(machine=MACHINES)
def test_what_is_dumped_builds_an_equal_record_through_a_file(machine: Machine) -> None:
    text = dump_yaml(dump(machine))
    assert build(Machine, loads(text, "x.yaml")[0], file=True) == machine


ALTERED: list[dict[str, Any]] = [
    {"nodes": 7}, {"wire": {"bandwidth": "2 GB/s"}}, {"wire": None, "load": 0.5}, {"nodes": 0},
    {"wire": {"bandwidth": "fast"}}, {"wire": {"speed": 1}}, {"wires": [{"latency": "1 s"}]},
    {"nodes": "8"}, {"fast": "yes"}, {},
]  # fmt: skip


@pytest.mark.parametrize("values", ALTERED, ids=str)
@pytest.mark.parametrize("file", [False, True])
def test_a_record_is_altered_as_if_it_were_built_anew(values: dict[str, Any], file: bool) -> None:
    base = {"nodes": 6, "wire": {"bandwidth": "1 GB/s"}}
    one = build(Machine, base, file=True)
    said: list[Any] = []
    for make in (
        lambda: altered(one, values, file=file),
        lambda: build(Machine, {**base, **values}, file=file),
    ):
        try:
            said.append(make())
        except Refused as error:
            said.append((str(error), error.path))
    assert said[0] == said[1]


def test_only_fields_are_altered() -> None:
    with pytest.raises(TypeError, match="Wire has no field 'speed'"):
        altered(Wire(bandwidth=1.0), {"speed": 1})
