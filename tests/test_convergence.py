"""Time to train: steps and samples by global batch, fitted to published points, never beyond the
largest published batch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpsim
from dpsim.core.record import Refused, build
from dpsim.describe.convergence import (
    RULES,
    ConvergencePoint,
    Training,
    fit,
    fitted,
    limit,
    needed,
    samples_needed,
    steps_needed,
    tasks,
)
from dpsim.describe.scenario import load
from dpsim.predict.point import Interval, computed
from dpsim.predict.training_run import run_of
from dpsim.report.sentences import sentences

#: Emin, Bcrit and the largest relative error, worked out independently from the same points
TABLE = {
    "resnet50": (34.58, 46.9e3, 0.060),
    "bert": (2.317e6, 12.7e3, 0.129),
    "rnnt": (35.68, 3690, 0.034),
    "ssd": (3.586, 1697, 0.066),
    "rgat": (0.7518, 115.8e3, 0.026),
    "dlrm": (0.6516, 319e3, 0.033),
    "gpt3": (1.063e9, 17.3e3, 0.038),
}


def training(**data: Any) -> Training:
    return build(Training, data, file=True)


# -- the model ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "steps", "samples"),
    [
        (512, 5000, 2.56e6), (1024, 3000, 3.072e6), (2048, 2000, 4.096e6), (4096, 1500, 6.144e6),
        (8192, 1250, 10.24e6),
    ],
)  # fmt: skip
def test_steps_and_samples_by_hand(batch: int, steps: int, samples: float) -> None:
    found = needed(training(minimum_steps=1000, critical_batch=2048), batch)
    assert (found.steps, found.samples, found.epochs) == (steps, samples, None)


Positive = st.floats(1, 1e6)


@given(Positive, Positive, Positive)
def test_steps_times_batch_are_samples(minimum: float, critical: float, batch: float) -> None:
    steps = steps_needed(minimum, critical, batch)
    assert steps * batch == pytest.approx(samples_needed(minimum * critical, critical, batch))
    assert steps > minimum  # no batch is large enough to go below Smin
    assert steps_needed(minimum, critical, critical) == pytest.approx(2 * minimum)


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_larger_batches_need_fewer_steps_and_more_samples(first: int, second: int) -> None:
    wanted = training(minimum_steps=1000, critical_batch=2048)
    low, high = sorted((first, second))
    few, many = needed(wanted, low), needed(wanted, high)
    assert many.steps <= few.steps
    assert many.samples >= few.samples


@given(Positive, Positive)
def test_a_fit_of_points_on_the_curve_finds_them_again(minimum: float, critical: float) -> None:
    batches = [max(round(critical * share), 1) + k for k, share in enumerate((0.1, 0.5, 2, 8))]
    points = [
        ConvergencePoint(
            batch=b, mean=samples_needed(minimum, critical, b), least=1, most=1, runs=1
        )
        for b in batches
    ]
    found = fit(points)
    assert found.minimum == pytest.approx(minimum, rel=1e-6)
    assert found.critical_batch == pytest.approx(critical, rel=1e-6)
    assert found.max_error < 1e-9


@pytest.mark.parametrize("means", [(1.0, 1.0), (3.0, 2.0, 1.0)])
def test_points_without_a_critical_batch_are_refused(means: tuple[float, ...]) -> None:
    points = [
        ConvergencePoint(batch=2**k, mean=mean, least=1, most=9, runs=1)
        for k, mean in enumerate(means)
    ]
    with pytest.raises(ValueError, match=r"three batches|no positive"):
        fit(points)


# -- published points -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLE)
def test_fits_of_published_points_are_those_of_the_table(name: str) -> None:
    found, (minimum, critical, error) = fitted(name), TABLE[name]
    assert found.minimum == pytest.approx(minimum, rel=5e-4)
    assert found.critical_batch == pytest.approx(critical, rel=5e-3)
    assert found.max_error == pytest.approx(error, abs=6e-4)


@pytest.mark.parametrize("name", tasks())
def test_every_task_is_cited_and_in_order(name: str) -> None:
    task = tasks()[name]
    assert "mlcommons/logging @ 7bbf7926" in task.source
    batches = [point.batch for point in task.points]
    assert batches == sorted(set(batches))
    assert all(point.least <= point.mean <= point.most for point in task.points)
    assert all(len(why) > 20 for why in (task.left_out or {}).values())
    assert not set(task.left_out or {}) & set(batches)
    assert fitted(name).max_error < 0.13


@pytest.mark.parametrize(
    ("batch", "epochs", "published"),
    [(3264, 36.99, 35.2), (8192, 40.62, 42.0), (32768, 58.74, 56.0), (65536, 82.90, 84.5)],
)
def test_epochs_of_resnet50(batch: int, epochs: float, published: float) -> None:
    found = needed(training(task="resnet50"), batch)
    assert found.epochs == pytest.approx(epochs, rel=2e-4)
    assert found.epochs == pytest.approx(published, rel=0.061)
    assert found.samples == pytest.approx((found.epochs or 0) * 1_281_167)


def test_tokens_and_samples_of_a_task_are_told_apart() -> None:
    assert needed(training(task="gpt3"), 2048).samples * 2048 == pytest.approx(1.189e9, rel=1e-3)
    assert needed(training(task="bert"), 4096).samples == pytest.approx(3.063e6, rel=1e-3)


def test_epochs_may_be_those_of_a_task() -> None:
    given = training(task="resnet50", epochs=90, rule="linear")
    assert needed(given, 8192).samples == 90 * 1_281_167
    assert given.constant
    with pytest.raises(Refused, match="8,192 is the largest published with linear"):
        needed(given, 8193)
    with pytest.raises(Refused, match="an epoch of bert"):
        training(task="bert", epochs=3)


def test_an_epoch_whose_size_is_not_known_is_asked_for() -> None:
    with pytest.raises(Refused, match="how many samples is an epoch of ssd") as caught:
        training(task="ssd")
    assert caught.value.path == ("samples_per_epoch",)
    assert needed(training(task="ssd", samples_per_epoch=1000), 256).samples > 4000


# -- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", tasks())
def test_nothing_is_said_beyond_the_largest_published_batch(name: str) -> None:
    task = tasks()[name]
    wanted = training(task=name, samples_per_epoch=10**6)
    assert needed(wanted, task.largest_batch).steps >= 1
    with pytest.raises(Refused, match="no convergence is known at global batch"):
        needed(wanted, task.largest_batch + 1)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_limits_the_batch(rule: Any) -> None:
    own = training(minimum_steps=1000, critical_batch=2048, rule=rule)
    assert limit(own)[0] == RULES[rule].largest_batch
    assert "arXiv" in RULES[rule].source or "MLPerf" in RULES[rule].source
    with pytest.raises(Refused, match=rule.upper() if rule in ("lars", "lamb") else "scaling"):
        needed(own, RULES[rule].largest_batch + 1)
    wider = training(minimum_steps=1000, critical_batch=2048, rule=rule, largest_batch=10**6)
    assert needed(wider, 10**6).steps == 1003


def test_ones_own_limit_does_not_widen_that_of_published_points() -> None:
    assert limit(training(task="resnet50", largest_batch=10**6))[0] == 67_840
    assert limit(training(task="resnet50", largest_batch=4096))[0] == 4096
    assert limit(training(task="resnet50", rule="linear"))[0] == 8192
    assert limit(training(samples=1))[0] is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "exactly one of"),
        ({"samples": 1, "epochs": 1}, "exactly one of"),
        ({"epochs": 1}, "how many samples"),
        ({"minimum_steps": 1}, "belong together"),
        ({"samples": 1, "critical_batch": 1}, "belong together"),
        ({"task": "resnet51"}, "did you mean 'resnet50'"),
        ({"samples": 0}, "not in 1"),
        ({"samples": 1, "rule": "cosine"}, "none of linear"),
    ],
)
def test_training_that_says_too_little_or_too_much_is_refused(
    data: dict[str, Any], message: str
) -> None:
    with pytest.raises(Refused, match=message):
        training(**data)


# -- time -----------------------------------------------------------------------------------------


def test_time_is_steps_times_step_time_with_its_interval() -> None:
    data = {**TOY, "batch": {"per_device": 300}, "training": {"samples": 1000}}
    prediction = dpsim.predict(load(data, Path(), "toy"))
    point = computed(prediction.points)[0]
    point = replace(point, step_time_s=2.0, interval=Interval(1.5, 3.0, {}))
    found = run_of(prediction.outcomes[0].case, point)
    assert found is not None
    assert found.steps == 4  # the last one is partly used
    assert (found.time_s, found.low_s, found.high_s) == (8.0, 6.0, 12.0)


def test_tokens_need_a_model_of_tokens() -> None:
    assert needed(training(tokens=1e6), 10, tokens_per_sample=100).steps == 1000
    with pytest.raises(Refused, match="not made of tokens"):
        needed(training(tokens=1e6), 10)


TOY: dict[str, Any] = {
    "model": {"layers": [{"name": "a", "parameters": 1000, "forward": "1 ms", "backward": "2 ms"}]},
    "cluster": {"ranks": 1},
    "collective": {"backend": "free"},
    "strategy": {"kind": "ddp"},
    "optimizer": {"kind": "none"},
    "batch": {"per_device": 64},
    "training": {"minimum_steps": 1000, "critical_batch": 256, "largest_batch": 1024},
    "sweep": {"cluster.ranks": [1, 2, 4, 8, 16, 32]},
}


def predicted(**changes: Any) -> Any:
    data = {**json.loads(json.dumps(TOY)), **changes}
    return dpsim.predict(load(data, Path(), "toy"))


def test_weak_scaling_pays_for_its_growing_batch() -> None:
    """Throughput doubles with the ranks, for communication is free; time to train does not, and
    cannot fall below that of Smin steps."""
    points = predicted().points
    for point in points[:5]:
        ranks, batch = point["ranks"], point["global_batch"]
        assert batch == 64 * ranks
        assert point["speedup"] == pytest.approx(ranks)
        assert point["steps"] == steps_needed(1000, 256, batch)
        assert point["training_speedup"] == pytest.approx(5 / (1 + 256 / batch))
        assert point["time_to_train_low_s"] == point["time_to_train_high_s"]
    assert points[4]["training_speedup"] == 4.0
    assert "no convergence is known at global batch 2,048" in points[5]["error"]
    assert "time_to_train_s" not in points[5]


def test_strong_scaling_shortens_training_as_it_shortens_steps() -> None:
    points = predicted(batch={"global": 512}).points
    assert {point["steps"] for point in points} == {1500}
    for point in points:
        assert point["training_speedup"] == pytest.approx(point["speedup"])


def test_the_answer_says_that_training_gains_less_than_throughput() -> None:
    lines = sentences(predicted(sweep={"cluster.ranks": [1, 16]}).answer)
    line = next(line for line in lines if line.startswith("Training takes"))
    assert "4 times as fast, and not 16 times" in line
    assert "needs 4 times the samples of 64" in line


def test_warnings_name_what_is_taken_for_granted() -> None:
    same = predicted(training={"samples": 1e6}).document["warnings"]
    assert any("enough at every global batch (64 to 2,048)" in w for w in same)
    open_ended = {"minimum_steps": 1000, "critical_batch": 256}
    unlimited = predicted(training=open_ended).document["warnings"]
    assert any("nothing says up to which global batch" in w for w in unlimited)
    task = predicted(training={"task": "resnet50"}).document["warnings"]
    assert any("off by up to 6.0%" in w for w in task)
    assert any("the smallest batch published for resnet50 is 1,632" in w for w in task)


def test_a_single_point_beyond_the_limit_is_refused() -> None:
    with pytest.raises(Refused, match="no convergence is known"):
        predicted(cluster={"ranks": 32}, sweep=None)


def test_a_batch_that_the_sweep_sets_is_not_said_to_be_held_constant() -> None:
    swept = predicted(batch={"global": 64}, sweep={"batch.global": [64, 128]})
    assert swept.document["held_constant"] == "the cluster"
    points = [{"batch.global": 64}, {"batch.global": 128, "cluster.ranks": 2}]
    both = predicted(batch={"global": 64}, sweep=points)
    assert both.document["held_constant"] == "nothing"
    assert predicted().document["held_constant"].startswith("64 samples per rank")
