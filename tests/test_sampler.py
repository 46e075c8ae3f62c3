"""Epochs as DistributedSampler and DataLoader deal them, and what is accumulated last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler
from torch.utils.data.distributed import DistributedSampler

from dpsim.core.record import Refused
from dpsim.describe.sampler import Sampler, epoch_of
from dpsim.describe.scenario import load
from dpsim.predict.prediction import predict
from dpsim.report.sentences import sentences

#: 10 ms a sample, an optimizer that takes none, collectives of 1 ms
TOY: dict[str, Any] = {
    "model": {"layers": [{"name": "a", "parameters": 1000, "forward": "4 ms",
                          "backward": "6 ms"}]},
    "cluster": {"ranks": 4},
    "collective": {"backend": "ideal", "latency": "1 ms"},
    "strategy": {"kind": "ddp"},
    "optimizer": {"kind": "none"},
}  # fmt: skip


def point_of(sampler: dict[str, Any], epochs: float = 1, length: int = 10, **changes: Any) -> Any:
    training = {"epochs": epochs, "samples_per_epoch": length, "sampler": sampler}
    data = {**TOY, "training": training, **changes}
    return predict(load(data, Path(), "test")).points[0]


# -- who gets which samples -----------------------------------------------------------------------


def test_ten_samples_on_four_ranks_become_twelve_or_eight() -> None:
    padded, cut = (epoch_of(10, 4, 1, 1, Sampler(drop_last=drop)) for drop in (False, True))
    assert (padded.samples, padded.samples_per_rank, padded.repeated, padded.dropped) == (
        12,
        3,
        2,
        0,
    )
    assert (cut.samples, cut.samples_per_rank, cut.repeated, cut.dropped) == (8, 2, 0, 2)


Small = st.integers(1, 60)


@given(st.integers(1, 400), st.integers(1, 12), st.integers(1, 20), st.booleans(), st.booleans())
def test_samples_and_batches_are_those_of_torch(
    length: int, ranks: int, batch: int, drop: bool, loader_drop: bool
) -> None:
    """The real sampler of every rank, cut by the real batch sampler."""
    dealt, batches = [], []
    for rank in range(ranks):
        sampler: Any = DistributedSampler(
            range(length),  # type: ignore[arg-type]
            num_replicas=ranks, rank=rank, shuffle=False, drop_last=drop,
        )  # fmt: skip
        try:
            dealt.append(list(sampler))
        except AssertionError:  # torch's own check of fewer samples than ranks, with drop_last
            dealt.append([])
        batches.append(list(BatchSampler(dealt[-1], batch, drop_last=loader_drop)))
    knobs = Sampler(drop_last=drop, loader_drop_last=loader_drop)
    if not batches[0]:
        with pytest.raises(Refused, match="without a batch"):
            epoch_of(length, ranks, batch, 1, knobs)
        return
    found = epoch_of(length, ranks, batch, 1, knobs)
    for mine in batches:
        assert len(mine) == found.micro_batches == found.steps
        assert len(mine[-1]) == found.last_micro_batch
        assert sum(map(len, mine)) == found.samples_per_rank
    assert found.samples == sum(len(one) for mine in batches for one in mine)
    everything = [index for mine in dealt for index in mine]
    assert found.repeated == len(everything) - len(set(everything))


@given(st.integers(1, 400), Small, Small, st.integers(1, 9), st.booleans())
def test_every_sample_is_trained_repeated_or_dropped(
    length: int, ranks: int, batch: int, accumulation: int, drop: bool
) -> None:
    try:
        found = epoch_of(length, ranks, batch, accumulation, Sampler(loader_drop_last=drop))
    except Refused:
        return
    assert (
        found.samples == found.samples_per_rank * ranks == length + found.repeated - found.dropped
    )
    assert (found.micro_batches - 1) * batch + found.last_micro_batch == found.samples_per_rank
    assert (found.steps - 1) * accumulation + found.last_micro_batches == found.micro_batches


def test_uneven_inputs_are_neither_padded_nor_dropped() -> None:
    found = epoch_of(10, 4, 1, 1, Sampler(uneven=True))
    assert (found.samples, found.samples_per_rank, found.steps) == (10, 3, 3)


# -- partial accumulation -------------------------------------------------------------------------


def test_an_epoch_that_ends_inside_an_accumulation_steps_or_carries_over() -> None:
    """7 micro-batches by 3: two full steps and one of a single micro-batch, or two and a rest."""
    step = epoch_of(28, 4, 1, 3, Sampler())
    carry = epoch_of(28, 4, 1, 3, Sampler(last_accumulation="carry"))
    assert (step.micro_batches, step.steps, step.last_micro_batches) == (7, 3, 1)
    assert (carry.micro_batches, carry.steps) == (7, 2)


@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 6))
def test_carried_over_no_micro_batch_is_lost_but_those_of_the_last_epoch(
    per_rank: int, accumulation: int, epochs: int
) -> None:
    """A loop that counts on, by hand."""
    sampler = {"last_accumulation": "carry"}
    batch = {"per_device": 1, "accumulation": accumulation}
    steps = sum(
        1 for n in range(1, epochs * per_rank + 1) if n % accumulation == 0
    )  # fmt: skip
    if steps == 0:
        with pytest.raises(Refused, match="do not fill one accumulation"):
            point_of(sampler, epochs, 4 * per_rank, batch=batch)
        return
    assert point_of(sampler, epochs, 4 * per_rank, batch=batch)["steps"] == steps


# -- how long it takes ----------------------------------------------------------------------------


def test_an_epoch_of_even_batches_is_so_many_steps() -> None:
    """10 samples are padded to 12: 3 steps of 10 ms and an all-reduce of 1 ms, in two epochs."""
    point = point_of({}, 2)
    assert point["steps"] == 6
    assert point["samples"] == 24
    assert point["time_to_train_s"] == pytest.approx(6 * 0.011)
    assert point["epoch"] == {
        "steps": 3, "samples": 12, "samples_per_rank": 3, "repeated": 2, "dropped": 0,
        "micro_batches": 3, "last_micro_batch": 1, "last_micro_batches": 1,
    }  # fmt: skip


def test_the_tail_of_an_epoch_is_a_shorter_step() -> None:
    """3 samples a rank by 2: 21 ms, then 11 ms; without the tail 21 ms only."""
    batch = {"per_device": 2}
    assert point_of({}, batch=batch)["time_to_train_s"] == pytest.approx(0.021 + 0.011)
    cut = point_of({"loader_drop_last": True}, batch=batch)
    assert cut["time_to_train_s"] == pytest.approx(0.021)
    assert (cut["epoch"]["samples"], cut["epoch"]["dropped"]) == (8, 4)


def test_the_last_accumulation_of_an_epoch_takes_its_own_micro_batches() -> None:
    """22 samples are padded to 24: 6 of each rank, by 4 and 2.  By 3 micro-batches: one step of
    4 and a tail of 2 samples: 4 x 10 ms + 2 x 10 ms and one all-reduce."""
    batch = {"per_device": 4, "accumulation": 3}
    point = point_of({}, 5, 22, batch=batch)
    assert point["steps"] == 5
    assert point["time_to_train_s"] == pytest.approx(5 * 0.061)
    # 14 of each rank by 4, 4, 4 and 2: a full step, and one of the tail
    point = point_of({}, 5, 56, batch=batch)
    assert point["steps"] == 10
    assert point["time_to_train_s"] == pytest.approx(5 * (0.121 + 0.021))


def test_carried_over_every_epoch_has_its_short_micro_batch() -> None:
    """2 epochs of micro-batches of 4 and 2 samples, by 2: 2 steps of 60 ms and an all-reduce."""
    point = point_of({"last_accumulation": "carry"}, 2, 24,
                     batch={"per_device": 4, "accumulation": 2})  # fmt: skip
    assert point["time_to_train_s"] == pytest.approx(2 * 0.061)


def test_the_interval_of_training_is_that_of_the_step() -> None:
    data = {"model": {"name": "resnet50"}, "cluster": {"machine": "dgx-1v", "nodes": 1},
            "strategy": {"kind": "ddp"}, "batch": {"per_device": 32}, "collective": None,
            "optimizer": {"kind": "sgd"}}  # fmt: skip
    point = point_of({}, 1, 5000, **data)
    assert point["epoch"]["last_micro_batch"] == 625 - 19 * 32
    for end in ("low", "high"):
        assert point[f"time_to_train_{end}_s"] / point["time_to_train_s"] == pytest.approx(
            point[f"step_time_{end}_s"] / point["step_time_s"]
        )
    assert 19 < point["time_to_train_s"] / point["step_time_s"] < 20


def test_the_text_says_what_an_epoch_is() -> None:
    training = {"epochs": 2, "samples_per_epoch": 10, "sampler": {}}
    made = predict(load({**TOY, "training": training}, Path(), "test"))
    lines = sentences(made.answer)
    assert any("12 samples" in line and "2 of them twice" in line for line in lines)


@pytest.mark.parametrize(
    ("sampler", "changes", "words"),
    [
        ({"uneven": True}, {}, "waiting for ever"),
        ({"uneven": True, "drop_last": True}, {}, "nothing is dropped"),
        ({}, {"epochs": 1.5}, "whole number"),
        ({}, {"batch": {"global": 10}}, "batches differ"),
        ({"drop_last": True}, {"length": 3}, "without a batch"),
        ({"loader_drop_last": True}, {"batch": {"per_device": 4}}, "without a batch"),
    ],
)  # fmt: skip
def test_what_no_rank_could_train_is_refused(
    sampler: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(Refused, match=words):
        point_of(sampler, **changes)


def test_uneven_inputs_are_trained_inside_join() -> None:
    point = point_of({"uneven": True}, strategy={"kind": "ddp", "join": True})
    assert (point["steps"], point["samples"]) == (3, 10)
