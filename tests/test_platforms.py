"""Words of measured tables to machines: what each text means, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dpsim.accuracy.platforms import Platform, platform
from dpsim.accuracy.words import vocabulary
from dpsim.backends import unmodelled
from dpsim.core import plugins
from dpsim.core.record import Refused, build
from dpsim.describe.sections import Cluster
from dpsim.machines.devices import NetworkKind
from dpsim.machines.machine import load_device, load_machine, machine_names

IB: NetworkKind = "infiniband"
PCIE = "GPU model not stated in repo (32-GPU cluster, PCIe; paper arXiv 2005.13247)"
OPA = "Cornelis Networks Omni-Path HFI Adapter 100 Series 100Gb/Sec"
PLX = "PCIe Gen3, 2x PLX switches, single root; Mellanox IB FDR between nodes"
CUBE = "NVLink2 hybrid cube mesh (DGX-1V)"
V3 = "NVIDIA V100-SXM3-32GB"
SX4 = "NVIDIA A100-SXM4-80GB"
H5 = "NVIDIA H100-SXM5-80GB"
NV4 = "NVLINK Gen4 900 GB/s + NVSWITCH Gen3"
DGX2 = "DGX-2 class node assumed (node size not stated in this file)"
MESH_TEXT = (
    "strong dependence on GPU count (2:22.5, 8:134 GB/s) is what a DGX-1 hybrid cube mesh gives"
)

#: accelerator, GPUs a node, intra_node, inter_node, Gbit/s a node → machine, device that replaces
#: the machine's, NICs, Gbit/s of each, kind
TRAINING: list[tuple[Any, ...]] = [
    (PCIE, 4, 'PCIe (log prefix "pcie")', "100 Gb/s IB NIC used as IP (IPoIB/TCP), RDMA off", 100,
     "rtx2080ti-8", None, 1, 100, "ipoib"),
    (PCIE, 4, 'PCIe (log prefix "pcie")', "100 Gb/s InfiniBand, RDMA", 100,
     "rtx2080ti-8", None, 1, 100, IB),
    (PCIE, 4, 'PCIe (log prefix "pcie")', "10GbE, TCP/IP (NCCL sockets)", 10,
     "rtx2080ti-8", None, 1, 10, "ethernet"),
    ("NVIDIA A100", 8, "NVLink3/NVSwitch (config: intra_node_bandwidth 150)",
     "800 Gb/s per node (config inter_node_bandwidth 800)", 800, "dgx-a100", None, 4, 200, IB),
    ("NVIDIA A100 - PCIe - 80 GB", 2, "PCIe Gen4: 64 GB / s",
     "1 x ConnectX - 6 IB HDR100 100 Gb / Sec", 100, "a100-pcie-4", None, 1, 100, IB),
    ("NVIDIA A100-40GB", 8, "NVLink/NVSwitch (8-GPU node, not stated)",
     "RoCE 1600 Gb/s node-node (stated)", 1600, "dgx-a100", "a100-sxm-40gb", 8, 200, "roce"),
    ("NVIDIA A100-80GB", 8, "not stated", "400 Gb/s (stated)", 400, "dgx-a100", None, 2, 200, IB),
    ("NVIDIA A100-80GB", 8, "not stated", "4x200 Gb/s RDMA (stated)", 800,
     "dgx-a100", None, 4, 200, IB),
    ("NVIDIA A100-80GB (Jean Zay)", 8, "NVLink, 4 inter-GPU links (stated)",
     "4 Omni-Path links per node (stated); all_reduce bench for 4 nodes: 15-42 Gb/s algo", 400,
     "dgx-a100", None, 4, 100, "omni_path"),
    ("NVIDIA A100-PCIE-40GB (250W)", 8, "PCIe (host interconnect: PCIe 3.0x16)",
     "1x ConnectX-5 IB EDR 100Gb/Sec", 100, "rack-100gbe", "a100-pcie-40gb", 1, 100, IB),
    ("NVIDIA A100-PCIe-80GB", 4, "PCIe (host interconnect: PCIe 4.0x16)",
     "1x ConnectX-5 IB EDR 100Gb/Sec", 100, "a100-pcie-4", None, 1, 100, IB),
    ("NVIDIA A100-PCIe-80GB", 4, "PCIe (host interconnect: PCIe 4.0x16)", f"1x {OPA}", 100,
     "a100-pcie-4", None, 1, 100, "omni_path"),
    ("NVIDIA A100-PCIe-80GB", 4, "PCIe (host interconnect: PCIe 4.0x16)",
     f"1x {OPA} (system name says 2 OPA links; JSON lists one)", 200,
     "a100-pcie-4", None, 2, 100, "omni_path"),
    ("NVIDIA A100-PCIe-80GB", 4, "PCIe (host interconnect: PCIe 4.0x16)", f"2x {OPA}", 200,
     "a100-pcie-4", None, 2, 100, "omni_path"),
    ("NVIDIA A100-SXM-40GB", 4, "NVLink 3.0 600GB/s", "2x ConnectX-6 IB HDR 200Gb/Sec", 400,
     "a100-4", "a100-sxm-40gb", 2, 200, IB),
    ("NVIDIA A100-SXM-80GB CTS", 4, "NVLink 3.0 600GB/s", "2x ConnectX-6 IB HDR 200Gb/Sec", 400,
     "a100-4", None, 2, 200, IB),
    ("NVIDIA A100-SXM4-40GB", 8, "NVLink3+NVSwitch2 (DGX A100)",
     "8x IB HDR 200Gb/s (DGX A100 compute fabric)", 1600, "dgx-a100", "a100-sxm-40gb", 8, 200, IB),
    (SX4, 8, "NVLINK 3.0, NVSWITCH 2.0 600GB/s", "8x ConnectX-6 IB HDR 200Gb/Sec", 1600,
     "dgx-a100", None, 8, 200, IB),
    (SX4, 8, "NVLink3/NVSwitch (SXM4, not stated)", "4x100 Gb/s RoCE (stated)", 400,
     "dgx-a100", None, 4, 100, "roce"),
    (f"{SX4} (Azure NDm A100 v4)", 8, "NVLink3/NVSwitch (NDm A100 v4)",
     "8x HDR IB 200 Gb/s, one per GPU (stated)", 1600, "nd-a100-v4", "a100-sxm-80gb", 8, 200, IB),
    ("NVIDIA B200", 8, "DGX B200 NVLink/NVSwitch", "DGX B200 compute fabric (not stated)", None,
     "dgx-b200", None, None, None, None),
    ("NVIDIA H100 SXM 96GB HBM2e (2.4 TB/s, 500 W limit)", 8,
     "NVLink, 8 GPUs fully connected (stated)", "RDMA 400 Gb/s per GPU (stated)", 3200,
     "dgx-h100", "h100-sxm-96gb", 8, 400, IB),
    ("NVIDIA H100-80GB", 8, "not stated", "800 Gb/s (stated)", 800, "dgx-h100", None, 2, 400, IB),
    (H5, 8, NV4, "8x ConnectX-7 IB NDR 400Gb/s", 3200, "dgx-h100", None, 8, 400, IB),
    (H5, 8, NV4, "ROCE2; Data bandwidth for GPU-PCIe: 504 GB/s; PCIe-NIC: 500 GB/s", None,
     "dgx-h100", None, 8, 400, "roce"),
    (H5, 8, "NVLink4+NVSwitch3 (DGX H100)", "8x IB NDR 400Gb/s (DGX H100 compute fabric)", 3200,
     "dgx-h100", None, 8, 400, IB),
    ("NVIDIA H200-SXM5-141GB", 8, "8x 4th Gen NVLink, 900GB/s", "Infiniband, Ethernet", None,
     "dgx-h200", None, 8, 400, IB),
    ("NVIDIA H200-SXM5-141GB", 8, NV4, "8x ConnectX-7 IB NDR 400Gb/s + 200Gb/s Ethernet NIC", 3200,
     "dgx-h200", None, 8, 400, IB),
    ("NVIDIA K80 (one GK210 per GPU)", 8, "PCIe gen3 (n1-standard-32-k80x8)", "", None,
     "p2.8xlarge", None, 1, 16, "ethernet"),
    ("NVIDIA K80 (one GK210 per GPU)", 8, "PCIe gen3 (p2.8xlarge)",
     "EC2 p2.8xlarge network (bandwidth not stated in source)", None,
     "p2.8xlarge", None, None, None, None),
    ("NVIDIA L40S", 4, "PCIe Gen4",
     "2x BlueField-3 400 Gb/s east-west (BF3 200Gbps for NS and 2xBF3 400Gbps for EW)", 800,
     "l40s-4", None, 2, 400, "roce"),
    ("NVIDIA M60 (AWS g3)", 2, "PCIe (g3)", "AWS g3 network (not stated)", None,
     "g3.16xlarge", None, None, None, None),
    ("NVIDIA P100-SXM2 (DGX-1)", 8, "NVLink1 (DGX-1 P100)", "", None,
     "dgx-1p", None, None, None, None),
    ("NVIDIA Pascal GPU (model not stated)", 4, "not stated", "25 Gb/s RoCE (stated)", 25,
     "rack-100gbe", "p100-pcie-16gb", 1, 25, "roce"),
    ("NVIDIA T4 (AWS g4dn.12xlarge)", 4, "PCIe", "AWS g4dn.12xlarge network (not stated)", None,
     "g4dn.12xlarge", None, None, None, None),
    ("NVIDIA V100", 16, DGX2, "1 InfiniBand links x 100 Gb/s (stated)", 100,
     "dgx-2", None, 1, 100, IB),
    ("NVIDIA V100", 16, DGX2, "4 InfiniBand links x 100 Gb/s (stated)", 400,
     "dgx-2", None, 4, 100, IB),
    ("NVIDIA V100", 16, DGX2, "800 Gb/s cross-node (stated)", 800, "dgx-2", None, 8, 100, IB),
    ("NVIDIA V100", 4, "not stated (4 V100 per node)",
     "40 Gb/s InfiniBand QDR; perftest-measured 32 Gb/s (stated)", 32, "v100-4", None, 1, 32, IB),
    ("NVIDIA V100", 4, "not stated (4 V100 per node)",
     "40 GbE TCP; iperf-measured 4.1 Gb/s (stated)", 4.1, "v100-4", None, 1, 4.1, "ethernet"),
    ("NVIDIA V100", 8, "not stated", "100 Gb/s Ethernet TCP (stated)", 100,
     "dgx-1v", None, 1, 100, "ethernet"),
    ("NVIDIA V100-SXM2-16GB", 8, CUBE, "", None, "dgx-1v", None, None, None, None),
    ("NVIDIA V100-SXM2-32GB", 8, CUBE, "", None, "dgx-1v", "v100-sxm2-32gb", None, None, None),
    ("NVIDIA V100-SXM2-16GB", 8, "NVLink2 hybrid cube mesh (nvidia-smi topo: NV1/NV2/SYS)",
     "1x IB EDR 100 Gb/s per node (stated, PIX to GPU2/3)", 100, "v100-1x100g", None, 1, 100, IB),
    ("NVIDIA V100-SXM2-16GB (AWS p3.16xlarge)", 8, "NVLink2 (stated)",
     "25 Gb/s Ethernet (stated, AWS p3.16xlarge)", 25, "p3.16xlarge", None, 1, 25, "ethernet"),
    (V3, 16, "NVLink2+NVSwitch1 (DGX-2)", "8x IB EDR 100Gb/s (DGX-2/2H compute fabric)", 800,
     "dgx-2", None, 8, 100, IB),
]  # fmt: skip

#: accelerator, GPUs a node, fabric, what the source says, platform → as above
COLLECTIVES: list[tuple[Any, ...]] = [
    ("AMD MI300X", 8, "roce", "8 mlx5 RoCE NICs per node; speed not stated", "",
     "mi300x-8", None, 8, 400, "roce"),
    ("AMD MI325X", 8, "xgmi", "8 Broadcom bnxt RoCE NICs per node; speed not stated", "",
     "mi325x-8", None, 8, 400, "roce"),
    ("NVIDIA A100", 4, "nvlink_pair", "not stated in source", "",
     "nc96ads-a100-v4", None, None, None, None),
    ("NVIDIA A100", 4, "nvlink_nvswitch", "not stated in source", "",
     "dgx-a100", None, None, None, None),
    ("NVIDIA A100", 8, "ib", "8x 200G HCA (ConnectX-6 HDR) per node", "2x DGX A100",
     "dgx-a100", None, 8, 200, IB),
    ("NVIDIA A100 80GB", 8, "efa", "EFA; speed not stated next to table", "",
     "p4d.24xlarge", "a100-sxm-80gb", 4, 100, "efa"),
    ("NVIDIA A100-SXM4", 8, "ib", "4x IB HDR per node", "", "dgx-a100", None, 4, 200, IB),
    ("NVIDIA A100-SXM4-40GB", 8, "ib", "link speed not stated in source; osu multi-bw in same "
     "repo, 1 GPU pair across nodes: 15.3 GB/s", "", "dgx-a100", "a100-sxm-40gb", 8, 200, IB),
    ("NVIDIA A100-SXM4-40GB", 8, "ib", "link speed not stated in source", "ABCI Compute Node (A)",
     "dgx-a100", "a100-sxm-40gb", 4, 200, IB),
    ("NVIDIA A100-SXM4-40GB", 4, "slingshot", 'AWS Libfabric plugin over CXI; "pair of Slingshot '
     '11 adapters" per node (docs/polaris)', "", "polaris", None, 2, 200, "slingshot"),
    ("NVIDIA A100-SXM4-40GB", 4, "tcp_slingshot", "TCP sockets over the Slingshot NICs", "",
     "a100-4", "a100-sxm-40gb", 2, 200, "slingshot_ip"),
    ("NVIDIA GTX 1080 Ti", 8, "ib", PLX, "", "single-root-pcie3", None, 1, 56, IB),
    ("NVIDIA TitanX Pascal", 4, "ib", PLX, "",
     "single-root-pcie3", "titan-x-pascal", 1, 56, IB),
    ("NVIDIA H100", 4, "ib", "link speed not stated in source", "",
     "h100-4", None, 4, 200, IB),
    ("NVIDIA H100", 8, "efa", "EFA (32 adapters per node per manifest note)", "",
     "p5.48xlarge", None, 8, 400, "efa"),
    ("NVIDIA H100", 8, "gpudirect_tcpx", "GPUDirect-TCPX, 4 NICs eth1-4, 1 Tbps per VM", "",
     "a3-high", None, 4, 200, "tcpx"),
    ("NVIDIA H100", 8, "gpudirect_tcpxo", "GPUDirect-TCPXO; speed not stated next to table", "",
     "a3-mega", None, 8, 200, "tcpx"),
    ("NVIDIA H100 80GB HBM3", 1, "roce", "1 RoCE NIC (mlx5_5); 400 Gb/s class", "",
     "dgx-h100", None, 1, 400, "roce"),
    ("NVIDIA H200", 8, "roce", "RDMA (RoCE); speed not stated next to table", "",
     "dgx-h200", None, 8, 400, "roce"),
    ("NVIDIA L40S", 8, "pcie", "not stated in source", "", "l40s-8", None, None, None, None),
    ("NVIDIA RTX 2080 Ti", 2, "pcie", "PCIe Gen3 (bandwidthTest H2D 12.2 GB/s, no P2P)", "",
     "rtx2080ti-8", None, None, None, None),
    ("NVIDIA V100", 4, "nvlink_mesh", f"not stated in source; {MESH_TEXT}", "",
     "dgx-1v", None, None, None, None),
    ("Tesla V100-SXM2-16GB", 1, "tcp_eth", "gVNIC TCP, MTU 9k network; VM bandwidth cap not "
     "stated in source", "", "dgx-1v", None, 1, 10, "gvnic"),
    ("not stated", 1, "ib", "IB RDMA 100 Gb", "", "rack-100gbe", None, 1, 100, IB),
    ("not stated", 1, "tcp_eth", "TCP, speed not stated", "",
     "rack-100gbe", None, 1, 10, "ethernet"),
    ("not stated (GeForce)", 4, "pcie", "PCIe with P2P; generation not stated", "",
     "rack-100gbe", "rtx2080ti", None, None, None),
]  # fmt: skip


def check_network(cluster: dict[str, Any], count: int, gbits: float, kind: str) -> None:
    """`cluster` has `count` NICs a node of `kind`, each of `gbits` Gbit/s."""
    assert cluster["nics_per_node"] == count
    assert cluster["inter_node_bandwidth"] == f"{gbits:g} Gbit/s"
    assert cluster["inter_node_kind"] == kind


def of_training(row: tuple[Any, ...]) -> Platform:
    accelerator, gpus, intra, inter, gbits = row[:5]
    return platform(
        accelerator=accelerator,
        gpus_per_node=gpus,
        intra_node=intra,
        inter_node=inter,
        inter_gbits_s=gbits,
    )


def of_collectives(row: tuple[Any, ...]) -> Platform:
    accelerator, gpus, fabric, stated, machine = row[:5]
    return platform(
        accelerator=accelerator,
        gpus_per_node=gpus,
        inter_node=stated,
        fabric=fabric,
        machine=machine,
    )


ALL = [
    *((of_training, row, row[4]) for row in TRAINING),
    *((of_collectives, row, None) for row in COLLECTIVES),
]
NAMES = [f"{row[0]}, {row[3]}"[:70] for _, row, _ in ALL]


def test_the_table_is_large() -> None:
    assert len(ALL) > 60


@pytest.mark.parametrize(("read", "row", "_total"), ALL, ids=NAMES)
def test_what_a_text_means(read: Any, row: tuple[Any, ...], _total: Any) -> None:
    machine, device, nics, gbits, kind = row[5:]
    cluster = dict(read(row).cluster)
    assert cluster.pop("machine") == machine
    assert cluster.pop("gpus_per_node") == row[1]
    assert cluster.pop("device", None) == device
    assert cluster.pop("nics_per_node", None) == nics
    assert cluster.pop("inter_node_kind", None) == kind
    rate = cluster.pop("inter_node_bandwidth", None)
    assert rate == (None if gbits is None else f"{gbits} Gbit/s")
    assert not cluster


@pytest.mark.parametrize(("read", "row", "total"), ALL, ids=NAMES)
def test_the_machine_builds_and_a_node_sends_what_is_stated(
    read: Any, row: tuple[Any, ...], total: float | None
) -> None:
    found = read(row).cluster
    cluster = build(Cluster, {**found, "nodes": 2}, file=True)
    machine = load_machine(found["machine"])
    topology = machine.topology(
        2,
        gpus_per_node=cluster.gpus_per_node,
        nics_per_node=cluster.nics_per_node,
        inter_node_bandwidth=cluster.inter_node_bandwidth,
        inter_node_kind=cluster.inter_node_kind,
    )
    assert topology.ranks == 2 * row[1]
    if cluster.device is not None:
        assert load_device(cluster.device).name != machine.device.name
    cables = [
        link
        for a, b, link in topology.graph.edges(data="link")
        if a[:2] == ("nic", 0) and b[0] == "leaf"
    ]
    assert len(cables) == topology.nics
    if found.get("inter_node_kind"):
        assert {link.kind for link in cables} == {found["inter_node_kind"]}
    if total is not None:
        sent = sum(link.bandwidth for link in cables)
        assert sent == pytest.approx(total * 1e9 / 8, rel=0.01)


@pytest.mark.parametrize(("read", "row", "_total"), ALL, ids=NAMES)
def test_notes_are_sentences(read: Any, row: tuple[Any, ...], _total: Any) -> None:
    notes = read(row).notes
    assert len(set(notes)) == len(notes)
    assert all(re.match(r"^[A-Z0-9a-z].*\.$", note) for note in notes)


def test_a_complete_text_needs_no_note() -> None:
    found = platform(
        accelerator=SX4,
        gpus_per_node=8,
        intra_node="NVLINK 3.0, NVSWITCH 2.0 600GB/s",
        inter_node="8x ConnectX-6 IB HDR 200Gb/Sec",
        inter_gbits_s=1600,
    )
    assert found.notes == ()


def test_what_is_assumed_is_said() -> None:
    notes = " ".join(of_training(("NVIDIA V100", 8, "", "800 Gb/s per node", 800)).notes)
    for words in ("wiring", "board", "network is isn't stated", "number of NICs"):
        assert words in notes
    notes = " ".join(of_training((PCIE, 4, "PCIe", "10GbE, TCP/IP", 10)).notes)
    assert "RTX 2080 Ti stands in" in notes
    assert "v100-pcie-16gb" in notes
    assert (
        "effective" in of_training(("NVIDIA V100-SXM2-16GB", 8, CUBE, "40 GbE TCP", 4.1)).notes[0]
    )


def test_a_domain_over_several_trays_is_one_node() -> None:
    found = platform(
        accelerator="NVIDIA Blackwell GPU (GB200)",
        gpus_per_node=4,
        intra_node="NVLINK Gen5",
        inter_node="4x ConnectX-7 400 Gb/s",
        inter_gbits_s=1600,
    )
    assert found.cluster["machine"] == "gb200-nvl72"
    assert found.cluster["gpus_per_node"] == found.cluster["nics_per_node"] == 72
    assert found.cluster["inter_node_bandwidth"] == "400 Gbit/s"


def test_two_ports_of_every_nic_of_a_domain_make_its_rate() -> None:
    """The total beside them makes as many NICs as are counted."""
    found = platform(
        accelerator="NVIDIA Blackwell Ultra GPU (GB300)",
        gpus_per_node=4,
        inter_node="4x ConnectX-8 Ethernet NDR 2x400 Gb/s",
        inter_gbits_s=3200,
    )
    assert found.cluster["nics_per_node"] == 72
    assert found.cluster["inter_node_bandwidth"] == "800 Gbit/s"
    assert found.cluster["inter_node_kind"] == "roce"
    assert not any("makes" in note for note in found.notes)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("10 GbE", "ethernet"), ("25 Gbit/s TCP", "ethernet"), ("gVNIC", "gvnic"),
        ("IPoIB 56 Gb/s", "ipoib"), ("FDR InfiniBand, TCP sockets", "ipoib"),
        ("HDR", "infiniband"), ("4x NDR200", "infiniband"), ("RDMA 100 Gb/s", "infiniband"),
        ("2 x 25 GbE RDMA", "roce"), ("25Gbps VPC", "ethernet"), ("10 Gb/s", "ethernet"),
        ("Gigabit Ethernet", "ethernet"), ("EFAv1", "efa"), ("Intel OPA100", "omni_path"),
        ("100 Gb/s RoCEv2", "roce"), ("8x BlueField-3 (Spectrum-X)", "roce"),
        ("Omni-Path 100", "omni_path"), ("OPA", "omni_path"),
        ("4x Slingshot-11", "slingshot"), ("4x 100 Gb/s EFA", "efa"),
        ("GPUDirect-TCPX", "tcpx"), ("Fastrak", "tcpx"),
        # a generation beside Ethernet is the speed of its ports, unless InfiniBand is said
        ("4x ConnectX-8 Ethernet NDR 2x400 Gb/s", "roce"), ("8x ConnectX-7 RoCE NDR400", "roce"),
        ("8x ConnectX-7 NDR InfiniBand (Ethernet for storage)", "infiniband"),
        ("ConnectX-6 Ethernet HDR100", "ethernet"),
    ],
)  # fmt: skip
def test_every_kind_of_network_has_words(text: str, kind: str) -> None:
    found = platform(accelerator="H100 80GB SXM", gpus_per_node=8, inter_node=text)
    assert found.cluster["inter_node_kind"] == kind


@pytest.mark.parametrize(
    ("text", "nics", "gbits"),
    [
        ("two HDR NICs", 2, 200), ("1x dual-port NDR 400 Gb/s", 1, 400),
        ("8 × NDR 400 Gb/s", 8, 400), ("3.2 Tbps per node RoCE", 8, 400),
        ("400 Gbit/s per GPU InfiniBand", 8, 400), ("16x 200 Gb/s RoCE", 8, 400),
        ("1x 25GbE", 1, 25), ("2x100GbE TCP", 2, 100), ("4 EDR ports", 4, 100),
        ("EDR (100 Gb/s) x4", 4, 100), ("InfiniBand HDR100 x2", 2, 100), ("400 Gb NDR x8", 8, 400),
        ("dual-rail HDR InfiniBand", 2, 200), ("200Gb/s HDR IB (4 per node)", 4, 200),
        ("RoCE v2 over 100GbE, 2 ports", 2, 100), ("Slingshot 11, 4 NICs (200 Gb/s each)", 4, 200),
        ("Gigabit Ethernet", 1, 1), ("10 Gigabit Ethernet", 1, 10), ("EFA 3200 Gbps", 8, 400),
        ("EFA 400 Gbps", 4, 100), ("Mellanox ConnectX-5 100Gb", 1, 100), ("800 Gb/s", 2, 400),
        ("8x HDR running at EDR", 8, 100), ("4x ConnectX-7 configured as HDR InfiniBand", 4, 200),
        ("2x200 Gb/s ConnectX-6 Dx", 2, 200), ("8 x 25 GB/s NICs", 8, 200),
        ("200 GB/s (8 x 25 GB/s) InfiniBand", 8, 200), ("4x 200 GB/s InfiniBand", 4, 200),
        ("4x ConnectX-8 2x400 Gb/s", 4, 800), ("4x ConnectX-7 2x200 Gb/s RoCE", 4, 400),
        ("2x ConnectX-6 2x100GbE TCP", 2, 200), ("8x 400G (2x200G) RoCE", 8, 400),
        ("8 NICs per node of 400 Gb/s", 8, 400), ("4 NICs of 200 Gb/s per node", 4, 200),
        ("8 InfiniBand NICs, 2 Tb/s", 8, 200), ("a3-megagpu-8g, 1,800 Gbps TCPXO", 8, 200),
    ],
)  # fmt: skip
def test_counts_and_line_rates_are_read_from_the_text(text: str, nics: int, gbits: float) -> None:
    cluster = platform(accelerator="H100 80GB SXM", gpus_per_node=8, inter_node=text).cluster
    assert cluster["nics_per_node"] == nics
    assert cluster["inter_node_bandwidth"] == f"{gbits} Gbit/s"


@pytest.mark.parametrize("gbits", [1.0, 10.0, 56.0, 150.0, 400.0, 777.0, 1600.0, 3200.0])
@pytest.mark.parametrize("text", ["", "InfiniBand", "8x NDR", "4x 100 Gb/s", "2 links", "RoCE"])
@pytest.mark.parametrize("accelerator", ["V100-SXM2-16GB", "A100-PCIe-80GB", "H200", "P100-SXM2"])
def test_the_stated_total_always_holds(accelerator: str, text: str, gbits: float) -> None:
    found = platform(
        accelerator=accelerator, gpus_per_node=4, inter_node=text, inter_gbits_s=gbits
    ).cluster
    rate = float(found["inter_node_bandwidth"].split()[0])
    assert rate * found["nics_per_node"] == pytest.approx(gbits, rel=0.01)
    cluster = build(Cluster, {**found, "nodes": 2}, file=True)
    load_machine(found["machine"]).topology(2, nics_per_node=cluster.nics_per_node).graph  # noqa: B018


@pytest.mark.parametrize(
    ("accelerator", "gpus", "fabric", "field"),
    [
        ("CPU", 1, "ib", "accelerator"),
        ("NVIDIA A100", 8, "efa_cpu", "fabric"),
        ("Intel Xeon Phi 7250", 1, "opa", "accelerator"),
        ("Google TPU v3", 4, "", "accelerator"),
        ("AWS Trainium", 16, "efa", "accelerator"),
        ("not stated", 16, "pcie", "accelerator"),
        ("h1000", 8, "ib", "accelerator"),
        ("h100x", 8, "ib", "accelerator"),
        ("NVIDIA A1000", 8, "ib", "accelerator"),
        ("", 8, "ib", "accelerator"),
        ("NVIDIA A100-SXM4-80GB", 16, "ib", "gpus_per_node"),
        ("NVIDIA RTX 4090", 9, "ib", "gpus_per_node"),
    ],
)
def test_what_is_not_known_is_refused(accelerator: str, gpus: int, fabric: str, field: str) -> None:
    with pytest.raises(Refused) as caught:
        platform(accelerator=accelerator, gpus_per_node=gpus, fabric=fabric)
    assert caught.value.path == (field,)


@pytest.mark.parametrize(
    "accelerator",
    [
        "A100, Gadi", "H100 (HoreKa Teal)", "A40 (LUMI)", "RTX A6000, Summit Computing Ltd",
        "RTX 4090, Frontier Computing", "NVIDIA A100-SXM4-80GB, Perlmutter", "V100 (OLCF Summit)",
    ],
)  # fmt: skip
def test_machines_with_several_gpus_and_words_like_them_forbid_none(accelerator: str) -> None:
    assert platform(accelerator=accelerator, gpus_per_node=4).readings


@pytest.mark.parametrize(
    ("accelerator", "reason"),
    [
        ("Aurora (6 GPU cards / 12 tiles per node)", "Intel's Data Center GPU Max"),
        ("Habana HL-225", "Gaudi"), ("Ascend 910B", "Ascend"), ("D910", "Ascend"),
        ("trn1.32xlarge", "Trainium"), ("inf2.48xlarge", "Inferentia"), ("v3-8", "TPU v2 and v3"),
        ("Cloud TPU", "TPUs of which no version is told"), ("TPU pod", "TPUs of which no version"),
        ("MI300A", "MI300A"), ("El Capitan", "MI300A"), ("Graphcore IPU-POD16", "IPUs"),
        ("Frontera", "Quadro RTX 5000"), ("Piz Daint", "Aries"),
        ("Jean Zay", "several kinds"), ("ABCI", "several kinds"), ("NCSA Delta", "several kinds"),
        ("DGX-1", "several kinds"), ("p2.16xlarge, 16 V100", "hold K80s"),
        ("A100 g5.48xlarge", "hold A10Gs"), ("p5.48xlarge (A100)", "hold H100s"),
        ("H100 (Summit)", "its GPUs are V100s"), ("V100, Perlmutter", "its GPUs are A100s"),
        ("RTX 3090 (Jean Zay)", "its GPUs are V100s, A100s"), ("A100 (DGX-1)", "V100s and P100s"),
        ("A100 (Isambard-AI)", "its GPUs are GH200s"), ("Frontier, H100", "its GPUs are MI250Xs"),
        ("AMD Polaris", "no accelerator known"), ("Tesla P4", "no accelerator known"),
        ("CPUs of Frontier", "no accelerator known"),
    ],
)  # fmt: skip
def test_a_name_that_tells_no_accelerator_is_refused_by_it(accelerator: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        platform(accelerator=accelerator, gpus_per_node=4)


@pytest.mark.parametrize(
    ("machine", "fabric", "said", "gbits", "kind", "latency"),
    [
        ("LUMI (host memory MPI)", "cpu_slingshot", "", 200, "slingshot", None),
        ("MareNostrum 5", "cpu_ib", "UCX_MAX_RNDV_RAILS=1", 200, "infiniband", None),
        ("a cluster", "cpu_ib", "HDR", 200, "infiniband", None),
        ("a cluster", "cpu_ib", "link speed not stated", 100, "infiniband", None),
        ("GKE n1-standard-32 nodes", "cpu_tcp_eth", "gVNIC TCP", 32, "gvnic", "30 us"),
        ("AWS hpc6a.48xlarge", "efa_cpu", "EFA", 100, "efa", "16 us"),
    ],
)
def test_hosts_have_a_network_and_no_gpus(
    machine: str, fabric: str, said: str, gbits: float, kind: str, latency: str | None
) -> None:
    found = platform(
        accelerator="CPU host memory", gpus_per_node=1, inter_node=said, fabric=fabric,
        machine=machine, nodes=4, ranks=4,
    ).cluster  # fmt: skip
    assert found["machine"] == "rack-cpu"
    assert found["nics_per_node"] == 1
    assert found["inter_node_kind"] == kind
    assert found["inter_node_bandwidth"] == f"{gbits:g} Gbit/s"
    assert found.get("inter_node_latency") == latency


def test_words_that_name_no_network_are_shown() -> None:
    found = platform(accelerator="H200", gpus_per_node=8, inter_node="HyperX of the site")
    assert "nics_per_node" not in found.cluster
    assert "HyperX of the site" in found.notes[0]


def test_every_accelerator_and_node_of_the_vocabulary_exists() -> None:
    known, nodes = vocabulary().accelerators, vocabulary().nodes
    for family in (*known.families, known.geforce, known.any_gpu):
        assert family.boards[-1].guessed
        for board in family.boards:
            assert load_device(board.device).memory > 0
            for name in nodes.fitted[board.fitted]:
                gpus = nodes.machines[name].gpus
                assert load_machine(name).topology(2, gpus_per_node=gpus).ranks > 1
    assert {named.machine for named in nodes.platforms} <= set(machine_names())


def test_every_strategy_library_and_operation_of_the_vocabulary_exists() -> None:
    known = vocabulary()
    kinds = {rule.keys["kind"] for rule in known.strategies.kinds}
    assert kinds <= set(plugins.names("strategies"))
    assert set(known.strategies.switches) <= kinds
    assert set(known.collectives.libraries) <= set(plugins.names("backends"))
    assert not any(map(unmodelled, known.collectives.operations.values()))


@pytest.mark.parametrize(
    ("accelerator", "device"),
    [
        ("Tesla V100-PCIE-32GB", "v100-pcie-32gb"), ("A100 40GB PCIe", "a100-pcie-40gb"),
        ("H100 PCIe 80GB", "h100-pcie"), ("GH200 120GB", "gh200-96gb"), ("A10G", "a10g"),
        ("L4", "l4"), ("RTX 6000 Ada", "rtx-6000-ada"), ("Quadro RTX 6000", "rtx-6000"),
        ("TITAN V", "titan-v"), ("GTX TITAN X (Maxwell)", "titan-x-maxwell"), ("K40m", "k40"),
        ("Nvidia Tesla V100 32 GB", "v100-sxm2-32gb"), ("RTX 3090", "rtx3090"), ("MI210", "mi210"),
        ("P100 (NVLink)", "p100-sxm2-16gb"), ("Tesla P40", "p40"), ("H800", "h800-sxm"),
        # platforms that have one of the boards
        ("A100 (ND96amsr_A100_v4)", "a100-sxm-80gb"), ("A100 (ND96asr_v4)", "a100-sxm-40gb"),
        ("A100 (JUWELS Booster)", "a100-sxm-40gb"), ("A100 (a2-highgpu-8g)", "a100-sxm-40gb"),
        ("A100 (a2-ultragpu-8g)", "a100-sxm-80gb"), ("A100 (BM.GPU4.8)", "a100-sxm-40gb"),
        ("H100 (MareNostrum 5)", "h100-sxm-64gb"), ("A100 (Mahti)", "a100-sxm-40gb"),
        ("A100 (Snellius)", "a100-sxm-40gb"), ("V100 (Puhti)", "v100-sxm2-32gb"),
        ("A100 (Polaris)", "a100-sxm-40gb"),
        # machines of clouds that stand alone in the column
        ("g5.12xlarge", "a10g"), ("AWS g6.48xlarge", "l4"), ("p4de.24xlarge", "a100-sxm-80gb"),
        ("p5.48xlarge", "h100-sxm"), ("p6-b200.48xlarge", "b200"), ("a3-megagpu-8g", "h100-sxm"),
        ("a2-ultragpu-8g", "a100-sxm-80gb"), ("p4d.24xlarge", "a100-sxm-40gb"),
        ("Standard_NC96ads_A100_v4", "a100-pcie-80gb"), ("g2-standard-48", "l4"),
        ("p3.8x (AWS)", "v100-sxm2-16gb"), ("AWS P2.16xlarge (8 GPUs used)", "k80-gk210"),
        ("p3dn.24xl", "v100-sxm2-32gb"), ("AWS p4d", "a100-sxm-40gb"), ("p5 instances", "h100-sxm"),
        ("p5en", "h200"), ("G4dn.12x", "t4"), ("g6e", "l40s"), ("GCP A3 Mega VMs", "h100-sxm"),
        ("Standard_ND40rs_v2", "v100-sxm2-32gb"), ("Standard_ND96asr_v4", "a100-sxm-40gb"),
        ("p6-b300.48xlarge", "b300"), ("AWS g7e.48xl", "rtx-pro-6000"), ("p5e.48xlarge", "h200"),
        ("Standard_ND96isr_H200_v5", "h200"), ("g4-standard-384", "rtx-pro-6000"),
        ("a4x-highgpu-4g", "gb200"),
        # and other machines with a name of their own
        ("Cori GPU", "v100-sxm2-16gb"), ("ThetaGPU", "a100-sxm-40gb"), ("DGX-1V", "v100-sxm2-16gb"),
        ("Summit", "v100-sxm2-16gb"), ("Longhorn (TACC)", "v100-sxm2-16gb"),
        ("Marconi100", "v100-sxm2-16gb"), ("SDSC Expanse", "v100-sxm2-32gb"),
        ("Perlmutter", "a100-sxm-40gb"), ("JUWELS Booster", "a100-sxm-40gb"),
        ("Karolina", "a100-sxm-40gb"), ("Selene", "a100-sxm-80gb"), ("Leonardo", "a100-sxm-80gb"),
        ("MareNostrum 5", "h100-sxm-64gb"), ("TSUBAME4.0", "h100-sxm-94gb"), ("ABCI 3.0", "h200"),
        # machines with GPUs of several kinds, beside one of them
        ("A6000 on Delta", "rtx-a6000"), ("A5000 (Delta)", "rtx-a5000"),
        ("H100NVL (Delta)", "h100-nvl"), ("A100 (TPU baseline)", "a100-sxm-80gb"),
        ("p3.8xlarge x 2", "v100-sxm2-16gb"),
        ("JUPITER", "gh200-96gb"), ("Isambard-AI", "gh200-96gb"), ("LUMI-G", "mi250x"),
        ("OLCF Frontier", "mi250x"), ("TSUBAME 3.0", "p100-sxm2-16gb"),
    ],
)  # fmt: skip
def test_accelerators_by_name(accelerator: str, device: str) -> None:
    cluster = platform(accelerator=accelerator, gpus_per_node=4).cluster
    machine = load_machine(cluster["machine"])
    found = load_device(cluster["device"]) if "device" in cluster else machine.device
    assert found.name == load_device(device).name


@pytest.mark.parametrize(
    ("accelerator", "device"),
    [
        ("NVIDIA A10 22GB", "a10"), ("NVIDIA A10 23GB", "a10"), ("L4 22 GB", "l4"),
        ("T4 15GB", "t4"), ("L40S 44GB", "l40s"), ("L40S 46GB", "l40s"), ("A40 45GB", "a40"),
        ("K80 11GB", "k80-gk210"), ("Tesla K80 22GB", "k80-gk210"), ("RTX 3090 23GB", "rtx3090"),
        ("RTX A6000 47GB", "rtx-a6000"), ("RTX 5090 31GB", "rtx5090"), ("B200 178GB", "b200"),
        ("H200 139GB", "h200"), ("H200 140 GB", "h200"),
        # boards that differ in memory alone
        ("V100-SXM2 15GB", "v100-sxm2-16gb"), ("V100-SXM2 31GB", "v100-sxm2-32gb"),
        ("A100-SXM4 39GB", "a100-sxm-40gb"), ("A100-SXM4 79GB", "a100-sxm-80gb"),
        ("A100-SXM4 85GB", "a100-sxm-80gb"), ("H100 SXM 79GB", "h100-sxm"),
        ("H100 NVL 93GB", "h100-nvl"), ("H100 SXM 93GB", "h100-sxm-94gb"),
        ("H100 94GB HBM2e", "h100-sxm-94gb"), ("H100 SXM 95GB", "h100-sxm-96gb"),
        ("H100 (Snellius)", "h100-sxm-94gb"),
        # in MiB, and beside what is in use
        ("A100 40536MiB", "a100-sxm-40gb"), ("A100-SXM4 40960 MiB", "a100-sxm-40gb"),
        ("V100 32510MiB", "v100-sxm2-32gb"), ("H100 95830MiB", "h100-nvl"),
        ("A100-80GB (39 GB peak memory)", "a100-sxm-80gb"),
        ("A100-80GB (memory used: 39 GB)", "a100-sxm-80gb"),
        ("A100 80GB (using 40GB)", "a100-sxm-80gb"),
    ],
)  # fmt: skip
def test_memory_may_be_what_nvidia_smi_shows_of_it(accelerator: str, device: str) -> None:
    cluster = platform(accelerator=accelerator, gpus_per_node=4).cluster
    own = cluster.get("device")
    found = load_device(own) if own else load_machine(cluster["machine"]).device
    assert found.name == load_device(device).name


@pytest.mark.parametrize(
    "accelerator",
    ["A10 20GB", "V100 24GB", "V100 29GB", "A100 36GB", "A100 45GB", "A100 60GB", "H100 SXM 70GB",
     "RTX 3090 12GB"],
)  # fmt: skip
def test_memory_that_no_board_shows_is_refused(accelerator: str) -> None:
    with pytest.raises(Refused, match="no board is known with the memory"):
        platform(accelerator=accelerator, gpus_per_node=4)


@pytest.mark.parametrize(
    ("accelerator", "gpus", "machine", "device", "counted"),
    [
        ("AMD MI250X (LUMI)", 8, "mi250x-8", "mi250x-gcd", "GCDs"),
        ("MI250X", 8, "mi250x-8", "mi250x-gcd", "GCDs"),
        ("AMD Instinct MI250X 128GB", 8, "mi250x-8", "mi250x-gcd", "GCDs"),
        ("MI250X", 1, "mi250x-8", "mi250x-gcd", "GCDs"),
        ("AMD Instinct MI250", 8, "mi250x-8", "mi250-gcd", "GCDs"),
        ("MI250X (Frontier)", 4, "mi250x-4", "mi250x", "modules"),
        ("MI250", 4, "mi250x-4", "mi250", "modules"),
        # said, so nothing is assumed
        ("MI250X GCD", 4, "mi250x-8", "mi250x-gcd", ""),
        ("8x MI250X GCDs", 8, "mi250x-8", "mi250x-gcd", ""),
    ],
)
def test_gpus_of_mi250_are_gcds_unless_a_node_has_four(
    accelerator: str, gpus: int, machine: str, device: str, counted: str
) -> None:
    found = platform(accelerator=accelerator, gpus_per_node=gpus, intra_node="Infinity Fabric")
    chosen = load_machine(found.cluster["machine"])
    own = found.cluster.get("device")
    assert chosen.name == machine
    assert (load_device(own) if own else chosen.device).name == load_device(device).name
    told = [note for note in found.notes if note.startswith("GPUs are counted as")]
    assert bool(told) == bool(counted)
    assert not told or counted in told[0]


def test_an_unknown_accelerator_is_told_its_neighbours() -> None:
    with pytest.raises(Refused, match=r"the nearest are .*rtx5090"):
        platform(accelerator="GeForce RTX 5095", gpus_per_node=4)


@pytest.mark.parametrize("name", ["AMD Radeon Graphics", "NVIDIA Graphics Device", "Tachyum"])
def test_an_accelerator_unlike_any_is_told_none(name: str) -> None:
    """A Titan is no neighbour of a Radeon: a wrong name is worse than none."""
    with pytest.raises(Refused, match=r", nor one like it$"):
        platform(accelerator=name, gpus_per_node=8)


@pytest.mark.parametrize(("gpus", "machine"), [(4, "h100-4"), (8, "dgx-h100")])
def test_what_drivers_call_the_module_is_the_module(gpus: int, machine: str) -> None:
    """Cards are `NVIDIA H100 PCIe` and `NVIDIA H100 NVL` there; prose leaves the board open, and
    words on the inside of a node count for more than a name."""
    name = "NVIDIA H100 80GB HBM3"
    (found,) = platform(accelerator=name, gpus_per_node=gpus, nodes=1, ranks=gpus).readings
    assert found.cluster["machine"] == machine
    card = platform(accelerator="NVIDIA H100 PCIe", gpus_per_node=gpus, nodes=1, ranks=gpus)
    assert all(one.cluster["machine"] != machine for one in card.readings)
    for words in ({"accelerator": "H100"}, {"accelerator": "NVIDIA H100", "intra_node": "PCIe"}):
        open_ = platform(**words, gpus_per_node=gpus, nodes=1, ranks=gpus).readings
        assert any("pcie" in one.cluster["machine"] for one in open_)


@pytest.mark.parametrize(
    ("inside", "machine"),
    [
        ("", "rtx5090-8"), ("PCIe 5.0 x16", "rtx5090-8"), ("PCIe, no P2P", "rtx5090-8"),
        ("PCIe 4.0 x16", "rtx4090-8"), ("PCIe, P2P driver", "rack-pcie5"),
    ],
)  # fmt: skip
def test_a_geforce_of_blackwell_is_on_pcie_5(inside: str, machine: str) -> None:
    """A PCIe 5.0 x16 board; staged through the host as other GeForce cards, or with a patch not."""
    found = platform(accelerator="NVIDIA GeForce RTX 5090", gpus_per_node=8, intra_node=inside)
    assert found.cluster["machine"] == machine
    assert not any("is stated, and" in note for note in found.notes)


@pytest.mark.parametrize(
    "words",
    ["one 400 Gbit/s InfiniBand NIC per GPU", "4 x 400 Gbit/s InfiniBand, one NIC per GPU",
     "4 x 400 Gbit/s InfiniBand per node", "1600 Gbit/s InfiniBand per node", "InfiniBand"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["", "CoreWeave", "Nebius GB200 NVL72"])
def test_nics_of_a_tray_are_counted_once_in_a_rack(words: str, name: str) -> None:
    """A NIC for each GPU stays one where 18 trays are one domain, in whose cloud ever it is."""
    found = platform(
        accelerator="GB200", gpus_per_node=4, nodes=36, ranks=144, inter_node=words, machine=name
    )
    check_network(found.cluster, 72, 400, "infiniband")


@pytest.mark.parametrize("accelerator", ["NVIDIA H200", "NVIDIA B200"])
@pytest.mark.parametrize("gpus", [1, 8])
def test_one_nic_per_gpu_has_the_usual_rate(accelerator: str, gpus: int) -> None:
    found = platform(
        accelerator=accelerator, gpus_per_node=gpus, nodes=2, ranks=2 * gpus, fabric="roce",
        inter_node="one NIC per GPU",
    )  # fmt: skip
    check_network(found.cluster, 8, 400, "roce")


@pytest.mark.parametrize("words", ["16 RDMA ports per node", "8 RDMA NICs per node", "RDMA", ""])
@pytest.mark.parametrize("fabric", ["", "roce"])
def test_ports_of_a_platforms_nics_are_not_so_many_more(words: str, fabric: str) -> None:
    """BM.GPU4.8 has eight NICs of two ports, each of 100 Gbit/s; and RDMA is RoCE there."""
    found = platform(
        accelerator="NVIDIA A100-SXM4-40GB", gpus_per_node=8, nodes=2, ranks=16, fabric=fabric,
        inter_node=words, machine="OCI BM.GPU4.8",
    )  # fmt: skip
    check_network(found.cluster, 8, 200, "roce")
    assert not any("InfiniBand is taken" in note for note in found.notes)


@pytest.mark.parametrize("fabric", ["unknown", "unknown (not stated)", "unknown_internode", "n/a",
                                    "?", "-", "not stated"])  # fmt: skip
def test_a_network_that_is_not_known_is_one_that_is_not_stated(fabric: str) -> None:
    asked = {"accelerator": "H100-SXM5-80GB", "gpus_per_node": 8, "nodes": 2, "ranks": 16}
    untold = platform(**asked)
    for words in (fabric, ""):
        said = platform(**asked, fabric=fabric, inter_node=words)
        assert [(r.cluster, r.weight) for r in said.readings] == [
            (r.cluster, r.weight) for r in untold.readings
        ]


@pytest.mark.parametrize(
    "words", ["hsn0-hsn3", "Slingshot, hsn0,hsn1,hsn2,hsn3", "Slingshot 11 (hsn[0-3])", "hsn0 to 3"]
)
def test_interfaces_of_slingshot_are_counted(words: str) -> None:
    found = platform(accelerator="GH200", gpus_per_node=4, nodes=2, ranks=8, inter_node=words)
    check_network(found.cluster, 4, 200, "slingshot")


@pytest.mark.parametrize(("fabric", "told"), [("", True), ("roce", False), ("ib", False)])
def test_rdma_is_called_open_only_where_nothing_tells(fabric: str, told: bool) -> None:
    found = platform(
        accelerator="H100-SXM5-80GB", gpus_per_node=8, nodes=2, ranks=16, fabric=fabric,
        inter_node="8 RDMA NICs of 400 Gbit/s",
    )  # fmt: skip
    assert ("RDMA may be InfiniBand or RoCE; InfiniBand is taken." in found.notes) == told


def test_the_nodes_of_an_nvlink_domain_all_have_nics() -> None:
    """Of a network that nobody tells, one NIC for 72 GPUs is no reading; Ethernet is RoCE there."""
    gb200 = {"accelerator": "GB200", "gpus_per_node": 4, "nodes": 36, "ranks": 144}
    (alone,) = platform(**gb200).readings
    assert alone.cluster == {"machine": "gb200-nvl72", "gpus_per_node": 72}
    for words, kind in (("Ethernet", "roce"), ("TCP", "ethernet"), ("InfiniBand", "infiniband")):
        (found,) = platform(**gb200, inter_node=words).readings
        assert (found.cluster["nics_per_node"], found.cluster["inter_node_kind"]) == (72, kind)


@pytest.mark.parametrize(
    ("ranks", "each"),
    [(72, 72), (144, 72), (512, 64), (2560, 64), (1152, 72), (2496, 64), (76, 72)],
)
def test_nvlink_domains_of_which_not_all_is_used_have_as_many_each(ranks: int, each: int) -> None:
    """The fewest domains that allow it in whole servers, half full at least; of 76 none do."""
    (found,) = platform(
        accelerator="GB200", gpus_per_node=4, nodes=ranks // 4, ranks=ranks
    ).readings
    assert found.cluster["gpus_per_node"] == each
    assumed = [note for note in found.notes if "of each domain are assumed" in note]
    assert bool(assumed) == (each != 72)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("TCP", {"ethernet"}), ("sockets", {"ethernet"}), ("TCP/IP", {"ethernet"}),
        ("InfiniBand, TCP", {"ipoib"}), ("HDR InfiniBand; TCP sockets", {"ipoib"}),
        # the sockets of a board
        ("dual-socket", {None, "infiniband", "ethernet"}),
        ("2 sockets per node", {None, "infiniband", "ethernet"}),
    ],
)  # fmt: skip
def test_sockets_alone_are_those_of_ethernet(text: str, kinds: set[str | None]) -> None:
    found = platform(
        accelerator="A100-SXM4-80GB", gpus_per_node=8, inter_node=text, nodes=4, ranks=32
    )
    assert {reading.cluster.get("inter_node_kind") for reading in found.readings} == kinds


def test_a_platform_that_is_named_has_its_own_ethernet() -> None:
    """A p3.16xlarge has 25 Gbit/s, whatever other nodes of V100 have."""
    found = platform(accelerator="V100, p3.16xlarge", gpus_per_node=8, inter_node="Ethernet")
    assert found.cluster["inter_node_bandwidth"] == "25 Gbit/s"


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("CoreWeave", "100 GbE", "ethernet"), ("CoreWeave", "Ethernet", "ethernet"),
        ("Nebius", "2x25GbE", "ethernet"), ("CoreWeave", "RDMA", "infiniband"),
    ],
)  # fmt: skip
def test_ethernet_stays_ethernet_where_others_have_infiniband(
    name: str, text: str, kind: str
) -> None:
    found = platform(accelerator="H100", gpus_per_node=8, machine=name, inter_node=text, nodes=2)
    assert found.cluster["inter_node_kind"] == kind


@pytest.mark.parametrize("text", ["Ethernet", "TCP", "TCP over eth0, no InfiniBand"])
@pytest.mark.parametrize(
    "accelerator",
    [
        "V100 PCIe",
        "V100 SXM2",
        "A100 PCIe",
        "A100 SXM4",
        "RTX 3090",
        "T4",
        "K80",
        "L40S",
        "DGX A100",
    ],
)
def test_ethernet_of_which_no_rate_is_told_has_10_25_or_100_gbits_whatever_the_board(
    accelerator: str, text: str
) -> None:
    found = platform(accelerator=accelerator, gpus_per_node=4, inter_node=text, nodes=2, ranks=8)
    shares = dict.fromkeys(["10 Gbit/s", "25 Gbit/s", "100 Gbit/s"], 0.0)
    for reading in found.readings:
        shares[reading.cluster["inter_node_bandwidth"]] += reading.weight
        assert reading.cluster["nics_per_node"] == 1
        assert reading.cluster["inter_node_kind"] == "ethernet"
    assert min(shares.values()) >= 2 / 7


@pytest.mark.parametrize(
    ("accelerator", "text", "device", "gbits", "kind"),
    [
        ("P100 (Standard_NC24rs_v2)", "", "p100-pcie-16gb", 56, "infiniband"),
        ("P100 (Standard_NC24rs_v2)", "FDR InfiniBand", "p100-pcie-16gb", 56, "infiniband"),
        ("P100, NC24rs_v2", "TCP over eth0, no InfiniBand", "p100-pcie-16gb", 25, "ethernet"),
        ("P40 (Standard_ND24rs)", "InfiniBand", "p40", 56, "infiniband"),
        ("P40, Standard_ND24rs", "Ethernet", "p40", 25, "ethernet"),
        ("P40 (ND24s)", "", "p40", 25, "ethernet"),
        ("K80 (Standard_NC24r)", "", "k80-gk210", 56, "infiniband"),
        ("V100 (Standard_NC24rs_v3)", "TCP", "v100-pcie-16gb", 25, "ethernet"),
        ("V100 (Standard_NC24s_v3)", "", "v100-pcie-16gb", 25, "ethernet"),
        ("V100 (Standard_ND40rs_v2)", "TCP", "v100-sxm2-16gb", 24, "ethernet"),
    ],
)
def test_azures_older_sizes_are_cards_on_fdr_infiniband_or_25_gbits(
    accelerator: str, text: str, device: str, gbits: float, kind: str
) -> None:
    (found,) = platform(
        accelerator=accelerator, gpus_per_node=4, inter_node=text, nodes=4, ranks=16
    ).readings
    own = found.cluster.get("device")
    held = load_device(own) if own else load_machine(found.cluster["machine"]).device
    assert held.name == load_device(device).name
    check_network(found.cluster, 1, gbits, kind)


# -- read no better than it is ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "nics"),
    [
        # a count behind a line rate that has no unit
        ("Omni-Path 100 x2", (2, 100, "omni_path")), ("EFA 100 x4", (4, 100, "efa")),
        ("EDR 100 x2 InfiniBand", (2, 100, "infiniband")),
        ("Ethernet 100 x2", (2, 100, "ethernet")),
        ("Slingshot 200 x4", (4, 200, "slingshot")), ("RoCE 100 x 4", (4, 100, "roce")),
        # other spellings of rates; bits that are written as bytes
        ("10 GigE", (1, 10, "ethernet")), ("100GigE", (1, 100, "ethernet")),
        ("100GB InfiniBand", (1, 100, "infiniband")), ("10GB Ethernet", (1, 10, "ethernet")),
        ("10 GB/s Ethernet", (1, 10, "ethernet")),
        ("56 GB/s InfiniBand", (1, 56, "infiniband")),
        ("200 Gbytes/s per node", (8, 200, "infiniband")),
        # what holds a link down, and both ways together
        ("100GbE throttled to 10 Gbps", (1, 10, "ethernet")),
        ("100 Gb/s InfiniBand, bandwidth limited to 10 Gb/s with tc", (1, 10, "infiniband")),
        ("EDR full-duplex 200 Gb/s", (1, 100, "infiniband")), ("FDR10", (1, 40, "infiniband")),
        # ports of NICs, and of what serves them
        ("8x2x100 Gbps RoCE", (8, 200, "roce")), ("CX-6 Dx 2x100", (2, 100, "ethernet")),
        ("4x OSFP ports serving 8x single-port ConnectX-7 VPI 400Gb/s", (8, 400, "infiniband")),
        # one of them
        ("single HDR", (1, 200, "infiniband")), ("one HDR InfiniBand", (1, 200, "infiniband")),
        ("single ConnectX-7", (1, 400, "infiniband")),
        # what is there for something else, and a measurement in brackets
        ("25 GbE; 8x HDR (storage only)", (1, 25, "ethernet")),
        ("25 GbE | HDR InfiniBand (Lustre only)", (1, 25, "ethernet")),
        ("8x HDR (compute + storage)", (8, 200, "infiniband")),
        ("EDR (about 12 GB/s measured)", (1, 100, "infiniband")),
        # TCP over any wire
        ("ENA 400 Gbps", (2, 200, "ethernet")), ("8x200G Ethernet with Gloo", (8, 200, "ethernet")),
        ("100 Gb/s per socket InfiniBand", (1, 100, "infiniband")),
        # a limit is never more than what it limits
        ("8x NDR, running at 200 Gb/s per GPU", (8, 200, "infiniband")),
        ("8x HDR limited to 100 Gb/s per node", (1, 100, "infiniband")),
        ("4x HDR, capped to 100 Gb/s total", (1, 100, "infiniband")),
        ("8x HDR (full duplex 400 Gb/s)", (8, 200, "infiniband")),
        # words that take nothing away
        ("8 NICs connected to leaf switches, HDR", (8, 200, "infiniband")),
        ("4 HDR NICs, all 4 active", (4, 200, "infiniband")), ("4 HDR", (4, 200, "infiniband")),
        ("8x HDR (IB SHARP not used)", (8, 200, "infiniband")),
        ("8x HDR, not oversubscribed", (8, 200, "infiniband")),
        ("8x HDR with Lustre file system", (8, 200, "infiniband")),
        ("Gloo is used for barriers; NCCL over 8x HDR", (8, 200, "infiniband")),
        ("EDR, 50 x 8-GPU nodes", (1, 100, "infiniband")),
        # counts in brackets, in words, behind, by name and joined to what they count
        ("HDR100 (x2)", (2, 100, "infiniband")), ("HDR (x4)", (4, 200, "infiniband")),
        ("a pair of HDR100", (2, 100, "infiniband")), ("XDR 8x", (8, 800, "infiniband")),
        ("Four ConnectX-6 200GbE", (4, 200, "roce")), ("4X200G RoCE", (4, 200, "roce")),
        ("two Mellanox ConnectX-6 Dx 100GbE", (2, 100, "ethernet")),
        ("mlx5_0:1,mlx5_1:1,mlx5_4:1,mlx5_5:1 HDR", (4, 200, "infiniband")),
        ("4NIC*200Gb RoCE", (4, 200, "roce")), ("4-NIC 200G RoCE", (4, 200, "roce")),
        ("NIC: 8; speed: 400 Gb/s; type: InfiniBand", (8, 400, "infiniband")),
        ("2 NICs per GPU, 200G RoCE", (8, 400, "roce")), ("8x 200G", (8, 200, "infiniband")),
        # ports of each, in brackets and behind
        ("4x (2x100G) RoCE", (4, 200, "roce")), ("8 NICs (2x200G each) RoCE", (8, 400, "roce")),
        ("BlueField-3 2x200G (x8)", (8, 400, "roce")), ("200G*2*8 RoCE", (8, 400, "roce")),
        ("1x EDR (4X)", (1, 100, "infiniband")),
        ("4x HDR (4x200G)", (4, 200, "infiniband")), ("4x HDR (2x200G)", (4, 200, "infiniband")),
        ("4x OSFP (8x 400G InfiniBand)", (8, 400, "infiniband")),
        # lanes of a port and of a slot, models, switches, nodes and memory are no counts or rates
        ("EDR (4x)", (1, 100, "infiniband")), ("100GbE NIC (x16)", (1, 100, "ethernet")),
        ("4x 25 GbE ConnectX-4 Lx (x8)", (4, 25, "ethernet")),
        ("8x ConnectX-7/400Gb NDR", (8, 400, "infiniband")),
        ("two Mellanox SN2700 switches, 100GbE", (1, 100, "ethernet")),
        ("1.0T DRAM, 100 GbE", (1, 100, "ethernet")), ("2x 100GBase RoCE", (2, 100, "roce")),
        ("8x NDR, 2.0 T DDR5", (8, 400, "infiniband")),
        # Ethernet by its standards, limits of a queue, and what a NIC is said to reach
        ("GbE", (1, 1, "ethernet")), ("1000BASE-T", (1, 1, "ethernet")),
        ("100Gbase-SR4", (1, 100, "ethernet")), ("3.2T RoCE", (8, 400, "roce")),
        ("100GbE, tc rate limit 10Gbps", (1, 10, "ethernet")), ("24 GB/s RoCE", (1, 192, "roce")),
        # units in other cases, Ethernet's bytes that are bits, lanes, what brackets count
        ("100 GBit/s InfiniBand", (1, 100, "infiniband")),
        ("25 GBit Ethernet", (1, 25, "ethernet")),
        ("100 Gbs InfiniBand", (1, 100, "infiniband")), ("100 GB/s Ethernet", (1, 100, "ethernet")),
        ("4x QDR InfiniBand", (1, 40, "infiniband")), ("FDR 4x InfiniBand", (1, 56, "infiniband")),
        ("8x FDR InfiniBand", (8, 56, "infiniband")), ("NDR, one per node", (1, 400, "infiniband")),
        ("an EDR InfiniBand HCA", (1, 100, "infiniband")),
        ("dual Omni-Path", (2, 100, "omni_path")),
        ("8x HDR 200 Gb/s bidirectional", (8, 200, "infiniband")),
        ("NDR 400Gb/s bidirectional x 8", (8, 400, "infiniband")),
        # two networks, of which one is in use
        ("8x HDR with 10GbE", (8, 200, "infiniband")), ("8x IB; 25GbE", (8, 200, "infiniband")),
        ("10GbE as well as 8x HDR InfiniBand", (8, 200, "infiniband")),
        ("eth0: 10G, 8x NDR", (8, 400, "infiniband")),
        ("25GbE, 8x ConnectX-7", (8, 400, "infiniband")),
        ("25GbE, ConnectX-5", (1, 25, "ethernet")),
        ("2x 25GbE, 2x ConnectX-5", (2, 25, "ethernet")),
        ("EDR InfiniBand and 10 Gb Ethernet; results over Ethernet", (1, 10, "ethernet")),
        ("10 Gb Ethernet (used) and EDR", (1, 10, "ethernet")),
        # what else is used beside it, or by others
        ("8x HDR; 10 GbE was used for storage", (8, 200, "infiniband")),
        ("8x HDR InfiniBand; the 100GbE was used by storage", (8, 200, "infiniband")),
        ("8x HDR; NCCL 2.18 was used", (8, 200, "infiniband")),
        ("8x HDR; SHARP was used", (8, 200, "infiniband")),
        ("8x HDR; TCP was used", (8, 200, "ipoib")),
        # one rate twice; links that are full duplex, as all are
        ("Omni-Path 100 - 100 Gb/s", (1, 100, "omni_path")),
        ("ConnectX-6 InfiniBand 100 Gb/s full duplex", (1, 100, "infiniband")),
    ],
)  # fmt: skip
def test_a_network_is_read_no_better_than_it_is(text: str, nics: tuple[int, float, str]) -> None:
    (found,) = platform(
        accelerator="A100 SXM4 80GB", gpus_per_node=8, intra_node="NVSwitch", inter_node=text,
        nodes=4, ranks=32,
    ).readings  # fmt: skip
    check_network(found.cluster, *nics)


@pytest.mark.parametrize(
    "text",
    [
        "8x HDR (IB not used, TCP over eth0 10G)",
        "8x HDR, but NCCL used the 10GbE management network", "8x HDR200 (2 of them active)",
        "8x HDR of which 4 are connected", "8x HDR, 4 cabled",
        "8 HDR ports, NCCL uses mlx5_0 only", "NDR 400 split to 2x200", "Soft-RoCE 100GbE",
        "Cray Aries", "WiFi 6", "25-100 Gbps", "10/100 Gbps", "100/25 Gb",
        "HDR200, effective 180 Gb/s", "every pair of HDR ports", "half-bisection 8x NDR",
        "8x HDR, pruned fat tree", "8x HDR 2-to-1", "8x HDR; NCCL_IB_HCA=mlx5_0",
        "8 HDR NICs; NCCL_IB_HCA=mlx5_0",
        "8x HDR; NCCL_IB_HCA=mlx5_0,mlx5_1", "HDR, GDR off",
        "1,600–3,200 Gbit/s InfiniBand",
    ],
)  # fmt: skip
def test_a_network_that_is_not_what_it_names_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="inter_node"):
        platform(accelerator="A100 SXM4 80GB", gpus_per_node=8, inter_node=text, nodes=4, ranks=32)


@pytest.mark.parametrize(
    ("accelerator", "text", "nics"),
    [
        ("DGX-1 V100", "FDR InfiniBand", (4, 56, "infiniband")),
        ("DGX A100", "EDR", (8, 100, "infiniband")),
        ("DGX A100", "single HDR", (1, 200, "infiniband")),
        ("DGX A100", "HDR InfiniBand", (8, 200, "infiniband")),
        ("DGX A100", "10 GigE", (1, 10, "ethernet")),
        ("DGX H100", "NDR200 InfiniBand", (8, 200, "infiniband")),
        ("DGX H100", "Quantum-2", (8, 400, "infiniband")),
        ("DGX A100", "NDR", (1, 400, "infiniband")),
        ("A100 a2-highgpu-8g", "", (1, 100, "gvnic")),
        ("A100 a2-ultragpu-8g", "100 Gbps", (1, 100, "gvnic")),
        ("H100 BM.GPU.H100.8", "", (8, 400, "roce")),
        ("A100 p4d.24xlarge", "Ethernet, 400 Gbps", (2, 200, "ethernet")),
        ("H100 BM.GPU.H100.8", "16 NICs", (8, 400, "roce")),
        ("DGX H100", "4x OSFP NDR (8x400)", (8, 400, "infiniband")),
        ("A100 BM.GPU4.8", "16 RDMA VFs per node", (8, 200, "roce")),
        ("H100", "Nebius 8gpu-128vcpu-1600gb InfiniBand", (8, 400, "infiniband")),
        ("V100 SXM2", "n1-standard-96, 32 Gbps", (1, 32, "ethernet")),
        ("MI250X", "LUMI, Slingshot-11, 200 Gb/s", (4, 200, "slingshot")),
        ("MI250X", "Setonix", (4, 200, "slingshot")),
        ("H200", "ABCI 3.0", (8, 200, "infiniband")),
    ],
)  # fmt: skip
def test_a_platforms_name_leaves_what_is_said_of_its_network(
    accelerator: str, text: str, nics: tuple[int, float, str]
) -> None:
    found = platform(accelerator=accelerator, gpus_per_node=8, inter_node=text, nodes=4, ranks=32)
    check_network(found.cluster, *nics)


@pytest.mark.parametrize(
    ("accelerator", "gbits"),
    [
        ("H100 (p5.4xlarge)", 100), ("H100 (a3-highgpu-1g)", 25), ("T4 g4dn.xlarge", 25),
        ("A10G g5.xlarge", 10), ("L4 g6.xlarge", 10), ("V100 p3.8xlarge", 10),
        ("L40S g6e.12xlarge", 100), ("A100 (NC24ads_A100_v4)", 20), ("A100 (a2-highgpu-4g)", 50),
    ],
)  # fmt: skip
def test_smaller_sizes_of_a_clouds_type_have_networks_of_their_own(
    accelerator: str, gbits: float
) -> None:
    found = platform(accelerator=accelerator, gpus_per_node=1, nodes=4, ranks=4)
    assert found.cluster["nics_per_node"] == 1
    assert found.cluster["inter_node_bandwidth"] == f"{gbits:g} Gbit/s"


@pytest.mark.parametrize(
    ("accelerator", "inside", "machine"),
    [
        ("A100", "paired by NVLink", "rack-pcie4"), ("A100", "NVLink (pair)", "rack-pcie4"),
        ("A100", "NVLink islands of 2", "rack-pcie4"), ("A100", "PHB/SYS", "rack-pcie4"),
        ("A100", "each pair of GPUs connected by NVLink", "rack-pcie4"),
        ("A100", "NVLink only between GPUs 0-1, 2-3", "rack-pcie4"),
        ("A100", "NVLink, 50 GB/s per pair", "dgx-a100"), ("H100", "2-way NVLink", "h100-nvl-8"),
        ("A100", "NVLink between all pairs of GPUs", "dgx-a100"),
        ("V100 SXM2", "NVLink (double links between pairs)", "dgx-1v"),
        ("V100 SXM2", "HGX-1 hybrid cube mesh", "dgx-1v"), ("8x A100 SXM4", "", "dgx-a100"),
        ("H100 (a3-highgpu-8g)", "", "a3-high"), ("A100 80GB PCIe", "NV12 pairs", "rack-pcie4"),
        ("H100", "NV18", "dgx-h100"), ("RTX 3090", "NVLink", "rtx3090-8"),
        ("RTX A6000", "NVLink", "a6000-8"), ("A40", "NV4", "a40-8"), ("RTX 3090", "", "rtx4090-8"),
        # bridges of Turing
        ("RTX 2080 Ti", "NVLink bridge", "rtx2080ti-8-bridged"), ("RTX 2080 Ti", "", "rtx2080ti-8"),
        ("TITAN RTX", "NVLink over pairs", "rtx2080ti-8-bridged"),
        ("Quadro RTX 6000", "NVLink", "rtx-6000-8"), ("Quadro RTX 8000", "NV2", "rtx-6000-8"),
        ("Quadro RTX 8000", "PCIe 3.0", "rack-100gbe"),
    ],
)  # fmt: skip
def test_nvlink_is_where_it_is_said_to_be(accelerator: str, inside: str, machine: str) -> None:
    found = platform(
        accelerator=accelerator, gpus_per_node=8, intra_node=inside, inter_node="1x HDR"
    )
    assert found.cluster["machine"] == machine


@pytest.mark.parametrize("text", ["rail-optimized fat tree", "SuperPOD fabric", "cluster network"])
def test_words_on_the_shape_of_a_network_leave_a_platforms_own(text: str) -> None:
    (found,) = platform(
        accelerator="DGX H100", gpus_per_node=8, inter_node=text, nodes=4, ranks=32
    ).readings
    assert found.cluster == {"machine": "dgx-h100", "gpus_per_node": 8}


def test_a_gpus_memory_is_no_rate() -> None:
    found = platform(
        accelerator="A100 SXM4",
        gpus_per_node=8,
        inter_node="A100 40GB InfiniBand",
        nodes=4,
        ranks=32,
    )
    assert {r.cluster["inter_node_bandwidth"] for r in found.readings} == {"200 Gbit/s"}


def test_clusters_with_a_name_have_their_own_count_of_nics() -> None:
    for accelerator, text, gbits in (
        ("A100 (Leonardo)", "HDR100", 100),
        ("A100 JUWELS Booster", "HDR", 200),
    ):
        found = platform(
            accelerator=accelerator, gpus_per_node=4, inter_node=text, nodes=4, ranks=16
        )
        assert found.cluster["nics_per_node"] == 4
        assert found.cluster["inter_node_bandwidth"] == f"{gbits} Gbit/s"


def test_a_board_of_four_has_no_nvswitch() -> None:
    for accelerator, machine in (("HGX A100 4-GPU", "a100-4"), ("HGX H100 4-GPU", "h100-4")):
        assert platform(accelerator=accelerator, gpus_per_node=4).cluster["machine"] == machine


@pytest.mark.parametrize(
    ("accelerator", "inside"),
    [
        ("GB200 NVL4", ""), ("GB200", "NVL4"), ("GB200 NVL36", ""), ("GH200 NVL32", ""),
        ("H200", "NVLink bridge"), ("H200 PCIe", ""), ("A800", "NVLink bridge"), ("B200 PCIe", ""),
        ("MI300X PCIe", ""),
    ],
)  # fmt: skip
def test_nodes_that_no_machine_stands_for_are_refused(accelerator: str, inside: str) -> None:
    with pytest.raises(Refused, match=r"known|not modelled"):
        platform(accelerator=accelerator, gpus_per_node=4, intra_node=inside, nodes=18, ranks=72)


@pytest.mark.parametrize(
    ("gpus", "ranks", "share"),
    # of systems in MLPerf's results: several nodes of eight, one of eight, nodes of fewer
    [(8, 128, 69 / 71), (8, 8, 37 / 48), (4, 16, 1 / 2)],
)
def test_a_board_that_is_nowhere_told_is_a_module_as_often_as_in_mlperfs_results(
    gpus: int, ranks: int, share: float
) -> None:
    found = platform(accelerator="NVIDIA A100-80GB", gpus_per_node=gpus, ranks=ranks).readings
    weights = {one.answers["board"].name: one.answers["board"].weight for one in found}
    assert weights["module"] / sum(weights.values()) == pytest.approx(share)
    assert found[0].answers["board"].name == "module"


@pytest.mark.parametrize(
    ("accelerator", "gpus", "shares"),
    # of published systems with eight modules on each of several nodes; equal elsewhere
    [
        ("NVIDIA H100-SXM5-80GB", 8, [34 / 42, 5 / 42, 3 / 42]),
        ("NVIDIA A100-SXM4-40GB", 4, [1 / 3, 1 / 3, 1 / 3]),
    ],
)
def test_a_network_that_is_nowhere_told_is_as_often_the_usual_one_as_where_it_is(
    accelerator: str, gpus: int, shares: list[float]
) -> None:
    found = platform(accelerator=accelerator, gpus_per_node=gpus, nodes=2, ranks=2 * gpus).readings
    assert [one.answers["network"].name for one in found] == ["own", "one", "tcp"]
    assert [one.weight for one in found] == pytest.approx(shares)


@pytest.mark.parametrize(
    ("accelerator", "gpus", "network"),
    [
        ("V100 (Jean Zay)", 4, (4, 100, "omni_path")),
        ("H100 (Jean Zay)", 4, (4, 400, "infiniband")),
        ("V100 (Summit)", 6, (2, 100, "infiniband")),
        ("MI300X (ND MI300X v5)", 8, (8, 400, "infiniband")),
        ("MI250X (LUMI-G)", 8, (4, 200, "slingshot")),
        ("MI250X, Frontier", 8, (4, 200, "slingshot")),
        ("A100 (Mahti)", 4, (1, 200, "infiniband")),
        ("V100 (Puhti)", 4, (2, 100, "infiniband")),
        ("A100 (Leonardo)", 4, (4, 100, "infiniband")),
        ("A100 (JUWELS Booster)", 4, (4, 200, "infiniband")),
        ("A100 (Snellius)", 4, (2, 200, "infiniband")),
        ("H100 (Snellius)", 4, (4, 200, "infiniband")),
        ("H100 (MareNostrum5)", 4, (4, 200, "infiniband")),
        ("A100 (Perlmutter)", 4, (4, 200, "slingshot")),
        ("A100 (Polaris)", 4, (2, 200, "slingshot")),
    ],
)
def test_platforms_have_networks_of_their_own(
    accelerator: str, gpus: int, network: tuple[int, float, str]
) -> None:
    cluster = platform(accelerator=accelerator, gpus_per_node=gpus, nodes=4, ranks=4 * gpus).cluster
    check_network(cluster, *network)


def test_summit_has_six_and_it_is_told_what_stands_in() -> None:
    found = platform(accelerator="Summit", gpus_per_node=6, nodes=2, ranks=12)
    assert found.cluster["machine"] == "dgx-1v"
    assert "three to a socket, is taken as six of a DGX-1V" in found.notes[0]
    assert not any("wiring" in note for note in found.notes)
    four = platform(accelerator="Summit", gpus_per_node=4, nodes=2, ranks=8)
    assert four.cluster["machine"] == "v100-4"


def test_another_generation_of_pcie_than_the_machines_is_told() -> None:
    said = [
        platform(accelerator="RTX 4090", gpus_per_node=8, intra_node=f"PCIe {n}.0 x16").notes
        for n in (4, 5)
    ]
    told = "PCIe 5 is stated, and rtx4090-8 has PCIe 4, which is taken."
    assert told in said[1]
    assert not any("is stated, and" in note for note in said[0])


@pytest.mark.parametrize(
    ("accelerator", "gpus", "inter_node", "device", "nics"),
    [
        ("NVIDIA H100 94GB (Snellius)", 4, "", "h100-sxm-94gb", (4, 200, "infiniband")),
        ("H100 94GB", 4, "TSUBAME 4.0 4x NDR200", "h100-sxm-94gb", (4, 200, "infiniband")),
        ("NVIDIA A100 SXM 64GB (Leonardo)", 4, "", "a100-sxm-80gb", (4, 100, "infiniband")),
        ("GH200 120GB (Alps)", 4, "", "gh200-96gb", (4, 200, "slingshot")),
        ("V100 32GB", 4, "ABCI Compute Node (V)", "v100-sxm2-32gb", (2, 100, "infiniband")),
        ("H100 NVL", 2, "Standard_NC80adis_H100_v5", "h100-nvl", (1, 80, "ethernet")),
        ("A100 80GB", 4, "Standard_NC96ads_A100_v4", "a100-pcie-80gb", (1, 80, "ethernet")),
        ("DGX Spark", 1, "ConnectX-7 200GbE direct", "gb10", (1, 200, "roce")),
    ],
)
def test_a_named_machine_has_its_board_and_its_network(
    accelerator: str, gpus: int, inter_node: str, device: str, nics: tuple[int, float, str]
) -> None:
    found = platform(
        accelerator=accelerator, gpus_per_node=gpus, inter_node=inter_node, nodes=2, ranks=2 * gpus
    )
    machine = load_machine(found.cluster["machine"])
    own = found.cluster.get("device")
    assert (load_device(own) if own else machine.device) == load_device(device)
    check_network(found.cluster, *nics)


@pytest.mark.parametrize("card", ["RTX A6000 (NVLink)", "A40 with NVLink", "RTX 3090 NVLink"])
def test_a_card_that_says_nvlink_is_bridged_in_pairs(card: str) -> None:
    found = platform(accelerator=card, gpus_per_node=2, inter_node="100GbE", nodes=2, ranks=4)
    (name,) = {reading.cluster["machine"] for reading in found.readings}
    assert vocabulary().nodes.machines[name].wiring == "pairs"
