"""Scenarios as the plain data that reads back to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsim.backends import Backend
from dpsim.compile.loaders import Loader
from dpsim.compile.schedules import Schedule
from dpsim.compile.strategies import Strategy
from dpsim.core import plugins
from dpsim.core.fields import is_record
from dpsim.core.record import Refused, dump
from dpsim.describe.sections import Calibrate
from dpsim.life.recoveries import Recovery
from dpsim.models.section import dump_model

if TYPE_CHECKING:
    from dpsim.describe.scenario import Scenario

#: plug-ins of a scenario, and the key that names each
_TAGS = (
    (Backend, "backend"), (Schedule, "kind"), (Loader, "loader"), (Recovery, "kind"),
)  # fmt: skip


def to_data(scenario: Scenario) -> dict[str, Any]:
    """`scenario` as plain data that reads back to an equal one."""
    data: dict[str, Any] = dump(scenario)
    data["model"] = dump_model(scenario.model)
    data["strategy"] = _strategy_data(scenario.strategy)
    if scenario.collective is not None:
        data["collective"] = {
            "backend": plugins.name_of(scenario.collective),
            **dump(scenario.collective),
        }
    _write_life(scenario, data)
    if scenario.recovery is not None:
        data["recovery"] = {"kind": plugins.name_of(scenario.recovery), **dump(scenario.recovery)}
    if isinstance(scenario.input, Loader):
        data["input"] = {"loader": plugins.name_of(scenario.input), **dump(scenario.input)}
    elif scenario.input is not None and scenario.input.rate is not None:
        data["input"]["rate"] = shown_rate(scenario.input.rate)
    if scenario.schedule is not None:
        data["schedule"] = {"kind": plugins.name_of(scenario.schedule), **dump(scenario.schedule)}
    if scenario.calibrate is not None:
        _write_rates(scenario.calibrate, data["calibrate"])
    return data


def _write_life(scenario: Scenario, data: dict[str, Any]) -> None:
    """Intervals that may be times or steps, and rates."""
    checkpoint, evaluation, failures = scenario.checkpoint, scenario.evaluation, scenario.failures
    asked: list[tuple[Any, dict[str, Any]]] = []
    if checkpoint is not None:
        asked = [(checkpoint, data["checkpoint"])]
        asked += zip(checkpoint.levels or (), data["checkpoint"].get("levels") or (), strict=True)
    if evaluation is not None:
        asked.append((evaluation, data["evaluation"]))
    for one, section in asked:
        if isinstance(one.every, float):
            section["every"] = f"{one.every!r} s"
    if failures is not None and failures.preemption and failures.preemption.rate is not None:
        data["failures"]["preemption"]["rate"] = f"{failures.preemption.rate!r}/s"


def plain_data(value: Any) -> Any:
    """A copy of `value` as a file would give it: numbers and arrays, also numpy's and pandas', as
    Python's own, records and other dataclasses as mappings.  Refused where it holds itself."""
    try:
        return _plain(value)
    except RecursionError:
        raise Refused(
            "a scenario that holds itself, or is nested too deep, cannot be read"
        ) from None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic | np.ndarray) or hasattr(type(value), "__array__"):
        return np.asarray(value).tolist()
    if isinstance(value, Decimal):
        return int(value) if value.is_finite() and value % 1 == 0 else float(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _of_record(value)
    return value


def _of_record(value: Any) -> Any:
    """A dataclass as a mapping: of a record what is not its default, of others all that is there.
    A plug-in says its name."""
    if not is_record(type(value)):
        return {one.name: _plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, Strategy):
        return _strategy_data(value)
    key = next((key for kind, key in _TAGS if isinstance(value, kind)), None)
    return {key: plugins.name_of(value), **dump(value)} if key else dump(value)


def shown_rate(rate: tuple[float, str]) -> str:
    """A throughput as a file has it."""
    return f"{rate[0]!r} {rate[1]}/s"


def _strategy_data(strategy: Strategy) -> dict[str, Any]:
    """`strategy`, and the one inside it, as plain data."""
    data = {"kind": plugins.name_of(strategy), **dump(strategy)}
    inner = getattr(strategy, "inner", None)
    if "inner" in data and isinstance(inner, Strategy):
        data["inner"] = _strategy_data(inner)
    return data


def _write_rates(calibrate: Calibrate, data: dict[str, Any]) -> None:
    """Throughputs in `data`, the plain data of `calibrate`, as a file has them."""
    rates = [calibrate.throughput, *(point.throughput for point in calibrate.points or ())]
    for rate, mapping in zip(rates, [data, *data.get("points", ())], strict=True):
        if rate is not None:
            mapping["throughput"] = shown_rate(rate)
