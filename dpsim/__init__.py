"""dpsim: how data-parallel training scales, before anyone buys or rents the machines.

>>> import dpsim
>>> dpsim.predict(dpsim.read("worked/ddp_steady")).step_time_s  # doctest: +ELLIPSIS
0.02345...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsim._version import __version__

if TYPE_CHECKING:
    from dpsim.prediction import Prediction, predict
    from dpsim.record import Refused
    from dpsim.scenario import Scenario, read

__all__ = ["Prediction", "Refused", "Scenario", "__version__", "predict", "read"]

_WHERE = {
    "Prediction": "dpsim.prediction",
    "predict": "dpsim.prediction",
    "Refused": "dpsim.record",
    "Scenario": "dpsim.scenario",
    "read": "dpsim.scenario",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that ``import dpsim`` and ``dpsim --help`` stay light."""
    if name not in _WHERE:
        raise AttributeError(f"module 'dpsim' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_WHERE[name]), name)
