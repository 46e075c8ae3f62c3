"""The machine files: complete, cited, connected; and the overrides of a machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from test_fabrics import check

from dpsim.collectives.ring_orders import rings
from dpsim.core import yamlfile
from dpsim.core.places import data_folder
from dpsim.core.record import Refused
from dpsim.describe.scenario import read
from dpsim.machines.devices import PEER_LINKS
from dpsim.machines.machine import device_names, load_device, load_machine, machine_names
from dpsim.predict.prediction import predict
from dpsim.report.machine_picture import draw_machine, make_figure

FILES = sorted(data_folder("topologies").rglob("*.yaml"))


def leaves(value: Any, path: str = "") -> Iterator[str]:
    """Paths of all numbers, with or without a unit."""
    if isinstance(value, dict):
        for key, item in value.items():
            if (path, key) not in (("", "sources"), ("", "name"), ("", "description")):
                yield from leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item, path)
    elif isinstance(value, (int, float)) or re.match(r"^[\d.]+ ", value):
        yield path


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_number_has_a_source(file: Path) -> None:
    data, _ = yamlfile.load(file, file.name)
    cited = data["sources"]
    paths = set(leaves(data))
    assert paths
    for path in paths:
        assert any(path == key or path.startswith(f"{key}.") for key in cited), path
    for key in cited:
        assert any(path == key or path.startswith(f"{key}.") for path in paths), key
    assert all(len(text) > 15 for text in cited.values())


@pytest.mark.parametrize("name", machine_names())
def test_machine_conforms(name: str) -> None:
    machine = load_machine(name)
    assert machine.name == name
    assert machine.sources["device.peak"]
    few = min(machine.gpus_per_node, 16)  # every pair of them is looked at
    check(machine.topology(3 if machine.network else 1, gpus_per_node=few))


def test_expected_machines_are_there() -> None:
    assert {"dgx-1v", "dgx-a100", "dgx-h100", "p3.16xlarge", "rack-10gbe"} <= set(machine_names())
    assert {"dgx-1p", "dgx-2", "gb200-nvl72", "mi300x-8", "polaris"} <= set(machine_names())


@pytest.mark.parametrize("name", device_names())
def test_device_loads(name: str) -> None:
    device = load_device(name)
    assert device.peak_for("fp32") > 1e12
    assert device.memory > 8e9


@pytest.mark.parametrize("name", device_names())
def test_tensor_cores_since_ampere_have_tf32_at_half_the_rate_of_16_bits(name: str) -> None:
    device = load_device(name)
    if device.compute_capability < 80:
        return
    assert device.peak_for("tf32") == pytest.approx(device.peak_for("fp16") / 2, rel=0.07)


@pytest.mark.parametrize(
    ("name", "cores", "megahertz"), [("k40", 2880, 745), ("k80-gk210", 2496, 560)]
)
def test_keplers_peaks_are_those_of_their_base_clocks(
    name: str, cores: int, megahertz: float
) -> None:
    device = load_device(name)
    assert device.peak_for("fp32") == pytest.approx(2 * cores * megahertz * 1e6, rel=0.01)
    assert device.peak_for("fp64") == pytest.approx(device.peak_for("fp32") / 3, rel=0.01)


def test_volta_states_no_bf16() -> None:
    with pytest.raises(ValueError, match="bf16"):
        load_device("v100-sxm2-16gb").peak_for("bf16")


@pytest.mark.parametrize("gpus", [1, 4, 8])
def test_racks_take_one_four_or_eight_gpus(gpus: int) -> None:
    check(load_machine("rack-25gbe").topology(3, gpus_per_node=gpus))


def test_overrides() -> None:
    machine = load_machine("dgx-h100")
    plain, changed = (
        machine.topology(64),
        machine.topology(
            64, inter_node_bandwidth=25e9, oversubscription=4.0, nics_per_node=4, gpus_per_node=4
        ),
    )
    assert plain.ranks == 512
    assert (changed.ranks, changed.nics) == (256, 4)
    assert changed.link((("nic", 0, 0), ("leaf", 0, 0))).bandwidth == 25e9
    assert changed.link((("leaf", 0, 0), ("spine", 0))).bandwidth == 32 * 25e9 / 4
    assert machine.topology(2, ranks=9).ranks == 9


@pytest.mark.parametrize(
    ("name", "nodes", "changes", "path"),
    [
        ("rack-10gbe", 2, {"oversubscription": 2.0}, "oversubscription"),
        ("two-rtx3090", 1, {"oversubscription": 2.0}, "oversubscription"),
        ("two-rtx3090", 1, {"inter_node_bandwidth": 1e9}, "inter_node_bandwidth"),
        ("two-rtx3090", 1, {"inter_node_kind": "roce"}, "inter_node_kind"),
        ("dgx-h100", 2, {"inter_node_kind": "copper"}, "inter_node_kind"),
        ("two-rtx3090", 1, {"inter_node_latency": 1e-6}, "inter_node_latency"),
        ("dgx-h100", 2, {"inter_node_bandwidth": 0.0}, "inter_node_bandwidth"),
        ("dgx-h100", 2, {"oversubscription": 0.5}, "oversubscription"),
        ("dgx-h100", 2, {"gpus_per_node": 0}, "gpus_per_node"),
        ("dgx-h100", 0, {}, "nodes"),
        ("two-rtx3090", 2, {}, "nodes"),
        ("dgx-h100", 2, {"ranks": 17}, "ranks"),
    ],
)
def test_overrides_that_do_not_fit(
    name: str, nodes: int, changes: dict[str, Any], path: str
) -> None:
    with pytest.raises(Refused) as caught:
        load_machine(name).topology(nodes, **changes)
    assert caught.value.path == ("cluster", path)


def test_the_kind_of_the_network_is_replaced_and_its_bandwidth_kept() -> None:
    machine = load_machine("dgx-h100")
    cable = (("nic", 0, 0), ("leaf", 0, 0))
    plain = machine.topology(64).link(cable)
    changed = machine.topology(64, inter_node_kind="roce")
    assert (plain.kind, changed.link(cable).kind) == ("infiniband", "roce")
    assert changed.link((("leaf", 0, 0), ("spine", 0))).kind == "roce"
    assert changed.link(cable).bandwidth == plain.bandwidth


def test_too_many_gpus_are_refused_by_the_graph() -> None:
    with pytest.raises(Refused) as caught:
        _ = load_machine("dgx-1v").topology(1, gpus_per_node=9).graph
    assert caught.value.path == ("cluster", "gpus_per_node")


def test_unknown_machine_names_the_nearest() -> None:
    with pytest.raises(Refused, match="dgx-h100"):
        load_machine("dgx-h10")


@pytest.mark.parametrize("name", machine_names())
def test_links_between_devices_are_those_that_the_device_has(name: str) -> None:
    machine = load_machine(name)
    sums: dict[tuple[Any, ...], float] = {}
    for gpu, _, link in machine.topology(1).graph.edges(data="link"):
        if link.kind in PEER_LINKS and gpu[0] == "gpu":
            sums[gpu] = sums.get(gpu, 0.0) + link.bandwidth
    most = machine.device.peer_bandwidth
    if name == "mi250x-8":  # one of a module's two has its NIC in the place of a seventh link
        assert sorted(set(sums.values())) == pytest.approx([6 / 7 * most, most])
        return
    assert all(sums[gpu] == pytest.approx(most) for gpu in sums)


def test_mi250x_has_room_for_two_rings_that_share_no_link() -> None:
    """As many as RCCL has (rome_model_73), each both ways; a third would need a link that one GCD
    of a module has not."""
    found = rings(load_machine("mi250x-8").topology(1), range(8))
    assert len({frozenset(map(frozenset, pairwise((*r.order, r.order[0])))) for r in found}) == 2
    assert [r.bandwidth for r in found] == [36e9] * 4


@pytest.mark.parametrize(
    ("name", "device", "gpus", "says"),
    [
        ("two-rtx3090", "rtx4090", 2, "RTX 4090 has none .*; take machine four-rtx4090"),
        ("dgx-h100", "b200", 8, "has 721.8 GB/s .*; take machine .*dgx-b200"),
        ("dgx-a100", "l40s", 8, "has none"),
        ("two-rtx3090", "rtx4090", 1, ""),
        ("two-rtx3090-pcie", "rtx4090", 2, ""),
        ("dgx-h100", "h200", 8, ""),
    ],
)
def test_another_device_does_not_inherit_links(
    name: str, device: str, gpus: int, says: str
) -> None:
    machine, other = load_machine(name), load_device(device)
    assert bool(machine.foreign_links(other, gpus)) == bool(says)
    if not says:
        assert machine.holding(other, gpus).device == other
        return
    with pytest.raises(Refused, match=says) as error:
        machine.holding(other, gpus)
    assert error.value.path == ("cluster", "device")


def test_own_file_with_a_shipped_device(tmp_path: Path) -> None:
    text = (data_folder("topologies") / "two-rtx3090.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text.replace("name: two-rtx3090", "name: mine"))
    assert load_machine("mine.yaml", tmp_path).name == "mine"
    (tmp_path / "bad.yaml").write_text(text.replace("48 GB/s", "48"))
    with pytest.raises(Refused, match=r"bad\.yaml:"):
        load_machine("bad.yaml", tmp_path)


@pytest.mark.parametrize("name", ["dgx-1v", "dgx-h100", "two-rtx3090"])
def test_picture(name: str, tmp_path: Path) -> None:
    machine = load_machine(name)
    nodes = 2 if machine.network else 1
    draw_machine(machine, nodes, tmp_path / "machine.png")
    assert (tmp_path / "machine.png").stat().st_size > 10_000
    (axes,) = make_figure(machine, nodes).axes
    said = {text.get_text().rpartition(" ")[0].rpartition(" ")[0] for text in axes.texts}
    graph = machine.topology(nodes).graph
    assert {d["link"].kind.replace("_", " ") for _, _, d in graph.edges(data=True)} <= said


def test_several_nodes_of_a_machine_without_a_network_are_refused_with_a_way_out() -> None:
    loaded = read("quickstart", ["cluster.machine=two-rtx3090"])
    answer = predict(loaded).answer
    (said,) = [text for text in answer.warnings if "no network" in text]
    assert said.startswith("4, 8, 16, 32 ranks: cluster.nodes: two-rtx3090 has no network")
    assert "cluster.device" in said
    counts = predict(read("two-3090", ["cluster.nodes=2"])).points
    assert [point.ranks for point in counts] == [4, 4, 2, 2, 2]


def test_a_machine_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for load in (load_machine, load_device):
        with pytest.raises(Refused, match=r"none\.yaml"):
            load("none.yaml", tmp_path)
