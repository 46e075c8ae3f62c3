"""`dpsim validate` on runs of TPUs: how many slices they are, what joins these, and which ranks
share the parameters."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from dpsim.accuracy.platforms import platform
from dpsim.accuracy.training.scenarios import MeasuredCase, measured_case
from dpsim.accuracy.training.series import play_series
from dpsim.accuracy.training.table import TrainingRow, read_table
from dpsim.cases.case import Case
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.predict.player import step_time

RUN: dict[str, Any] = {
    "model": "Llama-2-7B", "accelerator": "TPU v6e", "gpus_per_node": 4, "nodes": "",
    "total_gpus": 512, "framework": "MaxText (JAX)", "strategy": "FSDP", "strategy_detail": "",
    "precision": "BF16", "inter_node": "", "seq_len": 2048, "batch_per_gpu": 1, "dp": "",
    "tp": "", "shard": "", "notes": "", "value": 1.0, "unit": "s",
}  # fmt: skip
BETWEEN = "FSDP inside a slice, data parallel over DCN between slices"


def row_of(tmp_path: Path, **changes: Any) -> TrainingRow:
    row = RUN | changes
    with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([list(row), list(row.values())])
    return read_table(tmp_path / "t.csv").rows[0]


def point(tmp_path: Path, **changes: Any) -> MeasuredCase:
    return measured_case(row_of(tmp_path, **changes))


@pytest.mark.parametrize(
    ("told", "chips"),
    [
        ({"notes": "2 slices of 256"}, 256),
        ({"accelerator": "TPU v6e, 4 slices"}, 128),
        ({"inter_node": "DCN, 8 slices"}, 64),
        ({"notes": "two slices"}, 256),
        ({"notes": "2-slice run"}, 256),
        ({"notes": "4 v6e-128 slices"}, 128),
        ({"accelerator": "TPU v6e, 4x v6e-128"}, 128),
        ({"notes": "4 slices of 8x16"}, 128),
        ({"notes": "num_slices=8"}, 64),
        ({"strategy": BETWEEN, "dp": 2}, 256),
    ],
    ids=str,
)
def test_slices_are_nodes(tmp_path: Path, told: dict[str, Any], chips: int) -> None:
    found = point(tmp_path, **told)
    assert found.data["cluster"]["gpus_per_node"] == chips
    assert found.case.nodes == 512 // chips
    assert f"{512 // chips} slices of {chips} chips are taken." in found.notes


def test_the_rate_between_slices_is_told_as_an_assumption(tmp_path: Path) -> None:
    """100 Gbit/s for each chip of v6e (Cloud TPU documentation); with one slice nothing is said."""
    both = point(tmp_path, notes="2 slices", inter_node="DCN between slices")
    (told,) = [note for note in both.notes if "data centre's network" in note]
    assert "100 Gbit/s a chip" in told
    topology = both.case.topology
    assert topology is not None
    assert topology.nics == 256
    alone = point(tmp_path, total_gpus=256, notes="1 slices of 256")
    assert not any("data centre" in note for note in alone.notes)


@pytest.mark.parametrize(
    ("rate", "gbits"),
    [
        ("100 Gbit/s per chip", 100),
        ("DCN, 50 Gbit/s a chip", 50),
        ("100 Gbit/s per TPU", 100),
        ("100 Gbit/s per device", 100),
        ("400 Gbit/s per host", 100),  # of 4 chips
        ("4x 200 Gbit/s per host", 200),
    ],
)
@pytest.mark.parametrize("slices", [2, 8])
def test_a_rate_between_slices_is_that_of_every_chip(
    tmp_path: Path, rate: str, gbits: float, slices: int
) -> None:
    """Each chip of a slice has its own: neither all of a slice share one, nor has a small slice the
    NICs of a pod.  TPUs have no RDMA of GPUs', whatever the rate."""
    found = point(tmp_path, inter_node=rate, notes=f"{slices} slices")
    topology = found.case.topology
    assert topology is not None
    assert topology.nics == 512 // slices
    assert found.data["cluster"]["inter_node_bandwidth"] == f"{gbits} Gbit/s"
    assert found.data["cluster"]["inter_node_kind"] == "ethernet"


def test_a_rate_of_nobody_knows_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="whether its rate is a chip's or a host's; '100 Gbit/s per"):
        point(tmp_path, inter_node="DCN, 100 Gbit/s", notes="2 slices")
    alone = point(tmp_path, inter_node="DCN, 100 Gbit/s", total_gpus=256)
    assert alone.case.nodes == 1


def test_a_rate_that_nobody_published_is_not_told_as_google_s(tmp_path: Path) -> None:
    found = point(tmp_path, accelerator="TPU v4", notes="2 slices")
    (told,) = [note for note in found.notes if "data centre's network" in note]
    assert "25 Gbit/s a chip (assumption, not stated for v4" in told


@pytest.mark.parametrize("shape", ["16 x 16 slice", "16x16 slices", "TPU v6e, 256 slice"])
def test_the_shape_of_a_slice_counts_none(tmp_path: Path, shape: str) -> None:
    assert point(tmp_path, notes=shape).case.nodes == 2
    assert point(tmp_path, notes=shape, total_gpus=256).case.nodes == 1


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"accelerator": "TPU v6e, 2 slices", "notes": "4 slices"},
         "'2 slices' and '4 slices' contradict each other"),
        ({"notes": "2 slices of 32"}, "2 'slices of 32' are 64 chips, .* total_gpus 512"),
        ({"notes": "2 slices of 4x8"}, "2 'slices of 4x8' are 64 chips"),
        ({"notes": "0 slices"}, "'0 slices' is no count of slices; a whole number"),
        ({"accelerator": "TPU v6e, 2.5 slices"}, "'2.5 slices' is no count"),
        ({"notes": "num_slices=0"}, "'slices=0' is no count"),
        ({"notes": "9" * 5000 + " slices"}, "is no count of slices"),
        ({"accelerator": "TPU v6e, " + "9" * 5000 + " slices"}, "is no count of slices"),
        ({"notes": "slices=" + "9" * 5000}, "is no count of slices"),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_slices_that_cannot_be_are_refused(
    tmp_path: Path, told: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        point(tmp_path, **told)


def test_a_count_of_slices_may_be_told_twice(tmp_path: Path) -> None:
    found = point(tmp_path, accelerator="TPU v6e, 2 slices", notes="two slices of 16x16")
    assert found.case.nodes == 2


def test_several_slices_of_unknown_number_are_refused(tmp_path: Path) -> None:
    for told in ("Multislice", "multi-slice", "multiple slices"):
        with pytest.raises(Refused, match=f"'{told.lower()}' does not say how many; '2 slices'"):
            point(tmp_path, notes=told)
    assert point(tmp_path, notes="Multislice", strategy=BETWEEN, dp=2).case.nodes == 2


def test_more_chips_than_a_slice_has_are_the_fewest_slices() -> None:
    """Fewer chips that are no slice are none: nobody said that they are several."""
    found = platform(accelerator="TPU v5e", gpus_per_node=4, ranks=4096)
    assert found.cluster["gpus_per_node"] == 256
    assert "16 slices of 256 chips, the fewest, are taken." in found.notes
    few = platform(accelerator="TPU v6e", gpus_per_node=4, ranks=100)
    assert few.cluster["gpus_per_node"] == 100


def test_chips_that_make_no_equal_slices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="total_gpus: 512 chips do not make 3 equal slices"):
        point(tmp_path, notes="3 slices")
    with pytest.raises(Refused, match="no slice has 100 chips; there are slices of 1, 4, 8"):
        _ = point(tmp_path, total_gpus=100, batch_per_gpu=1).case.topology


def test_parameters_are_shared_inside_a_slice_and_held_by_every_one(tmp_path: Path) -> None:
    whole = point(tmp_path, notes="2 slices")
    assert "shard" not in whole.data["strategy"]
    inside = point(tmp_path, notes="2 slices", strategy=BETWEEN)
    assert inside.data["strategy"] == {"kind": "fsdp", "shard": 256}
    assert "parameters are shared by the 256 chips of a slice" in inside.notes
    older = point(tmp_path, notes="2 slices", strategy=BETWEEN, shard="FULL_SHARD inside a slice")
    assert older.data["strategy"]["sharding_strategy"] == "HYBRID_SHARD"


def test_a_slice_lies_along_the_axes_of_its_mesh(tmp_path: Path) -> None:
    """As MaxText's largest slices of v5p are made: 4x8x64, 8x16x32 and 8x16x48."""
    mesh = {"accelerator": "TPU v5p", "strategy": "DP+FSDP+TP", "tp": 8, "batch_per_gpu": 8}
    found = point(tmp_path, **mesh, total_gpus=2048, dp=256, shard="data 4 x fsdp 64")
    assert found.data["cluster"]["slice"] == [4, 64, 8]
    assert found.data["strategy"]["shard"] == 64
    others = point(tmp_path, **mesh, total_gpus=512, dp=64, shard="data 2 x fsdp 32")
    assert "slice" not in others.data["cluster"]


@pytest.mark.parametrize("accelerator", ["TPU v5p", "TPU v7x (Ironwood)"])
def test_a_slice_of_thousands_of_chips_is_played(tmp_path: Path, accelerator: str) -> None:
    for chips in (2048, 4096):
        found = point(tmp_path, accelerator=accelerator, total_gpus=chips)
        assert found.case.nodes == 1
        assert step_time(found.case) > 0.0


def test_tpus_have_no_fp16(tmp_path: Path) -> None:
    for text in ("", "FP16 mixed"):
        found = point(tmp_path, precision=text)
        assert found.data["precision"]["compute"] == "bf16"
        assert "bf16 is taken for fp16, which TPUs do not have" in found.notes
    assert not any("fp16" in note for note in point(tmp_path).notes)


@pytest.mark.parametrize("gbits", [0.1, 0.2, 100])
def test_a_second_slice_is_predicted_from_the_first(tmp_path: Path, gbits: float) -> None:
    """A chip exchanges its part of the gradients with its like in the other slice: two passes of
    half of it, in bf16, take so long over the data centre's network.  The step is no shorter than
    that, nor longer than if nothing were hidden; each message takes some microseconds, too."""
    first = row_of(tmp_path, total_gpus=256, notes="1 slices of 256")
    second = row_of(
        tmp_path, notes="2 slices of 256", strategy=BETWEEN, inter_node=f"{gbits} Gbit/s per chip"
    )
    one, other = play_series([first, second])
    assert (one.status, other.status) == ("calibrated", "predicted")
    across = measured_case(second).case.model.parameters / 256 * 2 / (gbits / 8 * 1e9)
    assert other.predicted is not None
    assert max(1.0, across) <= other.predicted <= 1.0 + 1.1 * across + 0.005
    assert "2 slices of 256 chips" in other.machine


# -- slices of a scenario -------------------------------------------------------------------------

SLICE: dict[str, Any] = {
    "cluster": {"machine": "tpu-v5p", "gpus_per_node": 256, "ranks": 256},
    "model": {"name": "transformer", "family": "llama", "hidden": 1024, "blocks": 2, "heads": 8,
              "sequence_length": 128},
    "strategy": {"kind": "fsdp"},
    "collective": {"backend": "ici"},
}  # fmt: skip


def scenario_of(**cluster: Any) -> Case:
    data = SLICE | {"cluster": SLICE["cluster"] | cluster}
    return Case(load(data, Path(), "s.yaml").scenario, Path())


def test_the_shape_of_a_slice_says_how_long_its_exchanges_take() -> None:
    """A cube has more links across than a slice that is long and thin."""
    usual, cube, thin = (
        step_time(scenario_of(**shape))
        for shape in ({}, {"slice": [4, 8, 8]}, {"slice": [4, 4, 16]})
    )
    assert usual == pytest.approx(cube, rel=1e-9)
    assert thin > 1.01 * cube


def test_a_slice_has_the_chips_that_gpus_per_node_says() -> None:
    with pytest.raises(Refused, match="slices of TPUs, and has 128 chips, which gpus_per_node has"):
        scenario_of(slice=[4, 4, 8])


@pytest.mark.parametrize(
    "cluster",
    [
        {"machine": "dgx-h100", "gpus_per_node": 8, "ranks": 8, "slice": [2, 2, 2]},
        {"machine": "dgx-h100", "gpus_per_node": None, "ranks": 8, "slice": [2, 2, 2]},
        {"machine": None, "gpus_per_node": None, "ranks": 8, "slice": [2, 2, 2]},
        {"slice": []},
    ],
    ids=str,
)
def test_a_shape_that_is_none_of_a_slice_is_told_to_be_for_slices(cluster: dict[str, Any]) -> None:
    given = {k: v for k, v in (SLICE["cluster"] | cluster).items() if v is not None}
    with pytest.raises(Refused, match=r"cluster\.slice: is for slices of TPUs"):
        _ = Case(load(SLICE | {"cluster": given}, Path(), "s.yaml").scenario, Path()).topology
