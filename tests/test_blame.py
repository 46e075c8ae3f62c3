"""Blame: the loss of a step by cause and by rank."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dpsim.cases.case import Case
from dpsim.describe.scenario import load
from dpsim.predict.blame import MOST_EXACT, Blame, blame, causes
from dpsim.predict.player import play
from dpsim.predict.point import Point
from dpsim.predict.prediction import predict
from dpsim.report.explained import print_explanation

TOY: dict[str, Any] = {
    "model": {"layers": [{"name": "a", "parameters": 2_621_440, "forward": "0 s",
                          "backward": "10 ms"}]},
    "cluster": {"ranks": 4},
    "collective": {"backend": "ideal", "latency": "1 ms", "bandwidth": "10 MiB/ms"},
    "strategy": {"kind": "ddp"},
    "optimizer": {"kind": "none"},
}  # fmt: skip


def of(**changes: Any) -> tuple[Blame, float]:
    case = Case(load({**TOY, **changes}, Path(), "test").points[0], Path())
    time = play(case).step_time
    return blame(case, time), time


def losses(found: Blame) -> dict[str, float]:
    return {one.cause: one.loss_s for one in found.causes}


def by_rank(found: Blame) -> dict[int | None, float]:
    return {one.rank: one.loss_s for one in found.ranks}


def test_causes_that_follow_one_another_are_to_blame_for_what_they_take() -> None:
    """10 ms of compute, half as long again on rank 3, 2 ms of host, 1 + 1 ms of all-reduce."""
    found, time = of(variability={"slow_ranks": {3: 1.5}}, host={"serial": "2 ms"})
    assert time == pytest.approx(0.019)
    assert found.quiet_s == pytest.approx(0.010)
    assert losses(found) == pytest.approx(
        {"slow_ranks[3]": 0.005, "host": 0.002, "communication": 0.002}
    )
    assert {one.cause: one.step_time_without_s for one in found.causes} == pytest.approx(
        {"slow_ranks[3]": 0.014, "host": 0.017, "communication": 0.017}
    )
    assert by_rank(found) == pytest.approx({3: 0.005})


def test_causes_that_hide_one_another_share_the_loss() -> None:
    """Without either of two ranks that are 50 % slow nothing is gained, without both all is.  One
    at 20 % and one at 50 %: the first 20 % are shared."""
    found, _ = of(variability={"slow_ranks": {1: 1.5, 2: 1.5}}, collective={"backend": "free"})
    assert losses(found)["slow_ranks[1]"] == pytest.approx(0.0025)
    assert losses(found)["slow_ranks[2]"] == pytest.approx(0.0025)
    assert next(
        c for c in found.causes if c.cause == "slow_ranks[1]"
    ).step_time_without_s == pytest.approx(0.015)
    found, _ = of(variability={"slow_ranks": {1: 1.2, 2: 1.5}}, collective={"backend": "free"})
    assert losses(found)["slow_ranks[1]"] == pytest.approx(0.001)
    assert losses(found)["slow_ranks[2]"] == pytest.approx(0.004)


RANDOM: dict[str, Any] = {
    "jitter": 0.05,
    "slow_ranks": {1: 1.2},
    "random_slow": {"probability": 0.1, "factor": 1.5},
    "pauses": {"duration": "3 ms", "every": 7},
    "co_tenant": {"share": 0.1, "probability": 0.2},
    "sequence_length": {"spread": 0.3},
    "steps": 30,
}


@pytest.mark.parametrize("count", range(1, 7))
def test_causes_sum_to_the_loss_and_ranks_to_what_varies(count: int) -> None:
    chosen = dict(list(RANDOM.items())[:count])
    found, time = of(variability={**chosen, "steps": 30})
    whole = losses(found)
    assert found.method == ("shapley" if len(whole) <= MOST_EXACT else "two orders")
    assert len(whole) == count + 1
    assert found.loss_s == pytest.approx(time - found.quiet_s)
    assert found.quiet_s == pytest.approx(0.010)
    assert sum(whole.values()) == pytest.approx(found.loss_s, abs=1e-12)
    varied = sum(loss for name, loss in whole.items() if name != "communication")
    assert sum(by_rank(found).values()) == pytest.approx(varied, abs=1e-12)


def test_many_ranks_are_named_by_what_they_cost() -> None:
    found, _ = of(cluster={"ranks": 100}, variability={"jitter": 0.05, "steps": 40})
    named = [loss for rank, loss in by_rank(found).items() if rank is not None]
    assert len(named) == 10
    assert named == sorted(named, reverse=True)
    assert by_rank(found)[None] > 0


def test_nothing_is_lost_where_nothing_varies() -> None:
    found, time = of(cluster={"ranks": 1})
    assert (found.causes, found.ranks, found.loss_s) == ((), (), 0.0)
    assert found.quiet_s == time
    out = io.StringIO()
    print_explanation(predict(load(TOY, Path(), "test")).explain(), Console(file=out, width=120))
    assert "is lost" not in out.getvalue()  # exposed communication is told apart


def test_the_spread_that_was_fitted_is_a_cause_only_where_it_is_used() -> None:
    machine = {"cluster": {"machine": "dgx-1v", "nodes": 1}, "collective": {"backend": "nccl"}}
    plain = Case(load({**TOY, **machine}, Path(), "test").points[0], Path())
    assert causes(plain) == ("spread", "communication")
    found = blame(plain, play(plain).step_time)
    assert losses(found)["spread"] == pytest.approx(0.010 * (plain.script.waiting - 1), rel=0.3)
    varied = load({**TOY, **machine, "variability": {"slow_ranks": {0: 1.1}}}, Path(), "test")
    case = Case(varied.points[0], Path())
    assert causes(case) == ("slow_ranks[0]", "spread", "communication")
    jittered = load({**TOY, **machine, "variability": {"jitter": 0.01}}, Path(), "test")
    assert causes(Case(jittered.points[0], Path())) == ("jitter", "communication")
    assert blame(case, play(case).step_time).quiet_s == pytest.approx(0.010)


def test_explain_tells_it_as_json_and_as_a_table() -> None:
    changes = {"variability": {"slow_ranks": {3: 1.5}}}
    document = predict(load({**TOY, **changes}, Path(), "test")).explain()
    point = document["points"][0]["blame"]
    assert [c["cause"] for c in point["causes"]] == ["slow_ranks[3]", "communication"]
    assert point["ranks"] == [{"rank": 3, "loss_s": pytest.approx(0.005)}]
    out = io.StringIO()
    print_explanation(document, Console(file=out, width=120))
    assert "slow rank 3" in out.getvalue()
    assert "Of the compute 5 ms (29.4 % of the step) is lost" in out.getvalue()
    assert "71.4 %" in out.getvalue()


@pytest.mark.parametrize("strategy", [
    {"kind": "zero", "stage": 2, "offload_optimizer": "cpu"},
    {"kind": "lightning", "strategy": "deepspeed_stage_2_offload"},
], ids=str)  # fmt: skip
def test_what_the_host_updates_is_no_communication(strategy: dict[str, Any]) -> None:
    """Free communication leaves the host its work; without the host the device updates."""
    scenario = {
        "model": {"huggingface": "gpt2-xl", "sequence_length": 1024},
        "cluster": {"machine": "dgx-a100", "nodes": 1},
        "precision": {"parameters": "bf16", "compute": "bf16"},
        "strategy": strategy,
    }
    found = predict(load(scenario, Path(), "test"))
    point = found.points[0]
    assert isinstance(point, Point)
    lost = blame(found.outcomes[0].case, point.step_time_s)
    update = 28 * found.outcomes[0].case.model.parameters / 8 * 8 / 100e9
    assert losses(lost)["host"] > 0.9 * update
    assert losses(lost)["communication"] < 0.1 * lost.loss_s
    assert point.bottleneck == "host"
    assert point.parts.stall_s > update
    low, high = point.interval.causes["host (prior)"]
    assert low < 1 < high
