"""Published variability by name: what was seen, where, and how it is read."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

Name = Literal["megascale", "greyhound", "llama3"]


class Preset(NamedTuple):
    """The keys of `variability` that a preset stands for, and where they come from."""

    keys: dict[str, Any]
    source: str


PRESETS: dict[str, Preset] = {
    "megascale": Preset(
        {"random_slow": {"probability": 0.005, "factor": 1.1, "per": "node"}},
        "about 0.5 % of machines are about 10 % slow (MegaScale, arXiv:2402.15627)",
    ),
    "greyhound": Preset(
        {"random_slow": {"probability": 6 / 392, "factor": 1.1179, "per": "node"}},
        "6 of 392 jobs on one node were slow at times and took 11.79 % longer in the mean "
        "(FALCON, later Greyhound, arXiv:2410.12588); here for the whole run",
    ),
    "llama3": Preset(
        {"shared": {"factor": {"kind": "uniform", "low": 1.0, "high": 1.02}, "per": "all"}},
        "throughput varies by 1 to 2 % over a day (Llama 3, arXiv:2407.21783, section 3.3); here "
        "up to 2 %, for all ranks alike",
    ),
}
