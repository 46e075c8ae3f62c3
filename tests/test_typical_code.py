"""compute.code: typical predicts what sources that nobody had looked at take (A103)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from dpsim.cases.typical_code import BETWEEN, FASTEST, INSIDE, LEVEL, SCALED, SLOWEST, SOURCES
from dpsim.checks.steps import check_steps
from dpsim.core.record import Refused
from dpsim.describe.scenario import load, read
from dpsim.planning.comparing import compare
from dpsim.predict import connections
from dpsim.predict.answer import Answer
from dpsim.predict.point import Point, computed
from dpsim.predict.prediction import predict
from dpsim.predict.timed import timed
from dpsim.predict.uncertainty import OTHERS
from dpsim.report.sentences import headline

CODE = "compute.code=typical"
SLOW_LINKS = "cluster.inter_node_bandwidth=10 Gbit/s"


def answer(scenario: str, *sets: str) -> Answer:
    return predict(read(scenario, sets)).answer


def point(scenario: str, *sets: str) -> Point:
    return computed(answer(scenario, *sets).points)[-1]


def test_the_numbers_are_those_of_the_pooled_sources() -> None:
    sys.path.append(str(Path(__file__).parents[1] / "validation"))
    import typical_code

    pooled = typical_code.pooled()
    found = [pooled[share] for share in (0.5, 0.05, 0.95)]
    assert found == [pytest.approx(one, rel=0.01) for one in (LEVEL, FASTEST, SLOWEST)]
    assert SOURCES == typical_code.FIRST + len(typical_code.ratios()) == 120


def test_what_calibrated_steps_lose_is_that_of_the_sources() -> None:
    sys.path.append(str(Path(__file__).parents[1] / "validation"))
    import typical_code

    for column, ends in (("inside_node", INSIDE), ("between_nodes", BETWEEN)):
        found = np.quantile(typical_code.carried(column), [0.05, 0.95])
        assert found == pytest.approx(ends, rel=0.01)
    assert typical_code.calibrated().sources == SCALED == 58
    over_tcp = typical_code.carried("over_tcp")
    assert np.median(over_tcp) == pytest.approx(connections.MEDIAN, rel=0.01)
    slow = int((over_tcp >= connections.LONGER).sum())
    assert (slow, len(over_tcp)) == (connections.SLOW, connections.SOURCES)


def test_compute_takes_so_much_longer_and_the_rest_does_not() -> None:
    alone = ["cluster.ranks=1", "calibrate=null", "optimizer.kind=none"]
    tuned, typical = (point("quickstart", *alone, *more).step_time_s for more in ([], [CODE]))
    assert typical == pytest.approx(1.36 * tuned, rel=1e-3)  # but for what DDP copies
    slow = ["cluster.nodes=4", "sweep=null", SLOW_LINKS]  # nearly all of these steps is exchanges
    tuned, typical = (point("llama3-8b-h100", *slow, *more).step_time_s for more in ([], [CODE]))
    assert typical == pytest.approx(tuned, rel=0.02)


def test_the_compute_of_one_rank_reaches_as_far_as_sources_do() -> None:
    found = point("quickstart", "cluster.ranks=1", "calibrate=null", CODE)
    low, high = found.interval.causes["compute (prior)"]
    assert (low, high) == (pytest.approx(0.49, rel=0.02), pytest.approx(4.49, rel=0.02))


@pytest.mark.parametrize("sets", [[], [SLOW_LINKS]])
def test_it_is_never_surer_than_tuned_code(sets: Sequence[str]) -> None:
    own = ["cluster.nodes=4", "sweep=null", *sets]
    tuned, typical = (point("llama3-8b-h100", *own, *more).interval for more in ([], [CODE]))
    assert typical.high / typical.low >= tuned.high / tuned.low
    assert typical.high >= tuned.high


def test_the_answer_says_whose_code_it_is_of() -> None:
    found = answer("llama3-8b-typical-code")
    assert "(90 % interval of typical code " in headline(found)
    assert any("is that of typical code, 1.36 times" in text for text in found.warnings)
    assert not any("compute.code=typical" in text for text in found.warnings)


def test_an_answer_of_both_names_neither_in_its_headline_and_warns_of_both() -> None:
    found = answer("llama3-8b-typical-code", "sweep={compute.code: [typical, tuned]}")
    assert "(90 % interval " in headline(found)
    assert "code " not in headline(found).partition("(90 % interval ")[2]
    kinds = ("those of tuned code", "that of typical code")
    assert all(any(kind in text for text in found.warnings) for kind in kinds)


def test_a_measured_step_says_how_fast_the_code_is_and_not_what_it_loses() -> None:
    tuned, typical = (answer("quickstart", f"compute.code={code}") for code in ("tuned", "typical"))
    pairs = list(zip(computed(tuned.points), computed(typical.points), strict=True))
    assert [one.step_time_s for one, _ in pairs] == [other.step_time_s for _, other in pairs]
    assert pairs[0][0].interval == pairs[0][1].interval  # the measured count itself
    for one, other in pairs[1:]:
        low, high = BETWEEN if other.nodes > 1 else INSIDE
        assert other.interval.high == pytest.approx(high * other.step_time_s, rel=0.05)
        assert other.interval.high > one.interval.high
        assert one.interval.low / other.step_time_s < low  # tuned code's reaches as far down
        assert other.interval.low == one.interval.low
    assert "(90 % interval of typical code " in headline(typical)
    assert any("a step measured on a second count" in text for text in typical.warnings)


def test_of_the_measured_count_alone_nothing_is_said_of_others() -> None:
    found = answer("quickstart", "compute.code=typical", "sweep=null", "cluster.ranks=1")
    assert "typical code" not in headline(found)
    assert any("compute.code changes nothing" in text for text in found.warnings)


def test_another_run_on_the_measured_count_loses_as_others_do() -> None:
    """What an answer says of its intervals is what they are made of."""
    sets = ["compute.code=typical", "cluster.ranks=8", "sweep={batch.per_device: [256, 128]}"]
    found = answer("quickstart", *sets, "calibrate={step_time: 332.8 ms, ranks: 8}")
    own, other = (one.interval.causes for one in computed(found.points))
    assert OTHERS not in own
    assert OTHERS in other
    assert any("are those of typical code" in text for text in found.warnings)


def test_steps_measured_on_several_counts_say_what_it_loses() -> None:
    tuned, typical = (
        answer("calibrate-points", f"compute.code={code}") for code in ("tuned", "typical")
    )
    ends = [[one.interval for one in computed(found.points)] for found in (tuned, typical)]
    assert ends[0] == ends[1]
    assert any("compute.code changes nothing" in text for text in typical.warnings)


def test_a_slower_network_is_no_better_for_slow_code() -> None:
    """Candidates run the same code, however slow it is."""
    data = read("llama3-8b-typical-code", ["sweep=null", "cluster.nodes=4"]).data
    thin = data | {"cluster": {**data["cluster"], "inter_node_bandwidth": "3 Gbit/s"}}
    found = compare([load(one, Path(), name) for one, name in ((data, "wide"), (thin, "thin"))])
    [wide, slow] = (one for one in found.document["candidates"])
    assert wide["probability_best"] > 0.98 > 0.02 > slow["probability_best"]


def test_check_has_the_interval_of_run_however_lopsided() -> None:
    sets = ["sweep=null", "cluster.nodes=1"]
    run = point("llama3-8b-typical-code", *sets).interval
    _, low, high = check_steps(timed(read("llama3-8b-typical-code", sets), ["8=8 s"], ())).expected[
        0
    ]
    assert (low, high) == (pytest.approx(run.low, rel=0.1), pytest.approx(run.high, rel=0.1))


@pytest.mark.parametrize(
    ("scenario", "sets", "said"),
    [
        ("amdahl", [CODE], "layers state their durations, which say how fast the code is"),
        ("llama3-8b-h100", [CODE, "compute.efficiency=0.5"], "efficiency says what the code"),
    ],
)
def test_what_says_how_fast_code_is_has_no_typical_code_beside_it(
    scenario: str, sets: list[str], said: str
) -> None:
    with pytest.raises(Refused, match=said):
        answer(scenario, *sets)
