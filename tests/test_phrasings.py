"""How hardware is written elsewhere, and how it is read.

Phrasings after cloud pages, MLPerf system files, headers of nccl-tests, issue threads and READMEs;
what is expected was written down by hand, beside each, before the reader saw it.
"""

from __future__ import annotations

import pytest

from dpsim.accuracy.platforms import MachineReading, bare_case, platform
from dpsim.accuracy.strayed import from_accelerator
from dpsim.backends._nccl_graph import graph_of
from dpsim.core.record import Refused
from dpsim.machines.machine import load_device, load_machine

IB, ETH = "infiniband", "ethernet"
A100, H100, H200, B200 = "A100-SXM4-80GB", "H100-SXM5-80GB", "H200-SXM5-141GB", "NVIDIA B200"

#: text on the network between nodes of 8 H100 SXM → NICs, Gbit/s of each, kind
NETWORKS: list[tuple[str, int, float, str]] = [
    ("3.2 Tbps InfiniBand", 8, 400, IB),
    ("8x 400 Gb/s InfiniBand NDR (ConnectX-7)", 8, 400, IB),
    ("NVIDIA Quantum-2 InfiniBand, 8 NDR ports per node", 8, 400, IB),
    ("400 Gbps per GPU NVIDIA Quantum-2 CX7 InfiniBand", 8, 400, IB),
    ("RoCEv2 8x400G", 8, 400, "roce"),
    ("RoCE v2, 8 x 200 GbE", 8, 200, "roce"),
    ("four 200Gb RoCEv2 NICs", 4, 200, "roce"),
    ("8 *100 Gbps network nic, RoCE", 8, 100, "roce"),
    ("IB 200Gb * 4 (dual port)", 4, 200, IB),
    ("8x HDR200", 8, 200, IB),
    ("4x EDR", 4, 100, IB),
    ("dual-rail EDR InfiniBand", 2, 100, IB),
    ("quad-rail HDR100", 4, 100, IB),
    ("2-rail HDR InfiniBand", 2, 200, IB),
    ("single-rail FDR", 1, 56, IB),
    ("2x HDR dual port mezzanine", 2, 200, IB),
    ("1x 100Gb IB HDR ConnectX-6 SP", 1, 100, IB),
    ("2x 25GbE Mellanox ConnectX-4 DP", 2, 25, ETH),
    ("gigabit Ethernet", 1, 1, ETH),
    ("10GBASE-T", 1, 10, ETH),
    ("100 GbE, TCP", 1, 100, ETH),
    ("25 Gbit/s Ethernet", 1, 25, ETH),
    ("12.5 GB/s Ethernet over TCP sockets", 1, 100, ETH),
    ("25 GB/s per NIC, 8 NICs, InfiniBand", 8, 200, IB),
    ("50 GB/s bidirectional per NIC, 8 InfiniBand NICs", 8, 200, IB),
    ("200 GB/s per node InfiniBand", 4, 400, IB),
    ("400 GB/s aggregate bidirectional InfiniBand", 4, 400, IB),
    ("one ConnectX-7 400 Gb/s per GPU, RoCE", 8, 400, "roce"),
    ("Slingshot-11, 4x 200 Gb/s", 4, 200, "slingshot"),
    ("4 HPE Slingshot 11 NICs", 4, 200, "slingshot"),
    ("HPE Slingshot 10, 2 NICs", 2, 100, "slingshot"),
    ("2x Intel Omni-Path 100 Series HFI", 2, 100, "omni_path"),
    ("GPUDirect-TCPXO, 8x 200 Gbps", 8, 200, "tcpx"),
    ("GPUDirect-TCPX, 4 x 200 Gbps", 4, 200, "tcpx"),
    ("EFAv2, 3200 Gbps per instance", 8, 400, "efa"),
    ("32x 100 Gbps EFA network cards", 8, 400, "efa"),
    ("3,200 Gbps of EFA networking", 8, 400, "efa"),
    ("Elastic Fabric Adapter, 400 Gbps of networking bandwidth per instance", 4, 100, "efa"),
    ("1x Ethernet 80Gb/Sec, 8x NVIDIA NDR (400Gb/s)", 8, 400, IB),
    ("Management: 1x Bluefield-2 DPU Ethernet 100Gb/Sec, Compute: 8x ConnectX-7 InfiniBand NDR "
     "400Gb/Sec", 8, 400, IB),
    ("Storage: 2x BF3 ConnectX-7 400Gb/s, Compute: 8x BF3 ConnectX-7 400Gb/s", 8, 400, "roce"),
    ("Infiniband, Ethernet | 8x 200Gbe Infiniband, 2x 10GbE Ethernet", 8, 200, IB),
    ("2x BlueField-3 400 Gb/s east-west, 1x 200 Gb/s north-south", 2, 400, "roce"),
    ("8 x 400 Gb/s Ethernet (Spectrum-X)", 8, 400, "roce"),
    ("8x400GbE", 8, 400, "roce"),
    ("IPoIB over 1x EDR", 1, 100, "ipoib"),
    ("NCCL over TCP sockets, 2 x 100 GbE", 2, 100, ETH),
    ("gVNIC, 100 Gbps", 1, 100, "gvnic"),
    ("4x ConnectX-6 HDR 200Gb/s on PCIe 4.0 x16", 4, 200, IB),
    ("8x Thor 2 400G RoCE", 8, 400, "roce"),
    ("osu_bw measured 24.5 GB/s; 8x HDR", 8, 200, IB),
    # what InfiniBand is too fast for, two networks, and one that is idle
    ("100 Mbps", 1, 0.1, ETH),
    ("10 GbE, EDR", 1, 100, IB),
    ("EDR, 10 GbE", 1, 100, IB),
    ("NCCL_SOCKET_IFNAME=eth0 10 Gbit/s; IB 100 Gbit/s idle", 1, 10, ETH),
    ("8x 100 Gb/s InfiniBand (800 Gb/s per node)", 8, 100, IB),
    # what a rate is of, wherever it is said
    ("each GPU has 100 Gbit/s InfiniBand", 8, 100, IB),
    ("per GPU: 100 Gbit/s InfiniBand", 8, 100, IB),
    ("100Gb/s (per GPU) InfiniBand", 8, 100, IB),
    ("InfiniBand, 100Gb/s (per GPU)", 8, 100, IB),
    ("InfiniBand, 100Gb/s, per GPU", 8, 100, IB),
    ("per-GPU 100Gb/s InfiniBand", 8, 100, IB),
    ("InfiniBand HDR (200 Gb/s) each GPU", 8, 200, IB),
    ("per-node 400 Gb/s InfiniBand", 1, 400, IB),
    ("each node has 800 Gb/s InfiniBand", 2, 400, IB),
    ("8x HDR-100", 8, 100, IB),
    ("4x NDR-200", 4, 200, IB),
    ("500 Mbps", 1, 0.5, ETH),
    ("every GPU has its own 200 Gb/s RoCE NIC", 8, 200, "roce"),
    ("800 Gb/s InfiniBand (per node)", 2, 400, IB),
    ("100 Gbit/s/NIC x 4, InfiniBand", 4, 100, IB),
    ("200 Gb/s per NIC x 8, InfiniBand", 8, 200, IB),
    # a node's total, and its count beside it
    ("1600Gbps RoCEv2 (8 x 200)", 8, 200, "roce"),
    ("1600 Gb/s (8 NICs)", 8, 200, IB),
    ("400G (2x200G)", 2, 200, IB),
    ("400 Gb/s RoCE (4 x 100)", 4, 100, "roce"),
    ("1600 Gb/s over 8 NICs", 8, 200, IB),
    ("1600 Gb/s RoCE, 8 NICs", 8, 200, "roce"),
    ("8 NICs, 1600 Gb/s InfiniBand", 8, 200, IB),
    ("8x200G (1600 Gb/s) RoCE", 8, 200, "roce"),
    ("100 GbE (4 x 25)", 4, 25, ETH),
    ("800 Gb/s HDR InfiniBand (4x200)", 4, 200, IB),
    ("3200 Gbps (8x400 NDR)", 8, 400, IB),
    ("400 Gb/s InfiniBand (8 NICs)", 8, 400, IB),
    ("8 NICs of 400 Gb/s, InfiniBand", 8, 400, IB),
    # what the network is not
    ("no InfiniBand, 100 GbE", 1, 100, ETH),
    ("100 GbE, no InfiniBand", 1, 100, ETH),
    ("not InfiniBand; 25 GbE", 1, 25, ETH),
    ("not InfiniBand but 25 GbE", 1, 25, ETH),
    ("25 GbE instead of InfiniBand", 1, 25, ETH),
    ("InfiniBand disabled, 10GbE used", 1, 10, ETH),
    ("10GbE used, 8x HDR InfiniBand disabled", 1, 10, ETH),
    ("25 GbE (InfiniBand not used)", 1, 25, ETH),
    ("40 GbE without RDMA", 1, 40, ETH),
    ("100 GbE, RDMA off", 1, 100, ETH),
    ("4x 100 GbE, no RDMA", 4, 100, ETH),
    ("100 Gb/s RoCE disabled", 1, 100, ETH),
    ("8x 100 GbE, no RoCE", 8, 100, ETH),
    ("1x HDR InfiniBand without RDMA", 1, 200, "ipoib"),
    ("8x NDR, non-blocking", 8, 400, IB),
    ("not RoCE but InfiniBand 8x HDR", 8, 200, IB),
    ("8x HDR InfiniBand, no RoCE", 8, 200, IB),
    ("8x HDR, NCCL_IB_DISABLE=1", 8, 200, "ipoib"),
    ("IB isn't used; 100 GbE", 1, 100, ETH),
    # networks that GPUs exchange nothing over
    ("Storage fabric 8x400G IB / compute fabric 4x100G RoCE", 4, 100, "roce"),
    ("compute fabric 4x100G RoCE / storage fabric 8x400G IB", 4, 100, "roce"),
    ("100 GbE (storage 8x200G IB not used)", 1, 100, ETH),
    ("100 GbE (storage: 8x HDR)", 1, 100, ETH),
    ("IB only for storage (8x HDR); training over 10GbE", 1, 10, ETH),
    # numbers in words
    ("ten gigabit ethernet", 1, 10, ETH),
    ("twenty-five gigabit Ethernet", 1, 25, ETH),
    ("one hundred gigabit Ethernet", 1, 100, ETH),
    ("sixteen 25 GbE", 8, 50, "roce"),
    ("eight 200G RoCE", 8, 200, "roce"),
    ("four HDR", 4, 200, IB),
    ("dual 25 Gb Ethernet", 2, 25, ETH),
]  # fmt: skip

#: accelerator, GPUs a node, inside the node, the platform's name → machine and device
NODES: list[tuple[str, int, str, str, str, str]] = [
    ("NVIDIA A100 80GB PCIe", 4, "", "", "a100-pcie-4", "a100-pcie-80gb"),
    ("A100-PCIE-40GB", 8, "PCIe 4.0 x16", "", "rack-pcie4", "a100-pcie-40gb"),
    ("A100 PCIe", 4, "NVLink bridge", "", "nc96ads-a100-v4", "a100-pcie-80gb"),
    ("Tesla V100-PCIE-32GB", 4, "", "", "rack-100gbe", "v100-pcie-32gb"),
    ("V100S-PCIE-32GB", 2, "PCIe Gen3", "", "rack-100gbe", "v100-pcie-32gb"),
    ("Tesla V100-SXM2-32GB", 8, "NVLink", "", "dgx-1v", "v100-sxm2-32gb"),
    ("V100-SXM3-32GB", 16, "NVSwitch", "DGX-2", "dgx-2", "v100-sxm3-32gb"),
    ("V100-SXM3-32GB-H (450W)", 16, "NVSwitch", "DGX-2H", "dgx-2h", "v100-sxm3-32gb-450w"),
    ("V100 PCIe", 8, "dual-root PCIe 3.0", "", "dual-root-pcie3", "v100-pcie-16gb"),
    ("NVIDIA RTX A6000", 8, "NVLink pairs", "", "a6000-8", "rtx-a6000"),
    ("RTX A6000", 4, "PCIe 4.0, no NVLink bridges", "", "rack-pcie4", "rtx-a6000"),
    ("NVIDIA A40", 8, "4 NVLink bridges", "", "a40-8", "a40"),
    ("GeForce RTX 3090", 8, "NVLink bridges between pairs", "", "rtx3090-8", "rtx3090"),
    ("GeForce RTX 4090", 8, "PCIe 4.0 x16, no P2P", "", "rtx4090-8", "rtx4090"),
    ("NVIDIA L40S", 8, "PCIe Gen4 with P2P", "", "l40s-8", "l40s"),
    ("NVIDIA H100 NVL", 8, "NVLink bridges", "", "h100-nvl-8", "h100-nvl"),
    ("NVIDIA H100 PCIe", 2, "NVLINK connected H100 PCIe GPUs", "", "h100-nvl-8", "h100-pcie"),
    ("H100-PCIe-80GB", 8, "PCIe 5.0 x16", "", "rack-pcie5", "h100-pcie"),
    ("NVIDIA H100 80GB HBM3", 8, "", "", "dgx-h100", "h100-sxm"),
    ("H100", 8, "18 NVLink 4 links to NVSwitch", "", "dgx-h100", "h100-sxm"),
    ("NVIDIA H20", 8, "NVLink 900GB/s", "", "h20-8", "h20"),
    ("NVIDIA H800", 8, "NVLink 400 GB/s", "", "h800-8", "h800-sxm"),
    ("NVIDIA GH200 480GB", 1, "", "", "gh200-1", "gh200-96gb"),
    ("GH200", 4, "NVLink", "", "gh200-4", "gh200-96gb"),
    ("2x NVIDIA DGX Spark (128GB)", 1, "", "ConnectX-7 200GbE", "dgx-spark", "gb10"),
    ("NVIDIA Grace Blackwell GB10", 1, "", "", "dgx-spark", "gb10"),
    ("NVIDIA Grace Blackwell", 4, "", "NVL72", "gb200-nvl72", "gb200"),
    ("NVIDIA B300 SXM6 AC", 8, "NVLINK Gen5", "", "dgx-b300", "b300"),
    ("B300", 8, "NVSwitch", "HGX B300", "hgx-b300", "b300"),
    ("NVIDIA GB300 NVL72", 4, "NVLINK Gen5", "", "gb300-nvl72", "gb300"),
    ("NVIDIA Blackwell Ultra GPU (GB300)", 4, "", "", "gb300-nvl72", "gb300"),
    ("B200", 8, "", "p6-b200.48xlarge", "p6-b200.48xlarge", "b200"),
    ("B200", 8, "", "GCP a4-highgpu-8g", "a4-high", "b200"),
    ("B300", 8, "", "p6-b300.48xlarge", "p6-b300.48xlarge", "b300"),
    ("H200", 8, "", "p5en.48xlarge", "p5en.48xlarge", "h200"),
    ("H200", 8, "", "p5e.48xlarge", "p5e.48xlarge", "h200"),
    ("H200", 8, "", "Standard_ND96isr_H200_v5", "nd-h200-v5", "h200"),
    ("RTX PRO 6000", 8, "", "g7e.48xlarge", "g7e.48xlarge", "rtx-pro-6000"),
    ("A100", 8, "", "p4de.24xlarge", "p4de.24xlarge", "a100-sxm-80gb"),
    ("A100", 8, "", "NDm A100 v4", "nd-a100-v4", "a100-sxm-80gb"),
    ("A100", 4, "", "NERSC Perlmutter", "perlmutter", "a100-sxm-40gb"),
    ("RTX PRO 6000 Blackwell Server Edition", 8, "PCIe 5.0", "", "rtx-pro-6000-8", "rtx-pro-6000"),
    ("AMD Instinct MI300X OAM 192GB", 8, "Infinity Fabric", "", "mi300x-8", "mi300x"),
    ("AMD Instinct MI355X", 8, "XGMI", "", "mi355x-8", "mi355x"),
    ("AMD Instinct MI350X", 8, "XGMI", "", "mi350x-8", "mi350x"),
    ("NVIDIA H100 80GB HBM2e", 8, "", "", "rack-pcie5", "h100-pcie"),
    ("H100 SXM 96GB HBM2e, 500 W", 8, "", "", "dgx-h100", "h100-sxm-96gb"),
    ("H100 96GB HBM2e 500 W, 8 per node", 8, "", "", "dgx-h100", "h100-sxm-96gb"),
    ("NVIDIA H100 94GB", 8, "NVLink bridges", "", "h100-nvl-8", "h100-nvl"),
    ("A100 PCIe", 4, "PCIe 4.0 x16, CPUs joined by xGMI", "", "a100-pcie-4", "a100-pcie-80gb"),
    ("A100-SXM4-80GB", 8, "12x NVLink3", "", "dgx-a100", "a100-sxm-80gb"),
    ("RTX 6000 Blackwell", 8, "", "", "rtx-pro-6000-8", "rtx-pro-6000"),
    ("NVIDIA A100-40", 8, "NVSwitch", "", "dgx-a100", "a100-sxm-40gb"),
    ("NVIDIA V100-32", 8, "NVLink", "", "dgx-1v", "v100-sxm2-32gb"),
    ("NVIDIA A100-PCIE-40GB (250W)", 4, "", "", "a100-pcie-4", "a100-pcie-40gb"),
    ("NVIDIA K80 24GB", 8, "", "", "p2.8xlarge", "k80-gk210"),
    ("NVIDIA GH200 480GB", 4, "", "", "gh200-4", "gh200-96gb"),
    ("GTX 1080 Ti", 8, "single-root PCIe switch", "", "single-root-pcie3", "gtx1080ti"),
]  # fmt: skip

#: accelerator, GPUs a node, inside the node → what the refusal names
REFUSED: list[tuple[str, int, str, str]] = [
    ("NVIDIA A100-PCIE-80GB", 8, "NVSwitch", "no NVSwitch joins"),
    ("NVIDIA H200-NVL-141GB", 8, "4-way NVLink bridge", "H200 NVL"),
    ("TPU v3", 8, "", "TPU v2 and v3"),
    ("Intel Gaudi 3", 8, "", "Gaudi"),
    ("AWS Trainium2", 16, "", "Trainium"),
    ("NVIDIA A1000", 2, "", "nearest"),
    ("A100X", 2, "PCIe", "nearest"),
    ("H100", 12, "", "GPUs? in a node|at most|in a node"),
    ("A100 or V100", 8, "", "several accelerators: a100 and v100"),
    ("not A100 but V100", 8, "", "is not"),
    ("V100 (8) + A100 (8)", 8, "", "several accelerators"),
    ("A100/H100 mix", 8, "", "several accelerators"),
    ("4090 or 3090", 8, "", "several accelerators"),
    ("RTX 2080 Ti / 1080 Ti", 8, "", "several accelerators"),
    ("A100 40GB or 80GB", 8, "", "several sizes"),
    ("A100 40/80GB", 8, "", "several sizes"),
    ("NVIDIA A100-40/80", 8, "", "several sizes"),
    ("A100 SXM or PCIe", 8, "", "alternatives"),
    ("H100 (MIG 3g.40gb)", 8, "", "a part of a GPU"),
    ("1/2 A100", 8, "", "a part of a GPU"),
    ("half an A100", 8, "", "a part of a GPU"),
    ("0.5x A100", 8, "", "a part of a GPU"),
    ("H100 SXM power capped 350W", 8, "", "usual power"),
    ("A100-SXM4-80GB", 8, "no NVLink", "wired like this"),
    ("A100-SXM4-80GB", 8, "NVLink disabled", "wired like this"),
    ("A100-SXM4-80GB", 8, "without NVSwitch", "wired like this"),
    ("H200", 8, "PCIe Gen5", "wired like this"),
    ("NVIDIA T4", 4, "NVLink", "NVLink between t4"),
    ("RTX 4090", 8, "NVLink", "NVLink between rtx4090"),
    ("MI300X", 8, "NVLink", "NVLink between mi300x"),
    ("MI300X", 8, "NVSwitch", "NVLink between mi300x"),
    ("A100-SXM4-80GB", 8, "XGMI", "XGMI between a100-sxm-80gb"),
    ("A100 PCIe", 8, "PCIe 4.0 x1", "fewer than 16 lanes"),
    ("L40S", 8, "PCIe Gen4 x8", "fewer than 16 lanes"),
    ("V100 PCIe", 8, "PCIe 2.0", "another generation"),
    ("V100 PCIe", 8, "PCIe Gen2", "another generation"),
    ("A100", 8, "NVLink 3 of 12 links", "a part of its NVLink"),
    ("A100", 8, "1x NVLink", "a part of its NVLink"),
    ("H800 PCIe", 8, "", "h800-sxm"),
    ("A800 PCIe", 8, "", "a800-sxm-80gb"),
    ("A800 40GB Active", 4, "", "a100-pcie-40gb"),
    ("NVIDIA H20-3e 141GB", 8, "", "nearest are h20"),
    ("V100 FHHL", 4, "", "nearest is v100-pcie-16gb"),
    ("V100-DGXS-32GB", 4, "", "nearest are v100-sxm2-16gb"),
    ("RTX 4090D", 8, "", "nearest is rtx4090"),
    ("RTX 4090 Laptop", 1, "", "laptops"),
    ("RTX PRO 6000 Blackwell Max-Q", 4, "", "Max-Q"),
    ("RTX 3090 Ti (RTX 4090)", 2, "", "names several accelerators"),
    ("RTX 5090 D", 8, "", "nearest is rtx5090"),
    ("H100 CNX", 8, "", "nearest is h100-pcie"),
    ("H100 SXM 70GB", 8, "", "nearest are .*h100-sxm-96gb"),
    ("A100 48GB", 8, "", "nearest are .*a100-pcie-40gb"),
    ("A100 @ 1005 MHz", 8, "", "below its usual power or clock"),
    ("A100 200W", 8, "", "below its usual power"),
    ("H100 SXM 80GB 500 W", 8, "", "below its usual power"),
    ("A100-SXM4-80GB PCIe", 8, "", "a module and a PCIe card"),
    ("H100 NVL SXM", 8, "", "a module and a PCIe card"),
    ("A100-SXM4-80GB no NVLink", 8, "", "wired like this"),
    ("A100 SXM without NVSwitch", 8, "", "wired like this"),
    ("A100-SXM4-80GB", 8, "no NVLink/NVSwitch", "wired like this"),
    ("A100-SXM4-80GB", 8, "no NVSwitch or NVLink", "wired like this"),
    ("A100-SXM4-80GB", 8, "NVLink: none", "wired like this"),
    ("V100", 8, "NCCL_P2P_DISABLE=1", "without peer-to-peer"),
    ("H100-SXM5-80GB NCCL_P2P_DISABLE=1", 8, "NVSwitch", "without peer-to-peer"),
    ("A100-SXM4-80GB", 8, "P2P: off", "without peer-to-peer"),
    ("A100-SXM4-80GB", 8, "NCCL_P2P_DISABLE: 1", "without peer-to-peer"),
    ("A100-SXM4-80GB", 8, "P2P disabled", "without peer-to-peer"),
]

#: text on the network between nodes → what the refusal names
REFUSED_NETWORKS: list[tuple[str, str]] = [
    ("no InfiniBand", "what the network is not"),
    ("InfiniBand disabled", "what the network is not"),
    ("2x200Gb/s HDR (only one used)", "a part of it"),
    ("8x HDR (4 not used)", "a part of it"),
    ("8x HDR, 4 disabled", "a part of it"),
    ("half of 8x HDR", "a part of it"),
    ("1/2 of 8x HDR", "a part of it"),
    ("50% of 8x HDR", "a part of it"),
    ("HDR200 1:2 oversubscribed, 8 NICs", "oversubscription"),
    ("8x NDR, 2:1 tapered", "oversubscription"),
    ("shared 100 Gb/s by 4 nodes", "shared"),
    ("100 Gb/s split between 4 nodes", "shared"),
    ("8x HDR at half speed", "a part of it"),
    ("1 NIC per 2 GPUs, 200G HDR", "shared"),
    ("8 × 400G, 4 GPUs share a NIC", "shared"),
    ("-100 Gbit/s", "a negative rate"),
    ("9" * 60 + " Gbit/s", "more than the"),
    ("9" * 400 + " Gbit/s", "more than the"),
    ("1 Mbit/s Ethernet", "less than the 0.01 of the slowest"),
    ("nan Gbit/s", "not written like 100 Gbit"),
    ("inf Gbit/s", "not written like 100 Gbit"),
    ("1e3 Gbit/s", "not written like 100 Gbit"),
    ("100 kbit/s", "not written like 100 Gbit"),
    ("100", "a number without a unit"),
    ("InfiniBand 100", "a number without a unit"),
    ("100 Mbps InfiniBand", "does not exist"),
    ("1.5x EDR", "a part of it"),
    ("half-speed EDR", "a part of it"),
    ("10 GbE / EDR", "alternatives"),
    ("8x HDR of which 4 idle", "a part of it"),
    ("8x 100 Gb/s (100 Gb/s per node)", "contradicts itself: 8 x 100 Gbit/s are not 100 a node"),
    ("8x 100 Gb/s RoCE, 100 Gb/s per node", "contradicts itself"),
    ("100 Gb/s per node (8x 100 Gb/s)", "contradicts itself"),
    ("peak 12.5 GB/s, effective 9 GB/s", "an effective rate beside a nominal one"),
    ("100 Gbit/s InfiniBand, GPUDirect RDMA off", "without GPUDirect"),
    ("8x HDR, NCCL_NET_GDR_LEVEL=0", "without GPUDirect"),
    ("100 Gbit/s per pair of GPUs", "shared"),
    ("100 Gbit/s per GPU pair", "shared"),
    ("200 Gb/s for every two GPUs", "shared"),
    ("25/100 GbE", "alternatives"),
    ("4-8 HDR NICs", "alternatives"),
    ("0x HDR", "a count of none"),
    ("0 NICs", "a count of none"),
    ("9999999999x HDR", "a count of thousands"),
    ("999x HDR", "999 NICs"),
    ("IB or RoCE", "alternatives"),
    ("8x HDR or 4x NDR", "alternatives"),
    ("never uses InfiniBand; 25 GbE", "a negation"),
]  # fmt: skip

#: accelerator, GPUs a node, inside, network → labels of the readings, the usual one first
OPEN: list[tuple[str, int, str, str, tuple[str, ...]]] = [
    ("NVIDIA V100", 4, "not stated", "1x EDR",
     ("modules on NVLink", "PCIe cards, GPUs reading each other over PCIe",
      "PCIe cards, staged through the host")),
    ("NVIDIA A100 PCIe", 4, "", "1x HDR",
     ("GPUs reading each other over PCIe", "staged through the host")),
    (H100, 8, "NVSwitch", "not stated",
     ("the network of the GPU's usual machine", "one NIC of the usual rate",
      "TCP over one Ethernet NIC")),
    (A100, 8, "NVSwitch", "InfiniBand",
     ("as many NICs as the usual machine has", "one NIC of the usual rate")),
    (H100, 8, "NVSwitch", "400 Gb/s NDR InfiniBand",
     ("as many such NICs as the usual machine has", "one such NIC")),
    (A100, 8, "NVSwitch", "100 Gb/s", ("RDMA", "TCP over Ethernet")),
    (A100, 8, "NVSwitch", "2x dual-port 100GbE",
     ("one port of each NIC", "both ports of each NIC")),
    (A100, 8, "NVSwitch", "800 Gb/s RoCE (8 NICs)",
     ("the rate of each NIC", "the rate of all NICs together")),
    (A100, 8, "NVSwitch", "Ethernet", ("10 Gbit/s", "25 Gbit/s", "100 Gbit/s")),
]  # fmt: skip


def test_the_tables_are_large() -> None:
    assert len(NETWORKS) + len(NODES) + len(REFUSED) + len(OPEN) > 100


def _rate(reading: MachineReading) -> tuple[int, float, str]:
    cluster = reading.cluster
    rate = float(cluster["inter_node_bandwidth"].split()[0])
    return cluster["nics_per_node"], rate, cluster["inter_node_kind"]


@pytest.mark.parametrize(("text", "nics", "gbits", "kind"), NETWORKS)
def test_a_network_is_read(text: str, nics: int, gbits: float, kind: str) -> None:
    found = platform(accelerator=H100, gpus_per_node=8, intra_node="NVSwitch", inter_node=text)
    assert _rate(found.readings[0]) == (nics, gbits, kind)


@pytest.mark.parametrize("accelerator", [H100, H200, B200])
@pytest.mark.parametrize("text", ["InfiniBand", "RoCE"])
def test_nodes_of_eight_from_hopper_on_have_a_nic_for_each_gpu(accelerator: str, text: str) -> None:
    found = platform(
        accelerator=accelerator, gpus_per_node=8, intra_node="NVSwitch", inter_node=text
    )
    assert [reading.cluster["nics_per_node"] for reading in found.readings] == [8]


@pytest.mark.parametrize(
    ("accelerator", "text", "generation"),
    [
        ("V100-SXM2-32GB", "EFA, 100 Gbit/s", 1),
        (A100, "EFAv1, 4 x 100 Gbps", 1),
        (A100, "Elastic Fabric Adapter, 400 Gbps per instance", 1),
        (H100, "EFAv2, 3200 Gbps per instance", 2),
        (H100, "Elastic Fabric Adapter, 800 Gbps per instance", 2),
        (H200, "EFAv3, 16 x 200 Gbps", 3),
        (B200, "EFAv4, 8 x 400 Gbps", 4),
        (H100, "8x ConnectX-7 InfiniBand NDR", 0),
    ],
)
def test_generations_of_efa_are_those_of_the_machine(
    accelerator: str, text: str, generation: int
) -> None:
    """Not of the rate, for NICs are bundles of adapters."""
    found = platform(accelerator=accelerator, gpus_per_node=8, inter_node=text)
    topology = bare_case({**found.cluster, "nodes": 2}).topology
    assert topology is not None
    assert graph_of(topology, range(topology.ranks)).efa == generation


@pytest.mark.parametrize(("accelerator", "gpus", "inside", "name", "machine", "device"), NODES)
def test_a_node_is_read(
    accelerator: str, gpus: int, inside: str, name: str, machine: str, device: str
) -> None:
    cluster = platform(
        accelerator=accelerator, gpus_per_node=gpus, intra_node=inside, machine=name, nodes=1
    ).cluster
    assert cluster["machine"] == machine
    own = load_machine(machine).device.name
    told = load_device(cluster["device"]).name if "device" in cluster else own
    assert told == load_device(device).name


@pytest.mark.parametrize(("accelerator", "gpus", "inside", "what"), REFUSED)
def test_what_would_be_misread_is_refused(
    accelerator: str, gpus: int, inside: str, what: str
) -> None:
    with pytest.raises(Refused, match=what):
        platform(accelerator=accelerator, gpus_per_node=gpus, intra_node=inside)


@pytest.mark.parametrize(("text", "what"), REFUSED_NETWORKS)
def test_a_network_that_would_be_misread_is_refused(text: str, what: str) -> None:
    with pytest.raises(Refused, match=what):
        platform(accelerator=H100, gpus_per_node=8, intra_node="NVSwitch", inter_node=text)


@pytest.mark.parametrize("inside", ["no NVLink", "NVLink disabled"])
def test_boards_without_nvlink_are_cards(inside: str) -> None:
    found = platform(accelerator="A100", gpus_per_node=4, intra_node=inside, nodes=1)
    assert [r.cluster["machine"] for r in found.readings] == ["a100-pcie-4", "rtx4090-8"]


@pytest.mark.parametrize("accelerator", ["A100 no NVLink", "A100, no NVLink", "A100 (NVLink: off)"])
def test_an_accelerator_that_says_what_it_lacks_is_read_as_its_node(accelerator: str) -> None:
    found = platform(accelerator=accelerator, gpus_per_node=4, nodes=1)
    assert [r.cluster["machine"] for r in found.readings] == ["a100-pcie-4", "rtx4090-8"]


@pytest.mark.parametrize(
    ("accelerator", "inside"),
    [
        *((card, "NCCL_P2P_DISABLE=1") for card in ("A100 PCIe", "H100 PCIe", "L40S", "T4")),
        *((card, "NVLink, NCCL_P2P_DISABLE=1") for card in ("A100 PCIe", "H100 PCIe", "RTX A6000")),
    ],
)
def test_cards_without_peer_to_peer_go_through_the_host(accelerator: str, inside: str) -> None:
    found = platform(accelerator=accelerator, gpus_per_node=4, intra_node=inside, nodes=1)
    assert [r.cluster["machine"] for r in found.readings] in (["rtx4090-8"], ["rtx2080ti-8"])


def test_a_total_does_not_hide_what_is_no_rate() -> None:
    for text, total, what in (
        ("8x HDR, GPUDirect off", 1600, "without GPUDirect"), ("8x HDR", 1e9, "more than the"),
        ("8x HDR", 1e-9, "less than the 0.01 of the slowest"),
        ("", 0.0, "less than the 0.01 of the slowest Ethernet; of one node it may be left out"),
    ):  # fmt: skip
        with pytest.raises(Refused, match=what):
            platform(accelerator=A100, gpus_per_node=8, inter_node=text, inter_gbits_s=total)


def test_peer_to_peer_that_the_network_s_text_denies_is_off() -> None:
    with pytest.raises(Refused, match="without peer-to-peer"):
        platform(accelerator=A100, gpus_per_node=8, inter_node="8x HDR, NCCL_P2P_DISABLE=1")


def test_a_board_that_stands_in_for_another_says_so() -> None:
    found = platform(accelerator="V100S", gpus_per_node=4, intra_node="with P2P", nodes=1)
    assert any("V100S is taken as V100 PCIe 32 GB" in note for note in found.notes)


@pytest.mark.parametrize(("accelerator", "gpus", "inside", "network", "labels"), OPEN)
def test_what_is_not_said_has_several_readings(
    accelerator: str, gpus: int, inside: str, network: str, labels: tuple[str, ...]
) -> None:
    found = platform(
        accelerator=accelerator, gpus_per_node=gpus, intra_node=inside, inter_node=network
    )
    assert tuple(reading.label for reading in found.readings) == labels
    assert sum(reading.weight for reading in found.readings) == pytest.approx(1.0)
    assert labels[1] in found.notes[-1]


@pytest.mark.parametrize("card", ["A100 PCIe", "V100-PCIE-32GB", "H100 PCIe", "L40S", "A40"])
def test_a_card_never_gets_the_nvlink_of_its_generation(card: str) -> None:
    for reading in platform(accelerator=card, gpus_per_node=4).readings:
        node = load_machine(reading.cluster["machine"]).node
        assert getattr(node, "bridge", None) is None
        assert not hasattr(node, "nvlink")


@pytest.mark.parametrize(
    ("accelerator", "machine"),
    [
        ("TPU-v5p", "tpu-v5p"), ("TPU v5litepod", "tpu-v5e"), ("TPU v6e (Trillium)", "tpu-v6e"),
        ("TPU v7x (Ironwood)", "tpu7x"), ("Google TPU v4", "tpu-v4"),
    ],
)  # fmt: skip
def test_all_hosts_of_tpus_are_one_slice(accelerator: str, machine: str) -> None:
    found = platform(
        accelerator=accelerator, gpus_per_node=4, inter_node="ICI, one slice", nodes=16, ranks=64
    )
    assert found.cluster == {"machine": machine, "gpus_per_node": 64}
    assert len(found.readings) == 1


@pytest.mark.parametrize("total", [None, 1600])
def test_nics_of_a_tray_are_those_of_a_part_of_the_domain(total: float | None) -> None:
    found = platform(
        accelerator="GB200 NVL72", gpus_per_node=4, inter_node="4x 400 Gb/s NDR",
        inter_gbits_s=total, nodes=36, ranks=144,
    )  # fmt: skip
    assert _rate(found.readings[0]) == (72, 400, IB)


def test_a_cloud_s_instance_on_ethernet_is_not_asked_for_rdma() -> None:
    found = platform(
        accelerator="A10G", gpus_per_node=4, intra_node="with P2P", inter_node="g5.24xlarge, "
        "100 Gbps",
    )  # fmt: skip
    assert [_rate(reading) for reading in found.readings] == [(1, 100, ETH)]


def test_one_node_has_no_network_to_ask_for() -> None:
    found = platform(accelerator=H100, gpus_per_node=8, intra_node="NVSwitch", nodes=1)
    assert len(found.readings) == 1
    assert found.notes == ()


def test_bits_and_bytes_are_told_apart_by_the_generation() -> None:
    found = platform(accelerator=A100, gpus_per_node=8, inter_node="1x HDR 200 GB/s")
    assert _rate(found.readings[0]) == (1, 200, IB)
    assert any("taken for bits" in note for note in found.notes)


def test_the_column_s_total_wins_over_the_text_and_says_so() -> None:
    found = platform(
        accelerator=A100, gpus_per_node=8, inter_node="8x HDR 200 Gb/s", inter_gbits_s=400
    )
    assert _rate(found.readings[0]) == (2, 200, IB)
    assert "The text counts 8, the total makes 2 NICs." in found.notes


@pytest.mark.parametrize(
    ("text", "accelerator", "link"),
    [
        ("8xH100 SXM, 1x100GbE", "8xH100 SXM", "1x100GbE"),
        ("A100-SXM4-40GB 2x200Gb HDR", "A100-SXM4-40GB", "2x200Gb HDR"),
        ("A100-SXM4-40GB (NVLink, 8x HDR)", "A100-SXM4-40GB (NVLink)", "8x HDR"),
        ("A100-SXM4-40GB with 10GbE", "A100-SXM4-40GB", "10GbE"),
        ("H100 SXM5 80GB; 400G IB", "H100 SXM5 80GB", "400G IB"),
        ("RTX 4090 PCIe, 25 Gbps ethernet", "RTX 4090 PCIe", "25 Gbps ethernet"),
        ("8 x A100 80GB NVLink + EFA", "8 x A100 80GB NVLink", "EFA"),
        ("10GbE V100", "V100", "10GbE"),
        ("8 x V100 EDR", "8 x V100", "EDR"),
        ("A100 40GB HDR", "A100 40GB", "HDR"),
        ("P100 / 56Gb FDR", "P100", "56Gb FDR"),
        ("A100 via TCP/IP", "A100", "TCP/IP"),
        ("IBM V100, IB", "IBM V100", "IB"),
        ("H100 8x400G", "H100", "8x400G"),
        ("A100 SXM4 HDR InfiniBand", "A100 SXM4", "HDR InfiniBand"),
        ("A100 PCIe 100GbE", "A100 PCIe", "100GbE"),
        ("V100 SXM2 NVLink EDR InfiniBand", "V100 SXM2 NVLink", "EDR InfiniBand"),
        ("h100, 400 gbps", "h100", "400 gbps"),
        ("A100-SXM4 80GIB, IB", "A100-SXM4 80GIB", "IB"),
        ("B200 (ConnectX-7, 400 Gb/s)", "B200", "ConnectX-7, 400 Gb/s"),
        ("A100 SXM4, 10GbE management, 8x200Gb HDR", "A100 SXM4", "10GbE management, 8x200Gb HDR"),
    ],
)
def test_links_beside_an_accelerator_join_the_nodes(text: str, accelerator: str, link: str) -> None:
    """They were left out without a word, and the usual machine's links taken instead."""
    found = platform(accelerator=text, gpus_per_node=8, nodes=2)
    beside = platform(accelerator=accelerator, gpus_per_node=8, inter_node=link, nodes=2)
    alone = platform(accelerator=accelerator, gpus_per_node=8, nodes=2)
    assert found == beside
    assert found != alone


@pytest.mark.parametrize(
    "text",
    [
        "A100-SXM4-40GB (40 GB)",
        "V100 32GB PCIe Gen3",
        "H100 SXM, NVLink and NVSwitch",
        "A100 600GB/s NVLink",
        "A100 SXM4 (2039 GB/s)",
        "MI300X Infinity Fabric",
        "A100 and H100",
        "RTX 3090, 19.5 Gbps GDDR6X",
        "RTX 4090 (21 Gbps GDDR6X)",
    ],
)
def test_what_is_inside_a_node_is_no_link_between_nodes(text: str) -> None:
    assert from_accelerator(text) == (text, "")


@pytest.mark.parametrize(
    ("text", "link"),
    [("A100 SXM4 80GB (8x HDR)", "10GbE"), ("A100 with IB", "no InfiniBand, 25GbE")],
)
def test_the_column_of_links_is_not_added_to(text: str, link: str) -> None:
    """Two columns made a network that neither named."""
    assert from_accelerator(text, link) == (text, link)
    found = platform(accelerator=text, gpus_per_node=8, inter_node=link, nodes=2)
    assert found.readings[0].cluster["inter_node_kind"] == "ethernet"
