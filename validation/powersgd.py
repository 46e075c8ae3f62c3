"""PowerSGD on V100 at 3 Gbit/s, as far as its source says what was run.

    python validation/powersgd.py

plays pytorch/pytorch issue 74148 (ResNet-50 on ImageNet, V100, two to a node, torch's hook, "the
lowest bandwidth is 3Gbit"): speed-ups over one GPU of 3.5, 5.23 and 5.46 on 4, 6 and 8.  Rank,
batch and dtype are not stated: the hook's rank 1, fp32 and the 128 images a device that torch's
ImageNet example has on two GPUs are assumed; what others would make of it is printed behind.
"""

from __future__ import annotations

from typing import Any

import dpsim

MEASURED = {4: 3.5, 6: 5.23, 8: 5.46}


def scenario(gpus: int, images: int, dtype: str) -> dict[str, Any]:
    """So many GPUs, two to a node."""
    cluster = {"machine": "dgx-1v", "nodes": max(gpus // 2, 1), "gpus_per_node": min(gpus, 2)}
    wire = {"inter_node_bandwidth": "3 Gbit/s", "inter_node_kind": "ethernet"}
    found = {
        "model": {"name": "resnet50"},
        "cluster": cluster | wire,
        "strategy": {"kind": "ddp"},
        "batch": {"per_device": images},
        "precision": {"compute": dtype},
        "input": {"limiting": False},
    }
    return found | ({"compression": {"kind": "powersgd", "rank": 1}} if gpus > 1 else {})


def speedups(images: int, dtype: str) -> dict[int, float]:
    """Of every count that was measured, over one GPU without the hook."""
    steps = {n: dpsim.predict(scenario(n, images, dtype)).step_time_s for n in (1, *MEASURED)}
    return {n: n * steps[1] / steps[n] for n in MEASURED}


def main() -> None:
    for dtype in ("fp32", "fp16"):
        for images in (128, 64, 32):
            found = speedups(images, dtype)
            shown = ", ".join(
                f"{n} GPUs {value:.2f} ({value / MEASURED[n] - 1:+.0%})"
                for n, value in found.items()
            )
            print(f"{dtype}, {images} images a device: {shown}")


if __name__ == "__main__":
    main()
