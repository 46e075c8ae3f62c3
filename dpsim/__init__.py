"""dpsim: how data-parallel training scales, before anyone buys or rents the machines.

>>> import dpsim
>>> dpsim.predict("worked/ddp_steady").step_time_s  # doctest: +ELLIPSIS
0.02345...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsim._version import __version__

if TYPE_CHECKING:
    from dpsim.accuracy import validate
    from dpsim.checks.collective import CollectiveAnswer, collective
    from dpsim.core.record import Refused
    from dpsim.describe.scenario import Loaded, Scenario, change, read
    from dpsim.machines.exchange import machine_graph, machine_of
    from dpsim.measurements.calibration.gathering import Gathered, calibrate
    from dpsim.measurements.live import from_torch
    from dpsim.planning.comparing import Compared, compare
    from dpsim.planning.planned import Planned, plan
    from dpsim.planning.sweeping import sweep
    from dpsim.planning.swept import Swept
    from dpsim.predict.explaining import explain
    from dpsim.predict.explanation import Explanation
    from dpsim.predict.prediction import Prediction, predict
    from dpsim.serving.answer import ServingAnswer, serve

#: where each name is; it is imported when it is first used
_WHERE = {
    "CollectiveAnswer": "dpsim.checks.collective",
    "Compared": "dpsim.planning.comparing",
    "Explanation": "dpsim.predict.explanation",
    "Gathered": "dpsim.measurements.calibration.gathering",
    "Loaded": "dpsim.describe.scenario",
    "Planned": "dpsim.planning.planned",
    "Prediction": "dpsim.predict.prediction",
    "Refused": "dpsim.core.record",
    "Scenario": "dpsim.describe.scenario",
    "ServingAnswer": "dpsim.serving.answer",
    "Swept": "dpsim.planning.swept",
    "calibrate": "dpsim.measurements.calibration.gathering",
    "change": "dpsim.describe.scenario",
    "collective": "dpsim.checks.collective",
    "compare": "dpsim.planning.comparing",
    "explain": "dpsim.predict.explaining",
    "from_torch": "dpsim.measurements.live",
    "machine_graph": "dpsim.machines.exchange",
    "machine_of": "dpsim.machines.exchange",
    "plan": "dpsim.planning.planned",
    "predict": "dpsim.predict.prediction",
    "read": "dpsim.describe.scenario",
    "serve": "dpsim.serving.answer",
    "sweep": "dpsim.planning.sweeping",
    "validate": "dpsim.accuracy",
}

__all__ = [
    "CollectiveAnswer", "Compared", "Explanation", "Gathered", "Loaded", "Planned", "Prediction",
    "Refused", "Scenario", "ServingAnswer", "Swept", "__version__", "calibrate", "change",
    "collective", "compare", "explain", "from_torch", "machine_graph", "machine_of", "plan",
    "predict", "read", "serve", "sweep", "validate",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import on first use, so that ``import dpsim`` and ``dpsim --help`` stay light."""
    if name not in _WHERE:
        raise AttributeError(f"module 'dpsim' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
