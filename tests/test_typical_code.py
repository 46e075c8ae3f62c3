"""compute.code: typical predicts what sources that nobody had looked at take (A25)."""

from __future__ import annotations

import math

import pytest

from dpsim.cases.typical_code import FASTEST_TENTH, LEVEL, SLOWEST_TENTH, ends
from dpsim.core.record import Refused
from dpsim.describe.scenario import read
from dpsim.predict.point import computed
from dpsim.predict.prediction import predict
from dpsim.report.sentences import headline

CODE = "compute.code=typical"


def test_the_interval_of_one_rank_is_that_of_sources() -> None:
    found = predict(read("quickstart", ["cluster.ranks=1", "calibrate=null", CODE]))
    [point] = computed(found.answer.points)
    assert point.interval.causes == {"compute (prior)": pytest.approx(ends(), rel=0.02)}


def test_a_step_of_layers_alone_is_the_median_of_sources() -> None:
    sets = ["cluster.ranks=1", "calibrate=null", "optimizer.kind=none"]
    tuned, typical = (
        computed(predict(read("quickstart", [*sets, *more])).answer.points)[0].step_time_s
        for more in ([], [CODE])
    )
    assert typical == pytest.approx(LEVEL * tuned, rel=1e-3)  # but for what DDP copies


def test_the_ends_are_a_normal_distributions_on_either_side() -> None:
    """9 of 10 of it are within 1.645 standard deviations, 8 of 10 within 1.282."""
    for end, tenth in zip(ends(), (FASTEST_TENTH, SLOWEST_TENTH), strict=True):
        assert math.log(end) / math.log(tenth / LEVEL) == pytest.approx(1.6449 / 1.2816)


def test_the_answer_says_whose_code_it_is_of() -> None:
    found = predict(read("llama3-8b-typical-code"))
    assert "(90 % interval of typical code " in headline(found.answer)
    assert any(f"is that of typical code, {LEVEL} times" in text for text in found.warnings)
    assert not any("compute.code=typical" in text for text in found.warnings)


@pytest.mark.parametrize(
    ("scenario", "sets", "said"),
    [
        ("quickstart", [CODE], "calibrate says how fast the code is; leave one of them out"),
        ("amdahl", [CODE], "layers state their durations, which say how fast the code is"),
        ("llama3-8b-h100", [CODE, "compute.efficiency=0.5"], "efficiency says what the code"),
    ],
)
def test_what_says_how_fast_code_is_has_no_typical_code_beside_it(
    scenario: str, sets: list[str], said: str
) -> None:
    with pytest.raises(Refused, match=said):
        _ = predict(read(scenario, sets)).answer
