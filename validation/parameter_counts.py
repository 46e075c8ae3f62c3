"""Parameters of configurations as transformers itself counts them, on the meta device.

    python validation/parameter_counts.py [FILE.json ...]

Needs torch and transformers, no weights and no network.  Without files all bundled configurations
of transformers' are counted; those of diffusers are left out.  A line per file: dpsim's count,
transformers', and whether they are equal.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

from dpsim.core.record import Refused
from dpsim.models.huggingface import read_config, takes_length

CONFIGS = Path(__file__).parent.parent / "dpsim/models/configs"


def theirs(data: dict[str, Any]) -> int:
    """The parameters of the class that the configuration names."""
    config = transformers.CONFIG_MAPPING[data["model_type"]].from_dict(data)
    named = (data.get("architectures") or [""])[0]
    with torch.device("meta"):
        if (kind := getattr(transformers, named, None)) is not None:
            model = kind._from_config(config)
        else:
            model = transformers.AutoModelForCausalLM.from_config(config)
    return sum(tensor.numel() for tensor in model.parameters())


def ours(data: dict[str, Any]) -> int:
    length = 128 if takes_length(data) else None
    return read_config(data, sequence_length=length, name="counted").parameters


def main() -> int:
    differ = 0
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    for path in [Path(name) for name in sys.argv[1:]] or sorted(CONFIGS.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.get("model_type") not in transformers.CONFIG_MAPPING:
            print(f"{path.stem:28} not of transformers")
            continue
        try:
            own, other = ours(data), theirs(data)
        except Refused as error:
            print(f"{path.stem:28} refused: {error}")
            continue
        differ += own != other
        said = "equal" if own == other else f"{own - other:+,}"
        print(f"{path.stem:28} {own:18,} {other:18,}  {said}")
    print(f"{differ} differ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
