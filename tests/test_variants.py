"""Variants of a case: what changes, and what is shared with the original."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dpsim.cases.case import Case
from dpsim.cases.variant import Variant, at_ranks, scaled, without_communication
from dpsim.describe.scenario import load

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
    names = ("site", "work", "transport")
    return {name for name in names if getattr(case, name) is getattr(other, name)}


def test_another_batch_has_the_same_machine_model_and_plans(case: Case) -> None:
    batch = replace(case.scenario.batch, per_device=16)
    other = Variant("twice the batch", {"batch": batch}).of(case)
    assert (case.global_batch, other.global_batch) == (128, 256)
    assert shared(case, other) == {"site", "work", "transport"}


def test_free_communication_has_plans_of_its_own(case: Case) -> None:
    assert shared(case, without_communication(case)) == {"site", "work"}


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
