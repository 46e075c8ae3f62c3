"""Which GPU a PCI id is, and whose a network card is.

Vendor and device, as in the PCI ID Repository (pci-ids.ucw.cz, 2025), of devices that dpsim has.
Ids that several products share, or that a cloud gives a part of one, are left out.
"""

from __future__ import annotations

from collections.abc import Iterable

from dpsim.machines.devices import NicMaker

#: "vendor:device" -> the name of dpsim's device file
DEVICES = {
    "10de:1024": "k40",
    "10de:102d": "k80-gk210",
    "10de:17fd": "m40",
    "10de:15f8": "p100-pcie-16gb",
    "10de:15f9": "p100-sxm2-16gb",
    "10de:1b38": "p40",
    "10de:1b80": "gtx1080",
    "10de:1b06": "gtx1080ti",
    "10de:1db1": "v100-sxm2-16gb",
    "10de:1db4": "v100-pcie-16gb",
    "10de:1db5": "v100-sxm2-32gb",
    "10de:1db6": "v100-pcie-32gb",
    "10de:1d81": "titan-v",
    "10de:1e02": "titan-rtx",
    "10de:1e04": "rtx2080ti",
    "10de:1e07": "rtx2080ti",
    "10de:1eb8": "t4",
    "10de:20b0": "a100-sxm-40gb",
    "10de:20b2": "a100-sxm-80gb",
    "10de:20b5": "a100-pcie-80gb",
    "10de:20b7": "a30",
    "10de:20f1": "a100-pcie-40gb",
    "10de:2203": "rtx3090ti",
    "10de:2204": "rtx3090",
    "10de:2206": "rtx3080",
    "10de:2230": "rtx-a6000",
    "10de:2231": "rtx-a5000",
    "10de:2235": "a40",
    "10de:2236": "a10",
    "10de:2237": "a10g",
    "10de:2330": "h100-sxm",
    "10de:2331": "h100-pcie",
    "10de:2321": "h100-nvl",
    "10de:2324": "h800-sxm",
    "10de:2329": "h20",
    "10de:2335": "h200",
    "10de:2684": "rtx4090",
    "10de:26b1": "rtx-6000-ada",
    "10de:26b9": "l40s",
    "10de:27b8": "l4",
    "10de:2901": "b200",
    "10de:2b85": "rtx5090",
    "1002:738c": "mi100",
    "1002:740f": "mi210",
    "1002:74a1": "mi300x",
    "1002:74a5": "mi325x",
}


def of_all(ids: Iterable[tuple[str, str]]) -> str | None:
    """The id "vendor:device" that all have, given as ``0x10de`` and ``0x20b0``; None where they
    have several, or one has none."""
    found = {f"{vendor}:{device}".lower().replace("0x", "") for vendor, device in ids}
    (only, *others) = found or {""}
    return None if others or only.startswith(":") or only.endswith(":") or not only else only


def maker_of(vendor: str) -> NicMaker | None:
    """Whose network adapters those of a PCI `vendor` are: Amazon's, or nobody's that is asked for
    (NVIDIA/nccl 2.30.7 src/transport/net_socket.cc)."""
    return "amazon" if vendor.lower() == "0x1d0f" else None
