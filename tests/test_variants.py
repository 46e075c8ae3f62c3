"""Variants of a case: what changes, and what is shared with the original."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dpsim.cases.case import Case
from dpsim.cases.chapters import Chapters
from dpsim.cases.variant import Variant, at_ranks, scaled, without_communication
from dpsim.describe.scenario import load
from dpsim.predict.player import step_time

DATA = {
    "model": {"name": "resnet50"},
    "cluster": {"machine": "dgx-1v", "nodes": 2},
    "strategy": {"kind": "ddp"},
    "batch": {"per_device": 8},
}


@pytest.fixture
def case() -> Case:
    return Case(load(DATA, Path(), "test").points[0], Path())


def shared(case: Case, other: Case) -> set[str]:
    """The chapters of `other` that are those of `case` themselves."""
    names = ("site", "work", "pace", "batches", "programs", "transport")
    return {name for name in names if getattr(case, name) is getattr(other, name)}


def test_another_batch_has_the_same_machine_model_and_plans(case: Case) -> None:
    batch = replace(case.scenario.batch, per_device=16)
    other = Variant("twice the batch", {"batch": batch}).of(case)
    assert (case.global_batch, other.global_batch) == (128, 256)
    assert shared(case, other) == {"site", "work", "pace", "transport"}


def test_free_communication_has_plans_of_its_own(case: Case) -> None:
    kept = {"site", "work", "pace", "batches"}
    assert shared(case, without_communication(case)) == kept


def test_other_ranks_have_routes_of_their_own(case: Case) -> None:
    assert shared(case, at_ranks(case, 4)) == {"work"}
    assert at_ranks(case, 16) is case


def test_levels_of_compute_differ_in_pace_alone(case: Case) -> None:
    other = scaled(case, 2.0)
    assert other.pace.seconds(8) == pytest.approx(2 * case.pace.seconds(8))
    assert shared(case, other) == {"site", "work", "transport"}


def test_a_variant_of_a_variant_keeps_what_both_change(case: Case) -> None:
    spared = Variant("2 spare nodes", spares=2).of(scaled(case, 2.0))
    assert (spared.compute_scale, spared.spares) == (2.0, 2)


def test_another_network_has_the_same_programs(case: Case) -> None:
    slower = replace(case.scenario.cluster, inter_node_bandwidth="1 Gbit/s")
    other = Variant("a slow network", {"cluster": slower}).of(case)
    assert shared(case, other) == {"work", "pace", "batches", "programs"}
    assert step_time(other) > step_time(case)


CHANGES = [
    {"batch": {"per_device": 4, "accumulation": 2}}, {"batch": {"global": 100}},
    {"strategy": {"kind": "ddp", "bucket_cap_mb": 3}}, {"strategy": {"kind": "fsdp"}},
    {"precision": {"compute": "fp16"}}, {"optimizer": {"kind": "adam"}}, {"recompute": "full"},
    {"compute": {"efficiency": 0.3}}, {"compute": {"spread": 0.1}}, {"host": {"launch": "9 us"}},
    {"parallel": {"pipeline": 2}}, {"variability": {"jitter": "3 %", "steps": 3}}, {"seed": 5},
    {"variability": {"slow_ranks": {3: 2.0}}}, {"iteration": 1},
    {"collective": {"backend": "free"}},
    {"model": {"name": "vgg16"}}, {"cluster": {"machine": "dgx-1v", "ranks": 5}},
    {"cluster": {"machine": "dgx-1v", "nodes": 2, "devices": {"0-3": "a100-sxm-40gb"}}},
]  # fmt: skip


def test_what_is_shared_changes_no_number() -> None:
    """Every change is played on what all the others left, and alone."""
    store = Chapters(3)
    for change in [*CHANGES, *reversed(CHANGES)]:
        point = load({**DATA, **change}, Path(), "test").points[0]
        assert step_time(Case(point, Path(), shared=store)) == step_time(Case(point, Path())), (
            change
        )


def test_what_is_not_here_is_asked_of_what_lies_beyond_and_made_once() -> None:
    made: list[str] = []

    def chapter(depends: str) -> list[str]:
        made.append(depends)
        return [depends]

    beyond = Chapters()
    one, other = Chapters(beyond=beyond), Chapters(beyond=beyond)
    assert one.known(chapter, "a") is other.known(chapter, "a") is beyond.known(chapter, "a")
    assert Chapters().known(chapter, "a") is not one.known(chapter, "a")
    assert made == ["a", "a"]


@pytest.mark.parametrize("wrapped", [False, True])
def test_what_is_equal_is_made_once_and_the_latest_are_kept(wrapped: bool) -> None:
    made: list[object] = []
    store = Chapters(2)

    def chapter(depends: object) -> object:
        made.append(depends)
        return depends

    def asked(number: int) -> object:
        """With something equal each time, but never the same."""
        return store.known(chapter, [f"{number}"] if wrapped else f"{number}")

    for number in (1, 2, 1, 2):
        assert asked(number) == ([f"{number}"] if wrapped else f"{number}")
    assert len(made) == 2
    for number in range(20):
        asked(number)
    assert asked(19) is made[-1]
    asked(0)
    assert made[-1] == made[2]
