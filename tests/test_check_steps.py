"""`dpsim check`: is a measured step normal, which fault is likely, and what to run next."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from dpsim.cases.case import Case
from dpsim.cases.variant import at_ranks
from dpsim.checks.hypotheses import MEANINGS, PRIORS
from dpsim.checks.next_commands import AskedCheck, next_commands, of_tuned_code
from dpsim.checks.steps import NORMAL, SLOW, StepCheck, StepJudge, check_steps
from dpsim.core.record import Refused
from dpsim.describe.scenario import read
from dpsim.predict.level import level_of
from dpsim.predict.memory import crowded, memory_of
from dpsim.predict.player import step_time
from dpsim.predict.timed import timed
from dpsim.predict.unmeasured import UNTUNED
from dpsim.report.step_check import faster, listed, said, untuned

ROOT = Path(__file__).parent.parent
Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def judge() -> StepJudge:
    """The quickstart's servers, calibrated on one GPU, at 1, 8 and 32 GPUs."""
    loaded = read("quickstart")
    found = level_of(loaded)
    assert found is not None
    first = found.of(Case(loaded.points[0], loaded.base))
    return StepJudge([at_ranks(first, ranks) for ranks in (1, 8, 32)], found)


@pytest.fixture(scope="module")
def program() -> ModuleType:
    """validation/step_verdicts.py."""
    place = ROOT / "validation" / "step_verdicts.py"
    spec = importlib.util.spec_from_file_location("step_verdicts", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def times(judge: StepJudge, *factors: float) -> StepCheck:
    """The verdict on healthy steps that take so many times as long."""
    return judge.judged([float(t) for t in np.exp(judge.healthy) * np.array(factors)])


def test_what_is_predicted_is_normal(judge: StepJudge) -> None:
    found = times(judge, 1.0, 1.0, 1.0)
    assert found.verdict == "normal"
    assert found.probability < NORMAL
    assert next_commands(found, AskedCheck("quickstart")) == []


def test_the_pattern_over_ranks_tells_faults_apart(judge: StepJudge) -> None:
    """Slower on one rank too; only beyond one node, by far; beyond one rank, the same on each."""
    assert times(judge, 1.5, 1.5, 1.5).causes[0].name == "throttled"
    assert times(judge, 1.0, 1.0, 8.0).causes[0].name == "wrong_nic"
    within = times(judge, 1.0, 1.6, 1.55)
    assert within.verdict == "slow"
    assert {cause.name for cause in within.causes[:2]} == {"slow_loader", "slow_rank"}


@pytest.mark.parametrize(
    ("runtime", "stages", "possible"), [("64 GB", 4, True), ("1 GB", 4, False), ("64 GB", 2, False)]
)
def test_only_where_memory_may_be_full_do_steps_wait_for_it(
    tmp_path: Path, runtime: str, stages: int, possible: bool
) -> None:
    """Six times as long: of pipelines of four stages whose memory surely fits it is another fault,
    and of shorter ones nobody has seen it."""
    data = {
        "model": {"huggingface": "gpt2-xl", "sequence_length": 1024},
        "cluster": {"machine": "dgx-a100", "ranks": 8}, "parallel": {"pipeline": stages},
        "strategy": {"kind": "megatron"}, "memory": {"runtime": runtime},
        "precision": {"parameters": "bf16", "compute": "bf16"},
        "batch": {"per_device": 4, "accumulation": 8},
    }  # fmt: skip
    (tmp_path / "s.yaml").write_text(json.dumps(data), encoding="utf-8")
    loaded = read(tmp_path / "s.yaml")
    case = Case(loaded.points[0], loaded.base)
    assert crowded(case) == possible
    check = check_steps(timed(loaded, [f"8={6 * step_time(case):.4f}s"], []))
    assert check.verdict == "slow"
    names = [cause.name for cause in check.causes]
    assert ("full_memory" in names) == possible
    assert names[0] == "full_memory" or not possible
    said = next_commands(check, AskedCheck("s.yaml", ["8=1s"]))
    assert any("expandable_segments" in line for line in said) == possible


def test_probabilities_are_those_of_all_that_could_be(judge: StepJudge) -> None:
    for factors in ((1.0, 1.0, 1.0), (1.0, 1.3, 2.0), (1.3, 1.3, 1.3)):
        found = times(judge, *factors)
        assert found.probability == pytest.approx(sum(c.probability for c in found.causes))
        assert 0 <= found.probability <= 1
        expected = "slow" if found.probability >= SLOW else "normal"
        if NORMAL < found.probability < SLOW:
            expected = "cannot_tell"
        assert found.verdict == expected
    assert set(MEANINGS) == set(PRIORS)


def test_steps_that_are_too_fast_are_no_normal_ones(judge: StepJudge) -> None:
    found = times(judge, 0.5, 0.5, 0.5)
    assert found.too_fast
    assert found.verdict == "cannot_tell"
    asked = AskedCheck("quickstart", ["1=160ms"], sets=["seed=3"])
    assert "dpsim run quickstart --set seed=3" in next_commands(found, asked)


def test_no_fault_makes_steps_faster(judge: StepJudge) -> None:
    """However far below healthy steps: none is likelier than before, and none is told of."""
    before = sum(PRIORS.values())
    only = StepJudge(judge.cases[2:], judge.found)
    alone = [times(only, factor) for factor in (0.5, 0.15, 0.01)]
    for found in (times(judge, 0.5, 0.5, 0.5), *alone):
        assert found.only_faster
        assert found.probability <= before
        assert all(cause.probability <= 1.2 * PRIORS[cause.name] for cause in found.causes)
        assert listed(found) == []


def test_after_steps_that_are_only_faster_the_level_is_looked_at() -> None:
    found = check_steps(timed(read("quickstart"), ["32=160ms"], []))
    commands = next_commands(found, AskedCheck("quickstart", ["32=160ms"]))
    assert commands[-2:] == [
        "dpsim run quickstart",
        "dpsim run quickstart --set 'calibrate={step_time: 0.16 s, ranks: 32}'",
    ]


@pytest.mark.parametrize(
    ("sets", "step", "calibrated"), [((), "0.31s", True), (("calibrate=null",), "0.23s", False)]
)
def test_a_step_faster_than_its_interval_is_told_though_no_fault_makes_it_so(
    cli: Cli, sets: tuple[str, ...], step: str, calibrated: bool
) -> None:
    """Nearer than what the scenario cannot explain: the verdict and the exit code stay."""
    asked = ("check", "quickstart", "--step-time", f"32={step}", *(f"--set={one}" for one in sets))
    code, out, _ = cli(*asked)
    told = " ".join(out.split())
    assert code == 0
    assert "Faster than 19 of 20 healthy steps: " in told
    assert "another batch, precision, model or recomputation may have been measured" in told
    assert ("a slow step may have calibrated the scenario" in told) == calibrated
    assert "Normal: nothing speaks for a fault, but there are steps faster than most" in told
    code, out, _ = cli(*asked, "--json")
    document = json.loads(out)
    assert (code, document["verdict"], document["faster_than_expected"]) == (0, "normal", False)
    assert [point["faster_than_interval"] for point in document["points"]] == [True]
    assert document["next"][0].startswith("dpsim run quickstart")


def test_the_level_that_is_looked_at_is_that_of_a_fast_step() -> None:
    """Not of one beside it that is as long as it should be."""
    told = ["8=343ms", "32=315ms"]
    found = check_steps(timed(read("quickstart"), told, []))
    assert [seen.case.ranks for seen in found.below] == [32]
    assert next_commands(found, AskedCheck("quickstart", told))[-1] == (
        "dpsim run quickstart --set 'calibrate={step_time: 0.315 s, ranks: 32}'"
    )


def test_no_more_ranks_are_asked_for_than_the_cluster_can_have() -> None:
    """One node of two cards, whose model one card does not hold."""
    found = check_steps(timed(read("two-3090"), ["2=0.9s"], []))
    assert not any(
        "4=TIME" in one for one in next_commands(found, AskedCheck("two-3090", ["2=1s"]))
    )


def test_a_step_inside_its_interval_is_not_called_fast(cli: Cli) -> None:
    """A tenth shorter than expected, as healthy ones are."""
    code, out, _ = cli("check", "quickstart", "--step-time", "32=0.33s", "--json")
    document = json.loads(out)
    assert (code, document["verdict"], document["next"]) == (0, "normal", [])
    assert [point["faster_than_interval"] for point in document["points"]] == [False]
    assert "aster than" not in cli("check", "quickstart", "--step-time", "32=0.33s")[1]


def test_a_fast_step_beside_a_slow_one_is_told_too(judge: StepJudge) -> None:
    found = times(judge, 1.0, 0.86, 1.7)
    assert (found.verdict, found.too_fast) == ("slow", False)
    (told,) = faster(found)
    assert "on 8 ranks" in told
    assert "on 32 ranks" not in told


def test_a_fast_step_beside_a_slow_one_may_still_be_a_fault(judge: StepJudge) -> None:
    found = times(judge, 0.5, 1.0, 8.0)
    assert found.too_fast
    assert not found.only_faster
    assert listed(found)[0].name == found.causes[0].name


def test_what_is_computed_again_takes_time_too() -> None:
    """Llama 3 8B, a sample of 8,192 tokens a GPU: 3 forwards' FLOP, 4 where all is done again."""
    for recompute, step in (("none", "0.47s"), ("full", "0.6s")):
        sets = [f"recompute={recompute}"]
        assert timed(read("llama3-8b-h100", sets), [f"8={step}"], []).seconds
        with pytest.raises(Refused, match="is shorter than H100-SXM5-80GB can be"):
            timed(read("llama3-8b-h100", sets), [f"8={float(step[:-1]) * 0.9}s"], [])


def followed(point: str, *sets: str, scenario: str = "quickstart") -> list[str]:
    """What to run next after a step that nobody can tell, and the verdict is that."""
    found = check_steps(timed(read(scenario, sets), [point], []))
    assert found.verdict == "cannot_tell"
    return next_commands(found, AskedCheck(scenario, [point], sets=sets))


def test_the_slower_a_step_the_surer_a_fault_and_beyond_all_known_ones_it_is_an_unknown_one(
    judge: StepJudge,
) -> None:
    only = StepJudge(judge.cases[1:2], judge.found)
    factors = (1.0, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0, 5.0, 15.0, 30.0, 180.0, 3e9, 1e30)
    each = [times(only, factor) for factor in factors]
    sure = [found.probability for found in each]
    assert sure == pytest.approx(sorted(sure), abs=1e-5)
    assert all(found.verdict == "slow" for found in each[4:])
    assert all(found.causes[0].name == "unknown" for found in each[8:])
    assert each[5].causes[0].name != "unknown"
    asked = AskedCheck("quickstart", ["8=1s"])
    assert "dpsim measure --world-size 8 -- python train.py" in next_commands(each[-1], asked)


@pytest.fixture(scope="module")
def slow_network() -> StepJudge:
    """Servers of 8 GPUs on 10 Gbit/s, where nothing calibrates the level of compute."""
    first = Case(read("vgg16-10gbe", ["cluster.machine=dgx-1v"]).points[0], Path())
    return StepJudge([at_ranks(first, ranks) for ranks in (1, 4, 8, 16, 32)])


@pytest.fixture(scope="module")
def rack() -> StepJudge:
    """Servers of 4 GPUs on 10 Gbit/s: no fault that is played slows only some servers by half."""
    first = Case(read("vgg16-10gbe", ["compute.efficiency=0.6"]).points[0], Path())
    return StepJudge([at_ranks(first, ranks) for ranks in (1, 2, 4, 8, 16, 32)])


#: where it is another fault, in the gap between strengths, that explains what a stronger one would:
#: one and two nodes slow, and four and eight healthy; it stays "slow" there, at 0.86 and more
SHIFTS = ("rack", (1, 1, 1, 1, 0, 0))


@pytest.mark.parametrize("place", ["judge", "slow_network", "rack"])
def test_no_step_is_healthier_for_being_slower(place: str, request: pytest.FixtureRequest) -> None:
    """Whichever points are slow together, up to twelve times: in the gap beyond the strongest fault
    that is played, and in patterns of no fault too."""
    judged: StepJudge = request.getfixturevalue(place)
    many = len(judged.cases)
    for chosen in itertools.product((0, 1), repeat=many):
        if not any(chosen):
            continue
        factors = np.exp(np.linspace(0.0, math.log(12.0), 14))
        each = [times(judged, *np.where(chosen, factor, 1.0)) for factor in factors]
        sure = np.array([found.probability for found in each])
        most = 0.08 if (place, chosen) == SHIFTS else 0.025
        assert np.max(np.maximum.accumulate(sure) - sure) < most, chosen
        assert each[-1].verdict == "slow", chosen


def test_a_gap_between_faults_that_are_played_and_unknown_ones_is_none() -> None:
    """Two slow counts, more slowed than by the strongest slow rank that is played."""
    told = ["1=362.6ms", "2=392ms", "4=409.6ms", "8=623.9ms"]
    half, twice = (
        check_steps(timed(read("vgg16-10gbe"), [*told, *more], []))
        for more in (["16=1.68s", "32=1.79s"], ["16=2.24s", "32=2.384s"])
    )
    assert (half.verdict, twice.verdict) == ("slow", "slow")
    assert twice.probability > half.probability


def test_the_very_step_that_calibrates_is_no_check() -> None:
    for step in ("1=318.8ms", "1=0.3188s"):
        with pytest.raises(Refused, match="very step that calibrates"):
            timed(read("quickstart"), [step], [])
    assert timed(read("quickstart"), ["1=318.8ms", "8=0.34s"], []).seconds
    assert timed(read("quickstart"), ["1,per_device=128=318.8ms"], []).seconds
    assert timed(read("quickstart"), ["1=330ms"], []).seconds
    made_up = ["calibrate={step_time: 318.8 ms, synthetic: true}"]  # with a loader it is a check
    assert timed(read("quickstart", made_up), ["1=318.8ms"], []).seconds


def test_repeats_of_a_step_are_one_unknown(judge: StepJudge) -> None:
    """What no prediction explains of a run is the same each time; only their scatter averages."""
    case, seconds = judge.cases[1], float(np.exp(judge.healthy[1])) * 1.17
    once, often = (
        StepJudge([case] * many, judge.found).judged([seconds] * many) for many in (1, 8)
    )
    assert once.verdict == often.verdict == "cannot_tell"
    assert once.probability < often.probability < once.probability + 0.03
    assert len(often.document([])["points"]) == 8
    rate = ["8=6000 images/s"]
    told = check_steps(timed(read("quickstart"), [f"8={2048 / 6000!r}s"], rate))
    alone = check_steps(timed(read("quickstart"), [], rate))
    assert told.probability == pytest.approx(alone.probability, abs=0.02)


@pytest.mark.parametrize("fast", [["300ms"], ["343ms"], ["340ms"] * 9])
def test_fast_repeats_do_not_cancel_a_slow_one(cli: Cli, fast: list[str]) -> None:
    """They differ by more than repeats of a run do: the slowest counts, and that is told."""
    options = [f"--step-time=8={step}" for step in ("500ms", *fast)]
    code, out, _ = cli("check", "quickstart", *options)
    told = " ".join(out.split())
    assert code == 1
    assert "Repeats differ by more than 1.25 times, as those of one run hardly do: " in told
    assert "500 ms on 8 ranks (1." in told
    assert told.endswith("Slower than 19 of 20 healthy steps: 500 ms on 8 ranks.")
    document = json.loads(cli("check", "quickstart", *options, "--json")[1])
    alone = json.loads(cli("check", "quickstart", options[0], "--json")[1])
    assert document["repeats_differ"]
    assert document["probability"] == pytest.approx(alone["probability"], abs=0.02)
    assert [p["slower_than_interval"] for p in document["points"]] == [True] + [False] * len(fast)


def test_repeats_that_differ_are_not_normal_however_fast() -> None:
    """Nor slow where the slowest is healthy; a repeat that is too fast is seen beside it."""
    for steps, fast in ((["8=360ms", "8=280ms"], False), (["8=340ms", "8=200ms"], True)):
        found = check_steps(timed(read("quickstart"), steps, []))
        assert (found.verdict, found.too_fast) == ("cannot_tell", fast)
        assert "Repeats of a step differ" in said(found)
    alike = check_steps(timed(read("quickstart"), ["8=350ms", "8=330ms"], []))
    assert (alike.verdict, alike.differing) == ("normal", ())


@pytest.mark.parametrize(
    ("steps", "verdict"),
    [(["8=400ms", "8=343ms"], "normal"), (["8=500ms", "32=320ms"], "cannot_tell")],
)
def test_a_step_beyond_its_interval_is_in_the_last_line(steps: list[str], verdict: str) -> None:
    found = check_steps(timed(read("quickstart"), steps, []))
    assert found.verdict == verdict
    slow = f"{steps[0][2:-2]} ms on 8 ranks."
    assert said(found).endswith(f"Slower than 19 of 20 healthy steps: {slow}")


def test_a_fast_step_among_normal_ones_is_no_slow_cluster(judge: StepJudge) -> None:
    assert times(judge, 1.0, 1.0, 0.5).verdict == "cannot_tell"


def test_an_uncalibrated_step_half_as_long_again_cannot_be_told() -> None:
    """A prediction that no measurement corrects is too wide to call such a step slow or normal.
    What would calibrate is not what is checked: another count of ranks is asked for."""
    plain = followed("1=0.5s", "calibrate=null")
    assert plain[0] == (
        "dpsim check quickstart --step-time 1=0.5s --step-time 8=TIME --set calibrate=null"
    )


def test_what_is_run_next_has_the_batch_and_the_settings_of_what_was_asked(
    judge: StepJudge,
) -> None:
    point = "8,accumulation=4=2s"
    first, *_ = followed(point, "calibrate=null", "seed=3")
    same = "--set calibrate=null --set seed=3"
    assert first == f"dpsim check quickstart --step-time 1=TIME --step-time {point} {same}"
    asked = AskedCheck("quickstart", ["8=0.5s", "32,accumulation=4=2.2s"], sets=["seed=3"])
    assert (
        "dpsim check quickstart --step-time 32,accumulation=4=TIME_WITHOUT_LOADER "
        "--set seed=3 --set 'input={synthetic: true}'"
    ) in next_commands(times(judge, 1.0, 1.6, 1.55), asked)


def test_what_tells_two_faults_is_listed_once(judge: StepJudge) -> None:
    found = times(judge, 1.5, 1.5, 1.5)
    both = [
        replace(c, probability=0.5) for c in found.causes if c.name in ("throttled", "slow_rank")
    ]
    assert len(both) == 2
    said = next_commands(replace(found, causes=tuple(both)), AskedCheck("quickstart", ["8=1s"]))
    assert sum("nvidia-smi -q" in line for line in said) == 1


def test_the_fewest_ranks_that_are_asked_for_hold_the_model() -> None:
    """Llama-3-8B needs several GPUs: its states alone are more than one has."""
    first, *_ = followed("512=6.3s", scenario="llama3-8b-failures")
    few = int(first.split("--step-time ")[1].split("=")[0])
    assert 1 < few < 512
    case = Case(read("llama3-8b-failures").points[0], Path())
    assert memory_of(at_ranks(case, few)).holds
    assert not memory_of(at_ranks(case, few // 2)).holds


def test_a_loader_that_is_no_limit_is_no_cause() -> None:
    slow = ["1=0.319s", "8=0.55s"]
    assert "slow_loader" in [
        c.name for c in check_steps(timed(read("quickstart"), slow, [])).causes
    ]
    sure = check_steps(timed(read("quickstart", ["input.limiting=false"]), slow, []))
    assert "slow_loader" not in [c.name for c in sure.causes]


def test_the_command_says_it_in_text_and_json(cli: Cli) -> None:
    asked = ("check", "quickstart", "--step-time", "8=0.333s", "--throughput", "32=3000 images/s")
    code, out, _ = cli(*asked, "--json")
    document = json.loads(out)
    assert code == 1
    assert document["verdict"] == "slow"
    assert document["causes"][0]["name"] == "wrong_nic"
    assert [point["ranks"] for point in document["points"]] == [8, 32]
    assert document["points"][1]["measured_s"] == pytest.approx(32 * 256 / 3000)
    assert (
        "dpsim check-nccl nccl.txt --cluster v100-1x100g --ranks 32 --nodes 4" in document["next"]
    )
    code, out, _ = cli(*asked)
    assert code == 1
    assert "wrong_nic" in out
    assert "Run next:" in out
    assert "Written to" not in out
    code, out, _ = cli("check", "quickstart", "--step-time", "8=0.333s")
    told = " ".join(out.split())
    assert "healthy 90 %: where 9 of 10 steps without a fault lie, of this and other runs" in told
    assert (code, "Normal:" in out) == (0, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "0 measured steps; 1 … 16 are accepted"),
        (("--step-time", "0.4s"), "is no RANKS=VALUE"),
        (("--step-time", "8=fast"), "is not a number with a unit"),
        (("--step-time", "8=0 s"), "0 s is no measurement"),
        (("--step-time", "8,layers=3=1s"), "with per_device, global, accumulation"),
        (("--step-time", "8,accumulation=x=1s"), "a key of the batch is a whole number"),
        (("--step-time", "8=1us"), "is shorter than Tesla V100-SXM2-16GB can be"),
        (("--throughput", "8=3 tokens/s"), "tokens/s does not fit this model"),
        (("--step-time", "0=1s"), "ranks"),
        (("--step-time", "8,global=4=1s"), "leaves some of 8 ranks without a sample"),
    ],
)
def test_what_is_no_measured_step_is_refused(
    cli: Cli, words: tuple[str, ...], message: str
) -> None:
    code, _, err = cli("check", "quickstart", *words)
    assert code == 2
    assert message in " ".join(err.split())


def test_made_up_clusters_of_another_model_are_judged_right(program: ModuleType) -> None:
    """A small part of what `validation/step_verdicts.py` draws."""
    cases = program.all_cases(2, 5, seed=2, trained=program.TRAINED[1:2])
    found = program.tally(cases)
    assert found.precision == 1
    assert found.recall >= 0.6
    assert found.first >= 0.6


def test_more_healthy_steps_make_a_fault_no_less_sure() -> None:
    """What several points fitted is unsure together: were each number by itself as unsure as it is
    alone, two steps before would say less than either of them."""
    one, other = "{step_time: 320 ms, ranks: 32}", "{step_time: 290 ms, ranks: 8}"
    both = f"{{points: [{one}, {other}]}}"
    said = []
    for calibrate in (one, both):
        sets = [f"calibrate={calibrate}"]
        said.append(check_steps(timed(read("quickstart", sets), ["32=420ms"], [])))
    assert [found.verdict for found in said] == ["slow", "slow"]
    assert said[1].probability > said[0].probability


def test_slow_steps_of_unmeasured_code_may_be_those_of_code_that_nobody_tuned() -> None:
    """A step twice as long is a fault's, or what other sources' code takes: who asks is told so,
    and how to find out."""
    sets = ["calibrate=null", "sweep=null"]
    found = check_steps(timed(read("quickstart", sets), ["8=900ms"], []))
    assert (found.verdict, untuned(found)) == ("slow", [UNTUNED])
    commands = next_commands(found, AskedCheck("quickstart", ["8=900ms"]))
    assert commands[0] == "dpsim check quickstart --step-time 1=TIME --step-time 8=900ms"
    assert "--set compute.code=typical" in commands[1]
    for more in ("compute.code=typical", "calibrate={step_time: 318.8 ms, ranks: 1}"):
        other = check_steps(timed(read("quickstart", [*sets, more]), ["8=900ms"], []))
        assert untuned(other) == []


def test_durations_that_are_given_are_nobodys_code() -> None:
    """Layers that take no time in forward are given, too."""
    layers = [{"name": "a", "parameters": 1000, "forward": "0 s", "backward": "100 ms"}]
    sets = ["calibrate=null", "sweep=null", f"model={{layers: {json.dumps(layers)}}}"]
    found = check_steps(timed(read("quickstart", sets), ["8=900ms"], []))
    assert not of_tuned_code(found)
    assert of_tuned_code(check_steps(timed(read("quickstart", sets[:2]), ["8=900ms"], [])))
