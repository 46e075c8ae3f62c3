"""`dpsim import`: what topology files say, what they don't, and which machine comes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dpsim.cli.app import app
from dpsim.core.deferred import nx
from dpsim.core.record import Refused
from dpsim.core.yamlfile import dump_yaml, loads
from dpsim.machines.exchange import machine_graph, write_graph
from dpsim.machines.machine import load_machine
from dpsim.measurements.importing import (
    import_machine,
    name_for,
    nccl_xml,
    nvidia_smi,
    read,
    text_of,
)
from dpsim.measurements.importing.combine import Imported
from dpsim.measurements.importing.facts import Facts
from dpsim.measurements.importing.pci_ids import DEVICES
from dpsim.measurements.kinds import Wishes, account_of

DATA = Path(__file__).parent / "data" / "topology"
CPU = 'arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143"'
GEN5 = 'link_speed="32.0 GT/s PCIe" link_width="16"'


def sample(name: str) -> Facts:
    return read(DATA / name)


def write(folder: Path, text: str, name: str = "topo.xml") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def machine(*names: str, **options: Any) -> dict[str, Any]:
    return import_machine([DATA / name for name in names], **options).document


def gpu(number: int, links: str = "", sm: int = 90, pcie: str = GEN5) -> str:
    return (
        f'<pci busid="0000:{number:02x}:00.0" class="0x030200" {pcie}>'
        f'<gpu dev="{number}" sm="{sm}" rank="{number}" gdr="1">{links}</gpu></pci>'
    )


def nic(number: int, speed: int = 400000, kind: str = "0x020700") -> str:
    return (
        f'<pci busid="0000:{0x80 + number:02x}:00.0" class="{kind}" {GEN5}><nic>'
        f'<net name="mlx5_{number}" dev="{number}" speed="{speed}" port="1" gdr="1"/></nic></pci>'
    )


def system(*inside: str) -> str:
    cpus = "".join(f'<cpu numaid="{i}" {CPU}>{text}</cpu>' for i, text in enumerate(inside))
    return f'<system version="1">{cpus}</system>'


def to(bus: int, count: int) -> str:
    return f'<nvlink target="0000:{bus:02x}:00.0" count="{count}" tclass="0x030200"/>'


def star(count: int = 18) -> str:
    return f'<nvlink target="fffffff:ff:ff.0" count="{count}" tclass="0x068000"/>'


def test_a_device_is_as_fast_as_the_narrowest_bridge_above_it(tmp_path: Path) -> None:
    narrow = (
        '<pci busid="0000:60:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">'
        '<pci busid="0000:61:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="4">'
        f"{gpu(0)}</pci></pci>"
    )
    slow, fast = read(write(tmp_path, system(narrow + gpu(1)))).places
    assert slow.bandwidth is not None
    assert fast.bandwidth is not None
    assert slow.bandwidth == pytest.approx(fast.bandwidth / 4)


# --- what each sample says -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "gpus", "nics", "switches", "nodes"),
    [
        ("azure-ndv5-topo.xml", 8, 8, 8, 2),
        ("azure-ndv5-topo-superbench-variant.xml", 8, 8, 8, 2),
        ("azure-ndv4-topo.xml", 8, 8, 4, 4),
        ("azure-ndv2-topo.xml", 8, 1, 0, 2),
        ("azure-ncv4-topo.xml", 4, 1, 0, 4),
        ("aws-p4d-24xl-topo.xml", 8, 4, 4, 2),
        ("aws-p4de-24xl-topo.xml", 8, 4, 4, 2),
        ("oci-8gpu-8nic-topo.xml", 8, 8, 4, 4),
        ("dump-rtx3090-8gpu-1nic.xml", 8, 1, 2, 2),
        ("dump-b200-8gpu-13nic-vm.xml", 8, 8, 0, 2),
        ("rccl-dump-mi100-rome-8gpu.xml", 8, 1, 8, 6),
        ("rccl-dump-mi300x-8gpu-8nic.xml", 8, 8, 8, 2),
    ],
)
def test_a_topology_counts_gpus_nics_switches_and_numa_nodes(
    name: str, gpus: int, nics: int, switches: int, nodes: int
) -> None:
    facts = sample(name)
    assert facts.places is not None
    assert facts.nics is not None
    assert (facts.gpus, len(facts.nics), len(facts.uplinks)) == (gpus, nics, switches)
    assert len({place.socket for place in facts.places}) == nodes


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [("azure-ndv5-topo.xml", 48), ("azure-ndv4-topo.xml", 24), ("aws-p4d-24xl-topo.xml", 12)],
)
def test_pcie_bandwidth_is_width_times_lane_speed(name: str, gigabytes: float) -> None:
    places = sample(name).places
    assert places is not None
    assert {place.bandwidth for place in places} == {gigabytes * 1e9}


def test_both_distributions_of_one_machine_say_the_same() -> None:
    one, other = sample("azure-ndv5-topo.xml"), sample("azure-ndv5-topo-superbench-variant.xml")
    assert (one.places, one.nics, one.uplinks) == (other.places, other.nics, other.uplinks)


def test_cloud_files_list_neither_nvlinks_nor_speeds_of_nics() -> None:
    facts = sample("azure-ndv5-topo.xml")
    assert facts.wires is None
    assert facts.compute is None
    assert {nic.speed for nic in facts.nics or ()} == {None}
    assert {nic.kind for nic in facts.nics or ()} == {"infiniband"}


def test_gpus_are_numbered_by_pci_address_not_by_their_place_in_the_file() -> None:
    places = sample("azure-ndv4-topo.xml").places  # the file starts with 0003 and 0004
    assert places is not None
    assert [place.socket for place in places] == [1, 1, 0, 0, 3, 3, 2, 2]


@pytest.mark.parametrize("name", ["aws-p5.48xlarge-topo.xml", "aws-g5.48xl-topo.xml"])
def test_devices_without_class_are_neither_gpus_nor_nics(name: str) -> None:
    facts = sample(name)
    count = 32 if "p5" in name else 9
    assert (facts.gpus, facts.nics) == (None, None)
    assert any(f"{count} PCI devices without class" in note for note in facts.notes)
    with pytest.raises(Refused, match=r"gpus_per_node .*nics_per_node"):
        machine(name, device="h100-sxm")


def test_a_dump_tells_links_to_the_switch_and_counts_the_fastest_nics() -> None:
    facts = sample("dump-b200-8gpu-13nic-vm.xml")
    assert facts.wires is not None
    assert facts.wires.to_switch == (18,) * 8
    assert facts.compute == 100
    assert [nic.name for nic in facts.nics or ()] == [f"mlx5_{i}" for i in range(5, 13)]
    assert {(nic.speed, nic.gpudirect) for nic in facts.nics or ()} == {(50e9, True)}
    assert [nic.port for nic in facts.nics or ()] == [1, 2, 3, 4] * 2
    assert any("mlx5_0, mlx5_1, mlx5_2, mlx5_3, mlx5_4" in note for note in facts.notes)


def test_links_that_lead_back_to_their_gpu_are_no_links() -> None:
    facts = sample("azure-ncv4-topo.xml")
    assert (facts.compute, facts.wires) == (80, None)
    assert {place.bandwidth for place in facts.places or ()} == {None}
    assert [(n.name, n.speed, n.kind, n.gpudirect) for n in facts.nics or ()] == [
        ("eth0", 12.5e9, "ethernet", False)
    ]


def test_xgmi_joins_some_or_all_gpus() -> None:
    whole, halves = (sample(f"rccl-dump-{name}.xml").wires
                     for name in ("mi300x-8gpu-8nic", "mi100-rome-8gpu"))  # fmt: skip
    assert whole is not None
    assert halves is not None
    assert (whole.kind, len(whole.pairs)) == ("xgmi", 28)
    assert sorted(sum(gpu in pair for pair in halves.pairs) for gpu in range(8)) == [3] * 8


def test_a_graph_file_is_no_topology() -> None:
    with pytest.raises(Refused, match=r"graph XML .*not a topology"):
        sample("azure-ncv4-graph.xml")


def test_a_matrix_with_escape_sequences() -> None:
    facts = sample("h200-8gpu-8nic-ansi-escapes.txt")
    assert facts.wires is not None
    assert set(facts.wires.pairs.values()) == {18}
    assert len(facts.wires.pairs) == 28
    assert [nic.name for nic in facts.nics or ()][::7] == ["rocep145s0", "rocep206s0"]
    assert {nic.kind for nic in facts.nics or ()} == {"roce"}
    assert [place.socket for place in facts.places or ()] == [0, 0, 0, 0, 4, 4, 4, 4]
    assert len(facts.uplinks) == 4  # two GPUs and two NICs on each


def test_matrices_without_nvlink_tell_sockets() -> None:
    facts = sample("asus-esc8000a-4gpu-pcie-2socket.txt")
    assert facts.wires is not None
    assert not facts.wires.pairs
    assert [place.socket for place in facts.places or ()] == [0, 0, 2, 2]
    assert [nic.name for nic in facts.nics or ()] == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]
    assert len({place.socket for place in sample("puget-wrx90-2gpu-pcie.txt").places or ()}) == 1


@pytest.mark.parametrize(
    "name", ["v100-sxm2-8gpu-dgx1-style.txt", "v100-sxm2-8gpu-no-affinity-blank-lines.txt"]
)
def test_each_v100_of_a_cube_has_six_nvlinks(name: str) -> None:
    wires = sample(name).wires
    assert wires is not None
    for own in range(8):
        assert sum(count for pair, count in wires.pairs.items() if own in pair) == 6


def test_where_nvlinks_hide_pcie_nothing_is_said_about_places() -> None:
    facts = sample("v100-sxm2-8gpu-no-affinity-blank-lines.txt")
    assert facts.places is None


MISSING_NUMA = (
    "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tSYS\t0-7,16-23\t\tN/A\t\tN/A\n"
    "GPU1\tSYS\t X \t8-15,24-31\t1\t\tN/A\n"
)
CONTAINER = """\
        GPU0    GPU1    NIC0    NIC1    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV12    SYS     PXB                             N/A
GPU1    NV12     X      SYS     PXB                             N/A
NIC0    SYS     SYS      X      SYS
NIC1    PXB     PXB     SYS      X
"""


def test_empty_affinity_cells_shift_nothing(tmp_path: Path) -> None:
    facts = read(write(tmp_path, MISSING_NUMA, "smi.txt"))
    assert [place.socket for place in facts.places or ()] == [0, 1]
    facts = read(write(tmp_path, CONTAINER, "smi.txt"))
    assert facts.wires is not None
    assert facts.wires.pairs == {(0, 1): 12}
    first, second = facts.places or ()
    assert first == second  # both below the switch of NIC1
    assert (facts.nics or ())[1].place == first


def test_equal_cpu_lists_are_one_socket_although_every_pair_is_sys(tmp_path: Path) -> None:
    rows = ["\t" + "\t".join(f"GPU{i}" for i in range(4)) + "\tCPU Affinity\tNUMA Affinity"]
    for i in range(4):
        cells = ["X" if i == j else "SYS" for j in range(4)]
        rows.append("\t".join([f"GPU{i}", *cells, "0-7" if i < 2 else "8-15", "0"]))
    facts = read(write(tmp_path, "\n".join(rows), "smi.txt"))
    assert [place.socket for place in facts.places or ()] == [0, 0, 2, 2]


def test_merged_headers_are_taken_apart(tmp_path: Path) -> None:
    text = "GPU0GPU1CPU Affinity\nGPU0 X PHB 0-3\nGPU1 PHB X 0-3\n"
    assert read(write(tmp_path, text, "smi.txt")).gpus == 2


# --- the machine -----------------------------------------------------------------------------


def test_a_full_dump_needs_only_the_device(tmp_path: Path) -> None:
    path = write(tmp_path, system(gpu(0, star()) + nic(0), gpu(1, star()) + nic(1)))
    found = import_machine([path], device="h100-sxm").document
    node = found["node"]
    assert (node["family"], node["nvlink"]["bandwidth"]) == ("nvswitch", "370.8 GB/s")  # 18 x 20.6
    assert node["host"]["inter_socket"]["bandwidth"] == "22 GB/s"  # Sapphire Rapids
    assert node["host"]["gpu"]["bandwidth"] == "48 GB/s"
    assert found["network"]["link"] == {
        "bandwidth": "50 GB/s", "latency": "4.15 us", "kind": "infiniband",
    }  # fmt: skip
    assert "assumption" in found["sources"]["network.family"]


@pytest.mark.parametrize(
    ("count", "sm", "device", "family", "bandwidth"),
    [
        (4, 80, "a100-sxm-80gb", "full_mesh", "80 GB/s"),
        (6, 90, "h100-sxm", "full_mesh", "123.6 GB/s"),
        (2, 70, "v100-sxm2-16gb", "full_mesh", "40 GB/s"),
    ],
)
def test_equal_links_in_every_pair_are_a_full_mesh(
    count: int, sm: int, device: str, family: str, bandwidth: str, tmp_path: Path
) -> None:
    gpus = [gpu(i, "".join(to(j, count) for j in range(4) if j != i), sm) for i in range(4)]
    node = import_machine([write(tmp_path, system("".join(gpus)))], device=device).document["node"]
    assert (node["family"], node["pair"]["bandwidth"]) == (family, bandwidth)


def test_pairs_are_bridges_and_other_patterns_are_wired_one_by_one(tmp_path: Path) -> None:
    pairs = [gpu(0, to(1, 12), 80), gpu(1, to(0, 12), 80), gpu(2, to(3, 12), 80),
             gpu(3, to(2, 12), 80)]  # fmt: skip
    path = write(tmp_path, system("".join(pairs)))
    node = import_machine([path], device="a100-pcie-80gb").document["node"]
    assert (node["family"], node["bridges"]) == ("pcie_tree", [[0, 1], [2, 3]])
    chain = [gpu(0, to(1, 4), 80), gpu(1, to(0, 4) + to(2, 2), 80), gpu(2, to(1, 2), 80)]
    path = write(tmp_path, system("".join(chain)))
    imported = import_machine([path], device="a100-pcie-80gb")
    fast = [(w["from"], w["to"], w["bandwidth"]) for w in imported.document["node"]["links"]
            if w["kind"] == "nvlink"]  # fmt: skip
    assert fast == [("gpu0", "gpu1", "80 GB/s"), ("gpu1", "gpu2", "40 GB/s")]


def test_the_matrix_of_a_dgx1_is_the_cube_that_dpsim_knows() -> None:
    found = machine("v100-sxm2-8gpu-dgx1-style.txt", like="v100-1x100g")["node"]
    known = load_machine("v100-1x100g").topology(1).graph
    wanted = {(a[2], b[2]): known.edges[a, b]["link"].bandwidth for a, b in known.edges
              if a[0] == b[0] == "gpu" and a[2] < b[2]}  # fmt: skip
    read_off = {(int(w["from"][3:]), int(w["to"][3:])): float(w["bandwidth"].split()[0]) * 1e9
                for w in found["links"] if w["kind"] == "nvlink"}  # fmt: skip
    assert read_off == wanted


def test_more_nvlinks_than_a_gpu_has_mean_a_switch() -> None:
    node = machine("h200-8gpu-8nic-ansi-escapes.txt", like="dgx-h200")["node"]
    assert (node["family"], node["nvlink"]["bandwidth"]) == ("nvswitch", "370.8 GB/s")


def test_uneven_sockets_are_wired_one_by_one(tmp_path: Path) -> None:
    path = write(tmp_path, system(gpu(0, sm=89), gpu(1, sm=89) + gpu(2, sm=89)))
    found = import_machine([path], device="l40s")
    assert found.document["node"]["family"] == "explicit"
    assert "node.links" in found.document["sources"]


def test_what_a_cloud_file_lacks_is_refused_by_name_or_comes_from_the_preset() -> None:
    with pytest.raises(Refused, match=r"node\.nvlink .*network\.link\.bandwidth .*--like"):
        machine("azure-ndv5-topo.xml", device="h100-sxm")
    imported = import_machine([DATA / "azure-ndv5-topo.xml"], like="dgx-h100")
    taken = {told.path for told in imported.told if told.how == "preset"}
    assert taken == {"device", "node.links", "network.link.bandwidth", "network.family"}
    assert all("dgx-h100" in told.source for told in imported.told if told.how == "preset")
    assert imported.document["node"]["host"]["gpus_per_switch"] == 1  # the file's, not the preset's


def test_a_cloud_file_and_a_matrix_complete_each_other() -> None:
    files = ("azure-ndv5-topo.xml", "h200-8gpu-8nic-ansi-escapes.txt")
    with pytest.raises(Refused, match=r"don't say: network\.link\.bandwidth"):
        machine(*files, device="h100-sxm")
    imported = import_machine([DATA / name for name in files], device="h100-sxm", like="dgx-h100")
    links = next(told for told in imported.told if told.path == "node.links")
    assert (links.how, links.value) == ("file", "18 NVLink per GPU to a switch")


def test_without_like_the_machines_that_would_do_are_named() -> None:
    with pytest.raises(Refused, match=r"with --like: four-rtx4090, rtx4090-8$"):
        machine("puget-wrx90-2gpu-pcie.txt", device="rtx4090")
    with pytest.raises(Refused, match=r"with --like: a4-high, dgx-b200, p6-b200\.48xlarge$"):
        machine("dump-b200-8gpu-13nic-vm.xml", device="b200")


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("rccl-dump-mi300x-8gpu-8nic.xml", "mi300x"),
        ("aws-p4d-24xl-topo.xml", "a100-sxm-40gb"),
        ("aws-p4de-24xl-topo.xml", "a100-sxm-80gb"),
        ("dump-b200-8gpu-13nic-vm.xml", "b200"),
    ],
)
def test_pci_ids_name_the_gpu(name: str, device: str) -> None:
    assert DEVICES[sample(name).chip or ""] == device


@pytest.mark.parametrize(("device", "kind"), [("0xefa0", "efa"), ("0xec20", "ethernet")])
def test_cards_of_amazons_are_told_by_their_device(tmp_path: Path, device: str, kind: str) -> None:
    """0xefa0 to 0xefa3 are EFA's, 0xec20 is the Elastic Network Adapter: plain Ethernet."""
    text = (DATA / "aws-p4d-24xl-topo.xml").read_text().replace("0xefa0", device)
    found = import_machine([write(tmp_path, text)], like="p4d.24xlarge").document
    assert found["adapters"] == "amazon"
    assert found["network"]["link"]["kind"] == kind


def test_cards_of_others_are_not_amazons_whatever_the_preset_is(tmp_path: Path) -> None:
    assert "adapters" not in machine("azure-ncv4-topo.xml", like="p4d.24xlarge")
    text = (DATA / "aws-p4d-24xl-topo.xml").read_text().replace(' device="0xefa0"', "")
    found = import_machine([write(tmp_path, text)], like="p4d.24xlarge").document
    assert found["network"]["link"]["kind"] == "efa", "the preset's, for the file does not say"


@pytest.mark.parametrize(("like", "kind"), [("a3-mega", "tcpx"), ("p4d.24xlarge", "efa")])
def test_whose_adapters_nics_are_goes_with_their_kind(like: str, kind: str) -> None:
    """Where a file doesn't say what its NICs are, both are the preset's."""
    found = machine("oci-8gpu-8nic-topo.xml", like=like)
    assert found["network"]["link"]["kind"] == kind
    assert found["adapters"] == load_machine(like).adapters


def test_what_a_pci_id_names_comes_before_the_preset_and_after_the_option() -> None:
    name = "aws-p4d-24xl-topo.xml"
    assert machine(name, like="dgx-a100")["device"] == "a100-sxm-40gb"
    assert machine(name, like="dgx-a100", device="a100-sxm-80gb")["device"] == "a100-sxm-80gb"


def test_the_device_is_asked_for_with_the_choices_that_fit(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"compute capability 10\.0: b200, gb200"):
        import_machine([write(tmp_path, system(gpu(0, sm=100)))])
    with pytest.raises(Refused, match=r"h100-sxm hasn't compute capability 10\.0"):
        machine("dump-b200-8gpu-13nic-vm.xml", device="h100-sxm")
    with pytest.raises(Refused, match=r"--device: no device.*h100-sxm"):
        machine("dump-b200-8gpu-13nic-vm.xml", device="h100-smx")
    with pytest.raises(Refused, match=r"don't say which GPU .*dpsim show devices"):
        machine("puget-wrx90-2gpu-pcie.txt")


def test_the_slot_of_a_geforce_is_not_its_rate() -> None:
    name = "dump-rtx3090-8gpu-1nic.xml"
    with pytest.raises(Refused, match=r"node\.host\.gpu\.bandwidth .*GeForce"):
        machine(name, device="rtx3090")
    with pytest.raises(Refused, match="GeForce"):
        machine(name, device="rtx3090", like="dgx-h100")
    found = machine(name, device="rtx3090", like="rtx4090-8")
    assert found["node"]["host"]["gpu"]["bandwidth"] == "11 GB/s"
    assert found["network"]["link"]["bandwidth"] == "7 GB/s"  # 56 Gbit/s


def test_a_preset_that_lacks_the_same_is_no_help(tmp_path: Path) -> None:
    path = write(tmp_path, MISSING_NUMA, "smi.txt")
    with pytest.raises(Refused, match="two-rtx3090-pcie doesn't say it either"):
        import_machine([path], like="two-rtx3090-pcie")


RUNNABLE: list[tuple[tuple[str, ...], dict[str, str]]] = [
    (("azure-ndv5-topo.xml",), {"like": "dgx-h100"}),
    (("azure-ndv4-topo.xml",), {"like": "nd-a100-v4"}),
    (("azure-ndv2-topo.xml",), {"like": "v100-1x100g"}),
    (("azure-ncv4-topo.xml",), {"like": "nc96ads-a100-v4"}),
    (("aws-p4d-24xl-topo.xml",), {"like": "p4d.24xlarge"}),
    (("aws-p5.48xlarge-topo.xml",), {"like": "p5.48xlarge"}),
    (("oci-8gpu-8nic-topo.xml",), {"like": "dgx-a100"}),
    (("dump-b200-8gpu-13nic-vm.xml",), {"like": "dgx-b200"}),
    (("dump-rtx3090-8gpu-1nic.xml",), {"device": "rtx3090", "like": "rtx4090-8"}),
    (("rccl-dump-mi100-rome-8gpu.xml",), {"device": "mi100"}),
    (("rccl-dump-mi300x-8gpu-8nic.xml",), {"device": "mi300x"}),
    (("asus-esc8000a-4gpu-pcie-2socket.txt",), {"device": "l40s", "like": "rack-pcie5"}),
    (("h200-8gpu-8nic-ansi-escapes.txt",), {"like": "dgx-h200"}),
    (("v100-sxm2-8gpu-no-affinity-blank-lines.txt",), {"like": "dgx-1v"}),
]


@pytest.mark.parametrize(("names", "options"), RUNNABLE, ids=lambda v: str(v)[:40])
def test_what_is_written_loads_with_a_source_for_every_link(
    names: tuple[str, ...], options: dict[str, str], tmp_path: Path
) -> None:
    imported: Imported = import_machine([DATA / n for n in names], **options)
    path = write(tmp_path, text_of(imported), "machine.yaml")
    loaded = load_machine(str(path))
    topology = loaded.topology(2 if loaded.network is not None else 1)
    gpus = [v for v in topology.graph if v[0] == "gpu"]
    assert len(gpus) == loaded.gpus_per_node * (2 if loaded.network is not None else 1)
    cited = set(loaded.sources)
    for field, _ in numbers(loads(text_of(imported), "x")[0]["node"], "node"):
        assert any(field == key or field.startswith(f"{key}.") for key in cited), field


def numbers(value: Any, path: str) -> list[tuple[str, Any]]:
    """Every bandwidth and latency below `value`, with its path; list items under the list's."""
    if isinstance(value, dict):
        found = [item for key, inner in value.items() for item in numbers(inner, f"{path}.{key}")]
        return found
    if isinstance(value, list):
        return [(path, item) for item in value if path != "node.vertices"]
    return [(path, value)] if path.rpartition(".")[2] in ("bandwidth", "latency") else []


# --- bad input -------------------------------------------------------------------------------

LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'
    '<system version="1">&b;</system>'
)
BAD_XML = {
    "doctype": ('<!DOCTYPE system><system version="1"/>', "DOCTYPE"),
    "billion laughs": (LAUGHS, "DOCTYPE"),
    "external entity": (
        '<!DOCTYPE s [<!ENTITY x SYSTEM "file:///etc/passwd">]><system>&x;</system>', "DOCTYPE"),
    "unknown entity": ('<system version="1">&a;</system>', "not well-formed"),
    "cut": (system(gpu(0))[:-40], "cut short"),
    "no cpu": ('<system version="1"></system>', "no <cpu>"),
    "other root": ("<topology/>", "starts with <topology>"),
    "unknown element": (system("<gpus/>"), "no element of a topology"),
    "text": (system("hello"), "text where elements"),
    "gpu without pci": (system('<gpu dev="0" sm="90"/>'), "a GPU needs a <pci>"),
    "bus": (system('<pci busid="zz"/>'), "busid 'zz'"),
    "no bus": (system('<pci class="0x030200"/>'), "busid ''"),
    "class": (system('<pci busid="0000:00:00.0" class="gpu"/>'), "class 'gpu'"),
    "no sm": (system('<pci busid="0000:00:00.0" class="0x030200"><gpu dev="0"/></pci>'),
              "has no sm"),
    "no dev": (system('<pci busid="0000:00:00.0" class="0x030200"><gpu sm="90"/></pci>'),
               "has no dev"),
    "no numaid": (f'<system version="1"><cpu {CPU}/></system>', "has no numaid"),
    "two of one numaid": (
        f'<system><cpu numaid="0" {CPU}/><cpu numaid="0" {CPU}/></system>', "one numaid"),
    "negative speed": (system(nic(0, -100)), "speed '-100'"),
    "zero speed": (system(nic(0, 0)), "speed '0'"),
    "huge speed": (system(nic(0, 10**11)), "speed '100000000000'"),
    "link speed": (system(gpu(0, pcie='link_speed="-8 GT/s" link_width="16"')), "link_speed"),
    "link width": (system(gpu(0, pcie='link_speed="8 GT/s" link_width="-1"')), "link_width"),
    "negative count": (system(gpu(0, star(-1))), "count '-1'"),
    "no target": (system(gpu(0, '<nvlink count="4"/>')), "no target"),
    "one way": (system(gpu(0, to(1, 4)) + gpu(1)), "4 links to GPU 1, which has 0 back"),
    "same bus": (system(gpu(0), gpu(0)), "a second GPU at 0000:00:00.0"),
    "two kinds": (system(gpu(0, sm=80) + gpu(1, sm=90)), "several kinds: sm 80, 90"),
    "too many": (system("".join(gpu(i % 256) for i in range(200))), "more than 256 elements"),
    "too deep": (system('<pci busid="0000:00:00.0">' * 40 + "</pci>" * 40), "40|32 deep"),
    "long text": (system(f'<pci busid="{"0" * 300}"/>'), "more than 255 characters"),
    "attributes": ("<system " + " ".join(f'a{i}="1"' for i in range(20)) + "/>",
                   "more than 16 attributes"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_XML)
def test_bad_xml_is_refused_with_its_reason(name: str, tmp_path: Path) -> None:
    text, reason = BAD_XML[name]
    with pytest.raises(Refused, match=reason):
        read(write(tmp_path, text))


def test_every_prefix_of_a_topology_is_refused(tmp_path: Path) -> None:
    text = system(gpu(0, star()) + nic(0))
    assert read(write(tmp_path, text)).gpus == 1
    for end in range(1, len(text), 7):
        with pytest.raises(Refused):
            read(write(tmp_path, text[:end]))


GOOD = "\tGPU0\tGPU1\tNIC0\nGPU0\tX\tNV4\tPIX\nGPU1\tNV4\tX\tSYS\nNIC0\tPIX\tSYS\tX\n"
BAD_MATRIX = {
    "no rows": ("\tGPU0\tGPU1\n", "no row for GPU0, GPU1"),
    "row missing": (GOOD[: GOOD.index("NIC0\tPIX")], "no row for NIC0"),
    "cell missing": (GOOD.removesuffix("\tX\n"), "NIC0 has 2 of 3 cells"),
    "row too many": (GOOD + "GPU2\tX\tX\tX\n", "too many; the matrix is not square"),
    "other row": (GOOD.replace("GPU1\tNV4", "GPU7\tNV4"), "'GPU7' where the row of GPU1"),
    "unknown word": (GOOD.replace("SYS", "FAR"), "'FAR' is not one of"),
    "no links": (GOOD.replace("NV4", "NV0"), "'NV0' is not one of"),
    "negative links": (GOOD.replace("NV4", "NV-4"), "'NV-4' is not one of"),
    "one way": (GOOD.replace("NV4\tPIX", "NV2\tPIX"), "GPU0 to GPU1 is NV2, and back it is NV4"),
    "diagonal": (GOOD.replace("GPU0\tX", "GPU0\tSYS"), "X stands on the diagonal"),
    "nic link": (GOOD.replace("PIX", "NV1"), "NICs have no NVLink"),
    "column": (GOOD.replace("\tNIC0\n", "\tdisk0\n"), "'disk0' is neither"),
    "twice": (GOOD.replace("\tGPU1\t", "\tGPU0\t", 1), "columns are not GPU0"),
    "escape": (GOOD.replace("SYS", "\x1b]0;x\x07SYS"), "escape sequences"),
    "rocm": ("= ROCm System Management Interface =\n GPU0 GPU1\nGPU0 0 XGMI\n", "rocm-smi"),
}


@pytest.mark.parametrize("name", BAD_MATRIX)
def test_a_bad_matrix_is_refused_with_its_reason(name: str, tmp_path: Path) -> None:
    text, reason = BAD_MATRIX[name]
    assert read(write(tmp_path, GOOD, "smi.txt")).gpus == 2
    with pytest.raises(Refused, match=reason):
        read(write(tmp_path, text, "smi.txt"))


@pytest.mark.parametrize("content", ["", "hello\n", "{}", "\0", "GPU0: NVIDIA H100\n"])
def test_other_files_are_refused(content: str, tmp_path: Path) -> None:
    with pytest.raises(Refused):
        read(write(tmp_path, content))


def test_files_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    xml = write(tmp_path, system(gpu(0, to(1, 4), 80) + gpu(1, to(0, 4), 80)))
    same = write(tmp_path, GOOD, "smi.txt")
    fewer = write(tmp_path, GOOD.replace("NV4", "NV2"), "fewer.txt")
    with pytest.raises(Refused, match=r"topo\.xml and fewer\.txt disagree on NVLinks: GPU0"):
        import_machine([xml, fewer], device="a100-pcie-80gb")
    with pytest.raises(Refused, match=r"disagree on the number of GPUs: 2 .*8"):
        import_machine([xml, DATA / "h200-8gpu-8nic-ansi-escapes.txt"], device="h200")
    with pytest.raises(Refused, match="several files are nvidia-smi topo -m"):
        import_machine([same, fewer], device="a100-pcie-80gb")
    with pytest.raises(Refused, match=r"M40 has none"):
        import_machine([fewer], device="m40", like="rack-pcie4")


#: two GPUs and a NIC a NUMA node; GPU1 and NIC0 share a switch
MATRIX = """\
        GPU0    GPU1    GPU2    GPU3    NIC0    NIC1    CPU Affinity    NUMA Affinity
GPU0     X      NODE    SYS     SYS     NODE    SYS     0-31            0
GPU1    NODE     X      SYS     SYS     PXB     SYS     0-31            0
GPU2    SYS     SYS      X      NODE    SYS     NODE    32-63           1
GPU3    SYS     SYS     NODE     X      SYS     NODE    32-63           1
NIC0    NODE    PXB     SYS     SYS      X      SYS
NIC1    SYS     SYS     NODE    NODE    SYS      X

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
"""


def bridge(number: int, *inside: str) -> str:
    return (
        f'<pci busid="0000:{0xE0 + number:02x}:00.0" class="0x060400" {GEN5}>'
        f"{''.join(inside)}</pci>"
    )


def four(first: str, second: str) -> str:
    return system(first, second).replace('gdr="1"', 'gdr="0"')


def findings(folder: Path, xml: str, matrix: str = MATRIX) -> tuple[str, ...]:
    files = [write(folder, xml), write(folder, matrix, "smi.txt")]
    return import_machine(files, device="h100-pcie").findings


def test_files_that_agree_on_places_tell_nothing(tmp_path: Path) -> None:
    agreeing = four(gpu(0) + bridge(0, gpu(1), nic(0)), gpu(2) + gpu(3) + nic(1))
    assert findings(tmp_path, agreeing) == ()
    # a matrix whose cards are called otherwise says nothing of them
    assert findings(tmp_path, agreeing, MATRIX.replace("mlx5_", "rocep")) == ()


def test_a_nic_elsewhere_is_told_by_name(tmp_path: Path) -> None:
    """NIC mlx5_0 is not below the switch of GPU1, and mlx5_1 is on the other NUMA node."""
    moved = four(gpu(0) + bridge(0, gpu(1)) + nic(0) + nic(1), gpu(2) + gpu(3))
    found = findings(tmp_path, moved)
    assert found[1] == (
        "GPU1 and mlx5_0 are on one NUMA node in topo.xml (taken), below one PCIe switch in smi.txt"
    )
    apart, node = "on different NUMA nodes", "on one NUMA node"
    assert [line for line in found if "GPU2 and mlx5_1" in line] == [
        f"GPU2 and mlx5_1 are {apart} in topo.xml (taken), {node} in smi.txt"
    ]
    assert len(found) == 1 + 4  # mlx5_1 is elsewhere for all four GPUs


def test_a_gpu_on_another_numa_node_is_told_by_name(tmp_path: Path) -> None:
    moved = four(gpu(0) + bridge(0, gpu(1), nic(0)) + gpu(2), gpu(3) + nic(1))
    found = findings(tmp_path, moved)
    named = {line.partition(" are ")[0] for line in found}
    assert named == {
        "GPU0 and GPU2", "GPU1 and GPU2", "GPU2 and GPU3", "GPU2 and mlx5_0", "GPU2 and mlx5_1"
    }  # fmt: skip


def test_behind_nvlinks_only_numa_nodes_are_compared(tmp_path: Path) -> None:
    """NV4 hides whether two GPUs share a switch; CPU affinities tell their NUMA nodes."""
    linked = MATRIX.replace(
        "X      NODE    SYS     SYS     NODE", "X      NV4     SYS     SYS     NODE"
    )
    linked = linked.replace("GPU1    NODE ", "GPU1    NV4  ")
    pair = to(1, 4), to(0, 4)
    same = four(bridge(0, gpu(0, pair[0]), gpu(1, pair[1])) + nic(0), gpu(2) + gpu(3) + nic(1))
    assert "GPU0 and GPU1" not in " ".join(findings(tmp_path, same, linked))
    split = four(gpu(0, pair[0]) + nic(0), gpu(1, pair[1]) + gpu(2) + gpu(3) + nic(1))
    assert any(line.startswith("GPU0 and GPU1 are on different NUMA nodes in topo.xml (taken), "
                               "on one NUMA node or nearer in smi.txt")
               for line in findings(tmp_path, split, linked))  # fmt: skip


def test_pairs_with_other_counts_of_nvlinks_are_named(tmp_path: Path) -> None:
    xml = write(tmp_path, system(gpu(0, to(1, 4), 80) + gpu(1, to(0, 4), 80)))
    fewer = write(tmp_path, GOOD.replace("NV4", "NV2"), "fewer.txt")
    with pytest.raises(Refused, match=r"GPU0 to GPU1: 4 NVLinks in topo\.xml, 2 in fewer\.txt"):
        import_machine([xml, fewer], device="a100-pcie-80gb")


def test_a_contradiction_is_a_finding_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = four(gpu(0) + bridge(0, gpu(1)) + nic(0), gpu(2) + gpu(3) + nic(1))
    out = tmp_path / "mine.yaml"
    files = [str(write(tmp_path, moved)), str(write(tmp_path, MATRIX, "smi.txt"))]
    command = ["import", *files, "--device", "h100-pcie"]
    assert app()([*command, "-o", str(out)], standalone_mode=False) == 1
    printed = capsys.readouterr().out
    assert "the files contradict each other:\n  GPU1 and mlx5_0 are" in printed
    assert load_machine(str(out)).gpus_per_node == 4
    assert app()([*command, "--json"], standalone_mode=False) == 1
    assert len(json.loads(capsys.readouterr().out)["findings"]) == 1


@pytest.mark.parametrize("device", ["l40s", "rtx4090"])
def test_gpus_without_nvlink_have_none_whatever_a_file_says(device: str, tmp_path: Path) -> None:
    xml = write(tmp_path, system(gpu(0, to(1, 4), 89) + gpu(1, to(0, 4), 89)))
    with pytest.raises(Refused, match="has none"):
        import_machine([xml], device=device)


def test_readers_claim_by_content() -> None:
    assert nccl_xml.claims("\n<!-- x --><system/>")
    assert not nccl_xml.claims(GOOD)
    assert nvidia_smi.claims(GOOD)
    assert not nvidia_smi.claims("GPU0: NVIDIA H100")


# --- the command -----------------------------------------------------------------------------


def test_the_command_writes_a_machine_that_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.yaml"
    source = str(DATA / "azure-ndv5-topo.xml")
    result = app()(["import", source, "--like", "dgx-h100", "-o", str(out)], standalone_mode=False)
    printed = capsys.readouterr().out
    assert result == 0
    assert load_machine(str(out)).name == "mine"
    assert "8 GPUs, 8 NICs, 8 PCIe switches, 2 NUMA nodes" in printed
    assert "not in the files, taken from the machine of --like:" in printed
    assert "  node.links: 370.8 GB/s per GPU to a switch (as dgx-h100" in printed
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        "model: {name: resnet50}\ncluster: {machine: mine.yaml, nodes: 2}\n"
        "strategy: {kind: ddp}\nbatch: {per_device: 64}\n"
    )
    assert app()(["run", str(scenario), "--json"], standalone_mode=False) == 0
    assert json.loads(capsys.readouterr().out)["points"][0]["ranks"] == 16


def test_the_command_prints_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    source = str(DATA / "rccl-dump-mi300x-8gpu-8nic.xml")
    app()(["import", source, "--device", "mi300x", "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert found["machine"]["node"]["pair"]["bandwidth"] == "48 GB/s"
    assert {item["how"] for item in found["told"]} == {"file", "option", "constant", "assumption"}


def test_a_refusal_leaves_no_file(tmp_path: Path) -> None:
    out = tmp_path / "mine.yaml"
    source = str(DATA / "azure-ncv4-graph.xml")
    with pytest.raises(Refused):
        app()(["import", source, "-o", str(out)], standalone_mode=False)
    good = str(DATA / "azure-ndv5-topo.xml")
    for bad in (tmp_path, tmp_path / "mine.txt"):
        with pytest.raises(Refused, match="--out"):
            app()(["import", good, "--like", "dgx-h100", "-o", str(bad)], standalone_mode=False)
    assert list(tmp_path.iterdir()) == []


def test_a_machine_is_named_after_its_file() -> None:
    assert name_for(Path("my rack.yaml")) == "my-rack"
    assert name_for(Path("---.yaml")) == name_for(None) == "imported"


# --- graphs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".graphml", ".json"])
def test_a_graph_of_alike_nodes_becomes_the_machine_that_it_was_drawn_of(
    tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"nodes{suffix}"
    write_graph(machine_graph("dgx-1v", 2), path)
    account = account_of(path, Wishes(machine="dgx-1v", name="mine"))
    assert account.makes == "machine"
    (tmp_path / "mine.yaml").write_text(dump_yaml(account.document), "utf-8")
    one, other = load_machine(str(tmp_path / "mine.yaml")), load_machine("dgx-1v")
    assert (one.gpus_per_node, one.device) == (other.gpus_per_node, other.device)
    wires = [each.topology(1).graph.edges(data="link") for each in (one, other)]
    mine, drawn = (sorted((link.bandwidth, link.kind) for _, _, link in each) for each in wires)
    assert mine == drawn


def test_wires_of_an_undirected_graph_have_no_order(tmp_path: Path) -> None:
    graph, other = machine_graph("dgx-1v", 2), nx.Graph()
    names = [name for name in graph if not name.startswith("node1/")]
    names += [name for name in reversed(list(graph)) if name.startswith("node1/")]
    other.graph.update(graph.graph)
    other.add_nodes_from((name, graph.nodes[name]) for name in names)
    other.add_edges_from(graph.edges(data=True))
    nx.write_graphml(other, tmp_path / "nodes.graphml")
    told = account_of(tmp_path / "nodes.graphml", Wishes()).entries
    assert any("all 2 nodes are alike" in one.text for one in told)


def test_a_graph_whose_nodes_differ_is_refused(tmp_path: Path) -> None:
    graph = machine_graph("dgx-1v", 2)
    graph["node1/gpu0"]["node1/gpu1"]["bandwidth_bytes_per_s"] /= 2
    write_graph(graph, tmp_path / "nodes.json")
    with pytest.raises(Refused, match="node0 and node1 differ"):
        account_of(tmp_path / "nodes.json", Wishes())
