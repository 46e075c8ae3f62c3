"""Rounds of local steps beside what was published of them.

    python validation/local_steps.py

Streaming DiLoCo (arXiv:2501.18512, table 1: simulated by its authors): a model of 1e9 parameters in
bf16 on two workers, hours with infinite bandwidth and at 1 Gbit/s.  The data-parallel row at
1 Gbit/s says how many steps there are; the streaming row (4 bits, a period of 100, fragments of 3
of 24 layers) is predicted, with no overlap, with a delay of one step, and with full overlap.

INTELLECT-1 (arXiv:2412.01152): 10e9 parameters, 14 nodes of 8 H100, int8, a period of 100, compute
utilisation of 83 to 96 %.  Assumed here: the shape of the model (42 blocks as those of Llama 3 8B)
and 128 sequences of 8,192 tokens a node and step; at several bandwidths, for the links differed.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import dpsim

#: tokens in 1e9 -> hours with infinite bandwidth; at 1 Gbit/s data-parallel, and streaming
STREAMING = {25: (0.67, 109.0, 0.88), 100: (2.7, 438.0, 3.5), 250: (6.75, 1097.0, 8.75)}
SITES = 14


def hours(step: float, steps: float, strategy: dict[str, Any]) -> tuple[float, float]:
    """Hours of so many steps of `step` seconds on two workers, and what a rank sends in one [B]."""
    body = {"name": "body", "parameters": 10**9, "forward": "0 s", "backward": f"{step!r} s"}
    found = dpsim.predict(
        {
            "model": {"dtype": "bf16", "layers": [body]},
            "cluster": {"ranks": 2},
            "collective": {"backend": "ideal_ring", "latency": "0 s", "bandwidth": "1 Gbit/s"},
            "strategy": strategy,
            "optimizer": {"kind": "none"},
        }
    ).points[0]
    return found.step_time_s * steps / 3600, found.sent.payload


def streaming() -> None:
    """Hours at 1 Gbit/s, and the ratio of what is sent."""
    for tokens, (free, plain, published) in STREAMING.items():
        steps = (plain - free) * 3600 / 16.0  # 2 GB each way over 1 Gbit/s
        step = free * 3600 / steps
        fp4 = {"kind": "diloco", "period": 100, "fragments": 8, "outer_dtype": "fp4"}
        found = [hours(step, steps, {**fp4, "delay": delay}) for delay in (0, 1, 12)]
        _, whole = hours(step, steps, {"kind": "diloco", "period": 1})
        shown = ", ".join(f"{one:.3g}" for one, _ in found)
        print(f"{tokens} B tokens: {shown} h (published {published}); "
              f"{whole / found[0][1]:.0f} times less sent")  # fmt: skip


def intellect(bandwidth: str) -> float:
    """Share of the time in which the nodes train by themselves."""
    names = [f"n{k}" for k in range(SITES)]
    block = {"hidden": 4096, "blocks": 42, "heads": 32, "kv_heads": 8, "feed_forward": 14336}
    found = dpsim.predict(
        {
            "model": {"name": "transformer", "family": "llama", **block, "vocabulary": 128256,
                      "sequence_length": 8192},
            "sites": [{"name": name, "machine": "dgx-h100", "nodes": 1} for name in names],
            "links": [{"between": list(pair), "bandwidth": bandwidth, "latency": "50 ms"}
                      for pair in combinations(names, 2)],
            "strategy": {"kind": "diloco", "period": 100, "outer_dtype": "int8",
                         "inner": {"kind": "fsdp"}},
            "batch": {"per_device": 1, "accumulation": 16},
            "precision": {"parameters": "fp32", "compute": "bf16", "reduce": "fp32"},
            "recompute": "full",
        }
    ).points[0]  # fmt: skip
    return min(found.round.period.step_times_s) / found.step_time_s


if __name__ == "__main__":
    streaming()
    for bandwidth in ("0.5 Gbit/s", "1 Gbit/s", "2 Gbit/s", "4 Gbit/s"):
        share = intellect(bandwidth)
        print(f"INTELLECT-1 at {bandwidth}: {share:.1%} (published 83 to 96 %)")
