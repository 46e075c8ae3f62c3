"""What DeepSpeed's ZeRO-Offload adds: copies between a device and its host, and an update on CPUs.

Rules read in deepspeedai/DeepSpeed deepspeed/runtime/zero/stage_1_and_2.py and stage3.py (0.19.8):
a rank's slice of reduced gradients is cast to fp32 and copied to the host on the stream that
reduced it, so the next reduction waits; the CPUs update the shard; the updated parameters are
copied back in their own dtype.
"""

from __future__ import annotations

from dataclasses import dataclass

#: PCIe 3.0 x16 moves 15.75 GB/s (PCI-SIG, PCI Express Base 3.0: 8 GT/s, 128b/130b, 16 lanes), less
#: the headers of packets with 256 bytes and flow control: 12 to 13 GB/s for pinned memory
LINK = 12e9
#: two sockets of six DDR4-2666 channels each peak at 256 GB/s; a choice of less than half of it
MEMORY = 100e9
MASTER_BYTES = 4  # master weights and gradients are fp32
#: bytes read and written per parameter by one fp32 update on the host, as dpsim.models.compute
#: counts them
_TOUCHED = {"none": 0, "sgd": 12, "momentum": 20, "adam": 28}


@dataclass(frozen=True)
class OffloadHost:
    """`link` of one device to its host, one way, and `memory` of a node, shared by `ranks` ranks
    [B/s]."""

    link: float
    memory: float
    ranks: int

    def copy(self, size: float) -> float:
        """Seconds to move `size` bytes between a device and its host."""
        return size / self.link

    def update(self, kind: str, parameters: float) -> float:
        """Seconds until all ranks of a node have updated `parameters` parameters each."""
        return parameters * _TOUCHED[kind] * self.ranks / self.memory
