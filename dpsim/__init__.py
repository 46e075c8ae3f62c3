"""dpsim: how data-parallel training scales, before anyone buys or rents the machines.

>>> import dpsim
>>> dpsim.predict("worked/ddp_steady").step_time_s  # doctest: +ELLIPSIS
0.02345...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsim._version import __version__

if TYPE_CHECKING:
    from dpsim.core.record import Refused
    from dpsim.describe.scenario import Scenario, read
    from dpsim.measurements.live import from_torch
    from dpsim.predict.prediction import Prediction, predict

__all__ = ["Prediction", "Refused", "Scenario", "__version__", "from_torch", "predict", "read"]

_WHERE = {
    "Prediction": "dpsim.predict.prediction",
    "predict": "dpsim.predict.prediction",
    "Refused": "dpsim.core.record",
    "from_torch": "dpsim.measurements.live",
    "Scenario": "dpsim.describe.scenario",
    "read": "dpsim.describe.scenario",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that ``import dpsim`` and ``dpsim --help`` stay light."""
    if name not in _WHERE:
        raise AttributeError(f"module 'dpsim' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
