"""Points that are alike are played at once: each has the answer that it has alone, to the bit."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import generated
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsim.core.many import (
    Leaked,
    Many,
    Party,
    Unsaid,
    added,
    all_above,
    each,
    larger,
    longest,
    mean,
    root,
    settled,
    where_above,
)
from dpsim.core.record import Refused
from dpsim.describe.scenario import load, read
from dpsim.planning import alike
from dpsim.planning import sweep as planning
from dpsim.planning.sweep import Sweep, play_point, play_points, sweep_of

OPERATIONS: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b if b else a,
    "max": lambda a, b: max(a, b),
    "larger": larger,
    "least": lambda a, b: min(a, b),
    "root": lambda a, b: root(abs(a)) + b,
    "if": lambda a, b: 3 * a if a < b else b - 1.5,
    "mean": lambda a, b: mean([a, b, a + b]),
    "where": lambda a, b: where_above(a, b, a - b, a * b),
    "added": lambda a, b: added([a, b, a]),
    "each": lambda a, b: each(lambda x: math.atan(x) + (x > 1.0), a) + b,
}
NUMBERS = st.one_of(st.floats(-1e6, 1e6), st.integers(-3, 3).map(float))
STEPS = st.lists(
    st.tuples(st.sampled_from(sorted(OPERATIONS)), st.integers(0, 9), st.integers(0, 9))
)


def walked(numbers: Sequence[float], steps: Sequence[tuple[str, int, int]]) -> float:
    """The last number of a calculation that begins with some."""
    known = list(numbers)
    for name, one, other in steps:
        known.append(OPERATIONS[name](known[one % len(known)], known[other % len(known)]))
    return known[-1]


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=20), STEPS)
def test_whoever_goes_along_to_the_end_has_the_number_it_has_alone(
    points: list[tuple[float, float, float]], steps: list[tuple[str, int, int]]
) -> None:
    party = Party(len(points))
    with np.errstate(all="ignore"):
        found = walked(
            [Many(np.array(column), party) for column in zip(*points, strict=True)], steps
        )
    assert isinstance(found, Many)
    assert len(party.there)
    for place in party.there:
        alone = walked(points[place], steps)
        assert alone == found.values[place] or math.isnan(alone)


def test_the_most_stay_and_the_others_leave() -> None:
    party = Party(5)
    assert Many(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), party) > 2
    assert party.there.tolist() == [2, 3, 4]
    assert settled(Many(np.array([9.0, 9.0, 7.0, 8.0, 7.0]), party)) == 7.0
    assert party.there.tolist() == [2, 4]


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_who_divides_by_zero_is_refused_or_leaves() -> None:
    party = Party(3)
    found = 1.0 / Many(np.array([0.0, 2.0, 4.0]), party)
    assert isinstance(found, Many)
    assert found.values[party.there].tolist() == [0.5, 0.25]
    with pytest.raises(ZeroDivisionError):
        _ = 1.0 / Many(np.array([1.0, 0.0, 0.0]), Party(3))


def test_whether_all_are_above_parts_nobody() -> None:
    party = Party(3)
    value = Many(np.array([1.0, 2.0, 3.0]), party)
    assert [all_above(value, limit) for limit in (0.5, 1.0, 3.0)] == [True, None, False]
    assert [all_above(2.0, 1.0), all_above(1.0, 1.0)] == [True, False]
    assert len(party.there) == 3


def test_too_few_are_none() -> None:
    party = Party(3, least=2)
    value = Many(np.array([1.0, 1.0, 5.0]), party)
    assert value < 3.0
    with pytest.raises(Leaked, match="1 points agree"):
        _ = value + Many(np.array([0.0, 4.0, 0.0]), party) < 3.0


@pytest.mark.parametrize(
    "use",
    [
        float, int, math.floor, math.ceil, round, str, repr, "{:.3g}".format, range,
        lambda x: x**2, lambda x: 2**x, lambda x: x // 2, lambda x: sum([x, x]),
        lambda x: np.array([1.0, 2.0]) * x, lambda x: x * np.array([1.0, 2.0]),
        lambda x: np.maximum(x, np.zeros(2)), np.sqrt, lambda x: x + 2**60,
        lambda x: [0, 1][x], lambda x: np.array([x]), lambda x: np.full(2, x),
    ],
)  # fmt: skip
def test_nobody_is_given_the_number_itself(use: Callable[[Any], Any]) -> None:
    value = Many(np.array([1.0, 2.0]), Party(2))
    with pytest.raises((Leaked, TypeError)):
        use(value)


def test_it_is_looked_up_as_itself_and_read_by_nobody_as_a_number() -> None:
    party = Party(2)
    value, equal = (Many(np.array([1.0, 2.0]), party) for _ in range(2))
    known = {value: 1}
    assert known[value] == 1
    assert equal not in known
    assert copy.deepcopy([value])[0] is value
    assert not math.isfinite(value)


def test_a_word_that_differs_cannot_be_read() -> None:
    party = Party(2)
    most, name = longest({"one": Many(np.array([1.0, 5.0]), party), "other": 3.0})
    assert isinstance(most, Many)
    assert most.values.tolist() == [3.0, 5.0]
    assert isinstance(name, Unsaid)
    for use in (str, hash, lambda x: x == "one", lambda x: f"{x}"):
        with pytest.raises(Leaked):
            use(name)
    assert longest({"one": 1.0, "other": 3.0}) == (3.0, "other")


def test_whole_numbers_stay_whole_as_long_as_they_are_exact() -> None:
    party = Party(2)
    value = Many(np.array([7.0, 9.0]), party, whole=True)
    quotient, rest = divmod(3 * value + 1, 4)
    assert [quotient.values.tolist(), rest.values.tolist()] == [[5.0, 7.0], [2.0, 0.0]]
    assert quotient.whole
    assert not (value / 2).whole
    with pytest.raises(Leaked, match="not exact"):
        _ = value * 2**52


# -- sweeps ---------------------------------------------------------------------------------------


def at_once(asked: Sweep) -> tuple[dict[int, Any], int]:
    """The records of all points, and how many of these were played alone."""
    count = 0

    def alone(asked: Sweep, number: int) -> Any:
        nonlocal count
        count += 1
        return play_point(asked, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "play_point", alone)
        batches = list(play_points(asked, range(len(asked.grid))))
    records = [record for batch in batches for record in batch]
    found = {record["n"]: record for record in records}
    assert sorted(found) == list(range(len(asked.grid)))
    assert len(found) == len(records)
    return found, count


COLUMNS = ["step_time_s", "throughput_per_s"]
LATENCY = "cluster.inter_node_latency=2:7:1 us"
SPEED = "cluster.inter_node_bandwidth=90:130:10 Gbit/s"
WIDE = "cluster.inter_node_latency=2:17:1 us"
SERIAL = "host.serial=0:7:1 us"
RATE = "collective.bandwidth=1:5:1 GB/s"
STRATEGIES = "strategy={kind: fsdp},{kind: zero, stage: 2}"
MESH = "parallel={pipeline: 2}"
JITTER = "variability={jitter: 0.02, steps: 4}"


@pytest.mark.parametrize(
    ("name", "sets", "grid", "most"),
    [
        ("quickstart", [], [LATENCY, SPEED], 8),
        ("vgg16-10gbe", ["cluster.ranks=16"], [SPEED, "batch.per_device=2:16:2"], 20),
        ("gpt2-xl-kernels", [], [SPEED, "batch.per_device=1:8:1"], 20),
        ("vgg16-10gbe", ["cluster.ranks=16"], [SERIAL, "compute.contention=0:50:10 %"], 30),
        ("vgg16-10gbe", ["cluster.ranks=32"], [STRATEGIES, SPEED, LATENCY], 50),
        ("quickstart", [MESH, "batch={global: 64, accumulation: 8}"], [SPEED, LATENCY], 30),
        ("worked/ddp_steady", [], ["collective.latency=1:6:1 ms", RATE], 12),
        ("vgg16-10gbe", ["cluster.ranks=16", JITTER], [SPEED, LATENCY], 30),
    ],
)  # fmt: skip
def test_points_that_differ_in_numbers_have_the_answers_that_they_have_alone(
    name: str, sets: list[str], grid: list[str], most: int
) -> None:
    asked = sweep_of(
        read(name, ["sweep=null", "measured=null", "calibrate=null", *sets]), grid, COLUMNS
    )
    found, count = at_once(asked)
    assert found == {number: play_point(asked, number) for number in found}
    assert count <= most


@pytest.mark.parametrize("end", [0, -1])
def test_a_pass_that_is_wrong_about_an_end_of_those_who_went_along_is_not_believed(
    end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the first and the last point of the sweep have left the party."""
    honest = alike.Crowd._records

    class Leaving(Party):
        def __init__(self, size: int, least: int = 1) -> None:
            super().__init__(size, least)
            self.keep(np.isin(np.arange(size), [0, size - 1], invert=True))

    def spoilt(crowd: Any, numbers: Sequence[int], *others: Any) -> dict[int, Any]:
        records = honest(crowd, numbers, *others)
        records[numbers[end]]["point"]["step_time_s"] *= 2
        return records

    monkeypatch.setattr(alike, "Party", Leaving)
    monkeypatch.setattr(alike.Crowd, "_records", spoilt)
    asked = sweep_of(read("quickstart", ["sweep=null", "calibrate=null"]), [WIDE], COLUMNS)
    found, count = at_once(asked)
    assert found == {number: play_point(asked, number) for number in found}
    assert count >= len(found)


def test_a_section_whose_numbers_are_its_own_is_itself() -> None:
    section = {"one": 1.5, "other": [2.5, {"third": 3.5}]}
    own = iter([section["one"], section["other"][0], section["other"][1]["third"]])
    assert alike.filled(section, own) is section
    assert alike.filled({"one": 1.5}, iter([2.0])) == {"one": 2.0}


def test_a_point_that_is_refused_says_so_beside_others_that_are_not() -> None:
    loaded = read("vgg16-10gbe", ["sweep=null", "cluster.ranks=8", "batch={global: 64}"])
    asked = sweep_of(loaded, ["batch.global=4:64:4", "host.serial=1:3:1 us"], COLUMNS)
    found, count = at_once(asked)
    assert found == {number: play_point(asked, number) for number in found}
    assert sum("error" in record["point"] for record in found.values()) == 3
    assert count < len(found)


AXES = (
    ("batch", "per_device", "batch.per_device=3:10:1"),
    ("collective", "latency", "collective.latency=11:18:1 us"),
    ("collective", "bandwidth", "collective.bandwidth=11:18:1 GB/s"),
    ("cluster", "machine", "cluster.inter_node_bandwidth=71:78:1 Gbit/s"),
    ("compute", "", "compute.efficiency=41:48:1 %"),
    ("host", "", "host.serial=11:18:1 us"),
)


@given(st.integers(0, 10**6), st.data())
@settings(max_examples=8, deadline=None)
def test_sweeps_of_random_scenarios_have_the_answers_of_their_points(
    seed: int, data: st.DataObject
) -> None:
    scenario = generated.seeded(seed, varied=10)
    fitting = [
        axis for section, key, axis in AXES
        if not key or key in (scenario.get(section) or {})
    ]  # fmt: skip
    chosen = data.draw(st.lists(st.sampled_from(fitting), min_size=1, max_size=2, unique=True))
    try:
        asked = sweep_of(load(scenario, read("quickstart").base, "random"), chosen, COLUMNS)
    except Refused:
        return
    found, _ = at_once(asked)
    for number in (0, 3, len(found) // 2, len(found) - 2, len(found) - 1):
        assert found[number] == play_point(asked, number)
