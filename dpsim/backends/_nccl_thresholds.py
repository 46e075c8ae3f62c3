"""How NCCL before 2.5 chooses: by sizes, not by estimates of the times.

Up to a size that latencies of 6 us a ring's step, 4 and 15 us a tree's (inside a node, between two)
and 5 GB/s give, an all-reduce between nodes goes over trees; a ring without NVLink counts as half
as fast again as a tree, and between two nodes with NVLink trees always win.  Up to another, of the
bytes of a GPU's threads, LL is taken.

Source: NVIDIA/nccl src/init.cc (`ncclTreeThreshold`, `ncclThreadThreshold`), src/enqueue.cc
(`getPatternInfo`, `getKernelInfo`) and src/misc/rings.cc (`ncclGetRings`: rings are doubled with
NVLink only), 2.4.8-1 (cd931d0d); the rule for trees stands in 2.4.6-1 and 2.4.7-1 too.  2.0 to 2.3,
which have no trees, are taken to use LL as 2.4 does.
"""

from __future__ import annotations

import math

#: GB/s of a ring's channel with NVLink, and of all rings together without
_RING = 5.0
#: a tree's bandwidth over a ring's, with NVLink and without
_TREE_OVER_RING = {True: 3 / 4, False: 2 / 3}
#: latencies [us] of a ring's step, and of a tree's inside a node and between two
_RING_STEP, _TREE_INSIDE, _TREE_BETWEEN = 6.0, 4.0, 15.0
#: threads of a channel with LL, and bytes of each before there is another channel
_LEAST_THREADS, _MOST_THREADS, _PER_THREAD = 64, 256, 8
#: bytes of a thread up to which LL is taken, before Volta and since; times so many between nodes
_OLD_LL, _LL, _BETWEEN_NODES = 32, 64, 2
#: a tree's threads take that many times as much
_TREE_LL = 4
#: compute capability of Volta, times ten
_VOLTA = 70


def tree_limit(ranks: int, nodes: int, channels: int, nvlink: bool) -> float:
    """The largest all-reduce [B] that goes over trees: 0 inside a node, infinity where trees win at
    every size.  `channels` counts those in use."""
    if nodes < 2:
        return 0.0
    depth = math.floor(math.log2(nodes))
    saved = _RING_STEP * (ranks - 1) - _TREE_BETWEEN * depth - _TREE_INSIDE * (ranks // nodes - 1)
    if saved <= 0:
        return 0.0
    ring = _RING * 1e3 * (channels if nvlink else 1)  # B/us
    tree = ring * _TREE_OVER_RING[nvlink] * (2 if nvlink and nodes == 2 else 1)
    return math.inf if tree > ring else ring * tree / (ring - tree) * saved


def ll_limit(
    size: float, chunks: int, channels: int, nodes: int, *, tree: bool = False, capability: int = 0
) -> float:
    """The largest collective [B] that takes LL, as NCCL works it out for one of `size` bytes.

    chunks      pieces that go round at once: the ranks in a ring, 1 in a tree or from a root
    capability  of the GPUs, NVIDIA's times ten; 0: none is stated, and Volta's is taken
    """
    threads = _LEAST_THREADS
    while size > threads * chunks * _PER_THREAD and threads < _MOST_THREADS:
        threads *= 2
    used = min(max(math.ceil(size / (threads * chunks * _PER_THREAD)), 1), channels)
    each = _OLD_LL if 0 < capability < _VOLTA else _LL
    each *= _BETWEEN_NODES if nodes > 1 else 1
    return used * threads * chunks * each * (_TREE_LL if tree else 1)
