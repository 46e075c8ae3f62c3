"""What Amazon's network plug-in tells NCCL to take on its machines (aws-ofi-nccl's tuner).

On P5, P5e, P5en and P6-B200, from three nodes on, whatever NCCL thinks of it: the plug-in has
regions in the plane of the logarithms of bytes and of ranks, each with an algorithm and a protocol,
for groups of all eight, of two or of one rank a node.  The first region that holds the point, on
its edge too, and whose pair NCCL allows is taken; beyond all of them NCCL chooses.

aws/aws-ofi-nccl at 2daf7d303aa1, src/tuner/nccl_ofi_regions.cpp (`is_inside_region`,
`region_get_coll_info_internal_v3`); the regions, `ofi_regions.yaml`, are those of that commit for
all versions of NCCL that take a tuner's word for it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from dpsim.core import yamlfile

#: the first version of NCCL that looks for such a tuner in the network's plug-in
#: (`ncclTunerPlugin_v2`)
TUNERS = (2, 21)
#: and the first that asks it where users have chosen an algorithm or a protocol
#: (`ncclTunerPlugin_v3`; `nccl_ofi_tuner_init_v2`)
BESIDE_USERS = (2, 22)
#: machines by the generation of their EFA adapters and the compute capability of their GPUs, times
#: ten, of which each has `GPUS`: P5 and P5e, P5en, P6-B200
MACHINES = {(2, 90): "p5", (3, 90): "p5en", (4, 100): "p6"}
GPUS = 8
#: nodes up to which "regions are not well defined" (there)
LEAST = 2
#: bytes and ranks that stand for none on a logarithmic axis (there: `transform_log2`)
_NONE = 1e-6
#: how near to an edge is on it, in these logarithms
_EDGE = 1e-10
Pair = tuple[str, str]
Corners = tuple[tuple[float, float], ...]


def machine_of(efa: int, capability: int, gpus: int) -> str:
    """Which of Amazon's machines that is, by adapters, GPUs and how many of these a node has, as
    `MACHINES` names it; "": none that the plug-in knows."""
    return MACHINES.get((efa, capability), "") if gpus == GPUS else ""


def told(
    machine: str, nodes: int, ranks: int, operation: str, size: float, pairs: Collection[Pair]
) -> Pair | None:
    """The one of `pairs` that the plug-in takes for `operation` on `size` bytes among `ranks` over
    `nodes` of `machine`; None: NCCL chooses."""
    if not machine or nodes <= LEAST or ranks % nodes:
        return None
    point = math.log2(max(size, _NONE)), math.log2(ranks)
    for pair, corners in _regions().get((machine, ranks // nodes, operation), ()):
        if pair in pairs and _holds(corners, *point):
            return pair
    return None


def _holds(corners: Corners, x: float, y: float) -> bool:
    """Whether a point is inside, as a ray to the right crosses an odd number of edges, or on the
    edge; some corners are given twice."""
    odd = False
    for (x0, y0), (x1, y1) in pairwise((*corners, corners[0])):
        across, along = (x1 - x0) * (y - y0) - (y1 - y0) * (x - x0), math.dist((x0, y0), (x1, y1))
        beside = (x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)
        if along and abs(across) <= _EDGE * along and 0.0 <= beside <= along**2:
            return True
        if (y0 > y) != (y1 > y):
            odd ^= x < x0 + (y - y0) * (x1 - x0) / (y1 - y0)
    return odd


@cache
def _regions() -> Mapping[tuple[str, int, str], list[tuple[Pair, Corners]]]:
    """All regions in order, in logarithms, by machine, ranks a node and operation."""
    data: Any = yamlfile.load(Path(__file__).with_name("ofi_regions.yaml"))[0]
    return {
        (machine, int(per_node), operation): [
            ((one["pair"][0], one["pair"][1]), _logarithms(one["corners"])) for one in regions
        ]
        for machine, sizes in data.items()
        for per_node, operations in sizes.items()
        for operation, regions in operations.items()
    }


def _logarithms(corners: list[list[float]]) -> Corners:
    return tuple((math.log2(x or _NONE), math.log2(y or _NONE)) for x, y in corners)
