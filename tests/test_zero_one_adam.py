"""0/1 Adam: which step sends what, against the algorithm stepped through, and what that costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpsim import predict
from dpsim.cases.case import Case
from dpsim.compile.compression import Compression
from dpsim.compile.compression.one_bit import OneBit
from dpsim.compile.compression.zero_one_adam import ZeroOneAdam
from dpsim.describe.scenario import load
from dpsim.play import event, vectorised

KNOBS = [(37, 3, 10, 4), (0, 16, 1, 6), (200, 1, 7, 16), (12, 4, 5, 1)]


def stepped(freeze: int, updates: int, scaler: int, clipper: int, steps: int) -> list[str]:
    """The state machine of the optimizer, step by step: what each of them sends."""
    sent, interval, counted, local, since, frozen = ["whole"], 1, 0, 1, 0, freeze < 1
    for step in range(2, steps + 1):
        if frozen:
            sent.append("signs of a sum" if step % local == 0 else "nothing")
            since += 1
            if since == scaler:
                since, local = 0, min(2 * local, clipper)
        elif step % interval:
            sent.append("signs")
        else:
            sent.append("whole")
            counted += 1
            if counted == updates:
                counted, interval = 0, 2 * interval
        frozen = frozen or step > freeze
    return sent


def named(knobs: tuple[int, int, int, int]) -> ZeroOneAdam:
    names = ("var_freeze_step", "var_update_scaler", "local_step_scaler", "local_step_clipper")
    return ZeroOneAdam(**dict(zip(names, knobs, strict=True)))


def said(codec: Compression | None) -> str:
    if codec is None:
        return "whole"
    if isinstance(codec, OneBit):
        return "signs"
    return "signs of a sum" if isinstance(codec, ZeroOneAdam) else "nothing"


@pytest.mark.parametrize("knobs", KNOBS)
def test_each_step_sends_what_the_algorithm_sends_in_it(knobs: tuple[int, int, int, int]) -> None:
    codec = named(knobs)
    assert [said(codec.at(k)) for k in range(1, 301)] == stepped(*knobs, 300)


@pytest.mark.parametrize("knobs", KNOBS)
def test_a_whole_run_has_as_many_exchanges_of_each_kind(knobs: tuple[int, int, int, int]) -> None:
    """To the step: what is left over of rounds that a stage or the run cuts is told apart."""
    found, begun = dict.fromkeys(("whole", "signs", "signs of a sum", "nothing"), 0.0), 0.0
    codec = named(knobs)
    for last, phase in [*codec.phases(300.0), (300.0, codec)]:
        rounds = (last - begun) / (1 if phase is None else phase.period)
        found[said(phase)] += rounds
        found["nothing"] += last - begun - rounds
        begun = last
    counted = stepped(*knobs, 300)
    assert found == {kind: counted.count(kind) for kind in found}


def test_the_time_to_train_is_that_of_all_its_steps() -> None:
    knobs = {"var_freeze_step": 2, "var_update_scaler": 1, "local_step_scaler": 3}
    (point,) = predict(case_of(knobs, training={"samples": 4 * 17}).scenario).computed
    each = (case_of(knobs, iteration=k).scenario for k in range(1, 18))
    whole = sum(predict(one).computed[0].step_time_s for one in each)
    assert point.run is not None
    assert point.run.time_s == pytest.approx(whole, rel=1e-12)


def case_of(compression: dict[str, Any], **rest: Any) -> Case:
    """A second of backward, 80 million parameters in fp32 on four ranks at 1 GB/s."""
    layer = {"name": "all", "parameters": 80_000_000, "forward": "0 s", "backward": "1 s"}
    data = {
        "model": {"layers": [layer], "dtype": "fp32"},
        "cluster": {"ranks": 4},
        "collective": {"backend": "ideal_ring", "latency": "1 ms", "bandwidth": "1 GB/s"},
        "strategy": {"kind": "ddp"},
        "optimizer": {"kind": "none"},
        "compression": {"kind": "zero_one_adam", **compression},
        **rest,
    }
    return Case(load(data, Path(), "").points[0], Path())


#: an all-to-all and an all-gather of 10 MB over three steps of 1 ms and a quarter of it each
EXCHANGE = 2 * 3 * (1e-3 + 10e6 / 4 / 1e9)


@pytest.mark.parametrize("period", [1, 3, 16])
def test_an_exchange_comes_once_a_round_with_its_coding(period: int) -> None:
    case = case_of({"local_step_clipper": period, "encode": "20 ms", "decode": "10 ms"})
    (request, *_) = case.plays()
    expected = 1.0 + (EXCHANGE + 0.03) / period
    for engine in (event, vectorised):
        assert engine.play(request).step_time == pytest.approx(expected, rel=1e-12)
    (point,) = predict(case.scenario).computed
    if period == 1:
        assert point.round is None
        return
    assert point.round is not None
    expected_steps = [1.0] * (period - 1) + [1.0 + EXCHANGE + 0.03]
    assert point.round.period.step_times_s == pytest.approx(expected_steps, rel=1e-9)


def test_ranks_wait_for_each_other_once_a_round_only() -> None:
    """With a jitter the slowest of every step counts where each is exchanged; of a round of 16
    the rank that is slowest in sum, which is nearer to the mean."""
    varied = {"jitter": "10 %", "steps": 160}
    each, rarely = (
        predict(case_of({"local_step_clipper": n}, variability=varied).scenario).step_time_s
        for n in (1, 16)
    )
    assert each - EXCHANGE > 1.06
    assert 1.005 < rarely - EXCHANGE / 16 < 1.05


def test_a_rank_keeps_what_signs_and_local_steps_leave_out() -> None:
    case = case_of({})
    kept = case.scenario.strategy.memory(case.job(1))
    assert kept["error feedback"] == pytest.approx(4 * 80e6 * 1.25)
    assert kept["sum of local steps"] == pytest.approx(4 * 80e6)
