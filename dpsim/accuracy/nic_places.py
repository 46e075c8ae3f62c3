"""What the build of a machine's nodes says of the NICs that they may have."""

from __future__ import annotations

from dpsim.accuracy.questions import FULL
from dpsim.machines.fabrics.torus import Torus
from dpsim.machines.machine import Machine
from dpsim.machines.topology import LARGEST_SERVER


def one_each(machine: Machine, nics: int) -> bool:
    """Whether nodes with an RDMA network have a NIC for each GPU, so that one for all is no
    reading: eight GPUs from Hopper on, as NVIDIA's DGX and HGX platforms are built (DGX H100
    system architecture) and as clouds let them (ND H100 v5, p5, BM.GPU.H100), and modules of a
    processor and a GPU, beside each of which stands its own (CSCS documentation, Alps)."""
    several = machine.gpus_per_node >= 8 or _of_modules(machine)
    return machine.device.compute_capability >= 90 and several and nics >= machine.gpus_per_node


def _of_modules(machine: Machine) -> bool:
    """Whether nodes are several modules of a processor and a GPU each."""
    return machine.device.name.startswith("GH200") and machine.gpus_per_node > 1


def of_nodes(machine: Machine) -> bool:
    """Whether a node here is an NVLink domain of many, all of which have NICs: one for all, or a
    port of a host, is no reading."""
    return machine.gpus_per_node > LARGEST_SERVER and not isinstance(machine.node, Torus)


def situation(machine: Machine) -> str:
    """Whose weights hold: those of nodes of eight GPUs with a NIC for every one or two, or others,
    to which slices of TPUs belong."""
    gpus = machine.gpus_per_node
    full = not isinstance(machine.node, Torus) and FULL <= gpus <= 2 * machine.nics_per_node
    return "full" if full or _of_modules(machine) else "other"
