"""Start-up: its own line, of which only what is known is said, and never a part of a step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsim.cases.case import Case
from dpsim.compile.strategies.ddp import FIRST_MESSAGE
from dpsim.describe.scenario import load
from dpsim.predict.prediction import Prediction, predict
from dpsim.predict.startup import BROADCAST, broadcasts
from dpsim.report.sentences import sentences

MIB = 1024 * 1024
TOY: dict[str, Any] = {
    "model": {"layers": [{"name": "a", "parameters": 10 * MIB // 4, "forward": "4 ms",
                          "backward": "6 ms"}]},
    "cluster": {"ranks": 4},
    "collective": {"backend": "ideal", "latency": "1 ms", "bandwidth": "10 MiB/ms"},
    "strategy": {"kind": "ddp"},
    "training": {"samples": 400},
}  # fmt: skip


def of(**changes: Any) -> Prediction:
    return predict(load({**TOY, **changes}, Path(), "test"))


def test_parts_are_what_is_given_and_the_broadcast_by_hand() -> None:
    """10 MiB at 10 MiB/ms, and 1 ms of latency."""
    point = of(startup={"rendezvous": "3 s", "compile": "1 min"}).points[0]
    assert point["startup_parts"] == pytest.approx(
        {"rendezvous": 3.0, "compilation": 60.0, BROADCAST: 0.002}
    )
    assert point["startup_s"] == pytest.approx(63.002)


def test_no_step_and_no_training_time_holds_any_of_it() -> None:
    without, with_it = of().points[0], of(startup={"rendezvous": "1 h"}).points[0]
    assert replace(with_it, startup=None) == without


def test_unasked_nothing_is_said_and_one_rank_broadcasts_nothing() -> None:
    assert "startup_s" not in of().points[0]
    assert of(startup={}, cluster={"ranks": 1}).points[0]["startup_parts"] == {}


def test_what_is_not_known_of_other_strategies_is_told() -> None:
    made = of(startup={"process_groups": "2 s", "load": "5 s"}, strategy={"kind": "fsdp"})
    assert made.points[0]["startup_parts"] == {"process groups": 2.0, "loading": 5.0}
    assert any("known for ddp only, not for fsdp" in w for w in made.document["warnings"])
    lines = sentences(of(startup={"rendezvous": "3 s"}).answer)
    assert any("Before the first step" in line and "rendezvous 3 s" in line for line in lines)


@settings(max_examples=20)
@given(st.lists(st.integers(1, 100 * MIB), min_size=1, max_size=12))
def test_messages_are_cut_as_torch_cuts_them(sizes: list[int]) -> None:
    """torch's own bucket assignment, which `_broadcast_coalesced` uses."""
    layers = [{"name": f"l{i}", "parameters": n, "forward": "1 ms", "backward": "1 ms"}
              for i, n in enumerate(sizes)]  # fmt: skip
    case = Case(load({**TOY, "model": {"layers": layers}}, Path(), "t").points[0], Path())
    tensors = [torch.empty(n, device="meta") for n in sizes]
    buckets, _ = dist._compute_bucket_assignment_by_size(tensors, [FIRST_MESSAGE])
    assert broadcasts(case) == tuple(sum(4 * sizes[i] for i in bucket) for bucket in buckets)
    assert sum(broadcasts(case)) == 4 * sum(sizes)


def test_buffers_are_sent_too() -> None:
    case = Case(load({**TOY, "model": {"name": "resnet50"}, "collective": None,
                      "cluster": {"machine": "dgx-1v", "nodes": 1}}, Path(), "t").points[0],
                Path())  # fmt: skip
    counts = dict(case.model.buffers)
    assert sum(broadcasts(case)) == (
        4 * case.model.parameters + 4 * counts["fp32"] + 8 * counts["int64"]
    )
