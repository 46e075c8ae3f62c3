"""Predict: from a played case to an answer with its interval and its reasons.

The package can be called: ``dpsim.predict(…)`` is `dpsim.predict.prediction.predict`, whether or
not anything has imported this package before.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A package that bears the name of its main function."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        from dpsim.predict.prediction import predict

        return predict(*given, **named)


sys.modules[__name__].__class__ = _Callable
