"""Rows of synchronous parameter servers: what their `collective:` section is.

Servers are taken to stand beside the workers, one for every node, as BytePS recommends
(bytedance/byteps docs/best-practice.md); a node's GPUs add up first (docs/architecture.md), so a
node pushes and pulls S bytes once.  A byte takes as long as one that NCCL sends between two such
nodes, or, where that is slower, as one that its GPUs add up inside.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from dpsim.accuracy.platforms import bare_case
from dpsim.backends.nccl import Nccl
from dpsim.core.record import Refused
from dpsim.predict.collective import timing

#: a size at which bandwidth is all [B]
_LARGE = 2**26


def servers(cluster: Mapping[str, Any], nodes: int, notes: list[str]) -> dict[str, Any]:
    """The `collective:` section of a run on `nodes` nodes of `cluster`; NCCL's on one node, where
    nothing is pushed.  `notes` grow by what is assumed."""
    if nodes == 1:
        return {"backend": "nccl"}
    notes.append("one parameter server for every node is assumed, beside the workers")
    latency, seconds = _message(json.dumps(dict(cluster)))
    return {
        "backend": "parameter_server",
        "servers": int(cluster["ranks"]),
        "latency": f"{latency:.6g} s",
        "bandwidth": f"{_LARGE / seconds:.6g} B/s",
    }


@lru_cache(maxsize=64)
def _message(cluster: str) -> tuple[float, float]:
    """Latency of a message between two nodes, and what `_LARGE` bytes take more [s]."""
    keys = {key: value for key, value in json.loads(cluster).items() if key != "ranks"}
    pair = bare_case({**keys, "gpus_per_node": 1, "nodes": 2}).topology
    node = bare_case({**keys, "nodes": 1}).topology
    if pair is None or node is None:
        raise Refused("parameter servers need a machine")
    between = timing(Nccl(), "all_reduce", _LARGE, pair)
    inside = timing(Nccl(), "all_reduce", _LARGE, node).seconds / 2 if node.ranks > 1 else 0.0
    small = timing(Nccl(), "all_reduce", 1, pair).seconds / 2
    return small, max(between.seconds - 2 * small, inside)
