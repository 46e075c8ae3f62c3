"""How far off is a stand-in of equal blocks?  Known models are predicted as what they are and as
`uniform` with their parameters, FLOP and number of blocks, on the same clusters.

    python validation/stand_ins.py

prints, per cluster and over all, the quantiles of known / stand-in: of steps where nothing is
calibrated, and of steps relative to that of the smallest count (where a calibration sets the level
right).  The widths in `dpsim/models/architectures/uniform.py` are the 5 % and 95 % points over all,
rounded outwards.
"""

from __future__ import annotations

import sys

import numpy as np

import dpsim
from dpsim.models.named import load_named

#: name, and the samples of a rank, as they are usual
MODELS = {
    "resnet50": 64, "resnet152": 32, "vgg16": 32, "densenet121": 64, "efficientnet_b4": 16,
    "convnext_base": 32, "vit_l_16": 32, "swin_b": 32, "inception_v3": 64, "alexnet": 128,
    "bert-large": 8, "gpt2-xl": 1, "t5-large": 4, "bart-large": 4, "opt-1.3b": 1,
    "roberta-large": 8, "stable-diffusion-v1.5": 4, "dit_xl_2": 8, "whisper-large-v2": 1,
}  # fmt: skip
#: machine, the dtype that it computes in, and counts
CLUSTERS = (
    ("dgx-h100", "bf16", (8, 64)), ("dgx-a100", "bf16", (8, 16, 64, 256)),
    ("dgx-1v", "fp32", (8, 16, 64)), ("rack-10gbe", "fp32", (4, 8, 32)),
)  # fmt: skip
TOKENS = 512


def section(name: str) -> dict[str, object]:
    """The model itself, as a scenario names it."""
    model = load_named(name, TOKENS)
    return {"name": name} | ({"sequence_length": TOKENS} if model.tokens == TOKENS else {})


def stand_in(name: str) -> dict[str, object]:
    """Equal blocks of its size."""
    model = load_named(name, TOKENS)
    blocks = len({layer.unit for layer in model.layers if layer.unit}) or len(model.layers)
    return {
        "name": "uniform",
        "parameters": float(model.parameters),
        "flop_per_sample": f"{model.flop_per_sample()!r} FLOP",
        "blocks": blocks,
        "sample": "image" if model.sample == "image" else "sequence",
    }


def steps(
    model: dict[str, object], machine: str, dtype: str, counts: tuple[int, ...], batch: int
) -> np.ndarray:
    """Step times on `machine`."""
    document = {
        "model": model,
        "cluster": {"machine": machine, "ranks": 1},
        "strategy": {"kind": "ddp", "torch": "2.13"},
        "batch": {"per_device": batch},
        "precision": {"compute": dtype, "reduce": "fp32"},
        "sweep": {"cluster.ranks": list(counts)},
    }
    return np.array([point.step_time_s for point in dpsim.predict(document).points])  # type: ignore[union-attr]


def main() -> int:
    level: list[float] = []
    growth: list[float] = []
    for cluster in CLUSTERS:
        for name, batch in MODELS.items():
            real = steps(section(name), *cluster, batch)
            ratio = real / steps(stand_in(name), *cluster, batch)
            print(f"{cluster[0]:12} {name:24}", *(f"{r:6.2f}" for r in ratio), flush=True)
            level += list(ratio)
            growth += list(ratio[1:] / ratio[0])
    for what, found in (("steps", level), ("relative to the smallest count", growth)):
        low, mid, high = np.quantile(found, (0.05, 0.5, 0.95))
        print(f"{what}: {low:.2f} … {mid:.2f} … {high:.2f} of {len(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
