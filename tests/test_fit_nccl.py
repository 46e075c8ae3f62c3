"""The program that fits NCCL's constants finds those of made-up all-to-alls, and only those."""

from __future__ import annotations

import csv
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "validation"))

import fit_nccl

from dpsim.accuracy.collectives.table import read_collectives
from dpsim.accuracy.scores import fitted_on
from dpsim.backends import _nccl_messages as messages
from dpsim.backends._nccl_time import Constants, shipped
from dpsim.core import constants
from dpsim.machines.machine import load_machine

EVEN = [name for name in map(str, range(100)) if fitted_on(name)]
TRUE = {
    "nvswitch.message_floor": 14e-6,
    "nvswitch.message": 0.8e-6,
    "nvswitch.message_efficiency": 0.7,
    "nvswitch.message_handshake": 3e-6,
    "nvswitch.message_copy": 5e11,
}
HEAD = (
    "series_id", "accelerator", "gpus_per_node", "nodes", "ranks", "fabric", "interconnect_stated",
    "library", "collective", "size_bytes", "time_us",
)  # fmt: skip


def table(folder: Path, true: Mapping[str, float]) -> Path:
    """All-to-alls in a node of 2, 4 and 8 A100 as `true` has them, in series that are fitted on."""
    known = Constants({**shipped().values, **true})
    path = folder / "table.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEAD)
        for name, gpus in zip(EVEN, (2, 4, 8), strict=False):
            topology = load_machine("dgx-a100").topology(1, gpus_per_node=gpus)
            found = messages.messages_of("all_to_all", tuple(range(gpus)), topology)
            for size in (2.0**k for k in range(9, 32)):
                time = messages.predicted(known, found, size, 1)
                seconds = time.floor + time.latency + time.transfer
                writer.writerow(
                    [name, "NVIDIA A100-SXM4-80GB", gpus, 1, gpus, "nvlink_nvswitch", "",
                     "NCCL 2.27.3", "alltoall", int(size), seconds * 1e6]
                )  # fmt: skip
    return path


def test_constants_of_messages_are_found_again(tmp_path: Path) -> None:
    """But for what the priors hold back: the rows of a machine count as a dozen each way."""
    samples, refused = fit_nccl.samples_of(read_collectives(table(tmp_path, TRUE)).rows)
    assert not refused
    others = {
        name: c.value for name, c in constants.shipped("nccl").items() if ".message" not in name
    }
    found = fit_nccl.fit_messages(samples, others)
    for name in ("nvswitch.message_floor", "nvswitch.message_efficiency"):
        assert found[name] == pytest.approx(TRUE[name], rel=0.15), name
    for name in ("nvswitch.message", "nvswitch.message_handshake", "nvswitch.message_copy"):
        ends = sorted((TRUE[name], fit_nccl.PRIORS[name.removeprefix("nvswitch.")].centre))
        assert ends[0] < found[name] < ends[1], "few rows tell: between the prior and the truth"
    assert np.median(abs(fit_nccl.residuals(samples, found))) < 0.05
    assert abs(fit_nccl.residuals(samples, dict(shipped().values))).max() > 0.3
    assert {name: found[name] for name in others} == others


def test_fitting_messages_alone_leaves_all_others_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "nccl.yaml"
    shutil.copy(constants.folder() / "nccl.yaml", file)
    before = constants.load(file)
    arguments = [str(table(tmp_path, TRUE)), "-o", str(file), "--only", "messages"]
    assert fit_nccl.main([*arguments, "--bootstrap", "2"]) == 0
    after = constants.load(file)
    assert list(after) == list(before)
    for name, constant in after.items():
        if ".message" not in name:
            assert constant == before[name]
    assert after["nvswitch.message_floor"].value == pytest.approx(14e-6, rel=0.2)
    assert "all-to-alls on nvswitch" in after["nvswitch.message_floor"].fitted_on
    assert after["pcie.message"].n == 0, "no row moves it"
    text = file.read_text()
    assert fit_nccl.main([*arguments, "--bootstrap", "2"]) == 0
    assert file.read_text() == text


def test_a_share_that_a_narrow_prior_holds_is_no_surer_than_the_prior() -> None:
    known = constants.shipped("nccl")
    for kind, (_, sigma) in fit_nccl.SHARES.items():
        if sigma < fit_nccl.PRIORS["efficiency"].sigma:
            told = known[f"{kind}.efficiency"]
            assert told.error >= 0.98 * sigma * told.value, "0.98: of two digits"


def test_what_is_left_without_gpudirect_rests_on_machines_without_it() -> None:
    told = constants.shipped("nccl")["infiniband.hosted"]
    assert (told.n, told.fitted_on[-13:]) == (11, "of 2 machines")
    told = constants.shipped("nccl")["efa.hosted"]
    assert (told.n, told.fitted_on[-13:]) == (186, "of 3 machines")


def test_a_kind_is_thought_to_be_what_its_relatives_are() -> None:
    """The geometric mean of the prior and of those that were measured: 1, 6 and 3 of latencies."""
    alone = fit_nccl.start() | {"gvnic.step_ll": 6.0, "slingshot_ip.step_ll": 3.0}
    found = fit_nccl.family_prior("ethernet", "step_ll", alone)
    assert found.centre == pytest.approx(18.0 ** (1 / 3))
    assert found.sigma == fit_nccl.PRIORS["step_ll"].sigma
    own = fit_nccl.family_prior("gvnic", "step_ll", alone)
    assert own.centre == pytest.approx(3.0**0.5), "not by what itself was measured to be"
    for kind, name in (("infiniband", "step_ll"), ("ethernet", "floor"), ("efa", "step_ll")):
        known = fit_nccl.known_prior(kind, name)
        assert fit_nccl.family_prior(kind, name, alone | {f"{kind}.{name}": 7.0}) == known
    assert fit_nccl.relatives("ethernet", "step_simple", alone) == {}, "nobody moved it"


def test_sockets_that_nobody_measured_are_slower_than_nccls_table() -> None:
    """It has an InfiniBand hop for them all; both that were measured take longer."""
    known = constants.shipped("nccl")
    for name in ("step_ll", "step_simple"):
        for kind in ("ethernet", "ipoib"):
            assert known[f"{kind}.{name}"].value > 1.4 * fit_nccl.PRIORS[name].centre
            assert "gvnic and slingshot_ip" in known[f"{kind}.{name}"].fitted_on


def test_a_kind_that_nobody_measured_tells_its_relatives_nothing() -> None:
    """Nor in a draw that begins with what was found: without rows all is at its prior again."""
    found = fit_nccl.start() | {"ethernet.step_ll": 2.8, "gvnic.step_ll": 6.0}
    drawn, alone = fit_nccl.fit_all([], found | fit_nccl.start(), fit_nccl.KINDS)
    assert alone == fit_nccl.start() | {name: alone[name] for name in alone if "omni_path" in name}
    assert drawn["ethernet.step_ll"] == fit_nccl.PRIORS["step_ll"].centre


def test_every_kind_has_constants_of_messages() -> None:
    known = constants.shipped("nccl")
    for kind in (*fit_nccl.INSIDE, *fit_nccl.OUTSIDE):
        for name in fit_nccl.message_names_of(kind):
            assert known[f"{kind}.{name}"].value > 0
    assert fitted_on(EVEN[0])


ROW = {
    "series_id": "a", "accelerator": "NVIDIA A100-SXM4-40GB", "gpus_per_node": 8, "nodes": 2,
    "ranks": 16, "fabric": "ib", "interconnect_stated": "", "library": "NCCL 2.27.3",
    "collective": "all_reduce", "size_bytes": 2**20, "time_us": 100.0,
}  # fmt: skip


def samples(folder: Path, **cells: object) -> tuple[list[fit_nccl.Fitted], dict[str, int]]:
    """Of a table with one row."""
    row = {**ROW, **cells}
    path = folder / "row.csv"
    path.write_text("\n".join(",".join(map(str, line)) for line in (row, row.values())) + "\n")
    return fit_nccl.samples_of(read_collectives(path).rows)


def test_a_machine_is_read_by_its_name_too_as_predictions_read_it(tmp_path: Path) -> None:
    """A DGX A100 has eight NICs, ABCI's node has four."""
    ((usual,), _), ((abci,), _) = (
        samples(tmp_path, **cells) for cells in ({}, {"machine": "ABCI Compute Node (A)"})
    )
    assert isinstance(usual, fit_nccl.Sample)
    assert isinstance(abci, fit_nccl.Sample)
    assert (usual.tuning.graph.nics, abci.tuning.graph.nics) == (8, 4)


def test_rows_of_machines_that_nobody_knows_are_not_fitted(tmp_path: Path) -> None:
    found, refused = samples(tmp_path, accelerator="not stated", fabric="roce")
    assert found == []
    assert list(refused.values()) == [1]
