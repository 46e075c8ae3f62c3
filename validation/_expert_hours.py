"""GPU-hours of DeepSeek-V3's training on 2,048 H800, as if all steps had its largest batch.

DeepSeek-AI, arXiv:2412.19437, table 1 and sections 3.2 and 4.2: 2,664,000 H800 GPU-hours for
14.8e12 tokens, 15,360 sequences a step, DualPipe, and norms and up-projections of attention
computed again.  dpsim computes whole blocks again or nothing, so the second way is the nearer one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

SCENARIO = Path(__file__).resolve().parents[1] / "scenarios" / "deepseek-v3-h800.yaml"
HOURS, TOKENS, SEQUENCES = 2.664e6, 14.8e12, 15360
#: what is told of a way to play the step, and the keys that it changes
WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("as the scenario", {}),
    ("DualPipe, nothing again", {"schedule": {"kind": "dualpipe"}, "recompute": "none"}),
)


def hours() -> None:
    """Print the hours of each way beside the published ones."""
    import dpsim

    data = yaml.safe_load(SCENARIO.read_text(encoding="utf-8"))
    few = data["batch"]["global"] // data["batch"]["accumulation"]
    data["batch"] = {"global": SEQUENCES, "accumulation": SEQUENCES // few}
    steps = TOKENS / (SEQUENCES * data["model"]["sequence_length"])
    for name, keys in WAYS:
        point = dpsim.predict(data | keys).points[0]
        own, low, high = (
            time * point.ranks * steps / 3.6e9
            for time in (point.step_time_s, point.interval.low, point.interval.high)
        )
        inside = "inside" if low <= HOURS / 1e6 <= high else "OUTSIDE"
        print(
            f"DeepSeek-V3, {name}: {point.step_time_s:.2f} s a step; {own:.2f} M GPU-hours", end=" "
        )
        print(f"[{low:.2f} … {high:.2f}], published {HOURS / 1e6:.3f}: {inside}")
