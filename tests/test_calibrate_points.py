"""Calibration on several measured points: what is fitted, how surely, and when it says no."""

from __future__ import annotations

import io
import json
import math
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import dpsim
from dpsim import cli
from dpsim.cases.case import Case
from dpsim.cases.variant import Adjustment, at_ranks, batched
from dpsim.core.constants import shipped
from dpsim.core.record import Refused
from dpsim.describe.scenario import load, to_data
from dpsim.describe.sections import Calibrate, CalibrationPoint
from dpsim.play import NotApplicable
from dpsim.predict.document import from_json, to_json
from dpsim.predict.drawn import Z90
from dpsim.predict.level import Level, level
from dpsim.predict.player import FEW, Tries, play, step_time
from dpsim.predict.point import Failed
from dpsim.predict.prediction import Prediction, predict
from dpsim.report.explained import print_explanation

#: a model with much to communicate, on a network that shows it
VGG: dict[str, Any] = {
    "model": {"name": "vgg16"},
    "cluster": {"machine": "v100-1x100g", "ranks": 1, "inter_node_bandwidth": "25 Gbit/s"},
    "strategy": {"kind": "ddp"},
    "precision": {"parameters": "fp32", "compute": "fp16"},
    "optimizer": {"kind": "momentum"},
    "batch": {"per_device": 64},
    "engine": "vectorised",
}
COUNTS = (1, 4, 8, 16, 32)


def asked(**changes: Any) -> Prediction:
    return predict(load({**VGG, **changes}, Path(), "test"))


def real(adjustment: Adjustment, *wanted: tuple[int, int]) -> list[dict[str, Any]]:
    """Points of another machine, which differs from the modelled one by `adjustment`."""
    first = Case(load(VGG, Path(), "test").points[0], Path())
    found = []
    for ranks, batch in wanted:
        case = adjustment.of(batched(at_ranks(first, ranks), {"per_device": batch}))
        found.append({"ranks": ranks, "per_device": batch, "step_time": f"{step_time(case)!r} s"})
    return found


SLOW = "calibrate={points: [{ranks: 1, step_time: 2 s}, {ranks: 8, step_time: 2.1 s}]}"


def ended(*words: str) -> int:
    """The exit code of a command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["dpsim", *words])
        return cli._run()


def number(prediction: Prediction, name: str) -> Any:
    assert prediction.level is not None
    assert prediction.level.fit is not None
    return next(one for one in prediction.level.fit.numbers if one.name == name)


def test_one_point_is_what_one_step_time_is() -> None:
    sweep = {"cluster.ranks": [1, 8, 32]}
    one = asked(calibrate={"points": [{"ranks": 1, "step_time": "120 ms"}]}, sweep=sweep)
    plain = asked(calibrate={"step_time": "120 ms", "ranks": 1}, sweep=sweep)
    assert one.points == plain.points
    assert one.level == plain.level


def test_several_points_tell_the_network_from_the_level_of_compute() -> None:
    """A machine whose collectives take 1.35 times as long, as healthy ones do, and layers 1.3."""
    other = Adjustment(compute=1.3, between=1.35)
    both = [(ranks, batch) for ranks in COUNTS for batch in (32, 64)]
    found = asked(calibrate={"points": real(other, *both)})
    assert number(found, "compute").value == pytest.approx(1.3, rel=0.01)
    between = number(found, "between")
    assert between.value == pytest.approx(1.35, rel=0.02)
    assert between.low < 1.35 < between.high
    assert between.learned > 0.8
    assert not found.level.findings  # type: ignore[union-attr]


def test_more_points_narrow_the_interval_of_a_count_that_was_not_measured() -> None:
    points = real(Adjustment(compute=1.3, between=1.5), *((n, 64) for n in COUNTS))
    widths = []
    for calibrate in ({"points": points[:1]}, {"points": points}):
        (point,) = asked(calibrate=calibrate, cluster={**VGG["cluster"], "ranks": 64}).points
        assert not isinstance(point, Failed)
        truth = step_time(
            Adjustment(compute=1.3, between=1.5).of(
                at_ranks(Case(load(VGG, Path(), "t").points[0], Path()), 64)
            )
        )
        assert point.interval.low < truth < point.interval.high
        widths.append(math.log(point.interval.high / point.interval.low))
    assert widths[1] < widths[0] / 2


def test_host_time_shows_where_batches_differ() -> None:
    """Seconds that no sample and no rank shares; the slope and the intercept of a straight line,
    pulled a little towards no host time by the prior of 15 % of the shortest step."""
    points = real(Adjustment(host_s=0.012), (1, 16), (1, 32), (1, 64), (1, 128))
    found = asked(calibrate={"points": points})
    assert number(found, "host_s").value == pytest.approx(0.012, rel=0.35)
    assert number(found, "between").learned == pytest.approx(0.0, abs=1e-9)


def test_residuals_are_told_and_widen_other_counts() -> None:
    points = real(Adjustment(), *((n, 64) for n in COUNTS))
    rough = [dict(point) for point in points]
    for point, way in zip(rough, (1.08, 0.92, 1.08, 0.92, 1.08), strict=True):
        point["step_time"] = f"{float(point['step_time'][:-2]) * way!r} s"
    smooth, bumpy = (
        asked(calibrate={"points": p}, cluster={**VGG["cluster"], "ranks": 64})
        for p in (points, rough)
    )
    errors = [one["error"] for one in bumpy.document["calibration"]["fit"]["residuals"]]
    assert max(map(abs, errors)) > 0.05
    wide, narrow = (
        math.log(one.points[0]["interval_causes"]["run to run"][1]) for one in (bumpy, smooth)
    )
    assert wide > 1.5 * narrow
    known = shipped("training")
    one = math.log(math.prod(known[f"interval.run.{end}"].value for end in ("fast", "slow"))) / 2
    points_off = Z90 * math.sqrt(math.fsum(math.log1p(e) ** 2 for e in errors) / len(errors))
    assert one < wide < 2 * points_off  # beyond what one point leaves, and as far as these are off


def test_the_same_global_batch_in_other_micro_batches_was_not_measured() -> None:
    """Points of accumulation 1 say what that run takes to 3 %, and no more of accumulation 4."""
    points = [
        {"ranks": ranks, "step_time": one["step_time"]}
        for ranks, batch in ((8, 64), (16, 32))
        for one in real(Adjustment(compute=1.2), (ranks, batch))
    ]
    found = asked(
        calibrate={"points": points},
        cluster={**VGG["cluster"], "ranks": 16},
        batch={"global": 512},
        sweep={"batch.accumulation": [1, 4]},
    )
    causes = [point["interval_causes"] for point in found.points]
    assert len(causes[0]) < len(causes[1])
    assert causes[0]["run to run"][1] < 1.05 < causes[1]["run to run"][1]


@pytest.mark.parametrize(
    ("adjustment", "fault"),
    [
        (Adjustment(between=10.0), "wrong_nic"),
        (Adjustment(between=3.4), "shared_link"),
        (Adjustment(inside=6.0), "p2p_off"),
        (Adjustment(inside=20.0), "p2p_off"),
        (Adjustment(between=0.3), "faster_than_link"),
    ],
)
def test_what_no_healthy_machine_explains_is_a_finding(adjustment: Adjustment, fault: str) -> None:
    wanted = [(n, 16) for n in COUNTS] + [(8, 32), (32, 32)]
    found = asked(calibrate={"points": real(adjustment, *wanted)})
    assert fault in [one["fault"] for one in found.document["calibration"]["findings"]]
    assert [text for text in found.warnings if text.startswith(f"finding: {fault}: ")]


@pytest.mark.parametrize("link", ["inside", "between"])
def test_a_faulty_link_is_fitted_as_it_is_and_bends_no_other_number(link: str) -> None:
    """The points are exact, so what made them comes back: a prior of healthy links alone would
    have compute, host and ranks take a part of the fault."""
    wanted = [(n, 16) for n in COUNTS] + [(8, 32), (32, 32)]
    found = asked(calibrate={"points": real(Adjustment(**{link: 12.0}), *wanted)})
    assert number(found, link).value == pytest.approx(12.0, rel=0.01)
    other = "between" if link == "inside" else "inside"
    assert number(found, other).value == pytest.approx(1.0, rel=0.01)
    assert number(found, "compute").value == pytest.approx(1.0, rel=0.01)


def test_a_machine_that_computes_slower_than_nearly_all_is_a_finding() -> None:
    found = asked(calibrate={"step_time": "2 s"}, input={"limiting": False})
    assert [one.fault for one in found.level.findings] == ["throttled"]  # type: ignore[union-attr]


def test_repeats_of_the_only_point_are_that_point() -> None:
    one = {"ranks": 1, "step_time": "120 ms"}
    more = {**VGG["cluster"], "ranks": 8}
    once, often = (asked(calibrate={"points": [one] * many}, cluster=more) for many in (1, 3))
    assert often.points[0] == once.points[0]
    assert often.level is not None
    assert often.level.scale == pytest.approx(once.level.scale)  # type: ignore[union-attr]


def test_repeats_of_a_point_tell_no_more_than_what_runs_differ_by() -> None:
    """Residuals and noise of points that do not fit well are those without the repeats."""
    points = real(Adjustment(), (1, 64), (4, 64), (16, 64))
    points[1]["step_time"] = f"{float(points[1]['step_time'][:-2]) * 1.25!r} s"
    sparse, dense = (
        asked(calibrate={"points": some}) for some in (points, [*points, *[points[1]] * 5])
    )
    assert sparse.level is not None
    assert dense.level is not None
    one, other = sparse.level.fit, dense.level.fit
    assert one is not None
    assert other is not None
    assert other.noise == pytest.approx(one.noise, rel=0.03)
    for before, after in zip(one.numbers, other.numbers, strict=True):
        assert after.learned == pytest.approx(before.learned, abs=0.05)
    assert len(other.residuals) == 8


@pytest.mark.parametrize("seen", [((1, 120), (1, 226)), ((1, 120), (8, 75))])
def test_repeats_that_differ_and_steps_that_shrink_with_ranks_are_contradictions(
    seen: tuple[tuple[int, int], ...],
) -> None:
    """And nothing else is told: what was fitted is of no machine; no count is known to 3 % then."""
    points = [{"ranks": ranks, "step_time": f"{step} ms"} for ranks, step in seen]
    found = asked(calibrate={"points": points})
    assert [one.fault for one in found.level.findings] == ["contradiction"]  # type: ignore[union-attr]
    interval = found.points[0].interval  # type: ignore[union-attr]
    assert interval.low < min(step for ranks, step in seen if ranks == 1) / 1e3
    assert interval.high > max(step for ranks, step in seen if ranks == 1) / 1e3


def test_a_point_in_another_unit_is_refused_or_widens_every_count() -> None:
    seen = [(1, "80 ms"), (8, "1e7 ms")]
    points = [{"ranks": ranks, "step_time": step} for ranks, step in seen]
    with pytest.raises(Refused, match="contradict each other: no numbers of one machine come near"):
        asked(calibrate={"points": points})
    points = [*real(Adjustment(), (1, 64), (8, 64)), {"ranks": 16, "step_time": "1e5 ms"}]
    found = asked(calibrate={"points": points}, sweep={"cluster.ranks": [1, 4, 8, 16, 32]})
    ends = [point.interval.high for point in found.points]  # type: ignore[union-attr]
    assert ends[2:] == sorted(ends[2:])  # 8 ranks, which were measured, are surer than 4


@pytest.mark.parametrize("noise", [2.33e-31, -1e-19])
def test_host_time_that_is_the_rounding_of_a_fit_is_none(noise: float) -> None:
    case = Case(load(VGG, Path(), "test").points[0], Path())
    assert Adjustment(host_s=noise).of(case).scenario.host.serial == 0.0


def test_points_that_contradict_each_other_are_a_finding_or_refused() -> None:
    seen = [(1, "80 ms"), (4, "2 s"), (8, "70 ms")]
    points = [{"ranks": ranks, "step_time": step} for ranks, step in seen]
    found = asked(calibrate={"points": points}).level
    assert found is not None
    worst = next(one for one in found.findings if one.fault == "contradiction")
    assert worst.factor < 0.5
    assert "2 s at 4 ranks and 0.07 s at 8, with the same work for each rank" in worst.text
    points = [{"ranks": 8, "step_time": "1e-5 s"}, {"ranks": 16, "step_time": "1 s"}]
    with pytest.raises(Refused, match="contradict each other: no numbers of one machine come near"):
        asked(calibrate={"points": points})


def test_random_steps_are_fitted_on_few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are played only where the fit starts from and to see what it starts with."""
    drawn: list[int | None] = []

    def counted(case: Case, *, at_most: int | None = None, tried: Tries | None = None) -> float:
        drawn.append(at_most)
        return step_time(case, at_most=at_most, tried=tried)

    monkeypatch.setattr("dpsim.predict.level.step_time", counted)
    monkeypatch.setattr("dpsim.predict.gauss_newton.MOST", 2)
    loaded = load({**VGG, "variability": {"jitter": 0.05, "steps": 20}}, Path(), "test")
    points = tuple(CalibrationPoint(ranks=n, step_time=0.15) for n in (1, 2))
    found = level(Case(loaded.points[0], Path()), Calibrate(points=points))
    assert found.fit is not None
    assert max(abs(point.error) for point in found.fit.residuals) < 0.1
    assert drawn.count(None) < 20 < drawn.count(FEW)


def test_all_rows_of_a_file_count_and_ranks_takes_one(tmp_path: Path) -> None:
    rows = "ranks,step_time_s,per_device\n1,0.1,64\n8,0.14,\n8,0.2,128\n"
    (tmp_path / "m.csv").write_text(rows, encoding="utf-8")
    scenario = {**VGG, "calibrate": {"file": "m.csv"}}
    every = predict(load(scenario, tmp_path, "t")).level
    assert every is not None
    assert every.fit is not None
    seen = [(p.ranks, p.global_batch) for p in every.fit.residuals]
    assert seen == [(1, 64), (8, 512), (8, 1024)]
    scenario["calibrate"] = {"file": "m.csv", "ranks": 1}
    one = predict(load(scenario, tmp_path, "t")).level
    assert one == asked(calibrate={"step_time": "0.1 s", "ranks": 1}).level
    scenario["calibrate"] = {"file": "m.csv", "ranks": 4}
    with pytest.raises(Refused, match="has no row of 4 ranks; it has 1, 8, 8"):
        predict(load(scenario, tmp_path, "t"))


@pytest.mark.parametrize(
    ("calibrate", "message"),
    [
        ({"points": []}, "0 points; 1 … 64 are accepted"),
        ({"points": [{"ranks": 2}]}, "exactly one of step_time and throughput"),
        ({"points": [{"step_time": "0 s"}]}, "0 s is no measurement"),
        ({"points": [{"step_time": "1 s"}], "ranks": 2}, "every point says its own ranks"),
        ({"points": [{"step_time": "1 s"}], "step_time": "1 s"}, "exactly one of"),
        ({"points": [{"step_time": "1 s", "per_device": 3, "global": 4}]}, "not a multiple of 3"),
        ({"points": [{"step_time": "1 s", "ranks": 8, "global": 4}]}, "8 ranks: "),
        ({"points": [{"step_time": "1 s", "nodes": 8}]}, "nodes"),
    ],
)
def test_points_that_cannot_be_are_refused(calibrate: dict[str, Any], message: str) -> None:
    with pytest.raises((Refused, ValueError), match=message):
        asked(calibrate=calibrate)


def test_points_and_what_was_fitted_read_back_equal() -> None:
    points = [{"ranks": 1, "throughput": "500 images/s"}, {"ranks": 8, "step_time": "160 ms"}]
    loaded = load({**VGG, "calibrate": {"points": points}}, Path(), "t")
    assert load(to_data(loaded.scenario), Path(), "t").scenario == loaded.scenario
    level = predict(loaded).level
    assert from_json(Level | None, json.loads(json.dumps(to_json(level)))) == level


def test_a_finding_is_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("run", "calibrate-points", "--set", SLOW) == 1
    assert "finding: slow_loader: " in " ".join(capsys.readouterr().out.split())
    assert dpsim.read("calibrate-points").scenario.calibrate is not None


def test_an_engine_that_is_asked_for_and_does_not_apply_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none(*_: Any, **__: Any) -> None:
        raise NotApplicable("ranks communicate in different orders")

    monkeypatch.setattr("dpsim.play.vectorised.play", none)
    with pytest.raises(Refused, match=r"vectorised does not apply: ranks .* write auto or event"):
        play(Case(load(VGG, Path(), "test").points[0], Path()))


def test_more_points_hide_no_step_that_shrinks_with_ranks() -> None:
    """A fit can put all of it down to collectives inside a node, which other counts do not have."""
    data = {
        "model": {"huggingface": "llama-3-8b", "sequence_length": 4096}, "recompute": "full",
        "cluster": {"machine": "dgx-h100", "nodes": 1}, "strategy": {"kind": "fsdp"},
        "precision": {"compute": "bf16"}, "batch": {"per_device": 1},
    }  # fmt: skip
    seen = [(8, "25 s"), (32, "1.31 s"), (128, "1.40 s")]
    points = [{"ranks": ranks, "step_time": step} for ranks, step in seen]
    found = predict({**data, "calibrate": {"points": points}}).level
    assert found is not None
    assert [one.fault for one in found.findings] == ["contradiction"]


def test_experts_that_take_as_long_as_others_do_are_no_fault() -> None:
    """Published steps of many experts took 1.34 times what is predicted, and up to 2.14."""
    data = {
        "model": {"huggingface": "qwen3-30b-a3b", "sequence_length": 4096},
        "cluster": {"machine": "dgx-h100", "ranks": 16}, "parallel": {"expert": 8},
        "strategy": {"kind": "megatron"}, "precision": {"parameters": "bf16", "compute": "bf16"},
        "batch": {"per_device": 1},
    }  # fmt: skip
    bare = predict(data).document["points"][0]["step_time_s"]
    for factor, faults in ((1.3, []), (4.0, ["throttled"])):
        step = {"step_time": f"{bare * factor} s", "ranks": 16}
        found = predict({**data, "calibrate": step}).level
        assert found is not None
        assert [one.fault for one in found.findings] == faults


def longer(ranks: int, factor: float) -> dict[str, Any]:
    """A step of VGG on so many ranks that took `factor` times as long as is modelled."""
    [point] = real(Adjustment(), (ranks, 64))
    return {"ranks": ranks, "step_time": f"{float(point['step_time'][:-2]) * factor!r} s"}


@pytest.mark.parametrize("factor", [0.9, 1.05, 1.15, 1.3])
def test_what_a_measured_step_misses_is_missed_of_counts_near_it(factor: float) -> None:
    """No number explains a step of 8 ranks that is off by itself: its own prediction is what was
    measured, and twice and four times as many ranks, on more nodes, are off nearly as far."""
    light = {"model": {"name": "resnet50"}, "sweep": {"cluster.ranks": [1, 8, 16, 32]}}
    modelled = [point["step_time_s"] for point in asked(**light).document["points"]]
    seen = zip((1, 8), modelled, (1.0, factor), strict=False)
    points = [{"ranks": n, "step_time": f"{step * off!r} s"} for n, step, off in seen]
    found = asked(**light, calibrate={"points": points}).document["points"]
    off = [one["step_time_s"] / step for one, step in zip(found, modelled, strict=True)]
    assert off[:2] == [pytest.approx(1.0, rel=0.03), pytest.approx(factor, rel=0.03)]
    assert all(abs(beyond - factor) < abs(1.0 - factor) / 3 + 0.005 for beyond in off[2:])


def test_what_measured_steps_miss_is_told_beside_the_law_and_is_no_part_of_it() -> None:
    """Steps as modelled, but for a later one that is 8 % longer: the law and the other causes are
    those of the machine near its first step, and what is left stands by itself."""
    light = {"model": {"name": "resnet50"}, "sweep": {"cluster.ranks": [1, 2, 16]}}
    steps = [point["step_time_s"] for point in asked(**light).document["points"]]
    seen = [(1, steps[0]), (16, 1.08 * steps[2])]
    points = [{"ranks": ranks, "step_time": f"{step!r} s"} for ranks, step in seen]
    document = asked(**light, calibrate={"points": points}).document
    parts = document["laws"]["amdahl"]["points"]
    for point, part in zip(document["points"], parts, strict=True):
        causes = [value for key, value in part.items() if key not in ("ranks", "law_s")]
        assert math.fsum(causes) == pytest.approx(point["step_time_s"] - part["law_s"], abs=1e-12)
    assert "unexplained_s" not in parts[0]
    missed = parts[2]["unexplained_s"] / document["points"][2]["step_time_s"]
    assert 0.03 < missed < 0.08
    assert parts[1]["unexplained_s"] < parts[2]["unexplained_s"] / 4
    console = Console(width=1000, file=io.StringIO())
    print_explanation(asked(**light, calibrate={"points": points}).explain(), console)
    told = console.file.getvalue().split("ranks\n")  # type: ignore[attr-defined]
    assert [" more than measured steps of the first point tell" in one for one in told[1:]] == [
        False,
        True,
    ]


def test_laws_are_of_points_that_can_be_played_and_the_same_whatever_is_unexplained() -> None:
    """A point without a sample for each rank carries its error; Karp-Flatt's fractions are of steps
    without what nothing explains."""
    light: dict[str, Any] = {"model": {"name": "resnet50"}, "batch": {"global": 64}}
    steps = [p["step_time_s"] for p in asked(**light, sweep={"cluster.ranks": [1, 16]}).points]
    found = []
    for off in (1.0, 1.08):
        seen = [
            {"ranks": 1, "step_time": f"{steps[0]!r} s"},
            {"ranks": 16, "step_time": f"{off * steps[1]!r} s"},
        ]
        sweep = {"cluster.ranks": [1, 2, 16, 128]}
        answer = asked(**light, sweep=sweep, calibrate={"points": seen})
        assert [isinstance(point, Failed) for point in answer.points] == [False] * 3 + [True]
        found.append(answer.document["laws"])
    exact, other = found
    assert [one["ranks"] for one in exact["amdahl"]["points"]] == [1, 2, 16]
    for one, beside in zip(exact["karp_flatt"], other["karp_flatt"], strict=True):
        assert beside["serial_fraction"] == pytest.approx(one["serial_fraction"], rel=0.1)


def test_no_measured_step_that_is_a_little_longer_makes_others_much_longer() -> None:
    """Predictions of 32 ranks from steps of one rank and eight, the latter up to 1.6 times as long:
    each reaches into the interval of the one before."""
    cluster = {**VGG["cluster"], "ranks": 32}
    ends = []
    for factor in (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6):
        points = {"points": [longer(1, 1.0), longer(8, factor)]}
        (point,) = asked(calibrate=points, cluster=cluster).points
        assert not isinstance(point, Failed)
        ends.append(point.interval)
    for before, after in pairwise(ends):
        assert before.low < after.high
        assert after.low < before.high


def test_what_is_left_is_told_where_it_is_much() -> None:
    for factor, told in ((1.05, False), (1.35, True)):
        found = asked(calibrate={"points": [longer(1, 1.0), longer(8, factor)]})
        assert any("not explained by one level of compute" in one for one in found.warnings) == told


def test_links_that_are_slow_inside_a_node_are_so_on_several_nodes() -> None:
    """A ring over several nodes crosses the same links: eight GPUs on two are not faster than four
    on one."""
    points = [{"ranks": 1, "step_time": "302 ms"}, {"ranks": 4, "step_time": "900 ms"}]
    found = asked(
        cluster={"machine": "rack-10gbe", "ranks": 1}, batch={"per_device": 32},
        precision={"parameters": "fp32", "compute": "fp32"}, calibrate={"points": points},
        sweep={"cluster.ranks": [1, 4, 8]},
    )  # fmt: skip
    assert [one.fault for one in found.level.findings] == ["p2p_off"]  # type: ignore[union-attr]
    one, four, eight = (point["step_time_s"] for point in found.document["points"])
    assert one < four <= eight * (1 + 1e-9)


def test_a_count_that_cannot_be_is_told_beside_those_that_can() -> None:
    """And not refused whole for having no place among the measured ones."""
    points = [longer(1, 1.0), longer(8, 1.1)]
    batch, sweep = {"global": 64}, {"cluster.ranks": [8, 16, 128]}
    found = asked(calibrate={"points": points}, batch=batch, sweep=sweep)
    errors = [getattr(point, "error", None) for point in found.points]
    assert errors[:2] == [None, None]
    assert "leaves some of 128 ranks without a sample" in errors[2]


def test_repeats_that_differ_are_not_steps_that_nothing_explains() -> None:
    points = [longer(1, 1.0), longer(8, 1.1), longer(8, 0.91)]
    found = asked(calibrate={"points": points})
    assert not any("not explained by one level" in text for text in found.warnings)


def test_a_measured_count_that_a_loader_bounds_is_inside_its_interval() -> None:
    """What is carried lengthens compute, and no loader."""
    fed = {"model": {"name": "resnet50"}, "input": {"rate": "2500 images/s"}}
    sweep = {"cluster.ranks": [1, 8]}
    modelled = [point["step_time_s"] for point in asked(**fed, sweep=sweep).document["points"]]
    points = [
        {"ranks": ranks, "step_time": f"{step * off!r} s"}
        for ranks, step, off in zip((1, 8), modelled, (1.0, 1.3), strict=True)
    ]
    found = asked(**fed, sweep=sweep, calibrate={"points": points}).points[1]
    assert not isinstance(found, Failed)
    assert found.interval.low <= modelled[1] * 1.3 <= found.interval.high


def test_compared_machines_have_the_efficiency_of_what_was_measured() -> None:
    points = [longer(1, 1.0), longer(8, 1.3)]
    own = {**VGG, "cluster": {**VGG["cluster"], "ranks": 8}, "calibrate": {"points": points}}
    (alone, eight) = asked(calibrate={"points": points}, sweep={"cluster.ranks": [1, 8]}).document[
        "points"
    ]
    of_one = alone["step_time_s"] / eight["step_time_s"]
    compared = dpsim.compare([own, {**own, "batch": {"per_device": 32}}]).document
    found = compared["candidates"][0]["efficiency"]
    assert found == pytest.approx(of_one, rel=0.02)
